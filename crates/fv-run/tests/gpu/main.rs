//! Whole transformers on a device, against the same model on the processor in double precision. Needs a device:
//! `cargo test -p fv-run --test gpu -- --ignored --nocapture`.

#![expect(clippy::print_stdout, reason = "errors are what this is for")]

use std::collections::{BTreeMap, BTreeSet};

use fv_device::cuda::Device;
use fv_program::arena::{self, Effort};
use fv_program::check;
use fv_program::wan::choice::{Choices, Residency, TextKeys};
use fv_program::wan::geometry::{Dit, Model, Request};
use fv_program::wan::{self, tiny};
use fv_run::execute::inputs::Given;
use fv_run::execute::outputs::{Kept, Values};
use fv_run::execute::queue::Order;
use fv_run::execute::weights::Synthetic;
use fv_run::execute::{self, World, cuda};
use fv_spec::program::kernel::{Input, Output};
use fv_spec::program::{Element, Formats, Program, StageName, Tier};

/// Like a tiny model, with heads of 128 features as all large ones have.
fn wide(model: Model) -> Model {
    Model { transformer: Dit { hidden: 256, heads: 2, ffn: 512, ..model.transformer }, ..model }
}

fn placed(model: &Model, request: &Request, choices: &Choices) -> Program {
    let mut program = wan::lower(model, request, choices).unwrap_or_else(|refused| panic!("{refused:?}"));
    arena::pack(&mut program, Effort::default());
    let findings = check::check_places(&program, &[]);
    assert!(findings.is_empty(), "{findings:#?}");
    program
}

fn inputs(model: &Model, request: &Request) -> Given {
    let ids = |tokens: u64, by: u64| (0..tokens).map(|at| f64::from(u32::try_from((at * by + 11) % 128).expect("few"))).collect();
    let channels = usize::try_from(model.vae.latent).expect("few");
    let numbers = BTreeMap::from([
        ((Input::Prompt, 0), ids(request.prompt_tokens, 37)),
        ((Input::NegativePrompt, 0), ids(request.negative_tokens, 53)),
        ((Input::LatentMean, 0), vec![0.0; channels]),
        ((Input::LatentDeviation, 0), vec![1.0; channels]),
    ]);
    Given { numbers, seed: 3 }
}

fn latent(kept: &Kept) -> Vec<f64> {
    kept.values.get(&(Output::Latent, 0)).map(Values::numbers).expect("a latent leaves")
}

fn on_processor(model: &Model, request: &Request, choices: &Choices) -> Vec<f64> {
    let program = placed(model, request, choices);
    let mut outputs = Kept::default();
    let inputs = inputs(model, request);
    let mut world = World { weights: &Synthetic::default(), inputs: &inputs, outputs: &mut outputs };
    let options = execute::Options { order: Order::Issued, check_gaps: false };
    execute::execute(&program, &mut world, options, &mut |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    latent(&outputs)
}

fn on_device(device: &Device, model: &Model, request: &Request, choices: &Choices) -> Vec<f64> {
    let program = placed(model, request, choices);
    let mut outputs = Kept::default();
    let inputs = inputs(model, request);
    let mut world = World { weights: &Synthetic::default(), inputs: &inputs, outputs: &mut outputs };
    let options = cuda::Options { stages: BTreeSet::from([StageName::Encoding, StageName::Denoising]), ..cuda::Options::default() };
    let report = cuda::execute(&program, device, &mut world, &options, &mut |_| {}).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.made_up.is_empty(), "{:?}", report.made_up);
    let steps = report.segments.iter().filter(|timed| timed.segment.ends_with("step"));
    let used: BTreeSet<u64> = steps.skip(1).map(|timed| timed.used_bytes).collect();
    assert_eq!(used.len(), 1, "no step but the first changes what is in use: {:?}", report.segments);
    latent(&outputs)
}

fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let squares = |numbers: &mut dyn Iterator<Item = f64>| numbers.map(|x| x * x).sum::<f64>().sqrt();
    let difference = squares(&mut found.iter().zip(expected).map(|(a, b)| a - b));
    if difference.is_nan() { f64::INFINITY } else { difference / squares(&mut expected.iter().copied()) }
}

/// The device's errors are those of the numbers that it stores: at most half as many again as the processor makes that stores the
/// same and computes in single precision.
#[test]
#[ignore = "needs a CUDA device"]
fn transformers_are_those_of_the_processor() {
    let device = Device::open(0).unwrap_or_else(|error| panic!("{error}"));
    let models = [
        ("dense", tiny::dense(), tiny::request()),
        ("sparse", tiny::sparse(), tiny::distilled()),
        ("two experts", tiny::two_experts(), tiny::request()),
        ("dense, heads of 128", wide(tiny::dense()), tiny::request()),
        ("sparse, heads of 128", wide(tiny::sparse()), Request { height: 128, width: 160, frames: 17, ..tiny::distilled() }),
    ];
    let mut wrong = Vec::new();
    for (name, model, request) in models {
        let exact = on_processor(&model, &request, &tiny::choices(&model, Element::F64));
        let stored = error(&on_processor(&model, &request, &tiny::choices(&model, Element::Bf16)), &exact);
        let found = error(&on_device(&device, &model, &request, &tiny::choices(&model, Element::Bf16)), &exact);
        let ok = found <= 1.5 * stored;
        println!("{name:<28} device {found:.3e}, processor {stored:.3e}{}", if ok { "" } else { "  WRONG" });
        if !ok {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// Where weights live and how rows and heads are split does not change a bit.
#[test]
#[ignore = "needs a CUDA device"]
fn every_placement_gives_the_same_bits() {
    let device = Device::open(0).unwrap_or_else(|error| panic!("{error}"));
    let mut wrong = Vec::new();
    for (name, model, request) in [
        ("dense", wide(tiny::dense()), tiny::request()),
        ("sparse", wide(tiny::sparse()), Request { height: 128, width: 160, frames: 17, ..tiny::distilled() }),
    ] {
        for block_weights in [Element::Bf16, Element::Fp8, Element::Int8] {
            let mut plain = tiny::choices(&model, Element::Bf16);
            plain.formats = Formats { block_weights, ..plain.formats };
            let expected = on_device(&device, &model, &request, &plain);
            for (placement, choices) in placements(&plain, &model) {
                let same = on_device(&device, &model, &request, &choices) == expected;
                println!("{name}, {}, {placement:<36} {}", block_weights.word(), if same { "the same bits" } else { "OTHER BITS" });
                if !same {
                    wrong.push(format!("{name}, {}, {placement}", block_weights.word()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

fn placements(plain: &Choices, model: &Model) -> Vec<(&'static str, Choices)> {
    let blocks = usize::try_from(model.transformer.blocks).expect("few");
    let streamed = |tier: Tier, slots: u32, ring: u32| {
        let mut choices = plain.clone();
        choices.transformers.fill(Residency { tiers: vec![tier; blocks], slots, ring });
        choices
    };
    let mut chunks = plain.clone();
    chunks.compute.projection_chunk = 50;
    chunks.compute.feed_forward_chunk = 17;
    let mut groups = plain.clone();
    groups.compute.head_group = 1;
    let mut staged = chunks.clone();
    staged.compute.head_group = 1;
    staged.compute.outputs_on_host = true;
    staged.compute.residual_on_host = true;
    let mut again = plain.clone();
    again.compute.text_keys = TextKeys::Recomputed;
    again.compute.paired_guidance = false;
    let mut mixed = streamed(Tier::Pinned, 2, 1);
    for residency in &mut mixed.transformers {
        residency.tiers[0] = Tier::Device;
        residency.tiers[blocks - 1] = Tier::Disk;
    }
    vec![
        ("once more", plain.clone()),
        ("pinned, two slots", streamed(Tier::Pinned, 2, 0)),
        ("pinned, one slot", streamed(Tier::Pinned, 1, 0)),
        ("disk, two slots, two places", streamed(Tier::Disk, 2, 2)),
        ("mixed tiers", mixed),
        ("chunks of rows", chunks),
        ("one head at a time", groups),
        ("activations in host memory", staged),
        ("text keys again, one prediction at a time", again),
    ]
}
