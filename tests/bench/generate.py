#!/usr/bin/env python3
"""Writes a sound synthetic catalog: `generate.py FOLDER COUNT`.

The shared files are those of tests/base. The manifests differ in deployments, configuration, environment, components,
sources and runs, in block and in flow style, and are about 2 KB each. The same COUNT gives the same bytes everywhere.
"""

import random
import shutil
import sys
from pathlib import Path

BASE = Path(__file__).resolve().parent.parent / "base"
MAKERS = ["Orion", "Lyra", "Vega", "Corvus", "Cygnus", "Draco", "Pavo", "Indus"]
KINDS = ["t2v", "i2v", "ti2v", "flf2v"]
BACKENDS = ["FLASH_ATTN", "TORCH_SDPA", "SAGE_ATTN", "VIDEO_SPARSE_ATTN", "SLIDING_TILE_ATTN"]
SIZES = [(480, 832), (544, 960), (704, 1280), (720, 1280), (768, 768)]


def deployment(rng, name, runtime):
    lines = [f"  - id: {name}", f"    runtime: {runtime}"]
    if runtime == "diffusers":
        lines += [
            "    # The class example loads the VAE in fp32 and the rest in bf16.",
            "    defaults:",
            "      generator:",
            "        pipeline:",
            f"          torch_dtype: {rng.choice(['bfloat16', 'float16'])}",
            f"          model_cpu_offload: {rng.choice(['true', 'false'])}",
            "    env: {}",
        ]
    else:
        lines += [
            "    defaults:",
            "      generator:",
            "        pipeline:",
            "          experimental:",
            f'            "vae_config.tile_sample_min_height": {rng.choice([256, 384, 512])}',
            "    env:",
            f"      FASTVIDEO_ATTENTION_BACKEND: {rng.choice(BACKENDS)}",
            f'      FASTVIDEO_STAGE_LOGGING: "{rng.randint(0, 1)}"',
        ]
    if rng.random() < 0.3:
        lines += ["    components:", "      vae: { ref: example-vae }"]
    return lines


def run(rng, index, gpus, model_path, runtime):
    height, width = rng.choice(SIZES)
    peak = round(rng.uniform(9, 70), 2)
    lines = [
        f"    - id: run-{index}",
        f"      date: 2026-{rng.randint(1, 11):02}-{rng.randint(1, 28):02}",
        "      hardware: card-80gb",
        f"      gpu_count: {gpus}",
        "      outcome: completed",
        f"      execution: {rng.choice(['warm_request', 'first_request'])}",
        f"      evidence_url: https://example.org/runs/{rng.getrandbits(48):012x}",
        "      context:",
        f"        runtime: {runtime}",
        f"        deployment: {runtime}",
    ]
    revision = f"{rng.getrandbits(40):010x}a"
    if runtime == "fv-run":
        lines += [
            f"        weights: synthetic:{rng.randint(1, 99)}",
            f"        revisions: {{ runtime: r{revision}, model: m{revision} }}",
        ]
    else:
        name = "fastvideo" if runtime == "fastvideo" else "runtime"
        lines += [f"        revisions: {{ {name}: r{revision}, model: m{revision} }}"]
    lines += [
        "        config:",
        "          generator:",
        f"            model_path: {model_path}",
        f"            engine: {{ num_gpus: {gpus} }}",
        "        request:",
        f"          sampling: {{ height: {height}, width: {width}, num_frames: {rng.choice([49, 81, 121])} }}",
        "        env: {}",
        "      memory:",
        "        metric: torch_peak_allocated",
        "        scope: allocator",
        "        unit: GiB",
        "        per_gpu:",
    ]
    for rank in range(gpus):
        encoding = round(peak * rng.uniform(0.3, 0.9), 2)
        lines += [
            f"          - rank: {rank}",
            f"            request_peak: {peak}",
            f"            stages: {{ encoding: {encoding}, denoising: {peak} }}",
        ]
    return lines


def manifest(index):
    rng = random.Random(index)
    maker, kind = rng.choice(MAKERS), rng.choice(KINDS)
    path = f"{maker.lower()}-lab/{maker}-{index}-{kind.upper()}"
    gpus = rng.choice([1, 1, 1, 2])
    height, width = rng.choice(SIZES)
    lines = [
        "# yaml-language-server: $schema=../../schemas/model.schema.json",
        f'title: "{maker} {index} {kind.upper()}"',
        "",
        "baseline:",
        "  generator:",
        f"    model_path: {path}",
        "    engine:",
        f"      num_gpus: {gpus}",
        "      offload:",
    ]
    lines += [f"        {part}: {rng.choice(['true', 'false'])}" for part in ["dit", "dit_layerwise", "text_encoder", "vae"]]
    lines += [
        "    pipeline:",
        f"      workload_type: {kind}",
        "  default_request:",
        "    sampling:",
        f"      height: {height}",
        f"      width: {width}",
        f"      fps: {rng.choice([16, 24])}",
        f"      num_inference_steps: {rng.choice([4, 8, 30, 50])}",
        f"      guidance_scale: {rng.choice([1.0, 3.5, 5.0, 6.0])}",
        "",
        "deployments:",
    ]
    runtimes = rng.choice([["fastvideo"], ["fastvideo", "diffusers"], ["fv-run", "fastvideo"]])
    for runtime in runtimes:
        lines += deployment(rng, runtime, runtime)
    alternatives = rng.choice(["", ", alternatives: [grouped-dit]"])
    lines += [
        "",
        "capacity:",
        "  memory_rules: wan",
        "  components:",
        f"    transformer: {{ ref: example-dit{alternatives} }}",
        "    text_encoder: { ref: example-encoder }",
        "    vae:",
        "      ref: example-vae",
        "  sources:",
        f"    - url: https://example.org/{path}/tree/main",
        "      checked: 2026-11-30",
        "      kind: checkpoint",
        f'      note: "Checkpoint folder of {maker} {index}; configuration and weights."',
        "  reference_runs:",
    ]
    lines += run(rng, 0, gpus, path, runtimes[0])
    return "\n".join(lines) + "\n"


def main():
    folder, count = Path(sys.argv[1]), int(sys.argv[2])
    shutil.copytree(BASE, folder, ignore=shutil.ignore_patterns("models"), dirs_exist_ok=True)
    models = folder / "models"
    models.mkdir()
    for index in range(count):
        (models / f"model-{index:05}.yaml").write_text(manifest(index), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
