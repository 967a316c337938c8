//! What the fuzz targets do with their bytes. `tests/fuzz` calls this, and a test runs it over the committed seeds.

use std::{collections::BTreeMap, sync::LazyLock};

use fv_catalog::{
    check::{Keep, check},
    output::{self, Format},
    sources::{self, Sources},
    write, yaml,
};
use fv_data::Catalog;
use fv_estimate::planner::{check as plan_check, diff::diff, explain::explain};
use fv_spec::plan::Plan;

use crate::base;

/// The files of a catalog that `yaml` tries its bytes as.
const AUTHORED: [&str; 7] =
    ["hardware.yaml", "transformers.yaml", "encoders.yaml", "vaes.yaml", "models/example.yaml", "rules/fit.yaml", "coverage.yaml"];

static BASE: LazyLock<Sources> = LazyLock::new(base);

/// What the base catalog compiles to.
static COMPILED: LazyLock<BTreeMap<String, String>> = LazyLock::new(|| {
    let catalog = check(&BASE, Keep::Catalog).catalog.unwrap_or_else(|| panic!("tests/base is sound"));
    write::compiled(&catalog).into_iter().collect()
});

/// The YAML reader and the whole check: the bytes stand in for each authored file in turn.
///
/// # Panics
/// When the checker does, or when what it takes for sound cannot be compiled, read back and compiled to the same bytes.
pub fn yaml(bytes: &[u8]) {
    let content = sources::text(bytes.to_vec());
    let mut files = &AUTHORED[..1];
    if let sources::Content::Text(text) = &content {
        let (node, problems) = yaml::parse(text);
        assert!(node.is_some() || !problems.is_empty(), "nothing is said");
        // What cannot be read is the same in every file.
        files = if node.is_some() { &AUTHORED } else { files };
    }
    for &file in files {
        let mut sources = BASE.clone();
        sources.files.insert(file.to_owned(), content.clone());
        let checked = check(&sources, Keep::Catalog);
        for finding in &checked.findings {
            for label in &finding.labels {
                assert!(finding.file.text.get(label.span.clone()).is_some(), "{:?} is no part of {}", label.span, finding.file.path);
            }
        }
        for format in [Format::Human, Format::Json, Format::Github, Format::Sarif] {
            assert!(output::write(format, &checked.findings, true, &mut Vec::new()).is_ok(), "memory takes everything");
        }
        if let Some(catalog) = checked.catalog {
            round_trip(&catalog);
        }
    }
}

/// The reader of compiled catalogs: the bytes stand in for each compiled file in turn.
///
/// # Panics
/// When the reader does, or when what it takes for sound cannot be written and read back.
pub fn compiled(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    for file in COMPILED.keys() {
        let read = Catalog::read(|path| if path == file { Some(text.to_owned()) } else { COMPILED.get(path).cloned() });
        match read {
            Ok(catalog) => {
                fv_data::find(&catalog, "example card");
                round_trip(&catalog);
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

/// The reader of plans.
///
/// # Panics
/// When the reader, the checks, the explanation or the comparison do, or when what was read cannot be written and read back.
pub fn plan(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // What contradicts itself is refused by the reader, and gone through all the same.
    if let Ok(plan) = serde_json::from_str::<Plan>(text) {
        plan_check::check(&plan);
        explain(&plan);
        diff(&plan, &plan);
    }
    match plan_check::read(text) {
        Ok(plan) => {
            let written = serde_json::to_string(&plan).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(plan_check::read(&written).as_ref(), Ok(&plan), "what was read cannot be read again");
            assert!(diff(&plan, &plan).same, "a plan differs from itself");
        }
        Err(errors) => assert!(!errors.is_empty() && errors.iter().all(|error| !error.message.is_empty()), "nothing is said"),
    }
}

/// Compiles `catalog`, reads it back and compiles it to the same bytes.
fn round_trip(catalog: &Catalog) {
    let files: BTreeMap<String, String> = write::compiled(catalog).into_iter().collect();
    for path in files.keys() {
        assert!(!path.split('/').any(|part| part == ".."), "{path} leads out of the folder");
    }
    let again = Catalog::read(|path| files.get(path).cloned()).unwrap_or_else(|error| panic!("{error}"));
    for (path, text) in write::compiled(&again) {
        assert_eq!(files.get(&path), Some(&text), "{path}");
    }
}
