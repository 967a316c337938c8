//! Memory of Windows. On other systems there is nothing to call.

#[cfg(windows)]
use crate::reading::WindowsMemory;

/// Physical and commit memory.
///
/// # Errors
/// When the system refuses.
#[cfg(windows)]
pub fn memory() -> std::io::Result<WindowsMemory> {
    use windows_sys::Win32::System::SystemInformation::{GetPhysicallyInstalledSystemMemory, GlobalMemoryStatusEx, MEMORYSTATUSEX};

    let mut status = MEMORYSTATUSEX { dwLength: u32::try_from(size_of::<MEMORYSTATUSEX>()).unwrap_or(0), ..MEMORYSTATUSEX::default() };
    // SAFETY: the pointer is to a structure of ours that outlives the call, and the structure says its size as the call demands.
    #[expect(unsafe_code, reason = "a system call that fills a structure")]
    let answered = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    if answered == 0 {
        return Err(std::io::Error::last_os_error());
    }
    let mut kibibytes = 0;
    // SAFETY: the pointer is to an integer of ours that outlives the call.
    #[expect(unsafe_code, reason = "a system call that fills an integer")]
    let installed = unsafe { GetPhysicallyInstalledSystemMemory(&raw mut kibibytes) };
    Ok(WindowsMemory {
        total_physical: status.ullTotalPhys,
        available_physical: status.ullAvailPhys,
        commit_limit: status.ullTotalPageFile,
        commit_available: status.ullAvailPageFile,
        installed: Some(kibibytes).filter(|_| installed != 0).and_then(|kibibytes| kibibytes.checked_mul(1024)),
    })
}
