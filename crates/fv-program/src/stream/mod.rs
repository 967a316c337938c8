//! The weights of one component under a [`Residency`]: where each block lies, and how it comes to the device in time.
//!
//! ```text
//!            load                                             every pass
//! resident   file ─► staging (page-locked) ─► own buffer      nothing
//! pinned     file ─► own page-locked buffer                   ─► slot
//! disk       nothing                                          file ─► ring (page-locked) ─► slot
//! ```
//!
//! A *pass* goes through blocks in an order that is known before. Blocks that are not resident take slots in turn. A slot's next
//! block is copied as soon as the block in it was left, so that with n slots copies run n blocks ahead; the first blocks of the
//! pass that follows are copied at the end of a pass. Places of the ring are filled again as soon as they were copied.
//!
//! What happens at the end of a pass is what happened before it, event by event: therefore a segment that is one pass can be
//! repeated as it stands, if it says that it is followed by itself.
//!
//! ```ignore
//! let mut weights = Weights::load(builder, &component, &residency, regions);
//! weights.prepare(builder, &order); // copies of the first blocks, before the segment
//! builder.segment(StageName::Denoising, "step", steps - 1, 0);
//! weights.pass(builder, &order, &order); // followed by itself; `&[]` for the last pass
//! for block in order {
//!     weights.enter(builder, block);
//!     let matrix = weights.matrix(builder, "attn1.to_q.weight"); // dequantised where it is stored in eight bits
//!     builder.op(..); // on `matrix.view`, `weights.tensor(builder, "attn1.to_q.bias")`, `weights.root(builder, "proj_out.weight")`
//!     matrix.free(builder);
//!     weights.leave(builder);
//! }
//! weights.free(builder);
//! ```

pub mod component;

use fv_spec::program::{BufferId, BufferKind, Element, EventId, Group, Kernel, Stream, Tier, View};

use crate::build::Builder;
use crate::refused::Refused;
use crate::wan::choice::Residency;
pub use component::{Block, Component, Parameter};

/// Resident weights are loaded in pieces of at most this many bytes, so that loading needs little page-locked memory.
pub const PIECE_BYTES: u64 = 64 << 20;

/// Memory for the weights of a component, and for what is computed with them.
#[derive(Debug, Clone, Copy)]
pub struct Regions {
    /// On the device.
    pub device: u32,
    /// Page-locked host memory.
    pub pinned: u32,
}

impl Regions {
    /// Regions of a part, such as `transformer`.
    pub fn new(builder: &mut Builder, name: &str) -> Self {
        Self { device: builder.region(name, Tier::Device), pinned: builder.region(name, Tier::Pinned) }
    }
}

/// What is wrong with a residency for so many blocks.
pub fn check(residency: &Residency, field: &str, blocks: u64) -> Vec<Refused> {
    let mut refused = Vec::new();
    let mut refuse = |code, part: &str, message: String| refused.push(Refused::new(code, format!("{field}.{part}"), message));
    let count = |tier| residency.tiers.iter().filter(|&&at| at == tier).count() as u64;
    let (pinned, disk) = (count(Tier::Pinned), count(Tier::Disk));
    if residency.tiers.len() as u64 != blocks {
        refuse("residency.blocks", "tiers", format!("{} blocks have a place, but the component has {blocks}", residency.tiers.len()));
    }
    if count(Tier::Pageable) > 0 {
        refuse("residency.tier", "tiers", "a block lies on the device, in pinned memory or on disk, not in pageable memory".to_owned());
    }
    for (part, places, streamed, what) in
        [("slots", residency.slots, pinned + disk, "not on the device"), ("ring", residency.ring, disk, "on disk")]
    {
        let allowed = if streamed == 0 { 0..=0 } else { 1..=streamed };
        if !allowed.contains(&u64::from(places)) {
            let code = if part == "slots" { "residency.slots" } else { "residency.ring" };
            let allowed = if streamed == 0 { "0".to_owned() } else { format!("1 to {streamed}") };
            refuse(code, part, format!("{places} places for {streamed} blocks that are {what}; {allowed} would do"));
        }
    }
    refused
}

/// Where a block lies.
#[derive(Debug, Clone, Copy)]
enum Source {
    Resident(BufferId),
    Pinned(BufferId),
    Disk,
}

#[derive(Debug)]
struct Home {
    group: u32,
    prefix: String,
    source: Source,
}

/// A place on the device for a block that does not live there.
#[derive(Debug)]
struct Slot {
    buffer: BufferId,
    /// Recorded when a block was copied.
    ready: EventId,
    /// Recorded when the last block in it was left.
    freed: Option<EventId>,
    busy: bool,
}

/// A place in the ring.
#[derive(Debug)]
struct Place {
    buffer: BufferId,
    /// Recorded when a block was read.
    read: EventId,
    /// Recorded when the last block in it was copied.
    copied: Option<EventId>,
    busy: bool,
}

/// A block that passes through a slot.
#[derive(Debug)]
struct Use {
    block: usize,
    slot: usize,
    place: Option<usize>,
}

/// The block whose weights are at hand.
#[derive(Debug, Clone, Copy)]
struct Inside {
    block: usize,
    buffer: BufferId,
    slot: Option<usize>,
}

/// A matrix of weights as numbers that can be multiplied.
#[derive(Debug)]
#[must_use]
pub struct Matrix {
    /// The numbers, `[outputs x inputs]`.
    pub view: View,
    workspace: Option<BufferId>,
}

impl Matrix {
    /// The last operation that was issued is the last one that needs it.
    pub fn free(self, builder: &mut Builder) {
        if let Some(buffer) = self.workspace {
            builder.free(buffer);
        }
    }
}

/// The weights of one component.
#[derive(Debug)]
pub struct Weights {
    regions: Regions,
    root: Option<(u32, BufferId)>,
    homes: Vec<Home>,
    slots: Vec<Slot>,
    ring: Vec<Place>,
    uses: Vec<Use>,
    /// Uses before these were read, copied and left.
    read: usize,
    copied: usize,
    left: usize,
    inside: Option<Inside>,
}

impl Weights {
    /// Loads a component: resident weights to the device, pinned ones to host memory. Operations of the compute stream that are
    /// issued from here on wait for it.
    ///
    /// # Panics
    /// When [`check`] refuses the residency.
    pub fn load(builder: &mut Builder, component: &Component, residency: &Residency, regions: Regions) -> Self {
        assert!(check(residency, "", component.blocks.len() as u64).is_empty(), "the residency was checked before");
        let root = (!component.root.is_empty()).then(|| {
            let group = builder.group(component.root_group());
            (group, own(builder, regions.device, "root", group))
        });
        let groups: Vec<_> = (0..component.blocks.len()).map(|block| builder.group(component.block_group(block))).collect();
        let resident: Vec<_> = std::iter::zip(&groups, &residency.tiers)
            .enumerate()
            .map(|(at, (&group, tier))| (*tier == Tier::Device).then(|| own(builder, regions.device, &format!("blocks.{at}"), group)))
            .collect();
        let moved = root.into_iter().chain(std::iter::zip(&groups, &resident).filter_map(|(&group, buffer)| Some((group, (*buffer)?))));
        load_resident(builder, regions.pinned, &moved.collect::<Vec<_>>());
        let mut homes = Vec::new();
        for (at, (block, group)) in std::iter::zip(&component.blocks, groups).enumerate() {
            let source = match (resident[at], residency.tiers[at]) {
                (Some(buffer), _) => Source::Resident(buffer),
                (None, Tier::Disk) => Source::Disk,
                (None, _) => Source::Pinned(own(builder, regions.pinned, &format!("blocks.{at}"), group)),
            };
            homes.push(Home { group, prefix: block.prefix.clone(), source });
        }
        load_pinned(builder, &homes);
        let (uses, inside) = (Vec::new(), None);
        let mut weights = Self { regions, root, homes, slots: vec![], ring: vec![], uses, read: 0, copied: 0, left: 0, inside };
        weights.reserve(builder, residency);
        weights
    }

    /// Slots and the ring, each place as large as the largest block that passes through.
    fn reserve(&mut self, builder: &mut Builder, residency: &Residency) {
        let largest = |on: &dyn Fn(Source) -> bool| {
            let homes = self.homes.iter().filter(|home| on(home.source));
            homes.map(|home| builder.group_at(home.group).bytes).max().unwrap_or(0)
        };
        let (slot, place) = (largest(&|at| !matches!(at, Source::Resident(_))), largest(&|at| matches!(at, Source::Disk)));
        self.slots = (0..residency.slots)
            .map(|at| {
                let buffer = builder.buffer(self.regions.device, &format!("slot.{at}"), BufferKind::Weights, slot);
                Slot { buffer, ready: builder.event(), freed: None, busy: false }
            })
            .collect();
        self.ring = (0..residency.ring)
            .map(|at| {
                let buffer = builder.buffer(self.regions.pinned, &format!("ring.{at}"), BufferKind::Staging, place);
                Place { buffer, read: builder.event(), copied: None, busy: false }
            })
            .collect();
    }

    /// Announces the first pass, and issues the copies of its first blocks: before the segment that goes through it, so that this
    /// segment can be repeated.
    pub fn prepare(&mut self, builder: &mut Builder, order: &[usize]) {
        self.announce(order);
        self.advance(builder);
    }

    /// Begins the pass through blocks in this order that was announced; `next` is the order of the pass that follows, empty where
    /// it is the last one.
    ///
    /// # Panics
    /// When another order was announced, or the pass before was not gone through.
    pub fn pass(&mut self, builder: &mut Builder, order: &[usize], next: &[usize]) {
        let streamed = order.iter().filter(|&&block| !matches!(self.homes[block].source, Source::Resident(_)));
        assert!(self.uses[self.left..].iter().map(|used| used.block).eq(streamed.copied()), "a pass is what was announced");
        self.announce(next);
        self.advance(builder);
    }

    fn announce(&mut self, order: &[usize]) {
        let (mut streamed, mut from_disk) = (0, 0);
        for &block in order {
            let place = match self.homes[block].source {
                Source::Resident(_) => continue,
                Source::Pinned(_) => None,
                Source::Disk => {
                    from_disk += 1;
                    Some((from_disk - 1) % self.ring.len())
                }
            };
            self.uses.push(Use { block, slot: streamed % self.slots.len(), place });
            streamed += 1;
        }
    }

    /// Issues all reads and copies whose places are free, in the order in which they are needed. Reads come first: whatever is
    /// copied was read, since places are only taken by blocks that are needed earlier.
    fn advance(&mut self, builder: &mut Builder) {
        while self.read_next(builder) || self.copy_next(builder) {}
    }

    fn read_next(&mut self, builder: &mut Builder) -> bool {
        while self.uses.get(self.read).is_some_and(|used| used.place.is_none()) {
            self.read += 1;
        }
        let Some(used) = self.uses.get(self.read) else { return false };
        let Some(place) = used.place.map(|at| &mut self.ring[at]).filter(|place| !place.busy) else { return false };
        if let Some(copied) = place.copied {
            builder.wait_on(Stream::Disk, copied);
        }
        place.busy = true;
        read_group(builder, self.homes[used.block].group, used.block, place.buffer);
        builder.record(place.read);
        self.read += 1;
        true
    }

    fn copy_next(&mut self, builder: &mut Builder) -> bool {
        let Some(used) = self.uses.get(self.copied) else { return false };
        let slot = &mut self.slots[used.slot];
        if slot.busy {
            return false;
        }
        if let Some(freed) = slot.freed {
            builder.wait_on(Stream::CopyIn, freed);
        }
        let home = &self.homes[used.block];
        let from = match (home.source, used.place.map(|at| &mut self.ring[at])) {
            (_, Some(place)) => {
                builder.wait_on(Stream::CopyIn, place.read);
                (place.busy, place.copied) = (false, Some(slot.ready));
                place.buffer
            }
            (Source::Pinned(buffer) | Source::Resident(buffer), None) => buffer,
            (Source::Disk, None) => unreachable!("blocks on disk have a place in the ring"),
        };
        slot.busy = true;
        copy_group(builder, home.group, used.block, from, slot.buffer);
        builder.record(slot.ready);
        self.copied += 1;
        true
    }

    /// The weights of a block are at hand from here on; operations that are issued belong to it.
    ///
    /// # Panics
    /// When the pass has another block next.
    pub fn enter(&mut self, builder: &mut Builder, block: usize) {
        builder.block(Some(block as u64));
        let (buffer, slot) = if let Source::Resident(buffer) = self.homes[block].source {
            (buffer, None)
        } else {
            let used = &self.uses[self.left];
            assert!(used.block == block && self.copied > self.left, "blocks are entered in the order of the pass");
            builder.wait_on(Stream::Compute, self.slots[used.slot].ready);
            (self.slots[used.slot].buffer, Some(used.slot))
        };
        self.inside = Some(Inside { block, buffer, slot });
    }

    /// The last operation of the compute stream was the last one that needs the block.
    ///
    /// # Panics
    /// When no block was entered.
    pub fn leave(&mut self, builder: &mut Builder) {
        let inside = self.inside.take().expect("a block was entered");
        builder.block(None);
        if let Some(slot) = inside.slot {
            (self.slots[slot].busy, self.slots[slot].freed) = (false, builder.done(Stream::Compute));
            self.left += 1;
            self.advance(builder);
        }
    }

    /// A tensor outside blocks, by its whole name: `[1 x n]` for a vector, otherwise its first extent is that of rows.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn root(&self, builder: &Builder, name: &str) -> View {
        let (group, buffer) = self.root.expect("the component has weights outside blocks");
        view(builder.group_at(group), buffer, "", name)
    }

    /// A tensor of the block that was entered, by its name within the block, as it is stored.
    ///
    /// # Panics
    /// When there is none of this name.
    pub fn tensor(&self, builder: &Builder, name: &str) -> View {
        let inside = self.inside.expect("a block was entered");
        let home = &self.homes[inside.block];
        view(builder.group_at(home.group), inside.buffer, &home.prefix, name)
    }

    /// A matrix of the block that was entered: as it is stored, or, where it is stored in eight bits, as numbers in a workspace.
    pub fn matrix(&self, builder: &mut Builder, name: &str) -> Matrix {
        let rows = self.tensor(builder, name).rows;
        self.matrix_rows(builder, name, 0, rows)
    }

    /// Some rows of a matrix, which give as many columns of a product.
    pub fn matrix_rows(&self, builder: &mut Builder, name: &str, first: u64, rows: u64) -> Matrix {
        let stored = self.tensor(builder, name).row_range(first, rows);
        if !matches!(stored.element, Element::Fp8 | Element::Int8) {
            return Matrix { view: stored, workspace: None };
        }
        let scales = self.tensor(builder, &format!("{name}.scale")).column_range(first, rows);
        let element = builder.formats().compute;
        let buffer = builder.buffer(self.regions.device, "weight", BufferKind::Workspace, stored.len() * element.bytes());
        let view = View::matrix(buffer, element, stored.rows, stored.columns);
        builder.op(Stream::Compute, Kernel::Dequantise, vec![stored, scales], vec![view]);
        Matrix { view, workspace: Some(buffer) }
    }

    /// The last operation that was issued is the last one that needs the component.
    pub fn free(self, builder: &mut Builder) {
        let homes = self.homes.iter().filter_map(|home| match home.source {
            Source::Resident(buffer) | Source::Pinned(buffer) => Some(buffer),
            Source::Disk => None,
        });
        let places = self.slots.iter().map(|slot| slot.buffer).chain(self.ring.iter().map(|place| place.buffer));
        for buffer in self.root.iter().map(|root| root.1).chain(homes).chain(places) {
            builder.free(buffer);
        }
    }
}

/// A buffer for a whole group.
fn own(builder: &mut Builder, region: u32, name: &str, group: u32) -> BufferId {
    let bytes = builder.group_at(group).bytes;
    builder.buffer(region, name, BufferKind::Weights, bytes)
}

/// Loads groups to the device, piece by piece through two page-locked places.
fn load_resident(builder: &mut Builder, region: u32, moved: &[(u32, BufferId)]) {
    let pieces: Vec<_> =
        moved.iter().flat_map(|&(group, buffer)| pieces(builder.group_at(group)).map(move |at| (group, buffer, at))).collect();
    let mut places: Vec<_> = (0..pieces.len().min(2))
        .map(|at| {
            let bytes = pieces.iter().skip(at).step_by(2).map(|(_, _, (_, bytes))| *bytes).max().unwrap_or(0);
            let buffer = builder.buffer(region, &format!("staging.{at}"), BufferKind::Staging, bytes);
            (buffer, builder.event(), builder.event(), false)
        })
        .collect();
    for (at, &(group, buffer, (first_byte, bytes))) in pieces.iter().enumerate() {
        let block = builder.group_at(group).block.map(u64::from);
        let (place, read, copied, used) = &mut places[at % 2];
        if std::mem::replace(used, true) {
            builder.wait_on(Stream::Disk, *copied);
        }
        let staged = bytes_of(*place, 0, bytes);
        builder.op_of("weights", block, Stream::Disk, Kernel::Read { group, first_byte }, vec![], vec![staged]);
        builder.record(*read);
        builder.wait_on(Stream::CopyIn, *read);
        builder.op_of("weights", block, Stream::CopyIn, Kernel::Copy, vec![staged], vec![bytes_of(buffer, first_byte, bytes)]);
        builder.record(*copied);
    }
    if let Some(last) = pieces.len().checked_sub(1) {
        let loaded = places[last % 2].2;
        builder.wait_on(Stream::Compute, loaded);
        builder.wait_on(Stream::Disk, loaded); // what is read next may lie where these pieces were
    }
    for (place, ..) in places {
        builder.free(place);
    }
}

/// Reads pinned blocks; copies that are issued from here on wait for them.
fn load_pinned(builder: &mut Builder, homes: &[Home]) {
    let mut any = false;
    for (block, home) in homes.iter().enumerate() {
        if let Source::Pinned(buffer) = home.source {
            read_group(builder, home.group, block, buffer);
            any = true;
        }
    }
    if any && let Some(read) = builder.done(Stream::Disk) {
        builder.wait_on(Stream::CopyIn, read);
    }
}

/// Where pieces of a group begin, and their bytes.
fn pieces(group: &Group) -> impl Iterator<Item = (u64, u64)> + use<> {
    let bytes = group.bytes;
    (0..bytes.div_ceil(PIECE_BYTES)).map(move |at| (at * PIECE_BYTES, PIECE_BYTES.min(bytes - at * PIECE_BYTES)))
}

fn read_group(builder: &mut Builder, group: u32, block: usize, to: BufferId) {
    let bytes = builder.group_at(group).bytes;
    let kernel = Kernel::Read { group, first_byte: 0 };
    builder.op_of("weights", Some(block as u64), Stream::Disk, kernel, vec![], vec![bytes_of(to, 0, bytes)]);
}

fn copy_group(builder: &mut Builder, group: u32, block: usize, from: BufferId, to: BufferId) {
    let bytes = builder.group_at(group).bytes;
    let (from, to) = (bytes_of(from, 0, bytes), bytes_of(to, 0, bytes));
    builder.op_of("weights", Some(block as u64), Stream::CopyIn, Kernel::Copy, vec![from], vec![to]);
}

fn bytes_of(buffer: BufferId, offset_bytes: u64, bytes: u64) -> View {
    View { offset_bytes, ..View::matrix(buffer, Element::U8, 1, bytes) }
}

/// A tensor of a group that lies in a buffer.
fn view(group: &Group, buffer: BufferId, prefix: &str, name: &str) -> View {
    let found = group.tensors.iter().find(|tensor| tensor.name.strip_prefix(prefix) == Some(name));
    let tensor = found.unwrap_or_else(|| panic!("there is no tensor {prefix}{name}"));
    let elements: u64 = tensor.shape.iter().product();
    let first = tensor.shape.first().copied().unwrap_or(1);
    let rows = if elements == first { 1 } else { first };
    View { offset_bytes: tensor.offset_bytes, ..View::matrix(buffer, tensor.element, rows, elements / rows) }
}
