//! Which blocks stay on the device, what is page-locked, and what is read from disk.

use fv_spec::plan::ReasonCode;

use super::activation::residual_host;
use super::constants::{
    HOST_BESIDE, PIN_CEILING, PIN_HEADROOM, PIN_HEADROOM_BELOW, PIN_HEADROOM_DEVICE, PIN_HEADROOM_GROWTH, PIN_HEADROOM_HOST,
    REFERENCE_ROWS, RESIDENT, hundredths, scaled,
};
use super::facts::Facts;
use super::small::Way;

/// Blocks that fit on the device beside `working_set`.
pub(super) fn beside(facts: &Facts, budget: i64, working_set: i64) -> i64 {
    // Rounded towards zero, as the published rule does; what is negative is none.
    ((budget - working_set) / facts.block).clamp(0, RESIDENT[1].min(facts.shape.blocks))
}

/// What host memory does to the count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kept {
    /// Blocks that stay on the device.
    pub resident: i64,
    /// Why so many.
    pub reason: ReasonCode,
    /// Blocks that host memory cannot keep.
    pub host_wants: i64,
}

/// Blocks that stay on the device: `fitting`, where the budget is not small no more than host memory needs there or than are
/// aimed at.
pub(super) fn keep(facts: &Facts, small: bool, fitting: i64, host_work: i64, retention: i64) -> Kept {
    let room = retention - host_work - hundredths(HOST_BESIDE);
    let host_wants = (facts.shape.blocks - room.div_euclid(facts.block)).max(0);
    let most = RESIDENT[0].max(host_wants);
    let limit = if fitting == RESIDENT[1].min(facts.shape.blocks) { ReasonCode::ResidentCeiling } else { ReasonCode::VramLimit };
    let (resident, reason) = match fitting {
        _ if small => (fitting, ReasonCode::SmallBandKeeps),
        _ if fitting <= most => (fitting, limit),
        _ if host_wants > RESIDENT[0] => (most, ReasonCode::HostCannotKeepMore),
        _ => (most, ReasonCode::ResidentTarget),
    };
    Kept { resident, reason, host_wants }
}

/// Whether blocks that are not on the device are read from disk, with what the comparison found.
pub(super) fn streams(facts: &Facts, resident: i64, host_work: i64, retention: i64) -> (bool, ReasonCode) {
    if facts.windows() && resident < facts.shape.blocks {
        return (true, ReasonCode::SystemStreams);
    }
    if fits_host(facts, resident, host_work, retention) {
        (false, ReasonCode::WeightsFitHost)
    } else {
        (true, ReasonCode::WeightsExceedHost)
    }
}

/// Whether host memory keeps every block that is not on the device, beside working memory.
pub(super) fn fits_host(facts: &Facts, resident: i64, host_work: i64, retention: i64) -> bool {
    (facts.shape.blocks - resident) * facts.block + host_work + hundredths(HOST_BESIDE) <= retention
}

/// Page-locked bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pins {
    /// How many.
    pub bytes: i64,
    /// Why.
    pub reason: ReasonCode,
    /// What host memory keeps free beside them.
    pub headroom: i64,
}

/// Bytes of the blocks that the device has no room for: the most that is page-locked where nothing is read from disk.
pub(super) fn beyond(facts: &Facts, fitting: i64) -> i64 {
    (facts.shape.blocks - fitting) * facts.block
}

/// Page-locked bytes where nothing is read from disk. `fitting`: blocks that device memory has room for, which the published rule
/// takes the rest of even where fewer then stay on the device: `resident`.
pub(super) fn pins_of_memory(facts: &Facts, small: bool, [fitting, resident]: [i64; 2], retention: i64) -> Pins {
    let headroom = hundredths(PIN_HEADROOM);
    let beyond = beyond(facts, fitting);
    let free = (retention - headroom).max(0);
    let bytes = PIN_CEILING.min(free).min(beyond);
    let (bytes, reason) = match bytes {
        _ if bytes == beyond && resident < fitting => (bytes, ReasonCode::PinBeyondFitting),
        _ if bytes == beyond => (bytes, ReasonCode::PinEveryBlock),
        _ if small => (0, ReasonCode::PinAllOrNothing),
        0 => (0, ReasonCode::PinNothingLeft),
        PIN_CEILING => (bytes, ReasonCode::PinCeiling),
        _ => (bytes, ReasonCode::PinHeadroom),
    };
    Pins { bytes, reason, headroom }
}

/// Page-locked bytes where the rest is read from disk.
pub(super) fn pins_beside_disk(facts: &Facts, way: &Way, resident: i64, host_budget: i64, retention: i64) -> Pins {
    let [linux, windows] = PIN_HEADROOM_HOST;
    let plain = if host_budget < hundredths(PIN_HEADROOM_BELOW) {
        hundredths(PIN_HEADROOM)
    } else if way.outputs_on_host {
        let longer = (facts.rows - REFERENCE_ROWS).max(0);
        hundredths(if facts.windows() { windows } else { linux }) + scaled(PIN_HEADROOM_GROWTH, longer, REFERENCE_ROWS)
    } else {
        hundredths(PIN_HEADROOM_DEVICE)
    };
    let headroom = plain + if way.residual_on_host { residual_host(facts.rows) } else { 0 };
    let every = (facts.shape.blocks - resident) * facts.block;
    let bytes = (retention - headroom).clamp(0, every);
    let reason = match bytes {
        _ if bytes == every => ReasonCode::PinEveryBlock,
        0 => ReasonCode::PinNothingLeft,
        _ => ReasonCode::PinHeadroom,
    };
    Pins { bytes, reason, headroom }
}
