//! `--preview`, `list`, `show` and `find`.

use std::io::Write;

use clap::ValueEnum;
use fv_catalog::{finding::visible, output::Format, yaml::short};
use fv_data::{Catalog, Found};
use fv_spec::units::Decimal;
use serde_json::{Map, Value, json};

use crate::cli::{Context, Done, Stop};

/// What `list` lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// Models with capacity facts.
    Models,
    /// Shared components.
    Components,
    /// Devices.
    Hardware,
}

pub(crate) fn preview(context: &mut Context, id: &str) -> Done {
    let catalog = context.catalog()?;
    let id = id.trim();
    let Some(model) = catalog.model(id) else {
        if let Some(device) = catalog.device(id) {
            return Err(Stop::Usage(format!("{id:?} is the device {}, not a model; `fv-catalog show` shows it", device.id)));
        }
        return Err(unknown("model with capacity facts", id, catalog.models.keys().map(String::as_str)));
    };
    context.value(model)
}

pub(crate) fn show(context: &mut Context, id: &str) -> Done {
    let catalog = context.catalog()?;
    let id = id.trim();
    if let Some(model) = catalog.model(id) {
        return context.value(model);
    }
    if let Some(device) = catalog.device(id) {
        return context.value(device);
    }
    let components = fv_data::components(&catalog);
    if let Some(component) = components.get(id) {
        return context.value(component);
    }
    let devices = catalog.devices.iter().flat_map(|d| std::iter::once(&d.id).chain(&d.aliases));
    let known = catalog.models.keys().chain(devices).map(String::as_str).chain(components.keys().copied());
    Err(unknown("model, device or component", id, known))
}

fn unknown<'a>(what: &str, id: &str, known: impl Iterator<Item = &'a str>) -> Stop {
    let near = fv_data::nearest(id, known);
    let hint =
        if near.is_empty() { "`fv-catalog find WORDS` searches by name".to_owned() } else { format!("did you mean {}?", near.join(", ")) };
    Stop::Usage(format!("no {what} is called {:?}; {hint}", short(id)))
}

/// Column names, and rows of values.
type Rows = (Vec<&'static str>, Vec<Vec<Value>>);

pub(crate) fn list(context: &mut Context, what: What) -> Done {
    let catalog = context.catalog()?;
    let rows = match what {
        What::Models => models(&catalog),
        What::Components => components(&catalog),
        What::Hardware => hardware(&catalog),
    };
    table(context, rows)
}

/// Writes rows as an aligned table, or as a list of JSON objects.
fn table(context: &mut Context, (names, rows): Rows) -> Done {
    if context.data_format()? == Format::Json {
        let objects: Vec<Value> =
            rows.into_iter().map(|row| names.iter().map(|name| (*name).to_owned()).zip(row).collect::<Map<_, _>>().into()).collect();
        return context.value(&objects);
    }
    let header = names.iter().map(|name| name.replace('_', " ")).collect();
    let text = |value: &Value| text(value).replace(char::is_control, "\u{fffd}");
    let lines: Vec<Vec<String>> = std::iter::once(header).chain(rows.iter().map(|row| row.iter().map(text).collect())).collect();
    let widths: Vec<usize> =
        (0..names.len()).map(|i| lines.iter().filter_map(|line| line.get(i)).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    let numeric: Vec<bool> =
        (0..names.len()).map(|i| rows.iter().all(|row| row.get(i).is_some_and(|v| v.is_number() || v.is_null()))).collect();
    for line in lines {
        let cells = line
            .iter()
            .zip(&widths)
            .zip(&numeric)
            .map(|((cell, width), right)| if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") });
        writeln!(context.out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
    }
    Ok(())
}

/// What a cell shows.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => visible(text),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

fn models(catalog: &Catalog) -> Rows {
    let rows = catalog.models.values().map(|model| {
        let mut runtimes: Vec<&str> = model.examples.iter().map(|example| example.runtime.word()).collect();
        let mut seen = std::collections::BTreeSet::new();
        runtimes.retain(|runtime| seen.insert(*runtime));
        vec![
            json!(model.id),
            json!(model.name),
            json!(model.memory_rules),
            json!(runtimes.join(" ")),
            json!(model.reference_runs.len()),
            json!(model.model_id),
        ]
    });
    (vec!["id", "name", "memory_rules", "runtimes", "reference_runs", "model_id"], rows.collect())
}

fn components(catalog: &Catalog) -> Rows {
    let rows = fv_data::components(catalog)
        .into_iter()
        .map(|(id, component)| vec![json!(id), json!(component.parameter_count), json!(component.name)]);
    (vec!["id", "parameter_count", "name"], rows.collect())
}

fn hardware(catalog: &Catalog) -> Rows {
    let rows = catalog.devices.iter().map(|device| {
        let memory = serde_json::to_value(device.memory_type).unwrap_or_default();
        vec![
            json!(device.id),
            json!(Decimal(device.memory_gb)),
            memory,
            json!(device.backend),
            json!(device.partitions.len()),
            json!(device.name),
            json!(device.aliases),
        ]
    });
    (vec!["id", "memory_gb", "memory", "backend", "partitions", "name", "aliases"], rows.collect())
}

pub(crate) fn find(context: &mut Context, query: &str) -> Done {
    let catalog = context.catalog()?;
    let mut candidates = fv_data::find(&catalog, query);
    let also: Vec<String> = candidates.iter().filter(|candidate| !candidate.exact).take(5).map(|candidate| candidate.id.clone()).collect();
    if candidates.iter().any(|candidate| candidate.exact) {
        candidates.retain(|candidate| candidate.exact);
    }
    let exact = candidates.iter().any(|candidate| candidate.exact);
    let found = !candidates.is_empty();
    let more = candidates.len().saturating_sub(SHOWN);
    candidates.truncate(SHOWN);
    let rows = candidates.iter().map(|candidate| {
        let kind = match candidate.kind {
            Found::Model => "model",
            Found::Hardware => "hardware",
            Found::Component => "component",
        };
        vec![json!(kind), json!(candidate.id), json!(candidate.exact), json!(candidate.name)]
    });
    let human = context.data_format()? == Format::Human;
    if !found && human {
        writeln!(context.err, "nothing resembles {:?}; `fv-catalog list hardware` and `list models` show everything", short(query))?;
        return Err(Stop::No);
    }
    table(context, (vec!["kind", "id", "exact", "name"], rows.collect()))?;
    if human && !exact {
        let more = if more > 0 { format!(" ({more} more not shown)") } else { String::new() };
        writeln!(context.err, "no id or alias is exactly {:?}; these come closest{more}", short(query))?;
    }
    if human && exact && !also.is_empty() {
        writeln!(context.err, "also: {}", also.join(", "))?;
    }
    if found { Ok(()) } else { Err(Stop::No) }
}

/// Candidates that fit on a screen.
const SHOWN: usize = 15;
