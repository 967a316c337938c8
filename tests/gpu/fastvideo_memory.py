#!/usr/bin/env python3
"""Record what FastVideo's own Wan code allocates on a GPU.

The code is the released wheel's (fastvideo 0.2.1): its transformer, VAE, text
encoder, loaders, stages and layerwise hook, called as its stages call them.
Weights are made on the spot; nothing is downloaded. Every case runs in a
process of its own, forked from one that has only imported the libraries (no
CUDA context). Needs one CUDA GPU, torch, diffusers, transformers, fastvideo,
ftfy, wcwidth and remote_pdb; the VSA cases also the Python files of
fastvideo_kernel (its Triton kernels; the compiled ones are not used).

    python3 tests/gpu/fastvideo_memory.py              # all cases
    python3 tests/gpu/fastvideo_memory.py --list       # case names, no GPU needed
    python3 tests/gpu/fastvideo_memory.py GROUP|NAME...  # some of them

Groups: peaks (no trace), traces (as wan_memory.py's), alone (one at a time on
the card: process overheads, layerwise offload, text encoder, whole request).

One row is one measured call. Before it: the model is built, one call has been
made (transformers and text encoder: the same call; VAE: 64x64x5), so that
handles and workspaces exist, its tensors are dropped and the cache is emptied.
Then base_alloc is read (weights and inputs), the peaks are reset, the call is
made, the card is synchronised and the peaks are read. device_peak is what NVML
counts for the process after the call, before the cache is emptied; sec is one
call with other cases beside it on the card, no measure of speed.
Layerwise rows are the third call, text encoder rows the second of each length.
The stages of a request follow one another with nothing emptied between them;
only the peaks are reset, which FastVideo itself never does.
VAE modes: ac is the default (fp32 weights, autocast to bf16), bf16w the same
with bf16 weights, bf16 that without autocast, fp32 without either.

Under $OUT (the current folder where OUT is unset):
  peaks.csv        columns of h200_diffusers_peaks.csv
  peaks.json       the same rows with more columns
  stages.json      the group alone
  traces.json, fastvideo_traces.tar   the group traces; recording.py says what
                   the lines of a trace mean, FRAMES are FastVideo's frames here
  run.json         card, versions, failures
"""

import csv
import gc
import gzip
import io
import json
import os
import sys
import tarfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import recording as W  # noqa: E402

os.environ.setdefault("FASTVIDEO_LOGGING_LEVEL", "ERROR")
os.environ.setdefault("LOCAL_RANK", "0")
os.environ.setdefault("RANK", "0")
os.environ.setdefault("WORLD_SIZE", "1")
os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")

DRY, DEV, MIB = W.DRY, W.DEV, 1 << 20
T = None  # torch, once imported

DITS = {  # fields of WanVideoArchConfig
    "1.3b": dict(num_attention_heads=12, ffn_dim=8960, num_layers=30),
    "14b": dict(num_attention_heads=40, ffn_dim=13824, num_layers=40),
    "i2v-14b": dict(num_attention_heads=40, ffn_dim=13824, num_layers=40, in_channels=36, image_dim=1280, added_kv_proj_dim=5120),
    "5b": dict(num_attention_heads=24, ffn_dim=14336, num_layers=30, in_channels=48, out_channels=48),
}
NAMES = {"1.3b": "wan2.1-t2v-1.3b", "14b": "wan2.1-t2v-14b", "i2v-14b": "wan2.1-i2v-14b", "5b": "wan2.2-ti2v-5b"}
VAE_22 = dict(
    base_dim=160, decoder_base_dim=256, z_dim=48, is_residual=True, in_channels=12, out_channels=12,
    patch_size=2, scale_factor_spatial=16, latents_mean=(0.0,) * 48, latents_std=(1.0,) * 48,
)
UMT5 = dict(
    vocab_size=256384, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64, feed_forward_proj="gated-gelu",
)


def libraries():
    """Imports everything; fastvideo_kernel asks for a CUDA device, so not here."""
    global T
    import torch

    T = W.T = torch
    sys.modules["fastvideo_kernel"] = None
    if DRY:
        import fastvideo.platforms as p

        p._current_platform = Dry()
    import fastvideo  # noqa: F401
    import fastvideo.hooks.layerwise_offload  # noqa: F401
    import fastvideo.models.dits.wanvideo  # noqa: F401
    import fastvideo.models.encoders.t5  # noqa: F401
    import fastvideo.models.loader.component_loader  # noqa: F401
    import fastvideo.models.schedulers.scheduling_flow_unipc_multistep  # noqa: F401
    import fastvideo.models.vaes.wanvae  # noqa: F401
    import fastvideo.pipelines.stages  # noqa: F401

    W.site_of = site_of
    if DRY:
        cuda = T.autocast
        T.autocast = lambda device_type, **k: cuda("cpu", **k)
        for n, m in list(sys.modules.items()):
            if n.startswith("fastvideo") and hasattr(m, "get_local_torch_device"):
                m.get_local_torch_device = lambda: T.device("cpu")


class Dry:
    """Stands in for the platform where there is no GPU (WAN_DRY)."""

    device_name, device_type, dispatch_key, simple_compile_backend = "cpu", "cpu", "CPU", "inductor"

    def get_attn_backend_cls(self, selected, *a):
        vsa = getattr(selected, "name", "") == "VIDEO_SPARSE_ATTN"
        return "fastvideo.attention.backends." + ("video_sparse_attn.VideoSparseAttentionBackend" if vsa else "sdpa.SDPABackend")

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *a, **k: False


def site_of(frames):
    op, mine = "", []
    for fr in frames:
        p = fr["filename"]
        if "/fastvideo/" in p or "/fastvideo_kernel/" in p:
            mine.append(f"{W.short(p)}:{fr['line']}:{fr['name']}")
            if len(mine) == 3:
                break
        elif not mine and not op and "/torch/" in p and "nn/modules/module.py" not in p:
            op = f"{W.short(p)}:{fr['line']}:{fr['name']}"
    return op, "|".join(mine)


# ---------------------------------------------------------------- the models


def join_group():
    """FastVideo's process groups, one process: NCCL and gloo, as its worker makes them."""
    if DRY:
        os.environ["MASTER_ADDR"] = "127.0.0.1"
    from fastvideo.distributed import maybe_init_distributed_environment_and_model_parallel

    if not DRY:
        T.cuda.set_device(0)
    maybe_init_distributed_environment_and_model_parallel(1, 1, f"file:///tmp/fastvideo_memory.{os.getpid()}.rendezvous")


def args_for(**kw):
    from fastvideo.configs.pipelines.wan import WanT2V480PConfig
    from fastvideo.fastvideo_args import FastVideoArgs

    cfg = WanT2V480PConfig()
    for k in ("vae_precision", "vae_decode_precision"):
        if k in kw:
            setattr(cfg, k, kw.pop(k))
    if kw.get("vae_config"):
        cfg.vae_config = kw.pop("vae_config")
    a = dict(model_path="none", num_gpus=1, tp_size=1, sp_size=1, hsdp_shard_dim=1, pipeline_config=cfg, enable_stage_verification=False)
    return FastVideoArgs(**{**a, **kw})


def build_dit(kind, layers=None, vsa=False):
    """The transformer through the wheel's loader; only the file reader is replaced."""
    if vsa:
        os.environ["FASTVIDEO_ATTENTION_BACKEND"] = "VIDEO_SPARSE_ATTN"
        import fastvideo.attention.backends.video_sparse_attn as v

        if DRY:
            v.video_sparse_attn = lambda q, k, v, a, b, topk, block_size, compress_attn_weight: q + v * compress_attn_weight
        else:
            del sys.modules["fastvideo_kernel"]
            import fastvideo_kernel

            v.video_sparse_attn = fastvideo_kernel.video_sparse_attn
    else:
        os.environ["FASTVIDEO_ATTENTION_BACKEND"] = "TORCH_SDPA"
    from fastvideo.configs.models.dits.wanvideo import WanVideoArchConfig, WanVideoConfig
    from fastvideo.models.dits.wanvideo import WanTransformer3DModel
    from fastvideo.models.loader import fsdp_load

    arch = dict(DITS[kind], **({"num_layers": layers} if layers else {}))
    if DRY:
        arch.update(num_attention_heads=2, ffn_dim=64, num_layers=min(arch["num_layers"], 3))
        if arch.get("added_kv_proj_dim"):
            arch.update(added_kv_proj_dim=256)
    cfg = WanVideoConfig(arch_config=WanVideoArchConfig(**arch))
    with fsdp_load.set_default_dtype(T.bfloat16), T.device("meta"):
        shapes = {n: p.shape for n, p in WanTransformer3DModel(config=cfg, hf_config={}).named_parameters()}

    def weights(files, to_cpu):
        for n, s in shapes.items():
            n = n.replace("patch_embedding.proj.", "patch_embedding.")  # its name in the released files
            t = T.empty(s, dtype=T.bfloat16, device=DEV)
            yield n, t.normal_(0, 0.02) if t.is_cuda else t.zero_()

    fsdp_load.safetensors_weights_iterator = weights
    m = fsdp_load.maybe_load_fsdp_model(
        WanTransformer3DModel, {"config": cfg, "hf_config": {}}, [], T.device(DEV, 0) if DEV == "cuda" else T.device(DEV),
        hsdp_replicate_dim=1, hsdp_shard_dim=1, default_dtype=T.bfloat16, param_dtype=T.bfloat16, reduce_dtype=T.float32,
        training_mode=False,
    )
    return m.eval()


def vae_config(which, **kw):
    from fastvideo.configs.models.vaes import WanVAEConfig
    from fastvideo.configs.models.vaes.wanvae import WanVAEArchConfig

    return WanVAEConfig(arch_config=WanVAEArchConfig(**(VAE_22 if which == "2.2" else {})), **kw)


def build_vae(cfg, dtype, device=None):
    from fastvideo.models.loader.utils import set_default_torch_dtype
    from fastvideo.models.vaes.wanvae import AutoencoderKLWan

    with set_default_torch_dtype(dtype), T.device(device or DEV):
        return AutoencoderKLWan(cfg).eval()


def build_umt5(offload):
    """The text encoder as its loader leaves it: FSDP2 units with CPU offload, or on the card."""
    from fastvideo.configs.models.encoders import T5Config
    from fastvideo.configs.models.encoders.t5 import T5ArchConfig
    from fastvideo.models.encoders.t5 import UMT5EncoderModel
    from fastvideo.models.loader.fsdp_load import shard_model
    from torch.distributed import init_device_mesh

    arch = dict(UMT5, **(dict(vocab_size=1024, d_ff=64, num_layers=2) if DRY else {}))
    cfg = T5Config(arch_config=T5ArchConfig(**arch))
    with T.device("cpu" if offload else DEV):
        m = UMT5EncoderModel(cfg)
    with T.no_grad():
        for p in m.parameters():
            if p.numel() < MIB or not offload:  # the large ones are zero pages
                p.zero_()
    if offload:
        mesh = init_device_mesh(DEV, mesh_shape=(1, 1), mesh_dim_names=("offload", "replicate"))
        shard_model(
            m, cpu_offload=True, reshard_after_forward=True, mesh=mesh["offload"],
            fsdp_shard_conditions=m._fsdp_shard_conditions, pin_cpu_memory=not DRY,
        )
    return m.eval()


class Tokens:
    """A tokenizer that gives n tokens, unpadded, as the encoder's own arguments ask for."""

    def __init__(self, n):
        self.n = n

    def __call__(self, texts, **kw):
        from transformers import BatchEncoding

        assert "padding" not in kw, kw
        x = T.ones(len(texts), self.n, dtype=T.int64)
        return BatchEncoding({"input_ids": x, "attention_mask": x.clone()})


def batch_for(**kw):
    from fastvideo.pipelines.pipeline_batch_info import ForwardBatch

    return ForwardBatch(data_type="video", **kw)


# ---------------------------------------------------------------- single calls


def dit_call(m, s):
    """The call of the denoising stage, without the rest of the stage."""
    from fastvideo.forward_context import set_forward_context

    h, w, f = W.small(s["h"], s["w"], s["f"])
    c, k = m.config, 16 if s["kind"] == "5b" else 8
    lt, lh, lw = (f - 1) // 4 + 1, h // k, w // k
    x = T.randn(1, c.in_channels, lt, lh, lw, device=DEV, dtype=T.bfloat16)
    text = [T.randn(1, 512, 4096, device=DEV)]
    image = [T.randn(1, 257, 1280, device=DEV, dtype=T.bfloat16)] if c.image_dim else []
    n = lt * (lh // 2) * (lw // 2)
    t = T.full((1, n), 500.0, device=DEV) if s.get("per_token") else T.full((1,), 500.0, device=DEV)

    def call():
        meta = None
        if s.get("vsa"):
            from fastvideo.attention.backends.video_sparse_attn import VideoSparseAttentionMetadataBuilder

            meta = VideoSparseAttentionMetadataBuilder().build(
                current_timestep=0, raw_latent_shape=(lt, lh, lw), patch_size=c.patch_size, VSA_sparsity=0.8, device=x.device)
        with T.no_grad(), T.autocast(device_type=DEV, dtype=T.bfloat16), set_forward_context(current_timestep=0, attn_metadata=meta):
            return m(x, text, t, guidance=None, encoder_hidden_states_image=image)

    return call


def vae_case(s):
    """(vae, args): mode ac = the defaults; bf16w = weights bf16; bf16 = that without autocast; fp32."""
    mode = s["mode"]
    kw = {"vae_precision": "fp32" if mode in ("ac", "fp32") else "bf16", "vae_decode_precision": "fp32" if mode == "fp32" else "bf16"}
    cfg = vae_config(s["which"], load_encoder=s["what"] == "encode", load_decoder=s["what"] == "decode", **s.get("config", {}))
    a = args_for(vae_config=cfg, disable_autocast=mode == "bf16", vae_cpu_offload=False, **kw)
    a.pipeline_config.vae_config = cfg
    return build_vae(cfg, T.bfloat16 if mode.startswith("bf16") else T.float32), a


def vae_call(vae, a, s):
    h, w, f = W.small(s["h"], s["w"], s["f"])
    if s["what"] == "encode":
        x = T.rand(1, 3, f, h, w, device=DEV)

        def call():
            with T.no_grad():
                return vae.encode(x).mean

        return call
    from fastvideo.pipelines.stages import DecodingStage

    stage = DecodingStage(vae)
    k, z = (16, 48) if s["which"] == "2.2" else (8, 16)
    batch = batch_for(latents=T.randn(1, z, (f - 1) // 4 + 1, h // k, w // k, device=DEV))

    def call():
        y = stage.forward(batch, a).output
        batch.output = None
        return y

    return call


def make(s):
    """(call, warm-up call, model)."""
    if s["part"] == "dit":
        m = build_dit(s["kind"], s.get("layers"), s.get("vsa"))
        call = dit_call(m, s)
        return call, call, m
    if s["part"] == "umt5":
        from fastvideo.pipelines.stages import TextEncodingStage

        a, m = args_for(), build_umt5(s["offload"])
        stage = TextEncodingStage([m], [Tokens(512)])
        call = lambda: stage.encode_text("x", a, encoder_index=[0], return_attention_mask=True)[0][0]
        return call, call, m
    vae, a = vae_case(s)
    warm = dict(s, h=64, w=64, f=5)
    return vae_call(vae, a, s), vae_call(vae, a, warm), vae


def measure(call):
    W.empty_cache()
    W.sync()
    W.reset_peaks()
    s0, t0 = W.stats(), time.time()
    y = call()
    W.sync()
    sec, s1 = time.time() - t0, W.stats()
    return {
        "base_alloc": s0["alloc"], "peak_alloc": s1["peak_alloc"], "peak_reserved": s1["peak_reserved"], "device_peak": W.nvml_used(),
        "sec": round(sec, 4), "base_reserved": s0["reserved"], "base_requested": s0["requested"], "peak_requested": s1["peak_requested"],
        "after_alloc": s1["alloc"], "card_used": W.device_used(),
        "output": [list(y.shape), str(y.dtype).split(".")[-1]] if hasattr(y, "shape") else None,
    }


def peaks_case(name, folder, s):
    join_group()
    call, warm, m = make(s)
    info = {"spec": s, "model": W.weigh(m), "built": W.stats()}
    if s["part"] == "dit":
        info["first"] = measure(warm)
    else:
        warm()
        W.sync()
    del warm
    info["row"] = dict(measure(call), component=s["component"], stage=s["stage"], case=s["case"])
    W.empty_cache()
    info["end"], info["end_nvml"] = W.stats(), W.nvml_used()
    if s["part"] == "vae":
        try:
            y = call()
            info["output_nan"] = bool(T.isnan(y).any())
        except Exception as e:
            info["output_nan"] = repr(e)[:200]
    return info


def tiles(size, stride):
    return dict(use_feature_cache=False, use_tiling=True, tile_sample_min_height=size, tile_sample_min_width=size,
                tile_sample_stride_height=stride, tile_sample_stride_width=stride)


def peaks():
    c = {}

    def dit(name, kind, h, w, f, layers=None, **kw):
        s = dict(part="dit", kind=kind, h=h, w=w, f=f, component=f"fastvideo {NAMES[kind]}-dit", stage="denoise_forward", **kw)
        if layers:
            s["layers"] = layers
        s["case"] = f"({h}, {w}, {f})b1" + (":vsa" if kw.get("vsa") else "") + (":per_token" if kw.get("per_token") else "") + (f":{layers} layers" if layers else "")
        c["p_" + name] = s

    def vae(name, which, mode, h, w, f, what="decode", tag="", **config):
        c["p_" + name] = dict(part="vae", which=which, mode=mode, what=what, h=h, w=w, f=f, component=f"fastvideo wan{which}-vae ({what}r loaded)",
                              stage=what, case=f"({h}, {w}, {f}):{mode}{tag}", config=config)

    dit("1.3b_480x832x81", "1.3b", 480, 832, 81)
    dit("1.3b_480x832x33", "1.3b", 480, 832, 33)
    dit("1.3b_720x1280x33", "1.3b", 720, 1280, 33)
    dit("1.3b_448x832x81", "1.3b", 448, 832, 81)
    dit("14b_480x832x81", "14b", 480, 832, 81, 8)
    dit("i2v14b_480x832x33", "i2v-14b", 480, 832, 33, 8)
    dit("5b_704x1280x49", "5b", 704, 1280, 49)
    dit("5b_pertoken_480x832x81", "5b", 480, 832, 81, per_token=True)
    dit("1.3b_vsa_480x832x81", "1.3b", 480, 832, 81, vsa=True)
    dit("1.3b_vsa_448x832x61", "1.3b", 448, 832, 61, vsa=True)
    for mode in ("ac", "bf16w", "bf16", "fp32"):
        vae(f"vae21_{mode}_480x832x17", "2.1", mode, 480, 832, 17)
        vae(f"vae21_{mode}_480x832x81", "2.1", mode, 480, 832, 81)
        vae(f"vae21_{mode}_720x1280x33", "2.1", mode, 720, 1280, 33)
    vae("vae21_ac_tiles512_480x832x33", "2.1", "ac", 480, 832, 33, tag=":uncached:tiles 512/384", **tiles(512, 384))
    vae("vae21_ac_tiles256_480x832x81", "2.1", "ac", 480, 832, 81, tag=":uncached:tiles 256/192", **tiles(256, 192))
    vae("vae21_ac_uncached_480x832x33", "2.1", "ac", 480, 832, 33, tag=":uncached", use_feature_cache=False)
    vae("vae21_enc_fp32_480x832x17", "2.1", "fp32", 480, 832, 17, what="encode")
    vae("vae22_ac_704x1280x17", "2.2", "ac", 704, 1280, 17)
    return c


# ---------------------------------------------------------------- traces


def traces_case(name, folder, s):
    join_group()
    call, warm, m = make(s)
    if s.get("layerwise"):
        from fastvideo.hooks.layerwise_offload import enable_layerwise_offload

        enable_layerwise_offload(m)
    info = {"spec": s, "model": W.weigh(m), "built": W.stats()}
    warm()
    W.sync()
    hooks, book, lines, seqs = (None if DRY else W.Modules(m)), W.Book(), {}, {}
    for i in (1, 2):
        W.empty_cache()
        W.sync()
        W.reset_peaks()
        before = W.stats()
        W.recording(True)
        if hooks:
            hooks.start()
        y = call()
        W.sync()
        calls = hooks.stop() if hooks else []
        after = W.stats()
        trace = [] if DRY else T.cuda.memory._snapshot()["device_traces"][0]
        W.recording(False)
        lines[i], kept, seqs[i] = W.events(book, trace, calls)
        info[f"call{i}"] = {"before": before, "after_with_output": after, "kept": kept, "allocs": len(seqs[i]),
                            "output": [list(y.shape), str(y.dtype).split(".")[-1]]}
        del trace, y
        gc.collect()
    info["first_equals_second"] = seqs[1] == seqs[2]
    if hooks:
        hooks.remove()
    W.empty_cache()
    W.reset_peaks()
    before = W.stats()
    y = call()
    W.sync()
    info["call3_untraced"] = {"before": before, "after_with_output": W.stats(), "nvml": W.nvml_used()}
    text = "\n".join(book.head() + lines[2]) + "\n"
    with gzip.GzipFile(os.path.join(folder, name + ".txt.gz"), "wb", 9, mtime=0) as out:
        out.write(text.encode())
    return info


def traces():
    d = lambda kind, h, w, f, **k: dict(part="dit", kind=kind, h=h, w=w, f=f, **k)
    v = lambda which, mode, h, w, f, what="decode", **c: dict(part="vae", which=which, mode=mode, what=what, h=h, w=w, f=f, config=c)
    return {
        "f_umt5_offload": {"part": "umt5", "offload": True},
        "f_dit1.3b_480x832x81": d("1.3b", 480, 832, 81, layers=3),
        "f_dit1.3b_vsa_480x832x81": d("1.3b", 480, 832, 81, layers=3, vsa=True),
        "f_dit5b_pertoken_480x832x81": d("5b", 480, 832, 81, layers=3, per_token=True),
        "f_dit1.3b_layerwise_480x832x81": d("1.3b", 480, 832, 81, layers=6, layerwise=True),
        "f_vae21_ac_480x832x17": v("2.1", "ac", 480, 832, 17),
        "f_vae21_bf16_480x832x17": v("2.1", "bf16", 480, 832, 17),
        "f_vae21_enc_fp32_480x832x17": v("2.1", "fp32", 480, 832, 17, "encode"),
        "f_vae22_ac_480x832x17": v("2.2", "ac", 480, 832, 17),
        "f_vae21_fp32_480x832x17": v("2.1", "fp32", 480, 832, 17),
        "f_vae21_ac_720x1280x9": v("2.1", "ac", 720, 1280, 9),
        "f_vae21_ac_uncached_480x832x17": v("2.1", "ac", 480, 832, 17, use_feature_cache=False),
        "f_vae21_ac_tiles512_480x832x33": v("2.1", "ac", 480, 832, 33, **tiles(512, 384)),
        "f_vae21_ac_tiles256_480x832x33": v("2.1", "ac", 480, 832, 33, **tiles(256, 192)),
        "f_i2v14b_480x832x33": d("i2v-14b", 480, 832, 33, layers=3),
    }


# ---------------------------------------------------------------- alone


def now(**kw):
    return dict(kw, **W.stats(), card_used=W.device_used(), nvml=W.nvml_used(), **W.host())


def fixed_case(name, folder, s):
    steps = []
    if not DRY:
        T.cuda.init()
        T.cuda.mem_get_info()
    steps.append(now(after="context"))
    join_group()
    steps.append(now(after="process groups"))
    x = T.zeros(1, device=DEV)
    steps.append(now(after="one element"))
    x = T.randn(512, 512, device=DEV, dtype=T.bfloat16)
    y = x @ x
    W.sync()
    steps.append(now(after="bf16 matmul"))
    y = T.nn.functional.linear(x.float(), x.float())
    W.sync()
    steps.append(now(after="fp32 linear"))
    del y
    return {"steps": steps}


def layerwise_case(name, folder, s):
    from fastvideo.hooks.layerwise_offload import enable_layerwise_offload

    join_group()
    m = build_dit(s["kind"], s.get("layers"), s.get("vsa"))
    info = {"spec": s, "model": W.weigh(m), "loaded": now()}
    info["block_param_bytes"] = [sum(p.numel() * p.element_size() for p in b.parameters()) for b in m.blocks][:2]
    info["block_params"] = sum(len(list(b.parameters())) for b in m.blocks)
    info["pinned_bytes_wanted"] = sum(p.numel() * p.element_size() for b in m.blocks for p in b.parameters())
    t0 = time.time()
    if not DRY:
        enable_layerwise_offload(m)
    info["hook_s"] = round(time.time() - t0, 2)
    info["hooked"] = now()
    W.empty_cache()
    info["hooked_cache_emptied"] = now()
    call = dit_call(m, s)
    rows = []
    for i in range(4):
        if i == 2:
            W.empty_cache()
        W.reset_peaks()
        s0 = W.stats()
        y = call()
        W.sync()
        s1 = now()
        del y
        rows.append({"before": s0, "after": s1, "between": W.stats(), "cache_emptied_before": i == 2})
    info["calls"] = rows
    a = rows[2]
    info["row"] = {
        "component": f"fastvideo {NAMES[s['kind']]}-dit", "stage": "denoise_forward_layerwise", "case": s["case"], "base_alloc": a["before"]["alloc"],
        "peak_alloc": a["after"]["peak_alloc"], "peak_reserved": a["after"]["peak_reserved"], "device_peak": a["after"]["nvml"], "sec": 0,
    }
    return info


def text_case(name, folder, s):
    from fastvideo.pipelines.stages import TextEncodingStage

    join_group()
    a = args_for()
    t0 = time.time()
    m = build_umt5(s["offload"])
    info = {"spec": s, "model": W.weigh(m), "build_s": round(time.time() - t0, 1), "built": now(), "calls": []}
    for n in s["tokens"]:
        stage = TextEncodingStage([m], [Tokens(n)])
        for again in (False, True):
            W.empty_cache()
            W.reset_peaks()
            before = W.stats()
            t0 = time.time()
            with T.no_grad():
                y = stage.encode_text("x", a, encoder_index=[0], return_attention_mask=True)
            W.sync()
            after = now(tokens=n, again=again, sec=round(time.time() - t0, 2))
            del y
            info["calls"].append({"before": before, "after": after, "dropped": W.stats()})
        info.setdefault("rows", []).append({
            "component": "fastvideo umt5-xxl", "stage": "encode" + ("_fsdp_cpu_offload" if s["offload"] else ""), "case": f"{n} tokens:fp32:b1",
            "base_alloc": before["alloc"], "peak_alloc": after["peak_alloc"], "peak_reserved": after["peak_reserved"],
            "device_peak": after["nvml"], "sec": after["sec"],
        })
    return info


def request_case(name, folder, s):
    """T2V 1.3B with FastVideo's defaults but the VAE, which stays on the card, stage by stage."""
    from fastvideo.hooks.layerwise_offload import enable_layerwise_offload
    from fastvideo.models.schedulers.scheduling_flow_unipc_multistep import FlowUniPCMultistepScheduler
    from fastvideo.pipelines.stages import (ConditioningStage, DecodingStage, DenoisingStage, LatentPreparationStage, TextEncodingStage,
                                            TimestepPreparationStage)

    h, w, f = W.small(480, 832, 81)
    info = {"spec": s, "marks": []}
    mark = lambda what, **kw: info["marks"].append(now(mark=what, **kw))
    join_group()
    mark("process groups")
    umt5 = build_umt5(True)
    mark("text encoder loaded")
    cfg = vae_config("2.1", load_encoder=False, load_decoder=True)
    a = args_for(vae_config=cfg, vae_cpu_offload=s["vae_cpu_offload"])
    a.pipeline_config.vae_config = cfg
    vae = build_vae(cfg, T.float32, "cpu" if s["vae_cpu_offload"] else None)
    mark("vae loaded")
    W.reset_peaks()
    dit = build_dit("1.3b")
    mark("transformer loaded")
    if not DRY:
        enable_layerwise_offload(dit)
    mark("layerwise on")
    sched = FlowUniPCMultistepScheduler(shift=a.pipeline_config.flow_shift)
    stages = [TextEncodingStage([umt5], [Tokens(s["tokens"])]), ConditioningStage(), TimestepPreparationStage(sched),
              LatentPreparationStage(sched, dit), DenoisingStage(dit, sched, vae=vae), DecodingStage(vae)]
    for r in range(2):
        b = batch_for(prompt="x", negative_prompt="y", height=h, width=w, num_frames=f, num_inference_steps=2, guidance_scale=3.0,
                      generator=T.Generator("cpu").manual_seed(0), prompt_attention_mask=[], negative_attention_mask=[])
        with T.no_grad():
            for st in stages:
                W.reset_peaks()
                t0 = time.time()
                b = st.forward(b, a)
                W.sync()
                mark(f"request {r + 1} {type(st).__name__}", sec=round(time.time() - t0, 2))
    mark("output", output=[list(b.output.shape), str(b.output.dtype), str(b.output.device)])
    info["rows"] = [
        {"component": "fastvideo wan2.1-t2v-1.3b request" + (":vae_cpu_offload" if s["vae_cpu_offload"] else ""), "stage": m["mark"].split()[-1], "case": f"({h}, {w}, {f}) 2 steps cfg, " + m["mark"][:9],
         "base_alloc": p["alloc"], "peak_alloc": m["peak_alloc"], "peak_reserved": m["peak_reserved"], "device_peak": m["nvml"], "sec": m["sec"]}
        for p, m in zip(info["marks"], info["marks"][1:]) if m["mark"].startswith("request")
    ]
    return info


def alone():
    lw = lambda kind, h, w, f, **k: dict(body="layerwise", kind=kind, h=h, w=w, f=f, case=f"({h}, {w}, {f})b1" + (f":{k['layers']} layers" if "layers" in k else ""), **k)
    return {
        "a_fixed": {"body": "fixed"},
        "a_layerwise_1.3b_480x832x81": lw("1.3b", 480, 832, 81),
        "a_layerwise_14b_480x832x33": lw("14b", 480, 832, 33, layers=8),
        "a_umt5_resident": {"body": "text", "offload": False, "tokens": [512, 60]},
        "a_umt5_offload": {"body": "text", "offload": True, "tokens": [512, 60]},
        "a_request": {"body": "request", "vae_cpu_offload": False, "tokens": 60},
    }


def alone_case(name, folder, s):
    return {"fixed": fixed_case, "layerwise": layerwise_case, "text": text_case, "request": request_case}[s["body"]](name, folder, s)


# ---------------------------------------------------------------- running


GROUPS = {"peaks": (peaks, peaks_case, 6), "traces": (traces, traces_case, 6), "alone": (alone, alone_case, 1)}
W.GROUPS = GROUPS


def main(args):
    tables = {g: GROUPS[g][0]() for g in GROUPS}
    if "--list" in args:
        for g, t in tables.items():
            print(*(f"{g:6} {n}" for n in t), sep="\n")
        return
    want = {g: [n for n in t if not args or g in args or n in args] for g, t in tables.items()}
    out = os.environ.get("OUT", ".")
    folder = f"/tmp/fastvideo_memory.{os.getpid()}"
    os.makedirs(folder)
    libraries()
    fork = DRY or W.fork_works()
    failed, spent = {}, {"imports": round(time.time() - W.START, 1)}
    for g in GROUPS:
        t0 = time.time()
        W.schedule([(g, n) for n in want[g]], folder, GROUPS[g][2], fork, failed)
        spent[g] = round(time.time() - t0, 1)
        print(f"{g}: {len(want[g])} cases, {spent[g]} s", flush=True)
    res = {}
    for g in GROUPS:
        res[g] = {}
        for n in want[g]:
            p = os.path.join(folder, n + ".json")
            if os.path.exists(p):
                with open(p) as f:
                    res[g][n] = json.load(f)
                if res[g][n].get("error"):
                    failed[n] = res[g][n]["error"][-1500:]
    for g, file in (("alone", "stages"), ("traces", "traces"), ("peaks", "peaks")):
        if want[g]:
            with open(os.path.join(out, file + ".json"), "w") as f:
                json.dump(res[g], f, separators=(",", ":"))
    if want["traces"]:
        with tarfile.open(os.path.join(out, "fastvideo_traces.tar"), "w") as tar:
            for n in sorted(os.listdir(folder)):
                if n.endswith(".txt.gz"):
                    with open(os.path.join(folder, n), "rb") as f:
                        data = f.read()
                    item = tarfile.TarInfo(n)
                    item.size = len(data)
                    tar.addfile(item, io.BytesIO(data))
    rows = [r for g in ("peaks", "alone") for i in res[g].values() for r in ([i["row"]] if "row" in i else i.get("rows", []))]
    cols = ["component", "stage", "case", "base_alloc", "peak_alloc", "peak_reserved", "device_peak", "sec"]
    with open(os.path.join(out, "peaks.csv"), "w", newline="") as f:
        wr = csv.DictWriter(f, cols, extrasaction="ignore", lineterminator="\n")
        wr.writeheader()
        wr.writerows(rows)
    run = {"failed": failed, "seconds": spent, "forked": fork}
    if not DRY:
        import subprocess
        from importlib.metadata import version

        run["gpu"] = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
        run["versions"] = {n: version(n) for n in ("torch", "fastvideo", "fastvideo_kernel", "diffusers", "transformers", "triton")}
        run["versions"].update(cudnn=T.backends.cudnn.version(), python=sys.version.split()[0])
        run["flags"] = {"cudnn.benchmark": T.backends.cudnn.benchmark, "cudnn.allow_tf32": T.backends.cudnn.allow_tf32,
                        "matmul.allow_tf32": T.backends.cuda.matmul.allow_tf32, "cudnn_sdp": T.backends.cuda.cudnn_sdp_enabled()}
    with open(os.path.join(out, "run.json"), "w") as f:
        json.dump(run, f, indent=1)
    for r in rows:
        print(*(r[c] for c in cols))
    print(run.get("gpu"), spent)
    for n, e in failed.items():
        print("FAILED", n, e[-1100:])
    if DRY:
        print(folder)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        libraries()
        W.child(*sys.argv[2:5])
    else:
        main(sys.argv[1:])
