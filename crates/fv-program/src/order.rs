//! Which operations are over before others begin, whatever the streams' speeds: operations of a stream run one after another,
//! and a wait holds its operation back until the latest record that was issued before it. An event that nobody has recorded by
//! then holds nothing back, as in CUDA.
//!
//! A repeated segment is unrolled into two repetitions, which is enough: whatever happens between two repetitions that follow
//! each other happens between the first two, and operations that are further apart have one of their own stream in between.
//! What the two show is never more order than there is.

use fv_spec::program::{OpIndex, Program, Stream};

/// Streams of a program.
pub const STREAMS: usize = Stream::ALL.len();

/// For each stream, how many of its operations: the first so many.
pub type Clock = [u32; STREAMS];

/// An operation in one repetition of its segment: its place in the unrolled order of issue.
pub type Instance = u32;

/// A segment in the unrolled program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// Its first operation.
    pub first_op: OpIndex,
    /// How many it has.
    pub ops: u32,
    /// The first instance of its first repetition.
    pub first_instance: Instance,
    /// Repetitions that are unrolled: 2, or 1 where it is not repeated.
    pub rounds: u32,
}

impl Round {
    /// An operation of it in one repetition.
    pub fn instance(&self, op: OpIndex, repetition: u32) -> Instance {
        self.first_instance + repetition * self.ops + (op - self.first_op)
    }
}

/// Happens-before between the operations of a program.
#[derive(Debug, Clone)]
pub struct Order {
    segments: Vec<Round>,
    /// Of each instance: its stream, its place in it (the first is 1), and what is over when it begins.
    places: Vec<(u8, u32)>,
    starts: Vec<Clock>,
    /// Instances of each stream.
    streams: [Vec<Instance>; STREAMS],
}

impl Order {
    /// The order of a program. Events out of range hold nothing back.
    pub fn of(program: &Program) -> Self {
        let mut order = Self { segments: Vec::new(), places: Vec::new(), starts: Vec::new(), streams: Default::default() };
        let mut records: Vec<Option<Instance>> = vec![None; program.events as usize];
        let mut now = [[0; STREAMS]; STREAMS];
        let mut first_op = 0;
        for segment in &program.segments {
            let ops = u32::try_from(segment.ops.len()).unwrap_or(u32::MAX);
            let rounds = segment.repeat.clamp(1, 2);
            order.segments.push(Round { first_op, ops, first_instance: order.len(), rounds });
            for _ in 0..rounds {
                for op in &segment.ops {
                    let stream = op.stream as usize;
                    let waited = op.waits.iter().filter_map(|event| records.get(*event as usize).copied().flatten());
                    for record in waited {
                        join(&mut now[stream], &order.end(record));
                    }
                    let instance = order.len();
                    order.issue(stream, &mut now[stream]);
                    if let Some(record) = op.records.and_then(|event| records.get_mut(event as usize)) {
                        *record = Some(instance);
                    }
                }
            }
            first_op += ops;
        }
        order
    }

    fn issue(&mut self, stream: usize, now: &mut Clock) {
        self.streams[stream].push(self.len());
        self.places.push((u8::try_from(stream).unwrap_or(u8::MAX), now[stream] + 1));
        self.starts.push(*now);
        now[stream] += 1;
    }

    /// Instances in all.
    pub fn len(&self) -> u32 {
        u32::try_from(self.starts.len()).unwrap_or(u32::MAX)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// The segments, in order.
    pub fn segments(&self) -> &[Round] {
        &self.segments
    }

    /// The segment of an operation.
    pub fn segment_of(&self, op: OpIndex) -> Round {
        self.segments[self.segments.partition_point(|round| round.first_op <= op) - 1]
    }

    /// The operation of an instance.
    pub fn op(&self, instance: Instance) -> OpIndex {
        let round = self.segments[self.segments.partition_point(|round| round.first_instance <= instance) - 1];
        round.first_op + (instance - round.first_instance) % round.ops
    }

    /// The stream of an instance, and its place in it; the first is 1.
    pub fn place(&self, instance: Instance) -> (usize, u32) {
        let (stream, place) = self.places[instance as usize];
        (usize::from(stream), place)
    }

    /// The instance at a place, from 1, of a stream.
    pub fn at(&self, stream: usize, place: u32) -> Instance {
        self.streams[stream][place as usize - 1]
    }

    /// Instances of a stream, in order.
    pub fn stream(&self, stream: usize) -> &[Instance] {
        &self.streams[stream]
    }

    /// What is over when an instance begins.
    pub fn start(&self, instance: Instance) -> &Clock {
        &self.starts[instance as usize]
    }

    /// What is over when it is: what was when it began, and itself.
    pub fn end(&self, instance: Instance) -> Clock {
        let (stream, place) = self.place(instance);
        let mut clock = *self.start(instance);
        clock[stream] = place;
        clock
    }

    /// Whether one instance is over before another begins.
    pub fn before(&self, one: Instance, other: Instance) -> bool {
        let (stream, place) = self.place(one);
        one != other && self.start(other)[stream] >= place
    }
}

fn join(clock: &mut Clock, other: &Clock) {
    for (mine, theirs) in clock.iter_mut().zip(other) {
        *mine = (*mine).max(*theirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Sketch;

    use Stream::{Compute, CopyIn};

    #[test]
    fn streams_are_queues_and_waits_join_them() {
        let mut sketch = Sketch::new();
        sketch.segment(1);
        let ready = sketch.event();
        let copy = sketch.op(CopyIn, &[], Some(ready));
        let late = sketch.op(CopyIn, &[], None);
        let compute = sketch.op(Compute, &[ready], None);
        let order = Order::of(&sketch.finish());
        assert!(order.before(copy, late) && order.before(copy, compute));
        assert!(!order.before(late, compute) && !order.before(compute, late));
    }

    #[test]
    fn a_wait_means_the_latest_record_before_it_and_none_is_no_wait() {
        let mut sketch = Sketch::new();
        sketch.segment(3);
        let free = sketch.event();
        let copy = sketch.op(CopyIn, &[free], None);
        let compute = sketch.op(Compute, &[], Some(free));
        let order = Order::of(&sketch.finish());
        let again = 2;
        assert!(!order.before(compute, copy), "nothing is recorded yet");
        assert!(order.before(compute, copy + again), "the second repetition waits for the first");
        assert!(!order.before(compute + again, copy + again), "a record that is issued later is not meant");
    }
}
