//! Every decision with its reason, the numbers behind it and what lost. Values are read from the plan itself.

use fv_spec::plan::{Alternative, Decision, Fit, GemmPath, Numbers, OutputEffect, Pass, Plan, ReasonCode};
use serde_json::Value;

use super::activation::{self, growth, windows_workspace_of};
use super::assemble::{self, FIRST};
use super::compute::BACKENDS;
use super::constants::{
    DECODER_DISK, DECODER_PINS, HEAD_PARALLELISM, HOST_BESIDE, HOST_OUTPUTS, LARGE, NEEDS, NO_WEIGHTS, OUTPUTS, PIN_CEILING, RESIDENT,
    SLOTS, SLOTS_LOWER, hundredths,
};
use super::decide::Decided;
use super::facts::Facts;
use super::question::Resolved;
use super::{residency, small};
use crate::planner::field::field;

fn numbers<const N: usize>(pairs: [(&str, i64); N]) -> Numbers {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn lost<const N: usize>(value: impl Into<Value>, reason: ReasonCode, pairs: [(&str, i64); N]) -> Alternative {
    Alternative { value: value.into(), reason, numbers: numbers(pairs) }
}

/// Collects decisions about a plan or one of its passes.
struct Maker<'a> {
    plan: &'a Plan,
    pass: Option<&'a Pass>,
    decisions: Vec<Decision>,
}

impl Maker<'_> {
    fn add<const N: usize>(
        &mut self,
        key: &str,
        reason: ReasonCode,
        output_effect: OutputEffect,
        pairs: [(&str, i64); N],
    ) -> &mut Decision {
        let value = field(self.plan, self.pass, key).unwrap_or(Value::Null);
        self.decisions.push(Decision {
            key: key.to_owned(),
            value,
            reason,
            numbers: numbers(pairs),
            alternatives: Vec::new(),
            output_effect,
        });
        let last = self.decisions.len() - 1;
        &mut self.decisions[last]
    }
}

const NONE: OutputEffect = OutputEffect::None;

/// Fills in the decisions of a plan and of its passes.
pub(super) fn explain(plan: &mut Plan, resolved: &Resolved, passes: &[assemble::Decision<'_>], target: &assemble::Decision<'_>) {
    let mut of_passes = Vec::with_capacity(passes.len());
    for (at, pass) in passes.iter().enumerate() {
        let mut maker = Maker { plan, pass: plan.passes.get(at), decisions: Vec::with_capacity(14) };
        canvas(&mut maker, passes.len(), pass);
        computation(&mut maker, resolved, pass);
        activations(&mut maker, pass.facts, pass.decided);
        slots(&mut maker, pass.facts, pass.decided);
        if pass.name == FIRST {
            let reason = if pass.facts.windows() { ReasonCode::CacheByFreeMemory } else { ReasonCode::CacheByFirstPass };
            maker.add(
                "transformer.cached_blocks",
                reason,
                NONE,
                [("first_pass_blocks", pass.decided.resident), ("resident_blocks", target.decided.resident)],
            );
        }
        of_passes.push(maker.decisions);
    }
    let mut maker = Maker { plan, pass: None, decisions: Vec::with_capacity(24) };
    budgets(&mut maker, target.facts, target.decided, resolved.tables);
    blocks(&mut maker, target.facts, target.decided);
    encoder(&mut maker, resolved);
    decoder(&mut maker, target.facts, target.decided);
    let reason = if resolved.two_pass.is_some() { ReasonCode::TwoPassAsked } else { ReasonCode::SinglePassAsked };
    maker.add("passes", reason, if resolved.two_pass.is_some() { OutputEffect::Different } else { NONE }, []);
    fit(&mut maker, target.decided);
    let decisions = maker.decisions;
    plan.decisions = decisions;
    for (pass, decisions) in plan.passes.iter_mut().zip(of_passes) {
        pass.decisions = decisions;
    }
}

fn budgets(maker: &mut Maker<'_>, facts: &Facts, decided: &Decided, tables: i64) {
    let Decided { vram, host, .. } = decided;
    let made = maker.add(
        "budgets.vram.reserve_bytes",
        vram.reason,
        NONE,
        [("free_bytes", vram.free), ("reserve_bytes", vram.reserve), ("budget_bytes", vram.budget)],
    );
    if vram.relaxed() {
        let usual = hundredths(super::constants::RESERVE_VRAM[0]);
        let compared = [("budget_bytes", vram.free - usual), ("residual_working_set_bytes", decided.thresholds.residual)];
        made.alternatives.push(lost(usual, ReasonCode::WorkingSetTooLarge, compared));
    }
    maker.add(
        "budgets.host.reserve_bytes",
        host.reason,
        NONE,
        [("free_bytes", host.free), ("reserve_bytes", host.reserve), ("budget_bytes", host.budget)],
    );
    if facts.workspace > 0 {
        let taken = [("adapter_bytes", facts.workspace - tables), ("table_bytes", tables), ("placement_budget_bytes", decided.budget)];
        maker.add("budgets.vram.workspace_bytes", ReasonCode::PlacementWorkspace, NONE, taken);
    }
    if decided.retention != host.budget {
        maker.add("budgets.host.retention_bytes", ReasonCode::RetentionDemonstrated, NONE, [("budget_bytes", host.budget)]);
    }
}

fn blocks(maker: &mut Maker<'_>, facts: &Facts, decided: &Decided) {
    let Decided { budget, fitting, resident, host_wants, retention, host_work, way, .. } = *decided;
    let mut pairs =
        numbers([("budget_bytes", budget), ("block_bytes", facts.block), ("fitting_blocks", fitting), ("host_wants_blocks", host_wants)]);
    pairs.extend(way.working_set.map(|bytes| ("working_set_bytes".to_owned(), bytes)));
    let made = maker.add("transformer.resident_blocks", decided.resident_reason, NONE, []);
    made.numbers = pairs;
    if way.path == ReasonCode::PathNoWeights {
        made.alternatives.push(lost(1, ReasonCode::TableExceedsBudget, table_reserve(facts, budget)));
    }
    if resident < fitting {
        made.alternatives.push(lost(
            fitting,
            ReasonCode::ResidentTarget,
            [("target_blocks", RESIDENT[0]), ("host_wants_blocks", host_wants)],
        ));
    }
    let off = (facts.shape.blocks - resident) * facts.block;
    maker.add(
        "transformer.disk_streaming",
        decided.disk_reason,
        NONE,
        [
            ("blocks_off_device_bytes", off),
            ("host_work_bytes", host_work),
            ("host_beside_bytes", hundredths(HOST_BESIDE)),
            ("retention_bytes", retention),
        ],
    );
    let made = maker.add(
        "transformer.pin_bytes",
        decided.pin_reason,
        NONE,
        [("retention_bytes", retention), ("headroom_bytes", decided.pin_headroom), ("blocks_off_device_bytes", off)],
    );
    if decided.pin_reason == ReasonCode::PinBeyondFitting {
        let limit = residency::beyond(facts, fitting);
        made.numbers.extend(numbers([("fitting_blocks", fitting), ("blocks_beyond_fitting_bytes", limit)]));
        let possible = off.min(PIN_CEILING).min(retention - decided.pin_headroom);
        if possible > limit {
            made.alternatives.push(lost(possible, ReasonCode::PinBeyondFitting, [("blocks_beyond_fitting_bytes", limit)]));
        }
    }
    if decided.pin_reason == ReasonCode::PinAllOrNothing {
        let possible = (retention - decided.pin_headroom).max(0);
        made.alternatives.push(lost(possible, ReasonCode::PinAllOrNothing, [("blocks_off_device_bytes", off)]));
    }
}

fn encoder(maker: &mut Maker<'_>, resolved: &Resolved) {
    let reason = if resolved.conditioning_at_hand { ReasonCode::ConditioningAtHand } else { ReasonCode::EncoderSeparate };
    maker.add("text_encoder.process", reason, NONE, []);
}

fn decoder(maker: &mut Maker<'_>, facts: &Facts, decided: &Decided) {
    let Decided { vram, host, thresholds, decoder: choice, .. } = decided;
    let whole = if choice.offload { ReasonCode::DecoderOffload } else { ReasonCode::DecoderWhole };
    maker.add("vae.offload", whole, NONE, [("budget_bytes", vram.budget), ("threshold_bytes", hundredths(LARGE))]);
    let every = choice.resident == facts.shape.decoder_blocks;
    let reason = match choice.offload {
        false => ReasonCode::DecoderNotOffloaded,
        true if every => ReasonCode::DecoderEveryBlock,
        true => ReasonCode::VramLimit,
    };
    maker.add(
        "vae.resident_blocks",
        reason,
        NONE,
        [("budget_bytes", vram.budget), ("workspace_bytes", thresholds.decoder), ("block_bytes", facts.shape.decoder_block)],
    );
    let reason = match choice.offload {
        false => ReasonCode::DecoderNotOffloaded,
        true if choice.second_slot => ReasonCode::SlotsByBudget,
        true => ReasonCode::DecoderSmallBand,
    };
    maker.add("vae.slots", reason, NONE, [("budget_bytes", vram.budget)]);
    maker.add("vae.tile_group", whole, NONE, []);
    maker.add("vae.preload", ReasonCode::PublishedConstant, NONE, []);
    for (key, threshold, on) in [("vae.pin_weights", DECODER_PINS, choice.pin_weights), ("vae.disk_streaming", DECODER_DISK, choice.disk)] {
        let above = host.budget >= hundredths(threshold);
        let reason = match choice.offload {
            false => ReasonCode::DecoderNotOffloaded,
            true if above => ReasonCode::HostAbove,
            true => ReasonCode::HostBelow,
        };
        debug_assert!(choice.offload || !on, "{key}");
        maker.add(key, reason, NONE, [("budget_bytes", host.budget), ("threshold_bytes", hundredths(threshold))]);
    }
    let reason = match choice.stream_output {
        true if choice.offload => ReasonCode::DecoderOffload,
        true => ReasonCode::HostCannotHoldVideo,
        false => ReasonCode::HostHoldsVideo,
    };
    maker.add("vae.stream_output", reason, NONE, [("budget_bytes", host.budget), ("threshold_bytes", choice.output_minimum)]);
    let reason = if choice.half_precision_cache { ReasonCode::CardHasHalfCache } else { ReasonCode::CardHasNoHalfCache };
    // The decoder runs with automatic casting to FP16, so that the stored copy is what would be computed with anyway.
    maker.add("vae.half_precision_cache", reason, NONE, []);
}

/// Whether the policy's own figures are within their limits, and which is not.
fn fit(maker: &mut Maker<'_>, decided: &Decided) {
    if maker.plan.fit == Fit::Fits {
        return;
    }
    if decided.way.path == ReasonCode::CapacityTrial {
        maker.add("fit", ReasonCode::CapacityTrial, NONE, [("budget_bytes", decided.vram.budget)]);
        return;
    }
    let over = maker.plan.peaks.iter().max_by_key(|peak| peak.bytes.saturating_sub(peak.limit_bytes));
    let [peak, limit] = over.map_or([0, 0], |peak| [peak.bytes, peak.limit_bytes].map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)));
    maker.add("fit", ReasonCode::OverOwnFigure, NONE, [("peak_bytes", peak), ("limit_bytes", limit)]);
}

fn canvas(maker: &mut Maker<'_>, passes: usize, pass: &assemble::Decision<'_>) {
    if passes < 2 || pass.name != FIRST {
        return;
    }
    let request = &maker.plan.request;
    let size = [request.width, request.height];
    let reason = match pass.facts.canvas {
        canvas if [canvas.width, canvas.height] == size => ReasonCode::SameCanvas,
        _ if size[0].min(size[1]) >= super::constants::HALVED_FROM => ReasonCode::HalfCanvas,
        _ => ReasonCode::SmallCanvas,
    };
    maker.add("canvas", reason, OutputEffect::Different, [("width", size[0].into()), ("height", size[1].into())]);
}

fn computation(maker: &mut Maker<'_>, resolved: &Resolved, pass: &assemble::Decision<'_>) {
    let decided = pass.decided;
    let effect = if decided.gemm == GemmPath::Bf16 { NONE } else { OutputEffect::Quantised };
    maker.add("transformer.gemm", ReasonCode::GemmByPrecision, effect, []);
    let available = &resolved.system.attention_backends.value;
    let reason = if resolved.attention_asked { ReasonCode::AttentionAsked } else { ReasonCode::AttentionFirstAvailable };
    for (key, chosen) in
        [("transformer.attention.global", Some(resolved.attention.global)), ("transformer.attention.window", resolved.attention.window)]
    {
        let sage = chosen == Some(fv_spec::plan::AttentionBackend::Sage2);
        let made = maker.add(key, reason, if sage { OutputEffect::Quantised } else { OutputEffect::Reordered }, []);
        for backend in BACKENDS.into_iter().filter(|backend| Some(*backend) != chosen) {
            let reason = if available.contains(&backend) { ReasonCode::AttentionLater } else { ReasonCode::AttentionUnavailable };
            made.alternatives.push(lost(backend.word(), reason, []));
        }
    }
    let card = if pass.facts.ampere_bf16() { ReasonCode::CardConstant } else { ReasonCode::PublishedConstant };
    maker.add("transformer.feed_forward_chunk", ReasonCode::PublishedConstant, OutputEffect::Reordered, []);
    maker.add("transformer.projection_chunk", ReasonCode::PublishedConstant, OutputEffect::Reordered, []);
    maker.add("transformer.window_batch", card, OutputEffect::Reordered, []);
    let made = maker.add("transformer.head_parallelism", ReasonCode::PublishedConstant, NONE, []);
    made.alternatives.push(lost(2 * HEAD_PARALLELISM, ReasonCode::OnlyAfterSearch, []));
    let reason = if decided.recompute { ReasonCode::RecomputeInTrial } else { ReasonCode::RecomputeNotNeeded };
    maker.add("transformer.feed_forward_recompute", reason, NONE, []);
}

fn activations(maker: &mut Maker<'_>, facts: &Facts, decided: &Decided) {
    let Decided { budget, way, needs, .. } = *decided;
    let mut need = Numbers::new();
    for ((heads, _), bytes) in NEEDS.iter().zip(needs) {
        need.insert(format!("need_{heads}_heads_bytes"), bytes);
    }
    need.insert("budget_bytes".to_owned(), budget);
    let made = maker.add("transformer.head_group", way.group_reason, OutputEffect::Reordered, []);
    made.numbers = need;
    for ((heads, _), bytes) in NEEDS.iter().zip(needs).filter(|((heads, _), _)| *heads > way.group) {
        made.alternatives.push(wider(facts, decided, *heads, bytes));
    }
    let fits = !way.outputs_on_host;
    let reason = match way.path {
        ReasonCode::PathTable | ReasonCode::PathResidual if !fits => ReasonCode::OutputsExceedAllowance,
        ReasonCode::PathTable | ReasonCode::PathResidual | ReasonCode::MeasuredTable => ReasonCode::OutputsFit,
        path => path,
    };
    let made = maker.add(
        "transformer.outputs_on_host",
        reason,
        OutputEffect::Reordered,
        [("budget_bytes", budget), ("allowance_bytes", hundredths(OUTPUTS))],
    );
    made.numbers.extend(way.working_set.map(|bytes| ("working_set_bytes".to_owned(), bytes)));
    let reason = match way.path {
        ReasonCode::PathResidual => ReasonCode::PathResidual,
        _ if !way.residual_on_host => ReasonCode::ResidualFits,
        ReasonCode::PathTable | ReasonCode::PathHostOutputs => ReasonCode::ResidualWithOutputs,
        path => path,
    };
    let free = decided.vram.free - facts.workspace;
    let made = maker.add("transformer.residual_on_host", reason, NONE, [("budget_bytes", budget), ("free_bytes", free)]);
    if matches!(way.path, ReasonCode::PathHostOutputs | ReasonCode::PathResidual) {
        made.alternatives.push(lost(false, ReasonCode::TableExceedsBudget, table_reserve(facts, budget)));
    }
    if !facts.windows() && matches!(way.path, ReasonCode::PathHostOutputs | ReasonCode::PathResidual) {
        let at = |value: i64| hundredths(value) + growth(facts.rows);
        made.alternatives.push(lost(false, ReasonCode::NoWeightsExceedsFree, [("free_bytes", free), ("peak_bytes", at(NO_WEIGHTS))]));
        if way.path == ReasonCode::PathResidual {
            let compared = [("free_bytes", free), ("peak_bytes", at(HOST_OUTPUTS))];
            made.alternatives.push(lost(true, ReasonCode::HostOutputsOutOfRange, compared));
        }
    }
}

/// What the table of reserves asks for, which the budget does not cover.
fn table_reserve(facts: &Facts, budget: i64) -> [(&'static str, i64); 2] {
    let (_, _, reserve) = small::table(facts, budget, activation::heads(facts, budget));
    [("reserve_bytes", reserve), ("budget_bytes", budget)]
}

/// Why a wider group of heads lost.
fn wider(facts: &Facts, decided: &Decided, heads: u32, need: i64) -> Alternative {
    let budget = decided.budget;
    if need > budget {
        return lost(heads, ReasonCode::WorkingSetTooLarge, [("need_bytes", need), ("budget_bytes", budget)]);
    }
    if facts.windows() && heads > 8 && budget < hundredths(LARGE) {
        return lost(heads, ReasonCode::HeadGroupNotTried, [("budget_bytes", budget), ("threshold_bytes", hundredths(LARGE))]);
    }
    if facts.has_workspace() && !decided.small {
        let workspace = windows_workspace_of(facts, false, heads);
        return lost(heads, ReasonCode::WorkspaceTooLarge, [("workspace_bytes", workspace), ("budget_bytes", budget)]);
    }
    lost(heads, if decided.way.path == ReasonCode::PathTable { ReasonCode::HeadGroupConditions } else { decided.way.path }, [])
}

fn slots(maker: &mut Maker<'_>, facts: &Facts, decided: &Decided) {
    let made = maker.add(
        "transformer.slots",
        decided.slot_reason,
        NONE,
        [("budget_bytes", decided.budget), ("threshold_bytes", hundredths(SLOTS)), ("lower_threshold_bytes", hundredths(SLOTS_LOWER))],
    );
    if decided.slot_reason == ReasonCode::SlotWorkspace {
        let workspace = windows_workspace_of(facts, true, decided.way.group);
        made.alternatives.push(lost(2, ReasonCode::SlotWorkspace, [("workspace_bytes", workspace), ("budget_bytes", decided.budget)]));
    }
}
