//! Times of made-up programs.

use fv_program::{
    arena::{Effort, pack},
    rates::{Rates, Resource, UnknownRate, costs},
    simulate::{Refused, Simulated, replay, simulate},
    synthetic::{EVEN, Transformer},
    trace::trace,
};
use fv_spec::program::{Program, StageName, Stream};

fn packed(size: Transformer) -> Program {
    let mut program = size.program();
    pack(&mut program, Effort::default());
    program
}

fn time(size: Transformer, rates: &Rates) -> Simulated {
    simulate(&packed(size), rates).unwrap_or_else(|refused| panic!("{refused}"))
}

#[test]
fn fast_copies_hide_behind_computation_and_slow_ones_do_not() {
    let hidden = time(Transformer::TINY, &Rates { pinned_to_device: 100_000_000_000, ..EVEN });
    let exposed = time(Transformer::TINY, &Rates { pinned_to_device: 1_000_000, ..EVEN });
    let in_steps = |simulated: &Simulated| {
        simulated.stalls.iter().filter(|stall| stall.segment >= 2 && stall.stream == Stream::CopyIn).map(|stall| stall.ns).sum::<u64>()
    };
    assert_eq!(in_steps(&hidden), 0);
    assert_eq!(hidden.critical_resource(), Resource::Matrix);
    assert!(in_steps(&exposed) > 0);
    assert_eq!(exposed.critical_resource(), Resource::HostToDevice);
    assert!(exposed.stall_ns(StageName::Denoising) >= in_steps(&exposed));
}

#[test]
fn a_step_that_waits_for_copies_takes_as_long_as_its_copies() {
    let rate = 1_000_000;
    let size = Transformer { resident: 2, ..Transformer::TINY };
    let simulated = time(size, &Rates { pinned_to_device: rate, ..EVEN });
    let Transformer { hidden, ffn, blocks, resident, .. } = size;
    let block = 2 * (4 * hidden * hidden + 2 * hidden * ffn);
    let copies = (blocks - resident) * (block * 1_000_000_000).div_ceil(rate);
    assert_eq!(simulated.segments[2].steady_ns, Some(copies));
}

/// Where slots divide what is streamed: otherwise the first blocks of a step wait for the slots of the last ones.
#[test]
fn more_slots_are_never_slower_and_resident_blocks_neither() {
    let rates = Rates { pinned_to_device: 2_000_000, ..EVEN };
    let steps =
        |slots, resident| time(Transformer { slots, resident, steps: 9, ..Transformer::TINY }, &rates).stage_ns(StageName::Denoising);
    assert!(steps(2, 0) < steps(1, 0) && steps(4, 0) <= steps(2, 0));
    assert!(steps(2, 2) < steps(2, 0) && steps(2, 4) < steps(2, 2));
}

#[test]
fn times_add_up() {
    let simulated = time(Transformer { steps: 50, ..Transformer::TINY }, &EVEN);
    assert_eq!(simulated.segments.iter().map(|segment| segment.ns).sum::<u64>(), simulated.total_ns);
    assert_eq!(StageName::ALL.iter().map(|stage| simulated.stage_ns(*stage)).sum::<u64>(), simulated.total_ns);
    assert_eq!(simulated.critical.iter().sum::<u64>(), simulated.total_ns);
    assert!(simulated.played[0] < simulated.played[1] && simulated.played[1] == 53, "{:?}", simulated.played);
}

#[test]
fn compute_is_busy_or_waits_until_its_end() {
    let program = packed(Transformer { steps: 2, ..Transformer::TINY });
    let costs = costs(&program, &EVEN).expect("all rates are given");
    let mut end = 0;
    let ops: Vec<_> = program.ops().map(|(_, op)| op).collect();
    let simulated = replay(&program, &costs, |span| {
        if ops[span.op as usize].stream == Stream::Compute {
            end = span.end_ns;
        }
    });
    assert!(simulated.played[0] == simulated.played[1], "few repetitions, all played");
    let stalls: u64 = simulated.stalls.iter().map(|stall| stall.ns).sum();
    assert_eq!(simulated.busy_ns[Stream::Compute as usize] + stalls, end);
}

#[test]
fn what_is_wrong_or_unknown_has_no_time() {
    let mut program = packed(Transformer::TINY);
    let rates = Rates { attention: 0, ..EVEN };
    assert_eq!(simulate(&program, &rates), Err(Refused::Rate(UnknownRate("attention"))));
    let op = program.segments[2].ops.iter_mut().find(|op| !op.waits.is_empty()).expect("blocks wait for their weights");
    op.waits.clear();
    assert!(matches!(simulate(&program, &EVEN), Err(Refused::Findings(findings)) if !findings.is_empty()));
}

#[test]
fn a_trace_is_bounded_and_its_arrows_have_two_ends() {
    let program = packed(Transformer { steps: 50, ..Transformer::TINY });
    let costs = costs(&program, &EVEN).expect("all rates are given");
    let (one, two) = (trace(&program, &costs, 1), trace(&program, &costs, 2));
    let count = |trace: &fv_program::trace::Trace, ph| trace.trace_events.iter().filter(|event| event.ph == ph).count();
    assert_eq!(count(&one, "X"), program.ops().count());
    assert_eq!(count(&two, "X"), program.ops().count() + program.segments[2].ops.len());
    assert_eq!(count(&one, "s"), count(&one, "f"));
    assert!(count(&one, "s") > 0);
    let json = serde_json::to_value(&one).expect("it is plain data");
    assert_eq!(json["traceEvents"][0]["args"]["name"], "compute");
    assert_eq!(json["displayTimeUnit"], "ms");
}
