//! Reserves and budgets: what is left of free memory.

use fv_spec::plan::ReasonCode;

use super::activation::Thresholds;
use super::constants::{
    RELAXED_BELOW, RESERVE_HOST, RESERVE_HOST_PART, RESERVE_HOST_WINDOWS, RESERVE_LEAST, RESERVE_VRAM, RESERVE_VRAM_PART, RESERVE_WINDOWS,
    hundredths,
};
use super::facts::Facts;

/// A pool of memory with its reserve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reserved {
    /// What is free.
    pub free: i64,
    /// What is kept back.
    pub reserve: i64,
    /// Why so much.
    pub reason: ReasonCode,
    /// What is left, or nothing.
    pub budget: i64,
}

impl Reserved {
    fn new(free: i64, (reserve, reason): (i64, ReasonCode)) -> Self {
        Self { free, reserve, reason, budget: (free - reserve).max(0) }
    }

    /// Whether the reserve is smaller than usual.
    pub fn relaxed(&self) -> bool {
        self.reason == ReasonCode::ReserveRelaxed
    }
}

/// A share of what is free, within bounds.
fn share(free: i64, part: i64, [least, most]: [i64; 2]) -> (i64, ReasonCode) {
    match free / part {
        share if share < hundredths(least) => (hundredths(least), ReasonCode::ReserveFloor),
        share if share > hundredths(most) => (hundredths(most), ReasonCode::ReserveCeiling),
        share => (share, ReasonCode::ReserveShare),
    }
}

/// Device memory. On Linux the usual reserve of little memory is relaxed where the residual way would not fit otherwise.
pub(super) fn vram(facts: &Facts) -> Reserved {
    let free = facts.free_vram;
    if let Some(reserve) = facts.vram_reserve {
        let reason = if facts.relaxed { ReasonCode::ReserveRelaxed } else { ReasonCode::ReserveGiven };
        return Reserved::new(free, (reserve, reason));
    }
    if facts.windows() {
        return Reserved::new(free, (hundredths(RESERVE_WINDOWS), ReasonCode::ReserveFixed));
    }
    let usual = Reserved::new(free, share(free, RESERVE_VRAM_PART, RESERVE_VRAM));
    if free < hundredths(RELAXED_BELOW) && usual.budget < Thresholds::of(facts).residual {
        return Reserved::new(free, (hundredths(RESERVE_LEAST), ReasonCode::ReserveRelaxed));
    }
    usual
}

/// Host memory.
pub(super) fn host(facts: &Facts) -> Reserved {
    let least = if facts.windows() { RESERVE_HOST_WINDOWS } else { RESERVE_HOST[0] };
    let kept = match facts.host_reserve {
        Some(reserve) => (reserve, ReasonCode::ReserveGiven),
        None => share(facts.free_host, RESERVE_HOST_PART, [least, RESERVE_HOST[1]]),
    };
    Reserved::new(facts.free_host, kept)
}

/// Host memory that blocks may stay in: the budget, or what an earlier complete run was seen to get by with.
pub(super) fn retention(facts: &Facts, host: &Reserved) -> i64 {
    let seen = facts.demonstrated_host.map_or(0, |peak| peak.min(facts.total_host - host.reserve));
    host.budget.max(seen)
}
