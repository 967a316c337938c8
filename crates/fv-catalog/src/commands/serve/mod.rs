//! `serve`: the calculator and the compiled catalog, from this program alone.

use clap::Args;

use crate::cli::{Context, Done};

#[cfg(feature = "page")]
mod site;

/// Where the calculator is to be found.
#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// The port; 0 takes one that is free
    #[arg(long, value_name = "N", default_value_t = 8787)]
    port: u16,
    /// The address to listen on; any but a loopback address shows the page to others
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    address: std::net::IpAddr,
}

#[cfg(not(feature = "page"))]
pub(crate) fn serve(_context: &mut Context, _arguments: &ServeArgs) -> Done {
    let how = "this build has no calculator in it: `make web`, then build with `--features page`, or copy web/apps/calculator/dist to any \
               web server";
    Err(crate::cli::Stop::Usage(how.into()))
}

#[cfg(feature = "page")]
pub(crate) fn serve(context: &mut Context, arguments: &ServeArgs) -> Done {
    server::serve(context, arguments)
}

#[cfg(feature = "page")]
mod server {
    use std::{
        io::Write,
        net::SocketAddr,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        thread,
    };

    use tiny_http::{Header, Request, Response, Server};

    use super::{ServeArgs, site::Site};
    use crate::cli::{Context, Done, Stop};

    /// Requests answered at the same time: a browser opens six connections to a host.
    const WORKERS: usize = 6;

    pub(super) fn serve(context: &mut Context, arguments: &ServeArgs) -> Done {
        let asked = SocketAddr::new(arguments.address, arguments.port);
        let server = Server::http(asked).map_err(|error| {
            Stop::Usage(format!("cannot listen on {asked}: {error}; another port is taken with --port N, a free one with --port 0"))
        })?;
        let address = server.server_addr().to_ip().unwrap_or(asked);
        let site = Site::new(&context.catalog()?, address);

        let (server, stopped) = (Arc::new(server), Arc::new(AtomicBool::new(false)));
        let (waiting, set) = (Arc::clone(&server), Arc::clone(&stopped));
        // The first signal lets requests in progress end, the second does not.
        let stop = move || {
            if set.swap(true, Ordering::Relaxed) {
                std::process::abort();
            }
            (0..WORKERS).for_each(|_| waiting.unblock());
        };
        ctrlc::set_handler(stop).map_err(|error| Stop::Usage(format!("cannot stop on Ctrl-C: {error}")))?;

        writeln!(context.out, "http://{address}/ shows the calculator; Ctrl-C stops it")?;
        if !address.ip().is_loopback() {
            writeln!(context.err, "note: {} is no loopback address, so others can open the page too", address.ip())?;
        }
        context.out.flush()?;
        thread::scope(|scope| {
            for _ in 0..WORKERS {
                scope.spawn(|| {
                    while !stopped.load(Ordering::Relaxed) {
                        // What ends early is that connection's own trouble.
                        if let Ok(request) = server.recv() {
                            let _ = answer(&site, request);
                        }
                    }
                });
            }
        });
        Ok(writeln!(context.out, "stopped")?)
    }

    fn answer(site: &Site, request: Request) -> std::io::Result<()> {
        let host = request.headers().iter().find(|header| header.field.equiv("Host")).map(|header| header.value.as_str().to_owned());
        let answer = site.answer(request.method().as_str(), request.url(), host.as_deref());
        let headers = answer.headers.iter().filter_map(|(name, value)| Header::from_bytes(name.as_bytes(), value.as_bytes()).ok());
        // For HEAD, tiny_http sends the headers alone.
        let response = Response::new(answer.status.into(), headers.collect(), answer.body, Some(answer.body.len()), None);
        request.respond(response)
    }
}
