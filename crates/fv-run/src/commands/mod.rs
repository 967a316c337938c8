//! One file for each command.

pub(crate) mod plan;
pub(crate) mod probe;
pub(crate) mod program;
pub(crate) mod run;
