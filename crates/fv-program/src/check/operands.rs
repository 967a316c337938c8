//! Operands of kernels: how many, how large, and how stored.

use fv_spec::program::{
    Element, Kernel, Op, Program, Sampler, View,
    kernel::{Grid, Input},
};

use super::finding::{Code, Report, shape};

/// The name of a kernel, as in JSON.
pub fn kernel_name(kernel: &Kernel) -> &'static str {
    match kernel {
        Kernel::Read { .. } => "read",
        Kernel::Lookup { .. } => "lookup",
        Kernel::Copy => "copy",
        Kernel::Zero => "zero",
        Kernel::Input { .. } => "input",
        Kernel::Output { .. } => "output",
        Kernel::Product { .. } => "product",
        Kernel::Dequantise => "dequantise",
        Kernel::Add => "add",
        Kernel::Multiply { .. } => "multiply",
        Kernel::Apply { .. } => "apply",
        Kernel::GatedAdd => "gated_add",
        Kernel::LayerNorm { .. } => "layer_norm",
        Kernel::RmsNorm { .. } => "rms_norm",
        Kernel::UnitNorm { .. } => "unit_norm",
        Kernel::RotaryTable { .. } => "rotary_table",
        Kernel::Rotate { .. } => "rotate",
        Kernel::Attention { .. } => "attention",
        Kernel::RelativeBias { .. } => "relative_bias",
        Kernel::TileMeans { .. } => "tile_means",
        Kernel::TileScores { .. } => "tile_scores",
        Kernel::TileAttention { .. } => "tile_attention",
        Kernel::TileAdd { .. } => "tile_add",
        Kernel::TimestepFeatures => "timestep_features",
        Kernel::Patches { .. } => "patches",
        Kernel::Unpatch { .. } => "unpatch",
        Kernel::Guide { .. } => "guide",
        Kernel::Sample => "sample",
        Kernel::LatentRows { .. } => "latent_rows",
        Kernel::Convolve { .. } => "convolve",
        Kernel::Upsample { .. } => "upsample",
        Kernel::Spread { .. } => "spread",
        Kernel::Blend { .. } => "blend",
        Kernel::Pixels { .. } => "pixels",
    }
}

pub(super) fn check(report: &mut Report<'_>) {
    let program = report.program;
    for (at, (_, op)) in (0..).zip(program.ops()) {
        let mut operands = Operands { op, faults: Vec::new() };
        if operands.counted(program) {
            operands.elements();
            operands.extents(program);
        }
        for fault in operands.faults {
            report.at_op(Code::BadOperands, at, &fault);
        }
    }
}

struct Operands<'a> {
    op: &'a Op,
    faults: Vec<String>,
}

/// How many operands a kernel reads, at least and at most, and writes.
fn counts(kernel: &Kernel, sampler: Sampler) -> (usize, usize, usize) {
    let exactly = |reads: usize, writes: usize| (reads, reads, writes);
    match *kernel {
        Kernel::Read { .. } | Kernel::Zero | Kernel::Input { .. } | Kernel::RotaryTable { .. } | Kernel::TimestepFeatures => exactly(0, 1),
        Kernel::Output { .. } => exactly(1, 0),
        Kernel::Lookup { .. }
        | Kernel::Copy
        | Kernel::Apply { .. }
        | Kernel::RelativeBias { .. }
        | Kernel::TileMeans { .. }
        | Kernel::Patches { .. }
        | Kernel::Unpatch { .. }
        | Kernel::Upsample { .. }
        | Kernel::Pixels { .. } => exactly(1, 1),
        Kernel::Product { bias, .. } => exactly(2 + usize::from(bias), 1),
        Kernel::Dequantise
        | Kernel::Add
        | Kernel::Multiply { .. }
        | Kernel::RmsNorm { .. }
        | Kernel::UnitNorm { .. }
        | Kernel::Rotate { .. }
        | Kernel::Guide { .. }
        | Kernel::Spread { .. } => exactly(2, 1),
        Kernel::GatedAdd | Kernel::TileAdd { .. } | Kernel::LatentRows { .. } => exactly(3, 1),
        Kernel::LayerNorm { affine, modulated, .. } => exactly(1 + 2 * usize::from(affine) + 2 * usize::from(modulated), 1),
        Kernel::Attention { bias, .. } => exactly(3 + usize::from(bias), 1),
        Kernel::TileScores { .. } => exactly(3, 2),
        Kernel::TileAttention { .. } => exactly(4, 1),
        Kernel::Convolve { cached, residual, .. } => {
            exactly(3 + usize::try_from(cached).unwrap_or(usize::MAX - 4) + usize::from(residual), 1)
        }
        Kernel::Blend { above, left, .. } => exactly(1 + usize::from(above > 0) + usize::from(left > 0), 1),
        Kernel::Sample => match sampler {
            Sampler::UniPc => exactly(5, 4),
            Sampler::Euler => exactly(2, 1),
            Sampler::Dmd => (2, 3, 1),
        },
    }
}

impl Operands<'_> {
    fn counted(&mut self, program: &Program) -> bool {
        let (least, most, writes) = counts(&self.op.kernel, program.schedule.sampler);
        let (found_reads, found_writes) = (self.op.reads.len(), self.op.writes.len());
        let fits = (least..=most).contains(&found_reads) && found_writes == writes;
        if !fits {
            let reads = if least == most { least.to_string() } else { format!("{least} to {most}") };
            self.faults.push(format!("has {found_reads} reads and {found_writes} writes; its kernel takes {reads} and {writes}"));
        }
        fits
    }

    fn read(&self, at: usize) -> View {
        self.op.reads[at]
    }

    fn target(&self) -> View {
        self.op.writes[0]
    }

    fn fault(&mut self, name: &str, view: View, wanted: &str) {
        self.faults.push(format!("{name} is {}; its kernel takes {wanted}", shape(&view)));
    }

    fn is(&mut self, name: &str, view: View, rows: u64, columns: u64) {
        if (view.rows, view.columns) != (rows, columns) {
            self.fault(name, view, &format!("{rows} x {columns}"));
        }
    }

    fn same(&mut self, name: &str, view: View, other: View) {
        self.is(name, view, other.rows, other.columns);
    }

    fn holds(&mut self, name: &str, view: View, fits: bool, wanted: &str) {
        if !fits {
            self.fault(name, view, wanted);
        }
    }

    /// How numbers are stored: what is computed with is a floating-point number that no scale belongs to.
    fn elements(&mut self) {
        let is_float = |view: View| matches!(view.element, Element::F64 | Element::F32 | Element::Bf16);
        let Op { kernel, reads, writes, .. } = self.op;
        for (name, at, view) in named(reads, "read").chain(named(writes, "write")) {
            let is_read = name == "read";
            let (fits, wanted) = match kernel {
                Kernel::Input { what: Input::Prompt | Input::NegativePrompt, .. } => (view.element == Element::I32, "i32"),
                Kernel::Lookup { .. } if is_read => (view.element == Element::I32, "i32"),
                Kernel::Read { .. } | Kernel::Lookup { .. } | Kernel::Copy | Kernel::Zero | Kernel::Output { .. } => (true, ""),
                Kernel::Dequantise if is_read && at == 0 => (matches!(view.element, Element::Fp8 | Element::Int8), "fp8 or int8"),
                Kernel::Dequantise if is_read => (view.element == Element::F32, "f32"),
                Kernel::TileScores { .. } if !is_read && at == 1 => (view.element == Element::I32, "i32"),
                Kernel::TileAttention { .. } if is_read && at == 3 => (view.element == Element::I32, "i32"),
                Kernel::Pixels { .. } if !is_read => (is_float(view) || view.element == Element::U8, "f64, f32, bf16 or u8"),
                _ => (is_float(view), "f64, f32 or bf16"),
            };
            self.holds(&format!("{name} {at}"), view, fits, wanted);
        }
    }

    fn extents(&mut self, program: &Program) {
        match self.op.kernel {
            Kernel::Read { .. } | Kernel::Lookup { .. } => self.of_group(program),
            Kernel::Zero | Kernel::Input { .. } | Kernel::Output { .. } => {}
            Kernel::Product { .. } | Kernel::Dequantise => self.product(),
            Kernel::Copy | Kernel::Add | Kernel::Multiply { .. } | Kernel::Apply { .. } | Kernel::GatedAdd | Kernel::Guide { .. } => {
                self.pointwise();
            }
            Kernel::LayerNorm { .. } | Kernel::RmsNorm { .. } | Kernel::UnitNorm { .. } => self.norm(),
            Kernel::RotaryTable { .. } | Kernel::Rotate { .. } | Kernel::Attention { .. } | Kernel::RelativeBias { .. } => self.attention(),
            Kernel::TileMeans { .. } | Kernel::TileScores { .. } | Kernel::TileAttention { .. } | Kernel::TileAdd { .. } => self.tiles(),
            Kernel::TimestepFeatures | Kernel::Patches { .. } | Kernel::Unpatch { .. } | Kernel::Sample => self.latent(),
            Kernel::LatentRows { .. } | Kernel::Convolve { .. } => self.video(),
            Kernel::Upsample { .. } | Kernel::Spread { .. } | Kernel::Blend { .. } | Kernel::Pixels { .. } => self.pixels(),
        }
    }

    fn of_group(&mut self, program: &Program) {
        let target = self.target();
        match self.op.kernel {
            Kernel::Read { group, first_byte } => {
                let bytes = program.groups[group as usize].bytes;
                let end =
                    target.rows.checked_mul(times(&[target.columns, target.element.bytes()])).and_then(|size| size.checked_add(first_byte));
                let fits = end.is_some_and(|end| end <= bytes);
                self.holds("write 0", target, fits, &format!("the bytes of a group of {bytes} bytes from byte {first_byte} on"));
                self.holds("write 0", target, target.rows == 1 || target.pitch == target.columns, "bytes without gaps");
            }
            Kernel::Lookup { group, tensor } => {
                let tensor = &program.groups[group as usize].tensors[tensor as usize];
                let ids = self.read(0);
                self.is("read 0", ids, ids.rows, 1);
                let width = tensor.shape.last().copied().unwrap_or(0);
                self.is("write 0", target, ids.rows, width);
                self.holds("write 0", target, target.element == tensor.element, tensor.element.word());
            }
            _ => {}
        }
    }

    fn product(&mut self) {
        let (x, w, target) = (self.read(0), self.read(1), self.target());
        if matches!(self.op.kernel, Kernel::Dequantise) {
            self.is("read 1", w, 1, x.rows);
            self.same("write 0", target, x);
            return;
        }
        self.is("read 1", w, w.rows, x.columns);
        self.is("write 0", target, x.rows, w.rows);
        if let Some(bias) = self.op.reads.get(2) {
            self.is("read 2", *bias, 1, w.rows);
        }
    }

    fn pointwise(&mut self) {
        let (x, target) = (self.read(0), self.target());
        self.same("write 0", target, x);
        let Some(y) = self.op.reads.get(1).copied() else { return };
        if matches!(self.op.kernel, Kernel::Add) {
            let fits = y.columns == x.columns && y.rows > 0 && x.rows.is_multiple_of(y.rows);
            self.holds("read 1", y, fits, &format!("{} columns, and rows that divide {}", x.columns, x.rows));
        } else {
            self.same("read 1", y, x);
        }
        if let Some(gate) = self.op.reads.get(2) {
            self.is("read 2", *gate, 1, x.columns);
        }
    }

    fn norm(&mut self) {
        let x = self.read(0);
        self.same("write 0", self.target(), x);
        for (name, at, view) in named(&self.op.reads, "read").skip(1) {
            self.is(&format!("{name} {at}"), view, 1, x.columns);
        }
    }

    fn heads(&mut self, name: &str, view: View, head_dim: u64) -> u64 {
        let fits = head_dim > 0 && view.columns.is_multiple_of(head_dim);
        self.holds(name, view, fits, &format!("columns in multiples of {head_dim}"));
        if fits { view.columns / head_dim } else { 0 }
    }

    fn attention(&mut self) {
        let target = self.target();
        match self.op.kernel {
            Kernel::RotaryTable { grid, head_dim } => self.is("write 0", target, positions(grid), head_dim),
            Kernel::Rotate { head_dim } => {
                let x = self.read(0);
                self.heads("read 0", x, head_dim);
                self.is("read 1", self.read(1), x.rows, head_dim);
                self.same("write 0", target, x);
            }
            Kernel::Attention { head_dim, .. } => {
                let (q, k, v) = (self.read(0), self.read(1), self.read(2));
                let heads = self.heads("read 0", q, head_dim);
                self.is("read 1", k, k.rows, q.columns);
                self.same("read 2", v, k);
                self.same("write 0", target, q);
                if let Some(bias) = self.op.reads.get(3) {
                    self.is("read 3", *bias, times(&[heads, q.rows]), k.rows);
                }
            }
            Kernel::RelativeBias { .. } => self.is("write 0", target, times(&[self.read(0).columns, target.columns]), target.columns),
            _ => {}
        }
    }

    fn tiles(&mut self) {
        let (x, target) = (self.read(0), self.target());
        match self.op.kernel {
            Kernel::TileMeans { grid, tile } if positions(tile) > 0 => {
                self.is("read 0", x, positions(grid), x.columns);
                self.is("write 0", target, positions(grid.tiles(tile)), x.columns);
            }
            Kernel::TileScores { head_dim, keep, .. } => {
                let heads = self.heads("read 0", x, head_dim);
                self.same("read 1", self.read(1), x);
                self.same("read 2", self.read(2), x);
                self.same("write 0", target, x);
                self.is("write 1", self.op.writes[1], times(&[heads, x.rows]), keep);
            }
            Kernel::TileAttention { grid, tile, head_dim, .. } if positions(tile) > 0 => {
                let heads = self.heads("read 0", x, head_dim);
                self.is("read 0", x, positions(grid), x.columns);
                self.same("read 1", self.read(1), x);
                self.same("read 2", self.read(2), x);
                let chosen = self.read(3);
                self.is("read 3", chosen, times(&[heads, positions(grid.tiles(tile))]), chosen.columns);
                self.same("write 0", target, x);
            }
            Kernel::TileAdd { grid, tile, first_row } if positions(tile) > 0 => {
                self.rows_of("read 0", x, first_row, positions(grid));
                self.is("read 1", self.read(1), positions(grid.tiles(tile)), x.columns);
                self.same("read 2", self.read(2), x);
                self.same("write 0", target, x);
            }
            _ => self.faults.push("has tiles without a position; each extent is 1 at least".to_owned()),
        }
    }

    fn rows_of(&mut self, name: &str, view: View, first: u64, count: u64) {
        let fits = first.checked_add(view.rows).is_some_and(|end| end <= count);
        self.holds(name, view, fits, &format!("rows from {first} on of {count}"));
    }

    fn latent(&mut self) {
        let target = self.target();
        match self.op.kernel {
            Kernel::TimestepFeatures => self.is("write 0", target, 1, target.columns),
            Kernel::Patches { latent, patch, first_row } => {
                self.patches("read 0", self.read(0), "write 0", target, latent, patch, first_row);
            }
            Kernel::Unpatch { latent, patch, first_row } => {
                self.patches("write 0", target, "read 0", self.read(0), latent, patch, first_row);
            }
            _ => {
                let sample = self.read(0);
                for (name, at, view) in named(&self.op.reads, "read").skip(1).chain(named(&self.op.writes, "write")) {
                    self.same(&format!("{name} {at}"), view, sample);
                }
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "two operands with their names")]
    fn patches(&mut self, whole_name: &str, whole: View, rows_name: &str, rows: View, latent: Grid, patch: Grid, first_row: u64) {
        let divides = positions(patch) > 0
            && latent.frames.is_multiple_of(patch.frames)
            && latent.height.is_multiple_of(patch.height)
            && latent.width.is_multiple_of(patch.width);
        if !divides {
            self.faults.push(format!("has a latent of {} and patches of {}, which do not divide it", extents(latent), extents(patch)));
            return;
        }
        self.is(whole_name, whole, whole.rows, positions(latent));
        self.is(rows_name, rows, rows.rows, times(&[whole.rows, positions(patch)]));
        self.rows_of(rows_name, rows, first_row, positions(latent.tiles(patch)));
    }

    fn video(&mut self) {
        let (x, target) = (self.read(0), self.target());
        match self.op.kernel {
            Kernel::LatentRows { latent, first, window } => {
                self.is("read 0", x, x.rows, positions(latent));
                self.is("read 1", self.read(1), 1, x.rows);
                self.is("read 2", self.read(2), 1, x.rows);
                self.is("write 0", target, positions(window), x.rows);
                let ends = [
                    (first[0], window.frames, latent.frames),
                    (first[1], window.height, latent.height),
                    (first[2], window.width, latent.width),
                ];
                if ends.iter().any(|(first, count, extent)| first.checked_add(*count).is_none_or(|end| end > *extent)) {
                    self.faults.push(format!("has a window of {} from {first:?} on, in a latent of {}", extents(window), extents(latent)));
                }
            }
            Kernel::Convolve { input, kernel, cached, residual } => self.convolve(input, kernel, cached, residual),
            _ => {}
        }
    }

    fn convolve(&mut self, input: Grid, kernel: Grid, cached: u64, residual: bool) {
        let (x, w, target) = (self.read(0), self.read(1), self.target());
        self.is("read 0", x, positions(input), x.columns);
        self.is("read 1", w, w.rows, times(&[positions(kernel), x.columns]));
        self.is("read 2", self.read(2), 1, w.rows);
        if cached >= kernel.frames.max(1) {
            self.faults.push(format!(
                "has {cached} frames before x; a kernel of {} frames looks at {} at most",
                kernel.frames,
                kernel.frames.saturating_sub(1)
            ));
        }
        let before = self.op.reads.len() - usize::from(residual);
        for (name, at, view) in named(&self.op.reads[..before], "read").skip(3) {
            self.is(&format!("{name} {at}"), view, times(&[input.height, input.width]), x.columns);
        }
        if residual {
            self.is(&format!("read {before}"), self.read(before), positions(input), w.rows);
        }
        self.is("write 0", target, positions(input), w.rows);
    }

    fn pixels(&mut self) {
        let (x, target) = (self.read(0), self.target());
        match self.op.kernel {
            Kernel::Upsample { input } => {
                self.is("read 0", x, positions(input), x.columns);
                self.is("write 0", target, times(&[4, positions(input)]), x.columns);
            }
            Kernel::Spread { input, time, part, space } => {
                let source = self.read(1);
                self.is("read 0", x, times(&[positions(input), space, space]), x.columns);
                self.is("read 1", source, positions(input), source.columns);
                self.same("write 0", target, x);
                let spread = times(&[target.columns, time, space, space]);
                let fits = part < time && source.columns > 0 && spread.is_multiple_of(source.columns);
                self.holds("read 1", source, fits, &format!("columns that divide {spread}, and a part below {time}"));
            }
            Kernel::Blend { tile, above, left } => {
                self.is("read 0", x, positions(tile), x.columns);
                let edges = [times(&[above, tile.width]), times(&[left, tile.height])];
                for (at, rows) in (1..).zip(edges.into_iter().filter(|rows| *rows > 0)) {
                    self.is(&format!("read {at}"), self.read(at), times(&[tile.frames, rows]), x.columns);
                }
                self.same("write 0", target, x);
            }
            Kernel::Pixels { input, patch } => {
                self.is("read 0", x, positions(input), times(&[target.columns, patch, patch]));
                self.is("write 0", target, times(&[positions(input), patch, patch]), target.columns);
            }
            _ => {}
        }
    }
}

fn named<'a>(views: &'a [View], name: &'static str) -> impl Iterator<Item = (&'static str, usize, View)> + 'a {
    views.iter().enumerate().map(move |(at, view)| (name, at, *view))
}

/// A product that a malformed program cannot overflow; what is compared with it then differs.
fn times(factors: &[u64]) -> u64 {
    factors.iter().fold(1, |product, factor| product.saturating_mul(*factor))
}

fn positions(grid: Grid) -> u64 {
    times(&[grid.frames, grid.height, grid.width])
}

fn extents(grid: Grid) -> String {
    format!("{} x {} x {}", grid.frames, grid.height, grid.width)
}
