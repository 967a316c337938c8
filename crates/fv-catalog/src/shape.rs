//! The shape of authored files: JSON Schema violations turned into findings that point at the YAML.

use std::{collections::BTreeSet, sync::Arc};

use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind as E},
    paths::LocationSegment,
};
use serde_json::Value;

use crate::{
    codes::Code,
    finding::{Finding, SourceFile, Span, suggest},
    yaml::{Kind, Node, Problem, Step, short},
};

/// A compiled schema of one kind of authored file.
pub struct Shape {
    schema: Value,
    validator: Validator,
}

impl Shape {
    /// Compiles `schema`.
    ///
    /// # Errors
    /// When it is not a schema.
    pub fn new(schema: Value) -> Result<Self, String> {
        let validator = jsonschema::options().offline().should_validate_formats(true).build(&schema).map_err(|error| error.to_string())?;
        Ok(Self { schema, validator })
    }

    /// Every violation of the shape in `root`, and the value without places.
    pub fn check(&self, file: &Arc<SourceFile>, root: &Node) -> (Value, Vec<Finding>) {
        let value = root.to_json();
        let mut findings = Vec::new();
        if !self.validator.is_valid(&value) {
            for error in self.validator.iter_errors(&value) {
                self.explain(&error, file, root, &mut findings);
            }
            merge_misspelt(&mut findings);
        }
        (value, findings.into_iter().map(|(_, finding)| finding).collect())
    }

    fn explain(&self, error: &ValidationError, file: &Arc<SourceFile>, root: &Node, findings: &mut Vec<Placed>) {
        let location = error.instance_path();
        let steps: Vec<_> = location.iter().collect();
        let Some((key, node)) = root.at(steps.iter().map(step)) else { return };
        if matches!(node.kind, Kind::Refused) {
            return;
        }
        let field = steps.iter().rev().find_map(|s| match s {
            LocationSegment::Property(name) => Some(name.to_string()),
            LocationSegment::Index(_) => None,
        });
        let field = field.unwrap_or_default();
        let named = if field.is_empty() { "the file".to_owned() } else { format!("`{}`", short(&field)) };
        let here = key.map_or_else(|| first_line(file, &node.span), |k| k.span.clone());
        let value = first_line(file, &node.span);
        let mut report = |code, span: Span, label: &str, message: String, help: Option<String>| {
            let mut finding = Finding::new(code, file, span, label, message);
            finding.help = help;
            findings.push((location.as_str().to_owned(), finding));
        };
        match error.kind() {
            E::AdditionalProperties { unexpected } | E::UnevaluatedProperties { unexpected } => {
                let known = self.properties_beside(error);
                for name in unexpected {
                    let Some((key, value)) = node.entry(name) else { continue };
                    if matches!(value.kind, Kind::Refused) {
                        continue;
                    }
                    let (code, help) = if name == "decode_feature_multiplier" {
                        (Code::VaeOnly, "only a VAE has decoder features".to_owned())
                    } else {
                        (Code::UnknownField, suggest(name, known.iter().copied(), "allowed fields"))
                    };
                    report(code, key.span.clone(), "not a field here", format!("unknown field `{}`", short(name)), Some(help));
                }
            }
            E::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                report(Code::MissingField, here, &format!("this needs `{name}`"), format!("missing field `{name}`"), None);
            }
            E::Type { kind } => {
                let want = type_words(kind);
                let found = type_of(error.instance());
                let separators =
                    error.instance().as_str().is_some_and(|text| text.contains('_') && text.replace('_', "").parse::<u64>().is_ok());
                let help = if separators {
                    Some("separators are for counts only; write the plain integer".to_owned())
                } else if want == "text" && matches!(error.instance().as_ref(), Value::Number(_) | Value::Bool(_)) {
                    Some("put it in quotes".to_owned())
                } else {
                    None
                };
                report(Code::WrongType, value, &format!("not {want}"), format!("{named} takes {want}, found {found}"), help);
            }
            E::Enum { options } => {
                let options: Vec<String> = options.as_array().into_iter().flatten().map(plain).collect();
                let found = plain(error.instance());
                let help = match fv_data::nearest(&found, options.iter().map(String::as_str)).first() {
                    Some(best) => format!("did you mean `{best}`? allowed: {}", options.join(", ")),
                    None => format!("allowed: {}", options.join(", ")),
                };
                report(
                    Code::NotAllowed,
                    value,
                    "not one of the allowed values",
                    format!("{named} cannot be `{}`", short(&found)),
                    Some(help),
                );
            }
            E::Constant { expected_value } => {
                let want = plain(expected_value);
                report(
                    Code::NotAllowed,
                    value,
                    "not allowed",
                    format!("{named} can only be `{want}`"),
                    Some("leave the field out otherwise".into()),
                );
            }
            E::Pattern { pattern } => self.pattern(pattern, error, &named, value, &mut report),
            E::Format { .. } => {
                report(Code::BadDate, value, "not a day", format!("{named} takes a day that exists, as YYYY-MM-DD"), None);
            }
            E::Minimum { limit } => report(Code::OutOfRange, value, "too small", format!("{named} is at least {limit}"), None),
            E::ExclusiveMinimum { limit } => report(Code::OutOfRange, value, "too small", format!("{named} is more than {limit}"), None),
            E::Maximum { limit } => report(Code::OutOfRange, value, "too large", format!("{named} is at most {limit}"), None),
            E::MinLength { .. } | E::MinProperties { .. } => {
                report(Code::Empty, value, "empty", format!("{named} must not be empty"), None)
            }
            E::MinItems { limit: 1 } => report(Code::Empty, value, "empty", format!("{named} must not be empty"), None),
            E::MinItems { limit } => {
                report(
                    Code::BadLength,
                    value,
                    "too few items",
                    format!("{named} has exactly {limit} items, found {}", length(error.instance())),
                    None,
                );
            }
            E::MaxItems { limit } => {
                report(
                    Code::BadLength,
                    value,
                    "too many items",
                    format!("{named} has exactly {limit} items, found {}", length(error.instance())),
                    None,
                );
            }
            E::UniqueItems => {
                let (span, item) = repeated(node).unwrap_or((value, String::new()));
                report(Code::DuplicateItem, span, "again here", format!("{named} lists `{}` twice", short(&item)), None);
            }
            E::PropertyNames { error: inner } => {
                let name = inner.instance().as_str().unwrap_or_default();
                let span = node.entry(name).map_or(here, |(key, _)| key.span.clone());
                let help = "lower-case letters and digits, with single `.`, `-` or `_` between them";
                let help = if name.chars().any(char::is_uppercase) && field == "env" { "letters, digits and `_`" } else { help };
                report(Code::BadId, span, "not an id", format!("`{}` cannot be a key here", short(name)), Some(help.into()));
            }
            // Our schemas use no other keyword; say so rather than nothing.
            other => report(Code::BadFormat, value, "here", format!("{named} breaks the rule `{}`", other.keyword()), None),
        }
    }

    fn pattern(
        &self,
        pattern: &str,
        error: &ValidationError,
        named: &str,
        span: Span,
        report: &mut impl FnMut(Code, Span, &str, String, Option<String>),
    ) {
        use fv_spec::schema::{ID, PARTITION_ID, URL};
        let found = short(&plain(error.instance()));
        if pattern == URL {
            // The value may hold a password, so it is not repeated.
            let help = "an address that anybody can open, without a user name or password";
            report(Code::BadFormat, span, "not an HTTP(S) address", format!("{named} takes an HTTP(S) address"), Some(help.into()));
        } else if pattern == ID || pattern == PARTITION_ID {
            let help = "lower-case letters and digits, with single `.`, `-` or `_` between them";
            report(Code::BadId, span, "not an id", format!("{named} cannot be `{found}`"), Some(help.into()));
        } else if pattern.contains("_[0-9]{3}") {
            let help = "a positive integer, as 1_489_821_760 or 1489821760";
            report(Code::BadCount, span, "not a count", format!("{named} takes a count, found `{found}`"), Some(help.into()));
        } else {
            let help = match pattern {
                p if p.contains("synthetic") => "`checkpoint`, or `synthetic:` and a seed",
                p if p.contains("a-f") => "64 lower-case hexadecimal digits",
                _ => "major and minor version in quotes, such as \"9.0\"",
            };
            report(Code::BadFormat, span, "wrong form", format!("{named} cannot be `{found}`"), Some(help.into()));
        }
    }

    /// The `properties` beside the keyword that failed.
    fn properties_beside(&self, error: &ValidationError) -> Vec<&str> {
        let path = error.schema_path().as_str();
        let parent = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        let properties = self.schema.pointer(parent).and_then(|s| s["properties"].as_object());
        properties.map(|p| p.keys().map(String::as_str).collect()).unwrap_or_default()
    }
}

/// A finding and the JSON pointer of the mapping or value that broke the rule.
type Placed = (String, Finding);

/// A misspelt required field is both unknown and missing: one finding says both.
fn merge_misspelt(findings: &mut Vec<Placed>) {
    let corrected: BTreeSet<(String, String)> = findings
        .iter()
        .filter(|(_, f)| f.code == Code::UnknownField)
        .filter_map(|(parent, f)| Some((parent.clone(), f.help.as_deref()?.strip_prefix("did you mean ")?.strip_suffix('?')?.to_owned())))
        .collect();
    findings.retain(|(parent, f)| {
        let missing = f.message.strip_prefix("missing field ").unwrap_or_default();
        f.code != Code::MissingField || !corrected.contains(&(parent.clone(), missing.to_owned()))
    });
}

/// What the parser refused, as findings.
pub(crate) fn problems(file: &Arc<SourceFile>, problems: Vec<Problem>) -> Vec<Finding> {
    problems
        .into_iter()
        .map(|problem| {
            let mut labels = problem.labels.into_iter();
            let (span, label) = labels.next().unwrap_or_default();
            let mut finding = Finding::new(problem.code, file, span, label, problem.message);
            finding.help = problem.help;
            labels.fold(finding, |finding, (span, text)| finding.also(span, text))
        })
        .collect()
}

/// The span as far as the end of its first line, so that a label never covers a page.
pub(crate) fn first_line(file: &SourceFile, span: &Span) -> Span {
    let text = file.text.get(span.clone()).unwrap_or_default();
    let end = text.find(['\n', '\r']).map_or(span.end, |i| span.start + i);
    span.start..end
}

pub(crate) fn step<'a>(segment: &'a LocationSegment<'_>) -> Step<'a> {
    match segment {
        LocationSegment::Property(name) => Step::Key(name),
        LocationSegment::Index(i) => Step::Index(*i),
    }
}

fn repeated(node: &Node) -> Option<(Span, String)> {
    let Kind::Sequence(items) = &node.kind else { return None };
    let values: Vec<Value> = items.iter().map(Node::to_json).collect();
    let at = (1..values.len()).find(|&i| values[..i].contains(&values[i]))?;
    Some((items[at].span.clone(), plain(&values[at])))
}

fn length(value: &Value) -> usize {
    value.as_array().map_or(0, Vec::len)
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn type_words(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(one) => type_word(&one.to_string()).to_owned(),
        TypeKind::Multiple(_) => "a count".to_owned(),
    }
}

fn type_word(name: &str) -> &'static str {
    match name {
        "integer" => "an integer",
        "number" => "a number",
        "string" => "text",
        "boolean" => "true or false",
        "array" => "a list",
        "object" => "a mapping",
        _ => "another type",
    }
}

pub(crate) fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
