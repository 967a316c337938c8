//! What holds for every input: damaged catalogs, random values, any text at all.
//!
//! `PROPTEST_CASES` sets how many inputs each property tries.

use std::collections::HashMap;

use fv_catalog::{
    check::{Keep, check},
    codes::Code,
    edit::insert_run,
    finding::{Finding, Span},
    output::{self, Format},
    sources::{self, Content, Sources},
    write,
    yaml::{self, Kind, Node},
};
use fv_data::Catalog;
use fv_spec::units::{Capacity, CapacityUnit, Count, MAX_JSON_INTEGER, bytes_to_gb};
use fv_tests::{base, edited};
use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::{Map, Number, Value, json};

const MODEL: &str = "models/example.yaml";

fn cases(cases: u32) -> ProptestConfig {
    let chosen = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    ProptestConfig { cases: if chosen { default.cases } else { cases }, failure_persistence: None, ..default }
}

// Damage

/// One way to damage a text. Numbers choose places; they wrap around.
#[derive(Debug, Clone)]
enum Damage {
    SetByte(Index, u8),
    InsertByte(Index, u8),
    DeleteBytes(Index, usize),
    DeleteLine(Index),
    RepeatLine(Index),
    SwapLines(Index, Index),
    Indent(Index, usize),
    Outdent(Index, usize),
    ReplaceToken(Index, String),
    CopyToken(Index, Index),
    RenameKey(Index, String),
    SwapValues(Index, Index),
}

/// Tokens that readers of YAML disagree about, and values of our own in the wrong place.
const TOKENS: &[&str] = &[
    "",
    "~",
    "null",
    "true",
    "yes",
    "0",
    "-1",
    "1e400",
    "1e-10",
    ".inf",
    ".nan",
    "0x1F",
    "012",
    "1_489",
    "1_48",
    "1:30",
    "9007199254740992",
    "18446744073709551616",
    "2026-02-30",
    "''",
    "\"",
    "'",
    "[]",
    "{}",
    "[",
    "}",
    "- ",
    "? ",
    ": ",
    "#",
    "&a",
    "*a",
    "!!int",
    "<<",
    "---",
    "...",
    "|",
    ">",
    "%",
    "@",
    "`",
    "\t",
    "\r",
    "\u{feff}",
    "\u{85}",
    "\u{2028}",
    "é",
    "\u{1f600}",
    "example-dit",
    "example-vae",
    "example-encoder",
    "card",
    "laptop-32gb",
    "capacity",
    "sources",
    "geometry",
    "wan",
    "minimax_h3",
    "fv-run",
    "hf_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "api_token",
];

fn damage() -> impl Strategy<Value = Damage> {
    let place = any::<Index>;
    let token = || prop_oneof![4 => proptest::sample::select(TOKENS).prop_map(str::to_owned), 1 => "\\PC{0,80}"];
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Damage::SetByte(at, byte)),
        (place(), prop_oneof![any::<u8>(), Just(b' '), Just(b'\n'), Just(b':')]).prop_map(|(at, byte)| Damage::InsertByte(at, byte)),
        (place(), 1..40usize).prop_map(|(at, length)| Damage::DeleteBytes(at, length)),
        place().prop_map(Damage::DeleteLine),
        place().prop_map(Damage::RepeatLine),
        (place(), place()).prop_map(|(a, b)| Damage::SwapLines(a, b)),
        (place(), 1..5usize).prop_map(|(at, by)| Damage::Indent(at, by)),
        (place(), 1..5usize).prop_map(|(at, by)| Damage::Outdent(at, by)),
        (place(), token()).prop_map(|(at, token)| Damage::ReplaceToken(at, token)),
        (place(), place()).prop_map(|(a, b)| Damage::CopyToken(a, b)),
        (place(), token()).prop_map(|(at, token)| Damage::RenameKey(at, token)),
        (place(), place()).prop_map(|(a, b)| Damage::SwapValues(a, b)),
    ]
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let count = bytes.len();
        if count == 0 {
            return;
        }
        match self {
            Self::SetByte(at, byte) => bytes[at.index(count)] = *byte,
            Self::InsertByte(at, byte) => bytes.insert(at.index(count), *byte),
            Self::DeleteBytes(at, length) => {
                let start = at.index(count);
                bytes.drain(start..(start + length).min(count));
            }
            _ => *bytes = self.apply_to_text(&String::from_utf8_lossy(bytes)).into_bytes(),
        }
    }

    fn apply_to_text(&self, text: &str) -> String {
        let mut lines: Vec<String> = text.split('\n').map(str::to_owned).collect();
        let count = lines.len();
        let words: Vec<Span> = tokens(text);
        match self {
            Self::DeleteLine(at) => drop(lines.remove(at.index(count))),
            Self::RepeatLine(at) => lines.insert(at.index(count), lines[at.index(count)].clone()),
            Self::SwapLines(a, b) => lines.swap(a.index(count), b.index(count)),
            Self::Indent(at, by) => lines[at.index(count)].insert_str(0, &" ".repeat(*by)),
            Self::Outdent(at, by) => {
                let line = &mut lines[at.index(count)];
                let spaces = line.len() - line.trim_start_matches(' ').len();
                line.drain(..spaces.min(*by));
            }
            Self::SwapValues(a, b) => {
                let (a, b) = (a.index(count), b.index(count));
                let split = |line: &str| line.split_once(": ").map(|(key, value)| (key.to_owned(), value.to_owned()));
                if let (Some((key_a, value_a)), Some((key_b, value_b))) = (split(&lines[a]), split(&lines[b])) {
                    (lines[a], lines[b]) = (format!("{key_a}: {value_b}"), format!("{key_b}: {value_a}"));
                }
            }
            Self::RenameKey(at, name) => {
                let line = &mut lines[at.index(count)];
                if let Some(colon) = line.find(':') {
                    let start = line.len() - line.trim_start_matches([' ', '-']).len();
                    if start < colon {
                        line.replace_range(start..colon, name);
                    }
                }
            }
            Self::ReplaceToken(at, token) if !words.is_empty() => return replaced(text, &words[at.index(words.len())], token),
            Self::CopyToken(a, b) if !words.is_empty() => {
                let (a, b) = (&words[a.index(words.len())], &words[b.index(words.len())]);
                return replaced(text, a, &text[b.clone()]);
            }
            _ => {}
        }
        lines.join("\n")
    }
}

fn replaced(text: &str, at: &Span, new: &str) -> String {
    format!("{}{new}{}", &text[..at.start], &text[at.end..])
}

/// Words between spaces and YAML's punctuation.
fn tokens(text: &str) -> Vec<Span> {
    let mut found = Vec::new();
    let mut start = 0;
    for (end, c) in text.char_indices().chain([(text.len(), ' ')]) {
        if c.is_whitespace() || "[]{},\"'".contains(c) {
            if start < end {
                found.push(start..end);
            }
            start = end + c.len_utf8();
        }
    }
    found
}

/// Whether damage to `damaged` alone may cause `finding` in another file.
///
/// A manifest refers to the four shared files, and components are judged by the manifests that use them:
/// - damage to `hardware.yaml` shows in manifests, as runs whose device, partition or capacity is gone;
/// - damage to a component file shows in manifests, as references to nothing or to another type, and in the other
///   component files, as an id that is now defined twice or is used by another family;
/// - damage to a manifest shows in component files, as components that nothing uses or that lack its family's geometry.
fn may_follow(damaged: &str, finding: &Finding) -> bool {
    let file = finding.file.path.as_str();
    let (of_components, of_model) = (["transformers.yaml", "encoders.yaml", "vaes.yaml"], file == MODEL);
    match damaged {
        "hardware.yaml" => of_model && matches!(finding.code, Code::RunHardware | Code::RunAllocation),
        MODEL => {
            of_components.contains(&file)
                && matches!(finding.code, Code::UnusedComponent | Code::GeometryRequired | Code::GeometryNotDeclared)
        }
        _ if of_model => matches!(finding.code, Code::UnknownReference | Code::WrongTypeReference),
        _ => of_components.contains(&file) && finding.code == Code::DuplicateId,
    }
}

/// Every renderer takes the findings, and every label is a part of its file.
fn sound(findings: &[Finding]) {
    for finding in findings {
        assert!(finding.message.chars().count() <= 200, "{}", finding.message);
        for span in finding.labels.iter().map(|label| &label.span) {
            assert!(finding.file.text.get(span.clone()).is_some(), "{span:?} of {}", finding.file.path);
        }
    }
    for format in [Format::Human, Format::Json, Format::Github, Format::Sarif] {
        let mut out = Vec::new();
        output::write(format, findings, false, &mut out).expect("memory takes everything");
        let text = String::from_utf8(out).expect("renderers write UTF-8");
        if matches!(format, Format::Json | Format::Sarif) {
            serde_json::from_str::<Value>(&text).expect("renderers write JSON");
        }
    }
}

/// What the compiled files of `catalog` read back as; compiling that again gives the same bytes.
fn read_back(catalog: &Catalog) -> Catalog {
    let files: HashMap<String, String> = write::compiled(catalog).into_iter().collect();
    let again = Catalog::read(|path| files.get(path).cloned()).unwrap_or_else(|error| panic!("{error}"));
    for (path, text) in write::compiled(&again) {
        assert_eq!(files.get(&path), Some(&text), "{path}");
    }
    again
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn damage_is_found_in_its_file_or_in_one_that_refers_to_it(
        file in proptest::sample::select(&["hardware.yaml", "transformers.yaml", "encoders.yaml", "vaes.yaml", MODEL][..]),
        damages in vec(damage(), 1..4),
    ) {
        let mut catalog = base();
        let Some(Content::Text(text)) = catalog.files.get(file) else { panic!("{file} is a text") };
        let mut bytes = text.clone().into_bytes();
        for damage in &damages {
            damage.apply(&mut bytes);
        }
        catalog.files.insert(file.to_owned(), sources::text(bytes));

        let checked = check(&catalog, Keep::Catalog);
        sound(&checked.findings);
        for finding in &checked.findings {
            let path = &finding.file.path;
            prop_assert!(path == file || may_follow(file, finding), "{} in {path} by damage to {file}: {}", finding.code, finding.message);
        }
        prop_assert_eq!(checked.catalog.is_some(), checked.findings.is_empty());
        if let Some(catalog) = checked.catalog {
            prop_assert_eq!(&read_back(&catalog), &catalog);
        }
    }
}

// Values

/// Not a line break in YAML 1.2, but one in YAML 1.1, which the writer follows; and DEL, which our reader refuses.
const UNLIKE: [char; 4] = ['\u{85}', '\u{2028}', '\u{2029}', '\u{7f}'];

fn text() -> impl Strategy<Value = String> {
    let nasty = proptest::sample::select(TOKENS).prop_map(str::to_owned);
    prop_oneof![2 => nasty, 2 => "\\PC{0,12}", 1 => "[ \\t\\r\\n:#'\"\\\\a-c\u{feff}\u{0}-\u{2}-]{0,12}"]
        .prop_map(|text| text.replace(UNLIKE, ""))
        // The writer leaves this text without quotes; our reader takes it for a number, and one too large.
        .prop_filter("not 1e400", |text| text != "1e400")
}

/// The largest integer that every JSON reader keeps.
const LARGEST: i64 = (1 << 53) - 1;

fn number() -> impl Strategy<Value = Number> {
    prop_oneof![
        (-LARGEST..=LARGEST).prop_map(Number::from),
        proptest::num::f64::NORMAL.prop_filter_map("finite", Number::from_f64),
        (-1e6..1e6f64).prop_filter_map("finite", Number::from_f64),
    ]
}

/// A key that is not YAML's merge key, which our reader refuses where it stands without quotes.
fn key() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_]{1,8}", text()].prop_filter("no merge key", |key| key != "<<")
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(Value::Number),
        text().prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 24, 5, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..5).prop_map(Value::Array),
            vec((key(), inner), 0..5).prop_map(|entries| entries.into_iter().collect())
        ]
    })
}

fn object() -> impl Strategy<Value = Map<String, Value>> {
    vec((key(), value()), 1..6).prop_map(|entries| entries.into_iter().collect())
}

/// The base catalog with other sound values: texts, numbers and a free-form section.
fn sound_catalog() -> impl Strategy<Value = Sources> {
    (text(), value(), 1e-3..1e6f64, 11.0..1e6f64, 8.4..9.3f64).prop_filter_map(
        "a title is not empty",
        |(title, free, bandwidth, nominal, peak)| {
            let quoted = (!title.is_empty()).then(|| Value::String(title).to_string())?;
            let catalog = edited(base(), MODEL, "title: Example T2V", &format!("title: {quoted}"));
            let catalog = edited(catalog, MODEL, "      vae_tiling: true\n", &format!("      vae_tiling: true\n      free: {free}\n"));
            let catalog = edited(catalog, MODEL, "request_peak: 8.4", &format!("request_peak: {peak}"));
            let catalog = edited(catalog, "hardware.yaml", "memory_bandwidth_gbps: 3350", &format!("memory_bandwidth_gbps: {bandwidth}"));
            let catalog = edited(catalog, "hardware.yaml", "    reported: { value: 81559, unit: MiB }\n", "");
            Some(edited(catalog, "hardware.yaml", "nominal: { value: 80,", &format!("nominal: {{ value: {nominal},")))
        },
    )
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn compiling_what_was_compiled_changes_nothing(catalog in sound_catalog()) {
        let checked = check(&catalog, Keep::Catalog);
        // Free-form text may look like a credential; anything else is sound.
        prop_assume!(!checked.findings.iter().any(|finding| finding.code == Code::Credential));
        let messages: Vec<&str> = checked.findings.iter().map(|finding| finding.message.as_str()).collect();
        prop_assert!(messages.is_empty(), "{messages:?}");
        let catalog = checked.catalog.expect("sound");
        prop_assert_eq!(&read_back(&catalog), &catalog);
    }

    #[test]
    fn a_rendered_value_reads_as_itself(value in value()) {
        let text = serde_yaml::to_string(&value).expect("JSON is YAML");
        let (node, problems) = yaml::parse(&text);
        prop_assert!(problems.is_empty(), "{text}\n{problems:?}");
        prop_assert_eq!(node.expect("read").to_json(), value, "{}", text);
    }

    #[test]
    fn json_reads_as_yaml(value in value()) {
        for text in [value.to_string(), format!("{value:#}")] {
            let (node, problems) = yaml::parse(&text);
            prop_assert!(problems.is_empty(), "{text}\n{problems:?}");
            prop_assert_eq!(node.expect("read").to_json(), value.clone(), "{}", text);
        }
    }

    #[test]
    fn inserting_a_run_keeps_everything_else(run in object(), layout in 0..4usize, crlf: bool, head in "( {0,3}# \\PC{0,9}\n|\n){0,3}", tail in "( {0,6}# \\PC{0,9}\n|\n){0,3}") {
        let body = [
            "title: x # é\ncapacity:\n  memory_rules: wan # why\n",
            "title: x\ncapacity:\n  reference_runs: [] # none\n  memory_rules: wan\n",
            "title: x\ncapacity:\n  reference_runs:\n  - id: a # first\n    note: |\n      text\n  # after\n  memory_rules: wan\n",
            "title: x\ncapacity:\n  reference_runs:\n    - { id: a }\n    - id: b\n      config: { a: [1, 2] }\n",
        ][layout];
        let text = format!("{head}{body}{tail}");
        let text = if crlf { text.replace('\n', "\r\n") } else { text };
        let run = Value::Object(run);
        let after = match insert_run(&text, &run) {
            Ok(after) => after,
            // A text that ends in empty lines would take in the author's empty lines behind it, so it is refused.
            Err(_) if serde_yaml::to_string(&run).is_ok_and(|yaml| yaml.lines().any(|line| line.ends_with('+'))) => return Ok(()),
            Err(why) => return Err(TestCaseError::fail(why)),
        };

        let json = |text: &str| yaml::parse(text).0.map(|node| node.to_json());
        let mut want = json(&text).expect("sound");
        match &mut want["capacity"]["reference_runs"] {
            Value::Array(runs) => runs.push(run),
            none => *none = json!([run]),
        }
        prop_assert_eq!(json(&after), Some(want));
        let mut lines = after.lines();
        for line in text.lines().filter(|line| !line.contains("[]")) {
            prop_assert!(lines.any(|after| after == line), "{line:?} lost in\n{after}");
        }
        prop_assert!(!crlf || after.split('\n').rev().skip(1).all(|line| line.ends_with('\r')), "mixed line ends in {after:?}");
    }
}

#[test]
fn a_second_build_changes_no_file() {
    let catalog = check(&base(), Keep::Catalog).catalog.expect("sound");
    let folder = tempfile::tempdir().expect("a folder");
    let changed = || write::replace_all(folder.path(), &write::compiled(&catalog)).expect("written");
    assert_eq!((changed(), changed()), (4, 0));
}

// Any text

/// Every span below `node` is a part of `text`, and holds those of its parts.
fn spans(node: &Node, text: &str) {
    let inside = |span: &Span| {
        assert!(text.get(span.clone()).is_some(), "{span:?} is no part of {text:?}");
        assert!(node.span.start <= span.start && span.end <= node.span.end, "{span:?} is not in {:?} of {text:?}", node.span);
    };
    inside(&node.span);
    let items = match &node.kind {
        Kind::Sequence(items) => items.iter().collect(),
        _ => node.entries().iter().map(|(_, value)| value).collect::<Vec<_>>(),
    };
    node.entries().iter().for_each(|(key, _)| inside(&key.span));
    for item in items {
        inside(&item.span);
        spans(item, text);
    }
}

proptest! {
    #![proptest_config(cases(3000))]

    #[test]
    fn any_text_is_read_to_an_end(
        text in prop_oneof![
            any::<String>(),
            vec(prop_oneof![4 => proptest::sample::select(TOKENS), 2 => Just("\n"), 2 => Just("  "), 1 => Just(" ,"), 2 => Just("a: ")], 0..40)
                .prop_map(|tokens| tokens.concat()),
        ],
    ) {
        let (node, problems) = yaml::parse(&text);
        prop_assert!(node.is_some() || !problems.is_empty(), "nothing is said about {text:?}");
        for (span, _) in problems.iter().flat_map(|problem| &problem.labels) {
            prop_assert!(text.get(span.clone()).is_some(), "{span:?} is no part of {text:?}");
        }
        if let Some(node) = node {
            spans(&node, &text);
        }
    }
}

// Units

fn grouped(groups: &[String], separators: &[bool]) -> String {
    let mut text = String::new();
    for (i, group) in groups.iter().enumerate() {
        text.push_str(if i > 0 && separators[i % separators.len()] { "_" } else { "" });
        text.push_str(group);
    }
    text
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn counts_read_as_they_are_written(value in 1..=MAX_JSON_INTEGER) {
        let count = Count::new(value).expect("in range");
        for text in [count.to_string(), value.to_string()] {
            prop_assert_eq!(Count::parse(&text), Some(count), "{}", text);
            prop_assert_eq!(serde_json::from_value::<Count>(json!(text)).ok(), Some(count));
        }
        prop_assert_eq!(serde_json::from_value::<Count>(json!(value)).ok(), Some(count));
        prop_assert_eq!(serde_json::to_value(count).ok(), Some(json!(value)));
        prop_assert_eq!(Count::new(MAX_JSON_INTEGER + value), None);
    }

    #[test]
    fn counts_are_grouped_by_thousands_or_not_at_all(groups in vec("[0-9]{1,4}", 1..6), separators in vec(any::<bool>(), 1..5)) {
        let text = grouped(&groups, &separators);
        let value = text.replace('_', "").parse::<u64>().ok().and_then(Count::new);
        let written = value.filter(|count| text == count.to_string() || text == count.get().to_string());
        prop_assert_eq!(Count::parse(&text), written, "{}", text);
    }

    #[test]
    fn whole_capacities_are_exact(value in 1..=1_000_000u32) {
        for (unit, bytes) in [(CapacityUnit::Gib, u64::from(value) << 30), (CapacityUnit::Gb, u64::from(value) * 1_000_000_000)] {
            let capacity = Capacity { value: value.into(), unit };
            prop_assert_eq!(capacity.bytes(), bytes);
            // The double nearest to the exact quotient is what its decimal digits read as.
            let exact: f64 = format!("{}.{:09}", bytes / 1_000_000_000, bytes % 1_000_000_000).parse().expect("digits");
            prop_assert_eq!(capacity.gb().to_bits(), exact.to_bits());
        }
    }

    #[test]
    fn more_is_never_less(a in 0.0..1e6f64, b in 0.0..1e6f64, unit in prop_oneof![Just(CapacityUnit::Gb), Just(CapacityUnit::Gib)]) {
        let of = |value, unit| Capacity { value, unit };
        let [small, large] = [of(a.min(b), unit), of(a.max(b), unit)];
        prop_assert!(small.bytes() <= large.bytes() && small.gb() <= large.gb());
        prop_assert_eq!(small.gb().to_bits(), bytes_to_gb(small.bytes()).to_bits());
        prop_assert!(of(a, CapacityUnit::Gib).gb() >= of(a, CapacityUnit::Gb).gb());
    }
}
