//! Memory and time estimates. Pure: no I/O, no clock, no randomness, and no byte is ever summed in floating point.
//!
//! Data flows one way: a model, a deployment and a request become effective settings ([`resolve`], [`settings`]), these become
//! an op program ([`family`]: one module for each, such as [`wan`], over [`modules`] and [`program`]), the program becomes a memory timeline under an
//! allocator ([`caching`]), and the timeline becomes a verdict on a device ([`device`], [`budget`], [`verdict`]). [`estimate`]
//! puts them together.
//!
//! * [`answers`]: what the command line and the browser say alike.
//! * [`storage`], [`pinned`]: bytes of stored weights and of page-locked copies.
//! * [`coefficients`]: which fitted coefficients are read, and as what.
//! * [`spread`]: how far measured peaks lie from derived ones.
//! * [`evidence`]: reference runs judged against a configuration, and what they add to an estimate.
//! * [`calibrate`](mod@calibrate): what completed runs say of how far measured peaks lie from derived ones.
//! * [`recommend`]: devices and deployments for a request.
//! * [`question`]: a deployment on a device of which much is asked; [`largest`], [`minimum`], [`changes`], [`sweep`] ask it.
//! * [`planner`]: where everything is put, by a policy, and why.
//! * [`grid`]: plans over a grid of capacities.
//! * [`forecast`]: how long a request takes.
//! * [`place`]: a workload on a device: formats and budget.
//! * [`probe`], [`capacities`](mod@capacities): what a machine was found to have, and what of it there is to plan with.
//! * [`heuristics`]: the rules of thumb of the catalog's documentation, which are no part of an estimate.
//! * [`render`]: answers as text for people.
//! * [`error`]: input that nothing can be estimated from.
#![cfg_attr(not(feature = "all-families"), allow(dead_code, reason = "what only planners and other families use"))]

/// A digest of the source text of the rules: differs where another build may answer otherwise.
pub const SOURCES: &str = env!("FV_ESTIMATE_SOURCES");

pub mod answers;
pub mod budget;
pub mod caching;
pub mod calibrate;
pub mod capacities;
pub mod changes;
pub mod coefficients;
pub mod cogvideox;
pub mod device;
pub mod error;
pub mod estimate;
pub mod evidence;
pub mod family;
pub mod forecast;
pub mod grid;
pub mod heuristics;
pub mod hunyuan_video;
pub mod largest;
pub mod ltx_video;
pub mod minimax_h3;
pub mod minimum;
pub mod mochi;
pub mod modules;
pub mod pinned;
pub mod place;
pub mod planner;
pub mod probe;
pub mod program;
pub mod question;
pub mod recommend;
pub mod render;
pub mod resolve;
pub mod settings;
pub mod spread;
pub mod storage;
pub mod sweep;
pub mod verdict;
pub mod wan;
