//! Wire types and units: what people author, what is compiled, and the words both use.
//!
//! No I/O and no arithmetic beyond units. Files are in `snake_case`; every size says its unit in its name or type.
//!
//! * [`authored`]: the YAML manifests under `catalog/`.
//! * [`compiled`]: the versioned JSON that `fv-catalog build` writes and everything else reads.
//! * [`request`], [`estimate`]: what is asked of the estimator and what it answers (JSON in camelCase).
//! * [`questions`]: what is answered beside a single estimate.
//! * [`plan`]: how a request is executed, why, and why it is refused.
//! * [`program`]: every operation of a request on our own runtime.
//! * [`probe`]: what a machine was found to have.
//! * [`family`]: what each memory-rule family requires of its components.
//! * [`units`]: counts and capacities.

#[macro_use]
mod words;

pub mod authored;
pub mod compiled;
pub mod estimate;
pub mod family;
pub mod forecast;
pub mod plan;
pub mod probe;
pub mod program;
pub mod questions;
pub mod request;
#[cfg(feature = "schema")]
pub mod schema;
pub mod units;
