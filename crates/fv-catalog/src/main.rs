//! `fv-catalog`: every command of the catalog.

mod cli;
mod commands;

use std::process::ExitCode;

/// Reading YAML is mostly allocation: a quarter faster than with the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    cli::run()
}
