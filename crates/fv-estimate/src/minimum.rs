//! The smallest budget for a request.
//!
//! A larger budget never makes a verdict worse, so the smallest with a verdict is found by bisection over bytes, each step a
//! plain comparison on a device that has as much memory as is asked about. A runtime that plans says what is needed at least, and the
//! smallest budget with a plan is searched from there. The answer holds the verdicts at the budgets found
//! and one byte below them, of requests evaluated anew.

use fv_spec::estimate::{Estimate, VERSION, Verdict};
use fv_spec::questions::{Minimum, StageMinimum, Tried};
use fv_spec::request::PartialRequest;

use crate::budget::{Asked, Budget, FixedCosts, in_gib};
use crate::device::{DeviceSpec, MAX_CAPACITY, from_flags};
use crate::error::InputError;
use crate::estimate::Workload;
use crate::family::{ByPlan, PlannedStage};
use crate::largest::{Wanted, largest};
use crate::question::{Question, exactly};
use crate::verdict::{ShortTier, StageNeed, device_ends};

/// The smallest budget, apart from the devices of the catalog. Without a device, that of an assumed one with cuda.
///
/// # Errors
/// What is wrong with the request, the settings or the figures of the device.
pub fn minimum(question: &Question<'_>, asked: &PartialRequest) -> Result<Minimum, Vec<InputError>> {
    let plain = question.estimate(asked)?;
    let workload = question.evaluate(asked, false)?;
    let assumed = from_flags(1.0, None, None, None)?;
    let device = limitless(question.device.unwrap_or(&assumed));
    let nothing = Asked::default();
    let endless = Question { device: Some(&device), asked: &nothing, ..*question };
    let offered = endless.budget(&workload.settings)?;
    // Whether it may fit is asked of the device alone, and of host memory afterwards.
    let with = |bytes: u64| capped(&offered, bytes, None);
    let bisected = |wanted: &[Verdict]| {
        let meets = |bytes: u64| wanted.contains(&workload.summary(&with(bytes)).status);
        let (mut low, mut high) = (0, MAX_CAPACITY);
        if !meets(high) {
            return None;
        }
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if meets(middle) { high = middle } else { low = middle }
        }
        Some(high)
    };
    let unified = offered.unified;
    let planned = workload.planner().and_then(|planner| Planned::of(planner, &offered));
    let (fits_bytes, uncertain_bytes, host_bytes) = if let Some(Planned { device_bytes, host_bytes }) = planned {
        (Some(device_bytes), Some(device_bytes), host_bytes)
    } else {
        let fits_bytes = bisected(&[Verdict::Fits]);
        let host_bytes = plain.host.required_bytes.filter(|_| fits_bytes.is_some());
        (fits_bytes, bisected(&[Verdict::Fits, Verdict::Uncertain]), host_bytes)
    };
    let mut checks = Vec::new();
    let anew = question.evaluate(&exactly(&workload.request), false)?;
    for bytes in [fits_bytes, uncertain_bytes.filter(|bytes| fits_bytes != Some(*bytes))].into_iter().flatten() {
        let tries = [bytes, bytes.saturating_sub(1)];
        checks.extend(tries.map(|bytes| tried(&anew, &endless, bytes, None)).into_iter().collect::<Result<Vec<_>, _>>()?);
    }
    if let Some((budget, host)) = fits_bytes.zip(host_bytes).filter(|(_, host)| *host > 0 && !unified) {
        for host in [host, host - 1] {
            checks.push(tried(&anew, &endless, budget, Some(host))?);
        }
    }
    let stages = match (workload.planner(), fits_bytes) {
        (Some(by_plan), Some(bytes)) => planned_stages(by_plan, &capped(&offered, bytes, host_bytes)),
        // Without a verdict they are floors, and no budget to go by.
        _ if uncertain_bytes.is_none() => Vec::new(),
        _ => workload.needs().into_iter().filter_map(|need| stage(&need, &offered.fixed)).collect(),
    };
    let wanted = Wanted { admit_uncertain: false, pareto: false, changes: true, adapted: false };
    let short = matches!(plain.status, Verdict::DoesNotFit | Verdict::Uncertain);
    let nothing = || (Vec::new(), Vec::new());
    let (changes, tried) = if short {
        largest(question, asked, wanted)?.map_or_else(|_| nothing(), |answer| (answer.changes, answer.tried))
    } else {
        nothing()
    };
    let Estimate { model, deployment, hardware, request, mut status, mut reasons, mut notes, .. } = plain;
    reasons.retain(|reason| reason.code != "no-hardware");
    if question.device.is_none() {
        status = match (fits_bytes, uncertain_bytes) {
            (Some(_), _) => Verdict::Fits,
            (None, Some(_)) => Verdict::Uncertain,
            (None, None) => Verdict::Unknown,
        };
        notes.push("no device was named: the fixed cost is what is assumed of a CUDA device that was not measured, and it handles fp32, fp16 and bf16".to_owned());
    }
    Ok(Minimum {
        version: VERSION,
        model,
        deployment,
        hardware,
        request,
        status,
        fits_bytes,
        fits_gib: fits_bytes.map(in_gib),
        uncertain_bytes,
        host_bytes,
        stages,
        checks,
        fixed_cost: offered.fixed.class.clone(),
        devices: Vec::new(),
        changes,
        tried,
        reasons,
        notes,
    })
}

/// What a stage needs by the rules of a runtime that does not plan.
fn stage(need: &StageNeed, fixed: &FixedCosts) -> Option<StageMinimum> {
    let (peaks, host) = need.need?;
    let (uncertain_bytes, fits_bytes) = device_ends(&peaks, host, fixed)?;
    Some(StageMinimum { name: need.stage, fits_bytes, uncertain_bytes, host_bytes: host.pinned_bytes + host.pageable_bytes })
}

/// What each stage of the plan for this budget takes: the largest binds it, and what others leave of it they may have used to be faster.
fn planned_stages(planner: &dyn ByPlan, budget: &Budget) -> Vec<StageMinimum> {
    let stages = planner.planned(budget).map_or_else(Vec::new, |planned| planned.stages);
    let minimum = |stage: PlannedStage| {
        let bytes = stage.peaks?.device.high;
        let host_bytes = stage.host.pinned_bytes + stage.host.pageable_bytes;
        Some(StageMinimum { name: stage.name, fits_bytes: bytes, uncertain_bytes: bytes, host_bytes })
    };
    stages.into_iter().filter_map(minimum).collect()
}

/// The smallest budgets of a runtime that plans.
struct Planned {
    /// Of the device, with as much host memory as is asked for.
    device_bytes: u64,
    /// Of the host, with that much of the device.
    host_bytes: Option<u64>,
}

impl Planned {
    fn of(planner: &dyn ByPlan, offered: &Budget) -> Option<Self> {
        let device_bytes = least(planner.least(&capped(offered, MAX_CAPACITY, None), ShortTier::Device)?, |bytes| {
            Some(planner.fitted(&capped(offered, bytes, None))?.device_bytes)
        })?;
        let enough = |bytes| {
            let fitted = planner.fitted(&capped(offered, device_bytes, Some(bytes)))?;
            Some(planner.host_for(fitted.host_bytes).min(bytes))
        };
        let host = planner.least(&capped(offered, device_bytes, Some(MAX_CAPACITY)), ShortTier::Host);
        Some(Self { device_bytes, host_bytes: host.and_then(|host| least(planner.host_for(host), enough)) })
    }
}

/// The least number that is enough, at least `low`. `enough` says for one how many of it are used, which may be enough by themselves.
fn least(low: u64, enough: impl Fn(u64) -> Option<u64>) -> Option<u64> {
    if enough(low).is_some() {
        return Some(low);
    }
    let (mut low, mut step) = (low, FIRST_STEP);
    let mut used = loop {
        let next = low.saturating_add(step);
        if next > MAX_CAPACITY {
            return None;
        }
        if let Some(used) = enough(next) {
            break [used, next];
        }
        (low, step) = (next, step.saturating_mul(2));
    };
    // What a plan uses is most often the least that one like it needs.
    while used[1] - low > 1 {
        let middle = if used[0] > low && used[0] < used[1] { used[0] } else { low + (used[1] - low) / 2 };
        if let Some(found) = enough(middle) {
            used = [found, middle];
            continue;
        }
        low = middle;
        used[0] = used[1];
        if enough(used[1] - 1).is_none() {
            return Some(used[1]);
        }
    }
    Some(used[1])
}

/// What is added first where the least that is reckoned with is not enough.
const FIRST_STEP: u64 = 1 << 20;

/// The device with as much memory as is believed of any, so that a budget alone limits it.
fn limitless(device: &DeviceSpec) -> DeviceSpec {
    DeviceSpec { nominal: Some(MAX_CAPACITY), reported: None, usable: None, policy: None, host_memory: None, ..device.clone() }
}

/// What is offered, with no more than so much of device and host memory.
fn capped(offered: &Budget, bytes: u64, host: Option<u64>) -> Budget {
    let pool_bytes = offered.unified.then_some(bytes);
    Budget { budget_bytes: Some(bytes), pool_bytes, host_bytes: host, ..offered.clone() }
}

/// What a plain estimate says with so much memory.
fn tried(workload: &Workload, question: &Question<'_>, budget_bytes: u64, host_bytes: Option<u64>) -> Result<Tried, Vec<InputError>> {
    let asked = Asked { memory_budget_bytes: Some(budget_bytes), ..question.asked.clone() };
    let mut budget = Question { asked: &asked, ..*question }.budget(&workload.settings)?;
    budget.host_bytes = host_bytes;
    Ok(Tried { budget_bytes, host_bytes, status: workload.brief(&budget).status })
}
