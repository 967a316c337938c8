//! Our own runtime: `estimate --runtime fv-run` and `fv-run plan` say the same of every cell of a table, to the byte and the nanosecond,
//! and so do all other questions.

use std::fmt::Write as _;
use std::process::Command;
use std::sync::Mutex;

use fv_data::Catalog;
use fv_tests::{program, runner};
use serde_json::{Value, json};

/// Every model with a program, and a request that is soon planned.
const MODELS: [(&str, &str); 6] = [
    ("wan21-t2v-1.3b", "--width 832 --height 480 --frames 17"),
    ("wan21-t2v-14b", "--width 832 --height 480 --frames 17"),
    ("fastwan21", "--width 640 --height 352 --frames 33"),
    ("wan22-ti2v-5b", "--width 640 --height 384 --frames 17"),
    ("fastwan22-ti2v-5b", "--width 704 --height 384 --frames 25"),
    ("wan22-t2v-a14b", "--width 480 --height 272 --frames 9"),
];
/// Cards with and without known rates, and two that are only described: one on which everything streams, one that is too small.
const CARDS: [&str; 6] =
    ["--hardware rtx-3060-8gb", "--hardware rtx-4090-24gb", "--hardware h200", "--hardware rtx-5070-12gb", "--vram-gib 3", "--vram-gib 1"];
/// Host memory in GB.
const HOSTS: [u32; 2] = [8, 64];

fn json(runs: &std::path::Path, line: &str) -> (i32, Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(runs);
    command.args(line.split_whitespace()).args(["--format", "json"]).current_dir(folder.path()).env_remove("FV_CATALOG");
    let done = command.output().expect("the program starts");
    let answer = serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{line}: {}", String::from_utf8_lossy(&done.stderr)));
    (done.status.code().expect("no signal"), answer)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ends(time: &Value) -> [Option<u64>; 3] {
    let of = |names: [&str; 2]| names.into_iter().find_map(|name| time[name].as_u64());
    [of(["low_ns", "lowNs"]), of(["value_ns", "valueNs"]), of(["high_ns", "highNs"])]
}

/// Steps, stages and the whole request, as a plan and as an estimate write them.
fn times(forecast: &Value) -> Value {
    let steps: Vec<Value> = list(&forecast["passes"]).iter().map(|pass| json!([pass["steps"], ends(&pass["step"])])).collect();
    let stages: Vec<Value> = list(&forecast["stages"]).iter().map(|stage| json!([stage["name"], ends(&stage["time"])])).collect();
    json!([steps, stages, ends(&forecast["request"])])
}

/// The largest peak of a stage in one memory, as the plan has it.
fn peak(plan: &Value, stage: &str, tier: &str) -> Option<u64> {
    let peaks = list(&plan["peaks"]).iter().filter(|peak| peak["stage"] == stage && peak["tier"] == tier);
    peaks.filter_map(|peak| peak["bytes"].as_u64()).max()
}

/// Bytes of the layout of a stage on the device: of parts that take turns the larger one.
fn arena(plan: &Value, stage: &str) -> Option<u64> {
    let parts: &[&str] = match stage {
        "encoding" => &["text_encoder"],
        "denoising" => &["transformer", "transformer_2"],
        _ => &["vae"],
    };
    let regions = list(&plan["arena"]["regions"]).iter();
    let of = regions.filter(|region| region["tier"] == "device" && parts.iter().any(|part| region["part"] == *part));
    of.filter_map(|region| region["bytes"].as_u64()).max()
}

/// What is wrong with one cell, and whether it is planned and timed.
fn cell(model: &str, request: &str, card: &str, host: u32, more: [&str; 2]) -> (Vec<String>, bool, bool) {
    let gib = f64::from(host) * 1e9 / f64::from(1 << 30);
    let [to_plan, to_estimate] = more;
    let (code, plan) = json(runner(), &format!("plan --model {model} {card} --ram-gib {gib} --system linux {request} {to_plan}"));
    let (_, estimate) = json(program(), &format!("estimate {model} --runtime fv-run {card} --host-gb {host} {request} {to_estimate}"));
    let mut wrong = Vec::new();
    let mut same = |what: &str, planned: &Value, estimated: &Value| {
        if planned != estimated {
            wrong.push(format!("{model} {request} on {card} with {host} GB: {what}: planned {planned}, estimated {estimated}"));
        }
    };
    let status = match code {
        0 => "fits",
        4 => "does_not_fit",
        _ => "unknown",
    };
    same("status", &json!(status), &estimate["status"]);
    let budgets = list(&plan["budgets"]);
    same("budget", &budgets[0]["budget_bytes"], &estimate["memory"]["budgetBytes"]);
    same("reserve", &budgets[0]["reserve_bytes"], &estimate["memory"]["reserveBytes"]);
    same("host", &budgets[1]["capacity_bytes"], &estimate["host"]["capacityBytes"]);
    if code == 4 {
        same("shortfall", &plan["shortfalls"][0]["shortfall_bytes"], &estimate["shortfall"]["bytes"]);
        return (wrong, false, false);
    }
    for stage in list(&estimate["stages"]).iter().filter(|stage| stage["name"] != "load") {
        let (name, peaks) = (stage["name"].as_str().expect("a name"), &stage["peakBytes"]);
        for end in ["low", "value", "high"] {
            same(&format!("{name} on the device"), &json!(peak(&plan, name, "device")), &peaks["device"][end]);
            same(&format!("{name} in the arena"), &json!(arena(&plan, name)), &peaks["reserved"][end]);
        }
        same(&format!("{name} page-locked"), &json!(peak(&plan, name, "pinned")), &stage["host"]["pinnedBytes"]);
        let there = list(&stage["buffers"]).iter().filter(|buffer| buffer["tier"] == "device");
        let alive: u64 = there.filter_map(|buffer| buffer["bytes"].as_u64()).sum();
        same(&format!("{name} alive"), &json!(alive), &peaks["allocated"]["value"]);
    }
    let stages = ["encoding", "denoising", "decoding"];
    let most = |tier| json!(stages.iter().filter_map(|stage| peak(&plan, stage, tier)).max());
    same("host", &most("pinned"), &estimate["host"]["requiredBytes"]);
    let forecast = &estimate["forecast"];
    if plan["forecast"].is_null() {
        same("time", &json!(plan["unforecast"].as_array().map_or(0, Vec::len)), &json!(list(&forecast["unknown"]).len()));
    } else {
        same("time", &times(&plan["forecast"]), &times(forecast));
    }
    for decision in list(&plan["decisions"]).iter().chain(list(&plan["passes"][0]["decisions"])) {
        // Who says the format and the reserve is another one.
        let key = decision["key"].as_str().expect("a key");
        let setting = list(&estimate["settings"]).iter().find(|setting| setting["key"] == key && setting["provenance"] == "planner");
        same(key, &decision["value"], setting.map_or(&Value::Null, |setting| &setting["value"]));
    }
    (wrong, true, !plan["forecast"].is_null())
}

#[test]
fn estimates_and_plans_agree_on_every_cell() {
    let mut cells = Vec::new();
    for (at, (model, request)) in MODELS.into_iter().enumerate() {
        for (number, card) in CARDS.into_iter().enumerate() {
            // Each host memory with every other card.
            cells.push((model, request, card, HOSTS[(at + number) % HOSTS.len()], ["", ""]));
        }
        cells.push((model, request, CARDS[at % 4], 16, ["--precision fp8", "--set precision=fp8"]));
    }
    // As published, and other steps and texts.
    cells.push(("fastwan21", "", CARDS[1], 32, ["", ""]));
    cells.push(("wan21-t2v-1.3b", "--steps 7 --text-tokens 77 --width 480 --height 832 --frames 33", CARDS[1], 64, ["", ""]));
    cells.push(("wan22-ti2v-5b", "--seconds 1 --width 640 --height 384", CARDS[2], 64, ["--precision int8", "--set precision=int8"]));
    let (todo, found) = (Mutex::new(cells.iter()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((model, request, card, host, more)) = { todo.lock().expect("no panic").next() } {
                    let answer = cell(model, request, card, *host, *more);
                    found.lock().expect("no panic").push(answer);
                }
            });
        }
    });
    let found = found.into_inner().expect("no panic");
    assert_eq!(found.len(), cells.len());
    let wrong = found.iter().flat_map(|(wrong, ..)| wrong).fold(String::new(), |mut text, line| {
        let _ = writeln!(text, "{line}");
        text
    });
    assert!(wrong.is_empty(), "{wrong}");
    let [planned, timed] = [|cell: &(Vec<String>, bool, bool)| cell.1, |cell: &(Vec<String>, bool, bool)| cell.2]
        .map(|of| found.iter().filter(|cell| of(cell)).count());
    assert!(planned >= 30 && timed >= 15 && planned < cells.len(), "{planned} planned, {timed} with a time, of {}", cells.len());
}

/// Every question about the runtime says what the estimate says.
#[test]
fn all_questions_say_what_the_estimate_says() {
    let about = "fastwan21 --runtime fv-run --height 352 --width 640 --frames 33";
    let on = "--hardware rtx-4090-24gb --host-gb 32";
    let (_, estimate) = json(program(), &format!("estimate {about} {on}"));
    assert_eq!(estimate["status"], "fits");
    let (_, explained) = json(program(), &format!("explain {about} {on}"));
    assert_eq!(explained["estimate"], estimate);
    let device = |name: &str| {
        let stage = list(&estimate["stages"]).iter().find(|stage| stage["name"] == name).expect("a stage");
        stage["peakBytes"]["device"].clone()
    };
    let request = ends(&estimate["forecast"]["request"]);

    let (_, compared) = json(program(), &format!("compare {about} {on}"));
    let row = &list(&compared["rows"])[0];
    assert_eq!((&row["status"], ends(&row["time"]["request"])), (&estimate["status"], request));
    for stage in list(&row["stages"]) {
        assert_eq!(stage["device"], device(stage["name"].as_str().expect("a name")));
    }

    let (_, recommended) = json(program(), &format!("recommend {about} {on}"));
    let listed = &list(&recommended["analytical"])[0];
    assert_eq!((listed["hardware"].as_str(), ends(&listed["time"]["request"])), (Some("rtx-4090-24gb"), request));

    let line = "sweep fastwan21 --runtime fv-run --size 640x352 --frames 33 --hardware rtx-4090-24gb --host-gb 32 --out -";
    let swept = Command::new(program()).args(line.split_whitespace()).env_remove("FV_CATALOG").output().expect("the program starts");
    let text = String::from_utf8(swept.stdout).expect("text");
    let denoising = device("denoising")["value"].to_string();
    assert!(text.lines().nth(1).is_some_and(|row| row.contains(&denoising) && row.contains(",fits,")), "{text}");
}

/// The largest clip and the smallest budget are ends: a little more is no longer planned.
#[test]
fn ends_are_ends() {
    let about = "fastwan21 --runtime fv-run --height 352 --width 640 --frames 33";
    let (_, found) = json(program(), &format!("largest {about} --vram-gib 3 --host-gb 16"));
    let answer = &list(&found["answers"])[0];
    for (extent, kind) in [(&answer["frames"], "num_frames"), (&answer["size"], "height")] {
        let of = |clip: &Value| clip[kind].as_u64().or(clip["numFrames"].as_u64());
        // Beyond some length a program is not written out, and nothing is known of the next clip.
        assert_eq!(extent["largest"]["status"], "fits", "{extent}");
        assert_ne!(extent["next"]["status"], "fits", "{extent}");
        assert!(of(&extent["largest"]) < of(&extent["next"]), "{extent}");
    }
    let (_, minimum) = json(program(), &format!("minimum {about} --hardware rtx-4090-24gb --host-gb 32"));
    let [device, host] = ["fitsBytes", "hostBytes"].map(|name| minimum[name].as_u64().expect("there is one"));
    let tried = |budget: u64, host: Option<u64>| {
        let found = list(&minimum["checks"]).iter().find(|check| {
            check["budgetBytes"].as_u64() == Some(budget) && check["hostBytes"].as_u64() == host //
        });
        found.map(|check| check["status"].clone())
    };
    assert_eq!((tried(device, None), tried(device - 1, None)), (Some(json!("fits")), Some(json!("does_not_fit"))), "{minimum}");
    assert_eq!((tried(device, Some(host)), tried(device, Some(host - 1))), (Some(json!("fits")), Some(json!("does_not_fit"))), "{minimum}");
    assert!(!list(&minimum["devices"]).is_empty());
    // Each stage says what it takes, one of them all of the device that is needed, and none more than either budget.
    let stages = list(&minimum["stages"]);
    let of = |field: &str| stages.iter().map(|stage| stage[field].as_u64().expect("a number")).collect::<Vec<_>>();
    let names: Vec<_> = stages.iter().map(|stage| stage["name"].as_str().expect("a name")).collect();
    assert_eq!(names, ["load", "encoding", "denoising", "decoding"]);
    assert_eq!(of("fitsBytes").into_iter().max(), Some(device), "{minimum}");
    assert_eq!(of("fitsBytes"), of("uncertainBytes"));
    assert!(of("hostBytes").iter().all(|bytes| (1..=host).contains(bytes)), "{minimum}");
}

/// The deployment that stands in is there for every model and takes no place of one of the catalog.
#[test]
fn the_deployment_stands_in_only_where_it_is_asked_for() {
    let catalog = Catalog::embedded().expect("readable");
    assert!(catalog.models.values().all(|model| model.examples.iter().all(|example| example.id != "fv-run")));
    let (code, unknown) = json(program(), "estimate hunyuanvideo --runtime fv-run --hardware rtx-4090-24gb --require-fit");
    assert_eq!((code, &unknown["status"], &unknown["reasons"][0]["code"]), (1, &json!("unknown"), &json!("uncovered-model")));
    let (_, named) =
        json(program(), "estimate fastwan21 --deployment fv-run --hardware rtx-4090-24gb --height 352 --width 640 --frames 33");
    assert_eq!(named["deployment"], "fv-run");
    let (_, recommended) = json(program(), "recommend fastwan21 --hardware rtx-4090-24gb");
    let lists = ["measured", "analytical", "uncertain", "unknown"];
    assert!(lists.iter().flat_map(|name| list(&recommended[name])).all(|found| found["deployment"] != "fv-run"), "{recommended}");
}
