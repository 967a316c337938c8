//! `calibrate`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::{Args, ValueEnum};
use fv_catalog::{
    accuracy::{Accuracy, fit::yaml},
    check::not_current,
    output::Format,
    write,
    yaml::short,
};
use fv_cli::lookup;
use fv_data::Catalog;
use fv_estimate::calibrate::{Context as Runs, FROM_RUN, Fit, Group, Left, fit, groups};
use fv_spec::authored::Coefficient;
use fv_spec::compiled::Model;
use serde_json::{Value, json};

use super::ask::RuntimeName;
use crate::cli::{self, Context, Done, Stop};

#[derive(Debug, Args)]
pub(crate) struct CalibrateArguments {
    /// Models whose reference runs count; all of them without one
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// Runs of this runtime alone
    #[arg(long)]
    runtime: Option<RuntimeName>,
    /// Runs on this device alone, by id or alias
    #[arg(long, value_name = "ID")]
    hardware: Option<String>,
    /// Runs on this partition of a device alone
    #[arg(long, value_name = "ID")]
    partition: Option<String>,
    /// Runs on so many devices alone
    #[arg(long, value_name = "N")]
    gpu_count: Option<u32>,
    /// Runs of this revision of the runtime alone
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// First requests of their process alone, or later ones
    #[arg(long, value_enum)]
    execution: Option<Request>,
    /// Runs with these weights alone: `checkpoint`, or `synthetic:SEED`
    #[arg(long, value_name = "WEIGHTS")]
    weights: Option<String>,
    /// Write the spread to catalog/rules/spread-<family>-<runtime>.yaml
    #[arg(long, requires = "date", conflicts_with = "check")]
    write: bool,
    /// The day of the fit, which is recorded with it
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
    /// Replace figures of the file that differ, such as those of an earlier fit
    #[arg(long, requires = "write")]
    replace: bool,
    /// Exit 1 when a spread in the catalog is not what its runs, or its measured rows, give
    #[arg(long)]
    check: bool,
}

/// Whether the request was the first of its process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Request {
    /// The first after start-up
    FirstRequest,
    /// A later one
    WarmRequest,
}

impl Request {
    /// As in [`Runs`].
    fn word(self) -> &'static str {
        match self {
            Self::FirstRequest => "first request",
            Self::WarmRequest => "warm request",
        }
    }
}

impl CalibrateArguments {
    /// Whether runs are meant that were made so.
    fn wants(&self, hardware: Option<&str>, runs: &Runs) -> bool {
        self.runtime.is_none_or(|runtime| runtime.runtime() == runs.runtime)
            && hardware.is_none_or(|id| id == runs.hardware)
            && (self.partition.is_none() || self.partition == runs.partition)
            && self.gpu_count.is_none_or(|count| count == runs.gpu_count)
            && self.revision.as_ref().is_none_or(|revision| *revision == runs.revision)
            && self.execution.is_none_or(|execution| execution.word() == runs.execution)
            && self.weights.as_ref().is_none_or(|weights| *weights == runs.weights)
    }
}

/// Whether a coefficient came from reference runs and not from tables of measured rows.
fn from_runs(coefficient: &Coefficient) -> bool {
    coefficient.source_rows.iter().all(|row| row.starts_with(FROM_RUN))
}

pub(crate) fn calibrate(context: &mut Context, arguments: &CalibrateArguments) -> Done {
    context.data_format()?;
    if let Some(date) = arguments.date.as_ref().filter(|date| !is_date(date)) {
        return Err(Stop::Usage(format!("--date: found {date:?}, allowed: YYYY-MM-DD")));
    }
    let catalog = context.catalog()?;
    let store = context.store()?;
    let mut models: Vec<&Model> = Vec::new();
    for id in &arguments.models {
        if Path::new(id).is_file() {
            let why = "runs come from the catalog: `fv-catalog add-run FILE` adds one";
            return Err(Stop::Usage(format!("no model is called {:?}; {why}", short(id))));
        }
        models.extend(catalog.model(&lookup::model(&store, id)?.id));
    }
    let hardware = match &arguments.hardware {
        Some(name) => Some(lookup::device(&store, name)?.map_err(|error| Stop::Usage(error.message))?.id),
        None => None,
    };
    if models.is_empty() {
        models = catalog.models.values().collect();
    }
    let (all, left) = groups(models, &catalog.rules);
    let date = arguments.date.as_deref().unwrap_or("1970-01-01");
    let fits: Vec<(Runs, Group, Fit)> = all
        .into_iter()
        .filter(|(runs, _)| arguments.wants(hardware.as_deref(), runs))
        .map(|(runs, group)| {
            let fit = fit(&runs, &group, date);
            (runs, group, fit)
        })
        .collect();
    if context.global.format == Format::Json {
        context.value(&report(&fits, &left, arguments.date.is_some()))?;
    } else {
        context.out.write_all(human(&fits, &left).as_bytes())?;
    }
    if arguments.check {
        return compare(context, &catalog, &fits);
    }
    if fits.iter().any(|(.., fit)| !fit.refused.is_empty()) {
        return Err(Stop::No);
    }
    if arguments.write { save(context, &catalog.rules.coefficients, &fits, arguments.replace) } else { Ok(()) }
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let digits = |part: &str, n: usize| part.len() == n && part.bytes().all(|b| b.is_ascii_digit());
    matches!(parts[..], [year, month, day] if digits(year, 4) && digits(month, 2) && digits(day, 2)
        && ("01"..="12").contains(&month) && ("01"..="31").contains(&day))
}

fn title(runs: &Runs) -> String {
    let Runs { family, runtime, metric, hardware, partition, gpu_count, revision, execution, weights } = runs;
    let part = partition.as_ref().map_or(String::new(), |partition| format!(" partition {partition}"));
    let devices = if *gpu_count > 1 { format!("{gpu_count} x ") } else { String::new() };
    let runtime = runtime.word();
    format!("{family} x {runtime}, {metric}, {devices}{hardware}{part}, revision {revision}, {execution}, weights {weights}")
}

fn human(fits: &[(Runs, Group, Fit)], left: &[Left]) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    if fits.is_empty() {
        text.push_str(
            "nothing to fit: of the reference runs that were asked for none records peaks of an allocator (torch_peak_allocated or \
             torch_peak_reserved) of a model with rules; `fv-catalog import-log` makes such a record, `fv-catalog add-run` adds the run\n",
        );
    }
    for (runs, group, fit) in fits {
        let _ = writeln!(text, "{}: {} peak(s)", title(runs), group.points.len());
        for why in &fit.refused {
            let _ = writeln!(text, "  refused: {why}");
        }
        for (id, coefficient) in &fit.coefficients {
            let error = coefficient
                .leave_one_out_error
                .map_or_else(|| "no error: one geometry".to_owned(), |error| format!("error {error:.4} with each geometry left out"));
            let _ = writeln!(text, "  {id}: {:.6} ({error})", coefficient.value);
        }
        for note in &fit.notes {
            let _ = writeln!(text, "  {note}");
        }
    }
    for Left { run, why } in left {
        let _ = writeln!(text, "left out: {run}: {why}");
    }
    text
}

/// The report; without a day that was given, the coefficients have none.
fn report(fits: &[(Runs, Group, Fit)], left: &[Left], dated: bool) -> Value {
    let one = |(runs, group, fit): &(Runs, Group, Fit)| {
        let mut coefficients = json!(fit.coefficients);
        for coefficient in coefficients.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
            if let Some(fields) = coefficient.as_object_mut().filter(|_| !dated) {
                fields.remove("date");
            }
        }
        json!({
            "family": runs.family,
            "runtime": runs.runtime,
            "metric": runs.metric,
            "hardware": runs.hardware,
            "partition": runs.partition,
            "gpuCount": runs.gpu_count,
            "revision": runs.revision,
            "execution": runs.execution,
            "weights": runs.weights,
            "peaks": group.points.len(),
            "startup": if group.startup { "measured" } else { "unknown" },
            "coefficients": coefficients,
            "refused": fit.refused,
            "notes": fit.notes,
        })
    };
    let left: Vec<Value> = left.iter().map(|left| json!({ "run": left.run, "why": left.why })).collect();
    json!({ "version": 1, "fits": fits.iter().map(one).collect::<Vec<_>>(), "leftOut": left })
}

/// Whether spreads of the catalog are what their runs or rows give: each that is not is a finding at its place.
fn compare(context: &mut Context, catalog: &Catalog, fits: &[(Runs, Group, Fit)]) -> Done {
    let known = &catalog.rules.coefficients;
    let spreads = || known.iter().filter(|(id, _)| id.starts_with("spread-"));
    if spreads().next().is_none() {
        return Ok(());
    }
    let sources = cli::read(&context.authored()?)?;
    let mut of_runs = BTreeMap::new();
    for (id, coefficient) in spreads().filter(|(_, coefficient)| from_runs(coefficient)) {
        let found = || fits.iter().filter_map(|(.., fit)| fit.coefficients.get(id));
        let same_rows = found().find(|now| now.source_rows == coefficient.source_rows);
        of_runs.extend(same_rows.map(|now| (id.clone(), now.clone())));
    }
    let whose = |id: &str, coefficient: &Coefficient| id.starts_with("spread-") && from_runs(coefficient);
    let mut findings = not_current(&sources, &of_runs, whose, "`fv-catalog calibrate --write --replace --date YYYY-MM-DD`");
    if spreads().any(|(_, coefficient)| Accuracy::names_recorded_rows(coefficient)) {
        let accuracy = Accuracy::recorded(catalog).map_err(Stop::Usage)?;
        findings.extend(accuracy.not_fitted(catalog, &sources).map_err(Stop::Usage)?);
    }
    context.findings_beside(&findings)
}

/// In what two contexts differ: the flag that chooses, and what either has.
fn differences(a: &Runs, b: &Runs) -> Vec<String> {
    let fields = |runs: &Runs| {
        [
            ("--hardware", runs.hardware.clone()),
            ("--partition", runs.partition.clone().unwrap_or_else(|| "none".to_owned())),
            ("--gpu-count", runs.gpu_count.to_string()),
            ("--revision", runs.revision.clone()),
            ("--execution", runs.execution.replace(' ', "-")),
            ("--weights", runs.weights.clone()),
        ]
    };
    let pairs = fields(a).into_iter().zip(fields(b)).filter(|((_, a), (_, b))| a != b);
    pairs.map(|((flag, a), (_, b))| format!("{flag} ({} or {})", short(&a), short(&b))).collect()
}

/// Writes the spread of each family and runtime, all or nothing.
fn save(context: &mut Context, known: &BTreeMap<String, Coefficient>, fits: &[(Runs, Group, Fit)], replace: bool) -> Done {
    let mut files: BTreeMap<String, BTreeMap<String, Coefficient>> = BTreeMap::new();
    let mut from: BTreeMap<&String, &Runs> = BTreeMap::new();
    for (runs, _, fit) in fits {
        let name = format!("rules/spread-{}-{}.yaml", runs.family, runs.runtime.word());
        for (id, coefficient) in &fit.coefficients {
            if let Some(other) = from.insert(id, runs) {
                let flags = differences(other, runs).join(", ");
                return Err(Stop::Usage(format!("{name}: runs of more than one context give {id}; choose with {flags}")));
            }
            files.entry(name.clone()).or_default().insert(id.clone(), coefficient.clone());
        }
    }
    if files.is_empty() {
        return Err(Stop::Usage("nothing to write".into()));
    }
    let folder = context.authored()?;
    for (name, coefficients) in &files {
        let prefix = name.trim_start_matches("rules/").trim_end_matches(".yaml");
        for (id, old) in known.iter().filter(|(id, _)| id.starts_with(&format!("{prefix}-"))) {
            if !from_runs(old) {
                let text = format!(
                    "{name}: {id} was fitted to measured rows, which runs do not replace, with or without --replace; `fv-catalog accuracy \
                     --fit` fits it to the rows below tests/data again"
                );
                return Err(Stop::Usage(text));
            }
            match coefficients.get(id) {
                _ if replace => {}
                None => return Err(Stop::Usage(format!("{name}: {id} is not in this fit; --replace gives it up"))),
                Some(new) if new.value.to_bits() != old.value.to_bits() => {
                    let text =
                        format!("{name}: {id} is {} there and {} by these runs; --replace takes the new figure", old.value, new.value);
                    return Err(Stop::Usage(text));
                }
                Some(_) => {}
            }
        }
        if !known.keys().any(|id| id.starts_with(&format!("{prefix}-"))) && Path::new(&folder).join(name).exists() && !replace {
            return Err(Stop::Usage(format!("{name} is there and holds something else; --replace takes its place")));
        }
    }
    for (name, coefficients) in &files {
        let path = folder.join(name);
        write::replace(&path, &yaml(coefficients, "calibrate --write"))
            .map_err(|error| Stop::Usage(format!("{}: {error}", path.display())))?;
        writeln!(context.out, "{} written; `fv-catalog build` compiles it", path.display())?;
    }
    Ok(())
}
