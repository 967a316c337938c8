#!/usr/bin/env python3
"""Record what diffusers' Wan models allocate, call site by call site.

Every case runs in a process of its own, forked from one that has only imported
the libraries (no CUDA context). Weights are made on the spot; nothing is
downloaded. Needs one CUDA GPU, torch, diffusers, transformers and accelerate.

    python3 tests/gpu/wan_memory.py              # all groups
    python3 tests/gpu/wan_memory.py --list       # case names, no GPU needed
    python3 tests/gpu/wan_memory.py GROUP|NAME...  # some of them

Groups: fixed (what a process costs before any model), sites (traces with call
sites), peaks (full depth, no trace), pipe (whole pipelines), host (pinned
memory), ops (single calls). fixed and peaks run alone on the card, the others
side by side.

Under $OUT (the current folder where OUT is unset):
  wan_traces.tar   NAME.txt.gz per sites case
  sites.json      per sites case: bases, peaks, parameters, retained blocks
  peaks.csv       one row per geometry, columns of h200_diffusers_peaks.csv
  peaks.json      the same rows with more columns
  pipelines.json, fixed.json, host.json, run.json
  ops.csv              single convolutions and attentions: what one call asks for

The lines of a trace are explained in recording.py, which holds the machinery.
"""

import csv
import gc
import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import recording as R  # noqa: E402
from recording import (  # noqa: E402
    DEV, DRY, S, Watch, build, child, device_used, dt, empty_cache, host, nvml_used, record, reset_peaks, small,
    stats, weigh,
)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

WAN_13B = dict(
    patch_size=(1, 2, 2), num_attention_heads=12, attention_head_dim=128,
    in_channels=16, out_channels=16, text_dim=4096, freq_dim=256, ffn_dim=8960,
    num_layers=30, cross_attn_norm=True, qk_norm="rms_norm_across_heads",
    eps=1e-6, rope_max_seq_len=1024,
)
WAN_14B = dict(WAN_13B, num_attention_heads=40, ffn_dim=13824, num_layers=40)
WAN_I2V = dict(WAN_14B, in_channels=36, image_dim=1280, added_kv_proj_dim=5120)
WAN_FLF = dict(WAN_I2V, pos_embed_seq_len=514)
WAN_5B = dict(WAN_13B, num_attention_heads=24, ffn_dim=14336, in_channels=48, out_channels=48)
DITS = {"dit1.3b": WAN_13B, "dit14b": WAN_14B, "i2v14b": WAN_I2V, "flf14b": WAN_FLF, "ti2v5b": WAN_5B}
VAE_22 = dict(
    base_dim=160, decoder_base_dim=256, z_dim=48, dim_mult=[1, 2, 4, 4], num_res_blocks=2,
    attn_scales=[], temperal_downsample=[False, True, True], dropout=0.0, is_residual=True,
    in_channels=12, out_channels=12, patch_size=2, scale_factor_temporal=4, scale_factor_spatial=16,
    latents_mean=[0.0] * 48, latents_std=[1.0] * 48,
)
UMT5 = dict(
    vocab_size=256384, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64,
    relative_attention_num_buckets=32, relative_attention_max_distance=128, dropout_rate=0.1,
    layer_norm_epsilon=1e-6, feed_forward_proj="gated-gelu", is_encoder_decoder=True,
    use_cache=True, tie_word_embeddings=False, scalable_attention=True,
)
CLIP = dict(
    hidden_size=1280, intermediate_size=5120, num_hidden_layers=32, num_attention_heads=16,
    image_size=224, patch_size=14, hidden_act="gelu", projection_dim=1024,
)

T = None  # torch, once imported


def libraries():
    global T
    T = R.libraries()
    from diffusers import AutoencoderKLWan, UniPCMultistepScheduler, WanImageToVideoPipeline  # noqa: F401
    from diffusers import WanPipeline, WanTransformer3DModel  # noqa: F401
    from transformers import CLIPImageProcessor, CLIPVisionModel, UMT5EncoderModel  # noqa: F401


# ---------------------------------------------------------------- the models


def build_dit(kind, dtype, layers=None, **kw):
    from diffusers import WanTransformer3DModel

    cfg = dict(DITS[kind])
    if layers:
        cfg["num_layers"] = layers
    if DRY:
        cfg.update(num_attention_heads=2, ffn_dim=64)
        if cfg.get("added_kv_proj_dim"):
            cfg.update(added_kv_proj_dim=256)
    return build(WanTransformer3DModel, cfg, dtype, **kw)


def build_vae(which, dtype, **kw):
    from diffusers import AutoencoderKLWan

    return build(AutoencoderKLWan, {"2.1": {}, "2.2": VAE_22}[which], dtype, **kw)


def build_umt5(dtype, layers=None, **kw):
    from transformers import UMT5Config, UMT5EncoderModel

    cfg = dict(UMT5, **({"num_layers": layers} if layers else {}))
    if DRY:
        cfg.update(vocab_size=1000, d_ff=64)
    return build(UMT5EncoderModel, lambda c: c(UMT5Config(**cfg)), dtype, **kw)


def build_clip(dtype, layers=None, **kw):
    from transformers import CLIPVisionConfig, CLIPVisionModel

    cfg = dict(CLIP, **({"num_hidden_layers": layers} if layers else {}))
    return build(CLIPVisionModel, lambda c: c(CLIPVisionConfig(**cfg)), dtype, **kw)


def dit_inputs(m, kind, dtype, h, w, f, batch=1, expand=False):
    h, w, f = small(h, w, f)
    c = m.config
    s = 16 if kind == "ti2v5b" else 8
    lf = (f - 1) // 4 + 1
    x = {
        "hidden_states": T.randn(batch, c.in_channels, lf, h // s, w // s, device=DEV, dtype=dtype),
        "encoder_hidden_states": T.randn(batch, 512, 4096, device=DEV, dtype=dtype),
        "return_dict": False,
    }
    if expand:
        n = lf * (h // s // 2) * (w // s // 2)
        x["timestep"] = T.full((n,), 500.0, device=DEV).unsqueeze(0).expand(batch, -1)
    else:
        x["timestep"] = T.tensor(500, device=DEV, dtype=T.int64).expand(batch)
    if c.image_dim:
        n = 2 if kind == "flf14b" else 1
        x["encoder_hidden_states_image"] = T.randn(batch * n, 257, 1280, device=DEV, dtype=dtype)
    return x


def latents(which, dtype, h, w, f, batch=1):
    h, w, f = small(h, w, f)
    s, z = (16, 48) if which == "2.2" else (8, 16)
    return T.randn(batch, z, (f - 1) // 4 + 1, h // s, w // s, device=DEV, dtype=dtype)


def pixels(dtype, h, w, f, batch=1):
    h, w, f = small(h, w, f)
    return T.rand(batch, 3, f, h, w, device=DEV, dtype=dtype)


def make(spec):
    """(forward, model, warm-up forward) of one case; spec is a dict."""
    s = dict(spec)
    part, dtype = s["part"], dt(s["dtype"])
    geo = (s.get("h"), s.get("w"), s.get("f"))
    b = s.get("b", 1)
    if part in DITS:
        m = s.get("model") or build_dit(part, dtype, s.get("layers"), mode=s.get("mode", "loaded"))
        if s.get("backend"):
            m.set_attention_backend(s["backend"])
        x = dit_inputs(m, part, dtype, *geo, batch=b, expand=s.get("expand", False))
        return (lambda: m(**x)[0]), m, x
    if part.startswith("vae"):
        which = part[3:]
        m = s.get("model") or build_vae(which, dtype)
        m.use_tiling = bool(s.get("tile"))
        m.use_slicing = bool(s.get("slice"))
        if s["what"] == "decode":
            z = latents(which, dtype, *geo, batch=b)
            return (lambda: m.decode(z, return_dict=False)[0]), m, z
        x = pixels(dtype, *geo, batch=b)
        return (lambda: m.encode(x).latent_dist.mode()), m, x
    if part == "umt5":
        m = s.get("model") or build_umt5(dtype, s.get("layers"))
        ids = T.ones(b, 512, dtype=T.int64, device=DEV)
        mask = T.zeros(b, 512, dtype=T.int64, device=DEV)
        mask[:, :40] = 1
        return (lambda: m(ids, mask).last_hidden_state), m, (ids, mask)
    if part == "clip":
        m = s.get("model") or build_clip(dtype, s.get("layers"))
        x = T.randn(b, 3, 224, 224, device=DEV)
        return (lambda: m(pixel_values=x, output_hidden_states=True).hidden_states[-2]), m, x
    raise ValueError(part)


# ---------------------------------------------------------------- A: sites


def sites_case(name, folder, spec):
    return R.sites_case(name, folder, spec, make)


def sites():
    c = {}

    def add(name, *a, **k):
        c["s_" + name] = S(*a, **k)

    L = {"layers": 3}
    add("vae21_dec_bf16_480x832x17", "vae2.1", "bf16", 480, 832, 17, what="decode")
    add("vae21_dec_fp32_480x832x17", "vae2.1", "fp32", 480, 832, 17, what="decode")
    add("dit1.3b_loaded_480x832x81", "dit1.3b", "bf16", 480, 832, 81, **L)
    add("dit1.3b_cast_480x832x81", "dit1.3b", "bf16", 480, 832, 81, mode="cast", **L)
    add("dit1.3b_loaded_352x640x33_b2", "dit1.3b", "bf16", 352, 640, 33, b=2, **L)
    add("dit1.3b_cast_352x640x33_b2", "dit1.3b", "bf16", 352, 640, 33, b=2, mode="cast", **L)
    add("dit1.3b_fp16_352x640x33_b2", "dit1.3b", "fp16", 352, 640, 33, b=2, **L)
    add("dit1.3b_fp32_352x640x33_b2", "dit1.3b", "fp32", 352, 640, 33, b=2, **L)
    add("dit14b_loaded_480x832x81", "dit14b", "bf16", 480, 832, 81, **L)
    add("i2v14b_loaded_480x832x81", "i2v14b", "bf16", 480, 832, 81, **L)
    add("ti2v5b_loaded_704x1280x121", "ti2v5b", "bf16", 704, 1280, 121, **L)
    add("ti2v5b_expand_704x1280x121", "ti2v5b", "bf16", 704, 1280, 121, expand=True, **L)
    add("vae22_dec_bf16_480x832x17", "vae2.2", "bf16", 480, 832, 17, what="decode")
    add("vae22_dec_fp32_480x832x17", "vae2.2", "fp32", 480, 832, 17, what="decode")
    add("vae21_dec_fp16_480x832x17", "vae2.1", "fp16", 480, 832, 17, what="decode")
    add("vae21_dec_bf16_tiled_480x832x17", "vae2.1", "bf16", 480, 832, 17, what="decode", tile=True)
    add("vae21_dec_fp32_tiled_480x832x17", "vae2.1", "fp32", 480, 832, 17, what="decode", tile=True)
    add("vae21_enc_fp32_480x832x17", "vae2.1", "fp32", 480, 832, 17, what="encode")
    add("vae21_enc_bf16_480x832x17", "vae2.1", "bf16", 480, 832, 17, what="encode")
    add("umt5_bf16_512", "umt5", "bf16", **L)
    add("umt5_fp32_512", "umt5", "fp32", **L)
    add("clip_fp32", "clip", "fp32", **L)
    add("clip_bf16", "clip", "bf16", **L)
    for b in ("native", "_native_cudnn", "_native_flash", "_native_efficient", "_native_math"):
        add(f"dit1.3b_{b.strip('_')}_352x640x17", "dit1.3b", "bf16", 352, 640, 17, backend=b, **L)
    add("flf14b_loaded_480x832x17", "flf14b", "bf16", 480, 832, 17, **L)
    add("dit14b_loaded_720x1280x81", "dit14b", "bf16", 720, 1280, 81, **L)
    add("vae21_dec_bf16_352x640x33", "vae2.1", "bf16", 352, 640, 33, what="decode")
    add("vae21_dec_bf16_720x1280x9", "vae2.1", "bf16", 720, 1280, 9, what="decode")
    add("vae21_dec_bf16_slice_352x640x9_b2", "vae2.1", "bf16", 352, 640, 9, b=2, what="decode", slice=True)
    add("vae21_dec_bf16_352x640x9_b2", "vae2.1", "bf16", 352, 640, 9, b=2, what="decode")
    add("vae21_dec_bf16_480x832x1", "vae2.1", "bf16", 480, 832, 1, what="decode")
    add("vae21_dec_fp32_480x832x1", "vae2.1", "fp32", 480, 832, 1, what="decode")
    add("vae22_dec_bf16_704x1280x9", "vae2.2", "bf16", 704, 1280, 9, what="decode")
    add("vae22_enc_fp32_704x1280x1", "vae2.2", "fp32", 704, 1280, 1, what="encode")
    add("vae22_enc_bf16_704x1280x1", "vae2.2", "bf16", 704, 1280, 1, what="encode")
    return c


# ---------------------------------------------------------------- B: peaks


def peaks():
    c = {}

    def add(name, component, stage, part, dtype, geos, **kw):
        c["p_" + name] = dict(component=component, stage=stage, part=part, dtype=dtype, geos=geos, **kw)

    fwd = "denoise_forward"
    add("dit1.3b", "wan2.1-t2v-1.3b-dit", fwd, "dit1.3b", "bf16", [
        (480, 832, 81), (480, 832, 33), (480, 832, 65), (480, 832, 121), (352, 640, 17), (352, 640, 49),
        (720, 1280, 17), (720, 1280, 49), (720, 1280, 121), (512, 512, 81), (448, 832, 61),
        (480, 832, 33, {"b": 2}), (352, 640, 17, {"b": 2}), (480, 832, 81, {"b": 2})])
    add("dit1.3b_cast", "wan2.1-t2v-1.3b-dit-cast", fwd, "dit1.3b", "bf16", [
        (480, 832, 81), (480, 832, 33), (352, 640, 49), (720, 1280, 33), (352, 640, 81, {"b": 2})], mode="cast")
    add("vae21_bf16", "wan2.1-vae", "decode", "vae2.1", "bf16", [
        (352, 640, 49), (480, 832, 33), (720, 1280, 49), (512, 512, 81), (480, 832, 81, {"tile": True}),
        (720, 1280, 33, {"tile": True}), (352, 640, 17, {"b": 2}), (480, 832, 81)], what="decode")
    add("vae21_fp32", "wan2.1-vae", "decode", "vae2.1", "fp32", [
        (352, 640, 17), (480, 832, 33), (720, 1280, 17), (480, 832, 33, {"tile": True}),
        (352, 640, 33, {"tile": True}), (480, 832, 17)], what="decode")
    add("vae21_fp16", "wan2.1-vae", "decode", "vae2.1", "fp16", [
        (480, 832, 33), (480, 832, 81), (720, 1280, 17), (480, 832, 33, {"tile": True})], what="decode")
    add("vae22_bf16", "wan2.2-vae", "decode", "vae2.2", "bf16", [
        (704, 1280, 49), (480, 832, 33), (480, 832, 33, {"tile": True})], what="decode")
    add("vae22_fp32", "wan2.2-vae", "decode", "vae2.2", "fp32", [(480, 832, 33), (704, 1280, 17)], what="decode")
    add("enc21_fp32", "wan2.1-vae", "encode", "vae2.1", "fp32", [
        (480, 832, 17), (480, 832, 81), (720, 1280, 33), (480, 832, 33, {"tile": True})], what="encode")
    add("enc21_bf16", "wan2.1-vae", "encode", "vae2.1", "bf16", [
        (480, 832, 17), (480, 832, 81), (720, 1280, 81)], what="encode")
    add("enc22_fp32", "wan2.2-vae", "encode", "vae2.2", "fp32", [(704, 1280, 1), (480, 832, 1), (480, 832, 17)], what="encode")
    add("enc22_bf16", "wan2.2-vae", "encode", "vae2.2", "bf16", [(704, 1280, 1)], what="encode")
    add("umt5_bf16", "umt5-xxl-encoder", "encode_prompt", "umt5", "bf16", [(0, 0, 0), (0, 0, 0, {"b": 2})])
    add("umt5_fp32", "umt5-xxl-encoder", "encode_prompt", "umt5", "fp32", [(0, 0, 0), (0, 0, 0, {"b": 2})])
    add("clip_fp32", "clip-vit-h14", "encode_image", "clip", "fp32", [(0, 0, 0), (0, 0, 0, {"b": 2})])
    add("ti2v5b", "wan2.2-ti2v-5b-dit", fwd, "ti2v5b", "bf16", [
        (480, 832, 49), (704, 1280, 49), (704, 1280, 121), (480, 832, 81, {"expand": True}), (704, 1280, 121, {"expand": True})])
    add("dit14b", "wan2.1-t2v-14b-dit", fwd, "dit14b", "bf16", [(480, 832, 33), (480, 832, 49), (480, 832, 81)])
    add("i2v14b", "wan2.1-i2v-14b-dit", fwd, "i2v14b", "bf16", [(480, 832, 33), (480, 832, 49)])
    return c


def warm(spec):
    return dict(spec) if spec["part"] in ("umt5", "clip") else dict(spec, h=64, w=64, f=5)


def label(row, spec):
    h, w, fr, b = row["h"], row["w"], row["f"], row.get("b", 1)
    if spec["part"] in DITS:
        return f"({h}, {w}, {fr})b{b}" + (":expand_timesteps" if row.get("expand") else "")
    if spec["part"].startswith("vae"):
        dtype = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}[spec["dtype"]]
        return f"({h}, {w}, {fr}):{dtype}:tile={bool(row.get('tile'))}" + (f":b{b}" if b > 1 else "")
    return ("512 tokens" if spec["part"] == "umt5" else "224x224") + f":{spec['dtype']}:b{b}"


def peaks_case(name, folder, spec):
    return R.peaks_case(name, folder, spec, make, warm, label)


# ---------------------------------------------------------------- C: pipelines


class Words:
    """A tokenizer that answers 512 padded ids."""

    def __call__(self, text, max_length=512, **kw):
        n = len(text) if isinstance(text, list) else 1
        ids = T.zeros(n, max_length, dtype=T.int64)
        mask = T.zeros(n, max_length, dtype=T.int64)
        ids[:, :40] = 7
        mask[:, :40] = 1
        return type("Out", (), {"input_ids": ids, "attention_mask": mask})()


def scheduler():
    from diffusers import UniPCMultistepScheduler

    return UniPCMultistepScheduler(
        num_train_timesteps=1000, prediction_type="flow_prediction", use_flow_sigmas=True, flow_shift=3.0)


def pipes():
    c = {}
    t2v = dict(pipe="t2v", dit="dit1.3b", vae_dtype="fp32", geo=(480, 832, 33))
    c["c_resident"] = dict(t2v, place="resident")
    c["c_model_offload"] = dict(t2v, place="model")
    c["c_sequential_offload"] = dict(t2v, place="sequential")
    c["c_group_block"] = dict(t2v, place="group", group=dict(offload_type="block_level", num_blocks_per_group=1, use_stream=False))
    c["c_group_block_stream"] = dict(t2v, place="group", group=dict(offload_type="block_level", num_blocks_per_group=1, use_stream=True))
    c["c_group_leaf"] = dict(t2v, place="group", group=dict(offload_type="leaf_level", use_stream=False))
    c["c_group_leaf_stream"] = dict(t2v, place="group", group=dict(offload_type="leaf_level", use_stream=True))
    c["c_group_block_stream_record"] = dict(t2v, place="group", umt5_layers=2, group=dict(
        offload_type="block_level", num_blocks_per_group=1, use_stream=True, record_stream=True))
    c["c_group_block_stream_lowcpu"] = dict(t2v, place="group", umt5_layers=2, group=dict(
        offload_type="block_level", num_blocks_per_group=1, use_stream=True, low_cpu_mem_usage=True))
    c["c_group_block4_stream"] = dict(t2v, place="group", umt5_layers=2, group=dict(
        offload_type="block_level", num_blocks_per_group=4, use_stream=True))
    c["c_a14b_model_offload"] = dict(t2v, dit="dit14b", layers=8, two=True, place="model", steps=4)
    c["c_i2v14b_resident"] = dict(t2v, pipe="i2v", dit="i2v14b", layers=8, umt5_layers=2, place="resident", geo=(480, 832, 17))
    c["c_i2v14b_model_offload"] = dict(t2v, pipe="i2v", dit="i2v14b", layers=8, umt5_layers=2, place="model", geo=(480, 832, 17))
    c["c_ti2v5b_resident"] = dict(t2v, dit="ti2v5b", layers=4, umt5_layers=2, vae="2.2", vae_dtype="bf16", expand=True, place="resident", geo=(480, 832, 17))
    few = dict(trace=True, layers=3, umt5_layers=2, geo=(480, 832, 17))
    c["t_resident"] = dict(c["c_resident"], **few)
    c["t_model_offload"] = dict(c["c_model_offload"], **few)
    c["t_sequential_offload"] = dict(c["c_sequential_offload"], **few)
    for k in ("block", "block_stream", "leaf", "leaf_stream", "block_stream_record"):
        c["t_group_" + k] = dict(c["c_group_" + k], **few)
    c["t_a14b_model_offload"] = dict(c["c_a14b_model_offload"], **few)
    c["t_i2v14b_resident"] = dict(c["c_i2v14b_resident"], **few)
    c["t_i2v14b_model_offload"] = dict(c["c_i2v14b_model_offload"], **few)
    c["t_ti2v5b_resident"] = dict(c["c_ti2v5b_resident"], **few)
    return c


def pipe_case(name, folder, s):
    from diffusers import WanImageToVideoPipeline, WanPipeline

    t0 = time.time()
    bf = T.bfloat16
    if not DRY:
        T.cuda.init()
        T.cuda.mem_get_info()
    parts = dict(
        tokenizer=Words(), scheduler=scheduler(),
        text_encoder=build_umt5(bf, s.get("umt5_layers") or (1 if DRY else None), device="cpu"),
        transformer=build_dit(s["dit"], bf, 2 if DRY else s.get("layers"), device="cpu"),
        vae=build_vae(s.get("vae", "2.1"), dt(s["vae_dtype"]), device="cpu"),
    )
    if s.get("two"):
        parts["transformer_2"] = build_dit(s["dit"], bf, 2 if DRY else s.get("layers"), device="cpu")
        parts["boundary_ratio"] = 0.875
    if s.get("expand"):
        parts["expand_timesteps"] = True
    if s["pipe"] == "i2v":
        from diffusers.pipelines.wan import pipeline_wan_i2v as module
        from transformers import CLIPImageProcessor

        if not hasattr(module, "ftfy"):  # the pipeline calls it without asking whether it is there
            module.ftfy = type("ftfy", (), {"fix_text": staticmethod(lambda x: x)})
        parts["image_encoder"] = build_clip(T.float32, 2 if DRY else None, device="cpu")
        parts["image_processor"] = CLIPImageProcessor()
    pipe = (WanImageToVideoPipeline if s["pipe"] == "i2v" else WanPipeline)(**parts)
    info = {"spec": dict(s), "build_s": round(time.time() - t0, 1)}
    info["models"] = {k: weigh(v) for k, v in parts.items() if isinstance(v, T.nn.Module)}
    parts = None
    pipe.set_progress_bar_config(disable=True)
    w = Watch(pipe)
    w.trace(s.get("trace"))
    w.mark("built on the host")
    dev = T.device(DEV)
    if s["place"] == "resident":
        pipe.to(DEV)
    elif not DRY and s["place"] == "model":
        pipe.enable_model_cpu_offload()
    elif not DRY and s["place"] == "sequential":
        pipe.enable_sequential_cpu_offload()
    elif s["place"] == "group":
        pipe.text_encoder.to(dev)
        pipe.vae.to(dev)
        w.mark("text encoder and vae on the device")
        pipe.transformer.enable_group_offload(onload_device=dev, offload_device=T.device("cpu"), **({**s["group"], "use_stream": False} if DRY else s["group"]))
    w.mark("placed")
    h, wd, f = small(*s["geo"])
    kw = dict(
        prompt="a cat", negative_prompt="bad", height=h, width=wd, num_frames=f,
        num_inference_steps=s.get("steps", 2), guidance_scale=5.0,
    )
    if s["pipe"] == "i2v":
        from PIL import Image

        kw["image"] = Image.new("RGB", (wd, h), (90, 120, 30))
    info["marks"] = w.marks
    try:
        w.call("pt", output_type="pt", **kw)
        w.call("np", output_type="np", **kw)
    except Exception:
        info["error"] = traceback.format_exc()[-1500:]
    empty_cache()
    w.mark("cache emptied")
    if w.base is not None:
        info["kept"] = w.finish(name, folder)
    return info


# ---------------------------------------------------------------- D: pinned host memory


def host_case(name, folder, s):
    out = {"sizes": [], "torch": T.__version__}
    if DRY:
        return out
    T.cuda.init()
    T.cuda.mem_get_info()
    sizes = [1, 511, 512, 513, 4095, 4096, 4097, 65536, 65537, 1_000_000, MIB, MIB + 1, 3 * MIB, 1536 * 1536 * 2,
             1536 * 8960 * 2, 16 * MIB + 1, 48 * MIB, 5120 * 5120 * 2, 100_000_000, 5120 * 13824 * 2, 4096 * 10240 * 4,
             128 * MIB, 128 * MIB + 1, 200 * MIB, 256 * MIB + 4096, 400 * MIB, 512 * MIB, 512 * MIB + 1, 700 * MIB, GIB, GIB + 1]
    if s.get("few"):
        sizes = [1, 1536 * 1536 * 2, 16 * MIB + 1, 100_000_000, 512 * MIB + 1, GIB + 1]
    for n in sizes:
        src = T.empty(n, dtype=T.uint8)
        src[::4096] = 1
        h0, d0 = host(), device_used()
        t0 = time.time()
        p = src.pin_memory()
        sec = time.time() - t0
        h1, d1 = host(), device_used()
        out["sizes"].append({
            "bytes": n, "sec": round(sec, 4), "device": d1 - d0,
            **{k: h1[k] - h0.get(k, 0) for k in h1 if not k.endswith("peak") and k != "VmHWM"},
        })
        del p, src
        T._C._host_emptyCache()
    if s.get("model"):
        m = build_dit("dit1.3b", T.bfloat16, device="cpu", fill=False)
        h0, d0, t0 = host(), device_used(), time.time()
        held = [p.data.pin_memory() for p in m.parameters()] + [p.data.pin_memory() for p in m.buffers()]
        h1, d1 = host(), device_used()
        shapes = {}
        for p in m.parameters():
            k = str(p.numel() * p.element_size())
            shapes[k] = shapes.get(k, 0) + 1
        out["dit1.3b"] = {
            "model": weigh(m), "sec": round(time.time() - t0, 2), "device": d1 - d0, "tensor_bytes_counts": shapes,
            **{k: h1[k] - h0.get(k, 0) for k in h1 if not k.endswith("peak") and k != "VmHWM"},
        }
        del held
        gc.collect()
        h2 = host()
        T._C._host_emptyCache()
        h3 = host()
        out["dit1.3b"]["after_drop"] = {k: h2[k] - h0.get(k, 0) for k in h2 if k.startswith("pinned")}
        out["dit1.3b"]["after_empty_cache"] = {k: h3[k] - h0.get(k, 0) for k in h3 if k.startswith("pinned") or k == "VmRSS"}
    out["host_memory_stats"] = dict(T.cuda.host_memory_stats())
    return out


def hosts():
    return {
        "h_default": {"model": True},
        "h_register": {"few": True, "env": "pinned_use_cuda_host_register:True"},
        "h_expandable": {"few": True, "env": "expandable_segments:True"},
    }


# ---------------------------------------------------------------- E: fixed cost


def fixeds():
    every = ["mm_bf16", "addmm_bf16", "mm_fp32", "addmm_fp32", "mm_fp16", "addmm_fp16", "bmm_bf16", "big_mm_bf16", "big_mm_fp32",
             "conv3d_bf16", "conv3d_fp32", "conv3d_fp16", "conv2d_bf16", "sdpa_bf16", "sdpa_fp32", "flash_bf16", "cudnn_bf16",
             "efficient_bf16", "math_bf16", "layer_norm_bf16", "rms_norm_bf16", "silu_bf16", "clear", "mm_bf16"]
    return {
        "e_all": {"ops": every},
        "e_addmm_bf16": {"ops": ["addmm_bf16", "mm_bf16", "linear3_bf16", "clear"]},
        "e_mm_fp32": {"ops": ["mm_fp32", "addmm_fp32", "mm_bf16", "clear"]},
        "e_mm_fp16": {"ops": ["mm_fp16", "addmm_fp16", "clear"]},
        "e_conv3d_bf16": {"ops": ["conv3d_bf16", "conv3d_fp32", "mm_bf16"]},
        "e_conv3d_fp32": {"ops": ["conv3d_fp32", "conv3d_fp32_causal", "conv3d_bf16_causal", "conv3d_fp16_causal"]},
        "e_sdpa": {"ops": ["sdpa_bf16", "cudnn_bf16", "flash_bf16", "efficient_bf16"]},
        "e_streams": {"ops": ["mm_bf16", "stream_mm_bf16", "stream_addmm_bf16", "mm_bf16", "clear"]},
        "e_silu": {"ops": ["silu_bf16", "silu_bf16", "layer_norm_bf16", "randn"]},
    }


def fixed_case(name, folder, s):
    out = {"steps": [], "card_before": nvml_used(True)}
    if DRY:
        return out

    def rec(what, **k):
        T.cuda.synchronize()
        out["steps"].append({"after": what, "device_used": device_used(), "nvml": nvml_used(), "nvml_card": nvml_used(True), **stats(), **k})

    T.cuda.init()
    T.cuda.mem_get_info()
    rec("context")
    one = T.empty(1, device="cuda")
    rec("1 element")
    F = T.nn.functional
    r = lambda *shape, d=T.bfloat16: T.randn(*shape, device="cuda", dtype=d)
    inputs = {}
    for k, d in (("bf16", T.bfloat16), ("fp32", T.float32), ("fp16", T.float16)):
        inputs[k] = dict(a=r(512, 512, d=d), b=r(512, d=d), big=r(8192, 4096, d=d), v=r(1, 32, 6, 64, 64, d=d),
                         w=r(32, 32, 3, 3, 3, d=d), w2=r(32, 32, 3, 3, d=d), q=r(1, 4, 2048, 128, d=d),
                         cv=r(1, 96, 6, 242, 242, d=d), cw=r(96, 96, 3, 3, 3, d=d))
    rec("inputs")
    side = T.cuda.Stream()
    B = T.nn.attention.SDPBackend
    for op in s["ops"]:
        T.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python")
        reset_peaks()
        kind = op.removeprefix("stream_")
        k, _, d = kind.rpartition("_")
        err = None
        try:
            x = inputs.get("bf16" if d not in inputs else d)
            fns = {
                "mm": lambda: x["a"] @ x["a"], "addmm": lambda: F.linear(x["a"], x["a"], x["b"]),
                "linear3": lambda: F.linear(x["a"][None], x["a"], x["b"]), "bmm": lambda: T.bmm(x["a"][None], x["a"][None]),
                "big_mm": lambda: x["big"] @ x["big"].T, "conv3d": lambda: F.conv3d(x["v"], x["w"]),
                "conv2d": lambda: F.conv2d(x["v"][0].transpose(0, 1), x["w2"]),
                "sdpa": lambda: F.scaled_dot_product_attention(x["q"], x["q"], x["q"]),
                "layer_norm": lambda: F.layer_norm(x["a"], (512,)), "rms_norm": lambda: F.rms_norm(x["a"], (512,), x["b"]),
                "silu": lambda: F.silu(x["a"]),
            }
            if kind == "clear":
                T._C._cuda_clearCublasWorkspaces()
            elif kind == "randn":
                T.randn(16, device="cuda")
            elif kind.endswith("causal"):
                x = inputs[kind.split("_")[1]]
                F.conv3d(x["cv"], x["cw"])
            elif k in ("flash", "cudnn", "efficient", "math"):
                be = {"flash": B.FLASH_ATTENTION, "cudnn": B.CUDNN_ATTENTION, "efficient": B.EFFICIENT_ATTENTION, "math": B.MATH}[k]
                with T.nn.attention.sdpa_kernel(be):
                    fns["sdpa"]()
            elif op.startswith("stream_"):
                with T.cuda.stream(side):
                    fns[k]()
            else:
                fns[k]()
        except Exception as e:
            err = f"{type(e).__name__}: {e}"[:200]
        T.cuda.synchronize()
        tr = T.cuda.memory._snapshot()["device_traces"][0]
        T.cuda.memory._record_memory_history(enabled=None)
        live, ev = {}, []
        for e in tr:
            if e["action"] == "alloc":
                live[e["addr"]] = len(ev)
                ev.append([e["size"], "kept"])
            elif e["action"] == "free_requested" and e["addr"] in live:
                ev[live.pop(e["addr"])][1] = "freed"
        rec(op, events=ev, error=err)
    del one
    empty_cache()
    rec("cache emptied")
    return out


# ---------------------------------------------------------------- single calls


def conv_shapes(which, what, h, w, batch=1, frames=9):
    """(kind, weight, stride, padding, input) of every convolution of a decode or an encode, once each."""
    with T.device("meta"):
        from diffusers import AutoencoderKLWan

        m = AutoencoderKLWan(**({} if which == "2.1" else VAE_22)).eval()
        seen = {}

        conv = T.nn.Conv3d._conv_forward, T.nn.Conv2d._conv_forward

        def spy(inner):
            def f(self, x, weight, bias):
                seen.setdefault(("conv3d" if x.dim() == 5 else "conv2d", tuple(weight.shape), tuple(self.stride), tuple(self.padding), tuple(x.shape)))
                return inner(self, x, weight, bias)

            return f

        T.nn.Conv3d._conv_forward, T.nn.Conv2d._conv_forward = spy(conv[0]), spy(conv[1])
        try:
            s, z = (16, 48) if which == "2.2" else (8, 16)
            if what == "decode":
                m.decode(T.empty(batch, z, (frames - 1) // 4 + 1, h // s, w // s), return_dict=False)
            else:
                m.encode(T.empty(batch, 3, frames, h, w))
        finally:
            T.nn.Conv3d._conv_forward, T.nn.Conv2d._conv_forward = conv
    return list(seen)


def op_list(dtype):
    geos = [(480, 832), (720, 1280), (352, 640), (512, 512), (256, 256), (256, 64), (96, 256), (96, 64), (256, 128),
            (144, 256), (144, 128), (448, 832), (704, 1280), (832, 480), (1280, 720), (544, 960), (240, 416)]
    jobs = {}
    for h, w in geos:
        for what in ("decode", "encode"):
            for k in conv_shapes("2.1", what, h, w):
                jobs.setdefault(k)
    for k in conv_shapes("2.1", "decode", 352, 640, batch=2):
        jobs.setdefault(k)
    for h, w in [(480, 832), (704, 1280), (512, 512), (256, 256), (256, 64), (96, 256), (1280, 704)]:
        for what in ("decode", "encode"):
            for k in conv_shapes("2.2", what, h, w):
                jobs.setdefault(k)
    for dim, c in ((1536, 16), (5120, 16), (5120, 36), (3072, 48)):
        for h, w, f in ((480, 832, 81), (480, 832, 17), (720, 1280, 81), (352, 640, 33), (480, 832, 1), (704, 1280, 121)):
            s = 16 if c == 48 else 8
            jobs.setdefault(("conv3d", (dim, c, 1, 2, 2), (1, 2, 2), (0, 0, 0), (1, c, (f - 1) // 4 + 1, h // s, w // s)))
    jobs.setdefault(("conv2d", (1280, 3, 14, 14), (14, 14), (0, 0), (1, 3, 224, 224)))
    return list(jobs)


def ops_case(name, folder, s):
    dtype, rows = dt(s["dtype"]), []
    jobs = op_list(dtype)
    info = {"jobs": len(jobs), "rows": rows, "list_s": 0}
    if DRY:
        return info
    F, t0 = T.nn.functional, time.time()

    def one(kind, a, b, f):
        if time.time() - t0 > 140:
            info["stopped"] = True
            return
        T.cuda.memory._record_memory_history(enabled="all", context=None, stacks="python")
        err = ""
        try:
            f()
        except Exception as e:
            err = f"{type(e).__name__}: {e}"[:80].replace(",", ";")
        T.cuda.synchronize()
        tr = T.cuda.memory._snapshot()["device_traces"][0]
        T.cuda.memory._record_memory_history(enabled=None)
        rows.append([s["dtype"], kind, a, b, " ".join(str(e["size"]) for e in tr if e["action"] == "alloc"), err])

    x_ = lambda v: "x".join(map(str, v))
    for kind, wt, stride, pad, shape in jobs:
        x = T.zeros(shape, device=DEV, dtype=dtype)
        w = T.zeros(wt, device=DEV, dtype=dtype)
        b = T.zeros(wt[0], device=DEV, dtype=dtype)
        f = F.conv3d if kind == "conv3d" else F.conv2d
        one(kind, x_(shape), f"{x_(wt)} stride {x_(stride)} pad {x_(pad)}", lambda: f(x, w, b, stride, pad))
        del x, w, b
    for n in (4 * 8, 32 * 32, 44 * 80, 60 * 104, 64 * 64, 90 * 160, 88 * 160):
        for d in (384, 640, 1024):
            q = T.zeros(1, 1, n, 3 * d, device=DEV, dtype=dtype).chunk(3, dim=-1)
            one("sdpa_vae", f"1x1x{n}x{d}", "chunks of one tensor", lambda: F.scaled_dot_product_attention(*q))
    B = T.nn.attention.SDPBackend
    for heads in (12, 24, 40):
        for b, n, m in ((1, 32760, 32760), (1, 7800, 7800), (2, 7920, 7920), (1, 4400, 4400), (1, 1560, 1560), (1, 32760, 512), (2, 7920, 512), (1, 32760, 257), (1, 7800, 514)):
            if dtype == T.float32 and n == m and n > 10000:
                continue
            q = T.zeros(b, n, heads, 128, device=DEV, dtype=dtype).permute(0, 2, 1, 3)
            k = T.zeros(b, m, heads, 128, device=DEV, dtype=dtype).permute(0, 2, 1, 3)
            for be in ("default", "CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION"):
                def go():
                    if be == "default":
                        F.scaled_dot_product_attention(q, k, k)
                    else:
                        with T.nn.attention.sdpa_kernel(getattr(B, be)):
                            F.scaled_dot_product_attention(q, k, k)
                one("sdpa", f"{b}x{heads}x{n}x128 keys {m}", be, go)
    for n, mask in ((512, True), (512, False)):
        q = T.zeros(1, 64, n, 64, device=DEV, dtype=dtype)
        bias = T.zeros(1, 64, n, n, device=DEV, dtype=dtype)
        one("sdpa", f"1x64x{n}x64", "additive mask 1x64xnxn" if mask else "no mask", lambda: F.scaled_dot_product_attention(q, q, q, attn_mask=bias if mask else None))
    info["list_s"] = round(time.time() - t0, 1)
    return info


def opses():
    return {"o_bf16": {"dtype": "bf16"}, "o_fp32": {"dtype": "fp32"}, "o_fp16": {"dtype": "fp16"}}


# ---------------------------------------------------------------- running


R.GROUPS = {
    "fixed": (fixeds, fixed_case, 1), "sites": (sites, sites_case, 6), "peaks": (peaks, peaks_case, 1),
    "ops": (opses, ops_case, 3), "pipe": (pipes, pipe_case, 4), "host": (hosts, host_case, 1),
}


def main(args):
    res = record(args, "wan", libraries, {"fixed": "fixed", "sites": "sites", "peaks": "peaks", "pipe": "pipelines", "host": "host"})
    if res and res["ops"]:
        with open(os.path.join(os.environ.get("OUT", "."), "ops.csv"), "w", newline="") as f:
            wr = csv.writer(f, lineterminator="\n")
            wr.writerow(["dtype", "op", "input", "weight", "allocs", "error"])
            for n, r in res["ops"].items():
                wr.writerows(r.get("rows", []))
                print(n, "jobs", r.get("jobs"), "rows", len(r.get("rows", [])), r.get("list_s"), r.get("stopped"))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        libraries()
        child(*sys.argv[2:5])
    else:
        main(sys.argv[1:])
