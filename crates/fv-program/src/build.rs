//! What lowering writes programs with: buffers come and go in the order in which operations are issued.

use fv_spec::program::{
    ALIGNMENT, Buffer, BufferId, BufferKind, EventId, Formats, Group, Kernel, Op, OpIndex, Program, Region, Schedule, Segment, StageName,
    Stream, Tier, VERSION, View,
};

/// A program that is being written.
#[derive(Debug)]
pub struct Builder {
    program: Program,
    issued: OpIndex,
    phase: u16,
    block: Option<u16>,
    waits: Vec<EventId>,
    /// What the next operation of each stream waits for beside.
    later: [Vec<EventId>; Stream::ALL.len()],
    alive: Vec<bool>,
    /// How many operations the next one stands for, and those before.
    times: u64,
    counts: Vec<u64>,
}

impl Builder {
    /// A program without operations.
    pub fn new(model: &str, formats: Formats, schedule: Schedule) -> Self {
        let program = Program {
            version: VERSION,
            model: model.to_owned(),
            plan: String::new(),
            formats,
            schedule,
            phases: Vec::new(),
            groups: Vec::new(),
            regions: Vec::new(),
            buffers: Vec::new(),
            events: 0,
            segments: Vec::new(),
        };
        Self {
            program,
            issued: 0,
            phase: 0,
            block: None,
            waits: Vec::new(),
            later: Default::default(),
            alive: Vec::new(),
            times: 1,
            counts: Vec::new(),
        }
    }

    /// The formats of numbers.
    pub fn formats(&self) -> Formats {
        self.program.formats
    }

    /// A region for buffers.
    pub fn region(&mut self, name: &str, tier: Tier) -> u32 {
        self.program.regions.push(Region { name: name.to_owned(), rank: 0, tier, bytes: 0 });
        index(self.program.regions.len() - 1)
    }

    /// Weights that are moved together.
    pub fn group(&mut self, group: Group) -> u32 {
        self.program.groups.push(group);
        index(self.program.groups.len() - 1)
    }

    /// A group that was added.
    pub fn group_at(&self, group: u32) -> &Group {
        &self.program.groups[group as usize]
    }

    /// Operations from here on are issued together, `repeat` times; the first repetition is step `first_step` of the sampler.
    pub fn segment(&mut self, stage: StageName, name: &str, repeat: u32, first_step: u32) {
        self.program.segments.push(Segment { stage, name: name.to_owned(), repeat, first_step, ops: Vec::new() });
        self.block = None;
    }

    /// Operations from here on belong to this phase.
    pub fn phase(&mut self, name: &str) {
        let phases = &mut self.program.phases;
        let at = phases.iter().position(|phase| phase == name).unwrap_or_else(|| {
            phases.push(name.to_owned());
            phases.len() - 1
        });
        self.phase = u16::try_from(at).unwrap_or(u16::MAX);
    }

    /// Operations from here on belong to this block.
    pub fn block(&mut self, block: Option<u64>) {
        self.block = block.map(|block| u16::try_from(block).unwrap_or(u16::MAX));
    }

    /// A buffer from the next operation on.
    pub fn buffer(&mut self, region: u32, name: &str, kind: BufferKind, bytes: u64) -> BufferId {
        let (first, last) = (self.issued, OpIndex::MAX);
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        self.program.buffers.push(Buffer { name: name.to_owned(), kind, region, bytes, offset_bytes: None, first, last });
        self.alive.push(true);
        index(self.program.buffers.len() - 1)
    }

    /// The last operation that was issued is the last one of this buffer.
    ///
    /// # Panics
    /// When it is freed already, or no operation was issued since it was allocated: a fault of the lowering.
    pub fn free(&mut self, buffer: BufferId) {
        let at = buffer as usize;
        assert!(std::mem::take(&mut self.alive[at]), "{} is freed twice", self.program.buffers[at].name);
        assert!(self.program.buffers[at].first < self.issued, "{} is never used", self.program.buffers[at].name);
        self.program.buffers[at].last = self.issued - 1;
    }

    /// A new event.
    pub fn event(&mut self) -> EventId {
        self.program.events += 1;
        self.program.events - 1
    }

    /// The next operation waits for an event.
    pub fn wait(&mut self, event: EventId) {
        if !self.waits.contains(&event) {
            self.waits.push(event);
        }
    }

    /// The next operation of a stream waits for an event.
    pub fn wait_on(&mut self, stream: Stream, event: EventId) {
        let waits = &mut self.later[stream as usize];
        if !waits.contains(&event) {
            waits.push(event);
        }
    }

    /// The next operation of a stream is the first one that touches memory which computations may have used before: it waits for
    /// them. Together with [`Builder::wait_on`] the compute stream wherever another stream was the last one to touch a buffer, this
    /// makes it safe to give freed memory to any later buffer of the region.
    pub fn wait_for_compute(&mut self, stream: Stream) {
        for event in self.later[Stream::Compute as usize].clone().into_iter().chain(self.done(Stream::Compute)) {
            self.wait_on(stream, event);
        }
    }

    /// The event that the last operation of a stream records: a new one, unless it records one already. In a repeated segment
    /// operations of earlier segments do not count, since what waits for them waits in the first repetition only.
    pub fn done(&mut self, stream: Stream) -> Option<EventId> {
        let fresh = self.program.events;
        let repeated = self.program.segments.last().is_some_and(|segment| segment.repeat > 1);
        let segments = self.program.segments.iter_mut().rev().take(if repeated { 1 } else { usize::MAX });
        let op = segments.flat_map(|segment| segment.ops.iter_mut().rev()).find(|op| op.stream == stream)?;
        let event = *op.records.get_or_insert(fresh);
        self.program.events = self.program.events.max(event + 1);
        Some(event)
    }

    /// Issues an operation of another phase and block than those around it.
    pub fn op_of(&mut self, phase: &str, block: Option<u64>, stream: Stream, kernel: Kernel, reads: Vec<View>, writes: Vec<View>) {
        let around = (self.phase, self.block);
        self.phase(phase);
        self.block(block);
        self.op(stream, kernel, reads, writes);
        (self.phase, self.block) = around;
    }

    /// Issues an operation.
    ///
    /// # Panics
    /// When there is no segment, or it uses a buffer that is freed: a fault of the lowering.
    pub fn op(&mut self, stream: Stream, kernel: Kernel, reads: Vec<View>, writes: Vec<View>) -> OpIndex {
        for view in reads.iter().chain(&writes) {
            assert!(self.alive[view.buffer as usize], "{} is used after it is freed", self.program.buffers[view.buffer as usize].name);
        }
        let mut waits = std::mem::take(&mut self.waits);
        for event in std::mem::take(&mut self.later[stream as usize]) {
            if !waits.contains(&event) {
                waits.push(event);
            }
        }
        let op = Op { kernel, phase: self.phase, block: self.block, stream, reads, writes, waits, records: None };
        self.program.segments.last_mut().expect("operations belong to a segment").ops.push(op);
        self.counts.push(self.times);
        self.issued += 1;
        self.issued - 1
    }

    /// The last operation that was issued records an event.
    ///
    /// # Panics
    /// When there is none, or it records another one: a fault of the lowering.
    pub fn record(&mut self, event: EventId) {
        let op = self.program.segments.last_mut().and_then(|segment| segment.ops.last_mut()).expect("an operation was issued");
        assert!(op.records.is_none(), "an operation records one event");
        op.records = Some(event);
    }

    /// Each operation that is issued stands for several of its kind. Such a program is a sketch, to be counted and not executed.
    pub fn standing_for<T>(&mut self, times: u64, issue: impl FnOnce(&mut Self) -> T) -> T {
        let around = self.times;
        self.times *= times;
        let issued = issue(self);
        self.times = around;
        issued
    }

    /// The program, and how many operations each one stands for.
    pub fn finish_counted(mut self) -> (Program, Vec<u64>) {
        let counts = std::mem::take(&mut self.counts);
        (self.finish(), counts)
    }

    /// The program; buffers that are left live to its end.
    pub fn finish(mut self) -> Program {
        let last = self.issued.saturating_sub(1);
        for (buffer, _) in self.program.buffers.iter_mut().zip(&self.alive).filter(|(_, alive)| **alive) {
            buffer.last = last;
        }
        self.program
    }
}

fn index(value: usize) -> u32 {
    u32::try_from(value).expect("a program has fewer than 2^32 entries of a kind")
}
