//! What a plan says of a request, as choices, and choices in the words of a plan. What the two cannot say to each other is refused:
//! a program that is executed is the one that was planned.

use fv_spec::plan::arena::{Arena, Placed, Region};
use fv_spec::plan::{Attention, AttentionBackend, BlockRun, Compute as PlanCompute, Decoder, GemmPath, Placement, Plan, Precision, Tiles};
use fv_spec::program::{Element, Formats, Program, Role, StageName, Tier};

use super::choice::{Choices, Compute, Decode, Residency, Tiling};
use super::geometry::{Model, Request};
use super::{dit, text, vae};
use crate::refused::Refused;
use crate::stream::component::Component;

/// How numbers are stored for weights of a precision; nothing where no program has it.
pub fn formats(precision: Precision) -> Option<Formats> {
    let narrow = |block_weights| Formats { compute: Element::Bf16, exact: Element::F32, block_weights };
    match precision {
        Precision::Bf16 => Some(narrow(Element::Bf16)),
        Precision::Fp8 => Some(narrow(Element::Fp8)),
        Precision::Int8 => Some(narrow(Element::Int8)),
        Precision::Fp32 => Some(Formats { compute: Element::F32, exact: Element::F32, block_weights: Element::F32 }),
        Precision::Fp16 => None,
    }
}

/// How weights are multiplied that are stored so.
fn gemm(formats: Formats) -> GemmPath {
    if formats.block_weights == formats.compute { GemmPath::Bf16 } else { GemmPath::Bf16WeightOnly }
}

/// The components of a model with their weights, in the order in which they run.
pub fn components(model: &Model, formats: Formats) -> Vec<Component> {
    let transformers = model.transformers().iter();
    std::iter::once(text::component(&model.text, formats.compute))
        .chain(transformers.map(|role| dit::weights::component(&model.transformer, *role, formats)))
        .chain(std::iter::once(vae::blocks::component(&model.vae, formats.compute)))
        .collect()
}

/// The largest block of a component, in bytes: what one place for a block takes.
pub fn block_bytes(component: &Component) -> u64 {
    (0..component.blocks.len()).map(|block| component.block_group(block).bytes).max().unwrap_or(0)
}

/// Where weights live, in the words of a plan.
pub fn placements(model: &Model, choices: &Choices) -> Vec<Placement> {
    let residencies = std::iter::once(&choices.text).chain(&choices.transformers).chain(std::iter::once(&choices.vae));
    components(model, choices.formats).iter().zip(residencies).map(|(component, residency)| placement(component, residency)).collect()
}

fn placement(component: &Component, residency: &Residency) -> Placement {
    let bytes = block_bytes(component);
    let mut runs: Vec<BlockRun> = Vec::new();
    for &tier in &residency.tiers {
        match runs.last_mut() {
            Some(run) if run.tier == tier => run.count += 1,
            _ => runs.push(BlockRun { tier, count: 1 }),
        }
    }
    let count = |tier| residency.tiers.iter().filter(|&&found| found == tier).count() as u64;
    Placement {
        component: component.role,
        rank: 0,
        block_count: narrow(residency.tiers.len() as u64),
        block_bytes: bytes,
        runs,
        slots: residency.slots,
        pin_bytes: count(Tier::Pinned) * bytes,
        disk_streaming: count(Tier::Disk) > 0,
        ring: Some(residency.ring),
    }
}

/// How transformers compute, in the words of a plan: one entry for each.
pub fn compute(model: &Model, request: &Request, choices: &Choices) -> Vec<PlanCompute> {
    let how = choices.compute;
    let entry = |(component, residency): (Role, &Residency)| PlanCompute {
        component,
        gemm: gemm(choices.formats),
        attention: Attention { global: AttentionBackend::FvRun, window: None },
        head_group: narrow(how.head_group),
        head_parallelism: 1,
        outputs_on_host: how.outputs_on_host,
        residual_on_host: how.residual_on_host,
        feed_forward_recompute: false,
        feed_forward_chunk: narrow(how.feed_forward_chunk),
        projection_chunk: narrow(how.projection_chunk),
        window_batch: None,
        slots: residency.slots,
        text_keys: Some(how.text_keys),
        paired_guidance: request.guided().then_some(how.paired_guidance),
    };
    model.transformers().iter().copied().zip(&choices.transformers).map(entry).collect()
}

/// How the video decoder runs, in the words of a plan.
///
/// # Errors
/// Where tiles are not squares, which plans cannot say.
pub fn decoder(model: &Model, request: &Request, choices: &Choices) -> Result<Decoder, Refused> {
    let away = |tier| choices.vae.tiers.contains(&tier);
    let tiles = choices.decode.tiles.map(|tiling| squares(request, tiling)).transpose()?;
    Ok(Decoder {
        component: Role::Vae,
        offload: away(Tier::Pinned) || away(Tier::Disk),
        tile_group: false,
        preload: false,
        pin_weights: away(Tier::Pinned),
        stream_output: true,
        half_precision_cache: false,
        clips: narrow(model.latent(request).frames),
        clip_latent_frames: 1,
        tiles,
        level_frames: Some(narrow(choices.decode.frames)),
    })
}

fn squares(request: &Request, tiling: Tiling) -> Result<Tiles, Refused> {
    if tiling.height != tiling.width || tiling.stride_height != tiling.stride_width {
        let found = format!("found {} x {} with strides {} x {}", tiling.height, tiling.width, tiling.stride_height, tiling.stride_width);
        return Err(Refused::new("decode.tiles", "decode.tiles", format!("{found}, allowed in plans: squares")));
    }
    let along = |pixels: u64| narrow(pixels.div_ceil(tiling.stride_height));
    Ok(Tiles {
        columns: along(request.width),
        rows: along(request.height),
        tile_pixels: narrow(tiling.height),
        overlap_pixels: narrow(tiling.height - tiling.stride_height),
    })
}

/// The choices that a plan makes for a model.
///
/// # Errors
/// With everything that is missing or that no program does.
pub fn choices(model: &Model, plan: &Plan) -> Result<Choices, Vec<Refused>> {
    let mut refused = Vec::new();
    let formats = formats(plan.system.precision.value);
    if formats.is_none() {
        refused.push(Refused::new("precision", "system.precision", "found fp16, allowed: bf16, fp8, int8, fp32"));
    }
    let mut residency = |role: Role| {
        let found = plan.placements.iter().find(|placement| placement.component == role && placement.rank == 0);
        found.map(stored).or_else(|| {
            let field = format!("placements.{}", role.word());
            refused.push(Refused::new("missing-placement", field, "the plan does not say where its blocks live"));
            None
        })
    };
    let text = residency(Role::TextEncoder);
    let transformers: Vec<Residency> = model.transformers().iter().filter_map(|&role| residency(role)).collect();
    let vae = residency(Role::Vae);
    let compute = computing(plan, &mut refused);
    let decode = decoding(plan, &mut refused);
    match (formats, text, vae, compute, decode) {
        (Some(formats), Some(text), Some(vae), Some(compute), Some(decode)) if refused.is_empty() => {
            Ok(Choices { formats, text, transformers, compute, vae, decode })
        }
        _ => Err(refused),
    }
}

fn stored(placement: &Placement) -> Residency {
    let tiers = placement.runs.iter().flat_map(|run| std::iter::repeat_n(run.tier, run.count as usize)).collect();
    Residency { tiers, slots: placement.slots, ring: placement.ring.unwrap_or(0) }
}

/// How every transformer of every pass computes; one program does one thing.
fn computing(plan: &Plan, refused: &mut Vec<Refused>) -> Option<Compute> {
    let entries: Vec<&PlanCompute> = plan.passes.iter().flat_map(|pass| &pass.compute).collect();
    let how = |entry: &PlanCompute| Compute {
        head_group: entry.head_group.into(),
        feed_forward_chunk: entry.feed_forward_chunk.into(),
        projection_chunk: entry.projection_chunk.into(),
        outputs_on_host: entry.outputs_on_host,
        residual_on_host: entry.residual_on_host,
        text_keys: entry.text_keys.unwrap_or(fv_spec::plan::TextKeys::Recomputed),
        paired_guidance: entry.paired_guidance.unwrap_or(false),
    };
    let first = entries.first().map(|entry| how(entry));
    if first.is_none() {
        refused.push(Refused::new("missing-pass", "passes", "the plan does not say how the transformer computes"));
    }
    if plan.passes.len() > 1 {
        refused.push(Refused::new("passes", "passes", format!("found {} passes, allowed: 1", plan.passes.len())));
    }
    if entries.iter().any(|entry| Some(how(entry)) != first) {
        refused.push(Refused::new("compute", "passes[0].compute", "transformers compute differently, allowed: all alike"));
    }
    let recompute = entries.iter().any(|entry| entry.feed_forward_recompute || entry.window_batch.is_some());
    if recompute {
        let message = "feed-forward recomputation and windows are settings of another runtime";
        refused.push(Refused::new("compute", "passes[0].compute", message));
    }
    first
}

fn decoding(plan: &Plan, refused: &mut Vec<Refused>) -> Option<Decode> {
    let Some(decoder) = plan.decoders.iter().find(|decoder| decoder.component == Role::Vae) else {
        refused.push(Refused::new("missing-decoder", "decoders", "the plan does not say how the video is decoded"));
        return None;
    };
    let tiles = decoder.tiles.map(|tiles| {
        let (side, stride) = (u64::from(tiles.tile_pixels), u64::from(tiles.tile_pixels.saturating_sub(tiles.overlap_pixels)));
        Tiling { height: side, width: side, stride_height: stride, stride_width: stride }
    });
    Some(Decode { tiles, frames: decoder.level_frames.unwrap_or(4).into(), pixels: Element::U8 })
}

/// Where the buffers of a program lie, as a plan records it.
pub fn arena(program: &Program) -> Arena {
    let regions = program.regions.iter().enumerate().map(|(at, region)| {
        let index = narrow(at as u64);
        let mut buffers: Vec<Placed> = program
            .buffers
            .iter()
            .filter(|buffer| buffer.region == index)
            .map(|buffer| Placed {
                name: buffer.name.clone(),
                offset_bytes: buffer.offset_bytes.unwrap_or(0),
                bytes: buffer.bytes,
                first_operation: buffer.first.into(),
                last_operation: buffer.last.into(),
            })
            .collect();
        buffers.sort_by_key(|buffer| (buffer.offset_bytes, buffer.first_operation));
        let (part, stage) = (Some(region.name.clone()), stage(program, index));
        Region { rank: region.rank, part, stage, tier: region.tier, bytes: region.bytes, buffers }
    });
    Arena { regions: regions.filter(|region| !region.buffers.is_empty()).collect() }
}

/// The stage in which a region is first used.
fn stage(program: &Program, region: u32) -> StageName {
    let uses = |buffer: u32| program.buffers[buffer as usize].region == region;
    let first = program.ops().find(|(_, op)| op.reads.iter().chain(&op.writes).any(|view| uses(view.buffer)));
    first.map_or(StageName::Load, |(segment, _)| segment.stage)
}

/// What differs between the layout that a plan records and the one of its program: the first difference of each region.
pub fn differences(planned: &Arena, program: &Program) -> Vec<Refused> {
    let own = arena(program);
    let mut found = Vec::new();
    for region in &own.regions {
        let name = format!("arena.{}.{}", region.part.as_deref().unwrap_or(""), region.tier.word());
        let same = |other: &&Region| (&other.part, other.tier, other.rank) == (&region.part, region.tier, region.rank);
        let Some(other) = planned.regions.iter().find(same) else {
            found.push(Refused::new("arena", name, format!("the plan has no such region, the program needs {} bytes", region.bytes)));
            continue;
        };
        let wrong = other.buffers.iter().zip(&region.buffers).find(|(a, b)| a != b);
        if let Some((a, b)) = wrong {
            let message = format!(
                "the plan has {} of {} bytes at {} for operations {} to {}, the program {} of {} bytes at {} for operations {} to {}",
                a.name,
                a.bytes,
                a.offset_bytes,
                a.first_operation,
                a.last_operation,
                b.name,
                b.bytes,
                b.offset_bytes,
                b.first_operation,
                b.last_operation
            );
            found.push(Refused::new("arena", name, message));
        } else if other.buffers.len() != region.buffers.len() {
            let message = format!("the plan has {} buffers, the program {}", other.buffers.len(), region.buffers.len());
            found.push(Refused::new("arena", name, message));
        } else if other.bytes != region.bytes {
            found.push(Refused::new("arena", name, format!("the plan has {} bytes, the program {}", other.bytes, region.bytes)));
        }
    }
    let known = |region: &&Region| {
        own.regions.iter().any(|other| (&other.part, other.tier, other.rank) == (&region.part, region.tier, region.rank))
    };
    found.extend(planned.regions.iter().filter(|region| !known(region)).map(|region| {
        let name = format!("arena.{}.{}", region.part.as_deref().unwrap_or(""), region.tier.word());
        Refused::new("arena", name, "the program has no such region")
    }));
    found
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
