//! Executes op programs on a CUDA device. Operations are issued in the order of the program, each to the queue of its stream, and
//! wait for the events that the program says; what the host does is done as it is issued, while queues go on with what they have.
//!
//! Device memory is one arena of the planned bytes. Regions whose lives do not overlap share it, one after another.

mod memory;
mod report;

use std::collections::BTreeSet;
use std::time::Instant;

use fv_device::cuda::device::{Device, Event, Queue};
use fv_device::reference::{self, Step, Written, storage};
use fv_spec::program::{EventId, Kernel, Op, Program, Segment, StageName, Stream, View};

use super::inputs::normal;
use super::memory::index;
use super::queue::Instance;
use super::{Failure, Progress, Trouble, World, describe, exchange, sampler};
use memory::Memory;
pub use report::{Report, Spent, Timed};

/// How a program is executed.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The stages that are executed, all where none is named. What loads weights belongs to the stage that follows it. What a stage
    /// would be given by one that is left out is made up: normally distributed numbers.
    pub stages: BTreeSet<StageName>,
    /// Where made-up numbers begin.
    pub seed: u64,
    /// The time of each operation of the compute stream is measured, which takes an event for each.
    pub profile: bool,
}

/// Executes a program that `fv_program::check::check_places` has nothing to say against.
///
/// # Errors
/// When memory cannot be had, an operation cannot be done, or something that leaves is not a number.
///
/// # Panics
/// When a number in a program that was not checked refers to nothing.
pub fn execute(
    program: &Program,
    device: &Device,
    world: &mut World<'_>,
    options: &Options,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Report, Failure> {
    let start = Instant::now();
    let selected = selected(program, &options.stages);
    let before = used(device)?;
    device.prepare()?;
    let memory = Memory::reserve(program, device, &selected)?;
    let mut report = Report { device_bytes: memory.device.bytes(), host_bytes: memory.host_bytes(), ..Report::default() };
    report.notes.clone_from(&memory.notes);
    let steps = sampler::steps(&program.schedule);
    let events = (0..program.events).map(|_| Recorded::Never).collect();
    let mut run = Run { program, device, world, memory, steps, events, marks: Vec::new(), profile: options.profile };
    report.made_up = run.make_up(&selected, options.seed)?;
    let reserved = used(device)?;
    let total = selected.iter().map(|at| &program.segments[*at]).map(|segment| segment.ops.len() * segment.repeat as usize).sum();
    run.mark(Mark::Start)?;
    for &at in &selected {
        run.enter(at)?;
        let segment = &program.segments[at];
        let last = segment.ops.iter().rposition(|op| op.stream == Stream::Compute).unwrap_or(segment.ops.len() - 1);
        for repetition in 0..segment.repeat {
            for (place, op) in segment.ops.iter().enumerate() {
                run.issue(segment, op, repetition).map_err(|why| failed(program, (at, place, repetition), why))?;
                if place == last {
                    run.mark(Mark::Repetition { segment: at, repetition, used_bytes: used(device)? })?;
                }
                count_copies(op, &mut report);
                report.operations += 1;
                let step = segment.first_step + repetition;
                progress(&Progress { done: report.operations, total, stage: segment.stage, step, op, written: &[] });
            }
        }
    }
    device.synchronize()?;
    run.times(&mut report)?;
    report.used_bytes = [before, reserved, used(device)?];
    report.wall = start.elapsed();
    Ok(report)
}

fn count_copies(op: &Op, report: &mut Report) {
    let bytes: u64 = op.writes.iter().map(View::bytes).sum();
    match op.stream {
        Stream::CopyIn => report.copied_bytes[0] += bytes,
        Stream::CopyOut => report.copied_bytes[1] += bytes,
        Stream::Compute | Stream::Disk => {}
    }
}

fn failed(program: &Program, (segment, at, repetition): (usize, usize, u32), why: Trouble) -> Failure {
    let before: usize = program.segments[..segment].iter().map(|segment| segment.ops.len()).sum();
    let op = u32::try_from(before + at).unwrap_or(u32::MAX);
    Failure::Operation { op: describe(program, &Instance::of(op, segment, at, repetition)), why }
}

fn used(device: &Device) -> Result<u64, Failure> {
    let (free, total) = device.memory()?;
    Ok(total.saturating_sub(free))
}

/// The segments of some stages, those that load weights with the ones that follow them.
fn selected(program: &Program, stages: &BTreeSet<StageName>) -> Vec<usize> {
    let stage_of = |at: usize| {
        let rest = &program.segments[at..];
        rest.iter().map(|segment| segment.stage).find(|stage| *stage != StageName::Load).unwrap_or(StageName::Load)
    };
    (0..program.segments.len()).filter(|at| stages.is_empty() || stages.contains(&stage_of(*at))).collect()
}

/// Who recorded an event last.
enum Recorded {
    Never,
    /// The host: it has happened.
    Host,
    Device(Event, Queue),
}

/// A point on the compute stream whose time is asked for.
enum Mark {
    Start,
    /// Before a wait for a copy.
    Waiting,
    /// After it.
    Waited,
    /// After an operation of this phase.
    Operation(u16, String),
    /// After the last operation of a repetition of a segment, with the device memory in use then.
    Repetition {
        segment: usize,
        repetition: u32,
        used_bytes: u64,
    },
}

struct Run<'a, 'w> {
    program: &'a Program,
    device: &'a Device,
    world: &'a mut World<'w>,
    memory: Memory,
    steps: Vec<Step>,
    events: Vec<Recorded>,
    marks: Vec<(Mark, Event)>,
    profile: bool,
}

impl Run<'_, '_> {
    /// Before a segment that begins to use memory which another region had before, everything ends.
    fn enter(&mut self, segment: usize) -> Result<(), Failure> {
        if self.memory.changes.contains(&segment) {
            self.device.synchronize()?;
        }
        Ok(())
    }

    fn mark(&mut self, mark: Mark) -> Result<(), fv_device::cuda::Error> {
        let event = self.device.event(true)?;
        self.device.record(&event, Queue::Compute)?;
        self.marks.push((mark, event));
        Ok(())
    }

    fn issue(&mut self, segment: &Segment, op: &Op, repetition: u32) -> Result<(), Trouble> {
        let queue = Queue::of(op.stream);
        let copies = |event: &EventId| matches!(self.events[*event as usize], Recorded::Device(_, Queue::CopyIn | Queue::CopyOut));
        let timed = queue == Some(Queue::Compute) && op.waits.iter().any(copies);
        if timed {
            self.mark(Mark::Waiting)?;
        }
        for event in &op.waits {
            match (&self.events[*event as usize], queue) {
                (Recorded::Device(event, _), Some(queue)) => self.device.wait(queue, event)?,
                (Recorded::Device(event, _), None) => event.wait()?,
                (Recorded::Never | Recorded::Host, _) => {}
            }
        }
        if timed {
            self.mark(Mark::Waited)?;
        }
        let step = sampler::step(&self.steps, segment, op, repetition)?;
        match queue {
            Some(queue) => self.launch(queue, op, &step)?,
            None => self.host(op, &step, repetition)?,
        }
        if let Some(event) = op.records {
            self.record(event, queue)?;
        }
        if self.profile && op.stream == Stream::Compute {
            self.mark(Mark::Operation(op.phase, name(&op.kernel)))?;
        }
        Ok(())
    }

    fn record(&mut self, event: EventId, queue: Option<Queue>) -> Result<(), Trouble> {
        let place = &mut self.events[event as usize];
        let Some(queue) = queue else {
            *place = Recorded::Host;
            return Ok(());
        };
        let event = match std::mem::replace(place, Recorded::Never) {
            Recorded::Device(event, _) => event,
            Recorded::Never | Recorded::Host => self.device.event(false)?,
        };
        self.device.record(&event, queue)?;
        *place = Recorded::Device(event, queue);
        Ok(())
    }

    fn launch(&self, queue: Queue, op: &Op, step: &Step) -> Result<(), Trouble> {
        let operands = |views: &[View]| views.iter().map(|view| self.memory.operand(self.program, view)).collect::<Result<Vec<_>, _>>();
        Ok(self.device.launch(queue, &op.kernel, step, &operands(&op.reads)?, &operands(&op.writes)?)?)
    }

    /// What the host does: it exchanges something with the world, or moves and clears host memory.
    fn host(&mut self, op: &Op, step: &Step, repetition: u32) -> Result<(), Trouble> {
        let (program, memory) = (self.program, &self.memory);
        let written = match exchange::exchange(program, self.world, op, repetition, |view| memory.rows(program, view))? {
            Some(written) => written,
            None => self.compute(op, step)?,
        };
        for (view, written) in op.writes.iter().zip(&written) {
            self.memory.write(program, view, &written.bytes)?;
        }
        // What leaves is looked at by the host alone.
        if let (Kernel::Output { .. }, Some(view)) = (&op.kernel, op.reads.first()) {
            let mut numbers = Vec::<f32>::new();
            storage::decode(view.element, &self.memory.rows(program, view)?, &mut numbers);
            if numbers.iter().any(|number| number.is_nan()) {
                return Err(Trouble::NotANumber(format!("{}, which leaves", program.buffers[view.buffer as usize].name)));
            }
        }
        Ok(())
    }

    fn compute(&self, op: &Op, step: &Step) -> Result<Vec<Written>, Trouble> {
        let rows = |views: &[View]| views.iter().map(|view| self.memory.rows(self.program, view)).collect::<Result<Vec<_>, _>>();
        let (reads, writes) = (rows(&op.reads)?, rows(&op.writes)?);
        let [reads, writes] = [(&op.reads, &reads), (&op.writes, &writes)]
            .map(|(views, rows)| views.iter().zip(rows).map(|(view, rows)| together(view, rows)).collect::<Vec<_>>());
        Ok(reference::compute(&op.kernel, step, &reads, &writes)?)
    }

    /// Makes up what is read by the selected segments before any of them writes it. Gives the names of the buffers.
    fn make_up(&mut self, selected: &[usize], seed: u64) -> Result<Vec<String>, Failure> {
        let mut written = BTreeSet::new();
        let mut unwritten: Vec<View> = Vec::new();
        for op in selected.iter().flat_map(|at| &self.program.segments[*at].ops) {
            unwritten.extend(op.reads.iter().filter(|view| written.insert(view.buffer)));
            written.extend(op.writes.iter().map(|view| view.buffer));
        }
        let mut names = Vec::new();
        // Only host memory can be written from here.
        for view in unwritten {
            let buffer = &self.program.buffers[view.buffer as usize];
            // The same for the same input whatever else a plan has: by its name, and the how many-th of this name it is.
            let number = names.iter().filter(|name| **name == buffer.name).count();
            let numbers = normal(&format!("{}.{number}", buffer.name), seed, index(view.len()));
            let mut bytes = Vec::new();
            storage::encode(view.element, &numbers, &mut bytes);
            self.memory.write(self.program, &view, &bytes).map_err(|_| Failure::Missing(buffer.name.clone()))?;
            names.push(buffer.name.clone());
        }
        Ok(names)
    }

    /// The times between marks, which have all happened.
    fn times(&self, report: &mut Report) -> Result<(), Failure> {
        let (mut begin, mut last) = (None, None);
        let mut stalled = 0.0;
        for (mark, event) in &self.marks {
            let since = |earlier: Option<&Event>| earlier.map_or(Ok(0.0), |earlier| earlier.milliseconds_to(event));
            match mark {
                Mark::Start => begin = Some(event),
                Mark::Waiting => {}
                Mark::Waited => stalled += since(last)?,
                Mark::Operation(phase, kernel) => {
                    let phase = self.program.phases.get(usize::from(*phase)).cloned().unwrap_or_default();
                    let spent = report.profile.entry((phase, kernel.clone())).or_default();
                    spent.operations += 1;
                    spent.milliseconds += since(last)?;
                }
                Mark::Repetition { segment, repetition, used_bytes } => {
                    let of = &self.program.segments[*segment];
                    report.segments.push(Timed {
                        stage: of.stage,
                        segment: of.name.clone(),
                        repetition: *repetition,
                        milliseconds: since(begin)?,
                        stall_milliseconds: std::mem::take(&mut stalled),
                        used_bytes: *used_bytes,
                    });
                    begin = Some(event);
                }
            }
            last = Some(event);
        }
        Ok(())
    }
}

/// Rows without gaps as an operand.
fn together<'a>(view: &View, rows: &'a [u8]) -> reference::Operand<'a> {
    let columns = index(view.columns);
    reference::Operand { bytes: rows, element: view.element, rows: index(view.rows), columns, pitch: columns }
}

/// A kernel's name without what it is told.
fn name(kernel: &Kernel) -> String {
    let text = format!("{kernel:?}");
    text.split([' ', '{']).next().unwrap_or_default().to_owned()
}
