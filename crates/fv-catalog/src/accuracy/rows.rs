//! Measured rows of single components: CSV with a header, read into rows and findings.

use std::sync::Arc;

use fv_spec::authored::Runtime;

use crate::codes::Code;
use crate::finding::{Finding, SourceFile, Span, suggest};

/// A measured row.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The file, as it is shown.
    pub file: String,
    /// Its line there, from 1.
    pub line: usize,
    /// The component as written, without the runtime in front.
    pub component: String,
    /// The stage as written.
    pub stage: String,
    /// The case as written.
    pub case: String,
    /// The engine.
    pub runtime: Runtime,
    /// Whether a transformer's weights were all cast to one type, or loaded with what its class keeps in fp32.
    pub cast: bool,
    /// What was measured.
    pub measured: Measured,
}

/// Bytes of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Measured {
    /// Allocated before the pass.
    pub base: u64,
    /// Highest allocated during it.
    pub allocated: u64,
    /// Highest reserved during it.
    pub reserved: u64,
    /// What the whole device showed.
    pub device: u64,
}

const REQUIRED: [&str; 7] = ["component", "stage", "case", "base_alloc", "peak_alloc", "peak_reserved", "device_peak"];
/// `sec` is read by nobody here, since times are not judged.
const OPTIONAL: [&str; 2] = ["runtime", "precision"];
/// No device holds more.
const MOST: u64 = 1 << 52;

/// Reads `text`, called `path`: the rows that are sound, and what is wrong with the others.
///
/// A runtime other than diffusers stands in a column `runtime` or in front of the component. A transformer counts as cast to one
/// type; where a file marks some of its components `-cast`, the others were loaded, and a column `precision` (`cast` or `loaded`)
/// decides before either.
pub fn read(path: &str, text: &str) -> (Vec<Row>, Vec<Finding>) {
    let file = Arc::new(SourceFile::new(path, text.strip_prefix('\u{feff}').unwrap_or(text)));
    let text = file.text.as_str();
    let mut reader = csv::ReaderBuilder::new().flexible(true).has_headers(false).from_reader(text.as_bytes());
    let (mut rows, mut findings) = (Vec::new(), Vec::new());
    let mut columns: Option<Columns> = None;
    for record in reader.records() {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                let at = error.position().map_or(0, |p| usize::try_from(p.byte()).unwrap_or(0));
                findings.push(Finding::new(Code::BadFormat, &file, line_at(&file, at).1, "here", format!("not CSV: {error}")));
                break;
            }
        };
        let at = record.position().map_or(0, |p| usize::try_from(p.byte()).unwrap_or(0));
        let (line, span) = line_at(&file, at);
        if record.len() == 1 && record[0].trim().is_empty() {
            continue;
        }
        match &columns {
            None => match Columns::read(&record) {
                Ok(found) => columns = Some(found),
                Err(missing) => {
                    let named = missing.join("`, `");
                    let finding = Finding::new(Code::MissingField, &file, span, "the header", format!("the header lacks `{named}`"));
                    findings.push(finding.help(format!("columns in any order: {}; others are ignored", REQUIRED.join(", "))));
                    return (rows, findings);
                }
            },
            Some(columns) => {
                let place = RowPlace { file: &file, line, span };
                match row(&record, columns, &place) {
                    Ok(row) => rows.push(row),
                    Err(list) => findings.extend(list),
                }
            }
        }
    }
    if columns.is_none() && findings.is_empty() {
        findings.push(Finding::new(Code::EmptyFile, &file, 0..0, "here", "there is no header and no row"));
    }
    // A file that tells cast from loaded tells it for all of its rows.
    let told = rows.iter().any(|row| row.component.ends_with("-cast"));
    let decided = columns.is_some_and(|columns| columns.precision.is_some());
    for row in &mut rows {
        let bare = bare(&row.component);
        if bare.ends_with("-cast") || bare.ends_with("-loaded") {
            row.cast = bare.ends_with("-cast");
        } else if told && !decided {
            row.cast = false;
        }
    }
    crate::finding::sort(&mut findings);
    (rows, findings)
}

/// The component's name without remarks in parentheses.
pub fn bare(component: &str) -> &str {
    component.split(" (").next().unwrap_or(component).trim()
}

/// Where the columns are.
struct Columns {
    required: [usize; 7],
    runtime: Option<usize>,
    precision: Option<usize>,
}

impl Columns {
    fn read(header: &csv::StringRecord) -> Result<Self, Vec<&'static str>> {
        let find = |name: &str| header.iter().position(|column| column.trim().eq_ignore_ascii_case(name));
        let missing: Vec<&'static str> = REQUIRED.into_iter().filter(|name| find(name).is_none()).collect();
        if !missing.is_empty() {
            return Err(missing);
        }
        let [runtime, precision] = OPTIONAL.map(find);
        Ok(Self { required: REQUIRED.map(|name| find(name).unwrap_or(0)), runtime, precision })
    }
}

struct RowPlace<'a> {
    file: &'a Arc<SourceFile>,
    line: usize,
    span: Span,
}

impl RowPlace<'_> {
    /// A finding at the field in `column`, or at the row where it has no such field.
    fn finding(&self, code: Code, column: usize, name: &str, message: String) -> Finding {
        let text = &self.file.text[self.span.clone()];
        let span = field(text, column).map_or(self.span.clone(), |field| self.span.start + field.start..self.span.start + field.end);
        Finding::new(code, self.file, span, name, message)
    }
}

fn row(record: &csv::StringRecord, columns: &Columns, place: &RowPlace<'_>) -> Result<Row, Vec<Finding>> {
    let mut findings = Vec::new();
    let mut fields = [""; 7];
    for ((field, column), name) in fields.iter_mut().zip(columns.required).zip(REQUIRED) {
        match record.get(column).map(str::trim).filter(|text| !text.is_empty()) {
            Some(text) => *field = text,
            None => {
                findings.push(place.finding(
                    Code::MissingField,
                    column,
                    name,
                    format!("line {}: `{name}` is empty or missing", place.line),
                ));
            }
        }
    }
    let mut numbers = [0_u64; 4];
    for (i, number) in numbers.iter_mut().enumerate() {
        let (text, column, name) = (fields[3 + i], columns.required[3 + i], REQUIRED[3 + i]);
        if text.is_empty() {
            continue;
        }
        let bad = |code: Code, what: &str| place.finding(code, column, name, format!("line {}: `{name}` is {text:?}, {what}", place.line));
        match text.parse::<u64>() {
            Ok(bytes) if bytes <= MOST && (bytes > 0 || i == 0) => *number = bytes,
            Ok(_) => findings.push(bad(Code::OutOfRange, "which no peak in bytes can be")),
            Err(_) if text.trim_start_matches('-').bytes().all(|b| b.is_ascii_digit()) => {
                findings.push(bad(Code::OutOfRange, "which no peak in bytes can be"));
            }
            Err(_) => findings.push(bad(Code::WrongType, "not a whole number of bytes")),
        }
    }
    let [base, allocated, reserved, device] = numbers;
    if findings.is_empty() && (base > allocated || allocated > reserved) {
        let (column, name) = if base > allocated { (columns.required[3], "base_alloc") } else { (columns.required[4], "peak_alloc") };
        let message = format!("line {}: not base_alloc <= peak_alloc <= peak_reserved", place.line);
        findings.push(place.finding(Code::OutOfRange, column, name, message));
    }
    let word = |column: Option<usize>| column.and_then(|column| record.get(column)).map_or("", str::trim);
    let (prefixed, component) = prefix(fields[0]);
    let written = word(columns.runtime);
    let runtime = match (written, columns.runtime) {
        ("", _) | (_, None) => prefixed.unwrap_or(Runtime::Diffusers),
        (text, Some(column)) => RUNTIMES.into_iter().find(|runtime| runtime.word().eq_ignore_ascii_case(text)).unwrap_or_else(|| {
            let help = suggest(text, RUNTIMES.iter().map(|runtime| runtime.word()), "runtimes");
            findings
                .push(place.finding(Code::NotAllowed, column, "runtime", format!("line {}: `runtime` is {text:?}", place.line)).help(help));
            Runtime::Diffusers
        }),
    };
    let cast = match (word(columns.precision), columns.precision) {
        ("" | "cast", _) | (_, None) => true,
        ("loaded", _) => false,
        (text, Some(column)) => {
            let finding = place.finding(Code::NotAllowed, column, "precision", format!("line {}: `precision` is {text:?}", place.line));
            findings.push(finding.help("precisions: cast, loaded"));
            true
        }
    };
    if !findings.is_empty() {
        return Err(findings);
    }
    Ok(Row {
        file: place.file.path.clone(),
        line: place.line,
        component: component.to_owned(),
        stage: fields[1].to_owned(),
        case: fields[2].to_owned(),
        runtime,
        cast,
        measured: Measured { base, allocated, reserved, device },
    })
}

const RUNTIMES: [Runtime; 4] = [Runtime::FastVideo, Runtime::Diffusers, Runtime::FreeVideo, Runtime::FvRun];

/// `fastvideo wan2.1-vae`: the runtime in front of a component, if there is one.
fn prefix(component: &str) -> (Option<Runtime>, &str) {
    let (first, rest) = component.split_once(' ').unwrap_or((component, ""));
    match RUNTIMES.into_iter().find(|runtime| runtime.word() == first) {
        Some(runtime) if !rest.is_empty() => (Some(runtime), rest.trim()),
        _ => (None, component),
    }
}

/// The line of a byte, blank lines skipped: its number from 1, and its bytes.
fn line_at(file: &SourceFile, at: usize) -> (usize, Span) {
    let text = &file.text;
    let mut at = at.min(text.len());
    at += text.as_bytes()[at..].iter().take_while(|b| matches!(b, b'\n' | b'\r')).count();
    let line = file.place(crate::finding::boundary(text, at)).line;
    (line, file.line(line - 1).unwrap_or(text.len()..text.len()))
}

/// The bytes of a field in a line.
fn field(line: &str, index: usize) -> Option<Span> {
    let (mut quoted, mut column, mut start) = (false, 0, 0);
    for (i, b) in line.bytes().enumerate() {
        match b {
            b'"' => quoted = !quoted,
            b',' if !quoted => {
                if column == index {
                    return Some(start..i);
                }
                column += 1;
                start = i + 1;
            }
            _ => {}
        }
    }
    (column == index && start < line.len()).then_some(start..line.len())
}

/// The finding for a row whose case cannot be read.
pub(super) fn case_finding(row: &Row, text: &str, why: &str) -> Finding {
    let file = Arc::new(SourceFile::new(row.file.as_str(), text.strip_prefix('\u{feff}').unwrap_or(text)));
    let span = file.line(row.line - 1).unwrap_or(0..0);
    let at = file.text[span.clone()].find(&row.case).map_or(span.clone(), |at| span.start + at..span.start + at + row.case.len());
    Finding::new(Code::BadFormat, &file, at, "case", format!("line {}: `case`: {why}", row.line))
}
