use fv_estimate::{budget::*, device::DeviceSpec, estimate::Workload, resolve::Overrides};
use fv_spec::{compiled::*, request::PartialRequest};
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let read = |p: &str| std::fs::read_to_string(format!("/work/main/crates/fv-data/data/{p}")).unwrap();
    let model: Model = serde_json::from_str(&read(&format!("models/{}.json", a[1]))).unwrap();
    let hw: HardwareFile = serde_json::from_str(&read("hardware.json")).unwrap();
    let rules: RulesFile = serde_json::from_str(&read("rules.json")).unwrap();
    let ex = model.examples.iter().find(|e| e.id == a[2]).unwrap();
    let d = DeviceSpec::from(hw.devices.iter().find(|d| d.id == a[3]).unwrap());
    let t = std::time::Instant::now();
    let w = Workload::evaluate(&model, ex, &PartialRequest::default(), &Overrides::default(), &rules, true).unwrap();
    println!("evaluate {:?}", t.elapsed());
    let f = fixed_costs(&rules, &d, w.settings.runtime);
    let b = budget(Some(&d), &Asked::default(), &f).unwrap();
    let e = w.estimate(Some(&d.id), &b);
    println!("evaluate {:?}", t.elapsed());
    println!("{:?} {:?} {:?}", e.status, e.reasons, e.capacity_gib);
    for s in &e.stages {
        println!("== {} {:?} host {:?} largest {:?}", s.name, s.peak_bytes, s.host, s.largest_allocation);
        for p in &s.phases {
            println!("     {} x{} {:.3}", p.name, p.repeat, p.allocated_bytes as f64 / 1073741824.);
        }
        for b in s.buffers.iter().take(8) {
            println!("   {:.3} {} {} x{} {}", b.bytes as f64 / 1073741824., b.name, b.formula, b.count, b.rule);
        }
    }
    println!("{:?}", e.notes);
}
