//! The image encoder under FastVideo: CLIP's vision tower. And what is known of an encoder without geometry: its embedding.
//!
//! Encoder activations are small beside the weights; what matters is which weights are on the device together.

use super::encoder::Encoder;
use crate::program::{Builder, Site, Tensor, sites};

sites! { "encoder":
    STATES "encoder states" Activation;
}
sites! { "encoder.norm":
    NORMED "normed states" Activation;
    NORM_FP32 "norm in fp32" Activation;
}
sites! { "encoder.attention":
    QKV "query, key and value" Activation;
    ATTENTION "attention output" Activation;
}
sites! { "encoder.feed_forward":
    FFN "feed-forward hidden" Activation;
}

/// The embedding, gathered for its own duration where a site says so: elements and bytes of an element.
pub(crate) fn embed(p: &mut Builder, gathered: Option<(&'static Site, u64, u64)>, states: &[(&'static str, u64)], act: u64) -> Tensor {
    p.phase("embedding");
    let passing = gathered.map(|(site, parameters, size)| {
        let weights = p.alloc(site, &[("parameters", parameters)], size);
        // The copy that arrives from the host and the buffer it is gathered into are there together.
        p.touch(site, &[("parameters", parameters)], size);
        weights
    });
    let x = p.alloc(&STATES, states, act);
    if let Some(weights) = passing {
        p.release(weights);
    }
    x
}

/// A forward pass of the vision tower; the last hidden states are the result.
pub(crate) fn forward(p: &mut Builder, encoder: &Encoder, batch: u64, act: u64) -> Tensor {
    let (batch, length) = (("batch", batch), ("tokens", encoder.tokens));
    let states = [batch, length, ("width", encoder.hidden)];
    let inner = [batch, length, ("inner width", encoder.heads * encoder.head)];
    let ffn = [batch, length, ("ffn", encoder.ffn)];
    let x = embed(p, None, &states, act);
    let all_states = p.list();
    p.repeat(encoder.blocks.0, |p| {
        // The pipeline asks for the states of every layer.
        let kept = p.alloc(&STATES, &states, act);
        p.keep(all_states, kept);
        p.phase("attention");
        let normed = norm(p, &states, act);
        let qkv = [(); 3].map(|()| p.alloc(&QKV, &inner, act));
        let mixed = p.alloc(&ATTENTION, &inner, act);
        let out = p.alloc(&ATTENTION, &states, act);
        for tensor in [mixed, normed].into_iter().chain(qkv) {
            p.release(tensor);
        }
        let sum = p.alloc(&STATES, &states, act);
        p.release(out);
        p.replace(x, sum);

        p.phase("feed_forward");
        let normed = norm(p, &states, act);
        let gate = p.alloc(&FFN, &ffn, act);
        // The activation is written out in steps, each a new tensor.
        let steps = [(); 2].map(|()| p.alloc(&FFN, &ffn, act));
        let activated = p.alloc(&FFN, &ffn, act);
        for tensor in steps {
            p.release(tensor);
        }
        p.release(gate);
        let out = p.alloc(&STATES, &states, act);
        p.release(activated);
        p.release(normed);
        let sum = p.alloc(&STATES, &states, act);
        p.release(out);
        p.replace(x, sum);
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
