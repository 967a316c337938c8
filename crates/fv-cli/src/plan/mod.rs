//! The commands `plan` and `grid`: from arguments to a question, from its answer to text.
//!
//! A program brings a [`Session`]: its catalog, where output goes, and, if it measures, how.

mod arguments;
mod files;
mod grid;
mod machine;
mod optimal;
mod own_rows;
mod question;
mod rows;

pub use arguments::{GridArguments, GridFormat, PlanArguments};
pub use grid::grid;
pub use machine::Wanted;
pub use optimal::{Lowered, lowered, reference};
pub use rows::read_rows;

use std::{fmt, io::Write, path::Path};

use fv_data::Store;
use fv_estimate::{
    error::InputError,
    forecast::{rates::Rates, request::time},
    planner::{
        Outcome,
        freevideo::{Planner, Question},
    },
    render::{self, Names, Text},
};
use fv_spec::compiled::RulesFile;
use fv_spec::plan::{
    OperatingSystem,
    refusal::{Refusal, Unplanned},
};
use fv_spec::probe::Probe;
use serde::Serialize;

use crate::{stop::Stop, terminal, write};
use arguments::PlanFile;
use question::{Asked, asked};

/// Plans and probes are small; a file that is not is something else.
const MOST_FILE_BYTES: u64 = 64 << 20;

/// What a program has for these commands.
pub struct Session<'a> {
    /// Its catalog.
    pub store: &'a Store,
    /// Where answers go.
    pub out: &'a mut dyn Write,
    /// Where remarks go.
    pub err: &'a mut dyn Write,
    /// Whether answers are JSON.
    pub json: bool,
    /// Whether they are coloured.
    pub paints: bool,
    /// This machine, for programs that measure.
    pub measure: Option<Here<'a>>,
}

/// The machine that the program runs on.
pub struct Here<'a> {
    /// Its operating system.
    pub system: OperatingSystem,
    /// Which of its GPUs is meant: a number or an identifier.
    pub gpu: Option<&'a str>,
    /// Measures what is wanted.
    pub probe: &'a dyn Fn(Wanted) -> Result<Probe, Stop>,
}

impl fmt::Debug for Session<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("json", &self.json).field("measures", &self.measure.is_some()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Here<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Here").field("system", &self.system).field("gpu", &self.gpu).finish_non_exhaustive()
    }
}

impl Session<'_> {
    fn gpu(&self) -> Option<&str> {
        self.measure.as_ref().and_then(|here| here.gpu)
    }

    /// Writes an answer as JSON or as text.
    fn answer(&mut self, value: &impl Serialize, text: impl FnOnce(usize) -> Text) -> Result<(), Stop> {
        let text = if self.json { write::json(value) } else { terminal::shown(&text(terminal::width()), self.paints) };
        Ok(self.out.write_all(text.as_bytes())?)
    }
}

/// `plan`: plans a request, a table of requests, or looks at plans that were written before.
///
/// # Errors
/// Wrong input; no device; a request that does not fit; an answer that is no.
pub fn plan(session: &mut Session<'_>, arguments: &PlanArguments) -> Result<(), Stop> {
    match (&arguments.file, &arguments.requests) {
        (Some(PlanFile::Explain { file }), _) => files::explain(session, file),
        (Some(PlanFile::Diff { a, b }), _) => files::diff(session, [a, b]),
        (Some(PlanFile::Check { file }), _) => files::check(session, file),
        (None, Some(requests)) => rows::rows(session, arguments, requests),
        (None, None) => one(session, arguments),
    }
}

fn one(session: &mut Session<'_>, arguments: &PlanArguments) -> Result<(), Stop> {
    let compiled = crate::lookup::model(session.store, &arguments.model.model)?;
    if optimal::meant(&compiled, &arguments.model) {
        return optimal::one(session, arguments, &compiled);
    }
    let Asked { planner, model, question, name, rates } = asked(session, arguments)?;
    let names = Names { model: &model, device: name.as_deref() };
    let outcome = answered(&planner, &question, &rates, &session.store.rules()?)?;
    say(session, arguments, outcome, &names, |refusal| planner.advise(&question, refusal))
}

/// Answers with a plan, with a refusal and what would do instead, or with why there is no rule; the answer goes to a file as well where
/// one is named.
fn say(
    session: &mut Session<'_>,
    arguments: &PlanArguments,
    outcome: Outcome,
    names: &Names<'_>,
    advise: impl FnOnce(Refusal) -> Result<Refusal, Vec<InputError>>,
) -> Result<(), Stop> {
    let out = arguments.out.as_deref();
    match outcome {
        Outcome::Planned(plan) => {
            save_answer(out, &plan)?;
            session.answer(&plan, |width| render::plan(&plan, names, width))
        }
        Outcome::Refused(refusal) => {
            let refusal = advise(*refusal).map_err(Stop::wrong)?;
            save_answer(out, &refusal)?;
            session.answer(&refusal, |width| render::refusal(&refusal, names, width))?;
            Err(Stop::Refused)
        }
        Outcome::Unplanned(unplanned) => {
            save_answer(out, &unplanned)?;
            let Unplanned { system, request, budgets, reasons, .. } = &*unplanned;
            session.answer(&unplanned, |width| render::unplanned(request, system, budgets, reasons, names, width))?;
            Err(Stop::No)
        }
    }
}

/// The answer to a question with its forecast, for a plan and for each cell of a grid alike.
fn answered(planner: &Planner, question: &Question, rates: &Rates, rules: &RulesFile) -> Result<Outcome, Stop> {
    let mut outcome = planner.plan(question).map_err(Stop::wrong)?;
    if let Outcome::Planned(plan) = &mut outcome {
        time(plan, rates, rules);
    }
    Ok(outcome)
}

/// The planner of a model.
fn planner(store: &Store, name: &str) -> Result<(Planner, String), Stop> {
    let model = crate::lookup::model(store, name)?;
    let planner = Planner::new(&model);
    let wrong = |reasons: Vec<fv_spec::estimate::Reason>| {
        Stop::Usage(reasons.into_iter().map(|reason| reason.message).collect::<Vec<_>>().join("\nerror: "))
    };
    Ok((planner.map_err(wrong)?, model.name))
}

/// The mark that some editors begin a file with.
const MARK: char = '\u{feff}';

/// The text of a file.
fn text_of(path: &Path) -> Result<String, Stop> {
    use std::io::Read;

    let refuse = |why: &dyn fmt::Display| Stop::Usage(format!("{}: {why}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| refuse(&error))?;
    let mut text = Vec::new();
    file.take(MOST_FILE_BYTES + 1).read_to_end(&mut text).map_err(|error| refuse(&error))?;
    if text.len() as u64 > MOST_FILE_BYTES {
        return Err(refuse(&format!("larger than {} MiB", MOST_FILE_BYTES >> 20)));
    }
    if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
        return Err(refuse(&"UTF-16, as some shells write what is redirected with `>`, and not UTF-8; write it with --out"));
    }
    let mut text = String::from_utf8(text).map_err(|error| {
        let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        refuse(&format!("not UTF-8 in line {}", good.split(|byte| *byte == b'\n').count()))
    })?;
    if text.starts_with(MARK) {
        text.drain(..MARK.len_utf8());
    }
    Ok(text)
}

/// Writes an answer as JSON where that is asked for: a plan, or in its place why there is none.
fn save_answer(out: Option<&Path>, answer: &impl Serialize) -> Result<(), Stop> {
    out.map_or(Ok(()), |out| save(out, &write::json(answer)))
}

/// Writes a file whole.
fn save(path: &Path, text: &str) -> Result<(), Stop> {
    write::replace(path, text).map_err(|error| Stop::Usage(format!("{}: {error}", path.display())))
}
