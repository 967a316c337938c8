//! What diffusers makes of its settings.

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::estimate::Provenance;
use fv_spec::request::Request;
use serde_json::{Value, json};

use super::book::{Book, Effect, Key, Kind, Meaning, library_environment, nearest};
use super::{Context, InputError, allocator, attention_word, fastvideo, guidance_word, plain};
use crate::settings::{Attention, Component, Guidance, Placement, Precision, Settings, Tiling};

use Effect::{Applies, Harmless, Unless};
use Kind::{Any, Choice, Flag, Text};

const SIZE: Kind = Kind::Whole { least: 1, most: 16_384 };
const OFF: Effect = Unless(&["false"]);

static KEYS: &[Key] = &[
    Key::new("torch_dtype", &["pipeline.torch_dtype"], Kind::Dtype, Applies),
    Key::new("vae_dtype", &["pipeline.vae_dtype"], Kind::Dtype, Applies),
    Key::new("image_encoder_dtype", &["pipeline.image_encoder_dtype"], Kind::Dtype, Applies),
    // Quantised while it is loaded: what is packed, and with which scales, is a matter of the library that does it.
    Key::new("quantization_config", &["pipeline.quantization_config"], Any, Unless(&["{}"])),
    Key::new("model_cpu_offload", &["pipeline.model_cpu_offload"], Flag, Applies),
    Key::new("sequential_cpu_offload", &["pipeline.sequential_cpu_offload"], Flag, Applies),
    Key::new("group_offload", &["pipeline.group_offload"], Any, Applies),
    Key::new(
        "num_blocks_per_group",
        &["pipeline.num_blocks_per_group", "group_offload_num_blocks_per_group"],
        Kind::Whole { least: 1, most: 100_000 },
        Applies,
    ),
    Key::new("use_stream", &["pipeline.use_stream", "group_offload_use_stream"], Flag, Applies),
    Key::new("low_cpu_mem_usage", &["pipeline.low_cpu_mem_usage"], Flag, Applies),
    // Freed blocks are kept until the stream is through with them.
    Key::new("record_stream", &["pipeline.record_stream"], Flag, OFF),
    Key::new("non_blocking", &["pipeline.non_blocking"], Flag, Harmless),
    Key::new("offload_to_disk_path", &["pipeline.offload_to_disk_path"], Text, Unless(&["\"\""])),
    Key::new("vae_tiling", &["pipeline.vae_tiling"], Flag, Applies),
    Key::new("vae_slicing", &["pipeline.vae_slicing"], Flag, Applies),
    Key::new("tile_sample_min_height", &["pipeline.tile_sample_min_height"], SIZE, Applies),
    Key::new("tile_sample_min_width", &["pipeline.tile_sample_min_width"], SIZE, Applies),
    Key::new("tile_sample_stride_height", &["pipeline.tile_sample_stride_height"], SIZE, Applies),
    Key::new("tile_sample_stride_width", &["pipeline.tile_sample_stride_width"], SIZE, Applies),
    Key::new("attention_backend", &["pipeline.attention_backend"], Text, Applies),
    Key::new("workload_type", &["pipeline.workload_type"], Choice(&["t2v", "i2v", "ti2v", "v2v", "t2i", "i2i"]), Applies),
    Key::new("num_gpus", &["engine.num_gpus"], Kind::Whole { least: 1, most: 1_024 }, Applies),
];

/// Its own names first; what FastVideo alone reads is known and without effect.
pub(super) fn lookup(path: &str) -> Option<Meaning> {
    KEYS.iter()
        .find(|key| key.name == path || key.paths.contains(&path))
        .map(Meaning::Key)
        .or_else(|| fastvideo::lookup(path).map(|_| Meaning::Inert))
        .or_else(|| path.starts_with("pipeline.experimental.").then_some(Meaning::Inert))
}

pub(super) fn names() -> Vec<&'static str> {
    KEYS.iter().flat_map(|key| std::iter::once(key.name).chain(key.paths.iter().copied())).collect()
}

/// How the pipeline is spread over device and host.
#[derive(Clone, Copy)]
enum Offload {
    None,
    Model,
    Sequential,
    Blocks { group: u32, stream: bool, pinned: bool },
    Leaves { pinned: bool },
}

pub(super) fn resolve(context: &Context<'_>, request: Request, mut book: Book) -> Result<(Settings, Request), Vec<InputError>> {
    let attention_from = environment(context, &mut book);
    let wan = context.family() == "wan";

    book.report("runtime", Runtime::Diffusers.word(), Provenance::Authored);
    book.text("workload_type", "t2v");
    let gpu_count = book.count("num_gpus", 1).0;
    if gpu_count > 1 {
        book.unmodelled(&book.written("num_gpus"), "a diffusers pipeline over several GPUs is not modelled");
    }
    for name in ["tp_size", "sp_size", "hsdp_shard_dim"] {
        book.report(name, 1, Provenance::RuntimeDefault);
    }
    let attention = attention(attention_from, &mut book);
    let (offload, offloaded_by) = offload(&mut book);
    if wan && matches!(offload, Offload::Model) {
        let order = Role::ALL.iter().filter(|role| context.component(**role).is_some());
        let mut order: Vec<Role> = order.copied().collect();
        order.sort_by_key(|role| MODEL_ORDER.iter().position(|r| r == role));
        let order = order.iter().map(|role| role.word()).collect::<Vec<_>>().join("->");
        book.report("model_cpu_offload_seq", order, Provenance::RuntimeDefault);
    }
    if context.family() == "minimax_h3" {
        modular(offload, &mut book);
    }
    let components = components(context, offload, offloaded_by, &mut book);
    let tiling = tiling(context, &mut book);
    let vae_slicing = book.flag("vae_slicing", false).0;
    book.derive("feature_cache", wan, Provenance::RuntimeDefault);

    let guidance = guidance(context, &request);
    book.derive("guidance", guidance_word(guidance), Provenance::RuntimeDefault);
    book.derive("guidance_delta_kept", false, Provenance::RuntimeDefault);
    // The pipeline expands the timestep over the tokens with and without an image.
    let per_token_timesteps = context.text_or_image();
    book.derive("per_token_timesteps", per_token_timesteps, Provenance::RuntimeDefault);
    book.derive("fused_rope", false, Provenance::RuntimeDefault);
    book.derive("compile", false, Provenance::RuntimeDefault);
    let pinned_rounding = matches!(offload, Offload::Blocks { pinned: true, .. } | Offload::Leaves { pinned: true });
    book.derive("pinned_rounding", pinned_rounding, offloaded_by);
    book.derive("pinned_host", false, Provenance::RuntimeDefault);
    library_environment(context, false, gpu_count, &mut book);
    let allocator = allocator::resolve(context, None, &mut book);
    book.close(Runtime::Diffusers.word());
    if !book.errors.is_empty() {
        return Err(book.errors);
    }
    let settings = Settings {
        runtime: Runtime::Diffusers,
        gpu_count,
        tensor_parallel: 1,
        sequence_parallel: 1,
        shard: 1,
        components,
        attention,
        fused_rope: false,
        compile: false,
        feature_cache: wan,
        tiling,
        vae_slicing,
        guidance,
        guidance_delta_kept: false,
        per_token_timesteps,
        pinned_rounding,
        pinned_host: false,
        allocator,
        reported: book.reported,
        unknown: book.unknown,
        notes: book.notes,
    };
    Ok((settings, request))
}

/// `model_cpu_offload_seq` of Wan's pipelines.
const MODEL_ORDER: [Role; 7] =
    [Role::TextEncoder, Role::TextEncoder2, Role::ImageEncoder, Role::Transformer, Role::Transformer2, Role::Vae, Role::AudioVae];

/// What the environment says of the attention backend; FastVideo's variables have no effect.
fn environment<'a>(context: &Context<'a>, book: &mut Book) -> Option<(&'a str, Provenance)> {
    let inert: Vec<&str> = context.env.keys().copied().filter(|name| name.starts_with("FASTVIDEO_")).collect();
    if !inert.is_empty() {
        book.note(format!("without effect with diffusers: {}", inert.join(", ")));
    }
    for (name, (text, provenance)) in &context.env {
        if name.starts_with("DIFFUSERS_") && !matches!(*name, "DIFFUSERS_ATTN_BACKEND" | "DIFFUSERS_ATTN_CHECKS" | "DIFFUSERS_VERBOSITY") {
            book.report(name, *text, *provenance);
            book.unmodelled(name, "it is not known here and could change memory");
        }
    }
    context.env.get("DIFFUSERS_ATTN_BACKEND").copied()
}

/// Kernels that exist in diffusers and that no rule models.
const UNMODELLED_ATTENTION: [&str; 19] = [
    "_flash_3_varlen_hub",
    "_flash_varlen_3",
    "_native_npu",
    "_native_xla",
    "_sage_qk_int8_pv_fp16_cuda",
    "_sage_qk_int8_pv_fp16_triton",
    "_sage_qk_int8_pv_fp8_cuda",
    "_sage_qk_int8_pv_fp8_cuda_sm90",
    "aiter_fa2_hub",
    "flash_4_hub",
    "flash_varlen",
    "flash_varlen_hub",
    "flex",
    "sage",
    "sage_blackwell_hub",
    "sage_hub",
    "sage_varlen",
    "xformers",
    "sparge",
];
const MODELLED_ATTENTION: [&str; 9] =
    ["native", "_native_cudnn", "_native_efficient", "_native_flash", "_native_math", "flash", "flash_hub", "_flash_3", "_flash_3_hub"];

fn attention(environment: Option<(&str, Provenance)>, book: &mut Book) -> Attention {
    let default = environment.filter(|_| book.given("attention_backend").is_none());
    let (mut name, mut provenance) = book.text("attention_backend", default.map_or("native", |(text, _)| text));
    let mut written = book.written("attention_backend");
    if let Some((text, by)) = default {
        (name, provenance, written) = (text.to_owned(), by, "DIFFUSERS_ATTN_BACKEND".to_owned());
        if let Some(setting) = book.reported.last_mut() {
            setting.provenance = by;
        }
    }
    let kernel = match name.as_str() {
        "native" => Attention::Sdpa,
        "_native_cudnn" => Attention::Cudnn,
        "_native_efficient" => Attention::Efficient,
        "_native_math" => Attention::Math,
        "_native_flash" | "flash" | "flash_hub" | "_flash_3" | "_flash_3_hub" => Attention::Flash,
        other if UNMODELLED_ATTENTION.contains(&other) => {
            book.unmodelled(&written, &format!("no rule models the attention backend {}", json!(other)));
            Attention::Sdpa
        }
        other => {
            let known: Vec<&'static str> = MODELLED_ATTENTION.into_iter().chain(UNMODELLED_ATTENTION).collect();
            let near = nearest(other, &known);
            let hint = if near.is_empty() { String::new() } else { format!("; did you mean {}?", near.join(", ")) };
            let allowed = MODELLED_ATTENTION.join(", ");
            book.error(
                "invalid-value",
                format!("{written}: found the text {}, allowed: {allowed}, and others that are not modelled{hint}", json!(other)),
            );
            Attention::Sdpa
        }
    };
    book.derive("attention", attention_word(kernel), provenance);
    kernel
}

fn offload(book: &mut Book) -> (Offload, Provenance) {
    let model = book.flag("model_cpu_offload", false);
    let sequential = book.flag("sequential_cpu_offload", false);
    let group = group(book);
    let stream = book.flag("use_stream", false);
    let on_the_fly = book.flag("low_cpu_mem_usage", false).0;
    let exclusive = [
        ("model_cpu_offload", model, "false"),
        ("sequential_cpu_offload", sequential, "false"),
        ("group_offload", (group.0 != "off", group.1), "off"),
    ];
    let chosen: Vec<_> = exclusive.into_iter().filter(|(_, (on, _), _)| *on).collect();
    if chosen.len() > 1 {
        // What was asked for stays, where that is one of them.
        let asked = chosen.iter().filter(|(_, (_, by), _)| *by == Provenance::User).count();
        let others = chosen.iter().filter(|(_, (_, by), _)| asked != 1 || *by != Provenance::User);
        let flags: Vec<String> = others.map(|(name, _, off)| format!("--set {name}={off}")).collect();
        let names: Vec<String> = chosen.iter().map(|(name, ..)| book.written(name)).collect();
        let how = flags.join(if asked == 1 { " " } else { " or " });
        book.error("conflict", format!("{} exclude each other: turn all but one off, with {how}", names.join(" and ")));
    }
    let pinned = stream.0 && !on_the_fly;
    match group.0 {
        "block_level" => {
            let (mut blocks, by) = book.count("num_blocks_per_group", 1);
            if by == Provenance::RuntimeDefault && !stream.0 {
                book.error("missing-value", "group_offload: block_level needs num_blocks_per_group");
            }
            if stream.0 && blocks != 1 {
                book.force("num_blocks_per_group", 1);
                book.note(format!("num_blocks_per_group {blocks} has no effect: with use_stream diffusers moves one block at a time"));
                blocks = 1;
            }
            (Offload::Blocks { group: blocks, stream: stream.0, pinned }, group.1)
        }
        "leaf_level" => (Offload::Leaves { pinned }, group.1),
        _ => {
            for name in ["use_stream", "num_blocks_per_group", "low_cpu_mem_usage"] {
                if book.given(name).is_some() {
                    book.note(format!("{} has no effect: group_offload is off", book.written(name)));
                }
            }
            if sequential.0 {
                (Offload::Sequential, sequential.1)
            } else if model.0 {
                (Offload::Model, model.1)
            } else {
                (Offload::None, model.1)
            }
        }
    }
}

/// A modular pipeline has no hooks of its own but its components manager's.
fn modular(offload: Offload, book: &mut Book) {
    let refused = match offload {
        Offload::Sequential => ("sequential_cpu_offload", "MiniMax H3's modular pipeline has no sequential offloading"),
        Offload::Blocks { .. } | Offload::Leaves { .. } => (
            "group_offload",
            "MiniMax H3's audio VAE refuses group offloading and its text encoder is called below the hook: how such a pipeline runs is not modelled",
        ),
        _ => return,
    };
    let written = book.written(refused.0);
    book.unmodelled(&written, refused.1);
}

/// `off`, `block_level` or `leaf_level`; `false` is off too.
fn group(book: &mut Book) -> (&'static str, Provenance) {
    let given = book.given("group_offload").cloned();
    let (word, provenance) = match given.as_ref().map(|given| (&given.value, given.provenance)) {
        None => ("off", Provenance::RuntimeDefault),
        Some((Value::Bool(false), provenance)) => ("off", provenance),
        Some((value, provenance)) => match value.as_str() {
            Some("off") => ("off", provenance),
            Some("block_level") => ("block_level", provenance),
            Some("leaf_level") => ("leaf_level", provenance),
            _ => {
                let written = book.written("group_offload");
                let found = super::book::found(value);
                book.error("invalid-value", format!("{written}: found {found}, allowed: off, block_level, leaf_level"));
                ("off", provenance)
            }
        },
    };
    book.report("group_offload", word, provenance);
    (word, provenance)
}

fn components(context: &Context<'_>, offload: Offload, offloaded_by: Provenance, book: &mut Book) -> [Option<Component>; 7] {
    let (base, base_by) = book.dtype("torch_dtype", Dtype::Fp32);
    let follows = |book: &mut Book, name: &'static str, default: Dtype, by: Provenance| {
        let (dtype, given) = book.dtype(name, default);
        (dtype, if given == Provenance::RuntimeDefault { by } else { given })
    };
    let vae = follows(book, "vae_dtype", base, base_by);
    let image = follows(book, "image_encoder_dtype", Dtype::Fp32, Provenance::RuntimeDefault);
    let mut out = [None; 7];
    for (slot, role) in out.iter_mut().zip(Role::ALL) {
        if context.component(role).is_none() {
            continue;
        }
        let transformer = matches!(role, Role::Transformer | Role::Transformer2);
        let placement = match offload {
            Offload::None => Placement::Resident,
            Offload::Model => Placement::Moved { pinned: false },
            Offload::Sequential => Placement::Leaf { pinned: false },
            // What is outside the blocks comes and goes with the module's forward.
            Offload::Blocks { group, stream, pinned } if transformer => {
                Placement::Streamed { resident: 0, prefetch: u32::from(stream), group, pinned, rest_resident: false }
            }
            // Modules without a list of blocks at the top are one group.
            Offload::Blocks { pinned, .. } => Placement::Moved { pinned },
            Offload::Leaves { pinned } => Placement::Leaf { pinned },
        };
        let (precision, by) = match role {
            // These families' transformers list modules that stay in fp32; CogVideoX computes a table beside its parameters.
            Role::Transformer | Role::Transformer2 => {
                (Precision { keep_fp32: matches!(context.family(), "wan" | "minimax_h3" | "cogvideox"), ..plain(base) }, base_by)
            }
            // T5 lists a matrix that stays in fp32 beside fp16.
            Role::TextEncoder | Role::TextEncoder2 => (Precision { keep_fp32: base == Dtype::Fp16, ..plain(base) }, base_by),
            Role::ImageEncoder => (plain(image.0), image.1),
            // MiniMax H3's video VAE lists its encoder and norms, its audio VAE everything.
            Role::AudioVae if context.family() == "minimax_h3" => (plain(Dtype::Fp32), Provenance::RuntimeDefault),
            Role::Vae => (Precision { keep_fp32: context.family() == "minimax_h3", ..plain(vae.0) }, vae.1),
            Role::AudioVae => (plain(vae.0), vae.1),
        };
        let component = Component { placement, precision };
        book.component(role, &component, offloaded_by, by);
        *slot = Some(component);
    }
    out
}

/// Height and width of tiles and their distance, as each class has them.
fn tile_sizes(family: &str) -> Option<[u32; 4]> {
    match family {
        "wan" | "hunyuan_video" | "mochi" | "minimax_h3" => Some([256, 256, 192, 192]),
        "ltx_video" => Some([512, 512, 448, 448]),
        "cogvideox" => Some([240, 360, 200, 288]),
        _ => None,
    }
}

fn tiling(context: &Context<'_>, book: &mut Book) -> Option<Tiling> {
    const SIZES: [&str; 4] = ["tile_sample_min_height", "tile_sample_min_width", "tile_sample_stride_height", "tile_sample_stride_width"];
    let defaults = tile_sizes(context.family());
    // MiniMax H3's class tiles unless it is told not to.
    let (on, by) = book.flag("vae_tiling", context.family() == "minimax_h3");
    if !on {
        let given: Vec<String> = SIZES.iter().filter(|name| book.given(name).is_some()).map(|name| book.written(name)).collect();
        if !given.is_empty() {
            book.note(format!("tile sizes have no effect: vae_tiling is off: {}", given.join(", ")));
        }
        for name in SIZES {
            book.silence(name);
        }
        book.derive("tiling", Value::Null, by);
        return None;
    }
    if defaults.is_none() && SIZES.iter().any(|name| book.given(name).is_none()) {
        book.unmodelled(&book.written("vae_tiling"), &format!("the tile sizes of {} in diffusers are not known here", context.family()));
        book.derive("tiling", Value::Null, by);
        return None;
    }
    let mut defaults = defaults.unwrap_or_default().into_iter();
    let [height, width, stride_height, stride_width] = SIZES.map(|name| book.count(name, defaults.next().unwrap_or(0)).0);
    let compression = context.geometry(Role::Vae, "spatial_compression").unwrap_or(1);
    check_tile("tile_sample_min_height", height, "tile_sample_stride_height", stride_height, compression, book);
    check_tile("tile_sample_min_width", width, "tile_sample_stride_width", stride_width, compression, book);
    let tiling = Tiling { tile: [height, width], stride: [stride_height, stride_width], temporal: None };
    book.derive("tiling", json!({ "tile": tiling.tile, "stride": tiling.stride, "temporal": null }), by);
    Some(tiling)
}

/// Tiles and strides are whole latent positions, and strides leave no gap.
pub(super) fn check_tile(name: &'static str, tile: u32, stride_name: &'static str, stride: u32, compression: u32, book: &mut Book) {
    let compression = compression.max(1);
    let (name, stride_name) = (book.written(name), book.written(stride_name));
    for (name, size) in [(&name, tile), (&stride_name, stride)] {
        if size < compression || !size.is_multiple_of(compression) {
            book.error("invalid-value", format!("{name}: found {size}, allowed: multiples of {compression}"));
        }
    }
    if stride > tile {
        book.error("conflict", format!("{stride_name} {stride} is above {name} {tile}: the tiles would leave gaps"));
    }
}

/// Guidance as each pipeline runs it.
fn guidance(context: &Context<'_>, request: &Request) -> Guidance {
    if request.guidance_scale <= 1.0 {
        return Guidance::None;
    }
    match context.family() {
        "cogvideox" | "mochi" | "ltx_video" => Guidance::Batched,
        // The scale is an input of the model, or guidance is in its weights.
        "hunyuan_video" | "minimax_h3" => Guidance::None,
        _ => Guidance::Sequential,
    }
}
