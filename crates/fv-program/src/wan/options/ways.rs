//! The best way to compute a transformer, without looking at all of them.
//!
//! Larger pieces take no more time and no less memory. So the ways from one to another, by the sizes of their pieces, take no less time than
//! the first of them and need no less memory than the last; what would be both is a promise that none of them exceeds. Ranges with the
//! best promise are halved until one way is left, and what promises less than is known already is never looked at.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use super::transformer::{KINDS, Sketched, Transformer, ways};
use super::{Compute, Configuration, Model, Request};
use crate::optimal::instance::Counts;
use crate::optimal::solve::Key;
use crate::optimal::{Budgets, Search, Staged, promise};
use crate::rates::UnknownRate;

/// All ways, and what is known of them.
#[derive(Debug)]
pub struct Ways<'a> {
    all: Vec<Compute>,
    sizes: [usize; 3],
    variants: usize,
    transformer: Transformer<'a>,
    sketched: Vec<Cell<Option<Sketched>>>,
}

/// Ways that differ in the sizes of their pieces: from the largest to the smallest, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    kind: usize,
    variant: usize,
    first: [usize; 3],
    last: [usize; 3],
}

impl Span {
    /// Both halves; nothing of a single way.
    fn halves(self) -> Option<[Self; 2]> {
        let (mut first, mut second) = (self, self);
        let axis = (0..3).max_by_key(|axis| (self.last[*axis] - self.first[*axis], Reverse(*axis)))?;
        let middle = usize::midpoint(self.first[axis], self.last[axis]);
        (first.last[axis], second.first[axis]) = (middle, middle + 1);
        (self.first[axis] < self.last[axis]).then_some([first, second])
    }
}

impl<'a> Ways<'a> {
    pub(super) fn new(model: &Model, request: &Request, transformer: Transformer<'a>) -> Self {
        let found = ways(model, request);
        let sketched = vec![Cell::new(None); found.ways.len()];
        Self { all: found.ways, sizes: found.sizes, variants: found.variants, transformer, sketched }
    }

    /// All of them, fewest pieces first; those that keep nothing in host memory before all others.
    pub fn all(&self) -> &[Compute] {
        &self.all
    }

    /// What one of them needs and takes.
    ///
    /// # Errors
    /// The rate that is not known.
    pub fn configuration(&self, index: usize) -> Result<Configuration, UnknownRate> {
        Ok(self.sketched(index)?.configuration)
    }

    fn sketched(&self, index: usize) -> Result<Sketched, UnknownRate> {
        if let Some(known) = self.sketched[index].get() {
            return Ok(known);
        }
        let sketched = self.transformer.sketched(self.all[index])?;
        self.sketched[index].set(Some(sketched));
        Ok(sketched)
    }

    fn index(&self, span: Span, [group, projection, feed_forward]: [usize; 3]) -> usize {
        let [groups, projections, feed_forwards] = self.sizes;
        (((span.kind * groups + group) * projections + projection) * feed_forwards + feed_forward) * self.variants + span.variant
    }

    /// All sizes of some kinds, variant by variant.
    fn spans(&self, kinds: Range<usize>) -> impl Iterator<Item = Span> {
        let last = self.sizes.map(|sizes| sizes - 1);
        kinds.flat_map(move |kind| (0..self.variants).map(move |variant| Span { kind, variant, first: [0; 3], last }))
    }

    /// The smallest time of ways that keep nothing in host memory, everything at hand.
    pub(super) fn fastest_ns(&self) -> Result<u64, UnknownRate> {
        let times = self.spans(0..1).map(|span| Ok(self.configuration(self.index(span, span.first))?.computing_ns()));
        times.collect::<Result<Vec<_>, _>>().map(|times| times.into_iter().min().unwrap_or(0))
    }

    /// Ways of which one needs the least, whatever is wanted least.
    pub(super) fn smallest(&self) -> Result<Vec<Configuration>, UnknownRate> {
        self.spans(0..KINDS).map(|span| self.configuration(self.index(span, span.last))).collect()
    }

    /// Looks at the ways of some kinds with no more than so many operations that may be better than what was found, by how they compute
    /// and by how many blocks live where.
    pub(super) fn search(
        &self,
        kinds: Range<usize>,
        budgets: &Budgets,
        most: u64,
        way: &dyn Fn(&Compute) -> bool,
        counts: &dyn Fn(&Counts) -> bool,
        search: &mut Search<'_>,
    ) -> Result<(), UnknownRate> {
        let mut waiting: BinaryHeap<Reverse<(Key, Span)>> = BinaryHeap::new();
        let add = |waiting: &mut BinaryHeap<_>, span: Span| -> Result<(), UnknownRate> {
            let short = |index: usize| self.sketched(index).is_ok_and(|sketched| sketched.operations <= most);
            // The first of a span has the fewest pieces.
            if short(self.index(span, span.first)) && self.contained(span).any(|index| way(&self.all[index])) {
                let (index, configuration) = (self.index(span, span.first), self.of_all(span)?);
                waiting.extend(promise(budgets, counts, index, &configuration).map(|key| Reverse((key, span))));
            }
            Ok(())
        };
        for span in self.spans(kinds) {
            add(&mut waiting, span)?;
        }
        while let Some(Reverse((key, span))) = waiting.pop() {
            if search.best.as_ref().is_some_and(|(best, _)| *best <= key) {
                break;
            }
            let Some(halves) = span.halves() else {
                let index = self.index(span, span.first);
                search.look_at(index, &self.configuration(index)?);
                continue;
            };
            for half in halves {
                add(&mut waiting, half)?;
            }
        }
        Ok(())
    }

    /// Indices of the ways of a span.
    fn contained(&self, span: Span) -> impl Iterator<Item = usize> {
        let range = move |axis: usize| span.first[axis]..=span.last[axis];
        range(0).flat_map(move |a| range(1).flat_map(move |b| range(2).map(move |c| self.index(span, [a, b, c]))))
    }

    /// What needs no more and takes no more time than any way of a span.
    fn of_all(&self, span: Span) -> Result<Configuration, UnknownRate> {
        let fastest = self.sketched(self.index(span, span.first))?;
        if span.first == span.last {
            return Ok(fastest.configuration);
        }
        let smallest = self.configuration(self.index(span, span.last))?;
        let block_ns = fastest.computing_ns;
        // The first piece of each phase is waited for, and smaller pieces are there sooner.
        let at_hand = |staged: Staged| Staged { before_ns: block_ns, after_ns: 0, ..staged };
        Ok(Configuration {
            device_bytes: smallest.device_bytes,
            host_bytes: smallest.host_bytes,
            block_ns,
            staged: fastest.configuration.staged.map(at_hand),
            ..fastest.configuration
        })
    }
}
