//! `transformers.yaml`, `encoders.yaml` and `vaes.yaml`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use fv_spec::{
    authored::Component,
    family::{ComponentType, Family},
    units::Count,
};

use super::{At, ComponentFile, Entry, EntryFile, SHAPES, origin};
use crate::{
    codes::Code,
    finding::{Finding, SourceFile},
    yaml::short,
};

/// The three component files, in the order of [`ComponentType::ALL`].
#[derive(Default)]
pub(crate) struct Components(pub(crate) [ComponentFile; 3]);

impl Components {
    pub(crate) fn of(&self, kind: ComponentType) -> &ComponentFile {
        let [transformers, encoders, vaes] = &self.0;
        match kind {
            ComponentType::Transformer => transformers,
            ComponentType::Encoder => encoders,
            ComponentType::Vae => vaes,
        }
    }

    /// The component called `id` and its type, whichever file defines it.
    pub(crate) fn find(&self, id: &str) -> Option<(ComponentType, &Entry<Component>)> {
        ComponentType::ALL.into_iter().find_map(|kind| Some((kind, self.of(kind).get(id)?)))
    }
}

/// Families and a model that use each component.
#[derive(Debug, Default)]
pub(crate) struct Uses(BTreeMap<String, BTreeMap<&'static str, String>>);

impl Uses {
    /// Notes that `model`, of `family`, uses `component`.
    pub(crate) fn note(&mut self, component: &str, family: Option<&'static Family>, model: &str) {
        let families = self.0.entry(component.to_owned()).or_default();
        if let Some(family) = family {
            families.entry(family.id).or_insert_with(|| model.to_owned());
        }
    }

    pub(crate) fn extend(&mut self, other: Self) {
        for (component, families) in other.0 {
            let mine = self.0.entry(component).or_default();
            for (family, model) in families {
                mine.entry(family).or_insert(model);
            }
        }
    }
}

pub(crate) fn read(texts: &BTreeMap<String, Arc<SourceFile>>, findings: &mut Vec<Finding>) -> Components {
    let read = |kind: ComponentType| {
        let mut found = Vec::new();
        let file: ComponentFile = EntryFile::read(texts.get(kind.file()), SHAPES.component(kind), &mut found);
        for (at, _, component) in file.placed() {
            check(&at, component, &mut found);
        }
        (file, found)
    };
    let [transformers, encoders, vaes] = ComponentType::ALL;
    let (first, (second, third)) = rayon::join(|| read(transformers), || rayon::join(|| read(encoders), || read(vaes)));
    let files = [first, second, third].map(|(file, found)| {
        findings.extend(found);
        file
    });
    let mut owners: BTreeMap<&str, &'static str> = BTreeMap::new();
    for (kind, file) in ComponentType::ALL.into_iter().zip(&files) {
        let Some(source) = &file.file else { continue };
        for entry in &file.entries {
            if let Some(first) = owners.insert(&entry.id, kind.file()) {
                let message = format!("component `{}` is also defined in {first}", short(&entry.id));
                findings.push(
                    Finding::new(Code::DuplicateId, source, entry.key.clone(), "defined twice", message)
                        .help("a reference must name one component"),
                );
            }
        }
    }
    Components(files)
}

fn check(at: &At, component: &Component, findings: &mut Vec<Finding>) {
    blocks(at, component, findings);
    origin::check(at, &["sources".into()], &component.sources, findings);
}

fn blocks(at: &At, component: &Component, findings: &mut Vec<Finding>) {
    let total = u128::from(component.parameter_count.get());
    let pair = match (component.block_count, component.block_parameter_count) {
        (Some(count), Some(each)) => Some((count, each)),
        (None, None) => None,
        (count, _) => {
            let (have, need) =
                if count.is_some() { ("block_count", "block_parameter_count") } else { ("block_parameter_count", "block_count") };
            findings.push(at.finding(
                Code::BlockFields,
                at.key(&[have.into()]),
                format!("needs `{need}`"),
                format!("`{have}` without `{need}`"),
            ));
            return;
        }
    };
    if let (Some(_), Some(_)) = (pair, &component.block_groups) {
        let span = at.key(&["block_groups".into()]);
        let message = "`block_groups` beside `block_count` and `block_parameter_count`";
        findings.push(at.finding(Code::BlockFields, span, "one or the other", message).help("groups are for blocks that are not alike"));
        return;
    }
    let (in_blocks, at_fault) = if let Some((count, each)) = pair {
        (u128::from(count.get()) * u128::from(each.get()), "block_parameter_count")
    } else {
        let groups = component.block_groups.iter().flatten();
        (groups.map(|group| u128::from(group.count.get()) * u128::from(group.parameter_count.get())).sum(), "block_groups")
    };
    if in_blocks > total {
        let blocks = u64::try_from(in_blocks).ok().and_then(Count::new).map_or_else(|| in_blocks.to_string(), |count| count.to_string());
        let message = format!("the blocks hold {blocks} parameters, the whole component {}", component.parameter_count);
        findings.push(at.finding(Code::BlocksExceedTotal, at.key(&[at_fault.into()]), "more than the total", message));
    }
    let mut names = BTreeSet::new();
    for (i, group) in component.block_groups.iter().flatten().enumerate() {
        if !names.insert(&group.name) {
            let span = at.value(&["block_groups".into(), i.into(), "name".into()]);
            findings.push(at.finding(Code::DuplicateId, span, "again here", format!("two groups are called `{}`", short(&group.name))));
        }
    }
}

/// What can only be said once every model is known: unused components, and geometry by the families that use them.
pub(crate) fn check_uses(components: &Components, uses: &Uses, all_read: bool, findings: &mut Vec<Finding>) {
    for kind in ComponentType::ALL {
        let file = components.of(kind);
        let Some(source) = &file.file else { continue };
        for entry in &file.entries {
            let Some(families) = uses.0.get(&entry.id) else {
                if !all_read {
                    continue;
                }
                let message = format!("no model uses `{}`", short(&entry.id));
                let help = "use it in a role or as an alternative, or remove it";
                findings.push(Finding::new(Code::UnusedComponent, source, entry.key.clone(), "not used", message).help(help));
                continue;
            };
            let at = At { file: source, key: entry.key.clone(), node: &entry.node };
            if let Some(component) = &entry.value {
                geometry(&at, kind, component, families, findings);
            }
        }
    }
}

fn geometry(at: &At, kind: ComponentType, component: &Component, families: &BTreeMap<&'static str, String>, findings: &mut Vec<Finding>) {
    let empty = fv_spec::authored::Geometry::new();
    let geometry = component.geometry.as_ref().unwrap_or(&empty);
    let using: Vec<&Family> = families.keys().filter_map(|id| Family::find(id)).collect();
    for family in &using {
        for field in family.required(kind).iter().filter(|field| !geometry.contains_key(**field)) {
            let span = at.key(&["geometry".into()]);
            let message = format!("the `{}` rules need the geometry field `{field}`", family.id);
            let help = format!("`{}` uses this component", short(&families[family.id]));
            findings.push(at.finding(Code::GeometryRequired, span, format!("this needs `{field}`"), message).help(help));
        }
    }
    for field in geometry.keys() {
        // Without a known family there is nobody to ask.
        let known = using.is_empty()
            || kind.geometry().contains(&field.as_str())
            || using.iter().any(|family| family.declared(kind).contains(&field.as_str()));
        if !known {
            let span = at.key(&["geometry".into(), field.as_str().into()]);
            let names = using.iter().map(|family| family.id).collect::<Vec<_>>().join(", ");
            let message = format!("`{field}` is not declared by the families that use this {} ({names})", kind.word());
            findings.push(at.finding(Code::GeometryNotDeclared, span, "not declared", message));
        }
    }
}
