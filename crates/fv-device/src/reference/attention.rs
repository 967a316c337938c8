//! Positions, and attention of every token to every token.

use fv_spec::program::kernel::Grid;

use super::matrix::Matrix;
use super::number::{Number, count, dot, index};

/// The base of rotary frequencies.
const ROTARY_BASE: f64 = 10_000.0;

pub(super) fn rotary_table<T: Number>(grid: Grid, head_dim: usize) -> Matrix<T> {
    let across = 2 * (head_dim / 6);
    let parts = [head_dim - 2 * across, across, across];
    let mut table = Matrix::zeros(index(grid.len()), head_dim);
    for token in 0..table.rows {
        let position = place(grid, token);
        let angles = parts.iter().zip(position).flat_map(|(part, position)| {
            (0..part / 2).map(move |pair| count::<f64>(position) / ROTARY_BASE.powf(count::<f64>(2 * pair) / count::<f64>(*part)))
        });
        for (pair, angle) in table.row_mut(token).chunks_exact_mut(2).zip(angles) {
            (pair[0], pair[1]) = (T::of(angle.cos()), T::of(angle.sin()));
        }
    }
    table
}

/// Frame, row and column of a token.
pub(super) fn place(grid: Grid, token: usize) -> [usize; 3] {
    let (height, width) = (index(grid.height), index(grid.width));
    [token / (height * width), token / width % height, token % width]
}

pub(super) fn rotate<T: Number>(x: Matrix<T>, table: &Matrix<T>) -> Matrix<T> {
    x.map_rows(|row, values| {
        for head in values.chunks_exact_mut(table.columns) {
            for (pair, turn) in head.chunks_exact_mut(2).zip(table.row(row).chunks_exact(2)) {
                (pair[0], pair[1]) = (pair[0] * turn[0] - pair[1] * turn[1], pair[0] * turn[1] + pair[1] * turn[0]);
            }
        }
    })
}

/// Keys and values of one head.
pub(super) struct Head<'a, T> {
    pub(super) keys: &'a Matrix<T>,
    pub(super) values: &'a Matrix<T>,
    /// The head's first column.
    pub(super) first: usize,
    /// Its columns.
    pub(super) dim: usize,
    pub(super) scale: f64,
}

impl<T: Number> Head<'_, T> {
    fn columns<'m>(&self, matrix: &'m Matrix<T>, row: usize) -> &'m [T] {
        &matrix.row(row)[self.first..self.first + self.dim]
    }

    /// The scaled products of a query with these keys.
    pub(super) fn scores(&self, query: &[T], tokens: impl Iterator<Item = usize>, scores: &mut Vec<T>) {
        scores.clear();
        scores.extend(tokens.map(|token| dot(query, self.columns(self.keys, token)) * T::of(self.scale)));
    }

    /// The values of these tokens, weighted by the softmax of their scores.
    pub(super) fn weigh(&self, scores: &[T], tokens: impl Iterator<Item = usize>, into: &mut [T]) {
        let largest = scores.iter().copied().fold(T::neg_infinity(), T::max);
        let mut total = T::zero();
        into.fill(T::zero());
        for (score, token) in scores.iter().zip(tokens) {
            let weight = (*score - largest).exp();
            total = total + weight;
            for (sum, value) in into.iter_mut().zip(self.columns(self.values, token)) {
                *sum = *sum + weight * *value;
            }
        }
        for sum in into {
            *sum = *sum / total;
        }
    }
}

pub(super) fn attention<T: Number>(
    q: &Matrix<T>,
    k: &Matrix<T>,
    v: &Matrix<T>,
    bias: Option<&Matrix<T>>,
    head_dim: usize,
    scale: f64,
) -> Matrix<T> {
    let mut result = Matrix::zeros(q.rows, q.columns);
    let mut scores = Vec::with_capacity(k.rows);
    for head in 0..q.columns / head_dim {
        let first = head * head_dim;
        let of = Head { keys: k, values: v, first, dim: head_dim, scale };
        for row in 0..q.rows {
            of.scores(&q.row(row)[first..first + head_dim], 0..k.rows, &mut scores);
            if let Some(bias) = bias {
                scores.iter_mut().zip(bias.row(head * q.rows + row)).for_each(|(score, bias)| *score = *score + *bias);
            }
            of.weigh(&scores, 0..k.rows, &mut result.row_mut(row)[first..first + head_dim]);
        }
    }
    result
}

pub(super) fn relative_bias<T: Number>(table: &Matrix<T>, tokens: usize, max_distance: u64) -> Matrix<T> {
    let mut result = Matrix::zeros(table.columns * tokens, tokens);
    for query in 0..tokens {
        for key in 0..tokens {
            let bucket = table.row(bucket(query, key, table.rows, max_distance));
            for (head, bias) in bucket.iter().enumerate() {
                result.row_mut(head * tokens + query)[key] = *bias;
            }
        }
    }
    result
}

/// As T5 has it: half of the buckets for tokens behind, half for tokens ahead; of each, half for exact distances and half for
/// logarithms, which are rounded as single precision does.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "distances are small")]
fn bucket(query: usize, key: usize, buckets: usize, max_distance: u64) -> usize {
    let (half, exact) = (buckets / 2, buckets / 4);
    let distance = query.abs_diff(key);
    let ahead = if key > query { half } else { 0 };
    if distance < exact {
        return ahead + distance;
    }
    let range = (max_distance as f64 / exact as f64).ln() as f32;
    let beyond = (distance as f32 / exact as f32).ln() / range * (half - exact) as f32;
    ahead + (exact + beyond as usize).min(half - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(columns: usize, rows: usize, step: f64) -> Matrix<f64> {
        Matrix::of(columns, &(0..rows * columns).map(|i| (count::<f64>(i) * step).sin()).collect::<Vec<_>>())
    }

    #[test]
    fn rotary_frequencies_are_divided_between_frames_rows_and_columns() {
        // 16 features: 4 for rows, 4 for columns, 8 for frames.
        let grid = Grid { frames: 2, height: 3, width: 4 };
        let table = rotary_table::<f64>(grid, 16);
        let row = table.row(12 + 2 * 4 + 3);
        let angles = [1.0, 0.1, 0.01, 0.001, 2.0, 0.02, 3.0, 0.03_f64];
        for (pair, angle) in row.chunks(2).zip(angles) {
            assert!((pair[0] - angle.cos()).abs() < 1e-15 && (pair[1] - angle.sin()).abs() < 1e-15, "{angle}");
        }
    }

    #[test]
    fn rotation_turns_pairs_of_each_head() {
        let table = Matrix::<f64>::of(2, &[0.0, 1.0]);
        assert_eq!(rotate(Matrix::of(4, &[1.0, 2.0, 3.0, 4.0]), &table).values, [-2.0, 1.0, -4.0, 3.0]);
    }

    #[test]
    fn attention_is_the_softmax_over_all_keys() {
        let (q, k, v) = (wave(6, 4, 0.3), wave(6, 5, 0.7), wave(6, 5, 1.1));
        let bias = wave(5, 8, 0.9);
        let found = attention(&q, &k, &v, Some(&bias), 3, 0.5);
        for (row, head, column) in [(0, 0, 0), (1, 1, 2), (3, 0, 1)] {
            let score = |key: usize| {
                let product: f64 = (0..3).map(|d| q.row(row)[head * 3 + d] * k.row(key)[head * 3 + d]).sum();
                (product * 0.5 + bias.row(head * 4 + row)[key]).exp()
            };
            let total: f64 = (0..5).map(score).sum();
            let expected: f64 = (0..5).map(|key| score(key) / total * v.row(key)[head * 3 + column]).sum();
            assert!((found.row(row)[head * 3 + column] - expected).abs() < 1e-14);
        }
    }

    #[test]
    fn large_scores_do_not_overflow() {
        let one = |x: f64| Matrix::<f32>::of(1, &[x]);
        assert_eq!(attention(&one(100.0), &Matrix::of(1, &[100.0, 0.0]), &Matrix::of(1, &[3.0, 5.0]), None, 1, 1.0).values, [3.0]);
    }

    #[test]
    fn distances_have_the_buckets_of_t5() {
        // From the published function with 32 buckets and a maximum of 128.
        let ahead = |distance: usize| bucket(0, distance, 32, 128);
        assert_eq!(
            [0, 1, 7, 8, 11, 12, 15, 16, 22, 23, 31, 32, 45, 46, 63, 64, 90, 91, 127, 128, 1000].map(ahead),
            [0, 17, 23, 24, 24, 25, 25, 26, 26, 27, 27, 28, 28, 29, 29, 30, 30, 31, 31, 31, 31]
        );
        assert_eq!(bucket(9, 2, 32, 128), 7);
    }

    #[test]
    fn the_bias_of_a_head_is_by_query_and_key() {
        let table = Matrix::<f64>::of(2, &(0..16).map(f64::from).collect::<Vec<_>>());
        let bias = relative_bias(&table, 3, 4);
        assert_eq!((bias.rows, bias.columns), (6, 3));
        // Query 1, key 2, of head 1: one ahead, which is bucket 4 + 1.
        assert_eq!(bias.row(3 + 1)[2], 11.0);
    }
}
