//! A YAML document as a tree in which every key and every value knows its bytes.
//!
//! The only file that knows the YAML parser. What we accept is one document of YAML 1.2 with unique string keys
//! and nothing that hides a value: no anchors, aliases, merge keys or tags. `yes` stays text, and so does
//! `1_489`, which [`fv_spec::units::Count`] reads. Problems are collected, not thrown: one run reports them all.

use std::collections::HashMap;

use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, Span as Mark, StrInput};
use serde_json::{Map, Number, Value};

use crate::{
    codes::Code,
    finding::{Span, boundary, visible},
};

/// Nesting beyond this is refused.
pub const MAX_DEPTH: usize = 32;

/// A value and where it stands.
#[derive(Debug)]
pub struct Node {
    /// From the first byte of the value to the last.
    pub span: Span,
    /// The value.
    pub kind: Kind,
}

/// What a node holds.
#[derive(Debug)]
pub enum Kind {
    /// `null`, a boolean, a number or text.
    Scalar(Value),
    /// A list.
    Sequence(Vec<Node>),
    /// Keys and values in authored order; a duplicate key is already reported and left out.
    Mapping(Vec<(Key, Node)>),
    /// Already reported; nothing more is said about it.
    Refused,
}

/// A key of a mapping and where it stands.
#[derive(Debug)]
pub struct Key {
    /// The bytes of the key.
    pub span: Span,
    /// The key.
    pub name: String,
}

/// One step on the way to a node.
#[derive(Debug, Clone, Copy)]
pub enum Step<'a> {
    /// Into a mapping.
    Key(&'a str),
    /// Into a sequence.
    Index(usize),
}

impl<'a> From<&'a str> for Step<'a> {
    fn from(key: &'a str) -> Self {
        Self::Key(key)
    }
}

impl From<usize> for Step<'_> {
    fn from(index: usize) -> Self {
        Self::Index(index)
    }
}

/// Something that we do not accept in a YAML text, and where.
#[derive(Debug)]
pub struct Problem {
    /// The kind of problem.
    pub code: Code,
    /// What is wrong.
    pub message: String,
    /// The place of the problem and a word about it, then other places that matter.
    pub labels: Vec<(Span, String)>,
    /// What to do.
    pub help: Option<String>,
}

/// Reads `text`, with every problem in it. There is no tree when the text cannot be read to its end.
pub fn parse(text: &str) -> (Option<Node>, Vec<Problem>) {
    let mut options = Options::default();
    options.strict_indentation = true;
    options.emit_unresolved_aliases = true;
    options.set_emit_comments(false);
    let mut reader = Reader { events: Parser::new_from_str_with_options(text, options), text, problems: Vec::new() };
    let root = reader.document();
    (root, reader.problems)
}

struct Reader<'t> {
    events: Parser<'t, StrInput<'t>>,
    text: &'t str,
    problems: Vec<Problem>,
}

impl<'t> Reader<'t> {
    fn document(&mut self) -> Option<Node> {
        let mut root = None;
        let mut documents = 0;
        loop {
            let (event, mark) = self.next()?;
            match event {
                Event::StreamEnd => break,
                Event::DocumentStart(..) if documents == 1 => {
                    let span = self.span(mark);
                    self.problem(
                        Code::MultipleDocuments,
                        "a second document".into(),
                        span,
                        "starts here",
                        Some("keep one document in each file"),
                    );
                    return None;
                }
                Event::DocumentStart(..) => documents = 1,
                Event::StreamStart | Event::DocumentEnd => {}
                event => root = Some(self.node(event, mark, 0)?),
            }
        }
        let empty = match &root {
            None => true,
            Some(node) => matches!(node.kind, Kind::Scalar(Value::Null)) && node.span.is_empty(),
        };
        if empty {
            let end = self.text.chars().next().map_or(0, char::len_utf8);
            self.problem(Code::EmptyFile, "the file holds no document".into(), 0..end, "nothing here", None);
            return None;
        }
        root
    }

    /// The next event, or nothing when the text is not YAML.
    fn next(&mut self) -> Option<(Event<'t>, Mark)> {
        let Some(event) = self.events.next_event() else {
            let end = self.text.len();
            self.problem(Code::YamlSyntax, "the text ends too early".into(), end..end, "ends here", None);
            return None;
        };
        match event {
            Ok(event) => Some(event),
            Err(error) => {
                let mut at = self.offset(error.marker());
                let info = error.info();
                // The parser stops before or behind a tab that should be blanks.
                if info.contains("tab") && !self.text[..at].ends_with('\t') {
                    at += self.text[at..].find('\t').unwrap_or(0);
                }
                while info.contains("tab") && self.text[..at].ends_with('\t') && !self.text[at..].starts_with('\t') {
                    at -= 1;
                }
                let end = at + self.text[at..].chars().next().map_or(0, char::len_utf8);
                if matches!(error.kind(), ErrorKind::RecursionLimitExceeded) {
                    self.too_deep(at..end);
                } else {
                    let message: String = if info.contains("quoted scalar") {
                        "a quoted text is not closed, or goes on with too little indentation".to_owned()
                    } else {
                        info.chars().take(160).collect()
                    };
                    let help = match &info {
                        info if info.contains("tab") => Some("indent with blanks"),
                        info if info.contains("mapping values") => Some("put text that contains `: ` in quotes"),
                        info if info.contains("indentation") => {
                            Some("indent it like the lines above, and look for a bracket or quote that is not closed")
                        }
                        _ => None,
                    };
                    self.problem(Code::YamlSyntax, message, at..end, "not valid YAML from here", help);
                }
                None
            }
        }
    }

    /// The node that begins with `event`; nothing when the text cannot be read further.
    fn node(&mut self, event: Event<'t>, mark: Mark, depth: usize) -> Option<Node> {
        let span = self.span(mark);
        let opens = matches!(event, Event::SequenceStart(..) | Event::MappingStart(..));
        if depth >= MAX_DEPTH && opens {
            self.too_deep(span);
            return None;
        }
        match event {
            Event::Scalar(value, style, anchor, tag) => {
                let refused = self.properties(anchor, tag.is_some(), &span);
                let kind = if refused {
                    Kind::Refused
                } else if style == ScalarStyle::Plain {
                    self.plain(&value, &span)
                } else {
                    Kind::Scalar(Value::String(value.into_owned()))
                };
                Some(Node { span, kind })
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.properties(anchor, tag.is_some(), &span);
                let mut items = Vec::new();
                let mut end = span.end;
                loop {
                    let (event, mark) = self.next()?;
                    if event == Event::SequenceEnd {
                        // A block sequence ends where its last item ends; a flow sequence at its bracket.
                        end = end.max(self.closing(mark, b']'));
                        return Some(Node { span: span.start..end, kind: Kind::Sequence(items) });
                    }
                    let item = self.node(event, mark, depth + 1)?;
                    end = end.max(item.span.end);
                    items.push(item);
                }
            }
            Event::MappingStart(_, anchor, tag) => {
                self.properties(anchor, tag.is_some(), &span);
                self.mapping(span, depth)
            }
            Event::Alias(_) | Event::UnresolvedAlias(_) => {
                let name = self.text[span.clone()].to_owned();
                self.problem(
                    Code::Anchor,
                    format!("aliases are not read: `{}`", short(&name)),
                    span.clone(),
                    "refers to another place",
                    Some("write the value out"),
                );
                Some(Node { span, kind: Kind::Refused })
            }
            // Events that open no node do not come where a node is due.
            _ => Some(Node { span, kind: Kind::Refused }),
        }
    }

    fn mapping(&mut self, start: Span, depth: usize) -> Option<Node> {
        let mut entries: Vec<(Key, Node)> = Vec::new();
        // Few keys are found by looking at each; files of entries have thousands.
        let mut seen: HashMap<String, usize> = HashMap::new();
        let mut span = start;
        loop {
            let (event, mark) = self.next()?;
            if event == Event::MappingEnd {
                span.end = span.end.max(self.closing(mark, b'}'));
                return Some(Node { span, kind: Kind::Mapping(entries) });
            }
            let plain = matches!(event, Event::Scalar(_, ScalarStyle::Plain, ..));
            let key = self.node(event, mark, depth + 1)?;
            let (event, mark) = self.next()?;
            let value = self.node(event, mark, depth + 1)?;
            span.end = span.end.max(key.span.end).max(value.span.end);
            if let Some(name) = self.key_name(&key, plain) {
                let first = if entries.len() < 16 {
                    entries.iter().position(|(key, _)| key.name == name)
                } else {
                    for (i, (key, _)) in entries.iter().enumerate().skip(seen.len()) {
                        seen.insert(key.name.clone(), i);
                    }
                    seen.get(&name).copied()
                };
                if let Some(first) = first {
                    self.problems.push(Problem {
                        code: Code::DuplicateKey,
                        message: format!("duplicate key `{}`", short(&name)),
                        labels: vec![(key.span, "again here".into()), (entries[first].0.span.clone(), "first here".into())],
                        help: Some("keep one of the two".into()),
                    });
                } else {
                    entries.push((Key { span: key.span, name }, value));
                }
            }
        }
    }

    /// The name of a key, unless it was refused.
    fn key_name(&mut self, key: &Node, plain: bool) -> Option<String> {
        let (code, message, help) = match &key.kind {
            Kind::Scalar(Value::String(name)) if plain && name == "<<" => {
                (Code::MergeKey, "merge key `<<`".to_owned(), "write the fields out")
            }
            Kind::Scalar(Value::String(name)) => return Some(name.clone()),
            // `2:` and `true:` are names like any other where names are free.
            Kind::Scalar(Value::Number(_) | Value::Bool(_)) => return Some(self.text[key.span.clone()].to_owned()),
            Kind::Refused => return None,
            _ => (Code::KeyNotText, "a key that is not text".to_owned(), "keys are plain names"),
        };
        self.problem(code, message, key.span.clone(), "not allowed here", Some(help));
        None
    }

    /// Reports an anchor or a tag on a node. A tag changes the value, so the node is refused.
    fn properties(&mut self, anchor: usize, tagged: bool, span: &Span) -> bool {
        if anchor != 0 {
            let at = self.before(span.start, '&');
            self.problem(
                Code::Anchor,
                "anchors are not read".into(),
                at,
                "names this value for use elsewhere",
                Some("write the value out where it is used"),
            );
        }
        if tagged {
            let at = self.before(span.start, '!');
            self.problem(
                Code::Tag,
                "tags are not read".into(),
                at,
                "changes how the value is read",
                Some("quote the value if it should be text"),
            );
        }
        tagged
    }

    /// The word that begins with `mark` and stands last before `end`.
    fn before(&self, end: usize, mark: char) -> Span {
        let text = &self.text[..end];
        let Some(start) = text.rfind(mark) else { return end..end };
        // `!!int` has two marks.
        let start = if mark == '!' && text[..start].ends_with('!') { start - 1 } else { start };
        let length = text[start..].find(char::is_whitespace).unwrap_or(end - start);
        start..start + length
    }

    /// A plain scalar by the core schema of YAML 1.2; numbers with leading zeros stay text.
    fn plain(&mut self, text: &str, span: &Span) -> Kind {
        let value = match text {
            "" | "~" | "null" | "Null" | "NULL" => Value::Null,
            "true" | "True" | "TRUE" => Value::Bool(true),
            "false" | "False" | "FALSE" => Value::Bool(false),
            _ => match number(text) {
                Ok(Some(number)) => Value::Number(number),
                Ok(None) => Value::String(text.to_owned()),
                Err((code, message, help)) => {
                    self.problem(code, message, span.clone(), "not a number that JSON can hold", Some(help));
                    return Kind::Refused;
                }
            },
        };
        Kind::Scalar(value)
    }

    fn too_deep(&mut self, span: Span) {
        self.problem(Code::TooDeep, format!("nested more than {MAX_DEPTH} levels deep"), span, "too deep from here", None);
    }

    fn problem(&mut self, code: Code, message: String, span: Span, label: &str, help: Option<&str>) {
        self.problems.push(Problem { code, message, labels: vec![(span, label.to_owned())], help: help.map(str::to_owned) });
    }

    /// The end of a collection: behind its closing bracket for flow style, nowhere for block style.
    fn closing(&self, mark: Mark, bracket: u8) -> usize {
        let span = self.span(mark);
        if span.end > 0 && self.text.as_bytes().get(span.end - 1) == Some(&bracket) { span.end } else { 0 }
    }

    fn span(&self, mark: Mark) -> Span {
        let start = self.offset(&mark.start);
        start..self.offset(&mark.end).max(start)
    }

    fn offset(&self, marker: &Marker) -> usize {
        let offset =
            marker.byte_offset().unwrap_or_else(|| self.text.char_indices().nth(marker.index()).map_or(self.text.len(), |(i, _)| i));
        boundary(self.text, offset)
    }
}

type NotANumber = (Code, String, &'static str);

/// The number that a plain scalar is, if it is one.
fn number(text: &str) -> Result<Option<Number>, NotANumber> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let Some(first) = unsigned.bytes().next() else { return Ok(None) };
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err((Code::NonFiniteNumber, format!("`{text}` is not a finite number"), "leave the field out when the value is unknown"));
    }
    if !(first.is_ascii_digit() || first == b'.') {
        return Ok(None);
    }
    let too_large = || (Code::IntegerTooLarge, format!("`{}` does not fit in 64 bits", short(text)), "quote it if it should be text");
    if let Some((digits, radix)) = unsigned.strip_prefix("0x").map(|d| (d, 16)).or_else(|| unsigned.strip_prefix("0o").map(|d| (d, 8))) {
        if unsigned.len() != text.len() || digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
            return Ok(None);
        }
        return u64::from_str_radix(digits, radix).map(|n| Some(n.into())).map_err(|_| too_large());
    }
    let leading_zero = unsigned.len() > 1 && first == b'0' && unsigned.as_bytes()[1].is_ascii_digit();
    if leading_zero {
        return Ok(None);
    }
    if unsigned.bytes().all(|b| b.is_ascii_digit()) {
        return if text.starts_with('-') {
            text.parse::<i64>().map(|n| Some(n.into())).map_err(|_| too_large())
        } else {
            unsigned.parse::<u64>().map(|n| Some(n.into())).map_err(|_| too_large())
        };
    }
    if !is_float(unsigned) {
        return Ok(None);
    }
    let value: f64 = text.parse().unwrap_or(f64::INFINITY);
    match Number::from_f64(value) {
        Some(number) => Ok(Some(number)),
        None => Err((Code::NonFiniteNumber, format!("`{}` is too large for a number", short(text)), "write a finite number")),
    }
}

/// `[0-9]+(\.[0-9]*)?` or `\.[0-9]+`, then an optional exponent.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let exponent = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['-', '+']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()) && exponent
}

/// `text`, cut so that it fits in a message, without control characters.
pub fn short(text: &str) -> String {
    let cut = visible(&text.chars().take(61).collect::<String>());
    if cut.chars().count() <= 60 { cut } else { cut.chars().take(59).chain(['…']).collect() }
}

impl Node {
    /// The value without its places. Refused values become `null`.
    pub fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Scalar(value) => value.clone(),
            Kind::Refused => Value::Null,
            Kind::Sequence(items) => items.iter().map(Self::to_json).collect(),
            Kind::Mapping(entries) => {
                Value::Object(entries.iter().map(|(key, value)| (key.name.clone(), value.to_json())).collect::<Map<_, _>>())
            }
        }
    }

    /// The node at `path`, with the key that introduces it.
    pub fn at<'n, 'p>(&'n self, path: impl IntoIterator<Item = Step<'p>>) -> Option<(Option<&'n Key>, &'n Self)> {
        path.into_iter().try_fold((None, self), |(_, node), step| match (&node.kind, step) {
            (Kind::Sequence(items), Step::Index(i)) => Some((None, items.get(i)?)),
            (Kind::Mapping(_), Step::Key(name)) => node.entry(name).map(|(key, value)| (Some(key), value)),
            _ => None,
        })
    }

    /// The key and value called `name`.
    pub fn entry(&self, name: &str) -> Option<(&Key, &Self)> {
        self.entries().iter().find(|(key, _)| key.name == name).map(|(key, value)| (key, value))
    }

    /// Keys and values of a mapping; nothing for other nodes.
    pub fn entries(&self) -> &[(Key, Self)] {
        match &self.kind {
            Kind::Mapping(entries) => entries,
            _ => &[],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Value {
        let (node, problems) = parse(text);
        assert!(problems.is_empty(), "{text}: {problems:?}");
        node.map(|n| n.to_json()).unwrap_or_default()
    }

    #[test]
    fn plain_scalars_follow_yaml_1_2() {
        let read = json("[1, -7, +3, 0x1F, 0o17, 1.5, 1e3, .5, 012, 1_489, yes, on, ~, '', 2026-11-30, 1.2.3, 1e, 0x, -0x1, .]");
        let want = serde_json::json!([
            1,
            -7,
            3,
            31,
            15,
            1.5,
            1000.0,
            0.5,
            "012",
            "1_489",
            "yes",
            "on",
            null,
            "",
            "2026-11-30",
            "1.2.3",
            "1e",
            "0x",
            "-0x1",
            "."
        ]);
        assert_eq!(read, want);
    }

    #[test]
    fn every_node_knows_its_bytes() {
        let text = "a:\n  é: [1, {b: 22}]\n  c: text here\nd: 'q'\n";
        let (node, _) = parse(text);
        let node = node.expect("valid");
        for (path, want) in [
            (vec![Step::Key("a"), Step::Key("é")], "[1, {b: 22}]"),
            (vec![Step::Key("a"), Step::Key("é"), Step::Index(1)], "{b: 22}"),
            (vec![Step::Key("a"), Step::Key("é"), Step::Index(1), Step::Key("b")], "22"),
            (vec![Step::Key("a"), Step::Key("c")], "text here"),
            (vec![Step::Key("a")], "é: [1, {b: 22}]\n  c: text here"),
            (vec![Step::Key("d")], "'q'"),
        ] {
            let (_, found) = node.at(path.iter().copied()).expect("there");
            assert_eq!(&text[found.span.clone()], want);
        }
    }

    #[test]
    fn all_problems_of_a_text_are_found() {
        let (_, problems) = parse("a: &x 1\nb: *x\nc: !t 2\na: 3\n<<: {d: 1}\ne: .inf\nf: 99999999999999999999\n? [k]\n: 1\n");
        let codes: Vec<Code> = problems.iter().map(|p| p.code).collect();
        let want = [
            Code::Anchor,
            Code::Anchor,
            Code::Tag,
            Code::DuplicateKey,
            Code::MergeKey,
            Code::NonFiniteNumber,
            Code::IntegerTooLarge,
            Code::KeyNotText,
        ];
        assert_eq!(codes, want);
    }

    #[test]
    fn deep_and_broken_texts_end_at_once() {
        for (text, code) in [
            ("[".repeat(100_000), Code::TooDeep),
            ("a: [1, 2\nb: 3\n".to_owned(), Code::YamlSyntax),
            ((0..3000).fold(String::new(), |s, i| s + &" ".repeat(i) + "a:\n"), Code::TooDeep),
            ("a: 1\n---\nb: 2\n".to_owned(), Code::MultipleDocuments),
            ("# only words\n".to_owned(), Code::EmptyFile),
            (String::new(), Code::EmptyFile),
        ] {
            let (node, problems) = parse(&text);
            assert!(node.is_none());
            assert_eq!(problems.iter().map(|p| p.code).collect::<Vec<_>>(), [code], "{}", short(&text));
        }
    }
}
