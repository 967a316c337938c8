//! What is short, and what would do instead. Everything that is offered was planned by the same rules.

use fv_program::optimal::Least as Need;
use fv_spec::compiled::RulesFile;
use fv_spec::plan::budget::Resource;
use fv_spec::plan::refusal::{Both, Direction, Least, Nearest, PlanChange, Refusal, Shortfall, Smallest};
use fv_spec::plan::{Fit, OutputEffect, PolicyName, Precision, ReasonCode, Runtime, Sourced, VERSION};

use super::model::Covered;
use super::question::{Asked, Question, Resolved};
use super::solve::Short;
use super::{Depth, Planner, budget};
use crate::planner::Outcome;
use crate::planner::freevideo::question::Pool;

/// A refusal without what would do instead.
pub(super) fn refuse(covered: &Covered, resolved: &Resolved, short: &Short) -> Refusal {
    let mut notes = resolved.notes.clone();
    notes.push(format!("what does not fit is the {}", short.role.word().replace('_', " ")));
    Refusal {
        version: VERSION,
        policy: PolicyName::Optimal,
        model: covered.model.id.clone(),
        runtime: Runtime::FvRun,
        system: resolved.system.clone(),
        request: resolved.request.clone(),
        budgets: resolved.budgets.to_vec(),
        shortfalls: shortfalls(resolved, short),
        smallest: None,
        nearest: Vec::new(),
        changes: Vec::new(),
        notes,
    }
}

/// What the part asks for at least of each pool, the other one being as it is; of both where each is too small by itself.
fn shortfalls(resolved: &Resolved, short: &Short) -> Vec<Shortfall> {
    let [device, host] = [resolved.layout.device_bytes, resolved.layout.host_bytes];
    let least = |of: fn(&Need) -> u64, within: &dyn Fn(&Need) -> bool| short.needs.iter().filter(|need| within(need)).map(of).min();
    let device_of: fn(&Need) -> u64 = |need| need.device_bytes;
    let host_of: fn(&Need) -> u64 = |need| need.host_bytes;
    let by_device = least(device_of, &|need| need.host_bytes <= host);
    let by_host = least(host_of, &|need| need.device_bytes <= device);
    let shortfall = |resource: Resource, least: u64, extra: u64| {
        let at = usize::from(resource == Resource::Host);
        let pool = &resolved.budgets[at];
        let minimum = least + extra;
        (minimum > pool.budget_bytes).then(|| Shortfall {
            resource,
            rank: (resource != Resource::Host).then_some(0),
            available_bytes: pool.capacity_bytes,
            reserve_bytes: pool.reserve_bytes,
            usable_bytes: pool.budget_bytes,
            minimum_bytes: minimum,
            shortfall_bytes: minimum - pool.budget_bytes,
            reason: ReasonCode::NoLayoutFits,
        })
    };
    let context = resolved.context_bytes;
    let found = match (by_device, by_host) {
        (Some(least), _) => vec![shortfall(Resource::Vram, least, context)],
        (None, Some(least)) => vec![shortfall(Resource::Host, least, 0)],
        (None, None) => {
            let both = short.needs.iter().min_by_key(|need| (need.device_bytes.saturating_sub(device), need.host_bytes));
            both.map_or_else(Vec::new, |need| {
                vec![shortfall(Resource::Vram, need.device_bytes, context), shortfall(Resource::Host, need.host_bytes, 0)]
            })
        }
    };
    found.into_iter().flatten().collect()
}

/// Whether a question has a plan.
fn planned(planner: &Planner, question: &Question, rules: &RulesFile) -> bool {
    matches!(planner.plan(question, rules, Depth::Outline), Ok(Outcome::Planned(_)))
}

/// The question with other pools of so much free memory.
fn with_free(question: &Question, vram: Option<u64>, host: Option<u64>) -> Question {
    let mut other = question.clone();
    for (pool, bytes) in [(&mut other.machine.vram, vram), (&mut other.machine.host, host)] {
        if let (Some(pool), Some(bytes)) = (pool.as_mut(), bytes) {
            *pool = Pool { reserve_bytes: pool.reserve_bytes, ..Pool::given(bytes) };
        }
    }
    other
}

/// Fills in what would do.
pub(super) fn advise(planner: &Planner, question: &Question, rules: &RulesFile, resolved: &Resolved, mut refusal: Refusal) -> Refusal {
    refusal.smallest = Some(smallest(planner, question, rules, resolved));
    refusal.nearest = nearest(planner, question, rules, resolved);
    refusal.changes = changes(planner, question, rules, resolved);
    refusal
}

/// The most memory that is searched for.
const MOST: u64 = 1 << 40;
/// Memory is searched for in steps of this.
const STEP: u64 = 1 << 20;

/// The least amount with which something holds that holds with every larger one.
fn search(holds: impl Fn(u64) -> bool) -> Option<u64> {
    if !holds(MOST) {
        return None;
    }
    let (mut low, mut high) = (1, MOST / STEP);
    while low < high {
        let middle = low + (high - low) / 2;
        if holds(middle * STEP) { high = middle } else { low = middle + 1 }
    }
    Some(low * STEP)
}

/// The least memory: more never hurts, so that intervals can be halved.
fn smallest(planner: &Planner, question: &Question, rules: &RulesFile, resolved: &Resolved) -> Smallest {
    let vram = search(|bytes| planned(planner, &with_free(question, Some(bytes), None), rules));
    let host = search(|bytes| planned(planner, &with_free(question, None, Some(bytes)), rules));
    let both = (vram.is_none() && host.is_none()).then(|| {
        let vram = search(|bytes| planned(planner, &with_free(question, Some(bytes), Some(MOST)), rules))?;
        let host = search(|bytes| planned(planner, &with_free(question, Some(vram), Some(bytes)), rules))?;
        Some(Both { vram_bytes: vram, host_bytes: host, fit: Fit::Fits })
    });
    let least = |bytes: u64| Least { bytes, fit: Fit::Fits, fits_bytes: None };
    debug_assert!(vram.is_none_or(|bytes| bytes + STEP > budget::free_for(0, budget_of(resolved))));
    Smallest { vram: vram.map(least), host: host.map(least), both: both.flatten(), both_fits: None, unified_bytes: None }
}

fn budget_of(resolved: &Resolved) -> impl Fn(u64) -> crate::planner::freevideo::budget::Reserved {
    let reserve = resolved.vram.0.reserve_bytes;
    move |free| budget::vram(&Pool { reserve_bytes: reserve, ..Pool::given(free) })
}

/// The most frames at the same size, and the largest size with the same frames.
fn nearest(planner: &Planner, question: &Question, rules: &RulesFile, resolved: &Resolved) -> Vec<Nearest> {
    let legal = &planner.covered().legal;
    let (width, height, frames) = (resolved.request.width, resolved.request.height, resolved.request.frames);
    let fits = |width: u32, height: u32, frames: u32| {
        let request = Asked { width: Some(width), height: Some(height), frames: Some(frames), seconds: None, ..question.request.clone() };
        planned(planner, &Question { request, ..question.clone() }, rules)
    };
    let place = legal.place_of_frames(frames);
    let fewer = most(place, |place| fits(width, height, legal.frames(place))).map(|place| (width, height, legal.frames(place)));
    let sizes: Vec<[u32; 2]> = legal
        .sizes(height, width)
        .into_iter()
        .filter(|[rows, columns]| *rows <= height && *columns <= width && [*rows, *columns] != [height, width])
        .collect();
    let count = u32::try_from(sizes.len()).unwrap_or(0);
    let smaller = most(count, |at| fits(sizes[at as usize][1], sizes[at as usize][0], frames));
    let smaller = smaller.map(|at| (sizes[at as usize][1], sizes[at as usize][0], frames));
    let found = [(Direction::FewerFrames, fewer), (Direction::SmallerSize, smaller)];
    let nearest = |(direction, found): (Direction, Option<(u32, u32, u32)>)| {
        found.map(|(width, height, frames)| Nearest { direction, width, height, frames, fit: Fit::Fits })
    };
    found.into_iter().filter_map(nearest).collect()
}

/// The largest number below `count` with which something holds that holds with every smaller one.
fn most(count: u32, holds: impl Fn(u32) -> bool) -> Option<u32> {
    if count == 0 || !holds(0) {
        return None;
    }
    let (mut low, mut high) = (0, count - 1);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    Some(low)
}

/// What else would make the same request fit.
fn changes(planner: &Planner, question: &Question, rules: &RulesFile, resolved: &Resolved) -> Vec<PlanChange> {
    let mut found = Vec::new();
    let mut offer = |question: Question, reason: ReasonCode, message: &str, arguments: &str, output_effect: OutputEffect| {
        if planned(planner, &question, rules) {
            let arguments = Some(arguments.to_owned());
            found.push(PlanChange { reason, message: message.to_owned(), arguments, free_bytes: None, fit: Fit::Fits, output_effect });
        }
    };
    let least = (1_u64 << 30) / 5;
    if resolved.budgets[0].reserve_bytes > least {
        let mut other = question.clone();
        if let Some(pool) = other.machine.vram.as_mut() {
            pool.reserve_bytes = Some(least.next_multiple_of(STEP));
        }
        offer(other, ReasonCode::LowerReserve, "keep 0.2 GiB of device memory in reserve", "--gpu-reserve-gib 0.2", OutputEffect::None);
    }
    if resolved.budgets[1].reserve_bytes > 0 {
        let mut other = question.clone();
        if let Some(pool) = other.machine.host.as_mut() {
            pool.reserve_bytes = Some(0);
        }
        offer(other, ReasonCode::LowerReserve, "keep no host memory in reserve", "--ram-reserve-gib 0", OutputEffect::None);
    }
    if resolved.system.precision.value == Precision::Bf16 {
        let mut other = question.clone();
        other.machine.precision = Some(Sourced::given(Precision::Fp8));
        let message = "store the weights of blocks in FP8, with a scale for each row";
        offer(other, ReasonCode::EightBitWeights, message, "--precision fp8", OutputEffect::Quantised);
    }
    found
}
