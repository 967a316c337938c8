//! The policy against its published capacity grid and against vectors of decisions: every cell and every column.

mod planning;

use fv_estimate::planner::freevideo::table;
use fv_spec::plan::Tier;

use planning::{linux, planned, planner, text, transformer};

#[test]
fn every_cell_of_the_capacity_grid() {
    let grid = text("tests/data/freevideo_capacity_grid.csv");
    for id in ["minimax-h3", "fasth3"] {
        let planner = planner(id);
        let mut cells = 0;
        for line in grid.lines().skip(1) {
            let cells_of: Vec<&str> = line.split(',').collect();
            let [vram, ram, _, resident, streams] = cells_of[..] else { panic!("{line}") };
            let plan = planned(&planner, &linux(vram.parse().expect("GiB"), ram.parse().expect("GiB")));
            let placement = transformer(&plan);
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
