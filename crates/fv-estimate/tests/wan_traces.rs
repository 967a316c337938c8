//! The Wan rules for diffusers against recorded allocator traces of the classes on an H200: every allocation of at least 1 MiB
//! and every free of one, in order.

use std::collections::HashMap;
use std::io::Read;
use std::path::PathBuf;

use fv_estimate::program::{Builder, Event};
use fv_estimate::settings::Attention;
use fv_estimate::wan::diffusers_dit::Forward;
use fv_estimate::wan::diffusers_vae::Coder;
use fv_estimate::wan::geometry::{Dit, Latent, Vae};

const LARGE: u64 = 1 << 20;

fn read(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/data").join(name);
    let file = std::fs::File::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).expect("a gzip of text");
    text
}

/// The two are equal but for sizes of workspaces: of those that are a tenth of the peak or more the
/// program's are at most 6 % smaller and 30 % larger.
fn check(name: &str, program: &[Event], trace: &[Event]) {
    let peak = |events: &[Event]| {
        let (mut live, mut peak, mut sizes) = (0, 0, HashMap::new());
        for event in events {
            match event {
                Event::Alloc(id, bytes) => {
                    live += bytes;
                    sizes.insert(*id, *bytes);
                }
                Event::Free(id) => live -= sizes[id],
            }
            peak = peak.max(live);
        }
        peak
    };
    let (derived, recorded) = (peak(program), peak(trace));
    assert!(derived.abs_diff(recorded) * 200 <= recorded, "{name}: peaks {derived} and {recorded}");
    for (x, y) in compare(name, program, trace).unwrap_or_else(|difference| panic!("{difference}")) {
        assert!(y * 10 < recorded || (y * 94 <= x * 100 && x * 100 <= y * 130), "{name}: workspace {x}, recorded {y}, peak {recorded}");
    }
}

/// The forward pass of a `wan/s_*.txt.gz` trace.
fn trace(name: &str) -> Vec<Event> {
    let (mut events, mut names, mut next) = (Vec::new(), HashMap::new(), 0);
    for line in read(&format!("wan/s_{name}.txt.gz")).lines() {
        let fields: Vec<&str> = line.split(',').collect();
        match fields[0] {
            "a" => {
                events.push(Event::Alloc(next, fields[1].parse().expect("bytes")));
                names.insert(fields[2].to_owned(), next);
                next += 1;
            }
            "f" => events.extend(names.remove(fields[1]).map(Event::Free)),
            _ => {}
        }
    }
    events
}

/// The large events: allocations numbered anew, frees by that number.
fn large(events: &[Event]) -> Vec<(Option<u64>, usize)> {
    let (mut numbers, mut result, mut count) = (HashMap::new(), Vec::new(), 0);
    for event in events {
        match event {
            Event::Alloc(id, bytes) if *bytes >= LARGE => {
                numbers.insert(*id, count);
                result.push((Some(*bytes), count));
                count += 1;
            }
            Event::Free(id) => result.extend(numbers.remove(id).map(|number| (None, number))),
            Event::Alloc(..) => {}
        }
    }
    result
}

/// Compares program and trace. Workspaces of small convolutions differ, since cuDNN picks other algorithms for them: such sizes
/// may be off, and are returned as (program, trace).
#[expect(clippy::many_single_char_names, reason = "a pair of lists, of sizes and of numbers")]
fn compare(name: &str, program: &[Event], trace: &[Event]) -> Result<Vec<(u64, u64)>, String> {
    let (a, b) = (large(program), large(trace));
    let mut sizes = Vec::new();
    // Encoders are followed by the posterior's own tensors, which the program leaves out.
    for i in 0..if name.contains("_enc_") { a.len() } else { a.len().max(b.len()) } {
        let around = || {
            let show = |list: &[(Option<u64>, usize)]| list[i.saturating_sub(6).min(list.len())..(i + 6).min(list.len())].to_vec();
            format!("{name}: event {i} of {} and {}\nprogram {:?}\ntrace   {:?}", a.len(), b.len(), show(&a), show(&b))
        };
        let (Some((x, m)), Some((y, n))) = (a.get(i), b.get(i)) else { return Err(around()) };
        if m != n || x.is_some() != y.is_some() {
            return Err(around());
        }
        if let (Some(x), Some(y)) = (x, y)
            && x.div_ceil(512) != y.div_ceil(512)
        {
            let freed_at_once = a.get(i + 1) == Some(&(None, *m));
            if !freed_at_once {
                return Err(around());
            }
            sizes.push((*x, *y));
        }
    }
    Ok(sizes)
}

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
        let mut p = Builder::new(false);
        let prediction = forward.emit(&mut p);
        let _ = prediction;
        let program = p.finish().expect("a program");
        check(name, &program.events(), &trace(name));
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
        let mut p = Builder::new(false);
        let latent = Latent::of(&vae, batch, size[2], size[0], size[1]);
        let output = if encode { coder.encode(&mut p, batch, size[2], size[0], size[1]) } else { coder.decode(&mut p, latent) };
        let _ = output;
        let program = p.finish().expect("a program");
        check(name, &program.events(), &trace(name));
    }
}
