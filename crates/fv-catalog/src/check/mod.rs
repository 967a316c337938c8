//! The meaning of authored files: what no schema can say, one file for each kind of record.

mod component;
mod hardware;
mod model;
mod origin;
mod rules;
mod run;

use std::{
    collections::{BTreeMap, HashMap},
    path::Path,
    sync::{Arc, LazyLock},
};

use fv_spec::{
    authored::{Component, Hardware, Manifest, RunFile},
    compiled::{Device, Model},
    family::ComponentType,
    schema,
};
use rayon::prelude::*;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    codes::Code,
    compile,
    credential::Secret,
    finding::{self, Finding, SourceFile, Span},
    shape::{self, Shape},
    sources::{Content, SHARED, Sources},
    yaml::{self, Kind, Node, Step},
};

pub(crate) use component::Components;
pub use rules::not_current;

/// What one run over a catalog found.
#[derive(Debug)]
pub struct Checked {
    /// Everything that is wrong, sorted by path and position.
    pub findings: Vec<Finding>,
    /// Manifests with a capacity section.
    pub capacity_models: usize,
    /// Devices.
    pub devices: usize,
    /// The compiled catalog, when nothing is wrong and it was asked for.
    pub catalog: Option<fv_data::Catalog>,
}

/// Whether to keep what was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Only findings and counts.
    Nothing,
    /// The compiled catalog too.
    Catalog,
}

/// Checks every file of a catalog.
pub fn check(sources: &Sources, keep: Keep) -> Checked {
    let mut findings = Vec::new();
    let texts = texts(sources, &mut findings);
    let mut of_hardware = Vec::new();
    let (hardware, components) = rayon::join(|| hardware::read(&texts, &mut of_hardware), || component::read(&texts, &mut findings));
    findings.append(&mut of_hardware);
    let rules = rules::read(&texts, &mut findings);
    coverage(&texts, &mut findings);

    let others: Vec<_> = texts.iter().filter(|(path, _)| model_key(path).is_none()).collect();
    findings.par_extend(others.par_iter().flat_map_iter(|(_, file)| {
        let mut found = Vec::new();
        credentials(file, &mut found);
        found
    }));

    let shared = model::Shared { hardware: &hardware, components: &components };
    let manifests: Vec<_> = texts.iter().filter_map(|(path, file)| Some((model_key(path)?, file))).collect();
    let models: Vec<model::Outcome> = manifests.par_iter().map(|(key, file)| model::check(key, file, &shared, keep)).collect();

    // A manifest that cannot be read may use anything.
    let mut all_read = sources.files.iter().all(|(path, content)| model_key(path).is_none() || matches!(content, Content::Text(_)));
    all_read &= !sources.files.contains_key("models");
    let mut uses = component::Uses::default();
    let mut compiled: BTreeMap<String, Model> = BTreeMap::new();
    let mut capacity_models = 0;
    for outcome in models {
        findings.extend(outcome.findings);
        all_read &= outcome.read;
        uses.extend(outcome.uses);
        capacity_models += usize::from(outcome.has_capacity);
        compiled.extend(outcome.model.map(|model| (model.id.clone(), model)));
    }
    component::check_uses(&components, &uses, all_read, &mut findings);
    finding::sort(&mut findings);

    let devices = hardware.entries.len();
    let catalog = (findings.is_empty() && keep == Keep::Catalog).then(|| {
        let mut devices: Vec<Device> = hardware.typed().map(|(id, h)| compile::device(id, h)).collect();
        devices.sort_by(|a, b| a.id.cmp(&b.id));
        fv_data::Catalog { models: compiled, devices, rules }
    });
    Checked { findings, capacity_models, devices, catalog }
}

/// Checks a file for `add-run` against a catalog that is sound: the model's key, its manifest's path, and the run.
///
/// # Errors
/// Everything that is wrong with the file.
pub fn check_run(sources: &Sources, file: &Arc<SourceFile>) -> Result<(String, Value), Vec<Finding>> {
    let mut findings = Vec::new();
    let run = run_of(sources, file, &mut findings);
    finding::sort(&mut findings);
    run.filter(|_| findings.is_empty()).ok_or(findings)
}

fn run_of(sources: &Sources, file: &Arc<SourceFile>, findings: &mut Vec<Finding>) -> Option<(String, Value)> {
    let (root, value, _) = shaped(file, &SHAPES.run, findings)?;
    let at = At { file, key: 0..0, node: &root };
    credentials(file, findings);
    if !findings.is_empty() {
        return None;
    }
    let run_value = value["run"].clone();
    let RunFile { model, run } = decode(file, &root, value, findings)?;
    // The catalog is sound, so nothing is reported twice here.
    let texts = texts(sources, &mut Vec::new());
    let hardware = hardware::read(&texts, &mut Vec::new());
    let components = component::Components::default();
    let path = format!("models/{model}.yaml");
    let manifest = texts.get(&path).and_then(|manifest| {
        let (node, value, _) = shaped(manifest, &SHAPES.model, &mut Vec::new())?;
        decode::<Manifest>(manifest, &node, value, &mut Vec::new())
    });
    let keys = texts.keys().filter_map(|path| model_key(path));
    let Some(manifest) = manifest else {
        let help = finding::suggest(&model, keys, "models");
        findings.push(
            at.finding(Code::UnknownReference, at.value(&["model".into()]), "no such manifest", format!("there is no {path}")).help(help),
        );
        return None;
    };
    let Some(capacity) = &manifest.capacity else {
        let message = format!("{path} has no `capacity` section to hold the run");
        findings.push(at.finding(Code::MissingField, at.value(&["model".into()]), "has no capacity facts", message));
        return None;
    };
    if capacity.reference_runs.iter().any(|known| known.id == run.id) {
        let message = format!("the model already has a run `{}`", yaml::short(&run.id));
        findings.push(at.finding(Code::DuplicateId, at.value(&["run".into(), "id".into()]), "taken", message));
    }
    let shared = model::Shared { hardware: &hardware, components: &components };
    run::Placed { at: &at, path: vec!["run".into()], run: &run, parts: &model::Parts::of(&manifest) }.check(&shared, findings);
    Some((model, run_value))
}

/// Reports every credential-like value of a file by its key.
fn credentials(file: &Arc<SourceFile>, findings: &mut Vec<Finding>) {
    for Secret { key, value } in file.secrets() {
        let message = match key {
            Some(key) => format!("`{}` looks like a credential; its value is hidden", yaml::short(&file.text[key.clone()])),
            None => "a value looks like a credential; it is hidden".to_owned(),
        };
        let span = key.clone().unwrap_or(value.start..value.start);
        let help = "remove it and revoke it; records are public";
        findings.push(Finding::new(Code::Credential, file, span, "looks like a credential", message).help(help));
    }
}

/// The key of a manifest's path.
fn model_key(path: &str) -> Option<&str> {
    path.strip_prefix("models/")?.strip_suffix(".yaml")
}

/// The readable files; the others become findings, and so do files that are missing or in no place of ours.
fn texts(sources: &Sources, findings: &mut Vec<Finding>) -> BTreeMap<String, Arc<SourceFile>> {
    let mut texts = BTreeMap::new();
    let mut placed = |code, path: &str, text: String, message: String, help: Option<String>| {
        let at = text.len();
        let mut finding = Finding::new(code, &Arc::new(SourceFile::new(sources.shown(path), text)), at..at, "here", message);
        finding.help = help;
        findings.push(finding);
    };
    for name in SHARED {
        if !sources.files.contains_key(name) {
            placed(
                Code::MissingFile,
                name,
                String::new(),
                format!("there is no `{name}`"),
                Some("every catalog has it; without entries it is written {}".into()),
            );
        }
    }
    for (path, content) in &sources.files {
        let ours = SHARED.contains(&path.as_str()) || path == "coverage.yaml" || model_key(path).is_some() || rules_key(path);
        if path == "models" || path == "rules" {
            let (code, message) = match content {
                Content::Refused(code, message, _) => (*code, message.clone()),
                Content::Text(_) => (Code::NotAFile, "a file where a folder is expected".to_owned()),
            };
            placed(code, path, String::new(), message, None);
            continue;
        }
        if !ours {
            let extension = Path::new(path).extension().and_then(|e| e.to_str()).unwrap_or_default();
            if matches!(extension, "yaml" | "yml") || matches!(content, Content::Refused(..)) {
                let names = SHARED.into_iter().chain(["coverage.yaml", "models/<key>.yaml", "rules/<name>.yaml"]);
                placed(
                    Code::UnexpectedFile,
                    path,
                    String::new(),
                    "no file of this name is read".into(),
                    Some(finding::suggest(path, names, "files")),
                );
            }
            continue;
        }
        match content {
            Content::Refused(code, message, before) => placed(*code, path, before.clone(), message.clone(), None),
            Content::Text(text) => {
                texts.insert(path.clone(), Arc::new(SourceFile::new(sources.shown(path), text.clone())));
            }
        }
    }
    texts
}

fn rules_key(path: &str) -> bool {
    path.strip_prefix("rules/").and_then(|name| name.strip_suffix(".yaml")).is_some()
}

/// A file of entries by id, with those that have the right shape read.
pub(crate) struct EntryFile<T> {
    /// The file, when it is there.
    pub(crate) file: Option<Arc<SourceFile>>,
    /// Whether its entries are known. What refers to an unknown file is not reported on top.
    pub(crate) read: bool,
    /// In authored order.
    pub(crate) entries: Vec<Entry<T>>,
    index: HashMap<String, usize>,
}

/// One entry of a file.
pub(crate) struct Entry<T> {
    pub(crate) id: String,
    pub(crate) key: Span,
    pub(crate) node: Node,
    /// Read only when its shape is right.
    pub(crate) value: Option<T>,
}

impl<T> Default for EntryFile<T> {
    fn default() -> Self {
        Self { file: None, read: false, entries: Vec::new(), index: HashMap::new() }
    }
}

impl<T: DeserializeOwned> EntryFile<T> {
    /// Parses a file of entries and checks its shape.
    pub(crate) fn read(file: Option<&Arc<SourceFile>>, shape: &Shape, findings: &mut Vec<Finding>) -> Self {
        let Some(file) = file else { return Self::default() };
        let unread = Self { file: Some(Arc::clone(file)), ..Self::default() };
        let Some((root, value, wrong)) = shaped(file, shape, findings) else { return unread };
        let (Kind::Mapping(nodes), Value::Object(mut values)) = (root.kind, value) else { return unread };
        let mut starts: Vec<usize> = wrong.iter().map(|span| span.start).collect();
        starts.sort_unstable();
        let entries: Vec<Entry<T>> = nodes
            .into_iter()
            .map(|(key, node)| {
                let first = starts.partition_point(|start| *start < key.span.start);
                let bad = starts.get(first).is_some_and(|start| *start <= node.span.end.max(key.span.end));
                let value =
                    values.get_mut(&key.name).filter(|_| !bad).map(Value::take).and_then(|value| decode(file, &node, value, findings));
                Entry { id: key.name, key: key.span, node, value }
            })
            .collect();
        let index = entries.iter().enumerate().map(|(i, entry)| (entry.id.clone(), i)).collect();
        Self { file: Some(Arc::clone(file)), read: true, entries, index }
    }
}

impl<T> EntryFile<T> {
    /// The entry called `id`.
    pub(crate) fn get(&self, id: &str) -> Option<&Entry<T>> {
        self.index.get(id).map(|i| &self.entries[*i])
    }

    /// Entries whose shape is right.
    pub(crate) fn typed(&self) -> impl Iterator<Item = (&str, &T)> {
        self.entries.iter().filter_map(|entry| Some((entry.id.as_str(), entry.value.as_ref()?)))
    }

    /// Entries whose shape is right, with the means to point at them.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (At<'_>, &Entry<T>, &T)> {
        let file = self.file.as_ref();
        self.entries
            .iter()
            .filter_map(move |entry| Some((At { file: file?, key: entry.key.clone(), node: &entry.node }, entry, entry.value.as_ref()?)))
    }
}

/// Parses a file and checks its shape: the tree, the plain value, and the spans of what is wrong.
pub(crate) fn shaped(file: &Arc<SourceFile>, shape: &Shape, findings: &mut Vec<Finding>) -> Option<(Node, Value, Vec<Span>)> {
    let (root, problems) = yaml::parse(&file.text);
    let mut wrong = shape::problems(file, problems);
    let Some(root) = root else {
        findings.append(&mut wrong);
        return None;
    };
    let (value, violations) = shape.check(file, &root);
    wrong.extend(violations);
    let spans = wrong.iter().map(Finding::span).collect();
    findings.append(&mut wrong);
    Some((root, value, spans))
}

/// A value of the right shape, typed. What the schema lets through and the type does not is a finding too.
pub(crate) fn decode<T: DeserializeOwned>(file: &Arc<SourceFile>, node: &Node, value: Value, findings: &mut Vec<Finding>) -> Option<T> {
    match serde_path_to_error::deserialize(value) {
        Ok(value) => Some(value),
        Err(error) => {
            use serde_path_to_error::Segment;
            let steps: Vec<Step> = error
                .path()
                .iter()
                .filter_map(|segment| match segment {
                    Segment::Seq { index } => Some(Step::Index(*index)),
                    Segment::Map { key } => Some(Step::Key(key)),
                    _ => None,
                })
                .collect();
            let span = node.at(steps).map_or(&node.span, |(_, node)| &node.span);
            let message: String = error.inner().to_string().chars().take(160).collect();
            findings.push(Finding::new(Code::WrongType, file, shape::first_line(file, span), "not what the field takes", message));
            None
        }
    }
}

/// Points at parts of one entry.
pub(crate) struct At<'a> {
    pub(crate) file: &'a Arc<SourceFile>,
    /// The entry's own key.
    pub(crate) key: Span,
    pub(crate) node: &'a Node,
}

impl At<'_> {
    /// The first line of the value at `path`, or the entry's key when it is not there.
    pub(crate) fn value(&self, path: &[Step]) -> Span {
        self.node.at(path.iter().copied()).map_or_else(|| self.key.clone(), |(_, node)| shape::first_line(self.file, &node.span))
    }

    /// The key at `path`; for items of lists, the item.
    pub(crate) fn key(&self, path: &[Step]) -> Span {
        match self.node.at(path.iter().copied()) {
            Some((Some(key), _)) => key.span.clone(),
            Some((None, node)) => shape::first_line(self.file, &node.span),
            None => self.key.clone(),
        }
    }

    pub(crate) fn finding(&self, code: Code, span: Span, label: impl Into<String>, message: impl Into<String>) -> Finding {
        Finding::new(code, self.file, span, label, message)
    }
}

fn coverage(texts: &BTreeMap<String, Arc<SourceFile>>, findings: &mut Vec<Finding>) {
    if let Some(file) = texts.get("coverage.yaml") {
        shaped(file, &SHAPES.coverage, findings);
    }
}

/// The compiled schemas of the authored files, each compiled when first needed: that takes as long as reading a file.
pub(crate) struct Shapes {
    pub(crate) hardware: LazyLock<Shape>,
    transformers: LazyLock<Shape>,
    encoders: LazyLock<Shape>,
    vaes: LazyLock<Shape>,
    pub(crate) model: LazyLock<Shape>,
    pub(crate) run: LazyLock<Shape>,
    pub(crate) rules: LazyLock<Shape>,
    pub(crate) coverage: LazyLock<Shape>,
}

impl Shapes {
    /// The shape of a component file.
    pub(crate) fn component(&self, kind: ComponentType) -> &Shape {
        match kind {
            ComponentType::Transformer => &self.transformers,
            ComponentType::Encoder => &self.encoders,
            ComponentType::Vae => &self.vaes,
        }
    }
}

pub(crate) static SHAPES: Shapes = Shapes {
    hardware: LazyLock::new(|| shape("hardware.schema.json")),
    transformers: LazyLock::new(|| shape("transformers.schema.json")),
    encoders: LazyLock::new(|| shape("encoders.schema.json")),
    vaes: LazyLock::new(|| shape("vaes.schema.json")),
    model: LazyLock::new(|| shape("model.schema.json")),
    run: LazyLock::new(|| shape("run.schema.json")),
    rules: LazyLock::new(|| shape("rules.schema.json")),
    coverage: LazyLock::new(|| shape("coverage.schema.json")),
};

fn shape(name: &str) -> Shape {
    let schema = schema::named(name).unwrap_or_default();
    Shape::new(schema).unwrap_or_else(|error| unreachable!("{name} is generated from our types: {error}"))
}

/// Types of the entries that other files refer to.
pub(crate) type Devices = EntryFile<Hardware>;
pub(crate) type ComponentFile = EntryFile<Component>;
pub(crate) type ManifestType = Manifest;
