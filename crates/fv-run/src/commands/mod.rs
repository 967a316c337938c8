//! One file for each command.

pub(crate) mod plan;
pub(crate) mod probe;
