//! What must hold of programs of the Wan family, whatever is chosen.

mod choices;
mod legal;
mod options;
mod planned;
#[path = "../common/published.rs"]
mod published;
mod schedule;
mod settled;
mod streaming;
mod summary;
mod weights;

use fv_program::wan::choice::Choices;
use fv_program::wan::geometry::{Model, Request};
use fv_program::wan::lower;
use fv_spec::program::Program;

/// A program that has to be lowered.
fn lowered(model: &Model, request: &Request, choices: &Choices) -> Program {
    lower(model, request, choices).unwrap_or_else(|refused| panic!("{refused:#?}"))
}
