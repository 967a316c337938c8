//! Op programs: what a request allocates and frees, in order, and what follows from that.
//!
//! A rule lowers a request into one [`Program`]. The memory timeline, the peaks and the list of what is alive at a peak are
//! all read off the same events, under one of the [`Model`]s.
//!
//! Loops are kept as loops. The blocks of a transformer, the steps of a sampler and the chunks of a decoder repeat the same
//! events, so a run of the program executes the first and the last iterations of a loop and skips those between; what an
//! iteration leaves behind is counted for the skipped ones too. [`Sampling::All`] executes every iteration.

use fv_spec::estimate::{BufferKind, StageName};

use crate::caching::{BlockId, Config, Replay};

/// What a buffer is, wherever it is allocated.
#[derive(Debug, PartialEq, Eq)]
pub struct Site {
    /// Such as `query`.
    pub name: &'static str,
    /// What it is for.
    pub kind: BufferKind,
    /// The rule it belongs to, such as `wan.dit.self_attention`.
    pub rule: &'static str,
}

/// The named extents whose product, times the size of an element, is a buffer's size.
pub type Dims<'a> = &'a [(&'static str, u64)];

/// A reference to a tensor while a program is built; the tensor is freed with its last reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor(u32);

/// Tensors that are kept until all of them are freed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List(u32);

#[derive(Debug, Clone, Copy)]
enum Op {
    Alloc {
        slot: u32,
        bytes: u64,
        step: u64,
    },
    Free {
        slot: u32,
    },
    /// What `from` holds is from now on in `to`.
    Move {
        from: u32,
        to: u32,
    },
    /// The tensor in `slot` joins a list.
    Keep {
        slot: u32,
        list: u32,
    },
    FreeList {
        list: u32,
    },
    /// What `from` holds joins `to`.
    MoveList {
        from: u32,
        to: u32,
    },
    /// A loop of `count` iterations ends at the event `end`.
    Begin {
        count: u64,
        end: u32,
        head: u16,
        tail: u16,
        opaque: bool,
    },
    End,
    Phase {
        phase: u32,
    },
    EmptyCache,
}

/// How a buffer's size came about, for reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// What it is.
    pub site: &'static Site,
    /// Its extents.
    pub dims: Vec<(&'static str, u64)>,
    /// Bytes of an element.
    pub element: u64,
}

/// A phase of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseSpan {
    /// The stage.
    pub stage: StageName,
    /// Such as `self_attention`.
    pub name: &'static str,
    /// How often it runs in the stage.
    pub repeat: u64,
}

/// The events of one request.
#[derive(Debug, Default)]
pub struct Program {
    ops: Vec<Op>,
    /// By event, when the program was built with details.
    shapes: Vec<Option<Box<Shape>>>,
    phases: Vec<PhaseSpan>,
    slots: u32,
    lists: u32,
}

impl Program {
    /// The phases in the order in which they first run.
    pub fn phases(&self) -> &[PhaseSpan] {
        &self.phases
    }

    /// Events in the program, loops counted once.
    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }
}

/// Builds a [`Program`] the way a runtime's own code holds and drops references.
#[derive(Debug, Default)]
pub struct Builder {
    program: Program,
    details: bool,
    overflow: bool,
    references: Vec<u32>,
    free_slots: Vec<u32>,
    /// Open loops: how often the body runs in all.
    repeats: Vec<u64>,
    stage: Option<StageName>,
}

impl Builder {
    /// An empty program; `details` keeps the extents of each buffer for reports.
    pub fn new(details: bool) -> Self {
        let mut builder = Self { details, ..Self::default() };
        builder.program.ops.reserve(4096);
        builder
    }

    /// What follows belongs to `stage`.
    pub fn stage(&mut self, stage: StageName) {
        self.stage = Some(stage);
    }

    /// What follows is the phase `name` of the current stage.
    pub fn phase(&mut self, name: &'static str) {
        let stage = self.stage.unwrap_or(StageName::Load);
        let repeat = self.repeats.iter().product();
        let known = self.program.phases.iter().position(|p| p.stage == stage && p.name == name);
        let phase = known.unwrap_or_else(|| {
            self.program.phases.push(PhaseSpan { stage, name, repeat: 0 });
            self.program.phases.len() - 1
        });
        let span = &mut self.program.phases[phase];
        span.repeat = span.repeat.saturating_add(repeat);
        self.push(Op::Phase { phase: index(phase) });
    }

    /// Allocates a tensor of the product of `dims` times `element` bytes. The result is one reference to it.
    pub fn alloc(&mut self, site: &'static Site, dims: Dims<'_>, element: u64) -> Tensor {
        self.alloc_growing(site, dims, element, &[])
    }

    /// [`alloc`](Self::alloc), larger by the product of `growth` times `element` bytes in each iteration of the innermost loop.
    pub fn alloc_growing(&mut self, site: &'static Site, dims: Dims<'_>, element: u64, growth: Dims<'_>) -> Tensor {
        let bytes = self.product(dims, element);
        let step = if growth.is_empty() { 0 } else { self.product(growth, element) };
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.references.push(0);
            self.program.slots += 1;
            self.program.slots - 1
        });
        self.references[slot as usize] = 1;
        if self.details {
            self.program.shapes.resize_with(self.program.ops.len(), || None);
            self.program.shapes.push(Some(Box::new(Shape { site, dims: dims.to_vec(), element })));
        }
        self.push(Op::Alloc { slot, bytes, step });
        Tensor(slot)
    }

    /// Allocates and frees at once: workspaces and temporaries.
    pub fn touch(&mut self, site: &'static Site, dims: Dims<'_>, element: u64) {
        let tensor = self.alloc(site, dims, element);
        self.release(tensor);
    }

    /// Another reference to the same tensor.
    #[must_use]
    pub fn retain(&mut self, tensor: Tensor) -> Tensor {
        self.references[tensor.0 as usize] += 1;
        tensor
    }

    /// Drops a reference; the last one frees the tensor.
    pub fn release(&mut self, tensor: Tensor) {
        let references = &mut self.references[tensor.0 as usize];
        *references -= 1;
        if *references == 0 {
            self.push(Op::Free { slot: tensor.0 });
            self.free_slots.push(tensor.0);
        }
    }

    /// Drops `old` and lets its name mean `new`: for what a loop carries from one iteration to the next.
    pub fn replace(&mut self, old: Tensor, new: Tensor) {
        debug_assert_eq!((self.references[old.0 as usize], self.references[new.0 as usize]), (1, 1));
        self.push(Op::Free { slot: old.0 });
        self.push(Op::Move { from: new.0, to: old.0 });
        self.references[new.0 as usize] = 0;
        self.free_slots.push(new.0);
    }

    /// Lets the name `old`, whose tensor is gone, mean `new`: the loop-carried result of a body that dropped its input.
    pub fn rebind(&mut self, old: Tensor, new: Tensor) {
        debug_assert_eq!((self.references[old.0 as usize], self.references[new.0 as usize]), (0, 1));
        self.push(Op::Move { from: new.0, to: old.0 });
        self.references[old.0 as usize] = 1;
        self.references[new.0 as usize] = 0;
        self.free_slots.retain(|slot| *slot != old.0);
        self.free_slots.push(new.0);
    }

    /// A list of tensors that are freed together.
    pub fn list(&mut self) -> List {
        self.program.lists += 1;
        List(self.program.lists - 1)
    }

    /// Hands the only reference of `tensor` to `list`.
    pub fn keep(&mut self, list: List, tensor: Tensor) {
        debug_assert_eq!(self.references[tensor.0 as usize], 1);
        self.push(Op::Keep { slot: tensor.0, list: list.0 });
        self.references[tensor.0 as usize] = 0;
        self.free_slots.push(tensor.0);
    }

    /// Frees every tensor of `list`.
    pub fn release_list(&mut self, list: List) {
        self.push(Op::FreeList { list: list.0 });
    }

    /// Hands everything in `from` to `to`.
    pub fn move_list(&mut self, from: List, to: List) {
        self.push(Op::MoveList { from: from.0, to: to.0 });
    }

    /// Runs `body` `count` times. What it allocates must be released, replaced or kept in a list by its end.
    pub fn repeat(&mut self, count: u64, body: impl FnOnce(&mut Self)) {
        self.repeat_as(count, HEAD, TAIL, false, body);
    }

    /// [`repeat`](Self::repeat) of which only the first `head` and the last `tail` iterations are executed.
    pub fn repeat_sampled(&mut self, count: u64, head: u16, tail: u16, body: impl FnOnce(&mut Self)) {
        self.repeat_as(count, head, tail, false, body);
    }

    /// [`repeat`](Self::repeat) for tensors that are all kept, such as weights: skipped iterations are counted and not placed.
    pub fn repeat_opaque(&mut self, count: u64, body: impl FnOnce(&mut Self)) {
        self.repeat_as(count, HEAD, 0, true, body);
    }

    fn repeat_as(&mut self, count: u64, head: u16, tail: u16, opaque: bool, body: impl FnOnce(&mut Self)) {
        if count == 0 {
            return;
        }
        let begin = self.program.ops.len();
        self.push(Op::Begin { count, end: 0, head, tail, opaque });
        self.repeats.push(count);
        body(self);
        self.repeats.pop();
        self.push(Op::End);
        let end = index(self.program.ops.len() - 1);
        self.program.ops[begin] = Op::Begin { count, end, head, tail, opaque };
    }

    /// The runtime gives cached memory back to the driver.
    pub fn empty_cache(&mut self) {
        self.push(Op::EmptyCache);
    }

    /// The program, or `None` when a size exceeds 64 bits.
    pub fn finish(self) -> Option<Program> {
        (!self.overflow).then_some(self.program)
    }

    fn push(&mut self, op: Op) {
        self.program.ops.push(op);
    }

    fn product(&mut self, dims: Dims<'_>, element: u64) -> u64 {
        let mut bytes = element;
        for (_, extent) in dims {
            bytes = bytes.checked_mul(*extent).unwrap_or_else(|| {
                self.overflow = true;
                0
            });
        }
        // Sums of a few hundred such buffers must not overflow either.
        self.overflow |= bytes > 1 << 52;
        bytes
    }
}

fn index(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

/// How many iterations of a loop are executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sampling {
    /// The first and last few; those between are skipped.
    Ends,
    /// Every one.
    All,
}

/// How allocations become memory.
#[derive(Debug, Clone)]
pub enum Model {
    /// Sums of what is alive.
    None,
    /// PyTorch's caching allocator.
    Caching(Config),
}

/// Peaks of one phase in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    /// Tensors alive.
    pub allocated: u64,
    /// Held by the allocator; without one the same as `allocated`.
    pub reserved: u64,
    /// The event at which `allocated` was reached, counted over all that were executed.
    at: u64,
}

/// What a program needs, by phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// In the order of [`Program::phases`].
    pub phases: Vec<Peak>,
    /// The largest single allocation of each phase: bytes, and the event that makes it.
    largest: Vec<(u64, usize)>,
    /// Whether the allocator ran out of the memory it may use.
    pub out_of_memory: bool,
}

/// Something alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alive<'a> {
    /// How its size came about.
    pub shape: &'a Shape,
    /// Its size.
    pub bytes: u64,
    /// How many alike.
    pub count: u64,
}

impl Program {
    /// Runs the program under a model.
    pub fn run(&self, model: &Model, sampling: Sampling) -> Timeline {
        let mut machine = Machine::new(self, model, u64::MAX);
        machine.run(sampling);
        machine.timeline
    }

    /// What is alive at the peak of a phase that [`run`](Self::run) found, largest first. Needs a program built with details.
    pub fn alive(&self, timeline: &Timeline, phase: usize, sampling: Sampling) -> Vec<Alive<'_>> {
        let mut machine = Machine::new(self, &Model::None, timeline.phases[phase].at);
        machine.run(sampling);
        let mut alive: Vec<Alive<'_>> = Vec::new();
        let held = machine.slots.iter().chain(machine.lists.iter().flatten());
        for held in held.filter(|held| held.count > 0) {
            let Some(Some(shape)) = self.shapes.get(held.event as usize) else { continue };
            let bytes = held.bytes.saturating_mul(held.count);
            match alive.iter_mut().find(|a| a.shape.site == shape.site && a.bytes / a.count == held.bytes && a.shape.dims == shape.dims) {
                Some(same) => {
                    same.bytes += bytes;
                    same.count += held.count;
                }
                None => alive.push(Alive { shape, bytes, count: held.count }),
            }
        }
        alive.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.shape.site.name.cmp(b.shape.site.name)));
        alive
    }

    /// The largest single allocation of a phase. Needs a program built with details.
    pub fn largest(&self, timeline: &Timeline, phase: usize) -> Option<(&Shape, u64)> {
        let (bytes, event) = timeline.largest[phase];
        self.shapes.get(event)?.as_deref().map(|shape| (shape, bytes))
    }
}

/// An allocation or a free, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// So many bytes are allocated; the number names them until they are freed.
    Alloc(u64, u64),
    /// What the number names is freed.
    Free(u64),
}

impl Program {
    /// Every allocation and free of a run, all loops executed.
    pub fn events(&self) -> Vec<Event> {
        let mut machine = Machine::new(self, &Model::None, u64::MAX);
        machine.events = Some(Vec::new());
        machine.run(Sampling::All);
        machine.events.unwrap_or_default()
    }
}

/// What a slot or a list holds: `count` tensors of `bytes`.
#[derive(Debug, Clone, Copy, Default)]
struct Held {
    bytes: u64,
    count: u64,
    event: u32,
    /// Its number among the allocations of the run.
    number: u64,
    /// Its place in the allocator; tensors of skipped iterations of an opaque loop have none.
    block: Option<BlockId>,
    /// What those occupy: allocated and reserved bytes.
    opaque: (u64, u64),
}

struct Machine<'a> {
    program: &'a Program,
    replay: Option<Replay>,
    /// Allocated and reserved bytes of skipped iterations of opaque loops, which the replay does not hold.
    opaque: (u64, u64),
    /// Of the reserved, what nothing lives in any more: it goes when the cache is emptied.
    opaque_dead: u64,
    slots: Vec<Held>,
    lists: Vec<Vec<Held>>,
    live: u64,
    phase: usize,
    executed: u64,
    stop_at: u64,
    timeline: Timeline,
    events: Option<Vec<Event>>,
}

impl<'a> Machine<'a> {
    fn new(program: &'a Program, model: &Model, stop_at: u64) -> Self {
        let phases = program.phases.len();
        Self {
            program,
            replay: match model {
                Model::None => None,
                Model::Caching(config) => Some(Replay::new(config.clone())),
            },
            opaque: (0, 0),
            opaque_dead: 0,
            slots: vec![Held::default(); program.slots as usize],
            lists: vec![Vec::new(); program.lists as usize],
            live: 0,
            phase: 0,
            executed: 0,
            stop_at,
            timeline: Timeline { phases: vec![Peak::default(); phases], largest: vec![(0, 0); phases], out_of_memory: false },
            events: None,
        }
    }

    fn run(&mut self, sampling: Sampling) {
        self.span(0, self.program.ops.len(), 0, sampling);
        self.harvest();
    }

    /// Executes events `from..to` in iteration `iteration` of the loop around them.
    fn span(&mut self, from: usize, to: usize, iteration: u64, sampling: Sampling) {
        let mut at = from;
        while at < to {
            if self.executed > self.stop_at {
                return;
            }
            match self.program.ops[at] {
                Op::Alloc { slot, bytes, step } => {
                    let bytes = bytes + step * iteration;
                    self.alloc(slot, bytes, at);
                }
                Op::Free { slot } => {
                    let held = std::mem::take(&mut self.slots[slot as usize]);
                    self.free(held);
                }
                Op::Move { from, to } => self.slots[to as usize] = std::mem::take(&mut self.slots[from as usize]),
                Op::Keep { slot, list } => {
                    let held = std::mem::take(&mut self.slots[slot as usize]);
                    self.lists[list as usize].push(held);
                }
                Op::FreeList { list } => {
                    for held in std::mem::take(&mut self.lists[list as usize]) {
                        self.free(held);
                    }
                }
                Op::MoveList { from, to } => {
                    let mut held = std::mem::take(&mut self.lists[from as usize]);
                    self.lists[to as usize].append(&mut held);
                }
                Op::Begin { count, end, head, tail, opaque } => {
                    // Opaque loops are never executed in full: their iterations are alike by definition.
                    let (head, tail) = if sampling == Sampling::All && !opaque { (count, 0) } else { (head.into(), tail.into()) };
                    self.repeat(at + 1, end as usize, (count, head, tail), opaque, sampling);
                    at = end as usize;
                }
                Op::End => {}
                Op::Phase { phase } => {
                    self.harvest();
                    self.phase = phase as usize;
                    self.note();
                }
                Op::EmptyCache => {
                    if let Some(replay) = &mut self.replay {
                        replay.empty_cache();
                    }
                    self.opaque.1 -= std::mem::take(&mut self.opaque_dead);
                }
            }
            at += 1;
        }
    }

    fn repeat(&mut self, from: usize, to: usize, (count, head, tail): (u64, u64, u64), opaque: bool, sampling: Sampling) {
        let mut iteration = 0;
        while iteration < count {
            if iteration == head && count > head + tail {
                iteration = count - tail;
                if iteration == count {
                    break;
                }
            }
            let kept: Vec<usize> = self.lists.iter().map(Vec::len).collect();
            let before = self.totals();
            self.span(from, to, iteration, sampling);
            if self.executed > self.stop_at {
                return;
            }
            if iteration + 1 == head && count > head + tail {
                self.skip(&kept, before, count - head - tail, opaque);
            }
            iteration += 1;
        }
    }

    /// Counts what the last iteration left in lists once more for each of `skipped` iterations.
    fn skip(&mut self, kept: &[usize], before: (u64, u64), skipped: u64, opaque: bool) {
        let after = self.totals();
        let mut occupied =
            if self.replay.is_some() { ((after.0 - before.0) * skipped, after.1.saturating_sub(before.1) * skipped) } else { (0, 0) };
        for (list, from) in kept.iter().enumerate() {
            for i in *from..self.lists[list].len() {
                let held = self.lists[list][i];
                self.live += held.bytes * held.count * skipped;
                if opaque {
                    let opaque = std::mem::take(&mut occupied);
                    self.opaque = (self.opaque.0 + opaque.0, self.opaque.1 + opaque.1);
                    self.lists[list].push(Held { count: held.count * skipped, block: None, opaque, ..held });
                } else {
                    for _ in 0..skipped {
                        let block = self.place(held.bytes);
                        self.lists[list].push(Held { block, ..held });
                    }
                }
            }
        }
        self.note();
    }

    /// Allocated and reserved bytes now, as the replay holds them.
    fn totals(&self) -> (u64, u64) {
        self.replay.as_ref().map_or((self.live, self.live), |replay| {
            let all = &replay.stats().all;
            (all.allocated.current, all.reserved.current)
        })
    }

    fn place(&mut self, bytes: u64) -> Option<BlockId> {
        let replay = self.replay.as_mut()?;
        let block = replay.alloc(bytes, 0).ok();
        self.timeline.out_of_memory |= block.is_none();
        block
    }

    fn alloc(&mut self, slot: u32, bytes: u64, event: usize) {
        let block = self.place(bytes);
        self.slots[slot as usize] = Held { bytes, count: 1, event: index(event), number: self.executed, block, opaque: (0, 0) };
        if let Some(events) = &mut self.events {
            events.push(Event::Alloc(self.executed, bytes));
        }
        self.live += bytes;
        let largest = &mut self.timeline.largest[self.phase];
        if bytes > largest.0 {
            *largest = (bytes, event);
        }
        self.note();
        self.executed += 1;
    }

    fn free(&mut self, held: Held) {
        self.live -= held.bytes * held.count;
        if let Some(events) = &mut self.events {
            events.push(Event::Free(held.number));
        }
        if let (Some(block), Some(replay)) = (held.block, &mut self.replay) {
            let freed = replay.free(block);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
        self.opaque.0 -= held.opaque.0;
        self.opaque_dead += held.opaque.1;
    }

    /// Remembers the live sum if it is the phase's highest.
    fn note(&mut self) {
        let peak = &mut self.timeline.phases[self.phase];
        if self.live > peak.allocated && self.replay.is_none() {
            peak.allocated = self.live;
            peak.reserved = self.live;
            peak.at = self.executed;
        }
    }

    /// Reads the replay's peaks for the phase that ends.
    fn harvest(&mut self) {
        if let Some(replay) = &mut self.replay {
            let all = &replay.stats().all;
            let (allocated, reserved) = (all.allocated.peak + self.opaque.0, all.reserved.peak + self.opaque.1);
            let peak = &mut self.timeline.phases[self.phase];
            peak.allocated = peak.allocated.max(allocated);
            peak.reserved = peak.reserved.max(reserved);
            replay.reset_peaks();
        }
    }
}

/// Iterations executed at the start of a loop: enough for every cache to fill and the allocator to settle.
const HEAD: u16 = 3;
/// Iterations executed at its end.
const TAIL: u16 = 2;
