//! Arguments, exit codes and the two streams.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use clap::{Args, CommandFactory, Parser, Subcommand};
pub(crate) use fv_cli::stop::Stop;
use fv_cli::{
    plan::GridArguments,
    terminal::{self, Color},
    write,
};
use fv_estimate::render::Text;
use serde::Serialize;

use crate::commands;

/// Looks at this machine and runs video-diffusion models on it.
#[derive(Debug, Parser)]
#[command(name = "fv-run", version, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done, 1 an answer that is no, 2 usage or I/O, 3 no usable device, 4 refused because it does not fit."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// When to use colour; `auto` also honours `NO_COLOR`
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what memory, devices and disks this machine has, and how much of them is free
    Probe(commands::probe::ProbeArgs),
    /// Plan how a request is executed on this machine or with given memory, and say why
    Plan(commands::plan::PlanArgs),
    /// Plan every combination of device and host memory
    Grid(GridArguments),
    /// Show the op program of a plan: every operation, and where each buffer lies
    Program(commands::program::ProgramArgs),
    /// Execute a plan on a CUDA device or a simulated one, or a tiny model on the processor
    Run(commands::run::RunArgs),
    /// Print completions for a shell
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Print what a driver's library answers, one JSON value a line
    #[command(hide = true)]
    Reader {
        /// The library
        #[arg(value_enum)]
        library: commands::probe::ReaderLibrary,
    },
}

pub(crate) type Done = Result<(), Stop>;

/// Where output goes and how.
pub(crate) struct Context {
    pub(crate) global: Global,
    pub(crate) out: Box<dyn Write>,
    pub(crate) err: Box<dyn Write>,
}

impl Context {
    /// Writes indented JSON with a final line end.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Done {
        Ok(self.out.write_all(write::json(value).as_bytes())?)
    }

    /// Writes an answer for people.
    pub(crate) fn text(&mut self, text: &Text) -> Done {
        Ok(self.out.write_all(terminal::shown(text, self.global.color.paints()).as_bytes())?)
    }
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
    let mut context = Context { global: cli.global, out: Box::new(io::BufWriter::new(io::stdout())), err: Box::new(io::stderr()) };
    let done = match cli.command {
        Command::Probe(arguments) => commands::probe::probe(&mut context, &arguments),
        Command::Plan(arguments) => commands::plan::plan(&mut context, &arguments),
        Command::Grid(arguments) => commands::plan::grid(&mut context, &arguments),
        Command::Program(arguments) => commands::program::program(&mut context, &arguments),
        Command::Run(arguments) => commands::run::run(&mut context, &arguments),
        Command::Completions { shell } => completions(&mut context, shell),
        Command::Reader { library } => commands::probe::reader(&mut context, library),
    };
    let done = done.and_then(|()| Ok(context.out.flush()?));
    let code = done.map_or_else(|stop| stop.report(&mut context.err), |()| 0);
    // An answer that is no was written all the same.
    let _ = context.out.flush();
    ExitCode::from(code)
}

fn completions(context: &mut Context, shell: clap_complete::Shell) -> Done {
    Ok(context.out.write_all(terminal::completions(Cli::command(), shell).as_bytes())?)
}
