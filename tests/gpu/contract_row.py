"""One line of CSV of a plan and of what its execution printed: contract_row.py GROUP NAME PLAN SAID."""

import json
import re
import sys

group, name, plan_file, said_file = sys.argv[1:]
plan = json.load(open(plan_file))
said = open(said_file).read()
transformer = next(part for part in plan["placements"] if part["component"] == "transformer")
compute = plan["passes"][0]["compute"][0]
blocks = {tier: sum(run["count"] for run in transformer["runs"] if run["tier"] == tier) for tier in ("device", "pinned", "disk")}
planned = max(peak["bytes"] for peak in plan["peaks"] if peak["stage"] == "denoising" and peak["tier"] == "device")
precision = plan["system"]["precision"]["value"]


def figure(what):
    found = re.search(rf"^{re.escape(what)} +(\d+)$", said, re.M)
    return found.group(1) if found else ""


segments = re.findall(r"^denoising +(\w+) +(\d+) +([\d.]+) +([\d.]+) +(\d+)$", said, re.M)
steps = [segment for segment in segments if segment[0].endswith("step")]
flat = bool(segments) and len({segment[4] for segment in segments}) == 1
# The step before the last is warm, and copies what the next one needs first.
warm = steps[-2] if len(steps) > 1 else (steps[-1] if steps else None)
latent = re.search(r"SHA-256 ([0-9a-f]{64})", said)
print(
    group, name, precision, blocks["device"], blocks["pinned"], blocks["disk"], transformer.get("slots", 0),
    compute.get("head_group", ""), planned, figure("device memory in use with a context, bytes"),
    figure("with everything reserved, bytes"), figure("at the end, bytes"), str(flat).lower(), figure("arena on the device, bytes"),
    figure("arenas in host memory, bytes"), plan["forecast"]["passes"][0]["step"]["value_ns"],
    warm[2] if warm else "", warm[3] if warm else "", figure("copied to the device, bytes"), latent.group(1) if latent else "",
    sep=",",
)
