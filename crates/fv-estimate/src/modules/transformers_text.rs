//! UMT5's and T5's encoders and CLIP's vision tower as transformers (5.17) runs them for diffusers' pipelines: eagerly, without
//! gradients, attention through `scaled_dot_product_attention`.
//!
//! The order of allocations and the lifetime of every reference follow the classes; recorded allocator traces on an H200
//! reproduce it (`tests/data/wan`). T5 adds a position bias to its scores, whose order in memory only the kernel with materialised
//! scores takes: UMT5 one of each block, T5 that of the first. CLIP's input convolution takes a workspace only below fp32, which is left out.

use super::FP32;
use super::encoder::{Class, Encoder};
use crate::program::{Builder, Site, Tensor, sites};

sites! { "encoder":
    STATES "encoder states" Activation;
    MASK "attention mask" Activation;
}
sites! { "encoder.norm":
    NORM_FP32 "norm in fp32" Activation;
    STATISTICS "norm statistics" Activation;
    NORMED "normed states" Activation;
}
sites! { "encoder.attention":
    QKV "query, key and value" Activation;
    POSITIONS "relative positions" Activation;
    BIAS "position bias" Activation;
    WIDE "query, key and value in fp32" Activation;
    SCORES "attention scores" Activation;
    ATTENTION "attention output" Activation;
}
sites! { "encoder.feed_forward":
    FFN "feed-forward hidden" Activation;
}

const INDEX: u64 = 8;

/// Layers whose weights are on the device only while they run.
#[derive(Debug, Clone, Copy)]
pub struct Leaf {
    /// What the weights are called.
    pub site: &'static Site,
    /// Elements of the embedding and bytes of one.
    pub embedding: (u64, u64),
    /// Whether the allocator's cache is emptied each time.
    pub empties: bool,
}

/// A forward pass of an encoder.
#[derive(Debug, Clone, Copy)]
pub struct Forward<'a> {
    /// The encoder: the vision tower where it has a number of tokens of its own.
    pub encoder: &'a Encoder,
    /// Prompts or images.
    pub batch: u64,
    /// Tokens, padding included.
    pub tokens: u64,
    /// Bytes of an activation: 2 or 4.
    pub act: u64,
    /// Whether the type is fp16, beside which T5 keeps the last matrix of its feed-forward layers in fp32
    /// (`_keep_in_fp32_modules`), and with it all sums after the first.
    pub fp16: bool,
    /// Set where weights pass by layer by layer.
    pub leaf: Option<Leaf>,
}

type Extents = [(&'static str, u64); 3];

impl Forward<'_> {
    /// The forward pass. The result is the last hidden states; of the vision tower those before the last layer, of Llama those
    /// before its last two, and of CLIP's text encoder those of one token.
    pub fn emit(&self, p: &mut Builder) -> Tensor {
        p.phase("embedding");
        let weights = self.leaf.map(|leaf| {
            if leaf.empties {
                p.empty_cache();
            }
            p.alloc(leaf.site, &[("parameters", leaf.embedding.0)], leaf.embedding.1)
        });
        let states = p.alloc(&STATES, &self.states(), self.act);
        if let Some(weights) = weights {
            p.release(weights);
        }
        if !self.encoder.geometry {
            return states;
        }
        match self.encoder.class() {
            Class::T5 => self.text(p, states),
            Class::Llama(shared) => self.llama(p, states, shared),
            Class::ClipText => self.clip_text(p, states),
            Class::Vision => self.vision(p, states),
        }
    }

    pub(super) fn states(&self) -> Extents {
        [("batch", self.batch), ("tokens", self.tokens), ("width", self.encoder.hidden)]
    }

    pub(super) fn inner(&self) -> Extents {
        [("batch", self.batch), ("tokens", self.tokens), ("inner width", self.encoder.heads * self.encoder.head)]
    }

    pub(super) fn hidden(&self) -> Extents {
        [("batch", self.batch), ("tokens", self.tokens), ("ffn", self.encoder.ffn)]
    }

    /// A linear layer's output, with its weights where they come along.
    pub(super) fn linear(&self, p: &mut Builder, site: &'static Site, dims: &Extents, inputs: u64, outputs: u64) -> Tensor {
        self.linear_in(p, site, dims, [inputs, outputs], self.act)
    }

    /// The same in a type of `element` bytes.
    fn linear_in(&self, p: &mut Builder, site: &'static Site, dims: &Extents, [inputs, outputs]: [u64; 2], element: u64) -> Tensor {
        let weights = self.leaf.map(|leaf| {
            if leaf.empties {
                p.empty_cache();
            }
            p.alloc(leaf.site, &[("inputs", inputs), ("outputs", outputs)], element)
        });
        let y = p.alloc(site, dims, element);
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    }

    fn text(&self, p: &mut Builder, embedded: Tensor) -> Tensor {
        // A copy of the mask for each pair of positions, kept to the end as the embeddings are.
        let pairs = [("batch", self.batch), ("queries", self.tokens), ("keys", self.tokens)];
        let mask = self.encoder.masked.then(|| p.alloc(&MASK, &pairs, 1));
        let summed = if self.fp16 { FP32 } else { self.act };
        let mut bias = None;
        let mut x = p.retain(embedded);
        let blocks = self.encoder.blocks.0;
        if blocks > 0 {
            let first = self.text_layer(p, self.act, &mut bias);
            p.release(x);
            x = first;
            p.repeat_sampled(blocks - 1, 2, 0, |p| {
                let next = self.text_layer(p, summed, &mut bias);
                p.replace(x, next);
            });
        }
        p.phase("final_norm");
        let normed = self.rms_norm(p, &STATES, summed);
        p.release(x);
        p.release(embedded);
        for tensor in mask.into_iter().chain(bias) {
            p.release(tensor);
        }
        normed
    }

    /// A block over states of `element` bytes, which stay the caller's.
    fn text_layer(&self, p: &mut Builder, element: u64, bias: &mut Option<Tensor>) -> Tensor {
        let attended = self.text_attention(p, element, bias);
        self.text_feed_forward(p, attended, element)
    }

    /// An RMS norm in fp32 of states of `element` bytes, which stay.
    fn rms_norm(&self, p: &mut Builder, site: &'static Site, element: u64) -> Tensor {
        let states = self.states();
        let statistics = &[states[0], states[1]];
        let wide = (element != FP32).then(|| p.alloc(&NORM_FP32, &states, FP32));
        let square = p.alloc(&NORM_FP32, &states, FP32);
        if let Some(wide) = wide {
            p.release(wide);
        }
        let variance = p.alloc(&STATISTICS, statistics, FP32);
        p.release(square);
        let shifted = p.alloc(&STATISTICS, statistics, FP32);
        let root = p.alloc(&STATISTICS, statistics, FP32);
        p.release(shifted);
        let mut scaled = p.alloc(&NORM_FP32, &states, FP32);
        p.release(root);
        if self.act != FP32 {
            let narrow = p.alloc(&NORMED, &states, self.act);
            p.release(scaled);
            scaled = narrow;
        }
        let y = p.alloc(site, &states, self.act);
        p.release(scaled);
        p.release(variance);
        y
    }

    /// Attention and its residual; the input stays the caller's.
    fn text_attention(&self, p: &mut Builder, element: u64, shared: &mut Option<Tensor>) -> Tensor {
        let (hidden, width) = (self.encoder.hidden, self.encoder.heads * self.encoder.head);
        p.phase("attention");
        let normed = self.rms_norm(p, &NORMED, element);
        let qkv = [(); 3].map(|()| self.linear(p, &QKV, &self.inner(), hidden, width));
        let bias = shared.unwrap_or_else(|| self.position_bias(p));
        let scores = [("batch", self.batch), ("heads", self.encoder.heads), ("queries", self.tokens), ("keys", self.tokens)];
        let joined = self.encoder.masked.then(|| p.alloc(&BIAS, &scores, self.act));
        let attended = self.scored(p, &scores);
        let flat = p.alloc(&ATTENTION, &self.inner(), self.act);
        p.release(attended);
        if let Some(joined) = joined {
            p.release(joined);
        }
        let out = self.linear(p, &ATTENTION, &self.states(), width, hidden);
        p.release(flat);
        for tensor in qkv {
            p.release(tensor);
        }
        if self.encoder.shared_bias {
            *shared = Some(bias);
        } else {
            p.release(bias);
        }
        let mut sum = p.alloc(&STATES, &self.states(), element);
        p.release(normed);
        p.release(out);
        if self.fp16 && element != FP32 {
            // `T5Block` bounds fp16 sums.
            let bounded = p.alloc(&STATES, &self.states(), element);
            p.release(sum);
            sum = bounded;
        }
        sum
    }

    /// The bias of each pair of positions, from the bucket of their distance.
    fn position_bias(&self, p: &mut Builder) -> Tensor {
        let line = [("positions", self.tokens)];
        let pairs = [("queries", self.tokens), ("keys", self.tokens)];
        let range = p.alloc(&POSITIONS, &line, INDEX);
        let queries = p.alloc(&POSITIONS, &line, INDEX);
        p.release(range);
        let keys = p.alloc(&POSITIONS, &line, INDEX);
        let distance = p.alloc(&POSITIONS, &pairs, INDEX);
        let later = p.alloc(&POSITIONS, &pairs, 1);
        let mut bucket = p.alloc(&POSITIONS, &pairs, INDEX);
        p.release(later);
        for _ in 0..2 {
            let next = p.alloc(&POSITIONS, &pairs, INDEX);
            p.release(bucket);
            bucket = next;
        }
        let size = p.alloc(&POSITIONS, &pairs, INDEX);
        let small = p.alloc(&POSITIONS, &pairs, 1);
        let mut log = p.alloc(&POSITIONS, &pairs, FP32);
        for _ in 0..4 {
            let next = p.alloc(&POSITIONS, &pairs, FP32);
            p.release(log);
            log = next;
        }
        let whole = p.alloc(&POSITIONS, &pairs, INDEX);
        let large = p.alloc(&POSITIONS, &pairs, INDEX);
        p.release(whole);
        let limit = p.alloc(&POSITIONS, &pairs, INDEX);
        let limited = p.alloc(&POSITIONS, &pairs, INDEX);
        p.release(limit);
        p.release(large);
        p.touch(&POSITIONS, &pairs, INDEX);
        for tensor in [size, small, log, limited] {
            p.release(tensor);
        }
        let bias = p.alloc(&BIAS, &[("heads", self.encoder.heads), pairs[0], pairs[1]], self.act);
        for tensor in [queries, keys, distance, bucket] {
            p.release(tensor);
        }
        bias
    }

    /// Attention with materialised scores, in fp32.
    fn scored(&self, p: &mut Builder, scores: &[(&'static str, u64); 4]) -> Tensor {
        let inner = self.inner();
        let narrow = self.act != FP32;
        // In a narrower type, copies of query, key and value; then the scaled query.
        let copies: Vec<Tensor> = (0..if narrow { 4 } else { 1 }).map(|_| p.alloc(&WIDE, &inner, FP32)).collect();
        let scaled_key = p.alloc(&WIDE, &inner, FP32);
        // Heads of several prompts are put together for the product.
        let together = |p: &mut Builder, count: usize| {
            (0..if self.batch > 1 { count } else { 0 }).map(|_| p.alloc(&WIDE, &inner, FP32)).collect::<Vec<_>>()
        };
        let products = together(p, 2);
        let raw = p.alloc(&SCORES, scores, FP32);
        for tensor in products.into_iter().rev().chain([scaled_key]) {
            p.release(tensor);
        }
        let soft = p.alloc(&SCORES, scores, FP32);
        // Rows without any allowed key are found through a mask.
        p.touch(&SCORES, scores, 1);
        p.release(raw);
        let returned = narrow.then(|| p.alloc(&SCORES, scores, self.act));
        let value = together(p, 1);
        let mut y = p.alloc(&ATTENTION, &inner, FP32);
        for tensor in value {
            p.release(tensor);
        }
        if narrow {
            let cast = p.alloc(&ATTENTION, &inner, self.act);
            p.release(y);
            y = cast;
        } else {
            for tensor in &copies {
                p.release(*tensor);
            }
        }
        p.release(soft);
        if narrow {
            for tensor in copies.into_iter().rev() {
                p.release(tensor);
            }
        }
        if let Some(returned) = returned {
            p.release(returned);
        }
        y
    }

    /// The feed-forward layer and its residual; drops `x`.
    fn text_feed_forward(&self, p: &mut Builder, x: Tensor, element: u64) -> Tensor {
        let (hidden, ffn) = (self.encoder.hidden, self.encoder.ffn);
        p.phase("feed_forward");
        let normed = self.rms_norm(p, &NORMED, element);
        let first = self.linear(p, &FFN, &self.hidden(), hidden, ffn);
        let mut held = Vec::new();
        let mut product = if self.encoder.gated {
            // GELU written out: half of the input, then the other factor in steps, each a new tensor.
            let half = p.alloc(&FFN, &self.hidden(), self.act);
            let mut factor = p.alloc(&FFN, &self.hidden(), self.act);
            for _ in 0..5 {
                let next = p.alloc(&FFN, &self.hidden(), self.act);
                p.release(factor);
                factor = next;
            }
            let activated = p.alloc(&FFN, &self.hidden(), self.act);
            for tensor in [half, factor, first] {
                p.release(tensor);
            }
            let up = self.linear(p, &FFN, &self.hidden(), hidden, ffn);
            held.extend([activated, up]);
            p.alloc(&FFN, &self.hidden(), self.act)
        } else {
            // T5 1.0 has a rectifier.
            let activated = p.alloc(&FFN, &self.hidden(), self.act);
            p.release(first);
            activated
        };
        let last = if self.fp16 { FP32 } else { self.act };
        if last != self.act {
            let wide = p.alloc(&FFN, &self.hidden(), last);
            p.release(product);
            product = wide;
        }
        let out = self.linear_in(p, &STATES, &self.states(), [ffn, hidden], last);
        for tensor in [product].into_iter().chain(held).chain([normed]) {
            p.release(tensor);
        }
        let sum = p.alloc(&STATES, &self.states(), last);
        p.release(out);
        p.release(x);
        sum
    }

    fn vision(&self, p: &mut Builder, patches: Tensor) -> Tensor {
        let (hidden, width) = (self.encoder.hidden, self.encoder.heads * self.encoder.head);
        // Patches, the class token before them, the table of positions, their sum, its norm.
        let joined = p.alloc(&STATES, &self.states(), self.act);
        let positions = p.alloc(&STATES, &self.states(), self.act);
        let sum = p.alloc(&STATES, &self.states(), self.act);
        for tensor in [positions, joined, patches] {
            p.release(tensor);
        }
        // The pipeline asks for the states of every layer.
        let kept = p.list();
        let normed = self.layer_norm(p);
        p.release(sum);
        p.keep(kept, normed);
        let layer = |p: &mut Builder| {
            p.phase("attention");
            let normed = self.layer_norm(p);
            let qkv = [(); 3].map(|()| self.linear(p, &QKV, &self.inner(), hidden, width));
            let mixed = p.alloc(&ATTENTION, &self.inner(), self.act);
            let out = self.linear(p, &ATTENTION, &self.states(), width, hidden);
            for tensor in [mixed, qkv[0], qkv[1], qkv[2], normed] {
                p.release(tensor);
            }
            let x = p.alloc(&STATES, &self.states(), self.act);
            p.release(out);
            p.phase("feed_forward");
            let normed = self.layer_norm(p);
            let first = self.linear(p, &FFN, &self.hidden(), hidden, self.encoder.ffn);
            let activated = p.alloc(&FFN, &self.hidden(), self.act);
            p.release(first);
            let out = self.linear(p, &STATES, &self.states(), self.encoder.ffn, hidden);
            for tensor in [activated, normed] {
                p.release(tensor);
            }
            let sum = p.alloc(&STATES, &self.states(), self.act);
            p.release(out);
            p.release(x);
            sum
        };
        // The result is what the last layer but one leaves.
        let blocks = self.encoder.blocks.0;
        p.repeat(blocks.saturating_sub(2), |p| {
            let states = layer(p);
            p.keep(kept, states);
        });
        let result = layer(p);
        if blocks > 1 {
            let last = layer(p);
            p.release(last);
        }
        p.release_list(kept);
        result
    }

    pub(super) fn layer_norm(&self, p: &mut Builder) -> Tensor {
        let states = self.states();
        let y = p.alloc(&NORMED, &states, self.act);
        for _ in 0..2 {
            p.touch(&STATISTICS, &[states[0], states[1]], FP32);
        }
        y
    }
}
