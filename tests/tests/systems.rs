//! Probes of systems that are not here: what is found on them, as a file and as a table.

use std::fs;

use fv_spec::{probe::Probe, units::MAX_JSON_INTEGER};
use fv_tests::{root, systems::Recorded};
use proptest::prelude::*;
use serde_json::Value;

fn json(probe: &Probe) -> String {
    serde_json::to_string_pretty(probe).expect("a probe") + "\n"
}

fn validator() -> jsonschema::Validator {
    let schema = fs::read_to_string(root().join("schemas/probe.schema.json")).expect("committed");
    jsonschema::validator_for(&serde_json::from_str(&schema).expect("JSON")).expect("a schema")
}

#[test]
fn every_recorded_system_is_found_as_it_is() {
    for (name, system) in Recorded::all() {
        let probe = system.probe();
        let table = fv_estimate::render::probe(&probe, 110).plain();
        let shown = format!("{}\n\n{table}\n{}", system.about, json(&probe));
        insta::with_settings!({ snapshot_path => "snapshots/systems", prepend_module_to_snapshot => false, omit_expression => true }, {
            insta::assert_snapshot!(name, shown);
        });
    }
}

#[test]
fn what_is_found_is_as_the_schema_says_and_reads_back() {
    let validator = validator();
    for (name, system) in Recorded::all() {
        let probe = system.probe();
        let value = serde_json::to_value(&probe).expect("a probe");
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert_eq!(errors, [] as [String; 0], "{name}");
        assert_eq!(fv_estimate::probe::read(&json(&probe)), Ok(probe), "{name}");
    }
}

/// Sizes by their path.
fn sizes(value: &Value, path: &str, found: &mut Vec<(String, u64)>) {
    match value {
        Value::Object(map) => map.iter().for_each(|(key, value)| sizes(value, &format!("{path}/{key}"), found)),
        Value::Array(list) => list.iter().enumerate().for_each(|(i, value)| sizes(value, &format!("{path}/{i}"), found)),
        Value::Number(number) => found.extend(number.as_u64().map(|number| (path.to_owned(), number))),
        _ => {}
    }
}

#[test]
fn nothing_that_a_system_means_as_unknown_becomes_a_size() {
    for (name, system) in Recorded::all() {
        let mut found = Vec::new();
        sizes(&serde_json::to_value(system.probe()).expect("a probe"), "", &mut found);
        for (path, size) in found {
            assert!(size <= MAX_JSON_INTEGER, "{name}: {path}");
            assert!(size > 0 || !path.contains("total_bytes"), "{name}: {path}");
        }
    }
}

#[test]
fn nobody_is_named() {
    for (name, system) in Recorded::all() {
        let text = json(&system.probe());
        for word in ["pid", "4242", "/home/", "\u{1b}", "\\u001b"] {
            assert!(!text.contains(word), "{name}: {word}");
        }
    }
}

/// Texts with one line cut, doubled or changed: what may happen to a system file.
fn damaged(text: &str, line: usize, how: u8, with: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.is_empty() {
        return with.to_owned();
    }
    let at = line % lines.len();
    match how % 4 {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => with.clone_into(&mut lines[at]),
        _ => lines[at] = lines[at].chars().rev().collect(),
    }
    lines.join("\n")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn damaged_files_give_a_sound_probe(which in any::<prop::sample::Index>(), file in any::<prop::sample::Index>(), line in 0..40_usize, how in 0..4_u8, with in ".{0,40}") {
        let mut all: Vec<_> = Recorded::all().into_iter().map(|(_, system)| system).filter(|system| !system.files().is_empty()).collect();
        let mut system = all.swap_remove(which.index(all.len()));
        let path = system.files().keys().nth(file.index(system.files().len())).expect("a file").clone();
        let text = damaged(&system.files()[&path], line, how, &with);
        system.replace(path, text);
        let probe = system.probe();
        prop_assert_eq!(fv_estimate::probe::read(&json(&probe)), Ok(probe));
    }

    #[test]
    fn a_tighter_limit_never_gives_more(limit in 0..1_u64 << 40, usage in 0..1_u64 << 40, clean in 0..1_u64 << 40, less in 0..1_u64 << 40) {
        use fv_run::linux::cgroup::available;
        let most = available(limit, usage, clean);
        prop_assert!(most <= limit);
        prop_assert!(available(limit.saturating_sub(less), usage, clean) <= most);
        prop_assert!(available(limit, usage.saturating_add(less), clean) <= most);
    }
}
