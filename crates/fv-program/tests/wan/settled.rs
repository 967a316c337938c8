//! What is settled is within the budgets, what parts hand to each other included.

use fv_program::optimal::Budgets;
use fv_program::rates::Rates;
use fv_program::synthetic::EVEN;
use fv_program::wan::options::{Options, Unsettled, Unsolved};
use fv_program::wan::{planned, tiny};
use fv_spec::plan::Precision;
use fv_spec::program::Tier;

use crate::published::{self, Published};

const RATES: Rates = Rates { launch_ns: 1_000, copy_ns: 1_000, ..EVEN };

/// The fastest way may take more operations than are written out; another one is taken then. Decoding is whole here: tiles are not counted
/// when ways are left out.
#[test]
fn more_memory_never_makes_a_program_too_long() {
    let Published { model, mut request } = published::all().into_iter().find(|known| known.model.id == "wan21-t2v-14b").expect("there");
    let (rates, mut found) = (published::rates(published::MIDDLE), Vec::new());
    for frames in [325, 401, 801] {
        request.frames = frames;
        let mut options = Options::new(&model, &request, published::BF16, &rates).expect("rates are known");
        let written = |gib: u64| {
            let budgets = Budgets { device_bytes: gib << 30, host_bytes: 64 << 30, per_pinned_gib_bytes: 2 << 20 };
            let chosen = options.solve(&budgets).ok()?;
            Some(options.written_out(&options.choices(&chosen)).is_ok())
        };
        let cases: Vec<Option<bool>> = (2..48).map(written).collect();
        assert!(cases.is_sorted(), "{frames} frames: {cases:?}");
        found.extend(cases);
    }
    assert!([None, Some(true)].iter().all(|case| found.contains(case)), "{found:?}");
}

#[test]
fn a_settled_program_is_within_both_budgets() {
    let formats = planned::formats(Precision::Fp32).expect("covered");
    let (mut settled, mut short) = (0, 0);
    for (model, request) in [(tiny::dense(), tiny::request()), (tiny::sparse(), tiny::distilled()), (tiny::two_experts(), tiny::request())]
    {
        for device_kib in [6_200, 6_300, 7_000, 8_200, 9_000] {
            for host_kib in [500, 727, 1_000, 2_000, 2_600] {
                let limit = Budgets { device_bytes: device_kib << 10, host_bytes: host_kib << 10, per_pinned_gib_bytes: 2 << 20 };
                let mut options = Options::new(&model, &request, formats, &RATES).expect("rates are known");
                let found = match options.settle(&limit) {
                    Ok(found) => found,
                    Err(Unsettled::Unsolved(Unsolved::Part(..))) => {
                        short += 1;
                        continue;
                    }
                    Err(other) => panic!("{} with {device_kib} and {host_kib} KiB: {other:?}", model.id),
                };
                settled += 1;
                let bytes = |name: &str, tier: Tier| -> u64 {
                    let regions = found.program.regions.iter();
                    regions.filter(|region| region.name == name && region.tier == tier).map(|region| region.bytes).sum()
                };
                for part in &found.layout.taken {
                    let name = part.role.word();
                    let host = bytes(name, Tier::Pinned) + bytes("request", Tier::Pinned);
                    assert_eq!((part.device_bytes, part.host_bytes), (bytes(name, Tier::Device), host), "{name}");
                    assert!(host <= limit.host_bytes, "{name}: {host} of {}", limit.host_bytes);
                    assert!(part.device_bytes + limit.registered(host) <= limit.device_bytes, "{name}");
                }
            }
        }
    }
    assert!(settled > 10 && short > 10, "{settled} settled, {short} short");
}
