//! `plan` and `grid` as both programs give them: answers, files, exit codes, and what is said of wrong input.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use fv_estimate::render::{self, Names};
use fv_spec::plan::{Plan, refusal::Refusal};
use fv_tests::{program, root, runner};
use serde_json::Value;

/// A folder without a catalog, so that both programs answer from the built-in one.
struct Place(tempfile::TempDir);

/// Exit code, output and error stream.
type Answer = (i32, String, String);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).expect("written");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("there")
    }

    fn run(&self, program: &Path, line: &str) -> Answer {
        let mut command = Command::new(program);
        command.args(line.split_whitespace()).current_dir(self.0.path()).env_remove("FV_CATALOG");
        let done = command.output().expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (done.status.code().expect("no signal"), text(done.stdout), text(done.stderr))
    }

    fn runs(&self, line: &str) -> Answer {
        self.run(runner(), line)
    }

    /// What both programs answer.
    fn both(&self, line: &str) -> Answer {
        let [ours, theirs] = [runner(), program()].map(|program| self.run(program, line));
        assert_eq!((ours.0, &ours.1), (theirs.0, &theirs.1), "{line}: {} {}", ours.2, theirs.2);
        ours
    }
}

/// Everything that both programs need to know; `fv-run` would otherwise look which system it runs on.
const GIVEN: &str = "--vram-gib 16 --ram-gib 32 --system linux";

fn vectors() -> String {
    fs::read_to_string(root().join("tests/data/freevideo_plan_vectors.csv")).expect("there")
}

#[test]
fn both_programs_make_the_same_plan() {
    let place = Place::new();
    for more in ["", "--no-two-pass", "--hardware rtx-4090 --frames 124", "--architecture blackwell-rtx --seconds 5 --base-steps 6"] {
        let (code, human, _) = place.both(&format!("plan {GIVEN} {more}"));
        assert!(code == 0 && human.starts_with("fits: MiniMax H3"), "{human}");
        let (code, json, _) = place.both(&format!("plan {GIVEN} {more} --format json"));
        let plan: Plan = serde_json::from_str(&json).expect("a plan");
        assert_eq!((code, fv_estimate::planner::check::check(&plan)), (0, Vec::new()));
        assert_eq!(plan.id, fv_estimate::planner::id(&plan));
        assert!(human.contains(&plan.id));
    }
}

#[test]
fn a_refusal_says_the_same_as_text_and_as_json_and_exits_with_4() {
    let place = Place::new();
    for memory in ["--vram-gib 4 --ram-gib 32", "--vram-gib 16 --ram-gib 4", "--vram-gib 3 --ram-gib 3"] {
        place.write("answer.json", "old\n");
        let line = format!("plan {memory} --system linux --hardware rtx-4090 --out answer.json");
        let (code, human, err) = place.both(&line);
        assert_eq!((code, err.as_str()), (4, ""), "{human}");
        let (code, json, err) = place.both(&format!("{line} --format json"));
        assert_eq!((code, err.as_str()), (4, ""));
        let refusal: Refusal = serde_json::from_str(&json).expect("a refusal");
        let names = Names { model: "MiniMax H3", device: Some("NVIDIA GeForce RTX 4090 24 GB") };
        assert_eq!(render::refusal(&refusal, &names, 100).plain(), human);
        assert!(!refusal.shortfalls.is_empty() && refusal.smallest.is_some(), "{json}");
        for short in &refusal.shortfalls {
            assert_eq!(short.usable_bytes + short.shortfall_bytes, short.minimum_bytes);
        }
        assert_eq!(place.read("answer.json"), json, "the answer is in the file, and no plan of before");
        for line in ["plan check answer.json", "plan explain answer.json"] {
            let (code, out, err) = place.both(line);
            assert!(code == 2 && out.is_empty() && err.contains("answer.json: this is a refusal, and no plan"), "{line}: {err}");
        }
    }
}

/// What a refusal offers is planned when it is asked for.
#[test]
fn what_a_refusal_offers_fits() {
    let place = Place::new();
    let memory = |vram: u64, ram: u64| {
        // Rounded up to a thousandth, as a person would type it.
        let gib = |bytes: u64| {
            let thousandths = (u128::from(bytes) * 1000).div_ceil(1 << 30);
            format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
        };
        format!("--vram-gib {} --ram-gib {}", gib(vram), gib(ram))
    };
    let (vram, ram) = (6 << 30, 16 << 30);
    let (_, json, _) = place.runs(&format!("plan {} --format json", memory(vram, ram)));
    let refusal: Refusal = serde_json::from_str(&json).expect("a refusal");
    let smallest = refusal.smallest.expect("searched");
    let enough = memory(smallest.vram.expect("more device memory helps").bytes, ram);
    assert_eq!(place.runs(&format!("plan {enough}")).0, 0);
    assert!(!refusal.nearest.is_empty());
    for nearest in &refusal.nearest {
        let line = format!("plan {} --width {} --height {} --frames {}", memory(vram, ram), nearest.width, nearest.height, nearest.frames);
        let (code, out, _) = place.runs(&line);
        assert_eq!(code, 0, "{line}: {out}");
    }
    for change in refusal.changes.iter().filter_map(|change| change.arguments.as_ref()) {
        assert_eq!(place.runs(&format!("plan {} {change}", memory(vram, ram))).0, 0, "{change}");
    }
}

#[test]
fn a_table_of_requests_is_reproduced_byte_for_byte() {
    let place = Place::new();
    let vectors = vectors();
    assert!(vectors.contains("\r\n"), "lines end as those of the file that was read");
    place.write("vectors.csv", &vectors);
    let (code, out, err) = place.both("plan --requests vectors.csv");
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out == vectors, "{out}");
    // Without what was decided, without tokens, in another order and with other line ends it comes out the same.
    let columns = [8, 7, 5, 4, 3, 2, 1, 0];
    let given: String = vectors
        .lines()
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            columns.map(|at| fields[at]).join(",") + "\n"
        })
        .collect();
    place.write("given.csv", &given);
    assert_eq!(place.both("plan --requests given.csv --out planned.csv"), (0, String::new(), String::new()));
    assert!(place.read("planned.csv") == vectors.replace("\r\n", "\n"));
}

#[test]
fn a_wrong_table_names_line_and_column_and_writes_nothing() {
    let place = Place::new();
    place.write("out.csv", "old\n");
    let header = "system,arch,precision,width,height,frames,free_vram_gib,free_ram_gib";
    let good = "Linux,ada,int8,1344,768,124,10,8";
    for (table, wants) in [
        (String::new(), &["t.csv:1: the table is empty"][..]),
        ("system,arch\n".to_owned(), &["t.csv:1: the column `precision` is missing", "t.csv:1: the column `free_ram_gib` is missing"]),
        (format!("{header},colour\n{good},red\n"), &["t.csv:1: the column `colour` is not known"]),
        (format!("{header},hed\n{good},1\n"), &["did you mean `head`?"]),
        (format!("{header},arch\n{good},ada\n"), &["t.csv:1: the column `arch` is there twice"]),
        (format!("{header}\n{good}\n{good},1\n"), &["t.csv:3: the row has 9 fields, and the first line names 8"]),
        (format!("{header}\n{good}\nx\n"), &["t.csv:3: the row has 1 field, and"]),
        (format!("{header}\n{good}\n\"{good}\n{good}\n"), &["t.csv:3: a quote is opened here and not closed"]),
        (format!("{header}\n{good}\n{}\n{good}\n", good.replace("ada", "\"ada")), &["t.csv:3: a quote is opened here and not closed"]),
        (format!("{header}\n{}\n", good.replace(",8", ",\"8")), &["t.csv:2: a quote is opened here and not closed"]),
        (format!("{header}\n{good}\n\n{}\n", good.replace("ada", "adda")), &["t.csv:4:2: arch: found `adda`", "did you mean `ada`?"]),
        (format!("{header}\n{}\n", good.replace("1344", "1000")), &["t.csv:2:4: width: found 1000", "nearest: 992 or 1024"]),
        (
            format!("{header}\n{}\n", good.replace(",10,8", ",nan,-1")),
            &["t.csv:2:7: free_vram_gib: found `nan`", "t.csv:2:8: free_ram_gib: found `-1`"],
        ),
        (format!("{header}\n{}\n", good.replace(",10,", ",1e400,")), &["t.csv:2:7: free_vram_gib: found `1e400`"]),
        (format!("{header}\n{}\n", good.replace(",124,", ",12,")), &["t.csv:2:6: frames: found 12"]),
        (format!("{header},tokens\n{good},5\n"), &["t.csv:2:9: tokens: found `5`, but the size and the frames make 37296"]),
        (format!("{header}\n{}", "Linux,ada,int8,1,1,1,1,1\n".repeat(50)), &["t.csv: 130 more"]),
    ] {
        place.write("t.csv", &table);
        let (code, out, err) = place.both("plan --requests t.csv --out out.csv");
        assert_eq!((code, out.as_str()), (2, ""), "{table}: {err}");
        for want in wants {
            assert!(err.contains(want), "{table}\n{err}");
        }
        assert_eq!(place.read("out.csv"), "old\n");
    }
    let (_, _, err) = {
        place.write("t.csv", "system,arch\n");
        place.both("plan --requests t.csv")
    };
    assert!(err.contains("needed: system, arch, precision, width, height, frames, free_vram_gib, free_ram_gib\n"), "{err}");
    fs::write(place.path("t.csv"), [header.as_bytes(), b"\nLinux,\xff"].concat()).expect("written");
    assert!(place.both("plan --requests t.csv").2.contains("t.csv: not UTF-8 in line 2"));
    for (line, want) in [
        ("plan --requests nowhere.csv", "nowhere.csv: No such file"),
        ("plan --requests t.csv --vram-gib 8", "cannot be used with"),
        ("plan --requests t.csv --format json", "writes CSV"),
    ] {
        let (code, out, err) = place.both(line);
        assert!(code == 2 && out.is_empty() && err.contains(want), "{line}: {err}");
    }
}

#[test]
fn the_grid_has_the_published_blocks_and_dots() {
    let place = Place::new();
    let line = "grid --vram 8..32 --ram 8..32 --no-two-pass";
    let (code, csv, err) = place.runs(&format!("{line} --format csv"));
    assert_eq!((code, err.as_str()), (0, ""));
    let rows = |text: &str| -> std::collections::BTreeMap<[String; 2], Vec<String>> {
        let fields = text.lines().skip(1).map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
        fields.map(|fields| ([fields[0].clone(), fields[1].clone()], fields)).collect()
    };
    let published = fs::read_to_string(root().join("tests/data/freevideo_capacity_grid.csv")).expect("there");
    assert_eq!(csv.lines().next(), published.lines().next(), "the same columns");
    let (ours, published) = (rows(&csv), rows(&published));
    assert_eq!((ours.len(), published.len()), (625, 313));
    for (place, cell) in &published {
        assert_eq!(ours[place][3..], cell[3..], "{place:?}");
    }
    let streaming = ours.values().filter(|cell| cell[4] == "1").count();
    assert_eq!(streaming, 188, "as many of all 625 as were published");

    assert_eq!(place.runs(&format!("{line} --format svg --out grid.svg")), (0, String::new(), String::new()));
    let svg = place.read("grid.svg");
    let document = roxmltree::Document::parse(&svg).unwrap_or_else(|error| panic!("{error}"));
    let dots =
        document.descendants().filter(|node| node.has_tag_name("circle") && node.parent().is_some_and(|cell| cell.has_tag_name("g")));
    assert_eq!(dots.filter(|dot| dot.attribute("class").is_none()).count() % streaming, 0);
    let (_, table, _) = place.runs(line);
    assert!(table.starts_with("MiniMax H3: 625 of 625 combinations fit, 188 read blocks from disk at every step"), "{table}");
}

#[test]
fn a_grid_shows_what_does_not_fit() {
    let place = Place::new();
    let (code, csv, _) = place.runs("grid --vram 4..6 --step 1 --ram 8 --hardware rtx-4090 --system windows --format csv");
    assert_eq!(code, 0);
    assert_eq!(csv.lines().nth(1), Some("4,8,,,"), "{csv}");
}

#[test]
fn plans_are_explained_compared_and_checked() {
    let place = Place::new();
    assert_eq!(place.runs(&format!("plan {GIVEN} --out a.json")).0, 0);
    assert_eq!(place.runs("plan --vram-gib 12 --ram-gib 16 --system linux --out b.json").0, 0);
    let (code, out, _) = place.both("plan explain a.json");
    assert!(code == 0 && out.contains("transformer.resident_blocks is 8: "), "{out}");
    let (code, out, _) = place.both("plan explain a.json --format json");
    assert!(code == 0 && serde_json::from_str::<fv_spec::plan::answer::PlanExplanation>(&out).is_ok());
    let (code, out, _) = place.both("plan diff a.json b.json");
    assert!(code == 1 && out.starts_with("different plans") && out.contains("placements.transformer.0.runs"), "{out}");
    let (code, out, _) = place.both("plan diff a.json a.json");
    assert!(code == 0 && out.starts_with("the same plan"), "{out}");
    let (code, out, _) = place.both("plan check a.json");
    assert!(code == 0 && out.contains("is sound"), "{out}");

    let plan = place.read("a.json");
    let edited: Vec<(String, &str)> = vec![
        (plan.replacen("\"count\": 8", "\"count\": 9", 1), "consistent"),
        (plan.replacen("\"version\": 1", "\"version\": 2", 1), "version"),
        (plan.replacen("\"version\": 1", "\"version\": 0", 1), "version"),
        (plan.replacen("\"policy\"", "\"polizy\"", 1), "polizy"),
        (plan[..plan.len() / 2].to_owned(), "no plan"),
        ("[]".to_owned(), "plan"),
        (String::new(), "no plan"),
    ];
    for (text, want) in edited {
        place.write("edited.json", &text);
        for line in ["plan check edited.json", "plan explain edited.json", "plan diff a.json edited.json", "plan diff edited.json a.json"] {
            let (code, out, err) = place.both(line);
            assert!(code == 2 && out.is_empty() && err.contains("edited.json: ") && err.contains(want), "{line}, {want}: {code} {err}");
        }
    }
    fs::write(place.path("edited.json"), b"\xff").expect("written");
    assert!(place.both("plan check edited.json").2.contains("not UTF-8 in line 1"));
    // A mark before the text is none of it; what a shell wrote in 16 bits is said to be that.
    place.write("edited.json", &format!("\u{feff}{plan}"));
    assert_eq!(place.both("plan check edited.json").0, 0);
    for unit in [u16::to_le_bytes as fn(u16) -> [u8; 2], u16::to_be_bytes] {
        let wide: Vec<u8> = std::iter::once(0xfeff).chain(plan.encode_utf16()).flat_map(unit).collect();
        fs::write(place.path("edited.json"), wide).expect("written");
        let (code, _, err) = place.both("plan check edited.json");
        assert!(code == 2 && err.contains("edited.json: UTF-16") && err.contains("--out"), "{err}");
    }
}

#[test]
fn wrong_input_is_said_with_what_would_be_right() {
    let place = Place::new();
    let with = |more: &str| format!("plan --vram-gib 16 --ram-gib 32 {more}");
    for (line, want) in [
        ("plan --vram-gib abc --ram-gib 8".to_owned(), "such as 8 or 10.5"),
        ("plan --vram-gib nan --ram-gib 8".to_owned(), "such as 8 or 10.5"),
        ("plan --vram-gib 1e400 --ram-gib 8".to_owned(), "such as 8 or 10.5"),
        ("plan --vram-gib -1 --ram-gib 8".to_owned(), "between 0.001 and 1000000"),
        ("plan --vram-gib 0 --ram-gib 8".to_owned(), "between 0.001 and 1000000"),
        ("plan --vram-gib 8 --ram-gib 1e300".to_owned(), "between 0.001 and 1000000"),
        ("plan --vram-gib 1e-320 --ram-gib 8".to_owned(), "is 1e-320 GiB"),
        (with("--ram-reserve-gib -1"), "`--ram-reserve-gib` is -1 GiB; it must lie between 0 and 1000000"),
        (with("--gpu-reserve-gib 1e9"), "between 0 and 1000000"),
        (with("--seconds 0.0001"), "seconds: found 0.0001, allowed: from 1.625 (39 frames) to 682.666 (16384 frames)"),
        (with("--seconds 1e300"), "seconds: found 1e300, allowed"),
        (with("--frames 100 --seconds 4"), "cannot be used with"),
        (with("--seconds nan"), "seconds: found NaN"),
        (with("--frames 12"), "frames: found 12, allowed: from 39"),
        (with("--frames -5"), "invalid value '-5'"),
        (with("--width 1000 --height 700"), "width: found 1000, allowed: multiples of 32 pixels; nearest: 992 or 1024"),
        (with("--width 1000 --height 700"), "height: found 700, allowed: multiples of 32 pixels; nearest: 672 or 704"),
        (with("--width 100"), "from 256"),
        (with("--attention-backends sage,fa2"), "a similar value exists: 'sage2'"),
        (with("--attention-backends fa2 --attention sage2"), "sage2 is not available, only fa2"),
        (with("--attention fa2,fa2,fa2"), "found 3 implementations"),
        (with("--architecture adda"), "a similar value exists: 'ada'"),
        (with("--system linx"), "a similar value exists: 'linux'"),
        (with("--precision fp4"), "possible values: int8, fp8"),
        (with("--compute-capability 7.5"), "below 8.0"),
        (with("--compute-capability eight"), "such as 8.9"),
        (with("--compute-capability 8.9 --architecture ada"), "cannot be used with"),
        (with("--hardware rtx-490"), "did you mean rtx-4090"),
        (with("--hardware rtx-4090 --architecture hopper"), "do not agree"),
        (with("--hardware rx-7900-xtx"), "does not run CUDA"),
        ("plan --hardware dgx-spark --ram-gib 8".to_owned(), "shares its memory"),
        (with("--gpu-reserve-gib 0.1"), "at least 0.2 GiB"),
        (with("--task t2v"), "a similar value exists: 't2va'"),
        (with("--steps 0"), "from 1 to 32"),
        (with("--two-pass --no-two-pass"), "cannot be used with"),
        (with("--refine-steps 9"), "refine steps: found 9"),
        (with("--reference-video-tokens 5"), "takes no references"),
        (with("--system macos"), "give host memory alone"),
        (with("--model minimax"), "did you mean"),
        (with("--model rtx-4090"), "is the device rtx-4090-24gb"),
        (with("--model ltx-video-2b"), "has none"),
        (with("--model fastwan21 --no-two-pass"), "is a setting of the policy freevideo"),
        (with("--policy fast"), "possible values"),
        (with("--probe nowhere.json"), "nowhere.json"),
        (with("--out nowhere/plan.json"), "nowhere/plan.json"),
        (with("extra"), "cannot be used with"),
    ] {
        let (code, out, err) = place.both(&line);
        assert!(code == 2 && out.is_empty() && err.contains(want), "{line}: exit {code}, {out}{err}");
        assert!(!err.contains("panicked") && !err.contains(".part"), "{err}");
    }
    for more in ["--vram-gib 8", "--hardware rtx-4090"] {
        let (code, _, err) = place.runs(&format!("plan {more} --ram-gib 16 --system linux --gpu 0"));
        assert!(code == 2 && err.contains("`--gpu 0` names a GPU to measure, and none is measured"), "{err}");
    }
    assert_eq!(place.both(&with("--system linux --ram-reserve-gib 0")).0, 0);
    for (line, want) in [
        ("grid --vram 32..8 --ram 8..32", "did you mean 8..32?"),
        ("grid --vram 8.. --ram 8..32", "lacks an end"),
        ("grid --vram abc --ram 8..32", "such as 8 or 10.5"),
        ("grid --vram 0..8 --ram 8..32", "outside 0.001 to 1000000"),
        ("grid --vram -8..8 --ram 8..32", "such as 8 or 10.5"),
        ("grid --vram 8..32 --ram 8..32 --step 0", "outside"),
        ("grid --vram 1..100000 --ram 1..100000", "10000000000 cells, and at most 1000000"),
        ("grid --vram 8..32", "--ram"),
        ("grid --vram 8 --ram 8 --format png", "possible values: table, csv, svg"),
        ("grid --vram 8 --ram 8 --width 1000", "nearest: 992 or 1024"),
        ("grid --vram 8 --ram 8 --system macos", "device memory is the host's on macOS"),
        ("grid --vram 8 --ram 8 --out nowhere/grid.csv", "nowhere/grid.csv"),
    ] {
        let (code, out, err) = place.runs(line);
        assert!(code == 2 && out.is_empty() && err.contains(want), "{line}: exit {code}, {out}{err}");
    }
}

/// More memory than the card has is planned, and remarked on in every answer.
#[test]
fn more_than_the_card_has_is_remarked_on() {
    let place = Place::new();
    for (memory, host, want) in [("24", "32", false), ("48", "32", true), ("48", "3", true)] {
        let line = format!("plan --hardware rtx-4090 --vram-gib {memory} --ram-gib {host} --system linux");
        for more in ["", " --format json"] {
            let (_, out, _) = place.both(&format!("{line}{more}"));
            assert_eq!(out.contains("48.00 GiB of device memory were given, and rtx-4090-24gb has"), want, "{line}{more}: {out}");
        }
    }
}

/// A probe file stands for a machine; what is given is not looked up in it.
#[test]
fn a_probe_file_is_a_machine() {
    let place = Place::new();
    let probe = fs::read_to_string(root().join("tests/data/probes/desktop-rtx-4090.json")).expect("there");
    place.write("probe.json", &probe);
    let (code, out, err) = place.both("plan --probe probe.json --format json");
    assert_eq!((code, err.as_str()), (0, ""));
    let plan: Value = serde_json::from_str(&out).expect("JSON");
    let (gpu, host): (Value, Value) = {
        let probe: Value = serde_json::from_str(&probe).expect("JSON");
        (probe["gpus"][0].clone(), probe["host"].clone())
    };
    for (budget, measured) in plan["budgets"].as_array().expect("two").iter().zip([&gpu["free_bytes"], &host["available_bytes"]]) {
        assert_eq!((&budget["free"]["bytes"], budget["free"]["source"].as_str()), (measured, Some("probed")));
        assert!(budget["free"]["at"].is_string() && budget["free"]["by"].is_string(), "{budget}");
    }
    assert_eq!(plan["system"]["geforce"]["source"], "probed");
    let (_, out, _) = place.both("plan --probe probe.json --vram-gib 12 --format json");
    let given: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(given["budgets"][0]["free"], serde_json::json!({ "bytes": 12_u64 << 30, "source": "given" }));
    assert_eq!(given["budgets"][1], plan["budgets"][1]);
    assert_eq!(given["system"]["architecture"]["source"], "assumed", "a card that was described is not the one that was measured");

    let mut none: Value = serde_json::from_str(&probe).expect("JSON");
    none["gpus"] = Value::Array(Vec::new());
    place.write("none.json", &none.to_string());
    let (code, out, err) = place.both("plan --probe none.json");
    assert_eq!((code, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("no GPU") && err.contains("--vram-gib") && err.contains("--hardware"), "{err}");
    assert_eq!(place.both("plan --probe none.json --hardware rtx-4090").0, 0);
}

#[test]
fn the_catalog_program_measures_nothing() {
    let place = Place::new();
    let (code, out, err) = place.run(program(), "plan");
    assert_eq!((code, out.as_str()), (2, ""));
    for want in ["`--vram-gib`", "`--ram-gib`", "`--hardware`", "`--probe`", "measures nothing"] {
        assert!(err.contains(want), "{err}");
    }
    let (code, _, err) = place.run(program(), "plan --hardware rtx-4090");
    assert!(code == 2 && !err.contains("`--vram-gib`") && err.contains("`--ram-gib`"), "{err}");
    assert_eq!(place.run(program(), "plan --hardware rtx-4090 --ram-gib 32").0, 0);
}

/// On macOS no plan is published: that is unknown, and neither yes nor no.
#[test]
fn what_no_rule_covers_is_unknown() {
    let place = Place::new();
    let (code, out, _) = place.both("plan --system macos --ram-gib 64");
    assert!(code == 1 && out.starts_with("unknown: MiniMax H3: "), "{out}");
    // Too little is refused, and what is said to do for that is unknown, not planned.
    let (code, out, _) = place.both("plan --system macos --ram-gib 3");
    assert!(code == 4 && out.starts_with("does not fit: MiniMax H3 needs at least 4.00 GiB of shared memory, 1.00 GiB more"), "{out}");
    assert!(!out.contains("host memory that there is") && !out.contains("device memory that there is"), "{out}");
    assert_eq!(place.both("plan --system macos --ram-gib 4").0, 1);
    let (code, out, _) = place.both("plan --system macos --ram-gib 64 --format json --out unknown.json");
    assert_eq!(place.read("unknown.json"), out);
    assert!(place.both("plan check unknown.json").2.contains("this is an unknown answer, and no plan"));
    let answer: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, answer["policy"].as_str()), (1, Some("freevideo")));
    assert!(answer["reasons"].as_array().is_some_and(|reasons| !reasons.is_empty()));
}

#[test]
fn completions_know_the_planner() {
    let place = Place::new();
    for program in [runner(), program()] {
        for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
            let (code, script, err) = place.run(program, &format!("completions {shell}"));
            assert_eq!((code, err.as_str()), (0, ""));
            assert!(script.contains("vram-gib"), "{shell}");
            // The generators for the other shells leave words out.
            assert!(!matches!(shell, "bash" | "zsh" | "fish") || script.contains("blackwell-rtx"), "{shell}");
        }
    }
    // The script of a program with a hyphen completes what stands behind it.
    place.write("fv-run.bash", &place.runs("completions bash").1);
    let ask = "source fv-run.bash; words=($(complete -p fv-run)); COMP_WORDS=(fv-run plan --vr); COMP_CWORD=2; \
               for at in ${!words[@]}; do [ ${words[at]} = -F ] && ${words[at + 1]} fv-run --vr plan; done; echo ${COMPREPLY[@]}";
    let done = Command::new("bash").args(["-c", ask]).current_dir(place.path("")).output().expect("bash");
    assert_eq!(String::from_utf8_lossy(&done.stdout).trim(), "--vram-gib", "{}", String::from_utf8_lossy(&done.stderr));
}
