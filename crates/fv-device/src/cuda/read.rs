//! The devices as a CUDA process sees them.
//!
//! Free memory is asked from within a context, where limits on this process count: a cap of the multi-process service, the
//! devices that this process may see. A context costs memory itself and stays for the life of a process, so the caller runs
//! this in a process of its own.

use cudarc::driver::{CudaContext, DriverError, result, sys};
use nvml_wrapper::Nvml;

use crate::{
    nvml,
    reading::{CudaDevice, Line, Memory},
};

/// Whether the driver's library is on this machine. Without it every call of the `cudarc` crate panics.
pub fn present() -> bool {
    // SAFETY: it opens and closes the driver's library. The library's initialisers run; they are the vendor's, need no state
    // of ours and run again when it is opened for good.
    #[expect(unsafe_code, reason = "the crate declares the check unsafe since it loads a library")]
    unsafe {
        sys::is_culib_present()
    }
}

/// Tells `say` of every device that this process may use.
pub fn read(mut say: impl FnMut(Line)) {
    if !present() {
        return say(Line::Absent { message: "the driver's library is not on this machine".to_owned() });
    }
    match CudaContext::device_count() {
        Ok(count) => {
            let nvml = Nvml::init().ok();
            for ordinal in 0..u32::try_from(count).unwrap_or(0) {
                say(Line::Cuda(device(ordinal, nvml.as_ref())));
            }
            say(Line::Done);
        }
        // The library is installed and there is nothing to drive, as in a container that was given no device.
        Err(error) if absent(error) => say(Line::Absent { message: words(error) }),
        Err(error) => say(Line::Failed { message: words(error) }),
    }
}

fn absent(error: DriverError) -> bool {
    matches!(error.0, sys::CUresult::CUDA_ERROR_NO_DEVICE | sys::CUresult::CUDA_ERROR_STUB_LIBRARY)
}

/// The driver's own name of an error: `CUDA_ERROR_OUT_OF_MEMORY`.
pub(super) fn words(error: DriverError) -> String {
    error.error_name().map_or_else(|_| format!("{:?}", error.0), |name| name.to_string_lossy().into_owned())
}

fn device(ordinal: u32, nvml: Option<&Nvml>) -> CudaDevice {
    let mut found = CudaDevice { ordinal, ..CudaDevice::default() };
    if let Err(error) = ask(&mut found, nvml) {
        found.refused = Some(words(error));
    }
    found
}

/// What is known without a context is put down before one is made, since making it may fail.
fn ask(found: &mut CudaDevice, nvml: Option<&Nvml>) -> Result<(), DriverError> {
    let device = result::device::get(found.ordinal.cast_signed())?;
    found.name = result::device::get_name(device).ok();
    found.uuid = result::device::get_uuid(device).ok().map(|uuid| grouped(uuid.bytes.map(|byte| byte.to_ne_bytes()[0])));
    let free = |uuid: Option<&String>| nvml::free(nvml?, uuid?);
    let before = free(found.uuid.as_ref());
    let context = CudaContext::new(usize::try_from(found.ordinal).unwrap_or(usize::MAX))?;
    let (free_bytes, total_bytes) = context.mem_get_info()?;
    let after = free(found.uuid.as_ref());
    let bytes = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
    found.memory = Some(Memory { total: bytes(total_bytes), free: bytes(free_bytes), reserved: 0 });
    // Others may have released more than the context took: then nothing is known about it.
    found.context = before.zip(after).and_then(|(before, after)| before.checked_sub(after)).filter(|bytes| *bytes > 0);
    found.compute_capability = context.compute_capability().ok();
    found.integrated = context.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED).ok().map(|value| value != 0);
    Ok(())
}

/// An identifier as the driver's tools write it, without the kind before it.
fn grouped(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_grouped_as_tools_write_them() {
        let bytes = std::array::from_fn(|i| u8::try_from(i * 17).expect("below 256"));
        assert_eq!(grouped(bytes), "00112233-4455-6677-8899-aabbccddeeff");
    }
}
