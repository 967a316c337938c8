//! Tiny models, executed.

use std::collections::BTreeMap;

use fv_program::arena::{self, Effort};
use fv_program::check;
use fv_program::wan::choice::Choices;
use fv_program::wan::geometry::{Model, Request};
use fv_program::wan::{self, tiny};
use fv_run::execute::inputs::Given;
use fv_run::execute::outputs::{Kept, Values};
use fv_run::execute::queue::Order;
use fv_run::execute::weights::Synthetic;
use fv_run::execute::{Measured, Options, Progress, World, execute};
use fv_spec::program::kernel::{Input, Output};
use fv_spec::program::{Element, Program, Role, Sampler, Schedule};

use crate::files::{Golden, json};

/// Where weights of a component begin.
pub(crate) fn seed(component: &str) -> u64 {
    json("tiny.json")[component]["seed"].as_u64().expect("a seed")
}

/// Weights of a model whose components have these names in `tiny.json`.
pub(crate) fn weights(transformers: [&str; 2], vae: &str) -> Synthetic {
    let of = [(Role::TextEncoder, "umt5"), (Role::Transformer, transformers[0]), (Role::Transformer2, transformers[1]), (Role::Vae, vae)];
    Synthetic { seed: 0, seeds: of.into_iter().map(|(role, name)| (role, seed(name))).collect() }
}

/// A request as golden files have it.
pub(crate) fn request(height: u64, width: u64, frames: u64) -> Request {
    let schedule = Schedule { sampler: Sampler::UniPc, steps: 4, shift: 3.0, timesteps: Vec::new() };
    Request { height, width, frames, schedule, guidance: [5.0, 5.0], prompt_tokens: 11, negative_tokens: 5, text_rows: 16 }
}

/// The means and deviations of a decoder's latent.
pub(crate) fn statistics(given: &mut Given, vae: &str) {
    let config = &json("tiny.json")[vae]["config"];
    for (what, key) in [(Input::LatentMean, "latents_mean"), (Input::LatentDeviation, "latents_std")] {
        let numbers = config[key].as_array().expect("a list").iter().map(|x| x.as_f64().expect("a number"));
        given.numbers.insert((what, 0), numbers.collect());
    }
}

/// What a pipeline's golden file was computed from.
pub(crate) fn inputs(golden: &Golden, vae: &str) -> Given {
    let mut given = Given { numbers: BTreeMap::new(), seed: 0 };
    for (name, what) in [("prompt.ids", Input::Prompt), ("negative.ids", Input::NegativePrompt), ("noise", Input::Noise)] {
        if let Some(tensor) = golden.find(name) {
            given.numbers.insert((what, 0), tensor.numbers.clone());
        }
    }
    if let Some(noises) = golden.find("noises") {
        for at in 0..noises.shape[0] {
            given.numbers.insert((Input::Noise, u32::try_from(at + 1).expect("few")), noises.part(at).to_vec());
        }
    }
    statistics(&mut given, vae);
    given
}

/// A program whose buffers have their places, without a finding.
pub(crate) fn placed(mut program: Program) -> Program {
    arena::pack(&mut program, Effort::default());
    let findings = check::check_places(&program, &[]);
    assert!(findings.is_empty(), "{findings:#?}");
    program
}

pub(crate) fn lower(model: &Model, request: &Request, choices: &Choices) -> Program {
    placed(wan::lower(model, request, choices).unwrap_or_else(|refused| panic!("{refused:?}")))
}

/// Everything at once, in double precision.
pub(crate) fn plain(model: &Model) -> Choices {
    tiny::choices(model, Element::F64)
}

/// Executes a program and checks that it occupies no more than was planned.
pub(crate) fn run(
    program: &Program,
    weights: &Synthetic,
    inputs: &Given,
    options: Options,
    look: &mut dyn FnMut(&Progress<'_>),
) -> (Kept, Measured) {
    let mut outputs = Kept::default();
    let mut world = World { weights, inputs, outputs: &mut outputs };
    let measured = execute(program, &mut world, options, look).unwrap_or_else(|failure| panic!("{failure}"));
    for region in &measured.regions {
        assert!(region.reached_bytes <= region.planned_bytes, "{region:?}");
    }
    (outputs, measured)
}

pub(crate) const CAREFUL: Options = Options { order: Order::Random { seed: 1 }, check_gaps: true };

pub(crate) fn latent(kept: &Kept) -> Vec<f64> {
    kept.values.get(&(Output::Latent, 0)).map(Values::numbers).expect("a latent leaves")
}
