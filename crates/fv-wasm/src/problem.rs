//! What is wrong with a question.

use fv_estimate::error::InputError;
use serde::Serialize;

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Lower case with hyphens, such as `unknown-field`.
    pub code: String,
    /// A sentence that names what was found and what is allowed.
    pub message: String,
    /// The argument that it is in, such as `workload.height`, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

/// Words that messages begin with, and the argument that each is about.
const FIELDS: [(&str, &str); 22] = [
    ("height", "workload.height"),
    ("width", "workload.width"),
    ("size", "workload"),
    ("frames", "workload.num_frames"),
    ("num_frames", "workload.num_frames"),
    ("seconds", "workload.seconds"),
    ("batch", "workload.batch"),
    ("guidance_scale", "workload.guidance_scale"),
    ("steps", "workload.num_inference_steps"),
    ("num_inference_steps", "workload.num_inference_steps"),
    ("text tokens", "workload.text_tokens"),
    ("text_tokens", "workload.text_tokens"),
    ("references", "workload.references"),
    ("precision", "precision"),
    ("compute capability", "computeCapability"),
    ("`memoryBudgetGiB`", "memoryBudgetGiB"),
    ("`hostMemoryGb`", "hostMemoryGb"),
    ("`reserveGiB`", "reserveGiB"),
    ("`allocationMemoryGb`", "allocationMemoryGb"),
    ("the allocation", "allocationMemoryGb"),
    ("the partition", "partitionId"),
    ("no setting", "settings"),
];

impl Problem {
    /// A problem with one argument.
    pub fn new(code: &str, field: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), field: Some(field.to_owned()) }
    }
}

impl From<InputError> for Problem {
    fn from(error: InputError) -> Self {
        let field = match error.code {
            "unknown-partition" => Some("partitionId"),
            "unknown-key" => Some("settings"),
            "unknown-hardware" | "device-shape" => Some("hardware"),
            _ => FIELDS.iter().find(|(word, _)| starts(&error.message, word)).map(|(_, field)| *field),
        };
        Self { code: error.code.to_owned(), message: error.message, field: field.map(str::to_owned) }
    }
}

/// Whether a message begins with a word, and not just with its letters.
fn starts(message: &str, word: &str) -> bool {
    message.strip_prefix(word).is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_'))
}

/// Everything that is wrong with a question.
pub type Problems = Vec<Problem>;

/// All of what the estimator found wrong.
pub fn all(errors: Vec<InputError>) -> Problems {
    let mut problems: Problems = Vec::new();
    for error in errors {
        // One slip can be met on two ways.
        if !problems.iter().any(|known| known.message == error.message) {
            problems.push(error.into());
        }
    }
    problems
}

/// The shape of an answer that is none.
#[derive(Serialize)]
struct Failure {
    error: All,
}

#[derive(Serialize)]
struct All {
    code: String,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    errors: Problems,
}

/// Problems as JSON: the first one's code and field, all of the messages, and each on its own.
pub fn json(errors: Problems) -> String {
    let message = errors.iter().map(|problem| problem.message.as_str()).collect::<Vec<_>>().join("\n");
    let first = errors.first().cloned();
    let (code, field) = first.map_or((String::new(), None), |first| (first.code, first.field));
    serde_json::to_string(&Failure { error: All { code, message, field, errors } }).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_which_argument_it_is_about() {
        for (code, message, field) in [
            ("invalid-frames", "frames: found 80, allowed: 77 or 81", Some("workload.num_frames")),
            ("invalid-frames", "frames 80: Wan takes 77 or 81", Some("workload.num_frames")),
            ("invalid-value", "framesets: found 1", None),
            ("invalid-capacity", "`memoryBudgetGiB` is -1 GiB; it must lie between 0.001 and 1000000", Some("memoryBudgetGiB")),
            ("unknown-partition", "there is no partition `a`", Some("partitionId")),
            ("unknown-key", "no setting is called \"a\"", Some("settings")),
            ("too-large", "the request is too large", None),
        ] {
            assert_eq!(Problem::from(InputError::new(code, message)).field.as_deref(), field, "{message}");
        }
    }

    #[test]
    fn an_answer_that_is_none_names_the_first_and_holds_all() {
        let twice = || InputError::new("invalid-value", "batch: found 0, allowed: from 1 to 1024");
        let errors = all(vec![twice(), InputError::new("conflict", "both are given"), twice()]);
        assert_eq!(errors.len(), 2, "said once");
        assert_eq!(
            json(errors),
            r#"{"error":{"code":"invalid-value","message":"batch: found 0, allowed: from 1 to 1024\nboth are given","field":"workload.batch","errors":[{"code":"invalid-value","message":"batch: found 0, allowed: from 1 to 1024","field":"workload.batch"},{"code":"conflict","message":"both are given"}]}}"#
        );
    }
}
