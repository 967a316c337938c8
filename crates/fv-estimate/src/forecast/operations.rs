//! What one pass of a component computes and moves, counted from its architecture.

use fv_spec::authored::Dtype;

use crate::modules::tiles::spans;
use crate::settings::Tiling;

/// Operations of one pass. A multiplication and an addition are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations {
    /// Linear layers and convolutions.
    pub products: u128,
    /// Attention: both of its products.
    pub attention: u128,
    /// What passes through device memory between products, once: the residual stream of every block, or decoded pixels. How often
    /// it does is a coefficient.
    pub moved_bytes: u128,
    /// The type that is computed in.
    pub dtype: Dtype,
}

/// A stack of equal transformer blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Blocks.
    pub count: u64,
    /// Sequences, each of which attends to itself alone.
    pub batch: u64,
    /// Rows of one that every block computes.
    pub rows: u64,
    /// Weights of a block's linear layers that each of these rows meets.
    pub weights: u64,
    /// Rows beside them, such as those of a text stream or of keys and values alone.
    pub other_rows: u64,
    /// Weights that those meet.
    pub other_weights: u64,
    /// Rows that each row attends to.
    pub keys: u64,
    /// Rows that attend.
    pub queries: u64,
    /// Width of the heads together.
    pub inner: u64,
    /// Width of the residual stream.
    pub hidden: u64,
}

impl Blocks {
    /// Their operations, with activations of `act` bytes.
    pub fn operations(&self, act: u64) -> Operations {
        let [count, batch, rows, weights, other_rows, other_weights, keys, queries, inner, hidden] = [
            self.count,
            self.batch,
            self.rows,
            self.weights,
            self.other_rows,
            self.other_weights,
            self.keys,
            self.queries,
            self.inner,
            self.hidden,
        ]
        .map(u128::from);
        let all = count.saturating_mul(batch);
        let linear = rows.saturating_mul(weights).saturating_add(other_rows.saturating_mul(other_weights));
        Operations {
            products: all.saturating_mul(linear).saturating_mul(2),
            attention: all.saturating_mul(queries.saturating_mul(keys)).saturating_mul(inner).saturating_mul(4),
            moved_bytes: all.saturating_mul(rows.saturating_mul(hidden)).saturating_mul(act.into()),
            dtype: computed(act),
        }
    }
}

/// The usual type of so many bytes.
pub fn computed(act: u64) -> Dtype {
    if act == 4 { Dtype::Fp32 } else { Dtype::Bf16 }
}

/// A convolutional decoder: operations for each pixel of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decoder {
    /// Of the first frame, less what later ones have too much of; may be negative.
    pub first: i64,
    /// Of each frame after it.
    pub each: i64,
}

impl Decoder {
    /// Decoding of `frames` x `height` x `width` pixels, tile by tile where it is tiled.
    pub fn operations(&self, batch: u64, [height, width, frames]: [u64; 3], tiling: Option<&Tiling>, act: u64) -> Operations {
        let side = |pixels: u64, axis: usize| match tiling {
            Some(tiling) if height > tiling.tile[0].into() || width > tiling.tile[1].into() => {
                spans(pixels, tiling.tile[axis].into(), tiling.stride[axis].into()).into_iter().map(|(size, many)| size * many).sum()
            }
            _ => pixels,
        };
        let area = u128::from(side(height, 0)).saturating_mul(side(width, 1).into()).saturating_mul(batch.into());
        let each = i128::from(self.each);
        let of_pixel = (i128::from(self.first) + each * (i128::from(frames) - 1)).max(each);
        Operations {
            products: area.saturating_mul(of_pixel.unsigned_abs()),
            attention: 0,
            moved_bytes: area.saturating_mul(frames.into()).saturating_mul(act.into()),
            dtype: computed(act),
        }
    }
}
