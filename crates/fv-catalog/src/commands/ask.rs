//! What the estimator's commands are asked: a model and its deployment, a request, settings, and a device.

use std::{borrow::Cow, collections::BTreeMap, path::PathBuf};

use clap::{Args, ValueEnum};
use fv_catalog::{prices, sources, yaml::short};
use fv_cli::lookup;
use fv_data::Store;
use fv_estimate::{
    budget::{Asked, Budget},
    device::{DeviceSpec, custom_from_json, from_flags, gib_to_bytes, reserve_to_bytes},
    error::{InputError, quoted},
    estimate::Workload,
    forecast::cost::Price,
    place,
    planner::optimal::model::covered,
    resolve::{Overrides, fv_run},
};
use fv_spec::{
    authored::{DeviceKind, Runtime},
    compiled::{Device, Example, Model, RulesFile},
    request::PartialRequest,
};
use serde_json::Value;

use crate::cli::{Context, Origin, Stop};

/// A price file is a few hundred lines.
const MAX_PRICE_BYTES: u64 = 4 << 20;
/// A description of a device is a few lines.
const MAX_DEVICE_BYTES: u64 = 1 << 20;

/// Which model, how it is run, and what is asked of it.
#[derive(Debug, Args)]
pub(crate) struct Work {
    /// A model, by id or checkpoint
    #[arg(value_name = "MODEL")]
    pub(crate) positional: Option<String>,
    /// The model, in place of MODEL
    #[arg(long, value_name = "MODEL", conflicts_with = "positional")]
    pub(crate) model: Option<String>,
    /// A deployment of the model; without it, its first
    #[arg(long, value_name = "ID")]
    pub(crate) deployment: Option<String>,
    /// The first deployment with this runtime
    #[arg(long, value_enum)]
    pub(crate) runtime: Option<RuntimeName>,
    #[command(flatten)]
    pub(crate) asks: Asks,
}

/// A request and settings, apart from the model.
#[derive(Debug, Args)]
pub(crate) struct Asks {
    #[command(flatten)]
    request: RequestArgs,
    #[command(flatten)]
    settings: Settings,
}

/// How a request is executed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub(crate) struct Settings {
    /// An effective setting by the runtime's own name; VALUE is JSON, or text
    #[arg(long, value_name = "KEY=VALUE", value_parser = setting)]
    set: Vec<(String, Value)>,
    /// An environment variable over those of the deployment
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    env: Vec<(String, String)>,
}

/// A whole number, with words that say what is allowed.
pub(crate) fn whole(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| format!("found {}, allowed: a whole number from 0 to {}, such as 81", quoted(text), u32::MAX))
}

/// Any number, with words that say what is allowed.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    text.trim().parse().map_err(|_| format!("found {}, allowed: a number such as 5 or 3.5", quoted(text)))
}

/// A request; what is left out comes from the deployment, then from the family.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Request")]
struct RequestArgs {
    /// Pixel rows
    #[arg(long, value_name = "PIXELS", allow_negative_numbers = true, value_parser = whole)]
    height: Option<u32>,
    /// Pixel columns
    #[arg(long, value_name = "PIXELS", allow_negative_numbers = true, value_parser = whole)]
    width: Option<u32>,
    /// Frames of the video
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "seconds", value_parser = whole)]
    frames: Option<u32>,
    /// Its duration in place of --frames
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true, value_parser = number)]
    seconds: Option<f64>,
    /// Videos generated together
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    batch: Option<u32>,
    #[command(flatten)]
    rest: RestArgs,
}

/// What of a request is not its size.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Request")]
pub(crate) struct RestArgs {
    /// Scale of classifier-free guidance; 1 is none
    #[arg(long, value_name = "SCALE", allow_negative_numbers = true, value_parser = number)]
    guidance: Option<f64>,
    /// Denoising steps
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    steps: Option<u32>,
    /// Tokens that the text encoder is given
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    text_tokens: Option<u32>,
    /// Conditioning images, clips or audio tracks
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = whole)]
    reference: Option<u32>,
}

/// A device and what of it may be used.
#[derive(Debug, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct On {
    /// A device of the catalog, by id or alias
    #[arg(long, value_name = "ID", group = "device")]
    pub(crate) hardware: Option<String>,
    /// A device with memory of its own that the catalog does not hold
    #[arg(long, value_name = "GIB", group = "device", allow_negative_numbers = true, value_parser = number)]
    vram_gib: Option<f64>,
    /// A device that a JSON file describes
    #[arg(long, value_name = "FILE", group = "device")]
    device_file: Option<PathBuf>,
    /// Host memory of that device
    #[arg(long, value_name = "GIB", requires = "vram_gib", conflicts_with_all = ["host_gb", "hardware", "device_file"], allow_negative_numbers = true, value_parser = number)]
    ram_gib: Option<f64>,
    /// Its software stack; without it, cuda
    #[arg(long, value_name = "NAME", requires = "vram_gib", conflicts_with_all = ["hardware", "device_file"])]
    backend: Option<String>,
    /// Formats that it handles, such as fp16,bf16,fp8
    #[arg(long, value_name = "LIST", requires = "vram_gib", conflicts_with_all = ["hardware", "device_file"])]
    dtypes: Option<String>,
    /// A partition of the device
    #[arg(long, value_name = "ID")]
    pub(crate) partition: Option<String>,
    /// What is provisioned of the device, in GB (10^9 bytes)
    #[arg(long, value_name = "GB", allow_negative_numbers = true, value_parser = number)]
    pub(crate) allocation_gb: Option<f64>,
    #[command(flatten)]
    pub(crate) limits: Limits,
}

/// What of any device may be used.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct Limits {
    /// The most that may be used of the device
    #[arg(long, value_name = "GIB", allow_negative_numbers = true, value_parser = number)]
    memory_budget_gib: Option<f64>,
    /// Host memory, in GB (10^9 bytes)
    #[arg(long, value_name = "GB", allow_negative_numbers = true, value_parser = number)]
    host_gb: Option<f64>,
    /// Device memory to leave to others
    #[arg(long, value_name = "GIB", allow_negative_numbers = true, value_parser = number)]
    reserve_gib: Option<f64>,
}

/// Which devices of the catalog are looked at.
#[derive(Debug, Args)]
#[command(next_help_heading = "Device")]
pub(crate) struct Devices {
    /// Only these devices, by id or alias: separated by commas, or given several times
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) hardware: Vec<String>,
    /// Only devices with an id like one of these, such as 'rtx-*' or 'h?00-*'
    #[arg(long, value_name = "GLOB", value_delimiter = ',', value_parser = pattern)]
    only: Vec<glob::Pattern>,
    /// Only devices of this kind
    #[arg(long, value_enum)]
    kind: Option<Kind>,
    /// Only devices of this vendor
    #[arg(long, value_name = "NAME")]
    vendor: Option<String>,
    /// Only devices with at least so much memory, as their driver reports it or nominally
    #[arg(long, value_name = "GIB", allow_negative_numbers = true, value_parser = number)]
    min_memory_gib: Option<f64>,
    /// Only devices with at most so much
    #[arg(long, value_name = "GIB", allow_negative_numbers = true, value_parser = number)]
    max_memory_gib: Option<f64>,
}

/// What sort of device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A graphics card or module
    Gpu,
    /// A processor with graphics
    Apu,
    /// A system on a chip
    Soc,
    /// A processor and a GPU with coherent memory
    Superchip,
    /// Another accelerator
    Accelerator,
}

impl Kind {
    fn kind(self) -> DeviceKind {
        match self {
            Self::Gpu => DeviceKind::Gpu,
            Self::Apu => DeviceKind::Apu,
            Self::Soc => DeviceKind::Soc,
            Self::Superchip => DeviceKind::Superchip,
            Self::Accelerator => DeviceKind::Accelerator,
        }
    }
}

fn pattern(text: &str) -> Result<glob::Pattern, String> {
    let why = |error: glob::PatternError| format!("{}; allowed: an id in which * stands for any text and ? for one character", error.msg);
    glob::Pattern::new(text.trim()).map_err(why)
}

impl Devices {
    /// Whether anything narrows the catalog down.
    pub(crate) fn narrowed(&self) -> bool {
        !self.hardware.is_empty() || self.filtered()
    }

    fn filtered(&self) -> bool {
        !self.only.is_empty() || self.kind.is_some() || self.vendor.is_some() || self.min_memory_gib.or(self.max_memory_gib).is_some()
    }

    /// The devices, each once: those named, in that order, or all of the catalog, as far as the filters let them pass.
    pub(crate) fn find(&self, store: &Store, errors: &mut Vec<InputError>) -> Result<Vec<DeviceSpec>, Stop> {
        let all = store.devices()?;
        let mut named: Vec<String> = Vec::new();
        for name in &self.hardware {
            match hardware(store, name)? {
                Ok(device) if named.contains(&device.id) => {}
                Ok(device) => named.push(device.id),
                Err(error) => errors.push(error),
            }
        }
        if let Some(vendor) = self.vendor.as_ref().filter(|vendor| !all.iter().any(|device| device.vendor.eq_ignore_ascii_case(vendor))) {
            let mut vendors: Vec<&str> = all.iter().map(|device| device.vendor.as_str()).collect();
            vendors.sort_unstable();
            vendors.dedup();
            errors.push(InputError::new("unknown-vendor", format!("no vendor is called {:?}, only {}", short(vendor), vendors.join(", "))));
        }
        let mut bytes = |what: &str, value: Option<f64>| value.and_then(|value| gib_to_bytes(what, value).map_err(|e| errors.push(e)).ok());
        let (least, most) = (bytes("`--min-memory-gib`", self.min_memory_gib), bytes("`--max-memory-gib`", self.max_memory_gib));
        let chosen = |device: &&Device| named.is_empty() || named.contains(&device.id);
        let mut found: Vec<DeviceSpec> =
            all.iter().filter(chosen).filter(|device| self.passes(device, least, most)).map(DeviceSpec::from).collect();
        found.sort_by_key(|device| named.iter().position(|name| *name == device.id));
        if found.is_empty() && errors.is_empty() {
            let what = if self.hardware.is_empty() { "no device of the catalog" } else { "none of the devices that are named" };
            errors.push(InputError::new("no-hardware", format!("{what} passes all of the filters: {}", self.words().join(", "))));
        }
        Ok(found)
    }

    fn passes(&self, device: &Device, least: Option<u64>, most: Option<u64>) -> bool {
        let options = glob::MatchOptions { case_sensitive: false, ..glob::MatchOptions::new() };
        let spec = DeviceSpec::from(device);
        let memory = spec.reported.or(spec.nominal);
        self.kind.is_none_or(|kind| kind.kind() == device.kind)
            && self.vendor.as_ref().is_none_or(|vendor| vendor.eq_ignore_ascii_case(&device.vendor))
            && (self.only.is_empty() || self.only.iter().any(|pattern| pattern.matches_with(&device.id, options)))
            && least.is_none_or(|least| memory.is_some_and(|bytes| bytes >= least))
            && most.is_none_or(|most| memory.is_some_and(|bytes| bytes <= most))
    }

    /// The filters, as they are written.
    fn words(&self) -> Vec<String> {
        let only = self.only.iter().map(|pattern| format!("--only {pattern}"));
        let kind = self.kind.and_then(|kind| kind.to_possible_value()).map(|kind| format!("--kind {}", kind.get_name()));
        let vendor = self.vendor.as_ref().map(|vendor| format!("--vendor {}", short(vendor)));
        let least = self.min_memory_gib.map(|gib| format!("--min-memory-gib {gib}"));
        let most = self.max_memory_gib.map(|gib| format!("--max-memory-gib {gib}"));
        only.chain(kind).chain(vendor).chain(least).chain(most).collect()
    }
}

/// Prices of devices.
#[derive(Debug, Clone, Args)]
pub(crate) struct PriceArgs {
    /// What an hour of each device costs, as CSV: hardware, currency, `price_per_hour`, source, date. Adds cost for each video
    #[arg(long, value_name = "FILE.csv", help_heading = "Device")]
    prices: Option<PathBuf>,
}

impl PriceArgs {
    /// The prices, by device.
    pub(crate) fn read(&self, store: &Store) -> Result<BTreeMap<String, Price>, Stop> {
        let Some(path) = &self.prices else { return Ok(BTreeMap::new()) };
        let shown = path.display().to_string();
        let bytes = sources::bytes(path, MAX_PRICE_BYTES).map_err(|(_, why)| Stop::Usage(format!("{shown}: {why}")))?;
        let text = String::from_utf8(bytes).map_err(|_| Stop::Usage(format!("{shown}: not UTF-8 text")))?;
        let known: Vec<String> = store.devices()?.into_iter().map(|device| device.id).collect();
        let resolve = |name: &str| store.device(name).ok().flatten().map(|device| device.id);
        let prices = prices::read(&shown, &text, resolve, &known).map_err(|errors| Stop::Usage(errors.join("\nerror: ")))?;
        Ok(prices.into_iter().map(|price| (price.hardware.clone(), price)).collect())
    }
}

/// The engine of a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "kebab-case")]
pub(crate) enum RuntimeName {
    /// FastVideo
    #[value(name = "fastvideo")]
    FastVideo,
    /// Diffusers
    Diffusers,
    /// FreeVideo
    #[value(name = "freevideo")]
    FreeVideo,
    /// The runner of this project
    FvRun,
}

impl RuntimeName {
    pub(crate) fn runtime(self) -> Runtime {
        match self {
            Self::FastVideo => Runtime::FastVideo,
            Self::Diffusers => Runtime::Diffusers,
            Self::FreeVideo => Runtime::FreeVideo,
            Self::FvRun => Runtime::FvRun,
        }
    }
}

/// The model is what the question is about: for commands that answer nothing without one.
pub(crate) fn needed(positional: clap::Arg) -> clap::Arg {
    positional.required_unless_present("model")
}

pub(crate) fn setting(text: &str) -> Result<(String, Value), String> {
    let (key, value) = pair(text)?;
    Ok((key, serde_json::from_str(&value).unwrap_or(Value::String(value))))
}

fn variable(text: &str) -> Result<(String, String), String> {
    pair(text)
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() => Ok((name.trim().to_owned(), value.to_owned())),
        _ => Err("a name, `=` and a value".to_owned()),
    }
}

impl Work {
    fn name(&self) -> &str {
        self.positional.as_deref().or(self.model.as_deref()).unwrap_or_default().trim()
    }

    /// Whether a model was named.
    pub(crate) fn names_a_model(&self) -> bool {
        !self.name().is_empty()
    }

    /// The model that is meant.
    pub(crate) fn find(&self, store: &Store) -> Result<Model, Stop> {
        let mut model = model(store, self.name())?;
        add_own(&mut model, self.runtime.as_slice(), self.deployment.as_slice());
        Ok(model)
    }

    /// All models.
    pub(crate) fn all(&self, store: &Store) -> Result<Vec<Model>, Stop> {
        let mut models = models(store)?;
        add_own_to_all(&mut models, self.runtime.as_slice(), &[]);
        Ok(models)
    }

    /// The deployment that is meant.
    pub(crate) fn example<'a>(&self, model: &'a Model) -> Result<&'a Example, Stop> {
        let runtime = self.runtime.map(RuntimeName::runtime);
        if let Some(id) = &self.deployment {
            let Some(example) = model.examples.iter().find(|example| example.id.eq_ignore_ascii_case(id)) else {
                return Err(no_deployment(model, id));
            };
            if let Some(runtime) = runtime.filter(|runtime| *runtime != example.runtime) {
                return Err(Stop::Usage(format!(
                    "deployment {} runs in {}, not in {}",
                    example.id,
                    example.runtime.word(),
                    runtime.word()
                )));
            }
            return Ok(example);
        }
        let found = model.examples.iter().find(|example| runtime.is_none_or(|runtime| runtime == example.runtime));
        found.ok_or_else(|| match runtime {
            Some(runtime) => Stop::Usage(format!("{} has no deployment in {}, only {}", model.id, runtime.word(), deployments(model))),
            None => Stop::Usage(format!("{} has no deployment", model.id)),
        })
    }
}

impl Work {
    /// Why a deployment was taken, where nobody named it and there are others.
    pub(crate) fn choice(&self, model: &Model, example: &Example) -> Option<String> {
        let others: Vec<String> = model.examples.iter().filter(|other| other.id != example.id).map(named).collect();
        if self.deployment.is_some() || others.is_empty() {
            return None;
        }
        let first = match self.runtime {
            Some(runtime) => format!("its first with {}", runtime.runtime().word()),
            None if model.examples.first().is_some_and(|first| first.id == example.id) => "its first".to_owned(),
            None => "its first whose memory is known".to_owned(),
        };
        let others = others.join(", ");
        Some(format!("deployment {} of {} was taken as {first}; --deployment takes another: {others}", named(example), model.id))
    }
}

/// A deployment and its runtime.
fn named(example: &Example) -> String {
    format!("{} ({})", example.id, example.runtime.word())
}

/// The model of this name.
pub(crate) fn model(store: &Store, name: &str) -> Result<Model, Stop> {
    Ok(lookup::model(store, name)?)
}

/// Adds a deployment in our own runtime where that is asked for and the catalog has none.
pub(crate) fn add_own(model: &mut Model, runtimes: &[RuntimeName], deployments: &[String]) {
    let asked = runtimes.contains(&RuntimeName::FvRun) || deployments.iter().any(|id| id.eq_ignore_ascii_case(fv_run::DEPLOYMENT));
    if asked && !model.examples.iter().any(|example| example.runtime == Runtime::FvRun) {
        model.examples.extend(fv_run::deployment(model));
    }
}

/// The same for all models that there is a program for.
pub(crate) fn add_own_to_all(models: &mut [Model], runtimes: &[RuntimeName], deployments: &[String]) {
    for model in models.iter_mut().filter(|model| covered(model).is_ok()) {
        add_own(model, runtimes, deployments);
    }
}

/// All models.
pub(crate) fn models(store: &Store) -> Result<Vec<Model>, Stop> {
    let ids: Vec<String> = store.model_ids().into_iter().map(str::to_owned).collect();
    ids.iter().map(|id| model(store, id)).collect()
}

fn deployments(model: &Model) -> String {
    model.examples.iter().map(named).collect::<Vec<_>>().join(", ")
}

/// That a model has no deployment of this name.
pub(crate) fn no_deployment(model: &Model, id: &str) -> Stop {
    let near = fv_data::nearest(id, model.examples.iter().map(|example| example.id.as_str()));
    let hint = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
    Stop::Usage(format!("{} has no deployment {:?}, only {}{hint}", model.id, short(id), deployments(model)))
}

impl Asks {
    pub(crate) fn request(&self) -> PartialRequest {
        let RequestArgs { height, width, frames, seconds, batch, rest } = self.request;
        PartialRequest { height, width, num_frames: frames, seconds, batch, ..rest.request() }
    }

    /// That no variable is given two values.
    pub(crate) fn sound(&self) -> Result<(), Stop> {
        self.settings.sound()
    }

    /// Settings and environment; some runtimes do otherwise where device and host share their memory.
    pub(crate) fn overrides(&self, unified_memory: bool) -> Overrides {
        self.settings.overrides(unified_memory)
    }
}

impl RestArgs {
    /// A request of any size.
    pub(crate) fn request(self) -> PartialRequest {
        let Self { guidance, steps, text_tokens, reference } = self;
        PartialRequest {
            guidance_scale: guidance,
            num_inference_steps: steps,
            text_tokens,
            references: reference,
            ..PartialRequest::default()
        }
    }
}

impl Settings {
    /// That no variable is given two values; resolving says the same of settings, which have several names.
    pub(crate) fn sound(&self) -> Result<(), Stop> {
        for (at, (name, value)) in self.env.iter().enumerate() {
            if self.env[..at].iter().any(|(known, other)| known == name && other != value) {
                return Err(Stop::Usage(format!("--env {} is given twice, with different values: leave out one", short(name))));
            }
        }
        Ok(())
    }

    /// The settings that are set, by the names that they were given.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.set.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn overrides(&self, unified_memory: bool) -> Overrides {
        Overrides { env: self.env.iter().cloned().collect::<BTreeMap<_, _>>(), set: self.set.clone(), unified_memory }
    }
}

impl Limits {
    /// The limits in bytes; everything wrong is added to `errors`.
    pub(crate) fn asked(&self, errors: &mut Vec<InputError>) -> Asked {
        let mut bytes = |what: &str, value: Option<f64>, read: fn(&str, f64) -> Result<u64, InputError>| {
            value.and_then(|value| read(what, value).map_err(|error| errors.push(error)).ok())
        };
        let memory_budget_bytes = bytes("`--memory-budget-gib`", self.memory_budget_gib, gib_to_bytes);
        let reserve_bytes = bytes("`--reserve-gib`", self.reserve_gib, reserve_to_bytes);
        Asked { memory_budget_bytes, reserve_bytes, host_gb: self.host_gb, ..Asked::default() }
    }
}

/// A device, where one was chosen, and what of it may be used.
pub(crate) struct Place {
    pub(crate) device: Option<DeviceSpec>,
    pub(crate) asked: Asked,
    /// What is wrong with either, to be said together with what is wrong with the request.
    pub(crate) errors: Vec<InputError>,
}

impl On {
    /// The device that is meant.
    pub(crate) fn find(&self, store: &Store) -> Result<Place, Stop> {
        let mut errors = Vec::new();
        let mut asked = self.limits.asked(&mut errors);
        asked.partition.clone_from(&self.partition);
        asked.allocation_gb = self.allocation_gb;
        let described = match (&self.hardware, self.vram_gib, &self.device_file) {
            (Some(name), _, _) => hardware(store, name)?.map(Some).map_err(|error| vec![error]),
            (_, Some(vram), _) => from_flags(vram, self.ram_gib, self.backend.as_deref(), self.dtypes.as_deref()).map(Some),
            (_, _, Some(path)) => custom_from_json(&device_file(path)?).map(Some),
            _ => Ok(None),
        };
        let device = described.unwrap_or_else(|more| {
            errors.extend(more);
            None
        });
        Ok(Place { device, asked, errors })
    }
}

/// A device of the catalog.
pub(crate) fn hardware(store: &Store, name: &str) -> Result<Result<DeviceSpec, InputError>, Stop> {
    Ok(lookup::device(store, name)?.map(|device| DeviceSpec::from(&device)))
}

fn device_file(path: &std::path::Path) -> Result<Value, Stop> {
    let refuse = |why: String| Stop::Usage(format!("{}: {why}", path.display()));
    let bytes = sources::bytes(path, MAX_DEVICE_BYTES).map_err(|(_, why)| refuse(why))?;
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&bytes);
    serde_json::from_slice(bytes).map_err(|error| refuse(format!("not JSON: {error}")))
}

/// Wrong input, all of it.
pub(crate) fn refused(errors: Vec<InputError>) -> Stop {
    fv_cli::stop::Stop::wrong(errors).into()
}

/// A workload and the budget it is compared with.
pub(crate) struct Evaluated {
    pub(crate) workload: Workload,
    pub(crate) budget: Budget,
}

/// Evaluates a request on a device; everything wrong with either is said at once.
pub(crate) fn evaluate(model: &Model, example: &Example, work: &Work, place: &Place, rules: &RulesFile) -> Result<Evaluated, Stop> {
    let unified = place.device.as_ref().is_some_and(is_unified);
    let workload = Workload::evaluate(model, example, &work.asks.request(), &work.asks.overrides(unified), rules, true);
    let mut asked = place.asked.clone();
    if place.device.is_none() && !place.errors.is_empty() {
        // Without the device that was meant, parts of it would be called wrong, too.
        (asked.partition, asked.allocation_gb) = (None, None);
    }
    let budget = place::offer(place.device.as_ref(), &asked, example.runtime, rules);
    let budget = match (&place.errors[..], budget) {
        ([], budget) => budget,
        (errors, budget) => Err(errors.iter().cloned().chain(budget.err().into_iter().flatten()).collect()),
    };
    match (workload, budget) {
        (Ok(workload), Ok(mut budget)) => {
            if let Some(device) = &place.device {
                place::check_device(&mut budget, device, &workload.settings);
            }
            Ok(Evaluated { workload, budget })
        }
        (workload, budget) => Err(refused(workload.err().into_iter().chain(budget.err()).flatten().collect())),
    }
}

/// Whether runtimes see that a device shares its memory with the host.
pub(crate) fn is_unified(device: &DeviceSpec) -> bool {
    place::unified_memory(device)
}

impl Context {
    /// The catalog, of which a compiled one is read as far as it is asked for.
    pub(crate) fn store(&self) -> Result<Store, Stop> {
        match self.origin()? {
            Origin::Authored(_) => Ok(self.catalog()?.into()),
            Origin::Compiled(folder) => {
                let shown = folder.display().to_string();
                let text =
                    move |path: &str| std::fs::read(folder.join(path)).ok().map(|b| Cow::Owned(String::from_utf8_lossy(&b).into_owned()));
                Ok(Store::open(&shown, text)?)
            }
            Origin::Embedded => Ok(Store::embedded()?),
        }
    }
}
