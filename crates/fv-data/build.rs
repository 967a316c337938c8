//! Lists the compiled models, so that every one of them is embedded.

use std::{env, fmt::Write as _, fs, path::Path};

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=data");
    // Asked when this runs and not when it is compiled: the checkout may have moved in between.
    let data = Path::new(&env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default()).join("data/models");
    let mut files: Vec<_> = fs::read_dir(&data)?.collect::<Result<Vec<_>, _>>()?.into_iter().map(|entry| entry.path()).collect();
    files.sort();
    let mut list = String::from("&[\n");
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "json")) {
        let name = file.file_name().unwrap_or_default().display();
        let _ = writeln!(list, "    (\"models/{name}\", include_str!({:?})),", file.display().to_string());
    }
    list.push(']');
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("models.rs"), list)
}
