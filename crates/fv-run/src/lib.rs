//! What a machine has, measured. Everything that is read is made sense of by pure functions over text and numbers, so that
//! recorded systems drive the same code as the real one.
//!
//! * [`probe`](mod@probe): a whole probe, from what the parts below find.
//! * [`gpu`]: answers of driver libraries as devices. [`child`]: asking them from a process that may die.
//! * [`linux`], [`windows`], [`macos`]: memory of the host.
//! * [`disk`]: space on a file system, and how fast it is read.
//! * [`execute`](mod@execute): op programs, on the processor.
//! * [`files`]: where system files are read from.

pub mod child;
pub mod disk;
pub mod execute;
pub mod files;
pub mod gpu;
pub mod linux;
pub mod macos;
pub mod probe;
pub mod windows;

use fv_spec::units::MAX_JSON_INTEGER;

/// A figure that a system can mean: drivers and kernels without a limit report figures near 2^63.
pub(crate) fn believed(bytes: u64) -> Option<u64> {
    Some(bytes).filter(|bytes| *bytes <= MAX_JSON_INTEGER)
}
