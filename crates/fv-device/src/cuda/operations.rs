//! Operations as launches of kernels. What kernels take for granted is checked here: they read and write what their operands say
//! and nothing else.

use cudarc::driver::{CudaStream, DeviceRepr, LaunchConfig, PushKernelArg, sys};
use fv_spec::program::kernel::{Function, Grid as Extents};
use fv_spec::program::{Element, Kernel, View};

use super::arguments::{
    Attention, Dequantise, GatedAdd, Grid, LayerNorm, Matrix, Patches, Pointwise, Product, RelativeBias, RmsNorm, RotaryTable, Rotate,
    Sample, TileAdd, TileMeans, TileScores, TimestepFeatures, function,
};
use super::device::{Device, Operand};
use super::products::Products;
use super::{Error, asked, index};
use crate::reference::{Step, Update};

/// Threads of a block: `THREADS` in the kernels.
const THREADS: u32 = 256;
/// Threads of a block of attention.
const ATTENTION_THREADS: u32 = 128;
/// Features of a head that matrix units are used for.
const HEAD: u64 = 128;
/// Queries of a block of dense attention.
const QUERIES: u32 = 128;
/// Bytes of 64 rows of a head.
const TILE_BYTES: u32 = 64 * 128 * 2;
/// Shared memory that a kernel may use: what a block can have on every architecture that is built for.
const MOST_SHARED_BYTES: u32 = 99 << 10;
/// Columns of a row that norms keep in registers.
const MOST_COLUMNS: u32 = THREADS * 8 * 4;

/// Of `Pointwise` in the kernels.
const APPLY: u32 = 0;
const ADD: u32 = 1;
const MULTIPLY: u32 = 2;
const GUIDE: u32 = 3;

/// An operation with its operands.
pub(super) struct Call<'a> {
    pub(super) device: &'a Device,
    pub(super) stream: &'a CudaStream,
    pub(super) kernel: &'a Kernel,
    pub(super) step: &'a Step,
    pub(super) reads: &'a [Operand<'a>],
    pub(super) writes: &'a [Operand<'a>],
}

/// A grid of blocks.
struct Blocks {
    grid: (u32, u32, u32),
    threads: u32,
    shared_bytes: u32,
}

impl Blocks {
    /// As many blocks as so many threads need.
    fn of(threads: u64) -> Self {
        Self { grid: (u32::try_from(threads.div_ceil(THREADS.into())).unwrap_or(u32::MAX), 1, 1), threads: THREADS, shared_bytes: 0 }
    }

    /// One block for each row.
    fn rows(rows: u32) -> Self {
        Self { grid: (rows, 1, 1), threads: THREADS, shared_bytes: 0 }
    }
}

impl Call<'_> {
    pub(super) fn launch(&self) -> Result<(), Error> {
        let empty = |operand: &Operand<'_>| operand.view.is_empty();
        if self.writes.iter().all(empty) {
            return Ok(());
        }
        match *self.kernel {
            Kernel::Copy => self.copy(),
            Kernel::Zero => self.zero(),
            Kernel::Product { bias, function } => self.product(bias, function),
            Kernel::Dequantise => self.dequantise(),
            Kernel::Add => self.pointwise(ADD, Function::Identity, 0.0),
            Kernel::Multiply { function } => self.pointwise(MULTIPLY, function, 0.0),
            Kernel::Apply { function } => self.pointwise(APPLY, function, 0.0),
            Kernel::Guide { scale } => self.pointwise(GUIDE, Function::Identity, scale),
            Kernel::GatedAdd => self.gated_add(),
            Kernel::LayerNorm { epsilon, affine, modulated } => self.layer_norm(epsilon, affine, modulated),
            Kernel::RmsNorm { epsilon } => self.rms_norm(epsilon),
            Kernel::RotaryTable { grid, head_dim } => self.rotary_table(grid, head_dim),
            Kernel::Rotate { head_dim } => self.rotate(head_dim),
            Kernel::Attention { head_dim, scale, bias } => self.attention(head_dim, scale, bias),
            Kernel::RelativeBias { max_distance } => self.relative_bias(max_distance),
            Kernel::TileMeans { grid, tile } => self.tile_means(grid, tile),
            Kernel::TileScores { head_dim, scale, keep } => self.tile_scores(head_dim, scale, keep),
            Kernel::TileAttention { grid, tile, head_dim, scale } => self.tile_attention(grid, tile, head_dim, scale),
            Kernel::TileAdd { grid, tile, first_row } => self.tile_add(grid, tile, first_row),
            Kernel::TimestepFeatures => self.timestep_features(),
            Kernel::Patches { latent, patch, first_row } => self.patches(latent, patch, first_row),
            Kernel::Unpatch { latent, patch, first_row } => self.unpatch(latent, patch, first_row),
            Kernel::Sample => self.sample(),
            _ => Err(self.unsupported("on a device")),
        }
    }

    /// No kernel takes these operands.
    fn unsupported(&self, why: &str) -> Error {
        let words = |operands: &[Operand<'_>]| -> Vec<String> {
            let word = |view: &View| format!("{} x {} {}", view.rows, view.columns, view.element.word());
            operands.iter().map(|operand| word(&operand.view)).collect()
        };
        Error::Unsupported(format!("{:?} {why}: {} to {}", self.kernel, words(self.reads).join(", "), words(self.writes).join(", ")))
    }

    /// Refuses the operands unless they are as they have to be.
    fn need(&self, holds: bool, why: &str) -> Result<(), Error> {
        if holds { Ok(()) } else { Err(self.unsupported(why)) }
    }

    fn count(&self, reads: usize, writes: usize) -> Result<(), Error> {
        self.need((self.reads.len(), self.writes.len()) == (reads, writes), "with so many operands")
    }

    fn matrix(&self, operand: &Operand<'_>) -> Result<Matrix, Error> {
        self.need(operand.on_device(), "outside device memory")?;
        Matrix::new(operand.address()?, &operand.view).ok_or_else(|| self.unsupported("of these formats or extents"))
    }

    fn read(&self, at: usize) -> Result<Matrix, Error> {
        self.matrix(&self.reads[at])
    }

    /// Of these extents.
    fn read_as(&self, at: usize, rows: u32, columns: u32) -> Result<Matrix, Error> {
        let matrix = self.read(at)?;
        self.need((matrix.rows, matrix.columns) == (rows, columns), "of these extents")?;
        Ok(matrix)
    }

    /// Of a format that kernels write.
    fn write(&self, at: usize) -> Result<Matrix, Error> {
        let matrix = self.matrix(&self.writes[at])?;
        self.need(is(&matrix, Element::F32) || is(&matrix, Element::Bf16), "to this format")?;
        Ok(matrix)
    }

    /// Of these extents.
    fn write_as(&self, at: usize, rows: u32, columns: u32) -> Result<Matrix, Error> {
        let matrix = self.write(at)?;
        self.need((matrix.rows, matrix.columns) == (rows, columns), "to these extents")?;
        Ok(matrix)
    }

    fn grid(&self, extents: Extents) -> Result<Grid, Error> {
        self.need(!extents.is_empty() && extents.len() <= u32::MAX.into(), "over this grid")?;
        Grid::new(extents).ok_or_else(|| self.unsupported("over this grid"))
    }

    /// Kernels that take 16 bytes at a time want this.
    fn need_eight(&self, matrices: &[&Matrix]) -> Result<(), Error> {
        self.need(matrices.iter().all(|matrix| eight(matrix)), "but for bf16 with columns in eights")
    }

    /// A row of floats that is read 32 bytes at a time.
    fn need_floats(&self, matrix: &Matrix) -> Result<(), Error> {
        let aligned = matrix.data.is_multiple_of(16) && matrix.pitch.is_multiple_of(4);
        self.need(is(matrix, Element::F32) && aligned, "but for f32 where it is exact")
    }

    /// Queues a kernel.
    fn start<T: DeviceRepr>(&self, file: &'static str, name: &'static str, blocks: &Blocks, arguments: &T) -> Result<(), Error> {
        let function = self.device.modules.function(file, name)?;
        let what = || format!("kernel {name}");
        if blocks.shared_bytes > 48 << 10 {
            let bytes = i32::try_from(blocks.shared_bytes).unwrap_or(i32::MAX);
            let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            asked(what, function.set_attribute(attribute, bytes))?;
        }
        let config = LaunchConfig { grid_dim: blocks.grid, block_dim: (blocks.threads, 1, 1), shared_mem_bytes: blocks.shared_bytes };
        let mut launch = self.stream.launch_builder(&function);
        launch.arg(arguments);
        // SAFETY: the kernel takes this struct, and reads and writes only what its matrices say, which lie in arenas that wait for
        // the device before they are freed.
        #[expect(unsafe_code, reason = "a kernel can do anything")]
        let answer = unsafe { launch.launch(config) };
        asked(what, answer).map(|_| ())
    }

    /// Bytes stay as they are where formats are the same, whichever memory they are in; formats are changed on the device.
    fn copy(&self) -> Result<(), Error> {
        self.count(1, 1)?;
        let (source, target) = (&self.reads[0], &self.writes[0]);
        self.need((source.view.rows, source.view.columns) == (target.view.rows, target.view.columns), "of these extents")?;
        if source.view.element != target.view.element {
            return self.pointwise(APPLY, Function::Identity, 0.0);
        }
        // Rows without gaps are one long row.
        let together = source.view.pitch == source.view.columns && target.view.pitch == target.view.columns;
        let size = source.view.element.bytes();
        let (rows, width) = if together { (1, source.view.bytes()) } else { (source.view.rows, source.view.columns * size) };
        let pitch = |view: &View| if together { width } else { view.pitch * size };
        // Addresses of the host and of the device are one space.
        let unified = sys::CUmemorytype::CU_MEMORYTYPE_UNIFIED;
        let copy = sys::CUDA_MEMCPY2D {
            srcXInBytes: 0,
            srcY: 0,
            srcMemoryType: unified,
            srcHost: std::ptr::null(),
            srcDevice: source.address()?,
            srcArray: std::ptr::null_mut(),
            srcPitch: index(pitch(&source.view)),
            dstXInBytes: 0,
            dstY: 0,
            dstMemoryType: unified,
            dstHost: std::ptr::null_mut(),
            dstDevice: target.address()?,
            dstArray: std::ptr::null_mut(),
            dstPitch: index(pitch(&target.view)),
            WidthInBytes: index(width),
            Height: index(rows),
        };
        let what = || format!("a copy of {rows} rows of {width} bytes");
        if rows == 1 {
            // SAFETY: both lie in arenas, which wait for the device before they are freed.
            #[expect(unsafe_code, reason = "the driver takes addresses")]
            let answer = unsafe { sys::cuMemcpyAsync(copy.dstDevice, copy.srcDevice, copy.WidthInBytes, self.stream.cu_stream()) };
            return asked(what, answer.result());
        }
        // SAFETY: as above; rows of both lie within the spans that were checked.
        #[expect(unsafe_code, reason = "the driver takes addresses")]
        let answer = unsafe { sys::cuMemcpy2DAsync_v2(&raw const copy, self.stream.cu_stream()) };
        asked(what, answer.result())
    }

    fn zero(&self) -> Result<(), Error> {
        self.count(0, 1)?;
        let target = &self.writes[0];
        self.need(target.on_device(), "outside device memory")?;
        let size = target.view.element.bytes();
        let (width, pitch) = (index(target.view.columns * size), index(target.view.pitch * size));
        let address = target.address()?;
        // SAFETY: all of it lies in an arena, which waits for the device before it is freed.
        #[expect(unsafe_code, reason = "the driver takes an address")]
        let answer = unsafe { sys::cuMemsetD2D8Async(address, pitch, 0, width, index(target.view.rows), self.stream.cu_stream()) };
        asked(|| "zeros".to_owned(), answer.result())
    }

    fn product(&self, bias: bool, of: Function) -> Result<(), Error> {
        self.count(2 + usize::from(bias), 1)?;
        let (x, w) = (self.read(0)?, self.read(1)?);
        self.need(x.columns == w.columns, "of these extents")?;
        let bias = bias.then(|| self.read_as(2, 1, w.rows)).transpose()?;
        let target = self.write_as(0, x.rows, w.rows)?;
        let library = Products::takes(&[&x, &w, &target]) && bias.is_none_or(|bias| is(&bias, Element::Bf16)) && of != Function::Silu;
        if library {
            let products = self.device.products()?;
            return products.multiply(self.stream, (&x, &w, &target), bias.as_ref(), of == Function::GeluTanh);
        }
        let warps = u64::from(target.rows) * u64::from(target.columns);
        let biased = u32::from(bias.is_some());
        let arguments = Product { x, w, bias: bias.unwrap_or(Matrix::NONE), target, biased, function: function(of) };
        self.start("products", "product", &Blocks::of(warps * 32), &arguments)
    }

    fn dequantise(&self) -> Result<(), Error> {
        self.count(2, 1)?;
        let weights = self.read(0)?;
        let scales = self.read_as(1, 1, weights.rows)?;
        let target = self.write_as(0, weights.rows, weights.columns)?;
        let bytes = is(&weights, Element::Fp8) || is(&weights, Element::Int8);
        let aligned = weights.data.is_multiple_of(16) && weights.pitch.is_multiple_of(16) && weights.columns.is_multiple_of(16);
        self.need(bytes && aligned && is(&scales, Element::F32) && eight(&target), "but for bytes with columns in sixteens")?;
        let threads = u64::from(target.rows) * u64::from(target.columns / 16);
        self.start("elementwise", "dequantise", &Blocks::of(threads), &Dequantise { weights, scales, target })
    }

    /// One or two operands, of which the second may have fewer rows.
    fn pointwise(&self, op: u32, of: Function, scale: f64) -> Result<(), Error> {
        let two = op != APPLY;
        self.count(1 + usize::from(two), 1)?;
        let target = self.write(0)?;
        let a = self.read_as(0, target.rows, target.columns)?;
        let b = if two { self.read(1)? } else { a };
        self.need(b.columns == a.columns && b.rows > 0, "of these extents")?;
        let arguments = Pointwise { a, b, target, op, function: function(of), scale: narrow(scale), reserved: 0 };
        let elements = u64::from(target.rows) * u64::from(target.columns);
        if op != GUIDE && b.rows == a.rows && [&a, &b, &target].into_iter().all(eight) {
            return self.start("elementwise", "pointwise_eight", &Blocks::of(elements / 8), &arguments);
        }
        self.start("elementwise", "pointwise", &Blocks::of(elements), &arguments)
    }

    fn gated_add(&self) -> Result<(), Error> {
        self.count(3, 1)?;
        let target = self.write(0)?;
        let (x, y) = (self.read_as(0, target.rows, target.columns)?, self.read_as(1, target.rows, target.columns)?);
        let gate = self.read_as(2, 1, target.columns)?;
        self.need_eight(&[&x, &y, &target])?;
        self.need_floats(&gate)?;
        let threads = u64::from(target.rows) * u64::from(target.columns / 8);
        self.start("elementwise", "gated_add", &Blocks::of(threads), &GatedAdd { x, y, gate, target })
    }

    /// Rows that a norm keeps in registers.
    fn need_row(&self, x: &Matrix, target: &Matrix) -> Result<(), Error> {
        self.need_eight(&[x, target])?;
        self.need(x.columns <= MOST_COLUMNS, &format!("of more than {MOST_COLUMNS} columns"))
    }

    fn layer_norm(&self, epsilon: f64, affine: bool, modulated: bool) -> Result<(), Error> {
        self.count(1 + 2 * (usize::from(affine) + usize::from(modulated)), 1)?;
        let target = self.write(0)?;
        let x = self.read_as(0, target.rows, target.columns)?;
        self.need_row(&x, &target)?;
        let pair = |at: usize| -> Result<_, Error> { Ok((self.read_as(at, 1, x.columns)?, self.read_as(at + 1, 1, x.columns)?)) };
        let (mut weight, mut bias, mut shift, mut scale) = (Matrix::NONE, Matrix::NONE, Matrix::NONE, Matrix::NONE);
        if affine {
            (weight, bias) = pair(1)?;
            self.need_eight(&[&weight, &bias])?;
        }
        if modulated {
            (shift, scale) = pair(if affine { 3 } else { 1 })?;
            self.need_floats(&shift)?;
            self.need_floats(&scale)?;
        }
        let (affine, modulated) = (affine.into(), modulated.into());
        let arguments = LayerNorm { x, weight, bias, shift, scale, target, epsilon: narrow(epsilon), affine, modulated, reserved: 0 };
        self.start("norms", "layer_norm", &Blocks::rows(x.rows), &arguments)
    }

    fn rms_norm(&self, epsilon: f64) -> Result<(), Error> {
        self.count(2, 1)?;
        let target = self.write(0)?;
        let x = self.read_as(0, target.rows, target.columns)?;
        let weight = self.read_as(1, 1, x.columns)?;
        self.need_row(&x, &target)?;
        self.need_eight(&[&weight])?;
        let arguments = RmsNorm { x, weight, target, epsilon: narrow(epsilon), reserved: 0 };
        self.start("norms", "rms_norm", &Blocks::rows(x.rows), &arguments)
    }

    fn rotary_table(&self, grid: Extents, head_dim: u64) -> Result<(), Error> {
        self.count(0, 1)?;
        let target = self.write(0)?;
        let fits = u64::from(target.rows) == grid.len() && u64::from(target.columns) == head_dim && head_dim.is_multiple_of(2);
        self.need(fits, "of these extents")?;
        let arguments = RotaryTable { target, grid: self.grid(grid)?, reserved: 0 };
        self.start("positions", "rotary_table", &Blocks::of(u64::from(target.rows) * (head_dim / 2)), &arguments)
    }

    fn rotate(&self, head_dim: u64) -> Result<(), Error> {
        self.count(2, 1)?;
        let target = self.write(0)?;
        let x = self.read_as(0, target.rows, target.columns)?;
        let table = self.read_as(1, x.rows, self.small(head_dim)?)?;
        self.need(head_dim >= 2 && head_dim.is_multiple_of(2) && u64::from(x.columns).is_multiple_of(head_dim), "of these extents")?;
        let arguments = Rotate { x, table, target };
        let pairs = u64::from(x.rows) * u64::from(x.columns / 2);
        let floats = is(&table, Element::F32) && table.data.is_multiple_of(16) && table.pitch.is_multiple_of(4);
        if head_dim.is_multiple_of(8) && eight(&x) && eight(&target) && floats {
            return self.start("positions", "rotate_eight", &Blocks::of(pairs / 4), &arguments);
        }
        self.start("positions", "rotate", &Blocks::of(pairs), &arguments)
    }

    fn small(&self, value: u64) -> Result<u32, Error> {
        u32::try_from(value).map_err(|_| self.unsupported("of these extents"))
    }

    /// Heads of a matrix.
    fn heads(&self, columns: u32, head_dim: u64) -> Result<u32, Error> {
        self.need((1..=256).contains(&head_dim) && u64::from(columns).is_multiple_of(head_dim), "of these heads")?;
        Ok(columns / self.small(head_dim)?)
    }

    fn attention(&self, head_dim: u64, scale: f64, biased: bool) -> Result<(), Error> {
        self.count(3 + usize::from(biased), 1)?;
        let q = self.read(0)?;
        let heads = self.heads(q.columns, head_dim)?;
        let k = self.read(1)?;
        self.need(k.columns == q.columns && k.rows > 0, "of these extents")?;
        let v = self.read_as(2, k.rows, k.columns)?;
        let target = self.write_as(0, q.rows, q.columns)?;
        let bias = if biased { self.read_as(3, heads * q.rows, k.rows)? } else { Matrix::NONE };
        let none = Grid { frames: 0, height: 0, width: 0 };
        let arguments = Attention {
            q,
            k,
            v,
            bias,
            chosen: Matrix::NONE,
            target,
            grid: none,
            tile: none,
            head_dim: self.small(head_dim)?,
            scale: narrow(scale),
            biased: biased.into(),
            reserved: 0,
        };
        if head_dim == HEAD && !biased && [&q, &k, &v, &target].into_iter().all(eight) {
            let blocks = Blocks { grid: (q.rows.div_ceil(QUERIES), heads, 1), threads: ATTENTION_THREADS, shared_bytes: 6 * TILE_BYTES };
            return self.start("attention", "attention", &blocks, &arguments);
        }
        let blocks = Blocks { grid: (q.rows, heads, 1), threads: 32, shared_bytes: 0 };
        self.start("attention", "attention_any", &blocks, &arguments)
    }

    fn relative_bias(&self, max_distance: u64) -> Result<(), Error> {
        self.count(1, 1)?;
        let (table, target) = (self.read(0)?, self.write(0)?);
        self.need(target.rows == table.columns * target.columns && table.rows >= 4, "of these extents")?;
        let arguments = RelativeBias { table, target, max_distance: self.small(max_distance)?, reserved: 0 };
        self.start("attention", "relative_bias", &Blocks::of(u64::from(target.rows) * u64::from(target.columns)), &arguments)
    }

    /// Extents of the tokens and of a tile.
    fn tiling(&self, grid: Extents, tile: Extents) -> Result<(Grid, Grid, u32), Error> {
        let (tokens, within) = (self.grid(grid)?, self.grid(tile)?);
        Ok((tokens, within, self.small(grid.tiles(tile).len())?))
    }

    fn tile_means(&self, grid: Extents, tile: Extents) -> Result<(), Error> {
        self.count(1, 1)?;
        let (x, target) = (self.read(0)?, self.write(0)?);
        let (tokens, within, tiles) = self.tiling(grid, tile)?;
        let fits = u64::from(x.rows) == grid.len() && (target.rows, target.columns) == (tiles, x.columns);
        self.need(fits && x.columns.is_multiple_of(2), "of these extents")?;
        let pairs = is(&x, Element::Bf16) && x.data.is_multiple_of(4) && x.pitch.is_multiple_of(2);
        self.need(pairs, "but for bf16 with columns in pairs")?;
        self.start("tiles", "tile_means", &Blocks::rows(tiles), &TileMeans { x, target, grid: tokens, tile: within })
    }

    fn tile_scores(&self, head_dim: u64, scale: f64, keep: u64) -> Result<(), Error> {
        self.count(3, 2)?;
        let q = self.read(0)?;
        let (k, v) = (self.read_as(1, q.rows, q.columns)?, self.read_as(2, q.rows, q.columns)?);
        let heads = self.heads(q.columns, head_dim)?;
        let outputs = self.write_as(0, q.rows, q.columns)?;
        let chosen = self.matrix(&self.writes[1])?;
        let fits = chosen.rows == heads * q.rows && u64::from(chosen.columns) == keep && keep <= u64::from(q.rows);
        self.need(fits && is(&chosen, Element::I32), "of these extents")?;
        let places = q.rows.max(2).next_power_of_two();
        let shared_bytes = places.saturating_mul(12);
        // Beside it, the kernel has 2,080 bytes of its own.
        self.need(shared_bytes <= MOST_SHARED_BYTES - 2080, "of so many tiles")?;
        self.need([&q, &k, &v].into_iter().all(|means| is(means, Element::F32)), "but for f32")?;
        let blocks = Blocks { grid: (q.rows, heads, 1), threads: THREADS, shared_bytes };
        let head_dim = self.small(head_dim)?;
        let arguments = TileScores { q, k, v, outputs, chosen, head_dim, places, scale: narrow(scale), reserved: 0 };
        self.start("tiles", "tile_scores", &blocks, &arguments)
    }

    fn tile_attention(&self, grid: Extents, tile: Extents, head_dim: u64, scale: f64) -> Result<(), Error> {
        self.count(4, 1)?;
        let q = self.read(0)?;
        let (k, v, target) =
            (self.read_as(1, q.rows, q.columns)?, self.read_as(2, q.rows, q.columns)?, self.write_as(0, q.rows, q.columns)?);
        let heads = self.heads(q.columns, head_dim)?;
        let (tokens, within, tiles) = self.tiling(grid, tile)?;
        let chosen = self.read(3)?;
        let fits = u64::from(q.rows) == grid.len() && chosen.rows == heads * tiles && chosen.columns > 0;
        self.need(fits && is(&chosen, Element::I32) && tile.len() <= 64, "of these tiles")?;
        let arguments = Attention {
            q,
            k,
            v,
            bias: Matrix::NONE,
            chosen,
            target,
            grid: tokens,
            tile: within,
            head_dim: self.small(head_dim)?,
            scale: narrow(scale),
            biased: 0,
            reserved: 0,
        };
        if head_dim == HEAD && [&q, &k, &v, &target].into_iter().all(eight) {
            let blocks = Blocks { grid: (tiles, heads, 1), threads: ATTENTION_THREADS, shared_bytes: 5 * TILE_BYTES };
            return self.start("attention", "tile_attention", &blocks, &arguments);
        }
        let blocks = Blocks { grid: (tiles, heads, self.small(tile.len())?), threads: 32, shared_bytes: 0 };
        self.start("attention", "tile_attention_any", &blocks, &arguments)
    }

    fn tile_add(&self, grid: Extents, tile: Extents, first_row: u64) -> Result<(), Error> {
        self.count(3, 1)?;
        let target = self.write(0)?;
        let (tokens, within, tiles) = self.tiling(grid, tile)?;
        let (x, gate) = (self.read_as(0, target.rows, target.columns)?, self.read_as(2, target.rows, target.columns)?);
        let coarse = self.read_as(1, tiles, target.columns)?;
        self.need(first_row + u64::from(target.rows) <= grid.len(), "of these rows")?;
        self.need_eight(&[&x, &coarse, &gate, &target])?;
        let threads = u64::from(target.rows) * u64::from(target.columns / 8);
        let first_row = self.small(first_row)?;
        let arguments = TileAdd { x, coarse, gate, target, grid: tokens, tile: within, first_row, reserved: 0 };
        self.start("tiles", "tile_add", &Blocks::of(threads), &arguments)
    }

    fn timestep_features(&self) -> Result<(), Error> {
        self.count(0, 1)?;
        let target = self.write(0)?;
        self.need(target.rows == 1 && target.columns.is_multiple_of(2), "of these extents")?;
        let arguments = TimestepFeatures { target, timestep: self.step.timestep };
        self.start("positions", "timestep_features", &Blocks::of(u64::from(target.columns / 2)), &arguments)
    }

    /// A latent and rows of patches.
    fn patching(&self, whole: Matrix, rows: Matrix, [latent, patch]: [Extents; 2], first_row: u64) -> Result<Patches, Error> {
        let divided = [(latent.frames, patch.frames), (latent.height, patch.height), (latent.width, patch.width)];
        self.need(divided.iter().all(|(whole, part)| *part > 0 && whole.is_multiple_of(*part)), "of these patches")?;
        let fits = u64::from(whole.columns) == latent.len()
            && u64::from(rows.columns) == u64::from(whole.rows) * patch.len()
            && first_row + u64::from(rows.rows) <= latent.len() / patch.len();
        self.need(fits, "of these extents")?;
        let (latent, patch) = (self.grid(latent)?, self.grid(patch)?);
        Ok(Patches { whole, rows, latent, patch, first_row: self.small(first_row)?, reserved: 0 })
    }

    fn patches(&self, latent: Extents, patch: Extents, first_row: u64) -> Result<(), Error> {
        self.count(1, 1)?;
        let arguments = self.patching(self.read(0)?, self.write(0)?, [latent, patch], first_row)?;
        let threads = u64::from(arguments.rows.rows) * u64::from(arguments.rows.columns);
        self.start("latents", "patches", &Blocks::of(threads), &arguments)
    }

    fn unpatch(&self, latent: Extents, patch: Extents, first_row: u64) -> Result<(), Error> {
        self.count(1, 1)?;
        let arguments = self.patching(self.write(0)?, self.read(0)?, [latent, patch], first_row)?;
        let threads = u64::from(arguments.rows.rows) * u64::from(arguments.rows.columns);
        self.start("latents", "unpatch", &Blocks::of(threads), &arguments)
    }

    fn sample(&self) -> Result<(), Error> {
        let target = self.write(0)?;
        let same = |at: usize| self.read_as(at, target.rows, target.columns);
        let blank = Sample {
            x: same(0)?,
            prediction: same(1)?,
            noise: Matrix::NONE,
            last: Matrix::NONE,
            before: Matrix::NONE,
            earlier: Matrix::NONE,
            target,
            kind: 0,
            corrects: 0,
            change: 0.0,
            sigma: 0.0,
            keep: 0.0,
            next: 0.0,
            corrector: [0.0; 4],
            predictor: [0.0; 3],
            reserved: 0,
        };
        let arguments = match self.step.update {
            Update::Euler { change } => {
                self.count(2, 1)?;
                Sample { change: narrow(change), ..blank }
            }
            Update::Renoise { sigma, next } => {
                let draws = next != 0.0;
                self.count(2 + usize::from(draws), 1)?;
                let noise = if draws { same(2)? } else { Matrix::NONE };
                Sample { kind: 1, noise, sigma: narrow(sigma), keep: narrow(1.0 - next), next: narrow(next), ..blank }
            }
            Update::Multistep { sigma, corrector, predictor } => {
                self.count(5, 4)?;
                let states = [same(2)?, same(3)?, same(4)?];
                for (at, state) in states.iter().enumerate() {
                    self.need(self.write(at + 1)? == *state, "to other states than it reads")?;
                }
                let [last, before, earlier] = states;
                let corrects = u32::from(corrector.is_some());
                let corrector = corrector.unwrap_or([0.0; 4]).map(narrow);
                Sample {
                    kind: 2,
                    last,
                    before,
                    earlier,
                    corrects,
                    sigma: narrow(sigma),
                    corrector,
                    predictor: predictor.map(narrow),
                    ..blank
                }
            }
        };
        self.start("latents", "sample", &Blocks::of(u64::from(target.rows) * u64::from(target.columns)), &arguments)
    }
}

/// Whether a matrix is of this format.
fn is(matrix: &Matrix, element: Element) -> bool {
    super::arguments::element(element) == Some(matrix.element)
}

/// Whether rows can be read 16 bytes at a time.
fn eight(matrix: &Matrix) -> bool {
    is(matrix, Element::Bf16) && matrix.columns.is_multiple_of(8) && matrix.pitch.is_multiple_of(8) && matrix.data.is_multiple_of(16)
}

#[expect(clippy::cast_possible_truncation, reason = "kernels compute in single precision")]
fn narrow(value: f64) -> f32 {
    value as f32
}
