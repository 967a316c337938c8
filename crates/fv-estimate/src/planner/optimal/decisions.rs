//! Every decision with the numbers behind it and what lost. Values are read from the plan itself.

use fv_program::optimal::Solution;
use fv_program::optimal::bucket::bucket;
use fv_program::optimal::instance::Counts;
use fv_program::wan::choice::Compute;
use fv_spec::plan::{Alternative, Decision, Numbers, OutputEffect, Pass, Plan, ReasonCode, Role, TextKeys};
use serde_json::Value;

use super::question::Resolved;
use super::solve::Solved;
use crate::planner::field::field;

const NONE: OutputEffect = OutputEffect::None;

fn numbers<const N: usize>(pairs: [(&str, u64); N]) -> Numbers {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), i64::try_from(value).unwrap_or(i64::MAX))).collect()
}

fn decision<const N: usize>(
    plan: &Plan,
    pass: Option<&Pass>,
    key: &str,
    reason: ReasonCode,
    effect: OutputEffect,
    pairs: [(&str, u64); N],
) -> Decision {
    Decision {
        key: key.to_owned(),
        value: field(plan, pass, key).unwrap_or(Value::Null),
        reason,
        numbers: numbers(pairs),
        alternatives: Vec::new(),
        output_effect: effect,
    }
}

/// Fills in the decisions of a plan and of its pass.
pub(super) fn explain(plan: &mut Plan, resolved: &Resolved, solved: &Solved<'_>) {
    let of_pass = plan.passes.first().map(|pass| pass_decisions(plan, pass, resolved, solved)).unwrap_or_default();
    let of_plan = plan_decisions(plan, resolved, solved);
    plan.decisions = of_plan;
    if let Some(pass) = plan.passes.first_mut() {
        pass.decisions = of_pass;
    }
}

/// One way to compute, in the words of decisions.
type Say = fn(&Compute) -> Value;

/// What a pass decides about how it computes; all of it is decided together.
const SETTINGS: [(&str, Say); 7] = [
    ("transformer.head_group", |way| way.head_group.into()),
    ("transformer.projection_chunk", |way| way.projection_chunk.into()),
    ("transformer.feed_forward_chunk", |way| way.feed_forward_chunk.into()),
    ("transformer.text_keys", |way| if way.text_keys == TextKeys::Kept { "kept".into() } else { "recomputed".into() }),
    ("transformer.paired_guidance", |way| way.paired_guidance.into()),
    ("transformer.outputs_on_host", |way| way.outputs_on_host.into()),
    ("transformer.residual_on_host", |way| way.residual_on_host.into()),
];

fn pass_decisions(plan: &Plan, pass: &Pass, resolved: &Resolved, solved: &Solved<'_>) -> Vec<Decision> {
    let chosen = &solved.chosen.transformer;
    let precision = resolved.system.precision;
    let asked = precision.source == fv_spec::plan::Source::Given;
    let effect = if solved.choices.formats.block_weights == solved.choices.formats.compute { NONE } else { OutputEffect::Quantised };
    let reason = if asked { ReasonCode::PrecisionAsked } else { ReasonCode::PrecisionUnchanged };
    let mut found = vec![
        decision(plan, Some(pass), "transformer.gemm", reason, effect, []),
        decision(plan, Some(pass), "transformer.attention.global", ReasonCode::OwnKernels, OutputEffect::Reordered, []),
    ];
    for (key, say) in SETTINGS {
        if field(plan, Some(pass), key).is_none() {
            continue;
        }
        let facts = [
            ("forecast_ns", chosen.ns),
            ("moved_bytes", chosen.moved_bytes),
            ("device_budget_bytes", solved.budgets.device_bytes),
            ("host_budget_bytes", solved.budgets.host_bytes),
        ];
        let mut made = decision(plan, Some(pass), key, ReasonCode::FastestWithinBudgets, NONE, facts);
        made.alternatives = others(solved, say);
        found.push(made);
    }
    let mut slots = decision(plan, Some(pass), "transformer.slots", slots_reason(chosen), NONE, [("forecast_ns", chosen.ns)]);
    slots.alternatives = other_slots(solved);
    found.push(slots);
    found
}

fn slots_reason(chosen: &Solution) -> ReasonCode {
    if chosen.counts.streamed == 0 { ReasonCode::EveryBlockFits } else { ReasonCode::FastestWithinBudgets }
}

/// The best way with each other value of a setting.
fn others(solved: &Solved<'_>, say: Say) -> Vec<Alternative> {
    let options = &solved.options;
    let ways = options.ways.all();
    let own = say(&ways[solved.chosen.transformer.configuration]);
    let mut values: Vec<Value> = Vec::new();
    for value in ways.iter().map(say).filter(|value| *value != own) {
        if !values.contains(&value) {
            values.push(value);
        }
    }
    let staged = |way: &Compute| way.outputs_on_host || way.residual_on_host;
    let other = |value: Value| {
        // Ways that nothing was compared with compute no faster than those that were, and move more.
        if !options.staged && ways.iter().filter(|way| say(way) == value).all(staged) {
            return Alternative { value, reason: ReasonCode::MovesMore, numbers: Numbers::new() };
        }
        let found = options.alternative(&solved.budgets, |way| say(way) == value, |_| true);
        lost(solved, value, found.as_ref())
    };
    values.into_iter().map(other).collect()
}

/// The same way with another number of slots.
fn other_slots(solved: &Solved<'_>) -> Vec<Alternative> {
    let chosen = &solved.chosen.transformer;
    if chosen.counts.streamed == 0 {
        return Vec::new();
    }
    let way = solved.options.ways.all()[chosen.configuration];
    let slots = (1..=fv_program::optimal::instance::MOST_SLOTS).filter(|slots| *slots != chosen.counts.slots);
    let other = |slots: u32| {
        let counts = |counts: &Counts| counts.slots == slots;
        let found = solved.options.alternative(&solved.budgets, |other| *other == way, counts);
        lost(solved, slots.into(), found.as_ref())
    };
    slots.map(other).collect()
}

/// Why a value lost.
fn lost(solved: &Solved<'_>, value: Value, found: Option<&Solution>) -> Alternative {
    let chosen = &solved.chosen.transformer;
    let Some(found) = found else { return Alternative { value, reason: ReasonCode::ExceedsBudgets, numbers: Numbers::new() } };
    let reason = if bucket(found.ns) > bucket(chosen.ns) {
        ReasonCode::SlowerForecast
    } else if found.moved_bytes > chosen.moved_bytes {
        ReasonCode::MovesMore
    } else {
        ReasonCode::MorePieces
    };
    Alternative { value, reason, numbers: numbers([("forecast_ns", found.ns), ("moved_bytes", found.moved_bytes)]) }
}

fn plan_decisions(plan: &Plan, resolved: &Resolved, solved: &Solved<'_>) -> Vec<Decision> {
    let mut found = Vec::with_capacity(24);
    let unsigned = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
    for (key, (_, reserved)) in [("budgets.vram.reserve_bytes", &resolved.vram), ("budgets.host.reserve_bytes", &resolved.host)] {
        let pairs = [("free_bytes", unsigned(reserved.free)), ("budget_bytes", unsigned(reserved.budget))];
        found.push(decision(plan, None, key, reserved.reason, NONE, pairs));
    }
    let experts = plan.placements.iter().map(|placement| placement.component).filter(|role| ![Role::TextEncoder, Role::Vae].contains(role));
    for role in experts {
        residency(plan, role.word(), &solved.chosen.transformer, solved, &mut found);
    }
    residency(plan, Role::TextEncoder.word(), &solved.chosen.text, solved, &mut found);
    found.push(decision(plan, None, "text_encoder.process", ReasonCode::EncoderSeparate, NONE, []));
    decoder(plan, solved, &mut found);
    found.push(decision(plan, None, "passes", ReasonCode::SinglePassAsked, NONE, []));
    found
}

/// Where the blocks of a component live.
fn residency(plan: &Plan, role: &str, solution: &Solution, solved: &Solved<'_>, found: &mut Vec<Decision>) {
    let counts = solution.counts;
    let Some(placement) = plan.placements.iter().find(|placement| placement.component.word() == role) else { return };
    let facts = [
        ("block_bytes", placement.block_bytes),
        ("need_bytes", solution.need.device_bytes),
        ("device_budget_bytes", solved.budgets.device_bytes),
        ("forecast_ns", solution.ns),
    ];
    let key = |what: &str| format!("{role}.{what}");
    let reason = if counts.streamed == 0 { ReasonCode::EveryBlockFits } else { ReasonCode::FastestWithinBudgets };
    found.push(decision(plan, None, &key("resident_blocks"), reason, NONE, facts));
    if counts.streamed == 0 {
        return;
    }
    let host = [("need_bytes", solution.need.host_bytes), ("host_budget_bytes", solved.budgets.host_bytes)];
    let (pinned, read) = match counts.disk {
        0 => (ReasonCode::PinEveryBlock, ReasonCode::NothingRead),
        _ => (ReasonCode::FastestWithinBudgets, ReasonCode::WeightsExceedHost),
    };
    found.push(decision(plan, None, &key("pin_bytes"), pinned, NONE, host));
    found.push(decision(plan, None, &key("disk_streaming"), read, NONE, host));
    found.push(decision(plan, None, &key("slots"), ReasonCode::FastestWithinBudgets, NONE, [("forecast_ns", solution.ns)]));
    if counts.disk > 0 {
        found.push(decision(plan, None, &key("disk_blocks"), ReasonCode::WeightsExceedHost, NONE, host));
        found.push(decision(plan, None, &key("ring"), ReasonCode::FastestWithinBudgets, NONE, [("forecast_ns", solution.ns)]));
    }
}

fn decoder(plan: &Plan, solved: &Solved<'_>, found: &mut Vec<Decision>) {
    let decode = &solved.chosen.decode;
    let facts =
        [("need_bytes", decode.need.device_bytes), ("device_budget_bytes", solved.budgets.device_bytes), ("forecast_ns", decode.ns)];
    let tiled = if decode.tiled { ReasonCode::NothingUntiledFits } else { ReasonCode::UntiledFits };
    let effect = if decode.tiled { OutputEffect::Different } else { NONE };
    found.push(decision(plan, None, "vae.tiled", tiled, effect, facts));
    found.push(decision(plan, None, "vae.level_frames", ReasonCode::FastestWithinBudgets, NONE, facts));
    let resident = if decode.residency.slots == 0 { ReasonCode::EveryBlockFits } else { ReasonCode::FastestWithinBudgets };
    found.push(decision(plan, None, "vae.resident_blocks", resident, NONE, facts));
}
