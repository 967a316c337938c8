//! The estimator behind strings of JSON: for browsers and Node, and natively for comparison.
//!
//! Models, devices and coefficients are read once and named by a handle from then on; a question names them and brings the rest as
//! JSON. Every answer is JSON: the one that `fv-catalog --format json` writes, or `{"error": {code, message, field, errors}}`. Nothing
//! panics on any input.
//!
//! * [`session`]: what was read, by handle.
//! * [`arguments`]: questions read, with everything that is wrong with them.
//! * [`answers`]: a question answered.
//! * [`exports`]: the same for JavaScript.

pub mod answers;
pub mod arguments;
pub mod exports;
pub mod grid;
pub mod problem;
#[cfg(feature = "whole")]
pub mod questions;
pub mod session;

#[cfg(feature = "whole")]
pub use exports::call;
pub use session::Session;
