//! Files of `tests/golden`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use safetensors::{Dtype, SafeTensors};

pub(crate) fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(name)
}

/// A tensor as numbers.
#[derive(Debug, Clone)]
pub(crate) struct Tensor {
    pub(crate) shape: Vec<usize>,
    pub(crate) numbers: Vec<f64>,
}

impl Tensor {
    /// Entry `at` of the first extent.
    pub(crate) fn part(&self, at: usize) -> &[f64] {
        let size = self.numbers.len() / self.shape[0];
        &self.numbers[at * size..(at + 1) * size]
    }
}

/// A golden file.
pub(crate) struct Golden(BTreeMap<String, Tensor>);

impl Golden {
    pub(crate) fn open(name: &str) -> Self {
        let bytes = std::fs::read(path(name)).expect("golden files are part of the repository");
        let tensors = SafeTensors::deserialize(&bytes).expect("golden files are safetensors");
        let tensors = tensors.iter().map(|(name, view)| {
            let words = view.data().as_chunks::<8>().0.iter();
            let numbers = match view.dtype() {
                Dtype::F64 => words.map(|word| f64::from_le_bytes(*word)).collect(),
                Dtype::I64 => words.map(|word| f64::from(i32::try_from(i64::from_le_bytes(*word)).expect("small"))).collect(),
                Dtype::U8 => view.data().iter().map(|byte| f64::from(*byte)).collect(),
                other => panic!("{name} is of {other:?}"),
            };
            (name.to_owned(), Tensor { shape: view.shape().to_vec(), numbers })
        });
        Self(tensors.collect())
    }

    pub(crate) fn get(&self, name: &str) -> &Tensor {
        self.0.get(name).unwrap_or_else(|| panic!("there is no {name} among {:?}", self.0.keys()))
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Tensor> {
        self.0.get(name)
    }
}

/// `tiny.json` and others.
pub(crate) fn json(name: &str) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path(name)).expect("golden files are part of the repository")).expect("it is JSON")
}

/// The largest difference, by the largest number that is expected.
pub(crate) fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len(), "so many numbers were found");
    let largest = expected.iter().fold(0.0_f64, |most, x| most.max(x.abs()));
    let difference =
        found.iter().zip(expected).fold(0.0_f64, |most, (a, b)| if (a - b).is_nan() { f64::NAN } else { most.max((a - b).abs()) });
    difference / largest
}

/// Fails where the error is above this; prints it, for `--nocapture`.
pub(crate) fn near(what: &str, found: &[f64], expected: &[f64], most: f64) {
    let error = error(found, expected);
    println!("{what}: {error:.1e}");
    assert!(error <= most, "{what} is off by {error:.1e} of its largest number");
}
