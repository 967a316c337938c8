//! A catalog of which only what is asked for is read.

use std::borrow::Cow;

use fv_spec::compiled::{Device, HardwareFile, Index, Model, RulesFile};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};

use crate::{Catalog, Files, ReadError, embedded_files, index, model, read, sound, version};

/// A catalog that answers questions about single entries. A compiled one is read as far as an answer needs it: one estimate
/// looks at one model and one device.
pub struct Store(Kind);

enum Kind {
    Whole(Box<Catalog>),
    Files {
        /// Where the files are, for messages.
        root: String,
        index: Index,
        file: Box<Files<'static>>,
    },
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("models", &self.model_ids()).finish_non_exhaustive()
    }
}

impl From<Catalog> for Store {
    fn from(catalog: Catalog) -> Self {
        Self(Kind::Whole(Box::new(catalog)))
    }
}

impl Store {
    /// The catalog that this program was built with.
    pub fn embedded() -> Result<Self, ReadError> {
        Self::open("", |path| embedded_files().find(|(name, _)| *name == path).map(|(_, text)| Cow::Borrowed(text)))
    }

    /// Reads the index of a compiled catalog; `file` returns the text at a path relative to it. `root` stands before the
    /// names of files in messages.
    pub fn open(root: &str, file: impl Fn(&str) -> Option<Cow<'static, str>> + 'static) -> Result<Self, ReadError> {
        let index = index(&file).map_err(|error| error.below(root))?;
        Ok(Self(Kind::Files { root: root.to_owned(), index, file: Box::new(file) }))
    }

    /// The ids of all models.
    pub fn model_ids(&self) -> Vec<&str> {
        match &self.0 {
            Kind::Whole(catalog) => catalog.models.keys().map(String::as_str).collect(),
            Kind::Files { index, .. } => index.models.iter().map(|summary| summary.id.as_str()).collect(),
        }
    }

    /// The model with this id, letter case aside, or with this checkpoint.
    pub fn model(&self, name: &str) -> Result<Option<Model>, ReadError> {
        match &self.0 {
            Kind::Whole(catalog) => Ok(catalog.model(name).cloned()),
            Kind::Files { root, index, file } => {
                let found = index.models.iter().find(|summary| summary.id.eq_ignore_ascii_case(name) || summary.model_id == name);
                found.map(|summary| model(file, summary)).transpose().map_err(|error| error.below(root))
            }
        }
    }

    /// All devices.
    pub fn devices(&self) -> Result<Vec<Device>, ReadError> {
        match &self.0 {
            Kind::Whole(catalog) => Ok(catalog.devices.clone()),
            Kind::Files { root, index, file } => {
                let url = &index.hardware_url;
                let hardware = read(file, url).and_then(|hardware: HardwareFile| sound(url, &hardware.devices).map(|()| hardware));
                hardware.map(|hardware| hardware.devices).map_err(|error| error.below(root))
            }
        }
    }

    /// The device with this id or alias, letter case aside.
    pub fn device(&self, name: &str) -> Result<Option<Device>, ReadError> {
        match &self.0 {
            Kind::Whole(catalog) => Ok(catalog.device(name).cloned()),
            Kind::Files { root, index, file } => match scan(file, &index.hardware_url, name).map_err(|error| error.below(root))? {
                Scan::Found(device) => Ok(Some(*device)),
                Scan::Nowhere => Ok(None),
                // The whole reader says what is wrong, and where.
                Scan::Unclear => Ok(self.devices()?.into_iter().find(|device| is(&device.id, &device.aliases, name))),
            },
        }
    }

    /// Fitted coefficients.
    pub fn rules(&self) -> Result<RulesFile, ReadError> {
        match &self.0 {
            Kind::Whole(catalog) => Ok(catalog.rules.clone()),
            Kind::Files { root, index, file } => read(file, &index.rules_url).map_err(|error| error.below(root)),
        }
    }
}

fn is(id: &str, aliases: &[String], name: &str) -> bool {
    id.eq_ignore_ascii_case(name) || aliases.iter().any(|alias| alias.eq_ignore_ascii_case(name))
}

enum Scan {
    Found(Box<Device>),
    Nowhere,
    /// Two devices have the name, or one cannot be read.
    Unclear,
}

/// Looks for a device without reading the others: only their names.
fn scan(file: &Files<'_>, path: &str, name: &str) -> Result<Scan, ReadError> {
    #[derive(Deserialize)]
    struct Raw<'a> {
        #[serde(default)]
        version: Value,
        #[serde(borrow)]
        devices: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Names {
        id: String,
        #[serde(default)]
        aliases: Vec<String>,
    }
    let text = file(path).ok_or_else(|| ReadError::Missing { file: path.to_owned() })?;
    let Ok(raw) = serde_json::from_str::<Raw>(&text) else { return Ok(Scan::Unclear) };
    version(path, &raw.version)?;
    let mut found = None;
    for device in raw.devices {
        let Ok(names) = serde_json::from_str::<Names>(device.get()) else { return Ok(Scan::Unclear) };
        if is(&names.id, &names.aliases, name) && found.replace(device).is_some() {
            return Ok(Scan::Unclear);
        }
    }
    let Some(found) = found else { return Ok(Scan::Nowhere) };
    let Ok(device) = serde_json::from_str::<Device>(found.get()) else { return Ok(Scan::Unclear) };
    let sound = device.memory_gb.is_finite() && device.memory_gb > 0.0;
    Ok(if sound { Scan::Found(Box::new(device)) } else { Scan::Unclear })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_answers_as_the_whole_catalog_does() {
        let (catalog, store) = (Catalog::embedded().expect("sound"), Store::embedded().expect("sound"));
        let whole = Store::from(catalog.clone());
        assert_eq!(store.model_ids(), whole.model_ids());
        assert_eq!(store.devices().expect("sound"), catalog.devices);
        assert_eq!(store.rules().expect("sound"), catalog.rules);
        for name in ["fastwan21", "FastWan21", "FastVideo/FastWan2.1-T2V-1.3B-Diffusers", "fastwan", ""] {
            assert_eq!(store.model(name).expect("sound").as_ref(), catalog.model(name), "{name}");
            assert_eq!(whole.model(name).expect("sound").as_ref(), catalog.model(name), "{name}");
        }
        for name in ["rtx-4090-24gb", "RTX-4090", "h100", "rtx", ""] {
            assert_eq!(store.device(name).expect("sound").as_ref(), catalog.device(name), "{name}");
            assert_eq!(whole.device(name).expect("sound").as_ref(), catalog.device(name), "{name}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_as_the_whole_reader_says_it() {
        let hardware = embedded_files().find(|(name, _)| *name == "hardware.json").expect("there").1;
        for (old, new) in [
            ("\"version\": 1", "\"version\": 2"),
            ("\"version\": 1", "\"verzion\": 1"),
            ("\"id\": \"rtx-4090-24gb\"", "\"id\": \"rtx-3060-12gb\""),
            ("\"devices\": [", "\"devices\": [{},"),
            ("\"devices\": [", "\"devices\": ["),
        ] {
            let text = hardware.replacen(old, new, 1);
            let file = move |path: &str| {
                let embedded = embedded_files().find(|(name, _)| *name == path)?.1;
                Some(if path == "hardware.json" { text.clone() } else { embedded.to_owned() })
            };
            let whole = Catalog::read(&file).err().map(|error| error.to_string());
            let store = Store::open("", move |path| file(path).map(Cow::Owned)).expect("an index");
            let found = store.device("rtx-3060-12gb").err().map(|error| error.to_string());
            assert_eq!(found, whole, "{old} {new}");
        }
    }
}
