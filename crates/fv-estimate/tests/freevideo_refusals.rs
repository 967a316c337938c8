//! Refusals: what is short, and that everything that is offered in its place is planned while one step less is not.

mod planning;

use fv_estimate::planner::Outcome;
use fv_estimate::planner::freevideo::refusal::STEP;
use fv_estimate::planner::freevideo::{Planner, Pool, Question, Task, TwoPassAsked};
use fv_spec::plan::budget::{Amount, Resource};
use fv_spec::plan::refusal::{Both, Direction, Least, Nearest, Refusal, Smallest};
use fv_spec::plan::{Adapter, Architecture, Fit, OperatingSystem, OutputEffect, Precision, ReasonCode, Source};
use proptest::prelude::*;

use OperatingSystem::{Linux, Windows};
use planning::{GIB, gib, linux, planner, question, refused};

fn h3() -> Planner {
    planner("minimax-h3")
}

fn advised(planner: &Planner, question: &Question) -> Refusal {
    planner.advise(question, refused(planner, question)).expect("a sound question")
}

/// How a question is planned; `None` where it is refused.
fn fit(planner: &Planner, question: &Question) -> Option<Fit> {
    match planner.plan(question) {
        Ok(Outcome::Planned(plan)) => Some(plan.fit),
        _ => None,
    }
}

fn fits(planner: &Planner, question: &Question) -> bool {
    fit(planner, question).is_some()
}

fn with_memory(question: &Question, vram: Option<u64>, host: Option<u64>) -> Question {
    let mut asked = question.clone();
    for (pool, bytes) in [(asked.machine.vram.as_mut(), vram), (asked.machine.host.as_mut(), host)] {
        if let (Some(pool), Some(bytes)) = (pool, bytes) {
            pool.free.bytes = bytes;
        }
    }
    asked
}

/// An amount is planned as it says, one step less is refused, and what is said to fit is the least of its kind.
fn least_holds(planner: &Planner, least: Least, with: impl Fn(u64) -> Question) -> Result<(), TestCaseError> {
    let step = STEP.unsigned_abs();
    prop_assert_eq!(fit(planner, &with(least.bytes)), Some(least.fit), "{:?}", least);
    prop_assert_eq!(fit(planner, &with(least.bytes - step)), None, "less than {:?}", least);
    if let Some(bytes) = least.fits_bytes {
        prop_assert!(least.fit == Fit::Uncertain && bytes > least.bytes, "{:?}", least);
        prop_assert_eq!(fit(planner, &with(bytes)), Some(Fit::Fits), "{:?}", least);
        prop_assert_ne!(fit(planner, &with(bytes - step)), Some(Fit::Fits), "{:?}", least);
    }
    Ok(())
}

/// Everything that a refusal offers is planned, and one step less is refused again where the least or the most is claimed.
fn offers_hold(planner: &Planner, question: &Question, refusal: &Refusal) -> Result<(), TestCaseError> {
    let step = STEP.unsigned_abs();
    let smallest = refusal.smallest.expect("searched for");
    prop_assert!(smallest.vram.or(smallest.host).is_some() || smallest.both.is_some(), "some memory does");
    if let Some(vram) = smallest.vram {
        least_holds(planner, vram, |bytes| with_memory(question, Some(bytes), None))?;
    }
    if let Some(host) = smallest.host {
        least_holds(planner, host, |bytes| with_memory(question, None, Some(bytes)))?;
    }
    for Both { vram_bytes, host_bytes, fit: claimed } in smallest.both.into_iter().chain(smallest.both_fits) {
        prop_assert_eq!(fit(planner, &with_memory(question, Some(vram_bytes), Some(host_bytes))), Some(claimed));
    }
    if let Some(Both { vram_bytes: vram, host_bytes: host, .. }) = smallest.both {
        prop_assert!(!fits(planner, &with_memory(question, Some(vram - step), Some(1 << 40))));
        prop_assert!(!fits(planner, &with_memory(question, Some(vram), Some(host - step))));
    }
    let mut before: Option<Nearest> = None;
    for nearest in refusal.nearest.iter().copied() {
        let Nearest { direction, width, height, frames, fit: claimed } = nearest;
        let mut asked = question.clone();
        (asked.request.width, asked.request.height) = (Some(width), Some(height));
        (asked.request.frames, asked.request.seconds) = (Some(frames), None);
        prop_assert_eq!(fit(planner, &asked), Some(claimed), "{}x{} {}", width, height, frames);
        // Of one kind there is one, or one that is only admitted and one that fits.
        let second = before.filter(|before| before.direction == direction);
        prop_assert!(second.is_none_or(|first| (first.fit, claimed) == (Fit::Uncertain, Fit::Fits)), "{:?}", refusal.nearest);
        if direction == Direction::FewerFrames {
            for longer in (frames + 17..=refusal.request.frames).step_by(17) {
                asked.request.frames = Some(longer);
                let found = fit(planner, &asked);
                prop_assert!(if second.is_some() { found != Some(Fit::Fits) } else { found.is_none() }, "{} frames", longer);
            }
        } else {
            let (short, other) = (width.min(height), refusal.request.width.min(refusal.request.height));
            prop_assert!(short >= 256 && short <= other && width.is_multiple_of(32) && height.is_multiple_of(32));
        }
        before = Some(nearest);
    }
    Ok(())
}

#[test]
fn both_resources_are_named() {
    let refusal = refused(&h3(), &linux(3.0, 3.0));
    let short: Vec<(Resource, u64, u64, ReasonCode)> =
        refusal.shortfalls.iter().map(|short| (short.resource, short.minimum_bytes, short.usable_bytes, short.reason)).collect();
    // The reserve of little device memory is relaxed to 0.2 GiB.
    let usable = 3 * GIB - 214_748_364;
    let below = ReasonCode::BelowMinimum;
    assert_eq!(short, [(Resource::Vram, 5 * GIB, usable, below), (Resource::Host, 4 * GIB, 2 * GIB, below)]);
}

#[test]
fn what_would_do_in_place_of_6_gib() {
    let h3 = h3();
    let mut asked = linux(6.0, 24.0);
    asked.machine.vram.as_mut().expect("stated").total = Some(Amount { source: Source::Probed, ..Amount::given(8 * GIB) });
    let refusal = advised(&h3, &asked);
    let smallest = refusal.smallest.expect("searched for");
    // 6.25 GiB and the relaxed reserve of 0.2 GiB.
    let bytes = gib(6.45).next_multiple_of(STEP.unsigned_abs());
    // The way with the residual stream on the host is admitted 0.15 GiB below its own figure.
    let vram = smallest.vram.expect("more device memory helps");
    assert_eq!((vram.bytes, vram.fit), (bytes, Fit::Uncertain));
    assert!(vram.fits_bytes.is_some_and(|fits| fits > bytes));
    assert_eq!((smallest.host, smallest.both, smallest.both_fits), (None, None, None));
    let nearest: Vec<_> = refusal.nearest.iter().map(|near| (near.direction, near.width, near.height, near.frames, near.fit)).collect();
    assert_eq!(nearest, [(Direction::FewerFrames, 1344, 768, 209, Fit::Fits), (Direction::SmallerSize, 1248, 704, 243, Fit::Fits),]);
    let changes: Vec<ReasonCode> = refusal.changes.iter().map(|change| change.reason).collect();
    assert_eq!(changes, [ReasonCode::FreeVram, ReasonCode::TryBelowMinimum]);
    offers_hold(&h3, &asked, &refusal).expect("what is offered holds");
}

/// Between 10 and 10.1 GiB the usual reserve comes back, so more memory is less: the least is found all the same.
#[test]
fn the_policy_is_not_monotone() {
    let h3 = h3();
    let mut asked = linux(10.0, 64.0);
    asked.request.frames = Some(345);
    let at = |vram: f64, tokens: u64| {
        let mut asked = with_memory(&asked, Some(gib(vram)), None);
        (asked.request.task, asked.request.reference_video_tokens) = (Task::Ref2va, tokens);
        asked
    };
    // The residual way asks for 9.7 GiB.
    let tokens = 127_000 - 102_816;
    assert!(fits(&h3, &at(9.99, tokens)));
    assert!(!fits(&h3, &at(10.1, tokens)));
    assert!(fits(&h3, &at(10.6, tokens)));
    let refusal = advised(&h3, &at(10.1, tokens));
    assert!(refusal.smallest.expect("searched for").vram.expect("there is one").bytes < 10 * GIB);
    offers_hold(&h3, &at(10.1, tokens), &refusal).expect("what is offered holds");
}

#[test]
fn what_can_be_changed_is_offered_once_it_was_tried() {
    let h3 = h3();
    let reasons = |question: &Question| -> Vec<ReasonCode> { advised(&h3, question).changes.iter().map(|change| change.reason).collect() };
    let mut reserved = linux(6.6, 24.0);
    reserved.machine.vram.as_mut().expect("stated").reserve_bytes = Some(GIB);
    assert_eq!(reasons(&reserved), [ReasonCode::LowerReserve, ReasonCode::TryBelowMinimum]);
    let mut adapted = linux(6.6, 24.0);
    adapted.request.adapter = Some(Adapter { max_block_bytes: 100 << 20, root_bytes: 1 << 20 });
    assert_eq!(reasons(&adapted), [ReasonCode::TryBelowMinimum, ReasonCode::WithoutAdapter]);
    let mut referred = linux(6.6, 24.0);
    (referred.request.task, referred.request.reference_video_tokens) = (Task::Ref2va, 20_000);
    assert_eq!(reasons(&referred), [ReasonCode::TryBelowMinimum, ReasonCode::FewerReferences]);
    let mut little_host = linux(12.0, 4.8);
    little_host.machine.host.as_mut().expect("stated").total = Some(Amount::given(8 * GIB));
    assert_eq!(reasons(&little_host), [ReasonCode::LowerReserve, ReasonCode::FreeHost]);
    assert_eq!(advised(&h3, &little_host).smallest.expect("searched for").host.map(|least| least.bytes), Some(5 * GIB));
    // Steps beyond the usual ones have tables of their own, and a pass of fewer steps another result.
    let mut slow = linux(6.452, 24.0);
    slow.request.steps = Some(32);
    let changes = advised(&h3, &slow).changes;
    assert!(changes.iter().any(|change| change.reason == ReasonCode::FewerSteps && change.output_effect == OutputEffect::Different));
}

#[test]
fn two_passes_are_refused_as_one_is() {
    let h3 = h3();
    let mut asked = linux(6.0, 24.0);
    asked.request.two_pass = Some(TwoPassAsked::default());
    let refusal = advised(&h3, &asked);
    offers_hold(&h3, &asked, &refusal).expect("what is offered holds");
}

#[test]
fn macos_is_refused_below_2_gib_and_is_unknown_above() {
    let h3 = h3();
    let mut asked = question(OperatingSystem::Macos, Architecture::Apple, Precision::Fp8, 1.0, 3.5);
    let errors = h3.plan(&asked).expect_err("device memory is the host's");
    assert_eq!(errors[0].code, "conflict");
    asked.machine.vram = None;
    let refusal = advised(&h3, &asked);
    assert_eq!((refusal.shortfalls[0].resource, refusal.shortfalls[0].shortfall_bytes), (Resource::Unified, GIB / 2));
    assert_eq!(refusal.smallest, Some(Smallest { unified_bytes: Some(4 * GIB), ..Smallest::default() }));
    asked.machine.host = Some(Pool::given(32 * GIB));
    let Ok(Outcome::Unplanned(unplanned)) = h3.plan(&asked) else { panic!("no rule says where blocks are") };
    assert_eq!((unplanned.budgets[0].budget_bytes, unplanned.reasons[0].code.as_str()), (30 * GIB, "uncovered-system"));
    asked.machine.host = Some(Pool { reserve_bytes: Some(GIB / 2), ..Pool::given(32 * GIB) });
    let Ok(Outcome::Unplanned(unplanned)) = h3.plan(&asked) else { panic!("no rule says where blocks are") };
    assert_eq!(unplanned.budgets[0].reserve_bytes, GIB, "never less than 1 GiB");
}

/// A trial waives the estimate of the working set and nothing else: no memory below the decoder's workspace is tried, however wide the
/// frame, and the least that is named is the least.
#[test]
fn a_trial_goes_no_lower_than_the_decoder() {
    let h3 = h3();
    for (vram, [width, height], workspace) in [(0.5, [1344, 768], 3.25), (3.186, [10_144, 800], 25.55), (3.4, [512, 512], 3.25)] {
        let mut asked = linux(vram, 16.0);
        (asked.request.width, asked.request.height) = (Some(width), Some(height));
        asked.capacity_trial = true;
        let refusal = advised(&h3, &asked);
        offers_hold(&h3, &asked, &refusal).expect("what is offered holds");
        let least = refusal.smallest.and_then(|smallest| smallest.vram).expect("more device memory helps");
        assert!(least.bytes >= gib(workspace), "{width}x{height}: {least:?}");
        for less in (1..least.bytes / GIB).map(|whole| whole * GIB) {
            assert_eq!(fit(&h3, &with_memory(&asked, Some(less), None)), None, "{width}x{height}: {less}");
        }
    }
}

/// What is only admitted is called so, and what fits is named beside it.
#[test]
fn what_is_only_admitted_is_marked() {
    let h3 = h3();
    let mut wide = linux(8.0, 16.0);
    (wide.request.width, wide.request.height) = (Some(1920), Some(1088));
    (wide.request.task, wide.request.reference_video_tokens) = (Task::Ref2va, 40_000);
    for asked in [wide, linux(5.0, 16.0)] {
        let refusal = advised(&h3, &asked);
        offers_hold(&h3, &asked, &refusal).expect("what is offered holds");
        let vram = refusal.smallest.and_then(|smallest| smallest.vram).expect("more device memory helps");
        assert!(vram.fit == Fit::Uncertain && vram.fits_bytes.is_some(), "{vram:?}");
        for direction in Direction::ALL {
            let of = || refusal.nearest.iter().filter(|near| near.direction == *direction);
            assert!(of().count() == 0 || of().any(|near| near.fit == Fit::Fits), "{:?}", refusal.nearest);
        }
    }
}

#[test]
fn models_without_a_deployment_are_not_covered() {
    let model = serde_json::from_str(&planning::text("crates/fv-data/data/models/wan21-t2v-1.3b.json")).expect("a model");
    let reasons = Planner::new(&model).expect_err("not covered");
    assert_eq!(reasons[0].code, "uncovered-model");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn what_is_offered_holds(
        windows in any::<bool>(), int8 in any::<bool>(), vram in GIB..12 * GIB, host in 3 * GIB..32 * GIB,
        size in (8_u32..62, 8_u32..62), frames in 2_u32..30, two in any::<bool>(), blackwell in any::<bool>(),
        trial in any::<bool>(), tokens in proptest::option::of(0_u64..60_000),
    ) {
        let os = if windows { Windows } else { Linux };
        let gpu = if blackwell { Architecture::BlackwellRtx } else { Architecture::Ada };
        let mut asked = question(os, gpu, if int8 { Precision::Int8 } else { Precision::Fp8 }, 1.0, 1.0);
        asked.machine.vram = Some(Pool::given(vram));
        asked.machine.host = Some(Pool::given(host));
        (asked.request.width, asked.request.height, asked.request.frames) = (Some(size.0 * 32), Some(size.1 * 32), Some(frames * 17 + 5));
        asked.request.two_pass = two.then(TwoPassAsked::default);
        asked.capacity_trial = trial;
        if let Some(tokens) = tokens {
            (asked.request.task, asked.request.reference_video_tokens) = (Task::Ref2va, tokens);
        }
        let h3 = h3();
        if let Ok(Outcome::Refused(refusal)) = h3.plan(&asked) {
            let refusal = h3.advise(&asked, *refusal).expect("a sound question");
            offers_hold(&h3, &asked, &refusal)?;
        }
    }
}
