//! How long a request takes: laws of operation counts and of the rates of a device, with efficiencies from measurements.
//!
//! * [`rates`]: how fast a device is, and where each figure came from.
//! * [`freevideo`]: seconds of a sampling step of MiniMax H3 under `FreeVideo`, from its plan's decisions.
//! * [`request`]: all of a request, from its plan.
//! * [`interval`]: seconds with the range they are known in. [`coefficients`]: fitted figures by id.
//!
//! Times come out as whole nanoseconds. Inside there are only sums, products, quotients and square roots, which are the same on
//! every target.

pub mod coefficients;
pub mod cost;
pub mod freevideo;
pub mod interval;
pub mod operations;
pub mod rates;
pub mod request;
pub mod roofline;
pub mod workload;
