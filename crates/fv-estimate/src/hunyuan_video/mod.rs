//! HunyuanVideo, text to video.
//!
//! * [`geometry`]: what the rules read of a model, and its stored tensors.
//! * [`transformer`] and [`vae`]: its models under diffusers; `diffusers` is a whole request, `component` one of them on its own.

mod component;
mod diffusers;
pub mod geometry;
pub mod transformer;
pub mod vae;

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::Reason;
use fv_spec::request::Request;

use crate::family::{Family, Lowered};
use crate::modules::standalone::{Asked, Pass, Why};
use crate::settings::Settings;

/// The rules of the family.
#[derive(Debug)]
pub struct HunyuanVideo;

impl Family for HunyuanVideo {
    fn id(&self) -> &'static str {
        "hunyuan_video"
    }

    fn runtimes(&self) -> &'static [Runtime] {
        &[Runtime::Diffusers]
    }

    fn lower(
        &self,
        model: &Model,
        example: &Example,
        settings: &Settings,
        request: &Request,
        details: bool,
    ) -> Option<Result<Lowered, Vec<Reason>>> {
        (settings.runtime == Runtime::Diffusers).then(|| diffusers::lower(model, example, settings, request, details))
    }

    fn pass(&self, _: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
        component::read(component, role, asked)
    }
}
