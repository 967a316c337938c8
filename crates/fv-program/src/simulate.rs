//! How long a program takes: four queues, events between them, and a time for each operation. Integer nanoseconds.
//!
//! Repetitions of a segment are played until one changes nothing but the time: all queues and events that the segment uses, and
//! what they waited for, are later by the same. The rest are then the same again, and counted without being played.

use std::{collections::BTreeMap, fmt};

use fv_spec::program::{OpIndex, Program, StageName, Stream};

use crate::{
    check::{Finding, check},
    order::STREAMS,
    rates::{Cost, Rates, Resource, UnknownRate, costs},
};

/// Nanoseconds of each resource; they add up to a time.
pub type Shares = [u64; Resource::ALL.len()];

/// What a program takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Simulated {
    /// All of it.
    pub total_ns: u64,
    /// By segment; the sum is the total.
    pub segments: Vec<SegmentTime>,
    /// Time in which each stream executes something.
    pub busy_ns: [u64; STREAMS],
    /// Time in which compute waits for other streams, by segment, block and stream.
    pub stalls: Vec<Stall>,
    /// What the time from beginning to end consists of, following at each operation what it started after.
    pub critical: Shares,
    /// Repetitions that were played, of all.
    pub played: [u64; 2],
}

/// What a segment adds to the time at which everything that was issued is over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentTime {
    /// Its stage.
    pub stage: StageName,
    /// Its name.
    pub name: String,
    /// Its repetitions.
    pub repeat: u32,
    /// All repetitions.
    pub ns: u64,
    /// The first one.
    pub first_ns: u64,
    /// The last one.
    pub last_ns: u64,
    /// Each of those in the middle, once they are the same.
    pub steady_ns: Option<u64>,
}

/// Time in which compute waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stall {
    /// Index of the segment.
    pub segment: u32,
    /// The block whose operation waits.
    pub block: Option<u16>,
    /// The stream that it waits for.
    pub stream: Stream,
    /// In all repetitions.
    pub ns: u64,
}

impl Simulated {
    /// Time in which compute waits for other streams, within a stage.
    pub fn stall_ns(&self, stage: StageName) -> u64 {
        let in_stage = |stall: &&Stall| self.segments[stall.segment as usize].stage == stage;
        self.stalls.iter().filter(in_stage).map(|stall| stall.ns).sum()
    }

    /// A stage.
    pub fn stage_ns(&self, stage: StageName) -> u64 {
        self.segments.iter().filter(|segment| segment.stage == stage).map(|segment| segment.ns).sum()
    }

    /// What takes most of the time from beginning to end.
    pub fn critical_resource(&self) -> Resource {
        let longest = (0..self.critical.len()).max_by_key(|at| (self.critical[*at], std::cmp::Reverse(*at)));
        Resource::ALL[longest.unwrap_or(0)]
    }
}

/// Why there is no time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The program is wrong.
    Findings(Vec<Finding>),
    /// A rate is missing.
    Rate(UnknownRate),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Findings(findings) => findings.iter().try_for_each(|finding| writeln!(f, "{finding}")),
            Self::Rate(rate) => rate.fmt(f),
        }
    }
}

impl std::error::Error for Refused {}

/// What a program takes on a device.
///
/// # Errors
/// When it is wrong, order and lives of buffers included, or a rate that it needs is zero.
pub fn simulate(program: &Program, rates: &Rates) -> Result<Simulated, Refused> {
    let findings = check(program);
    if !findings.is_empty() {
        return Err(Refused::Findings(findings));
    }
    let costs = costs(program, rates).map_err(Refused::Rate)?;
    Ok(replay(program, &costs, |_| {}))
}

/// An operation of the simulated run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The operation.
    pub op: OpIndex,
    /// Index of its segment.
    pub segment: u32,
    /// The repetition, from 0.
    pub repetition: u32,
    /// When it begins.
    pub start_ns: u64,
    /// When it is over.
    pub end_ns: u64,
}

/// What a program takes that is right, with times of its operations; each operation that is played is shown.
pub fn replay(program: &Program, costs: &[Cost], mut show: impl FnMut(Span)) -> Simulated {
    let mut state = State::new(program);
    let mut result = Simulated {
        total_ns: 0,
        segments: Vec::with_capacity(program.segments.len()),
        busy_ns: [0; STREAMS],
        stalls: Vec::new(),
        critical: Shares::default(),
        played: [0; 2],
    };
    let mut first_op = 0;
    for index in 0..program.segments.len() {
        let mut run = Run::new(program, costs, index, first_op);
        let segment = &program.segments[index];
        let time = run.play(&mut state, &mut show);
        result.segments.push(time);
        result.played[0] += u64::from(run.played);
        result.played[1] += u64::from(segment.repeat);
        for (total, busy) in result.busy_ns.iter_mut().zip(run.busy) {
            *total = total.saturating_add(busy.saturating_mul(segment.repeat.into()));
        }
        let number = u32::try_from(index).unwrap_or(u32::MAX);
        result.stalls.extend(run.stalls.into_iter().map(|((block, stream), ns)| Stall { segment: number, block, stream, ns }));
        first_op += segment.ops.len();
    }
    let last = state.streams.into_iter().max_by_key(|mark| mark.ns).unwrap_or_default();
    (result.total_ns, result.critical) = (last.ns, last.shares);
    result
}

/// A moment, and what the time until then consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Mark {
    ns: u64,
    shares: Shares,
}

impl Mark {
    fn after(mut self, cost: Cost) -> Self {
        let share = &mut self.shares[cost.resource as usize];
        *share = share.saturating_add(cost.ns);
        self.ns = self.ns.saturating_add(cost.ns);
        self
    }

    fn minus(&self, other: &Self) -> Self {
        let mut shares = self.shares;
        shares.iter_mut().zip(other.shares).for_each(|(share, other)| *share = share.wrapping_sub(other));
        Self { ns: self.ns - other.ns, shares }
    }

    fn plus(&self, times: u64, step: &Self) -> Self {
        let mut shares = self.shares;
        shares.iter_mut().zip(step.shares).for_each(|(share, step)| *share = share.wrapping_add(step.wrapping_mul(times)));
        Self { ns: self.ns.saturating_add(step.ns.saturating_mul(times)), shares }
    }
}

#[derive(Debug, Clone)]
struct State {
    streams: [Mark; STREAMS],
    /// Of each event: its last record and the stream of that.
    events: Vec<Option<(Mark, Stream)>>,
}

impl State {
    fn new(program: &Program) -> Self {
        Self { streams: [Mark::default(); STREAMS], events: vec![None; program.events as usize] }
    }

    fn end(&self) -> u64 {
        self.streams.iter().map(|mark| mark.ns).max().unwrap_or(0)
    }
}

type Stalls = BTreeMap<(Option<u16>, Stream), u64>;

/// A segment on the way.
struct Run<'a> {
    program: &'a Program,
    costs: &'a [Cost],
    index: usize,
    first_op: usize,
    /// Streams and events that it changes.
    streams: [bool; STREAMS],
    events: Vec<usize>,
    records: Vec<bool>,
    /// Of one repetition.
    busy: [u64; STREAMS],
    stalls: Stalls,
    played: u32,
}

impl<'a> Run<'a> {
    fn new(program: &'a Program, costs: &'a [Cost], index: usize, first_op: usize) -> Self {
        let ops = &program.segments[index].ops;
        let costs = &costs[first_op..first_op + ops.len()];
        let mut records = vec![false; program.events as usize];
        let (mut streams, mut busy) = ([false; STREAMS], [0_u64; STREAMS]);
        for (op, cost) in ops.iter().zip(costs) {
            streams[op.stream as usize] = true;
            busy[op.stream as usize] = busy[op.stream as usize].saturating_add(cost.ns);
            if let Some(event) = op.records {
                records[event as usize] = true;
            }
        }
        let events = (0..records.len()).filter(|event| records[*event]).collect();
        Self { program, costs, index, first_op, streams, events, records, busy, stalls: Stalls::new(), played: 0 }
    }

    fn play(&mut self, state: &mut State, show: &mut impl FnMut(Span)) -> SegmentTime {
        let segment = &self.program.segments[self.index];
        let begin = state.end();
        let (mut first_ns, mut last_ns, mut steady_ns) = (0, 0, None);
        for repetition in 0..segment.repeat {
            let before = state.clone();
            let from = state.end();
            let stalls = std::mem::take(&mut self.stalls);
            let outside = self.repetition(state, repetition, show);
            self.played += 1;
            last_ns = state.end() - from;
            if repetition == 0 {
                first_ns = last_ns;
            }
            let left = u64::from(segment.repeat - 1 - repetition);
            let step = if outside || repetition == 0 || left == 0 { None } else { self.step(&before, state) };
            merge(&mut self.stalls, stalls, if step.is_some() { left + 1 } else { 1 });
            if let Some(step) = step {
                steady_ns = Some(step.ns);
                self.skip(state, left - 1, &step);
                let from = state.end();
                self.skip(state, 1, &step);
                last_ns = state.end() - from;
                break;
            }
        }
        SegmentTime {
            stage: segment.stage,
            name: segment.name.clone(),
            repeat: segment.repeat,
            ns: state.end() - begin,
            first_ns,
            last_ns,
            steady_ns,
        }
    }

    /// Plays one repetition; whether something in it was held back by an event of an earlier segment.
    fn repetition(&mut self, state: &mut State, repetition: u32, show: &mut impl FnMut(Span)) -> bool {
        let mut outside = false;
        let segment = u32::try_from(self.index).unwrap_or(u32::MAX);
        for (at, (op, cost)) in self.program.segments[self.index].ops.iter().zip(self.costs).enumerate() {
            let stream = op.stream as usize;
            let mut start = state.streams[stream];
            let mut held = None;
            for event in &op.waits {
                if let Some((mark, by)) = state.events[*event as usize].filter(|(mark, _)| mark.ns > start.ns) {
                    (start, held) = (mark, Some(by));
                    outside |= !self.records[*event as usize];
                }
            }
            if let Some(by) = held.filter(|_| op.stream == Stream::Compute) {
                *self.stalls.entry((op.block, by)).or_default() += start.ns - state.streams[stream].ns;
            }
            let end = start.after(*cost);
            state.streams[stream] = end;
            if let Some(event) = op.records {
                state.events[event as usize] = Some((end, op.stream));
            }
            let op = OpIndex::try_from(self.first_op + at).unwrap_or(OpIndex::MAX);
            show(Span { op, segment, repetition, start_ns: start.ns, end_ns: end.ns });
        }
        outside
    }

    /// By what everything that the segment changes is later than a repetition before, if by the same.
    fn step(&self, before: &State, after: &State) -> Option<Mark> {
        let streams =
            (0..STREAMS).filter(|stream| self.streams[*stream]).map(|stream| after.streams[stream].minus(&before.streams[stream]));
        let events = self.events.iter().map(|event| Some(after.events[*event]?.0.minus(&before.events[*event]?.0)));
        let mut steps = streams.map(Some).chain(events);
        let step = steps.next()??;
        steps.all(|other| other == Some(step)).then_some(step)
    }

    fn skip(&self, state: &mut State, times: u64, step: &Mark) {
        for stream in (0..STREAMS).filter(|stream| self.streams[*stream]) {
            state.streams[stream] = state.streams[stream].plus(times, step);
        }
        for event in &self.events {
            if let Some((mark, _)) = &mut state.events[*event] {
                *mark = mark.plus(times, step);
            }
        }
    }
}

/// Adds what was counted before to `times` what one repetition added.
fn merge(stalls: &mut Stalls, before: Stalls, times: u64) {
    for ns in stalls.values_mut() {
        *ns = ns.saturating_mul(times);
    }
    for (key, ns) in before {
        *stalls.entry(key).or_default() += ns;
    }
}
