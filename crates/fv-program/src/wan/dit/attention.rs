//! Self-attention over all tokens.

use fv_spec::program::kernel::Function;
use fv_spec::program::{BufferKind, Element, Kernel, Stream, View};

use super::block::Linear;
use super::{EPSILON, Piece, Places, Residual, Staged, TILE, Transformer, row};
use crate::build::Builder;
use crate::ops::{Chunk, Chunks};
use crate::wan::geometry::Sparse;

/// What attention leaves.
pub(super) struct Attended {
    /// Outputs of all heads, in place of queries.
    outputs: Staged,
    /// With sparse attention: outputs of the attention between tiles.
    coarse: Option<View>,
}

/// Queries, keys or values of all heads, and room for chunks of their rows.
struct Heads {
    stream: Staged,
    rows: Places,
}

impl Heads {
    fn write(&mut self, builder: &mut Builder, chunk: Chunk) -> Piece {
        let part = self.stream.rows(chunk.first, chunk.rows);
        self.stream.write(builder, &mut self.rows, part)
    }

    fn keep(&mut self, builder: &mut Builder, piece: &Piece) {
        self.stream.keep(builder, &mut self.rows, piece);
    }
}

/// Values of one head group.
enum Values {
    /// Those of all heads were projected before.
    Read(Piece),
    /// Projected for the group alone.
    Own(View),
}

impl Values {
    fn view(&self) -> View {
        match self {
            Self::Read(piece) => piece.view,
            Self::Own(view) => *view,
        }
    }
}

/// Queries, keys and values of one head group.
struct Group {
    q: View,
    k: View,
    v: View,
    first_column: u64,
}

impl Transformer<'_> {
    fn heads(&self, builder: &mut Builder, name: &str) -> Heads {
        let stream = Staged::new(builder, self.regions, self.choices.outputs_on_host, name, self.tokens(), self.model.hidden);
        let chunks = self.projection_chunks();
        let elements = chunks.largest() * self.model.hidden;
        let rows = stream.places(builder, self.regions, &format!("{name}_rows"), elements, chunks.count());
        Heads { stream, rows }
    }

    /// Columns of a head group.
    fn group_columns(&self) -> u64 {
        self.choices.head_group * self.head_dim()
    }

    /// Whether values are projected together with queries and keys, and not by head group.
    fn values_first(&self) -> bool {
        self.choices.outputs_on_host || self.choices.head_group == self.model.heads
    }

    /// Normalised and modulated rows, the input of self-attention.
    fn attention_input(&self, builder: &mut Builder, x: View, modulation: View) -> View {
        let normed = self.activation(builder, "normed", x.rows, x.columns);
        builder.layer_norm(x, EPSILON, None, Some((row(modulation, 0), row(modulation, 1))), normed);
        normed
    }

    pub(super) fn self_attention(&self, builder: &mut Builder, x: &mut Residual, modulation: View) -> Attended {
        builder.phase("projections");
        let names = if self.values_first() { &["query", "key", "value"][..] } else { &["query", "key"] };
        let heads = names.iter().map(|name| self.heads(builder, name)).collect();
        let mut heads = self.project(builder, x, modulation, heads).into_iter();
        let (Some(mut q), Some(k), v) = (heads.next(), heads.next(), heads.next()) else { unreachable!("queries and keys were projected") };
        builder.phase("self_attention");
        let coarse = self.model.sparse.map(|_| self.activation(builder, "coarse", self.grid.tiles(TILE).len(), self.model.hidden));
        self.attend(builder, (x, modulation), &mut q, (&k, v.as_ref()), coarse);
        std::iter::once(k).chain(v).for_each(|heads| heads.free(builder));
        Attended { outputs: q, coarse }
    }

    /// Queries and keys, normalised and rotated, and perhaps values, chunk by chunk.
    fn project(&self, builder: &mut Builder, x: &mut Residual, modulation: View, mut heads: Vec<Heads>) -> Vec<Staged> {
        let layers: Vec<_> =
            ["attn1.to_q", "attn1.to_k", "attn1.to_v"].iter().take(heads.len()).map(|name| Linear::new(self, builder, name)).collect();
        let norms = [Some("attn1.norm_q.weight"), Some("attn1.norm_k.weight"), None];
        self.projection_chunks().each(builder, |builder, chunk| {
            let piece = x.read(builder, chunk);
            let normed = self.attention_input(builder, piece.view, modulation);
            x.drop(builder, &piece);
            for ((heads, layer), norm) in heads.iter_mut().zip(&layers).zip(norms) {
                let target = heads.write(builder, chunk);
                layer.apply(builder, normed, Function::Identity, target.view);
                if let Some(norm) = norm {
                    self.normalise_and_rotate(builder, target.view, norm, chunk.first);
                }
                heads.keep(builder, &target);
            }
            builder.free(normed.buffer);
        });
        for layer in layers {
            layer.free(builder);
        }
        let streams = heads.into_iter().map(|heads| {
            heads.rows.free(builder);
            heads.stream
        });
        streams.collect()
    }

    fn normalise_and_rotate(&self, builder: &mut Builder, x: View, norm: &str, first_row: u64) {
        let norm = self.vector(builder, norm);
        builder.rms_norm(x, EPSILON, norm, x);
        let table = self.rotary.row_range(first_row, x.rows);
        builder.compute(Kernel::Rotate { head_dim: self.head_dim() }, vec![x, table], x);
    }

    /// Head group by head group.
    fn attend(
        &self,
        builder: &mut Builder,
        (x, modulation): (&mut Residual, View),
        queries: &mut Staged,
        (keys, values): (&Staged, Option<&Staged>),
        coarse: Option<View>,
    ) {
        let (groups, columns) = (self.model.heads / self.choices.head_group, self.group_columns());
        let elements = self.tokens() * columns;
        let mut query_room = queries.places(builder, self.regions, "query_group", elements, groups);
        let mut key_room = keys.places(builder, self.regions, "key_group", elements, groups);
        let mut value_room = values.map(|values| values.places(builder, self.regions, "value_group", elements, groups));
        let groups_of_one_size = Chunks { rows: self.model.hidden, chunk: columns, sketch: self.sketch };
        groups_of_one_size.each(builder, |builder, group| {
            let first_column = group.first;
            let part = queries.columns(first_column, columns);
            let q = queries.read(builder, &mut query_room, part);
            let k = keys.read(builder, &mut key_room, part);
            let v = match (values, &mut value_room) {
                (Some(values), Some(room)) => Values::Read(values.read(builder, room, part)),
                _ => Values::Own(self.group_values(builder, x, modulation, first_column)),
            };
            self.attend_group(builder, &Group { q: q.view, k: k.view, v: v.view(), first_column }, coarse);
            Staged::drop(builder, &mut key_room, &k);
            queries.keep(builder, &mut query_room, &q);
            match (v, &mut value_room) {
                (Values::Read(piece), Some(room)) => Staged::drop(builder, room, &piece),
                (v, _) => builder.free(v.view().buffer),
            }
        });
        [Some(query_room), Some(key_room), value_room].into_iter().flatten().for_each(|room| room.free(builder));
    }

    /// Values of one head group.
    fn group_values(&self, builder: &mut Builder, x: &mut Residual, modulation: View, first_column: u64) -> View {
        let columns = self.group_columns();
        let values = self.activation(builder, "value", self.tokens(), columns);
        let layer = Linear::outputs(self, builder, "attn1.to_v", first_column, columns);
        self.projection_chunks().each(builder, |builder, chunk| {
            let piece = x.read(builder, chunk);
            let normed = self.attention_input(builder, piece.view, modulation);
            x.drop(builder, &piece);
            layer.apply(builder, normed, Function::Identity, values.row_range(chunk.first, chunk.rows));
            builder.free(normed.buffer);
        });
        layer.free(builder);
        values
    }

    fn attend_group(&self, builder: &mut Builder, group: &Group, coarse: Option<View>) {
        let (head_dim, scale) = (self.head_dim(), self.scale());
        match (self.model.sparse, coarse) {
            (Some(sparse), Some(coarse)) => self.attend_sparsely(builder, group, sparse, coarse),
            _ => builder.compute(Kernel::Attention { head_dim, scale, bias: false }, vec![group.q, group.k, group.v], group.q),
        }
    }

    fn attend_sparsely(&self, builder: &mut Builder, group: &Group, sparse: Sparse, coarse: View) {
        let (head_dim, scale, grid, tile) = (self.head_dim(), self.scale(), self.grid, TILE);
        let tiles = grid.tiles(tile).len();
        let means = [group.q, group.k, group.v].map(|x| {
            let target = self.exact(builder, "tile_means", tiles, x.columns);
            builder.compute(Kernel::TileMeans { grid, tile }, vec![x], target);
            target
        });
        let keep = sparse.keep(tiles);
        let rows = self.choices.head_group * tiles;
        let chosen = builder.matrix(self.regions.device, "chosen_tiles", BufferKind::Workspace, Element::I32, rows, keep);
        let outputs = vec![coarse.column_range(group.first_column, group.q.columns), chosen];
        builder.op(Stream::Compute, Kernel::TileScores { head_dim, scale, keep }, means.to_vec(), outputs);
        for mean in means {
            builder.free(mean.buffer);
        }
        let kernel = Kernel::TileAttention { grid, tile, head_dim, scale };
        builder.compute(kernel, vec![group.q, group.k, group.v, chosen], group.q);
        builder.free(chosen.buffer);
    }

    /// What is left until the feed-forward layer, which is all within rows: the output's projection and cross-attention.
    pub(super) fn after_attention(
        &self,
        builder: &mut Builder,
        x: &mut Residual,
        attended: Attended,
        modulation: View,
        text: (View, View),
    ) {
        builder.phase("output_projection");
        let gate = self.model.sparse.map(|_| Linear::new(self, builder, "to_gate_compress"));
        let output = Linear::new(self, builder, "attn1.to_out.0");
        let (text_q, text_output) = (Linear::new(self, builder, "attn2.to_q"), Linear::new(self, builder, "attn2.to_out.0"));
        let Attended { outputs, coarse } = attended;
        let chunks = self.projection_chunks();
        let mut room = outputs.places(builder, self.regions, "attention_rows", chunks.largest() * self.model.hidden, chunks.count());
        chunks.each(builder, |builder, chunk| {
            builder.phase("output_projection");
            let piece = x.read(builder, chunk);
            let part = outputs.rows(chunk.first, chunk.rows);
            let attended = outputs.read(builder, &mut room, part);
            if let (Some(gate), Some(coarse)) = (&gate, coarse) {
                self.add_coarse(builder, (piece.view, modulation), attended.view, (gate, coarse), chunk.first);
            }
            let projected = self.activation(builder, "projected", chunk.rows, self.model.hidden);
            output.apply(builder, attended.view, Function::Identity, projected);
            Staged::drop(builder, &mut room, &attended);
            builder.compute(Kernel::GatedAdd, vec![piece.view, projected, row(modulation, 2)], piece.view);
            builder.free(projected.buffer);
            self.cross_attention(builder, piece.view, &text_q, &text_output, text);
            x.keep(builder, &piece);
        });
        for layer in [Some(output), gate, Some(text_q), Some(text_output)].into_iter().flatten() {
            layer.free(builder);
        }
        room.free(builder);
        outputs.free(builder);
        if let Some(coarse) = coarse {
            builder.free(coarse.buffer);
        }
    }

    /// Adds the attention between tiles to some rows of outputs.
    fn add_coarse(
        &self,
        builder: &mut Builder,
        (x, modulation): (View, View),
        attended: View,
        (gate, coarse): (&Linear, View),
        first_row: u64,
    ) {
        let normed = self.attention_input(builder, x, modulation);
        let gates = self.activation(builder, "gate", x.rows, x.columns);
        gate.apply(builder, normed, Function::Identity, gates);
        builder.free(normed.buffer);
        let kernel = Kernel::TileAdd { grid: self.grid, tile: TILE, first_row };
        builder.compute(kernel, vec![attended, coarse, gates], attended);
        builder.free(gates.buffer);
    }
}
