//! What the programs share. `fv-catalog` and `fv-run` know nothing of each other; both plan, and a plan asked for with the same
//! arguments is the same plan.
//!
//! * [`stop`]: why a command ends early, and with which exit code.
//! * [`terminal`]: colour, width, completions. [`mod@write`]: files that are whole or not there.
//! * [`lookup`]: models and devices by name.
//! * [`plan`]: the commands `plan` and `grid`, from arguments to text.

pub mod lookup;
pub mod plan;
pub mod stop;
pub mod terminal;
pub mod write;
