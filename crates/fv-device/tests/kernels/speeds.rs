//! How fast kernels are at the sizes of Wan 2.1 1.3B for 81 frames of 832 x 480.

use fv_device::cuda::Device;
use fv_spec::program::kernel::{Function, Grid};
use fv_spec::program::{Element, Kernel, View};

use crate::case;
use crate::cases::Case;
use crate::machine::{Machine, Numbers};

const TOKENS: u64 = 32_760;
const HIDDEN: u64 = 1536;
const FFN: u64 = 8960;
const GRID: Grid = Grid { frames: 21, height: 30, width: 52 };
const TILE: Grid = Grid { frames: 4, height: 4, width: 4 };
const KEEP: u64 = 125;
const TIMES: usize = 15;

fn of(name: &str, kernel: Kernel, reads: &[(Element, u64, u64)], target: Option<(Element, u64, u64)>) -> Case {
    let mut of = case(name, kernel, 0.0);
    for (number, (element, rows, columns)) in (0..).zip(reads) {
        of.reads.push(View::matrix(number, *element, *rows, *columns));
    }
    if let Some((element, rows, columns)) = target {
        of.writes.push(View::matrix(u32::try_from(reads.len()).expect("few"), element, rows, columns));
    } else {
        (of.writes, of.in_place) = (vec![of.reads[0]], true);
    }
    of
}

/// Cases, with their operations on matrix units in FLOP.
fn cases() -> Vec<(Case, f64)> {
    use Element::{Bf16, F32, I32};
    let rows = (Bf16, TOKENS, HIDDEN);
    let product = |name: &str, inputs: u64, outputs: u64, function| {
        let kernel = Kernel::Product { bias: true, function };
        let reads = [(Bf16, TOKENS, inputs), (Bf16, outputs, inputs), (Bf16, 1, outputs)];
        (of(name, kernel, &reads, Some((Bf16, TOKENS, outputs))), 2.0 * (TOKENS * inputs * outputs) as f64)
    };
    let dense = Kernel::Attention { head_dim: 128, scale: 0.088_388, bias: false };
    let sparse = Kernel::TileAttention { grid: GRID, tile: TILE, head_dim: 128, scale: 0.088_388 };
    let tiles = GRID.tiles(TILE).len();
    let scores = Kernel::TileScores { head_dim: 128, scale: 0.088_388, keep: KEEP };
    let mut chosen = of("scores of tiles", scores, &[(F32, tiles, HIDDEN); 3], Some((Bf16, tiles, HIDDEN)));
    chosen.writes.push(View::matrix(4, I32, 12 * tiles, KEEP));
    let none = 0.0;
    vec![
        product("product, attention", HIDDEN, HIDDEN, Function::Identity),
        product("product, feed-forward in", HIDDEN, FFN, Function::GeluTanh),
        product("product, feed-forward out", FFN, HIDDEN, Function::Identity),
        (of("attention", dense, &[rows; 3], None), 4.0 * (TOKENS * TOKENS * HIDDEN) as f64),
        (of("attention to the text", dense, &[rows, (Bf16, 512, HIDDEN), (Bf16, 512, HIDDEN)], None), 4.0 * (TOKENS * 512 * HIDDEN) as f64),
        (
            of("attention between tiles", sparse, &[rows, rows, rows, (I32, 12 * tiles, KEEP)], None),
            4.0 * (tiles * 64 * KEEP * 64 * HIDDEN) as f64,
        ),
        (chosen, none),
        (of("means of tiles", Kernel::TileMeans { grid: GRID, tile: TILE }, &[rows], Some((F32, tiles, HIDDEN))), none),
        (
            of(
                "layer norm",
                Kernel::LayerNorm { epsilon: 1e-6, affine: false, modulated: true },
                &[rows, (F32, 1, HIDDEN), (F32, 1, HIDDEN)],
                Some(rows),
            ),
            none,
        ),
        (of("RMS norm", Kernel::RmsNorm { epsilon: 1e-6 }, &[rows, (Bf16, 1, HIDDEN)], None), none),
        (of("rotate", Kernel::Rotate { head_dim: 128 }, &[rows, (F32, TOKENS, 128)], None), none),
        (of("gated add", Kernel::GatedAdd, &[rows, rows, (F32, 1, HIDDEN)], None), none),
        (of("add", Kernel::Add, &[rows, rows], None), none),
        (of("dequantise", Kernel::Dequantise, &[(Element::Fp8, FFN, HIDDEN), (F32, 1, FFN)], Some((Bf16, FFN, HIDDEN))), none),
        (
            of(
                "product of the timestep",
                Kernel::Product { bias: true, function: Function::Silu },
                &[(F32, 1, HIDDEN), (Bf16, 6 * HIDDEN, HIDDEN), (Bf16, 1, 6 * HIDDEN)],
                Some((F32, 1, 6 * HIDDEN)),
            ),
            none,
        ),
    ]
}

pub(crate) fn table(device: &Device) {
    println!("{:<28}{:>12}{:>14}{:>12}", "kernel", "ms", "TFLOP/s", "TB/s");
    for (case, flop) in cases() {
        let machine = Machine::new(device, &case, &mut Numbers::new(7));
        let mut times: Vec<f64> = (0..TIMES + 3).map(|_| once(device, &machine, &case)).skip(3).collect();
        times.sort_by(f64::total_cmp);
        let (ms, bytes) = (times[TIMES / 2], case.reads.iter().chain(&case.writes).map(View::bytes).sum::<u64>());
        println!("{:<28}{ms:>12.4}{:>14.1}{:>12.3}", case.name, flop / ms / 1e9, bytes as f64 / ms / 1e9);
    }
}

/// Milliseconds of one launch; the median of many is told.
fn once(device: &Device, machine: &Machine<'_>, case: &Case) -> f64 {
    use fv_device::cuda::Queue;
    let events = [0, 1].map(|_| device.event(true).expect("an event"));
    device.record(&events[0], Queue::Compute).expect("recorded");
    machine.launch(case);
    device.record(&events[1], Queue::Compute).expect("recorded");
    device.synchronize().unwrap_or_else(|error| panic!("{}: {error}", case.name));
    events[0].milliseconds_to(&events[1]).expect("timed")
}
