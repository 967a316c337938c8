//! What is kept back of free memory, where nobody says: a share of it, within bounds.

use fv_spec::plan::{OperatingSystem, ReasonCode};

use crate::planner::freevideo::budget::Reserved;
use crate::planner::freevideo::question::Pool;

const GIB: u64 = 1 << 30;

/// Device memory: one part in forty, at least 0.2 GiB and at most 1 GiB. What the process itself takes beside its layout is in the
/// predicted peaks.
pub(super) fn vram(pool: &Pool) -> Reserved {
    reserved(pool, 40, [GIB / 5, GIB])
}

/// Host memory: one part in twenty, at least 1 GiB, on Windows 2 GiB, and at most 4 GiB.
pub(super) fn host(pool: &Pool, os: OperatingSystem) -> Reserved {
    let least = if os == OperatingSystem::Windows { 2 * GIB } else { GIB };
    reserved(pool, 20, [least, 4 * GIB])
}

/// The least free host memory of which so much may be used, on Linux.
pub(crate) fn host_for(bytes: u64) -> u64 {
    free_for(bytes, |free| host(&Pool::given(free), OperatingSystem::Linux))
}

/// Bytes of so much free device memory that are kept back.
pub(crate) fn reserve_of(free_bytes: u64) -> u64 {
    u64::try_from(vram(&Pool::given(free_bytes)).reserve).unwrap_or(0)
}

fn reserved(pool: &Pool, part: u64, [least, most]: [u64; 2]) -> Reserved {
    let free = pool.capacity();
    let (reserve, reason) = match (pool.reserve_bytes, free / part) {
        (Some(given), _) => (given, ReasonCode::ReserveGiven),
        (None, share) if share < least => (least, ReasonCode::ReserveFloor),
        (None, share) if share > most => (most, ReasonCode::ReserveCeiling),
        (None, share) => (share, ReasonCode::ReserveShare),
    };
    let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
    Reserved { free: signed(free), reserve: signed(reserve), reason, budget: signed(free.saturating_sub(reserve)) }
}

/// The least free memory whose budget is so much: budgets grow with what is free.
pub(super) fn free_for(budget: u64, of: impl Fn(u64) -> Reserved) -> u64 {
    let enough = |free: u64| u64::try_from(of(free).budget).unwrap_or(0) >= budget;
    let (mut low, mut high) = (budget, budget + 8 * GIB);
    while low < high {
        let middle = low + (high - low) / 2;
        if enough(middle) { high = middle } else { low = middle + 1 }
    }
    low
}
