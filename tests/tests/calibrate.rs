//! `calibrate`: what completed runs give, what they do not, and what happens to files that are there.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use fv_tests::{program, root};
use serde_json::Value;

const RATIOS: [f64; 3] = [1.02, 0.97, 1.005];
const CLIPS: [[u32; 3]; 3] = [[480, 832, 81], [480, 832, 49], [320, 512, 33]];

/// A catalog of its own with the small catalog's files.
fn catalog() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    copy(&root().join("tests/small"), folder.path());
    // What its spread is, is what these tests find out.
    fs::remove_file(folder.path().join("rules/spread-wan-diffusers.yaml")).expect("there");
    folder
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("there") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            fs::create_dir(&target).expect("made");
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

fn run(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(program()).args(arguments).arg("--catalog").arg(folder).output().expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (output.status.code().expect("ended"), text(output.stdout), text(output.stderr))
}

fn json(folder: &Path, arguments: &[&str]) -> Value {
    let (code, out, err) = run(folder, &[arguments, &["--format", "json"]].concat());
    assert_eq!(code, 0, "{out}{err}");
    serde_json::from_str(&out).expect("JSON")
}

/// The peaks of each stage in GiB, as derived.
fn derived(folder: &Path, [height, width, frames]: [u32; 3], metric: &str) -> impl Fn(&str) -> f64 {
    let number = |n: u32| n.to_string();
    let (height, width, frames) = (number(height), number(width), number(frames));
    let asked = ["estimate", "small", "--deployment", "diffusers", "--vram-gib", "80"];
    let estimate = json(folder, &[&asked[..], &["--height", &height, "--width", &width, "--frames", &frames]].concat());
    let metric = metric.to_owned();
    move |stage| {
        let stages = estimate["stages"].as_array().expect("stages");
        let found = stages.iter().find(|found| found["name"] == stage).expect("the stage");
        found["peakBytes"][&metric]["value"].as_f64().expect("bytes") / f64::from(1 << 30)
    }
}

/// Adds a run that took `share` of what is derived, by stage or as a whole.
fn add(folder: &Path, id: &str, clip: [u32; 3], share: f64, metric: &str, startup: bool) {
    let [height, width, frames] = clip;
    let peaks = derived(folder, clip, metric);
    let peak = |stage: &str| share * peaks(stage);
    let (encoding, denoising, decoding) = (peak("encoding"), peak("denoising"), peak("decoding"));
    let highest = encoding.max(denoising).max(decoding);
    let start = if startup { ", startup_peak: 0.5" } else { "" };
    let mut run = String::new();
    let _ = write!(
        run,
        "    - id: {id}\n      date: 2026-11-30\n      hardware: card-24gb\n      gpu_count: 1\n      outcome: completed\n      \
         execution: warm_request\n      evidence_url: https://example.org/{id}\n      context:\n        runtime: diffusers\n        \
         deployment: diffusers\n        revisions: {{ runtime: 0.42.1, model: f2ef54f9 }}\n        config:\n          generator:\n            \
         model_path: example/small\n            engine: {{ num_gpus: 1 }}\n            \
         pipeline: {{ workload_type: t2v, torch_dtype: bfloat16, vae_dtype: fp32, model_cpu_offload: true }}\n        \
         request:\n          sampling: {{ height: {height}, width: {width}, num_frames: {frames}, num_inference_steps: 50, guidance_scale: 3.0 }}\n        \
         env: {{}}\n      memory:\n        metric: torch_peak_{metric}\n        scope: allocator\n        unit: GiB\n        per_gpu:\n          \
         - {{ rank: 0, request_peak: {highest}{start}, stages: {{ denoising: {denoising}, decoding: {decoding} }} }}\n"
    );
    let path = folder.join("models/small.yaml");
    let text = fs::read_to_string(&path).expect("there");
    fs::write(&path, text + &run).expect("written");
}

fn value(report: &Value, id: &str) -> f64 {
    report["fits"][0]["coefficients"][id]["value"].as_f64().unwrap_or_else(|| panic!("{id} in {report}"))
}

#[test]
fn several_geometries_give_a_spread_and_its_error() {
    let folder = catalog();
    for ((id, clip), share) in ["one", "two", "three"].into_iter().zip(CLIPS).zip(RATIOS) {
        add(folder.path(), id, clip, share, "reserved", false);
    }
    let before = fs::read_to_string(folder.path().join("models/small.yaml")).expect("there");
    let report = json(folder.path(), &["calibrate"]);
    assert_eq!(report["fits"].as_array().expect("fits").len(), 1, "{report}");
    let fit = &report["fits"][0];
    assert_eq!((fit["startup"].as_str(), fit["peaks"].as_u64()), (Some("unknown"), Some(6)));
    for infix in ["", "vae-"] {
        let id = |end: &str| format!("spread-wan-diffusers-{infix}reserved-{end}");
        // The ratios with a margin of a hundredth beyond.
        assert!((value(&report, &id("high")) - 1.03).abs() < 1e-4, "{report}");
        assert!((value(&report, &id("low")) - 0.96).abs() < 1e-4, "{report}");
        let error = |end: &str| fit["coefficients"][id(end)]["leave_one_out_error"].as_f64().expect("an error");
        // Without the highest geometry the others reach 1.015; without the lowest 0.99.
        assert!((error("high") - 0.005).abs() < 1e-4 && (error("low") - 0.02).abs() < 1e-4, "{report}");
        assert_eq!(fit["coefficients"][id("low")]["source_rows"].as_array().expect("rows").len(), 3);
    }
    // Nothing is written unless it is asked for, and never a run.
    assert!(!folder.path().join("rules/spread-wan-diffusers.yaml").exists());
    let (code, _, err) = run(folder.path(), &["calibrate", "--write"]);
    assert!(code == 2 && err.contains("--date"), "{code} {err}");
    let (code, out, err) = run(folder.path(), &["calibrate", "--write", "--date", "2026-11-30"]);
    assert!(code == 0 && out.contains("spread-wan-diffusers.yaml written"), "{out} {err}");
    assert_eq!(fs::read_to_string(folder.path().join("models/small.yaml")).expect("there"), before);
    assert_eq!(run(folder.path(), &["--check"]).0, 0, "the file that was written is sound");
    assert_eq!(run(folder.path(), &["calibrate", "--check"]).0, 0);
    // Estimates use it.
    let estimate = json(folder.path(), &["estimate", "small", "--deployment", "diffusers", "--vram-gib", "80"]);
    let peak = &estimate["stages"][3]["peakBytes"]["reserved"];
    let share = peak["high"].as_f64().expect("high") / peak["value"].as_f64().expect("value");
    assert!((share - 1.03).abs() < 1e-4, "{peak}");
}

#[test]
fn one_point_scales_the_rule_and_claims_no_accuracy() {
    let folder = catalog();
    add(folder.path(), "one", CLIPS[0], 1.02, "allocated", true);
    let report = json(folder.path(), &["calibrate", "small"]);
    let fit = &report["fits"][0];
    assert_eq!(fit["startup"], "measured");
    assert!(report["leftOut"].to_string().contains("load: nothing is derived there"), "{report}");
    let coefficient = &fit["coefficients"]["spread-wan-diffusers-allocated-high"];
    assert!(coefficient["value"].is_number() && coefficient.get("leave_one_out_error").is_none(), "{fit}");
    assert!(fit["notes"].to_string().contains("nothing of its accuracy"), "{fit}");
}

#[test]
fn runs_of_another_context_are_never_mixed() {
    let folder = catalog();
    add(folder.path(), "one", CLIPS[0], 1.02, "reserved", false);
    add(folder.path(), "two", CLIPS[1], 0.97, "reserved", false);
    let path = folder.path().join("models/small.yaml");
    let text = fs::read_to_string(&path).expect("there");
    let (first, second) = text.split_once("    - id: two\n").expect("the run");
    for (old, new, choice) in [
        ("execution: warm_request", "execution: first_request", ["--execution", "first-request"]),
        ("revisions: { runtime: 0.42.1,", "revisions: { runtime: 0.40.0,", ["--revision", "0.40.0"]),
        ("hardware: card-24gb", "hardware: split-80gb", ["--hardware", "split-80gb"]),
        ("hardware: card-24gb", "hardware: split-80gb\n      hardware_partition: 3g.40gb", ["--partition", "3g.40gb"]),
        ("revisions: { runtime: 0.42.1,", "weights: \"synthetic:7\"\n        revisions: { runtime: 0.42.1,", ["--weights", "synthetic:7"]),
    ] {
        fs::write(&path, format!("{first}    - id: two\n{}", second.replacen(old, new, 1))).expect("written");
        let report = json(folder.path(), &["calibrate"]);
        assert_eq!(report["fits"].as_array().expect("fits").len(), 2, "{new}: {report}");
        let (code, _, err) = run(folder.path(), &["calibrate", "--write", "--date", "2026-11-30"]);
        assert!(code == 2 && err.contains("more than one context"), "{new}: {code} {err}");
        // What it says chooses between them.
        let [flag, value] = choice;
        assert!(err.contains("choose with --") && err.contains(&format!("{flag} (")) && err.contains(value), "{new}: {err}");
        let (code, _, err) = run(folder.path(), &["calibrate", "--write", "--date", "2026-11-30", flag, value]);
        assert_eq!(code, 0, "{new}: {err}");
        fs::remove_file(folder.path().join("rules/spread-wan-diffusers.yaml")).expect("written");
    }
    // Another metric gives other coefficients, so both have a place in one file.
    fs::write(&path, first).expect("written");
    add(folder.path(), "three", CLIPS[1], 1.01, "allocated", false);
    assert_eq!(json(folder.path(), &["calibrate"])["fits"].as_array().expect("fits").len(), 2);
    assert_eq!(run(folder.path(), &["calibrate", "--write", "--date", "2026-11-30"]).0, 0);
    let written = fs::read_to_string(folder.path().join("rules/spread-wan-diffusers.yaml")).expect("there");
    assert!(written.contains("allocated-high:") && written.contains("reserved-high:"), "{written}");
}

/// What a run may take of what is derived before its rule is refused, by metric, and just beyond.
const BOUNDS: [(&str, [f64; 2], [f64; 2]); 2] = [("allocated", [0.905, 1.095], [0.89, 1.11]), ("reserved", [0.755, 1.245], [0.74, 1.26])];

#[test]
fn a_rule_that_its_data_does_not_support_is_refused() {
    let write = ["calibrate", "--write", "--date", "2026-11-30"];
    for (metric, inside, beyond) in BOUNDS {
        for share in inside {
            let folder = catalog();
            add(folder.path(), "one", CLIPS[0], share, metric, false);
            let (code, out, err) = run(folder.path(), &write);
            assert_eq!(code, 0, "{metric} {share}: {out} {err}");
        }
        for share in beyond.into_iter().chain([0.5, 1.4, 1.9]) {
            let folder = catalog();
            // One that is as derived does not make the other better.
            add(folder.path(), "one", CLIPS[0], 1.0, metric, false);
            add(folder.path(), "two", CLIPS[1], share, metric, false);
            let (code, out, _) = run(folder.path(), &write);
            assert_eq!(code, 1, "{metric} {share}: {out}");
            for wanted in ["refused: two", " of what is derived, supported are ", "the rule itself is wrong"] {
                assert!(out.contains(wanted), "{metric} {share}: {out}");
            }
            assert!(!out.contains("spread-"), "no coefficient of it: {out}");
            assert!(!folder.path().join("rules/spread-wan-diffusers.yaml").exists());
        }
    }
}

#[test]
fn geometries_that_do_not_explain_each_other_are_refused() {
    for (share, refused) in [(1.08, false), (1.2, true), (0.8, false)] {
        let folder = catalog();
        for ((id, clip), share) in ["one", "two", "three"].into_iter().zip(CLIPS).zip([1.0, 1.0, share]) {
            add(folder.path(), id, clip, share, "reserved", false);
        }
        let (code, out, _) = run(folder.path(), &["calibrate", "--write", "--date", "2026-11-30"]);
        assert_eq!(code, i32::from(refused), "{share}: {out}");
        assert_eq!(out.contains("above the high end that the others give"), refused, "{share}: {out}");
        assert_eq!(folder.path().join("rules/spread-wan-diffusers.yaml").exists(), !refused);
    }
}

#[test]
fn figures_that_somebody_changed_are_named_and_kept() {
    let folder = catalog();
    add(folder.path(), "one", CLIPS[0], 1.02, "reserved", false);
    add(folder.path(), "two", CLIPS[1], 0.97, "reserved", false);
    let write = ["calibrate", "--write", "--date", "2026-11-30"];
    assert_eq!(run(folder.path(), &write).0, 0);
    let path = folder.path().join("rules/spread-wan-diffusers.yaml");
    let written = fs::read_to_string(&path).expect("there");
    let line = written.lines().find(|line| line.starts_with("  value: ")).expect("a value");
    let by_hand = written.replacen(line, "  value: 1.5", 1);
    fs::write(&path, &by_hand).expect("written");
    let (code, _, err) = run(folder.path(), &["calibrate", "--check"]);
    assert!(code == 1 && err.contains("1.5"), "{code} {err}");
    let (code, _, err) = run(folder.path(), &write);
    assert!(code == 2 && err.contains("1.5") && err.contains("--replace"), "{code} {err}");
    assert_eq!(fs::read_to_string(&path).expect("there"), by_hand, "nothing is lost");
    assert_eq!(run(folder.path(), &[&write[..], &["--replace"]].concat()).0, 0);
    assert_eq!(fs::read_to_string(&path).expect("there"), written);
    // Runs that are gone no longer support their figures.
    let model = folder.path().join("models/small.yaml");
    let text = fs::read_to_string(&model).expect("there");
    fs::write(&model, text.split_once("    - id: two\n").expect("the run").0).expect("written");
    let (code, _, err) = run(folder.path(), &["calibrate", "--check"]);
    assert!(code == 1 && err.contains("give no such coefficient"), "{code} {err}");
}

#[test]
fn wrong_words_are_usage_errors() {
    let folder = catalog();
    for (arguments, wanted) in [
        (&["calibrate", "nobody"][..], "no model with capacity facts is called \"nobody\""),
        (&["calibrate", "smal"], "did you mean small?"),
        (&["calibrate", "--hardware", "card-24"], "did you mean card-24gb"),
        (&["calibrate", "--execution", "cold"], "first-request, warm-request"),
        (&["calibrate", "--write", "--date", "yesterday"], "YYYY-MM-DD"),
        (&["calibrate", "--replace"], "--write"),
    ] {
        let (code, _, err) = run(folder.path(), arguments);
        assert!(code == 2 && err.contains(wanted), "{arguments:?} {err}");
    }
}

#[test]
fn figures_of_measured_rows_are_not_replaced_by_runs() {
    let folder = catalog();
    add(folder.path(), "one", CLIPS[0], 1.02, "reserved", false);
    let path = folder.path().join("rules/spread-wan-diffusers.yaml");
    fs::copy(root().join("tests/small/rules/spread-wan-diffusers.yaml"), &path).expect("copied");
    let (code, _, err) = run(folder.path(), &["calibrate", "--write", "--replace", "--date", "2026-11-30"]);
    assert!(code == 2 && err.contains("with or without --replace") && err.contains("`fv-catalog accuracy --fit`"), "{err}");
}

#[test]
fn a_fit_without_a_day_has_none() {
    let folder = catalog();
    add(folder.path(), "one", CLIPS[0], 1.02, "reserved", false);
    let date = |report: &Value| report["fits"][0]["coefficients"]["spread-wan-diffusers-reserved-high"].get("date").cloned();
    assert_eq!(date(&json(folder.path(), &["calibrate"])), None);
    assert_eq!(date(&json(folder.path(), &["calibrate", "--date", "2026-11-30"])), Some("2026-11-30".into()));
    // A device is found by its alias too.
    assert_eq!(json(folder.path(), &["calibrate", "--hardware", "card"])["fits"].as_array().map(Vec::len), Some(1));
}
