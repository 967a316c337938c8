//! `sweep`: every combination of models, devices, sizes and settings, a row each.
//!
//! * `axes`: what varies, as it is given.
//! * `shape`: rows as text.
//! * `file`: the file of rows, begun, continued and completed; what the sweep is stands in a file beside it.
//! * `summary`: what it came to.
//! * `parquet`: a file of lines made into one of columns.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use clap::Args;
use fv_catalog::write;
use fv_data::Store;
use fv_estimate::{
    family,
    render::grouped,
    sweep::{Axes, Plan, Range, Reuse},
};
use fv_spec::compiled::Model;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde_json::Value;

use super::ask::{Devices, Limits, RestArgs, RuntimeName, Settings, add_own_to_all, model, models, refused};
use super::questions::deployments;
use crate::cli::{Context, Done, Stop};
use file::Asked;
use shape::Shape;
use summary::Tally;

mod axes;
mod file;
#[cfg(feature = "parquet")]
mod parquet;
mod shape;
mod summary;

/// Rows and requests that are worked on at once, at most: what bounds memory.
const ROWS: u64 = 1 << 16;
const REQUESTS: u64 = 512;
/// So long rows are worked on before they are written: what a killed sweep loses, at most about twice.
const PIECE: Duration = Duration::from_millis(100);

/// `sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Models, by id or checkpoint; without any, all that have rules
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// Only these deployments: separated by commas, or given several times
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    deployment: Vec<String>,
    /// Only deployments with one of these runtimes: separated by commas, or given several times
    #[arg(long, value_enum, value_delimiter = ',')]
    runtime: Vec<RuntimeName>,
    #[command(flatten)]
    devices: Devices,
    #[command(flatten)]
    limits: Limits,
    /// Sizes such as 832x480,1280x720
    #[arg(long, value_name = "WIDTHxHEIGHT", value_delimiter = ',', value_parser = axes::size, help_heading = "Request")]
    size: Vec<[u32; 2]>,
    /// Frames, such as 81 or 17..161; a range holds the legal counts, and with /STEP exactly those
    #[arg(long, value_name = "A..B[/STEP]", value_delimiter = ',', value_parser = axes::range, help_heading = "Request", allow_negative_numbers = true)]
    frames: Vec<Range>,
    /// Videos generated together
    #[arg(long, value_name = "A..B[/STEP]", value_delimiter = ',', value_parser = axes::range, help_heading = "Request", allow_negative_numbers = true)]
    batch: Vec<Range>,
    #[command(flatten)]
    rest: RestArgs,
    /// A setting that takes each of these values in turn; may be given several times
    #[arg(long, value_name = "KEY=VALUE,VALUE", value_parser = axes::varied, help_heading = "Settings")]
    vary: Vec<(String, Vec<Value>)>,
    #[command(flatten)]
    settings: Settings,
    /// The file of rows; without it, or with `-`, they go to the output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Continue a file that was interrupted; begin it where there is none
    #[arg(long, requires = "out")]
    resume: bool,
    /// Replace a file that is there
    #[arg(long, requires = "out", conflicts_with = "resume")]
    force: bool,
    /// Write what the sweep came to, and what it left out, to a file of JSON
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// More points than this are refused
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000, allow_negative_numbers = true)]
    limit: u64,
}

pub(crate) fn sweep(context: &mut Context, arguments: &SweepArgs) -> Done {
    let shape = Shape::of(arguments, context.global.format)?;
    let out = arguments.out.as_deref().filter(|out| *out != Path::new("-"));
    if out.is_none() && (arguments.resume || arguments.force) {
        return Err(Stop::Usage("--out -: rows that went to the output cannot be continued or replaced; name a file".into()));
    }
    let store = context.store()?;
    let mut named = named(&store, &arguments.models)?;
    add_own_to_all(&mut named, &arguments.runtime, &arguments.deployment);
    let asked = deployments(&named, &arguments.deployment, &arguments.runtime)?;
    let mut errors = Vec::new();
    arguments.settings.sound()?;
    let chosen = arguments.devices.find(&store, &mut errors)?;
    let limits = arguments.limits.asked(&mut errors);
    if !errors.is_empty() {
        return Err(refused(errors));
    }
    let rules = store.rules()?;
    let (request, overrides) = (arguments.rest.request(), arguments.settings.overrides(false));
    let vary = axes::vary(&arguments.vary, &arguments.settings, &asked)?;
    let combinations = axes::combination_count(&vary);
    let too_many = combinations > axes::MOST_COMBINATIONS;
    let axes = Axes {
        sizes: arguments.size.clone(),
        frames: arguments.frames.clone(),
        batches: arguments.batch.clone(),
        // What cannot be gone through is only counted.
        settings: axes::combinations(&vary, if too_many { 1 } else { combinations }),
    };
    let plan = Plan::new(&asked, &chosen, &limits, &rules, &request, &overrides, &axes).map_err(refused)?;
    let points = if too_many { plan.points().saturating_mul(combinations) } else { plan.points() };
    if points > u128::from(arguments.limit) {
        let mut extents = plan.extents();
        extents.push(("combination of settings", combinations));
        return Err(axes::too_many(points, arguments.limit, &extents));
    }
    if too_many {
        let (found, most) = (counted(combinations, "combination"), grouped(axes::MOST_COMBINATIONS));
        return Err(Stop::Usage(format!("--vary: {found} of settings, at most {most} in one sweep: vary fewer of them at a time")));
    }
    if points == 0 {
        return Err(Stop::Usage("nothing to sweep: no model takes these sizes, frames and settings".into()));
    }
    if let Some(report) = &arguments.report {
        file::report_place(report, out)?;
    }
    // A file that cannot be written or continued is said first.
    let question = Asked { deployments: &asked, devices: &chosen, limits: &limits, rules: &rules, arguments, vary: &vary, shape };
    let mut target = out.map(|out| file::open(out, &question, &plan)).transpose()?;
    let stop = Interruption::watch()?;
    let (requests, devices) = (counted(plan.requests(), "request"), counted(chosen.len() as u128, "device"));
    writeln!(context.err, "{}: {requests} on {devices}", counted(points, "point"))?;
    let tally = match &mut target {
        None => {
            context.out.write_all(shape.header().as_bytes())?;
            let mut tally = Tally::default();
            let written = rows(&plan, shape, 0, &mut tally, &mut context.out, &stop)?;
            context.out.flush()?;
            if u128::from(written) < points {
                return Err(interrupted(written, points, ""));
            }
            tally
        }
        Some(target) => {
            if target.done > 0 {
                let left = points - u128::from(target.done);
                writeln!(context.err, "{} of them are there already, {} are left", grouped(target.done), grouped(left))?;
            }
            target.complete(&plan, shape, &stop)?
        }
    };
    let report = tally.report(&plan);
    summary::write(&report, &mut context.err)?;
    if let Some(path) = &arguments.report {
        write::replace(path, &write::json(&report)).map_err(|error| file::named_error(path, &error))?;
    }
    Ok(())
}

/// Whether the user has ended the sweep.
struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// From now on Ctrl-C and a request to terminate end the sweep where a row ends.
    fn watch() -> Result<Self, Stop> {
        let flag = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&flag);
        ctrlc::set_handler(move || set.store(true, Ordering::Relaxed))
            .map_err(|error| Stop::Usage(format!("interruptions cannot be watched for: {error}")))?;
        Ok(Self(flag))
    }

    fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// That a sweep was ended, and how far it is.
fn interrupted(written: u64, points: u128, remedy: &str) -> Stop {
    let text = format!("interrupted after {} of {}{remedy}", grouped(written), counted(points, "point"));
    Stop::Other(fv_cli::stop::Stop::Interrupted(text))
}

/// The models that are meant.
fn named(store: &Store, names: &[String]) -> Result<Vec<Model>, Stop> {
    let mut found: Vec<Model> = Vec::new();
    if names.is_empty() {
        found = models(store)?;
        found.retain(|model| family::find(&model.memory_rules).is_some());
    }
    for name in names {
        let model = model(store, name.trim())?;
        if !found.iter().any(|known| known.id == model.id) {
            found.push(model);
        }
    }
    if found.is_empty() { Err(Stop::Usage("no model of this catalog has rules".into())) } else { Ok(found) }
}

/// Writes all rows from number `done` on and counts them, or those of whole requests until an interruption. Returns how many are
/// there then.
///
/// # Errors
/// That the rows cannot be written. What was written before are the rows of whole requests, but for the last write.
fn rows(plan: &Plan<'_>, shape: Shape, done: u64, tally: &mut Tally, out: &mut dyn Write, stop: &Interruption) -> io::Result<u64> {
    let devices = (plan.devices() as u64).max(1);
    // The plan's points are below the limit, which is 64 bits wide.
    let requests = u64::try_from(plan.requests()).unwrap_or(u64::MAX);
    let bar = ProgressBar::new(requests.saturating_mul(devices));
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_position(done);
    let most = (ROWS / devices).clamp(1, REQUESTS);
    let (mut next, mut at_once) = (done / devices, (most / 16).max(1));
    let mut text = Vec::new();
    while next < requests && !stop.came() {
        let begun = Instant::now();
        let end = requests.min(next + at_once);
        let one = |reuse: &mut Reuse, request: u64| {
            (!stop.came()).then(|| piece(plan, shape, request, done.saturating_sub(request * devices), reuse))
        };
        let pieces: Vec<Option<(Vec<u8>, Tally)>> = (next..end).into_par_iter().map_init(Reuse::default, one).collect();
        text.clear();
        // Rows keep their order, so what was done after the first request that was not is done again.
        for (rows, counts) in pieces.into_iter().map_while(|piece| piece) {
            text.extend_from_slice(&rows);
            tally.join(counts);
            next += 1;
        }
        out.write_all(&text)?;
        bar.set_position(next * devices);
        at_once = match begun.elapsed() {
            short if short < PIECE / 2 => most.min(at_once * 2),
            long if long > PIECE => (at_once / 2).max(1),
            _ => at_once,
        };
    }
    bar.finish_and_clear();
    Ok(next.saturating_mul(devices).max(done))
}

/// The rows of one request but for the first `skip`.
fn piece(plan: &Plan<'_>, shape: Shape, request: u64, skip: u64, reuse: &mut Reuse) -> (Vec<u8>, Tally) {
    let (mut text, mut tally, mut at) = (Vec::with_capacity(plan.devices() * 192), Tally::default(), 0);
    plan.rows(request, reuse, |row| {
        if at >= skip {
            shape.row(row, &mut text);
            tally.add(row.status, row.reason.as_deref());
        }
        at += 1;
    });
    (text, tally)
}

/// So many of something.
fn counted(number: u128, noun: &str) -> String {
    let noun = match (number, noun.split_once(' ')) {
        (1, _) => noun.to_owned(),
        // The first word is what there are several of.
        (_, Some((first, rest))) if rest.starts_with("of ") || rest.starts_with("that ") => format!("{first}s {rest}"),
        _ if noun.ends_with("ch") => format!("{noun}es"),
        _ => format!("{noun}s"),
    };
    format!("{} {noun}", grouped(number))
}
