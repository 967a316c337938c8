//! Models and devices by name.

use fv_data::Store;
use fv_estimate::error::InputError;
use fv_spec::compiled::{Device, Model};

use crate::stop::Stop;

/// The model of this id or checkpoint.
///
/// # Errors
/// When there is none, with what was probably meant.
pub fn model(store: &Store, name: &str) -> Result<Model, Stop> {
    if let Some(model) = store.model(name)? {
        return Ok(model);
    }
    if let Some(device) = store.device(name)? {
        return Err(Stop::Usage(format!("{:?} is the device {}; name a model, and the device after --hardware", short(name), device.id)));
    }
    Err(Stop::Usage(unknown("model with capacity facts", name, store.model_ids().into_iter())))
}

/// The device of this id or alias; without one what was probably meant.
///
/// # Errors
/// When the catalog cannot be read.
pub fn device(store: &Store, name: &str) -> Result<Result<Device, InputError>, Stop> {
    let name = name.trim();
    if let Some(device) = store.device(name)? {
        return Ok(Ok(device));
    }
    let devices = store.devices()?;
    let known = devices.iter().flat_map(|device| std::iter::once(&device.id).chain(&device.aliases)).map(String::as_str);
    Ok(Err(InputError::new("unknown-hardware", unknown("device", name, known))))
}

fn unknown<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let near = fv_data::nearest(name, known);
    let hint =
        if near.is_empty() { "`fv-catalog find WORDS` searches by name".to_owned() } else { format!("did you mean {}?", near.join(", ")) };
    format!("no {what} is called {:?}; {hint}", short(name))
}

/// A name as it may stand in a message.
fn short(name: &str) -> String {
    const LONGEST: usize = 60;
    if name.chars().count() <= LONGEST { name.to_owned() } else { name.chars().take(LONGEST - 1).chain(['…']).collect() }
}
