//! Published times that nothing was fitted to, and what the law says of them. They are reported as they come out.

use std::collections::BTreeMap;

use fv_data::Catalog;
use fv_estimate::forecast::freevideo::{Law, Rows, Step, StepRates, step};
use fv_estimate::forecast::rates::{Rate, Rates};
use fv_estimate::forecast::request::{DecodeWork, Request, forecast, rows};
use fv_spec::authored::{Accumulate, Dtype};
use fv_spec::forecast::TimeInterval;
use fv_spec::plan::{AttentionBackend, GemmPath, Source};

use super::DEVICE;

/// A published figure beside the forecast.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishedTime {
    /// What was measured.
    pub what: String,
    /// The figure, in seconds or as a ratio.
    pub measured: f64,
    /// Ours.
    pub forecast: f64,
    /// Its range, where it is a time.
    pub range: Option<[f64; 2]>,
}

impl PublishedTime {
    /// Relative error: positive is too much.
    pub fn error(&self) -> f64 {
        self.forecast / self.measured - 1.0
    }
}

/// A card of an end-to-end row: id, multiprocessors, boost clock in GHz where its dense rates are not in the catalog.
struct Card {
    id: &'static str,
    chip: Option<(f64, f64)>,
}

/// Operations of a multiprocessor in a clock: int8, and FP16 with FP32 accumulation, of Ada and consumer Blackwell, as the catalog's
/// rates of RTX 4090 and RTX 5090 divided by theirs.
const INT8_CLOCK: f64 = 2048.0;
const FP16_CLOCK: f64 = 512.0;

impl Card {
    fn rates(&self, catalog: &Catalog) -> Option<Rates> {
        let mut rates = Rates::of(catalog.devices.iter().find(|device| device.id == self.id)?);
        if let Some((processors, clock)) = self.chip {
            let rate = |operations: f64| Rate::new(processors * clock * operations / 1000.0, Source::Given);
            rates.dense.insert((Dtype::Int8, Accumulate::Int32), rate(INT8_CLOCK)?);
            rates.dense.insert((Dtype::Fp16, Accumulate::Fp32), rate(FP16_CLOCK)?);
        }
        Some(rates)
    }
}

const BLOCK: u64 = 432_500_000;
/// 1344x768 and half of that, ten seconds, with the text that the runtime assumes.
fn canvas(half: bool) -> Rows {
    if half { rows(384, 672, 243, 367) } else { rows(768, 1344, 243, 367) }
}

fn int8(rows: Rows, head_group: u64, slots: u32, pinned: u64) -> Step {
    Step {
        rows,
        head_group,
        gemm: GemmPath::Int8PerRow,
        attention: AttentionBackend::Sage2,
        slots,
        block_bytes: BLOCK,
        pinned,
        pageable: 0,
        disk: 0,
        outputs_on_host: false,
        residual_on_host: false,
        recompute: false,
    }
}

/// The four end-to-end rows: Windows, two passes of eight and three steps, 1344x768, ten seconds. Placements follow the published
/// rules for the whole capacity as free memory; on the 8 GB card activations of the second pass wait in host memory.
fn end_to_end(catalog: &Catalog) -> Vec<PublishedTime> {
    let staged = Step { outputs_on_host: true, residual_on_host: true, ..int8(canvas(false), 4, 1, 50) };
    let all = [
        ("RTX 5090, 32 + 64 GB", "rtx-5090-32gb", None, 122.0, [int8(canvas(true), 16, 2, 42), int8(canvas(false), 16, 2, 42)], 0),
        (
            "RTX 5060 Ti, 16 + 32 GB",
            "rtx-5060-ti-16gb",
            Some((36.0, 2.572)),
            486.0,
            [int8(canvas(true), 8, 2, 42), int8(canvas(false), 8, 2, 42)],
            0,
        ),
        (
            "RTX 4060 Ti, 16 + 32 GB",
            "rtx-4060-ti-16gb",
            Some((34.0, 2.535)),
            558.0,
            [int8(canvas(true), 8, 2, 42), int8(canvas(false), 8, 2, 42)],
            0,
        ),
        ("RTX 4060 Ti, 8 + 64 GB", "rtx-4060-ti-8gb", Some((34.0, 2.535)), 603.0, [int8(canvas(true), 8, 1, 50), staged], 21),
    ];
    let row = |(what, id, chip, measured, [first, second], copied): (&str, &'static str, _, f64, [Step; 2], u64)| {
        let rates = Card { id, chip }.rates(catalog)?;
        let request = Request {
            passes: vec![("first".to_owned(), 8, first), ("second".to_owned(), 3, second)],
            upscales: true,
            encodes: true,
            pin_bytes: second.pinned * BLOCK,
            decoder: Some(DecodeWork { clips: 14, tiles: 28, copied, block_bytes: 268_574_720, from_disk: false, ahead: false }),
        };
        let time = forecast(&request, &rates, &catalog.rules).request?;
        let [low, value, high] = seconds(time);
        Some(PublishedTime { what: what.to_owned(), measured, forecast: value, range: Some([low, high]) })
    };
    all.into_iter().filter_map(row).collect()
}

#[expect(clippy::cast_precision_loss, reason = "a figure for people")]
fn seconds(time: TimeInterval) -> [f64; 3] {
    [time.low_ns, time.value_ns, time.high_ns].map(|ns| ns as f64 / 1e9)
}

/// Published pairs on one H200 or a card that is not named, as ratios.
fn ratios(catalog: &Catalog) -> Vec<PublishedTime> {
    let Some(device) = catalog.devices.iter().find(|device| device.id == DEVICE) else { return Vec::new() };
    let Ok(law) = Law::of(&catalog.rules) else { return Vec::new() };
    let rates = Rates::of(device);
    let of = |one: Step| StepRates::of(&one, &rates, &law).map_or(f64::NAN, |found| step(&one, &found, &law).total());
    let plain = |head_group: u64| Step { gemm: GemmPath::Fp8PerChannel, ..int8(canvas(false), head_group, 1, 50) };
    let long = |head_group: u64| Step { rows: rows(768, 1344, 345, 367), ..plain(head_group) };
    let residual = Step { outputs_on_host: true, residual_on_host: true, ..plain(4) };
    let outputs = Step { outputs_on_host: true, ..plain(4) };
    let recompute = Step { recompute: true, ..plain(8) };
    let two = |one: Step| Step { slots: 2, pinned: 42, ..one };
    [
        ("head groups of 2 against 4, 243 frames", 45.41 / 37.22, of(plain(2)) / of(plain(4))),
        ("head groups of 2 against 4, 345 frames", 72.11 / 58.26, of(long(2)) / of(long(4))),
        ("345 frames against 243, head groups of 4", 58.26 / 37.22, of(long(4)) / of(plain(4))),
        ("head groups of 8 against 16, 16 GiB", 9.96 / 8.99, of(two(plain(8))) / of(two(plain(16)))),
        ("head groups of 4 against 8, 9 GiB", 13.03 / 10.43, of(plain(4)) / of(plain(8))),
        ("residual stream in host memory against not, 8 GiB", 34.8 / 13.5, of(residual) / of(plain(4))),
        ("attention outputs in host memory against not, least", 1.19, of(outputs) / of(plain(4))),
        ("feed-forward recomputed against not", 1.18, of(recompute) / of(plain(8))),
    ]
    .map(|(what, measured, forecast)| PublishedTime { what: what.to_owned(), measured, forecast, range: None })
    .into()
}

/// All of them, by table.
pub fn published(catalog: &Catalog) -> BTreeMap<&'static str, Vec<PublishedTime>> {
    BTreeMap::from([("end to end", end_to_end(catalog)), ("ratios", ratios(catalog))])
}
