//! What is known of a model without a rule: which weights are on the device in each stage, and the decoded video. A floor, and
//! never a verdict: every activation is missing, and each component's is named.

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::bytes_of;
use super::parameter::{Group, Parameter, Weights, plain};
use super::residency::{ORDER, Residency, load_stage};
use crate::family::Lowered;
use crate::program::{Builder, sites};
use crate::settings::Settings;

sites! { "output":
    VIDEO "decoded video" Output;
}

/// A component by its counts alone: each block is one tensor, and so is the rest.
fn weights(role: Role, component: &ExpandedComponent) -> Weights {
    let one = |elements: u64| -> Vec<Parameter> { if elements == 0 { Vec::new() } else { vec![plain(elements)] } };
    let count = |count: Option<fv_spec::units::Count>| count.map_or(0, fv_spec::units::Count::get);
    let blocks = [(count(component.block_count), count(component.block_parameter_count))];
    let unlike = component.block_groups.iter().flatten().map(|group| (group.count.get(), group.parameter_count.get()));
    let groups: Vec<Group> = blocks
        .into_iter()
        .chain(unlike)
        .filter(|(count, elements)| *count > 0 && *elements > 0)
        .map(|(count, elements)| Group { count, block: one(elements) })
        .collect();
    let inside = groups.iter().map(|group| group.block.iter().map(|p| p.elements.saturating_mul(group.count)).sum::<u64>()).sum();
    Weights { role, groups, rest: one(component.parameter_count.get().saturating_sub(inside)), buffers: 0 }
}

/// Lowers a request of a model that no rule covers. `why`: the reasons of a family's rule that is there and does not cover it.
///
/// # Errors
/// Where a component's weights cannot be placed either.
pub fn lower(
    model: &Model,
    example: &Example,
    settings: &Settings,
    request: &Request,
    details: bool,
    why: Option<Vec<Reason>>,
) -> Result<Lowered, Vec<Reason>> {
    let component = |role: Role| example.components.get(&role).or_else(|| model.components.get(&role));
    let roles: Vec<Role> = ORDER.into_iter().filter(|role| component(*role).is_some()).collect();
    let mut p = Builder::new(details);
    let all = roles.iter().filter_map(|role| Some(weights(*role, component(*role)?))).collect();
    let mut residency = match (Residency::with_unlike(all, settings, &mut p), &why) {
        (Ok(residency), _) => residency,
        (Err(reasons), why) => return Err(why.iter().flatten().cloned().chain(reasons).collect()),
    };
    load_stage(&mut p, &mut residency);
    let (family, runtime) = (&model.memory_rules, settings.runtime.word());
    let has_rule = why.is_some();
    for reason in why.unwrap_or_else(|| uncovered(model, settings, &roles)) {
        residency.uncovered(reason);
    }
    let with = |stage: StageName| roles.iter().copied().filter(move |role| stage_of(*role) == stage);
    for stage in [StageName::Encoding, StageName::Denoising, StageName::Decoding] {
        p.stage(stage);
        for role in with(stage) {
            residency.enter(&mut p, role);
            p.phase("weights");
            let mut streams = residency.streams(&mut p, role);
            streams.pass(&mut p);
            residency.host_during(stage);
        }
    }
    let vae = component(Role::Vae).zip(settings.component(Role::Vae));
    if let Some((vae, execution)) = vae {
        let channels = vae.geometry.as_ref().and_then(|g| g.get("output_channels")).and_then(serde_json::Value::as_u64).unwrap_or(3);
        p.phase("decoded_video");
        let dims = [
            ("batch", request.batch.into()),
            ("channels", channels),
            ("frames", request.num_frames.into()),
            ("height", request.height.into()),
            ("width", request.width.into()),
        ];
        p.touch(&VIDEO, &dims, bytes_of(execution.precision.computed));
    }
    let lacks = if has_rule { "has no rule for this" } else { "has no rule" };
    residency.note(format!("sizes are a floor: {family} x {runtime} {lacks}, so only weights and the decoded video are counted"));
    residency.finish(p)
}

/// That no rule covers a model under a runtime, what does, and whose activations are missing.
fn uncovered(model: &Model, settings: &Settings, roles: &[Role]) -> Vec<Reason> {
    let (family, runtime) = (&model.memory_rules, settings.runtime.word());
    let covered = crate::family::find(family).map_or(&[] as &[Runtime], |family| family.runtimes());
    let other = model.examples.iter().find(|other| covered.contains(&other.runtime) && other.runtime != settings.runtime);
    let other = other.map(|other| {
        let (id, other) = (&other.id, other.runtime.word());
        format!("no memory rule covers {family} x {runtime}; the family has rules for {other}: try --deployment {id}")
    });
    let each =
        roles.iter().map(|role| format!("no memory rule covers {family} x {runtime}: what the {} computes with is unknown", role.word()));
    other.into_iter().chain(each).map(|text| Reason::new("uncovered-family", text)).collect()
}

/// The stage that a component works in.
fn stage_of(role: Role) -> StageName {
    match role {
        Role::TextEncoder | Role::TextEncoder2 | Role::ImageEncoder => StageName::Encoding,
        Role::Transformer | Role::Transformer2 => StageName::Denoising,
        Role::Vae | Role::AudioVae => StageName::Decoding,
    }
}
