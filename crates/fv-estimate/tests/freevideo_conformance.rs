//! The policy against its published capacity grid and against vectors of decisions: every cell and every column.

use std::{fs, path::Path};

use fv_estimate::planner::Outcome;
use fv_estimate::planner::freevideo::{Asked, AttentionAsked, Machine, Planner, Pool, Question, table};
use fv_spec::compiled::Model;
use fv_spec::plan::{Architecture, OperatingSystem, Plan, Role, Sourced, Tier};

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn planner(model: &str) -> Planner {
    let model: Model = serde_json::from_str(&text(&format!("crates/fv-data/data/models/{model}.json"))).expect("a model");
    Planner::new(&model).expect("covered")
}

fn plan(planner: &Planner, vram_gib: u64, ram_gib: u64) -> Plan {
    let machine = Machine {
        os: Sourced::given(OperatingSystem::Linux),
        device: None,
        architecture: Some(Sourced::given(Architecture::Hopper)),
        compute_capability: None,
        geforce: None,
        precision: None,
        attention_backends: None,
        attention: AttentionAsked::Auto,
        vram: Some(Pool::given(vram_gib << 30)),
        host: Some(Pool::given(ram_gib << 30)),
    };
    let request = Asked { width: Some(1344), height: Some(768), frames: Some(243), ..Asked::default() };
    let question = Question { request, machine, capacity_trial: false, demonstrated_host_bytes: None };
    match planner.plan(&question).expect("a sound question") {
        Outcome::Planned(plan) => *plan,
        other => panic!("{vram_gib} {ram_gib}: {other:?}"),
    }
}

#[test]
fn every_cell_of_the_capacity_grid() {
    let grid = text("tests/data/freevideo_capacity_grid.csv");
    for id in ["minimax-h3", "fasth3"] {
        let planner = planner(id);
        let mut cells = 0;
        for line in grid.lines().skip(1) {
            let cells_of: Vec<&str> = line.split(',').collect();
            let [vram, ram, _, resident, streams] = cells_of[..] else { panic!("{line}") };
            let plan = plan(&planner, vram.parse().expect("GiB"), ram.parse().expect("GiB"));
            let placement = plan.placements.iter().find(|placement| placement.component == Role::Transformer).expect("a transformer");
            let found = (placement.count(Tier::Device).to_string(), u8::from(placement.disk_streaming).to_string());
            assert_eq!(found, (resident.to_owned(), streams.to_owned()), "{line}");
            assert!(placement.disk_streaming || placement.count(Tier::Disk) == 0, "{line}");
            cells += 1;
        }
        assert_eq!(cells, 313);
    }
}

/// Byte for byte, refused rows with their shortfalls included.
#[test]
fn every_column_of_the_vectors() {
    let vectors = text("tests/data/freevideo_plan_vectors.csv");
    let planner = planner("minimax-h3");
    let mut lines = vectors.lines();
    let header: Vec<&str> = lines.next().expect("a header").split(',').collect();
    assert!(header.iter().copied().eq(table::GIVEN.into_iter().chain(table::DECIDED)));
    let columns = table::Columns::read(header).expect("the columns");
    let mut rows = 0;
    for line in lines {
        let fields: Vec<&str> = line.split(',').collect();
        let row = table::row(&planner, &columns, &fields).expect("a sound row");
        assert_eq!(row.join(","), line);
        rows += 1;
    }
    assert_eq!(rows, 700);
}
