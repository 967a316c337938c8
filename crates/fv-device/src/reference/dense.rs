//! Products and what is computed element by element.

use fv_spec::program::kernel::Function;

use super::matrix::Matrix;
use super::number::{Number, dot};

/// Rows of the right factor that stay in the cache while all rows of the left one pass.
const BLOCK: usize = 32;

pub(super) fn apply<T: Number>(function: Function, x: T) -> T {
    match function {
        Function::Identity => x,
        Function::Silu => x / (T::one() + (-x).exp()),
        Function::GeluTanh => {
            let inner = T::of((2.0 / std::f64::consts::PI).sqrt()) * (x + T::of(0.044_715) * x * x * x);
            T::of(0.5) * x * (T::one() + inner.tanh())
        }
    }
}

/// Each result is one sum over the whole row, so it does not matter which rows and columns are computed together.
pub(super) fn product<T: Number>(x: &Matrix<T>, w: &Matrix<T>, bias: Option<&Matrix<T>>, function: Function) -> Matrix<T> {
    let mut result = Matrix::zeros(x.rows, w.rows);
    for first in (0..w.rows).step_by(BLOCK) {
        for row in 0..x.rows {
            for column in first..(first + BLOCK).min(w.rows) {
                let value = dot(x.row(row), w.row(column));
                let value = bias.map_or(value, |bias| value + bias.values[column]);
                result.row_mut(row)[column] = apply(function, value);
            }
        }
    }
    result
}

pub(super) fn dequantise<T: Number>(w: Matrix<T>, scales: &Matrix<T>) -> Matrix<T> {
    w.map_rows(|row, values| values.iter_mut().for_each(|value| *value = *value * scales.values[row]))
}

/// `combine(a, b)`, rows of b repeated.
pub(super) fn pairs<T: Number>(a: Matrix<T>, b: &Matrix<T>, combine: impl Fn(T, T) -> T) -> Matrix<T> {
    a.map_rows(|row, values| {
        for (value, other) in values.iter_mut().zip(b.row(row % b.rows)) {
            *value = combine(*value, *other);
        }
    })
}

pub(super) fn gated_add<T: Number>(x: Matrix<T>, y: &Matrix<T>, gate: &Matrix<T>) -> Matrix<T> {
    x.map_rows(|row, values| {
        for ((value, other), gate) in values.iter_mut().zip(y.row(row)).zip(&gate.values) {
            *value = *value + *other * *gate;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::number::count;
    use super::*;

    #[test]
    fn functions_are_what_their_formulas_say() {
        for x in [-3.0, -0.5, 0.0, 0.7, 4.0_f64] {
            assert_eq!(apply(Function::Identity, x), x);
            assert!((apply(Function::Silu, x) - x * (1.0 / (1.0 + (-x).exp()))).abs() < 1e-15);
        }
        // From the tables of the exact GELU, which its approximation meets within 5e-4.
        assert!((apply(Function::GeluTanh, 1.0_f64) - 0.841_345).abs() < 5e-4);
        assert!((apply(Function::GeluTanh, -2.0_f64) + 0.045_500).abs() < 5e-4);
    }

    #[test]
    fn a_product_has_a_bias_and_a_function() {
        let (x, w) = (Matrix::<f64>::of(2, &[1.0, 2.0, -1.0, 0.5]), Matrix::of(2, &[3.0, 4.0, 1.0, 0.0, 0.0, -2.0]));
        assert_eq!(product(&x, &w, None, Function::Identity).values, [11.0, 1.0, -4.0, -1.0, -1.0, -1.0]);
        let bias = Matrix::of(3, &[1.0, 10.0, 4.0]);
        let silu = product(&x, &w, Some(&bias), Function::Silu);
        assert_eq!(silu.values, [12.0, 11.0, 0.0, 0.0, 9.0, 3.0].map(|x: f64| x / (1.0 + (-x).exp())));
    }

    #[test]
    fn products_of_some_rows_are_the_same_bits() {
        let value = |i: usize| (count::<f64>(i) * 0.37).sin();
        let x = Matrix::<f32>::of(77, &(0..77 * 5).map(value).collect::<Vec<_>>());
        let w = Matrix::of(77, &(0..77 * 70).map(value).collect::<Vec<_>>());
        let whole = product(&x, &w, None, Function::Identity);
        let part = |m: &Matrix<f32>, first: usize, rows: usize| Matrix {
            rows,
            columns: 77,
            values: m.values[first * 77..(first + rows) * 77].to_vec(),
        };
        let some = product(&part(&x, 3, 2), &part(&w, 33, 20), None, Function::Identity);
        for row in 0..2 {
            assert_eq!(some.row(row), &whole.row(3 + row)[33..53]);
        }
    }

    #[test]
    fn element_by_element() {
        let a = || Matrix::<f64>::of(2, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let b = Matrix::of(2, &[10.0, 20.0, 30.0, 40.0]);
        assert_eq!(pairs(a(), &b, |x, y| x + y).values, [11.0, 22.0, 33.0, 44.0, 15.0, 26.0, 37.0, 48.0]);
        assert_eq!(gated_add(a(), &a(), &Matrix::of(2, &[2.0, -1.0])).values, [3.0, 0.0, 9.0, 0.0, 15.0, 0.0, 21.0, 0.0]);
        assert_eq!(dequantise(b, &Matrix::of(2, &[0.5, 2.0])).values, [5.0, 10.0, 60.0, 80.0]);
    }
}
