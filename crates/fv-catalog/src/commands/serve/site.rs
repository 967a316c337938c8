//! What is served: a table of paths, made once. Nothing is read from disk while serving, so no path leads anywhere else.

use std::{borrow::Cow, collections::BTreeMap, net::SocketAddr};

use fv_catalog::write;
use fv_data::Catalog;
use fv_spec::compiled::{Device, HardwareFile, VERSION};
use include_dir::{Dir, include_dir};

static PAGE: Dir<'static> = include_dir!("$CARGO_MANIFEST_DIR/../../web/apps/calculator/dist");

/// The page runs its own scripts and its own WebAssembly, and asks its own folder alone. Bars and swatches have their sizes and
/// colours as styles of elements, and the picture of the chart is made of a `blob:`.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' blob: data:; \
                      connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What a request is answered with.
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: &'a [u8],
}

/// Every file by its path.
pub(super) struct Site {
    files: BTreeMap<String, Cow<'static, [u8]>>,
    /// Names under which this server may be asked; nothing where it is open to others.
    hosts: Vec<String>,
}

impl Site {
    /// The page as embedded, with `catalog` in place of the one it was built with.
    pub(super) fn new(catalog: &Catalog, address: SocketAddr) -> Self {
        let mut files = BTreeMap::new();
        add(&PAGE, &mut files);
        files.retain(|path, _| !path.starts_with("catalog/"));
        for (path, text) in write::compiled(catalog) {
            files.insert(format!("catalog/{path}"), Cow::Owned(text.into_bytes()));
        }
        files.insert("catalog/hardware.slim.json".into(), Cow::Owned(slim(catalog).into_bytes()));
        // The answer that was prepared with the page is one to another catalog: the estimator answers in its place.
        files.insert("catalog/first.json".into(), Cow::Borrowed(b"{}"));
        let port = address.port();
        let names = ["127.0.0.1", "localhost", "[::1]"].iter().map(|name| format!("{name}:{port}"));
        let hosts = if address.ip().is_loopback() { names.chain([address.to_string()]).collect() } else { Vec::new() };
        Self { files, hosts }
    }

    pub(super) fn answer(&self, method: &str, url: &str, host: Option<&str>) -> Answer<'_> {
        // A page elsewhere whose name was made to lead here would otherwise read this as its own.
        if !self.hosts.is_empty() && !host.is_some_and(|host| self.hosts.iter().any(|known| known.eq_ignore_ascii_case(host))) {
            return Answer::plain(421, "This server answers to localhost alone.\n");
        }
        if !matches!(method, "GET" | "HEAD") {
            return Answer { headers: vec![("Allow", "GET, HEAD")], ..Answer::plain(405, "Only GET and HEAD are answered.\n") };
        }
        let path = url.split(['?', '#']).next().unwrap_or_default();
        let path = match path.strip_prefix('/') {
            Some("") => "index.html",
            Some(path) => path,
            None => "",
        };
        let Some(body) = self.files.get(path) else {
            return Answer::plain(404, "There is no such file here. The calculator is at /.\n");
        };
        let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
        let headers = vec![
            ("Content-Type", kind(path)),
            ("Cache-Control", cache),
            ("Content-Security-Policy", POLICY),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
        ];
        Answer { status: 200, headers, body }
    }
}

impl Answer<'static> {
    fn plain(status: u16, text: &'static str) -> Self {
        let headers =
            vec![("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")];
        Self { status, headers, body: text.as_bytes() }
    }
}

fn add(folder: &'static Dir<'static>, files: &mut BTreeMap<String, Cow<'static, [u8]>>) {
    for file in folder.files() {
        // Windows writes its own separators.
        let path = file.path().to_string_lossy().replace('\\', "/");
        files.insert(path, Cow::Borrowed(file.contents()));
    }
    folder.dirs().for_each(|inner| add(inner, files));
}

/// The devices without what the page's first view does not show; `vite.config.ts` makes the same for static hosts.
fn slim(catalog: &Catalog) -> String {
    let mut devices: Vec<Device> =
        catalog.devices.iter().map(|device| Device { sources: Vec::new(), notes: None, ..device.clone() }).collect();
    devices.sort_by(|a, b| a.id.cmp(&b.id));
    write::json(&HardwareFile { version: VERSION, devices })
}

fn kind(path: &str) -> &'static str {
    match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("json") => "application/json",
        Some("wasm") => "application/wasm",
        Some("svg") => "image/svg+xml",
        Some("webmanifest") => "application/manifest+json",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(address: &str) -> Site {
        let catalog = Catalog::embedded().expect("the embedded catalog is readable");
        Site::new(&catalog, address.parse().expect("an address"))
    }

    fn status(site: &Site, url: &str) -> u16 {
        site.answer("GET", url, Some("127.0.0.1:8787")).status
    }

    #[test]
    fn the_page_and_the_catalog_are_there() {
        let site = site("127.0.0.1:8787");
        for url in [
            "/",
            "/index.html",
            "/?utm=1",
            "/sw.js",
            "/catalog/index.json",
            "/catalog/hardware.slim.json",
            "/catalog/models/fastwan21.json",
        ] {
            assert_eq!(status(&site, url), 200, "{url}");
        }
        let page = site.answer("GET", "/", Some("localhost:8787"));
        assert!(page.headers.contains(&("Content-Type", "text/html; charset=utf-8")));
        assert!(page.headers.iter().any(|(name, value)| *name == "Content-Security-Policy" && value.contains("default-src 'none'")));
        let wasm = site.files.keys().find(|path| kind(path) == "application/wasm").expect("a module");
        let module = site.answer("HEAD", &format!("/{wasm}"), Some("[::1]:8787"));
        assert!(module.headers.contains(&("Content-Type", "application/wasm")));
        assert!(module.headers.iter().any(|(_, value)| value.contains("immutable")));
    }

    #[test]
    fn the_short_list_is_the_one_that_static_hosts_get() {
        let built = PAGE.get_file("catalog/hardware.slim.json").expect("built with the page").contents();
        let built: serde_json::Value = serde_json::from_slice(built).expect("JSON");
        let ours: serde_json::Value = serde_json::from_str(&slim(&Catalog::embedded().expect("a catalog"))).expect("JSON");
        assert_eq!(built, ours);
    }

    #[test]
    fn tricks_with_paths_lead_nowhere() {
        let site = site("127.0.0.1:8787");
        let tricks = [
            "/../Cargo.toml",
            "/..%2fCargo.toml",
            "/%2e%2e/Cargo.toml",
            "//etc/passwd",
            "/assets/../index.html",
            "/assets//",
            "/catalog\\index.json",
            "/./index.html",
            "/index.html/",
            "/INDEX.HTML",
            "/index.html%00.js",
            "http://127.0.0.1:8787/",
            "*",
            "",
        ];
        for url in tricks {
            assert_eq!(status(&site, url), 404, "{url:?}");
        }
    }

    #[test]
    fn other_methods_and_other_names_are_refused() {
        let local = site("127.0.0.1:8787");
        for method in ["POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "get"] {
            assert_eq!(local.answer(method, "/", Some("localhost:8787")).status, 405, "{method}");
        }
        for host in [None, Some("evil.example"), Some("evil.example:8787"), Some("127.0.0.1"), Some("127.0.0.1:80")] {
            assert_eq!(local.answer("GET", "/", host).status, 421, "{host:?}");
        }
        assert_eq!(site("0.0.0.0:8787").answer("GET", "/", Some("studio.example:8787")).status, 200);
    }
}
