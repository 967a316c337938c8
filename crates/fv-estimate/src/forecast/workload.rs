//! How long a request takes as the estimator sees it: components one after the other, each counted and placed.

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model, RulesFile};
use fv_spec::estimate::{Reason, StageName};
use fv_spec::forecast::{PassTime, StageTime, TimeForecast, TimeInterval, UsedRate};
use fv_spec::plan::{AttentionBackend, GemmPath, Precision};
use fv_spec::request::Request;

use super::coefficients::Coefficients;
use super::freevideo::{BLOCKS, Step, real};
use super::operations::Operations;
use super::rates::{GIGA, Rates, used};
use super::request::{Request as Plan, forecast as planned, rows, tflop};
use super::roofline::{Kind, Law, PREFIX, pass, seconds};
use crate::family;
use crate::modules::standalone::{Asked, Why};
use crate::planner::freevideo::cached_precision;
use crate::settings::{Attention, Guidance, Placement, Settings};
use crate::storage::Storage;

/// Bytes of a block in `FreeVideo`'s cache.
const BLOCK: u64 = 432_500_000;
/// The most that JavaScript holds.
const MOST: u64 = (1 << 53) - 1;

/// What is asked.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The model.
    pub model: &'a Model,
    /// The deployment.
    pub example: &'a Example,
    /// Its effective settings.
    pub settings: &'a Settings,
    /// The request.
    pub request: &'a Request,
    /// Whether the device is a `GeForce` card. `None`: nobody says.
    pub geforce: Option<bool>,
    /// Fitted coefficients.
    pub rules: &'a RulesFile,
}

impl Question<'_> {
    /// How long it takes on a device of these rates.
    pub fn forecast(&self, rates: &Rates) -> TimeForecast {
        match self.settings.runtime {
            Runtime::FreeVideo => self.freevideo(rates),
            Runtime::Diffusers | Runtime::FastVideo => self.counted(rates),
            Runtime::FvRun => unknown(Reason::new("uncovered-runtime", "no law of time covers fv-run")),
        }
    }

    /// `FreeVideo` without a plan: the settings say what the deployment says, and the rest is assumed.
    fn freevideo(&self, rates: &Rates) -> TimeForecast {
        if self.model.memory_rules != "minimax_h3" {
            return unknown(Reason::new("uncovered-model", "the law of FreeVideo's times covers MiniMax H3 alone"));
        }
        let Request { height, width, num_frames, text_tokens, num_inference_steps, .. } = *self.request;
        let value = |name: &str| self.settings.reported.iter().find(|setting| setting.key == name).map(|setting| &setting.value);
        let number = |name: &str| value(name).and_then(serde_json::Value::as_u64);
        let given = value("precision").and_then(serde_json::Value::as_str).and_then(Precision::parse);
        let usual = || cached_precision(rates.capability.as_deref()?, self.geforce);
        let int8 = given.or_else(usual) == Some(Precision::Int8);
        let step = Step {
            rows: rows(height, width, num_frames, text_tokens),
            head_group: number("head_chunk").unwrap_or(4),
            gemm: if int8 { GemmPath::Int8PerRow } else { GemmPath::Fp8PerChannel },
            attention: AttentionBackend::Sage2,
            slots: 1,
            block_bytes: BLOCK,
            pinned: BLOCKS - number("resident_blocks").unwrap_or(0).min(BLOCKS),
            pageable: 0,
            disk: 0,
            outputs_on_host: false,
            residual_on_host: false,
            recompute: false,
        };
        let passes = vec![("only".to_owned(), num_inference_steps, step)];
        let mut answer =
            planned(&Plan { passes, upscales: false, encodes: true, pin_bytes: step.pinned * BLOCK, decoder: None }, rates, self.rules);
        answer.notes.push(
            "without a plan: blocks that do not stay on the device are page-locked, one slot, SageAttention; a plan decides these"
                .to_owned(),
        );
        answer
    }

    /// Diffusers and `FastVideo`: passes counted in operations.
    fn counted(&self, rates: &Rates) -> TimeForecast {
        let mut answer = TimeForecast::default();
        if self.settings.gpu_count > 1 {
            return unknown(Reason::new("several-devices", "no law of time covers several devices"));
        }
        match self.step(rates, &mut answer) {
            Ok(()) => {}
            Err(reasons) => answer.unknown = reasons,
        }
        match self.decoding(rates, &mut answer) {
            Ok(()) => {}
            Err(reasons) => {
                for reason in reasons {
                    if !answer.unknown.contains(&reason) {
                        answer.unknown.push(reason);
                    }
                }
            }
        }
        answer.stages.sort_by_key(|stage| stage.name);
        let has = |name: StageName| answer.stages.iter().any(|stage| stage.name == name);
        let left: Vec<String> = StageName::ALL.into_iter().filter(|name| !has(*name)).map(|name| name.word().to_owned()).collect();
        if has(StageName::Denoising) {
            answer.request = Some(sum(answer.stages.iter().map(|stage| stage.time)));
        }
        answer.leaves_out = left;
        answer.leaves_out.push("moving components between stages, and writing the file".to_owned());
        answer
    }

    /// One step, and all of them.
    fn step(&self, rates: &Rates, answer: &mut TimeForecast) -> Result<(), Vec<Reason>> {
        let law = Law::of(self.rules, &self.model.memory_rules, Kind::Forward).map_err(|reason| vec![reason])?;
        let (branches, forwards) = match self.settings.guidance {
            Guidance::None => (1, 1.0),
            Guidance::Batched => (2, 1.0),
            Guidance::Sequential => (1, 2.0),
        };
        let role = Role::Transformer;
        let component = self.component(role)?;
        let asked = Asked { batch: u64::from(self.request.batch) * branches, ..self.asked("denoise_forward", role) };
        let mut operations = self.operations(component, role, &asked)?;
        self.sparse(&mut operations, answer);
        let (computing, used_rates) = seconds(&operations, rates, &law.shares)?;
        add_rates(answer, used_rates);
        let streamed = self.streamed(component, role, computing, rates, answer)?;
        let usual = self.usual(role) && streamed.total_cmp(&0.0).is_eq();
        let (mut one, basis) = pass(&law, &operations, computing + streamed, rates, usual);
        // A pass takes at least as long as the host takes to launch it, which no figure of the device says.
        one.high += Coefficients::new(self.rules, PREFIX).value("host-seconds").map_err(|reason| vec![reason])?;
        let step = one.times(forwards);
        let steps = self.request.num_inference_steps;
        answer.passes.push(PassTime { name: "only".to_owned(), steps, step: step.nanoseconds() });
        let twice = if forwards > 1.0 { 2 } else { 1 };
        answer.step_tflop = Some(tflop(operations.products.saturating_add(operations.attention).saturating_mul(twice)));
        answer.stages.push(StageTime { name: StageName::Denoising, time: step.times(f64::from(steps)).nanoseconds(), basis });
        if self.settings.runtime == Runtime::FastVideo {
            answer.notes.push("efficiencies are those of diffusers' kernels: no run with FastVideo was timed".to_owned());
        }
        if self.settings.compile {
            answer.notes.push("compiling makes a step shorter than this: a seventh for the Wan model that was tried".to_owned());
        }
        Ok(())
    }

    /// Decoding.
    fn decoding(&self, rates: &Rates, answer: &mut TimeForecast) -> Result<(), Vec<Reason>> {
        let law = Law::of(self.rules, &self.model.memory_rules, Kind::Decode).map_err(|reason| vec![reason])?;
        let role = Role::Vae;
        let asked = Asked { tiled: self.settings.tiling.is_some(), ..self.asked("decode", role) };
        let own = self.operations(self.component(role)?, role, &asked);
        // A deployment that loads the decoder alone decodes as those do that load both halves.
        let mut others = self.model.examples.iter().filter_map(|example| example.components.get(&role));
        let operations = own.or_else(|missing| others.find_map(|one| self.operations(one, role, &asked).ok()).ok_or(missing))?;
        let (value, used_rates) = seconds(&operations, rates, &law.shares)?;
        add_rates(answer, used_rates);
        let usual = self.settings.runtime == Runtime::Diffusers;
        let (time, basis) = pass(&law, &operations, value, rates, usual);
        answer.stages.push(StageTime { name: StageName::Decoding, time: time.nanoseconds(), basis });
        Ok(())
    }

    fn component(&self, role: Role) -> Result<&ExpandedComponent, Vec<Reason>> {
        let found = self.example.components.get(&role).or_else(|| self.model.components.get(&role));
        found.ok_or_else(|| vec![Reason::new("missing-component", format!("the model has no {}", role.word()))])
    }

    fn asked(&self, stage: &str, role: Role) -> Asked {
        let Request { height, width, num_frames, batch, text_tokens, .. } = *self.request;
        let dtype = self.settings.component(role).map(|component| component.precision.computed);
        Asked {
            stage: stage.to_owned(),
            video: Some([height, width, num_frames].map(u64::from)),
            batch: batch.into(),
            dtype,
            text_tokens: (role == Role::Transformer).then(|| text_tokens.into()),
            ..Asked::default()
        }
    }

    fn operations(&self, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Operations, Vec<Reason>> {
        let uncovered = |text: String| vec![Reason::new("uncovered-time", text)];
        let rules = self.model.memory_rules.as_str();
        let family = family::find(rules).ok_or_else(|| uncovered(format!("no law of time covers {rules}")))?;
        let pass = family.pass(self.model, component, role, asked).map_err(|why| match why {
            Why::NotCovered(text) | Why::Malformed(text) => uncovered(text),
        })?;
        pass.operations().ok_or_else(|| uncovered(format!("the operations of this {} are not counted", role.word())))
    }

    /// Sparse attention leaves out tiles of keys.
    fn sparse(&self, operations: &mut Operations, answer: &mut TimeForecast) {
        if let Attention::VideoSparse { sparsity_permille, .. } = self.settings.attention {
            operations.attention = operations.attention * u128::from(1000_u32.saturating_sub(sparsity_permille)) / 1000;
            answer.notes.push("video sparse attention is counted as the share of attention that it keeps".to_owned());
        }
    }

    /// Whether a component runs as those that were measured did.
    fn usual(&self, role: Role) -> bool {
        self.settings.runtime == Runtime::Diffusers
            && !self.settings.compile
            && self.settings.component(role).is_some_and(|component| component.precision.computed == Dtype::Bf16)
    }

    /// Seconds in which a forward waits for weights that pass by.
    fn streamed(
        &self,
        component: &ExpandedComponent,
        role: Role,
        computing: f64,
        rates: &Rates,
        answer: &mut TimeForecast,
    ) -> Result<f64, Vec<Reason>> {
        let Some(found) = self.settings.component(role) else { return Ok(0.0) };
        let parameters = u128::from(component.parameter_count.get());
        let (share, ahead) = match found.placement {
            Placement::Resident | Placement::Moved { .. } => return Ok(0.0),
            Placement::Streamed { resident, prefetch, .. } => {
                let blocks = component.block_count.map_or(1, fv_spec::units::Count::get).max(1);
                (real(blocks.saturating_sub(resident.into()).into()) / real(blocks.into()), prefetch > 0)
            }
            Placement::Leaf { .. } | Placement::Gathered => (1.0, false),
            Placement::Host => {
                return Err(vec![Reason::new("uncovered-placement", format!("no law of time covers a {} on the host", role.word()))]);
            }
        };
        let efficiency = Coefficients::new(self.rules, PREFIX).positive("link-efficiency").map_err(|reason| vec![reason])?;
        let link = rates.copies(efficiency).map_err(|reason| vec![reason])?;
        add_rates(answer, vec![used("host to device", link, "GB/s")]);
        let bytes = real(parameters) * bytes_of_value(found.precision.stored) * share;
        let copying = bytes / (link.value * GIGA);
        Ok(if ahead { (copying - computing).max(0.0) } else { copying })
    }
}

/// Bytes of a stored weight; scales are a hundredth of that at most.
fn bytes_of_value(storage: Storage) -> f64 {
    match storage {
        Storage::Plain(Dtype::Fp32) => 4.0,
        Storage::Plain(Dtype::Fp16 | Dtype::Bf16) => 2.0,
        Storage::Plain(Dtype::Nvfp4) | Storage::Nvfp4 => 0.5,
        _ => 1.0,
    }
}

fn add_rates(answer: &mut TimeForecast, rates: Vec<UsedRate>) {
    for rate in rates {
        if !answer.rates.contains(&rate) {
            answer.rates.push(rate);
        }
    }
}

/// No time at all, and why.
pub fn unknown(reason: Reason) -> TimeForecast {
    let leaves_out = StageName::ALL.into_iter().map(|name| name.word().to_owned()).collect();
    TimeForecast { unknown: vec![reason], leaves_out, ..TimeForecast::default() }
}

/// Times after each other.
pub fn sum(times: impl Iterator<Item = TimeInterval>) -> TimeInterval {
    let add = |a: u64, b: u64| a.saturating_add(b).min(MOST);
    times.fold(TimeInterval::default(), |all, one| TimeInterval {
        low_ns: add(all.low_ns, one.low_ns),
        value_ns: add(all.value_ns, one.value_ns),
        high_ns: add(all.high_ns, one.high_ns),
    })
}
