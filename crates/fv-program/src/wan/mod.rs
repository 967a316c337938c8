//! The Wan family on our own runtime: Wan 2.1 and 2.2, dense and with video sparse attention, one transformer or two experts.
//!
//! * [`geometry`]: extents of the components.
//! * [`choice`]: what a plan decides.
//! * [`legal`]: what cannot be lowered, and why.
//! * [`planned`]: choices in the words of plans, and back.
//! * [`schedule`]: timesteps and noise levels.
//! * [`summary`]: what a step needs and costs, without a whole program.
//! * [`text`], [`dit`], [`vae`]: the parts of a request.
//! * [`options`]: what each way to compute needs and takes, for [`crate::optimal`].
//! * [`tiny`]: models that are small enough for tests.

pub mod choice;
pub mod dit;
pub mod geometry;
pub mod legal;
pub mod options;
pub mod planned;
pub mod schedule;
mod staged;
pub mod summary;
pub mod text;
pub mod tiny;
pub mod vae;

use fv_spec::authored::Role;
use fv_spec::program::kernel::{Input, Output};
use fv_spec::program::{Kernel, Program, Stream, Tier};

use crate::build::Builder;
use crate::refused::Refused;
use choice::Choices;
use dit::{Expert, Sampling};
use geometry::{Model, Request};
pub use staged::Parcel;
use text::Prompt;

/// The program of a request.
///
/// # Errors
/// With everything that is wrong with the request, or with the choices for it.
pub fn lower(model: &Model, request: &Request, choices: &Choices) -> Result<Program, Vec<Refused>> {
    let refused = legal::check(model, request, choices);
    if !refused.is_empty() {
        return Err(refused);
    }
    let mut builder = Builder::new(&model.id, choices.formats, request.schedule.clone());
    let region = builder.region("request", Tier::Pinned);
    let texts = text::lower(&mut builder, &model.text, &choices.text, &prompts(request), request.text_rows, region);
    let latent = denoise(&mut builder, model, request, choices, (region, texts));
    output(&mut builder, &latent);
    let given = vae::Latent { region, view: latent.view, ready: latent.written.first().copied() };
    vae::lower(&mut builder, &model.vae, request, &choices.vae, &choices.decode, given);
    latent.free(&mut builder);
    Ok(builder.finish())
}

/// The prompt and, where some expert is guided, the negative prompt.
fn prompts(request: &Request) -> Vec<Prompt> {
    let negative = request.guided().then_some(Prompt { what: Input::NegativePrompt, tokens: request.negative_tokens });
    std::iter::once(Prompt { what: Input::Prompt, tokens: request.prompt_tokens }).chain(negative).collect()
}

/// The latent after the last step, in host memory.
fn denoise(builder: &mut Builder, model: &Model, request: &Request, choices: &Choices, (region, texts): (u32, Vec<Parcel>)) -> Parcel {
    let steps = request.schedule.steps;
    let turn = model.steps_of_first(&request.schedule);
    let mut sampling = Sampling { sampler: request.schedule.sampler, steps, request: region, handed: Vec::new() };
    let experts = [(Role::Transformer, (0, turn)), (Role::Transformer2, (turn, steps))];
    for (at, (role, steps)) in experts.into_iter().enumerate().filter(|(_, (_, (first, end)))| first < end) {
        let expert = Expert {
            role,
            model: &model.transformer,
            residency: &choices.transformers[at],
            compute: choices.compute,
            latent: model.latent(request),
            steps,
            guidance: Some(request.guidance[at]).filter(|&scale| Request::guides(scale)),
            texts: &texts,
            sketch: false,
        };
        dit::lower(builder, &expert, &mut sampling);
    }
    for text in texts {
        text.free(builder);
    }
    sampling.handed.remove(0)
}

fn output(builder: &mut Builder, latent: &Parcel) {
    builder.phase("output");
    latent.written.iter().for_each(|&event| builder.wait_on(Stream::Disk, event));
    builder.op(Stream::Disk, Kernel::Output { what: Output::Latent, index: 0 }, vec![latent.view], vec![]);
}
