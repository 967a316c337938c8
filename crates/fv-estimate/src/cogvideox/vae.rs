//! `AutoencoderKLCogVideoX` (diffusers 0.42.1): decoding and encoding, whole and in tiles, run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `models/autoencoders/autoencoder_kl_cogvideox.py`;
//! recorded allocator traces of the class on an H200 reproduce it (`tests/data/families`). Two latent frames are decoded at a
//! time, three the first time where their number is odd. Causal convolutions keep the end of their input as a cache for the
//! next time; those over single positions keep all of it. The caches of the time before go when the new ones are complete.

use crate::forecast::operations::Decoder;
use crate::modules::maps::{Map, convolution_workspace, refuse_short_parts};
use crate::modules::parameter::{Parameter, plain};
use crate::modules::residency::Streams;
use crate::modules::tiles::{Tiles, spans};
use crate::program::{Builder, List, Site, Tensor, sites};
use crate::settings::Tiling;

sites! { "cogvideox.vae.convolution":
    FEATURES "features" Activation;
    CACHE "feature cache" Cache;
    PADDED "features with cached frames" Activation;
    PARTS "parts of a large convolution" Activation;
    ORDERED "features reordered for a convolution" Activation;
    WORKSPACE "convolution workspace" Workspace;
}
sites! { "cogvideox.vae.norm":
    LATENTS "latents at the size of features" Activation;
    CONDITION "scale and shift from latents" Activation;
    NORMED "normed features" Activation;
    ACTIVATED "activated features" Activation;
}
sites! { "cogvideox.vae.resample":
    RESAMPLED "resampled features" Activation;
}
sites! { "cogvideox.vae.output":
    CHUNK "decoded frames" Output;
    DECODED "decoded video" Output;
    TILE "decoded tile" Output;
}

/// Operations of decoding, counted by running diffusers' class on the meta device at several sizes.
pub const DECODER: Decoder = Decoder { first: 21_600_000, each: 18_540_000 };

/// Channels of a latent.
pub const LATENT_CHANNELS: u64 = 16;
/// Pixels of a side of a latent position.
pub const SPATIAL: u64 = 8;
/// Frames of a latent frame after the first.
pub const TEMPORAL: u64 = 4;
/// Tile sizes of the class: half of 480 x 720 pixels, a sixth and a fifth of which overlap.
pub const TILING: Tiling = Tiling { tile: [240, 360], stride: [200, 288], temporal: None };

/// Latent frames that are decoded at a time (`num_latent_frames_batch_size`), and frames that are encoded.
const LATENT_FRAMES: u64 = 2;
const FRAMES: u64 = 8;
/// Channels of a frame.
const RGB: u64 = 3;
/// Values of a kernel, and of one in space alone.
const CUBE: u64 = 27;
const PLANE: u64 = 9;
/// Elements beyond which a convolution is done in parts (`CogVideoXSafeConv3d`: 2 GiB of two bytes each).
const LARGEST: u64 = 1 << 30;

/// How a level ends: as it is, with a change of size in space, or in space and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Resample {
    None,
    Space,
    SpaceAndTime,
}

/// Widths of the encoder's levels, from the pixels to the latent.
const DOWN: [(u64, Resample); 4] =
    [(128, Resample::SpaceAndTime), (256, Resample::SpaceAndTime), (256, Resample::Space), (512, Resample::None)];
/// Widths of the decoder's levels, from the latent to the pixels.
const UP: [(u64, Resample); 4] =
    [(512, Resample::SpaceAndTime), (256, Resample::SpaceAndTime), (256, Resample::Space), (128, Resample::None)];
/// Residual blocks of a level of encoder and decoder (`layers_per_block`), and of both middles.
const DOWN_BLOCKS: u64 = 3;
const UP_BLOCKS: u64 = 4;
const MIDDLE_BLOCKS: u64 = 2;

/// The parameters, in the order of the class.
pub fn tensors() -> Vec<Parameter> {
    let mut list = Vec::new();
    let convolution = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64, kernel: u64| {
        list.extend([plain(inputs * outputs * kernel), plain(outputs)]);
    };
    let norm = |list: &mut Vec<Parameter>, channels: u64, spatial: bool| {
        list.extend([plain(channels); 2]);
        for _ in 0..if spatial { 2 } else { 0 } {
            convolution(list, LATENT_CHANNELS, channels, 1);
        }
    };
    let residual = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64, spatial: bool| {
        norm(list, inputs, spatial);
        norm(list, outputs, spatial);
        convolution(list, inputs, outputs, CUBE);
        convolution(list, outputs, outputs, CUBE);
        if inputs != outputs {
            convolution(list, inputs, outputs, 1);
        }
    };
    let levels = |list: &mut Vec<Parameter>, levels: [(u64, Resample); 4], blocks: u64, spatial: bool| {
        let mut width = levels[0].0;
        for (outputs, resample) in levels {
            for _ in 0..blocks {
                residual(list, width, outputs, spatial);
                width = outputs;
            }
            if resample != Resample::None {
                convolution(list, outputs, outputs, PLANE);
            }
        }
    };
    let middle = |list: &mut Vec<Parameter>, width: u64, spatial: bool| {
        for _ in 0..MIDDLE_BLOCKS {
            residual(list, width, width, spatial);
        }
    };
    let [first, .., (end, _)] = DOWN;
    convolution(&mut list, RGB, first.0, CUBE);
    levels(&mut list, DOWN, DOWN_BLOCKS, false);
    middle(&mut list, end, false);
    norm(&mut list, end, false);
    convolution(&mut list, end, 2 * LATENT_CHANNELS, CUBE);
    let [first, .., (end, _)] = UP;
    convolution(&mut list, LATENT_CHANNELS, first.0, CUBE);
    middle(&mut list, first.0, true);
    levels(&mut list, UP, UP_BLOCKS, true);
    norm(&mut list, end, true);
    convolution(&mut list, end, RGB, CUBE);
    list
}

/// Features: a tensor, its extents, and whether frames come before channels in memory.
#[derive(Debug, Clone, Copy)]
struct Features {
    tensor: Tensor,
    map: Map,
    frames_first: bool,
}

/// The VAE at a precision.
#[derive(Debug, Clone, Copy)]
pub struct Coder<'a> {
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// How its weights pass by.
    pub streams: &'a Streams,
}

/// What one pass over some frames sees: the latents that norms look at, and where new caches go.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    latents: Option<Map>,
    caches: List,
}

impl Coder<'_> {
    /// A convolution of `x` to `out`, done in parts where `x` is large. The input stays the caller's.
    fn convolve(&self, p: &mut Builder, x: Map, out: Map, kernel: u64, site: &'static Site) -> Tensor {
        let weights = self.streams.leaf(p, x.channels * kernel, out.channels);
        let time = if kernel == CUBE { 3 } else { 1 };
        let y = if kernel != PLANE && x.elements() > LARGEST {
            let parts = x.elements() / LARGEST + 1;
            Self::in_parts(p, x, out, kernel, x.frames.div_ceil(parts), time)
        } else {
            let y = out.alloc(p, site);
            convolution_workspace(p, &WORKSPACE, x, out, kernel);
            y
        };
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    }

    /// `CogVideoXSafeConv3d`: parts of so many frames. Each but the first is a copy with the last frames of the one before.
    fn in_parts(p: &mut Builder, x: Map, out: Map, kernel: u64, frames: u64, time: u64) -> Tensor {
        let sizes: Vec<u64> =
            spans(x.frames, frames, frames).into_iter().flat_map(|(size, many)| vec![size; usize::try_from(many).unwrap_or(0)]).collect();
        let border = time - 1;
        refuse_short_parts(p, frames, time);
        let copies: Vec<Option<Tensor>> = sizes
            .iter()
            .enumerate()
            .map(|(i, size)| (i > 0 && border > 0).then(|| x.with(x.channels, size + border).alloc(p, &PARTS)))
            .collect();
        let outputs = p.list();
        for (i, (size, copy)) in sizes.iter().zip(&copies).enumerate() {
            let part = x.with(x.channels, if i > 0 { size + border } else { *size });
            // A part of the frames has to be put together for the kernel.
            let together = copy.is_none().then(|| part.alloc(p, &ORDERED));
            let made = out.with(out.channels, part.frames.saturating_sub(border));
            let y = made.alloc(p, &PARTS);
            convolution_workspace(p, &WORKSPACE, part, made, kernel);
            if let Some(together) = together {
                p.release(together);
            }
            p.keep(outputs, y);
        }
        let joined = out.alloc(p, &FEATURES);
        p.release_list(outputs);
        for copy in copies.into_iter().flatten() {
            p.release(copy);
        }
        joined
    }

    /// `CogVideoXCausalConv3d` of three frames: they are put behind what is cached, and their end is cached. The input stays.
    fn causal(&self, p: &mut Builder, chunk: Chunk, x: Map, channels: u64, site: &'static Site) -> Tensor {
        let padded = x.with(x.channels, x.frames + 2);
        let pad = padded.alloc(p, &PADDED);
        let cache = x.with(x.channels, 2).alloc(p, &CACHE);
        p.keep(chunk.caches, cache);
        let y = self.convolve(p, padded, x.with(channels, x.frames), CUBE, site);
        p.release(pad);
        y
    }

    /// A group norm; the input stays the caller's.
    fn group_norm(p: &mut Builder, x: Features) -> Tensor {
        let together = x.frames_first.then(|| x.map.alloc(p, &ORDERED));
        let y = x.map.alloc(p, &NORMED);
        if let Some(together) = together {
            p.release(together);
        }
        y
    }

    /// A group norm, or `CogVideoXSpatialNorm3D` where there are latents to look at; the input stays the caller's.
    fn norm(&self, p: &mut Builder, chunk: Chunk, x: Features) -> Tensor {
        let Some(latents) = chunk.latents else { return Self::group_norm(p, x) };
        let m = x.map;
        let grown = |frames: u64| Map { frames, ..latents.sized(m.height, m.width) };
        // The kernel wants its input, a part of the frames, put together.
        let interpolate = |p: &mut Builder, from: u64, to: u64| {
            let y = grown(to).alloc(p, &LATENTS);
            let together = latents.with(latents.channels, from).alloc(p, &LATENTS);
            p.release(together);
            y
        };
        let mut parts = Vec::new();
        let whole = if m.frames > 1 && m.frames % 2 == 1 {
            parts.push(interpolate(p, 1, 1));
            parts.push(interpolate(p, latents.frames - 1, m.frames - 1));
            grown(m.frames).alloc(p, &LATENTS)
        } else {
            interpolate(p, latents.frames, m.frames)
        };
        let conditions = [(); 2].map(|()| {
            let cache = grown(m.frames).alloc(p, &CACHE);
            p.keep(chunk.caches, cache);
            self.convolve(p, grown(m.frames), m, 1, &CONDITION)
        });
        let normed = Self::group_norm(p, x);
        let scaled = m.alloc(p, &NORMED);
        let shifted = m.alloc(p, &NORMED);
        p.release(scaled);
        for tensor in [whole].into_iter().chain(parts).chain(conditions).chain([normed]) {
            p.release(tensor);
        }
        shifted
    }

    /// Norm and activation. Drops `x` where it is the caller's to drop.
    fn activate(&self, p: &mut Builder, chunk: Chunk, x: Features, drop: bool) -> Tensor {
        let normed = self.norm(p, chunk, x);
        if drop {
            p.release(x.tensor);
        }
        let y = x.map.alloc(p, &ACTIVATED);
        p.release(normed);
        y
    }

    /// `CogVideoXResnetBlock3D`; the input stays the caller's.
    fn residual(&self, p: &mut Builder, chunk: Chunk, x: Features, channels: u64) -> Features {
        let m = x.map;
        let out = m.with(channels, m.frames);
        let activated = self.activate(p, chunk, x, false);
        let y = self.causal(p, chunk, m, channels, &FEATURES);
        p.release(activated);
        let inner = Features { tensor: y, map: out, frames_first: false };
        let activated = self.activate(p, chunk, inner, true);
        let y = self.causal(p, chunk, out, channels, &FEATURES);
        p.release(activated);
        let shortcut = (m.channels != channels).then(|| {
            let together = x.frames_first.then(|| m.alloc(p, &ORDERED));
            let y = self.convolve(p, m, out, 1, &FEATURES);
            if let Some(together) = together {
                p.release(together);
            }
            y
        });
        let sum = out.alloc(p, &FEATURES);
        p.release(y);
        if let Some(shortcut) = shortcut {
            p.release(shortcut);
        }
        Features { tensor: sum, map: out, frames_first: false }
    }

    /// So many residual blocks of `channels`; drops `x`.
    fn residuals(&self, p: &mut Builder, chunk: Chunk, x: Features, blocks: u64, channels: u64) -> Features {
        let first = self.residual(p, chunk, x, channels);
        p.release(x.tensor);
        p.repeat(blocks - 1, |p| {
            let next = self.residual(p, chunk, first, channels);
            p.replace(first.tensor, next.tensor);
        });
        first
    }

    /// Frames of several videos cannot be put before channels without a copy, which takes the place of `x`.
    fn frames_first(p: &mut Builder, x: Tensor, m: Map) -> Tensor {
        if m.batch == 1 {
            return x;
        }
        let copy = m.alloc(p, &ORDERED);
        p.release(x);
        copy
    }

    /// A convolution of each frame, which drops its input.
    fn plane(&self, p: &mut Builder, x: Features, out: Map) -> Features {
        let tensor = if x.frames_first { x.tensor } else { Self::frames_first(p, x.tensor, x.map) };
        let together = (x.map.batch == 1 && x.map.frames > 1 && !x.frames_first).then(|| x.map.alloc(p, &ORDERED));
        let y = self.convolve(p, x.map.with(x.map.channels, x.map.frames), out, PLANE, &RESAMPLED);
        for tensor in together.into_iter().chain([tensor]) {
            p.release(tensor);
        }
        Features { tensor: y, map: out, frames_first: out.frames > 1 }
    }

    /// `CogVideoXUpsample3D`; drops `x`.
    fn upsample(&self, p: &mut Builder, x: Features, time: bool) -> Features {
        let m = x.map;
        let big = |frames: u64| m.with(m.channels, frames).sized(2 * m.height, 2 * m.width);
        let mut parts = Vec::new();
        let odd = time && m.frames > 1 && m.frames % 2 == 1;
        let frames = match (time, odd) {
            (true, true) => 2 * m.frames - 1,
            (true, false) if m.frames > 1 => 2 * m.frames,
            _ => m.frames,
        };
        let part = |p: &mut Builder, from: u64, to: u64| {
            let y = big(to).alloc(p, &RESAMPLED);
            let together = m.with(m.channels, from).alloc(p, &ORDERED);
            p.release(together);
            y
        };
        let (up, frames_first) = if odd {
            parts.push(part(p, 1, 1));
            parts.push(part(p, m.frames - 1, frames - 1));
            (big(frames).alloc(p, &RESAMPLED), false)
        } else if time {
            (big(frames).alloc(p, &RESAMPLED), m.frames == 1)
        } else {
            // Frame by frame: of one video the kernel puts the frames together, of several they were before.
            let own = p.retain(x.tensor);
            let ordered = Self::frames_first(p, own, m);
            let up = big(frames).alloc(p, &RESAMPLED);
            if m.batch == 1 && m.frames > 1 {
                let together = m.alloc(p, &ORDERED);
                p.release(together);
            }
            p.release(ordered);
            (up, true)
        };
        let y = self.plane(p, Features { tensor: up, map: big(frames), frames_first }, big(frames));
        for tensor in parts.into_iter().chain([x.tensor]) {
            p.release(tensor);
        }
        y
    }

    /// `CogVideoXDownsample3D`; drops `x`.
    fn downsample(&self, p: &mut Builder, x: Features, time: bool) -> Features {
        let mut m = x.map;
        // What lives to the end of the call, and what goes once it is padded.
        let mut named = vec![x.tensor];
        let mut passing = None;
        if time {
            let odd = m.frames % 2;
            let rest = m.with(m.channels, m.frames - odd);
            // Frames are put last, which for several videos is a copy.
            let ordered = (m.batch > 1).then(|| m.alloc(p, &ORDERED));
            // All but a first one are averaged in pairs, for which the kernel wants them together.
            let averaged = (rest.frames > 0).then(|| {
                let averaged = rest.with(m.channels, rest.frames / 2).alloc(p, &RESAMPLED);
                if m.batch == 1 || odd > 0 {
                    let together = rest.alloc(p, &ORDERED);
                    p.release(together);
                }
                averaged
            });
            m = m.with(m.channels, rest.frames / 2 + odd);
            if odd > 0 {
                passing = Some(m.alloc(p, &RESAMPLED));
                named.extend(ordered.into_iter().chain(averaged));
            } else {
                passing = averaged;
                if let Some(ordered) = ordered {
                    p.release(ordered);
                }
            }
        }
        let padded = m.sized(m.height + 1, m.width + 1);
        let pad = padded.alloc(p, &PADDED);
        if let Some(passing) = passing {
            p.release(passing);
        }
        let y = self.plane(p, Features { tensor: pad, map: padded, frames_first: false }, Self::halved(m));
        for tensor in named {
            p.release(tensor);
        }
        y
    }

    fn halved(m: Map) -> Map {
        m.sized(m.height / 2, m.width / 2)
    }

    /// Some latent frames through the decoder; the result is what they add to the video.
    fn decode_chunk(&self, p: &mut Builder, latents: Map, caches: List) -> (Tensor, Map) {
        let chunk = Chunk { latents: Some(latents), caches };
        p.phase("decode_middle");
        let width = UP[0].0;
        let tensor = self.causal(p, chunk, latents, width, &FEATURES);
        let mut x = Features { tensor, map: latents.with(width, latents.frames), frames_first: false };
        let input = p.retain(x.tensor);
        x = self.residuals(p, chunk, x, MIDDLE_BLOCKS, width);
        p.release(input);
        let names = ["decode_level_1", "decode_level_2", "decode_level_3", "decode_level_4"];
        for ((width, resample), name) in UP.into_iter().zip(names) {
            p.phase(name);
            // The decoder's own name for it lives until the level is through.
            let input = p.retain(x.tensor);
            x = self.residuals(p, chunk, x, UP_BLOCKS, width);
            if resample != Resample::None {
                x = self.upsample(p, x, resample == Resample::SpaceAndTime);
            }
            p.release(input);
        }
        p.phase("decode_output");
        let activated = self.activate(p, chunk, x, true);
        let y = self.causal(p, chunk, x.map, RGB, &CHUNK);
        p.release(activated);
        (y, x.map.with(RGB, x.map.frames))
    }

    /// Some frames through the encoder.
    fn encode_chunk(&self, p: &mut Builder, pixels: Map, caches: List) -> (Tensor, Map) {
        let chunk = Chunk { latents: None, caches };
        p.phase("encode_input");
        let tensor = self.causal(p, chunk, pixels, DOWN[0].0, &FEATURES);
        let mut x = Features { tensor, map: pixels.with(DOWN[0].0, pixels.frames), frames_first: false };
        let names = ["encode_level_1", "encode_level_2", "encode_level_3", "encode_level_4"];
        for ((width, resample), name) in DOWN.into_iter().zip(names) {
            p.phase(name);
            let input = p.retain(x.tensor);
            x = self.residuals(p, chunk, x, DOWN_BLOCKS, width);
            if resample != Resample::None {
                x = self.downsample(p, x, resample == Resample::SpaceAndTime);
            }
            p.release(input);
        }
        p.phase("encode_middle");
        let input = p.retain(x.tensor);
        x = self.residuals(p, chunk, x, MIDDLE_BLOCKS, x.map.channels);
        p.release(input);
        p.phase("encode_output");
        let activated = self.activate(p, chunk, x, true);
        let y = self.causal(p, chunk, x.map, 2 * LATENT_CHANNELS, &CHUNK);
        p.release(activated);
        (y, x.map.with(2 * LATENT_CHANNELS, x.map.frames))
    }

    /// All frames of `m`, so many at a time and more the first time, joined. What is still there at the end goes to `held`.
    fn in_time(&self, p: &mut Builder, m: Map, decodes: bool, held: List) -> (Tensor, Map) {
        let step = if decodes { LATENT_FRAMES } else { FRAMES };
        let rounds = (m.frames / step).max(1);
        let first = if m.frames < step { m.frames } else { step + m.frames % step };
        let (old, new, outputs) = (p.list(), p.list(), p.list());
        let mut out = m;
        let mut total = 0;
        for (frames, many) in [(first, 1), (step, rounds - 1)] {
            p.repeat(many, |p| {
                let part = m.with(m.channels, frames);
                let (y, map) = if decodes { self.decode_chunk(p, part, new) } else { self.encode_chunk(p, part, new) };
                p.release_list(old);
                p.move_list(new, old);
                p.keep(outputs, y);
                out = map;
                total += many * map.frames;
            });
        }
        out = out.with(out.channels, total);
        p.phase("join_frames");
        let joined = out.alloc(p, if decodes { &DECODED } else { &CHUNK });
        p.move_list(old, held);
        p.move_list(outputs, held);
        (joined, out)
    }

    /// Decodes latents or encodes pixels (a reference of the caller's): one video at a time with `sliced`, and tile by tile
    /// where there is more than one.
    pub fn code(&self, p: &mut Builder, m: Map, decodes: bool, tiling: Option<Tiling>, sliced: bool) -> (Tensor, Map) {
        if sliced && m.batch > 1 {
            let videos = p.list();
            let mut out = m;
            p.repeat(m.batch, |p| {
                let (video, one) = self.code(p, Map { batch: 1, ..m }, decodes, tiling, false);
                out = Map { batch: m.batch, ..one };
                p.keep(videos, video);
            });
            p.phase("join_slices");
            let joined = out.alloc(p, &DECODED);
            p.release_list(videos);
            return (joined, out);
        }
        let unit = if decodes { SPATIAL } else { 1 };
        if let Some(tiling) = tiling.filter(|tiling| Tiles::several([m.height, m.width], tiling, unit)) {
            return self.in_tiles(p, m, decodes, tiling);
        }
        let held = p.list();
        let result = self.in_time(p, m, decodes, held);
        p.release_list(held);
        result
    }

    /// Tiles, all kept until they are put together row by row. What a tile leaves goes when the next begins.
    fn in_tiles(&self, p: &mut Builder, m: Map, decodes: bool, tiling: Tiling) -> (Tensor, Map) {
        let unit = if decodes { SPATIAL } else { 1 };
        let grid = Tiles::new([m.height, m.width], &tiling, unit).admitted(p, 1);
        let stride = tiling.stride.map(|side| u64::from(side) / unit);
        let (tiles, held) = (p.list(), p.list());
        let mut out = m;
        for (height, many_rows) in &grid.rows {
            grid.repeat_rows(p, *many_rows, |p| {
                for (width, many_columns) in &grid.columns {
                    p.repeat_sampled(*many_columns, 1, 1, |p| {
                        p.release_list(held);
                        let (tile, one) = self.in_time(p, m.sized(*height, *width), decodes, held);
                        out = one;
                        p.keep(tiles, tile);
                    });
                }
            });
        }
        p.phase("merge_tiles");
        let scaled = |side: u64| if decodes { side * SPATIAL } else { side / SPATIAL };
        let width = scaled(Tiles::joined(&grid.columns, stride[1], |side| side));
        let merged = p.list();
        for (height, many) in &grid.rows {
            p.repeat(*many, |p| {
                let row = out.sized(scaled((*height).min(stride[0])), width).alloc(p, &TILE);
                p.keep(merged, row);
            });
        }
        let map = out.sized(scaled(Tiles::joined(&grid.rows, stride[0], |side| side)), width);
        let whole = map.alloc(p, &DECODED);
        for list in [merged, tiles, held] {
            p.release_list(list);
        }
        (whole, map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tensors_add_up_to_the_published_count() {
        assert_eq!(tensors().iter().map(|parameter| parameter.elements).sum::<u64>(), 215_583_907);
    }
}
