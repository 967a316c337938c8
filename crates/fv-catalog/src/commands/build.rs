//! `build` and `schema`.

use std::{fs, io::Write, path::Path};

use fv_catalog::{output::Format, write};
use serde_json::{Value, json};

use crate::cli::{Context, Done, Stop};

pub(crate) fn build(context: &mut Context, out: &Path) -> Done {
    let catalog = context.catalog()?;
    let files = write::compiled(&catalog);
    let format = context.global.format;
    if !matches!(format, Format::Github | Format::Sarif) {
        context.data_format()?;
    }
    let changed = write::replace_all(out, &files).map_err(|error| Stop::Usage(error.to_string()))?;
    if matches!(format, Format::Github | Format::Sarif) {
        return context.findings(&[]);
    }
    if format == Format::Json {
        return context
            .value(&json!({ "version": 1, "models": catalog.models.len(), "devices": catalog.devices.len(), "changed": changed }));
    }
    Ok(writeln!(
        context.out,
        "Compiled {} model(s) and {} device(s) to {}, {changed} file(s) changed",
        catalog.models.len(),
        catalog.devices.len(),
        out.display()
    )?)
}

/// Every schema by file name, as text.
fn schemas() -> Vec<(String, String)> {
    let findings = schemars::schema_for!(fv_catalog::output::json::Document).to_value();
    let ours = fv_spec::schema::all().into_iter().chain([("findings.schema.json", findings)]);
    ours.map(|(name, schema): (&str, Value)| (name.to_owned(), write::json(&schema))).collect()
}

pub(crate) fn schema(context: &mut Context, check: bool, out: &Path) -> Done {
    generated(context, check, out, &schemas(), "fv-catalog schema")
}

/// Writes generated files, or with `check` says which are not current.
pub(crate) fn generated(context: &mut Context, check: bool, out: &Path, files: &[(String, String)], command: &str) -> Done {
    let json = context.data_format()? == Format::Json;
    let failed = |path: &Path, error: &std::io::Error| Stop::Usage(format!("{}: {error}", path.display()));
    let mut stale = 0;
    for (name, text) in files {
        let path = out.join(name);
        if fs::read_to_string(&path).ok().as_deref() == Some(text) {
            continue;
        }
        stale += 1;
        if check {
            writeln!(context.err, "{}: not current", path.display())?;
        } else {
            let folder = path.parent().unwrap_or(out);
            fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
            write::replace(&path, text).map_err(|error| failed(&path, &error))?;
        }
    }
    if check && stale > 0 {
        writeln!(context.err, "run `{command}` and commit the result")?;
        return Err(Stop::No);
    }
    if json {
        return context.value(&json!({ "version": 1, "files": files.len(), "changed": stale }));
    }
    let verb = if check { "are current" } else { "written" };
    Ok(writeln!(context.out, "{} file(s) in {} {verb}, {stale} changed", files.len(), out.display())?)
}
