//! Terminals: colour, how wide lines may be, completions.

use std::io::{self, IsTerminal};

use clap::ValueEnum;
use fv_estimate::render::{Text, ansi};

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal, unless `NO_COLOR` is set.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Color {
    /// Whether answers on the output stream are coloured.
    pub fn paints(self) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never,
        }
    }
}

/// An answer as bytes for the output stream.
pub fn shown(text: &Text, paints: bool) -> String {
    if paints { text.painted(ansi) } else { text.plain() }
}

/// Columns of the terminal; answers that go elsewhere do not depend on where they are asked for.
pub fn width() -> usize {
    let terminal = io::stdout().is_terminal().then(terminal_size::terminal_size).flatten();
    terminal.map_or(100, |(terminal_size::Width(columns), _)| columns.into())
}

/// The script that completes a program's arguments in a shell.
pub fn completions(mut program: clap::Command, shell: clap_complete::Shell) -> String {
    let name = program.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, &name, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    if shell != clap_complete::Shell::Bash {
        return script;
    }
    // The generator names the states of a program with a hyphen in two ways; the script then completes nothing.
    script.replace(&name.replace('-', "__subcmd__"), &name.replace('-', "__"))
}
