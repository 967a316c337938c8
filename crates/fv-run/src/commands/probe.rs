//! `probe`, and the processes that ask driver libraries for it.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use clap::{Args, ValueEnum};
use fv_cli::terminal;
use fv_device::reading::Line;
use fv_estimate::render;
use fv_run::probe::{Ask, Library};
use fv_spec::probe::{Probe, Severity};

use crate::cli::{Context, Done, Stop};

/// Seconds that a driver may say nothing, where nobody says.
pub(super) const DRIVER_TIMEOUT: u64 = 20;

/// Arguments of `probe`.
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Write a probe file: JSON as schemas/probe.schema.json says
    #[arg(long)]
    json: bool,
    /// Also look at the file system of the folder with the weights
    #[arg(long, value_name = "DIR")]
    weights: Option<PathBuf>,
    /// Also measure for some seconds how fast that folder's files are read; nothing is written
    #[arg(long, requires = "weights")]
    read_rate: bool,
    /// Seconds for which a driver may say nothing before its process is ended
    #[arg(long, value_name = "SECONDS", default_value_t = DRIVER_TIMEOUT, value_parser = clap::value_parser!(u64).range(1..=3600))]
    driver_timeout: u64,
    /// Show a probe file instead of probing this machine
    #[arg(long, value_name = "FILE", conflicts_with_all = ["weights", "read_rate"])]
    from: Option<PathBuf>,
}

/// The library that a reader asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReaderLibrary {
    /// The driver's management library.
    Nvml,
    /// The driver.
    Cuda,
}

pub(crate) fn probe(context: &mut Context, arguments: &ProbeArgs) -> Done {
    let found = match &arguments.from {
        Some(file) => stored(file)?,
        None => measured(arguments)?,
    };
    if arguments.json {
        context.json(&found)?;
    } else {
        context.text(&render::probe(&found, terminal::width()))?;
    }
    // Everything else that could not be read is an answer, and so is what a file says.
    if arguments.from.is_none() && found.host.is_none() && found.problems.iter().any(|problem| problem.severity == Severity::Error) {
        return Err(Stop::Unreadable);
    }
    Ok(())
}

fn stored(file: &Path) -> Result<Probe, Stop> {
    let at = |what: &dyn std::fmt::Display| format!("{}: {what}", file.display());
    let text = fs::read_to_string(file).map_err(|error| Stop::Usage(at(&error)))?;
    fv_estimate::probe::read(&text)
        .map_err(|errors| Stop::Usage(errors.iter().map(|error| at(error)).collect::<Vec<_>>().join("\nerror: ")))
}

fn measured(arguments: &ProbeArgs) -> Result<Probe, Stop> {
    if let Some(folder) = &arguments.weights
        && !folder.is_dir()
    {
        let why = if folder.exists() { "not a folder" } else { "no such folder" };
        return Err(Stop::Usage(format!("{}: {why}", folder.display())));
    }
    let ask = Ask {
        time: now(),
        gpus: true,
        host: true,
        weights: arguments.weights.as_deref(),
        read_rate: arguments.read_rate,
        silence: Duration::from_secs(arguments.driver_timeout),
    };
    let failed = |error| {
        let folder = arguments.weights.as_deref().unwrap_or(Path::new("."));
        Stop::Usage(format!("{}: {error}", folder.display()))
    };
    fv_run::probe::probe(&ask, reader_of).map_err(failed)
}

/// The time as probes write it.
pub(super) fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// This program again, as the reader of one library.
pub(super) fn reader_of(library: Library) -> std::io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("reader").arg(match library {
        Library::Nvml => "nvml",
        Library::Cuda => "cuda",
    });
    Ok(command)
}

/// Prints what a library answers as it comes: the process may die at any time.
pub(crate) fn reader(context: &mut Context, library: ReaderLibrary) -> Done {
    let mut done = Ok(());
    let say = |line: Line| {
        let text = serde_json::to_string(&line).unwrap_or_default();
        done = writeln!(context.out, "{text}").and_then(|()| context.out.flush());
    };
    match library {
        ReaderLibrary::Nvml => fv_device::nvml::read(say),
        ReaderLibrary::Cuda => fv_device::cuda::read(say),
    }
    Ok(done?)
}
