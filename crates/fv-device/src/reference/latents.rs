//! Latents, `[channels x positions]`, as rows and back.

use fv_spec::program::kernel::Grid;

use super::attention::place;
use super::matrix::Matrix;
use super::number::{Number, count, index};

/// Periods of a timestep's sinusoids reach from 1 to this.
const MAX_PERIOD: f64 = 10_000.0;

pub(super) fn timestep_features<T: Number>(timestep: f64, width: usize) -> Matrix<T> {
    let half = width / 2;
    let mut features = Matrix::zeros(1, width);
    for at in 0..half {
        let angle = timestep * (-MAX_PERIOD.ln() * count::<f64>(at) / count::<f64>(half)).exp();
        features.values[at] = T::of(angle.cos());
        features.values[half + at] = T::of(angle.sin());
    }
    features
}

/// How many patches there are in each direction.
pub(super) fn patches_of(latent: Grid, patch: Grid) -> Grid {
    Grid { frames: latent.frames / patch.frames, height: latent.height / patch.height, width: latent.width / patch.width }
}

/// The number of the position at this frame, row and column.
pub(super) fn inside(grid: Grid, [frame, row, column]: [usize; 3]) -> usize {
    (frame * index(grid.height) + row) * index(grid.width) + column
}

/// Positions of a latent that one patch covers, by frame, row and column.
fn positions(latent: Grid, patch: Grid, number: usize) -> impl Iterator<Item = usize> {
    let [frame, row, column] = place(patches_of(latent, patch), number);
    let first = [frame * index(patch.frames), row * index(patch.height), column * index(patch.width)];
    (0..index(patch.len())).map(move |at| inside(latent, add(first, place(patch, at))))
}

fn add(a: [usize; 3], b: [usize; 3]) -> [usize; 3] {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

pub(super) fn patches<T: Number>(x: &Matrix<T>, latent: Grid, patch: Grid, first_row: usize, rows: usize) -> Matrix<T> {
    Matrix::zeros(rows, x.rows * index(patch.len())).map_rows(|row, values| {
        for (channel, values) in values.chunks_exact_mut(index(patch.len())).enumerate() {
            for (value, position) in values.iter_mut().zip(positions(latent, patch, first_row + row)) {
                *value = x.row(channel)[position];
            }
        }
    })
}

/// The latent with these patches in it.
pub(super) fn unpatch<T: Number>(mut into: Matrix<T>, x: &Matrix<T>, latent: Grid, patch: Grid, first_row: usize) -> Matrix<T> {
    for row in 0..x.rows {
        for (values, position) in x.row(row).chunks_exact(into.rows).zip(positions(latent, patch, first_row + row)) {
            for (channel, value) in values.iter().enumerate() {
                into.row_mut(channel)[position] = *value;
            }
        }
    }
    into
}

/// A part of a latent.
#[derive(Clone, Copy)]
pub(super) struct Window {
    pub(super) latent: Grid,
    pub(super) first: [u64; 3],
    pub(super) extents: Grid,
}

pub(super) fn latent_rows<T: Number>(x: &Matrix<T>, mean: &Matrix<T>, deviation: &Matrix<T>, window: Window) -> Matrix<T> {
    let first = window.first.map(index);
    Matrix::zeros(index(window.extents.len()), x.rows).map_rows(|row, values| {
        let position = inside(window.latent, add(first, place(window.extents, row)));
        for (channel, value) in values.iter_mut().enumerate() {
            *value = x.row(channel)[position] * deviation.values[channel] + mean.values[channel];
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATENT: Grid = Grid { frames: 2, height: 4, width: 2 };
    const PATCH: Grid = Grid { frames: 1, height: 2, width: 2 };

    #[test]
    fn cosines_come_first() {
        let found = timestep_features::<f64>(500.0, 4).values;
        let expected = [500_f64.cos(), 5_f64.cos(), 500_f64.sin(), 5_f64.sin()];
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-10), "{found:?}");
    }

    #[test]
    fn a_patch_is_a_row_with_its_channels_outermost() {
        let x = Matrix::<f64>::of(16, &(0..32).map(f64::from).collect::<Vec<_>>());
        // The third patch is the first of the second frame.
        assert_eq!(patches(&x, LATENT, PATCH, 2, 1).values, [8.0, 9.0, 10.0, 11.0, 24.0, 25.0, 26.0, 27.0]);
        assert_eq!(patches(&x, LATENT, PATCH, 1, 1).values[..4], [4.0, 5.0, 6.0, 7.0]);
    }

    #[test]
    fn patches_are_put_back_with_their_channels_innermost() {
        let into = Matrix::<f64>::zeros(2, 16);
        let row = Matrix::of(8, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]);
        let found = unpatch(into, &row, LATENT, PATCH, 2);
        assert_eq!(found.row(0)[8..12], [1.0, 3.0, 5.0, 7.0]);
        assert_eq!(found.row(1)[8..12], [2.0, 4.0, 6.0, 8.0]);
        assert_eq!(found.values.iter().filter(|value| **value != 0.0).count(), 8);
    }

    #[test]
    fn a_window_of_a_latent_becomes_rows() {
        let x = Matrix::<f64>::of(16, &(0..32).map(f64::from).collect::<Vec<_>>());
        let window = Window { latent: LATENT, first: [1, 2, 0], extents: Grid { frames: 1, height: 1, width: 2 } };
        let found = latent_rows(&x, &Matrix::of(2, &[10.0, 20.0]), &Matrix::of(2, &[2.0, 0.5]), window);
        assert_eq!(found.values, [34.0, 34.0, 36.0, 34.5]);
    }
}
