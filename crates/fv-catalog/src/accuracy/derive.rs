//! From a measured row to what the rules say about it.

use fv_data::Catalog;
use fv_estimate::family;
use fv_estimate::forecast::operations::Operations;
pub use fv_estimate::modules::standalone::Why;
use fv_estimate::modules::standalone::{Asked, ComponentPeaks, peaks};
use fv_estimate::spread::Work;
use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{ExpandedComponent, Model};

use super::case::Case;
use super::rows::{Row, bare};

/// What the rules say about a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Derived {
    /// The family whose rules were used.
    pub family: &'static str,
    /// The component of the catalog that was taken.
    pub component: String,
    /// Its peaks.
    pub peaks: ComponentPeaks,
    /// What the pass computes, where that is counted.
    pub operations: Option<Operations>,
    /// What the memory comes from.
    pub work: Work,
    /// Rows of one geometry are left out together when fits are judged.
    pub geometry: String,
    /// Pixels, frames and batch, where it is a video.
    pub video: Option<[u64; 3]>,
}

/// The peaks that the rules give for `row`.
pub fn derive(catalog: &Catalog, row: &Row) -> Result<Derived, Why> {
    match row.runtime {
        Runtime::Diffusers => diffusers(catalog, row),
        other => Err(Why::NotCovered(format!("no rule for single components under {}", other.word()))),
    }
}

fn uncovered<T>(why: impl Into<String>) -> Result<T, Why> {
    Err(Why::NotCovered(why.into()))
}

/// A component of the catalog by the name that a benchmark gives it, the role that it has, and a model that uses it.
fn find<'a>(catalog: &'a Catalog, name: &str, parameters: Option<u64>) -> Option<(&'a ExpandedComponent, Role, &'a Model)> {
    let uses = || {
        catalog.models.values().flat_map(|model| {
            let overrides = model.examples.iter().flat_map(|example| &example.components);
            model.components.iter().chain(overrides).flat_map(move |(role, component)| {
                std::iter::once(component).chain(&component.alternatives).map(move |one| (one, *role, model))
            })
        })
    };
    // A component may serve several families, and benchmarks shorten names: the covered family, then the shortest id.
    let called = |id: &str| id == name || id.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'));
    // Or they leave out a version in the middle; the number of parameters tells which.
    let shortened = |id: &str| {
        let mut words = id.split('-');
        name.split('-').all(|word| words.any(|other| other == word))
    };
    let counted = |one: &ExpandedComponent| parameters.is_none_or(|n| n == one.parameter_count.get());
    let first = |called: &dyn Fn(&str) -> bool| {
        uses()
            .filter(|(one, ..)| called(&one.component))
            .min_by_key(|(one, _, model)| (!counted(one), one.component.len(), family::find(&model.memory_rules).is_none()))
    };
    first(&called).or_else(|| first(&shortened))
}

fn diffusers(catalog: &Catalog, row: &Row) -> Result<Derived, Why> {
    let name = bare(&row.component);
    let name = name.strip_suffix("-cast").or_else(|| name.strip_suffix("-loaded")).unwrap_or(name);
    // The benchmark's own name of the one component whose catalog id is not longer than it.
    let name = if name == "llama-3-8b-encoder" { "llama3-8b-text-encoder" } else { name };
    let case = Case::read(&row.case).map_err(Why::Malformed)?;
    let Some((component, role, model)) = find(catalog, name, case.parameters) else {
        return uncovered(format!("the catalog has no component `{name}`"));
    };
    let Some(family) = family::find(&model.memory_rules) else {
        return uncovered(format!("no rule covers {} x diffusers", model.memory_rules));
    };
    if let Some(word) = case.unknown.first() {
        return uncovered(format!("`{word}` in the case means nothing here"));
    }
    if case.parameters.is_some_and(|n| n != component.parameter_count.get()) {
        return uncovered("the measured component has another number of parameters than the catalog's");
    }
    let batch = case.batch.unwrap_or(1);
    let asked = Asked {
        stage: row.stage.clone(),
        video: case.video(),
        tokens: case.numbers.first().copied().filter(|_| case.tokens),
        batch,
        dtype: case.dtype,
        tiled: case.tiled,
        sliced: case.sliced,
        text_tokens: case.text_tokens,
        expand_timesteps: case.expand_timesteps,
        masked: case.masked,
        cast: row.cast,
    };
    let pass = family.pass(model, component, role, &asked)?;
    let extents = if let Some(video) = case.video() { video.to_vec() } else { case.numbers.clone() };
    let key: Vec<String> = extents.iter().chain([&batch]).map(u64::to_string).collect();
    Ok(Derived {
        family: family.id(),
        component: component.component.clone(),
        peaks: peaks(&*pass)?,
        operations: pass.operations(),
        work: if matches!(role, Role::Vae | Role::AudioVae) { Work::Vae } else { Work::Plain },
        geometry: key.join("x"),
        video: case.video().map(|[height, width, frames]| [height * width, frames, batch]),
    })
}
