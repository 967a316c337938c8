//! Packs one part: several orders, each buffer into the gap that suits it; then the buffers at the top are placed earlier, again
//! and again; then a search.

use super::{
    Effort,
    lives::Conflicts,
    parts::Part,
    search::{self, Clique},
};

/// Sizes of buffers, and which may not share memory.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Graph {
    pub(crate) sizes: Vec<u64>,
    neighbours: Vec<u32>,
    starts: Vec<u32>,
}

impl Graph {
    /// The graph of a part; `places` holds the part and the place in it of every buffer of the region.
    pub(crate) fn of(part: &Part, number: u32, places: &[(u32, u32)], conflicts: &Conflicts, sizes: &[u64]) -> Self {
        let mut graph = Self { sizes: Vec::with_capacity(part.members.len()), neighbours: Vec::new(), starts: vec![0] };
        for at in &part.members {
            graph.sizes.push(sizes[*at as usize]);
            let from = graph.neighbours.len();
            let near = conflicts.of(*at).iter().map(|other| places[*other as usize]).filter(|(part, _)| *part == number);
            graph.neighbours.extend(near.map(|(_, place)| place));
            graph.neighbours[from..].sort_unstable();
            graph.starts.push(u32::try_from(graph.neighbours.len()).unwrap_or(u32::MAX));
        }
        graph
    }

    pub(crate) fn len(&self) -> usize {
        self.sizes.len()
    }

    fn degree(&self, at: usize) -> usize {
        (self.starts[at + 1] - self.starts[at]) as usize
    }

    pub(crate) fn near(&self, at: usize) -> impl Iterator<Item = usize> {
        self.neighbours[self.starts[at] as usize..self.starts[at + 1] as usize].iter().map(|other| *other as usize)
    }
}

/// Offsets of a part's buffers.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    pub(crate) offsets: Vec<u64>,
    pub(crate) height: u64,
    /// Whether a search found no lower one.
    pub(crate) smallest: bool,
    pub(crate) nodes: u32,
}

#[derive(Debug, Clone, Copy)]
enum Gap {
    Lowest,
    Tightest,
}

const UNPLACED: u64 = u64::MAX;

/// A layout of at most `enough` bytes where one is found, otherwise the lowest that is.
pub(crate) fn fit(graph: &Graph, enough: u64, effort: Effort, cliques: impl FnOnce() -> Vec<Clique>) -> Layout {
    let mut best: Option<(Layout, Vec<usize>, Gap)> = None;
    'orders: for order in orders(graph) {
        for gap in [Gap::Lowest, Gap::Tightest] {
            let layout = place(graph, &order, gap);
            if best.as_ref().is_none_or(|(best, ..)| layout.height < best.height) {
                best = Some((layout, order.clone(), gap));
            }
            if best.as_ref().is_some_and(|(best, ..)| best.height <= enough) {
                break 'orders;
            }
        }
    }
    let Some((mut layout, order, gap)) = best else {
        return Layout { offsets: Vec::new(), height: 0, smallest: true, nodes: 0 };
    };
    if layout.height > enough {
        repair(graph, &mut layout, order, gap, enough, effort.repairs);
    }
    if layout.height > enough {
        search::improve(graph, &mut layout, enough, effort.looks, &cliques());
    }
    layout
}

/// Orders in which buffers are placed, made as they are needed: by size, by what they are in conflict with, by both, as they come.
fn orders(graph: &Graph) -> impl Iterator<Item = Vec<usize>> {
    let around: Vec<u64> = (0..graph.len()).map(|at| graph.near(at).map(|other| graph.sizes[other]).sum()).collect();
    (0..5).map(move |number| {
        let key = |at: usize| -> (u128, u128) {
            let (size, degree) = (u128::from(graph.sizes[at]), graph.degree(at) as u128);
            match number {
                0 => (size, around[at].into()),
                1 => (size * (degree + 1), 0),
                2 => (u128::from(around[at]) + size, size),
                3 => (degree, size),
                // As they come: sorting keeps the order of what is equal.
                _ => (0, 0),
            }
        };
        let mut order: Vec<usize> = (0..graph.len()).collect();
        order.sort_by_cached_key(|at| std::cmp::Reverse(key(*at)));
        order
    })
}

fn place(graph: &Graph, order: &[usize], gap: Gap) -> Layout {
    let mut offsets = vec![UNPLACED; graph.len()];
    let mut taken = Vec::new();
    let mut height = 0;
    for at in order {
        taken.clear();
        taken.extend(graph.near(*at).filter(|other| offsets[*other] != UNPLACED).map(|other| (offsets[other], graph.sizes[other])));
        taken.sort_unstable();
        offsets[*at] = choose(&taken, graph.sizes[*at], gap);
        height = height.max(offsets[*at] + graph.sizes[*at]);
    }
    Layout { offsets, height, smallest: false, nodes: 0 }
}

/// The offset of a gap between what is taken, or above it.
fn choose(taken: &[(u64, u64)], size: u64, gap: Gap) -> u64 {
    let mut top = 0;
    let mut chosen: Option<(u64, u64)> = None;
    for (offset, bytes) in taken {
        let room = offset.saturating_sub(top);
        if room >= size && chosen.is_none_or(|(tightest, _)| room < tightest) {
            chosen = Some((room, top));
            if matches!(gap, Gap::Lowest) {
                return top;
            }
        }
        top = top.max(offset + bytes);
    }
    chosen.map_or(top, |(_, offset)| offset)
}

/// Places what ended up at the top twice as early, until that is enough.
fn repair(graph: &Graph, best: &mut Layout, mut order: Vec<usize>, gap: Gap, enough: u64, placements: u32) {
    let mut now = best.clone();
    for _ in 0..placements as usize / graph.len().max(1) {
        let top = order.iter().position(|at| now.offsets[*at] + graph.sizes[*at] == now.height).unwrap_or(0);
        if top == 0 {
            return;
        }
        order[top / 2..=top].rotate_right(1);
        now = place(graph, &order, gap);
        if now.height < best.height {
            *best = now.clone();
        }
        if best.height <= enough {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn graph(sizes: Vec<u64>, edges: &[bool]) -> Graph {
        let count = sizes.len();
        let (mut neighbours, mut starts) = (Vec::new(), vec![0]);
        for at in 0..count {
            let near = (0..count).filter(|other| *other != at && edges[at.min(*other) * count + at.max(*other)]);
            neighbours.extend(near.map(|other| u32::try_from(other).expect("few")));
            starts.push(u32::try_from(neighbours.len()).expect("few"));
        }
        Graph { sizes, neighbours, starts }
    }

    /// The lowest layout is among those in which buffers come one after another, each as low as it goes.
    fn lowest(graph: &Graph, order: &mut Vec<usize>) -> u64 {
        if order.len() == graph.len() {
            return place(graph, order, Gap::Lowest).height;
        }
        let mut best = u64::MAX;
        for at in 0..graph.len() {
            if !order.contains(&at) {
                order.push(at);
                best = best.min(lowest(graph, order));
                order.pop();
            }
        }
        best
    }

    proptest! {
        #[test]
        fn a_layout_that_is_called_the_smallest_is(sizes in vec(1..9_u64, 1..7), edges in vec(any::<bool>(), 36)) {
            let graph = graph(sizes, &edges);
            let layout = fit(&graph, 0, Effort { repairs: 0, ..Effort::default() }, Vec::new);
            prop_assert!(layout.smallest);
            prop_assert_eq!(layout.height, lowest(&graph, &mut Vec::new()));
            for at in 0..graph.len() {
                for other in graph.near(at) {
                    let (low, high) = if layout.offsets[at] < layout.offsets[other] { (at, other) } else { (other, at) };
                    prop_assert!(layout.offsets[low] + graph.sizes[low] <= layout.offsets[high]);
                }
            }
        }
    }
}
