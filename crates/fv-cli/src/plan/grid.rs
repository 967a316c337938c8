//! Plans over capacities.

use fv_estimate::{
    error::InputError,
    grid::{Axes, Cell, Grid},
    planner::{Outcome, freevideo::Question},
    render::{self, Names},
};
use fv_spec::{
    estimate::Reason,
    plan::{OperatingSystem, PlanRequest},
};

use super::{
    Session, answered,
    arguments::{GridArguments, GridFormat},
    machine::{Described, Memory, machine},
    question::{model_of, request},
    save,
};
use crate::{stop::Stop, terminal};

/// `grid`: plans every combination of device and host memory.
///
/// # Errors
/// Wrong input. Combinations that do not fit are a part of the answer.
pub fn grid(session: &mut Session<'_>, arguments: &GridArguments) -> Result<(), Stop> {
    let axes = Axes::new(arguments.vram, arguments.ram, arguments.step).map_err(|error| Stop::wrong([error]))?;
    let (planner, model) = model_of(session, &arguments.model)?;
    let Some((vram, ram)) = axes.vram.first().zip(axes.ram.first()) else { return Ok(()) };
    let memory = Memory::given(vram.bytes(), ram.bytes());
    let Described { machine, name, rates } = machine(session, &arguments.machine, memory, Vec::new())?;
    if machine.os.value == OperatingSystem::Macos {
        let message = "device memory is the host's on macOS, so that there is no grid of both; \
            `plan --system macos --ram-gib N` says what is known of it";
        return Err(Stop::wrong([InputError::new("conflict", message)]));
    }
    let request = request(&arguments.request);
    let capacity_trial = arguments.machine.capacity_trial;
    let mut question = Question { request, machine, capacity_trial, demonstrated_host_bytes: None };
    let rules = session.store.rules()?;
    let mut seen: Option<PlanRequest> = None;
    let mut unforecast: Vec<Reason> = Vec::new();
    let mut cells = Grid::new(axes, |vram, ram| {
        let pools = [(&mut question.machine.vram, vram), (&mut question.machine.host, ram)];
        for (pool, bytes) in pools {
            if let Some(pool) = pool {
                pool.free.bytes = bytes;
                // A card with less in all is another card.
                pool.total = None;
            }
        }
        let outcome = answered(&planner, &question, &rates, &rules)?;
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
        cell(outcome)
    })?;
    cells.unforecast = unforecast;
    // A file has no place for it. Of a card that nobody named nothing was expected.
    if arguments.format != GridFormat::Table && name.is_some() && !cells.unforecast.is_empty() {
        let why: Vec<&str> = cells.unforecast.iter().map(|reason| reason.message.as_str()).collect();
        writeln!(session.err, "note: not every time has a figure: {}", why.join("; "))?;
    }
    let names = Names { model: &model, device: name.as_deref() };
    let about = seen.map_or(String::new(), |request| about(&question, &request, &names));
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

fn cell(outcome: Outcome) -> Result<Cell, Stop> {
    match outcome {
        Outcome::Planned(plan) => Ok(Cell::of(&plan)),
        Outcome::Refused(_) => Ok(Cell::Refused),
        Outcome::Unplanned(unplanned) => {
            let why = unplanned.reasons.into_iter().map(|reason| reason.message).collect::<Vec<_>>();
            Err(Stop::Usage(why.join("\nerror: ")))
        }
    }
}

/// What was planned, in a line.
fn about(question: &Question, request: &PlanRequest, names: &Names<'_>) -> String {
    let machine = &question.machine;
    let on = names.device.map_or(String::new(), |name| format!(", {name}"));
    let passes = if question.request.two_pass.is_some() { "two passes" } else { "one pass" };
    format!(
        "{} x {}, {} frames, {} steps in {passes}, {}{on}",
        request.width,
        request.height,
        request.frames,
        request.steps,
        machine.os.value.word()
    )
}
