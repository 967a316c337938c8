//! What becomes of the sample in each step of a schedule: the coefficients of its sampler, in double precision.

use fv_device::reference::{Step, Update};
use fv_program::wan::schedule::Table;
use fv_spec::program::{Kernel, Op, Sampler, Schedule, Segment};

use super::Trouble;

/// For operations that do not look at the step.
pub const NONE: Step = Step { timestep: 0.0, update: Update::Euler { change: 0.0 } };

/// All steps of a schedule.
pub fn steps(schedule: &Schedule) -> Vec<Step> {
    let table = Table::new(schedule);
    let update = |at: usize| match schedule.sampler {
        Sampler::Euler => Update::Euler { change: table.sigmas[at + 1] - table.sigmas[at] },
        Sampler::Dmd => Update::Renoise { sigma: table.sigmas[at], next: table.sigmas[at + 1] },
        Sampler::UniPc => multistep(&table.sigmas, at),
    };
    table.timesteps.iter().enumerate().map(|(at, timestep)| Step { timestep: *timestep, update: update(at) }).collect()
}

/// The step of an operation, which there must be where the operation looks at it.
pub(super) fn step(steps: &[Step], segment: &Segment, op: &Op, repetition: u32) -> Result<Step, Trouble> {
    let number = segment.first_step + repetition;
    match steps.get(number as usize) {
        Some(step) => Ok(*step),
        None if matches!(op.kernel, Kernel::Sample | Kernel::TimestepFeatures) => {
            Err(Trouble::Missing(format!("step {number} in the schedule")))
        }
        None => Ok(NONE),
    }
}

/// Half of the logarithm of the signal-to-noise ratio.
fn lambda(sigma: f64) -> f64 {
    (1.0 - sigma).ln() - sigma.ln()
}

/// Orders of the steps are 1, 2, 2, .., 2, 1.
fn order(steps: usize, at: usize) -> usize {
    2.min(steps - at).min(at + 1)
}

/// `UniPCMultistepScheduler` of diffusers, order 2, `bh2`, predicting the clean latent (arXiv 2302.04867).
fn multistep(sigmas: &[f64], at: usize) -> Update {
    let steps = sigmas.len() - 1;
    let corrector = (at > 0).then(|| corrector(sigmas, at, order(steps, at - 1)));
    Update::Multistep { sigma: sigmas[at], corrector, predictor: predictor(sigmas, at, order(steps, at)) }
}

/// From `sigma` to `next`: the factor of the sample, that of a prediction of the clean latent, and the step `h` of lambda.
fn transition(sigma: f64, next: f64) -> (f64, f64, f64) {
    let h = lambda(next) - lambda(sigma);
    (next / sigma, -(1.0 - next) * (-h).exp_m1(), h)
}

/// Coefficients of the corrected sample, the clean latent and the prediction before.
fn predictor(sigmas: &[f64], at: usize, order: usize) -> [f64; 3] {
    let (of_sample, of_clean, h) = transition(sigmas[at], sigmas[at + 1]);
    if order == 1 {
        return [of_sample, of_clean, 0.0];
    }
    // The difference to the prediction before, divided by its distance, counts half.
    let distance = (lambda(sigmas[at - 1]) - lambda(sigmas[at])) / h;
    let of_difference = of_clean * 0.5 / distance;
    [of_sample, of_clean - of_difference, of_difference]
}

/// Coefficients of the last sample, the last prediction, the one before, and the clean latent.
fn corrector(sigmas: &[f64], at: usize, order: usize) -> [f64; 4] {
    let (of_sample, of_clean, h) = transition(sigmas[at - 1], sigmas[at]);
    if order == 1 {
        return [of_sample, of_clean * 0.5, 0.0, of_clean * 0.5];
    }
    let distance = (lambda(sigmas[at - 2]) - lambda(sigmas[at - 1])) / h;
    let [of_before, of_new] = weights(-h, distance);
    let of_difference = of_clean * of_before / distance;
    [of_sample, of_clean * (1.0 - of_new) - of_difference, of_difference, of_clean * of_new]
}

/// The weights of the differences to the prediction before and to the new one: the solution of
/// `[[1, 1], [distance, 1]] * weights = b`, by the elimination with partial pivoting that the published sampler uses.
fn weights(hh: f64, distance: f64) -> [f64; 2] {
    let growth = hh.exp_m1();
    let first = growth / hh - 1.0;
    let second = first / hh - 0.5;
    let b = [first / growth, second * 2.0 / growth];
    let of_before = (b[1] - b[0]) / (distance - 1.0);
    [of_before, b[0] - of_before]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(sampler: Sampler, steps: u32) -> Schedule {
        Schedule { sampler, steps, shift: 3.0, timesteps: if sampler == Sampler::Dmd { vec![1000, 757, 522] } else { Vec::new() } }
    }

    #[test]
    fn orders_rise_and_fall() {
        assert_eq!((0..5).map(|at| order(5, at)).collect::<Vec<_>>(), [1, 2, 2, 2, 1]);
        assert_eq!(order(1, 0), 1);
    }

    /// Where every prediction of the clean latent is the sample itself, nothing may change it.
    #[test]
    fn coefficients_sum_up_to_one() {
        for step in steps(&schedule(Sampler::UniPc, 6)) {
            let Update::Multistep { corrector, predictor, .. } = step.update else { panic!("{step:?}") };
            let is_one = |coefficients: &[f64]| (coefficients.iter().sum::<f64>() - 1.0).abs() < 1e-12;
            assert!(is_one(&predictor) && corrector.is_none_or(|corrector| is_one(&corrector)), "{step:?}");
        }
    }

    #[test]
    fn the_last_step_ends_at_the_clean_latent() {
        let last = |sampler| steps(&schedule(sampler, 5)).pop().expect("there are steps").update;
        let Update::Multistep { predictor, .. } = last(Sampler::UniPc) else { panic!("it is a multistep sampler") };
        assert!(predictor[0] == 0.0 && (predictor[1] - 1.0).abs() < 1e-15 && predictor[2] == 0.0, "{predictor:?}");
        assert!(matches!(last(Sampler::Dmd), Update::Renoise { next: 0.0, .. }));
        assert!(matches!(last(Sampler::Euler), Update::Euler { change } if change < 0.0));
    }
}
