//! How rows are written, and read again where a file is continued.

use std::io::{self, BufRead, Read, Write};

use fv_catalog::output::Format;
use fv_spec::{estimate::Verdict, questions::SweepRow};

use super::SweepArgs;
use crate::cli::Stop;

/// How rows are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    Csv,
    Jsonl,
    /// Made of lines of CSV when all are there: a Parquet file has its table of contents at its end, so a part of one is nothing.
    Parquet,
}

/// The formats that this build writes, in words.
const FORMATS: &str =
    if cfg!(feature = "parquet") { "`--format csv`, `--format jsonl` or `--format parquet`" } else { "`--format csv` or `--format jsonl`" };

impl Shape {
    pub(super) fn of(arguments: &SweepArgs, format: Format) -> Result<Self, Stop> {
        let end = arguments.out.as_ref().and_then(|path| path.extension()?.to_str()).unwrap_or_default();
        let shape = match format {
            Format::Jsonl => Self::Jsonl,
            Format::Parquet => Self::Parquet,
            Format::Human if matches!(end, "jsonl" | "ndjson") => Self::Jsonl,
            Format::Human if end == "parquet" => Self::Parquet,
            Format::Csv | Format::Human => Self::Csv,
            _ => return Err(Stop::Usage(format!("a sweep is written as {FORMATS}"))),
        };
        if shape == Self::Parquet && !cfg!(feature = "parquet") {
            return Err(Stop::Usage(format!(
                "this build writes no Parquet; `cargo build --release -p fv-catalog --features parquet` makes one that does, this one writes {FORMATS}"
            )));
        }
        if shape == Self::Parquet && arguments.out.as_ref().is_none_or(|out| out.as_os_str() == "-") {
            return Err(Stop::Usage("a Parquet file is written to `--out FILE`, not to the output".into()));
        }
        Ok(shape)
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Jsonl => "jsonl",
            Self::Parquet => "parquet",
        }
    }

    /// What stands before the rows.
    pub(super) fn header(self) -> String {
        match self {
            Self::Csv | Self::Parquet => COLUMNS.join(",") + "\n",
            Self::Jsonl => String::new(),
        }
    }

    pub(super) fn row(self, row: &SweepRow, out: &mut Vec<u8>) {
        match self {
            Self::Csv | Self::Parquet => csv(row, out),
            Self::Jsonl => {
                // Wire types serialise into memory.
                serde_json::to_writer(&mut *out, row).unwrap_or_default();
                out.push(b'\n');
            }
        }
    }

    /// Gives each row of whole lines to `each`. Returns whether every line was one.
    pub(super) fn rows(self, lines: &[u8], mut each: impl FnMut(SweepRow)) -> bool {
        let mut rows = 0;
        let mut all = |row: SweepRow| {
            rows += 1;
            each(row);
        };
        let read = match self {
            Self::Csv | Self::Parquet => {
                // The columns have the order of the fields.
                let reader = ::csv::ReaderBuilder::new().has_headers(false).from_reader(lines);
                reader.into_deserialize().try_for_each(|row| row.map(&mut all)).is_ok()
            }
            Self::Jsonl => serde_json::Deserializer::from_slice(lines).into_iter().try_for_each(|row| row.map(&mut all)).is_ok(),
        };
        // Rows hold no line breaks: control characters are refused in what they are made of.
        read && rows == lines.split_inclusive(|byte| *byte == b'\n').count()
    }
}

/// Bytes read at once, but for the rest of a line.
const BLOCK: u64 = 1 << 20;

/// The next whole lines; none at the end, where part of a line may be left.
pub(super) fn lines(reader: &mut impl BufRead, into: &mut Vec<u8>) -> io::Result<()> {
    into.clear();
    reader.by_ref().take(BLOCK).read_to_end(into)?;
    if into.last() != Some(&b'\n') {
        reader.read_until(b'\n', into)?;
    }
    let whole = into.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    into.truncate(whole);
    Ok(())
}

/// The columns of CSV and Parquet, in the order of the fields of [`SweepRow`].
pub(super) const COLUMNS: [&str; 17] = [
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
    fn text(out: &mut Vec<u8>, text: &str) {
        if text.contains([',', '"', '\n', '\r']) {
            out.push(b'"');
            out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
            out.push(b'"');
        } else {
            out.extend_from_slice(text.as_bytes());
        }
        out.push(b',');
    }
    fn number<N: std::fmt::Display>(out: &mut Vec<u8>, number: Option<N>) {
        // Memory takes every write.
        let _ = number.map(|number| write!(out, "{number}"));
        out.push(b',');
    }
    for field in [&row.model, &row.deployment, &row.hardware] {
        text(out, field);
    }
    for field in [row.width, row.height, row.num_frames, row.batch] {
        number(out, Some(field));
    }
    text(out, &row.settings);
    text(out, word(row.status));
    for field in [row.load_bytes, row.encoding_bytes, row.denoising_bytes, row.decoding_bytes, row.host_bytes, row.budget_bytes] {
        number(out, field);
    }
    number(out, row.margin_bytes);
    text(out, row.reason.as_deref().unwrap_or_default());
    if let Some(last) = out.last_mut() {
        *last = b'\n';
    }
}

/// A verdict as it stands in a row.
pub(super) fn word(status: Verdict) -> &'static str {
    match status {
        Verdict::Fits => "fits",
        Verdict::Uncertain => "uncertain",
        Verdict::DoesNotFit => "does_not_fit",
        Verdict::Unknown => "unknown",
    }
}
