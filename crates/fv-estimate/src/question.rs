//! A deployment on a device of which several requests and settings are asked in turn.

use fv_spec::compiled::{Example, Model, RulesFile};
use fv_spec::estimate::{Estimate, Interval, Summary, Verdict};
use fv_spec::questions::Clip;
use fv_spec::request::{PartialRequest, Request};

use crate::budget::{Asked, Budget};
use crate::device::DeviceSpec;
use crate::error::InputError;
use crate::estimate::{Brief, Workload};
use crate::place;
use crate::resolve::Overrides;
use crate::resolve::legal::Legal;
use crate::settings::Settings;

/// What stays the same while requests and settings vary.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The model.
    pub model: &'a Model,
    /// The deployment.
    pub example: &'a Example,
    /// Fitted coefficients.
    pub rules: &'a RulesFile,
    /// The device, where one was chosen.
    pub device: Option<&'a DeviceSpec>,
    /// What of it may be used.
    pub asked: &'a Asked,
    /// What the user sets.
    pub overrides: &'a Overrides,
}

impl Question<'_> {
    /// A request evaluated.
    ///
    /// # Errors
    /// What is wrong with the request or the settings.
    pub fn evaluate(&self, request: &PartialRequest, details: bool) -> Result<Workload, Vec<InputError>> {
        Workload::evaluate(self.model, self.example, request, self.overrides, self.rules, details)
    }

    /// What the device offers to a deployment with these settings.
    ///
    /// # Errors
    /// What is wrong with the figures of the device.
    pub fn budget(&self, settings: &Settings) -> Result<Budget, Vec<InputError>> {
        let mut budget = place::offer(self.device, self.asked, settings.runtime, self.rules)?;
        if let Some(device) = self.device {
            place::check_device(&mut budget, device, settings);
        }
        Ok(budget)
    }

    /// A plain estimate of a request.
    ///
    /// # Errors
    /// What is wrong with the request, the settings or the figures of the device.
    pub fn estimate(&self, request: &PartialRequest) -> Result<Estimate, Vec<InputError>> {
        let workload = self.evaluate(request, true)?;
        let budget = self.budget(&workload.settings)?;
        Ok(workload.estimate(self.device.map(|device| device.id.as_str()), &budget))
    }

    /// Whether the runtime sees that the device shares its memory with the host.
    pub fn unified(&self) -> bool {
        self.device.is_some_and(place::unified_memory)
    }
}

/// A request that asks for exactly this.
pub fn exactly(request: &Request) -> PartialRequest {
    PartialRequest {
        height: Some(request.height),
        width: Some(request.width),
        num_frames: Some(request.num_frames),
        seconds: None,
        batch: Some(request.batch),
        guidance_scale: Some(request.guidance_scale),
        num_inference_steps: Some(request.num_inference_steps),
        text_tokens: Some(request.text_tokens),
        references: Some(request.references),
    }
}

/// Whether a verdict counts as fitting.
pub fn admitted(verdict: Verdict, admit_uncertain: bool) -> bool {
    verdict == Verdict::Fits || (admit_uncertain && verdict == Verdict::Uncertain)
}

/// The device peak over all stages: the largest of each figure.
pub fn device_peak(summary: &Summary) -> Option<Interval> {
    Interval::highest(summary.stages.iter().map(|stage| stage.peak_bytes.device))
}

/// A clip and its verdict.
pub(crate) fn clip(request: &Request, brief: &Brief, legal: &Legal) -> Clip {
    Clip {
        height: request.height,
        width: request.width,
        num_frames: request.num_frames,
        seconds: legal.seconds(request.num_frames),
        status: brief.status,
        device_peak: brief.device_peak,
        margin_bytes: brief.margin_bytes,
    }
}
