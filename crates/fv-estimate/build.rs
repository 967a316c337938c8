//! Digests the source text of the rules, so that answers kept in files can name what computed them: rules change between
//! releases of one version.

use std::{env, fs, io, path::Path};

fn main() -> io::Result<()> {
    // Cargo runs this in the crate's folder, and sets the variable.
    let root = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default();
    let root = Path::new(&root);
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for folder in ["src", "../fv-spec/src"] {
        println!("cargo::rerun-if-changed={folder}");
        add(&root.join(folder), &mut hash)?;
    }
    println!("cargo::rustc-env=FV_ESTIMATE_SOURCES={hash:016x}");
    Ok(())
}

/// FNV-1a over the files below a folder, in order of their names.
fn add(path: &Path, hash: &mut u64) -> io::Result<()> {
    if path.is_dir() {
        let mut inside = fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
        inside.sort();
        return inside.iter().try_for_each(|path| add(path, hash));
    }
    for byte in fs::read(path)? {
        *hash = (*hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    Ok(())
}
