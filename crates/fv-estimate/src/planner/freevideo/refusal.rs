//! What is short, and what would do instead. Everything that is offered was decided by the same rules.

use fv_spec::plan::budget::{Budget, Resource};
use fv_spec::plan::refusal::{Both, Direction, Least, Nearest, PlanChange, Refusal, Shortfall, Smallest};
use fv_spec::plan::{Fit, OperatingSystem, OutputEffect, PolicyName, ReasonCode, Runtime, VERSION};

use super::activation::Thresholds;
use super::assemble::{self, budgets, bytes};
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
            notes: resolved.notes.clone(),
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

/// How a request is planned; `None` where it is refused.
fn fit(facts: &Facts, two_pass: bool) -> Option<Fit> {
    let found = passes(facts, two_pass).ok()?;
    let (passes, target) = found.in_order([0, 0]);
    Some(assemble::fit(&passes, &target))
}

/// Whether a request is planned, which costs less to know than how.
fn admitted(facts: &Facts, two_pass: bool) -> bool {
    passes(facts, two_pass).is_ok()
}

/// Multiples of [`STEP`] from `least` to the most that is searched for. Every one of them is tried: the policy is not monotone, so that
/// a bisection could miss the least.
fn amounts(least: i64) -> impl Iterator<Item = i64> {
    ((least / STEP).max(1)..=SEARCHED / STEP).map(|steps| steps * STEP)
}

/// The least memory from `from` on, where `facts` has so much of it.
///
/// With the most that is searched for, a request that no memory of this sort helps fails at once.
fn least(from: i64, two_pass: bool, facts: impl Fn(i64) -> Facts) -> Option<Least> {
    let most = fit(&facts(SEARCHED), two_pass)?;
    let found = amounts(from).find(|bytes| admitted(&facts(*bytes), two_pass))?;
    let at_least = fit(&facts(found), two_pass)?;
    let larger = (at_least != Fit::Fits && most == Fit::Fits)
        .then(|| amounts(found).find(|bytes| fit(&facts(*bytes), two_pass) == Some(Fit::Fits)))
        .flatten();
    Some(Least { bytes: bytes(found), fit: at_least, fits_bytes: larger.map(bytes) })
}

/// The least device memory, the rest being as it is. No budget below the smallest minimum is admitted, so the search starts there.
fn least_vram(facts: &Facts, two_pass: bool) -> Option<Least> {
    least(Thresholds::of(facts).vram_minimum, two_pass, |free_vram| Facts { free_vram, ..*facts })
}

fn least_host(facts: &Facts, two_pass: bool) -> Option<Least> {
    least(hundredths(HOST_MINIMUM), two_pass, |free_host| Facts { free_host, total_host: facts.total_host.max(free_host), ..*facts })
}

/// The least with which a plan fits.
fn fitting(least: &Least) -> Option<u64> {
    if least.fit == Fit::Fits { Some(least.bytes) } else { least.fits_bytes }
}

/// Fills in what would do.
pub(super) fn advise(resolved: &Resolved, legal: &Legal, mut refusal: Refusal) -> Refusal {
    if resolved.system.os.value == OperatingSystem::Macos {
        return unified(resolved, refusal);
    }
    let two_pass = resolved.two_pass.is_some();
    let facts = &resolved.facts;
    let (vram, host) = (least_vram(facts, two_pass), least_host(facts, two_pass));
    let both = |with: fn(&Least) -> Option<u64>| least_both(facts, two_pass, with);
    let alone = [vram, host].into_iter().flatten();
    let both_admitted = if alone.clone().next().is_none() { both(|least| Some(least.bytes)) } else { None };
    let fits = alone.clone().any(|least| fitting(&least).is_some()) || both_admitted.is_some_and(|both| both.fit == Fit::Fits);
    let both_fits = if fits { None } else { both(fitting).filter(|both| both.fit == Fit::Fits) };
    refusal.smallest = Some(Smallest { vram, host, both: both_admitted, both_fits, unified_bytes: None });
    refusal.nearest = fewer_frames(facts, two_pass).into_iter().chain(smaller_sizes(facts, legal, two_pass)).collect();
    refusal.changes = changes(resolved, &refusal, vram, host);
    refusal
}

/// The least device memory with as much host memory as any request asks for, and the least host memory with that; `with` says which
/// of the least amounts is meant.
fn least_both(facts: &Facts, two_pass: bool, with: fn(&Least) -> Option<u64>) -> Option<Both> {
    let vram_bytes = with(&least_vram(&Facts { free_host: SEARCHED, total_host: SEARCHED, ..*facts }, two_pass)?)?;
    let beside = |free_host: i64| {
        let free_vram = i64::try_from(vram_bytes).unwrap_or(SEARCHED);
        Facts { free_vram, free_host, total_host: facts.total_host.max(free_host), ..*facts }
    };
    let host = least(hundredths(HOST_MINIMUM), two_pass, beside)?;
    let host_bytes = with(&host)?;
    let fit = if host_bytes == host.bytes { host.fit } else { Fit::Fits };
    Some(Both { vram_bytes, host_bytes, fit })
}

/// The same facts with another canvas; references keep their rows.
fn with_canvas(facts: &Facts, canvas: Canvas) -> Facts {
    let signed = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX / 4);
    Facts { rows: facts.rows - signed(facts.canvas.video_tokens) + signed(canvas.video_tokens), canvas, ..*facts }
}

/// The first of several requests that is planned and, where that plan is uncertain, the next one that fits.
fn nearest(direction: Direction, facts: &Facts, two_pass: bool, canvases: impl Iterator<Item = Canvas>) -> Vec<Nearest> {
    let mut found: Vec<Nearest> = Vec::new();
    for Canvas { width, height, frames, .. } in canvases {
        let Some(fit) = fit(&with_canvas(facts, geometry::canvas(width, height, frames)), two_pass) else { continue };
        if found.is_empty() || fit == Fit::Fits {
            found.push(Nearest { direction, width, height, frames, fit });
        }
        if fit == Fit::Fits {
            break;
        }
    }
    found
}

/// The most frames at the same size.
fn fewer_frames(facts: &Facts, two_pass: bool) -> Vec<Nearest> {
    let Canvas { width, height, frames, .. } = facts.canvas;
    let shorter = (0..frames.saturating_sub(LEAST_FRAMES) / FRAME_STEP).rev().map(|steps| LEAST_FRAMES + steps * FRAME_STEP);
    nearest(Direction::FewerFrames, facts, two_pass, shorter.map(|frames| geometry::canvas(width, height, frames)))
}

/// The largest size at the same frames whose longer side is the multiple nearest to the ratio.
fn smaller_sizes(facts: &Facts, legal: &Legal, two_pass: bool) -> Vec<Nearest> {
    let Canvas { width, height, frames, .. } = facts.canvas;
    let smaller = legal.sizes(height, width).into_iter().rev().filter(|[rows, columns]| {
        let legal = (*rows).min(*columns) >= LEAST_SIDE;
        legal && *rows <= height && *columns <= width && [*rows, *columns] != [height, width]
    });
    nearest(Direction::SmallerSize, facts, two_pass, smaller.map(|[rows, columns]| geometry::canvas(columns, rows, frames)))
}

/// What else would make the same request fit.
fn changes(resolved: &Resolved, refusal: &Refusal, vram: Option<Least>, host: Option<Least>) -> Vec<PlanChange> {
    let facts = &resolved.facts;
    let two_pass = resolved.two_pass.is_some();
    let mut found = Vec::new();
    let mut offer = |facts: Facts, reason: ReasonCode, message: String, arguments: Option<&str>, effect: OutputEffect| {
        if let Some(fit) = fit(&facts, two_pass) {
            found.push(PlanChange {
                reason,
                message,
                arguments: arguments.map(str::to_owned),
                free_bytes: None,
                fit,
                output_effect: effect,
            });
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
        let message = "give fewer references: without any it is planned".to_owned();
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
        let missing = wanted.bytes.saturating_sub(pool.free.bytes);
        if wanted.bytes > most || missing == 0 {
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
            fit: wanted.fit,
            output_effect: OutputEffect::None,
        });
    }
    found.sort_by_key(|change| change.output_effect);
    found
}

/// On macOS it is known alone from where on nothing is refused.
fn unified(resolved: &Resolved, mut refusal: Refusal) -> Refusal {
    let (pool, minimum) = macos::reserved(resolved);
    refusal.smallest = Some(Smallest { unified_bytes: Some(bytes(minimum + pool.reserve)), ..Smallest::default() });
    refusal
}
