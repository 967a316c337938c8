//! Memory and time estimates. Pure: no I/O, no clock, no randomness, and no byte is ever summed in floating point.
//!
//! * [`settings`]: what the engine really does, with the provenance of each value.
//! * [`storage`]: bytes of stored weights, plain and quantised.
//! * [`evidence`]: reference runs judged against a configuration, and what they add to an estimate.
//! * [`recommend`]: devices and deployments for a request.
//! * [`program`]: op programs, and the memory timeline that follows from one.
//! * [`caching`]: PyTorch's caching allocator, replayed.

pub mod caching;
pub mod evidence;
pub mod pinned;
pub mod program;
pub mod recommend;
pub mod settings;
pub mod storage;
pub mod wan;
