//! Fitted coefficients, found by id. One that the catalog lacks makes a time unknown; none has a stand-in.

use fv_spec::authored::Coefficient;
use fv_spec::compiled::RulesFile;
use fv_spec::estimate::Reason;

/// Coefficients whose ids begin alike.
#[derive(Debug, Clone, Copy)]
pub struct Coefficients<'a> {
    rules: &'a RulesFile,
    prefix: &'a str,
}

impl<'a> Coefficients<'a> {
    /// Those whose ids begin with `prefix`, the hyphen at its end included.
    pub fn new(rules: &'a RulesFile, prefix: &'a str) -> Self {
        Self { rules, prefix }
    }

    /// One of them as authored.
    pub fn find(&self, name: &str) -> Option<&'a Coefficient> {
        self.rules.coefficients.get(&format!("{}{name}", self.prefix))
    }

    /// Its value, which must be finite and not negative.
    ///
    /// # Errors
    /// Which coefficient is missing.
    pub fn value(&self, name: &str) -> Result<f64, Reason> {
        let value = self.find(name).map(|coefficient| coefficient.value).filter(|value| value.is_finite() && *value >= 0.0);
        value.ok_or_else(|| Reason::new("missing-coefficient", format!("the catalog's rules lack {}{name}", self.prefix)))
    }

    /// Its value, which must be above nothing.
    ///
    /// # Errors
    /// Which coefficient is missing.
    pub fn positive(&self, name: &str) -> Result<f64, Reason> {
        let value = self.value(name)?;
        if value > 0.0 {
            return Ok(value);
        }
        Err(Reason::new("missing-coefficient", format!("{}{name} is 0, which nothing can be divided by", self.prefix)))
    }
}
