//! Findings in every format: for people, for programs, for pull requests; and no format shows a credential.

use std::fs;

use fv_catalog::{
    check::{Keep, check},
    codes::Code,
    finding::{Finding, Place},
    output::{self, Format},
    sources::Sources,
};
use fv_tests::{Fault, base, edited, root};
use serde_json::Value;

const FORMATS: [Format; 4] = [Format::Human, Format::Json, Format::Github, Format::Sarif];
const SECRETS: [&str; 7] = ["hunter2", "hunter3", "aBcDeF", "Bearer", "BEGIN", "abcdefgh1", "12345678"];

/// One catalog with faults of many kinds.
fn faulty() -> Vec<Finding> {
    let edits = [
        ("hardware.yaml", "aliases: [laptop]", "aliases: [laptop, card]"),
        ("encoders.yaml", "loaded_subset", "loaded_subst"),
        ("transformers.yaml", "patch_size: [1, 2, 2]\n    num", "patch_size: [1, 2]\n    num"),
        ("vaes.yaml", "  parameter_count: 73_296_659\n", "  parameter_count: 73_29_6659\n  name: Again\n"),
        ("models/example.yaml", "FASTVIDEO_STAGE_LOGGING: \"1\"", "WHO: \"é🚀\", HF_TOKEN: hunter2"),
        ("models/example.yaml", "hardware: card-80gb\n      gpu_count: 2", "hardware: CARD\n      gpu_count: 2"),
        ("models/example.yaml", "decoding: 7.0", "decoding: 9.25"),
    ];
    let mut sources = edits.iter().fold(base(), |sources, (file, old, new)| edited(sources, file, old, new));
    sources.root = "catalog".into();
    findings(&sources)
}

fn findings(sources: &Sources) -> Vec<Finding> {
    check(sources, Keep::Nothing).findings
}

fn written(format: Format, findings: &[Finding], color: bool) -> String {
    let mut out = Vec::new();
    output::write(format, findings, color, &mut out).expect("written to memory");
    String::from_utf8(out).expect("UTF-8").replace(env!("CARGO_PKG_VERSION"), "[version]")
}

#[test]
fn human() {
    insta::assert_snapshot!(written(Format::Human, &faulty(), false));
}

#[test]
fn human_in_colour() {
    insta::assert_snapshot!(written(Format::Human, &faulty(), true).replace('\u{1b}', "␛"));
}

#[test]
fn json() {
    insta::assert_snapshot!(written(Format::Json, &faulty(), false));
}

#[test]
fn github() {
    insta::assert_snapshot!(written(Format::Github, &faulty(), false));
}

#[test]
fn sarif() {
    insta::assert_snapshot!(written(Format::Sarif, &faulty(), false));
}

#[test]
fn json_is_what_its_schema_says() {
    let schema = fs::read_to_string(root().join("schemas/findings.schema.json")).expect("committed");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let schema = jsonschema::options().offline().build(&schema).expect("a schema");
    for findings in [faulty(), Vec::new()] {
        let document: Value = serde_json::from_str(&written(Format::Json, &findings, false)).expect("JSON");
        let wrong: Vec<String> = schema.iter_errors(&document).map(|error| error.to_string()).collect();
        assert_eq!(wrong, <[&str; 0]>::default());
        assert_eq!(document["findings"].as_array().map(Vec::len), Some(findings.len()));
    }
}

#[test]
fn sarif_points_at_its_rules_and_places() {
    let findings = faulty();
    let document: Value = serde_json::from_str(&written(Format::Sarif, &findings, false)).expect("JSON");
    let run = &document["runs"][0];
    let results = run["results"].as_array().expect("results");
    assert_eq!(results.len(), findings.len());
    for (result, finding) in results.iter().zip(&findings) {
        let rule = usize::try_from(result["ruleIndex"].as_u64().expect("an index")).expect("small");
        assert_eq!(run["tool"]["driver"]["rules"][rule]["id"], result["ruleId"]);
        let region = &result["locations"][0]["physicalLocation"]["region"];
        assert_eq!(region["startLine"], finding.place().line);
        assert_eq!(region["startColumn"], finding.place().column);
        assert_eq!(result["relatedLocations"].as_array().map(Vec::len), Some(finding.labels.len() - 1));
    }
}

#[test]
fn nothing_found_is_a_complete_document_for_programs_and_silence_for_others() {
    assert_eq!(written(Format::Human, &[], false), "");
    assert_eq!(written(Format::Github, &[], false), "");
    let sarif: Value = serde_json::from_str(&written(Format::Sarif, &[], false)).expect("JSON");
    assert_eq!(sarif["runs"][0]["results"], serde_json::json!([]));
}

/// The formats that show a secret of `findings`.
fn leaks(findings: &[Finding]) -> Vec<String> {
    let shown = |format: &Format| SECRETS.iter().find(|secret| written(*format, findings, false).contains(**secret));
    FORMATS.iter().filter_map(|format| Some(format!("{format:?} shows {}", shown(format)?))).collect()
}

#[test]
fn no_format_shows_a_credential() {
    let credentials: Vec<Fault> = Fault::all().into_iter().filter(|(table, _)| table == "credentials").map(|(_, fault)| fault).collect();
    assert!(credentials.len() > 10);
    for fault in credentials {
        let found = findings(&fault.sources());
        assert!(found.iter().any(|finding| finding.code == Code::Credential) || fault.expect.is_empty(), "{}", fault.name);
        assert_eq!(leaks(&found), <[&str; 0]>::default(), "{}", fault.name);
    }
}

#[test]
fn no_format_shows_a_credential_in_another_finding() {
    let baseline = "      vae_tiling: true\n";
    for (name, old, new) in [
        ("in the message of another finding", "    runtime: fv-run\ncapacity", "    runtime: hf_aBcDeFgHiJkLmNoPqRsT\ncapacity"),
        ("beside broken syntax", baseline, "      password: hunter2\n      vae_tiling: @\n"),
        ("in the repetition of its key", baseline, "      password: hunter2\n      password: hunter3\n"),
        ("under a tag", baseline, "      password: !t hunter2\n"),
    ] {
        let found = findings(&edited(base(), "models/example.yaml", old, new));
        assert_eq!(leaks(&found), <[&str; 0]>::default(), "{name}");
    }
    let found = findings(&edited(base(), "vaes.yaml", "https://", "https://me:hunter2@"));
    assert_eq!(leaks(&found), <[&str; 0]>::default(), "in the address of a source");
}

#[test]
fn places_for_people_count_characters_too() {
    let found = faulty();
    let credential = found.iter().find(|finding| finding.code == Code::Credential).expect("in the catalog");
    let Place { line, column } = credential.place();
    let place = format!("models/example.yaml:{line}:{column}]");
    assert!(written(Format::Human, &found, false).contains(&place));
}

#[test]
fn places_far_apart_are_shown_apart() {
    let found = findings(&edited(base(), "hardware.yaml", "      note: memory size\n", "      note: memory size\ncard-80gb: {}\n"));
    let text = written(Format::Human, &found, false);
    assert!(text.contains("first here") && text.contains("again here") && text.lines().count() < 25, "{text}");
}
