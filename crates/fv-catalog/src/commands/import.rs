//! `import-log`.

use std::{io::Write, path::PathBuf};

use clap::{Args, ValueEnum};
use fv_catalog::{
    import_log::{self, Options, PeakMetric},
    output::Format,
    sources,
};
use serde_json::json;

use crate::cli::{Context, Done, Stop};

/// Logs larger than this are refused: 256 MiB.
const MAX_LOG_BYTES: u64 = 256 << 20;

#[derive(Debug, Args)]
pub(crate) struct ImportLog {
    /// Stage logs: one that names ranks, or one for each rank in order
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Which peak
    #[arg(long, value_enum, default_value_t = Peak::Allocated)]
    metric: Peak,
    /// The number of GPUs; without it, the ranks that the logs name
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    gpus: Option<u32>,
    /// Which request of the logs, from 1
    #[arg(long, value_name = "N")]
    request: Option<usize>,
}

/// Which peak is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Peak {
    /// `peak_allocated_mb`
    Allocated,
    /// `peak_reserved_mb`
    Reserved,
}

pub(crate) fn import_log(context: &mut Context, arguments: &ImportLog) -> Done {
    let mut files = Vec::new();
    for path in &arguments.files {
        let bytes = sources::bytes(path, MAX_LOG_BYTES).map_err(|(_, why)| Stop::Usage(format!("{}: {why}", path.display())))?;
        files.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    let metric = match arguments.metric {
        Peak::Allocated => PeakMetric::Allocated,
        Peak::Reserved => PeakMetric::Reserved,
    };
    let options = Options { metric, gpus: arguments.gpus, request: arguments.request, ..Options::default() };
    let imported = import_log::import(&files, &options);
    if context.data_format()? == Format::Json {
        context.value(&json!({ "version": 1, "imported": imported }))?;
    } else {
        for note in &imported.notes {
            writeln!(context.err, "note: {note}")?;
        }
        for reason in &imported.omitted {
            writeln!(context.err, "{}:{}: {}", reason.file, reason.line, reason.message)?;
        }
        match &imported.memory {
            Some(memory) => context.value(&json!({ "memory": memory }))?,
            None => writeln!(context.err, "no memory record; keep the run without `memory`")?,
        }
    }
    if imported.memory.is_some() { Ok(()) } else { Err(Stop::No) }
}
