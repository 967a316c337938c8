//! Op programs of our own runtime, `fv-run`: pure, no I/O.
//!
//! ```text
//! model + request + choices ──► wan::lower ──► Program ──► arena::pack ──► offsets ──► check, simulate, execute
//! ```
//!
//! * [`build`]: what lowering writes programs with.
//! * [`ops`]: kernels with their operands in order.
//! * [`stream`]: weights where a plan wants them, and how they come to the device.
//! * [`refused`]: why something cannot be lowered.
//! * [`wan`]: the family that is covered.
//! * [`order`]: which operations are over before others begin.
//! * [`arena`]: where buffers lie.
//! * [`check`]: refuses bad programs.
//! * [`work`], [`rates`], [`simulate`], [`trace`]: what operations cost, how long a program takes, and a picture of it.
//! * [`synthetic`]: made-up programs for tests and benchmarks.
//! * [`optimal`]: the fastest configuration and placement within budgets.

pub mod arena;
pub mod build;
pub mod check;
pub mod ops;
pub mod optimal;
pub mod order;
pub mod rates;
pub mod refused;
pub mod simulate;
pub mod stream;
pub mod synthetic;
pub mod trace;
pub mod wan;
pub mod work;
