//! Regions as arrays of bytes. What no buffer occupies holds poison, bytes of ones, which are no number in any format; so does a
//! buffer until it is written. A buffer is occupied from the first operation that uses it to the last one, in the order in which
//! they happen to run, so that two buffers at one place which nothing keeps apart are found out.

use std::collections::{BTreeMap, HashMap, HashSet};

use fv_device::reference::Operand;
use fv_spec::program::{BufferId, Op, OpIndex, Program, Tier, View};
use thiserror::Error;

use super::Failure;
use super::queue::Instance;

/// What nobody has written.
const POISON: u8 = 0xFF;
/// Poison before and after each region.
const MARGIN: usize = 4096;

/// What is wrong with the memory that an operation uses.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Fault {
    /// Two buffers at one place.
    #[error("{buffer} begins at a place that {other} still occupies")]
    Occupied {
        /// The one that begins.
        buffer: String,
        /// The one that is there.
        other: String,
    },
    /// A buffer of which the last use is over or the first is yet to come.
    #[error("{0} is used outside its life")]
    Dead(String),
    /// A view that leaves the region.
    #[error("an operand in {0} leaves its region")]
    Outside(String),
    /// Bytes that belong to no buffer were written.
    #[error("byte {byte} of region {region}, which no buffer occupies, was written")]
    Gap {
        /// The region.
        region: String,
        /// From its start, negative where it lies before.
        byte: i64,
    },
}

/// What was occupied of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Occupied {
    /// Its name.
    pub region: String,
    /// The memory.
    pub tier: Tier,
    /// Its size.
    pub planned_bytes: u64,
    /// The largest sum of buffers that were occupied together.
    pub live_bytes: u64,
    /// The end of the highest buffer that was occupied.
    pub reached_bytes: u64,
}

/// All regions of a program.
#[derive(Debug)]
pub struct Memory {
    regions: Vec<Region>,
    /// Of each buffer.
    places: Vec<Place>,
    /// Of each buffer, whether it begins and ends in each repetition of its segment.
    repeated: Vec<bool>,
    /// Of each buffer, by how many operations it is used in one life.
    uses: Vec<u32>,
    /// Uses that are left of each buffer that is there, by its repetition.
    left: HashMap<(BufferId, u32), u32>,
    /// Lives that are over.
    over: HashSet<(BufferId, u32)>,
}

#[derive(Debug, Clone)]
struct Place {
    region: usize,
    offset: u64,
    bytes: u64,
    name: String,
    life: std::ops::RangeInclusive<OpIndex>,
}

#[derive(Debug)]
struct Region {
    bytes: Vec<u8>,
    /// Buffers that are there, by offset.
    live: BTreeMap<u64, BufferId>,
    live_bytes: u64,
    most_bytes: u64,
    reached_bytes: u64,
}

impl Memory {
    /// Reserves all regions.
    pub fn new(program: &Program) -> Result<Self, Failure> {
        let places = program.buffers.iter().map(|buffer| {
            let region = index(u64::from(buffer.region));
            let end = buffer.offset_bytes.and_then(|offset| offset.checked_add(buffer.bytes));
            let fits = program.regions.get(region).zip(end).is_some_and(|(region, end)| end <= region.bytes);
            let offset = buffer.offset_bytes.filter(|_| fits).ok_or_else(|| Failure::Place(buffer.name.clone()))?;
            Ok(Place { region, offset, bytes: buffer.bytes, name: buffer.name.clone(), life: buffer.first..=buffer.last })
        });
        let places = places.collect::<Result<Vec<_>, Failure>>()?;
        let regions = program.regions.iter().map(|region| Region {
            bytes: vec![POISON; index(region.bytes) + 2 * MARGIN],
            live: BTreeMap::new(),
            live_bytes: 0,
            most_bytes: 0,
            reached_bytes: 0,
        });
        let (repeated, uses) = lives(program);
        Ok(Self { regions: regions.collect(), places, left: HashMap::new(), uses, repeated, over: HashSet::new() })
    }

    /// An operation is about to run: buffers that nobody has used yet begin.
    pub(super) fn begin(&mut self, op: &Op, instance: &Instance) -> Result<(), Fault> {
        for buffer in buffers(op) {
            let place = self.places.get(buffer as usize).ok_or_else(|| Fault::Dead(format!("buffer {buffer}")))?;
            let life = self.life(buffer, instance);
            if !place.life.contains(&instance.op) || self.over.contains(&life) {
                return Err(Fault::Dead(place.name.clone()));
            }
            if !self.left.contains_key(&life) {
                self.occupy(buffer)?;
                self.left.insert(life, self.uses[buffer as usize]);
            }
        }
        Ok(())
    }

    /// An operation has run: buffers that nobody will use any more end, and are poisoned.
    pub(super) fn end(&mut self, op: &Op, instance: &Instance) {
        for buffer in buffers(op) {
            let life = self.life(buffer, instance);
            if let Some(left) = self.left.get_mut(&life) {
                *left -= 1;
                if *left == 0 {
                    self.left.remove(&life);
                    self.over.insert(life);
                    self.vacate(buffer);
                }
            }
        }
    }

    /// One life of a buffer.
    fn life(&self, buffer: BufferId, instance: &Instance) -> (BufferId, u32) {
        (buffer, if self.repeated[buffer as usize] { instance.repetition } else { 0 })
    }

    fn occupy(&mut self, buffer: BufferId) -> Result<(), Fault> {
        let place = &self.places[buffer as usize];
        let region = &mut self.regions[place.region];
        let before = region.live.range(..=place.offset).next_back().map(|(_, other)| *other);
        let after = region.live.range(place.offset..).next().map(|(_, other)| *other);
        let overlaps = |other: &BufferId| {
            let other = &self.places[*other as usize];
            other.offset < place.offset + place.bytes && place.offset < other.offset + other.bytes
        };
        if let Some(other) = before.filter(overlaps).or_else(|| after.filter(overlaps)) {
            let other = self.places[other as usize].name.clone();
            return Err(Fault::Occupied { buffer: place.name.clone(), other });
        }
        region.live.insert(place.offset, buffer);
        region.live_bytes += place.bytes;
        region.most_bytes = region.most_bytes.max(region.live_bytes);
        region.reached_bytes = region.reached_bytes.max(place.offset + place.bytes);
        Ok(())
    }

    fn vacate(&mut self, buffer: BufferId) {
        let place = &self.places[buffer as usize];
        let region = &mut self.regions[place.region];
        region.live.remove(&place.offset);
        region.live_bytes -= place.bytes;
        let start = MARGIN + index(place.offset);
        region.bytes[start..start + index(place.bytes)].fill(POISON);
    }

    /// Where a view lies in its region's array.
    fn span(&self, view: &View) -> Result<(usize, std::ops::Range<usize>), Fault> {
        let place = &self.places[view.buffer as usize];
        let start = MARGIN + index(place.offset + view.offset_bytes);
        let end = start + index(view.span_bytes());
        if end > self.regions[place.region].bytes.len() {
            return Err(Fault::Outside(place.name.clone()));
        }
        Ok((place.region, start..end))
    }

    /// A matrix where it lies.
    pub(super) fn operand(&self, view: &View) -> Result<Operand<'_>, Fault> {
        let (region, span) = self.span(view)?;
        let bytes = &self.regions[region].bytes[span];
        Ok(Operand { bytes, element: view.element, rows: index(view.rows), columns: index(view.columns), pitch: index(view.pitch) })
    }

    /// The bytes of a view's rows, without those between them.
    pub(super) fn rows(&self, view: &View) -> Result<Vec<u8>, Fault> {
        let (region, span) = self.span(view)?;
        let (bytes, row) = (&self.regions[region].bytes[span], index(view.columns * view.element.bytes()));
        let distance = index(view.pitch * view.element.bytes()).max(1);
        Ok(bytes.chunks(distance).take(index(view.rows)).flat_map(|chunk| &chunk[..row]).copied().collect())
    }

    /// Rows without gaps, to where a view's rows lie.
    pub(super) fn write(&mut self, view: &View, rows: &[u8]) -> Result<(), Fault> {
        let (region, span) = self.span(view)?;
        let (row, distance) = (index(view.columns * view.element.bytes()), index(view.pitch * view.element.bytes()));
        let target = &mut self.regions[region].bytes[span];
        if row > 0 {
            target.chunks_mut(distance.max(1)).zip(rows.chunks_exact(row)).for_each(|(to, from)| to[..row].copy_from_slice(from));
        }
        Ok(())
    }

    /// Every byte that no buffer occupies still holds poison, in all regions that an operation wrote to.
    pub(super) fn check_gaps(&self, program: &Program, op: &Op) -> Result<(), Fault> {
        let mut written: Vec<usize> = op.writes.iter().map(|view| self.places[view.buffer as usize].region).collect();
        written.sort_unstable();
        written.dedup();
        for (region, planned) in written.into_iter().map(|at| (&self.regions[at], &program.regions[at])) {
            let mut from = 0;
            let ends = region.live.values().map(|buffer| {
                let place = &self.places[*buffer as usize];
                let start = MARGIN + index(place.offset);
                (start, start + index(place.bytes))
            });
            for (start, end) in ends.chain([(region.bytes.len(), region.bytes.len())]) {
                if let Some(at) = first_written(&region.bytes[from..start]) {
                    let signed = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
                    let byte = signed(from + at) - signed(MARGIN);
                    return Err(Fault::Gap { region: planned.name.clone(), byte });
                }
                from = end;
            }
        }
        Ok(())
    }

    /// What was occupied so far.
    pub(super) fn occupied(&self, program: &Program) -> Vec<Occupied> {
        let pairs = self.regions.iter().zip(&program.regions);
        pairs
            .map(|(region, planned)| Occupied {
                region: planned.name.clone(),
                tier: planned.tier,
                planned_bytes: planned.bytes,
                live_bytes: region.most_bytes,
                reached_bytes: region.reached_bytes,
            })
            .collect()
    }
}

/// The first byte that is not poison. Pages are compared as a whole.
fn first_written(bytes: &[u8]) -> Option<usize> {
    const PAGE: [u8; 4096] = [POISON; 4096];
    let page = bytes.chunks(PAGE.len()).position(|page| *page != PAGE[..page.len()])?;
    let within = bytes[page * PAGE.len()..].iter().position(|byte| *byte != POISON)?;
    Some(page * PAGE.len() + within)
}

/// The buffers of an operation, each once.
fn buffers(op: &Op) -> Vec<BufferId> {
    let mut buffers: Vec<BufferId> = op.reads.iter().chain(&op.writes).map(|view| view.buffer).collect();
    buffers.sort_unstable();
    buffers.dedup();
    buffers
}

/// Of each buffer, whether it begins and ends in each repetition, and how often it is used in one life.
fn lives(program: &Program) -> (Vec<bool>, Vec<u32>) {
    let mut repeated = vec![false; program.buffers.len()];
    let mut uses = vec![0; program.buffers.len()];
    let mut first: OpIndex = 0;
    for segment in &program.segments {
        let end = first + OpIndex::try_from(segment.ops.len()).unwrap_or(OpIndex::MAX);
        for (buffer, repeated) in program.buffers.iter().zip(&mut repeated) {
            *repeated |= buffer.first >= first && buffer.last < end;
        }
        for buffer in segment.ops.iter().flat_map(buffers).map(|buffer| buffer as usize) {
            if let Some(uses) = uses.get_mut(buffer) {
                *uses += if repeated[buffer] { 1 } else { segment.repeat };
            }
        }
        first = end;
    }
    (repeated, uses)
}

/// Bytes and extents of what lies in memory, as indices.
///
/// # Panics
/// When they are beyond the address space.
pub(super) fn index(value: u64) -> usize {
    usize::try_from(value).expect("what lies in memory has an index")
}
