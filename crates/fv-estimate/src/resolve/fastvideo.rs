//! What FastVideo makes of its settings.

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::compiled::ExpandedComponent;
use fv_spec::estimate::Provenance;
use fv_spec::request::Request;
use serde_json::{Value, json};

use super::book::{Book, Effect, Key, Kind, Meaning, library_environment};
use super::{Context, InputError, allocator, attention_word, dtype, dtype_word, guidance_word, plain, scaled};
use crate::settings::{Attention, Component, Guidance, Placement, Precision, Settings, Tiling};
use crate::storage::Storage;
use crate::wan::geometry::{block_parameters, gate_parameters, image_parameters};

use Effect::{Applies, Harmless, Unless};
use Kind::{Any, Choice, Dtypes, Flag, Number, Text};

const ATTENTION: &str = "FASTVIDEO_ATTENTION_BACKEND";
const RESIDENT: &str = "FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS";
const CFG_GATE: &str = "FASTVIDEO_CFG_GATE_STEP";
const CAP: &str = "FASTVIDEO_CUDA_MEMORY_CAP_GIB";
const REGIONAL: &str = "FASTVIDEO_INFERENCE_TORCH_COMPILE";
const FUSIONS: &str = "FASTVIDEO_MINIMAX_H3_FUSIONS";

const SIZE: Kind = Kind::Whole { least: 1, most: 16_384 };
const RANKS: Kind = Kind::Whole { least: 1, most: 1_024 };
/// A number of ranks, or -1 for the runtime's choice.
const RANKS_OR_DEFAULT: Kind = Kind::Whole { least: -1, most: 1_024 };
const OFF: Effect = Unless(&["false"]);
const EMPTY: Effect = Unless(&["{}", "\"\""]);
const NEVER: Effect = Unless(&[]);

/// Flat arguments, with the places in the serving configuration that set them.
static KEYS: &[Key] = &[
    Key::new("num_gpus", &["engine.num_gpus"], RANKS, Applies),
    Key::new("tp_size", &["engine.parallelism.tp_size"], RANKS_OR_DEFAULT, Applies),
    Key::new("sp_size", &["engine.parallelism.sp_size"], RANKS_OR_DEFAULT, Applies),
    Key::new("hsdp_replicate_dim", &["engine.parallelism.hsdp_replicate_dim"], RANKS, Applies),
    Key::new("hsdp_shard_dim", &["engine.parallelism.hsdp_shard_dim"], RANKS_OR_DEFAULT, Applies),
    Key::new("dit_cpu_offload", &["engine.offload.dit"], Flag, Applies),
    Key::new("dit_layerwise_offload", &["engine.offload.dit_layerwise"], Flag, Applies),
    Key::new("text_encoder_cpu_offload", &["engine.offload.text_encoder"], Flag, Applies),
    Key::new("image_encoder_cpu_offload", &["engine.offload.image_encoder"], Flag, Applies),
    Key::new("vae_cpu_offload", &["engine.offload.vae"], Flag, Applies),
    Key::new("pin_cpu_memory", &["engine.offload.pin_cpu_memory"], Flag, Applies),
    Key::new("lazy_module_load", &["engine.offload.lazy_module_load"], Flag, OFF),
    Key::new("use_fsdp_inference", &["engine.use_fsdp_inference"], Flag, Applies),
    Key::new("disable_autocast", &["engine.disable_autocast"], Flag, Applies),
    Key::new("use_batched_cfg", &["engine.use_batched_cfg"], Flag, Applies),
    Key::new("batch_cfg", &["default_request.sampling.batch_cfg"], Flag, Applies),
    Key::new("dit_precision", &["engine.precision.dit"], Kind::Dtype, Applies),
    Key::new("vae_precision", &["engine.precision.vae"], Kind::Dtype, Applies),
    Key::new("vae_decode_precision", &["engine.precision.vae_decode"], Kind::Dtype, Applies),
    Key::new("text_encoder_precisions", &["engine.precision.text_encoders"], Dtypes, Applies),
    Key::new("image_encoder_precision", &["engine.precision.image_encoder"], Kind::Dtype, Applies),
    Key::new("transformer_quant", &["engine.quantization.transformer_quant"], Text, Applies),
    Key::new("override_text_encoder_quant", &["engine.quantization.text_encoder_quant", "text_encoder_quant"], Text, Applies),
    Key::new("enable_torch_compile", &["engine.compile.enabled"], Flag, Applies),
    Key::new("inference_torch_compile", &["engine.compile.regional"], Flag, Applies),
    Key::new("compile.mode", &["engine.compile.mode"], Text, Unless(&["\"default\""])),
    Key::new("compile.backend", &["engine.compile.backend"], Text, Unless(&["\"inductor\""])),
    Key::new("compile.fullgraph", &["engine.compile.fullgraph"], Flag, Harmless),
    Key::new("compile.dynamic", &["engine.compile.dynamic"], Flag, Harmless),
    Key::new("compile.extras", &["engine.compile.extras"], Any, EMPTY),
    Key::new("torch_compile_kwargs", &["engine.compile.kwargs"], Any, EMPTY),
    Key::new("torch_compile_kwargs_dit", &["engine.compile.dit_kwargs"], Any, EMPTY),
    Key::new("torch_compile_kwargs_text_encoder", &["engine.compile.text_encoder_kwargs"], Any, EMPTY),
    Key::new("torch_compile_kwargs_vae", &["engine.compile.vae_kwargs"], Any, EMPTY),
    Key::new("torch_compile_kwargs_audio_vae", &["engine.compile.audio_vae_kwargs"], Any, EMPTY),
    Key::new("enable_torch_compile_text_encoder", &["engine.compile.text_encoder_enabled"], Flag, OFF),
    Key::new("enable_torch_compile_vae", &["engine.compile.vae_enabled"], Flag, OFF),
    Key::new("enable_torch_compile_audio_vae", &["engine.compile.audio_vae_enabled"], Flag, OFF),
    Key::new("attention_backend", &["engine.attention.backend"], Text, Applies),
    Key::new("VSA_sparsity", &["engine.attention.vsa_sparsity", "vsa_sparsity"], Number, Applies),
    Key::new("VSA_tile_size", &["engine.attention.vsa_tile_size", "vsa_tile_size"], Kind::Whole { least: 64, most: 256 }, Applies),
    Key::new("moba_config", &["engine.attention.moba_config"], Any, EMPTY),
    Key::new("moba_config_path", &["engine.attention.moba_config_path"], Text, NEVER),
    Key::new("vae_tiling", &["pipeline.vae_tiling", "ltx2_vae_tiling"], Flag, Applies),
    Key::new("vae_sp", &["pipeline.vae_sp"], Flag, Applies),
    Key::new("vae_config.use_feature_cache", &[], Flag, Applies),
    Key::new("vae_config.use_tiling", &[], Flag, Applies),
    Key::new("vae_config.use_temporal_tiling", &[], Flag, Applies),
    Key::new("vae_config.use_parallel_tiling", &[], Flag, Applies),
    Key::new("vae_config.tile_sample_min_height", &[], SIZE, Applies),
    Key::new("vae_config.tile_sample_min_width", &[], SIZE, Applies),
    Key::new("vae_config.tile_sample_min_num_frames", &[], SIZE, Applies),
    Key::new("vae_config.tile_sample_stride_height", &[], SIZE, Applies),
    Key::new("vae_config.tile_sample_stride_width", &[], SIZE, Applies),
    Key::new("vae_config.tile_sample_stride_num_frames", &[], SIZE, Applies),
    Key::new("vae_config.blend_num_frames", &[], Any, Harmless),
    Key::new("vae_config.use_temporal_scaling_frames", &[], Any, Harmless),
    Key::new("workload_type", &["pipeline.workload_type"], Choice(&["t2v", "i2v", "ti2v", "v2v", "t2i", "i2i"]), Applies),
    Key::new("override_pipeline_cls_name", &["pipeline.components.override_pipeline_cls_name"], Text, Applies),
    Key::new("override_transformer_cls_name", &["pipeline.components.override_transformer_cls_name"], Text, NEVER),
    Key::new("pipeline_config", &["pipeline.components.pipeline_config_path"], Any, NEVER),
    Key::new("config_model_path", &["pipeline.components.config_root"], Text, NEVER),
    Key::new("vae_weights", &["pipeline.components.vae_weights"], Text, NEVER),
    Key::new("lora_path", &["pipeline.components.lora_path"], Text, EMPTY),
    Key::new("lora_nickname", &["pipeline.components.lora_nickname"], Any, Harmless),
    Key::new("lora_strength", &["pipeline.components.lora_strength"], Any, Harmless),
    Key::new("lora_target_modules", &["pipeline.components.lora_target_modules"], Any, Harmless),
    // The same architecture from other files.
    Key::new("override_text_encoder_safetensors", &["pipeline.components.text_encoder_weights"], Text, Harmless),
    Key::new("init_weights_from_safetensors", &["pipeline.components.transformer_weights"], Text, Harmless),
    Key::new("init_weights_from_safetensors_2", &["pipeline.components.transformer_2_weights"], Text, Harmless),
    Key::new("ltx2_refine_upsampler_path", &["pipeline.components.upsampler_weights"], Text, EMPTY),
    Key::new("ltx2_refine_enabled", &["pipeline.ltx2.refine.enabled", "pipeline.preset_overrides.refine.enabled"], Flag, OFF),
    Key::new("preset", &["pipeline.preset"], Text, NEVER),
    Key::new("preset_version", &["pipeline.preset_version"], Any, NEVER),
    Key::new("output_type", &["pipeline.output_type"], Text, Unless(&["\"pil\"", "\"np\"", "\"pt\""])),
    Key::new("flow_shift", &["pipeline.flow_shift"], Any, Harmless),
    Key::new("boundary_ratio", &["pipeline.boundary_ratio", "dit_config.boundary_ratio"], Any, Harmless),
    // Guidance as an input of the model: no second forward.
    Key::new("embedded_cfg_scale", &["pipeline.embedded_cfg_scale"], Any, Harmless),
    Key::new("dmd_denoising_steps", &["pipeline.dmd_denoising_steps"], Any, Harmless),
    Key::new("warp_denoising_step", &[], Any, Harmless),
    Key::new("distributed_executor_backend", &["engine.execution_backend"], Any, Harmless),
    Key::new("dist_timeout", &["engine.parallelism.dist_timeout"], Any, Harmless),
    Key::new("master_port", &["engine.parallelism.master_port"], Any, Harmless),
    Key::new("enable_stage_verification", &["engine.enable_stage_verification"], Flag, Harmless),
    Key::new("mode", &[], Any, Unless(&["\"inference\""])),
    Key::new("inference_mode", &[], Flag, Unless(&["true"])),
    Key::new("vae_parallel_decode", &["pipeline.minimax_h3.vae_parallel_decode"], Flag, Applies),
    Key::new("vae_parallel_decode_strategy", &["pipeline.minimax_h3.vae_parallel_decode_strategy"], Text, Applies),
    Key::new("vae_parallel_encode", &["pipeline.minimax_h3.vae_parallel_encode"], Flag, Applies),
    Key::new("enable_teacache", &["default_request.runtime.enable_teacache"], Flag, OFF),
    Key::new("return_trajectory_latents", &["default_request.runtime.return_trajectory_latents"], Flag, OFF),
    Key::new("return_trajectory_decoded", &["default_request.runtime.return_trajectory_decoded"], Flag, OFF),
];

/// Environment variables that mean the same for every model.
static ENVIRONMENT: &[Key] = &[
    Key::new(RESIDENT, &[], Kind::Whole { least: 0, most: 100_000 }, Applies),
    Key::new(CFG_GATE, &[], Number, Applies),
    Key::new(CAP, &[], Text, Applies),
    Key::new("FASTVIDEO_VSA_TILE_SIZE", &[], Text, Applies),
    Key::new("FASTVIDEO_DISABLE_ATTENTION_COMPILE", &[], Flag, Applies),
    Key::new("FASTVIDEO_FSDP2_AUTOWRAP", &[], Flag, Applies),
    Key::new("FASTVIDEO_FSDP2_MIN_PARAMS", &[], Kind::Whole { least: 0, most: i64::MAX }, Applies),
    Key::new("FASTVIDEO_ULYSSES_A2A", &[], Text, Applies),
    Key::new("FASTVIDEO_LAYERWISE_OFFLOAD_BUFFERS", &[], Flag, Applies),
    Key::new("FASTVIDEO_RAY_PER_WORKER_GPUS", &[], Number, Unless(&["1.0"])),
    // Other kernels for the same tensors.
    Key::new("FASTVIDEO_FA4", &[], Flag, Harmless),
    Key::new("FASTVIDEO_VSA_TRITON", &[], Flag, Harmless),
    Key::new("FASTVIDEO_VSA_TK", &[], Flag, Harmless),
    Key::new("FASTVIDEO_VSA_CUTEDSL", &[], Flag, Harmless),
    Key::new("FASTVIDEO_VSA_SM100A", &[], Flag, Harmless),
    // Eager norms are what the rules count; the fused ones are below the peak either way.
    Key::new("FASTVIDEO_DISABLE_FUSED_NORM", &[], Flag, Harmless),
    Key::new("FASTVIDEO_NVFP4_FA4", &[], Flag, OFF),
    Key::new("FASTVIDEO_FA4_PV_MODE", &[], Text, Unless(&["\"bf16\""])),
    // Statistics of every activation.
    Key::new("FASTVIDEO_TRACE_ACTIVATIONS", &[], Flag, OFF),
    Key::new("FASTVIDEO_TRACE_LAYERS", &[], Text, Harmless),
    Key::new("FASTVIDEO_TRACE_OUTPUT", &[], Text, Harmless),
    Key::new("FASTVIDEO_TRACE_STATS", &[], Text, Harmless),
    Key::new("FASTVIDEO_TRACE_STEPS", &[], Text, Harmless),
];

/// Variables about files, logs, launching, output, profiling and tests. What ends in `_` is the start of a name.
const HARMLESS: [&str; 36] = [
    "FASTVIDEO_CACHE_ROOT",
    "FASTVIDEO_CONFIGURE_LOGGING",
    "FASTVIDEO_CONFIG_ROOT",
    "FASTVIDEO_COSMOS25_LOG_KNOBS",
    "FASTVIDEO_DEBUG_NAN_CHECK",
    "FASTVIDEO_ENGINE_ITERATION_TIMEOUT_S",
    "FASTVIDEO_EVAL_",
    "FASTVIDEO_EXTERNAL_LAUNCHER",
    "FASTVIDEO_FAD_",
    "FASTVIDEO_FFMPEG_",
    "FASTVIDEO_FVD_",
    "FASTVIDEO_HCCL_",
    "FASTVIDEO_HOST_IP",
    "FASTVIDEO_LOGGING_",
    "FASTVIDEO_LOG_ALL_PROCESSES",
    "FASTVIDEO_LOG_BATCHSIZE_INTERVAL",
    "FASTVIDEO_LOOPBACK_IP",
    "FASTVIDEO_MEMORY_REPORT",
    "FASTVIDEO_MLX_",
    // The client's name for the model.
    "FASTVIDEO_MODEL",
    "FASTVIDEO_NCCL_SO_PATH",
    "FASTVIDEO_NVENC_",
    "FASTVIDEO_NVTX_PROFILE",
    "FASTVIDEO_OUTPUT_PIX_FMT",
    "FASTVIDEO_PHYSICS_IQ_",
    "FASTVIDEO_STAGE_LOGGING",
    "FASTVIDEO_TEST_",
    "FASTVIDEO_TORCH_PROFILER_",
    "FASTVIDEO_TORCH_PROFILE_MODEL_LOADING",
    "FASTVIDEO_TORCH_PROFILE_REGIONS",
    "FASTVIDEO_TRACE_FUNCTION",
    "FASTVIDEO_ULYSSES_A2A_LONG_TRAINING",
    "FASTVIDEO_VBENCH_",
    "FASTVIDEO_VIDEO_CODEC",
    "FASTVIDEO_WORKER_MULTIPROC_METHOD",
    "FASTVIDEO_X264_",
];

/// Whether a variable says nothing about memory.
pub(super) fn harmless(name: &str) -> bool {
    HARMLESS.iter().any(|known| if known.ends_with('_') { name.starts_with(known) } else { name == *known })
}

/// Variables that one family alone reads.
const OF_ONE_FAMILY: [(&str, &str); 6] = [
    ("FASTVIDEO_H3_", "minimax_h3"),
    ("FASTVIDEO_MINIMAX_H3_", "minimax_h3"),
    ("FASTVIDEO_VAE_PARALLEL_", "minimax_h3"),
    ("FASTVIDEO_LTX2_", "ltx_video"),
    ("FASTVIDEO_FLUX2_", "flux"),
    ("FASTVIDEO_REASON1_", "cosmos"),
];

pub(super) fn lookup(path: &str) -> Option<Meaning> {
    let direct = |path: &str| KEYS.iter().find(|key| key.name == path || key.paths.contains(&path)).map(Meaning::Key);
    // The free maps take flat names, a component's section as literal dotted keys or nested.
    let free = ["pipeline.experimental.", "pipeline.preset_overrides.", "experimental."];
    direct(path)
        .or_else(|| direct(free.iter().find_map(|prefix| path.strip_prefix(prefix))?))
        .or_else(|| direct(&format!("vae_config.{}", path.strip_prefix("pipeline.vae.")?)))
}

pub(super) fn names() -> Vec<&'static str> {
    KEYS.iter().flat_map(|key| std::iter::once(key.name).chain(key.paths.iter().copied())).collect()
}

/// What a family starts from.
struct Family {
    vae: Dtype,
    vae_decode: Option<Dtype>,
    text: &'static [Dtype],
    vae_tiling: bool,
    vae_sp: bool,
    /// Height and width of a tile, their stride, frames of a tile, their stride.
    tile: [u32; 4],
}

impl Family {
    fn of(name: &str) -> Self {
        let base =
            Self { vae: Dtype::Fp32, vae_decode: None, text: &[Dtype::Fp32], vae_tiling: true, vae_sp: true, tile: [256, 192, 16, 12] };
        match name {
            "wan" => Self { vae_decode: Some(Dtype::Bf16), vae_tiling: false, vae_sp: false, ..base },
            "hunyuan_video" => Self { vae: Dtype::Fp16, text: &[Dtype::Fp16, Dtype::Fp16], ..base },
            "hunyuan_video_15" => Self { vae: Dtype::Fp16, text: &[Dtype::Bf16, Dtype::Fp32], tile: [512, 448, 64, 40], ..base },
            "ltx_video" => Self { vae: Dtype::Bf16, text: &[Dtype::Bf16], tile: [512, 448, 64, 40], ..base },
            "kandinsky5" => Self { vae: Dtype::Bf16, text: &[Dtype::Bf16, Dtype::Bf16], ..base },
            "cosmos" => Self { vae: Dtype::Fp16, text: &[Dtype::Bf16], ..base },
            // Its decoder runs in fp16 over fp32 weights.
            "minimax_h3" => Self { vae_decode: Some(Dtype::Fp16), text: &[Dtype::Bf16], vae_sp: false, ..base },
            _ => base,
        }
    }
}

pub(super) fn resolve(context: &Context<'_>, request: Request, mut book: Book) -> Result<(Settings, Request), Vec<InputError>> {
    environment(context, &mut book);
    let family = Family::of(context.family());

    book.report("runtime", Runtime::FastVideo.word(), Provenance::Authored);
    let workload = book.text("workload_type", "t2v");
    let ranks = Ranks::read(context, &mut book);
    let (compile, compiled_by) = compile(&mut book);
    let attention = attention(context, &mut book);
    let offload = Offload::read(&mut book, context.overrides.unified_memory);
    let shard = ranks.shard(&offload, &mut book);
    let (components, tiling, feature_cache) = components(context, &family, &offload, &ranks, &mut book);
    let (guidance, guidance_delta_kept) = guidance(context, &request, &mut book);

    let per_token_timesteps = context.text_or_image() && request.references > 0;
    book.derive("per_token_timesteps", per_token_timesteps, workload.1);
    let fused_rope = fused_rope(context, &mut book);
    book.derive("fused_rope", fused_rope, Provenance::RuntimeDefault);
    book.derive("vae_slicing", false, Provenance::RuntimeDefault);
    let streamed = components.iter().flatten().any(|c| matches!(c.placement, Placement::Streamed { .. }));
    let gathered = components.iter().flatten().any(|c| c.placement == Placement::Gathered);
    let pinned_host = gathered && offload.pin.0;
    let pinned_rounding = streamed || pinned_host;
    book.derive("pinned_rounding", pinned_rounding, if streamed { offload.layerwise.1 } else { offload.pin.1 });
    book.derive("pinned_host", pinned_host, offload.pin.1);
    if streamed && !offload.pin.0 {
        book.note("pin_cpu_memory: false has no effect on the transformer: the layerwise hook always pins");
    }
    interactions(&ranks, compile, gathered || shard > 1, streamed, &mut book);
    book.derive("compile", compile, compiled_by);
    parallel_vae(context, &ranks, &mut book);
    library_environment(context, compile, ranks.gpus, &mut book);
    let allowed = cap(&mut book);
    let allocator = allocator::resolve(context, allowed, &mut book);
    book.close(Runtime::FastVideo.word());
    if !book.errors.is_empty() {
        return Err(book.errors);
    }
    let settings = Settings {
        runtime: Runtime::FastVideo,
        gpu_count: ranks.gpus,
        tensor_parallel: ranks.tensor,
        sequence_parallel: ranks.sequence,
        shard,
        components,
        attention,
        fused_rope,
        compile,
        feature_cache,
        tiling,
        vae_slicing: false,
        guidance,
        guidance_delta_kept,
        per_token_timesteps,
        pinned_rounding,
        pinned_host,
        allocator,
        reported: book.reported,
        unknown: book.unknown,
        notes: book.notes,
    };
    Ok((settings, request))
}

/// Sorts the environment: into settings, remarks, and what no rule models.
fn environment(context: &Context<'_>, book: &mut Book) {
    for (name, (text, provenance)) in &context.env {
        if *name == ATTENTION || *name == REGIONAL {
            alias(name, text, *provenance, book);
        } else if let Some(key) = ENVIRONMENT.iter().find(|key| key.name == *name) {
            book.environment(key, name, text, *provenance);
        } else if harmless(name) {
            book.report(name, *text, *provenance);
        } else if let Some((_, family)) = OF_ONE_FAMILY.iter().find(|(prefix, _)| name.starts_with(prefix)) {
            book.report(name, *text, *provenance);
            if *family != context.family() {
                book.note(format!("{name} has no effect on {}", context.family()));
            } else if !neutral(name, text) && !of_h3(name, text) && *name != FUSIONS {
                book.unmodelled(name, &format!("no rule models the value {}", json!(text)));
            }
        } else if name.starts_with("FASTVIDEO_NVFP4_") && book.given("transformer_quant").is_none() {
            book.report(name, *text, *provenance);
            book.note(format!("{name} has no effect: the transformer is not quantised"));
        } else if name.starts_with("FASTVIDEO_") {
            book.report(name, *text, *provenance);
            book.unmodelled(name, "it is not known here and could change memory");
        }
    }
}

/// Values that leave a family's own switch off, or as it is by default.
pub(crate) fn neutral(name: &str, text: &str) -> bool {
    let text = text.trim().to_ascii_lowercase();
    match name {
        "FASTVIDEO_H3_PINNED_SWAP" => matches!(text.as_str(), "1" | "true" | "yes" | "on"),
        "FASTVIDEO_H3_VAE_TILE_BATCH" => text == "1",
        "FASTVIDEO_H3_VSA_SM89_KERNEL" => text == "original",
        _ => matches!(text.as_str(), "" | "0" | "false" | "no" | "off" | "none"),
    }
}

/// Values that the family's rule for FastVideo reads, or that place modules as it does anyway.
fn of_h3(name: &str, text: &str) -> bool {
    let text = text.trim();
    match name {
        "FASTVIDEO_H3_PARK_MODULES" => text.split(',').all(|module| matches!(module.trim(), "vae" | "audio_vae")),
        "FASTVIDEO_H3_ENCODER_LAYERWISE" | "FASTVIDEO_H3_ENCODER_FUSED_DEQUANT" | "FASTVIDEO_H3_VSA_TILE_FIRST" => text == "1",
        "FASTVIDEO_H3_VSA_SM89_KERNEL" => matches!(text, "bf16" | "int8"),
        "FASTVIDEO_H3_FFN_CHUNK_TOKENS" => text.parse::<u32>().is_ok(),
        "FASTVIDEO_H3_VAE_TILE_BATCH" => text.parse::<u32>().is_ok_and(|tiles| tiles > 0),
        "FASTVIDEO_H3_VAE_INT8_SHARED_QKV" | "FASTVIDEO_H3_VAE_INT8_TRANSPOSE_VIEW" | "FASTVIDEO_H3_VAE_INT8_FUSED_DEQUANT" => {
            matches!(text.to_ascii_lowercase().as_str(), "1" | "true")
        }
        _ => false,
    }
}

/// Two variables stand for arguments, which the configuration and the user win over.
fn alias(name: &str, text: &str, provenance: Provenance, book: &mut Book) {
    let argument = if name == ATTENTION { "attention_backend" } else { "inference_torch_compile" };
    if text.trim().is_empty() {
        return;
    }
    if book.given(argument).is_some() {
        book.note(format!("{name} has no effect: {} is set", book.written(argument)));
    } else if let Some(Meaning::Key(key)) = lookup(argument) {
        book.environment(key, name, text, provenance);
    }
}

struct Ranks {
    gpus: u32,
    tensor: u32,
    sequence: u32,
    replicate: u32,
    shard: (u32, Provenance),
}

impl Ranks {
    fn read(context: &Context<'_>, book: &mut Book) -> Self {
        let gpus = book.count("num_gpus", 1).0;
        let tensor = ranks(book, "tp_size", 1);
        let sequence = ranks(book, "sp_size", gpus);
        let replicate = book.count("hsdp_replicate_dim", 1).0;
        let shard = ranks(book, "hsdp_shard_dim", gpus);
        for (name, size) in [("tp_size", tensor.0), ("sp_size", sequence.0), ("hsdp_replicate_dim", replicate), ("hsdp_shard_dim", shard.0)]
        {
            if size > gpus || !gpus.is_multiple_of(size) {
                book.error("conflict", format!("{name} {size} does not divide num_gpus {gpus}: the GPUs must be a multiple of it"));
            }
        }
        let heads = context.geometry(Role::Transformer, "num_attention_heads");
        if let Some(heads) = heads.filter(|heads| !heads.is_multiple_of(sequence.0)) {
            book.error("conflict", format!("sp_size {} does not divide the transformer's {heads} attention heads", sequence.0));
        }
        if tensor.0 > 1 && context.family() == "wan" {
            book.note("tp_size divides the text encoder's matrices alone: Wan's transformer is whole on every rank");
        }
        Self { gpus, tensor: tensor.0, sequence: sequence.0, replicate, shard }
    }

    /// Over how many ranks the transformer is sharded.
    fn shard(&self, offload: &Offload, book: &mut Book) -> u32 {
        if !offload.fsdp.0 {
            book.force("hsdp_shard_dim", 1);
            return 1;
        }
        if self.shard.0.saturating_mul(self.replicate) != self.gpus {
            book.error(
                "conflict",
                format!("hsdp_replicate_dim {} times hsdp_shard_dim {} is not num_gpus {}", self.replicate, self.shard.0, self.gpus),
            );
        }
        self.shard.0
    }
}

/// A number of ranks where -1 is the runtime's choice.
fn ranks(book: &mut Book, name: &'static str, default: u32) -> (u32, Provenance) {
    let (value, provenance) = book.whole(name, -1);
    match u32::try_from(value) {
        Ok(0) => {
            book.error("invalid-value", format!("{name}: found 0, allowed: -1 or a positive whole number"));
            (1, provenance)
        }
        Ok(value) => (value, provenance),
        Err(_) => {
            // -1 is not how it runs: say what it comes to.
            if let Some(setting) = book.reported.last_mut() {
                setting.value = json!(default);
            }
            (default.max(1), provenance)
        }
    }
}

struct Offload {
    layerwise: (bool, Provenance),
    dit: (bool, Provenance),
    fsdp: (bool, Provenance),
    text: (bool, Provenance),
    image: (bool, Provenance),
    vae: (bool, Provenance),
    pin: (bool, Provenance),
}

impl Offload {
    fn read(book: &mut Book, unified_memory: bool) -> Self {
        let mut layerwise = book.flag("dit_layerwise_offload", true);
        let mut dit = book.flag("dit_cpu_offload", true);
        let mut fsdp = book.flag("use_fsdp_inference", false);
        let mut text = book.flag("text_encoder_cpu_offload", true);
        let mut image = book.flag("image_encoder_cpu_offload", true);
        let mut vae = book.flag("vae_cpu_offload", true);
        if unified_memory {
            let flags = [
                ("dit_layerwise_offload", &mut layerwise),
                ("dit_cpu_offload", &mut dit),
                ("text_encoder_cpu_offload", &mut text),
                ("image_encoder_cpu_offload", &mut image),
                ("vae_cpu_offload", &mut vae),
            ];
            for (name, setting) in flags {
                book.force(name, false);
                *setting = (false, Provenance::Forced);
            }
            book.note("FastVideo turns offloading off on a device that shares its memory with the host");
        }
        let pin = book.flag("pin_cpu_memory", true);
        if layerwise.0 {
            for (name, setting) in [("dit_cpu_offload", &mut dit), ("use_fsdp_inference", &mut fsdp)] {
                if setting.0 && setting.1 != Provenance::RuntimeDefault {
                    book.note(format!("{} has no effect: dit_layerwise_offload turns {name} off", book.written(name)));
                }
                book.force(name, false);
                *setting = (false, layerwise.1);
            }
        }
        Self { layerwise, dit, fsdp, text, image, vae, pin }
    }

    /// Where a transformer is, and what decided it.
    fn transformer(&self, transformer: &ExpandedComponent, book: &mut Book) -> (Placement, Provenance) {
        if self.layerwise.0 {
            let blocks = transformer.block_count.and_then(|count| u32::try_from(count.get()).ok()).unwrap_or(u32::MAX);
            let (asked, provenance) = resident_blocks(book);
            let placement = Placement::Streamed { resident: asked.min(blocks), prefetch: 1, group: 1, pinned: true, rest_resident: true };
            (placement, if asked > 0 { provenance } else { self.layerwise.1 })
        } else if self.dit.0 {
            (if self.fsdp.0 { Placement::Gathered } else { Placement::Moved { pinned: false } }, self.dit.1)
        } else {
            (Placement::Resident, self.dit.1)
        }
    }
}

fn resident_blocks(book: &Book) -> (u32, Provenance) {
    book.given(RESIDENT).and_then(|given| Some((super::whole(&given.value)?, given.provenance))).unwrap_or((0, Provenance::RuntimeDefault))
}

/// Whether the transformer is compiled, as a whole or block by block.
fn compile(book: &mut Book) -> (bool, Provenance) {
    let whole = book.flag("enable_torch_compile", false);
    let regional = book.flag("inference_torch_compile", false);
    if regional.0 && !whole.0 { regional } else { whole }
}

/// Names of attention backends that are known and that no rule models.
const UNMODELLED_ATTENTION: [&str; 8] = [
    "ATTN_QAT_INFER",
    "ATTN_QAT_TRAIN",
    "SAGE_ATTN",
    "SAGE_ATTN_THREE",
    "SLA_ATTN",
    "SLIDING_TILE_ATTN",
    "VIDEO_SPARSE_ATTN_FP4",
    "VMOBA_ATTN",
];

fn attention(context: &Context<'_>, book: &mut Book) -> Attention {
    let asked = book.given("attention_backend").cloned();
    let (name, provenance) = book.text("attention_backend", "auto");
    let written = book.written("attention_backend");
    let gated = gated(context);
    let sparsity = sparsity(book);
    let tile = tile_tokens(name.as_str(), book);
    let kernel = match name.as_str() {
        // FlashAttention where it is installed, else PyTorch's own fused kernel: neither keeps a score matrix.
        "auto" | "FLASH_ATTN" => Attention::Flash,
        "TORCH_SDPA" => Attention::Sdpa,
        "VIDEO_SPARSE_ATTN" | "VIDEO_SPARSE_ATTN_H3" => {
            let of_h3 = context.family() == "minimax_h3";
            if of_h3 != (name == "VIDEO_SPARSE_ATTN_H3") {
                book.unmodelled(&written, &format!("{name} is not the sparse attention of {}", context.family()));
            } else if gated == Some(false) {
                book.unmodelled(&written, "VIDEO_SPARSE_ATTN needs a checkpoint with gates, and the transformer has none");
            } else if gated.is_none() {
                book.unmodelled(&written, "the transformer's counts do not say whether it has the gates that VIDEO_SPARSE_ATTN needs");
            }
            Attention::VideoSparse { sparsity_permille: sparsity, tile }
        }
        other => {
            if asked.is_some_and(|given| given.provenance == Provenance::User && !given.env) && !UNMODELLED_ATTENTION.contains(&other) {
                let known = ["TORCH_SDPA", "FLASH_ATTN", "VIDEO_SPARSE_ATTN", "VIDEO_SPARSE_ATTN_H3"];
                let known = known.iter().chain(&UNMODELLED_ATTENTION).copied().collect::<Vec<_>>().join(", ");
                book.error("invalid-value", format!("{written}: found the text {}, allowed: {known}", json!(other)));
            } else {
                book.unmodelled(&written, &format!("no rule models the attention backend {}", json!(other)));
            }
            Attention::Flash
        }
    };
    let sparse = matches!(kernel, Attention::VideoSparse { .. });
    if gated == Some(true) && !sparse {
        book.unmodelled(&written, "a checkpoint with VSA gates runs with VIDEO_SPARSE_ATTN alone");
    }
    if !sparse && sparsity > 0 {
        book.note(format!("{} has no effect without VIDEO_SPARSE_ATTN", book.written("VSA_sparsity")));
    }
    book.derive("attention", attention_word(kernel), provenance);
    kernel
}

/// Sparsity in thousandths, by decimal digits.
fn sparsity(book: &mut Book) -> u32 {
    let given = book.given("VSA_sparsity").cloned();
    let value = given.as_ref().map_or_else(|| json!(0.0), |given| given.value.clone());
    book.report("VSA_sparsity", value.clone(), given.map_or(Provenance::RuntimeDefault, |given| given.provenance));
    match scaled(&value.to_string(), 1_000).and_then(|permille| u32::try_from(permille).ok()) {
        Some(permille) if permille < 1_000 => permille,
        _ => {
            book.error("invalid-value", format!("{}: found {value}, allowed: a number from 0 to below 1", book.written("VSA_sparsity")));
            0
        }
    }
}

/// Tokens of a sparse tile: 4x4x4, or 4x8x8 where that kernel is asked for.
fn tile_tokens(attention: &str, book: &mut Book) -> u32 {
    // The argument's own default is 256, which is the H3 kernel's; Wan's kernel has tiles of 64 unless told.
    let default = if attention == "VIDEO_SPARSE_ATTN_H3" { 256 } else { 64 };
    if book.given("VSA_tile_size").is_none()
        && let Some(given) = book.given("FASTVIDEO_VSA_TILE_SIZE").cloned()
    {
        let text = given.value.as_str().unwrap_or_default().to_ascii_lowercase().replace('x', ",");
        let tile = match text.as_str() {
            "" | "default" | "legacy" | "4,4,4" => 64,
            "4,8,8" => 256,
            _ => {
                book.unmodelled(&given.written, &format!("no rule models the value {}", given.value));
                64
            }
        };
        book.report("VSA_tile_size", tile, given.provenance);
        return tile;
    }
    let (tile, _) = book.count("VSA_tile_size", default);
    if !matches!(tile, 64 | 256) {
        book.error("invalid-value", format!("{}: found {tile}, allowed: 64 or 256", book.written("VSA_tile_size")));
    }
    if tile == 256 && attention == "VIDEO_SPARSE_ATTN" {
        book.note("tiles of 256 tokens need the block-sparse kernel for them; without it FastVideo falls back to 64");
    }
    tile
}

/// Whether the transformer has VSA gates: from its block's parameters, else from its name. `None`: it cannot be told.
fn gated(context: &Context<'_>) -> Option<bool> {
    let transformer = context.component(Role::Transformer)?;
    let size = |field| context.geometry(Role::Transformer, field).map(u64::from);
    let by_count = || {
        if context.family() != "wan" {
            return None;
        }
        let (hidden, ffn) = (size("hidden_size")?, size("ffn_size")?);
        let (plain, image, gate) = (block_parameters(hidden, ffn)?, image_parameters(hidden)?, gate_parameters(hidden)?);
        let block = transformer.block_parameter_count?.get();
        let with = |gate: u64| block == plain + gate || block == plain + image + gate;
        if with(0) {
            Some(false)
        } else if with(gate) {
            Some(true)
        } else {
            None
        }
    };
    by_count().or_else(|| {
        let text = format!("{} {}", transformer.component, transformer.name).to_ascii_lowercase();
        // Every checkpoint of the H3 student family carries gates.
        (text.contains("vsa") || text.contains("fasth3")).then_some(true)
    })
}

type Components = [Option<Component>; 7];

fn components(
    context: &Context<'_>,
    family: &Family,
    offload: &Offload,
    ranks: &Ranks,
    book: &mut Book,
) -> (Components, Option<Tiling>, bool) {
    let disable_autocast = book.flag("disable_autocast", false);
    let dit = transformer_precision(book);
    let text = text_precisions(context, family, book);
    let image = book.dtype("image_encoder_precision", Dtype::Fp32);
    let (vae, vae_by) = vae_precision(family, disable_autocast.0, book);
    let (tiling, feature_cache) = tiling(context, family, ranks, book);
    let moved = |on: bool| if on { Placement::Moved { pinned: false } } else { Placement::Resident };
    let mut out: Components = [None; 7];
    for (slot, role) in out.iter_mut().zip(Role::ALL) {
        let Some(component) = context.component(role) else { continue };
        let (placement, placed, precision, stored) = match role {
            Role::Transformer | Role::Transformer2 => {
                let (placement, placed) = offload.transformer(component, book);
                (placement, placed, dit.0, dit.1)
            }
            Role::TextEncoder | Role::TextEncoder2 => {
                let (precision, stored) = text[usize::from(role == Role::TextEncoder2)];
                let placement = if offload.text.0 { Placement::Gathered } else { Placement::Resident };
                (placement, offload.text.1, precision, stored)
            }
            Role::ImageEncoder => (moved(offload.image.0), offload.image.1, plain(image.0), image.1),
            Role::Vae | Role::AudioVae => (moved(offload.vae.0), offload.vae.1, vae, vae_by),
        };
        let component = Component { placement, precision };
        book.component(role, &component, placed, stored);
        *slot = Some(component);
    }
    let (resident, provenance) = resident_blocks(book);
    let streamed = offload.layerwise.0;
    if !streamed && resident > 0 {
        book.note(format!("{RESIDENT} has no effect: dit_layerwise_offload is off"));
    }
    book.report(RESIDENT, if streamed { resident } else { 0 }, if streamed { provenance } else { Provenance::Forced });
    (out, tiling, feature_cache)
}

fn transformer_precision(book: &mut Book) -> (Precision, Provenance) {
    let (dtype, provenance) = book.dtype("dit_precision", Dtype::Bf16);
    if dtype != Dtype::Bf16 {
        // The loop computes in bf16 whatever is stored, and what autocast keeps of such weights was not measured.
        book.unmodelled(&book.written("dit_precision"), &format!("no rule models a transformer stored as {}", dtype_word(dtype)));
    }
    let precision = Precision { stored: Storage::Plain(dtype), computed: Dtype::Bf16, autocast: true, cast_cache: false, keep_fp32: false };
    match quantised("transformer_quant", book) {
        Some((stored, by)) => (Precision { stored, ..precision }, by),
        None => (precision, provenance),
    }
}

/// A quantisation by name. How the runtime stores what is left, and what its offload moves of it, is not modelled.
fn quantised(name: &'static str, book: &mut Book) -> Option<(Storage, Provenance)> {
    let given = book.given(name)?.clone();
    let text = given.value.as_str()?.to_ascii_lowercase();
    book.report(name, given.value.clone(), given.provenance);
    if matches!(text.as_str(), "" | "none") {
        return None;
    }
    book.unmodelled(&given.written, &format!("no rule models the quantisation {}", given.value));
    match text.as_str() {
        "fp8" => Some((Storage::Fp8PerTensor, given.provenance)),
        "nvfp4" => Some((Storage::Nvfp4, given.provenance)),
        _ => None,
    }
}

fn text_precisions(context: &Context<'_>, family: &Family, book: &mut Book) -> [(Precision, Provenance); 2] {
    let given = book.given("text_encoder_precisions").cloned();
    let mut list: Vec<Dtype> = match given.as_ref().map(|given| &given.value) {
        Some(Value::Array(items)) => items.iter().filter_map(|item| dtype(item.as_str()?)).collect(),
        Some(Value::String(text)) => dtype(text).into_iter().collect(),
        _ => family.text.to_vec(),
    };
    if list.is_empty() {
        list = family.text.to_vec();
    }
    let provenance = given.as_ref().map_or(Provenance::RuntimeDefault, |given| given.provenance);
    let wanted = if context.component(Role::TextEncoder2).is_some() { 2 } else { 1 };
    if given.is_some() && list.len() != wanted {
        book.error(
            "invalid-value",
            format!("{}: found {} types for {wanted} text encoders", book.written("text_encoder_precisions"), list.len()),
        );
    }
    book.report("text_encoder_precisions", Value::from(list.iter().map(|d| dtype_word(*d)).collect::<Vec<_>>()), provenance);
    let quantised = quantised("override_text_encoder_quant", book);
    let at = |i: usize| list.get(i).or(list.last()).copied().unwrap_or(Dtype::Fp32);
    let first = match quantised {
        Some((stored, by)) => (Precision { stored, ..plain(at(0)) }, by),
        None => (plain(at(0)), provenance),
    };
    [first, (plain(at(1)), provenance)]
}

/// The decoder's precision. Encoding computes as stored.
fn vae_precision(family: &Family, disable_autocast: bool, book: &mut Book) -> (Precision, Provenance) {
    let (stored, stored_by) = book.dtype("vae_precision", family.vae);
    let (decode, decode_by) = book.dtype("vae_decode_precision", family.vae_decode.unwrap_or(stored));
    let autocast = decode != Dtype::Fp32 && !disable_autocast;
    let computed = if autocast { decode } else { stored };
    if !autocast && decode != stored {
        book.force("vae_decode_precision", dtype_word(stored));
        book.note(format!("the VAE decodes in {}, as it is stored: nothing casts its weights", dtype_word(stored)));
    }
    // Autocast keeps copies of fp32 weights alone; halves of another kind are cast anew each time.
    let cast_cache = autocast && stored == Dtype::Fp32;
    if autocast && !cast_cache && decode != stored {
        let name = if decode_by == Provenance::RuntimeDefault { "vae_precision" } else { "vae_decode_precision" };
        book.unmodelled(&book.written(name), &format!("no rule models {} weights decoded in {}", dtype_word(stored), dtype_word(decode)));
    }
    let by = if decode_by == Provenance::RuntimeDefault { stored_by } else { decode_by };
    book.derive("vae_autocast_weight_copies", cast_cache, by);
    (Precision { stored: Storage::Plain(stored), computed, autocast, cast_cache, keep_fp32: false }, by)
}

/// Tiling that is in effect, and whether decoding goes frame by frame with cached features.
fn tiling(context: &Context<'_>, family: &Family, ranks: &Ranks, book: &mut Book) -> (Option<Tiling>, bool) {
    let wan = context.family() == "wan";
    let (enabled, _) = book.flag("vae_tiling", family.vae_tiling);
    let (feature_cache, cache_by) = book.flag("vae_config.use_feature_cache", wan);
    if feature_cache && !wan {
        book.force("vae_config.use_feature_cache", false);
        book.note("vae_config.use_feature_cache has no effect: the VAE has no such cache");
    }
    let feature_cache = feature_cache && wan;
    let (spatial, _) = book.flag("vae_config.use_tiling", !wan);
    let (temporal, _) = book.flag("vae_config.use_temporal_tiling", !wan && context.family() != "minimax_h3");
    let (parallel, _) = book.flag("vae_config.use_parallel_tiling", family.vae_sp);
    let (vae_sp, _) = book.flag("vae_sp", family.vae_sp);
    let [tile, stride, frames, frame_stride] = family.tile;
    let mut size = |name, default| book.count(name, default).0;
    let height = size("vae_config.tile_sample_min_height", tile);
    let width = size("vae_config.tile_sample_min_width", tile);
    let num_frames = size("vae_config.tile_sample_min_num_frames", frames);
    let stride_height = size("vae_config.tile_sample_stride_height", stride);
    let stride_width = size("vae_config.tile_sample_stride_width", stride);
    let stride_frames = size("vae_config.tile_sample_stride_num_frames", frame_stride);

    if feature_cache {
        // The cached decode goes frame by frame over the whole picture and never looks at the tiling flags.
        for name in ["vae_tiling", "vae_config.use_tiling", "vae_config.use_temporal_tiling", "vae_config.use_parallel_tiling", "vae_sp"] {
            if book.given(name).is_some_and(|given| given.value == json!(true)) {
                book.note(format!("{} has no effect: Wan's cached decode bypasses tiling", book.written(name)));
            }
            book.force(name, false);
        }
        let sizes: Vec<String> = KEYS
            .iter()
            .filter(|key| key.name.starts_with("vae_config.tile_sample_") && book.given(key.name).is_some())
            .map(|key| book.written(key.name))
            .collect();
        if !sizes.is_empty() {
            book.note(format!("tile sizes have no effect while features are cached: {}", sizes.join(", ")));
        }
        book.derive("tiling", Value::Null, cache_by);
        return (None, true);
    }
    if !(enabled || spatial) {
        book.derive("tiling", Value::Null, cache_by);
        return (None, false);
    }
    // `enable_tiling` sets the spatial flag alone.
    book.force("vae_config.use_tiling", true);
    let compression =
        [context.geometry(Role::Vae, "spatial_compression").unwrap_or(1), context.geometry(Role::Vae, "temporal_compression").unwrap_or(1)];
    let temporal = temporal.then_some([num_frames, stride_frames]);
    let sizes = [
        ("vae_config.tile_sample_min_height", height, "vae_config.tile_sample_stride_height", stride_height, compression[0]),
        ("vae_config.tile_sample_min_width", width, "vae_config.tile_sample_stride_width", stride_width, compression[0]),
    ];
    let frames = temporal.map(|[tile, stride]| {
        ("vae_config.tile_sample_min_num_frames", tile, "vae_config.tile_sample_stride_num_frames", stride, compression[1])
    });
    for (name, tile, stride_name, stride, compression) in sizes.into_iter().chain(frames) {
        super::diffusers::check_tile(name, tile, stride_name, stride, compression, book);
    }
    if (parallel || vae_sp) && ranks.sequence > 1 {
        let name = if vae_sp { "vae_sp" } else { "vae_config.use_parallel_tiling" };
        book.unmodelled(&book.written(name), "tiles divided over several ranks are not modelled");
    }
    let tiling = Tiling { tile: [height, width], stride: [stride_height, stride_width], temporal };
    book.derive(
        "tiling",
        json!({ "tile": tiling.tile, "stride": tiling.stride, "temporal": tiling.temporal }),
        book.given("vae_tiling").or(book.given("vae_config.use_tiling")).map_or(cache_by, |given| given.provenance),
    );
    (Some(tiling), false)
}

/// Coding of one video by several ranks, which H3 alone has.
fn parallel_vae(context: &Context<'_>, ranks: &Ranks, book: &mut Book) {
    for name in ["vae_parallel_decode", "vae_parallel_decode_strategy", "vae_parallel_encode"] {
        let Some(given) = book.given(name).cloned() else { continue };
        if context.family() != "minimax_h3" {
            book.note(format!("{} has no effect on {}", given.written, context.family()));
        } else if ranks.sequence > 1 && given.value == json!(true) {
            book.unmodelled(&given.written, "decoding in parallel is not modelled");
        }
        book.report(name, given.value, given.provenance);
    }
}

/// Guidance as the pipeline runs it, and whether the difference of the predictions is kept.
fn guidance(context: &Context<'_>, request: &Request, book: &mut Book) -> (Guidance, bool) {
    let batched = book.flag("use_batched_cfg", false).0;
    let batched = book.flag("batch_cfg", false).0 || batched;
    let class = book.given("override_pipeline_cls_name").cloned();
    let named = class.as_ref().and_then(|given| given.value.as_str()).unwrap_or_default();
    let wan = context.family() == "wan";
    // The pipelines of Wan by what they start from, and whether they distil the steps.
    let image = context.image_to_video();
    let pipeline = match named {
        "WanPipeline" if wan && !image => Some(false),
        "WanDMDPipeline" if wan && !image => Some(true),
        "WanImageToVideoPipeline" if image => Some(false),
        "WanImageToVideoDmdPipeline" if image => Some(true),
        _ => None,
    };
    let dmd = if class.is_some() { pipeline == Some(true) } else { wan && context.named("fastwan") };
    if let Some(given) = &class {
        book.report("override_pipeline_cls_name", given.value.clone(), given.provenance);
        if pipeline.is_none() {
            book.unmodelled(&given.written, &format!("no rule models the pipeline {} for this checkpoint", given.value));
        }
    }
    let guidance = if dmd {
        if request.guidance_scale > 1.0 {
            book.note(format!("guidance {} has no effect: the DMD stage makes one prediction a step", request.guidance_scale));
        }
        Guidance::None
    } else if request.guidance_scale > 1.0 {
        if batched { Guidance::Batched } else { Guidance::Sequential }
    } else {
        Guidance::None
    };
    let gate = book.given(CFG_GATE).cloned();
    let share = gate.as_ref().and_then(|given| given.value.as_f64()).unwrap_or(1.0);
    let provenance = gate.map_or(Provenance::RuntimeDefault, |given| given.provenance);
    book.report(CFG_GATE, json!(share), provenance);
    if share > 1.0 {
        book.error("invalid-value", format!("{CFG_GATE}: found {share}, allowed: a number from 0 to 1"));
    }
    let kept = share < 1.0 && guidance != Guidance::None;
    if share < 1.0 && !kept {
        book.note(format!("{CFG_GATE} has no effect: no second prediction is made"));
    }
    book.derive("guidance", guidance_word(guidance), if dmd { Provenance::Forced } else { Provenance::RuntimeDefault });
    book.derive("guidance_delta_kept", kept, provenance);
    (guidance, kept)
}

/// MiniMax H3 alone has a fused rotary kernel, and only on request.
fn fused_rope(context: &Context<'_>, book: &mut Book) -> bool {
    let Some((text, _)) = context.env.get(FUSIONS).filter(|_| context.family() == "minimax_h3") else { return false };
    let fusions: Vec<String> = text.split(',').map(|part| part.trim().to_ascii_lowercase()).collect();
    let all = fusions.iter().any(|name| matches!(name.as_str(), "all" | "1"));
    if fusions.iter().any(|name| matches!(name.as_str(), "modulate" | "swiglu")) || all {
        book.unmodelled(FUSIONS, "fused modulation and SwiGLU are not modelled");
    }
    all || fusions.iter().any(|name| name == "qknorm_rope")
}

/// Variables that matter only together with something else.
fn interactions(ranks: &Ranks, compile: bool, fsdp: bool, streamed: bool, book: &mut Book) {
    let quantised = book.given("transformer_quant").is_some();
    let on = |book: &Book, name: &str, value: Value| book.given(name).filter(|given| given.value == value).cloned();
    if let Some(given) = on(book, "FASTVIDEO_DISABLE_ATTENTION_COMPILE", json!(false)) {
        matters(compile, &given.written, "attention inside compiled graphs is not modelled", "nothing is compiled", book);
    }
    if let Some(given) = on(book, "FASTVIDEO_FSDP2_AUTOWRAP", json!(true)) {
        matters(fsdp, &given.written, "units chosen by parameter count are not modelled", "nothing is gathered unit by unit", book);
    }
    if let Some(given) = on(book, "FASTVIDEO_LAYERWISE_OFFLOAD_BUFFERS", json!(true)) {
        matters(quantised && streamed, &given.written, "streamed buffers are not modelled", "no weight is stored as a buffer", book);
    }
    if let Some(given) = book.given("FASTVIDEO_ULYSSES_A2A").filter(|given| given.value != json!("off")).cloned() {
        matters(ranks.sequence > 1, &given.written, "the fused exchange's buffers are not modelled", "the sequence is on one rank", book);
    }
    for name in ["FASTVIDEO_DISABLE_ATTENTION_COMPILE", "FASTVIDEO_FSDP2_AUTOWRAP", "FASTVIDEO_FSDP2_MIN_PARAMS"].into_iter().chain([
        "FASTVIDEO_LAYERWISE_OFFLOAD_BUFFERS",
        "FASTVIDEO_ULYSSES_A2A",
        "FASTVIDEO_VSA_TILE_SIZE",
    ]) {
        if let Some(given) = book.given(name).cloned() {
            book.report(name, given.value, given.provenance);
        }
    }
}

fn matters(so: bool, name: &str, why: &str, why_not: &str, book: &mut Book) {
    if so {
        book.unmodelled(name, why);
    } else {
        book.note(format!("{name} has no effect: {why_not}"));
    }
}

/// What the process lets its allocator take; 0 is no cap.
fn cap(book: &mut Book) -> Option<u64> {
    let given = book.given(CAP)?.clone();
    book.report(CAP, given.value.clone(), given.provenance);
    match given.value.as_str().and_then(|text| scaled(text, 1 << 30)) {
        Some(0) => None,
        Some(bytes) => Some(bytes),
        None => {
            book.error("invalid-value", format!("{CAP}: found {}, allowed: a number of GiB, or 0 for no cap", given.value));
            None
        }
    }
}
