//! Transfer slots: one, or a second one to copy ahead into.

use fv_spec::plan::{Architecture, ReasonCode};

use super::activation::windows_workspace_of;
use super::constants::{SLOTS, SLOTS_HOST, SLOTS_LOWER, hundredths};
use super::facts::Facts;

/// Why there is a second slot, as far as the budget decides; or why not.
pub(super) fn by_budget(facts: &Facts, budget: i64, host_budget: i64) -> Result<ReasonCode, ReasonCode> {
    if budget >= hundredths(SLOTS) {
        return Ok(ReasonCode::SlotsByBudget);
    }
    let little_host = host_budget < hundredths(SLOTS_HOST);
    let lower = facts.windows() && (little_host || facts.architecture == Architecture::BlackwellRtx);
    // Ampere with FP8 weights has it from the end of the small band on, where this is asked.
    if (lower && budget >= hundredths(SLOTS_LOWER)) || facts.ampere_bf16() {
        return Ok(ReasonCode::SlotsByLowerThreshold);
    }
    Err(ReasonCode::SlotsBelowBudget)
}

/// Whether the second slot would take Windows's workspace over the budget.
pub(super) fn over_workspace(facts: &Facts, budget: i64, group: u32) -> bool {
    facts.has_workspace() && windows_workspace_of(facts, true, group) > budget
}

/// Whether the second slot is given up where that keeps every block off the disk: on Windows with a Blackwell card below the usual
/// budget for it.
pub(super) fn may_be_given_up(facts: &Facts, budget: i64) -> bool {
    let blackwell = matches!(
        facts.architecture,
        Architecture::BlackwellDatacenter | Architecture::BlackwellTegra | Architecture::BlackwellUnified | Architecture::BlackwellRtx
    );
    facts.windows() && blackwell && budget < hundredths(SLOTS)
}
