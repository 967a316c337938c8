//! `docs/findings/` says what each code means, from the codes and from the fault tables. `UPDATE_DOCS=1` writes it.

use std::{collections::BTreeMap, fs};

use fv_catalog::{
    check::{Keep, check, not_current},
    codes::Code,
    finding::Finding,
    output::{self, Format},
    sources::{Content, Sources},
};
use fv_data::Catalog;
use fv_tests::{DISK_FAULTS, Fault, root};

#[test]
fn finding_pages_are_current() {
    let folder = root().join("docs/findings");
    let pages = pages();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::create_dir_all(&folder).expect("docs/findings");
        for (name, text) in &pages {
            fs::write(folder.join(name), text).expect("written");
        }
    }
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        found.insert(name, fs::read_to_string(entry.path()).unwrap_or_default());
    }
    let differ: Vec<&String> = pages.keys().chain(found.keys()).filter(|name| pages.get(*name) != found.get(*name)).collect();
    assert!(differ.is_empty(), "not current, write them with UPDATE_DOCS=1 (delete pages of codes that are gone): {differ:?}");
}

/// Every page by its file name.
fn pages() -> BTreeMap<String, String> {
    let examples = examples();
    let pages = Code::ALL.iter().map(|code| (format!("{}.md", code.slug()), page(*code, &examples[code])));
    pages.chain([("README.md".to_owned(), index())]).collect()
}

fn index() -> String {
    let row = |code: &Code| format!("| [{code}]({}.md) | {} |\n", code.slug(), code.about());
    let rows: String = Code::ALL.iter().map(row).collect();
    format!(
        "# Findings\n\nEvery finding of `fv-catalog --check` has one of these codes. Generated from `crates/fv-catalog/src/codes.rs` and \
         `tests/faults/`; `UPDATE_DOCS=1 cargo test -p fv-tests --test finding_pages` writes these pages.\n\n| Code | Meaning |\n|---|---|\n{rows}"
    )
}

fn page(code: Code, example: &str) -> String {
    let mut title = code.slug().replace('-', " ").replace("utf8", "UTF-8").replace("vae", "VAE");
    title[..1].make_ascii_uppercase();
    format!("# {title}\n\n`{code}`\n\n{}\n\n**What to do.** {}\n\n## Example\n\n{example}", code.about(), code.mend())
}

/// The first fault of each code: what was changed and what is said about it.
fn examples() -> BTreeMap<Code, String> {
    let mut examples = BTreeMap::new();
    for (_, fault) in &Fault::all() {
        let diff = Some(cut(&fault.diff())).filter(|diff| !diff.is_empty());
        let diff = diff.map(|diff| format!("```diff\n{diff}```\n\n")).unwrap_or_default();
        add(&mut examples, fault.sources(), &format!("In `{}`: {}.\n\n{diff}", fault.file, fault.name));
    }
    for fault in DISK_FAULTS {
        add(&mut examples, fault.sources(), &format!("In the catalog's folder: {}.\n\n", fault.name));
    }
    examples.insert(Code::NotFitted, not_fitted());
    examples
}

/// What only the rows of a fit can tell, and no check of files.
fn not_fitted() -> String {
    let (file, change) = ("rules/spread-mochi-diffusers.yaml", ["value: 1.021169", "value: 1.2"]);
    let mut sources = Sources::read(&root().join("catalog")).expect("the catalog");
    sources.root = "catalog".into();
    let Some(Content::Text(text)) = sources.files.get_mut(file) else { panic!("no {file}") };
    *text = text.replace(change[0], change[1]);
    let fitted = Catalog::embedded().expect("readable").rules.coefficients;
    let findings = not_current(&sources, &fitted, |_, _| false, "`fv-catalog accuracy --fit`, then `make docs`");
    let finding = findings.into_iter().next().expect("one figure differs");
    format!(
        "In `{file}`: a figure changed by hand.\n\n```diff\n-  {}\n+  {}\n```\n\n```text\n{}```\n",
        change[0],
        change[1],
        rendered(finding)
    )
}

fn add(examples: &mut BTreeMap<Code, String>, mut sources: Sources, change: &str) {
    sources.root = "catalog".into();
    for finding in check(&sources, Keep::Nothing).findings {
        let code = finding.code;
        examples.entry(code).or_insert_with(|| format!("{change}```text\n{}```\n", rendered(finding)));
    }
}

/// A finding as people see it, without the closing count.
fn rendered(finding: Finding) -> String {
    let mut out = Vec::new();
    output::write(Format::Human, &[finding], false, &mut out).expect("written to memory");
    let text = String::from_utf8(out).expect("UTF-8");
    let text = text.rsplit_once("\n1 finding").map_or(&*text, |(before, _)| before);
    cut(text.trim_matches('\n'))
}

/// Lines of a width that pages show.
fn cut(text: &str) -> String {
    let line = |line: &str| {
        let short: String = line.chars().take(120).collect();
        format!("{}{}\n", short.trim_end(), if short == line { "" } else { " …" })
    };
    text.lines().map(line).collect()
}
