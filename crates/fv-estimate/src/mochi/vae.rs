//! `AutoencoderKLMochi` (diffusers 0.42.1): decoding and encoding, run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `autoencoder_kl_mochi.py` and, for convolutions,
//! `CogVideoXCausalConv3d` with replicated borders. All frames of a video are decoded together (`use_framewise_decoding` is off), in
//! tiles where tiling is on. Convolutions over more than 2^30 values are cut in time; norms take eight frames at a time.

use fv_spec::compiled::ExpandedComponent;

use super::geometry::{LATENT_CHANNELS, Latent, SPATIAL, TEMPORAL};
use crate::forecast::operations::Decoder;
use crate::modules::FP32;
use crate::modules::maps::{Map, copies_workspace, refuse_short_parts};
use crate::modules::parameter::{Parameter, plain};
use crate::modules::tiles::Tiles;
use crate::program::{Builder, List, Site, Tensor, sites};
use crate::settings::Tiling;

sites! { "mochi.vae.convolution":
    FEATURES "features" Activation;
    PADDED "padded features" Activation;
    PIECE "features of a part in time" Activation;
    REORDERED "features in one piece" Workspace;
    WORKSPACE "convolution workspace" Workspace;
}
sites! { "mochi.vae.norm":
    NORMED "normed features" Activation;
    ACTIVATED "activated features" Activation;
}
sites! { "mochi.vae.attention":
    QKV "query, key and value" Activation;
    ATTENTION "attention output" Activation;
}
sites! { "mochi.vae.input":
    WAVES "waves of pixels" Activation;
    LATENT "latent" Activation;
}
sites! { "mochi.vae.resample":
    PROJECTED "projected features" Activation;
}
sites! { "mochi.vae.output":
    TILE "decoded tile" Output;
    DECODED "decoded video" Output;
}

/// Operations of decoding, counted by running diffusers' class on the meta device at several sizes.
pub const DECODER: Decoder = Decoder { first: 94_830_000, each: 15_805_000 };

/// Height, width and frames of what a latent decodes to.
pub fn pixels(latent: &Latent) -> [u64; 3] {
    [latent.height * SPATIAL, latent.width * SPATIAL, latent.frames.saturating_sub(1) * TEMPORAL + 1]
}

/// The decoder's levels, from the latent to the pixels: width, residual blocks, and how much the level after it is longer and wider.
const LEVELS: [(u64, u64, u64, u64); 3] = [(768, 6, 3, 2), (512, 4, 2, 2), (256, 3, 1, 2)];
/// Width of the last blocks.
const LAST: u64 = 128;
/// Residual blocks before the first level and after the last.
const ENDS: u64 = 3;
/// The encoder's levels, from the pixels to the latent: width, residual blocks, and the kernel of the convolution before them.
const ENCODER: [(u64, u64, u64); 4] = [(64, 3, 1), (128, 3, 4), (256, 4, 8), (384, 6, 12)];
/// What `FourierFeatures` makes of a channel: itself, and sines and cosines of two frequencies.
const FOURIER: u64 = 5;
/// Channels of a frame.
const RGB: u64 = 3;
/// Frames that a norm takes at a time (`chunk_size`).
const CHUNK: u64 = 8;
/// Width of a head of the encoder's attention.
const HEAD: u64 = 32;
/// Positions that attention over frames takes at a time.
const POSITIONS: u64 = 1 << 15;
/// Values of a convolution's input above which it is cut in time: 2 GiB of two bytes each (`CogVideoXSafeConv3d`).
const CUT: u64 = 1 << 30;
/// Tile sizes of the class.
pub const TILING: Tiling = Tiling { tile: [256, 256], stride: [192, 192], temporal: None };

/// A coder: the VAE at a precision, tiled or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coder {
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// Whether space is cut into tiles, and how.
    pub tiling: Option<Tiling>,
}

/// A map and a reference to it.
type Held = (Tensor, Map);

impl Coder {
    /// A causal convolution over three frames, rows and columns; the input's reference stays the caller's.
    fn causal(p: &mut Builder, m: Map) -> Tensor {
        let padded = Map { frames: m.frames + 2, height: m.height + 2, width: m.width + 2, ..m };
        Self::convolved(p, padded, 3, 27, |input| m.with_frames(input.frames.saturating_sub(2)))
    }

    /// The convolution before a level of the encoder, of as many frames, rows and columns as it makes one of.
    fn reduced(p: &mut Builder, m: Map, channels: u64, time: u64) -> Held {
        let padded = m.with_frames(m.frames + time - 1);
        let out = |input: Map| Map {
            channels,
            frames: input.frames.saturating_sub(time) / time + 1,
            height: m.height / 2,
            width: m.width / 2,
            ..m
        };
        (Self::convolved(p, padded, time, 4 * time, out), out(padded))
    }

    /// `CogVideoXSafeConv3d` over `time` frames of a padded input, which is made and dropped; `out` gives the output's extents.
    fn convolved(p: &mut Builder, padded: Map, time: u64, volume: u64, out: impl Fn(Map) -> Map) -> Tensor {
        let pad = padded.alloc(p, &PADDED);
        let y = if padded.elements() > CUT {
            Self::cut(p, padded, time, volume, out)
        } else {
            let y = out(padded).alloc(p, &FEATURES);
            copies_workspace(p, &WORKSPACE, padded, out(padded), volume);
            y
        };
        p.release(pad);
        y
    }

    /// A convolution cut in time: parts of its input, each but the first with the last frames of the one before, and their outputs
    /// joined.
    fn cut(p: &mut Builder, padded: Map, time: u64, volume: u64, out: impl Fn(Map) -> Map) -> Tensor {
        let parts = padded.elements() / CUT + 1;
        let size = padded.frames.div_ceil(parts).max(1);
        refuse_short_parts(p, size, time);
        let sizes: Vec<u64> = (0..padded.frames.div_ceil(size)).map(|i| size.min(padded.frames - i * size)).collect();
        let input = |i: usize| padded.with_frames(sizes[i] + if i == 0 { 0 } else { time - 1 });
        // Parts that are views; the convolution wants them in one piece.
        let view = |i: usize| i == 0 || time == 1;
        let (inputs, outputs) = (p.list(), p.list());
        let mut last = None;
        for i in (0..sizes.len()).filter(|i| !view(*i)) {
            let piece = input(i).alloc(p, &PIECE);
            if i + 1 == sizes.len() {
                last = Some(piece);
            } else {
                p.keep(inputs, piece);
            }
        }
        for i in 0..sizes.len() {
            let copy = view(i).then(|| input(i).alloc(p, &REORDERED));
            let y = out(input(i)).alloc(p, &FEATURES);
            copies_workspace(p, &WORKSPACE, input(i), out(input(i)), volume);
            if let Some(copy) = copy {
                p.release(copy);
            }
            p.keep(outputs, y);
        }
        let whole = out(padded).alloc(p, &FEATURES);
        p.release_list(inputs);
        p.release_list(outputs);
        if let Some(last) = last {
            p.release(last);
        }
        whole
    }

    /// `MochiChunkedGroupNorm3D`; its input stays.
    fn norm(p: &mut Builder, m: Map) -> Tensor {
        // Frames come before channels: of several videos that is a copy of all, of one a copy of each part.
        let copy = (m.batch > 1 && m.frames > 1).then(|| m.alloc(p, &FEATURES));
        let chunks = p.list();
        let images = m.batch * m.frames;
        let chunk = |p: &mut Builder, frames: u64| {
            let part = Map { batch: 1, frames, ..m };
            let piece = (copy.is_none() && m.frames > 1).then(|| part.alloc(p, &REORDERED));
            let normed = part.alloc(p, &NORMED);
            if let Some(piece) = piece {
                p.release(piece);
            }
            p.keep(chunks, normed);
        };
        p.repeat(images / CHUNK, |p| chunk(p, CHUNK));
        if !images.is_multiple_of(CHUNK) {
            chunk(p, images % CHUNK);
        }
        let normed = m.alloc(p, &NORMED);
        p.release_list(chunks);
        if let Some(copy) = copy {
            p.release(copy);
        }
        normed
    }

    /// A norm and an activation; `x` is dropped once it is normed.
    fn norm_activate(p: &mut Builder, x: Tensor, m: Map) -> Tensor {
        let normed = Self::norm(p, m);
        p.release(x);
        let y = m.alloc(p, &ACTIVATED);
        p.release(normed);
        y
    }

    /// `MochiResnetBlock3D`; its input stays the caller's.
    fn residual_block(p: &mut Builder, (x, m): Held) -> Tensor {
        let first = p.retain(x);
        let mut y = first;
        for _ in 0..2 {
            let activated = Self::norm_activate(p, y, m);
            y = Self::causal(p, m);
            p.release(activated);
        }
        let sum = m.alloc(p, &FEATURES);
        p.release(y);
        sum
    }

    /// So many residual blocks; their input stays the caller's.
    fn residual_blocks(p: &mut Builder, (x, m): Held, count: u64) -> Tensor {
        let y = Self::residual_block(p, (x, m));
        p.repeat_sampled(count.saturating_sub(1), 2, 0, |p| {
            let next = Self::residual_block(p, (y, m));
            p.replace(y, next);
        });
        y
    }

    /// A linear layer over channels, which come before positions: of several videos, or without a bias, that takes a copy.
    fn linear(p: &mut Builder, site: &'static Site, m: Map, channels: u64, biased: bool) -> Tensor {
        let copy = (m.batch > 1 || !biased).then(|| m.alloc(p, &REORDERED));
        let y = m.with_channels(channels).alloc(p, site);
        if let Some(copy) = copy {
            p.release(copy);
        }
        y
    }

    /// The decoder over one tile of a latent.
    fn decode_tile(p: &mut Builder, latent: Map) -> Held {
        p.phase("decode_middle");
        let mut m = latent.with_channels(LEVELS[0].0);
        let mut x = m.alloc(p, &FEATURES);
        let y = Self::residual_blocks(p, (x, m), ENDS);
        p.release(x);
        x = y;
        let next = [LEVELS[1].0, LEVELS[2].0, LAST];
        for (((_, blocks, time, space), channels), name) in
            LEVELS.into_iter().zip(next).zip(["decode_level_1", "decode_level_2", "decode_level_3"])
        {
            p.phase(name);
            let y = Self::residual_blocks(p, (x, m), blocks);
            let projected = Self::linear(p, &PROJECTED, m, channels * time * space * space, true);
            p.release(y);
            m = m.with(channels, m.frames * time).sized(m.height * space, m.width * space);
            let unpacked = m.alloc(p, &FEATURES);
            p.release(projected);
            p.release(x);
            x = unpacked;
        }
        p.phase("decode_level_4");
        let y = Self::residual_blocks(p, (x, m), ENDS);
        p.release(x);
        p.phase("decode_head");
        let activated = m.alloc(p, &ACTIVATED);
        p.release(y);
        let decoded = Self::linear(p, &TILE, m, RGB, true);
        p.release(activated);
        (decoded, m.with_channels(RGB))
    }

    /// Decodes a latent, whose reference stays the caller's.
    pub fn decode(&self, p: &mut Builder, latent: Latent) -> Tensor {
        let Latent { batch, frames, height, width } = latent;
        let m = Map { batch, channels: LATENT_CHANNELS, frames, height, width, element: self.act };
        match self.tiling.filter(|tiling| Tiles::several([height, width], tiling, SPATIAL)) {
            Some(tiling) => self.tiled(p, m, tiling, false),
            None => Self::decode_tile(p, m).0,
        }
    }

    /// Encodes a video of batch, frames, height and width, whose reference stays the caller's: the distribution of its latent.
    pub fn encode(&self, p: &mut Builder, [batch, frames, height, width]: [u64; 4]) -> Tensor {
        let m = Map { batch, channels: RGB, frames, height, width, element: self.act };
        match self.tiling.filter(|tiling| Tiles::several([height, width], tiling, 1)) {
            Some(tiling) => self.tiled(p, m, tiling, true),
            None => self.encode_tile(p, m).0,
        }
    }

    /// `FourierFeatures`, in fp32: sines and cosines of two frequencies of each channel, beside the channels.
    fn fourier(&self, p: &mut Builder, m: Map) -> Held {
        let waves = m.with_channels(2 * RGB);
        let widened = (self.act != FP32).then(|| m.of(FP32).alloc(p, &FEATURES));
        let repeated = waves.of(FP32).alloc(p, &WAVES);
        let scaled = waves.of(FP32).alloc(p, &WAVES);
        p.release(repeated);
        let [sines, cosines] = [(); 2].map(|()| waves.of(FP32).alloc(p, &WAVES));
        let out = m.with_channels(FOURIER * RGB);
        let mut y = out.of(FP32).alloc(p, &WAVES);
        p.release(cosines);
        p.release(sines);
        if self.act != FP32 {
            let narrow = out.alloc(p, &WAVES);
            p.release(y);
            y = narrow;
        }
        for tensor in widened.into_iter().chain([scaled]) {
            p.release(tensor);
        }
        (y, out)
    }

    /// Attention over the frames of so many positions, by itself: causal, its query and key normalised.
    fn frames_attention(p: &mut Builder, positions: u64, m: Map) -> Tensor {
        let part = Map { batch: 1, height: positions, width: 1, ..m };
        if m.frames == 1 {
            let value = part.alloc(p, &QKV);
            let out = part.alloc(p, &ATTENTION);
            p.release(value);
            let scaled = part.alloc(p, &ATTENTION);
            p.release(out);
            return scaled;
        }
        let [query, key, value] = [(); 3].map(|()| part.alloc(p, &QKV));
        let [query, key] = [query, key].map(|x| {
            let length = part.with_channels(m.channels / HEAD).alloc(p, &QKV);
            let bounded = part.with_channels(m.channels / HEAD).alloc(p, &QKV);
            p.release(length);
            let normed = part.alloc(p, &QKV);
            p.release(bounded);
            p.release(x);
            normed
        });
        let attended = part.alloc(p, &ATTENTION);
        let out = part.alloc(p, &ATTENTION);
        p.release(attended);
        let scaled = part.alloc(p, &ATTENTION);
        for tensor in [out, query, key, value] {
            p.release(tensor);
        }
        scaled
    }

    /// Norm, attention over frames, so many positions at a time where `chunks` keeps the parts, and the sum with its input, which stays.
    fn attention(p: &mut Builder, m: Map, chunks: Option<[List; 2]>) -> Tensor {
        let normed = Self::norm(p, m);
        let contiguous = m.alloc(p, &NORMED);
        p.release(normed);
        let positions = m.batch * m.height * m.width;
        let attended = match chunks.filter(|_| positions > POSITIONS) {
            Some([chunks, last]) => {
                // The names of the parts keep those of the block before until now.
                p.release_list(chunks);
                p.release_list(last);
                let before = positions.div_ceil(POSITIONS) - 1;
                p.repeat(before, |p| {
                    let part = Self::frames_attention(p, POSITIONS, m);
                    p.keep(chunks, part);
                });
                let part = Self::frames_attention(p, positions - before * POSITIONS, m);
                p.keep(last, part);
                m.alloc(p, &ATTENTION)
            }
            None => Self::frames_attention(p, positions, m),
        };
        p.release(contiguous);
        let sum = m.alloc(p, &FEATURES);
        p.release(attended);
        sum
    }

    /// So many residual blocks, each with attention after it; drops `x`, or leaves it to the caller where it is `held`.
    fn attended_blocks(p: &mut Builder, (x, m): Held, count: u64, chunked: bool, held: bool) -> Tensor {
        // The name of a residual keeps it until the next one is there.
        let (residuals, chunks, last) = (p.list(), p.list(), p.list());
        let parts = chunked.then_some([chunks, last]);
        let attend = |p: &mut Builder, y: Tensor| {
            p.release_list(residuals);
            let sum = Self::attention(p, m, parts);
            p.keep(residuals, y);
            sum
        };
        let first = Self::residual_block(p, (x, m));
        if !held {
            p.release(x);
        }
        let y = attend(p, first);
        p.repeat_sampled(count.saturating_sub(1), 2, 0, |p| {
            let next = Self::residual_block(p, (y, m));
            p.replace(y, next);
            let sum = attend(p, y);
            p.rebind(y, sum);
        });
        for list in [residuals, chunks, last] {
            p.release_list(list);
        }
        y
    }

    /// The encoder over one tile of a video; the result is the distribution of its latent.
    fn encode_tile(&self, p: &mut Builder, pixels: Map) -> Held {
        p.phase("encode_input");
        let (waves, m) = self.fourier(p, pixels);
        let mut x = Self::linear(p, &FEATURES, m, ENCODER[0].0, true);
        p.release(waves);
        let mut m = m.with_channels(ENCODER[0].0);
        p.phase("encode_level_1");
        let y = Self::residual_blocks(p, (x, m), ENCODER[0].1);
        p.release(x);
        x = y;
        for ((width, blocks, volume), name) in ENCODER.into_iter().skip(1).zip(["encode_level_2", "encode_level_3", "encode_level_4"]) {
            p.phase(name);
            let reduced = Self::reduced(p, m, width, volume / 4);
            m = reduced.1;
            let y = Self::attended_blocks(p, reduced, blocks, true, false);
            p.release(x);
            x = y;
        }
        p.phase("encode_middle");
        let y = Self::attended_blocks(p, (x, m), ENDS, false, true);
        p.release(x);
        p.phase("encode_head");
        let activated = Self::norm_activate(p, y, m);
        let moments = Self::linear(p, &LATENT, m, 2 * LATENT_CHANNELS, false);
        p.release(activated);
        (moments, m.with_channels(2 * LATENT_CHANNELS))
    }

    /// `tiled_decode` and `tiled_encode`: tiles stay until they are joined to rows and those to the whole. A decoded tile keeps the
    /// frames that are cut from it.
    fn tiled(&self, p: &mut Builder, m: Map, tiling: Tiling, encode: bool) -> Tensor {
        let compression = if encode { 1 } else { SPATIAL };
        let grid = Tiles::new([m.height, m.width], &tiling, compression).admitted(p, 1);
        let [row_stride, column_stride] = tiling.stride.map(|side| u64::from(side) / compression);
        let mut out = m;
        let (tiles, last_tiles, joined) = (p.list(), p.list(), p.list());
        // The loop's name for a row keeps the last one longer than the others.
        let [before, last] = grid.but_the_last_row();
        for (list, rows) in [(tiles, before), (last_tiles, last)] {
            for (height, many) in rows {
                grid.repeat_rows(p, many, |p| {
                    for (width, many) in &grid.columns {
                        let width = *width;
                        p.repeat_sampled(*many, 1, 1, |p| {
                            let part = Map { height, width, ..m };
                            let (tile, size) = if encode { self.encode_tile(p, part) } else { Self::decode_tile(p, part) };
                            p.keep(list, tile);
                            out = size;
                        });
                    }
                });
            }
        }
        p.phase("merge");
        let scale = |extent: u64| if encode { extent / SPATIAL } else { extent * SPATIAL };
        let [height, width] = [Tiles::joined(&grid.rows, row_stride, scale), Tiles::joined(&grid.columns, column_stride, scale)];
        let frames = if encode { out.frames } else { out.frames.saturating_sub(TEMPORAL - 1) };
        let whole = out.with_frames(frames).sized(height, width);
        for (height, many) in &grid.rows {
            p.repeat(*many, |p| {
                let row = whole.sized(scale((*height).min(row_stride)), width).alloc(p, &TILE);
                p.keep(joined, row);
            });
        }
        let y = whole.alloc(p, &DECODED);
        for list in [tiles, joined, last_tiles] {
            p.release_list(list);
        }
        y
    }
}

/// The parameters of the VAE, encoder first.
pub fn tensors() -> Vec<Parameter> {
    let mut list = Vec::new();
    let linear = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64| list.extend([plain(inputs * outputs), plain(outputs)]);
    let residual = |list: &mut Vec<Parameter>, width: u64| {
        for _ in 0..2 {
            list.extend([plain(width); 2]);
            list.extend([plain(27 * width * width), plain(width)]);
        }
    };
    let attention = |list: &mut Vec<Parameter>, width: u64| {
        list.extend([plain(width * width); 3]);
        linear(list, width, width);
    };
    // The encoder: widths, blocks, and the volume of the convolution before each level.
    let (first, levels) = (ENCODER[0].0, &ENCODER[1..]);
    linear(&mut list, FOURIER * RGB, first);
    (0..ENDS).for_each(|_| residual(&mut list, first));
    let mut inputs = first;
    for (width, blocks, volume) in levels {
        list.extend([plain(inputs * width * volume), plain(*width)]);
        (0..*blocks).for_each(|_| residual(&mut list, *width));
        (0..*blocks).for_each(|_| list.extend([plain(*width); 2]));
        (0..*blocks).for_each(|_| attention(&mut list, *width));
        inputs = *width;
    }
    (0..ENDS).for_each(|_| residual(&mut list, inputs));
    (0..ENDS).for_each(|_| list.extend([plain(inputs); 2]));
    (0..ENDS).for_each(|_| attention(&mut list, inputs));
    list.extend([plain(inputs), plain(inputs), plain(inputs * 2 * LATENT_CHANNELS)]);

    linear(&mut list, LATENT_CHANNELS, LEVELS[0].0);
    (0..ENDS).for_each(|_| residual(&mut list, LEVELS[0].0));
    for ((width, blocks, time, space), outputs) in LEVELS.into_iter().zip([LEVELS[1].0, LEVELS[2].0, LAST]) {
        (0..blocks).for_each(|_| residual(&mut list, width));
        linear(&mut list, width, outputs * time * space * space);
    }
    (0..ENDS).for_each(|_| residual(&mut list, LAST));
    linear(&mut list, LAST, RGB);
    list
}

/// Checks that a component of the catalog is the VAE.
///
/// # Errors
/// Where it has another number of parameters.
pub fn check(component: &ExpandedComponent) -> Result<(), String> {
    let (sum, counted) = (tensors().iter().map(|p| p.elements).sum::<u64>(), component.parameter_count.get());
    if sum == counted { Ok(()) } else { Err(format!("a VAE of {counted} parameters is not Mochi's, which has {sum}")) }
}
