//! The Wan rules for diffusers against recorded allocator traces of the classes on an H200: every allocation of at least 1 MiB
//! and every free of one, in order.

mod events;
mod exact;

use exact::check;
use fv_estimate::settings::Attention;
use fv_estimate::wan::diffusers_dit::Forward;
use fv_estimate::wan::diffusers_vae::Coder;
use fv_estimate::wan::geometry::{Dit, Latent, Vae};

fn dit(hidden: u64, ffn: u64, channels: (u64, u64), image_branch: bool) -> Dit {
    Dit {
        hidden,
        ffn,
        heads: hidden / 128,
        blocks: 3,
        patch: [1, 2, 2],
        in_channels: channels.0,
        out_channels: channels.1,
        text: 4096,
        image_branch,
        sparse_gate: false,
    }
}

#[test]
fn transformers() {
    let (small, large) = (dit(1536, 8960, (16, 16), false), dit(5120, 13824, (16, 16), false));
    let image = dit(5120, 13824, (36, 16), true);
    let five = dit(3072, 14336, (48, 48), false);
    let cudnn = Attention::Cudnn;
    for (name, dit, vae, size, batch, act, keep_fp32, attention, image_tokens, per_token) in [
        ("dit1.3b_loaded_480x832x81", small, Vae::WAN21, [480, 832, 81], 1, 2, true, cudnn, 0, false),
        ("dit1.3b_cast_480x832x81", small, Vae::WAN21, [480, 832, 81], 1, 2, false, cudnn, 0, false),
        ("dit1.3b_loaded_352x640x33_b2", small, Vae::WAN21, [352, 640, 33], 2, 2, true, cudnn, 0, false),
        ("dit1.3b_cast_352x640x33_b2", small, Vae::WAN21, [352, 640, 33], 2, 2, false, cudnn, 0, false),
        ("dit1.3b_fp16_352x640x33_b2", small, Vae::WAN21, [352, 640, 33], 2, 2, true, cudnn, 0, false),
        ("dit1.3b_fp32_352x640x33_b2", small, Vae::WAN21, [352, 640, 33], 2, 4, true, Attention::Efficient, 0, false),
        ("dit1.3b_native_352x640x17", small, Vae::WAN21, [352, 640, 17], 1, 2, true, cudnn, 0, false),
        ("dit1.3b_native_flash_352x640x17", small, Vae::WAN21, [352, 640, 17], 1, 2, true, Attention::Flash, 0, false),
        ("dit1.3b_native_efficient_352x640x17", small, Vae::WAN21, [352, 640, 17], 1, 2, true, Attention::Efficient, 0, false),
        ("dit1.3b_native_math_352x640x17", small, Vae::WAN21, [352, 640, 17], 1, 2, true, Attention::Math, 0, false),
        ("dit14b_loaded_480x832x81", large, Vae::WAN21, [480, 832, 81], 1, 2, true, cudnn, 0, false),
        ("dit14b_loaded_720x1280x81", large, Vae::WAN21, [720, 1280, 81], 1, 2, true, cudnn, 0, false),
        ("i2v14b_loaded_480x832x81", image, Vae::WAN21, [480, 832, 81], 1, 2, true, cudnn, 257, false),
        ("ti2v5b_loaded_704x1280x121", five, Vae::WAN22, [704, 1280, 121], 1, 2, true, cudnn, 0, false),
        ("ti2v5b_expand_704x1280x121", five, Vae::WAN22, [704, 1280, 121], 1, 2, true, cudnn, 0, true),
    ] {
        let latent = Latent::of(&vae, batch, size[2], size[0], size[1]);
        let forward = Forward { dit, latent, text_tokens: 512, image_tokens, act, keep_fp32, attention, per_token_timesteps: per_token };
        check(&format!("wan/s_{name}.txt.gz"), |p| forward.emit(p));
    }
}

#[test]
fn vaes() {
    // Not here: tiled decoding and Wan 2.2 in fp32, whose small convolutions take workspaces of other sizes often enough to shift
    // the order of events of 1 MiB. Their peaks are held in the accuracy table.
    for (name, vae, act, size, batch, encode) in [
        ("vae21_dec_bf16_480x832x17", Vae::WAN21, 2, [480, 832, 17], 1, false),
        ("vae21_dec_fp16_480x832x17", Vae::WAN21, 2, [480, 832, 17], 1, false),
        ("vae21_dec_fp32_480x832x17", Vae::WAN21, 4, [480, 832, 17], 1, false),
        ("vae21_dec_bf16_352x640x33", Vae::WAN21, 2, [352, 640, 33], 1, false),
        ("vae21_dec_bf16_720x1280x9", Vae::WAN21, 2, [720, 1280, 9], 1, false),
        ("vae21_dec_bf16_352x640x9_b2", Vae::WAN21, 2, [352, 640, 9], 2, false),
        ("vae21_dec_bf16_480x832x1", Vae::WAN21, 2, [480, 832, 1], 1, false),
        ("vae21_dec_fp32_480x832x1", Vae::WAN21, 4, [480, 832, 1], 1, false),
        ("vae22_dec_bf16_480x832x17", Vae::WAN22, 2, [480, 832, 17], 1, false),
        ("vae22_dec_bf16_704x1280x9", Vae::WAN22, 2, [704, 1280, 9], 1, false),
        ("vae21_enc_fp32_480x832x17", Vae::WAN21, 4, [480, 832, 17], 1, true),
        ("vae21_enc_bf16_480x832x17", Vae::WAN21, 2, [480, 832, 17], 1, true),
        ("vae22_enc_bf16_704x1280x1", Vae::WAN22, 2, [704, 1280, 1], 1, true),
    ] {
        let coder = Coder::diffusers(vae, act);
        let latent = Latent::of(&vae, batch, size[2], size[0], size[1]);
        check(&format!("wan/s_{name}.txt.gz"), |p| {
            if encode { coder.encode(p, batch, size[2], size[0], size[1]) } else { coder.decode(p, latent) }
        });
    }
}
