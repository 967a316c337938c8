//! Findings for people.

use std::{
    collections::BTreeMap,
    fmt,
    io::{self, Write},
    sync::Arc,
};

use miette::{
    Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, NamedSource, SourceCode, SourceSpan,
    SpanContents,
};

use crate::finding::{Finding, Label, Place, SourceFile};

/// Wide enough for a message on one line, whatever the terminal: output does not depend on where it is run.
const WIDTH: usize = 110;

pub(super) fn write(findings: &[Finding], color: bool, out: &mut dyn Write) -> io::Result<()> {
    let theme = if color { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let handler = GraphicalReportHandler::new_themed(theme).with_width(WIDTH).with_links(false).with_context_lines(1);
    let mut sources: BTreeMap<&str, Arc<Source>> = BTreeMap::new();
    for (i, finding) in findings.iter().enumerate() {
        if i > 0 {
            writeln!(out)?;
        }
        let source = sources.entry(&finding.file.path).or_insert_with(|| {
            let named = NamedSource::new(&finding.file.path, finding.file.masked());
            Arc::new(Source { named, file: Arc::clone(&finding.file) })
        });
        let mut text = String::new();
        let shown = Shown { finding, source };
        handler.render_report(&mut text, &shown).map_err(io::Error::other)?;
        out.write_all(text.as_bytes())?;
    }
    if !findings.is_empty() {
        let files = sources.len();
        let plural = |n: usize, word: &str| format!("{n} {word}{}", if n == 1 { "" } else { "s" });
        writeln!(out, "\n{} in {}; docs/findings/ explains each code", plural(findings.len(), "finding"), plural(files, "file"))?;
    }
    Ok(())
}

/// A masked source whose columns count characters, as everywhere else.
struct Source {
    named: NamedSource<String>,
    file: Arc<SourceFile>,
}

impl SourceCode for Source {
    fn read_span<'a>(&'a self, span: &SourceSpan, before: usize, after: usize) -> Result<Box<dyn SpanContents<'a> + 'a>, MietteError> {
        let contents = self.named.read_span(span, before, after)?;
        let column = if before == 0 { self.file.place(span.offset()).column - 1 } else { contents.column() };
        Ok(Box::new(
            MietteSpanContents::new_named(
                self.file.path.clone(),
                contents.data(),
                *contents.span(),
                contents.line(),
                column,
                contents.line_count(),
            )
            .with_language("yaml"),
        ))
    }
}

struct Shown<'a> {
    finding: &'a Finding,
    source: &'a Arc<Source>,
}

impl Shown<'_> {
    /// Whether a label stands close enough to the place to be shown in the same excerpt.
    fn is_near(&self, label: &Label) -> bool {
        self.finding.file.place(label.span.start).line.abs_diff(self.finding.place().line) <= 6
    }
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
        for label in self.finding.labels.iter().filter(|label| !self.is_near(label)) {
            let Place { line, column } = self.finding.file.place(label.span.start);
            lines.push(format!("{}: line {line}, column {column}", label.text));
        }
        (!lines.is_empty()).then(|| Box::new(lines.join("\n")) as _)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&**self.source)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let near = self.finding.labels.iter().filter(|label| self.is_near(label));
        Some(Box::new(near.enumerate().map(|(i, label)| {
            let make = if i == 0 { LabeledSpan::new_primary_with_span } else { LabeledSpan::new_with_span };
            make(Some(label.text.clone()), label.span.clone())
        })))
    }
}
