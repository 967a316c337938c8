//! Times of the native estimator, as JSON, for comparison with the WebAssembly build: `npm run bench` in `web/packages/estimator`.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use fv_data::Catalog;
use fv_wasm::{Session, call};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Nanoseconds of one call: the median of 41 samples, each of as many calls as take some milliseconds.
fn median(mut once: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    let mut calls = 0;
    while start.elapsed().as_millis() < 20 {
        once(calls);
        calls += 1;
    }
    let batch = (calls / 4).max(1);
    let mut samples: Vec<f64> = (0..41)
        .map(|sample| {
            let start = Instant::now();
            (0..batch).for_each(|at| once(sample * batch + at));
            start.elapsed().as_secs_f64() * 1e9 / f64::from(batch)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn text(value: &impl Serialize) -> io::Result<String> {
    serde_json::to_string(value).map_err(io::Error::other)
}

fn main() -> io::Result<()> {
    let catalog = Catalog::embedded().map_err(io::Error::other)?;
    let mut session = Session::default();
    let refused = |problems: Vec<fv_wasm::problem::Problem>| io::Error::other(fv_wasm::problem::json(problems));
    session.read_rules(&text(&catalog.rules)?).map_err(refused)?;
    let device = catalog.device("rtx-4090-24gb").ok_or_else(|| io::Error::other("no such device"))?;
    let device = session.read_device(&text(device)?).map_err(refused)?;
    let mut times = Map::new();
    for id in ["fastwan21", "wan21-t2v-14b"] {
        let model = session.read_model(&text(&catalog.models[id])?).map_err(refused)?;
        let mut ask = |function: &str, subject: &str, options: &str| {
            black_box(call(&mut session, function, &[model], device, &[device], subject, options));
        };
        let kept = r#"{"workload":{"num_frames":81}}"#;
        let fresh = |at: u32| format!(r#"{{"workload":{{"num_frames":{}}}}}"#, 5 + at % 40 * 4);
        let budget = |at: u32| format!(r#"{{"memoryBudgetGiB":{}}}"#, 8 + at % 64);
        let mut time = |name: &str, once: &mut dyn FnMut(u32)| {
            times.insert(format!("{id}/{name}"), json!(median(once)));
        };
        time("summary", &mut |at| ask("estimateSummary", kept, &budget(at)));
        time("estimate", &mut |at| ask("estimate", kept, &budget(at)));
        time("fresh summary", &mut |at| ask("estimateSummary", &fresh(at), "{}"));
        time("fresh estimate", &mut |at| ask("estimate", &fresh(at), "{}"));
        let sizes: Vec<Value> = (0..24).map(|at| json!({ "height": 256 + 16 * at, "width": 448 + 32 * at })).collect();
        let frames: Vec<u32> = (0..16).map(|at| 5 + 8 * at).collect();
        let axes = json!({ "sizes": sizes, "frames": frames }).to_string();
        time("grid of 24 x 16", &mut |_| ask("estimateGrid", kept, &axes));
    }
    writeln!(io::stdout(), "{}", Value::Object(times))
}
