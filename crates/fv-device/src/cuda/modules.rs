//! Compiled kernels. A release carries them for every architecture, built ahead by `make kernels`; otherwise, and for
//! architectures that are newer, the run-time compiler makes them from the sources in this program, once: the result is kept in the
//! user's cache under a name made of everything that it depends on.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaFunction, CudaModule, sys as driver};
use cudarc::nvrtc::{Ptx, result, sys};
use sha2::{Digest, Sha256};

use super::{Error, asked, libraries};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// What every file begins with.
const HEADERS: [&str; 2] = [include_str!("../../kernels/arguments.cuh"), include_str!("../../kernels/fv.cuh")];

/// Files of kernels, with what is in them.
const FILES: [(&str, &str); 7] = [
    ("attention", include_str!("../../kernels/attention.cu")),
    ("elementwise", include_str!("../../kernels/elementwise.cu")),
    ("latents", include_str!("../../kernels/latents.cu")),
    ("norms", include_str!("../../kernels/norms.cu")),
    ("positions", include_str!("../../kernels/positions.cu")),
    ("products", include_str!("../../kernels/products.cu")),
    ("tiles", include_str!("../../kernels/tiles.cu")),
];

/// What the run-time compiler is told, beside the architecture.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// Kernels of one device, loaded when they are first needed.
pub struct Modules {
    context: Arc<CudaContext>,
    capability: (i32, i32),
    loaded: RefCell<HashMap<&'static str, Arc<CudaModule>>>,
    functions: RefCell<HashMap<&'static str, CudaFunction>>,
}

impl std::fmt::Debug for Modules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Modules").field("capability", &self.capability).finish_non_exhaustive()
    }
}

impl Modules {
    pub(super) fn new(context: &Arc<CudaContext>, capability: (i32, i32)) -> Self {
        Self { context: context.clone(), capability, loaded: RefCell::default(), functions: RefCell::default() }
    }

    /// The kernel of this name in a file.
    pub(super) fn function(&self, file: &'static str, name: &'static str) -> Result<CudaFunction, Error> {
        if let Some(function) = self.functions.borrow().get(name) {
            return Ok(function.clone());
        }
        let function = asked(|| format!("kernel {name}"), self.module(file)?.load_function(name))?;
        self.functions.borrow_mut().insert(name, function.clone());
        Ok(function)
    }

    /// Loads all kernels: what the driver loads later, at a first launch, takes device memory then.
    pub(super) fn load(&self) -> Result<(), Error> {
        for (file, text) in FILES {
            for name in names(text) {
                let function = self.function(file, name)?;
                // SAFETY: the function is alive.
                #[expect(unsafe_code, reason = "the driver takes a handle")]
                let answer = unsafe { driver::cuFuncLoad(function.cu_function()) };
                asked(|| format!("loading kernel {name}"), answer.result())?;
            }
        }
        Ok(())
    }

    fn module(&self, file: &'static str) -> Result<Arc<CudaModule>, Error> {
        if let Some(module) = self.loaded.borrow().get(file) {
            return Ok(module.clone());
        }
        let image = match built_ahead(file, self.capability) {
            Some(image) => image.to_vec(),
            None => compiled(file, self.capability)?,
        };
        let module = asked(|| format!("loading the kernels of {file}.cu"), self.context.load_module(Ptx::from_binary(image)))?;
        self.loaded.borrow_mut().insert(file, module.clone());
        Ok(module)
    }
}

/// Compiles all kernels for a compute capability by the run-time compiler, or finds them in the cache. Needs no device.
///
/// # Errors
/// When there is no compiler, or it refuses.
pub fn compile_all(capability: (i32, i32)) -> Result<Vec<(&'static str, Vec<u8>)>, Error> {
    FILES.iter().map(|(file, _)| Ok((*file, compiled(file, capability)?))).collect()
}

/// Machine code that this program carries. It runs on devices of the same major version and of the same minor or a newer one;
/// that with an `a` on exactly its own.
fn built_ahead(file: &str, (major, minor): (i32, i32)) -> Option<&'static [u8]> {
    let fits = |architecture: &str| {
        let exact = architecture.ends_with('a');
        let number: i32 = architecture.trim_end_matches('a').parse().ok()?;
        let (of_major, of_minor) = (number / 10, number % 10);
        (of_major == major && if exact { of_minor == minor } else { of_minor <= minor }).then_some((exact, of_minor))
    };
    let found =
        BUILT_AHEAD.iter().filter(|(name, ..)| *name == file).filter_map(|(_, architecture, image)| Some((fits(architecture)?, *image)));
    found.max_by_key(|(rank, _)| *rank).map(|(_, image)| image)
}

/// The names of kernels in a file.
fn names(text: &'static str) -> impl Iterator<Item = &'static str> {
    let declared = text.lines().filter(|line| line.starts_with("extern \"C\" __global__"));
    declared.filter_map(|line| line.split_once("(const __grid_constant__")?.0.rsplit(' ').next())
}

/// The whole text of a file, headers in it.
fn source(file: &str) -> Option<String> {
    let (_, body) = FILES.iter().find(|(name, _)| *name == file)?;
    let parts = HEADERS.iter().chain([body]);
    let lines = parts.flat_map(|text| text.lines()).filter(|line| !line.starts_with("#include") && !line.starts_with("#pragma once"));
    Some(lines.flat_map(|line| [line, "\n"]).collect())
}

fn compiled(file: &'static str, (major, minor): (i32, i32)) -> Result<Vec<u8>, Error> {
    let source = source(file).ok_or_else(|| Error::Unsupported(format!("what is in {file}.cu, a file that does not exist")))?;
    libraries::compiler()?;
    let exact = if (major, minor) == (9, 0) { "a" } else { "" };
    let architecture = format!("--gpu-architecture=sm_{major}{minor}{exact}");
    let options: Vec<&str> = OPTIONS.into_iter().chain([architecture.as_str()]).collect();
    let kept = kept(&source, &options);
    if let Some(image) = kept.as_ref().and_then(|path| fs::read(path).ok()) {
        return Ok(image);
    }
    let image = compile(file, &source, &options)?;
    // A cache that cannot be written costs time at the next start and nothing else.
    if let Some(path) = kept {
        let _ = keep(&path, &image);
    }
    Ok(image)
}

/// Where a result is kept: a name made of the source, the options and the compiler's version.
fn kept(source: &str, options: &[&str]) -> Option<PathBuf> {
    let (mut major, mut minor) = (0, 0);
    // SAFETY: it writes two numbers, whose places are given.
    #[expect(unsafe_code, reason = "the library takes addresses")]
    unsafe { sys::nvrtcVersion(&raw mut major, &raw mut minor) }.result().ok()?;
    let mut digest = Sha256::new();
    for part in options.iter().chain([&source, &format!("{major}.{minor}").as_str()]) {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    let name = hexadecimal(&digest.finalize());
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(base.join("fv").join("kernels").join(format!("{name}.cubin")))
}

/// Two digits a byte.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Written beside its place and moved there, so that nobody reads half of it.
fn keep(path: &std::path::Path, image: &[u8]) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension(format!("{}.part", std::process::id()));
    fs::write(&beside, image)?;
    fs::rename(&beside, path)
}

/// A program of the run-time compiler.
struct Compilation(sys::nvrtcProgram);

impl Drop for Compilation {
    fn drop(&mut self) {
        // SAFETY: it was made by `create_program` and is destroyed here alone.
        #[expect(unsafe_code, reason = "the library's programs have no owner but this")]
        let _ = unsafe { result::destroy_program(self.0) };
    }
}

fn compile(file: &'static str, source: &str, options: &[&str]) -> Result<Vec<u8>, Error> {
    let refused = |log: String| Error::Compile { file, log };
    let source = CString::new(source).map_err(|error| refused(error.to_string()))?;
    let program = Compilation(result::create_program(&source, None).map_err(|error| refused(error.to_string()))?);
    // SAFETY: the program is alive.
    #[expect(unsafe_code, reason = "the library takes a program")]
    let answer = unsafe { result::compile_program(program.0, options) };
    answer.map_err(|error| refused(log(&program).unwrap_or_else(|| error.to_string())))?;
    image(&program).map_err(|error| refused(error.to_string()))
}

/// What the compiler says.
fn log(program: &Compilation) -> Option<String> {
    // SAFETY: the program is alive.
    #[expect(unsafe_code, reason = "the library takes a program")]
    let text = unsafe { result::get_program_log(program.0) }.ok()?;
    let bytes: Vec<u8> = text.iter().map(|letter| letter.to_ne_bytes()[0]).collect();
    Some(CStr::from_bytes_until_nul(&bytes).ok()?.to_string_lossy().into_owned())
}

/// The machine code.
fn image(program: &Compilation) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0;
    // SAFETY: the program is alive, and the size has a place.
    #[expect(unsafe_code, reason = "the library takes addresses")]
    unsafe { sys::nvrtcGetCUBINSize(program.0, &raw mut size) }.result()?;
    let mut image = vec![0_u8; size];
    // SAFETY: there is room for all of it.
    #[expect(unsafe_code, reason = "the library takes addresses")]
    unsafe { sys::nvrtcGetCUBIN(program.0, image.as_mut_ptr().cast()) }.result()?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_stand_alone() {
        for (file, _) in FILES {
            let text = source(file).expect("it is a file");
            assert!(!text.contains("#include"), "{file} includes what the run-time compiler may not find");
            assert!(text.contains("struct Matrix {") && text.contains("__global__"), "{file}");
        }
        assert!(source("nothing").is_none());
    }

    #[test]
    fn kernels_are_found_by_name() {
        let found: Vec<&str> = FILES.iter().flat_map(|(_, text)| names(text)).collect();
        let declared: usize = FILES.iter().map(|(_, text)| text.matches("__global__").count()).sum();
        assert_eq!(found.len(), declared, "{found:?}");
        assert!(found.contains(&"attention") && found.contains(&"pointwise_eight"), "{found:?}");
        assert!(found.iter().all(|name| name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')), "{found:?}");
    }

    #[test]
    fn all_files_are_compiled() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");
        let names =
            fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"));
        let mut names: Vec<String> = names.filter_map(|name| Some(name.strip_suffix(".cu")?.to_owned())).collect();
        names.sort();
        assert_eq!(names, FILES.map(|(name, _)| name));
    }
}
