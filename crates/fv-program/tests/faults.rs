//! Faults in the program of a streamed transformer: each one is noticed.

mod common;

use fv_program::{
    arena::{Effort, pack},
    check::{Code, check_places},
    synthetic::Transformer,
};
use fv_spec::program::{OpIndex, Program};

const SIZE: Transformer =
    Transformer { blocks: 5, tokens: 4, hidden: 16, heads: 2, ffn: 32, head_group: 2, chunk: 4, steps: 3, slots: 2, resident: 1 };

fn packed() -> Program {
    let mut program = SIZE.program();
    pack(&mut program, Effort::default());
    program
}

/// The codes of what is found after a change.
fn after(change: impl FnOnce(&mut Program)) -> Vec<Code> {
    let mut program = packed();
    change(&mut program);
    let mut codes: Vec<Code> = check_places(&program, &[]).iter().map(|finding| finding.code).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[test]
fn it_is_right_by_two_opinions() {
    assert_eq!(after(|_| {}), []);
    assert_eq!(common::verify(&packed()), Ok(()));
}

#[test]
fn a_buffer_that_moves_down_meets_what_it_lies_on() {
    for (at, buffer) in packed().buffers.iter().enumerate().filter(|(_, buffer)| buffer.offset_bytes > Some(0)) {
        let codes = after(|program| program.buffers[at].offset_bytes = buffer.offset_bytes.map(|offset| offset - 256));
        assert_eq!(codes, [Code::Overlap], "{}", buffer.name);
    }
}

#[test]
fn a_buffer_that_shrinks_is_too_small_for_its_views() {
    for (at, buffer) in packed().buffers.iter().enumerate() {
        assert_eq!(after(|program| program.buffers[at].bytes -= 256), [Code::OutsideBuffer], "{}", buffer.name);
    }
}

#[test]
fn a_buffer_that_is_freed_early_is_used_afterwards() {
    let program = packed();
    for (at, buffer) in program.buffers.iter().enumerate().filter(|(_, buffer)| buffer.first < buffer.last) {
        let last_use =
            (0..).zip(program.ops()).filter(|(_, (_, op))| op.reads.iter().chain(&op.writes).any(|view| view.buffer as usize == at));
        let last_use: OpIndex = last_use.map(|(index, _)| index).last().expect("it is used");
        assert!(after(|program| program.buffers[at].last = last_use - 1).contains(&Code::OutsideLife), "{}", buffer.name);
    }
}

/// Every wait of a program: segment, operation, and which of its waits.
fn waits(program: &Program) -> Vec<(usize, usize, usize)> {
    let mut waits = Vec::new();
    for (s, segment) in program.segments.iter().enumerate() {
        for (o, op) in segment.ops.iter().enumerate() {
            waits.extend((0..op.waits.len()).map(|w| (s, o, w)));
        }
    }
    waits
}

/// Waits that hold nothing back do no harm when they are lost: slots that are filled for the first time.
fn holds_nothing_back(program: &Program, (s, o, w): (usize, usize, usize)) -> bool {
    let event = program.segments[s].ops[o].waits[w];
    let mut issued = program.segments[..s].iter().flat_map(|segment| &segment.ops).chain(&program.segments[s].ops[..o]);
    !issued.any(|op| op.records == Some(event))
}

#[test]
fn a_wait_that_is_lost_is_a_race() {
    let program = packed();
    for (s, o, w) in waits(&program).into_iter().filter(|wait| !holds_nothing_back(&program, *wait)) {
        let codes = after(|program| {
            program.segments[s].ops[o].waits.remove(w);
        });
        assert!(codes.contains(&Code::Race), "wait {w} of operation {o} of `{}`: {codes:?}", program.segments[s].name);
    }
}

/// Some swaps do no harm, since copies are a queue: by the other opinion too.
#[test]
fn waits_that_change_places_are_a_race() {
    let waits = waits(&packed());
    let (mut noticed, mut harmless) = (0, 0);
    for (at, one) in waits.iter().enumerate() {
        for other in &waits[..at] {
            let mut program = packed();
            let [first, second] = [one, other].map(|(s, o, w)| program.segments[*s].ops[*o].waits[*w]);
            program.segments[one.0].ops[one.1].waits[one.2] = second;
            program.segments[other.0].ops[other.1].waits[other.2] = first;
            if check_places(&program, &[]).iter().any(|finding| finding.code == Code::Race) {
                noticed += 1;
            } else {
                harmless += 1;
                assert_eq!(common::verify(&program), Ok(()), "{one:?} and {other:?}");
            }
        }
    }
    assert!(noticed > 2 * harmless, "{noticed} are noticed, {harmless} do no harm");
}
