//! A table of requests that our own runtime's policy plans: each row as `plan` plans it.

use fv_estimate::{
    device::gib_to_bytes,
    error::{InputError, quoted},
    forecast::rates::Rates,
    grid::Way,
    planner::{
        Outcome,
        columns::{places, word},
        optimal::{Asked, Depth, Planner, Question},
    },
};
use fv_spec::{
    compiled::{Model, RulesFile},
    plan::{OperatingSystem, Plan, Precision, StageName, Tier, budget::Resource, refusal::Refusal},
};

use super::{
    Session,
    arguments::MachineArguments,
    machine::{Described, Memory, machine},
    optimal::{planner, reference},
    rows::Rows,
};
use crate::stop::Stop;

/// What a row says.
const GIVEN: [&str; 11] =
    ["system", "hardware", "precision", "width", "height", "frames", "steps", "guidance", "text_tokens", "free_vram_gib", "free_ram_gib"];
/// Those that may be missing, or empty: they are as `plan` has them then.
const OPTIONAL: [&str; 6] = ["system", "hardware", "precision", "steps", "guidance", "text_tokens"];
/// What is written after it.
const DECIDED: [&str; 19] = [
    "status",
    "plan",
    "resident_blocks",
    "pinned_blocks",
    "disk_blocks",
    "slots",
    "head_group",
    "projection_chunk",
    "feed_forward_chunk",
    "outputs_on_host",
    "residual_on_host",
    "vae_tiled",
    "vram_peak_bytes",
    "ram_peak_bytes",
    "step_ns",
    "denoising_ns",
    "request_ns",
    "vram_short_bytes",
    "ram_short_bytes",
];

/// Rows of one model.
pub(super) struct OwnRows<'s, 'a> {
    session: &'s mut Session<'a>,
    planner: Planner,
    rules: RulesFile,
    reference: Rates,
    places: [Option<usize>; GIVEN.len()],
}

impl<'s, 'a> OwnRows<'s, 'a> {
    pub(super) fn new(session: &'s mut Session<'a>, model: &Model) -> Result<Self, Stop> {
        let (planner, rules, reference) = (planner(session, model)?, session.store.rules()?, reference(session)?);
        Ok(Self { session, planner, rules, reference, places: [None; GIVEN.len()] })
    }

    /// A row's machine.
    fn machine(&mut self, given: &[&str; GIVEN.len()], errors: &mut Vec<InputError>) -> Option<Described> {
        let [system, hardware, precision, .., device, host] = *given;
        let before = errors.len();
        let systems = [OperatingSystem::Linux, OperatingSystem::Windows].map(|system| (system, system.word()));
        let formats = [Precision::Bf16, Precision::Fp8, Precision::Int8].map(|format| (format, format.word()));
        let system = if system.is_empty() { None } else { word("system", system, systems, errors) };
        let precision = if precision.is_empty() { None } else { word("precision", precision, formats, errors) };
        let mut memory = |name: &str, text: &str| {
            let gib = number::<f64>(name, text, "a number of GiB", errors)?;
            gib_to_bytes(name, gib).map_err(|error| errors.push(error)).ok()
        };
        let (vram, ram) = (memory("free_vram_gib", device), memory("free_ram_gib", host));
        if errors.len() > before {
            return None;
        }
        let hardware = (!hardware.is_empty()).then(|| hardware.to_owned());
        // Without a system it is Linux, whatever this machine runs: a table means the same everywhere.
        let system = system.or(Some(OperatingSystem::Linux));
        let arguments = MachineArguments { hardware, system, precision, ..MachineArguments::default() };
        match machine(self.session, &arguments, Memory::given(vram?, ram?), Vec::new()) {
            Ok(described) => Some(described),
            Err(stop) => {
                let message = if let Stop::Usage(message) | Stop::NoDevice(message) = stop { message } else { format!("{stop:?}") };
                errors.push(InputError::new("invalid-value", format!("hardware: {message}")));
                None
            }
        }
    }
}

impl Rows for OwnRows<'_, '_> {
    fn header(&self) -> Vec<&'static str> {
        GIVEN.into_iter().chain(DECIDED).collect()
    }

    fn read(&mut self, names: &[&str]) -> Result<(), Vec<InputError>> {
        self.places = places(&GIVEN, &OPTIONAL, &DECIDED, names.iter().copied())?;
        Ok(())
    }

    fn row(&mut self, fields: &[&str]) -> Result<Vec<String>, Vec<InputError>> {
        let mut errors = Vec::new();
        let given = self.places.map(|place| place.and_then(|at| fields.get(at)).copied().unwrap_or("").trim());
        let request = request(&given, &mut errors);
        let described = self.machine(&given, &mut errors);
        let (Some(request), Some(Described { machine, rates, .. })) = (request, described) else { return Err(errors) };
        let question = Question { request, machine, rates, reference: self.reference.clone() };
        let decided = match self.planner.plan(&question, &self.rules, Depth::Whole)? {
            Outcome::Planned(plan) => planned(&plan),
            Outcome::Refused(refusal) => refused(&refusal),
            Outcome::Unplanned(unplanned) => {
                return Err(unplanned.reasons.into_iter().map(|reason| InputError::new("unknown", reason.message)).collect());
            }
        };
        Ok(given.into_iter().map(str::to_owned).chain(decided).collect())
    }
}

/// A row's request.
fn request(given: &[&str; GIVEN.len()], errors: &mut Vec<InputError>) -> Option<Asked> {
    let [.., width, height, frames, steps, guidance, text_tokens, _, _] = *given;
    let before = errors.len();
    let [width, height, frames] =
        [("width", width), ("height", height), ("frames", frames)].map(|(name, text)| number::<u32>(name, text, "a whole number", errors));
    let mut some = |name: &str, text: &str| (!text.is_empty()).then(|| number::<u32>(name, text, "a whole number", errors)).flatten();
    let (steps, text_tokens) = (some("steps", steps), some("text_tokens", text_tokens).map(u64::from));
    let guidance = (!guidance.is_empty()).then(|| number::<f64>("guidance", guidance, "a number", errors)).flatten();
    (errors.len() == before).then_some(Asked { width, height, frames, seconds: None, steps, text_tokens, guidance })
}

fn number<T: std::str::FromStr>(name: &str, text: &str, allowed: &str, errors: &mut Vec<InputError>) -> Option<T> {
    let value = text.parse().ok();
    if value.is_none() {
        errors.push(InputError::new("invalid-value", format!("{name}: found {}, allowed: {allowed}", quoted(text))));
    }
    value
}

fn planned(plan: &Plan) -> Vec<String> {
    let mut cells = vec!["ok".to_owned(), plan.id.clone()];
    let way = Way::of(plan);
    cells.extend(way.map_or_else(Default::default, |way| {
        let numbers = [way.resident_blocks, way.pinned_blocks, way.disk_blocks];
        let sizes = [way.slots, way.head_group, way.projection_chunk, way.feed_forward_chunk].map(u64::from);
        let truths = [way.outputs_on_host, way.residual_on_host, way.tiled].map(u64::from);
        [&numbers[..], &sizes[..], &truths[..]].concat().into_iter().map(|number| number.to_string()).collect::<Vec<_>>()
    }));
    let peak = |tier: Tier| plan.peaks.iter().filter(|peak| peak.tier == tier).map(|peak| peak.bytes).max();
    let forecast = plan.forecast.as_ref();
    let stage = |name: StageName| forecast.and_then(|found| found.stages.iter().find(|stage| stage.name == name));
    let figures = [
        peak(Tier::Device),
        peak(Tier::Pinned),
        forecast.and_then(|forecast| forecast.passes.last()).map(|pass| pass.step.value_ns),
        stage(StageName::Denoising).map(|stage| stage.time.value_ns),
        forecast.and_then(|forecast| forecast.request).map(|request| request.value_ns),
        None,
        None,
    ];
    cells.extend(figures.map(|figure| figure.map(|figure| figure.to_string()).unwrap_or_default()));
    cells
}

fn refused(refusal: &Refusal) -> Vec<String> {
    let short =
        |resource: Resource| refusal.shortfalls.iter().find(|short| short.resource == resource).map_or(0, |short| short.shortfall_bytes);
    let mut cells = vec![String::new(); DECIDED.len()];
    "rejected".clone_into(&mut cells[0]);
    for (cell, resource) in cells[DECIDED.len() - 2..].iter_mut().zip([Resource::Vram, Resource::Host]) {
        *cell = short(resource).to_string();
    }
    cells
}
