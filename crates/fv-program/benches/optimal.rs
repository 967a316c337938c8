//! How long deciding takes, the configurations at hand.

use divan::{Bencher, black_box};
use fv_program::optimal::{Blocks, Budgets, Configuration, Prepared, SetUp, Staged};
use fv_spec::questions::OutputEffect;

fn main() {
    divan::main();
}

/// A thousand ways to compute a model of forty blocks: the less memory, the slower.
fn configurations() -> Vec<Configuration> {
    let configuration = |index: u64| Configuration {
        blocks: Blocks { count: 40, bytes: 702_788_608, copy_ns: 28_000_000, read_ns: 390_000_000 },
        device_bytes: (8 << 30) / (1 + index % 25) + (index << 10),
        host_bytes: (index % 3) << 28,
        loading_bytes: 0,
        sweeps: [50, 0],
        rounds: 1,
        set_up: SetUp { ns: 5_000_000, block_ns: index.is_multiple_of(2).then_some(100_000) },
        sweep_ns: 10_000_000,
        round_ns: 20_000_000,
        block_ns: 150_000_000 + (index % 40) * 900_000,
        staged: (index % 4 == 3).then_some(Staged { before_ns: 10_000_000, after_ns: 10_000_000, bytes: (index % 4) << 28 }),
        effect: OutputEffect::None,
    };
    (0..1_000).map(configuration).collect()
}

/// GiB of the device and of the host: everything fits, weights are copied, weights are read, hardly anything fits.
#[divan::bench(args = [[48, 128], [24, 64], [12, 16], [3, 4]])]
fn a_thousand_configurations(bencher: Bencher, [device, host]: [u64; 2]) {
    let configurations = configurations();
    let budgets = Budgets { device_bytes: device << 30, host_bytes: host << 30, per_pinned_gib_bytes: 2 << 20 };
    let prepared = Prepared::new(&configurations);
    bencher.bench(|| black_box(&prepared).solve(black_box(&budgets)));
}
