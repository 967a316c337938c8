//! Text and image encoders of the Wan pipelines: UMT5 (transformers' `UMT5EncoderModel`) and CLIP's vision tower.
//!
//! Encoder activations are small beside the weights; what matters is which weights are on the device together.

use super::model::Encoder;
use super::weights::{Parameter, plain};
use crate::program::{Builder, Site, Tensor, sites};

sites! { "wan.encoder":
    STATES "encoder states" Activation;
}
sites! { "wan.encoder.norm":
    NORMED "normed states" Activation;
    NORM_FP32 "norm in fp32" Activation;
}
sites! { "wan.encoder.attention":
    QKV "query, key and value" Activation;
    BIAS "position bias" Activation;
    SCORES "attention scores" Activation;
    SCORES_FP32 "attention scores in fp32" Activation;
    ATTENTION "attention output" Activation;
}
sites! { "wan.encoder.feed_forward":
    FFN "feed-forward hidden" Activation;
}

/// Weights that pass by: elements and bytes of an element of each tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    /// The embedding, which is the largest tensor.
    pub embedding: (u64, u64),
    /// The tensors of a block.
    pub block: Vec<(u64, u64)>,
    /// Each layer is brought in for its own duration.
    pub leaf: bool,
    /// Each unit is gathered for its own duration, one tensor at a time through a staging copy.
    pub gathered: bool,
}

/// Blocks, the tensors of one, and the tensors outside, the embedding first. Sums are the catalog's counts; where the layout is
/// not known the remainder is one tensor.
pub fn tensors(encoder: &Encoder) -> (u64, Vec<Parameter>, Vec<Parameter>) {
    let (blocks, per_block) = encoder.blocks;
    let inner = encoder.heads * encoder.head;
    let mut block: Vec<Parameter> = Vec::new();
    if encoder.geometry {
        block.extend([plain(encoder.hidden * inner); 4]);
        block.extend(vec![plain(encoder.hidden * encoder.ffn); if encoder.gated { 3 } else { 2 }]);
    }
    let (hidden, ffn) = (encoder.hidden, encoder.ffn);
    let rest = encoder.parameters.saturating_sub(per_block.saturating_mul(blocks));
    if encoder.geometry && encoder.gated && per_block == 4 * hidden * inner + 3 * hidden * ffn + 32 * encoder.heads + 2 * hidden {
        // UMT5: query, key, value and output, a table of 32 relative positions, the feed-forward layer, two norms.
        let layout = [
            hidden * inner,
            hidden * inner,
            hidden * inner,
            hidden * inner,
            32 * encoder.heads,
            hidden,
            hidden * ffn,
            hidden * ffn,
            hidden * ffn,
            hidden,
        ];
        let outside = [rest.saturating_sub(hidden), hidden];
        return (blocks, layout.map(plain).to_vec(), outside.map(plain).to_vec());
    }
    if encoder.geometry && !encoder.gated && per_block == 4 * (hidden * inner + hidden) + 2 * hidden * ffn + ffn + 5 * hidden {
        // CLIP's vision tower: four projections and the feed-forward layer with biases, two norms with gain and bias.
        let mut layout = Vec::new();
        for _ in 0..4 {
            layout.extend([hidden * inner, hidden]);
        }
        layout.extend([hidden, hidden, hidden * ffn, ffn, hidden * ffn, hidden, hidden, hidden]);
        let position = encoder.tokens * hidden;
        let outside = [hidden, rest.saturating_sub(position + 5 * hidden), position, hidden, hidden, hidden, hidden];
        return (blocks, layout.into_iter().map(plain).collect(), outside.map(plain).to_vec());
    }
    let sum: u64 = block.iter().map(|p| p.elements).sum();
    match per_block.checked_sub(sum) {
        Some(0) => {}
        // Norms, biases and position tables are small.
        Some(rest) => block.push(plain(rest)),
        None => block = vec![plain(per_block)],
    }
    (blocks, block, if rest > 0 { vec![plain(rest)] } else { Vec::new() })
}

/// A forward pass; the last hidden states are the result.
#[expect(clippy::too_many_arguments, reason = "all are needed and none belong together")]
pub fn forward(
    p: &mut Builder,
    encoder: &Encoder,
    units: &Units,
    gathered: &'static Site,
    leaf: &'static Site,
    batch: u64,
    tokens: u64,
    act: u64,
) -> Tensor {
    let batch = ("batch", batch);
    let length = ("tokens", tokens);
    let states = [batch, length, ("width", encoder.hidden)];
    p.phase("embedding");
    let passing = (units.gathered || units.leaf).then(|| {
        let weights = p.alloc(if units.gathered { gathered } else { leaf }, &[("parameters", units.embedding.0)], units.embedding.1);
        if units.gathered {
            // The copy that arrives from the host and the buffer it is gathered into are there together.
            p.touch(gathered, &[("parameters", units.embedding.0)], units.embedding.1);
        }
        weights
    });
    let x = p.alloc(&STATES, &states, act);
    if let Some(weights) = passing {
        p.release(weights);
    }
    if !encoder.geometry {
        return x;
    }
    let vision = encoder.tokens > 0;
    let all_states = p.list();
    p.repeat(encoder.blocks.0, |p| {
        let unit = p.list();
        if vision {
            // The pipeline asks for the states of every layer.
            let states = p.alloc(&STATES, &states, act);
            p.keep(all_states, states);
        }
        if units.gathered {
            p.phase("gather");
            for (elements, size) in &units.block {
                p.touch(gathered, &[("parameters", *elements)], *size);
                let weights = p.alloc(gathered, &[("parameters", *elements)], *size);
                p.keep(unit, weights);
            }
        }
        layer(p, encoder, units, leaf, x, batch, length, act);
        p.release_list(unit);
    });
    p.phase("final_norm");
    let normed = norm(p, &states, act);
    p.release(x);
    p.release_list(all_states);
    normed
}

/// An RMS norm in fp32; its input stays.
fn norm(p: &mut Builder, states: &[(&'static str, u64)], act: u64) -> Tensor {
    let wide = (act != 4).then(|| p.alloc(&NORM_FP32, states, 4));
    let square = p.alloc(&NORM_FP32, states, 4);
    p.release(square);
    let scaled = p.alloc(&NORM_FP32, states, 4);
    if let Some(wide) = wide {
        p.release(wide);
    }
    let y = p.alloc(&NORMED, states, act);
    p.release(scaled);
    y
}

#[expect(clippy::too_many_arguments, reason = "all are needed and none belong together")]
fn layer(
    p: &mut Builder,
    encoder: &Encoder,
    units: &Units,
    leaf: &'static Site,
    x: Tensor,
    batch: (&'static str, u64),
    length: (&'static str, u64),
    act: u64,
) {
    let states = [batch, length, ("width", encoder.hidden)];
    let inner = [batch, length, ("inner width", encoder.heads * encoder.head)];
    let linear = |p: &mut Builder, site: &'static Site, dims: &[(&'static str, u64)], inputs: u64, outputs: u64| {
        let weights = units.leaf.then(|| p.alloc(leaf, &[("inputs", inputs), ("outputs", outputs)], act));
        let y = p.alloc(site, dims, act);
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    };
    let scores = [batch, ("heads", encoder.heads), length, ("keys", length.1)];
    p.phase("attention");
    let normed = norm(p, &states, act);
    let width = encoder.heads * encoder.head;
    let qkv = [(); 3].map(|()| linear(p, &QKV, &inner, encoder.hidden, width));
    if encoder.tokens > 0 {
        // The vision tower runs a fused kernel: no scores.
        let mixed = p.alloc(&ATTENTION, &inner, act);
        let out = linear(p, &ATTENTION, &states, width, encoder.hidden);
        for tensor in [mixed, normed].into_iter().chain(qkv) {
            p.release(tensor);
        }
        return close(p, encoder, units, leaf, x, out, batch, length, act);
    }
    let raw = p.alloc(&SCORES, &scores, act);
    let table = p.alloc(&BIAS, &scores[1..], act);
    let bias = p.alloc(&BIAS, &scores, act);
    p.release(table);
    let wide = (act != 4).then(|| p.alloc(&SCORES_FP32, &scores, 4));
    let soft = p.alloc(&SCORES_FP32, &scores, 4);
    if let Some(wide) = wide {
        p.release(wide);
    }
    let probabilities = if act == 4 {
        soft
    } else {
        let narrow = p.alloc(&SCORES, &scores, act);
        p.release(soft);
        narrow
    };
    let mixed = p.alloc(&ATTENTION, &inner, act);
    let ordered = p.alloc(&ATTENTION, &inner, act);
    p.release(mixed);
    let out = linear(p, &ATTENTION, &states, width, encoder.hidden);
    for tensor in [ordered, probabilities, bias, raw, normed].into_iter().chain(qkv) {
        p.release(tensor);
    }
    close(p, encoder, units, leaf, x, out, batch, length, act);
}

/// The residual after attention, and the feed-forward layer.
#[expect(clippy::too_many_arguments, reason = "all are needed and none belong together")]
fn close(
    p: &mut Builder,
    encoder: &Encoder,
    units: &Units,
    leaf: &'static Site,
    x: Tensor,
    out: Tensor,
    batch: (&'static str, u64),
    length: (&'static str, u64),
    act: u64,
) {
    let states = [batch, length, ("width", encoder.hidden)];
    let linear = |p: &mut Builder, site: &'static Site, dims: &[(&'static str, u64)], inputs: u64, outputs: u64| {
        let weights = units.leaf.then(|| p.alloc(leaf, &[("inputs", inputs), ("outputs", outputs)], act));
        let y = p.alloc(site, dims, act);
        if let Some(weights) = weights {
            p.release(weights);
        }
        y
    };
    let sum = p.alloc(&STATES, &states, act);
    p.release(out);
    p.replace(x, sum);

    p.phase("feed_forward");
    let normed = norm(p, &states, act);
    let hidden = [batch, length, ("ffn", encoder.ffn)];
    let gate = linear(p, &FFN, &hidden, encoder.hidden, encoder.ffn);
    // The activation is written out in steps, each a new tensor.
    let steps = [(); 2].map(|()| p.alloc(&FFN, &hidden, act));
    let activated = p.alloc(&FFN, &hidden, act);
    for tensor in steps {
        p.release(tensor);
    }
    p.release(gate);
    let mut product = activated;
    if encoder.gated {
        let up = linear(p, &FFN, &hidden, encoder.hidden, encoder.ffn);
        product = p.alloc(&FFN, &hidden, act);
        p.release(up);
        p.release(activated);
    }
    let out = linear(p, &STATES, &states, encoder.ffn, encoder.hidden);
    p.release(product);
    p.release(normed);
    let sum = p.alloc(&STATES, &states, act);
    p.release(out);
    p.replace(x, sum);
}
