//! Where buffers lie: one arena on the device, one in host memory for each region there.

use std::collections::BTreeSet;

use fv_device::cuda::Device;
use fv_device::cuda::device::{Operand, Place};
use fv_device::cuda::memory::{DeviceArena, HostArena};
use fv_spec::program::{Program, Tier, View};

use super::super::memory::index;
use super::{Failure, Trouble};

/// What nobody has written: no number in any format.
const POISON: u8 = 0xFF;

/// Where a region lies.
enum Home {
    /// Nothing that is executed uses it.
    Unused,
    /// So many bytes from the start of the device's arena.
    Device(u64),
    Host(HostArena),
}

/// All memory of an execution.
pub(super) struct Memory {
    pub(super) device: DeviceArena,
    homes: Vec<Home>,
    /// Segments before which everything has to end: their regions lie where others lay.
    pub(super) changes: BTreeSet<usize>,
    pub(super) notes: Vec<String>,
}

/// When a region is used: the first and the last of the selected segments.
type Life = Option<(usize, usize)>;

impl Memory {
    pub(super) fn reserve(program: &Program, device: &Device, selected: &[usize]) -> Result<Self, Failure> {
        let lives = lives(program, selected);
        let (places, bytes) = places(program, &lives);
        let arena = device.arena(bytes)?;
        arena.fill(POISON)?;
        let mut notes = Vec::new();
        let mut homes = Vec::new();
        for ((region, life), place) in program.regions.iter().zip(&lives).zip(&places) {
            homes.push(match (life, region.tier) {
                (None, _) => Home::Unused,
                (Some(_), Tier::Device) => Home::Device(*place),
                (Some(_), _) => {
                    let host = device.host(region.bytes)?;
                    if let (Some(why), Tier::Pinned) = (host.refused(), region.tier) {
                        notes.push(format!("host memory of {} is not page-locked, copies from it are slow: {why}", region.name));
                    }
                    Home::Host(host)
                }
            });
        }
        let on_device = |at: &usize| program.regions[*at].tier == Tier::Device;
        let changes = (0..lives.len()).filter(on_device).filter_map(|at| lives[at]).map(|(first, _)| first).collect();
        Ok(Self { device: arena, homes, changes, notes })
    }

    /// Bytes of all arenas in host memory.
    pub(super) fn host_bytes(&self) -> u64 {
        let bytes = |home: &Home| if let Home::Host(arena) = home { arena.bytes() } else { 0 };
        self.homes.iter().map(bytes).sum()
    }

    /// A matrix where it lies.
    pub(super) fn operand(&self, program: &Program, view: &View) -> Result<Operand<'_>, Trouble> {
        let (home, offset) = self.home(program, view)?;
        let place = match home {
            Home::Device(base) => Place::Device(&self.device, base + offset),
            Home::Host(arena) => Place::Host(arena, offset),
            Home::Unused => return Err(missing(program, view)),
        };
        Ok(Operand { view: *view, place })
    }

    /// The bytes of a view's rows in host memory, without those between them.
    pub(super) fn rows(&self, program: &Program, view: &View) -> Result<Vec<u8>, Trouble> {
        let (Home::Host(arena), offset) = self.home(program, view)? else { return Err(missing(program, view)) };
        let (row, distance) = steps(view);
        let bytes = arena.slice(offset, view.span_bytes())?;
        Ok(bytes.chunks(distance).take(index(view.rows)).flat_map(|chunk| &chunk[..row]).copied().collect())
    }

    /// Rows without gaps, to where a view's rows lie in host memory.
    pub(super) fn write(&mut self, program: &Program, view: &View, rows: &[u8]) -> Result<(), Trouble> {
        let offset = self.home(program, view)?.1;
        let region = program.buffers[view.buffer as usize].region as usize;
        let Home::Host(arena) = &mut self.homes[region] else { return Err(missing(program, view)) };
        let (row, distance) = steps(view);
        let target = arena.slice_mut(offset, view.span_bytes())?;
        if row > 0 {
            target.chunks_mut(distance).zip(rows.chunks_exact(row)).for_each(|(to, from)| to[..row].copy_from_slice(from));
        }
        Ok(())
    }

    /// The region of a view, and where in it the view begins.
    fn home(&self, program: &Program, view: &View) -> Result<(&Home, u64), Trouble> {
        let buffer = &program.buffers[view.buffer as usize];
        let offset = buffer.offset_bytes.ok_or_else(|| missing(program, view))?;
        Ok((&self.homes[buffer.region as usize], offset + view.offset_bytes))
    }
}

fn missing(program: &Program, view: &View) -> Trouble {
    Trouble::Missing(format!("place where {} can be used from here", program.buffers[view.buffer as usize].name))
}

/// Bytes of a row, and from one row to the next.
fn steps(view: &View) -> (usize, usize) {
    let size = view.element.bytes();
    (index(view.columns * size), index(view.pitch * size).max(1))
}

fn lives(program: &Program, selected: &[usize]) -> Vec<Life> {
    let mut lives: Vec<Life> = vec![None; program.regions.len()];
    for &at in selected {
        for view in program.segments[at].ops.iter().flat_map(|op| op.reads.iter().chain(&op.writes)) {
            let life = &mut lives[program.buffers[view.buffer as usize].region as usize];
            *life = Some((life.map_or(at, |(first, _)| first), at));
        }
    }
    lives
}

/// Where regions of the device begin in its arena, each behind those that live when it does, and the bytes of the arena.
fn places(program: &Program, lives: &[Life]) -> (Vec<u64>, u64) {
    let mut places = vec![0; lives.len()];
    let on_device = |at: usize| program.regions[at].tier == Tier::Device;
    let end = |places: &[u64], at: usize| places[at] + program.regions[at].bytes;
    for at in (0..lives.len()).filter(|at| on_device(*at)) {
        let meets = |other: &usize| match (lives[at], lives[*other]) {
            (Some(a), Some(b)) => a.0 <= b.1 && b.0 <= a.1,
            _ => false,
        };
        places[at] = (0..at).filter(|other| on_device(*other)).filter(meets).map(|other| end(&places, other)).max().unwrap_or(0);
    }
    let used = (0..lives.len()).filter(|at| on_device(*at) && lives[*at].is_some());
    let bytes = used.map(|at| end(&places, at)).max().unwrap_or(0);
    (places, bytes)
}

#[cfg(test)]
mod tests {
    use fv_program::wan::{self, tiny};
    use fv_spec::program::Element;

    use super::*;

    #[test]
    fn parts_of_a_request_share_the_device_one_after_another() {
        let model = tiny::two_experts();
        let mut program = wan::lower(&model, &tiny::request(), &tiny::choices(&model, Element::Bf16)).expect("it can be lowered");
        fv_program::arena::pack(&mut program, fv_program::arena::Effort::default());
        let all: Vec<usize> = (0..program.segments.len()).collect();
        let lives = lives(&program, &all);
        let (places, bytes) = places(&program, &lives);
        let device: Vec<usize> = (0..places.len()).filter(|at| program.regions[*at].tier == Tier::Device).collect();
        assert_eq!(device.len(), 4, "text encoder, two experts, decoder");
        assert!(device.iter().all(|at| places[*at] == 0), "{places:?} {lives:?}");
        assert_eq!(Some(bytes), device.iter().map(|at| program.regions[*at].bytes).max());
    }

    #[test]
    fn regions_that_live_together_lie_apart() {
        let model = tiny::dense();
        let mut program = wan::lower(&model, &tiny::request(), &tiny::choices(&model, Element::Bf16)).expect("it can be lowered");
        fv_program::arena::pack(&mut program, fv_program::arena::Effort::default());
        let lives: Vec<Life> = program.regions.iter().map(|_| Some((0, 1))).collect();
        let (places, bytes) = places(&program, &lives);
        let of_device = program.regions.iter().zip(&places).filter(|(region, _)| region.tier == Tier::Device);
        let mut end = 0;
        for (region, place) in of_device {
            assert_eq!(*place, end, "{}", region.name);
            end += region.bytes;
        }
        assert_eq!(bytes, end);
    }
}
