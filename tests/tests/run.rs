//! Plans of our own runtime: planned, checked, lowered, simulated; tiny models executed.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use fv_tests::runner;
use serde_json::Value;

fn fv_run(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(runner()).args(arguments).current_dir(folder).env_remove("NO_COLOR").output().expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

fn done(folder: &Path, arguments: &[&str]) -> String {
    let output = fv_run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

const PLAN: [&str; 12] =
    ["plan", "--model", "fastwan21", "--precision", "fp8", "--vram-gib", "6", "--ram-gib", "12", "--system", "linux", "--out"];

fn planned(folder: &Path) -> Value {
    done(folder, &[&PLAN[..], &["plan.json"]].concat());
    serde_json::from_str(&fs::read_to_string(folder.join("plan.json")).expect("written")).expect("JSON")
}

#[test]
fn a_plan_is_the_layout_and_the_time_of_its_program() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = planned(folder.path());
    done(folder.path(), &["plan", "check", "plan.json"]);
    let shown = done(folder.path(), &["program", "--plan", "plan.json", "--out", "program.json", "--trace", "trace.json"]);
    let program: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("program.json")).expect("written")).expect("JSON");
    assert_eq!((&program["plan"], &program["model"]), (&plan["id"], &plan["model"]));
    let regions = plan["arena"]["regions"].as_array().expect("regions");
    for region in program["regions"].as_array().expect("regions").iter().filter(|region| region["bytes"].as_u64() > Some(0)) {
        let same = |other: &&Value| (&other["part"], &other["tier"]) == (&region["name"], &region["tier"]);
        let other = regions.iter().find(same).expect("the plan has every region");
        assert_eq!(other["bytes"], region["bytes"], "{region}");
        assert!(shown.contains(&region["bytes"].to_string()), "{region} in {shown}");
    }
    // Within what the plan says of each stage.
    for peak in plan["peaks"].as_array().expect("peaks") {
        assert!(peak["bytes"].as_u64() <= peak["limit_bytes"].as_u64(), "{peak}");
    }
    let trace: Value = serde_json::from_str(&fs::read_to_string(folder.path().join("trace.json")).expect("written")).expect("JSON");
    assert!(trace["traceEvents"].as_array().is_some_and(|events| events.len() > 1000));
    let simulated = done(folder.path(), &["run", "--plan", "plan.json", "--backend", "sim"]);
    assert!(shown.contains(simulated.trim()), "{simulated}");
}

type Change = fn(&mut Value);

#[test]
fn a_plan_that_is_not_of_its_program_is_refused_by_name() {
    let folder = tempfile::tempdir().expect("a folder");
    let plan = planned(folder.path());
    let cases: [(&str, Change); 4] = [
        ("arena.transformer.device", |plan| {
            let regions = plan["arena"]["regions"].as_array_mut().expect("regions");
            let region = regions.iter_mut().find(|region| region["part"] == "transformer" && region["tier"] == "device").expect("there");
            let last = region["buffers"].as_array().expect("buffers").len() - 1;
            let offset = region["buffers"][last]["offset_bytes"].as_u64().expect("a number");
            region["buffers"][last]["offset_bytes"] = (offset - 256).into();
        }),
        ("no layout", |plan| drop(plan.as_object_mut().expect("an object").remove("arena"))),
        ("request.sampling", |plan| drop(plan["request"].as_object_mut().expect("an object").remove("sampling"))),
        ("no-such-model", |plan| plan["model"] = "no-such-model".into()),
    ];
    for (words, change) in cases {
        let mut edited = plan.clone();
        change(&mut edited);
        // With the id that its content has, so that nothing but the change is wrong.
        for _ in 0..2 {
            fs::write(folder.path().join("edited.json"), serde_json::to_string(&edited).expect("JSON")).expect("written");
            let said = text(&fv_run(folder.path(), &["plan", "check", "edited.json"]).stderr);
            let Some(at) = said.rfind("plan-") else { break };
            edited["id"] = said[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '-').collect::<String>().into();
        }
        let output = fv_run(folder.path(), &["program", "--plan", "edited.json"]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(said.contains(words), "{words}: {said}");
        assert_eq!(output.stdout, b"", "{words}");
    }
}

#[test]
fn tiny_models_take_what_was_planned() {
    let folder = tempfile::tempdir().expect("a folder");
    for tiny in ["dense", "sparse", "experts", "patched"] {
        let generous = done(folder.path(), &["run", "--tiny", tiny, "--out", "generous"]);
        let tight =
            done(folder.path(), &["run", "--tiny", tiny, "--vram-kib", "8400", "--ram-kib", "2600", "--out", "tight", "--seed", "0"]);
        let frames = |name: &str| fs::read(folder.path().join(name).join("video.rgb")).expect("a video");
        assert_eq!(frames("generous").len(), 9 * 64 * 96 * 3, "{tiny}");
        // Where weights live and what is decoded together changes nothing.
        assert_eq!(frames("generous"), frames("tight"), "{tiny}");
        for shown in [generous, tight] {
            let measured = shown.split("executed").nth(1).expect("it is executed");
            let rows: Vec<Vec<&str>> = measured.lines().map(|line| line.split_whitespace().collect()).collect();
            let regions: Vec<&Vec<&str>> =
                rows.iter().filter(|row| row.len() == 5 && row[1] != "memory" && row[2].parse::<u64>().is_ok()).collect();
            assert!(regions.len() >= 5, "{measured}");
            for row in regions {
                assert_eq!(row[2], row[3], "{tiny}: planned and reached in {row:?}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_says_what_would() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = fv_run(folder.path(), &["run", "--tiny", "dense", "--vram-kib", "700", "--ram-kib", "600"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{said}");
    let least: Vec<&str> = said.split_whitespace().filter(|word| word.parse::<u64>().is_ok()).take(2).collect();
    done(folder.path(), &["run", "--tiny", "dense", "--vram-kib", least[0], "--ram-kib", least[1], "--backend", "sim"]);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "a simulation writes nothing");
}
