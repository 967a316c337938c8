//! The policy `optimal`: the fastest way to run the blocks of one component within a budget of device and of host memory.
//!
//! ```text
//! configurations ──┐
//! budgets ─────────┴► solve ──► configuration + residency + time
//! ```
//!
//! A [`Configuration`] is one way to compute: what it needs in memory beside blocks, and how long a block takes, is copied and is
//! read. For each of them [`solve`](mod@solve) knows how many blocks can live where, [`spread`] which ones, and [`timeline`] how long
//! that takes. Nothing here knows a model: lowering makes the configurations.
//!
//! Plans are in a total order: forecast in buckets of one percent ([`bucket`]), effect on the output, bytes moved, place in the list
//! of configurations. What fits a budget fits every larger one, and a placement does not depend on the budget, so more memory
//! never makes a forecast slower.

pub mod bucket;
pub mod instance;
pub mod solve;
pub mod spread;
pub mod timeline;

pub use instance::{Blocks, Budgets, Configuration, SetUp, Staged};
pub use solve::{Least, Search, Solution, least, promise, solve};
