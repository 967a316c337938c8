//! What the fuzz targets do with their bytes. `tests/fuzz` calls this, and a test runs it over the committed seeds.

use std::{collections::BTreeMap, io, sync::LazyLock};

use fv_catalog::{
    check::{Keep, check},
    output::{self, Format},
    sources::{self, Sources},
    write, yaml,
};
use fv_cli::plan::read_rows;
use fv_data::{Catalog, Store};
use fv_device::reading::WindowsMemory;
use fv_estimate::{
    capacities::{Given, Purpose, capacities},
    planner::{
        check as plan_check,
        diff::diff,
        explain::explain,
        freevideo::{Planner, table},
    },
    render,
};
use fv_run::{child::Answer, files::Files, gpu, linux, macos, windows};
use fv_spec::plan::Plan;
use fv_spec::probe::{OperatingSystem, Probe, System};

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

/// Everything that a probe reads. The first byte says what the rest is: texts of a system, parted by bytes of 0.
///
/// # Panics
/// When a parser does, or when what it finds contradicts itself.
pub fn system_files(bytes: &[u8]) {
    let Some((kind, rest)) = bytes.split_first() else { return };
    let text = String::from_utf8_lossy(rest);
    let mut parts = text.split('\0');
    let mut part = || parts.next().unwrap_or_default();
    let mut problems = Vec::new();
    let mut gpus = Vec::new();
    let mut host = None;
    let mut system = System { name: OperatingSystem::Linux, kernel: None, wsl: None, container: None };
    match kind {
        b'g' => gpus = gpu::gpus(&Answer::recorded(part()), &Answer::recorded(part()), &mut problems),
        b'l' => {
            let files = Texts::new(part);
            system = linux::system(&files);
            host = linux::host(&files, &mut problems);
        }
        b'm' => host = macos::host(part(), part(), &mut problems),
        b'w' => {
            let mut number = || part().parse().unwrap_or(u64::MAX);
            let memory = WindowsMemory {
                total_physical: number(),
                available_physical: number(),
                commit_limit: number(),
                commit_available: number(),
                installed: Some(number()),
            };
            host = windows::host(&memory, &mut problems);
        }
        b'p' => {
            match fv_estimate::probe::read(&text) {
                Ok(probe) => sound(&probe),
                Err(errors) => assert!(!errors.is_empty() && errors.iter().all(|error| !error.message.is_empty())),
            }
            return;
        }
        _ => return,
    }
    assert!(host.is_some() || *kind == b'g' || !problems.is_empty(), "nothing is said");
    sound(&Probe { version: 1, time: "2026-11-18T09:30:00Z".to_owned(), system, gpus, host, disk: None, problems });
}

/// Writes, reads and shows a probe.
fn sound(probe: &Probe) {
    let text = serde_json::to_string(probe).unwrap_or_else(|error| panic!("{error}"));
    match fv_estimate::probe::read(&text) {
        Ok(again) => assert_eq!(&again, probe),
        Err(errors) => panic!("{errors:?}"),
    }
    assert!(!fv_estimate::render::probe(probe, 80).plain().is_empty());
    for purpose in [Purpose::Plan, Purpose::Generate] {
        match capacities(Some(probe), &Given::default(), purpose) {
            Ok(found) => assert!(found.vram.capacity_bytes() > 0 && found.ram.capacity_bytes() > 0),
            Err(errors) => assert!(!errors.is_empty()),
        }
    }
}

/// A system of six texts: the same limit, use and counters in every control group.
struct Texts(BTreeMap<&'static str, String>);

impl Texts {
    fn new<'t>(mut part: impl FnMut() -> &'t str) -> Self {
        let names = ["osrelease", "meminfo", "cgroup", "mountinfo", "limit", "usage", "memory.stat"];
        Self(names.into_iter().map(|name| (name, part().to_owned())).collect())
    }
}

impl Files for Texts {
    fn read(&self, path: &str) -> io::Result<String> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let name = match name {
            "memory.max" | "memory.limit_in_bytes" => "limit",
            "memory.current" | "memory.usage_in_bytes" => "usage",
            name => name,
        };
        let text = self.0.get(name).filter(|text| !text.is_empty());
        text.cloned().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

/// The planner of tables, with the model of the built-in catalog.
static PLANNER: LazyLock<Planner> = LazyLock::new(|| {
    let model = Store::embedded().ok().and_then(|store| store.model("minimax-h3").ok()?);
    let model = model.unwrap_or_else(|| panic!("the built-in catalog has the model"));
    Planner::new(&model).unwrap_or_else(|reasons| panic!("{reasons:?}"))
});

/// The reader of tables of requests: the bytes are a table, or the rest of one whose header they lack.
///
/// # Panics
/// When the reader does, when it says nothing of what is wrong, or when what it writes reads back as something else.
pub fn requests(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let header = table::GIVEN.join(",");
    for text in [text.clone().into_owned(), format!("{header}\n{text}")] {
        match read_rows(&PLANNER, &text) {
            Ok(planned) => assert_eq!(read_rows(&PLANNER, &planned).as_ref(), Ok(&planned)),
            Err(errors) => {
                let placed = |message: &str| message.split(':').next().is_some_and(|line| line.parse::<u64>().is_ok_and(|line| line > 0));
                assert!(!errors.is_empty() && errors.iter().all(|error| placed(&error.message)), "{errors:?}");
            }
        }
    }
}

/// The reader of plans.
///
/// # Panics
/// When the reader, the checks, the explanation, the comparison or their texts do, or when what was read cannot be written and read back.
pub fn plan(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    // What contradicts itself is refused by the reader, and gone through all the same.
    if let Ok(plan) = serde_json::from_str::<Plan>(text) {
        plan_check::check(&plan);
        let names = render::Names { model: "a model", device: None };
        assert!(!render::plan(&plan, &names, 80).plain().is_empty());
        render::plan_explanation(&explain(&plan), 80);
        render::plan_diff(&diff(&plan, &plan), ["a", "b"], 80);
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
