//! Which blocks live where, given how many: those that are copied are spread evenly, so that computing the others hides their
//! copies, and those that are read are spread evenly among them.

use super::instance::{Configuration, Counts};
use super::timeline::{Place, Timeline};

/// Starts that are tried: what is spread evenly can begin anywhere.
const MOST_STARTS: u32 = 6;
/// Of these, how many are improved further.
const IMPROVED: usize = 3;
/// How far a block's place is moved at once.
const MOVED: usize = 3;
/// Blocks that are gone through, in all placements that are tried for the same counts, before the best one yet is taken.
const MOST_BLOCKS: usize = 4_000;

/// A placement with its time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Placed {
    /// All sweeps.
    pub ns: u64,
    /// Where each block lives.
    pub places: Vec<Place>,
}

/// The fastest placement of so many blocks in each place that was found. `enough`: whether a time cannot be beaten.
///
/// Even spacing is the fastest with one slot, where each copy hides behind the blocks up to the next one. What comes between sweeps,
/// the start of the first sweep, and slots and ring that do not divide their blocks make other placements a little faster; so
/// places are moved while that helps.
pub fn place(timeline: &mut Timeline, configuration: &Configuration, counts: Counts, enough: impl Fn(u64) -> bool) -> Placed {
    let blocks = configuration.blocks.count;
    let mut left = MOST_BLOCKS / (blocks * configuration.rounds).max(1) as usize;
    let mut evaluate = |places: Vec<Place>| {
        left = left.checked_sub(1)?;
        let ns = timeline.total(configuration, &places, counts.slots, counts.ring);
        Some(Placed { ns, places })
    };
    let mut found: Vec<Placed> = Vec::with_capacity(8);
    let some = |count: u32, of: u32| if count == 0 || count == of { 1 } else { usize::MAX };
    for start in starts(blocks).take(some(counts.streamed, blocks)) {
        for disk_start in starts(counts.streamed).take(some(counts.disk, counts.streamed)) {
            let placed = evaluate(even(blocks, counts, start, disk_start));
            found.extend(placed);
            if found.last().is_some_and(|placed| enough(placed.ns)) {
                return found.swap_remove(found.len() - 1);
            }
        }
    }
    found.sort();
    found.truncate(IMPROVED);
    for placed in &mut found {
        while let Some(better) = improved(placed, &mut evaluate) {
            *placed = better;
            if enough(placed.ns) {
                break;
            }
        }
    }
    found.into_iter().min().unwrap_or(Placed { ns: u64::MAX, places: even(blocks, counts, 0, 0) })
}

/// Where spreading may begin, the first block first.
fn starts(count: u32) -> impl Iterator<Item = u32> {
    let tried = count.clamp(1, MOST_STARTS);
    (0..tried).map(move |start| start * count / tried)
}

/// Blocks spread evenly. Without an offset the last of each group of neighbours is copied, which leaves the first copy most time.
fn even(blocks: u32, counts: Counts, start: u32, disk_start: u32) -> Vec<Place> {
    let spread = |of: u32, among: u32, start: u32| (0..of).map(move |index| (((index + 1) * among + start) / of - 1) % among);
    let mut places = vec![Place::Device; blocks as usize];
    let mut streamed: Vec<u32> = spread(counts.streamed, blocks, start).collect();
    streamed.sort_unstable();
    for block in &streamed {
        places[*block as usize] = Place::Pinned;
    }
    for index in spread(counts.disk, counts.streamed, disk_start) {
        places[streamed[index as usize] as usize] = Place::Disk;
    }
    places
}

/// The best placement in which one block's place is moved beyond some of its neighbours.
fn improved(placed: &Placed, evaluate: &mut impl FnMut(Vec<Place>) -> Option<Placed>) -> Option<Placed> {
    let count = placed.places.len();
    let windows = (0..count).flat_map(|from| (from + 2..=count.min(from + 1 + MOVED)).map(move |to| from..to));
    let moved = windows.flat_map(|window| {
        let mut forth = placed.places.clone();
        let mut back = placed.places.clone();
        forth[window.clone()].rotate_right(1);
        back[window].rotate_left(1);
        [forth, back]
    });
    moved.filter(|places| *places != placed.places).map_while(evaluate).min().filter(|best| best.ns < placed.ns)
}
