//! Lines of text, of which parts have a tone.

/// What a part of a text is, for whoever gives it a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tone {
    /// As everything else.
    Plain,
    /// A heading, or what to look at first.
    Strong,
    /// What can be skipped.
    Quiet,
    /// Good news.
    Good,
    /// Bad news.
    Bad,
    /// Neither.
    Unsure,
}

/// A part as terminals colour it.
pub fn ansi(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Strong => "1",
        Tone::Quiet => "2",
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Unsure => "33",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// A part of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Without line breaks or control characters.
    pub text: String,
    /// What it is.
    pub tone: Tone,
}

/// Lines of text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Text {
    /// Each line's parts in order.
    pub lines: Vec<Vec<Span>>,
}

impl Text {
    /// The text with each part as `paint` makes it, every line ended. Parts that are [plain](Tone::Plain) are not painted.
    pub fn painted(&self, paint: impl Fn(Tone, &str) -> String) -> String {
        let mut text = String::new();
        for line in &self.lines {
            for span in line {
                match span.tone {
                    Tone::Plain => text.push_str(&span.text),
                    tone => text.push_str(&paint(tone, &span.text)),
                }
            }
            text.push('\n');
        }
        text
    }

    /// One plain line.
    pub fn said(words: &str) -> Self {
        let mut text = Self::default();
        text.line(Line::new().plain(words));
        text
    }

    /// The text without tones.
    pub fn plain(&self) -> String {
        self.painted(|_, text| text.to_owned())
    }

    pub(super) fn blank(&mut self) {
        self.lines.push(Vec::new());
    }

    pub(super) fn line(&mut self, line: Line) {
        self.lines.push(line.finish());
    }

    pub(super) fn heading(&mut self, text: &str) {
        self.line(Line::new().add(Tone::Strong, text));
    }

    /// Words broken into lines of at most `width`: the first after `before`, the others indented by as much.
    pub(super) fn wrapped(&mut self, before: Line, text: Line, width: usize) {
        let indent = before.width();
        let mut line = before;
        let mut fresh = true;
        for span in text.finish() {
            for (i, word) in span.text.split(' ').enumerate() {
                if !fresh && i > 0 && line.width() + 1 + word.chars().count() > width {
                    self.line(line);
                    line = Line::new().pad(indent);
                    fresh = true;
                }
                if i > 0 && !fresh {
                    line = line.add(span.tone, " ");
                }
                if !word.is_empty() {
                    line = line.add(span.tone, word);
                    fresh = false;
                }
            }
        }
        self.line(line);
    }

    /// A point of a list.
    pub(super) fn item(&mut self, text: Line, width: usize) {
        self.wrapped(Line::new().add(Tone::Quiet, "  - "), text, width);
    }
}

/// A line while it is made.
#[derive(Debug, Clone, Default)]
pub(super) struct Line(Vec<Span>);

impl Line {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Adds text. What a terminal would obey becomes a mark.
    pub(super) fn add(mut self, tone: Tone, text: &str) -> Self {
        let text = text.replace(char::is_control, "\u{fffd}");
        match self.0.last_mut() {
            Some(last) if last.tone == tone => last.text.push_str(&text),
            _ if text.is_empty() => {}
            _ => self.0.push(Span { text, tone }),
        }
        self
    }

    pub(super) fn plain(self, text: &str) -> Self {
        self.add(Tone::Plain, text)
    }

    pub(super) fn quiet(self, text: &str) -> Self {
        self.add(Tone::Quiet, text)
    }

    /// The line with another behind it.
    pub(super) fn join(self, other: Self) -> Self {
        other.0.into_iter().fold(self, |line, span| line.add(span.tone, &span.text))
    }

    /// Spaces up to a column.
    pub(super) fn pad(self, column: usize) -> Self {
        let missing = column.saturating_sub(self.width());
        self.plain(&" ".repeat(missing))
    }

    /// Text that ends at a column.
    pub(super) fn right(self, tone: Tone, text: &str, column: usize) -> Self {
        let start = column.saturating_sub(text.chars().count());
        self.pad(start).add(tone, text)
    }

    pub(super) fn width(&self) -> usize {
        self.0.iter().map(|span| span.text.chars().count()).sum()
    }

    /// The parts, without spaces at the end.
    fn finish(mut self) -> Vec<Span> {
        while let Some(last) = self.0.last_mut() {
            last.text.truncate(last.text.trim_end_matches(' ').len());
            if !last.text.is_empty() {
                break;
            }
            self.0.pop();
        }
        self.0
    }
}

/// At most `width` characters, the last a mark where something is missing.
pub(super) fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_wrap_below_where_they_began() {
        let mut text = Text::default();
        text.item(Line::new().plain("one two three four").quiet(" [code]"), 16);
        text.item(Line::new().plain("averylongwordwithoutanybreak in it"), 16);
        assert_eq!(text.plain(), "  - one two\n    three four\n    [code]\n  - averylongwordwithoutanybreak\n    in it\n");
    }

    #[test]
    fn nothing_that_a_terminal_obeys_is_shown() {
        let mut text = Text::default();
        text.line(Line::new().plain("a\u{1b}[31m\nb"));
        assert_eq!(text.plain(), "a\u{fffd}[31m\u{fffd}b\n");
    }

    #[test]
    fn tones_are_painted_and_columns_are_counted_without_them() {
        let mut text = Text::default();
        text.line(Line::new().add(Tone::Good, "fits").pad(8).right(Tone::Quiet, "1.00", 14).pad(20));
        assert_eq!(text.painted(|tone, text| format!("<{tone:?}>{text}</>")), "<Good>fits</>      <Quiet>1.00</>\n");
        assert_eq!(text.plain(), "fits      1.00\n");
    }

    #[test]
    fn long_text_is_cut_visibly() {
        assert_eq!((cut("abc", 3), cut("abcd", 3), cut("ab cd", 4)), ("abc".into(), "ab…".into(), "ab…".into()));
    }
}
