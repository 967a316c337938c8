//! Findings as versioned JSON, described by `schemas/findings.schema.json`.

use std::io::{self, Write};

use schemars::JsonSchema;
use serde::Serialize;

use crate::finding::{Finding, Label, Place};

/// The version of this format.
pub const VERSION: u32 = 1;

/// The document.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Document {
    /// Format version, 1.
    version: u32,
    /// Sorted by path, line and column.
    findings: Vec<Entry>,
}

/// One finding.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Entry {
    /// The file, as people named it.
    path: String,
    /// Line, from 1.
    line: usize,
    /// Column in characters, from 1.
    column: usize,
    /// The code, such as `catalog::unknown-field`.
    code: String,
    /// What is wrong.
    message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    help: Option<String>,
    /// The page that explains the code, relative to the repository.
    docs: String,
    /// The place first, then other places that matter.
    labels: Vec<Mark>,
}

/// A marked part of the file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Mark {
    /// First line, from 1.
    line: usize,
    /// First column, from 1.
    column: usize,
    /// Line behind the last character.
    end_line: usize,
    /// Column behind the last character.
    end_column: usize,
    /// A few words.
    text: String,
}

/// Findings as a document.
pub fn document(findings: &[Finding]) -> Document {
    Document { version: VERSION, findings: findings.iter().map(entry).collect() }
}

fn entry(finding: &Finding) -> Entry {
    let Place { line, column } = finding.place();
    let mark = |label: &Label| {
        let (start, end) = (finding.file.place(label.span.start), finding.file.place(label.span.end));
        Mark { line: start.line, column: start.column, end_line: end.line, end_column: end.column, text: label.text.clone() }
    };
    Entry {
        path: finding.file.path.clone(),
        line,
        column,
        code: finding.code.to_string(),
        message: finding.message.clone(),
        help: finding.help.clone(),
        docs: super::page(finding.code),
        labels: finding.labels.iter().map(mark).collect(),
    }
}

pub(super) fn write(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &document(findings))?;
    writeln!(out)
}
