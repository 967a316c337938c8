//! The families of models that rules exist for. A family is one module; [`FAMILIES`] is the list.

use std::fmt::Debug;

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::{Buffer, HostBytes, Interval, PeakBytes, Reason, StageName, Verdict};
use fv_spec::plan::Plan;
use fv_spec::request::Request;

use crate::budget::Budget;
use crate::modules::standalone::{Asked, Pass, Why};
use crate::program::Program;
use crate::settings::Settings;
use crate::verdict::Short;
use crate::{cogvideox, hunyuan_video, ltx_video, minimax_h3, mochi, wan};

/// A request lowered: its program, and what it needs outside the device.
#[derive(Debug)]
pub struct Lowered {
    /// The device's events.
    pub program: Program,
    /// Host memory by stage, in the order of [`fv_spec::estimate::StageName::ALL`].
    pub host: [HostBytes; 4],
    /// What the rules do not cover: each makes the result `unknown`.
    pub uncovered: Vec<Reason>,
    /// Assumptions for the reader.
    pub notes: Vec<String>,
}

/// A runtime's own planner with a request: it decides by what it finds free, so its answer stands in place of what is derived without it.
pub trait ByPlan: Debug + Send + Sync {
    /// What it answers for a device. `None` where too little is known of it.
    fn planned(&self, budget: &Budget) -> Option<Planned>;
}

/// A planner's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Whether it fits.
    pub status: Verdict,
    /// Why.
    pub reason: Reason,
    /// What is missing at least, where it does not.
    pub short: Option<Short>,
    /// The plan whose figures are shown, where there is one.
    pub plan: Option<Box<Plan>>,
    /// Stages that the plan has a peak for, in order.
    pub stages: Vec<PlannedStage>,
    /// What the plan's figures reach beyond what was measured.
    pub extrapolated: Vec<String>,
    /// For the reader: which plan it is.
    pub note: Option<String>,
}

impl Planned {
    /// A stage, where the plan has a peak for it.
    pub fn stage(&self, name: StageName) -> Option<&PlannedStage> {
        self.stages.iter().find(|stage| stage.name == name)
    }

    /// Host memory of the stage that needs most. `None` without a plan.
    pub fn host_bytes(&self) -> Option<u64> {
        self.plan.as_ref()?;
        self.stages.iter().map(|stage| stage.host.pinned_bytes.saturating_add(stage.host.pageable_bytes)).max()
    }
}

/// What a plan says of a stage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedStage {
    /// The stage.
    pub name: StageName,
    /// Whole-device peak: the plan's, and between which figures those for other systems lie.
    pub device: Interval,
    /// Host memory and disk.
    pub host: HostBytes,
    /// What makes the peak, largest first.
    pub buffers: Vec<Buffer>,
}

impl PlannedStage {
    /// Its peak: whole-device bytes, of which the planner tells no part apart.
    pub fn peaks(&self) -> PeakBytes {
        PeakBytes { allocated: self.device, reserved: self.device, device: self.device }
    }
}

/// The rules of a family.
pub trait Family: Sync {
    /// The value of `memory_rules`.
    fn id(&self) -> &'static str;

    /// The runtimes that it has rules for.
    fn runtimes(&self) -> &'static [Runtime];

    /// Lowers a request under the runtime of `settings`; `details` keeps what reports of single buffers need. `None` where no
    /// rule covers that runtime.
    ///
    /// # Errors
    /// Facts of the model that the rules need and the catalog lacks.
    fn lower(
        &self,
        model: &Model,
        example: &Example,
        settings: &Settings,
        request: &Request,
        details: bool,
    ) -> Option<Result<Lowered, Vec<Reason>>>;

    /// The runtime's own planner, where there is one.
    fn by_plan(&self, _model: &Model, _example: &Example, _settings: &Settings, _request: &Request) -> Option<Box<dyn ByPlan>> {
        None
    }

    /// One of the family's components on its own under diffusers, as benchmarks run it.
    ///
    /// # Errors
    /// Why no rule covers what is asked.
    fn pass(&self, model: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why>;
}

/// Every family with rules.
pub static FAMILIES: [&dyn Family; 6] =
    [&wan::Wan, &hunyuan_video::HunyuanVideo, &mochi::Mochi, &minimax_h3::MiniMaxH3, &ltx_video::LtxVideo, &cogvideox::CogVideoX];

/// The family called `id`.
pub fn find(id: &str) -> Option<&'static dyn Family> {
    FAMILIES.iter().find(|family| family.id() == id).copied()
}
