use fv_estimate::{
    program::*,
    settings::Attention,
    wan::{diffusers_dit::Forward, geometry::*},
};
use std::io::Read;
fn trace(name: &str) -> Vec<Event> {
    let f = std::fs::File::open(format!("/work/main/tests/data/allocator/{name}.csv.gz")).unwrap();
    let mut t = String::new();
    flate2::read::GzDecoder::new(f).read_to_string(&mut t).unwrap();
    let mut marks = 0;
    let mut live = std::collections::HashMap::new();
    let mut out = vec![];
    let mut n = 0;
    for l in t.lines().skip(1) {
        let c: Vec<&str> = l.split(',').collect();
        match c[0] {
            "s" => marks += 1,
            "a" => {
                let id = if marks == 5 || (marks == 3 && name.starts_with("vae")) {
                    n += 1;
                    out.push(Event::Alloc(n, c[1].parse().unwrap()));
                    n
                } else {
                    0
                };
                live.insert(c[2].to_string(), id);
            }
            "f" | "c" => {
                let id = live.remove(c[2]).unwrap_or(0);
                if id > 0 {
                    out.push(Event::Free(id));
                }
            }
            _ => {}
        }
    }
    out
}
pub fn compare(a: &[Event], b: &[Event], min: u64, unit: f64) {
    let f = |e: &[Event]| {
        let mut m = std::collections::HashMap::new();
        let mut k = 0;
        let mut o = vec![];
        for x in e {
            match x {
                Event::Alloc(i, s) if *s >= min => {
                    k += 1;
                    m.insert(*i, (k, *s));
                    o.push((true, k, *s));
                }
                Event::Free(i) => {
                    if let Some((k, s)) = m.remove(i) {
                        o.push((false, k, s));
                    }
                }
                _ => {}
            }
        }
        o
    };
    let (a, b) = (f(a), f(b));
    let mut sizes = std::collections::BTreeMap::new();
    println!("program {} trace {}", a.len(), b.len());
    for i in 0..a.len().max(b.len()) {
        let (x, y) = (a.get(i), b.get(i));
        let same = match (x, y) {
            (Some(x), Some(y)) => {
                if x.0 && y.0 && x.2.div_ceil(512) != y.2.div_ceil(512) {
                    *sizes.entry((x.2, y.2)).or_insert(0) += 1;
                }
                x.0 == y.0 && x.1 == y.1 && ((x.2 as f64 / y.2 as f64 - 1.).abs() < 0.2 || x.2 < 300000000)
            }
            _ => false,
        };
        if !same {
            println!("differ at {i}");
            for j in i.saturating_sub(6)..i + 14 {
                println!(
                    "   {:?} {:?}",
                    a.get(j).map(|x| (x.0, x.1, x.2 as f64 / unit, x.2)),
                    b.get(j).map(|x| (x.0, x.1, x.2 as f64 / unit, x.2))
                );
            }
            return;
        }
    }
    println!("EQUAL {sizes:?}");
}
fn main() {
    let which = std::env::args().nth(1).unwrap_or_default();
    if which == "dit" {
        let dit = Dit {
            hidden: 1536,
            ffn: 8960,
            heads: 12,
            blocks: 4,
            patch: [1, 2, 2],
            in_channels: 16,
            out_channels: 16,
            text: 4096,
            image_branch: false,
            sparse_gate: false,
        };
        let f = Forward {
            dit,
            latent: Latent { batch: 1, frames: 21, height: 60, width: 104 },
            text_tokens: 512,
            image_tokens: 0,
            act: 2,
            keep_fp32: false,
            attention: Attention::Cudnn,
            per_token_timesteps: false,
        };
        let mut b = Builder::new(true);
        let y = f.emit(&mut b);
        b.release(y);
        let p = b.finish().unwrap();
        let t = p.run(&Model::None, Sampling::Ends);
        for (s, k) in p.phases().iter().zip(&t.phases) {
            println!("{:24} x{} {:.3}u", s.name, s.repeat, k.allocated as f64 / 32760. / 1536. / 2.);
        }
        compare(&p.events(), &trace("dit4_480x832x81"), 1 << 20, 32760. * 1536. * 2.);
    } else {
        let act = if which.contains("fp32") { 4 } else { 2 };
        let frames = if which.ends_with("x81") { 21 } else { 5 };
        let c = fv_estimate::wan::diffusers_vae::Coder { vae: Vae::WAN21, act, workspace: true };
        let mut b = Builder::new(true);
        let y = c.decode(&mut b, Latent { batch: 1, frames, height: 60, width: 104 });
        b.release(y);
        let p = b.finish().unwrap();
        let u = 96. * 480. * 832. * act as f64;
        for m in [Model::None, Model::Caching(Default::default())] {
            for s in [Sampling::All, Sampling::Ends] {
                let t = p.run(&m, s);
                println!(
                    "{:?} alloc {} reserved {}",
                    s,
                    t.phases.iter().map(|k| k.allocated).max().unwrap(),
                    t.phases.iter().map(|k| k.reserved).max().unwrap()
                );
            }
        }
        let t = p.run(&Model::None, Sampling::All);
        for (s, k) in p.phases().iter().zip(&t.phases) {
            println!("{:24} x{} {:.3}u", s.name, s.repeat, k.allocated as f64 / u);
        }
        println!("ops {} events {}", p.len(), p.events().len());
        compare(&p.events(), &trace(&which), 1 << 20, u);
    }
}
