//! What cannot be lowered: each refusal names the field that has to be changed, and what it may be.

use fv_spec::program::{Element, Sampler};

use super::choice::{Choices, Compute};
use super::geometry::{Model, Request};
use super::vae;
use crate::refused::Refused;
use crate::stream;

/// Positions that rotary embedding knows in each direction.
pub const LONGEST: u64 = 1024;

/// Everything that is wrong; empty where the request can be lowered.
pub fn check(model: &Model, request: &Request, choices: &Choices) -> Vec<Refused> {
    let mut refused = sizes(model, request);
    refused.extend(schedule(model, request));
    refused.extend(texts(request));
    refused.extend(formats(choices));
    refused.extend(compute(model, &choices.compute));
    refused.extend(stream::check(&choices.text, "text", model.text.layers));
    let decoder = vae::check(&model.vae, request, &choices.vae, &choices.decode);
    refused.extend(decoder.into_iter().filter(|refused| !refused.code.starts_with("request."))); // sizes are told above
    let experts = if model.boundary.is_some() { 2 } else { 1 };
    if choices.transformers.len() != experts {
        let message = format!("{} transformers have a place, but the model has {experts}", choices.transformers.len());
        refused.push(Refused::new("transformers", "transformers", message));
    }
    for (at, residency) in choices.transformers.iter().enumerate() {
        refused.extend(stream::check(residency, &format!("transformers[{at}]"), model.transformer.blocks));
    }
    refused
}

fn sizes(model: &Model, request: &Request) -> Vec<Refused> {
    let mut refused = Vec::new();
    let [frame_patch, row_patch, column_patch] = model.transformer.patch;
    for (field, pixels, patch) in [("height", request.height, row_patch), ("width", request.width, column_patch)] {
        let unit = model.vae.spatial() * patch;
        let most = unit * LONGEST;
        if pixels == 0 || pixels % unit != 0 || pixels > most {
            let nearest = (pixels.min(most) / unit * unit).max(unit);
            let message = format!("{pixels} pixels; a multiple of {unit} up to {most} is allowed, such as {nearest}");
            refused.push(Refused::new("size", field, message));
        }
    }
    let step = model.vae.temporal();
    let latent_frames = request.frames.saturating_sub(1) / step + 1;
    if request.frames % step != 1 % step || !latent_frames.is_multiple_of(frame_patch) || latent_frames > LONGEST {
        let most = (LONGEST - 1) * step + 1;
        let nearest = (request.frames.saturating_sub(1).min(most) / step) * step + 1;
        let message = format!("{} frames; {step} k + 1 up to {most} are allowed, such as {nearest}", request.frames);
        refused.push(Refused::new("frames", "frames", message));
    }
    refused
}

fn schedule(model: &Model, request: &Request) -> Vec<Refused> {
    let schedule = &request.schedule;
    let mut refused = Vec::new();
    let mut refuse = |field: &str, message: String| refused.push(Refused::new("schedule", format!("schedule.{field}"), message));
    if !(1..=1000).contains(&schedule.steps) {
        refuse("steps", format!("{} steps; 1 to 1000 are allowed", schedule.steps));
    }
    if !(schedule.shift.is_finite() && schedule.shift > 0.0) {
        refuse("shift", format!("{}; a number above 0 is allowed", schedule.shift));
    }
    let stated = schedule.timesteps.len();
    match schedule.sampler {
        Sampler::Dmd if stated as u64 != u64::from(schedule.steps) => {
            refuse("timesteps", format!("{stated} timesteps for {} steps; distribution matching wants one for each", schedule.steps));
        }
        Sampler::Dmd if !schedule.timesteps.is_sorted_by(|a, b| a > b) || schedule.timesteps.iter().any(|at| !(1..=1000).contains(at)) => {
            refuse("timesteps", format!("{:?}; numbers from 1000 to 1 that fall are allowed", schedule.timesteps));
        }
        Sampler::UniPc | Sampler::Euler if stated > 0 => {
            refuse("timesteps", format!("{stated} timesteps are stated, but this sampler derives them from the number of steps"));
        }
        _ => {}
    }
    let experts = if model.boundary.is_some() { 2 } else { 1 };
    for (at, scale) in request.guidance.iter().take(experts).enumerate().filter(|(_, scale)| !(scale.is_finite() && **scale >= 1.0)) {
        let message = format!("{scale}; 1, which is no guidance, or more is allowed");
        refused.push(Refused::new("guidance", format!("guidance[{at}]"), message));
    }
    refused
}

fn texts(request: &Request) -> Vec<Refused> {
    let negative = request.guided().then_some(("negative_tokens", request.negative_tokens));
    let all = [("prompt_tokens", request.prompt_tokens)].into_iter().chain(negative);
    let wrong = all.filter(|(_, tokens)| !(1..=request.text_rows).contains(tokens));
    wrong.map(|(field, tokens)| Refused::new("text", field, format!("{tokens} tokens; 1 to {} are allowed", request.text_rows))).collect()
}

fn formats(choices: &Choices) -> Vec<Refused> {
    let formats = choices.formats;
    let mut refused = Vec::new();
    let mut check = |field: &str, element: Element, allowed: &[Element]| {
        if !allowed.contains(&element) {
            let words: Vec<_> = allowed.iter().map(|element| element.word()).collect();
            let message = format!("{}; {} are allowed", element.word(), words.join(", "));
            refused.push(Refused::new("formats", format!("formats.{field}"), message));
        }
    };
    check("compute", formats.compute, &[Element::F64, Element::F32, Element::Bf16]);
    check("exact", formats.exact, &[Element::F64, Element::F32]);
    check("block_weights", formats.block_weights, &[formats.compute, Element::Fp8, Element::Int8]);
    refused
}

fn compute(model: &Model, compute: &Compute) -> Vec<Refused> {
    let heads = model.transformer.heads;
    let mut refused = Vec::new();
    if compute.head_group == 0 || !heads.is_multiple_of(compute.head_group) {
        let divisors: Vec<_> = (1..=heads).filter(|group| heads.is_multiple_of(*group)).map(|group| group.to_string()).collect();
        let message = format!("{} of {heads} heads; {} are allowed", compute.head_group, divisors.join(", "));
        refused.push(Refused::new("compute.head_group", "compute.head_group", message));
    }
    for (field, rows) in [("feed_forward_chunk", compute.feed_forward_chunk), ("projection_chunk", compute.projection_chunk)] {
        if rows == 0 {
            refused.push(Refused::new("compute.chunk", format!("compute.{field}"), "0 rows; 1 or more are allowed"));
        }
    }
    refused
}
