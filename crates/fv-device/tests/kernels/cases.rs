//! What kernels are tried on: shapes of real models, and shapes at which tiles do not come out even.

use fv_device::reference::{Step, Update};
use fv_spec::program::kernel::{Function, Grid};
use fv_spec::program::{Element, Kernel, View};

use crate::case;

/// For kernels that do not look at the step.
pub(crate) const NO_STEP: Step = Step { timestep: 0.0, update: Update::Euler { change: 0.0 } };

/// Rounding to bfloat16, once.
const ROUNDED: f64 = 2.5e-3;
/// Attention whose weights are rounded to bfloat16.
const ATTENDED: f64 = 4e-3;
/// Single precision.
const SINGLE: f64 = 1e-6;

/// An operation on operands of these extents. `View::buffer` is the number of the operand: first what is read, then what is
/// written, and what is written in place has the number of the first operand.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) kernel: Kernel,
    pub(crate) step: Step,
    pub(crate) reads: Vec<View>,
    pub(crate) writes: Vec<View>,
    pub(crate) accepted: f64,
    /// What random numbers are multiplied by.
    pub(crate) spread: f64,
    pub(crate) in_place: bool,
}

impl Case {
    fn reads(mut self, element: Element, rows: u64, columns: u64) -> Self {
        let number = u32::try_from(self.reads.len()).expect("few");
        self.reads.push(View::matrix(number, element, rows, columns));
        self
    }

    fn writes(mut self, element: Element, rows: u64, columns: u64) -> Self {
        let number = u32::try_from(self.reads.len() + self.writes.len()).expect("few");
        self.writes.push(View::matrix(number, element, rows, columns));
        self
    }

    /// The target is the first operand.
    fn in_place(mut self) -> Self {
        self.in_place = true;
        self.writes = vec![self.reads[0]];
        self
    }

    fn spread(mut self, spread: f64) -> Self {
        self.spread = spread;
        self
    }

    fn step(mut self, step: Step) -> Self {
        self.step = step;
        self
    }

    /// Rows of operands lie further apart than they are long.
    fn apart(mut self, elements: u64) -> Self {
        for view in self.reads.iter_mut().chain(&mut self.writes) {
            if view.rows > 1 {
                view.pitch += elements;
            }
        }
        self.name += ", rows apart";
        self
    }
}

use Element::{Bf16, F32, Fp8, I32, Int8};

const SHORT: Grid = Grid { frames: 5, height: 6, width: 10 };
const TILE: Grid = Grid { frames: 4, height: 4, width: 4 };

/// Everything that is compared with the reference.
pub(crate) fn all() -> Vec<Case> {
    [products(), elementwise(), norms(), positions(), attention(), sparse(), latents(), sampling()].concat()
}

fn products() -> Vec<Case> {
    let mut cases = Vec::new();
    for (rows, inputs, outputs) in
        [(512, 1536, 1536), (300, 1536, 8960), (77, 8960, 1536), (1000, 64, 1536), (333, 1536, 64), (512, 4096, 1536)]
    {
        for (bias, function) in [(true, Function::Identity), (true, Function::GeluTanh), (false, Function::Identity)] {
            let name = format!("product {rows} x {inputs} x {outputs}, bias {bias}, {}", function.word());
            let of = case(name, Kernel::Product { bias, function }, ROUNDED).reads(Bf16, rows, inputs).reads(Bf16, outputs, inputs);
            let of = if bias { of.reads(Bf16, 1, outputs) } else { of };
            cases.push(of.writes(Bf16, rows, outputs).spread(0.2));
        }
    }
    let kernel = Kernel::Product { bias: true, function: Function::Silu };
    let time = case("product of the timestep", kernel, SINGLE).reads(F32, 1, 256).reads(Bf16, 1536, 256).reads(Bf16, 1, 1536);
    cases.push(time.writes(F32, 1, 1536));
    let kernel = Kernel::Product { bias: true, function: Function::GeluTanh };
    let odd = case("product of odd extents", kernel, ROUNDED).reads(Bf16, 13, 37).reads(Bf16, 11, 37).reads(Bf16, 1, 11);
    cases.push(odd.writes(Bf16, 13, 11));
    let apart = case("product", kernel, ROUNDED).reads(Bf16, 200, 256).reads(Bf16, 320, 256).reads(Bf16, 1, 320).writes(Bf16, 200, 320);
    cases.push(apart.apart(64).spread(0.3));
    for element in [Fp8, Int8] {
        let name = format!("dequantise {}", element.word());
        let of = case(name, Kernel::Dequantise, ROUNDED).reads(element, 333, 1536).reads(F32, 1, 333).writes(Bf16, 333, 1536);
        cases.push(of.spread(20.0));
    }
    cases
}

fn elementwise() -> Vec<Case> {
    vec![
        case("add", Kernel::Add, ROUNDED).reads(Bf16, 777, 1536).reads(Bf16, 777, 1536).in_place(),
        case("add", Kernel::Add, ROUNDED).reads(Bf16, 77, 136).reads(Bf16, 77, 136).in_place().apart(24),
        case("add rows again and again", Kernel::Add, SINGLE).reads(F32, 6, 1536).reads(F32, 1, 1536).writes(F32, 6, 1536),
        case("add of odd extents", Kernel::Add, ROUNDED).reads(Bf16, 7, 13).reads(Bf16, 7, 13).writes(Bf16, 7, 13),
        case("multiply", Kernel::Multiply { function: Function::GeluTanh }, ROUNDED).reads(Bf16, 99, 640).reads(Bf16, 99, 640).in_place(),
        case("apply", Kernel::Apply { function: Function::Silu }, SINGLE).reads(F32, 1, 1536).writes(F32, 1, 1536),
        case("apply", Kernel::Apply { function: Function::GeluTanh }, ROUNDED).reads(Bf16, 9, 1536).in_place(),
        case("guide", Kernel::Guide { scale: 5.0 }, SINGLE).reads(F32, 16, 1000).reads(F32, 16, 1000).in_place(),
        case("copy to a narrower format", Kernel::Copy, ROUNDED).reads(F32, 33, 65).writes(Bf16, 33, 65),
        case("copy", Kernel::Copy, 0.0).reads(Bf16, 33, 65).writes(Bf16, 33, 65).apart(3),
        case("gated add", Kernel::GatedAdd, ROUNDED).reads(Bf16, 777, 1536).reads(Bf16, 777, 1536).reads(F32, 1, 1536).in_place(),
        case("gated add", Kernel::GatedAdd, ROUNDED).reads(Bf16, 77, 48).reads(Bf16, 77, 48).reads(F32, 1, 48).in_place().apart(8),
    ]
}

fn norms() -> Vec<Case> {
    let mut cases = Vec::new();
    for columns in [48, 1536, 5120, 8192] {
        for (affine, modulated) in [(false, true), (true, false), (true, true)] {
            let name = format!("layer norm of {columns}, affine {affine}, modulated {modulated}");
            let mut of = case(name, Kernel::LayerNorm { epsilon: 1e-6, affine, modulated }, ROUNDED).reads(Bf16, 100, columns);
            for element in [Bf16; 2].into_iter().filter(|_| affine).chain([F32; 2].into_iter().filter(|_| modulated)) {
                of = of.reads(element, 1, columns);
            }
            cases.push(of.writes(Bf16, 100, columns));
        }
        let of = case(format!("RMS norm of {columns}"), Kernel::RmsNorm { epsilon: 1e-6 }, ROUNDED).reads(Bf16, 100, columns);
        cases.push(of.reads(Bf16, 1, columns).in_place());
    }
    cases
}

fn positions() -> Vec<Case> {
    let grid = Grid { frames: 21, height: 45, width: 80 };
    let mut cases = Vec::new();
    for (grid, head_dim) in [(SHORT, 12), (grid, 128), (Grid { frames: 1, height: 1, width: 1024 }, 128)] {
        let of = case(format!("rotary table of {} tokens", grid.len()), Kernel::RotaryTable { grid, head_dim }, SINGLE);
        cases.push(of.writes(F32, grid.len(), head_dim));
    }
    for (head_dim, heads) in [(128, 12), (12, 4)] {
        let of = case(format!("rotate heads of {head_dim}"), Kernel::Rotate { head_dim }, ROUNDED).reads(Bf16, 300, head_dim * heads);
        cases.push(of.reads(F32, 300, head_dim).in_place());
    }
    for timestep in [0.0, 1.0, 757.0, 999.25] {
        let step = Step { timestep, ..NO_STEP };
        cases.push(case(format!("timestep {timestep}"), Kernel::TimestepFeatures, SINGLE).writes(F32, 1, 256).step(step));
    }
    cases
}

fn attention() -> Vec<Case> {
    let mut cases = Vec::new();
    for (heads, head_dim, queries, keys) in [
        (2, 128, 1, 1),
        (2, 128, 200, 777),
        (1, 128, 129, 64),
        (3, 128, 64, 65),
        (2, 128, 300, 512),
        (2, 128, 127, 2000),
        (4, 12, 72, 72),
        (4, 12, 33, 16),
        (2, 64, 40, 40),
    ] {
        let kernel = Kernel::Attention { head_dim, scale: 1.0 / (head_dim as f64).sqrt(), bias: false };
        let name = format!("attention, {heads} heads of {head_dim}, {queries} queries, {keys} keys");
        let columns = heads * head_dim;
        let of = case(name, kernel, ATTENDED).reads(Bf16, queries, columns).reads(Bf16, keys, columns).reads(Bf16, keys, columns);
        // Scores with a standard deviation of about 4.
        cases.push(of.spread(2.0).in_place());
    }
    let kernel = Kernel::Attention { head_dim: 8, scale: 1.0, bias: true };
    let of = case("attention with a bias", kernel, ATTENDED).reads(Bf16, 21, 32).reads(Bf16, 21, 32).reads(Bf16, 21, 32);
    cases.push(of.reads(Bf16, 4 * 21, 21).writes(Bf16, 21, 32));
    let of = case("relative bias", Kernel::RelativeBias { max_distance: 128 }, 0.0).reads(Bf16, 32, 4).writes(Bf16, 4 * 200, 200);
    cases.push(of);
    cases
}

fn sparse() -> Vec<Case> {
    let tiles = SHORT.tiles(TILE).len();
    let mut cases = Vec::new();
    for (heads, head_dim) in [(2, 128), (4, 12)] {
        let (columns, scale) = (heads * head_dim, 1.0 / (head_dim as f64).sqrt());
        let of = case(format!("means of tiles, heads of {head_dim}"), Kernel::TileMeans { grid: SHORT, tile: TILE }, SINGLE);
        cases.push(of.reads(Bf16, SHORT.len(), columns).writes(F32, tiles, columns));
        for (tiles, keep) in [(tiles, 3), (624, 125)] {
            let of = case(format!("scores of {tiles} tiles, heads of {head_dim}"), Kernel::TileScores { head_dim, scale, keep }, ROUNDED);
            let of = of.reads(F32, tiles, columns).reads(F32, tiles, columns).reads(F32, tiles, columns);
            cases.push(of.writes(Bf16, tiles, columns).writes(I32, heads * tiles, keep));
        }
        let kernel = Kernel::TileAttention { grid: SHORT, tile: TILE, head_dim, scale };
        let of = case(format!("attention between tiles, heads of {head_dim}"), kernel, ATTENDED).spread(2.0);
        let of = of.reads(Bf16, SHORT.len(), columns).reads(Bf16, SHORT.len(), columns).reads(Bf16, SHORT.len(), columns);
        cases.push(of.reads(I32, heads * tiles, 5).in_place());
        let of = case("add what tiles give", Kernel::TileAdd { grid: SHORT, tile: TILE, first_row: 70 }, ROUNDED).reads(Bf16, 130, columns);
        cases.push(of.reads(Bf16, tiles, columns).reads(Bf16, 130, columns).in_place());
    }
    cases
}

fn latents() -> Vec<Case> {
    let (latent, patch) = (Grid { frames: 3, height: 8, width: 12 }, Grid { frames: 1, height: 2, width: 2 });
    let rows = latent.len() / patch.len();
    vec![
        case("patches", Kernel::Patches { latent, patch, first_row: 0 }, ROUNDED).reads(F32, 16, latent.len()).writes(Bf16, rows, 64),
        case("patches from the tenth on", Kernel::Patches { latent, patch, first_row: 10 }, ROUNDED)
            .reads(F32, 16, latent.len())
            .writes(Bf16, 20, 64),
        case("patches as a latent", Kernel::Unpatch { latent, patch, first_row: 0 }, 0.0).reads(Bf16, rows, 64).writes(
            F32,
            16,
            latent.len(),
        ),
    ]
}

fn sampling() -> Vec<Case> {
    let step = |update| Step { timestep: 500.0, update };
    let of = |name: &str, operands: usize, update| {
        let of = case(name, Kernel::Sample, SINGLE).step(step(update));
        (0..operands).fold(of, |of, _| of.reads(F32, 16, 1111))
    };
    let multistep = |name: &str, corrector| {
        let mut of = of(name, 5, Update::Multistep { sigma: 0.7, corrector, predictor: [0.8, 0.3, -0.1] });
        of.in_place = true;
        of.writes = [0, 2, 3, 4].map(|at| of.reads[at]).to_vec();
        of
    };
    vec![
        of("a step of Euler", 2, Update::Euler { change: -0.25 }).in_place(),
        of("a step with new noise", 3, Update::Renoise { sigma: 0.9, next: 0.4 }).in_place(),
        of("the last step of distribution matching", 2, Update::Renoise { sigma: 0.9, next: 0.0 }).in_place(),
        multistep("the first step of UniPC", None),
        multistep("a step of UniPC", Some([0.4, 0.3, -0.2, 0.5])),
    ]
}

/// What kernels refuse.
pub(crate) fn refused() -> Vec<Case> {
    vec![
        case("add of other extents", Kernel::Add, 0.0).reads(Bf16, 7, 13).reads(Bf16, 7, 14).writes(Bf16, 7, 13),
        case("product of other extents", Kernel::Product { bias: false, function: Function::Identity }, 0.0)
            .reads(Bf16, 7, 16)
            .reads(Bf16, 7, 24)
            .writes(Bf16, 7, 7),
        case("norm of too many columns", Kernel::RmsNorm { epsilon: 1e-6 }, 0.0).reads(Bf16, 3, 16384).reads(Bf16, 1, 16384).in_place(),
        case("too few operands", Kernel::GatedAdd, 0.0).reads(Bf16, 7, 16).reads(Bf16, 7, 16).in_place(),
        case("double precision", Kernel::Apply { function: Function::Silu }, 0.0).reads(Element::F64, 3, 8).writes(F32, 3, 8),
        case("convolution", Kernel::Upsample { input: Grid { frames: 1, height: 2, width: 2 } }, 0.0).reads(Bf16, 4, 8).writes(Bf16, 16, 8),
    ]
}

/// One way to split an operation.
pub(crate) type Split = (String, Vec<Case>);

/// Operations, and operations that together must give the same bits.
pub(crate) fn splits() -> Vec<(Case, Vec<Split>)> {
    let mut all = Vec::new();
    for (inputs, outputs, function) in
        [(1536, 1536, Function::Identity), (1536, 8960, Function::GeluTanh), (8960, 1536, Function::Identity)]
    {
        let kernel = Kernel::Product { bias: true, function };
        let whole = case(format!("product of {inputs} x {outputs}"), kernel, 0.0).reads(Bf16, 5000, inputs).reads(Bf16, outputs, inputs);
        let whole = whole.reads(Bf16, 1, outputs).writes(Bf16, 5000, outputs).spread(0.2);
        let by_rows = [1, 100, 1024, 2048, 4096].map(|chunk| rows(&whole, chunk, &[0]));
        all.push((whole, by_rows.to_vec()));
    }
    let kernel = Kernel::Attention { head_dim: 128, scale: 0.088_388_347_648_318_44, bias: false };
    let whole = case("attention", kernel, 0.0).reads(Bf16, 1000, 512).reads(Bf16, 900, 512).reads(Bf16, 900, 512).writes(Bf16, 1000, 512);
    let whole = whole.spread(2.0);
    let mut parts: Vec<_> = [1, 100, 500].map(|chunk| rows(&whole, chunk, &[0])).to_vec();
    parts.extend([1, 2].map(|heads| columns(&whole, heads * 128)));
    all.push((whole, parts));
    all
}

/// Rows of these operands and of the target in chunks.
fn rows(whole: &Case, chunk: u64, operands: &[usize]) -> Split {
    let total = whole.writes[0].rows;
    let part = |first: u64| {
        let mut of = whole.clone();
        let count = chunk.min(total - first);
        for at in operands {
            of.reads[*at] = of.reads[*at].row_range(first, count);
        }
        of.writes[0] = of.writes[0].row_range(first, count);
        of
    };
    // A whole operation in rows of one takes long: some rows from each end are enough, the rest at once.
    let step = usize::try_from(chunk).expect("few");
    if chunk == 1 {
        let mut parts: Vec<Case> = [0, 1, total - 1].map(part).to_vec();
        let mut rest = whole.clone();
        for at in operands {
            rest.reads[*at] = rest.reads[*at].row_range(2, total - 3);
        }
        rest.writes[0] = rest.writes[0].row_range(2, total - 3);
        parts.push(rest);
        return ("rows one by one".to_owned(), parts);
    }
    (format!("{chunk} rows at a time"), (0..total).step_by(step).map(part).collect())
}

/// Columns of all operands and of the target in groups.
fn columns(whole: &Case, group: u64) -> Split {
    let total = whole.writes[0].columns;
    let part = |first: u64| {
        let mut of = whole.clone();
        of.reads.iter_mut().chain(&mut of.writes).for_each(|view| *view = view.column_range(first, group));
        of
    };
    (format!("{group} columns at a time"), (0..total).step_by(usize::try_from(group).expect("few")).map(part).collect())
}
