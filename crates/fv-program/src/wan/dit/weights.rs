//! What weights a Wan transformer has, by the names of diffusers' `WanTransformer3DModel`.

use fv_spec::authored::Role;
use fv_spec::program::{Element, Formats};

use crate::stream::{Block, Component, Parameter};
use crate::wan::geometry::Dit;

/// The weights of a transformer. Modulation tables are kept exact; matrices of blocks are stored as formats say.
pub fn component(model: &Dit, role: Role, formats: Formats) -> Component {
    let block = |at| {
        let block = Block { prefix: format!("blocks.{at}."), parameters: block(model, formats) };
        let eight_bits = matches!(formats.block_weights, Element::Fp8 | Element::Int8);
        if eight_bits { block.in_eight_bits(formats.block_weights) } else { block }
    };
    Component { role, root: root(model, formats), blocks: (0..model.blocks).map(block).collect() }
}

fn root(model: &Dit, formats: Formats) -> Vec<Parameter> {
    let (d, element) = (model.hidden, formats.compute);
    let patch: u64 = model.patch.iter().product();
    let [frames, height, width] = model.patch;
    let patch_embedding = Parameter::new("patch_embedding.weight", &[d, model.in_channels, frames, height, width], element);
    let mut all = vec![patch_embedding, Parameter::new("patch_embedding.bias", &[d], element)];
    for (name, outputs, inputs) in [
        ("condition_embedder.time_embedder.linear_1", d, model.frequencies),
        ("condition_embedder.time_embedder.linear_2", d, d),
        ("condition_embedder.time_proj", 6 * d, d),
        ("condition_embedder.text_embedder.linear_1", d, model.text),
        ("condition_embedder.text_embedder.linear_2", d, d),
        ("proj_out", model.out_channels * patch, d),
    ] {
        all.extend(linear(name, outputs, inputs, element));
    }
    all.push(Parameter::new("scale_shift_table", &[1, 2, d], formats.exact));
    all
}

fn block(model: &Dit, formats: Formats) -> Vec<Parameter> {
    let (d, element) = (model.hidden, formats.compute);
    let mut all = vec![Parameter::new("scale_shift_table", &[1, 6, d], formats.exact)];
    for attention in ["attn1", "attn2"] {
        for part in ["to_q", "to_k", "to_v", "to_out.0"] {
            all.extend(linear(&format!("{attention}.{part}"), d, d, element));
        }
        all.extend(["norm_q", "norm_k"].map(|norm| Parameter::new(format!("{attention}.{norm}.weight"), &[d], element)));
    }
    if model.sparse.is_some() {
        all.extend(linear("to_gate_compress", d, d, element));
    }
    all.extend(["weight", "bias"].map(|part| Parameter::new(format!("norm2.{part}"), &[d], element)));
    all.extend(linear("ffn.net.0.proj", model.ffn, d, element));
    all.extend(linear("ffn.net.2", d, model.ffn, element));
    all
}

fn linear(name: &str, outputs: u64, inputs: u64, element: Element) -> [Parameter; 2] {
    let weight = Parameter::new(format!("{name}.weight"), &[outputs, inputs], element);
    [weight, Parameter::new(format!("{name}.bias"), &[outputs], element)]
}
