use fv_estimate::{
    program::*,
    settings::*,
    wan::{diffusers_dit::Forward, diffusers_vae::Coder, geometry::*},
};
use std::time::Instant;
fn main() {
    let dit = Dit {
        hidden: 1536,
        ffn: 8960,
        heads: 12,
        blocks: 30,
        patch: [1, 2, 2],
        in_channels: 16,
        out_channels: 16,
        text: 4096,
        image_branch: false,
        sparse_gate: false,
    };
    let lat = Latent { batch: 1, frames: 21, height: 60, width: 104 };
    let f = Forward {
        dit,
        latent: lat,
        text_tokens: 512,
        image_tokens: 0,
        act: 2,
        keep_fp32: false,
        attention: Attention::Cudnn,
        per_token_timesteps: false,
    };
    let c = Coder { vae: Vae::WAN21, act: 4, workspace: true };
    let n = 2000;
    for details in [false, true] {
        let t = Instant::now();
        for _ in 0..n {
            let mut b = Builder::new(details);
            let y = f.emit(&mut b);
            b.release(y);
            let y = c.decode(&mut b, lat);
            b.release(y);
            std::hint::black_box(b.finish());
        }
        println!("build details={details} {:?}", t.elapsed() / n);
    }
    let mut b = Builder::new(false);
    let y = f.emit(&mut b);
    b.release(y);
    let y = c.decode(&mut b, lat);
    b.release(y);
    let p = b.finish().unwrap();
    println!("ops {}", p.len());
    for (m, s) in [
        (Model::None, Sampling::Ends),
        (Model::None, Sampling::All),
        (Model::Caching(Default::default()), Sampling::Ends),
        (Model::Caching(Default::default()), Sampling::All),
    ] {
        let t = Instant::now();
        for _ in 0..n / 10 {
            std::hint::black_box(p.run(&m, s));
        }
        println!("{m:?} {s:?} {:?}", t.elapsed() / (n / 10));
    }
}
