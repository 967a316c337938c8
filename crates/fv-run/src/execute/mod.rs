//! Executes op programs on the processor: each region of a program is one array of its planned bytes, buffers lie at their planned
//! places and nowhere else, and streams run on their own as far as events allow. `fv_program::check` refuses programs before
//! anything runs; what is found here is what happens all the same.
//!
//! * [`memory`]: regions, poison in what nobody has written, canaries between buffers.
//! * [`queue`]: which operation is next.
//! * [`sampler`]: the numbers of a schedule's steps.
//! * [`weights`], [`inputs`], [`outputs`]: what comes from outside and what leaves.

pub mod inputs;
pub mod memory;
pub mod outputs;
pub mod queue;
pub mod sampler;
#[cfg(test)]
mod tests;
pub mod weights;

use std::time::{Duration, Instant};

use fv_device::reference::{self, Mismatch, Operand, Step, Written, storage};
use fv_spec::program::{Group, Kernel, Op, Program, Segment, StageName, View};
use thiserror::Error;

use inputs::Inputs;
use memory::{Fault, Memory, Occupied};
use outputs::{Outputs, Values};
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
    /// An operation went wrong.
    #[error("operation {op}: {why}")]
    Operation {
        /// Which one.
        op: String,
        /// What went wrong.
        why: Trouble,
    },
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
        match op.kernel {
            Kernel::Read { group, first_byte } => self.read(op, group, first_byte),
            Kernel::Lookup { group, tensor } => self.lookup(op, group, tensor),
            Kernel::Input { what, index } => {
                let target = one(&op.writes, "target")?;
                let numbers = self.world.inputs.read(what, index + repetition, target.rows, target.columns)?;
                let mut bytes = Vec::new();
                storage::encode(target.element, &numbers, &mut bytes);
                Ok(vec![Written { bytes, has_nan: numbers.iter().any(|number| number.is_nan()) }])
            }
            Kernel::Output { what, index } => {
                let source = one(&op.reads, "source")?;
                let values =
                    Values { element: source.element, rows: source.rows, columns: source.columns, bytes: self.memory.rows(source)? };
                self.world.outputs.take(what, index, &values)?;
                Ok(Vec::new())
            }
            _ => self.compute(segment, op, repetition),
        }
    }

    fn compute(&self, segment: &Segment, op: &Op, repetition: u32) -> Result<Vec<Written>, Trouble> {
        let number = segment.first_step + repetition;
        let timed = matches!(op.kernel, Kernel::Sample | Kernel::TimestepFeatures);
        let step = match self.steps.get(number as usize) {
            Some(step) => *step,
            None if timed => return Err(Trouble::Missing(format!("step {number} in the schedule"))),
            None => sampler::NONE,
        };
        let reads = op.reads.iter().map(|view| self.memory.operand(view)).collect::<Result<Vec<Operand<'_>>, _>>()?;
        let writes = op.writes.iter().map(|view| self.memory.operand(view)).collect::<Result<Vec<Operand<'_>>, _>>()?;
        Ok(reference::compute(&op.kernel, &step, &reads, &writes)?)
    }

    fn group(&self, group: u32) -> Result<&Group, Trouble> {
        self.program.groups.get(group as usize).ok_or_else(|| Trouble::Missing(format!("group {group}")))
    }

    fn read(&self, op: &Op, group: u32, first_byte: u64) -> Result<Vec<Written>, Trouble> {
        let target = one(&op.writes, "target")?;
        let mut bytes = vec![0; memory::index(target.bytes())];
        self.world.weights.read(self.group(group)?, first_byte, &mut bytes)?;
        Ok(vec![Written { bytes, has_nan: false }])
    }

    /// Rows of a tensor by number, in the element of the target.
    fn lookup(&self, op: &Op, group: u32, tensor: u32) -> Result<Vec<Written>, Trouble> {
        let (ids, target) = (one(&op.reads, "ids")?, one(&op.writes, "target")?);
        let group = self.group(group)?;
        let table = group.tensors.get(tensor as usize).ok_or_else(|| Trouble::Missing(format!("tensor {tensor} in its group")))?;
        let (mut numbers, mut values) = (Vec::new(), Vec::<f64>::new());
        storage::decode::<f64>(ids.element, &self.memory.rows(ids)?, &mut numbers);
        let mut row = vec![0; memory::index(target.columns * table.element.bytes())];
        for number in numbers {
            let id = storage::as_whole(number).filter(|id| *id < table.shape[0]);
            let id = id.ok_or_else(|| Trouble::Missing(format!("row {number} in {}", table.name)))?;
            self.world.weights.read(group, table.offset_bytes + id * row.len() as u64, &mut row)?;
            storage::decode(table.element, &row, &mut values);
        }
        let mut bytes = Vec::new();
        storage::encode(target.element, &values, &mut bytes);
        Ok(vec![Written { bytes, has_nan: false }])
    }
}

/// The only operand.
fn one<'v>(views: &'v [View], what: &str) -> Result<&'v View, Trouble> {
    views.first().ok_or_else(|| Trouble::Missing(what.to_owned()))
}
