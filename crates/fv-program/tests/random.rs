//! Random programs: what is packed passes a second opinion, and what is broken afterwards is noticed.

mod common;

use fv_program::{
    arena::{Effort, pack},
    check::check_places,
    rates::{Cost, Resource},
    simulate::{Simulated, replay},
    synthetic::Sketch,
};
use fv_spec::program::{Element, Op, Program, Segment, Stream, View};
use proptest::{collection::vec, prelude::*, sample::Index};

/// An operation before its waits are known.
#[derive(Debug, Clone)]
struct Draft {
    stream: Stream,
    reads: Vec<(Index, bool)>,
    writes: Vec<Index>,
    extra: Option<Index>,
}

/// A buffer: sizes in units of 256 bytes, and where between the first and the last operation it lives.
#[derive(Debug, Clone)]
struct Life {
    units: u64,
    ends: [Index; 2],
}

#[derive(Debug, Clone)]
struct Sheet {
    segments: Vec<(u32, Vec<Draft>)>,
    lives: Vec<Life>,
}

fn draft() -> impl Strategy<Value = Draft> {
    let stream = proptest::sample::select(Stream::ALL);
    (stream, vec(any::<(Index, bool)>(), 0..3), vec(any::<Index>(), 1..3), proptest::option::weighted(0.4, any::<Index>()))
        .prop_map(|(stream, reads, writes, extra)| Draft { stream, reads, writes, extra })
}

fn sheet() -> impl Strategy<Value = Sheet> {
    let life = (1..7_u64, any::<[Index; 2]>()).prop_map(|(units, ends)| Life { units, ends });
    (vec((1..4_u32, vec(draft(), 2..9)), 1..4), vec(life, 2..9)).prop_map(|(segments, lives)| Sheet { segments, lives })
}

impl Sheet {
    /// The program: each operation records an event of its own and waits for those that it must not run beside.
    fn program(&self) -> Program {
        let mut sketch = Sketch::new();
        let count = self.segments.iter().map(|(_, ops)| ops.len()).sum::<usize>();
        let buffers: Vec<View> = self.lives.iter().map(|life| sketch.buffer(life.units * 256)).collect();
        let ends: Vec<(usize, usize)> = self.lives.iter().map(|life| ordered(life.ends.map(|end| end.index(count)))).collect();
        let mut written = vec![false; buffers.len()];
        let mut at = 0;
        for (repeat, drafts) in &self.segments {
            sketch.segment(*repeat);
            for draft in drafts {
                let alive: Vec<usize> = (0..buffers.len()).filter(|buffer| (ends[*buffer].0..=ends[*buffer].1).contains(&at)).collect();
                let full: Vec<usize> = alive.iter().copied().filter(|buffer| written[*buffer]).collect();
                let reads: Vec<View> =
                    draft.reads.iter().filter(|_| !full.is_empty()).map(|(one, half)| part(buffers[*one.get(&full)], *half)).collect();
                let writes: Vec<usize> = draft.writes.iter().filter(|_| !alive.is_empty()).map(|one| *one.get(&alive)).collect();
                let event = sketch.event();
                let views: Vec<View> = writes.iter().map(|buffer| buffers[*buffer]).collect();
                sketch.uses(draft.stream, &[], Some(event), &reads, &views);
                for buffer in writes {
                    written[buffer] = true;
                }
                at += 1;
            }
        }
        let mut program = sketch.finish();
        for (buffer, (first, last)) in program.buffers.iter_mut().zip(ends) {
            (buffer.first, buffer.last) = (u32::try_from(first).expect("few"), u32::try_from(last).expect("few"));
        }
        self.wait(&mut program);
        without_unused(program)
    }

    fn wait(&self, program: &mut Program) {
        let ops: Vec<Op> = program.ops().map(|(_, op)| op.clone()).collect();
        let extras: Vec<Option<Index>> = self.segments.iter().flat_map(|(_, drafts)| drafts.iter().map(|draft| draft.extra)).collect();
        let mut first = 0;
        for segment in &mut program.segments {
            let end = first + segment.ops.len();
            for (at, op) in (first..).zip(&mut segment.ops) {
                // What comes later in a repeated segment came earlier in the repetition before.
                let reach = if segment.repeat > 1 { end } else { at };
                let meets = |other: &usize| *other != at && ops[*other].stream != op.stream && clash(&ops[*other], &ops[at]);
                op.waits = (0..reach)
                    .filter(meets)
                    .chain(extras[at].map(|extra| extra.index(ops.len())))
                    .map(|event| u32::try_from(event).expect("few"))
                    .collect();
                op.waits.dedup();
            }
            first = end;
        }
    }
}

fn ordered([one, other]: [usize; 2]) -> (usize, usize) {
    (one.min(other), one.max(other))
}

fn part(view: View, half: bool) -> View {
    if half {
        View { offset_bytes: view.columns / 2, columns: view.columns / 2, ..View::matrix(view.buffer, Element::U8, 1, view.columns) }
    } else {
        view
    }
}

fn clash(one: &Op, other: &Op) -> bool {
    let touches = |op: &Op, buffer: u32| op.reads.iter().chain(&op.writes).any(|view| view.buffer == buffer);
    one.writes.iter().any(|view| touches(other, view.buffer)) || other.writes.iter().any(|view| touches(one, view.buffer))
}

fn without_unused(mut program: Program) -> Program {
    let mut kept = Vec::new();
    let uses: Vec<u32> = program.ops().flat_map(|(_, op)| op.reads.iter().chain(&op.writes)).map(|view| view.buffer).collect();
    for at in 0..u32::try_from(program.buffers.len()).expect("few") {
        if uses.contains(&at) {
            kept.push(at);
        }
    }
    program.buffers = kept.iter().map(|at| program.buffers[*at as usize].clone()).collect();
    for op in program.segments.iter_mut().flat_map(|segment| &mut segment.ops) {
        for view in op.reads.iter_mut().chain(&mut op.writes) {
            view.buffer = u32::try_from(kept.binary_search(&view.buffer).expect("it is used")).expect("few");
        }
    }
    program
}

/// Findings apart from operands, which these programs do not have.
fn findings(program: &Program) -> Vec<String> {
    let of_interest = |finding: &&fv_program::check::Finding| {
        use fv_program::check::Code::{BadOperands, WrongStream, WrongTier};
        !matches!(finding.code, BadOperands | WrongStream | WrongTier)
    };
    check_places(program, &[]).iter().filter(of_interest).map(ToString::to_string).collect()
}

/// All buffers apart.
fn spread(program: &mut Program) {
    let mut next = 0;
    for buffer in &mut program.buffers {
        buffer.offset_bytes = Some(next);
        next += buffer.bytes;
    }
    program.regions[0].bytes = next;
}

/// What is done to a packed program.
#[derive(Debug, Clone)]
enum Fault {
    Lower(Index),
    Shrink(Index),
    DropWait(Index),
    SwapWaits(Index, Index),
    FreeEarlier(Index),
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        any::<Index>().prop_map(Fault::Lower),
        any::<Index>().prop_map(Fault::Shrink),
        any::<Index>().prop_map(Fault::DropWait),
        any::<[Index; 2]>().prop_map(|[one, other]| Fault::SwapWaits(one, other)),
        any::<Index>().prop_map(Fault::FreeEarlier),
    ]
}

impl Fault {
    fn apply(&self, program: &mut Program) {
        let buffers = program.buffers.len();
        let waits: Vec<(usize, usize, usize)> = program
            .segments
            .iter()
            .enumerate()
            .flat_map(|(s, segment)| segment.ops.iter().enumerate().flat_map(move |(o, op)| (0..op.waits.len()).map(move |w| (s, o, w))))
            .collect();
        let wait = |index: &Index| if waits.is_empty() { None } else { Some(*index.get(&waits)) };
        match self {
            Self::Lower(_) | Self::Shrink(_) | Self::FreeEarlier(_) if buffers == 0 => {}
            Self::Lower(one) => {
                let buffer = &mut program.buffers[one.index(buffers)];
                buffer.offset_bytes = buffer.offset_bytes.map(|offset| offset.saturating_sub(256));
            }
            Self::Shrink(one) => {
                let bytes = &mut program.buffers[one.index(buffers)].bytes;
                *bytes = bytes.saturating_sub(256);
            }
            Self::FreeEarlier(one) => {
                let buffer = &mut program.buffers[one.index(buffers)];
                buffer.last = buffer.last.saturating_sub(1).max(buffer.first);
            }
            Self::DropWait(one) => {
                if let Some((s, o, w)) = wait(one) {
                    program.segments[s].ops[o].waits.remove(w);
                }
            }
            Self::SwapWaits(one, other) => {
                if let (Some((s, o, w)), Some((t, p, v))) = (wait(one), wait(other)) {
                    let (a, b) = (program.segments[s].ops[o].waits[w], program.segments[t].ops[p].waits[v]);
                    (program.segments[s].ops[o].waits[w], program.segments[t].ops[p].waits[v]) = (b, a);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2 * ProptestConfig::default().cases, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_packed_is_right(sheet in sheet()) {
        let mut program = sheet.program();
        let packed = pack(&mut program, Effort::default());
        prop_assert_eq!(findings(&program), Vec::<String>::new());
        prop_assert_eq!(common::verify(&program), Ok(()));
        prop_assert!(packed[0].bytes >= packed[0].largest_live_sum_bytes);
        prop_assert!(packed[0].within(102), "{:?}", packed[0]);
    }

    #[test]
    fn what_is_broken_is_noticed(sheet in sheet(), faults in vec(fault(), 1..3)) {
        let mut program = sheet.program();
        pack(&mut program, Effort::default());
        for fault in &faults {
            fault.apply(&mut program);
        }
        if let Err(fault) = common::verify(&program) {
            prop_assert!(!findings(&program).is_empty(), "{fault}");
        }
    }

    /// Repetitions that are not played count as if they were: the same program written out takes as long.
    #[test]
    fn repetitions_take_as_long_as_they_would_written_out(sheet in sheet(), ns in vec(1..50_u64, 32), repeat in 1..9_u32) {
        let mut program = sheet.program();
        program.segments.iter_mut().for_each(|segment| segment.repeat *= repeat);
        let costs = costs(&program, &ns);
        let short = replay(&program, &costs, |_| {});
        let (written, written_costs) = written_out(&program, &costs);
        let long = replay(&written, &written_costs, |_| {});
        prop_assert_eq!((short.total_ns, short.busy_ns, short.critical), (long.total_ns, long.busy_ns, long.critical));
        prop_assert_eq!(stalls(&short), stalls(&long));
        prop_assert_eq!(short.segments.iter().map(|segment| segment.ns).sum::<u64>(), short.total_ns);
        prop_assert_eq!(short.critical.iter().sum::<u64>(), short.total_ns);
    }

    /// Where no two buffers share bytes, both opinions agree in both directions.
    #[test]
    fn races_and_unwritten_reads_are_found_exactly(sheet in sheet(), drops in vec(any::<Index>(), 0..4)) {
        let mut program = sheet.program();
        spread(&mut program);
        for drop in drops {
            Fault::DropWait(drop).apply(&mut program);
        }
        prop_assert_eq!(findings(&program).is_empty(), common::verify(&program).is_ok(), "{:?} {:?}", findings(&program), common::verify(&program));
    }
}

fn costs(program: &Program, ns: &[u64]) -> Vec<Cost> {
    let cost = |(at, (_, op)): (usize, (_, &Op))| {
        let resource = [Resource::Matrix, Resource::HostToDevice, Resource::DeviceToHost, Resource::Disk][op.stream as usize];
        Cost { ns: ns[at % ns.len()], resource }
    };
    program.ops().enumerate().map(cost).collect()
}

fn written_out(program: &Program, costs: &[Cost]) -> (Program, Vec<Cost>) {
    let mut written = program.clone();
    written.segments.clear();
    let (mut all, mut first) = (Vec::new(), 0);
    for segment in &program.segments {
        for _ in 0..segment.repeat {
            written.segments.push(Segment { repeat: 1, ..segment.clone() });
            all.extend(&costs[first..first + segment.ops.len()]);
        }
        first += segment.ops.len();
    }
    (written, all)
}

/// What compute waits for each stream.
fn stalls(simulated: &Simulated) -> Vec<u64> {
    let of = |stream: &Stream| simulated.stalls.iter().filter(|stall| stall.stream == *stream).map(|stall| stall.ns).sum();
    Stream::ALL.iter().map(of).collect()
}

/// Random programs are worth testing with: many share bytes between streams, and many faults matter.
#[test]
fn random_programs_are_of_use() {
    use proptest::{strategy::ValueTree, test_runner::TestRunner};
    let mut runner = TestRunner::deterministic();
    let (mut shared, mut searched, mut repeated, mut broken) = (0, 0, 0, 0);
    for _ in 0..300 {
        let (sheet, faults) = (sheet(), vec(fault(), 1..3)).new_tree(&mut runner).expect("no filters").current();
        let mut program = sheet.program();
        let packed = pack(&mut program, Effort::default());
        let sum: u64 = program.buffers.iter().map(|buffer| buffer.bytes).sum();
        shared += u32::from(packed[0].bytes < sum);
        searched += u32::from(packed[0].nodes > 0);
        repeated += u32::from(program.segments.iter().any(|segment| segment.repeat > 1));
        for fault in &faults {
            fault.apply(&mut program);
        }
        broken += u32::from(common::verify(&program).is_err());
    }
    assert!(shared > 100 && searched > 10 && repeated > 100 && broken > 100, "{shared} {searched} {repeated} {broken}");
}
