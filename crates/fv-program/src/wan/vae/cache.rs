//! The last two input frames of every causal convolution. Nothing is moved for them: a convolution's input is computed in a place
//! of its own, stays there as long as it is needed, and then the next input, of whichever convolution, is computed there. So
//! convolutions of one size have two places each and one more for all.

use std::collections::{BTreeMap, VecDeque};

use fv_spec::program::{BufferId, BufferKind};

use crate::build::Builder;

/// Frames before its own that a convolution reads.
const REACH: usize = 2;

/// Places for frames, by size in bytes.
#[derive(Debug)]
pub(super) struct Places {
    region: u32,
    unused: BTreeMap<u64, Vec<BufferId>>,
}

impl Places {
    pub(super) fn new(region: u32) -> Self {
        Self { region, unused: BTreeMap::new() }
    }

    /// A place for a frame.
    pub(super) fn take(&mut self, builder: &mut Builder, bytes: u64) -> Place {
        let unused = self.unused.get_mut(&bytes).and_then(Vec::pop);
        let buffer = unused.unwrap_or_else(|| builder.buffer(self.region, "frame", BufferKind::Cache, bytes));
        Place { buffer, bytes }
    }

    fn give(&mut self, place: &Place) {
        self.unused.entry(place.bytes).or_default().push(place.buffer);
    }

    /// Frees all; no convolution must need one.
    pub(super) fn free(self, builder: &mut Builder) {
        for buffer in self.unused.into_values().flatten() {
            builder.free(buffer);
        }
    }
}

/// A place for a frame.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) buffer: BufferId,
    bytes: u64,
}

/// The frames that a convolution has seen.
#[derive(Debug)]
pub(super) struct History {
    kept: VecDeque<Place>,
    to_come: u64,
}

impl History {
    /// Of a convolution that will see so many frames.
    pub(super) fn new(frames: u64) -> Self {
        Self { kept: VecDeque::new(), to_come: frames }
    }

    /// What is at hand of the frames before the next one, the oldest first.
    pub(super) fn frames(&self) -> impl Iterator<Item = BufferId> {
        self.kept.iter().map(|place| place.buffer)
    }

    /// Keeps the frame that was just convolved as long as it is needed.
    pub(super) fn push(&mut self, places: &mut Places, place: Place) {
        self.kept.push_back(place);
        self.to_come -= 1;
        let reach = if self.to_come == 0 { 0 } else { REACH };
        while self.kept.len() > reach {
            self.kept.pop_front().iter().for_each(|place| places.give(place));
        }
    }

    /// The same for a frame that lies elsewhere: where it has to be copied to, or nowhere when it was the last one.
    pub(super) fn copy(&mut self, builder: &mut Builder, places: &mut Places, bytes: u64) -> Option<BufferId> {
        if self.to_come == 1 {
            self.to_come = 0;
            self.kept.drain(..).for_each(|place| places.give(&place));
            return None;
        }
        let oldest = if self.kept.len() == REACH { self.kept.pop_front() } else { None };
        let place = oldest.unwrap_or_else(|| places.take(builder, bytes));
        let buffer = place.buffer;
        self.push(places, place);
        Some(buffer)
    }
}
