//! The verdict: whether what is needed fits into the budget, by stage, on device and host.
//!
//! # Device
//!
//! The least that a stage can do with is its live tensors plus the fixed cost, each at its lower end; the most is what the
//! allocator holds plus the fixed cost, each at its upper end. A stage fits when the most is within the budget. It does not
//! fit when the least exceeds it. Between the two fragmentation decides, and the answer is uncertain. A cap that the process
//! sets on its own allocator is a second limit, compared with the same ends without the fixed cost.
//!
//! # Host
//!
//! Page-locked and pageable memory of a stage together, against host memory. Nothing needed always fits. Unified memory is
//! one pool: there the stage's device need is added, and the sum must be within the pool.
//!
//! # Overall
//!
//! What is known not to fit, on either side, does not fit: device memory enough and host memory short is a no. Host memory
//! that nobody stated leaves the device's verdict as it is and adds the reason `host-memory-unknown`. Over stages and sides
//! the order is: does not fit, unknown, uncertain, fits. A larger budget never makes a verdict worse.

use fv_spec::estimate::{HostBytes, HostReport, PeakBytes, Reason, StageName, Verdict};

use crate::budget::{Budget, FixedCosts};
use crate::error::gib;

/// What one stage needs on the rank that needs most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageNeed {
    /// The stage.
    pub stage: StageName,
    /// Its peaks (`device` is not read: [`Budget::fixed`] makes it) and its host memory. `None`: no rule covers it.
    pub need: Option<(PeakBytes, HostBytes)>,
}

/// Where something is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShortTier {
    /// Device memory.
    Device,
    /// Host memory, or the pool that device and host share.
    Host,
}

impl ShortTier {
    /// The tier as written in estimates.
    pub fn word(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
        }
    }
}

/// What is missing, at least, at the stage with the largest need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Short {
    /// Where.
    pub tier: ShortTier,
    /// The stage.
    pub stage: StageName,
    /// Bytes beyond the budget.
    pub bytes: u64,
}

/// The verdicts with their reasons.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerdictOutcome {
    /// Of device memory.
    pub device: Verdict,
    /// Of host memory.
    pub host: Verdict,
    /// Of both.
    pub overall: Verdict,
    /// Why, those of the budget included. Empty when everything is known to fit.
    pub reasons: Vec<Reason>,
    /// Budget less the most that any stage can take: not negative exactly when device and pool hold all stages at their
    /// worst. `None` when any of it is unknown.
    pub margin_bytes: Option<i64>,
    /// What is missing when something does not fit: on the device first.
    pub short: Option<Short>,
    /// Host memory of the stage that needs most. `None` when any stage is unknown.
    pub host_required: Option<u64>,
    /// What there is of it: host memory, or the pool.
    pub host_capacity: Option<u64>,
}

impl VerdictOutcome {
    /// The host section of an estimate.
    pub fn host_report(&self) -> HostReport {
        HostReport { required_bytes: self.host_required, capacity_bytes: self.host_capacity, status: self.host }
    }
}

/// How bad a verdict is when several are put together.
fn severity(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fits => 0,
        Verdict::Uncertain => 1,
        Verdict::Unknown => 2,
        Verdict::DoesNotFit => 3,
    }
}

/// The worse of two.
pub fn worse(a: Verdict, b: Verdict) -> Verdict {
    if severity(b) > severity(a) { b } else { a }
}

/// One side while its stages are gone through.
struct Side {
    verdict: Verdict,
    /// Of the stage that is shortest of memory: bytes missing.
    short: Option<(u128, StageName)>,
    /// Of the stage that may be short of memory: the most.
    close: Option<(u128, StageName)>,
    /// The least that any stage can do with.
    least: u128,
}

impl Side {
    fn new() -> Self {
        Self { verdict: Verdict::Fits, short: None, close: None, least: 0 }
    }

    fn add(&mut self, verdict: Verdict) {
        self.verdict = worse(self.verdict, verdict);
    }

    fn missing(&mut self, bytes: u128, stage: StageName) {
        self.add(Verdict::DoesNotFit);
        if self.short.is_none_or(|(most, _)| bytes > most) {
            self.short = Some((bytes, stage));
        }
    }

    fn close(&mut self, most: u128, stage: StageName) {
        self.add(Verdict::Uncertain);
        if self.close.is_none_or(|(other, _)| most > other) {
            self.close = Some((most, stage));
        }
    }

    /// Compares what a stage needs with what there is.
    fn compare(&mut self, least: u128, most: u128, limit: u64, stage: StageName) {
        let limit = u128::from(limit);
        self.least = self.least.max(least);
        if least > limit {
            self.missing(least - limit, stage);
        } else if most > limit {
            self.close(most, stage);
        }
    }
}

/// Stages gone through so far.
struct Tally<'a> {
    budget: &'a Budget,
    /// The most that the process lets its allocator take.
    cap: Option<u64>,
    device: Side,
    allocator: Side,
    host: Side,
    /// The smallest difference between what there is and the most that a stage can take.
    margin: Option<i128>,
    /// Host memory of the stage that needs most.
    required: u128,
    /// Whether every stage's host need is known.
    covered: bool,
    reasons: Vec<Reason>,
}

impl Tally<'_> {
    fn unknown(&mut self, message: String) {
        self.reasons.push(Reason::new("unknown-stage", message));
        self.device.add(Verdict::Unknown);
        self.host.add(Verdict::Unknown);
        self.covered = false;
    }

    fn stage(&mut self, stage: StageName, peak: &PeakBytes, host: HostBytes) {
        let host_need = u128::from(host.pinned_bytes) + u128::from(host.pageable_bytes);
        self.required = self.required.max(host_need);
        if let Some(cap) = self.cap {
            self.allocator.compare(peak.allocated.low.into(), peak.reserved.high.max(peak.allocated.low).into(), cap, stage);
        }
        let cost = self.budget.fixed.with_pinned(host.pinned_bytes);
        let ends = if let (Some([low, _, high]), Some(limit)) = (cost, self.budget.budget_bytes) {
            let (least, most) = least_and_most(peak, low, high);
            self.device.compare(least, most, limit, stage);
            self.leave(difference(limit, most));
            Some((least, most))
        } else {
            self.device.add(Verdict::Unknown);
            None
        };
        let (ends, limit) = if self.budget.unified {
            let together = ends.map(|(least, most)| (least + host_need, most + host_need));
            if let Some(((_, most), pool)) = together.zip(self.budget.pool_bytes) {
                self.leave(difference(pool, most));
            }
            (together, self.budget.pool_bytes)
        } else {
            (Some((host_need, host_need)), self.budget.host_bytes)
        };
        match ends.zip(limit) {
            _ if host_need == 0 => {}
            Some(((least, most), limit)) => self.host.compare(least, most, limit, stage),
            None => self.host.add(Verdict::Unknown),
        }
    }

    fn leave(&mut self, left: i128) {
        self.margin = Some(self.margin.map_or(left, |margin| margin.min(left)));
    }
}

/// Whether the stages fit. `cap`: the most that the process lets its allocator take.
///
/// Sums are made wide enough that no input overflows. Differences beyond 64 bits saturate.
pub fn verdict(stages: &[StageNeed], budget: &Budget, cap: Option<u64>) -> VerdictOutcome {
    let (device, allocator, host, reasons) = (Side::new(), Side::new(), Side::new(), budget.reasons.clone());
    let mut tally = Tally { budget, cap, device, allocator, host, margin: None, required: 0, covered: true, reasons };
    if budget.fixed.context.is_none() && budget.reasons.is_empty() {
        let message = format!("what a process takes beside its allocator is unknown: {}", budget.fixed.source);
        tally.reasons.push(Reason::new("unknown-fixed-cost", message));
    }
    if stages.is_empty() {
        tally.unknown("no stage is known".to_owned());
    }
    for StageNeed { stage, need } in stages {
        match need {
            Some((peak, host)) => tally.stage(*stage, peak, *host),
            None => tally.unknown(format!("no rule covers {}", stage.word())),
        }
    }
    let Tally { mut device, allocator, host, margin, required, covered, mut reasons, .. } = tally;
    explain(&device, &host, budget, required, &mut reasons);
    explain_cap(&allocator, cap, &mut reasons);
    device.add(allocator.verdict);
    if let (None, Some(short)) = (device.short, allocator.short) {
        device.short = Some(short);
    }
    let overall = match host.verdict {
        Verdict::Fits | Verdict::Unknown => device.verdict,
        Verdict::Uncertain | Verdict::DoesNotFit => worse(device.verdict, host.verdict),
    };
    let known = covered && budget.budget_bytes.is_some() && budget.fixed.context.is_some();
    let short = |side: &Side, tier| side.short.map(|(bytes, stage)| Short { tier, stage, bytes: narrow(bytes) });
    VerdictOutcome {
        device: device.verdict,
        host: host.verdict,
        overall,
        reasons,
        margin_bytes: margin
            .filter(|_| known && allocator.verdict == Verdict::Fits)
            .map(|margin| i64::try_from(margin).unwrap_or(if margin < 0 { i64::MIN } else { i64::MAX })),
        short: short(&device, ShortTier::Device).or_else(|| short(&host, ShortTier::Host)),
        host_required: covered.then(|| narrow(required)),
        host_capacity: if budget.unified { budget.pool_bytes } else { budget.host_bytes },
    }
}

/// The least and the most that a stage takes of the device, with the fixed cost at either end.
fn least_and_most(peak: &PeakBytes, low: u128, high: u128) -> (u128, u128) {
    let least = u128::from(peak.allocated.low) + low;
    (least, least.max(u128::from(peak.reserved.high) + high))
}

/// The smallest budgets of device memory with which a stage may fit, and does. `None`: the fixed cost is not known.
pub fn device_ends(peak: &PeakBytes, host: HostBytes, fixed: &FixedCosts) -> Option<(u64, u64)> {
    let [low, _, high] = fixed.with_pinned(host.pinned_bytes)?;
    let (least, most) = least_and_most(peak, low, high);
    Some((narrow(least), narrow(most)))
}

fn narrow(bytes: u128) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// `limit - need` without overflow: sums of a few 64-bit numbers are far below 2^127.
fn difference(limit: u64, need: u128) -> i128 {
    i128::from(limit) - i128::try_from(need).unwrap_or(i128::MAX)
}

fn explain_cap(allocator: &Side, cap: Option<u64>, reasons: &mut Vec<Reason>) {
    let cap = gib(cap.unwrap_or(0).into());
    let message = if let Some((bytes, stage)) = allocator.short {
        format!("{} needs at least {} more than the {cap} that the process lets its allocator take", stage.word(), gib(bytes))
    } else if let Some((most, stage)) = allocator.close {
        let (least, most) = (gib(allocator.least), gib(most));
        format!(
            "between {least} and {most} are needed, most of it in {}, of the {cap} that the process lets its allocator take",
            stage.word()
        )
    } else {
        return;
    };
    reasons.push(Reason::new("allocator-cap", message));
}

fn explain(device: &Side, host: &Side, budget: &Budget, host_required: u128, reasons: &mut Vec<Reason>) {
    let limit = |bytes: Option<u64>| gib(bytes.unwrap_or(0).into());
    let source = budget.source.map_or("", |source| source.word());
    if let Some((bytes, stage)) = device.short {
        let message = format!(
            "{} needs at least {} more device memory than the budget of {} ({source})",
            stage.word(),
            gib(bytes),
            limit(budget.budget_bytes)
        );
        reasons.push(Reason::new("exceeds-budget", message));
    } else if let Some((most, stage)) = device.close {
        let message = format!(
            "between {} and {} of device memory are needed, most of it in {}, and the budget is {} ({source}): fragmentation decides, or what is known only as a range",
            gib(device.least),
            gib(most),
            stage.word(),
            limit(budget.budget_bytes)
        );
        reasons.push(Reason::new("between-allocated-and-reserved", message));
    }
    if budget.unified {
        if let Some((bytes, stage)) = host.short {
            let message = format!(
                "{} needs at least {} more than the pool of {} that device and host share",
                stage.word(),
                gib(bytes),
                limit(budget.pool_bytes)
            );
            reasons.push(Reason::new("exceeds-pool", message));
        } else if let Some((most, stage)) = host.close {
            let message = format!(
                "between {} and {} are needed, most of it in {}, of the pool of {} that device and host share",
                gib(host.least),
                gib(most),
                stage.word(),
                limit(budget.pool_bytes)
            );
            reasons.push(Reason::new("pool-uncertain", message));
        }
    } else if let Some((bytes, stage)) = host.short {
        let message = format!("{} needs {} more host memory than the {} there are", stage.word(), gib(bytes), limit(budget.host_bytes));
        reasons.push(Reason::new("host-memory-short", message));
    } else if budget.host_bytes.is_none() && host_required > 0 {
        let message = format!("{} of host memory are needed, and how much there is was not stated", gib(host_required));
        reasons.push(Reason::new("host-memory-unknown", message));
    }
}

#[cfg(test)]
mod tests {
    use fv_spec::authored::MemoryType;
    use fv_spec::estimate::Interval;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::budget::{Asked, budget};
    use crate::device::{custom_from_json, from_flags};

    const GB: u64 = 1_000_000_000;

    /// A device of 24 GiB, or a budget that is not known.
    fn budget_of(bytes: Option<u64>, host: Option<u64>, context: Interval) -> Budget {
        let device = from_flags(24.0, None, None, None).expect("a device");
        let fixed = FixedCosts { context: Some(context), ..FixedCosts::exact(0, "x") };
        let mut found = budget(Some(&device), &Asked::default(), &fixed).expect("known");
        found.budget_bytes = bytes;
        found.host_bytes = host;
        if bytes.is_none() {
            found.reasons.push(Reason::new("unknown-capacity", "not known"));
        }
        found
    }

    fn need(stage: StageName, allocated: u64, reserved: u64, pinned: u64, pageable: u64) -> StageNeed {
        let peak = PeakBytes { allocated: Interval::exact(allocated), reserved: Interval::exact(reserved), device: Interval::default() };
        StageNeed { stage, need: Some((peak, HostBytes { pinned_bytes: pinned, pageable_bytes: pageable, disk_bytes: 0 })) }
    }

    fn codes(outcome: &VerdictOutcome) -> Vec<&str> {
        outcome.reasons.iter().map(|reason| reason.code.as_str()).collect()
    }

    const CONTEXT: Interval = Interval { low: 10, value: 15, high: 20 };

    #[test]
    fn reserved_decides_that_it_fits_and_allocated_that_it_does_not() {
        use StageName::{Decoding, Denoising};
        use Verdict::{DoesNotFit, Fits, Uncertain};
        for (limit, verdict_there, margin, short, code) in [
            (220, Fits, 0, None, None),
            (221, Fits, 1, None, None),
            (219, Uncertain, -1, None, Some("between-allocated-and-reserved")),
            (110, Uncertain, -110, None, Some("between-allocated-and-reserved")),
            (109, DoesNotFit, -111, Some(1), Some("exceeds-budget")),
            (0, DoesNotFit, -220, Some(110), Some("exceeds-budget")),
        ] {
            let stages = [need(Denoising, 100, 200, 0, 0), need(Decoding, 50, 60, 0, 0)];
            let outcome = verdict(&stages, &budget_of(Some(limit), None, CONTEXT), None);
            assert_eq!((outcome.device, outcome.host, outcome.overall), (verdict_there, Fits, verdict_there), "{limit}");
            assert_eq!(outcome.margin_bytes, Some(margin), "{limit}");
            assert_eq!(
                outcome.short.map(|short| (short.tier, short.stage, short.bytes)),
                short.map(|bytes| (ShortTier::Device, Denoising, bytes))
            );
            assert_eq!(codes(&outcome), code.into_iter().collect::<Vec<_>>());
        }
        // The interval's ends count, not its middle.
        let peak = PeakBytes {
            allocated: Interval { low: 90, value: 100, high: 110 },
            reserved: Interval { low: 180, value: 200, high: 230 },
            device: Interval::exact(u64::MAX),
        };
        let stages = [StageNeed { stage: Denoising, need: Some((peak, HostBytes::default())) }];
        for (limit, expected) in [(250, Fits), (249, Uncertain), (100, Uncertain), (99, DoesNotFit)] {
            assert_eq!(verdict(&stages, &budget_of(Some(limit), None, CONTEXT), None).device, expected, "{limit}");
        }
    }

    #[test]
    fn the_shown_device_peak_is_the_one_that_is_compared() {
        let budget = budget_of(Some(1000), None, CONTEXT);
        let reserved = Interval { low: 180, value: 200, high: 230 };
        let shown = budget.fixed.device_peak(reserved, 0).expect("no overflow");
        let peak = PeakBytes { allocated: Interval::exact(100), reserved, device: shown };
        let outcome = verdict(&[StageNeed { stage: StageName::Load, need: Some((peak, HostBytes::default())) }], &budget, None);
        assert_eq!(outcome.margin_bytes, Some(1000 - i64::try_from(shown.high).expect("small")));
    }

    #[test]
    fn a_cap_on_the_allocator_is_a_limit_without_the_fixed_cost() {
        use Verdict::{DoesNotFit, Fits, Uncertain};
        let stages = [need(StageName::Denoising, 100, 200, 0, 0)];
        for (cap, limit, expected, words, short) in [
            (None, 1000, Fits, vec![], None),
            (Some(200), 1000, Fits, vec![], None),
            (Some(199), 1000, Uncertain, vec!["allocator-cap"], None),
            (Some(100), 1000, Uncertain, vec!["allocator-cap"], None),
            (Some(99), 1000, DoesNotFit, vec!["allocator-cap"], Some(1)),
            (Some(99), 150, DoesNotFit, vec!["between-allocated-and-reserved", "allocator-cap"], Some(1)),
            (Some(150), 50, DoesNotFit, vec!["exceeds-budget", "allocator-cap"], Some(60)),
        ] {
            let outcome = verdict(&stages, &budget_of(Some(limit), None, CONTEXT), cap);
            assert_eq!((outcome.overall, codes(&outcome)), (expected, words), "{cap:?} {limit}");
            assert_eq!(outcome.short.map(|short| short.bytes), short, "{cap:?} {limit}");
            assert_eq!(outcome.margin_bytes.is_some(), cap.is_none_or(|cap| cap >= 200));
        }
    }

    #[test]
    fn host_memory_that_is_short_is_a_no_and_unstated_host_memory_is_a_remark() {
        use Verdict::{DoesNotFit, Fits, Uncertain, Unknown};
        // Allocated and reserved; pinned and pageable; host memory; host and overall verdict; reasons.
        for (peak, (pinned, pageable), capacity, (host, overall), reasons) in [
            ((1, 1), (0, 0), None, (Fits, Fits), vec![]),
            ((1, 1), (6, 4), Some(10), (Fits, Fits), vec![]),
            ((1, 1), (6, 4), Some(9), (DoesNotFit, DoesNotFit), vec!["host-memory-short"]),
            ((1, 1), (6, 4), None, (Unknown, Fits), vec!["host-memory-unknown"]),
            ((1, 99), (6, 4), None, (Unknown, Uncertain), vec!["between-allocated-and-reserved", "host-memory-unknown"]),
            ((99, 99), (6, 4), None, (Unknown, DoesNotFit), vec!["exceeds-budget", "host-memory-unknown"]),
            ((99, 99), (0, 0), Some(9), (Fits, DoesNotFit), vec!["exceeds-budget"]),
            ((99, 99), (6, 4), Some(9), (DoesNotFit, DoesNotFit), vec!["exceeds-budget", "host-memory-short"]),
            ((1, 1), (u64::MAX, u64::MAX), Some(u64::MAX), (DoesNotFit, DoesNotFit), vec!["host-memory-short"]),
        ] {
            let stages =
                [need(StageName::Denoising, peak.0, peak.1, pinned, pageable), need(StageName::Decoding, 0, 0, 0, 1.min(pageable))];
            let outcome = verdict(&stages, &budget_of(Some(50), capacity, CONTEXT), None);
            assert_eq!((outcome.host, outcome.overall), (host, overall), "{peak:?} {pinned} {pageable}");
            assert_eq!(codes(&outcome), reasons);
            let report = outcome.host_report();
            assert_eq!(
                (report.required_bytes, report.capacity_bytes, report.status),
                (Some(pinned.saturating_add(pageable)), capacity, host)
            );
        }
        // Stages are not added up: 6 and 7 fit into 8.
        let stages = [need(StageName::Encoding, 0, 0, 6, 0), need(StageName::Denoising, 0, 0, 0, 7)];
        let outcome = verdict(&stages, &budget_of(Some(50), Some(8), CONTEXT), None);
        assert_eq!((outcome.overall, outcome.host_required), (Fits, Some(7)));
        // What is short on both sides is said of the device; of the host alone, of the host.
        let outcome = verdict(&stages, &budget_of(Some(50), Some(5), CONTEXT), None);
        let short = outcome.short.expect("short");
        assert_eq!((short.tier.word(), short.stage, short.bytes), ("host", StageName::Denoising, 2));
    }

    #[test]
    fn what_is_not_known_makes_the_answer_unknown_unless_the_rest_says_no() {
        use Verdict::{DoesNotFit, Fits, Unknown};
        let uncovered = StageNeed { stage: StageName::Decoding, need: None };
        let small = need(StageName::Denoising, 1, 1, 0, 0);
        let large = need(StageName::Denoising, 1000, 1000, 0, 0);
        let limit = |bytes| budget_of(bytes, Some(10), CONTEXT);
        for (stages, budget, (device, host, overall), reasons) in [
            (vec![], limit(Some(50)), (Unknown, Unknown, Unknown), vec!["unknown-stage"]),
            (vec![small, uncovered], limit(Some(50)), (Unknown, Unknown, Unknown), vec!["unknown-stage"]),
            (vec![large, uncovered], limit(Some(50)), (DoesNotFit, Unknown, DoesNotFit), vec!["unknown-stage", "exceeds-budget"]),
            (vec![small], limit(None), (Unknown, Fits, Unknown), vec!["unknown-capacity"]),
            (
                vec![need(StageName::Load, 1, 1, 99, 0)],
                limit(None),
                (Unknown, DoesNotFit, DoesNotFit),
                vec!["unknown-capacity", "host-memory-short"],
            ),
        ] {
            let outcome = verdict(&stages, &budget, None);
            assert_eq!((outcome.device, outcome.host, outcome.overall), (device, host, overall), "{stages:?}");
            assert_eq!(outcome.margin_bytes, None);
            assert_eq!(codes(&outcome), reasons);
        }
        let mut budget = limit(Some(50));
        budget.fixed.context = None;
        let outcome = verdict(&[small], &budget, None);
        assert_eq!((outcome.overall, codes(&outcome)), (Unknown, vec!["unknown-fixed-cost"]));
    }

    #[test]
    fn unified_memory_is_one_pool() {
        use Verdict::{DoesNotFit, Fits, Uncertain};
        let apple = custom_from_json(&json!({
            "custom": true, "backend": "mps", "memory": { "type": "unified", "nominal": { "value": 64, "unit": "GB" } }
        }))
        .expect("a device");
        let pool = budget(Some(&apple), &Asked::default(), &FixedCosts::exact(0, "none")).expect("known");
        assert_eq!((pool.memory_type, pool.pool_bytes), (Some(MemoryType::Unified), Some(48 * GB)));
        // Allocated, reserved, pageable in GB; device, host, overall.
        for (allocated, reserved, pageable, (device, host, overall), margin) in [
            (30, 30, 18, (Fits, Fits, Fits), 0),
            (30, 30, 0, (Fits, Fits, Fits), 18),
            (30, 30, 19, (Fits, DoesNotFit, DoesNotFit), -1),
            (30, 35, 15, (Fits, Uncertain, Uncertain), -2),
            (30, 49, 1, (Uncertain, Uncertain, Uncertain), -2),
            (49, 49, 0, (DoesNotFit, Fits, DoesNotFit), -1),
            (0, 0, 49, (Fits, DoesNotFit, DoesNotFit), -1),
        ] {
            let stages =
                [need(StageName::Denoising, allocated * GB, reserved * GB, 0, pageable * GB), need(StageName::Decoding, GB, GB, 0, 0)];
            let outcome = verdict(&stages, &pool, None);
            assert_eq!((outcome.device, outcome.host, outcome.overall), (device, host, overall), "{allocated} {reserved} {pageable}");
            assert_eq!(outcome.margin_bytes, Some(margin * 1_000_000_000));
        }
        // Peaks of different stages are not added up.
        let apart = [need(StageName::Encoding, 40 * GB, 40 * GB, 0, 0), need(StageName::Denoising, GB, GB, 0, 40 * GB)];
        assert_eq!(verdict(&apart, &pool, None).overall, Fits);
        let together = [need(StageName::Denoising, 40 * GB, 40 * GB, 0, 40 * GB)];
        let outcome = verdict(&together, &pool, None);
        assert_eq!((outcome.overall, codes(&outcome)), (DoesNotFit, vec!["exceeds-pool"]));
        assert_eq!(outcome.short.map(|short| (short.tier, short.bytes)), Some((ShortTier::Host, 32 * GB)));
        assert_eq!(outcome.host_capacity, Some(48 * GB));

        // Where a policy gives the device half, the host may use what is left of three quarters.
        let graphics = custom_from_json(&json!({
            "custom": true, "backend": "rocm",
            "memory": { "type": "unified", "nominal": { "value": 64, "unit": "GB" }, "usable": { "value": 32, "unit": "GB" }, "policy": "half" }
        }))
        .expect("a device");
        let pool = budget(Some(&graphics), &Asked::default(), &FixedCosts::exact(0, "none")).expect("known");
        for (allocated, pageable, overall) in [(32, 16, Fits), (33, 0, DoesNotFit), (32, 17, DoesNotFit), (20, 28, Fits)] {
            let stages = [need(StageName::Denoising, allocated * GB, allocated * GB, 0, pageable * GB)];
            assert_eq!(verdict(&stages, &pool, None).overall, overall, "{allocated} {pageable}");
        }
    }

    #[test]
    fn page_locked_memory_takes_device_memory() {
        let mut budget = budget_of(Some(1000 + (40 << 21)), Some(u64::MAX), Interval::exact(0));
        budget.fixed.per_pinned_gib = 2 << 20;
        for (bytes, expected) in [(1000, Verdict::Fits), (1001, Verdict::DoesNotFit)] {
            let stages = [need(StageName::Denoising, bytes, bytes, 40 << 30, 0)];
            assert_eq!(verdict(&stages, &budget, None).device, expected);
        }
    }

    fn any_peak() -> impl Strategy<Value = StageNeed> {
        let number = || prop_oneof![0..1000_u64, proptest::num::u64::ANY];
        let interval = move || (number(), number(), number()).prop_map(|(low, value, high)| Interval { low, value, high });
        let host =
            (number(), number()).prop_map(|(pinned_bytes, pageable_bytes)| HostBytes { pinned_bytes, pageable_bytes, disk_bytes: 0 });
        let stage = (0..4_usize).prop_map(|i| StageName::ALL[i]);
        (stage, proptest::option::weighted(0.9, (interval(), interval(), host))).prop_map(|(stage, need)| StageNeed {
            stage,
            need: need.map(|(allocated, reserved, host)| (PeakBytes { allocated, reserved, device: Interval::default() }, host)),
        })
    }

    proptest! {
        #[test]
        fn a_larger_budget_is_never_worse(stages in proptest::collection::vec(any_peak(), 0..4), cap: Option<u64>,
                                          a in prop_oneof![0..3000_u64, proptest::num::u64::ANY],
                                          b in prop_oneof![0..3000_u64, proptest::num::u64::ANY],
                                          context in 0..100_u64, pinned in proptest::num::u64::ANY, unified: bool, host: Option<u64>) {
            let of = |bytes: u64| {
                let context = Interval { low: context, value: context + 1, high: context + 2 };
                let mut budget = budget_of(Some(bytes), host, context);
                budget.fixed.per_pinned_gib = pinned;
                budget.unified = unified;
                budget.pool_bytes = unified.then_some(bytes);
                verdict(&stages, &budget, cap)
            };
            let (less, more) = (of(a.min(b)), of(a.max(b)));
            prop_assert!(severity(more.overall) <= severity(less.overall));
            prop_assert!(severity(more.device) <= severity(less.device) && severity(more.host) <= severity(less.host));
            prop_assert!(less.margin_bytes <= more.margin_bytes);
            for outcome in [less, more] {
                if outcome.margin_bytes.is_some_and(|margin| margin >= 0) {
                    prop_assert_eq!(outcome.device, Verdict::Fits);
                }
                prop_assert_eq!(outcome.short.is_some(), outcome.device == Verdict::DoesNotFit || outcome.host == Verdict::DoesNotFit);
                prop_assert!(outcome.overall != Verdict::Fits || outcome.device == Verdict::Fits);
                prop_assert!(outcome.overall == Verdict::Fits || !outcome.reasons.is_empty());
            }
        }
    }
}
