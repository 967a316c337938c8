//! Plans of a table of machines and requests: a row of text in, the same row with every decision out. The columns and the way numbers
//! are written are those of the vectors that the policy is compared with.

use fv_spec::plan::{Architecture, OperatingSystem, Precision};

use super::constants::{BLOCK, GIB};
use super::decide::{Decided, Short, decide};
use super::facts::{Facts, MOST};
use super::geometry::{self, LEAST_FRAMES, check_side};
use super::question::Planner;
use crate::error::{InputError, quoted};
use crate::planner::columns::{places, word};
use crate::resolve::legal::MAX_FRAMES;
use crate::resolve::scaled;

/// What a row says.
pub const GIVEN: [&str; 9] = ["system", "arch", "precision", "width", "height", "frames", "tokens", "free_vram_gib", "free_ram_gib"];
/// The one of them that may be missing.
const OPTIONAL: &str = "tokens";
/// What is written after it.
pub const DECIDED: [&str; 19] = [
    "status",
    "gpu_budget",
    "ram_budget",
    "head",
    "resident",
    "prefetch",
    "cpu_outputs",
    "residual_offload",
    "stream",
    "pin_gb",
    "window_batch",
    "vae_offload",
    "vae_resident",
    "vae_stream_out",
    "vae_stream_w",
    "vae_pin",
    "vae_prefetch",
    "gpu_short",
    "ram_short",
];

/// Where the columns of [`GIVEN`] stand in a table; `tokens` may be missing, as it follows from the others, and so may the columns of
/// [`DECIDED`], which are written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns([Option<usize>; 9]);

impl Columns {
    /// Reads a header.
    ///
    /// # Errors
    /// A column that is missing, that is there twice, or that means nothing.
    pub fn read<'a>(header: impl IntoIterator<Item = &'a str>) -> Result<Self, Vec<InputError>> {
        places(&GIVEN, &[OPTIONAL], &DECIDED, header).map(Self)
    }
}

/// A row of the table: what was given as it was written, and what was decided.
pub type Row = [String; GIVEN.len() + DECIDED.len()];

/// Plans one row.
///
/// # Errors
/// Everything that is wrong with the row.
pub fn row(planner: &Planner, columns: &Columns, fields: &[&str]) -> Result<Row, Vec<InputError>> {
    let mut errors = Vec::new();
    let given: [&str; 9] = columns.0.map(|place| place.and_then(|at| fields.get(at)).copied().unwrap_or("").trim());
    let facts = facts(planner, &given, &mut errors);
    let Some(facts) = facts.filter(|_| errors.is_empty()) else { return Err(errors) };
    let mut row: Row = Default::default();
    for (cell, text) in row.iter_mut().zip(given) {
        text.clone_into(cell);
    }
    row[6] = facts.canvas.video_tokens.to_string();
    let decided = match decide(&facts) {
        Ok(decided) => planned(&decided),
        Err(short) => refused(&short),
    };
    for (cell, text) in row.iter_mut().skip(GIVEN.len()).zip(decided) {
        *cell = text;
    }
    Ok(row)
}

/// A row's machine and request. Every attention implementation counts as available.
fn facts(planner: &Planner, given: &[&str; 9], errors: &mut Vec<InputError>) -> Option<Facts> {
    let [system, arch, precision, width, height, frames, tokens, free_vram, free_host] = *given;
    let os = [OperatingSystem::Linux, OperatingSystem::Windows];
    let os = word("system", system, os.map(|os| (os, os.word())), errors);
    let gpus = Architecture::ALL.iter().filter(|gpu| **gpu != Architecture::Apple).map(|gpu| (*gpu, gpu.word()));
    let architecture = word("arch", arch, gpus, errors);
    let formats = [Precision::Int8, Precision::Fp8];
    let precision = word("precision", precision, formats.map(|format| (format, format.word())), errors);
    let mut whole = |name: &str, text: &str| {
        let value = text.parse::<u32>().ok();
        if value.is_none() {
            errors.push(InputError::new("invalid-value", format!("{name}: found {}, allowed: a whole number", quoted(text))));
        }
        value
    };
    let [width, height, frames] = [("width", width), ("height", height), ("frames", frames)].map(|(name, text)| whole(name, text));
    for (name, side) in [("width", width), ("height", height)] {
        if let Some(side) = side {
            check_side(name, side, errors);
        }
    }
    let aligned = frames.and_then(geometry::legal_frames);
    if let (Some(found), None) = (frames, aligned) {
        let message = format!("frames: found {found}, allowed: from {LEAST_FRAMES} to {MAX_FRAMES}");
        errors.push(InputError::new("invalid-frames", message));
    }
    let mut memory = |name: &str, text: &str| {
        let unit = u64::try_from(GIB).unwrap_or(0);
        let bytes = scaled(text, unit).and_then(|bytes| i64::try_from(bytes).ok()).filter(|bytes| (1..=MOST).contains(bytes));
        if bytes.is_none() {
            let message = format!("{name}: found {}, allowed: a number of GiB above 0 and at most 1000000", quoted(text));
            errors.push(InputError::new("invalid-capacity", message));
        }
        bytes
    };
    let [free_vram, free_host] = [("free_vram_gib", free_vram), ("free_ram_gib", free_host)].map(|(name, text)| memory(name, text));
    if !errors.is_empty() {
        return None;
    }
    let canvas = geometry::canvas(width?, height?, aligned?);
    if !tokens.is_empty() && tokens.parse() != Ok(canvas.video_tokens) {
        let message = format!("tokens: found {}, but the size and the frames make {}", quoted(tokens), canvas.video_tokens);
        errors.push(InputError::new("conflict", message));
    }
    let rows = i64::try_from(canvas.video_tokens).ok()?;
    let (free_vram, free_host) = (free_vram?, free_host?);
    Some(Facts {
        os: os?,
        architecture: architecture?,
        precision: precision?,
        sage_only: true,
        free_vram,
        free_host,
        total_host: free_host,
        vram_reserve: None,
        relaxed: false,
        host_reserve: None,
        demonstrated_host: None,
        capacity_trial: false,
        canvas,
        rows,
        workspace: 0,
        block: BLOCK,
        shape: planner.shape(),
    })
}

fn planned(decided: &Decided) -> [String; DECIDED.len()] {
    let Decided { vram, host, way, decoder, .. } = decided;
    let truth = |value: bool| if value { "True" } else { "False" }.to_owned();
    [
        "ok".to_owned(),
        rounded(vram.budget, GIB),
        rounded(host.budget, GIB),
        way.group.to_string(),
        decided.resident.to_string(),
        truth(decided.second_slot),
        truth(way.outputs_on_host),
        truth(way.residual_on_host),
        truth(decided.disk),
        rounded(decided.pin, 1_000_000_000),
        decided.window_batch.to_string(),
        truth(decoder.offload),
        // Nothing is counted where nothing is copied.
        if decoder.offload { decoder.resident.to_string() } else { "0".to_owned() },
        truth(decoder.stream_output),
        truth(decoder.disk),
        truth(decoder.pin_weights),
        truth(decoder.second_slot),
        String::new(),
        String::new(),
    ]
}

fn refused(short: &Short) -> [String; DECIDED.len()] {
    let mut cells: [String; DECIDED.len()] = Default::default();
    "rejected".clone_into(&mut cells[0]);
    cells[17] = rounded(short.vram_short(), GIB);
    // Where no way fitted, host memory was found to suffice before, and the vectors say so with a whole number.
    cells[18] = if short.estimated { "0".to_owned() } else { rounded(short.host_short(), GIB) };
    cells
}

/// `value` / `unit` to the nearest thousandth, with one decimal at least: as the vectors are written, through the nearest double.
#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn rounded(value: i64, unit: i64) -> String {
    let mut text = format!("{:.3}", value as f64 / unit as f64);
    while text.ends_with('0') && !text.ends_with(".0") {
        text.pop();
    }
    text
}
