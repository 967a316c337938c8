//! The budget: what of a device an estimate may use, and what decided it.
//!
//! # Capacity
//!
//! The first that is known: a provisioned allocation, the selected partition, measured free memory, the total that a driver
//! reports, the nominal figure. A documented `usable` figure caps it. Unified memory without one counts at
//! [three quarters](DEFAULT_UNIFIED_BUDGET_FRACTION), unless an allocation or an explicit budget says otherwise: both are
//! somebody's decision about this very memory. A partition has its own capacity or none, and devices are never added up.
//!
//! # Budget
//!
//! `budget = min(capacity - system - reserve, explicit)`. `system` is what the driver keeps of a *reported* total, where that
//! was measured; free memory and allocations are without it already.
//!
//! # Fixed cost
//!
//! It counts exactly once, on the side of the need: a budget is compared with a **device** peak, which is what the allocator
//! holds plus context, modules and libraries ([`FixedCosts::device_peak`]). So the fixed cost is never taken off a budget. Who
//! measures free memory from within a process adds what that process' own context takes, since the peak will contain it.
//!
//! # Unified memory
//!
//! One pool serves device and host. [`Budget::budget_bytes`] bounds the device's part; [`Budget::pool_bytes`] bounds both
//! together. They differ only where a policy limits the device alone, such as half of the memory for the graphics part.

use fv_spec::authored::{MemoryType, Runtime};
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::{Interval, MemoryReport, Reason};

use crate::device::{BackendName, DeviceSpec, MAX_CAPACITY, PartitionSpec, architecture, backend_word, gb_to_bytes};
use crate::error::{InputError, did_you_mean, gib, listed, quoted};
use crate::forecast::rates::Rates;

/// What an application may use of unified memory when no policy says: numerator and denominator.
pub const DEFAULT_UNIFIED_BUDGET_FRACTION: (u64, u64) = (3, 4);

/// What decided a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetSource {
    /// A provisioned allocation.
    Allocation,
    /// The selected partition's capacity.
    Partition,
    /// Measured free memory.
    Measured,
    /// The total that a driver reports.
    Reported,
    /// The maker's figure.
    Nominal,
    /// A documented policy.
    Usable,
    /// [`DEFAULT_UNIFIED_BUDGET_FRACTION`] of unified memory.
    UnifiedDefault,
    /// What the user set.
    Explicit,
}

impl BudgetSource {
    /// The source as written in estimates.
    pub fn word(self) -> &'static str {
        match self {
            Self::Allocation => "allocation",
            Self::Partition => "partition",
            Self::Measured => "measured",
            Self::Reported => "reported",
            Self::Nominal => "nominal",
            Self::Usable => "usable",
            Self::UnifiedDefault => "unified_default",
            Self::Explicit => "explicit",
        }
    }
}

/// What was asked about memory, apart from the device.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// A cap on device use, fixed cost included; [`gib_to_bytes`](crate::device::gib_to_bytes) reads the flag.
    pub memory_budget_bytes: Option<u64>,
    /// A provisioned allocation in decimal GB.
    pub allocation_gb: Option<f64>,
    /// The id of a partition.
    pub partition: Option<String>,
    /// Host memory in decimal GB.
    pub host_gb: Option<f64>,
    /// Device memory free before the process has a context of its own.
    pub measured_free_bytes: Option<u64>,
    /// Device memory to leave to others. None when not said: no figure for it is known.
    pub reserve_bytes: Option<u64>,
}

/// Device memory that a process takes beside its allocator, by class of device. In data: `rules/fixed-costs.yaml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedCosts {
    /// Such as `sm90`.
    pub class: String,
    /// Context, modules and libraries in bytes. `None`: the rules have no figure.
    pub context: Option<Interval>,
    /// Bytes more for each GiB of page-locked host memory.
    pub per_pinned_gib: u64,
    /// Bytes of the reported total that the driver keeps, where [`context`](Self::context) does not contain them.
    pub system: u64,
    /// Which coefficients, of which runtime and metric.
    pub source: String,
    /// Whether the figures were not measured on this class with this runtime.
    pub extrapolated: bool,
}

impl FixedCosts {
    /// A cost known to the byte that does not depend on host memory: for plans that were measured on the spot.
    pub fn exact(context: u64, source: impl Into<String>) -> Self {
        Self {
            class: "measured".to_owned(),
            context: Some(Interval::exact(context)),
            per_pinned_gib: 0,
            system: 0,
            source: source.into(),
            extrapolated: false,
        }
    }

    /// The cost with that much page-locked host memory: low, value, high. Wider than any sum of two can be.
    pub(crate) fn with_pinned(&self, pinned_bytes: u64) -> Option<[u128; 3]> {
        let context = self.context?;
        let registered = (u128::from(pinned_bytes) * u128::from(self.per_pinned_gib)).div_ceil(1 << 30);
        Some([context.low, context.value, context.high].map(|bytes| u128::from(bytes) + registered))
    }

    /// What the whole device shows when the allocator holds `reserved`. `None` when the cost is not known or on overflow.
    pub fn device_peak(&self, reserved: Interval, pinned_bytes: u64) -> Option<Interval> {
        let [low, value, high] = self.with_pinned(pinned_bytes)?;
        let sum = |held: u64, cost: u128| u64::try_from(u128::from(held) + cost).ok();
        Some(Interval { low: sum(reserved.low, low)?, value: sum(reserved.value, value)?, high: sum(reserved.high, high)? })
    }
}

/// The fixed costs of a device under a runtime.
///
/// The class is the CUDA architecture, `sm90` for compute capability 9.0; without one, and for other backends, the backend's
/// name. The figures are the first complete set of `fixed-cost-<prefix>-low`, `-value` and `-high` for these prefixes:
/// `fv-run-<class>` (our runner only), `<class>`, then `cuda` or `other` for what was not measured.
/// `-per-pinned-gib` and `-system` are optional; the former is taken from `cuda` or `other` where the class has none.
pub fn fixed_costs(rules: &RulesFile, device: &DeviceSpec, runtime: Runtime) -> FixedCosts {
    let (class, fallback) = match device.backend {
        BackendName::Known(fv_spec::authored::Backend::Cuda) => {
            let name = device.compute_capability.as_deref().and_then(architecture);
            (name.map_or_else(|| "cuda".to_owned(), |name| format!("sm{name}")), "cuda")
        }
        BackendName::Known(backend) => (backend_word(backend).to_owned(), "other"),
        BackendName::Other(_) | BackendName::Missing => {
            return FixedCosts {
                class: "unknown".to_owned(),
                context: None,
                per_pinned_gib: 0,
                system: 0,
                source: "none: the backend is not known".to_owned(),
                extrapolated: true,
            };
        }
    };
    let own = (runtime == Runtime::FvRun).then(|| format!("fv-run-{class}"));
    let prefixes = own.iter().map(String::as_str).chain([class.as_str(), fallback]);
    let found = prefixes.into_iter().find_map(|prefix| set(rules, prefix).map(|(context, assumed)| (prefix, context, assumed)));
    let per_pinned_gib = bytes(rules, &class, "per-pinned-gib").or_else(|| bytes(rules, fallback, "per-pinned-gib"));
    let Some((prefix, context, assumed)) = found else {
        return FixedCosts {
            context: None,
            per_pinned_gib: per_pinned_gib.unwrap_or(0),
            system: 0,
            source: format!("none: the rules have no `fixed-cost-{class}` and no `fixed-cost-{fallback}`"),
            extrapolated: true,
            class,
        };
    };
    let elsewhere = if runtime == Runtime::FvRun && own.as_deref() != Some(prefix) { ", measured with PyTorch" } else { "" };
    let guess = if assumed { ", an assumption: not measured there" } else { "" };
    FixedCosts {
        context: Some(context),
        per_pinned_gib: per_pinned_gib.unwrap_or(0),
        // What the driver keeps is a matter of the device and not of the runtime.
        system: bytes(rules, &class, "system").unwrap_or(0),
        source: format!("fixed-cost-{prefix}{elsewhere}{guess}"),
        extrapolated: assumed || !elsewhere.is_empty(),
        class,
    }
}

/// The metric of coefficients that no measurement established.
const ASSUMPTION: &str = "assumption";

/// A complete set in ascending order, and whether any of it is assumed.
fn set(rules: &RulesFile, prefix: &str) -> Option<(Interval, bool)> {
    let [low, value, high] = ["low", "value", "high"].map(|part| bytes(rules, prefix, part));
    let context = Interval { low: low?, value: value?, high: high? };
    let metric = |part: &str| rules.coefficients.get(&format!("fixed-cost-{prefix}-{part}")).map(|found| found.metric.as_str());
    let assumed = ["low", "value", "high"].iter().any(|part| metric(part) == Some(ASSUMPTION));
    (context.low <= context.value && context.value <= context.high).then_some((context, assumed))
}

/// One coefficient in whole bytes.
fn bytes(rules: &RulesFile, prefix: &str, part: &str) -> Option<u64> {
    let coefficient = rules.coefficients.get(&format!("fixed-cost-{prefix}-{part}"))?;
    #[expect(clippy::cast_precision_loss, reason = "10^6 GiB is exact")]
    let plausible =
        coefficient.unit == "bytes" && coefficient.value.fract() == 0.0 && (0.0..=MAX_CAPACITY as f64).contains(&coefficient.value);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, not negative and below 2^53")]
    plausible.then_some(coefficient.value as u64)
}

/// What may be used, and why. Sizes are bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct Budget {
    /// The device's id.
    pub device: Option<String>,
    /// How fast it is: a partition's rates are not those of the whole device, and are not known.
    pub rates: Rates,
    /// Whether the memory is the device's own.
    pub memory_type: Option<MemoryType>,
    /// Nominal capacity of the device, or of the selected partition.
    pub nominal_bytes: Option<u64>,
    /// Capacity before anything is taken off.
    pub capacity_bytes: Option<u64>,
    /// Where the capacity came from.
    pub capacity_source: Option<BudgetSource>,
    /// What the driver keeps of the capacity.
    pub system_bytes: u64,
    /// Left to others.
    pub reserve_bytes: u64,
    /// What a device peak is compared with. `None`: unknown, see [`reasons`](Self::reasons).
    pub budget_bytes: Option<u64>,
    /// What decided the budget.
    pub source: Option<BudgetSource>,
    /// The selected partition.
    pub partition: Option<String>,
    /// Whether device and host share one pool.
    pub unified: bool,
    /// What device and host may use together, where they share one pool.
    pub pool_bytes: Option<u64>,
    /// Host memory, where that is another pool and known.
    pub host_bytes: Option<u64>,
    /// What a process takes beside its allocator: part of every device peak.
    pub fixed: FixedCosts,
    /// CUDA compute capability of the device, such as `8.9`: runtimes' own planners go by it.
    pub compute_capability: Option<String>,
    /// Whether it is a `GeForce` card. `None`: nobody says.
    pub geforce: Option<bool>,
    /// Why the budget, or what is compared with it, is unknown.
    pub reasons: Vec<Reason>,
    /// Assumptions and remarks.
    pub notes: Vec<String>,
}

impl Budget {
    /// The memory section of an estimate.
    pub fn report(&self) -> MemoryReport {
        MemoryReport {
            kind: self.memory_type,
            nominal_gib: self.nominal_bytes.map(in_gib),
            budget_bytes: self.budget_bytes,
            budget_gib: self.budget_bytes.map(in_gib),
            partition: self.partition.clone(),
            budget_source: self.source.map(|source| source.word().to_owned()),
            reserve_bytes: self.reserve_bytes,
        }
    }
}

/// GiB of a byte count below 2^53: for reading, never for sums.
#[expect(clippy::cast_precision_loss, reason = "capacities stay below 2^53")]
pub fn in_gib(bytes: u64) -> f64 {
    bytes as f64 / 1_073_741_824.0
}

/// The budget on a device.
///
/// # Errors
/// For every figure that cannot be believed, a partition that the device does not have, an allocation larger than what it is
/// taken from, and a partition or allocation without a device. What is merely not known is no error.
pub fn budget(device: Option<&DeviceSpec>, asked: &Asked, fixed: &FixedCosts) -> Result<Budget, Vec<InputError>> {
    let mut errors = Vec::new();
    for (what, bytes) in [("the memory budget", asked.memory_budget_bytes), ("the measured free memory", asked.measured_free_bytes)] {
        if bytes.is_some_and(|bytes| !(1..=MAX_CAPACITY).contains(&bytes)) {
            errors.push(InputError::new("invalid-capacity", format!("{what} must lie between 1 byte and 1000000 GiB")));
        }
    }
    if asked.reserve_bytes.is_some_and(|bytes| bytes > MAX_CAPACITY) {
        errors.push(InputError::new("invalid-capacity", "the reserve must not exceed 1000000 GiB"));
    }
    let mut convert = |what, value: Option<f64>| value.and_then(|gb| gb_to_bytes(what, gb).map_err(|error| errors.push(error)).ok());
    let allocation = convert("the allocation", asked.allocation_gb);
    let host = convert("the host memory", asked.host_gb);

    let mut budget = Budget {
        device: device.map(|device| device.id.clone()),
        rates: device.map_or_else(Rates::default, |device| rates(device, asked.partition.as_deref())),
        memory_type: device.and_then(|device| device.memory_type),
        nominal_bytes: device.and_then(|device| device.nominal),
        capacity_bytes: None,
        capacity_source: None,
        system_bytes: 0,
        reserve_bytes: asked.reserve_bytes.unwrap_or(0),
        budget_bytes: None,
        source: None,
        partition: None,
        unified: device.is_some_and(|device| device.memory_type == Some(MemoryType::Unified)),
        pool_bytes: None,
        host_bytes: host,
        fixed: fixed.clone(),
        compute_capability: device.and_then(|device| device.compute_capability.clone()),
        geforce: device.and_then(DeviceSpec::geforce),
        reasons: Vec::new(),
        notes: Vec::new(),
    };
    let Some(device) = device else {
        for (given, what) in [(asked.partition.is_some(), "a partition"), (asked.allocation_gb.is_some(), "an allocation")] {
            if given {
                errors.push(InputError::new("no-hardware", format!("{what} needs the device that it is part of")));
            }
        }
        budget.reasons.push(Reason::new("no-hardware", "no device was chosen"));
        return if errors.is_empty() { Ok(budget) } else { Err(errors) };
    };
    let partition = asked.partition.as_deref().and_then(|id| select(device, id).map_err(|error| errors.push(error)).ok());
    check_allocation(device, allocation, partition, &mut errors);
    if !errors.is_empty() {
        return Err(errors);
    }
    budget.partition.clone_from(&asked.partition);
    budget.notes.clone_from(&device.notes);
    if let Some(partition) = partition {
        budget.nominal_bytes = partition.bytes;
    }
    if budget.unified && asked.host_gb.is_some() {
        budget.notes.push("host memory was not counted: this device and the host share one pool".to_owned());
    }
    budget.host_bytes = if budget.unified { None } else { host.or(device.host_memory) };

    let total = device.reported.map(|bytes| (bytes, BudgetSource::Reported));
    let total = total.or(device.nominal.map(|bytes| (bytes, BudgetSource::Nominal)));
    let capacity = allocation.map(|bytes| (bytes, BudgetSource::Allocation)).or_else(|| match partition {
        Some(partition) => partition.bytes.map(|bytes| (bytes, BudgetSource::Partition)),
        None => asked.measured_free_bytes.map(|bytes| (bytes, BudgetSource::Measured)).or(total),
    });
    budget.capacity_bytes = capacity.map(|(bytes, _)| bytes);
    budget.capacity_source = capacity.map(|(_, source)| source);
    budget.reasons.extend(device.backend.unknown());
    if device.memory_type.is_none() {
        let message = format!("{} does not say whether its memory is dedicated or unified", quoted(&device.name));
        budget.reasons.push(Reason::new("unknown-memory-type", message));
    }
    match capacity {
        None => {
            let what = asked.partition.as_deref().map_or_else(|| quoted(&device.name), |id| format!("partition {}", quoted(id)));
            budget.reasons.push(Reason::new("unknown-capacity", format!("the memory of {what} is not known")));
        }
        Some(capacity) if budget.reasons.is_empty() => spend(device, asked, capacity, total.map(|(bytes, _)| bytes), &mut budget),
        Some(_) => {}
    }
    Ok(budget)
}

/// How fast a device or its partition is.
fn rates(device: &DeviceSpec, partition: Option<&str>) -> Rates {
    let part = partition.map(|id| Rates { device: format!("{}, partition {id},", device.id), ..Rates::default() });
    part.unwrap_or_else(|| device.rates.clone())
}

fn select<'d>(device: &'d DeviceSpec, id: &str) -> Result<&'d PartitionSpec, InputError> {
    if let Some(partition) = device.partitions.iter().find(|partition| partition.id == id) {
        return Ok(partition);
    }
    let ids = || device.partitions.iter().map(|partition| partition.id.as_str());
    let (name, wanted) = (quoted(&device.name), quoted(id));
    let message = if device.partitions.is_empty() {
        format!("there is no partition {wanted}: none of {name} are recorded")
    } else {
        format!("{name} has no partition {wanted}, only {}{}", listed(ids()), did_you_mean(id, ids()))
    };
    Err(InputError::new("unknown-partition", message))
}

fn check_allocation(device: &DeviceSpec, allocation: Option<u64>, partition: Option<&PartitionSpec>, errors: &mut Vec<InputError>) {
    let (whole, what) = match partition {
        Some(partition) => (partition.bytes, format!("partition {}", quoted(&partition.id))),
        // A driver's total and the nominal figure differ by the unit; neither refuses what the other allows.
        None => (device.nominal.max(device.reported), quoted(&device.name)),
    };
    if let Some((allocation, whole)) = allocation.zip(whole).filter(|(allocation, whole)| allocation > whole) {
        let message = format!("an allocation of {} is more than the {} of {what}", gib(allocation.into()), gib(whole.into()));
        errors.push(InputError::new("allocation-too-large", message));
    }
}

/// Takes off what may not be used. `total` is the whole device's.
fn spend(device: &DeviceSpec, asked: &Asked, capacity: (u64, BudgetSource), total: Option<u64>, budget: &mut Budget) {
    let (bytes, mut source) = capacity;
    // Somebody who provisions memory has already left out what the system needs; a partition has not.
    let provisioned = source == BudgetSource::Allocation;
    if source == BudgetSource::Reported && budget.fixed.system > 0 {
        budget.system_bytes = budget.fixed.system.min(bytes);
        budget.notes.push(format!(
            "of the {} that the driver reports it keeps {}, and no process can have them",
            gib(bytes.into()),
            gib(budget.system_bytes.into())
        ));
    }
    let offered = bytes - budget.system_bytes;
    let mut left = offered;
    let share = three_quarters(total.filter(|_| source != BudgetSource::Partition).unwrap_or(bytes));
    let lifted = budget.unified && device.usable.is_none() && !provisioned;
    if let Some(usable) = device.usable {
        if usable < left {
            (left, source) = (usable, BudgetSource::Usable);
            let policy = device.policy.as_deref().unwrap_or("its documentation");
            budget.notes.push(format!("usable: {} by policy: {policy}", gib(usable.into())));
        }
    } else if lifted && asked.memory_budget_bytes.is_none() && share < left {
        (left, source) = (share, BudgetSource::UnifiedDefault);
        let (part, of) = DEFAULT_UNIFIED_BUDGET_FRACTION;
        budget.notes.push(format!(
            "assumed: an application may use {part}/{of} of unified memory, {}; a memory budget overrides that",
            gib(share.into())
        ));
    }
    let reserve = budget.reserve_bytes;
    if reserve >= left {
        budget.notes.push(format!("the reserve of {} leaves nothing", gib(reserve.into())));
    }
    let explicit = asked.memory_budget_bytes.unwrap_or(u64::MAX);
    left = left.saturating_sub(reserve);
    if asked.memory_budget_bytes.is_some() {
        if explicit < left || lifted {
            source = BudgetSource::Explicit;
        }
        if explicit > left {
            let what = if lifted { "the whole pool" } else { "what can be used of the device" };
            budget.notes.push(format!("the memory budget of {} is more than {what}: {} count", gib(explicit.into()), gib(left.into())));
        }
    }
    budget.budget_bytes = Some(left.min(explicit));
    budget.source = Some(source);
    if budget.unified {
        // A policy limits the device's part, not the pool.
        let pool = match device.usable {
            Some(usable) if !provisioned => offered.min(usable.max(share)).saturating_sub(reserve),
            _ => left,
        };
        budget.pool_bytes = Some(pool.min(explicit));
    }
    if budget.fixed.extrapolated {
        budget.notes.push(format!("fixed cost of {}: {}", budget.fixed.class, budget.fixed.source));
    }
}

/// [`DEFAULT_UNIFIED_BUDGET_FRACTION`] of a capacity, rounded down.
fn three_quarters(bytes: u64) -> u64 {
    let (part, of) = DEFAULT_UNIFIED_BUDGET_FRACTION;
    // At most `bytes`, so it fits.
    u64::try_from(u128::from(bytes) * u128::from(part) / u128::from(of)).unwrap_or(bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fv_spec::authored::{Backend, Coefficient};
    use fv_spec::compiled::{Device, HardwareFile};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::device::{custom_from_json, from_flags};

    const GB: u64 = 1_000_000_000;
    const GIB: u64 = 1 << 30;
    const MIB: u64 = 1 << 20;

    fn data(name: &str) -> String {
        let path = format!("{}/../fv-data/data/{name}", env!("CARGO_MANIFEST_DIR"));
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    fn catalog() -> Vec<Device> {
        serde_json::from_str::<HardwareFile>(&data("hardware.json")).expect("the compiled catalog").devices
    }

    fn device(id: &str) -> DeviceSpec {
        catalog().iter().find(|device| device.id == id).map_or_else(|| panic!("{id}"), DeviceSpec::from)
    }

    fn shipped() -> RulesFile {
        serde_json::from_str(&data("rules.json")).expect("the compiled rules")
    }

    fn no_cost() -> FixedCosts {
        FixedCosts::exact(0, "none")
    }

    fn custom(memory: &serde_json::Value) -> DeviceSpec {
        custom_from_json(&json!({ "custom": true, "backend": "cuda", "memory": memory })).expect("a device")
    }

    fn winner(device: &DeviceSpec, asked: &Asked) -> (Option<u64>, Option<BudgetSource>) {
        let budget = budget(Some(device), asked, &no_cost()).expect("believable");
        (budget.budget_bytes, budget.source)
    }

    /// A device with every figure, by what is left in.
    fn dedicated(reported: bool, usable: bool) -> DeviceSpec {
        let mut device = custom(&json!({
            "type": "dedicated", "nominal": { "value": 48, "unit": "GB" }, "reported": { "value": 49140, "unit": "MiB" },
            "usable": { "value": 40, "unit": "GB" }, "policy": "documented",
        }));
        device.partitions = ["6g", "12g", "x"]
            .into_iter()
            .zip([Some(6 * GB), Some(12 * GB), None])
            .map(|(id, bytes)| PartitionSpec { id: id.to_owned(), bytes })
            .collect();
        if !reported {
            device.reported = None;
        }
        if !usable {
            (device.usable, device.policy) = (None, None);
        }
        device
    }

    /// Reported, usable; allocation, partition, measured, reserve, explicit; budget and what decided it.
    type Row = ((bool, bool), (Option<f64>, Option<&'static str>, Option<u64>, Option<u64>, Option<u64>), (u64, BudgetSource));

    #[test]
    fn the_first_known_capacity_counts_and_caps_win_only_when_smaller() {
        use BudgetSource::{Allocation, Explicit, Measured, Nominal, Partition, Reported, Usable};
        let reported_bytes = 49_140 * MIB;
        let rows: [Row; 24] = [
            ((false, false), (None, None, None, None, None), (48 * GB, Nominal)),
            ((true, false), (None, None, None, None, None), (reported_bytes, Reported)),
            ((true, false), (None, None, Some(30 * GB), None, None), (30 * GB, Measured)),
            ((true, false), (None, None, Some(60 * GB), None, None), (60 * GB, Measured)),
            ((true, false), (None, Some("12g"), Some(30 * GB), None, None), (12 * GB, Partition)),
            ((true, false), (Some(5.0), Some("12g"), Some(30 * GB), None, None), (5 * GB, Allocation)),
            ((true, false), (Some(20.0), None, Some(30 * GB), None, None), (20 * GB, Allocation)),
            ((true, true), (None, None, None, None, None), (40 * GB, Usable)),
            ((false, true), (None, None, None, None, None), (40 * GB, Usable)),
            ((true, true), (None, None, Some(41 * GB), None, None), (40 * GB, Usable)),
            ((true, true), (None, None, Some(30 * GB), None, None), (30 * GB, Measured)),
            ((true, true), (None, Some("12g"), None, None, None), (12 * GB, Partition)),
            ((true, true), (Some(45.0), None, None, None, None), (40 * GB, Usable)),
            // An explicit budget caps and never raises.
            ((false, false), (None, None, None, None, Some(10 * GB)), (10 * GB, Explicit)),
            ((false, false), (None, None, None, None, Some(48 * GB)), (48 * GB, Nominal)),
            ((false, false), (None, None, None, None, Some(90 * GB)), (48 * GB, Nominal)),
            ((true, true), (None, None, None, None, Some(44 * GB)), (40 * GB, Usable)),
            ((true, false), (None, Some("12g"), None, None, Some(11 * GB)), (11 * GB, Explicit)),
            ((true, false), (None, Some("12g"), None, None, Some(13 * GB)), (12 * GB, Partition)),
            ((true, false), (Some(5.0), None, None, None, Some(GB)), (GB, Explicit)),
            // A reserve is taken off the capacity, not off the explicit budget.
            ((false, false), (None, None, None, Some(GB), None), (47 * GB, Nominal)),
            ((true, true), (None, None, None, Some(GB), None), (39 * GB, Usable)),
            ((false, false), (None, None, None, Some(GB), Some(47 * GB)), (47 * GB, Nominal)),
            ((false, false), (None, None, None, Some(9 * GB), Some(40 * GB)), (39 * GB, Nominal)),
        ];
        for ((reported, usable), (allocation_gb, partition, measured, reserve, explicit), (bytes, source)) in rows {
            let asked = Asked {
                memory_budget_bytes: explicit,
                allocation_gb,
                partition: partition.map(str::to_owned),
                host_gb: None,
                measured_free_bytes: measured,
                reserve_bytes: reserve,
            };
            assert_eq!(winner(&dedicated(reported, usable), &asked), (Some(bytes), Some(source)), "{reported} {usable} {asked:?}");
            // That a budget is more than there is, is said.
            let notes = budget(Some(&dedicated(reported, usable)), &asked, &no_cost()).expect("believable").notes;
            let said = notes.iter().any(|note| note.starts_with("the memory budget of") && note.contains("is more than what can be used"));
            assert_eq!(said, explicit.is_some_and(|explicit| explicit > bytes), "{asked:?}: {notes:?}");
        }
    }

    #[test]
    fn a_reserve_larger_than_the_capacity_leaves_nothing_and_says_so() {
        let asked = Asked { reserve_bytes: Some(50 * GB), ..Asked::default() };
        let found = budget(Some(&dedicated(false, false)), &asked, &no_cost()).expect("believable");
        assert_eq!((found.budget_bytes, found.capacity_bytes), (Some(0), Some(48 * GB)));
        assert!(found.notes.iter().any(|note| note.contains("leaves nothing")), "{:?}", found.notes);
    }

    #[test]
    fn unified_memory_counts_at_three_quarters_unless_somebody_decides() {
        use BudgetSource::{Allocation, Explicit, Measured, UnifiedDefault};
        let device = custom(&json!({ "type": "unified", "nominal": { "value": 64, "unit": "GB" } }));
        for (explicit, measured, allocation, (bytes, source)) in [
            (None, None, None, (48 * GB, UnifiedDefault)),
            (None, Some(60 * GB), None, (48 * GB, UnifiedDefault)),
            (None, Some(20 * GB), None, (20 * GB, Measured)),
            (None, None, Some(16.0), (16 * GB, Allocation)),
            (None, None, Some(60.0), (60 * GB, Allocation)),
            (Some(30 * GB), None, None, (30 * GB, Explicit)),
            (Some(50 * GB), None, None, (50 * GB, Explicit)),
            (Some(50 * GB), Some(20 * GB), None, (20 * GB, Explicit)),
            (Some(99 * GB), None, None, (64 * GB, Explicit)),
            (Some(99 * GB), None, Some(16.0), (16 * GB, Allocation)),
        ] {
            let asked =
                Asked { memory_budget_bytes: explicit, measured_free_bytes: measured, allocation_gb: allocation, ..Asked::default() };
            let found = budget(Some(&device), &asked, &no_cost()).expect("believable");
            assert_eq!((found.budget_bytes, found.source), (Some(bytes), Some(source)), "{asked:?}");
            assert_eq!(found.pool_bytes, found.budget_bytes, "one pool");
            assert!(found.unified && found.host_bytes.is_none());
            assert_eq!(found.notes.iter().any(|note| note.starts_with("assumed: an application")), source == UnifiedDefault);
        }
        // Rounded down, in integers.
        assert_eq!(three_quarters(10), 7);
        assert_eq!(three_quarters(u64::MAX), u64::MAX / 4 * 3 + 2);
    }

    #[test]
    fn a_policy_limits_the_device_and_not_the_pool() {
        let half = device("ryzen-ai-max-plus-395-128gb");
        let found = budget(Some(&half), &Asked::default(), &no_cost()).expect("known");
        assert_eq!((found.budget_bytes, found.source), (Some(64 * GB), Some(BudgetSource::Usable)));
        assert_eq!(found.pool_bytes, Some(96 * GB), "three quarters of 128 GB for device and host together");
        let asked = Asked { memory_budget_bytes: Some(70 * GB), host_gb: Some(64.0), ..Asked::default() };
        let found = budget(Some(&half), &asked, &no_cost()).expect("known");
        assert_eq!((found.budget_bytes, found.pool_bytes), (Some(64 * GB), Some(70 * GB)));
        assert_eq!(found.host_bytes, None, "no second pool");
        assert!(found.notes.iter().any(|note| note.contains("share one pool")));
    }

    #[test]
    fn catalog_devices_have_their_own_figures() {
        use BudgetSource::{Nominal, Reported, UnifiedDefault};
        for (id, bytes, source) in [
            // 24 x 10^9 bytes would be 1.7 GB less than the driver reports.
            ("rtx-4090-24gb", 24_564 * MIB, Reported),
            ("b200-180gb", 183_359 * MIB, Reported),
            ("gb200-186gb", 186 * GB, Nominal),
            // Four GPUs on the board, 16 GB each: never 64.
            ("a16-16gb", 16 * GB, Nominal),
            ("gb10-128gb", 96 * GB, UnifiedDefault),
            ("rx-6700-xt-12gb", 12 * GIB, Nominal),
        ] {
            assert_eq!(winner(&device(id), &Asked::default()), (Some(bytes), Some(source)), "{id}");
        }
        // A board that is sold as 192 GB is another device, not another name.
        let board = custom(&json!({ "type": "dedicated", "nominal": { "value": 192, "unit": "GB" } }));
        assert_eq!(winner(&board, &Asked::default()), (Some(192 * GB), Some(Nominal)));
        assert_eq!(budget(Some(&device("gh200-96gb")), &Asked::default(), &no_cost()).map(|found| found.host_bytes), Ok(Some(480 * GB)));
        for device in catalog() {
            let found = budget(Some(&DeviceSpec::from(&device)), &Asked::default(), &no_cost()).expect("a catalog device");
            assert!(found.reasons.is_empty() && found.budget_bytes.is_some_and(|bytes| bytes > GB), "{}: {found:?}", device.id);
            assert!(found.budget_bytes <= found.capacity_bytes, "{}", device.id);
        }
    }

    #[test]
    fn what_the_driver_keeps_comes_off_the_reported_total_only() {
        let cost = FixedCosts { system: 600 * MIB, ..no_cost() };
        let of = |device: &DeviceSpec, asked: &Asked| {
            let found = budget(Some(device), asked, &cost).expect("believable");
            // The reserve is somebody's decision about a device that a run may have had whole; what the driver keeps is not.
            (found.budget_bytes, found.system_bytes, found.report().reserve_bytes)
        };
        let card = dedicated(true, false);
        assert_eq!(of(&card, &Asked::default()), (Some(48_540 * MIB), 600 * MIB, 0));
        let reserve = Asked { reserve_bytes: Some(MIB), ..Asked::default() };
        assert_eq!(of(&card, &reserve), (Some(48_539 * MIB), 600 * MIB, MIB));
        assert_eq!(of(&dedicated(false, false), &Asked::default()), (Some(48 * GB), 0, 0));
        assert_eq!(of(&card, &Asked { measured_free_bytes: Some(GB), ..Asked::default() }), (Some(GB), 0, 0));
        assert_eq!(of(&card, &Asked { allocation_gb: Some(1.0), ..Asked::default() }), (Some(GB), 0, 0));
        assert_eq!(of(&card, &Asked { partition: Some("6g".into()), ..Asked::default() }), (Some(6 * GB), 0, 0));
    }

    #[test]
    fn a_partition_never_inherits() {
        let h100 = device("h100-sxm-80gb");
        let asked = |id: &str, allocation_gb| Asked { partition: Some(id.to_owned()), allocation_gb, ..Asked::default() };
        for (id, bytes) in [("1g.10gb", 10 * GB), ("1g.20gb", 20 * GB), ("3g.40gb", 40 * GB), ("7g.80gb", 80 * GB)] {
            let found = budget(Some(&h100), &asked(id, None), &no_cost()).expect("a partition");
            assert_eq!((found.budget_bytes, found.source), (Some(bytes), Some(BudgetSource::Partition)));
            let report = found.report();
            assert_eq!((report.partition.as_deref(), report.nominal_gib), (Some(id), Some(in_gib(bytes))));
        }
        // A partition of unknown size is unknown, whatever the card has and whatever was measured on it.
        let asked_x = Asked { measured_free_bytes: Some(GB), ..asked("x", None) };
        let found = budget(Some(&dedicated(true, true)), &asked_x, &no_cost()).expect("a partition");
        assert_eq!((found.budget_bytes, found.capacity_bytes, found.nominal_bytes), (None, None, None));
        assert_eq!(found.reasons[0].code, "unknown-capacity");
        assert_eq!(winner(&dedicated(true, true), &asked("x", Some(4.0))), (Some(4 * GB), Some(BudgetSource::Allocation)));

        for (device, asked, code, text) in [
            (&h100, asked("1g.10g", None), "unknown-partition", "did you mean `1g.10gb`?"),
            (&h100, asked("1g.10g", None), "unknown-partition", "only 1g.10gb, 1g.10gb+me, 1g.20gb,"),
            (&h100, asked("", None), "unknown-partition", "``"),
            (&device("rtx-4090-24gb"), asked("1g.10gb", None), "unknown-partition", "none of `NVIDIA GeForce RTX 4090"),
            (&h100, asked("1g.10gb", Some(11.0)), "allocation-too-large", "partition `1g.10gb`"),
            (&h100, asked("1g.10gb", Some(0.0)), "invalid-capacity", "the allocation is 0 GB"),
        ] {
            let errors = budget(Some(device), &asked, &no_cost()).expect_err("refused");
            assert_eq!((errors.len(), errors[0].code), (1, code), "{errors:?}");
            assert!(errors[0].message.contains(text), "{}", errors[0]);
        }
    }

    #[test]
    fn what_cannot_be_believed_is_refused() {
        let card = device("rtx-4090-24gb");
        let asked = Asked::default();
        for (asked, codes) in [
            (Asked { allocation_gb: Some(f64::NAN), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { allocation_gb: Some(-4.0), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { allocation_gb: Some(1e32), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { allocation_gb: Some(f64::INFINITY), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { allocation_gb: Some(26.0), ..asked.clone() }, vec!["allocation-too-large"]),
            (Asked { host_gb: Some(0.0), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { host_gb: Some(f64::NAN), allocation_gb: Some(0.0), ..asked.clone() }, vec!["invalid-capacity"; 2]),
            (Asked { memory_budget_bytes: Some(0), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { memory_budget_bytes: Some(u64::MAX), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { measured_free_bytes: Some(0), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { measured_free_bytes: Some(u64::MAX), ..asked.clone() }, vec!["invalid-capacity"]),
            (Asked { reserve_bytes: Some(u64::MAX), ..asked.clone() }, vec!["invalid-capacity"]),
        ] {
            let errors = budget(Some(&card), &asked, &no_cost()).expect_err("refused");
            assert_eq!(errors.iter().map(|error| error.code).collect::<Vec<_>>(), codes, "{asked:?}");
        }
        // 25 GB are more than 24 GB and less than the 24,564 MiB that the card reports.
        assert_eq!(winner(&card, &Asked { allocation_gb: Some(25.0), ..asked.clone() }).0, Some(25 * GB));
        for asked in [Asked { partition: Some("a".into()), ..asked.clone() }, Asked { allocation_gb: Some(1.0), ..asked }] {
            let errors = budget(None, &asked, &no_cost()).expect_err("refused");
            assert_eq!(errors[0].code, "no-hardware");
        }
        // A compiled file that somebody edited: what cannot be believed counts as not known.
        let mut edited = catalog().into_iter().find(|device| device.id == "h100-sxm-80gb").expect("there");
        edited.memory.nominal.value = 1e32;
        edited.memory.reported = None;
        edited.partitions[0].memory.value = f64::NAN;
        let edited = DeviceSpec::from(&edited);
        assert_eq!(winner(&edited, &Asked::default()), (None, None));
        assert_eq!(winner(&edited, &Asked { partition: Some("1g.10gb".into()), ..Asked::default() }), (None, None));
    }

    #[test]
    fn what_is_not_known_is_unknown_and_not_zero() {
        let bare = |value: serde_json::Value| custom_from_json(&value).expect("a device");
        let nominal = json!({ "type": "dedicated", "nominal": { "value": 8, "unit": "GB" } });
        for (device, codes) in [
            (None, vec!["no-hardware"]),
            (Some(bare(json!({ "custom": true }))), vec!["unknown-backend", "unknown-memory-type", "unknown-capacity"]),
            (Some(bare(json!({ "custom": true, "memory": nominal }))), vec!["unknown-backend"]),
            (Some(bare(json!({ "custom": true, "memory": nominal, "backend": "vulkan" }))), vec!["unknown-backend"]),
            (Some(bare(json!({ "custom": true, "backend": "mps", "memory": { "type": "unified" } }))), vec!["unknown-capacity"]),
            (
                Some(bare(json!({ "custom": true, "backend": "cuda", "memory": { "nominal": { "value": 8, "unit": "GB" } } }))),
                vec!["unknown-memory-type"],
            ),
        ] {
            for explicit in [None, Some(GB)] {
                let asked = Asked { memory_budget_bytes: explicit, ..Asked::default() };
                let found = budget(device.as_ref(), &asked, &no_cost()).expect("no error");
                assert_eq!((found.budget_bytes, found.source, found.pool_bytes), (None, None, None));
                assert_eq!(found.reasons.iter().map(|reason| reason.code.as_str()).collect::<Vec<_>>(), codes, "{device:?}");
                let report = serde_json::to_value(found.report()).expect("JSON");
                assert_eq!((report.get("budgetBytes"), report.get("budgetGiB")), (None, None));
            }
        }
    }

    #[test]
    fn the_report_says_what_decided() {
        let asked = Asked { memory_budget_bytes: Some(20 * GIB), reserve_bytes: Some(GIB), ..Asked::default() };
        let found = budget(Some(&device("rtx-4090-24gb")), &asked, &no_cost()).expect("known");
        let expected = json!({
            "type": "dedicated", "nominalGiB": 22.351_741_790_771_484, "budgetBytes": 21_474_836_480_u64, "budgetGiB": 20.0,
            "budgetSource": "explicit", "reserveBytes": 1_073_741_824_u64,
        });
        assert_eq!(serde_json::to_value(found.report()).expect("JSON"), expected);
        let words = [
            (BudgetSource::Measured, "measured"),
            (BudgetSource::Reported, "reported"),
            (BudgetSource::Nominal, "nominal"),
            (BudgetSource::Usable, "usable"),
            (BudgetSource::UnifiedDefault, "unified_default"),
            (BudgetSource::Partition, "partition"),
            (BudgetSource::Allocation, "allocation"),
            (BudgetSource::Explicit, "explicit"),
        ];
        assert!(words.iter().all(|(source, word)| source.word() == *word));
    }

    #[test]
    fn host_memory_is_that_which_was_asked_for_or_that_of_the_device() {
        let asked = Asked { host_gb: Some(64.0), ..Asked::default() };
        let host = |device: &DeviceSpec, asked: &Asked| budget(Some(device), asked, &no_cost()).expect("known").host_bytes;
        assert_eq!(host(&device("gh200-96gb"), &asked), Some(64 * GB));
        assert_eq!(host(&device("rtx-4090-24gb"), &asked), Some(64 * GB));
        assert_eq!(host(&device("rtx-4090-24gb"), &Asked::default()), None);
        assert_eq!(host(&from_flags(8.0, Some(16.0), None, None).expect("a device"), &Asked::default()), Some(16 * GIB));
    }

    fn rules(entries: &[(&str, f64, &str)]) -> RulesFile {
        let coefficient = |value, metric: &str| Coefficient {
            value,
            unit: "bytes".into(),
            rule: "fixed-cost".into(),
            runtime: Runtime::Diffusers,
            metric: metric.into(),
            range: BTreeMap::new(),
            source_rows: vec!["row".into()],
            date: "2026-11-30".into(),
            leave_one_out_error: None,
        };
        let coefficients =
            entries.iter().map(|(part, value, metric)| (format!("fixed-cost-{part}"), coefficient(*value, metric))).collect();
        RulesFile { version: 1, coefficients }
    }

    #[test]
    fn fixed_costs_are_those_of_the_class_or_a_labelled_assumption() {
        let table = rules(&[
            ("sm90-low", 1.0, "m"),
            ("sm90-value", 2.0, "m"),
            ("sm90-high", 3.0, "m"),
            ("sm90-system", 9.0, "m"),
            ("fv-run-sm89-low", 4.0, "m"),
            ("fv-run-sm89-value", 5.0, "m"),
            ("fv-run-sm89-high", 6.0, "m"),
            // Incomplete, out of order, not whole: not there.
            ("sm80-low", 1.0, "m"),
            ("sm86-low", 3.0, "m"),
            ("sm86-value", 2.0, "m"),
            ("sm86-high", 1.0, "m"),
            ("rocm-low", 0.5, "m"),
            ("rocm-value", 1.0, "m"),
            ("rocm-high", 2.0, "m"),
            ("cuda-low", 10.0, "assumption"),
            ("cuda-value", 20.0, "assumption"),
            ("cuda-high", 30.0, "assumption"),
            ("cuda-per-pinned-gib", 7.0, "assumption"),
        ]);
        let none = rules(&[]);
        for (table, id, runtime, class, context, extra, extrapolated) in [
            (&table, "h200-sxm-141gb", Runtime::Diffusers, "sm90", Some([1, 2, 3]), (7, 9), false),
            (&table, "h200-sxm-141gb", Runtime::FvRun, "sm90", Some([1, 2, 3]), (7, 9), true),
            (&table, "rtx-4090-24gb", Runtime::FvRun, "sm89", Some([4, 5, 6]), (7, 0), false),
            (&table, "rtx-4090-24gb", Runtime::FastVideo, "sm89", Some([10, 20, 30]), (7, 0), true),
            (&table, "a100-sxm-80gb", Runtime::FastVideo, "sm80", Some([10, 20, 30]), (7, 0), true),
            (&table, "a40-48gb", Runtime::FastVideo, "sm86", Some([10, 20, 30]), (7, 0), true),
            (&table, "rx-7900-xtx-24gb", Runtime::Diffusers, "rocm", None, (0, 0), true),
            (&none, "h200-sxm-141gb", Runtime::Diffusers, "sm90", None, (0, 0), true),
        ] {
            let found = fixed_costs(table, &device(id), runtime);
            let shown = found.context.map(|context| [context.low, context.value, context.high]);
            assert_eq!((found.class.as_str(), shown, found.extrapolated), (class, context, extrapolated), "{id} {found:?}");
            assert_eq!((found.per_pinned_gib, found.system), extra, "{id}");
        }
        let flags = from_flags(24.0, None, None, None).expect("a device");
        let found = fixed_costs(&table, &flags, Runtime::Diffusers);
        assert_eq!((found.class.as_str(), found.extrapolated), ("cuda", true), "an architecture that nobody said");
        let found = fixed_costs(&table, &from_flags(24.0, None, Some("vulkan"), None).expect("a device"), Runtime::Diffusers);
        assert_eq!((found.class.as_str(), found.context), ("unknown", None));
    }

    /// Device peak less what PyTorch held on one H200: cost, rows, GiB of page-locked memory that the row had.
    const SEEN_ON_H200: [(u64, usize, u64); 8] = [
        (728_563_712, 5, 0),
        (730_660_864, 3, 0),
        (732_758_016, 7, 0),
        (734_855_168, 8, 0),
        (736_952_320, 9, 0),
        (739_049_472, 2, 0),
        (741_146_624, 6, 0),
        (896_335_872, 1, 40),
    ];

    #[test]
    fn the_shipped_costs_hold_what_was_measured() {
        let shipped = shipped();
        let h200 = fixed_costs(&shipped, &device("h200-sxm-141gb"), Runtime::Diffusers);
        assert!(!h200.extrapolated, "{h200:?}");
        let costs: Vec<u64> = SEEN_ON_H200.iter().flat_map(|(cost, rows, _)| std::iter::repeat_n(*cost, *rows)).collect();
        assert_eq!(costs.len(), 41);
        assert_eq!(h200.context.map(|context| context.value), Some(costs[20]), "the median");
        for (cost, _, pinned) in SEEN_ON_H200 {
            let found = h200.device_peak(Interval::exact(0), pinned << 30).expect("no overflow");
            assert!((found.low..=found.high).contains(&cost), "{cost} {found:?}");
            assert!(found.value.abs_diff(cost) * 10 < cost, "{cost} {found:?}");
        }
        // The driver reports 143,771 MiB and offers 150,109,880,320 bytes.
        let found = budget(Some(&device("h200-sxm-141gb")), &Asked::default(), &h200).expect("known");
        assert_eq!((found.budget_bytes, found.system_bytes), (Some(150_109_880_320), 644_939_776));

        // 7.25 GiB held, 8.28 GiB on the device.
        let ada = fixed_costs(&shipped, &device("rtx-4090-24gb"), Runtime::FastVideo);
        let peak = ada.device_peak(Interval::exact(29 << 28), 0).expect("no overflow");
        assert!((8.279..8.281).contains(&in_gib(peak.value)) && !ada.extrapolated, "{peak:?}");
        // Every device of the catalog has a cost under every runtime.
        for device in catalog() {
            for runtime in [Runtime::Diffusers, Runtime::FastVideo, Runtime::FreeVideo, Runtime::FvRun] {
                let found = fixed_costs(&shipped, &DeviceSpec::from(&device), runtime);
                // Our runner was measured on an H200 alone; elsewhere PyTorch's figures stand in for it.
                let measured = match device.compute_capability.as_deref().filter(|_| device.backend == Backend::Cuda) {
                    Some("9.0") => true,
                    Some("8.9") => runtime != Runtime::FvRun,
                    _ => false,
                };
                assert!(found.context.is_some() && found.per_pinned_gib == 2 * MIB, "{}: {found:?}", device.id);
                assert_eq!(found.extrapolated, !measured, "{}: {found:?}", device.id);
            }
        }
    }

    #[test]
    fn page_locked_memory_costs_device_memory_once() {
        let cost = FixedCosts { per_pinned_gib: 2 * MIB, ..FixedCosts::exact(100, "x") };
        for (pinned, added) in [(0, 0), (1, 1), (512, 1), (513, 2), (GIB, 2 * MIB), (24 * GIB, 48 * MIB)] {
            let peak = cost.device_peak(Interval { low: 1, value: 2, high: 3 }, pinned);
            assert_eq!(peak, Some(Interval { low: 101 + added, value: 102 + added, high: 103 + added }), "{pinned}");
        }
        assert_eq!(cost.device_peak(Interval::exact(u64::MAX), 0), None);
        assert_eq!(FixedCosts { context: None, ..cost }.device_peak(Interval::exact(1), 0), None);
        let absurd = FixedCosts { per_pinned_gib: u64::MAX, ..FixedCosts::exact(u64::MAX, "x") };
        assert_eq!(absurd.device_peak(Interval::exact(u64::MAX), u64::MAX), None);
    }

    fn any_device() -> impl Strategy<Value = DeviceSpec> {
        let size = 1..=MAX_CAPACITY;
        let optional = || proptest::option::of(1..=MAX_CAPACITY);
        (proptest::bool::ANY, size, optional(), optional()).prop_map(|(unified, nominal, reported, usable)| DeviceSpec {
            memory_type: Some(if unified { MemoryType::Unified } else { MemoryType::Dedicated }),
            nominal: Some(nominal),
            reported,
            usable,
            ..from_flags(1.0, None, None, None).expect("a device")
        })
    }

    proptest! {
        #[test]
        fn no_input_panics(device in any_device(), explicit: Option<u64>, measured: Option<u64>, reserve: Option<u64>,
                           allocation: Option<f64>, host: Option<f64>, system: u64) {
            let asked = Asked { memory_budget_bytes: explicit, allocation_gb: allocation, partition: None, host_gb: host,
                                measured_free_bytes: measured, reserve_bytes: reserve };
            let cost = FixedCosts { system, ..no_cost() };
            if let Ok(found) = budget(Some(&device), &asked, &cost) {
                prop_assert!(found.budget_bytes.is_some() && found.source.is_some());
                prop_assert!(found.budget_bytes <= found.capacity_bytes);
                prop_assert!(found.pool_bytes.is_none_or(|pool| found.budget_bytes <= Some(pool)));
                prop_assert!(found.reserve_bytes <= MAX_CAPACITY && Some(found.system_bytes) <= found.capacity_bytes);
            }
        }

        #[test]
        fn more_is_never_less(device in any_device(), a in 1..=MAX_CAPACITY, b in 1..=MAX_CAPACITY, reserve in 0..=MAX_CAPACITY) {
            let (small, large) = (a.min(b), a.max(b));
            let of = |asked: Asked| budget(Some(&device), &asked, &no_cost()).map(|found| (found.budget_bytes, found.pool_bytes));
            let explicit = |bytes| of(Asked { memory_budget_bytes: Some(bytes), reserve_bytes: Some(reserve), ..Asked::default() });
            let measured = |bytes| of(Asked { measured_free_bytes: Some(bytes), reserve_bytes: Some(reserve), ..Asked::default() });
            let reserved = |bytes| of(Asked { reserve_bytes: Some(bytes), ..Asked::default() });
            for (less, more) in [(explicit(small), explicit(large)), (measured(small), measured(large)), (reserved(large), reserved(small))] {
                let ((less, less_pool), (more, more_pool)) = (less.expect("believable"), more.expect("believable"));
                prop_assert!(less <= more && less_pool <= more_pool);
            }
        }
    }
}
