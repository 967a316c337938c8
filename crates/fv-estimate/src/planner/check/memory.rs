//! Budgets, placements and peaks.

use fv_spec::plan::budget::{Budget, Limit, Resource};
use fv_spec::plan::{Fit, Peak, Placement, Plan, ReasonCode, Role, StageName, Tier};
use fv_spec::units::MAX_JSON_INTEGER;

use super::{Problems, published};
use crate::error::quoted;
use crate::planner::freevideo::{BLOCK, activation::decoder_workspace, assemble::UPSCALE};

pub(super) fn check(plan: &Plan, problems: &mut Problems) {
    problems.expect(plan.system.devices > 0, "system.devices", 0, "at least 1");
    problems.expect(plan.system.devices <= 1 || !published(plan), "system.devices", plan.system.devices, "1, as the policy plans for one");
    problems.unique(plan.budgets.iter().map(|budget| (budget.resource, budget.rank)), "budgets", "pool");
    for budget in &plan.budgets {
        self::budget(plan, budget, problems);
    }
    problems.unique(plan.placements.iter().map(|placement| (placement.component, placement.rank)), "placements", "component and rank");
    for placement in &plan.placements {
        self::placement(plan, placement, problems);
    }
    for peak in &plan.peaks {
        self::peak(plan, peak, problems);
    }
    fit(plan, problems);
    arena(plan, problems);
}

/// The pool of a device's memory.
fn device(plan: &Plan, rank: u32) -> Option<&Budget> {
    plan.budgets.iter().find(|budget| budget.resource != Resource::Host && budget.rank == Some(rank))
}

/// The host's pool.
fn host(plan: &Plan) -> Option<&Budget> {
    plan.budgets.iter().find(|budget| budget.resource != Resource::Vram)
}

/// What weights may stay in.
fn retention(budget: &Budget) -> u64 {
    budget.retention_bytes.unwrap_or(budget.budget_bytes)
}

fn budget(plan: &Plan, budget: &Budget, problems: &mut Problems) {
    let path = format!("budgets.{}", budget.resource.word());
    let needs_rank = budget.resource != Resource::Host;
    let rank = budget.rank.map_or_else(|| "none".to_owned(), |rank| rank.to_string());
    let in_range = budget.rank.is_some_and(|rank| rank < plan.system.devices);
    let allowed = if needs_rank { format!("below {}", plan.system.devices) } else { "none".to_owned() };
    problems.expect(if needs_rank { in_range } else { budget.rank.is_none() }, format_args!("{path}.rank"), rank, allowed);
    let amounts = [
        (Limit::Free, Some(&budget.free)),
        (Limit::Total, budget.total.as_ref()),
        (Limit::Cap, budget.cap.as_ref()),
        (Limit::CgroupLimit, budget.cgroup_limit.as_ref()),
    ];
    let known = || amounts.iter().filter_map(|(limit, amount)| amount.map(|amount| (*limit, amount.bytes)));
    let capacity = known().map(|(_, bytes)| bytes).min().unwrap_or(0);
    problems.expect(capacity <= MAX_JSON_INTEGER, &path, format_args!("{capacity} bytes"), format_args!("at most {MAX_JSON_INTEGER}"));
    problems.expect(capacity > 0, &path, "0 bytes", "more than nothing");
    problems.expect(budget.capacity_bytes == capacity, format_args!("{path}.capacity_bytes"), budget.capacity_bytes, capacity);
    if !known().any(|(limit, bytes)| limit == budget.limited_by && bytes == capacity) {
        let right = known().find(|(_, bytes)| *bytes == capacity).map_or("free", |(limit, _)| limit.word());
        problems.wrong(format_args!("{path}.limited_by"), budget.limited_by.word(), right);
    }
    let left = capacity.saturating_sub(budget.reserve_bytes);
    problems.expect(budget.budget_bytes == left, format_args!("{path}.budget_bytes"), budget.budget_bytes, left);
    let most = [("workspace_bytes", Some(budget.workspace_bytes)), ("allocator_limit_bytes", budget.allocator_limit_bytes)];
    for (name, bytes) in most {
        let bytes = bytes.unwrap_or(0);
        problems.expect(bytes <= left, format_args!("{path}.{name}"), bytes, format_args!("at most the budget, {left}"));
    }
    if let Some(limit) = budget.allocator_limit_bytes.filter(|_| published(plan)) {
        problems.expect(limit == left, format_args!("{path}.allocator_limit_bytes"), limit, format_args!("the budget, {left}"));
    }
    if let Some(kept) = budget.retention_bytes {
        problems.expect(kept >= left, format_args!("{path}.retention_bytes"), kept, format_args!("at least the budget, {left}"));
    }
}

fn placement(plan: &Plan, placement: &Placement, problems: &mut Problems) {
    let path = format!("placements.{}.{}", placement.component.word(), placement.rank);
    let Placement { rank, block_count, block_bytes, slots, pin_bytes, disk_streaming, .. } = *placement;
    problems.expect(rank < plan.system.devices, format_args!("{path}.rank"), rank, format_args!("below {}", plan.system.devices));
    let sum: u64 = placement.runs.iter().map(|run| u64::from(run.count)).sum();
    let runs = format_args!("{sum} blocks").to_string();
    problems.expect(sum == u64::from(block_count), format_args!("{path}.runs"), runs, format_args!("{block_count}, as block_count says"));
    problems.expect(placement.runs.iter().all(|run| run.count > 0), format_args!("{path}.runs"), "a run of no block", "none");
    let bytes = |blocks: u64| u128::from(blocks) * u128::from(block_bytes);
    problems.expect(bytes(sum) <= MAX_JSON_INTEGER.into(), format_args!("{path}.block_bytes"), block_bytes, "fewer");
    let [resident, pinned, disk] = [Tier::Device, Tier::Pinned, Tier::Disk].map(|tier| placement.count(tier));
    let off = sum - resident;
    problems.expect(block_bytes > 0 || block_count == 0, format_args!("{path}.block_bytes"), block_bytes, "more than nothing");
    if published(plan) && placement.component == Role::Transformer {
        let adapted = plan.request.adapter.map_or(0, |adapter| adapter.max_block_bytes);
        let wanted = adapted.saturating_add(u64::try_from(BLOCK).unwrap_or(0));
        problems.expect(
            block_bytes == wanted,
            format_args!("{path}.block_bytes"),
            block_bytes,
            format_args!("{wanted}, adapters included"),
        );
    }
    let most = block_count.max(1);
    problems.expect(
        (off == 0 || slots > 0) && slots <= most,
        format_args!("{path}.slots"),
        slots,
        format_args!("from {} to {most} with {off} blocks off the device", u8::from(off > 0)),
    );
    problems.expect(
        disk == 0 || disk_streaming,
        format_args!("{path}.disk_streaming"),
        disk_streaming,
        format_args!("true, as {disk} blocks are on disk"),
    );
    let held = bytes(pinned);
    problems.expect(
        held <= pin_bytes.into(),
        format_args!("{path}.pin_bytes"),
        pin_bytes,
        format_args!("at least {held} for {pinned} blocks"),
    );
    problems.expect(
        u128::from(pin_bytes) <= bytes(off),
        format_args!("{path}.pin_bytes"),
        pin_bytes,
        format_args!("at most {}", bytes(off)),
    );
    let key = format!("{}.pin_bytes", placement.component.word());
    let every = u128::from(pin_bytes) == bytes(off);
    let claimed = plan.decisions.iter().find(|decision| decision.key == key).map(|decision| decision.reason);
    let (every_block, beyond) = (ReasonCode::PinEveryBlock, ReasonCode::PinBeyondFitting);
    problems.expect(
        !(claimed == Some(every_block) && !every || claimed == Some(beyond) && every),
        format_args!("decisions.{}.reason", quoted(&key)),
        claimed.map_or("none", ReasonCode::word),
        format_args!("another, as {pin_bytes} of {} bytes off the device are page-locked", bytes(off)),
    );
    if let Some(host) = host(plan) {
        let most = retention(host);
        problems.expect(pin_bytes <= most, format_args!("{path}.pin_bytes"), pin_bytes, format_args!("at most the host's budget, {most}"));
    } else {
        problems.expect(off == 0, &path, format_args!("{off} blocks off the device without a budget of host memory"), "a budget, or none");
    }
    match device(plan, rank) {
        None => problems.wrong(&path, "no budget of device memory for its rank", "one"),
        Some(budget) => {
            let most = budget.budget_bytes;
            let found = bytes(resident);
            problems.expect(
                found <= most.into(),
                format_args!("{path}.runs"),
                format_args!("{resident} blocks on the device, {found} bytes"),
                format_args!("at most the device's budget, {most}"),
            );
        }
    }
}

fn peak_path(peak: &Peak) -> String {
    let pass = peak.pass.as_ref().map_or_else(String::new, |pass| format!(".{pass}"));
    format!("peaks.{}{pass}", peak.stage.word())
}

fn peak(plan: &Plan, peak: &Peak, problems: &mut Problems) {
    let path = peak_path(peak);
    let passes = plan.passes.iter().map(|pass| pass.name.as_str()).chain(plan.two_pass.as_ref().map(|_| UPSCALE));
    let known = peak.pass.as_ref().is_none_or(|pass| passes.into_iter().any(|name| name == pass));
    problems.expect(known, &path, "a pass that the plan does not have", "one of its passes");
    let pool = match (peak.tier, peak.rank) {
        (Tier::Device, Some(rank)) => device(plan, rank),
        (Tier::Pinned | Tier::Pageable, None) => host(plan),
        _ => {
            problems.wrong(&path, "a memory and a rank that do not go together", "device memory with a rank, or host memory without");
            return;
        }
    };
    let Some(pool) = pool else {
        problems.wrong(&path, "memory that has no budget", "a budget for it");
        return;
    };
    let most = pool.capacity_bytes.max(retention(pool));
    problems.expect(peak.limit_bytes <= most, format_args!("{path}.limit_bytes"), peak.limit_bytes, format_args!("at most {most}"));
    if peak.tier != Tier::Pinned {
        problems.expect(peak.bytes > 0, format_args!("{path}.bytes"), "0", "more than nothing, or no such peak");
    }
    if published(plan) {
        published_peak(plan, peak, pool, &path, problems);
    }
    if peak.tier == Tier::Device {
        let [budget, capacity] = [pool.budget_bytes, pool.capacity_bytes];
        problems.expect(
            peak.limit_bytes == budget || peak.limit_bytes == capacity,
            format_args!("{path}.limit_bytes"),
            peak.limit_bytes,
            format_args!("the budget, {budget}, or the capacity, {capacity}"),
        );
    }
    problems.expect(peak.bytes <= MAX_JSON_INTEGER, format_args!("{path}.bytes"), peak.bytes, format_args!("at most {MAX_JSON_INTEGER}"));
}

/// What the published policy's peaks follow from: of host memory the blocks that are placed there, of the upscaler its workspace.
fn published_peak(plan: &Plan, peak: &Peak, pool: &Budget, path: &str, problems: &mut Problems) {
    if peak.pass.as_deref() == Some(UPSCALE) {
        let workspace = plan.two_pass.as_ref().and_then(|two| two.upscale.as_ref()).map(|upscale| upscale.workspace_bytes);
        let shown = workspace.map_or_else(|| "none without an upscale".to_owned(), |bytes| bytes.to_string());
        problems.expect(workspace == Some(peak.bytes), format_args!("{path}.bytes"), peak.bytes, shown);
    }
    let role = if peak.stage == StageName::Decoding { Role::Vae } else { Role::Transformer };
    let placement = plan.placements.iter().find(|placement| placement.component == role && placement.rank == peak.rank.unwrap_or(0));
    let Some(placement) = placement.filter(|_| peak.pass.as_deref() != Some(UPSCALE)) else { return };
    let of = |tier| placement.count(tier).saturating_mul(placement.block_bytes);
    let (resident, pinned, kept) = (of(Tier::Device), of(Tier::Pinned), retention(pool));
    let (least, most, limit) = match peak.tier {
        Tier::Pinned => (pinned, pinned, kept),
        // What the transformer works with comes on top of its blocks.
        Tier::Pageable => (of(Tier::Pageable), u64::MAX, kept.saturating_sub(pinned)),
        Tier::Device if role == Role::Vae => {
            // A size that no request has is said elsewhere.
            let area = i64::from(plan.request.width).saturating_mul(plan.request.height.into()).min(1 << 40);
            let whole = resident.saturating_add(u64::try_from(decoder_workspace(area)).unwrap_or(0));
            (whole, whole, pool.budget_bytes)
        }
        Tier::Device => (resident.saturating_add(pool.workspace_bytes), u64::MAX, peak.limit_bytes),
        Tier::Disk => return,
    };
    let held = format_args!("{}{least} with the blocks that are there", if least == most { "" } else { "at least " }).to_string();
    problems.expect((least..=most).contains(&peak.bytes), format_args!("{path}.bytes"), peak.bytes, held);
    problems.expect(peak.limit_bytes == limit, format_args!("{path}.limit_bytes"), peak.limit_bytes, limit);
}

/// A plan fits when every peak is within its limit and every pass has one on the device.
fn fit(plan: &Plan, problems: &mut Problems) {
    let over = plan.peaks.iter().find(|peak| peak.bytes > peak.limit_bytes);
    let has = |pass: &str| {
        let of = |peak: &&Peak| peak.stage == StageName::Denoising && peak.tier == Tier::Device && peak.pass.as_deref() == Some(pass);
        plan.peaks.iter().any(|peak| of(&peak))
    };
    let without = plan.passes.iter().find(|pass| !has(&pass.name));
    match (plan.fit, over, without) {
        (Fit::Fits, Some(peak), _) => {
            let path = peak_path(peak);
            problems.wrong(
                format_args!("{path}.bytes"),
                peak.bytes,
                format_args!("at most its limit, {}, or fit: uncertain", peak.limit_bytes),
            );
        }
        (Fit::Fits, None, Some(pass)) => {
            problems.wrong("fit", "fits", format_args!("uncertain, as no peak of the pass {} is predicted", quoted(&pass.name)));
        }
        (Fit::Uncertain, None, None) => problems.wrong("fit", "uncertain", "fits, as every peak is within its limit"),
        _ => {}
    }
}

/// Buffers lie within their regions.
fn arena(plan: &Plan, problems: &mut Problems) {
    for region in plan.arena.iter().flat_map(|arena| &arena.regions) {
        let path = format!("arena.{}.{}", region.stage.word(), region.rank);
        problems.expect(
            region.rank < plan.system.devices,
            &path,
            format_args!("rank {}", region.rank),
            format_args!("below {}", plan.system.devices),
        );
        for buffer in &region.buffers {
            let end = u128::from(buffer.offset_bytes) + u128::from(buffer.bytes);
            if end > region.bytes.into() || buffer.first_operation > buffer.last_operation {
                let name = quoted(&buffer.name);
                problems.wrong(
                    &path,
                    format_args!("{name} beyond its region or ending before it begins"),
                    "every buffer within its region",
                );
            }
        }
    }
}
