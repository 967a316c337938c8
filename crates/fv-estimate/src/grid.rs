//! Plans over a grid of capacities: rows of host memory, columns of device memory.

use std::ops::RangeInclusive;

use fv_spec::estimate::Reason;
use fv_spec::family::ComponentType;
use fv_spec::plan::{Placement, Plan, PolicyName, Tier};

use crate::error::{InputError, quoted};

/// More cells than this are refused: a picture of them says nothing, and a table of them fits no screen.
pub const MOST_CELLS: u64 = 1_000_000;

/// Capacities of either kind, as far as anybody would believe them.
const BELIEVED_MILLI_GIB: RangeInclusive<u64> = 1..=1_000_000_000;

/// GiB in thousandths, so that `8.5` is exact and capacities are written as they were given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MilliGib(u64);

impl MilliGib {
    /// The nearest byte.
    pub fn bytes(self) -> u64 {
        let bytes = ((u128::from(self.0) << 30) + 500) / 1000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Reads a plain decimal number with at most three decimals.
    ///
    /// # Errors
    /// In words, when it is something else, or not between 0.001 and 1,000,000.
    pub fn read(text: &str) -> Result<Self, String> {
        let refuse = || format!("{} is no number of GiB such as 8 or 10.5, with at most three decimals", quoted(text));
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 3 || text.ends_with('.') {
            return Err(refuse());
        }
        let thousandths = format!("{part:0<3}");
        let milli = whole.parse::<u64>().ok().and_then(|whole| whole.checked_mul(1000)).zip(thousandths.parse::<u64>().ok());
        let milli = milli.and_then(|(whole, part)| whole.checked_add(part));
        let believed = milli.filter(|milli| BELIEVED_MILLI_GIB.contains(milli));
        believed.map(Self).ok_or_else(|| format!("{} GiB lies outside 0.001 to 1000000", quoted(text)))
    }
}

impl std::fmt::Display for MilliGib {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (whole, part) = (self.0 / 1000, self.0 % 1000);
        if part == 0 {
            return write!(f, "{whole}");
        }
        write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0'))
    }
}

/// Capacities from one to another, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    first: MilliGib,
    last: MilliGib,
}

impl Span {
    /// Reads `8..32`, or one capacity.
    ///
    /// # Errors
    /// In words, when it is something else or runs backwards.
    pub fn read(text: &str) -> Result<Self, String> {
        let (first, last) = match text.split_once("..") {
            Some(("", _) | (_, "")) => return Err(format!("{} lacks an end; write a range as 8..32", quoted(text))),
            Some((first, last)) => (MilliGib::read(first)?, MilliGib::read(last)?),
            None => (MilliGib::read(text)?, MilliGib::read(text)?),
        };
        if first > last {
            return Err(format!("{} runs backwards; did you mean {last}..{first}?", quoted(text)));
        }
        Ok(Self { first, last })
    }

    fn count(self, step: MilliGib) -> u64 {
        (self.last.0 - self.first.0) / step.0.max(1) + 1
    }

    fn points(self, step: MilliGib) -> Vec<MilliGib> {
        (0..self.count(step)).map(|place| MilliGib(self.first.0 + place * step.0)).collect()
    }
}

/// The capacities of a grid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axes {
    /// Device memory: columns.
    pub vram: Vec<MilliGib>,
    /// Host memory: rows.
    pub ram: Vec<MilliGib>,
}

impl Axes {
    /// Every combination of two ranges.
    ///
    /// # Errors
    /// When there are more than [`MOST_CELLS`].
    pub fn new(vram: Span, ram: Span, step: MilliGib) -> Result<Self, InputError> {
        let cells = u128::from(vram.count(step)) * u128::from(ram.count(step));
        if cells > u128::from(MOST_CELLS) {
            let message =
                format!("the grid would have {cells} cells, and at most {MOST_CELLS} are planned: take shorter ranges or a larger --step");
            return Err(InputError::new("too-many-cells", message));
        }
        Ok(Self { vram: vram.points(step), ram: ram.points(step) })
    }
}

/// What a plan says of one combination of capacities.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell {
    /// There is a plan.
    Planned {
        /// Blocks of transformers that stay on the device.
        resident_blocks: u64,
        /// Whether others are read from disk at every step.
        disk_streaming: bool,
        /// Forecast of one step at full size.
        step_ns: Option<u64>,
        /// How it is computed on our own runtime.
        way: Option<Way>,
    },
    /// It does not fit.
    Refused,
    /// Whether it fits is not known.
    Unknown,
}

/// How a plan of the policy `optimal` computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Way {
    /// Blocks of transformers on the device.
    pub resident_blocks: u64,
    /// Blocks of transformers in page-locked host memory.
    pub pinned_blocks: u64,
    /// Blocks of transformers on disk.
    pub disk_blocks: u64,
    /// Places on the device for blocks that do not live there.
    pub slots: u32,
    /// Attention heads that are computed together.
    pub head_group: u32,
    /// Rows of a chunk of the projections.
    pub projection_chunk: u32,
    /// Rows of a chunk of the feed-forward layer.
    pub feed_forward_chunk: u32,
    /// Whether attention's operands are kept in host memory.
    pub outputs_on_host: bool,
    /// Whether the residual stream is.
    pub residual_on_host: bool,
    /// Whether the video is decoded in tiles.
    pub tiled: bool,
}

impl Way {
    /// That of a plan, where it says how transformers compute.
    pub fn of(plan: &Plan) -> Option<Self> {
        let compute = plan.passes.last()?.compute.first()?;
        let blocks = |tier: Tier| transformers(plan).map(|placement| placement.count(tier)).sum();
        Some(Self {
            resident_blocks: blocks(Tier::Device),
            pinned_blocks: blocks(Tier::Pinned),
            disk_blocks: blocks(Tier::Disk),
            slots: compute.slots,
            head_group: compute.head_group,
            projection_chunk: compute.projection_chunk,
            feed_forward_chunk: compute.feed_forward_chunk,
            outputs_on_host: compute.outputs_on_host,
            residual_on_host: compute.residual_on_host,
            tiled: plan.decoders.iter().any(|decoder| decoder.tiles.is_some()),
        })
    }
}

fn transformers(plan: &Plan) -> impl Iterator<Item = &Placement> {
    plan.placements.iter().filter(|placement| placement.component.component_type() == ComponentType::Transformer)
}

impl Cell {
    /// What a plan comes to.
    pub fn of(plan: &Plan) -> Self {
        let transformers = || transformers(plan);
        Self::Planned {
            resident_blocks: transformers().map(|placement| placement.count(Tier::Device)).sum(),
            disk_streaming: transformers().any(|placement| placement.disk_streaming),
            // The last pass is the one at full size.
            step_ns: plan.forecast.as_ref().and_then(|forecast| forecast.passes.last()).map(|pass| pass.step.value_ns),
            way: Some(plan).filter(|plan| plan.policy == PolicyName::Optimal).and_then(Way::of),
        }
    }
}

/// A grid of plans.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// Its capacities.
    pub axes: Axes,
    /// Row by row: host memory from the least to the most, in each row device memory likewise.
    pub cells: Vec<Cell>,
    /// Why cells have no time, where a plan says.
    pub unforecast: Vec<Reason>,
    /// Why cells are unknown.
    pub unknown: Vec<Reason>,
    /// Whose rules decided.
    pub policy: PolicyName,
}

impl Grid {
    /// Why cells are unknown, in a line; empty where none is.
    pub fn why_unknown(&self) -> String {
        self.unknown.iter().map(|reason| format!("{} [{}]", reason.message, reason.code)).collect::<Vec<_>>().join("; ")
    }

    /// Plans every combination, by the published policy unless it is said otherwise. `plan` is given device and host memory in bytes.
    ///
    /// # Errors
    /// The first that `plan` gives.
    pub fn new<E>(axes: Axes, mut plan: impl FnMut(u64, u64) -> Result<Cell, E>) -> Result<Self, E> {
        let mut cells = Vec::with_capacity(axes.vram.len().saturating_mul(axes.ram.len()));
        for ram in &axes.ram {
            for vram in &axes.vram {
                cells.push(plan(vram.bytes(), ram.bytes())?);
            }
        }
        Ok(Self { axes, cells, unforecast: Vec::new(), unknown: Vec::new(), policy: PolicyName::Freevideo })
    }

    /// Rows with their host memory.
    pub fn rows(&self) -> impl Iterator<Item = (MilliGib, &[Cell])> {
        self.axes.ram.iter().copied().zip(self.cells.chunks(self.axes.vram.len().max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_are_read_and_written_exactly() {
        for (text, bytes) in [("8", 8 << 30), ("10.5", 21 << 29), ("0.001", 1_073_742), ("15.9", 17_072_495_002)] {
            let read = MilliGib::read(text).expect("a number");
            assert_eq!((read.bytes(), read.to_string().as_str()), (bytes, text));
        }
        assert_eq!(MilliGib::read("8.50").expect("a number").to_string(), "8.5");
        for text in [
            "",
            ".",
            "8.",
            ".5",
            "-8",
            "+8",
            "8e3",
            "1e400",
            "nan",
            "inf",
            "8,5",
            "0x8",
            "8.0001",
            "0",
            "0.000",
            "1000000.001",
            "99999999999999999999",
        ] {
            assert!(MilliGib::read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ranges_that_run_backwards_or_lack_an_end_are_refused() {
        let span = Span::read("8..32").expect("a range");
        assert_eq!(span.points(MilliGib(1000)).len(), 25);
        assert_eq!(span.points(MilliGib(5000)).last().map(ToString::to_string).as_deref(), Some("28"));
        assert_eq!(Span::read("16").expect("one").points(MilliGib(1000)).len(), 1);
        for (text, want) in [
            ("32..8", "did you mean 8..32?"),
            ("..8", "lacks an end"),
            ("8..", "lacks an end"),
            ("", "no number"),
            ("8..x", "no number"),
            ("8...9", "no number"),
        ] {
            let message = Span::read(text).expect_err(text);
            assert!(message.contains(want), "{text}: {message}");
        }
    }

    #[test]
    fn a_grid_without_end_is_refused_with_its_number() {
        let span = Span::read("0.001..1000000").expect("a range");
        let error = Axes::new(span, span, MilliGib(1)).expect_err("too many");
        assert!(error.message.contains("1000000000000000000 cells"), "{error}");
        let wide = Span::read("1..1000").expect("a range");
        assert_eq!(Axes::new(wide, wide, MilliGib(1000)).expect("as many as are allowed").ram.len(), 1000);
    }
}
