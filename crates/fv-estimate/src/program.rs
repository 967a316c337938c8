//! Op programs: what a request allocates and frees, in order, and what follows from that.
//!
//! A rule lowers a request into one [`Program`]. The memory timeline, the peaks and the list of what is alive at a peak are
//! all read off the same events, under one of the [`Model`]s.
//!
//! Loops are kept as loops. The blocks of a transformer, the steps of a sampler and the chunks of a decoder repeat the same
//! events, so a run of the program executes the first and the last iterations of a loop, and a few between where something
//! grows; what a skipped iteration would leave behind is counted. [`Sampling::All`] executes every iteration.

use std::collections::VecDeque;

use fv_spec::estimate::{BufferKind, Reason, StageName};

use crate::caching::{BlockId, Config, Plain, Replay};
use table::{Table, spare};

mod table;

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

/// Sites of one rule: identifier, name and kind of each.
macro_rules! sites {
    ($rule:literal: $($id:ident $name:literal $kind:ident;)*) => {
        $(static $id: $crate::program::Site =
            $crate::program::Site { name: $name, kind: ::fv_spec::estimate::BufferKind::$kind, rule: $rule };)*
    };
}
pub(crate) use sites;

/// The named extents whose product, times the size of an element, is a buffer's size.
pub type Dims<'a> = &'a [(&'static str, u64)];

/// A reference to a tensor while a program is built; the tensor is freed with its last reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tensor(u32);

/// Tensors that are kept until all of them are freed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List(u32);

/// 16 bytes: a program of a few thousand of them stays in the first-level cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Alloc {
        slot: u32,
        bytes: u64,
    },
    /// A workspace, which [`Model::TensorsOnly`] leaves out.
    Workspace {
        slot: u32,
        bytes: u64,
    },
    /// Allocated and freed at once.
    Touch {
        bytes: u64,
        workspace: bool,
    },
    /// Grows with the iteration, see [`Growth`].
    Growing {
        slot: u32,
        growth: u32,
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
    Begin {
        body: u32,
    },
    End,
    Phase {
        phase: u32,
    },
    EmptyCache,
    /// What follows is allocated on this stream.
    Stream {
        stream: u32,
    },
}

/// The size of a tensor in each iteration of its loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Growth {
    first: u64,
    step: u64,
}

/// A loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Body {
    count: u64,
    /// The event after the body.
    end: u32,
    /// Iterations executed at the start and at the end.
    head: u16,
    tail: u16,
    /// Everything is kept: skipped iterations are counted and not placed.
    opaque: bool,
}

#[derive(Debug, Clone, Copy)]
struct Described {
    op: u32,
    site: &'static Site,
    dims: (u32, u32),
    element: u64,
}

/// How a buffer's size came about, for reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape<'a> {
    /// What it is.
    pub site: &'static Site,
    /// Its extents.
    pub dims: Dims<'a>,
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
#[derive(Debug, Clone, Default)]
pub struct Program {
    ops: Table<Op>,
    growths: Vec<Growth>,
    bodies: Vec<Body>,
    /// In the order of events, when the program was built with details.
    described: Table<Described>,
    dims: Table<(&'static str, u64)>,
    phases: Vec<PhaseSpan>,
    slots: u32,
    lists: u32,
}

spare! { Op; Described; (&'static str, u64); Birth; }

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

    /// Whether both are the same but for details.
    fn same_events(&self, other: &Self) -> bool {
        // From the end: programs of one model begin alike, with its weights.
        self.ops.len() == other.ops.len()
            && self.ops.iter().rev().eq(other.ops.iter().rev())
            && (&self.growths, &self.bodies, &self.phases) == (&other.growths, &other.bodies, &other.phases)
            && (self.slots, self.lists) == (other.slots, other.lists)
    }

    /// How the buffer of an event came about.
    fn shape(&self, op: u32) -> Option<Shape<'_>> {
        let at = self.described.binary_search_by_key(&op, |described| described.op).ok()?;
        Some(self.shape_of(&self.described[at]))
    }

    fn shape_of(&self, described: &Described) -> Shape<'_> {
        let Described { site, dims: (from, to), element, .. } = *described;
        Shape { site, dims: &self.dims[from as usize..to as usize], element }
    }
}

/// Builds a [`Program`] the way a runtime's own code holds and drops references.
#[derive(Debug, Default)]
pub struct Builder {
    program: Program,
    details: bool,
    /// Why it is not built after all.
    refused: Option<Reason>,
    references: Vec<u32>,
    free_slots: Vec<u32>,
    /// How often what is built runs in all, by open loop.
    repeats: Vec<u64>,
    stage: Option<StageName>,
    /// Names of phases by address, since a literal's text is compared only once.
    phases: Vec<(*const u8, StageName, u32)>,
}

impl Builder {
    /// An empty program; `details` keeps the extents of each buffer for reports.
    pub fn new(details: bool) -> Self {
        let mut builder = Self { details, ..Self::default() };
        builder.program.ops = Table::with_capacity(4096);
        builder.references.reserve(256);
        builder.free_slots.reserve(256);
        if details {
            builder.program.described = Table::with_capacity(2048);
            builder.program.dims = Table::with_capacity(8192);
        }
        builder
    }

    /// What follows belongs to `stage`.
    pub fn stage(&mut self, stage: StageName) {
        self.stage = Some(stage);
    }

    /// What follows is the phase `name` of the current stage.
    pub fn phase(&mut self, name: &'static str) {
        let stage = self.stage.unwrap_or(StageName::Load);
        let address = name.as_ptr();
        let known = self.phases.iter().find(|(at, of, _)| *at == address && *of == stage).map(|(.., phase)| *phase);
        let phase = known.unwrap_or_else(|| {
            let named = self.program.phases.iter().position(|p| p.stage == stage && p.name == name);
            let phase = index(named.unwrap_or_else(|| {
                self.program.phases.push(PhaseSpan { stage, name, repeat: 0 });
                self.program.phases.len() - 1
            }));
            self.phases.push((address, stage, phase));
            phase
        });
        let repeat = self.repeats.last().copied().unwrap_or(1);
        let span = &mut self.program.phases[phase as usize];
        span.repeat = span.repeat.saturating_add(repeat);
        self.push(Op::Phase { phase });
    }

    /// Allocates a tensor of the product of `dims` times `element` bytes. The result is one reference to it.
    pub fn alloc(&mut self, site: &'static Site, dims: Dims<'_>, element: u64) -> Tensor {
        let bytes = self.product(dims, element);
        let slot = self.slot(site, dims, element);
        self.push(if site.kind == BufferKind::Workspace { Op::Workspace { slot, bytes } } else { Op::Alloc { slot, bytes } });
        Tensor(slot)
    }

    /// [`alloc`](Self::alloc), larger by the product of `growth` times `element` bytes in each iteration of the innermost loop.
    pub fn alloc_growing(&mut self, site: &'static Site, dims: Dims<'_>, element: u64, growth: Dims<'_>) -> Tensor {
        let (first, step) = (self.product(dims, element), self.product(growth, element));
        let slot = self.slot(site, dims, element);
        self.program.growths.push(Growth { first, step });
        self.push(Op::Growing { slot, growth: index(self.program.growths.len() - 1) });
        Tensor(slot)
    }

    /// A slot with one reference, whose buffer the next event allocates.
    fn slot(&mut self, site: &'static Site, dims: Dims<'_>, element: u64) -> u32 {
        if self.details {
            let from = index(self.program.dims.len());
            self.program.dims.extend_from_slice(dims);
            let described = Described { op: index(self.program.ops.len()), site, dims: (from, index(self.program.dims.len())), element };
            self.program.described.push(described);
        }
        if let Some(slot) = self.free_slots.pop() {
            self.references[slot as usize] = 1;
            return slot;
        }
        self.references.push(1);
        self.program.slots += 1;
        self.program.slots - 1
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
            self.free(tensor.0);
            self.free_slots.push(tensor.0);
        }
    }

    /// The end of what a slot holds. What was allocated just before is only touched.
    fn free(&mut self, slot: u32) {
        let touch = match self.program.ops.last() {
            Some(&Op::Alloc { slot: of, bytes }) if of == slot => Op::Touch { bytes, workspace: false },
            Some(&Op::Workspace { slot: of, bytes }) if of == slot => Op::Touch { bytes, workspace: true },
            _ => return self.push(Op::Free { slot }),
        };
        self.program.ops.pop();
        self.push(touch);
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
        self.repeat_counted(count, OPAQUE_HEAD, body);
    }

    /// [`repeat_opaque`](Self::repeat_opaque) of which the first `head` iterations are executed: enough of them for an average.
    pub fn repeat_counted(&mut self, count: u64, head: u16, body: impl FnOnce(&mut Self)) {
        self.repeat_as(count, head, 0, true, body);
    }

    fn repeat_as(&mut self, count: u64, head: u16, tail: u16, opaque: bool, build: impl FnOnce(&mut Self)) {
        if count == 0 {
            return;
        }
        let body = self.program.bodies.len();
        self.program.bodies.push(Body { count, end: 0, head, tail, opaque });
        self.push(Op::Begin { body: index(body) });
        self.repeats.push(self.repeats.last().copied().unwrap_or(1).saturating_mul(count));
        build(self);
        self.repeats.pop();
        self.push(Op::End);
        self.program.bodies[body].end = index(self.program.ops.len() - 1);
    }

    /// The runtime gives cached memory back to the driver.
    pub fn empty_cache(&mut self) {
        self.push(Op::EmptyCache);
    }

    /// Runs `body`, which allocates on a stream of its own: an allocator never hands one stream's free blocks to another.
    pub fn aside(&mut self, body: impl FnOnce(&mut Self)) {
        self.push(Op::Stream { stream: 1 });
        body(self);
        self.push(Op::Stream { stream: 0 });
    }

    /// What is built runs nowhere, or is not evaluated: the first reason counts.
    pub fn refuse(&mut self, reason: Reason) {
        self.refused.get_or_insert(reason);
    }

    /// The program.
    ///
    /// # Errors
    /// Why it was refused: by [`refuse`](Self::refuse), or because a size exceeds 4 PiB.
    pub fn finish(self) -> Result<Program, Reason> {
        match self.refused {
            Some(reason) => Err(reason),
            None => Ok(self.program),
        }
    }

    fn push(&mut self, op: Op) {
        self.program.ops.push(op);
    }

    fn product(&mut self, dims: Dims<'_>, element: u64) -> u64 {
        let bytes = dims.iter().try_fold(element, |bytes, (_, extent)| bytes.checked_mul(*extent));
        // Sums of a few hundred such buffers must not overflow either.
        bytes.filter(|bytes| *bytes <= LARGEST).unwrap_or_else(|| {
            self.refuse(Reason::new("too-large", "a buffer of this request would exceed 4 PiB"));
            0
        })
    }
}

/// The largest buffer: 4 PiB.
const LARGEST: u64 = 1 << 52;
/// Iterations executed at the start of a loop: enough for caches to fill and the allocator to settle.
const HEAD: u16 = 2;
/// Iterations executed at its end.
const TAIL: u16 = 1;
/// Iterations executed of an opaque loop: the average of all but the first stands for the rest.
const OPAQUE_HEAD: u16 = 5;

/// Marks the events of what stands for skipped iterations.
const AGAIN: u32 = 1 << 31;
/// No place in a table.
const NOWHERE: u32 = u32::MAX;

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
#[expect(clippy::large_enum_variant, reason = "made once for a run")]
pub enum Model {
    /// Sums of what is alive.
    None,
    /// The same without workspaces: what a runtime's own code holds, whatever its libraries take beside it.
    TensorsOnly,
    /// PyTorch's caching allocator.
    Caching(Config),
}

/// Peaks of one phase in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Peak {
    /// Blocks in use, as the allocator counts them; without one the same as `live`.
    pub allocated: u64,
    /// Held by the allocator; without one the same as `live`.
    pub reserved: u64,
    /// The sum of what is alive, to the byte.
    pub live: u64,
    /// The same without workspaces: what a runtime's own code holds, whatever its libraries take beside it.
    pub tensors: u64,
    /// The allocation, counted over all that were executed, at which `live` was reached.
    at: u64,
}

/// What a program needs, by phase.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline {
    /// In the order of [`Program::phases`].
    pub phases: Vec<Peak>,
    /// The largest single allocation of each phase: bytes, and the event that makes it.
    largest: Vec<(u64, u32)>,
    /// What was allocated, in order, where the program has details.
    births: Table<Birth>,
    /// What was counted for skipped iterations, likewise.
    counted: Vec<(Birth, Counted)>,
    /// Whether the allocator ran out of the memory it may use.
    pub out_of_memory: bool,
}

/// An allocation of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Birth {
    bytes: u64,
    /// The event that makes it.
    op: u32,
    /// How many allocations were executed when it was freed.
    freed: u32,
}

/// Tensors of skipped iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Counted {
    count: u64,
    /// Live, allocated and reserved bytes.
    occupied: [u64; 3],
    /// How many allocations were executed when they were counted.
    from: u32,
}

impl Timeline {
    /// Size, number and event of everything alive right after an allocation.
    fn alive(&self, at: u64, into: &mut Vec<(u64, u64, u32)>) {
        // What stands for skipped iterations is placed at once: nothing is said about the moments in between.
        let executed = usize::try_from(at).unwrap_or(usize::MAX);
        let Some(later) = self.births.iter().skip(executed).position(|birth| birth.op & AGAIN == 0) else { return };
        let at = index(executed + later);
        let lives = |birth: &Birth| birth.freed > at;
        let births = self.births[..=executed + later].iter().filter(|birth| lives(birth));
        into.extend(births.map(|birth| (birth.bytes, 1, birth.op & !AGAIN)));
        let counted = self.counted.iter().filter(|(birth, counted)| counted.from <= at && lives(birth));
        into.extend(counted.map(|(birth, counted)| (birth.bytes, counted.count, birth.op)));
    }
}

/// Something alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alive<'a> {
    /// How its size came about.
    pub shape: Shape<'a>,
    /// Its size.
    pub bytes: u64,
    /// How many alike.
    pub count: u64,
}

/// An allocation or a free, in the order of execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// So many bytes are allocated; the first number names them until they are freed.
    Alloc(u64, u64),
    /// What the number names is freed.
    Free(u64),
}

impl Program {
    /// Runs the program under a model.
    pub fn run(&self, model: &Model, sampling: Sampling) -> Timeline {
        match model {
            Model::None => Machine::new(self, Live::default(), false).run(sampling),
            Model::TensorsOnly => Machine::new(self, Live::default(), true).run(sampling),
            Model::Caching(config) => {
                if Plain::covers(config) {
                    let mut machine = Machine::new(self, Cached::new(Plain::new()), false);
                    machine.execute(sampling);
                    if !machine.store.heap.exceeded() {
                        return machine.timeline;
                    }
                }
                let mut machine = Machine::new(self, Cached::new(Full { replay: Replay::new(config.clone()), failed: false }), false);
                machine.execute(sampling);
                Timeline { out_of_memory: machine.store.heap.failed, ..machine.timeline }
            }
        }
    }

    /// What is alive at the peaks of some phases of a run of this program, largest first. Needs a program built with details.
    pub fn alive(&self, timeline: &Timeline, phases: &[usize]) -> Vec<Vec<Alive<'_>>> {
        let mut shapes = vec![NOWHERE; self.ops.len()];
        for (described, i) in self.described.iter().zip(0..) {
            shapes[described.op as usize] = i;
        }
        let mut entries = vec![NOWHERE; self.ops.len()];
        let mut held = Vec::new();
        let mut at_peak = |phase: &usize| {
            held.clear();
            timeline.alive(timeline.phases[*phase].at, &mut held);
            self.describe(&held, &shapes, &mut entries)
        };
        phases.iter().map(&mut at_peak).collect()
    }

    /// Puts what is alive together by kind. `shapes` leads from events to their descriptions; `entries` from those whose
    /// buffers were seen to what became of them, and is left as it was found.
    fn describe(&self, held: &[(u64, u64, u32)], shapes: &[u32], entries: &mut [u32]) -> Vec<Alive<'_>> {
        let mut alive: Vec<Alive<'_>> = Vec::new();
        // The size of one, by entry.
        let mut sizes: Vec<u64> = Vec::new();
        for (size, count, op) in held {
            let mut entry = entries[*op as usize] as usize;
            if sizes.get(entry) != Some(size) {
                let Some(described) = self.described.get(shapes[*op as usize] as usize) else { continue };
                let shape = self.shape_of(described);
                let same_shape = |a: &Alive<'_>| a.shape.site == shape.site && a.shape.dims == shape.dims;
                entry = sizes.iter().zip(&alive).position(|(other, a)| other == size && same_shape(a)).unwrap_or(alive.len());
                entries[*op as usize] = index(entry);
                if entry == alive.len() {
                    alive.push(Alive { shape, bytes: 0, count: 0 });
                    sizes.push(*size);
                }
            }
            alive[entry].bytes += size.saturating_mul(*count);
            alive[entry].count += count;
        }
        for (_, _, op) in held {
            entries[*op as usize] = NOWHERE;
        }
        alive.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.shape.site.name.cmp(b.shape.site.name)));
        alive
    }

    /// The largest single allocation of a phase. Needs a program built with details.
    pub fn largest(&self, timeline: &Timeline, phase: usize) -> Option<(Shape<'_>, u64)> {
        let (bytes, op) = timeline.largest[phase];
        self.shape(op).map(|shape| (shape, bytes))
    }

    /// Every allocation and free of a run, all loops executed.
    pub fn events(&self) -> Vec<Event> {
        self.events_of(false)
    }

    /// [`events`](Self::events) without workspaces.
    pub fn tensor_events(&self) -> Vec<Event> {
        self.events_of(true)
    }

    fn events_of(&self, tensors_only: bool) -> Vec<Event> {
        let mut machine = Machine::new(self, Recorded::default(), tensors_only);
        machine.span::<false>(0, self.ops.len(), 0, Sampling::All);
        machine.store.events
    }
}

/// The last runs under a caching allocator, for programs without details that may come again: settings without effect on a
/// request lower it into the same events, which are then compared and not replayed.
#[derive(Debug, Default)]
pub(crate) struct Runs(VecDeque<(Program, Config, Timeline)>);

impl Runs {
    /// Runs kept, at most.
    const MOST: usize = 8;

    /// [`Program::run`] with the ends of loops.
    pub(crate) fn run(&mut self, program: &Program, allocator: Config) -> Timeline {
        let known = self.0.iter().find(|(kept, under, _)| *under == allocator && kept.same_events(program));
        if let Some((.., timeline)) = known {
            return timeline.clone();
        }
        let timeline = program.run(&Model::Caching(allocator.clone()), Sampling::Ends);
        self.0.truncate(Self::MOST - 1);
        self.0.push_front((program.clone(), allocator, timeline.clone()));
        timeline
    }
}

/// Memory that allocations are placed in.
trait Store {
    /// Names a placed allocation.
    type Block: Copy + Default;
    fn place(&mut self, bytes: u64, workspace: bool) -> Self::Block;
    fn remove(&mut self, block: Self::Block, bytes: u64, workspace: bool);
    /// Places and removes.
    fn touch(&mut self, bytes: u64, workspace: bool) {
        let block = self.place(bytes, workspace);
        self.remove(block, bytes, workspace);
    }
    /// Live, allocated and reserved bytes now.
    fn levels(&self) -> [u64; 3] {
        [0; 3]
    }
    /// The highest levels since the last call.
    fn take_peaks(&mut self) -> Peak {
        Peak::default()
    }
    /// Bytes that are counted and not placed: live, allocated and reserved.
    fn count(&mut self, _: [u64; 3]) {}
    fn uncount(&mut self, _: [u64; 3]) {}
    fn empty_cache(&mut self) {}
    fn stream(&mut self, _: u32) {}
}

/// Sums of what is alive.
#[derive(Debug, Default)]
struct Live {
    now: u64,
    peak: u64,
    at: u64,
    /// Without workspaces.
    tensors: u64,
    tensors_peak: u64,
    executed: u64,
}

impl Store for Live {
    type Block = ();
    #[inline]
    fn place(&mut self, bytes: u64, workspace: bool) {
        self.now += bytes;
        if self.now > self.peak {
            self.peak = self.now;
            self.at = self.executed;
        }
        if !workspace {
            self.tensors += bytes;
            self.tensors_peak = self.tensors_peak.max(self.tensors);
        }
        self.executed += 1;
    }
    #[inline]
    fn remove(&mut self, (): (), bytes: u64, workspace: bool) {
        self.now -= bytes;
        self.tensors -= if workspace { 0 } else { bytes };
    }
    fn levels(&self) -> [u64; 3] {
        [self.now; 3]
    }
    fn take_peaks(&mut self) -> Peak {
        let peak = Peak { allocated: self.peak, reserved: self.peak, live: self.peak, tensors: self.tensors_peak, at: self.at };
        self.peak = self.now;
        self.tensors_peak = self.tensors;
        self.at = self.executed.saturating_sub(1);
        peak
    }
    fn count(&mut self, [live, ..]: [u64; 3]) {
        self.now += live;
        self.tensors += live;
        self.tensors_peak = self.tensors_peak.max(self.tensors);
        if self.now > self.peak {
            self.peak = self.now;
            self.at = self.executed.saturating_sub(1);
        }
    }
    fn uncount(&mut self, [live, ..]: [u64; 3]) {
        self.now -= live;
        self.tensors -= live;
    }
}

/// The events themselves.
#[derive(Debug, Default)]
struct Recorded {
    events: Vec<Event>,
    next: u64,
}

impl Store for Recorded {
    type Block = u64;
    fn place(&mut self, bytes: u64, _: bool) -> u64 {
        self.events.push(Event::Alloc(self.next, bytes));
        self.next += 1;
        self.next - 1
    }
    fn remove(&mut self, block: u64, _: u64, _: bool) {
        self.events.push(Event::Free(block));
    }
}

/// A caching allocator.
trait Heap {
    /// Names a block in use.
    type Block: Copy + Default;
    fn alloc(&mut self, bytes: u64, stream: u32) -> Self::Block;
    fn free(&mut self, block: Self::Block);
    /// Allocates and frees.
    fn touch(&mut self, bytes: u64, stream: u32) {
        let block = self.alloc(bytes, stream);
        self.free(block);
    }
    /// Allocated and reserved bytes.
    fn levels(&self) -> [u64; 2];
    /// Their peaks, which start again from the present.
    fn take_peaks(&mut self) -> [u64; 2];
    fn empty_cache(&mut self);
}

impl Heap for Plain {
    type Block = u32;
    #[inline]
    fn alloc(&mut self, bytes: u64, stream: u32) -> u32 {
        self.alloc(bytes, stream)
    }
    #[inline]
    fn free(&mut self, block: u32) {
        self.free(block);
    }
    #[inline]
    fn touch(&mut self, bytes: u64, stream: u32) {
        self.touch(bytes, stream);
    }
    fn levels(&self) -> [u64; 2] {
        self.levels()
    }
    fn take_peaks(&mut self) -> [u64; 2] {
        self.take_peaks()
    }
    fn empty_cache(&mut self) {
        self.empty_cache();
    }
}

/// A replay of the allocator under any settings.
struct Full {
    replay: Replay,
    failed: bool,
}

impl Heap for Full {
    type Block = Option<BlockId>;
    #[inline]
    fn alloc(&mut self, bytes: u64, stream: u32) -> Option<BlockId> {
        let block = self.replay.alloc(bytes, stream).ok();
        self.failed |= block.is_none();
        block
    }
    #[inline]
    fn free(&mut self, block: Option<BlockId>) {
        if let Some(block) = block {
            let freed = self.replay.free(block);
            debug_assert!(freed.is_ok(), "{freed:?}");
        }
    }
    fn levels(&self) -> [u64; 2] {
        let all = &self.replay.stats().all;
        [all.allocated.current, all.reserved.current]
    }
    fn take_peaks(&mut self) -> [u64; 2] {
        self.replay.take_peaks()
    }
    fn empty_cache(&mut self) {
        self.replay.empty_cache();
    }
}

/// A caching allocator, what is counted beside it, and the sums of what is alive.
struct Cached<H> {
    live: Live,
    heap: H,
    /// Allocated and reserved.
    counted: [u64; 2],
    /// Reserved bytes in which nothing lives any more: they go when the cache is emptied.
    dead: u64,
    stream: u32,
    /// Peaks that were read before counted bytes went.
    carried: Option<Peak>,
}

impl<H> Cached<H> {
    fn new(heap: H) -> Self {
        Self { live: Live::default(), heap, counted: [0; 2], dead: 0, stream: 0, carried: None }
    }
}

impl<H: Heap> Store for Cached<H> {
    type Block = H::Block;
    #[inline]
    fn place(&mut self, bytes: u64, workspace: bool) -> H::Block {
        self.live.place(bytes, workspace);
        self.heap.alloc(bytes, self.stream)
    }
    #[inline]
    fn remove(&mut self, block: H::Block, bytes: u64, workspace: bool) {
        self.live.remove((), bytes, workspace);
        self.heap.free(block);
    }
    #[inline]
    fn touch(&mut self, bytes: u64, workspace: bool) {
        self.live.touch(bytes, workspace);
        self.heap.touch(bytes, self.stream);
    }
    fn levels(&self) -> [u64; 3] {
        let [allocated, reserved] = self.heap.levels();
        [self.live.now, allocated, reserved]
    }
    fn take_peaks(&mut self) -> Peak {
        let [allocated, reserved] = self.heap.take_peaks();
        let [counted_allocated, counted_reserved] = self.counted;
        let now = Peak { allocated: allocated + counted_allocated, reserved: reserved + counted_reserved, ..self.live.take_peaks() };
        let Some(before) = self.carried.take() else { return now };
        let (live, at) = if before.live > now.live { (before.live, before.at) } else { (now.live, now.at) };
        Peak {
            allocated: now.allocated.max(before.allocated),
            reserved: now.reserved.max(before.reserved),
            live,
            tensors: now.tensors.max(before.tensors),
            at,
        }
    }
    fn count(&mut self, [live, allocated, reserved]: [u64; 3]) {
        self.live.count([live; 3]);
        self.counted[0] += allocated;
        self.counted[1] += reserved;
    }
    fn uncount(&mut self, [live, allocated, reserved]: [u64; 3]) {
        // Peaks reached so far include what is about to go.
        let peak = self.take_peaks();
        self.carried = Some(peak);
        self.live.uncount([live; 3]);
        self.counted[0] -= allocated;
        self.dead += reserved;
    }
    fn empty_cache(&mut self) {
        self.heap.empty_cache();
        self.counted[1] -= std::mem::take(&mut self.dead);
    }
    fn stream(&mut self, stream: u32) {
        self.stream = stream;
    }
}

/// What a slot or a list holds.
#[derive(Debug, Clone, Copy, Default)]
struct Held<B> {
    bytes: u64,
    block: B,
    /// Which allocation of the run it is, or of what is counted.
    birth: u32,
    /// The event that makes it.
    op: u32,
    state: State,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// There is nothing.
    #[default]
    Empty,
    Tensor,
    Workspace,
    /// Tensors of skipped iterations of an opaque loop, which have no place of their own.
    Counted,
}

struct Machine<'a, S: Store> {
    program: &'a Program,
    store: S,
    tensors_only: bool,
    slots: Vec<Held<S::Block>>,
    lists: Vec<Vec<Held<S::Block>>>,
    phase: usize,
    /// Allocations executed.
    executed: u32,
    timeline: Timeline,
}

impl<'a, S: Store> Machine<'a, S> {
    fn new(program: &'a Program, store: S, tensors_only: bool) -> Self {
        let phases = program.phases.len();
        Self {
            program,
            store,
            tensors_only,
            slots: vec![Held::default(); program.slots as usize],
            lists: (0..program.lists).map(|_| Vec::new()).collect(),
            phase: 0,
            executed: 0,
            timeline: Timeline {
                phases: vec![Peak::default(); phases],
                largest: vec![(0, 0); phases],
                births: Table::empty(),
                counted: Vec::new(),
                out_of_memory: false,
            },
        }
    }

    fn run(mut self, sampling: Sampling) -> Timeline {
        self.execute(sampling);
        self.timeline
    }

    fn execute(&mut self, sampling: Sampling) {
        if sampling == Sampling::Ends && !self.program.described.is_empty() {
            self.timeline.births = Table::with_capacity(self.program.described.len() * 2);
            self.span::<true>(0, self.program.ops.len(), 0, sampling);
        } else {
            self.span::<false>(0, self.program.ops.len(), 0, sampling);
        }
        self.harvest();
    }

    /// Executes events `from..to` in iteration `iteration` of the loop around them. `LOG`: notes what is allocated.
    fn span<const LOG: bool>(&mut self, from: usize, to: usize, iteration: u64, sampling: Sampling) {
        let program = self.program;
        let mut at = from;
        while at < to {
            match program.ops[at] {
                Op::Alloc { slot, bytes } => self.slots[slot as usize] = self.alloc::<LOG>(bytes, at, State::Tensor),
                Op::Workspace { slot, bytes } => {
                    self.slots[slot as usize] =
                        if self.tensors_only { Held::default() } else { self.alloc::<LOG>(bytes, at, State::Workspace) };
                }
                Op::Touch { workspace: true, .. } if self.tensors_only => {}
                Op::Touch { bytes, workspace } => self.touch::<LOG>(bytes, workspace, at),
                Op::Growing { slot, growth } => {
                    let Growth { first, step } = program.growths[growth as usize];
                    self.slots[slot as usize] = self.alloc::<LOG>(first + step * iteration, at, State::Tensor);
                }
                Op::Free { slot } => {
                    let held = std::mem::take(&mut self.slots[slot as usize]);
                    if held.state != State::Empty {
                        self.free::<LOG>(&held);
                    }
                }
                Op::Move { from, to } => self.slots[to as usize] = std::mem::take(&mut self.slots[from as usize]),
                Op::Keep { slot, list } => {
                    let held = std::mem::take(&mut self.slots[slot as usize]);
                    if held.state != State::Empty {
                        self.lists[list as usize].push(held);
                    }
                }
                Op::FreeList { list } => {
                    let mut held = std::mem::take(&mut self.lists[list as usize]);
                    for held in held.drain(..).rev() {
                        self.free::<LOG>(&held);
                    }
                    self.lists[list as usize] = held;
                }
                Op::MoveList { from, to } => {
                    let mut held = std::mem::take(&mut self.lists[from as usize]);
                    self.lists[to as usize].append(&mut held);
                    self.lists[from as usize] = held;
                }
                Op::Begin { body } => {
                    let body = program.bodies[body as usize];
                    self.repeat::<LOG>(at + 1, &body, sampling);
                    at = body.end as usize;
                }
                Op::End => {}
                Op::Phase { phase } => {
                    self.harvest();
                    self.phase = phase as usize;
                }
                Op::EmptyCache => self.store.empty_cache(),
                Op::Stream { stream } => self.store.stream(stream),
            }
            at += 1;
        }
    }

    fn repeat<const LOG: bool>(&mut self, from: usize, body: &Body, sampling: Sampling) {
        let Body { count, end, head, tail, opaque } = *body;
        let (head, tail) = (u64::from(head), u64::from(tail));
        // Opaque loops are never executed in full: their iterations are alike by definition.
        let whole = count <= head + tail || (sampling == Sampling::All && !opaque);
        let mut iteration = 0;
        let mut first = [0; 3];
        while iteration < count {
            let last_of_head = !whole && iteration + 1 == head;
            let kept: Vec<usize> = if last_of_head { self.lists.iter().map(Vec::len).collect() } else { Vec::new() };
            self.span::<LOG>(from, end as usize, iteration, sampling);
            if opaque && iteration == 0 {
                first = self.store.levels();
            }
            iteration += 1;
            if last_of_head {
                let skipped = count - head - tail;
                if opaque {
                    self.count_skipped(&kept, first, (head - 1).max(1), skipped);
                } else {
                    self.skip::<LOG>(&kept, skipped);
                }
                iteration += skipped;
            }
        }
    }

    /// What an opaque loop's skipped iterations keep: the same tensors as the last one, and the average of what an iteration
    /// took from the store.
    fn count_skipped(&mut self, kept: &[usize], first: [u64; 3], averaged: u64, skipped: u64) {
        let now = self.store.levels();
        let share = |first: u64, now: u64| {
            u64::try_from(u128::from(now.saturating_sub(first)) * u128::from(skipped) / u128::from(averaged)).unwrap_or(u64::MAX >> 12)
        };
        let mut occupied = [0, 1, 2].map(|i| share(first[i], now[i]));
        for (list, from) in kept.iter().enumerate() {
            for i in *from..self.lists[list].len() {
                let held = self.lists[list][i];
                let taken = std::mem::take(&mut occupied);
                self.store.count(taken);
                let count = if held.state == State::Counted { self.timeline.counted[held.birth as usize].1.count } else { 1 };
                let counted = self.counted(held, count * skipped, taken);
                self.lists[list].push(counted);
            }
        }
    }

    fn counted(&mut self, held: Held<S::Block>, count: u64, occupied: [u64; 3]) -> Held<S::Block> {
        let birth = Birth { bytes: held.bytes, op: held.op, freed: u32::MAX };
        self.timeline.counted.push((birth, Counted { count, occupied, from: self.executed }));
        Held { birth: index(self.timeline.counted.len() - 1), state: State::Counted, ..held }
    }

    /// What skipped iterations leave behind: tensors in lists, and tensors that have grown.
    fn skip<const LOG: bool>(&mut self, kept: &[usize], skipped: u64) {
        for (list, from) in kept.iter().enumerate() {
            let added = self.lists[list].len().saturating_sub(*from);
            for _ in 0..skipped {
                for i in *from..from + added {
                    let held = self.lists[list][i];
                    let mut again = self.place_again::<LOG>(held, held.bytes);
                    if held.state == State::Counted {
                        let (_, Counted { count, occupied, .. }) = self.timeline.counted[held.birth as usize];
                        again = self.counted(again, count, occupied);
                    }
                    self.lists[list].push(again);
                }
            }
        }
        for slot in 0..self.slots.len() {
            let held = self.slots[slot];
            let Op::Growing { growth, .. } = self.program.ops[held.op as usize] else { continue };
            let step = self.program.growths[growth as usize].step;
            if held.state != State::Empty && step > 0 {
                self.free::<LOG>(&held);
                self.slots[slot] = self.place_again::<LOG>(held, held.bytes + step * skipped);
            }
        }
    }

    /// Places what a skipped iteration would have.
    fn place_again<const LOG: bool>(&mut self, held: Held<S::Block>, bytes: u64) -> Held<S::Block> {
        let block = self.store.place(bytes, held.state == State::Workspace);
        self.executed += 1;
        if LOG {
            self.timeline.births.push(Birth { bytes, op: held.op | AGAIN, freed: u32::MAX });
        }
        Held { bytes, block, birth: self.executed - 1, ..held }
    }

    #[inline]
    fn alloc<const LOG: bool>(&mut self, bytes: u64, at: usize, state: State) -> Held<S::Block> {
        let block = self.store.place(bytes, state == State::Workspace);
        self.note::<LOG>(bytes, at, u32::MAX);
        Held { bytes, block, birth: self.executed - 1, op: index(at), state }
    }

    /// Counts an allocation.
    #[inline]
    fn note<const LOG: bool>(&mut self, bytes: u64, at: usize, freed: u32) {
        let op = index(at);
        let largest = &mut self.timeline.largest[self.phase];
        if bytes > largest.0 {
            *largest = (bytes, op);
        }
        self.executed += 1;
        if LOG {
            self.timeline.births.push(Birth { bytes, op, freed });
        }
    }

    #[inline]
    fn touch<const LOG: bool>(&mut self, bytes: u64, workspace: bool, at: usize) {
        self.store.touch(bytes, workspace);
        self.note::<LOG>(bytes, at, self.executed + 1);
    }

    #[inline]
    fn free<const LOG: bool>(&mut self, held: &Held<S::Block>) {
        if held.state == State::Counted {
            let (birth, counted) = &mut self.timeline.counted[held.birth as usize];
            birth.freed = self.executed;
            self.store.uncount(counted.occupied);
            return;
        }
        if LOG {
            self.timeline.births[held.birth as usize].freed = self.executed;
        }
        self.store.remove(held.block, held.bytes, held.state == State::Workspace);
    }
    /// Adds the store's peaks to the phase that ends.
    fn harvest(&mut self) {
        let peak = self.store.take_peaks();
        if let Some(known) = self.timeline.phases.get_mut(self.phase) {
            if peak.live > known.live {
                (known.live, known.at) = (peak.live, peak.at);
            }
            known.allocated = known.allocated.max(peak.allocated);
            known.tensors = known.tensors.max(peak.tensors);
            known.reserved = known.reserved.max(peak.reserved);
        }
    }
}

#[cfg(test)]
mod tests;
