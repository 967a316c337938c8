//! Whatever is chosen, the program is right: its operands, its data flow, its order, and its places.

use fv_program::arena::{Effort, pack};
use fv_program::check::{check, check_places};
use fv_program::wan::choice::{Choices, Compute, Decode, Residency, TextKeys};
use fv_program::wan::geometry::{Model, Request};
use fv_program::wan::tiny;
use fv_spec::program::{Element, Formats, Sampler, Schedule, Tier};
use proptest::prelude::*;

use crate::lowered;

/// Blocks anywhere, and legal numbers of slots and places.
pub(crate) fn residency(blocks: usize) -> impl Strategy<Value = Residency> {
    let tier = prop_oneof![Just(Tier::Device), Just(Tier::Pinned), Just(Tier::Disk)];
    (prop::collection::vec(tier, blocks), any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(|(tiers, slots, ring)| {
        let count = |wanted: &dyn Fn(Tier) -> bool| tiers.iter().filter(|&&tier| wanted(tier)).count();
        let places = |of: usize, index: prop::sample::Index| if of == 0 { 0 } else { u32::try_from(index.index(of) + 1).unwrap_or(0) };
        let slots = places(count(&|tier| tier != Tier::Device), slots);
        let ring = places(count(&|tier| tier == Tier::Disk), ring);
        Residency { tiers, slots, ring }
    })
}

fn compute() -> impl Strategy<Value = Compute> {
    let chunk = prop_oneof![5_u64..40, Just(1 << 20)];
    (prop::sample::select(vec![1, 2, 4]), chunk.clone(), chunk, any::<[bool; 4]>()).prop_map(
        |(head_group, feed_forward_chunk, projection_chunk, [outputs_on_host, residual_on_host, kept, paired_guidance])| {
            let text_keys = if kept { TextKeys::Kept } else { TextKeys::Recomputed };
            Compute { head_group, feed_forward_chunk, projection_chunk, outputs_on_host, residual_on_host, text_keys, paired_guidance }
        },
    )
}

fn formats() -> impl Strategy<Value = Formats> {
    let wide = Formats { compute: Element::F64, exact: Element::F64, block_weights: Element::F64 };
    let narrow = Formats { compute: Element::Bf16, exact: Element::F32, block_weights: Element::Bf16 };
    prop::sample::select(vec![
        wide,
        narrow,
        Formats { block_weights: Element::Fp8, ..narrow },
        Formats { block_weights: Element::Int8, ..wide },
    ])
}

pub(crate) fn choices(model: &Model) -> impl Strategy<Value = Choices> + use<> {
    let plain = tiny::choices(model, Element::F64);
    let blocks = usize::try_from(model.transformer.blocks).unwrap_or(0);
    let layers = usize::try_from(model.text.layers).unwrap_or(0);
    let transformers = prop::collection::vec(residency(blocks), plain.transformers.len());
    (formats(), residency(layers), transformers, compute()).prop_map(move |(formats, text, transformers, compute)| Choices {
        formats,
        text,
        transformers,
        compute,
        vae: plain.vae.clone(),
        decode: Decode { tiles: None, ..plain.decode },
    })
}

fn requests(model: &Model) -> impl Strategy<Value = Request> + use<> {
    let (unit, fast) = (2 * model.vae.spatial(), model.transformer.sparse.is_some());
    let guidance = if fast { vec![[1.0, 1.0]] } else { vec![[1.0, 1.0], [5.0, 5.0], [3.0, 1.0]] };
    (1..=2_u64, 1..=2_u64, 0..=2_u64, 1..=5_u32, prop::sample::select(guidance), any::<bool>()).prop_map(
        move |(rows, columns, frames, steps, guidance, euler)| {
            let sampler = if fast {
                Sampler::Dmd
            } else if euler {
                Sampler::Euler
            } else {
                Sampler::UniPc
            };
            let timesteps = if fast { (0..steps).map(|step| 1000 - 200 * step).collect() } else { Vec::new() };
            let schedule = Schedule { sampler, steps, shift: 5.0, timesteps };
            Request { height: rows * unit, width: columns * unit, frames: 4 * frames + 1, schedule, guidance, ..tiny::request() }
        },
    )
}

/// A model, a request and choices for it.
pub(crate) fn cases() -> impl Strategy<Value = (Model, Request, Choices)> {
    let models = vec![tiny::dense(), tiny::sparse(), tiny::two_experts(), tiny::patched()];
    prop::sample::select(models).prop_flat_map(|model| {
        let (requests, choices) = (requests(&model), choices(&model));
        (Just(model), requests, choices)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn programs_are_right((model, request, choices) in cases()) {
        let program = lowered(&model, &request, &choices);
        let findings = check(&program);
        prop_assert!(findings.is_empty(), "{} findings, first {:#?}", findings.len(), &findings[..findings.len().min(3)]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn packed_programs_are_right((model, request, choices) in cases()) {
        let mut program = lowered(&model, &request, &choices);
        let packed = pack(&mut program, Effort { repairs: 500, looks: 20_000 });
        for (region, packed) in program.regions.iter().zip(packed) {
            prop_assert!(region.bytes >= packed.largest_live_sum_bytes);
        }
        let findings = check_places(&program, &[]);
        prop_assert!(findings.is_empty(), "{} findings, first {:#?}", findings.len(), &findings[..findings.len().min(3)]);
    }
}
