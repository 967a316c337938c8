#!/usr/bin/env python3
"""Record what diffusers' LTX-Video, CogVideoX, HunyuanVideo, Mochi and MiniMax H3
models and their T5, Llama and CLIP text encoders allocate, call site by call site.

Weights are made on the spot; nothing is downloaded. Needs one CUDA GPU, torch,
diffusers, transformers, accelerate and PyYAML, and catalog/ beside tests/: the
parameters of every model built at full depth are counted and must be as many
as its catalog entry says.

    python3 tests/gpu/family_memory.py              # all groups
    python3 tests/gpu/family_memory.py --list       # case names, no GPU needed
    python3 tests/gpu/family_memory.py --check      # parameter counts, no GPU needed
    python3 tests/gpu/family_memory.py GROUP|NAME...  # some of them

Groups: sites (traces with call sites), pipe (whole pipelines, traced), peaks
(full depth, no trace). peaks run alone on the card, the others side by side.

Under $OUT (the current folder where OUT is unset):
  family_traces.tar  NAME.txt.gz per sites and pipe case; recording.py explains
                     the lines
  sites.json         per sites case: bases, peaks, parameters, retained blocks
  peaks.csv          one row per geometry, columns of h200_diffusers_peaks.csv
  peaks.json         the same rows with more columns
  pipelines.json, run.json
"""

import os
import sys
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import recording as R  # noqa: E402
from recording import DEV, DRY, S, Watch, build, child, dt, empty_cache, record, weigh  # noqa: E402

T = None  # torch, once imported

COG_5B = dict(num_attention_heads=48, num_layers=42, use_rotary_positional_embeddings=True)
COG_5B_I2V = dict(COG_5B, in_channels=32, use_learned_positional_embeddings=True)
COG15_5B = dict(COG_5B, patch_size_t=2, patch_bias=False, sample_height=300, sample_width=300, sample_frames=81)
LTX_VAE_095 = dict(
    block_out_channels=(128, 256, 512, 1024, 2048), down_block_types=("LTXVideo095DownBlock3D",) * 4,
    decoder_block_out_channels=(256, 512, 1024), layers_per_block=(4, 6, 6, 2, 2), decoder_layers_per_block=(5, 5, 5, 5),
    spatio_temporal_scaling=(True,) * 4, decoder_spatio_temporal_scaling=(True,) * 3, decoder_inject_noise=(False,) * 4,
    downsample_type=("spatial", "temporal", "spatiotemporal", "spatiotemporal"), upsample_residual=(True,) * 3,
    upsample_factor=(2, 2, 2), timestep_conditioning=True, spatial_compression_ratio=32, temporal_compression_ratio=8,
)
T5_XXL = dict(
    vocab_size=32128, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, relative_attention_num_buckets=32,
    feed_forward_proj="gated-gelu", tie_word_embeddings=False,
)
LLAMA_8B = dict(
    vocab_size=128320, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, max_position_embeddings=8192, rms_norm_eps=1e-5,
)
CLIP_L = dict(
    vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12,
    max_position_embeddings=77, hidden_act="quick_gelu", projection_dim=768, eos_token_id=49407,
)

# part: (class, arguments, arguments of a model of few layers, catalog entry)
L3 = dict(num_layers=3)
PARTS = {
    "ltx2b": ("LTXVideoTransformer3DModel", {}, L3, "ltx-video-2b-dit"),
    "ltx13b": ("LTXVideoTransformer3DModel", dict(num_layers=48, attention_head_dim=128, cross_attention_dim=4096), L3, "ltx-video-13b-dit"),
    "cog2b": ("CogVideoXTransformer3DModel", {}, L3, "cogvideox-2b-dit"),
    "cog5b": ("CogVideoXTransformer3DModel", COG_5B, L3, "cogvideox-5b-dit"),
    "cog5bi2v": ("CogVideoXTransformer3DModel", COG_5B_I2V, L3, "cogvideox-5b-i2v-dit"),
    "cog1.5": ("CogVideoXTransformer3DModel", COG15_5B, L3, "cogvideox1.5-5b-dit"),
    "hunyuan": ("HunyuanVideoTransformer3DModel", {}, dict(num_layers=2, num_single_layers=3), "hunyuanvideo-t2v-dit"),
    "mochi": ("MochiTransformer3DModel", {}, L3, "mochi-1-dit"),
    "h3": ("MiniMaxH3Transformer3DModel", {}, dict(num_layers=2), "minimax-h3-dit"),
    "vae_ltx": ("AutoencoderKLLTXVideo", {}, {}, "ltx-video-0.9.0-vae"),
    "vae_ltx095": ("AutoencoderKLLTXVideo", LTX_VAE_095, {}, "ltx-video-0.9.5-vae"),
    "vae_cog": ("AutoencoderKLCogVideoX", {}, {}, "cogvideox-vae"),
    "vae_hunyuan": ("AutoencoderKLHunyuanVideo", {}, {}, "hunyuanvideo-vae"),
    "vae_mochi": ("AutoencoderKLMochi", {}, {}, "mochi-vae"),
    "vae_h3": ("AutoencoderKLMiniMaxH3", {}, dict(decoder_num_layers=3), "minimax-h3-video-vae"),
    "vae_h3audio": ("AutoencoderKLMiniMaxH3Audio", {}, {}, "minimax-h3-audio-vae"),
    "t5": ("T5EncoderModel", T5_XXL, dict(num_layers=2), "t5-v1.1-xxl-encoder"),
    "llama": ("LlamaModel", LLAMA_8B, dict(num_hidden_layers=2), "llama3-8b-text-encoder"),
    "clip": ("CLIPTextModel", CLIP_L, dict(num_hidden_layers=2), "clip-l-text-encoder"),
}
CONFIGS = {"T5EncoderModel": "T5Config", "LlamaModel": "LlamaConfig", "CLIPTextModel": "CLIPTextConfig"}
# VAE: (latent channels, spatial and temporal compression)
GRID = {
    "vae_ltx": (128, 32, 8), "vae_ltx095": (128, 32, 8), "vae_cog": (16, 8, 4), "vae_hunyuan": (16, 8, 4),
    "vae_mochi": (12, 8, 6), "vae_h3": (24, 16, 4),
}


def libraries():
    global T
    T = R.libraries()
    import diffusers
    import transformers

    for cls, *_ in PARTS.values():
        getattr(transformers if cls in CONFIGS else diffusers, cls)
    for name in ("CogVideoXPipeline", "CogVideoXImageToVideoPipeline", "LTXPipeline", "LTXImageToVideoPipeline",
                 "HunyuanVideoPipeline", "MochiPipeline", "CogVideoXDPMScheduler", "FlowMatchEulerDiscreteScheduler"):
        getattr(diffusers, name)


# ---------------------------------------------------------------- the models


def catalog():
    import yaml

    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "catalog")
    out = {}
    for name in ("transformers", "vaes", "encoders"):
        with open(os.path.join(root, name + ".yaml")) as f:
            out.update(yaml.safe_load(f))
    return {k: v["parameter_count"] for k, v in out.items()}


def build_part(part, dtype, few=False, **kw):
    import diffusers
    import transformers

    cls, args, less, entry = PARTS[part]
    args = dict(args, **(less if few or DRY else {}))
    if DRY and part == "cog5bi2v":
        args.update(sample_height=8, sample_width=12, sample_frames=5)
    if cls in CONFIGS:
        config = getattr(transformers, CONFIGS[cls])(**args)
        m = build(getattr(transformers, cls), lambda c: c(config), dtype, **kw)
    else:
        m = build(getattr(diffusers, cls), args, dtype, **kw)
    if not (few or DRY):
        n, want = weigh(m)["params"], catalog()[entry]
        assert n == want, f"{part}: {n} parameters, {entry} has {want}"
    return m


def check():
    """Counts the parameters of every part on the meta device."""
    want, wrong = catalog(), 0
    for part, (_, _, _, entry) in PARTS.items():
        n = weigh(build_part(part, T.bfloat16, device="meta", fill=False))["params"]
        wrong += n != want[entry]
        print(f"{part:12} {entry:24} {n:>14,} {'' if n == want[entry] else 'catalog: ' + format(want[entry], ',')}")
    return wrong


# ---------------------------------------------------------------- inputs


def small(h, w, f):
    return (64, 96, min(f, 5)) if DRY else (h, w, f)


def rand(*shape, dtype):
    return T.randn(*shape, device=DEV, dtype=dtype)


def mask_of(b, n, valid=None, dtype="bool"):
    x = T.zeros(b, n, device=DEV, dtype=getattr(T, dtype))
    x[:, : valid or n] = 1
    return x


def ltx_inputs(m, s, dtype, h, w, f, b):
    text, n = s.get("text", 256), (f - 1) // 8 + 1
    rows = n * (h // 32) * (w // 32)
    t = T.full((b,), 500.0, device=DEV)
    if s.get("rows"):  # image to video: a timestep for every row
        t = t.unsqueeze(-1) * T.ones(b, rows, device=DEV)
    return dict(
        hidden_states=rand(b, rows, 128, dtype=dtype), encoder_hidden_states=rand(b, text, 4096, dtype=dtype),
        timestep=t, encoder_attention_mask=mask_of(b, text, s.get("valid")), num_frames=n, height=h // 32, width=w // 32,
        rope_interpolation_scale=(8 / 25, 32, 32),
    )


def cog_inputs(m, s, dtype, h, w, f, b):
    from diffusers.models.embeddings import get_3d_rotary_pos_embed
    from diffusers.pipelines.cogvideo.pipeline_cogvideox import get_resize_crop_region_for_grid

    c, n = m.config, (f - 1) // 4 + 1
    pt = c.patch_size_t
    n += -n % pt if pt else 0
    x = dict(
        hidden_states=rand(b, n, c.in_channels, h // 8, w // 8, dtype=dtype),
        encoder_hidden_states=rand(b, s.get("text", 226), 4096, dtype=dtype),
        timestep=T.tensor(500, device=DEV, dtype=T.int64).expand(b),
    )
    if c.use_rotary_positional_embeddings:
        grid, size = (h // 16, w // 16), (c.sample_height // 2, c.sample_width // 2)
        how = dict(temporal_size=n, crops_coords=get_resize_crop_region_for_grid(grid, size[1], size[0]))
        if pt:
            how = dict(temporal_size=n // pt, crops_coords=None, grid_type="slice", max_size=size)
        x["image_rotary_emb"] = get_3d_rotary_pos_embed(embed_dim=64, grid_size=grid, device=T.device(DEV), **how)
    return x


def hunyuan_inputs(m, s, dtype, h, w, f, b):
    text = s.get("text", 256)
    return dict(
        hidden_states=rand(b, 16, (f - 1) // 4 + 1, h // 8, w // 8, dtype=dtype),
        encoder_hidden_states=rand(b, text, 4096, dtype=dtype), pooled_projections=rand(b, 768, dtype=dtype),
        timestep=T.full((b,), 500.0, device=DEV), encoder_attention_mask=mask_of(b, text, s.get("valid"), "int64"),
        guidance=T.tensor([6.0] * b, device=DEV, dtype=dtype) * 1000.0,
    )


def mochi_inputs(m, s, dtype, h, w, f, b):
    text = s.get("text", 256)
    return dict(
        hidden_states=rand(b, 12, (f - 1) // 6 + 1, h // 8, w // 8, dtype=dtype),
        encoder_hidden_states=rand(b, text, 4096, dtype=dtype), timestep=T.full((b,), 500.0, device=DEV, dtype=dtype),
        encoder_attention_mask=mask_of(b, text, s.get("valid")),
    )


def h3_frames(f):
    return (f - 5) // 17 * 5 + 2


def h3_inputs(m, s, dtype, h, w, f, b):
    from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3PrepareLayoutStep as Layout
    from diffusers.modular_pipelines.minimax_h3.modular_pipeline import audio_latent_num_frames

    text, audio = s.get("text", 300), audio_latent_num_frames(f)
    pos, tags, video, sound, words, _, _ = Layout.build_packed_sequence(
        T.ones(text, dtype=T.int64), h3_frames(f), h // 16, w // 16, audio, (1, 2, 2), 2, 2, 0)
    at = T.full((pos.shape[0],), 0.5)
    at[sound] = 0.25
    times, which = T.unique(at, sorted=True, return_inverse=True)
    on = lambda x: x.to(DEV)
    return dict(
        hidden_states=rand(b, video.numel(), 96, dtype=T.float32), audio_hidden_states=rand(b, sound.numel(), 32, dtype=T.float32),
        encoder_hidden_states=rand(b, text, 5120, dtype=dtype), timestep=on(times), timestep_indices=on(which),
        token_tags=on(tags), position_ids=on(pos), video_indices=on(video), audio_indices=on(sound), text_indices=on(words),
    )


INPUTS = {
    "ltx2b": ltx_inputs, "ltx13b": ltx_inputs, "cog2b": cog_inputs, "cog5b": cog_inputs, "cog5bi2v": cog_inputs,
    "cog1.5": cog_inputs, "hunyuan": hunyuan_inputs, "mochi": mochi_inputs, "h3": h3_inputs,
}


def frames_of(part, f):
    return h3_frames(f) if part == "vae_h3" else (f - 1) // GRID[part][2] + 1


def make(spec):
    """(forward, model, what to hold) of one case; spec is a dict."""
    s = dict(spec)
    part, dtype, b = s["part"], dt(s["dtype"]), s.get("b", 1)
    m = s.get("model")
    if m is None:
        m = build_part(part, dtype, s.get("few", False), mode=s.get("mode", "loaded"))
    if part in INPUTS:
        h, w, f = small(s["h"], s["w"], s["f"]) if part != "h3" or not DRY else (64, 96, 22)
        x = INPUTS[part](m, s, dtype, h, w, f, b)
        return (lambda: m(**x, return_dict=False)), m, x
    if part == "vae_h3audio":
        if s["what"] == "decode":
            z = rand(b, 32, s["f"], dtype=T.float32)
            return (lambda: m.decode(z, return_dict=False)[0]), m, z
        x = rand(b, 1, s["f"] * 800, dtype=T.float32)
        return (lambda: m.encode(x).latent_dist.mode()), m, x
    if part.startswith("vae"):
        h, w, f = small(s["h"], s["w"], s["f"]) if part != "vae_h3" or not DRY else (64, 96, 22)
        c, space, _ = GRID[part]
        m.use_tiling, m.use_slicing = bool(s.get("tile")), bool(s.get("slice"))
        if s["what"] == "decode":
            z = rand(b, c, frames_of(part, f), h // space, w // space, dtype=T.float32 if part == "vae_h3" else dtype)
            a = [T.tensor([0.05] * b, device=DEV, dtype=dtype)] if part == "vae_ltx095" else []
            return (lambda: m.decode(z, *a, return_dict=False)[0]), m, (z, a)
        x = T.rand(b, 3, f, h, w, device=DEV, dtype=dtype)
        return (lambda: m.encode(x).latent_dist.mode()), m, x
    n = s.get("text", 77)
    ids = T.full((b, n), 7, dtype=T.int64, device=DEV)
    if part == "clip":
        ids[:, 40:] = 49407
        return (lambda: m(ids, output_hidden_states=False).pooler_output), m, ids
    mask = mask_of(b, n, s.get("valid"), "int64" if part == "llama" else "bool")
    if part == "llama":
        return (lambda: m(input_ids=ids, attention_mask=mask, output_hidden_states=True).hidden_states[-3]), m, (ids, mask)
    a = dict(attention_mask=mask) if s.get("valid") else {}
    return (lambda: m(ids, **a)[0]), m, (ids, mask)


# ---------------------------------------------------------------- traces


def sites():
    c = {}

    def add(name, *a, **k):
        c["s_" + name] = S(*a, few=True, **k)

    dec, enc = dict(what="decode"), dict(what="encode")
    # transformers
    add("ltx2b_512x704x161", "ltx2b", "bf16", 512, 704, 161)
    add("cog5b_480x720x49", "cog5b", "bf16", 480, 720, 49)
    add("hunyuan_544x960x61", "hunyuan", "bf16", 544, 960, 61, valid=40)
    add("mochi_480x848x163", "mochi", "bf16", 480, 848, 163)
    add("h3_480x832x243", "h3", "bf16", 480, 832, 243)
    # decoders
    add("vae_ltx_dec_bf16_480x832x33", "vae_ltx", "bf16", 480, 832, 33, **dec)
    add("vae_cog_dec_bf16_480x720x17", "vae_cog", "bf16", 480, 720, 17, **dec)
    add("vae_hunyuan_dec_bf16_320x512x13", "vae_hunyuan", "bf16", 320, 512, 13, **dec)
    add("vae_mochi_dec_bf16_480x848x19", "vae_mochi", "bf16", 480, 848, 19, **dec)
    add("vae_h3_dec_bf16_tiled_480x832x39", "vae_h3", "bf16", 480, 832, 39, tile=True, **dec)
    # tiled
    add("vae_ltx_dec_bf16_tiled_576x704x33", "vae_ltx", "bf16", 576, 704, 33, tile=True, **dec)
    add("vae_cog_dec_bf16_tiled_480x720x17", "vae_cog", "bf16", 480, 720, 17, tile=True, **dec)
    add("vae_hunyuan_dec_bf16_tiled_320x448x13", "vae_hunyuan", "bf16", 320, 448, 13, tile=True, **dec)
    add("vae_hunyuan_dec_bf16_tiled_320x448x33", "vae_hunyuan", "bf16", 320, 448, 33, tile=True, **dec)
    add("vae_mochi_dec_bf16_tiled_320x448x19", "vae_mochi", "bf16", 320, 448, 19, tile=True, **dec)
    # batches of two, other sizes
    add("ltx2b_480x832x97_b2_text128", "ltx2b", "bf16", 480, 832, 97, b=2, text=128, valid=40)
    add("ltx2b_rows_480x704x97_b2_text128", "ltx2b", "bf16", 480, 704, 97, b=2, text=128, rows=True, valid=40)
    add("ltx13b_480x832x97_b2_text128", "ltx13b", "bf16", 480, 832, 97, b=2, text=128, valid=40)
    add("cog2b_480x720x49_b2", "cog2b", "bf16", 480, 720, 49, b=2)
    add("cog2b_fp16_256x384x17_b2", "cog2b", "fp16", 256, 384, 17, b=2)
    add("cog5b_480x848x33_b2", "cog5b", "bf16", 480, 848, 33, b=2)
    add("cog5bi2v_480x720x49_b2", "cog5bi2v", "bf16", 480, 720, 49, b=2)
    add("cog1.5_768x1360x81", "cog1.5", "bf16", 768, 1360, 81)
    add("cog1.5_480x720x41_b2", "cog1.5", "bf16", 480, 720, 41, b=2)
    add("hunyuan_320x512x17_b2", "hunyuan", "bf16", 320, 512, 17, b=2, valid=40)
    add("mochi_480x848x31_b2", "mochi", "bf16", 480, 848, 31, b=2, valid=40)
    add("h3_768x1344x124", "h3", "bf16", 768, 1344, 124)
    add("h3_cast_480x832x124", "h3", "bf16", 480, 832, 124, mode="cast")
    # float32
    add("vae_ltx_dec_fp32_480x832x33", "vae_ltx", "fp32", 480, 832, 33, **dec)
    add("vae_cog_dec_fp32_480x720x17", "vae_cog", "fp32", 480, 720, 17, **dec)
    add("vae_cog_dec_fp16_480x720x17", "vae_cog", "fp16", 480, 720, 17, **dec)
    add("vae_hunyuan_dec_fp32_320x512x13", "vae_hunyuan", "fp32", 320, 512, 13, **dec)
    add("vae_mochi_dec_fp32_480x848x13", "vae_mochi", "fp32", 480, 848, 13, **dec)
    add("vae_h3_dec_fp32_tiled_480x832x22", "vae_h3", "fp32", 480, 832, 22, tile=True, **dec)
    # more of the decoders
    add("vae_ltx_dec_bf16_352x608x25_b2", "vae_ltx", "bf16", 352, 608, 25, b=2, **dec)
    add("vae_ltx095_dec_bf16_480x832x33", "vae_ltx095", "bf16", 480, 832, 33, **dec)
    add("vae_ltx095_dec_bf16_tiled_576x704x33", "vae_ltx095", "bf16", 576, 704, 33, tile=True, **dec)
    add("vae_ltx095_dec_fp32_480x832x17", "vae_ltx095", "fp32", 480, 832, 17, **dec)
    add("vae_cog_dec_bf16_480x720x49", "vae_cog", "bf16", 480, 720, 49, **dec)
    add("vae_cog_dec_bf16_256x384x9_b2", "vae_cog", "bf16", 256, 384, 9, b=2, **dec)
    add("vae_hunyuan_dec_bf16_320x512x33", "vae_hunyuan", "bf16", 320, 512, 33, **dec)
    add("vae_hunyuan_dec_bf16_272x480x9_b2", "vae_hunyuan", "bf16", 272, 480, 9, b=2, **dec)
    add("vae_mochi_dec_bf16_256x384x13_b2", "vae_mochi", "bf16", 256, 384, 13, b=2, **dec)
    add("vae_h3_dec_bf16_480x832x39", "vae_h3", "bf16", 480, 832, 39, **dec)
    add("vae_h3_dec_bf16_cast_480x832x22", "vae_h3", "bf16", 480, 832, 22, mode="cast", **dec)
    add("vae_h3audio_dec_207_b2", "vae_h3audio", "bf16", 0, 0, 207, b=2, **dec)
    # encoders of the image-to-video models
    add("vae_ltx_enc_bf16_480x704x1", "vae_ltx", "bf16", 480, 704, 1, **enc)
    add("vae_ltx095_enc_bf16_480x704x1", "vae_ltx095", "bf16", 480, 704, 1, **enc)
    add("vae_ltx095_enc_bf16_480x704x33", "vae_ltx095", "bf16", 480, 704, 33, **enc)
    add("vae_cog_enc_bf16_480x720x1", "vae_cog", "bf16", 480, 720, 1, **enc)
    add("vae_cog_enc_bf16_480x720x17", "vae_cog", "bf16", 480, 720, 17, **enc)
    add("vae_cog_enc_bf16_tiled_480x720x9", "vae_cog", "bf16", 480, 720, 9, tile=True, **enc)
    add("vae_hunyuan_enc_bf16_544x960x1", "vae_hunyuan", "bf16", 544, 960, 1, **enc)
    add("vae_hunyuan_enc_bf16_320x512x33", "vae_hunyuan", "bf16", 320, 512, 33, **enc)
    add("vae_mochi_enc_bf16_320x512x19", "vae_mochi", "bf16", 320, 512, 19, **enc)
    add("vae_h3_enc_bf16_tiled_480x832x1", "vae_h3", "bf16", 480, 832, 1, tile=True, **enc)
    add("vae_h3_enc_bf16_480x832x17", "vae_h3", "bf16", 480, 832, 17, **enc)
    add("vae_h3audio_enc_207_b2", "vae_h3audio", "bf16", 0, 0, 207, b=2, **enc)
    # text encoders
    add("t5_bf16_226", "t5", "bf16", text=226)
    add("t5_bf16_256_mask", "t5", "bf16", text=256, valid=40)
    add("t5_bf16_128_b2", "t5", "bf16", text=128, b=2)
    add("t5_fp32_226", "t5", "fp32", text=226)
    add("llama_bf16_351", "llama", "bf16", text=351, valid=140)
    add("llama_fp16_351_b2", "llama", "fp16", text=351, valid=140, b=2)
    add("clip_bf16_77", "clip", "bf16")
    add("clip_fp32_77_b2", "clip", "fp32", b=2)
    return c


def sites_case(name, folder, spec):
    return R.sites_case(name, folder, spec, make)


# ---------------------------------------------------------------- peaks


def peaks():
    c = {}

    def add(name, component, stage, part, dtype, geos, **kw):
        c["p_" + name] = dict(component=component, stage=stage, part=part, dtype=dtype, geos=geos, **kw)

    fwd, b2, tile = "denoise_forward", {"b": 2}, {"tile": True}
    dec, enc = dict(what="decode"), dict(what="encode")
    b2t, rows = {"b": 2, "text": 128}, {"b": 2, "text": 128, "rows": True}
    add("ltx2b", "ltx-video-2b", fwd, "ltx2b", "bf16", [
        (512, 704, 161), (480, 832, 97), (704, 1216, 161), (320, 512, 49), (352, 608, 65), (480, 832, 97, b2),
        (512, 704, 161, b2t), (704, 1216, 257, b2t), (512, 704, 161, rows), (352, 608, 65, rows)])
    add("cog5b", "cogvideox-5b", fwd, "cog5b", "bf16", [
        (480, 720, 49), (480, 720, 49, b2), (480, 720, 25), (256, 384, 17, b2), (480, 848, 33), (768, 1360, 49)])
    add("hunyuan", "hunyuanvideo-t2v", fwd, "hunyuan", "bf16", [
        (544, 960, 61), (544, 960, 129), (320, 512, 61), (320, 512, 17, b2), (400, 608, 33), (720, 1280, 61)])
    add("mochi", "mochi-1", fwd, "mochi", "bf16", [
        (480, 848, 163), (480, 848, 85), (480, 848, 31), (480, 848, 31, b2), (352, 640, 61, b2), (480, 848, 163, b2)])
    add("vae_ltx_bf16", "ltx-video-vae", "decode", "vae_ltx", "bf16", [
        (480, 832, 97), (512, 704, 161, tile), (512, 704, 161), (704, 1216, 161), (704, 1216, 161, tile), (320, 512, 49),
        (352, 608, 65), (480, 832, 49, b2)], **dec)
    add("vae_cog_bf16", "cogvideox-vae", "decode", "vae_cog", "bf16", [
        (480, 720, 49), (480, 720, 49, tile), (480, 720, 25), (256, 384, 17), (480, 720, 9, b2), (480, 848, 33),
        (768, 1360, 81, tile), (768, 1360, 17)], **dec)
    add("vae_hunyuan_bf16", "hunyuanvideo-vae", "decode", "vae_hunyuan", "bf16", [
        (544, 960, 33), (544, 960, 33, tile), (320, 512, 61), (320, 512, 9), (544, 960, 61, tile), (720, 1280, 33, tile),
        (320, 512, 17, b2), (400, 608, 33)], **dec)
    add("vae_mochi_bf16", "mochi-vae", "decode", "vae_mochi", "bf16", [
        (480, 848, 85), (480, 848, 31), (480, 848, 19), (352, 640, 31, b2), (352, 608, 61), (480, 848, 85, tile),
        (480, 848, 31, tile), (480, 848, 163, tile)], **dec)
    add("vae_h3_cast", "minimax-h3-video-vae-cast", "decode", "vae_h3", "bf16", [
        (768, 1344, 124), (768, 1344, 124, tile), (480, 832, 39)], mode="cast", **dec)
    add("vae_h3_bf16", "minimax-h3-video-vae", "decode", "vae_h3", "bf16", [
        (768, 1344, 124, tile), (480, 832, 124, tile), (480, 832, 39), (480, 832, 39, tile)], **dec)
    add("vae_h3_fp32", "minimax-h3-video-vae", "decode", "vae_h3", "fp32", [
        (480, 832, 124), (480, 832, 39, tile), (480, 832, 22)], **dec)
    add("h3_cast", "minimax-h3-dit-cast", fwd, "h3", "bf16", [(480, 832, 243), (480, 832, 124)], mode="cast")
    add("h3", "minimax-h3-dit", fwd, "h3", "bf16", [(480, 832, 243), (480, 832, 124), (768, 1344, 124), (480, 832, 124, b2), (480, 832, 124, {"text": 100})])
    add("vae_mochi_fp32", "mochi-vae", "decode", "vae_mochi", "fp32", [
        (480, 848, 31), (480, 848, 19), (480, 848, 31, tile), (480, 848, 85)], **dec)
    add("ltx13b", "ltx-video-13b", fwd, "ltx13b", "bf16", [
        (512, 704, 161), (480, 832, 97, b2), (704, 1216, 121, b2t), (320, 512, 49), (512, 704, 97, rows)])
    add("cog2b", "cogvideox-2b", fwd, "cog2b", "bf16", [(480, 720, 49), (480, 720, 49, b2), (480, 720, 25), (256, 384, 17, b2)])
    add("cog5bi2v", "cogvideox-5b-i2v", fwd, "cog5bi2v", "bf16", [(480, 720, 49), (480, 720, 49, b2)])
    add("cog1.5", "cogvideox1.5-5b", fwd, "cog1.5", "bf16", [
        (768, 1360, 81), (768, 1360, 81, b2), (480, 720, 81, b2), (768, 1360, 41)])
    add("vae_ltx_fp32", "ltx-video-vae", "decode", "vae_ltx", "fp32", [(480, 832, 97), (512, 704, 161, tile), (320, 512, 49)], **dec)
    add("vae_ltx095_bf16", "ltx-video-0.9.5-vae", "decode", "vae_ltx095", "bf16", [
        (480, 832, 97), (512, 704, 161, tile), (704, 1216, 121), (704, 1216, 121, tile), (320, 512, 49, b2)], **dec)
    add("vae_ltx095_fp32", "ltx-video-0.9.5-vae", "decode", "vae_ltx095", "fp32", [(480, 832, 97), (512, 704, 97, tile)], **dec)
    add("vae_cog_fp32", "cogvideox-vae", "decode", "vae_cog", "fp32", [(480, 720, 49), (480, 720, 49, tile), (256, 384, 17)], **dec)
    add("vae_hunyuan_fp32", "hunyuanvideo-vae", "decode", "vae_hunyuan", "fp32", [
        (320, 512, 33), (544, 960, 13), (544, 960, 33, tile)], **dec)
    add("enc_ltx095_bf16", "ltx-video-0.9.5-vae", "encode", "vae_ltx095", "bf16", [(480, 832, 1), (480, 832, 97), (704, 1216, 1), (704, 1216, 97, tile)], **enc)
    add("enc_ltx_bf16", "ltx-video-vae", "encode", "vae_ltx", "bf16", [(480, 832, 1), (512, 704, 97)], **enc)
    add("enc_cog_bf16", "cogvideox-vae", "encode", "vae_cog", "bf16", [
        (480, 720, 1), (480, 720, 49), (480, 720, 49, tile), (768, 1360, 1)], **enc)
    add("enc_cog_fp32", "cogvideox-vae", "encode", "vae_cog", "fp32", [(480, 720, 1)], **enc)
    add("enc_hunyuan_bf16", "hunyuanvideo-vae", "encode", "vae_hunyuan", "bf16", [
        (544, 960, 1), (320, 512, 33), (544, 960, 33, tile), (720, 1280, 1)], **enc)
    add("enc_mochi_bf16", "mochi-vae", "encode", "vae_mochi", "bf16", [(480, 848, 1), (480, 848, 31), (480, 848, 31, tile)], **enc)
    add("enc_h3_bf16", "minimax-h3-video-vae", "encode", "vae_h3", "bf16", [
        (480, 832, 1, tile), (768, 1344, 1, tile), (480, 832, 34, tile), (480, 832, 17)], **enc)
    add("dec_h3audio", "minimax-h3-audio-vae", "decode", "vae_h3audio", "bf16", [(0, 0, 207, b2), (0, 0, 405, b2)], **dec)
    add("enc_h3audio", "minimax-h3-audio-vae", "encode", "vae_h3audio", "bf16", [(0, 0, 207, b2)], **enc)
    add("t5_bf16", "t5-xxl-encoder", "encode_prompt", "t5", "bf16", [
        (0, 0, 0, {"text": 128}), (0, 0, 0, {"text": 226}), (0, 0, 0, {"text": 256, "valid": 40}), (0, 0, 0, {"text": 226, "b": 2}),
        (0, 0, 0, {"text": 512})], text=128)
    add("t5_fp32", "t5-xxl-encoder", "encode_prompt", "t5", "fp32", [(0, 0, 0, {"text": 226})], text=226)
    add("llama_bf16", "llama-3-8b-encoder", "encode_prompt", "llama", "bf16", [
        (0, 0, 0, {"text": 351, "valid": 140}), (0, 0, 0, {"text": 351, "valid": 140, "b": 2})], text=351, valid=140)
    add("clip_bf16", "clip-l-text-encoder", "encode_prompt", "clip", "bf16", [(0, 0, 0), (0, 0, 0, b2)])
    return c


def warm(spec):
    part = spec["part"]
    if part == "vae_h3audio":
        return dict(spec, f=20)
    if part not in INPUTS and not part.startswith("vae"):
        return dict(spec)
    if part == "cog5bi2v":
        return dict(spec, h=480, w=720, f=5)
    f = 22 if part in ("h3", "vae_h3") and spec.get("what") != "encode" else 17 if part == "vae_h3" else 9
    return dict(spec, h=128, w=128, f=f)


def label(row, spec):
    part, b = spec["part"], row.get("b", 1)
    dtype = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}[spec["dtype"]]
    size = f"{row['h']}x{row['w']}x{row['f']}"
    more = f":b{b}" if b > 1 else ""
    if part in INPUTS:
        text = row.get("text", {"h3": 300}.get(part))
        words = f" text{text}" if part == "h3" else f":text{text}" if text else ""
        return size + words + more + (":row timesteps" if row.get("rows") else "")
    if part == "vae_h3audio":
        return f"{row['f']} latents:float32{more}"
    if part.startswith("vae"):
        entry = PARTS[part][3]
        return f"{size}:{dtype}:tile={bool(row.get('tile'))}{more} params={catalog()[entry]}"
    return f"{row.get('text', 77)} tokens:{dtype}" + (":mask" if row.get("valid") else "") + more


def peaks_case(name, folder, spec):
    return R.peaks_case(name, folder, spec, make, warm, label)


# ---------------------------------------------------------------- pipelines


class Words:
    """A tokenizer that answers padded ids, 40 of them words."""

    def __init__(self, longest, words=40):
        self.model_max_length, self.words = longest, words

    def __call__(self, text, max_length=None, padding=None, **kw):
        n = len(text) if isinstance(text, list) else 1
        ids = T.full((n, self.words if padding == "longest" else max_length or self.model_max_length), 1, dtype=T.int64)
        mask = T.zeros_like(ids)
        ids[:, : self.words] = 7
        mask[:, : self.words] = 1
        return type("Out", (), {"input_ids": ids, "attention_mask": mask})()


def pipes():
    c = {}

    def add(name, pipe, dit, vae, geo, both=True, **kw):
        for place in ("resident", "model_offload") if both else ("resident",):
            c[f"t_{name}_{place}"] = dict(pipe=pipe, dit=dit, vae=vae, geo=geo, place=place, **kw)

    add("ltx", "LTXPipeline", "ltx2b", "vae_ltx", (480, 704, 33))
    add("cogvideox", "CogVideoXPipeline", "cog5b", "vae_cog", (480, 720, 17))
    add("hunyuan", "HunyuanVideoPipeline", "hunyuan", "vae_hunyuan", (320, 512, 13))
    add("mochi", "MochiPipeline", "mochi", "vae_mochi", (480, 848, 13))
    add("cogvideox_tiled", "CogVideoXPipeline", "cog5b", "vae_cog", (480, 720, 9), both=False, tile=True)
    add("cogvideox_i2v", "CogVideoXImageToVideoPipeline", "cog5bi2v", "vae_cog", (480, 720, 9), both=False, image=True)
    add("ltx_i2v095", "LTXImageToVideoPipeline", "ltx2b", "vae_ltx095", (480, 704, 17), both=False, image=True)
    add("hunyuan_tiled", "HunyuanVideoPipeline", "hunyuan", "vae_hunyuan", (320, 448, 17), both=False, tile=True)
    return c


def pipe_case(name, folder, s):
    import diffusers

    t0 = time.time()
    bf = T.bfloat16
    if not DRY:
        T.cuda.init()
        T.cuda.mem_get_info()
    few = dict(few=True, device="cpu")
    hunyuan, cog = s["pipe"].startswith("Hunyuan"), s["pipe"].startswith("CogVideoX")
    parts = dict(transformer=build_part(s["dit"], bf, **few), vae=build_part(s["vae"], bf, **few))
    parts["scheduler"] = diffusers.CogVideoXDPMScheduler() if cog else diffusers.FlowMatchEulerDiscreteScheduler(
        **({"use_dynamic_shifting": True} if s["pipe"].startswith("LTX") else {}))
    if hunyuan:
        parts.update(text_encoder=build_part("llama", bf, **few), text_encoder_2=build_part("clip", bf, **few))
        parts.update(tokenizer=Words(256, 140), tokenizer_2=Words(77))
    else:
        parts.update(text_encoder=build_part("t5", bf, **few), tokenizer=Words(128 if s["pipe"].startswith("LTX") else 256))
    pipe = getattr(diffusers, s["pipe"])(**parts)
    if s.get("tile"):
        pipe.vae.enable_tiling()
    info = {"spec": dict(s), "build_s": round(time.time() - t0, 1)}
    info["models"] = {k: weigh(v) for k, v in parts.items() if isinstance(v, T.nn.Module)}
    parts = None
    pipe.set_progress_bar_config(disable=True)
    w = Watch(pipe, ("decode_latents",) if cog else (), ("text_encoder", "text_encoder_2") if hunyuan else ("text_encoder",))
    w.trace(True)
    w.mark("built on the host")
    if s["place"] == "resident":
        pipe.to(DEV)
    elif not DRY:
        pipe.enable_model_cpu_offload()
    w.mark("placed")
    h, wd, f = small(*s["geo"])
    kw = dict(prompt="a cat", height=h, width=wd, num_frames=f, num_inference_steps=3, guidance_scale=5.0)
    if not hunyuan:
        kw["negative_prompt"] = "bad"
    if s.get("image"):
        from PIL import Image

        kw["image"] = Image.new("RGB", (wd, h), (90, 120, 30))
    if s["vae"] == "vae_ltx095":
        kw["decode_timestep"] = 0.05
    info["marks"] = w.marks
    try:
        w.call("pt", output_type="pt", **kw)
        w.call("np", output_type="np", **kw)
    except Exception:
        info["error"] = traceback.format_exc()[-1500:]
    empty_cache()
    w.mark("cache emptied")
    info["kept"] = w.finish(name, folder)
    return info


# ---------------------------------------------------------------- running


R.GROUPS = {"sites": (sites, sites_case, 6), "pipe": (pipes, pipe_case, 5), "peaks": (peaks, peaks_case, 1)}


def main(args):
    if "--check" in args:
        libraries()
        sys.exit(check())
    record(args, "family", libraries, {"sites": "sites", "pipe": "pipelines", "peaks": "peaks"})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        libraries()
        child(*sys.argv[2:5])
    else:
        main(sys.argv[1:])
