//! A table of machines and requests, planned row by row.

use std::path::Path;

use fv_estimate::{
    error::InputError,
    planner::freevideo::{
        Planner,
        table::{Columns, DECIDED, GIVEN, row},
    },
};

use super::{Session, arguments::PlanArguments, optimal::meant, own_rows::OwnRows, planner, save, text_of};
use crate::{lookup, stop::Stop};

/// A table of one policy.
pub(super) trait Rows {
    /// Names of the columns that are written.
    fn header(&self) -> Vec<&'static str>;
    /// Reads the names of the columns that are there.
    fn read(&mut self, names: &[&str]) -> Result<(), Vec<InputError>>;
    /// Plans a row: all columns that are written.
    fn row(&mut self, fields: &[&str]) -> Result<Vec<String>, Vec<InputError>>;
}

/// A table of the published policy.
struct Published<'a> {
    planner: &'a Planner,
    columns: Option<Columns>,
}

impl Rows for Published<'_> {
    fn header(&self) -> Vec<&'static str> {
        GIVEN.into_iter().chain(DECIDED).collect()
    }

    fn read(&mut self, names: &[&str]) -> Result<(), Vec<InputError>> {
        self.columns = Some(Columns::read(names.iter().copied())?);
        Ok(())
    }

    fn row(&mut self, fields: &[&str]) -> Result<Vec<String>, Vec<InputError>> {
        let Some(columns) = &self.columns else { return Ok(Vec::new()) };
        row(self.planner, columns, fields).map(Vec::from)
    }
}

/// Errors that are said of one table.
const MOST_ERRORS: usize = 20;

/// `plan --requests`: plans every row, or none when one is wrong.
pub(super) fn rows(session: &mut Session<'_>, arguments: &PlanArguments, path: &Path) -> Result<(), Stop> {
    if session.json {
        return Err(Stop::Usage("--requests writes CSV: leave out `--format json`".to_owned()));
    }
    let text = text_of(path)?;
    let model = lookup::model(session.store, &arguments.model.model)?;
    let rows = if meant(&model, &arguments.model) {
        read(&mut OwnRows::new(session, &model)?, &text)
    } else {
        read_rows(&planner(session.store, &arguments.model.model)?.0, &text)
    };
    let rows = rows.map_err(|errors| {
        let shown = errors.iter().take(MOST_ERRORS).map(|error| InputError::new(error.code, format!("{}:{error}", path.display())));
        let more = errors.len().saturating_sub(MOST_ERRORS);
        let more = (more > 0).then(|| InputError::new("more", format!("{}: {more} more", path.display())));
        Stop::wrong(shown.chain(more))
    })?;
    match &arguments.out {
        Some(out) => save(out, &rows),
        None => Ok(session.out.write_all(rows.as_bytes())?),
    }
}

/// Reads a table of the published policy and plans its rows: the same table with every decision, as text.
///
/// # Errors
/// Everything that is wrong with it, after `line:column: `; a column is counted in fields.
pub fn read_rows(planner: &Planner, text: &str) -> Result<String, Vec<InputError>> {
    read(&mut Published { planner, columns: None }, text)
}

fn read(table: &mut dyn Rows, text: &str) -> Result<String, Vec<InputError>> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut records = reader.records();
    let at = |line: u64, error: InputError| InputError::new(error.code, format!("{line}: {error}"));
    let header = match records.next() {
        Some(Ok(header)) => header,
        Some(Err(error)) => return Err(vec![unreadable(&error)]),
        None => return Err(vec![InputError::new("empty-table", "1: the table is empty; its first line names the columns")]),
    };
    let names: Vec<&str> = header.iter().map(str::trim).collect();
    table.read(&names).map_err(|errors| errors.into_iter().map(|error| at(1, error)).collect::<Vec<_>>())?;
    // Lines end as those that were read.
    let ends = text.lines().next().map_or(0, str::len);
    let terminator = if text[ends..].starts_with("\r\n") { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
    let mut out = csv::WriterBuilder::new().terminator(terminator).from_writer(Vec::new());
    let mut lines = Lines { text: text.as_bytes(), counted: 0, line: 1 };
    let mut errors = Vec::new();
    let mut write = |row: &[&str], errors: &mut Vec<InputError>| {
        if let Err(error) = out.write_record(row) {
            errors.push(InputError::new("unwritable", error.to_string()));
        }
    };
    write(&table.header(), &mut errors);
    while let Some(record) = records.next() {
        let ends = records.reader().position().byte();
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                errors.push(unreadable(&error));
                continue;
            }
        };
        let line = lines.of(&record);
        if lines.open_quote(ends) {
            errors.push(InputError::new(
                "open-quote",
                format!("{line}: a quote is opened here and not closed: it takes the rest of the file"),
            ));
            continue;
        }
        if record.len() != names.len() {
            let fields = if record.len() == 1 { "1 field".to_owned() } else { format!("{} fields", record.len()) };
            let message = format!("{line}: the row has {fields}, and the first line names {}", names.len());
            errors.push(InputError::new("row-length", message));
            continue;
        }
        let fields: Vec<&str> = record.iter().collect();
        match table.row(&fields) {
            Ok(fields) => write(&fields.iter().map(String::as_str).collect::<Vec<_>>(), &mut errors),
            Err(wrong) => errors.extend(wrong.into_iter().map(|error| placed(line, &names, &error))),
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let bytes = out.into_inner().unwrap_or_default();
    Ok(String::from_utf8(bytes).unwrap_or_default())
}

/// Counts lines: the reader gives the line on which it began to look for a row, which is not the row's where lines are empty.
struct Lines<'a> {
    text: &'a [u8],
    /// Bytes that were counted, and the line on which they end.
    counted: usize,
    line: u64,
}

impl Lines<'_> {
    /// The line on which a row begins. Rows are asked for in order.
    fn of(&mut self, record: &csv::StringRecord) -> u64 {
        let from = record.position().and_then(|position| usize::try_from(position.byte()).ok()).unwrap_or(self.counted);
        let begins = from + self.text[from..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let ends = |at: &usize| self.text[*at] == b'\n' || (self.text[*at] == b'\r' && self.text.get(at + 1) != Some(&b'\n'));
        self.line += (self.counted..begins).filter(ends).count() as u64;
        self.counted = begins;
        self.line
    }

    /// Whether the row that begins here ends with the text, at `ends`, and has a quote that is not closed. Quotes within quotes are
    /// doubled.
    fn open_quote(&self, ends: u64) -> bool {
        let row = &self.text[self.counted..];
        let last = usize::try_from(ends).is_ok_and(|ends| ends >= self.text.len());
        last && row.iter().fold(false, |open, byte| open ^ (*byte == b'"'))
    }
}

/// An error of a row with its line, and its column where the message begins with a column's name.
fn placed(line: u64, names: &[&str], error: &InputError) -> InputError {
    let name = error.message.split(':').next().unwrap_or_default();
    let column = names.iter().position(|known| *known == name).map_or(String::new(), |place| format!("{}:", place + 1));
    InputError::new(error.code, format!("{line}:{column} {}", error.message))
}

fn unreadable(error: &csv::Error) -> InputError {
    let line = error.position().map_or(1, csv::Position::line);
    InputError::new("unreadable-table", format!("{line}: {error}"))
}
