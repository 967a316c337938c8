//! One file for each group of commands.

pub(crate) mod accuracy;
pub(crate) mod add_run;
pub(crate) mod ask;
pub(crate) mod build;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod docs;
pub(crate) mod estimate;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod lookup;
pub(crate) mod plan;
pub(crate) mod questions;
pub(crate) mod serve;
pub(crate) mod sweep;
