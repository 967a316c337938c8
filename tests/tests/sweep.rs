//! Sweeps as people run them: interrupted, continued, refused.

use std::{fs, path::PathBuf, process::Command};

use fv_catalog::sources::Sources;
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
        // Not even begun.
        fs::remove_file(place.path(&format!("part.{end}"))).expect("removed");
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
    place.refused(&format!("{WHAT} --out a.csv --resume --hardware card-6gb"), "hardware");
    place.refused(&format!("{WHAT} --out b.csv --resume"), "b.csv.sweep.json says what the sweep is, and it cannot be read");
    place.refused(&format!("{WHAT} --resume"), "--out <FILE>");
    for (text, wanted) in [
        (whole.replace("model,deployment", "model;deployment"), "its first line is not the header of a sweep"),
        (format!("{whole}{whole}"), "more than the sweep has"),
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
        ("--vary vae_tilng=true,false --deployment diffusers", "no setting is called \"vae_tilng\""),
        ("--vary vae_tiling=1 --deployment diffusers", "allowed: true or false"),
        ("--deployment difusers", "no deployment \"difusers\""),
        ("--hardware crad", "did you mean card"),
        ("--guidance -3 --deployment diffusers", "guidance: found -3"),
        ("--format json", "[possible values: csv, jsonl]"),
        ("--out nowhere/a.csv", "nowhere/a.csv"),
        ("--limit 3", "10 points are more than the limit of 3"),
        ("--limit -1", "--limit"),
    ] {
        place.refused(&format!("{sweep} {rest}"), wanted);
    }
    place.refused("sweep smal --catalog catalog", "did you mean small?");
    // Of all models and devices of the catalog that is built in; said before anything is done.
    let sizes: Vec<String> = (1..=60).map(|n| format!("{}x{}", 64 * n, 64 * n)).collect();
    let line = format!("sweep --size {} --frames 1..16384 --batch 1..1024 --vary vae_tiling=true,false", sizes.join(","));
    fs::remove_dir_all(place.path("catalog")).expect("removed");
    let (code, _, err) = place.run(&line);
    assert!(code == 2 && err.contains(" points are more than the limit of 1,000,000,000: narrow the ranges, or raise --limit"), "{err}");
}
