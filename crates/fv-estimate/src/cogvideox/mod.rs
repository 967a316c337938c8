//! CogVideoX (2B, 5B, 5B image to video, 1.5) under diffusers.
//!
//! * [`dit`]: the transformer; [`vae`]: the autoencoder.
//! * [`diffusers`]: a request through `CogVideoXPipeline`; [`component`]: its components on their own.

pub mod component;
pub mod diffusers;
pub mod dit;
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
pub struct CogVideoX;

impl Family for CogVideoX {
    fn id(&self) -> &'static str {
        "cogvideox"
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
        (settings.runtime == Runtime::Diffusers)
            .then(|| diffusers::Parts::read(model, example).and_then(|parts| parts.lower(settings, request, details)))
    }

    fn pass(&self, _: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why> {
        component::read(component, role, asked)
    }
}
