//! Decoding with `AutoencoderKLMiniMaxH3Audio` (diffusers 0.42.1), run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow
//! `diffusers/models/autoencoders/autoencoder_kl_minimax_h3_audio.py`; the class run on fake tensors reproduces it
//! (`tests/data/simulated`). Weights of most convolutions are computed from a direction and a length each time and stay until
//! they are computed again: after the first decoding there is a second copy of them. For its convolutions in one dimension
//! cuDNN copies input, output and weights into another order (`tests/data/families`, a trace on an H200).

use fv_spec::authored::Role;

use super::geometry::AUDIO_ROW;
use crate::modules::FP32;
use crate::modules::parameter::{Parameter, Weights, kept};
use crate::program::{Builder, List, Site, Tensor, sites};

sites! { "minimax_h3.audio_vae":
    FEATURES "audio features" Activation;
    PADDED "padded audio features" Activation;
    ACTIVATED "activated audio features" Activation;
    COMPUTED "computed convolution weights" Cache;
    CONVOLUTION_WORKSPACE "convolution workspace" Workspace;
    WAVEFORM "waveform" Output;
}

/// Width of the trunk, channels that the decoder starts from, and its stages: factor and kernel (class defaults).
const TRUNK: u64 = 2048;
const CHANNELS: u64 = 1024;
const STAGES: [(u64, u64); 7] = [(5, 9), (5, 9), (2, 4), (2, 4), (2, 4), (2, 4), (2, 4)];
/// Kernels of the parallel blocks of a stage, and pairs of convolutions in each.
const KERNELS: [u64; 3] = [3, 7, 11];
const PAIRS: u64 = 3;
/// Encoder: width of the first convolution and strides.
const ENCODER: u64 = 64;
const STRIDES: [u64; 5] = [2, 4, 4, 5, 5];

/// Length, direction and bias of a convolution whose weights are computed.
fn normed(outer: u64, inner: u64, kernel: u64, bias: u64) -> Vec<Parameter> {
    [bias, outer, outer * inner * kernel].into_iter().filter(|n| *n > 0).map(kept).collect()
}

/// Sizes of the weights that the decoder computes, in the order in which its convolutions run.
fn computed() -> Vec<u64> {
    let mut list = vec![CHANNELS * TRUNK * 7];
    let mut channels = CHANNELS;
    for (_, kernel) in STAGES {
        list.push(channels * channels / 2 * kernel);
        channels /= 2;
        for kernel in KERNELS {
            list.extend((0..2 * PAIRS).map(|_| channels * channels * kernel));
        }
    }
    list.push(channels * 7);
    list
}

/// The audio VAE as it is loaded: its parameters are kept in fp32 whatever type is asked for.
pub fn tensors() -> Weights {
    let mut list = Vec::new();
    list.extend(normed(ENCODER, 1, 7, ENCODER));
    let mut width = ENCODER;
    for stride in STRIDES {
        for _ in 0..3 {
            list.push(kept(width));
            list.extend(normed(width, width, 7, width));
            list.push(kept(width));
            list.extend(normed(width, width, 1, width));
        }
        list.push(kept(width));
        list.extend(normed(2 * width, width, 2 * stride, 2 * width));
        width *= 2;
    }
    list.push(kept(width));
    list.extend(normed(TRUNK, width, 3, TRUNK));
    // Attention that narrows the trunk to the latent, with norms, and a small feed-forward layer.
    let (latent, hidden) = (AUDIO_ROW, 2 * AUDIO_ROW);
    list.extend([TRUNK, TRUNK, TRUNK, TRUNK, 3 * TRUNK * TRUNK].map(kept));
    list.extend([latent * latent, latent, TRUNK * latent, latent, TRUNK, TRUNK, latent, latent, latent, latent].map(kept));
    list.extend([latent * hidden, hidden, latent * hidden, hidden, hidden * latent, latent].map(kept));
    for _ in 0..2 {
        list.extend([latent * latent, latent].map(kept));
    }
    list.extend([latent * TRUNK, TRUNK].map(kept));
    list.extend(normed(CHANNELS, TRUNK, 7, CHANNELS));
    let mut channels = CHANNELS;
    for (_, kernel) in STAGES {
        list.extend(normed(channels, channels / 2, kernel, channels / 2));
        channels /= 2;
        for kernel in KERNELS {
            for _ in 0..2 * PAIRS {
                list.extend(normed(channels, channels, kernel, channels));
                list.extend([channels; 2].map(kept));
            }
        }
    }
    list.extend([channels; 2].map(kept));
    list.extend(normed(1, channels, 7, 0));
    Weights::whole(Role::AudioVae, list)
}

/// Elements of all weights that decoding computes.
pub fn computed_weights() -> u64 {
    computed().iter().sum()
}

/// Decoding of `batch` mono latents of `frames` frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decode {
    /// Channels of sound, each of which is an item of the batch.
    pub batch: u64,
    /// Latent frames, of 800 samples each.
    pub frames: u64,
    /// Whether the weights have been computed before.
    pub warm: bool,
}

/// One decoding.
struct Pass {
    batch: u64,
    weights: std::vec::IntoIter<u64>,
    /// Where computed weights stay, unless there are older ones that they replace.
    kept: Option<List>,
}

impl Pass {
    fn make(&self, p: &mut Builder, site: &'static Site, channels: u64, length: u64) -> Tensor {
        p.alloc(site, &[("batch", self.batch), ("channels", channels), ("samples", length)], FP32)
    }

    /// The next convolution's output; its input, of as many channels, stays.
    fn convolution(&mut self, p: &mut Builder, channels: u64, length: u64) -> Tensor {
        let (y, weights) = self.raise(p, channels, length);
        let dims = [("input, output and weights", 2 * self.batch * channels * length + weights)];
        p.touch(&CONVOLUTION_WORKSPACE, &dims, FP32);
        y
    }

    /// The next transposed convolution's output, or that of another which takes no workspace; and its count of weights.
    fn raise(&mut self, p: &mut Builder, channels: u64, length: u64) -> (Tensor, u64) {
        let count = self.weights.next().unwrap_or(0);
        let weights = p.alloc(&COMPUTED, &[("weights", count)], FP32);
        match self.kept {
            Some(list) => p.keep(list, weights),
            // The older copy goes once the new one is there, which then stands in its place.
            None => p.release(weights),
        }
        (self.make(p, &FEATURES, channels, length), count)
    }

    /// An activation at twice the rate (`MiniMaxH3AudioActivation1d`); its input stays.
    fn activation(&self, p: &mut Builder, channels: u64, length: u64) -> Tensor {
        let padded = self.make(p, &PADDED, channels, length + 10);
        let raised = self.make(p, &ACTIVATED, channels, 2 * length + 30);
        let doubled = self.make(p, &ACTIVATED, channels, 2 * length + 30);
        p.release(raised);
        p.release(padded);
        let mut step = self.make(p, &ACTIVATED, channels, 2 * length);
        for _ in 0..4 {
            let next = self.make(p, &ACTIVATED, channels, 2 * length);
            p.release(step);
            step = next;
        }
        p.release(doubled);
        let padded = self.make(p, &PADDED, channels, 2 * length + 11);
        let y = self.make(p, &ACTIVATED, channels, length);
        p.release(padded);
        p.release(step);
        y
    }

    /// One of the parallel blocks (`MiniMaxH3AudioAMPBlock`); its input stays the caller's.
    fn block(&mut self, p: &mut Builder, x: Tensor, channels: u64, length: u64) -> Tensor {
        let mut hidden = p.retain(x);
        let mut residual: Option<Tensor> = None;
        for _ in 0..PAIRS {
            for second in [false, true] {
                let active = self.activation(p, channels, length);
                let next = self.convolution(p, channels, length);
                p.release(active);
                if let Some(before) = residual.replace(next) {
                    p.release(before);
                }
                if second {
                    let sum = self.make(p, &FEATURES, channels, length);
                    p.release(hidden);
                    hidden = sum;
                }
            }
        }
        if let Some(residual) = residual {
            p.release(residual);
        }
        hidden
    }
}

impl Decode {
    /// The decoding; the waveforms are the result, and computed weights stay in `weights`.
    pub fn emit(&self, p: &mut Builder, weights: List) -> Tensor {
        p.phase("decode_audio");
        let mut pass = Pass { batch: self.batch, weights: computed().into_iter(), kept: (!self.warm).then_some(weights) };
        let mut length = self.frames;
        let mut channels = CHANNELS;
        let trunk = pass.make(p, &FEATURES, TRUNK, length);
        let mut hidden = pass.convolution(p, channels, length);
        let (mut sum, mut block): (Option<Tensor>, Option<Tensor>) = (None, None);
        for (rate, _) in STAGES {
            channels /= 2;
            length *= rate;
            let (raised, _) = pass.raise(p, channels, length);
            p.release(hidden);
            hidden = raised;
            if let Some(before) = sum.take() {
                p.release(before);
            }
            for _ in KERNELS {
                let next = pass.block(p, hidden, channels, length);
                if let Some(before) = block.replace(next) {
                    p.release(before);
                }
                let added = if let Some(before) = sum {
                    let added = pass.make(p, &FEATURES, channels, length);
                    p.release(before);
                    added
                } else {
                    p.retain(next)
                };
                sum = Some(added);
            }
            let mean = pass.make(p, &FEATURES, channels, length);
            p.release(hidden);
            hidden = mean;
        }
        let active = pass.activation(p, channels, length);
        p.release(hidden);
        let (raw, _) = pass.raise(p, 1, length);
        p.release(active);
        let waveform = pass.make(p, &WAVEFORM, 1, length);
        for tensor in [raw].into_iter().chain(sum).chain(block).chain([trunk]) {
            p.release(tensor);
        }
        waveform
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensors_add_up_to_the_published_count() {
        assert_eq!(tensors().parameters(), 151_321_489);
    }
}
