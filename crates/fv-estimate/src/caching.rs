//! PyTorch's CUDA caching allocator, replayed.
//!
//! [`Replay`] takes the allocations and frees of a program and answers with what the allocator would hold for them: which
//! segments it asks the driver for, how it splits and merges blocks, what it gives back, and when it raises out of memory.
//! It is a reading of the public behaviour of `c10/cuda/CUDACachingAllocator.cpp`, written anew; its constants are those of
//! torch 2.11.0 (`c10/core/AllocatorConfig.h`), and `tests/data/allocator` holds traces of that version which it reproduces
//! event for event.
//!
//! # How the allocator works
//!
//! * A request is rounded up to 512 bytes, or to a fraction of a power of two where that is configured.
//! * Requests of at most 1 MiB live in the small pool, larger ones in the large pool. A block never changes its pool or its
//!   stream.
//! * The smallest cached block of the pool and stream that is big enough is taken, the lowest address among equals. What is
//!   left over stays cached if it is at least 512 bytes (small pool, expandable segments) or more than 1 MiB (large pool).
//! * Without such a block a segment comes from the driver: 2 MiB for a small request, 20 MiB below 10 MiB, else the request
//!   rounded up to 2 MiB.
//! * If that fails, oversize blocks are given back first (only with `max_split_size`), then every segment without a block
//!   in use, and the request is tried again; then it is out of memory.
//! * A freed block merges with its free neighbours in the segment. A block that other streams used waits for them first.
//! * Expandable segments are address ranges larger than the device, one for each pool and stream. They are mapped in pages
//!   of a segment's size as they fill, and unmapped page by page.
//!
//! # Addresses
//!
//! Among cached blocks of one size the lowest address wins, so where the driver puts a segment can matter. A replay places
//! segments as `cudaMalloc` was seen to do with driver 580.159.04 in a process that maps nothing else: in chunks of 32 MiB
//! from the top of the address space down, with the room left in a chunk used first. [`Replay::place_next`] gives it the
//! addresses of a recorded run instead.
//!
//! Not modelled: private pools (CUDA graphs, `MemPool`), other devices, IPC, `backend:cudaMallocAsync`, and turning
//! expandable segments on or off halfway.

use std::{collections::VecDeque, fmt, hint::select_unpredictable, num::NonZeroU32};

mod plain;

pub(crate) use plain::Plain;

/// Every block is a multiple of this (`kMinBlockSize`, torch 2.11.0).
pub const MIN_BLOCK: u64 = 512;
/// The largest request of the small pool (`kSmallSize`, torch 2.11.0).
pub const SMALL_REQUEST: u64 = 1 << 20;
/// A segment of the small pool (`kSmallBuffer`, torch 2.11.0).
pub const SMALL_SEGMENT: u64 = 2 << 20;
/// From this size on a request gets a segment of its own size (`kMinLargeAlloc`, torch 2.11.0).
pub const LARGE_REQUEST: u64 = 10 << 20;
/// Segments of their own size are multiples of this (`kRoundLarge`, torch 2.11.0).
pub const SEGMENT_ROUNDING: u64 = 2 << 20;
/// A segment of the large pool for a request under [`LARGE_REQUEST`] (`large_segment_size_mb`'s default, torch 2.11.0).
pub const LARGE_SEGMENT: u64 = 20 << 20;
/// The driver takes address space in multiples of this (seen with driver 580.159.04).
const CHUNK: u64 = 32 << 20;
/// The end of the address space: as for a 64-bit process, and a multiple of [`CHUNK`].
const ADDRESS_END: u64 = 1 << 47;
/// How many size intervals `roundup_power2_divisions` tells apart: up to 1 MiB, 2 MiB, 4 MiB and so on.
pub const POWER2_INTERVALS: usize = 16;

/// The allocator's settings and the memory it may use, all in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What the driver can hand out in all; a request above it fails. `None`: it never fails.
    pub capacity: Option<u64>,
    /// What the allocator allows itself: `set_per_process_memory_fraction`'s share of the device, rounded down.
    /// Expandable segments exceed it by up to a page: it is compared with the request, not with the pages that it takes.
    pub allowed: Option<u64>,
    /// Bytes reserved above which unused segments are collected before new ones are asked for:
    /// `garbage_collection_threshold` of [`allowed`](Self::allowed), rounded down. Without effect where that is `None`.
    pub gc_threshold: Option<u64>,
    /// Blocks of this size and more are never split (`max_split_size_mb`).
    pub max_split_size: Option<u64>,
    /// How much larger than its request an unsplittable block may be (`max_non_split_rounding_mb`).
    pub max_non_split_rounding: u64,
    /// The segment for a request between 1 and 10 MiB, and the page of the large expandable segments
    /// (`large_segment_size_mb`). Less than 10 MiB counts as 10 MiB, since such requests must fit.
    pub large_segment: u64,
    /// Steps between two powers of two, by size interval (`roundup_power2_divisions`); under 2: round up to 512 bytes.
    pub power2_divisions: [u64; POWER2_INTERVALS],
    /// Whether new memory comes as expandable segments (`expandable_segments`).
    pub expandable: bool,
    /// The device's memory: an expandable segment's address range is 9/8 of it.
    pub device_total: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            capacity: None,
            allowed: None,
            gc_threshold: None,
            max_split_size: None,
            max_non_split_rounding: LARGE_SEGMENT,
            large_segment: LARGE_SEGMENT,
            power2_divisions: [0; POWER2_INTERVALS],
            expandable: false,
            device_total: 1 << 40,
        }
    }
}

impl Config {
    /// What a request becomes: a multiple of [`MIN_BLOCK`], or a step between two powers of two. `None` on overflow.
    pub fn round(&self, size: u64) -> Option<u64> {
        if size < MIN_BLOCK {
            return Some(MIN_BLOCK);
        }
        let divisions = self.power2_divisions[interval(size)];
        if divisions > 1 && divisions.checked_mul(MIN_BLOCK).is_some_and(|least| size > least) {
            round_to_division(size, divisions)
        } else {
            size.checked_next_multiple_of(MIN_BLOCK)
        }
    }

    /// The segment asked for when nothing cached fits a rounded request. `None` on overflow.
    pub fn segment_for(&self, size: u64) -> Option<u64> {
        if size <= SMALL_REQUEST {
            Some(SMALL_SEGMENT)
        } else if size < LARGE_REQUEST {
            self.large_page()
        } else {
            size.checked_next_multiple_of(SEGMENT_ROUNDING)
        }
    }

    fn page(&self, pool: Pool) -> Option<u64> {
        match pool {
            Pool::Small => Some(SMALL_SEGMENT),
            Pool::Large => self.large_page(),
        }
    }

    fn large_page(&self) -> Option<u64> {
        self.large_segment.max(LARGE_REQUEST).checked_next_multiple_of(MIN_BLOCK)
    }

    fn collects(&self) -> bool {
        self.allowed.is_some() && self.gc_threshold.is_some_and(|bytes| bytes > 0)
    }
}

/// Which entry of `power2_divisions` a size falls under: the power of two below it, counted from 1 MiB.
fn interval(size: u64) -> usize {
    let above_a_mib = size.max(1).ilog2().saturating_sub(20);
    usize::try_from(above_a_mib).map_or(POWER2_INTERVALS - 1, |index| index.min(POWER2_INTERVALS - 1))
}

fn round_to_division(size: u64, divisions: u64) -> Option<u64> {
    if size.is_power_of_two() {
        return Some(size);
    }
    let floor = 1_u64 << size.ilog2();
    let step = floor >> divisions.ilog2();
    if step == 0 { floor.checked_mul(2) } else { size.checked_next_multiple_of(step) }
}

/// A stream, by a number of the caller's; 0 is the default stream. Streams are walked in this order, as handles are there.
pub type Stream = u32;

/// The two pools of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pool {
    /// Requests of at most [`SMALL_REQUEST`].
    Small,
    /// Everything larger.
    Large,
}

/// A block in use. It stays valid until it is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    slot: Slot,
    serial: NonZeroU32,
}

/// The request could not be met, although all that could be given back was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The request, as it was made.
    pub requested: u64,
    /// Bytes in use when it failed.
    pub allocated: u64,
    /// Bytes held when it failed.
    pub reserved: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requested, allocated, reserved } = self;
        write!(f, "out of memory: {requested} bytes requested with {allocated} allocated and {reserved} reserved")
    }
}

impl std::error::Error for OutOfMemory {}

/// The block is no longer in use: it was freed before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownBlock;

impl fmt::Display for UnknownBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the block is not in use")
    }
}

impl std::error::Error for UnknownBlock {}

/// A number and the largest it has been.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Level {
    /// Now.
    pub current: u64,
    /// The largest since the start, or since [`Replay::reset_peaks`].
    pub peak: u64,
}

impl Level {
    fn add(&mut self, amount: u64) {
        self.current = self.current.saturating_add(amount);
        self.peak = self.peak.max(self.current);
    }

    fn sub(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
    }
}

/// What one pool, or both together, hold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    /// Bytes of blocks in use (`allocated_bytes`).
    pub allocated: Level,
    /// Bytes of blocks in use or waiting for another stream (`active_bytes`).
    pub active: Level,
    /// Bytes held from the driver (`reserved_bytes`).
    pub reserved: Level,
    /// Bytes of blocks in use as they were asked for, before rounding (`requested_bytes`).
    pub requested: Level,
    /// Free bytes of segments that cannot be given back, without expandable ones (`inactive_split_bytes`).
    pub inactive_split: Level,
    /// Blocks in use (`allocation`).
    pub blocks: Level,
    /// Segments held, without expandable ones (`segment`).
    pub segments: Level,
}

/// The allocator's statistics, named as `torch.cuda.memory_stats` names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Both pools. Its peaks are of the sum, not the sum of the pools' peaks.
    pub all: PoolStats,
    /// The small pool.
    pub small: PoolStats,
    /// The large pool.
    pub large: PoolStats,
    /// How often all cached memory was given back to try a request again (`num_alloc_retries`).
    pub retries: u64,
    /// How often a request failed (`num_ooms`).
    pub ooms: u64,
    /// Segments and ranges the driver handed out (`num_device_alloc`).
    pub device_allocs: u64,
    /// Segments and ranges the driver took back (`num_device_free`).
    pub device_frees: u64,
}

/// What passed between the allocator and the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// A segment was handed out (`segment_alloc`).
    SegmentAlloc,
    /// A segment was given back (`segment_free`).
    SegmentFree,
    /// Part of an expandable segment was mapped (`segment_map`).
    Map,
    /// Part of an expandable segment was unmapped (`segment_unmap`).
    Unmap,
}

/// One exchange with the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub action: Action,
    /// Where.
    pub address: u64,
    /// How much.
    pub size: u64,
    /// For which stream.
    pub stream: Stream,
}

/// An index into [`Replay::blocks`].
type Slot = u32;
/// The first slot holds no block: links lead there where there is nothing, and may be followed and set without asking.
const NONE: Slot = 0;

/// A piece of a segment: in use, waiting, cached, or address space without memory. One line of the processor's cache.
#[derive(Debug, Clone)]
#[repr(align(64))]
struct Block {
    address: u64,
    size: u64,
    requested: u64,
    /// The pool's searches when the block was last cached: its age is counted from there.
    cached_at: u64,
    /// Its neighbours in the segment. Of a vacant slot, `next` is another one.
    previous: Slot,
    next: Slot,
    /// Its neighbours in its bin, while it is cached.
    lower: Slot,
    higher: Slot,
    /// The bin that it is in, while it is cached.
    bin: u16,
    /// Which block in use this is; 0 if it is not.
    serial: u32,
    /// Its pool and stream: an index into [`Replay::lists`].
    list: u32,
    state: State,
    /// Whether streams other than its own used it.
    shared: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Handed out.
    Used,
    /// Freed, but other streams may still be at work on it.
    Waiting,
    /// Cached.
    Free,
    /// Address space of an expandable segment without memory behind it.
    Unmapped,
    /// Not a block: the slot can be reused.
    Vacant,
}

impl Block {
    const VACANT: Self = Self {
        address: 0,
        size: 0,
        requested: 0,
        cached_at: 0,
        previous: NONE,
        next: NONE,
        lower: NONE,
        higher: NONE,
        bin: 0,
        serial: 0,
        list: 0,
        state: State::Vacant,
        shared: false,
    };
    /// The block of no slot: larger than all others, it ends every search.
    const NONE: Self = Self { size: u64::MAX, ..Self::VACANT };

    #[inline]
    fn is_split(&self) -> bool {
        self.previous | self.next != NONE
    }

    #[inline]
    fn pool(&self) -> Pool {
        pool_of(self.list)
    }

    /// The order of best fit.
    #[inline]
    fn rank(&self) -> u128 {
        u128::from(self.size) << 64 | u128::from(self.address)
    }
}

/// Lists come in pairs: a stream's small pool and its large one.
#[inline]
fn pool_of(list: u32) -> Pool {
    if list.is_multiple_of(2) { Pool::Small } else { Pool::Large }
}

/// Bins of a pool: 64 between two powers of two, and as often as that at most.
const BINS: usize = 64 * 64;

/// The bin of a block's size. The smallest sizes have one each; later ones share one with sizes up to 1/64 larger.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the largest size is in bin 3199")]
fn bin_of(size: u64) -> u16 {
    let units = size / MIN_BLOCK;
    let shift = (units / 64).max(1).ilog2();
    (u64::from(shift * 64) + (units >> shift)) as u16
}

/// What one pool of one stream has cached. It keeps only which bins have blocks and which is the first of each: the blocks
/// of a bin link to each other, in the order of best fit.
#[derive(Debug, Clone)]
struct List {
    stream: Stream,
    /// A bit for each word of `filled` that is not 0 or was not.
    words: u64,
    /// A bit for each bin that is not empty.
    filled: [u64; 64],
    /// The first block of each bin, or none.
    first: [Slot; BINS],
    /// Where address space without memory lies, in order of address.
    unmapped: Vec<(u64, Slot)>,
}

impl List {
    fn new(stream: Stream) -> Self {
        Self { stream, words: 0, filled: [0; 64], first: [NONE; BINS], unmapped: Vec::new() }
    }

    fn clear(&mut self) {
        for (first, filled) in self.first.chunks_mut(64).zip(&mut self.filled) {
            if *filled != 0 {
                first.fill(NONE);
                *filled = 0;
            }
        }
        self.words = 0;
        self.unmapped.clear();
    }

    /// The first block of the first bin from this one on that is not empty, or none.
    #[inline]
    fn first_from(&self, bin: u16) -> Slot {
        let (mut word, bit) = (usize::from(bin) / 64 % 64, bin % 64);
        let mut bits = self.filled[word] & (u64::MAX << bit);
        let mut later = self.words & (u64::MAX << 1 << word);
        while bits == 0 {
            if later == 0 {
                return NONE;
            }
            word = later.trailing_zeros() as usize % 64;
            bits = self.filled[word];
            later &= later - 1;
        }
        self.first[(word * 64 + bits.trailing_zeros() as usize) % BINS]
    }

    /// The smallest block of at least this size, the lowest among equals, or none.
    #[inline]
    fn at_least(&self, blocks: &[Block], size: u64) -> Slot {
        let bin = bin_of(size);
        let mut slot = self.first_from(bin);
        if blocks[slot as usize].size >= size {
            return slot;
        }
        // It shares the request's bin, and so may others.
        while blocks[slot as usize].size < size {
            slot = blocks[slot as usize].higher;
        }
        if slot == NONE { self.first_from(bin + 1) } else { slot }
    }

    /// The block that comes after another, or none.
    fn after(&self, block: &Block) -> Slot {
        if block.higher == NONE { self.first_from(block.bin + 1) } else { block.higher }
    }

    /// Adds a block. Here and where one is taken out, a branch would be mispredicted too often.
    #[inline]
    fn insert(&mut self, blocks: &mut [Block], slot: Slot) {
        let block = &blocks[slot as usize];
        let (rank, bin) = (block.rank(), bin_of(block.size));
        let first = &mut self.first[usize::from(bin) % BINS];
        let (mut lower, mut higher) = (NONE, *first);
        while blocks[higher as usize].rank() < rank {
            lower = higher;
            higher = blocks[higher as usize].higher;
        }
        *first = select_unpredictable(lower == NONE, slot, *first);
        blocks[lower as usize].higher = slot;
        blocks[higher as usize].lower = slot;
        let block = &mut blocks[slot as usize];
        block.bin = bin;
        block.lower = lower;
        block.higher = higher;
        let word = usize::from(bin) / 64 % 64;
        self.filled[word] |= 1 << (bin % 64);
        self.words |= 1 << word;
    }

    /// Takes out a block.
    #[inline]
    fn remove(&mut self, blocks: &mut [Block], slot: Slot) {
        let Block { bin, lower, higher, .. } = blocks[slot as usize];
        blocks[lower as usize].higher = higher;
        blocks[higher as usize].lower = lower;
        let first = &mut self.first[usize::from(bin) % BINS];
        *first = select_unpredictable(lower == NONE, higher, *first);
        let word = usize::from(bin) / 64 % 64;
        self.filled[word] &= !(u64::from(*first == NONE) << (bin % 64));
    }

    /// The place among the unmapped blocks of the first that is not below the address.
    fn unmapped_at(&self, address: u64) -> usize {
        self.unmapped.partition_point(|&(other, _)| other < address)
    }
}

/// A range of addresses.
#[derive(Debug, Clone, Copy)]
struct Range {
    start: u64,
    size: u64,
}

impl Range {
    fn end(self) -> u64 {
        self.start + self.size
    }
}

/// A range the driver took from the address space.
#[derive(Debug, Clone, Copy)]
struct Chunk {
    range: Range,
    /// Bytes of it that something lies in.
    used: u64,
}

/// Where a driver puts segments. Addresses that it did not choose are none of its business. Everything is listed from the
/// highest address down.
#[derive(Debug, Clone)]
struct AddressSpace {
    /// What nothing lies in.
    gaps: Vec<Range>,
    chunks: Vec<Chunk>,
    /// The room left in chunks.
    rooms: Vec<Range>,
    /// No room is larger than this.
    largest_room: u64,
}

impl AddressSpace {
    const ALL: Range = Range { start: 0, size: ADDRESS_END };

    fn new() -> Self {
        Self { gaps: vec![Self::ALL], chunks: Vec::new(), rooms: Vec::new(), largest_room: 0 }
    }

    fn clear(&mut self) {
        self.gaps.clear();
        self.gaps.push(Self::ALL);
        self.chunks.clear();
        self.rooms.clear();
        self.largest_room = 0;
    }

    /// The lowest room left that is large enough, else a new chunk in the highest gap.
    fn place(&mut self, size: u64) -> Option<u64> {
        if let Some(start) = self.place_in_room(size) {
            return Some(start);
        }
        let length = size.checked_next_multiple_of(CHUNK)?;
        let at = self.gaps.iter().position(|gap| gap.size >= length)?;
        let gap = &mut self.gaps[at];
        gap.size -= length;
        let chunk = Range { start: gap.end(), size: length };
        if gap.size == 0 {
            self.gaps.remove(at);
        }
        self.add_chunk(chunk, size);
        if length > size {
            self.add_room(Range { start: chunk.start + size, size: length - size }, chunk);
        }
        Some(chunk.start)
    }

    fn place_in_room(&mut self, size: u64) -> Option<u64> {
        if size > self.largest_room {
            return None;
        }
        let Some(at) = self.rooms.iter().rposition(|room| room.size >= size) else {
            self.largest_room = self.rooms.iter().map(|room| room.size).max().unwrap_or(0);
            return None;
        };
        let room = &mut self.rooms[at];
        let start = room.start;
        room.start += size;
        room.size -= size;
        if room.size == 0 {
            self.rooms.remove(at);
        }
        let chunk = self.chunk_at(start);
        if let Some(chunk) = self.chunks.get_mut(chunk) {
            chunk.used += size;
        }
        Some(start)
    }

    fn add_room(&mut self, room: Range, chunk: Range) {
        let size = insert_merged(&mut self.rooms, room, chunk);
        self.largest_room = self.largest_room.max(size);
    }

    /// Address space alone, at the lowest gap.
    fn reserve(&mut self, size: u64) -> Option<u64> {
        let length = size.checked_next_multiple_of(CHUNK)?;
        let at = self.gaps.iter().rposition(|gap| gap.size >= length)?;
        let gap = &mut self.gaps[at];
        let chunk = Range { start: gap.start, size: length };
        gap.start += length;
        gap.size -= length;
        if gap.size == 0 {
            self.gaps.remove(at);
        }
        self.add_chunk(chunk, size);
        Some(chunk.start)
    }

    /// A segment or an address range goes; with the last of a chunk, the chunk.
    fn give_back(&mut self, address: u64, size: u64) {
        let at = self.chunk_at(address);
        let Some(chunk) = self.chunks.get_mut(at).filter(|chunk| address < chunk.range.end()) else { return };
        let range = chunk.range;
        chunk.used = chunk.used.saturating_sub(size);
        if chunk.used > 0 {
            self.add_room(Range { start: address, size }, range);
            return;
        }
        self.chunks.remove(at);
        let first = self.rooms.partition_point(|room| room.start >= range.end());
        let last = self.rooms.partition_point(|room| room.start >= range.start);
        self.rooms.drain(first..last);
        insert_merged(&mut self.gaps, range, Self::ALL);
    }

    fn add_chunk(&mut self, range: Range, used: u64) {
        let at = self.chunk_at(range.start);
        self.chunks.insert(at, Chunk { range, used });
    }

    /// The place of the first chunk, from the top, that does not lie above the address.
    fn chunk_at(&self, address: u64) -> usize {
        self.chunks.partition_point(|chunk| chunk.range.start > address)
    }
}

/// Adds a range to others and joins it with those it touches inside the bounds. Returns the size of what results.
fn insert_merged(ranges: &mut Vec<Range>, mut new: Range, bounds: Range) -> u64 {
    let mut at = ranges.partition_point(|range| range.start > new.start);
    if let Some(below) = ranges.get(at).filter(|below| below.start >= bounds.start && below.end() == new.start) {
        new = Range { start: below.start, size: below.size + new.size };
        ranges.remove(at);
    }
    if at > 0 && new.end() < bounds.end() && ranges[at - 1].start == new.end() {
        at -= 1;
        new.size += ranges[at].size;
        ranges.remove(at);
    }
    ranges.insert(at, new);
    new.size
}

/// What changes with nearly every event, as differences: bytes in use, the same as asked for, blocks in use, and free bytes
/// of segments that cannot be given back.
type Change = [i64; 4];

/// Four levels, kept as what is left below their peaks. A level above its peak, so with less than nothing left, raises it
/// only when it is about to fall: few events need to look.
#[derive(Debug, Clone, Copy, Default)]
struct Gauge {
    left: Change,
    peak: Change,
}

impl Gauge {
    #[inline]
    fn shift(&mut self, change: Change) {
        for (left, by) in self.left.iter_mut().zip(change) {
            *left -= by;
        }
    }

    /// Negative if a level that may fall now is above its peak.
    #[inline]
    fn above(&self, falls: bool) -> i64 {
        let [used, requested, blocks, split] = self.left;
        if falls { used | requested | blocks | split } else { split }
    }

    fn raise_peaks(&mut self) {
        for (left, peak) in self.left.iter_mut().zip(&mut self.peak) {
            let above = (*left).min(0);
            *left -= above;
            *peak -= above;
        }
    }

    fn reset_peaks(&mut self) {
        for (left, peak) in self.left.iter_mut().zip(&mut self.peak) {
            *peak -= std::mem::take(left);
        }
    }

    fn level(&self, which: usize) -> Level {
        let (left, peak) = (self.left[which], self.peak[which]);
        let current = (peak - left).unsigned_abs();
        Level { current, peak: current.max(peak.unsigned_abs()) }
    }
}

/// What follows from the settings and is looked at in every event. What goes by pool has the small one first.
#[derive(Debug, Clone)]
struct Rules {
    /// Whether requests are rounded up to [`MIN_BLOCK`] and nothing else.
    plain: bool,
    /// Whether garbage is collected.
    collects: bool,
    /// Whether the smallest block that is large enough may not be the one to take.
    special: bool,
    /// The smallest rest of a block that is kept, by pool.
    least_rest: [u64; 2],
    /// Requests from this size on take a block whole, by pool.
    whole_from: [u64; 2],
}

impl Rules {
    fn new(config: &Config) -> Self {
        let large = if config.expandable { (MIN_BLOCK, None) } else { (SMALL_REQUEST + 1, config.max_split_size) };
        Self {
            plain: config.power2_divisions.iter().all(|&divisions| divisions < 2) && config.large_page().is_some(),
            collects: config.collects(),
            special: config.expandable || config.max_split_size.is_some(),
            least_rest: [MIN_BLOCK, large.0],
            whole_from: [u64::MAX, large.1.unwrap_or(u64::MAX)],
        }
    }
}

/// A rounded request on its way through the allocator.
#[derive(Debug, Clone, Copy)]
struct Request {
    size: u64,
    list: u32,
}

impl Request {
    #[inline]
    fn pool(&self) -> Pool {
        pool_of(self.list)
    }
}

/// The allocator's state. See the [module](self) for what it models.
#[derive(Debug, Clone)]
pub struct Replay {
    rules: Rules,
    serial: NonZeroU32,
    /// The first vacant slot.
    vacant: Slot,
    blocks: Vec<Block>,
    /// For each stream, in the order of their first use, its small pool and its large one. Stream 0 is the first.
    lists: Vec<List>,
    /// The small pool, the large one and both.
    gauges: [Gauge; 3],
    /// Searches so far where garbage is collected, by pool.
    searches: [u64; 2],
    waiting: VecDeque<BlockId>,
    /// Bytes of waiting blocks, by pool.
    waiting_bytes: [u64; 2],
    /// The largest of `active` while blocks waited; at other times it is what is allocated.
    active_peaks: [u64; 3],
    config: Config,
    /// The streams in order, each with the place of its lists.
    streams: Vec<(Stream, u32)>,
    /// Everything that the gauges do not count.
    stats: Stats,
    space: AddressSpace,
    /// Where expandable segments start.
    ranges: Vec<u64>,
    placements: VecDeque<u64>,
    events: Option<Vec<Event>>,
    /// Kept for its capacity.
    scratch: Vec<Slot>,
}

/// The gauge of both pools.
const ALL: usize = 2;

impl Replay {
    /// An allocator that holds nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            rules: Rules::new(&config),
            serial: NonZeroU32::MIN,
            vacant: NONE,
            blocks: vec![Block::NONE],
            lists: vec![List::new(0), List::new(0)],
            gauges: [Gauge::default(); 3],
            searches: [0; 2],
            waiting: VecDeque::new(),
            waiting_bytes: [0; 2],
            active_peaks: [0; 3],
            config,
            streams: vec![(0, 0)],
            stats: Stats::default(),
            space: AddressSpace::new(),
            ranges: Vec::new(),
            placements: VecDeque::new(),
            events: None,
            scratch: Vec::new(),
        }
    }

    /// Starts again as [`new`](Self::new) does, with nothing held and no events recorded, but keeps the memory of its
    /// tables. Blocks handed out before are unknown from then on.
    pub fn reset(&mut self, config: Config) {
        self.rules = Rules::new(&config);
        self.config = config;
        self.vacant = NONE;
        self.blocks.truncate(1);
        self.lists.truncate(2);
        for list in &mut self.lists {
            list.clear();
        }
        self.gauges = [Gauge::default(); 3];
        self.searches = [0; 2];
        self.waiting.clear();
        self.waiting_bytes = [0; 2];
        self.active_peaks = [0; 3];
        self.streams.clear();
        self.streams.push((0, 0));
        self.stats = Stats::default();
        self.space.clear();
        self.ranges.clear();
        self.placements.clear();
        self.events = None;
    }

    /// The settings it runs under.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes what the allocator allows itself from now on, and from where on it collects. What it holds, it keeps.
    pub fn set_allowed(&mut self, allowed: Option<u64>, gc_threshold: Option<u64>) {
        self.config.allowed = allowed;
        self.config.gc_threshold = gc_threshold;
        self.rules = Rules::new(&self.config);
    }

    /// The statistics now.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        let [small, large] = self.waiting_bytes;
        let pools = [(&mut stats.small, small), (&mut stats.large, large), (&mut stats.all, small + large)];
        for (((pool, waiting), gauge), peak) in pools.into_iter().zip(&self.gauges).zip(self.active_peaks) {
            [pool.allocated, pool.requested, pool.blocks, pool.inactive_split] = [0, 1, 2, 3].map(|which| gauge.level(which));
            if self.config.expandable {
                pool.inactive_split = Level::default();
            }
            pool.active = Level { current: pool.allocated.current + waiting, peak: pool.allocated.peak.max(peak) };
        }
        stats
    }

    /// Starts every peak again from the present.
    pub fn reset_peaks(&mut self) {
        for gauge in &mut self.gauges {
            gauge.reset_peaks();
        }
        self.active_peaks = [0; 3];
        self.note_active();
        for pool in [&mut self.stats.all, &mut self.stats.small, &mut self.stats.large] {
            for level in [&mut pool.reserved, &mut pool.segments] {
                level.peak = level.current;
            }
        }
    }

    /// The peaks of what is allocated and reserved in both pools, which start again from the present.
    pub(crate) fn take_peaks(&mut self) -> [u64; 2] {
        let peaks = [self.gauges[ALL].level(0).peak, self.stats.all.reserved.peak];
        self.reset_peaks();
        peaks
    }

    /// Keeps the exchanges with the driver from now on, for [`take_events`](Self::take_events).
    pub fn record_events(&mut self) {
        self.events.get_or_insert_default();
    }

    /// The exchanges since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Where the next segment lies; several calls queue up. The caller sees to it that places do not
    /// overlap; without one the replay chooses.
    pub fn place_next(&mut self, address: u64) {
        self.placements.push_back(address);
    }

    /// Forgets the places not taken yet.
    pub fn clear_placements(&mut self) {
        self.placements.clear();
    }

    /// The address of a block in use.
    pub fn address(&self, id: BlockId) -> Result<u64, UnknownBlock> {
        self.used(id).map(|block| block.address)
    }

    /// The size of a block in use; at least what was asked for.
    pub fn size(&self, id: BlockId) -> Result<u64, UnknownBlock> {
        self.used(id).map(|block| block.size)
    }

    /// Hands out a block for `size` bytes on a stream. (PyTorch asks for nothing where a tensor is empty; here 0 bytes are a
    /// request like another.)
    #[inline]
    pub fn alloc(&mut self, size: u64, stream: Stream) -> Result<BlockId, OutOfMemory> {
        let Some(request) = self.request(size, stream) else { return Err(self.out_of_memory(size)) };
        let cached = self.best_fit(&request);
        let slot = if cached == NONE { self.find(&request).unwrap_or(NONE) } else { cached };
        if slot == NONE {
            return Err(self.out_of_memory(size));
        }
        Ok(self.hand_out(&request, slot, size))
    }

    /// Takes a block back. It is cached, merged with its free neighbours; or it waits, if other streams used it.
    #[inline]
    pub fn free(&mut self, id: BlockId) -> Result<(), UnknownBlock> {
        let &Block { size, requested, shared, .. } = self.used(id)?;
        if shared {
            self.wait(id);
        } else {
            self.cache(id.slot, [-signed(size), -signed(requested), -1, 0]);
        }
        Ok(())
    }

    /// Notes that another stream works on the block (`record_stream`). Its own stream is ignored.
    pub fn record_use(&mut self, id: BlockId, stream: Stream) -> Result<(), UnknownBlock> {
        let own = self.stream_of(self.used(id)?.list);
        self.block_mut(id.slot).shared |= stream != own;
        Ok(())
    }

    /// The other streams are done with a freed block: it is cached.
    pub fn complete(&mut self, id: BlockId) -> Result<(), UnknownBlock> {
        let place = self.waiting.iter().position(|&waiting| waiting == id).ok_or(UnknownBlock)?;
        self.waiting.remove(place);
        self.end_wait(id.slot);
        Ok(())
    }

    /// All streams are done with all freed blocks.
    pub fn synchronize(&mut self) {
        while let Some(id) = self.waiting.pop_front() {
            self.end_wait(id.slot);
        }
    }

    /// Gives back every segment without a block in use (`empty_cache`).
    pub fn empty_cache(&mut self) {
        self.synchronize();
        self.release_pool(Pool::Large);
        self.release_pool(Pool::Small);
    }

    /// Walks all segments and says what is wrong, if anything is: gaps, overlaps, neighbours that should have merged,
    /// blocks missing from the cache, or statistics that disagree with the blocks.
    pub fn check(&self) -> Result<(), String> {
        let mut totals = PoolStats::default();
        let (mut free, mut unmapped) = (0, 0);
        let mut ranges = Vec::new();
        for (slot, block) in (0..).zip(&self.blocks).filter(|(_, block)| block.state != State::Vacant) {
            ranges.push((block.address, block.size));
            if block.size == 0 || !block.address.is_multiple_of(MIN_BLOCK) {
                return Err(format!("block of {} bytes at {}", block.size, block.address));
            }
            if block.next != NONE {
                let other = self.block(block.next);
                if other.previous != slot || block.address + block.size != other.address {
                    return Err(format!("the block after {} does not follow it", block.address));
                }
                if block.state == other.state && matches!(block.state, State::Free | State::Unmapped) {
                    return Err(format!("the free block at {} did not merge with its neighbour", block.address));
                }
            }
            if block.state == State::Used {
                totals.allocated.add(block.size);
                totals.blocks.add(1);
            }
            if matches!(block.state, State::Used | State::Waiting) {
                totals.active.add(block.size);
                totals.requested.add(block.requested);
            }
            if block.state != State::Unmapped {
                totals.reserved.add(block.size);
            }
            if !self.config.expandable {
                totals.segments.add(u64::from(block.previous == NONE));
                totals.inactive_split.add(if block.state == State::Free && block.is_split() { block.size } else { 0 });
            }
            free += usize::from(block.state == State::Free);
            unmapped += usize::from(block.state == State::Unmapped);
        }
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Err(format!("blocks overlap at {}", pair[1].0));
        }
        self.check_lists(free, unmapped)?;
        let all = &self.stats().all;
        let pairs = [
            ("allocated", all.allocated, totals.allocated),
            ("active", all.active, totals.active),
            ("requested", all.requested, totals.requested),
            ("reserved", all.reserved, totals.reserved),
            ("inactive_split", all.inactive_split, totals.inactive_split),
            ("blocks", all.blocks, totals.blocks),
            ("segments", all.segments, totals.segments),
        ];
        for (name, counted, walked) in pairs {
            if counted.current != walked.current || counted.current > counted.peak {
                return Err(format!("{name}: counted {} (peak {}), walked {}", counted.current, counted.peak, walked.current));
            }
        }
        Ok(())
    }

    /// Whether the lists hold all blocks that are free or unmapped, in their order, and nothing else.
    fn check_lists(&self, free: usize, unmapped: usize) -> Result<(), String> {
        let mut listed = 0;
        let mut slots = Vec::new();
        for (index, list) in (0..).zip(&self.lists) {
            slots.clear();
            self.cached(index, &mut slots);
            listed += slots.len();
            let blocks = slots.iter().map(|&slot| self.block(slot));
            if !blocks.clone().is_sorted_by(|a, b| a.rank() < b.rank()) {
                return Err("a cache is not in order".into());
            }
            let at = list.unmapped.iter().map(|&(address, slot)| (address, self.block(slot)));
            let foreign = blocks.clone().any(|block| block.state != State::Free || block.list != index)
                || at.clone().any(|(at, block)| block.state != State::Unmapped || block.list != index || block.address != at);
            if foreign || !list.unmapped.is_sorted() {
                return Err("a cache lists a block that is not free".into());
            }
        }
        let spaces: usize = self.lists.iter().map(|list| list.unmapped.len()).sum();
        if (listed, spaces) == (free, unmapped) { Ok(()) } else { Err("a free block is not in its cache".into()) }
    }

    /// Rounds a request. `None` if it or its segment would overflow.
    #[inline]
    fn request(&mut self, size: u64, stream: Stream) -> Option<Request> {
        let size = if self.rules.plain && size <= ADDRESS_END {
            size.max(1).div_ceil(MIN_BLOCK) * MIN_BLOCK // next_multiple_of has a branch
        } else {
            let size = self.config.round(size)?;
            self.config.segment_for(size)?;
            size
        };
        let first = if stream == 0 { 0 } else { self.lists_of(stream) };
        Some(Request { size, list: first + u32::from(size > SMALL_REQUEST) })
    }

    #[cold]
    fn out_of_memory(&mut self, requested: u64) -> OutOfMemory {
        self.stats.ooms += 1;
        OutOfMemory { requested, allocated: self.gauges[ALL].level(0).current, reserved: self.stats.all.reserved.current }
    }

    /// What the allocator does when nothing cached fits: the steps in its order, until one yields a block.
    #[inline(never)]
    fn find(&mut self, request: &Request) -> Option<Slot> {
        if self.rules.collects {
            self.collect_garbage();
        }
        if let Some(slot) = self.new_memory(request) {
            return Some(slot);
        }
        if self.release_oversize(request)
            && let Some(slot) = self.new_memory(request)
        {
            return Some(slot);
        }
        self.empty_cache();
        self.stats.retries += 1;
        self.new_memory(request)
    }

    /// The cached block that fits best, taken out of the cache, or none.
    #[inline]
    fn best_fit(&mut self, request: &Request) -> Slot {
        if self.rules.collects {
            self.searches[request.pool() as usize] += 1;
        }
        let list = &mut self.lists[request.list as usize];
        let mut slot = list.at_least(&self.blocks, request.size);
        if self.rules.special && slot != NONE {
            slot = self.special_fit(request, slot);
        }
        if slot != NONE {
            self.lists[request.list as usize].remove(&mut self.blocks, slot);
        }
        slot
    }

    /// What is taken instead of the smallest block that is large enough: with expandable segments perhaps another, with
    /// `max_split_size` perhaps none.
    #[inline(never)]
    fn special_fit(&self, request: &Request, smallest: Slot) -> Slot {
        let slot = if self.config.expandable { self.least_room(smallest) } else { smallest };
        let Some(max) = self.config.max_split_size else { return slot };
        let size = self.block(slot).size;
        let refused = if request.size >= max { size - request.size >= self.config.max_non_split_rounding } else { size >= max };
        if refused { NONE } else { slot }
    }

    /// A block at the end of an expandable segment counts with the address space behind it, so that it is kept for requests
    /// that need it to grow: a block after the best fit may be better.
    fn least_room(&self, mut slot: Slot) -> Slot {
        let list = &self.lists[self.block(slot).list as usize];
        loop {
            let other = list.after(self.block(slot));
            if other == NONE || self.room(other) >= self.room(slot) {
                return slot;
            }
            slot = other;
        }
    }

    /// A block's size with the unmapped space after it.
    fn room(&self, slot: Slot) -> u64 {
        let block = self.block(slot);
        let next = self.block(block.next);
        block.size + if next.state == State::Unmapped { next.size } else { 0 }
    }

    /// Splits the block if the rest is worth keeping, and hands it out.
    #[inline]
    fn hand_out(&mut self, request: &Request, slot: Slot, requested: u64) -> BlockId {
        let Request { size, list } = *request;
        let pool = request.pool() as usize;
        let block = &mut self.blocks[slot as usize];
        let Block { address, size: whole, previous, .. } = *block;
        let was_split = block.is_split();
        let rest = whole - size;
        let serial = self.serial;
        self.serial = serial.checked_add(1).unwrap_or(NonZeroU32::MIN);
        let (given, size, unused) = if rest >= self.rules.least_rest[pool] && size < self.rules.whole_from[pool] {
            // The rest keeps the block's slot; the part handed out is new and comes before it.
            block.address = address + size;
            block.size = rest;
            let part = Block { address, size, requested, previous, next: slot, list, state: State::Used, ..Block::VACANT };
            let given = self.add_block(Block { serial: serial.get(), ..part });
            let blocks = &mut self.blocks[..];
            blocks[previous as usize].next = given;
            let block = &mut blocks[slot as usize];
            block.previous = given;
            block.cached_at = self.searches[pool];
            self.lists[list as usize].insert(blocks, slot);
            (given, size, if was_split { -signed(size) } else { signed(rest) })
        } else {
            block.state = State::Used;
            block.requested = requested;
            block.serial = serial.get();
            (slot, whole, if was_split { -signed(whole) } else { 0 })
        };
        self.count(pool, [signed(size), signed(requested), 1, unused], false);
        if !self.waiting.is_empty() {
            self.note_active();
        }
        BlockId { slot: given, serial }
    }

    /// Caches a block that is no longer used, merged with its free neighbours. `change` is what else is to be counted.
    #[inline]
    fn cache(&mut self, slot: Slot, mut change: Change) {
        let blocks = &mut self.blocks[..];
        let Block { mut address, mut size, mut previous, mut next, list, .. } = blocks[slot as usize];
        let pool = list as usize % 2;
        let list = &mut self.lists[list as usize];
        let mut merged = 0;
        let before = &blocks[previous as usize];
        if before.state == State::Free {
            let gone = previous;
            address = before.address;
            merged = before.size;
            previous = before.previous;
            blocks[previous as usize].next = slot;
            list.remove(blocks, gone);
            vacate(blocks, &mut self.vacant, gone);
        }
        let after = &blocks[next as usize];
        if after.state == State::Free {
            let gone = next;
            merged += after.size;
            next = after.next;
            blocks[next as usize].previous = slot;
            list.remove(blocks, gone);
            vacate(blocks, &mut self.vacant, gone);
        }
        size += merged;
        let block = &mut blocks[slot as usize];
        block.state = State::Free;
        block.serial = 0;
        block.address = address;
        block.size = size;
        block.previous = previous;
        block.next = next;
        block.cached_at = self.searches[pool];
        // One change, so that the peak is not that of a moment in between.
        change[3] = if block.is_split() { signed(size) } else { 0 } - signed(merged);
        list.insert(blocks, slot);
        self.count(pool, change, true);
    }

    /// A freed block waits for other streams.
    #[cold]
    fn wait(&mut self, id: BlockId) {
        let block = self.block_mut(id.slot);
        block.state = State::Waiting;
        block.serial = 0;
        let (pool, size) = (block.pool() as usize, block.size);
        self.waiting.push_back(id);
        self.waiting_bytes[pool] += size;
        self.count(pool, [-signed(size), 0, -1, 0], true);
    }

    fn end_wait(&mut self, slot: Slot) {
        let block = self.block_mut(slot);
        block.shared = false;
        let (pool, size, requested) = (block.pool() as usize, block.size, block.requested);
        self.waiting_bytes[pool] -= size;
        self.cache(slot, [0, -signed(requested), 0, 0]);
    }

    /// Merges a cached or unmapped neighbour of the same kind into a block that is in no list.
    fn merge(&mut self, into: Slot, from: Slot) {
        let Block { address, size, previous, next, state, .. } = *self.block(from);
        if state != self.block(into).state {
            return;
        }
        self.uncache(from);
        let block = self.block_mut(into);
        block.size += size;
        if block.previous == from {
            block.address = address;
            block.previous = previous;
            self.block_mut(previous).next = into;
        } else {
            block.next = next;
            self.block_mut(next).previous = into;
        }
        self.remove_block(from);
    }

    /// Merges with both neighbours.
    fn merge_both(&mut self, slot: Slot) {
        let Block { previous, next, .. } = *self.block(slot);
        self.merge(slot, previous);
        self.merge(slot, next);
    }

    /// A segment from the driver, or more of an expandable one.
    fn new_memory(&mut self, request: &Request) -> Option<Slot> {
        let segment = self.config.segment_for(request.size)?;
        let reserved = self.stats.all.reserved.current;
        let wanted = reserved.checked_add(segment)?;
        if self.config.allowed.is_some_and(|allowed| wanted > allowed) {
            return None;
        }
        if self.config.expandable {
            return self.grow(request);
        }
        if self.config.capacity.is_some_and(|capacity| wanted > capacity) {
            return None;
        }
        let address = self.place(segment)?;
        let slot = self.add_block(Block { address, size: segment, list: request.list, state: State::Free, ..Block::VACANT });
        self.count_held(request.pool(), |stats| {
            stats.segments.add(1);
            stats.reserved.add(segment);
        });
        self.exchange(Action::SegmentAlloc, address, segment, request.list);
        Some(slot)
    }

    /// The lowest place of an expandable segment with room for the request, mapped as far as needed.
    fn grow(&mut self, request: &Request) -> Option<Slot> {
        let mut slot = self.expandable_room(request)?;
        if self.block(slot).state == State::Unmapped {
            self.map(slot, self.block(slot).size.min(request.size))?;
        }
        while self.block(slot).size < request.size {
            // Free space followed by unmapped space: mapping that merges the two.
            let missing = request.size - self.block(slot).size;
            let next = self.block(slot).next;
            if next == NONE {
                return None;
            }
            self.map(next, self.block(next).size.min(missing))?;
            slot = next;
        }
        self.uncache(slot);
        Some(slot)
    }

    fn expandable_room(&mut self, request: &Request) -> Option<Slot> {
        for &(_, slot) in &self.lists[request.list as usize].unmapped {
            let before = self.block(slot).previous;
            let start = if self.is_open(before) { before } else { slot };
            let (mut bytes, mut at) = (0, start);
            while bytes < request.size && self.is_open(at) {
                bytes += self.block(at).size;
                at = self.block(at).next;
            }
            if bytes >= request.size {
                return Some(start);
            }
        }
        let page = self.config.page(request.pool())?;
        let total = self.config.device_total;
        let range = total.checked_add(total / 8)?.checked_next_multiple_of(page)?;
        if range < request.size {
            return None;
        }
        let address = self.place_range(range)?;
        self.ranges.push(address);
        let segment = Block { address, size: range, list: request.list, state: State::Unmapped, ..Block::VACANT };
        let slot = self.add_block(segment);
        self.cache_block(slot);
        Some(slot)
    }

    /// Whether an expandable segment can grow over the block.
    fn is_open(&self, slot: Slot) -> bool {
        matches!(self.block(slot).state, State::Free | State::Unmapped)
    }

    /// Maps the pages under the first `size` bytes of an unmapped block and caches them.
    fn map(&mut self, slot: Slot, size: u64) -> Option<()> {
        let Block { address, size: whole, list, next, .. } = *self.block(slot);
        let mapped = size.checked_next_multiple_of(self.config.page(pool_of(list))?)?;
        let wanted = self.stats.all.reserved.current.checked_add(mapped)?;
        if mapped == 0 || self.config.capacity.is_some_and(|capacity| wanted > capacity) {
            return None;
        }
        self.uncache(slot);
        self.block_mut(slot).state = State::Free;
        if mapped < whole {
            let rest = self.add_block(Block {
                address: address + mapped,
                size: whole - mapped,
                previous: slot,
                next,
                list,
                state: State::Unmapped,
                ..Block::VACANT
            });
            self.block_mut(next).previous = rest;
            let block = self.block_mut(slot);
            block.next = rest;
            block.size = mapped;
            self.cache_block(rest);
        }
        self.merge_both(slot);
        self.cache_block(slot);
        self.count_held(pool_of(list), |stats| stats.reserved.add(mapped));
        self.exchange(Action::Map, address, mapped, list);
        Some(())
    }

    /// Unmaps the whole pages inside a cached block. Pages that it shares with its neighbours stay.
    fn unmap(&mut self, slot: Slot) {
        let Block { address, size, list, previous, next, .. } = *self.block(slot);
        let base = self.ranges.iter().copied().filter(|&start| start <= address).max();
        let (Some(page), Some(base)) = (self.config.page(pool_of(list)), base) else { return };
        let offset = address - base;
        let end = offset + size;
        let (first, last) = (offset.next_multiple_of(page), end - end % page);
        if first >= last {
            return;
        }
        self.uncache(slot);
        let cached = Block { list, state: State::Free, ..Block::VACANT };
        if first > offset {
            let before = self.add_block(Block { address, size: first - offset, previous, next: slot, ..cached.clone() });
            self.block_mut(previous).next = before;
            self.block_mut(slot).previous = before;
            self.cache_block(before);
        }
        if last < end {
            let after = self.add_block(Block { address: base + last, size: end - last, previous: slot, next, ..cached });
            self.block_mut(next).previous = after;
            self.block_mut(slot).next = after;
            self.cache_block(after);
        }
        let block = self.block_mut(slot);
        block.address = base + first;
        block.size = last - first;
        block.state = State::Unmapped;
        self.merge_both(slot);
        self.cache_block(slot);
        self.count_held(pool_of(list), |stats| stats.reserved.sub(last - first));
        self.exchange(Action::Unmap, base + first, last - first, list);
    }

    /// Before asking for more, gives back large segments that were cached for long, once over the threshold.
    fn collect_garbage(&mut self) {
        let threshold = self.config.gc_threshold.unwrap_or(u64::MAX);
        let Some(target) = self.stats.all.reserved.current.checked_sub(threshold).filter(|&target| target > 0) else {
            return;
        };
        let age = |replay: &Self, slot: Slot| replay.searches[Pool::Large as usize] - replay.block(slot).cached_at;
        let mut whole = Vec::new();
        self.cached_of_pool(Pool::Large, &mut whole);
        whole.retain(|&slot| !self.block(slot).is_split());
        let mut ages: u64 = whole.iter().map(|&slot| age(self, slot)).sum();
        let mut reclaimed = 0;
        while reclaimed < target && !whole.is_empty() {
            // Everything of at least the average age goes, whatever the target: collecting often would cost more.
            let (sum, number) = (u128::from(ages), whole.len() as u128);
            let (old, young): (Vec<Slot>, Vec<Slot>) = whole.iter().partition(|&&slot| u128::from(age(self, slot)) * number >= sum);
            if old.is_empty() {
                break;
            }
            for slot in old {
                reclaimed += self.block(slot).size;
                ages -= age(self, slot);
                self.release_segment(slot);
            }
            whole = young;
        }
    }

    /// With `max_split_size`: gives back oversize blocks of the request's stream, the best fit alone if one is large
    /// enough, else from the largest down until their sum is. Expandable segments are left alone.
    fn release_oversize(&mut self, request: &Request) -> bool {
        let Some(max) = self.config.max_split_size.filter(|_| !self.config.expandable) else { return false };
        let size = request.size.max(max);
        let slot = self.lists[request.list as usize].at_least(&self.blocks, size);
        if slot != NONE {
            self.release_segment(slot);
            return true;
        }
        let mut slots = std::mem::take(&mut self.scratch);
        self.cached(request.list, &mut slots);
        let mut released = 0;
        while let Some(slot) = slots.pop().filter(|&slot| released < size && self.block(slot).size >= max) {
            released += self.block(slot).size;
            self.release_segment(slot);
        }
        slots.clear();
        self.scratch = slots;
        released >= size
    }

    /// Gives back what a pool can give back: its whole segments, then the whole pages of its expandable ones.
    fn release_pool(&mut self, pool: Pool) {
        let mut slots = std::mem::take(&mut self.scratch);
        self.cached_of_pool(pool, &mut slots);
        // What happens to one leaves the others that are listed alone.
        for &slot in &slots {
            if !self.config.expandable {
                if !self.block(slot).is_split() {
                    self.release_segment(slot);
                }
                continue;
            }
            self.unmap(slot);
            let block = self.block(slot);
            if block.state == State::Unmapped && !block.is_split() {
                // Nothing is left of the segment but its address range, which goes too.
                let (address, size) = (block.address, block.size);
                self.space.give_back(address, size);
                self.ranges.retain(|&start| start != address);
                self.uncache(slot);
                self.remove_block(slot);
            }
        }
        slots.clear();
        self.scratch = slots;
    }

    fn release_segment(&mut self, slot: Slot) {
        let Block { address, size, list, .. } = *self.block(slot);
        self.uncache(slot);
        self.remove_block(slot);
        self.space.give_back(address, size);
        self.count_held(pool_of(list), |stats| {
            stats.segments.sub(1);
            stats.reserved.sub(size);
        });
        self.exchange(Action::SegmentFree, address, size, list);
    }

    fn exchange(&mut self, action: Action, address: u64, size: u64, list: u32) {
        match action {
            Action::SegmentAlloc | Action::Map => self.stats.device_allocs += 1,
            Action::SegmentFree | Action::Unmap => self.stats.device_frees += 1,
        }
        let stream = self.stream_of(list);
        if let Some(events) = &mut self.events {
            events.push(Event { action, address, size, stream });
        }
    }

    /// An address for a segment; `None` if the address space is full.
    fn place(&mut self, size: u64) -> Option<u64> {
        let address = self.placements.pop_front().or_else(|| self.space.place(size))?;
        in_signed_range(address, size)
    }

    /// An address range for an expandable segment.
    fn place_range(&mut self, size: u64) -> Option<u64> {
        let address = self.placements.pop_front().or_else(|| self.space.reserve(size))?;
        in_signed_range(address, size)
    }

    fn count_held(&mut self, pool: Pool, mut change: impl FnMut(&mut PoolStats)) {
        change(&mut self.stats.all);
        change(match pool {
            Pool::Small => &mut self.stats.small,
            Pool::Large => &mut self.stats.large,
        });
    }

    /// Counts a change in a pool. `falls`: whether more may fall than the free bytes that cannot be given back, which may
    /// fall with any event.
    #[inline]
    fn count(&mut self, pool: usize, change: Change, falls: bool) {
        if self.gauges[pool].above(falls) | self.gauges[ALL].above(falls) < 0 {
            self.gauges[pool].raise_peaks();
            self.gauges[ALL].raise_peaks();
        }
        self.gauges[pool].shift(change);
        self.gauges[ALL].shift(change);
    }

    /// Looks whether there is more in use and waiting than ever.
    #[cold]
    fn note_active(&mut self) {
        let [small, large] = self.waiting_bytes;
        for ((peak, gauge), waiting) in self.active_peaks.iter_mut().zip(&self.gauges).zip([small, large, small + large]) {
            *peak = (*peak).max(gauge.level(0).current + waiting);
        }
    }

    /// The place of a stream's lists.
    #[inline(never)]
    fn lists_of(&mut self, stream: Stream) -> u32 {
        match self.streams.binary_search_by_key(&stream, |&(other, _)| other) {
            Ok(at) => self.streams[at].1,
            Err(at) => {
                let list = number(self.lists.len());
                self.lists.push(List::new(stream));
                self.lists.push(List::new(stream));
                self.streams.insert(at, (stream, list));
                list
            }
        }
    }

    fn stream_of(&self, list: u32) -> Stream {
        self.lists[list as usize].stream
    }

    /// The cached blocks of a list, in the order of best fit.
    fn cached(&self, list: u32, into: &mut Vec<Slot>) {
        let list = &self.lists[list as usize];
        let mut slot = list.first_from(0);
        while slot != NONE {
            into.push(slot);
            slot = list.after(self.block(slot));
        }
    }

    /// The cached blocks of a pool, stream by stream.
    fn cached_of_pool(&self, pool: Pool, into: &mut Vec<Slot>) {
        for &(_, list) in &self.streams {
            self.cached(list + pool as u32, into);
        }
    }

    /// Lists a free or unmapped block.
    fn cache_block(&mut self, slot: Slot) {
        let Block { address, list, state, .. } = *self.block(slot);
        self.blocks[slot as usize].cached_at = self.searches[list as usize % 2];
        let list = &mut self.lists[list as usize];
        if state == State::Unmapped {
            list.unmapped.insert(list.unmapped_at(address), (address, slot));
        } else {
            list.insert(&mut self.blocks, slot);
        }
    }

    /// Takes a free or unmapped block off its list.
    fn uncache(&mut self, slot: Slot) {
        let Block { address, list, state, .. } = *self.block(slot);
        let list = &mut self.lists[list as usize];
        if state == State::Unmapped {
            list.unmapped.remove(list.unmapped_at(address));
        } else {
            list.remove(&mut self.blocks, slot);
        }
    }

    #[inline]
    fn add_block(&mut self, block: Block) -> Slot {
        let slot = self.vacant;
        if slot == NONE {
            self.blocks.push(block);
            return number(self.blocks.len() - 1);
        }
        self.vacant = self.block(slot).next;
        *self.block_mut(slot) = block;
        slot
    }

    fn remove_block(&mut self, slot: Slot) {
        vacate(&mut self.blocks, &mut self.vacant, slot);
    }

    #[inline]
    fn block(&self, slot: Slot) -> &Block {
        &self.blocks[slot as usize]
    }

    #[inline]
    fn block_mut(&mut self, slot: Slot) -> &mut Block {
        &mut self.blocks[slot as usize]
    }

    #[inline]
    fn used(&self, id: BlockId) -> Result<&Block, UnknownBlock> {
        self.blocks.get(id.slot as usize).filter(|block| block.serial == id.serial.get()).ok_or(UnknownBlock)
    }
}

/// Sizes and sums of sizes are below 2^63: they lie in one address space.
#[inline]
fn signed(size: u64) -> i64 {
    size.cast_signed()
}

/// The address, unless the range ends beyond what a signed number can tell.
fn in_signed_range(address: u64, size: u64) -> Option<u64> {
    address.checked_add(size).filter(|&end| i64::try_from(end).is_ok()).map(|_| address)
}

/// Frees a slot.
#[inline]
fn vacate(blocks: &mut [Block], vacant: &mut Slot, slot: Slot) {
    let block = &mut blocks[slot as usize];
    block.state = State::Vacant;
    block.next = *vacant;
    *vacant = slot;
}

/// An index, of which there are fewer than 2^32.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "so many blocks would not fit into memory")]
fn number(index: usize) -> u32 {
    index as u32
}
