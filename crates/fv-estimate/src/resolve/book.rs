//! Names of settings, what was given for them, and what is said about the outcome.

use std::collections::BTreeMap;

use fv_spec::authored::{Dtype, Role};
use fv_spec::estimate::{Provenance, Reason, Setting};
use serde_json::{Map, Value, json};

use super::sections::{self, REQUESTS};
use super::{Context, InputError, UNKNOWN_SETTING, dtype, dtype_word, placement_value, storage_word};
use crate::error::short;
use crate::settings::Component;

/// What a key's value may be.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    Flag,
    Whole {
        least: i64,
        most: i64,
    },
    /// A number of at least 0.
    Number,
    Text,
    Choice(&'static [&'static str]),
    Dtype,
    /// A list of types, or one.
    Dtypes,
    Any,
}

/// What a key does to memory.
#[derive(Debug, Clone, Copy)]
pub(super) enum Effect {
    /// The resolver reads it.
    Applies,
    /// Nothing that can be measured in bytes.
    Harmless,
    /// No rule models it: only these values, as JSON text, leave the known behaviour alone.
    Unless(&'static [&'static str]),
}

/// One setting of a runtime.
#[derive(Debug)]
pub(super) struct Key {
    /// The runtime's flat name.
    pub(super) name: &'static str,
    /// Other ways to write it, below `generator`.
    pub(super) paths: &'static [&'static str],
    pub(super) kind: Kind,
    pub(super) effect: Effect,
}

impl Key {
    pub(super) const fn new(name: &'static str, paths: &'static [&'static str], kind: Kind, effect: Effect) -> Self {
        Self { name, paths, kind, effect }
    }

    /// Where a configuration sets it.
    pub(super) fn path(&self) -> String {
        match self.paths.first() {
            Some(path) if path.starts_with("default_request.") => (*path).to_owned(),
            Some(path) => format!("generator.{path}"),
            None => format!("generator.pipeline.experimental.{}", self.name),
        }
    }
}

/// What a written name means to a runtime.
#[derive(Debug, Clone, Copy)]
pub(super) enum Meaning {
    Key(&'static Key),
    /// Known, and without effect here.
    Inert,
}

#[derive(Debug, Clone)]
pub(super) struct Given {
    pub(super) value: Value,
    pub(super) provenance: Provenance,
    /// As written, for messages.
    pub(super) written: String,
    /// Set by an environment variable.
    pub(super) env: bool,
}

/// Collects what is given and what comes out.
pub(super) struct Book {
    lookup: fn(&str) -> Option<Meaning>,
    names: fn() -> Vec<&'static str>,
    keys: BTreeMap<&'static str, &'static Key>,
    given: BTreeMap<&'static str, Given>,
    /// Names without effect, in the order met.
    inert: Vec<String>,
    pub(super) reported: Vec<Setting>,
    pub(super) unknown: Vec<Reason>,
    pub(super) notes: Vec<String>,
    pub(super) errors: Vec<InputError>,
}

impl Book {
    pub(super) fn new(lookup: fn(&str) -> Option<Meaning>, names: fn() -> Vec<&'static str>) -> Self {
        Self {
            lookup,
            names,
            keys: BTreeMap::new(),
            given: BTreeMap::new(),
            inert: Vec::new(),
            reported: Vec::with_capacity(64),
            unknown: Vec::new(),
            notes: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Reads the whole configuration: settings are taken, and what is neither a setting nor known to leave memory alone is named.
    pub(super) fn authored(&mut self, config: &Map<String, Value>) {
        let mut leaves = Vec::with_capacity(32);
        let lookup = self.lookup;
        let open = |path: &str| !matches!(lookup(path), Some(Meaning::Key(Key { kind: Kind::Any, .. })));
        let mut path = String::with_capacity(64);
        if let Some(generator) = config.get("generator") {
            flatten(&mut path, generator, &open, &mut leaves);
        }
        leaves.sort_by_key(|(path, _)| precedence(path));
        for (path, value) in leaves {
            if matches!(path.as_str(), "model_path" | "revision" | "trust_remote_code") {
                continue;
            }
            self.take_authored(lookup(&path), value, joined("generator", &path), None);
        }
        for section in REQUESTS.into_iter().chain(config.keys().map(String::as_str).filter(|key| !REQUESTS.contains(key))) {
            let Some(value) = config.get(section).filter(|_| section != "generator") else { continue };
            let mut leaves = Vec::new();
            flatten(&mut path, value, &|_| true, &mut leaves);
            for (path, value) in leaves.into_iter().filter(|(_, value)| !value.is_null()) {
                // Both sections of a request mean the same.
                let setting = REQUESTS.contains(&section).then(|| lookup(&joined(REQUESTS[0], &path))).flatten();
                self.take_authored(setting, value, joined(section, &path), sections::effect(section, &path));
            }
        }
    }

    /// Takes one key of the configuration: a setting, or one of another section with its effect.
    fn take_authored(&mut self, setting: Option<Meaning>, value: &Value, written: String, effect: Option<Effect>) {
        match (setting, effect) {
            (Some(Meaning::Key(key)), _) => self.give(key, value.clone(), Provenance::Authored, written, false),
            (Some(Meaning::Inert), _) => self.inert.push(written),
            (None, Some(Effect::Applies | Effect::Harmless)) => {}
            (None, Some(Effect::Unless(neutral))) => self.neutral_or_unmodelled(&written, value, neutral),
            (None, None) => self.unmodelled(&written, "it is not known here and could change memory"),
        }
    }

    /// Names a setting whose value no rule models.
    fn neutral_or_unmodelled(&mut self, written: &str, value: &Value, neutral: &[&str]) {
        let text = value.to_string();
        if !neutral.contains(&text.as_str()) {
            self.unmodelled(written, &format!("no rule models the value {text}"));
        }
    }

    /// Reads what the user sets.
    pub(super) fn user(&mut self, set: &[(String, Value)]) {
        let mut seen: Vec<(&'static str, &String, &Value)> = Vec::new();
        for (name, value) in set {
            let path = name.strip_prefix("generator.").unwrap_or(name);
            match (self.lookup)(path) {
                Some(Meaning::Key(key)) => {
                    match seen.iter().find(|(known, _, other)| *known == key.name && *other != value) {
                        Some((_, first, other)) => {
                            let names = if *first == name { name.clone() } else { format!("{first}, which is {name},") };
                            let text = format!("{names} is set twice, to {} and to {}: leave out one", found(other), found(value));
                            self.errors.push(InputError::new("conflict", text));
                        }
                        None => self.give(key, value.clone(), Provenance::User, name.clone(), false),
                    }
                    seen.push((key.name, name, value));
                }
                Some(Meaning::Inert) => self.inert.push(name.clone()),
                None if is_variable(name) => {
                    let text = format!("{} is an environment variable and no setting: give it as one, with --env", json!(name));
                    self.errors.push(InputError::new("unknown-key", text));
                }
                None => {
                    let near = nearest(path, &(self.names)());
                    let hint = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
                    self.errors.push(InputError::new("unknown-key", format!("no setting is called {}{hint}", json!(short(name)))));
                }
            }
        }
    }

    /// Takes the value of an environment variable for `key`.
    pub(super) fn environment(&mut self, key: &'static Key, name: &str, text: &str, provenance: Provenance) {
        match from_environment(key.kind, text) {
            Some(value) => self.give(key, value, provenance, name.to_owned(), true),
            None => self.invalid(name, &json!(text), key.kind),
        }
    }

    fn give(&mut self, key: &'static Key, value: Value, provenance: Provenance, written: String, env: bool) {
        if value.is_null() {
            // Null is how the runtimes write "as by default"; the user's takes an authored value away.
            if provenance == Provenance::User {
                self.given.remove(key.name);
            }
            return;
        }
        if !allows(key.kind, &value) {
            self.invalid(&written, &value, key.kind);
            return;
        }
        self.keys.insert(key.name, key);
        self.given.insert(key.name, Given { value, provenance, written, env });
    }

    fn invalid(&mut self, written: &str, value: &Value, kind: Kind) {
        let message = format!("{written}: found {}, allowed: {}", found(value), allowed(kind));
        self.errors.push(InputError::new("invalid-value", message));
    }

    pub(super) fn error(&mut self, code: &'static str, message: impl Into<String>) {
        self.errors.push(InputError::new(code, message));
    }

    pub(super) fn note(&mut self, message: impl Into<String>) {
        self.notes.push(message.into());
    }

    /// Makes the result unknown because of the setting `name`.
    pub(super) fn unmodelled(&mut self, name: &str, why: &str) {
        self.unknown.push(Reason::new(UNKNOWN_SETTING, format!("{name}: {why}")));
    }

    pub(super) fn given(&self, name: &str) -> Option<&Given> {
        self.given.get(name)
    }

    /// Takes a setting that is without effect out of what is reported.
    pub(super) fn silence(&mut self, name: &str) {
        self.given.remove(name);
    }

    /// How the setting was written, for messages.
    pub(super) fn written(&self, name: &'static str) -> String {
        self.given.get(name).map_or_else(|| name.to_owned(), |given| given.written.clone())
    }

    pub(super) fn report(&mut self, key: &str, value: impl Into<Value>, provenance: Provenance) {
        self.reported.push(Setting { key: key.to_owned(), value: value.into(), provenance });
    }

    /// Reports what follows from the setting that `by` belongs to: nobody wrote it under this name.
    pub(super) fn derive(&mut self, key: &str, value: impl Into<Value>, by: Provenance) {
        self.report(key, value, if by == Provenance::RuntimeDefault { by } else { Provenance::Forced });
    }

    /// Replaces a reported value by what another setting makes of it. A value that is so already keeps its provenance.
    pub(super) fn force(&mut self, key: &str, value: impl Into<Value>) {
        let value = value.into();
        match self.reported.iter_mut().find(|setting| setting.key == key) {
            Some(setting) if setting.value == value => {}
            Some(setting) => {
                setting.value = value;
                setting.provenance = Provenance::Forced;
            }
            None => self.report(key, value, Provenance::Forced),
        }
    }

    fn take<T>(&mut self, name: &'static str, read: impl Fn(&Value) -> Option<T>, default: T) -> (T, Provenance)
    where
        T: Clone + Into<Value>,
    {
        let (value, provenance) = self
            .given
            .get(name)
            .and_then(|given| read(&given.value).map(|value| (value, given.provenance)))
            .unwrap_or((default, Provenance::RuntimeDefault));
        self.report(name, value.clone(), provenance);
        (value, provenance)
    }

    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> (bool, Provenance) {
        self.take(name, Value::as_bool, default)
    }

    pub(super) fn whole(&mut self, name: &'static str, default: i64) -> (i64, Provenance) {
        self.take(name, Value::as_i64, default)
    }

    /// A count that the table bounds to what fits.
    pub(super) fn count(&mut self, name: &'static str, default: u32) -> (u32, Provenance) {
        let (value, provenance) = self.whole(name, i64::from(default));
        (u32::try_from(value).unwrap_or(default), provenance)
    }

    pub(super) fn text(&mut self, name: &'static str, default: &str) -> (String, Provenance) {
        self.take(name, |value| value.as_str().map(str::to_owned), default.to_owned())
    }

    pub(super) fn dtype(&mut self, name: &'static str, default: Dtype) -> (Dtype, Provenance) {
        let given = self.given.get(name).and_then(|given| Some((dtype(given.value.as_str()?)?, given.provenance)));
        let (value, provenance) = given.unwrap_or((default, Provenance::RuntimeDefault));
        self.report(name, dtype_word(value), provenance);
        (value, provenance)
    }

    /// Reports how a component is placed and stored.
    pub(super) fn component(&mut self, role: Role, component: &Component, placed: Provenance, stored: Provenance) {
        let precision = component.precision;
        self.derive(&[role.word(), ".placement"].concat(), placement_value(component.placement), placed);
        self.derive(
            &[role.word(), ".precision"].concat(),
            json!({
                "stored": storage_word(precision.stored),
                "computed": dtype_word(precision.computed),
                "weight_copies": precision.cast_cache,
                "keep_fp32": precision.keep_fp32,
            }),
            stored,
        );
    }

    /// Says what is left: settings that change nothing, those without effect, and those that no rule models.
    pub(super) fn close(&mut self, runtime: &str) {
        for (name, given) in std::mem::take(&mut self.given) {
            let effect = self.keys.get(name).map_or(Effect::Applies, |key| key.effect);
            match effect {
                Effect::Applies => continue,
                Effect::Harmless => {}
                Effect::Unless(neutral) => self.neutral_or_unmodelled(&given.written, &given.value, neutral),
            }
            self.report(name, given.value, given.provenance);
        }
        if !self.inert.is_empty() {
            let names = std::mem::take(&mut self.inert).join(", ");
            self.note(format!("without effect with {runtime}: {names}"));
        }
    }
}

/// The order in which keys of `generator` are read, by path: the typed sections first, since the runtime lets the free map win.
pub(super) fn precedence(path: &str) -> (bool, bool) {
    (path.starts_with("pipeline.experimental."), path.starts_with("pipeline.preset_overrides."))
}

/// Whether a name is written as environment variables are.
fn is_variable(name: &str) -> bool {
    name.contains('_') && name.starts_with(|c: char| c.is_ascii_uppercase()) && !name.contains(|c: char| c.is_ascii_lowercase() || c == '.')
}

fn joined(section: &str, path: &str) -> String {
    if path.is_empty() { section.to_owned() } else { [section, ".", path].concat() }
}

/// Leaves below `value`, with dotted paths; `path` is left as it was.
fn flatten<'a>(path: &mut String, value: &'a Value, open: &dyn Fn(&str) -> bool, out: &mut Vec<(String, &'a Value)>) {
    match value {
        Value::Object(map) if path.is_empty() || open(path) => {
            let length = path.len();
            for (name, inner) in map {
                if length > 0 {
                    path.push('.');
                }
                path.push_str(name);
                flatten(path, inner, open, out);
                path.truncate(length);
            }
        }
        _ => out.push((path.clone(), value)),
    }
}

fn allows(kind: Kind, value: &Value) -> bool {
    match kind {
        Kind::Flag => value.is_boolean(),
        Kind::Whole { least, most } => value.as_i64().is_some_and(|n| (least..=most).contains(&n)),
        Kind::Number => value.as_f64().is_some_and(|n| n >= 0.0),
        Kind::Text => value.is_string(),
        Kind::Choice(choices) => value.as_str().is_some_and(|text| choices.contains(&text)),
        Kind::Dtype => value.as_str().is_some_and(|text| dtype(text).is_some()),
        Kind::Dtypes => match value {
            Value::Array(items) => !items.is_empty() && items.iter().all(|item| allows(Kind::Dtype, item)),
            other => allows(Kind::Dtype, other),
        },
        Kind::Any => true,
    }
}

fn allowed(kind: Kind) -> String {
    match kind {
        Kind::Flag => "true or false".to_owned(),
        Kind::Whole { least, most } => format!("a whole number from {least} to {most}"),
        Kind::Number => "a number of at least 0".to_owned(),
        Kind::Text => "text".to_owned(),
        Kind::Choice(choices) => choices.join(", "),
        Kind::Dtype => "fp32, fp16, bf16".to_owned(),
        Kind::Dtypes => "a list of fp32, fp16, bf16".to_owned(),
        Kind::Any => "anything".to_owned(),
    }
}

/// What a value is, with control characters escaped.
pub(super) fn found(value: &Value) -> String {
    match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) => format!("{value}"),
        Value::Number(_) => format!("the number {value}"),
        Value::String(_) => format!("the text {value}"),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

/// The value that an environment variable's text stands for.
fn from_environment(kind: Kind, text: &str) -> Option<Value> {
    let text = text.trim();
    match kind {
        Kind::Flag => match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" | "on" => Some(json!(true)),
            "0" | "false" | "no" | "off" | "" => Some(json!(false)),
            _ => None,
        },
        Kind::Whole { .. } => text.parse::<i64>().ok().map(Value::from),
        Kind::Number => text.parse::<f64>().ok().and_then(serde_json::Number::from_f64).map(Value::Number),
        Kind::Choice(_) => Some(json!(text.to_ascii_lowercase())),
        _ => Some(json!(text)),
    }
}

/// Up to three names that are close to `written`, nearest first.
pub(super) fn nearest(written: &str, names: &[&'static str]) -> Vec<&'static str> {
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
    let wanted = written.to_ascii_lowercase();
    let mut scored: Vec<(usize, &'static str)> = names
        .iter()
        .map(|name| {
            let full = strsim::damerau_levenshtein(&wanted, &name.to_ascii_lowercase());
            (full.min(strsim::damerau_levenshtein(&last(written), &last(name))), *name)
        })
        .filter(|(distance, name)| *distance <= 2.max(last(name).len() / 3))
        .collect();
    scored.sort_unstable();
    scored.dedup();
    scored.into_iter().take(3).map(|(_, name)| name).collect()
}

/// `PYTORCH_*` and library variables that move memory, alike for every runtime on PyTorch.
pub(super) fn library_environment(context: &Context<'_>, compile: bool, gpus: u32, book: &mut Book) {
    const MATTERS: [&str; 6] = [
        "CUBLAS_WORKSPACE_CONFIG",
        "CUBLASLT_WORKSPACE_SIZE",
        "CUDA_MODULE_LOADING",
        "PYTORCH_NO_CUDA_MEMORY_CACHING",
        "TORCH_BLAS_PREFER_CUBLASLT",
        "TORCH_CUBLASLT_UNIFIED_WORKSPACE",
    ];
    /// Variables of NCCL about logs, addresses and waiting. Others size its buffers or choose what has some.
    const OF_NCCL: [&str; 7] = [
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_BLOCKING_WAIT",
        "NCCL_DEBUG",
        "NCCL_DEBUG_FILE",
        "NCCL_DEBUG_SUBSYS",
        "NCCL_SOCKET_",
        "NCCL_TIMEOUT",
    ];
    /// Variables of the compiler about files, threads and logs. Others change what it makes.
    const OF_INDUCTOR: [&str; 4] =
        ["TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE"];
    for (name, (text, provenance)) in &context.env {
        let (matters, why, why_not) = if MATTERS.contains(name) {
            (!(*name == "CUDA_MODULE_LOADING" && *text == "LAZY"), "it changes what the libraries hold and is not modelled", "")
        } else if *name == "PYTORCH_HIP_ALLOC_CONF" {
            (true, "builds for ROCm read it and others do not; what it says is not modelled", "")
        } else if name.starts_with("NCCL_") && !OF_NCCL.iter().any(|known| name.starts_with(known)) {
            (gpus > 1, "what NCCL holds is not modelled", "nothing is exchanged")
        } else if name.starts_with("TORCHINDUCTOR_") && !OF_INDUCTOR.contains(name) {
            (compile, "it changes what the compiler makes and is not modelled", "nothing is compiled")
        } else {
            continue;
        };
        if matters {
            book.report(name, *text, *provenance);
            book.unmodelled(name, why);
        } else if !why_not.is_empty() {
            book.note(format!("{name} has no effect: {why_not}"));
        }
    }
}
