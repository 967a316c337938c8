//! Findings as workflow commands, which a pull request shows beside the line.

use std::io::{self, Write};

use crate::finding::{Finding, Place};

pub(super) fn write(findings: &[Finding], out: &mut dyn Write) -> io::Result<()> {
    for finding in findings {
        let Place { line, column } = finding.place();
        let end = finding.file.place(finding.span().end);
        let help = finding.help.as_ref().map(|help| format!("\nhelp: {help}")).unwrap_or_default();
        let message = data(&format!("{}{help}", finding.message));
        let (file, title) = (property(&finding.file.path), property(&finding.code.to_string()));
        writeln!(
            out,
            "::error file={file},line={line},col={column},endLine={},endColumn={},title={title}::{message}",
            end.line, end.column
        )?;
    }
    Ok(())
}

/// Escapes the message of a command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
