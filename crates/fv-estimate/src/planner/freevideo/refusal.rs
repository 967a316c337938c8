//! What is short, and what would do instead. Everything that is offered was decided by the same rules.

use fv_spec::plan::budget::{Budget, Resource};
use fv_spec::plan::refusal::{Both, Direction, Nearest, PlanChange, Refusal, Shortfall, Smallest};
use fv_spec::plan::{OperatingSystem, OutputEffect, PolicyName, ReasonCode, Runtime, VERSION};

use super::activation::Thresholds;
use super::assemble::{budgets, bytes};
use super::budget::Reserved;
use super::constants::{ADAPTER_MIB, BLOCK, GIB, HOST_MINIMUM, LEAST_SIDE, MIB, RESERVE_LEAST, TABLE_STEPS, hundredths};
use super::decide::Short;
use super::facts::{Canvas, Facts};
use super::geometry::{self, FRAME_STEP, LEAST_FRAMES};
use super::question::{Planner, Resolved};
use super::{macos, passes};
use crate::error::gib;
use crate::resolve::legal::Legal;

/// Memory is searched for in steps of this.
pub const STEP: i64 = MIB;
/// The most memory that is searched for.
const SEARCHED: i64 = 1024 * GIB;

impl Planner {
    /// A refusal without what would do instead.
    pub(super) fn refuse(&self, resolved: &Resolved, short: &Short) -> Refusal {
        let vram = shortfall(
            Resource::Vram,
            &short.vram,
            short.vram_minimum,
            if short.estimated { ReasonCode::BelowWorkingSet } else { ReasonCode::BelowMinimum },
        );
        let host = shortfall(Resource::Host, &short.host, short.host_minimum, ReasonCode::BelowMinimum);
        self.refusal(resolved, budgets(resolved, &short.vram, &short.host, None), vram.into_iter().chain(host).collect())
    }

    pub(super) fn refuse_unified(&self, resolved: &Resolved, pool: &Reserved, minimum: i64, budgets: Vec<Budget>) -> Refusal {
        let short = shortfall(Resource::Unified, pool, minimum, ReasonCode::BelowUnified);
        self.refusal(resolved, budgets, short.into_iter().collect())
    }

    fn refusal(&self, resolved: &Resolved, budgets: Vec<Budget>, shortfalls: Vec<Shortfall>) -> Refusal {
        Refusal {
            version: VERSION,
            policy: PolicyName::Freevideo,
            model: self.model.clone(),
            runtime: Runtime::FreeVideo,
            system: resolved.system.clone(),
            request: resolved.request.clone(),
            budgets,
            shortfalls,
            smallest: None,
            nearest: Vec::new(),
            changes: Vec::new(),
            notes: Vec::new(),
        }
    }
}

fn shortfall(resource: Resource, pool: &Reserved, minimum: i64, reason: ReasonCode) -> Option<Shortfall> {
    (minimum > pool.budget).then(|| Shortfall {
        resource,
        rank: (resource != Resource::Host).then_some(0),
        available_bytes: bytes(pool.free),
        reserve_bytes: bytes(pool.reserve),
        usable_bytes: bytes(pool.budget),
        minimum_bytes: bytes(minimum),
        shortfall_bytes: bytes(minimum - pool.budget),
        reason,
    })
}

/// Whether a request is planned.
fn fits(facts: &Facts, two_pass: bool) -> bool {
    passes(facts, two_pass).is_ok()
}

/// The least multiple of [`STEP`] from `least` on for which `fits`. Every one of them is tried: the policy is not monotone, so that a
/// bisection could miss the least.
///
/// With the most that is searched for, a request that no memory of this sort helps fails at once.
fn smallest(least: i64, fits: impl Fn(i64) -> bool) -> Option<i64> {
    if !fits(SEARCHED) {
        return None;
    }
    let from = (least / STEP).max(1);
    (from..=SEARCHED / STEP).map(|steps| steps * STEP).find(|bytes| fits(*bytes))
}

/// The least device memory, the rest being as it is. No budget below the smallest minimum is admitted, so the search starts there.
fn smallest_vram(facts: &Facts, two_pass: bool) -> Option<i64> {
    smallest(Thresholds::of(facts).vram_minimum, |free_vram| fits(&Facts { free_vram, ..*facts }, two_pass))
}

fn smallest_host(facts: &Facts, two_pass: bool) -> Option<i64> {
    let total = |free_host: i64| facts.total_host.max(free_host);
    smallest(hundredths(HOST_MINIMUM), |free_host| fits(&Facts { free_host, total_host: total(free_host), ..*facts }, two_pass))
}

/// Fills in what would do.
pub(super) fn advise(resolved: &Resolved, legal: &Legal, mut refusal: Refusal) -> Refusal {
    if resolved.system.os.value == OperatingSystem::Macos {
        return unified(resolved, refusal);
    }
    let two_pass = resolved.two_pass.is_some();
    let facts = &resolved.facts;
    let vram = smallest_vram(facts, two_pass);
    let host = smallest_host(facts, two_pass);
    let both = if vram.or(host).is_none() { smallest_both(facts, two_pass) } else { None };
    refusal.smallest = Some(Smallest { vram_bytes: vram.map(bytes), host_bytes: host.map(bytes), both });
    refusal.nearest = fewer_frames(facts, two_pass).into_iter().chain(smaller_size(facts, legal, two_pass)).collect();
    refusal.changes = changes(resolved, &refusal, vram, host);
    refusal
}

/// The least device memory with as much host memory as any request asks for, and the least host memory with that.
fn smallest_both(facts: &Facts, two_pass: bool) -> Option<Both> {
    let vram = smallest_vram(&Facts { free_host: SEARCHED, total_host: SEARCHED, ..*facts }, two_pass)?;
    let host = smallest_host(&Facts { free_vram: vram, ..*facts }, two_pass)?;
    Some(Both { vram_bytes: bytes(vram), host_bytes: bytes(host) })
}

/// The same facts with another canvas; references keep their rows.
fn with_canvas(facts: &Facts, canvas: Canvas) -> Facts {
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX / 4);
    Facts { rows: facts.rows - signed(facts.canvas.video_tokens) + signed(canvas.video_tokens), canvas, ..*facts }
}

/// The most frames at the same size.
fn fewer_frames(facts: &Facts, two_pass: bool) -> Option<Nearest> {
    let Canvas { width, height, frames, .. } = facts.canvas;
    let mut shorter = (0..frames.saturating_sub(LEAST_FRAMES) / FRAME_STEP).rev().map(|steps| LEAST_FRAMES + steps * FRAME_STEP);
    let frames = shorter.find(|frames| fits(&with_canvas(facts, geometry::canvas(width, height, *frames)), two_pass))?;
    Some(Nearest { direction: Direction::FewerFrames, width, height, frames })
}

/// The largest size at the same frames, with the sides in nearly the same ratio.
fn smaller_size(facts: &Facts, legal: &Legal, two_pass: bool) -> Option<Nearest> {
    let Canvas { width, height, frames, .. } = facts.canvas;
    let sizes = legal.sizes(height, width);
    let smaller = sizes.into_iter().rev().filter(|[rows, columns]| {
        let legal = (*rows).min(*columns) >= LEAST_SIDE;
        legal && *rows <= height && *columns <= width && [*rows, *columns] != [height, width]
    });
    let found = smaller.into_iter().find(|[rows, columns]| fits(&with_canvas(facts, geometry::canvas(*columns, *rows, frames)), two_pass));
    found.map(|[height, width]| Nearest { direction: Direction::SmallerSize, width, height, frames })
}

/// What else would make the same request fit.
fn changes(resolved: &Resolved, refusal: &Refusal, vram: Option<i64>, host: Option<i64>) -> Vec<PlanChange> {
    let facts = &resolved.facts;
    let two_pass = resolved.two_pass.is_some();
    let mut found = Vec::new();
    let mut offer = |facts: Facts, reason: ReasonCode, message: String, arguments: Option<&str>, effect: OutputEffect| {
        if fits(&facts, two_pass) {
            found.push(PlanChange { reason, message, arguments: arguments.map(str::to_owned), free_bytes: None, output_effect: effect });
        }
    };
    let least = hundredths(RESERVE_LEAST);
    if facts.budgets()[0].reserve > least {
        let message = "keep 0.2 GiB of device memory in reserve".to_owned();
        offer(
            Facts { vram_reserve: Some(least), ..*facts },
            ReasonCode::LowerReserve,
            message,
            Some("--gpu-reserve-gib 0.2"),
            OutputEffect::None,
        );
    }
    if facts.budgets()[1].reserve > 0 && refusal.shortfalls.iter().any(|short| short.resource == Resource::Host) {
        let message = "keep no host memory in reserve".to_owned();
        offer(
            Facts { host_reserve: Some(0), ..*facts },
            ReasonCode::LowerReserve,
            message,
            Some("--ram-reserve-gib 0"),
            OutputEffect::None,
        );
    }
    if let Some(adapter) = resolved.request.adapter {
        let taken = ADAPTER_MIB * MIB + i64::try_from(2 * adapter.max_block_bytes + adapter.root_bytes).unwrap_or(0);
        let without = Facts { workspace: facts.workspace - taken, block: BLOCK, ..*facts };
        offer(without, ReasonCode::WithoutAdapter, "run without the adapters".to_owned(), None, OutputEffect::Different);
    }
    if resolved.tables > 0 {
        let fewer = Facts { workspace: facts.workspace - resolved.tables, ..*facts };
        let message = format!("take {TABLE_STEPS} steps or fewer, whose tables the measured working set holds");
        offer(fewer, ReasonCode::FewerSteps, message, None, OutputEffect::Different);
    }
    if facts.rows > i64::try_from(facts.canvas.video_tokens).unwrap_or(0) {
        let without = Facts { rows: i64::try_from(facts.canvas.video_tokens).unwrap_or(0), ..*facts };
        let message = "give fewer references: without any it fits".to_owned();
        offer(without, ReasonCode::FewerReferences, message, None, OutputEffect::Different);
    }
    if !facts.capacity_trial {
        let trial = Facts { capacity_trial: true, ..*facts };
        let message = "try below the admitted memory, in the smallest form; it may run out of memory".to_owned();
        offer(trial, ReasonCode::TryBelowMinimum, message, Some("--capacity-trial"), OutputEffect::Reordered);
    }
    for (wanted, pool, resource) in [(vram, resolved.vram.as_ref(), Resource::Vram), (host, Some(&resolved.host), Resource::Host)] {
        let Some(((wanted, pool), total)) = wanted.zip(pool).and_then(|pair| Some((pair, pair.1.total.as_ref()?))) else { continue };
        // A cap that was given stays one: only what others use can be freed.
        let limits = [pool.cap.as_ref(), pool.cgroup_limit.as_ref()];
        let most = limits.into_iter().flatten().fold(total.bytes, |least, limit| least.min(limit.bytes));
        let missing = bytes(wanted).saturating_sub(pool.free.bytes);
        if bytes(wanted) > most || missing == 0 {
            continue;
        }
        let (reason, word) =
            if resource == Resource::Vram { (ReasonCode::FreeVram, "device memory") } else { (ReasonCode::FreeHost, "host memory") };
        found.push(PlanChange {
            reason,
            message: format!(
                "end other uses of {word}: {} more of the {} there are would do",
                gib(missing.into()),
                gib(total.bytes.into())
            ),
            arguments: None,
            free_bytes: Some(missing),
            output_effect: OutputEffect::None,
        });
    }
    found.sort_by_key(|change| change.output_effect);
    found
}

/// On macOS the least memory alone is known.
fn unified(resolved: &Resolved, mut refusal: Refusal) -> Refusal {
    let (pool, minimum) = macos::reserved(resolved);
    refusal.smallest = Some(Smallest { vram_bytes: None, host_bytes: Some(bytes(minimum + pool.reserve)), both: None });
    refusal
}
