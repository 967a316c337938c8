//! How long deciding takes, for every published model with the request of its pipeline: everything anew, and again where all that was
//! looked at is known; and how long it takes to write the chosen program down and to place its buffers.

#[allow(dead_code, clippy::allow_attributes, reason = "tests use more of it")]
#[path = "../tests/common/published.rs"]
mod published;

use divan::{Bencher, black_box};
use fv_program::optimal::Budgets;
use fv_program::wan;
use fv_program::wan::options::Options;
use published::{BF16, MIDDLE, Published};

fn main() {
    divan::main();
}

/// A model, and GiB of the device and of the host.
#[derive(Clone, Copy)]
struct Case(&'static str, [u64; 2]);

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(model, [device, host]) = self;
        write!(f, "{model} {device}/{host}")
    }
}

/// Every model with much memory, and with little.
fn cases() -> impl Iterator<Item = Case> {
    let models = ["wan21-t2v-1.3b", "wan21-t2v-14b", "fastwan21", "wan22-ti2v-5b", "fastwan22-ti2v-5b", "wan22-t2v-a14b"];
    models.into_iter().flat_map(|model| [[48, 128], [24, 32], [12, 16]].map(|memory| Case(model, memory)))
}

fn asked(Case(model, [device, host]): Case) -> (Published, Budgets) {
    let published = published::all().into_iter().find(|known| known.model.id == model).expect("published");
    (published, Budgets { device_bytes: device << 30, host_bytes: host << 30, per_pinned_gib_bytes: 2 << 20 })
}

#[divan::bench(args = cases())]
fn cold(bencher: Bencher<'_, '_>, case: Case) {
    let ((Published { model, request }, budgets), rates) = (asked(case), published::rates(MIDDLE));
    bencher.bench(|| Options::new(black_box(&model), &request, BF16, &rates).map(|mut options| options.solve(black_box(&budgets))));
}

#[divan::bench(args = cases())]
fn prepared(bencher: Bencher<'_, '_>, case: Case) {
    let ((Published { model, request }, budgets), rates) = (asked(case), published::rates(MIDDLE));
    let mut options = Options::new(&model, &request, BF16, &rates).expect("rates are known");
    let _ = options.solve(&budgets);
    bencher.bench_local(|| options.solve(black_box(&budgets)));
}

/// The chosen program written down.
#[divan::bench(args = cases())]
fn lower(bencher: Bencher<'_, '_>, case: Case) {
    let ((Published { model, request }, budgets), rates) = (asked(case), published::rates(MIDDLE));
    let mut options = Options::new(&model, &request, BF16, &rates).expect("rates are known");
    let Ok(chosen) = options.solve(&budgets) else { return };
    let choices = options.choices(&chosen);
    bencher.bench(|| wan::lower(black_box(&model), &request, &choices));
}

/// All of it: chosen, lowered, packed, and chosen again where the layout takes more.
#[divan::bench(args = cases(), sample_count = 20)]
fn settle(bencher: Bencher<'_, '_>, case: Case) {
    let ((Published { model, request }, budgets), rates) = (asked(case), published::rates(MIDDLE));
    bencher.bench(|| Options::new(&model, &request, BF16, &rates).map(|mut options| options.settle(black_box(&budgets)).is_ok()));
}
