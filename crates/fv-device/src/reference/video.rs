//! What video autoencoders compute. Rows are pixels, frame by frame, row by row.

use fv_spec::program::kernel::Grid;

use super::attention::place;
use super::latents::inside;
use super::matrix::Matrix;
use super::number::{Number, dot, index};

/// A convolution whose frames look only back.
pub(super) struct Convolution<'a, T> {
    pub(super) input: Grid,
    pub(super) kernel: Grid,
    pub(super) weights: &'a Matrix<T>,
    pub(super) bias: &'a Matrix<T>,
    /// Frames before the input, the oldest first.
    pub(super) before: &'a [Matrix<T>],
    pub(super) residual: Option<&'a Matrix<T>>,
}

impl<T: Number> Convolution<'_, T> {
    /// Each result is one sum over all taps, absent ones as zeros, so it does not matter which frames are computed together.
    pub(super) fn of(&self, x: &Matrix<T>) -> Matrix<T> {
        let offsets: Vec<[usize; 3]> = (0..index(self.kernel.len())).map(|tap| place(self.kernel, tap)).collect();
        let mut taps = Matrix::zeros(offsets.len(), x.columns);
        let mut result = Matrix::zeros(x.rows, self.weights.rows);
        for pixel in 0..x.rows {
            let at = place(self.input, pixel);
            for (tap, offset) in offsets.iter().enumerate() {
                match self.source(x, at, *offset) {
                    Some(row) => taps.row_mut(tap).copy_from_slice(row),
                    None => taps.row_mut(tap).fill(T::zero()),
                }
            }
            for channel in 0..result.columns {
                let value = dot(&taps.values, self.weights.row(channel)) + self.bias.values[channel];
                let added = self.residual.map_or(T::zero(), |residual| residual.row(pixel)[channel]);
                result.row_mut(pixel)[channel] = value + added;
            }
        }
        result
    }

    /// The pixel that a tap of a result's pixel reads.
    fn source<'m>(&'m self, x: &'m Matrix<T>, [frame, row, column]: [usize; 3], [t, i, j]: [usize; 3]) -> Option<&'m [T]> {
        let (height, width) = (index(self.input.height), index(self.input.width));
        let row = (row + i).checked_sub(index(self.kernel.height) / 2).filter(|row| *row < height)?;
        let column = (column + j).checked_sub(index(self.kernel.width) / 2).filter(|column| *column < width)?;
        let behind = index(self.kernel.frames) - 1 - t;
        match frame.checked_sub(behind) {
            Some(frame) => Some(x.row((frame * height + row) * width + column)),
            None => Some(self.before[(self.before.len() + frame).checked_sub(behind)?].row(row * width + column)),
        }
    }
}

pub(super) fn upsample<T: Number>(x: &Matrix<T>, input: Grid) -> Matrix<T> {
    let large = Grid { height: 2 * input.height, width: 2 * input.width, ..input };
    x.gather((0..index(large.len())).map(|pixel| {
        let [frame, row, column] = place(large, pixel);
        Some(inside(input, [frame, row / 2, column / 2]))
    }))
}

/// What is made of one.
pub(super) struct Spread {
    pub(super) input: Grid,
    pub(super) time: usize,
    pub(super) part: usize,
    pub(super) space: usize,
}

pub(super) fn spread<T: Number>(y: Matrix<T>, x: &Matrix<T>, of: &Spread) -> Matrix<T> {
    let side = of.space as u64;
    let large = Grid { height: side * of.input.height, width: side * of.input.width, ..of.input };
    let repeats = y.columns * of.time * of.space * of.space / x.columns;
    y.map_rows(|pixel, values| {
        let [frame, row, column] = place(large, pixel);
        let from = x.row(inside(of.input, [frame, row / of.space, column / of.space]));
        for (channel, value) in values.iter_mut().enumerate() {
            let at = ((channel * of.time + of.part) * of.space + row % of.space) * of.space + column % of.space;
            *value = *value + from[at / repeats];
        }
    })
}

/// Rows of the tile above and columns of the tile on the left.
pub(super) fn blend<T: Number>(x: Matrix<T>, tile: Grid, above: Option<&Matrix<T>>, left: Option<&Matrix<T>>) -> Matrix<T> {
    let fade = |values: &mut [T], other: &[T], at: usize, of: u64| {
        let part = T::of(super::number::count::<f64>(at) / super::number::count::<f64>(index(of)));
        values.iter_mut().zip(other).for_each(|(value, other)| *value = *other * (T::one() - part) + *value * part);
    };
    let rows = above.map_or(0, |above| above.rows as u64 / (tile.frames * tile.width));
    let columns = left.map_or(0, |left| left.rows as u64 / (tile.frames * tile.height));
    x.map_rows(|pixel, values| {
        let [frame, row, column] = place(tile, pixel);
        if let Some(above) = above.filter(|_| (row as u64) < rows) {
            fade(values, above.row(inside(Grid { height: rows, ..tile }, [frame, row, column])), row, rows);
        }
        if let Some(left) = left.filter(|_| (column as u64) < columns) {
            fade(values, left.row(inside(Grid { width: columns, ..tile }, [frame, row, column])), column, columns);
        }
    })
}

/// Colours between -1 and 1.
pub(super) fn pixels<T: Number>(x: &Matrix<T>, input: Grid, patch: usize) -> Matrix<T> {
    let side = patch as u64;
    let large = Grid { height: side * input.height, width: side * input.width, ..input };
    let colours = x.columns / (patch * patch);
    Matrix::zeros(index(large.len()), colours).map_rows(|pixel, values| {
        let [frame, row, column] = place(large, pixel);
        let from = x.row(inside(input, [frame, row / patch, column / patch]));
        for (colour, value) in values.iter_mut().enumerate() {
            *value = from[(colour * patch + column % patch) * patch + row % patch].max(-T::one()).min(T::one());
        }
    })
}

/// Colours between -1 and 1 as numbers between 0 and 255.
pub(super) fn as_bytes<T: Number>(colours: Matrix<T>) -> Matrix<T> {
    colours.map(|value| (value + T::one()) * T::of(127.5))
}

#[cfg(test)]
mod tests {
    use super::super::number::count;
    use super::*;

    fn wave(columns: usize, rows: usize, step: f64) -> Matrix<f64> {
        Matrix::of(columns, &(0..rows * columns).map(|i| (count::<f64>(i) * step).sin()).collect::<Vec<_>>())
    }

    fn grid(frames: u64, height: u64, width: u64) -> Grid {
        Grid { frames, height, width }
    }

    /// The sum as it is written in textbooks: over offsets of time, row and column, and channels.
    fn naive(x: &Matrix<f64>, input: [i32; 3], kernel: [i32; 3], w: &Matrix<f64>, at: [i32; 3], channel: usize) -> f64 {
        let mut sum = 0.0;
        for (t, i, j) in (0..kernel[0]).flat_map(|t| (0..kernel[1]).flat_map(move |i| (0..kernel[2]).map(move |j| (t, i, j)))) {
            let from = [at[0] + t - kernel[0] + 1, at[1] + i - kernel[1] / 2, at[2] + j - kernel[2] / 2];
            if from.iter().zip(input).all(|(from, extent)| (0..extent).contains(from)) {
                let pixel = usize::try_from((from[0] * input[1] + from[1]) * input[2] + from[2]).expect("not negative");
                let tap = usize::try_from((t * kernel[1] + i) * kernel[2] + j).expect("not negative");
                sum += (0..x.columns).map(|c| x.row(pixel)[c] * w.row(channel)[tap * x.columns + c]).sum::<f64>();
            }
        }
        sum
    }

    #[test]
    fn convolutions_look_back_and_see_zeros_outside() {
        let (x, w, bias) = (wave(2, 4 * 3 * 4, 0.3), wave(3 * 3 * 3 * 2, 5, 0.7), wave(5, 1, 1.3));
        let residual = wave(5, 4 * 3 * 4, 0.11);
        let of =
            Convolution { input: grid(4, 3, 4), kernel: grid(3, 3, 3), weights: &w, bias: &bias, before: &[], residual: Some(&residual) };
        let found = of.of(&x);
        for at in [[0, 0, 0], [1, 2, 3], [3, 1, 2], [2, 0, 3]] {
            let pixel = usize::try_from((at[0] * 3 + at[1]) * 4 + at[2]).expect("not negative");
            for channel in 0..5 {
                let expected = naive(&x, [4, 3, 4], [3, 3, 3], &w, at, channel) + bias.values[channel] + residual.row(pixel)[channel];
                assert!((found.row(pixel)[channel] - expected).abs() < 1e-13);
            }
        }
    }

    #[test]
    fn frames_at_hand_give_the_same_bits_as_frames_before() {
        let (x, w, bias) = (wave(3, 5 * 4, 0.3), wave(3 * 3 * 3 * 3, 4, 0.7), wave(4, 1, 1.3));
        let of = |frames: u64, before: &[Matrix<f64>], x: &Matrix<f64>| {
            Convolution { input: grid(frames, 2, 2), kernel: grid(3, 3, 3), weights: &w, bias: &bias, before, residual: None }.of(x)
        };
        let frames = |first: usize, count: usize| Matrix {
            rows: count * 4,
            columns: 3,
            values: x.values[first * 12..(first + count) * 12].to_vec(),
        };
        let whole = of(5, &[], &x);
        assert_eq!(of(1, &[], &frames(0, 1)).values, whole.values[..16]);
        assert_eq!(of(1, &[frames(0, 1)], &frames(1, 1)).values, whole.values[16..32]);
        assert_eq!(of(3, &[frames(0, 1), frames(1, 1)], &frames(2, 3)).values, whole.values[32..]);
    }

    #[test]
    fn each_pixel_four_times() {
        let found = upsample(&Matrix::<f64>::of(1, &[1.0, 2.0, 3.0, 4.0]), grid(2, 1, 2));
        assert_eq!(found.values, [1.0, 1.0, 2.0, 2.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0, 3.0, 3.0, 4.0, 4.0]);
    }

    #[test]
    fn channels_are_spread_over_frames_and_squares() {
        // Eight channels of one pixel become one channel of two frames of two by two pixels.
        let x = Matrix::<f64>::of(8, &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]);
        let of = |part| Spread { input: grid(1, 1, 1), time: 2, part, space: 2 };
        let y = || Matrix::of(1, &[10.0, 20.0, 30.0, 40.0]);
        assert_eq!(spread(y(), &x, &of(0)).values, [10.0, 21.0, 32.0, 43.0]);
        assert_eq!(spread(y(), &x, &of(1)).values, [14.0, 25.0, 36.0, 47.0]);
        // Two channels become two channels: each is repeated four times over the square.
        let x = Matrix::<f64>::of(2, &[1.0, 2.0]);
        let one = Spread { input: grid(1, 1, 1), time: 1, part: 0, space: 2 };
        assert_eq!(spread(Matrix::zeros(4, 2), &x, &one).values, [1.0, 2.0, 1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    }

    #[test]
    fn tiles_fade_into_each_other() {
        let tile = Matrix::<f64>::of(1, &[8.0; 8]);
        let above = Matrix::of(1, &[0.0, 16.0, 0.0, 16.0]);
        let found = blend(tile.clone(), grid(1, 4, 2), Some(&above), None);
        assert_eq!(found.values, [0.0, 16.0, 4.0, 12.0, 8.0, 8.0, 8.0, 8.0]);
        let left = Matrix::of(1, &[1.0, 2.0, 3.0, 4.0]);
        let both = blend(tile, grid(1, 4, 2), Some(&above), Some(&left));
        assert_eq!(both.values, [1.0, 16.0, 2.0, 12.0, 3.0, 8.0, 4.0, 8.0]);
    }

    #[test]
    fn pixels_of_a_square_are_by_column_then_row() {
        let x = Matrix::<f64>::of(8, &[-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, -2.0, 0.25]);
        let found = pixels(&x, grid(1, 1, 1), 2);
        assert_eq!(found.values, [-1.0, 1.0, 0.0, -1.0, -0.5, 1.0, 0.5, 0.25]);
        assert_eq!(as_bytes(found).values[..3], [0.0, 255.0, 127.5]);
    }
}
