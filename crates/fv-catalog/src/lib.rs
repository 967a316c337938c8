//! Reads, checks, resolves and compiles the authored catalog.
//!
//! The flow is one way: [`sources`] reads texts, [`yaml`] makes trees that know their bytes, [`shape`] checks them
//! against JSON Schemas, [`check`] checks what they mean, and what is sound is compiled. Everything that is wrong
//! is a [`finding::Finding`]; [`output`] renders findings.

pub mod accuracy;
pub mod check;
pub mod codes;
mod compile;
pub mod credential;
pub mod edit;
pub mod finding;
pub mod import_log;
pub mod inspect;
pub mod output;
pub mod prices;
pub mod shape;
pub mod sources;
pub mod write;
pub mod yaml;
