//! What kernels mean: every kernel of a program in plain code, in double precision where an operand is, in single precision
//! otherwise. Results depend on the rows and columns that they are made of and on nothing else: not on which other rows, heads or
//! frames are computed by the same operation.
//!
//! Operands are read as a whole before results are written, so targets may be operands.

#![cfg_attr(test, expect(clippy::float_cmp, reason = "results that are exact are stated exactly"))]

mod attention;
mod call;
mod dense;
mod latents;
mod matrix;
mod norms;
mod number;
mod run;
mod sampling;
pub mod storage;
mod tiles;
mod video;

use fv_spec::program::{Element, Kernel};
use thiserror::Error;

pub use matrix::Operand;
pub use sampling::{Step, Update};

use call::Call;

/// What does not fit together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Mismatch {
    /// An operand's extents.
    #[error("operand {operand} is {found}, where {expected} is needed")]
    Extents {
        /// Such as `read 1`.
        operand: String,
        /// Rows and columns.
        found: String,
        /// Rows and columns, `any` where any number will do.
        expected: String,
    },
    /// Too few operands or too many.
    #[error("operands are {found}, where {expected} are needed")]
    Count {
        /// How many there are.
        found: String,
        /// How many there should be.
        expected: String,
    },
    /// A number that stands for something that does not exist.
    #[error("tile {found} was chosen of {tiles}")]
    Tile {
        /// The number.
        found: String,
        /// How many there are.
        tiles: usize,
    },
    /// It is the executor's part.
    #[error("this operation only moves bytes")]
    Movement,
}

/// What an operation writes to one target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Written {
    /// The target's rows without gaps, as it stores numbers.
    pub bytes: Vec<u8>,
    /// Whether something in it is not a number that was one, or was computed.
    pub has_nan: bool,
}

/// What an operation writes to its targets. `step` is the sampler's; only sampling and timesteps look at it.
pub fn compute(kernel: &Kernel, step: &Step, reads: &[Operand<'_>], writes: &[Operand<'_>]) -> Result<Vec<Written>, Mismatch> {
    let call = Call { reads, writes };
    if reads.iter().chain(writes).any(|operand| operand.element == Element::F64) {
        run::kernel::<f64>(kernel, step, &call)
    } else {
        run::kernel::<f32>(kernel, step, &call)
    }
}
