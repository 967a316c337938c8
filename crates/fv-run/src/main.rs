//! `fv-run`: every command that looks at this machine or uses it.

mod cli;
mod commands;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
