//! One plan with its reasons in words and what its peaks leave.

use fv_spec::estimate::Tier;
use fv_spec::plan::answer::{Explained, Margin, PlanExplanation};
use fv_spec::plan::budget::{Budget, Resource};
use fv_spec::plan::{Decision, Peak, Plan, VERSION};

/// Explains a plan.
pub fn explain(plan: &Plan) -> PlanExplanation {
    let own = plan.decisions.iter().map(|decision| explained(None, decision));
    let of_passes = plan.passes.iter().flat_map(|pass| pass.decisions.iter().map(|decision| explained(Some(&pass.name), decision)));
    PlanExplanation {
        version: VERSION,
        id: plan.id.clone(),
        margins: plan.budgets.iter().filter_map(|budget| margin(plan, budget)).collect(),
        decisions: own.chain(of_passes).collect(),
    }
}

fn explained(pass: Option<&str>, decision: &Decision) -> Explained {
    Explained {
        pass: pass.map(str::to_owned),
        decision: decision.clone(),
        meaning: decision.reason.meaning().to_owned(),
        alternatives: decision.alternatives.iter().map(|alternative| alternative.reason.meaning().to_owned()).collect(),
    }
}

/// What the largest peak in a pool leaves of its budget. Page-locked and other host memory of the same stage and pass count together.
fn margin(plan: &Plan, budget: &Budget) -> Option<Margin> {
    let device = |peak: &&Peak| peak.tier == Tier::Device && peak.rank == budget.rank;
    let host = |peak: &&Peak| matches!(peak.tier, Tier::Pinned | Tier::Pageable);
    let together = |peak: &Peak| {
        let same = plan.peaks.iter().filter(host).filter(|other| other.stage == peak.stage && other.pass == peak.pass);
        same.fold(0_u64, |sum, other| sum.saturating_add(other.bytes))
    };
    let peak_bytes = match budget.resource {
        Resource::Vram => plan.peaks.iter().filter(device).map(|peak| peak.bytes).max(),
        Resource::Host => plan.peaks.iter().filter(host).map(together).max(),
        Resource::Unified => None,
    }?;
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Some(Margin {
        resource: budget.resource,
        rank: budget.rank,
        budget_bytes: budget.budget_bytes,
        peak_bytes,
        margin_bytes: signed(budget.budget_bytes) - signed(peak_bytes),
    })
}
