//! Programs that no model has, for tests and benchmarks.

use fv_spec::program::{
    BufferId, BufferKind, Element, EventId, Formats, Group, Kernel, OpIndex, Order, Program, Role, Sampler, Schedule, StageName, Stream,
    Tensor, Tier, View,
    kernel::{Function, Input, Output},
};

use crate::build::Builder;
use crate::rates::{MatrixRates, Rates};

/// Formats of made-up programs.
pub const FORMATS: Formats = Formats { compute: Element::Bf16, exact: Element::F32, block_weights: Element::Bf16 };

/// A thousand operations or bytes take a microsecond, and nothing costs anything to start.
pub const EVEN: Rates = Rates {
    matrix: MatrixRates { f64: 1_000_000_000, f32: 1_000_000_000, bf16: 1_000_000_000, fp8: 1_000_000_000, int8: 1_000_000_000 },
    attention: 1_000_000_000,
    memory: 1_000_000_000,
    pinned_to_device: 1_000_000_000,
    pageable_to_device: 1_000_000_000,
    device_to_pinned: 1_000_000_000,
    device_to_pageable: 1_000_000_000,
    disk: 1_000_000_000,
    host_memory: 1_000_000_000,
    launch_ns: 0,
    copy_ns: 0,
};

fn schedule(steps: u32) -> Schedule {
    Schedule { sampler: Sampler::UniPc, steps, shift: 3.0, timesteps: Vec::new() }
}

/// Operations that do nothing but use buffers of bytes.
#[derive(Debug)]
pub struct Sketch {
    builder: Builder,
    region: u32,
}

impl Default for Sketch {
    fn default() -> Self {
        Self::new()
    }
}

impl Sketch {
    /// An empty one, with one region on the device.
    pub fn new() -> Self {
        let mut builder = Builder::new("synthetic", FORMATS, schedule(1));
        let region = builder.region("all", Tier::Device);
        builder.phase("all");
        Self { builder, region }
    }

    /// A segment.
    pub fn segment(&mut self, repeat: u32) {
        self.builder.segment(StageName::Denoising, "all", repeat, 0);
    }

    /// An event.
    pub fn event(&mut self) -> EventId {
        self.builder.event()
    }

    /// An operation without operands.
    pub fn op(&mut self, stream: Stream, waits: &[EventId], records: Option<EventId>) -> OpIndex {
        self.uses(stream, waits, records, &[], &[])
    }

    /// An operation that reads and writes whole buffers.
    pub fn uses(&mut self, stream: Stream, waits: &[EventId], records: Option<EventId>, reads: &[View], writes: &[View]) -> OpIndex {
        for event in waits {
            self.builder.wait(*event);
        }
        let op = self.builder.op(stream, Kernel::Copy, reads.to_vec(), writes.to_vec());
        if let Some(event) = records {
            self.builder.record(event);
        }
        op
    }

    /// A buffer from the next operation on.
    pub fn buffer(&mut self, bytes: u64) -> View {
        let buffer = self.builder.buffer(self.region, "buffer", BufferKind::Activation, bytes);
        View::matrix(buffer, Element::U8, 1, bytes)
    }

    /// The last operation was its last.
    pub fn free(&mut self, view: View) {
        self.builder.free(view.buffer);
    }

    /// The program.
    pub fn finish(self) -> Program {
        self.builder.finish()
    }
}

/// Extents of a made-up transformer that is streamed.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the words are the definition")]
pub struct Transformer {
    pub blocks: u64,
    pub tokens: u64,
    pub hidden: u64,
    pub heads: u64,
    pub ffn: u64,
    /// Heads that are computed together.
    pub head_group: u64,
    /// Rows of the feed-forward layer at a time.
    pub chunk: u64,
    pub steps: u32,
    /// Places on the device for blocks.
    pub slots: u64,
    /// Blocks that live on the device.
    pub resident: u64,
}

impl Transformer {
    /// Forty blocks of five billion parameters in all, 21 x 45 x 80 tokens.
    pub const LARGE: Self = Self {
        blocks: 40,
        tokens: 75_600,
        hidden: 5120,
        heads: 40,
        ffn: 13_824,
        head_group: 4,
        chunk: 4096,
        steps: 50,
        slots: 2,
        resident: 10,
    };

    /// A few blocks of a few numbers.
    pub const TINY: Self =
        Self { blocks: 4, tokens: 96, hidden: 64, heads: 4, ffn: 128, head_group: 2, chunk: 40, steps: 4, slots: 2, resident: 1 };

    /// The program: weights are loaded, the latent comes in, steps are taken, the result goes out.
    pub fn program(self) -> Program {
        let mut writer = Writer::new(self);
        writer.load();
        writer.start();
        if self.steps > 1 {
            writer.step("step", self.steps - 1, 0, true);
        }
        writer.step("last_step", 1, self.steps - 1, false);
        writer.end();
        writer.builder.finish()
    }
}

const MATRICES: usize = 6;

struct Writer {
    size: Transformer,
    builder: Builder,
    device: u32,
    pinned: u32,
    host: u32,
    groups: Vec<u32>,
    /// Bytes of a block.
    bytes: u64,
    /// Where each block waits in host memory, or lives on the device.
    homes: Vec<BufferId>,
    slots: Vec<Slot>,
    residual: View,
    latent: View,
}

struct Slot {
    buffer: BufferId,
    ready: EventId,
    free: EventId,
}

const EVERY: View = View { buffer: 0, offset_bytes: 0, element: Element::U8, rows: 0, columns: 0, pitch: 0 };

impl Writer {
    fn new(size: Transformer) -> Self {
        let mut builder = Builder::new("synthetic", FORMATS, schedule(size.steps));
        let device = builder.region("transformer", Tier::Device);
        let pinned = builder.region("transformer", Tier::Pinned);
        let host = builder.region("request", Tier::Pageable);
        let (tensors, bytes) = tensors(size);
        let group = |block| Group { component: Role::Transformer, block: u32::try_from(block).ok(), bytes, tensors: tensors.clone() };
        let groups = (0..size.blocks).map(|block| builder.group(group(block))).collect();
        Self { size, builder, device, pinned, host, groups, bytes, homes: Vec::new(), slots: Vec::new(), residual: EVERY, latent: EVERY }
    }

    fn load(&mut self) {
        self.builder.segment(StageName::Load, "load", 1, 0);
        self.builder.phase("load");
        for block in 0..self.size.blocks {
            let group = self.groups[usize::try_from(block).unwrap_or(0)];
            let home = self.builder.buffer(self.pinned, &format!("blocks.{block}"), BufferKind::Weights, self.bytes);
            let read = self.builder.event();
            let kernel = Kernel::Read { group, first_byte: 0 };
            self.builder.op(Stream::Disk, kernel, vec![], vec![View::matrix(home, Element::U8, 1, self.bytes)]);
            self.builder.record(read);
            if block < self.size.resident {
                let place = self.builder.buffer(self.device, &format!("blocks.{block}"), BufferKind::Weights, self.bytes);
                self.builder.wait(read);
                self.copy(home, place);
                self.homes.push(place);
                self.builder.free(home);
            } else {
                self.homes.push(home);
            }
        }
    }

    fn copy(&mut self, from: BufferId, to: BufferId) {
        let whole = |buffer| View::matrix(buffer, Element::U8, 1, self.bytes);
        self.builder.op(Stream::CopyIn, Kernel::Copy, vec![whole(from)], vec![whole(to)]);
    }

    /// The latent comes in; slots are filled.
    fn start(&mut self) {
        let Transformer { tokens, hidden, .. } = self.size;
        self.builder.segment(StageName::Denoising, "start", 1, 0);
        self.builder.phase("input");
        let [noise, latent, residual] = [(self.host, "noise"), (self.device, "latent"), (self.device, "residual")].map(|(region, name)| {
            let buffer = self.builder.buffer(region, name, BufferKind::Activation, tokens * hidden * 4);
            View::matrix(buffer, Element::F32, tokens, hidden)
        });
        (self.latent, self.residual) = (latent, residual);
        self.builder.op(Stream::Disk, Kernel::Input { what: Input::Noise, index: 0 }, vec![], vec![noise]);
        let (made, here, loaded) = (self.builder.event(), self.builder.event(), self.builder.event());
        self.builder.record(made);
        self.builder.wait(made);
        self.builder.op(Stream::CopyIn, Kernel::Copy, vec![noise], vec![latent]);
        self.builder.record(here);
        self.builder.free(noise.buffer);
        self.builder.wait(here);
        self.builder.op(Stream::Compute, Kernel::Copy, vec![latent], vec![residual]);
        self.builder.record(loaded);
        for slot in 0..self.size.slots.min(self.size.blocks - self.size.resident) {
            let buffer = self.builder.buffer(self.device, &format!("slot.{slot}"), BufferKind::Weights, self.bytes);
            let (ready, free) = (self.builder.event(), self.builder.event());
            self.slots.push(Slot { buffer, ready, free });
            self.prefetch(self.size.resident + slot);
        }
    }

    fn slot_of(&self, block: u64) -> usize {
        usize::try_from((block - self.size.resident) % self.size.slots).unwrap_or(0)
    }

    fn prefetch(&mut self, block: u64) {
        if block >= self.size.blocks {
            return;
        }
        let Slot { buffer, ready, free } = self.slots[self.slot_of(block)];
        self.builder.wait(free);
        self.copy(self.homes[usize::try_from(block).unwrap_or(0)], buffer);
        self.builder.record(ready);
    }

    fn step(&mut self, name: &str, repeat: u32, first: u32, more: bool) {
        self.builder.segment(StageName::Denoising, name, repeat, first);
        for block in 0..self.size.blocks {
            self.builder.block(Some(block));
            if block < self.size.resident {
                self.block(self.homes[usize::try_from(block).unwrap_or(0)]);
                continue;
            }
            let Slot { buffer, ready, free } = self.slots[self.slot_of(block)];
            self.builder.wait(ready);
            self.block(buffer);
            self.builder.record(free);
            let next = block + self.size.slots;
            self.builder.phase("prefetch");
            if next < self.size.blocks {
                self.prefetch(next);
            } else if more {
                self.prefetch_next_step(block);
            }
        }
        self.builder.block(None);
        self.builder.phase("sample");
        self.builder.op(Stream::Compute, Kernel::Add, vec![self.latent, self.residual], vec![self.latent]);
        self.builder.op(Stream::Compute, Kernel::Copy, vec![self.latent], vec![self.residual]);
    }

    /// The block of the next step that goes where this one lies.
    fn prefetch_next_step(&mut self, block: u64) {
        let place = self.slot_of(block);
        let next = (self.size.resident..self.size.blocks).find(|next| self.slot_of(*next) == place);
        if let Some(next) = next {
            self.prefetch(next);
        }
    }

    fn activation(&mut self, name: &str, rows: u64, columns: u64) -> View {
        let buffer = self.builder.buffer(self.device, name, BufferKind::Activation, rows * columns * 2);
        View::matrix(buffer, Element::Bf16, rows, columns)
    }

    fn product(&mut self, x: View, w: View, y: View, function: Function) {
        self.builder.op(Stream::Compute, Kernel::Product { bias: false, function }, vec![x, w], vec![y]);
    }

    fn block(&mut self, weights: BufferId) {
        let views = weight_views(self.size, weights);
        self.attention(&views);
        self.feed_forward(&views);
    }

    fn attention(&mut self, weights: &[View; MATRICES]) {
        let Transformer { tokens, hidden, heads, head_group, .. } = self.size;
        let head_dim = hidden / heads;
        self.builder.phase("attention");
        let x = self.activation("normed", tokens, hidden);
        self.norm(self.residual, x);
        let [q, k, v] = ["query", "key", "value"].map(|name| self.activation(name, tokens, hidden));
        for (y, w) in [q, k, v].into_iter().zip(weights) {
            self.product(x, *w, y, Function::Identity);
        }
        self.builder.free(x.buffer);
        let out = self.activation("attended", tokens, hidden);
        for first in (0..heads).step_by(usize::try_from(head_group).unwrap_or(1)) {
            let part = |view: View| view.column_range(first * head_dim, head_group * head_dim);
            let group = self.activation("group", tokens, head_group * head_dim);
            let kernel = Kernel::Attention { head_dim, scale: 0.125, bias: false };
            self.builder.op(Stream::Compute, kernel, vec![part(q), part(k), part(v)], vec![group]);
            self.builder.op(Stream::Compute, Kernel::Copy, vec![group], vec![part(out)]);
            self.builder.free(group.buffer);
        }
        for view in [q, k, v] {
            self.builder.free(view.buffer);
        }
        let projected = self.activation("projected", tokens, hidden);
        self.product(out, weights[3], projected, Function::Identity);
        self.builder.free(out.buffer);
        self.builder.op(Stream::Compute, Kernel::Add, vec![self.residual, projected], vec![self.residual]);
        self.builder.free(projected.buffer);
    }

    fn norm(&mut self, from: View, to: View) {
        let kernel = Kernel::LayerNorm { epsilon: 1e-6, affine: false, modulated: false };
        self.builder.op(Stream::Compute, kernel, vec![from], vec![to]);
    }

    fn feed_forward(&mut self, weights: &[View; MATRICES]) {
        let Transformer { tokens, hidden, ffn, chunk, .. } = self.size;
        self.builder.phase("feed_forward");
        for first in (0..tokens).step_by(usize::try_from(chunk).unwrap_or(1)) {
            let rows = chunk.min(tokens - first);
            let part = self.residual.row_range(first, rows);
            let x = self.activation("rows", rows, hidden);
            self.norm(part, x);
            let inner = self.activation("inner", rows, ffn);
            self.product(x, weights[4], inner, Function::GeluTanh);
            self.product(inner, weights[5], x, Function::Identity);
            self.builder.free(inner.buffer);
            self.builder.op(Stream::Compute, Kernel::Add, vec![part, x], vec![part]);
            self.builder.free(x.buffer);
        }
    }

    fn end(&mut self) {
        self.builder.segment(StageName::Denoising, "end", 1, self.size.steps);
        self.builder.phase("output");
        let latent = self.latent;
        let result = View { buffer: self.builder.buffer(self.host, "latent", BufferKind::Output, latent.bytes()), ..latent };
        let (done, out) = (self.builder.event(), self.builder.event());
        self.builder.op(Stream::Compute, Kernel::Apply { function: Function::Identity }, vec![latent], vec![latent]);
        self.builder.record(done);
        self.builder.wait(done);
        self.builder.op(Stream::CopyOut, Kernel::Copy, vec![latent], vec![result]);
        self.builder.record(out);
        self.builder.wait(out);
        self.builder.op(Stream::Disk, Kernel::Output { what: Output::Latent, index: 0 }, vec![result], vec![]);
    }
}

fn shapes(size: Transformer) -> [[u64; 2]; MATRICES] {
    let Transformer { hidden, ffn, .. } = size;
    [[hidden, hidden], [hidden, hidden], [hidden, hidden], [hidden, hidden], [ffn, hidden], [hidden, ffn]]
}

fn tensors(size: Transformer) -> (Vec<Tensor>, u64) {
    let mut offset_bytes = 0;
    let tensors = (0..).zip(shapes(size)).map(|(at, shape)| {
        let tensor = Tensor {
            name: format!("matrices.{at}.weight"),
            shape: shape.to_vec(),
            element: Element::Bf16,
            offset_bytes,
            order: Order::Checkpoint,
        };
        offset_bytes += (shape[0] * shape[1] * 2).next_multiple_of(fv_spec::program::ALIGNMENT);
        tensor
    });
    (tensors.collect(), offset_bytes)
}

fn weight_views(size: Transformer, buffer: BufferId) -> [View; MATRICES] {
    let mut offset = 0;
    shapes(size).map(|[rows, columns]| {
        let view = View { offset_bytes: offset, ..View::matrix(buffer, Element::Bf16, rows, columns) };
        offset += view.bytes().next_multiple_of(fv_spec::program::ALIGNMENT);
        view
    })
}
