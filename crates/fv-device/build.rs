//! Kernels that were built ahead, as constants: `FV_KERNELS` names the folder that `make kernels` wrote. Without it none are
//! carried, and the run-time compiler makes them.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-env-changed=FV_KERNELS");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let entries = env::var_os("FV_KERNELS").map_or_else(Vec::new, |folder| built(Path::new(&folder)));
    let mut text = String::from("/// File, architecture and machine code of kernels that were built ahead.\n");
    let _ = writeln!(text, "const BUILT_AHEAD: [(&str, &str, &[u8]); {}] = [", entries.len());
    for (file, architecture, path) in entries {
        let _ = writeln!(text, "    ({file:?}, {architecture:?}, include_bytes!({path:?})),");
    }
    text.push_str("];\n");
    fs::write(out.join("kernels.rs"), text).expect("OUT_DIR can be written");
}

/// `attention.sm_90a.cubin` and so on, if they were built from the sources that are here.
fn built(folder: &Path) -> Vec<(String, String, String)> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir("kernels").expect("the folder of sources").flatten() {
        let (source, copy) = (entry.path(), folder.join("source").join(entry.file_name()));
        let same = fs::read(&copy).is_ok_and(|copy| fs::read(&source).is_ok_and(|source| source == copy));
        assert!(same, "{} was built from another {}: run `make kernels`", folder.display(), source.display());
    }
    let names = fs::read_dir(folder).expect("FV_KERNELS is a folder").flatten().map(|entry| entry.path());
    let mut found: Vec<_> = names
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".cubin")?.to_owned();
            let (file, architecture) = name.split_once(".sm_")?;
            Some((file.to_owned(), architecture.to_owned(), fs::canonicalize(&path).ok()?.to_str()?.to_owned()))
        })
        .collect();
    found.sort();
    found
}
