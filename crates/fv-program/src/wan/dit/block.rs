//! One block of one prediction.

use fv_spec::program::kernel::Function;
use fv_spec::program::{BufferKind, Kernel, View};

use super::{EPSILON, Residual, Transformer, row};
use crate::build::Builder;
use crate::stream::Matrix;

/// What cross-attention attends to.
#[derive(Debug, Clone)]
pub(super) enum Text {
    /// Keys and values for each block.
    Kept(Vec<(View, View)>),
    /// The embedding they are computed from.
    Embedded(View),
}

/// A linear layer of the block that was entered.
pub(super) struct Linear {
    weight: Matrix,
    bias: View,
}

impl Linear {
    /// The whole layer.
    pub(super) fn new(transformer: &Transformer, builder: &mut Builder, name: &str) -> Self {
        let weight = transformer.weights.matrix(builder, &format!("{name}.weight"));
        Self { weight, bias: transformer.vector(builder, &format!("{name}.bias")) }
    }

    /// What gives some of its outputs.
    pub(super) fn outputs(transformer: &Transformer, builder: &mut Builder, name: &str, first: u64, count: u64) -> Self {
        let weight = transformer.weights.matrix_rows(builder, &format!("{name}.weight"), first, count);
        Self { weight, bias: transformer.vector(builder, &format!("{name}.bias")).column_range(first, count) }
    }

    pub(super) fn apply(&self, builder: &mut Builder, x: View, function: Function, target: View) {
        builder.product(x, self.weight.view, Some(self.bias), function, target);
    }

    pub(super) fn free(self, builder: &mut Builder) {
        self.weight.free(builder);
    }
}

impl Transformer<'_> {
    /// Shift, scale and gate of self-attention, then of the feed-forward layer, `[6 x hidden]`.
    pub(super) fn modulation(&self, builder: &mut Builder, time: View) -> View {
        builder.phase("modulation");
        let target = self.exact(builder, "modulation", 6, self.model.hidden);
        let table = self.vector(builder, "scale_shift_table");
        let table = View { rows: 6, columns: self.model.hidden, pitch: self.model.hidden, ..table };
        builder.compute(Kernel::Add, vec![table, time], target);
        target
    }

    /// The block that was entered.
    pub(super) fn block(&self, builder: &mut Builder, at: usize, x: &mut Residual, modulation: View, text: &Text) {
        let attended = self.self_attention(builder, x, modulation);
        let (k, v) = match text {
            Text::Kept(kept) => kept[at],
            Text::Embedded(embedded) => self.text_keys(builder, *embedded, BufferKind::Activation),
        };
        self.after_attention(builder, x, attended, modulation, (k, v));
        if let Text::Embedded(_) = text {
            builder.free(k.buffer);
            builder.free(v.buffer);
        }
        self.feed_forward(builder, x, modulation);
    }

    /// Keys, normalised over all heads, and values of the text.
    pub(super) fn text_keys(&self, builder: &mut Builder, text: View, kind: BufferKind) -> (View, View) {
        let element = builder.formats().compute;
        builder.phase("text_keys");
        let [k, v] = [("text_key", "attn2.to_k"), ("text_value", "attn2.to_v")].map(|(name, layer)| {
            let target = builder.matrix(self.regions.device, name, kind, element, text.rows, self.model.hidden);
            let layer = Linear::new(self, builder, layer);
            layer.apply(builder, text, Function::Identity, target);
            layer.free(builder);
            target
        });
        let norm = self.vector(builder, "attn2.norm_k.weight");
        builder.rms_norm(k, EPSILON, norm, k);
        (k, v)
    }

    /// Cross-attention of some rows, which is added to them.
    pub(super) fn cross_attention(&self, builder: &mut Builder, x: View, q: &Linear, output: &Linear, (k, v): (View, View)) {
        builder.phase("cross_attention");
        let normed = self.activation(builder, "normed", x.rows, x.columns);
        let affine = (self.vector(builder, "norm2.weight"), self.vector(builder, "norm2.bias"));
        builder.layer_norm(x, EPSILON, Some(affine), None, normed);
        let query = self.activation(builder, "query_rows", x.rows, x.columns);
        q.apply(builder, normed, Function::Identity, query);
        let norm = self.vector(builder, "attn2.norm_q.weight");
        builder.rms_norm(query, EPSILON, norm, query);
        let kernel = Kernel::Attention { head_dim: self.head_dim(), scale: self.scale(), bias: false };
        builder.compute(kernel, vec![query, k, v], query);
        output.apply(builder, query, Function::Identity, normed);
        builder.free(query.buffer);
        builder.add(x, normed);
        builder.free(normed.buffer);
    }

    fn feed_forward(&self, builder: &mut Builder, x: &mut Residual, modulation: View) {
        builder.phase("feed_forward");
        let inner = Linear::new(self, builder, "ffn.net.0.proj");
        let outer = Linear::new(self, builder, "ffn.net.2");
        self.feed_forward_chunks().each(builder, |builder, chunk| {
            let piece = x.read(builder, chunk);
            let normed = self.activation(builder, "normed", chunk.rows, self.model.hidden);
            builder.layer_norm(piece.view, EPSILON, None, Some((row(modulation, 3), row(modulation, 4))), normed);
            let features = self.activation(builder, "inner_features", chunk.rows, self.model.ffn);
            inner.apply(builder, normed, Function::GeluTanh, features);
            outer.apply(builder, features, Function::Identity, normed);
            builder.free(features.buffer);
            builder.compute(Kernel::GatedAdd, vec![piece.view, normed, row(modulation, 5)], piece.view);
            builder.free(normed.buffer);
            x.keep(builder, &piece);
        });
        inner.free(builder);
        outer.free(builder);
    }
}
