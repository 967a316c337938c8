//! What plans said against what a device did, as `tests/gpu/contract.sh` recorded it: judged, and written into `docs/contract.md`.
//! `UPDATE_DOCS=1` writes it.

use std::{collections::BTreeMap, fmt::Write, fs};

use fv_tests::{page_is, root};

const MIB: f64 = 1_048_576.0;
const GIB: f64 = 1_073_741_824.0;
/// A plan says at most so much more than the device shows.
const MOST_OVER_MIB: f64 = 64.0;
/// And at most so much less.
const MOST_UNDER_MIB: f64 = 32.0;
/// Of a step of a plan whose weights are page-locked, at most this part is waiting for copies.
const MOST_WAITING: f64 = 0.03;

/// A plan that was executed.
struct Row(BTreeMap<String, String>);

impl Row {
    fn text(&self, column: &str) -> &str {
        self.0.get(column).map_or_else(|| panic!("no column is called {column}"), String::as_str)
    }

    fn number(&self, column: &str) -> f64 {
        self.text(column).parse().unwrap_or_else(|_| panic!("{}: {column} is no number", self.text("plan")))
    }

    /// What the plan says of the device less what was in use on it with everything reserved, in MiB.
    fn over_mib(&self) -> f64 {
        (self.number("planned_bytes") - self.number("reserved_bytes")) / MIB
    }

    fn waiting(&self) -> f64 {
        self.number("waiting_ms") / self.number("step_ms")
    }
}

fn rows() -> Vec<Row> {
    let text = fs::read_to_string(root().join("tests/data/runner/contract.csv")).expect("recorded");
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let names = lines.next().expect("a header");
    lines.map(|fields| Row(names.iter().cloned().zip(fields).collect())).collect()
}

#[test]
fn what_was_planned_is_what_the_device_showed() {
    let rows = rows();
    assert!(rows.len() >= 24, "{}", rows.len());
    for row in &rows {
        let (name, over) = (row.text("plan"), row.over_mib());
        assert!((-MOST_UNDER_MIB..=MOST_OVER_MIB).contains(&over), "{name}: {over:.1} MiB over");
        assert_eq!(row.text("flat"), "true", "{name}: device memory in use changed between steps");
        assert_eq!(row.text("reserved_bytes"), row.text("end_bytes"), "{name}");
        let arena = row.number("before_bytes") + row.number("arena_bytes");
        assert!(row.number("reserved_bytes") >= arena, "{name}: less is in use than context and arena");
        if row.text("disk_blocks") == "0" {
            assert!(row.waiting() <= MOST_WAITING, "{name}: {:.4} of a step is waiting", row.waiting());
        }
    }
}

#[test]
fn plans_of_one_request_give_one_latent() {
    let rows = rows();
    let mut latents: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in &rows {
        latents.entry(row.text("group")).or_default().push(row);
    }
    for (group, rows) in &latents {
        assert!(rows.len() > 1, "{group}: nothing to compare with");
        for row in rows {
            assert_eq!(row.text("sha256").len(), 64, "{}", row.text("plan"));
            assert_eq!(row.text("sha256"), rows[0].text("sha256"), "{}", row.text("plan"));
        }
    }
    let mut digests: Vec<&str> = latents.values().map(|rows| rows[0].text("sha256")).collect();
    digests.sort_unstable();
    digests.dedup();
    assert_eq!(digests.len(), latents.len(), "other requests and other storage of weights give other latents");
}

fn page() -> String {
    let mut page = String::from(
        "# Plans against a device

Written by `tests/tests/contract.rs` from `tests/data/runner/contract.csv`; do not edit. What the programs printed is beside it.

    tests/gpu/contract.sh fv-run small|large OUT

One NVIDIA H200, driver 580.159.04, 2026-12-01; a release build with kernels built ahead. Each plan was made there by `fv-run plan` with the
arguments that `contract-small.txt` and `contract-large.txt` name, and executed for three steps on random weights and made-up prompt
embeddings. No video comes of it, and no run of a stage counts as a generation.

- **Planned** is the plan's peak of the stage, with what a process takes beside its layout; **measured** is all device memory in use with
  everything reserved, on a device that nobody else used. It did not change between steps. A test holds the difference within 64 MiB
  above and 32 MiB below.
- A **step** is the one before the last, the other steps' copies ahead included; **waiting** is the time of it in which computation
  waited for copies, at most 3 % where no block is on disk.
- **Forecast** is the plan's time of a step. Its rates are a card's published ones and the share of them that diffusers' products and attention
  reach: those of our kernels are not fitted yet. Plan and card disagree here: the ratio grows with the number of tokens, and is the largest
  with FastWan's sparse attention.
- Blocks \"on disk\" are made anew from their seed at each use, in place of being read: their times say nothing of disks.
- Rows of one group have the same **latent**, to the bit: its SHA-256 is in the CSV, and a test compares them.

| group | plan | weights | blocks: device, page-locked, disk | slots | heads at once | planned, GiB | measured, GiB | over, MiB | step, ms | waiting, ms | forecast, ms | measured / forecast |
| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
",
    );
    for row in rows() {
        let blocks = ["device_blocks", "pinned_blocks", "disk_blocks"].map(|column| row.text(column).to_owned()).join(", ");
        let forecast = row.number("planned_step_ns") / 1e6;
        let _ = writeln!(
            page,
            "| {} | {} | {} | {blocks} | {} | {} | {:.3} | {:.3} | {:.1} | {:.1} | {:.1} | {forecast:.1} | {:.2} |",
            row.text("group"),
            row.text("plan"),
            row.text("precision"),
            row.text("slots"),
            row.text("head_group"),
            row.number("planned_bytes") / GIB,
            row.number("reserved_bytes") / GIB,
            row.over_mib(),
            row.number("step_ms"),
            row.number("waiting_ms"),
            row.number("step_ms") / forecast,
        );
    }
    page
}

#[test]
fn the_page_is_what_was_recorded() {
    page_is("docs/contract.md", &page());
}
