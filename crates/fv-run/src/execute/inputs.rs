//! What is asked for.

use std::collections::BTreeMap;
use std::io;

use fv_spec::program::kernel::Input;

use super::memory::index;
use super::weights::{fnv1a64, splitmix64, uniform};

/// A source of inputs.
pub trait Inputs {
    /// The numbers of an input, row by row.
    fn read(&self, what: Input, which: u32, rows: u64, columns: u64) -> io::Result<Vec<f64>>;
}

/// Inputs at hand, and noise that is made from a seed where none is given.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// By what and which.
    pub numbers: BTreeMap<(Input, u32), Vec<f64>>,
    /// Where noise begins.
    pub seed: u64,
}

impl Inputs for Given {
    fn read(&self, what: Input, which: u32, rows: u64, columns: u64) -> io::Result<Vec<f64>> {
        let expected = index(rows * columns);
        match self.numbers.get(&(what, which)) {
            Some(numbers) if numbers.len() == expected => Ok(numbers.clone()),
            Some(numbers) => {
                Err(io::Error::other(format!("{} numbers were given as {}, where {expected} are needed", numbers.len(), what.word())))
            }
            None if what == Input::Noise => Ok(normal(&format!("noise.{which}"), self.seed, expected)),
            None => Err(io::Error::other(format!("no {} was given", what.word()))),
        }
    }
}

/// Normally distributed numbers, by the method of Box and Muller.
pub(super) fn normal(name: &str, seed: u64, count: usize) -> Vec<f64> {
    let start = splitmix64(fnv1a64(name) ^ seed);
    (0..count as u64)
        .map(|at| {
            // From 0, exclusive, to 1, and a turn.
            let (size, turn) = (1.0 - f64::midpoint(uniform(start, 2 * at), 1.0), uniform(start, 2 * at + 1));
            (-2.0 * size.ln()).sqrt() * (std::f64::consts::PI * turn).cos()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_normal() {
        let noise = Given::default().read(Input::Noise, 3, 100, 100).expect("noise is made");
        let mean = noise.iter().sum::<f64>() / 1e4;
        let variance = noise.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / 1e4;
        let tails = noise.iter().filter(|x| x.abs() > 1.96).count();
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05 && (400..600).contains(&tails), "{mean} {variance} {tails}");
        assert_ne!(noise, Given::default().read(Input::Noise, 4, 100, 100).expect("noise is made"));
    }

    #[test]
    fn numbers_that_are_given_must_be_as_many_as_are_needed() {
        let given = Given { numbers: BTreeMap::from([((Input::Prompt, 0), vec![5.0, 1.0])]), seed: 0 };
        assert_eq!(given.read(Input::Prompt, 0, 2, 1).expect("as many"), [5.0, 1.0]);
        let error = |what, rows| given.read(what, 0, rows, 1).expect_err("it is not there").to_string();
        assert_eq!(error(Input::Prompt, 3), "2 numbers were given as prompt, where 3 are needed");
        assert_eq!(error(Input::NegativePrompt, 1), "no negative_prompt was given");
    }
}
