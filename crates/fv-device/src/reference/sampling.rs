//! One step of a sampler.

use super::matrix::Matrix;
use super::number::Number;

/// The current step of the schedule.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// What the transformer is told.
    pub timestep: f64,
    /// What becomes of the sample.
    pub update: Update,
}

/// What becomes of a sample `x`, given the predicted velocity `v`. The clean latent is `c = x - sigma * v`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Update {
    /// `x + change * v`.
    Euler {
        /// The next noise level less this one.
        change: f64,
    },
    /// `(1 - next) * c + next * noise`.
    Renoise {
        /// The noise level.
        sigma: f64,
        /// The next one; at 0 no noise is read.
        next: f64,
    },
    /// A predictor and a corrector over the clean latent and its last two predictions. What has the coefficient 0 is not read.
    Multistep {
        /// The noise level.
        sigma: f64,
        /// What the sample is made of first, absent in the first step: last sample, last prediction, the one before, `c`.
        corrector: Option<[f64; 4]>,
        /// What the next sample is made of: the corrected sample, `c`, the last prediction.
        predictor: [f64; 3],
    },
}

/// The new sample and states. States of a multistep sampler are the last prediction of the clean latent, the one before, and the
/// last sample; in the first step nothing is in them yet, and zeros are written for the one before.
pub(super) fn step<T: Number>(update: Update, x: Matrix<T>, v: &Matrix<T>, others: &[Matrix<T>]) -> Vec<Matrix<T>> {
    match update {
        Update::Euler { change } => vec![sum(&[(1.0, &x), (change, v)])],
        Update::Renoise { sigma, next: 0.0 } => vec![sum(&[(1.0, &x), (-sigma, v)])],
        Update::Renoise { sigma, next } => {
            let clean = sum(&[(1.0, &x), (-sigma, v)]);
            vec![sum(&[(1.0 - next, &clean), (next, &others[0])])]
        }
        Update::Multistep { sigma, corrector, predictor: [of_sample, of_clean, of_last] } => {
            let clean = sum(&[(1.0, &x), (-sigma, v)]);
            let [last, before, sample] = [&others[0], &others[1], &others[2]];
            let corrected = match corrector {
                Some(of) => sum(&[(of[0], sample), (of[1], last), (of[2], before), (of[3], &clean)]),
                None => x,
            };
            let next = sum(&[(of_sample, &corrected), (of_clean, &clean), (of_last, last)]);
            let older = if corrector.is_some() { last.clone() } else { Matrix::zeros(clean.rows, clean.columns) };
            vec![next, clean, older, corrected]
        }
    }
}

/// `sum(coefficient * matrix)`, in this order.
fn sum<T: Number>(terms: &[(f64, &Matrix<T>)]) -> Matrix<T> {
    let mut result = Matrix::zeros(terms[0].1.rows, terms[0].1.columns);
    for (coefficient, matrix) in terms.iter().filter(|(coefficient, _)| *coefficient != 0.0) {
        let coefficient = T::of(*coefficient);
        result.values.iter_mut().zip(&matrix.values).for_each(|(sum, value)| *sum = *sum + coefficient * *value);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f64) -> Matrix<f64> {
        Matrix::of(1, &[value])
    }

    #[test]
    fn euler_follows_the_velocity() {
        assert_eq!(step(Update::Euler { change: -0.25 }, one(2.0), &one(4.0), &[])[0], one(1.0));
    }

    #[test]
    fn the_clean_latent_is_noised_again_but_for_the_last_step() {
        let found = step(Update::Renoise { sigma: 0.5, next: 0.25 }, one(2.0), &one(2.0), &[one(8.0)]);
        assert_eq!(found, [one(2.75)]);
        assert_eq!(step(Update::Renoise { sigma: 0.5, next: 0.0 }, one(2.0), &one(2.0), &[]), [one(1.0)]);
    }

    #[test]
    fn the_first_step_reads_no_state() {
        let update = Update::Multistep { sigma: 0.5, corrector: None, predictor: [0.5, 2.0, 0.0] };
        let found = step(update, one(3.0), &one(2.0), &[one(f64::NAN), one(f64::NAN), one(f64::NAN)]);
        assert_eq!(found, [one(5.5), one(2.0), one(0.0), one(3.0)]);
    }

    #[test]
    fn later_steps_correct_and_predict() {
        let update = Update::Multistep { sigma: 0.5, corrector: Some([1.0, 10.0, 100.0, 1000.0]), predictor: [1.0, 2.0, 3.0] };
        // The clean latent is 2; the corrected sample 5 + 60 + 700 + 2000.
        let found = step(update, one(3.0), &one(2.0), &[one(6.0), one(7.0), one(5.0)]);
        assert_eq!(found, [one(2765.0 + 4.0 + 18.0), one(2.0), one(6.0), one(2765.0)]);
    }
}
