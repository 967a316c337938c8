//! How fast a device is, and how long each operation takes on it: the larger of what its arithmetic and its bytes take, and a cost
//! for starting it. Integers throughout, rounded up to nanoseconds.

use std::fmt;

use fv_spec::program::{Element, Kernel, Op, Program, Stream, Tier};

use crate::work::work;

/// Operations or bytes a second; 0 where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rates {
    /// Matrix products, by how what is multiplied is stored: multiplications and additions a second.
    pub matrix: MatrixRates,
    /// Attention: multiplications and additions a second.
    pub attention: u64,
    /// Memory of the device, bytes a second.
    pub memory: u64,
    /// Copies from page-locked host memory to the device, bytes a second.
    pub pinned_to_device: u64,
    /// The same from pageable memory.
    pub pageable_to_device: u64,
    /// Copies from the device to page-locked host memory, bytes a second.
    pub device_to_pinned: u64,
    /// The same to pageable memory.
    pub device_to_pageable: u64,
    /// Reads of files, bytes a second.
    pub disk: u64,
    /// Memory of the host, bytes a second.
    pub host_memory: u64,
    /// Nanoseconds for starting a kernel.
    pub launch_ns: u64,
    /// Nanoseconds for starting a copy or a read.
    pub copy_ns: u64,
}

/// Multiplications and additions a second; 0 where it is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the words are the definition")]
pub struct MatrixRates {
    pub f64: u64,
    pub f32: u64,
    pub bf16: u64,
    pub fp8: u64,
    pub int8: u64,
}

impl Rates {
    /// A copy from page-locked host memory to the device.
    ///
    /// # Errors
    /// When its rate is zero.
    pub fn copy_in_ns(&self, bytes: u64) -> Result<u64, UnknownRate> {
        copy(bytes.into(), self.pinned_to_device, "pinned_to_device", Resource::HostToDevice, self).map(|cost| cost.ns)
    }

    /// A read of a file.
    ///
    /// # Errors
    /// When its rate is zero.
    pub fn read_ns(&self, bytes: u64) -> Result<u64, UnknownRate> {
        copy(bytes.into(), self.disk, "disk", Resource::Disk, self).map(|cost| cost.ns)
    }
}

impl MatrixRates {
    fn of(&self, element: Element) -> u64 {
        match element {
            Element::F64 => self.f64,
            Element::F32 => self.f32,
            Element::Bf16 => self.bf16,
            Element::Fp8 => self.fp8,
            Element::Int8 => self.int8,
            Element::I32 | Element::U8 => 0,
        }
    }
}

/// What takes the time of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// Matrix units, for products.
    Matrix,
    /// Matrix units, for attention.
    Attention,
    /// Memory of the device.
    Memory,
    /// Starting kernels.
    Launch,
    /// The copy engine to the device.
    HostToDevice,
    /// The copy engine from the device.
    DeviceToHost,
    /// Files.
    Disk,
    /// Memory of the host.
    HostMemory,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Self; 8] =
        [Self::Matrix, Self::Attention, Self::Memory, Self::Launch, Self::HostToDevice, Self::DeviceToHost, Self::Disk, Self::HostMemory];

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Matrix => "matrix",
            Self::Attention => "attention",
            Self::Memory => "memory",
            Self::Launch => "launch",
            Self::HostToDevice => "host_to_device",
            Self::DeviceToHost => "device_to_host",
            Self::Disk => "disk",
            Self::HostMemory => "host_memory",
        }
    }
}

/// How long an operation takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Nanoseconds.
    pub ns: u64,
    /// What takes most of them.
    pub resource: Resource,
}

/// A rate that a program needs and that is not known, or too small for a time to be a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownRate(pub &'static str);

impl fmt::Display for UnknownRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rate `{}` is not known; a positive number of operations or bytes a second is needed", self.0)
    }
}

impl std::error::Error for UnknownRate {}

/// How long each operation takes, in the order of the program.
///
/// # Errors
/// When a rate that is needed is zero.
pub fn costs(program: &Program, rates: &Rates) -> Result<Vec<Cost>, UnknownRate> {
    program.ops().map(|(_, op)| cost(program, op, rates)).collect()
}

/// How long an operation of a program takes.
///
/// # Errors
/// When a rate that is needed is zero.
pub fn cost(program: &Program, op: &Op, rates: &Rates) -> Result<Cost, UnknownRate> {
    let tier = |view: Option<&fv_spec::program::View>| {
        view.map(|view| program.regions[program.buffers[view.buffer as usize].region as usize].tier)
    };
    let pinned = |view| tier(view) == Some(Tier::Pinned);
    let bytes = work(op).bytes;
    // A copy reads and writes as many bytes; the link carries them once.
    let carried = op.reads.first().map_or(0, |view| u128::from(view.bytes()));
    match op.stream {
        Stream::Compute => kernel(op, rates),
        Stream::CopyIn if pinned(op.reads.first()) => {
            copy(carried, rates.pinned_to_device, "pinned_to_device", Resource::HostToDevice, rates)
        }
        Stream::CopyIn => copy(carried, rates.pageable_to_device, "pageable_to_device", Resource::HostToDevice, rates),
        Stream::CopyOut if pinned(op.writes.first()) => {
            copy(carried, rates.device_to_pinned, "device_to_pinned", Resource::DeviceToHost, rates)
        }
        Stream::CopyOut => copy(carried, rates.device_to_pageable, "device_to_pageable", Resource::DeviceToHost, rates),
        Stream::Disk if matches!(op.kernel, Kernel::Read { .. } | Kernel::Lookup { .. }) => {
            copy(bytes, rates.disk, "disk", Resource::Disk, rates)
        }
        Stream::Disk => copy(bytes, rates.host_memory, "host_memory", Resource::HostMemory, rates),
    }
}

fn copy(bytes: u128, rate: u64, name: &'static str, resource: Resource, rates: &Rates) -> Result<Cost, UnknownRate> {
    Ok(Cost { ns: time(bytes, rate, name)?.saturating_add(rates.copy_ns), resource })
}

fn kernel(op: &Op, rates: &Rates) -> Result<Cost, UnknownRate> {
    let work = work(op);
    let mut longest = (time(work.bytes, rates.memory, "memory")?, Resource::Memory);
    if let Some((element, operations)) = work.matrix {
        let (rate, name) = (rates.matrix.of(element), element.word());
        longest = longest.max_by_time((time(operations, rate, name)?, Resource::Matrix));
    }
    if work.attention > 0 {
        longest = longest.max_by_time((time(work.attention, rates.attention, "attention")?, Resource::Attention));
    }
    let resource = if rates.launch_ns > longest.0 { Resource::Launch } else { longest.1 };
    Ok(Cost { ns: longest.0.saturating_add(rates.launch_ns), resource })
}

trait Longest {
    fn max_by_time(self, other: Self) -> Self;
}

impl Longest for (u64, Resource) {
    fn max_by_time(self, other: Self) -> Self {
        if other.0 > self.0 { other } else { self }
    }
}

/// Nanoseconds for an amount at a rate a second, rounded up.
fn time(amount: u128, rate: u64, name: &'static str) -> Result<u64, UnknownRate> {
    if amount == 0 {
        return Ok(0);
    }
    let ns = amount.checked_mul(1_000_000_000).filter(|_| rate > 0).map(|scaled| scaled.div_ceil(rate.into()));
    ns.and_then(|ns| u64::try_from(ns).ok()).ok_or(UnknownRate(name))
}
