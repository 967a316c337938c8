//! `LTXVideoTransformer3DModel` (diffusers 0.42.1): its parameters, and one forward pass, run eagerly without gradients.
//!
//! The order of allocations and the lifetime of every reference follow `models/transformers/transformer_ltx.py`; recorded
//! allocator traces of the class on an H200 reproduce it (`tests/data/families`).

use fv_spec::authored::Role;
use fv_spec::compiled::ExpandedComponent;

use super::vae::LATENT_CHANNELS;
use crate::forecast::operations::{Blocks, Operations};
use crate::modules::FP32;
use crate::modules::parameter::{Group, MAX_BLOCKS, MAX_WIDTH, Parameter, Weights, matrix, plain, within};
use crate::modules::residency::Streams;
use crate::program::{Builder, Dims, Site, Tensor, sites};
use crate::settings::Attention;

sites! { "ltx_video.dit.embed":
    ROPE "rotary table" Cache;
    HIDDEN "hidden states" Activation;
    TIME "time embedding" Activation;
    TEXT "text embedding" Activation;
}
sites! { "ltx_video.dit.norm":
    NORM_FP32 "norm in fp32" Activation;
    STATISTICS "norm statistics" Activation;
    NORM "normed states" Activation;
    MODULATION "modulation" Activation;
}
sites! { "ltx_video.dit.attention":
    QKV "query, key and value" Activation;
    ROTATED "rotated states" Activation;
    ROTARY_PRODUCT "rotary product" Activation;
    ATTENTION "attention output" Activation;
    LOG_SUM_EXP "attention log-sum-exp" Activation;
}
sites! { "ltx_video.dit.feed_forward":
    FFN "feed-forward hidden" Activation;
    GATED "gated update" Activation;
}
sites! { "ltx_video.dit.head":
    PREDICTION "prediction" Activation;
}

/// Sines and cosines of a timestep (`AdaLayerNormSingle`).
const FREQUENCIES: u64 = 256;
/// Width of the text encoder's states (`caption_channels`).
const TEXT_WIDTH: u64 = 4096;

/// A transformer of the family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dit {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Width of the feed-forward layer.
    pub ffn: u64,
    /// Attention heads.
    pub heads: u64,
    /// Blocks.
    pub blocks: u64,
}

impl Dit {
    /// Reads a transformer of the catalog. `Err` names what is missing or does not agree.
    pub fn read(component: &ExpandedComponent) -> Result<Self, String> {
        let geometry = component.geometry.as_ref().ok_or("the transformer has no geometry")?;
        let number = |name: &str| {
            let value = geometry.get(name).and_then(serde_json::Value::as_u64).ok_or(format!("transformer geometry lacks {name}"))?;
            within(&format!("transformer geometry: {name}"), value, MAX_WIDTH)
        };
        let blocks = component.block_count.ok_or("the transformer has no block_count")?.get();
        let blocks = within("the transformer: block_count", blocks, MAX_BLOCKS)?;
        let dit = Self { hidden: number("hidden_size")?, ffn: number("ffn_size")?, heads: number("num_attention_heads")?, blocks };
        if dit.weights(Role::Transformer).parameters() != component.parameter_count.get() {
            return Err(format!("{} is not a transformer of LTX-Video", component.component));
        }
        Ok(dit)
    }

    /// The parameters, in the order of the class.
    pub fn weights(&self, role: Role) -> Weights {
        let d = self.hidden;
        let linear = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64| list.extend([plain(inputs * outputs), plain(outputs)]);
        let covered = |list: &mut Vec<Parameter>, inputs: u64, outputs: u64| list.extend([matrix(inputs, outputs), plain(outputs)]);
        let mut block = vec![plain(6 * d)];
        for _ in 0..2 {
            block.extend([plain(d); 2]);
            for _ in 0..4 {
                covered(&mut block, d, d);
            }
        }
        covered(&mut block, d, self.ffn);
        covered(&mut block, self.ffn, d);
        let mut rest = vec![plain(2 * d)];
        for (inputs, outputs) in [(LATENT_CHANNELS, d), (FREQUENCIES, d), (d, d), (d, 6 * d), (TEXT_WIDTH, d), (d, d), (d, LATENT_CHANNELS)]
        {
            linear(&mut rest, inputs, outputs);
        }
        Weights { role, groups: vec![Group { count: self.blocks, block }], rest, buffers: 0 }
    }
}

/// What a forward pass depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The transformer.
    pub dit: Dit,
    /// Videos, both branches of guidance counted.
    pub batch: u64,
    /// Latent positions of a video.
    pub tokens: u64,
    /// Text tokens, padding included.
    pub text_tokens: u64,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// The attention kernel.
    pub attention: Attention,
    /// Whether each position has its own timestep, as in image to video.
    pub per_token_timesteps: bool,
}

impl Forward {
    /// Four square layers of self-attention, two of cross-attention and the feed-forward pair for every position; keys and values
    /// of cross-attention for text alone.
    pub fn operations(&self) -> Operations {
        let Dit { hidden, ffn, blocks, .. } = self.dit;
        Blocks {
            count: blocks,
            batch: self.batch,
            rows: self.tokens,
            weights: 6 * hidden * hidden + 2 * hidden * ffn,
            other_rows: self.text_tokens,
            other_weights: 2 * hidden * hidden,
            keys: self.tokens + self.text_tokens,
            queries: self.tokens,
            inner: hidden,
            hidden,
        }
        .operations(self.act)
    }

    /// Width of a prompt's embeddings.
    pub const TEXT_WIDTH: u64 = TEXT_WIDTH;

    fn dims(&self, width: u64) -> [(&'static str, u64); 3] {
        [("batch", self.batch), ("tokens", self.tokens), ("width", width)]
    }

    fn unit(&self, p: &mut Builder, site: &'static Site, element: u64) -> Tensor {
        p.alloc(site, &self.dims(self.dit.hidden), element)
    }

    /// So many vectors of each timestep.
    fn vectors(&self, p: &mut Builder, site: &'static Site, vectors: u64, element: u64) -> Tensor {
        let timesteps = if self.per_token_timesteps { self.tokens } else { 1 };
        p.alloc(site, &[("batch", self.batch), ("timesteps", timesteps), ("vectors", vectors), ("width", self.dit.hidden)], element)
    }

    /// diffusers' `RMSNorm` without a weight, by way of fp32; the input stays.
    fn norm(&self, p: &mut Builder) -> Tensor {
        let statistics = [("batch", self.batch), ("tokens", self.tokens)];
        let wide = (self.act != FP32).then(|| self.unit(p, &NORM_FP32, FP32));
        let square = self.unit(p, &NORM_FP32, FP32);
        if let Some(wide) = wide {
            p.release(wide);
        }
        let variance = p.alloc(&STATISTICS, &statistics, FP32);
        p.release(square);
        let shifted = p.alloc(&STATISTICS, &statistics, FP32);
        let root = p.alloc(&STATISTICS, &statistics, FP32);
        p.release(shifted);
        let mut y = self.unit(p, &NORM_FP32, FP32);
        p.release(root);
        if self.act != FP32 {
            let narrow = self.unit(p, &NORM, self.act);
            p.release(y);
            y = narrow;
        }
        p.release(variance);
        y
    }

    /// `normed * (1 + scale) + shift`; drops `normed`, whose name, if it has one, lives to the end.
    fn modulate(&self, p: &mut Builder, normed: Tensor, named: bool) -> Tensor {
        let factor = self.vectors(p, &MODULATION, 1, self.act);
        let name = named.then(|| p.retain(normed));
        let scaled = self.unit(p, &NORM, self.act);
        p.release(factor);
        p.release(normed);
        let shifted = self.unit(p, &NORM, self.act);
        p.release(scaled);
        if let Some(name) = name {
            p.release(name);
        }
        shifted
    }

    /// A linear layer's output, with its weights where they come along.
    fn linear(&self, p: &mut Builder, streams: &Streams, site: &'static Site, dims: Dims<'_>, inputs: u64) -> Tensor {
        let weights = streams.leaf(p, inputs, dims.last().map_or(0, |(_, width)| *width));
        let y = p.alloc(site, dims, self.act);
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    }

    /// `apply_rotary_emb`, in fp32; drops `x`.
    fn rotate(&self, p: &mut Builder, x: Tensor) -> Tensor {
        let negative = p.alloc(&ROTATED, &self.dims(self.dit.hidden / 2), self.act);
        let turned = self.unit(p, &ROTATED, self.act);
        p.release(negative);
        let product = |p: &mut Builder| {
            let wide = (self.act != FP32).then(|| self.unit(p, &ROTARY_PRODUCT, FP32));
            let product = self.unit(p, &ROTARY_PRODUCT, FP32);
            if let Some(wide) = wide {
                p.release(wide);
            }
            product
        };
        let products = [(); 2].map(|()| product(p));
        let mut y = self.unit(p, &ROTARY_PRODUCT, FP32);
        for product in products {
            p.release(product);
        }
        if self.act != FP32 {
            let narrow = self.unit(p, &ROTATED, self.act);
            p.release(y);
            y = narrow;
        }
        p.release(turned);
        p.release(x);
        y
    }

    /// `LTXVideoAttnProcessor` over the video itself or over text; ends with the projected output alone.
    fn attend(&self, p: &mut Builder, streams: &Streams, text: bool) -> Tensor {
        let d = self.dit.hidden;
        let queries = self.dims(d);
        let keys = if text { [queries[0], ("text tokens", self.text_tokens), queries[2]] } else { queries };
        let mut qkv = [queries, keys, keys].map(|dims| self.linear(p, streams, &QKV, &dims, d));
        for (tensor, dims) in qkv.iter_mut().zip([queries, keys]) {
            let normed = p.alloc(&QKV, &dims, self.act);
            p.touch(&STATISTICS, &dims[..2], FP32);
            p.release(*tensor);
            *tensor = normed;
        }
        if !text {
            for tensor in &mut qkv[..2] {
                *tensor = self.rotate(p, *tensor);
            }
        }
        let y = self.unit(p, &ATTENTION, self.act);
        // Text has a mask, which kernels with a log-sum-exp do not take.
        if !text && matches!(self.attention, Attention::Flash | Attention::Sdpa) {
            p.touch(&LOG_SUM_EXP, &[queries[0], ("heads", self.dit.heads), queries[1]], FP32);
        }
        let out = self.linear(p, streams, &ATTENTION, &queries, d);
        p.release(y);
        for tensor in qkv {
            p.release(tensor);
        }
        out
    }

    /// `LTXVideoTransformerBlock`; the input stays the caller's.
    fn block(&self, p: &mut Builder, streams: &Streams) -> Tensor {
        let (d, act) = (self.dit.hidden, self.act);
        p.phase("self_attention");
        let normed = self.norm(p);
        let values = self.vectors(p, &MODULATION, 6, act);
        let modulated = self.modulate(p, normed, true);
        let attended = self.attend(p, streams, false);
        let gated = self.unit(p, &GATED, act);
        let hidden = self.unit(p, &HIDDEN, act);
        p.release(gated);
        p.phase("cross_attention");
        let attended_to_text = self.attend(p, streams, true);
        p.release(attended);
        let sum = self.unit(p, &HIDDEN, act);
        p.release(hidden);
        p.phase("feed_forward");
        let normed = self.norm(p);
        let second = self.modulate(p, normed, false);
        p.release(modulated);
        let first = self.linear(p, streams, &FFN, &self.dims(self.dit.ffn), d);
        let activated = p.alloc(&FFN, &self.dims(self.dit.ffn), act);
        p.release(first);
        let out = self.linear(p, streams, &FFN, &self.dims(d), self.dit.ffn);
        p.release(activated);
        let gated = self.unit(p, &GATED, act);
        let y = self.unit(p, &HIDDEN, act);
        for tensor in [gated, sum, second, attended_to_text, out, values] {
            p.release(tensor);
        }
        y
    }

    /// `LTXVideoRotaryPosEmbed`: cosines and sines of every position in fp32.
    fn rope(&self, p: &mut Builder) -> [Tensor; 2] {
        // A sixth of the width for each pair and each of three axes, the rest filled up.
        let sixth = self.dit.hidden / 6;
        let fill = self.dit.hidden % 6;
        let angles = self.dims(3 * sixth);
        let raw = p.alloc(&ROPE, &angles, FP32);
        let ordered = p.alloc(&ROPE, &angles, FP32);
        p.release(raw);
        let mut tables = [(); 2].map(|()| {
            let single = p.alloc(&ROPE, &angles, FP32);
            let pairs = p.alloc(&ROPE, &self.dims(6 * sixth), FP32);
            p.release(single);
            pairs
        });
        if fill > 0 {
            let filling = [(); 2].map(|()| p.alloc(&ROPE, &self.dims(fill), FP32));
            for table in &mut tables {
                let whole = p.alloc(&ROPE, &self.dims(self.dit.hidden), FP32);
                p.release(*table);
                *table = whole;
            }
            for tensor in filling {
                p.release(tensor);
            }
        }
        p.release(ordered);
        tables
    }

    /// `AdaLayerNormSingle`: six vectors of each timestep and the embedding that they are made of.
    fn time(&self, p: &mut Builder) -> [Tensor; 2] {
        let timesteps = if self.per_token_timesteps { self.tokens } else { 1 };
        let waves = |p: &mut Builder, count: u64, element: u64| {
            p.alloc(&TIME, &[("batch", self.batch), ("timesteps", timesteps), ("frequencies", count)], element)
        };
        // `get_timestep_embedding`: angles, scaled, their sines and cosines, put together, and in the other order.
        let angles = waves(p, FREQUENCIES / 2, FP32);
        let scaled = waves(p, FREQUENCIES / 2, FP32);
        p.release(angles);
        let halves = [(); 2].map(|()| waves(p, FREQUENCIES / 2, FP32));
        let joined = waves(p, FREQUENCIES, FP32);
        for tensor in [halves[1], halves[0], scaled] {
            p.release(tensor);
        }
        let ordered = waves(p, FREQUENCIES, FP32);
        p.release(joined);
        let narrow = (self.act != FP32).then(|| waves(p, FREQUENCIES, self.act));
        let first = self.vectors(p, &TIME, 1, self.act);
        let activated = self.vectors(p, &TIME, 1, self.act);
        p.release(first);
        let embedded = self.vectors(p, &TIME, 1, self.act);
        p.release(activated);
        for tensor in narrow.into_iter().chain([ordered]) {
            p.release(tensor);
        }
        let activated = self.vectors(p, &TIME, 1, self.act);
        let six = self.vectors(p, &TIME, 6, self.act);
        p.release(activated);
        [six, embedded]
    }

    /// The forward pass; weights come and go as `streams` says, the prediction is the result.
    pub fn emit(&self, p: &mut Builder, streams: &mut Streams) -> Tensor {
        let (d, act) = (self.dit.hidden, self.act);
        p.phase("weights_in");
        streams.begin(p);
        p.phase("embedding");
        let rope = self.rope(p);
        let x = self.linear(p, streams, &HIDDEN, &self.dims(d), LATENT_CHANNELS);
        let time = self.time(p);
        let text = [("batch", self.batch), ("text tokens", self.text_tokens), ("width", d)];
        let first = self.linear(p, streams, &TEXT, &text, TEXT_WIDTH);
        let activated = p.alloc(&TEXT, &text, act);
        p.release(first);
        let context = self.linear(p, streams, &TEXT, &text, d);
        p.release(activated);

        let block = |p: &mut Builder, streams: &Streams| {
            let y = self.block(p, streams);
            p.replace(x, y);
        };
        streams.run(p, self.dit.blocks, block);

        p.phase("head");
        let values = self.vectors(p, &MODULATION, 2, act);
        let normed = self.unit(p, &NORM, act);
        for _ in 0..2 {
            p.touch(&STATISTICS, &self.dims(d)[..2], FP32);
        }
        p.release(x);
        let modulated = self.modulate(p, normed, true);
        let prediction = self.linear(p, streams, &PREDICTION, &self.dims(LATENT_CHANNELS), d);
        for tensor in [modulated, context].into_iter().chain([rope[1], rope[0], time[0], time[1], values]) {
            p.release(tensor);
        }
        prediction
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ltx_video::vae::Vae;

    #[test]
    fn the_tensors_add_up_to_the_published_counts() {
        for (dit, count) in [
            (Dit { hidden: 2048, ffn: 8192, heads: 32, blocks: 28 }, 1_923_385_472),
            (Dit { hidden: 4096, ffn: 16_384, heads: 32, blocks: 48 }, 13_042_569_344),
        ] {
            assert_eq!(dit.weights(Role::Transformer).parameters(), count);
        }
        assert_eq!(Vae::of(419_193_649), Ok(Vae::V090));
        assert_eq!(Vae::of(1_246_913_522), Ok(Vae::V095));
    }
}
