//! Reference runs judged against a configuration, and what a judged run adds to an estimate.
//!
//! # Matching
//!
//! [`match_evidence`] sorts the runs of a model into three groups and gives every reason for each run, not the first only:
//!
//! * **rejected**: something that matters is known to differ. Codes end in `-differs`.
//! * **unverified**: nothing is known to differ, and something that matters is not known to be the same. Codes end in
//!   `-unknown` or `-missing`.
//! * **applicable**: everything that matters is the same. Remarks about the rest have codes that end in `-noted`.
//!
//! | compared | differs | not known |
//! | --- | --- | --- |
//! | hardware id | rejected | unverified |
//! | partition, a full card being no partition | rejected | |
//! | provisioned allocation, in bytes | rejected | |
//! | devices taking part | rejected | |
//! | runtime, deployment | rejected | |
//! | revision of the runtime | unverified | unverified |
//! | revision of the checkpoint | rejected | noted; unverified where the two cannot be compared |
//! | revisions of replaced components | rejected | unverified |
//! | random weights or a checkpoint | rejected | unverified |
//! | first or later request, where the query says which | unverified | |
//! | height, width, frames | rejected | unverified |
//! | batch, references, text tokens, guidance on or off | rejected | as the deployment has it, noted; else unverified |
//! | steps, strength of the guidance | noted | |
//! | launch environment, but for [`IGNORED_ENV`] and what the runtime's settings call harmless | rejected | unverified |
//! | configuration and the rest of the request, but for [`IGNORED`] and [`NOTED`] | rejected | unverified |
//!
//! The model needs no row of its own: `generator.model_path` is part of the configuration. A request that leaves an optional
//! field out was made with the deployment's own value; [`EvidenceQuery::default_request`] says what that is.
//!
//! Every name of a setting is the same key: `engine.attention.vsa_sparsity` and `experimental.VSA_sparsity` are compared. Commits
//! are compared with commits and versions with versions; any other name of a revision, such as a branch's, is never the same for
//! sure. The checkpoint's may go unsaid, since its shapes are the catalog's; the runtime's may not, since code decides memory.
//!
//! A run's configuration is complete and effective, a deployment's is what somebody wrote. The query's effective settings
//! close the gap: a key that the run records and the deployment does not is compared with the setting of that name. A
//! setting's name may leave out the leading parts of the path (`vae_tiling`) as long as only one key can be meant. A default
//! of the runtime, a value forced by another setting, or one from the environment needs no record of its own in the run: the
//! revision, the other setting and the environment are compared. A run that records what the deployment's configuration says
//! is the same even where the effective value is another, such as a forced one; only a planner may have made something else
//! of it, and a user's setting takes the configuration's place.
//!
//! # Assessing
//!
//! [`assess`] lets applicable runs decide, and no others. A run that establishes the device makes the verdict `fits` with
//! the basis `measured`, whatever the rules said; the estimate itself stays as it is. This is the whole truth table, for each
//! applicable run:
//!
//! | budget | device-wide use | start-up | the run establishes the device |
//! | --- | --- | --- | --- |
//! | the device, partition or allocation as it is | any or none | any | yes: the request completed there |
//! | smaller | not measured, or an allocator's only | any | no |
//! | smaller | above the budget | any | no, and neither that it cannot fit |
//! | smaller | within | measured | yes |
//! | smaller | within | not measured; loading fits by the rules, or they do not say | yes, with a remark |
//! | smaller | within | not measured; loading exceeds the budget by the rules | no |
//!
//! | verdict of the rules | no run establishes the device | one does | one does, and the host is too small or uncertain |
//! | --- | --- | --- | --- |
//! | `fits`, `uncertain`, `unknown` | unchanged, analytical | `fits`, measured | unchanged, analytical |
//! | `does_not_fit` | unchanged, analytical | `fits`, measured, with the disagreement in numbers | unchanged, analytical |
//!
//! * A budget is smaller than the device when somebody set one, when free memory was measured, or when some is kept for
//!   others. The run had the whole device, so only what the device showed can be compared with such a budget.
//! * Peaks of an allocator never establish the device. Where the budget is the device as it is, the completed request does,
//!   with or without them.
//! * A run records no host memory, so it says nothing about a host that is too small. Where device and host share their memory,
//!   the pool that the run had was the host's too: with the whole of it offered, the host is no second question.
//! * Ranks are compared one by one; their memory is never added.
//! * A run on another device or partition than the estimate's establishes nothing, whatever the match says.

use std::collections::{BTreeMap, BTreeSet};

use fv_spec::authored::{Execution, MemoryType, Metric, ReferenceRun, Role, Runtime, Scope};
use fv_spec::estimate::{
    Assessment, Basis, Estimate, EvidenceMatch, Interval, MatchedRun, MemoryReport, PeakBytes, Provenance, Reason, Setting, StageName,
    Verdict,
};
use fv_spec::request::Request;
use fv_spec::units::{Capacity, CapacityUnit, MAX_JSON_INTEGER};
use serde_json::{Map, Number, Value};

use crate::resolve::sections::{self, MEDIA, REQUESTS, requests};
use crate::resolve::{self, harmless_variable};

/// Keys of a configuration or request that cannot change memory, with the reason. `section.*` is everything under a
/// top-level section, a dotted entry is that key, and any other entry is the last part of a key, wherever it stands.
pub const IGNORED: &[(&str, &str)] = &[
    ("server.*", "how requests arrive"),
    ("streaming.*", "how results leave"),
    ("generator.engine.num_gpus", "compared as the number of devices"),
    ("generator.revision", "compared as the checkpoint's revision"),
    ("generator.trust_remote_code", "permission to load, not what is loaded"),
    ("dist_timeout", "how long ranks wait for each other"),
    ("log_level", "what is printed"),
    ("prompt", "its tokens are compared by their number"),
    ("negative_prompt", "its tokens are compared by their number"),
    ("prompt_path", "its tokens are compared by their number"),
    ("seed", "other noise of the same shape"),
    ("port", "an address"),
    ("output_dir", "where files go"),
    ("output_path", "where files go"),
    ("output_video_name", "where files go"),
    ("save_video", "what happens to frames that have left the device"),
    ("return_frames", "what happens to frames that have left the device"),
];

/// Keys whose difference is told and does not matter to memory, with the reason.
pub const NOTED: &[(&str, &str)] =
    &[("fps", "frames are compared by their number"), ("flow_shift", "other noise levels, the same tensors")];

/// Environment variables that cannot change memory, with the reason. `PREFIX*` is every name that begins so. A runtime's own
/// variables are not listed here: what its settings call harmless is ignored.
pub const IGNORED_ENV: &[(&str, &str)] = &[
    ("PYTHONUNBUFFERED", "what is printed"),
    ("CUDA_VISIBLE_DEVICES", "which devices: their kind and number are compared"),
    ("HIP_VISIBLE_DEVICES", "which devices: their kind and number are compared"),
    ("MASTER_ADDR", "an address"),
    ("MASTER_PORT", "an address"),
    ("HF_HOME", "where files are"),
    ("HF_HUB_CACHE", "where files are"),
    ("HF_HUB_OFFLINE", "where files come from"),
    ("HF_TOKEN", "who asks for files"),
    ("HF_ENDPOINT", "where files come from"),
    ("TRANSFORMERS_CACHE", "where files are"),
    ("TOKENIZERS_PARALLELISM", "threads of the host"),
    ("HOME", "the user's shell"),
    ("HOSTNAME", "the user's shell"),
    ("LANG", "the user's shell"),
    ("LC_*", "the user's shell"),
    ("LOGNAME", "the user's shell"),
    ("OLDPWD", "the user's shell"),
    ("PATH", "the user's shell"),
    ("PWD", "the user's shell"),
    ("SHELL", "the user's shell"),
    ("SHLVL", "the user's shell"),
    ("TERM", "the user's shell"),
    ("TMPDIR", "where files are"),
    ("TZ", "the user's shell"),
    ("USER", "the user's shell"),
];

const BATCH: &[&str] = &["num_videos_per_prompt", "batch", "num_videos", "batch_size"];
const TEXT_TOKENS: &[&str] = &["text_tokens", "max_sequence_length"];
const GUIDANCE: &[&str] = &["guidance_scale"];
const STEPS: &[&str] = &["num_inference_steps"];

/// What is asked about: everything that decides what runs, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct EvidenceQuery {
    /// The engine.
    pub runtime: Runtime,
    /// The deployment's id.
    pub deployment: String,
    /// The deployment's configuration, without what the user takes back: [`resolve::without_nulls`].
    pub base_config: Map<String, Value>,
    /// Effective settings under the runtime's own dotted names, the user's included: [`Estimate::settings`].
    pub settings: Vec<Setting>,
    /// The launch environment: the deployment's, with the user's over it.
    pub env: Map<String, Value>,
    /// The request with every field resolved.
    pub request: Request,
    /// The deployment's request when nothing is asked for: what a run used where it records no value.
    pub default_request: Option<Request>,
    /// The catalog id of the device; `None` where no device of the catalog is asked about.
    pub hardware: Option<String>,
    /// The partition of that device; `None` is the full card.
    pub partition: Option<String>,
    /// What is provisioned of it, in decimal GB.
    pub allocation_gb: Option<f64>,
    /// Devices taking part.
    pub gpu_count: u32,
    /// Revisions that would run.
    pub revisions: WantedRevisions,
    /// Whether random weights of the right shapes stand for the checkpoint.
    pub synthetic_weights: bool,
    /// Whether the request is the first of its process; `None` where that is not asked.
    pub execution: Option<Execution>,
}

/// Revisions that a query is about, where they are known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WantedRevisions {
    /// The runtime's. Without it no run is more than unverified.
    pub runtime: Option<String>,
    /// The checkpoint's; else `generator.revision` of the configuration.
    pub model: Option<String>,
    /// Those of replaced components.
    pub components: BTreeMap<Role, String>,
}

/// Sorts `runs` into applicable, unverified and rejected, each by id, with every reason.
pub fn match_evidence(query: &EvidenceQuery, runs: &[ReferenceRun]) -> EvidenceMatch {
    let mut result = EvidenceMatch::default();
    for run in runs {
        let (group, reasons) = Judgement::of(query, run).groups(&mut result);
        group.push(MatchedRun { id: run.id.clone(), reasons });
    }
    for group in [&mut result.applicable, &mut result.unverified, &mut result.rejected] {
        group.sort_by(|a, b| (&a.id, &a.reasons).cmp(&(&b.id, &b.reasons)));
    }
    result
}

/// What was found about one run.
#[derive(Default)]
struct Judgement {
    differs: Vec<Reason>,
    unknown: Vec<Reason>,
    notes: Vec<Reason>,
}

impl Judgement {
    fn of(query: &EvidenceQuery, run: &ReferenceRun) -> Self {
        let mut found = Self::default();
        found.place(query, run);
        found.engine(query, run);
        found.request(query, run);
        found.environment(query, run);
        found.configuration(query, run);
        found
    }

    /// The group that the findings put the run in, and all reasons, the weightiest first.
    fn groups(self, result: &mut EvidenceMatch) -> (&mut Vec<MatchedRun>, Vec<Reason>) {
        let Self { differs, unknown, notes } = self;
        let group = if !differs.is_empty() {
            &mut result.rejected
        } else if !unknown.is_empty() {
            &mut result.unverified
        } else {
            let reason = Reason::new("context-same", "everything that matters to memory is the same");
            return (&mut result.applicable, [reason].into_iter().chain(notes).collect());
        };
        (group, differs.into_iter().chain(unknown).chain(notes).collect())
    }

    fn differs(&mut self, code: &str, message: impl Into<String>) {
        self.differs.push(Reason::new(code, message));
    }

    fn unknown(&mut self, code: &str, message: impl Into<String>) {
        self.unknown.push(Reason::new(code, message));
    }

    fn note(&mut self, code: &str, message: impl Into<String>) {
        self.notes.push(Reason::new(code, message));
    }

    /// Where it ran.
    fn place(&mut self, query: &EvidenceQuery, run: &ReferenceRun) {
        match &query.hardware {
            None => self.unknown("hardware-unknown", format!("it ran on `{}`; no device of the catalog is asked about", run.hardware)),
            Some(wanted) if *wanted != run.hardware => {
                self.differs("hardware-differs", format!("it ran on `{}`, not `{wanted}`", run.hardware));
            }
            Some(_) => {}
        }
        if query.partition != run.hardware_partition {
            let whole =
                |partition: &Option<String>| partition.as_ref().map_or("the full card".to_owned(), |id| format!("partition `{id}`"));
            let message = format!("it ran on {}, not on {}", whole(&run.hardware_partition), whole(&query.partition));
            self.differs("partition-differs", message);
        }
        let bytes = |gb: Option<f64>| gb.map(|value| Capacity { value, unit: CapacityUnit::Gb }.bytes());
        if bytes(query.allocation_gb) != bytes(run.hardware_allocation_gb) {
            let words = |gb: Option<f64>| gb.map_or("no allocation of its own".to_owned(), |gb| format!("an allocation of {gb} GB"));
            let message = format!("it had {}, not {}", words(run.hardware_allocation_gb), words(query.allocation_gb));
            self.differs("allocation-differs", message);
        }
        if query.gpu_count != run.gpu_count {
            self.differs("gpu-count-differs", format!("it used {} device(s), not {}", run.gpu_count, query.gpu_count));
        }
    }

    /// What ran it.
    fn engine(&mut self, query: &EvidenceQuery, run: &ReferenceRun) {
        let context = &run.context;
        if query.runtime != context.runtime {
            self.differs("runtime-differs", format!("it ran in {}, not {}", context.runtime.word(), query.runtime.word()));
        }
        if query.deployment != context.deployment {
            self.differs("deployment-differs", format!("it used deployment `{}`, not `{}`", context.deployment, query.deployment));
        }
        let revisions = &context.revisions;
        let ran = if context.runtime == Runtime::FastVideo { &revisions.fastvideo } else { &revisions.runtime };
        match (&query.revisions.runtime, ran) {
            (Some(wanted), Some(ran)) if same_revision(wanted, ran) == Some(true) => {}
            (Some(wanted), Some(ran)) => {
                let message = format!("it ran {} at {}, not {}", context.runtime.word(), shown(ran), shown(wanted));
                self.unknown("runtime-revision-unknown", message);
            }
            (None, Some(ran)) => {
                let message = format!("it ran {} at {}; which revision is asked about is not known", context.runtime.word(), shown(ran));
                self.unknown("runtime-revision-unknown", message);
            }
            (_, None) => self.unknown("runtime-revision-unknown", format!("it does not say which {} it ran", context.runtime.word())),
        }
        self.checkpoint(query, run);
        if let Some(wanted) = query.execution
            && wanted != run.execution
        {
            let words = |execution| match execution {
                Execution::FirstRequest => "the first request of its process",
                Execution::WarmRequest => "a later request of its process",
            };
            self.unknown("execution-unknown", format!("it was {}, not {}", words(run.execution), words(wanted)));
        }
    }

    /// The weights that it ran with.
    fn checkpoint(&mut self, query: &EvidenceQuery, run: &ReferenceRun) {
        let revisions = &run.context.revisions;
        let configured = || query.base_config.get("generator").and_then(|generator| generator["revision"].as_str());
        match query.revisions.model.as_deref().or_else(configured) {
            None => self.note("model-revision-noted", format!("it loaded the checkpoint at {}", shown(&revisions.model))),
            Some(wanted) => {
                let message = || format!("it loaded the checkpoint at {}, not {}", shown(&revisions.model), shown(wanted));
                match same_revision(wanted, &revisions.model) {
                    Some(true) => {}
                    Some(false) => self.differs("model-revision-differs", message()),
                    None => self.unknown("model-revision-unknown", message()),
                }
            }
        }
        let wanted = &query.revisions.components;
        for role in wanted.keys().chain(revisions.components.keys()).collect::<BTreeSet<_>>() {
            let word = role.word();
            match (wanted.get(role), revisions.components.get(role)) {
                (Some(wanted), Some(ran)) => match same_revision(wanted, ran) {
                    Some(true) => {}
                    Some(false) => {
                        self.differs("component-revision-differs", format!("its {word} was at {}, not {}", shown(ran), shown(wanted)));
                    }
                    None => self.unknown("component-revision-unknown", format!("its {word} was at {}, not {}", shown(ran), shown(wanted))),
                },
                (None, Some(ran)) => self.unknown("component-revision-unknown", format!("its {word} was replaced by {}", shown(ran))),
                (_, None) => self.unknown("component-revision-unknown", format!("it does not say that its {word} was replaced")),
            }
        }
        match run.context.weights.as_deref() {
            None if run.context.runtime == Runtime::FvRun => {
                self.unknown("weights-unknown", "it does not say whether its weights were a checkpoint's");
            }
            weights => {
                let synthetic = weights.is_some_and(|weights| weights.starts_with("synthetic:"));
                if synthetic != query.synthetic_weights {
                    let words = |synthetic| if synthetic { "random weights" } else { "a checkpoint" };
                    self.differs("weights-differs", format!("it ran with {}, not {}", words(synthetic), words(query.synthetic_weights)));
                }
            }
        }
    }

    /// What was asked of it, as far as a [`Request`] says.
    fn request(&mut self, query: &EvidenceQuery, run: &ReferenceRun) {
        let recorded = Recorded::new(run);
        let (wanted, default) = (&query.request, query.default_request.as_ref());
        let mut assumed = Vec::new();
        for (word, wanted) in [("height", wanted.height), ("width", wanted.width), ("num_frames", wanted.num_frames)] {
            self.number(word, f64::from(wanted), &recorded.numbers(&[word]));
        }
        let optional = [
            ("batch", recorded.numbers(BATCH), wanted.batch, default.map(|request| request.batch)),
            ("references", recorded.references(), wanted.references, default.map(|request| request.references)),
            ("text_tokens", recorded.numbers(TEXT_TOKENS), wanted.text_tokens, default.map(|request| request.text_tokens)),
        ];
        for (word, values, wanted, default) in optional {
            let values = or_default(word, values, default.map(f64::from), &mut assumed);
            self.number(word, f64::from(wanted), &values);
        }
        let guided = |scale: f64| scale > 1.0;
        let words = |scale: f64| if guided(scale) { "with guidance" } else { "without guidance" };
        let values = or_default("guidance_scale", recorded.numbers(GUIDANCE), default.map(|request| request.guidance_scale), &mut assumed);
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            self.unknown("guidance-unknown", "it does not say whether it ran with guidance");
        } else if let Some(value) = values.iter().find(|value| guided(**value) != guided(wanted.guidance_scale)) {
            self.differs("guidance-differs", format!("it ran {}, not {}", words(*value), words(wanted.guidance_scale)));
        } else if let Some(value) = values.iter().find(|value| !same(**value, wanted.guidance_scale)) {
            let message = format!("its guidance was {value}, not {}; that changes no tensor's size", wanted.guidance_scale);
            self.note("guidance-noted", message);
        }
        let steps = f64::from(wanted.num_inference_steps);
        if let Some(value) = recorded.numbers(STEPS).into_iter().find(|value| !same(*value, steps)) {
            self.note("steps-noted", format!("it took {value} steps, not {steps}; a step frees what it uses"));
        }
        if !assumed.is_empty() {
            let message = format!("not recorded, so as the deployment has it: {}", assumed.join(", "));
            self.note("request-noted", message);
        }
    }

    /// One number of the request: every recorded value is the wanted one.
    fn number(&mut self, word: &str, wanted: f64, values: &[f64]) {
        let code = word.replace('_', "-");
        if values.is_empty() || values.iter().any(|value| value.is_nan()) {
            self.unknown(&format!("{code}-unknown"), format!("it does not record {word}"));
        } else if let Some(value) = values.iter().find(|value| !same(**value, wanted)) {
            self.differs(&format!("{code}-differs"), format!("{word} was {value}, not {wanted}"));
        }
    }

    /// The launch environment. Only names are told: a user's values may be nobody else's business.
    fn environment(&mut self, query: &EvidenceQuery, run: &ReferenceRun) {
        let ran = &run.context.env;
        let names: BTreeSet<&String> = query.env.keys().chain(ran.keys()).collect();
        for name in names.into_iter().filter(|name| !ignored_env(name) && !harmless_variable(run.context.runtime, name)) {
            match (query.env.get(name), ran.get(name)) {
                (Some(wanted), Some(ran)) if text(wanted) == text(ran) => {}
                (Some(_), Some(_)) => self.differs("env-differs", format!("{name} had another value")),
                (Some(_), None) => self.unknown("env-missing", format!("it does not record {name}")),
                (None, _) => self.unknown("env-missing", format!("it ran with {name}, about which the query says nothing")),
            }
        }
    }

    /// The serving configuration, and what of the request is not in a [`Request`].
    fn configuration(&mut self, query: &EvidenceQuery, run: &ReferenceRun) {
        let base = keys(query.runtime, &query.base_config, None);
        // Under the names of one runtime: of another no run is compared further.
        let ran = keys(query.runtime, &run.context.config, Some(&run.context.request));
        let effective = self.effective(query, &base, &ran);
        let paths: BTreeSet<&String> = base.keys().chain(ran.keys()).collect();
        for path in paths {
            let written = base.get(path);
            let setting = effective.get(path.as_str());
            let Some(ran) = ran.get(path) else {
                // What follows from the rest of the context needs no record of its own; what somebody asked for does.
                let wanted = setting.filter(|setting| setting.provenance == Provenance::User).map(|setting| &setting.value).or(written);
                if let Some(wanted) = wanted
                    && !noted(path)
                {
                    self.unknown("setting-missing", format!("it does not record `{path}`, here {}", value(path, wanted)));
                }
                continue;
            };
            let Some(wanted) = setting.map(|setting| &setting.value).or(written) else {
                if !noted(path) {
                    self.unknown("setting-missing", format!("it ran with `{path}` at {}, which is not known here", value(path, ran)));
                }
                continue;
            };
            if same_value(wanted, ran) {
                continue;
            }
            let asked = written.is_some_and(|written| same_value(written, ran));
            let message = format!("`{path}` was {}, not {}", value(path, ran), value(path, wanted));
            match setting.map(|setting| setting.provenance) {
                Some(Provenance::Planner) if asked => {
                    self.unknown("setting-unknown", format!("{message}: it records what was asked for, not what was planned"));
                }
                // The same was asked for, in the same context, so the same came of it.
                Some(provenance) if asked && provenance != Provenance::User => {}
                _ if noted(path) => self.note("setting-noted", message),
                _ => self.differs("setting-differs", message),
            }
        }
    }

    /// The settings by the key of a configuration that each is about.
    fn effective<'a>(
        &mut self,
        query: &'a EvidenceQuery,
        base: &BTreeMap<String, Value>,
        ran: &BTreeMap<String, Value>,
    ) -> BTreeMap<String, &'a Setting> {
        let mut effective = BTreeMap::new();
        // The user's come last, and so prevail.
        let user = |setting: &&Setting| setting.provenance == Provenance::User;
        let settings = || query.settings.iter();
        for setting in settings().filter(|setting| !user(setting)).chain(settings().filter(user)) {
            let known = |name: &String| base.contains_key(name) || ran.contains_key(name);
            let name = compared(query.runtime, &setting.key).filter(known).unwrap_or_else(|| in_request(&setting.key));
            if left_out(&name) {
                continue;
            }
            let exact = known(&name);
            let ends = |path: &&String| path.strip_suffix(name.as_str()).is_some_and(|front| front.ends_with('.'));
            let candidates: BTreeSet<&String> =
                if exact { BTreeSet::from([&name]) } else { base.keys().chain(ran.keys()).filter(ends).collect() };
            let mut candidates = candidates.into_iter();
            match (candidates.next(), candidates.next()) {
                (Some(path), None) => {
                    effective.insert(path.clone(), setting);
                }
                (Some(path), Some(other)) if user(&setting) => {
                    let message = format!("`{name}` could be `{path}` or `{other}`");
                    self.unknown("setting-unknown", message);
                }
                (None, _) if matches!(setting.provenance, Provenance::User | Provenance::Planner) && !noted(&name) => {
                    self.unknown("setting-missing", format!("it does not record `{name}`, here {}", value(&name, &setting.value)));
                }
                _ => {}
            }
        }
        effective
    }
}

/// What a run says about its request.
struct Recorded<'a> {
    /// The normalised request, and below it those of the recorded configuration: the first that says anything counts.
    levels: Vec<&'a Map<String, Value>>,
}

impl<'a> Recorded<'a> {
    fn new(run: &'a ReferenceRun) -> Self {
        Self { levels: std::iter::once(&run.context.request).chain(requests(&run.context.config)).collect() }
    }

    /// Values under any of `names`, in `sampling` or beside it. Not a number for what is none.
    fn numbers(&self, names: &[&str]) -> Vec<f64> {
        self.first(|level| {
            let sections = [level.get("sampling").and_then(Value::as_object), Some(level)];
            let found = sections.into_iter().flatten().flat_map(|section| names.iter().filter_map(|name| section.get(*name)));
            found.filter(|value| !value.is_null()).map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
        })
    }

    /// How many conditioning inputs there were.
    fn references(&self) -> Vec<f64> {
        self.first(|level| sections::references(level).into_iter().map(|count| count.map_or(f64::NAN, f64::from)).collect())
    }

    fn first(&self, values: impl Fn(&'a Map<String, Value>) -> Vec<f64>) -> Vec<f64> {
        self.levels.iter().copied().map(values).find(|values| !values.is_empty()).unwrap_or_default()
    }
}

fn or_default(word: &'static str, values: Vec<f64>, default: Option<f64>, assumed: &mut Vec<&'static str>) -> Vec<f64> {
    match default {
        Some(default) if values.is_empty() => {
            assumed.push(word);
            vec![default]
        }
        _ => values,
    }
}

/// A request's keys under one name, wherever they stand.
fn in_request(path: &str) -> String {
    let rest = REQUESTS.iter().find_map(|section| path.strip_prefix(section)?.strip_prefix('.'));
    rest.map_or_else(|| path.to_owned(), |rest| format!("request.{rest}"))
}

/// The one path under which every way to write a setting is compared.
fn compared(runtime: Runtime, path: &str) -> Option<String> {
    resolve::canonical(runtime, path).map(|path| in_request(&path))
}

/// Every key of a configuration that counts, by its dotted path, requests under `request`. Empty values are no values. Of
/// several names of one setting the one counts that the runtime reads last.
fn keys(runtime: Runtime, config: &Map<String, Value>, request: Option<&Map<String, Value>>) -> BTreeMap<String, Value> {
    let mut written = BTreeMap::new();
    for (key, value) in config {
        if !REQUESTS.contains(&key.as_str()) {
            flatten(key, value, &mut written);
        }
    }
    let mut in_order: Vec<(String, Value)> = written.into_iter().collect();
    in_order.sort_by_key(|(path, _)| resolve::precedence(path));
    let mut levels: Vec<&Map<String, Value>> = requests(config).collect();
    levels.reverse();
    for level in levels.into_iter().chain(request) {
        let mut written = BTreeMap::new();
        for (key, value) in level {
            flatten(&format!("request.{key}"), value, &mut written);
        }
        in_order.extend(written);
    }
    // A name at the top is nobody's setting.
    let named = |path: &str| if path.starts_with("generator.") || path.starts_with("request.") { compared(runtime, path) } else { None };
    let found = in_order.into_iter().map(|(path, value)| (named(&path).unwrap_or(path), value));
    let mut found: BTreeMap<String, Value> = found.collect();
    found.retain(|path, _| !left_out(path));
    found
}

/// A literal dotted key and the nested one mean the same: runtimes apply `experimental` that way.
fn flatten(path: &str, value: &Value, found: &mut BTreeMap<String, Value>) {
    match value {
        Value::Null => {}
        Value::Object(map) => {
            for (key, value) in map {
                flatten(&format!("{path}.{key}"), value, found);
            }
        }
        _ => {
            found.insert(path.to_owned(), value.clone());
        }
    }
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// Whether a key cannot matter, or is compared as a field of the request.
fn left_out(path: &str) -> bool {
    let ignored = |pattern: &str| match pattern.strip_suffix(".*") {
        Some(section) => path.strip_prefix(section).is_some_and(|rest| rest.starts_with('.')),
        None if pattern.contains('.') => path == pattern,
        None => last(path) == pattern,
    };
    let of_request = || {
        let plain = [&["height", "width", "num_frames", "references"], BATCH, TEXT_TOKENS, GUIDANCE, STEPS, MEDIA];
        plain.iter().any(|names| names.contains(&last(path)))
    };
    // A bare name is a setting's, whose path is not known.
    IGNORED.iter().any(|(pattern, _)| ignored(pattern)) || ((path.starts_with("request.") || !path.contains('.')) && of_request())
}

fn noted(path: &str) -> bool {
    NOTED.iter().any(|(key, _)| last(path) == *key)
}

fn ignored_env(name: &str) -> bool {
    IGNORED_ENV.iter().any(|(pattern, _)| pattern.strip_suffix('*').map_or(name == *pattern, |prefix| name.starts_with(prefix)))
}

/// Whether two revisions are the same; a commit may be shortened. `None` where that cannot be told: a commit and a version, and
/// every other name, such as a branch's, which means another commit from one day to the next.
fn same_revision(a: &str, b: &str) -> Option<bool> {
    let [a, b] = [a, b].map(|text| text.trim().to_ascii_lowercase());
    let commit = |text: &str| text.len() >= 7 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    // Numbers with a point between them: `v0.42.1`, `2.11.0+cu126`, `1.0rc1`.
    let version = |text: &str| {
        let rest = text.strip_prefix('v').unwrap_or(text);
        let (major, minor) = rest.split_once('.')?;
        let digits = !major.is_empty() && major.bytes().all(|b| b.is_ascii_digit()) && minor.starts_with(|c: char| c.is_ascii_digit());
        digits.then(|| rest.to_owned())
    };
    match (commit(&a), commit(&b), version(&a), version(&b)) {
        (true, true, ..) => Some(a.starts_with(&b) || b.starts_with(&a)),
        (false, false, Some(a), Some(b)) => Some(a == b),
        _ => None,
    }
}

fn same(a: f64, b: f64) -> bool {
    a.partial_cmp(&b).is_some_and(std::cmp::Ordering::is_eq)
}

/// Whether two values are the same once read: `1` and `1.0` are, `1` and `"1"` are not, and the order of keys says nothing.
fn same_value(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => same_number(a, b),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same_value(a, b)),
        (Value::Object(a), Value::Object(b)) => a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same_value(a, b))),
        _ => a == b,
    }
}

fn same_number(a: &Number, b: &Number) -> bool {
    match (a.as_i128(), b.as_i128()) {
        (Some(a), Some(b)) => a == b,
        _ => matches!((a.as_f64(), b.as_f64()), (Some(a), Some(b)) if same(a, b)),
    }
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A value as a reason may show it: short, on one line, and not at all where its key sounds like a credential's.
fn value(path: &str, value: &Value) -> String {
    let name = last(path).to_ascii_lowercase();
    if ["token", "secret", "password", "credential", "api_key"].iter().any(|word| name.contains(word)) {
        return "a value that is not shown".to_owned();
    }
    shown(&value.to_string())
}

/// At most 60 characters in backticks, without control characters.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(60).map(|c| if c.is_control() { '?' } else { c }).collect();
    if text.chars().nth(60).is_some() { format!("`{short}...`") } else { format!("`{short}`") }
}

/// What a run measured, in one metric, on every rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredPeak {
    /// What was measured.
    pub metric: Metric,
    /// What that covers. Only [`Scope::Device`] can be compared with a budget.
    pub scope: Scope,
    /// The largest bytes of each rank in order: of its request, and of its start-up where that was measured.
    pub per_rank: Vec<(u32, u64)>,
    /// Whether start-up was measured on every rank.
    pub startup_known: bool,
}

impl MeasuredPeak {
    /// The bytes of the rank that used most. Ranks have memory of their own, which is never added.
    pub fn largest(&self) -> u64 {
        self.per_rank.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0)
    }
}

/// The peaks of a run in bytes. `None` where it measured none, where a rank is missing or twice there, or where the scope is
/// not the metric's.
pub fn measured_peak(run: &ReferenceRun) -> Option<MeasuredPeak> {
    let memory = run.memory.as_ref().filter(|memory| memory.scope == memory.metric.scope())?;
    let mut per_rank = Vec::new();
    for peaks in &memory.per_gpu {
        let startup = peaks.startup_peak.map_or(Some(0), bytes)?;
        per_rank.push((peaks.rank, bytes(peaks.request_peak)?.max(startup)));
    }
    per_rank.sort_unstable();
    per_rank.iter().map(|(rank, _)| *rank).eq(0..run.gpu_count).then(|| MeasuredPeak {
        metric: memory.metric,
        scope: memory.scope,
        per_rank,
        startup_known: memory.per_gpu.iter().all(|peaks| peaks.startup_peak.is_some()),
    })
}

/// Authored GiB in bytes. `None` for what is no size.
fn bytes(gib: f64) -> Option<u64> {
    let bytes = (gib.is_finite() && gib > 0.0).then(|| Capacity { value: gib, unit: CapacityUnit::Gib }.bytes())?;
    (1..=MAX_JSON_INTEGER).contains(&bytes).then_some(bytes)
}

/// An assessment and the runs that it rests on.
pub(crate) struct Assessed {
    pub(crate) assessment: Assessment,
    /// Runs that establish the device; empty where the basis is analytical.
    pub(crate) runs: Vec<String>,
    /// The largest device-wide use among them.
    pub(crate) device_used: Option<u64>,
}

/// The estimate together with what was measured; the table in the description of this module says how. `runs` are those that `matches`
/// was made from. The evidence's reasons come first; the estimate's follow unless a run decided.
pub fn assess(estimate: Estimate, matches: EvidenceMatch, runs: &[ReferenceRun]) -> Assessment {
    assess_with_runs(estimate, matches, runs).assessment
}

pub(crate) fn assess_with_runs(estimate: Estimate, matches: EvidenceMatch, runs: &[ReferenceRun]) -> Assessed {
    let mut reasons = Vec::new();
    let mut established = Vec::new();
    for matched in &matches.applicable {
        let Some(run) = runs.iter().find(|run| run.id == matched.id) else {
            reasons.push(Reason::new("run-missing", format!("run `{}` is not among the runs given", matched.id)));
            continue;
        };
        if establishes(&estimate, run, &mut reasons) {
            established.push(run);
        }
    }
    // The host's memory is the pool that the run had, as long as all of it is offered.
    let one_pool = estimate.memory.kind == Some(MemoryType::Unified) && !below_the_device(&estimate.memory);
    let host_allows = one_pool || matches!(estimate.host.status, Verdict::Fits | Verdict::Unknown);
    let measured = !established.is_empty() && host_allows;
    if measured {
        if estimate.status == Verdict::DoesNotFit {
            reasons.extend(established.iter().map(|run| disagreement(&estimate, run)));
        }
        if estimate.host.status == Verdict::Unknown && !one_pool {
            let message = "the host memory that is needed, or that there is, is not known; runs record none";
            reasons.push(Reason::new("host-unknown", message));
        }
    } else {
        if !established.is_empty() {
            let message = "the host does not fit or may not, and runs record no host memory: completed runs do not help";
            reasons.push(Reason::new("host-not-established", message));
            established.clear();
        }
        reasons.extend(estimate.reasons.iter().cloned());
    }
    let (status, basis) = if measured { (Verdict::Fits, Basis::Measured) } else { (estimate.status, Basis::Analytical) };
    Assessed {
        runs: established.iter().map(|run| run.id.clone()).collect(),
        device_used: established.iter().filter_map(|run| device_used(run)).map(|peak| peak.largest()).max(),
        assessment: Assessment { status, reasons, basis, estimate, evidence: matches },
    }
}

/// Whether a run shows that the request fits the device and its budget. Gives the reason either way.
fn establishes(estimate: &Estimate, run: &ReferenceRun, reasons: &mut Vec<Reason>) -> bool {
    let id = &run.id;
    let mut say = |code: &str, message: String| reasons.push(Reason::new(code, message));
    if estimate.hardware.as_ref() != Some(&run.hardware) || estimate.memory.partition != run.hardware_partition {
        say("run-elsewhere", format!("run `{id}` was on another device or partition than this estimate"));
        return false;
    }
    let used = device_used(run);
    if below_the_device(&estimate.memory) {
        let Some(peak) = &used else {
            let message = format!("run `{id}` had the whole device and did not measure its use, so it says nothing about a smaller budget");
            say("budget-not-measured", message);
            return false;
        };
        let Some(budget) = estimate.memory.budget_bytes else {
            say("budget-unknown", format!("the budget that run `{id}` would be compared with is not known"));
            return false;
        };
        let most = gib(peak.largest());
        if peak.largest() > budget {
            let message = format!("run `{id}` used {most} of the device, the budget is {}; it may need less than it used", gib(budget));
            say("measured-above-budget", message);
            return false;
        }
        if let Some(load) = stage_peak(estimate, StageName::Load).map(|peak| peak.device.low)
            && load > budget
            && !peak.startup_known
        {
            let message = format!(
                "run `{id}` did not measure start-up, for which the rules give at least {} of a budget of {}",
                gib(load),
                gib(budget)
            );
            say("startup-above-budget", message);
            return false;
        }
        say("measured-device-use", format!("run `{id}` completed and used at most {most} of the device; the budget is {}", gib(budget)));
    } else if let Some(peak) = &used {
        say("measured-device-use", format!("run `{id}` completed on this device and used at most {} of it", gib(peak.largest())));
    } else {
        say("completed-run", format!("run `{id}` completed on this device; how much of it was used was not measured"));
    }
    if !measured_peak(run).is_some_and(|peak| peak.startup_known) {
        say("startup-unknown", format!("run `{id}` has no peak of start-up, so what loading takes is not covered"));
    }
    true
}

/// Whether the budget is less than the device, partition or allocation that an applicable run had.
fn below_the_device(memory: &MemoryReport) -> bool {
    memory.reserve_bytes > 0 || matches!(memory.budget_source.as_deref(), Some("explicit" | "measured"))
}

fn device_used(run: &ReferenceRun) -> Option<MeasuredPeak> {
    measured_peak(run).filter(|peak| peak.scope == Scope::Device)
}

/// The rules refuse what was seen to run, in numbers; metrics are compared with themselves only.
fn disagreement(estimate: &Estimate, run: &ReferenceRun) -> Reason {
    let peaks = largest_peaks(estimate);
    let needs = peaks.map_or("more".to_owned(), |peaks| format!("at least {}", gib(peaks.device.low)));
    let budget = estimate.memory.budget_bytes.map_or("an unknown budget".to_owned(), |budget| format!("a budget of {}", gib(budget)));
    let mut message = format!("the rules ask for {needs} of {budget}, and run `{}` completed", run.id);
    if let Some(measured) = measured_peak(run) {
        message = format!("{message} with {} {}", measured.metric.word(), gib(measured.largest()));
        if let Some(peaks) = peaks {
            let (word, interval) = match measured.metric {
                Metric::TorchPeakAllocated => ("allocated", peaks.allocated),
                Metric::TorchPeakReserved => ("reserved", peaks.reserved),
                Metric::DeviceUsed => ("device", peaks.device),
            };
            message = format!("{message}; the rules give {word} {} ({} to {})", gib(interval.value), gib(interval.low), gib(interval.high));
        }
    }
    Reason::new("measured-contradicts-estimate", message)
}

fn stage_peak(estimate: &Estimate, stage: StageName) -> Option<PeakBytes> {
    estimate.stages.iter().find(|found| found.name == stage.word())?.peak_bytes
}

/// The largest of each figure over the stages: they do not run together.
pub(crate) fn largest_peaks(estimate: &Estimate) -> Option<PeakBytes> {
    let of =
        |metric: fn(&PeakBytes) -> Interval| Interval::highest(estimate.stages.iter().filter_map(|s| s.peak_bytes.as_ref()).map(metric));
    Some(PeakBytes { allocated: of(|p| p.allocated)?, reserved: of(|p| p.reserved)?, device: of(|p| p.device)? })
}

/// Bytes as GiB with two decimals, rounded half up, without floating point.
pub(crate) fn gib(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100 + (1 << 29)) >> 30;
    format!("{}.{:02} GiB", hundredths / 100, hundredths % 100)
}

#[cfg(test)]
pub(crate) mod tests {
    use fv_spec::estimate::{Coverage, HostBytes, HostReport, Stage, VERSION};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other} is no object"),
        }
    }

    fn config() -> Value {
        json!({
            "generator": {
                "model_path": "example/model",
                "engine": {"num_gpus": 1, "offload": {"vae": true}},
                "pipeline": {"vae_tiling": false, "experimental": {"VSA_sparsity": 0.8}},
            },
            "default_request": {"sampling": {"height": 720, "fps": 16, "boundary_ratio": 0.875}},
            "server": {"port": 8000},
        })
    }

    pub(crate) fn query() -> EvidenceQuery {
        let request = Request {
            height: 480,
            width: 832,
            num_frames: 81,
            batch: 1,
            guidance_scale: 3.0,
            num_inference_steps: 50,
            text_tokens: 512,
            references: 0,
        };
        EvidenceQuery {
            runtime: Runtime::FastVideo,
            deployment: "default".to_owned(),
            base_config: object(config()),
            settings: Vec::new(),
            env: object(json!({"FASTVIDEO_ATTENTION_BACKEND": "FLASH_ATTN"})),
            request,
            default_request: Some(request),
            hardware: Some("card-24gb".to_owned()),
            partition: None,
            allocation_gb: None,
            gpu_count: 1,
            revisions: WantedRevisions {
                runtime: Some("0123abcd".to_owned()),
                model: Some("4567def0".to_owned()),
                ..WantedRevisions::default()
            },
            synthetic_weights: false,
            execution: None,
        }
    }

    pub(crate) fn run(id: &str) -> ReferenceRun {
        serde_json::from_value(json!({
            "id": id, "date": "2026-11-30", "hardware": "card-24gb", "gpu_count": 1,
            "outcome": "completed", "execution": "warm_request", "evidence_url": "https://example.org/run.log",
            "context": {
                "runtime": "fastvideo", "deployment": "default",
                "revisions": {"fastvideo": "0123abcd", "model": "4567def0"},
                "config": config(),
                "request": {"prompt": "a hill", "sampling": {
                    "height": 480, "width": 832, "num_frames": 81, "seed": 7, "num_videos_per_prompt": 1,
                    "guidance_scale": 3.0, "num_inference_steps": 50, "text_tokens": 512, "references": 0,
                }},
                "env": {"FASTVIDEO_ATTENTION_BACKEND": "FLASH_ATTN", "FASTVIDEO_STAGE_LOGGING": "1", "PATH": "/bin", "LC_ALL": "C"},
            },
        }))
        .expect("a reference run")
    }

    pub(crate) fn measured(id: &str, metric: &str, request: f64, startup: Option<f64>) -> ReferenceRun {
        let mut run = run(id);
        let scope = if metric == "device_used" { "device" } else { "allocator" };
        let mut rank = json!({"rank": 0, "request_peak": request});
        if let Some(startup) = startup {
            rank["startup_peak"] = json!(startup);
        }
        run.memory =
            serde_json::from_value(json!({"metric": metric, "scope": scope, "unit": "GiB", "per_gpu": [rank]})).expect("a memory section");
        run
    }

    fn setting(key: &str, value: impl Into<Value>, provenance: Provenance) -> Setting {
        Setting { key: key.to_owned(), value: value.into(), provenance }
    }

    /// Sets a dotted path; `null` removes it.
    fn set(map: &mut Map<String, Value>, path: &[&str], value: Value) {
        match path {
            [] => {}
            [key] if value.is_null() => drop(map.remove(*key)),
            [key] => drop(map.insert((*key).to_owned(), value)),
            [key, rest @ ..] => {
                let inner = map.entry(*key).or_insert_with(|| json!({}));
                set(inner.as_object_mut().expect("a section"), rest, value);
            }
        }
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Group {
        Applicable,
        Unverified,
        Rejected,
    }
    use Group::{Applicable, Rejected, Unverified};

    /// The group of the only run, and the codes of its reasons.
    fn judged(query: &EvidenceQuery, run: &ReferenceRun) -> (Group, Vec<String>) {
        let found = match_evidence(query, std::slice::from_ref(run));
        let groups = [(Applicable, found.applicable), (Unverified, found.unverified), (Rejected, found.rejected)];
        let mut all = groups.into_iter().flat_map(|(group, runs)| runs.into_iter().map(move |run| (group, run)));
        let (group, matched) = all.next().expect("the run is in a group");
        assert!(all.next().is_none(), "the run is in two groups");
        (group, matched.reasons.into_iter().map(|reason| reason.code).collect())
    }

    type Change = fn(&mut EvidenceQuery, &mut ReferenceRun);

    /// What is changed in a pair that is otherwise the same, the group of the run, and the codes beside `context-same`.
    const CASES: &[(&str, Change, Group, &[&str])] = &[
        ("nothing", |_, _| {}, Applicable, &[]),
        // Where it ran.
        ("another device", |_, run| run.hardware = "card-80gb".into(), Rejected, &["hardware-differs"]),
        ("no device asked about", |query, _| query.hardware = None, Unverified, &["hardware-unknown"]),
        ("a partition against a full-card run", |query, _| query.partition = Some("1g".into()), Rejected, &["partition-differs"]),
        ("the full card against a partition's run", |_, run| run.hardware_partition = Some("1g".into()), Rejected, &["partition-differs"]),
        (
            "the same partition",
            |query, run| {
                query.partition = Some("1g".into());
                run.hardware_partition = Some("1g".into());
            },
            Applicable,
            &[],
        ),
        (
            "another partition",
            |query, run| {
                query.partition = Some("1g".into());
                run.hardware_partition = Some("2g".into());
            },
            Rejected,
            &["partition-differs"],
        ),
        ("an allocation in the run only", |_, run| run.hardware_allocation_gb = Some(10.0), Rejected, &["allocation-differs"]),
        ("an allocation in the query only", |query, _| query.allocation_gb = Some(10.0), Rejected, &["allocation-differs"]),
        (
            "the same allocation",
            |query, run| {
                query.allocation_gb = Some(10.0);
                run.hardware_allocation_gb = Some(10.000_000_000_1);
            },
            Applicable,
            &[],
        ),
        (
            "another allocation",
            |query, run| {
                query.allocation_gb = Some(10.0);
                run.hardware_allocation_gb = Some(12.0);
            },
            Rejected,
            &["allocation-differs"],
        ),
        ("more devices", |query, _| query.gpu_count = 2, Rejected, &["gpu-count-differs"]),
        // What ran it.
        ("another runtime", |query, _| query.runtime = Runtime::Diffusers, Rejected, &["runtime-differs"]),
        ("another deployment", |query, _| query.deployment = "other".into(), Rejected, &["deployment-differs"]),
        (
            "another version of the runtime",
            |query, _| query.revisions.runtime = Some("89abcdef".into()),
            Unverified,
            &["runtime-revision-unknown"],
        ),
        ("no version of the runtime asked about", |query, _| query.revisions.runtime = None, Unverified, &["runtime-revision-unknown"]),
        ("no version of the runtime recorded", |_, run| run.context.revisions.fastvideo = None, Unverified, &["runtime-revision-unknown"]),
        ("a shortened commit", |query, _| query.revisions.runtime = Some("0123ABC".into()), Applicable, &[]),
        (
            "a version with and without its letter",
            |query, run| {
                query.revisions.runtime = Some("v0.42.1".into());
                run.context.revisions.fastvideo = Some("0.42.1".into());
            },
            Applicable,
            &[],
        ),
        (
            "the same branch of the runtime",
            |query, run| {
                query.revisions.runtime = Some("main".into());
                run.context.revisions.fastvideo = Some("main".into());
            },
            Unverified,
            &["runtime-revision-unknown"],
        ),
        (
            "the same branch of the checkpoint",
            |query, run| {
                query.revisions.model = Some("main".into());
                run.context.revisions.model = "main".into();
            },
            Unverified,
            &["model-revision-unknown"],
        ),
        (
            "the same branch of a component",
            |query, run| {
                query.revisions.components.insert(Role::Vae, "main".into());
                run.context.revisions.components.insert(Role::Vae, "main".into());
            },
            Unverified,
            &["component-revision-unknown"],
        ),
        (
            "another version of the checkpoint",
            |query, run| {
                query.revisions.model = Some("v1.0".into());
                run.context.revisions.model = "v1.1".into();
            },
            Rejected,
            &["model-revision-differs"],
        ),
        ("another checkpoint revision", |query, _| query.revisions.model = Some("89abcdef".into()), Rejected, &["model-revision-differs"]),
        ("a branch against a commit", |query, _| query.revisions.model = Some("main".into()), Unverified, &["model-revision-unknown"]),
        ("no checkpoint revision asked about", |query, _| query.revisions.model = None, Applicable, &["model-revision-noted"]),
        (
            "the configuration's checkpoint revision",
            |query, _| {
                query.revisions.model = None;
                set(&mut query.base_config, &["generator", "revision"], json!("89abcdef"));
            },
            Rejected,
            &["model-revision-differs"],
        ),
        (
            "a replaced component",
            |_, run| drop(run.context.revisions.components.insert(Role::Vae, "0123abcd".into())),
            Unverified,
            &["component-revision-unknown"],
        ),
        (
            "a component to be replaced",
            |query, _| drop(query.revisions.components.insert(Role::Vae, "0123abcd".into())),
            Unverified,
            &["component-revision-unknown"],
        ),
        (
            "the same replaced component",
            |query, run| {
                query.revisions.components.insert(Role::Vae, "0123abcd".into());
                run.context.revisions.components.insert(Role::Vae, "0123abcdef".into());
            },
            Applicable,
            &[],
        ),
        (
            "a component replaced by another",
            |query, run| {
                query.revisions.components.insert(Role::Vae, "0123abcd".into());
                run.context.revisions.components.insert(Role::Vae, "89abcdef".into());
            },
            Rejected,
            &["component-revision-differs"],
        ),
        ("random weights", |_, run| run.context.weights = Some("synthetic:7".into()), Rejected, &["weights-differs"]),
        ("random weights asked about", |query, _| query.synthetic_weights = true, Rejected, &["weights-differs"]),
        (
            "random weights on both sides, whatever the seed",
            |query, run| {
                query.synthetic_weights = true;
                run.context.weights = Some("synthetic:8".into());
            },
            Applicable,
            &[],
        ),
        (
            "weights not said where they must be",
            |query, run| {
                query.runtime = Runtime::FvRun;
                run.context.runtime = Runtime::FvRun;
                run.context.revisions.runtime = run.context.revisions.fastvideo.take();
            },
            Unverified,
            &["weights-unknown"],
        ),
        ("the first request asked about", |query, _| query.execution = Some(Execution::FirstRequest), Unverified, &["execution-unknown"]),
        ("a later request asked about", |query, _| query.execution = Some(Execution::WarmRequest), Applicable, &[]),
        // What was asked of it.
        ("height", |query, _| query.request.height = 720, Rejected, &["height-differs"]),
        ("width", |query, _| query.request.width = 1280, Rejected, &["width-differs"]),
        ("frames", |query, _| query.request.num_frames = 121, Rejected, &["num-frames-differs"]),
        (
            "every size at once",
            |query, _| (query.request.height, query.request.width, query.request.num_frames) = (720, 1280, 121),
            Rejected,
            &["height-differs", "width-differs", "num-frames-differs"],
        ),
        ("frames as a float", |_, run| set(&mut run.context.request, &["sampling", "num_frames"], json!(81.0)), Applicable, &[]),
        (
            "frames as text",
            |_, run| set(&mut run.context.request, &["sampling", "num_frames"], json!("81")),
            Unverified,
            &["num-frames-unknown"],
        ),
        (
            "frames missing",
            |_, run| set(&mut run.context.request, &["sampling", "num_frames"], Value::Null),
            Unverified,
            &["num-frames-unknown"],
        ),
        (
            "height missing, and that of the recorded configuration another",
            |_, run| set(&mut run.context.request, &["sampling", "height"], Value::Null),
            Rejected,
            &["height-differs"],
        ),
        ("batch", |query, _| query.request.batch = 2, Rejected, &["batch-differs"]),
        ("batch under two names", |_, run| set(&mut run.context.request, &["sampling", "batch"], json!(2)), Rejected, &["batch-differs"]),
        ("references", |query, _| query.request.references = 1, Rejected, &["references-differs"]),
        ("text tokens", |query, _| query.request.text_tokens = 226, Rejected, &["text-tokens-differs"]),
        (
            "a reference among the inputs",
            |_, run| {
                set(&mut run.context.request, &["sampling", "references"], Value::Null);
                set(&mut run.context.request, &["inputs", "image_path"], json!("a.png"));
            },
            Rejected,
            &["references-differs"],
        ),
        (
            "as many references as are asked for",
            |query, run| {
                query.request.references = 3;
                set(&mut run.context.request, &["sampling", "references"], Value::Null);
                set(&mut run.context.request, &["inputs", "image_path"], json!(["a.png", "b.png"]));
                set(&mut run.context.request, &["inputs", "video_path"], json!("c.mp4"));
            },
            Applicable,
            &[],
        ),
        (
            "a batch beside the sampling section",
            |_, run| {
                set(&mut run.context.request, &["sampling", "num_videos_per_prompt"], Value::Null);
                set(&mut run.context.request, &["batch"], json!(2));
            },
            Rejected,
            &["batch-differs"],
        ),
        ("another strength of guidance", |query, _| query.request.guidance_scale = 5.0, Applicable, &["guidance-noted"]),
        ("guidance off", |query, _| query.request.guidance_scale = 1.0, Rejected, &["guidance-differs"]),
        ("other steps", |query, _| query.request.num_inference_steps = 3, Applicable, &["steps-noted"]),
        (
            "optional fields not recorded, and nothing asked for",
            |_, run| run.context.request = object(json!({"sampling": {"height": 480, "width": 832, "num_frames": 81}})),
            Applicable,
            &["request-noted"],
        ),
        (
            "optional fields not recorded, and something asked for",
            |query, run| {
                query.request.batch = 2;
                run.context.request = object(json!({"sampling": {"height": 480, "width": 832, "num_frames": 81}}));
            },
            Rejected,
            &["batch-differs", "request-noted"],
        ),
        (
            "optional fields not recorded, and no defaults known",
            |query, run| {
                query.default_request = None;
                run.context.request = object(json!({"sampling": {"height": 480, "width": 832, "num_frames": 81}}));
            },
            Unverified,
            &["batch-unknown", "references-unknown", "text-tokens-unknown", "guidance-unknown"],
        ),
        (
            "a cache in the run's request",
            |_, run| set(&mut run.context.request, &["runtime", "enable_teacache"], json!(true)),
            Unverified,
            &["setting-missing"],
        ),
        (
            "another default of the request that counts",
            |_, run| set(&mut run.context.request, &["sampling", "boundary_ratio"], json!(0.5)),
            Rejected,
            &["setting-differs"],
        ),
        ("another frame rate", |_, run| set(&mut run.context.request, &["sampling", "fps"], json!(24)), Applicable, &["setting-noted"]),
        // The environment.
        (
            "another backend",
            |query, _| set(&mut query.env, &["FASTVIDEO_ATTENTION_BACKEND"], json!("TORCH_SDPA")),
            Rejected,
            &["env-differs"],
        ),
        (
            "a variable not recorded",
            |query, _| set(&mut query.env, &["PYTORCH_ALLOC_CONF"], json!("expandable_segments:True")),
            Unverified,
            &["env-missing"],
        ),
        ("a variable recorded and not asked about", |query, _| query.env.clear(), Unverified, &["env-missing"]),
        ("a variable of the shell", |query, _| set(&mut query.env, &["PATH"], json!("/usr/bin")), Applicable, &[]),
        // The configuration.
        (
            "another model",
            |_, run| set(&mut run.context.config, &["generator", "model_path"], json!("example/other")),
            Rejected,
            &["setting-differs"],
        ),
        (
            "another setting",
            |_, run| set(&mut run.context.config, &["generator", "pipeline", "vae_tiling"], json!(true)),
            Rejected,
            &["setting-differs"],
        ),
        (
            "two other settings",
            |_, run| {
                set(&mut run.context.config, &["generator", "pipeline", "vae_tiling"], json!(true));
                set(&mut run.context.config, &["generator", "engine", "offload", "vae"], json!(false));
            },
            Rejected,
            &["setting-differs", "setting-differs"],
        ),
        (
            "numbers written in another way",
            |query, run| {
                set(&mut query.base_config, &["generator", "engine", "parallelism"], json!({"sp_size": 1, "sizes": [1, 2.0]}));
                set(&mut run.context.config, &["generator", "engine", "parallelism"], json!({"sizes": [1.0, 2], "sp_size": 1.0}));
            },
            Applicable,
            &[],
        ),
        (
            "a number and a text",
            |query, run| {
                set(&mut query.base_config, &["generator", "engine", "size"], json!(1));
                set(&mut run.context.config, &["generator", "engine", "size"], json!("1"));
            },
            Rejected,
            &["setting-differs"],
        ),
        (
            "a key not recorded",
            |_, run| set(&mut run.context.config, &["generator", "pipeline", "vae_tiling"], Value::Null),
            Unverified,
            &["setting-missing"],
        ),
        (
            "a key not known here",
            |_, run| set(&mut run.context.config, &["generator", "engine", "offload", "dit"], json!(true)),
            Unverified,
            &["setting-missing"],
        ),
        (
            "nothing under a key",
            |_, run| {
                set(&mut run.context.config, &["generator", "engine", "compile"], json!({}));
                run.context.config["generator"]["pipeline"]["preset"] = Value::Null;
            },
            Applicable,
            &[],
        ),
        (
            "a literal dotted key and a nested one",
            |query, run| {
                set(&mut query.base_config, &["generator", "pipeline", "experimental", "vae_config.use_feature_cache"], json!(false));
                set(&mut run.context.config, &["generator", "pipeline", "experimental", "vae_config", "use_feature_cache"], json!(false));
            },
            Applicable,
            &[],
        ),
        (
            "one setting under two names, the same",
            |query, run| {
                query.settings = vec![setting("generator.engine.attention.vsa_sparsity", 0.8, Provenance::User)];
                set(&mut run.context.config, &["generator", "pipeline", "experimental"], json!({"vsa_sparsity": 0.8}));
            },
            Applicable,
            &[],
        ),
        (
            "one setting under two names, another value",
            |query, _| query.settings = vec![setting("generator.engine.attention.vsa_sparsity", 0.5, Provenance::User)],
            Rejected,
            &["setting-differs"],
        ),
        (
            "one setting under two names in a run, of which the free map counts",
            |_, run| set(&mut run.context.config, &["generator", "engine", "attention"], json!({"vsa_sparsity": 0.1})),
            Applicable,
            &[],
        ),
        (
            "one setting in the typed section of a run",
            |_, run| {
                set(&mut run.context.config, &["generator", "pipeline", "experimental"], Value::Null);
                set(&mut run.context.config, &["generator", "engine", "attention"], json!({"vsa_sparsity": 0.5}));
            },
            Rejected,
            &["setting-differs"],
        ),
        (
            "a request in the recorded configuration under its other name",
            |_, run| {
                set(&mut run.context.request, &["sampling", "num_frames"], Value::Null);
                set(&mut run.context.config, &["request", "sampling", "num_frames"], json!(33));
            },
            Rejected,
            &["num-frames-differs"],
        ),
        ("frames that were returned", |_, run| set(&mut run.context.request, &["output", "return_frames"], json!(true)), Applicable, &[]),
        (
            "a variable that the runtime's settings call harmless",
            |_, run| set(&mut run.context.env, &["FASTVIDEO_CACHE_ROOT"], json!("/cache")),
            Applicable,
            &[],
        ),
        (
            "a variable that matters and begins like one that does not",
            |_, run| set(&mut run.context.env, &["FASTVIDEO_HOST_IPC_BUFFERS"], json!("1")),
            Unverified,
            &["env-missing"],
        ),
        ("keys that cannot matter", |_, run| set(&mut run.context.config, &["server", "port"], json!(9000)), Applicable, &[]),
        // Effective settings.
        (
            "a default of the runtime, recorded",
            |query, run| {
                query.settings = vec![setting("generator.engine.offload.dit", true, Provenance::RuntimeDefault)];
                set(&mut run.context.config, &["generator", "engine", "offload", "dit"], json!(true));
            },
            Applicable,
            &[],
        ),
        (
            "a default of the runtime, run with another value",
            |query, run| {
                query.settings = vec![setting("generator.engine.offload.dit", true, Provenance::RuntimeDefault)];
                set(&mut run.context.config, &["generator", "engine", "offload", "dit"], json!(false));
            },
            Rejected,
            &["setting-differs"],
        ),
        (
            "a default of the runtime, not recorded",
            |query, _| query.settings = vec![setting("dit_precision", "bf16", Provenance::RuntimeDefault)],
            Applicable,
            &[],
        ),
        (
            "the user's setting, another than the deployment's",
            |query, _| query.settings = vec![setting("vae_tiling", true, Provenance::User)],
            Rejected,
            &["setting-differs"],
        ),
        (
            "the user's setting, as it was run",
            |query, run| {
                query.settings = vec![setting("vae_tiling", true, Provenance::User)];
                set(&mut run.context.config, &["generator", "pipeline", "vae_tiling"], json!(true));
            },
            Applicable,
            &[],
        ),
        (
            "the user's setting over another of that name",
            |query, _| {
                query.settings = vec![setting("vae_tiling", false, Provenance::User), setting("vae_tiling", true, Provenance::Authored)];
            },
            Applicable,
            &[],
        ),
        (
            "the user's setting, not recorded",
            |query, _| query.settings = vec![setting("dit_precision", "fp8", Provenance::User)],
            Unverified,
            &["setting-missing"],
        ),
        (
            "the user's setting, recorded nowhere the deployment has it",
            |query, run| {
                query.settings = vec![setting("vae_tiling", true, Provenance::User)];
                set(&mut run.context.config, &["generator", "pipeline", "vae_tiling"], Value::Null);
            },
            Unverified,
            &["setting-missing"],
        ),
        (
            "a name with two meanings",
            |query, run| {
                query.settings = vec![setting("vae", false, Provenance::User)];
                for config in [&mut query.base_config, &mut run.context.config] {
                    set(config, &["generator", "engine", "tiling", "vae"], json!(true));
                }
            },
            Unverified,
            &["setting-unknown"],
        ),
        (
            "a forced setting, recorded as it was asked for",
            |query, _| query.settings = vec![setting("generator.engine.offload.vae", false, Provenance::Forced)],
            Applicable,
            &[],
        ),
        (
            "a forced setting, recorded as it was forced",
            |query, run| {
                query.settings = vec![setting("generator.engine.offload.vae", false, Provenance::Forced)];
                set(&mut run.context.config, &["generator", "engine", "offload", "vae"], json!(false));
            },
            Applicable,
            &[],
        ),
        (
            "a forced setting, recorded as neither",
            |query, run| {
                query.settings = vec![setting("generator.engine.offload.vae", "host", Provenance::Forced)];
                set(&mut run.context.config, &["generator", "engine", "offload", "vae"], json!(false));
            },
            Rejected,
            &["setting-differs"],
        ),
        (
            "the deployment's setting in another spelling, recorded as it is written",
            |query, _| query.settings = vec![setting("vae_tiling", "off", Provenance::Authored)],
            Applicable,
            &[],
        ),
        (
            "the user's setting against what is written and was run",
            |query, _| query.settings = vec![setting("generator.pipeline.vae_tiling", "on", Provenance::User)],
            Rejected,
            &["setting-differs"],
        ),
        (
            "a setting of the deployment's request",
            |query, _| query.settings = vec![setting("default_request.sampling.boundary_ratio", 0.5, Provenance::User)],
            Rejected,
            &["setting-differs"],
        ),
        (
            "a planned setting, recorded as it was asked for",
            |query, _| query.settings = vec![setting("generator.engine.offload.vae", false, Provenance::Planner)],
            Unverified,
            &["setting-unknown"],
        ),
        (
            "a planned setting, run with another value",
            |query, run| {
                query.settings = vec![setting("generator.engine.resident_blocks", 12, Provenance::Planner)];
                set(&mut run.context.config, &["generator", "engine", "resident_blocks"], json!(20));
            },
            Rejected,
            &["setting-differs"],
        ),
        (
            "a planned setting, not recorded",
            |query, _| query.settings = vec![setting("resident_blocks", 12, Provenance::Planner)],
            Unverified,
            &["setting-missing"],
        ),
        (
            "a setting of the request, which the request says",
            |query, _| query.settings = vec![setting("num_inference_steps", 3, Provenance::User)],
            Applicable,
            &[],
        ),
        // Several groups at once: the gravest counts, and every reason is there.
        (
            "another device, an unknown version and other steps",
            |query, run| {
                run.hardware = "card-80gb".into();
                query.revisions.runtime = None;
                query.request.num_inference_steps = 3;
            },
            Rejected,
            &["hardware-differs", "runtime-revision-unknown", "steps-noted"],
        ),
    ];

    #[test]
    fn every_difference_has_its_group_and_its_reasons() {
        for (name, change, group, codes) in CASES {
            let (mut query, mut run) = (query(), run("a"));
            change(&mut query, &mut run);
            let (found, mut reasons) = judged(&query, &run);
            if found == Applicable {
                assert_eq!(reasons.remove(0), "context-same", "{name}");
            }
            assert_eq!((found, &reasons[..]), (*group, &codes.iter().map(|code| (*code).to_owned()).collect::<Vec<_>>()[..]), "{name}");
        }
    }

    /// What the user takes back by setting it to null is not the deployment's any more.
    #[test]
    fn a_setting_taken_back_is_compared_as_the_default_that_it_leaves() {
        let (base, mut at_default) = (query(), query());
        let null = [("vae_cpu_offload".to_owned(), Value::Null)];
        set(&mut at_default.base_config, &["generator", "engine", "offload", "vae"], json!(false));
        let written = at_default.base_config.clone();
        at_default.base_config = resolve::without_nulls(Runtime::FastVideo, &written, &null);
        at_default.settings = vec![setting("generator.engine.offload.vae", true, Provenance::RuntimeDefault)];
        assert_ne!(at_default.base_config, base.base_config);
        for (recorded, group) in [(json!(true), Applicable), (json!(false), Rejected), (Value::Null, Applicable)] {
            for path in [&["generator", "engine", "offload", "vae"][..], &["generator", "pipeline", "experimental", "vae_cpu_offload"]] {
                let mut run = run("a");
                set(&mut run.context.config, &["generator", "engine", "offload", "vae"], Value::Null);
                set(&mut run.context.config, path, recorded.clone());
                assert_eq!(judged(&at_default, &run).0, group, "{recorded} at {path:?}");
            }
        }
    }

    #[test]
    fn only_what_cannot_move_is_the_same_revision() {
        for (a, b, same) in [
            ("0123abc", "0123abcdef", Some(true)),
            ("0123abc", "0123abd", Some(false)),
            ("v0.42.1", "0.42.1", Some(true)),
            ("V0.42.1 ", "v0.42.1", Some(true)),
            ("2.11.0+cu126", "2.11.0+cu126", Some(true)),
            ("1.0rc1", "1.0", Some(false)),
            ("main", "main", None),
            ("master", "main", None),
            ("nightly", "nightly", None),
            ("latest", "0.2.1", None),
            ("release/v0.2", "release/v0.2", None),
            ("v2", "v2", None),
            ("v.1", "v.1", None),
            ("", "", None),
            ("0123abc", "v0.1", None),
            ("0123abc", "main", None),
        ] {
            assert_eq!((same_revision(a, b), same_revision(b, a)), (same, same), "{a} {b}");
        }
    }

    #[test]
    fn codes_say_their_group() {
        let kinds = ["-differs", "-unknown", "-missing", "-noted", "context-same"];
        for (name, change, ..) in CASES {
            let (mut query, mut run) = (query(), run("a"));
            change(&mut query, &mut run);
            let (group, reasons) = judged(&query, &run);
            let has = |ending: &str| reasons.iter().any(|code| code.ends_with(ending));
            assert!(reasons.iter().all(|code| kinds.iter().any(|kind| code.ends_with(kind))), "{name}: {reasons:?}");
            let expected = if has("-differs") {
                Rejected
            } else if has("-unknown") || has("-missing") {
                Unverified
            } else {
                Applicable
            };
            assert_eq!(group, expected, "{name}");
        }
    }

    #[test]
    fn everything_that_is_left_out_is_left_out() {
        for (pattern, _) in IGNORED {
            let path = pattern.replace(".*", ".anything.below");
            let path = if path.contains('.') { path } else { format!("generator.pipeline.{path}") };
            let parts: Vec<&str> = path.split('.').collect();
            let mut run = run("a");
            set(&mut run.context.config, &parts, json!("another value"));
            assert_eq!(judged(&query(), &run), (Applicable, vec!["context-same".to_owned()]), "{pattern}");
        }
        for (pattern, _) in IGNORED_ENV {
            let mut run = run("a");
            run.context.env.insert(pattern.replace('*', "ANY"), json!("another value"));
            assert_eq!(judged(&query(), &run), (Applicable, vec!["context-same".to_owned()]), "{pattern}");
        }
    }

    #[test]
    fn reasons_show_no_environment_value_and_no_credential() {
        let (mut query, mut run) = (query(), run("a"));
        query.env.insert("EXAMPLE_VARIABLE".into(), json!("sesame-one"));
        run.context.env.insert("EXAMPLE_VARIABLE".into(), json!("sesame-two"));
        run.context.config.insert("hub_token".into(), json!("sesame-three"));
        run.context.config.insert("note".into(), json!(format!("{}{}", "\u{1b}[2J", "long ".repeat(50))));
        let text = format!("{:?}", match_evidence(&query, &[run]));
        assert!(!text.contains("sesame") && text.contains("EXAMPLE_VARIABLE") && text.contains("hub_token"), "{text}");
        assert!(!text.contains('\u{1b}') && text.contains("...`"), "{text}");
    }

    #[test]
    fn peaks_are_bytes_by_rank_or_nothing() {
        let two = |ranks: Value, gpu_count| {
            let mut run = run("a");
            run.gpu_count = gpu_count;
            run.memory = serde_json::from_value(json!({"metric": "device_used", "scope": "device", "unit": "GiB", "per_gpu": ranks}))
                .expect("memory");
            measured_peak(&run)
        };
        let peak =
            two(json!([{"rank": 1, "request_peak": 2.5, "startup_peak": 3}, {"rank": 0, "request_peak": 8.4, "startup_peak": 1}]), 2);
        let peak = peak.expect("both ranks are there");
        assert_eq!((peak.metric, peak.scope, peak.startup_known), (Metric::DeviceUsed, Scope::Device, true));
        assert_eq!((&peak.per_rank[..], peak.largest()), (&[(0, 9_019_431_322), (1, 3 * GIB)][..], 9_019_431_322));
        let half = two(json!([{"rank": 0, "request_peak": 1, "startup_peak": 1}, {"rank": 1, "request_peak": 1}]), 2);
        assert!(!half.expect("both ranks are there").startup_known);
        assert_eq!(two(json!([{"rank": 0, "request_peak": 1}]), 2), None, "a rank is missing");
        assert_eq!(two(json!([{"rank": 0, "request_peak": 1}, {"rank": 0, "request_peak": 1}]), 2), None, "a rank is there twice");
        for peak in [0.0, -1.0, 1e-12, 1e9] {
            assert_eq!(two(json!([{"rank": 0, "request_peak": peak}]), 1), None, "{peak}");
        }
        assert_eq!(measured_peak(&run("a")), None, "nothing was measured");
        let mut wrong = measured("a", "torch_peak_allocated", 8.4, None);
        assert_eq!(measured_peak(&wrong).map(|peak| peak.scope), Some(Scope::Allocator));
        wrong.memory.as_mut().expect("measured").scope = Scope::Device;
        assert_eq!(measured_peak(&wrong), None, "an allocator's metric does not become the device's");
    }

    #[test]
    fn sizes_are_written_without_floating_point() {
        for (bytes, text) in [(0, "0.00"), (GIB, "1.00"), (5_368_710, "0.01"), (5_368_709, "0.00"), (u64::MAX, "17179869184.00")] {
            assert_eq!(gib(bytes), format!("{text} GiB"), "{bytes}");
        }
    }

    fn stage(name: StageName, device: u64) -> Stage {
        let exact = Interval::exact;
        Stage {
            name: name.word().to_owned(),
            phases: Vec::new(),
            buffers: Vec::new(),
            largest_allocation: None,
            peak_bytes: Some(PeakBytes { allocated: exact(device - GIB), reserved: exact(device - GIB / 2), device: exact(device) }),
            ranks: Vec::new(),
            host: HostBytes::default(),
        }
    }

    /// An estimate for the device of [`run`].
    pub(crate) fn estimate(status: Verdict, source: &str, budget: u64) -> Estimate {
        Estimate {
            version: VERSION,
            model: "example".to_owned(),
            deployment: "default".to_owned(),
            hardware: Some("card-24gb".to_owned()),
            request: query().request,
            status,
            reasons: vec![Reason::new("rules", "what the rules say")],
            capacity_gib: None,
            memory: MemoryReport {
                kind: Some(MemoryType::Dedicated),
                nominal_gib: None,
                budget_bytes: Some(budget),
                budget_gib: None,
                partition: None,
                budget_source: Some(source.to_owned()),
                reserve_bytes: 0,
            },
            host: HostReport { required_bytes: None, capacity_bytes: None, status: Verdict::Fits },
            shortfall: None,
            stages: vec![stage(StageName::Load, 12 * GIB), stage(StageName::Denoising, 26 * GIB)],
            settings: Vec::new(),
            coverage: Coverage::default(),
            notes: Vec::new(),
            forecast: None,
        }
    }

    pub(crate) fn applicable(runs: &[ReferenceRun]) -> EvidenceMatch {
        let applicable = runs.iter().map(|run| MatchedRun { id: run.id.clone(), reasons: Vec::new() }).collect();
        EvidenceMatch { applicable, ..EvidenceMatch::default() }
    }

    const VERDICTS: [Verdict; 4] = [Verdict::Fits, Verdict::Uncertain, Verdict::DoesNotFit, Verdict::Unknown];

    fn codes(reasons: &[Reason]) -> Vec<&str> {
        reasons.iter().map(|reason| reason.code.as_str()).collect()
    }

    /// The truth table of the module, row by row: budget's source, budget in GiB, metric, peak, start-up; whether the device is
    /// established, and the code that says so.
    type Row = (&'static str, u64, Option<(&'static str, f64)>, Option<f64>, bool, &'static str);
    const TABLE: &[Row] = &[
        ("nominal", 22, None, None, true, "completed-run"),
        ("nominal", 22, Some(("torch_peak_allocated", 20.0)), None, true, "completed-run"),
        ("nominal", 22, Some(("torch_peak_reserved", 20.0)), Some(20.0), true, "completed-run"),
        ("nominal", 22, Some(("device_used", 20.0)), None, true, "measured-device-use"),
        ("nominal", 22, Some(("device_used", 23.0)), Some(1.0), true, "measured-device-use"),
        ("reported", 22, None, None, true, "completed-run"),
        ("usable", 22, None, None, true, "completed-run"),
        ("unified_default", 22, None, None, true, "completed-run"),
        ("partition", 22, None, None, true, "completed-run"),
        ("allocation", 22, None, None, true, "completed-run"),
        ("explicit", 22, None, None, false, "budget-not-measured"),
        ("measured", 22, None, None, false, "budget-not-measured"),
        ("explicit", 22, Some(("torch_peak_allocated", 1.0)), Some(1.0), false, "budget-not-measured"),
        ("explicit", 22, Some(("torch_peak_reserved", 1.0)), Some(1.0), false, "budget-not-measured"),
        ("explicit", 22, Some(("device_used", 22.5)), Some(1.0), false, "measured-above-budget"),
        ("measured", 22, Some(("device_used", 22.5)), Some(1.0), false, "measured-above-budget"),
        ("explicit", 22, Some(("device_used", 20.0)), Some(22.5), false, "measured-above-budget"),
        ("explicit", 22, Some(("device_used", 22.0)), Some(22.0), true, "measured-device-use"),
        ("measured", 22, Some(("device_used", 20.0)), Some(12.0), true, "measured-device-use"),
        ("explicit", 22, Some(("device_used", 20.0)), None, true, "measured-device-use"),
        ("explicit", 11, Some(("device_used", 10.0)), Some(10.0), true, "measured-device-use"),
        ("explicit", 11, Some(("device_used", 10.0)), None, false, "startup-above-budget"),
    ];

    fn evidence(memory: Option<(&str, f64)>, startup: Option<f64>) -> Vec<ReferenceRun> {
        vec![memory.map_or_else(|| run("a"), |(metric, peak)| measured("a", metric, peak, startup))]
    }

    #[test]
    fn the_truth_table_holds_in_every_row() {
        for &(source, budget, memory, startup, establishes, code) in TABLE {
            for status in VERDICTS {
                for host in VERDICTS {
                    let name = format!("{source} {budget} {memory:?} {startup:?}, rules {status:?}, host {host:?}");
                    let runs = evidence(memory, startup);
                    let mut estimate = estimate(status, source, budget * GIB);
                    estimate.host.status = host;
                    let found = assess(estimate.clone(), applicable(&runs), &runs);
                    let reasons = codes(&found.reasons);
                    let measured = establishes && matches!(host, Verdict::Fits | Verdict::Unknown);
                    let expected = if measured { (Verdict::Fits, Basis::Measured) } else { (status, Basis::Analytical) };
                    assert_eq!((found.status, found.basis), expected, "{name}");
                    assert_eq!(reasons[0], code, "{name}");
                    assert_eq!(reasons.contains(&"startup-unknown"), establishes && (memory.is_none() || startup.is_none()), "{name}");
                    assert_eq!(reasons.contains(&"measured-contradicts-estimate"), measured && status == Verdict::DoesNotFit, "{name}");
                    assert_eq!(reasons.contains(&"host-not-established"), establishes && !measured, "{name}");
                    assert_eq!(reasons.contains(&"host-unknown"), measured && host == Verdict::Unknown, "{name}");
                    assert_eq!(reasons.contains(&"rules"), !measured, "{name}");
                    assert_eq!(found.estimate, estimate, "the estimate stays: {name}");
                    assert_eq!(found.evidence, applicable(&runs), "the evidence stays: {name}");
                }
            }
        }
    }

    /// The run had the pool that is the host's too, so the host is no second question, as long as the pool is whole.
    #[test]
    fn a_run_in_unified_memory_had_the_host_too() {
        for &(source, budget, memory, startup, establishes, _) in TABLE {
            for status in VERDICTS {
                for host in VERDICTS {
                    for reserve in [0, GIB] {
                        let name = format!("{source} {budget} {memory:?} {startup:?}, rules {status:?}, host {host:?}, kept {reserve}");
                        let runs = evidence(memory, startup);
                        let mut estimate = estimate(status, source, budget * GIB);
                        estimate.memory.kind = Some(MemoryType::Unified);
                        (estimate.host.status, estimate.memory.reserve_bytes) = (host, reserve);
                        let whole = reserve == 0 && !matches!(source, "explicit" | "measured");
                        let found = assess(estimate, applicable(&runs), &runs);
                        let reasons = codes(&found.reasons);
                        if whole {
                            assert_eq!((found.status, found.basis), (Verdict::Fits, Basis::Measured), "{name}");
                            assert!(!reasons.contains(&"host-not-established") && !reasons.contains(&"host-unknown"), "{name}");
                        } else if reserve == 0 {
                            let measured = establishes && matches!(host, Verdict::Fits | Verdict::Unknown);
                            assert_eq!(found.basis == Basis::Measured, measured, "{name}");
                            assert_eq!(reasons.contains(&"host-not-established"), establishes && !measured, "{name}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn only_applicable_runs_of_this_very_device_count() {
        let runs = [measured("a", "device_used", 20.0, Some(12.0))];
        for status in VERDICTS {
            let fits = |matches: EvidenceMatch, change: fn(&mut Estimate)| {
                let mut estimate = estimate(status, "nominal", 22 * GIB);
                change(&mut estimate);
                let found = assess(estimate, matches, &runs);
                assert_eq!((found.status, found.basis), (status, Basis::Analytical));
                codes(&found.reasons)[0].to_owned()
            };
            let listed = applicable(&runs).applicable;
            assert_eq!(fits(EvidenceMatch::default(), |_| {}), "rules");
            assert_eq!(fits(EvidenceMatch { unverified: listed.clone(), ..EvidenceMatch::default() }, |_| {}), "rules");
            assert_eq!(fits(EvidenceMatch { rejected: listed.clone(), ..EvidenceMatch::default() }, |_| {}), "rules");
            assert_eq!(fits(applicable(&runs), |estimate| estimate.hardware = Some("card-80gb".into())), "run-elsewhere");
            assert_eq!(fits(applicable(&runs), |estimate| estimate.hardware = None), "run-elsewhere");
            assert_eq!(fits(applicable(&runs), |estimate| estimate.memory.partition = Some("1g".into())), "run-elsewhere");
            assert_eq!(fits(applicable(&[run("b")]), |_| {}), "run-missing");
        }
    }

    #[test]
    fn what_is_kept_for_others_makes_the_budget_smaller() {
        for (runs, expected) in
            [(evidence(None, None), Verdict::Unknown), (evidence(Some(("device_used", 20.0)), Some(9.0)), Verdict::Fits)]
        {
            let mut estimate = estimate(Verdict::Unknown, "nominal", 22 * GIB);
            estimate.memory.reserve_bytes = GIB;
            assert_eq!(assess(estimate.clone(), applicable(&runs), &runs).status, expected);
            estimate.memory.budget_bytes = None;
            assert_eq!(assess(estimate, applicable(&runs), &runs).status, Verdict::Unknown, "without a figure nothing is compared");
        }
    }

    #[test]
    fn ranks_are_compared_one_by_one() {
        let mut run = measured("a", "device_used", 12.0, Some(9.0));
        run.gpu_count = 2;
        let memory = run.memory.as_mut().expect("measured");
        memory.per_gpu.push(fv_spec::authored::RankPeaks { rank: 1, request_peak: 13.0, ..memory.per_gpu[0].clone() });
        let runs = [run];
        let status = |budget| assess(estimate(Verdict::Unknown, "explicit", budget * GIB), applicable(&runs), &runs).status;
        assert_eq!([12, 13, 24].map(status), [Verdict::Unknown, Verdict::Fits, Verdict::Fits]);
    }

    #[test]
    fn a_disagreement_is_told_in_numbers_of_one_metric() {
        let rows = [
            ("device_used", "device_used 20.00 GiB; the rules give device 26.00 GiB"),
            ("torch_peak_allocated", "torch_peak_allocated 20.00 GiB; the rules give allocated 25.00 GiB"),
            ("torch_peak_reserved", "torch_peak_reserved 20.00 GiB; the rules give reserved 25.50 GiB"),
        ];
        for (metric, expected) in rows {
            let runs = evidence(Some((metric, 20.0)), None);
            let found = assess(estimate(Verdict::DoesNotFit, "nominal", 22 * GIB), applicable(&runs), &runs);
            let reason = found.reasons.iter().find(|reason| reason.code == "measured-contradicts-estimate").expect("it is told");
            assert!(
                reason.message.starts_with("the rules ask for at least 26.00 GiB of a budget of 22.00 GiB, and run `a` completed"),
                "{reason:?}"
            );
            assert!(reason.message.contains(expected), "{reason:?}");
        }
    }

    /// A pair changed by any of [`CASES`], with its id.
    fn changed(case: usize, id: &str) -> ReferenceRun {
        let (mut unused, mut run) = (query(), run(id));
        CASES[case % CASES.len()].1(&mut unused, &mut run);
        run
    }

    fn any_run(id: &'static str) -> impl Strategy<Value = ReferenceRun> {
        (0..CASES.len(), 0_usize..4, 1.0..30.0_f64, proptest::option::of(1.0..30.0_f64)).prop_map(move |(case, metric, peak, startup)| {
            let mut run = changed(case, id);
            if let Some(metric) = ["torch_peak_allocated", "torch_peak_reserved", "device_used"].get(metric) {
                run.memory = measured(id, metric, peak, startup).memory;
            }
            run
        })
    }

    proptest! {
        #[test]
        fn the_order_of_runs_changes_nothing(
            runs in (any_run("a"), any_run("b"), any_run("c"), any_run("d")).prop_map(|(a, b, c, d)| vec![a, b, c, d]),
            order in Just(vec![0_usize, 1, 2, 3]).prop_shuffle(),
        ) {
            let shuffled: Vec<ReferenceRun> = order.iter().map(|i| runs[*i].clone()).collect();
            let (first, second) = (match_evidence(&query(), &runs), match_evidence(&query(), &shuffled));
            prop_assert_eq!(&first, &second);
            let estimate = estimate(Verdict::Uncertain, "nominal", 22 * GIB);
            prop_assert_eq!(assess(estimate.clone(), first, &runs), assess(estimate, second, &shuffled));
        }

        #[test]
        fn the_order_of_keys_changes_nothing(run in any_run("a")) {
            fn reversed(value: &Value) -> Value {
                match value {
                    Value::Object(map) => Value::Object(map.iter().rev().map(|(key, value)| (key.clone(), reversed(value))).collect()),
                    other => other.clone(),
                }
            }
            let mut other = run.clone();
            other.context.config = object(reversed(&Value::Object(run.context.config.clone())));
            other.context.request = object(reversed(&Value::Object(run.context.request.clone())));
            other.context.env = object(reversed(&Value::Object(run.context.env.clone())));
            prop_assert_eq!(match_evidence(&query(), &[run]), match_evidence(&query(), &[other]));
        }

        #[test]
        fn a_run_that_does_not_apply_never_changes_the_verdict(
            first in any_run("a"),
            second in any_run("b"),
            status in 0_usize..4,
            source in proptest::sample::select(vec!["nominal", "explicit", "measured"]),
            budget in 1..30_u64,
        ) {
            prop_assume!(match_evidence(&query(), std::slice::from_ref(&second)).applicable.is_empty());
            let estimate = estimate(VERDICTS[status], source, budget * GIB);
            let verdict = |runs: &[ReferenceRun]| {
                let found = assess(estimate.clone(), match_evidence(&query(), runs), runs);
                (found.status, found.basis, found.reasons)
            };
            prop_assert_eq!(verdict(std::slice::from_ref(&first)), verdict(&[first, second]));
        }

        #[test]
        fn a_larger_budget_never_undoes_a_measured_fit(
            run in any_run("a"),
            status in 0_usize..4,
            small in 1..40 * GIB,
            more in 0..40 * GIB,
            whole in any::<bool>(),
        ) {
            let runs = [run];
            let matches = match_evidence(&query(), &runs);
            let verdict = |source, budget| {
                let found = assess(estimate(VERDICTS[status], source, budget), matches.clone(), &runs);
                (found.status, found.basis)
            };
            let fits = (Verdict::Fits, Basis::Measured);
            if verdict("explicit", small) == fits {
                prop_assert_eq!(verdict(if whole { "nominal" } else { "explicit" }, small + more), fits);
            }
        }
    }
}
