//! `models/<key>.yaml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fv_spec::{
    authored::{ComponentUse, Role},
    compiled::Model,
    family::Family,
};

use super::{
    At, Devices, Keep, ManifestType as Manifest, SHAPES, component, component::Components, credentials, decode, origin, run, shaped,
};
use crate::{
    codes::Code,
    compile,
    finding::{Finding, SourceFile, suggest},
    yaml::{Step, short},
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
    if !is_id(key) {
        let help = "lower-case letters and digits, with single `.`, `-` or `_` between them";
        findings
            .push(Finding::new(Code::BadId, file, 0..0, "the file's name", format!("`{}` cannot be a model's id", short(key))).help(help));
    }
    credentials(file, findings);
    let Some((root, value, wrong)) = shaped(file, &SHAPES.model, findings) else { return outcome };
    *read = true;
    let at = At { file, key: 0..0, node: &root };
    *has_capacity = root.entry("capacity").is_some();
    if !wrong.is_empty() {
        // References still count, so that one slip does not make every component unused.
        note_uses(key, &value, uses);
        return outcome;
    }
    let Some(manifest) = decode::<Manifest>(file, &root, value, findings) else { return outcome };
    deployments(&at, &manifest, findings);
    if let Some(capacity) = &manifest.capacity {
        let mut references = References { at: &at, shared, family: Family::find(&capacity.memory_rules), model: key, uses };
        for (role, used) in &capacity.components {
            references.check(&["capacity".into(), "components".into()], *role, used, findings);
        }
        for (i, deployment) in manifest.deployments.iter().enumerate() {
            for (role, used) in &deployment.components {
                references.check(&["deployments".into(), i.into(), "components".into()], *role, used, findings);
            }
        }
        origin::check(&at, &["capacity".into(), "sources".into()], &capacity.sources, findings);
        run::check(&at, &manifest, shared, findings);
    }
    if keep == Keep::Catalog && findings.is_empty() {
        *model = compile::model(key, manifest, shared.components);
    }
    outcome
}

fn is_id(key: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    !key.is_empty() && key.split(['.', '-', '_']).all(|part| !part.is_empty() && part.chars().all(word))
}

fn deployments(at: &At, manifest: &Manifest, findings: &mut Vec<Finding>) {
    let mut seen = BTreeMap::new();
    for (i, deployment) in manifest.deployments.iter().enumerate() {
        let id = at.value(&["deployments".into(), i.into(), "id".into()]);
        if let Some(first) = seen.insert(deployment.id.as_str(), id.clone()) {
            let message = format!("two deployments are called `{}`", short(&deployment.id));
            findings.push(at.finding(Code::DuplicateId, id, "again here", message).also(first, "first here"));
        }
        if !deployment.components.is_empty() && manifest.capacity.is_none() {
            let span = at.key(&["deployments".into(), i.into(), "components".into()]);
            let help = "add the model's `capacity.components` first";
            findings.push(
                at.finding(Code::UnknownReference, span, "overrides nothing", "component overrides in a model without `capacity`")
                    .help(help),
            );
        }
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
