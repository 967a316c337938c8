//! Each rule with what decides it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use fv_spec::authored::{Dtype, Role, Runtime};
use fv_spec::compiled::{Example, Model};
use fv_spec::estimate::Provenance;
use fv_spec::request::{PartialRequest, Request};
use serde_json::{Value, json};

use super::{InputError, Overrides, canonical, config_path, resolve, scaled, without_nulls};
use crate::settings::{Attention, Guidance, Placement, Settings, Tiling};
use crate::storage::Storage;

fn models() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fv-data/data/models")
}

fn model(id: &str) -> Model {
    serde_json::from_str(&std::fs::read_to_string(models().join(format!("{id}.json"))).unwrap()).unwrap()
}

fn example(model: &Model, id: &str) -> Example {
    model.examples.iter().find(|example| example.id == id).unwrap().clone()
}

#[derive(Default, Clone)]
struct Ask {
    request: PartialRequest,
    overrides: Overrides,
    /// Into `base_config`, by JSON pointer.
    config: Vec<(&'static str, Value)>,
}

impl Ask {
    fn env(mut self, name: &str, value: &str) -> Self {
        self.overrides.env.insert(name.to_owned(), value.to_owned());
        self
    }

    fn set(mut self, name: &str, value: Value) -> Self {
        self.overrides.set.push((name.to_owned(), value));
        self
    }

    fn config(mut self, path: &'static str, value: Value) -> Self {
        self.config.push((path, value));
        self
    }

    fn of(&self, id: &str, deployment: &str) -> Result<(Settings, Request), Vec<InputError>> {
        let model = model(id);
        let mut example = example(&model, deployment);
        for (path, value) in &self.config {
            let mut at = &mut example.base_config;
            let parts: Vec<&str> = path.split('/').collect();
            let (last, inner) = parts.split_last().unwrap();
            for part in inner {
                at = at.entry(*part).or_insert_with(|| json!({})).as_object_mut().unwrap();
            }
            at.insert((*last).to_owned(), value.clone());
        }
        resolve(&model, &example, &self.request, &self.overrides)
    }

    /// Settings of Wan 2.1 T2V 1.3B in FastVideo.
    fn fast(&self) -> Settings {
        self.of("wan21-t2v-1.3b", "fastvideo").unwrap().0
    }

    fn diffusers(&self) -> Settings {
        self.of("wan21-t2v-1.3b", "diffusers").unwrap().0
    }

    fn errors(&self, deployment: &str) -> Vec<InputError> {
        self.of("wan21-t2v-1.3b", deployment).unwrap_err()
    }
}

fn ask() -> Ask {
    Ask::default()
}

fn reported<'a>(settings: &'a Settings, key: &str) -> (&'a Value, Provenance) {
    let found: Vec<_> = settings.reported.iter().filter(|setting| setting.key == key).collect();
    assert_eq!(found.len(), 1, "{key}: {found:?}");
    (&found[0].value, found[0].provenance)
}

fn placement(settings: &Settings, role: Role) -> Placement {
    settings.component(role).unwrap().placement
}

/// The only reason, which is about `name`.
fn unknown(settings: &Settings, name: &str) {
    assert_eq!(settings.unknown.len(), 1, "{:?}", settings.unknown);
    assert_eq!(settings.unknown[0].code, "unknown-setting");
    assert!(settings.unknown[0].message.contains(name), "{}", settings.unknown[0].message);
}

fn noted(settings: &Settings, text: &str) {
    assert!(settings.notes.iter().any(|note| note.contains(text)), "{text}: {:?}", settings.notes);
}

fn error(errors: &[InputError], code: &str, text: &str) {
    assert!(errors.iter().any(|error| error.code == code && error.message.contains(text)), "{code} {text}: {errors:?}");
}

const STREAMED: Placement = Placement::Streamed { resident: 0, prefetch: 1, group: 1, pinned: true, rest_resident: true };
const MOVED: Placement = Placement::Moved { pinned: false };

#[test]
fn every_wan_deployment_is_known() {
    let mut seen = 0;
    let mut names: Vec<_> = std::fs::read_dir(models()).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for path in names {
        let model: Model = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        for example in &model.examples {
            let out = resolve(&model, example, &PartialRequest::default(), &Overrides::default());
            let (settings, request) = out.unwrap_or_else(|errors| panic!("{} {}: {errors:?}", model.id, example.id));
            let keys: std::collections::BTreeSet<_> = settings.reported.iter().map(|setting| &setting.key).collect();
            assert_eq!(keys.len(), settings.reported.len(), "{} {}: a setting is reported twice", model.id, example.id);
            assert!(request.height > 0 && request.num_frames > 0);
            if model.memory_rules == "wan" {
                seen += 1;
                assert!(settings.unknown.is_empty(), "{} {}: {:?}", model.id, example.id, settings.unknown);
            } else {
                // What other families leave open, and nothing else.
                let open = match example.runtime {
                    Runtime::FastVideo => example.id == "fastvideo-4gpu",
                    Runtime::Diffusers => {
                        let covered = crate::family::find(&model.memory_rules).is_some();
                        !covered && example.base_config["generator"]["pipeline"]["vae_tiling"] == json!(true)
                    }
                    Runtime::FreeVideo | Runtime::FvRun => true,
                };
                assert_eq!(!settings.unknown.is_empty(), open, "{} {}: {:?}", model.id, example.id, settings.unknown);
            }
        }
    }
    assert_eq!(seen, 21);
}

#[test]
fn other_runtimes_are_not_resolved() {
    let (settings, request) = ask().of("minimax-h3", "freevideo").unwrap();
    assert_eq!(settings.unknown[0].code, "uncovered-runtime");
    assert_eq!((request.height, request.num_frames, request.text_tokens), (768, 243, 367));
}

#[test]
fn a_decimal_number_is_scaled_without_floating_point() {
    for (text, unit, bytes) in [
        ("12", 1 << 30, Some(12 << 30)),
        ("0.5", 1 << 30, Some(1 << 29)),
        (".25", 1_000, Some(250)),
        ("1.", 10, Some(10)),
        ("0.8", 1_000, Some(800)),
        ("0.29", 100, Some(29)),
        ("", 1, None),
        (".", 1, None),
        ("-1", 1, None),
        ("1e3", 1, Some(1_000)),
        ("1e-8", 1_000, Some(0)),
        ("2.5E-1", 1_000, Some(250)),
        ("12e-1", 10, Some(12)),
        ("1e400", 1, None),
        ("1e-400", 1, Some(0)),
        ("0e99", 1, Some(0)),
        ("1e", 1, None),
        ("e1", 1, None),
        ("99999999999999999999", 1, None),
        ("999999999999999999", u64::MAX, None),
    ] {
        assert_eq!(scaled(text, unit), bytes, "{text}");
    }
}

mod fastvideo {
    use super::*;

    #[test]
    fn defaults_of_wan() {
        let settings = ask().fast();
        assert_eq!(placement(&settings, Role::Transformer), STREAMED);
        assert_eq!(placement(&settings, Role::TextEncoder), Placement::Gathered);
        assert_eq!(placement(&settings, Role::Vae), MOVED);
        assert!(settings.component(Role::ImageEncoder).is_none());
        let dit = settings.component(Role::Transformer).unwrap().precision;
        assert_eq!((dit.stored, dit.computed, dit.cast_cache, dit.keep_fp32), (Storage::Plain(Dtype::Bf16), Dtype::Bf16, false, false));
        let text = settings.component(Role::TextEncoder).unwrap().precision;
        assert_eq!((text.stored, text.computed), (Storage::Plain(Dtype::Fp32), Dtype::Fp32));
        let vae = settings.component(Role::Vae).unwrap().precision;
        assert_eq!((vae.stored, vae.computed, vae.cast_cache), (Storage::Plain(Dtype::Fp32), Dtype::Bf16, true));
        assert!(settings.feature_cache && settings.tiling.is_none() && settings.pinned_rounding && settings.pinned_host);
        assert_eq!((settings.attention, settings.guidance, settings.compile), (Attention::Flash, Guidance::Sequential, false));
        assert_eq!((settings.gpu_count, settings.tensor_parallel, settings.sequence_parallel, settings.shard), (1, 1, 1, 1));
        assert_eq!(reported(&settings, "dit_layerwise_offload"), (&json!(true), Provenance::Authored));
        assert_eq!(reported(&settings, "dit_cpu_offload"), (&json!(false), Provenance::Forced));
        assert_eq!(reported(&settings, "use_fsdp_inference"), (&json!(false), Provenance::RuntimeDefault));
        assert_eq!(reported(&settings, "vae_precision"), (&json!("fp32"), Provenance::RuntimeDefault));
        assert_eq!(reported(&settings, "vae_decode_precision"), (&json!("bf16"), Provenance::RuntimeDefault));
        assert_eq!(reported(&settings, "text_encoder_precisions"), (&json!(["fp32"]), Provenance::RuntimeDefault));
        assert_eq!(reported(&settings, "vae_autocast_weight_copies"), (&json!(true), Provenance::RuntimeDefault));
        assert_eq!(reported(&settings, "guidance").0, &json!("sequential"));
    }

    #[test]
    fn the_published_recipe_still_streams_its_transformer() {
        let (settings, _) = ask().of("fastwan21", "default").unwrap();
        assert_eq!(placement(&settings, Role::Transformer), STREAMED);
        assert_eq!(placement(&settings, Role::Vae), Placement::Resident);
        assert_eq!(reported(&settings, "dit_layerwise_offload"), (&json!(true), Provenance::RuntimeDefault));
        assert_eq!(reported(&settings, "dit_cpu_offload"), (&json!(false), Provenance::Authored));
        assert_eq!(reported(&settings, "attention_backend"), (&json!("VIDEO_SPARSE_ATTN"), Provenance::Environment));
        assert_eq!(settings.attention, Attention::VideoSparse { sparsity_permille: 800, tile: 64 });
        assert_eq!(settings.guidance, Guidance::None);
        assert_eq!(reported(&settings, "guidance"), (&json!("none"), Provenance::Forced));
        noted(&settings, "DMD");
        // Layerwise pins whatever is asked; the text encoder follows the setting.
        assert!(settings.pinned_rounding && !settings.pinned_host && settings.compile);
        noted(&settings, "pin_cpu_memory: false");
    }

    #[test]
    fn offload_flags_and_what_they_force() {
        let off = |name: &str| ask().set("dit_layerwise_offload", json!(false)).set(name, json!(false));
        let settings = ask().set("generator.engine.offload.dit_layerwise", json!(false)).fast();
        assert_eq!(placement(&settings, Role::Transformer), MOVED);
        assert_eq!(reported(&settings, "dit_layerwise_offload"), (&json!(false), Provenance::User));
        assert_eq!(reported(&settings, "dit_cpu_offload"), (&json!(true), Provenance::Authored));
        assert_eq!(placement(&off("dit_cpu_offload").fast(), Role::Transformer), Placement::Resident);
        assert_eq!(placement(&off("engine.offload.text_encoder").fast(), Role::TextEncoder), Placement::Resident);
        assert_eq!(placement(&off("vae_cpu_offload").fast(), Role::Vae), Placement::Resident);
        let (settings, _) = off("image_encoder_cpu_offload").of("wan21-i2v-14b", "fastvideo").unwrap();
        assert_eq!(placement(&settings, Role::ImageEncoder), Placement::Resident);
        let (settings, _) = ask().of("wan21-i2v-14b", "fastvideo").unwrap();
        assert_eq!(placement(&settings, Role::ImageEncoder), MOVED);

        let settings = ask().set("use_fsdp_inference", json!(true)).fast();
        assert_eq!(reported(&settings, "use_fsdp_inference"), (&json!(false), Provenance::Forced));
        assert_eq!(settings.shard, 1);
        noted(&settings, "use_fsdp_inference has no effect");
    }

    #[test]
    fn fsdp_shards_and_gathers() {
        let base = ask().set("num_gpus", json!(2)).set("dit_layerwise_offload", json!(false)).set("use_fsdp_inference", json!(true));
        let settings = base.fast();
        assert_eq!((settings.shard, settings.sequence_parallel, settings.tensor_parallel, settings.gpu_count), (2, 2, 1, 2));
        assert_eq!(placement(&settings, Role::Transformer), Placement::Gathered);
        let settings = base.clone().set("dit_cpu_offload", json!(false)).fast();
        assert_eq!((settings.shard, placement(&settings, Role::Transformer)), (2, Placement::Resident));
        let errors = base.clone().set("hsdp_replicate_dim", json!(2)).errors("fastvideo");
        error(&errors, "conflict", "hsdp_replicate_dim 2 times hsdp_shard_dim 2 is not num_gpus 2");
        let settings = base.set("hsdp_replicate_dim", json!(2)).set("hsdp_shard_dim", json!(1)).fast();
        assert_eq!(settings.shard, 1);
    }

    #[test]
    fn both_experts_are_streamed() {
        let (settings, _) = ask().env("FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS", "7").of("wan22-t2v-a14b", "fastvideo").unwrap();
        for role in [Role::Transformer, Role::Transformer2] {
            assert_eq!(
                placement(&settings, role),
                Placement::Streamed { resident: 7, prefetch: 1, group: 1, pinned: true, rest_resident: true }
            );
        }
    }

    #[test]
    fn ranks() {
        let settings = ask().set("num_gpus", json!(4)).fast();
        assert_eq!((settings.tensor_parallel, settings.sequence_parallel), (1, 4));
        assert_eq!(reported(&settings, "sp_size"), (&json!(4), Provenance::RuntimeDefault));
        // One rank belongs to a group of each kind.
        let (settings, _) = ask().of("wan21-i2v-14b", "fastvideo-2gpu").unwrap();
        assert_eq!((settings.gpu_count, settings.tensor_parallel, settings.sequence_parallel), (2, 2, 2));
        for (name, value, text) in [
            ("sp_size", 2, "sp_size 2 does not divide num_gpus 1"),
            ("tp_size", 4, "tp_size 4 does not divide num_gpus 1"),
            ("hsdp_shard_dim", 2, "hsdp_shard_dim 2"),
        ] {
            error(&ask().set(name, json!(value)).errors("fastvideo"), "conflict", text);
        }
        error(&ask().set("num_gpus", json!(8)).errors("fastvideo"), "conflict", "12 attention heads");
        error(&ask().set("sp_size", json!(0)).errors("fastvideo"), "invalid-value", "sp_size");
        error(&ask().set("num_gpus", json!(0)).errors("fastvideo"), "invalid-value", "from 1 to 1024");
    }

    #[test]
    fn precisions() {
        let vae = |ask: Ask| ask.fast().component(Role::Vae).unwrap().precision;
        let bf16 = vae(ask().set("vae_precision", json!("bf16")));
        assert_eq!((bf16.stored, bf16.computed, bf16.cast_cache), (Storage::Plain(Dtype::Bf16), Dtype::Bf16, false));
        let fp32 = vae(ask().set("vae_decode_precision", json!("fp32")));
        assert_eq!((fp32.stored, fp32.computed, fp32.cast_cache), (Storage::Plain(Dtype::Fp32), Dtype::Fp32, false));
        let settings = ask().set("disable_autocast", json!(true)).fast();
        let plain = settings.component(Role::Vae).unwrap().precision;
        assert_eq!((plain.computed, plain.cast_cache), (Dtype::Fp32, false));
        assert_eq!(reported(&settings, "vae_decode_precision"), (&json!("fp32"), Provenance::Forced));
        unknown(&ask().set("vae_precision", json!("fp16")).fast(), "vae_precision");
        unknown(&ask().set("dit_precision", json!("fp32")).fast(), "dit_precision");
        let settings = ask().config("generator/engine/precision", json!({"text_encoders": ["bf16"], "vae": "bf16"})).fast();
        assert_eq!(settings.component(Role::TextEncoder).unwrap().precision.computed, Dtype::Bf16);
        assert_eq!(reported(&settings, "text_encoder_precisions"), (&json!(["bf16"]), Provenance::Authored));
        error(&ask().set("text_encoder_precisions", json!(["bf16", "fp16"])).errors("fastvideo"), "invalid-value", "2 types for 1");
        let (settings, _) = ask().set("image_encoder_precision", json!("bf16")).of("wan21-i2v-14b", "fastvideo").unwrap();
        assert_eq!(settings.component(Role::ImageEncoder).unwrap().precision.computed, Dtype::Bf16);
    }

    #[test]
    fn precisions_of_other_families() {
        use Dtype::{Bf16, Fp16, Fp32};
        for (id, vae, text, text_2) in [
            ("hunyuanvideo", (Fp16, Fp16, false), Fp16, Some(Fp16)),
            ("hunyuanvideo-1.5", (Fp16, Fp16, false), Bf16, Some(Fp32)),
            ("ltx-2", (Bf16, Bf16, false), Bf16, None),
            ("kandinsky5-lite", (Bf16, Bf16, false), Bf16, Some(Bf16)),
            ("cosmos-predict2-2b", (Fp16, Fp16, false), Bf16, None),
            ("minimax-h3", (Fp32, Fp16, true), Bf16, None),
        ] {
            let (settings, _) = ask().of(id, "fastvideo").unwrap();
            let stored = |role| settings.component(role).map(|c| c.precision.computed);
            let p = settings.component(Role::Vae).unwrap().precision;
            assert_eq!((p.stored, p.computed, p.cast_cache), (Storage::Plain(vae.0), vae.1, vae.2), "{id}");
            assert_eq!((stored(Role::TextEncoder), stored(Role::TextEncoder2)), (Some(text), text_2), "{id}");
            assert!(!settings.feature_cache && settings.tiling.is_some(), "{id}");
        }
    }

    #[test]
    fn a_cached_decode_bypasses_tiling() {
        let settings = ask().set("vae_tiling", json!(true)).set("vae_config.tile_sample_min_height", json!(512)).fast();
        assert!(settings.feature_cache && settings.tiling.is_none());
        assert_eq!(reported(&settings, "vae_tiling"), (&json!(false), Provenance::Forced));
        noted(&settings, "vae_tiling has no effect");
        noted(&settings, "vae_config.tile_sample_min_height");
    }

    #[test]
    fn tiling_without_the_cache() {
        // The example of the authoring guide, with literal dotted keys.
        let guide = json!({
            "vae_config.use_feature_cache": false,
            "vae_config.tile_sample_min_height": 512,
            "vae_config.tile_sample_min_width": 512,
            "vae_config.tile_sample_stride_height": 384,
            "vae_config.tile_sample_stride_width": 384,
        });
        let base = ask().config("generator/pipeline/vae_tiling", json!(true));
        let tiled = |temporal| Some(Tiling { tile: [512, 512], stride: [384, 384], temporal });
        let settings = base.clone().config("generator/pipeline/experimental", guide.clone()).fast();
        assert_eq!((settings.feature_cache, settings.tiling), (false, tiled(None)));
        assert_eq!(reported(&settings, "vae_config.use_feature_cache"), (&json!(false), Provenance::Authored));
        let settings =
            base.clone().config("generator/pipeline/experimental", guide).set("vae_config.use_temporal_tiling", json!(true)).fast();
        assert_eq!(settings.tiling, tiled(Some([16, 12])));
        // Nested is the same as dotted.
        let nested = json!({"vae_config": {"use_feature_cache": false}});
        let settings = base.config("generator/pipeline/experimental", nested).fast();
        assert_eq!(settings.tiling, Some(Tiling { tile: [256, 256], stride: [192, 192], temporal: None }));
        // Neither: the whole picture and the whole clip at once.
        let settings = ask().set("vae_config.use_feature_cache", json!(false)).fast();
        assert_eq!((settings.feature_cache, settings.tiling), (false, None));
        let settings = ask().set("vae_config.use_feature_cache", json!(false)).set("vae_config.use_tiling", json!(true)).fast();
        assert!(settings.tiling.is_some());
    }

    #[test]
    fn impossible_tiles() {
        let base = ask().set("vae_config.use_feature_cache", json!(false)).set("vae_tiling", json!(true));
        let errors = base.clone().set("vae_config.tile_sample_min_height", json!(100)).errors("fastvideo");
        error(&errors, "invalid-value", "multiples of 8");
        error(&errors, "conflict", "tile_sample_stride_height 192 is above");
        // Under the name that was written, of several.
        for (written, key) in [
            ("vae_config.tile_sample_stride_height", "vae_config.tile_sample_stride_height"),
            ("pipeline.experimental.vae_config.tile_sample_min_width", "vae_config.tile_sample_min_width"),
            ("generator.pipeline.vae.tile_sample_stride_width", "vae_config.tile_sample_stride_width"),
        ] {
            let errors = base.clone().set(written, json!(100)).errors("fastvideo");
            assert!(errors.iter().any(|error| error.message.starts_with(&format!("{written}: found 100"))), "{key}: {errors:?}");
        }
        let errors = base.set("vae_config.tile_sample_stride_width", json!(0)).errors("fastvideo");
        error(&errors, "invalid-value", "from 1 to 16384");
    }

    #[test]
    fn tiles_over_ranks_are_unknown() {
        let base = ask().set("vae_config.use_feature_cache", json!(false)).set("vae_tiling", json!(true)).set("num_gpus", json!(2));
        assert!(base.fast().unknown.is_empty());
        unknown(&base.clone().set("vae_sp", json!(true)).fast(), "vae_sp");
        unknown(&base.set("vae_config.use_parallel_tiling", json!(true)).fast(), "use_parallel_tiling");
    }

    #[test]
    fn attention_backends() {
        let of = |name: &str| ask().env("FASTVIDEO_ATTENTION_BACKEND", name).fast();
        assert_eq!(of("TORCH_SDPA").attention, Attention::Sdpa);
        assert_eq!(of("FLASH_ATTN").attention, Attention::Flash);
        assert_eq!(reported(&of("FLASH_ATTN"), "attention_backend"), (&json!("FLASH_ATTN"), Provenance::User));
        for name in ["SAGE_ATTN", "SAGE_ATTN_THREE", "SLIDING_TILE_ATTN", "VMOBA_ATTN", "SOMETHING_NEW", "VIDEO_SPARSE_ATTN_H3"] {
            unknown(&of(name), name);
        }
        // Sparse attention and gates need each other.
        unknown(&of("VIDEO_SPARSE_ATTN"), "VIDEO_SPARSE_ATTN");
        let (settings, _) = ask().env("FASTVIDEO_ATTENTION_BACKEND", "TORCH_SDPA").of("fastwan21", "default").unwrap();
        unknown(&settings, "VSA gates");
        // The argument wins over the variable.
        let settings = ask().env("FASTVIDEO_ATTENTION_BACKEND", "TORCH_SDPA").set("attention_backend", json!("FLASH_ATTN")).fast();
        assert_eq!(settings.attention, Attention::Flash);
        noted(&settings, "FASTVIDEO_ATTENTION_BACKEND has no effect");
        let settings = ask().config("generator/engine/attention", json!({"backend": "TORCH_SDPA"})).fast();
        assert_eq!(settings.attention, Attention::Sdpa);
        error(&ask().set("attention_backend", json!("FLASH_ATN")).errors("fastvideo"), "invalid-value", "FLASH_ATTN");
    }

    #[test]
    fn sparsity_has_two_spellings() {
        for ask in [
            ask().config("generator/pipeline/experimental", json!({"VSA_sparsity": 0.9, "VSA_tile_size": 256})),
            ask()
                .config("generator/pipeline/experimental", json!({}))
                .config("generator/engine/attention", json!({"vsa_sparsity": 0.9, "vsa_tile_size": 256})),
            ask().set("VSA_sparsity", json!(0.9)).set("generator.pipeline.experimental.VSA_tile_size", json!(256)),
        ] {
            let (settings, _) = ask.of("fastwan21", "default").unwrap();
            assert_eq!(settings.attention, Attention::VideoSparse { sparsity_permille: 900, tile: 256 });
        }
        let (settings, _) = ask().config("generator/pipeline/experimental", json!({})).of("fastwan21", "default").unwrap();
        assert_eq!(settings.attention, Attention::VideoSparse { sparsity_permille: 0, tile: 64 });
        assert_eq!(reported(&settings, "VSA_sparsity"), (&json!(0.0), Provenance::RuntimeDefault));
        noted(&ask().set("VSA_sparsity", json!(0.5)).fast(), "VSA_sparsity has no effect");
        let errors = ask().set("VSA_sparsity", json!(1.0)).set("VSA_tile_size", json!(100)).errors("fastvideo");
        error(&errors, "invalid-value", "from 0 to below 1");
        error(&errors, "invalid-value", "64 or 256");
        let (settings, _) = ask().of("fasth3", "fastvideo").unwrap();
        assert_eq!(settings.attention, Attention::VideoSparse { sparsity_permille: 800, tile: 64 });
    }

    #[test]
    fn guidance() {
        let with = |scale| Ask { request: PartialRequest { guidance_scale: Some(scale), ..PartialRequest::default() }, ..ask() };
        assert_eq!(with(1.0).fast().guidance, Guidance::None);
        assert_eq!(with(1.01).fast().guidance, Guidance::Sequential);
        assert_eq!(ask().set("use_batched_cfg", json!(true)).fast().guidance, Guidance::Batched);
        assert_eq!(ask().config("default_request/sampling/batch_cfg", json!(true)).fast().guidance, Guidance::Batched);
        let settings = ask().set("override_pipeline_cls_name", json!("WanDMDPipeline")).fast();
        assert_eq!((settings.guidance, settings.unknown.len()), (Guidance::None, 0));
        // The pipelines that are modelled, each for the checkpoints that it can load.
        for (pipeline, dmd, text, image) in [
            ("WanPipeline", false, true, false),
            ("WanDMDPipeline", true, true, false),
            ("WanImageToVideoPipeline", false, false, true),
            ("WanImageToVideoDmdPipeline", true, false, true),
            ("WanCausalDMDPipeline", false, false, false),
            ("WanVideoToVideoPipeline", false, false, false),
            ("OtherPipeline", false, false, false),
        ] {
            for (model, known) in [("wan21-t2v-1.3b", text), ("wan22-ti2v-5b", text), ("fastwan21", text), ("wan21-i2v-14b", image)] {
                let deployment = if model == "fastwan21" { "default" } else { "fastvideo" };
                let settings = ask().set("override_pipeline_cls_name", json!(pipeline)).of(model, deployment).unwrap().0;
                if known {
                    assert!(settings.unknown.is_empty(), "{pipeline} {model}: {:?}", settings.unknown);
                    assert_eq!(settings.guidance == Guidance::None, dmd, "{pipeline} {model}");
                } else {
                    unknown(&settings, pipeline);
                }
                assert_eq!(reported(&settings, "override_pipeline_cls_name"), (&json!(pipeline), Provenance::User));
            }
        }
        // Without a second prediction there is no difference to keep.
        assert!(ask().env("FASTVIDEO_CFG_GATE_STEP", "0.5").fast().guidance_delta_kept);
        assert!(!ask().env("FASTVIDEO_CFG_GATE_STEP", "1.0").fast().guidance_delta_kept);
        let settings = with(1.0).env("FASTVIDEO_CFG_GATE_STEP", "0.5").fast();
        assert!(!settings.guidance_delta_kept);
        noted(&settings, "FASTVIDEO_CFG_GATE_STEP has no effect");
        error(&ask().env("FASTVIDEO_CFG_GATE_STEP", "2").errors("fastvideo"), "invalid-value", "from 0 to 1");
    }

    #[test]
    fn an_image_makes_ti2v_timesteps_per_token() {
        let with = |references| Ask { request: PartialRequest { references: Some(references), ..PartialRequest::default() }, ..ask() };
        assert!(!ask().of("wan22-ti2v-5b", "fastvideo").unwrap().0.per_token_timesteps);
        assert!(with(1).of("wan22-ti2v-5b", "fastvideo").unwrap().0.per_token_timesteps);
        let (settings, request) = ask().set("workload_type", json!("ti2v")).of("wan22-ti2v-5b", "fastvideo").unwrap();
        assert_eq!((settings.per_token_timesteps, request.references), (false, 0));
        assert!(!ask().of("wan21-i2v-14b", "fastvideo").unwrap().0.per_token_timesteps);
    }

    #[test]
    fn compile() {
        assert!(ask().set("enable_torch_compile", json!(true)).fast().compile);
        assert!(ask().set("engine.compile.enabled", json!(true)).fast().compile);
        let settings = ask().env("FASTVIDEO_INFERENCE_TORCH_COMPILE", "1").fast();
        assert!(settings.compile);
        assert_eq!(reported(&settings, "inference_torch_compile"), (&json!(true), Provenance::User));
        assert_eq!(reported(&settings, "compile"), (&json!(true), Provenance::Forced));
        assert!(ask().set("compile.fullgraph", json!(true)).fast().unknown.is_empty());
        unknown(&ask().set("engine.compile.mode", json!("reduce-overhead")).fast(), "engine.compile.mode");
        unknown(&ask().set("enable_torch_compile_vae", json!(true)).fast(), "enable_torch_compile_vae");
        unknown(&ask().set("torch_compile_kwargs", json!({"options": {"max_autotune": true}})).fast(), "torch_compile_kwargs");
        assert!(ask().config("generator/engine/compile", json!({"vae_enabled": null, "dit_kwargs": {}})).fast().unknown.is_empty());
    }

    #[test]
    fn quantisation_is_named_and_unknown() {
        let settings = ask().set("transformer_quant", json!("fp8")).fast();
        assert_eq!(settings.component(Role::Transformer).unwrap().precision.stored, Storage::Fp8PerTensor);
        unknown(&settings, "fp8");
        let settings = ask().config("generator/engine/quantization", json!({"text_encoder_quant": "NVFP4"})).fast();
        assert_eq!(settings.component(Role::TextEncoder).unwrap().precision.stored, Storage::Nvfp4);
        unknown(&settings, "text_encoder_quant");
        unknown(&ask().set("transformer_quant", json!("int3")).fast(), "int3");
        let config = json!({ "quant_backend": "bitsandbytes_4bit" });
        unknown(&ask().set("quantization_config", config.clone()).diffusers(), "quantization_config");
        unknown(&ask().config("generator/pipeline/quantization_config", config).diffusers(), "quantization_config");
        assert!(ask().set("quantization_config", json!({})).diffusers().unknown.is_empty());
    }

    #[test]
    fn environment_variables() {
        // What matters always, never, and only together with something else.
        for (name, value) in [
            ("FASTVIDEO_FA4", "1"),
            ("FASTVIDEO_VSA_TRITON", "1"),
            ("FASTVIDEO_VSA_TK", "1"),
            ("FASTVIDEO_VSA_CUTEDSL", "1"),
            ("FASTVIDEO_VSA_SM100A", "1"),
            ("FASTVIDEO_STAGE_LOGGING", "1"),
            ("FASTVIDEO_LOGGING_LEVEL", "DEBUG"),
            ("FASTVIDEO_CACHE_ROOT", "/tmp"),
            ("FASTVIDEO_LOG_ALL_PROCESSES", "1"),
            ("FASTVIDEO_MODEL", "fastwan"),
            ("FASTVIDEO_HOST_IP", "127.0.0.1"),
            ("FASTVIDEO_NCCL_SO_PATH", "/lib/nccl.so"),
            ("FASTVIDEO_TORCH_PROFILER_WITH_STACK", "1"),
            ("FASTVIDEO_DISABLE_FUSED_NORM", "1"),
            ("FASTVIDEO_DISABLE_ATTENTION_COMPILE", "0"),
            ("FASTVIDEO_DISABLE_ATTENTION_COMPILE", "1"),
            ("FASTVIDEO_FSDP2_AUTOWRAP", "0"),
            ("FASTVIDEO_FSDP2_MIN_PARAMS", "20000000"),
            ("FASTVIDEO_ULYSSES_A2A", "auto"),
            ("FASTVIDEO_LAYERWISE_OFFLOAD_BUFFERS", "1"),
            ("FASTVIDEO_RAY_PER_WORKER_GPUS", "1"),
            ("FASTVIDEO_CUDA_MEMORY_CAP_GIB", "0"),
            ("FASTVIDEO_NVFP4_MM_BACKEND", "cutlass"),
            ("CUDA_MODULE_LOADING", "LAZY"),
            ("NCCL_BUFFSIZE", "8388608"),
            ("NCCL_DEBUG", "INFO"),
            ("TORCHINDUCTOR_MAX_AUTOTUNE", "1"),
            ("TORCHINDUCTOR_CACHE_DIR", "/tmp"),
            ("CUDA_VISIBLE_DEVICES", "0"),
            ("HF_HOME", "/tmp"),
        ] {
            let settings = ask().env(name, value).fast();
            assert!(settings.unknown.is_empty(), "{name}: {:?}", settings.unknown);
        }
        for (name, value) in [
            ("FASTVIDEO_SOMETHING_NEW", "1"),
            // Longer than a name that is known.
            ("FASTVIDEO_LOGITS_CHUNK", "1"),
            ("FASTVIDEO_HOST_IPC_BUFFERS", "1"),
            ("FASTVIDEO_NCCL_BUFFERS", "1"),
            ("FASTVIDEO_TORCH_PROFILE_REGIONS_EVERYWHERE", "1"),
            ("FASTVIDEO_VIDEO_CODEC_BUFFERS", "1"),
            ("PYTORCH_HIP_ALLOC_CONF", "expandable_segments:True"),
            ("FASTVIDEO_FSDP2_AUTOWRAP", "1"),
            ("FASTVIDEO_RAY_PER_WORKER_GPUS", "0.5"),
            ("FASTVIDEO_TRACE_ACTIVATIONS", "1"),
            ("PYTORCH_NO_CUDA_MEMORY_CACHING", "1"),
            ("CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
        ] {
            unknown(&ask().env(name, value).fast(), name);
        }
        for (name, value) in [("NCCL_BUFFSIZE", "8388608"), ("NCCL_MAX_NCHANNELS", "4")] {
            noted(&ask().env(name, value).fast(), name);
            unknown(&ask().set("num_gpus", json!(2)).env(name, value).fast(), name);
        }
        assert!(ask().set("num_gpus", json!(2)).env("NCCL_DEBUG_FILE", "/tmp/log").fast().unknown.is_empty());
        let compiled = |name: &str| ask().set("enable_torch_compile", json!(true)).env(name, "1").fast();
        unknown(&compiled("TORCHINDUCTOR_MAX_AUTOTUNE"), "TORCHINDUCTOR_MAX_AUTOTUNE");
        assert!(compiled("TORCHINDUCTOR_COMPILE_THREADS").unknown.is_empty());
        let compiled = ask().set("enable_torch_compile", json!(true)).env("FASTVIDEO_DISABLE_ATTENTION_COMPILE", "0").fast();
        unknown(&compiled, "FASTVIDEO_DISABLE_ATTENTION_COMPILE");
        unknown(&ask().set("num_gpus", json!(2)).env("FASTVIDEO_ULYSSES_A2A", "auto").fast(), "FASTVIDEO_ULYSSES_A2A");
        error(&ask().env("FASTVIDEO_FSDP2_AUTOWRAP", "maybe").errors("fastvideo"), "invalid-value", "true or false");
        error(&ask().env("FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS", "-1").errors("fastvideo"), "invalid-value", "from 0");
    }

    #[test]
    fn h3_variables_matter_to_h3_alone() {
        for name in [
            "FASTVIDEO_H3_PARK_MODULES",
            "FASTVIDEO_H3_ENCODER_LAYERWISE",
            "FASTVIDEO_H3_ENCODER_FUSED_DEQUANT",
            "FASTVIDEO_H3_FFN_CHUNK_TOKENS",
            "FASTVIDEO_H3_VSA_TILE_FIRST",
            "FASTVIDEO_H3_VSA_SM89_KERNEL",
            "FASTVIDEO_H3_VAE_TILE_BATCH",
            "FASTVIDEO_H3_VAE_INT8_SHARED_QKV",
            "FASTVIDEO_H3_VAE_INT8_TRANSPOSE_VIEW",
            "FASTVIDEO_H3_VAE_INT8_FUSED_DEQUANT",
        ] {
            let settings = ask().env(name, "16384").fast();
            assert!(settings.unknown.is_empty());
            noted(&settings, &format!("{name} has no effect on wan"));
            // The family's rule reads numbers of rows and of tiles; the other names have other values.
            let of_h3 = ask().env(name, "16384").of("minimax-h3", "fastvideo").unwrap().0;
            if matches!(name, "FASTVIDEO_H3_FFN_CHUNK_TOKENS" | "FASTVIDEO_H3_VAE_TILE_BATCH") {
                assert!(of_h3.unknown.is_empty());
            } else {
                unknown(&of_h3, name);
            }
        }
        noted(&ask().env("FASTVIDEO_MINIMAX_H3_FUSIONS", "all").fast(), "FASTVIDEO_MINIMAX_H3_FUSIONS has no effect");
        let fused = ask().env("FASTVIDEO_MINIMAX_H3_FUSIONS", "qknorm_rope").of("minimax-h3", "fastvideo").unwrap().0;
        assert!(fused.fused_rope && fused.unknown.is_empty());
        unknown(&ask().env("FASTVIDEO_MINIMAX_H3_FUSIONS", "all").of("minimax-h3", "fastvideo").unwrap().0, "FUSIONS");
    }

    #[test]
    fn resident_blocks() {
        let resident = |ask: Ask| match placement(&ask.fast(), Role::Transformer) {
            Placement::Streamed { resident, .. } => resident,
            other => panic!("{other:?}"),
        };
        assert_eq!(resident(ask().env("FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS", "10")), 10);
        assert_eq!(resident(ask().env("FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS", "99")), 30);
        let settings = ask().env("FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS", "10").set("dit_layerwise_offload", json!(false)).fast();
        noted(&settings, "FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS has no effect");
        assert_eq!(placement(&settings, Role::Transformer), MOVED);
    }

    #[test]
    fn a_memory_cap_limits_the_allocator() {
        assert_eq!(ask().env("FASTVIDEO_CUDA_MEMORY_CAP_GIB", "12.5").fast().allocator.allowed, Some(25 << 29));
        assert_eq!(ask().env("FASTVIDEO_CUDA_MEMORY_CAP_GIB", "0").fast().allocator.allowed, None);
        error(&ask().env("FASTVIDEO_CUDA_MEMORY_CAP_GIB", "lots").errors("fastvideo"), "invalid-value", "GiB");
    }

    #[test]
    fn a_sparse_tile_from_the_environment() {
        let tile = |value: &str| ask().env("FASTVIDEO_VSA_TILE_SIZE", value).of("fastwan21", "default").unwrap().0;
        assert_eq!(tile("4x8x8").attention, Attention::VideoSparse { sparsity_permille: 800, tile: 256 });
        assert_eq!(tile("legacy").attention, Attention::VideoSparse { sparsity_permille: 800, tile: 64 });
        unknown(&tile("auto"), "FASTVIDEO_VSA_TILE_SIZE");
    }

    #[test]
    fn keys_that_no_rule_models() {
        for (path, value, name) in [
            ("generator/engine/new_switch", json!(true), "generator.engine.new_switch"),
            ("generator/pipeline/experimental/vae_config.new", json!(1), "vae_config.new"),
            ("generator/pipeline/components/lora_path", json!("x"), "lora_path"),
            ("generator/pipeline/output_type", json!("latent"), "output_type"),
            ("generator/pipeline/preset", json!("fast"), "preset"),
            ("default_request/runtime/enable_teacache", json!(true), "enable_teacache"),
            ("streaming/x", json!(1), "streaming.x"),
        ] {
            unknown(&ask().config(path, value).fast(), name);
        }
        for (path, value) in [
            ("generator/engine/enable_stage_verification", json!(false)),
            ("generator/pipeline/experimental/flow_shift", json!(8.0)),
            ("generator/pipeline/experimental/embedded_cfg_scale", json!(6.0)),
            ("generator/revision", json!("main")),
            ("default_request/runtime/enable_teacache", json!(false)),
            ("server/port", json!(1)),
            ("streaming/stream_mode", json!("av_fmp4")),
        ] {
            let settings = ask().config(path, value).fast();
            assert!(settings.unknown.is_empty(), "{path}: {:?}", settings.unknown);
        }
        let settings = ask().config("generator/pipeline/experimental/flow_shift", json!(8.0)).fast();
        assert_eq!(reported(&settings, "flow_shift"), (&json!(8.0), Provenance::Authored));
    }
}

mod diffusers {
    use super::*;

    #[test]
    fn defaults_of_wan() {
        let settings = ask().diffusers();
        for role in [Role::Transformer, Role::TextEncoder, Role::Vae] {
            assert_eq!(placement(&settings, role), MOVED);
        }
        let dit = settings.component(Role::Transformer).unwrap().precision;
        assert_eq!((dit.stored, dit.computed, dit.keep_fp32), (Storage::Plain(Dtype::Bf16), Dtype::Bf16, true));
        let text = settings.component(Role::TextEncoder).unwrap().precision;
        assert_eq!((text.stored, text.keep_fp32), (Storage::Plain(Dtype::Bf16), false));
        let vae = settings.component(Role::Vae).unwrap().precision;
        assert_eq!((vae.stored, vae.computed, vae.cast_cache), (Storage::Plain(Dtype::Fp32), Dtype::Fp32, false));
        assert_eq!((settings.attention, settings.guidance), (Attention::Sdpa, Guidance::Sequential));
        assert!(settings.feature_cache && settings.tiling.is_none() && !settings.vae_slicing && !settings.pinned_rounding);
        assert_eq!(reported(&settings, "model_cpu_offload_seq").0, &json!("text_encoder->transformer->vae"));
        assert_eq!(reported(&settings, "torch_dtype"), (&json!("bf16"), Provenance::Authored));
        noted(&settings, "without effect with diffusers: generator.engine.offload.dit");
        let (settings, _) = ask().of("fastwan21", "diffusers").unwrap();
        noted(&settings, "VSA_sparsity");
        assert!(!settings.compile);
        let (settings, _) = ask().of("wan22-i2v-a14b", "diffusers").unwrap();
        assert_eq!(reported(&settings, "model_cpu_offload_seq").0, &json!("text_encoder->transformer->transformer_2->vae"));
    }

    #[test]
    fn types() {
        let settings = ask().set("torch_dtype", json!("float16")).set("vae_dtype", json!("bf16")).diffusers();
        assert_eq!(settings.component(Role::TextEncoder).unwrap().precision.computed, Dtype::Fp16);
        assert_eq!(settings.component(Role::Vae).unwrap().precision.stored, Storage::Plain(Dtype::Bf16));
        // Without its own, the VAE follows.
        let settings = ask().set("vae_dtype", Value::Null).diffusers();
        assert_eq!(settings.component(Role::Vae).unwrap().precision.computed, Dtype::Bf16);
        assert_eq!(reported(&settings, "vae_dtype"), (&json!("bf16"), Provenance::RuntimeDefault));
        let settings = ask().set("torch_dtype", Value::Null).diffusers();
        assert_eq!(settings.component(Role::Transformer).unwrap().precision.stored, Storage::Plain(Dtype::Fp32));
        let (settings, _) = ask().of("wan21-i2v-14b", "diffusers").unwrap();
        assert_eq!(settings.component(Role::ImageEncoder).unwrap().precision.stored, Storage::Plain(Dtype::Fp32));
        error(
            &ask().set("vae_dtype", json!("fp8")).errors("diffusers"),
            "invalid-value",
            "vae_dtype: found the text \"fp8\", allowed: fp32, fp16, bf16",
        );
        error(&ask().set("vae_dtype", json!(32)).errors("diffusers"), "invalid-value", "found the number 32");
    }

    #[test]
    fn offloads() {
        let off = ask().set("model_cpu_offload", json!(false));
        assert_eq!(placement(&off.diffusers(), Role::Transformer), Placement::Resident);
        let settings = off.clone().set("sequential_cpu_offload", json!(true)).diffusers();
        assert_eq!(placement(&settings, Role::TextEncoder), Placement::Leaf { pinned: false });
        let blocks = off.clone().set("group_offload", json!("block_level"));
        let settings = blocks.clone().set("num_blocks_per_group", json!(4)).diffusers();
        assert_eq!(
            placement(&settings, Role::Transformer),
            Placement::Streamed { resident: 0, prefetch: 0, group: 4, pinned: false, rest_resident: false }
        );
        assert_eq!(placement(&settings, Role::TextEncoder), MOVED);
        let settings = blocks.clone().set("num_blocks_per_group", json!(4)).set("use_stream", json!(true)).diffusers();
        assert_eq!(
            placement(&settings, Role::Transformer),
            Placement::Streamed { resident: 0, prefetch: 1, group: 1, pinned: true, rest_resident: false }
        );
        assert_eq!(placement(&settings, Role::Vae), Placement::Moved { pinned: true });
        assert_eq!(reported(&settings, "num_blocks_per_group"), (&json!(1), Provenance::Forced));
        assert!(settings.pinned_rounding);
        let leaves = off.set("group_offload", json!("leaf_level")).set("use_stream", json!(true));
        assert_eq!(placement(&leaves.diffusers(), Role::Vae), Placement::Leaf { pinned: true });
        let settings = leaves.clone().set("low_cpu_mem_usage", json!(true)).diffusers();
        assert_eq!(placement(&settings, Role::Vae), Placement::Leaf { pinned: false });
        unknown(&leaves.set("record_stream", json!(true)).diffusers(), "record_stream");
        error(&blocks.errors("diffusers"), "missing-value", "num_blocks_per_group");
        assert!(ask().set("group_offload", json!("off")).diffusers().unknown.is_empty());
        assert!(ask().config("generator/pipeline/group_offload", json!(false)).diffusers().unknown.is_empty());
    }

    #[test]
    fn offloads_exclude_each_other() {
        let errors = ask().set("sequential_cpu_offload", json!(true)).errors("diffusers");
        error(&errors, "conflict", "generator.pipeline.model_cpu_offload and sequential_cpu_offload exclude each other");
        error(&ask().set("group_offload", json!("leaf_level")).errors("diffusers"), "conflict", "with --set model_cpu_offload=false");
        let two = ask()
            .set("group_offload", json!("leaf_level"))
            .set("sequential_cpu_offload", json!(true))
            .set("model_cpu_offload", json!(false));
        error(&two.errors("diffusers"), "conflict", "with --set sequential_cpu_offload=false or --set group_offload=off");
        error(&ask().set("group_offload", json!("sometimes")).errors("diffusers"), "invalid-value", "off, block_level, leaf_level");
    }

    #[test]
    fn tiling_and_slicing() {
        let settings = ask().set("vae_tiling", json!(true)).set("vae_slicing", json!(true)).diffusers();
        assert_eq!(settings.tiling, Some(Tiling { tile: [256, 256], stride: [192, 192], temporal: None }));
        assert!(settings.vae_slicing && settings.feature_cache);
        let settings = ask().set("vae_tiling", json!(true)).set("tile_sample_min_height", json!(512)).diffusers();
        assert_eq!(settings.tiling.unwrap().tile, [512, 256]);
        noted(&ask().set("tile_sample_min_height", json!(512)).diffusers(), "vae_tiling is off");
        error(&ask().set("vae_tiling", json!(true)).set("tile_sample_min_width", json!(128)).errors("diffusers"), "conflict", "gaps");
    }

    #[test]
    fn attention_backends() {
        for (name, kernel) in [
            ("native", Attention::Sdpa),
            ("_native_cudnn", Attention::Cudnn),
            ("_native_flash", Attention::Flash),
            ("_native_efficient", Attention::Efficient),
            ("_native_math", Attention::Math),
            ("flash", Attention::Flash),
        ] {
            assert_eq!(ask().set("attention_backend", json!(name)).diffusers().attention, kernel);
        }
        unknown(&ask().set("attention_backend", json!("sage")).diffusers(), "sage");
        error(&ask().set("attention_backend", json!("_native_cudn")).errors("diffusers"), "invalid-value", "did you mean _native_cudnn");
        let settings = ask().env("DIFFUSERS_ATTN_BACKEND", "_native_math").diffusers();
        assert_eq!(settings.attention, Attention::Math);
        assert_eq!(reported(&settings, "attention_backend"), (&json!("_native_math"), Provenance::User));
        noted(&ask().env("FASTVIDEO_ATTENTION_BACKEND", "SAGE_ATTN").diffusers(), "FASTVIDEO_ATTENTION_BACKEND");
    }

    #[test]
    fn guidance_of_each_pipeline() {
        for (id, guidance) in [
            ("wan22-t2v-a14b", Guidance::Sequential),
            ("cogvideox-5b", Guidance::Batched),
            ("mochi-1", Guidance::Batched),
            ("ltx-video-2b", Guidance::Batched),
            ("hunyuanvideo", Guidance::None),
            ("minimax-h3", Guidance::None),
        ] {
            assert_eq!(ask().of(id, "diffusers").unwrap().0.guidance, guidance, "{id}");
        }
        // One denoiser for text and image: its timesteps are per token in every case.
        assert!(ask().of("wan22-ti2v-5b", "diffusers").unwrap().0.per_token_timesteps);
        assert!(!ask().diffusers().per_token_timesteps);
    }

    #[test]
    fn what_is_not_modelled() {
        unknown(&ask().set("num_gpus", json!(2)).diffusers(), "num_gpus");
        unknown(&ask().config("generator/pipeline/quantization_config", json!({"bits": 4})).diffusers(), "quantization_config");
        unknown(&ask().env("DIFFUSERS_NEW", "1").diffusers(), "DIFFUSERS_NEW");
        unknown(&ask().of("hunyuanvideo-1.5", "diffusers").unwrap().0, "vae_tiling");
    }
}

mod allocator {
    use super::*;
    use crate::caching::{Config, POWER2_INTERVALS};

    fn of(text: &str) -> Settings {
        ask().env("PYTORCH_CUDA_ALLOC_CONF", text).diffusers()
    }

    #[test]
    fn options() {
        assert_eq!(ask().diffusers().allocator, Config::default());
        let config = of("expandable_segments:True, max_split_size_mb:128,max_non_split_rounding_mb:64,backend:native").allocator;
        assert!(config.expandable);
        assert_eq!((config.max_split_size, config.max_non_split_rounding), (Some(128 << 20), 64 << 20));
        assert!(ask().env("PYTORCH_ALLOC_CONF", "expandable_segments:True").fast().allocator.expandable);
        assert_eq!(of("large_segment_size_mb:32").allocator.large_segment, 32 << 20);
        let settings = of("expandable_segments:True");
        assert_eq!(reported(&settings, "PYTORCH_CUDA_ALLOC_CONF.expandable_segments"), (&json!("True"), Provenance::User));
    }

    #[test]
    fn rounding() {
        assert_eq!(of("roundup_power2_divisions:8").allocator.power2_divisions, [8; POWER2_INTERVALS]);
        let list = of("roundup_power2_divisions:[4:2,16:8,>:1]").allocator.power2_divisions;
        assert_eq!(list, [2, 2, 2, 0, 8, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn collection_is_a_share_of_the_cap() {
        let base = ask().env("PYTORCH_ALLOC_CONF", "garbage_collection_threshold:0.75");
        noted(&base.fast(), "garbage_collection_threshold has no effect");
        let config = base.env("FASTVIDEO_CUDA_MEMORY_CAP_GIB", "8").fast().allocator;
        assert_eq!(config.gc_threshold, Some(6 << 30));
    }

    #[test]
    fn what_is_not_modelled() {
        unknown(&of("backend:cudaMallocAsync"), "cudaMallocAsync");
        unknown(&of("something_new:1"), "something_new");
        assert!(of("pinned_num_register_threads:8").unknown.is_empty());
        let both = ask().env("PYTORCH_ALLOC_CONF", "expandable_segments:True");
        assert!(both.clone().env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True").fast().unknown.is_empty());
        unknown(&both.env("PYTORCH_CUDA_ALLOC_CONF", "").fast(), "PYTORCH_ALLOC_CONF");
    }

    #[test]
    fn what_cannot_be() {
        for text in [
            "expandable_segments:yes",
            "max_split_size_mb:20",
            "max_split_size_mb:x",
            "garbage_collection_threshold:1.0",
            "garbage_collection_threshold:0",
            "roundup_power2_divisions:3",
            "roundup_power2_divisions:[4:2",
            "roundup_power2_divisions:[3:2]",
        ] {
            let errors = ask().env("PYTORCH_CUDA_ALLOC_CONF", text).errors("diffusers");
            error(&errors, "invalid-value", text.split(':').next().unwrap());
        }
    }
}

mod request {
    use super::*;

    fn with(change: impl Fn(&mut PartialRequest)) -> Ask {
        let mut ask = ask();
        change(&mut ask.request);
        ask
    }

    fn of(ask: &Ask) -> Request {
        ask.of("wan21-t2v-1.3b", "fastvideo").unwrap().1
    }

    #[test]
    fn defaults() {
        let request = of(&ask());
        assert_eq!((request.height, request.width, request.num_frames, request.batch), (480, 832, 81, 1));
        assert_eq!((request.num_inference_steps, request.text_tokens, request.references), (50, 512, 0));
        assert!((request.guidance_scale - 3.0).abs() < f64::EPSILON);
        for (id, deployment, height, frames, guidance) in [
            ("wan21-t2v-1.3b", "fastvideo", 480, 81, 3.0),
            ("wan21-t2v-14b", "fastvideo", 720, 81, 5.0),
            ("wan21-t2v-14b", "diffusers", 480, 81, 5.0),
            ("wan22-ti2v-5b", "fastvideo", 704, 121, 5.0),
            ("cogvideox1.5-5b", "diffusers", 768, 81, 6.0),
        ] {
            let request = ask().config("default_request", json!({})).of(id, deployment).unwrap().1;
            assert_eq!((request.height, request.num_frames), (height, frames), "{id}");
            assert!((request.guidance_scale - guidance).abs() < f64::EPSILON, "{id}");
        }
        assert_eq!(ask().of("wan21-i2v-14b", "fastvideo").unwrap().1.references, 1);
        assert_eq!(ask().of("wan21-flf2v-14b", "diffusers").unwrap().1.references, 2);
        let request = of(&ask().config("default_request/sampling/num_videos_per_prompt", json!(2)));
        assert_eq!(request.batch, 2);
    }

    #[test]
    fn what_is_asked_for_wins() {
        let ask = with(|r| {
            (r.height, r.width, r.num_frames, r.batch) = (Some(720), Some(1280), Some(5), Some(2));
            (r.guidance_scale, r.num_inference_steps, r.text_tokens) = (Some(1.0), Some(4), Some(100));
        });
        let request = ask.of("wan21-t2v-1.3b", "diffusers").unwrap().1;
        assert_eq!((request.height, request.width, request.num_frames, request.batch), (720, 1280, 5, 2));
        assert_eq!((request.num_inference_steps, request.text_tokens), (4, 100));
        let (settings, request) = ask.of("wan21-t2v-1.3b", "fastvideo").unwrap();
        assert_eq!(request.text_tokens, 512);
        noted(&settings, "pads Wan's text to 512");
        noted(&settings, "more than one video at once");
    }

    #[test]
    fn sizes() {
        for (height, text) in
            [(0, "height: found 0"), (17_000, "at most"), (490, "multiples of 16 pixels; nearest: 480 or 496"), (8, "nearest: 16")]
        {
            let errors = with(|r| r.height = Some(height)).errors("fastvideo");
            let text = if text == "at most" { "to 16384 pixels" } else { text };
            error(&errors, "invalid-size", text);
        }
        // Its VAE compresses twice as much.
        let errors = with(|r| r.width = Some(1264)).of("wan22-ti2v-5b", "fastvideo").unwrap_err();
        error(&errors, "invalid-size", "multiples of 32 pixels; nearest: 1248 or 1280");
    }

    #[test]
    fn frames() {
        for (frames, text) in [(0, "found 0"), (80, "4k+1; nearest: 77 or 81"), (2, "nearest: 1 or 5"), (20_001, "at most 16384")] {
            error(&with(|r| r.num_frames = Some(frames)).errors("fastvideo"), "invalid-frames", text);
        }
        for frames in [1, 5, 77, 81, 121] {
            assert_eq!(of(&with(|r| r.num_frames = Some(frames))).num_frames, frames);
        }
        let errors = with(|r| r.num_frames = Some(130)).of("minimax-h3", "fastvideo").unwrap_err();
        error(&errors, "invalid-frames", "17k+5; nearest: 124 or 141");
        let errors = with(|r| r.num_frames = Some(3)).of("minimax-h3", "fastvideo").unwrap_err();
        error(&errors, "invalid-frames", "nearest: 5");
        let errors = with(|r| r.num_frames = Some(20)).of("mochi-1", "diffusers").unwrap_err();
        error(&errors, "invalid-frames", "6k+1; nearest: 19 or 25");
        // What is suggested is in the range that the pipeline takes.
        for (frames, text) in
            [(1, "17k+5, from 120 to 360; nearest: 124"), (130, "nearest: 124 or 141"), (350, "nearest: 345"), (4000, "nearest: 345")]
        {
            let errors = with(|r| r.num_frames = Some(frames)).of("minimax-h3", "diffusers").unwrap_err();
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].message.ends_with(text), "{errors:?}");
        }
        let errors = with(|r| r.num_frames = Some(16_384)).of("mochi-1", "diffusers").unwrap_err();
        error(&errors, "invalid-frames", "6k+1; nearest: 16381");
        let errors = with(|r| r.num_frames = Some(0)).of("mochi-1", "diffusers").unwrap_err();
        error(&errors, "invalid-frames", "at most 16384; nearest: 1");
    }

    #[test]
    fn seconds() {
        for (seconds, frames) in [(5.0, 81), (0.01, 1), (1.0, 17), (0.9, 13), (1000.0, 16_001)] {
            assert_eq!(of(&with(|r| r.seconds = Some(seconds))).num_frames, frames, "{seconds}");
        }
        let request = with(|r| r.seconds = Some(5.0)).config("default_request/sampling/fps", json!(24)).of("wan21-t2v-1.3b", "fastvideo");
        assert_eq!(request.unwrap().1.num_frames, 121);
        let both = with(|r| (r.seconds, r.num_frames) = (Some(5.0), Some(81)));
        error(&both.errors("fastvideo"), "conflict", "seconds and frames");
        for seconds in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9] {
            error(&with(|r| r.seconds = Some(seconds)).errors("fastvideo"), "invalid-frames", "seconds");
        }
    }

    #[test]
    fn counts() {
        error(&with(|r| r.batch = Some(0)).errors("fastvideo"), "invalid-value", "batch: found 0");
        error(&with(|r| r.num_inference_steps = Some(0)).errors("fastvideo"), "invalid-value", "steps");
        error(&with(|r| r.text_tokens = Some(513)).errors("diffusers"), "invalid-value", "from 1 to 512");
        error(&with(|r| r.guidance_scale = Some(-1.0)).errors("fastvideo"), "invalid-value", "guidance");
        error(&with(|r| r.guidance_scale = Some(f64::NAN)).errors("fastvideo"), "invalid-value", "guidance");
        error(&with(|r| r.references = Some(1)).errors("fastvideo"), "invalid-value", "allowed: 0, since wan21-t2v-1.3b is text to video");
        let errors = with(|r| r.references = Some(0)).of("wan22-i2v-a14b", "fastvideo").unwrap_err();
        error(&errors, "invalid-value", "allowed: 1 to 2");
        let errors = ask().config("default_request/sampling/height", json!("480")).errors("fastvideo");
        error(&errors, "invalid-value", "default_request.sampling.height: found the text \"480\"");
    }
}

#[test]
fn every_error_at_once() {
    let errors = Ask {
        request: PartialRequest { height: Some(1), num_frames: Some(2), ..PartialRequest::default() },
        overrides: Overrides {
            unified_memory: false,
            env: BTreeMap::from([("FASTVIDEO_FA4".to_owned(), "x".to_owned())]),
            set: vec![("dit_layerwise_ofload".to_owned(), json!(true)), ("vae_cpu_offload".to_owned(), json!("yes"))],
        },
        config: Vec::new(),
    }
    .errors("fastvideo");
    assert_eq!(errors.len(), 5, "{errors:?}");
    error(&errors, "unknown-key", "did you mean dit_layerwise_offload");
    error(&errors, "invalid-value", "vae_cpu_offload: found the text \"yes\", allowed: true or false");
}

#[test]
fn unknown_keys_name_their_neighbours() {
    let of = |name: &str, deployment| ask().set(name, json!(true)).errors(deployment);
    error(&of("use_tiling", "fastvideo"), "unknown-key", "vae_config.use_tiling");
    error(&of("generator.engine.offload.vea", "fastvideo"), "unknown-key", "engine.offload.vae");
    error(&of("xyzzy", "fastvideo"), "unknown-key", "no setting is called \"xyzzy\"");
    error(&of("model_cpu_ofload", "diffusers"), "unknown-key", "did you mean model_cpu_offload");
    // Known to the other runtime: without effect, and said so.
    noted(&ask().set("dit_layerwise_offload", json!(true)).diffusers(), "dit_layerwise_offload");
}

#[test]
fn a_setting_has_one_value_and_null_takes_back() {
    for (name, words) in [
        ("vae_cpu_offload", "vae_cpu_offload is set twice, to false and to true: leave out one"),
        ("engine.offload.vae", "vae_cpu_offload, which is engine.offload.vae, is set twice"),
        ("generator.engine.offload.vae", "is set twice"),
    ] {
        let asked = ask().set("vae_cpu_offload", json!(false));
        error(&asked.set(name, json!(true)).errors("fastvideo"), "conflict", words);
        let settings = ask().set("vae_cpu_offload", json!(false)).set(name, json!(false)).fast();
        assert_eq!(reported(&settings, "vae_cpu_offload"), (&json!(false), Provenance::User));
    }
    let (settings, _) = ask().set("vae_cpu_offload", Value::Null).of("fastwan21", "default").unwrap();
    assert_eq!(reported(&settings, "vae_cpu_offload"), (&json!(true), Provenance::RuntimeDefault));
}

#[test]
fn what_follows_is_forced_and_has_no_path() {
    let settings = ask().set("dit_layerwise_offload", json!(false)).fast();
    assert_eq!(reported(&settings, "dit_layerwise_offload").1, Provenance::User);
    assert_eq!(reported(&settings, "transformer.placement"), (&json!({"moved": {"pinned": false}}), Provenance::Forced));
    assert_eq!(reported(&settings, "transformer.precision").1, Provenance::RuntimeDefault);
    let path = |key| config_path(Runtime::FastVideo, key);
    assert_eq!(path("vae_cpu_offload").as_deref(), Some("generator.engine.offload.vae"));
    assert_eq!(path("vae_config.use_tiling").as_deref(), Some("generator.pipeline.experimental.vae_config.use_tiling"));
    assert_eq!(path("batch_cfg").as_deref(), Some("default_request.sampling.batch_cfg"));
    assert_eq!(config_path(Runtime::Diffusers, "torch_dtype").as_deref(), Some("generator.pipeline.torch_dtype"));
    for key in ["transformer.placement", "FASTVIDEO_LAYERWISE_RESIDENT_BLOCKS", "nothing"] {
        assert_eq!(path(key), None, "{key}");
    }
}

#[test]
fn every_field_of_settings_is_reported() {
    for (settings, fields) in [
        (ask().fast(), ["num_gpus", "tp_size", "sp_size", "hsdp_shard_dim", "vae_config.use_feature_cache"]),
        (ask().diffusers(), ["num_gpus", "tp_size", "sp_size", "hsdp_shard_dim", "feature_cache"]),
    ] {
        let common = ["runtime", "transformer.placement", "vae.precision", "attention", "fused_rope", "compile", "tiling", "vae_slicing"];
        let more = ["guidance", "guidance_delta_kept", "per_token_timesteps", "pinned_rounding", "pinned_host", "allocator"];
        for key in fields.into_iter().chain(common).chain(more) {
            reported(&settings, key);
        }
    }
}

#[test]
fn every_section_of_the_configuration_is_read() {
    // Unknown wherever it stands, and named as it is written.
    for path in [
        "generatr/engine/num_gpus",
        "generator/engine/hidden_memory_knob",
        "default_request/sampling/hidden_memory_knob",
        "default_request/sampling/enable_teacache",
        "default_request/hidden_memory_knob",
        "default_request/extra_section/deep/knob",
        "default_request/inputs/latents",
        "default_request/output/hidden_memory_knob",
        "default_request/stage_overrides/refine",
        "default_request/extensions/knob",
        "request/sampling/hidden_memory_knob",
        "request/sampling/true_cfg_scale",
        "request/runtime/enable_teacache",
        "server/hidden_memory_knob",
        "streaming/pool/hidden_memory_knob",
        "streaming/safety/enabled",
    ] {
        for deployment in ["fastvideo", "diffusers"] {
            let settings = ask().config(path, json!(true)).of("wan21-t2v-1.3b", deployment).unwrap().0;
            let written = path.replace('/', ".");
            if deployment == "diffusers" && path == "request/runtime/enable_teacache" {
                // Another runtime's setting.
                noted(&settings, &written);
            } else {
                unknown(&settings, &written);
            }
        }
    }
    // Known to leave memory alone, or saying nothing.
    for (path, value) in [
        ("default_request/prompt", json!("a hill")),
        ("default_request/sampling/seed", json!(7)),
        ("default_request/sampling/sigmas", json!([1.0, 0.5])),
        ("default_request/sampling/guidance_rescale", json!(0.0)),
        ("default_request/sampling/hidden_memory_knob", Value::Null),
        ("default_request/output", json!({"save_video": true, "return_frames": false, "output_path": "out"})),
        ("default_request/extensions", json!({})),
        ("default_request/inputs", json!({"image_path": null, "prompt_path": "prompts.txt"})),
        ("server", json!({"host": "0.0.0.0", "port": 8000})),
        ("streaming", json!({"warmup": {"enabled": true}, "pool": {"conditioning_num_frames": 9}})),
    ] {
        for deployment in ["fastvideo", "diffusers"] {
            let settings = ask().config(path, value.clone()).of("wan21-t2v-1.3b", deployment).unwrap().0;
            assert!(settings.unknown.is_empty(), "{path}: {:?}", settings.unknown);
        }
    }
}

#[test]
fn both_names_of_the_request_are_read() {
    let of = |ask: &Ask| ask.of("wan21-t2v-1.3b", "fastvideo").unwrap();
    let (_, request) = of(&ask().config("request", json!({"sampling": {"num_frames": 33, "num_inference_steps": 7}})));
    assert_eq!((request.num_frames, request.num_inference_steps, request.height), (33, 7, 480), "the rest is the other's");
    let (settings, _) = of(&ask().config("request/sampling/batch_cfg", json!(true)));
    assert_eq!(settings.guidance, Guidance::Batched);
    let alone = ask().config("default_request", Value::Null).config("request/sampling/height", json!(720));
    assert_eq!(of(&alone).1.height, 720);
}

#[test]
fn conditioning_inputs_are_references() {
    let of = |inputs: Value, model: &str| ask().config("default_request/inputs", inputs).of(model, "fastvideo");
    for (inputs, references) in [
        (json!({"image_path": "a.png"}), 1),
        (json!({"pil_image": "a.png", "last_image": "b.png"}), 2),
        (json!({"references": ["a.png", "b.png"]}), 2),
        (json!({"image_path": ["a.png"], "prompt_path": "p.txt"}), 1),
        (json!({"references": 1.0}), 1),
    ] {
        assert_eq!(of(inputs.clone(), "wan21-i2v-14b").unwrap().1.references, references, "{inputs}");
        error(&of(inputs, "wan21-t2v-1.3b").unwrap_err(), "invalid-value", &format!("references: found {references}, allowed: 0"));
    }
    let (settings, request) = of(json!({"image_path": "a.png"}), "wan22-ti2v-5b").unwrap();
    assert!(settings.per_token_timesteps && request.references == 1 && settings.unknown.is_empty());
    for wrong in [json!("two"), json!(1.5), json!(-1), json!(true)] {
        error(&of(json!({"references": wrong}), "wan21-i2v-14b").unwrap_err(), "invalid-value", "references");
    }
    // What is asked for comes first.
    let mut asked = ask().config("default_request/inputs/image_path", json!("a.png"));
    asked.request.references = Some(0);
    assert_eq!(asked.of("wan22-ti2v-5b", "fastvideo").unwrap().1.references, 0);
}

#[test]
fn the_workload_agrees_with_the_checkpoint() {
    for (model, workload, references) in [
        ("wan22-ti2v-5b", "t2v", Some(0)),
        ("wan22-ti2v-5b", "ti2v", Some(0)),
        ("wan22-ti2v-5b", "i2v", Some(1)),
        ("wan21-t2v-1.3b", "t2v", Some(0)),
        ("wan21-t2v-1.3b", "i2v", None),
        ("wan21-t2v-1.3b", "v2v", None),
        ("wan21-i2v-14b", "i2v", Some(1)),
        ("wan21-i2v-14b", "t2v", None),
        ("wan22-i2v-a14b", "t2v", None),
    ] {
        for deployment in ["fastvideo", "diffusers"] {
            let set = ask().set("workload_type", json!(workload));
            let authored = ask().config("generator/pipeline/workload_type", json!(workload));
            let dotted = ask().set("generator.pipeline.workload_type", json!(workload));
            for asked in [set, authored, dotted] {
                match references {
                    Some(count) => {
                        let (settings, request) = asked.of(model, deployment).unwrap();
                        assert_eq!(request.references, count, "{model} {workload}");
                        if deployment == "fastvideo" {
                            assert_eq!(settings.per_token_timesteps, count > 0 && model == "wan22-ti2v-5b", "{model} {workload}");
                        }
                    }
                    None => error(&asked.of(model, deployment).unwrap_err(), "invalid-value", &format!("workload_type: found {workload}")),
                }
            }
        }
    }
}

#[test]
fn environments_are_text() {
    for (value, found) in
        [(json!(10), "the number 10"), (json!(true), "true"), (Value::Null, "nothing"), (json!(["1"]), "a list"), (json!({}), "a mapping")]
    {
        for (id, deployment) in [("wan21-t2v-1.3b", "fastvideo"), ("wan21-t2v-1.3b", "diffusers"), ("minimax-h3", "freevideo")] {
            let model = model(id);
            let mut example = example(&model, deployment);
            example.env.insert("FASTVIDEO_FOO".to_owned(), value.clone());
            let errors = resolve(&model, &example, &PartialRequest::default(), &Overrides::default()).unwrap_err();
            error(&errors, "invalid-value", &format!("FASTVIDEO_FOO: found {found}, allowed: text"));
        }
    }
}

#[test]
fn environment_variables_are_no_settings() {
    for name in ["FASTVIDEO_FA4", "PYTORCH_ALLOC_CONF", "DIFFUSERS_ATTN_BACKEND"] {
        error(&ask().set(name, json!(true)).errors("fastvideo"), "unknown-key", "--env");
    }
    error(&ask().set("xyzzy", json!(true)).errors("fastvideo"), "unknown-key", "no setting is called");
}

#[test]
fn every_setting_given_is_reported_or_named() {
    // Values that each kind of key takes.
    let values = [
        json!(true),
        json!(1),
        json!("t2v"),
        json!("fp32"),
        json!("64"),
        json!(64),
        json!(0.5),
        json!("WanPipeline"),
        json!("native"),
        json!("leaf_level"),
        json!("TORCH_SDPA"),
        json!("x"),
    ];
    for (runtime, deployment) in [(Runtime::FastVideo, "fastvideo"), (Runtime::Diffusers, "diffusers")] {
        let (lookup, names) = super::names_of(runtime).unwrap();
        for name in names() {
            let Some(super::book::Meaning::Key(key)) = lookup(name) else { panic!("{name} is no key") };
            let mut taken = false;
            for value in &values {
                let settings = match ask().set(name, value.clone()).of("wan21-t2v-1.3b", deployment) {
                    Ok((settings, _)) => settings,
                    Err(errors) => {
                        // The value is one, and does not go with the rest.
                        taken |= errors.iter().all(|error| error.code == "conflict" || error.code == "missing-value");
                        continue;
                    }
                };
                taken = true;
                let told =
                    |setting: &fv_spec::estimate::Setting| setting.key == key.name && setting.provenance != Provenance::RuntimeDefault;
                let noted = settings.notes.iter().any(|note| note.contains(name));
                let unknown = settings.unknown.iter().any(|reason| reason.message.contains(name));
                assert!(settings.reported.iter().any(told) || noted || unknown, "{name}: {:?}", settings.notes);
            }
            assert!(taken || name.contains("tile_sample"), "{name} takes none of the values");
        }
    }
    for (key, value) in
        [("vae_parallel_decode", json!(false)), ("vae_parallel_encode", json!(true)), ("vae_parallel_decode_strategy", json!("xyz"))]
    {
        let settings = ask().set(key, value.clone()).fast();
        assert_eq!(reported(&settings, key), (&value, Provenance::User));
        noted(&settings, &format!("{key} has no effect on wan"));
    }
}

#[test]
fn a_sparsity_may_be_written_with_an_exponent() {
    for (value, permille) in
        [(json!(0.000_000_01), 0), (json!(1e-300), 0), (json!(8e-1), 800), (json!(0.29), 290), (json!(0), 0), (json!(0.9999), 999)]
    {
        let settings = ask().set("VSA_sparsity", value.clone()).of("fastwan21", "default").unwrap().0;
        assert_eq!(settings.attention, Attention::VideoSparse { sparsity_permille: permille, tile: 64 }, "{value}");
    }
    for value in [json!(1), json!(1.0), json!(1e300), json!(12)] {
        let errors = ask().set("VSA_sparsity", value).of("fastwan21", "default").unwrap_err();
        error(&errors, "invalid-value", "from 0 to below 1");
    }
}

#[test]
fn every_name_of_a_setting_has_one_path() {
    for runtime in [Runtime::FastVideo, Runtime::Diffusers, Runtime::FvRun] {
        let (lookup, names) = super::names_of(runtime).unwrap();
        for name in names() {
            let Some(super::book::Meaning::Key(key)) = lookup(name) else { panic!("{name} is no key") };
            let path = canonical(runtime, name);
            assert_eq!(path, Some(key.path()), "{name}");
            assert_eq!(canonical(runtime, &key.path()), path, "its own path");
            if !name.starts_with("default_request.") {
                assert_eq!(canonical(runtime, &format!("generator.{name}")), path, "{name}");
            }
        }
    }
    let of = |path| canonical(Runtime::FastVideo, path);
    assert_eq!(of("generator.pipeline.experimental.VSA_sparsity"), of("generator.engine.attention.vsa_sparsity"));
    assert_eq!(of("request.sampling.batch_cfg").as_deref(), Some("default_request.sampling.batch_cfg"));
    assert_eq!(of("generator.pipeline.experimental.moba_config.a.b").as_deref(), Some("generator.engine.attention.moba_config.a.b"));
    assert_eq!(of("generator.nothing"), None);
    assert_eq!(canonical(Runtime::FreeVideo, "num_gpus"), None);
}

#[test]
fn null_takes_every_spelling_out_of_a_configuration() {
    let base = json!({
        "generator": {"engine": {"offload": {"vae": false, "dit": true}}, "pipeline": {"experimental": {"vae_cpu_offload": false, "VSA_sparsity": 0.8}}},
        "request": {"sampling": {"batch_cfg": true}},
    });
    let base = base.as_object().unwrap();
    let left = |set: &[(&str, Value)], runtime| {
        let set: Vec<_> = set.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        Value::Object(without_nulls(runtime, base, &set))
    };
    let mut expected = Value::Object(base.clone());
    expected["generator"]["engine"]["offload"].as_object_mut().unwrap().remove("vae");
    expected["generator"]["pipeline"]["experimental"].as_object_mut().unwrap().remove("vae_cpu_offload");
    for name in ["vae_cpu_offload", "engine.offload.vae", "generator.engine.offload.vae", "pipeline.experimental.vae_cpu_offload"] {
        assert_eq!(left(&[(name, Value::Null)], Runtime::FastVideo), expected, "{name}");
    }
    assert_eq!(left(&[("vae_cpu_offload", json!(true))], Runtime::FastVideo), Value::Object(base.clone()));
    let without = left(&[("batch_cfg", Value::Null), ("vsa_sparsity", Value::Null)], Runtime::FastVideo);
    assert_eq!(
        (&without["request"]["sampling"], &without["generator"]["pipeline"]["experimental"]),
        (&json!({}), &json!({"vae_cpu_offload": false}))
    );
    assert_eq!(left(&[("engine.offload.vae", Value::Null)], Runtime::FreeVideo)["generator"]["engine"]["offload"], json!({"dit": true}));
}
