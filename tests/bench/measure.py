#!/usr/bin/env python3
"""Runs the checker and its peers on the same files: `measure.py FV TOOLS WORK OUT`; tests/bench/run.sh calls it.

Every command is timed in several rounds and the commands take turns, so that a busy machine slows all of them. The
minimum and the median are kept. Memory is the peak resident set of the process that did the work.
"""

import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCHEMA = "schemas/model.schema.json"
SIZES = [1_000, 3_000, 10_000]
# check-jsonschema takes too long for more.
PYTHON_FILES = 200


def once(command, env=None):
    """Wall and processor time in milliseconds and peak memory in bytes of one run, which must succeed."""
    started = time.perf_counter()
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, **(env or {})})
    _, status, usage = os.wait4(child.pid, 0)
    wall = (time.perf_counter() - started) * 1000
    child.returncode = os.waitstatus_to_exitcode(status)
    with child.stderr as errors:
        if child.returncode != 0:
            sys.exit(f"{' '.join(map(str, command[:6]))} exited {child.returncode}: {errors.read().decode()[:2000]}")
    return wall, (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss * 1024


def evict(program):
    """Drops a program's file from the page cache; shared libraries stay."""
    with open(program, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def compare(jobs, rounds, before=None, warm_up=1):
    """Results by name for `(name, command, env)`; the commands take turns, and the first turn only warms up."""
    runs = {name: [] for name, *_ in jobs}
    for round_ in range(rounds + warm_up):
        for name, command, env in jobs:
            if before:
                before(command[0])
            measured = once(command, env)
            if round_ >= warm_up:
                runs[name].append(measured)
    return {name: summary(command, env, runs[name]) for name, command, env in jobs}


def summary(command, env, runs):
    wall, cpu, peak = zip(*runs)
    return {
        "command": " ".join(map(str, command)), "env": env or {}, "runs": len(runs),
        "min_ms": min(wall), "median_ms": statistics.median(wall), "cpu_min_ms": min(cpu), "cpu_median_ms": statistics.median(cpu),
        "peak_bytes": max(peak),
    }


def version(command, env=None):
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **(env or {})}, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join(" --- " if i == 0 else " ---: " for i in range(len(head))) + "|")
    for row in rows:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    print()


def ms(value):
    return f"{value:.2f}" if value < 10 else f"{value:.0f}" if value >= 1000 else f"{value:.1f}"


def starts(fv):
    """`--help` beside other command-line tools: warm, and with each program's file dropped from the page cache."""
    commands = {"fv-catalog --help": [fv, "--help"]}
    for name in ["git", "rg", "cargo", "node"]:
        found = shutil.which(name)
        if name == "cargo" and shutil.which("rustup"):
            found = version(["rustup", "which", "cargo"])  # not rustup's proxy, which starts twice
        if found:
            commands[f"{name} --help"] = [os.path.realpath(found), "--help"]
    commands["true (what a start and the timer cost)"] = [os.path.realpath(shutil.which("true"))]
    jobs = [(name, command, None) for name, command in commands.items()]
    return compare(jobs, 40), compare(jobs, 9, before=evict)


def main():
    fv, tools, work, out = (Path(argument).resolve() for argument in sys.argv[1:])
    node = {"NODE_PATH": str(tools / "node_modules")}
    one = {"RAYON_NUM_THREADS": "1"}
    load = [os.getloadavg()]

    help_, help_dropped = starts(fv)
    check = [fv, "--check", "--catalog"]
    whole = compare([("default", [*check, "catalog"], None), ("one thread", [*check, "catalog"], one)], 30)

    inputs, jobs = {}, []
    for size in SIZES:
        folder = work / str(size)
        subprocess.run([sys.executable, ROOT / "tests/bench/generate.py", folder, str(size)], check=True)
        inputs[size] = sum(path.stat().st_size for path in folder.rglob("*.yaml"))
        jobs += [(f"fv-catalog {size}", [*check, folder], None), (f"fv-catalog, one thread {size}", [*check, folder], one)]
    ours = compare(jobs, 5)

    def ajv(mode, size):
        return ["node", "tests/bench/ajv.cjs", mode, SCHEMA, work / str(size) / "models"]

    few = sorted((work / "1000/models").glob("*.yaml"))[:PYTHON_FILES]
    inputs[PYTHON_FILES] = sum(path.stat().st_size for path in few)
    jobs = []
    for size in [SIZES[0], SIZES[-1]]:
        jobs += [(f"ajv + js-yaml, no positions {size}", ajv("plain", size), node), (f"ajv + yaml, positions {size}", ajv("positions", size), node)]
    jobs.append((f"check-jsonschema, no positions {PYTHON_FILES}", [tools / "venv/bin/check-jsonschema", "--schemafile", SCHEMA, *few], None))
    peers = compare(jobs, 2, warm_up=0)
    peers[jobs[-1][0]]["command"] = f"check-jsonschema --schemafile {SCHEMA} (the first {PYTHON_FILES} of {work}/1000/models)"
    load.append(os.getloadavg())

    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), platform.machine())
    package = lambda name: json.loads((tools / f"node_modules/{name}/package.json").read_text())["version"]
    machine = {
        "date": time.strftime("%Y-%m-%d"), "cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before_after": [f"{l[0]:.1f}" for l in load],         "versions": {
            "fv-catalog": version([fv, "--version"]), "rustc": version(["rustc", "--version"]), "node": version(["node", "--version"]),
            "check-jsonschema": version([tools / "venv/bin/check-jsonschema", "--version"]), "python": platform.python_version(),
            **{name: package(name) for name in ["ajv", "ajv-formats", "yaml", "js-yaml"]},
            **{name: version([name, "--version"]) for name in ["git", "rg", "cargo"] if shutil.which(name)},
        },
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"machine": machine, "input_bytes": inputs, "help": help_, "help_dropped": help_dropped, "catalog": whole, "synthetic": ours, "peers": peers}, indent=1) + "\n")

    print(f"Machine: {cpu}, {machine['cores']} cores, {machine['memory_gib']} GiB, Linux {machine['kernel']}, {machine['date']}; "
          f"load {' before, '.join(machine['load_before_after'])} after")
    print("Versions: " + ", ".join(f"{k} {v}" if not v.startswith(k) else v for k, v in machine["versions"].items()) + "\n")

    print("### Whole catalog, `--check` (limit 50 ms)\n")
    table(["threads", "min ms", "median ms", "processor ms (median)", "peak MB"],
          [[name, *map(ms, [r["min_ms"], r["median_ms"], r["cpu_median_ms"]]), f"{r['peak_bytes'] / 1e6:.1f}"] for name, r in whole.items()])
    print("### Start of `--help` (limit 20 ms)\n")
    table(["command", "min ms", "median ms", "file dropped from cache: min ms", "median ms"],
          [[f"{name}", *map(ms, [r["min_ms"], r["median_ms"], help_dropped[name]["min_ms"], help_dropped[name]["median_ms"]])] for name, r in help_.items()])

    print("### Synthetic manifests (limit 0.15 ms a file, memory 10x)\n")
    base = ours[f"fv-catalog {SIZES[-1]}"]
    rows = []
    for name, r in {**ours, **peers}.items():
        label, size = name.rsplit(" ", 1)
        size = int(size)
        a_file = [f"{r[k] / size:.3f}" for k in ["min_ms", "median_ms", "cpu_median_ms"]]
        ratios = [f"{r[k] / size / (base[k] / SIZES[-1]):.1f}" for k in ["median_ms", "cpu_median_ms"]]
        rows.append([label, f"{size:,}", ms(r["median_ms"]), *a_file, *ratios, f"{r['peak_bytes'] / 1e6:.0f}", f"{r['peak_bytes'] / inputs[size]:.1f}"])
    table(["tool", "files", "median ms", "min ms a file", "median ms a file", "processor ms a file", "median, times ours at 10,000",
           "processor, times ours", "peak MB", "peak / input"], rows)

    print("### Growth from 1,000 to 10,000 files (linear: at most 10)\n")
    small, large = SIZES[0], SIZES[-1]
    every, rows = {**ours, **peers}, []
    for label in dict.fromkeys(name.rsplit(" ", 1)[0] for name in every):
        if f"{label} {large}" in every:
            a, b = every[f"{label} {small}"], every[f"{label} {large}"]
            rows.append([label, *(f"{b[k] / a[k]:.2f}" for k in ["min_ms", "median_ms", "cpu_median_ms"])])
    table(["tool", "time, min", "time, median", "processor time"], rows)


if __name__ == "__main__":
    main()
