//! The shape of authored files: JSON Schema violations turned into findings that point at the YAML.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use fv_spec::{
    authored::Role,
    schema,
    units::{Count, MAX_JSON_INTEGER},
};
use jsonschema::{
    ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind as E},
    paths::LocationSegment,
};
use serde_json::Value;

use crate::{
    codes::Code,
    finding::{Finding, SourceFile, Span, suggest},
    yaml::{Key, Kind, Node, Problem, Step, short},
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
            let index = Index::new(root);
            for error in self.validator.iter_errors(&value) {
                self.explain(&error, file, &mut findings, &index);
            }
            merge_misspelt(&mut findings);
        }
        if has_odd_number(&value) {
            self.numbers(&self.schema, file, root, None, &mut findings);
        }
        (value, findings.into_iter().map(|(_, finding)| finding).collect())
    }

    fn explain(&self, error: &ValidationError, file: &Arc<SourceFile>, findings: &mut Vec<Placed>, index: &Index) {
        let location = error.instance_path();
        let steps: Vec<_> = location.iter().collect();
        let Some((key, node)) = index.at(steps.iter().map(step)) else { return };
        if matches!(node.kind, Kind::Refused) {
            return;
        }
        let item = matches!(steps.last(), Some(LocationSegment::Index(_)));
        let field = steps.iter().rev().find_map(|s| match s {
            LocationSegment::Property(name) if item => Some(format!("an item of `{}`", short(name))),
            LocationSegment::Property(name) => Some(format!("`{}`", short(name))),
            LocationSegment::Index(_) => None,
        });
        let named = field.unwrap_or_else(|| "the file".to_owned());
        let value = first_line(file, &node.span);
        let here = key.map_or_else(|| value.clone(), |key| key.span.clone());
        let mut report = |code, span: Span, label: &str, message: String, help: Option<String>| {
            let mut finding = Finding::new(code, file, span, label, message);
            finding.help = help;
            findings.push((location.as_str().to_owned(), finding));
        };
        match error.kind() {
            E::AdditionalProperties { unexpected } | E::UnevaluatedProperties { unexpected } => {
                let known = self.properties_beside(error);
                let unexpected: BTreeSet<&str> = unexpected.iter().map(String::as_str).collect();
                for (key, _) in node.entries().iter().filter(|(key, _)| unexpected.contains(key.name.as_str())) {
                    let (code, help) = if key.name == "decode_feature_multiplier" && known.contains(&"parameter_count") {
                        (Code::VaeOnly, "only a VAE has decoder features".to_owned())
                    } else {
                        (Code::UnknownField, suggest(&key.name, known.iter().copied(), "allowed fields"))
                    };
                    report(code, key.span.clone(), "not a field here", format!("unknown field `{}`", short(&key.name)), Some(help));
                }
            }
            E::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                report(Code::MissingField, here, &format!("this needs `{name}`"), format!("missing field `{name}`"), None);
            }
            E::UniqueItems => {
                let (span, item) = repeated(node).unwrap_or((value, String::new()));
                report(Code::DuplicateItem, span, "again here", format!("{named} lists `{}` twice", short(&item)), None);
            }
            E::PropertyNames { error: inner } => {
                let name = inner.instance().as_str().unwrap_or_default().to_owned();
                let span = node.entry(&name).map_or(here, |(key, _)| key.span.clone());
                let help = if named == "`env`" { "a name without `=`" } else { ID_FORM };
                report(Code::BadId, span, "not a name for this", format!("`{}` cannot be a key here", short(&name)), Some(help.into()));
            }
            // The type is wrong already.
            E::Constant { expected_value } if type_of(expected_value) != type_of(error.instance()) => {}
            E::Enum { options } if options.as_array().is_some_and(|o| o.iter().all(|o| type_of(o) != type_of(error.instance()))) => {}
            _ => {
                let Said { code, label, message, help } = describe(error, &named);
                report(code, value, &label, message, help);
            }
        }
    }

    /// Numbers that a JSON Schema lets through and a reader does not: integers written with a fraction or an exponent,
    /// and counts too large to keep exactly.
    fn numbers(&self, schema: &Value, file: &Arc<SourceFile>, node: &Node, key: Option<&str>, findings: &mut Vec<Placed>) {
        if let Some(name) = schema["$ref"].as_str().and_then(|path| path.strip_prefix('#')) {
            if let Some(target) = self.schema.pointer(name) {
                self.numbers(target, file, node, key, findings);
            }
            return;
        }
        match &node.kind {
            Kind::Mapping(entries) => {
                for (key, value) in entries {
                    let inner = schema["properties"].get(&key.name).or_else(|| schema.get("additionalProperties"));
                    if let Some(inner) = inner.filter(|inner| inner.is_object()) {
                        self.numbers(inner, file, value, Some(&key.name), findings);
                    }
                }
            }
            Kind::Sequence(items) => items.iter().for_each(|item| self.numbers(&schema["items"], file, item, key, findings)),
            Kind::Scalar(value) => {
                let named = key.map_or_else(|| "the value".to_owned(), |key| format!("`{}`", short(key)));
                let integer =
                    schema["type"] == "integer" || schema["type"].as_array().is_some_and(|types| types.contains(&"integer".into()));
                let whole = value.as_f64().filter(|_| value.is_f64()).is_some_and(|number| number.fract() == 0.0);
                let count = schema["pattern"] == schema::COUNT
                    && value.as_str().is_some_and(|text| is_grouped(text) && Count::parse(text).is_none());
                let (code, label, message) = if integer && whole {
                    (Code::WrongType, "not an integer", format!("{named} takes an integer, found a number with a fraction or exponent"))
                } else if count {
                    (Code::OutOfRange, "too large", format!("{named} is at most {MAX_JSON_INTEGER}"))
                } else {
                    return;
                };
                findings.push((String::new(), Finding::new(code, file, node.span.clone(), label, message)));
            }
            Kind::Refused => {}
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

/// What to say of a value that breaks one rule.
struct Said {
    code: Code,
    label: String,
    message: String,
    help: Option<String>,
}

const ID_FORM: &str = "lower-case letters and digits, with single `.`, `-` or `_` between them";

/// What to say of a value for which the keyword alone decides.
fn describe(error: &ValidationError, named: &str) -> Said {
    let said = |code, label: &str, message: String, help: Option<String>| Said { code, label: label.to_owned(), message, help };
    match error.kind() {
        E::Type { kind } => {
            let want = type_words(kind);
            let instance = error.instance();
            let separators = instance.as_str().is_some_and(|text| text.contains('_') && text.replace('_', "").parse::<u64>().is_ok());
            let help = match (want.as_str(), instance.as_ref()) {
                _ if separators => Some("separators are for counts only; write the plain integer"),
                ("a mapping", Value::String(_)) if Role::ALL.iter().any(|role| named == format!("`{}`", role.word())) => {
                    Some("write { ref: component }")
                }
                ("true or false", _) => Some("write true or false"),
                ("a list", Value::String(_)) if named == "`patch_size`" => Some("write three integers, as [1, 2, 2]"),
                (_, Value::Null) => Some("leave the field out when there is nothing to say"),
                ("text", Value::Number(_) | Value::Bool(_)) => Some("put it in quotes"),
                ("an integer" | "a number", Value::String(_)) => Some("write the number alone, without quotes, unit or separators"),
                ("a mapping", Value::String(_) | Value::Number(_))
                    if matches!(named, "`nominal`" | "`usable`" | "`memory`" | "`host_memory`") =>
                {
                    Some("write value and unit, as { value: 24, unit: GB }")
                }
                _ => None,
            };
            let found = if instance.is_number() { instance.to_string() } else { type_of(instance).to_owned() };
            said(Code::WrongType, &format!("not {want}"), format!("{named} takes {want}, found {}", short(&found)), help.map(str::to_owned))
        }
        E::Enum { options } => {
            let options: Vec<String> = options.as_array().into_iter().flatten().map(plain).collect();
            let found = plain(error.instance());
            let list = options.join(", ");
            // Numbers do not resemble each other.
            let near = if error.instance().is_string() { fv_data::nearest(&found, options.iter().map(String::as_str)) } else { Vec::new() };
            let help = match near.first() {
                Some(best) => format!("did you mean `{best}`? allowed: {list}"),
                None => format!("allowed: {list}"),
            };
            said(Code::NotAllowed, "not one of the allowed values", format!("{named} cannot be `{}`", short(&found)), Some(help))
        }
        E::Constant { expected_value } => {
            let message = format!("{named} can only be `{}`", plain(expected_value));
            said(Code::NotAllowed, "not allowed", message, Some("leave the field out otherwise".into()))
        }
        E::Pattern { pattern } => broken_pattern(pattern, error, named),
        E::Format { .. } => said(Code::BadDate, "not a day", format!("{named} takes a day that exists, as YYYY-MM-DD"), None),
        E::Minimum { limit } => said(Code::OutOfRange, "too small", format!("{named} is at least {limit}"), None),
        E::ExclusiveMinimum { limit } => said(Code::OutOfRange, "too small", format!("{named} is more than {limit}"), None),
        E::Maximum { limit } => said(Code::OutOfRange, "too large", format!("{named} is at most {limit}"), None),
        E::MinLength { .. } | E::MinProperties { .. } | E::MinItems { limit: 1 } => {
            said(Code::Empty, "empty", format!("{named} must not be empty"), None)
        }
        E::MinItems { limit } | E::MaxItems { limit } => {
            let found = error.instance().as_array().map_or(0, Vec::len);
            said(Code::BadLength, "wrong number of items", format!("{named} has exactly {limit} items, found {found}"), None)
        }
        // Our schemas use no other keyword; say so rather than nothing.
        other => said(Code::BadFormat, "here", format!("{named} breaks the rule `{}`", other.keyword()), None),
    }
}

fn broken_pattern(pattern: &str, error: &ValidationError, named: &str) -> Said {
    use schema::{ID, PARTITION_ID, URL};
    let found = short(&plain(error.instance()));
    let (code, label, message, help) = match pattern {
        // The value may hold a password, so it is not repeated.
        URL => {
            let help = "an address that anybody can open, without a user name or password";
            (Code::BadFormat, "not an HTTP(S) address", format!("{named} takes an HTTP(S) address"), help)
        }
        ID | PARTITION_ID => (Code::BadId, "not an id", format!("{named} cannot be `{found}`"), ID_FORM),
        schema::COUNT => {
            let help = "a positive integer, as 1_489_821_760 or 1489821760";
            (Code::BadCount, "not a count", format!("{named} takes a count, found `{found}`"), help)
        }
        p => {
            let help = match p {
                p if p.contains("synthetic") => "`checkpoint`, or `synthetic:` and a seed",
                p if p.contains("a-f") => "64 lower-case hexadecimal digits",
                _ => "major and minor version in quotes, such as \"9.0\"",
            };
            (Code::BadFormat, "wrong form", format!("{named} cannot be `{found}`"), help)
        }
    };
    Said { code, label: label.to_owned(), message, help: Some(help.to_owned()) }
}

/// A tree whose first level is found by name at once: files of entries are long.
struct Index<'n> {
    root: &'n Node,
    first: HashMap<&'n str, usize>,
}

impl<'n> Index<'n> {
    fn new(root: &'n Node) -> Self {
        Self { root, first: root.entries().iter().enumerate().map(|(i, (key, _))| (key.name.as_str(), i)).collect() }
    }

    fn at<'p>(&self, mut path: impl Iterator<Item = Step<'p>>) -> Option<(Option<&'n Key>, &'n Node)> {
        match path.next() {
            None => Some((None, self.root)),
            Some(Step::Key(name)) => {
                let (key, node) = &self.root.entries()[*self.first.get(name)?];
                let rest: Vec<Step> = path.collect();
                if rest.is_empty() { Some((Some(key), node)) } else { node.at(rest) }
            }
            Some(first) => self.root.at(std::iter::once(first).chain(path)),
        }
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

/// Whether a value holds a number that [`Shape::numbers`] may refuse; most hold none.
fn has_odd_number(value: &Value) -> bool {
    match value {
        Value::Number(number) => number.is_f64() && number.as_f64().is_some_and(|number| number.fract() == 0.0),
        Value::String(text) => text.len() > 16 && is_grouped(text),
        Value::Array(items) => items.iter().any(has_odd_number),
        Value::Object(fields) => fields.values().any(has_odd_number),
        Value::Null | Value::Bool(_) => false,
    }
}

/// Digits grouped by thousands, however many.
fn is_grouped(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || b == b'_') && text.len() > 1
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
