//! Matrices that lie on the device, or in host memory with only pieces of them on the device at a time.
//!
//! Pieces pass through places that are used in turn: while one is computed with, the next one is copied in and the last one is
//! copied out. What is computed is the same in both cases.

use fv_spec::program::{BufferId, BufferKind, Element, EventId, Kernel, Stream, View};

use crate::build::Builder;
use crate::stream::Regions;

/// Rows and columns of a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) first_row: u64,
    pub(super) rows: u64,
    pub(super) first_column: u64,
    pub(super) columns: u64,
}

impl Part {
    fn of(self, view: View) -> View {
        view.row_range(self.first_row, self.rows).column_range(self.first_column, self.columns)
    }

    fn overlaps(self, other: Self) -> bool {
        let meet = |a, length_a, b, length_b| a < b + length_b && b < a + length_a;
        meet(self.first_row, self.rows, other.first_row, other.rows)
            && meet(self.first_column, self.columns, other.first_column, other.columns)
    }
}

/// A matrix of activations.
#[derive(Debug)]
pub(super) struct Staged {
    view: View,
    on_host: bool,
    /// Parts that were copied out, and the events of the copies, in order.
    written: Vec<(Part, EventId)>,
}

/// Part of a matrix, on the device.
#[derive(Debug)]
#[must_use]
pub(super) struct Piece {
    pub(super) view: View,
    part: Part,
    place: Option<usize>,
}

/// Room on the device for pieces; empty for a matrix that lies there.
#[derive(Debug)]
pub(super) struct Places {
    places: Vec<Place>,
    next: usize,
}

#[derive(Debug)]
struct Place {
    buffer: BufferId,
    /// The last operation that used it, and whether it was a copy out; absent before the first.
    last: Option<(EventId, bool)>,
}

impl Staged {
    pub(super) fn new(builder: &mut Builder, regions: Regions, on_host: bool, name: &str, rows: u64, columns: u64) -> Self {
        let region = if on_host { regions.pinned } else { regions.device };
        Self { view: builder.activation(region, name, rows, columns), on_host, written: Vec::new() }
    }

    /// Rows of all columns.
    pub(super) fn rows(&self, first_row: u64, rows: u64) -> Part {
        Part { first_row, rows, first_column: 0, columns: self.view.columns }
    }

    /// Columns of all rows.
    pub(super) fn columns(&self, first_column: u64, columns: u64) -> Part {
        Part { first_row: 0, rows: self.view.rows, first_column, columns }
    }

    /// Places for pieces of at most so many elements, of which there are `pieces`.
    pub(super) fn places(&self, builder: &mut Builder, regions: Regions, name: &str, elements: u64, pieces: u64) -> Places {
        let count = if self.on_host { pieces.min(2) } else { 0 };
        let bytes = elements * self.view.element.bytes();
        let place = |_| Place { buffer: builder.buffer(regions.device, name, BufferKind::Staging, bytes), last: None };
        Places { places: (0..count).map(place).collect(), next: 0 }
    }

    /// A part as it is.
    pub(super) fn read(&self, builder: &mut Builder, places: &mut Places, part: Part) -> Piece {
        if !self.on_host {
            return Piece { view: part.of(self.view), part, place: None };
        }
        let (at, view) = places.take(builder, Stream::CopyIn, self.view.element, part);
        // copies out are done in order
        if let Some((_, written)) = self.written.iter().rev().find(|(other, _)| other.overlaps(part)) {
            builder.wait_on(Stream::CopyIn, *written);
        }
        builder.op(Stream::CopyIn, Kernel::Copy, vec![part.of(self.view)], vec![view]);
        if let Some(copied) = builder.done(Stream::CopyIn) {
            builder.wait_on(Stream::Compute, copied);
        }
        Piece { view, part, place: Some(at) }
    }

    /// A part that is going to be written; whatever was there is not needed.
    pub(super) fn write(&self, builder: &mut Builder, places: &mut Places, part: Part) -> Piece {
        if !self.on_host {
            return Piece { view: part.of(self.view), part, place: None };
        }
        let (at, view) = places.take(builder, Stream::Compute, self.view.element, part);
        Piece { view, part, place: Some(at) }
    }

    /// The last operation of the compute stream was the last one that needs the piece, and may have changed it.
    pub(super) fn keep(&mut self, builder: &mut Builder, places: &mut Places, piece: &Piece) {
        let Some(at) = piece.place else { return };
        if let Some(computed) = builder.done(Stream::Compute) {
            builder.wait_on(Stream::CopyOut, computed);
        }
        builder.op(Stream::CopyOut, Kernel::Copy, vec![piece.view], vec![piece.part.of(self.view)]);
        if let Some(copied) = builder.done(Stream::CopyOut) {
            self.written.retain(|(part, _)| *part != piece.part);
            self.written.push((piece.part, copied));
            places.places[at].last = Some((copied, true));
        }
    }

    /// The last operation of the compute stream was the last one that needs the piece; changes are lost, or not.
    pub(super) fn drop(builder: &mut Builder, places: &mut Places, piece: &Piece) {
        if let Some(at) = piece.place {
            places.places[at].last = builder.done(Stream::Compute).map(|event| (event, false));
        }
    }

    pub(super) fn free(self, builder: &mut Builder) {
        builder.free(self.view.buffer);
    }
}

impl Places {
    /// The next place, for a stream that is the first one to touch it.
    fn take(&mut self, builder: &mut Builder, stream: Stream, element: Element, part: Part) -> (usize, View) {
        let at = self.next;
        self.next = (self.next + 1) % self.places.len();
        match self.places[at].last {
            Some((event, _)) => builder.wait_on(stream, event),
            None if stream == Stream::Compute => {}
            None => builder.wait_for_compute(stream),
        }
        (at, View::matrix(self.places[at].buffer, element, part.rows, part.columns))
    }

    /// The places can be given to others once copies out of them are done.
    pub(super) fn free(self, builder: &mut Builder) {
        for place in self.places {
            if let Some((copied, true)) = place.last {
                builder.wait_on(Stream::Compute, copied);
            }
            builder.free(place.buffer);
        }
    }
}

/// A matrix in host memory that one part of a request hands to another.
#[derive(Debug, Clone)]
pub struct Parcel {
    /// Where it lies.
    pub view: View,
    /// What has to happen before it can be read.
    pub written: Vec<EventId>,
}

impl Parcel {
    /// Copies a matrix out of the device. The device's copy can be freed, but must not be changed.
    pub fn send(builder: &mut Builder, region: u32, name: &str, from: View) -> Self {
        let view = builder.matrix(region, name, BufferKind::Output, from.element, from.rows, from.columns);
        Self::send_to(builder, view, from)
    }

    /// The same into the first rows of a matrix that was made for it.
    pub fn send_to(builder: &mut Builder, view: View, from: View) -> Self {
        builder.wait_for_compute(Stream::CopyOut);
        builder.op(Stream::CopyOut, Kernel::Copy, vec![from], vec![view.row_range(0, from.rows)]);
        let written: Vec<_> = builder.done(Stream::CopyOut).into_iter().collect();
        for &event in &written {
            builder.wait_on(Stream::Compute, event);
        }
        Self { view, written }
    }

    /// Copies it into a matrix on the device; operations of the compute stream from here on wait for it.
    pub fn receive(&self, builder: &mut Builder, to: View) {
        builder.wait_for_compute(Stream::CopyIn);
        for &event in &self.written {
            builder.wait_on(Stream::CopyIn, event);
        }
        builder.op(Stream::CopyIn, Kernel::Copy, vec![self.view], vec![to]);
        if let Some(copied) = builder.done(Stream::CopyIn) {
            builder.wait_on(Stream::Compute, copied);
        }
    }

    /// Nobody needs it any more; it was received.
    pub fn free(self, builder: &mut Builder) {
        builder.free(self.view.buffer);
    }

    /// Copies it into a matrix on the device for the last time.
    pub fn receive_last(self, builder: &mut Builder, to: View) {
        self.receive(builder, to);
        self.free(builder);
    }
}
