//! The field of a plan that a decision is about. Decisions take their value from here when they are made, and are compared with it
//! when a plan is read.

use fv_spec::plan::budget::Resource;
use fv_spec::plan::{Pass, Plan, Role, Tier};
use serde_json::Value;

/// The value of what `key` names: in a pass where one is given, else in the plan. `None` for a key that names nothing there.
pub fn field(plan: &Plan, pass: Option<&Pass>, key: &str) -> Option<Value> {
    match pass {
        Some(pass) => of_pass(pass, key),
        None => of_plan(plan, key),
    }
}

fn role(word: &str) -> Option<Role> {
    Role::ALL.into_iter().find(|role| role.word() == word)
}

fn of_plan(plan: &Plan, key: &str) -> Option<Value> {
    match key {
        "fit" => return Some(plan.fit.word().into()),
        "passes" => return Some(plan.passes.len().into()),
        _ => {}
    }
    let (first, rest) = key.split_once('.')?;
    if first == "budgets" {
        return budget(plan, rest);
    }
    let role = role(first)?;
    let placement = plan.placements.iter().find(|placement| placement.component == role);
    let decoder = plan.decoders.iter().find(|decoder| decoder.component == role);
    Some(match rest {
        "resident_blocks" => placement?.count(Tier::Device).into(),
        "slots" => placement?.slots.into(),
        "pin_bytes" => placement?.pin_bytes.into(),
        "disk_streaming" => placement?.disk_streaming.into(),
        "disk_blocks" => placement?.count(Tier::Disk).into(),
        "ring" => placement?.ring?.into(),
        "level_frames" => decoder?.level_frames?.into(),
        "tiled" => decoder?.tiles.is_some().into(),
        "process" => plan.encoders.iter().find(|encoder| encoder.component == role)?.process.word().into(),
        "offload" => decoder?.offload.into(),
        "tile_group" => decoder?.tile_group.into(),
        "preload" => decoder?.preload.into(),
        "pin_weights" => decoder?.pin_weights.into(),
        "stream_output" => decoder?.stream_output.into(),
        "half_precision_cache" => decoder?.half_precision_cache.into(),
        _ => return None,
    })
}

fn budget(plan: &Plan, key: &str) -> Option<Value> {
    let (resource, name) = key.split_once('.')?;
    let resource = Resource::parse(resource)?;
    let budget = plan.budgets.iter().find(|budget| budget.resource == resource)?;
    Some(match name {
        "reserve_bytes" => budget.reserve_bytes.into(),
        "workspace_bytes" => budget.workspace_bytes.into(),
        "retention_bytes" => budget.retention_bytes?.into(),
        _ => return None,
    })
}

fn of_pass(pass: &Pass, key: &str) -> Option<Value> {
    if key == "canvas" {
        return Some(format!("{}x{}", pass.width, pass.height).into());
    }
    let (first, rest) = key.split_once('.')?;
    let role = role(first)?;
    if rest == "cached_blocks" {
        let cache = pass.block_cache.as_ref().filter(|cache| cache.component == role)?;
        return Some(cache.predicted_blocks.into());
    }
    let compute = pass.compute.iter().find(|compute| compute.component == role)?;
    Some(match rest {
        "gemm" => compute.gemm.word().into(),
        "attention.global" => compute.attention.global.word().into(),
        "attention.window" => compute.attention.window?.word().into(),
        "head_group" => compute.head_group.into(),
        "head_parallelism" => compute.head_parallelism.into(),
        "outputs_on_host" => compute.outputs_on_host.into(),
        "residual_on_host" => compute.residual_on_host.into(),
        "feed_forward_recompute" => compute.feed_forward_recompute.into(),
        "feed_forward_chunk" => compute.feed_forward_chunk.into(),
        "projection_chunk" => compute.projection_chunk.into(),
        "window_batch" => compute.window_batch?.into(),
        "text_keys" => compute.text_keys?.word().into(),
        "paired_guidance" => compute.paired_guidance?.into(),
        "slots" => compute.slots.into(),
        _ => return None,
    })
}
