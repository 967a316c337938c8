//! The report: for people in a terminal, as the page docs/accuracy.md, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use fv_estimate::spread::{Ends, ONE, Work};
use serde_json::{Value, json};

use super::pipelines::StageRow;
use super::{Accuracy, Coverage, Errors, Judged, Limit, Recorded, error, fit};

/// Rows named first in a terminal.
const WORST: usize = 8;

fn percent(share: f64) -> String {
    // `-0.00` says nothing that `+0.00` does not.
    let rounded = (share * 1e4).round() / 1e2;
    format!("{:+.2} %", if rounded == 0.0 { 0.0 } else { rounded })
}

fn plain_percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn gib(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / f64::from(1 << 30))
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn mib(bytes: i128) -> String {
    let mib = (bytes as f64 / f64::from(1 << 20) * 10.0).round() / 10.0;
    format!("{:.1}", if mib == 0.0 { 0.0 } else { mib })
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn ratio(millionths: u64) -> String {
    format!("{:.4}", millionths as f64 / ONE as f64)
}

fn summary_line(name: &str, errors: &Errors) -> String {
    format!(
        "| {name} | {} | {} | {} | {} |\n",
        errors.count,
        plain_percent(errors.median),
        percent(errors.worst_over),
        percent(errors.worst_under)
    )
}

/// Metrics in the order in which they are shown.
type Metric = (&'static str, fn(&Judged) -> f64);
const METRICS: [Metric; 5] = [
    ("allocated, with what the process held before", Judged::allocated),
    ("allocated, nothing taken from the row", Judged::allocated_alone),
    ("alive before the pass: weights, inputs, workspaces", Judged::base),
    ("reserved, nothing taken from the row", Judged::reserved),
    ("reserved, with what the process held before", Judged::reserved_with_baseline),
];

/// For a terminal: the summary, then the rows that are furthest off.
pub fn human(accuracy: &Accuracy) -> String {
    let mut text = String::new();
    let files = accuracy.rows.iter().map(|row| row.row.file.as_str()).collect::<std::collections::BTreeSet<_>>().len();
    let _ = writeln!(text, "{} rows of {files} file(s) judged, {} not covered", accuracy.rows.len(), accuracy.not_covered.len());
    if !accuracy.rows.is_empty() {
        let _ = writeln!(text, "\n{:52} {:>8} {:>9} {:>9}", "derived against measured", "median", "over", "under");
        for (name, metric) in METRICS {
            let errors = accuracy.errors(|_| true, metric);
            let _ = writeln!(
                text,
                "{name:52} {:>8} {:>9} {:>9}",
                plain_percent(errors.median),
                percent(errors.worst_over),
                percent(errors.worst_under)
            );
        }
        text.push('\n');
        coverage_line(&mut text, "device interval", &accuracy.coverage);
        if let Some(recorded) = &accuracy.recorded {
            coverage_line(&mut text, "device interval, each geometry left out", &recorded.left_out);
        }
        text.push('\n');
        for limit in accuracy.limits() {
            let _ = writeln!(text, "{} {}", if limit.holds { "holds " } else { "MISSED" }, limit_words(&limit));
        }
        let mut rows: Vec<&Judged> = accuracy.rows.iter().collect();
        let furthest = |row: &Judged| row.allocated().abs().max(row.reserved().abs());
        rows.sort_by(|a, b| furthest(b).total_cmp(&furthest(a)));
        let _ = writeln!(text, "\nFurthest off:");
        for row in rows.iter().take(WORST) {
            let _ = writeln!(
                text,
                "  allocated {:>8}  reserved {:>8}  {}:{}  {} {} {}",
                percent(row.allocated()),
                percent(row.reserved()),
                row.row.file,
                row.row.line,
                row.row.component,
                row.row.stage,
                row.row.case
            );
        }
    }
    if let Some(recorded) = &accuracy.recorded {
        let worst = Errors::of(stage_errors(recorded, 0));
        let reserved = Errors::of(stage_errors(recorded, 1));
        let _ = writeln!(
            text,
            "\nPipelines: {} stages, allocated {} to {}, reserved {} to {}",
            worst.count,
            percent(worst.worst_under),
            percent(worst.worst_over),
            percent(reserved.worst_under),
            percent(reserved.worst_over)
        );
    }
    if !accuracy.not_covered.is_empty() {
        let _ = writeln!(text, "\nNot covered:");
        for row in &accuracy.not_covered {
            let _ = writeln!(text, "  {}:{}  {} {} {}: {}", row.file, row.line, row.component, row.stage, row.case, row.why);
        }
    }
    text
}

fn coverage_line(text: &mut String, name: &str, coverage: &Coverage) {
    let _ = writeln!(
        text,
        "{name}: {} of {} rows inside ({}), width {} in the median and {} at most",
        coverage.inside,
        coverage.count,
        plain_percent(coverage.share()),
        plain_percent(coverage.width[0]),
        plain_percent(coverage.width[1])
    );
    for miss in &coverage.misses {
        let _ = writeln!(text, "  outside by {}: {}:{}", percent(miss.by), miss.file, miss.line);
    }
}

fn limit_words(limit: &Limit) -> String {
    format!("{}: {}, limit {}", limit.what, plain_percent(limit.found), plain_percent(limit.limit))
}

/// Errors of allocated (0) or reserved (1) over the stages of covered pipelines.
pub fn stage_errors(recorded: &Recorded, metric: usize) -> impl Iterator<Item = f64> {
    recorded.pipelines.iter().filter(|row| row.unknown.is_none()).filter_map(move |row| stage_error(row, metric))
}

/// The error of one stage in allocated (0) or reserved (1).
pub fn stage_error(row: &StageRow, metric: usize) -> Option<f64> {
    let peaks = row.derived?;
    let derived = if metric == 0 { peaks.allocated.value } else { peaks.reserved.value };
    Some(error(derived, row.measured[metric]))
}

/// The page docs/accuracy.md.
pub fn markdown(accuracy: &Accuracy) -> String {
    let mut text = String::from(INTRODUCTION);
    limits(&mut text, accuracy);
    summary(&mut text, accuracy);
    spread(&mut text, accuracy);
    if let Some(recorded) = &accuracy.recorded {
        caps(&mut text, recorded);
        pipelines(&mut text, recorded);
        published(&mut text, recorded);
        match &recorded.times {
            Ok(times) => text.push_str(&times.markdown()),
            Err(why) => {
                let _ = write!(text, "\n## Times\n\nNo figures: {why}.\n");
            }
        }
    }
    rows(&mut text, accuracy);
    text.push_str(LIMITS);
    text
}

const INTRODUCTION: &str = "# Accuracy\n\n\
<!-- Generated by `fv-catalog accuracy --out docs/accuracy.md`; do not edit. -->\n\n\
What the rules for families with diffusers say, against what was measured. `fv-catalog accuracy` prints a summary, `--rows FILE`\n\
judges rows of your own, and `--check` fails when a limit is missed or this page is not current.\n\n\
## What was measured\n\n\
- `tests/data/h200_diffusers_peaks.csv`: single components on one NVIDIA H200, driver 580.159.04, torch 2.11, diffusers 0.42.1.\n\
  Rows that no rule covers stand at the end.\n\
- `tests/data/wan/peaks.csv`: our own rows with the same versions, and `pipelines.json`: whole pipelines, stage by stage. Weights were\n\
  made up, shapes are the published ones. `tests/data/wan/README.md` says how they were taken.\n\
- `tests/data/families/peaks.csv`: our own rows of the other families, taken the same way (README there).\n\
- `tests/data/h200_caps.json`: the smallest allocator cap under which a component still completes.\n\
- `tests/data/published_wan.csv`, `published_h3.csv`, `fasth3_rtx4090.csv`, `published_other.csv`: what others published, under any\n\
  engine.\n\n\
Every row is bytes of one process. **Allocated** is what tensors take, in blocks as the allocator hands them out. **Reserved** is what the\n\
allocator holds. **Device** is what the whole card shows. They are never compared with each other.\n\n\
## What was fitted, and what was held out\n\n\
- **Allocated: nothing.** Weights, inputs, activations, caches and workspaces follow from the geometry in the catalog and from the order in\n\
  which the classes allocate and free. That order was read from the code and compared with recorded allocator traces, of which some share\n\
  their geometry with rows here; no figure of a row is in a rule.\n\
- **Reserved: nothing** in the value, which is a replay of PyTorch's allocator. Its **interval** is fitted: the highest ratio of measured to\n\
  derived, the lowest but for one row in fifty, and a margin beyond either.\n\
- **Device**: the reserved interval and the fixed cost of the card (`catalog/rules/fixed-costs.yaml`), which was fitted to the first file.\n\
- **Held out**: for each geometry (height, width, frames and batch, or tokens and batch) the intervals were fitted again from the family's rows\n\
  of all other geometries, and then tried on its rows. The fixed cost was not fitted again. Pipelines, caps and published rows were in no fit.\n\n\
## What the limits refer to\n\n\
`base_alloc` of a row contains what its process held beside the component: up to 117 MiB of leftovers of what it had measured before, which\n\
no rule of a model can know. The column *held before* is `base_alloc` less what is derived for weights, inputs and workspaces. The limits on\n\
allocated refer to the error with that amount added; both errors are shown. Where *held before* is negative, a library's workspace came only\n\
during the pass, and nothing is added or taken away. In our own rows it is zero to the nearest MiB, so there the two errors agree. Reserved and device\n\
take nothing from the row, since leftovers mostly lie in gaps of segments that are there anyway.\n";

const LIMITS: &str = "\n## What this cannot say\n\n\
- One card, one driver, one version of each library, no compilation, no other process. On other cards cuDNN chooses other kernels with other\n\
  workspaces, and the fixed cost differs.\n\
- The geometries are few: areas from 224x224 to 720x1280, 1 to 121 frames, batches of 1 and 2. Beyond that an estimate says `extrapolated`.\n\
- Reserved memory of a VAE is not monotone and jumps with small changes, because hundreds of sizes fall into segments that earlier sizes left\n\
  behind. An estimate runs only the first and last chunks of a video, which moves such a jump but does not remove it.\n\
- Attention is the one that PyTorch picks on this card. A kernel with materialised scores needs far more.\n\
- Memory that side streams free late (`record_stream`) is not modelled; such an estimate says `unknown`. With sequential offload the VAE's own\n\
  weights and the emptied cache around each of its layers are left out, so reserved in decoding is too high.\n\
- A row that the rules get wrong stays in its table.\n";

fn limits(text: &mut String, accuracy: &Accuracy) {
    text.push_str("\n## Limits\n\n| limit | found | demanded | |\n| --- | ---: | ---: | --- |\n");
    for limit in accuracy.limits() {
        let least = limit.limit >= 0.5;
        let _ = writeln!(
            text,
            "| {} | {} | {} {} | {} |",
            limit.what,
            plain_percent(limit.found),
            if least { "at least" } else { "at most" },
            plain_percent(limit.limit),
            if limit.holds { "holds" } else { "**missed**" }
        );
    }
}

fn summary(text: &mut String, accuracy: &Accuracy) {
    let files: Vec<&str> = {
        let mut files: Vec<&str> = accuracy.rows.iter().map(|row| row.row.file.as_str()).collect();
        files.dedup();
        files
    };
    text.push_str("\n## Summary\n\nErrors are derived less measured, in shares of the measured value.\n\n| | rows | median | worst over | worst under |\n| --- | ---: | ---: | ---: | ---: |\n");
    for (name, metric) in METRICS {
        text.push_str(&summary_line(name, &accuracy.errors(|_| true, metric)));
    }
    for file in files {
        for (name, metric) in [METRICS[0], METRICS[1], METRICS[3]] {
            text.push_str(&summary_line(&format!("`{file}`: {name}"), &accuracy.errors(|row| row.row.file == file, metric)));
        }
    }
    for family in accuracy.families() {
        for (name, work) in WORKS {
            for (metric_name, metric) in [METRICS[0], METRICS[3]] {
                let errors = accuracy.errors(|row| row.derived.family == family && row.derived.work == work, metric);
                if errors.count > 0 {
                    text.push_str(&summary_line(&format!("{family}, {name}: {metric_name}"), &errors));
                }
            }
        }
    }
}

/// Kinds of work as they are shown.
const WORKS: [(&str, Work); 2] = [("transformers and encoders", Work::Plain), ("VAEs", Work::Vae)];

fn spread(text: &mut String, accuracy: &Accuracy) {
    text.push_str(
        "\n## Intervals\n\nMeasured reserved over derived: the highest, and the lowest but for one row in fifty, with a margin beyond. Leaving a row out below keeps the\n\
         interval narrow and promises no room that is not there; nothing is left out above. Transformers and encoders have a spread of their own: their\n\
         few, large and recurring sizes settle in the same segments every time, while a VAE's do not. `catalog/rules/spread-<family>-diffusers.yaml`\n\
         hold the figures; `fv-catalog accuracy --fit` writes them.\n\n\
         | work | reserved low | reserved high | allocated high | margin |\n| --- | ---: | ---: | ---: | ---: |\n",
    );
    for (family, spreads) in &accuracy.spreads {
        for (name, work) in WORKS {
            let Ends { allocated_high, reserved_low, reserved_high } = spreads.ends(work);
            let ends = [reserved_low, reserved_high, allocated_high, fit::margin(work)].map(ratio).join(" | ");
            let _ = writeln!(text, "| {family}, {name} | {ends} |");
        }
    }
    text.push_str("\n| device interval | rows | inside | share | worst miss below | width, median | width, largest |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    let mut line = |name: &str, coverage: &Coverage| {
        let _ = writeln!(
            text,
            "| {name} | {} | {} | {} | {} | {} | {} |",
            coverage.count,
            coverage.inside,
            plain_percent(coverage.share()),
            percent(coverage.worst_under()),
            plain_percent(coverage.width[0]),
            plain_percent(coverage.width[1])
        );
    };
    line("as fitted", &accuracy.coverage);
    if let Some(recorded) = &accuracy.recorded {
        line("each geometry left out", &recorded.left_out);
        let misses: Vec<String> =
            recorded.left_out.misses.iter().map(|miss| format!("`{}` line {} by {}", miss.file, miss.line, percent(miss.by))).collect();
        let _ = writeln!(
            text,
            "\nWidth is high less low in shares of the derived value. Outside when left out: {}.",
            if misses.is_empty() { "none".to_owned() } else { misses.join(", ") }
        );
    }
}

fn caps(text: &mut String, recorded: &Recorded) {
    text.push_str(
        "\n## Allocator caps\n\nUnder a cap a request fails somewhere between its allocated and its reserved peak, because the allocator gives cached segments back\n\
         before it gives up. Both ends of each measured bracket have to lie where an estimate says `uncertain`: above the lowest allocated and\n\
         below the highest reserved peak.\n\n| case | band GiB | largest cap that fails | smallest that completes | inside |\n| --- | ---: | ---: | ---: | --- |\n",
    );
    for cap in &recorded.caps {
        let band = cap.band.map_or_else(|| "-".to_owned(), |[low, high]| format!("{} to {}", gib(low), gib(high)));
        let inside = match cap.inside() {
            Some(true) => "yes".to_owned(),
            Some(false) => "**no**".to_owned(),
            None => format!("not covered: {}", cap.why.as_deref().unwrap_or_default()),
        };
        let _ = writeln!(text, "| {} | {band} | {} | {} | {inside} |", cap.case, gib(cap.fails), gib(cap.completes));
    }
}

fn pipelines(text: &mut String, recorded: &Recorded) {
    text.push_str(
        "\n## Pipelines\n\nThe first call of each recorded pipeline, in the stages of an estimate. Denoising begins with what encoding leaves on the device, so its peak\n\
         can be the hand-over. Where only the transformer was offloaded in groups, the other components are set resident by hand, which no\n\
         setting of ours expresses. None of these rows was in a fit. The last column says whether reserved lies in the estimate's interval.\n",
    );
    let (allocated, reserved) = (Errors::of(stage_errors(recorded, 0)), Errors::of(stage_errors(recorded, 1)));
    let covered = || recorded.pipelines.iter().filter(|row| row.unknown.is_none());
    let inside = covered().filter(|row| reserved_inside(row) == Some(true)).count();
    text.push_str("\n| covered stages | rows | median | worst over | worst under |\n| --- | ---: | ---: | ---: | ---: |\n");
    text.push_str(&summary_line("allocated", &allocated));
    text.push_str(&summary_line("reserved", &reserved));
    let _ = writeln!(text, "\nReserved inside the interval: {inside} of {}.", covered().count());
    let mut case = "";
    for row in &recorded.pipelines {
        if row.case != case {
            case = &row.case;
            let _ = writeln!(
                text,
                "\n`{case}`: {}.{}\n",
                row.what,
                row.unknown.as_ref().map_or_else(String::new, |why| format!(" An estimate says `unknown`: {why}."))
            );
            text.push_str("| stage | allocated GiB | derived | error | reserved GiB | derived | error | inside |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n");
        }
        let derived = |metric: usize| {
            row.derived.map_or_else(|| "-".to_owned(), |peaks| gib(if metric == 0 { peaks.allocated.value } else { peaks.reserved.value }))
        };
        let off = |metric: usize| stage_error(row, metric).map_or_else(|| "-".to_owned(), percent);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} | {} |",
            row.stage,
            gib(row.measured[0]),
            derived(0),
            off(0),
            gib(row.measured[1]),
            derived(1),
            off(1),
            match reserved_inside(row) {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            }
        );
    }
}

fn reserved_inside(row: &StageRow) -> Option<bool> {
    row.derived.map(|peaks| (peaks.reserved.low..=peaks.reserved.high).contains(&row.measured[1]))
}

fn published(text: &mut String, recorded: &Recorded) {
    text.push_str(
        "\n## Published figures\n\nDevice memory, each row with our figure where the inputs suffice for one. Only rows marked *yes* are of an engine that the rules describe\n\
         and have complete inputs; the others are here to show the distance, not to be met. GB are 10^9 bytes.\n\n\
         | line | what | metric | published | ours GiB | error | comparable | remark |\n| ---: | --- | --- | ---: | ---: | ---: | --- | --- |\n",
    );
    let mut file = "";
    for row in recorded.published.iter().filter(|row| row.memory) {
        if row.file != file {
            file = row.file;
            let _ = writeln!(text, "| | **`{file}`** | | | | | | |");
        }
        let ours = row.value.map_or_else(|| "-".to_owned(), gib);
        let off = match (row.value, row.bytes) {
            (Some(value), Some(bytes)) => percent(error(value, bytes)),
            _ => "-".to_owned(),
        };
        let _ = writeln!(
            text,
            "| {} | {} ({}) | {} | {} | {ours} | {off} | {} | {} |",
            row.line,
            row.what,
            row.source,
            row.metric,
            row.printed.trim(),
            if row.comparable { "yes" } else { "no" },
            row.why
        );
    }
    left_out(text, recorded);
}

/// How many published rows have a figure of ours, and why the others have none.
fn left_out(text: &mut String, recorded: &Recorded) {
    let all = &recorded.published;
    let mut reasons: BTreeMap<(bool, &str), usize> = BTreeMap::new();
    for row in all.iter().filter(|row| row.value.is_none()) {
        *reasons.entry((!row.memory, &row.why)).or_default() += 1;
    }
    let used = all.iter().filter(|row| row.value.is_some()).count();
    let _ = writeln!(
        text,
        "\nOf {} published rows {used} stand beside a figure of ours and {} do not. No row of CogVideoX, LTX-Video or Mochi is known.\n\n\
         | without a figure, and why | in the table | rows |\n| --- | --- | ---: |",
        all.len(),
        all.len() - used
    );
    for ((elsewhere, why), rows) in reasons {
        let _ = writeln!(text, "| {why} | {} | {rows} |", if elsewhere { "no" } else { "yes" });
    }
}

fn rows(text: &mut String, accuracy: &Accuracy) {
    text.push_str("\n## Every row\n");
    let mut file = "";
    for row in &accuracy.rows {
        if row.row.file != file {
            file = &row.row.file;
            let _ = writeln!(
                text,
                "\n### `{file}`\n\nGiB, except *held before* in MiB.\n\n\
                 | line | component, stage, case | held before | allocated | derived with it | error | alone | reserved | derived | error | device | interval | inside |\n\
                 | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
            );
        }
        let measured = row.row.measured;
        let interval = row.device(accuracy.spreads[row.derived.family].ends(row.derived.work), &accuracy.fixed);
        let (band, inside) = interval.map_or_else(
            || ("-".to_owned(), "-"),
            |i| {
                let inside = if (i.low..=i.high).contains(&measured.device) { "yes" } else { "**no**" };
                (format!("{} to {}", gib(i.low), gib(i.high)), inside)
            },
        );
        let _ = writeln!(
            text,
            "| {} | {} {} {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {band} | {inside} |",
            row.row.line,
            row.row.component,
            row.row.stage,
            row.row.case,
            mib(row.held_before()),
            gib(measured.allocated),
            gib(row.derived.peaks.allocated + row.baseline()),
            percent(row.allocated()),
            percent(row.allocated_alone()),
            gib(measured.reserved),
            gib(row.derived.peaks.reserved),
            percent(row.reserved()),
            gib(measured.device)
        );
    }
    if !accuracy.not_covered.is_empty() {
        text.push_str("\n### Not covered\n\n| file | line | component, stage, case | why |\n| --- | ---: | --- | --- |\n");
        for row in &accuracy.not_covered {
            let _ = writeln!(text, "| `{}` | {} | {} {} {} | {} |", row.file, row.line, row.component, row.stage, row.case, row.why);
        }
    }
}

/// The report as JSON.
pub fn json(accuracy: &Accuracy) -> Value {
    let rows: Vec<Value> = accuracy
        .rows
        .iter()
        .map(|row| {
            let interval = row.device(accuracy.spreads[row.derived.family].ends(row.derived.work), &accuracy.fixed);
            json!({
                "file": row.row.file,
                "line": row.row.line,
                "runtime": row.row.runtime,
                "component": row.row.component,
                "stage": row.row.stage,
                "case": row.row.case,
                "catalogComponent": row.derived.component,
                "measuredBytes": row.row.measured,
                "derivedBytes": {
                    "base": row.derived.peaks.base,
                    "allocated": row.derived.peaks.allocated,
                    "reserved": row.derived.peaks.reserved,
                    "pinned": row.derived.peaks.pinned,
                    "device": interval,
                },
                "heldBeforeBytes": i64::try_from(row.held_before()).ok(),
                "errors": {
                    "allocated": row.allocated(),
                    "allocatedAlone": row.allocated_alone(),
                    "base": row.base(),
                    "reserved": row.reserved(),
                    "reservedWithHeldBefore": row.reserved_with_baseline(),
                },
                "deviceInside": interval.map(|i| (i.low..=i.high).contains(&row.row.measured.device)),
            })
        })
        .collect();
    let of = |metric: fn(&Judged) -> f64| accuracy.errors(|_| true, metric);
    let mut report = json!({
        "version": 1,
        "summary": {
            "allocated": of(Judged::allocated),
            "allocatedAlone": of(Judged::allocated_alone),
            "base": of(Judged::base),
            "reserved": of(Judged::reserved),
            "reservedWithHeldBefore": of(Judged::reserved_with_baseline),
            "device": accuracy.coverage,
        },
        "limits": accuracy.limits(),
        "rows": rows,
        "notCovered": accuracy.not_covered,
    });
    if let Some(recorded) = &accuracy.recorded {
        report["summary"]["deviceLeftOut"] = json!(recorded.left_out);
        report["caps"] = json!(recorded.caps);
        report["pipelines"] = json!(recorded.pipelines);
        report["published"] = json!(recorded.published);
    }
    report
}
