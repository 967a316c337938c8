//! What holds for every question: no panic, blocks add up, budgets are kept, and every plan passes the checks of the reader.

mod planning;

use std::sync::LazyLock;

use fv_estimate::planner::freevideo::{Asked, AttentionAsked, BACKENDS, Machine, Planner, Pool, Question, Task, TwoPassAsked};
use fv_estimate::planner::{Outcome, check, diff::diff, explain::explain};
use fv_spec::plan::budget::{Amount, Resource};
use fv_spec::plan::{Adapter, Architecture, Fit, OperatingSystem, Peak, Plan, Precision, ReasonCode, Source, Sourced, Tier};
use proptest::prelude::*;
use proptest::sample::select;

use planning::{GIB, planner, transformer, vae};

static PLANNER: LazyLock<Planner> = LazyLock::new(|| planner("minimax-h3"));

/// Sizes of memory that rules turn at, a byte to either side, and any other.
fn memory() -> impl Strategy<Value = u64> {
    let edges: Vec<u64> = [1, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16, 20, 21, 24, 32, 40, 64].iter().map(|gib| gib * GIB).collect();
    prop_oneof![
        4 => GIB..80 * GIB,
        2 => (select(edges), 0_u64..3).prop_map(|(edge, beside)| edge + beside - 1),
        1 => any::<u64>(),
    ]
}

fn pool() -> impl Strategy<Value = Pool> {
    let amount = || proptest::option::of(memory().prop_map(Amount::given));
    let reserve = proptest::option::weighted(0.2, prop_oneof![0..GIB, any::<u64>()]);
    (memory(), amount(), amount(), amount(), reserve).prop_map(|(free, total, cap, cgroup_limit, reserve_bytes)| Pool {
        total,
        free: Amount { source: Source::Probed, ..Amount::given(free) },
        cap,
        cgroup_limit,
        reserve_bytes,
    })
}

fn side() -> impl Strategy<Value = Option<u32>> {
    proptest::option::of(prop_oneof![8 => (8_u32..80).prop_map(|units| units * 32), 1 => any::<u32>()])
}

fn request() -> impl Strategy<Value = Asked> {
    let steps = || proptest::option::weighted(0.3, prop_oneof![9 => 1_u32..33, 1 => any::<u32>()]);
    let two_pass = (steps(), steps()).prop_map(|(base_steps, refine_steps)| TwoPassAsked { base_steps, refine_steps });
    let tokens = || prop_oneof![3 => Just(0_u64), 1 => 0_u64..40_000, 1 => any::<u64>()];
    let adapter = (prop_oneof![9 => 0..GIB, 1 => any::<u64>()], prop_oneof![9 => 0..GIB, 1 => any::<u64>()])
        .prop_map(|(max_block_bytes, root_bytes)| Adapter { max_block_bytes, root_bytes });
    (
        (side(), side()),
        proptest::option::of(prop_oneof![9 => 30_u32..900, 1 => any::<u32>()]),
        proptest::option::weighted(0.1, any::<f64>()),
        (steps(), proptest::option::weighted(0.3, two_pass)),
        select(Task::ALL.to_vec()),
        (tokens(), tokens()),
        proptest::option::weighted(0.2, adapter),
        any::<bool>(),
    )
        .prop_map(|((width, height), frames, seconds, (steps, two_pass), (task, _), (video, audio), adapter, at_hand)| Asked {
            width,
            height,
            frames,
            seconds,
            steps,
            two_pass,
            task,
            reference_video_tokens: video,
            reference_audio_tokens: audio,
            text_tokens: None,
            table_bytes: None,
            adapter,
            conditioning_at_hand: at_hand,
        })
}

fn machine() -> impl Strategy<Value = Machine> {
    let system = prop_oneof![4 => Just(OperatingSystem::Linux), 4 => Just(OperatingSystem::Windows), 1 => Just(OperatingSystem::Macos)];
    let attention = prop_oneof![
        3 => Just(AttentionAsked::Auto),
        1 => (select(BACKENDS.to_vec()), select(BACKENDS.to_vec())).prop_map(|(global, window)| AttentionAsked::Pair(global, window)),
    ];
    let backends = proptest::option::weighted(0.3, proptest::sample::subsequence(BACKENDS.to_vec(), 0..=5).prop_map(Sourced::given));
    let precision = proptest::option::of(select(Precision::ALL.to_vec()).prop_map(Sourced::given));
    let capability = proptest::option::weighted(
        0.3,
        select(vec!["7.5", "8.0", "8.9", "9.0", "12.0", "x"]).prop_map(|text| Sourced::given(text.to_owned())),
    );
    (
        system,
        proptest::option::weighted(0.9, select(Architecture::ALL.to_vec()).prop_map(Sourced::given)),
        capability,
        precision,
        backends,
        attention,
        (proptest::option::weighted(0.95, pool()), proptest::option::weighted(0.95, pool())),
    )
        .prop_map(|(os, architecture, compute_capability, precision, attention_backends, attention, (vram, host))| Machine {
            os: Sourced::given(os),
            device: None,
            // A system's own generation more often than not, so that questions are answered.
            architecture: architecture.map(|known| if os == OperatingSystem::Macos { Sourced::given(Architecture::Apple) } else { known }),
            compute_capability,
            geforce: None,
            precision: precision.filter(|known| matches!(known.value, Precision::Int8 | Precision::Fp8)),
            attention_backends,
            attention: if os == OperatingSystem::Macos { AttentionAsked::Auto } else { attention },
            vram: vram.filter(|_| os != OperatingSystem::Macos),
            host,
            notes: Vec::new(),
        })
}

fn questions() -> impl Strategy<Value = Question> {
    (request(), machine(), any::<bool>(), proptest::option::weighted(0.2, memory())).prop_map(
        |(request, machine, capacity_trial, demonstrated_host_bytes)| Question {
            request,
            machine,
            capacity_trial,
            demonstrated_host_bytes,
        },
    )
}

/// A plain question that nothing is wrong with.
fn plain() -> impl Strategy<Value = Question> {
    let canvas = (8_u32..62, 8_u32..62, 2_u32..44);
    let gpus = [Architecture::Ampere, Architecture::Ada, Architecture::Hopper, Architecture::BlackwellRtx];
    let known = (any::<bool>(), select(gpus.to_vec()), select(vec![Precision::Int8, Precision::Fp8]));
    (canvas, known, (4 * GIB..48 * GIB, 5 * GIB..80 * GIB), any::<bool>(), any::<bool>()).prop_map(
        |((width, height, frames), (windows, architecture, precision), (vram, host), two, trial)| {
            let os = if windows { OperatingSystem::Windows } else { OperatingSystem::Linux };
            let mut question = planning::question(os, architecture, precision, 8.0, 8.0);
            question.machine.vram = Some(Pool::given(vram));
            question.machine.host = Some(Pool::given(host));
            question.request.width = Some(width * 32);
            question.request.height = Some(height * 32);
            question.request.frames = Some(frames * 17 + 5);
            question.request.two_pass = two.then(TwoPassAsked::default);
            question.capacity_trial = trial;
            question
        },
    )
}

fn of(peak: &Peak, resource: Resource) -> bool {
    (peak.tier == Tier::Device) == (resource == Resource::Vram)
}

fn within(peak: &Peak) -> bool {
    peak.bytes <= peak.limit_bytes
}

/// Why so much is page-locked is what limits it.
fn pins_hold(plan: &Plan) -> Result<(), TestCaseError> {
    let placement = transformer(plan);
    let off = (50 - placement.count(Tier::Device)) * placement.block_bytes;
    let decision = plan.decisions.iter().find(|decision| decision.key == "transformer.pin_bytes").expect("there");
    let number = |name: &str| u64::try_from(decision.numbers[name]).expect("positive");
    let above_headroom = |plan: &Plan| {
        let host = plan.budgets.iter().find(|budget| budget.resource == Resource::Host).expect("host memory");
        host.retention_bytes.unwrap_or(host.budget_bytes).saturating_sub(number("headroom_bytes"))
    };
    prop_assert_eq!(decision.reason == ReasonCode::PinEveryBlock, placement.pin_bytes == off);
    match decision.reason {
        ReasonCode::PinEveryBlock => {}
        ReasonCode::PinBeyondFitting => {
            prop_assert_eq!(placement.pin_bytes, number("blocks_beyond_fitting_bytes"));
            prop_assert_eq!(placement.pin_bytes, (50 - number("fitting_blocks")) * placement.block_bytes);
        }
        ReasonCode::PinHeadroom => prop_assert_eq!(placement.pin_bytes, above_headroom(plan)),
        ReasonCode::PinCeiling => prop_assert_eq!(placement.pin_bytes, 22_000_000_000),
        ReasonCode::PinNothingLeft => prop_assert_eq!((placement.pin_bytes, above_headroom(plan)), (0, 0)),
        ReasonCode::PinAllOrNothing => prop_assert_eq!(placement.pin_bytes, 0),
        other => prop_assert!(false, "{:?}", other),
    }
    Ok(())
}

fn holds(plan: &Plan) -> Result<(), TestCaseError> {
    prop_assert_eq!(check::check(plan), vec![]);
    let text = serde_json::to_string(plan).expect("a plan is JSON");
    prop_assert_eq!(&check::read(&text).expect("what was made can be read"), plan);
    for (placement, count) in [(transformer(plan), 50), (vae(plan), 36)] {
        let blocks: u64 = Tier::ALL.into_iter().map(|tier| placement.count(tier)).sum();
        prop_assert_eq!(blocks, count);
        let by_index = (0..placement.block_count).filter(|index| placement.tier_of(*index).is_some()).count();
        prop_assert_eq!(by_index as u64, count);
        prop_assert_eq!(placement.tier_of(placement.block_count), None);
    }
    pins_hold(plan)?;
    prop_assert!(transformer(plan).count(Tier::Device) <= 44);
    prop_assert!(plan.decisions.iter().all(|decision| !decision.value.is_null()));
    if plan.fit == Fit::Fits {
        prop_assert!(plan.peaks.iter().all(|peak| peak.bytes <= peak.limit_bytes));
    }
    let margins = explain(plan).margins;
    prop_assert_eq!(margins.len(), plan.budgets.len());
    for margin in margins {
        prop_assert_eq!(margin.margin_bytes >= 0, plan.peaks.iter().filter(|peak| of(peak, margin.resource)).all(within), "{:?}", margin);
        prop_assert!(plan.fit == Fit::Uncertain || margin.margin_bytes >= 0, "a plan that fits is above no limit: {:?}", margin);
    }
    prop_assert!(diff(plan, plan).same && diff(plan, plan).fields.is_empty());
    Ok(())
}

fn any_answer(planner: &Planner, question: &Question) -> Result<bool, TestCaseError> {
    match planner.plan(question) {
        Ok(Outcome::Planned(plan)) => holds(&plan).map(|()| true),
        Ok(Outcome::Refused(refusal)) => {
            prop_assert!(!refusal.shortfalls.is_empty());
            for short in &refusal.shortfalls {
                prop_assert_eq!(short.usable_bytes + short.shortfall_bytes, short.minimum_bytes);
                prop_assert!(short.shortfall_bytes > 0);
            }
            Ok(false)
        }
        Ok(Outcome::Unplanned(unplanned)) => {
            prop_assert_eq!(unplanned.system.os.value, OperatingSystem::Macos);
            Ok(false)
        }
        Err(errors) => {
            prop_assert!(!errors.is_empty() && errors.iter().all(|error| !error.message.is_empty()));
            Ok(false)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn any_question_has_an_answer(question in questions()) {
        any_answer(&PLANNER, &question)?;
    }

    #[test]
    fn every_plan_is_consistent(question in plain()) {
        any_answer(&PLANNER, &question)?;
    }

    #[test]
    fn nothing_is_planned_without_memory(mut question in plain(), host in any::<bool>()) {
        let pool = if host { question.machine.host.as_mut() } else { question.machine.vram.as_mut() };
        pool.expect("stated").free.bytes = 0;
        let errors = PLANNER.plan(&question).expect_err("no memory is an error");
        prop_assert!(errors.iter().any(|error| error.code == "no-memory"), "{:?}", errors);
    }
}
