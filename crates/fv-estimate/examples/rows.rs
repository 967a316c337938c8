use fv_estimate::{
    program::*,
    settings::*,
    wan::{diffusers_dit::Forward, diffusers_vae::Coder, geometry::*},
};
fn dit(d: u64, f: u64, h: u64, l: u64, i: u64, o: u64, img: bool) -> Dit {
    Dit {
        hidden: d,
        ffn: f,
        heads: h,
        blocks: l,
        patch: [1, 2, 2],
        in_channels: i,
        out_channels: o,
        text: 4096,
        image_branch: img,
        sparse_gate: false,
    }
}
fn show(name: &str, b: Builder, base: u64, peak: u64, reserved: u64) {
    let p = b.finish().unwrap();
    let t = p.run(&Model::None, Sampling::Ends);
    let (ca, cr) = {
        let t = p.run(&Model::Caching(Default::default()), Sampling::All);
        (t.phases.iter().map(|k| k.allocated).max().unwrap(), t.phases.iter().map(|k| k.reserved).max().unwrap())
    };
    let ce = {
        let t = p.run(&Model::Caching(Default::default()), Sampling::Ends);
        t.phases.iter().map(|k| k.reserved).max().unwrap()
    };
    let a = t.phases.iter().map(|k| k.allocated).max().unwrap();
    let pc = |x: u64, y: u64| 100. * (x as f64 / y as f64 - 1.);
    println!(
        "{name:50} work {:>12} vs {:>12} {:+.2}% (total {:+.2}%, caching {:+.2}%)  reserved~ {:+.2}% ends {:+.2}%",
        a,
        peak - base,
        pc(a, peak - base),
        pc(a + base, peak),
        pc(ca + base, peak),
        pc(cr + base, reserved),
        pc(ce + base, reserved)
    );
}
fn main() {
    let text = std::fs::read_to_string("/work/shared/facts/h200_diffusers_peaks.csv").unwrap();
    for l in text.lines().skip(1) {
        let (name, rest) = l.split_once(',').unwrap();
        let (stage, rest) = rest.split_once(',').unwrap();
        let (case, nums): (String, &str) = if let Some(r) = rest.strip_prefix('"') {
            let (c, n) = r.split_once('"').unwrap();
            (c.into(), &n[1..])
        } else {
            let (c, n) = rest.split_once(',').unwrap();
            (c.into(), n)
        };
        let n: Vec<u64> = nums.split(',').take(4).map(|x| x.parse().unwrap()).collect();
        let ints: Vec<u64> = case.split(|c: char| !c.is_ascii_digit()).filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
        if !name.starts_with("wan") {
            continue;
        }
        let mut b = Builder::new(true);
        let (h, w, f) = (ints[0], ints[1], ints[2]);
        if name.contains("vae") {
            let act = if case.contains("float32") { 4 } else { 2 };
            let vae = if name.contains("2.2") { Vae::WAN22 } else { Vae::WAN21 };
            let c = Coder { vae, act, workspace: true };
            let lat = Latent::of(&vae, 1, f, h, w);
            for _ in 0..std::env::args().nth(1).map_or(1, |s| s.parse().unwrap()) {
                let y = if case.contains("tile=True") {
                    c.decode_tiled(&mut b, lat, Tiling { tile: [256, 256], stride: [192, 192], temporal: None })
                } else {
                    c.decode(&mut b, lat)
                };
                b.release(y);
            }
        } else {
            if stage.contains("offload") {
                continue;
            }
            let batch = if case.contains("b2") { 2 } else { 1 };
            let (d, img, vae) = match name {
                "wan2.1-t2v-1.3b-dit" => (dit(1536, 8960, 12, 30, 16, 16, false), 0, Vae::WAN21),
                "wan2.1-t2v-14b-dit" => (dit(5120, 13824, 40, 40, 16, 16, false), 0, Vae::WAN21),
                "wan2.1-i2v-14b-dit" => (dit(5120, 13824, 40, 40, 36, 16, true), 257, Vae::WAN21),
                _ => (dit(3072, 14336, 24, 30, 48, 48, false), 0, Vae::WAN22),
            };
            let fw = Forward {
                dit: d,
                latent: Latent::of(&vae, batch, f, h, w),
                text_tokens: 512,
                image_tokens: img,
                act: 2,
                keep_fp32: false,
                attention: Attention::Cudnn,
                per_token_timesteps: false,
            };
            for _ in 0..std::env::args().nth(1).map_or(1, |s| s.parse().unwrap()) {
                let y = fw.emit(&mut b);
                b.release(y);
            }
        }
        show(&format!("{name} {case}"), b, n[0], n[1], n[2]);
    }
}
