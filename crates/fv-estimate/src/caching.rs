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

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

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

    /// Whether a block of this size is one that `max_split_size` keeps whole.
    fn oversize(&self, size: u64) -> bool {
        self.max_split_size.is_some_and(|max| size >= max)
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
    slot: usize,
    serial: u64,
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

/// Indices into [`Replay::blocks`].
type Slot = usize;

/// A piece of a segment: in use, waiting, cached, or address space without memory.
#[derive(Debug, Clone)]
struct Block {
    address: u64,
    size: u64,
    requested: u64,
    stream: Stream,
    pool: Pool,
    previous: Option<Slot>,
    next: Option<Slot>,
    state: State,
    /// The start of the expandable segment it lies in.
    expandable: Option<u64>,
    /// The pool's searches when the block was last cached: its age is counted from there.
    cached_at: u64,
    /// Which block in use this is; never used twice.
    serial: u64,
    /// Streams other than its own that used it.
    uses: Vec<Stream>,
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
    fn is_split(&self) -> bool {
        self.previous.is_some() || self.next.is_some()
    }
}

/// The cached blocks of one pool, over all streams.
#[derive(Debug, Clone, Default)]
struct Cache {
    /// By stream, size and address: the order of best fit and of giving back.
    free: BTreeMap<(Stream, u64, u64), Slot>,
    /// By stream and address.
    unmapped: BTreeMap<(Stream, u64), Slot>,
    /// Searches so far, where garbage is collected.
    searches: u64,
}

/// Where a driver puts segments. Addresses that it did not choose are none of its business.
#[derive(Debug, Clone)]
struct AddressSpace {
    /// Start and size of what nothing lies in.
    gaps: BTreeMap<u64, u64>,
    /// Start of each chunk, its size and the bytes in use.
    chunks: BTreeMap<u64, (u64, u64)>,
    /// Start and size of the room left in chunks.
    rooms: BTreeMap<u64, u64>,
}

impl AddressSpace {
    fn new() -> Self {
        Self { gaps: BTreeMap::from([(0, ADDRESS_END)]), chunks: BTreeMap::new(), rooms: BTreeMap::new() }
    }

    /// The lowest room left that is large enough, else a new chunk in the highest gap.
    fn place(&mut self, size: u64) -> Option<u64> {
        let lowest = self.rooms.iter().find(|&(_, &room)| room >= size).map(|(&start, &room)| (start, room));
        let (start, room) = if let Some(found) = lowest {
            self.rooms.remove(&found.0);
            found
        } else {
            let chunk = size.checked_next_multiple_of(CHUNK)?;
            let (&gap, &length) = self.gaps.iter().rev().find(|&(_, &length)| length >= chunk)?;
            let start = gap + (length - chunk);
            self.gaps.remove(&gap);
            if length > chunk {
                self.gaps.insert(gap, length - chunk);
            }
            self.chunks.insert(start, (chunk, 0));
            (start, chunk)
        };
        if room > size {
            self.rooms.insert(start + size, room - size);
        }
        if let Some((_, (_, used))) = self.chunks.range_mut(..=start).next_back() {
            *used += size;
        }
        Some(start)
    }

    /// Address space alone, at the lowest gap.
    fn reserve(&mut self, size: u64) -> Option<u64> {
        let chunk = size.checked_next_multiple_of(CHUNK)?;
        let (&gap, &length) = self.gaps.iter().find(|&(_, &length)| length >= chunk)?;
        self.gaps.remove(&gap);
        if length > chunk {
            self.gaps.insert(gap + chunk, length - chunk);
        }
        self.chunks.insert(gap, (chunk, size));
        Some(gap)
    }

    /// A segment or an address range goes; with the last of a chunk, the chunk.
    fn give_back(&mut self, address: u64, size: u64) {
        let Some((&start, &mut (length, ref mut used))) = self.chunks.range_mut(..=address).next_back() else { return };
        if address - start >= length {
            return;
        }
        *used = used.saturating_sub(size);
        if *used > 0 {
            insert_merged(&mut self.rooms, address, size, (start, start + length));
            return;
        }
        self.chunks.remove(&start);
        let inside: Vec<u64> = self.rooms.range(start..start + length).map(|(&room, _)| room).collect();
        for room in inside {
            self.rooms.remove(&room);
        }
        insert_merged(&mut self.gaps, start, length, (0, ADDRESS_END));
    }
}

/// Adds a range to a set of ranges and joins it with those it touches inside the bounds.
fn insert_merged(ranges: &mut BTreeMap<u64, u64>, start: u64, size: u64, bounds: (u64, u64)) {
    let (mut from, mut end) = (start, start + size);
    if let Some((&before, &length)) = ranges.range(bounds.0..from).next_back()
        && before + length == from
    {
        ranges.remove(&before);
        from = before;
    }
    if end < bounds.1
        && let Some(length) = ranges.remove(&end)
    {
        end += length;
    }
    ranges.insert(from, end - from);
}

/// A rounded request on its way through the allocator.
#[derive(Debug, Clone, Copy)]
struct Request {
    size: u64,
    segment: u64,
    stream: Stream,
    pool: Pool,
}

/// The allocator's state. See the [module](self) for what it models.
#[derive(Debug, Clone)]
pub struct Replay {
    config: Config,
    blocks: Vec<Block>,
    vacant: Vec<Slot>,
    small: Cache,
    large: Cache,
    waiting: VecDeque<Slot>,
    stats: Stats,
    serial: u64,
    space: AddressSpace,
    placements: VecDeque<u64>,
    events: Option<Vec<Event>>,
}

impl Replay {
    /// An allocator that holds nothing yet.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            blocks: Vec::new(),
            vacant: Vec::new(),
            small: Cache::default(),
            large: Cache::default(),
            waiting: VecDeque::new(),
            stats: Stats::default(),
            serial: 0,
            space: AddressSpace::new(),
            placements: VecDeque::new(),
            events: None,
        }
    }

    /// The settings it runs under.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Changes what the allocator allows itself from now on, and from where on it collects. What it holds, it keeps.
    pub fn set_allowed(&mut self, allowed: Option<u64>, gc_threshold: Option<u64>) {
        self.config.allowed = allowed;
        self.config.gc_threshold = gc_threshold;
    }

    /// The statistics now.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Starts every peak again from the present.
    pub fn reset_peaks(&mut self) {
        for pool in [&mut self.stats.all, &mut self.stats.small, &mut self.stats.large] {
            let PoolStats { allocated, active, reserved, requested, inactive_split, blocks, segments } = pool;
            for level in [allocated, active, reserved, requested, inactive_split, blocks, segments] {
                level.peak = level.current;
            }
        }
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
        self.used(id).map(|slot| self.blocks[slot].address)
    }

    /// The size of a block in use; at least what was asked for.
    pub fn size(&self, id: BlockId) -> Result<u64, UnknownBlock> {
        self.used(id).map(|slot| self.blocks[slot].size)
    }

    /// Hands out a block for `size` bytes on a stream. (PyTorch asks for nothing where a tensor is empty; here 0 bytes are a
    /// request like another.)
    pub fn alloc(&mut self, size: u64, stream: Stream) -> Result<BlockId, OutOfMemory> {
        let found = self.request(size, stream).and_then(|request| self.find(&request).map(|slot| (request, slot)));
        let Some((request, slot)) = found else {
            self.stats.ooms += 1;
            let all = &self.stats.all;
            return Err(OutOfMemory { requested: size, allocated: all.allocated.current, reserved: all.reserved.current });
        };
        Ok(self.hand_out(&request, slot, size))
    }

    /// Takes a block back. It is cached, merged with its free neighbours; or it waits, if other streams used it.
    pub fn free(&mut self, id: BlockId) -> Result<(), UnknownBlock> {
        let slot = self.used(id)?;
        let (pool, size) = (self.blocks[slot].pool, self.blocks[slot].size);
        self.count(pool, |stats| {
            stats.allocated.sub(size);
            stats.blocks.sub(1);
        });
        if self.blocks[slot].uses.is_empty() {
            self.cache(slot);
        } else {
            self.blocks[slot].state = State::Waiting;
            self.waiting.push_back(slot);
        }
        Ok(())
    }

    /// Notes that another stream works on the block (`record_stream`). Its own stream is ignored.
    pub fn record_use(&mut self, id: BlockId, stream: Stream) -> Result<(), UnknownBlock> {
        let slot = self.used(id)?;
        let block = &mut self.blocks[slot];
        if block.stream != stream && !block.uses.contains(&stream) {
            block.uses.push(stream);
        }
        Ok(())
    }

    /// The other streams are done with a freed block: it is cached.
    pub fn complete(&mut self, id: BlockId) -> Result<(), UnknownBlock> {
        let place = self.waiting.iter().position(|&slot| self.is(slot, id));
        match place.and_then(|at| self.waiting.remove(at)) {
            Some(slot) => {
                self.cache(slot);
                Ok(())
            }
            None => Err(UnknownBlock),
        }
    }

    /// All streams are done with all freed blocks.
    pub fn synchronize(&mut self) {
        while let Some(slot) = self.waiting.pop_front() {
            self.cache(slot);
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
        let mut cached = 0;
        let mut ranges = Vec::new();
        for (slot, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.state != State::Vacant) {
            ranges.push((block.address, block.size));
            if block.size == 0 || !block.address.is_multiple_of(MIN_BLOCK) {
                return Err(format!("block of {} bytes at {}", block.size, block.address));
            }
            if let Some(next) = block.next {
                let other = &self.blocks[next];
                if other.previous != Some(slot) || block.address + block.size != other.address {
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
            if block.expandable.is_none() {
                totals.segments.add(u64::from(block.previous.is_none()));
                totals.inactive_split.add(if block.state == State::Free && block.is_split() { block.size } else { 0 });
            }
            let cache = self.cache_of(block.pool);
            let listed = match block.state {
                State::Free => cache.free.get(&(block.stream, block.size, block.address)),
                State::Unmapped => cache.unmapped.get(&(block.stream, block.address)),
                State::Used | State::Waiting | State::Vacant => continue,
            };
            cached += 1;
            if listed != Some(&slot) {
                return Err(format!("the free block at {} is not in its cache", block.address));
            }
        }
        ranges.sort_unstable();
        if let Some(pair) = ranges.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Err(format!("blocks overlap at {}", pair[1].0));
        }
        let lists = [&self.small, &self.large].map(|cache| cache.free.len() + cache.unmapped.len());
        if lists.iter().sum::<usize>() != cached {
            return Err("a cache lists a block that is not free".into());
        }
        let all = &self.stats.all;
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

    fn request(&self, size: u64, stream: Stream) -> Option<Request> {
        let size = self.config.round(size)?;
        let segment = self.config.segment_for(size)?;
        let pool = if size <= SMALL_REQUEST { Pool::Small } else { Pool::Large };
        Some(Request { size, segment, stream, pool })
    }

    /// The steps of the allocator, in its order, until one yields a block.
    fn find(&mut self, request: &Request) -> Option<Slot> {
        if let Some(slot) = self.best_fit(request) {
            return Some(slot);
        }
        if self.config.collects() {
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

    /// The cached block that fits best, taken out of the cache.
    fn best_fit(&mut self, request: &Request) -> Option<Slot> {
        if self.config.collects() {
            self.cache_of_mut(request.pool).searches += 1;
        }
        let cache = self.cache_of(request.pool);
        let mut candidates = cache
            .free
            .range((request.stream, request.size, 0)..)
            .take_while(|((stream, _, _), _)| *stream == request.stream)
            .map(|(_, &slot)| slot);
        let mut slot = candidates.next()?;
        // A block at the end of an expandable segment counts with the address space behind it, so that it is kept for
        // requests that need it to grow.
        for other in candidates {
            if self.blocks[slot].expandable.is_none() || self.room(other) >= self.room(slot) {
                break;
            }
            slot = other;
        }
        let size = self.blocks[slot].size;
        let refused = if self.config.oversize(request.size) {
            size - request.size >= self.config.max_non_split_rounding
        } else {
            self.config.oversize(size)
        };
        if refused {
            return None;
        }
        self.uncache(slot);
        Some(slot)
    }

    /// A block's size with the unmapped space after it.
    fn room(&self, slot: Slot) -> u64 {
        let block = &self.blocks[slot];
        let after = block.next.map(|next| &self.blocks[next]).filter(|next| next.state == State::Unmapped);
        block.size + after.map_or(0, |next| next.size)
    }

    /// Splits the block if the rest is worth keeping, and hands it out.
    fn hand_out(&mut self, request: &Request, slot: Slot, requested: u64) -> BlockId {
        let (pool, size) = (request.pool, request.size);
        let expandable = self.blocks[slot].expandable;
        let was_split = self.blocks[slot].is_split();
        let rest = self.blocks[slot].size - size;
        let keeps_rest = if pool == Pool::Small || self.config.expandable {
            rest >= MIN_BLOCK
        } else {
            !self.config.oversize(size) && rest > SMALL_REQUEST
        };
        let mut given = slot;
        if keeps_rest {
            // The rest keeps the block's slot; the part handed out is new and comes before it.
            let Block { address, previous, .. } = self.blocks[slot];
            given = self.add_block(Block { size, next: Some(slot), ..self.fresh(request, address, previous, expandable) });
            if let Some(previous) = previous {
                self.blocks[previous].next = Some(given);
            }
            let block = &mut self.blocks[slot];
            block.previous = Some(given);
            block.address += size;
            block.size = rest;
            self.cache_block(slot);
        }
        if expandable.is_none() {
            self.count(pool, |stats| match (keeps_rest, was_split) {
                (true, true) => stats.inactive_split.sub(size),
                (true, false) => stats.inactive_split.add(rest),
                (false, true) => stats.inactive_split.sub(size + rest),
                (false, false) => {}
            });
        }
        self.serial += 1;
        let serial = self.serial;
        let block = &mut self.blocks[given];
        block.state = State::Used;
        block.requested = requested;
        block.serial = serial;
        block.uses.clear();
        let size = block.size;
        self.count(pool, |stats| {
            stats.blocks.add(1);
            stats.allocated.add(size);
            stats.active.add(size);
            stats.requested.add(requested);
        });
        BlockId { slot: given, serial }
    }

    /// Caches a block that is no longer used, merged with its free neighbours.
    fn cache(&mut self, slot: Slot) {
        let Block { pool, size, requested, expandable, previous, next, .. } = self.blocks[slot];
        self.blocks[slot].state = State::Free;
        self.blocks[slot].uses.clear();
        let mut merged = 0;
        for neighbour in [previous, next].into_iter().flatten() {
            merged += self.merge(slot, neighbour);
        }
        self.cache_block(slot);
        let kept = if self.blocks[slot].is_split() { self.blocks[slot].size } else { 0 };
        self.count(pool, |stats| {
            if expandable.is_none() {
                // One change, so that the peak is not that of a moment in between.
                if kept >= merged {
                    stats.inactive_split.add(kept - merged);
                } else {
                    stats.inactive_split.sub(merged - kept);
                }
            }
            stats.active.sub(size);
            stats.requested.sub(requested);
        });
    }

    /// Merges a cached or unmapped neighbour of the same kind into a block that is in no list; returns its size.
    fn merge(&mut self, into: Slot, from: Slot) -> u64 {
        if self.blocks[from].state != self.blocks[into].state {
            return 0;
        }
        let Block { address, size, previous, next, stream, pool, state, .. } = self.blocks[from];
        let cache = self.cache_of_mut(pool);
        if state == State::Unmapped {
            cache.unmapped.remove(&(stream, address));
        } else {
            cache.free.remove(&(stream, size, address));
        }
        let block = &mut self.blocks[into];
        if block.previous == Some(from) {
            block.address = address;
            block.previous = previous;
            if let Some(previous) = previous {
                self.blocks[previous].next = Some(into);
            }
        } else {
            block.next = next;
            if let Some(next) = next {
                self.blocks[next].previous = Some(into);
            }
        }
        self.blocks[into].size += size;
        self.remove_block(from);
        size
    }

    /// Merges with both neighbours.
    fn merge_both(&mut self, slot: Slot) {
        for neighbour in [self.blocks[slot].previous, self.blocks[slot].next].into_iter().flatten() {
            self.merge(slot, neighbour);
        }
    }

    /// A segment from the driver, or more of an expandable one.
    fn new_memory(&mut self, request: &Request) -> Option<Slot> {
        let reserved = self.stats.all.reserved.current;
        let wanted = reserved.checked_add(request.segment)?;
        if self.config.allowed.is_some_and(|allowed| wanted > allowed) {
            return None;
        }
        if self.config.expandable {
            return self.grow(request);
        }
        if self.config.capacity.is_some_and(|capacity| wanted > capacity) {
            return None;
        }
        let address = self.place(request.segment)?;
        let slot = self.add_block(Block { size: request.segment, ..self.fresh(request, address, None, None) });
        self.count(request.pool, |stats| {
            stats.segments.add(1);
            stats.reserved.add(request.segment);
        });
        self.exchange(Action::SegmentAlloc, address, request.segment, request.stream);
        Some(slot)
    }

    /// The lowest place of an expandable segment with room for the request, mapped as far as needed.
    fn grow(&mut self, request: &Request) -> Option<Slot> {
        let mut slot = self.expandable_room(request)?;
        if self.blocks[slot].state == State::Unmapped {
            self.map(slot, self.blocks[slot].size.min(request.size))?;
        }
        while self.blocks[slot].size < request.size {
            // Free space followed by unmapped space: mapping that merges the two.
            let missing = request.size - self.blocks[slot].size;
            let next = self.blocks[slot].next?;
            self.map(next, self.blocks[next].size.min(missing))?;
            slot = next;
        }
        self.uncache(slot);
        Some(slot)
    }

    fn expandable_room(&mut self, request: &Request) -> Option<Slot> {
        let unmapped = &self.cache_of(request.pool).unmapped;
        let in_stream = unmapped.range((request.stream, 0)..).take_while(|((stream, _), _)| *stream == request.stream);
        for (_, &slot) in in_stream {
            let before = self.blocks[slot].previous.filter(|&before| self.is_open(before));
            let start = before.unwrap_or(slot);
            let (mut bytes, mut at) = (0, Some(start));
            while let Some(here) = at.filter(|&here| bytes < request.size && self.is_open(here)) {
                bytes += self.blocks[here].size;
                at = self.blocks[here].next;
            }
            if bytes >= request.size {
                return Some(start);
            }
        }
        let page = self.config.page(request.pool)?;
        let total = self.config.device_total;
        let range = total.checked_add(total / 8)?.checked_next_multiple_of(page)?;
        if range < request.size {
            return None;
        }
        let address = self.place_range(range)?;
        let segment = Block { size: range, state: State::Unmapped, ..self.fresh(request, address, None, Some(address)) };
        let slot = self.add_block(segment);
        self.cache_block(slot);
        Some(slot)
    }

    /// Whether an expandable segment can grow over the block.
    fn is_open(&self, slot: Slot) -> bool {
        matches!(self.blocks[slot].state, State::Free | State::Unmapped)
    }

    /// Maps the pages under the first `size` bytes of an unmapped block and caches them.
    fn map(&mut self, slot: Slot, size: u64) -> Option<()> {
        let Block { address, size: whole, stream, pool, next, expandable, .. } = self.blocks[slot];
        let mapped = size.checked_next_multiple_of(self.config.page(pool)?)?;
        let wanted = self.stats.all.reserved.current.checked_add(mapped)?;
        if mapped == 0 || self.config.capacity.is_some_and(|capacity| wanted > capacity) {
            return None;
        }
        self.uncache(slot);
        self.blocks[slot].state = State::Free;
        if mapped < whole {
            let request = Request { size, segment: size, stream, pool };
            let rest = Block {
                size: whole - mapped,
                next,
                state: State::Unmapped,
                ..self.fresh(&request, address + mapped, Some(slot), expandable)
            };
            let rest = self.add_block(rest);
            if let Some(next) = next {
                self.blocks[next].previous = Some(rest);
            }
            self.blocks[slot].next = Some(rest);
            self.blocks[slot].size = mapped;
            self.cache_block(rest);
        }
        self.merge_both(slot);
        self.cache_block(slot);
        self.count(pool, |stats| stats.reserved.add(mapped));
        self.exchange(Action::Map, address, mapped, stream);
        Some(())
    }

    /// Unmaps the whole pages inside a cached block. Pages that it shares with its neighbours stay.
    fn unmap(&mut self, slot: Slot) {
        let Block { address, size, stream, pool, previous, next, expandable, .. } = self.blocks[slot];
        let (Some(page), Some(base)) = (self.config.page(pool), expandable) else { return };
        let offset = address - base;
        let end = offset + size;
        let (first, last) = (offset.next_multiple_of(page), end - end % page);
        if first >= last {
            return;
        }
        self.uncache(slot);
        let request = Request { size, segment: size, stream, pool };
        if first > offset {
            let before = Block { size: first - offset, next: Some(slot), ..self.fresh(&request, address, previous, expandable) };
            let before = self.add_block(Block { state: State::Free, ..before });
            if let Some(previous) = previous {
                self.blocks[previous].next = Some(before);
            }
            self.blocks[slot].previous = Some(before);
            self.cache_block(before);
        }
        if last < end {
            let after = Block { size: end - last, next, ..self.fresh(&request, base + last, Some(slot), expandable) };
            let after = self.add_block(Block { state: State::Free, ..after });
            if let Some(next) = next {
                self.blocks[next].previous = Some(after);
            }
            self.blocks[slot].next = Some(after);
            self.cache_block(after);
        }
        let block = &mut self.blocks[slot];
        block.address = base + first;
        block.size = last - first;
        block.state = State::Unmapped;
        self.merge_both(slot);
        self.cache_block(slot);
        self.count(pool, |stats| stats.reserved.sub(last - first));
        self.exchange(Action::Unmap, base + first, last - first, stream);
    }

    /// Before asking for more, gives back large segments that were cached for long, once over the threshold.
    fn collect_garbage(&mut self) {
        let threshold = self.config.gc_threshold.unwrap_or(u64::MAX);
        let Some(target) = self.stats.all.reserved.current.checked_sub(threshold).filter(|&target| target > 0) else {
            return;
        };
        let age = |replay: &Self, slot: Slot| replay.large.searches - replay.blocks[slot].cached_at;
        let mut whole: Vec<Slot> = self.large.free.values().copied().filter(|&slot| !self.blocks[slot].is_split()).collect();
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
                reclaimed += self.blocks[slot].size;
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
        let cache = self.cache_of(request.pool);
        let fits = cache.free.range((request.stream, size, 0)..).next().filter(|((stream, _, _), _)| *stream == request.stream);
        if let Some((_, &slot)) = fits {
            self.release_segment(slot);
            return true;
        }
        let below = cache.free.range((request.stream, 0, 0)..(request.stream, size, 0)).rev();
        let oversize: Vec<(u64, Slot)> =
            below.map(|(&(_, bytes, _), &slot)| (bytes, slot)).take_while(|&(bytes, _)| bytes >= max).collect();
        let mut released = 0;
        for (bytes, slot) in oversize {
            if released >= size {
                break;
            }
            released += bytes;
            self.release_segment(slot);
        }
        released >= size
    }

    /// Gives back what a pool can give back: its whole segments, then the whole pages of its expandable ones.
    fn release_pool(&mut self, pool: Pool) {
        let cached: Vec<Slot> = self.cache_of(pool).free.values().copied().collect();
        let (expandable, plain): (Vec<Slot>, Vec<Slot>) = cached.into_iter().partition(|&slot| self.blocks[slot].expandable.is_some());
        for slot in plain {
            if !self.blocks[slot].is_split() {
                self.release_segment(slot);
            }
        }
        for slot in expandable {
            self.unmap(slot);
            let block = &self.blocks[slot];
            if block.state == State::Unmapped && !block.is_split() {
                // Nothing is left of the segment but its address range, which goes too.
                let (address, size) = (block.address, block.size);
                self.space.give_back(address, size);
                self.uncache(slot);
                self.remove_block(slot);
            }
        }
    }

    fn release_segment(&mut self, slot: Slot) {
        let Block { address, size, stream, pool, .. } = self.blocks[slot];
        self.uncache(slot);
        self.remove_block(slot);
        self.space.give_back(address, size);
        self.count(pool, |stats| {
            stats.segments.sub(1);
            stats.reserved.sub(size);
        });
        self.exchange(Action::SegmentFree, address, size, stream);
    }

    fn exchange(&mut self, action: Action, address: u64, size: u64, stream: Stream) {
        match action {
            Action::SegmentAlloc | Action::Map => self.stats.device_allocs += 1,
            Action::SegmentFree | Action::Unmap => self.stats.device_frees += 1,
        }
        if let Some(events) = &mut self.events {
            events.push(Event { action, address, size, stream });
        }
    }

    /// An address for a segment; `None` if the address space is full.
    fn place(&mut self, size: u64) -> Option<u64> {
        let address = self.placements.pop_front().or_else(|| self.space.place(size))?;
        address.checked_add(size).map(|_| address)
    }

    /// An address range for an expandable segment.
    fn place_range(&mut self, size: u64) -> Option<u64> {
        let address = self.placements.pop_front().or_else(|| self.space.reserve(size))?;
        address.checked_add(size).map(|_| address)
    }

    fn count(&mut self, pool: Pool, mut change: impl FnMut(&mut PoolStats)) {
        change(&mut self.stats.all);
        change(match pool {
            Pool::Small => &mut self.stats.small,
            Pool::Large => &mut self.stats.large,
        });
    }

    fn cache_of(&self, pool: Pool) -> &Cache {
        match pool {
            Pool::Small => &self.small,
            Pool::Large => &self.large,
        }
    }

    fn cache_of_mut(&mut self, pool: Pool) -> &mut Cache {
        match pool {
            Pool::Small => &mut self.small,
            Pool::Large => &mut self.large,
        }
    }

    /// Lists a free or unmapped block.
    fn cache_block(&mut self, slot: Slot) {
        let Block { stream, size, address, pool, state, .. } = self.blocks[slot];
        let cache = self.cache_of_mut(pool);
        if state == State::Unmapped {
            cache.unmapped.insert((stream, address), slot);
        } else {
            cache.free.insert((stream, size, address), slot);
            self.blocks[slot].cached_at = self.cache_of(pool).searches;
        }
    }

    /// Takes a free or unmapped block off its list.
    fn uncache(&mut self, slot: Slot) {
        let Block { stream, size, address, pool, state, .. } = self.blocks[slot];
        let cache = self.cache_of_mut(pool);
        if state == State::Unmapped {
            cache.unmapped.remove(&(stream, address));
        } else {
            cache.free.remove(&(stream, size, address));
        }
    }

    fn fresh(&self, request: &Request, address: u64, previous: Option<Slot>, expandable: Option<u64>) -> Block {
        Block {
            address,
            size: request.size,
            requested: 0,
            stream: request.stream,
            pool: request.pool,
            previous,
            next: None,
            state: State::Free,
            expandable,
            cached_at: self.cache_of(request.pool).searches,
            serial: 0,
            uses: Vec::new(),
        }
    }

    fn add_block(&mut self, block: Block) -> Slot {
        if let Some(slot) = self.vacant.pop() {
            self.blocks[slot] = block;
            slot
        } else {
            self.blocks.push(block);
            self.blocks.len() - 1
        }
    }

    fn remove_block(&mut self, slot: Slot) {
        self.blocks[slot].state = State::Vacant;
        self.vacant.push(slot);
    }

    fn is(&self, slot: Slot, id: BlockId) -> bool {
        slot == id.slot && self.blocks[slot].serial == id.serial
    }

    fn used(&self, id: BlockId) -> Result<Slot, UnknownBlock> {
        let block = self.blocks.get(id.slot).ok_or(UnknownBlock)?;
        if block.state == State::Used && block.serial == id.serial { Ok(id.slot) } else { Err(UnknownBlock) }
    }
}
