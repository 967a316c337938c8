//! `import-log`.

use std::{io::Write, path::PathBuf};

use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use fv_catalog::{
    credential::redact,
    import_log::{self, Options, PeakMetric},
    output::Format,
    sources,
};
use serde_json::json;

use crate::cli::{Context, Done, Stop};

/// Logs larger than this are refused: 256 MiB.
const MAX_LOG_BYTES: u64 = 256 << 20;

#[derive(Debug, Args)]
#[command(after_help = format!("A log that makes a record:\n\n{}", import_log::EXAMPLE))]
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
    #[arg(long, value_name = "N", value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
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
    if let Some(path) = import_log::given_twice(&arguments.files) {
        return Err(Stop::Usage(format!("{}: the same file twice; each rank has a log of its own", path.display())));
    }
    let mut files = Vec::new();
    for path in &arguments.files {
        let bytes = sources::bytes(path, MAX_LOG_BYTES).map_err(|(_, why)| Stop::Usage(format!("{}: {why}", path.display())))?;
        files.push((path.display().to_string(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    let metric = match arguments.metric {
        Peak::Allocated => PeakMetric::Allocated,
        Peak::Reserved => PeakMetric::Reserved,
    };
    let options = Options { metric, gpus: arguments.gpus, request: arguments.request };
    let mut imported = import_log::import(&files, &options);
    // Logs hold anything, tokens too.
    let words = imported.omitted.iter_mut().map(|reason| &mut reason.message).chain(&mut imported.notes);
    words.for_each(|text| *text = redact(text));
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
            Some(memory) => {
                let mut value = json!({ "memory": memory });
                for (rank, peaks) in memory.per_gpu.iter().enumerate() {
                    value["memory"]["per_gpu"][rank]["stages"] = import_log::in_order(&peaks.stages).into_iter().map(entry).collect();
                }
                context.value(&value)?;
            }
            None => writeln!(context.err, "no memory record; keep the run without `memory`")?,
        }
    }
    if imported.memory.is_some() { Ok(()) } else { Err(Stop::No) }
}

/// A member of a JSON object, whose order is kept.
fn entry((name, peak): (&str, f64)) -> (String, serde_json::Value) {
    (name.to_owned(), peak.into())
}
