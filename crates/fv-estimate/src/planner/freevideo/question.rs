//! What is asked of the policy, checked and put in the terms of its rules.

use fv_spec::authored::Runtime;
use fv_spec::compiled::Model;
use fv_spec::estimate::Reason;
use fv_spec::plan::budget::{Amount, Resource};
use fv_spec::plan::{
    Adapter, Architecture, Attention, AttentionBackend, OperatingSystem, PlanRequest, Precision, Role, Source, Sourced, SystemFacts,
};
use fv_spec::probe::ComputeCapability;
use serde_json::Value;

use super::compute::BACKENDS;
use super::constants::{
    ADAPTER_MIB, BLOCK, MIB, REFINE_STEPS, RESERVE_LEAST, STEPS, TABLE_STEPS, TEXT_TOKENS, USUAL, USUAL_REFINE_STEPS, USUAL_STEPS,
    hundredths,
};
use super::facts::{Facts, MOST, Shape};
use super::geometry::{self, FPS, LEAST_FRAMES, pool_word};
use crate::error::{InputError, listed};
use crate::minimax_h3::geometry::MODALITIES;
use crate::minimax_h3::model::H3;
use crate::resolve::legal::{Legal, MAX_FRAMES, legal};

/// What is generated from what.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Task {
    /// Video and sound from text.
    #[default]
    T2va,
    /// And a first frame.
    I2va,
    /// And a last frame.
    L2va,
    /// And both.
    Fl2va,
    /// And reference pictures or videos.
    Ref2va,
    /// And a reference sound.
    Ref2vaAudio,
    /// And both of these.
    Ref2vaAv,
}

impl Task {
    /// Every task with its word.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::T2va, "t2va"),
        (Self::I2va, "i2va"),
        (Self::L2va, "l2va"),
        (Self::Fl2va, "fl2va"),
        (Self::Ref2va, "ref2va"),
        (Self::Ref2vaAudio, "ref2va_audio"),
        (Self::Ref2vaAv, "ref2va_av"),
    ];

    /// The task's word.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(task, _)| *task == self).map_or("", |(_, word)| word)
    }

    /// The task of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == word).map(|(task, _)| *task)
    }

    /// Times in each step that modulation is computed for: the noise of video and of sound, and conditions that have one of their own.
    fn times(self) -> i64 {
        match self {
            Self::T2va => 2,
            Self::Ref2vaAv => 4,
            _ => 3,
        }
    }
}

/// Two passes as asked for; what is left out is usual.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TwoPassAsked {
    /// Steps of the first pass.
    pub base_steps: Option<u32>,
    /// Steps of the second.
    pub refine_steps: Option<u32>,
}

/// A request as asked for; what is left out comes from the catalog's deployment, then from the policy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    /// Pixel columns.
    pub width: Option<u32>,
    /// Pixel rows.
    pub height: Option<u32>,
    /// Frames.
    pub frames: Option<u32>,
    /// A duration in place of frames.
    pub seconds: Option<f64>,
    /// Steps of a single pass, or of the first of two.
    pub steps: Option<u32>,
    /// Two passes.
    pub two_pass: Option<TwoPassAsked>,
    /// What is generated from what.
    pub task: Task,
    /// Rows of references' pictures and videos.
    pub reference_video_tokens: u64,
    /// Rows of references' sound.
    pub reference_audio_tokens: u64,
    /// Rows of text.
    pub text_tokens: Option<u64>,
    /// Adapters.
    pub adapter: Option<Adapter>,
    /// Bytes of modulation tables beyond those that the measured working set holds; else they follow from the task and the steps.
    pub table_bytes: Option<u64>,
    /// Whether the text encoder's output is at hand.
    pub conditioning_at_hand: bool,
}

/// A pool of memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pool {
    /// All of it.
    pub total: Option<Amount>,
    /// What others do not use.
    pub free: Amount,
    /// The most that may be used.
    pub cap: Option<Amount>,
    /// A control group's limit.
    pub cgroup_limit: Option<Amount>,
    /// What is to be kept back, in place of the policy's own reserve.
    pub reserve_bytes: Option<u64>,
}

impl Pool {
    /// So much free memory as stated.
    pub fn given(bytes: u64) -> Self {
        Self { total: None, free: Amount::given(bytes), cap: None, cgroup_limit: None, reserve_bytes: None }
    }

    /// The least of what is known.
    pub(in crate::planner) fn capacity(&self) -> u64 {
        [&self.total, &self.cap, &self.cgroup_limit].into_iter().flatten().fold(self.free.bytes, |least, amount| least.min(amount.bytes))
    }
}

/// Which attention implementation is wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AttentionAsked {
    /// The first in the order of preference that is available.
    #[default]
    Auto,
    /// One for attention over everything and one for windows.
    Pair(AttentionBackend, AttentionBackend),
}

/// The machine, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Its operating system.
    pub os: Sourced<OperatingSystem>,
    /// The device's id in the catalog, or the name that its driver reports.
    pub device: Option<String>,
    /// The GPU's generation, unless the compute capability says it.
    pub architecture: Option<Sourced<Architecture>>,
    /// CUDA compute capability, such as `8.9`.
    pub compute_capability: Option<Sourced<String>>,
    /// Whether it is a `GeForce` card; else its name decides.
    pub geforce: Option<Sourced<bool>>,
    /// The format of the cached weights; else the card decides.
    pub precision: Option<Sourced<Precision>>,
    /// Attention implementations that work; else all that the policy knows.
    pub attention_backends: Option<Sourced<Vec<AttentionBackend>>>,
    /// Which of them is wanted.
    pub attention: AttentionAsked,
    /// Device memory; none on macOS, where it is the host's.
    pub vram: Option<Pool>,
    /// Host memory.
    pub host: Option<Pool>,
    /// Remarks on what was said of it, for the answer.
    pub notes: Vec<String>,
}

impl Machine {
    /// A machine of which nothing is known but its system.
    pub fn new(os: Sourced<OperatingSystem>) -> Self {
        Self {
            os,
            device: None,
            architecture: None,
            compute_capability: None,
            geforce: None,
            precision: None,
            attention_backends: None,
            attention: AttentionAsked::Auto,
            vram: None,
            host: None,
            notes: Vec::new(),
        }
    }
}

/// Whether a device's name is that of a `GeForce` card.
pub fn is_geforce(name: &str) -> bool {
    name.to_ascii_lowercase().contains("geforce")
}

/// A question.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// The request.
    pub request: Asked,
    /// The machine.
    pub machine: Machine,
    /// Whether to try below what is admitted, as the last resort.
    pub capacity_trial: bool,
    /// The largest host peak of a complete verified run of this size and length with this software.
    pub demonstrated_host_bytes: Option<u64>,
}

/// A model of the catalog as the policy sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Planner {
    /// The model's id.
    pub(super) model: String,
    pub(super) shape: Shape,
    /// Sizes that the deployment takes.
    pub(super) legal: Legal,
    /// Width, height, frames and steps of the deployment.
    usual: [u32; 4],
}

impl Planner {
    /// Reads a model of the catalog.
    ///
    /// # Errors
    /// Why the policy does not cover it.
    pub fn new(model: &Model) -> Result<Self, Vec<Reason>> {
        let Some(example) = model.examples.iter().find(|example| example.runtime == Runtime::FreeVideo) else {
            let message = format!("the policy freevideo covers models with a deployment for FreeVideo, and {} has none", model.id);
            return Err(vec![Reason::new("uncovered-model", message)]);
        };
        let h3 = H3::read(model, example)?;
        let vae = example.components.get(&Role::Vae).or_else(|| model.components.get(&Role::Vae));
        let parameters = vae.and_then(|vae| vae.block_parameter_count).map(fv_spec::units::Count::get);
        // Stored in FP32.
        let decoder_block = parameters.and_then(|count| count.checked_mul(4)).and_then(bounded);
        let missing = || vec![Reason::new("missing-geometry", "the VAE has no block_parameter_count")];
        let within = |extent: u64| i64::try_from(extent).ok().filter(|extent| (1..=1 << 20).contains(extent));
        let shape = || {
            Some(Shape {
                blocks: within(h3.dit.blocks)?,
                hidden: within(h3.dit.hidden)?,
                feed_forward: within(h3.dit.ffn)?,
                decoder_blocks: within(h3.vae.layers)?,
                decoder_block: decoder_block?,
            })
        };
        let usual = |name: &str, otherwise: u32| {
            let value = example.base_config.get("default_request").and_then(|request| request.get("sampling"))?.get(name);
            Some(value.and_then(Value::as_u64).and_then(|value| u32::try_from(value).ok()).unwrap_or(otherwise))
        };
        let [width, height, frames] = USUAL;
        let usual = [("width", width), ("height", height), ("num_frames", frames), ("num_inference_steps", USUAL_STEPS)]
            .map(|(name, otherwise)| usual(name, otherwise).unwrap_or(otherwise));
        Ok(Self { model: model.id.clone(), legal: legal(model, example), shape: shape().ok_or_else(missing)?, usual })
    }

    /// The model's extents.
    pub fn shape(&self) -> Shape {
        self.shape
    }
}

fn bounded(bytes: u64) -> Option<i64> {
    i64::try_from(bytes).ok().filter(|bytes| (1..=MOST).contains(bytes))
}

/// A question in the terms of the rules.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Resolved {
    pub(super) system: SystemFacts,
    pub(super) request: PlanRequest,
    pub(super) attention: Attention,
    pub(super) attention_asked: bool,
    pub(super) conditioning_at_hand: bool,
    /// Steps of both passes.
    pub(super) two_pass: Option<[u32; 2]>,
    pub(super) vram: Option<Pool>,
    pub(super) host: Pool,
    /// Bytes of the tables of steps beyond those that the measured working set holds.
    pub(super) tables: i64,
    pub(super) notes: Vec<String>,
    /// What decides, for the canvas that is asked for. On macOS without meaning.
    pub(super) facts: Facts,
}

impl Planner {
    /// Checks a question and puts it in the terms of the rules.
    pub(super) fn resolve(&self, question: &Question) -> Result<Resolved, Vec<InputError>> {
        let mut errors = Vec::new();
        let machine = &question.machine;
        let (request, two_pass) = self.request(&question.request, &mut errors);
        let system = system(machine, &mut errors);
        let attention = attention(machine, system.as_ref(), &mut errors);
        let pools = pools(machine, &mut errors);
        let demonstrated = question.demonstrated_host_bytes.and_then(|bytes| limited("demonstrated host memory", bytes, &mut errors));
        let (Some(request), Some(system), Some(attention), Some((vram, host))) = (request, system, attention, pools) else {
            return Err(errors);
        };
        if !errors.is_empty() {
            return Err(errors);
        }
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(MOST);
        let adapter = request.adapter.unwrap_or(Adapter { max_block_bytes: 0, root_bytes: 0 });
        let adapters = match request.adapter {
            Some(adapter) => ADAPTER_MIB * MIB + 2 * signed(adapter.max_block_bytes) + signed(adapter.root_bytes),
            None => 0,
        };
        let tables = question.request.table_bytes.map_or_else(|| self.tables(request.steps, question.request.task), signed);
        let facts = Facts {
            os: system.os.value,
            architecture: system.architecture.value,
            precision: system.precision.value,
            sage_only: [Some(attention.global), attention.window] == [Some(AttentionBackend::Sage2); 2],
            free_vram: vram.as_ref().map_or(0, |pool| signed(pool.capacity())),
            free_host: signed(host.capacity()),
            total_host: signed(
                host.total.as_ref().map_or(host.free.bytes, |total| total.bytes).min(host.cap.as_ref().map_or(u64::MAX, |cap| cap.bytes)),
            ),
            vram_reserve: vram.as_ref().and_then(|pool| pool.reserve_bytes).map(signed),
            relaxed: false,
            host_reserve: host.reserve_bytes.map(signed),
            demonstrated_host: demonstrated.map(signed),
            capacity_trial: question.capacity_trial,
            canvas: geometry::canvas(request.width, request.height, request.frames),
            rows: signed(request.video_tokens + request.reference_video_tokens + request.reference_audio_tokens),
            workspace: adapters + tables,
            block: BLOCK + signed(adapter.max_block_bytes),
            shape: self.shape,
        };
        Ok(Resolved {
            system,
            request,
            attention,
            attention_asked: machine.attention != AttentionAsked::Auto,
            conditioning_at_hand: question.request.conditioning_at_hand,
            two_pass,
            vram,
            host,
            tables,
            notes: machine.notes.clone(),
            facts,
        })
    }

    /// Bytes of the modulation tables of steps beyond those that the measured working set holds: six vectors for each modality and block
    /// in 16 bits.
    fn tables(&self, steps: u32, task: Task) -> i64 {
        let modalities = i64::try_from(MODALITIES).unwrap_or(0);
        i64::from(steps.saturating_sub(TABLE_STEPS)) * task.times() * modalities * 6 * self.shape.blocks * self.shape.hidden * 2
    }

    fn request(&self, asked: &Asked, errors: &mut Vec<InputError>) -> (Option<PlanRequest>, Option<[u32; 2]>) {
        let before = errors.len();
        let [width, height, frames, steps] = self.usual;
        let (width, height) = (asked.width.unwrap_or(width), asked.height.unwrap_or(height));
        geometry::check_side("width", width, errors);
        geometry::check_side("height", height, errors);
        let requested = match (asked.frames, asked.seconds) {
            (Some(_), Some(_)) => {
                errors.push(InputError::new("conflict", "seconds and frames are both given: give one of them"));
                frames
            }
            (None, Some(seconds)) => geometry::frames_of(seconds).unwrap_or_else(|error| {
                errors.push(error);
                frames
            }),
            (given, None) => given.unwrap_or(frames),
        };
        let legal = geometry::legal_frames(requested);
        if legal.is_none() {
            let message = format!("frames: found {requested}, allowed: from {LEAST_FRAMES} (1.625 s) to {MAX_FRAMES}");
            errors.push(InputError::new("invalid-frames", message));
        }
        let frames = legal.unwrap_or(LEAST_FRAMES);
        let two_pass = passes(asked, steps, errors);
        let steps = two_pass.map_or(asked.steps.unwrap_or(steps), |[base, refine]| base.saturating_add(refine));
        if two_pass.is_none() && !(1..=STEPS).contains(&steps) {
            errors.push(InputError::new("invalid-value", format!("steps: found {steps}, allowed: from 1 to {STEPS}")));
        }
        let references =
            [("reference video tokens", asked.reference_video_tokens), ("reference audio tokens", asked.reference_audio_tokens)];
        for (name, tokens) in references.into_iter().filter(|(_, tokens)| *tokens > MOST_TOKENS) {
            errors.push(InputError::new("invalid-value", format!("{name}: found {tokens}, allowed: at most {MOST_TOKENS}")));
        }
        if asked.task == Task::T2va && references.iter().any(|(_, tokens)| *tokens > 0) {
            let others = listed(Task::ALL.iter().skip(1).map(|(_, word)| *word));
            errors.push(InputError::new("conflict", format!("the task t2va takes no references; with references it is one of {others}")));
        }
        if let Some(tokens) = asked.text_tokens.filter(|tokens| *tokens > MOST_TOKENS) {
            errors.push(InputError::new("invalid-value", format!("text tokens: found {tokens}, allowed: at most {MOST_TOKENS}")));
        }
        let adapter = asked.adapter.unwrap_or(Adapter { max_block_bytes: 0, root_bytes: 0 });
        let taken = [
            ("adapter's bytes of a block", adapter.max_block_bytes),
            ("adapter's bytes outside blocks", adapter.root_bytes),
            ("bytes of tables", asked.table_bytes.unwrap_or(0)),
        ];
        for (name, bytes) in taken.into_iter().filter(|(_, bytes)| *bytes > MOST_TAKEN) {
            errors.push(InputError::new("invalid-value", format!("{name}: found {bytes}, allowed: at most {MOST_TAKEN}")));
        }
        if errors.len() > before {
            return (None, None);
        }
        let canvas = geometry::canvas(width, height, frames);
        let request = PlanRequest {
            width,
            height,
            fps: Some(FPS),
            requested_frames: requested,
            requested_ns: asked.seconds.map(nanoseconds),
            frames,
            latent_frames: canvas.latent_frames,
            video_tokens: canvas.video_tokens,
            steps,
            task: asked.task.word().to_owned(),
            reference_video_tokens: asked.reference_video_tokens,
            reference_audio_tokens: asked.reference_audio_tokens,
            text_tokens: asked.text_tokens.map_or(Sourced::assumed(TEXT_TOKENS.into()), Sourced::given),
            adapter: asked.adapter,
            sampling: None,
        };
        (Some(request), two_pass)
    }
}

/// Rows of references or text, at most.
const MOST_TOKENS: u64 = 1_000_000_000;
/// Bytes of adapters and tables, at most.
const MOST_TAKEN: u64 = 1 << 40;

/// Nanoseconds of a duration that was checked, to the nearest microsecond.
pub(in crate::planner) fn nanoseconds(seconds: f64) -> u64 {
    format!("{:.0}", seconds * 1e6).parse::<u64>().map_or(0, |micro| micro * 1000)
}

/// Steps of both passes, where two are asked for.
fn passes(asked: &Asked, usual: u32, errors: &mut Vec<InputError>) -> Option<[u32; 2]> {
    let two = asked.two_pass?;
    if let (Some(steps), Some(base)) = (asked.steps, two.base_steps)
        && steps != base
    {
        errors.push(InputError::new("conflict", format!("steps ({steps}) and base steps ({base}) are both given: give one of them")));
    }
    let base = two.base_steps.or(asked.steps).unwrap_or(usual);
    let refine = two.refine_steps.unwrap_or(USUAL_REFINE_STEPS);
    for (name, steps, most) in [("base steps", base, STEPS), ("refine steps", refine, REFINE_STEPS)] {
        if !(1..=most).contains(&steps) {
            errors.push(InputError::new("invalid-value", format!("{name}: found {steps}, allowed: from 1 to {most}")));
        }
    }
    if refine >= base && refine != USUAL_REFINE_STEPS {
        let message = format!("refine steps: found {refine}, allowed: fewer than the base steps ({base}), or {USUAL_REFINE_STEPS}");
        errors.push(InputError::new("invalid-value", message));
    }
    Some([base, refine])
}

/// The generation of a compute capability such as `8.9`.
///
/// # Errors
/// When it is none, or below 8.0.
pub fn architecture_of(capability: &str) -> Result<Architecture, InputError> {
    let Some(parsed) = ComputeCapability::parse(capability) else {
        let found = crate::error::quoted(capability);
        return Err(InputError::new("cuda-capability-unknown", format!("compute capability: found {found}, allowed: such as 8.9")));
    };
    if parsed.major < 8 {
        let message = format!("compute capability {capability} is below 8.0, the least that is supported; no driver changes that");
        return Err(InputError::new("cuda-arch-unsupported", message));
    }
    Ok(Architecture::of(parsed))
}

/// The format of the cached weights where nobody says: int8 on `GeForce` cards from Ada on and on every Ampere card.
pub fn usual_precision(architecture: Architecture, geforce: bool) -> Precision {
    match architecture {
        Architecture::Ampere => Precision::Int8,
        Architecture::Ada | Architecture::BlackwellRtx if geforce => Precision::Int8,
        _ => Precision::Fp8,
    }
}

/// The same of a compute capability, where `geforce` may not be known. `None` where the policy covers no such card.
pub fn cached_precision(capability: &str, geforce: Option<bool>) -> Option<Precision> {
    let architecture = architecture_of(capability).ok()?;
    Some(usual_precision(architecture, geforce.unwrap_or(sold_as_geforce(architecture))))
}

/// Cards that exist in both forms are taken for the consumer's where nothing else is known.
fn sold_as_geforce(architecture: Architecture) -> bool {
    matches!(architecture, Architecture::Ada | Architecture::BlackwellRtx)
}

pub(in crate::planner) fn system(machine: &Machine, errors: &mut Vec<InputError>) -> Option<SystemFacts> {
    let before = errors.len();
    let derived = machine.compute_capability.as_ref().and_then(|capability| match architecture_of(&capability.value) {
        Ok(value) => Some(Sourced { value, source: capability.source }),
        Err(error) => {
            errors.push(error);
            None
        }
    });
    let macos = machine.os.value == OperatingSystem::Macos;
    let apple = macos.then_some(Sourced::assumed(Architecture::Apple));
    if let (Some(stated), Some(derived)) = (machine.architecture, derived)
        && stated.value != derived.value
    {
        let (stated, derived) = (stated.value.word(), derived.value.word());
        let message =
            format!("the architecture {stated} and the compute capability, which means {derived}, do not agree: give one of them");
        errors.push(InputError::new("conflict", message));
    }
    let Some(architecture) = machine.architecture.or(derived).or(apple) else {
        if errors.len() == before {
            let allowed = listed(Architecture::ALL.iter().map(|known| known.word()));
            errors.push(InputError::new("missing-value", format!("the GPU's architecture is not known; give one of {allowed}")));
        }
        return None;
    };
    if (architecture.value == Architecture::Apple) != macos {
        let message = format!("the architecture {} does not go with {}", architecture.value.word(), machine.os.value.word());
        errors.push(InputError::new("conflict", message));
    }
    let both = sold_as_geforce(architecture.value);
    let geforce = machine.geforce.or_else(|| {
        let named = machine.device.as_deref().map(is_geforce);
        both.then(|| Sourced::assumed(named.unwrap_or(true)))
    });
    let usual = usual_precision(architecture.value, geforce.is_some_and(|geforce| geforce.value));
    let precision = machine.precision.unwrap_or(Sourced::assumed(usual));
    if !matches!(precision.value, Precision::Int8 | Precision::Fp8) {
        let message = format!("precision: found {}, allowed: int8, fp8", precision.value.word());
        errors.push(InputError::new("invalid-value", message));
    }
    let attention_backends = backends(machine, macos, errors);
    Some(SystemFacts {
        os: machine.os,
        device: machine.device.clone(),
        devices: 1,
        architecture,
        compute_capability: machine.compute_capability.clone(),
        geforce,
        precision,
        attention_backends,
    })
}

/// Implementations that are available, in the order of preference.
fn backends(machine: &Machine, macos: bool, errors: &mut Vec<InputError>) -> Sourced<Vec<AttentionBackend>> {
    let known: &[AttentionBackend] = if macos { &[AttentionBackend::Mps] } else { &BACKENDS };
    let Some(stated) = &machine.attention_backends else { return Sourced::assumed(known.to_vec()) };
    let words = || listed(known.iter().map(|backend| backend.word()));
    for other in stated.value.iter().filter(|backend| !known.contains(backend)) {
        errors.push(InputError::new("unknown-backend", format!("attention backends: found {}, allowed: {}", other.word(), words())));
    }
    let value: Vec<_> = known.iter().copied().filter(|backend| stated.value.contains(backend)).collect();
    if value.is_empty() {
        errors.push(InputError::new("missing-value", format!("no attention backend is available; allowed: {}", words())));
    }
    Sourced { value, source: stated.source }
}

fn attention(machine: &Machine, system: Option<&SystemFacts>, errors: &mut Vec<InputError>) -> Option<Attention> {
    let available = &system?.attention_backends.value;
    let (global, window) = match machine.attention {
        AttentionAsked::Auto => {
            let first = *available.first()?;
            (first, first)
        }
        AttentionAsked::Pair(global, window) => (global, window),
    };
    for backend in [global, window].into_iter().filter(|backend| !available.contains(backend)) {
        let words = listed(available.iter().map(|backend| backend.word()));
        let message = format!("attention: {} is not available, only {words}", backend.word());
        errors.push(InputError::new("unavailable-backend", message));
    }
    Some(Attention { global, window: Some(window) })
}

/// Device and host memory.
pub(in crate::planner) fn pools(machine: &Machine, errors: &mut Vec<InputError>) -> Option<(Option<Pool>, Pool)> {
    let before = errors.len();
    let macos = machine.os.value == OperatingSystem::Macos;
    if macos && machine.vram.is_some() {
        let message = "device memory is the host's on macOS: give host memory alone";
        errors.push(InputError::new("conflict", message));
    }
    let vram = (!macos).then_some(machine.vram.as_ref());
    let host_resource = if macos { Resource::Unified } else { Resource::Host };
    for (resource, pool) in vram.map(|pool| (Resource::Vram, pool)).into_iter().chain([(host_resource, machine.host.as_ref())]) {
        match pool {
            None => {
                let message = format!("how much {} is free is not known; give it, or run where it can be measured", pool_word(resource));
                errors.push(InputError::new("missing-capacity", message));
            }
            Some(pool) => check_pool(resource, pool, errors),
        }
    }
    if errors.len() > before {
        return None;
    }
    Some((machine.vram.clone(), machine.host.clone()?))
}

fn limited(what: &str, bytes: u64, errors: &mut Vec<InputError>) -> Option<u64> {
    if bounded(bytes.max(1)).is_some() {
        return Some(bytes);
    }
    errors.push(InputError::new("invalid-capacity", format!("{what}: found {bytes} bytes, allowed: at most {MOST}")));
    None
}

fn check_pool(resource: Resource, pool: &Pool, errors: &mut Vec<InputError>) {
    let word = pool_word(resource);
    let amounts = [("free", Some(&pool.free)), ("total", pool.total.as_ref()), ("allowed", pool.cap.as_ref())];
    for (name, amount) in amounts.into_iter().chain([("limit of", pool.cgroup_limit.as_ref())]) {
        let Some(amount) = amount else { continue };
        limited(&format!("{name} {word}"), amount.bytes, errors);
        if amount.bytes == 0 {
            let source = if amount.source == Source::Given { "a capacity is more than nothing" } else { "nothing can be planned with it" };
            errors.push(InputError::new("no-memory", format!("{name} {word} is 0 bytes: {source}")));
        }
    }
    if let Some(reserve) = pool.reserve_bytes {
        limited(&format!("reserve of {word}"), reserve, errors);
        let least = u64::try_from(hundredths(RESERVE_LEAST)).unwrap_or(0);
        if resource == Resource::Vram && reserve < least {
            let message = format!("reserve of {word}: found {reserve} bytes, allowed: at least 0.2 GiB ({least} bytes)");
            errors.push(InputError::new("invalid-reserve", message));
        }
    }
}
