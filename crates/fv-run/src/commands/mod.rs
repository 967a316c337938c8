//! One file for each command.

pub(crate) mod probe;
