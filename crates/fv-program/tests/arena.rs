//! How well made-up programs are packed.

use fv_program::{
    arena::{Effort, pack},
    synthetic::Transformer,
};

#[test]
fn a_streamed_transformer_is_packed_to_its_largest_live_sum() {
    for size in [Transformer::TINY, Transformer::LARGE, Transformer { slots: 3, head_group: 20, chunk: 75_600, ..Transformer::LARGE }] {
        let mut program = size.program();
        for (region, packed) in program.regions.clone().iter().zip(pack(&mut program, Effort::default())) {
            assert!(packed.within(102), "{} on {}: {packed:?}", region.name, region.tier.word());
        }
    }
}

#[test]
fn made_up_transformers_are_right() {
    for size in [Transformer::TINY, Transformer { slots: 1, ..Transformer::TINY }, Transformer { resident: 4, ..Transformer::TINY }] {
        let mut program = size.program();
        pack(&mut program, Effort::default());
        let findings = fv_program::check::check_places(&program, &[]);
        assert!(findings.is_empty(), "{findings:#?}");
    }
}
