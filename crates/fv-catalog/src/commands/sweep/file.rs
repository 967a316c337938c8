//! The file of rows. Rows are in a fixed order, so one that was interrupted is continued where it ends: what is not a whole row
//! is cut off, and its last row is estimated anew and compared.
//!
//! `FILE.sweep.json` beside it says what the sweep is. A Parquet file appears at the end, in one step; until then its rows are
//! lines of `FILE.sweep.csv`.

use std::{
    fs::{self, TryLockError},
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use fv_catalog::write;
use fv_estimate::{
    budget,
    device::DeviceSpec,
    render::grouped,
    sweep::{Plan, Range, Reuse},
};
use fv_spec::{
    compiled::{Example, Model, RulesFile},
    questions::SweepRow,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::shape::{Shape, lines};
use super::summary::Tally;
use super::{Interruption, SweepArgs, piece};
use crate::cli::Stop;

/// Everything that the rows depend on.
pub(super) struct Asked<'a> {
    pub(super) deployments: &'a [(&'a Model, &'a Example)],
    pub(super) devices: &'a [DeviceSpec],
    pub(super) limits: &'a budget::Asked,
    pub(super) rules: &'a RulesFile,
    pub(super) arguments: &'a SweepArgs,
    pub(super) vary: &'a [(String, Vec<Value>)],
    pub(super) shape: Shape,
}

/// The file of rows while it is written.
pub(super) struct Target {
    /// What was asked for.
    out: PathBuf,
    /// Where the rows go; the same but for Parquet.
    rows: PathBuf,
    /// `None` where a Parquet file is complete.
    file: Option<fs::File>,
    /// How many rows it holds.
    pub(super) done: u64,
    tally: Tally,
    parameters: Map<String, Value>,
}

/// A file next to another.
fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(end);
    PathBuf::from(name)
}

/// The file that says what a sweep is.
fn note_of(out: &Path) -> PathBuf {
    beside(out, ".sweep.json")
}

pub(super) fn named_error(path: &Path, error: &io::Error) -> Stop {
    Stop::Usage(format!("{}: {error}", path.display()))
}

fn refuse(path: &Path, why: impl AsRef<str>) -> Stop {
    Stop::Usage(format!("{}: {}", path.display(), why.as_ref()))
}

/// Whether a report can go to this place, said before the sweep.
pub(super) fn report_place(path: &Path, out: Option<&Path>) -> Result<(), Stop> {
    if out.is_some_and(|out| [out.to_owned(), note_of(out), rows_of(out, Shape::Parquet)].iter().any(|other| other == path)) {
        return Err(refuse(path, "a file of the sweep itself; give the report another name"));
    }
    if path.is_dir() {
        return Err(refuse(path, "a folder; give the report the name of a file"));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() { Ok(()) } else { Err(refuse(path, "its folder does not exist")) }
}

fn rows_of(out: &Path, shape: Shape) -> PathBuf {
    if shape == Shape::Parquet { beside(out, ".sweep.csv") } else { out.to_owned() }
}

/// A new file, or one that is continued.
pub(super) fn open(out: &Path, question: &Asked<'_>, plan: &Plan<'_>) -> Result<Target, Stop> {
    let rows = rows_of(out, question.shape);
    for path in [out, &rows] {
        if path.exists() && !path.is_file() {
            return Err(refuse(path, "not a plain file; without --out the rows go to the output"));
        }
    }
    let target = Target { out: out.to_owned(), rows, file: None, done: 0, tally: Tally::default(), parameters: question.parameters() };
    let arguments = question.arguments;
    // A sweep that was killed before it knew what it is holds nothing.
    let begun = note_of(out).exists() || [out, &target.rows].iter().any(|path| fs::metadata(path).is_ok_and(|file| file.len() > 0));
    if arguments.resume && begun {
        return target.resume(plan, question.shape);
    }
    let there = [out, &target.rows].into_iter().find(|path| path.exists());
    if let Some(path) = there.filter(|_| !arguments.force && !arguments.resume) {
        return Err(refuse(path, "there already; --resume continues it, --force replaces it"));
    }
    target.begin(question.shape)
}

impl Target {
    /// Opens the file of rows, for this process alone. Nothing of it is changed.
    fn lock(&self) -> Result<fs::File, Stop> {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&self.rows);
        let file = file.map_err(|error| named_error(&self.rows, &error))?;
        match file.try_lock() {
            // Some file systems know no locks.
            Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(refuse(&self.rows, "another sweep is writing it")),
        }
    }

    /// An empty file with its header.
    fn begin(mut self, shape: Shape) -> Result<Self, Stop> {
        let note = note_of(&self.out);
        let mut file = self.lock()?;
        let mut begin = || {
            // Without the note of an earlier sweep first, so that it never stands beside rows of this one.
            match fs::remove_file(&note) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            file.set_len(0)?;
            write::replace(&note, &write::json(&self.parameters))?;
            file.write_all(shape.header().as_bytes())
        };
        if let Err(error) = begin() {
            // Nothing was begun, so nothing is left; the first error is the one that matters.
            let _ = fs::remove_file(&self.rows);
            let _ = fs::remove_file(&note);
            return Err(named_error(&self.rows, &error));
        }
        self.file = Some(file);
        Ok(self)
    }

    /// A file that was interrupted, ready for its next row.
    fn resume(mut self, plan: &Plan<'_>, shape: Shape) -> Result<Self, Stop> {
        let note = note_of(&self.out);
        self.same_sweep(&note)?;
        if shape == Shape::Parquet && self.out.exists() && !self.rows.exists() {
            return self.complete_already(plan);
        }
        let mut file = self.lock()?;
        let header = shape.header();
        let mut reader = BufReader::with_capacity(1 << 20, &file);
        let mut first = Vec::new();
        reader.by_ref().take(header.len() as u64).read_to_end(&mut first)?;
        if !header.as_bytes().starts_with(&first) {
            return Err(refuse(&self.rows, "its first line is not the header of a sweep; nothing was changed"));
        }
        if first.len() < header.len() {
            // Interrupted within the header.
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(header.as_bytes())?;
            self.file = Some(file);
            return Ok(self);
        }
        let mut last = Vec::new();
        let whole = header.len() as u64 + self.read_rows(&mut reader, shape, &mut last)?;
        if u128::from(self.done) > plan.points() {
            return Err(refuse(&self.rows, format!("holds {} rows, more than the sweep has; nothing was changed", grouped(self.done))));
        }
        if let Some(number) = self.done.checked_sub(1) {
            let devices = plan.devices() as u64;
            let (expected, _) = piece(plan, shape, number / devices, number % devices, &mut Reuse::default());
            if expected.split_inclusive(|byte| *byte == b'\n').next() != Some(last.as_slice()) {
                return Err(self.not_ours());
            }
        }
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole))?;
        self.file = Some(file);
        Ok(self)
    }

    fn not_ours(&self) -> Stop {
        refuse(&self.rows, format!("row {} is not what this sweep gives there; nothing was changed", grouped(self.done)))
    }

    /// Counts whole rows. Returns their bytes, and in `last` the last of them.
    fn read_rows(&mut self, reader: &mut impl BufRead, shape: Shape, last: &mut Vec<u8>) -> Result<u64, Stop> {
        let (mut whole, mut block) = (0, Vec::new());
        loop {
            lines(reader, &mut block)?;
            let Some((_, before)) = block.split_last() else { return Ok(whole) };
            whole += block.len() as u64;
            let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            block[start..].clone_into(last);
            let count = |row: SweepRow| {
                self.done += 1;
                self.tally.add(row.status, row.reason.as_deref());
            };
            if !shape.rows(&block, count) {
                self.done += 1;
                return Err(self.not_ours());
            }
        }
    }

    /// Whether the sweep of a note is this one.
    fn same_sweep(&self, note: &Path) -> Result<(), Stop> {
        let known = fs::read_to_string(note).map_err(|error| {
            let why = format!("cannot be continued: {} says what the sweep is, and it cannot be read: {error}", note.display());
            refuse(&self.out, why)
        })?;
        let known: Map<String, Value> = serde_json::from_str(&known).map_err(|error| refuse(note, error.to_string()))?;
        let keys = self.parameters.keys().chain(known.keys().filter(|key| !self.parameters.contains_key(*key)));
        let differs: Vec<String> = keys.filter_map(|key| differs(key, known.get(key), self.parameters.get(key))).collect();
        if differs.is_empty() {
            return Ok(());
        }
        let words = differs.join(", ");
        Err(refuse(&self.out, format!("begun with other {words}; give what {} says, or another --out", note.display())))
    }

    /// Writes what is left.
    ///
    /// # Errors
    /// That it cannot be written, or that the user ended it; what is there can be continued.
    pub(super) fn complete(&mut self, plan: &Plan<'_>, shape: Shape, stop: &Interruption) -> Result<Tally, Stop> {
        let mut tally = std::mem::take(&mut self.tally);
        if let Some(file) = &mut self.file {
            let written = super::rows(plan, shape, self.done, &mut tally, file, stop).and_then(|written| file.sync_all().map(|()| written));
            let written =
                written.map_err(|error| refuse(&self.rows, format!("{error}; what is there is kept, and --resume continues it")))?;
            if u128::from(written) < plan.points() {
                let remedy = format!("; {} keeps them, and the same command with --resume continues it", self.rows.display());
                return Err(super::interrupted(written, plan.points(), &remedy));
            }
            #[cfg(feature = "parquet")]
            if shape == Shape::Parquet {
                let made = super::parquet::make(&self.rows, &self.out, &self.parameters);
                made.map_err(|error| {
                    refuse(&self.out, format!("{error}; its rows are in {}, and --resume tries again", self.rows.display()))
                })?;
                fs::remove_file(&self.rows).map_err(|error| named_error(&self.rows, &error))?;
            }
        }
        Ok(tally)
    }

    /// A Parquet file, which is whole where there is one.
    #[cfg(feature = "parquet")]
    fn complete_already(mut self, plan: &Plan<'_>) -> Result<Self, Stop> {
        let refused = |error: super::parquet::Error| refuse(&self.out, format!("{error}; nothing was changed"));
        let rows = super::parquet::read(&self.out, &self.parameters, &mut self.tally).map_err(refused)?;
        if u128::from(rows) != plan.points() {
            return Err(refuse(&self.out, format!("holds {} rows, not those of this sweep; nothing was changed", grouped(rows))));
        }
        self.done = rows;
        Ok(self)
    }

    #[cfg(not(feature = "parquet"))]
    fn complete_already(self, _: &Plan<'_>) -> Result<Self, Stop> {
        // Without the feature the shape is refused before.
        Err(refuse(&self.out, "this build reads no Parquet"))
    }
}

/// How what a note says under a key differs from what is asked.
fn differs(key: &str, known: Option<&Value>, asked: Option<&Value>) -> Option<String> {
    if known == asked {
        return None;
    }
    let sorted = |value: Option<&Value>| -> Option<Vec<String>> {
        let mut items: Vec<String> = value?.as_array()?.iter().map(Value::to_string).collect();
        items.sort_unstable();
        Some(items)
    };
    let same = sorted(known).is_some_and(|known| Some(known) == sorted(asked));
    Some(if same { format!("order of {}", in_words(key)) } else { in_words(key).to_owned() })
}

/// What a key of the note is called.
fn in_words(key: &str) -> &str {
    match key {
        "facts" => "facts of the catalog",
        "rules" => "rules (another build of this program)",
        "program" => "version of this program",
        key => key,
    }
}

impl Asked<'_> {
    /// Everything that the rows depend on, as the note has it.
    fn parameters(&self) -> Map<String, Value> {
        let Self { deployments, devices, limits, rules, arguments, vary, shape } = self;
        let overrides = arguments.settings.overrides(false);
        let ranges = |ranges: &[Range]| -> Value {
            ranges.iter().map(|Range { first, last, step }| json!({ "first": first, "last": last, "step": step })).collect()
        };
        // Whatever order they are asked for in, which stands beside it.
        let mut facts: Vec<String> = deployments.iter().map(|(model, _)| compact(model)).collect();
        facts.extend(devices.iter().map(|device| format!("{device:?}")));
        facts.push(compact(rules));
        facts.sort_unstable();
        facts.dedup();
        let value = json!({
            "version": fv_spec::estimate::VERSION,
            "program": env!("CARGO_PKG_VERSION"),
            "rules": fv_estimate::SOURCES,
            "format": shape.word(),
            "deployments": deployments.iter().map(|(model, example)| format!("{} {}", model.id, example.id)).collect::<Vec<_>>(),
            "hardware": devices.iter().map(|device| device.id.as_str()).collect::<Vec<_>>(),
            "sizes": arguments.size.iter().map(|[height, width]| format!("{width}x{height}")).collect::<Vec<_>>(),
            "frames": ranges(&arguments.frames),
            "batches": ranges(&arguments.batch),
            "vary": vary.iter().map(|(key, values)| json!({ "key": key, "values": values })).collect::<Vec<_>>(),
            "request": arguments.rest.request(),
            "set": overrides.set.iter().map(|(key, value)| json!({ "key": key, "value": value })).collect::<Vec<_>>(),
            // A variable may hold what nobody should read.
            "env": digest(overrides.env.iter().flat_map(|(key, value)| [key.as_str(), value])),
            "limits": format!("{limits:?}"),
            "facts": digest(facts.iter().map(String::as_str)),
        });
        value.as_object().cloned().unwrap_or_default()
    }
}

fn compact(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// FNV-1a over texts, each ended: the same on every machine and in every release.
fn digest<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let bytes = texts.flat_map(|text| text.bytes().chain([0]));
    format!("{:016x}", bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)))
}
