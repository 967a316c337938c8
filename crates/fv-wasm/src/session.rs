//! What was read, by handle.

use std::collections::VecDeque;
use std::rc::Rc;

use fv_estimate::device::{DeviceSpec, custom_from_json, from_flags};
use fv_estimate::estimate::Workload;
use fv_estimate::forecast::rates::Rates;
use fv_spec::compiled::{Device, Model, RulesFile, VERSION};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::arguments::Fields;
use crate::problem::{Problem, Problems, all};

/// Evaluated requests that are kept: a few devices, budgets and sizes are looked at in turn.
const KEPT: usize = 8;

/// Names something that was read. 0 is nothing.
pub type Handle = u32;

/// What a request was evaluated for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) model: Handle,
    pub(crate) unified: bool,
    /// The question's JSON.
    pub(crate) subject: String,
}

/// Everything that questions can be about.
#[derive(Debug, Default)]
pub struct Session {
    models: Vec<Option<Rc<Model>>>,
    devices: Vec<Option<Rc<DeviceSpec>>>,
    rules: Option<Rc<RulesFile>>,
    reference: Rates,
    kept: VecDeque<(Key, bool, Rc<Workload>)>,
}

/// Puts something into the first free place.
fn put<T>(places: &mut Vec<Option<Rc<T>>>, thing: T) -> Handle {
    let at = places.iter().position(Option::is_none).unwrap_or_else(|| {
        places.push(None);
        places.len() - 1
    });
    places[at] = Some(Rc::new(thing));
    // More than 2^32 things do not fit into the memory that there is.
    Handle::try_from(at + 1).unwrap_or(0)
}

fn get<T>(places: &[Option<Rc<T>>], handle: Handle, what: &str) -> Result<Rc<T>, Problems> {
    let place = (handle as usize).checked_sub(1).and_then(|at| places.get(at));
    let found = place.and_then(Option::clone);
    found.ok_or_else(|| vec![Problem::new("unknown-handle", what, format!("no {what} was read under the handle {handle}"))])
}

fn take<T>(places: &mut [Option<Rc<T>>], handle: Handle) {
    if let Some(place) = (handle as usize).checked_sub(1).and_then(|at| places.get_mut(at)) {
        *place = None;
    }
}

/// JSON as a value; what is wrong with it has a line and a column.
pub(crate) fn value(text: &str, what: &str) -> Result<Value, Problems> {
    serde_json::from_str(text).map_err(|error| vec![Problem::new("invalid-json", what, format!("{what} is not JSON: {error}"))])
}

/// A value as one of our types. All types are read from values, so that there is one reader of each.
#[inline(never)]
pub(crate) fn typed<T: DeserializeOwned>(value: Value, what: &str) -> Result<T, Problems> {
    serde_json::from_value(value).map_err(|error| vec![Problem::new("invalid-shape", what, format!("{what}: {error}"))])
}

fn versioned(version: u32, what: &str) -> Result<(), Problems> {
    if version == VERSION {
        return Ok(());
    }
    let message = format!("{what}: found version {version}, allowed: {VERSION}; this estimator is of another time than the catalog");
    Err(vec![Problem::new("unknown-version", what, message)])
}

/// That this build has the rules of a family, if anybody has: without them the answer would be that nothing is known.
fn within_this_part(family: &str) -> Result<(), Problems> {
    if cfg!(feature = "whole") || fv_estimate::family::find(family).is_some() {
        return Ok(());
    }
    let message = format!("model: the rules of `{family}` are not in this part of the estimator: load the whole");
    Err(vec![Problem::new("not-in-this-part", "model", message)])
}

#[cfg(feature = "whole")]
fn model(value: Value) -> Result<Model, Problems> {
    typed(value, "model")
}

/// A model without what only evidence needs, whose reader is a tenth of this part.
#[cfg(not(feature = "whole"))]
fn model(value: Value) -> Result<Model, Problems> {
    use fv_spec::compiled::{ComponentMap, Example};

    #[derive(serde::Deserialize)]
    struct Plain {
        version: u32,
        id: String,
        name: String,
        model_id: String,
        memory_rules: String,
        components: ComponentMap,
        examples: Vec<Example>,
    }
    let Plain { version, id, name, model_id, memory_rules, components, examples } = typed(value, "model")?;
    Ok(Model { version, id, name, model_id, memory_rules, components, examples, sources: Vec::new(), reference_runs: Vec::new() })
}

/// A device of so much memory, as the flags `--vram-gib`, `--ram-gib`, `--backend` and `--dtypes` describe one.
fn of_memory(text: &str) -> Result<DeviceSpec, Problems> {
    let mut fields = Fields::read(text, "hardware")?;
    let (vram, ram) = (fields.number("vramGiB"), fields.number("ramGiB"));
    let (backend, dtypes) = (fields.text("backend"), fields.text("dtypes"));
    fields.finish()?;
    // What is there and no number was said just now.
    from_flags(vram.unwrap_or_default(), ram, backend.as_deref(), dtypes.as_deref()).map_err(all)
}

impl Session {
    /// Reads fitted coefficients, `rules.json` of the compiled catalog, in place of those that were read before.
    ///
    /// # Errors
    /// When the text is none.
    pub fn read_rules(&mut self, text: &str) -> Result<(), Problems> {
        let rules: RulesFile = typed(value(text, "rules")?, "rules")?;
        versioned(rules.version, "rules")?;
        self.rules = Some(Rc::new(rules));
        self.kept.clear();
        Ok(())
    }

    /// Reads the device whose rates plans are compared by where those of their own device are not known.
    ///
    /// # Errors
    /// When the text is no device of the catalog.
    pub fn read_reference(&mut self, text: &str) -> Result<(), Problems> {
        let device: Device = typed(value(text, "reference")?, "reference")?;
        self.reference = Rates::of(&device);
        Ok(())
    }

    /// Reads a model of the compiled catalog.
    ///
    /// # Errors
    /// When the text is none.
    pub fn read_model(&mut self, text: &str) -> Result<Handle, Problems> {
        let model = model(value(text, "model")?)?;
        versioned(model.version, "model")?;
        within_this_part(&model.memory_rules)?;
        Ok(put(&mut self.models, model))
    }

    /// Reads a device: one of the compiled catalog, one that somebody describes (`"custom": true`), or so much memory
    /// (`{vramGiB, ramGiB, backend, dtypes}`).
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read_device(&mut self, text: &str) -> Result<Handle, Problems> {
        let value = value(text, "hardware")?;
        let device = if value.get("vramGiB").is_some() {
            of_memory(text)?
        } else if value.get("custom").is_some() || value.get("memory_gb").is_none() {
            custom_from_json(&value).map_err(all)?
        } else {
            DeviceSpec::from(&typed::<Device>(value, "hardware")?)
        };
        Ok(put(&mut self.devices, device))
    }

    /// Forgets a model and what was evaluated of it.
    pub fn forget_model(&mut self, handle: Handle) {
        take(&mut self.models, handle);
        self.kept.retain(|(key, ..)| key.model != handle);
    }

    /// Forgets a device.
    pub fn forget_device(&mut self, handle: Handle) {
        take(&mut self.devices, handle);
    }

    pub(crate) fn model(&self, handle: Handle) -> Result<Rc<Model>, Problems> {
        get(&self.models, handle, "model")
    }

    pub(crate) fn device(&self, handle: Handle) -> Result<Option<Rc<DeviceSpec>>, Problems> {
        if handle == 0 { Ok(None) } else { get(&self.devices, handle, "hardware").map(Some) }
    }

    pub(crate) fn rules(&self) -> Result<Rc<RulesFile>, Problems> {
        let none = || {
            vec![Problem { code: "no-rules".into(), message: "no fitted coefficients were read: call init() first".into(), field: None }]
        };
        self.rules.clone().ok_or_else(none)
    }

    #[cfg(feature = "whole")]
    pub(crate) fn reference(&self) -> Rates {
        self.reference.clone()
    }

    /// The workload of a request that was evaluated before, with details where these are needed.
    pub(crate) fn kept(&self, key: &Key, details: bool) -> Option<Rc<Workload>> {
        let found = self.kept.iter().find(|(known, detailed, _)| known == key && (*detailed || !details));
        found.map(|(.., workload)| Rc::clone(workload))
    }

    pub(crate) fn keep(&mut self, key: Key, details: bool, workload: &Rc<Workload>) {
        self.kept.retain(|(known, ..)| *known != key);
        self.kept.truncate(KEPT - 1);
        self.kept.push_front((key, details, Rc::clone(workload)));
    }
}
