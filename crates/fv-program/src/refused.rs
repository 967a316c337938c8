//! Why something cannot be lowered.

/// One thing that is wrong with a request or with choices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// For machines, such as `residency.slots`.
    pub code: &'static str,
    /// What has to be changed, such as `transformers[0].slots`.
    pub field: String,
    /// What was found and what is allowed.
    pub message: String,
}

impl Refused {
    /// A refusal.
    pub fn new(code: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, field: field.into(), message: message.into() }
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
