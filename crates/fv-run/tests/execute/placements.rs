//! Where weights live, how rows and heads are split and in which order streams run: none of it changes a bit.

use fv_program::wan::choice::{Choices, Compute, Decode, Residency, TextKeys};
use fv_program::wan::geometry::{Model, Request, Vae};
use fv_program::wan::{tiny as models, vae};
use fv_run::execute::Options;
use fv_run::execute::inputs::Given;
use fv_run::execute::outputs::Kept;
use fv_run::execute::queue::Order;
use fv_run::execute::weights::splitmix64;
use fv_spec::program::kernel::Input;
use fv_spec::program::{Element, Formats, Sampler, Schedule, Tier};

use crate::tiny;

/// Random choices.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(splitmix64(seed))
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = splitmix64(self.0);
        self.0 % end
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::try_from(self.below(choices.len() as u64)).expect("few")]
    }

    fn residency(&mut self, blocks: u64) -> Residency {
        let mix = self.of(&[
            &[Tier::Device][..],
            &[Tier::Pinned],
            &[Tier::Disk],
            &[Tier::Device, Tier::Pinned],
            &[Tier::Device, Tier::Pinned, Tier::Disk],
        ]);
        let tiers: Vec<Tier> = (0..blocks).map(|_| self.of(mix)).collect();
        let mut places = |some: &[Tier]| {
            let moved = tiers.iter().filter(|tier| some.contains(tier)).count();
            self.of(&[1, 2, 3]).min(u32::try_from(moved).expect("few"))
        };
        let (slots, ring) = (places(&[Tier::Pinned, Tier::Disk]), places(&[Tier::Disk]));
        Residency { tiers, slots, ring }
    }

    pub(crate) fn choices(&mut self, model: &Model, formats: Formats, decode: Decode) -> Choices {
        let experts = if model.boundary.is_some() { 2 } else { 1 };
        let rows = [1, 2, 3, 5, 8, 13, 16, 1000];
        Choices {
            formats,
            text: self.residency(model.text.layers),
            transformers: (0..experts).map(|_| self.residency(model.transformer.blocks)).collect(),
            compute: Compute {
                head_group: self.of(&[1, 2, 4]),
                feed_forward_chunk: self.of(&rows),
                projection_chunk: self.of(&rows),
                outputs_on_host: self.of(&[true, false]),
                residual_on_host: self.of(&[true, false]),
                text_keys: self.of(&[TextKeys::Kept, TextKeys::Recomputed]),
                paired_guidance: self.of(&[true, false]),
            },
            vae: self.residency(vae::blocks::blocks(&model.vae).len() as u64),
            decode: Decode { frames: self.of(&[1, 2, 4]), ..decode },
        }
    }
}

/// A model whose decoder is small too.
pub(crate) fn narrow(model: Model) -> Model {
    let vae = Vae { width: if model.vae.residual { 4 } else { 2 }, ..model.vae };
    Model { vae, ..model }
}

pub(crate) fn formats(compute: Element, block_weights: Element) -> Formats {
    let exact = if compute == Element::F64 { Element::F64 } else { Element::F32 };
    Formats { compute, exact, block_weights }
}

pub(crate) fn small_request(sampler: Sampler) -> Request {
    let timesteps = if sampler == Sampler::Dmd { vec![1000, 757, 522] } else { Vec::new() };
    let schedule = Schedule { sampler, steps: 3, shift: 5.0, timesteps };
    Request { schedule, guidance: if sampler == Sampler::Dmd { [1.0; 2] } else { [5.0, 3.0] }, ..tiny::request(32, 64, 5) }
}

pub(crate) fn given(request: &Request, channels: usize) -> Given {
    let ids =
        |count: u64| (0..count).map(|at| if at + 1 == count { 1.0 } else { f64::from(u32::try_from(at * 7 + 3).expect("few")) }).collect();
    let mut given = Given { seed: 5, ..Given::default() };
    given.numbers.insert((Input::Prompt, 0), ids(request.prompt_tokens));
    given.numbers.insert((Input::NegativePrompt, 0), ids(request.negative_tokens));
    given.numbers.insert((Input::LatentMean, 0), vec![0.25; channels]);
    given.numbers.insert((Input::LatentDeviation, 0), vec![1.5; channels]);
    given
}

/// So many random choices and orders, of which each gives what the first one does.
fn all_alike(model: Model, request: &Request, formats: Formats, tiles: Option<fv_program::wan::choice::Tiling>, count: u64) {
    let model = narrow(model);
    let decode = Decode { tiles, frames: 4, pixels: Element::F32 };
    let weights = tiny::weights(["dit", "dit2"], "vae21");
    let inputs = given(request, usize::try_from(model.vae.latent).expect("few"));
    let run = |choices: &Choices, order: Order| {
        let program = tiny::lower(&model, request, choices);
        tiny::run(&program, &weights, &inputs, Options { order, check_gaps: true }, &mut |_| {}).0
    };
    let plain = Choices { formats, decode, ..models::choices(&model, formats.compute) };
    let expected: Kept = run(&plain, Order::Issued);
    for seed in 0..count {
        let choices = Dice::new(seed).choices(&model, formats, decode);
        assert!(run(&choices, Order::Random { seed }) == expected, "choices {seed} change the output: {choices:#?}");
    }
}

/// So many for each of six models and formats: 204.
const COUNT: u64 = 34;

#[test]
fn dense_in_double_precision() {
    all_alike(models::dense(), &small_request(Sampler::UniPc), formats(Element::F64, Element::F64), None, COUNT);
}

#[test]
fn dense_in_single_precision_and_tiles() {
    let tiles = fv_program::wan::choice::Tiling { height: 24, width: 32, stride_height: 16, stride_width: 24 };
    all_alike(models::dense(), &small_request(Sampler::Euler), formats(Element::F32, Element::F32), Some(tiles), COUNT);
}

#[test]
fn two_experts_with_weights_in_eight_bit_floats() {
    all_alike(models::two_experts(), &small_request(Sampler::UniPc), formats(Element::F32, Element::Fp8), None, COUNT);
}

#[test]
fn sparse_with_weights_in_eight_bit_integers() {
    let request = Request { height: 64, ..small_request(Sampler::Dmd) };
    all_alike(models::sparse(), &request, formats(Element::F32, Element::Int8), None, COUNT);
}

#[test]
fn sparse_in_sixteen_bits() {
    let request = Request { height: 64, ..small_request(Sampler::Dmd) };
    all_alike(models::sparse(), &request, formats(Element::Bf16, Element::Bf16), None, COUNT);
}

#[test]
fn patched_in_sixteen_bits() {
    all_alike(
        models::patched(),
        &Request { width: 96, ..small_request(Sampler::UniPc) },
        formats(Element::Bf16, Element::Fp8),
        None,
        COUNT,
    );
}
