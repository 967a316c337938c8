#!/usr/bin/env python3
"""Probe a machine with an NVIDIA GPU and compare with what nvidia-smi and torch say.

    python3 tests/gpu/probe.py [FV_RUN]    # default: target/debug/fv-run

FV_RUN may have been built elsewhere: it needs x86-64 Linux with a glibc that is
not older than that of the machine it was built on (`strip` makes it small
enough to carry), and finds the driver's libraries by itself. The only other
needs are nvidia-smi and, for the checks under load, torch.

Under $OUT (the current folder where OUT is unset):
  probe.json      fv-run probe --json, with the read rate of a made-up file
  probe.txt       the same for people
  readers.txt     what the drivers' readers print: a case for tests/systems
  system.txt      the system files that were read: likewise
  checks.txt      every check with what was found; exit code 1 when one fails
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

MIB, GIB = 1 << 20, 1 << 30
OUT = pathlib.Path(os.environ.get("OUT", "."))
FV_RUN = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "target/debug/fv-run")
CHECKS = []


def check(what, passed, found):
    CHECKS.append(passed)
    line = f"{'ok    ' if passed else 'FAILED'} {what}: {found}"
    print(line, flush=True)
    with open(OUT / "checks.txt", "a") as file:
        file.write(line + "\n")


def probe(*arguments, **environment):
    start = time.monotonic()
    done = subprocess.run([FV_RUN, "probe", "--json", *arguments], capture_output=True, text=True,
                          env={**os.environ, **environment}, timeout=120)
    seconds = time.monotonic() - start
    if done.returncode or done.stderr:
        check(f"probe {' '.join(arguments)}", False, f"exit {done.returncode}, {done.stderr.strip()}")
        sys.exit(1)
    return json.loads(done.stdout), seconds


def smi(field):
    query = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.splitlines()[0].strip()


def near(a, b, tolerance):
    return abs(a - b) <= tolerance


def idle():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/weights.safetensors", "wb") as file:
            block = os.urandom(64 * MIB)
            for _ in range(64):
                file.write(block)
            os.fsync(file.fileno())
        found, seconds = probe("--weights", folder, "--read-rate")
        # The table is of what was measured, not of a second measurement.
        (OUT / "probe.json").write_text(json.dumps(found, indent=2) + "\n")
    table = subprocess.run([FV_RUN, "probe", "--from", OUT / "probe.json"], capture_output=True, text=True)
    (OUT / "probe.txt").write_text(table.stdout + table.stderr)
    check("a stored probe is read back", table.returncode == 0, f"exit {table.returncode} {table.stderr.strip()}")
    check("the read rate", found["disk"]["read"]["bytes_per_second"] > 0, found["disk"])
    _, seconds = probe()
    check("seconds for a probe without the disk", seconds < 60, f"{seconds:.2f}")
    return found


def readers():
    with open(OUT / "readers.txt", "w") as file:
        for library in ("nvml", "cuda"):
            done = subprocess.run([FV_RUN, "reader", library], capture_output=True, text=True, timeout=60)
            file.write(f"# {library}, exit {done.returncode}\n{done.stdout}")
    paths = ["/proc/sys/kernel/osrelease", "/proc/meminfo", "/proc/self/cgroup", "/proc/self/mountinfo"]
    own = pathlib.Path("/proc/self/cgroup").read_text().splitlines()[-1].split(":", 2)[2]
    while True:
        names = ("memory.max", "memory.current", "memory.stat")
        paths += [f"/sys/fs/cgroup{own.rstrip('/')}/{name}" for name in names]
        if own in ("/", ""):
            break
        own = os.path.dirname(own)
    with open(OUT / "system.txt", "w") as file:
        for path in paths:
            try:
                file.write(f"# {path}\n{pathlib.Path(path).read_text()}")
            except OSError as error:
                file.write(f"# {path}: {error.strerror}\n")


def compare(found):
    gpu = found["gpus"][0]
    for field, key in (("name", "name"), ("uuid", "uuid"), ("driver_version", "driver_version"), ("compute_cap", "compute_capability")):
        check(field, gpu.get(key) == smi(field), gpu.get(key))
    check("total by NVML", near(gpu["reported_bytes"], int(smi("memory.total")) * MIB, MIB), gpu["reported_bytes"])
    check("the free figure's source", gpu["free_source"] == "driver_context", gpu["free_source"])
    check("the context takes something", 50 * MIB < gpu.get("context_bytes", 0) < 2 * GIB, gpu.get("context_bytes"))
    free = int(smi("memory.free")) * MIB - gpu.get("context_bytes", 0)
    check("free by the driver against free by NVML less the context", near(gpu["free_bytes"], free, 700 * MIB),
          f"{gpu['free_bytes'] / GIB:.3f} and {free / GIB:.3f} GiB")
    link = gpu.get("pcie", {})
    for field, key in (("pcie.link.gen.max", "max_generation"), ("pcie.link.width.max", "max_lanes")):
        said = smi(field)
        check(field, str(link.get(key, "[N/A]")) == said, f"{link.get(key)}, nvidia-smi {said}")
    check("integrated or not", gpu.get("memory_type") == "dedicated", gpu.get("memory_type"))
    host = found["host"]
    meminfo = dict(line.split(":", 1) for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    # The memory of some virtual machines grows as it is used.
    total = int(meminfo["MemTotal"].split()[0]) * 1024
    check("host total", near(host["total_bytes"], total, total // 50), f"{host['total_bytes']} and now {total}")
    check("host available", 0 < host["available_bytes"] <= host["total_bytes"], host)


def loaded(before):
    try:
        import torch
    except ImportError:
        check("under load", True, "not tried: torch is not here")
        return
    ballast = torch.empty(8 * GIB, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    found, _ = probe()
    gpu, idle_gpu = found["gpus"][0], before["gpus"][0]
    lost = idle_gpu["free_bytes"] - gpu["free_bytes"]
    check("8 GiB and a context of another process are not free", 8 * GIB <= lost <= 9.5 * GIB, f"{lost / GIB:.3f} GiB less")
    others = gpu["used_by_others_bytes"] - idle_gpu["used_by_others_bytes"]
    check("they are used by others", 8 * GIB <= others <= 9.5 * GIB, f"{others / GIB:.3f} GiB more, {gpu.get('processes')} processes")
    inside = torch.cuda.mem_get_info()
    check("torch and the probe agree on the total", inside[1] == gpu["total_bytes"], f"{inside[1]} and {gpu['total_bytes']}")
    # The probe's context is not there any more when torch asks.
    check("torch has what the probe's context took", near(inside[0] - gpu["free_bytes"], gpu.get("context_bytes", 0), 64 * MIB),
          f"{(inside[0] - gpu['free_bytes']) / MIB:.0f} MiB more, context {gpu.get('context_bytes', 0) / MIB:.0f} MiB")
    del ballast
    torch.cuda.empty_cache()


def hidden():
    found, _ = probe(CUDA_VISIBLE_DEVICES="")
    codes = [problem["code"] for problem in found["problems"]]
    check("a device that is hidden from CUDA", found["gpus"][0]["free_source"] == "nvml" and "no-cuda" in codes, codes)
    used = int(smi("memory.used"))
    for _ in range(3):
        probe()
    check("probes leave nothing on the device", near(int(smi("memory.used")), used, 16), f"{used} and {smi('memory.used')} MiB")


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "checks.txt").unlink(missing_ok=True)
    found = idle()
    readers()
    if not found["gpus"]:
        check("a GPU", False, found["problems"])
    else:
        compare(found)
        hidden()
        loaded(found)
    print((OUT / "probe.txt").read_text())
    print(f"{sum(map(bool, CHECKS))} of {len(CHECKS)} checks passed")
    return 0 if all(CHECKS) else 1


if __name__ == "__main__":
    sys.exit(main())
