//! Operations of the decoder's layers, each on one frame.

use fv_spec::program::kernel::{Function, Grid};
use fv_spec::program::{BufferId, BufferKind, Kernel, Stream, View};

use super::cache::{History, Place};
use super::layers::{Decoder, Layers};

/// Some frames at one level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Features {
    pub(super) buffer: BufferId,
    pub(super) channels: u64,
    pub(super) frames: u64,
    pub(super) level: usize,
}

/// A convolution that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Convolution<'n> {
    name: &'n str,
    kernel: Grid,
    channels: Option<[u64; 2]>,
    residual: Option<View>,
}

impl<'n> Convolution<'n> {
    pub(super) fn new(name: &'n str, kernel: Grid) -> Self {
        Self { name, kernel, channels: None, residual: None }
    }

    /// Some of its output channels.
    pub(super) fn of(self, first: u64, channels: u64) -> Self {
        Self { channels: Some([first, channels]), ..self }
    }

    /// What its result is added to.
    pub(super) fn added_to(self, residual: View) -> Self {
        Self { residual: Some(residual), ..self }
    }
}

/// Whose weights are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Owner {
    /// The decoder itself.
    Root,
    /// The block that was entered.
    Block,
}

impl Decoder<'_> {
    pub(super) fn tensor(&self, owner: Owner, name: &str) -> View {
        match owner {
            Owner::Root => self.weights.root(self.builder, name),
            Owner::Block => self.weights.tensor(self.builder, name),
        }
    }
}

impl Layers<'_, '_> {
    /// One frame at a level.
    pub(super) fn grid(&self, level: usize) -> Grid {
        Grid { frames: 1, height: self.extent[0] << level, width: self.extent[1] << level }
    }

    /// A buffer for some frames.
    pub(super) fn features(&mut self, name: &str, channels: u64, frames: u64, level: usize) -> Features {
        let bytes = frames * self.grid(level).len() * channels * self.decoder.element.bytes();
        let buffer = self.decoder.builder.buffer(self.decoder.region, name, BufferKind::Activation, bytes);
        Features { buffer, channels, frames, level }
    }

    /// One of its frames.
    pub(super) fn frame(&self, x: Features, frame: u64) -> View {
        let pixels = self.grid(x.level).len();
        View::matrix(x.buffer, self.decoder.element, x.frames * pixels, x.channels).row_range(frame * pixels, pixels)
    }

    /// A frame of the same extents in a place of its own.
    pub(super) fn view(&self, buffer: BufferId, like: Features) -> View {
        View::matrix(buffer, self.decoder.element, self.grid(like.level).len(), like.channels)
    }

    /// A place for such a frame.
    pub(super) fn place(&mut self, like: Features) -> Place {
        let bytes = self.view(0, like).bytes();
        self.places.take(self.decoder.builder, bytes)
    }

    /// Frames before the next one.
    pub(super) fn cached(&self, history: &History, like: Features) -> Vec<View> {
        history.frames().map(|buffer| self.view(buffer, like)).collect()
    }

    pub(super) fn kernel(&mut self, kernel: Kernel, reads: Vec<View>, target: View) {
        self.decoder.builder.op(Stream::Compute, kernel, reads, vec![target]);
    }

    /// A convolution of single pixels.
    pub(super) fn product(&mut self, owner: Owner, name: &str, input: View, target: View) {
        let [weight, bias] = ["weight", "bias"].map(|part| self.decoder.tensor(owner, &format!("{name}.{part}")));
        self.kernel(Kernel::Product { bias: true, function: Function::Identity }, vec![input, weight, bias], target);
    }

    pub(super) fn convolve(
        &mut self,
        owner: Owner,
        convolution: Convolution<'_>,
        (input, level): (View, usize),
        cached: Vec<View>,
        target: View,
    ) {
        let [mut weight, mut bias] = ["weight", "bias"].map(|part| self.decoder.tensor(owner, &format!("{}.{part}", convolution.name)));
        if let Some([first, channels]) = convolution.channels {
            weight = weight.row_range(first, channels);
            bias = bias.column_range(first, channels);
        }
        let kernel = Kernel::Convolve {
            input: self.grid(level),
            kernel: convolution.kernel,
            cached: u64::try_from(cached.len()).unwrap_or(u64::MAX),
            residual: convolution.residual.is_some(),
        };
        let reads = [input, weight, bias].into_iter().chain(cached).chain(convolution.residual).collect();
        self.kernel(kernel, reads, target);
    }

    /// A block's convolution of a frame that lies in a place of its own, after those that it has seen.
    pub(super) fn look_back(
        &mut self,
        owner: Owner,
        (block, which): (usize, usize),
        convolution: Convolution<'_>,
        (place, like): (Place, Features),
        target: View,
    ) {
        let cached = self.cached(&self.histories[block][which], like);
        self.convolve(owner, convolution, (self.view(place.buffer, like), like.level), cached, target);
        self.histories[block][which].push(&mut self.places, place);
    }

    /// A frame normalised and activated, in a place of its own.
    pub(super) fn normalised(&mut self, owner: Owner, norm: &str, input: View, like: Features) -> Place {
        let place = self.place(like);
        let gamma = self.decoder.tensor(owner, &format!("{norm}.gamma"));
        self.kernel(Kernel::UnitNorm { function: Function::Silu }, vec![input, gamma], self.view(place.buffer, like));
        place
    }

    /// Copies a frame that its block's first convolution has seen, if it will be needed after its buffer is gone.
    pub(super) fn remember(&mut self, block: usize, x: Features, frame: u64) {
        let source = self.frame(x, frame);
        if let Some(buffer) = self.histories[block][0].copy(self.decoder.builder, &mut self.places, source.bytes()) {
            self.kernel(Kernel::Copy, vec![source], self.view(buffer, x));
        }
    }
}
