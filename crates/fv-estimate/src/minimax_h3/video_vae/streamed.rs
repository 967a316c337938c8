//! Decoding as FastVideo does it (`fastvideo/models/vaes/minimax_h3_video.py`, commit 03d322f6): clips go to the host as they are
//! finished, tiles may share a call, and the decoder's matrices may be in int8 (`minimax_h3_int8.py`).

use super::{CLIP, CLIP_FRAMES, Coder, FFN, Map, SHARED, STEP, Tokens, WIDTH, WINDOW, blend, stitch};
use crate::minimax_h3::geometry::{Latent, Vae};
use crate::modules::FP32;
use crate::program::{Builder, List, Site, Tensor, sites};

sites! { "minimax_h3.vae.int8":
    QUANTISED "rows in int8" Activation;
    ROTATED "rotated rows" Activation;
    SUMS "sums in int32" Activation;
    SCALED "scaled sums in fp32" Activation;
}
sites! { "minimax_h3.vae.streamed":
    NARROW "weights in half precision" Cache;
    PIXELS "pixels in [0, 1]" Output;
}

/// Matrices in int8, each row of their input quantised on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int8 {
    /// Whether one kernel scales the sums (`FASTVIDEO_H3_VAE_INT8_FUSED_DEQUANT`).
    pub fused: bool,
}

/// Values of the matrices of a block, and of their scales: one for each output.
const MATRICES: u64 = 4 * WIDTH * WIDTH + 3 * WIDTH * FFN;
const SCALES: u64 = 5 * WIDTH + 2 * FFN;

impl Vae {
    /// Bytes of the weights with the matrices of the decoder's blocks in int8, and everything else in fp32 (the class keeps it so).
    pub fn int8_bytes(&self) -> u64 {
        FP32 * (self.tensors().parameters() - self.layers * (MATRICES - SCALES)) + self.layers * MATRICES
    }
}

impl Coder {
    /// A product of `inputs` with a matrix that makes `outputs` values of each token; its input stays.
    pub(super) fn product(&self, p: &mut Builder, tokens: &Tokens, site: &'static Site, [inputs, outputs]: [u64; 2]) -> Tensor {
        let Some(int8) = self.int8 else { return tokens.make(p, site, outputs, self.act) };
        // Rotated, divided by each row's scale, rounded, clamped: one copy lives beside the next.
        let rotated = tokens.make(p, &ROTATED, inputs, self.act);
        let divided = tokens.make(p, &ROTATED, inputs, self.act);
        let rounded = tokens.make(p, &ROTATED, inputs, self.act);
        p.release(divided);
        let quantised = tokens.make(p, &QUANTISED, inputs, 1);
        for tensor in [rounded, rotated] {
            p.release(tensor);
        }
        let sums = tokens.make(p, &SUMS, outputs, FP32);
        let mut out = tokens.make(p, if int8.fused { site } else { &SCALED }, outputs, if int8.fused { self.act } else { FP32 });
        if !int8.fused {
            // As fp32, times the rows' scales, times the matrix's, and the bias on top.
            for last in [false, false, true] {
                let next = tokens.make(p, if last { site } else { &SCALED }, outputs, FP32);
                p.release(out);
                out = next;
            }
        }
        for tensor in [sums, quantised] {
            p.release(tensor);
        }
        out
    }

    /// Decodes one video to pixels on the host, `tiles` tiles in a call; the latent's reference stays the caller's.
    pub fn decode_to_host(&self, p: &mut Builder, latent: Latent, tiles: u64) {
        p.phase("decode_input");
        // Generator and consumer hold a clip, what of it is finished, its border, and its pixels while the next clip is decoded.
        let held = p.list();
        let chunk = Map { element: FP32, ..self.video(latent, CLIP_FRAMES) };
        p.repeat_sampled((latent.frames / STEP).max(1), 2, 0, |p| {
            let clip = self.decode_clip_in_calls(p, latent, tiles);
            p.phase("blend_clips");
            let border = self.video(latent, SHARED);
            let sum = blend(p, border);
            let finished = self.video(latent, CLIP_FRAMES).make(p, &CLIP);
            p.release(sum);
            let shared = border.make(p, &CLIP);
            p.phase("pixels");
            let scaled = chunk.make(p, &PIXELS);
            let pixels = chunk.make(p, &PIXELS);
            p.release(scaled);
            p.release_list(held);
            for tensor in [clip, finished, shared, pixels] {
                p.keep(held, tensor);
            }
        });
        p.release_list(held);
    }

    /// A clip's tiles, so many in a call, and the clip that is put together from them.
    fn decode_clip_in_calls(&self, p: &mut Builder, latent: Latent, tiles: u64) -> Tensor {
        let video = self.video(latent, 4 * WINDOW);
        let splits = self.tiles(p, video.height, video.width);
        let [height, width] = [&splits[0], &splits[1]].map(|split| split.length);
        let tile = Map { height, width, ..video };
        if self.tiling.is_none() {
            return self.decode_tile(p, tile);
        }
        let count = (splits[0].count() * splits[1].count()) as u64;
        let at_once = tiles.clamp(1, count);
        let made = p.list();
        for (calls, in_call) in [(count / at_once, at_once), (u64::from(!count.is_multiple_of(at_once)), count % at_once)] {
            p.repeat_sampled(calls, 2, 0, |p| {
                let some = self.decode_tile(p, Map { batch: video.batch * in_call, ..tile });
                p.keep(made, some);
            });
        }
        p.phase("stitch");
        let clip = stitch(p, tile, &splits, [video.height, video.width]);
        p.release_list(made);
        clip
    }

    /// Copies of the decoder's matrices in the type that they are computed with, which autocast keeps while it runs. They stay in
    /// `kept`.
    pub fn cast_weights(&self, p: &mut Builder, kept: List) {
        if self.act != FP32 && self.int8.is_none() {
            p.phase("cast_weights");
            p.repeat_opaque(self.vae.layers, |p| {
                let narrow = p.alloc(&NARROW, &[("parameters", MATRICES)], self.act);
                p.keep(kept, narrow);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_in_int8() {
        // 26 blocks of 67,108,864 values in one byte and as many scales as outputs; the rest in four.
        let rest = 1_932_432_184 - 26 * 67_108_864;
        assert_eq!(Vae { layers: 26 }.int8_bytes(), 4 * rest + 26 * (67_108_864 + 4 * 26_624));
    }
}
