//! The ways in which little memory is used, tried in order.

use fv_spec::plan::ReasonCode;

use super::activation::{Thresholds, growth, need};
use super::budget::Reserved;
use super::constants::{HOST_OUTPUTS, HOST_OUTPUTS_END, NO_WEIGHTS, OUTPUTS, SHORT, TABLE_4, TABLE_8, hundredths};
use super::facts::Facts;

/// How activations are arranged, and what they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Which way, and so why.
    pub path: ReasonCode,
    /// Heads in a group.
    pub group: u32,
    /// Why this group.
    pub group_reason: ReasonCode,
    /// What the device shows beside resident blocks, by the policy's own figures; where there is one.
    pub working_set: Option<i64>,
    /// Attention outputs on the host.
    pub outputs_on_host: bool,
    /// The residual stream on the host.
    pub residual_on_host: bool,
}

impl Way {
    /// Whether blocks are kept on the device at all.
    pub fn keeps_blocks(&self) -> bool {
        matches!(self.path, ReasonCode::MeasuredTable | ReasonCode::PathTable | ReasonCode::PathResidual)
    }

    /// Whether the working set is held against free memory and not against the budget.
    pub fn against_free(&self) -> bool {
        matches!(self.path, ReasonCode::PathNoWeights | ReasonCode::PathHostOutputs)
    }

    /// A trial below what is admitted: everything in its smallest form, and no figure for what that takes.
    pub(super) fn trial() -> Self {
        Self { working_set: None, ..Self::staged(ReasonCode::CapacityTrial, 0) }
    }

    /// Groups of 4 heads, everything on the host, no block on the device.
    pub(super) fn staged(path: ReasonCode, working_set: i64) -> Self {
        Self {
            path,
            group: 4,
            group_reason: ReasonCode::HeadGroupOfPath,
            working_set: Some(working_set),
            outputs_on_host: true,
            residual_on_host: true,
        }
    }
}

/// The first way that fits; `None` where none does. `budget` is what placement has of `vram`.
pub(super) fn way(facts: &Facts, thresholds: &Thresholds, vram: &Reserved, budget: i64, heads: (u32, ReasonCode)) -> Option<Way> {
    let growth = growth(facts.rows);
    let at = |value: i64| hundredths(value) + growth;
    // What adapters and tables take is not free for activations.
    let free = vram.free - facts.workspace;
    let (group, group_reason, reserve) = table(facts, budget, heads);
    if reserve <= budget {
        return Some(outputs(facts, budget, Way { group, group_reason, ..Way::staged(ReasonCode::PathTable, reserve) }));
    }
    let linux = !facts.windows();
    if linux && free >= at(NO_WEIGHTS) {
        let way = Way::staged(ReasonCode::PathNoWeights, at(NO_WEIGHTS));
        return Some(Way { outputs_on_host: false, residual_on_host: false, ..way });
    }
    if linux && !vram.relaxed() && free >= at(HOST_OUTPUTS) && budget < at(HOST_OUTPUTS_END) {
        return Some(Way::staged(ReasonCode::PathHostOutputs, at(HOST_OUTPUTS)));
    }
    (budget >= thresholds.residual_admitted).then(|| outputs(facts, budget, Way::staged(ReasonCode::PathResidual, thresholds.residual)))
}

/// The group of heads and what is set aside for it before outputs.
pub(super) fn table(facts: &Facts, budget: i64, (group, reason): (u32, ReasonCode)) -> (u32, ReasonCode, i64) {
    let at = |value: i64| hundredths(value) + growth(facts.rows);
    if !facts.windows() {
        return match group {
            8.. => (group, reason, need(group, facts.rows) - hundredths(OUTPUTS)),
            _ => (group, reason, at(TABLE_4)),
        };
    }
    let [rows, frames] = SHORT;
    let short = facts.rows <= rows && i64::from(facts.canvas.frames) <= frames;
    if group >= 8 && facts.sage_only && !facts.ampere_bf16() && short && budget >= at(TABLE_8) + hundredths(OUTPUTS) {
        return (8, ReasonCode::HeadGroupConditions, at(TABLE_8));
    }
    (4, if group > 4 { ReasonCode::HeadGroupOfPath } else { reason }, at(TABLE_4))
}

/// Attention outputs stay on the device where the allowance for them fits; else they bring the residual stream to the host.
fn outputs(facts: &Facts, budget: i64, way: Way) -> Way {
    let reserve = way.working_set.unwrap_or(0);
    let residual = way.path == ReasonCode::PathResidual;
    if budget < reserve + hundredths(OUTPUTS) {
        return way;
    }
    let mut working_set = reserve + hundredths(OUTPUTS);
    if facts.windows() && !residual {
        working_set = working_set.max(need(way.group, facts.rows));
    }
    Way { working_set: Some(working_set), outputs_on_host: false, residual_on_host: residual, ..way }
}
