//! UMT5: prompts to embeddings. Only real tokens are computed; the transformer sees zeros behind them.
//!
//! All prompts go through each layer together, so that its weights are moved once. The table of embeddings, a fifth of the
//! encoder, stays in its file: rows of the prompts' tokens are looked up there.

use fv_spec::authored::Role;
use fv_spec::program::kernel::{Function, Input};
use fv_spec::program::{BufferKind, Element, Kernel, StageName, Stream, View};

use super::choice::Residency;
use super::geometry::Umt5;
use super::staged::Parcel;
use crate::build::Builder;
use crate::stream::{Block, Component, Parameter, Regions, Weights, component};

/// Added to mean squares.
const EPSILON: f64 = 1e-6;

/// A prompt.
#[derive(Debug, Clone, Copy)]
pub(super) struct Prompt {
    pub(super) what: Input,
    pub(super) tokens: u64,
}

/// The encoder's weights, by the names of transformers' `UMT5EncoderModel`; the table of embeddings apart.
pub fn component(model: &Umt5, element: Element) -> Component {
    let inner = model.heads * model.head_dim;
    let layer = |layer: u64| {
        let parameter = |name: &str, shape: &[u64]| Parameter::new(name, shape, element);
        let parameters = vec![
            parameter("layer.0.SelfAttention.q.weight", &[inner, model.hidden]),
            parameter("layer.0.SelfAttention.k.weight", &[inner, model.hidden]),
            parameter("layer.0.SelfAttention.v.weight", &[inner, model.hidden]),
            parameter("layer.0.SelfAttention.o.weight", &[model.hidden, inner]),
            parameter("layer.0.SelfAttention.relative_attention_bias.weight", &[model.buckets, model.heads]),
            parameter("layer.0.layer_norm.weight", &[model.hidden]),
            parameter("layer.1.DenseReluDense.wi_0.weight", &[model.ffn, model.hidden]),
            parameter("layer.1.DenseReluDense.wi_1.weight", &[model.ffn, model.hidden]),
            parameter("layer.1.DenseReluDense.wo.weight", &[model.hidden, model.ffn]),
            parameter("layer.1.layer_norm.weight", &[model.hidden]),
        ];
        Block { prefix: format!("encoder.block.{layer}."), parameters }
    };
    let root = vec![Parameter::new("encoder.final_layer_norm.weight", &[model.hidden], element)];
    Component { role: Role::TextEncoder, root, blocks: (0..model.layers).map(layer).collect() }
}

/// The table of embeddings.
pub fn embeddings(model: &Umt5, element: Element) -> Parameter {
    Parameter::new("shared.weight", &[model.vocabulary, model.hidden], element)
}

/// Embeddings `[text_rows x hidden]` of each prompt, in region `request`.
pub(super) fn lower(
    builder: &mut Builder,
    model: &Umt5,
    residency: &Residency,
    prompts: &[Prompt],
    text_rows: u64,
    request: u32,
) -> Vec<Parcel> {
    let element = builder.formats().compute;
    let regions = Regions::new(builder, "text_encoder");
    builder.segment(StageName::Load, "load_text_encoder", 1, 0);
    let mut weights = Weights::load(builder, &component(model, element), residency, regions);
    let order: Vec<_> = (0..residency.tiers.len()).collect();
    weights.prepare(builder, &order);
    let table = builder.group(component::layout(Role::TextEncoder, None, "", &[embeddings(model, element)]));

    builder.segment(StageName::Encoding, "encode", 1, 0);
    builder.phase("lookup");
    let rows: Vec<_> = prompts.iter().map(|prompt| look_up(builder, model, regions, table, *prompt)).collect();
    weights.pass(builder, &order, &[]);
    for &block in &order {
        weights.enter(builder, block);
        let layer = Layer { model, region: regions.device, weights: &weights };
        for &x in &rows {
            layer.attention(builder, x);
            layer.feed_forward(builder, x);
        }
        weights.leave(builder);
    }
    builder.phase("embeddings");
    let parcels = rows.into_iter().map(|x| finish(builder, &weights, x, text_rows, request)).collect();
    weights.free(builder);
    parcels
}

/// Rows of a prompt's tokens, on the device.
fn look_up(builder: &mut Builder, model: &Umt5, regions: Regions, group: u32, prompt: Prompt) -> View {
    let element = builder.formats().compute;
    let ids = builder.matrix(regions.pinned, "ids", BufferKind::Staging, Element::I32, prompt.tokens, 1);
    builder.wait_for_compute(Stream::Disk);
    builder.op(Stream::Disk, Kernel::Input { what: prompt.what, index: 0 }, vec![], vec![ids]);
    let found = builder.matrix(regions.pinned, "rows", BufferKind::Staging, element, prompt.tokens, model.hidden);
    builder.op(Stream::Disk, Kernel::Lookup { group, tensor: 0 }, vec![ids], vec![found]);
    builder.free(ids.buffer);
    let x = builder.activation(regions.device, "residual", prompt.tokens, model.hidden);
    let written = builder.done(Stream::Disk).into_iter().collect();
    Parcel { view: found, written }.receive_last(builder, x);
    x
}

struct Layer<'a> {
    model: &'a Umt5,
    region: u32,
    weights: &'a Weights,
}

impl Layer<'_> {
    /// `x w^T` in a new buffer.
    fn product(&self, builder: &mut Builder, x: View, weight: &str, function: Function) -> View {
        let matrix = self.weights.matrix(builder, weight);
        let target = builder.activation(self.region, weight, x.rows, matrix.view.rows);
        builder.product(x, matrix.view, None, function, target);
        matrix.free(builder);
        target
    }

    fn norm(&self, builder: &mut Builder, x: View, weight: &str) -> View {
        let target = builder.activation(self.region, "normed", x.rows, x.columns);
        let weight = self.weights.tensor(builder, weight);
        builder.rms_norm(x, EPSILON, weight, target);
        target
    }

    fn attention(&self, builder: &mut Builder, x: View) {
        builder.phase("self_attention");
        let heads = self.model.heads;
        let normed = self.norm(builder, x, "layer.0.layer_norm.weight");
        let [q, k, v] =
            ["q", "k", "v"].map(|name| self.product(builder, normed, &format!("layer.0.SelfAttention.{name}.weight"), Function::Identity));
        builder.free(normed.buffer);
        let bias = builder.activation(self.region, "bias", heads * x.rows, x.rows);
        let table = self.weights.tensor(builder, "layer.0.SelfAttention.relative_attention_bias.weight");
        builder.compute(Kernel::RelativeBias { max_distance: self.model.max_distance }, vec![table], bias);
        let kernel = Kernel::Attention { head_dim: self.model.head_dim, scale: 1.0, bias: true };
        builder.compute(kernel, vec![q, k, v, bias], q);
        for gone in [k, v, bias] {
            builder.free(gone.buffer);
        }
        let output = self.product(builder, q, "layer.0.SelfAttention.o.weight", Function::Identity);
        builder.free(q.buffer);
        builder.add(x, output);
        builder.free(output.buffer);
    }

    fn feed_forward(&self, builder: &mut Builder, x: View) {
        builder.phase("feed_forward");
        let normed = self.norm(builder, x, "layer.1.layer_norm.weight");
        let gate = self.product(builder, normed, "layer.1.DenseReluDense.wi_0.weight", Function::GeluTanh);
        let linear = self.product(builder, normed, "layer.1.DenseReluDense.wi_1.weight", Function::Identity);
        builder.free(normed.buffer);
        builder.compute(Kernel::Multiply { function: Function::Identity }, vec![gate, linear], gate);
        builder.free(linear.buffer);
        let y = self.product(builder, gate, "layer.1.DenseReluDense.wo.weight", Function::Identity);
        builder.free(gate.buffer);
        builder.add(x, y);
        builder.free(y.buffer);
    }
}

/// The last norm, and zeros behind the tokens.
fn finish(builder: &mut Builder, weights: &Weights, x: View, text_rows: u64, request: u32) -> Parcel {
    let weight = weights.root(builder, "encoder.final_layer_norm.weight");
    builder.rms_norm(x, EPSILON, weight, x);
    let view = builder.matrix(request, "prompt_embedding", BufferKind::Output, x.element, text_rows, x.columns);
    let mut parcel = Parcel::send_to(builder, view, x);
    builder.free(x.buffer);
    if text_rows > x.rows {
        builder.wait_for_compute(Stream::Disk);
        let behind = view.row_range(x.rows, text_rows - x.rows);
        builder.op(Stream::Disk, Kernel::Zero, vec![], vec![behind]);
        parcel.written.extend(builder.done(Stream::Disk));
    }
    parcel
}
