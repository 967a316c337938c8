//! Which fitted coefficients the rules read, by id, and as what. A file of coefficients is held against this: one that nothing
//! reads, or that says another unit, rule or runtime than it is read with, would count for nothing without a word.

use fv_spec::authored::Runtime;

use crate::device::{BACKENDS, architecture};
use crate::family::FAMILIES;
use crate::forecast::{freevideo, roofline};
use crate::spread::Work;

/// The ends of a spread.
pub const SPREAD_ENDS: [&str; 3] = ["allocated-high", "reserved-low", "reserved-high"];

/// The parts of a fixed cost: the first three count together alone.
const COST_PARTS: [&str; 5] = ["low", "value", "high", "per-pinned-gib", "system"];

/// Coefficients of times that hold for all families, and their units.
const TIMES_OF_ALL: [(&str, &str); 8] = [
    ("attention-efficiency", "share"),
    ("extrapolated-high", "ratio"),
    ("extrapolated-low", "ratio"),
    ("host-seconds", "s"),
    ("link-efficiency", "share"),
    ("product-efficiency", "share"),
    ("scaled-high", "ratio"),
    ("scaled-low", "ratio"),
];

/// Those of one family.
const TIMES_OF_FAMILY: [(&str, &str); 7] = [
    ("attention-efficiency", "share"),
    ("decode-high", "ratio"),
    ("decode-low", "ratio"),
    ("decode-passes", "moves"),
    ("high", "ratio"),
    ("low", "ratio"),
    ("passes", "moves"),
];

/// Those of `FreeVideo`'s law.
const TIMES_OF_FREEVIDEO: [(&str, &str); 29] = [
    ("bf16-attention-efficiency", "share"),
    ("decoder-efficiency", "share"),
    ("decoder-passes", "moves of a row in a block"),
    ("disk-rate", "GB/s"),
    ("disk-rate-high", "GB/s"),
    ("disk-rate-low", "GB/s"),
    ("encoder-bytes", "bytes"),
    ("exposed-copies", "share"),
    ("extrapolated-high", "ratio"),
    ("extrapolated-low", "ratio"),
    ("group-passes", "moves of the residual stream"),
    ("hidden-reads", "share"),
    ("host-rate", "GB/s"),
    ("kept-bytes", "bytes"),
    ("kept-bytes-unpinned", "bytes"),
    ("link-efficiency", "share"),
    ("measured-disk-high", "ratio"),
    ("measured-disk-low", "ratio"),
    ("measured-high", "ratio"),
    ("measured-low", "ratio"),
    ("narrow-group-passes", "moves of the residual stream"),
    ("passes", "moves of the residual stream"),
    ("pin-seconds-per-gib", "s/GiB"),
    ("product-efficiency", "share"),
    ("recompute", "share"),
    ("sage-attention-efficiency", "share"),
    ("sage-attention-elsewhere", "ratio"),
    ("scaled-high", "ratio"),
    ("scaled-low", "ratio"),
];

/// How a coefficient is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// The unit that its value is taken in.
    pub unit: &'static str,
    /// The rule that reads it.
    pub rule: String,
    /// The runtime that it holds for; `None` where it is a matter of the device and any may have measured it.
    pub runtime: Option<Runtime>,
}

/// Coefficients that are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// How their ids begin.
    pub prefix: String,
    /// The rest of each id, and its unit.
    pub names: Vec<(&'static str, &'static str)>,
    /// The rule that reads them.
    pub rule: String,
    /// The runtime that they hold for.
    pub runtime: Runtime,
    /// Whether they are the ends of a spread, of which some may be missing.
    pub spread: bool,
}

/// All coefficients that are read, but for fixed costs, of which each class of devices may have some.
pub fn groups() -> Vec<Group> {
    let mut groups = vec![
        Group {
            prefix: roofline::PREFIX.to_owned(),
            names: TIMES_OF_ALL.to_vec(),
            rule: Runtime::Diffusers.word().to_owned(),
            runtime: Runtime::Diffusers,
            spread: false,
        },
        Group {
            prefix: freevideo::PREFIX.to_owned(),
            names: TIMES_OF_FREEVIDEO.to_vec(),
            rule: "minimax_h3".to_owned(),
            runtime: Runtime::FreeVideo,
            spread: false,
        },
    ];
    for family in FAMILIES {
        let group = |prefix: String, names: Vec<(&'static str, &'static str)>, runtime: Runtime, spread: bool| Group {
            prefix,
            names,
            rule: family.id().to_owned(),
            runtime,
            spread,
        };
        groups.push(group(roofline::prefix(family.id()), TIMES_OF_FAMILY.to_vec(), Runtime::Diffusers, false));
        for runtime in family.runtimes() {
            for work in [Work::Plain, Work::Vae] {
                let prefix = format!("spread-{}-{}-{}", family.id(), runtime.word(), work.infix());
                groups.push(group(prefix, SPREAD_ENDS.map(|end| (end, "ratio")).to_vec(), *runtime, true));
            }
        }
    }
    groups
}

/// How a coefficient is read. `None`: nothing reads one of this id.
pub fn reading(groups: &[Group], id: &str) -> Option<Reading> {
    if let Some(rest) = id.strip_prefix("fixed-cost-") {
        let part = COST_PARTS.into_iter().find_map(|part| rest.strip_suffix(part)?.strip_suffix('-'))?;
        let (class, runtime) = part.strip_prefix("fv-run-").map_or((part, None), |class| (class, Some(Runtime::FvRun)));
        return is_class(class).then(|| Reading { unit: "bytes", rule: "fixed-cost".to_owned(), runtime });
    }
    groups.iter().find_map(|group| {
        let rest = id.strip_prefix(group.prefix.as_str())?;
        let (_, unit) = group.names.iter().find(|(name, _)| *name == rest)?;
        Some(Reading { unit, rule: group.rule.clone(), runtime: Some(group.runtime) })
    })
}

/// Whether fixed costs may be those of this class of devices: an architecture, a backend, or what was not measured.
fn is_class(class: &str) -> bool {
    let architectural = class.strip_prefix("sm").is_some_and(|digits| {
        let (major, minor) = digits.split_at_checked(digits.len().saturating_sub(1)).unwrap_or_default();
        architecture(&format!("{major}.{minor}")).is_some()
    });
    architectural || class == "other" || BACKENDS.iter().any(|(_, word)| *word == class)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use fv_spec::compiled::RulesFile;

    use super::*;

    fn rules() -> RulesFile {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data/rules.json");
        serde_json::from_str(&std::fs::read_to_string(path).expect("the compiled catalog")).expect("rules")
    }

    /// The lists are those of the laws: the catalog has all of what they name and nothing else.
    #[test]
    fn the_catalog_holds_what_is_read() {
        let (rules, groups) = (rules(), groups());
        for (id, coefficient) in &rules.coefficients {
            let reading = reading(&groups, id).unwrap_or_else(|| panic!("nothing reads {id}"));
            assert_eq!((reading.unit, &reading.rule), (coefficient.unit.as_str(), &coefficient.rule), "{id}");
            assert!(reading.runtime.is_none_or(|runtime| runtime == coefficient.runtime), "{id}");
        }
        for group in groups.iter().filter(|group| !group.spread) {
            for (name, _) in &group.names {
                let id = format!("{}{name}", group.prefix);
                assert!(rules.coefficients.contains_key(&id), "the catalog lacks {id}");
            }
        }
    }

    #[test]
    fn ids_that_nothing_reads() {
        let groups = groups();
        for id in [
            "wan-peak",
            "spread-mochi-difusers-reserved-high",
            "spread-moci-diffusers-reserved-high",
            "spread-wan-diffusers-vae-device-high",
            "spread-mochi-fastvideo-reserved-high",
            "time-wan-diffusers-decode-pases",
            "time-diffusers-",
            "fixed-cost-low",
            "fixed-cost-sm9-low",
            "fixed-cost-smx0-low",
            "fixed-cost-sm90-hihg",
            "fixed-cost-cudda-low",
        ] {
            assert_eq!(reading(&groups, id), None, "{id}");
        }
        for id in ["fixed-cost-sm90-low", "fixed-cost-fv-run-sm121-system", "fixed-cost-mps-per-pinned-gib", "fixed-cost-other-value"] {
            assert!(reading(&groups, id).is_some(), "{id}");
        }
    }
}
