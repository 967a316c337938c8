//! Findings as SARIF 2.1.0: the part that code-scanning services read.

use std::{
    collections::BTreeSet,
    fmt::Write as _,
    io::{self, Write},
};

use serde_json::{Value, json};

use crate::{codes::Code, finding::Finding};

pub(super) fn write(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    let codes: Vec<Code> = findings.iter().map(|finding| finding.code).collect::<BTreeSet<_>>().into_iter().collect();
    let rules: Vec<Value> = codes
        .iter()
        .map(|code| {
            json!({
                "id": code.to_string(),
                "shortDescription": { "text": code.about() },
                "help": { "text": code.mend(), "markdown": format!("{} See `{}`.", code.mend(), super::page(*code)) },
                "defaultConfiguration": { "level": "error" },
            })
        })
        .collect();
    let results: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let text = finding.help.as_ref().map_or_else(|| finding.message.clone(), |help| format!("{} ({help})", finding.message));
            let location = |span: &std::ops::Range<usize>| {
                let (start, end) = (finding.file.place(span.start), finding.file.place(span.end));
                json!({
                    "artifactLocation": { "uri": uri(&finding.file.path) },
                    "region": { "startLine": start.line, "startColumn": start.column, "endLine": end.line, "endColumn": end.column },
                })
            };
            let related: Vec<Value> = finding
                .labels
                .iter()
                .skip(1)
                .enumerate()
                .map(|(i, label)| json!({ "id": i + 1, "physicalLocation": location(&label.span), "message": { "text": label.text } }))
                .collect();
            json!({
                "ruleId": finding.code.to_string(),
                "ruleIndex": codes.iter().position(|code| *code == finding.code),
                "level": "error",
                "message": { "text": text },
                "locations": [{ "physicalLocation": location(&finding.span()) }],
                "relatedLocations": related,
            })
        })
        .collect();
    let document = json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "fv-catalog", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

/// A path as a relative URI reference.
fn uri(path: &str) -> String {
    let mut uri = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/._-~+".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri
}
