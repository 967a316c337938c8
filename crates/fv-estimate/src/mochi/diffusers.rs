//! A whole request through diffusers' `MochiPipeline` (0.42.1).
//!
//! What the pipeline keeps between stages follows `pipeline_mochi.py`: guidance is one forward pass over both prompts, and the
//! prediction is widened to fp32 before it.

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::geometry::{Dit, Latent};
use super::transformer::Forward;
use super::vae::{self, Coder};
use crate::family::Lowered;
use crate::modules::encoder::{self, Encoder};
use crate::modules::maps::Map;
use crate::modules::parameter::Weights;
use crate::modules::pipeline::{self, Guided};
use crate::modules::residency::{Residency, bias_workspace, load_stage, product_workspace};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, sites};
use crate::settings::{Guidance, Settings};

sites! { "mochi.diffusers.pipeline":
    PROMPT "prompt embeddings" Activation;
    LATENTS "latents" Activation;
    MODEL_INPUT "model input" Activation;
    PREDICTION "prediction of the step before" Activation;
    GUIDED "guided prediction" Activation;
    SCHEDULER "scheduler temporaries" Activation;
    DECODED "decoded videos" Output;
}

/// Lowers a request.
#[expect(clippy::too_many_lines, reason = "one request, stage by stage")]
pub(super) fn lower(
    model: &Model,
    example: &Example,
    settings: &Settings,
    request: &Request,
    details: bool,
) -> Result<Lowered, Vec<Reason>> {
    let component = |role: Role| pipeline::component(model, example, role);
    let geometry = |text: String| vec![Reason::new("missing-geometry", text)];
    let dit = Dit::read(component(Role::Transformer)?).map_err(geometry)?;
    vae::check(component(Role::Vae)?).map_err(geometry)?;
    // The pipeline gives the encoder the mask of the prompt's padding.
    let t5 = Encoder { masked: true, ..Encoder::read(component(Role::TextEncoder)?, 0).map_err(geometry)? };
    let weights = vec![Weights::blocks(Role::TextEncoder, encoder::tensors(&t5)), dit.weights(), Weights::whole(Role::Vae, vae::tensors())];
    let mut p = Builder::new(details);
    let mut residency = Residency::new(weights, settings, &mut p)?;
    if request.references > 0 {
        residency.uncovered(Reason::new("uncovered-reference", "the rules cover Mochi from text alone"));
    }
    let act = |role: Role| settings.component(role).map_or(2, |c| bytes_of(c.precision.computed));
    let (batch, tokens) = (u64::from(request.batch), u64::from(request.text_tokens));
    let latent = Latent::of(batch, [request.height, request.width, request.num_frames].map(u64::from));
    let guided = settings.guidance != Guidance::None;
    let together = Latent { batch: if guided { 2 * batch } else { batch }, ..latent };

    load_stage(&mut p, &mut residency);

    p.stage(StageName::Encoding);
    residency.enter(&mut p, Role::TextEncoder);
    p.phase("libraries");
    // T5 has no biases, so the workspace of products with a bias comes with the transformer.
    let library = p.list();
    product_workspace(&mut p, library);
    let text = act(Role::TextEncoder);
    let embed = |videos: u64| [("batch", videos), ("tokens", tokens), ("width", t5.hidden)];
    let mut embeds = Vec::new();
    for _ in 0..if guided { 2 } else { 1 } {
        let states = residency.encode(&mut p, Role::TextEncoder, &t5, batch, tokens)?;
        p.phase("prompt_embeddings");
        let repeated = p.alloc(&PROMPT, &embed(batch), text);
        p.release(states);
        embeds.push(repeated);
    }
    residency.host_during(StageName::Encoding);
    p.phase("latents");
    let latents = p.alloc(&LATENTS, &latent.dims(), text);
    if guided {
        // Both prompts in one tensor; the name of the negative one stays.
        let joined = p.alloc(&PROMPT, &embed(2 * batch), text);
        let prompt = std::mem::replace(&mut embeds[0], joined);
        p.release(prompt);
    }

    p.stage(StageName::Denoising);
    residency.enter(&mut p, Role::Transformer);
    p.phase("libraries");
    bias_workspace(&mut p, library);
    residency.host_during(StageName::Denoising);
    let forward = Forward {
        dit,
        latent: together,
        text_tokens: tokens,
        valid_tokens: tokens,
        act: act(Role::Transformer),
        attention: settings.attention,
    };
    let mut streams = residency.streams(&mut p, Role::Transformer);
    streams.prime(&mut p);
    p.phase("model_input");
    let input = guided.then(|| p.alloc(&MODEL_INPUT, &together.dims(), text));
    let prediction = p.alloc(&PREDICTION, &latent.dims(), FP32);
    // The names of both halves hold the widened prediction of the step before.
    let halves = guided.then(|| p.alloc(&PREDICTION, &together.dims(), FP32));
    p.repeat_sampled(request.num_inference_steps.into(), 2, 0, |p| {
        p.phase("model_input");
        if let Some(input) = input {
            let next = p.alloc(&MODEL_INPUT, &together.dims(), text);
            p.replace(input, next);
        }
        let y = forward.emit(p, &mut streams);
        let (all, one) = (together.dims(), latent.dims());
        // Without guidance the one prediction stays.
        let before = halves.map_or((prediction, None), |halves| (halves, Some(prediction)));
        Guided { sites: [&PREDICTION, &GUIDED], all: &all, one: &one, before }.step(p, y, forward.act);
        p.phase("scheduler");
        let sample = (text != FP32).then(|| p.alloc(&SCHEDULER, &latent.dims(), FP32));
        let scaled = p.alloc(&SCHEDULER, &latent.dims(), FP32);
        let sum = p.alloc(&SCHEDULER, &latent.dims(), FP32);
        p.release(scaled);
        let mut next = sum;
        if let Some(sample) = sample {
            p.release(sample);
            next = p.alloc(&LATENTS, &latent.dims(), text);
            p.release(sum);
        }
        p.replace(latents, next);
    });

    p.stage(StageName::Decoding);
    residency.enter(&mut p, Role::Vae);
    residency.host_during(StageName::Decoding);
    p.phase("decode_input");
    // Multiplied, divided and shifted: each a new tensor.
    let mut z = latents;
    for _ in 0..3 {
        let next = p.alloc(&LATENTS, &latent.dims(), text);
        p.release(z);
        z = next;
    }
    let coder = Coder { act: act(Role::Vae), tiling: settings.tiling };
    let video = Map {
        batch,
        channels: 3,
        frames: request.num_frames.into(),
        height: request.height.into(),
        width: request.width.into(),
        element: coder.act,
    };
    let decoded = if settings.vae_slicing && batch > 1 {
        pipeline::in_slices(&mut p, (&DECODED, video), |p| coder.decode(p, Latent { batch: 1, ..latent }))
    } else {
        coder.decode(&mut p, latent)
    };
    pipeline::postprocess(&mut p, video);
    for tensor in [decoded, z, prediction].into_iter().chain(input).chain(halves).chain(embeds) {
        p.release(tensor);
    }
    residency.finish(p)
}
