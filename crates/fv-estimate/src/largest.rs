//! The largest legal clip for a device and settings.
//!
//! What must be alive at once grows with every frame and pixel, so the end of what *may* fit is found by bisection. What an
//! allocator holds does not grow steadily: sizes that follow each other well need less. So from there the clips that may fit
//! are tried one by one, downwards, until one fits; the answer is the largest that fits and not merely one before which a
//! smaller one failed. It and the next larger legal clip are estimated by themselves, and the answer carries both verdicts. Of a runtime
//! that plans, a clip's layout decides, and no plan is written out for it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fv_spec::estimate::{Estimate, Stage, StageName, Verdict};
use fv_spec::questions::{Adapted, Clip, Extent, Largest, Limit, LimitKind, Unanswered};
use fv_spec::request::{PartialRequest, Request};

use crate::budget::Budget;
use crate::changes::{Offer, changes, cheapest_settings, with};
use crate::error::InputError;
use crate::estimate::{Brief, Workload};
use crate::question::{Question, admitted, clip, exactly};
use crate::resolve::legal::{Legal, legal};

/// Clips that may fit and are tried one by one; where there are more, those next to what is known to fit are.
const TRIED: u32 = 256;
/// Shorter sides that people ask for, in pixels.
const SIDES: [u32; 12] = [240, 320, 368, 480, 544, 640, 720, 768, 960, 1088, 1440, 2160];
/// Buffers that a limit names.
const BUFFERS: usize = 4;

/// Which parts of an answer are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one part of an answer")]
pub struct Wanted {
    /// Whether what may fit counts as fitting.
    pub admit_uncertain: bool,
    /// Frames against sizes.
    pub pareto: bool,
    /// What would make the request fit, where it does not.
    pub changes: bool,
    /// Where nothing fits, what does with the cheapest change of settings.
    pub adapted: bool,
}

/// The largest clips of one deployment, or why nothing is known of them.
pub type Answer = Result<Box<Largest>, Unanswered>;

/// The largest clips of one deployment.
///
/// # Errors
/// What is wrong with the request, the settings or the figures of the device.
pub fn largest(question: &Question<'_>, asked: &PartialRequest, wanted: Wanted) -> Result<Answer, Vec<InputError>> {
    let workload = question.evaluate(asked, false)?;
    let budget = question.budget(&workload.settings)?;
    let request = workload.request;
    let plain = question.estimate(&exactly(&request))?;
    let legal = legal(question.model, question.example);
    let search = Search::new(question, &budget, legal, wanted.admit_uncertain);
    let smallest = Request { num_frames: legal.frames(0), ..request };
    if plain.status == Verdict::Unknown && search.clip(&smallest)?.status == Verdict::Unknown {
        let (model, deployment) = (plain.model, plain.deployment);
        return Ok(Err(Unanswered { model, deployment, reasons: plain.reasons }));
    }
    let frames = search.frames(&request)?;
    let sizes = legal.sizes(request.height, request.width);
    let size = search.size(&request, &sizes)?;
    let pareto = if wanted.pareto { search.pareto(&request, &sizes, size.largest)? } else { Vec::new() };
    let Offer { changes, tried } = if wanted.changes && !admitted(plain.status, wanted.admit_uncertain) {
        changes(question, asked, [frames.largest, size.largest])?
    } else {
        Offer::default()
    };
    let adapted = if wanted.adapted && frames.largest.is_none() && size.largest.is_none() {
        adapted(question, [asked, &exactly(&smallest)], &request, wanted)?
    } else {
        None
    };
    Ok(Ok(Box::new(Largest {
        model: plain.model,
        deployment: plain.deployment,
        runtime: question.example.runtime.word().to_owned(),
        request,
        status: plain.status,
        memory: plain.memory,
        frames,
        size,
        pareto,
        changes,
        tried,
        adapted,
        reasons: plain.reasons,
        notes: plain.notes,
    })))
}

/// The largest clips with the cheapest change of settings that lets the first of some requests fit for which there is one.
fn adapted(
    question: &Question<'_>,
    asked: [&PartialRequest; 2],
    request: &Request,
    wanted: Wanted,
) -> Result<Option<Adapted>, Vec<InputError>> {
    let mut found = None;
    for asked in asked {
        if found.is_none() {
            found = cheapest_settings(question, asked)?;
        }
    }
    let Some(change) = found else { return Ok(None) };
    let overrides = with(question.overrides, &change);
    let [frames, size] = extents(&Question { overrides: &overrides, ..*question }, request, wanted.admit_uncertain)?;
    Ok(Some(Adapted { frames, size, change }))
}

/// How far a request can grow in frames and in size.
pub(crate) fn extents(question: &Question<'_>, request: &Request, admit: bool) -> Result<[Extent; 2], Vec<InputError>> {
    let budget = question.budget(&question.evaluate(&exactly(request), false)?.settings)?;
    let legal = legal(question.model, question.example);
    let search = Search::new(question, &budget, legal, admit);
    let sizes = legal.sizes(request.height, request.width);
    Ok([search.frames(request)?, search.size(request, &sizes)?])
}

/// What keeps a request from fitting, by its estimate and what that leaves.
fn limit(estimate: &Estimate, margin_bytes: Option<i64>) -> Limit {
    let message = |codes: &[&str]| {
        let found = estimate.reasons.iter().find(|reason| codes.contains(&reason.code.as_str())).or(estimate.reasons.first());
        found.map_or_else(|| "no reason is given".to_owned(), |reason| reason.message.clone())
    };
    let stage = |word: &str| StageName::ALL.into_iter().find(|stage| stage.word() == word);
    let memory = |message: String, tier: &str, stage: Option<StageName>, bytes: u64| Limit {
        kind: LimitKind::Memory,
        message,
        tier: Some(tier.to_owned()),
        stage,
        bytes: Some(bytes),
        buffers: stage
            .and_then(|name| estimate.stages.iter().find(|stage| stage.name == name.word()))
            .map_or_else(Vec::new, |stage| stage.buffers.iter().take(BUFFERS).cloned().collect()),
    };
    if let Some(short) = &estimate.shortfall {
        let message = message(&["exceeds-budget", "exceeds-pool", "host-memory-short", "allocator-cap"]);
        return memory(message, &short.tier, stage(&short.stage), short.bytes);
    }
    let spread = estimate.reasons.iter().find(|reason| reason.code == "unknown-spread");
    let pool = estimate.reasons.iter().any(|reason| reason.code == "pool-uncertain");
    let most = |stage: &Stage| {
        let host = if pool { stage.host.pinned_bytes + stage.host.pageable_bytes } else { 0 };
        stage.peak_bytes.map(|peaks| peaks.device.high.saturating_add(host))
    };
    // Of stages that take as much the first, which is the one that the message names.
    let highest = estimate.stages.iter().rev().max_by_key(|stage| most(stage));
    match (estimate.status, highest) {
        (Verdict::Uncertain, Some(highest)) if spread.is_none() => {
            let message = message(&["between-allocated-and-reserved", "pool-uncertain", "allocator-cap"]);
            let bytes = margin_bytes.map_or(0, |margin| margin.min(0).unsigned_abs());
            memory(message, if pool { "host" } else { "device" }, stage(&highest.name), bytes)
        }
        _ => Limit {
            kind: LimitKind::Unknown,
            message: message(&["unknown-spread"]),
            tier: None,
            stage: None,
            bytes: None,
            buffers: Vec::new(),
        },
    }
}

/// Where the search along one line of clips ended, by places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ends {
    /// The largest that fits.
    fits: Option<u32>,
    /// The largest that may.
    may: Option<u32>,
}

/// How far a verdict has to be worked out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    /// Whether the clip may fit.
    Outlook,
    /// All of it.
    Fit,
}

/// Searches places `0..count` of a line of clips that need ever more, beginning at `start`. A clip of which nothing is known
/// ends the line as one that does not fit does. `asked` gives verdicts, and whether more was worked out than the outlook.
fn ends(
    count: u32,
    start: u32,
    admit: bool,
    mut asked: impl FnMut(u32, For) -> Result<(Verdict, bool), Vec<InputError>>,
) -> Result<Ends, Vec<InputError>> {
    let mut known: BTreeMap<u32, (Verdict, bool)> = BTreeMap::new();
    let mut found = |place: u32, wanted: For| -> Result<(Verdict, bool), Vec<InputError>> {
        if let Some(found) = known.get(&place).filter(|(_, whole)| *whole || wanted == For::Outlook) {
            return Ok(*found);
        }
        let found = asked(place, wanted)?;
        known.insert(place, found);
        Ok(found)
    };
    let may = |verdict: Verdict| matches!(verdict, Verdict::Fits | Verdict::Uncertain);
    let mut verdict = |place| Ok::<_, Vec<InputError>>(found(place, For::Outlook)?.0);
    let Some(last) = count.checked_sub(1) else { return Ok(Ends::default()) };
    // The first place that is known to fail, and the last that is known not to.
    let (mut low, mut high) = (None, count);
    let (mut place, mut step) = (start.min(last), 1_u32);
    loop {
        if may(verdict(place)?) {
            low = Some(place);
            if place == last {
                break;
            }
            place = place.saturating_add(step).min(last);
            step = step.saturating_mul(2);
        } else {
            high = place;
            break;
        }
    }
    if low.is_none() && high > 0 && may(verdict(0)?) {
        low = Some(0);
    }
    let Some(mut upper) = low else { return Ok(Ends::default()) };
    while high - upper > 1 {
        let middle = upper + (high - upper) / 2;
        if may(verdict(middle)?) { upper = middle } else { high = middle }
    }
    let (_, whole) = found(upper, For::Outlook)?;
    let mut verdict = |place| Ok::<_, Vec<InputError>>(found(place, For::Fit)?.0);
    // From the end of what may fit downwards; where that is a long way, from where bisection finds an end of what fits.
    let fits = |verdict: Verdict| admitted(verdict, admit);
    let mut from = upper;
    if upper >= TRIED && !fits(verdict(upper)?) && !fits(verdict(upper - TRIED + 1)?) {
        let (mut good, mut bad) = (0, upper);
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            if fits(verdict(middle)?) { good = middle } else { bad = middle }
        }
        from = (good + TRIED).min(upper);
    }
    for place in (0..=from).rev() {
        if fits(verdict(place)?) {
            // What a planner's outlook lets through and its plan does not is nothing that may fit.
            return Ok(Ends { fits: Some(place), may: Some(if whole { upper } else { place }) });
        }
    }
    Ok(Ends { fits: None, may: Some(upper).filter(|_| whole) })
}

/// Whether all that is wrong with a request is that no memory of any size holds it.
fn too_large(errors: &[InputError]) -> bool {
    errors.iter().all(|error| error.code == "too-large")
}

struct Search<'a> {
    question: &'a Question<'a>,
    budget: &'a Budget,
    legal: Legal,
    admit: bool,
    /// The request that was evaluated last: a runtime that plans remembers what its plan takes.
    last: RefCell<Option<(Request, Rc<Workload>)>>,
}

impl<'a> Search<'a> {
    fn new(question: &'a Question<'a>, budget: &'a Budget, legal: Legal, admit: bool) -> Self {
        Self { question, budget, legal, admit, last: RefCell::default() }
    }

    fn evaluated(&self, request: &Request) -> Result<Rc<Workload>, Vec<InputError>> {
        if let Some((_, workload)) = self.last.borrow().as_ref().filter(|(last, _)| last == request) {
            return Ok(Rc::clone(workload));
        }
        let workload = Rc::new(self.question.evaluate(&exactly(request), false)?);
        if workload.planner().is_some() {
            self.last.replace(Some((*request, Rc::clone(&workload))));
        }
        Ok(workload)
    }

    fn clip(&self, request: &Request) -> Result<Clip, Vec<InputError>> {
        let brief = match self.evaluated(request) {
            Ok(workload) => workload.brief(self.budget),
            Err(errors) if too_large(&errors) => Brief { status: Verdict::DoesNotFit, device_peak: None, margin_bytes: None },
            Err(errors) => return Err(errors),
        };
        Ok(clip(request, &brief, &self.legal))
    }

    /// The verdict of a clip, as far as it is asked for.
    fn verdict(&self, request: &Request, asked: For) -> Result<(Verdict, bool), Vec<InputError>> {
        match self.evaluated(request) {
            Ok(workload) => {
                let outlook = workload.outlook(self.budget).filter(|_| asked == For::Outlook);
                Ok(outlook.map_or_else(|| (workload.brief(self.budget).status, true), |outlook| (outlook, false)))
            }
            Err(errors) if too_large(&errors) => Ok((Verdict::DoesNotFit, true)),
            Err(errors) => Err(errors),
        }
    }

    /// Why a clip does not fit.
    fn limit(&self, request: &Request, clip: &Clip) -> Result<Limit, Vec<InputError>> {
        match self.question.estimate(&exactly(request)) {
            Ok(estimate) => Ok(limit(&estimate, clip.margin_bytes)),
            Err(errors) if too_large(&errors) => {
                let message = errors.into_iter().next().map_or_else(String::new, |error| error.message);
                Ok(Limit { kind: LimitKind::Memory, message, tier: None, stage: None, bytes: None, buffers: Vec::new() })
            }
            Err(errors) => Err(errors),
        }
    }

    /// The extent of a line of clips, with both ends estimated anew.
    fn extent(&self, count: u32, start: u32, at: impl Fn(u32) -> Request, end: &str) -> Result<Extent, Vec<InputError>> {
        let ends = ends(count, start, self.admit, |place, asked| self.verdict(&at(place), asked))?;
        let next = ends.fits.map_or(0, |place| place + 1);
        let (next, limit) = if next < count {
            let request = at(next);
            let clip = self.clip(&request)?;
            (Some(clip), self.limit(&request, &clip)?)
        } else {
            let message = format!("nothing larger is legal: {end}");
            let limit = Limit { kind: LimitKind::Family, message, tier: None, stage: None, bytes: None, buffers: Vec::new() };
            (None, limit)
        };
        let largest = ends.fits.map(|place| self.clip(&at(place))).transpose()?;
        let may_fit = ends.may.filter(|place| ends.fits < Some(*place)).map(|place| self.clip(&at(place))).transpose()?;
        Ok(Extent { largest, next, may_fit, limit })
    }

    fn frames(&self, request: &Request) -> Result<Extent, Vec<InputError>> {
        let legal = self.legal;
        let at = |place| Request { num_frames: legal.frames(place), ..*request };
        self.extent(legal.frame_counts(), legal.place_of_frames(request.num_frames), at, &legal.most())
    }

    fn size(&self, request: &Request, sizes: &[[u32; 2]]) -> Result<Extent, Vec<InputError>> {
        let start = sizes.iter().position(|size| *size == [request.height, request.width]).unwrap_or(0);
        let at = |place: u32| {
            let [height, width] = usize::try_from(place).ok().and_then(|place| sizes.get(place)).copied().unwrap_or_default();
            Request { height, width, ..*request }
        };
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        self.extent(count(sizes.len()), count(start), at, &self.legal.most())
    }

    /// The most frames at each of some sizes, as far as none of them is larger and no shorter than another.
    fn pareto(&self, request: &Request, sizes: &[[u32; 2]], largest: Option<Clip>) -> Result<Vec<Clip>, Vec<InputError>> {
        let short = |size: &[u32; 2]| size[0].min(size[1]);
        let mut wanted: Vec<[u32; 2]> =
            SIDES.iter().filter_map(|side| sizes.iter().min_by_key(|size| short(size).abs_diff(*side)).copied()).collect();
        wanted.push([request.height, request.width]);
        wanted.extend(largest.map(|clip| [clip.height, clip.width]));
        wanted.sort_unstable_by_key(|size| std::cmp::Reverse((short(size), size[0], size[1])));
        wanted.dedup();
        let mut found: Vec<Clip> = Vec::new();
        let mut start = 0;
        for [height, width] in wanted {
            let at = |place| Request { height, width, num_frames: self.legal.frames(place), ..*request };
            let ends = ends(self.legal.frame_counts(), start, self.admit, |place, asked| self.verdict(&at(place), asked))?;
            let Some(place) = ends.fits else { continue };
            // The smaller size takes as many frames at least.
            start = place;
            let clip = self.clip(&at(place))?;
            if found.last().is_none_or(|last| clip.num_frames > last.num_frames) {
                found.push(clip);
            }
            if place + 1 == self.legal.frame_counts() {
                break;
            }
        }
        found.reverse();
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(line: &[Verdict], start: u32, admit: bool) -> Ends {
        let count = u32::try_from(line.len()).expect("short");
        ends(count, start, admit, |place, _| Ok((line[place as usize], true))).expect("no errors")
    }

    #[test]
    fn the_largest_that_fits_is_found_beyond_a_smaller_one_that_may() {
        use Verdict::{DoesNotFit as N, Fits as Y, Uncertain as U, Unknown};
        for (line, fits, may) in [
            (&[Y, Y, Y][..], Some(2), Some(2)),
            (&[Y, U, Y, U, N], Some(2), Some(3)),
            (&[U, U, N], None, Some(1)),
            (&[N, N], None, None),
            (&[Y, N], Some(0), Some(0)),
            (&[Y, Y, Unknown], Some(1), Some(1)),
            (&[], None, None),
        ] {
            for start in 0..u32::try_from(line.len()).expect("short").max(1) {
                assert_eq!(found(line, start, false), Ends { fits, may }, "{line:?} {start}");
                assert_eq!(found(line, start, true), Ends { fits: may, may }, "{line:?} {start}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_line_is_searched_to_its_ends(
            fits in 0_u32..60, odd in proptest::collection::vec(any::<bool>(), 0..60), none in 1_u32..200, start in 0_u32..300,
        ) {
            let mut line: Vec<Verdict> = (0..fits).map(|_| Verdict::Fits).collect();
            line.extend(odd.iter().map(|fits| if *fits { Verdict::Fits } else { Verdict::Uncertain }));
            let may = u32::try_from(line.len()).expect("short").checked_sub(1);
            let largest = line.iter().rposition(|verdict| *verdict == Verdict::Fits).map(|place| u32::try_from(place).expect("short"));
            line.extend((0..none).map(|_| Verdict::DoesNotFit));
            prop_assert_eq!(found(&line, start, false), Ends { fits: largest, may });
        }
    }
}
