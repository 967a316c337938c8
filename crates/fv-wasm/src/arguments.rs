//! Questions read from JSON. Everything that is wrong is said at once, with what is allowed and what was probably meant.

use std::collections::BTreeMap;

use fv_estimate::budget::Asked;
use fv_estimate::device::{gib_to_bytes, reserve_to_bytes};
use fv_estimate::error::{nearest, quoted, readable};
use fv_estimate::evidence::WantedRevisions;
use fv_estimate::resolve::Overrides;
use fv_estimate::resolve::fv_run::{DEPLOYMENT, deployment};
use fv_spec::authored::Runtime;
use fv_spec::compiled::{Example, Model};
use fv_spec::plan::Precision;
use fv_spec::request::PartialRequest;
use serde_json::{Map, Value};

use crate::problem::{Problem, Problems};
use crate::session::{typed, value};

/// The fields of one object, taken one by one.
#[derive(Debug)]
pub struct Fields {
    map: Map<String, Value>,
    /// What stands before the names of fields, such as `workload.`.
    prefix: &'static str,
    known: Vec<&'static str>,
    /// What is wrong so far.
    pub problems: Problems,
}

impl Fields {
    /// The object in `text`; an empty text is an empty object.
    ///
    /// # Errors
    /// When it is not one.
    pub fn read(text: &str, what: &str) -> Result<Self, Problems> {
        if text.is_empty() {
            return Ok(Self::new(Map::new(), ""));
        }
        match value(text, what)? {
            Value::Object(map) => Ok(Self::new(map, "")),
            other => Err(vec![Problem::new("invalid-type", what, format!("{what}: found {}, allowed: an object", kind(&other)))]),
        }
    }

    fn new(map: Map<String, Value>, prefix: &'static str) -> Self {
        Self { map, prefix, known: Vec::new(), problems: Vec::new() }
    }

    fn take(&mut self, name: &'static str) -> Option<Value> {
        self.known.push(name);
        self.map.swap_remove(name)
    }

    fn wrong(&mut self, name: &str, found: &Value, allowed: &str) {
        let field = format!("{}{name}", self.prefix);
        let message = format!("{field}: found {}, allowed: {allowed}", kind(found));
        self.problems.push(Problem::new("invalid-type", &field, message));
    }

    fn known<T>(&mut self, name: &'static str, allowed: &str, read: impl FnOnce(&Value) -> Option<T>) -> Option<T> {
        let found = self.take(name)?;
        let value = read(&found);
        if value.is_none() {
            self.wrong(name, &found, allowed);
        }
        value
    }

    /// A number.
    pub fn number(&mut self, name: &'static str) -> Option<f64> {
        self.known(name, "a number", Value::as_f64)
    }

    /// A whole number.
    pub fn whole(&mut self, name: &'static str) -> Option<u32> {
        self.known(name, "a whole number from 0 to 4294967295", whole)
    }

    /// Text that says something.
    pub fn text(&mut self, name: &'static str) -> Option<String> {
        self.known(name, "text", |value| value.as_str().filter(|text| !text.trim().is_empty()).map(|text| text.trim().to_owned()))
    }

    /// Yes or no; no when it is not said.
    pub fn flag(&mut self, name: &'static str) -> bool {
        self.known(name, "true or false", Value::as_bool).unwrap_or(false)
    }

    /// A list of numbers.
    pub fn numbers(&mut self, name: &'static str) -> Option<Vec<f64>> {
        self.known(name, "a list of numbers", |value| value.as_array()?.iter().map(Value::as_f64).collect())
    }

    /// A list of whole numbers.
    pub fn wholes(&mut self, name: &'static str) -> Option<Vec<u32>> {
        self.known(name, "a list of whole numbers", |value| value.as_array()?.iter().map(whole).collect())
    }

    /// A list of height and width.
    pub fn sizes(&mut self, name: &'static str) -> Option<Vec<[u32; 2]>> {
        let edge = |size: &Value, name: &str| whole(size.get(name)?);
        let size = |size: &Value| Some([edge(size, "height")?, edge(size, "width")?]);
        self.known(name, "a list of {height, width}", |value| value.as_array()?.iter().map(size).collect())
    }

    /// An object.
    fn object(&mut self, name: &'static str) -> Map<String, Value> {
        self.known(name, "an object", |value| value.as_object().cloned()).unwrap_or_default()
    }

    /// What is wrong, fields that nobody asked for included.
    pub(crate) fn wrongs(mut self) -> Problems {
        for name in self.map.keys() {
            let near = nearest(name, self.known.iter().copied());
            let hint = near.map_or_else(|| format!("; there are {}", self.known.join(", ")), |near| format!("; did you mean `{near}`?"));
            let field = format!("{}{name}", self.prefix);
            let message = format!("{}{}: no such field{hint}", self.prefix, quoted(name));
            self.problems.push(Problem::new("unknown-field", &field, message));
        }
        self.problems
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// What is wrong, fields that nobody asked for included.
    pub fn finish(self) -> Result<(), Problems> {
        let problems = self.wrongs();
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }
}

fn whole(value: &Value) -> Option<u32> {
    // `81.0` is a whole number, too.
    let exact = || value.as_f64().filter(|number| number.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(number));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in bounds")]
    value.as_u64().and_then(|number| u32::try_from(number).ok()).or_else(|| exact().map(|number| number as u32))
}

/// What a value is, for messages.
fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.as_f64().map_or_else(|| number.to_string(), readable),
        Value::String(text) => format!("the text {}", quoted(text)),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

/// How a model is run, and what is asked of it.
#[derive(Debug, Default)]
pub struct Subject {
    /// A deployment of the model by id; without it, its first.
    pub deployment: Option<String>,
    /// A deployment that is none of the model's, such as an edited one.
    pub example: Option<Example>,
    /// The request.
    pub request: PartialRequest,
    /// What the user sets.
    pub overrides: Overrides,
}

impl Subject {
    /// Reads `{deployment | example, workload, settings, env}`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(text: &str) -> Result<Self, Problems> {
        let mut fields = Fields::read(text, "question")?;
        let deployment = fields.text("deployment");
        let example = fields.take("example").map(|value| typed::<Example>(value, "config"));
        let mut workload = Fields::new(fields.object("workload"), "workload.");
        let request = PartialRequest {
            height: workload.whole("height"),
            width: workload.whole("width"),
            num_frames: workload.whole("num_frames"),
            seconds: workload.number("seconds"),
            batch: workload.whole("batch"),
            guidance_scale: workload.number("guidance_scale"),
            num_inference_steps: workload.whole("num_inference_steps"),
            text_tokens: workload.whole("text_tokens"),
            references: workload.whole("references"),
        };
        let set = fields.object("settings").into_iter().collect();
        let mut env = BTreeMap::new();
        for (name, value) in fields.object("env") {
            match value {
                Value::String(text) => _ = env.insert(name, text),
                other => fields.wrong(&format!("env.{name}"), &other, "text"),
            }
        }
        let mut problems = workload.wrongs();
        problems.extend(fields.wrongs());
        let example = match example.transpose() {
            Ok(example) => example,
            Err(wrong) => {
                problems.extend(wrong);
                None
            }
        };
        let overrides = Overrides { env, set, unified_memory: false };
        if problems.is_empty() { Ok(Self { deployment, example, request, overrides }) } else { Err(problems) }
    }

    /// Whether somebody chose the deployment.
    pub fn chosen(&self) -> bool {
        self.deployment.is_some() || self.example.is_some()
    }

    /// Adds the deployment in our own runtime where it is asked for and the model has none.
    pub fn add_own(&mut self, model: &Model) {
        let asked = self.deployment.as_ref().is_some_and(|id| id.eq_ignore_ascii_case(DEPLOYMENT));
        if asked && !model.examples.iter().any(|example| example.runtime == Runtime::FvRun) {
            self.example = deployment(model);
        }
    }

    /// The deployment that is meant.
    ///
    /// # Errors
    /// When the model has none of that id.
    pub fn example<'a>(&'a self, model: &'a Model) -> Result<&'a Example, Problems> {
        if let Some(example) = &self.example {
            return Ok(example);
        }
        let Some(id) = &self.deployment else {
            let none = || vec![Problem::new("unknown-deployment", "config", format!("{} has no deployment", model.id))];
            return model.examples.first().ok_or_else(none);
        };
        let known = || model.examples.iter().map(|example| example.id.as_str());
        model.examples.iter().find(|example| example.id.eq_ignore_ascii_case(id)).ok_or_else(|| {
            let hint = nearest(id, known()).map_or(String::new(), |near| format!("; did you mean {near}?"));
            let known = known().collect::<Vec<_>>().join(", ");
            let message = format!("{} has no deployment {}, only {known}{hint}", model.id, quoted(id));
            vec![Problem::new("unknown-deployment", "config", message)]
        })
    }
}

/// What of a device may be used, and which revisions would run.
#[derive(Debug, Default)]
pub struct Limits {
    /// What of a device may be used.
    pub asked: Asked,
    /// Which revisions would run.
    pub revisions: WantedRevisions,
}

impl Limits {
    /// Takes `{memoryBudgetGiB, partitionId, allocationMemoryGb, hostMemoryGb, reserveGiB, runtimeRevision, modelRevision}`.
    pub fn take(fields: &mut Fields) -> Self {
        let mut bytes = |name: &'static str, read: fn(&str, f64) -> Result<u64, fv_estimate::error::InputError>| {
            let value = fields.number(name)?;
            read(&format!("`{name}`"), value).map_err(|error| fields.problems.push(error.into())).ok()
        };
        let memory_budget_bytes = bytes("memoryBudgetGiB", gib_to_bytes);
        let reserve_bytes = bytes("reserveGiB", reserve_to_bytes);
        let asked = Asked {
            memory_budget_bytes,
            reserve_bytes,
            allocation_gb: fields.number("allocationMemoryGb"),
            partition: fields.text("partitionId"),
            host_gb: fields.number("hostMemoryGb"),
            measured_free_bytes: None,
        };
        let revisions =
            WantedRevisions { runtime: fields.text("runtimeRevision"), model: fields.text("modelRevision"), components: BTreeMap::new() };
        Self { asked, revisions }
    }

    /// Reads them, where nothing else is asked.
    ///
    /// # Errors
    /// Everything that is wrong with them.
    pub fn read(text: &str) -> Result<Self, Problems> {
        let mut fields = Fields::read(text, "options")?;
        let limits = Self::take(&mut fields);
        fields.finish()?;
        Ok(limits)
    }
}

/// Takes the format of the transformer's weights.
pub fn precision(fields: &mut Fields) -> Option<Precision> {
    const KNOWN: [Precision; 3] = [Precision::Int8, Precision::Fp8, Precision::Bf16];
    fields.known("precision", "int8, fp8 or bf16", |value| Precision::parse(value.as_str()?).filter(|known| KNOWN.contains(known)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(problems: Problems) -> Vec<(String, String)> {
        problems.into_iter().map(|problem| (problem.field.unwrap_or_default(), problem.message)).collect()
    }

    #[test]
    fn everything_that_is_wrong_with_a_subject_is_said_at_once() {
        let text = r#"{"workload":{"hieght":480,"width":-3,"num_frames":80.5,"seconds":"5"},"env":{"A":1},"set":{}}"#;
        let found = wrong(Subject::read(text).expect_err("wrong"));
        let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, ["workload.width", "workload.num_frames", "workload.seconds", "workload.hieght", "env.A", "set"]);
        assert!(found[3].1.ends_with("did you mean `height`?"), "{}", found[3].1);
        assert_eq!(found[1].1, "workload.num_frames: found 80.5, allowed: a whole number from 0 to 4294967295");
    }

    #[test]
    fn whole_numbers_may_be_written_as_any_number() {
        let subject = Subject::read(r#"{"workload":{"height":480.0,"width":8.32e2,"guidance_scale":5}}"#).expect("sound");
        assert_eq!((subject.request.height, subject.request.width, subject.request.guidance_scale), (Some(480), Some(832), Some(5.0)));
        for text in ["4294967296", "-1", "1e300", "0.5", "null", "true", "[480]"] {
            assert!(Subject::read(&format!(r#"{{"workload":{{"height":{text}}}}}"#)).is_err(), "{text}");
        }
    }

    #[test]
    fn text_that_is_no_json_or_no_object_is_refused() {
        for text in ["{", "[]", "1", "\"a\"", "null", "{\"a\":1}{", "\u{0}"] {
            assert_eq!(Subject::read(text).expect_err("refused").len(), 1, "{text}");
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(wrong(Subject::read(&deep).expect_err("refused"))[0].0, "question");
    }

    #[test]
    fn limits_have_units_and_bounds() {
        let limits = Limits::read(r#"{"memoryBudgetGiB":4,"hostMemoryGb":64,"reserveGiB":0,"partitionId":" 1g.10gb "}"#).expect("sound");
        assert_eq!(limits.asked.memory_budget_bytes, Some(4 << 30));
        assert_eq!((limits.asked.host_gb, limits.asked.reserve_bytes), (Some(64.0), Some(0)));
        assert_eq!(limits.asked.partition.as_deref(), Some("1g.10gb"));
        let found = wrong(Limits::read(r#"{"memoryBudgetGiB":0,"reserveGiB":-1,"partition":"a"}"#).expect_err("wrong"));
        let fields: Vec<&str> = found.iter().map(|(field, _)| field.as_str()).collect();
        assert_eq!(fields, ["memoryBudgetGiB", "reserveGiB", "partition"]);
    }
}
