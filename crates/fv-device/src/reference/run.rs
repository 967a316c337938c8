//! Kernels with their operands.

use fv_spec::program::Kernel;
use fv_spec::program::kernel::{Function, Grid};

use super::call::Call;
use super::matrix::Matrix;
use super::norms::Pair;
use super::number::{Number, index};
use super::sampling::{Step, Update};
use super::tiles::Tiles;
use super::video::{Convolution, Spread};
use super::{Mismatch, Written, attention, dense, latents, norms, sampling, storage, tiles, video};

type Results = Result<Vec<Written>, Mismatch>;

pub(super) fn kernel<T: Number>(kernel: &Kernel, step: &Step, call: &Call<'_>) -> Results {
    match *kernel {
        Kernel::Read { .. } | Kernel::Lookup { .. } | Kernel::Input { .. } | Kernel::Output { .. } => Err(Mismatch::Movement),
        Kernel::Copy => copy::<T>(call),
        Kernel::Zero => zero::<T>(call),
        Kernel::Product { bias, function } => product::<T>(call, bias, function),
        Kernel::Dequantise => dequantise::<T>(call),
        Kernel::Add => pairs::<T>(call, |a, b| a + b),
        Kernel::Multiply { function } => pairs::<T>(call, |a, b| dense::apply(function, a) * b),
        Kernel::Apply { function } => apply::<T>(call, function),
        Kernel::GatedAdd => gated_add::<T>(call),
        Kernel::LayerNorm { epsilon, affine, modulated } => layer_norm::<T>(call, epsilon, affine, modulated),
        Kernel::RmsNorm { epsilon } => weighted_norm::<T>(call, |x, weight| norms::rms_norm(x, epsilon, weight)),
        Kernel::UnitNorm { function } => weighted_norm::<T>(call, |x, weight| norms::unit_norm(x, function, weight)),
        Kernel::RotaryTable { grid, head_dim } => {
            call.count(0, 1)?;
            call.result(&attention::rotary_table::<T>(grid, index(head_dim)))
        }
        Kernel::Rotate { head_dim } => rotate::<T>(call, index(head_dim)),
        Kernel::Attention { head_dim, scale, bias } => attend::<T>(call, index(head_dim), scale, bias),
        Kernel::RelativeBias { max_distance } => relative_bias::<T>(call, max_distance),
        Kernel::TileMeans { grid, tile } => tile_means::<T>(call, &Tiles::new(grid, tile)),
        Kernel::TileScores { head_dim, scale, keep } => tile_scores::<T>(call, index(head_dim), scale, index(keep)),
        Kernel::TileAttention { grid, tile, head_dim, scale } => tile_attention::<T>(call, &Tiles::new(grid, tile), index(head_dim), scale),
        Kernel::TileAdd { grid, tile, first_row } => tile_add::<T>(call, &Tiles::new(grid, tile), index(first_row)),
        Kernel::TimestepFeatures => timestep::<T>(call, step.timestep),
        Kernel::Patches { latent, patch, first_row } => patches::<T>(call, latent, patch, index(first_row)),
        Kernel::Unpatch { latent, patch, first_row } => unpatch::<T>(call, latent, patch, index(first_row)),
        Kernel::Guide { scale } => pairs::<T>(call, |a, b| b + T::of(scale) * (a - b)),
        Kernel::Sample => sample::<T>(call, step.update),
        Kernel::LatentRows { latent, first, window } => latent_rows::<T>(call, latents::Window { latent, first, extents: window }),
        Kernel::Convolve { input, kernel, cached, residual } => convolve::<T>(call, input, kernel, index(cached), residual),
        Kernel::Upsample { input } => {
            call.count(1, 1)?;
            call.result(&video::upsample(&rows_of::<T>(call, 0, input)?, input))
        }
        Kernel::Spread { input, time, part, space } => {
            spread::<T>(call, &Spread { input, time: index(time), part: index(part), space: index(space) })
        }
        Kernel::Blend { tile, above, left } => blend::<T>(call, tile, above, left),
        Kernel::Pixels { input, patch } => pixels::<T>(call, input, index(patch)),
    }
}

/// Operand `at` with one row for each position of a grid.
fn rows_of<T: Number>(call: &Call<'_>, at: usize, grid: Grid) -> Result<Matrix<T>, Mismatch> {
    call.read_long(at, index(grid.len()))
}

/// Bytes stay as they are where the elements are the same: an integer may have more digits than a number has.
fn copy<T: Number>(call: &Call<'_>) -> Results {
    call.count(1, 1)?;
    let (source, target) = (&call.reads[0], &call.writes[0]);
    call.check(0, Some(target.rows), Some(target.columns))?;
    if source.element != target.element {
        return call.result(&call.read::<T>(0));
    }
    let bytes = source.row_bytes().flatten().copied().collect();
    Ok(vec![Written { bytes, has_nan: storage::is_float(source.element) && call.read::<T>(0).has_nan() }])
}

fn zero<T: Number>(call: &Call<'_>) -> Results {
    call.count(0, 1)?;
    call.result(&Matrix::<T>::zeros(call.writes[0].rows, call.writes[0].columns))
}

fn product<T: Number>(call: &Call<'_>, bias: bool, function: Function) -> Results {
    call.count(2 + usize::from(bias), 1)?;
    let x = call.read::<T>(0);
    let w = call.read_wide::<T>(1, x.columns)?;
    let bias = bias.then(|| call.read_as(2, 1, w.rows)).transpose()?;
    call.result(&dense::product(&x, &w, bias.as_ref(), function))
}

fn dequantise<T: Number>(call: &Call<'_>) -> Results {
    call.count(2, 1)?;
    let w = call.read::<T>(0);
    let scales = call.read_as(1, 1, w.rows)?;
    call.result(&dense::dequantise(w, &scales))
}

fn pairs<T: Number>(call: &Call<'_>, combine: impl Fn(T, T) -> T) -> Results {
    call.count(2, 1)?;
    let a = call.read::<T>(0);
    let b = call.read_wide(1, a.columns)?;
    call.result(&dense::pairs(a, &b, combine))
}

fn apply<T: Number>(call: &Call<'_>, function: Function) -> Results {
    call.count(1, 1)?;
    call.result(&call.read::<T>(0).map(|x| dense::apply(function, x)))
}

fn gated_add<T: Number>(call: &Call<'_>) -> Results {
    call.count(3, 1)?;
    let x = call.read::<T>(0);
    let (y, gate) = (call.read_as(1, x.rows, x.columns)?, call.read_as(2, 1, x.columns)?);
    call.result(&dense::gated_add(x, &y, &gate))
}

fn layer_norm<T: Number>(call: &Call<'_>, epsilon: f64, affine: bool, modulated: bool) -> Results {
    call.count(1 + 2 * (usize::from(affine) + usize::from(modulated)), 1)?;
    let x = call.read::<T>(0);
    let pair = |at: usize| -> Result<_, Mismatch> { Ok((call.read_as(at, 1, x.columns)?, call.read_as(at + 1, 1, x.columns)?)) };
    let weights = affine.then(|| pair(1)).transpose()?;
    let modulation = modulated.then(|| pair(if affine { 3 } else { 1 })).transpose()?;
    call.result(&norms::layer_norm(x, epsilon, both(weights.as_ref()), both(modulation.as_ref())))
}

fn both<T>(pair: Option<&(Matrix<T>, Matrix<T>)>) -> Pair<'_, T> {
    pair.map(|(a, b)| (a, b))
}

fn weighted_norm<T: Number>(call: &Call<'_>, norm: impl Fn(Matrix<T>, &Matrix<T>) -> Matrix<T>) -> Results {
    call.count(2, 1)?;
    let x = call.read::<T>(0);
    let weight = call.read_as(1, 1, x.columns)?;
    call.result(&norm(x, &weight))
}

fn rotate<T: Number>(call: &Call<'_>, head_dim: usize) -> Results {
    call.count(2, 1)?;
    let x = call.read::<T>(0);
    let table = call.read_as(1, x.rows, head_dim)?;
    call.result(&attention::rotate(x, &table))
}

fn attend<T: Number>(call: &Call<'_>, head_dim: usize, scale: f64, bias: bool) -> Results {
    call.count(3 + usize::from(bias), 1)?;
    let q = call.read::<T>(0);
    let k = call.read_wide::<T>(1, q.columns)?;
    let v = call.read_as(2, k.rows, q.columns)?;
    let bias = bias.then(|| call.read_as(3, q.columns / head_dim * q.rows, k.rows)).transpose()?;
    call.result(&attention::attention(&q, &k, &v, bias.as_ref(), head_dim, scale))
}

fn relative_bias<T: Number>(call: &Call<'_>, max_distance: u64) -> Results {
    call.count(1, 1)?;
    call.result(&attention::relative_bias(&call.read::<T>(0), call.writes[0].columns, max_distance))
}

fn tile_means<T: Number>(call: &Call<'_>, tiles: &Tiles) -> Results {
    call.count(1, 1)?;
    call.result(&tiles::means(&call.read_long::<T>(0, tiles.positions())?, tiles))
}

/// Queries, keys and values of as many rows.
fn triple<T: Number>(call: &Call<'_>, rows: usize) -> Result<[Matrix<T>; 3], Mismatch> {
    let q = call.read_long::<T>(0, rows)?;
    let (k, v) = (call.read_as(1, rows, q.columns)?, call.read_as(2, rows, q.columns)?);
    Ok([q, k, v])
}

fn tile_scores<T: Number>(call: &Call<'_>, head_dim: usize, scale: f64, keep: usize) -> Results {
    call.count(3, 2)?;
    let means = triple::<T>(call, call.reads[0].rows)?;
    let (outputs, chosen) = tiles::scores(means.each_ref(), head_dim, scale, keep);
    call.results(&[outputs, chosen])
}

fn tile_attention<T: Number>(call: &Call<'_>, tiles: &Tiles, head_dim: usize, scale: f64) -> Results {
    call.count(4, 1)?;
    let tokens = triple::<T>(call, tiles.positions())?;
    let numbers = call.read_long::<f64>(3, tokens[0].columns / head_dim * tiles.len())?;
    let number = |found: &f64| {
        let tile = storage::as_whole(*found).map(index).filter(|tile| *tile < tiles.len());
        tile.ok_or_else(|| Mismatch::Tile { found: found.to_string(), tiles: tiles.len() })
    };
    let chosen: Vec<Vec<usize>> = (0..numbers.rows).map(|row| numbers.row(row).iter().map(number).collect()).collect::<Result<_, _>>()?;
    call.result(&tiles::attention(tokens.each_ref(), &chosen, tiles, head_dim, scale))
}

fn tile_add<T: Number>(call: &Call<'_>, tiles: &Tiles, first_row: usize) -> Results {
    call.count(3, 1)?;
    let x = call.read::<T>(0);
    let (coarse, gate) = (call.read_as(1, tiles.len(), x.columns)?, call.read_as(2, x.rows, x.columns)?);
    call.result(&tiles::add(x, &coarse, &gate, tiles, first_row))
}

fn timestep<T: Number>(call: &Call<'_>, timestep: f64) -> Results {
    call.count(0, 1)?;
    call.result(&latents::timestep_features::<T>(timestep, call.writes[0].columns))
}

fn patches<T: Number>(call: &Call<'_>, latent: Grid, patch: Grid, first_row: usize) -> Results {
    call.count(1, 1)?;
    let x = call.read_wide::<T>(0, index(latent.len()))?;
    call.result(&latents::patches(&x, latent, patch, first_row, call.writes[0].rows))
}

/// Only some elements of the target are written: whether they are numbers is what the source says.
fn unpatch<T: Number>(call: &Call<'_>, latent: Grid, patch: Grid, first_row: usize) -> Results {
    call.count(1, 1)?;
    let target = Matrix::<T>::load(&call.writes[0]);
    let x = call.read_wide(0, index(patch.len()) * target.rows)?;
    let has_nan = x.has_nan();
    let mut written = call.result(&latents::unpatch(target, &x, latent, patch, first_row))?;
    written[0].has_nan = has_nan;
    Ok(written)
}

fn sample<T: Number>(call: &Call<'_>, update: Update) -> Results {
    let (reads, writes) = match update {
        Update::Euler { .. } => (2, 1),
        Update::Renoise { next, .. } => (2 + usize::from(next != 0.0), 1),
        Update::Multistep { .. } => (5, 4),
    };
    call.count(reads, writes)?;
    let x = call.read::<T>(0);
    let others: Vec<Matrix<T>> = (1..reads).map(|at| call.read_as(at, x.rows, x.columns)).collect::<Result<_, _>>()?;
    call.results(&sampling::step(update, x, &others[0], &others[1..]))
}

fn latent_rows<T: Number>(call: &Call<'_>, window: latents::Window) -> Results {
    call.count(3, 1)?;
    let x = call.read_wide::<T>(0, index(window.latent.len()))?;
    let (mean, deviation) = (call.read_as(1, 1, x.rows)?, call.read_as(2, 1, x.rows)?);
    call.result(&latents::latent_rows(&x, &mean, &deviation, window))
}

fn convolve<T: Number>(call: &Call<'_>, input: Grid, kernel: Grid, cached: usize, residual: bool) -> Results {
    call.count(3 + cached + usize::from(residual), 1)?;
    let x = rows_of::<T>(call, 0, input)?;
    let weights = call.read_wide::<T>(1, index(kernel.len()) * x.columns)?;
    let bias = call.read_as(2, 1, weights.rows)?;
    let pixels = index(input.height * input.width);
    let before: Vec<_> = (3..3 + cached).map(|at| call.read_as(at, pixels, x.columns)).collect::<Result<_, _>>()?;
    let residual = residual.then(|| call.read_as(3 + cached, x.rows, weights.rows)).transpose()?;
    let of = Convolution { input, kernel, weights: &weights, bias: &bias, before: &before, residual: residual.as_ref() };
    call.result(&of.of(&x))
}

fn spread<T: Number>(call: &Call<'_>, of: &Spread) -> Results {
    call.count(2, 1)?;
    let x = rows_of::<T>(call, 1, of.input)?;
    let y = call.read_long::<T>(0, x.rows * of.space * of.space)?;
    call.result(&video::spread(y, &x, of))
}

fn blend<T: Number>(call: &Call<'_>, tile: Grid, above: u64, left: u64) -> Results {
    call.count(1 + usize::from(above > 0) + usize::from(left > 0), 1)?;
    let x = rows_of::<T>(call, 0, tile)?;
    let edge = |at: usize, grid: Grid| call.read_as::<T>(at, index(grid.len()), x.columns);
    let rows = (above > 0).then(|| edge(1, Grid { height: above, ..tile })).transpose()?;
    let columns = (left > 0).then(|| edge(1 + usize::from(above > 0), Grid { width: left, ..tile })).transpose()?;
    call.result(&video::blend(x, tile, rows.as_ref(), columns.as_ref()))
}

fn pixels<T: Number>(call: &Call<'_>, input: Grid, patch: usize) -> Results {
    call.count(1, 1)?;
    let colours = video::pixels(&rows_of::<T>(call, 0, input)?, input, patch);
    let bytes = call.writes[0].element == fv_spec::program::Element::U8;
    call.result(&if bytes { video::as_bytes(colours) } else { colours })
}
