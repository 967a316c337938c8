//! Takes a region apart, see [`super`].

use super::lives::Conflicts;

/// Buffers that are packed by themselves from a height on.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) members: Vec<u32>,
    /// Where it begins.
    pub(crate) base: u64,
    /// The least height at which it can end.
    pub(crate) bound: u64,
}

/// Gives offsets to buffers that lie below everything they are in use with; what remains.
pub(crate) fn parts(conflicts: &Conflicts, sizes: &[u64], offsets: &mut [u64]) -> Vec<Part> {
    let mut left = Vec::new();
    let mut walk = Walk { conflicts, set_of: vec![0; sizes.len()], sets: 0 };
    let mut waiting = vec![((0..u32::try_from(sizes.len()).unwrap_or(u32::MAX)).collect::<Vec<_>>(), 0)];
    while let Some((set, base)) = waiting.pop() {
        for mut members in walk.components(&set) {
            let bottom = walk.take_common(&mut members);
            let mut top = base;
            for at in &bottom {
                offsets[*at as usize] = top;
                top += sizes[*at as usize];
            }
            if !members.is_empty() && bottom.is_empty() {
                left.push(Part { members, base, bound: 0 });
            } else if !members.is_empty() {
                waiting.push((members, top));
            }
        }
    }
    left
}

struct Walk<'a> {
    conflicts: &'a Conflicts,
    /// The set that each buffer was last part of.
    set_of: Vec<u32>,
    sets: u32,
}

impl Walk<'_> {
    fn components(&mut self, set: &[u32]) -> Vec<Vec<u32>> {
        self.sets += 1;
        let whole = self.sets;
        for at in set {
            self.set_of[*at as usize] = whole;
        }
        let mut components = Vec::new();
        for start in set {
            if self.set_of[*start as usize] == whole {
                components.push(self.reach(*start, whole));
            }
        }
        components
    }

    /// What hangs together with a buffer, within a set.
    fn reach(&mut self, start: u32, whole: u32) -> Vec<u32> {
        self.sets += 1;
        let component = self.sets;
        let mut members = vec![start];
        self.set_of[start as usize] = component;
        let mut next = 0;
        while let Some(at) = members.get(next).copied() {
            next += 1;
            for other in self.conflicts.of(at) {
                if self.set_of[*other as usize] == whole {
                    self.set_of[*other as usize] = component;
                    members.push(*other);
                }
            }
        }
        members.sort_unstable();
        members
    }

    /// Takes those out of a component that are in conflict with all others of it.
    fn take_common(&self, members: &mut Vec<u32>) -> Vec<u32> {
        let component = members.first().map(|at| self.set_of[*at as usize]);
        let others = members.len() - 1;
        let degree = |at: u32| self.conflicts.of(at).iter().filter(|other| Some(self.set_of[**other as usize]) == component).count();
        members.extract_if(.., |at| degree(*at) == others).collect()
    }
}
