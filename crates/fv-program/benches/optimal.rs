//! How long deciding takes, for every published model with the request of its pipeline: everything anew, and again where all that was
//! looked at is known.

#[expect(dead_code, reason = "tests use more of it")]
#[path = "../tests/common/published.rs"]
mod published;

use divan::{Bencher, black_box};
use fv_program::optimal::Budgets;
use fv_program::wan::options::Options;
use published::{BF16, FP8, MIDDLE, Published};

fn main() {
    divan::main();
}

const MODELS: [&str; 6] = ["wan21-t2v-1.3b", "wan21-t2v-14b", "fastwan21", "wan22-ti2v-5b", "fastwan22-ti2v-5b", "wan22-t2v-a14b"];
/// GiB of the device and of the host: much, little of one, little of both.
const MEMORY: [[u64; 2]; 4] = [[48, 128], [24, 32], [12, 64], [8, 16]];

fn published(model: &str) -> Published {
    published::all().into_iter().find(|known| known.model.id == model).expect("published")
}

fn budgets([device, host]: [u64; 2]) -> Budgets {
    Budgets { device_bytes: device << 30, host_bytes: host << 30, per_pinned_gib_bytes: 2 << 20 }
}

#[divan::bench(args = MODELS, consts = [0, 1, 2, 3])]
fn cold<const AT: usize>(bencher: Bencher<'_, '_>, model: &str) {
    let (Published { model, request }, rates, budgets) = (published(model), published::rates(MIDDLE), budgets(MEMORY[AT]));
    bencher.bench(|| Options::new(black_box(&model), &request, BF16, &rates).map(|mut options| options.solve(black_box(&budgets))));
}

#[divan::bench(args = MODELS, consts = [0, 1, 2, 3])]
fn prepared<const AT: usize>(bencher: Bencher<'_, '_>, model: &str) {
    let (Published { model, request }, rates, budgets) = (published(model), published::rates(MIDDLE), budgets(MEMORY[AT]));
    let mut options = Options::new(&model, &request, FP8, &rates).expect("rates are known");
    let _ = options.solve(&budgets);
    bencher.bench_local(|| options.solve(black_box(&budgets)));
}
