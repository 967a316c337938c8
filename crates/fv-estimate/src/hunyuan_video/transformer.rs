//! One forward pass of `HunyuanVideoTransformer3DModel` (diffusers 0.42.1), run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `transformer_hunyuan_video.py`: a token refiner for the
//! text, blocks with a stream each for video and text and joint attention, then blocks over both streams in one tensor. The
//! attention mask of the text tokens excludes the flash kernels; the others hold nothing beside their output.

use super::geometry::{Dit, LATENT_CHANNELS, Latent, REFINERS, TEXT};
use crate::forecast::operations::{Blocks, Operations};
use crate::modules::FP32;
use crate::modules::residency::Streams;
use crate::program::{Builder, Site, Tensor, sites};
use crate::settings::Attention;

sites! { "hunyuan_video.dit.embed":
    ROPE "rotary table" Cache;
    PATCHES "patch embedding" Activation;
    PATCH_WORKSPACE "patch convolution workspace" Workspace;
    TIME "time embedding" Activation;
    TEXT_STATES "text states" Activation;
    MASK "attention mask" Activation;
}
sites! { "hunyuan_video.dit.norm":
    NORM "normed states" Activation;
    NORM_STATISTICS "norm statistics" Activation;
    REORDERED "states reordered for a norm" Workspace;
    MODULATION "modulation" Activation;
    NORM_FP32 "norm in fp32" Activation;
}
sites! { "hunyuan_video.dit.attention":
    QUERY "query" Activation;
    KEY "key" Activation;
    VALUE "value" Activation;
    ROTATED "rotated states" Activation;
    ROTARY_PRODUCT "rotary product" Activation;
    JOINED "query, key or value of video and text" Activation;
    BIAS "attention bias" Activation;
    SCORES "attention scores" Activation;
    ATTENTION "attention output" Activation;
    PROJECTED "projected attention" Activation;
}
sites! { "hunyuan_video.dit.residual":
    HIDDEN "hidden states" Activation;
    GATED "gated update" Activation;
}
sites! { "hunyuan_video.dit.feed_forward":
    FFN_HIDDEN "feed-forward hidden" Activation;
    FFN_OUT "feed-forward output" Activation;
}
sites! { "hunyuan_video.dit.head":
    PREDICTION "prediction" Activation;
}

/// Features of a head that each axis (frames, rows, columns) rotates (`rope_axes_dim`).
const ROPE_AXES: [u64; 3] = [16, 56, 56];
/// Bytes of a position.
const INDEX: u64 = 8;

/// What a forward pass depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The transformer.
    pub dit: Dit,
    /// The latent it predicts for.
    pub latent: Latent,
    /// Text tokens, padding included.
    pub text_tokens: u64,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// The attention kernel.
    pub attention: Attention,
}

/// A tensor of the residual stream over so many tokens.
#[derive(Debug, Clone, Copy)]
struct States {
    tensor: Tensor,
    tokens: u64,
    /// A view whose rows are not in one piece: norms copy it.
    strided: bool,
}

impl Forward {
    /// Patches of one video.
    fn tokens_of_a_video(&self) -> u64 {
        self.latent.frames * (self.latent.height / self.dit.patch) * (self.latent.width / self.dit.patch)
    }

    /// Text and video rows meet as many weights each: of both streams' own layers in the dual blocks, of shared ones after them.
    pub fn operations(&self) -> Operations {
        let Dit { hidden, ffn, dual, single, .. } = self.dit;
        let rows = self.tokens_of_a_video() + self.text_tokens;
        Blocks {
            count: dual + single,
            batch: self.latent.batch,
            rows,
            weights: 4 * hidden * hidden + 2 * hidden * ffn,
            other_rows: 0,
            other_weights: 0,
            keys: rows,
            queries: rows,
            inner: hidden,
            hidden,
        }
        .operations(self.act)
    }

    fn video_tokens(&self) -> u64 {
        let Latent { frames, height, width, .. } = self.latent;
        frames * (height / self.dit.patch) * (width / self.dit.patch)
    }

    /// `width` features of each of so many tokens.
    fn rows(&self, p: &mut Builder, site: &'static Site, tokens: u64, width: u64, element: u64) -> Tensor {
        p.alloc(site, &[("batch", self.latent.batch), ("tokens", tokens), ("width", width)], element)
    }

    fn unit(&self, p: &mut Builder, site: &'static Site, tokens: u64) -> Tensor {
        self.rows(p, site, tokens, self.dit.hidden, self.act)
    }

    fn vectors(&self, p: &mut Builder, site: &'static Site, count: u64) -> Tensor {
        p.alloc(site, &[("batch", self.latent.batch), ("vectors", count), ("hidden", self.dit.hidden)], self.act)
    }

    /// A linear layer's output, with its weights where they come along.
    fn linear(&self, p: &mut Builder, streams: &Streams, site: &'static Site, tokens: u64, (inputs, outputs): (u64, u64)) -> Tensor {
        let weights = streams.leaf(p, inputs, outputs);
        let y = self.rows(p, site, tokens, outputs, self.act);
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    }

    /// A layer norm; its input stays.
    fn layer_norm(&self, p: &mut Builder, x: States) -> Tensor {
        let copy = x.strided.then(|| self.unit(p, &REORDERED, x.tokens));
        let y = self.unit(p, &NORM, x.tokens);
        for _ in 0..2 {
            p.touch(&NORM_STATISTICS, &[("batch", self.latent.batch), ("tokens", x.tokens)], FP32);
        }
        if let Some(copy) = copy {
            p.release(copy);
        }
        y
    }

    /// `norm * (1 + scale) + shift`; drops `normed`.
    fn modulated(&self, p: &mut Builder, normed: Tensor, tokens: u64) -> Tensor {
        let scaled = self.unit(p, &NORM, tokens);
        let y = self.unit(p, &NORM, tokens);
        p.release(scaled);
        p.release(normed);
        y
    }

    /// `AdaLayerNormZero`: the vectors of a modulation and the modulated norm.
    fn adaptive_norm(&self, p: &mut Builder, streams: &Streams, x: States, vectors: u64) -> (Tensor, Tensor) {
        let weights = streams.leaf(p, self.dit.hidden, vectors * self.dit.hidden);
        let modulation = self.vectors(p, &MODULATION, vectors);
        if let Some(weights) = weights {
            p.release(weights);
        }
        let normed = self.layer_norm(p, x);
        let scaled = self.unit(p, &NORM, x.tokens);
        p.release(normed);
        let y = self.unit(p, &NORM, x.tokens);
        p.release(scaled);
        (modulation, y)
    }

    /// `RMSNorm` over each head, by way of fp32; replaces its input.
    fn rms_norm(&self, p: &mut Builder, site: &'static Site, x: Tensor, tokens: u64) -> Tensor {
        let d = self.dit.hidden;
        let statistics = &[("batch", self.latent.batch), ("tokens", tokens), ("heads", self.dit.heads)];
        let wide = (self.act != FP32).then(|| self.rows(p, &NORM_FP32, tokens, d, FP32));
        let square = self.rows(p, &NORM_FP32, tokens, d, FP32);
        if let Some(wide) = wide {
            p.release(wide);
        }
        let variance = p.alloc(&NORM_STATISTICS, statistics, FP32);
        p.release(square);
        let shifted = p.alloc(&NORM_STATISTICS, statistics, FP32);
        let root = p.alloc(&NORM_STATISTICS, statistics, FP32);
        p.release(shifted);
        let mut scaled = self.rows(p, &NORM_FP32, tokens, d, FP32);
        p.release(root);
        if self.act != FP32 {
            let narrow = self.unit(p, &NORM, tokens);
            p.release(scaled);
            scaled = narrow;
        }
        let y = self.unit(p, site, tokens);
        for tensor in [scaled, variance, x] {
            p.release(tensor);
        }
        y
    }

    /// `apply_rotary_emb` of the video's tokens, in fp32; its input stays.
    fn rotary(&self, p: &mut Builder) -> Tensor {
        let (tokens, d) = (self.video_tokens(), self.dit.hidden);
        let wide = |p: &mut Builder| self.rows(p, &ROTARY_PRODUCT, tokens, d, FP32);
        let negative = self.rows(p, &ROTATED, tokens, d / 2, self.act);
        let rotated = self.unit(p, &ROTATED, tokens);
        p.release(negative);
        let products = [(); 2].map(|()| {
            let widened = (self.act != FP32).then(|| wide(p));
            let product = wide(p);
            if let Some(widened) = widened {
                p.release(widened);
            }
            product
        });
        let mut y = wide(p);
        for product in products {
            p.release(product);
        }
        if self.act != FP32 {
            let narrow = self.unit(p, &ROTATED, tokens);
            p.release(y);
            y = narrow;
        }
        p.release(rotated);
        y
    }

    /// The attention kernel over `tokens` tokens: the boolean mask becomes a bias, of each pair of tokens for the text alone.
    fn attend(&self, p: &mut Builder, tokens: u64, pairs: bool) -> Tensor {
        let (batch, heads) = (("batch", self.latent.batch), ("heads", self.dit.heads));
        let bias = if pairs {
            [batch, heads, ("queries", tokens), ("keys", tokens)]
        } else {
            [batch, ("heads", 1), ("queries", 1), ("keys", tokens)]
        };
        let bias = p.alloc(&BIAS, &bias, self.act);
        let y = if self.attention == Attention::Math { self.attend_with_scores(p, tokens) } else { self.unit(p, &ATTENTION, tokens) };
        p.release(bias);
        y
    }

    /// Attention with materialised scores, in fp32.
    fn attend_with_scores(&self, p: &mut Builder, tokens: u64) -> Tensor {
        let d = self.dit.hidden;
        let wide = |p: &mut Builder| self.rows(p, &QUERY, tokens, d, FP32);
        let narrow = self.act != FP32;
        let scores = [("batch", self.latent.batch), ("heads", self.dit.heads), ("queries", tokens), ("keys", tokens)];
        let copies: Vec<Tensor> = (0..if narrow { 4 } else { 1 }).map(|_| wide(p)).collect();
        let scaled_key = wide(p);
        let raw = p.alloc(&SCORES, &scores, FP32);
        p.release(scaled_key);
        let biased = p.alloc(&SCORES, &scores, FP32);
        p.release(raw);
        let soft = p.alloc(&SCORES, &scores, FP32);
        p.touch(&SCORES, &scores, 1);
        p.release(biased);
        let returned = narrow.then(|| p.alloc(&SCORES, &scores, self.act));
        let mut y = self.rows(p, &ATTENTION, tokens, d, FP32);
        if narrow {
            let cast = self.unit(p, &ATTENTION, tokens);
            p.release(y);
            y = cast;
        }
        p.release(soft);
        for tensor in copies.into_iter().rev().chain(returned) {
            p.release(tensor);
        }
        // Heads come before tokens, so putting them together again is a copy.
        let flat = self.unit(p, &ATTENTION, tokens);
        p.release(y);
        flat
    }

    /// Two linear layers with an activation between them.
    fn feed_forward(&self, p: &mut Builder, streams: &Streams, tokens: u64, width: u64) -> Tensor {
        let d = self.dit.hidden;
        let up = self.linear(p, streams, &FFN_HIDDEN, tokens, (d, width));
        let activated = self.rows(p, &FFN_HIDDEN, tokens, width, self.act);
        p.release(up);
        let down = self.linear(p, streams, &FFN_OUT, tokens, (width, d));
        p.release(activated);
        down
    }

    /// `x + update * gate`; neither is dropped.
    fn residual(&self, p: &mut Builder, tokens: u64) -> Tensor {
        let gated = self.unit(p, &GATED, tokens);
        let sum = self.unit(p, &HIDDEN, tokens);
        p.release(gated);
        sum
    }

    /// `HunyuanVideoRotaryPosEmbed`: cosines and sines of every video token, in fp32.
    fn rotary_tables(&self, p: &mut Builder) -> [Tensor; 2] {
        let tokens = ("tokens", self.video_tokens());
        let grid = p.alloc(&ROPE, &[("axes", 3), tokens], FP32);
        let axes = ROPE_AXES.map(|features| {
            let half = [tokens, ("half of features", features / 2)];
            let angles = p.alloc(&ROPE, &half, FP32);
            let waves = [(); 2].map(|()| {
                let wave = p.alloc(&ROPE, &half, FP32);
                let repeated = p.alloc(&ROPE, &[tokens, ("features", features)], FP32);
                p.release(wave);
                repeated
            });
            p.release(angles);
            waves
        });
        let tables = [(); 2].map(|()| p.alloc(&ROPE, &[tokens, ("features", ROPE_AXES.iter().sum())], FP32));
        for [cosines, sines] in [axes[1], axes[0], axes[2]] {
            p.release(sines);
            p.release(cosines);
        }
        p.release(grid);
        tables
    }

    /// The patch convolution with its workspace: cuDNN's copies of input, output and weights in another layout.
    fn patches(&self, p: &mut Builder) -> Tensor {
        let patches = self.unit(p, &PATCHES, self.video_tokens());
        let Latent { batch, frames, height, width } = self.latent;
        let copies = batch * LATENT_CHANNELS * frames * height * width
            + batch * self.video_tokens() * self.dit.hidden
            + LATENT_CHANNELS * self.dit.patch * self.dit.patch * self.dit.hidden;
        p.touch(&PATCH_WORKSPACE, &[("input, output and weights", copies)], self.act);
        patches
    }

    /// `HunyuanVideoTokenRefiner`: the text states that go into the blocks.
    fn refine(&self, p: &mut Builder, streams: &Streams) -> Tensor {
        p.phase("token_refiner");
        let (tokens, d) = (self.text_tokens, self.dit.hidden);
        // The mean over the prompt is taken in fp32.
        let weighted = self.rows(p, &TEXT_STATES, tokens, TEXT, FP32);
        p.release(weighted);
        let projected = self.linear(p, streams, &TEXT_STATES, tokens, (TEXT, d));
        let pairs = [("batch", self.latent.batch), ("queries", tokens), ("keys", tokens)];
        let masks = [(); 2].map(|()| p.alloc(&MASK, &pairs, 1));
        let mut x = p.retain(projected);
        for _ in 0..REFINERS {
            let states = States { tensor: x, tokens, strided: false };
            let normed = self.layer_norm(p, states);
            let mask = p.alloc(&MASK, &[("heads", self.dit.heads), pairs[0], pairs[1], pairs[2]], 1);
            let qkv = [&QUERY, &KEY, &VALUE].map(|site| self.linear(p, streams, site, tokens, (d, d)));
            let attended = self.attend(p, tokens, true);
            let out = self.linear(p, streams, &PROJECTED, tokens, (d, d));
            p.release(attended);
            let scaled = self.unit(p, &PROJECTED, tokens);
            for tensor in [out, mask].into_iter().chain(qkv) {
                p.release(tensor);
            }
            let hidden = self.residual(p, tokens);
            let second = self.layer_norm(p, states);
            let ff = self.feed_forward(p, streams, tokens, 4 * d);
            p.release(second);
            let sum = self.residual(p, tokens);
            for tensor in [hidden, normed, scaled, ff, x] {
                p.release(tensor);
            }
            x = sum;
        }
        for tensor in masks.into_iter().chain([projected]) {
            p.release(tensor);
        }
        x
    }

    /// `HunyuanVideoTransformerBlock`; drops both streams for new ones.
    fn dual_block(&self, p: &mut Builder, streams: &Streams, video: States, text: States) -> [Tensor; 2] {
        let d = self.dit.hidden;
        let tokens = video.tokens + text.tokens;
        p.phase("dual_attention");
        let (modulation, normed) = self.adaptive_norm(p, streams, video, 6);
        let (text_modulation, text_normed) = self.adaptive_norm(p, streams, text, 6);
        let [query, key, value] = [&QUERY, &KEY, &VALUE].map(|site| self.linear(p, streams, site, video.tokens, (d, d)));
        let query = self.rms_norm(p, &QUERY, query, video.tokens);
        let key = self.rms_norm(p, &KEY, key, video.tokens);
        let [query, key] = [query, key].map(|x| {
            let rotated = self.rotary(p);
            p.release(x);
            rotated
        });
        let [text_query, text_key, text_value] = [&QUERY, &KEY, &VALUE].map(|site| self.linear(p, streams, site, text.tokens, (d, d)));
        let text_query = self.rms_norm(p, &QUERY, text_query, text.tokens);
        let text_key = self.rms_norm(p, &KEY, text_key, text.tokens);
        let joined = [query, key, value].map(|x| {
            let joined = self.unit(p, &JOINED, tokens);
            p.release(x);
            joined
        });
        let attended = self.attend(p, tokens, false);
        let [out, text_out] = [video.tokens, text.tokens].map(|tokens| self.linear(p, streams, &PROJECTED, tokens, (d, d)));
        for tensor in [attended].into_iter().chain(joined).chain([text_query, text_key, text_value]) {
            p.release(tensor);
        }
        let hidden = States { tensor: self.residual(p, video.tokens), ..video };
        let text_hidden = States { tensor: self.residual(p, text.tokens), ..text };

        p.phase("dual_feed_forward");
        let second = self.layer_norm(p, hidden);
        p.release(normed);
        let text_second = self.layer_norm(p, text_hidden);
        p.release(text_normed);
        let normed = self.modulated(p, second, video.tokens);
        let text_normed = self.modulated(p, text_second, text.tokens);
        let ff = self.feed_forward(p, streams, video.tokens, self.dit.ffn);
        let text_ff = self.feed_forward(p, streams, text.tokens, self.dit.ffn);
        let y = self.residual(p, video.tokens);
        p.release(hidden.tensor);
        let text_y = self.residual(p, text.tokens);
        p.release(text_hidden.tensor);
        for tensor in [normed, text_normed, out, text_out, ff, text_ff, modulation, text_modulation, video.tensor, text.tensor] {
            p.release(tensor);
        }
        [y, text_y]
    }

    /// `HunyuanVideoSingleTransformerBlock`; the streams that go in stay the caller's, the result is both in one tensor.
    fn single_block(&self, p: &mut Builder, streams: &Streams) -> Tensor {
        let d = self.dit.hidden;
        let tokens = self.video_tokens() + self.text_tokens;
        p.phase("single_feed_forward");
        let joined = self.unit(p, &HIDDEN, tokens);
        let (modulation, normed) = self.adaptive_norm(p, streams, States { tensor: joined, tokens, strided: false }, 3);
        let up = self.linear(p, streams, &FFN_HIDDEN, tokens, (d, self.dit.ffn));
        let activated = self.rows(p, &FFN_HIDDEN, tokens, self.dit.ffn, self.act);
        p.release(up);
        p.phase("single_attention");
        let input = self.unit(p, &JOINED, tokens);
        let [query, key, value] = [&QUERY, &KEY, &VALUE].map(|site| self.linear(p, streams, site, tokens, (d, d)));
        let query = self.rms_norm(p, &QUERY, query, tokens);
        let key = self.rms_norm(p, &KEY, key, tokens);
        let [query, key] = [query, key].map(|x| {
            let rotated = self.rotary(p);
            let joined = self.unit(p, &JOINED, tokens);
            p.release(rotated);
            p.release(x);
            joined
        });
        let attended = self.attend(p, tokens, false);
        for tensor in [input, query, key, value] {
            p.release(tensor);
        }
        p.phase("single_projection");
        let together = self.unit(p, &ATTENTION, tokens);
        let wide = self.rows(p, &FFN_HIDDEN, tokens, d + self.dit.ffn, self.act);
        let projected = self.linear(p, streams, &PROJECTED, tokens, (d + self.dit.ffn, d));
        let gated = self.unit(p, &GATED, tokens);
        p.release(projected);
        p.release(wide);
        let sum = self.unit(p, &HIDDEN, tokens);
        for tensor in [gated, joined, activated, normed, together, attended, modulation] {
            p.release(tensor);
        }
        sum
    }

    /// The forward pass; weights come and go as `streams` says. The prediction is the result.
    pub fn emit(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        p.phase("weights_in");
        streams.begin(p);
        p.phase("embedding");
        let (tokens, text_tokens) = (self.video_tokens(), self.text_tokens);
        let tables = self.rotary_tables(p);
        let time = self.vectors(p, &TIME, 1);
        let video = self.patches(p);
        let text = self.refine(p, streams);
        let positions = p.alloc(&MASK, &[("tokens", tokens + text_tokens)], INDEX);
        let mask = p.alloc(&MASK, &[("batch", self.latent.batch), ("tokens", tokens + text_tokens)], 1);

        // The patches come with channels before positions, and every sum with them keeps that order.
        let streamed = |tensor, tokens, strided| States { tensor, tokens, strided };
        p.repeat_sampled(self.dit.dual, 2, 0, |p| {
            let [y, text_y] = self.dual_block(p, streams, streamed(video, tokens, true), streamed(text, text_tokens, false));
            p.rebind(video, y);
            p.rebind(text, text_y);
        });
        let mut x = None;
        if self.dit.single > 0 {
            let first = self.single_block(p, streams);
            p.release(video);
            p.release(text);
            p.repeat_sampled(self.dit.single - 1, 2, 0, |p| {
                let next = self.single_block(p, streams);
                p.replace(first, next);
            });
            x = Some(first);
        }
        streams.end(p);

        p.phase("head");
        // Of several videos the video's tokens are not in one piece.
        let x = x.map_or([video, text].to_vec(), |x| vec![x]);
        let (modulation, normed) = self.adaptive_norm(p, streams, streamed(x[0], tokens, self.latent.batch > 1), 2);
        let patch = LATENT_CHANNELS * self.dit.patch * self.dit.patch;
        let linear = self.linear(p, streams, &PREDICTION, tokens, (self.dit.hidden, patch));
        p.release(normed);
        let prediction = p.alloc(&PREDICTION, &self.latent.dims(LATENT_CHANNELS), self.act);
        for tensor in [linear].into_iter().chain(x).chain([mask, positions, modulation, time, tables[1], tables[0]]) {
            p.release(tensor);
        }
        prediction
    }
}
