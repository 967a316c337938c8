//! The allocator at its default settings, for peaks alone.
//!
//! A [`Plain`] makes the choices of a [`Replay`](super::Replay) with [`Config::default`], and keeps nothing that only other
//! settings or statistics need. Sizes and addresses are counted in blocks of 512 bytes, so that both fit into one number whose
//! order is that of best fit: few blocks are cached at a time, and looking through all of them without a branch is faster than
//! keeping them in order.

use super::{ADDRESS_END, AddressSpace, Config, LARGE_REQUEST, LARGE_SEGMENT, MIN_BLOCK, SEGMENT_ROUNDING, SMALL_REQUEST, SMALL_SEGMENT};

/// Where addresses are counted from: 2 TiB below the end of the address space, from where segments are placed downwards.
const BASE: u64 = ADDRESS_END - (MIN_BLOCK << 32);
const SMALL: u64 = SMALL_REQUEST / MIN_BLOCK;
/// The smallest rest of a block that is kept, by pool.
const LEAST_REST: [u64; 2] = [1, SMALL + 1];
/// Streams that a program uses.
const STREAMS: usize = 2;
/// Cached blocks are looked through so many at a time.
const LANES: usize = 4;

/// The place of a block that is in use.
const USED: u32 = u32::MAX;
/// The block of no slot: never cached.
const NONE: u32 = 0;

/// A piece of a segment.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// Size above address: 32 bits each.
    key: u64,
    /// Its neighbours in the segment.
    previous: u32,
    next: u32,
    /// Its place among the cached blocks, or [`USED`].
    place: u32,
    /// Its pool and stream: an index into [`Plain::lists`].
    list: u32,
}

/// The size of a key, where it is in the key.
fn size_of(key: u64) -> u64 {
    key & (u64::MAX << 32)
}

/// The cached blocks of one pool of one stream, in no order.
#[derive(Debug, Clone, Default)]
struct List {
    /// Filled up with zeros to a multiple of [`LANES`].
    keys: Vec<u64>,
    slots: Vec<u32>,
    count: usize,
}

impl List {
    /// The place of the smallest block of at least this key, and its key; any other if there is none.
    #[inline]
    fn best(&self, least: u64) -> (usize, u64) {
        let (mut nearest, mut places) = ([u64::MAX; LANES], [0; LANES]);
        let used = self.count.next_multiple_of(LANES).min(self.keys.len());
        let (chunks, _) = self.keys[..used].as_chunks::<LANES>();
        for (i, keys) in chunks.iter().enumerate() {
            for lane in 0..LANES {
                // What is too small wraps round, beyond everything that is not.
                let above = keys[lane].wrapping_sub(least);
                let nearer = above < nearest[lane];
                nearest[lane] = std::hint::select_unpredictable(nearer, above, nearest[lane]);
                places[lane] = std::hint::select_unpredictable(nearer, i, places[lane]);
            }
        }
        let mut best = (nearest[0], places[0] * LANES);
        for lane in 1..LANES {
            let nearer = nearest[lane] < best.0;
            best.0 = std::hint::select_unpredictable(nearer, nearest[lane], best.0);
            best.1 = std::hint::select_unpredictable(nearer, places[lane] * LANES + lane, best.1);
        }
        (best.1, best.0.wrapping_add(least))
    }

    #[inline]
    fn push(&mut self, key: u64, slot: u32) -> u32 {
        let place = self.count;
        if place == self.keys.len() {
            self.keys.resize(place + LANES, 0);
            self.slots.resize(place + LANES, NONE);
        }
        self.keys[place] = key;
        self.slots[place] = slot;
        self.count += 1;
        u32::try_from(place).unwrap_or(USED)
    }

    /// Takes out the block at a place; the last one takes its place.
    #[inline]
    fn remove(&mut self, blocks: &mut [Block], place: u32) {
        self.count -= 1;
        let (place, last) = (place as usize, self.count);
        let slot = self.slots[last];
        self.keys[place] = self.keys[last];
        self.slots[place] = slot;
        self.keys[last] = 0;
        blocks[slot as usize].place = u32::try_from(place).unwrap_or(USED);
    }
}

/// A request with the cached block that it gets.
#[derive(Debug, Clone, Copy)]
struct Fit {
    units: u64,
    /// The list of its pool and stream.
    which: usize,
    /// Where the block is in it; nowhere if something was exceeded.
    place: usize,
    key: u64,
}

/// The state. Sizes are in units of [`MIN_BLOCK`].
#[derive(Debug, Clone)]
pub(crate) struct Plain {
    blocks: Vec<Block>,
    /// Slots of no block, as many as `vacancies`.
    vacant: Vec<u32>,
    lists: [List; 2 * STREAMS],
    allocated: u64,
    allocated_peak: u64,
    reserved: u64,
    reserved_peak: u64,
    space: AddressSpace,
    /// Whether something did not fit into the numbers: nothing here counts any more.
    exceeded: bool,
}

impl Plain {
    /// Whether this is the allocator of these settings.
    pub(crate) fn covers(config: &Config) -> bool {
        *config == Config { device_total: config.device_total, ..Config::default() }
    }

    pub(crate) fn new() -> Self {
        let mut blocks = Vec::with_capacity(512);
        blocks.push(Block { key: 0, previous: NONE, next: NONE, place: USED, list: 0 });
        Self {
            blocks,
            vacant: Vec::new(),
            lists: Default::default(),
            allocated: 0,
            allocated_peak: 0,
            reserved: 0,
            reserved_peak: 0,
            space: AddressSpace::new(),
            exceeded: false,
        }
    }

    /// Hands out a block.
    #[inline]
    pub(crate) fn alloc(&mut self, bytes: u64, stream: u32) -> u32 {
        let Fit { units, which, place, key } = self.fit(bytes, stream);
        let list = &mut self.lists[which];
        let Some(&slot) = list.slots.get(place) else { return NONE };
        let rest = (key >> 32) - units;
        if rest < LEAST_REST[which % 2] {
            list.remove(&mut self.blocks, u32::try_from(place).unwrap_or(USED));
            self.blocks[slot as usize].place = USED;
            self.allocated += key >> 32;
            self.allocated_peak = self.allocated_peak.max(self.allocated);
            return slot;
        }
        self.allocated += units;
        self.allocated_peak = self.allocated_peak.max(self.allocated);
        // The rest keeps the block's slot; the part handed out is new and comes before it.
        let rest = key - (units << 32) + units;
        list.keys[place] = rest;
        let previous = self.blocks[slot as usize].previous;
        let part = Block {
            key: (units << 32) | (key & u64::from(u32::MAX)),
            previous,
            next: slot,
            place: USED,
            list: u32::try_from(which).unwrap_or(0),
        };
        let given = add_block(&mut self.blocks, &mut self.vacant, part);
        self.blocks[previous as usize].next = given;
        let block = &mut self.blocks[slot as usize];
        block.key = rest;
        block.previous = given;
        given
    }

    /// Hands out a block and takes it back, which leaves everything as it was but for a segment.
    #[inline]
    pub(crate) fn touch(&mut self, bytes: u64, stream: u32) {
        let Fit { units, which, key, .. } = self.fit(bytes, stream);
        let whole = key >> 32;
        let given = if whole.saturating_sub(units) < LEAST_REST[which % 2] { whole } else { units };
        self.allocated_peak = self.allocated_peak.max(self.allocated + given);
    }

    /// The cached block that a request gets, from a new segment if nothing fits.
    #[inline]
    fn fit(&mut self, bytes: u64, stream: u32) -> Fit {
        let units = bytes.max(1).div_ceil(MIN_BLOCK);
        let which = stream as usize % STREAMS * 2 + usize::from(units > SMALL);
        // No block is as large as the largest size that fits into a key.
        let least = units.min(u64::from(u32::MAX)) << 32;
        let (mut place, mut key) = self.lists[which].best(least);
        if key < least {
            (place, key) = self.segment(units, which);
        }
        Fit { units, which, place, key }
    }

    /// Takes a block back and merges it with its free neighbours.
    #[inline]
    pub(crate) fn free(&mut self, slot: u32) {
        if slot == NONE {
            return;
        }
        let blocks = &mut self.blocks[..];
        let Block { key, previous, next, list, .. } = blocks[slot as usize];
        self.allocated -= key >> 32;
        let list = &mut self.lists[list as usize % (2 * STREAMS)];
        let (before, after) = (blocks[previous as usize], blocks[next as usize]);
        match (before.place != USED, after.place != USED) {
            (false, false) => blocks[slot as usize].place = list.push(key, slot),
            (true, false) => {
                let key = before.key + size_of(key);
                list.keys[before.place as usize] = key;
                blocks[previous as usize].key = key;
                blocks[previous as usize].next = next;
                blocks[next as usize].previous = previous;
                self.vacant.push(slot);
            }
            (false, true) => {
                let key = key + size_of(after.key);
                list.keys[after.place as usize] = key;
                blocks[next as usize].key = key;
                blocks[next as usize].previous = previous;
                blocks[previous as usize].next = next;
                self.vacant.push(slot);
            }
            (true, true) => {
                let key = before.key + size_of(key) + size_of(after.key);
                list.keys[before.place as usize] = key;
                blocks[previous as usize].key = key;
                blocks[previous as usize].next = after.next;
                blocks[after.next as usize].previous = previous;
                list.remove(blocks, after.place);
                self.vacant.push(slot);
                self.vacant.push(next);
            }
        }
    }

    /// A segment from the driver, cached.
    #[cold]
    fn segment(&mut self, units: u64, which: usize) -> (usize, u64) {
        let bytes = units * MIN_BLOCK;
        let size = if bytes <= SMALL_REQUEST {
            SMALL_SEGMENT
        } else if bytes < LARGE_REQUEST {
            LARGE_SEGMENT
        } else {
            bytes.next_multiple_of(SEGMENT_ROUNDING)
        };
        let address = if size < ADDRESS_END - BASE { self.space.place(size) } else { None };
        let Some(address) = address.and_then(|address| address.checked_sub(BASE)) else {
            self.exceeded = true;
            return (usize::MAX, 0);
        };
        let key = (size / MIN_BLOCK) << 32 | (address / MIN_BLOCK);
        let block = Block { key, previous: NONE, next: NONE, place: USED, list: u32::try_from(which).unwrap_or(0) };
        let slot = add_block(&mut self.blocks, &mut self.vacant, block);
        let place = self.lists[which].push(key, slot);
        self.blocks[slot as usize].place = place;
        self.reserved += size / MIN_BLOCK;
        self.reserved_peak = self.reserved_peak.max(self.reserved);
        (place as usize, key)
    }

    /// Gives back every segment without a block in use.
    pub(crate) fn empty_cache(&mut self) {
        // The large pools first, as the allocator does.
        for which in [1, 3, 0, 2] {
            let list = &mut self.lists[which];
            // From the back, since the last block takes the place of one that goes.
            for place in (0..list.count).rev() {
                let Block { key, previous, next, .. } = self.blocks[list.slots[place] as usize];
                if previous | next == NONE {
                    let slot = list.slots[place];
                    list.remove(&mut self.blocks, u32::try_from(place).unwrap_or(USED));
                    self.blocks[slot as usize].place = USED;
                    self.vacant.push(slot);
                    self.reserved -= key >> 32;
                    self.space.give_back(BASE + (key & u64::from(u32::MAX)) * MIN_BLOCK, (key >> 32) * MIN_BLOCK);
                }
            }
        }
    }

    /// Allocated and reserved bytes.
    pub(crate) fn levels(&self) -> [u64; 2] {
        [self.allocated, self.reserved].map(|units| units * MIN_BLOCK)
    }

    /// Their peaks, which start again from the present.
    pub(crate) fn take_peaks(&mut self) -> [u64; 2] {
        let peaks = [self.allocated_peak, self.reserved_peak].map(|units| units * MIN_BLOCK);
        self.allocated_peak = self.allocated;
        self.reserved_peak = self.reserved;
        peaks
    }

    /// Whether something was larger than what is counted here: the outcome is then not the allocator's.
    pub(crate) fn exceeded(&self) -> bool {
        self.exceeded
    }
}

#[inline]
fn add_block(blocks: &mut Vec<Block>, vacant: &mut Vec<u32>, block: Block) -> u32 {
    if let Some(slot) = vacant.pop() {
        blocks[slot as usize] = block;
        return slot;
    }
    blocks.push(block);
    u32::try_from(blocks.len() - 1).unwrap_or(NONE)
}
