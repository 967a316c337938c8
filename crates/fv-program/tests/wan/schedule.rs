//! Timesteps and sigmas are bit for bit those of the published samplers.

use std::path::Path;

use fv_program::wan::schedule::Table;
use fv_spec::program::{Sampler, Schedule};
use serde_json::Value;

/// Numbers of a tensor in the golden file of samplers.
fn golden(name: &str) -> Vec<f64> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/samplers.safetensors");
    let file = std::fs::read(path).expect("the golden file is there");
    let (length, rest) = file.split_at(8);
    let length = usize::try_from(u64::from_le_bytes(length.try_into().expect("8 bytes"))).expect("a length");
    let (header, data) = rest.split_at(length);
    let header: Value = serde_json::from_slice(header).expect("a header");
    let tensor = &header[name];
    let offset = |at: usize| usize::try_from(tensor["data_offsets"][at].as_u64().expect("an offset")).expect("an offset");
    let bytes = data[offset(0)..offset(1)].chunks(8).map(|bytes| <[u8; 8]>::try_from(bytes).expect("8 bytes"));
    match tensor["dtype"].as_str() {
        Some("F64") => bytes.map(f64::from_le_bytes).collect(),
        #[expect(clippy::cast_precision_loss, reason = "timesteps are small")]
        Some("I64") => bytes.map(|bytes| i64::from_le_bytes(bytes) as f64).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

fn table(sampler: Sampler, steps: u32, shift: f64) -> Table {
    Table::new(&Schedule { sampler, steps, shift, timesteps: Vec::new() })
}

#[test]
fn tables_are_those_of_the_published_samplers() {
    for (sampler, name) in [(Sampler::UniPc, "unipc"), (Sampler::Euler, "euler")] {
        let cases = [("4", 4, 3.0), ("5", 5, 3.0), ("50-shift3", 50, 3.0), ("50-shift5", 50, 5.0), ("50-shift8", 50, 8.0)];
        for (key, steps, shift) in cases {
            let Table { timesteps, sigmas } = table(sampler, steps, shift);
            assert_eq!(sigmas, golden(&format!("{name}{key}.sigmas")), "{name}{key}");
            assert_eq!(timesteps, golden(&format!("{name}{key}.timesteps")), "{name}{key}");
        }
    }
}

#[test]
fn stated_timesteps_find_the_nearest_sigmas() {
    let timesteps = vec![1000, 757, 522];
    let table = Table::new(&Schedule { sampler: Sampler::Dmd, steps: 3, shift: 8.0, timesteps });
    assert_eq!(table.sigmas[..3], golden("dmd.sigmas"));
    assert_eq!((table.timesteps, table.sigmas.len()), (golden("dmd.timesteps"), 4));
}

/// Of 40 steps with shift 12, as published for Wan 2.2, the first expert takes those from 1000 to 875.
#[test]
fn the_first_expert_takes_steps_down_to_the_boundary() {
    let table = table(Sampler::UniPc, 40, 12.0);
    let first = table.steps_of_first(0.875) as usize;
    assert!(table.timesteps[first - 1] >= 875.0 && table.timesteps[first] < 875.0);
    assert_eq!((table.steps_of_first(0.0), table.steps_of_first(1.1)), (40, 0));
}
