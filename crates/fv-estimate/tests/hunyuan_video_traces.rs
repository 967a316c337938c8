//! The HunyuanVideo rules against traces of the classes.

mod events;

use fv_estimate::hunyuan_video::geometry::{Dit, Latent};
use fv_estimate::hunyuan_video::transformer::Forward;
use fv_estimate::modules::residency::Streams;
use fv_estimate::program::Builder;
use fv_estimate::settings::Attention;

#[test]
fn transformers() {
    let dit = Dit { hidden: 3072, ffn: 12288, heads: 24, patch: 2, dual: 2, single: 2 };
    for (name, batch, size, act) in [("/tmp/hy1", 1, [544, 960, 61], 2), ("/tmp/hy2", 2, [320, 512, 17], 2), ("/tmp/hy3", 1, [320, 512, 61], 4)] {
        let forward = Forward { dit, latent: Latent::of(batch, size), text_tokens: 256, act, attention: Attention::Efficient };
        let mut p = Builder::new(false);
        let _ = forward.emit(&mut p, &mut Streams::whole());
        let program = p.finish().expect("a program");
        let text = std::fs::read_to_string(format!("{name}.csv")).unwrap();
        events::compare(name, &program.events(), &events::trace(&text));
    }
}
