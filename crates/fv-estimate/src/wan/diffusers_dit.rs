//! One forward pass of `WanTransformer3DModel` (diffusers 0.42.1), run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow
//! `diffusers/models/transformers/transformer_wan.py`; recorded allocator traces of the class on an H200 reproduce it
//! allocation for allocation (`tests/data`). What depends on the device: the attention kernel, the workspace of the
//! matrix library and the workspace of the patch convolution.

use super::geometry::{Dit, FREQUENCIES, IMAGE_FEATURES, Latent};
use crate::forecast::operations::{Blocks, Operations};
use crate::modules::FP32;
use crate::modules::maps::{CUDNN_HEADER, pad8};
use crate::modules::residency::Streams;
use crate::program::{Builder, Dims, Site, Tensor, sites};
use crate::settings::Attention;

/// What a forward pass depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The transformer.
    pub dit: Dit,
    /// The latent it predicts for.
    pub latent: Latent,
    /// Text tokens, padding included.
    pub text_tokens: u64,
    /// Image tokens; 0 without an image.
    pub image_tokens: u64,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// Whether rotary tables, the time embedding, modulation tables and norms are kept in fp32.
    pub keep_fp32: bool,
    /// The attention kernel.
    pub attention: Attention,
    /// Whether each token has its own timestep.
    pub per_token_timesteps: bool,
}

sites! { "wan.dit.embed":
    ROPE "rotary table" Cache;
    PATCHES "patch embedding" Activation;
    PATCH_WORKSPACE "patch convolution workspace" Workspace;
    HIDDEN "hidden states" Activation;
    TIME "time embedding" Activation;
    TIME_PROJECTION "time projection" Activation;
    TEXT "text embedding" Activation;
    IMAGE "image embedding" Activation;
}
sites! { "wan.dit.modulation":
    MODULATION "modulation" Activation;
}
sites! { "wan.dit.norm":
    NORM_FP32 "norm in fp32" Activation;
    NORM_STATISTICS "norm statistics" Activation;
    NORM "normed states" Activation;
}
sites! { "wan.dit.attention":
    QUERY "query" Activation;
    KEY "key" Activation;
    VALUE "value" Activation;
    ROTATED "rotated states" Activation;
    ROTARY_PRODUCT "rotary product" Activation;
    ATTENTION "attention output" Activation;
    LOG_SUM_EXP "attention log-sum-exp" Activation;
    SCORES "attention scores" Activation;
    PROJECTED "projected attention" Activation;
}
sites! { "wan.dit.residual":
    RESIDUAL_FP32 "residual in fp32" Activation;
}
sites! { "wan.dit.feed_forward":
    FFN_HIDDEN "feed-forward hidden" Activation;
    FFN_OUT "feed-forward output" Activation;
}
sites! { "wan.dit.head":
    PREDICTION "prediction" Activation;
}

impl Forward {
    /// Self-attention's four square layers, two of cross-attention, the feed-forward pair and the gate of sparse attention for every
    /// token; keys and values of cross-attention for text and image alone.
    pub fn operations(&self) -> Operations {
        let Dit { hidden, ffn, blocks, sparse_gate, .. } = self.dit;
        let tokens = self.latent.tokens(&self.dit);
        let context = self.text_tokens + self.image_tokens;
        let squares = if sparse_gate { 7 } else { 6 };
        Blocks {
            count: blocks,
            batch: self.latent.batch,
            rows: tokens,
            weights: squares * hidden * hidden + 2 * hidden * ffn,
            other_rows: context,
            other_weights: 2 * hidden * hidden,
            keys: tokens + context,
            queries: tokens,
            inner: hidden,
            hidden,
        }
        .operations(self.act)
    }

    fn tokens(&self) -> u64 {
        self.latent.tokens(&self.dit)
    }

    fn unit(&self, p: &mut Builder, site: &'static Site, element: u64) -> Tensor {
        p.alloc(site, &[("batch", self.latent.batch), ("tokens", self.tokens()), ("hidden", self.dit.hidden)], element)
    }

    /// `x.float()`: a copy unless activations are fp32.
    fn float(&self, p: &mut Builder, site: &'static Site, x: Tensor) -> Tensor {
        if self.act == FP32 { p.retain(x) } else { self.unit(p, site, FP32) }
    }

    /// `x.type_as(activation)`: drops `x` for a copy in the activation type unless that is fp32.
    fn narrow(&self, p: &mut Builder, site: &'static Site, x: Tensor) -> Tensor {
        if self.act == FP32 {
            return x;
        }
        let y = self.unit(p, site, self.act);
        p.release(x);
        y
    }

    /// A layer norm in fp32 over the hidden width, of a reference it drops.
    fn layer_norm(&self, p: &mut Builder, x: Tensor, affine: bool) -> Tensor {
        let narrow_affine = affine && self.act != FP32 && !self.keep_fp32;
        let weights: Vec<Tensor> =
            if narrow_affine { (0..2).map(|_| p.alloc(&NORM_FP32, &[("hidden", self.dit.hidden)], FP32)).collect() } else { Vec::new() };
        let y = self.unit(p, &NORM_FP32, FP32);
        for _ in 0..2 {
            // Mean and reciprocal deviation of each token live only inside the kernel call.
            p.touch(&NORM_STATISTICS, &[("batch", self.latent.batch), ("tokens", self.tokens())], FP32);
        }
        for weight in weights {
            p.release(weight);
        }
        p.release(x);
        y
    }

    /// A layer norm in fp32 of embeddings, whose input stays the caller's.
    fn embedding_norm(&self, p: &mut Builder, dims: Dims<'_>) -> Tensor {
        if self.act == FP32 {
            return p.alloc(&IMAGE, dims, FP32);
        }
        let wide = p.alloc(&NORM_FP32, dims, FP32);
        let normed = p.alloc(&NORM_FP32, dims, FP32);
        p.release(wide);
        let narrow = p.alloc(&IMAGE, dims, self.act);
        p.release(normed);
        narrow
    }

    /// `norm(x.float()) * (1 + scale) + shift`, narrowed.
    fn modulated_norm(&self, p: &mut Builder, x: Tensor) -> Tensor {
        let wide = self.float(p, &NORM_FP32, x);
        let normed = self.layer_norm(p, wide, false);
        let factor = self.modulation(p, 1);
        let scaled = self.unit(p, &NORM_FP32, FP32);
        p.release(normed);
        p.release(factor);
        let shifted = self.unit(p, &NORM_FP32, FP32);
        p.release(scaled);
        self.narrow(p, &NORM, shifted)
    }

    /// `count` modulation vectors in fp32: of each video, or of each token.
    fn modulation(&self, p: &mut Builder, count: u64) -> Tensor {
        let tokens = if self.per_token_timesteps { self.tokens() } else { 1 };
        p.alloc(&MODULATION, &[("batch", self.latent.batch), ("timesteps", tokens), ("vectors", count), ("hidden", self.dit.hidden)], FP32)
    }

    /// An RMS norm over all heads, which replaces its input.
    fn rms_norm(&self, p: &mut Builder, site: &'static Site, x: Tensor, tokens: u64) -> Tensor {
        let y = p.alloc(site, &[("batch", self.latent.batch), ("tokens", tokens), ("hidden", self.dit.hidden)], self.act);
        p.touch(&NORM_STATISTICS, &[("batch", self.latent.batch), ("tokens", tokens)], FP32);
        p.release(x);
        y
    }

    /// The rotary embedding of `x`, which it drops: each half from two products, in the type of the table.
    fn rotary(&self, p: &mut Builder, x: Tensor) -> Tensor {
        let product = if self.keep_fp32 { FP32 } else { self.act };
        let half = [("batch", self.latent.batch), ("tokens", self.tokens()), ("half of hidden", self.dit.hidden / 2)];
        let y = self.unit(p, &ROTATED, self.act);
        for _ in 0..2 {
            let products = [(); 2].map(|()| p.alloc(&ROTARY_PRODUCT, &half, product));
            let sum = p.alloc(&ROTARY_PRODUCT, &half, product);
            for part in products {
                p.release(part);
            }
            p.release(sum);
        }
        p.release(x);
        y
    }

    /// The attention kernel: output and what lives beside it during the call.
    fn attend(&self, p: &mut Builder, keys: u64) -> Tensor {
        let (batch, heads, tokens) = (("batch", self.latent.batch), ("heads", self.dit.heads), ("tokens", self.tokens()));
        if self.attention == Attention::Math {
            return self.attend_with_scores(p, keys);
        }
        let y = self.unit(p, &ATTENTION, self.act);
        if matches!(self.attention, Attention::Flash | Attention::Sdpa) {
            p.touch(&LOG_SUM_EXP, &[batch, heads, tokens], FP32);
        }
        y
    }

    /// Attention with materialised scores, in fp32: scaled copies of query and key, scores, probabilities and a mask of rows
    /// without any, and the probabilities once more in the activation's type.
    fn attend_with_scores(&self, p: &mut Builder, keys: u64) -> Tensor {
        let (batch, heads, tokens) = (("batch", self.latent.batch), ("heads", self.dit.heads), ("tokens", self.tokens()));
        let hidden = ("hidden", self.dit.hidden);
        let scores = [batch, heads, tokens, ("keys", keys)];
        let key = [batch, ("tokens", keys), hidden];
        let mut wide = Vec::new();
        if self.act != FP32 {
            wide.extend([self.unit(p, &QUERY, FP32), p.alloc(&KEY, &key, FP32), p.alloc(&VALUE, &key, FP32)]);
        }
        wide.push(self.unit(p, &QUERY, FP32));
        let scaled_key = p.alloc(&KEY, &key, FP32);
        let raw = p.alloc(&SCORES, &scores, FP32);
        p.release(scaled_key);
        let soft = p.alloc(&SCORES, &scores, FP32);
        p.touch(&SCORES, &scores, 1);
        p.release(raw);
        let narrow = (self.act != FP32).then(|| p.alloc(&SCORES, &scores, self.act));
        let mut y = self.unit(p, &ATTENTION, FP32);
        if self.act != FP32 {
            let cast = self.unit(p, &ATTENTION, self.act);
            p.release(y);
            y = cast;
        }
        p.release(soft);
        for tensor in wide.into_iter().rev().chain(narrow) {
            p.release(tensor);
        }
        // Heads come before tokens, so putting them together again is a copy.
        let flat = self.unit(p, &ATTENTION, self.act);
        p.release(y);
        flat
    }

    /// A linear layer's output, with its weights where they come along.
    fn linear(&self, p: &mut Builder, streams: &Streams, site: &'static Site, dims: Dims<'_>, (inputs, outputs): (u64, u64)) -> Tensor {
        let weights = streams.leaf(p, inputs, outputs);
        let y = p.alloc(site, dims, self.act);
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    }

    /// One attention layer of `x`; `keys` and `values` come from `key_tokens` tokens. Ends with the projected output alone.
    fn attention(&self, p: &mut Builder, streams: &Streams, key_tokens: u64, image_tokens: u64, rope: bool) -> Tensor {
        let batch = ("batch", self.latent.batch);
        let hidden = ("hidden", self.dit.hidden);
        let square = (self.dit.hidden, self.dit.hidden);
        let query = self.linear(p, streams, &QUERY, &[batch, ("tokens", self.tokens()), hidden], square);
        let key = self.linear(p, streams, &KEY, &[batch, ("tokens", key_tokens), hidden], square);
        let value = self.linear(p, streams, &VALUE, &[batch, ("tokens", key_tokens), hidden], square);
        let mut query = self.rms_norm(p, &QUERY, query, self.tokens());
        let mut key = self.rms_norm(p, &KEY, key, key_tokens);
        if rope {
            query = self.rotary(p, query);
            key = self.rotary(p, key);
        }
        let image = (image_tokens > 0).then(|| {
            let key = self.linear(p, streams, &KEY, &[batch, ("tokens", image_tokens), hidden], square);
            let value = self.linear(p, streams, &VALUE, &[batch, ("tokens", image_tokens), hidden], square);
            let key = self.rms_norm(p, &KEY, key, image_tokens);
            (key, value, self.attend(p, image_tokens))
        });
        let mut attended = self.attend(p, key_tokens);
        if image.is_some() {
            let sum = self.unit(p, &ATTENTION, self.act);
            p.release(attended);
            attended = sum;
        }
        let projected = self.linear(p, streams, &PROJECTED, &[batch, ("tokens", self.tokens()), hidden], square);
        p.release(attended);
        for tensor in [query, key, value] {
            p.release(tensor);
        }
        if let Some((key, value, attended)) = image {
            for tensor in [attended, key, value] {
                p.release(tensor);
            }
        }
        projected
    }

    /// `residual.float() + update * gate`, narrowed; drops the reference to `residual`.
    fn gated_residual(&self, p: &mut Builder, residual: Tensor, update: Tensor, widen_update: bool) -> Tensor {
        let wide = self.float(p, &RESIDUAL_FP32, residual);
        let widened = if widen_update { self.float(p, &RESIDUAL_FP32, update) } else { p.retain(update) };
        let gated = self.unit(p, &RESIDUAL_FP32, FP32);
        p.release(widened);
        let sum = self.unit(p, &RESIDUAL_FP32, FP32);
        p.release(wide);
        p.release(gated);
        let y = self.narrow(p, &HIDDEN, sum);
        p.release(residual);
        y
    }

    /// One block. The caller's reference to `x` is dropped when the block has returned.
    fn block(&self, p: &mut Builder, streams: &Streams, x: Tensor) -> Tensor {
        p.phase("modulation");
        let wide = if self.act == FP32 { None } else { Some(self.modulation(p, 6)) };
        let modulation = self.modulation(p, 6);
        if let Some(wide) = wide {
            p.release(wide);
        }
        let mut hidden = p.retain(x);
        let normed = self.modulated_norm(p, hidden);

        p.phase("self_attention");
        let attended = self.attention(p, streams, self.tokens(), 0, true);
        p.phase("residual");
        hidden = self.gated_residual(p, hidden, attended, false);

        p.phase("cross_attention");
        let wide = self.float(p, &NORM_FP32, hidden);
        let cross = self.layer_norm(p, wide, true);
        let cross = self.narrow(p, &NORM, cross);
        p.release(normed);
        let attended_to_text = self.attention(p, streams, self.text_tokens, self.image_tokens, false);
        p.release(attended);
        let sum = self.unit(p, &HIDDEN, self.act);
        p.release(hidden);
        hidden = sum;

        p.phase("feed_forward");
        let normed = self.modulated_norm(p, hidden);
        p.release(cross);
        let ffn = [("batch", self.latent.batch), ("tokens", self.tokens()), ("ffn", self.dit.ffn)];
        let linear = self.linear(p, streams, &FFN_HIDDEN, &ffn, (self.dit.hidden, self.dit.ffn));
        let activated = p.alloc(&FFN_HIDDEN, &ffn, self.act);
        p.release(linear);
        let out = self.linear(p, streams, &FFN_OUT, &[ffn[0], ffn[1], ("hidden", self.dit.hidden)], (self.dit.ffn, self.dit.hidden));
        p.release(activated);
        p.phase("feed_forward_residual");
        hidden = self.gated_residual(p, hidden, out, true);
        for tensor in [modulation, normed, attended_to_text, out, x] {
            p.release(tensor);
        }
        hidden
    }

    /// The forward pass of a resident transformer; the prediction is the result.
    pub fn emit(&self, p: &mut Builder) -> Tensor {
        self.emit_with(p, &mut Streams::whole())
    }

    /// The forward pass; weights come and go as `streams` says.
    #[expect(clippy::too_many_lines, reason = "one pass, in the order of the class")]
    pub fn emit_with(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        p.phase("weights_in");
        streams.begin(p);
        let batch = ("batch", self.latent.batch);
        let hidden = ("hidden", self.dit.hidden);
        let tokens = ("tokens", self.tokens());
        let act = self.act;
        p.phase("embedding");
        let table = if self.keep_fp32 { FP32 } else { act };
        let head = ("head", self.dit.hidden / self.dit.heads);
        let rope = [(); 2].map(|()| p.alloc(&ROPE, &[tokens, head], table));
        let patches = self.unit(p, &PATCHES, act);
        // cuDNN changes the layout of input, weights and output for its convolution: one copy of each.
        let patch = self.dit.patch.iter().product();
        p.touch(
            &PATCH_WORKSPACE,
            &[("input, output and weights", {
                let input = self.latent.batch * self.latent.frames * self.latent.height * self.latent.width * pad8(self.dit.in_channels);
                input
                    + self.latent.batch * self.tokens() * self.dit.hidden
                    + pad8(self.dit.in_channels) * patch * self.dit.hidden
                    + CUDNN_HEADER / act
            })],
            act,
        );
        let x = self.unit(p, &HIDDEN, act);
        p.release(patches);

        let timesteps = ("timesteps", if self.per_token_timesteps { self.tokens() } else { 1 });
        let half = [batch, timesteps, ("half of frequencies", FREQUENCIES / 2)];
        let angles = p.alloc(&TIME, &half, FP32);
        let scaled = p.alloc(&TIME, &half, FP32);
        p.release(angles);
        let waves = [(); 2].map(|()| p.alloc(&TIME, &half, FP32));
        let joined = p.alloc(&TIME, &[batch, timesteps, ("frequencies", FREQUENCIES)], FP32);
        for tensor in [waves[1], waves[0], scaled] {
            p.release(tensor);
        }
        let sinusoids = p.alloc(&TIME, &[batch, timesteps, ("frequencies", FREQUENCIES)], FP32);
        p.release(joined);
        let narrow = if self.keep_fp32 || act == FP32 {
            sinusoids
        } else {
            let y = p.alloc(&TIME, &[batch, timesteps, ("frequencies", FREQUENCIES)], act);
            p.release(sinusoids);
            y
        };
        let embed = if self.keep_fp32 { FP32 } else { act };
        let first = p.alloc(&TIME, &[batch, timesteps, hidden], embed);
        let activated = p.alloc(&TIME, &[batch, timesteps, hidden], embed);
        p.release(first);
        let mut time = p.alloc(&TIME, &[batch, timesteps, hidden], embed);
        p.release(activated);
        if embed != act {
            let y = p.alloc(&TIME, &[batch, timesteps, hidden], act);
            p.release(time);
            time = y;
        }
        let activated = p.alloc(&TIME, &[batch, timesteps, hidden], act);
        let projection = p.alloc(&TIME_PROJECTION, &[batch, timesteps, ("vectors", 6), hidden], act);
        p.release(activated);

        let text = [batch, ("tokens", self.text_tokens), hidden];
        let first = p.alloc(&TEXT, &text, act);
        let activated = p.alloc(&TEXT, &text, act);
        p.release(first);
        let mut context = p.alloc(&TEXT, &text, act);
        p.release(activated);
        let mut image = None;
        if self.image_tokens > 0 {
            let features = [batch, ("tokens", self.image_tokens), ("features", IMAGE_FEATURES)];
            let states = [batch, ("tokens", self.image_tokens), hidden];
            let normed = self.embedding_norm(p, &features);
            let first = p.alloc(&IMAGE, &features, act);
            p.release(normed);
            let activated = p.alloc(&IMAGE, &features, act);
            p.release(first);
            let linear = p.alloc(&IMAGE, &states, act);
            p.release(activated);
            let projected = self.embedding_norm(p, &states);
            p.release(linear);
            let joined = p.alloc(&TEXT, &[batch, ("tokens", self.text_tokens + self.image_tokens), hidden], act);
            p.release(context);
            image = Some(projected);
            context = joined;
        }
        p.release(narrow);

        // The caller's name is bound to the block's result once the old one is gone.
        let block = |p: &mut Builder, streams: &Streams| {
            let y = self.block(p, streams, x);
            p.rebind(x, y);
        };
        streams.run(p, self.dit.blocks, block);

        p.phase("head");
        let table = if self.keep_fp32 { FP32 } else { act };
        let modulation = p.alloc(&MODULATION, &[batch, timesteps, ("vectors", 2), hidden], table);
        let wide = self.float(p, &NORM_FP32, x);
        let normed = self.layer_norm(p, wide, false);
        let factor = p.alloc(&MODULATION, &[batch, timesteps, hidden], table);
        let scaled = self.unit(p, &NORM_FP32, FP32);
        p.release(normed);
        p.release(factor);
        let shifted = self.unit(p, &NORM_FP32, FP32);
        p.release(scaled);
        let narrow = self.narrow(p, &NORM, shifted);
        p.release(x);
        let out = [batch, tokens, ("patch", patch), ("channels", self.dit.out_channels)];
        let linear = p.alloc(&PREDICTION, &out, act);
        p.release(narrow);
        let prediction = p.alloc(&PREDICTION, &out, act);
        for tensor in [linear, context].into_iter().chain(image).chain([rope[1], rope[0], time, projection, modulation]) {
            p.release(tensor);
        }
        prediction
    }
}
