//! Grids and tables of requests for models that our own runtime has a program for.

use std::{fs, path::Path, process::Command};

use fv_spec::plan::Plan;
use fv_tests::runner;

/// Exit code, output and error stream.
fn run(folder: &Path, line: &str) -> (i32, String, String) {
    let mut command = Command::new(runner());
    let done = command.args(line.split_whitespace()).current_dir(folder).env_remove("FV_CATALOG").output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (done.status.code().expect("no signal"), text(done.stdout), text(done.stderr))
}

const GRID: &str = "grid --model wan21-t2v-14b --vram 4..28 --ram 16..64 --step 24 --system linux --precision fp8 --hardware rtx-4090";

#[test]
fn a_grid_has_the_published_columns_and_behind_them_how_it_is_computed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (code, csv, err) = run(folder.path(), &format!("{GRID} --format csv"));
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(csv);
    let (code, table, _) = run(folder.path(), GRID);
    assert_eq!(code, 0);
    insta::assert_snapshot!(table);
    let (code, svg, _) = run(folder.path(), &format!("{GRID} --format svg"));
    assert_eq!(code, 0);
    let svg = roxmltree::Document::parse(&svg).expect("well-formed");
    let titles = svg.descendants().filter(|node| node.has_tag_name("g") && node.children().any(|child| child.has_tag_name("title")));
    assert_eq!(titles.count(), 2 * csv.lines().skip(1).count(), "a cell for each combination, in blocks and in seconds");
}

const TABLE: &str = "\
free_vram_gib,free_ram_gib,width,height,frames,precision,hardware,guidance,steps
8,16,832,480,33,fp8,rtx-4090,1,10
6,24,832,480,33,,rtx-4090,,
0.75,16,832,480,33,,,,
";

#[test]
fn rows_are_planned_as_plan_plans_them() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("rows.csv"), TABLE).expect("written");
    let (code, rows, err) = run(folder.path(), "plan --model wan21-t2v-1.3b --requests rows.csv");
    assert_eq!((code, err.as_str()), (0, ""));
    insta::assert_snapshot!(rows);
    let at = |name: &str| rows.lines().next().expect("a header").split(',').position(|column| column == name).expect("a column");
    let ids: Vec<&str> = rows.lines().skip(1).map(|line| line.split(',').nth(at("plan")).expect("a field")).collect();
    let common = "plan --model wan21-t2v-1.3b --system linux --width 832 --height 480 --frames 33 --format json --hardware rtx-4090";
    for (id, more) in ids.iter().zip(["--vram-gib 8 --ram-gib 16 --precision fp8 --guidance 1 --steps 10", "--vram-gib 6 --ram-gib 24"]) {
        let (code, json, err) = run(folder.path(), &format!("{common} {more}"));
        let plan: Plan = serde_json::from_str(&json).unwrap_or_else(|error| panic!("{error}: {err}"));
        assert_eq!((code, plan.id.as_str()), (0, *id));
    }
    assert_eq!(ids[2], "", "the last one does not fit");
    // What was written is read again, and gives the same.
    fs::write(folder.path().join("again.csv"), &rows).expect("written");
    assert_eq!(run(folder.path(), "plan --model wan21-t2v-1.3b --requests again.csv").1, rows);
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let table =
        "free_vram_gib,free_ram_gib,width,height,frames,precision,hardware,guidance,steps,seed\n8,16,832,480,33,fp4,rtx-4090,1,10,1\n";
    fs::write(folder.path().join("columns.csv"), table).expect("written");
    let table = TABLE.replace("8,16,832", "x,16,833").replace("fp8", "fp4").replace("6,24,832,480", "6,24,832,481");
    fs::write(folder.path().join("values.csv"), table.replace("0.75,16,832,480,33,,,,", "0.75,16,832,480,33,,rtx-4091,many,"))
        .expect("written");
    let mut said = String::new();
    for line in [
        "plan --model wan21-t2v-1.3b --requests columns.csv",
        "plan --model wan21-t2v-1.3b --requests values.csv",
        "plan --model wan21-t2v-1.3b --vram-gib 8 --ram-gib 16 --system linux --guidance 0.5",
        "plan --model wan21-t2v-1.3b --vram-gib 8 --ram-gib 16 --system linux --batch 2",
        "plan --model fastwan21 --vram-gib 8 --ram-gib 16 --system linux --guidance 5",
        "plan --vram-gib 16 --ram-gib 32 --system linux --guidance 5",
        "grid --model wan21-t2v-1.3b --vram 8..9 --ram 16 --no-two-pass",
        "grid --model ltx-video-2b --policy optimal --vram 8..9 --ram 16",
        "grid --model wan21-t2v-1.3b --policy freevideo --vram 8..9 --ram 16",
    ] {
        let (code, out, err) = run(folder.path(), line);
        assert!(code != 0 && out.is_empty(), "{line}: {code} {out}");
        said.extend(["$ ", line, "\n? ", &code.to_string(), "\n", &err, "\n"]);
    }
    insta::assert_snapshot!(said);
}
