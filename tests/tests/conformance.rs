//! Conformance vectors: requests whose estimates are kept byte for byte.
//!
//! `tests/conformance/vectors.toml` lists the requests, `estimates.jsonl` the answers (`answers.toml` and `answers.jsonl` those to
//! the questions beside an estimate): one line for each, compact JSON. The
//! same lines must come from the library, the command line and the WebAssembly build. `UPDATE_CONFORMANCE=1` writes them anew.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use fv_data::Catalog;
use fv_estimate::budget::Asked;
use fv_estimate::device::{DeviceSpec, from_flags, gib_to_bytes, reserve_to_bytes};
use fv_estimate::error::InputError;
use fv_estimate::estimate::Workload;
use fv_estimate::largest::{Wanted, largest};
use fv_estimate::minimum::minimum;
use fv_estimate::place;
use fv_estimate::question::Question;
use fv_estimate::resolve::{Overrides, fv_run};
use fv_estimate::sweep::{Axes, Plan, Range, Reuse};
use fv_spec::compiled::{Example, Model};
use fv_spec::request::PartialRequest;
use fv_wasm::Session;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json, value::RawValue};
use sha2::{Digest, Sha256};

/// The vectors file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vectors {
    group: Vec<Group>,
}

/// The product of its lists.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    name: String,
    /// Questions beside an estimate: `largest`, `minimum` or `sweep`.
    #[serde(default)]
    ask: Vec<String>,
    model: Vec<String>,
    #[serde(default)]
    deployment: Vec<String>,
    #[serde(default)]
    size: Vec<[u32; 3]>,
    #[serde(default)]
    hardware: Vec<String>,
    #[serde(default)]
    device: Vec<[f64; 2]>,
    #[serde(default)]
    partition: Vec<String>,
    #[serde(default)]
    allocation_gb: Vec<f64>,
    #[serde(default)]
    budget_gib: Vec<f64>,
    #[serde(default)]
    host_gb: Vec<f64>,
    #[serde(default)]
    reserve_gib: Vec<f64>,
    #[serde(default)]
    batch: Vec<u32>,
    #[serde(default)]
    guidance: Vec<f64>,
    #[serde(default)]
    references: Vec<u32>,
    #[serde(default)]
    set: Vec<Map<String, Value>>,
    #[serde(default)]
    env: Vec<BTreeMap<String, String>>,
}

/// One request.
#[derive(Clone, Default)]
struct Vector {
    name: String,
    ask: Option<String>,
    model: String,
    deployment: Option<String>,
    request: PartialRequest,
    hardware: Option<String>,
    device: Option<[f64; 2]>,
    asked: Asked,
    overrides: Overrides,
    /// What of the device may be used, in the words of the browser's functions.
    options: Map<String, Value>,
}

/// Every vector with each item of `items` put into it, or the vectors as they are when there is none.
fn product<T>(vectors: Vec<Vector>, items: &[T], put: impl Fn(&mut Vector, &T) -> String) -> Vec<Vector> {
    if items.is_empty() {
        return vectors;
    }
    let mut result = Vec::new();
    for vector in vectors {
        for item in items {
            let mut vector = vector.clone();
            let word = put(&mut vector, item);
            if items.len() > 1 || vector.name.is_empty() {
                let _ = write!(vector.name, "/{word}");
            }
            result.push(vector);
        }
    }
    result
}

fn vectors(group: &Group) -> Vec<Vector> {
    let mut all = vec![Vector { name: group.name.clone(), ..Vector::default() }];
    all = product(all, &group.ask, |v, x| {
        v.ask = Some(x.clone());
        x.clone()
    });
    all = product(all, &group.model, |v, x| {
        v.model.clone_from(x);
        x.clone()
    });
    all = product(all, &group.deployment, |v, x| {
        v.deployment = Some(x.clone());
        x.clone()
    });
    all = product(all, &group.size, |v, [h, w, f]| {
        v.request = PartialRequest { height: Some(*h), width: Some(*w), num_frames: Some(*f), ..v.request };
        format!("{h}x{w}x{f}")
    });
    all = product(all, &group.hardware, |v, x| {
        v.hardware = Some(x.clone());
        x.clone()
    });
    all = product(all, &group.device, |v, x| {
        v.device = Some(*x);
        format!("{}+{} GiB", x[0], x[1])
    });
    all = product(all, &group.partition, |v, x| {
        v.asked.partition = Some(x.clone());
        v.options.insert("partitionId".into(), json!(x));
        x.clone()
    });
    all = product(all, &group.allocation_gb, |v, x| {
        v.asked.allocation_gb = Some(*x);
        v.options.insert("allocationMemoryGb".into(), json!(x));
        format!("allocation {x} GB")
    });
    all = product(all, &group.budget_gib, |v, x| {
        v.asked.memory_budget_bytes = Some(gib_to_bytes("budget", *x).expect("a size"));
        v.options.insert("memoryBudgetGiB".into(), json!(x));
        format!("budget {x} GiB")
    });
    all = product(all, &group.host_gb, |v, x| {
        v.asked.host_gb = Some(*x);
        v.options.insert("hostMemoryGb".into(), json!(x));
        format!("host {x} GB")
    });
    all = product(all, &group.reserve_gib, |v, x| {
        v.asked.reserve_bytes = Some(reserve_to_bytes("reserve", *x).expect("a size"));
        v.options.insert("reserveGiB".into(), json!(x));
        format!("reserve {x} GiB")
    });
    all = product(all, &group.batch, |v, x| {
        v.request.batch = Some(*x);
        format!("batch {x}")
    });
    all = product(all, &group.guidance, |v, x| {
        v.request.guidance_scale = Some(*x);
        format!("guidance {x}")
    });
    all = product(all, &group.references, |v, x| {
        v.request.references = Some(*x);
        format!("references {x}")
    });
    all = product(all, &group.set, |v, x| {
        v.overrides.set = x.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
        x.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    });
    product(all, &group.env, |v, x| {
        v.overrides.env = x.clone();
        x.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
    })
}

/// The compact JSON of a vector's estimate, or of what is wrong with it.
fn answer(catalog: &Catalog, vector: &Vector) -> String {
    let model = &catalog.models[&vector.model];
    let own = fv_run::deployment(model).expect("a model has deployments");
    let example = match &vector.deployment {
        Some(id) if *id == own.id => &own,
        Some(id) => model.examples.iter().find(|example| example.id == *id).expect("a deployment of the model"),
        None => &model.examples[0],
    };
    let device: DeviceSpec = match (&vector.hardware, vector.device) {
        (Some(id), _) => catalog.devices.iter().find(|device| device.id == *id).expect("a device of the catalog").into(),
        (None, Some([vram, ram])) => from_flags(vram, Some(ram), None, None).expect("a device"),
        (None, None) => panic!("{}: no device", vector.name),
    };
    let overrides = Overrides { unified_memory: place::unified_memory(&device), ..vector.overrides.clone() };
    if let Some(ask) = &vector.ask {
        return asked(catalog, vector, ask, (model, example), &device, &overrides);
    }
    let result = Workload::evaluate(model, example, &vector.request, &overrides, &catalog.rules, true).and_then(|workload| {
        let mut budget = place::offer(Some(&device), &vector.asked, workload.settings.runtime, &catalog.rules)?;
        place::check_device(&mut budget, &device, &workload.settings);
        Ok(workload.estimate(Some(&device.id), &budget))
    });
    written(result)
}

/// The compact JSON of an answer, or of what is wrong with the question.
fn written(result: Result<impl Serialize, Vec<InputError>>) -> String {
    match result {
        Ok(answer) => serde_json::to_string(&answer).expect("JSON"),
        Err(errors) => serde_json::to_string(&errors.iter().map(|e| (e.code, &e.message)).collect::<Vec<_>>()).expect("JSON"),
    }
}

/// The answer to a question beside an estimate.
fn asked(
    catalog: &Catalog,
    vector: &Vector,
    ask: &str,
    (model, example): (&Model, &Example),
    device: &DeviceSpec,
    overrides: &Overrides,
) -> String {
    let rules = &catalog.rules;
    let question = Question { model, example, rules, device: Some(device), asked: &vector.asked, overrides };
    match ask {
        "largest" => {
            let wanted = Wanted { admit_uncertain: false, pareto: false, changes: true, adapted: true };
            written(largest(&question, &vector.request, wanted).map(|answer| match answer {
                Ok(largest) => serde_json::to_value(largest).expect("JSON"),
                Err(unknown) => serde_json::to_value(unknown).expect("JSON"),
            }))
        }
        "minimum" => written(minimum(&question, &vector.request)),
        "sweep" => {
            let frames = vec![Range { first: 1, last: 33, step: None }];
            let axes = Axes { frames, settings: vec![Vec::new()], ..Axes::default() };
            let devices = [device.clone()];
            let plan = Plan::new(&[(model, example)], &devices, &vector.asked, rules, &vector.request, overrides, &axes);
            written(plan.map(|plan| {
                let (mut rows, mut reuse) = (Vec::new(), Reuse::default());
                for request in 0..u64::try_from(plan.requests()).expect("few") {
                    plan.rows(request, &mut reuse, |row| rows.push(row.clone()));
                }
                rows
            }))
        }
        other => panic!("{}: no question is called {other}", vector.name),
    }
}

#[test]
fn estimates_are_what_they_were() {
    kept("vectors.toml", "estimates.jsonl", "estimate", 350);
}

#[test]
fn answers_are_what_they_were() {
    kept("answers.toml", "answers.jsonl", "answer", 100);
}

/// Compares the answers to the vectors of one file with those that are kept in another.
fn kept(vectors_file: &str, answers_file: &str, key: &str, least: usize) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let text = std::fs::read_to_string(folder.join(vectors_file)).expect("vectors");
    let groups: Vectors = toml::from_str(&text).expect("TOML");
    let catalog = Catalog::embedded().expect("the embedded catalog");
    let vectors: Vec<Vector> = groups.group.iter().flat_map(vectors).collect();
    let mut names: Vec<&str> = vectors.iter().map(|v| v.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), vectors.len(), "names are unique");
    assert!(vectors.len() >= least, "{} vectors", vectors.len());

    let line = |v: &Vector| format!("{{\"vector\":{},\"{key}\":{}}}", serde_json::to_string(&v.name).expect("JSON"), answer(&catalog, v));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let lines: Vec<String> = std::thread::scope(|scope| {
        let parts = vectors.chunks(vectors.len().div_ceil(threads));
        let working: Vec<_> = parts.map(|part| scope.spawn(|| part.iter().map(line).collect::<Vec<_>>())).collect();
        working.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    });
    let path = folder.join(answers_file);
    if std::env::var_os("UPDATE_CONFORMANCE").is_some() {
        std::fs::write(&path, lines.join("\n") + "\n").expect("written");
        return;
    }
    let kept = std::fs::read_to_string(&path).expect("the kept answers; UPDATE_CONFORMANCE=1 writes them");
    let kept: Vec<&str> = kept.lines().collect();
    for (line, vector) in lines.iter().zip(&vectors) {
        let before =
            kept.iter().find(|kept| kept.starts_with(&format!("{{\"vector\":{},", serde_json::to_string(&vector.name).expect("JSON"))));
        let before = before.unwrap_or_else(|| panic!("{}: not in {answers_file}", vector.name));
        if line != before {
            let at = line.bytes().zip(before.bytes()).position(|(a, b)| a != b).unwrap_or(0);
            let around = |text: &str| text.get(at.saturating_sub(80)..(at + 160).min(text.len())).unwrap_or_default().to_owned();
            panic!("{}: was\n  ...{}...\nis\n  ...{}...\nUPDATE_CONFORMANCE=1 accepts it", vector.name, around(before), around(line));
        }
    }
    assert_eq!(kept.len(), lines.len(), "{answers_file} holds vectors that are gone");
}

/// What the browser's functions are called with for a vector: `tests/conformance/calls.jsonl` has a line for each, which Node and
/// Chromium answer with the WebAssembly build.
fn call(vector: &Vector) -> Option<Value> {
    let function = match vector.ask.as_deref() {
        None => "estimate",
        Some("sweep") => return None,
        Some(other) => other,
    };
    let Vector { name, model, deployment, request, hardware, device, overrides, options, .. } = vector;
    let settings: Map<String, Value> = overrides.set.iter().cloned().collect();
    let hardware =
        hardware.as_ref().map_or_else(|| json!({ "vramGiB": device.map(|d| d[0]), "ramGiB": device.map(|d| d[1]) }), |id| json!(id));
    let mut options = options.clone();
    if function == "estimate" {
        // The forecast is no part of a vector.
        options.insert("withoutForecast".into(), json!(true));
    }
    let mut subject = json!({ "workload": request, "settings": settings, "env": overrides.env });
    if let Some(deployment) = deployment {
        subject["deployment"] = json!(deployment);
    }
    Some(json!({ "vector": name, "function": function, "model": model, "hardware": hardware, "subject": subject, "options": options }))
}

/// Calls that no vector has: evidence, recommendations, comparisons, plans, summaries, grids.
fn more_calls() -> Vec<Value> {
    let call = |function: &str, model: &str, hardware: Value, workload: Value, options: Value| {
        let vector = format!("{function}/{model}/{}", hardware.as_str().unwrap_or("list"));
        json!({ "vector": vector, "function": function, "model": model, "hardware": hardware, "subject": { "workload": workload }, "options": options })
    };
    let mut calls = Vec::new();
    for model in ["fastwan21", "wan21-t2v-14b", "minimax-h3", "hunyuanvideo"] {
        for function in ["estimate", "estimateSummary", "assess", "match", "legal"] {
            calls.push(call(function, model, json!("rtx-4090-24gb"), json!({}), json!({})));
        }
        calls.push(call("plan", model, json!("rtx-4090-24gb"), json!({}), json!({ "hostMemoryGb": 64 })));
        let devices = json!(["rtx-4090-24gb", "h100-sxm-80gb", "m1-max-64gb"]);
        for function in ["recommend", "compare"] {
            calls.push(call(function, model, devices.clone(), json!({}), json!({ "hostMemoryGb": 64 })));
        }
        let sizes = json!([{ "height": 480, "width": 832 }, { "height": 720, "width": 1280 }]);
        let axes = json!({ "sizes": sizes, "frames": [5, 33, 81, 82], "hostMemoryGb": 64 });
        calls.push(call("estimateGrid", model, json!("rtx-4090-24gb"), json!({}), axes));
        calls.push(call(
            "estimateGrid",
            model,
            json!({ "vramGiB": 1 }),
            json!({}),
            json!({ "vramGiB": [8, 16, 24, 80], "ramGiB": [16, 64] }),
        ));
    }
    calls.push(call(
        "plan",
        "minimax-h3",
        json!({ "vramGiB": 2, "ramGiB": 4 }),
        json!({}),
        json!({ "memoryBudgetGiB": 2, "hostMemoryGb": 4 }),
    ));
    calls.push(call(
        "estimate",
        "fastwan21",
        json!("rtx-4090-24gb"),
        json!({ "hieght": 480, "frames": -1 }),
        json!({ "memoryBudgetGib": 4 }),
    ));
    calls.push(call(
        "estimate",
        "fastwan21",
        json!("rtx-4090-24gb"),
        json!({ "height": 481, "num_frames": 80 }),
        json!({ "memoryBudgetGiB": -4 }),
    ));
    calls
}

/// Answers a call as the browser's functions do.
fn called(session: &mut Session, catalog: &Catalog, call: &Value) -> String {
    let word = |name: &str| call[name].as_str().unwrap_or_default();
    let json = |name: &str| call[name].to_string();
    let model = session.read_model(&serde_json::to_string(&catalog.models[word("model")]).expect("JSON")).expect("a model");
    let mut device = |hardware: &Value| {
        let known = hardware.as_str().map(|id| catalog.device(id).unwrap_or_else(|| panic!("no device {id}")));
        let text = known.map_or_else(|| hardware.to_string(), |device| serde_json::to_string(device).expect("JSON"));
        session.read_device(&text).expect("a device")
    };
    let devices: Vec<u32> = match &call["hardware"] {
        Value::Array(list) => list.iter().map(&mut device).collect(),
        one => vec![device(one)],
    };
    let one = devices[0];
    let answer = fv_wasm::call(session, word("function"), &[model], one, &devices, &json("subject"), &json("options"));
    session.forget_model(model);
    for device in devices {
        session.forget_device(device);
    }
    answer
}

/// A line of `estimates.jsonl`, the estimate as it stands there.
#[derive(Deserialize)]
struct Kept<'a> {
    vector: String,
    #[serde(borrow)]
    estimate: &'a RawValue,
}

/// The session that answers natively what the WebAssembly build is asked.
fn session(catalog: &Catalog) -> Session {
    let mut session = Session::default();
    session.read_rules(&serde_json::to_string(&catalog.rules).expect("JSON")).expect("rules");
    session.read_reference(&serde_json::to_string(catalog.device("h200-sxm-141gb").expect("there")).expect("JSON")).expect("a device");
    session
}

#[test]
fn the_browser_is_answered_as_everybody_else() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("conformance");
    let catalog = Catalog::embedded().expect("the embedded catalog");
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).expect("there");
    let text = read("estimates.jsonl");
    let kept: BTreeMap<String, &str> = text
        .lines()
        .map(|line| serde_json::from_str::<Kept<'_>>(line).expect("a vector"))
        .map(|kept| (kept.vector, kept.estimate.get()))
        .collect();
    let files = ["vectors.toml", "answers.toml"].map(|file| toml::from_str::<Vectors>(&read(file)).expect("TOML"));
    let of_vectors = files.iter().flat_map(|file| &file.group).flat_map(vectors).filter_map(|vector| call(&vector));
    let mut session = session(&catalog);
    let mut lines = Vec::new();
    for mut call in of_vectors.chain(more_calls()) {
        let answer = called(&mut session, &catalog, &call);
        let name = call["vector"].as_str().expect("text").to_owned();
        match kept.get(&name) {
            // What is wrong has fields here, and is a list of codes and messages there.
            Some(plain) if plain.starts_with('[') => {
                let found: Value = serde_json::from_str(&answer).expect("JSON");
                let errors = found["error"]["errors"].as_array().expect("errors").iter();
                let pairs: Vec<Value> = errors.map(|error| json!([error["code"], error["message"]])).collect();
                assert_eq!(serde_json::to_string(&pairs).expect("JSON"), *plain, "{name}");
            }
            Some(plain) if !call["options"]["withoutForecast"].is_null() => {
                let at = answer.bytes().zip(plain.bytes()).position(|(a, b)| a != b).unwrap_or(0);
                let start = &answer[..answer.len().min(300)];
                assert!(answer == *plain, "{name}: byte {at} of {} and {} differs: {start}", answer.len(), plain.len());
            }
            _ => {}
        }
        // Some answers are long: a digest says whether every byte is the same.
        call["answer"] = json!({ "bytes": answer.len(), "sha256": digest(&answer) });
        lines.push(serde_json::to_string(&call).expect("JSON"));
    }
    let text = lines.join("\n") + "\n";
    if std::env::var_os("UPDATE_CONFORMANCE").is_some() {
        std::fs::write(folder.join("calls.jsonl"), text).expect("written");
        return;
    }
    let kept = read("calls.jsonl");
    for (line, before) in lines.iter().zip(kept.lines()) {
        assert_eq!(line, before, "UPDATE_CONFORMANCE=1 accepts it");
    }
    assert_eq!(lines.len(), kept.lines().count(), "calls.jsonl holds calls that are gone");
}

fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
}
