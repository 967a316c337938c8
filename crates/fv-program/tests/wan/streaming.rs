//! Computations find the weights of their own block wherever blocks live, in every repetition of a step.

use std::collections::BTreeMap;

use fv_program::wan::tiny;
use fv_spec::authored::Role;
use fv_spec::program::{BufferId, BufferKind, Element, Kernel, Op, Program, Stream, Tier};
use proptest::prelude::*;

use crate::choices::{cases, residency};
use crate::lowered;

/// Operations as they are issued, repetitions one after another.
fn issued(program: &Program) -> impl Iterator<Item = &Op> {
    program.segments.iter().flat_map(|segment| (0..segment.repeat).flat_map(|_| &segment.ops))
}

/// Follows groups from files to computations: what was read last into which buffer.
fn follow(program: &Program) -> Result<(), TestCaseError> {
    let mut contents = BTreeMap::<BufferId, u32>::new();
    for op in issued(program) {
        match op.kernel {
            Kernel::Read { group, .. } => {
                contents.insert(op.writes[0].buffer, group);
            }
            Kernel::Copy if op.stream == Stream::CopyIn => {
                if let Some(&group) = contents.get(&op.reads[0].buffer) {
                    contents.insert(op.writes[0].buffer, group);
                }
            }
            _ => {}
        }
        for view in op.reads.iter().filter(|_| op.stream == Stream::Compute) {
            if program.buffers[view.buffer as usize].kind == BufferKind::Weights {
                let group = contents.get(&view.buffer).map(|&group| &program.groups[group as usize]);
                let block = group.and_then(|group| group.block);
                prop_assert!(group.is_some() && block.is_none_or(|block| Some(block) == op.block.map(u32::from)), "{op:?} finds {block:?}");
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn weights_are_those_of_the_block((model, request, choices) in cases()) {
        follow(&lowered(&model, &request, &choices))?;
    }

    /// Blocks on the device and pinned ones are read once, those on disk in each pass.
    #[test]
    fn bytes_are_moved_as_often_as_needed(at in residency(4)) {
        let (model, request) = (tiny::dense(), tiny::request());
        let mut choices = tiny::choices(&model, Element::F64);
        choices.transformers = vec![at.clone()];
        let program = lowered(&model, &request, &choices);
        let passes = u64::from(request.schedule.steps) + 1; // keys of the text are kept
        let transformer = |group: u32| program.groups[group as usize].component == Role::Transformer;
        for (block, tier) in (0_u16..).zip(&at.tiers) {
            let own = |op: &&Op| op.block == Some(block);
            let reads = issued(&program).filter(own).filter(|op| matches!(op.kernel, Kernel::Read { group, .. } if transformer(group)));
            let bytes: u64 = reads.map(|op| op.writes[0].bytes()).sum();
            let block_bytes = program.groups.iter().find(|group| group.component == Role::Transformer && group.block == Some(block.into()));
            let expected = match tier { Tier::Disk => passes, _ => 1 };
            prop_assert_eq!(bytes, block_bytes.map_or(0, |group| group.bytes) * expected, "block {} on {}", block, tier.word());
        }
    }
}
