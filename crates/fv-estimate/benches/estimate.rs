//! What an estimate costs, whole and in parts. `--figures` prints one line a figure and nothing else, for `tests/bench`.

use std::{env, fs, hint::black_box, path::Path, time::Instant};

use divan::Bencher;
use fv_estimate::{
    budget::{Asked, Budget, budget, fixed_costs},
    device::DeviceSpec,
    estimate::Workload,
    family,
    program::{self, Program, Sampling},
    resolve::{Overrides, resolve},
    settings::Settings,
};
use fv_spec::{
    compiled::{Example, HardwareFile, Model, RulesFile},
    request::{PartialRequest, Request},
};

/// Model and deployment, each at its own default: 480x832, 81 frames.
const CASES: [&str; 4] = ["fastwan21 diffusers", "fastwan21 default", "wan21-t2v-1.3b diffusers", "wan21-t2v-1.3b fastvideo"];
/// Height, width and frames of clips that are estimated in turn, so that the processor does not learn one program's branches
/// by heart.
const CLIPS: [[u32; 3]; 8] =
    [[480, 832, 81], [720, 1280, 81], [480, 832, 17], [832, 480, 121], [256, 256, 1], [544, 960, 49], [720, 1280, 33], [448, 832, 101]];
const DEVICE: &str = "rtx-4090-24gb";

/// Nanoseconds allowed on one core.
const SUMMARY_LIMIT: f64 = 10_000.0;
const ESTIMATE_LIMIT: f64 = 60_000.0;

fn main() {
    let given = |name: &str| env::args().any(|argument| argument == name);
    if given("--figures") {
        print_figures(false);
        return;
    }
    divan::main();
    if given("--bench") {
        print_figures(true);
    }
}

fn data<T: serde::de::DeserializeOwned>(path: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data").join(path);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Everything that an estimate starts from.
struct Case {
    model: Model,
    example: Example,
    rules: RulesFile,
    device: DeviceSpec,
    overrides: Overrides,
    budget: Budget,
}

impl Case {
    fn new(name: &str) -> Self {
        let (model, example) = name.split_once(' ').unwrap_or((name, ""));
        let model: Model = data(&format!("models/{model}.json"));
        let example = model.examples.iter().find(|e| e.id == example).unwrap_or_else(|| panic!("no deployment {name}")).clone();
        let rules: RulesFile = data("rules.json");
        let hardware: HardwareFile = data("hardware.json");
        let device = hardware.devices.iter().find(|d| d.id == DEVICE).unwrap_or_else(|| panic!("no device {DEVICE}"));
        let device = DeviceSpec::from(device);
        let fixed = fixed_costs(&rules, &device, example.runtime);
        let budget = budget(Some(&device), &Asked::default(), &fixed).unwrap_or_else(|errors| panic!("{errors:?}"));
        Self { model, example, rules, device, overrides: Overrides::default(), budget }
    }

    fn evaluate(&self, request: &PartialRequest, details: bool) -> Workload {
        Workload::evaluate(&self.model, &self.example, request, &self.overrides, &self.rules, details)
            .unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    fn resolve(&self) -> (Settings, Request) {
        resolve(&self.model, &self.example, &PartialRequest::default(), &self.overrides).unwrap_or_else(|errors| panic!("{errors:?}"))
    }

    fn lower(&self, settings: &Settings, request: &Request, details: bool) -> Program {
        let family = family::find(&self.model.memory_rules).unwrap_or_else(|| panic!("no rules"));
        let lowered = family.lower(&self.model, &self.example, settings, request, details).unwrap_or_else(|| panic!("no rules"));
        lowered.unwrap_or_else(|reasons| panic!("{reasons:?}")).program
    }
}

fn clips() -> [PartialRequest; 8] {
    CLIPS.map(|[height, width, frames]| PartialRequest {
        height: Some(height),
        width: Some(width),
        num_frames: Some(frames),
        ..PartialRequest::default()
    })
}

/// One figure: nanoseconds a call, fastest and in the middle.
struct Figure {
    case: &'static str,
    what: &'static str,
    limit: Option<f64>,
    least: f64,
    median: f64,
}

const SAMPLES: u32 = 400;
/// Nanoseconds of a sample, at least: a look at the clock costs tens.
const SAMPLE: f64 = 20_000.0;

/// Nanoseconds a call of `run`, fastest and in the middle.
fn time(mut run: impl FnMut()) -> (f64, f64) {
    let mut sample = |calls: u32| {
        let start = Instant::now();
        for _ in 0..calls {
            run();
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(calls)
    };
    let guess = (0..10).map(|_| sample(1)).fold(f64::INFINITY, f64::min).max(1.0);
    let mut calls = 1;
    while f64::from(calls) * guess < SAMPLE {
        calls *= 2;
    }
    let mut times: Vec<f64> = (0..SAMPLES).map(|_| sample(calls)).collect();
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

/// One clip's share of a turn through all of them.
fn each((least, median): (f64, f64)) -> (f64, f64) {
    (least / 8.0, median / 8.0)
}

fn figures() -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |case: &'static str, what: &'static str, limit: Option<f64>, (least, median): (f64, f64)| {
        figures.push(Figure { case, what, limit, least, median });
    };
    for name in CASES {
        let case = Case::new(name);
        let asked = PartialRequest::default();
        let (evaluated, detailed) = (case.evaluate(&asked, false), case.evaluate(&asked, true));
        add(name, "summary on one more device", Some(SUMMARY_LIMIT), time(|| drop(black_box(evaluated.summary(&case.budget)))));
        let fresh = || black_box(case.evaluate(&asked, false)).summary(&case.budget);
        add(name, "evaluate and summary", None, time(|| drop(black_box(fresh()))));
        let fresh = || black_box(case.evaluate(&asked, true)).estimate(Some(DEVICE), &case.budget);
        add(name, "evaluate and estimate, all buffers", Some(ESTIMATE_LIMIT), time(|| drop(black_box(fresh()))));
        let clips = clips();
        let summaries = || clips.iter().for_each(|clip| drop(black_box(case.evaluate(clip, false).summary(&case.budget))));
        add(name, "evaluate and summary, eight clips in turn", None, each(time(summaries)));
        let estimates = || clips.iter().for_each(|clip| drop(black_box(case.evaluate(clip, true).estimate(Some(DEVICE), &case.budget))));
        add(name, "evaluate and estimate, eight clips in turn", Some(ESTIMATE_LIMIT), each(time(estimates)));
        add(name, "part: resolve", None, time(|| drop(black_box(case.resolve()))));
        let (settings, request) = case.resolve();
        add(name, "part: lower", None, time(|| drop(black_box(case.lower(&settings, &request, false)))));
        add(name, "part: lower with details", None, time(|| drop(black_box(case.lower(&settings, &request, true)))));
        let program = case.lower(&settings, &request, false);
        let caching = program::Model::Caching(settings.allocator);
        add(name, "part: run under caching", None, time(|| drop(black_box(program.run(&caching, Sampling::Ends)))));
        add(name, "part: estimate on one more device", None, time(|| drop(black_box(detailed.estimate(Some(DEVICE), &case.budget)))));
        let costs = || drop(black_box(fixed_costs(&case.rules, &case.device, case.example.runtime)));
        add(name, "part: fixed costs of the device", None, time(costs));
    }
    figures
}

#[expect(clippy::print_stdout, reason = "a benchmark prints what it measures")]
fn print_figures(for_people: bool) {
    for Figure { case, what, limit, least, median } in figures() {
        if for_people {
            let ratio = limit.map_or_else(String::new, |limit| format!("   {:.3} of the limit of {} us", median / limit, limit / 1e3));
            println!("{case:26} {what:44} {:9.2} us, fastest {:9.2} us{ratio}", median / 1e3, least / 1e3);
        } else {
            let limit = limit.map_or_else(String::new, |limit| limit.to_string());
            println!("{case}\t{what}\t{limit}\t{least:.1}\t{median:.1}");
        }
    }
}

#[divan::bench(args = CASES)]
fn summary(bencher: Bencher, name: &str) {
    let case = Case::new(name);
    let workload = case.evaluate(&PartialRequest::default(), false);
    bencher.bench_local(|| workload.summary(black_box(&case.budget)));
}

#[divan::bench(args = CASES)]
fn evaluate_and_summary(bencher: Bencher, name: &str) {
    let case = Case::new(name);
    bencher.bench_local(|| case.evaluate(black_box(&PartialRequest::default()), false).summary(&case.budget));
}

#[divan::bench(args = CASES)]
fn evaluate_and_estimate(bencher: Bencher, name: &str) {
    let case = Case::new(name);
    bencher.bench_local(|| case.evaluate(black_box(&PartialRequest::default()), true).estimate(Some(DEVICE), &case.budget));
}
