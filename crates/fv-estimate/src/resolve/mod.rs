//! Configuration, deployment environment, runtime defaults and what the user sets, resolved into [`Settings`] and a
//! [`Request`] before any memory rule applies.
//!
//! * `book`: the tables of names, what was given for them, and what is said about the outcome.
//! * `sections`: what a configuration may say outside `generator`.
//! * `request`: sizes and counts, with each family's rules for them.
//! * [`legal`]: which sizes and counts a deployment takes.
//! * `fastvideo`, `diffusers`, `fv_run`: what each runtime makes of its settings.
//! * `allocator`: the options of PyTorch's allocator.
//!
//! A setting that could matter and that no rule models becomes a [`Reason`](fv_spec::estimate::Reason) in
//! [`Settings::unknown`]; an impossible value is an [`InputError`]. All errors are reported together.

mod allocator;
mod book;
mod diffusers;
pub(crate) mod fastvideo;
pub mod fv_run;
pub mod legal;
mod request;
pub(crate) mod sections;

use std::collections::BTreeMap;

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::{Provenance, Reason, Setting};
use fv_spec::request::{PartialRequest, Request};
use serde_json::{Map, Value, json};

use crate::caching;
use crate::device::dtype_word;
use crate::error::InputError;
use crate::settings::{Attention, Component, Guidance, Placement, Precision, Settings};
use crate::storage::Storage;
use book::{Book, Key, Kind, Meaning};
use sections::REQUESTS;

/// What the user sets beside the request.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Overrides {
    /// Environment variables, over those of the deployment.
    pub env: BTreeMap<String, String>,
    /// Settings by the runtime's own name, dotted or flat; the last of several wins.
    pub set: Vec<(String, Value)>,
    /// Whether the device shares its memory with the host: FastVideo turns every offload flag off there.
    pub unified_memory: bool,
}

/// A setting that could matter and that no rule models.
const UNKNOWN_SETTING: &str = "unknown-setting";

/// Settings and request of `example` under `overrides`.
///
/// # Errors
///
/// Every impossible value, conflict and unknown key at once.
pub fn resolve(
    model: &Model,
    example: &Example,
    request: &PartialRequest,
    overrides: &Overrides,
) -> Result<(Settings, Request), Vec<InputError>> {
    let context = Context::new(model, example, overrides);
    let mut errors = context.unreadable();
    let names = names_of(example.runtime);
    let mut book = names.map(|(lookup, names)| Book::new(lookup, names));
    let mut given = Vec::new();
    if let Some(book) = &mut book {
        book.authored(&example.base_config);
        book.user(&overrides.set);
        given = std::mem::take(&mut book.errors);
    }
    let workload = match &book {
        Some(book) => book.given("workload_type").and_then(|given| given.value.as_str()),
        None => example.base_config.get("generator").and_then(|generator| generator.get("pipeline")?.get("workload_type")?.as_str()),
    };
    let request = request::resolve(&context, workload, request, &mut errors);
    errors.append(&mut given);
    let Some(mut book) = book else {
        return if errors.is_empty() { Ok((uncovered(&context), request.value)) } else { Err(errors) };
    };
    book.errors = errors;
    book.notes = request.notes;
    match example.runtime {
        Runtime::Diffusers => diffusers::resolve(&context, request.value, book),
        Runtime::FvRun => fv_run::resolve(&context, request.value, book),
        _ => fastvideo::resolve(&context, request.value, book),
    }
}

/// What a runtime's names mean, and all of them; `None` where its settings are not resolved.
fn names_of(runtime: Runtime) -> Option<(Lookup, Names)> {
    match runtime {
        Runtime::FastVideo => Some((fastvideo::lookup, fastvideo::names)),
        Runtime::Diffusers => Some((diffusers::lookup, diffusers::names)),
        Runtime::FvRun => Some((fv_run::lookup, fv_run::names)),
        Runtime::FreeVideo => None,
    }
}

type Lookup = fn(&str) -> Option<Meaning>;
type Names = fn() -> Vec<&'static str>;

/// Where a configuration sets the reported setting `key`, such as `generator.engine.offload.vae` for `vae_cpu_offload`.
/// `None` for environment variables and for what follows from other settings.
pub fn config_path(runtime: Runtime, key: &str) -> Option<String> {
    let (lookup, _) = names_of(runtime)?;
    match lookup(key) {
        Some(Meaning::Key(found)) if found.name == key => Some(found.path()),
        _ => None,
    }
}

/// The path that stands for every way to write the same setting: `generator.engine.attention.vsa_sparsity` for
/// `generator.pipeline.experimental.VSA_sparsity`. `None` for what is no setting of the runtime.
pub fn canonical(runtime: Runtime, path: &str) -> Option<String> {
    let (lookup, _) = names_of(runtime)?;
    let path = path.strip_prefix("generator.").unwrap_or(path);
    let in_request = REQUESTS.iter().find_map(|section| path.strip_prefix(section)?.strip_prefix('.'));
    let path = in_request.map_or_else(|| path.to_owned(), |rest| format!("{}.{rest}", REQUESTS[0]));
    if let Some(Meaning::Key(key)) = lookup(&path) {
        return Some(key.path());
    }
    // Below a setting whose value is a mapping.
    path.rmatch_indices('.').find_map(|(at, _)| match lookup(&path[..at]) {
        Some(Meaning::Key(key @ Key { kind: Kind::Any, .. })) => Some(key.path() + &path[at..]),
        _ => None,
    })
}

/// The order in which a runtime reads the keys of a configuration: what comes later wins.
pub(crate) fn precedence(path: &str) -> (bool, bool) {
    book::precedence(path.strip_prefix("generator.").unwrap_or(path))
}

/// A configuration without what the user takes back by setting it to null, however it is written there.
pub fn without_nulls(runtime: Runtime, config: &Map<String, Value>, set: &[(String, Value)]) -> Map<String, Value> {
    let name = |path: &str| canonical(runtime, path).unwrap_or_else(|| path.strip_prefix("generator.").unwrap_or(path).to_owned());
    let gone: Vec<String> = set.iter().filter(|(_, value)| value.is_null()).map(|(path, _)| name(path)).collect();
    let mut config = config.clone();
    if !gone.is_empty() {
        prune(&mut config, "", &|path| gone.contains(&name(path)));
    }
    config
}

fn prune(map: &mut Map<String, Value>, path: &str, gone: &dyn Fn(&str) -> bool) {
    map.retain(|key, value| {
        let path = if path.is_empty() { key.clone() } else { [path, ".", key].concat() };
        if gone(&path) {
            return false;
        }
        if let Value::Object(inner) = value {
            prune(inner, &path, gone);
        }
        true
    });
}

/// Whether an environment variable says nothing about memory with this runtime.
pub(crate) fn harmless_variable(runtime: Runtime, name: &str) -> bool {
    match runtime {
        // Another program's.
        Runtime::Diffusers | Runtime::FvRun => name.starts_with("FASTVIDEO_"),
        Runtime::FastVideo | Runtime::FreeVideo => fastvideo::harmless(name),
    }
}

/// What the resolvers read.
struct Context<'a> {
    model: &'a Model,
    example: &'a Example,
    overrides: &'a Overrides,
    /// By role, the deployment's own choice before the model's.
    components: [Option<&'a ExpandedComponent>; 7],
    /// By name, with where each came from; the user's before the deployment's.
    env: BTreeMap<&'a str, (&'a str, Provenance)>,
}

impl<'a> Context<'a> {
    fn new(model: &'a Model, example: &'a Example, overrides: &'a Overrides) -> Self {
        let components = Role::ALL.map(|role| example.components.get(&role).or_else(|| model.components.get(&role)));
        let deployment = example.env.iter().filter_map(|(name, value)| {
            value.as_str().map(|text| (name.as_str(), (text, Provenance::Environment))) //
        });
        let user = overrides.env.iter().map(|(name, value)| (name.as_str(), (value.as_str(), Provenance::User)));
        Self { model, example, overrides, components, env: deployment.chain(user).collect() }
    }

    /// The deployment's environment where it is not text.
    fn unreadable(&self) -> Vec<InputError> {
        let wrong = self.example.env.iter().filter(|(_, value)| !value.is_string());
        let wrong = wrong.map(|(name, value)| format!("environment variable {name}: found {}, allowed: text", book::found(value)));
        wrong.map(|message| InputError::new("invalid-value", message)).collect()
    }

    fn family(&self) -> &'a str {
        &self.model.memory_rules
    }

    fn component(&self, role: Role) -> Option<&'a ExpandedComponent> {
        Role::ALL.iter().position(|r| *r == role).and_then(|i| self.components[i])
    }

    /// A positive integer of a component's geometry.
    fn geometry(&self, role: Role, field: &str) -> Option<u32> {
        whole(self.component(role)?.geometry.as_ref()?.get(field)?)
    }

    /// Time, height and width of the transformer's patch.
    fn patch(&self) -> [u32; 3] {
        let patch = self.component(Role::Transformer).and_then(|c| c.geometry.as_ref()?.get("patch_size")?.as_array());
        let side = |i: usize| patch.and_then(|sides| whole(sides.get(i)?)).unwrap_or(1).max(1);
        [side(0), side(1), side(2)]
    }

    /// `<section>.<name>` of the configuration's request.
    fn default_request(&self, section: &str, name: &str) -> Option<&'a Value> {
        sections::requests(&self.example.base_config).find_map(|request| request.get(section)?.get(name).filter(|value| !value.is_null()))
    }

    /// Wan 2.2 TI2V: text and image to video in one model, told by its latents going in and out alike through the
    /// high-compression VAE.
    fn text_or_image(&self) -> bool {
        let latent = self.geometry(Role::Vae, "latent_channels");
        self.family() == "wan"
            && self.geometry(Role::Vae, "spatial_compression") == Some(16)
            && latent.is_some()
            && self.geometry(Role::Transformer, "in_channels") == latent
    }

    /// Whether a Wan transformer takes an image's latent beside its own, and so cannot do without one.
    fn image_to_video(&self) -> bool {
        let input = self.geometry(Role::Transformer, "in_channels");
        self.family() == "wan" && input.is_some() && input != self.geometry(Role::Vae, "latent_channels") && !self.text_or_image()
    }

    /// Whether the model or a component carries `word` in its name.
    fn named(&self, word: &str) -> bool {
        let holds = |text: &str| text.to_ascii_lowercase().contains(word);
        let transformer = self.component(Role::Transformer).is_some_and(|c| holds(&c.component) || holds(&c.name));
        holds(&self.model.id) || holds(&self.model.model_id) || transformer
    }
}

fn whole(value: &Value) -> Option<u32> {
    value.as_u64().and_then(|n| u32::try_from(n).ok())
}

/// `text` times `unit`, rounded down: a decimal number without sign, never through floating point.
pub(crate) fn scaled(text: &str, unit: u64) -> Option<u64> {
    let text = text.trim();
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |part: &str| part.len() <= 18 && part.bytes().all(|b| b.is_ascii_digit());
    if !digits(integer) || !digits(fraction) || (integer.is_empty() && fraction.is_empty()) {
        return None;
    }
    let all = [integer, fraction].concat().parse::<u128>().ok()?;
    // The number is `all` times ten to the power of this.
    let power = exponent.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let ten = 10_u128.checked_pow(power.unsigned_abs());
    let scaled = match ten {
        _ if all == 0 => 0,
        Some(ten) if power >= 0 => all.checked_mul(ten)?.checked_mul(unit.into())?,
        // The whole part and the rest, so that the product stays in range.
        Some(ten) => (all / ten).checked_mul(unit.into())?.checked_add((all % ten).checked_mul(unit.into())? / ten)?,
        None if power < 0 => 0,
        None => return None,
    };
    u64::try_from(scaled).ok()
}

/// The type called `text`, by either of its usual names.
fn dtype(text: &str) -> Option<Dtype> {
    match text.strip_prefix("torch.").unwrap_or(text) {
        "fp32" | "float32" => Some(Dtype::Fp32),
        "fp16" | "float16" => Some(Dtype::Fp16),
        "bf16" | "bfloat16" => Some(Dtype::Bf16),
        _ => None,
    }
}

/// Stored and computed alike.
fn plain(dtype: Dtype) -> Precision {
    Precision { stored: Storage::Plain(dtype), computed: dtype, autocast: false, cast_cache: false, keep_fp32: false }
}

fn placement_value(placement: Placement) -> Value {
    match placement {
        Placement::Resident => json!("resident"),
        Placement::Moved { pinned } => json!({ "moved": { "pinned": pinned } }),
        Placement::Streamed { resident, prefetch, group, pinned, rest_resident } => json!({ "streamed": {
            "resident": resident, "prefetch": prefetch, "group": group, "pinned": pinned, "rest_resident": rest_resident
        } }),
        Placement::Leaf { pinned } => json!({ "leaf": { "pinned": pinned } }),
        Placement::Gathered => json!("gathered"),
        Placement::Host => json!("host"),
    }
}

fn storage_word(storage: Storage) -> &'static str {
    match storage {
        Storage::Plain(dtype) => dtype_word(dtype),
        Storage::Fp8PerTensor => "fp8_per_tensor",
        Storage::Fp8PerChannel => "fp8_per_channel",
        Storage::Fp8Blockwise { .. } => "fp8_blockwise",
        Storage::Int8PerRow => "int8_per_row",
        Storage::Int8PerChannel => "int8_per_channel",
        Storage::Nvfp4 => "nvfp4",
    }
}

fn attention_word(attention: Attention) -> Value {
    match attention {
        Attention::Sdpa => json!("sdpa"),
        Attention::Flash => json!("flash"),
        Attention::Cudnn => json!("cudnn"),
        Attention::Efficient => json!("efficient"),
        Attention::Math => json!("math"),
        Attention::VideoSparse { sparsity_permille, tile } => {
            json!({ "video_sparse": { "sparsity_permille": sparsity_permille, "tile": tile } })
        }
    }
}

fn guidance_word(guidance: Guidance) -> &'static str {
    match guidance {
        Guidance::None => "none",
        Guidance::Sequential => "sequential",
        Guidance::Batched => "batched",
    }
}

/// A runtime whose settings are decided elsewhere.
fn uncovered(context: &Context<'_>) -> Settings {
    let runtime = context.example.runtime;
    let component = Component { placement: Placement::Resident, precision: plain(Dtype::Bf16) };
    let asked: BTreeMap<&String, &Value> = context.overrides.set.iter().map(|(key, value)| (key, value)).collect();
    let mut settings = Settings {
        runtime,
        gpu_count: 1,
        tensor_parallel: 1,
        sequence_parallel: 1,
        shard: 1,
        components: context.components.map(|c| c.map(|_| component)),
        attention: Attention::Sdpa,
        fused_rope: false,
        compile: false,
        feature_cache: false,
        tiling: None,
        vae_slicing: false,
        guidance: Guidance::None,
        guidance_delta_kept: false,
        per_token_timesteps: false,
        pinned_rounding: false,
        pinned_host: false,
        allocator: caching::Config::default(),
        // Nothing is made of them, and evidence has to be of the same.
        reported: asked
            .into_iter()
            .map(|(key, value)| Setting { key: key.clone(), value: value.clone(), provenance: Provenance::User })
            .collect(),
        unknown: Vec::new(),
        notes: Vec::new(),
    };
    // What a plan decides may be given for a question about it, by the plan's own names.
    let planned = |key: &str| matches!(key, "head_chunk" | "resident_blocks");
    for (key, value) in context.overrides.set.iter().filter(|(key, _)| planned(key)) {
        settings.reported.push(Setting { key: key.clone(), value: value.clone(), provenance: Provenance::User });
    }
    // The planner stands in, once it knows both memories.
    settings.unknown.push(Reason::new(
        "uncovered-runtime",
        format!(
            "settings of the runtime {} are not resolved: its memory is decided by a plan, for which the host's memory has to be known, \
             as by --host-gb",
            runtime.word()
        ),
    ));
    settings
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test may panic")]
mod tests;
