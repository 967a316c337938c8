//! What the questions beside an estimate cost: the largest clip, the smallest budget, rows of a sweep.

use std::{fs, path::Path};

use divan::{Bencher, counter::ItemsCount};
use fv_estimate::{
    budget::Asked,
    device::DeviceSpec,
    largest::{Wanted, largest},
    minimum::minimum,
    question::Question,
    resolve::Overrides,
    sweep::{Axes, Plan, Range, Reuse},
};
use fv_spec::{
    compiled::{Example, HardwareFile, Model, RulesFile},
    request::PartialRequest,
};

fn main() {
    divan::main();
}

fn data<T: serde::de::DeserializeOwned>(path: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data").join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

struct Case {
    model: Model,
    rules: RulesFile,
    devices: Vec<DeviceSpec>,
    asked: Asked,
    overrides: Overrides,
}

impl Case {
    fn new() -> Self {
        let hardware: HardwareFile = data("hardware.json");
        Self {
            model: data("models/wan21-t2v-1.3b.json"),
            rules: data("rules.json"),
            devices: hardware.devices.iter().map(DeviceSpec::from).collect(),
            asked: Asked { host_gb: Some(64.0), ..Asked::default() },
            overrides: Overrides::default(),
        }
    }

    fn example(&self) -> &Example {
        self.model.examples.iter().find(|example| example.id == "diffusers").unwrap_or(&self.model.examples[0])
    }

    fn question(&self, device: &str) -> Question<'_> {
        let Self { model, rules, devices, asked, overrides } = self;
        let device = devices.iter().find(|found| found.id == device);
        Question { model, example: self.example(), rules, device, asked, overrides }
    }
}

/// Devices: small, usual and large cards.
#[divan::bench(args = ["rtx-3060-12gb", "rtx-4090-24gb"], sample_count = 20)]
fn largest_clip(bencher: Bencher, device: &str) {
    let case = Case::new();
    let wanted = Wanted { admit_uncertain: false, pareto: false, changes: false, adapted: false };
    bencher.bench_local(|| largest(&case.question(device), &PartialRequest::default(), wanted));
}

#[divan::bench(sample_count = 20)]
fn what_makes_it_fit(bencher: Bencher) {
    let case = Case::new();
    let wanted = Wanted { admit_uncertain: false, pareto: false, changes: true, adapted: false };
    bencher.bench_local(|| largest(&case.question("rtx-3060-12gb"), &PartialRequest::default(), wanted));
}

#[divan::bench(sample_count = 20)]
fn smallest_budget(bencher: Bencher) {
    let case = Case::new();
    bencher.bench_local(|| minimum(&case.question("rtx-4090-24gb"), &PartialRequest::default()));
}

/// Rows of a sweep on one thread: 40 requests on every device of the catalog.
#[divan::bench(sample_count = 20)]
fn sweep_rows(bencher: Bencher) {
    let case = Case::new();
    let axes = Axes { frames: vec![Range { first: 1, last: 157, step: None }], settings: vec![Vec::new()], ..Axes::default() };
    let deployments = [(&case.model, case.example())];
    let request = PartialRequest::default();
    let plan = Plan::new(&deployments, &case.devices, &case.asked, &case.rules, &request, &case.overrides, &axes);
    let plan = plan.unwrap_or_else(|errors| panic!("{errors:?}"));
    let requests = u64::try_from(plan.requests()).unwrap_or(0);
    bencher.counter(ItemsCount::new(requests * case.devices.len() as u64)).bench_local(|| {
        let (mut fits, mut reuse) = (0_u32, Reuse::default());
        for request in 0..requests {
            plan.rows(request, &mut reuse, |row| fits += u32::from(row.status == fv_spec::estimate::Verdict::Fits));
        }
        fits
    });
}
