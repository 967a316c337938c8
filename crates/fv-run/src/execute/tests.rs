//! Small programs, executed in many orders.

use fv_device::reference::storage;
use fv_program::build::Builder;
use fv_spec::program::kernel::{Function, Input, Output};
use fv_spec::program::{BufferKind, Element, EventId, Formats, Kernel, OpIndex, Program, Sampler, Schedule, StageName, Stream, Tier, View};

use super::inputs::Given;
use super::outputs::Kept;
use super::weights::Synthetic;
use super::*;

const STEPS: u32 = 6;

/// `x * silu(x)`, where it is multiplied by itself.
const SQUARE: Kernel = Kernel::Multiply { function: Function::Silu };

/// Numbers that come in from host memory through two places on the device in turns, are added up, and go out: by a program with
/// all waits that it needs.
struct Sums {
    program: Program,
    /// What copies in wait for.
    free: [EventId; 2],
    /// What additions wait for.
    ready: [EventId; 2],
}

fn matrix(builder: &mut Builder, region: u32, name: &str) -> View {
    let buffer = builder.buffer(region, name, BufferKind::Activation, 64);
    View::matrix(buffer, Element::F64, 2, 4)
}

impl Sums {
    fn new() -> Self {
        let element = Element::F64;
        let formats = Formats { compute: element, exact: element, block_weights: element };
        let schedule = Schedule { sampler: Sampler::Euler, steps: STEPS, shift: 1.0, timesteps: Vec::new() };
        let mut builder = Builder::new("sums", formats, schedule);
        let builder = &mut builder;
        let (device, host) = (builder.region("sums", Tier::Device), builder.region("request", Tier::Pinned));
        builder.segment(StageName::Load, "load", 1, 0);
        let given = [0, 1].map(|which| {
            let view = matrix(builder, host, "given");
            builder.op(Stream::Disk, Kernel::Input { what: Input::Noise, index: which }, vec![], vec![view]);
            view
        });
        let loaded = builder.event();
        builder.record(loaded);
        let total = matrix(builder, device, "total");
        builder.op(Stream::Compute, Kernel::Zero, vec![], vec![total]);
        let places = [0, 1].map(|_| matrix(builder, device, "place"));
        let (free, ready) = ([0, 1].map(|_| builder.event()), [0, 1].map(|_| builder.event()));
        builder.segment(StageName::Denoising, "step", STEPS, 0);
        for at in [0, 1] {
            builder.wait(loaded);
            builder.wait(free[at]);
            builder.op(Stream::CopyIn, Kernel::Copy, vec![given[at]], vec![places[at]]);
            builder.record(ready[at]);
            builder.wait(ready[at]);
            builder.op(Stream::Compute, Kernel::Add, vec![total, places[at]], vec![total]);
            // So that it matters when each is added, and that it is copied again.
            for changed in [total, places[at]] {
                builder.op(Stream::Compute, SQUARE, vec![changed, changed], vec![changed]);
            }
            builder.record(free[at]);
        }
        builder.segment(StageName::Decoding, "output", 1, 0);
        let (summed, out) = (builder.event(), builder.event());
        for place in places {
            builder.op(Stream::Compute, Kernel::Add, vec![total, place], vec![place]);
            builder.record(summed);
            builder.wait(summed);
            let result = matrix(builder, host, "result");
            builder.op(Stream::CopyOut, Kernel::Copy, vec![place], vec![result]);
            builder.record(out);
            builder.wait(out);
            builder.op(Stream::Disk, Kernel::Output { what: Output::Latent, index: place.buffer }, vec![result], vec![]);
            builder.free(result.buffer);
        }
        let program = std::mem::replace(
            builder,
            Builder::new("", formats, Schedule { sampler: Sampler::Euler, steps: 1, shift: 1.0, timesteps: vec![] }),
        )
        .finish();
        Self { program, free, ready }
    }
}

/// Buffers one after another, each region with room for all of them.
fn spread_out(program: &mut Program) {
    let mut ends = vec![0; program.regions.len()];
    for buffer in &mut program.buffers {
        let end = &mut ends[buffer.region as usize];
        buffer.offset_bytes = Some(*end);
        *end += buffer.bytes;
    }
    for (region, end) in program.regions.iter_mut().zip(ends) {
        region.bytes = end;
    }
}

fn run(program: &Program, order: Order) -> Result<(Kept, Measured), Failure> {
    let mut outputs = Kept::default();
    let (weights, inputs) = (Synthetic::default(), Given::default());
    let mut world = World { weights: &weights, inputs: &inputs, outputs: &mut outputs };
    let measured = execute(program, &mut world, Options { order, check_gaps: true }, &mut |_| {})?;
    Ok((outputs, measured))
}

fn seeds() -> impl Iterator<Item = Order> {
    (0..100).map(|seed| Order::Random { seed })
}

/// Whether some order fails or gives other numbers.
fn goes_wrong(program: &Program, expected: &Kept) -> bool {
    seeds().any(|order| run(program, order).map_or(true, |(kept, _)| kept != *expected))
}

fn without_wait(program: &Program, event: EventId) -> Program {
    let mut program = program.clone();
    let ops = program.segments.iter_mut().flat_map(|segment| &mut segment.ops);
    ops.for_each(|op| op.waits.retain(|wait| *wait != event));
    program
}

#[test]
fn every_order_gives_the_same_bits() {
    let mut sums = Sums::new();
    spread_out(&mut sums.program);
    let (expected, measured) = run(&sums.program, Order::Issued).expect("it is a good program");
    assert_eq!(measured.operations, 3 + 8 * STEPS as usize + 6);
    for order in seeds() {
        assert_eq!(run(&sums.program, order).expect("it is a good program").0, expected, "{order:?}");
    }
    let given = Given::default();
    let [a, b] = [0, 1].map(|which| given.read(Input::Noise, which, 2, 4).expect("noise"));
    let square = |x: f64| x / (1.0 + (-x).exp()) * x;
    let total = (0..STEPS).flat_map(|_| [a[5], b[5]]).fold(0.0, |total, x| square(total + x));
    assert_eq!(expected.values.values().next().expect("a result").numbers()[5].to_bits(), (total + square(a[5])).to_bits());
}

#[test]
fn a_missing_wait_goes_wrong_in_some_order() {
    let mut sums = Sums::new();
    spread_out(&mut sums.program);
    let (expected, _) = run(&sums.program, Order::Issued).expect("it is a good program");
    assert!(!goes_wrong(&sums.program, &expected));
    for event in sums.free.into_iter().chain(sums.ready).chain(0..sums.program.events) {
        assert!(goes_wrong(&without_wait(&sums.program, event), &expected), "nothing needs event {event}");
    }
}

#[test]
fn two_buffers_at_one_place_that_nothing_keeps_apart_are_found() {
    let mut sums = Sums::new();
    spread_out(&mut sums.program);
    let place = |program: &Program, name: &str, at: usize| {
        let mut found = program.buffers.iter().enumerate().filter(|(_, buffer)| buffer.name == name);
        found.nth(at).expect("it has such a buffer").0
    };
    let (first, second) = (place(&sums.program, "result", 0), place(&sums.program, "result", 1));
    sums.program.buffers[second].offset_bytes = sums.program.buffers[first].offset_bytes;
    let failures: Vec<String> = seeds().filter_map(|order| run(&sums.program, order).err()).map(|failure| failure.to_string()).collect();
    assert!(failures.iter().any(|failure| failure.contains("result begins at a place that result still occupies")), "{failures:?}");

    let (first, second) = (place(&sums.program, "place", 0), place(&sums.program, "place", 1));
    sums.program.buffers[second].offset_bytes = sums.program.buffers[first].offset_bytes;
    let failure = run(&sums.program, Order::Issued).expect_err("both are used in every step").to_string();
    assert!(
        failure.starts_with("operation 7 (Copy, ") && failure.ends_with("place begins at a place that place still occupies"),
        "{failure}"
    );
}

#[test]
fn a_view_beyond_its_buffer_hits_a_canary() {
    let mut sums = Sums::new();
    spread_out(&mut sums.program);
    // Room behind the last result, which no buffer occupies.
    sums.program.regions[1].bytes += 256;
    let ops = sums.program.segments.last_mut().map(|segment| &mut segment.ops).expect("the last segment");
    let copy = ops.iter_mut().rfind(|op| op.stream == Stream::CopyOut).expect("the last copy");
    copy.writes[0].offset_bytes += 224;
    let failure = run(&sums.program, Order::Issued).expect_err("a canary").to_string();
    assert!(failure.ends_with("byte 1024 of region request, which no buffer occupies, was written"), "{failure}");

    sums.program.regions[1].bytes -= 256;
    let failure = run(&sums.program, Order::Issued).expect_err("a canary behind the region").to_string();
    assert!(failure.ends_with("byte 1024 of region request, which no buffer occupies, was written"), "{failure}");
}

#[test]
fn what_nobody_wrote_is_no_number() {
    let mut sums = Sums::new();
    spread_out(&mut sums.program);
    sums.program.segments[0].ops.retain(|op| op.kernel != Kernel::Zero);
    // Numbers of operations have moved: lives are as wide as the program.
    let last = sums.program.segments.iter().map(|segment| segment.ops.len()).sum::<usize>() - 1;
    sums.program.buffers.iter_mut().for_each(|buffer| (buffer.first, buffer.last) = (0, u32::try_from(last).expect("few")));
    let failure = run(&sums.program, Order::Issued).expect_err("the total was never set").to_string();
    assert_eq!(failure, "operation 3 (Add, , repetition 0 of step): wrote something that is not a number to total");
}

#[test]
fn a_buffer_that_is_freed_early_is_found() {
    let mut sums = Sums::new();
    spread_out(&mut sums.program);
    let total = sums.program.buffers.iter().position(|buffer| buffer.name == "total").expect("the total");
    let uses = |op: &Op| op.reads.iter().any(|view| view.buffer as usize == total);
    let last = sums.program.ops().enumerate().filter(|(_, (_, op))| uses(op)).last().expect("it is used").0;
    sums.program.buffers[total].last = OpIndex::try_from(last).expect("few") - 1;
    let failure = run(&sums.program, Order::Issued).expect_err("it is used later").to_string();
    assert!(failure.ends_with("total is used outside its life"), "{failure}");
}

#[test]
fn a_buffer_without_a_place_is_refused_before_anything_runs() {
    let mut sums = Sums::new();
    assert_eq!(run(&sums.program, Order::Issued).expect_err("no place").to_string(), "buffer given has no place in its region");
    spread_out(&mut sums.program);
    sums.program.regions[0].bytes -= 1;
    assert_eq!(run(&sums.program, Order::Issued).expect_err("no place").to_string(), "buffer place has no place in its region");
}

#[test]
fn what_is_occupied_is_measured() {
    let mut sums = Sums::new();
    spread_out(&mut sums.program);
    let (_, measured) = run(&sums.program, Order::Issued).expect("it is a good program");
    let bytes: Vec<_> = measured.regions.iter().map(|region| (region.planned_bytes, region.live_bytes, region.reached_bytes)).collect();
    // In host memory the inputs are gone when results come.
    assert_eq!(bytes, [(768, 768, 768), (1024, 512, 1024)]);
}

/// Integers that have more digits than single precision pass unchanged, and bytes too.
#[test]
fn copies_of_one_format_keep_every_bit() {
    let mut bytes = Vec::new();
    storage::encode(Element::I32, &[16_777_217.0, -5.0], &mut bytes);
    let operand = |bytes| Operand { bytes, element: Element::I32, rows: 1, columns: 2, pitch: 2 };
    let written = reference::compute(&Kernel::Copy, &sampler::NONE, &[operand(&bytes)], &[operand(&[0; 8])]).expect("a copy");
    assert_eq!(written[0].bytes, bytes);
}
