//! Devices and deployments for a request.
//!
//! Every candidate passes one gate, the status that [`evidence::assess`](crate::evidence::assess) gives it:
//!
//! | status | basis | listed under |
//! | --- | --- | --- |
//! | `fits` | measured | `measured` |
//! | `fits` | analytical | `analytical` |
//! | `uncertain` | either | `uncertain` |
//! | `unknown` | either | `unknown`, always with a reason |
//! | `does_not_fit` | either | nowhere |
//!
//! Within a list the smallest device comes first, then fewer devices, then ids. Memory of several devices is never added: a
//! candidate's capacity is that of one. A partition is a candidate of its own, with an estimate of its own; one that was made
//! for another device or partition is listed as unknown and recommends nothing.

use fv_spec::authored::ReferenceRun;
use fv_spec::estimate::{Basis, Estimate, EvidenceMatch, Interval, Reason, Recommendation, Recommendations, Verdict};
use fv_spec::forecast::TimeForecast;
use fv_spec::request::PartialRequest;

use crate::device::DeviceSpec;
use crate::error::InputError;
use crate::evidence::{assess_with_runs, gib, largest_peaks};
use crate::question::Question;
use crate::resolve::Overrides;

/// A device, partition and deployment that may be recommended.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate<'a> {
    /// The model, where several are looked at.
    pub model: Option<String>,
    /// The device.
    pub hardware: String,
    /// Its partition; `None` is the full card.
    pub partition: Option<String>,
    /// The deployment.
    pub deployment: String,
    /// Devices taking part.
    pub gpu_count: u32,
    /// Capacity of one device, partition or allocation: what candidates are ordered by. Without it the budget is.
    pub capacity_bytes: Option<u64>,
    /// The estimate for exactly this candidate.
    pub estimate: Estimate,
    /// The model's runs, matched against exactly this candidate.
    pub evidence: EvidenceMatch,
    /// The model's runs.
    pub runs: &'a [ReferenceRun],
}

/// Sorts candidates into what was measured to fit, fits by the rules, may fit, and is not known. The order of `candidates`
/// does not matter.
pub fn recommend(candidates: Vec<Candidate<'_>>) -> Recommendations {
    let mut candidates: Vec<_> = candidates.into_iter().map(|candidate| (order(&candidate), candidate)).collect();
    candidates.sort_by(|(a, _), (b, _)| a.cmp(b));
    let mut result = Recommendations::default();
    for (_, candidate) in candidates {
        let (status, basis, recommendation) = judge(candidate);
        let list = match (status, basis) {
            (Verdict::Fits, Basis::Measured) => &mut result.measured,
            (Verdict::Fits, Basis::Analytical) => &mut result.analytical,
            (Verdict::Uncertain, _) => &mut result.uncertain,
            (Verdict::Unknown, _) => &mut result.unknown,
            (Verdict::DoesNotFit, _) => continue,
        };
        list.push(recommendation);
    }
    result
}

/// Known capacities from small to large, then unknown ones; then fewer devices, then ids.
fn order(candidate: &Candidate) -> (u64, u32, String, Option<String>, Option<String>, String) {
    let capacity = candidate.capacity_bytes.or(candidate.estimate.memory.budget_bytes).unwrap_or(u64::MAX);
    let Candidate { model, hardware, partition, deployment, gpu_count, .. } = candidate;
    (capacity, *gpu_count, hardware.clone(), partition.clone(), model.clone(), deployment.clone())
}

fn judge(candidate: Candidate) -> (Verdict, Basis, Recommendation) {
    let Candidate { model, hardware, partition, deployment, gpu_count, capacity_bytes: _, estimate, evidence, runs } = candidate;
    let same = estimate.hardware.as_ref() == Some(&hardware) && estimate.memory.partition == partition && estimate.deployment == deployment;
    let budget_bytes = estimate.memory.budget_bytes;
    if !same {
        let message = "the estimate is of another device, partition or deployment, and theirs are not inherited";
        let reasons = vec![Reason::new("estimate-elsewhere", message)];
        let recommendation = Recommendation {
            model,
            hardware,
            partition,
            deployment,
            gpu_count,
            device_peak: None,
            budget_bytes: None,
            runs: Vec::new(),
            reasons,
            time: None,
        };
        return (Verdict::Unknown, Basis::Analytical, recommendation);
    }
    let time = estimate.forecast.as_ref().and_then(TimeForecast::summary);
    let assessed = assess_with_runs(estimate, evidence, runs);
    let estimated = largest_peaks(&assessed.assessment.estimate).map(|peaks| peaks.device);
    let device_peak = assessed.device_used.map(Interval::exact).or(estimated);
    let mut reasons = assessed.assessment.reasons;
    if reasons.is_empty() && assessed.assessment.status == Verdict::Unknown {
        reasons.push(Reason::new("estimate-unknown", "the estimate gives no verdict and no reason"));
    }
    if gpu_count > 1 {
        let peak = device_peak.map_or(String::new(), |peak| format!(" of up to {}", gib(peak.high)));
        let message = format!("each of {gpu_count} devices holds its own share{peak}; their memory is not one pool");
        reasons.push(Reason::new("memory-not-pooled", message));
    }
    let recommendation =
        Recommendation { model, hardware, partition, deployment, gpu_count, device_peak, budget_bytes, runs: assessed.runs, reasons, time };
    (assessed.assessment.status, assessed.assessment.basis, recommendation)
}

/// The smallest devices that a request fits on by the rules, smallest first.
///
/// # Errors
/// What is wrong with the request or the settings.
pub fn smallest(
    question: &Question<'_>,
    request: &PartialRequest,
    devices: &[DeviceSpec],
    limit: usize,
) -> Result<Vec<Recommendation>, Vec<InputError>> {
    let overrides = [false, true].map(|unified| Overrides { unified_memory: unified, ..question.overrides.clone() });
    let on = |unified: bool| Question { overrides: &overrides[usize::from(unified)], ..*question };
    let workloads = [on(false).evaluate(request, false)?, on(true).evaluate(request, false)?];
    let mut all = Vec::with_capacity(devices.len());
    for device in devices {
        let question = Question { device: Some(device), ..*question };
        let workload = &workloads[usize::from(question.unified())];
        let budget = Question { device: Some(device), ..on(question.unified()) }.budget(&workload.settings)?;
        all.push((budget.capacity_bytes.unwrap_or(u64::MAX), device, workload, budget));
    }
    all.sort_by(|(a, one, ..), (b, other, ..)| a.cmp(b).then_with(|| one.id.cmp(&other.id)));
    let fits = all.into_iter().filter_map(|(_, device, workload, budget)| {
        let brief = workload.brief(&budget);
        (brief.status == Verdict::Fits).then(|| Recommendation {
            model: None,
            hardware: device.id.clone(),
            partition: None,
            deployment: question.example.id.clone(),
            gpu_count: workload.settings.gpu_count,
            device_peak: brief.device_peak,
            budget_bytes: budget.budget_bytes,
            runs: Vec::new(),
            reasons: Vec::new(),
            time: None,
        })
    });
    Ok(fits.take(limit).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::evidence::tests::{applicable, estimate, measured, run};

    const GIB: u64 = 1 << 30;

    fn candidate<'a>(hardware: &str, capacity: u64, status: Verdict, runs: &'a [ReferenceRun]) -> Candidate<'a> {
        let mut estimate = estimate(status, "nominal", capacity * GIB);
        estimate.hardware = Some(hardware.to_owned());
        Candidate {
            model: None,
            hardware: hardware.to_owned(),
            partition: None,
            deployment: "default".to_owned(),
            gpu_count: 1,
            capacity_bytes: Some(capacity * GIB),
            estimate,
            evidence: applicable(runs),
            runs,
        }
    }

    fn names(list: &[Recommendation]) -> Vec<&str> {
        list.iter().map(|found| found.hardware.as_str()).collect()
    }

    #[test]
    fn each_status_has_its_list_and_what_does_not_fit_has_none() {
        let runs = [run("a")];
        let mut no_reason = candidate("no-reason", 24, Verdict::Unknown, &[]);
        no_reason.estimate.reasons.clear();
        let found = recommend(vec![
            candidate("too-small", 8, Verdict::DoesNotFit, &[]),
            candidate("large", 80, Verdict::Fits, &[]),
            candidate("small", 24, Verdict::Fits, &[]),
            candidate("close", 16, Verdict::Uncertain, &[]),
            candidate("unread", 96, Verdict::Unknown, &[]),
            no_reason,
            candidate("card-24gb", 24, Verdict::DoesNotFit, &runs),
        ]);
        assert_eq!(names(&found.measured), ["card-24gb"]);
        assert_eq!(names(&found.analytical), ["small", "large"]);
        assert_eq!(names(&found.uncertain), ["close"]);
        assert_eq!(names(&found.unknown), ["no-reason", "unread"]);
        assert_eq!(found.measured[0].runs, ["a"]);
        assert!(found.analytical.iter().all(|found| found.runs.is_empty()));
        assert!(found.unknown.iter().all(|found| !found.reasons.is_empty()));
    }

    #[test]
    fn a_run_elsewhere_or_a_smaller_budget_recommends_nothing() {
        let runs = [run("a")];
        let mut capped = candidate("card-24gb", 24, Verdict::Unknown, &runs);
        capped.estimate.memory.budget_source = Some("explicit".to_owned());
        let mut host = candidate("card-24gb", 24, Verdict::DoesNotFit, &runs);
        host.estimate.host.status = Verdict::DoesNotFit;
        let found = recommend(vec![candidate("card-80gb", 80, Verdict::Unknown, &runs), capped, host]);
        assert_eq!((found.measured.len(), names(&found.unknown)), (0, vec!["card-24gb", "card-80gb"]));
    }

    #[test]
    fn a_partition_is_judged_by_its_own_estimate_and_runs() {
        let full = [run("a")];
        let mut part = run("b");
        part.hardware_partition = Some("1g".to_owned());
        let part = [part];
        let partition = |estimated: bool, runs| {
            let mut candidate = candidate("card-24gb", 10, Verdict::Unknown, runs);
            candidate.partition = Some("1g".to_owned());
            candidate.estimate.memory.partition = estimated.then(|| "1g".to_owned());
            candidate
        };
        let mut other = partition(true, &part);
        other.deployment = "other".to_owned();
        let found = recommend(vec![partition(true, &full), partition(false, &full), partition(true, &part), other]);
        assert_eq!(
            found.measured.iter().map(|found| (found.partition.as_deref(), &found.runs[..])).collect::<Vec<_>>(),
            [(Some("1g"), &["b".to_owned()][..])]
        );
        let reasons: Vec<&str> = found.unknown.iter().map(|found| found.reasons[0].code.as_str()).collect();
        assert_eq!(reasons, ["run-elsewhere", "estimate-elsewhere", "estimate-elsewhere"]);
    }

    #[test]
    fn the_peak_is_the_measured_one_where_there_is_one() {
        let runs = [measured("a", "device_used", 20.0, None), measured("b", "torch_peak_reserved", 21.0, None)];
        let peak = |runs: &[ReferenceRun], status| {
            let found = recommend(vec![candidate("card-24gb", 24, status, runs)]);
            [found.measured, found.analytical].concat()[0].device_peak
        };
        assert_eq!(peak(&runs, Verdict::DoesNotFit), Some(Interval::exact(20 * GIB)));
        assert_eq!(peak(&runs[1..], Verdict::Fits), Some(Interval::exact(26 * GIB)));
        assert_eq!(peak(&[], Verdict::Fits), Some(Interval::exact(26 * GIB)));
    }

    #[test]
    fn memory_of_several_devices_is_not_added() {
        let mut two = candidate("card-24gb", 24, Verdict::Fits, &[]);
        two.gpu_count = 2;
        let found = recommend(vec![two, candidate("card-40gb", 40, Verdict::Fits, &[]), candidate("card-24gb", 24, Verdict::Fits, &[])]);
        let order: Vec<_> = found.analytical.iter().map(|found| (found.hardware.as_str(), found.gpu_count)).collect();
        assert_eq!(order, [("card-24gb", 1), ("card-24gb", 2), ("card-40gb", 1)], "two of 24 are not one of 48");
        assert_eq!(found.analytical[1].budget_bytes, Some(24 * GIB));
        assert!(
            found.analytical[1].reasons.iter().any(|reason| reason.code == "memory-not-pooled" && reason.message.contains("26.00 GiB"))
        );
    }

    #[test]
    fn unknown_capacities_come_last() {
        let mut unknown = candidate("a-card", 8, Verdict::Unknown, &[]);
        (unknown.capacity_bytes, unknown.estimate.memory.budget_bytes) = (None, None);
        let found = recommend(vec![unknown, candidate("b-card", 8, Verdict::Unknown, &[])]);
        assert_eq!(names(&found.unknown), ["b-card", "a-card"]);
    }

    proptest! {
        #[test]
        fn the_order_of_candidates_changes_nothing(
            cards in proptest::collection::vec((0_usize..4, 1..6_u64), 1..8),
            order in any::<prop::sample::Index>(),
        ) {
            let statuses = [Verdict::Fits, Verdict::Uncertain, Verdict::DoesNotFit, Verdict::Unknown];
            let mut candidates: Vec<Candidate> = cards
                .iter()
                .enumerate()
                .map(|(i, (status, capacity))| candidate(&format!("card-{i}"), *capacity, statuses[*status], &[]))
                .collect();
            let first = recommend(candidates.clone());
            let middle = order.index(candidates.len());
            candidates.rotate_left(middle);
            prop_assert_eq!(&first, &recommend(candidates.clone()));
            candidates.reverse();
            prop_assert_eq!(&first, &recommend(candidates));
        }
    }
}
