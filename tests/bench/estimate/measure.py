#!/usr/bin/env python3
"""Times the estimator and its peers in turn: `measure.py BENCH LLMFIT FITLLM OUT`; tests/bench/run.sh calls it.

BENCH is the benchmark program of fv-estimate, LLMFIT the program in this folder, FITLLM the folder where fitllm-engine is
installed. A peer given as `-` could not be installed and is left out.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROUNDS = 5
WHOLE = "evaluate and estimate, all buffers"


def rows(command):
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [line.split("\t") for line in done.stdout.splitlines()]


def table(head, lines):
    print("| " + " | ".join(head) + " |")
    print("|" + "|".join(" --- " if i < 2 else " ---: " for i in range(len(head))) + "|")
    for line in lines:
        print("| " + " | ".join(str(cell) for cell in line) + " |")
    print()


def us(nanoseconds):
    return f"{nanoseconds / 1e3:.2f}" if nanoseconds < 10_000 else f"{nanoseconds / 1e3:.1f}"


def main():
    bench, llmfit, fitllm, out = sys.argv[1:]
    peers = {}
    if llmfit != "-":
        peers["llmfit-core 1.1.18, analysis of a model"] = [llmfit]
    if fitllm != "-":
        peers["fitllm-engine 2.18.0, simulate"] = ["node", str(HERE / "fitllm.mjs"), fitllm]
    ours, others, load = {}, {}, [os.getloadavg()[0]]
    for _ in range(ROUNDS):
        for case, what, limit, least, median in rows([bench, "--figures"]):
            figure = ours.setdefault((case, what), {"limit": float(limit) if limit else None, "least": [], "median": []})
            figure["least"].append(float(least))
            figure["median"].append(float(median))
        for name, command in peers.items():
            [(models, first, least, median)] = rows(command)
            figure = others.setdefault(name, {"models": int(models), "first": [], "least": [], "median": []})
            for key, value in [("first", first), ("least", least), ("median", median)]:
                figure[key].append(float(value))
    load.append(os.getloadavg()[0])

    # The fastest of all rounds, and the middle of their medians.
    for figure in [*ours.values(), *others.values()]:
        figure["least"], figure["median"] = min(figure["least"]), statistics.median(figure["median"])
    result = {
        "date": time.strftime("%Y-%m-%d"), "load_before_after": load, "rounds": ROUNDS,
        "ours": [{"case": case, "what": what, **figure} for (case, what), figure in ours.items()],
        "peers": [{"name": name, **figure} for name, figure in others.items()],
    }
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    Path(out).write_text(json.dumps(result, indent=1) + "\n")

    print(f"### An estimate (limits 10 and 60 us), load {load[0]:.1f} before and {load[1]:.1f} after\n")
    lines = []
    for (case, what), figure in ours.items():
        limit = figure["limit"]
        lines.append([case, what, us(figure["least"]), us(figure["median"]), f"{figure['median'] / limit:.3f}" if limit else ""])
    table(["case", "what", "fastest us", "median us", "median / limit"], lines)
    if others:
        print("### Peers\n")
        lines = []
        for name, figure in others.items():
            ratios = [f"{figure['median'] / ours[key]['median']:.3f}" for key in ours if key[1] in (WHOLE, "summary on one more device")]
            first = statistics.median(figure["first"])
            lines.append([name, f"{figure['models']:,} models", us(first), us(figure["least"]), us(figure["median"]), *ratios])
        short = {WHOLE: "estimate", "summary on one more device": "summary"}
        ratio_heads = [f"times our {short[what]}, {case}" for case, what in ours if what in short]
        table(["peer", "over", "first pass us", "fastest us", "median us", *ratio_heads], lines)


if __name__ == "__main__":
    main()
