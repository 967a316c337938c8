//! Qwen3-VL's language model as transformers (5.17) runs it for MiniMax H3: eagerly, without gradients, text alone.
//!
//! The order of allocations and the lifetime of every reference follow `Qwen3VLTextModel`; the class run on fake tensors
//! reproduces it (`tests/data/simulated`). The pipeline reads the states after the 50th layer and so asks for those of every
//! layer: all of them are kept until it has picked its own.

use super::weights::{QWEN, QWEN_FFN, QWEN_HEAD, QWEN_HEADS, Qwen};
use crate::modules::FP32;
use crate::program::{Builder, Site, Tensor, sites};

sites! { "minimax_h3.encoder":
    STATES "encoder states" Activation;
    POSITIONS "rotary table" Activation;
}
sites! { "minimax_h3.encoder.norm":
    NORM_FP32 "norm in fp32" Activation;
    STATISTICS "norm statistics" Activation;
    NORMED "normed states" Activation;
}
sites! { "minimax_h3.encoder.attention":
    QKV "query, key and value" Activation;
    ROTATED "rotated query and key" Activation;
    ATTENTION "attention output" Activation;
}
sites! { "minimax_h3.encoder.feed_forward":
    FFN "feed-forward hidden" Activation;
}

/// The layer whose states the transformer is conditioned on (`text_encoder_layer` of the pipeline).
pub const LAYER: u64 = 50;

/// A forward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forward {
    /// The encoder.
    pub qwen: Qwen,
    /// Prompts.
    pub batch: u64,
    /// Tokens of each.
    pub tokens: u64,
    /// Bytes of an activation.
    pub act: u64,
    /// Whether the states of every layer are kept.
    pub all_states: bool,
}

impl Forward {
    fn make(&self, p: &mut Builder, site: &'static Site, width: u64, element: u64) -> Tensor {
        p.alloc(site, &[("batch", self.batch), ("tokens", self.tokens), ("width", width)], element)
    }

    /// An RMS norm in fp32 over `width` values a token in `groups` groups; its input stays.
    fn norm(&self, p: &mut Builder, width: u64, groups: u64) -> Tensor {
        let wide = (self.act != FP32).then(|| self.make(p, &NORM_FP32, width, FP32));
        let square = self.make(p, &NORM_FP32, width, FP32);
        let variance = self.make(p, &STATISTICS, groups, FP32);
        p.release(square);
        let scaled = self.make(p, &NORM_FP32, width, FP32);
        if let Some(wide) = wide {
            p.release(wide);
        }
        let narrow = (self.act != FP32).then(|| self.make(p, &NORMED, width, self.act));
        let y = self.make(p, &NORMED, width, self.act);
        for tensor in narrow.into_iter().chain([scaled, variance]) {
            p.release(tensor);
        }
        y
    }

    /// `x * cos + rotate_half(x) * sin`; `x` stays.
    fn rotary(&self, p: &mut Builder, width: u64) -> Tensor {
        let first = self.make(p, &ROTATED, width, self.act);
        let negated = self.make(p, &ROTATED, width / 2, self.act);
        let turned = self.make(p, &ROTATED, width, self.act);
        p.release(negated);
        let second = self.make(p, &ROTATED, width, self.act);
        p.release(turned);
        let sum = self.make(p, &ROTATED, width, self.act);
        p.release(first);
        p.release(second);
        sum
    }

    /// One layer; its input stays the caller's.
    fn layer(&self, p: &mut Builder) -> Tensor {
        p.phase("attention");
        let [queries, keys] = QWEN_HEADS.map(|heads| heads * QWEN_HEAD);
        let normed = self.norm(p, QWEN, 1);
        let [query, key] = [(queries, QWEN_HEADS[0]), (keys, QWEN_HEADS[1])].map(|(width, heads)| {
            let projected = self.make(p, &QKV, width, self.act);
            let normed = self.norm(p, width, heads);
            p.release(projected);
            normed
        });
        let value = self.make(p, &QKV, keys, self.act);
        let rotated = [self.rotary(p, queries), self.rotary(p, keys)];
        p.release(query);
        p.release(key);
        let attended = self.make(p, &ATTENTION, queries, self.act);
        let out = self.make(p, &ATTENTION, QWEN, self.act);
        for tensor in [attended, rotated[0], rotated[1], value, normed] {
            p.release(tensor);
        }
        let hidden = self.make(p, &STATES, QWEN, self.act);
        p.release(out);
        p.phase("feed_forward");
        let normed = self.norm(p, QWEN, 1);
        let gate = self.make(p, &FFN, QWEN_FFN, self.act);
        let active = self.make(p, &FFN, QWEN_FFN, self.act);
        p.release(gate);
        let up = self.make(p, &FFN, QWEN_FFN, self.act);
        let product = self.make(p, &FFN, QWEN_FFN, self.act);
        p.release(active);
        p.release(up);
        let out = self.make(p, &STATES, QWEN, self.act);
        p.release(product);
        p.release(normed);
        let sum = self.make(p, &STATES, QWEN, self.act);
        p.release(out);
        p.release(hidden);
        sum
    }

    /// The forward pass; the result is the states that the pipeline picks, or the last ones.
    pub fn emit(&self, p: &mut Builder) -> Tensor {
        p.phase("embedding");
        let x = self.make(p, &STATES, QWEN, self.act);
        let table = [(); 2].map(|()| self.make(p, &POSITIONS, QWEN_HEAD, self.act));
        let kept = p.list();
        let picked = self.all_states.then(|| p.retain(x));
        let layers = self.qwen.layers;
        if self.all_states {
            // The embedding stays; every layer's result joins it but the last, whose norm does.
            p.repeat(layers.saturating_sub(1), |p| {
                let next = self.layer(p);
                p.keep(kept, next);
            });
            let last = self.layer(p);
            p.phase("final_norm");
            let normed = self.norm(p, QWEN, 1);
            p.release(last);
            for tensor in table.into_iter().rev().chain([normed]) {
                p.release(tensor);
            }
            p.release_list(kept);
            p.release(x);
            // One of those kept is picked; they are all alike.
            return picked.unwrap_or(x);
        }
        p.repeat_sampled(layers, 2, 0, |p| {
            let next = self.layer(p);
            p.replace(x, next);
        });
        p.phase("final_norm");
        let normed = self.norm(p, QWEN, 1);
        p.release(x);
        for tensor in table.into_iter().rev() {
            p.release(tensor);
        }
        normed
    }
}
