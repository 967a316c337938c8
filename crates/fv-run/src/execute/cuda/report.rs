//! What an execution took.

use std::collections::BTreeMap;
use std::time::Duration;

use fv_spec::program::StageName;

/// How long a repetition of a segment took on the device.
#[derive(Debug, Clone, PartialEq)]
pub struct Timed {
    /// Its stage.
    pub stage: StageName,
    /// Its name.
    pub segment: String,
    /// Which repetition.
    pub repetition: u32,
    /// On the compute stream, from the end of what came before.
    pub milliseconds: f64,
    /// Of these, the ones in which computation had nothing to do but to wait for a copy.
    pub stall_milliseconds: f64,
    /// Device memory in use once it was issued.
    pub used_bytes: u64,
}

/// Operations of one kind.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Spent {
    /// How many there were.
    pub operations: usize,
    /// On the compute stream, without waits for copies.
    pub milliseconds: f64,
}

/// What was measured.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// Operations that were done.
    pub operations: usize,
    /// Of the whole execution.
    pub wall: Duration,
    /// Repetitions of segments in order.
    pub segments: Vec<Timed>,
    /// By phase and kernel, where that was asked for.
    pub profile: BTreeMap<(String, String), Spent>,
    /// Bytes of the arena on the device.
    pub device_bytes: u64,
    /// Bytes of arenas in host memory.
    pub host_bytes: u64,
    /// Bytes that were copied to the device and to the host.
    pub copied_bytes: [u64; 2],
    /// Of device memory in use: before anything was reserved, with everything reserved, at the end.
    pub used_bytes: [u64; 3],
    /// What is not as it was planned, such as memory that could not be page-locked.
    pub notes: Vec<String>,
    /// Buffers whose numbers were made up.
    pub made_up: Vec<String>,
}
