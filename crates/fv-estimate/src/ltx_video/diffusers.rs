//! A whole request through diffusers' `LTXPipeline` (0.42.1). Models of 0.9.5 and later come with `LTXConditionPipeline`, which
//! without a condition does the same, and hands the text encoder the mask of the padding.

use fv_spec::authored::Role;
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::{Reason, StageName};
use fv_spec::request::Request;

use super::dit::{Dit, Forward};
use super::vae::{Coder, LATENT_CHANNELS, SPATIAL, TEMPORAL, Vae};
use crate::family::Lowered;
use crate::modules::encoder::{self, Encoder};
use crate::modules::maps::Map;
use crate::modules::parameter::Weights;
use crate::modules::pipeline::{self, Guided, postprocess};
use crate::modules::residency::{Residency, bias_workspace, load_stage, product_workspace};
use crate::modules::{FP32, bytes_of};
use crate::program::{Builder, Tensor, sites};
use crate::settings::{Guidance, Settings};

sites! { "ltx_video.diffusers.pipeline":
    PROMPT "prompt embeddings" Activation;
    LATENTS "latents" Activation;
    NOISE "noise of the decoder's timestep" Activation;
    MODEL_INPUT "model input" Activation;
    PREDICTION "prediction in fp32" Activation;
    SCHEDULER "scheduler temporaries" Activation;
}

/// A model of the family as one deployment loads it.
#[derive(Debug)]
pub(super) struct Parts {
    dit: Dit,
    vae: Vae,
    text: Encoder,
}

impl Parts {
    /// Reads a model as `example` loads it. `Err` lists what is missing.
    pub(super) fn read(model: &Model, example: &Example) -> Result<Self, Vec<Reason>> {
        let [transformer, text, vae] =
            pipeline::components(model, example, "LTX-Video", [Role::Transformer, Role::TextEncoder, Role::Vae])?;
        let geometry = |text: String| vec![Reason::new("missing-geometry", text)];
        let vae = Vae::of(vae.parameter_count.get()).map_err(geometry)?;
        let text = Encoder { masked: vae.timestep(), ..Encoder::read(text, 0).map_err(geometry)? };
        Ok(Self { dit: Dit::read(transformer).map_err(geometry)?, vae, text })
    }

    fn weights(&self) -> Vec<Weights> {
        vec![
            Weights::blocks(Role::TextEncoder, encoder::tensors(&self.text)),
            self.dit.weights(Role::Transformer),
            Weights::whole(Role::Vae, self.vae.tensors()),
        ]
    }

    /// Lowers a request.
    #[expect(clippy::too_many_lines, reason = "one request, stage by stage")]
    pub(super) fn lower(&self, settings: &Settings, request: &Request, details: bool) -> Result<Lowered, Vec<Reason>> {
        let mut p = Builder::new(details);
        let mut residency = Residency::new(self.weights(), settings, &mut p)?;
        pipeline::uncovered(&mut residency, settings, request, "LTX-Video", 0);
        let act = |role: Role| settings.component(role).map_or(2, |c| bytes_of(c.precision.computed));
        let batch = u64::from(request.batch);
        let guided = settings.guidance != Guidance::None;
        let branches = if guided { 2 } else { 1 };
        let frames = u64::from(request.num_frames).saturating_sub(1) / TEMPORAL + 1;
        let (height, width) = (u64::from(request.height) / SPATIAL, u64::from(request.width) / SPATIAL);
        let tokens = frames * height * width;
        load_stage(&mut p, &mut residency);

        p.stage(StageName::Encoding);
        residency.enter(&mut p, Role::TextEncoder);
        p.phase("libraries");
        let library = p.list();
        product_workspace(&mut p, library);
        let text_tokens = u64::from(request.text_tokens);
        let embeds = |branches: u64| [("batch", branches * batch), ("tokens", text_tokens), ("text width", self.text.hidden)];
        let mut prompts: Vec<Tensor> = Vec::new();
        for _ in 0..branches {
            // One prompt, repeated for each video.
            let states = residency.encode(&mut p, Role::TextEncoder, &self.text, 1, text_tokens)?;
            p.phase("prompt_embeddings");
            prompts.push(p.alloc(&PROMPT, &embeds(1), act(Role::TextEncoder)));
            p.release(states);
        }
        if guided {
            // Both branches together; the negative one keeps its name.
            let joined = p.alloc(&PROMPT, &embeds(2), act(Role::TextEncoder));
            let positive = std::mem::replace(&mut prompts[0], joined);
            p.release(positive);
        }
        residency.host_during(StageName::Encoding);
        p.phase("latents");
        let packed = |branches: u64| [("batch", branches * batch), ("tokens", tokens), ("channels", LATENT_CHANNELS)];
        let noise = p.alloc(&LATENTS, &packed(1), FP32);
        let latents = p.alloc(&LATENTS, &packed(1), FP32);
        p.release(noise);

        p.stage(StageName::Denoising);
        let forward = Forward {
            dit: self.dit,
            batch: branches * batch,
            tokens,
            text_tokens,
            act: act(Role::Transformer),
            attention: settings.attention,
            per_token_timesteps: false,
        };
        // What a step leaves to the next: its input, and the prediction in fp32, of both branches and guided.
        p.phase("model_input");
        let input = p.alloc(&MODEL_INPUT, &packed(branches), forward.act);
        let prediction = p.alloc(&PREDICTION, &packed(branches), FP32);
        let combined = guided.then(|| p.alloc(&PREDICTION, &packed(1), FP32));
        residency.enter(&mut p, Role::Transformer);
        p.phase("libraries");
        bias_workspace(&mut p, library);
        residency.host_during(StageName::Denoising);
        let mut streams = residency.streams(&mut p, Role::Transformer);
        p.repeat_sampled(request.num_inference_steps.into(), 2, 0, |p| {
            p.phase("model_input");
            let wide = guided.then(|| p.alloc(&MODEL_INPUT, &packed(2), FP32));
            let narrow = p.alloc(&MODEL_INPUT, &packed(branches), forward.act);
            p.replace(input, narrow);
            if let Some(wide) = wide {
                p.release(wide);
            }
            let predicted = forward.emit(p, &mut streams);
            let (all, one) = (packed(branches), packed(1));
            let guided = Guided { sites: [&PREDICTION; 2], all: &all, one: &one, before: (prediction, combined) };
            guided.step(p, predicted, forward.act);
            p.phase("scheduler");
            let step = p.alloc(&SCHEDULER, &packed(1), FP32);
            let next = p.alloc(&LATENTS, &packed(1), FP32);
            p.release(step);
            p.replace(latents, next);
        });

        p.stage(StageName::Decoding);
        p.phase("decode_input");
        let vae_act = act(Role::Vae);
        let latent = Map { batch, channels: LATENT_CHANNELS, frames, height, width, element: forward.act };
        // Unpacked, scaled, divided and shifted, each a new tensor, then cast.
        let mut z = latents;
        for element in [FP32; 4].into_iter().chain((forward.act != FP32).then_some(forward.act)) {
            let next = latent.of(element).alloc(&mut p, &LATENTS);
            p.release(z);
            z = next;
        }
        let noise = self.vae.timestep().then(|| {
            let noise = latent.alloc(&mut p, &NOISE);
            let parts = [(); 2].map(|()| latent.alloc(&mut p, &LATENTS));
            let sum = latent.alloc(&mut p, &LATENTS);
            for tensor in parts.into_iter().chain([z]) {
                p.release(tensor);
            }
            z = sum;
            noise
        });
        if vae_act != forward.act {
            let cast = latent.of(vae_act).alloc(&mut p, &LATENTS);
            p.release(z);
            z = cast;
        }
        residency.enter(&mut p, Role::Vae);
        residency.host_during(StageName::Decoding);
        let streams = residency.streams(&mut p, Role::Vae);
        let coder = Coder { vae: self.vae, act: vae_act, streams: &streams };
        let (video, map) = coder.decode_as(&mut p, latent.of(vae_act), settings.tiling, settings.vae_slicing);
        postprocess(&mut p, map);
        p.release(video);
        for tensor in prompts.into_iter().chain(noise).chain(combined).chain([z, input, prediction]) {
            p.release(tensor);
        }
        residency.finish(p)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::pipeline::testing;

    #[test]
    fn stages_peak_where_the_recorded_pipelines_do() {
        let dit = Dit { hidden: 2048, ffn: 8192, heads: 32, blocks: 3 };
        let parts = Parts { dit, vae: Vae::V090, text: testing::text() };
        let size = [480, 704, 33];
        for (moved, recorded) in
            [(false, [2_456_318_976, 2_656_577_536, 3_592_655_872]), (true, [1_096_866_304, 1_074_429_952, 2_060_412_416])]
        {
            testing::check(size, (128, 0), (moved, None), recorded, 5, |settings, request| {
                parts.lower(settings, request, false).expect("a program")
            });
        }
    }
}
