//! Sweeps as Parquet: the same rows as CSV, with types, whole or not there.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use parquet::{
    basic::Type,
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
    schema::printer::print_schema,
};

/// Two settings, devices with and without an answer, and a size that makes no sense: every column is empty somewhere.
const WHAT: &str = "sweep small --deployment diffusers --hardware card --hardware desk-64gb --frames 1..17 --size 256x256 --batch 1,2 --vary vae_tiling=true,false --host-gb 64";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(folder: &Path, line: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fv-catalog"));
    command.args(line.split(' ')).arg("--catalog").arg(root().join("tests/small")).current_dir(folder);
    let done = command.env_remove("FV_CATALOG").output().unwrap_or_else(|error| panic!("the program starts: {error}"));
    assert!(done.stdout.is_empty(), "{}", String::from_utf8_lossy(&done.stdout));
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn reader(path: &Path) -> SerializedFileReader<fs::File> {
    let file = fs::File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    SerializedFileReader::new(file).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The rows as CSV has them.
fn lines(path: &Path) -> String {
    let reader = reader(path);
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let names: Vec<&str> = schema.columns().iter().map(|column| column.name()).collect();
    let mut lines = names.join(",") + "\n";
    for row in reader {
        let row = row.unwrap_or_else(|error| panic!("{error}"));
        let field = |field: &Field| match field {
            Field::Null => String::new(),
            Field::Str(text) => text.clone(),
            Field::Long(number) => number.to_string(),
            other => panic!("neither text nor a whole number: {other:?}"),
        };
        let fields: Vec<String> = row.get_column_iter().map(|(_, value)| field(value)).collect();
        lines += &(fields.join(",") + "\n");
    }
    lines
}

#[test]
fn the_same_rows_as_csv_with_types() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = |name: &str| folder.path().join(name);
    for end in ["csv", "parquet"] {
        let (code, err) = run(folder.path(), &format!("{WHAT} --out a.{end}"));
        assert_eq!(code, Some(0), "{err}");
    }
    let csv = text(&path("a.csv"));
    assert!(csv.lines().count() > 40 && csv.contains(",unknown,") && csv.contains(",fits,"), "{csv}");
    assert_eq!(lines(&path("a.parquet")), csv);
    assert!(!path("a.parquet.sweep.csv").exists());

    let reader = reader(&path("a.parquet"));
    let about = reader.metadata().file_metadata();
    let mut schema = Vec::new();
    print_schema(&mut schema, about.schema());
    let shown = String::from_utf8_lossy(&schema).to_lowercase();
    let documented = text(&root().join("docs/questions.md"));
    assert!(documented.contains(shown.trim()), "docs/questions.md does not have the schema:\n{shown}");
    let (group, note) = (reader.metadata().row_group(0), text(&path("a.parquet.sweep.json")));
    for column in group.columns() {
        let dictionary = column.dictionary_page_offset().is_some();
        assert!(column.column_type() == Type::INT64 || dictionary, "{}", column.column_path());
    }
    let kept = about.key_value_metadata().and_then(|all| all.iter().find(|one| one.key == "fv-catalog.sweep"));
    assert_eq!(kept.and_then(|kept| kept.value.as_deref()), Some(note.as_str()));
}

#[test]
fn an_interrupted_file_is_completed_and_a_complete_one_is_known() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let path = |name: &str| folder.path().join(name);
    let put = |name: &str, bytes: &[u8]| fs::write(path(name), bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    for end in ["csv", "parquet"] {
        assert_eq!(run(folder.path(), &format!("{WHAT} --out a.{end}")).0, Some(0));
    }
    let csv = text(&path("a.csv"));
    let whole = fs::read(path("a.parquet")).unwrap_or_else(|error| panic!("{error}"));
    // Complete: nothing is done, and nothing else is taken for it.
    let (code, err) = run(folder.path(), &format!("{WHAT} --out a.parquet --resume"));
    assert!(code == Some(0) && err.contains("are there already, 0 are left"), "{err}");
    let (code, err) = run(folder.path(), &format!("{WHAT} --out a.parquet"));
    assert!(code == Some(2) && err.contains("a.parquet: there already"), "{err}");
    let (code, err) = run(folder.path(), &format!("{WHAT} --out a.parquet --resume --steps 3"));
    assert!(code == Some(2) && err.contains("begun with other request"), "{err}");
    put("a.parquet", b"PAR1");
    let (code, err) = run(folder.path(), &format!("{WHAT} --out a.parquet --resume"));
    assert!(code == Some(2) && err.contains("nothing was changed"), "{err}");

    // Interrupted among the lines, and after the last of them but before the file of columns.
    for cut in [0, 10, csv.len() / 3, csv.len() - 1, csv.len()] {
        fs::remove_file(path("a.parquet")).unwrap_or_else(|error| panic!("{error}"));
        put("a.parquet.sweep.csv", &csv.as_bytes()[..cut]);
        let (code, err) = run(folder.path(), &format!("{WHAT} --out a.parquet --resume"));
        assert_eq!(code, Some(0), "cut at {cut}: {err}");
        assert!(fs::read(path("a.parquet")).is_ok_and(|bytes| bytes == whole), "cut at {cut}: the same to the byte");
        assert!(!path("a.parquet.sweep.csv").exists());
    }
    // Replaced as asked, in one step.
    put("a.parquet", b"something else");
    assert_eq!(run(folder.path(), &format!("{WHAT} --out a.parquet --force")).0, Some(0));
    assert!(fs::read(path("a.parquet")).is_ok_and(|bytes| bytes == whole));
}

#[test]
fn what_parquet_needs_is_said() {
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let (code, err) = run(folder.path(), &format!("{WHAT} --format parquet"));
    assert!(code == Some(2) && err.contains("a Parquet file is written to `--out FILE`"), "{err}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_fv-catalog"));
    let help = command.args(["sweep", "--help"]).output().unwrap_or_else(|error| panic!("{error}"));
    assert!(String::from_utf8_lossy(&help.stdout).contains("[possible values: csv, jsonl, parquet]"));
}
