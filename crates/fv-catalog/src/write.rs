//! Writing files so that a reader sees the old text or the new one, never a part.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
};

use fv_cli::write::{PART, stage};
pub use fv_cli::write::{json, replace};
use fv_data::Catalog;
use fv_spec::compiled::{HardwareFile, Index, Model, ModelSummary, RulesFile, VERSION};
use tempfile::TempPath;

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

/// Waits until nobody else holds `folder`, and holds it until the result is dropped; nothing where a folder cannot be
/// held, as on some network file systems.
pub fn lock(folder: &Path) -> Option<fs::File> {
    let folder = fs::File::open(folder).ok()?;
    folder.lock().ok()?;
    Some(folder)
}

/// Removes what a build that was killed had staged.
fn remove_staged(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder).map_err(|error| named(folder, &error))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(PART.0) && name.ends_with(PART.1) {
            fs::remove_file(&path).map_err(|error| named(&path, &error))?;
        }
    }
    Ok(())
}

/// Writes a compiled catalog below `folder`: all files are staged before the first is put in place, so a full disk
/// changes nothing. Models that the previous index lists and the new one does not are removed; nothing else is.
/// Returns how many files changed.
///
/// # Errors
/// When the folder holds something else than an earlier build, or a file cannot be written; both name the path.
pub fn replace_all(folder: &Path, files: &[(String, String)]) -> io::Result<usize> {
    let previous = previous(folder, files)?;
    let models = folder.join("models");
    fs::create_dir_all(&models).map_err(|error| named(&models, &error))?;
    // One build at a time, so that what another one left when it was killed can be told from what it is writing.
    let lock = lock(folder);
    if lock.is_some() {
        remove_staged(folder)?;
        remove_staged(&models)?;
    }
    let mut staged: Vec<(TempPath, PathBuf)> = Vec::new();
    for (name, text) in files {
        let path = folder.join(name);
        if fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            staged.push((stage(&path, text).map_err(|error| named(&path, &error))?, path));
        }
    }
    let mut changed = staged.len();
    for (file, path) in staged {
        file.persist(&path).map_err(|error| named(&path, &error.error))?;
    }
    for name in previous.iter().filter(|name| !files.iter().any(|(new, _)| new == *name)) {
        let path = folder.join(name);
        if path.is_file() {
            fs::remove_file(&path).map_err(|error| named(&path, &error))?;
            changed += 1;
        }
    }
    Ok(changed)
}

/// The model files of the earlier build in `folder`; an error when what is there is no earlier build.
fn previous(folder: &Path, files: &[(String, String)]) -> io::Result<BTreeSet<String>> {
    let refuse = |path: PathBuf, why: &str| Err(io::Error::other(format!("{}: {why}; choose another folder", path.display())));
    if let Some(authored) = crate::sources::SHARED.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
        return refuse(authored, "the folder holds an authored catalog");
    }
    // Nor below one, where the next check would find files that it does not know.
    let absolute = std::path::absolute(folder)?;
    if let Some(above) = absolute.ancestors().skip(1).take(3).find(|above| crate::sources::is_catalog(above)) {
        return refuse(above.to_owned(), "the folder is inside an authored catalog");
    }
    if fs::symlink_metadata(folder.join("models")).is_ok_and(|models| !models.is_dir()) {
        return refuse(folder.join("models"), "not a folder of its own");
    }
    let model = |path: &str| path.strip_prefix("models/").and_then(|name| name.strip_suffix(".json")).is_some_and(|id| !id.contains('/'));
    let index = fs::read_to_string(folder.join("index.json")).ok().and_then(|text| serde_json::from_str::<Index>(&text).ok());
    let ours: BTreeSet<String> =
        index.iter().flat_map(|index| &index.models).map(|summary| summary.path.clone()).filter(|path| model(path)).collect();
    for (name, _) in files {
        let path = folder.join(name);
        if path.is_dir() {
            return refuse(path, "a folder where a file is to be written");
        }
        let expected = || match &index {
            Some(_) => !model(name) || ours.contains(name),
            // A first build that was killed has no index yet.
            None => fs::read(&path).is_ok_and(|bytes| match name.as_str() {
                "hardware.json" => serde_json::from_slice::<HardwareFile>(&bytes).is_ok(),
                "rules.json" => serde_json::from_slice::<RulesFile>(&bytes).is_ok(),
                _ => model(name) && serde_json::from_slice::<Model>(&bytes).is_ok(),
            }),
        };
        if path.exists() && !expected() {
            return refuse(path, "not from an earlier build");
        }
    }
    Ok(ours)
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
