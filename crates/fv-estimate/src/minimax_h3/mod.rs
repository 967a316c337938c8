//! The family of MiniMax H3: the released model, `FastH3` and its trimmed form.
//!
//! * [`geometry`] and [`weights`]: a model of the catalog, read into what the rules need.
//! * [`model`]: a model as a deployment loads it; [`diffusers`]: a request through diffusers' modular pipeline.
//! * [`fastvideo`]: FastVideo with the checkpoint of its notes, [`fastvideo_plain`]: with plain ones; [`freevideo`]: its planner's table,
//!   [`planned`]: its planner's verdict.
//! * [`diffusers_dit`], [`video_vae`], [`audio_vae`], [`qwen`]: the models that diffusers runs; [`component`]: each on its own.

pub mod audio_vae;
pub mod component;
pub mod diffusers;
pub mod diffusers_dit;
pub mod fastvideo;
pub mod fastvideo_plain;
pub mod freevideo;
pub mod geometry;
pub mod model;
pub mod planned;
pub mod qwen;
#[cfg(test)]
mod simulated;
pub mod video_vae;
pub mod weights;

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model, RulesFile};
use fv_spec::estimate::Reason;
use fv_spec::request::Request;

use crate::family::{ByPlan, Family, Lowered};
use crate::modules::standalone::{Asked, Pass, Why};
use crate::settings::Settings;

/// The rules of the family.
#[derive(Debug)]
pub struct MiniMaxH3;

impl Family for MiniMaxH3 {
    fn id(&self) -> &'static str {
        "minimax_h3"
    }

    fn runtimes(&self) -> &'static [Runtime] {
        &[Runtime::Diffusers, Runtime::FastVideo, Runtime::FreeVideo]
    }

    fn lower(
        &self,
        model: &Model,
        example: &Example,
        settings: &Settings,
        request: &Request,
        details: bool,
    ) -> Option<Result<Lowered, Vec<Reason>>> {
        Some(match settings.runtime {
            Runtime::Diffusers => model::H3::read(model, example).and_then(|h3| diffusers::lower(&h3, settings, request, details)),
            Runtime::FastVideo => model::H3::read(model, example).and_then(|h3| fastvideo::lower(model, &h3, settings, request, details)),
            Runtime::FreeVideo => {
                model::H3::read(model, example).and_then(|h3| freevideo::lower(h3.dit.blocks, settings, request, details))
            }
            Runtime::FvRun => return None,
        })
    }

    fn by_plan(
        &self,
        model: &Model,
        example: &Example,
        settings: &Settings,
        request: &Request,
        _rules: &RulesFile,
    ) -> Option<Box<dyn ByPlan>> {
        planned::by_plan(model, example, settings, request)
    }

    fn pass(&self, model: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
        component::read(model, component, role, asked)
    }
}
