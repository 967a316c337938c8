//! `calibrate`.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use clap::Args;
use fv_catalog::{accuracy::fit::yaml, output::Format, write, yaml::short};
use fv_estimate::calibrate::{Context as Runs, Fit, Group, Left, fit, groups};
use fv_spec::authored::Coefficient;
use fv_spec::compiled::Model;
use serde_json::{Value, json};

use super::ask::RuntimeName;
use crate::cli::{Context, Done, Stop};

#[derive(Debug, Args)]
pub(crate) struct CalibrateArguments {
    /// Models whose reference runs count; all of them without one
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// Runs of this runtime alone
    #[arg(long)]
    runtime: Option<RuntimeName>,
    /// Runs on this device alone
    #[arg(long, value_name = "ID")]
    hardware: Option<String>,
    /// Runs of this revision of the runtime alone
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Write the spread to catalog/rules/spread-<family>-<runtime>.yaml
    #[arg(long, requires = "date", conflicts_with = "check")]
    write: bool,
    /// The day of the fit, which is recorded with it
    #[arg(long, value_name = "YYYY-MM-DD")]
    date: Option<String>,
    /// Replace figures of the file that differ, such as those of an earlier fit
    #[arg(long, requires = "write")]
    replace: bool,
    /// Exit 1 when a spread in the catalog that came from runs is not what its runs give
    #[arg(long)]
    check: bool,
}

/// What marks a coefficient that came from reference runs.
const FROM_RUN: &str = "run ";

pub(crate) fn calibrate(context: &mut Context, arguments: &CalibrateArguments) -> Done {
    context.data_format()?;
    if let Some(date) = arguments.date.as_ref().filter(|date| !is_date(date)) {
        return Err(Stop::Usage(format!("--date: found {date:?}, allowed: YYYY-MM-DD")));
    }
    let catalog = context.catalog()?;
    let mut models: Vec<&Model> = Vec::new();
    for id in &arguments.models {
        let Some(found) = catalog.model(id) else {
            let file = Path::new(id).is_file();
            let hint =
                if file { "runs come from the catalog: `fv-catalog add-run FILE` adds one" } else { "`fv-catalog list models` lists them" };
            return Err(Stop::Usage(format!("no model is called {:?}; {hint}", short(id))));
        };
        models.push(found);
    }
    if let Some(id) = arguments.hardware.as_ref().filter(|id| !catalog.devices.iter().any(|device| device.id == **id)) {
        let near = fv_data::nearest(id, catalog.devices.iter().map(|device| device.id.as_str()));
        let hint = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
        return Err(Stop::Usage(format!("no device has the id {:?}, which runs name exactly{hint}", short(id))));
    }
    if models.is_empty() {
        models = catalog.models.values().collect();
    }
    let (all, left) = groups(models, &catalog.rules);
    let runtime = arguments.runtime.map(RuntimeName::runtime);
    let wanted = |runs: &Runs| {
        runtime.is_none_or(|runtime| runs.runtime == runtime)
            && arguments.hardware.as_ref().is_none_or(|id| runs.hardware == *id)
            && arguments.revision.as_ref().is_none_or(|revision| runs.revision == *revision)
    };
    let date = arguments.date.as_deref().unwrap_or("1970-01-01");
    let fits: Vec<(Runs, Group, Fit)> = all
        .into_iter()
        .filter(|(runs, _)| wanted(runs))
        .map(|(runs, group)| {
            let fit = fit(&runs, &group, date);
            (runs, group, fit)
        })
        .collect();
    if context.global.format == Format::Json {
        context.value(&report(&fits, &left))?;
    } else {
        context.out.write_all(human(&fits, &left).as_bytes())?;
    }
    if arguments.check {
        return compare(context, &catalog.rules.coefficients, &fits);
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

fn report(fits: &[(Runs, Group, Fit)], left: &[Left]) -> Value {
    let one = |(runs, group, fit): &(Runs, Group, Fit)| {
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
            "coefficients": fit.coefficients,
            "refused": fit.refused,
            "notes": fit.notes,
        })
    };
    let left: Vec<Value> = left.iter().map(|left| json!({ "run": left.run, "why": left.why })).collect();
    json!({ "version": 1, "fits": fits.iter().map(one).collect::<Vec<_>>(), "leftOut": left })
}

/// Whether figures of the catalog that came from runs are what the runs give.
fn compare(context: &mut Context, known: &BTreeMap<String, Coefficient>, fits: &[(Runs, Group, Fit)]) -> Done {
    let mut wrong = Vec::new();
    for (id, coefficient) in known.iter().filter(|(_, c)| c.source_rows.iter().all(|row| row.starts_with(FROM_RUN))) {
        let mut found = fits.iter().filter_map(|(.., fit)| fit.coefficients.get(id)).filter(|c| c.source_rows == coefficient.source_rows);
        match found.next() {
            None => wrong.push(format!("{id}: its runs ({}) no longer give it", coefficient.source_rows.join(", "))),
            Some(now) if now.value.to_bits() != coefficient.value.to_bits() => {
                wrong.push(format!("{id}: the catalog says {}, its runs give {}", coefficient.value, now.value));
            }
            Some(_) => {}
        }
    }
    for text in &wrong {
        writeln!(context.err, "{text}")?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(Stop::No) }
}

/// Writes the spread of each family and runtime, all or nothing.
fn save(context: &mut Context, known: &BTreeMap<String, Coefficient>, fits: &[(Runs, Group, Fit)], replace: bool) -> Done {
    let mut files: BTreeMap<String, BTreeMap<String, Coefficient>> = BTreeMap::new();
    for (runs, _, fit) in fits {
        let name = format!("rules/spread-{}-{}.yaml", runs.family, runs.runtime.word());
        let file = files.entry(name.clone()).or_default();
        for (id, coefficient) in &fit.coefficients {
            if file.insert(id.clone(), coefficient.clone()).is_some() {
                let text = format!("{name}: runs of more than one context give {id}; choose with --hardware, --revision or --runtime");
                return Err(Stop::Usage(text));
            }
        }
    }
    files.retain(|_, coefficients| !coefficients.is_empty());
    if files.is_empty() {
        return Err(Stop::Usage("nothing to write".into()));
    }
    let folder = context.authored()?;
    for (name, coefficients) in &files {
        let prefix = name.trim_start_matches("rules/").trim_end_matches(".yaml");
        for (id, old) in known.iter().filter(|(id, _)| id.starts_with(&format!("{prefix}-"))) {
            if !old.source_rows.iter().all(|row| row.starts_with(FROM_RUN)) {
                let text = format!("{name}: {id} was fitted to measured rows by `fv-catalog accuracy --fit`; runs do not replace it");
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
