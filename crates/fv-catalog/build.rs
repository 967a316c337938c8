//! Says what to do where the calculator is to be embedded and was not built.

use std::{env, path::Path};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_PAGE").is_none() {
        return;
    }
    let dist = Path::new("../../web/apps/calculator/dist");
    println!("cargo::rerun-if-changed={}", dist.display());
    if !dist.join("index.html").is_file() {
        println!("cargo::error=the feature `page` embeds web/apps/calculator/dist, which is not there: run `make web` first");
    }
}
