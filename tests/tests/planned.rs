//! Requests that a runtime's own planner decides: the estimate, its lists and the plan say the same, and what is said to fit is shown to fit.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::LazyLock;

use fv_data::Catalog;
use fv_estimate::{
    budget::Asked,
    device::DeviceSpec,
    question::Question,
    resolve::Overrides,
    sweep::{Axes, Plan, Reuse},
};
use fv_spec::{
    authored::{Backend, MemoryType, Runtime},
    compiled::Example,
    estimate::Verdict,
    questions::SweepRow,
    request::PartialRequest,
};
use fv_tests::{program, runner};
use serde_json::{Value, json};

static CATALOG: LazyLock<Catalog> = LazyLock::new(|| Catalog::embedded().expect("readable"));

const MODEL: &str = "minimax-h3";
/// Cards of every generation, small and large, with and without known rates.
const DEVICES: [&str; 14] = [
    "rtx-3060-12gb",
    "rtx-3080-10gb",
    "rtx-3090-24gb",
    "rtx-4060-ti-8gb",
    "rtx-4070-ti-12gb",
    "rtx-4090-24gb",
    "l40s-48gb",
    "a100-sxm-80gb",
    "h100-sxm-80gb",
    "h200-sxm-141gb",
    "rtx-5060-ti-8gb",
    "rtx-5070-ti-16gb",
    "rtx-5090-32gb",
    "b200-180gb",
];
/// Host memory in GB; the first is too little everywhere.
const HOSTS: [u32; 4] = [4, 16, 32, 64];

fn run(program: &Path, line: &str) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(program);
    command.args(line.split_whitespace()).current_dir(folder.path()).env_remove("FV_CATALOG").output().expect("the program starts")
}

/// The program's answer as JSON, with its exit code.
fn ask(line: &str) -> (i32, Value) {
    let done = run(program(), &format!("{line} --format json"));
    let code = done.status.code().expect("no signal");
    let answer = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{line}: {}", String::from_utf8_lossy(&done.stderr)));
    (code, answer)
}

/// `[low, value, high]` of a time, in either spelling.
fn ends(time: &Value) -> Vec<u64> {
    let of = |names: [&str; 2]| names.into_iter().find_map(|name| time[name].as_u64());
    [["low_ns", "lowNs"], ["value_ns", "valueNs"], ["high_ns", "highNs"]].into_iter().filter_map(of).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Steps, stages and the whole request, as a plan and as an estimate write them.
fn times(forecast: &Value) -> Value {
    let steps: Vec<Value> = list(&forecast["passes"]).iter().map(|pass| json!([pass["steps"], ends(&pass["step"])])).collect();
    let stages: Vec<Value> = list(&forecast["stages"]).iter().map(|stage| json!([stage["name"], ends(&stage["time"])])).collect();
    json!([steps, stages, ends(&forecast["request"])])
}

/// What sampling rests on, in a plan's words.
fn coverage(forecast: &Value) -> Option<&str> {
    let stage = list(&forecast["stages"]).iter().find(|stage| stage["name"] == "denoising")?;
    Some(match stage["basis"].as_str()? {
        "scaled" => "derived",
        same => same,
    })
}

/// The largest device peak of a plan's stage.
fn peak(plan: &Value, stage: &str) -> Option<u64> {
    let peaks = list(&plan["peaks"]).iter().filter(|peak| peak["stage"] == stage && peak["tier"] == "device");
    peaks.filter_map(|peak| peak["bytes"].as_u64()).max()
}

#[test]
fn estimates_and_lists_carry_the_figures_of_the_plan() {
    let prices = tempfile::tempdir().expect("a folder");
    let file = prices.path().join("prices.csv");
    let lines = DEVICES.map(|device| format!("{device},USD,3.6,a page,2026-11-30\n")).concat();
    std::fs::write(&file, format!("hardware,currency,price_per_hour,source,date\n{lines}")).expect("written");
    let (mut timed, mut refused, mut without) = (0, 0, 0);
    for host in HOSTS {
        let about = format!("{MODEL} --runtime freevideo --host-gb {host} --hardware {} --prices {}", DEVICES.join(","), file.display());
        let (_, compared) = ask(&format!("compare {about}"));
        let (_, recommended) = ask(&format!("recommend {about}"));
        for device in DEVICES {
            let at = format!("{device} with {host} GB");
            let gib = f64::from(host) * 1e9 / f64::from(1 << 30);
            let (code, plan) = ask(&format!("plan --model {MODEL} --hardware {device} --ram-gib {gib} --no-two-pass"));
            let (_, estimate) = ask(&format!("estimate {MODEL} --runtime freevideo --hardware {device} --host-gb {host}"));
            let (_, explained) = ask(&format!("explain {MODEL} --runtime freevideo --hardware {device} --host-gb {host}"));
            let forecast = &estimate["forecast"];
            assert_eq!(forecast, &explained["estimate"]["forecast"], "{at}");
            let row = list(&compared["rows"]).iter().find(|row| row["hardware"] == device).expect("compared");
            let lists = ["measured", "analytical", "uncertain", "unknown"];
            let listed = lists.iter().flat_map(|name| list(&recommended[name])).find(|found| found["hardware"] == device);
            if code != 0 {
                assert_eq!((code, list(&forecast["passes"]).len(), row["time"].is_null()), (4, 0, true), "{at}: {forecast}");
                assert_ne!(estimate["status"], "fits", "{at}");
                assert!(!list(&forecast["unknown"]).is_empty(), "{at}");
                refused += 1;
                continue;
            }
            assert_eq!(list(&forecast["unknown"]), list(&plan["unforecast"]), "{at}");
            if plan["forecast"].is_null() {
                assert_eq!((list(&forecast["passes"]).len(), coverage(forecast)), (0, None), "{at}: {forecast}");
            } else {
                assert_eq!(times(forecast), times(&plan["forecast"]), "{at}");
                assert_eq!(coverage(forecast), plan["forecast"]["coverage"].as_str(), "{at}");
            }
            let listed = listed.unwrap_or_else(|| panic!("{at} is not listed"));
            if forecast["request"].is_null() {
                assert!(!list(&plan["unforecast"]).is_empty() && row["time"].is_null() && listed["time"].is_null(), "{at}: {plan}");
                without += 1;
            } else {
                timed += 1;
            }
            for time in [&row["time"], &listed["time"]].into_iter().filter(|time| !time.is_null()) {
                assert_eq!(ends(&time["request"]), ends(&plan["forecast"]["request"]), "{at}");
                assert_eq!(ends(&time["step"]), ends(&plan["forecast"]["passes"][0]["step"]), "{at}");
                // A price of 3.6 an hour is a thousandth a second.
                assert_eq!(time["cost"]["valueMicro"].as_u64(), ends(&time["request"]).get(1).map(|ns| ns / 1_000_000), "{at}");
            }
            for stage in list(&estimate["stages"]) {
                let found = &stage["peakBytes"]["device"]["value"];
                assert_eq!(found.as_u64(), peak(&plan, stage["name"].as_str().expect("a name")), "{at}: {stage}");
            }
            let most = ["denoising", "decoding"].iter().filter_map(|stage| peak(&plan, stage)).max();
            assert_eq!(listed["devicePeak"]["value"].as_u64(), most, "{at}");
        }
    }
    assert!(timed >= 20 && refused >= DEVICES.len() && without >= 5, "{timed} with a time, {refused} refused, {without} without a rate");
}

/// What there is no time for is named, and why: by a plan as text and as JSON, by a grid as a table and as a file.
#[test]
fn a_rate_that_is_not_known_is_named() {
    // Words, wherever lines are broken.
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).split_whitespace().collect::<Vec<_>>().join(" ");
    for device in ["rtx-3060-12gb", "rtx-4060-ti-8gb", "rtx-5060-ti-8gb", "b200-180gb"] {
        let request = format!("--hardware {device} --no-two-pass --system linux");
        let (_, plan) = ask(&format!("plan {request} --ram-gib 60"));
        let reasons: Vec<&str> = list(&plan["unforecast"]).iter().filter_map(|reason| reason["message"].as_str()).collect();
        assert!(plan["forecast"].is_null() && !reasons.is_empty(), "{device}: {plan}");
        assert!(reasons.iter().all(|reason| reason.contains(device) && reason.ends_with("is not known")), "{reasons:?}");
        let text = words(&run(program(), &format!("plan {request} --ram-gib 60")).stdout);
        let grid = format!("grid {request} --vram 10..12 --ram 60..62 --step 2");
        let table = words(&run(runner(), &grid).stdout);
        let file = words(&run(runner(), &format!("{grid} --format csv")).stderr);
        for reason in reasons {
            for (shown, what) in [(&text, "plan"), (&table, "grid"), (&file, "file")] {
                assert!(shown.contains(reason), "{device}: the {what} lacks {reason:?}: {shown}");
            }
        }
    }
    let (_, known) = ask("plan --hardware h200 --ram-gib 60 --no-two-pass");
    assert!(known["unforecast"].is_null() && known["forecast"]["request"].is_object(), "{known}");
}

fn freevideo(example: &Example) -> bool {
    example.runtime == Runtime::FreeVideo
}

/// Whatever decides, what is said to fit is shown within what it is held against: on every device, for every runtime of a model that has
/// a planner, and one that has none.
#[test]
fn what_fits_is_shown_to_fit() {
    let (mut fitting, mut planned) = (0, 0);
    for id in [MODEL, "wan21-t2v-1.3b"] {
        let model = CATALOG.model(id).expect("in the catalog");
        for example in &model.examples {
            for (device, host) in CATALOG.devices.iter().flat_map(|device| [8.0, 16.0, 32.0, 64.0, 256.0].map(|host| (device, host))) {
                // Others have no rules, and shared memory is compared as one pool.
                if device.backend != Backend::Cuda || device.memory_type != MemoryType::Dedicated {
                    continue;
                }
                let spec = DeviceSpec::from(device);
                let asked = Asked { host_gb: Some(host), ..Asked::default() };
                let overrides = Overrides::default();
                let question =
                    Question { model, example, rules: &CATALOG.rules, device: Some(&spec), asked: &asked, overrides: &overrides };
                let workload = question.evaluate(&PartialRequest::default(), false).expect("legal");
                let budget = question.budget(&workload.settings).expect("believed");
                let (summary, estimate) = (workload.summary(&budget), workload.estimate(Some(&spec.id), &budget));
                assert_eq!(summary.status, estimate.status);
                let shown: Vec<_> = estimate.stages.iter().filter_map(|stage| stage.peak_bytes).collect();
                assert_eq!(shown, summary.stages.iter().map(|stage| stage.peak_bytes).collect::<Vec<_>>());
                if estimate.status != Verdict::Fits {
                    continue;
                }
                fitting += 1;
                planned += usize::from(freevideo(example));
                let at = format!("{id} in {} on {} with {host} GB", example.id, spec.id);
                let budget = estimate.memory.budget_bytes.expect("a verdict has a budget");
                for peak in &shown {
                    assert!(peak.device.low <= peak.device.value && peak.device.value <= peak.device.high, "{at}: {peak:?}");
                    assert!(peak.device.high <= budget, "{at}: {peak:?} of {budget}");
                }
                let most = shown.iter().map(|peak| peak.device.value).max().expect("a peak");
                #[expect(clippy::cast_precision_loss, reason = "as it is shown")]
                let gib = most as f64 / 1_073_741_824.0;
                assert_eq!(estimate.capacity_gib, Some(gib), "{at}");
                let held = estimate.stages.iter().map(|stage| stage.host.pinned_bytes + stage.host.pageable_bytes).max();
                assert!(held <= estimate.host.capacity_bytes, "{at}: {held:?}");
                for stage in &estimate.stages {
                    let buffers: u64 = stage.buffers.iter().map(|buffer| buffer.bytes).sum();
                    let whole = stage.peak_bytes.map_or(0, |peak| peak.device.value);
                    assert!(!freevideo(example) || buffers == whole, "{at}: {stage:?}");
                }
            }
        }
    }
    assert!(fitting > 200 && planned > 100, "{fitting} fit, {planned} of them planned");
}

/// A sweep shows the same peaks and host memory as an estimate.
#[test]
fn sweeps_show_what_estimates_show() {
    let model = CATALOG.model(MODEL).expect("in the catalog");
    let example = model.examples.iter().find(|example| freevideo(example)).expect("a deployment");
    let devices: Vec<DeviceSpec> =
        DEVICES.iter().map(|id| DeviceSpec::from(CATALOG.devices.iter().find(|device| device.id == *id).expect("known"))).collect();
    let (asked, overrides) = (Asked { host_gb: Some(64.0), ..Asked::default() }, Overrides::default());
    let axes = Axes { settings: vec![Vec::new()], ..Axes::default() };
    let request = PartialRequest::default();
    let plan = Plan::new(&[(model, example)], &devices, &asked, &CATALOG.rules, &request, &overrides, &axes).expect("legal");
    let mut rows: Vec<SweepRow> = Vec::new();
    plan.rows(0, &mut Reuse::default(), |row| rows.push(row.clone()));
    assert_eq!(rows.len(), devices.len());
    for (row, device) in rows.iter().zip(&devices) {
        let question = Question { model, example, rules: &CATALOG.rules, device: Some(device), asked: &asked, overrides: &overrides };
        let estimate = question.estimate(&PartialRequest::default()).expect("legal");
        let peak = |name: &str| {
            let stage = estimate.stages.iter().find(|stage| stage.name == name)?;
            stage.peak_bytes.map(|peak| peak.device.value)
        };
        let found = [row.load_bytes, row.encoding_bytes, row.denoising_bytes, row.decoding_bytes];
        assert_eq!(found, ["load", "encoding", "denoising", "decoding"].map(peak), "{}", device.id);
        assert_eq!(row.status, estimate.status);
        if estimate.status == Verdict::Fits {
            assert_eq!(row.host_bytes, estimate.host.required_bytes, "{}", device.id);
        }
    }
}
