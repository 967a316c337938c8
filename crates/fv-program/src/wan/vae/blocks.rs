//! What the decoder consists of, and which weights that has.

use fv_spec::program::{Element, Order, Role};

use crate::stream::{self, Component, Parameter};
use crate::wan::geometry::Vae;

/// A part of the decoder whose weights are moved together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// What its tensors' names begin with, such as `decoder.mid_block.resnets.0.`.
    pub name: String,
    /// What it computes.
    pub kind: Kind,
}

/// What a block computes. Numbers are channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Two convolutions whose result is added to the input.
    Residual {
        /// Of the input.
        from: u64,
        /// Of the output.
        to: u64,
    },
    /// Attention within a frame.
    Attention {
        /// Of input and output.
        width: u64,
    },
    /// Twice the rows and columns.
    Upsample {
        /// Of the input.
        from: u64,
        /// Of the output.
        to: u64,
        /// Whether frames are doubled too.
        frames: bool,
    },
}

/// Blocks of one resolution, in a range of the decoder's blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Level {
    /// Its first residual block.
    pub first: usize,
    /// Residual blocks.
    pub residuals: usize,
    /// Whether an upsampling block follows.
    pub upsample: bool,
    /// Whether that one doubles frames.
    pub doubles: bool,
}

/// The first block of the levels; those before are in the middle: residual, attention, residual.
const MIDDLE: usize = 3;
/// Levels.
pub const LEVELS: usize = 4;
/// Channels of each level's output, in base widths.
const WIDTHS: [u64; LEVELS] = [4, 4, 2, 1];
/// Which levels double frames.
const DOUBLES: [bool; LEVELS] = [true, true, false, false];

/// A level.
pub fn level(vae: &Vae, index: usize) -> Level {
    let residuals = usize::try_from(vae.residual_blocks).unwrap_or(usize::MAX) + 1;
    Level { first: MIDDLE + index * (residuals + 1), residuals, upsample: index + 1 < LEVELS, doubles: DOUBLES[index] }
}

/// The decoder's blocks in the order in which they compute. [`component`] has their weights.
pub fn blocks(vae: &Vae) -> Vec<Block> {
    let wide = WIDTHS[0] * vae.width;
    let block = |name: &str, kind| Block { name: format!("decoder.{name}."), kind };
    let mut blocks = vec![
        block("mid_block.resnets.0", Kind::Residual { from: wide, to: wide }),
        block("mid_block.attentions.0", Kind::Attention { width: wide }),
        block("mid_block.resnets.1", Kind::Residual { from: wide, to: wide }),
    ];
    let mut from = wide;
    for (index, (width, doubles)) in WIDTHS.into_iter().zip(DOUBLES).enumerate() {
        let to = width * vae.width;
        for resnet in 0..=vae.residual_blocks {
            blocks.push(block(&format!("up_blocks.{index}.resnets.{resnet}"), Kind::Residual { from, to }));
            from = to;
        }
        if index + 1 < LEVELS {
            let (name, halves) = if vae.residual { ("upsampler", 1) } else { ("upsamplers.0", 2) };
            from = to / halves;
            blocks.push(block(&format!("up_blocks.{index}.{name}"), Kind::Upsample { from: to, to: from, frames: doubles }));
        }
    }
    blocks
}

/// The decoder's weights: both ends outside blocks, then what [`blocks`] lists.
pub fn component(vae: &Vae, element: Element) -> Component {
    let (wide, narrow) = (WIDTHS[0] * vae.width, WIDTHS[LEVELS - 1] * vae.width);
    let mut root = Parameters::new(element);
    root.convolution("post_quant_conv", vae.latent, vae.latent, &[1, 1, 1]);
    root.convolution("decoder.conv_in", vae.latent, wide, &[3, 3, 3]);
    root.add("decoder.norm_out.gamma", &[narrow, 1, 1, 1]);
    root.convolution("decoder.conv_out", narrow, vae.output, &[3, 3, 3]);
    let blocks = blocks(vae).into_iter().map(|Block { name, kind }| stream::Block { prefix: name, parameters: parameters(kind, element) });
    Component { role: Role::Vae, root: root.list, blocks: blocks.collect() }
}

fn parameters(kind: Kind, element: Element) -> Vec<Parameter> {
    let mut block = Parameters::new(element);
    match kind {
        Kind::Residual { from, to } => {
            block.add("norm1.gamma", &[from, 1, 1, 1]);
            block.convolution("conv1", from, to, &[3, 3, 3]);
            block.add("norm2.gamma", &[to, 1, 1, 1]);
            block.convolution("conv2", to, to, &[3, 3, 3]);
            if from != to {
                block.convolution("conv_shortcut", from, to, &[1, 1, 1]);
            }
        }
        Kind::Attention { width } => {
            block.add("norm.gamma", &[width, 1, 1]);
            block.convolution("to_qkv", width, 3 * width, &[1, 1]);
            block.convolution("proj", width, width, &[1, 1]);
        }
        Kind::Upsample { from, to, frames } => {
            block.convolution("resample.1", from, to, &[3, 3]);
            if frames {
                block.convolution("time_conv", from, 2 * from, &[3, 1, 1]);
            }
        }
    }
    block.list
}

/// Parameters that are being listed.
struct Parameters {
    element: Element,
    list: Vec<Parameter>,
}

impl Parameters {
    fn new(element: Element) -> Self {
        Self { element, list: Vec::new() }
    }

    fn add(&mut self, name: &str, shape: &[u64]) {
        self.list.push(Parameter::new(name, shape, self.element));
    }

    fn convolution(&mut self, name: &str, from: u64, to: u64, kernel: &[u64]) {
        let shape: Vec<u64> = [to, from].into_iter().chain(kernel.iter().copied()).collect();
        let weight = Parameter::new(format!("{name}.weight"), &shape, self.element);
        self.list.push(Parameter { order: Order::ChannelsLast, ..weight });
        self.add(&format!("{name}.bias"), &[to]);
    }
}

/// The blocks that a latent frame goes through, in order, some of them several times where few frames of a level go on together.
/// The first frame of a video is not doubled.
pub fn order(vae: &Vae, together: usize, first: bool) -> Vec<usize> {
    let mut order: Vec<usize> = (0..MIDDLE).collect();
    visit(vae, 0, 1, (together, first), &mut order);
    order
}

fn visit(vae: &Vae, index: usize, frames: usize, (together, first): (usize, bool), order: &mut Vec<usize>) {
    let level = level(vae, index);
    let upsample = level.first + level.residuals;
    order.extend(level.first..upsample);
    if !level.upsample {
        return;
    }
    let mut left = if level.doubles && !first { 2 * frames } else { frames };
    while left > 0 {
        let group = left.min(together);
        order.push(upsample);
        visit(vae, index + 1, group, (together, first), order);
        left -= group;
    }
}
