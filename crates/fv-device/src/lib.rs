//! What needs a driver library or a system call. The only crate with `unsafe` code; each block says why it is sound.
//!
//! Nothing here decides anything: readers put down what a library answered, and `fv-run` makes sense of it. A missing library
//! is an answer and never a panic.
//!
//! * [`reading`]: the answers, as JSON that travels between processes and stands in fixtures.
//! * [`nvml`]: the devices as the driver's management library sees them.
//! * [`cuda`]: the devices as a CUDA process sees them.
//! * [`reference`](mod@reference): what kernels of op programs mean, in plain code.
//! * [`windows`]: physical and commit memory of Windows.

pub mod cuda;
pub mod nvml;
pub mod reading;
pub mod reference;
pub mod windows;
