//! macOS: one pool of memory. The published rules end at budgets; where blocks live there is not published.

use fv_spec::estimate::Reason;
use fv_spec::plan::ReasonCode;
use fv_spec::plan::budget::{Budget, Resource};

use super::assemble::budget;
use super::budget::Reserved;
use super::constants::{UNIFIED_MINIMUM, UNIFIED_RESERVE, hundredths};
use super::question::Resolved;

/// What is left of the pool, and the least that is admitted.
pub(super) fn reserved(resolved: &Resolved) -> (Reserved, i64) {
    let free = resolved.facts.free_host;
    let [least, usual] = UNIFIED_RESERVE.map(hundredths);
    let (reserve, reason) = match resolved.facts.host_reserve {
        Some(given) if given >= least => (given, ReasonCode::ReserveGiven),
        Some(_) => (least, ReasonCode::ReserveFloor),
        None => (usual, ReasonCode::ReserveFixed),
    };
    (Reserved { free, reserve, reason, budget: (free - reserve).max(0) }, hundredths(UNIFIED_MINIMUM))
}

/// The pool as it is reported.
pub(super) fn budgets(resolved: &Resolved, reserved: &Reserved) -> Vec<Budget> {
    vec![Budget { rank: Some(0), ..budget(Resource::Unified, &resolved.host, reserved) }]
}

/// Why there is no plan although memory suffices.
pub(super) fn unknown() -> Vec<Reason> {
    let message = "which blocks stay where on macOS is not published; its budgets, chunks (128 queries, 256 rows) and attention are";
    vec![Reason::new("uncovered-system", message)]
}
