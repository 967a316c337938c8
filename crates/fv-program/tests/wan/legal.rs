//! What cannot be lowered is refused with the field, what was found and what is allowed.

use fv_program::wan::choice::Choices;
use fv_program::wan::geometry::{Model, Request};
use fv_program::wan::{lower, tiny};
use fv_spec::program::{Element, Sampler, Tier};

type Change = fn(&mut Request, &mut Choices);

const REFUSED: &[(&str, &str, Change)] = &[
    ("height", "72 pixels; a multiple of 16 up to 16384 is allowed, such as 64", |request, _| request.height = 72),
    ("width", "0 pixels; a multiple of 16 up to 16384 is allowed, such as 16", |request, _| request.width = 0),
    ("frames", "8 frames; 4 k + 1 up to 4093 are allowed, such as 5", |request, _| request.frames = 8),
    ("frames", "0 frames; 4 k + 1 up to 4093 are allowed, such as 1", |request, _| request.frames = 0),
    ("schedule.steps", "0 steps; 1 to 1000 are allowed", |request, _| request.schedule.steps = 0),
    ("schedule.shift", "NaN; a number above 0 is allowed", |request, _| request.schedule.shift = f64::NAN),
    ("schedule.timesteps", "0 timesteps for 4 steps; distribution matching wants one for each", |request, _| {
        request.schedule.sampler = Sampler::Dmd;
    }),
    ("schedule.timesteps", "1 timesteps are stated, but this sampler derives them from the number of steps", |request, _| {
        request.schedule.timesteps = vec![1000];
    }),
    ("guidance[0]", "0.5; 1, which is no guidance, or more is allowed", |request, _| request.guidance[0] = 0.5),
    ("prompt_tokens", "17 tokens; 1 to 16 are allowed", |request, _| request.prompt_tokens = 17),
    ("negative_tokens", "0 tokens; 1 to 16 are allowed", |request, _| request.negative_tokens = 0),
    ("formats.compute", "fp8; f64, f32, bf16 are allowed", |_, choices| {
        choices.formats.compute = Element::Fp8;
        choices.formats.block_weights = Element::Fp8;
    }),
    ("formats.block_weights", "bf16; f64, fp8, int8 are allowed", |_, choices| choices.formats.block_weights = Element::Bf16),
    ("compute.head_group", "3 of 4 heads; 1, 2, 4 are allowed", |_, choices| choices.compute.head_group = 3),
    ("compute.projection_chunk", "0 rows; 1 or more are allowed", |_, choices| choices.compute.projection_chunk = 0),
    ("transformers", "2 transformers have a place, but the model has 1", |_, choices| {
        choices.transformers.push(choices.transformers[0].clone());
    }),
    ("text.tiers", "2 blocks have a place, but the component has 3", |_, choices| {
        choices.text.tiers.pop();
    }),
    ("transformers[0].slots", "0 places for 1 blocks that are not on the device; 1 to 1 would do", |_, choices| {
        choices.transformers[0].tiers[1] = Tier::Pinned;
    }),
    ("transformers[0].ring", "2 places for 1 blocks that are on disk; 1 to 1 would do", |_, choices| {
        choices.transformers[0].tiers[1] = Tier::Disk;
        (choices.transformers[0].slots, choices.transformers[0].ring) = (1, 2);
    }),
    ("transformers[0].tiers", "a block lies on the device, in pinned memory or on disk, not in pageable memory", |_, choices| {
        choices.transformers[0].tiers[1] = Tier::Pageable;
    }),
    ("transformers[0].slots", "1 places for 0 blocks that are not on the device; 0 would do", |_, choices| {
        choices.transformers[0].slots = 1;
    }),
];

fn refusals(model: &Model, change: Change) -> Vec<String> {
    let (mut request, mut choices) = (tiny::request(), tiny::choices(model, Element::F64));
    change(&mut request, &mut choices);
    lower(model, &request, &choices).err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn each_refusal_names_its_field() {
    for (field, message, change) in REFUSED {
        assert_eq!(refusals(&tiny::dense(), *change), [format!("{field}: {message}")]);
    }
}

#[test]
fn everything_that_is_wrong_is_told_at_once() {
    let refused = refusals(&tiny::two_experts(), |request, choices| {
        (request.height, request.schedule.steps, request.guidance[1]) = (1, 0, 0.0);
        choices.compute.head_group = 0;
    });
    assert_eq!(refused.len(), 4, "{refused:#?}");
}

/// Patches of the decoder count: Wan 2.2's 5B wants multiples of 32.
#[test]
fn sizes_are_multiples_of_the_models_unit() {
    assert!(refusals(&tiny::dense(), |request, _| (request.height, request.width) = (48, 80)).is_empty());
    assert_eq!(refusals(&tiny::patched(), |request, _| (request.height, request.width) = (48, 80)).len(), 2);
}
