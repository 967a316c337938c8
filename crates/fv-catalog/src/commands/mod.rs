//! One file for each group of commands.

pub(crate) mod add_run;
pub(crate) mod build;
pub(crate) mod check;
pub(crate) mod docs;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod lookup;
