//! Norms over rows.

use fv_spec::program::kernel::Function;

use super::dense::apply;
use super::matrix::Matrix;
use super::number::{Number, count, dot, squares_around, sum};

/// A pair of rows: weight and bias, or shift and scale.
pub(super) type Pair<'a, T> = Option<(&'a Matrix<T>, &'a Matrix<T>)>;

pub(super) fn layer_norm<T: Number>(x: Matrix<T>, epsilon: f64, affine: Pair<'_, T>, modulation: Pair<'_, T>) -> Matrix<T> {
    let width = count::<T>(x.columns);
    x.map_rows(|_, row| {
        let mean = sum(row) / width;
        let deviation = (squares_around(row, mean) / width + T::of(epsilon)).sqrt();
        for (column, value) in row.iter_mut().enumerate() {
            *value = (*value - mean) / deviation;
            if let Some((weight, bias)) = affine {
                *value = *value * weight.values[column] + bias.values[column];
            }
            if let Some((shift, scale)) = modulation {
                *value = *value * (T::one() + scale.values[column]) + shift.values[column];
            }
        }
    })
}

pub(super) fn rms_norm<T: Number>(x: Matrix<T>, epsilon: f64, weight: &Matrix<T>) -> Matrix<T> {
    let width = count::<T>(x.columns);
    x.map_rows(|_, row| {
        let size = (dot(row, row) / width + T::of(epsilon)).sqrt();
        for (value, weight) in row.iter_mut().zip(&weight.values) {
            *value = *value / size * *weight;
        }
    })
}

pub(super) fn unit_norm<T: Number>(x: Matrix<T>, function: Function, weight: &Matrix<T>) -> Matrix<T> {
    let root = count::<T>(x.columns).sqrt();
    x.map_rows(|_, row| {
        let size = dot(row, row).sqrt().max(T::of(1e-12));
        for (value, weight) in row.iter_mut().zip(&weight.values) {
            *value = apply(function, *value / size * root * *weight);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: &[f64], expected: &[f64]) {
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-12), "{found:?} is not {expected:?}");
    }

    #[test]
    fn layer_norm_is_affine_then_modulated() {
        let row = |values: &[f64]| Matrix::<f64>::of(2, values);
        // Mean 3, variance 4.
        let x = || row(&[1.0, 5.0]);
        near(&layer_norm(x(), 0.0, None, None).values, &[-1.0, 1.0]);
        near(&layer_norm(x(), 12.0, None, None).values, &[-0.5, 0.5]);
        let (weight, bias, shift, scale) = (row(&[2.0, 3.0]), row(&[0.5, 0.25]), row(&[10.0, 20.0]), row(&[1.0, -0.5]));
        near(&layer_norm(x(), 0.0, Some((&weight, &bias)), None).values, &[-1.5, 3.25]);
        near(&layer_norm(x(), 0.0, None, Some((&shift, &scale))).values, &[8.0, 20.5]);
        near(&layer_norm(x(), 0.0, Some((&weight, &bias)), Some((&shift, &scale))).values, &[7.0, 21.625]);
    }

    #[test]
    fn rms_norm_divides_by_the_mean_square() {
        let x = || Matrix::<f64>::of(2, &[3.0, 4.0, 0.0, 0.0]);
        near(&rms_norm(x(), 0.0, &Matrix::of(2, &[1.0, 2.0])).values[..2], &[3.0 / 12.5_f64.sqrt(), 8.0 / 12.5_f64.sqrt()]);
        near(&rms_norm(x(), 12.5, &Matrix::of(2, &[1.0, 1.0])).values, &[0.6, 0.8, 0.0, 0.0]);
    }

    #[test]
    fn unit_norm_divides_by_the_length() {
        let x = || Matrix::<f64>::of(2, &[3.0, 4.0, 0.0, 0.0]);
        let root = 2_f64.sqrt();
        near(&unit_norm(x(), Function::Identity, &Matrix::of(2, &[1.0, 5.0])).values, &[0.6 * root, 4.0 * root, 0.0, 0.0]);
        let silu = |x: f64| x / (1.0 + (-x).exp());
        near(&unit_norm(x(), Function::Silu, &Matrix::of(2, &[1.0, 1.0])).values, &[silu(0.6 * root), silu(0.8 * root), 0.0, 0.0]);
    }
}
