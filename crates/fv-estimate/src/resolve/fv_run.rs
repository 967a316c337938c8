//! What our own runtime makes of its settings: its planner decides all but the format of weights.

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::{Provenance, Reason};
use fv_spec::request::Request;
use serde_json::{Map, json};

use super::book::{Book, Effect, Key, Kind, Meaning};
use super::sections::REQUESTS;
use super::{Context, InputError, diffusers, fastvideo, plain};
use crate::caching;
use crate::planner::optimal::{Planner, model};
use crate::settings::{Attention, Component, Guidance, Placement, Settings};
use crate::wan::fv_run::asked;

static KEYS: &[Key] = &[
    Key::new("precision", &["pipeline.precision"], Kind::Choice(&["bf16", "fp8", "int8"]), Effect::Applies),
    Key::new("workload_type", &["pipeline.workload_type"], Kind::Choice(&["t2v", "i2v", "ti2v", "v2v", "t2i", "i2i"]), Effect::Applies),
    Key::new("num_gpus", &["engine.num_gpus"], Kind::Whole { least: 1, most: 1_024 }, Effect::Applies),
];

/// Its own names first; what other runtimes alone read is known and without effect.
pub(super) fn lookup(path: &str) -> Option<Meaning> {
    let own = KEYS.iter().find(|key| key.name == path || key.paths.contains(&path)).map(Meaning::Key);
    let others = || fastvideo::lookup(path).or_else(|| diffusers::lookup(path)).map(|_| Meaning::Inert);
    own.or_else(others).or_else(|| path.starts_with("pipeline.experimental.").then_some(Meaning::Inert))
}

pub(super) fn names() -> Vec<&'static str> {
    KEYS.iter().flat_map(|key| std::iter::once(key.name).chain(key.paths.iter().copied())).collect()
}

pub(super) fn resolve(context: &Context<'_>, request: Request, mut book: Book) -> Result<(Settings, Request), Vec<InputError>> {
    book.report("runtime", Runtime::FvRun.word(), Provenance::Authored);
    book.text("workload_type", "t2v");
    book.text("precision", "bf16");
    let gpu_count = book.count("num_gpus", 1).0;
    if gpu_count > 1 {
        book.unmodelled(&book.written("num_gpus"), "fv-run has no program for several GPUs");
    }
    book.close(Runtime::FvRun.word());
    let others: Vec<&str> = context.env.keys().copied().filter(|name| name.starts_with("FASTVIDEO_")).collect();
    if !others.is_empty() {
        book.note(format!("without effect with fv-run: {}", others.join(", ")));
    }
    match model::covered(context.model) {
        Ok(covered) => {
            let planner = Planner::new(covered);
            if book.errors.is_empty() {
                book.errors = planner.wrong_with(&asked(&planner, &request));
            }
            for (more, what) in [(request.batch > 1, "several videos at once"), (request.references > 0, "images as conditions")] {
                if more {
                    book.unknown.push(Reason::new("uncovered-request", format!("fv-run has no program for {what}")));
                }
            }
        }
        Err(reasons) => book.unknown.extend(reasons),
    }
    if !book.errors.is_empty() {
        return Err(book.errors);
    }
    // Whatever the format of stored weights, it is computed in BF16; narrower ones are bytes to the device.
    let component = Component { placement: Placement::Resident, precision: plain(Dtype::Bf16) };
    let settings = Settings {
        runtime: Runtime::FvRun,
        gpu_count,
        tensor_parallel: 1,
        sequence_parallel: 1,
        shard: 1,
        components: Role::ALL.map(|role| context.component(role).map(|_| component)),
        attention: Attention::Flash,
        fused_rope: false,
        compile: false,
        feature_cache: true,
        tiling: None,
        vae_slicing: false,
        guidance: if request.guidance_scale > 1.0 { Guidance::Sequential } else { Guidance::None },
        guidance_delta_kept: false,
        per_token_timesteps: false,
        pinned_rounding: false,
        pinned_host: false,
        allocator: caching::Config::default(),
        reported: book.reported,
        unknown: book.unknown,
        notes: book.notes,
    };
    Ok((settings, request))
}

/// The id of the deployment that stands in where the catalog has none for our own runtime.
pub const DEPLOYMENT: &str = "fv-run";

/// A deployment for our own runtime: the checkpoint, the components and the request of the model's first deployment; the planner decides
/// everything else. Nothing for a model that has no deployment at all.
///
/// It is not in the catalog, since nothing serves with it yet: it stands for a question about the runtime.
pub fn deployment(model: &Model) -> Option<Example> {
    let first = model.examples.first()?;
    let generator = first.base_config.get("generator");
    let path = generator.and_then(|generator| generator.get("model_path"));
    let workload = generator.and_then(|generator| generator.get("pipeline")?.get("workload_type"));
    let mut config = Map::new();
    config.insert("generator".to_owned(), json!({ "model_path": path, "pipeline": { "workload_type": workload } }));
    if let Some(request) = first.base_config.get(REQUESTS[0]) {
        config.insert(REQUESTS[0].to_owned(), request.clone());
    }
    if let Ok(covered) = model::covered(model)
        && let Some(sampling) = config.get_mut(REQUESTS[0]).and_then(|request| request.get_mut("sampling")?.as_object_mut())
    {
        // Models that were distilled take guidance into their weights, and other runtimes' scales mean nothing.
        let usual = covered.usual.sampling.guidance_thousandths.first().map_or(1.0, |scale| f64::from(*scale) / 1e3);
        sampling.insert("guidance_scale".to_owned(), json!(usual));
    }
    Some(Example {
        id: DEPLOYMENT.to_owned(),
        runtime: Runtime::FvRun,
        base_config: config,
        env: Map::new(),
        components: first.components.clone(),
    })
}
