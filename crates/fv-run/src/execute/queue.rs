//! Which operation is next. Streams take operations in the order in which they are issued; between streams there is no order but
//! that of events, and whatever events leave open is chosen here, at random if asked for: an execution that must not go wrong must
//! not go wrong in any order.

use std::collections::VecDeque;

use fv_spec::program::{OpIndex, Program, Stream};

/// How choices between streams are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As operations are issued.
    Issued,
    /// At random: one stream is left behind for a long time, of the others each runs on for a while.
    Random {
        /// Where the random numbers begin.
        seed: u64,
    },
}

/// An operation in one repetition of its segment.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Its number in the program.
    pub op: OpIndex,
    /// Its segment.
    pub segment: usize,
    /// Its place in the segment.
    pub at: usize,
    /// The repetition.
    pub repetition: u32,
    issued: usize,
    /// Streams, and how many of their operations must be done.
    waits: Vec<(usize, usize)>,
}

impl Instance {
    /// An operation, without what it waits for.
    pub(super) fn of(op: OpIndex, segment: usize, at: usize, repetition: u32) -> Self {
        Self { op, segment, at, repetition, issued: 0, waits: Vec::new() }
    }
}

/// Operations that are not done yet.
#[derive(Debug)]
pub struct Queue {
    streams: Vec<VecDeque<Instance>>,
    done: Vec<usize>,
    order: Order,
    random: u64,
    /// The stream that runs on, and for how many operations.
    burst: (usize, u64),
    /// The stream that goes on only where no other can.
    behind: usize,
}

impl Queue {
    /// All operations of a program, repetitions written out. An event that is waited for is its latest record that was issued
    /// before; one that was not recorded holds nothing back.
    pub fn new(program: &Program, order: Order) -> Self {
        let mut streams: Vec<VecDeque<Instance>> = Stream::ALL.iter().map(|_| VecDeque::new()).collect();
        let mut recorded = vec![None; program.events as usize];
        let (mut first, mut issued) = (0, 0);
        for (number, segment) in program.segments.iter().enumerate() {
            for repetition in 0..segment.repeat {
                for (op, (at, content)) in (first..).zip(segment.ops.iter().enumerate()) {
                    let stream = stream(content.stream);
                    let waits = content.waits.iter().filter_map(|event| recorded[*event as usize]).collect();
                    streams[stream].push_back(Instance { op, segment: number, at, repetition, issued, waits });
                    if let Some(event) = content.records {
                        recorded[event as usize] = Some((stream, streams[stream].len()));
                    }
                    issued += 1;
                }
            }
            first += OpIndex::try_from(segment.ops.len()).unwrap_or(OpIndex::MAX);
        }
        let random = match order {
            Order::Issued => 0,
            Order::Random { seed } => seed,
        };
        Self { done: vec![0; streams.len()], streams, order, random, burst: (0, 0), behind: 0 }
    }

    /// How many operations are left.
    pub fn len(&self) -> usize {
        self.streams.iter().map(VecDeque::len).sum()
    }

    /// Whether all are done.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The next operation, which counts as done from here on; none when all are, and an error naming what waits when no stream can
    /// go on.
    pub fn pick(&mut self) -> Result<Option<Instance>, String> {
        let ready: Vec<usize> = (0..self.streams.len()).filter(|stream| self.is_ready(*stream)).collect();
        if ready.is_empty() {
            let heads: Vec<String> = self.streams.iter().filter_map(|stream| Some(stream.front()?.op.to_string())).collect();
            return if heads.is_empty() { Ok(None) } else { Err(format!("operations {}", heads.join(", "))) };
        }
        let stream = self.choose(&ready);
        self.done[stream] += 1;
        Ok(self.streams[stream].pop_front())
    }

    fn is_ready(&self, stream: usize) -> bool {
        self.streams[stream].front().is_some_and(|head| head.waits.iter().all(|(other, count)| self.done[*other] >= *count))
    }

    fn choose(&mut self, ready: &[usize]) -> usize {
        let issued = |stream: &usize| self.streams[*stream].front().map_or(usize::MAX, |head| head.issued);
        if self.order == Order::Issued {
            return ready.iter().copied().min_by_key(issued).unwrap_or(0);
        }
        let (stream, left) = self.burst;
        if left > 0 && ready.contains(&stream) {
            self.burst.1 -= 1;
            return stream;
        }
        // One stream may be left behind for a long time: the others run as far as events let them.
        if self.draw().is_multiple_of(64) {
            self.behind = super::memory::index(self.draw() % self.streams.len() as u64);
        }
        let others: Vec<usize> = ready.iter().copied().filter(|stream| *stream != self.behind).collect();
        let among = if others.is_empty() { ready } else { &others };
        let chosen = among[super::memory::index(self.draw() % among.len() as u64)];
        // Up to 2^6 operations at a time: short and long runs are equally likely.
        let length = if chosen == self.behind { 1 } else { 1 << (self.draw() % 7) };
        self.burst = (chosen, length - 1);
        chosen
    }

    fn draw(&mut self) -> u64 {
        self.random = self.random.wrapping_add(1);
        super::weights::splitmix64(self.random)
    }
}

fn stream(stream: Stream) -> usize {
    Stream::ALL.iter().position(|other| *other == stream).unwrap_or(0)
}
