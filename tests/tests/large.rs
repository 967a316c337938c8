//! Large and odd inputs within the limits: they end, and what is shown stays short.

use std::fmt::Write as _;

use fv_catalog::{
    check::{Checked, Keep, check},
    output::{self, Format},
    sources::Content,
};
use fv_tests::{base, edited};

/// What a catalog with `text` as hardware shows people.
fn shown(text: String) -> (usize, String) {
    let mut sources = base();
    sources.files.insert("hardware.yaml".into(), Content::Text(text));
    let Checked { findings, .. } = check(&sources, Keep::Nothing);
    for finding in &findings {
        assert!(finding.message.chars().count() <= 200);
    }
    let mut human = Vec::new();
    for format in [Format::Human, Format::Json, Format::Github, Format::Sarif] {
        let mut out = Vec::new();
        output::write(format, &findings, false, &mut out).expect("written");
        if format == Format::Human {
            human = out;
        }
    }
    (findings.len(), String::from_utf8(human).expect("UTF-8"))
}

#[test]
fn one_line_with_very_many_faults() {
    let mut text = String::from("{");
    for i in 0..20_000 {
        let _ = write!(text, "a{i}: é, ");
    }
    text.push('}');
    let (count, human) = shown(text);
    assert!(count >= 20_000, "{count}");
    assert!(human.len() < 1 << 20, "{} bytes", human.len());
    assert!(human.contains("more; --format json lists all"));
}

#[test]
fn very_many_lines_with_faults() {
    let text = (0..20_000).fold(String::new(), |text, i| text + &format!("a{i}: 1\n"));
    let (count, human) = shown(text);
    assert!(count >= 20_000 && human.len() < 1 << 20);
}

#[test]
fn very_many_credentials() {
    let text = (0..8_000).fold("a: [".to_owned(), |text, i| text + &format!("hf_aBcDeFgHiJkLmNoPq{i:05}, ")) + "]\n";
    let (count, human) = shown(text);
    assert!(count >= 8_000 && !human.contains("hf_aBc"));
}

#[test]
fn odd_texts_are_no_panic() {
    for text in [
        " secret:\né: 1\n",
        "secret:\n  é\n🚀: |\n  x\n",
        "\u{feff}a: 1\n",
        "a: \"\\u0007\\e[31mRED\": 1\n",
        "\"a\\e[31mRED\\nSECOND\": 1\n",
        "a:\r  b: 1\r",
        "é\t: -\n",
    ] {
        let (_, human) = shown(text.to_owned());
        assert!(!human.chars().any(|c| c.is_control() && c != '\n'), "{human:?}");
    }
}

#[test]
fn a_tiny_peak_has_a_short_message() {
    let found = check(&edited(base(), "models/example.yaml", "request_peak: 8.4", "request_peak: 1e-300"), Keep::Nothing).findings;
    assert!(found.iter().all(|finding| finding.message.chars().count() < 100));
}
