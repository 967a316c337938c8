//! Components have the weights of the published checkpoints, and programs use all of them.

use std::collections::BTreeMap;

use fv_program::stream::Component;
use fv_program::wan::geometry::Dit;
use fv_program::wan::{choice::Compute, dit, text, tiny};
use fv_spec::authored::Role;
use fv_spec::program::{Element, Formats, Group, Kernel, Program, Segment};

use crate::lowered;
use crate::published::{BF16, FAST_WAN, UMT5_XXL, WAN_1_3B, WAN_5B, WAN_14B};

fn parameters(group: &Group) -> u64 {
    let scale = |name: &str| name.strip_suffix(".scale").is_some();
    group.tensors.iter().filter(|tensor| !scale(&tensor.name)).map(|tensor| tensor.shape.iter().product::<u64>()).sum()
}

fn total(component: &Component) -> u64 {
    (0..component.blocks.len()).map(|block| parameters(&component.block_group(block))).sum::<u64>() + parameters(&component.root_group())
}

#[test]
fn parameters_are_those_of_the_catalog() {
    let count = |model: &Dit, formats| {
        let component = dit::weights::component(model, Role::Transformer, formats);
        (parameters(&component.block_group(0)), total(&component))
    };
    assert_eq!(count(&WAN_1_3B, BF16), (46_440_704, 1_418_996_800));
    assert_eq!(count(&FAST_WAN, BF16), (48_801_536, 1_489_821_760));
    assert_eq!(count(&WAN_14B, BF16), (351_394_304, 14_288_491_584));
    assert_eq!(count(&WAN_5B, BF16).1, 4_999_787_712);
    assert_eq!(count(&FAST_WAN, Formats { block_weights: Element::Fp8, ..BF16 }), count(&FAST_WAN, BF16));
    let table: u64 = text::embeddings(&UMT5_XXL, Element::Bf16).shape.iter().product();
    assert_eq!(total(&text::component(&UMT5_XXL, Element::Bf16)) + table, 5_680_910_336);
}

/// In eight bits a block of 14B is half as large: matrices have a byte for each number, and a scale for each row.
#[test]
fn eight_bit_blocks_carry_scales() {
    let bytes = |block_weights| {
        let component = dit::weights::component(&WAN_14B, Role::Transformer, Formats { block_weights, ..BF16 });
        component.block_group(0).bytes
    };
    let matrices: u64 = 8 * 5120 * 5120 + 2 * 5120 * 13_824;
    let scales = (9 * 5120 + 13_824) * 4;
    assert_eq!(bytes(Element::Bf16) - bytes(Element::Fp8), matrices - scales);
    assert_eq!(bytes(Element::Int8), bytes(Element::Fp8));
}

/// Reads of each tensor by computations of a segment, by tensor. Blocks are resident, each in its own buffer.
fn reads<'a>(program: &'a Program, segment: &Segment) -> BTreeMap<&'a str, u64> {
    let loads: BTreeMap<_, _> = program
        .ops()
        .zip(program.ops().skip(1))
        .filter_map(|((_, read), (_, copy))| match read.kernel {
            Kernel::Read { group, .. } => Some((copy.writes[0].buffer, &program.groups[group as usize])),
            _ => None,
        })
        .collect();
    let mut reads = BTreeMap::new();
    for view in segment.ops.iter().flat_map(|op| &op.reads) {
        let group = loads.get(&view.buffer);
        let tensor = group.and_then(|group| group.tensors.iter().rfind(|tensor| tensor.offset_bytes <= view.offset_bytes));
        if let Some(tensor) = tensor {
            *reads.entry(&*tensor.name).or_default() += 1;
        }
    }
    reads
}

fn names(component: &Component) -> Vec<String> {
    let blocks =
        component.blocks.iter().flat_map(|block| block.parameters.iter().map(|parameter| format!("{}{}", block.prefix, parameter.name)));
    component.root.iter().map(|parameter| parameter.name.clone()).chain(blocks).collect()
}

#[test]
fn a_step_uses_each_weight_once_for_each_prediction() {
    for model in [tiny::dense(), tiny::sparse()] {
        let (request, choices) = (tiny::request(), tiny::choices(&model, Element::F64));
        let program = lowered(&model, &request, &choices);
        let segment = |name: &str| program.segments.iter().find(|segment| segment.name == name).map(|segment| reads(&program, segment));
        let (Some(set_up), Some(step)) = (segment("set_up_transformer"), segment("step")) else { panic!("segments are missing") };
        for name in names(&dit::weights::component(&model.transformer, Role::Transformer, choices.formats)) {
            let text = name.contains("text_embedder")
                || name.contains("attn2.to_k")
                || name.contains("attn2.to_v")
                || name.contains("attn2.norm_k");
            // a block's table is added once for both predictions; the time is embedded once
            let shared = name.contains("blocks") && name.contains("scale_shift_table") || name.contains("time");
            let uses = if shared { 1 } else { 2 };
            let expected = if text { (Some(&uses), None) } else { (None, Some(&uses)) };
            assert_eq!((set_up.get(&*name), step.get(&*name)), expected, "{name}");
        }
    }
}

#[test]
fn the_encoder_uses_each_weight_once_for_each_prompt() {
    let model = tiny::dense();
    let program = lowered(&model, &tiny::request(), &tiny::choices(&model, Element::F64));
    let encode =
        program.segments.iter().find(|segment| segment.name == "encode").map(|segment| reads(&program, segment)).unwrap_or_default();
    for name in names(&text::component(&model.text, Element::F64)) {
        assert_eq!(encode.get(&*name), Some(&2), "{name}");
    }
}

/// Split, the same products are computed: each result once.
#[test]
fn chunks_and_head_groups_compute_each_number_once() {
    let model = tiny::sparse();
    let whole = tiny::choices(&model, Element::F64);
    let mut split = whole.clone();
    split.compute = Compute { head_group: 1, feed_forward_chunk: 19, projection_chunk: 11, ..whole.compute };
    let work = |choices: &_| {
        let program = lowered(&model, &tiny::request(), choices);
        let mut numbers = BTreeMap::<String, u64>::new();
        for (segment, op) in program.ops().filter(|(segment, _)| segment.name == "step") {
            let kernel = match op.kernel {
                Kernel::Product { .. } => format!("product of {}", op.reads[0].columns),
                Kernel::Attention { .. }
                | Kernel::TileAttention { .. }
                | Kernel::Rotate { .. }
                | Kernel::GatedAdd
                | Kernel::RmsNorm { .. } => {
                    format!("{:?}", op.kernel)
                }
                _ => continue,
            };
            assert_eq!(segment.repeat, 3);
            *numbers.entry(kernel).or_default() += op.writes[0].len();
        }
        numbers
    };
    assert_eq!(work(&split), work(&whole));
}
