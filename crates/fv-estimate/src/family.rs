//! The families of models that rules exist for. A family is one module; [`FAMILIES`] is the list.

use fv_spec::authored::{Role, Runtime};
use fv_spec::compiled::{Example, ExpandedComponent, Model};
use fv_spec::estimate::{HostBytes, Reason};
use fv_spec::request::Request;

use crate::modules::standalone::{Asked, Pass, Why};
use crate::program::Program;
use crate::settings::Settings;
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
