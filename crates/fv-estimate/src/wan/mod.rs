//! The Wan family: 2.1 and 2.2, text- and image-conditioned, dense and sparse, one expert or two.
//!
//! * [`model`]: a model of the catalog, read into what the rules need; [`geometry`] and [`weights`] are its parts.
//! * [`diffusers`]: a request through diffusers' pipelines; [`diffusers_dit`] and [`diffusers_vae`] are its models.
//! * [`fv_run`]: a request as our own runtime's planner lays it out.
//! * [`fastvideo`]: a request through FastVideo's; [`fastvideo_dit`] is its transformer, [`fastvideo_vae`] what its VAE does otherwise.
//! * [`component`]: its components on their own.

pub mod component;
pub mod diffusers;
pub mod diffusers_dit;
pub mod diffusers_vae;
pub mod fastvideo;
pub mod fastvideo_dit;
pub mod fastvideo_vae;
pub mod fv_run;
pub mod geometry;
pub mod model;
#[cfg(test)]
pub(crate) mod simulated;
pub mod weights;

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::Reason;
use fv_spec::request::Request;
use geometry::{Latent, Vae};

use crate::family::{Family, Lowered};
use crate::modules::standalone::{Asked, Pass, Why};
use crate::modules::tiles::Tiles;
use crate::settings::{Settings, Tiling};

/// The rules of the family.
#[derive(Debug)]
pub struct Wan;

impl Family for Wan {
    fn id(&self) -> &'static str {
        "wan"
    }

    fn runtimes(&self) -> &'static [Runtime] {
        &[Runtime::Diffusers, Runtime::FastVideo, Runtime::FvRun]
    }

    fn lower(
        &self,
        model: &Model,
        example: &Example,
        settings: &Settings,
        request: &Request,
        details: bool,
    ) -> Option<Result<Lowered, Vec<Reason>>> {
        let lower = match settings.runtime {
            Runtime::Diffusers => diffusers::lower,
            Runtime::FastVideo => fastvideo::lower,
            // Where there is a program, all figures are its plan's.
            Runtime::FreeVideo | Runtime::FvRun => return None,
        };
        Some(model::Wan::read(model, example).and_then(|wan| lower(&wan, settings, request, details)))
    }

    // Its planner is no part of a browser's first view.
    #[cfg(feature = "all-families")]
    fn by_plan(
        &self,
        model: &Model,
        _example: &Example,
        settings: &Settings,
        request: &Request,
        rules: &fv_spec::compiled::RulesFile,
    ) -> Option<Box<dyn crate::family::ByPlan>> {
        fv_run::by_plan(model, settings, request, rules)
    }

    fn pass(&self, model: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
        component::read(model, component, role, asked)
    }
}

/// Whether a latent is larger than a tile: a smaller one is not tiled.
pub(crate) fn tiled(vae: &Vae, latent: Latent, tiling: &Tiling) -> bool {
    Tiles::several([latent.height, latent.width], tiling, vae.spatial)
}
