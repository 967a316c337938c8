//! `plan` and `grid`: what is not given is measured here.

use std::time::Duration;

use clap::{Args, ValueEnum};
use fv_cli::{
    plan::{GridArguments, Here, PlanArguments, Session, Wanted},
    stop::Stop,
};
use fv_data::Store;
use fv_run::probe::Ask;
use fv_spec::plan::OperatingSystem;

use super::probe::{DRIVER_TIMEOUT, now, reader_of};
use crate::cli::{Context, Done};

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    plan: PlanArguments,
    /// A GPU of this machine: its number, or its identifier
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// How the answer is written
    #[arg(long, global = true, value_enum, default_value_t = Format::Human)]
    format: Format,
}

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// For people.
    Human,
    /// For programs.
    Json,
}

pub(crate) fn plan(context: &mut Context, arguments: &PlanArgs) -> Done {
    let store = Store::embedded()?;
    let here = Here { system: SYSTEM, gpu: arguments.gpu.as_deref(), probe: &probe };
    let mut session = session(context, &store, arguments.format == Format::Json, here);
    fv_cli::plan::plan(&mut session, &arguments.plan)
}

pub(crate) fn grid(context: &mut Context, arguments: &GridArguments) -> Done {
    let store = Store::embedded()?;
    let here = Here { system: SYSTEM, gpu: None, probe: &probe };
    fv_cli::plan::grid(&mut session(context, &store, false, here), arguments)
}

fn session<'a>(context: &'a mut Context, store: &'a Store, json: bool, here: Here<'a>) -> Session<'a> {
    let Context { global, out, err } = context;
    Session { store, out, err, json, paints: global.color.paints(), measure: Some(here) }
}

/// The system that this program was built for is the one that it runs on.
const SYSTEM: OperatingSystem = if cfg!(windows) {
    OperatingSystem::Windows
} else if cfg!(target_os = "macos") {
    OperatingSystem::Macos
} else {
    OperatingSystem::Linux
};

fn probe(Wanted { gpus, host }: Wanted) -> Result<fv_spec::probe::Probe, Stop> {
    let silence = Duration::from_secs(DRIVER_TIMEOUT);
    let ask = Ask { time: now(), gpus, host, weights: None, read_rate: false, silence };
    Ok(fv_run::probe::probe(&ask, reader_of)?)
}
