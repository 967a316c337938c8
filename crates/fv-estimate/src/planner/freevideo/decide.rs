//! The policy from end to end, in numbers: every rule once, in the published order.

use fv_spec::plan::{GemmPath, ReasonCode};

use super::activation::{self, Thresholds, needs};
use super::budget::{self, Reserved};
use super::constants::{HOST_MINIMUM, WINDOW_BATCH, hundredths};
use super::facts::Facts;
use super::residency::{self, Pins};
use super::small::{self, Way};
use super::vae::{self, DecoderChoice};
use super::{compute, slots};

/// What was decided, with the numbers that decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a decision of its own")]
pub struct Decided {
    /// Device memory.
    pub vram: Reserved,
    /// Host memory.
    pub host: Reserved,
    /// Host memory that blocks may stay in.
    pub retention: i64,
    /// What placement has of device memory: the budget less what adapters and tables take.
    pub budget: i64,
    /// What the budget was compared with.
    pub thresholds: Thresholds,
    /// Whether the budget is in the small band.
    pub small: bool,
    /// What each group of heads needs.
    pub needs: [i64; 3],
    /// How activations are arranged.
    pub way: Way,
    /// Blocks that device memory has room for.
    pub fitting: i64,
    /// Blocks that stay on the device.
    pub resident: i64,
    /// Why so many.
    pub resident_reason: ReasonCode,
    /// Blocks that host memory cannot keep.
    pub host_wants: i64,
    /// Host memory that the transformer works with.
    pub host_work: i64,
    /// Whether blocks are read from disk.
    pub disk: bool,
    /// Why, or why not.
    pub disk_reason: ReasonCode,
    /// Page-locked bytes.
    pub pin: i64,
    /// Why so many.
    pub pin_reason: ReasonCode,
    /// Host memory that is kept free beside them.
    pub pin_headroom: i64,
    /// Whether there is a second slot.
    pub second_slot: bool,
    /// Why, or why not.
    pub slot_reason: ReasonCode,
    /// Whether the wide activation is computed again.
    pub recompute: bool,
    /// How products are computed.
    pub gemm: GemmPath,
    /// Windows that are computed together.
    pub window_batch: u32,
    /// The decoder.
    pub decoder: DecoderChoice,
}

/// Why nothing was decided: budgets below what the policy asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Device memory.
    pub vram: Reserved,
    /// The least budget of it.
    pub vram_minimum: i64,
    /// Whether that is the second comparison, made once no way fitted.
    pub estimated: bool,
    /// Host memory.
    pub host: Reserved,
    /// The least budget of it.
    pub host_minimum: i64,
}

impl Short {
    /// Device memory that is missing.
    pub fn vram_short(&self) -> i64 {
        (self.vram_minimum - self.vram.budget).max(0)
    }

    /// Host memory that is missing.
    pub fn host_short(&self) -> i64 {
        (self.host_minimum - self.host.budget).max(0)
    }
}

/// Decides.
///
/// # Errors
/// What is short of what.
pub fn decide(facts: &Facts) -> Result<Decided, Short> {
    let thresholds = Thresholds::of(facts);
    let [vram, host] = facts.budgets();
    let short = |vram_minimum, estimated| Short { vram, vram_minimum, estimated, host, host_minimum: hundredths(HOST_MINIMUM) };
    let first = short(thresholds.vram_minimum, false);
    let budget = vram.budget - facts.workspace;
    let small = facts.small(budget);
    let heads = activation::heads(facts, budget);
    let admitted = first.vram_short() == 0 && first.host_short() == 0;
    // A trial waives the estimate of the working set. The least budget, which covers the decoder's workspace, is none; and nothing can be
    // tried where adapters alone take everything.
    let trial = (facts.capacity_trial && admitted && budget > 0).then(Way::trial);
    let found = if !admitted {
        None
    } else if small {
        small::way(facts, &thresholds, &vram, budget, heads)
    } else {
        plain_way(facts, &thresholds, budget, heads)
    };
    let refused = || if admitted { short(thresholds.residual_admitted + facts.workspace, true) } else { first };
    let way = found.or(trial).ok_or_else(refused)?;
    let small = small || way.path == ReasonCode::CapacityTrial;

    let retention = budget::retention(facts, &host);
    let host_work = activation::host_work(small || way.outputs_on_host, way.residual_on_host, facts.rows);
    let (mut second_slot, mut slot_reason) = (false, ReasonCode::SlotNarrowPath);
    if !small && way.keeps_blocks() {
        (second_slot, slot_reason) = match slots::by_budget(facts, budget, host.budget) {
            Err(reason) => (false, reason),
            Ok(_) if slots::over_workspace(facts, budget, way.group) => (false, ReasonCode::SlotWorkspace),
            Ok(reason) => (true, reason),
        };
        if second_slot && slots::may_be_given_up(facts, budget) {
            let without = fitting(facts, budget, &way, small, false);
            let kept = residency::keep(facts, small, without, host_work, retention);
            if residency::fits_host(facts, kept.resident, host_work, retention) {
                (second_slot, slot_reason) = (false, ReasonCode::SlotKeepsWeightsOffDisk);
            }
        }
    }
    let way = with_slot(facts, way, small, second_slot);
    let fitting = fitting(facts, budget, &way, small, second_slot);
    let kept = residency::keep(facts, small, fitting, host_work, retention);
    let resident_reason = if way.keeps_blocks() { kept.reason } else { way.path };
    let (disk, disk_reason) = residency::streams(facts, kept.resident, host_work, retention);
    let Pins { bytes: pin, reason: pin_reason, headroom: pin_headroom } = if disk {
        residency::pins_beside_disk(facts, &way, kept.resident, host.budget, retention)
    } else {
        residency::pins_of_memory(facts, small, [fitting, kept.resident], retention)
    };
    Ok(Decided {
        vram,
        host,
        retention,
        budget,
        thresholds,
        small,
        needs: needs(facts.rows),
        way,
        fitting,
        resident: kept.resident,
        resident_reason,
        host_wants: kept.host_wants,
        host_work,
        disk,
        disk_reason,
        pin,
        pin_reason,
        pin_headroom,
        second_slot,
        slot_reason,
        recompute: way.path == ReasonCode::CapacityTrial && compute::keeps_wide_activation(facts),
        gemm: compute::gemm(facts),
        window_batch: if facts.ampere_bf16() { WINDOW_BATCH[1] } else { WINDOW_BATCH[0] },
        decoder: vae::decide(facts, &thresholds, &vram, &host),
    })
}

/// How activations are arranged above the small band. `None`: not even the smallest way fits.
fn plain_way(facts: &Facts, thresholds: &Thresholds, budget: i64, (group, group_reason): (u32, ReasonCode)) -> Option<Way> {
    if facts.has_workspace() && activation::windows_workspace_of(facts, false, group) > budget {
        let staged = Way::staged(ReasonCode::PathWorkspace, thresholds.residual);
        return (budget >= thresholds.residual_admitted).then_some(staged);
    }
    let need = activation::need(group, facts.rows);
    Some(Way { group, group_reason, outputs_on_host: false, residual_on_host: false, ..Way::staged(ReasonCode::MeasuredTable, need) })
}

/// The working set with what a second slot adds to it on Windows.
fn with_slot(facts: &Facts, way: Way, small: bool, slot: bool) -> Way {
    if small || !way.keeps_blocks() || !facts.has_workspace() {
        return way;
    }
    let workspace = activation::windows_workspace_of(facts, slot, way.group);
    Way { working_set: way.working_set.map(|need| need.max(workspace)), ..way }
}

/// Blocks that device memory has room for.
fn fitting(facts: &Facts, budget: i64, way: &Way, small: bool, slot: bool) -> i64 {
    match with_slot(facts, *way, small, slot).working_set {
        Some(working_set) if way.keeps_blocks() => residency::beside(facts, budget, working_set),
        _ => 0,
    }
}
