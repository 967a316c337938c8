//! One file for each group of commands.

use fv_estimate::render::Tone;

pub(crate) mod accuracy;
pub(crate) mod add_run;
pub(crate) mod ask;
pub(crate) mod build;
pub(crate) mod calibrate;
pub(crate) mod check;
pub(crate) mod docs;
pub(crate) mod estimate;
pub(crate) mod import;
pub(crate) mod inspect;
pub(crate) mod lookup;
pub(crate) mod questions;
pub(crate) mod sweep;

/// What a tone looks like on a terminal.
fn paint(tone: Tone, text: &str) -> String {
    let code = match tone {
        Tone::Plain => return text.to_owned(),
        Tone::Strong => "1",
        Tone::Quiet => "2",
        Tone::Good => "32",
        Tone::Bad => "31",
        Tone::Unsure => "33",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}
