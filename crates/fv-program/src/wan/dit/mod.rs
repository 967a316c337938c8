//! The transformer: from noise and prompt embeddings to a latent.
//!
//! ```text
//! load ──► setup ──────────────► step x (n - 1) ──► last step ──► latent (and the sampler's state, for the second expert)
//!          rotary table, latent,  time embedding
//!          text, [keys and        patches ─► blocks ─► head, with the prompt and, with guidance, without
//!          values of the text]    guidance, sampler
//! ```
//!
//! # What a plan's choices save
//!
//! With u the bytes of all tokens' features, a block needs at its peak, in self-attention, 3 u + v: the residual stream, all
//! queries and all keys, and v for the values of one head group. Why:
//!
//! * Wan normalises queries and keys over all heads before it rotates them. All heads of both must be there before the first head
//!   can be attended to, whatever the group. They are normalised and rotated where they lie, so there are no rotated copies.
//! * `head_group` saves what comes after: of the values only one group's are alive, `v = u * group / heads`; with sparse attention
//!   the same holds for means and chosen tiles. Outputs cost nothing: they take the place of their queries. Each group projects
//!   its values by itself, for which the rows are normalised again.
//! * `projection_chunk` bounds the normalised rows, and everything between attention and feed-forward: the output's projection,
//!   the gate of sparse attention and all of cross-attention are computed chunk by chunk, one after the other.
//! * `feed_forward_chunk` bounds the inner features of the feed-forward layer.
//! * `outputs_on_host` keeps what attention reads and writes (queries, keys, values; outputs in place of queries) in host memory:
//!   2 u + v become three head groups that are computed with, three that come next, and chunks. Only with this choice does the
//!   head group bound queries and keys. It moves 8 u for each block.
//! * `residual_on_host` saves u for each prediction, and moves 5 u for each block, and u more for each head group where values are
//!   projected by group.
//! * `text_keys`: kept, they cost `2 * text_rows * hidden` for each block and prediction for the time of all steps, and save the
//!   two products that make them in every step. Padding is attended to as published, so all rows count.
//! * `paired_guidance` moves weights once for both predictions, and costs a second residual stream; otherwise the first prediction
//!   waits for the second one.

mod attention;
mod block;
mod ends;
mod steps;
pub mod weights;

use fv_spec::program::View;
use fv_spec::program::kernel::Grid;

use super::choice::Compute;
use super::geometry::Dit;
use super::staged::{Piece, Places, Staged};
use crate::build::Builder;
use crate::ops::{Chunk, Chunks};
use crate::stream::{Regions, Weights};

pub(super) use steps::{Expert, Sampling, lower};

/// Added to variances and mean squares.
const EPSILON: f64 = 1e-6;

/// Tokens of a tile of sparse attention.
const TILE: Grid = Grid { frames: 4, height: 4, width: 4 };

/// What all operations of a transformer share.
struct Transformer<'a> {
    model: &'a Dit,
    choices: Compute,
    regions: Regions,
    weights: Weights,
    /// Extents of the latent.
    latent: Grid,
    /// Extents of the tokens.
    grid: Grid,
    /// Cosines and sines of all tokens.
    rotary: View,
    /// Whether one chunk and one head group stand for all others of the same size.
    sketch: bool,
}

impl Transformer<'_> {
    fn tokens(&self) -> u64 {
        self.grid.len()
    }

    fn head_dim(&self) -> u64 {
        self.model.hidden / self.model.heads
    }

    /// What scores are multiplied by.
    #[expect(clippy::cast_precision_loss, reason = "a head has few features")]
    fn scale(&self) -> f64 {
        1.0 / (self.head_dim() as f64).sqrt()
    }

    fn patch(&self) -> Grid {
        let [frames, height, width] = self.model.patch;
        Grid { frames, height, width }
    }

    /// Chunks of tokens for projections.
    fn projection_chunks(&self) -> Chunks {
        Chunks { rows: self.tokens(), chunk: self.choices.projection_chunk, sketch: self.sketch }
    }

    /// Chunks of tokens for the feed-forward layer.
    fn feed_forward_chunks(&self) -> Chunks {
        Chunks { chunk: self.choices.feed_forward_chunk, ..self.projection_chunks() }
    }

    /// A residual stream.
    fn residual(&self, builder: &mut Builder) -> Residual {
        let on_host = self.choices.residual_on_host;
        let stream = Staged::new(builder, self.regions, on_host, "residual", self.tokens(), self.model.hidden);
        let rows = self.projection_chunks().largest().max(self.feed_forward_chunks().largest());
        let places = stream.places(builder, self.regions, "residual_rows", rows * self.model.hidden, 2);
        Residual { stream, places }
    }

    fn activation(&self, builder: &mut Builder, name: &str, rows: u64, columns: u64) -> View {
        builder.activation(self.regions.device, name, rows, columns)
    }

    fn exact(&self, builder: &mut Builder, name: &str, rows: u64, columns: u64) -> View {
        builder.exact(self.regions.device, name, rows, columns)
    }

    /// A bias or a norm's weight of the block that was entered.
    fn vector(&self, builder: &Builder, name: &str) -> View {
        self.weights.tensor(builder, name)
    }

    /// A linear layer outside blocks.
    fn root_linear(&self, builder: &Builder, name: &str) -> (View, Option<View>) {
        (self.weights.root(builder, &format!("{name}.weight")), Some(self.weights.root(builder, &format!("{name}.bias"))))
    }
}

/// The residual stream of one prediction.
struct Residual {
    stream: Staged,
    places: Places,
}

impl Residual {
    fn read(&mut self, builder: &mut Builder, chunk: Chunk) -> Piece {
        let part = self.stream.rows(chunk.first, chunk.rows);
        self.stream.read(builder, &mut self.places, part)
    }

    fn write(&mut self, builder: &mut Builder, chunk: Chunk) -> Piece {
        let part = self.stream.rows(chunk.first, chunk.rows);
        self.stream.write(builder, &mut self.places, part)
    }

    fn keep(&mut self, builder: &mut Builder, piece: &Piece) {
        self.stream.keep(builder, &mut self.places, piece);
    }

    fn drop(&mut self, builder: &mut Builder, piece: &Piece) {
        Staged::drop(builder, &mut self.places, piece);
    }

    fn free(self, builder: &mut Builder) {
        self.places.free(builder);
        self.stream.free(builder);
    }
}

/// A row of a modulation.
fn row(modulation: View, at: u64) -> View {
    modulation.row_range(at, 1)
}
