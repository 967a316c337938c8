//! The family of MiniMax H3: the released model, `FastH3` and its trimmed form.
//!
//! * [`geometry`] and [`weights`]: a model of the catalog, read into what the rules need.
//! * [`diffusers_dit`], [`video_vae`], [`audio_vae`], [`qwen`]: the models that diffusers runs; [`component`]: each on its own.

pub mod audio_vae;
pub mod component;
pub mod diffusers_dit;
pub mod geometry;
pub mod qwen;
#[cfg(test)]
mod simulated;
pub mod video_vae;
pub mod weights;

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::Reason;
use fv_spec::request::Request;

use crate::family::{Family, Lowered};
use crate::modules::standalone::{Asked, Pass, Why};
use crate::settings::Settings;

/// The rules of the family.
#[derive(Debug)]
pub struct MiniMaxH3;

impl Family for MiniMaxH3 {
    fn id(&self) -> &'static str {
        "minimax_h3"
    }

    fn lower(&self, _: &Model, _: &Example, _: &Settings, _: &Request, _: bool) -> Option<Result<Lowered, Vec<Reason>>> {
        None
    }

    fn pass(&self, model: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
        component::read(model, component, role, asked)
    }
}
