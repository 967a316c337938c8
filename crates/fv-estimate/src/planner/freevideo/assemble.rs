//! A plan made of what was decided.

use fv_spec::plan::budget::{Budget, Limit, Resource};
use fv_spec::plan::{
    BlockRun, Compute, Decoder, Encoder, EncoderProcess, Fit, Pass, Peak, PeakMetric, Placement, Plan, PolicyName, ReasonCode, Role,
    Runtime, StageName, Tier, Tiles, TwoPass, VERSION,
};

use super::activation::windows_workspace_of;
use super::budget::Reserved;
use super::constants::{ENCODER_HOST, FEED_FORWARD_CHUNK, HEAD_PARALLELISM, PROJECTION_CHUNK, hundredths};
use super::decide::Decided;
use super::facts::{Canvas, Facts};
use super::question::{Planner, Pool, Resolved};
use super::{decisions, two_pass};
use crate::minimax_h3::video_vae;
use crate::planner::sealed;

/// One pass as it was decided.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decision<'a> {
    pub name: &'static str,
    pub facts: &'a Facts,
    pub decided: &'a Decided,
    pub steps: u32,
}

pub(super) fn bytes(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

fn count(value: i64) -> u32 {
    u32::try_from(value).unwrap_or(0)
}

/// The plan. `passes`: in order, the last one on the canvas that was asked for.
pub(super) fn plan(planner: &Planner, resolved: &Resolved, passes: &[Decision<'_>], target: &Decision<'_>) -> Plan {
    let facts = target.facts;
    let decided = target.decided;
    let two = between(passes);
    let placements = vec![transformer(facts, decided, passes), decoder_placement(facts, decided)];
    let figures = figures(target, passes, two.as_ref());
    let fit = fit_of(&figures, passes);
    let mut plan = Plan {
        version: VERSION,
        id: String::new(),
        policy: PolicyName::Freevideo,
        model: planner.model.clone(),
        runtime: Runtime::FreeVideo,
        system: resolved.system.clone(),
        request: resolved.request.clone(),
        budgets: budgets(resolved, &decided.vram, &decided.host, Some(decided)),
        fit,
        placements,
        encoders: vec![encoder(resolved)],
        passes: passes.iter().map(|pass| compute(resolved, pass, target)).collect(),
        two_pass: two,
        decoders: vec![decoder(facts, decided)],
        peaks: figures.iter().map(Figure::peak).collect(),
        arena: None,
        forecast: None,
        unforecast: Vec::new(),
        decisions: Vec::new(),
        notes: resolved.notes.clone(),
        plan_revisions: Vec::new(),
    };
    decisions::explain(&mut plan, resolved, passes, target);
    sealed(plan)
}

/// What comes between two passes.
fn between(passes: &[Decision<'_>]) -> Option<TwoPass> {
    let [first, second] = passes else { return None };
    Some(two_pass::between(&second.facts.canvas, &first.facts.canvas, [first.steps, second.steps]))
}

/// Whether a plan of these passes fits.
pub(super) fn fit(passes: &[Decision<'_>], target: &Decision<'_>) -> Fit {
    fit_of(&figures(target, passes, between(passes).as_ref()), passes)
}

/// The budgets as they are reported.
pub(super) fn budgets(resolved: &Resolved, vram: &Reserved, host: &Reserved, decided: Option<&Decided>) -> Vec<Budget> {
    let facts = &resolved.facts;
    let limited = |budget: i64| Some(bytes(budget));
    let mut found = Vec::with_capacity(2);
    if let Some(pool) = &resolved.vram {
        let cap = match decided {
            // On Windows the allocator is always capped, elsewhere only in a trial.
            Some(decided) if facts.windows() || decided.way.path == ReasonCode::CapacityTrial => limited(vram.budget),
            _ => None,
        };
        let workspace_bytes = bytes(facts.workspace);
        found.push(Budget { allocator_limit_bytes: cap, workspace_bytes, rank: Some(0), ..budget(Resource::Vram, pool, vram) });
    }
    let retention = decided.filter(|decided| decided.retention != host.budget).map(|decided| bytes(decided.retention));
    found.push(Budget { retention_bytes: retention, ..budget(Resource::Host, &resolved.host, host) });
    found
}

/// One pool.
pub(in crate::planner) fn budget(resource: Resource, pool: &Pool, reserved: &Reserved) -> Budget {
    let capacity = pool.capacity();
    let limits = [
        (Limit::Free, Some(&pool.free)),
        (Limit::CgroupLimit, pool.cgroup_limit.as_ref()),
        (Limit::Cap, pool.cap.as_ref()),
        (Limit::Total, pool.total.as_ref()),
    ];
    let limited_by =
        limits.iter().find(|(_, amount)| amount.is_some_and(|amount| amount.bytes == capacity)).map_or(Limit::Free, |(limit, _)| *limit);
    Budget {
        resource,
        rank: None,
        total: pool.total.clone(),
        free: pool.free.clone(),
        cap: pool.cap.clone(),
        cgroup_limit: pool.cgroup_limit.clone(),
        capacity_bytes: capacity,
        limited_by,
        reserve_bytes: bytes(reserved.reserve),
        reserve_reason: reserved.reason,
        budget_bytes: bytes(reserved.budget),
        workspace_bytes: 0,
        allocator_limit_bytes: None,
        retention_bytes: None,
    }
}

/// Runs of blocks: on the device first, then page-locked, then the rest. The policy publishes counts; the order is ours.
fn runs(counts: [(Tier, i64); 4]) -> Vec<BlockRun> {
    counts.into_iter().filter(|(_, blocks)| *blocks > 0).map(|(tier, blocks)| BlockRun { tier, count: count(blocks) }).collect()
}

fn transformer(facts: &Facts, decided: &Decided, passes: &[Decision<'_>]) -> Placement {
    let off = facts.shape.blocks - decided.resident;
    // A whole block is page-locked or none of it.
    let pinned = (decided.pin / facts.block).min(off);
    let rest = off - pinned;
    let tier = if decided.disk { Tier::Disk } else { Tier::Pageable };
    Placement {
        component: Role::Transformer,
        rank: 0,
        block_count: count(facts.shape.blocks),
        block_bytes: bytes(facts.block),
        runs: runs([(Tier::Device, decided.resident), (Tier::Pinned, pinned), (tier, rest), (tier, 0)]),
        slots: if off > 0 { passes.iter().map(|pass| slots(pass.decided)).max().unwrap_or(1) } else { 0 },
        pin_bytes: bytes(decided.pin),
        disk_streaming: decided.disk,
        ring: None,
    }
}

fn slots(decided: &Decided) -> u32 {
    1 + u32::from(decided.second_slot)
}

fn decoder_placement(facts: &Facts, decided: &Decided) -> Placement {
    let choice = &decided.decoder;
    let off = facts.shape.decoder_blocks - choice.resident;
    let tier = match choice {
        _ if choice.pin_weights => Tier::Pinned,
        _ if choice.disk => Tier::Disk,
        _ => Tier::Pageable,
    };
    Placement {
        component: Role::Vae,
        rank: 0,
        block_count: count(facts.shape.decoder_blocks),
        block_bytes: bytes(facts.shape.decoder_block),
        runs: runs([(Tier::Device, choice.resident), (tier, off), (tier, 0), (tier, 0)]),
        slots: if choice.offload { 1 + u32::from(choice.second_slot) } else { 0 },
        pin_bytes: if choice.pin_weights { bytes(off * facts.shape.decoder_block) } else { 0 },
        disk_streaming: choice.disk,
        ring: None,
    }
}

fn encoder(resolved: &Resolved) -> Encoder {
    let skipped = resolved.conditioning_at_hand;
    Encoder {
        component: Role::TextEncoder,
        process: if skipped { EncoderProcess::Skipped } else { EncoderProcess::Separate },
        host_minimum_bytes: (!skipped).then(|| bytes(hundredths(ENCODER_HOST))),
    }
}

fn compute(resolved: &Resolved, pass: &Decision<'_>, target: &Decision<'_>) -> Pass {
    let Decided { way, gemm, window_batch, recompute, .. } = *pass.decided;
    let Canvas { width, height, video_tokens, .. } = pass.facts.canvas;
    Pass {
        name: pass.name.to_owned(),
        width,
        height,
        video_tokens,
        steps: pass.steps,
        compute: vec![Compute {
            component: Role::Transformer,
            gemm,
            attention: resolved.attention,
            head_group: way.group,
            head_parallelism: HEAD_PARALLELISM,
            outputs_on_host: way.outputs_on_host,
            residual_on_host: way.residual_on_host,
            feed_forward_recompute: recompute,
            feed_forward_chunk: FEED_FORWARD_CHUNK,
            projection_chunk: PROJECTION_CHUNK,
            window_batch: Some(window_batch),
            slots: slots(pass.decided),
            text_keys: None,
            paired_guidance: None,
        }],
        block_cache: (pass.name == FIRST).then(|| two_pass::cache(target.facts, target.decided, pass.decided)),
        decisions: Vec::new(),
    }
}

/// Names of passes.
pub(super) const ONLY: &str = "only";
pub(super) const FIRST: &str = "first";
pub(super) const SECOND: &str = "second";
/// The name under which what comes between two passes is reported.
pub(in crate::planner) const UPSCALE: &str = "upscale";

/// Clips along time, latent frames that each sees, and tiles of a frame: what the decoder's rules make of a canvas.
pub(in crate::planner) fn clips_and_tiles(canvas: &Canvas) -> (u32, u32, Tiles) {
    let [rows, columns] = video_vae::tile_counts(canvas.height.into(), canvas.width.into());
    let narrow = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
    let tiles = Tiles {
        columns: narrow(columns),
        rows: narrow(rows),
        tile_pixels: video_vae::TILING.tile[0],
        overlap_pixels: video_vae::TILING.tile[0] - video_vae::TILING.stride[0],
    };
    // Five latent frames of each clip are its own, and two more belong to the last.
    ((canvas.latent_frames.saturating_sub(2) / 5).max(1), narrow(video_vae::WINDOW), tiles)
}

fn decoder(facts: &Facts, decided: &Decided) -> Decoder {
    let choice = &decided.decoder;
    let (clips, clip_latent_frames, tiles) = clips_and_tiles(&facts.canvas);
    Decoder {
        component: Role::Vae,
        offload: choice.offload,
        tile_group: choice.offload,
        preload: false,
        pin_weights: choice.pin_weights,
        stream_output: choice.stream_output,
        half_precision_cache: choice.half_precision_cache,
        clips,
        clip_latent_frames,
        tiles: Some(tiles),
        level_frames: None,
    }
}

/// A predicted peak in numbers.
struct Figure {
    stage: StageName,
    pass: Option<&'static str>,
    tier: Tier,
    value: i64,
    limit: i64,
    basis: ReasonCode,
}

impl Figure {
    fn peak(&self) -> Peak {
        let device = self.tier == Tier::Device;
        Peak {
            stage: self.stage,
            pass: self.pass.map(str::to_owned),
            tier: self.tier,
            rank: device.then_some(0),
            metric: if device { PeakMetric::Device } else { PeakMetric::Held },
            bytes: bytes(self.value),
            limit_bytes: bytes(self.limit),
            basis: self.basis,
        }
    }
}

/// Predicted peaks: of what the policy has a figure for, and nothing else.
fn figures(target: &Decision<'_>, passes: &[Decision<'_>], two: Option<&TwoPass>) -> Vec<Figure> {
    let Decision { facts, decided, .. } = *target;
    let budget = decided.vram.budget;
    let device = |stage, pass, value, limit, basis| Figure { stage, pass, tier: Tier::Device, value, limit, basis };
    let mut figures = Vec::with_capacity(8);
    for pass in passes {
        let way = &pass.decided.way;
        let Some(working_set) = way.working_set else { continue };
        let value = working_set + facts.workspace + decided.resident * facts.block;
        let limit = if way.against_free() { decided.vram.free } else { budget };
        figures.push(device(StageName::Denoising, Some(pass.name), value, limit, basis(pass)));
    }
    if let Some(upscale) = two.and_then(|two| two.upscale.as_ref()) {
        let workspace = i64::try_from(upscale.workspace_bytes).unwrap_or(i64::MAX);
        figures.push(device(StageName::Denoising, Some(UPSCALE), workspace, budget, ReasonCode::UpscalerEstimate));
    }
    let choice = &decided.decoder;
    let decoding = decided.thresholds.decoder + choice.resident * facts.shape.decoder_block;
    figures.push(device(StageName::Decoding, None, decoding, budget, ReasonCode::DecoderWorkspace));
    let blocks = (decided.pin / facts.block).min(facts.shape.blocks - decided.resident);
    let pinned = blocks * facts.block;
    let pageable = if decided.disk { 0 } else { (facts.shape.blocks - decided.resident - blocks) * facts.block };
    for pass in passes {
        let host = |tier, value, limit| {
            let pass = Some(pass.name);
            Figure { stage: StageName::Denoising, pass, tier, value, limit, basis: ReasonCode::HostAccount }
        };
        figures.push(host(Tier::Pinned, pinned, decided.retention));
        figures.push(host(Tier::Pageable, pageable + pass.decided.host_work, decided.retention - pinned));
    }
    figures
}

/// What the working set of a pass rests on.
fn basis(pass: &Decision<'_>) -> ReasonCode {
    let Decision { facts, decided, .. } = *pass;
    let way = &decided.way;
    match way.path {
        ReasonCode::MeasuredTable if facts.has_workspace() => {
            let workspace = windows_workspace_of(facts, decided.second_slot, way.group);
            if way.working_set == Some(workspace) { ReasonCode::WindowsWorkspace } else { ReasonCode::MeasuredTable }
        }
        ReasonCode::MeasuredTable => ReasonCode::MeasuredTable,
        ReasonCode::PathTable if way.group >= 8 => ReasonCode::MeasuredTable,
        _ => ReasonCode::FixedReserve,
    }
}

/// Whether every figure is within its limit, and every pass has one.
fn fit_of(figures: &[Figure], passes: &[Decision<'_>]) -> Fit {
    let within = figures.iter().all(|figure| figure.value <= figure.limit);
    let known = passes.iter().all(|pass| pass.decided.way.working_set.is_some());
    if within && known { Fit::Fits } else { Fit::Uncertain }
}
