//! Timesteps and noise levels of a schedule: the tables that samplers of published pipelines make before the first step. Only
//! `+ - * /`, in the order and the precision of those samplers, so that all targets get the same bits.

use fv_spec::program::{Sampler, Schedule};

/// Timesteps that training knew: sigmas are multiplied by it.
pub const TRAIN_TIMESTEPS: f64 = 1000.0;

/// A schedule, step by step.
#[derive(Debug, Clone, PartialEq)]
pub struct Table {
    /// What the transformer is told in each step.
    pub timesteps: Vec<f64>,
    /// The noise level before each step, and 0 after the last one.
    pub sigmas: Vec<f64>,
}

impl Table {
    /// The table of a schedule.
    ///
    /// * `UniPC`: `UniPCMultistepScheduler` of diffusers with `use_flow_sigmas`; its timesteps are whole numbers.
    /// * Euler: `FlowMatchEulerDiscreteScheduler` of diffusers, which shifts the range of its sigmas before it shifts them.
    /// * Distribution matching: timesteps are stated; the sigma is the one of 1,000 shifted sigmas that is nearest, as in FastVideo.
    pub fn new(schedule: &Schedule) -> Self {
        let (timesteps, mut sigmas): (Vec<_>, Vec<_>) = match schedule.sampler {
            Sampler::UniPc => unipc(schedule.steps, schedule.shift),
            Sampler::Euler => euler(schedule.steps, schedule.shift),
            Sampler::Dmd => schedule.timesteps.iter().map(|&timestep| nearest(timestep, schedule.shift)).unzip(),
        };
        sigmas.push(0.0);
        Self { timesteps, sigmas }
    }

    /// Steps of the first of two experts: those whose timestep is at least `boundary` of all.
    pub fn steps_of_first(&self, boundary: f64) -> u32 {
        let steps = self.timesteps.iter().take_while(|&&timestep| timestep >= boundary * TRAIN_TIMESTEPS).count();
        u32::try_from(steps).unwrap_or(u32::MAX)
    }
}

fn unipc(steps: u32, shift: f64) -> (Vec<f64>, Vec<f64>) {
    let line = linspace(1.0, 1.0 / TRAIN_TIMESTEPS, steps + 1);
    line.take(steps as usize)
        .map(|sigma| shift * sigma / (1.0 + (shift - 1.0) * sigma))
        // the solver takes logarithms of 1 - sigma
        .map(|sigma| if (sigma - 1.0).abs() < 1e-6 { sigma - 1e-6 } else { sigma })
        .map(|sigma| ((sigma * TRAIN_TIMESTEPS).trunc(), single(sigma)))
        .unzip()
}

#[expect(clippy::cast_possible_truncation, reason = "the published sampler computes in single precision here")]
fn euler(steps: u32, shift: f64) -> (Vec<f64>, Vec<f64>) {
    let (least, factor) = (1.0_f32 / TRAIN_TIMESTEPS as f32, shift as f32);
    let least = factor * least / (1.0 + (factor - 1.0) * least);
    linspace(TRAIN_TIMESTEPS, f64::from(least) * TRAIN_TIMESTEPS, steps)
        .map(|timestep| timestep / TRAIN_TIMESTEPS)
        .map(|sigma| (shift * sigma / (1.0 + (shift - 1.0) * sigma)) as f32)
        .map(|sigma| (f64::from(sigma * TRAIN_TIMESTEPS as f32), f64::from(sigma)))
        .unzip()
}

#[expect(clippy::cast_possible_truncation, clippy::cast_precision_loss, reason = "the published table is in single precision")]
fn nearest(timestep: u32, shift: f64) -> (f64, f64) {
    let shift = shift as f32;
    let sigmas = (1..=1000_u32).rev().map(|at| at as f32 / 1000.0).map(|sigma| shift * sigma / (1.0 + (shift - 1.0) * sigma));
    let distance = |sigma: f32| (sigma * 1000.0 - timestep as f32).abs();
    let best = sigmas.reduce(|best, sigma| if distance(sigma) < distance(best) { sigma } else { best });
    (f64::from(timestep), best.map_or(0.0, f64::from))
}

/// `numpy.linspace`.
fn linspace(first: f64, last: f64, count: u32) -> impl Iterator<Item = f64> {
    let step = if count > 1 { (last - first) / f64::from(count - 1) } else { 0.0 };
    (0..count).map(move |at| if at > 0 && at == count - 1 { last } else { f64::from(at) * step + first })
}

#[expect(clippy::cast_possible_truncation, reason = "the published sampler keeps its sigmas in single precision")]
fn single(value: f64) -> f64 {
    f64::from(value as f32)
}
