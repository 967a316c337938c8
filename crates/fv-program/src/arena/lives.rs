//! When buffers are in use, and which of them may not share memory.

use fv_spec::program::{OpIndex, Program};

use crate::order::{Clock, Instance, Order, STREAMS};

/// The uses of a buffer, from its first write to its last read; a buffer that begins and ends in each repetition of a segment has
/// one for each of the two that are unrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    /// First use in each stream, from 1; `u32::MAX` where there is none.
    pub(crate) first: Clock,
    /// Last use in each stream; 0 where there is none.
    pub(crate) last: Clock,
    /// What is over before any use begins.
    known: Clock,
}

impl Life {
    const NONE: Self = Self { first: [u32::MAX; STREAMS], last: [0; STREAMS], known: [u32::MAX; STREAMS] };

    /// Uses come in order of issue, so the first one of a stream knows least.
    fn add(&mut self, order: &Order, instance: Instance) {
        let (stream, place) = order.place(instance);
        if self.last[stream] == 0 {
            self.first[stream] = place;
            for (known, start) in self.known.iter_mut().zip(order.start(instance)) {
                *known = (*known).min(*start);
            }
        }
        self.last[stream] = place;
    }

    /// Whether it is over before any use of another begins.
    pub(crate) fn before(&self, other: &Self) -> bool {
        self.last.iter().zip(&other.known).all(|(last, known)| last <= known)
    }

    /// The only stream that uses it.
    fn stream(&self) -> Option<usize> {
        let mut streams = (0..STREAMS).filter(|stream| self.last[*stream] > 0);
        streams.next().filter(|_| streams.next().is_none())
    }
}

/// The lives of every buffer: none for one that is never used, two for one that begins and ends in repetitions.
#[derive(Debug)]
pub(crate) struct Lives {
    lives: Vec<Life>,
    /// Where those of each buffer begin, and where the last one's end.
    starts: Vec<u32>,
}

impl Lives {
    pub(crate) fn of(program: &Program, order: &Order) -> Self {
        let buffers = program.buffers.len();
        let mut both = vec![[Life::NONE; 2]; buffers];
        let inner: Vec<bool> = program.buffers.iter().map(|buffer| within_repetition(order, buffer.first, buffer.last)).collect();
        for (segment, round) in program.segments.iter().zip(order.segments()) {
            for repetition in 0..round.rounds {
                let first = round.first_instance + repetition * round.ops;
                for (instance, op) in (first..).zip(&segment.ops) {
                    for view in op.reads.iter().chain(&op.writes) {
                        let buffer = view.buffer as usize;
                        let life = if inner[buffer] { repetition as usize } else { 0 };
                        both[buffer][life].add(order, instance);
                    }
                }
            }
        }
        let mut lives = Self { lives: Vec::with_capacity(buffers), starts: Vec::with_capacity(buffers + 1) };
        for both in both {
            lives.starts.push(index(lives.lives.len()));
            lives.lives.extend(both.into_iter().filter(|life| *life != Life::NONE));
        }
        lives.starts.push(index(lives.lives.len()));
        lives
    }

    pub(crate) fn of_buffer(&self, buffer: usize) -> &[Life] {
        &self.lives[self.starts[buffer] as usize..self.starts[buffer + 1] as usize]
    }

    /// Whether two buffers may not share memory: some life of one is neither over before nor begun after some life of the other.
    pub(crate) fn conflict(&self, one: usize, other: usize) -> bool {
        let others = self.of_buffer(other);
        self.of_buffer(one).iter().any(|a| others.iter().any(|b| !a.before(b) && !b.before(a)))
    }
}

/// Whether a buffer begins and ends in each repetition.
pub(crate) fn within_repetition(order: &Order, first: OpIndex, last: OpIndex) -> bool {
    let round = order.segment_of(first);
    round.rounds > 1 && last < round.first_op + round.ops
}

/// For each buffer of a list, which others of the list may not share memory with it; numbers are places in the list.
#[derive(Debug)]
pub(crate) struct Conflicts {
    neighbours: Vec<u32>,
    starts: Vec<u32>,
}

/// A life of a buffer of the list as places of one stream: those of its uses where only that stream uses it, otherwise those at
/// which it may be in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Interval {
    first: u32,
    last: u32,
    at: u32,
    only: bool,
}

impl Conflicts {
    pub(crate) fn among(lives: &Lives, order: &Order, buffers: &[u32]) -> Self {
        let stream_of: Vec<Option<usize>> =
            buffers.iter().map(|buffer| lives.of_buffer(*buffer as usize).first().and_then(Life::stream)).collect();
        let count = |stream: usize| stream_of.iter().filter(|of| **of == Some(stream)).count();
        let main = (0..STREAMS).max_by_key(|stream| count(*stream)).unwrap_or(0);
        let mut intervals = Vec::new();
        let mut others = Vec::new();
        for (at, (buffer, stream)) in (0..).zip(buffers.iter().zip(&stream_of)) {
            let only = *stream == Some(main);
            let lives = lives.of_buffer(*buffer as usize);
            intervals.extend(lives.iter().map(|life| life.interval(order, main, at, only)));
            if !only && !lives.is_empty() {
                others.push(at);
            }
        }
        let mut pairs = Vec::new();
        overlaps(&mut intervals, &mut pairs);
        for (place, one) in others.iter().enumerate() {
            let conflict = |other: &&u32| lives.conflict(buffers[*one as usize] as usize, buffers[**other as usize] as usize);
            pairs.extend(others[..place].iter().filter(conflict).map(|other| (*one, *other)));
        }
        Self::from_pairs(buffers.len(), &pairs)
    }

    fn from_pairs(buffers: usize, pairs: &[(u32, u32)]) -> Self {
        let mut starts = vec![0; buffers + 1];
        for (one, other) in pairs {
            starts[*one as usize + 1] += 1;
            starts[*other as usize + 1] += 1;
        }
        for at in 0..buffers {
            starts[at + 1] += starts[at];
        }
        let mut ends = starts.clone();
        let mut neighbours = vec![0; pairs.len() * 2];
        for (one, other) in pairs {
            for (one, other) in [(*one, *other), (*other, *one)] {
                neighbours[ends[one as usize] as usize] = other;
                ends[one as usize] += 1;
            }
        }
        Self { neighbours, starts }.without_repeats()
    }

    /// A pair that meets in two repetitions is one.
    fn without_repeats(mut self) -> Self {
        let mut seen = vec![u32::MAX; self.starts.len()];
        let (mut kept, mut from) = (0, 0);
        for at in 0..self.starts.len() - 1 {
            let to = self.starts[at + 1] as usize;
            for place in from..to {
                let other = self.neighbours[place];
                if seen[other as usize] != index(at) {
                    seen[other as usize] = index(at);
                    self.neighbours[kept] = other;
                    kept += 1;
                }
            }
            from = to;
            self.starts[at + 1] = index(kept);
        }
        self.neighbours.truncate(kept);
        self
    }

    /// Those that may not share memory with a buffer.
    pub(crate) fn of(&self, at: u32) -> &[u32] {
        &self.neighbours[self.starts[at as usize] as usize..self.starts[at as usize + 1] as usize]
    }
}

impl Life {
    /// In halves of places: what only this stream uses is at its operations, and what others use may lie between two of them.
    fn interval(&self, order: &Order, stream: usize, at: u32, only: bool) -> Interval {
        let (first, last) = if only {
            (2 * self.first[stream], 2 * self.last[stream])
        } else {
            (2 * self.known[stream] + 1, 2 * self.over(order, stream) + 1)
        };
        Interval { first, last, at, only }
    }

    /// The last operation of a stream that may begin before all uses are over.
    fn over(&self, order: &Order, stream: usize) -> u32 {
        let instances = order.stream(stream);
        let after = |other: usize| instances.partition_point(|instance| order.start(*instance)[other] < self.last[other]);
        index((0..STREAMS).map(after).max().unwrap_or(0))
    }
}

/// Places in a list of those buffers that are in use for at least half of the time for which any of them is, and of the others.
pub(crate) fn by_length(lives: &Lives, order: &Order, buffers: &[u32]) -> (Vec<u32>, Vec<u32>) {
    let spans: Vec<Option<(Instance, Instance)>> = buffers.iter().map(|buffer| span(lives.of_buffer(*buffer as usize), order)).collect();
    let first = spans.iter().flatten().map(|(first, _)| *first).min().unwrap_or(0);
    let last = spans.iter().flatten().map(|(_, last)| *last).max().unwrap_or(0);
    let is_long = |at: &u32| spans[*at as usize].is_some_and(|(from, to)| to - from >= (last - first) / 2);
    (0..index(buffers.len())).partition(is_long)
}

/// The first and the last use that are issued.
fn span(lives: &[Life], order: &Order) -> Option<(Instance, Instance)> {
    let of = |life: &Life, places: &Clock, stream: usize| (life.last[stream] > 0).then(|| order.at(stream, places[stream]));
    let first = lives.iter().flat_map(|life| (0..STREAMS).filter_map(|stream| of(life, &life.first, stream))).min()?;
    let last = lives.iter().flat_map(|life| (0..STREAMS).filter_map(|stream| of(life, &life.last, stream))).max()?;
    Some((first, last))
}

/// Pairs of intervals that overlap, of which one is all that there is of its buffer. A repetition of one such and the next of another
/// never overlap: their stream is a queue.
fn overlaps(intervals: &mut [Interval], pairs: &mut Vec<(u32, u32)>) {
    intervals.sort_unstable();
    let mut open: Vec<Interval> = Vec::new();
    for interval in intervals.iter() {
        open.retain(|other| other.last >= interval.first);
        let meets = |other: &&Interval| other.at != interval.at && (other.only || interval.only);
        pairs.extend(open.iter().filter(meets).map(|other| (other.at, interval.at)));
        open.push(*interval);
    }
}

/// The largest sum of sizes of buffers of a list that are in use at one operation: for each, some use is over or under way, and
/// some is under way or to come, in whatever order streams run. No layout is smaller.
pub(crate) fn largest_live_sum(lives: &Lives, order: &Order, buffers: impl Iterator<Item = (u32, u64)>) -> u64 {
    let mut changes: [Vec<(u32, bool, u64)>; STREAMS] = Default::default();
    for (buffer, bytes) in buffers {
        for life in lives.of_buffer(buffer as usize) {
            for (stream, changes) in changes.iter_mut().enumerate() {
                if let Some((first, last)) = in_use(life, order, stream) {
                    changes.extend([(first, true, bytes), (last + 1, false, bytes)]);
                }
            }
        }
    }
    changes.iter_mut().map(|changes| highest(changes)).max().unwrap_or(0)
}

fn highest(changes: &mut [(u32, bool, u64)]) -> u64 {
    changes.sort_unstable();
    let (mut sum, mut highest) = (0, 0);
    for (_, begins, bytes) in changes.iter() {
        if *begins {
            sum += bytes;
            highest = highest.max(sum);
        } else {
            sum -= bytes;
        }
    }
    highest
}

/// The operations of a stream, first and last place, at which a buffer is in use for certain.
pub(crate) fn in_use(life: &Life, order: &Order, stream: usize) -> Option<(u32, u32)> {
    let mut first = life.first[stream];
    let mut last = life.last[stream];
    let instances = order.stream(stream);
    for other in (0..STREAMS).filter(|other| *other != stream && life.last[*other] > 0) {
        let knows = instances.partition_point(|instance| order.start(*instance)[other] < life.first[other]);
        if knows < instances.len() {
            first = first.min(index(knows) + 1);
        }
        last = last.max(order.start(order.at(other, life.last[other]))[stream]);
    }
    (first <= last).then_some((first, last))
}

fn index(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
