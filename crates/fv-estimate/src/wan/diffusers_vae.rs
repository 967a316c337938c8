//! `AutoencoderKLWan` (diffusers 0.42.1): decoding and encoding, cached, tiled and sliced, run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `diffusers/models/autoencoders/autoencoder_kl_wan.py`;
//! recorded allocator traces of the class on an H200 reproduce it allocation for allocation (`tests/data`).
//!
//! The causal convolutions keep the last two frames of their input as a cache, so the video is decoded one latent frame at a
//! time. The first chunk makes one frame, every later one four; the caches are full after the third. From then on only the
//! output grows.

use super::geometry::{Latent, Vae};
use crate::modules::FP32;
use crate::modules::maps::{CUDNN_HEADER, pad8};
use crate::modules::tiles::Tiles;
use crate::program::{Builder, List, Site, Tensor, sites};
use crate::settings::Tiling;

sites! { "wan.vae.convolution":
    FEATURES "features" Activation;
    FEATURE_CACHE "feature cache" Cache;
    JOINED "features with cached frames" Activation;
    PADDED "padded features" Activation;
    NARROWED "features cast for a convolution" Activation;
    REORDERED "features reordered for a convolution" Workspace;
    CAST_WEIGHTS "weights cast by autocast" Cache;
    CONVOLUTION_WORKSPACE "convolution workspace" Workspace;
}
sites! { "wan.vae.norm":
    NORM_FP32 "norm in fp32" Activation;
    NORM_LENGTHS "feature lengths" Activation;
    REDUCTION "buffer of a reduction" Workspace;
    NORMED "normed features" Activation;
    ACTIVATED "activated features" Activation;
}
sites! { "wan.vae.attention":
    QKV "query, key and value" Activation;
    ATTENTION "attention output" Activation;
    ATTENTION_WORKSPACE "attention accumulator" Workspace;
}
sites! { "wan.vae.resample":
    UPSAMPLED "upsampled features" Activation;
    UPSAMPLE_WORKSPACE "features put together for upsampling" Workspace;
    SHORTCUT "averaging shortcut" Activation;
}
sites! { "wan.vae.output":
    DECODED "decoded video" Output;
    TILE "decoded tile" Output;
    LATENT "latent" Activation;
    ENCODED "encoded video" Activation;
}

/// Convolutions of pixels take no workspace.
const RGB: u64 = 3;
/// Norms over at least so many channels take a buffer of 8 bytes a value (seen at 1024, not at 640).
const WIDE: u64 = 1024;

/// A coder: which half of which VAE, at what precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coder {
    /// The VAE.
    pub vae: Vae,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// Whether cuDNN's convolutions take a workspace of copies in another layout.
    pub workspace: bool,
    /// Whose class runs.
    pub style: Style,
}

/// Whose class runs. The layers and their order are the same; the copies that each operation makes are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// diffusers 0.42.1: one type throughout, norms widened to fp32 inside.
    Diffusers,
    /// FastVideo 0.2.1 (`models/vaes/wanvae.py`).
    FastVideo(Casts),
}

/// The types that FastVideo's VAE runs in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Casts {
    /// Bytes of an element of what goes in: latents or pixels.
    pub input: u64,
    /// Whether autocast is on: norms give fp32, and convolutions cast what they are given.
    pub autocast: bool,
    /// What autocast does to the weights.
    pub weights: WeightCasts,
}

/// What autocast does to the weights of convolutions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WeightCasts {
    /// Nothing: they are of the type that is computed in.
    None,
    /// A copy at the first use, kept until autocast ends: weights that could need a gradient.
    Kept,
    /// A copy at each use.
    Each,
}

/// Extents of a feature map and bytes of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Map {
    pub(super) batch: u64,
    pub(super) channels: u64,
    pub(super) frames: u64,
    pub(super) height: u64,
    pub(super) width: u64,
    pub(super) element: u64,
    /// Frames come before channels in memory.
    pub(super) frames_first: bool,
}

impl Map {
    pub(super) fn with(self, channels: u64, frames: u64) -> Self {
        Self { channels, frames, frames_first: false, ..self }
    }

    fn of(self, element: u64) -> Self {
        Self { element, ..self }
    }

    fn scaled(self, numerator: u64, denominator: u64) -> Self {
        Self { height: self.height * numerator / denominator, width: self.width * numerator / denominator, ..self }
    }

    fn elements(self) -> u64 {
        self.batch * self.channels * self.frames * self.height * self.width
    }
}

/// Which chunk of a video is coded: caches are empty in the first, half full in the second, full afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    First,
    Second,
    Later,
    /// All frames together, nothing cached.
    Whole,
}

/// The caches of a coder, in the order in which its convolutions run.
#[derive(Debug, Default)]
pub(super) struct Caches {
    /// The cached tensor, how many frames it holds.
    entries: Vec<(Tensor, u64)>,
    next: usize,
    /// Where copies of weights are kept that autocast makes at their first use; `None` when they were made before.
    casts: Option<List>,
}

impl Caches {
    /// No caches yet; copies of weights go to `casts`.
    pub(super) fn casting(casts: Option<List>) -> Self {
        Self { casts, ..Self::default() }
    }

    /// Whether a convolution that runs in every chunk runs for the first time.
    fn first(&self, chunk: Chunk) -> Option<List> {
        self.casts.filter(|_| matches!(chunk, Chunk::First | Chunk::Whole))
    }

    /// The same for a convolution in time, which the first chunk leaves out.
    fn first_in_time(&self, chunk: Chunk) -> Option<List> {
        self.casts.filter(|_| matches!(chunk, Chunk::Second | Chunk::Whole))
    }

    /// Drops every cache, the last first, as a list does.
    pub(super) fn clear(&mut self, p: &mut Builder) {
        for (tensor, _) in self.entries.drain(..).rev() {
            p.release(tensor);
        }
    }
}

/// Kernel extents of a convolution.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kernel {
    time: u64,
    space: u64,
}

/// A convolution: output channels and kernel, frames before its input, and where copies of its weights go if they are made.
#[derive(Debug, Clone, Copy)]
pub(super) struct Convolution {
    pub(super) channels: u64,
    pub(super) kernel: Kernel,
    pub(super) cached: u64,
    pub(super) casts: Option<List>,
    pub(super) site: &'static Site,
}

pub(super) const POINT: Kernel = Kernel { time: 1, space: 1 };
const PLANE: Kernel = Kernel { time: 1, space: 3 };
const CUBE: Kernel = Kernel { time: 3, space: 3 };
const TIME: Kernel = Kernel { time: 3, space: 1 };

impl Coder {
    /// A coder of diffusers' class, with the workspaces of its convolutions.
    pub fn diffusers(vae: Vae, act: u64) -> Self {
        Self { vae, act, workspace: true, style: Style::Diffusers }
    }

    /// Bytes of an element of what goes in.
    fn input(&self) -> u64 {
        match self.style {
            Style::Diffusers => self.act,
            Style::FastVideo(casts) => casts.input,
        }
    }

    #[expect(clippy::unused_self, reason = "steps of a coder are called alike")]
    pub(super) fn map(&self, p: &mut Builder, site: &'static Site, m: Map) -> Tensor {
        p.alloc(
            site,
            &[("batch", m.batch), ("channels", m.channels), ("frames", m.frames), ("height", m.height), ("width", m.width)],
            m.element,
        )
    }

    /// The copies that autocast makes of a convolution's bias and weights: those that go when it is done.
    fn cast_weights(&self, p: &mut Builder, first: Option<List>, inputs: u64, outputs: u64, kernel: Kernel) -> Vec<Tensor> {
        let Style::FastVideo(casts) = self.style else { return Vec::new() };
        if casts.weights == WeightCasts::None || (casts.weights == WeightCasts::Kept && first.is_none()) {
            return Vec::new();
        }
        let bias = p.alloc(&CAST_WEIGHTS, &[("outputs", outputs)], self.act);
        let volume = kernel.time * kernel.space * kernel.space;
        let weights = p.alloc(&CAST_WEIGHTS, &[("outputs", outputs), ("inputs", inputs), ("kernel", volume)], self.act);
        match (casts.weights, first) {
            (WeightCasts::Kept, Some(list)) => {
                p.keep(list, bias);
                p.keep(list, weights);
                Vec::new()
            }
            _ => vec![bias, weights],
        }
    }

    /// The copy in the computed type that autocast makes of what a convolution is given.
    fn narrowed(&self, p: &mut Builder, x: Map) -> Option<Tensor> {
        (x.element != self.act).then(|| self.map(p, &NARROWED, x.of(self.act)))
    }

    /// The workspace of a convolution: copies of input, output and weights in channels-last order.
    fn workspace(&self, p: &mut Builder, x: Map, y: Map, kernel: Kernel) {
        if !self.workspace || kernel.space * kernel.time == 1 || x.channels == RGB {
            return;
        }
        let pad = |channels: u64| if self.act == FP32 { channels } else { pad8(channels) };
        let weights = pad(x.channels) * pad(y.channels) * kernel.time * kernel.space * kernel.space;
        let copies = x.with(pad(x.channels), x.frames).elements() + y.with(pad(y.channels), y.frames).elements() + weights;
        p.touch(&CONVOLUTION_WORKSPACE, &[("input, output and weights", copies + CUDNN_HEADER / self.act)], self.act);
    }

    /// A causal convolution of `x` (whose reference stays the caller's).
    pub(super) fn causal(&self, p: &mut Builder, x: Map, convolution: Convolution) -> (Tensor, Map) {
        let Convolution { channels, kernel, cached, casts, site } = convolution;
        let joined = (cached > 0).then(|| self.map(p, &JOINED, x.with(x.channels, x.frames + cached)));
        let border = kernel.space - 1;
        let padded = Map { frames: x.frames + kernel.time - 1, height: x.height + border, width: x.width + border, ..x };
        // Padding copies even where nothing is added.
        let pad = self.map(p, &PADDED, padded);
        if let Some(joined) = joined {
            p.release(joined);
        }
        let out = x.with(channels, x.frames).of(self.act);
        let weights = self.cast_weights(p, casts, x.channels, channels, kernel);
        let narrow = self.narrowed(p, padded);
        // Where nothing is added the copy keeps the order of its input, which after upsampling several frames is not the
        // convolution's.
        let reordered = (kernel.space * kernel.time == 1 && x.frames_first).then(|| {
            let site = if self.style == Style::Diffusers { &PADDED } else { &REORDERED };
            self.map(p, site, padded.of(self.act))
        });
        let y = self.map(p, site, out);
        if let Some(reordered) = reordered {
            p.release(reordered);
        }
        self.workspace(p, padded, out, kernel);
        for tensor in narrow.into_iter().chain(weights).chain([pad]) {
            p.release(tensor);
        }
        (y, out)
    }

    /// A cached causal convolution that drops its input.
    fn cached(&self, p: &mut Builder, caches: &mut Caches, chunk: Chunk, input: (Tensor, Map), channels: u64) -> (Tensor, Map) {
        let (x, m) = input;
        let convolution = Convolution { channels, kernel: CUBE, cached: 0, casts: caches.first(chunk), site: &FEATURES };
        if chunk == Chunk::Whole {
            let result = self.causal(p, m, convolution);
            p.release(x);
            return result;
        }
        let fresh = m.frames.min(2);
        let mut keep = self.map(p, &FEATURE_CACHE, m.with(m.channels, fresh));
        let mut held = fresh;
        let old = (chunk != Chunk::First).then(|| caches.entries[caches.next]);
        if fresh < 2 && old.is_some() {
            let joined = self.map(p, &FEATURE_CACHE, m.with(m.channels, 2));
            p.release(keep);
            keep = joined;
            held = 2;
        }
        let (y, out) = self.causal(p, m, Convolution { cached: old.map_or(0, |(_, frames)| frames), ..convolution });
        p.release(x);
        match old {
            Some((tensor, _)) => {
                p.replace(tensor, keep);
                caches.entries[caches.next].1 = held;
            }
            None => caches.entries.push((keep, held)),
        }
        caches.next += 1;
        (y, out)
    }

    /// An RMS norm over channels; the input's reference stays the caller's.
    fn norm(&self, p: &mut Builder, m: Map) -> (Tensor, Map) {
        if let Style::FastVideo(casts) = self.style {
            return self.norm_in_steps(p, m, if casts.autocast { FP32 } else { m.element });
        }
        let wide = (m.element != FP32).then(|| self.map(p, &NORM_FP32, m.of(FP32)));
        if m.channels >= WIDE {
            // PyTorch reduces over this many channels in two passes over a buffer.
            let buffer = self.map(p, &NORM_LENGTHS, m.of(8));
            p.release(buffer);
        }
        let lengths = m.with(1, m.frames).of(FP32);
        let length = self.map(p, &NORM_LENGTHS, lengths);
        let clamped = self.map(p, &NORM_LENGTHS, lengths);
        p.release(length);
        let mut normalised = self.map(p, if m.element == FP32 { &NORMED } else { &NORM_FP32 }, m.of(FP32));
        if let Some(wide) = wide {
            p.release(wide);
        }
        p.release(clamped);
        if m.element != FP32 {
            let narrow = self.map(p, &NORMED, m);
            p.release(normalised);
            normalised = narrow;
        }
        // Scale, gain and bias each make a new tensor.
        let scaled = self.map(p, &NORMED, m);
        let gained = self.map(p, &NORMED, m);
        p.release(scaled);
        let biased = self.map(p, &NORMED, m);
        p.release(gained);
        p.release(normalised);
        (biased, m)
    }

    /// FastVideo's RMS norm: division, scale, gain and bias one after the other, each a new tensor in place of the one before.
    /// Autocast gives the lengths in fp32, and everything after them.
    fn norm_in_steps(&self, p: &mut Builder, m: Map, element: u64) -> (Tensor, Map) {
        let out = m.of(element);
        if m.channels >= WIDE {
            let buffer = self.map(p, &REDUCTION, m.of(8));
            p.release(buffer);
        }
        let length = self.map(p, &NORM_LENGTHS, out.with(1, m.frames));
        let clamped = self.map(p, &NORM_LENGTHS, out.with(1, m.frames));
        p.release(length);
        let mut last = self.map(p, &NORMED, out);
        p.release(clamped);
        for _ in 0..3 {
            let next = self.map(p, &NORMED, out);
            p.release(last);
            last = next;
        }
        (last, out)
    }

    /// Norm and activation; drops `x`.
    fn norm_activate(&self, p: &mut Builder, x: Tensor, m: Map) -> (Tensor, Map) {
        let (normed, out) = self.norm(p, m);
        p.release(x);
        let y = self.map(p, &ACTIVATED, out);
        p.release(normed);
        (y, out)
    }

    /// A residual block; the input's reference stays the caller's.
    fn residual_block(&self, p: &mut Builder, caches: &mut Caches, chunk: Chunk, input: (Tensor, Map), channels: u64) -> (Tensor, Map) {
        let (x, m) = input;
        let shortcut = if m.channels == channels {
            p.retain(x)
        } else {
            self.causal(p, m, Convolution { channels, kernel: POINT, cached: 0, casts: caches.first(chunk), site: &FEATURES }).0
        };
        let x = p.retain(x);
        let activated = self.norm_activate(p, x, m);
        let (y, out) = self.cached(p, caches, chunk, activated, channels);
        let activated = self.norm_activate(p, y, out);
        let (y, out) = self.cached(p, caches, chunk, activated, channels);
        let sum = self.map(p, &FEATURES, out);
        p.release(y);
        p.release(shortcut);
        (sum, out)
    }

    /// Single-head attention over the positions of each frame; the input's reference stays the caller's.
    fn attention_block(&self, p: &mut Builder, caches: &Caches, chunk: Chunk, m: Map) -> Tensor {
        let copies = |of_kernel: &'static Site| if self.style == Style::Diffusers { &ATTENTION } else { of_kernel };
        // With one video at a time, putting frames before channels is a view.
        let (normed, wide) = self.norm(p, m);
        let three = m.with(3 * m.channels, m.frames);
        let weights = self.cast_weights(p, caches.first(chunk), m.channels, 3 * m.channels, POINT);
        let narrow = self.narrowed(p, wide);
        // Several frames, put before channels, are not in the convolution's order.
        let reordered = (self.style != Style::Diffusers && m.frames > 1).then(|| self.map(p, &REORDERED, m));
        let qkv = self.map(p, &QKV, three);
        for tensor in narrow.into_iter().chain(reordered).chain(weights) {
            p.release(tensor);
        }
        let contiguous = self.map(p, &QKV, three);
        p.release(qkv);
        let attended = self.map(p, &ATTENTION, m);
        if self.act != FP32 {
            // A head of this width is accumulated in fp32 outside the kernel.
            let accumulator = self.map(p, copies(&ATTENTION_WORKSPACE), m.of(FP32));
            p.release(accumulator);
        }
        p.release(normed);
        let weights = self.cast_weights(p, caches.first(chunk), m.channels, m.channels, POINT);
        // A single frame's attention output is not in the convolution's order.
        let reordered = (m.batch * m.frames == 1).then(|| self.map(p, copies(&REORDERED), m));
        let projected = self.map(p, &ATTENTION, m);
        if let Some(reordered) = reordered {
            p.release(reordered);
        }
        for tensor in weights.into_iter().chain([attended]) {
            p.release(tensor);
        }
        let sum = self.map(p, &FEATURES, m);
        p.release(projected);
        p.release(contiguous);
        sum
    }

    fn middle(&self, p: &mut Builder, caches: &mut Caches, chunk: Chunk, input: (Tensor, Map)) -> (Tensor, Map) {
        let channels = input.1.channels;
        let first = self.residual_block(p, caches, chunk, input, channels);
        let attended = (self.attention_block(p, caches, chunk, first.1), first.1);
        p.release(first.0);
        let second = self.residual_block(p, caches, chunk, attended, channels);
        p.release(attended.0);
        second
    }

    /// Upsampling by two in space and, with `time`, in time; the input's reference stays the caller's.
    fn upsample(
        &self,
        p: &mut Builder,
        caches: &mut Caches,
        chunk: Chunk,
        input: (Tensor, Map),
        channels: u64,
        time: bool,
    ) -> (Tensor, Map) {
        let (x, mut m) = input;
        let mut x = p.retain(x);
        if time {
            let convolution =
                Convolution { channels: 2 * m.channels, kernel: TIME, cached: 0, casts: caches.first_in_time(chunk), site: &FEATURES };
            if chunk == Chunk::First {
                // The first frame is not doubled; its place in the list of caches is only marked.
            } else if chunk == Chunk::Whole {
                let (y, out) = self.causal(p, m, convolution);
                p.release(x);
                m = out.with(m.channels, 2 * m.frames);
                x = self.map(p, &FEATURES, m);
                p.release(y);
            } else {
                let fresh = m.frames.min(2);
                let mut keep = self.map(p, &FEATURE_CACHE, m.with(m.channels, fresh));
                let old = (chunk == Chunk::Later).then(|| caches.entries[caches.next]);
                if fresh < 2 {
                    let zeros = (chunk == Chunk::Second).then(|| self.map(p, &FEATURE_CACHE, m.with(m.channels, fresh)));
                    let joined = self.map(p, &FEATURE_CACHE, m.with(m.channels, 2));
                    if let Some(zeros) = zeros {
                        p.release(zeros);
                    }
                    p.release(keep);
                    keep = joined;
                }
                let (y, out) = self.causal(p, m, Convolution { cached: old.map_or(0, |(_, frames)| frames), ..convolution });
                p.release(x);
                match old {
                    Some((tensor, _)) => p.replace(tensor, keep),
                    None => caches.entries.insert(caches.next, (keep, 2)),
                }
                caches.next += 1;
                m = out.with(m.channels, 2 * m.frames);
                let stacked = self.map(p, &FEATURES, m);
                p.release(y);
                x = stacked;
            }
        }
        if m.batch > 1 && m.frames > 1 {
            // Frames of several videos cannot be put before channels without a copy.
            let copy = self.map(p, &FEATURES, m);
            p.release(x);
            x = copy;
        }
        let big = m.scaled(2, 1);
        let wide = (m.element != FP32).then(|| self.map(p, &UPSAMPLED, m.of(FP32)));
        let mut up = self.map(p, &UPSAMPLED, big.of(FP32));
        if m.batch == 1 && m.frames > 1 {
            // The frames of one video lie apart in memory: the kernel wants them together.
            let site = if self.style == Style::Diffusers { &UPSAMPLED } else { &UPSAMPLE_WORKSPACE };
            let together = self.map(p, site, m.of(FP32));
            p.release(together);
        }
        if let Some(wide) = wide {
            p.release(wide);
            let narrow = self.map(p, &UPSAMPLED, big);
            p.release(up);
            up = narrow;
        }
        let out = big.with(channels, m.frames);
        let weights = self.cast_weights(p, caches.first(chunk), m.channels, channels, PLANE);
        let y = self.map(p, &FEATURES, out);
        self.workspace(p, big, out, PLANE);
        for tensor in weights.into_iter().chain([up, x]) {
            p.release(tensor);
        }
        (y, Map { frames_first: m.frames > 1, ..out })
    }

    /// The map of a latent with so many frames, as it is given to the decoder.
    pub(super) fn latent(&self, latent: Latent, frames: u64) -> Map {
        Map {
            batch: latent.batch,
            channels: self.vae.latent_channels,
            frames,
            height: latent.height,
            width: latent.width,
            element: self.input(),
            frames_first: false,
        }
    }

    /// The map of a clip of so many frames and pixels, as it is given to the encoder.
    fn pixels(&self, batch: u64, frames: u64, height: u64, width: u64) -> Map {
        let patch = self.vae.pixel_patch;
        Map {
            batch,
            channels: 3 * patch * patch,
            frames,
            height: height / patch,
            width: width / patch,
            element: self.input(),
            frames_first: false,
        }
    }

    /// The 1x1x1 convolution before the decoder, or after the encoder.
    pub(super) fn point(&self, p: &mut Builder, m: Map, casts: Option<List>) -> (Tensor, Map) {
        self.causal(p, m, Convolution { channels: m.channels, kernel: POINT, cached: 0, casts, site: &LATENT })
    }

    /// One chunk through the decoder; the result is what it adds to the video.
    pub(super) fn decode_chunk(&self, p: &mut Builder, caches: &mut Caches, chunk: Chunk, latent: Latent) -> (Tensor, Map) {
        caches.next = 0;
        let c = self.vae.decoder_channels;
        let input = self.latent(latent, if chunk == Chunk::Whole { latent.frames } else { 1 }).of(self.act);
        let slice = self.map(p, &LATENT, input.with(input.channels, 0));
        p.phase("decode_middle");
        let x = self.cached(p, caches, chunk, (slice, input), 4 * c);
        let mut x = {
            let y = self.middle(p, caches, chunk, x);
            p.release(x.0);
            y
        };
        // Widths of the four levels, from the latent to the pixels, and what follows each.
        let levels: [(u64, Option<bool>); 4] = [(4 * c, Some(true)), (4 * c, Some(true)), (2 * c, Some(false)), (c, None)];
        let names = ["decode_level_1", "decode_level_2", "decode_level_3", "decode_level_4"];
        for ((width, upsampler), name) in levels.into_iter().zip(names) {
            p.phase(name);
            let input = x;
            // diffusers' class copies the last level's input too, where no shortcut follows.
            let copied = self.vae.residual && (upsampler.is_some() || self.style == Style::Diffusers);
            let copy = copied.then(|| self.map(p, &SHORTCUT, input.1));
            let mut y = (p.retain(input.0), input.1);
            for _ in 0..3 {
                let next = self.residual_block(p, caches, chunk, y, width);
                p.release(y.0);
                y = next;
            }
            if let Some(time) = upsampler {
                let out = if self.vae.residual { width } else { width / 2 };
                let next = self.upsample(p, caches, chunk, y, out, time);
                p.release(y.0);
                y = next;
            }
            if let Some(copy) = copy {
                if let Some(time) = upsampler {
                    y = self.duplicate(p, y, input.1, time);
                }
                p.release(copy);
            }
            p.release(input.0);
            x = y;
        }
        p.phase("decode_head");
        let activated = self.norm_activate(p, x.0, x.1);
        self.cached(p, caches, chunk, activated, self.vae.output_channels)
    }

    /// Adds the shortcut of Wan 2.2: the level's input repeated to the size of its output.
    fn duplicate(&self, p: &mut Builder, y: (Tensor, Map), input: Map, time: bool) -> (Tensor, Map) {
        let factor = if time { 8 } else { 4 };
        let repeats = y.1.channels * factor / input.channels;
        let repeated = self.map(p, &SHORTCUT, input.with(input.channels * repeats, input.frames));
        let frames = input.frames * if time { 2 } else { 1 };
        let placed = self.map(p, &SHORTCUT, y.1.with(y.1.channels, frames));
        p.release(repeated);
        let sum = self.map(p, &FEATURES, y.1);
        p.release(placed);
        p.release(y.0);
        (sum, y.1)
    }

    /// Decodes a latent (a reference of the caller's) frame by frame. The result is the video.
    pub fn decode(&self, p: &mut Builder, latent: Latent) -> Tensor {
        p.phase("decode_input");
        let casts = p.list();
        let (quantised, _) = self.point(p, self.latent(latent, latent.frames), Some(casts));
        let mut caches = Caches::casting(Some(casts));
        let (mut video, first) = self.decode_chunk(p, &mut caches, Chunk::First, latent);
        let frame = |frames: u64| {
            [("batch", first.batch), ("channels", first.channels), ("frames", frames), ("height", first.height), ("width", first.width)]
        };
        // The loop's name for a chunk keeps it until the next one is there.
        let temporal = self.vae.temporal;
        let mut last = None;
        if latent.frames > 1 {
            let (part, _) = self.decode_chunk(p, &mut caches, Chunk::Second, latent);
            last = Some(part);
            p.phase("decode_output");
            let joined = p.alloc(&DECODED, &frame(1 + temporal), first.element);
            p.release(video);
            video = joined;
        }
        if let (Some(last), true) = (last, latent.frames > 2) {
            p.repeat(latent.frames - 2, |p| {
                let (part, _) = self.decode_chunk(p, &mut caches, Chunk::Later, latent);
                p.replace(last, part);
                p.phase("decode_output");
                let joined = p.alloc_growing(&DECODED, &frame(1 + 2 * temporal), first.element, &frame(temporal));
                p.replace(video, joined);
            });
        }
        let mut whole = first.with(first.channels, 1 + temporal * (latent.frames - 1));
        if self.vae.pixel_patch > 1 {
            let pixels = self.map(p, &DECODED, whole);
            p.release(video);
            video = pixels;
        }
        if self.style != Style::Diffusers && whole.element != FP32 {
            whole = whole.of(FP32);
            let wide = self.map(p, &DECODED, whole);
            p.release(video);
            video = wide;
        }
        let clamped = self.map(p, &DECODED, whole);
        p.release(video);
        caches.clear(p);
        p.release(quantised);
        if let Some(last) = last {
            p.release(last);
        }
        // Autocast ends with the call.
        p.release_list(casts);
        clamped
    }
}

impl Coder {
    /// The spatial tiles of a latent.
    pub(super) fn decode_tiles(&self, latent: Latent, tiling: &Tiling) -> Tiles {
        Tiles::new([latent.height, latent.width], tiling, self.vae.spatial)
    }

    /// Decodes in spatial tiles, each of the full length in time. Tiles stay until they are blended and joined.
    pub fn decode_tiled(&self, p: &mut Builder, latent: Latent, tiling: Tiling) -> Tensor {
        let spatial = self.vae.spatial;
        let grid = self.decode_tiles(latent, &tiling).admitted(p, 1);
        let (tiles, time) = (p.list(), p.list());
        for (height, many_rows) in &grid.rows {
            grid.repeat_rows(p, *many_rows, |p| {
                for (width, many_columns) in &grid.columns {
                    p.repeat_sampled(*many_columns, 1, 1, |p| {
                        self.tile(p, Latent { height: *height, width: *width, ..latent }, tiles, time);
                    });
                }
            });
        }
        p.phase("decode_merge");
        let scale = spatial / self.vae.pixel_patch;
        let frames = 1 + self.vae.temporal * (latent.frames - 1);
        let crop = |extent: u64, stride: u32, spans: &[(u64, u64)]| -> u64 {
            let stride = u64::from(stride) / spatial;
            spans.iter().map(|(size, many)| (*size).min(stride).min(extent) * many).sum::<u64>() * scale
        };
        let joined_width = crop(latent.width, tiling.stride[1], &grid.columns);
        let joined_height = crop(latent.height, tiling.stride[0], &grid.rows);
        let video = |height: u64, width: u64| Map {
            batch: latent.batch,
            channels: self.vae.output_channels,
            frames,
            height,
            width,
            element: self.act,
            frames_first: false,
        };
        let merged = p.list();
        for (height, many) in &grid.rows {
            let stride = u64::from(tiling.stride[0]) / spatial;
            p.repeat(*many, |p| {
                let row = self.map(p, &TILE, video((*height).min(stride) * scale, joined_width));
                p.keep(merged, row);
            });
        }
        let mut whole = self.map(p, &DECODED, video(joined_height, joined_width));
        let cropped = video(latent.height * scale, latent.width * scale);
        if self.vae.pixel_patch > 1 {
            let pixels = self.map(p, &DECODED, cropped);
            p.release(whole);
            whole = pixels;
        }
        let clamped = self.map(p, &DECODED, cropped);
        p.release(whole);
        for list in [merged, tiles, time] {
            p.release_list(list);
        }
        clamped
    }

    /// One tile: its chunks are kept in `time` until the next tile starts, the joined tile in `tiles`.
    fn tile(&self, p: &mut Builder, latent: Latent, tiles: List, time: List) {
        p.release_list(time);
        let mut caches = Caches::default();
        let one = self.latent(latent, 1);
        let mut step = |p: &mut Builder, chunk: Chunk| {
            p.phase("decode_input");
            let (quantised, _) = self.point(p, one, None);
            let (part, m) = self.decode_chunk(p, &mut caches, chunk, latent);
            p.release(quantised);
            p.keep(time, part);
            m
        };
        let first = step(p, Chunk::First);
        if latent.frames > 1 {
            step(p, Chunk::Second);
        }
        if latent.frames > 2 {
            p.repeat(latent.frames - 2, |p| {
                step(p, Chunk::Later);
            });
        }
        p.phase("decode_output");
        let joined = self.map(p, &TILE, first.with(first.channels, 1 + self.vae.temporal * (latent.frames - 1)));
        p.keep(tiles, joined);
        caches.clear(p);
    }

    /// Encodes `frames` frames of `height` x `width` pixels (a reference of the caller's): the result is the distribution of
    /// the latent, twice its channels.
    pub fn encode(&self, p: &mut Builder, batch: u64, frames: u64, height: u64, width: u64) -> Tensor {
        let encoded = self.encode_frames(p, batch, frames, height, width);
        encoded.release(p);
        encoded.moments
    }

    /// [`encode`](Self::encode) up to the last convolution, everything that it holds still there.
    pub(super) fn encode_frames(&self, p: &mut Builder, batch: u64, frames: u64, height: u64, width: u64) -> Encoded {
        let patch = self.vae.pixel_patch;
        let pixels = self.pixels(batch, frames, height, width);
        p.phase("encode_input");
        let patched = (patch > 1).then(|| self.map(p, &ENCODED, pixels));
        let casts = p.list();
        let mut caches = Caches::casting(Some(casts));
        let (mut out, m) = self.encode_chunk(p, &mut caches, Chunk::First, pixels.with(pixels.channels, 1));
        let chunk = pixels.with(pixels.channels, self.vae.temporal);
        let latent_frames = frames.saturating_sub(1) / self.vae.temporal + 1;
        let shape =
            |frames: u64| [("batch", m.batch), ("channels", m.channels), ("frames", frames), ("height", m.height), ("width", m.width)];
        let mut last = None;
        if latent_frames > 1 {
            let (part, _) = self.encode_chunk(p, &mut caches, Chunk::Second, chunk);
            last = Some(part);
            p.phase("encode_output");
            let joined = p.alloc(&LATENT, &shape(2), m.element);
            p.release(out);
            out = joined;
        }
        if let (Some(last), true) = (last, latent_frames > 2) {
            p.repeat(latent_frames - 2, |p| {
                let (part, _) = self.encode_chunk(p, &mut caches, Chunk::Later, chunk);
                p.replace(last, part);
                p.phase("encode_output");
                let joined = p.alloc_growing(&LATENT, &shape(3), m.element, &shape(1));
                p.replace(out, joined);
            });
        }
        let (moments, distribution) = self.point(p, m.with(m.channels, latent_frames), Some(casts));
        Encoded { moments, distribution, out, last, patched, caches, casts }
    }

    /// Whether pixels are more than a tile. The extents are compared after patches were put together.
    pub fn tiles(&self, [height, width]: [u64; 2], tiling: &Tiling) -> bool {
        height / self.vae.pixel_patch > u64::from(tiling.tile[0]) || width / self.vae.pixel_patch > u64::from(tiling.tile[1])
    }

    /// The spatial tiles of pixels.
    pub(super) fn encode_tiles(&self, [height, width]: [u64; 2], tiling: &Tiling) -> Tiles {
        let patch = self.vae.pixel_patch;
        Tiles::new([height / patch, width / patch], tiling, 1)
    }

    /// Encodes in spatial tiles, each of the full length in time.
    pub fn encode_tiled(&self, p: &mut Builder, batch: u64, frames: u64, [height, width]: [u64; 2], tiling: Tiling) -> Tensor {
        let patch = self.vae.pixel_patch;
        let grid = self.encode_tiles([height, width], &tiling).admitted(p, 1);
        let (height, width) = (height / patch, width / patch);
        let pixels = self.pixels(batch, frames, height * patch, width * patch);
        p.phase("encode_input");
        let patched = (patch > 1).then(|| self.map(p, &ENCODED, pixels));
        let latent_frames = frames.saturating_sub(1) / self.vae.temporal + 1;
        let (tiles, time) = (p.list(), p.list());
        for (tile_height, many_rows) in &grid.rows {
            grid.repeat_rows(p, *many_rows, |p| {
                for (tile_width, many_columns) in &grid.columns {
                    p.repeat_sampled(*many_columns, 1, 1, |p| {
                        p.release_list(time);
                        let mut caches = Caches::default();
                        let mut step = |p: &mut Builder, chunk: Chunk, frames: u64| {
                            let part = Map { height: *tile_height, width: *tile_width, ..pixels.with(pixels.channels, frames) };
                            let (part, m) = self.encode_chunk(p, &mut caches, chunk, part);
                            let (moments, m) = self.point(p, m, None);
                            p.release(part);
                            p.keep(time, moments);
                            m
                        };
                        let m = step(p, Chunk::First, 1);
                        if latent_frames > 1 {
                            step(p, Chunk::Second, self.vae.temporal);
                        }
                        if latent_frames > 2 {
                            p.repeat(latent_frames - 2, |p| {
                                step(p, Chunk::Later, self.vae.temporal);
                            });
                        }
                        p.phase("encode_output");
                        let joined = self.map(p, &LATENT, m.with(m.channels, latent_frames));
                        p.keep(tiles, joined);
                        caches.clear(p);
                    });
                }
            });
        }
        p.phase("encode_merge");
        let scale = self.vae.spatial / patch;
        let moments = Map {
            batch,
            channels: 2 * self.vae.latent_channels,
            frames: latent_frames,
            height: height / scale,
            width: width / scale,
            element: self.act,
            frames_first: false,
        };
        let merged = self.map(p, &LATENT, moments);
        let rows = self.map(p, &LATENT, moments);
        p.release(rows);
        for list in [tiles, time] {
            p.release_list(list);
        }
        if let Some(patched) = patched {
            p.release(patched);
        }
        merged
    }

    /// One chunk of pixels through the encoder.
    fn encode_chunk(&self, p: &mut Builder, caches: &mut Caches, chunk: Chunk, pixels: Map) -> (Tensor, Map) {
        caches.next = 0;
        let c = self.vae.encoder_channels;
        let slice = self.map(p, &ENCODED, pixels.with(pixels.channels, 0));
        p.phase("encode_level_1");
        let mut x = self.cached(p, caches, chunk, (slice, pixels), c);
        // Widths of the levels from the pixels to the latent, and how each ends: halved in space, in time too, or not at all.
        let levels: [(u64, Option<bool>); 4] = [(c, Some(false)), (2 * c, Some(true)), (4 * c, Some(true)), (4 * c, None)];
        let names = ["encode_level_1", "encode_level_2", "encode_level_3", "encode_level_4"];
        for ((width, down), name) in levels.into_iter().zip(names) {
            p.phase(name);
            let input = x;
            let copy = self.vae.residual.then(|| self.map(p, &SHORTCUT, input.1));
            let held = self.vae.residual.then(|| p.retain(input.0));
            for _ in 0..2 {
                let next = self.residual_block(p, caches, chunk, x, width);
                p.release(x.0);
                x = next;
            }
            if let Some(time) = down {
                let next = self.downsample(p, caches, chunk, x, time);
                p.release(x.0);
                x = next;
            }
            if let Some(copy) = copy {
                // Frames are filled up to a multiple of what is averaged.
                let step = if down == Some(true) { 2 } else { 1 };
                let filled = input.1.with(input.1.channels, input.1.frames.next_multiple_of(step));
                let padded = self.map(p, &SHORTCUT, filled);
                // Without anything to average over, putting neighbours together is a view.
                let ordered = if down.is_none() {
                    padded
                } else {
                    let ordered = self.map(p, &SHORTCUT, filled);
                    p.release(padded);
                    ordered
                };
                let mean = self.map(p, &SHORTCUT, x.1);
                p.release(ordered);
                let sum = self.map(p, &FEATURES, x.1);
                for tensor in [mean, x.0, copy] {
                    p.release(tensor);
                }
                x.0 = sum;
            }
            if let Some(held) = held {
                p.release(held);
            }
        }
        p.phase("encode_middle");
        let y = self.middle(p, caches, chunk, x);
        p.release(x.0);
        let activated = self.norm_activate(p, y.0, y.1);
        self.cached(p, caches, chunk, activated, 2 * self.vae.latent_channels)
    }

    /// Halving in space and, with `time`, in time; the input's reference stays the caller's.
    #[expect(clippy::many_single_char_names, reason = "as in the class")]
    fn downsample(&self, p: &mut Builder, caches: &mut Caches, chunk: Chunk, input: (Tensor, Map), time: bool) -> (Tensor, Map) {
        let (x, m) = input;
        let x = p.retain(x);
        let border = Map { height: m.height + 1, width: m.width + 1, ..m };
        let pad = self.map(p, &PADDED, border);
        let half = m.scaled(1, 2);
        let weights = self.cast_weights(p, caches.first(chunk), m.channels, m.channels, PLANE);
        let y = self.map(p, &FEATURES, half);
        self.workspace(p, border, half, PLANE);
        for tensor in weights.into_iter().chain([pad, x]) {
            p.release(tensor);
        }
        if !time {
            return (y, Map { frames_first: half.frames > 1, ..half });
        }
        if chunk == Chunk::First {
            let clone = self.map(p, &FEATURE_CACHE, half);
            caches.entries.push((clone, 1));
            caches.next += 1;
            return (y, half);
        }
        let keep = self.map(p, &FEATURE_CACHE, half.with(half.channels, 1));
        let joined = half.with(half.channels, half.frames + 1);
        let with_last = self.map(p, &JOINED, joined);
        let pad = self.map(p, &PADDED, joined);
        let out = half.with(half.channels, half.frames / 2);
        let weights = self.cast_weights(p, caches.first_in_time(chunk), half.channels, half.channels, TIME);
        let z = self.map(p, &FEATURES, out);
        self.workspace(p, joined, out, TIME);
        for tensor in weights.into_iter().chain([pad, with_last]) {
            p.release(tensor);
        }
        p.release(y);
        p.replace(caches.entries[caches.next].0, keep);
        caches.next += 1;
        (z, out)
    }
}

/// A clip encoded, with what its encoder still holds.
#[derive(Debug)]
pub(super) struct Encoded {
    /// The distribution of the latent: twice its channels.
    pub(super) moments: Tensor,
    pub(super) distribution: Map,
    out: Tensor,
    last: Option<Tensor>,
    patched: Option<Tensor>,
    caches: Caches,
    casts: List,
}

impl Encoded {
    /// Drops everything but the moments.
    pub(super) fn release(&self, p: &mut Builder) {
        for (tensor, _) in self.caches.entries.iter().rev() {
            p.release(*tensor);
        }
        for tensor in [self.out].into_iter().chain(self.last).chain(self.patched) {
            p.release(tensor);
        }
        p.release_list(self.casts);
    }
}

#[cfg(test)]
mod tests {
    use super::super::simulated::program;
    use super::*;
    use crate::caching::Config;
    use crate::program::{Model, Sampling, Timeline};

    fn tiling(tile: u32, stride: u32) -> Tiling {
        Tiling { tile: [tile; 2], stride: [stride; 2], temporal: None }
    }

    /// Peaks over all phases: live, tensors, allocated, reserved.
    fn peaks(timeline: &Timeline) -> [u64; 4] {
        let most = |figure: fn(&crate::program::Peak) -> u64| timeline.phases.iter().map(figure).max().unwrap_or(0);
        [most(|p| p.live), most(|p| p.tensors), most(|p| p.allocated), most(|p| p.reserved)]
    }

    #[test]
    fn tiles_that_are_counted_come_to_what_those_placed_do() {
        let coder = Coder::diffusers(Vae::WAN21, 4);
        // As many as are placed, and twice as many, which are counted: twice the tiles are twice the memory.
        let run = |height: u64, width: u64| {
            let latent = Latent { batch: 1, frames: 1, height, width };
            let counted = coder.decode_tiles(latent, &tiling(16, 8)).is_counted();
            let program = program(|p| {
                let video = coder.decode_tiled(p, latent, tiling(16, 8));
                p.release(video);
            });
            (counted, peaks(&program.run(&Model::Caching(Config::default()), Sampling::Ends)))
        };
        let (placed, one) = run(128, 128);
        let (also_placed, half) = run(64, 128);
        let (counted, two) = run(256, 128);
        assert!(!placed && !also_placed && counted);
        for (i, what) in ["live", "tensors", "allocated"].into_iter().enumerate() {
            // Growth is in proportion to the rows, to the byte.
            assert_eq!(two[i] - one[i], 2 * (one[i] - half[i]), "{what}");
        }
        // What the allocator holds for them is at least that, and not much more.
        let (held, used) = (two[3] - one[3], two[2] - one[2]);
        assert!(held >= used && held <= used + used / 4, "reserved: {held} for {used}");
    }

    #[test]
    fn a_program_does_not_grow_with_its_tiles() {
        let coder = Coder::diffusers(Vae::WAN21, 4);
        let length = |side: u64| {
            let latent = Latent { batch: 1, frames: 21, height: side, width: side };
            program(|p| {
                let video = coder.decode_tiled(p, latent, tiling(16, 8));
                p.release(video);
            })
            .len()
        };
        assert_eq!(length(64), length(2048));
    }

    #[test]
    fn tiles_beyond_what_is_evaluated_are_refused() {
        let coder = Coder::diffusers(Vae::WAN21, 4);
        let latent = |side: u64| Latent { batch: 1, frames: 21, height: side, width: side };
        let refused = |side: u64, tile: u32, stride: u32| coder.decode_tiles(latent(side), &tiling(tile, stride)).refusal(1);
        for (side, tile, stride) in [(60, 256, 192), (2048, 256, 192), (2048, 16, 8), (2048, 128, 8)] {
            assert_eq!(refused(side, tile, stride), None, "{side} {tile} {stride}");
        }
        for (side, tile, stride) in [(2048, 256, 8), (2048, 16_384, 8), (100, 1024, 8)] {
            assert_eq!(refused(side, tile, stride).map(|reason| reason.code).as_deref(), Some("too-many-tiles"), "{side} {tile} {stride}");
        }
        let pixels = |side: u64, tile: u32| coder.encode_tiles([side; 2], &tiling(tile, 8)).refusal(1).is_some();
        assert!(!pixels(16_384, 64) && pixels(16_384, 512));
    }
}
