//! CUDA: what devices there are, and operations of programs on one of them.
//!
//! * [`read`](mod@read): the devices, as a process sees them.
//! * [`device`]: one device: its context, streams, events, and how operations reach it.
//! * [`memory`]: device memory and page-locked host memory, each reserved at once.
//! * [`modules`]: compiled kernels, built ahead or by the run-time compiler.
//! * [`products`]: matrix products by cuBLASLt.
//! * [`libraries`]: the vendor's libraries, where they are.
//!
//! Libraries are loaded when they are asked for. One that is missing is an error with words: the crate below panics without it,
//! so nothing of it is called before [`libraries`] found it.

pub mod arguments;
pub mod device;
pub mod libraries;
pub mod memory;
pub mod modules;
mod operations;
pub mod products;
pub mod read;

use cudarc::driver::DriverError;
use thiserror::Error;

pub use device::{Device, Queue};
pub use read::{present, read};

/// Why a device does not do what it is asked for.
#[derive(Debug, Error)]
pub enum Error {
    /// A library is not on this machine.
    #[error("{library} is not on this machine: {hint}")]
    Missing {
        /// Such as `the driver's library`.
        library: &'static str,
        /// What helps.
        hint: String,
    },
    /// The driver refused.
    #[error("{what}: {code}")]
    Driver {
        /// What it was asked for.
        what: String,
        /// Its own name of the error.
        code: String,
    },
    /// A library refused.
    #[error("{what}: {code}")]
    Library {
        /// What it was asked for.
        what: String,
        /// Its own name of the error.
        code: String,
    },
    /// The device is too old for the kernels.
    #[error("{name} has compute capability {major}.{minor}; 8.0 or newer is needed, whose matrix units know bfloat16")]
    TooOld {
        /// The device.
        name: String,
        /// Of its compute capability.
        major: i32,
        /// Of its compute capability.
        minor: i32,
    },
    /// The run-time compiler refused a kernel.
    #[error("{file} does not compile: {log}")]
    Compile {
        /// The file.
        file: &'static str,
        /// What the compiler says.
        log: String,
    },
    /// No kernel computes this.
    #[error("no kernel computes {0}")]
    Unsupported(String),
    /// An operand is outside the memory that it is said to be in.
    #[error("{bytes} bytes at {offset} of an arena of {size}")]
    Outside {
        /// Where it begins.
        offset: u64,
        /// How long it is.
        bytes: u64,
        /// How large the arena is.
        size: u64,
    },
    /// Memory could not be had from the system.
    #[error("{bytes} bytes of host memory: {why}")]
    Host {
        /// How much was asked for.
        bytes: u64,
        /// What the system says.
        why: std::io::Error,
    },
}

/// Says what the driver was asked for when it refused.
fn asked<T>(what: impl FnOnce() -> String, answer: Result<T, DriverError>) -> Result<T, Error> {
    answer.map_err(|error| Error::Driver { what: what(), code: read::words(error) })
}

/// An extent as the driver counts.
fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
