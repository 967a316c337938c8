//! `program`: the op program of a plan, summed up, written out, or drawn.

use std::{
    fmt::Write as _,
    io::Write,
    path::{Path, PathBuf},
};

use clap::Args;
use fv_cli::{
    plan::{Lowered, Session, lowered},
    stop::Stop,
    write,
};
use fv_data::Store;
use fv_estimate::planner::optimal::rates::{Speed, speed};
use fv_program::{
    arena::Packed,
    rates::costs,
    simulate::{Simulated, replay},
    trace::trace,
};
use fv_spec::program::{Program, Stream};

use crate::cli::{Context, Done};

/// Arguments of `program`.
#[derive(Debug, Args)]
pub(crate) struct ProgramArgs {
    /// A plan for this runtime, as `fv-run plan --out` writes it
    #[arg(long, value_name = "FILE")]
    plan: PathBuf,
    /// Write the program to this file: JSON as schemas/program.schema.json says
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write its simulated timeline to this file, for Perfetto or a browser's tracing page
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
}

pub(crate) fn program(context: &mut Context, arguments: &ProgramArgs) -> Done {
    let (lowered, speed) = read(context, &arguments.plan)?;
    let program = &lowered.program;
    let costs = costs(program, &speed.rates).map_err(|unknown| Stop::Usage(unknown.to_string()))?;
    let simulated = replay(program, &costs, |_| {});
    if let Some(out) = &arguments.out {
        save(out, &write::json(program))?;
    }
    if let Some(out) = &arguments.trace {
        save(out, &write::json(&trace(program, &costs, REPETITIONS)))?;
    }
    let text = summary(program, &lowered.packed) + &times(&simulated, &speed);
    Ok(context.out.write_all(text.as_bytes())?)
}

/// Repetitions of a segment in a timeline: the first, the second, which is like all others, and one to see where it begins.
const REPETITIONS: u32 = 3;

/// The program of a plan in a file, and how fast its operations are taken to be.
pub(super) fn read(context: &mut Context, path: &Path) -> Result<(Lowered, Speed), Stop> {
    let store = Store::embedded()?;
    let Context { global, out, err } = context;
    let session = Session { store: &store, out, err, json: false, paints: global.color.paints(), measure: None };
    let found = lowered(&session, path)?;
    let speed = speed(&found.rates, &found.reference, &store.rules()?).map_err(|reason| Stop::Usage(reason.message))?;
    Ok((found, speed))
}

pub(super) fn save(path: &Path, text: &str) -> Done {
    write::replace(path, text).map_err(|error| Stop::Usage(format!("{}: {error}", path.display())))
}

/// Segments and regions of a program.
pub(super) fn summary(program: &Program, packed: &[Packed]) -> String {
    let mut text = String::new();
    let operations: usize = program.segments.iter().map(|segment| segment.ops.len()).sum();
    let _ = writeln!(
        text,
        "{}: {operations} operations in {} segments, {} buffers, {} events\n",
        program.model,
        program.segments.len(),
        program.buffers.len(),
        program.events
    );
    let _ = writeln!(text, "{:<12}{:<28}{:>8}{:>12}", "stage", "segment", "times", "operations");
    for segment in &program.segments {
        let _ = writeln!(text, "{:<12}{:<28}{:>8}{:>12}", segment.stage.word(), segment.name, segment.repeat, segment.ops.len());
    }
    let _ = writeln!(text, "\n{:<28}{:<12}{:>16}{:>10}  layout", "region", "memory", "bytes", "buffers");
    for (region, packed) in program.regions.iter().zip(packed).filter(|(region, _)| region.bytes > 0) {
        let layout = if packed.bytes == packed.largest_live_sum_bytes {
            "as large as what is in use at once".to_owned()
        } else {
            format!("{:.4} of what is in use at once{}", packed.ratio(), if packed.proven { ", none is smaller" } else { "" })
        };
        let _ = writeln!(text, "{:<28}{:<12}{:>16}{:>10}  {layout}", region.name, region.tier.word(), region.bytes, packed.buffers);
    }
    text
}

/// How long a program is reckoned to take.
pub(super) fn times(simulated: &Simulated, speed: &Speed) -> String {
    let mut text = String::from("\n");
    let _ = writeln!(text, "{:<12}{:<28}{:>8}{:>14}{:>14}", "stage", "segment", "times", "once, ms", "all, ms");
    for segment in &simulated.segments {
        let once = segment.steady_ns.unwrap_or(segment.first_ns);
        let (stage, name) = (segment.stage.word(), &segment.name);
        let _ = writeln!(text, "{stage:<12}{name:<28}{:>8}{:>14.3}{:>14.3}", segment.repeat, ms(once), ms(segment.ns));
    }
    let stalls: u64 = simulated.stalls.iter().map(|stall| stall.ns).sum();
    let busy = |stream: Stream| ms(simulated.busy_ns[stream as usize]);
    let _ = writeln!(
        text,
        "\nsimulated {:.3} ms; compute busy {:.3} ms and waiting for copies {:.3} ms, copies in {:.3} ms, out {:.3} ms, files and host {:.3} ms",
        ms(simulated.total_ns),
        busy(Stream::Compute),
        ms(stalls),
        busy(Stream::CopyIn),
        busy(Stream::CopyOut),
        busy(Stream::Disk)
    );
    for note in &speed.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

/// Milliseconds, for people.
#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}
