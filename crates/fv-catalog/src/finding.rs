//! Findings: what is wrong, and exactly where.

use std::{
    ops::Range,
    sync::{Arc, OnceLock},
};

use crate::{
    codes::Code,
    credential::{Secret, secrets},
};

/// Bytes of a text.
pub type Span = Range<usize>;

/// An authored text under the path that people know it by.
#[derive(Debug)]
pub struct SourceFile {
    /// The path as it is shown, with `/`.
    pub path: String,
    /// The text without a byte-order mark; empty for files that could not be read.
    pub text: String,
    /// Byte offset of each line's start.
    lines: Vec<usize>,
    secrets: OnceLock<Vec<Secret>>,
}

/// A place for people: both numbers start at 1, columns count characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Line.
    pub line: usize,
    /// Column in characters.
    pub column: usize,
}

impl SourceFile {
    /// A file called `path` that holds `text`.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let text = text.into();
        let lines = std::iter::once(0).chain(text.match_indices('\n').map(|(i, _)| i + 1)).collect();
        Self { path: path.into(), text, lines, secrets: OnceLock::new() }
    }

    /// Credential-like values, which no renderer may show.
    pub fn secrets(&self) -> &[Secret] {
        self.secrets.get_or_init(|| secrets(&self.text))
    }

    /// The text with those values replaced by stars, of the same length so that places stay true.
    pub fn masked(&self) -> String {
        let mut bytes = self.text.as_bytes().to_vec();
        for secret in self.secrets() {
            for byte in bytes.get_mut(secret.value.clone()).into_iter().flatten().filter(|byte| !byte.is_ascii_whitespace()) {
                *byte = b'*';
            }
        }
        String::from_utf8(bytes).unwrap_or_default()
    }

    /// The place of a byte.
    pub fn place(&self, offset: usize) -> Place {
        let line = self.lines.partition_point(|start| *start <= offset) - 1;
        let start = self.lines[line];
        let column = self.text.get(start..offset.max(start)).map_or(0, |before| before.chars().count());
        Place { line: line + 1, column: column + 1 }
    }
}

/// A part of a text and a word about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The bytes.
    pub span: Span,
    /// A few words.
    pub text: String,
}

/// One thing that is wrong in one file.
#[derive(Debug, Clone)]
pub struct Finding {
    /// The kind.
    pub code: Code,
    /// The file.
    pub file: Arc<SourceFile>,
    /// What is wrong, in one sentence of at most 200 characters.
    pub message: String,
    /// The place first, then other places of the same file that matter.
    pub labels: Vec<Label>,
    /// Allowed values, the closest name, or what to do.
    pub help: Option<String>,
}

impl Finding {
    /// A finding at `span` of `file`.
    pub fn new(code: Code, file: &Arc<SourceFile>, span: Span, label: impl Into<String>, message: impl Into<String>) -> Self {
        let message: String = message.into();
        debug_assert!(message.chars().count() <= 200, "too long: {message}");
        Self { code, file: Arc::clone(file), message, labels: vec![Label { span, text: label.into() }], help: None }
    }

    /// With a help text.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// With one more place of the same file.
    #[must_use]
    pub fn also(mut self, span: Span, label: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: label.into() });
        self
    }

    /// The same without any credential-like value in its words.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut finding = self.clone();
        for secret in self.file.secrets() {
            let value = self.file.text[secret.value.clone()].trim_matches(['"', '\'']);
            let redact = |text: &mut String| {
                // A short value stands in ordinary words too, and gives nothing away there.
                if value.len() >= 4 && text.contains(value) {
                    *text = text.replace(value, "***");
                }
            };
            redact(&mut finding.message);
            finding.labels.iter_mut().for_each(|label| redact(&mut label.text));
            finding.help.iter_mut().for_each(redact);
        }
        finding
    }

    /// Where it is.
    pub fn place(&self) -> Place {
        self.file.place(self.span().start)
    }

    /// The bytes that are wrong.
    pub fn span(&self) -> Span {
        self.labels.first().map_or(0..0, |label| label.span.clone())
    }
}

/// Sorts findings by path, then by position, and drops repetitions.
pub fn sort(findings: &mut Vec<Finding>) {
    findings.sort_by(|a, b| {
        let key = |f: &Finding| (f.span().start, f.span().end, f.code);
        a.file.path.cmp(&b.file.path).then_with(|| key(a).cmp(&key(b))).then_with(|| a.message.cmp(&b.message))
    });
    findings.dedup_by(|a, b| a.file.path == b.file.path && a.code == b.code && a.message == b.message && a.span() == b.span());
}

/// The closest of `known` names, or all of them when none is close: the usual help.
pub fn suggest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>, what: &str) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    let near = fv_data::nearest(name, known.iter().copied());
    match near.first() {
        Some(best) => format!("did you mean `{best}`?"),
        None if known.is_empty() => format!("none to choose from ({what})"),
        None => {
            let list = known.iter().take(24).copied().collect::<Vec<_>>().join(", ");
            let more = known.len().saturating_sub(24);
            if more > 0 { format!("{what}: {list} and {more} more") } else { format!("{what}: {list}") }
        }
    }
}
