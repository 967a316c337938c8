//! `models/<key>.yaml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fv_spec::{
    authored::{ComponentUse, Deployment, ReferenceRun, Role, Source},
    compiled::Model,
    family::Family,
    units::MAX_JSON_INTEGER,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    At, Devices, Keep, ManifestType as Manifest, SHAPES, component, component::Components, credentials, decode, origin, run, shaped,
};
use crate::{
    codes::Code,
    compile,
    finding::{Finding, SourceFile, Span, suggest},
    yaml::{Kind, Node, Step, short},
};

/// What manifests refer to.
pub(crate) struct Shared<'a> {
    pub(crate) hardware: &'a Devices,
    pub(crate) components: &'a Components,
}

/// What one manifest gave.
#[derive(Default)]
pub(crate) struct Outcome {
    pub(crate) findings: Vec<Finding>,
    pub(crate) uses: component::Uses,
    pub(crate) has_capacity: bool,
    /// Whether the text could be read to its end.
    pub(crate) read: bool,
    pub(crate) model: Option<Model>,
}

pub(crate) fn check(key: &str, file: &Arc<SourceFile>, shared: &Shared, keep: Keep) -> Outcome {
    let mut outcome = Outcome::default();
    let Outcome { findings, uses, has_capacity, read, model } = &mut outcome;
    if !fv_data::is_id(key) {
        let help = "lower-case letters and digits, with single `.`, `-` or `_` between them";
        findings
            .push(Finding::new(Code::BadId, file, 0..0, "the file's name", format!("`{}` cannot be a model's id", short(key))).help(help));
    }
    credentials(file, findings);
    let Some((root, value, wrong)) = shaped(file, &SHAPES.model, findings) else { return outcome };
    *read = true;
    let at = At { file, key: 0..0, node: &root };
    *has_capacity = root.entry("capacity").is_some();
    large_integers(&at, &root, &wrong, findings);
    if !wrong.is_empty() {
        // A slip in one part hides no other, and references count even where their part is wrong.
        note_uses(key, &value, uses);
        let pieces = Pieces::read(&root, &value, &wrong);
        meaning(&at, key, &pieces.parts(), shared, uses, findings);
        return outcome;
    }
    let Some(manifest) = decode::<Manifest>(file, &root, value, findings) else { return outcome };
    meaning(&at, key, &Parts::of(&manifest), shared, uses, findings);
    if keep == Keep::Catalog && findings.is_empty() {
        *model = compile::model(key, manifest, shared.components);
    }
    outcome
}

/// The parts of a manifest whose shape is right.
pub(crate) struct Parts<'a> {
    pub(crate) baseline: Option<&'a Map<String, Value>>,
    pub(crate) deployments: Vec<Option<&'a Deployment>>,
    has_capacity: bool,
    family: Option<&'static Family>,
    components: &'a BTreeMap<Role, ComponentUse>,
    sources: &'a [Source],
    pub(crate) runs: Vec<Option<&'a ReferenceRun>>,
}

impl<'a> Parts<'a> {
    /// All parts of a manifest without fault.
    pub(crate) fn of(manifest: &'a Manifest) -> Self {
        static NONE: BTreeMap<Role, ComponentUse> = BTreeMap::new();
        let capacity = manifest.capacity.as_ref();
        Self {
            baseline: Some(&manifest.baseline),
            deployments: manifest.deployments.iter().map(Some).collect(),
            has_capacity: capacity.is_some(),
            family: capacity.and_then(|capacity| Family::find(&capacity.memory_rules)),
            components: capacity.map_or(&NONE, |capacity| &capacity.components),
            sources: capacity.map_or(&[], |capacity| &capacity.sources),
            runs: capacity.map_or_else(Vec::new, |capacity| capacity.reference_runs.iter().map(Some).collect()),
        }
    }

    /// The model path of the baseline.
    pub(crate) fn model_path(&self) -> Option<&'a str> {
        self.baseline?.get("generator")?.get("model_path")?.as_str()
    }
}

/// What can be read of a manifest with faults.
struct Pieces {
    baseline: Option<Map<String, Value>>,
    deployments: Vec<Option<Deployment>>,
    has_capacity: bool,
    family: Option<&'static Family>,
    components: BTreeMap<Role, ComponentUse>,
    sources: Vec<Source>,
    runs: Vec<Option<ReferenceRun>>,
}

impl Pieces {
    fn read(root: &Node, value: &Value, wrong: &[Span]) -> Self {
        let whole = |path: &[Step]| {
            let (key, node) = root.at(path.iter().copied())?;
            let start = key.map_or(node.span.start, |key| key.span.start);
            (!wrong.iter().any(|span| (start..=node.span.end).contains(&span.start))).then_some(())
        };
        let list = |path: &[Step], value: &Value| -> Vec<Option<Value>> {
            let items = value.as_array().into_iter().flatten().enumerate();
            items.map(|(i, item)| whole(&[path, &[Step::Index(i)]].concat()).map(|()| item.clone())).collect()
        };
        let capacity = &value["capacity"];
        let components = capacity["components"].as_object().into_iter().flatten().filter_map(|(role, used)| {
            whole(&["capacity".into(), "components".into(), role.as_str().into()])?;
            Some((serde_json::from_value(Value::String(role.clone())).ok()?, serde_json::from_value(used.clone()).ok()?))
        });
        let sources = whole(&["capacity".into(), "sources".into()]).and_then(|()| serde_json::from_value(capacity["sources"].clone()).ok());
        Self {
            baseline: whole(&["baseline".into()]).and_then(|()| value["baseline"].as_object().cloned()),
            deployments: typed(list(&["deployments".into()], &value["deployments"])),
            has_capacity: !capacity.is_null(),
            family: capacity["memory_rules"].as_str().and_then(Family::find),
            components: components.collect(),
            sources: sources.unwrap_or_default(),
            runs: typed(list(&["capacity".into(), "reference_runs".into()], &capacity["reference_runs"])),
        }
    }

    fn parts(&self) -> Parts<'_> {
        Parts {
            baseline: self.baseline.as_ref(),
            deployments: self.deployments.iter().map(Option::as_ref).collect(),
            has_capacity: self.has_capacity,
            family: self.family,
            components: &self.components,
            sources: &self.sources,
            runs: self.runs.iter().map(Option::as_ref).collect(),
        }
    }
}

fn typed<T: DeserializeOwned>(values: Vec<Option<Value>>) -> Vec<Option<T>> {
    values.into_iter().map(|value| serde_json::from_value(value?).ok()).collect()
}

/// What no schema can say of a manifest.
fn meaning(at: &At, key: &str, parts: &Parts, shared: &Shared, uses: &mut component::Uses, findings: &mut Vec<Finding>) {
    deployments(at, parts, findings);
    let mut references = References { at, shared, family: parts.family, model: key, uses };
    for (role, used) in parts.components {
        references.check(&["capacity".into(), "components".into()], *role, used, findings);
    }
    for (i, deployment) in parts.deployments.iter().enumerate() {
        for (role, used) in deployment.iter().flat_map(|deployment| &deployment.components) {
            references.check(&["deployments".into(), i.into(), "components".into()], *role, used, findings);
        }
    }
    origin::check(at, &["capacity".into(), "sources".into()], parts.sources, findings);
    run::check(at, parts, shared, findings);
}

/// Integers of free-form configurations that not every JSON reader keeps exactly.
fn large_integers(at: &At, node: &Node, wrong: &[Span], findings: &mut Vec<Finding>) {
    match &node.kind {
        Kind::Mapping(entries) => entries.iter().for_each(|(_, value)| large_integers(at, value, wrong, findings)),
        Kind::Sequence(items) => items.iter().for_each(|item| large_integers(at, item, wrong, findings)),
        Kind::Scalar(Value::Number(number)) => {
            let size = number.as_u64().or_else(|| number.as_i64().map(i64::unsigned_abs));
            if size.is_some_and(|size| size > MAX_JSON_INTEGER) && !wrong.contains(&node.span) {
                let message = format!("`{number}` is beyond 2^53, where JSON readers lose digits");
                findings.push(
                    at.finding(Code::IntegerTooLarge, node.span.clone(), "would change", message)
                        .help("quote it: seeds and hashes are text"),
                );
            }
        }
        Kind::Scalar(_) | Kind::Refused => {}
    }
}

fn deployments(at: &At, parts: &Parts, findings: &mut Vec<Finding>) {
    let mut seen = BTreeMap::new();
    for (i, deployment) in parts.deployments.iter().enumerate() {
        let Some(deployment) = deployment else { continue };
        let id = at.value(&["deployments".into(), i.into(), "id".into()]);
        if let Some(first) = seen.insert(deployment.id.as_str(), id.clone()) {
            let message = format!("two deployments are called `{}`", short(&deployment.id));
            findings.push(at.finding(Code::DuplicateId, id, "again here", message).also(first, "first here"));
        }
        if !deployment.components.is_empty() && !parts.has_capacity {
            let span = at.key(&["deployments".into(), i.into(), "components".into()]);
            let message = "component overrides in a model without `capacity`";
            let help = "add the model's `capacity.components` first";
            findings.push(at.finding(Code::UnknownReference, span, "overrides nothing", message).help(help));
        }
        if let Some(baseline) = parts.baseline.filter(|_| deployment.defaults.contains_key("generator")) {
            merged_configuration(at, i, &compile::merged(baseline, &deployment.defaults), findings);
        }
    }
}

/// What a baseline must hold, its deployments must not take away.
fn merged_configuration(at: &At, i: usize, merged: &Map<String, Value>, findings: &mut Vec<Finding>) {
    let defaults: [Step; 4] = ["deployments".into(), i.into(), "defaults".into(), "generator".into()];
    let place = |rest: &[Step]| {
        let path = [&defaults[..], rest].concat();
        if at.node.at(path.iter().copied()).is_some() { at.value(&path) } else { at.key(&defaults) }
    };
    let generator = &merged["generator"];
    if generator["model_path"].as_str().is_none_or(str::is_empty) {
        let message = "with these defaults, `generator.model_path` is no text any more";
        findings.push(at.finding(Code::WrongType, place(&["model_path".into()]), "not a model path", message));
    }
    let gpus = &generator["engine"]["num_gpus"];
    if !gpus.is_null() && gpus.as_u64().is_none_or(|gpus| gpus == 0) {
        let message = "with these defaults, `generator.engine.num_gpus` is no positive integer any more";
        findings.push(at.finding(Code::WrongType, place(&["engine".into(), "num_gpus".into()]), "not a GPU count", message));
    }
}

/// Notes the references of a manifest whose shape is wrong, as far as they can be seen.
fn note_uses(model: &str, value: &serde_json::Value, uses: &mut component::Uses) {
    let family = value["capacity"]["memory_rules"].as_str().and_then(Family::find);
    let overrides = value["deployments"].as_array().into_iter().flatten().map(|deployment| &deployment["components"]);
    for components in std::iter::once(&value["capacity"]["components"]).chain(overrides) {
        for used in components.as_object().into_iter().flat_map(serde_json::Map::values) {
            let alternatives = used["alternatives"].as_array().into_iter().flatten();
            for reference in std::iter::once(&used["ref"]).chain(alternatives).filter_map(serde_json::Value::as_str) {
                uses.note(reference, family, model);
            }
        }
    }
}

struct References<'a> {
    at: &'a At<'a>,
    shared: &'a Shared<'a>,
    family: Option<&'static Family>,
    model: &'a str,
    uses: &'a mut component::Uses,
}

impl References<'_> {
    /// Checks the component that plays `role`, and its alternatives.
    fn check(&mut self, path: &[Step], role: Role, used: &ComponentUse, findings: &mut Vec<Finding>) {
        let here = [path, &[Step::Key(role.word())]].concat();
        self.reference(&[&here[..], &["ref".into()]].concat(), role, &used.component, findings);
        let mut seen = BTreeSet::from([used.component.as_str()]);
        for (i, alternative) in used.alternatives.iter().enumerate() {
            let item = [&here[..], &["alternatives".into(), i.into()]].concat();
            if !seen.insert(alternative) {
                let message = format!("`{}` is an alternative to itself", short(alternative));
                findings.push(self.at.finding(Code::SelfAlternative, self.at.value(&item), "already the choice", message));
                continue;
            }
            self.reference(&item, role, alternative, findings);
        }
    }

    fn reference(&mut self, path: &[Step], role: Role, id: &str, findings: &mut Vec<Finding>) {
        let kind = role.component_type();
        let known = self.shared.components.of(kind);
        let span = self.at.value(path);
        let help = || suggest(id, known.entries.iter().map(|entry| entry.id.as_str()), &format!("components in {}", kind.file()));
        match self.shared.components.find(id) {
            Some((found, _)) if found == kind => self.uses.note(id, self.family, self.model),
            Some((found, _)) => {
                let message =
                    format!("role `{}` takes a component of {}, `{}` is in {}", role.word(), kind.file(), short(id), found.file());
                let article = if kind.word().starts_with('e') { "an" } else { "a" };
                findings
                    .push(self.at.finding(Code::WrongTypeReference, span, format!("not {article} {}", kind.word()), message).help(help()));
                self.uses.note(id, None, self.model);
            }
            // A file that could not be read defines nothing; its own finding says so.
            None if !known.read => {}
            None => {
                let message = format!("no component is called `{}`", short(id));
                findings.push(self.at.finding(Code::UnknownReference, span, "not defined", message).help(help()));
            }
        }
    }
}
