//! `fv-catalog`: every command of the catalog.

mod cli;
mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
