use fv_estimate::{
    program::*,
    settings::*,
    wan::{component::*, diffusers_dit::Forward, diffusers_vae::Coder, geometry::*, model::Encoder},
};
use fv_spec::estimate::StageName;
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
fn main() {
    let file = std::env::args().nth(1).unwrap_or("/work/shared/facts/h200_diffusers_peaks.csv".into());
    let own = file.contains("wan/peaks");
    let text = std::fs::read_to_string(&file).unwrap();
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
        if !(name.starts_with("wan") || name.starts_with("umt5") || name.starts_with("clip")) {
            continue;
        }
        let batch = if case.contains("b2") { 2 } else { 1 };
        let act = if case.contains("float32") || case.contains("fp32") { 4 } else { 2 };
        let tiling = case.contains("tile=True").then_some(Tiling { tile: [256, 256], stride: [192, 192], temporal: None });
        let part = if name.starts_with("umt5") {
            Part::Encoder(
                Encoder {
                    parameters: 5_680_910_336,
                    blocks: (24, 192_948_224),
                    hidden: 4096,
                    ffn: 10240,
                    heads: 64,
                    head: 64,
                    gated: true,
                    tokens: 0,
                    geometry: true,
                },
                [batch, 512],
                act,
            )
        } else if name.starts_with("clip") {
            Part::Encoder(
                Encoder {
                    parameters: 630_766_080,
                    blocks: (32, 19_677_440),
                    hidden: 1280,
                    ffn: 5120,
                    heads: 16,
                    head: 80,
                    gated: false,
                    tokens: 257,
                    geometry: true,
                },
                [batch, 257],
                act,
            )
        } else {
            let (h, w, f) = (ints[0], ints[1], ints[2]);
            if name.contains("vae") {
                let vae = if name.contains("2.2") { Vae::WAN22 } else { Vae::WAN21 };
                let c = Coder { vae, act, workspace: true };
                if stage == "encode" {
                    Part::Encode(c, [batch, f, h, w], tiling)
                } else {
                    Part::Decode(c, Latent::of(&vae, batch, f, h, w), tiling)
                }
            } else {
                let (d, img, vae) = match name.trim_end_matches("-cast") {
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
                    keep_fp32: own && !name.contains("cast"),
                    attention: Attention::Cudnn,
                    per_token_timesteps: case.contains("expand"),
                };
                Part::Dit(
                    fw,
                    if stage.contains("offload") {
                        Placement::Streamed { resident: 0, prefetch: 1, group: 1, pinned: true, rest_resident: false }
                    } else {
                        Placement::Resident
                    },
                )
            }
        };
        let p = lower(&part).unwrap();
        let pick = |t: &Timeline| -> (u64, u64, u64) {
            let mut r = (0, 0, 0);
            for (s, k) in p.phases().iter().zip(&t.phases) {
                if s.stage == StageName::Denoising {
                    r.0 = r.0.max(k.allocated);
                    r.1 = r.1.max(k.reserved);
                }
                if s.name == "inputs" {
                    r.2 = k.allocated
                }
            }
            r
        };
        let a = pick(&p.run(&Model::None, Sampling::Ends));
        let c = pick(&p.run(&Model::Caching(Default::default()), Sampling::All));
        let e = pick(&p.run(&Model::Caching(Default::default()), Sampling::Ends));
        let pc = |x: u64, y: u64| 100. * (x as f64 / y as f64 - 1.);
        let extra = n[0] as i64 - c.2 as i64;
        println!(
            "{name:34} {case:32} base {:+7.1} MB  abs {:+.2}% with base {:+.2}% | reserved {:+.2}% ends {:+.2}%  +base {:+.2}%",
            extra as f64 / 1e6,
            pc(c.0, n[1]),
            pc((c.0 as i64 + extra) as u64, n[1]),
            pc(c.1, n[2]),
            pc(e.1, n[2]),
            pc((c.1 as i64 + extra) as u64, n[2])
        );
        let _ = a;
    }
}
