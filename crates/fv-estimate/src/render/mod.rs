//! Answers as text for people.
//!
//! Everything here is pure: an answer and a width go in, a [`Text`] comes out, and whoever shows it decides what a [`Tone`]
//! looks like. Words and numbers are those of the answer; nothing is estimated here.
//!
//! * [`estimate`], [`explanation`]: what is needed, where and why.
//! * [`largest`], [`minimum`], [`comparison`]: the answers to questions beside a single estimate.
//! * [`plan`], [`refusal`], [`unplanned`], [`plan_explanation`], [`plan_diff`]: how a request is executed, or why it is not.
//! * [`grid`], [`grid_csv`], [`grid_svg`]: plans over capacities, as a table, as a file and as a picture.
//! * [`evidence`], [`assessment`], [`recommendations`]: what was seen to run, and where a request fits.
//! * [`probe`](fn@probe): what a machine was found to have.
//! * [`ansi`]: what a tone looks like on most terminals.

mod advice;
mod decisions;
mod grid;
mod needs;
mod picture;
mod plan;
mod probe;
mod questions;
mod refusal;
mod text;
mod times;
mod words;

pub use advice::{Asked, assessment, evidence, recommendations};
pub use decisions::{plan_diff, plan_explanation};
pub use grid::{grid, grid_csv};
pub use needs::{estimate, explanation};
pub use picture::grid_svg;
pub use plan::plan;
pub use probe::probe;
pub use questions::{comparison, largest, minimum};
pub use refusal::{refusal, unplanned};
pub use text::{Span, Text, Tone, ansi};
pub use words::grouped;

use fv_spec::estimate::{Estimate, Interval, Stage, Verdict};
use fv_spec::request::Request;

/// The widest and narrowest that lines are made for.
const WIDTHS: std::ops::RangeInclusive<usize> = 64..=140;

/// What people call a model and a device.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The model.
    pub model: &'a str,
    /// The device; `None` where none was chosen.
    pub device: Option<&'a str>,
}

fn bounded(width: usize) -> usize {
    width.clamp(*WIDTHS.start(), *WIDTHS.end())
}

/// GiB with two decimals, rounded to nearest; what is there and would be `0.00` is `<0.01`.
fn number(bytes: u64) -> String {
    let hundredths = (u128::from(bytes) * 100 + (1 << 29)) >> 30;
    if hundredths == 0 && bytes > 0 { "<0.01".to_owned() } else { format!("{}.{:02}", hundredths / 100, hundredths % 100) }
}

/// [`number`] with its unit.
fn gib(bytes: u64) -> String {
    format!("{} GiB", number(bytes))
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Fits => "fits",
        Verdict::Uncertain => "uncertain",
        Verdict::DoesNotFit => "does not fit",
        Verdict::Unknown => "unknown",
    }
}

fn tone(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Fits => Tone::Good,
        Verdict::Uncertain => Tone::Unsure,
        Verdict::DoesNotFit => Tone::Bad,
        Verdict::Unknown => Tone::Strong,
    }
}

/// A stage as a verb: what goes on while it lasts.
fn while_doing(stage: &str) -> &str {
    match stage {
        "load" => "loading",
        stage => stage,
    }
}

/// `832 x 480, 81 frames, batch 1, ...`.
fn request(request: &Request) -> String {
    let Request { height, width, num_frames, batch, guidance_scale, num_inference_steps, text_tokens, references } = request;
    let plural = |count: u32, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let mut text = format!(
        "{width} x {height}, {}, batch {batch}, {}, guidance {guidance_scale}, {}",
        plural(*num_frames, "frame"),
        plural(*num_inference_steps, "step"),
        plural(*text_tokens, "text token"),
    );
    if *references > 0 {
        text.push_str(", ");
        text.push_str(&plural(*references, "reference"));
    }
    text
}

/// What a stage needs of the device, at least: its tensors and the fixed cost, each at the lower end. The verdict says that
/// something does not fit when this exceeds the budget.
fn least(stage: &Stage) -> Option<u64> {
    let peaks = stage.peak_bytes?;
    let fixed = peaks.device.low.saturating_sub(peaks.reserved.low);
    Some(peaks.allocated.low.saturating_add(fixed).min(peaks.device.low))
}

fn device(stage: &Stage) -> Option<Interval> {
    stage.peak_bytes.map(|peaks| peaks.device)
}

/// Host memory of a stage: page-locked and ordinary.
fn host(stage: &Stage) -> u64 {
    stage.host.pinned_bytes.saturating_add(stage.host.pageable_bytes)
}

/// The stage with the highest device peak; without peaks, the one with the most tensors alive.
fn highest(estimate: &Estimate) -> Option<&Stage> {
    estimate.stages.iter().max_by_key(|stage| (device(stage).map(|peak| peak.value), alive(stage)))
}

/// Tensors alive at the peak of a stage.
fn alive(stage: &Stage) -> u64 {
    stage.phases.iter().map(|phase| phase.allocated_bytes).max().unwrap_or(0)
}

/// Budget less the most that any stage can take, on the device and in a pool that the host shares; `None` without either.
fn margin(estimate: &Estimate) -> Option<i128> {
    let budget = i128::from(estimate.memory.budget_bytes?);
    let unified = estimate.memory.kind == Some(fv_spec::authored::MemoryType::Unified);
    let pool = estimate.host.capacity_bytes.filter(|_| unified).map(i128::from);
    let left = |stage: &Stage| {
        let high = i128::from(device(stage)?.high);
        let together = pool.map(|pool| pool - high - i128::from(host(stage)));
        Some(together.map_or(budget - high, |left| left.min(budget - high)))
    };
    let all: Vec<i128> = estimate.stages.iter().filter_map(left).collect();
    (all.len() == estimate.stages.len()).then(|| all.into_iter().min())?
}

fn saturated(bytes: i128) -> u64 {
    u64::try_from(bytes.unsigned_abs()).unwrap_or(u64::MAX)
}
