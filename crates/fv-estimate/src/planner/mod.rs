//! Planners: where everything is put and how it moves, by a policy, and why. Pure: the same question gives the same plan.
//!
//! * [`freevideo`]: the published adaptive policy for MiniMax H3. [`optimal`]: the fastest plan of our own runtime.
//! * [`machine`]: what is planned for.
//! * [`check`]: reading a plan, and what makes one inconsistent. [`explain`](mod@explain), [`diff`](mod@diff): one plan in words, two
//!   compared. [`field`](mod@field): the field that a decision is about.

pub mod check;
pub mod columns;
pub mod diff;
pub mod explain;
pub mod field;
pub mod freevideo;
pub mod machine;
pub mod optimal;

use fv_spec::plan::Plan;
use fv_spec::plan::refusal::{Refusal, Unplanned};
use sha2::{Digest, Sha256};

/// What a planner answers.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome {
    /// A plan.
    Planned(Box<Plan>),
    /// It does not fit.
    Refused(Box<Refusal>),
    /// The policy has no rule for it.
    Unplanned(Box<Unplanned>),
}

/// The id of a plan: half of the SHA-256 digest of its JSON without the id itself, the forecast, the times of measurements and the revisions, so that
/// the same decisions on the same grounds have the same id.
pub fn id(plan: &Plan) -> String {
    let mut decisive = plan.clone();
    decisive.id = String::new();
    decisive.forecast = None;
    decisive.unforecast = Vec::new();
    decisive.plan_revisions = Vec::new();
    for budget in &mut decisive.budgets {
        let amounts = [Some(&mut budget.free), budget.total.as_mut(), budget.cap.as_mut(), budget.cgroup_limit.as_mut()];
        for amount in amounts.into_iter().flatten() {
            amount.at = None;
        }
    }
    // A plan has nothing that JSON cannot hold.
    let text = serde_json::to_vec(&decisive).unwrap_or_default();
    let half = Sha256::digest(&text).iter().take(16).fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
    format!("plan-{half:032x}")
}

/// The plan with its id.
pub(crate) fn sealed(mut plan: Plan) -> Plan {
    plan.id = id(&plan);
    plan
}
