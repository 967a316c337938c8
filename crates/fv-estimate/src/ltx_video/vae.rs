//! `AutoencoderKLLTXVideo` (diffusers 0.42.1): decoding and encoding, whole and in tiles, run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `models/autoencoders/autoencoder_kl_ltx.py`. A block's
//! input is the caller's until the block returns, so it stays beside everything that the block makes. Features are 4 x 4 pixels
//! wide at the last level. Version 0.9.5 has other widths, folds space and time into channels on its way down, adds the input to
//! what upsampling makes of it, and scales and shifts normed features by a timestep.

use crate::forecast::operations::Decoder;
use crate::modules::FP32;
use crate::modules::maps::{Map, convolution_workspace, reduction_buffer};
use crate::modules::parameter::{Parameter, plain};
use crate::modules::residency::Streams;
use crate::modules::tiles::Tiles;
use crate::program::{Builder, Site, Tensor, sites};
use crate::settings::Tiling;

sites! { "ltx_video.vae.convolution":
    FEATURES "features" Activation;
    BORDER "repeated border frames" Activation;
    PADDED "padded features" Activation;
    WORKSPACE "convolution workspace" Workspace;
}
sites! { "ltx_video.vae.norm":
    NORM_FP32 "norm in fp32" Activation;
    STATISTICS "norm statistics" Activation;
    REDUCTION "buffer of a sum over channels" Workspace;
    NORMED "normed features" Activation;
    MODULATED "features scaled and shifted" Activation;
    ACTIVATED "activated features" Activation;
}
sites! { "ltx_video.vae.resample":
    FOLDED "features put together or apart" Activation;
    SHORTCUT "averaging shortcut" Activation;
}
sites! { "ltx_video.vae.output":
    DECODED "decoded video" Output;
    TILE "decoded tile" Output;
    LATENT "latent" Activation;
}

/// Pixels of a side of the patches that are taken together (`patch_size`).
const PATCH: u64 = 4;
/// Values of a kernel of 3 x 3 x 3.
const CUBE: u64 = 27;
/// Channels of a frame.
const RGB: u64 = 3;
/// Sines and cosines of a timestep (`PixArtAlphaCombinedTimestepSizeEmbeddings`).
const FREQUENCIES: u64 = 256;
/// Vectors by which a residual block scales and shifts.
const VECTORS: u64 = 4;

/// Channels of a latent (`latent_channels`).
pub const LATENT_CHANNELS: u64 = 128;
/// Pixels of a side of a latent position.
pub const SPATIAL: u64 = 32;
/// Frames of a latent frame after the first.
pub const TEMPORAL: u64 = 8;
/// Tile sizes of the class.
pub const TILING: Tiling = Tiling { tile: [512, 512], stride: [448, 448], temporal: None };

/// A published VAE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vae {
    /// 0.9.0: the class's defaults.
    V090,
    /// 0.9.5 and later (`scripts/convert_ltx_to_diffusers.py`).
    V095,
}

/// How a level of the encoder ends.
#[derive(Debug, Clone, Copy)]
enum Down {
    /// With its last residual block.
    Same,
    /// With a convolution of stride 2 in every direction.
    Strided,
    /// With so many frames, rows and columns folded into channels.
    Folded([u64; 3]),
}

/// A level of the decoder: its width, whether it upsamples, its residual blocks after that.
type Up = (u64, bool, u64);

impl Vae {
    /// Operations of decoding, counted by running diffusers' class on the meta device at several sizes.
    pub fn decoder(&self) -> Decoder {
        if self.timestep() { Decoder { first: 2_900_000, each: 1_252_000 } } else { Decoder { first: 1_740_000, each: 865_200 } }
    }

    /// The VAE of so many parameters.
    pub fn of(parameters: u64) -> Result<Self, String> {
        [Self::V090, Self::V095]
            .into_iter()
            .find(|vae| vae.parameters() == parameters)
            .ok_or_else(|| format!("no LTX-Video VAE has {parameters} parameters"))
    }

    fn parameters(self) -> u64 {
        self.tensors().iter().map(|parameter| parameter.elements).sum()
    }

    /// Whether the decoder is told a timestep.
    pub fn timestep(self) -> bool {
        self == Self::V095
    }

    /// Width and residual blocks of the decoder's middle, and its levels.
    fn ups(self) -> (u64, u64, &'static [Up]) {
        match self {
            Self::V090 => (512, 4, &[(512, false, 3), (512, true, 3), (256, true, 3), (128, true, 4)]),
            Self::V095 => (1024, 5, &[(512, true, 5), (256, true, 5), (128, true, 5)]),
        }
    }

    /// The factor by which upsampling narrows features; with one of 2 they are added to.
    fn factor(self) -> u64 {
        if self == Self::V095 { 2 } else { 1 }
    }

    /// Levels of the encoder: width, residual blocks, how it ends, width after it. And the residual blocks of its middle.
    fn downs(self) -> (&'static [(u64, u64, Down, u64)], u64) {
        use Down::{Folded, Same, Strided};
        match self {
            Self::V090 => (&[(128, 4, Strided, 256), (256, 3, Strided, 512), (512, 3, Strided, 512), (512, 3, Same, 512)], 4),
            Self::V095 => (
                &[
                    (128, 4, Folded([1, 2, 2]), 256),
                    (256, 6, Folded([2, 1, 1]), 512),
                    (512, 6, Folded([2, 2, 2]), 1024),
                    (1024, 2, Folded([2, 2, 2]), 2048),
                ],
                2,
            ),
        }
    }

    /// The parameters, in the order of the class.
    pub fn tensors(self) -> Vec<Parameter> {
        let mut list = Vec::new();
        let convolution = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64, kernel: u64| {
            list.extend([plain(inputs * outputs * kernel), plain(outputs)]);
        };
        let residual = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64, timestep: bool| {
            list.extend(timestep.then_some(plain(VECTORS * inputs)));
            convolution(list, inputs, outputs, CUBE);
            convolution(list, outputs, outputs, CUBE);
            if inputs != outputs {
                list.extend([plain(inputs); 2]);
                convolution(list, inputs, outputs, 1);
            }
        };
        let embedder = |list: &mut Vec<Parameter>, width: u64| {
            convolution(list, FREQUENCIES, width, 1);
            convolution(list, width, width, 1);
        };
        let (downs, middle) = self.downs();
        convolution(&mut list, RGB * PATCH * PATCH, downs[0].0, CUBE);
        let mut width = downs[0].0;
        for (inputs, blocks, down, outputs) in downs {
            for _ in 0..*blocks {
                residual(&mut list, *inputs, *inputs, false);
            }
            match down {
                Down::Same => {}
                Down::Strided => convolution(&mut list, *inputs, *inputs, CUBE),
                Down::Folded(by) => convolution(&mut list, *inputs, outputs / by.iter().product::<u64>(), CUBE),
            }
            if !matches!(down, Down::Folded(_)) && inputs != outputs {
                residual(&mut list, *inputs, *outputs, false);
            }
            width = *outputs;
        }
        for _ in 0..middle {
            residual(&mut list, width, width, false);
        }
        convolution(&mut list, width, LATENT_CHANNELS + 1, CUBE);

        let (mut width, middle, ups) = self.ups();
        let narrowest = ups.last().map_or(width, |up| up.0);
        if self.timestep() {
            list.extend([plain(1), plain(2 * narrowest)]);
        }
        convolution(&mut list, LATENT_CHANNELS, width, CUBE);
        if self.timestep() {
            embedder(&mut list, VECTORS * width);
        }
        for _ in 0..middle {
            residual(&mut list, width, width, self.timestep());
        }
        for (outputs, up, blocks) in ups {
            let inputs = width / self.factor();
            if self.timestep() {
                embedder(&mut list, VECTORS * inputs);
            }
            if inputs != *outputs {
                residual(&mut list, inputs, *outputs, self.timestep());
            }
            if *up {
                convolution(&mut list, outputs * self.factor(), outputs * 8, CUBE);
            }
            for _ in 0..*blocks {
                residual(&mut list, *outputs, *outputs, self.timestep());
            }
            width = *outputs;
        }
        convolution(&mut list, width, RGB * PATCH * PATCH, CUBE);
        if self.timestep() {
            embedder(&mut list, 2 * width);
        }
        list
    }
}

/// A VAE at a precision.
#[derive(Debug, Clone, Copy)]
pub struct Coder<'a> {
    /// The VAE.
    pub vae: Vae,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// How its weights pass by.
    pub streams: &'a Streams,
}

/// A tensor and its extents.
type Features = (Tensor, Map);

impl Coder<'_> {
    /// Latents of so many videos, latent frames, rows and columns.
    pub fn latent(&self, [batch, frames, height, width]: [u64; 4]) -> Map {
        Map { batch, channels: LATENT_CHANNELS, frames, height, width, element: self.act }
    }

    /// `LTXVideoCausalConv3d`: a copy with repeated border frames, two before in the encoder, one on each side in the decoder.
    /// The input stays the caller's. `out` is the result's map, `kernel` 27 or 1.
    fn convolve(&self, p: &mut Builder, x: Map, out: Map, kernel: u64, causal: bool) -> Tensor {
        let border = if kernel == 1 { 0 } else { 2 };
        let sides = if causal { 1 } else { 2 };
        let borders: Vec<Tensor> = (0..sides).map(|_| x.with(x.channels, border / sides).alloc(p, &BORDER)).collect();
        let padded = x.with(x.channels, x.frames + border);
        let pad = padded.alloc(p, &PADDED);
        let weights = self.streams.leaf(p, x.channels * kernel, out.channels);
        let y = out.alloc(p, &FEATURES);
        convolution_workspace(p, &WORKSPACE, padded, out, kernel);
        if let Some(weights) = weights {
            p.release(weights);
        }
        p.release(pad);
        for tensor in borders {
            p.release(tensor);
        }
        y
    }

    /// diffusers' `RMSNorm` without a weight: by way of fp32. The input stays the caller's.
    fn norm(p: &mut Builder, m: Map) -> Tensor {
        let statistics = m.with(1, m.frames).of(FP32);
        let wide = m.wide(p, &NORM_FP32);
        let square = m.of(FP32).alloc(p, &NORM_FP32);
        if let Some(wide) = wide {
            p.release(wide);
        }
        let variance = statistics.alloc(p, &STATISTICS);
        reduction_buffer(p, &REDUCTION, m);
        p.release(square);
        let shifted = statistics.alloc(p, &STATISTICS);
        let root = statistics.alloc(p, &STATISTICS);
        p.release(shifted);
        let mut y = m.of(FP32).alloc(p, if m.element == FP32 { &NORMED } else { &NORM_FP32 });
        p.release(root);
        if m.element != FP32 {
            let narrow = m.alloc(p, &NORMED);
            p.release(y);
            y = narrow;
        }
        p.release(variance);
        y
    }

    /// A norm, scaled and shifted by a timestep or not, and the activation. Drops `x` where it is the caller's to drop.
    fn activate(p: &mut Builder, m: Map, timestep: bool, x: Option<Tensor>) -> Tensor {
        let mut normed = Self::norm(p, m);
        if let Some(x) = x {
            p.release(x);
        }
        if timestep {
            let scaled = m.alloc(p, &MODULATED);
            let shifted = m.alloc(p, &MODULATED);
            p.release(scaled);
            p.release(normed);
            normed = shifted;
        }
        let y = m.alloc(p, &ACTIVATED);
        p.release(normed);
        y
    }

    /// `LTXVideoResnetBlock3d`; the input stays the caller's.
    fn residual(&self, p: &mut Builder, m: Map, channels: u64, causal: bool, timestep: bool) -> Features {
        let out = m.with(channels, m.frames);
        let activated = Self::activate(p, m, timestep, None);
        let y = self.convolve(p, m, out, CUBE, causal);
        p.release(activated);
        let activated = Self::activate(p, out, timestep, Some(y));
        let y = self.convolve(p, out, out, CUBE, causal);
        p.release(activated);
        let shortcut = (m.channels != channels).then(|| {
            // The norm wants channels last and copies them there.
            let together = m.alloc(p, &NORMED);
            let normed = m.alloc(p, &NORMED);
            for _ in 0..2 {
                p.touch(&STATISTICS, &[("batch", m.batch), ("frames", m.frames), ("height", m.height), ("width", m.width)], FP32);
            }
            p.release(together);
            let projected = self.convolve(p, m, out, 1, causal);
            p.release(normed);
            projected
        });
        let sum = out.alloc(p, &FEATURES);
        p.release(y);
        if let Some(shortcut) = shortcut {
            p.release(shortcut);
        }
        (sum, out)
    }

    /// So many residual blocks after each other, each of which replaces its input; drops `x`.
    fn residuals(&self, p: &mut Builder, x: Features, blocks: u64, causal: bool, timestep: bool) -> Tensor {
        if blocks == 0 {
            return x.0;
        }
        let (first, _) = self.residual(p, x.1, x.1.channels, causal, timestep);
        p.release(x.0);
        p.repeat_sampled(blocks - 1, 2, 0, |p| {
            let (next, _) = self.residual(p, x.1, x.1.channels, causal, timestep);
            p.replace(first, next);
        });
        first
    }

    /// `LTXVideoUpsampler3d`: channels become frames, rows and columns; the first frame goes. The input stays the caller's.
    fn upsample(&self, p: &mut Builder, m: Map) -> Features {
        let factor = self.vae.factor();
        let big = Map { channels: m.channels / factor, frames: 2 * m.frames, ..m.sized(2 * m.height, 2 * m.width) };
        let residual = (factor > 1).then(|| {
            let apart = m.alloc(p, &FOLDED);
            let repeated = big.alloc(p, &SHORTCUT);
            p.release(apart);
            repeated
        });
        let wide = m.with(8 * m.channels / factor, m.frames);
        let y = self.convolve(p, m, wide, CUBE, false);
        let mut apart = big.alloc(p, &FOLDED);
        p.release(y);
        let out = big.with(big.channels, big.frames - 1);
        if let Some(residual) = residual {
            let sum = out.alloc(p, &FEATURES);
            p.release(apart);
            p.release(residual);
            apart = sum;
        }
        (apart, out)
    }

    /// Decodes a latent (a reference of the caller's).
    pub fn decode(&self, p: &mut Builder, latent: Map) -> Features {
        let timestep = self.vae.timestep();
        let (width, middle, ups) = self.vae.ups();
        p.phase("decode_middle");
        let m = latent.with(width, latent.frames);
        let mut x = (self.convolve(p, latent, m, CUBE, false), m);
        let input = p.retain(x.0);
        x.0 = self.residuals(p, x, middle, false, timestep);
        p.release(input);
        let names = ["decode_level_1", "decode_level_2", "decode_level_3", "decode_level_4"];
        for ((width, up, blocks), name) in ups.iter().zip(names) {
            p.phase(name);
            // The decoder's own name for it lives until the level is through.
            let input = p.retain(x.0);
            if x.1.channels / self.vae.factor() != *width {
                let next = self.residual(p, x.1, *width, false, timestep);
                p.release(x.0);
                x = next;
            }
            if *up {
                let next = self.upsample(p, x.1);
                p.release(x.0);
                x = next;
            }
            x.0 = self.residuals(p, x, *blocks, false, timestep);
            p.release(input);
        }
        p.phase("decode_output");
        let activated = Self::activate(p, x.1, timestep, Some(x.0));
        let m = x.1.with(RGB * PATCH * PATCH, x.1.frames);
        let y = self.convolve(p, x.1, m, CUBE, false);
        p.release(activated);
        let video = m.with(RGB, m.frames).sized(PATCH * m.height, PATCH * m.width);
        let pixels = video.alloc(p, &DECODED);
        p.release(y);
        (pixels, video)
    }

    /// [`decode`](Self::decode), tile by tile where the latent is larger than one, and one video at a time with `sliced`.
    pub fn decode_as(&self, p: &mut Builder, latent: Map, tiling: Option<Tiling>, sliced: bool) -> Features {
        Self::in_slices(p, latent, sliced, |p, latent| {
            match tiling.filter(|tiling| Tiles::several([latent.height, latent.width], tiling, SPATIAL)) {
                Some(tiling) => Self::in_tiles(p, latent, (tiling, SPATIAL), [SPATIAL, 1], &DECODED, |p, latent| self.decode(p, latent)),
                None => self.decode(p, latent),
            }
        })
    }

    /// [`encode`](Self::encode), tile by tile where the pixels are more than one, and one video at a time with `sliced`.
    pub fn encode_as(&self, p: &mut Builder, pixels: Map, tiling: Option<Tiling>, sliced: bool) -> Features {
        Self::in_slices(p, pixels, sliced, |p, pixels| {
            match tiling.filter(|tiling| Tiles::several([pixels.height, pixels.width], tiling, 1)) {
                Some(tiling) => Self::in_tiles(p, pixels, (tiling, 1), [1, SPATIAL], &LATENT, |p, pixels| self.encode(p, pixels)),
                None => self.encode(p, pixels),
            }
        })
    }

    fn in_slices(p: &mut Builder, m: Map, sliced: bool, code: impl Fn(&mut Builder, Map) -> Features) -> Features {
        if !sliced || m.batch < 2 {
            return code(p, m);
        }
        let parts = p.list();
        let mut out = m;
        p.repeat(m.batch, |p| {
            let (slice, one) = code(p, Map { batch: 1, ..m });
            out = Map { batch: m.batch, ..one };
            p.keep(parts, slice);
        });
        p.phase("join_slices");
        let joined = out.alloc(p, &DECODED);
        p.release_list(parts);
        (joined, out)
    }

    /// Tiles, whose sizes are `unit`s of a position, each coded on its own and all kept until they are put together row by row;
    /// sides grow by a fraction.
    fn in_tiles(
        p: &mut Builder,
        m: Map,
        (tiling, unit): (Tiling, u64),
        [up, down]: [u64; 2],
        site: &'static Site,
        code: impl Fn(&mut Builder, Map) -> Features,
    ) -> Features {
        let grid = Tiles::new([m.height, m.width], &tiling, unit).admitted(p, 1);
        let stride = tiling.stride.map(|side| u64::from(side) / unit);
        let tiles = p.list();
        let mut out = m;
        for (height, many_rows) in &grid.rows {
            grid.repeat_rows(p, *many_rows, |p| {
                for (width, many_columns) in &grid.columns {
                    p.repeat_sampled(*many_columns, 1, 1, |p| {
                        let (tile, one) = code(p, m.sized(*height, *width));
                        out = one;
                        p.keep(tiles, tile);
                    });
                }
            });
        }
        p.phase("merge_tiles");
        let scaled = |side: u64| side * up / down;
        let width = scaled(Tiles::joined(&grid.columns, stride[1], |side| side));
        let merged = p.list();
        for (height, many) in &grid.rows {
            p.repeat(*many, |p| {
                let row = out.sized(scaled((*height).min(stride[0])), width).alloc(p, &TILE);
                p.keep(merged, row);
            });
        }
        let whole = out.sized(scaled(Tiles::joined(&grid.rows, stride[0], |side| side)), width).alloc(p, site);
        p.release_list(merged);
        p.release_list(tiles);
        (whole, out.sized(scaled(m.height), scaled(m.width)))
    }

    /// `LTXVideoDownsampler3d`: frames, rows and columns become channels, beside their average. The input stays the caller's.
    fn fold(&self, p: &mut Builder, m: Map, by: [u64; 3], channels: u64) -> Features {
        let [time, height, width] = by;
        let filled = m.with(m.channels, m.frames + time - 1);
        let small = filled.with(channels, filled.frames / time).sized(m.height / height, m.width / width);
        let joined = filled.alloc(p, &PADDED);
        // All frames of a channel put into channels are already in order.
        let in_order = small.frames == 1 && height * width == 1;
        let apart = (!in_order).then(|| filled.alloc(p, &FOLDED));
        let mean = small.alloc(p, &SHORTCUT);
        if let Some(apart) = apart {
            p.release(apart);
        }
        let narrow = filled.with(channels / by.iter().product::<u64>(), filled.frames);
        let y = self.convolve(p, filled, narrow, CUBE, true);
        p.release(joined);
        let together = if in_order {
            y
        } else {
            let together = small.alloc(p, &FOLDED);
            p.release(y);
            together
        };
        let sum = small.alloc(p, &FEATURES);
        p.release(together);
        p.release(mean);
        (sum, small)
    }

    /// Encodes pixels (a reference of the caller's): the result is the distribution of the latent, twice its channels.
    pub fn encode(&self, p: &mut Builder, pixels: Map) -> Features {
        let (downs, middle) = self.vae.downs();
        p.phase("encode_input");
        let patches = Map { channels: RGB * PATCH * PATCH, ..pixels.sized(pixels.height / PATCH, pixels.width / PATCH) };
        let folded = patches.alloc(p, &FOLDED);
        let m = patches.with(downs[0].0, patches.frames);
        let mut x = (self.convolve(p, patches, m, CUBE, true), m);
        p.release(folded);
        let names = ["encode_level_1", "encode_level_2", "encode_level_3", "encode_level_4"];
        for ((_, blocks, down, width), name) in downs.iter().zip(names) {
            p.phase(name);
            let input = p.retain(x.0);
            x.0 = self.residuals(p, x, *blocks, true, false);
            let next = match down {
                Down::Same => None,
                Down::Strided => {
                    let half = |side: u64| side.div_ceil(2);
                    let m = x.1.with(x.1.channels, half(x.1.frames)).sized(half(x.1.height), half(x.1.width));
                    Some((self.convolve(p, x.1, m, CUBE, true), m))
                }
                Down::Folded(by) => Some(self.fold(p, x.1, *by, *width)),
            };
            if let Some(next) = next {
                p.release(x.0);
                x = next;
            }
            if x.1.channels != *width {
                let next = self.residual(p, x.1, *width, true, false);
                p.release(x.0);
                x = next;
            }
            p.release(input);
        }
        p.phase("encode_middle");
        let input = p.retain(x.0);
        let y = self.residuals(p, x, middle, true, false);
        p.release(input);
        p.phase("encode_output");
        let activated = Self::activate(p, x.1, false, Some(y));
        let m = x.1.with(LATENT_CHANNELS + 1, x.1.frames);
        let y = self.convolve(p, x.1, m, CUBE, true);
        p.release(activated);
        // The one deviation stands for all channels.
        let repeated = m.with(LATENT_CHANNELS - 1, m.frames).alloc(p, &LATENT);
        let out = m.with(2 * LATENT_CHANNELS, m.frames);
        let moments = out.alloc(p, &LATENT);
        p.release(repeated);
        p.release(y);
        (moments, out)
    }
}
