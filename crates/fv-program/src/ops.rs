//! Kernels of the compute stream with their operands in order.

use fv_spec::program::kernel::Function;
use fv_spec::program::{BufferKind, Element, Kernel, Stream, View};

use crate::build::Builder;

/// Shift and scale of a norm, each `[1 x d]`.
pub type Modulation = (View, View);

impl Builder {
    /// A buffer for a matrix from the next operation on, free with `free(view.buffer)`.
    pub fn matrix(&mut self, region: u32, name: &str, kind: BufferKind, element: Element, rows: u64, columns: u64) -> View {
        let buffer = self.buffer(region, name, kind, rows * columns * element.bytes());
        View::matrix(buffer, element, rows, columns)
    }

    /// Activations, as wide as computations are.
    pub fn activation(&mut self, region: u32, name: &str, rows: u64, columns: u64) -> View {
        let element = self.formats().compute;
        self.matrix(region, name, BufferKind::Activation, element, rows, columns)
    }

    /// Small numbers that are kept exact.
    pub fn exact(&mut self, region: u32, name: &str, rows: u64, columns: u64) -> View {
        let element = self.formats().exact;
        self.matrix(region, name, BufferKind::Activation, element, rows, columns)
    }

    /// An operation of the compute stream.
    pub fn compute(&mut self, kernel: Kernel, reads: Vec<View>, target: View) {
        self.op(Stream::Compute, kernel, reads, vec![target]);
    }

    /// `f(x w^T + b)`.
    pub fn product(&mut self, x: View, weight: View, bias: Option<View>, function: Function, target: View) {
        let kernel = Kernel::Product { bias: bias.is_some(), function };
        self.compute(kernel, [x, weight].into_iter().chain(bias).collect(), target);
    }

    /// Layer norm with its affine part or its modulation.
    pub fn layer_norm(&mut self, x: View, epsilon: f64, affine: Option<(View, View)>, modulation: Option<Modulation>, target: View) {
        let kernel = Kernel::LayerNorm { epsilon, affine: affine.is_some(), modulated: modulation.is_some() };
        let operands = affine.into_iter().chain(modulation).flat_map(|(first, second)| [first, second]);
        self.compute(kernel, std::iter::once(x).chain(operands).collect(), target);
    }

    /// RMS norm over each row.
    pub fn rms_norm(&mut self, x: View, epsilon: f64, weight: View, target: View) {
        self.compute(Kernel::RmsNorm { epsilon }, vec![x, weight], target);
    }

    /// `a + b` in place of a.
    pub fn add(&mut self, a: View, b: View) {
        self.compute(Kernel::Add, vec![a, b], a);
    }
}

/// Rows that are computed together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// The first one.
    pub first: u64,
    /// How many.
    pub rows: u64,
}

/// Rows in chunks of one size, the last one as long as what is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunks {
    /// All rows.
    pub rows: u64,
    /// Rows of a chunk.
    pub chunk: u64,
    /// Whether one chunk stands for all of the same size.
    pub sketch: bool,
}

impl Chunks {
    /// Rows of the largest chunk.
    pub fn largest(self) -> u64 {
        self.chunk.min(self.rows)
    }

    /// Chunks.
    pub fn count(self) -> u64 {
        self.rows.div_ceil(self.chunk)
    }

    /// Issues operations for each chunk.
    pub fn each(self, builder: &mut Builder, mut issue: impl FnMut(&mut Builder, Chunk)) {
        let whole = self.rows / self.chunk;
        let together = if self.sketch { whole.max(1) } else { 1 };
        for first in (0..whole / together).map(|at| at * self.chunk) {
            builder.standing_for(together, |builder| issue(builder, Chunk { first, rows: self.chunk }));
        }
        if !self.rows.is_multiple_of(self.chunk) {
            issue(builder, Chunk { first: whole * self.chunk, rows: self.rows % self.chunk });
        }
    }
}
