//! `sweep`: every combination of models, devices, sizes and settings, a row each.
//!
//! Rows are in a fixed order, so a file that was interrupted is continued where it ends: what is not a whole row is cut off,
//! and its last row is estimated anew and compared. What the sweep is, stands in a file beside it.

use std::{
    fs,
    io::{self, BufRead, BufReader, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use clap::Args;
use fv_catalog::{output::Format, write, yaml::short};
use fv_data::Store;
use fv_estimate::{
    budget,
    device::DeviceSpec,
    error::{InputError, quoted},
    family,
    sweep::{Axes, Plan, Range, Varied},
};
use fv_spec::{
    compiled::{Example, Model, RulesFile},
    questions::SweepRow,
};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::ask::{Devices, Limits, RestArgs, RuntimeName, Settings, model, models, refused, setting};
use super::questions::deployments;
use crate::cli::{Context, Done, Stop};

/// Rows and requests that are worked on at once, at most: what bounds memory, and how much work an interruption costs.
const ROWS: u64 = 1 << 16;
const REQUESTS: u64 = 512;

/// `sweep`.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// Models, by id or checkpoint; without any, all that have rules
    #[arg(value_name = "MODEL")]
    models: Vec<String>,
    /// Only these deployments: separated by commas, or given several times
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    deployment: Vec<String>,
    /// Only deployments with one of these runtimes: separated by commas, or given several times
    #[arg(long, value_enum, value_delimiter = ',')]
    runtime: Vec<RuntimeName>,
    #[command(flatten)]
    devices: Devices,
    #[command(flatten)]
    limits: Limits,
    /// Sizes such as 832x480,1280x720
    #[arg(long, value_name = "WIDTHxHEIGHT", value_delimiter = ',', value_parser = size, help_heading = "Request")]
    size: Vec<[u32; 2]>,
    /// Frames, such as 81 or 17..161; a range holds the legal counts, and with /STEP exactly those
    #[arg(long, value_name = "A..B[/STEP]", value_delimiter = ',', value_parser = range, help_heading = "Request", allow_negative_numbers = true)]
    frames: Vec<Range>,
    /// Videos generated together
    #[arg(long, value_name = "A..B[/STEP]", value_delimiter = ',', value_parser = range, help_heading = "Request", allow_negative_numbers = true)]
    batch: Vec<Range>,
    #[command(flatten)]
    rest: RestArgs,
    /// A setting that takes each of these values in turn; may be given several times
    #[arg(long, value_name = "KEY=VALUE,VALUE", value_parser = varied, help_heading = "Settings")]
    vary: Vec<(String, Vec<Value>)>,
    #[command(flatten)]
    settings: Settings,
    /// The file of rows; without it they go to the output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Continue a file that was interrupted
    #[arg(long, requires = "out")]
    resume: bool,
    /// Replace a file that is there
    #[arg(long, requires = "out", conflicts_with = "resume")]
    force: bool,
    /// More points than this are refused
    #[arg(long, value_name = "N", default_value_t = 1_000_000_000, allow_negative_numbers = true)]
    limit: u64,
}

/// That a setting that varies is neither set for all points nor varied again.
fn varied_once(vary: &[(String, Vec<Value>)], settings: &Settings) -> Result<(), Stop> {
    let plain = |name: &str| name.strip_prefix("generator.").unwrap_or(name).to_owned();
    for (at, (key, _)) in vary.iter().enumerate() {
        if settings.names().any(|name| plain(name) == plain(key)) {
            return Err(Stop::Usage(format!("{} is set for all points with --set, and varied with --vary: leave out one", short(key))));
        }
        if vary[..at].iter().any(|(known, _)| plain(known) == plain(key)) {
            return Err(Stop::Usage(format!("--vary {} is given twice: put its values into one, separated by commas", short(key))));
        }
    }
    Ok(())
}

fn size(text: &str) -> Result<[u32; 2], String> {
    let parsed = text.split_once(['x', 'X']).and_then(|(width, height)| Some([height.trim().parse().ok()?, width.trim().parse().ok()?]));
    parsed.ok_or_else(|| format!("found {}, allowed: a width, `x` and a height in whole pixels, such as 832x480", quoted(text)))
}

/// Whole numbers from one to another.
fn range(text: &str) -> Result<Range, String> {
    let wrong = |why: &str| {
        format!(
            "found {}{why}, allowed: a whole number or A..B or A..B/STEP, upwards from 1, such as 81, 17..161 or 17..161/16",
            quoted(text)
        )
    };
    let number = |part: &str| match part.trim() {
        "" => Err(wrong(", of which an end is missing")),
        part if part == text.trim() => part.parse::<u32>().map_err(|_| wrong("")),
        part => part.parse::<u32>().map_err(|_| wrong(&format!(", in which {} is no whole number up to {}", quoted(part), u32::MAX))),
    };
    let Some((first, rest)) = text.split_once("..") else {
        let only = number(text)?;
        return Ok(Range { first: only, last: only, step: Some(1) });
    };
    let (last, step) = rest.split_once('/').map_or((rest, None), |(last, step)| (last, Some(step)));
    let (first, last, step) = (number(first)?, number(last)?, step.map(number).transpose()?);
    if first > last {
        return Err(wrong(&format!(", which is reversed and so holds nothing ({last}..{first} goes upwards)")));
    }
    if step == Some(0) {
        return Err(wrong(", whose step of 0 goes nowhere"));
    }
    Ok(Range { first, last, step })
}

/// A name and its values: separated by commas, outside of brackets and quotes.
fn varied(text: &str) -> Result<(String, Vec<Value>), String> {
    let shape = || "a name, `=` and values separated by commas".to_owned();
    let (key, values) = text.split_once('=').ok_or_else(shape)?;
    let mut parts = vec![String::new()];
    let (mut depth, mut quoted) = (0_u32, false);
    for c in values.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        match parts.last_mut() {
            Some(part) if c != ',' || depth > 0 || quoted => part.push(c),
            _ => parts.push(String::new()),
        }
    }
    if key.trim().is_empty() || parts.iter().any(|part| part.trim().is_empty()) || text.contains(char::is_control) {
        return Err(shape());
    }
    let values = parts.iter().map(|part| setting(&format!("{key}={part}")).map(|(_, value)| value)).collect::<Result<Vec<_>, _>>()?;
    Ok((key.trim().to_owned(), values))
}

/// All combinations of the values.
fn combinations(vary: &[(String, Vec<Value>)]) -> Vec<Varied> {
    vary.iter().fold(vec![Vec::new()], |all, (key, values)| {
        all.iter()
            .flat_map(|one| values.iter().map(move |value| one.iter().cloned().chain([(key.clone(), value.clone())]).collect()))
            .collect()
    })
}

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Csv,
    Jsonl,
}

impl Shape {
    fn of(arguments: &SweepArgs, format: Format) -> Result<Self, Stop> {
        let named = arguments.out.as_ref().and_then(|path| path.extension()).is_some_and(|end| end == "jsonl" || end == "ndjson");
        match format {
            Format::Jsonl => Ok(Self::Jsonl),
            Format::Human if named => Ok(Self::Jsonl),
            Format::Csv | Format::Human => Ok(Self::Csv),
            _ => Err(Stop::Usage("a sweep is written as `--format csv` or `--format jsonl`".into())),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
        }
    }

    /// What stands before the rows.
    fn header(self) -> String {
        match self {
            Self::Csv => COLUMNS.join(",") + "\n",
            Self::Jsonl => String::new(),
        }
    }

    fn row(self, row: &SweepRow, out: &mut Vec<u8>) {
        match self {
            Self::Csv => csv(row, out),
            // Wire types serialise into memory.
            Self::Jsonl => serde_json::to_writer(&mut *out, row).unwrap_or_default(),
        }
        if self == Self::Jsonl {
            out.push(b'\n');
        }
    }
}

const COLUMNS: [&str; 17] = [
    "model",
    "deployment",
    "hardware",
    "width",
    "height",
    "num_frames",
    "batch",
    "settings",
    "status",
    "load_bytes",
    "encoding_bytes",
    "denoising_bytes",
    "decoding_bytes",
    "host_bytes",
    "budget_bytes",
    "margin_bytes",
    "reason",
];

fn csv(row: &SweepRow, out: &mut Vec<u8>) {
    let text = |out: &mut Vec<u8>, text: &str| {
        if text.contains([',', '"', '\n', '\r']) {
            out.push(b'"');
            out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
            out.push(b'"');
        } else {
            out.extend_from_slice(text.as_bytes());
        }
        out.push(b',');
    };
    // Memory takes every write.
    let number = |out: &mut Vec<u8>, number: Option<i128>| {
        let _ = number.map(|number| write!(out, "{number}"));
        out.push(b',');
    };
    for field in [&row.model, &row.deployment, &row.hardware] {
        text(out, field);
    }
    for field in [row.width, row.height, row.num_frames, row.batch] {
        number(out, Some(field.into()));
    }
    text(out, &row.settings);
    text(out, word(row));
    for field in [row.load_bytes, row.encoding_bytes, row.denoising_bytes, row.decoding_bytes, row.host_bytes, row.budget_bytes] {
        number(out, field.map(i128::from));
    }
    number(out, row.margin_bytes.map(i128::from));
    text(out, row.reason.as_deref().unwrap_or_default());
    if let Some(last) = out.last_mut() {
        *last = b'\n';
    }
}

fn word(row: &SweepRow) -> &'static str {
    use fv_spec::estimate::Verdict;
    match row.status {
        Verdict::Fits => "fits",
        Verdict::Uncertain => "uncertain",
        Verdict::DoesNotFit => "does_not_fit",
        Verdict::Unknown => "unknown",
    }
}

pub(crate) fn sweep(context: &mut Context, arguments: &SweepArgs) -> Done {
    let shape = Shape::of(arguments, context.global.format)?;
    let store = context.store()?;
    let named = named(&store, &arguments.models)?;
    let asked = deployments(&named, &arguments.deployment, &arguments.runtime)?;
    let mut errors = Vec::new();
    arguments.settings.sound()?;
    varied_once(&arguments.vary, &arguments.settings)?;
    let chosen = arguments.devices.find(&store, &mut errors)?;
    let limits = arguments.limits.asked(&mut errors);
    if !errors.is_empty() {
        return Err(refused(errors));
    }
    let rules = store.rules()?;
    let axes = Axes {
        sizes: arguments.size.clone(),
        frames: arguments.frames.clone(),
        batches: arguments.batch.clone(),
        settings: combinations(&arguments.vary),
    };
    let (request, overrides) = (arguments.rest.request(), arguments.settings.overrides(false));
    let plan = Plan::new(&asked, &chosen, &limits, &rules, &request, &overrides, &axes).map_err(refused)?;
    let points = plan.points();
    if points > u128::from(arguments.limit) {
        return Err(Stop::Usage(format!(
            "{} points are more than the limit of {}: narrow the ranges, or raise --limit",
            grouped(points),
            grouped(arguments.limit.into())
        )));
    }
    if points == 0 {
        return Err(Stop::Usage("nothing to sweep: no model takes these sizes, frames and settings".into()));
    }
    // A file that cannot be written or continued is said first.
    let mut file = None;
    if let Some(path) = &arguments.out {
        let parameters = parameters(&asked, &chosen, &limits, &rules, arguments, shape);
        file = Some(if arguments.resume {
            resumed(path, &parameters, &plan, shape)?
        } else {
            begun(path, arguments.force, &parameters, shape)?
        });
    }
    for note in &plan.notes {
        writeln!(context.err, "note: {note}")?;
    }
    let count = |number: u128, word: &str| format!("{} {word}{}", grouped(number), if number == 1 { "" } else { "s" });
    let (requests, devices) = (count(plan.requests(), "request"), count(chosen.len() as u128, "device"));
    writeln!(context.err, "{}: {requests} on {devices}", count(points, "point"))?;
    let Some((mut file, done)) = file else {
        context.out.write_all(shape.header().as_bytes())?;
        return rows(&plan, shape, 0, &mut context.out);
    };
    if done > 0 {
        let left = points - u128::from(done);
        writeln!(context.err, "{} of them are there already, {} are left", grouped(done.into()), grouped(left))?;
    }
    rows(&plan, shape, done, &mut file)
}

/// The models that are meant.
fn named(store: &Store, names: &[String]) -> Result<Vec<Model>, Stop> {
    let mut found: Vec<Model> = Vec::new();
    if names.is_empty() {
        found = models(store)?;
        found.retain(|model| family::find(&model.memory_rules).is_some());
    }
    for name in names {
        let model = model(store, name.trim())?;
        if !found.iter().any(|known| known.id == model.id) {
            found.push(model);
        }
    }
    if found.is_empty() { Err(Stop::Usage("no model of this catalog has rules".into())) } else { Ok(found) }
}

/// Digits in groups of three.
fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writes all rows from number `done` on.
fn rows(plan: &Plan<'_>, shape: Shape, done: u64, out: &mut dyn Write) -> Done {
    let devices = plan.devices() as u64;
    // The plan's points are below the limit, which is 64 bits wide.
    let requests = u64::try_from(plan.requests()).unwrap_or(u64::MAX);
    let points = requests.saturating_mul(devices);
    let bar = ProgressBar::new(points);
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len}, {per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_position(done);
    let at_once = (ROWS / devices.max(1)).clamp(1, REQUESTS);
    let mut skip = usize::try_from(done % devices.max(1)).unwrap_or(0);
    let mut next = done / devices.max(1);
    while next < requests {
        let end = requests.min(next + at_once);
        let chunk =
            (next..end).into_par_iter().map(|request| text(plan, shape, request)).collect::<Result<Vec<_>, _>>().map_err(refused)?;
        for text in chunk {
            // A request that was begun: its first rows are there.
            let from = std::mem::take(&mut skip);
            let start =
                text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1).nth(from.wrapping_sub(1)).unwrap_or(0);
            out.write_all(&text[start..])?;
        }
        out.flush()?;
        bar.set_position(end * devices);
        next = end;
    }
    bar.finish_and_clear();
    Ok(())
}

/// The rows of one request as text.
fn text(plan: &Plan<'_>, shape: Shape, request: u64) -> Result<Vec<u8>, Vec<InputError>> {
    let mut text = Vec::with_capacity(plan.devices() * 192);
    plan.rows(request, |row| shape.row(row, &mut text))?;
    Ok(text)
}

/// The file that says what a sweep is.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".sweep.json");
    PathBuf::from(name)
}

/// Everything that the rows depend on.
fn parameters(
    asked: &[(&Model, &Example)],
    devices: &[DeviceSpec],
    limits: &budget::Asked,
    rules: &RulesFile,
    arguments: &SweepArgs,
    shape: Shape,
) -> Map<String, Value> {
    let request = arguments.rest.request();
    let overrides = arguments.settings.overrides(false);
    let ranges = |ranges: &[Range]| -> Value {
        ranges.iter().map(|Range { first, last, step }| json!({ "first": first, "last": last, "step": step })).collect()
    };
    let facts: Vec<String> = asked.iter().map(|(model, _)| compact(model)).chain([compact(rules), format!("{devices:?}")]).collect();
    let value = json!({
        "version": fv_spec::estimate::VERSION,
        "program": env!("CARGO_PKG_VERSION"),
        "format": shape.word(),
        "deployments": asked.iter().map(|(model, example)| format!("{} {}", model.id, example.id)).collect::<Vec<_>>(),
        "hardware": devices.iter().map(|device| device.id.as_str()).collect::<Vec<_>>(),
        "sizes": arguments.size.iter().map(|[height, width]| format!("{width}x{height}")).collect::<Vec<_>>(),
        "frames": ranges(&arguments.frames),
        "batches": ranges(&arguments.batch),
        "vary": arguments.vary.iter().map(|(key, values)| json!({ "key": key, "values": values })).collect::<Vec<_>>(),
        "request": request,
        "set": overrides.set.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect::<Vec<_>>(),
        // A variable may hold what nobody should read.
        "env": digest(overrides.env.iter().flat_map(|(key, value)| [key.as_str(), value])),
        "limits": format!("{limits:?}"),
        "facts": digest(facts.iter().map(String::as_str)),
    });
    value.as_object().cloned().unwrap_or_default()
}

fn compact(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// FNV-1a over texts, each ended: the same on every machine and in every release.
fn digest<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let bytes = texts.flat_map(|text| text.bytes().chain([0]));
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

fn named_error(path: &Path, error: &io::Error) -> Stop {
    Stop::Usage(format!("{}: {error}", path.display()))
}

/// A new file with its header.
fn begun(path: &Path, force: bool, parameters: &Map<String, Value>, shape: Shape) -> Result<(fs::File, u64), Stop> {
    if path.exists() && !force {
        return Err(Stop::Usage(format!("{}: there already; --resume continues it, --force replaces it", path.display())));
    }
    let mut file = fs::File::create(path).map_err(|error| named_error(path, &error))?;
    write::replace(&beside(path), &write::json(parameters)).map_err(|error| named_error(&beside(path), &error))?;
    file.write_all(shape.header().as_bytes())?;
    Ok((file, 0))
}

/// A file that was interrupted, ready for its next row, and how many rows it holds.
fn resumed(path: &Path, parameters: &Map<String, Value>, plan: &Plan<'_>, shape: Shape) -> Result<(fs::File, u64), Stop> {
    let refuse = |why: String| Stop::Usage(format!("{}: {why}", path.display()));
    let note = beside(path);
    let known = fs::read_to_string(&note).map_err(|error| {
        refuse(format!("cannot be continued: {} says what the sweep is, and it cannot be read: {error}", note.display()))
    })?;
    let known: Map<String, Value> = serde_json::from_str(&known).map_err(|error| refuse(format!("{}: {error}", note.display())))?;
    let differs: Vec<&str> = parameters.iter().filter(|(key, value)| known.get(*key) != Some(value)).map(|(key, _)| key.as_str()).collect();
    if !differs.is_empty() {
        let words = differs.iter().map(|key| if *key == "facts" { "facts of the catalog" } else { key }).collect::<Vec<_>>().join(", ");
        return Err(refuse(format!("begun with other {words}; give what {} says, or another --out", note.display())));
    }
    let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
    let mut file = file.map_err(|error| named_error(path, &error))?;
    let header = shape.header();
    let mut reader = BufReader::with_capacity(1 << 20, &file);
    let mut first = Vec::new();
    if !header.is_empty() {
        reader.read_until(b'\n', &mut first)?;
    }
    if first != header.as_bytes() {
        if !header.as_bytes().starts_with(&first) {
            return Err(refuse("its first line is not the header of a sweep; nothing was changed".to_owned()));
        }
        // Interrupted within the header.
        file.set_len(0)?;
        file.seek(SeekFrom::Start(0))?;
        file.write_all(header.as_bytes())?;
        return Ok((file, 0));
    }
    // Rows hold no line breaks: control characters are refused in what they are made of.
    let (mut rows, mut whole, mut line, mut last) = (0_u64, header.len() as u64, Vec::new(), Vec::new());
    loop {
        line.clear();
        let read = reader.read_until(b'\n', &mut line)?;
        if line.last() != Some(&b'\n') {
            break;
        }
        rows += 1;
        whole += read as u64;
        std::mem::swap(&mut last, &mut line);
    }
    if u128::from(rows) > plan.points() {
        return Err(refuse(format!("holds {} rows, more than the sweep has; nothing was changed", grouped(rows.into()))));
    }
    if let Some(number) = rows.checked_sub(1) {
        let devices = plan.devices() as u64;
        let expected = text(plan, shape, number / devices).map_err(refused)?;
        let expected = usize::try_from(number % devices).ok().and_then(|at| expected.split_inclusive(|byte| *byte == b'\n').nth(at));
        if expected != Some(last.as_slice()) {
            return Err(refuse(format!("row {} is not what this sweep gives there; nothing was changed", grouped(rows.into()))));
        }
    }
    file.set_len(whole)?;
    file.seek(SeekFrom::Start(whole))?;
    Ok((file, rows))
}
