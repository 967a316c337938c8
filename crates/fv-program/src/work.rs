//! What operations cost: arithmetic of matrix units, and bytes that have to be moved at least.

use fv_spec::program::{Element, Kernel, Op, View};

/// The work of one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// Multiplications and additions of matrix products, and how what is multiplied is stored.
    pub matrix: Option<(Element, u128)>,
    /// The same within attention.
    pub attention: u128,
    /// Bytes of operands, each read or written once.
    pub bytes: u128,
}

/// The work of an operation, by its operands. Those that are missing count nothing.
pub fn work(op: &Op) -> Work {
    let attention = attention(op);
    let moved = || op.reads.iter().chain(&op.writes).map(view_bytes).sum();
    let bytes = match op.kernel {
        // Rows of a table are read; its ids are few.
        Kernel::Read { .. } | Kernel::Lookup { .. } => op.writes.iter().map(view_bytes).sum(),
        _ => moved(),
    };
    Work { matrix: matrix(op), attention, bytes }
}

fn view_bytes(view: &View) -> u128 {
    count(view) * u128::from(view.element.bytes())
}

fn count(view: &View) -> u128 {
    u128::from(view.rows) * u128::from(view.columns)
}

/// `2 m n k`: for each number that is written, as many multiplications and additions as a row of weights is long.
fn matrix(op: &Op) -> Option<(Element, u128)> {
    let (Kernel::Product { .. } | Kernel::Convolve { .. }) = op.kernel else { return None };
    let (x, weights, target) = (op.reads.first()?, op.reads.get(1)?, op.writes.first()?);
    Some((x.element, 2 * count(target) * u128::from(weights.columns)))
}

/// Scores and their product with values, `2 + 2` for each pair of rows and feature.
fn attention(op: &Op) -> u128 {
    let rows = |at: usize| op.reads.get(at).map_or(0, |view| u128::from(view.rows));
    let queries = op.reads.first().map_or(0, count);
    match op.kernel {
        Kernel::Attention { .. } | Kernel::TileScores { .. } => 4 * queries * rows(1),
        // Each token of a tile meets all places of the chosen tiles.
        Kernel::TileAttention { tile, .. } => {
            let chosen = op.reads.get(3).map_or(0, |view| u128::from(view.columns));
            4 * queries * chosen * u128::from(tile.frames) * u128::from(tile.height) * u128::from(tile.width)
        }
        _ => 0,
    }
}
