//! What comes before the blocks and after them.

use fv_spec::program::kernel::{Function, Grid};
use fv_spec::program::{BufferKind, Kernel, View};

use super::{EPSILON, Residual, Transformer, row};
use crate::build::Builder;

/// What the current timestep makes of modulations.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time {
    /// The embedding, `[1 x hidden]`, for the head.
    pub(super) embedding: View,
    /// Projected for blocks, `[6 x hidden]`.
    pub(super) projected: View,
}

impl Time {
    pub(super) fn free(self, builder: &mut Builder) {
        builder.free(self.embedding.buffer);
        builder.free(self.projected.buffer);
    }
}

impl Transformer<'_> {
    /// The timestep, once a step.
    pub(super) fn time(&self, builder: &mut Builder) -> Time {
        builder.phase("time_embedding");
        let hidden = self.model.hidden;
        let features = self.exact(builder, "timestep_features", 1, self.model.frequencies);
        builder.compute(Kernel::TimestepFeatures, vec![], features);
        let inner = self.exact(builder, "timestep_inner", 1, hidden);
        let embedding = self.exact(builder, "timestep_embedding", 1, hidden);
        let projected = self.exact(builder, "timestep_projected", 1, 6 * hidden);
        let product = |builder: &mut Builder, x, layer, function, target| {
            let (weight, bias) = self.root_linear(builder, layer);
            builder.product(x, weight, bias, function, target);
        };
        product(builder, features, "condition_embedder.time_embedder.linear_1", Function::Silu, inner);
        product(builder, inner, "condition_embedder.time_embedder.linear_2", Function::Identity, embedding);
        builder.compute(Kernel::Apply { function: Function::Silu }, vec![embedding], inner);
        product(builder, inner, "condition_embedder.time_proj", Function::Identity, projected);
        builder.free(features.buffer);
        builder.free(inner.buffer);
        Time { embedding, projected: View { rows: 6, columns: hidden, pitch: hidden, ..projected } }
    }

    /// The text's embedding, once a request.
    pub(super) fn embed_text(&self, builder: &mut Builder, text: View) -> View {
        builder.phase("text_embedding");
        let inner = self.activation(builder, "text_inner", text.rows, self.model.hidden);
        let embedded = self.activation(builder, "text_embedded", text.rows, self.model.hidden);
        let (weight, bias) = self.root_linear(builder, "condition_embedder.text_embedder.linear_1");
        builder.product(text, weight, bias, Function::GeluTanh, inner);
        let (weight, bias) = self.root_linear(builder, "condition_embedder.text_embedder.linear_2");
        builder.product(inner, weight, bias, Function::Identity, embedded);
        builder.free(inner.buffer);
        embedded
    }

    /// Patches of the latent as tokens.
    pub(super) fn embed_patches(&self, builder: &mut Builder, latent: View) -> Residual {
        builder.phase("patch_embedding");
        let mut x = self.residual(builder);
        let (weight, bias) = self.root_linear(builder, "patch_embedding");
        self.projection_chunks().each(builder, |builder, chunk| {
            let patches = self.activation(builder, "patches", chunk.rows, weight.columns);
            let kernel = Kernel::Patches { latent: self.latent, patch: self.patch(), first_row: chunk.first };
            builder.compute(kernel, vec![latent], patches);
            let piece = x.write(builder, chunk);
            builder.product(patches, weight, bias, Function::Identity, piece.view);
            builder.free(patches.buffer);
            x.keep(builder, &piece);
        });
        x
    }

    /// Tokens as a prediction, `[channels x positions]`.
    pub(super) fn head(&self, builder: &mut Builder, mut x: Residual, time: View) -> View {
        builder.phase("head");
        let hidden = self.model.hidden;
        let table = View { rows: 2, columns: hidden, pitch: hidden, ..self.weights.root(builder, "scale_shift_table") };
        let modulation = self.exact(builder, "head_modulation", 2, hidden);
        builder.compute(Kernel::Add, vec![table, time], modulation);
        let prediction = self.exact(builder, "prediction", self.model.out_channels, self.latent.len());
        let (weight, bias) = self.root_linear(builder, "proj_out");
        self.projection_chunks().each(builder, |builder, chunk| {
            let piece = x.read(builder, chunk);
            let normed = self.activation(builder, "normed", chunk.rows, hidden);
            builder.layer_norm(piece.view, EPSILON, None, Some((row(modulation, 0), row(modulation, 1))), normed);
            x.drop(builder, &piece);
            let patches = self.activation(builder, "patches", chunk.rows, weight.rows);
            builder.product(normed, weight, bias, Function::Identity, patches);
            builder.free(normed.buffer);
            let kernel = Kernel::Unpatch { latent: self.latent, patch: self.patch(), first_row: chunk.first };
            builder.compute(kernel, vec![patches], prediction);
            builder.free(patches.buffer);
        });
        builder.free(modulation.buffer);
        x.free(builder);
        prediction
    }
}

/// Cosines and sines of all tokens, once a request.
pub(super) fn rotary_table(builder: &mut Builder, region: u32, grid: Grid, head_dim: u64) -> View {
    builder.phase("rotary_table");
    let element = builder.formats().exact;
    let table = builder.matrix(region, "rotary_table", BufferKind::Cache, element, grid.len(), head_dim);
    builder.compute(Kernel::RotaryTable { grid, head_dim }, vec![], table);
    table
}
