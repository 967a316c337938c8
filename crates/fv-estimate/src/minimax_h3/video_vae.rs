//! `AutoencoderKLMiniMaxH3` (diffusers 0.42.1): a convolutional encoder and a decoder of transformer blocks, run eagerly without
//! gradients.
//!
//! The order of allocations and the lifetime of every reference follow
//! `diffusers/models/autoencoders/autoencoder_kl_minimax_h3.py`; the class run on fake tensors reproduces it allocation for
//! allocation (`tests/data/simulated`). Both halves work clip by clip: 17 frames are encoded at a time, and seven latent frames
//! are decoded, of which two overlap the next clip's. Within a clip space is tiled unless that is turned off.
//! [`streamed`] is how FastVideo decodes with the same layers.

pub mod streamed;

use super::geometry::{LATENT, Latent, SPATIAL, Vae};
use super::weights::{FFN, LEVELS, PATCH, REGISTERS, WIDTH};
use crate::forecast::operations::{Blocks, Operations};
use crate::modules::FP32;
use crate::modules::tiles::placed;
use crate::program::{Builder, List, Site, Tensor, sites};
use crate::settings::Tiling;

sites! { "minimax_h3.vae.encoder":
    FEATURES "features" Activation;
    PADDED "padded features" Activation;
    NORMED "normed features" Activation;
    CONVOLUTION_WORKSPACE "convolution workspace" Workspace;
    PIXELS "pixels of whole clips" Activation;
    MOMENTS "encoded moments" Activation;
}
sites! { "minimax_h3.vae.decoder":
    LATENTS "latents" Activation;
    TOKENS "tokens" Activation;
    ROTARY_TABLE "rotary table" Activation;
    NORM_FP32 "norm in fp32" Activation;
    STATISTICS "norm statistics" Activation;
    NORM "normed tokens" Activation;
    QKV "query, key and value" Activation;
    ROTATED "rotated query and key" Activation;
    ATTENTION "attention output" Activation;
    FFN_HIDDEN "feed-forward hidden" Activation;
    SCALED "scaled update" Activation;
    PROJECTED "projected pixels" Activation;
}
sites! { "minimax_h3.vae.output":
    TILE "decoded tile" Output;
    BLENDED "blended border" Activation;
    ROW "stitched tiles" Output;
    CLIP "decoded clip" Output;
    VIDEO "decoded video" Output;
}

/// Heads of the decoder, and channels of each that are rotated: three quarters of 64.
const HEADS: u64 = 32;
const ROTATED_WIDTH: u64 = 48;
/// Latent frames that are decoded together, and how many of them belong to the clip alone.
pub const WINDOW: u64 = 7;
const STEP: u64 = 5;
/// Frames of a clip, frames before the first that a clip's first latent frame would have, and frames that clips share.
const CLIP_FRAMES: u64 = 17;
const SHARED: u64 = 5;
/// Tile sizes and the distance that the class starts from: 256 pixels with an overlap of at least 64.
pub const TILING: Tiling = Tiling { tile: [256, 256], stride: [192, 192], temporal: None };
/// What cuDNN adds to the copies in a workspace.
const CUDNN_HEADER: u64 = 146;

/// The VAE at some precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coder {
    /// The VAE.
    pub vae: Vae,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// Whether the encoder and the decoder's norms and scales are kept in fp32.
    pub keep_fp32: bool,
    /// Tile sizes, unless tiling is off.
    pub tiling: Option<Tiling>,
    /// Whether one video of a batch is coded at a time.
    pub slicing: bool,
    /// Matrices of the decoder's blocks in int8.
    pub int8: Option<streamed::Int8>,
}

/// Extents of a feature map or video.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Map {
    batch: u64,
    channels: u64,
    frames: u64,
    height: u64,
    width: u64,
    element: u64,
}

impl Map {
    fn make(self, p: &mut Builder, site: &'static Site) -> Tensor {
        let Self { batch, channels, frames, height, width, element } = self;
        p.alloc(site, &[("batch", batch), ("channels", channels), ("frames", frames), ("height", height), ("width", width)], element)
    }

    fn elements(self) -> u64 {
        self.batch * self.channels * self.frames * self.height * self.width
    }
}

/// Tiles along one axis: their length and the overlaps between neighbours (`_split_tiles`).
#[derive(Debug, Clone, PartialEq, Eq)]
struct Split {
    length: u64,
    overlaps: Vec<u64>,
}

impl Split {
    fn of(length: u64, tile: u64, overlap: u64) -> Self {
        if tile >= length {
            return Self { length, overlaps: Vec::new() };
        }
        // So many that they reach across with at least the smallest overlap.
        let count = length.saturating_sub(overlap).div_ceil(tile.saturating_sub(overlap).max(1)).max(2);
        let mut overlaps = vec![overlap; usize::try_from(count - 1).unwrap_or(1)];
        let rest = (tile * count).saturating_sub(overlap * (count - 1) + length);
        for i in 0..usize::try_from(rest / SPATIAL).unwrap_or(0) {
            let at = i % overlaps.len();
            overlaps[at] += SPATIAL;
        }
        Self { length: tile, overlaps }
    }

    fn count(&self) -> usize {
        self.overlaps.len() + 1
    }
}

/// Tiles of a frame of `height` x `width` pixels as the class lays them: rows and columns.
pub fn tile_counts(height: u64, width: u64) -> [u64; 2] {
    let Tiling { tile, stride, .. } = TILING;
    let count = |length: u64, axis: usize| Split::of(length, tile[axis].into(), (tile[axis] - stride[axis]).into()).count() as u64;
    [count(height, 0), count(width, 1)]
}

impl Coder {
    /// Operations of decoding: every block's layers for the rows of each tile of each clip, and attention within a tile.
    pub fn operations(&self, latent: Latent) -> Operations {
        let [rows, columns] = self.splits(latent.height * SPATIAL, latent.width * SPATIAL);
        let tiles = (rows.count() * columns.count()) as u64;
        let clips = latent.frames.saturating_sub(2) / STEP;
        let one = (rows.length / SPATIAL) * (columns.length / SPATIAL) * WINDOW + REGISTERS;
        Blocks {
            count: self.vae.layers,
            batch: latent.batch * clips.max(1) * tiles,
            rows: one,
            weights: 4 * WIDTH * WIDTH + 3 * WIDTH * 4 * WIDTH,
            other_rows: 0,
            other_weights: 0,
            keys: one,
            queries: one,
            inner: WIDTH,
            hidden: WIDTH,
        }
        .operations(self.act)
    }

    /// The type of the encoder and of the pixels that it is given.
    fn encoder(&self) -> u64 {
        if self.keep_fp32 { FP32 } else { self.act }
    }

    /// Tiles of a frame of `height` x `width` pixels, rows and columns; one where tiling is off.
    fn splits(&self, height: u64, width: u64) -> [Split; 2] {
        let split = |length: u64, axis: usize| match self.tiling {
            Some(Tiling { tile, stride, .. }) => Split::of(length, tile[axis].into(), tile[axis].saturating_sub(stride[axis]).into()),
            None => Split::of(length, length, 0),
        };
        [split(height, 0), split(width, 1)]
    }

    /// [`Self::splits`], or one tile where there are more than are placed.
    fn tiles(&self, p: &mut Builder, height: u64, width: u64) -> [Split; 2] {
        let splits = self.splits(height, width);
        let count = splits.iter().map(|split| split.count() as u64).product();
        if placed(p, count) { splits } else { [height, width].map(|length| Split::of(length, length, 0)) }
    }

    /// Decodes the latent, whose reference stays the caller's. `element` is the size of what is given.
    pub fn decode(&self, p: &mut Builder, latent: Latent, element: u64) -> Tensor {
        p.phase("decode_input");
        let z = Map { batch: latent.batch, channels: LATENT, frames: latent.frames, height: latent.height, width: latent.width, element };
        let cast = (element != self.act).then(|| Map { element: self.act, ..z }.make(p, &LATENTS));
        let video = if self.slicing && latent.batch > 1 {
            let videos = p.list();
            p.repeat(latent.batch, |p| {
                let video = self.decode_batch(p, Latent { batch: 1, ..latent });
                p.keep(videos, video);
            });
            p.phase("join");
            let all = self.video(latent, latent.frames / STEP * CLIP_FRAMES + SHARED).make(p, &VIDEO);
            p.release_list(videos);
            all
        } else {
            self.decode_batch(p, latent)
        };
        if let Some(cast) = cast {
            p.release(cast);
        }
        video
    }

    fn video(&self, latent: Latent, frames: u64) -> Map {
        let (height, width) = (latent.height * SPATIAL, latent.width * SPATIAL);
        Map { batch: latent.batch, channels: 3, frames, height, width, element: self.act }
    }

    /// `_decode`: clips, the border that each shares with the one before blended, joined at the end.
    fn decode_batch(&self, p: &mut Builder, latent: Latent) -> Tensor {
        let clips = latent.frames / STEP;
        // The first clip is kept whole, the others without what they share with the one before.
        let (first, chunks) = (p.list(), p.list());
        let clip = self.decode_clip(p, latent);
        if clips > 1 {
            p.keep(first, clip);
            let second = self.decode_clip(p, latent);
            self.blend_clip(p, latent, chunks);
            p.repeat(clips - 2, |p| {
                let next = self.decode_clip(p, latent);
                self.blend_clip(p, latent, chunks);
                p.replace(second, next);
            });
            p.keep(first, second);
        } else {
            p.keep(first, clip);
        }
        p.phase("join");
        let video = self.video(latent, clips * CLIP_FRAMES + SHARED).make(p, &VIDEO);
        p.release_list(chunks);
        p.release_list(first);
        video
    }

    /// Blends a clip's first frames with the last ones of the clip before.
    fn blend_clip(&self, p: &mut Builder, latent: Latent, chunks: List) {
        p.phase("blend_clips");
        let sum = blend(p, self.video(latent, SHARED));
        let chunk = self.video(latent, CLIP_FRAMES).make(p, &CLIP);
        p.release(sum);
        p.keep(chunks, chunk);
    }

    /// `_decode_clip`: seven latent frames, tile by tile.
    fn decode_clip(&self, p: &mut Builder, latent: Latent) -> Tensor {
        let video = self.video(latent, 4 * WINDOW);
        let splits = self.tiles(p, video.height, video.width);
        let [height, width] = [&splits[0], &splits[1]].map(|split| split.length);
        let tile = Map { height, width, ..video };
        if self.tiling.is_none() {
            return self.decode_tile(p, tile);
        }
        let tiles = p.list();
        p.repeat_sampled((splits[0].count() * splits[1].count()) as u64, 2, 0, |p| {
            let one = self.decode_tile(p, tile);
            p.keep(tiles, one);
        });
        p.phase("stitch");
        let clip = stitch(p, tile, &splits, [video.height, video.width]);
        p.release_list(tiles);
        clip
    }

    /// The decoder on one tile (`MiniMaxH3VideoViTDecoder3d`); `pixels` is what it makes.
    fn decode_tile(&self, p: &mut Builder, pixels: Map) -> Tensor {
        p.phase("decode_embedding");
        let batch = ("batch", pixels.batch);
        let (height, width) = (pixels.height / SPATIAL, pixels.width / SPATIAL);
        let latent = Map { channels: LATENT, frames: WINDOW, height, width, ..pixels };
        let places = WINDOW * height * width;
        let tokens = Tokens { batch: pixels.batch, count: places + REGISTERS + 1, act: self.act };
        let quantised = latent.make(p, &LATENTS);
        let ordered = (pixels.batch > 1).then(|| latent.make(p, &LATENTS));
        let embedded = p.alloc(&TOKENS, &[batch, ("tokens", places), ("width", WIDTH)], self.act);
        if let Some(ordered) = ordered {
            p.release(ordered);
        }
        let x = tokens.make(p, &TOKENS, WIDTH, self.act);
        p.release(embedded);
        let angles = tokens.make(p, &ROTARY_TABLE, ROTATED_WIDTH / 2, FP32);
        let both = tokens.make(p, &ROTARY_TABLE, ROTATED_WIDTH, FP32);
        p.release(angles);
        let table = [(); 2].map(|()| tokens.make(p, &ROTARY_TABLE, ROTATED_WIDTH, FP32));
        p.release(both);
        // Scales in fp32 widen the tokens from the first block on.
        let residual = if self.keep_fp32 { FP32 } else { self.act };
        let mut remaining = self.vae.layers;
        if residual != self.act && remaining > 0 {
            let wide = self.block(p, &tokens, self.act);
            p.release(x);
            p.rebind(x, wide);
            remaining -= 1;
        }
        p.repeat_sampled(remaining, 2, 0, |p| {
            let next = self.block(p, &tokens, residual);
            p.replace(x, next);
        });
        p.phase("decode_head");
        let mut normed = tokens.make(p, &NORM, WIDTH, residual);
        for _ in 0..2 {
            p.touch(&STATISTICS, &[batch, ("tokens", tokens.count)], FP32);
        }
        if residual != self.act {
            let narrow = tokens.make(p, &NORM, WIDTH, self.act);
            p.release(normed);
            normed = narrow;
        }
        p.release(x);
        let projected = tokens.make(p, &PROJECTED, PATCH, self.act);
        p.release(normed);
        let tile = pixels.make(p, &TILE);
        for tensor in [projected, table[1], table[0], quantised] {
            p.release(tensor);
        }
        tile
    }

    /// A norm computed in fp32 of tokens in a type of `element` bytes, and narrowed; its input stays.
    fn norm(&self, p: &mut Builder, tokens: &Tokens, element: u64) -> Tensor {
        let wide = (element != FP32).then(|| tokens.make(p, &NORM_FP32, WIDTH, FP32));
        let mut y = if self.act == FP32 || self.keep_fp32 {
            let y = tokens.make(p, if self.act == FP32 { &NORM } else { &NORM_FP32 }, WIDTH, FP32);
            p.touch(&STATISTICS, &[("batch", tokens.batch), ("tokens", tokens.count)], FP32);
            y
        } else {
            // With a gain in a narrower type than its input the norm runs in steps.
            let square = tokens.make(p, &NORM_FP32, WIDTH, FP32);
            p.release(square);
            let scaled = tokens.make(p, &NORM_FP32, WIDTH, FP32);
            let y = tokens.make(p, &NORM_FP32, WIDTH, FP32);
            p.release(scaled);
            y
        };
        if let Some(wide) = wide {
            p.release(wide);
        }
        if self.act != FP32 {
            let narrow = tokens.make(p, &NORM, WIDTH, self.act);
            p.release(y);
            y = narrow;
        }
        y
    }

    /// One block over tokens in a type of `element` bytes, which the caller drops afterwards.
    fn block(&self, p: &mut Builder, tokens: &Tokens, element: u64) -> Tensor {
        let residual = if self.keep_fp32 { FP32 } else { self.act };
        p.phase("decode_attention");
        let normed = self.norm(p, tokens, element);
        let attended = tokens.attention(p);
        let scaled = tokens.make(p, &SCALED, WIDTH, residual);
        p.release(attended);
        let hidden = tokens.make(p, &TOKENS, WIDTH, residual);
        p.release(scaled);
        p.phase("decode_feed_forward");
        let next = self.norm(p, tokens, residual);
        p.release(normed);
        let both = self.product(p, tokens, &FFN_HIDDEN, [WIDTH, 2 * FFN]);
        let [gate, product] = [(); 2].map(|()| tokens.make(p, &FFN_HIDDEN, FFN, self.act));
        p.release(gate);
        p.release(both);
        let out = self.product(p, tokens, &TOKENS, [FFN, WIDTH]);
        p.release(product);
        let scaled = tokens.make(p, &SCALED, WIDTH, residual);
        p.release(out);
        let sum = tokens.make(p, &TOKENS, WIDTH, residual);
        for tensor in [scaled, hidden, next] {
            p.release(tensor);
        }
        sum
    }

    /// Encodes a clip of batch, frames, height and width in a type of `element` bytes, whose reference stays the caller's; the
    /// moments are the result.
    pub fn encode(&self, p: &mut Builder, [batch, frames, height, width]: [u64; 4], element: u64) -> Tensor {
        p.phase("encode_input");
        let act = self.encoder();
        let x = Map { batch, channels: 3, frames, height, width, element: act };
        let cast = (element != act).then(|| x.make(p, &PIXELS));
        let latent = Latent::of(batch, frames, height, width);
        let moments = Map { channels: 2 * LATENT, frames: latent.frames, height: latent.height, width: latent.width, ..x };
        let all = if self.slicing && batch > 1 {
            let list = p.list();
            p.repeat(batch, |p| {
                let one = self.encode_batch(p, Map { batch: 1, ..x });
                p.keep(list, one);
            });
            let all = moments.make(p, &MOMENTS);
            p.release_list(list);
            all
        } else {
            self.encode_batch(p, x)
        };
        p.phase("distribution");
        // The logarithm of the variance is clamped, and deviation and variance follow from it.
        let half = Map { channels: LATENT, ..moments };
        let distribution = [(); 3].map(|()| half.make(p, &MOMENTS));
        for tensor in distribution.into_iter().chain(cast) {
            p.release(tensor);
        }
        all
    }

    /// `_encode`: a single frame as it is, or frames filled up to whole clips.
    fn encode_batch(&self, p: &mut Builder, x: Map) -> Tensor {
        if x.frames == 1 {
            return self.encode_clip(p, x);
        }
        let clips = x.frames.div_ceil(CLIP_FRAMES);
        let missing = clips * CLIP_FRAMES - x.frames;
        let filled = (missing > 0).then(|| {
            let repeated = Map { frames: missing, ..x }.make(p, &PIXELS);
            let filled = Map { frames: clips * CLIP_FRAMES, ..x }.make(p, &PIXELS);
            [repeated, filled]
        });
        let list = p.list();
        p.repeat(clips, |p| {
            let one = self.encode_clip(p, Map { frames: CLIP_FRAMES, ..x });
            p.keep(list, one);
        });
        p.phase("join");
        let whole = Map { channels: 2 * LATENT, frames: clips * STEP, height: x.height / SPATIAL, width: x.width / SPATIAL, ..x };
        let moments = whole.make(p, &MOMENTS);
        p.release_list(list);
        for tensor in filled.into_iter().flatten() {
            p.release(tensor);
        }
        moments
    }

    fn encode_clip(&self, p: &mut Builder, x: Map) -> Tensor {
        let splits = self.tiles(p, x.height, x.width);
        let [height, width] = [&splits[0], &splits[1]].map(|split| split.length);
        let tile = Map { height, width, ..x };
        if self.tiling.is_none() {
            return Self::encode_tile(p, tile).0;
        }
        let tiles = p.list();
        let mut made = tile;
        p.repeat_sampled((splits[0].count() * splits[1].count()) as u64, 2, 0, |p| {
            let (one, map) = Self::encode_tile(p, tile);
            made = map;
            p.keep(tiles, one);
        });
        p.phase("stitch");
        let splits = splits.map(|Split { length, overlaps }| Split {
            length: length / SPATIAL,
            overlaps: overlaps.into_iter().map(|overlap| overlap / SPATIAL).collect(),
        });
        let clip = stitch(p, made, &splits, [x.height / SPATIAL, x.width / SPATIAL]);
        p.release_list(tiles);
        clip
    }

    /// The encoder on one tile (`MiniMaxH3VideoEncoder3d`), and what it makes.
    fn encode_tile(p: &mut Builder, x: Map) -> (Tensor, Map) {
        p.phase("encode_input");
        let (mut y, mut m) = Self::causal(p, x, LEVELS[0].0, 3);
        for (level, (channels, [time, space])) in LEVELS.into_iter().enumerate() {
            p.phase(LEVEL_NAMES[level]);
            // What a level is given stays to its end.
            let input = y;
            let mut x = p.retain(y);
            for _ in 0..2 {
                let (next, map) = Self::residual(p, m, channels);
                p.release(x);
                (x, m) = (next, map);
            }
            if time * space > 1 {
                let padded = Map { height: m.height + 1, width: m.width + 1, ..m };
                let bordered = padded.make(p, &PADDED);
                let early = Map { frames: padded.frames + 2, ..padded };
                let pad = early.make(p, &PADDED);
                let half = Map { frames: (m.frames - 1) / time + 1, height: m.height / space, width: m.width / space, ..m };
                let next = half.make(p, &FEATURES);
                Self::workspace(p, early, half, 3);
                for tensor in [pad, bordered, x] {
                    p.release(tensor);
                }
                (x, m) = (next, half);
            }
            p.release(input);
            y = x;
        }
        p.phase("encode_head");
        let active = Self::norm_and_activate(p, m);
        p.release(y);
        let (encoded, m) = Self::causal(p, m, 2 * LATENT, 3);
        p.release(active);
        let moments = m.make(p, &MOMENTS);
        p.release(encoded);
        (moments, m)
    }

    /// A causal convolution with a cubic or a point kernel; its input stays.
    fn causal(p: &mut Builder, x: Map, channels: u64, kernel: u64) -> (Tensor, Map) {
        let out = Map { channels, ..x };
        if kernel == 1 {
            return (out.make(p, &FEATURES), out);
        }
        let padded = Map { height: x.height + 2, width: x.width + 2, ..x };
        let bordered = padded.make(p, &PADDED);
        let early = Map { frames: x.frames + 2, ..padded };
        let pad = early.make(p, &PADDED);
        p.release(bordered);
        let y = out.make(p, &FEATURES);
        Self::workspace(p, early, out, kernel);
        p.release(pad);
        (y, out)
    }

    /// Copies of input, output and weights in channels-last order, as cuDNN makes them for a convolution.
    fn workspace(p: &mut Builder, x: Map, y: Map, kernel: u64) {
        // Of pixels in fp32 the input alone is copied, four channels wide; in a narrower type nothing is.
        let (input, output) = match (x.channels, x.element) {
            (3, FP32) => (Map { channels: 4, ..x }, 0),
            (3, _) => return,
            _ => (x, y.elements()),
        };
        let weights = input.channels * y.channels * kernel.pow(3);
        let dims = [("input, output and weights", input.elements() + output + weights + CUDNN_HEADER / x.element)];
        p.touch(&CONVOLUTION_WORKSPACE, &dims, x.element);
    }

    /// A group norm of each frame on its own and its activation; the input stays.
    fn norm_and_activate(p: &mut Builder, m: Map) -> Tensor {
        // A single frame is in order already.
        let several = m.frames > 1;
        let ordered = several.then(|| m.make(p, &NORMED));
        let mut normed = m.make(p, &NORMED);
        if let Some(ordered) = ordered {
            p.release(ordered);
            let back = m.make(p, &NORMED);
            p.release(normed);
            normed = back;
        }
        let active = m.make(p, &NORMED);
        p.release(normed);
        active
    }

    /// A residual block; its input stays the caller's.
    fn residual(p: &mut Builder, m: Map, channels: u64) -> (Tensor, Map) {
        let active = Self::norm_and_activate(p, m);
        let (first, out) = Self::causal(p, m, channels, 3);
        p.release(active);
        let active = Self::norm_and_activate(p, out);
        p.release(first);
        let (second, _) = Self::causal(p, out, channels, 3);
        p.release(active);
        let shortcut = (m.channels != channels).then(|| Self::causal(p, m, channels, 1).0);
        let sum = out.make(p, &FEATURES);
        for tensor in shortcut.into_iter().chain([second]) {
            p.release(tensor);
        }
        (sum, out)
    }
}

const LEVEL_NAMES: [&str; LEVELS.len()] =
    ["encode_level_1", "encode_level_2", "encode_level_3", "encode_level_4", "encode_level_5", "encode_level_6"];

/// Two borders of `border`, weighted and added.
fn blend(p: &mut Builder, border: Map) -> Tensor {
    let parts = [(); 2].map(|()| border.make(p, &BLENDED));
    let sum = border.make(p, &BLENDED);
    for part in parts {
        p.release(part);
    }
    sum
}

/// `_stitch_tiles`: each tile blended with its neighbour above and its neighbour to the left, cropped, and put into rows, which
/// are put together. The tiles stay the caller's.
fn stitch(p: &mut Builder, tile: Map, [down, across]: &[Split; 2], [height, width]: [u64; 2]) -> Tensor {
    let rows = p.list();
    let mut before = p.list();
    for i in 0..down.count() {
        // The row before goes when the next one begins; the last stays to the end.
        p.release_list(before);
        let row = p.list();
        for j in 0..across.count() {
            let mut blended = None;
            let above = i.checked_sub(1).map(|i| Map { height: down.overlaps[i], ..tile });
            let left = j.checked_sub(1).map(|j| Map { width: across.overlaps[j], ..tile });
            for border in above.into_iter().chain(left) {
                let sum = blend(p, border);
                let next = tile.make(p, &TILE);
                p.release(sum);
                if let Some(blended) = blended.replace(next) {
                    p.release(blended);
                }
            }
            if let Some(blended) = blended {
                p.keep(row, blended);
            }
        }
        let cropped = tile.height - down.overlaps.get(i).copied().unwrap_or(0);
        let joined = Map { height: cropped, width, ..tile }.make(p, &ROW);
        p.keep(rows, joined);
        before = row;
    }
    let whole = Map { height, width, ..tile }.make(p, &CLIP);
    p.release_list(rows);
    p.release_list(before);
    whole
}

/// Tokens of a tile.
#[derive(Debug, Clone, Copy)]
struct Tokens {
    batch: u64,
    count: u64,
    act: u64,
}

impl Tokens {
    fn make(&self, p: &mut Builder, site: &'static Site, width: u64, element: u64) -> Tensor {
        p.alloc(site, &[("batch", self.batch), ("tokens", self.count), ("width", width)], element)
    }

    /// A norm of each head in fp32, which replaces its input (`norm_q` and `norm_k` have no gain).
    fn head_norm(&self, p: &mut Builder, x: Tensor) -> Tensor {
        let wide = (self.act != FP32).then(|| self.make(p, &NORM_FP32, WIDTH, FP32));
        let mut y = self.make(p, if self.act == FP32 { &QKV } else { &NORM_FP32 }, WIDTH, FP32);
        p.touch(&STATISTICS, &[("batch", self.batch), ("tokens", self.count), ("heads", HEADS)], FP32);
        if let Some(wide) = wide {
            p.release(wide);
            let narrow = self.make(p, &QKV, WIDTH, self.act);
            p.release(y);
            y = narrow;
        }
        p.release(x);
        y
    }

    /// Attention over all tokens, whose input stays; ends with the projected output.
    fn attention(&self, p: &mut Builder) -> Tensor {
        let [query, key, value] = [(); 3].map(|()| self.make(p, &QKV, WIDTH, self.act));
        let mut held = vec![self.head_norm(p, query)];
        held.push(self.head_norm(p, key));
        held.push(value);
        if self.act != FP32 {
            held.extend([(); 2].map(|()| self.make(p, &ROTARY_TABLE, ROTATED_WIDTH, self.act)));
        }
        let rotated = HEADS * ROTATED_WIDTH;
        for _ in 0..2 {
            let negated = self.make(p, &ROTATED, rotated / 2, self.act);
            held.push(self.make(p, &ROTATED, rotated, self.act));
            p.release(negated);
        }
        for _ in 0..2 {
            let products = [(); 2].map(|()| self.make(p, &ROTATED, rotated, self.act));
            let sum = self.make(p, &ROTATED, rotated, self.act);
            for product in products {
                p.release(product);
            }
            held.push(self.make(p, &ROTATED, WIDTH, self.act));
            p.release(sum);
        }
        let attended = self.make(p, &ATTENTION, WIDTH, self.act);
        let projected = self.make(p, &ATTENTION, WIDTH, self.act);
        p.release(attended);
        for tensor in held {
            p.release(tensor);
        }
        projected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_as_the_class_lays_them() {
        // 480 and 832 pixels: three tiles with 144 shared between each pair, four with 64.
        assert_eq!(Split::of(480, 256, 64), Split { length: 256, overlaps: vec![144, 144] });
        assert_eq!(Split::of(832, 256, 64), Split { length: 256, overlaps: vec![64, 64, 64] });
        assert_eq!(Split::of(768, 256, 64), Split { length: 256, overlaps: vec![96, 80, 80] });
        assert_eq!(Split::of(256, 256, 64), Split { length: 256, overlaps: Vec::new() });
    }
}
