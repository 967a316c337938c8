//! What a transformer's step needs and costs under one way to compute, without writing the whole program: a program of one block
//! is sketched, in which one chunk of rows and one head group stand for all others of their size. It is made by the same code as
//! programs, so that it cannot say anything else.

use fv_spec::authored::Role;
use fv_spec::program::{BufferKind, Formats, Op, Program, Stream, Tier, View};

use super::choice::{Compute, Residency, TextKeys};
use super::dit::{self, Expert, Sampling};
use super::geometry::{Dit, Model, Request};
use super::staged::Parcel;
use crate::build::Builder;

/// An operation and how often it comes; views differ in where they begin.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// One of them.
    pub op: Op,
    /// How many.
    pub times: u64,
}

/// A transformer's step.
#[derive(Debug, Clone, PartialEq)]
pub struct Summary {
    /// Bytes of a block's weights.
    pub block_bytes: u64,
    /// The largest sum of device memory beside blocks that is alive together, in steps and before the first one: weights outside
    /// blocks, activations, keys and values of the text.
    pub device_bytes: u64,
    /// The same of page-locked host memory beside blocks, loading apart.
    pub host_bytes: u64,
    /// How often a step goes through the blocks.
    pub sweeps: u64,
    /// Operations of one block in one sweep, copies of activations included.
    pub block: Vec<Counted>,
    /// Operations of a step outside blocks.
    pub rest: Vec<Counted>,
    program: Program,
}

impl Summary {
    /// The step of an expert of a model: 0, or 1 for the second one.
    ///
    /// # Panics
    /// When [`super::legal::check`] refuses the request or the way to compute.
    pub fn new(model: &Model, request: &Request, formats: Formats, compute: Compute, expert: usize) -> Self {
        let one = Dit { blocks: 1, ..model.transformer };
        let guidance = Some(request.guidance[expert]).filter(|&scale| Request::guides(scale));
        let mut builder = Builder::new(&model.id, formats, request.schedule.clone());
        let region = builder.region("request", Tier::Pinned);
        let text = builder.matrix(region, "text", BufferKind::Output, formats.compute, request.text_rows, one.text);
        let texts = vec![Parcel { view: text, written: Vec::new() }; 2];
        let mut sampling = Sampling { sampler: request.schedule.sampler, steps: 2, request: region, handed: Vec::new() };
        let expert = Expert {
            role: Role::Transformer,
            model: &one,
            residency: &Residency::resident(1),
            compute,
            latent: model.latent(request),
            steps: (0, 1), // not the last one of the request, so that noise counts
            guidance,
            texts: &texts,
            sketch: true,
        };
        dit::lower(&mut builder, &expert, &mut sampling);
        let (program, times) = builder.finish_counted();
        let sweeps = if guidance.is_some() && !compute.paired_guidance { 2 } else { 1 };
        let kept = if compute.text_keys == TextKeys::Kept { model.transformer.blocks - 1 } else { 0 };
        Self::of(program, &times, sweeps, kept)
    }

    fn of(program: Program, times: &[u64], sweeps: u64, more_blocks: u64) -> Self {
        let last = program.segments.last().map_or(0, |segment| segment.ops.len());
        let first = times.len() - last;
        let step = program.ops().skip(first).zip(&times[first..]).map(|((_, op), &times)| Counted { op: op.clone(), times });
        let (block, rest): (Vec<_>, Vec<_>) = step.partition(|counted| counted.op.block.is_some());
        let block = block[..block.len() / usize::try_from(sweeps).unwrap_or(1)].to_vec();
        let loading = program.segments.first().map_or(0, |segment| segment.ops.len());
        let weights = program.buffers.iter().find(|buffer| buffer.name == "blocks.0").map_or(0, |buffer| buffer.bytes);
        let kept: u64 = program.buffers.iter().filter(|buffer| is_kept(&buffer.name, buffer.kind)).map(|buffer| buffer.bytes).sum();
        let device_bytes = largest_live_sum(&program, Tier::Device, loading) - weights + kept * more_blocks;
        let host_bytes = largest_live_sum(&program, Tier::Pinned, loading);
        Self { block_bytes: weights, device_bytes, host_bytes, sweeps, block, rest, program }
    }

    /// Bytes of activations that one block moves between host and device in a sweep, by direction: in and out.
    pub fn staged_bytes(&self) -> [u64; 2] {
        [Stream::CopyIn, Stream::CopyOut].map(|stream| {
            let copies = self.block.iter().filter(|counted| counted.op.stream == stream);
            copies.map(|counted| counted.times * counted.op.reads.first().map_or(0, View::bytes)).sum()
        })
    }

    /// The sketch, whose buffers and regions the operations refer to.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

fn is_kept(name: &str, kind: BufferKind) -> bool {
    kind == BufferKind::Cache && matches!(name, "text_key" | "text_value")
}

/// The largest sum of buffers of the transformer on a tier that are alive together, from an operation on.
fn largest_live_sum(program: &Program, tier: Tier, first: usize) -> u64 {
    let ops = program.ops().count();
    let mut changes = vec![(0, 0); ops + 1];
    let own = |region: u32| {
        let region = &program.regions[region as usize];
        region.tier == tier && region.name != "request"
    };
    for buffer in program.buffers.iter().filter(|buffer| own(buffer.region)) {
        changes[buffer.first as usize].0 += buffer.bytes;
        changes[buffer.last as usize + 1].1 += buffer.bytes;
    }
    let live = changes.iter().scan(0, |live, (begin, end)| {
        *live = *live + begin - end;
        Some(*live)
    });
    live.skip(first).max().unwrap_or(0)
}
