//! Tiny models, executed from their op programs, against what diffusers and transformers compute from the same weights in double
//! precision: `tests/golden`. `cargo test -p fv-run --test execute -- --nocapture` shows the errors.

#![expect(clippy::print_stdout, reason = "errors are worth a look")]
#![expect(clippy::float_cmp, reason = "whole numbers are compared exactly")]

mod faults;
mod files;
mod parts;
mod pipelines;
mod placements;
mod tiny;
