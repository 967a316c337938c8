//! UMT5 as FastVideo 0.2.1 runs it (`models/encoders/t5.py`), and as its loader hands it to FSDP.
//!
//! With `text_encoder_cpu_offload` the parameters are sharded over one rank and rest in host memory. Each of PyTorch's units,
//! which are the embedding and the two layers of each block, is gathered for its own duration: parameter by parameter, a copy
//! arrives from the host and is copied again into the buffer that is used, and the copy goes once the next has arrived.
//! A trace of the code on an H200 shows the same allocations (`tests/data/fastvideo`).

use super::FP32;
use super::encoder::Encoder;
use super::parameter::{Parameter, plain};
use crate::program::{Builder, List, Site, Tensor, sites};

sites! { "encoder.attention":
    QKV "query, key and value" Activation;
    BUCKETS "buckets of relative positions" Activation;
    BIAS "position bias" Activation;
    SCORES "attention scores" Activation;
    SCORES_FP32 "attention scores in fp32" Activation;
    ATTENTION "attention output" Activation;
}
sites! { "encoder.norm":
    NORM_FP32 "norm in fp32" Activation;
    NORMED "normed states" Activation;
}
sites! { "encoder":
    STATES "encoder states" Activation;
    FFN "feed-forward hidden" Activation;
    CHECKED "check for numbers" Activation;
    PROMPT "prompt embeddings" Activation;
}
sites! { "wan.weights.gathered":
    ARRIVED "parameter from the host" Staging;
    GATHERED "gathered unit" Staging;
}

const INT64: u64 = 8;

/// Tensors of a unit: elements and bytes of an element.
pub(crate) type Unit = Vec<(u64, u64)>;

/// The units of a block, where each is gathered for its own duration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Units {
    /// The embedding.
    pub(crate) embedding: Unit,
    /// The first layer of a block: query, key and value in one, and the output.
    pub(crate) attention: Unit,
    /// Its second layer.
    pub(crate) feed_forward: Unit,
    /// The last norm.
    pub(crate) norm: Unit,
}

impl Units {
    /// The units of an encoder's tensors, in the order of [`tensors`].
    pub(crate) fn of(block: &[(u64, u64)], rest: &[(u64, u64)]) -> Self {
        let at = ATTENTION_TENSORS.min(block.len());
        Self {
            embedding: rest[..1.min(rest.len())].to_vec(),
            attention: block[..at].to_vec(),
            feed_forward: block[at..].to_vec(),
            norm: rest[1.min(rest.len())..].to_vec(),
        }
    }

    /// What wrapping the encoder takes on the device: each unit is moved there as a whole and copied, parameter by parameter,
    /// on its way to the host, the last unit first (`fully_shard` of PyTorch with an offload policy).
    pub(crate) fn wrap(&self, p: &mut Builder, blocks: u64) {
        let unit = |p: &mut Builder, unit: &Unit| {
            let moved = p.list();
            for (elements, size) in unit {
                let parameter = p.alloc(&ARRIVED, &[("parameters", *elements)], *size);
                p.keep(moved, parameter);
            }
            for (elements, size) in unit {
                p.touch(&GATHERED, &[("parameters", *elements)], *size);
            }
            p.release_list(moved);
        };
        unit(p, &self.norm);
        p.repeat_sampled(blocks, 1, 0, |p| {
            unit(p, &self.feed_forward);
            unit(p, &self.attention);
        });
        unit(p, &self.embedding);
    }
}

/// Tensors of a block's first layer: query, key and value in one, the table of position biases, the output and the norm.
const ATTENTION_TENSORS: usize = 4;

/// Blocks, the tensors of one (attention first) and the tensors outside, the embedding first: one rank's share of `ranks`.
pub(crate) fn tensors(encoder: &Encoder, ranks: u64) -> (u64, Vec<Parameter>, Vec<Parameter>) {
    let (blocks, per_block) = encoder.blocks;
    let inner = encoder.heads * encoder.head;
    let shared = |elements: u64| plain(elements.div_ceil(ranks));
    let ffn = vec![encoder.hidden * encoder.ffn; if encoder.gated { 3 } else { 2 }];
    let matrices = 4 * encoder.hidden * inner + ffn.iter().sum::<u64>();
    let biases = per_block.saturating_sub(matrices + 2 * encoder.hidden);
    let mut block = vec![shared(3 * encoder.hidden * inner), plain(biases), shared(encoder.hidden * inner), plain(encoder.hidden)];
    block.extend(ffn.into_iter().map(shared));
    block.push(plain(encoder.hidden));
    let rest = encoder.parameters.saturating_sub(per_block * blocks);
    (blocks, block, vec![shared(rest.saturating_sub(encoder.hidden)), plain(encoder.hidden)])
}

/// Brings a unit to the device.
fn gather(p: &mut Builder, unit: &Unit, list: List) {
    let mut before: Option<Tensor> = None;
    for (elements, size) in unit {
        let arrived = p.alloc(&ARRIVED, &[("parameters", *elements)], *size);
        if let Some(before) = before.replace(arrived) {
            p.release(before);
        }
        let used = p.alloc(&GATHERED, &[("parameters", *elements)], *size);
        p.keep(list, used);
    }
    if let Some(before) = before {
        p.release(before);
    }
}

/// A forward pass over `tokens` tokens in a type of `act` bytes, on one of `ranks` ranks that share the matrices; the last hidden
/// states are the result. With `units` the weights come and go.
pub(crate) fn forward(p: &mut Builder, encoder: &Encoder, units: Option<&Units>, tokens: u64, act: u64, ranks: u64) -> Tensor {
    let pass = Pass { tokens, act, hidden: encoder.hidden, ffn: encoder.ffn / ranks, heads: encoder.heads, head: encoder.head, ranks };
    let unit = p.list();
    p.phase("embedding");
    if let Some(units) = units {
        gather(p, &units.embedding, unit);
    }
    let x = pass.states(p, &STATES, act);
    p.release_list(unit);
    let bias = p.list();
    p.repeat(encoder.blocks.0, |p| {
        p.phase("attention");
        if let Some(units) = units {
            gather(p, &units.attention, unit);
        }
        let attended = pass.attention(p, bias);
        p.release_list(unit);
        p.phase("feed_forward");
        if let Some(units) = units {
            gather(p, &units.feed_forward, unit);
        }
        let sum = pass.feed_forward(p, encoder.gated);
        p.release_list(unit);
        // The stack's name for the states of the block before lives as long as the block.
        p.release(attended);
        p.replace(x, sum);
    });
    p.phase("final_norm");
    if let Some(units) = units {
        gather(p, &units.norm, unit);
    }
    let normed = pass.norm(p);
    p.release_list(unit);
    p.release_list(bias);
    p.release(x);
    normed
}

/// The prompt embeddings that the pipelines keep, of the last hidden states, which it drops: checked for values that are not
/// numbers, filled up with zeros to the transformer's length, stacked, and copied out (`t5_postprocess_text`, `text_encoding.py`).
pub(crate) fn embeddings(p: &mut Builder, encoder: &Encoder, states: Tensor, tokens: u64, length: u64, act: u64) -> Tensor {
    p.phase("prompt_embeddings");
    let checked = [("tokens", tokens), ("width", encoder.hidden)];
    let numbers = p.alloc(&CHECKED, &checked, 1);
    p.touch(&CHECKED, &checked, INT64);
    p.release(numbers);
    let embed = [("tokens", length), ("width", encoder.hidden)];
    let filled = p.alloc(&PROMPT, &embed, act);
    let stacked = p.alloc(&PROMPT, &embed, act);
    p.release(filled);
    let copied = p.alloc(&PROMPT, &embed, act);
    p.release(stacked);
    p.release(states);
    copied
}

/// Extents of one forward pass.
#[derive(Debug, Clone, Copy)]
struct Pass {
    tokens: u64,
    act: u64,
    hidden: u64,
    ffn: u64,
    heads: u64,
    head: u64,
    ranks: u64,
}

impl Pass {
    fn states(&self, p: &mut Builder, site: &'static Site, element: u64) -> Tensor {
        p.alloc(site, &[("tokens", self.tokens), ("width", self.hidden)], element)
    }

    /// An RMS norm by way of fp32; the input's reference stays the caller's.
    fn norm(&self, p: &mut Builder) -> Tensor {
        let wide = (self.act != FP32).then(|| self.states(p, &NORM_FP32, FP32));
        let square = self.states(p, &NORM_FP32, FP32);
        p.release(square);
        let mut scaled = self.states(p, &NORM_FP32, FP32);
        if self.act != FP32 {
            let narrow = self.states(p, &NORMED, self.act);
            p.release(scaled);
            scaled = narrow;
        }
        let y = self.states(p, &NORMED, self.act);
        for tensor in [Some(scaled), wide].into_iter().flatten() {
            p.release(tensor);
        }
        y
    }

    /// The output of a matrix that ranks share by rows: the sum over ranks is made in a copy.
    fn reduced(&self, p: &mut Builder, site: &'static Site) -> Tensor {
        let part = self.states(p, site, self.act);
        if self.ranks == 1 {
            return part;
        }
        let sum = self.states(p, site, self.act);
        p.release(part);
        sum
    }

    /// The first layer of a block; the sum with its input is the result. `bias` holds the position bias of the layer before.
    fn attention(&self, p: &mut Builder, bias: List) -> Tensor {
        let inner = ("inner width", self.heads * self.head / self.ranks);
        let length = ("tokens", self.tokens);
        let normed = self.norm(p);
        let qkv = p.alloc(&QKV, &[length, ("parts", 3), inner], self.act);
        self.position_bias(p, bias);
        let scores = [("heads", self.heads / self.ranks), length, ("keys", self.tokens)];
        let raw = p.alloc(&SCORES, &scores, self.act);
        let wide = (self.act != FP32).then(|| p.alloc(&SCORES_FP32, &scores, FP32));
        let mut probabilities = p.alloc(&SCORES_FP32, &scores, FP32);
        if let Some(wide) = wide {
            p.release(wide);
            let narrow = p.alloc(&SCORES, &scores, self.act);
            p.release(probabilities);
            probabilities = narrow;
        }
        p.release(raw);
        let mixed = p.alloc(&ATTENTION, &[length, inner], self.act);
        let ordered = p.alloc(&ATTENTION, &[length, inner], self.act);
        p.release(mixed);
        p.release(probabilities);
        let out = self.reduced(p, &ATTENTION);
        p.release(qkv);
        p.release(ordered);
        let sum = self.states(p, &STATES, self.act);
        p.release(normed);
        p.release(out);
        sum
    }

    /// The bias of relative positions, which every layer of UMT5 computes anew: integers step by step, an embedding of them for all
    /// heads, and a copy for each prompt.
    fn position_bias(&self, p: &mut Builder, bias: List) {
        let pairs = [("queries", self.tokens), ("keys", self.tokens)];
        let wide = |p: &mut Builder| p.alloc(&BUCKETS, &pairs, INT64);
        let narrow = |p: &mut Builder| p.alloc(&BUCKETS, &pairs, FP32);
        // Each step is dropped once the next has been made of it.
        let chain = |p: &mut Builder, from: Tensor, step: &dyn Fn(&mut Builder) -> Tensor| {
            let next = step(p);
            p.release(from);
            next
        };
        let positions = wide(p);
        let sign = p.alloc(&BUCKETS, &pairs, 1);
        let mut half = chain(p, sign, &wide);
        half = chain(p, half, &wide);
        half = chain(p, half, &wide);
        let distance = wide(p);
        let small = p.alloc(&BUCKETS, &pairs, 1);
        let mut logarithm = narrow(p);
        for _ in 0..4 {
            logarithm = chain(p, logarithm, &narrow);
        }
        let mut large = chain(p, logarithm, &wide);
        large = chain(p, large, &wide);
        let limit = wide(p);
        let limited = wide(p);
        p.release(limit);
        p.release(large);
        let chosen = wide(p);
        for tensor in [chosen, distance, small, limited] {
            p.release(tensor);
        }
        let heads = [pairs[0], pairs[1], ("heads", self.heads)];
        let embedded = p.alloc(&BIAS, &heads, self.act);
        p.release(positions);
        p.release(half);
        let repeated = p.alloc(&BIAS, &heads, self.act);
        p.release(embedded);
        p.release_list(bias);
        p.keep(bias, repeated);
    }

    /// The second layer of a block; the sum with its input is the result.
    fn feed_forward(&self, p: &mut Builder, gated: bool) -> Tensor {
        let hidden = [("tokens", self.tokens), ("ffn", self.ffn)];
        let step = |p: &mut Builder| p.alloc(&FFN, &hidden, self.act);
        let normed = self.norm(p);
        let linear = step(p);
        // GELU written out: half the input, and a chain of six that ends in the product of both.
        let halved = step(p);
        let mut last = step(p);
        for _ in 0..5 {
            let next = step(p);
            p.release(last);
            last = next;
        }
        let activated = step(p);
        p.release(halved);
        p.release(last);
        p.release(linear);
        let product = gated.then(|| {
            let up = step(p);
            (up, step(p))
        });
        let out = self.reduced(p, &STATES);
        if let Some((up, product)) = product {
            p.release(product);
            p.release(activated);
            p.release(up);
        } else {
            p.release(activated);
        }
        p.release(normed);
        let sum = self.states(p, &STATES, self.act);
        p.release(out);
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wan::simulated::{assert_recorded, program};

    #[test]
    fn encoding_is_the_recorded_one() {
        let umt5 = Encoder {
            parameters: 5_680_910_336,
            blocks: (24, 192_948_224),
            hidden: 4096,
            ffn: 10_240,
            heads: 64,
            head: 64,
            gated: true,
            tokens: 0,
            geometry: true,
            shared_bias: false,
            masked: true,
        };
        let (blocks, block, rest) = tensors(&umt5, 1);
        let sum = |list: &[Parameter]| list.iter().map(|p| p.elements).sum::<u64>();
        assert_eq!(sum(&block) * blocks + sum(&rest), umt5.parameters);
        let unit = |list: &[Parameter]| list.iter().map(|p| (p.elements, FP32)).collect::<Unit>();
        let units = Units::of(&unit(&block), &unit(&rest));
        let encoding = program(|p| {
            let states = forward(p, &umt5, Some(&units), 512, FP32, 1);
            embeddings(p, &umt5, states, 512, 512, FP32);
        });
        assert_recorded(&encoding, "umt5_offload", 0);
    }
}
