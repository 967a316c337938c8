//! The two widths that are computed in, and sums whose order depends on their length alone.

use num_traits::Float;

/// IEEE single or double precision.
pub trait Number: Float + Send + Sync + 'static {
    /// The nearest one.
    fn of(value: f64) -> Self;

    /// The same number in double precision.
    fn wide(self) -> f64;
}

impl Number for f32 {
    #[expect(clippy::cast_possible_truncation, reason = "the nearest single-precision number is meant")]
    fn of(value: f64) -> Self {
        value as Self
    }

    fn wide(self) -> f64 {
        f64::from(self)
    }
}

impl Number for f64 {
    fn of(value: f64) -> Self {
        value
    }

    fn wide(self) -> f64 {
        self
    }
}

/// Partial sums that are carried side by side, so that the compiler can use vectors.
const LANES: usize = 8;

/// `sum(a * b)`.
pub(super) fn dot<T: Number>(a: &[T], b: &[T]) -> T {
    fold(a, b, |x, y| x * y)
}

/// `sum(a)`.
pub(super) fn sum<T: Number>(a: &[T]) -> T {
    fold(a, a, |x, _| x)
}

/// `sum((a - mean)^2)`.
pub(super) fn squares_around<T: Number>(a: &[T], mean: T) -> T {
    fold(a, a, |x, _| (x - mean) * (x - mean))
}

fn fold<T: Number>(a: &[T], b: &[T], term: impl Fn(T, T) -> T) -> T {
    let mut lanes = [T::zero(); LANES];
    let (pairs, rest) = (a.chunks_exact(LANES).zip(b.chunks_exact(LANES)), a.len() - a.len() % LANES);
    for (x, y) in pairs {
        for lane in 0..LANES {
            lanes[lane] = lanes[lane] + term(x[lane], y[lane]);
        }
    }
    let whole = lanes.iter().fold(T::zero(), |total, lane| total + *lane);
    a[rest..].iter().zip(&b[rest..]).fold(whole, |total, (x, y)| total + term(*x, *y))
}

/// A count as a number.
pub(super) fn count<T: Number>(value: usize) -> T {
    T::of(u32::try_from(value).map_or(f64::INFINITY, f64::from))
}

/// An extent as an index.
///
/// # Panics
/// When it is beyond the address space, in which no operand of that size can lie.
pub(super) fn index(value: u64) -> usize {
    usize::try_from(value).expect("extents of what lies in memory are indices")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_take_every_element_once() {
        for length in [0_usize, 1, 7, 8, 9, 31] {
            let a: Vec<f64> = (0..length).map(|i| count::<f64>(i) + 1.0).collect();
            let n = count::<f64>(length);
            assert_eq!(sum(&a), n * (n + 1.0) / 2.0);
            assert_eq!(dot(&a, &a), n * (n + 1.0) * (2.0 * n + 1.0) / 6.0);
            assert_eq!(squares_around(&a, 1.0), a.iter().map(|x| (x - 1.0) * (x - 1.0)).sum::<f64>());
        }
    }
}
