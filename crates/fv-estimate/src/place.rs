//! A workload on a device: whether the device holds its formats, and what of its memory may be used.

use fv_spec::authored::{Backend, Dtype, MemoryType, Runtime};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;

use crate::budget::{Asked, Budget, FixedCosts, budget, fixed_costs};
use crate::device::{BackendName, DeviceSpec, Supported, storage_supported};
use crate::error::InputError;
use crate::settings::Settings;
use crate::storage::Storage;

/// The budget of a device for a runtime. Without a device nothing is known: see [`Budget::reasons`].
///
/// # Errors
/// For every figure that cannot be used; see [`budget`].
pub fn offer(device: Option<&DeviceSpec>, asked: &Asked, runtime: Runtime, rules: &RulesFile) -> Result<Budget, Vec<InputError>> {
    let fixed = device.map_or_else(no_device, |device| fixed_costs(rules, device, runtime));
    budget(device, asked, &fixed)
}

/// Whether runtimes see that the device shares its memory with the host: PyTorch says so on CUDA and MPS alone.
pub fn unified_memory(device: &DeviceSpec) -> bool {
    device.memory_type == Some(MemoryType::Unified) && matches!(device.backend, BackendName::Known(Backend::Cuda | Backend::Mps))
}

/// Adds to a budget what speaks against the device, or was assumed about it. A backend that the rules do not cover, or a format
/// of weights that the device is not known to hold, makes the result unknown.
pub fn check_device(budget: &mut Budget, device: &DeviceSpec, settings: &Settings) {
    if matches!(device.backend, BackendName::Known(backend) if backend != Backend::Cuda) {
        let text = format!("the rules are those of CUDA: kernels, workspaces and offloading on {} are not covered", device.backend.word());
        budget.reasons.push(Reason::new("uncovered-backend", text));
    }
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
