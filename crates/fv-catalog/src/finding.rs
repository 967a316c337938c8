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

/// The start of the character that the byte at `offset` belongs to.
pub(crate) fn boundary(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// `text` with a mark in place of each control character, which a terminal would obey.
pub fn visible(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// [`visible`] with line breaks kept.
pub fn visible_lines(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "\u{fffd}")
}

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
    /// Characters before every [`CHECKPOINT`]th byte.
    checkpoints: OnceLock<Vec<usize>>,
}

const CHECKPOINT: usize = 4096;

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
        Self { path: visible(&path.into()), text, lines, secrets: OnceLock::new(), checkpoints: OnceLock::new() }
    }

    /// Credential-like values, which no renderer may show.
    pub fn secrets(&self) -> &[Secret] {
        self.secrets.get_or_init(|| secrets(&self.text))
    }

    /// The place of a byte.
    pub fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        let line = self.lines.partition_point(|start| *start <= offset) - 1;
        Place { line: line + 1, column: self.characters(offset) - self.characters(self.lines[line]) + 1 }
    }

    /// Characters before a byte. Checkpoints keep this quick in a file of one long line.
    fn characters(&self, offset: usize) -> usize {
        let count = |bytes: &[u8]| bytes.iter().filter(|byte| (**byte & 0xC0) != 0x80).count();
        let checkpoints = self.checkpoints.get_or_init(|| {
            let blocks = self.text.as_bytes().chunks(CHECKPOINT);
            std::iter::once(0)
                .chain(blocks.scan(0, |sum, block| {
                    *sum += count(block);
                    Some(*sum)
                }))
                .collect()
        });
        let block = offset / CHECKPOINT;
        checkpoints[block] + count(&self.text.as_bytes()[block * CHECKPOINT..offset])
    }

    /// The bytes of a line, counted from 0, without its line break; nothing beyond the last line.
    pub fn line(&self, line: usize) -> Option<Span> {
        let start = *self.lines.get(line)?;
        let end = self.lines.get(line + 1).copied().unwrap_or(self.text.len());
        Some(start..start + self.text[start..end].trim_end_matches(['\n', '\r']).len())
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

/// The longest message, in characters.
const MAX_MESSAGE: usize = 200;

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
        let mut message: String = message.into();
        if message.chars().count() > MAX_MESSAGE {
            message = message.chars().take(MAX_MESSAGE - 1).chain(['…']).collect();
        }
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

    /// The same as it may be shown: without any credential-like value or control character in its words.
    #[must_use]
    pub fn redacted(&self) -> Self {
        let mut finding = self.clone();
        for secret in self.nearby_secrets() {
            let value = self.file.text[secret.value.clone()].trim_matches(['"', '\'']);
            let redact = |text: &mut String| {
                // A short value stands in ordinary words too, and gives nothing away there.
                if value.len() >= 4 && text.contains(value) {
                    *text = text.replace(value, "***");
                }
                // A long one may have been cut.
                let head: String = value.lines().next().unwrap_or_default().chars().take(20).collect();
                if head.chars().count() == 20
                    && let Some(at) = text.find(&head)
                {
                    let end = text[at..].find('`').map_or(text.len(), |i| at + i);
                    text.replace_range(at..end, "***");
                }
            };
            finding.words().for_each(redact);
        }
        // Names from the file may hold what a terminal obeys.
        finding.words().for_each(|text| *text = visible(text));
        finding
    }

    /// Everything it says.
    fn words(&mut self) -> impl Iterator<Item = &mut String> {
        std::iter::once(&mut self.message).chain(self.labels.iter_mut().map(|label| &mut label.text)).chain(self.help.as_mut())
    }

    /// Secrets that its words may repeat: all of the file, or those of its lines in a file that has very many.
    fn nearby_secrets(&self) -> &[Secret] {
        let secrets = self.file.secrets();
        if secrets.len() <= 64 {
            return secrets;
        }
        let line = self.place().line - 1;
        let span = self.file.line(line).unwrap_or_default();
        let first = secrets.partition_point(|secret| secret.value.end < span.start);
        let count = secrets[first..].partition_point(|secret| secret.value.start <= span.end).min(64);
        &secrets[first..first + count]
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
