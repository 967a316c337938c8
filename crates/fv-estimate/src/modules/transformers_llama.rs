//! Llama and CLIP's text encoder as transformers (5.17) runs them for diffusers' pipelines: eagerly, without gradients, attention
//! through `scaled_dot_product_attention` with a causal mask.

use super::FP32;
use super::transformers_text::Forward;
use crate::program::{Builder, List, Tensor, sites};

sites! { "encoder.llama":
    STATES "encoder states" Activation;
    MASK "attention mask" Activation;
    ROPE "rotary table" Cache;
    NORM_FP32 "norm in fp32" Activation;
    STATISTICS "norm statistics" Activation;
    NORMED "normed states" Activation;
    QKV "query, key and value" Activation;
    ROTATED "rotated states" Activation;
    KEY_CACHE "cached keys and values" Cache;
    REPEATED "keys and values of all heads" Activation;
    BIAS "attention bias" Activation;
    ATTENTION "attention output" Activation;
    FFN "feed-forward hidden" Activation;
}
sites! { "encoder.clip_text":
    CLIP_STATES "encoder states" Activation;
    CLIP_QKV "query, key and value" Activation;
    CLIP_ATTENTION "attention output" Activation;
    CLIP_FFN "feed-forward hidden" Activation;
    POOLED "pooled states" Activation;
}

impl Forward<'_> {
    fn pairs(&self) -> [(&'static str, u64); 3] {
        [("batch", self.batch), ("queries", self.tokens), ("keys", self.tokens)]
    }

    /// `LlamaModel` with all hidden states: the result is what its last layer but two leaves, everything else is dropped.
    pub(super) fn llama(&self, p: &mut Builder, embedded: Tensor, shared: u64) -> Tensor {
        // `create_causal_mask`: the causal mask of each pair of tokens, and that of the padding, joined step by step.
        let mut mask = p.alloc(&MASK, &self.pairs(), 1);
        for _ in 0..2 {
            let next = p.alloc(&MASK, &self.pairs(), 1);
            p.release(mask);
            mask = next;
        }
        let table = [("batch", 1), ("tokens", self.tokens), ("width of a head", self.encoder.head)];
        let angles = p.alloc(&ROPE, &table, FP32);
        let waves = [(); 2].map(|()| {
            let wave = p.alloc(&ROPE, &table, FP32);
            let scaled = p.alloc(&ROPE, &table, FP32);
            p.release(wave);
            scaled
        });
        let tables = waves.map(|wave| if self.act == FP32 { p.retain(wave) } else { p.alloc(&ROPE, &table, self.act) });
        for tensor in [angles].into_iter().chain(waves) {
            p.release(tensor);
        }
        let (kept, cache) = (p.list(), p.list());
        let blocks = self.encoder.blocks.0;
        let used = embedded;
        p.repeat(blocks.saturating_sub(2), |p| {
            let next = self.llama_layer(p, shared, cache);
            p.keep(kept, used);
            p.rebind(used, next);
        });
        let last: Vec<Tensor> = (0..blocks.min(2)).map(|_| self.llama_layer(p, shared, cache)).collect();
        p.phase("final_norm");
        let normed = self.llama_norm(p);
        for tensor in [mask].into_iter().chain(tables).chain(last.get(1).copied()) {
            p.release(tensor);
        }
        p.release_list(cache);
        for tensor in [Some(normed), last.first().copied()].into_iter().flatten() {
            p.release(tensor);
        }
        p.release_list(kept);
        used
    }

    /// `LlamaRMSNorm`, by way of fp32; its input stays.
    fn llama_norm(&self, p: &mut Builder) -> Tensor {
        let states = self.states();
        let statistics = &[states[0], states[1]];
        let wide = (self.act != FP32).then(|| p.alloc(&NORM_FP32, &states, FP32));
        let square = p.alloc(&NORM_FP32, &states, FP32);
        let variance = p.alloc(&STATISTICS, statistics, FP32);
        p.release(square);
        p.touch(&STATISTICS, statistics, FP32);
        let scaled = p.alloc(&NORM_FP32, &states, FP32);
        if let Some(wide) = wide {
            p.release(wide);
        }
        let narrow = (self.act != FP32).then(|| p.alloc(&NORMED, &states, self.act));
        let y = p.alloc(&NORMED, &states, self.act);
        for tensor in narrow.into_iter().chain([scaled, variance]) {
            p.release(tensor);
        }
        y
    }

    /// One layer; its input stays. What the pipeline never asks for again, keys and values, goes to `cache`.
    fn llama_layer(&self, p: &mut Builder, shared: u64, cache: List) -> Tensor {
        let (hidden, inner, ffn) = (self.encoder.hidden, self.encoder.heads * self.encoder.head, self.encoder.ffn);
        let narrow = [("batch", self.batch), ("tokens", self.tokens), ("shared width", shared)];
        p.phase("attention");
        let normed = self.llama_norm(p);
        let query = self.linear(p, &QKV, &self.inner(), hidden, inner);
        let [key, value] = [(); 2].map(|()| self.linear(p, &QKV, &narrow, hidden, shared));
        let [turned_query, turned_key] = [self.inner(), narrow].map(|dims| {
            let first = p.alloc(&ROTATED, &dims, self.act);
            let half = p.alloc(&ROTATED, &[dims[0], dims[1], ("half of width", dims[2].1 / 2)], self.act);
            let swapped = p.alloc(&ROTATED, &dims, self.act);
            p.release(half);
            let second = p.alloc(&ROTATED, &dims, self.act);
            p.release(swapped);
            let sum = p.alloc(&ROTATED, &dims, self.act);
            p.release(first);
            p.release(second);
            sum
        });
        p.release(query);
        p.release(key);
        let [keys, values] = [(); 2].map(|()| p.alloc(&KEY_CACHE, &narrow, self.act));
        p.keep(cache, values);
        p.keep(cache, keys);
        p.release(turned_key);
        p.release(value);
        let repeated = [(); 2].map(|()| p.alloc(&REPEATED, &self.inner(), self.act));
        // Without scores: the mask becomes a bias, all else stays in the kernel.
        let bias = p.alloc(&BIAS, &self.pairs(), self.act);
        let attended = p.alloc(&ATTENTION, &self.inner(), self.act);
        p.release(bias);
        for tensor in repeated {
            p.release(tensor);
        }
        let out = self.linear(p, &ATTENTION, &self.states(), inner, hidden);
        for tensor in [attended, turned_query, normed] {
            p.release(tensor);
        }
        let residual = p.alloc(&STATES, &self.states(), self.act);
        p.release(out);

        p.phase("feed_forward");
        let normed = self.llama_norm(p);
        let gate = self.linear(p, &FFN, &self.hidden(), hidden, ffn);
        let activated = p.alloc(&FFN, &self.hidden(), self.act);
        p.release(gate);
        let up = self.linear(p, &FFN, &self.hidden(), hidden, ffn);
        let product = p.alloc(&FFN, &self.hidden(), self.act);
        p.release(activated);
        p.release(up);
        let down = self.linear(p, &STATES, &self.states(), ffn, hidden);
        p.release(product);
        p.release(normed);
        let sum = p.alloc(&STATES, &self.states(), self.act);
        p.release(down);
        p.release(residual);
        sum
    }

    /// `CLIPTextModel`: the result is the pooled state, of the token that ends the prompt.
    pub(super) fn clip_text(&self, p: &mut Builder, embedded: Tensor) -> Tensor {
        let (hidden, inner, ffn) = (self.encoder.hidden, self.encoder.heads * self.encoder.head, self.encoder.ffn);
        let states = self.states();
        let positions = p.alloc(&CLIP_STATES, &[states[1], states[2]], self.act);
        let x = p.alloc(&CLIP_STATES, &states, self.act);
        p.release(positions);
        p.release(embedded);
        p.repeat_sampled(self.encoder.blocks.0, 2, 0, |p| {
            p.phase("attention");
            let normed = self.layer_norm(p);
            let qkv = [(); 3].map(|()| self.linear(p, &CLIP_QKV, &self.inner(), hidden, inner));
            // Without padding to mask the kernel is told that attention is causal, and no mask is made.
            let attended = p.alloc(&CLIP_ATTENTION, &self.inner(), self.act);
            let out = self.linear(p, &CLIP_ATTENTION, &states, inner, hidden);
            for tensor in [attended].into_iter().chain(qkv).chain([normed]) {
                p.release(tensor);
            }
            let residual = p.alloc(&CLIP_STATES, &states, self.act);
            p.release(out);
            p.phase("feed_forward");
            let normed = self.layer_norm(p);
            let first = self.linear(p, &CLIP_FFN, &self.hidden(), hidden, ffn);
            // The activation (`quick_gelu`) is written out: a scaled copy, its sigmoid, their product.
            let scaled = p.alloc(&CLIP_FFN, &self.hidden(), self.act);
            let sigmoid = p.alloc(&CLIP_FFN, &self.hidden(), self.act);
            p.release(scaled);
            let activated = p.alloc(&CLIP_FFN, &self.hidden(), self.act);
            p.release(sigmoid);
            p.release(first);
            let out = self.linear(p, &CLIP_STATES, &states, ffn, hidden);
            p.release(activated);
            p.release(normed);
            let sum = p.alloc(&CLIP_STATES, &states, self.act);
            p.release(out);
            p.release(residual);
            p.replace(x, sum);
        });
        p.phase("final_norm");
        let normed = self.layer_norm(p);
        let pooled = p.alloc(&POOLED, &[states[0], states[2]], self.act);
        for tensor in [normed, x] {
            p.release(tensor);
        }
        pooled
    }
}
