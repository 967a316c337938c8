//! Where the time of a check goes: reading YAML, the shape, the whole catalog from memory, and compiling it.

use std::{fs, path::Path, sync::Arc};

use divan::{Bencher, black_box, counter::BytesCount};
use fv_catalog::{
    check::{Keep, check},
    finding::SourceFile,
    shape::Shape,
    sources::{Content, Sources},
    yaml,
};
use fv_spec::schema;

/// The smallest file of each kind that is typical, and the largest file that there is.
const FILES: [&str; 3] = ["tests/base/models/example.yaml", "catalog/transformers.yaml", "catalog/hardware.yaml"];
/// Both catalogs: 5 files of 5 KB, and the real one.
const CATALOGS: [&str; 2] = ["tests/base", "catalog"];

fn main() {
    divan::main();
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn catalog(path: &str) -> Sources {
    Sources::read(&root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn size(sources: &Sources) -> BytesCount {
    let text = |content: &Content| match content {
        Content::Text(text) => text.len(),
        Content::Refused(..) => 0,
    };
    BytesCount::new(sources.files.values().map(text).sum::<usize>())
}

fn shape(path: &str) -> Shape {
    let name = match path {
        _ if path.contains("models/") => "model.schema.json",
        _ if path.ends_with("transformers.yaml") => "transformers.schema.json",
        _ => "hardware.schema.json",
    };
    Shape::new(schema::named(name).unwrap_or_default()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[divan::bench(args = FILES)]
fn yaml_parse(bencher: Bencher, path: &str) {
    let text = text(path);
    bencher.counter(BytesCount::of_str(&text)).bench(|| yaml::parse(black_box(&text)));
}

/// The tree's plain value and every rule of the schema, without reading the text again.
#[divan::bench(args = FILES)]
fn shape_check(bencher: Bencher, path: &str) {
    let (shape, file) = (shape(path), Arc::new(SourceFile::new(path, text(path))));
    let (Some(tree), problems) = yaml::parse(&file.text) else { panic!("{path} is sound") };
    assert!(problems.is_empty(), "{path} is sound");
    bencher.counter(BytesCount::of_str(&file.text)).bench(|| shape.check(&file, black_box(&tree)));
}

/// What a process pays once, before the first file of a kind.
#[divan::bench(args = FILES)]
fn schema_compile(path: &str) -> Shape {
    shape(black_box(path))
}

#[divan::bench(args = CATALOGS)]
fn read_from_disk(bencher: Bencher, path: &str) {
    bencher.counter(size(&catalog(path))).bench(|| catalog(black_box(path)));
}

#[divan::bench(args = CATALOGS)]
fn check_from_memory(bencher: Bencher, path: &str) {
    let sources = catalog(path);
    bencher.counter(size(&sources)).bench(|| check(black_box(&sources), Keep::Nothing));
}

/// Checking and compiling; the difference to `check_from_memory` is the compiler's.
#[divan::bench(args = CATALOGS)]
fn check_and_compile(bencher: Bencher, path: &str) {
    let sources = catalog(path);
    bencher.counter(size(&sources)).bench(|| check(black_box(&sources), Keep::Catalog));
}
