//! What diffusers' pipelines have in common.

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::Reason;
use fv_spec::request::Request;

use super::maps::Map;
use super::residency::Residency;
use crate::program::{Builder, sites};
use crate::settings::{Attention, Settings};

sites! { "diffusers.pipeline":
    POSTPROCESSED "decoded video in [0, 1]" Output;
}

/// The components of a model that has these and no others, as `example` loads them.
///
/// # Errors
/// Which one is missing, or is not covered.
pub fn components<'a, const N: usize>(
    model: &'a Model,
    example: &'a Example,
    family: &str,
    roles: [Role; N],
) -> Result<[&'a ExpandedComponent; N], Vec<Reason>> {
    if let Some(other) = model.components.keys().chain(example.components.keys()).find(|role| !roles.contains(role)) {
        let text = format!("the rules for {family} do not cover a {}", other.word());
        return Err(vec![Reason::new("uncovered-component", text)]);
    }
    let component = |role: Role| example.components.get(&role).or_else(|| model.components.get(&role));
    let found: Vec<&ExpandedComponent> = roles.iter().filter_map(|role| component(*role)).collect();
    found.try_into().map_err(|_| {
        let missing = roles.iter().find(|role| component(**role).is_none());
        vec![Reason::new("missing-component", format!("the model has no {}", missing.map_or("component", |role| role.word())))]
    })
}

/// What the rules of text-to-video pipelines leave out: images, and attention with materialised scores.
pub fn uncovered(residency: &mut Residency<'_>, settings: &Settings, request: &Request, family: &str) {
    if request.references > 0 {
        let text = format!("no rule covers {family} with an image");
        residency.uncovered(Reason::new("uncovered-request", text));
    }
    if settings.attention == Attention::Math {
        let text = format!("no rule covers {family} with attention that keeps its scores");
        residency.uncovered(Reason::new("uncovered-attention", text));
    }
}

/// `VideoProcessor.postprocess_video`: one video at a time is halved, moved and cut off, each a new tensor.
pub fn postprocess(p: &mut Builder, video: Map) {
    p.phase("postprocess");
    let one = Map { batch: 1, ..video };
    let halved = one.alloc(p, &POSTPROCESSED);
    let moved = one.alloc(p, &POSTPROCESSED);
    p.release(halved);
    let clamped = one.alloc(p, &POSTPROCESSED);
    p.release(moved);
    p.release(clamped);
}
