//! The families of models that rules exist for. A family is one module; [`FAMILIES`] is the list.

use std::fmt::Debug;

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model, RulesFile};
use fv_spec::estimate::{Buffer, HostBytes, PeakBytes, Phase, Reason, Setting, StageName, Verdict};
use fv_spec::plan::Plan;
use fv_spec::request::Request;

use crate::budget::Budget;
use crate::modules::standalone::{Asked, Pass, Why};
use crate::program::Program;
use crate::settings::Settings;
use crate::verdict::{Short, ShortTier};
use crate::wan;
#[cfg(feature = "all-families")]
use crate::{cogvideox, hunyuan_video, ltx_video, minimax_h3, mochi};

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
    /// What it answers for a device. `None` where too little is known of it, and what is derived without it is shown.
    fn planned(&self, budget: &Budget) -> Option<Planned>;

    /// Whether a plan may be made for a device: quicker than the plan, and never less. `None` where only the plan says.
    fn may_fit(&self, _budget: &Budget) -> Option<bool> {
        None
    }

    /// What the plan for a device takes, quicker than the plan itself. `None` where there is none, or only the plan says.
    fn fitted(&self, _budget: &Budget) -> Option<Fitted> {
        None
    }

    /// A budget of one pool below which no plan is made, the other pool as it is; a plan may need more. `None` where no budget is
    /// enough, or nothing is known of it.
    fn least(&self, _budget: &Budget, _pool: ShortTier) -> Option<u64> {
        None
    }

    /// The least host memory of which so much may be used.
    fn host_for(&self, bytes: u64) -> u64 {
        bytes
    }

    /// Stages of the smallest plan that there is, where a request was refused: what a report shows of it.
    fn smallest(&self, _budget: &Budget) -> Vec<PlannedStage> {
        Vec::new()
    }
}

/// What a plan takes in its stage that takes most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fitted {
    /// Everything that the process shows on the device.
    pub device_bytes: u64,
    /// Page-locked host memory.
    pub host_bytes: u64,
}

/// A planner's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// Whether it fits.
    pub status: Verdict,
    /// Whether host memory suffices.
    pub host: Verdict,
    /// Why, the first before all.
    pub reasons: Vec<Reason>,
    /// What is missing at least, where it does not.
    pub short: Option<Short>,
    /// Budget less the most that any stage takes, where the planner says.
    pub margin_bytes: Option<i64>,
    /// The plan whose figures are shown, where there is one.
    pub plan: Option<Box<Plan>>,
    /// Stages that the plan has figures for, in order.
    pub stages: Vec<PlannedStage>,
    /// What was decided, as settings.
    pub settings: Vec<Setting>,
    /// What the plan's figures reach beyond what was measured.
    pub extrapolated: Vec<String>,
    /// For the reader: which plan it is.
    pub notes: Vec<String>,
}

impl Planned {
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
    /// Its parts.
    pub phases: Vec<Phase>,
    /// Its peaks, as far as the plan tells them apart; nothing where no device is known, or no peak of this stage.
    pub peaks: Option<PeakBytes>,
    /// Host memory and disk.
    pub host: HostBytes,
    /// What makes the peak, largest first.
    pub buffers: Vec<Buffer>,
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
    fn by_plan(
        &self,
        _model: &Model,
        _example: &Example,
        _settings: &Settings,
        _request: &Request,
        _rules: &RulesFile,
    ) -> Option<Box<dyn ByPlan>> {
        None
    }

    /// One of the family's components on its own under diffusers, as benchmarks run it.
    ///
    /// # Errors
    /// Why no rule covers what is asked.
    fn pass(&self, model: &Model, component: &ExpandedComponent, role: Role, asked: &Asked) -> Result<Box<dyn Pass>, Why>;
}

/// Every family with rules.
#[cfg(feature = "all-families")]
pub static FAMILIES: [&dyn Family; 6] =
    [&wan::Wan, &hunyuan_video::HunyuanVideo, &mochi::Mochi, &minimax_h3::MiniMaxH3, &ltx_video::LtxVideo, &cogvideox::CogVideoX];

/// The family with rules that a first view has.
#[cfg(not(feature = "all-families"))]
pub static FAMILIES: [&dyn Family; 1] = [&wan::Wan];

/// The family called `id`.
pub fn find(id: &str) -> Option<&'static dyn Family> {
    FAMILIES.iter().find(|family| family.id() == id).copied()
}
