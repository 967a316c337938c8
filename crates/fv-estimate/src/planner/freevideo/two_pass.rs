//! Two passes: the first on a smaller canvas with decisions of its own, for which copied blocks may stay on the device.

use fv_spec::plan::{BlockCache, Role, TwoPass, Upscale};

use super::constants::{CACHE_MARGIN_MIB, MIB, UPSCALER, UPSCALER_GIB, hundredths};
use super::decide::Decided;
use super::facts::{Canvas, Facts};
use super::geometry::first_canvas;

/// The facts of the first pass: budgets as they were admitted, references in full, a smaller canvas.
pub(super) fn first_facts(facts: &Facts, admitted: &Decided) -> Facts {
    let canvas = first_canvas(&facts.canvas);
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX / 4);
    Facts {
        canvas,
        rows: facts.rows - signed(facts.canvas.video_tokens) + signed(canvas.video_tokens),
        free_vram: admitted.vram.budget + admitted.vram.reserve,
        free_host: admitted.host.budget + admitted.host.reserve,
        vram_reserve: Some(admitted.vram.reserve),
        relaxed: admitted.vram.relaxed(),
        host_reserve: Some(admitted.host.reserve),
        ..*facts
    }
}

/// What comes between the passes.
pub(in crate::planner) fn between(target: &Canvas, first: &Canvas, [base_steps, refine_steps]: [u32; 2]) -> TwoPass {
    let same = [target.width, target.height] == [first.width, first.height];
    TwoPass { base_steps, refine_steps, restart_seed_offset: 1, upscale: (!same).then(|| upscale(target, first)) }
}

fn upscale(target: &Canvas, first: &Canvas) -> Upscale {
    let [width, height] = [2 * first.width, 2 * first.height];
    // A feature map of 512 channels in 16 bits over the latent of the scaled canvas.
    let map = i64::from(first.latent_frames) * i64::from(width / 16) * i64::from(height / 16) * 512 * 2;
    let [constant, least] = UPSCALER_GIB;
    let workspace = hundredths(constant) + hundredths(least).max(6 * map);
    Upscale {
        width,
        height,
        crop_left: (width - target.width) / 2,
        crop_top: (height - target.height) / 2,
        checkpoint_bytes: UPSCALER,
        workspace_bytes: u64::try_from(workspace).unwrap_or(0),
    }
}

/// The cache of blocks in the first pass: as many as it has room for by its own decisions on Linux, as many as free memory allows
/// on Windows; by the plan's own figures, which a run replaces by what it measures after a step.
pub(super) fn cache(facts: &Facts, target: &Decided, first: &Decided) -> BlockCache {
    let margin = CACHE_MARGIN_MIB * MIB;
    let resident = target.resident * facts.block;
    let peak = first.way.working_set.map(|working_set| working_set + facts.workspace + resident);
    let allowance = peak.map_or(0, |peak| (first.vram.budget - peak - margin).max(0));
    let most = if facts.windows() { facts.shape.blocks } else { first.resident.max(target.resident) };
    let predicted = (target.resident + allowance / facts.block).min(most);
    let count = |blocks: i64| u32::try_from(blocks).unwrap_or(0);
    BlockCache {
        component: Role::Transformer,
        most_blocks: (!facts.windows()).then(|| count(most)),
        allowance_bytes: u64::try_from(allowance).unwrap_or(0),
        predicted_blocks: count(predicted),
        margin_bytes: u64::try_from(margin).unwrap_or(0),
    }
}
