//! A whole request through diffusers' `HunyuanVideoPipeline` (0.42.1).
//!
//! What the pipeline keeps between stages follows `pipeline_hunyuan_video.py`: the guidance scale is an input of the transformer, so
//! there is one forward pass a step; latents begin in fp32 and leave the scheduler in the transformer's type.

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::geometry::{Dit, LATENT_CHANNELS, Latent};
use super::transformer::Forward;
use super::vae::{self, Coder};
use crate::family::Lowered;
use crate::modules::encoder::{self, CLIP_TOKENS, Encoder};
use crate::modules::maps::Map;
use crate::modules::parameter::Weights;
use crate::modules::pipeline;
use crate::modules::residency::{Residency, bias_workspace, load_stage, product_workspace};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, sites};
use crate::settings::{Attention, Settings};

sites! { "hunyuan_video.diffusers.pipeline":
    PROMPT "prompt embeddings" Activation;
    LATENTS "latents" Activation;
    PREDICTION "prediction of the step before" Activation;
    SCHEDULER "scheduler temporaries" Activation;
    DECODED "decoded videos" Output;
}

/// Tokens of the template around a prompt, which are cut from its embeddings (`crop_start` of `DEFAULT_PROMPT_TEMPLATE`).
const TEMPLATE_TOKENS: u64 = 95;

/// Lowers a request.
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
    let halves = vae::loaded(component(Role::Vae)?).map_err(geometry)?;
    let llama = Encoder::read(component(Role::TextEncoder)?, 0).map_err(geometry)?;
    let clip = Encoder::read(component(Role::TextEncoder2)?, 0).map_err(geometry)?;
    let weights = vec![
        Weights::blocks(Role::TextEncoder, encoder::tensors(&llama)),
        Weights::blocks(Role::TextEncoder2, encoder::tensors(&clip)),
        dit.weights(),
        Weights::whole(Role::Vae, vae::tensors(halves)),
    ];
    let mut p = Builder::new(details);
    let mut residency = Residency::new(weights, settings, &mut p)?;
    if request.references > 0 {
        residency.uncovered(Reason::new("uncovered-reference", "the rules cover HunyuanVideo from text alone"));
    }
    if settings.attention == Attention::Flash {
        residency.uncovered(Reason::new("uncovered-attention", "flash kernels take no mask, which HunyuanVideo's attention has"));
    }
    let act = |role: Role| settings.component(role).map_or(2, |c| bytes_of(c.precision.computed));
    let (batch, tokens) = (u64::from(request.batch), u64::from(request.text_tokens));
    let latent = Latent::of(batch, [request.height, request.width, request.num_frames].map(u64::from));

    load_stage(&mut p, &mut residency);

    p.stage(StageName::Encoding);
    residency.enter(&mut p, Role::TextEncoder);
    p.phase("libraries");
    let library = p.list();
    product_workspace(&mut p, library);
    let states = residency.encode(&mut p, Role::TextEncoder, &llama, batch, tokens + TEMPLATE_TOKENS)?;
    p.phase("prompt_embeddings");
    let embeds = p.alloc(&PROMPT, &[("batch", batch), ("tokens", tokens), ("width", llama.hidden)], act(Role::TextEncoder));
    p.release(states);
    residency.enter(&mut p, Role::TextEncoder2);
    p.phase("libraries");
    bias_workspace(&mut p, library);
    let states = residency.encode(&mut p, Role::TextEncoder2, &clip, batch, CLIP_TOKENS)?;
    p.phase("prompt_embeddings");
    let pooled = p.alloc(&PROMPT, &[("batch", batch), ("width", clip.hidden)], act(Role::TextEncoder2));
    p.release(states);
    residency.host_during(StageName::Encoding);
    p.phase("latents");
    let dims = latent.dims(LATENT_CHANNELS);
    let latents = p.alloc(&LATENTS, &dims, FP32);

    p.stage(StageName::Denoising);
    residency.enter(&mut p, Role::Transformer);
    residency.host_during(StageName::Denoising);
    let forward = Forward { dit, latent, text_tokens: tokens, act: act(Role::Transformer), attention: settings.attention };
    let mut streams = residency.streams(&mut p, Role::Transformer);
    streams.prime(&mut p);
    p.phase("model_input");
    // The first step casts the latents, later ones use those that the scheduler left in the transformer's type.
    let input = (forward.act != FP32).then(|| p.alloc(&LATENTS, &dims, forward.act));
    let prediction = p.alloc(&PREDICTION, &dims, forward.act);
    p.repeat_sampled(request.num_inference_steps.into(), 2, 0, |p| {
        let y = forward.emit(p, &mut streams);
        p.replace(prediction, y);
        p.phase("scheduler");
        let wide = p.alloc(&SCHEDULER, &dims, FP32);
        let scaled = p.alloc(&SCHEDULER, &dims, forward.act);
        let sum = p.alloc(&SCHEDULER, &dims, FP32);
        p.release(scaled);
        let next = p.alloc(&LATENTS, &dims, forward.act);
        p.release(sum);
        p.release(wide);
        p.replace(latents, next);
    });

    p.stage(StageName::Decoding);
    residency.enter(&mut p, Role::Vae);
    residency.host_during(StageName::Decoding);
    p.phase("decode_input");
    let coder = Coder { act: act(Role::Vae), tiling: settings.tiling };
    let scaled = p.alloc(&LATENTS, &dims, coder.act);
    p.release(latents);
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
    for tensor in [decoded, scaled, prediction, pooled, embeds].into_iter().chain(input) {
        p.release(tensor);
    }
    residency.finish(p)
}
