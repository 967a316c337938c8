//! The decoder's layers, for some frames of a tile at a time.

use fv_spec::program::kernel::{Function, Grid};
use fv_spec::program::{Element, Kernel, View};

use super::blocks::{self, Block, Kind, LEVELS};
use super::cache::{History, Places};
use super::ops::{Convolution, Features, Owner};
use super::screen::Screen;
use crate::build::Builder;
use crate::stream::Weights;
use crate::wan::geometry::Vae;

/// Its neighbours in three frames.
const CUBE: Grid = Grid { frames: 3, height: 3, width: 3 };
/// Its neighbours in its frame.
const SQUARE: Grid = Grid { frames: 1, height: 3, width: 3 };
/// The same pixel in three frames.
const LINE: Grid = Grid { frames: 3, height: 1, width: 1 };

/// What does not change from tile to tile.
#[derive(Debug)]
pub(super) struct Decoder<'a> {
    pub(super) builder: &'a mut Builder,
    pub(super) vae: &'a Vae,
    pub(super) blocks: &'a [Block],
    pub(super) weights: Weights,
    /// The device's region.
    pub(super) region: u32,
    /// Of activations.
    pub(super) element: Element,
    /// Frames that go on to the next level together.
    pub(super) together: usize,
}

impl Decoder<'_> {
    /// Begins a pass through blocks; `next` is the one after it.
    pub(super) fn pass(&mut self, order: &[usize], next: &[usize]) {
        self.weights.pass(self.builder, order, next);
    }

    fn enter(&mut self, block: usize) {
        self.weights.enter(self.builder, block);
    }

    fn leave(&mut self) {
        self.weights.leave(self.builder);
    }
}

/// A tile that is being decoded.
#[derive(Debug)]
pub(super) struct Layers<'d, 'a> {
    pub(super) decoder: &'d mut Decoder<'a>,
    /// Rows and columns of the latent.
    pub(super) extent: [u64; 2],
    pub(super) places: Places,
    first_convolution: History,
    last_convolution: History,
    /// Of each block's convolutions that look back.
    pub(super) histories: Vec<[History; 2]>,
}

/// A frame that upsampling makes.
#[derive(Debug, Clone, Copy)]
struct Made {
    /// From this one.
    frame: u64,
    /// Where two are made from one: which.
    part: u64,
    /// Whether a convolution makes two from one.
    doubled: bool,
    /// Whether it is the last one, after which nothing of what it is made from is needed.
    last: bool,
}

impl<'d, 'a> Layers<'d, 'a> {
    /// A tile of so many latent frames.
    pub(super) fn new(decoder: &'d mut Decoder<'a>, extent: [u64; 2], frames: u64) -> Self {
        let doubled = |times: u64| 1 + times * (frames - 1);
        let mut histories: Vec<[History; 2]> = decoder.blocks.iter().map(|_| [History::new(frames), History::new(frames)]).collect();
        let mut times = 1;
        for index in 0..LEVELS {
            let level = blocks::level(decoder.vae, index);
            for history in histories.iter_mut().skip(level.first).take(level.residuals) {
                *history = [History::new(doubled(times)), History::new(doubled(times))];
            }
            if level.doubles {
                // The first frame is not doubled and not seen by the convolution that doubles.
                histories[level.first + level.residuals][0] = History::new(times * (frames - 1));
                times *= 2;
            }
        }
        let places = Places::new(decoder.region);
        let (first_convolution, last_convolution) = (History::new(frames), History::new(doubled(times)));
        Self { decoder, extent, places, first_convolution, last_convolution, histories }
    }

    /// Frees what is left once all frames are decoded.
    pub(super) fn finish(self) {
        self.places.free(self.decoder.builder);
    }

    /// Decodes a latent frame, whose rows a kernel writes.
    pub(super) fn decode(&mut self, screen: &mut Screen, first: bool, latent: impl FnOnce(&mut Builder, View)) {
        self.decoder.builder.phase("latent");
        let x = self.begin(latent);
        self.decoder.builder.phase("middle");
        let x = self.residual(0, x, false);
        self.attention(1, x);
        let x = self.residual(2, x, false);
        self.level(screen, x, first);
        self.decoder.builder.block(None);
    }

    fn begin(&mut self, latent: impl FnOnce(&mut Builder, View)) -> Features {
        let rows = self.features("latent_rows", self.decoder.vae.latent, 1, 0);
        let view = self.frame(rows, 0);
        latent(self.decoder.builder, view);
        let place = self.place(rows);
        let input = self.view(place.buffer, rows);
        self.product(Owner::Root, "post_quant_conv", view, input);
        self.decoder.builder.free(rows.buffer);
        let Kind::Residual { from, .. } = self.decoder.blocks[0].kind else { unreachable!("the first block is residual") };
        let x = self.features("x", from, 1, 0);
        let target = self.frame(x, 0);
        let cached = self.cached(&self.first_convolution, rows);
        self.convolve(Owner::Root, Convolution::new("decoder.conv_in", CUBE), (input, 0), cached, target);
        self.first_convolution.push(&mut self.places, place);
        x
    }

    /// All from a level on.
    fn level(&mut self, screen: &mut Screen, x: Features, first: bool) {
        let level = blocks::level(self.decoder.vae, x.level);
        self.decoder.builder.phase(&format!("level_{}", x.level));
        let (start, mut y) = (x, x);
        let shortcut = self.decoder.vae.residual && level.upsample;
        for block in level.first..level.first + level.residuals {
            y = self.residual(block, y, shortcut && y.buffer == start.buffer);
        }
        if !level.upsample {
            return self.show(screen, y);
        }
        let outputs = made(y.frames, level.doubles, first);
        for group in outputs.chunks(self.decoder.together) {
            self.decoder.builder.phase(&format!("level_{}", x.level));
            let larger = self.upsample(level.first + level.residuals, y, shortcut.then_some(start), group);
            self.level(screen, larger, first);
        }
    }

    /// The last convolution, and its frames onto the screen.
    fn show(&mut self, screen: &mut Screen, x: Features) {
        self.decoder.builder.phase("colours");
        self.decoder.builder.block(None);
        for frame in 0..x.frames {
            let place = self.normalised(Owner::Root, "decoder.norm_out", self.frame(x, frame), x);
            if frame + 1 == x.frames {
                self.decoder.builder.free(x.buffer);
            }
            let input = self.view(place.buffer, x);
            let cached = self.cached(&self.last_convolution, x);
            let target = screen.next_frame(self.decoder.builder);
            self.convolve(Owner::Root, Convolution::new("decoder.conv_out", CUBE), (input, x.level), cached, target);
            self.last_convolution.push(&mut self.places, place);
        }
    }

    /// A residual block. Its output takes the input's place, unless the input is kept or has another width.
    fn residual(&mut self, block: usize, x: Features, keep: bool) -> Features {
        let Kind::Residual { from, to } = self.decoder.blocks[block].kind else { unreachable!("{block} is a residual block") };
        self.decoder.enter(block);
        let y = if from == to && !keep { x } else { self.features("x", to, x.frames, x.level) };
        for frame in 0..x.frames {
            let place = self.normalised(Owner::Block, "norm1", self.frame(x, frame), x);
            let hidden = self.features("hidden", to, 1, x.level);
            let middle = self.frame(hidden, 0);
            self.look_back(Owner::Block, (block, 0), Convolution::new("conv1", CUBE), (place, x), middle);
            let place = self.normalised(Owner::Block, "norm2", middle, hidden);
            self.decoder.builder.free(hidden.buffer);
            let target = self.frame(y, frame);
            let mut residual = self.frame(x, frame);
            if from != to {
                self.product(Owner::Block, "conv_shortcut", residual, target);
                residual = target;
                if frame + 1 == x.frames && !keep {
                    self.decoder.builder.free(x.buffer);
                }
            }
            let convolution = Convolution::new("conv2", CUBE).added_to(residual);
            self.look_back(Owner::Block, (block, 1), convolution, (place, hidden), target);
        }
        self.decoder.leave();
        y
    }

    /// Attention within the only frame, added to it.
    fn attention(&mut self, block: usize, x: Features) {
        self.decoder.enter(block);
        let input = self.frame(x, 0);
        let norm = self.features("normalised", x.channels, 1, x.level);
        let gamma = self.decoder.tensor(Owner::Block, "norm.gamma");
        self.kernel(Kernel::UnitNorm { function: Function::Identity }, vec![input, gamma], self.frame(norm, 0));
        let all = self.features("query_key_value", 3 * x.channels, 1, x.level);
        let view = self.frame(all, 0);
        self.product(Owner::Block, "to_qkv", self.frame(norm, 0), view);
        self.decoder.builder.free(norm.buffer);
        let attended = self.features("attended", x.channels, 1, x.level);
        let parts = (0..3).map(|part| view.column_range(part * x.channels, x.channels)).collect();
        #[expect(clippy::cast_precision_loss, reason = "channels are few")]
        let scale = 1.0 / (x.channels as f64).sqrt();
        self.kernel(Kernel::Attention { head_dim: x.channels, scale, bias: false }, parts, self.frame(attended, 0));
        self.decoder.builder.free(all.buffer);
        let projected = self.features("projected", x.channels, 1, x.level);
        self.product(Owner::Block, "proj", self.frame(attended, 0), self.frame(projected, 0));
        self.decoder.builder.free(attended.buffer);
        self.kernel(Kernel::Add, vec![input, self.frame(projected, 0)], input);
        self.decoder.leave();
        self.decoder.builder.free(projected.buffer);
    }

    /// Some frames with twice the rows and columns.
    fn upsample(&mut self, block: usize, x: Features, shortcut: Option<Features>, outputs: &[Made]) -> Features {
        let Kind::Upsample { to, frames: doubles, .. } = self.decoder.blocks[block].kind else { unreachable!("{block} upsamples") };
        self.decoder.enter(block);
        let y = self.features("x", to, u64::try_from(outputs.len()).unwrap_or(u64::MAX), x.level + 1);
        for (index, made) in (0..).zip(outputs) {
            let target = self.frame(y, index);
            self.enlarge(block, x, *made, target);
            if let Some(start) = shortcut {
                let time = if doubles { 2 } else { 1 };
                let kernel = Kernel::Spread { input: self.grid(start.level), time, part: made.part, space: 2 };
                self.kernel(kernel, vec![target, self.frame(start, made.frame)], target);
                if made.last {
                    self.decoder.builder.free(start.buffer);
                }
            }
        }
        self.decoder.leave();
        y
    }

    /// A frame, or one of two that are made from it, with twice the rows and columns.
    fn enlarge(&mut self, block: usize, x: Features, made: Made, target: View) {
        let (from, last) = if made.doubled { (self.half(block, x, made), true) } else { (x, made.last) };
        let frame = if made.doubled { 0 } else { made.frame };
        let large = self.features("enlarged", x.channels, 1, x.level + 1);
        self.kernel(Kernel::Upsample { input: self.grid(x.level) }, vec![self.frame(from, frame)], self.frame(large, 0));
        if last {
            self.decoder.builder.free(from.buffer);
        }
        self.convolve(Owner::Block, Convolution::new("resample.1", SQUARE), (self.frame(large, 0), large.level), Vec::new(), target);
        self.decoder.builder.free(large.buffer);
    }

    /// One of the two frames that are made from one: half of a convolution's channels.
    fn half(&mut self, block: usize, x: Features, made: Made) -> Features {
        let half = self.features("half", x.channels, 1, x.level);
        let convolution = Convolution::new("time_conv", LINE).of(made.part * x.channels, x.channels);
        let cached = self.cached(&self.histories[block][0], x);
        self.convolve(Owner::Block, convolution, (self.frame(x, made.frame), x.level), cached, self.frame(half, 0));
        if made.part == 1 {
            self.remember(block, x, made.frame);
        }
        if made.last {
            self.decoder.builder.free(x.buffer);
        }
        half
    }
}

/// Frames that upsampling makes from so many; in the first piece of a video there is only the second one of each two, and it is
/// the frame itself.
fn made(frames: u64, by_time: bool, first: bool) -> Vec<Made> {
    let doubled = by_time && !first;
    let parts = if doubled { 0..2 } else { u64::from(by_time)..u64::from(by_time) + 1 };
    let end = [frames, parts.end];
    let made = |frame, part| Made { frame, part, doubled, last: [frame + 1, part + 1] == end };
    (0..frames).flat_map(|frame| parts.clone().map(move |part| made(frame, part))).collect()
}
