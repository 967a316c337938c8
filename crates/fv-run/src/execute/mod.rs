//! Executes op programs, on a device or on the processor.
//!
//! On the processor each region of a program is one array of its planned bytes, buffers lie at their planned
//! places and nowhere else, and streams run on their own as far as events allow. `fv_program::check` refuses programs before
//! anything runs; what is found here is what happens all the same.
//!
//! * [`cuda`]: on a CUDA device.
//! * [`exchange`]: what comes from outside and what leaves, wherever a program is executed.
//! * [`memory`]: regions, poison in what nobody has written, canaries between buffers.
//! * [`queue`]: which operation is next.
//! * [`sampler`]: the numbers of a schedule's steps.
//! * [`weights`], [`inputs`], [`outputs`]: what comes from outside and what leaves.

pub mod cuda;
mod exchange;
pub mod inputs;
pub mod memory;
pub mod outputs;
pub mod queue;
pub mod sampler;
#[cfg(test)]
mod tests;
pub mod weights;

use std::time::{Duration, Instant};

use fv_device::reference::{self, Mismatch, Operand, Step, Written};
use fv_spec::program::{Op, Program, Segment, StageName};
use thiserror::Error;

use inputs::Inputs;
use memory::{Fault, Memory, Occupied};
use outputs::Outputs;
use queue::{Instance, Order, Queue};
use weights::Weights;

/// What a program exchanges with the world.
pub struct World<'a> {
    /// Checkpoints.
    pub weights: &'a dyn Weights,
    /// What is asked for.
    pub inputs: &'a dyn Inputs,
    /// Where results go.
    pub outputs: &'a mut dyn Outputs,
}

/// How a program is executed.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Which operation is next where streams leave a choice.
    pub order: Order,
    /// After every operation, gaps between buffers are looked at in the regions that it wrote to.
    pub check_gaps: bool,
}

/// How far an execution is, after an operation.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Operations that are done, repetitions counted.
    pub done: usize,
    /// All of them.
    pub total: usize,
    /// The stage of the last one.
    pub stage: StageName,
    /// Its step of the sampler.
    pub step: u32,
    /// The operation itself.
    pub op: &'a Op,
    /// What it wrote to each target, which is the program's own business and shown to tests.
    pub written: &'a [Written],
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct Measured {
    /// Operations that were done.
    pub operations: usize,
    /// The time of each stage's operations, one after another.
    pub stages: Vec<(StageName, Duration)>,
    /// What was occupied of each region.
    pub regions: Vec<Occupied>,
}

/// Why a program was not executed to its end.
#[derive(Debug, Error)]
pub enum Failure {
    /// A buffer has no place, or one outside its region.
    #[error("buffer {0} has no place in its region")]
    Place(String),
    /// A stage was left out that makes what is needed on the device.
    #[error("{0} is made by a stage that is left out, on the device, where nothing can stand in for it")]
    Missing(String),
    /// An operation went wrong.
    #[error("operation {op}: {why}")]
    Operation {
        /// Which one.
        op: String,
        /// What went wrong.
        why: Trouble,
    },
    /// Memory of a device could not be had, or the device went wrong.
    #[error(transparent)]
    Device(#[from] fv_device::cuda::Error),
    /// No stream can go on.
    #[error("every stream waits for an event that is yet to come: {0}")]
    Stuck(String),
}

/// What went wrong with an operation.
#[derive(Debug, Error)]
pub enum Trouble {
    /// With memory.
    #[error(transparent)]
    Memory(#[from] Fault),
    /// With its operands.
    #[error(transparent)]
    Operands(#[from] Mismatch),
    /// With the device.
    #[error(transparent)]
    Device(#[from] fv_device::cuda::Error),
    /// Something that it wrote is not a number: it read what nobody wrote, or it overflowed.
    #[error("wrote something that is not a number to {0}")]
    NotANumber(String),
    /// It refers to what the program does not have.
    #[error("no {0}")]
    Missing(String),
    /// A file could not be read or written, or has not what is asked for.
    #[error("{0}")]
    World(#[from] std::io::Error),
}

/// Executes a program that `fv_program::check::check_places` has nothing to say against. Progress is told after each operation.
///
/// # Panics
/// When a number in a program that was not checked refers to nothing.
pub fn execute(
    program: &Program,
    world: &mut World<'_>,
    options: Options,
    progress: &mut dyn FnMut(&Progress<'_>),
) -> Result<Measured, Failure> {
    let steps = sampler::steps(&program.schedule);
    let mut queue = Queue::new(program, options.order);
    let mut run = Run { program, world, memory: Memory::new(program)?, steps, check_gaps: options.check_gaps };
    let mut stages: Vec<(StageName, Duration)> = StageName::ALL.iter().map(|stage| (*stage, Duration::ZERO)).collect();
    let (mut done, total) = (0, queue.len());
    while let Some(instance) = queue.pick().map_err(Failure::Stuck)? {
        let start = Instant::now();
        let segment = &program.segments[instance.segment];
        let written = run.instance(&instance).map_err(|why| Failure::Operation { op: describe(program, &instance), why })?;
        done += 1;
        stages.iter_mut().filter(|(stage, _)| *stage == segment.stage).for_each(|(_, time)| *time += start.elapsed());
        let (step, op) = (segment.first_step + instance.repetition, &segment.ops[instance.at]);
        progress(&Progress { done, total, stage: segment.stage, step, op, written: &written });
    }
    Ok(Measured { operations: done, stages, regions: run.memory.occupied(program) })
}

/// An operation for people: its number, what it is and where it belongs.
fn describe(program: &Program, instance: &Instance) -> String {
    let segment = &program.segments[instance.segment];
    let op = &segment.ops[instance.at];
    let phase = program.phases.get(usize::from(op.phase)).map_or("", String::as_str);
    let block = op.block.map_or(String::new(), |block| format!(", block {block}"));
    let repetition = instance.repetition;
    format!("{} ({:?}, {phase}{block}, repetition {repetition} of {})", instance.op, op.kernel, segment.name)
}

struct Run<'a, 'w> {
    program: &'a Program,
    world: &'a mut World<'w>,
    memory: Memory,
    steps: Vec<Step>,
    check_gaps: bool,
}

impl Run<'_, '_> {
    fn instance(&mut self, instance: &Instance) -> Result<Vec<Written>, Trouble> {
        let segment = &self.program.segments[instance.segment];
        let op = &segment.ops[instance.at];
        self.memory.begin(op, instance)?;
        let written = self.perform(segment, op, instance.repetition)?;
        for (view, written) in op.writes.iter().zip(&written) {
            self.memory.write(view, &written.bytes)?;
            if written.has_nan {
                return Err(Trouble::NotANumber(self.program.buffers[view.buffer as usize].name.clone()));
            }
        }
        self.memory.end(op, instance);
        if self.check_gaps {
            self.memory.check_gaps(self.program, op)?;
        }
        Ok(written)
    }

    fn perform(&mut self, segment: &Segment, op: &Op, repetition: u32) -> Result<Vec<Written>, Trouble> {
        let Self { program, world, memory, .. } = self;
        match exchange::exchange(program, world, op, repetition, |view| Ok(memory.rows(view)?))? {
            Some(written) => Ok(written),
            None => self.compute(segment, op, repetition),
        }
    }

    fn compute(&self, segment: &Segment, op: &Op, repetition: u32) -> Result<Vec<Written>, Trouble> {
        let step = sampler::step(&self.steps, segment, op, repetition)?;
        let reads = op.reads.iter().map(|view| self.memory.operand(view)).collect::<Result<Vec<Operand<'_>>, _>>()?;
        let writes = op.writes.iter().map(|view| self.memory.operand(view)).collect::<Result<Vec<Operand<'_>>, _>>()?;
        Ok(reference::compute(&op.kernel, &step, &reads, &writes)?)
    }
}
