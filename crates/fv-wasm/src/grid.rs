//! Verdicts over two axes, as arrays for heat maps.

use fv_estimate::budget::Budget;
use fv_estimate::device::{DeviceSpec, from_flags, gib_to_bytes};
use fv_estimate::question::{Question, device_peak};
use fv_spec::estimate::{Summary, Verdict};
use fv_spec::request::PartialRequest;
use serde::Serialize;

use crate::answers::Asking;
use crate::arguments::{Fields, Limits};
use crate::problem::{Problem, Problems, all};
use crate::session::{Handle, Session};

/// Cells of one grid, at most: a picture of more shows nothing, and its answer would take seconds.
const MOST_CELLS: usize = 4_096;

/// One array for each figure, row after row.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Grid {
    rows: usize,
    columns: usize,
    /// 0 fits, 1 uncertain, 2 does not fit, 3 unknown, 4 refused: no legal request.
    verdict: Vec<u8>,
    /// The device peak over all stages, its value; absent where it is not known.
    peak_bytes: Vec<Option<u64>>,
    /// The budget less the largest device peak; absent where it is not known.
    margin_bytes: Vec<Option<i64>>,
}

impl Grid {
    fn new(rows: usize, columns: usize) -> Self {
        Self { rows, columns, verdict: Vec::new(), peak_bytes: Vec::new(), margin_bytes: Vec::new() }
    }

    fn cell(&mut self, summary: Option<&Summary>) {
        self.verdict.push(match summary.map(|summary| summary.status) {
            Some(Verdict::Fits) => 0,
            Some(Verdict::Uncertain) => 1,
            Some(Verdict::DoesNotFit) => 2,
            Some(Verdict::Unknown) => 3,
            None => 4,
        });
        self.peak_bytes.push(summary.and_then(device_peak).map(|peak| peak.value));
        self.margin_bytes.push(summary.and_then(|summary| summary.margin_bytes));
    }
}

fn sized(rows: usize, columns: usize) -> Result<(), Problems> {
    let cells = rows.saturating_mul(columns);
    if (1..=MOST_CELLS).contains(&cells) {
        return Ok(());
    }
    let message = format!("axes: found {rows} x {columns} cells, allowed: from 1 to {MOST_CELLS}");
    Err(vec![Problem::new("too-many-cells", "axes", message)])
}

impl Session {
    /// A grid of sizes (rows) and frames (columns), or of device memory (rows) and host memory (columns). Options: [`Limits`], and
    /// either `sizes: [{height, width}]` with `frames: [n]`, or `vramGiB: [n]` with `ramGiB: [n]`.
    ///
    /// # Errors
    /// Everything that is wrong with the question. A single cell whose request is not legal is refused in the grid.
    pub fn grid(&self, (model, device): (Handle, Handle), subject: &str, options: &str) -> Result<Grid, Problems> {
        let asking = Asking::new(self, model, device, subject)?;
        let mut fields = Fields::read(options, "options")?;
        let limits = Limits::take(&mut fields);
        let (sizes, frames) = (fields.sizes("sizes"), fields.wholes("frames"));
        let (vram, ram) = (fields.numbers("vramGiB"), fields.numbers("ramGiB"));
        fields.finish()?;
        match (sizes, frames, vram, ram) {
            (Some(sizes), Some(frames), None, None) => clips(&asking, &limits, &sizes, &frames),
            (None, None, Some(vram), Some(ram)) => memory(&asking, &limits, &vram, &ram),
            _ => {
                let message = "axes: allowed are `sizes` with `frames`, or `vramGiB` with `ramGiB`";
                Err(vec![Problem::new("missing-axes", "axes", message)])
            }
        }
    }
}

fn clips(asking: &Asking, limits: &Limits, sizes: &[[u32; 2]], frames: &[u32]) -> Result<Grid, Problems> {
    sized(sizes.len(), frames.len())?;
    let (example, overrides) = (asking.example()?, asking.overrides());
    let question = asking.question(example, &limits.asked, &overrides);
    let mut grid = Grid::new(sizes.len(), frames.len());
    let mut budget: Option<Budget> = None;
    let mut refused: Option<Problems> = None;
    for [height, width] in sizes {
        for count in frames {
            let asked = PartialRequest {
                height: Some(*height),
                width: Some(*width),
                num_frames: Some(*count),
                seconds: None,
                ..asking.subject.request
            };
            match question.evaluate(&asked, false) {
                Ok(workload) => {
                    // It depends on the settings, which all cells share.
                    let budget = match &mut budget {
                        Some(known) => known,
                        unknown => unknown.insert(question.budget(&workload.settings).map_err(all)?),
                    };
                    grid.cell(Some(&workload.summary(budget)));
                }
                Err(errors) => {
                    refused.get_or_insert_with(|| all(errors));
                    grid.cell(None);
                }
            }
        }
    }
    match refused {
        Some(problems) if budget.is_none() => Err(problems),
        _ => Ok(grid),
    }
}

/// A device like the one that is asked about, or like any, with other memory.
fn with_memory(like: Option<&DeviceSpec>, vram: f64, ram: f64) -> Result<DeviceSpec, Problems> {
    let described = || from_flags(vram, Some(ram), None, None).map_err(all);
    let Some(like) = like else { return described() };
    let bytes = |what: &str, gib: f64| gib_to_bytes(what, gib).map_err(|error| all(vec![error]));
    Ok(DeviceSpec {
        nominal: Some(bytes("`vramGiB`", vram)?),
        reported: None,
        usable: None,
        policy: None,
        host_memory: Some(bytes("`ramGiB`", ram)?),
        partitions: Vec::new(),
        ..like.clone()
    })
}

fn memory(asking: &Asking, limits: &Limits, vram: &[f64], ram: &[f64]) -> Result<Grid, Problems> {
    sized(vram.len(), ram.len())?;
    let (example, overrides) = (asking.example()?, asking.overrides());
    let question = asking.question(example, &limits.asked, &overrides);
    let workload = question.evaluate(&asking.subject.request, false).map_err(all)?;
    let mut grid = Grid::new(vram.len(), ram.len());
    for device_gib in vram {
        for host_gib in ram {
            let device = with_memory(asking.device.as_deref(), *device_gib, *host_gib)?;
            let question = Question { device: Some(&device), ..question };
            let budget = question.budget(&workload.settings).map_err(all)?;
            grid.cell(Some(&workload.summary(&budget)));
        }
    }
    Ok(grid)
}
