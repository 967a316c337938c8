//! The smallest allocator cap under which a component completes: it lies where an estimate says `uncertain`.

use std::collections::BTreeMap;

use fv_data::Catalog;
use fv_spec::authored::Runtime;
use serde::{Deserialize, Serialize};

use super::derive::{Why, derive};
use super::rows::{Measured, Row};
use super::{CAPS, Spreads};

#[derive(Deserialize)]
struct File {
    smallest_allocator_cap_that_completes: BTreeMap<String, Found>,
}

#[derive(Deserialize)]
struct Found {
    peak_alloc: u64,
    peak_reserved: u64,
    min_cap_ok: u64,
    max_cap_oom: u64,
}

/// One bracketed threshold.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cap {
    /// As the measurement names it.
    pub case: String,
    /// The smallest cap under which it completed.
    pub completes: u64,
    /// The largest under which it ran out of memory.
    pub fails: u64,
    /// The band in which an estimate is `uncertain`: the lowest allocated and the highest reserved peak.
    pub band: Option<[u64; 2]>,
    /// Why there is no band.
    pub why: Option<String>,
}

impl Cap {
    /// Whether both ends of the bracket lie in the band; `None` without one.
    pub fn inside(&self) -> Option<bool> {
        self.band.map(|[low, high]| low <= self.fails && self.completes <= high)
    }
}

/// The measured thresholds against the bands.
///
/// # Errors
/// When the recorded file is not what it should be.
pub fn caps(catalog: &Catalog, spreads: &Spreads) -> Result<Vec<Cap>, String> {
    let file: File = serde_json::from_str(CAPS).map_err(|error| format!("h200_caps.json: {error}"))?;
    let judge = |(case, found): (&String, &Found)| {
        // `wan1.3b dit (480, 832, 81)`: a short name, and the geometry.
        let at = case.find(" (").unwrap_or(case.len());
        let (name, geometry) = (&case[..at], case[at..].trim());
        let (component, stage, suffix) = match name {
            "wan1.3b dit" => ("wan2.1-t2v-1.3b-dit", "denoise_forward", "b1"),
            "wan vae bf16" => ("wan2.1-vae", "decode", ":bfloat16:tile=False"),
            other => (other, "", ""),
        };
        let row = Row {
            file: "h200_caps.json".to_owned(),
            line: 0,
            component: component.to_owned(),
            stage: stage.to_owned(),
            case: format!("{geometry}{suffix}"),
            runtime: Runtime::Diffusers,
            cast: true,
            measured: Measured { base: 0, allocated: found.peak_alloc, reserved: found.peak_reserved, device: 0 },
        };
        let (band, why) = match derive(catalog, &row) {
            Ok(derived) => {
                let peaks = spreads.ends(derived.work).peaks(derived.peaks.tensors, derived.peaks.allocated, derived.peaks.reserved);
                (Some([peaks.allocated.low, peaks.reserved.high]), None)
            }
            Err(Why::NotCovered(why) | Why::Malformed(why)) => (None, Some(why)),
        };
        Cap { case: case.clone(), completes: found.min_cap_ok, fails: found.max_cap_oom, band, why }
    };
    Ok(file.smallest_allocator_cap_that_completes.iter().map(judge).collect())
}
