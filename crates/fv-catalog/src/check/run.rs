//! Reference runs: a completed generation says what it is evidence for, and nothing more.

use std::collections::BTreeMap;

use fv_spec::{
    authored::{RankPeaks, ReferenceRun, Runtime},
    units::{Capacity, CapacityUnit, bytes_to_gb},
};
use serde_json::Value;

use super::{
    At,
    model::{Parts, Shared},
};
use crate::{
    codes::Code,
    finding::{Finding, suggest},
    yaml::{Step, short},
};

pub(crate) fn check(at: &At, parts: &Parts, shared: &Shared, findings: &mut Vec<Finding>) {
    let mut seen = BTreeMap::new();
    for (i, run) in parts.runs.iter().enumerate() {
        let Some(run) = run else { continue };
        let path = vec!["capacity".into(), "reference_runs".into(), Step::Index(i)];
        let id = at.value(&[&path[..], &["id".into()]].concat());
        if let Some(first) = seen.insert(run.id.as_str(), id.clone()) {
            let message = format!("two reference runs are called `{}`", short(&run.id));
            findings.push(at.finding(Code::DuplicateId, id, "again here", message).also(first, "first here"));
        }
        Placed { at, path, run, parts }.check(shared, findings);
    }
}

/// A run and where it stands.
pub(crate) struct Placed<'a> {
    pub(crate) at: &'a At<'a>,
    pub(crate) path: Vec<Step<'a>>,
    pub(crate) run: &'a ReferenceRun,
    pub(crate) parts: &'a Parts<'a>,
}

impl Placed<'_> {
    pub(crate) fn check(&self, shared: &Shared, findings: &mut Vec<Finding>) {
        self.hardware(shared, findings);
        self.evidence(findings);
        self.deployment(findings);
        self.revisions(findings);
        self.config(findings);
        if let Some(memory) = &self.run.memory {
            if memory.scope != memory.metric.scope() {
                let want = memory.metric.scope().word();
                let message = format!("metric `{}` has scope `{want}`, not `{}`", memory.metric.word(), memory.scope.word());
                findings.push(self.finding(Code::RunScope, &["memory".into(), "scope".into()], "not this metric's", message));
            }
            self.ranks("memory", &memory.per_gpu, findings);
        }
        if let Some(peaks) = &self.run.plan_peaks {
            if self.run.context.runtime != Runtime::FvRun {
                let message = format!("`{}` plans no arena", self.run.context.runtime.word());
                findings.push(self.at.finding(
                    Code::PlanPeaks,
                    self.at.key(&self.under(&["plan_peaks".into()])),
                    "only for fv-run",
                    message,
                ));
            }
            self.ranks("plan_peaks", &peaks.per_gpu, findings);
        }
    }

    fn under<'s>(&'s self, rest: &[Step<'s>]) -> Vec<Step<'s>> {
        [&self.path[..], rest].concat()
    }

    fn finding(&self, code: Code, rest: &[Step], label: &str, message: impl Into<String>) -> Finding {
        let path: Vec<Step> = self.path.iter().copied().chain(rest.iter().copied()).collect();
        self.at.finding(code, self.at.value(&path), label, message)
    }

    fn hardware(&self, shared: &Shared, findings: &mut Vec<Finding>) {
        let devices = shared.hardware;
        if !devices.read {
            return;
        }
        let Some(entry) = devices.get(&self.run.hardware) else {
            let alias = devices
                .typed()
                .find(|(_, device)| device.aliases.iter().flatten().any(|alias| alias.eq_ignore_ascii_case(&self.run.hardware)));
            let help = match alias {
                Some((id, _)) => format!("that is an alias; evidence names the exact variant, such as `{id}`"),
                None => suggest(&self.run.hardware, devices.entries.iter().map(|entry| entry.id.as_str()), "hardware"),
            };
            let message = format!("no hardware has the id `{}`", short(&self.run.hardware));
            findings.push(self.finding(Code::RunHardware, &["hardware".into()], "not in hardware.yaml", message).help(help));
            return;
        };
        let Some(device) = &entry.value else { return };
        let reported = device.memory.reported.map_or(0, |reported| reported.value << 20);
        let mut capacity = (device.memory.nominal.bytes().max(reported), "the card");
        if let Some(partition) = &self.run.hardware_partition {
            let known = device.partitions.iter().flatten();
            if let Some(found) = known.clone().find(|known| known.id == *partition) {
                capacity = (found.memory.bytes(), "the partition");
            } else {
                let message = format!("`{}` has no partition `{}`", short(&entry.id), short(partition));
                let help = suggest(partition, known.map(|known| known.id.as_str()), "partitions");
                findings.push(self.finding(Code::RunHardware, &["hardware_partition".into()], "not a partition of it", message).help(help));
                return;
            }
        }
        match self.run.hardware_allocation_gb {
            Some(gb) if gb <= bytes_to_gb(capacity.0) => {
                let allocation = Capacity { value: gb, unit: CapacityUnit::Gb };
                self.peaks_within(allocation.bytes(), "the allocation", findings);
            }
            _ => self.peaks_within(capacity.0, capacity.1, findings),
        }
        if let Some(allocation) = self.run.hardware_allocation_gb
            && allocation > bytes_to_gb(capacity.0)
        {
            let message = format!("the allocation is larger than {} ({} GB)", capacity.1, bytes_to_gb(capacity.0));
            findings.push(self.finding(Code::RunAllocation, &["hardware_allocation_gb".into()], "too large", message));
        }
    }

    /// No measured peak is larger than the memory it was measured in.
    fn peaks_within(&self, capacity: u64, whose: &str, findings: &mut Vec<Finding>) {
        #[expect(clippy::cast_precision_loss, reason = "capacities stay below 2^53")]
        let gib = capacity as f64 / f64::from(1 << 30);
        for (i, peaks) in self.run.memory.iter().flat_map(|memory| &memory.per_gpu).enumerate() {
            if peaks.request_peak > gib {
                let message = format!("a peak of {:.4} GiB, {whose} has {gib:.2} GiB", peaks.request_peak);
                let path = ["memory".into(), "per_gpu".into(), i.into(), "request_peak".into()];
                findings.push(self.finding(Code::CapacityOrder, &path, "more than there is", message).help("GB / 1.073741824 = GiB"));
            }
        }
    }

    fn evidence(&self, findings: &mut Vec<Finding>) {
        let run = self.run;
        let here = || self.at.key(&self.under(&["id".into()]));
        match (&run.evidence_url, &run.evidence_path, &run.evidence_sha256) {
            (Some(_), None, None) | (None, Some(_), Some(_)) => {}
            (None, None, None) => {
                let help = "add `evidence_url`, or `evidence_path` with `evidence_sha256`";
                findings.push(self.at.finding(Code::RunEvidence, here(), "has no evidence", "a reference run without evidence").help(help));
            }
            (Some(_), ..) => {
                let key = if run.evidence_path.is_some() { "evidence_path" } else { "evidence_sha256" };
                let message = "evidence of two kinds";
                findings.push(
                    self.at
                        .finding(Code::RunEvidence, self.at.key(&self.under(&[key.into()])), "beside `evidence_url`", message)
                        .help("keep one of them"),
                );
            }
            (None, path, _) => {
                let (have, need) = if path.is_some() { ("evidence_path", "evidence_sha256") } else { ("evidence_sha256", "evidence_path") };
                let message = format!("`{have}` without `{need}`");
                findings.push(self.at.finding(
                    Code::RunEvidence,
                    self.at.key(&self.under(&[have.into()])),
                    &format!("needs `{need}`")[..],
                    message,
                ));
            }
        }
        if let Some(path) = &run.evidence_path
            && (path.starts_with('/')
                || path.contains('\\')
                || path.contains(':')
                || path.split('/').any(|part| matches!(part, ".." | "." | "")))
        {
            let message = "`evidence_path` takes a path inside this repository, with `/`";
            findings.push(self.finding(Code::BadFormat, &["evidence_path".into()], "not a path inside the repository", message));
        }
    }

    fn deployment(&self, findings: &mut Vec<Finding>) {
        let context = &self.run.context;
        let known = || self.parts.deployments.iter().copied().flatten();
        match known().find(|deployment| deployment.id == context.deployment) {
            // It may be one whose shape is wrong.
            None if self.parts.deployments.contains(&None) => {}
            None => {
                let message = format!("the model has no deployment `{}`", short(&context.deployment));
                let help = suggest(&context.deployment, known().map(|deployment| deployment.id.as_str()), "deployments");
                findings.push(
                    self.finding(Code::RunDeployment, &["context".into(), "deployment".into()], "not a deployment", message).help(help),
                );
            }
            Some(deployment) if deployment.runtime != context.runtime => {
                let message = format!(
                    "deployment `{}` is served by `{}`, not `{}`",
                    short(&deployment.id),
                    deployment.runtime.word(),
                    context.runtime.word()
                );
                findings.push(self.finding(Code::RunDeployment, &["context".into(), "runtime".into()], "another runtime", message));
            }
            Some(_) => {}
        }
        if context.runtime == Runtime::FvRun && context.weights.is_none() {
            let message = "a run of fv-run says which weights it used";
            let span = self.at.key(&self.under(&["context".into()]));
            findings.push(
                self.at.finding(Code::RunWeights, span, "this needs `weights`", message).help("`checkpoint`, or `synthetic:` and the seed"),
            );
        }
    }

    fn revisions(&self, findings: &mut Vec<Finding>) {
        let revisions = &self.run.context.revisions;
        let fastvideo = self.run.context.runtime == Runtime::FastVideo;
        let (want, wanted, other, given) = if fastvideo {
            ("fastvideo", &revisions.fastvideo, "runtime", &revisions.runtime)
        } else {
            ("runtime", &revisions.runtime, "fastvideo", &revisions.fastvideo)
        };
        let path: [Step; 2] = ["context".into(), "revisions".into()];
        if given.is_some() {
            let span = self.at.key(&self.under(&[path[0], path[1], other.into()]));
            let message = format!("`{}` runs give `revisions.{want}`, not `revisions.{other}`", self.run.context.runtime.word());
            findings.push(self.at.finding(Code::RunRevisions, span, "another runtime's", message));
        } else if wanted.is_none() {
            let span = self.at.key(&self.under(&path));
            let message = format!("missing field `{want}`");
            findings.push(
                self.at
                    .finding(Code::MissingField, span, format!("this needs `{want}`"), message)
                    .help("the revision of the runtime that ran"),
            );
        }
    }

    /// The recorded configuration is of this model and of as many GPUs as the run.
    fn config(&self, findings: &mut Vec<Finding>) {
        let generator = self.run.context.config.get("generator").unwrap_or(&Value::Null);
        let path: [Step; 3] = ["context".into(), "config".into(), "generator".into()];
        if let Some(model) = self.parts.model_path()
            && generator["model_path"] != model
        {
            let message = match generator["model_path"].as_str() {
                Some(other) => format!("the configuration is of `{}`, this model is `{}`", short(other), short(model)),
                None => "the configuration does not say which model it is of".to_owned(),
            };
            let span = self.at.value(&self.found(&[&path[..], &["model_path".into()]].concat()));
            findings.push(
                self.at
                    .finding(Code::RunConfig, span, "not this model", message)
                    .help("record `generator.model_path` as it was when the run was made"),
            );
        }
        let gpus = &generator["engine"]["num_gpus"];
        if gpus.as_u64() != Some(u64::from(self.run.gpu_count)) {
            let message = match gpus {
                Value::Null => format!("the configuration does not say that it used {} GPU(s)", self.run.gpu_count),
                found => format!("the configuration uses {} GPU(s), the run {}", short(&found.to_string()), self.run.gpu_count),
            };
            let span = self.at.value(&self.found(&[&path[..], &["engine".into(), "num_gpus".into()]].concat()));
            findings.push(
                self.at
                    .finding(Code::RunConfig, span, "not the run's GPU count", message)
                    .help("record `generator.engine.num_gpus` with inherited defaults"),
            );
        }
    }

    /// The longest beginning of `rest` that is there.
    fn found<'s>(&'s self, rest: &[Step<'s>]) -> Vec<Step<'s>> {
        let mut path = self.under(rest);
        while path.len() > self.path.len() && self.at.node.at(path.iter().copied()).is_none() {
            path.pop();
        }
        path
    }

    /// Ranks 0 to n-1, each once; no stage above its request.
    fn ranks(&self, section: &str, per_gpu: &[RankPeaks], findings: &mut Vec<Finding>) {
        let mut seen = vec![false; self.run.gpu_count as usize];
        for (i, peaks) in per_gpu.iter().enumerate() {
            let item: [Step; 3] = [section.into(), "per_gpu".into(), i.into()];
            let rank = [&item[..], &["rank".into()]].concat();
            match seen.get_mut(peaks.rank as usize) {
                None => {
                    let message = format!("rank {} of a run on {} GPU(s)", peaks.rank, self.run.gpu_count);
                    findings.push(self.finding(Code::RunRanks, &rank, "no such rank", message).help("ranks are numbered from 0"));
                }
                Some(true) => {
                    findings.push(self.finding(Code::RunRanks, &rank, "again here", format!("rank {} is measured twice", peaks.rank)));
                }
                Some(rank) => *rank = true,
            }
            for (stage, peak) in &peaks.stages {
                if *peak > peaks.request_peak {
                    let path = [&item[..], &["stages".into(), stage.as_str().into()]].concat();
                    let message = format!("stage `{}` peaks at {peak:.4} GiB, its request at {:.4} GiB", short(stage), peaks.request_peak);
                    findings.push(self.finding(Code::StagePeak, &path, "more than the request", message));
                }
            }
        }
        let missing: Vec<String> = seen.iter().enumerate().filter(|(_, seen)| !**seen).map(|(rank, _)| rank.to_string()).collect();
        if !missing.is_empty() {
            let span = self.at.key(&self.under(&[section.into(), "per_gpu".into()]));
            let message = format!("no peak for rank {}", short(&missing.join(", ")));
            findings.push(
                self.at
                    .finding(Code::RunRanks, span, "not every rank", message)
                    .help("without every rank, leave the section out and keep the run"),
            );
        }
    }
}
