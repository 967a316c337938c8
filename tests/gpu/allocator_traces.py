#!/usr/bin/env python3
"""Record what PyTorch's CUDA caching allocator does, event by event.

Every case runs in a process of its own with its own allocator settings, with
the allocator's history on from the first byte. It leaves NAME.csv.gz and one
entry in summary.json; both go into allocator_traces.tar and summary.json under
$OUT (the current folder where OUT is unset). Needs one CUDA GPU and torch; the
model cases need diffusers. Nothing is built or downloaded.

    python3 tests/gpu/allocator_traces.py            # all cases
    python3 tests/gpu/allocator_traces.py --list     # their names, no GPU
    python3 tests/gpu/allocator_traces.py NAME...    # some of them

A trace line is op,size,addr,stream. Addresses are in units of 512 bytes from
the lowest segment of the case (so their order is the driver's); streams are
ranks in the order of their handles, and a stream of 0 (the default) is blank:
  a  a block was handed out: requested bytes, address
  f  its free was requested and completed in one go: address
  r  its free was requested, but it waits for other streams: address
  c  a waiting free completed: address
  S  a segment came from the driver: bytes, address
  X  a segment went back to the driver: bytes, address
  M  part of an expandable segment was mapped: bytes, address
  U  part of an expandable segment was unmapped: bytes, address
  o  out of memory was raised: bytes
  s  a mark set by the case; its statistics are the next item of `marks`.
     Between a mark named "empty<" and the next one the cache was emptied.
"""

import gc
import gzip
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
START = time.time()
BUDGET_S = 330
WORKERS = 6

STATS = {
    "allocated": "allocated_bytes.all.current",
    "allocated_peak": "allocated_bytes.all.peak",
    "reserved": "reserved_bytes.all.current",
    "reserved_peak": "reserved_bytes.all.peak",
    "active": "active_bytes.all.current",
    "active_peak": "active_bytes.all.peak",
    "requested": "requested_bytes.all.current",
    "requested_peak": "requested_bytes.all.peak",
    "inactive_split": "inactive_split_bytes.all.current",
    "inactive_split_peak": "inactive_split_bytes.all.peak",
    "segments": "segment.all.current",
    "segments_peak": "segment.all.peak",
    "blocks": "allocation.all.current",
    "small_allocated_peak": "allocated_bytes.small_pool.peak",
    "small_reserved_peak": "reserved_bytes.small_pool.peak",
    "large_allocated_peak": "allocated_bytes.large_pool.peak",
    "large_reserved_peak": "reserved_bytes.large_pool.peak",
    "num_alloc_retries": "num_alloc_retries",
    "num_ooms": "num_ooms",
    "num_device_alloc": "num_device_alloc",
    "num_device_free": "num_device_free",
}


class Run:
    """One case in its own process: the operations and the marks they leave."""

    def __init__(self, torch, cap):
        self.t = torch
        self.marks = []
        self.live = []
        self.allowed = None
        self.ooms = 0
        torch.cuda.init()
        self.total = torch.cuda.get_device_properties(0).total_memory
        if cap:
            fraction = cap / self.total
            torch.cuda.set_per_process_memory_fraction(fraction)
            self.allowed = int(fraction * self.total)
            self.fraction = fraction
        torch.cuda.memory._record_memory_history(
            enabled="all", context=None, stacks="python", max_entries=2_000_000
        )
        self.streams = [None]

    def more_streams(self, n):
        self.streams = [None] + [self.t.cuda.Stream() for _ in range(n)]

    def alloc(self, size, stream=0):
        try:
            if stream:
                with self.t.cuda.stream(self.streams[stream]):
                    return self.t.empty(size, dtype=self.t.uint8, device="cuda")
            return self.t.empty(size, dtype=self.t.uint8, device="cuda")
        except self.t.OutOfMemoryError:
            self.ooms += 1
            return None

    def keep(self, size, stream=0):
        x = self.alloc(size, stream)
        if x is not None:
            self.live.append(x)
        return x

    def drop(self, i):
        self.live[i] = self.live[-1]
        self.live.pop()

    def mark(self, name):
        s = self.t.cuda.memory_stats()
        self.marks.append(
            {"name": name, **{k: s.get(v, 0) for k, v in STATS.items()}}
        )
        self.t.cuda.memory._snapshot()

    def empty_cache(self):
        self.mark("empty<")
        self.t.cuda.empty_cache()
        self.mark("empty>")


def log_uniform(rng, low, high):
    a, b = low.bit_length() - 1, high.bit_length() - 1
    e = rng.randint(a, b)
    return max(low, min(high, rng.randint(1 << e, (2 << e) - 1)))


def churn(run, rng, ops, low, high, live_bytes, streams=1, empty_every=0, die=0.45):
    for i in range(ops):
        total = sum(x.numel() for x in run.live)
        if run.live and (rng.random() < die or total > live_bytes):
            run.drop(rng.randrange(len(run.live)))
        else:
            run.keep(log_uniform(rng, low, high), rng.randrange(streams))
        if empty_every and i % empty_every == empty_every - 1:
            run.empty_cache()
        if i == ops // 2:
            run.mark("half")
    run.mark("end")
    run.live.clear()
    run.mark("freed")
    run.empty_cache()


EDGES = [
    1, 511, 512, 513, 1023, 1024, 1025, MIB - 512, MIB - 1, MIB, MIB + 1,
    MIB + 512, 2 * MIB, 2 * MIB + 1, 9 * MIB, 10 * MIB - 513, 10 * MIB - 512,
    10 * MIB - 1, 10 * MIB, 10 * MIB + 1, 12 * MIB - 1, 12 * MIB, 12 * MIB + 1,
    19 * MIB, 20 * MIB - 512, 20 * MIB, 20 * MIB + 1, 21 * MIB, 64 * MIB + 7,
]


def sizes(run):
    for order in (EDGES, EDGES[::-1]):
        for n in order:
            run.keep(n)
        run.mark("held")
        while run.live:
            run.live.pop(0)
        run.mark("freed")
        for n in order:
            run.keep(n)
            run.live.clear()
        run.empty_cache()
    for n in EDGES:
        run.keep(n)
        run.live.clear()
        run.empty_cache()


def ties(run, rng):
    for n in (512, 4096, 300 * KIB, 3 * MIB, 16 * MIB):
        for _ in range(24):
            run.keep(n)
        for _ in range(4):
            rng.shuffle(run.live)
            for _ in range(16):
                run.live.pop()
            for _ in range(16):
                run.keep(n if rng.random() < 0.7 else max(1, n - rng.randint(0, n // 4)))
    run.mark("end")
    run.live.clear()
    run.empty_cache()


def remainders(run):
    for base in (12, 16, 20, 40, 64):
        for left in (0, 512, MIB - 512, MIB, MIB + 512, 2 * MIB, 5 * MIB):
            a = run.alloc(base * MIB)
            del a
            b = run.alloc(base * MIB - left)
            c = run.alloc(max(left, 1))
            d = run.alloc(3 * MIB)
            del b, c, d
        run.mark(f"base {base}")
    run.empty_cache()
    for left in (0, 1, 511, 512, 513, 1024, 4096):
        a = run.alloc(MIB)
        b = run.alloc(MIB - left)
        c = run.alloc(max(left, 1))
        del a, b, c
    run.empty_cache()


def merging(run, rng):
    for round_ in range(12):
        big = run.alloc(256 * MIB)
        del big
        parts = [run.alloc(rng.randint(2, 40) * MIB + rng.randint(0, 4095)) for _ in range(9)]
        small = [run.alloc(rng.randint(1, 900 * KIB)) for _ in range(12)]
        order = parts + small
        del parts, small
        rng.shuffle(order)
        while order:
            order.pop()
            if len(order) % 5 == 0:
                x = run.alloc(rng.randint(2, 30) * MIB)
                del x
        run.mark(f"round {round_}")
    run.empty_cache()


def cross_stream(run, rng, ops=400):
    run.more_streams(2)
    for i in range(ops):
        if run.live and rng.random() < 0.5:
            k = rng.randrange(len(run.live))
            if rng.random() < 0.5:
                s = run.streams[rng.randrange(1, 3)]
                with run.t.cuda.stream(s):
                    run.t.cuda._sleep(200_000)
                run.live[k].record_stream(s)
            run.drop(k)
        else:
            run.keep(log_uniform(rng, 512, 24 * MIB), rng.randrange(3))
        if i % 100 == 99:
            run.t.cuda.synchronize()
    run.t.cuda.synchronize()
    run.mark("end")
    run.live.clear()
    run.t.cuda.synchronize()
    run.empty_cache()


def driver_oom(run, rng):
    for _ in range(60):
        run.keep(log_uniform(rng, 512, 64 * MIB))
    for _ in range(30):
        run.drop(rng.randrange(len(run.live)))
    run.mark("before")
    run.alloc(1 << 40)
    run.mark("after")
    churn(run, rng, 100, 512, 64 * MIB, GIB)


def pressure(run, rng, ops=900, low=4 * KIB, high=256 * MIB, live=0.9, streams=1):
    churn(run, rng, ops, low, high, int(run.allowed * live), streams)


# name: (settings, cap in bytes or 0, function)
def synthetic():
    r = random.Random
    c = {}
    c["sizes"] = ("", 0, sizes)
    c["small_random"] = ("", 0, lambda u: churn(u, r(11), 2000, 1, MIB, 40 * MIB))
    c["mixed_random"] = ("", 0, lambda u: churn(u, r(12), 2500, 1, 64 * MIB, 2 * GIB))
    c["large_random"] = ("", 0, lambda u: churn(u, r(13), 1500, MIB, 400 * MIB, 8 * GIB))
    c["ties"] = ("", 0, lambda u: ties(u, r(14)))
    c["remainders"] = ("", 0, remainders)
    c["merging"] = ("", 0, lambda u: merging(u, r(15)))

    def streams(u):
        u.more_streams(3)
        churn(u, r(16), 1500, 512, 32 * MIB, GIB, streams=4)

    c["streams"] = ("", 0, streams)
    c["cross_stream"] = ("", 0, lambda u: cross_stream(u, r(17)))
    c["empty_cache"] = ("", 0, lambda u: churn(u, r(18), 1200, 1, 64 * MIB, GIB, empty_every=100))
    c["driver_oom"] = ("", 0, lambda u: driver_oom(u, r(19)))
    c["cap_2gib"] = ("", 2 * GIB, lambda u: pressure(u, r(20)))
    c["cap_1gib_small"] = ("", GIB, lambda u: pressure(u, r(21), high=48 * MIB))

    def cap_streams(u):
        u.more_streams(2)
        pressure(u, r(22), streams=3)

    c["cap_2gib_streams"] = ("", 2 * GIB, cap_streams)
    c["gc_60"] = ("garbage_collection_threshold:0.6", 3 * GIB, lambda u: pressure(u, r(23), live=0.7))
    c["gc_80"] = ("garbage_collection_threshold:0.8", 2 * GIB, lambda u: pressure(u, r(24), live=0.8))
    c["split_64"] = ("max_split_size_mb:64", 0, lambda u: churn(u, r(25), 1500, MIB, 256 * MIB, 6 * GIB))
    c["split_64_cap"] = ("max_split_size_mb:64", 3 * GIB, lambda u: pressure(u, r(26)))
    c["split_128_round_64_cap"] = (
        "max_split_size_mb:128,max_non_split_rounding_mb:64", 4 * GIB,
        lambda u: pressure(u, r(27), low=MIB, high=512 * MIB))
    c["split_64_gc_cap"] = (
        "max_split_size_mb:64,garbage_collection_threshold:0.7", 3 * GIB,
        lambda u: pressure(u, r(28), live=0.8))
    c["pow2_4"] = ("roundup_power2_divisions:4", 0, lambda u: churn(u, r(29), 1500, 1, 128 * MIB, 2 * GIB))
    c["pow2_list"] = (
        "roundup_power2_divisions:[1:8,16:4,64:2,256:1,>:1]", 0,
        lambda u: churn(u, r(30), 1500, 1, 400 * MIB, 6 * GIB))
    c["large_segment_64"] = ("large_segment_size_mb:64", 0, lambda u: churn(u, r(31), 1200, 512, 128 * MIB, 2 * GIB))
    e = "expandable_segments:True"
    c["expandable_sizes"] = (e, 0, sizes)
    c["expandable_mixed"] = (e, 0, lambda u: churn(u, r(32), 2000, 1, 64 * MIB, 2 * GIB))
    c["expandable_large"] = (e, 0, lambda u: churn(u, r(33), 1200, MIB, 400 * MIB, 8 * GIB, empty_every=200))

    def ex_streams(u):
        u.more_streams(2)
        churn(u, r(34), 1200, 512, 64 * MIB, GIB, streams=3, empty_every=150)

    c["expandable_streams"] = (e, 0, ex_streams)
    c["expandable_cap_2gib"] = (e, 2 * GIB, lambda u: pressure(u, r(35)))

    def ex_cap_streams(u):
        u.more_streams(2)
        pressure(u, r(36), streams=3)

    c["expandable_cap_streams"] = (e, 2 * GIB, ex_cap_streams)
    c["expandable_gc"] = (e + ",garbage_collection_threshold:0.6", 3 * GIB, lambda u: pressure(u, r(37), live=0.7))
    c["expandable_split"] = (e + ",max_split_size_mb:64", 3 * GIB, lambda u: pressure(u, r(38)))
    c["expandable_pow2"] = (e + ",roundup_power2_divisions:4", 0, lambda u: churn(u, r(39), 800, 1, 64 * MIB, GIB))
    return c


WAN_13B = dict(
    patch_size=(1, 2, 2), num_attention_heads=12, attention_head_dim=128,
    in_channels=16, out_channels=16, text_dim=4096, freq_dim=256, ffn_dim=8960,
    cross_attn_norm=True, qk_norm="rms_norm_across_heads", eps=1e-6,
    rope_max_seq_len=1024,
)


def dit(run, layers, height, width, frames):
    t = run.t
    from diffusers import WanTransformer3DModel

    t.manual_seed(1)
    t.set_default_dtype(t.bfloat16)
    with t.device("cuda"):
        m = WanTransformer3DModel(num_layers=layers, **WAN_13B)
    t.set_default_dtype(t.float32)
    m = m.to(t.bfloat16).eval()
    run.mark("built")
    run.empty_cache()
    x = t.randn(1, 16, (frames - 1) // 4 + 1, height // 8, width // 8, device="cuda", dtype=t.bfloat16)
    when = t.full((1,), 500, device="cuda")
    text = t.randn(1, 512, 4096, device="cuda", dtype=t.bfloat16)
    run.mark("inputs")
    forward(run, lambda: m(hidden_states=x, timestep=when, encoder_hidden_states=text, return_dict=False))


def forward(run, f):
    for i in (1, 2):
        try:
            y = f()
            del y
        except run.t.OutOfMemoryError as e:
            run.ooms += 1
            e.__traceback__ = None
            del e
        gc.collect()
        run.t.cuda.synchronize()
        run.mark(f"forward {i}")
    run.empty_cache()


def wan_vae(run, dtype, height, width, frames):
    t = run.t
    from diffusers import AutoencoderKLWan

    t.manual_seed(1)
    vae = AutoencoderKLWan().eval().to("cuda", dtype=getattr(t, dtype))
    run.mark("built")
    z = t.randn(1, 16, (frames - 1) // 4 + 1, height // 8, width // 8, device="cuda", dtype=getattr(t, dtype))
    run.mark("inputs")
    forward(run, lambda: vae.decode(z, return_dict=False))


def cog_vae(run, height, width, frames):
    t = run.t
    from diffusers import AutoencoderKLCogVideoX

    t.manual_seed(1)
    vae = AutoencoderKLCogVideoX(
        down_block_types=("CogVideoXDownBlock3D",) * 4, up_block_types=("CogVideoXUpBlock3D",) * 4,
        block_out_channels=(128, 256, 256, 512), latent_channels=16, layers_per_block=3,
    ).eval().to("cuda", dtype=t.bfloat16)
    vae.enable_tiling()
    run.mark("built")
    z = t.randn(1, 16, (frames - 1) // 4 + 1, height // 8, width // 8, device="cuda", dtype=t.bfloat16)
    run.mark("inputs")
    forward(run, lambda: vae.decode(z, return_dict=False))


def models():
    e = "expandable_segments:True"
    c = {}
    c["dit30_480x832x81"] = ("", 0, lambda u: dit(u, 30, 480, 832, 81))
    c["dit30_480x832x17"] = ("", 0, lambda u: dit(u, 30, 480, 832, 17))
    c["dit4_480x832x81"] = ("", 0, lambda u: dit(u, 4, 480, 832, 81))
    c["dit4_480x832x17"] = ("", 0, lambda u: dit(u, 4, 480, 832, 17))
    c["vae_fp32_480x832x17"] = ("", 0, lambda u: wan_vae(u, "float32", 480, 832, 17))
    c["vae_fp32_480x832x81"] = ("", 0, lambda u: wan_vae(u, "float32", 480, 832, 81))
    c["vae_bf16_480x832x17"] = ("", 0, lambda u: wan_vae(u, "bfloat16", 480, 832, 17))
    c["vae_bf16_480x832x81"] = ("", 0, lambda u: wan_vae(u, "bfloat16", 480, 832, 81))
    c["cog_vae_tiled_480x720x17"] = ("", 0, lambda u: cog_vae(u, 480, 720, 17))
    # Caps on both sides of the smallest that completed in shared/facts/h200_spike.json.
    c["dit30_480x832x81_cap_5150m"] = ("", 5_150_000_000, lambda u: dit(u, 30, 480, 832, 81))
    c["dit30_480x832x81_cap_4900m"] = ("", 4_900_000_000, lambda u: dit(u, 30, 480, 832, 81))
    c["vae_bf16_480x832x81_cap_6650m"] = ("", 6_650_000_000, lambda u: wan_vae(u, "bfloat16", 480, 832, 81))
    c["vae_bf16_480x832x81_cap_6000m"] = ("", 6_000_000_000, lambda u: wan_vae(u, "bfloat16", 480, 832, 81))
    c["dit30_480x832x81_expandable"] = (e, 0, lambda u: dit(u, 30, 480, 832, 81))
    c["vae_bf16_480x832x81_expandable"] = (e, 0, lambda u: wan_vae(u, "bfloat16", 480, 832, 81))
    c["vae_bf16_480x832x17_split_128"] = ("max_split_size_mb:128", 0, lambda u: wan_vae(u, "bfloat16", 480, 832, 17))
    return c


OPS = {
    "alloc": "a", "free_requested": "r", "free_completed": "c",
    "segment_alloc": "S", "segment_free": "X", "segment_map": "M",
    "segment_unmap": "U", "oom": "o", "snapshot": "s",
}


def encode(trace):
    """The trace as CSV text, and counts of its events."""
    at = [e["addr"] for e in trace if e["action"] in ("segment_alloc", "segment_map")]
    base = min(at) if at else 0
    ranks = {s: i for i, s in enumerate(sorted({e["stream"] for e in trace} | {0}))}
    out, counts, i = [], {}, 0
    while i < len(trace):
        e = trace[i]
        op = OPS.get(e["action"], "?" + e["action"])
        if op == "r" and i + 1 < len(trace):
            n = trace[i + 1]
            if n["action"] == "free_completed" and n["addr"] == e["addr"]:
                op, i = "f", i + 1
        counts[op] = counts.get(op, 0) + 1
        size = e["size"] if op in "aSXMUo" else ""
        addr = ""
        if op not in "os":
            d = e["addr"] - base
            addr = d // 512 if d % 512 == 0 else f"!{d}"
        out.append(f"{op},{size},{addr},{ranks[e['stream']] or ''}")
        i += 1
    return "op,size,addr,stream\n" + "\n".join(out) + "\n", counts, base


def child(name, folder):
    settings, cap, body = {**synthetic(), **models()}[name]
    import torch

    torch.set_grad_enabled(False)
    t0 = time.time()
    run = Run(torch, cap)
    error = None
    try:
        body(run)
    except Exception as e:  # a failed case is reported, the others go on
        error = f"{type(e).__name__}: {e}"[:400]
    stats = torch.cuda.memory_stats()
    snap = torch.cuda.memory._snapshot()
    text, counts, base = encode(snap["device_traces"][0])
    with gzip.GzipFile(os.path.join(folder, name + ".csv.gz"), "wb", 9, mtime=0) as f:
        f.write(text.encode())
    free, total = torch.cuda.mem_get_info()
    info = {
        "settings": settings,
        "cap_asked": cap,
        "allowed_bytes": run.allowed,
        "device_total_memory": run.total,
        "mem_get_info_total": total,
        "max_memory_allocated": torch.cuda.max_memory_allocated(),
        "max_memory_reserved": torch.cuda.max_memory_reserved(),
        "ooms_caught": run.ooms,
        "segments_left": len(snap["segments"]),
        "events": counts,
        "base_address": base,
        "allocator_settings": {k: str(v) for k, v in snap.get("allocator_settings", {}).items()},
        "backend": torch.cuda.get_allocator_backend(),
        "torch": torch.__version__,
        "card": torch.cuda.get_device_name(0),
        "seconds": round(time.time() - t0, 2),
        "error": error,
        **{k: stats.get(STATS[k], 0) for k in ("num_ooms", "num_alloc_retries", "num_device_alloc", "num_device_free", "segments_peak", "active_peak")},
        "marks": run.marks,
    }
    with open(os.path.join(folder, name + ".json"), "w") as f:
        json.dump(info, f)


def spawn(name, settings, folder):
    env = dict(os.environ)
    for k in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"):
        env.pop(k, None)
    if settings:
        env["PYTORCH_CUDA_ALLOC_CONF"] = settings
    left = BUDGET_S - (time.time() - START)
    if left < 20:
        return name, "no time left"
    try:
        p = subprocess.run(
            [sys.executable, os.path.abspath(__file__), "--child", name, folder],
            env=env, timeout=min(left, 180), capture_output=True, text=True,
        )
    except subprocess.TimeoutExpired:
        return name, "timed out"
    return name, None if p.returncode == 0 else p.stderr[-500:]


def main(args):
    cases = {**models(), **synthetic()}
    if "--list" in args:
        for name, (settings, cap, _) in cases.items():
            print(f"{name:34} {cap or '':>12} {settings}")
        return
    names = args or list(cases)
    out = os.environ.get("OUT", ".")
    folder = os.path.join("/tmp", f"allocator_traces.{os.getpid()}")
    os.makedirs(folder, exist_ok=True)
    smi = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"],
        capture_output=True, text=True,
    ).stdout.strip()
    failed = {}
    with ThreadPoolExecutor(WORKERS) as pool:
        for name, error in pool.map(lambda n: spawn(n, cases[n][0], folder), names):
            if error:
                failed[name] = error
    summary = {"gpu": smi, "failed": failed, "cases": {}}
    with tarfile.open(os.path.join(out, "allocator_traces.tar"), "w") as tar:
        for name in names:
            path = os.path.join(folder, name + ".json")
            if not os.path.exists(path):
                continue
            with open(path) as f:
                summary["cases"][name] = json.load(f)
            with open(os.path.join(folder, name + ".csv.gz"), "rb") as f:
                data = f.read()
            item = tarfile.TarInfo(name + ".csv.gz")
            item.size = len(data)
            tar.addfile(item, io.BytesIO(data))
            s = summary["cases"][name]
            print(
                f"{name:34} alloc {s['max_memory_allocated']:>12} reserved {s['max_memory_reserved']:>12}"
                f" ooms {s['num_ooms']:>3} retries {s['num_alloc_retries']:>3} a {s['events'].get('a', 0):>6}"
                f" gz {len(data):>7} {s['seconds']:>6}s {s['error'] or ''}"
            )
    with open(os.path.join(out, "summary.json"), "w") as f:
        json.dump(summary, f, indent=1)
    print(smi)
    for name, error in failed.items():
        print("FAILED", name, error)
    print(f"{len(summary['cases'])} of {len(names)} cases in {time.time() - START:.0f} s")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], sys.argv[3])
    else:
        main(sys.argv[1:])
