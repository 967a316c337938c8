//! Findings for people.

use std::{
    collections::BTreeSet,
    fmt,
    io::{self, Write},
};

use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, SourceCode, SourceSpan, SpanContents};

use crate::finding::{Finding, Label, Place, SourceFile, Span, boundary};

/// Wide enough for a message on one line, whatever the terminal: output does not depend on where it is run.
const WIDTH: usize = 110;
/// More findings than anybody reads; the other formats have them all.
const SHOWN: usize = 200;

pub(super) fn write(findings: &[Finding], color: bool, out: &mut dyn Write) -> io::Result<()> {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false).with_context_lines(1);
    for (i, finding) in findings.iter().take(SHOWN).enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let near: Vec<&Label> = finding.labels.iter().filter(|label| is_near(finding, label)).collect();
        let mut text = String::new();
        let excerpt = Excerpt::new(finding, &near);
        handler.render_report(&mut text, &Shown { finding, near, excerpt }).map_err(io::Error::other)?;
        out.write_all(text.as_bytes())?;
    }
    let more = findings.len().saturating_sub(SHOWN);
    if more > 0 {
        writeln!(out, "\nand {more} more; --format json lists all")?;
    }
    if !findings.is_empty() {
        let files = findings.iter().map(|finding| &finding.file.path).collect::<BTreeSet<_>>().len();
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        writeln!(out, "\n{} in {}; docs/findings/ explains each code", plural(findings.len(), "finding"), plural(files, "file"))?;
    }
    Ok(())
}

/// The lines around a finding as they are shown: credentials masked, columns in characters, and long lines cut around
/// what is marked.
struct Excerpt<'a> {
    file: &'a SourceFile,
    /// Where `text` stands in the file.
    span: Span,
    text: Vec<u8>,
}

/// Bytes that are shown before and behind a place in lines too long to show.
const WINDOW: usize = 100;
/// Lines around a finding that hold more bytes are cut.
const LONG: usize = 2000;

impl<'a> Excerpt<'a> {
    fn new(finding: &'a Finding, near: &[&Label]) -> Self {
        let file = &*finding.file;
        let spans = || near.iter().map(|label| &label.span);
        let (start, end) = (spans().map(|span| span.start).min().unwrap_or(0), spans().map(|span| span.end).max().unwrap_or(0));
        let (first, last) = (file.place(start).line.saturating_sub(2), file.place(end).line);
        let lines =
            file.line(first).map_or(0, |line| line.start)..file.line(last).or_else(|| file.line(last - 1)).map_or(0, |line| line.end);
        let span = if lines.len() > LONG {
            start.saturating_sub(WINDOW).max(lines.start)..(end + WINDOW).min(lines.end).min(start + LONG)
        } else {
            lines
        };
        let span = boundary(&file.text, span.start)..boundary(&file.text, span.end);
        Self { file, text: masked(file, &span), span }
    }
}

impl SourceCode for Excerpt<'_> {
    fn read_span<'a>(&'a self, span: &SourceSpan, before: usize, after: usize) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let (offset, end) = (span.offset(), span.offset() + span.len());
        let place = self.file.place(offset);
        let first = (place.line - 1).saturating_sub(before);
        let last = self.file.place(end).line - 1 + after;
        let start = self.file.line(first).map_or(0, |line| line.start).clamp(self.span.start, self.span.end);
        let end = self.file.line(last).map_or(self.span.end, |line| line.end).clamp(start, self.span.end);
        let text = self.text.get(start - self.span.start..end - self.span.start).ok_or(MietteError::OutOfBounds)?;
        let (line, column) = if before == 0 { (place.line - 1, place.column - 1) } else { (self.file.place(start).line - 1, 0) };
        Ok(Box::new(Contents { name: &self.file.path, text, span: (start, end - start).into(), line, column }))
    }
}

/// A part of a file with credentials replaced by stars and control characters by marks, of the same length so that
/// places stay true.
fn masked(file: &SourceFile, part: &Span) -> Vec<u8> {
    let mut bytes = file.text.as_bytes()[part.clone()].to_vec();
    let first = file.secrets().partition_point(|secret| secret.value.end <= part.start);
    for secret in file.secrets()[first..].iter().take_while(|secret| secret.value.start < part.end) {
        let (start, end) = (secret.value.start.max(part.start) - part.start, secret.value.end.min(part.end) - part.start);
        for byte in bytes.get_mut(start..end).into_iter().flatten().filter(|byte| !byte.is_ascii_whitespace()) {
            *byte = b'*';
        }
    }
    for byte in bytes.iter_mut().filter(|byte| byte.is_ascii_control() && !matches!(byte, b'\n' | b'\t')) {
        *byte = if *byte == b'\r' { b' ' } else { b'?' };
    }
    bytes
}

/// What miette shows of an excerpt.
struct Contents<'a> {
    name: &'a str,
    text: &'a [u8],
    span: SourceSpan,
    line: usize,
    column: usize,
}

impl<'a> SpanContents<'a> for Contents<'a> {
    fn data(&self) -> &'a [u8] {
        self.text
    }
    fn span(&self) -> &SourceSpan {
        &self.span
    }
    fn line(&self) -> usize {
        self.line
    }
    fn column(&self) -> usize {
        self.column
    }
    fn line_count(&self) -> usize {
        self.text.split(|byte| *byte == b'\n').count()
    }
    fn name(&self) -> Option<&str> {
        Some(self.name)
    }
    fn language(&self) -> Option<&str> {
        Some("yaml")
    }
}

struct Shown<'a> {
    finding: &'a Finding,
    near: Vec<&'a Label>,
    excerpt: Excerpt<'a>,
}

/// Whether a label stands close enough to the place to be shown in the same excerpt.
fn is_near(finding: &Finding, label: &Label) -> bool {
    finding.file.place(label.span.start).line.abs_diff(finding.place().line) <= 6
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.finding, f)
    }
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.finding.message)
    }
}

impl std::error::Error for Shown<'_> {}

impl Diagnostic for Shown<'_> {
    fn code<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        Some(Box::new(self.finding.code))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn fmt::Display + 'a>> {
        let mut lines: Vec<String> = self.finding.help.iter().cloned().collect();
        for label in self.finding.labels.iter().filter(|label| !is_near(self.finding, label)) {
            let Place { line, column } = self.finding.file.place(label.span.start);
            lines.push(format!("{}: line {line}, column {column}", label.text));
        }
        (!lines.is_empty()).then(|| Box::new(lines.join("\n")) as _)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.excerpt)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.near.iter().enumerate().map(|(i, label)| {
            let make = if i == 0 { LabeledSpan::new_primary_with_span } else { LabeledSpan::new_with_span };
            make(Some(label.text.clone()), label.span.clone())
        })))
    }
}
