//! A step's summary says what the whole program does, and what the page on choices says that each of them saves.

use std::collections::BTreeMap;

use fv_program::check::kernel_name;
use fv_program::wan::choice::{Choices, Compute, Residency, TextKeys};
use fv_program::wan::geometry::{Model, Request};
use fv_program::wan::summary::Summary;
use fv_program::wan::tiny;
use fv_spec::program::{Element, Formats, Op, Program, Tier, View};
use proptest::prelude::*;

use crate::choices::cases;
use crate::lowered;
use crate::published::{UMT5_XXL, WAN_1_3B};

/// How often each kernel is used on operands of the same extents.
fn count<'a>(ops: impl Iterator<Item = (&'a Op, u64)>) -> BTreeMap<String, u64> {
    let shape = |view: &View| format!("{}x{}{}", view.rows, view.columns, view.element.word());
    let mut counts = BTreeMap::new();
    for (op, times) in ops.filter(|(op, _)| op.block.is_some()) {
        let operands: Vec<_> = op.reads.iter().chain(&op.writes).map(shape).collect();
        *counts.entry(format!("{} {} {}", op.stream.word(), kernel_name(&op.kernel), operands.join(" "))).or_default() += times;
    }
    counts
}

/// The largest live sum of the transformer's memory on a tier from the end of loading on, blocks apart.
fn peak(program: &Program, tier: Tier) -> u64 {
    let own = |region: &str| region == "transformer";
    let ops: Vec<_> = program.ops().map(|(segment, _)| &*segment.name).collect();
    let buffers = program.buffers.iter().filter(|buffer| {
        let region = &program.regions[buffer.region as usize];
        region.tier == tier && own(&region.name) && !buffer.name.starts_with("blocks.")
    });
    let buffers: Vec<_> = buffers.collect();
    let steps = (0_u32..).zip(ops).filter(|(_, segment)| ["set_up_transformer", "step", "last_step"].contains(segment));
    steps
        .map(|(at, _)| buffers.iter().filter(|buffer| buffer.first <= at && at <= buffer.last).map(|buffer| buffer.bytes).sum())
        .max()
        .unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_summary_is_that_of_the_program((model, request, choices) in cases()) {
        let choices = Choices { transformers: vec![Residency::resident(4); choices.transformers.len()], ..choices };
        let program = lowered(&model, &request, &choices);
        let Some(step) = program.segments.iter().find(|segment| segment.name == "last_step") else { panic!("a step is missing") };
        let uses_first = program.regions.iter().any(|region| region.name == "transformer");
        let summary = Summary::new(&model, &request, choices.formats, choices.compute, usize::from(!uses_first));
        let expected = summary.block.iter().map(|counted| (&counted.op, counted.times * 4 * summary.sweeps));
        prop_assert_eq!(count(step.ops.iter().map(|op| (op, 1))), count(expected));
        // without a step before the last, noise is not drawn
        if uses_first && request.schedule.steps > 1 {
            prop_assert_eq!((summary.device_bytes, summary.host_bytes), (peak(&program, Tier::Device), peak(&program, Tier::Pinned)));
        }
    }
}

const WIDE: Compute = Compute {
    head_group: 12,
    feed_forward_chunk: 1024,
    projection_chunk: 1024,
    outputs_on_host: false,
    residual_on_host: false,
    text_keys: TextKeys::Kept,
    paired_guidance: true,
};

/// Wan 2.1 1.3B, 81 frames of 832 x 480.
fn large(compute: Compute) -> Summary {
    let model = Model { text: UMT5_XXL, transformer: WAN_1_3B, ..tiny::dense() };
    let request = Request { height: 480, width: 832, frames: 81, text_rows: 512, ..tiny::request() };
    let formats = Formats { compute: Element::Bf16, exact: Element::F32, block_weights: Element::Bf16 };
    Summary::new(&model, &request, formats, compute, 0)
}

/// All tokens' features.
const U: u64 = 32_760 * 1536 * 2;
/// Those of a chunk.
const ROWS: u64 = 1024 * 1536 * 2;

#[test]
fn each_choice_saves_what_is_said() {
    let bytes = |compute| large(compute).device_bytes;
    let wide = bytes(WIDE);
    // two residual streams, queries, keys, values, the normalised rows gone by then
    assert!(wide > 5 * U && wide < 5 * U + (480 << 20), "{wide}");
    assert_eq!(wide - bytes(Compute { head_group: 1, ..WIDE }), U / 12 * 11);
    let prediction = 16 * 21 * 60 * 104 * 4; // waits for the other one where they are not computed together
    assert_eq!(wide - bytes(Compute { paired_guidance: false, ..WIDE }), U - prediction);
    assert_eq!(wide - bytes(Compute { residual_on_host: true, ..WIDE }), 2 * U - 4 * ROWS);
    let keys = 2 * 30 * 2 * 512 * 1536 * 2; // two predictions, blocks, keys and values
    let recomputed = bytes(Compute { text_keys: TextKeys::Recomputed, ..WIDE });
    assert_eq!(wide - recomputed, keys - 2 * 512 * 1536 * 2);
}

#[test]
fn staging_moves_what_is_said() {
    let moved = |compute| large(Compute { paired_guidance: false, ..compute }).staged_bytes();
    assert_eq!(moved(WIDE), [0, 0]);
    assert_eq!(moved(Compute { outputs_on_host: true, ..WIDE }), [4 * U, 4 * U]);
    assert_eq!(moved(Compute { residual_on_host: true, ..WIDE }), [3 * U, 2 * U]);
    assert_eq!(moved(Compute { residual_on_host: true, head_group: 4, ..WIDE }), [6 * U, 2 * U]);
}
