//! Writing files so that a reader sees the old text or the new one, never a part.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use fv_data::Catalog;
use fv_spec::compiled::{HardwareFile, Index, ModelSummary, VERSION};
use serde::Serialize;
use tempfile::NamedTempFile;

/// The compiled files of a catalog: path relative to the index, and text. The index comes last.
pub fn compiled(catalog: &Catalog) -> Vec<(String, String)> {
    let path = |id: &str| format!("models/{id}.json");
    let summary = |model: &fv_spec::compiled::Model| ModelSummary {
        id: model.id.clone(),
        name: model.name.clone(),
        model_id: model.model_id.clone(),
        path: path(&model.id),
    };
    let index = Index {
        version: VERSION,
        models: catalog.models.values().map(summary).collect(),
        hardware_url: "hardware.json".into(),
        rules_url: "rules.json".into(),
    };
    let mut devices = catalog.devices.clone();
    devices.sort_by(|a, b| a.id.cmp(&b.id));
    let mut files: Vec<(String, String)> = catalog.models.values().map(|model| (path(&model.id), json(model))).collect();
    files.push(("hardware.json".into(), json(&HardwareFile { version: VERSION, devices })));
    files.push(("rules.json".into(), json(&catalog.rules)));
    files.push(("index.json".into(), json(&index)));
    files
}

/// Indented JSON with a final newline. Our types always serialise: keys are text and numbers are finite.
pub fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).unwrap_or_else(|error| unreachable!("wire types serialise: {error}"));
    text.push('\n');
    text
}

/// Replaces `path` by `text` in one step, keeping its permissions.
///
/// # Errors
/// When the new text cannot be written; the old file is then untouched.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    // A link is followed, so that its target is replaced and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let staged = stage(&path, text)?;
    staged.persist(&path).map_err(|error| error.error)?;
    Ok(())
}

fn stage(path: &Path, text: &str) -> io::Result<NamedTempFile> {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new().prefix(".fv-").suffix(".part").tempfile_in(folder)?;
    file.write_all(text.as_bytes())?;
    let permissions = fs::metadata(path).map(|m| m.permissions()).or_else(|_| new_file_permissions(folder))?;
    file.as_file().set_permissions(permissions)?;
    file.as_file().sync_all()?;
    Ok(file)
}

/// The permissions that an ordinary new file gets, which a temporary file does not.
#[cfg(unix)]
fn new_file_permissions(folder: &Path) -> io::Result<fs::Permissions> {
    use std::os::unix::fs::PermissionsExt;
    // Readable by whoever may read the folder.
    let folder = fs::metadata(folder)?.permissions().mode();
    Ok(fs::Permissions::from_mode(0o600 | (folder & 0o044)))
}

#[cfg(not(unix))]
fn new_file_permissions(folder: &Path) -> io::Result<fs::Permissions> {
    let mut permissions = fs::metadata(folder)?.permissions();
    permissions.set_readonly(false);
    Ok(permissions)
}

/// Writes `files` below `folder`: all are staged before the first is put in place, so a full disk changes nothing.
/// JSON files of models that are no longer there are removed. Returns how many files changed.
///
/// # Errors
/// When a file cannot be written.
pub fn replace_all(folder: &Path, files: &[(String, String)]) -> io::Result<usize> {
    let models = folder.join("models");
    fs::create_dir_all(&models)?;
    let mut staged: Vec<(NamedTempFile, PathBuf)> = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        if fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            staged.push((stage(&path, text)?, path));
        }
    }
    let mut changed = staged.len();
    for (file, path) in staged {
        file.persist(&path).map_err(|error| error.error)?;
    }
    let kept: BTreeSet<PathBuf> = files.iter().map(|(name, _)| folder.join(name)).collect();
    for entry in fs::read_dir(&models)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "json") && !kept.contains(&path) {
            fs::remove_file(&path)?;
            changed += 1;
        }
    }
    Ok(changed)
}
