//! `add-run`.

use std::{fs, io::Write, path::Path, sync::Arc};

use fv_catalog::{
    check::{Checked, Keep, check, check_run},
    edit,
    finding::{Finding, SourceFile},
    output::Format,
    sources::{self, Content},
    write,
};
use serde_json::json;

use crate::cli::{Context, Done, Stop, read};

pub(crate) fn add_run(context: &mut Context, file: &Path) -> Done {
    let folder = context.authored()?;
    if !file.exists() {
        return Err(Stop::Usage(format!("{}: no such file", file.display())));
    }
    // Two runs added at once must not overwrite each other: whoever comes second reads what the first wrote.
    let lock = write::lock(&folder);
    let mut sources = read(&folder)?;
    let before = check(&sources, Keep::Nothing);
    if !before.findings.is_empty() {
        return Err(Stop::Findings(before.findings));
    }
    let shown = file.display().to_string();
    let text = match sources::read(file) {
        Content::Text(text) => text,
        Content::Refused(code, message, before) => {
            let at = before.len();
            return Err(Stop::Findings(vec![Finding::new(code, &Arc::new(SourceFile::new(shown, before)), at..at, "here", message)]));
        }
    };
    let (model, run) = check_run(&sources, &Arc::new(SourceFile::new(shown, text))).map_err(Stop::Findings)?;

    let relative = format!("models/{model}.yaml");
    let path = folder.join(&relative);
    let io = |error: std::io::Error| Stop::Usage(format!("{}: {error}", path.display()));
    let raw = fs::read_to_string(&path).map_err(io)?;
    let body = raw.strip_prefix('\u{feff}').unwrap_or(&raw);
    let edited = edit::insert_run(body, &run).map_err(|why| Stop::Usage(format!("{}: {why}", path.display())))?;

    // The whole catalog is checked with the new text before anything is written.
    sources.files.insert(relative, Content::Text(edited.clone()));
    let Checked { findings, .. } = check(&sources, Keep::Nothing);
    if !findings.is_empty() {
        return Err(Stop::Findings(findings));
    }
    let mark = &raw[..raw.len() - body.len()];
    write::replace(&path, &format!("{mark}{edited}")).map_err(io)?;
    drop(lock);
    let id = run["id"].as_str().unwrap_or_default();
    if context.global.format == Format::Json {
        return context.value(&json!({ "version": 1, "added": id, "path": path.display().to_string() }));
    }
    Ok(writeln!(context.out, "Added run `{id}` to {}", path.display())?)
}
