"""A whole step of Wan 2.1 1.3B by our runner against diffusers with the same weights.

    python3 wan_step.py FV_RUN PLAN OUT

PLAN is a plan of wan21-t2v-1.3b with one step: the latent that leaves is then the clean latent, from which the guided velocity
follows. Weights, noise and prompt embeddings are those that `--weights synthetic:1` and made-up inputs give, made again here. The
reference is diffusers in single precision without tensor cores that round; what diffusers does in bfloat16 says how large an error
is usual. Accepted: at most 1.5 times that. Needs torch and diffusers, and a device; builds nothing. Prints one line of JSON last.
"""

import json
import math
import subprocess
import sys
import time

import torch
from safetensors.torch import load_file

SEED = 1
MASK = (1 << 64) - 1
DEVICE = "cuda"
CONFIG = {
    "patch_size": (1, 2, 2), "num_attention_heads": 12, "attention_head_dim": 128, "in_channels": 16, "out_channels": 16,
    "text_dim": 4096, "freq_dim": 256, "ffn_dim": 8960, "num_layers": 30, "cross_attn_norm": True,
    "qk_norm": "rms_norm_across_heads", "eps": 1e-6, "rope_max_seq_len": 1024,
}


def fnv1a64(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = ((value ^ byte) * 0x100000001B3) & MASK
    return value


def signed(value):
    return value - (1 << 64) if value >= 1 << 63 else value


def shifted(x, by):
    """A logical shift: torch's integers of 64 bits have a sign."""
    return (x >> by) & ((1 << (64 - by)) - 1)


def splitmix64(x):
    x = x + signed(0x9E3779B97F4A7C15)
    x = (x ^ shifted(x, 30)) * signed(0xBF58476D1CE4E5B9)
    x = (x ^ shifted(x, 27)) * signed(0x94D049BB133111EB)
    return x ^ shifted(x, 31)


def uniform(name, seed, first, last):
    """Numbers from -1 to 1, as crates/fv-run/src/execute/weights.rs makes them."""
    start = splitmix64(torch.tensor([signed(fnv1a64(name) ^ seed)], device=DEVICE))
    at = torch.arange(first, last, device=DEVICE) * signed(0x9E3779B97F4A7C15)
    return shifted(splitmix64(start + at), 40).double() / (1 << 24) * 2 - 1


def weight(name, shape):
    parts = name.split(".")
    owner = parts[-2] if len(parts) > 1 else ""
    offset, scale = 0.0, math.sqrt(3 / max(1, math.prod(shape[1:])))
    if name.endswith(".bias"):
        scale = 0.1
    elif parts[-1] == "weight" and "norm" in owner:
        offset, scale = 1.0, 0.1
    elif "scale_shift_table" in name:
        scale = 0.5
    values = offset + uniform(name, SEED, 0, math.prod(shape)) * scale
    return values.float().bfloat16().float().reshape(shape)


def normal(name, count):
    both = uniform(name, SEED, 0, 2 * count).reshape(count, 2)
    size = 1 - (both[:, 0] + 1) / 2
    return (-2 * size.log()).sqrt() * (math.pi * both[:, 1]).cos()


def model(kind):
    from diffusers import WanTransformer3DModel

    with torch.device(DEVICE):
        made = WanTransformer3DModel(**CONFIG).eval()
    state = {name: weight(name, tuple(value.shape)) for name, value in made.state_dict().items()}
    made.load_state_dict(state)
    made.requires_grad_(False)
    if kind == torch.float32:
        return made
    # What a pipeline loaded in bfloat16 keeps in single precision stays so.
    for name, module in made.named_modules():
        if not any(part in name for part in ("time_embedder", "norm1", "norm2", "norm3")):
            for parameter in module.parameters(recurse=False):
                parameter.data = parameter.data.to(kind)
    for holder in [made, *made.blocks]:
        holder.scale_shift_table.data = holder.scale_shift_table.data.float()
    return made


def predict(made, kind, latent, texts, timestep):
    velocities = []
    for text in texts:
        with torch.no_grad():
            found = made(hidden_states=latent.to(kind), timestep=timestep, encoder_hidden_states=text.to(kind), return_dict=False)[0]
        velocities.append(found.double())
    return velocities


def timed(run):
    run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) * 1000


def main():
    program, plan, out = sys.argv[1:4]
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    latent_file = f"{out}/ours.safetensors"
    told = subprocess.run(
        [program, "run", "--plan", plan, "--backend", "cuda", "--stage", "denoising", "--weights", f"synthetic:{SEED}", "--latent", latent_file],
        check=True, capture_output=True, text=True,
    ).stdout
    print(told, flush=True)
    ours = load_file(latent_file)["latent"].double().to(DEVICE)
    request = json.load(open(plan))["request"]
    frames, height, width = (request["frames"] - 1) // 4 + 1, request["height"] // 8, request["width"] // 8
    shape = (1, 16, frames, height, width)
    noise = normal("noise.0", math.prod(shape)).float()
    texts = [normal(f"prompt_embedding.{at}", 512 * 4096).float().bfloat16().reshape(1, 512, 4096) for at in (0, 1)]
    # One step of UniPC from the first sigma, which is just below 1, to 0: the latent is the noise less sigma times the velocity.
    sigma = float(torch.tensor(1 - 1e-6, dtype=torch.float64).float())
    velocity = (noise.double().reshape(16, -1) - ours) / sigma
    timestep = torch.tensor([math.floor((1 - 1e-6) * 1000)], device=DEVICE)
    guidance = request["sampling"]["guidance_thousandths"][0] / 1000

    def guided(made, kind):
        with_prompt, without = predict(made, kind, noise.reshape(shape), texts, timestep)
        return (without + guidance * (with_prompt - without)).reshape(16, -1)

    exact = guided(model(torch.float32), torch.float32)
    made = model(torch.bfloat16)
    half = guided(made, torch.bfloat16)
    ms = timed(lambda: predict(made, torch.bfloat16, noise.reshape(shape), texts, timestep))
    norm = exact.norm()
    result = {
        "ours_to_float32": float((velocity - exact).norm() / norm),
        "diffusers_bf16_to_float32": float((half - exact).norm() / norm),
        "diffusers_bf16_step_ms": ms,
        "guidance": guidance,
    }
    result["ok"] = result["ours_to_float32"] <= 1.5 * result["diffusers_bf16_to_float32"]
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
