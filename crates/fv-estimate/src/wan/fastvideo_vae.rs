//! `AutoencoderKLWan` as FastVideo 0.2.1 runs it (`models/vaes/wanvae.py`, `models/vaes/common.py`): what differs from
//! diffusers' class. Layers and caches are [`diffusers_vae`](super::diffusers_vae)'s.
//!
//! With autocast, which is the default, norms and everything up to the next convolution are in fp32, and so are the cached
//! features; convolutions cast their input and leave bf16. The parameters keep `requires_grad`, so autocast's copies of fp32
//! weights stay until the decode ends.
//!
//! Without its feature cache the class decodes all frames of a tile together: four for each latent frame, of which the first
//! three are cut away. In temporal tiles these three are cut from every tile and once more from the whole, so that three
//! frames of the video are missing.

use fv_spec::authored::Dtype;
use fv_spec::estimate::Reason;

use super::diffusers_vae::{Caches, Casts, Chunk, Coder, Map, Style, WeightCasts};
use super::geometry::{Latent, Vae};
use crate::modules::tiles::{Tiles, spans};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, List, Tensor, sites};
use crate::settings::{Precision, Tiling};
use crate::storage::Storage;

sites! { "wan.vae.output":
    DECODED "decoded video" Output;
    TILE "decoded tile" Output;
    LATENT "latent" Activation;
    BLENDED "blended lines" Activation;
    DISTRIBUTION "latent distribution" Activation;
}

/// Channels of a picture.
const RGB: u64 = 3;

/// A decoded video, with frames at its start or end that nobody looks at.
#[derive(Debug, Clone, Copy)]
pub(super) struct Decoded {
    /// The tensor.
    pub(super) tensor: Tensor,
    /// Its extents, as far as they are looked at.
    pub(super) visible: Map,
}

impl Coder {
    /// FastVideo's decoder: bytes of an activation of the type computed in, and how it gets there.
    pub fn fastvideo(vae: Vae, act: u64, casts: Casts) -> Self {
        Self { vae, act, workspace: true, style: Style::FastVideo(casts) }
    }

    /// The decoder as the decoding stage runs it over latents of `element` bytes a value. Without autocast they are cast to the
    /// weights' type.
    pub(super) fn fastvideo_decoder(vae: Vae, precision: &Precision, element: u64) -> Self {
        let act = bytes_of(precision.computed);
        let weights = match precision.stored {
            Storage::Plain(stored) if precision.autocast && stored != precision.computed => {
                if precision.cast_cache {
                    WeightCasts::Kept
                } else {
                    WeightCasts::Each
                }
            }
            _ => WeightCasts::None,
        };
        Self::fastvideo(vae, act, Casts { input: if precision.autocast { element } else { act }, autocast: precision.autocast, weights })
    }

    /// The encoder: it computes as stored, with autocast only where that is not fp32.
    pub(super) fn fastvideo_encoder(vae: Vae, precision: &Precision) -> Self {
        let stored = if let Storage::Plain(stored) = precision.stored { stored } else { precision.computed };
        let (act, autocast) = (bytes_of(stored), precision.autocast && stored != Dtype::Fp32);
        Self::fastvideo(vae, act, Casts { input: if autocast { FP32 } else { act }, autocast, weights: WeightCasts::None })
    }

    /// The decoding stage's latents: those of `element` bytes a value scaled and shifted, and cast to the weights' type unless
    /// autocast does that.
    pub(super) fn denormalise(&self, p: &mut Builder, latent: Latent, element: u64) -> Tensor {
        p.phase("decode_input");
        let map = self.latent(latent, latent.frames);
        let given = Map { element, ..map };
        let scaled = self.map(p, &LATENT, given);
        let shifted = self.map(p, &LATENT, given);
        p.release(scaled);
        if map.element == element {
            return shifted;
        }
        let cast = self.map(p, &LATENT, map);
        p.release(shifted);
        cast
    }

    /// Decodes frame by frame with the feature cache. The latent is a reference of the caller's.
    pub(super) fn decode_cached(&self, p: &mut Builder, latent: Latent) -> Decoded {
        let frames = 1 + self.vae.temporal * (latent.frames - 1);
        let tensor = self.decode(p, latent);
        let map = self.latent(latent, frames);
        let (height, width) = (latent.height * self.vae.spatial, latent.width * self.vae.spatial);
        Decoded { tensor, visible: Map { channels: RGB, height, width, element: FP32, ..map } }
    }

    /// What the decoding stage makes of a decoded video: scaled to [0, 1], clamped, in fp32
    /// (`pipelines/stages/decoding.py`). The decoded latents go with the stage's own call. The result stays on the device.
    pub(super) fn finish(&self, p: &mut Builder, latents: Tensor, decoded: Decoded) -> Tensor {
        p.phase("postprocess");
        let Decoded { tensor, visible } = decoded;
        let halved = self.map(p, &DECODED, visible);
        let moved = self.map(p, &DECODED, visible);
        p.release(halved);
        let clamped = self.map(p, &DECODED, visible);
        for tensor in [moved, tensor, latents] {
            p.release(tensor);
        }
        if visible.element == FP32 {
            return clamped;
        }
        let wide = self.map(p, &DECODED, Map { element: FP32, ..visible });
        p.release(clamped);
        wide
    }

    /// Decodes without the feature cache: the whole, in spatial tiles, or in spatial and temporal ones. The latent is a
    /// reference of the caller's.
    pub(super) fn decode_uncached(&self, p: &mut Builder, latent: Latent, tiling: Option<Tiling>) -> Decoded {
        let casts = p.list();
        let mut decoded = match tiling {
            Some(tiling) if self.in_time(latent, &tiling).is_some() => self.decode_in_time(p, latent, tiling, casts),
            tiling => self.decode_in_space(p, latent, tiling, Some(casts)),
        };
        // Autocast ends with the call.
        p.release_list(casts);
        let frames = 1 + self.vae.temporal * (latent.frames - 1);
        decoded.visible.frames = decoded.visible.frames.min(frames);
        decoded
    }

    /// Latent frames of a temporal tile and their stride, where the latent has more than one tile.
    fn in_time(&self, latent: Latent, tiling: &Tiling) -> Option<[u64; 2]> {
        let [tile, stride] = tiling.temporal?.map(|frames| u64::from(frames) / self.vae.temporal);
        (latent.frames > tile).then_some([tile, stride.max(1)])
    }

    /// Why decoding in these tiles is not evaluated.
    pub(super) fn refuses(&self, latent: Latent, tiling: &Tiling) -> Option<Reason> {
        let slices = self.in_time(latent, tiling).map_or(1, |[tile, stride]| spans(latent.frames, tile + 1, stride).len());
        let whole = Tiles { rows: vec![(latent.height, 1)], columns: vec![(latent.width, 1)] };
        let grid = if super::tiled(&self.vae, latent, tiling) { self.decode_tiles(latent, tiling) } else { whole };
        grid.refusal(slices)
    }

    /// All frames of a latent, whole or a tile of one.
    fn decode_frames(&self, p: &mut Builder, latent: Latent, casts: Option<List>) -> Decoded {
        p.phase("decode_input");
        let (quantised, _) = self.point(p, self.latent(latent, latent.frames), casts);
        let mut caches = Caches::casting(casts);
        let (video, visible) = self.decode_chunk(p, &mut caches, Chunk::Whole, latent);
        p.phase("decode_output");
        let tensor = self.map(p, &TILE, visible);
        p.release(video);
        p.release(quantised);
        Decoded { tensor, visible }
    }

    /// In spatial tiles where there are several; otherwise whole.
    fn decode_in_space(&self, p: &mut Builder, latent: Latent, tiling: Option<Tiling>, casts: Option<List>) -> Decoded {
        let Some(tiling) = tiling.filter(|tiling| super::tiled(&self.vae, latent, tiling)) else {
            return self.decode_frames(p, latent, casts);
        };
        let spatial = self.vae.spatial;
        let grid = self.decode_tiles(latent, &tiling);
        let (rows, columns) = (&grid.rows, &grid.columns);
        let tiles = p.list();
        let tile = |p: &mut Builder, height: u64, width: u64, casts: Option<List>| {
            let decoded = self.decode_frames(p, Latent { height, width, ..latent }, casts);
            p.keep(tiles, decoded.tensor);
        };
        let row = |p: &mut Builder, height: u64, columns: &[(u64, u64)]| {
            for (width, many) in columns {
                p.repeat_sampled(*many, 1, 1, |p| tile(p, height, *width, None));
            }
        };
        // The first tile makes the copies of the weights, so it is told apart from the others.
        if let (Some((height, _)), Some((width, _))) = (rows.first(), columns.first()) {
            tile(p, *height, *width, casts);
            row(p, *height, &without_first(columns));
        }
        for (height, many) in &without_first(rows) {
            grid.repeat_rows(p, *many, |p| row(p, *height, columns));
        }

        p.phase("decode_merge");
        let frames = 4 * latent.frames;
        let cropped = |spans: &[(u64, u64)], stride: u32| -> u64 {
            spans.iter().map(|(size, many)| (size * spatial).min(stride.into()) * many).sum()
        };
        let width = cropped(columns, tiling.stride[1]);
        let video = Map { frames, height: cropped(rows, tiling.stride[0]), width, ..self.latent(latent, frames) };
        let video = Map { channels: self.vae.output_channels, element: self.act, ..video };
        // Tiles are blended in place, line by line: two products and their sum at a time.
        let line = [("batch", video.batch), ("channels", video.channels), ("frames", frames), ("pixels", u64::from(tiling.tile[1]))];
        let blended = [(); 3].map(|()| p.alloc(&BLENDED, &line, self.act));
        for tensor in blended {
            p.release(tensor);
        }
        let merged = p.list();
        for (height, many) in rows {
            p.repeat(*many, |p| {
                let row = self.map(p, &TILE, Map { height: (height * spatial).min(tiling.stride[0].into()), ..video });
                p.keep(merged, row);
            });
        }
        let tensor = self.map(p, &DECODED, video);
        p.release_list(merged);
        p.release_list(tiles);
        Decoded { tensor, visible: video.with(video.channels, frames - CUT) }
    }

    /// In temporal tiles, each of them in spatial ones.
    fn decode_in_time(&self, p: &mut Builder, latent: Latent, tiling: Tiling, casts: List) -> Decoded {
        let [tile, stride] = self.in_time(latent, &tiling).unwrap_or([latent.frames, latent.frames]);
        // A tile has one latent frame more than its size says, to overlap.
        let slices = spans(latent.frames, tile + 1, stride);
        let Some((first_frames, _)) = slices.first().copied() else { return self.decode_in_space(p, latent, None, Some(casts)) };
        let parts = p.list();
        let first = self.decode_in_space(p, Latent { frames: first_frames, ..latent }, Some(tiling), Some(casts));
        p.keep(parts, first.tensor);
        let step = stride * self.vae.temporal;
        let mut joined = first.visible.frames.min(step + 1);
        for (frames, many) in without_first(&slices) {
            let mut taken = 0;
            p.repeat_sampled(many, 1, 1, |p| {
                let part = self.decode_in_space(p, Latent { frames, ..latent }, Some(tiling), None);
                p.keep(parts, part.tensor);
                taken = (part.visible.frames - 1).min(step);
            });
            joined += taken * many;
        }
        p.phase("decode_merge");
        let lines = 2 * (tile - stride.min(tile)) * self.vae.temporal;
        let later: u64 = without_first(&slices).iter().map(|(_, many)| many).sum();
        let frame = first.visible.with(first.visible.channels, 1);
        p.repeat_sampled(later * lines, 1, 0, |p| {
            let products = [(); 2].map(|()| self.map(p, &BLENDED, frame));
            let sum = self.map(p, &BLENDED, frame);
            for tensor in products.into_iter().chain([sum]) {
                p.release(tensor);
            }
        });
        let whole = first.visible.with(first.visible.channels, joined);
        let tensor = self.map(p, &DECODED, whole);
        p.release_list(parts);
        Decoded { tensor, visible: whole.with(whole.channels, joined - CUT) }
    }

    /// Encodes a clip (a reference of the caller's). The result is what the distribution object keeps: the moments of both
    /// halves together, the clamped logarithm of the variance, deviation and variance.
    pub(super) fn encode_distribution(&self, p: &mut Builder, frames: u64, height: u64, width: u64) -> [Tensor; 4] {
        let encoded = self.encode_frames(p, 1, frames, height, width);
        let moments = encoded.distribution;
        let half = moments.with(moments.channels / 2, moments.frames);
        let joined = self.map(p, &DISTRIBUTION, moments);
        let clamped = self.map(p, &DISTRIBUTION, half);
        let scaled = self.map(p, &DISTRIBUTION, half);
        let deviation = self.map(p, &DISTRIBUTION, half);
        p.release(scaled);
        let variance = self.map(p, &DISTRIBUTION, half);
        encoded.release(p);
        p.release(encoded.moments);
        [joined, clamped, deviation, variance]
    }
}

/// Frames cut from the start of what was decoded without a cache.
const CUT: u64 = 3;

/// The spans after the first one.
fn without_first(spans: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut spans = spans.to_vec();
    if let Some((_, many)) = spans.first_mut() {
        *many -= 1;
    }
    spans.retain(|(_, many)| *many > 0);
    spans
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::simulated::{assert_equal, assert_peak, assert_recorded, peak, program, table};
    use super::*;
    use crate::program::{Program, Sampling};

    fn tiling(tile: u32, stride: u32, temporal: bool) -> Tiling {
        Tiling { tile: [tile; 2], stride: [stride; 2], temporal: temporal.then_some([16, 12]) }
    }

    /// A mode of the tables; `input` is what the simulated latents were.
    fn coder(vae: Vae, mode: &str, input: u64) -> Coder {
        let plain = |act| Coder::fastvideo(vae, act, Casts { input: act, autocast: false, weights: WeightCasts::None });
        match mode {
            "ac" => Coder::fastvideo(vae, 2, Casts { input, autocast: true, weights: WeightCasts::Kept }),
            // What `vae_precision: bf16` gives with autocast left on.
            "bf16 with autocast" => Coder::fastvideo(vae, 2, Casts { input, autocast: true, weights: WeightCasts::None }),
            "bf16" => plain(2),
            _ => plain(4),
        }
    }

    /// The decoding as it was simulated: latents, the decode, the stage's scaling, clamping and widening.
    fn decoding(coder: Coder, latent: Latent, cached: bool, tiling: Option<Tiling>) -> Program {
        program(|p| {
            let z = coder.map(p, &TILE, coder.latent(latent, latent.frames));
            let decoded = if cached { coder.decode_cached(p, latent) } else { coder.decode_uncached(p, latent, tiling) };
            let z = p.retain(z);
            coder.finish(p, z, decoded);
        })
    }

    #[test]
    fn cached_decoding_is_the_simulated_one() {
        for (name, vae, mode, size) in [
            ("vae21_ac_480x832x17", Vae::WAN21, "ac", [480, 832]),
            ("vae21_bf16_480x832x17", Vae::WAN21, "bf16", [480, 832]),
            ("vae21_bf16_autocast_480x832x17", Vae::WAN21, "bf16 with autocast", [480, 832]),
            ("vae21_fp32_480x832x17", Vae::WAN21, "fp32", [480, 832]),
            ("vae22_ac_704x1280x17", Vae::WAN22, "ac", [704, 1280]),
        ] {
            let latent = Latent::of(&vae, 1, 17, size[0], size[1]);
            assert_equal(&decoding(coder(vae, mode, 4), latent, true, None), name);
        }
    }

    #[test]
    fn decoding_without_cache_is_the_simulated_one() {
        for (name, mode, frames, tiling) in [
            ("vae21_ac_uncached_480x832x17", "ac", 17, None),
            ("vae21_bf16_uncached_480x832x17", "bf16", 17, None),
            ("vae21_fp32_uncached_480x832x17", "fp32", 17, None),
            ("vae21_ac_tiled_480x832x33", "ac", 33, Some(tiling(256, 192, false))),
            ("vae21_bf16_tiled_480x832x17", "bf16", 17, Some(tiling(256, 192, false))),
            ("vae21_ac_tiled_in_time_480x832x33", "ac", 33, Some(tiling(256, 192, true))),
        ] {
            assert_equal(&decoding(coder(Vae::WAN21, mode, 4), Latent::of(&Vae::WAN21, 1, frames, 480, 832), false, tiling), name);
        }
    }

    #[test]
    fn encoding_is_the_simulated_one() {
        for (name, vae, mode, frames, size) in [
            ("vae21_fp32_encode_480x832x17", Vae::WAN21, "fp32", 17, [480, 832]),
            ("vae21_bf16_encode_480x832x17", Vae::WAN21, "bf16", 17, [480, 832]),
            ("vae22_fp32_encode_704x1280x1", Vae::WAN22, "fp32", 1, [704, 1280]),
            ("vae22_fp32_encode_704x1280x17", Vae::WAN22, "fp32", 17, [704, 1280]),
        ] {
            let coder = coder(vae, mode, 4);
            let encoding = program(|p| {
                let pixels =
                    Map { channels: 3, height: size[0], width: size[1], ..coder.latent(Latent::of(&vae, 1, frames, 8, 8), frames) };
                coder.map(p, &TILE, pixels);
                coder.encode_distribution(p, frames, size[0], size[1]);
            });
            assert_equal(&encoding, name);
        }
    }

    /// The row of a table: its name, a coder, the latent. The tables were simulated with latents in the computed type.
    fn row(row: &HashMap<String, String>) -> (String, Coder, Latent) {
        let number = |column: &str| row[column].parse().expect("a number");
        let vae = if row.get("vae").is_some_and(|vae| vae == "2.2") { Vae::WAN22 } else { Vae::WAN21 };
        let coder = coder(vae, &row["mode"], 2);
        let latent = Latent::of(&vae, 1, number("frames"), number("height"), number("width"));
        (format!("{} {} {} x {} x {}", vae.spatial, row["mode"], row["height"], row["width"], row["frames"]), coder, latent)
    }

    #[test]
    fn peaks_of_cached_decoding_are_the_simulated_ones() {
        for cells in table("wan_vae_decode_sim.csv") {
            let (name, coder, latent) = row(&cells);
            assert_peak(&decoding(coder, latent, true, None), &cells["working_peak_GiB"], &name);
        }
    }

    #[test]
    fn peaks_of_decoding_without_cache_are_the_simulated_ones() {
        for cells in table("wan_vae_decode_uncached_sim.csv") {
            let (name, coder, latent) = row(&cells);
            let tiling = cells["tile"].parse().ok().map(|tile| tiling(tile, tile * 3 / 4, cells["temporal_tiling"] == "True"));
            let name = format!("{name} tile {} in time {}", cells["tile"], cells["temporal_tiling"]);
            let program = decoding(coder, latent, false, tiling);
            assert_peak(&program, &cells["working_peak_GiB"], &name);
            // The frames that temporal tiles lose, from `(1, 3, 78, 480, 832)`.
            let shown = cells["out_shape"].split(", ").nth(2).expect("frames");
            let visible = program_frames(coder, latent, tiling);
            assert_eq!(visible.to_string(), shown, "{name}");
        }
    }

    fn program_frames(coder: Coder, latent: Latent, tiling: Option<Tiling>) -> u64 {
        coder.decode_uncached(&mut Builder::new(false), latent, tiling).visible.frames
    }

    #[test]
    fn executing_the_ends_of_loops_finds_the_peak() {
        let latent = Latent::of(&Vae::WAN21, 1, 49, 480, 832);
        for (cached, tiling) in [(true, None), (false, Some(tiling(256, 192, false))), (false, Some(tiling(256, 192, true)))] {
            let program = decoding(coder(Vae::WAN21, "ac", 4), latent, cached, tiling);
            assert_eq!(peak(&program, Sampling::Ends), peak(&program, Sampling::All));
        }
    }

    #[test]
    fn coding_is_the_recorded_one() {
        for (name, vae, mode, cached, tiling, [h, w, f]) in [
            ("vae21_ac_480x832x17", Vae::WAN21, "ac", true, None, [480, 832, 17]),
            ("vae21_ac_720x1280x9", Vae::WAN21, "ac", true, None, [720, 1280, 9]),
            ("vae21_bf16_480x832x17", Vae::WAN21, "bf16", true, None, [480, 832, 17]),
            ("vae21_fp32_480x832x17", Vae::WAN21, "fp32", true, None, [480, 832, 17]),
            ("vae22_ac_480x832x17", Vae::WAN22, "ac", true, None, [480, 832, 17]),
            ("vae21_ac_uncached_480x832x17", Vae::WAN21, "ac", false, None, [480, 832, 17]),
            ("vae21_ac_tiles512_480x832x33", Vae::WAN21, "ac", false, Some(tiling(512, 384, false)), [480, 832, 33]),
            ("vae21_ac_tiles256_480x832x33", Vae::WAN21, "ac", false, Some(tiling(256, 192, false)), [480, 832, 33]),
        ] {
            let latent = Latent::of(&vae, 1, f, h, w);
            let coder = coder(vae, mode, 4);
            let recorded = program(|p| {
                let z = coder.denormalise(p, latent, FP32);
                let decoded = if cached { coder.decode_cached(p, latent) } else { coder.decode_uncached(p, latent, tiling) };
                coder.finish(p, z, decoded);
            });
            assert_recorded(&recorded, name, 0);
        }
        let coder = coder(Vae::WAN21, "fp32", 4);
        let recorded = program(|p| {
            // The mean is kept, which is a view of the moments.
            let [_, others @ ..] = coder.encode_distribution(p, 17, 480, 832);
            for tensor in others {
                p.release(tensor);
            }
        });
        assert_recorded(&recorded, "vae21_enc_fp32_480x832x17", 0);
    }
}
