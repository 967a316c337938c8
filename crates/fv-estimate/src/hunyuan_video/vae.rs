//! `AutoencoderKLHunyuanVideo` (diffusers 0.42.1): decoding and encoding, run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `autoencoder_kl_hunyuan_video.py`. Videos of more frames
//! than a tile are always cut in time (`use_framewise_decoding` and `use_framewise_encoding` are on), those larger than a tile in
//! space where tiling is on. The attention in the middle is over all positions of a tile, with a causal mask of every pair of them.

use fv_spec::compiled::ExpandedComponent;

use super::geometry::{LATENT_CHANNELS, Latent, SPATIAL, TEMPORAL};
use crate::forecast::operations::Decoder;
use crate::modules::FP32;
use crate::modules::maps::{Map, copies_workspace};
use crate::modules::parameter::{Parameter, plain};
use crate::modules::tiles::{Tiles, spans};
use crate::program::{Builder, Tensor, sites};
use crate::settings::Tiling;

sites! { "hunyuan_video.vae.convolution":
    FEATURES "features" Activation;
    PADDED "padded features" Activation;
    WORKSPACE "convolution workspace" Workspace;
}
sites! { "hunyuan_video.vae.norm":
    NORMED "normed features" Activation;
    ACTIVATED "activated features" Activation;
}
sites! { "hunyuan_video.vae.attention":
    MASK "causal mask" Activation;
    MASK_WORKSPACE "causal mask, rows aligned" Workspace;
    QKV "query, key and value" Activation;
    ATTENTION "attention output" Activation;
    ACCUMULATOR "attention accumulator" Workspace;
}
sites! { "hunyuan_video.vae.resample":
    UPSAMPLED "upsampled features" Activation;
    FRAME "frame in one piece" Workspace;
}
sites! { "hunyuan_video.vae.output":
    LATENT "latent" Activation;
    TILE "decoded tile" Output;
    DECODED "decoded video" Output;
}

/// Operations of decoding, counted by running diffusers' class on the meta device at several sizes.
pub const DECODER: Decoder = Decoder { first: -34_900_000, each: 24_690_000 };

/// Height, width and frames of what a latent decodes to.
pub fn pixels(latent: &Latent) -> [u64; 3] {
    [latent.height * SPATIAL, latent.width * SPATIAL, latent.frames.saturating_sub(1) * TEMPORAL + 1]
}

/// Widths of the levels, from the pixels to the latent (`block_out_channels`).
const WIDTHS: [u64; 4] = [128, 256, 512, 512];
/// Channels of a frame.
const RGB: u64 = 3;
/// Tile sizes of the class: pixels, and frames.
pub const TILING: Tiling = Tiling { tile: [256, 256], stride: [192, 192], temporal: Some([16, 12]) };
/// Positions to which the attention kernel aligns the rows of its bias.
const ALIGNED: u64 = 8;

/// A coder: the VAE at a precision, tiled or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coder {
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// Whether space is cut into tiles, and how.
    pub tiling: Option<Tiling>,
}

/// Positions of one video of a map.
fn positions(m: Map) -> u64 {
    m.frames * m.height * m.width
}

/// A map and a reference to it.
type Held = (Tensor, Map);

/// Which levels halve or double frames: none nearest to the pixels, then one, both, and none of the last.
fn in_time(level: usize) -> bool {
    matches!(level, 1 | 2)
}

impl Coder {
    /// A causal convolution over three frames, rows and columns; the input's reference stays the caller's.
    fn causal(p: &mut Builder, m: Map, channels: u64) -> Held {
        Self::strided(p, m, channels, [1; 3])
    }

    /// [`causal`](Self::causal) with strides in time, height and width.
    fn strided(p: &mut Builder, m: Map, channels: u64, strides: [u64; 3]) -> Held {
        let [frames, rows, columns] = strides;
        let padded = Map { frames: m.frames + 2, height: m.height + 2, width: m.width + 2, ..m };
        let pad = padded.alloc(p, &PADDED);
        let out =
            Map { channels, frames: m.frames.div_ceil(frames), height: m.height.div_ceil(rows), width: m.width.div_ceil(columns), ..m };
        let y = out.alloc(p, &FEATURES);
        copies_workspace(p, &WORKSPACE, padded, out, 27);
        p.release(pad);
        (y, out)
    }

    /// Norm, activation and convolution; `x` is dropped once it is normed.
    fn layer(p: &mut Builder, (x, m): Held, channels: u64) -> Held {
        let normed = m.alloc(p, &NORMED);
        p.release(x);
        let activated = m.alloc(p, &ACTIVATED);
        p.release(normed);
        let y = Self::causal(p, m, channels);
        p.release(activated);
        y
    }

    /// `HunyuanVideoResnetBlockCausal3D`; its input stays the caller's.
    fn residual_block(p: &mut Builder, (x, m): Held, channels: u64, reordered: bool) -> Held {
        let x = if reordered { m.alloc(p, &FEATURES) } else { p.retain(x) };
        let first = p.retain(x);
        let y = Self::layer(p, (first, m), channels);
        let (y, out) = Self::layer(p, y, channels);
        let shortcut = (m.channels != channels).then(|| {
            // Padding copies even where nothing is added.
            let pad = m.alloc(p, &PADDED);
            let shortcut = out.alloc(p, &FEATURES);
            p.release(pad);
            shortcut
        });
        let sum = out.alloc(p, &FEATURES);
        p.release(y);
        if let Some(shortcut) = shortcut {
            p.release(shortcut);
        }
        p.release(x);
        (sum, out)
    }

    /// `prepare_causal_attention_mask`: a comparison of all pairs of positions, and what is added to their scores.
    fn mask(&self, p: &mut Builder, positions: u64) -> Tensor {
        let pairs = [("queries", positions), ("keys", positions)];
        let earlier = p.alloc(&MASK, &pairs, 1);
        let mask = p.alloc(&MASK, &pairs, FP32);
        p.release(earlier);
        if self.act == FP32 {
            return mask;
        }
        let narrow = p.alloc(&MASK, &pairs, self.act);
        p.release(mask);
        narrow
    }

    /// Attention over all positions of a map, one head; its input stays the caller's.
    fn attention(&self, p: &mut Builder, m: Map) -> Tensor {
        let normed = m.alloc(p, &NORMED);
        let qkv = [(); 3].map(|()| m.alloc(p, &QKV));
        // The kernel wants rows of its bias aligned.
        let rows = positions(m);
        let aligned = (!rows.is_multiple_of(ALIGNED)).then(|| {
            let pairs = [("queries", rows), ("keys", rows.next_multiple_of(ALIGNED))];
            p.alloc(&MASK_WORKSPACE, &pairs, self.act)
        });
        let y = m.alloc(p, &ATTENTION);
        if self.act != FP32 {
            // A head of this width is accumulated in fp32 outside the kernel.
            let accumulator = m.of(FP32).alloc(p, &ACCUMULATOR);
            p.release(accumulator);
        }
        if let Some(aligned) = aligned {
            p.release(aligned);
        }
        let out = m.alloc(p, &ATTENTION);
        p.release(y);
        let sum = m.alloc(p, &FEATURES);
        p.release(out);
        let scaled = m.alloc(p, &FEATURES);
        for tensor in [sum, normed].into_iter().chain(qkv) {
            p.release(tensor);
        }
        scaled
    }

    /// `HunyuanVideoMidBlock3D`; its input stays the caller's.
    fn middle(&self, p: &mut Builder, input: Held) -> Held {
        let (x, m) = Self::residual_block(p, input, input.1.channels, false);
        let mask = self.mask(p, positions(m));
        let attended = self.attention(p, m);
        p.release(x);
        let y = Self::residual_block(p, (attended, m), m.channels, true);
        p.release(attended);
        p.release(mask);
        y
    }

    /// `HunyuanVideoUpsampleCausal3D`: the first frame and the others by themselves, joined, and a convolution.
    fn upsample(p: &mut Builder, m: Map, time: bool) -> Held {
        let frame = Map { frames: 1, ..m };
        let big = |m: Map, times: u64| Map { frames: m.frames * times, height: 2 * m.height, width: 2 * m.width, ..m };
        let first = big(frame, 1).alloc(p, &UPSAMPLED);
        if m.frames == 1 {
            let y = Self::causal(p, big(frame, 1), m.channels);
            p.release(first);
            return y;
        }
        // The kernel wants the frame in one piece.
        let piece = frame.alloc(p, &FRAME);
        p.release(piece);
        let rest = Map { frames: m.frames - 1, ..m };
        let others = rest.alloc(p, &UPSAMPLED);
        let large = big(rest, if time { 2 } else { 1 });
        let up = large.alloc(p, &UPSAMPLED);
        p.release(others);
        let joined = Map { frames: large.frames + 1, ..large };
        let whole = joined.alloc(p, &UPSAMPLED);
        let y = Self::causal(p, joined, m.channels);
        for tensor in [whole, first, up] {
            p.release(tensor);
        }
        y
    }

    /// The decoder over one tile of a latent.
    fn decode_tile(&self, p: &mut Builder, latent: Map) -> Held {
        p.phase("decode_input");
        let quantised = latent.alloc(p, &LATENT);
        let top = WIDTHS[WIDTHS.len() - 1];
        let input = Self::causal(p, latent, top);
        p.phase("decode_middle");
        let mut x = self.middle(p, input);
        p.release(input.0);
        for (level, name) in (0..WIDTHS.len()).rev().zip(["decode_level_1", "decode_level_2", "decode_level_3", "decode_level_4"]) {
            p.phase(name);
            let mut y = (p.retain(x.0), x.1);
            for _ in 0..3 {
                let next = Self::residual_block(p, y, WIDTHS[level], false);
                p.release(y.0);
                y = next;
            }
            if level > 0 {
                // Levels count from the pixels: the first two that the decoder runs through keep or double frames.
                let next = Self::upsample(p, y.1, level < 3);
                p.release(y.0);
                y = next;
            }
            p.release(x.0);
            x = y;
        }
        p.phase("decode_head");
        let y = Self::layer(p, x, RGB);
        p.release(quantised);
        y
    }

    /// The encoder over one tile of a video; the result is the distribution of its latent.
    fn encode_tile(&self, p: &mut Builder, pixels: Map) -> Held {
        p.phase("encode_input");
        let mut x = Self::causal(p, pixels, WIDTHS[0]);
        for (level, name) in (0..WIDTHS.len()).zip(["encode_level_1", "encode_level_2", "encode_level_3", "encode_level_4"]) {
            p.phase(name);
            let mut y = (p.retain(x.0), x.1);
            for _ in 0..2 {
                let next = Self::residual_block(p, y, WIDTHS[level], false);
                p.release(y.0);
                y = next;
            }
            if level < 3 {
                let next = Self::strided(p, y.1, WIDTHS[level], [if in_time(level) { 2 } else { 1 }, 2, 2]);
                p.release(y.0);
                y = next;
            }
            p.release(x.0);
            x = y;
        }
        p.phase("encode_middle");
        let y = self.middle(p, x);
        p.release(x.0);
        p.phase("encode_head");
        let (moments, out) = Self::layer(p, y, 2 * LATENT_CHANNELS);
        let quantised = out.alloc(p, &LATENT);
        p.release(moments);
        (quantised, out)
    }

    /// `tiled_decode` and `tiled_encode`: tiles stay until they are joined to rows and those to the whole, which is the result.
    /// `compression` leads from pixels to positions of the input.
    fn tiled(
        p: &mut Builder,
        m: Map,
        tiling: Tiling,
        (compression, in_time): (u64, usize),
        tile: impl Fn(&mut Builder, Map) -> Held,
    ) -> Held {
        let grid = Tiles::new([m.height, m.width], &tiling, compression).admitted(p, in_time);
        let [row_stride, column_stride] = tiling.stride.map(|side| u64::from(side) / compression);
        let (tiles, last_tiles, joined) = (p.list(), p.list(), p.list());
        let mut out = m;
        // The loop's name for a row keeps the last one longer than the others.
        let [before, last] = grid.but_the_last_row();
        for (list, rows) in [(tiles, before), (last_tiles, last)] {
            for (height, many) in rows {
                grid.repeat_rows(p, many, |p| {
                    for (width, many) in &grid.columns {
                        let width = *width;
                        p.repeat_sampled(*many, 1, 1, |p| {
                            let (y, size) = tile(p, Map { height, width, ..m });
                            p.keep(list, y);
                            out = size;
                        });
                    }
                });
            }
        }
        p.phase("merge");
        // What of each tile counts, in positions of the output.
        let scale = |extent: u64| if compression == 1 { extent.div_ceil(SPATIAL) } else { extent * SPATIAL };
        let [height, width] = [Tiles::joined(&grid.rows, row_stride, scale), Tiles::joined(&grid.columns, column_stride, scale)];
        let whole = out.sized(height, width);
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
        (y, whole)
    }

    /// A tile of a video or latent, one of `in_time` different ones, cut in space where it is larger than one.
    fn space(&self, p: &mut Builder, m: Map, encode: bool, in_time: usize) -> Held {
        let compression = if encode { 1 } else { SPATIAL };
        let one = |p: &mut Builder, m: Map| if encode { self.encode_tile(p, m) } else { self.decode_tile(p, m) };
        match self.tiling.filter(|tiling| Tiles::several([m.height, m.width], tiling, compression)) {
            Some(tiling) => Self::tiled(p, m, tiling, (compression, in_time), one),
            None => one(p, m),
        }
    }

    /// `_temporal_tiled_decode` and `_temporal_tiled_encode`, where there are more frames than a tile has.
    fn run(&self, p: &mut Builder, m: Map, encode: bool) -> Tensor {
        let [frames, stride] = TILING.temporal.unwrap_or([16, 12]).map(|n| u64::from(n) / if encode { 1 } else { TEMPORAL });
        if m.frames <= frames {
            return self.space(p, m, encode, 1).0;
        }
        let parts = p.list();
        let sizes = spans(m.frames, frames + 1, stride);
        let mut out = m;
        for (frames, many) in &sizes {
            p.repeat_sampled(*many, 2, 1, |p| {
                let (y, size) = self.space(p, m.with_frames(*frames), encode, sizes.len());
                p.keep(parts, y);
                out = size;
            });
        }
        p.phase("merge");
        // Every tile but the first leaves its first frame out, and what it has in common with the next.
        let scale = |frames: u64| if encode { (frames - 1) / TEMPORAL + 1 } else { (frames - 1) * TEMPORAL + 1 };
        let stride = if encode { stride / TEMPORAL } else { stride * TEMPORAL };
        let kept = 1 + Tiles::joined(&sizes, u64::MAX, |size| (scale(size) - 1).min(stride));
        let whole = out.with_frames(kept).alloc(p, &DECODED);
        p.release_list(parts);
        whole
    }

    /// Decodes a latent, whose reference stays the caller's.
    pub fn decode(&self, p: &mut Builder, latent: Latent) -> Tensor {
        let Latent { batch, frames, height, width } = latent;
        self.run(p, Map { batch, channels: LATENT_CHANNELS, frames, height, width, element: self.act }, false)
    }

    /// Encodes a video of batch, frames, height and width, whose reference stays the caller's: the distribution of its latent.
    pub fn encode(&self, p: &mut Builder, [batch, frames, height, width]: [u64; 4]) -> Tensor {
        self.run(p, Map { batch, channels: RGB, frames, height, width, element: self.act }, true)
    }
}

/// Which halves of the VAE are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Halves {
    /// Encoder and decoder.
    Both,
    /// The decoder and the convolution before it.
    Decoder,
}

/// What of the VAE a component of the catalog is.
///
/// # Errors
/// Where it is neither the whole nor the decoder.
pub fn loaded(component: &ExpandedComponent) -> Result<Halves, String> {
    let counted = component.parameter_count.get();
    let sum = |halves: Halves| tensors(halves).iter().map(|p| p.elements).sum::<u64>();
    let found = [Halves::Both, Halves::Decoder].into_iter().find(|halves| sum(*halves) == counted);
    found.ok_or(format!("a VAE of {counted} parameters is neither the whole HunyuanVideo VAE nor its decoder"))
}

/// The parameters of what is loaded.
pub fn tensors(halves: Halves) -> Vec<Parameter> {
    let mut list = Vec::new();
    let convolution = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64, volume: u64| {
        list.extend([plain(inputs * outputs * volume), plain(outputs)]);
    };
    let residual = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64| {
        for from in [inputs, outputs] {
            list.extend([plain(from); 2]);
            convolution(list, from, outputs, 27);
        }
        if inputs != outputs {
            convolution(list, inputs, outputs, 1);
        }
    };
    let middle = |list: &mut Vec<Parameter>, width: u64| {
        list.extend([plain(width); 2]);
        for _ in 0..4 {
            convolution(list, width, width, 1);
        }
        residual(list, width, width);
        residual(list, width, width);
    };
    let head = |list: &mut Vec<Parameter>, width: u64, outputs: u64| {
        list.extend([plain(width); 2]);
        convolution(list, width, outputs, 27);
    };
    let (bottom, top) = (WIDTHS[0], WIDTHS[3]);
    if halves == Halves::Both {
        convolution(&mut list, RGB, bottom, 27);
        let mut inputs = bottom;
        for (level, width) in WIDTHS.into_iter().enumerate() {
            for _ in 0..2 {
                residual(&mut list, inputs, width);
                inputs = width;
            }
            if level < 3 {
                convolution(&mut list, width, width, 27);
            }
        }
        middle(&mut list, top);
        head(&mut list, top, 2 * LATENT_CHANNELS);
    }
    convolution(&mut list, LATENT_CHANNELS, top, 27);
    let mut inputs = top;
    for (level, width) in WIDTHS.into_iter().enumerate().rev() {
        for _ in 0..3 {
            residual(&mut list, inputs, width);
            inputs = width;
        }
        if level > 0 {
            convolution(&mut list, width, width, 27);
        }
    }
    middle(&mut list, top);
    head(&mut list, bottom, RGB);
    if halves == Halves::Both {
        convolution(&mut list, 2 * LATENT_CHANNELS, 2 * LATENT_CHANNELS, 1);
    }
    convolution(&mut list, LATENT_CHANNELS, LATENT_CHANNELS, 1);
    list
}
