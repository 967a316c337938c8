//! A memory record from `FastVideo` stage logs (`FASTVIDEO_STAGE_LOGGING=1`).
//!
//! # Accepted lines
//!
//! ```text
//! line       = anything stage [":"] {rank} verb anything
//! stage      = "[" key "|" class "]" | "[" class "]"        letters, digits, "_", "-"; a letter first
//! rank       = "rank=3" | "rank: 3" | "rank3" | "[rank 3]" | "(rank 3)" | "Rank 3"    anywhere in the line
//! verb       = "Starting execution" | "start" | "started"
//!            | "Execution completed" | "completed"
//!            | "Error during execution" | "failed"
//! peak       = ("peak_allocated_mb" | "peak_reserved_mb") ("=" | ": ") number         on the completion line
//! number     = decimal MiB without a unit, with or without commas between thousands
//! ```
//!
//! Case does not matter, ANSI colours are dropped. Other lines are ignored, unless they hold a peak or one of the
//! long verbs: a stage that was not understood would be missing in the maximum. `reserved=` is the reservation at
//! that moment and is never read. Peaks are binary MiB, and the counters are reset after each stage: the peak of a
//! request is the maximum over its stages, on each rank apart, and only when every stage that started completed
//! with a peak, in the same order on all ranks 0 to n - 1. Otherwise there is no record, only the reasons.
//!
//! * **Rank**: from the line; in files without any rank it is the file's position among several files, or 0 in a
//!   single file of a single GPU. A file that names ranks must name them on every stage line.
//! * **Request**: begins where a rank starts its first stage again. With several, one has to be selected.
//! * **Start-up**: stages called `load`, `startup` or `model_load` before the first request are `startup_peak`; later
//!   ones spoil their request. They need no start line, and a line of theirs with a peak needs no verb.
//! * **Stages**: `encoding`, `denoising` and `decoding` by the words in key, then class; others keep their key.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use fv_spec::authored::{GibUnit, Metric, RankPeaks, RunMemory};
use serde::Serialize;

use crate::inspect::{id_text, shown};

/// Ranks that a record may name, as in the catalog's schema.
const MAX_RANKS: u32 = 4096;

/// The largest peak of the catalog's schema, in GiB.
const MAX_GIB: f64 = 1e6;

/// A log of one request, complete as it stands.
pub const EXAMPLE: &str = "\
[denoising_stage|DenoisingStage] Starting execution
[denoising_stage|DenoisingStage] Execution completed in 4000.0 ms, peak_allocated_mb=8601.6
[decoding_stage|DecodingStage] Starting execution
[decoding_stage|DecodingStage] Execution completed in 900.0 ms, peak_allocated_mb=7168.0
";

/// The catalog's names of stages, in the order in which they run.
const STAGE_ORDER: [&str; 3] = ["encoding", "denoising", "decoding"];

/// Which peak is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PeakMetric {
    /// `peak_allocated_mb`.
    #[default]
    Allocated,
    /// `peak_reserved_mb`.
    Reserved,
}

impl PeakMetric {
    /// The name in the log.
    pub fn key(self) -> &'static str {
        match self {
            Self::Allocated => "peak_allocated_mb",
            Self::Reserved => "peak_reserved_mb",
        }
    }

    /// The metric of the catalog.
    pub fn metric(self) -> Metric {
        match self {
            Self::Allocated => Metric::TorchPeakAllocated,
            Self::Reserved => Metric::TorchPeakReserved,
        }
    }
}

/// What is read from the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Which peak.
    pub metric: PeakMetric,
    /// The number of ranks; without it, the ranks seen.
    pub gpus: Option<u32>,
    /// Which request, from 1; may be left out when there is one.
    pub request: Option<usize>,
}

/// Why there is no record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// The log.
    pub file: String,
    /// The line, from 1; 0 when there is no line.
    pub line: usize,
    /// What is missing or wrong there.
    pub message: String,
}

/// The outcome: a record, or the reasons why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Imported {
    /// The record, when the log covers the whole request on every rank.
    pub memory: Option<RunMemory>,
    /// Why the record was omitted.
    pub omitted: Vec<Reason>,
    /// What the author should know.
    pub notes: Vec<String>,
}

/// The first path that names the same file as one before it: as a second rank it would repeat the first one's peaks.
pub fn given_twice(paths: &[PathBuf]) -> Option<&Path> {
    let mut seen = BTreeSet::new();
    paths.iter().find(|path| !seen.insert(fs::canonicalize(path).unwrap_or_else(|_| (*path).clone()))).map(PathBuf::as_path)
}

/// The named peaks of a rank for people: the catalog's stages in the order in which they run, then the others.
pub fn in_order(stages: &BTreeMap<String, f64>) -> Vec<(&str, f64)> {
    let mut stages: Vec<(&str, f64)> = stages.iter().map(|(name, peak)| (name.as_str(), *peak)).collect();
    stages.sort_by_key(|(name, _)| STAGE_ORDER.iter().position(|stage| stage == name).unwrap_or(STAGE_ORDER.len()));
    stages
}

/// Reads the logs `files`, pairs of path and text, in the order of their ranks.
pub fn import(files: &[(String, String)], options: &Options) -> Imported {
    let mut log = Log::default();
    for (position, file) in files.iter().enumerate() {
        log.read(file, (files.len() > 1).then_some(position), options);
    }
    log.omit_strays(options.metric);
    let per_gpu = log.record(options);
    if per_gpu.is_empty() && log.omitted.is_empty() {
        let (file, text) = files.last().map_or(("", ""), |(file, text)| (file, text));
        let message = format!(
            "no stage line of a request, such as `{STAGE} Starting execution`; FASTVIDEO_STAGE_LOGGING=1 logs them, \
             and the end of each with its {}",
            options.metric.key()
        );
        log.omit(file, text.lines().count(), message);
    }
    let metric = options.metric.metric();
    let memory = RunMemory { metric, scope: metric.scope(), unit: GibUnit::Gib, per_gpu };
    Imported { memory: log.omitted.is_empty().then_some(memory), omitted: log.omitted, notes: log.notes }
}

/// One execution of a stage.
struct Run {
    key: String,
    class: String,
    file: String,
    line: usize,
    /// GiB, or what is wrong; nothing until the stage ends.
    peak: Option<Result<f64, String>>,
}

/// What one rank did.
#[derive(Default)]
struct RankLog {
    requests: Vec<Vec<Run>>,
    startup: Option<f64>,
    /// File and line of the last line of the rank.
    last: (String, usize),
}

impl RankLog {
    fn request(&self, index: usize) -> &[Run] {
        self.requests.get(index).map_or(&[], Vec::as_slice)
    }
}

#[derive(Default)]
struct Log {
    ranks: BTreeMap<u32, RankLog>,
    /// Whether any line is one of a stage.
    has_stages: bool,
    /// File and line of what resembles a stage line, or holds a peak, and is none.
    strays: Vec<(String, usize, Stray)>,
    omitted: Vec<Reason>,
    notes: Vec<String>,
}

impl Log {
    fn omit(&mut self, file: &str, line: usize, message: impl Into<String>) {
        self.omitted.push(Reason { file: file.to_owned(), line, message: message.into() });
    }

    fn read(&mut self, (file, text): &(String, String), position: Option<usize>, options: &Options) {
        let mut lines: Vec<(usize, StageLine)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = without_escapes(line);
            let lower = line.to_ascii_lowercase();
            if let Some(stage) = StageLine::read(&line, &lower, options.metric) {
                lines.push((number, stage));
            } else if let Some(stray) = Stray::read(&line, &lower) {
                self.strays.push((file.clone(), number, stray));
            }
        }
        self.has_stages |= !lines.is_empty();
        let implied = match position {
            _ if lines.is_empty() || lines.iter().any(|(_, line)| line.rank.is_some()) => None,
            Some(position) => u32::try_from(position).ok(),
            None => (options.gpus.unwrap_or(1) == 1).then_some(0),
        };
        for (number, line) in lines {
            match line.rank.or(implied) {
                Some(rank) if rank < MAX_RANKS => self.add(rank, line, file, number),
                Some(_) => self.omit(file, number, format!("the rank is above {}", MAX_RANKS - 1)),
                None => self.omit(file, number, "no rank on the line: give one file for each rank, or log the rank on every line"),
            }
        }
    }

    /// A line that was not understood may be the stage with the largest peak.
    fn omit_strays(&mut self, metric: PeakMetric) {
        for (file, line, stray) in std::mem::take(&mut self.strays) {
            let message = stray.message(self.has_stages, metric);
            self.omit(&file, line, message);
        }
    }

    fn add(&mut self, rank: u32, line: StageLine, file: &str, number: usize) {
        let startup = is_startup(&line.key);
        let log = self.ranks.entry(rank).or_default();
        log.last = (file.to_owned(), number);
        let StageLine { key, class, mut end, .. } = line;
        if startup && log.requests.is_empty() {
            match end {
                Some(Ok(peak)) => log.startup = Some(log.startup.map_or(peak, |other| other.max(peak))),
                Some(Err(error)) => self.notes.push(format!("{file}:{number}: no start-up peak of rank {rank}: {error}")),
                None => {}
            }
            return;
        }
        if startup {
            end = Some(Err("loads models during the request, whose peaks it resets".to_owned()));
        }
        let first = log.requests.first().and_then(|request| request.first());
        if end.is_none() && first.is_none_or(|first| first.key == key) {
            log.requests.push(Vec::new());
        }
        let Some(request) = log.requests.last_mut() else {
            // Without the beginning of the log, requests would be split at the wrong stage.
            return self.omit(file, number, format!("stage `{key}` of rank {rank} ends, but its start is not in the log"));
        };
        let open = request.iter_mut().rev().find(|run| end.is_some() && run.peak.is_none() && run.key == key);
        if let Some(run) = open {
            if matches!(end, Some(Err(_))) {
                (run.file, run.line) = (file.to_owned(), number);
            }
            run.peak = end;
        } else {
            let peak = end.map(|end| end.and(Err("ends, but its start is not in the log".to_owned())));
            request.push(Run { key, class, file: file.to_owned(), line: number, peak });
        }
    }

    /// The peaks of the selected request on every rank; worth something only when nothing was omitted.
    fn record(&mut self, options: &Options) -> Vec<RankPeaks> {
        let ranks = std::mem::take(&mut self.ranks);
        let Some(index) = self.select(&ranks, options.request) else { return Vec::new() };
        let count = options.gpus.unwrap_or_else(|| ranks.keys().next_back().map_or(1, |last| last + 1));
        self.check_ranks(&ranks, index, count);
        let order = ranks.values().next().map_or(&[][..], |log| log.request(index));
        let names: Vec<&str> = order.iter().map(|run| run.key.as_str()).collect();
        self.notes.push(format!("stages of request {}, to be compared with the pipeline's: {}", index + 1, names.join(", ")));
        if options.gpus.is_none() {
            self.notes.push(format!("the number of GPUs was not given; by the ranks in the log it is {count}"));
        }
        if ranks.values().any(|log| log.startup.is_none()) {
            self.notes.push("no start-up peak of every rank: start-up coverage stays unknown".to_owned());
        }
        let peaks = |(rank, log): (&u32, &RankLog)| rank_peaks(*rank, log.startup, log.request(index));
        let per_gpu: Vec<RankPeaks> = ranks.iter().map(peaks).collect();
        for stage in &STAGE_ORDER[1..] {
            if per_gpu.iter().any(|rank| !rank.stages.contains_key(*stage)) {
                self.notes.push(format!("no {stage} stage by name: check that the log holds the whole request"));
            }
        }
        per_gpu
    }

    /// The position of the request to record.
    fn select(&mut self, ranks: &BTreeMap<u32, RankLog>, request: Option<usize>) -> Option<usize> {
        let requests = ranks.values().map(|log| &log.requests).max_by_key(|requests| requests.len())?;
        let (held, last) = (requests.len(), requests.last()?.first()?);
        match request {
            None if held == 1 => return Some(0),
            Some(request) if (1..=held).contains(&request) => return Some(request - 1),
            None => {
                let message = format!("the log holds {held} requests, the last from here: select one with --request, 1 to {held}");
                self.omit(&last.file, last.line, message);
            }
            Some(request) => {
                self.omit(&last.file, last.line, format!("there is no request {request}: --request takes 1 to {held}, the last from here"));
            }
        }
        None
    }

    /// Every rank from 0 to `count` - 1 has to run the same stages, each to its end.
    fn check_ranks(&mut self, ranks: &BTreeMap<u32, RankLog>, index: usize, count: u32) {
        let Some((first, log)) = ranks.first_key_value() else { return };
        let (order, (file, line)) = (log.request(index), &log.last);
        let missing: Vec<String> =
            (0..count.min(MAX_RANKS)).filter(|rank| !ranks.contains_key(rank)).map(|rank| rank.to_string()).collect();
        if !missing.is_empty() {
            let some = missing.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(", ");
            self.omit(
                file,
                *line,
                format!("{} of {count} ranks have no stage here: {some}; FASTVIDEO_LOG_ALL_PROCESSES=1 logs all", missing.len()),
            );
        }
        for (rank, log) in ranks {
            let (runs, (file, line)) = (log.request(index), &log.last);
            if *rank >= count {
                self.omit(file, *line, format!("rank {rank} of {count} GPUs"));
            }
            let key = |runs: &[Run], at: usize| runs.get(at).map_or("no stage".to_owned(), |run| format!("`{}`", run.key));
            if let Some(at) = (0..runs.len().max(order.len())).find(|at| key(runs, *at) != key(order, *at)) {
                let (file, line) = runs.get(at).map_or((file, line), |run| (&run.file, &run.line));
                let message = format!("rank {rank} runs {} where rank {first} runs {}", key(runs, at), key(order, at));
                self.omit(file, *line, message);
            }
            let goes_on = |other: &&Vec<Run>| other.len() > runs.len() && other.iter().zip(runs).all(|(a, b)| a.key == b.key);
            if let (Some(run), Some(other)) = (runs.last(), log.requests.iter().find(goes_on)) {
                let message =
                    format!("rank {rank} stops after `{}` where another request goes on with {}", run.key, key(other, runs.len()));
                self.omit(&run.file, run.line, message);
            }
            for run in runs {
                match &run.peak {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => self.omit(&run.file, run.line, format!("stage `{}` of rank {rank} {error}", run.key)),
                    None => self.omit(&run.file, run.line, format!("stage `{}` of rank {rank} starts, but does not complete", run.key)),
                }
            }
        }
    }
}

fn rank_peaks(rank: u32, startup_peak: Option<f64>, runs: &[Run]) -> RankPeaks {
    let mut stages: BTreeMap<String, f64> = BTreeMap::new();
    for run in runs {
        let known = named_stage(&run.key).or_else(|| named_stage(&run.class));
        let name = known.map_or_else(|| id_text(&run.key, "stage"), str::to_owned);
        let peak = stages.entry(name).or_default();
        *peak = peak.max(run.peak.as_ref().and_then(|peak| peak.as_ref().ok()).copied().unwrap_or_default());
    }
    // The maximum of these very numbers, so that none can exceed it.
    RankPeaks { rank, request_peak: stages.values().copied().fold(0.0, f64::max), startup_peak, stages }
}

/// The named stage that the words of a key or class tell: `vae_decode`, `DiTDenoisingStage`.
fn named_stage(name: &str) -> Option<&'static str> {
    const WORDS: [(&str, &str); 9] = [
        ("_denois", "denoising"),
        ("_decod", "decoding"),
        ("_encod", "encoding"),
        ("_text", "encoding"),
        ("_prompt", "encoding"),
        ("_condition", "encoding"),
        ("_dit_", "denoising"),
        ("_timestep", "denoising"),
        ("_latent_prep", "denoising"),
    ];
    let chars: Vec<char> = name.replace("DiT", "Dit").chars().collect();
    // Whole words only: `condition` contains `dit`, `context` contains `text`.
    let mut words = "_".to_owned();
    for (i, c) in chars.iter().enumerate() {
        let after_upper = i.checked_sub(1).and_then(|i| chars.get(i)).is_some_and(char::is_ascii_uppercase);
        let before_lower = chars.get(i + 1).is_some_and(char::is_ascii_lowercase);
        if c.is_ascii_uppercase() && (!after_upper || before_lower) {
            words.push('_');
        }
        words.push(if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' });
    }
    words.push('_');
    WORDS.iter().find(|(word, _)| words.contains(word)).map(|(_, stage)| *stage)
}

/// A line about a stage.
struct StageLine {
    key: String,
    class: String,
    rank: Option<u32>,
    /// For the end of a stage, its peak in GiB or what is wrong; nothing for its start.
    end: Option<Result<f64, String>>,
}

impl StageLine {
    fn read(line: &str, lower: &str, metric: PeakMetric) -> Option<Self> {
        let has_peak = peak_in(lower).is_some();
        line.match_indices('[').find_map(|(open, _)| {
            let name = line.get(open + 1..)?.split(['[', ']']).next()?;
            let rest = lower.get(open + 1 + name.len()..)?.strip_prefix(']')?;
            let (key, class) = name.split_once('|').unwrap_or((name, name));
            if !is_name(key) || !is_name(class) {
                return None;
            }
            let rest = without_rank(rest);
            let says = |words: &[&str]| words.iter().any(|word| rest.strip_prefix(word).is_some_and(ends_word));
            let end = if says(&["execution completed", "completed"]) || (has_peak && is_startup(key)) {
                Some(peak_of(line, lower, metric))
            } else if says(&["error during execution", "failed"]) {
                Some(Err("failed".to_owned()))
            } else if says(&["starting execution", "start", "started"]) {
                None
            } else {
                return None;
            };
            Some(Self { key: key.to_owned(), class: class.to_owned(), rank: rank_of(lower), end })
        })
    }
}

/// A stage as messages show it.
const STAGE: &str = "[denoising_stage|DenoisingStage]";

/// A line that resembles a stage line and is none.
struct Stray {
    /// What it says, in the log's own words.
    text: String,
    kind: StrayKind,
}

#[derive(Clone, Copy)]
enum StrayKind {
    Start,
    End,
    Failure,
    Peak,
}

impl Stray {
    fn read(line: &str, lower: &str) -> Option<Self> {
        const VERBS: [(&str, StrayKind); 3] = [
            ("starting execution", StrayKind::Start),
            ("execution completed", StrayKind::End),
            ("error during execution", StrayKind::Failure),
        ];
        let verb = VERBS.iter().find_map(|(verb, kind)| Some((lower.find(verb)?, verb.len(), *kind)));
        let (at, length, kind) = match verb {
            Some(verb) => verb,
            None => (peak_in(lower)?, 40, StrayKind::Peak),
        };
        // From the bracket in front of the verb, a rank's apart.
        let is_stage = |open: &usize| !lower.get(open + 1..).is_some_and(|rest| rest.trim_start().starts_with("rank"));
        let bracket = line.get(..at)?.rmatch_indices('[').map(|(open, _)| open).find(is_stage).filter(|open| at - open <= 80);
        let from = bracket.filter(|_| verb.is_some()).unwrap_or(at);
        let mut to = line.len().min(at + length);
        while !line.is_char_boundary(to) {
            to -= 1;
        }
        Some(Self { text: shown(line.get(from..to)?.trim_end()), kind })
    }

    fn message(&self, has_stages: bool, metric: PeakMetric) -> String {
        let (what, verb) = match self.kind {
            StrayKind::Start => ("looks like the start of a stage", "Starting execution".to_owned()),
            StrayKind::End => ("looks like the end of a stage", format!("Execution completed in 4000.0 ms, {}=8601.6", metric.key())),
            StrayKind::Failure => ("looks like a stage that failed", "Error during execution".to_owned()),
            StrayKind::Peak => {
                let what = if has_stages {
                    "holds a peak, but is no line of a stage"
                } else {
                    "holds a peak, but no line of the log is one of a stage"
                };
                (what, format!("Execution completed in 4000.0 ms, {}=8601.6", metric.key()))
            }
        };
        format!("{what}: `{}`; expected `{STAGE} {verb}`, with names of letters, digits, `_` and `-`", self.text)
    }
}

/// Where the first peak of either kind stands, under its whole name.
fn peak_in(lower: &str) -> Option<usize> {
    let find = |metric: PeakMetric| {
        let key = metric.key();
        lower.match_indices(key).map(|(at, _)| at).find(|at| is_alone(lower, *at) && lower.get(at + key.len()..).is_some_and(ends_word))
    };
    [PeakMetric::Allocated, PeakMetric::Reserved].into_iter().filter_map(find).min()
}

/// Whether a word begins here.
fn is_alone(text: &str, at: usize) -> bool {
    text.get(..at).is_some_and(|before| !before.ends_with(|c: char| c.is_alphanumeric() || c == '_'))
}

fn is_startup(key: &str) -> bool {
    ["load", "startup", "model_load"].iter().any(|startup| key.eq_ignore_ascii_case(startup))
}

/// The name of a stage or class; log levels and ranks in brackets are none.
fn is_name(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        && !["debug", "info", "warning", "warn", "error", "critical"].contains(&lower.as_str())
        && rank_of(&lower).is_none()
}

fn ends_word(rest: &str) -> bool {
    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

/// What follows the stage, without separators and rank labels in front of the verb.
fn without_rank(mut rest: &str) -> &str {
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ":-([])".contains(c));
        let Some(after) = rest.strip_prefix("rank") else { return rest };
        rest = after.trim_start_matches(|c: char| c.is_ascii_digit() || " =:".contains(c));
    }
}

/// The number after the word `rank`; `local_rank` and other compounds are something else.
fn rank_of(lower: &str) -> Option<u32> {
    lower.match_indices("rank").find_map(|(at, word)| {
        let alone = !lower.get(..at)?.ends_with(|c: char| c.is_alphanumeric() || "_-".contains(c));
        let after = lower.get(at + word.len()..)?.trim_start_matches([' ', '=', ':']);
        let digits = after.get(..after.bytes().take_while(u8::is_ascii_digit).count())?;
        let whole = alone && !digits.is_empty() && ends_word(after.get(digits.len()..)?);
        // A number that is too large stays a rank, to be refused as one.
        whole.then(|| digits.parse().unwrap_or(u32::MAX))
    })
}

/// The peak of a completion line in GiB, as measured: dividing by 1024 is exact.
fn peak_of(line: &str, lower: &str, metric: PeakMetric) -> Result<f64, String> {
    let key = metric.key();
    let value = lower.match_indices(key).find_map(|(at, _)| {
        let after = line.get(at + key.len()..)?.trim_start_matches(['"', '\'', ' ']);
        let value = after.strip_prefix('=').or_else(|| after.strip_prefix(": ").or_else(|| after.strip_prefix(':')));
        value.filter(|_| is_alone(lower, at))
    });
    let value = value.ok_or_else(|| format!("completes without {key}, and reserved= is no peak"))?;
    let gib = mebibytes(value).map(|mib| mib / 1024.0);
    gib.filter(|gib| *gib > 0.0 && *gib <= MAX_GIB).ok_or_else(|| {
        let next_field = |(at, _): &(usize, &str)| value.get(at + 2..).is_some_and(|rest| rest.starts_with(char::is_alphabetic));
        let end = value.match_indices(", ").find(next_field).map_or(value.len(), |(at, _)| at);
        let text: String = value.get(..end).unwrap_or(value).chars().take(40).collect();
        format!("has {key} `{}`; expected {key}=8601.6: MiB right behind the sign, no unit, above 0, up to {MAX_GIB} GiB", shown(&text))
    })
}

/// `8192.5` or `8,192.5` at the beginning of `value`, when nothing behind it can belong to it.
fn mebibytes(value: &str) -> Option<f64> {
    let length = value.bytes().take_while(|byte| byte.is_ascii_digit() || b".,".contains(byte)).count();
    let (number, rest) = value.split_at_checked(length)?;
    let closers = |c: char| "\"';)]}|".contains(c);
    let (number, ends) = match number.strip_suffix(',') {
        Some(number) => (number, true),
        None => (number, rest.is_empty() || rest.starts_with(char::is_whitespace) || rest.starts_with(closers)),
    };
    let next = rest.trim_start_matches(|c: char| c.is_whitespace() || closers(c));
    if !ends || next.starts_with(|c: char| c.is_numeric() || c == '.') || is_unit(next.trim_start_matches(['(', '[', '{'])) {
        return None;
    }
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut groups = whole.split(',');
    let first = groups.next()?;
    // A decimal comma would read as thousands or not at all: only groups of three digits are accepted.
    let grouped = groups.all(|group| (1..=3).contains(&first.len()) && group.len() == 3);
    if grouped && !fraction.contains(',') { number.replace(',', "").parse().ok() } else { None }
}

/// Whether the text begins with a unit of memory, in any spelling: `MiB`, `gb`, `bytes`, `K`.
fn is_unit(text: &str) -> bool {
    let length = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
    let word = text.get(..length).unwrap_or_default().to_ascii_lowercase();
    let without_prefix = ["kilo", "mega", "giga", "tera", "kibi", "mebi", "gibi", "tebi", "k", "m", "g", "t"]
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix))
        .unwrap_or(&word);
    !word.is_empty() && ["", "b", "ib", "bit", "bits", "byte", "bytes"].contains(&without_prefix)
}

/// The line without ANSI escape sequences.
fn without_escapes(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        out.push_str(before);
        // `[`, parameters, then one letter or other final byte.
        rest = after.strip_prefix('[').map_or(after, |sequence| {
            let parameters = sequence.trim_start_matches(|c: char| (' '..='?').contains(&c));
            parameters.strip_prefix(|c: char| ('@'..='~').contains(&c)).unwrap_or(parameters)
        });
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use fv_spec::authored::Scope;

    use super::*;

    /// A stage that starts and completes, after `prefix`; MiB allocated, twice that reserved.
    fn stage(prefix: &str, name: &str, mib: f64) -> String {
        format!(
            "{prefix}INFO 11-30 10:00:00.123 [base.py:120] [{name}] Starting execution\n\
             {prefix}INFO 11-30 10:00:01.456 [base.py:130] [{name}] Execution completed in 1333.1 ms, reserved=99999, \
             peak_allocated_mb={mib}, peak_reserved_mb={}\n",
            mib * 2.0
        )
    }

    const STAGES: [(&str, f64); 6] = [
        ("input_validation_stage|InputValidationStage", 1024.0),
        ("prompt_encoding_stage|TextEncodingStage", 5632.0),
        ("timestep_preparation_stage|TimestepPreparationStage", 2048.0),
        ("latent_preparation_stage|LatentPreparationStage", 2048.0),
        ("denoising_stage|DmdDenoisingStage", 8601.6),
        ("decoding_stage|DecodingStage", 7168.0),
    ];

    fn request(prefix: &str, scale: f64) -> String {
        STAGES.iter().map(|(name, mib)| stage(prefix, name, mib * scale)).collect()
    }

    fn run_with(texts: &[&str], options: &Options) -> Imported {
        let files: Vec<(String, String)> = (0..).zip(texts).map(|(i, text)| (format!("{i}.log"), (*text).to_owned())).collect();
        let imported = import(&files, options);
        assert_eq!(imported.memory.is_none(), !imported.omitted.is_empty());
        imported
    }

    fn run(texts: &[&str]) -> Imported {
        run_with(texts, &Options::default())
    }

    fn peaks(imported: &Imported) -> &[RankPeaks] {
        &imported.memory.as_ref().unwrap_or_else(|| panic!("{:?}", imported.omitted)).per_gpu
    }

    /// Fails unless a reason at this file and line holds the words.
    fn omits(imported: &Imported, file: &str, line: usize, words: &str) {
        assert!(imported.memory.is_none());
        let found = imported.omitted.iter().any(|r| r.file == file && r.line == line && r.message.contains(words));
        assert!(found, "{:#?}", imported.omitted);
    }

    #[test]
    fn one_rank() {
        let imported = run(&[&request("", 1.0)]);
        let [rank] = peaks(&imported) else { panic!("{imported:?}") };
        let stages: Vec<_> = rank.stages.iter().map(|(name, peak)| (name.as_str(), *peak)).collect();
        assert_eq!(stages, [("decoding", 7.0), ("denoising", 8.4), ("encoding", 5.5), ("input_validation_stage", 1.0)]);
        assert_eq!((rank.rank, rank.request_peak, rank.startup_peak), (0, 8.4, None));
        let memory = imported.memory.as_ref().expect("a record");
        assert_eq!((memory.metric, memory.scope), (Metric::TorchPeakAllocated, Scope::Allocator));
        assert!(imported.notes.iter().any(|note| note.contains("it is 1")));
        assert!(imported.notes.iter().any(|note| note.contains("request 1") && note.contains("latent_preparation_stage, denoising_stage")));
        let reserved = run_with(&[&request("", 1.0)], &Options { metric: PeakMetric::Reserved, ..Options::default() });
        assert_eq!(peaks(&reserved)[0].request_peak.to_bits(), 16.8_f64.to_bits());
    }

    #[test]
    fn every_way_to_write_it() {
        for text in [
            "[DenoisingStage] start\n[DenoisingStage] completed peak_allocated_mb: 8192",
            "[a|DenoisingStage] Started\n[a|DenoisingStage]: EXECUTION COMPLETED in 3 ms peak_allocated_mb=8,192.0,peak_reserved_mb=1",
            "[a|DiTStage] [rank 0] Starting execution\n[a|DiTStage] (rank 0) - completed {\"peak_allocated_mb\": 8192}",
            "rank=0 [vae|Denoising] start\nRank: 0 local_rank=3 [vae|Denoising] completed peak_allocated_mb=8192;",
            "[rank0]: [denoise] start\n[rank0]: 99%|##| 2/3 [00:10<00:05, 5s/it]INFO [denoise] completed peak_allocated_mb=8192, peak",
            "\u{1b}[32mINFO\u{1b}[0;0m [\u{1b}[1mdenoise|D\u{1b}[m] start\r\n[denoise|D] completed peak_allocated_mb=\u{1b}[33m8192\u{1b}[0m\r\n\r\n",
        ] {
            let imported = run(&[text]);
            assert_eq!(peaks(&imported)[0].stages, BTreeMap::from([("denoising".to_owned(), 8.0)]), "{text}");
        }
    }

    #[test]
    fn names_of_stages() {
        for (name, stage) in [
            ("conditioning_stage", Some("encoding")),
            ("ImageVAEEncodingStage", Some("encoding")),
            ("textencoder", Some("encoding")),
            ("dit_forward", Some("denoising")),
            ("image_latent_preparation", Some("denoising")),
            ("TextConditionedDenoising", Some("denoising")),
            ("VAEDecode", Some("decoding")),
            ("audio-decoding", Some("decoding")),
            ("context_parallel", None),
            ("edit", None),
            ("latent", None),
            ("refine", None),
        ] {
            assert_eq!(named_stage(name), stage, "{name}");
        }
        let text = stage("", "Refine", 1024.0) + &stage("", "x|Denoise", 512.0) + &stage("", "Post--Process_|X", 512.0);
        assert_eq!(peaks(&run(&[&text]))[0].stages.keys().collect::<Vec<_>>(), ["denoising", "post-process", "refine"]);
    }

    #[test]
    fn the_example_makes_a_record() {
        assert_eq!(EXAMPLE.lines().count(), 4);
        let imported = run(&[EXAMPLE]);
        let [rank] = peaks(&imported) else { panic!("{imported:?}") };
        assert_eq!(rank.request_peak.to_bits(), 8.4_f64.to_bits());
        assert!(EXAMPLE.starts_with(STAGE));
        let stages = BTreeMap::from(["decoding", "audio", "encoding", "upsampling", "denoising"].map(|name| (name.to_owned(), 1.0)));
        let order: Vec<&str> = in_order(&stages).into_iter().map(|(name, _)| name).collect();
        assert_eq!(order, ["encoding", "denoising", "decoding", "audio", "upsampling"]);
    }

    #[test]
    fn lines_that_only_resemble_a_stage() {
        for (line, words) in [
            (
                "[Denoising Stage] Starting execution",
                "the start of a stage: `[Denoising Stage] Starting execution`; expected `[denoising_stage|",
            ),
            ("[base.py:3] [LTX2.Denoise] Starting execution", "`[LTX2.Denoise] Starting execution`"),
            ("[DenoisingStage(high)] [rank 0] STARTING EXECUTION", "`[DenoisingStage(high)] [rank 0] STARTING EXECUTION`"),
            ("DenoisingStage: Execution completed in 3 ms", "the end of a stage: `Execution completed`; expected `[denoising_stage|"),
            ("[a|Refine] was here: Execution completed", "`[a|Refine] was here: Execution completed`"),
            ("[Refine Stage] Error during execution after 3 ms", "a stage that failed: `[Refine Stage] Error during"),
            ("[a|b|c] completed peak_allocated_mb=9216.0, x", "but is no line of a stage: `peak_allocated_mb=9216.0, x`; expected"),
            ("summary: {'Peak_Reserved_MB': 9216}", "`Peak_Reserved_MB': 9216}`"),
            ("[Über] Starting execution", "`[Über] Starting execution`"),
        ] {
            // Wherever it stands: a stage that was not understood may have the largest peak.
            omits(&run(&[&(request("", 1.0) + line)]), "0.log", 13, words);
            omits(&run(&[&(line.to_owned() + "\n" + &request("", 1.0))]), "0.log", 1, words);
        }
        let other = "gpu_peak_allocated_mb=9216\npeak_allocated_mb_delta=3\n[Denoising Stage] waits\nExecution\n";
        assert!(run(&[&(request("", 1.0) + other)]).memory.is_some());
        let peaks_alone = run(&["ready\npeak_allocated_mb=3\n"]);
        omits(&peaks_alone, "0.log", 2, "no line of the log is one of a stage: `peak_allocated_mb=3`; expected `[denoising_stage|");
        assert_eq!(peaks_alone.omitted.len(), 1);
    }

    #[test]
    fn the_same_file_twice() {
        let dir = tempfile::TempDir::new().expect("a temporary folder");
        let paths = ["a.log", "b.log", "./a.log"].map(|name| dir.path().join(name));
        for path in &paths[..2] {
            fs::write(path, EXAMPLE).expect("written");
        }
        assert_eq!(given_twice(&paths[..2]), None);
        assert_eq!(given_twice(&paths), Some(paths[2].as_path()));
        assert_eq!(given_twice(&["gone".into(), "gone".into()]), Some(Path::new("gone")));
    }

    #[test]
    fn two_ranks_interleaved() {
        let (zero, one) = (request("[rank 0] ", 1.0), request("(rank 1) ", 0.5));
        let text: String = zero.lines().zip(one.lines()).flat_map(|(a, b)| [b, "\n", a, "\n"]).collect();
        let imported = run_with(&[&text], &Options { gpus: Some(2), ..Options::default() });
        let found: Vec<_> = peaks(&imported).iter().map(|rank| (rank.rank, rank.request_peak)).collect();
        assert_eq!(found, [(0, 8.4), (1, 4.2)]);
    }

    #[test]
    fn one_file_for_each_rank() {
        let imported = run(&[&request("", 1.0), &request("", 0.5)]);
        let found: Vec<_> = peaks(&imported).iter().map(|rank| (rank.rank, rank.request_peak)).collect();
        assert_eq!(found, [(0, 8.4), (1, 4.2)]);
    }

    #[test]
    fn two_requests() {
        let text = request("", 1.0) + &request("", 2.0);
        omits(&run(&[&text]), "0.log", 13, "2 requests, the last from here: select one with --request, 1 to 2");
        let select = |request| run_with(&[&text], &Options { request: Some(request), ..Options::default() });
        assert_eq!(peaks(&select(2))[0].request_peak.to_bits(), 16.8_f64.to_bits());
        assert_eq!(peaks(&select(1))[0].request_peak.to_bits(), 8.4_f64.to_bits());
        omits(&select(3), "0.log", 13, "no request 3");
        omits(&select(0), "0.log", 13, "no request 0");
        let short = text.lines().take(22).collect::<Vec<_>>().join("\n");
        omits(&run_with(&[&short], &Options { request: Some(2), ..Options::default() }), "0.log", 21, "goes on with `decoding_stage`");
        // The other request may be incomplete.
        let cut = text.lines().take(21).collect::<Vec<_>>().join("\n");
        assert!(run_with(&[&cut], &Options { request: Some(1), ..Options::default() }).memory.is_some());
    }

    #[test]
    fn stages_that_do_not_complete() {
        let lines: Vec<String> = request("", 1.0).lines().map(str::to_owned).collect();
        let without = |at: usize| [&lines[..at], &lines[at + 1..]].concat().join("\n");
        omits(&run(&[&without(9)]), "0.log", 9, "`denoising_stage` of rank 0 starts");
        omits(&run(&[&without(8)]), "0.log", 9, "`denoising_stage` of rank 0 ends");
        omits(&run(&[&without(0)]), "0.log", 1, "its start is not in the log");
        let failed = lines[..9].join("\n") + "\nERROR [denoising_stage|DmdDenoisingStage] Error during execution after 3 ms: out of memory";
        omits(&run(&[&failed]), "0.log", 10, "failed");
    }

    #[test]
    fn ranks_and_stages_that_are_missing() {
        let (zero, two) = (request("rank=0 ", 1.0), request("rank=2 ", 1.0));
        omits(&run(&[&(zero.clone() + &two)]), "0.log", 12, "1 of 3 ranks have no stage here: 1;");
        let gpus = |text: &str, gpus| run_with(&[text], &Options { gpus: Some(gpus), ..Options::default() });
        omits(&gpus(&zero, 2), "0.log", 12, "1 of 2 ranks");
        omits(&gpus(&zero, u32::MAX), "0.log", 12, "4095 of 4294967295 ranks");
        omits(&gpus(&(zero.clone() + &two), 2), "0.log", 24, "rank 2 of 2 GPUs");
        omits(&gpus(&zero, 0), "0.log", 12, "rank 0 of 0 GPUs");
        omits(&gpus(&request("", 1.0), 2), "0.log", 1, "no rank on the line");
        omits(&run(&[&(zero.clone() + "[x|Y] start")]), "0.log", 13, "no rank on the line");
        omits(&run(&["[x|Y] rank=4096 start"]), "0.log", 1, "above 4095");
        omits(&run(&["[x|Y] rank=99999999999999999999 start"]), "0.log", 1, "above 4095");
        let short = request("rank=1 ", 1.0).lines().take(10).collect::<Vec<_>>().join("\n");
        omits(&run(&[&(zero + &short)]), "0.log", 22, "rank 1 runs no stage where rank 0 runs `decoding_stage`");
    }

    #[test]
    fn peaks_that_are_missing_or_wrong() {
        let with = |rest: &str| run(&[&format!("[a|DenoisingStage] start\n[a|DenoisingStage] completed in 3 ms {rest}")]);
        for trap in [
            "",
            "reserved=8192",
            "reserved: 8192 MB",
            "peak_reserved_mb=8192",
            "gpu_peak_allocated_mb=8192",
            "peak_allocated_mb_delta=3",
            "peak_allocated_mb",
        ] {
            omits(&with(trap), "0.log", 2, "completes without peak_allocated_mb");
        }
        for value in [
            "0",
            "-1",
            "+1",
            "nan",
            "inf",
            "1e3",
            "1e400",
            "",
            "x",
            "8192MB",
            "8601.6MiB",
            "8.4 GiB",
            "8.4 [GiB]",
            "8601.6 mb",
            "8 601.6",
            "8\u{202f}601.6",
            "8'601.6",
            "8_601.6",
            "8, 601.6",
            "8192,5",
            "81,92",
            "1,2345",
            "8.192,5",
            "8192,,",
            "1.2.3",
            ",",
            "9999999999999",
            "１",
            "8１",
            " 8192",
            " peak_reserved_mb=17203",
            ", 8192",
            "\"8192\"",
            "8192 bytes",
        ] {
            omits(&with(&format!("peak_allocated_mb={value}")), "0.log", 2, "has peak_allocated_mb");
        }
        for value in ["8192", "8,192", "8192.0", "8192,", "8192, peak_reserved_mb=1", "8192;", "8192)", "8192 in 3 ms", "8192\tx", "8192."]
        {
            let imported = with(&format!("peak_allocated_mb={value}"));
            assert_eq!(peaks(&imported)[0].request_peak.to_bits(), 8.0_f64.to_bits(), "{value}");
        }
        // In the log's own words.
        omits(&with("PEAK_ALLOCATED_MB=8.4 GiB, peak_reserved_mb=3"), "0.log", 2, "has peak_allocated_mb `8.4 GiB`; expected");
        let long = with(&format!("peak_allocated_mb={}", "9".repeat(5000)));
        assert!(long.omitted[0].message.len() < 300);
    }

    #[test]
    fn the_current_reservation_is_no_peak() {
        let imported =
            run(&["[a|DenoisingStage] start\n[a|DenoisingStage] completed reserved=99999 peak_allocated_mb=1024 reserved: 88888"]);
        assert_eq!(peaks(&imported)[0].request_peak.to_bits(), 1.0_f64.to_bits());
    }

    #[test]
    fn start_up_stays_apart() {
        let load = stage("", "load|ModelLoader", 20480.0);
        let imported = run(&[&(load.clone() + "[startup] peak_allocated_mb=10240\n" + &request("", 1.0))]);
        let rank = &peaks(&imported)[0];
        assert_eq!((rank.startup_peak, rank.request_peak), (Some(20.0), 8.4));
        assert!(!rank.stages.contains_key("load"));
        let broken = run(&[&("[model_load] completed\n".to_owned() + &request("", 1.0))]);
        assert_eq!(peaks(&broken)[0].startup_peak, None);
        assert!(broken.notes.iter().any(|note| note.starts_with("0.log:1: no start-up peak")));
        omits(&run(&[&(request("", 1.0) + &load)]), "0.log", 13, "loads models during the request");
        omits(&run(&[&load]), "0.log", 2, "no stage line of a request");
    }

    #[test]
    fn peaks_stay_as_measured() {
        let text = stage("", "a|DenoisingStage", 1_000.049_999) + &stage("", "b|DecodingStage", 1_000.050_001);
        let imported = run(&[&text]);
        let rank = &peaks(&imported)[0];
        assert!(rank.stages.values().all(|peak| *peak <= rank.request_peak));
        assert_eq!((rank.request_peak * 1024.0).to_bits(), 1_000.050_001_f64.to_bits());
    }

    #[test]
    fn no_stage_at_all() {
        let [reason] = import(&[], &Options::default()).omitted.try_into().expect("one reason");
        assert_eq!((reason.file.as_str(), reason.line), ("", 0));
        assert!(reason.message.contains("FASTVIDEO_STAGE_LOGGING=1"), "{reason:?}");
        omits(&run(&["", "INFO ready\n[INFO] started\n[12] start\n[base.py:3] start\n"]), "1.log", 4, "no stage line");
    }

    #[test]
    fn mutilated_logs_never_panic() {
        let text = request("\u{1b}[31m[rank 0] é", 1.0) + &request("rank=1 ", 1.0);
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).expect("small")
        };
        for _ in 0..2_000 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..=random(20) {
                let at = random(bytes.len());
                bytes[at] = b"[]|=:,.9 \n\r\x1b\x00\xffrank"[random(18)];
            }
            bytes.truncate(random(2 * bytes.len()));
            let _ = run(&[&String::from_utf8_lossy(&bytes)]);
        }
        for text in [
            "[".repeat(1 << 20),
            "rank".repeat(1 << 18),
            "\u{1b}[".repeat(1 << 19),
            "[a|b] start ".repeat(1 << 17),
            "\0\u{feff}".repeat(1 << 18),
            "[load]".repeat(1 << 18) + "peak_allocated_mb",
            "[a]".repeat(1 << 18),
            "[rank 1]".repeat(1 << 18),
            "[a] rank 1 ".repeat(1 << 17),
        ] {
            let _ = run(&[&text]);
        }
    }
}
