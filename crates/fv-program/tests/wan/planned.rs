//! Choices in the words of a plan, and back.

use fv_program::arena::{Effort, pack};
use fv_program::wan::choice::Choices;
use fv_program::wan::planned;
use fv_program::wan::{self, tiny};
use fv_spec::plan::arena::Arena;
use fv_spec::plan::{
    Architecture, Fit, OperatingSystem, Pass, Plan, PlanRequest, PolicyName, Precision, Runtime, Sourced, SystemFacts, VERSION,
};
use fv_spec::program::{Element, Program};
use proptest::prelude::*;

use crate::choices::choices;

fn plan(model: &wan::geometry::Model, request: &wan::geometry::Request, choices: &Choices, precision: Precision) -> Plan {
    let count = |value: u64| u32::try_from(value).expect("small");
    let tokens = model.latent(request).len() / 4;
    Plan {
        version: VERSION,
        id: String::new(),
        policy: PolicyName::Optimal,
        model: model.id.clone(),
        runtime: Runtime::FvRun,
        system: SystemFacts {
            os: Sourced::assumed(OperatingSystem::Linux),
            device: None,
            devices: 1,
            architecture: Sourced::assumed(Architecture::Hopper),
            compute_capability: None,
            geforce: None,
            precision: Sourced::given(precision),
            attention_backends: Sourced::assumed(vec![]),
        },
        request: PlanRequest {
            width: count(request.width),
            height: count(request.height),
            fps: None,
            requested_frames: count(request.frames),
            requested_ns: None,
            frames: count(request.frames),
            latent_frames: count(model.latent(request).frames),
            video_tokens: tokens,
            steps: request.schedule.steps,
            task: "t2v".to_owned(),
            reference_video_tokens: 0,
            reference_audio_tokens: 0,
            text_tokens: Sourced::given(request.prompt_tokens),
            adapter: None,
            sampling: None,
        },
        budgets: vec![],
        fit: Fit::Fits,
        placements: planned::placements(model, choices),
        encoders: vec![],
        passes: vec![Pass {
            name: "only".to_owned(),
            width: count(request.width),
            height: count(request.height),
            video_tokens: tokens,
            steps: request.schedule.steps,
            compute: planned::compute(model, request, choices),
            block_cache: None,
            decisions: vec![],
        }],
        two_pass: None,
        decoders: vec![planned::decoder(model, request, choices).expect("squares")],
        peaks: vec![],
        arena: None,
        forecast: None,
        unforecast: vec![],
        decisions: vec![],
        notes: vec![],
        plan_revisions: vec![],
    }
}

type Change<T> = fn(&mut T);

fn precision(choices: &Choices) -> Option<Precision> {
    Precision::ALL.iter().copied().find(|&precision| planned::formats(precision) == Some(choices.formats))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn what_a_plan_says_of_choices_is_read_as_them(found in choices(&tiny::two_experts())) {
        let (model, request) = (tiny::two_experts(), tiny::request());
        prop_assume!(precision(&found).is_some());
        // Plans say chunks in 32 bits.
        let plan = plan(&model, &request, &found, precision(&found).expect("assumed"));
        let read: Plan = serde_json::from_str(&serde_json::to_string(&plan).expect("JSON")).expect("a plan");
        prop_assert_eq!(planned::choices(&model, &read), Ok(found));
    }
}

#[test]
fn what_no_program_does_is_refused_by_name() {
    let (model, request) = (tiny::dense(), tiny::request());
    let choices = Choices { formats: planned::formats(Precision::Bf16).expect("covered"), ..tiny::choices(&model, Element::Bf16) };
    let good = plan(&model, &request, &choices, Precision::Bf16);
    assert_eq!(planned::choices(&model, &good), Ok(choices));
    let cases: [(&str, Change<Plan>); 6] = [
        ("placements.vae", |plan| plan.placements.retain(|placement| placement.component != fv_spec::plan::Role::Vae)),
        ("passes", |plan| plan.passes.clear()),
        ("passes", |plan| plan.passes.push(plan.passes[0].clone())),
        ("decoders", |plan| plan.decoders.clear()),
        ("passes[0].compute", |plan| plan.passes[0].compute[0].window_batch = Some(4)),
        ("system.precision", |plan| plan.system.precision = Sourced::given(Precision::Fp16)),
    ];
    for (field, change) in cases {
        let mut plan = good.clone();
        change(&mut plan);
        let refused = planned::choices(&model, &plan).expect_err(field);
        assert!(refused.iter().any(|refused| refused.field == field), "{field}: {refused:?}");
    }
}

fn packed() -> (Program, Arena) {
    let model = tiny::dense();
    let mut program = wan::lower(&model, &tiny::request(), &tiny::choices(&model, Element::F32)).expect("legal");
    pack(&mut program, Effort::default());
    let arena = planned::arena(&program);
    (program, arena)
}

#[test]
fn a_layout_is_that_of_its_program() {
    let (program, arena) = packed();
    assert_eq!(planned::differences(&arena, &program), []);
    let placed: usize = arena.regions.iter().map(|region| region.buffers.len()).sum();
    assert_eq!(placed, program.buffers.len());
}

#[test]
fn a_layout_that_was_edited_is_refused_with_the_buffer() {
    let cases: [(&str, Change<Arena>); 6] = [
        ("the program has no such region", |arena| {
            let copy = arena.regions[0].clone();
            arena.regions.push(fv_spec::plan::arena::Region { part: Some("other".to_owned()), ..copy });
        }),
        ("the plan has no such region", |arena| drop(arena.regions.pop())),
        (" at 256 for operations", |arena| arena.regions[0].buffers[0].offset_bytes = 256),
        ("the plan has", |arena| drop(arena.regions[0].buffers.pop())),
        ("bytes, the program", |arena| arena.regions[0].bytes += 256),
        ("for operations", |arena| arena.regions[0].buffers[0].last_operation += 1),
    ];
    for (message, change) in cases {
        let (program, mut arena) = packed();
        change(&mut arena);
        let found = planned::differences(&arena, &program);
        assert!(found.iter().any(|refused| refused.message.contains(message)), "{message}: {found:?}");
    }
}
