//! Sweeps as people run them: interrupted, continued, refused.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use fv_catalog::sources::Sources;
use fv_spec::questions::{LeftOutKind, SweepReport};
use fv_tests::{program, root, write_sources};
use proptest::prelude::*;

/// A temporary folder with the catalog for tests of estimates.
struct Place(tempfile::TempDir);

const WHAT: &str =
    "sweep small --catalog catalog --hardware card --hardware desk-64gb --frames 1..9 --size 256x256 --vary vae_tiling=true,false";

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().expect("a folder"));
        write_sources(&Sources::read(&root().join("tests/small")).expect("tests/small"), &place.path("catalog"));
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, line: &str) -> (i32, String, String) {
        let mut command = Command::new(program());
        command.args(line.split(' ').filter(|word| !word.is_empty())).current_dir(self.0.path());
        let done = command.env_remove("FV_CATALOG").env_remove("NO_COLOR").output().expect("the program starts");
        let text = |bytes| String::from_utf8(bytes).expect("the program writes UTF-8");
        (done.status.code().expect("no signal"), text(done.stdout), text(done.stderr))
    }

    fn refused(&self, line: &str, wanted: &str) {
        let (code, out, err) = self.run(line);
        assert_eq!((code, out.as_str()), (2, ""), "`{line}` wrote {err}");
        assert!(err.contains(wanted) && !err.contains("panicked"), "`{line}` does not say {wanted:?}: {err}");
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("written")
    }
}

#[test]
fn a_sweep_cut_anywhere_and_continued_is_the_same() {
    for end in ["csv", "jsonl"] {
        let place = Place::new();
        let (code, out, err) = place.run(&format!("{WHAT} --out whole.{end}"));
        assert_eq!((code, out.as_str()), (0, ""), "{err}");
        assert!(err.contains("24 points: 12 requests on 2 devices"), "{err}");
        let whole = place.read(&format!("whole.{end}"));
        assert_eq!(whole.lines().count(), 24 + usize::from(end == "csv"), "{whole}");
        // To the output the same goes.
        assert_eq!(place.run(&format!("{WHAT} --format {end}")).1, whole);
        assert_eq!(place.run(&format!("{WHAT} --format {end} --out -")).1, whole);
        assert!(!place.path("-").exists() && !place.path("-.sweep.json").exists());
        fs::copy(place.path(&format!("whole.{end}.sweep.json")), place.path(&format!("part.{end}.sweep.json"))).expect("copied");
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig { cases: 24, ..ProptestConfig::default() });
        let cuts = prop_oneof![0..=whole.len(), Just(0), Just(whole.len()), Just(whole.len() - 1), 0..200_usize];
        let same = runner.run(&cuts, |cut| {
            fs::write(place.path(&format!("part.{end}")), &whole.as_bytes()[..cut]).expect("written");
            let (code, _, err) = place.run(&format!("{WHAT} --out part.{end} --resume"));
            prop_assert_eq!(code, 0, "{}: {}", cut, err);
            prop_assert!(place.read(&format!("part.{end}")) == whole, "cut at {cut}");
            Ok(())
        });
        same.expect("the same");
        // Not even begun, with and without the file that says what it is.
        fs::remove_file(place.path(&format!("part.{end}"))).expect("removed");
        assert_eq!(place.run(&format!("{WHAT} --out part.{end} --resume")).0, 0);
        assert_eq!(place.read(&format!("part.{end}")), whole);
        fs::remove_file(place.path(&format!("part.{end}.sweep.json"))).expect("removed");
        fs::write(place.path(&format!("part.{end}")), "").expect("emptied");
        assert_eq!(place.run(&format!("{WHAT} --out part.{end} --resume")).0, 0);
        assert_eq!(place.read(&format!("part.{end}")), whole);
    }
}

#[test]
fn what_cannot_be_continued_is_left_as_it_is() {
    let place = Place::new();
    assert_eq!(place.run(&format!("{WHAT} --out a.csv")).0, 0);
    let whole = place.read("a.csv");
    place.refused(&format!("{WHAT} --out a.csv"), "there already; --resume continues it, --force replaces it");
    place.refused(&format!("{WHAT} --out a.csv --resume --steps 4"), "begun with other request");
    place.refused(&format!("{WHAT} --out a.csv --resume --host-gb 4"), "begun with other limits");
    place.refused(&format!("{WHAT} --out a.csv --resume --env A=b"), "begun with other env");
    place.refused(&format!("{WHAT} --out a.csv --resume --hardware card-6gb"), "begun with other hardware, facts");
    let turned = WHAT.replace("--hardware card --hardware desk-64gb", "--hardware desk-64gb --hardware card");
    place.refused(&format!("{turned} --out a.csv --resume"), "begun with other order of hardware; give what");
    place.refused(&format!("{WHAT} --out - --resume"), "--out -: rows that went to the output cannot be continued");
    fs::copy(place.path("a.csv"), place.path("b.csv")).expect("copied");
    place.refused(&format!("{WHAT} --out b.csv --resume"), "b.csv.sweep.json says what the sweep is, and it cannot be read");
    assert_eq!(place.read("b.csv"), whole, "nothing was changed");
    place.refused(&format!("{WHAT} --resume"), "--out <FILE>");
    for (text, wanted) in [
        (whole.replace("model,deployment", "model;deployment"), "its first line is not the header of a sweep"),
        (format!("{whole}{whole}"), "row 25 is not what this sweep gives there"),
        (format!("{whole}{}", whole.split_once('\n').expect("rows").1), "holds 48 rows, more than the sweep has"),
        (whole.replace(",9,1,vae_tiling=false", ",9,2,vae_tiling=false"), "is not what this sweep gives there"),
    ] {
        fs::write(place.path("a.csv"), &text).expect("written");
        place.refused(&format!("{WHAT} --out a.csv --resume"), wanted);
        assert_eq!(place.read("a.csv"), text, "nothing was changed");
    }
    assert_eq!(place.run(&format!("{WHAT} --out a.csv --force")).0, 0);
    assert_eq!(place.read("a.csv"), whole);
}

#[test]
fn ranges_that_hold_nothing_and_endless_sweeps_are_refused() {
    let place = Place::new();
    let sweep = "sweep small --catalog catalog";
    for (rest, wanted) in [
        (
            "--frames 81..17",
            "found `81..17`, which is reversed and so holds nothing (17..81 goes upwards), allowed: a whole number or A..B",
        ),
        ("--frames ..17", "found `..17`, of which an end is missing, allowed:"),
        ("--frames 17..", "found `17..`, of which an end is missing, allowed:"),
        ("--frames 17..81/0", "found `17..81/0`, whose step of 0 goes nowhere, allowed:"),
        ("--frames 17..x", "found `17..x`, in which `x` is no whole number up to 4294967295, allowed:"),
        ("--frames 1.5", "found `1.5`, allowed: a whole number or A..B or A..B/STEP, upwards from 1, such as 81, 17..161 or 17..161/16"),
        ("--set vae_tiling=true --vary vae_tiling=true,false", "vae_tiling is set for all points with --set, and varied with --vary"),
        ("--set generator.vae_tiling=true --vary vae_tiling=true,false", "leave out one"),
        ("--vary vae_tiling=true --vary vae_tiling=false", "--vary vae_tiling is given twice: put its values into one"),
        ("--env A=1 --env A=2", "--env A is given twice, with different values"),
        ("--only zebra-*", "no device of the catalog passes all of the filters: --only zebra-*"),
        ("--only [", "allowed: an id in which * stands for any text and ? for one character"),
        ("--frames 2..4", "no legal frame count of any model lies in it"),
        ("--frames 80", "frames 80: no model takes so many"),
        ("--frames 0..5", "allowed are 1 to 16384"),
        ("--frames 1..99999", "allowed are 1 to 16384"),
        ("--frames 1..4294967295/7", "allowed are 1 to 16384"),
        ("--frames -5", "a whole number"),
        ("--batch 0", "allowed are 1 to 1024"),
        ("--batch 1..4000000000", "allowed are 1 to 1024"),
        ("--size 832", "a width, `x` and a height"),
        ("--size 833x480", "size 833x480: no model takes it"),
        ("--vary vae_tiling", "a name, `=` and values separated by commas"),
        ("--vary vae_tiling=", "a name, `=` and values separated by commas"),
        ("--vary vae_tilng=true,false --deployment diffusers", "no setting is called \"vae_tilng\"; did you mean"),
        // A runtime without resolved settings beside it takes everything and knows nothing.
        ("--vary vae_tilng=true,false", "no setting is called \"vae_tilng\"; did you mean"),
        ("--set vae_tilng=true", "no setting is called \"vae_tilng\"; did you mean"),
        ("--vary vae_tiling=true,1", "allowed: true or false"),
        ("--vary vae_tiling=true --vary vae_tiling=false", "--vary vae_tiling is given twice: put its values into one"),
        ("--vary vae_tiling=true --vary pipeline.vae_tiling=false", "are the same setting: put its values into one"),
        ("--vary vae_tiling=true,false --set vae_tiling=true", "vae_tiling is set for all points with --set, and varied with --vary"),
        ("--vary vae_tiling=true,false --set generator.pipeline.vae_tiling=true", "leave out one"),
        ("--vary frames=17,21", "--vary frames: no setting but an axis of its own, given by --frames A..B"),
        ("--vary hardware=card", "given by --hardware ID"),
        ("--frmes 17", "'--frames'"),
        ("--batch 4..1", "found `4..1`, which is reversed and so holds nothing (1..4 goes upwards)"),
        ("--batch 1..4/0", "whose step of 0 goes nowhere"),
        (
            "--out points.parquet",
            "this build writes no Parquet; `cargo build --release -p fv-catalog --features parquet` makes one that does",
        ),
        ("--format parquet", "this build writes no Parquet"),
        ("--out .", "not a plain file"),
        ("--report nowhere/r.json", "its folder does not exist"),
        ("--report catalog", "a folder"),
        ("--out a.csv --report a.csv", "a file of the sweep itself"),
        ("--vary vae_tiling=1 --deployment diffusers", "allowed: true or false"),
        ("--deployment difusers", "no deployment \"difusers\""),
        ("--hardware crad", "did you mean card"),
        ("--guidance -3 --deployment diffusers", "guidance: found -3"),
        ("--format json", "[possible values: csv, jsonl]"),
        ("--out nowhere/a.csv", "nowhere/a.csv"),
        ("--limit 3", "10 points are more than the limit of 3: narrow the axes (2 deployments x 5 devices), or allow them with --limit 10"),
        ("--limit -1", "--limit"),
    ] {
        place.refused(&format!("{sweep} {rest}"), wanted);
    }
    place.refused("sweep smal --catalog catalog", "did you mean small?");
    let left: Vec<_> = fs::read_dir(place.0.path()).expect("a folder").map(|entry| entry.expect("an entry").file_name()).collect();
    assert_eq!(left, ["catalog"], "nothing was written");
    // More combinations than can be gone through are counted all the same: 10^12 points.
    let vary = |key: &str, from: u32| format!("--vary {key}={}", (from..from + 100).map(|n| n.to_string()).collect::<Vec<_>>().join(","));
    let tiles = [
        ("tile_sample_min_height", 256),
        ("tile_sample_min_width", 256),
        ("tile_sample_stride_height", 192),
        ("tile_sample_stride_width", 192),
    ];
    let varied: Vec<String> = tiles.iter().map(|(key, from)| vary(key, *from)).collect();
    let many = format!("{sweep} --deployment diffusers --hardware card --frames 17..413 {}", varied.join(" "));
    place.refused(
        &format!("{many} --batch 1..100"),
        "1,000,000,000,000 points are more than the limit of 1,000,000,000: narrow the axes (100 frame counts x 100 batches x 100,000,000 combinations of settings), or allow them with --limit 1000000000000",
    );
    place.refused(&format!("{many} --limit 100000000000000"), "--vary: 100,000,000 combinations of settings, at most 1,024 in one sweep");
    // Of all models and devices of the catalog that is built in; said before anything is done.
    let sizes: Vec<String> = (1..=60).map(|n| format!("{}x{}", 64 * n, 64 * n)).collect();
    let line = format!("sweep --size {} --frames 1..16384 --batch 1..1024 --vary vae_tiling=true,false", sizes.join(","));
    fs::remove_dir_all(place.path("catalog")).expect("removed");
    let (code, _, err) = place.run(&line);
    assert!(code == 2 && err.contains(" points are more than the limit of 1,000,000,000: narrow the axes ("), "{err}");
}

#[test]
fn a_sweep_killed_again_and_again_ends_the_same() {
    let place = Place::new();
    let what = "sweep small --catalog catalog --hardware card --hardware desk-64gb --frames 1..12001 --size 256x256 --deployment diffusers";
    let (code, _, err) = place.run(&format!("{what} --out whole.csv"));
    assert_eq!(code, 0, "{err}");
    let (_, summary) = err.split_once('\n').expect("the points, then the summary");
    let whole = fs::read(place.path("whole.csv")).expect("written");
    let part = place.path("part.csv");
    let length = || fs::metadata(&part).map_or(0, |file| file.len());
    let grouped = |n: usize| if n < 1_000 { n.to_string() } else { format!("{},{:03}", n / 1_000, n % 1_000) };
    let ended = |wanted: u64, signal: &str| {
        let mut command = Command::new(program());
        command.args(format!("{what} --out part.csv --resume").split(' ')).current_dir(place.0.path()).env_remove("FV_CATALOG");
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program starts");
        while length() < wanted && child.try_wait().expect("a child").is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        if child.try_wait().expect("a child").is_none() {
            let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
            assert!(sent.success() || child.try_wait().expect("a child").is_some());
        }
        let done = child.wait_with_output().expect("a child");
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let mut interruptions = 0;
    for at in 0..9 {
        // Before anything is there, and each time a little further.
        let wanted = whole.len() as u64 * at / 9;
        let signal = ["-KILL", "-INT", "-TERM"][usize::try_from(at % 3).expect("small")];
        let (code, err) = ended(wanted, signal);
        interruptions += u32::from(code != Some(0));
        let rows = fs::read(&part).unwrap_or_default();
        assert!(whole.starts_with(&rows), "killed at {wanted}: what is there is a beginning of the whole");
        // Asked to end, it ends with whole rows, says how many, and how to go on.
        if let (Some(130), true) = (code, signal != "-KILL") {
            let there = String::from_utf8_lossy(&rows).lines().count() - 1;
            assert!(rows.ends_with(b"\n"), "whole rows");
            let said = format!("interrupted after {} of ", grouped(there));
            assert!(err.contains(&said) && err.contains("--resume continues it"), "{said}: {err}");
        } else if signal != "-KILL" && wanted > 0 {
            assert_eq!(code, Some(0), "ended before the signal came: {err}");
        }
    }
    assert!(interruptions >= 4, "{interruptions}");
    let (code, _, err) = place.run(&format!("{what} --out part.csv --resume"));
    assert_eq!(code, 0, "{err}");
    assert!(fs::read(&part).expect("written") == whole, "the same to the byte");
    // What is counted in the end is the whole file, too.
    assert!(err.ends_with(summary), "{err}");
}

/// As on a full disk: a file may not grow beyond some KiB.
#[test]
fn a_sweep_without_room_keeps_what_it_has() {
    let place = Place::new();
    assert_eq!(place.run(&format!("{WHAT} --out whole.csv")).0, 0);
    let whole = place.read("whole.csv");
    let limited = |blocks: u32, arguments: &str| {
        let line = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" {WHAT} {arguments}");
        let mut command = Command::new("sh");
        command.arg("-c").arg(line).arg(program()).current_dir(place.0.path()).env_remove("FV_CATALOG");
        let done = command.output().expect("the program starts");
        (done.status.code(), String::from_utf8(done.stderr).expect("UTF-8"))
    };
    // Blocks are of 512 bytes or of 1024, and the file has about 3 KiB.
    let (code, err) = limited(2, "--out part.csv");
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("part.csv: File too large") && err.contains("what is there is kept, and --resume continues it"), "{err}");
    let part = place.read("part.csv");
    assert!(!part.is_empty() && part.len() < whole.len() && whole.starts_with(&part));
    assert_eq!(place.run(&format!("{WHAT} --out part.csv --resume")).0, 0);
    assert_eq!(place.read("part.csv"), whole);
    // Where not even the header has room, nothing is left.
    let (code, err) = limited(0, "--out none.csv");
    assert_eq!(code, Some(2), "{err}");
    assert!(!place.path("none.csv").exists() && !place.path("none.csv.sweep.json").exists(), "{err}");
}

#[test]
fn a_changed_catalog_is_noticed() {
    let place = Place::new();
    assert_eq!(place.run(&format!("{WHAT} --out a.csv")).0, 0);
    let whole = place.read("a.csv");
    let model = place.path("catalog/transformers.yaml");
    let text = fs::read_to_string(&model).expect("a text");
    let count = text.lines().find_map(|line| line.trim().strip_prefix("parameter_count: ")).expect("a count").to_owned();
    let digit = if count.ends_with('0') { "1" } else { "0" };
    fs::write(&model, text.replacen(&count, &format!("{}{digit}", &count[..count.len() - 1]), 1)).expect("written");
    place.refused(&format!("{WHAT} --out a.csv --resume"), "begun with other facts of the catalog");
    fs::write(&model, text).expect("written");
    // As another build or another version would have left it.
    let note = place.read("a.csv.sweep.json");
    for (key, wanted) in [("rules", "rules (another build of this program)"), ("program", "version of this program")] {
        let line = note.lines().find(|line| line.trim().starts_with(&format!("\"{key}\":"))).expect("a key");
        fs::write(place.path("a.csv.sweep.json"), note.replace(line, &format!("\"{key}\": \"other\","))).expect("written");
        place.refused(&format!("{WHAT} --out a.csv --resume"), &format!("begun with other {wanted}"));
    }
    assert_eq!(place.read("a.csv"), whole);
}

#[test]
fn what_is_left_out_is_counted_and_named() {
    let place = Place::new();
    fs::remove_dir_all(place.path("catalog")).expect("removed");
    let line = "sweep wan21-t2v-1.3b mochi-1 hunyuanvideo --size 416x240,848x480,832x480 --frames 17..25,30..31 --text-tokens 500 --hardware rtx-4090 --vary vae_tiling=true,false";
    let (code, _, err) = place.run(&format!("{line} --out a.csv --report r.json"));
    assert_eq!(code, 0, "{err}");
    for wanted in
        ["left out, over all deployments: ", "wan21-t2v-1.3b (fastvideo): frames 30..31: allowed are 1, 5 and so on in steps of 4"]
    {
        assert!(err.contains(wanted), "{err}");
    }
    let report: SweepReport = serde_json::from_str(&place.read("r.json")).expect("JSON");
    let rows = place.read("a.csv").lines().count() as u64 - 1;
    assert_eq!((report.rows, report.fits + report.uncertain + report.does_not_fit + report.unknown), (rows, rows));
    assert_eq!(report.unknown_reasons.iter().map(|reason| reason.rows).sum::<u64>(), report.unknown);
    assert!(report.left_out.iter().any(|left| left.kind == LeftOutKind::Frames && left.values == ["30..31"]), "{report:?}");
    assert!(report.left_out.iter().all(|left| left.count >= 1 && !left.values.is_empty() && !left.reason.is_empty()), "{report:?}");
    // The same again, from the file that is there.
    let (code, _, again) = place.run(&format!("{line} --out a.csv --resume --report again.json"));
    assert_eq!((code, place.read("again.json")), (0, place.read("r.json")), "{again}");
    assert!(again.ends_with(err.split_once('\n').expect("lines").1), "{again}");
}

#[test]
fn help_names_the_formats_of_this_build() {
    let (code, out, _) = Place::new().run("sweep --help");
    assert_eq!(code, 0);
    assert!(out.contains("[possible values: csv, jsonl]") && !out.contains("parquet"), "{out}");
}
