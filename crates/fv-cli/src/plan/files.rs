//! Plans that were written before.

use std::path::Path;

use fv_estimate::{
    error::InputError,
    planner::{check, diff, explain},
    render::{self, Text},
};
use fv_spec::plan::Plan;

use super::{Session, text_of};
use crate::stop::Stop;

/// Reads a plan; one that contradicts itself is refused.
pub(super) fn read(path: &Path) -> Result<Plan, Stop> {
    let at = |error: InputError| InputError::new(error.code, format!("{}: {error}", path.display()));
    check::read(&text_of(path)?).map_err(|errors| Stop::wrong(errors.into_iter().map(at)))
}

pub(super) fn explain(session: &mut Session<'_>, file: &Path) -> Result<(), Stop> {
    let explanation = explain::explain(&read(file)?);
    session.answer(&explanation, |width| render::plan_explanation(&explanation, width))
}

pub(super) fn diff(session: &mut Session<'_>, [a, b]: [&Path; 2]) -> Result<(), Stop> {
    let diff = diff::diff(&read(a)?, &read(b)?);
    let names = [a, b].map(|path| path.display().to_string());
    session.answer(&diff, |width| render::plan_diff(&diff, [&names[0], &names[1]], width))?;
    if diff.same { Ok(()) } else { Err(Stop::No) }
}

pub(super) fn check(session: &mut Session<'_>, file: &Path) -> Result<(), Stop> {
    let plan = read(file)?;
    let value = serde_json::json!({ "version": plan.version, "id": plan.id, "sound": true });
    session.answer(&value, |_| Text::said(&format!("{}: plan {} is sound", file.display(), plan.id)))
}
