//! Video sparse attention: tokens in tiles of a grid, tiles that attend to a few tiles.

use fv_spec::program::kernel::Grid;

use super::attention::{Head, place};
use super::matrix::Matrix;
use super::number::{Number, count, index};

/// Which tokens are in which tile. Tiles are numbered as tokens are: by frame, row and column.
pub(super) struct Tiles {
    tile_of: Vec<usize>,
    tokens: Vec<Vec<usize>>,
}

impl Tiles {
    pub(super) fn new(grid: Grid, tile: Grid) -> Self {
        let tiles = grid.tiles(tile);
        let (height, width) = (index(tiles.height), index(tiles.width));
        let mut tokens = vec![Vec::new(); index(tiles.len())];
        let mut tile_of = Vec::with_capacity(index(grid.len()));
        for token in 0..index(grid.len()) {
            let [frame, row, column] = place(grid, token);
            let at = (frame / index(tile.frames) * height + row / index(tile.height)) * width + column / index(tile.width);
            tokens[at].push(token);
            tile_of.push(at);
        }
        Self { tile_of, tokens }
    }

    pub(super) fn len(&self) -> usize {
        self.tokens.len()
    }

    pub(super) fn positions(&self) -> usize {
        self.tile_of.len()
    }
}

pub(super) fn means<T: Number>(x: &Matrix<T>, tiles: &Tiles) -> Matrix<T> {
    Matrix::zeros(tiles.len(), x.columns).map_rows(|tile, mean| {
        let tokens = &tiles.tokens[tile];
        for token in tokens {
            mean.iter_mut().zip(x.row(*token)).for_each(|(sum, value)| *sum = *sum + *value);
        }
        for sum in mean {
            *sum = *sum / count(tokens.len());
        }
    })
}

/// Outputs, and the chosen tiles of each head and tile.
pub(super) fn scores<T: Number>([q, k, v]: [&Matrix<T>; 3], head_dim: usize, scale: f64, keep: usize) -> (Matrix<T>, Matrix<T>) {
    let (tiles, heads) = (q.rows, q.columns / head_dim);
    let (mut outputs, mut chosen) = (Matrix::zeros(tiles, q.columns), Matrix::zeros(heads * tiles, keep));
    let (mut scores, mut best) = (Vec::with_capacity(tiles), Vec::with_capacity(tiles));
    for head in 0..heads {
        let first = head * head_dim;
        let of = Head { keys: k, values: v, first, dim: head_dim, scale };
        for tile in 0..tiles {
            of.scores(&q.row(tile)[first..first + head_dim], 0..tiles, &mut scores);
            of.weigh(&scores, 0..tiles, &mut outputs.row_mut(tile)[first..first + head_dim]);
            best.clear();
            best.extend(0..tiles);
            // Stable: of equal scores the first tile is the better one.
            best.sort_by(|a, b| scores[*b].wide().total_cmp(&scores[*a].wide()));
            chosen.row_mut(head * tiles + tile).iter_mut().zip(&best).for_each(|(to, tile)| *to = count(*tile));
        }
    }
    (outputs, chosen)
}

/// `chosen[head * tiles + tile]` are numbers of tiles.
pub(super) fn attention<T: Number>(
    [q, k, v]: [&Matrix<T>; 3],
    chosen: &[Vec<usize>],
    tiles: &Tiles,
    head_dim: usize,
    scale: f64,
) -> Matrix<T> {
    let mut result = Matrix::zeros(q.rows, q.columns);
    let mut scores = Vec::new();
    for head in 0..q.columns / head_dim {
        let first = head * head_dim;
        let of = Head { keys: k, values: v, first, dim: head_dim, scale };
        for (tile, queries) in tiles.tokens.iter().enumerate() {
            let tokens: Vec<usize> =
                chosen[head * tiles.len() + tile].iter().flat_map(|tile| tiles.tokens[*tile].iter().copied()).collect();
            for row in queries {
                of.scores(&q.row(*row)[first..first + head_dim], tokens.iter().copied(), &mut scores);
                of.weigh(&scores, tokens.iter().copied(), &mut result.row_mut(*row)[first..first + head_dim]);
            }
        }
    }
    result
}

pub(super) fn add<T: Number>(x: Matrix<T>, coarse: &Matrix<T>, gate: &Matrix<T>, tiles: &Tiles, first_row: usize) -> Matrix<T> {
    x.map_rows(|row, values| {
        let coarse = coarse.row(tiles.tile_of[first_row + row]);
        for ((value, coarse), gate) in values.iter_mut().zip(coarse).zip(gate.row(row)) {
            *value = *value + *coarse * *gate;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::attention;
    use super::*;

    const GRID: Grid = Grid { frames: 1, height: 3, width: 4 };
    const TILE: Grid = Grid { frames: 4, height: 2, width: 2 };

    fn wave(rows: usize, step: f64) -> Matrix<f64> {
        Matrix::of(4, &(0..rows * 4).map(|i| (count::<f64>(i) * step).sin()).collect::<Vec<_>>())
    }

    #[test]
    fn tiles_at_the_border_have_fewer_tokens() {
        let tiles = Tiles::new(GRID, TILE);
        assert_eq!(tiles.tokens, [vec![0, 1, 4, 5], vec![2, 3, 6, 7], vec![8, 9], vec![10, 11]]);
        assert_eq!(tiles.tile_of, [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3]);
        let x = Matrix::<f64>::of(1, &(0..12).map(f64::from).collect::<Vec<_>>());
        assert_eq!(means(&x, &tiles).values, [2.5, 4.5, 8.5, 10.5]);
    }

    #[test]
    fn the_best_tiles_come_first_and_of_equal_ones_the_earlier() {
        let q = Matrix::<f64>::of(1, &[1.0, -1.0, 1.0, 0.0]);
        let k = Matrix::of(1, &[0.0, 2.0, 1.0, 2.0]);
        let (outputs, chosen) = scores([&q, &k, &k], 1, 1.0, 3);
        assert_eq!(chosen.values, [1.0, 3.0, 2.0, 0.0, 2.0, 1.0, 1.0, 3.0, 2.0, 0.0, 1.0, 2.0]);
        assert_eq!(outputs.values, attention::attention(&q, &k, &k, None, 1, 1.0).values);
    }

    #[test]
    fn all_tiles_chosen_is_dense_attention() {
        let (tiles, q, k, v) = (Tiles::new(GRID, TILE), wave(12, 0.3), wave(12, 0.7), wave(12, 1.1));
        let found = attention([&q, &k, &v], &vec![vec![0, 1, 2, 3]; 8], &tiles, 2, 0.5);
        let dense = attention::attention(&q, &k, &v, None, 2, 0.5);
        assert!(found.values.iter().zip(&dense.values).all(|(a, b)| (a - b).abs() < 1e-14));
    }

    #[test]
    fn tokens_see_the_chosen_tiles_of_their_head_only() {
        let (tiles, q, k, v) = (Tiles::new(GRID, TILE), wave(12, 0.3), wave(12, 0.7), wave(12, 1.1));
        let mut chosen = vec![vec![0]; 8];
        chosen[4 + 1] = vec![3, 2];
        let found = attention([&q, &k, &v], &chosen, &tiles, 2, 0.5);
        let tokens = [10, 11, 8, 9];
        let score = |token: usize| ((2..4).map(|d| q.row(6)[d] * k.row(token)[d]).sum::<f64>() * 0.5).exp();
        let expected = tokens.map(|token| score(token) * v.row(token)[3]).iter().sum::<f64>() / tokens.map(score).iter().sum::<f64>();
        assert!((found.row(6)[3] - expected).abs() < 1e-14);
    }

    #[test]
    fn coarse_outputs_are_gated() {
        let tiles = Tiles::new(GRID, TILE);
        let coarse = Matrix::<f64>::of(1, &[1.0, 2.0, 3.0, 4.0]);
        let found = add(Matrix::of(1, &[10.0, 20.0]), &coarse, &Matrix::of(1, &[0.5, 2.0]), &tiles, 7);
        assert_eq!(found.values, [11.0, 26.0]);
    }
}
