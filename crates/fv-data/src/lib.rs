//! The compiled catalog, embedded, and the resolver for ids and aliases.
//!
//! The JSON under `data/` is written by `fv-catalog build` and never by hand; a test fails when it is not what
//! the authored catalog compiles to.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use fv_spec::compiled::{Device, HardwareFile, Index, Model, ModelSummary, RulesFile, VERSION};
use serde_json::Value;

pub use store::Store;

mod store;

static INDEX: &str = include_str!("../data/index.json");
static HARDWARE: &str = include_str!("../data/hardware.json");
static RULES: &str = include_str!("../data/rules.json");
static MODELS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/models.rs"));

/// Why a compiled catalog could not be read. Messages name the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The file is not there.
    #[error("{file}: not found")]
    Missing {
        /// Relative to the index.
        file: String,
    },
    /// The file is not JSON of the right shape.
    #[error("{file}: {source}")]
    Malformed {
        /// Relative to the index.
        file: String,
        /// What the reader said.
        source: serde_json::Error,
    },
    /// The file was written by another version of the format.
    #[error(
        "{file}: format version {found} is not supported, this program reads version {VERSION}; use a program of the same release as the catalog"
    )]
    Version {
        /// Relative to the index.
        file: String,
        /// As written in the file.
        found: String,
    },
    /// The file contradicts itself or the index.
    #[error("{file}: {message}")]
    Identity {
        /// Relative to the index.
        file: String,
        /// What does not agree.
        message: String,
    },
}

impl ReadError {
    /// The error with the folder before the name of the file.
    fn below(mut self, root: &str) -> Self {
        if !root.is_empty() {
            match &mut self {
                Self::Missing { file } | Self::Malformed { file, .. } | Self::Version { file, .. } | Self::Identity { file, .. } => {
                    *file = format!("{root}/{file}");
                }
            }
        }
        self
    }
}

/// A compiled catalog in memory.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// Models with capacity facts, by id.
    pub models: BTreeMap<String, Model>,
    /// Devices in id order.
    pub devices: Vec<Device>,
    /// Fitted coefficients.
    pub rules: RulesFile,
}

/// The compiled files as they are embedded: path relative to the index, and text.
pub fn embedded_files() -> impl Iterator<Item = (&'static str, &'static str)> {
    [("index.json", INDEX), ("hardware.json", HARDWARE), ("rules.json", RULES)].into_iter().chain(MODELS.iter().copied())
}

impl Catalog {
    /// The catalog that this program was built with.
    pub fn embedded() -> Result<Self, ReadError> {
        Self::read(|path| embedded_files().find(|(name, _)| *name == path).map(|(_, text)| text.to_owned()))
    }

    /// Reads a compiled catalog; `file` returns the text at a path relative to the index.
    pub fn read(file: impl Fn(&str) -> Option<String>) -> Result<Self, ReadError> {
        let file = |path: &str| file(path).map(Cow::Owned);
        let index = index(&file)?;
        let hardware: HardwareFile = read(&file, &index.hardware_url)?;
        let rules = read(&file, &index.rules_url)?;
        let mut models = BTreeMap::new();
        for summary in &index.models {
            if models.insert(summary.id.clone(), model(&file, summary)?).is_some() {
                return Err(identity("index.json", format!("model {:?} is listed twice", summary.id)));
            }
        }
        sound(&index.hardware_url, &hardware.devices)?;
        Ok(Self { models, devices: hardware.devices, rules })
    }

    /// The device with this id or alias, letter case aside.
    pub fn device(&self, name: &str) -> Option<&Device> {
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        self.devices.iter().find(|device| is(&device.id) || device.aliases.iter().any(|alias| is(alias)))
    }

    /// The model with this id, letter case aside, or with this checkpoint.
    pub fn model(&self, name: &str) -> Option<&Model> {
        self.models.values().find(|model| model.id.eq_ignore_ascii_case(name) || model.model_id == name)
    }
}

/// Whether `id` is lower-case letters and digits, with single `.`, `-` or `_` between them.
pub fn is_id(id: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    id.split(['.', '-', '_']).all(|part| !part.is_empty() && part.chars().all(word))
}

fn identity(file: &str, message: String) -> ReadError {
    ReadError::Identity { file: file.to_owned(), message }
}

/// Returns the text at a path relative to the index.
type Files<'a> = dyn Fn(&str) -> Option<Cow<'static, str>> + 'a;

fn index(file: &Files<'_>) -> Result<Index, ReadError> {
    let index: Index = read(file, "index.json")?;
    for path in [&index.hardware_url, &index.rules_url].into_iter().chain(index.models.iter().map(|model| &model.path)) {
        // What a catalog names is read and written below its own folder.
        if path.starts_with('/') || path.contains(['\\', ':']) || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(identity("index.json", format!("{path:?} is not a path below the index")));
        }
    }
    Ok(index)
}

fn model(file: &Files<'_>, summary: &ModelSummary) -> Result<Model, ReadError> {
    let model: Model = read(file, &summary.path)?;
    if !is_id(&summary.id) || summary.path != format!("models/{}.json", summary.id) {
        return Err(identity("index.json", format!("{:?} at {:?} is not models/<id>.json", summary.id, summary.path)));
    }
    let disagreement =
        [("id", &model.id, &summary.id), ("name", &model.name, &summary.name), ("model_id", &model.model_id, &summary.model_id)]
            .into_iter()
            .find(|(_, here, there)| here != there);
    if let Some((field, here, there)) = disagreement {
        return Err(identity(&summary.path, format!("{field} is {here:?}, the index says {there:?}")));
    }
    Ok(model)
}

/// Devices whose names are their own and whose memory is a size.
fn sound(file: &str, devices: &[Device]) -> Result<(), ReadError> {
    let mut seen = BTreeSet::new();
    for device in devices {
        for name in std::iter::once(&device.id).chain(&device.aliases) {
            if !seen.insert(name.to_lowercase()) {
                return Err(identity(file, format!("{name:?} names two devices")));
            }
        }
        if !(device.memory_gb.is_finite() && device.memory_gb > 0.0) {
            return Err(identity(file, format!("memory_gb of {:?} is not positive", device.id)));
        }
    }
    Ok(())
}

fn read<T: serde::de::DeserializeOwned>(file: &Files<'_>, path: &str) -> Result<T, ReadError> {
    let text = file(path).ok_or_else(|| ReadError::Missing { file: path.to_owned() })?;
    let malformed = |source| ReadError::Malformed { file: path.to_owned(), source };
    let value: Value = serde_json::from_str(&text).map_err(malformed)?;
    version(path, &value["version"])?;
    T::deserialize(value).map_err(malformed)
}

fn version(path: &str, found: &Value) -> Result<(), ReadError> {
    match found {
        Value::Number(version) if version.as_u64() == Some(u64::from(VERSION)) => Ok(()),
        Value::Null => Err(identity(path, "no format version".to_owned())),
        found => Err(ReadError::Version { file: path.to_owned(), found: found.to_string() }),
    }
}

/// Longer names resemble nothing here; comparing them would only take time.
const MAX_QUERY: usize = 200;

/// Something that `find` can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// A model with capacity facts.
    Model,
    /// A device.
    Hardware,
    /// A shared component.
    Component,
}

/// One answer to a query.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    /// What it is.
    pub kind: Found,
    /// Its canonical id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Whether the query is exactly its id or an alias, letter case and what separates words aside.
    pub exact: bool,
    /// 1 is best; meaningful only for ranking.
    pub score: f64,
}

/// Ranks everything whose id, alias or name resembles `query`; exact matches come first.
///
/// An exact id or alias resolves. Anything else is a list to choose from, never a silent choice.
pub fn find(catalog: &Catalog, query: &str) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let split = |text: &str| -> Vec<String> {
        text.to_lowercase().split(|c: char| !c.is_alphanumeric() && c != '.').filter(|w| !w.is_empty()).map(str::to_owned).collect()
    };
    let words = split(query);
    if words.is_empty() || query.len() > MAX_QUERY {
        return candidates;
    }
    let mut consider = |kind, id: &str, name: &str, aliases: &[String]| {
        let exact = std::iter::once(id).chain(aliases.iter().map(String::as_str)).any(|known| split(known) == words);
        let score = if exact { 2.0 } else { similarity(&words, id, name, aliases) };
        if score >= 0.5 {
            candidates.push(Candidate { kind, id: id.to_owned(), name: name.to_owned(), exact, score });
        }
    };
    for model in catalog.models.values() {
        consider(Found::Model, &model.id, &model.name, std::slice::from_ref(&model.model_id));
    }
    for device in &catalog.devices {
        consider(Found::Hardware, &device.id, &device.name, &device.aliases);
    }
    for (id, component) in components(catalog) {
        consider(Found::Component, id, &component.name, &[]);
    }
    candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then_with(|| (a.kind, &a.id).cmp(&(b.kind, &b.id))));
    candidates
}

/// Every component that a model uses, alternatives included, by id.
pub fn components(catalog: &Catalog) -> BTreeMap<&str, &fv_spec::compiled::ExpandedComponent> {
    let mut all = BTreeMap::new();
    for model in catalog.models.values() {
        let overrides = model.examples.iter().flat_map(|example| example.components.values());
        for component in model.components.values().chain(overrides) {
            for one in std::iter::once(component).chain(&component.alternatives) {
                all.entry(one.component.as_str()).or_insert(one);
            }
        }
    }
    all
}

/// Ids close to `name`, best first: what a "did you mean" lists.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.len() > MAX_QUERY {
        return Vec::new();
    }
    let wanted = name.to_lowercase();
    let mut ranked: Vec<(f64, &str)> = known
        .into_iter()
        .map(|id| {
            let lower = id.to_lowercase();
            let contained = if wanted.len() >= 3 && lower.contains(&wanted) { 0.95 } else { 0.0 };
            (strsim::jaro_winkler(&wanted, &lower).max(contained), id)
        })
        .filter(|(score, _)| *score > 0.8)
        .collect();
    ranked.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    ranked.truncate(3);
    ranked.into_iter().map(|(_, id)| id).collect()
}

/// How well an entry fits the words of a query, from 0 to 1: the share of words that it has.
fn similarity(words: &[String], id: &str, name: &str, aliases: &[String]) -> f64 {
    let text = format!("{id} {name} {}", aliases.join(" ")).to_lowercase();
    let parts: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|p| !p.is_empty()).collect();
    let of_word = |word: &String| {
        if parts.iter().any(|part| part == word) {
            return 1.0;
        }
        if text.contains(word.as_str()) {
            return 0.9;
        }
        parts.iter().map(|part| strsim::jaro_winkler(word, part)).filter(|score| *score > 0.85).fold(0.0, f64::max) * 0.8
    };
    // `rtx4090` is written `rtx-4090` here.
    let joined: String = words.concat().chars().filter(|c| c.is_alphanumeric()).collect();
    let run_together = [id, name].into_iter().chain(aliases.iter().map(String::as_str)).any(|known| {
        let known: String = known.to_lowercase().chars().filter(|c| c.is_alphanumeric()).collect();
        joined.len() >= 4 && known.contains(&joined)
    });
    #[expect(clippy::cast_precision_loss, reason = "a query has few words")]
    let count = words.len() as f64;
    let share = words.iter().map(of_word).sum::<f64>() / count;
    if run_together { share.max(0.95) } else { share }
}
