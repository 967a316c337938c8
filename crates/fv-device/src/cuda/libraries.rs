//! Where the vendor's libraries are. The loader's own places come first, then folders in `FV_CUDA_LIBS`, then where toolkits put
//! them.

use std::path::{Path, PathBuf};

use libloading::Library;

use super::Error;

/// Folders with the vendor's libraries, separated as in `PATH`.
pub const FOLDERS_VARIABLE: &str = "FV_CUDA_LIBS";

/// Where toolkits of this version put libraries.
const TOOLKITS: [&str; 3] = ["/usr/local/cuda/lib64", "/usr/local/cuda-13/lib64", "/usr/lib/x86_64-linux-gnu"];

/// The driver's own library.
///
/// # Errors
/// When it is not there, which is so on every machine without a driver.
pub fn driver() -> Result<(), Error> {
    if super::present() {
        return Ok(());
    }
    Err(Error::Missing { library: "the CUDA driver's library", hint: "install an NVIDIA driver".to_owned() })
}

/// The library of matrix products.
///
/// # Errors
/// When it is nowhere.
pub fn cublaslt() -> Result<(), Error> {
    // SAFETY: it opens and closes a library of the vendor, whose initialisers need no state of ours.
    #[expect(unsafe_code, reason = "the crate declares the check unsafe since it loads a library")]
    let present = || unsafe { cudarc::cublaslt::sys::is_culib_present() };
    find("cuBLASLt", "libcublasLt.so.13", present)
}

/// The run-time compiler.
///
/// # Errors
/// When it is nowhere.
pub fn compiler() -> Result<(), Error> {
    // SAFETY: it opens and closes a library of the vendor, whose initialisers need no state of ours.
    #[expect(unsafe_code, reason = "the crate declares the check unsafe since it loads a library")]
    let present = || unsafe { cudarc::nvrtc::sys::is_culib_present() };
    find("the CUDA run-time compiler (NVRTC)", "libnvrtc.so.13", present)
}

/// Opens a library for good from the first folder that has it: the crate below asks for it by its name, which the loader then knows.
fn find(library: &'static str, file: &str, present: impl Fn() -> bool) -> Result<(), Error> {
    if present() {
        return Ok(());
    }
    let folders = folders();
    let found = folders.iter().filter(|folder| folder.join(file).is_file()).any(|folder| {
        // The run-time compiler opens a library of its own by name, which is not where the loader looks either.
        for path in beside(folder) {
            open(&path);
        }
        open(&folder.join(file))
    });
    if found && present() {
        return Ok(());
    }
    let looked: Vec<_> = folders.iter().map(|folder| folder.display().to_string()).collect();
    Err(Error::Missing { library, hint: format!("name the folder with {file} in {FOLDERS_VARIABLE}; looked in {}", looked.join(", ")) })
}

/// What the run-time compiler needs from its folder.
fn beside(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let part = |name: &str| name.starts_with("libnvrtc-builtins.so.13");
    entries.filter(|entry| entry.file_name().to_str().is_some_and(part)).map(|entry| entry.path()).collect()
}

fn folders() -> Vec<PathBuf> {
    let named = std::env::var_os(FOLDERS_VARIABLE);
    let named = named.iter().flat_map(std::env::split_paths);
    named.chain(TOOLKITS.iter().map(PathBuf::from)).collect()
}

fn open(path: &Path) -> bool {
    // SAFETY: it is a library of the vendor, whose initialisers need no state of ours; it is never closed.
    #[expect(unsafe_code, reason = "loading a library runs its initialisers")]
    let library = unsafe { Library::new(path) };
    library.map(std::mem::forget).is_ok()
}
