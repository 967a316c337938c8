//! Programs of the models that are covered, at sizes that matter: they are right, and their regions as small as what lives in them.

use fv_program::{
    arena::{Effort, pack},
    check::check_places,
    wan::{
        choice::{Choices, Compute, Decode, Residency, TextKeys},
        geometry::{Dit, Model, Request, Sparse, Umt5, Vae},
        lower,
    },
    work::work,
};
use fv_spec::program::{Element, Formats, Sampler, Schedule, Segment, Tier};

const UMT5: Umt5 =
    Umt5 { hidden: 4096, heads: 64, head_dim: 64, ffn: 10_240, layers: 24, vocabulary: 256_384, buckets: 32, max_distance: 128 };
const VAE: Vae = Vae { latent: 16, width: 96, residual_blocks: 2, output: 3, patch: 1, residual: false };

fn dit(hidden: u64, heads: u64, ffn: u64, blocks: u64) -> Dit {
    Dit { hidden, heads, ffn, blocks, patch: [1, 2, 2], in_channels: 16, out_channels: 16, text: 4096, frequencies: 256, sparse: None }
}

fn small() -> Model {
    Model { id: "wan21-t2v-1.3b".to_owned(), text: UMT5, transformer: dit(1536, 12, 8960, 30), boundary: None, vae: VAE }
}

fn large() -> Model {
    Model { id: "wan21-t2v-14b".to_owned(), transformer: dit(5120, 40, 13_824, 40), ..small() }
}

fn request(width: u64, height: u64) -> Request {
    let schedule = Schedule { sampler: Sampler::UniPc, steps: 50, shift: 5.0, timesteps: Vec::new() };
    Request { height, width, frames: 81, schedule, guidance: [5.0; 2], prompt_tokens: 60, negative_tokens: 120, text_rows: 512 }
}

fn streamed(blocks: u64, resident: u64, disk: u64, slots: u32) -> Residency {
    let tier = |block| {
        if block < resident {
            Tier::Device
        } else if block >= blocks - disk {
            Tier::Disk
        } else {
            Tier::Pinned
        }
    };
    Residency { tiers: (0..blocks).map(tier).collect(), slots, ring: if disk > 0 { 2 } else { 0 } }
}

fn choices(model: &Model, transformer: Residency, compute: Compute) -> Choices {
    Choices {
        formats: Formats { compute: Element::Bf16, exact: Element::F32, block_weights: Element::Bf16 },
        text: streamed(model.text.layers, 0, 0, 2),
        transformers: vec![transformer; if model.boundary.is_some() { 2 } else { 1 }],
        compute,
        vae: Residency::resident(18),
        decode: Decode { tiles: None, frames: 4, pixels: Element::U8 },
    }
}

fn whole(model: &Model) -> Compute {
    Compute {
        head_group: model.transformer.heads,
        feed_forward_chunk: u64::from(u32::MAX),
        projection_chunk: u64::from(u32::MAX),
        outputs_on_host: false,
        residual_on_host: false,
        text_keys: TextKeys::Kept,
        paired_guidance: true,
    }
}

fn chunked() -> Compute {
    Compute {
        head_group: 4,
        feed_forward_chunk: 4096,
        projection_chunk: 8192,
        outputs_on_host: false,
        residual_on_host: false,
        text_keys: TextKeys::Recomputed,
        paired_guidance: false,
    }
}

fn cases() -> Vec<(&'static str, Model, Request, Choices)> {
    let (s, l) = (small(), large());
    let staged = Compute { outputs_on_host: true, residual_on_host: true, ..chunked() };
    let sparse = Model { transformer: Dit { sparse: Some(Sparse { sparsity: 0.8 }), ..s.transformer }, ..small() };
    let experts = Model { boundary: Some(0.875), ..large() };
    let eight = |choices: Choices| Choices { formats: Formats { block_weights: Element::Fp8, ..choices.formats }, ..choices };
    vec![
        ("1.3B resident", s.clone(), request(832, 480), choices(&s, Residency::resident(30), whole(&s))),
        ("1.3B streamed, whole", s.clone(), request(832, 480), choices(&s, streamed(30, 0, 0, 2), whole(&s))),
        ("1.3B streamed, chunks", s.clone(), request(832, 480), choices(&s, streamed(30, 8, 0, 3), chunked())),
        ("1.3B sparse", sparse.clone(), request(832, 480), choices(&sparse, Residency::resident(30), whole(&sparse))),
        ("1.3B sparse, chunks", sparse.clone(), request(832, 480), choices(&sparse, streamed(30, 8, 0, 2), chunked())),
        ("14B streamed, chunks", l.clone(), request(1280, 720), choices(&l, streamed(40, 4, 0, 2), chunked())),
        ("14B streamed, disk, chunks", l.clone(), request(1280, 720), choices(&l, streamed(40, 4, 20, 2), chunked())),
        ("14B streamed, staged", l.clone(), request(1280, 720), choices(&l, streamed(40, 0, 0, 1), staged)),
        ("14B fp8, chunks", l.clone(), request(1280, 720), eight(choices(&l, streamed(40, 10, 0, 2), chunked()))),
        ("2 x 14B, chunks", experts.clone(), request(1280, 720), choices(&experts, streamed(40, 4, 0, 2), chunked())),
    ]
}

#[test]
fn programs_are_right_and_regions_as_small_as_what_lives_in_them() {
    for (name, model, request, choices) in cases() {
        let mut program = lower(&model, &request, &choices).unwrap_or_else(|refused| panic!("{name}: {refused:?}"));
        let packed = pack(&mut program, Effort::default());
        for (region, packed) in program.regions.iter().zip(packed) {
            assert!(packed.proven && packed.within(102), "{name}, {} on {}: {packed:?}", region.name, region.tier.word());
        }
        assert_eq!(check_places(&program, &[]), [], "{name}");
    }
}

/// Operations of a step without guidance and of decoding are those that were counted from the architecture by hand, in units of
/// 10^12: products and attention of the transformer, both of the video decoder. What does not depend on the step is not in it.
#[test]
fn work_is_that_of_the_architecture() {
    let (small, large) = (small(), large());
    for (model, size, [products, attention, decoding]) in [(&small, [832, 480], [82, 201, 275]), (&large, [1280, 720], [1810, 4714, 639])] {
        let request = Request { guidance: [1.0; 2], ..request(size[0], size[1]) };
        let choices = choices(model, Residency::resident(model.transformer.blocks), whole(model));
        let program = lower(model, &request, &choices).unwrap_or_else(|refused| panic!("{refused:?}"));
        let [step, decode] = ["step", "decode"].map(|name| sums(program.segments.iter().find(|segment| segment.name == name)));
        for (found, expected) in [(step[0], products), (step[1], attention), (decode[0] + decode[1], decoding)] {
            let expected = expected * 1_000_000_000_000_u128;
            assert!(found.abs_diff(expected) * 200 <= expected, "{}: {found} operations, about {expected} were counted", model.id);
        }
    }
}

/// Operations of products and of attention.
fn sums(segment: Option<&Segment>) -> [u128; 2] {
    let works = segment.into_iter().flat_map(|segment| segment.ops.iter().map(work));
    works.fold([0; 2], |[products, attention], work| {
        [products + work.matrix.map_or(0, |(_, operations)| operations), attention + work.attention]
    })
}
