//! Plans over capacities.

use fv_estimate::{
    error::InputError,
    forecast::rates::Rates,
    grid::{Axes, Cell, Grid},
    planner::{
        Outcome,
        freevideo::{self, Machine, Question},
        optimal::{self, Depth},
    },
    render::{self, Names},
};
use fv_spec::{
    compiled::{Model, RulesFile},
    estimate::Reason,
    plan::{OperatingSystem, PlanRequest, PolicyName},
};

use super::{
    Session, answered,
    arguments::{GridArguments, GridFormat},
    machine::{Described, Memory, machine},
    optimal::meant,
    planner, question, save,
};
use crate::{lookup, stop::Stop, terminal};

/// Whose rules decide, with the request in their terms.
enum Rule {
    Freevideo(Box<freevideo::Planner>, freevideo::Asked),
    Optimal(Box<optimal::Planner>, optimal::Asked, Box<Rates>),
}

impl Rule {
    /// The policy that is meant for a model, and what was said that has no meaning there.
    fn of(session: &mut Session<'_>, arguments: &GridArguments, model: &Model) -> Result<(Self, Vec<InputError>), Stop> {
        let request = &arguments.request;
        if meant(model, &arguments.model) {
            let planner = super::optimal::planner(session, model)?;
            let reference = super::optimal::reference(session)?;
            let rule = Self::Optimal(Box::new(planner), super::optimal::request(request), Box::new(reference));
            return Ok((rule, super::optimal::meaningless(&arguments.machine, request)));
        }
        let (planner, _) = planner(session.store, &arguments.model.model)?;
        Ok((Self::Freevideo(Box::new(planner), question::request(request)), question::meaningless(request)))
    }

    fn policy(&self) -> PolicyName {
        match self {
            Self::Freevideo(..) => PolicyName::Freevideo,
            Self::Optimal(..) => PolicyName::Optimal,
        }
    }

    /// Passes, in the words of a line.
    fn passes(&self) -> &'static str {
        match self {
            Self::Freevideo(_, request) if request.two_pass.is_some() => " in two passes",
            Self::Freevideo(..) => " in one pass",
            Self::Optimal(..) => "",
        }
    }

    fn answer(&self, machine: &Machine, capacity_trial: bool, rates: &Rates, rules: &RulesFile) -> Result<Outcome, Stop> {
        match self {
            Self::Freevideo(planner, request) => {
                let (request, machine) = (request.clone(), machine.clone());
                answered(planner, &Question { request, machine, capacity_trial, demonstrated_host_bytes: None }, rates, rules)
            }
            Self::Optimal(planner, request, reference) => {
                let (request, machine) = (request.clone(), machine.clone());
                let question = optimal::Question { request, machine, rates: rates.clone(), reference: (**reference).clone() };
                planner.plan(&question, rules, Depth::Outline).map_err(Stop::wrong)
            }
        }
    }
}

/// `grid`: plans every combination of device and host memory.
///
/// # Errors
/// Wrong input. Combinations that do not fit are a part of the answer.
pub fn grid(session: &mut Session<'_>, arguments: &GridArguments) -> Result<(), Stop> {
    let axes = Axes::new(arguments.vram, arguments.ram, arguments.step).map_err(|error| Stop::wrong([error]))?;
    let model = lookup::model(session.store, &arguments.model.model)?;
    let (rule, errors) = Rule::of(session, arguments, &model)?;
    let Some((vram, ram)) = axes.vram.first().zip(axes.ram.first()) else { return Ok(()) };
    let memory = Memory::given(vram.bytes(), ram.bytes());
    let Described { mut machine, name, rates } = machine(session, &arguments.machine, memory, errors)?;
    if machine.os.value == OperatingSystem::Macos {
        let message = "device memory is the host's on macOS, so that there is no grid of both; \
            `plan --system macos --ram-gib N` says what is known of it";
        return Err(Stop::wrong([InputError::new("conflict", message)]));
    }
    let rules = session.store.rules()?;
    let mut seen: Option<PlanRequest> = None;
    let (mut unforecast, mut unknown): (Vec<Reason>, Vec<Reason>) = (Vec::new(), Vec::new());
    let mut cells = Grid::new(axes, |vram, ram| {
        let pools = [(&mut machine.vram, vram), (&mut machine.host, ram)];
        for (pool, bytes) in pools {
            if let Some(pool) = pool {
                pool.free.bytes = bytes;
                // A card with less in all is another card.
                pool.total = None;
            }
        }
        let outcome = rule.answer(&machine, arguments.machine.capacity_trial, &rates, &rules)?;
        if seen.is_none() {
            seen = Some(match &outcome {
                Outcome::Planned(plan) => plan.request.clone(),
                Outcome::Refused(refusal) => refusal.request.clone(),
                Outcome::Unplanned(unplanned) => unplanned.request.clone(),
            });
        }
        if let Outcome::Planned(plan) = &outcome {
            for reason in &plan.unforecast {
                if !unforecast.contains(reason) {
                    unforecast.push(reason.clone());
                }
            }
        }
        Ok::<Cell, Stop>(match outcome {
            Outcome::Planned(plan) => Cell::of(&plan),
            Outcome::Refused(_) => Cell::Refused,
            Outcome::Unplanned(unplanned) => {
                unknown.extend(unplanned.reasons);
                Cell::Unknown
            }
        })
    })?;
    // Cells differ in figures of one reason.
    unknown.sort_by(|one, other| (&one.code, &one.message).cmp(&(&other.code, &other.message)));
    unknown.dedup_by(|one, other| one.code == other.code);
    if !cells.cells.is_empty() && cells.cells.iter().all(|cell| *cell == Cell::Unknown) {
        return Err(Stop::Usage(unknown.into_iter().map(|reason| reason.message).collect::<Vec<_>>().join("\nerror: ")));
    }
    (cells.unforecast, cells.unknown, cells.policy) = (unforecast, unknown, rule.policy());
    // A file has no place for it. Of a card that nobody named nothing was expected.
    if arguments.format != GridFormat::Table && name.is_some() && !cells.unforecast.is_empty() {
        let why: Vec<&str> = cells.unforecast.iter().map(|reason| reason.message.as_str()).collect();
        writeln!(session.err, "note: not every time has a figure: {}", why.join("; "))?;
    }
    if arguments.format != GridFormat::Table && !cells.unknown.is_empty() {
        writeln!(session.err, "note: some combinations are not known: {}", cells.why_unknown())?;
    }
    let names = Names { model: &model.name, device: name.as_deref() };
    let about = seen.map_or(String::new(), |request| about(rule.passes(), machine.os.value, &request, &names));
    let text = match arguments.format {
        GridFormat::Csv => render::grid_csv(&cells),
        GridFormat::Svg => render::grid_svg(&cells, &names, &about),
        GridFormat::Table => {
            let paints = session.paints && arguments.out.is_none();
            terminal::shown(&render::grid(&cells, &names, &about, terminal::width()), paints)
        }
    };
    match &arguments.out {
        Some(out) => save(out, &text),
        None => Ok(session.out.write_all(text.as_bytes())?),
    }
}

/// What was planned, in a line.
fn about(passes: &str, os: OperatingSystem, request: &PlanRequest, names: &Names<'_>) -> String {
    let on = names.device.map_or(String::new(), |name| format!(", {name}"));
    let PlanRequest { width, height, frames, steps, .. } = request;
    format!("{width} x {height}, {frames} frames, {steps} steps{passes}, {}{on}", os.word())
}
