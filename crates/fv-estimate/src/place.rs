//! A workload on a device: whether the device holds its formats, and what of its memory may be used.

use fv_spec::authored::{Backend, Dtype, MemoryType, Runtime};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;

use crate::budget::{Asked, Budget, FixedCosts, budget, fixed_costs};
use crate::device::{BackendName, DeviceSpec, Supported, storage_supported};
use crate::error::InputError;
use crate::planner::optimal::reserve_of;
use crate::settings::Settings;
use crate::storage::Storage;

/// The budget of a device for a runtime. Without a device nothing is known: see [`Budget::reasons`].
///
/// # Errors
/// For every figure that cannot be used; see [`budget`].
pub fn offer(device: Option<&DeviceSpec>, asked: &Asked, runtime: Runtime, rules: &RulesFile) -> Result<Budget, Vec<InputError>> {
    if let (Some(device), Runtime::FvRun) = (device, runtime) {
        return offer_own(device, asked, rules);
    }
    let fixed = device.map_or_else(no_device, |device| fixed_costs(rules, device, runtime));
    budget(device, asked, &fixed)
}

/// What our own runtime may use, by the rules that its planner has: of a card that is only described the generation is assumed, and where
/// nobody says how much to leave to others, a share is kept back.
fn offer_own(device: &DeviceSpec, asked: &Asked, rules: &RulesFile) -> Result<Budget, Vec<InputError>> {
    let mut device = device.clone();
    if device.custom && device.compute_capability.is_none() {
        device.compute_capability = Some(ASSUMED.to_owned());
        device.notes.push(format!("assumed: compute capability {ASSUMED}, as plans assume of a card that is only described"));
    }
    let fixed = fixed_costs(rules, &device, Runtime::FvRun);
    match kept_back(&device, asked, &fixed) {
        Some(kept) => budget(Some(&device), &Asked { reserve_bytes: Some(kept), ..asked.clone() }, &fixed),
        None => budget(Some(&device), asked, &fixed),
    }
}

/// The compute capability of cards of which nobody says it.
const ASSUMED: &str = "9.0";

/// The share of a device's own memory that is kept back where nobody says. Nothing where that is not known, or figures are wrong, which is
/// said where they are used.
fn kept_back(device: &DeviceSpec, asked: &Asked, fixed: &FixedCosts) -> Option<u64> {
    if asked.reserve_bytes.is_some() {
        return None;
    }
    let whole = budget(Some(device), &Asked { memory_budget_bytes: None, ..asked.clone() }, fixed).ok()?;
    whole.budget_bytes.filter(|_| !whole.unified).map(reserve_of)
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
