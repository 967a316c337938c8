//! What is read was written before, and operations that use the same bytes are in order.
//!
//! The bytes of a buffer fall into cells: between the borders of all views of it, rows and columns apart where they are pieces of
//! a matrix. Each cell knows whether it was written, and where in each stream it was read and written last.

use fv_spec::program::{OpIndex, View};

use super::finding::{Code, Report};
use crate::{
    arena::within_repetition,
    order::{Clock, Instance, Order, STREAMS},
};

#[derive(Debug, Clone, Copy)]
struct Access<'a> {
    op: OpIndex,
    writes: bool,
    view: &'a View,
}

pub(super) fn check(report: &mut Report<'_>, order: &Order) {
    let program = report.program;
    let mut accesses: Vec<Vec<Access<'_>>> = vec![Vec::new(); program.buffers.len()];
    for (at, (_, op)) in (0..).zip(program.ops()) {
        let reads = op.reads.iter().map(|view| Access { op: at, writes: false, view });
        let writes = op.writes.iter().map(|view| Access { op: at, writes: true, view });
        for access in reads.chain(writes) {
            accesses[access.view.buffer as usize].push(access);
        }
    }
    for (buffer, accesses) in program.buffers.iter().zip(&accesses) {
        let inner = within_repetition(order, buffer.first, buffer.last);
        Cells::new(accesses).replay(report, order, accesses, inner);
    }
}

/// Rows and columns of bytes: first row, row after the last, first column, column after the last.
type Rectangle = [u64; 4];

/// What of a buffer is one row. Views that are pieces of rows of one length are rectangles; otherwise all bytes are one row.
fn rectangles(view: &View, row: Option<u64>) -> Vec<Rectangle> {
    let bytes = view.element.bytes();
    let (start, width, pitch) = (view.offset_bytes, view.columns * bytes, view.pitch * bytes);
    let whole = view.rows == 1 || view.pitch == view.columns;
    match row {
        None if whole => vec![[0, 1, start, start + width * view.rows]],
        None => (0..view.rows).map(|at| [0, 1, start + at * pitch, start + at * pitch + width]).collect(),
        Some(row) if whole => lines(start, start + width * view.rows, row),
        Some(row) => {
            let (first, column) = (start / row, start % row);
            let last = first + view.rows;
            if column + width <= row {
                vec![[first, last, column, column + width]]
            } else {
                vec![[first, last, column, row], [first + 1, last + 1, 0, column + width - row]]
            }
        }
    }
}

/// Bytes one after another as the end of a row, whole rows, and the beginning of one.
fn lines(start: u64, end: u64, row: u64) -> Vec<Rectangle> {
    let (first, last) = (start / row, end / row);
    if first == last {
        return vec![[first, first + 1, start % row, end % row]];
    }
    let head = (!start.is_multiple_of(row)).then_some([first, first + 1, start % row, row]);
    let from = start.div_ceil(row);
    let body = (from < last).then_some([from, last, 0, row]);
    let tail = (!end.is_multiple_of(row)).then_some([last, last + 1, 0, end % row]);
    [head, body, tail].into_iter().flatten().collect()
}

#[derive(Debug, Clone, Copy, Default)]
struct Cell {
    written: bool,
    read: Clock,
    write: Clock,
}

struct Cells {
    rows: Vec<u64>,
    columns: Vec<u64>,
    row: Option<u64>,
    states: Vec<Cell>,
    /// Whether several streams use the buffer.
    shared: bool,
}

impl Cells {
    fn new(accesses: &[Access<'_>]) -> Self {
        let mut pitches: Vec<u64> = accesses
            .iter()
            .filter(|access| access.view.rows > 1 && access.view.pitch > access.view.columns)
            .map(|access| access.view.pitch * access.view.element.bytes())
            .collect();
        pitches.sort_unstable();
        pitches.dedup();
        let row = if let [row] = pitches[..] { Some(row) } else { None };
        let (mut rows, mut columns) = (Vec::new(), Vec::new());
        for [top, bottom, left, right] in accesses.iter().flat_map(|access| rectangles(access.view, row)) {
            rows.extend([top, bottom]);
            columns.extend([left, right]);
        }
        for borders in [&mut rows, &mut columns] {
            borders.sort_unstable();
            borders.dedup();
        }
        let states = vec![Cell::default(); rows.len() * columns.len()];
        Self { rows, columns, row, states, shared: false }
    }

    fn replay(&mut self, report: &mut Report<'_>, order: &Order, accesses: &[Access<'_>], inner: bool) {
        let places: Vec<Vec<usize>> = accesses.iter().map(|access| self.places(access.view)).collect();
        let stream = |access: &Access<'_>| order.place(order.segment_of(access.op).instance(access.op, 0)).0;
        self.shared = accesses.windows(2).any(|pair| stream(&pair[0]) != stream(&pair[1]));
        let mut from = 0;
        while let Some(access) = accesses.get(from) {
            let round = order.segment_of(access.op);
            let to = from + accesses[from..].partition_point(|access| access.op < round.first_op + round.ops);
            for repetition in 0..round.rounds {
                if inner {
                    self.states.iter_mut().for_each(|cell| cell.written = false);
                }
                for (access, places) in accesses[from..to].iter().zip(&places[from..to]) {
                    self.access(report, order, access, round.instance(access.op, repetition), places);
                }
            }
            from = to;
        }
    }

    fn places(&self, view: &View) -> Vec<usize> {
        let at = |borders: &[u64], border: u64| borders.partition_point(|other| *other < border);
        let mut places = Vec::new();
        for [top, bottom, left, right] in rectangles(view, self.row) {
            for row in at(&self.rows, top)..at(&self.rows, bottom) {
                let first = row * self.columns.len();
                places.extend(first + at(&self.columns, left)..first + at(&self.columns, right));
            }
        }
        places
    }

    fn access(&mut self, report: &mut Report<'_>, order: &Order, access: &Access<'_>, instance: Instance, places: &[usize]) {
        let (stream, place) = order.place(instance);
        let known = order.start(instance);
        let mut unwritten = false;
        let mut race = None;
        for at in places {
            let cell = &mut self.states[*at];
            if self.shared {
                race = race.or_else(|| meets(&cell.write, known, stream));
                if access.writes {
                    race = race.or_else(|| meets(&cell.read, known, stream));
                }
            }
            if access.writes {
                cell.written = true;
                cell.write[stream] = place;
            } else {
                unwritten |= !cell.written;
                cell.read[stream] = place;
            }
        }
        let does = if access.writes { "writes" } else { "reads" };
        if unwritten {
            report.at_use(Code::UnwrittenRead, access.op, access.view.buffer, "reads bytes that no operation before it writes");
        }
        if let Some((stream, place)) = race {
            let other = report.op_name(order.op(order.at(stream, place)));
            let message = format!("{does} bytes that {other} uses; neither waits for the other");
            report.at_use(Code::Race, access.op, access.view.buffer, &message);
        }
    }
}

/// A use by another stream that need not be over.
fn meets(uses: &Clock, known: &Clock, stream: usize) -> Option<(usize, u32)> {
    (0..STREAMS).find(|other| *other != stream && uses[*other] > known[*other]).map(|other| (other, uses[other]))
}
