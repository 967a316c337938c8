//! Arguments, exit codes and the two streams.

use std::{
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::{Args, Parser, Subcommand, ValueEnum};
use fv_estimate::render::{self, Text};
use serde::Serialize;

use crate::commands;

/// Looks at this machine and runs video-diffusion models on it.
#[derive(Debug, Parser)]
#[command(name = "fv-run", version, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 2 usage or I/O.")]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
struct Global {
    /// When to use colour; `auto` also honours `NO_COLOR`
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    color: Color,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what memory, devices and disks this machine has, and how much of them is free
    Probe(commands::probe::ProbeArgs),
    /// Print what a driver's library answers, one JSON value a line
    #[command(hide = true)]
    Reader {
        /// The library
        #[arg(value_enum)]
        library: commands::probe::ReaderLibrary,
    },
}

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Stop {
    /// Wrong usage or I/O: exit 2.
    Usage(String),
    /// What is missing has been said in the answer: exit 2.
    Unreadable,
    /// The reader of our output has gone: nothing more to do.
    Closed,
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe { Self::Closed } else { Self::Usage(error.to_string()) }
    }
}

pub(crate) type Done = Result<(), Stop>;

/// Where output goes and how.
pub(crate) struct Context {
    global: Global,
    pub(crate) out: Box<dyn Write>,
}

impl Context {
    /// Writes indented JSON with a final line end.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Done {
        let text = serde_json::to_string_pretty(value).map_err(|error| Stop::Usage(error.to_string()))?;
        Ok(writeln!(self.out, "{text}")?)
    }

    /// Writes an answer for people.
    pub(crate) fn text(&mut self, text: &Text) -> Done {
        let paints = match self.global.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        };
        let text = if paints { text.painted(render::ansi) } else { text.plain() };
        Ok(self.out.write_all(text.as_bytes())?)
    }
}

/// Columns of the terminal; answers that go elsewhere do not depend on where they are asked for.
pub(crate) fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    terminal.map_or(100, |(terminal_size::Width(columns), _)| columns.into())
}

pub(crate) fn run() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are answers; everything else is wrong usage.
            let wrong = error.use_stderr();
            let text = error.render();
            let text = text.ansi();
            let written = if wrong { write!(anstream::stderr(), "{text}") } else { write!(anstream::stdout(), "{text}") };
            let lost = written.is_err_and(|error| error.kind() != io::ErrorKind::BrokenPipe);
            return ExitCode::from(if wrong || lost { 2 } else { 0 });
        }
    };
    let mut context = Context { global: cli.global, out: Box::new(io::BufWriter::new(io::stdout())) };
    let done = match cli.command {
        Command::Probe(arguments) => commands::probe::probe(&mut context, &arguments),
        Command::Reader { library } => commands::probe::reader(&mut context, library),
    };
    let flushed = context.out.flush().map_err(Stop::from);
    match done.and(flushed) {
        Ok(()) | Err(Stop::Closed) => ExitCode::SUCCESS,
        Err(Stop::Unreadable) => ExitCode::from(2),
        Err(Stop::Usage(message)) => {
            // Paths and names in it may hold what a terminal obeys.
            let message = message.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}");
            let _ = writeln!(io::stderr(), "error: {message}");
            ExitCode::from(2)
        }
    }
}
