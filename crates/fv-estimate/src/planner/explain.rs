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

/// What the tightest peak in a pool leaves of its own limit. Page-locked and other host memory of the same stage and pass count
/// together, against the larger of their limits: that of ordinary memory is what page-locked memory leaves.
fn margin(plan: &Plan, budget: &Budget) -> Option<Margin> {
    let in_pool = |peak: &&Peak| match budget.resource {
        Resource::Vram => peak.tier == Tier::Device && peak.rank == budget.rank,
        Resource::Host => matches!(peak.tier, Tier::Pinned | Tier::Pageable),
        Resource::Unified => false,
    };
    let peaks = || plan.peaks.iter().filter(in_pool);
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    let margins = peaks().map(|peak| {
        let together = peaks().filter(|other| (other.stage, &other.pass) == (peak.stage, &peak.pass));
        let (limit_bytes, peak_bytes) =
            together.fold((0, 0_u64), |(limit, sum), other| (other.limit_bytes.max(limit), sum.saturating_add(other.bytes)));
        Margin {
            resource: budget.resource,
            rank: budget.rank,
            stage: peak.stage,
            pass: peak.pass.clone(),
            budget_bytes: budget.budget_bytes,
            limit_bytes,
            peak_bytes,
            margin_bytes: signed(limit_bytes) - signed(peak_bytes),
        }
    });
    margins.min_by_key(|margin| margin.margin_bytes)
}
