//! A peer of the estimator: llmfit-core's analysis of every model in its own catalog, on a described RTX 4090 with 24 GB.
//!
//! Prints how many models there are and nanoseconds a model: of the first pass, of the fastest, of the one in the middle.

use std::{hint::black_box, time::Instant};

use llmfit_core::{GpuBackend, ModelDatabase, ModelFit, SystemSpecs, hardware::GpuInfo};

const PASSES: usize = 7;
const NAME: &str = "NVIDIA GeForce RTX 4090";
const VRAM_GB: Option<f64> = Some(24.0);

fn main() {
    let database = ModelDatabase::embedded();
    let models = database.get_all_models();
    let gpu = GpuInfo {
        name: NAME.to_owned(),
        vram_gb: VRAM_GB,
        backend: GpuBackend::Cuda,
        count: 1,
        unified_memory: false,
        free_vram_gb: None,
        free_vram_per_card_gb: Vec::new(),
        pcie_links: Vec::new(),
    };
    let system = SystemSpecs {
        total_ram_gb: 64.0,
        available_ram_gb: 56.0,
        total_cpu_cores: 16,
        cpu_name: "x86-64".to_owned(),
        has_gpu: true,
        gpu_vram_gb: VRAM_GB,
        total_gpu_vram_gb: VRAM_GB,
        gpu_available_gb: None,
        gpu_name: Some(NAME.to_owned()),
        gpu_count: 1,
        unified_memory: false,
        backend: GpuBackend::Cuda,
        gpus: vec![gpu],
        cluster_mode: false,
        cluster_node_count: 0,
    };
    let pass = |_| {
        let start = Instant::now();
        for model in models {
            drop(black_box(ModelFit::analyze(black_box(model), &system)));
        }
        start.elapsed().as_secs_f64() * 1e9 / models.len() as f64
    };
    let first = pass(0);
    let mut times: Vec<f64> = (0..PASSES).map(pass).collect();
    times.sort_by(f64::total_cmp);
    println!("{}\t{first:.1}\t{:.1}\t{:.1}", models.len(), times[0], times[PASSES / 2]);
}
