//! One forward pass of `MochiTransformer3DModel` (diffusers 0.42.1), run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `transformer_mochi.py` and `MochiAttnProcessor2_0`: a wide
//! stream for the video and a narrow one for the text, joint attention over one video at a time, norms by way of fp32. A prompt that
//! fills all of its tokens is assumed; a shorter one makes the joint sequence shorter by its padding.

use super::geometry::{Dit, LATENT_CHANNELS, Latent, TEXT, TEXT_FFN, TEXT_HIDDEN};
use crate::forecast::operations::{Blocks, Operations};
use crate::modules::FP32;
use crate::modules::residency::Streams;
use crate::program::{Builder, Site, Tensor, sites};
use crate::settings::Attention;

sites! { "mochi.dit.embed":
    ROPE "rotary table" Cache;
    PATCHES "patch embedding" Activation;
    PATCH_INPUT "patch input" Activation;
    PATCH_WORKSPACE "patch convolution workspace" Workspace;
    HIDDEN "hidden states" Activation;
    TIME "time embedding" Activation;
    TEXT_STATES "text states" Activation;
}
sites! { "mochi.dit.norm":
    NORM_FP32 "norm in fp32" Activation;
    NORM "normed states" Activation;
    NORM_STATISTICS "norm statistics" Activation;
    MODULATION "modulation" Activation;
}
sites! { "mochi.dit.attention":
    QUERY "query" Activation;
    KEY "key" Activation;
    VALUE "value" Activation;
    ROTARY_PRODUCT "rotary product" Activation;
    ROTATED "rotated states" Activation;
    PICKED "text tokens that are no padding" Activation;
    JOINED "query, key or value of video and text" Activation;
    SCORES "attention scores" Activation;
    ATTENTION "attention output" Activation;
    LOG_SUM_EXP "attention log-sum-exp" Activation;
    PROJECTED "projected attention" Activation;
}
sites! { "mochi.dit.feed_forward":
    FFN_HIDDEN "feed-forward hidden" Activation;
    FFN_OUT "feed-forward output" Activation;
}
sites! { "mochi.dit.head":
    PREDICTION "prediction" Activation;
}

/// What a forward pass depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The transformer.
    pub dit: Dit,
    /// The latent it predicts for.
    pub latent: Latent,
    /// Text tokens, padding included.
    pub text_tokens: u64,
    /// Text tokens that are no padding.
    pub valid_tokens: u64,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// The attention kernel.
    pub attention: Attention,
}

/// A stream: its tokens and their width.
#[derive(Debug, Clone, Copy)]
struct Stream {
    tokens: u64,
    width: u64,
    ffn: u64,
}

impl Forward {
    /// Patches of one video.
    fn tokens_of_a_video(&self) -> u64 {
        self.latent.frames * (self.latent.height / self.dit.patch) * (self.latent.width / self.dit.patch)
    }

    /// The video's stream with its gated feed-forward layer, and the narrower text stream.
    pub fn operations(&self) -> Operations {
        let Dit { hidden, ffn, blocks, .. } = self.dit;
        let tokens = self.tokens_of_a_video();
        Blocks {
            count: blocks,
            batch: self.latent.batch,
            rows: tokens,
            weights: 4 * hidden * hidden + 3 * hidden * ffn,
            other_rows: self.text_tokens,
            other_weights: 4 * TEXT_HIDDEN * hidden + 3 * TEXT_HIDDEN * TEXT_FFN,
            keys: tokens + self.text_tokens,
            queries: tokens + self.text_tokens,
            inner: hidden,
            hidden,
        }
        .operations(self.act)
    }

    fn video(&self) -> Stream {
        let Latent { frames, height, width, .. } = self.latent;
        let tokens = frames * (height / self.dit.patch) * (width / self.dit.patch);
        Stream { tokens, width: self.dit.hidden, ffn: self.dit.ffn }
    }

    fn text(&self) -> Stream {
        Stream { tokens: self.text_tokens, width: TEXT_HIDDEN, ffn: TEXT_FFN }
    }

    /// `width` features of each of so many tokens.
    fn rows(&self, p: &mut Builder, site: &'static Site, tokens: u64, width: u64, element: u64) -> Tensor {
        p.alloc(site, &[("batch", self.latent.batch), ("tokens", tokens), ("width", width)], element)
    }

    fn states(&self, p: &mut Builder, site: &'static Site, stream: Stream) -> Tensor {
        self.rows(p, site, stream.tokens, stream.width, self.act)
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

    /// `MochiModulatedRMSNorm`, by way of fp32; its input stays.
    fn modulated_norm(&self, p: &mut Builder, stream: Stream) -> Tensor {
        let wide = |p: &mut Builder| self.rows(p, &NORM_FP32, stream.tokens, stream.width, FP32);
        let widened = (self.act != FP32).then(|| wide(p));
        let square = wide(p);
        p.release(square);
        p.touch(&NORM_STATISTICS, &[("batch", self.latent.batch), ("tokens", stream.tokens)], FP32);
        let normed = wide(p);
        if let Some(widened) = widened {
            p.release(widened);
        }
        let scaled = wide(p);
        p.release(normed);
        if self.act == FP32 {
            return scaled;
        }
        let y = self.states(p, &NORM, stream);
        p.release(scaled);
        y
    }

    /// The vectors of a modulation.
    fn modulation(&self, p: &mut Builder, streams: &Streams, width: u64) -> Tensor {
        self.linear(p, streams, &MODULATION, 1, (self.dit.hidden, width))
    }

    /// `MochiRMSNorm` over each head, by way of fp32; replaces its input.
    fn head_norm(&self, p: &mut Builder, site: &'static Site, x: Tensor, tokens: u64) -> Tensor {
        let d = self.dit.hidden;
        let wide = |p: &mut Builder| self.rows(p, &NORM_FP32, tokens, d, FP32);
        let statistics = &[("batch", self.latent.batch), ("tokens", tokens), ("heads", self.dit.heads)];
        let widened = (self.act != FP32).then(|| wide(p));
        let square = wide(p);
        if let Some(widened) = widened {
            p.release(widened);
        }
        let variance = p.alloc(&NORM_STATISTICS, statistics, FP32);
        p.release(square);
        let shifted = p.alloc(&NORM_STATISTICS, statistics, FP32);
        let root = p.alloc(&NORM_STATISTICS, statistics, FP32);
        p.release(shifted);
        let normed = wide(p);
        p.release(root);
        let mut y = wide(p);
        p.release(normed);
        if self.act != FP32 {
            let narrow = self.rows(p, site, tokens, d, self.act);
            p.release(y);
            y = narrow;
        }
        p.release(variance);
        p.release(x);
        y
    }

    /// The rotary embedding of the video's tokens; its input stays.
    fn rotary(&self, p: &mut Builder) -> Tensor {
        let (tokens, half) = (self.video().tokens, self.dit.hidden / 2);
        let wide = |p: &mut Builder| self.rows(p, &ROTARY_PRODUCT, tokens, half, FP32);
        let narrow = self.act != FP32;
        let parts: Vec<Tensor> = (0..if narrow { 2 } else { 0 }).map(|_| wide(p)).collect();
        let turned = [(); 2].map(|()| {
            let products = [wide(p), wide(p)];
            let mut sum = wide(p);
            for product in products {
                p.release(product);
            }
            if narrow {
                let cast = self.rows(p, &ROTATED, tokens, half, self.act);
                p.release(sum);
                sum = cast;
            }
            sum
        });
        let y = self.states(p, &ROTATED, self.video());
        for tensor in parts.into_iter().chain(turned) {
            p.release(tensor);
        }
        y
    }

    /// The kernel over one video's tokens and its prompt's.
    fn attend(&self, p: &mut Builder, tokens: u64) -> Tensor {
        let d = self.dit.hidden;
        let one = |p: &mut Builder, site: &'static Site, element: u64| p.alloc(site, &[("tokens", tokens), ("hidden", d)], element);
        if self.attention != Attention::Math {
            let y = one(p, &ATTENTION, self.act);
            if matches!(self.attention, Attention::Flash | Attention::Sdpa) {
                p.touch(&LOG_SUM_EXP, &[("heads", self.dit.heads), ("tokens", tokens)], FP32);
            }
            return y;
        }
        // Materialised scores, in fp32.
        let scores = [("heads", self.dit.heads), ("queries", tokens), ("keys", tokens)];
        let narrow = self.act != FP32;
        let copies: Vec<Tensor> = (0..if narrow { 4 } else { 1 }).map(|_| one(p, &QUERY, FP32)).collect();
        let scaled_key = one(p, &KEY, FP32);
        let raw = p.alloc(&SCORES, &scores, FP32);
        p.release(scaled_key);
        let soft = p.alloc(&SCORES, &scores, FP32);
        p.touch(&SCORES, &scores, 1);
        p.release(raw);
        let returned = narrow.then(|| p.alloc(&SCORES, &scores, self.act));
        let mut y = one(p, &ATTENTION, FP32);
        if narrow {
            let cast = one(p, &ATTENTION, self.act);
            p.release(y);
            y = cast;
        }
        for tensor in [soft].into_iter().chain(copies.into_iter().rev()).chain(returned) {
            p.release(tensor);
        }
        y
    }

    /// `MochiAttention`: the video's output, and the text's, which in the last block is the tensor that both came in.
    fn attention(&self, p: &mut Builder, streams: &Streams, last: bool) -> [Tensor; 2] {
        let (video, text, d) = (self.video(), self.text(), self.dit.hidden);
        let [query, key, value] = [&QUERY, &KEY, &VALUE].map(|site| self.linear(p, streams, site, video.tokens, (d, d)));
        let query = self.head_norm(p, &QUERY, query, video.tokens);
        let key = self.head_norm(p, &KEY, key, video.tokens);
        let [text_query, text_key, text_value] =
            [&QUERY, &KEY, &VALUE].map(|site| self.linear(p, streams, site, text.tokens, (text.width, d)));
        let text_query = self.head_norm(p, &QUERY, text_query, text.tokens);
        let text_key = self.head_norm(p, &KEY, text_key, text.tokens);
        let [query, key] = [query, key].map(|x| {
            let rotated = self.rotary(p);
            p.release(x);
            rotated
        });

        // One video after the other: its tokens and those of its prompt that are no padding, and the output padded again.
        let (tokens, total) = (video.tokens + self.valid_tokens, video.tokens + text.tokens);
        let one = |p: &mut Builder, site: &'static Site, tokens: u64| p.alloc(site, &[("tokens", tokens), ("hidden", d)], self.act);
        let outputs = p.list();
        let output = |p: &mut Builder| {
            let y = self.attend(p, tokens);
            let padded = one(p, &ATTENTION, total);
            p.release(y);
            padded
        };
        let picked = [(); 3].map(|()| one(p, &PICKED, self.valid_tokens));
        let joined = [(); 3].map(|()| one(p, &JOINED, tokens));
        let last_output = output(p);
        p.repeat(self.latent.batch.saturating_sub(1), |p| {
            for (site, tokens, names) in [(&PICKED, self.valid_tokens, picked), (&JOINED, tokens, joined)] {
                for old in names {
                    let new = one(p, site, tokens);
                    p.replace(old, new);
                }
            }
            let next = output(p);
            p.keep(outputs, last_output);
            p.rebind(last_output, next);
        });
        let together = self.rows(p, &ATTENTION, total, d, self.act);
        // Heads come before tokens, so putting them together again is a copy.
        let flat = self.rows(p, &ATTENTION, total, d, self.act);
        p.release(together);
        let out = self.linear(p, streams, &PROJECTED, video.tokens, (d, d));
        let text_out = if last {
            flat
        } else {
            let text_out = self.linear(p, streams, &PROJECTED, text.tokens, (d, text.width));
            p.release(flat);
            text_out
        };
        for tensor in [query, key, value, text_query, text_key, text_value] {
            p.release(tensor);
        }
        p.release_list(outputs);
        for tensor in picked.into_iter().chain(joined).chain([last_output]) {
            p.release(tensor);
        }
        [out, text_out]
    }

    /// What follows attention in one stream: both residuals. Drops `normed`; the result is the new states, and what the block holds to
    /// its end.
    fn after_attention(&self, p: &mut Builder, streams: &Streams, stream: Stream, normed: Tensor) -> (Tensor, [Tensor; 2]) {
        let gated = self.modulated_norm(p, stream);
        let hidden = self.states(p, &HIDDEN, stream);
        p.release(gated);
        let second = self.modulated_norm(p, stream);
        p.release(normed);
        let both = self.linear(p, streams, &FFN_HIDDEN, stream.tokens, (stream.width, 2 * stream.ffn));
        let gate = self.rows(p, &FFN_HIDDEN, stream.tokens, stream.ffn, self.act);
        let product = self.rows(p, &FFN_HIDDEN, stream.tokens, stream.ffn, self.act);
        p.release(gate);
        p.release(both);
        let out = self.linear(p, streams, &FFN_OUT, stream.tokens, (stream.ffn, stream.width));
        p.release(product);
        let gated = self.modulated_norm(p, stream);
        let y = self.states(p, &HIDDEN, stream);
        p.release(gated);
        p.release(hidden);
        (y, [second, out])
    }

    /// `MochiTransformerBlock`; drops both streams for new ones. The last block leaves the text as it is.
    fn block(&self, p: &mut Builder, streams: &Streams, x: Tensor, text: Tensor, last: bool) -> [Tensor; 2] {
        p.phase("attention");
        let modulation = self.modulation(p, streams, 4 * self.dit.hidden);
        let normed = self.modulated_norm(p, self.video());
        let text_modulation = self.modulation(p, streams, if last { TEXT_HIDDEN } else { 4 * TEXT_HIDDEN });
        let text_normed = self.modulated_norm(p, self.text());
        let [out, text_out] = self.attention(p, streams, last);
        p.phase("feed_forward");
        let (y, [second, ff]) = self.after_attention(p, streams, self.video(), normed);
        if last {
            for tensor in [second, text_normed, out, text_out, ff, modulation, text_modulation, x] {
                p.release(tensor);
            }
            return [y, text];
        }
        let (text_y, [text_second, text_ff]) = self.after_attention(p, streams, self.text(), text_normed);
        for tensor in [second, text_second, out, text_out, ff, text_ff, modulation, text_modulation, x, text] {
            p.release(tensor);
        }
        [y, text_y]
    }

    /// The patch convolution: input, output and what cuDNN copies of both and of the weights; frames are put before channels.
    fn patches(&self, p: &mut Builder) -> Tensor {
        let Latent { batch, frames, height, width } = self.latent;
        let video = self.video();
        let input = p.alloc(&PATCH_INPUT, &self.latent.dims(), self.act);
        let patches = self.states(p, &PATCHES, video);
        let padded = if self.act == FP32 { LATENT_CHANNELS } else { LATENT_CHANNELS.next_multiple_of(8) };
        let copies = batch * padded * frames * height * width
            + batch * video.tokens * video.width
            + padded * self.dit.patch * self.dit.patch * video.width;
        p.touch(&PATCH_WORKSPACE, &[("input, output and weights", copies)], self.act);
        p.release(input);
        let x = self.states(p, &HIDDEN, video);
        p.release(patches);
        x
    }

    /// The forward pass; weights come and go as `streams` says. The prediction is the result.
    pub fn emit(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        p.phase("weights_in");
        streams.begin(p);
        p.phase("embedding");
        let (video, text) = (self.video(), self.text());
        let time = self.rows(p, &TIME, 1, video.width, self.act);
        // `MochiAttentionPool`: the mean of the prompt in front of it, and keys and values of all.
        let weighted = self.rows(p, &TEXT_STATES, text.tokens, TEXT, self.act);
        p.release(weighted);
        let joined = self.rows(p, &TEXT_STATES, text.tokens + 1, TEXT, self.act);
        let pooled = self.linear(p, streams, &TEXT_STATES, text.tokens + 1, (TEXT, 2 * TEXT));
        p.release(joined);
        p.release(pooled);
        let states = self.linear(p, streams, &TEXT_STATES, text.tokens, (TEXT, text.width));
        let x = self.patches(p);
        let table = [("tokens", video.tokens), ("heads", self.dit.heads), ("half of a head", video.width / self.dit.heads / 2)];
        let angles = p.alloc(&ROPE, &table, FP32);
        let tables = [(); 2].map(|()| p.alloc(&ROPE, &table, FP32));
        p.release(angles);

        p.repeat_sampled(self.dit.blocks.saturating_sub(1), 2, 0, |p| {
            let [y, text_y] = self.block(p, streams, x, states, false);
            p.rebind(x, y);
            p.rebind(states, text_y);
        });
        let [x, states] = if self.dit.blocks > 0 { self.block(p, streams, x, states, true) } else { [x, states] };
        streams.end(p);

        p.phase("head");
        let modulation = self.modulation(p, streams, 2 * video.width);
        let normed = self.states(p, &NORM, video);
        for _ in 0..2 {
            p.touch(&NORM_STATISTICS, &[("batch", self.latent.batch), ("tokens", video.tokens)], FP32);
        }
        let scaled = self.states(p, &NORM, video);
        p.release(normed);
        let shifted = self.states(p, &NORM, video);
        p.release(scaled);
        p.release(x);
        let patch = LATENT_CHANNELS * self.dit.patch * self.dit.patch;
        let linear = self.linear(p, streams, &PREDICTION, video.tokens, (video.width, patch));
        p.release(shifted);
        let prediction = p.alloc(&PREDICTION, &self.latent.dims(), self.act);
        for tensor in [linear, states, modulation, time, tables[1], tables[0]] {
            p.release(tensor);
        }
        prediction
    }
}
