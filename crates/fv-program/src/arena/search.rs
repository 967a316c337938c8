//! Exact search for the lowest layout of a part, by branch and bound.
//!
//! Any layout can be pushed down until each buffer lies on the ground or on one that it is in conflict with. So buffers are placed
//! from the bottom up, each on the highest top below it. A branch ends where a buffer or a set of buffers that are in use together
//! no longer fits below the best layout, and where a buffer is passed over that would have fitted below the next one.

use super::{
    fit::{Graph, Layout},
    lives::{Lives, in_use},
};
use crate::order::{Order, STREAMS};

/// Members of a part, by their place in it, that are in use at one operation.
pub(crate) type Clique = Vec<u32>;

/// The largest such sets.
pub(crate) fn cliques(lives: &Lives, order: &Order, members: &[u32]) -> Vec<Clique> {
    let mut cliques = Vec::new();
    for stream in 0..STREAMS {
        let mut changes = Vec::new();
        for (at, buffer) in (0..).zip(members) {
            for life in lives.of_buffer(*buffer as usize) {
                if let Some((first, last)) = in_use(life, order, stream) {
                    changes.extend([(first, true, at), (last + 1, false, at)]);
                }
            }
        }
        changes.sort_unstable();
        collect(&changes, &mut cliques);
    }
    cliques.sort_unstable();
    cliques.dedup();
    cliques
}

/// A set is as large as it gets when one leaves after one came.
fn collect(changes: &[(u32, bool, u32)], cliques: &mut Vec<Clique>) {
    let (mut open, mut grown): (Clique, bool) = (Vec::new(), false);
    for (_, begins, at) in changes {
        if *begins {
            open.push(*at);
        } else {
            if std::mem::take(&mut grown) && open.len() > 1 {
                let mut clique = open.clone();
                clique.sort_unstable();
                clique.dedup();
                cliques.push(clique);
            }
            if let Some(place) = open.iter().position(|other| other == at) {
                open.swap_remove(place);
            }
        }
        grown |= *begins;
    }
}

/// Lowers a layout as far as it goes, or until it is `enough`; each node looks at every buffer, `looks` in all.
pub(crate) fn improve(graph: &Graph, layout: &mut Layout, enough: u64, looks: u32, cliques: &[Clique]) {
    let nodes = looks / u32::try_from(graph.len()).unwrap_or(u32::MAX).max(1);
    let mut search = Search {
        graph,
        cliques,
        enough,
        unit: graph.sizes.iter().fold(0, |unit, size| gcd(unit, *size)).max(1),
        offsets: vec![u64::MAX; graph.len()],
        under: vec![0; graph.len()],
        best: layout,
        nodes,
    };
    search.descend(0, 0);
    let left = search.nodes;
    layout.nodes = nodes - left;
    layout.smallest = left > 0;
}

struct Search<'a> {
    graph: &'a Graph,
    cliques: &'a [Clique],
    enough: u64,
    /// All sizes are multiples of it, so all heights are.
    unit: u64,
    offsets: Vec<u64>,
    /// The highest top of what is placed and in conflict with each.
    under: Vec<u64>,
    best: &'a mut Layout,
    /// How many are left.
    nodes: u32,
}

impl Search<'_> {
    fn over(&self) -> bool {
        self.nodes == 0 || self.best.height <= self.enough
    }

    fn free(&self) -> impl Iterator<Item = usize> {
        (0..self.graph.len()).filter(|at| self.offsets[*at] == u64::MAX)
    }

    /// Whether what is left can end below the best layout with nothing of it below `floor`.
    fn hopeful(&self, floor: u64) -> bool {
        let limit = self.best.height - self.unit;
        let least = |at: usize| self.under[at].max(floor);
        self.free().all(|at| least(at) + self.graph.sizes[at] <= limit)
            && self.cliques.iter().all(|clique| self.holds(clique, floor, limit))
    }

    fn holds(&self, clique: &Clique, floor: u64, limit: u64) -> bool {
        let (mut from, mut sum) = (u64::MAX, 0);
        for at in clique.iter().map(|at| *at as usize).filter(|at| self.offsets[*at] == u64::MAX) {
            from = from.min(self.under[at].max(floor));
            sum += self.graph.sizes[at];
        }
        sum == 0 || from + sum <= limit
    }

    /// Places what is left, nothing below `floor`; of what lies exactly there, only buffers from `first` on.
    fn descend(&mut self, floor: u64, first: usize) {
        if self.over() {
            return;
        }
        self.nodes -= 1;
        if self.free().next().is_none() {
            self.keep();
            return;
        }
        if !self.hopeful(floor) {
            return;
        }
        for (offset, _, at) in self.candidates(floor, first) {
            self.place(at, offset);
            if self.over() {
                return;
            }
        }
    }

    /// Buffers that may come next, the lowest and largest first.
    fn candidates(&self, floor: u64, first: usize) -> Vec<(u64, std::cmp::Reverse<u64>, usize)> {
        let below = self.free().map(|at| self.under[at].max(floor) + self.graph.sizes[at]).min().unwrap_or(u64::MAX);
        let may = |at: usize| self.under[at] >= floor && self.under[at] < below && (self.under[at] > floor || at >= first);
        let mut candidates: Vec<_> =
            self.free().filter(|at| may(*at)).map(|at| (self.under[at], std::cmp::Reverse(self.graph.sizes[at]), at)).collect();
        candidates.sort_unstable();
        candidates
    }

    fn place(&mut self, at: usize, offset: u64) {
        let top = offset + self.graph.sizes[at];
        let raised: Vec<(usize, u64)> =
            self.graph.near(at).filter(|other| self.under[*other] < top).map(|other| (other, self.under[other])).collect();
        self.offsets[at] = offset;
        for (other, _) in &raised {
            self.under[*other] = top;
        }
        self.descend(offset, at + 1);
        for (other, under) in raised {
            self.under[other] = under;
        }
        self.offsets[at] = u64::MAX;
    }

    fn keep(&mut self) {
        let height = self.offsets.iter().zip(&self.graph.sizes).map(|(offset, size)| offset + size).max().unwrap_or(0);
        if height < self.best.height {
            self.best.height = height;
            self.best.offsets.clone_from(&self.offsets);
        }
    }
}

fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one % other) }
}
