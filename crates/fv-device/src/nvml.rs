//! The devices as NVML sees them. It is loaded when asked for, so that a machine without a driver is a normal case.

use std::collections::BTreeSet;

use nvml_wrapper::{Device, Nvml, error::NvmlError};

use crate::reading::{Driver, Line, Memory, NvmlDevice, NvmlInstance};

/// Tells `say` of every device.
pub fn read(mut say: impl FnMut(Line)) {
    let nvml = match Nvml::init() {
        Ok(nvml) => nvml,
        // No library, or a library without a driver behind it: both mean that nothing here is NVIDIA's.
        Err(NvmlError::LibloadingError(error)) => return say(Line::Absent { message: error.to_string() }),
        Err(error @ (NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded)) => return say(Line::Absent { message: error.to_string() }),
        Err(error) => return say(Line::Failed { message: error.to_string() }),
    };
    say(Line::Driver(Driver { version: nvml.sys_driver_version().ok(), cuda_version: nvml.sys_cuda_driver_version().ok() }));
    match nvml.device_count() {
        Ok(count) => {
            for index in 0..count {
                say(match nvml.device_by_index(index) {
                    Ok(device) => Line::Nvml(whole(index, &device)),
                    Err(error) => Line::Nvml(NvmlDevice { index, refused: vec![error.to_string()], ..NvmlDevice::default() }),
                });
            }
            say(Line::Done);
        }
        Err(error) => say(Line::Failed { message: error.to_string() }),
    }
}

/// Free memory of the device or instance with this identifier.
pub(crate) fn free(nvml: &Nvml, uuid: &str) -> Option<u64> {
    let found = ["GPU-", "MIG-"].into_iter().find_map(|kind| nvml.device_by_uuid(format!("{kind}{uuid}")).ok())?;
    found.memory_info().ok().map(|memory| memory.free)
}

fn whole(index: u32, device: &Device<'_>) -> NvmlDevice {
    let mut refused = Vec::new();
    let mut ask = Asking { refused: &mut refused };
    let partitioned = ask.about("MIG mode", device.mig_mode()).is_some_and(|mode| mode.current == 1);
    let found = NvmlDevice {
        index,
        name: ask.about("name", device.name()),
        uuid: ask.about("UUID", device.uuid()),
        compute_capability: ask.about("compute capability", device.cuda_compute_capability()).map(|found| (found.major, found.minor)),
        // The sum of all instances is nobody's memory.
        memory: if partitioned { None } else { memory(&mut ask, device) },
        pcie: [
            ask.about("PCIe generation", device.current_pcie_link_gen()),
            ask.about("PCIe lanes", device.current_pcie_link_width()),
            ask.about("highest PCIe generation", device.max_pcie_link_gen()),
            ask.about("most PCIe lanes", device.max_pcie_link_width()),
        ],
        bar1: ask.about("BAR1", device.bar1_memory_info()).map(|found| found.total),
        processes: processes(&mut ask, device),
        partitioned,
        instances: if partitioned { instances(&mut ask, device) } else { Vec::new() },
        refused: Vec::new(),
    };
    NvmlDevice { refused, ..found }
}

fn memory(ask: &mut Asking<'_>, device: &Device<'_>) -> Option<Memory> {
    let found = ask.about("memory", device.memory_info())?;
    Some(Memory { total: found.total, free: found.free, reserved: found.reserved })
}

/// Numbers of the processes that use a device, each once however it uses it.
fn processes(ask: &mut Asking<'_>, device: &Device<'_>) -> Option<Vec<u32>> {
    let compute = ask.about("compute processes", device.running_compute_processes());
    let graphics = ask.about("graphics processes", device.running_graphics_processes());
    let lists = compute.is_some() || graphics.is_some();
    let all: BTreeSet<u32> = compute.into_iter().chain(graphics).flatten().map(|process| process.pid).collect();
    lists.then(|| all.into_iter().collect())
}

fn instances(ask: &mut Asking<'_>, device: &Device<'_>) -> Vec<NvmlInstance> {
    let most = ask.about("number of MIG instances", device.mig_device_count()).unwrap_or(0);
    // Numbers of instances have gaps.
    let there = (0..most).filter_map(|index| Some((index, device.mig_device_by_index(index).ok()?)));
    let read = |(index, instance): (u32, Device<'_>)| NvmlInstance {
        index,
        name: ask.about("instance's name", instance.name()),
        uuid: ask.about("instance's UUID", instance.uuid()),
        memory: memory(ask, &instance),
        slices: ask
            .about("instance's slices", instance.attributes())
            .map(|found| (found.gpu_instance_slice_count, found.compute_instance_slice_count)),
    };
    there.map(read).collect()
}

/// Asks and takes down what was refused.
struct Asking<'a> {
    refused: &'a mut Vec<String>,
}

impl Asking<'_> {
    fn about<T>(&mut self, what: &str, answer: Result<T, NvmlError>) -> Option<T> {
        match answer {
            Ok(found) => Some(found),
            // Many devices do not answer many questions: nothing to report.
            Err(NvmlError::NotSupported | NvmlError::NotFound | NvmlError::InvalidArg | NvmlError::FailedToLoadSymbol(_)) => None,
            Err(error) => {
                self.refused.push(format!("{what}: {error}"));
                None
            }
        }
    }
}
