//! Renderers of findings, one file for each format.

mod github;
mod human;
pub mod json;
mod sarif;

use std::io::{self, Write};

use crate::finding::Finding;

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people: the source with the place underlined.
    Human,
    /// Versioned JSON.
    Json,
    /// Workflow commands that annotate a pull request.
    Github,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
    /// A page, for reports; findings are written as for people.
    Markdown,
    /// Lines of comma-separated values, for sweeps; findings are written as for people.
    Csv,
    /// A line of JSON for each row, for sweeps; findings are written as for people.
    Jsonl,
    /// Columns of a file, for sweeps; findings are written as for people.
    #[cfg_attr(not(feature = "parquet"), value(hide = true))]
    Parquet,
}

/// Writes `findings` in `format`. Machine formats are complete documents even when there are none.
///
/// # Errors
/// When the writer fails.
pub fn write(format: Format, findings: &[Finding], color: bool, out: &mut dyn Write) -> io::Result<()> {
    let findings: Vec<Finding> = findings.iter().map(Finding::redacted).collect();
    let findings = findings.as_slice();
    match format {
        Format::Human | Format::Markdown | Format::Csv | Format::Jsonl | Format::Parquet => human::write(findings, color, out),
        Format::Json => json::write(findings, out),
        Format::Github => github::write(findings, out),
        Format::Sarif => sarif::write(findings, out),
    }
}

/// The page that explains a code, relative to the repository.
pub(crate) fn page(code: crate::codes::Code) -> String {
    format!("docs/findings/{}.md", code.slug())
}
