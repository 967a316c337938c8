"""What the scripts beside this share: models with made-up weights, traces of the
allocator, peaks, marks of pipeline calls, and the runner.

Every case runs in a process of its own, forked from one that has only imported
the libraries (no CUDA context).

A trace file is text. Its head is tables, each line starting with #:
  #site,ID,OP,FRAMES   OP is the innermost torch Python function of the call
                       (file:line:name, empty for a method of a tensor), FRAMES
                       the innermost three frames in diffusers or transformers,
                       innermost first, separated by |
  #mod,ID,NAME         qualified module names
Then one event a line, in the order in which the allocator saw them:
  a,BYTES,BLOCK,SITE[,STREAM]
                       a block was asked for: requested bytes, running number,
                       rank of its stream where that is not the default one
  f,BLOCK              it was given back; k,BYTES: so was a block from before
  w,BLOCK  c,BLOCK     it was given back, but waits for another stream; the wait
                       is over
  >,MOD  <             a module's forward was entered, left
  S,BYTES X,BYTES      a segment came from the driver, went back to it
  m,NAME               pipelines only: a mark; its figures are in pipelines.json
"""

import csv
import gc
import gzip
import io
import json
import os
import signal
import sys
import tarfile
import time
import traceback

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

START = time.time()
BUDGET_S = float(os.environ.get("RECORD_BUDGET", "430"))
DRY = bool(os.environ.get("RECORD_DRY"))
DEV = "cpu" if DRY else "cuda"
GROUPS = {}  # name: (table of its cases, what runs one, how many at once)

T = None  # torch, once imported


def libraries():
    """Imports what every script needs; gives torch."""
    global T
    import torch

    T = torch
    import accelerate  # noqa: F401
    import diffusers
    import transformers

    diffusers.utils.logging.set_verbosity_error()
    transformers.utils.logging.set_verbosity_error()
    T.set_grad_enabled(False)
    return torch


# ---------------------------------------------------------------- the device


def sync():
    if not DRY:
        T.cuda.synchronize()


def stats():
    if DRY:
        return dict.fromkeys(("alloc", "reserved", "peak_alloc", "peak_reserved", "requested", "peak_requested"), 0)
    s = T.cuda.memory_stats()
    g = lambda k: s.get(k, 0)
    return {
        "alloc": g("allocated_bytes.all.current"), "reserved": g("reserved_bytes.all.current"),
        "peak_alloc": g("allocated_bytes.all.peak"), "peak_reserved": g("reserved_bytes.all.peak"),
        "requested": g("requested_bytes.all.current"), "peak_requested": g("requested_bytes.all.peak"),
    }


def reset_peaks():
    if not DRY:
        T.cuda.reset_peak_memory_stats()


def empty_cache():
    gc.collect()
    if not DRY:
        T.cuda.empty_cache()


def device_used():
    if DRY:
        return 0
    free, total = T.cuda.mem_get_info()
    return total - free


_nvml = None


def nvml_used(whole=False):
    """Bytes NVML attributes to this process (or to the card); None if it does not say."""
    global _nvml
    try:
        import pynvml

        if _nvml is None:
            pynvml.nvmlInit()
            _nvml = pynvml.nvmlDeviceGetHandleByIndex(0)
        if whole:
            return pynvml.nvmlDeviceGetMemoryInfo(_nvml).used
        procs = pynvml.nvmlDeviceGetComputeRunningProcesses(_nvml)
        mine = [p.usedGpuMemory for p in procs if p.pid == os.getpid()]
        return mine[0] if mine else None
    except Exception:
        return None


def host():
    out = {}
    with open("/proc/self/status") as f:
        for line in f:
            k, _, v = line.partition(":")
            if k in ("VmRSS", "VmHWM", "VmLck", "VmPin", "RssAnon", "RssFile", "RssShmem"):
                out[k] = int(v.split()[0]) * 1024
    if not DRY:
        s = T.cuda.host_memory_stats()
        for k in ("allocated_bytes.current", "active_bytes.current", "allocated_bytes.peak",
                  "active_bytes.peak", "allocations.current", "active_requests.current", "num_host_alloc"):
            if k in s:
                out["pinned." + k] = s[k]
    return out


# ---------------------------------------------------------------- the models


def dt(name):
    return {"bf16": T.bfloat16, "fp16": T.float16, "fp32": T.float32}[name]


def build(cls, args, dtype, device=None, mode="loaded", fill=True):
    """A model with made-up weights.

    mode "loaded": dtypes as from_pretrained(torch_dtype=...) leaves them: the
    modules the class keeps in float32 stay so, buffers that checkpoints do not
    hold keep the dtype they were made in. mode "cast": everything floating is
    cast, as .to(dtype) does.
    """
    from accelerate import init_empty_weights

    device = device or DEV
    with init_empty_weights():
        m = args(cls) if callable(args) else cls(**args)
    m.eval()
    keep = set()
    if mode == "loaded" and hasattr(cls, "load_config"):  # diffusers
        keep = set(cls._keep_in_fp32_modules or [])
    elif mode == "loaded" and dtype == T.float16:  # transformers
        keep = set(cls._keep_in_fp32_modules or [])
    if hasattr(m, "tie_weights"):
        m.tie_weights()
    want = {}
    for name, p in m.named_parameters():
        want[id(p)] = T.float32 if keep & set(name.split(".")) else dtype
    stored = set(m.state_dict())
    for name, b in m.named_buffers():
        if b.is_floating_point():
            kept = T.float32 if keep & set(name.split(".")) else dtype
            want[id(b)] = dtype if mode == "cast" else kept if name in stored else b.dtype
    done = {}

    def place(t):
        if id(t) in done:
            return done[id(t)]
        if t.is_meta:
            n = T.empty(t.shape, device=device, dtype=want.get(id(t), dtype))
            if fill:
                n.normal_(0, 0.02) if n.is_cuda else n.zero_()
        else:
            n = t.to(device, want.get(id(t)))
        done[id(t)] = n
        keepalive.append(t)
        return n

    keepalive = []
    m._apply(place)
    if hasattr(m, "tie_weights"):
        m.tie_weights()
    m.requires_grad_(False)
    return m


def small(h, w, f):
    return (64, 96, min(f, 5)) if DRY else (h, w, f)



def weigh(m):
    """Bytes of a module's parameters and buffers, exact and in blocks of 512."""
    seen, out = set(), {"params": 0, "param_bytes": 0, "param_bytes_512": 0, "buffer_bytes": 0, "by_dtype": {}, "tensors": 0}
    for t in m.parameters():
        if id(t) in seen:
            continue
        seen.add(id(t))
        n = t.numel() * t.element_size()
        out["tensors"] += 1
        out["params"] += t.numel()
        out["param_bytes"] += n
        out["param_bytes_512"] += -(-n // 512) * 512
        k = str(t.dtype).split(".")[-1]
        out["by_dtype"][k] = out["by_dtype"].get(k, 0) + n
    for t in m.buffers():
        out["buffer_bytes"] += t.numel() * t.element_size()
    return out


# ---------------------------------------------------------------- traces


class Modules:
    """Where in the allocator's event order each module's forward begins and ends."""

    def __init__(self, m):
        self.names = {id(x): n or "." for n, x in m.named_modules()}
        self.on, self.log = False, []
        mod = T.nn.modules.module
        self.handles = [
            mod.register_module_forward_pre_hook(self.enter),
            mod.register_module_forward_hook(self.leave),
        ]

    def now(self):
        s = T._C._cuda_memoryStats(T.cuda.current_device())["allocation"]["all"]
        return s["allocated"], s["freed"]

    def enter(self, module, args):
        if self.on:
            self.log.append((self.now(), self.names.get(id(module), "?")))

    def leave(self, module, args, out):
        if self.on:
            self.log.append((self.now(), None))

    def start(self):
        self.log, self.base, self.on = [], self.now(), True

    def stop(self):
        self.on = False
        return [((a - self.base[0], f - self.base[1]), n) for (a, f), n in self.log]

    def remove(self):
        for h in self.handles:
            h.remove()


def short(path):
    return os.path.basename(path).removesuffix(".py")


def site_of(frames):
    op, mine = "", []
    for fr in frames:
        p = fr["filename"]
        if "/diffusers/" in p or "/transformers/" in p or "/accelerate/" in p:
            mine.append(f"{short(p)}:{fr['line']}:{fr['name']}")
            if len(mine) == 3:
                break
        elif not mine and not op and "/torch/" in p and "nn/modules/module.py" not in p:
            op = f"{short(p)}:{fr['line']}:{fr['name']}"
    return op, "|".join(mine)


class Book:
    """Shared tables of one trace file."""

    def __init__(self):
        self.sites, self.mods = {}, {}

    def site(self, frames):
        return self.sites.setdefault(site_of(frames), len(self.sites))

    def mod(self, name):
        return self.mods.setdefault(name, len(self.mods))

    def head(self):
        out = [f"#site,{i},{op},{fr}" for (op, fr), i in self.sites.items()]
        return out + [f"#mod,{i},{n}" for n, i in self.mods.items()]


def events(book, trace, calls):
    """Lines of one forward; what it kept; its allocations as (bytes, site)."""
    out, live, kept, allocs = [], {}, {}, []
    na = nf = ci = number = 0

    def put_calls():
        nonlocal ci
        while ci < len(calls) and calls[ci][0][0] <= na and calls[ci][0][1] <= nf:
            n = calls[ci][1]
            if isinstance(n, tuple):
                out.append("m," + n[0])
            else:
                out.append("<" if n is None else f">,{book.mod(n)}")
            ci += 1

    ranks = {x: i for i, x in enumerate(sorted({e["stream"] for e in trace} | {0}))}
    waiting = {}
    for at, e in enumerate(trace):
        act = e["action"]
        if act in ("alloc", "free_requested"):
            put_calls()
        if act == "alloc":
            s = book.site(e.get("frames", []))
            r = ranks[e["stream"]]
            out.append(f"a,{e['size']},{number},{s}" + (f",{r}" if r else ""))
            live[e["addr"]] = number
            kept[number] = [e["size"], s, None]
            allocs.append((e["size"], s))
            number += 1
            na += 1
        elif act == "free_requested":
            nf += 1
            now = at + 1 < len(trace) and trace[at + 1]["action"] == "free_completed" and trace[at + 1]["addr"] == e["addr"]
            b = live.pop(e["addr"], None)
            if b is None:
                out.append(f"k,{e['size']}")
            else:
                out.append(f"{'f' if now else 'w'},{b}")
                kept.pop(b, None)
            if not now:
                waiting[e["addr"]] = b
        elif act == "free_completed" and e["addr"] in waiting:
            b = waiting.pop(e["addr"])
            out.append("c" if b is None else f"c,{b}")
        elif act == "segment_alloc":
            out.append(f"S,{e['size']}")
        elif act == "segment_free":
            out.append(f"X,{e['size']}")
        elif act == "oom":
            out.append(f"o,{e['size']}")
    na = nf = 1 << 60
    put_calls()
    return out, list(kept.values()), allocs


def extra_allocs(first, second):
    """Allocations of the first forward that the second does not make, if that is all."""
    extra, j = [], 0
    for i, x in enumerate(first):
        if j < len(second) and x == second[j]:
            j += 1
        else:
            extra.append((i, *x))
            if len(extra) > 5000:
                return None
    return extra if j == len(second) else None


def write_trace(name, folder, book, lines):
    with gzip.GzipFile(os.path.join(folder, name + ".txt.gz"), "wb", 9, mtime=0) as out:
        out.write(("\n".join(book.head() + lines) + "\n").encode())


def recording(on):
    if DRY:
        return
    if on:
        T.cuda.memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=8_000_000)
    else:
        T.cuda.memory._record_memory_history(enabled=None)


def shape_of(y):
    y = y[0] if isinstance(y, tuple) else y
    return [list(y.shape), str(y.dtype).split(".")[-1]]


def sites_case(name, folder, spec, make):
    """One traced forward after a warm-up; make(spec) gives (forward, model, what to hold)."""
    f, m, held = make(spec)
    info = {"spec": {k: v for k, v in spec.items() if k != "model"}, "model": weigh(m)}
    info["built"] = stats()
    hooks = None if DRY else Modules(m)
    book, lines, seqs = Book(), {}, {}
    for i in (1, 2):
        empty_cache()
        sync()
        reset_peaks()
        before = stats()
        recording(True)
        if hooks:
            hooks.start()
        t0 = time.time()
        y = f()
        sync()
        sec = time.time() - t0
        calls = hooks.stop() if hooks else []
        after = stats()
        shape = shape_of(y)
        trace = [] if DRY else T.cuda.memory._snapshot()["device_traces"][0]
        recording(False)
        lines[i], kept, seqs[i] = events(book, trace, calls)
        del trace
        del y
        gc.collect()
        sync()
        freed = stats()
        info[f"forward{i}"] = {
            "before": before, "after_with_output": after, "after_output_freed": freed, "output": shape, "sec": round(sec, 3),
            "kept": [[k[0], k[1]] for k in kept], "allocs": len(seqs[i]),
        }
    same = seqs[1] == seqs[2]
    info["first_equals_second"] = same
    info["first_only_allocs"] = [] if same else extra_allocs(seqs[1], seqs[2])
    if hooks:
        hooks.remove()
    empty_cache()
    reset_peaks()
    before = stats()
    y = f()
    sync()
    info["forward3_untraced"] = {"before": before, "after_with_output": stats(), "device_used": device_used(), "nvml": nvml_used()}
    del y
    empty_cache()
    info["end"] = stats()
    if not DRY:
        T._C._cuda_clearCublasWorkspaces()
        empty_cache()
        info["end_cublas_workspaces_cleared"] = stats()
    info["end_device_used"], info["end_nvml"] = device_used(), nvml_used()
    for i in (1, 2):
        info[f"forward{i}"]["kept"] = [[b, *list(book.sites)[s]] for b, s in info[f"forward{i}"]["kept"]]
    if info["first_only_allocs"]:
        info["first_only_allocs"] = [[i, b, *list(book.sites)[s]] for i, b, s in info["first_only_allocs"]]
    write_trace(name, folder, book, lines[2])
    if info["first_only_allocs"] is None:
        write_trace(name + "_first", folder, book, lines[1])
    return info


def S(part, dtype, h=0, w=0, f=0, **kw):
    return dict(part=part, dtype=dtype, h=h, w=w, f=f, **kw)


# ---------------------------------------------------------------- peaks


def peaks_case(name, folder, spec, make, warm, label):
    """Peaks of each geometry in spec["geos"]: (h, w, f, options).

    warm(spec) is the spec of the small forward that comes first, label(row,
    spec) the name of a row's case.
    """
    rows = []
    base = {k: v for k, v in spec.items() if k not in ("geos", "component", "stage")}
    # One small forward first, so that handles and workspaces exist; its tensors are dropped.
    f, m, held = make(warm(base))
    info = {"model": weigh(m), "built": stats(), "rows": rows}
    f()
    sync()
    del f, held
    empty_cache()
    info["after_warm_up"] = stats()
    for geo in spec["geos"]:
        h, w, fr = geo[:3]
        opt = geo[3] if len(geo) > 3 else {}
        row = {"component": spec["component"], "stage": spec["stage"], "dtype": spec["dtype"], "h": h, "w": w, "f": fr, **opt}
        row["case"] = label(row, spec)
        try:
            f, _, held = make(dict(base, h=h, w=w, f=fr, model=m, **opt))
            sync()
            empty_cache()
            reset_peaks()
            s0 = stats()
            t0 = time.time()
            y = f()
            sync()
            sec = time.time() - t0
            s1 = stats()
            row.update(
                base_alloc=s0["alloc"], peak_alloc=s1["peak_alloc"], peak_reserved=s1["peak_reserved"],
                device_peak=device_used(), sec=round(sec, 4), base_reserved=s0["reserved"], base_requested=s0["requested"],
                peak_requested=s1["peak_requested"], after_alloc=s1["alloc"], nvml=nvml_used(), output=shape_of(y),
            )
            del y
        except Exception as e:
            row["error"] = f"{type(e).__name__}: {e}"[:300]
        rows.append(row)
        f = held = None
        empty_cache()
    info["end"], info["end_device_used"], info["end_nvml"] = stats(), device_used(), nvml_used()
    return info


# ---------------------------------------------------------------- pipelines


class Watch:
    """Marks at stage boundaries: what is allocated, the peaks since the last mark."""

    def __init__(self, pipe, methods=(), parts=()):
        """methods: more methods of the pipeline to mark; parts: components whose forward is marked."""
        self.pipe, self.marks, self.t0 = pipe, [], time.time()
        self.methods, self.inner = methods, parts
        self.base, self.calls = None, []
        self.parts = {k: v for k, v in pipe.components.items() if isinstance(v, T.nn.Module)}

    def position(self):
        s = T._C._cuda_memoryStats(T.cuda.current_device())["allocation"]["all"]
        return s["allocated"], s["freed"]

    def mark(self, name):
        sync()
        if self.base is not None:
            a, f = self.position()
            self.calls.append(((a - self.base[0], f - self.base[1]), (name,)))
        on, cpu = {}, {}
        for k, m in self.parts.items():
            ps = list({id(p): p for p in list(m.parameters()) + list(m.buffers())}.values())
            on[k] = sum(p.numel() * p.element_size() for p in ps if p.device.type == "cuda")
            cpu[k] = sum(p.numel() * p.element_size() for p in ps if p.device.type == "cpu")
        self.marks.append({
            "mark": name, "s": round(time.time() - self.t0, 2), **stats(),
            "on_device": {k: v for k, v in on.items() if v}, "on_cpu": {k: v for k, v in cpu.items() if v},
            "device_used": device_used(), "nvml": nvml_used(), "host": host(),
        })
        reset_peaks()

    def wrap(self, owner, attr, name):
        inner = getattr(owner, attr)
        count = [0]

        def outer(*a, **k):
            i = count[0]
            count[0] += 1
            self.mark(f"{name}{i}<")
            y = inner(*a, **k)
            self.mark(f"{name}{i}>")
            return y

        had = attr in owner.__dict__
        setattr(owner, attr, outer)

        def undo():
            if owner.__dict__.get(attr) is outer:
                setattr(owner, attr, inner) if had else owner.__dict__.pop(attr)

        return undo

    def call(self, label, **kw):
        p = self.pipe
        undo = [self.wrap(p, "encode_prompt", "encode_prompt")]
        undo += [self.wrap(p, k, k) for k in self.methods]
        undo += [self.wrap(getattr(p, k), "forward", k) for k in self.inner]
        if getattr(p, "image_encoder", None) is not None:
            undo.append(self.wrap(p, "encode_image", "encode_image"))
        for k in ("transformer", "transformer_2"):
            if getattr(p, k, None) is not None:
                undo.append(self.wrap(getattr(p, k), "forward", k))
        undo.append(self.wrap(p.vae, "encode", "vae.encode"))
        undo.append(self.wrap(p.vae, "decode", "vae.decode"))
        undo.append(self.wrap(p.video_processor, "postprocess_video", "postprocess"))
        self.mark(label + ":start")
        y = p(**kw)
        for f in undo:
            f()
        self.mark(label + ":end, output held")
        del y
        gc.collect()
        self.mark(label + ":end, output dropped")

    def trace(self, on):
        """Begins to record the allocator's events."""
        if on and not DRY:
            recording(True)
            self.base = self.position()

    def finish(self, name, folder):
        """Ends recording and writes the trace; the blocks that are still there as (bytes, op, frames)."""
        if self.base is None:
            return []
        book = Book()
        lines, kept, allocs = events(book, T.cuda.memory._snapshot()["device_traces"][0], self.calls)
        recording(False)
        sites = list(book.sites)
        write_trace(name, folder, book, lines)
        return [[b, *sites[i]] for b, i, _ in kept]


# ---------------------------------------------------------------- running


def child(group, name, folder):
    """Runs one case in this process and leaves NAME.json."""
    table, body, _ = GROUPS[group]
    spec = table()[name]
    t0 = time.time()
    try:
        info = body(name, folder, spec)
    except Exception:
        info = {"error": traceback.format_exc()[-2500:]}
    info["case_s"] = round(time.time() - t0, 1)
    with open(os.path.join(folder, name + ".json.part"), "w") as f:
        json.dump(info, f)
    os.rename(os.path.join(folder, name + ".json.part"), os.path.join(folder, name + ".json"))


def start(group, name, folder, fork):
    pid = os.fork()
    if pid:
        return pid
    try:
        log = os.open(os.path.join(folder, name + ".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        env = GROUPS[group][0]()[name].get("env")
        if env or not fork:
            if env:
                os.environ["PYTORCH_CUDA_ALLOC_CONF"] = env
            os.execv(sys.executable, [sys.executable, os.path.abspath(sys.argv[0]), "--child", group, name, folder])
        T.set_num_threads(4)
        child(group, name, folder)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def schedule(jobs, folder, workers, fork, failed, limit=170):
    """Runs jobs (group, name), at most `workers` at once."""
    jobs, running = list(jobs), {}
    while jobs or running:
        while jobs and len(running) < workers:
            group, name = jobs.pop(0)
            if time.time() - START > BUDGET_S - 12:
                failed[name] = "no time left"
                continue
            running[start(group, name, folder, fork)] = (name, time.time())
        for pid, (name, t0) in list(running.items()):
            done, _ = os.waitpid(pid, os.WNOHANG)
            if done:
                del running[pid]
                if not os.path.exists(os.path.join(folder, name + ".json")):
                    with open(os.path.join(folder, name + ".log"), errors="replace") as f:
                        failed[name] = "no result: " + f.read()[-600:]
            elif time.time() - t0 > limit or time.time() - START > BUDGET_S:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del running[pid]
                failed[name] = f"stopped after {time.time() - t0:.0f} s"
        time.sleep(0.02)


def fork_works():
    pid = os.fork()
    if not pid:
        try:
            T.cuda.init()
            T.cuda.mem_get_info()
            os._exit(0)
        except BaseException:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def record(args, title, load, files):
    """Runs the cases that args name (all, where it is empty) and writes what they gave.

    files: group -> name of its JSON file. Results by group, None after --list.
    """
    tables = {g: GROUPS[g][0]() for g in GROUPS}
    if "--list" in args:
        for g, t in tables.items():
            print(*(f"{g:6} {n}" for n in t), sep="\n")
        return None
    want = {g: [n for n in t if not args or g in args or n in args] for g, t in tables.items()}
    out = os.environ.get("OUT", ".")
    folder = f"/tmp/{title}_memory.{os.getpid()}"
    os.makedirs(folder)
    idle = nvml_used(True)
    global _nvml
    _nvml = None
    load()
    fork = DRY or fork_works()
    failed, spent = {}, {"imports": round(time.time() - START, 1)}
    for g in GROUPS:
        t0 = time.time()
        schedule([(g, n) for n in want[g]], folder, GROUPS[g][2], fork, failed)
        spent[g] = round(time.time() - t0, 1)
        print(f"{g}: {len(want[g])} cases, {spent[g]} s", flush=True)

    def got(g):
        res = {}
        for n in want[g]:
            p = os.path.join(folder, n + ".json")
            if os.path.exists(p):
                with open(p) as f:
                    res[n] = json.load(f)
                if res[n].get("error"):
                    failed[n] = res[n]["error"][-700:]
        return res

    res = {g: got(g) for g in GROUPS}
    for g, file in files.items():
        if want[g]:
            with open(os.path.join(out, file + ".json"), "w") as f:
                json.dump(res[g], f, separators=(",", ":"))
    if want.get("sites") or want.get("pipe"):
        with tarfile.open(os.path.join(out, title + "_traces.tar"), "w") as tar:
            for n in sorted(os.listdir(folder)):
                if n.endswith(".txt.gz"):
                    with open(os.path.join(folder, n), "rb") as f:
                        data = f.read()
                    item = tarfile.TarInfo(n)
                    item.size = len(data)
                    tar.addfile(item, io.BytesIO(data))
    if want.get("peaks"):
        cols = ["component", "stage", "case", "base_alloc", "peak_alloc", "peak_reserved", "device_peak", "sec"]
        with open(os.path.join(out, "peaks.csv"), "w", newline="") as f:
            wr = csv.DictWriter(f, cols, extrasaction="ignore", lineterminator="\n")
            wr.writeheader()
            for n in want["peaks"]:
                for r in res["peaks"].get(n, {}).get("rows", []):
                    if "error" in r:
                        failed[f"{n} {r['case']}"] = r["error"]
                    else:
                        wr.writerow(r)
    run = {"failed": failed, "seconds": spent, "forked": fork, "nvml_used_idle": idle}
    if not DRY:
        import subprocess

        import diffusers
        import transformers
        import accelerate

        run["gpu"] = subprocess.run(
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
        run["versions"] = {"torch": T.__version__, "diffusers": diffusers.__version__, "transformers": transformers.__version__,
                           "accelerate": accelerate.__version__, "cudnn": T.backends.cudnn.version(), "python": sys.version.split()[0]}
        run["flags"] = {"cudnn.benchmark": T.backends.cudnn.benchmark, "cudnn.allow_tf32": T.backends.cudnn.allow_tf32,
                        "matmul.allow_tf32": T.backends.cuda.matmul.allow_tf32,
                        "env": {k: v for k, v in os.environ.items() if k.startswith(("CUBLAS", "PYTORCH", "TORCH", "CUDA_MODULE"))}}
    with open(os.path.join(out, "run.json"), "w") as f:
        json.dump(run, f, indent=1)
    for n, s in res.get("sites", {}).items():
        if "error" not in s:
            a, b = s["forward2"], s["forward3_untraced"]
            print(f"{n:44} base {a['before']['alloc']:>11} peak {a['after_with_output']['peak_alloc']:>11} untraced "
                  f"{b['after_with_output']['peak_alloc'] - a['after_with_output']['peak_alloc']:>8} allocs {a['allocs']:>6} same {s['first_equals_second']} {s['case_s']}s")
    for n, s in res.get("peaks", {}).items():
        for r in s.get("rows", []):
            print(f"{r['component']:28} {r['stage']:16} {r['case']:40} {r.get('base_alloc')} {r.get('peak_alloc')} {r.get('peak_reserved')} {r.get('device_peak')} {r.get('sec')} {r.get('error', '')}")
    print(run.get("gpu"), spent)
    for n, e in failed.items():
        print("FAILED", n, e[-400:])
    if DRY:
        print(folder)
    return res
