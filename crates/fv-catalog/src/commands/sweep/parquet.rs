//! A file of lines made into one of columns: text in dictionaries, whole numbers as INT64.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, BufWriter},
    path::Path,
    sync::Arc,
};

use fv_cli::write;
use fv_spec::{estimate::Verdict, questions::SweepRow};
use parquet::{
    basic::Compression,
    data_type::{ByteArray, ByteArrayType, DataType, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::WriterProperties,
        reader::{FileReader, SerializedFileReader},
        writer::{SerializedColumnWriter, SerializedFileWriter},
    },
    record::Field,
    schema::parser::parse_message_type,
};
use serde_json::{Map, Value};

use super::shape::{COLUMNS, Shape, lines, word};
use super::summary::Tally;

/// Rows of a row group: what is held in memory at once.
const GROUP: usize = 1 << 17;
/// The key of the file's own metadata under which it says what the sweep is, as `FILE.sweep.json` does.
const KEY: &str = "fv-catalog.sweep";

/// Why a file cannot be made or read.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Parquet(#[from] ParquetError),
    #[error("what it is made of are not rows of a sweep")]
    Rows,
    #[error("is not the file of this sweep")]
    Other,
}

/// What a column holds.
enum Column {
    Text(fn(&SweepRow) -> &str),
    Whole(fn(&SweepRow) -> u32),
    /// May be missing.
    Reason(fn(&SweepRow) -> Option<&str>),
    Bytes(fn(&SweepRow) -> Option<u64>),
    Signed(fn(&SweepRow) -> Option<i64>),
}

/// In the order of [`COLUMNS`].
const CONTENTS: [Column; COLUMNS.len()] = [
    Column::Text(|row| &row.model),
    Column::Text(|row| &row.deployment),
    Column::Text(|row| &row.hardware),
    Column::Whole(|row| row.width),
    Column::Whole(|row| row.height),
    Column::Whole(|row| row.num_frames),
    Column::Whole(|row| row.batch),
    Column::Text(|row| &row.settings),
    Column::Text(|row| word(row.status)),
    Column::Bytes(|row| row.load_bytes),
    Column::Bytes(|row| row.encoding_bytes),
    Column::Bytes(|row| row.denoising_bytes),
    Column::Bytes(|row| row.decoding_bytes),
    Column::Bytes(|row| row.host_bytes),
    Column::Bytes(|row| row.budget_bytes),
    Column::Signed(|row| row.margin_bytes),
    Column::Reason(|row| row.reason.as_deref()),
];

impl Column {
    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "required binary NAME (string)",
            Self::Reason(_) => "optional binary NAME (string)",
            Self::Whole(_) => "required int64 NAME",
            Self::Bytes(_) | Self::Signed(_) => "optional int64 NAME",
        }
    }

    fn write(&self, rows: &[SweepRow], to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
        match self {
            Self::Text(of) => required::<ByteArrayType>(rows.iter().map(|row| ByteArray::from(of(row))), to),
            Self::Whole(of) => required::<Int64Type>(rows.iter().map(|row| i64::from(of(row))), to),
            Self::Reason(of) => optional::<ByteArrayType>(rows.iter().map(|row| of(row).map(ByteArray::from)), to),
            // Below 2^53, like every size in an answer.
            Self::Bytes(of) => optional::<Int64Type>(rows.iter().map(|row| of(row).and_then(|bytes| i64::try_from(bytes).ok())), to),
            Self::Signed(of) => optional::<Int64Type>(rows.iter().map(of), to),
        }
    }
}

fn required<T: DataType>(rows: impl Iterator<Item = T::T>, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
    let values: Vec<T::T> = rows.collect();
    to.typed::<T>().write_batch(&values, None, None).map(drop)
}

fn optional<T: DataType>(rows: impl Iterator<Item = Option<T::T>>, to: &mut SerializedColumnWriter<'_>) -> Result<(), ParquetError> {
    let (mut values, mut levels) = (Vec::new(), Vec::new());
    for value in rows {
        levels.push(i16::from(value.is_some()));
        values.extend(value);
    }
    to.typed::<T>().write_batch(&values, Some(&levels), None).map(drop)
}

/// The schema as Parquet writes it.
fn schema() -> String {
    let columns: Vec<String> = CONTENTS.iter().zip(COLUMNS).map(|(column, name)| column.kind().replace("NAME", name) + ";").collect();
    format!("message sweep {{ {} }}", columns.join(" "))
}

/// Makes `out` of the lines in `rows`, in one step.
pub(super) fn make(rows: &Path, out: &Path, parameters: &Map<String, Value>) -> Result<(), Error> {
    let mut from = BufReader::with_capacity(1 << 20, File::open(rows)?);
    from.skip_until(b'\n')?;
    let about = KeyValue::new(KEY.to_owned(), write::json(parameters));
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).set_key_value_metadata(Some(vec![about]));
    let schema = Arc::new(parse_message_type(&schema())?);
    write::replace_by(out, |file| {
        let mut writer = SerializedFileWriter::new(BufWriter::new(file), schema, Arc::new(properties.build()))?;
        let (mut waiting, mut block) = (Vec::with_capacity(GROUP), Vec::new());
        loop {
            lines(&mut from, &mut block)?;
            if !Shape::Parquet.rows(&block, |row| waiting.push(row)) {
                return Err(Error::Rows);
            }
            while waiting.len() >= GROUP || (block.is_empty() && !waiting.is_empty()) {
                let group = waiting.len().min(GROUP);
                write_group(&mut writer, &waiting[..group])?;
                waiting.drain(..group);
            }
            if block.is_empty() {
                writer.close()?;
                return Ok(());
            }
        }
    })
}

fn write_group<W: io::Write + Send>(writer: &mut SerializedFileWriter<W>, rows: &[SweepRow]) -> Result<(), Error> {
    let mut group = writer.next_row_group()?;
    for column in &CONTENTS {
        let Some(mut to) = group.next_column()? else { break };
        column.write(rows, &mut to)?;
        to.close()?;
    }
    group.close()?;
    Ok(())
}

/// Counts the rows of the file of a sweep. Returns how many there are.
pub(super) fn read(out: &Path, parameters: &Map<String, Value>, tally: &mut Tally) -> Result<u64, Error> {
    let reader = SerializedFileReader::new(File::open(out)?)?;
    let about = reader.metadata().file_metadata().key_value_metadata();
    let about = about.and_then(|all| all.iter().find(|one| one.key == KEY)?.value.as_ref());
    if about != Some(&write::json(parameters)) {
        return Err(Error::Other);
    }
    let columns = parse_message_type("message sweep { required binary status (string); optional binary reason (string); }")?;
    let mut rows = 0;
    for row in reader.get_row_iter(Some(columns))? {
        let row = row?;
        let mut fields = row.get_column_iter().map(|(_, field)| if let Field::Str(text) = field { Some(text.as_str()) } else { None });
        let (status, reason) = (fields.next().flatten(), fields.next().flatten());
        let all = [Verdict::Fits, Verdict::Uncertain, Verdict::DoesNotFit, Verdict::Unknown];
        tally.add(all.into_iter().find(|verdict| Some(word(*verdict)) == status).ok_or(Error::Other)?, reason);
        rows += 1;
    }
    Ok(rows)
}
