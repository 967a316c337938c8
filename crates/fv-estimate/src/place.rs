//! A workload on a device: whether the device holds its formats, and what of its memory may be used.

use fv_spec::authored::Dtype;
use fv_spec::compiled::RulesFile;

use crate::budget::{Asked, Budget, FixedCosts, budget, fixed_costs};
use crate::device::{DeviceSpec, Supported, storage_supported};
use crate::error::InputError;
use crate::settings::Settings;
use crate::storage::Storage;
use fv_spec::authored::Runtime;

/// The budget of a device for a runtime. Without a device nothing is known: see [`Budget::reasons`].
///
/// # Errors
/// For every figure that cannot be used; see [`budget`].
pub fn offer(device: Option<&DeviceSpec>, asked: &Asked, runtime: Runtime, rules: &RulesFile) -> Result<Budget, Vec<InputError>> {
    let fixed = device.map_or_else(no_device, |device| fixed_costs(rules, device, runtime));
    budget(device, asked, &fixed)
}

/// Adds to a budget what speaks against the device, or was assumed about it, given the formats that weights are stored in.
/// A format that the device is not known to hold makes the result unknown.
pub fn check_formats(budget: &mut Budget, device: &DeviceSpec, settings: &Settings) {
    let mut seen: Vec<Dtype> = Vec::new();
    for component in settings.components.iter().flatten() {
        let dtype = stored(component.precision.stored);
        if seen.contains(&dtype) {
            continue;
        }
        seen.push(dtype);
        match storage_supported(device, dtype) {
            (Supported::Yes, _) | (_, None) => {}
            (Supported::Assumed, Some(reason)) => budget.notes.push(reason.message),
            (Supported::Unknown, Some(reason)) => budget.reasons.push(reason),
        }
    }
}

/// The format of stored values, scales aside.
fn stored(storage: Storage) -> Dtype {
    match storage {
        Storage::Plain(dtype) => dtype,
        Storage::Fp8PerTensor | Storage::Fp8PerChannel | Storage::Fp8Blockwise { .. } => Dtype::Fp8,
        Storage::Int8PerRow | Storage::Int8PerChannel => Dtype::Int8,
        Storage::Nvfp4 => Dtype::Nvfp4,
    }
}

fn no_device() -> FixedCosts {
    FixedCosts {
        class: "unknown".to_owned(),
        context: None,
        per_pinned_gib: 0,
        system: 0,
        source: "none: no device was chosen".to_owned(),
        extrapolated: false,
    }
}
