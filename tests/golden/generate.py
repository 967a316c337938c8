"""Writes the golden files, or with --check compares them to a fresh computation.

    python generate.py [--check] [NAME ...]
"""

import argparse
import json
import sys
from unittest import mock

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

import vsa
import weights
from models import HERE, TINY, Float64, build

LIMIT_BYTES = 1_000_000
TOLERANCE = 1e-12
INPUT_SEED = 1
TEXT_ROWS = 16
PROMPT_TOKENS = 11
NEGATIVE_TOKENS = 5


def given(name: str, *shape: int) -> torch.Tensor:
    """A synthetic input, stored beside what is computed from it."""
    return torch.from_numpy(weights.noise(name, INPUT_SEED, shape))


def text_rows(name: str, tokens: int) -> torch.Tensor:
    """[1, TEXT_ROWS, text_dim]: `tokens` real rows, the rest zero."""
    rows = given(name, 1, TEXT_ROWS, TINY["dit"]["config"]["text_dim"])
    rows[:, tokens:] = 0
    return rows


def weights_json() -> list:
    """The weight generator alone: the first values of one tensor of every kind."""
    cases = [
        ("blocks.0.attn1.to_q.weight", 21, (48, 48)),
        ("blocks.0.attn1.to_q.weight", 22, (48, 48)),
        ("blocks.0.attn1.to_q.bias", 21, (48,)),
        ("blocks.3.ffn.net.2.weight", 21, (48, 96)),
        ("blocks.1.attn1.norm_q.weight", 21, (48,)),
        ("blocks.1.norm2.weight", 21, (48,)),
        ("blocks.1.norm2.bias", 21, (48,)),
        ("scale_shift_table", 21, (1, 2, 48)),
        ("blocks.2.scale_shift_table", 21, (1, 6, 48)),
        ("patch_embedding.weight", 21, (48, 4, 1, 2, 2)),
        ("blocks.0.to_gate_compress.weight", 23, (48, 48)),
        ("shared.weight", 11, (128, 32)),
        ("encoder.embed_tokens.weight", 11, (128, 32)),
        ("encoder.block.0.layer.0.layer_norm.weight", 11, (32,)),
        ("encoder.final_layer_norm.weight", 11, (32,)),
        ("encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", 11, (32, 4)),
        ("encoder.block.0.layer.1.DenseReluDense.wi_0.weight", 11, (64, 32)),
        ("decoder.conv_in.weight", 31, (32, 4, 3, 3, 3)),
        ("decoder.mid_block.resnets.0.norm1.gamma", 31, (32, 1, 1, 1)),
        ("decoder.norm_out.gamma", 2**64 - 1, (8, 1, 1, 1)),
    ]
    return [
        {
            "name": name,
            "seed": seed,
            "shape": shape,
            "rule": weights.rule(name),
            "fnv1a64": weights.fnv1a64(name),
            "first": weights.tensor(name, seed, shape).reshape(-1)[:8].tolist(),
            "last": float(weights.tensor(name, seed, shape).reshape(-1)[-1]),
        }
        for name, seed, shape in cases
    ]


def token_ids() -> dict:
    """Prompt and negative prompt. Each ends with the end token 1, as the tokenizer ends them."""
    drawn = weights.uniform("umt5.ids", INPUT_SEED, PROMPT_TOKENS + NEGATIVE_TOKENS)
    ids = torch.from_numpy(((drawn + 1) / 2 * 125).astype(np.int64) + 3)
    prompt, negative = ids[:PROMPT_TOKENS], ids[PROMPT_TOKENS:]
    prompt[-1] = negative[-1] = 1
    return {"prompt": prompt, "negative": negative}


def padded(rows: torch.Tensor) -> torch.Tensor:
    """[1, TEXT_ROWS, text_dim] from the rows of the real tokens."""
    return torch.nn.functional.pad(rows, (0, 0, 0, TEXT_ROWS - rows.shape[1]))


def umt5() -> dict:
    """The text encoder on the real tokens alone, and its rows padded with zeros."""
    model = build("umt5")
    out = {}
    for name, ids in token_ids().items():
        run = model(input_ids=ids[None], output_hidden_states=True)
        # The last hidden state comes after the final norm; the others are the residual stream.
        out |= {
            f"{name}.ids": ids,
            f"{name}.hidden": torch.cat(run.hidden_states),
            f"{name}.embeddings": padded(run.last_hidden_state),
        }
    attention = model.encoder.block[0].layer[0].SelfAttention
    distance = torch.arange(-511, 512)
    with torch._C.DisableTorchFunction():  # float32, as every user of the library gets it
        out["relative_buckets"] = attention._relative_position_bucket(distance)
    exact = attention._relative_position_bucket(distance)
    used = slice(512 - PROMPT_TOKENS, 511 + PROMPT_TOKENS)
    assert torch.equal(out["relative_buckets"][used], exact[used])
    return out


def residual_stream(model, **inputs) -> dict:
    """One forward pass: `output`, and the residual stream before and after every block."""
    stream = []
    hooks = [model.blocks[0].register_forward_pre_hook(lambda _, args: stream.append(args[0][0].clone()))]
    for block in model.blocks:
        hooks.append(block.register_forward_hook(lambda _, args, out: stream.append(out[0].clone())))
    output = model(**inputs, return_dict=False)[0]
    for hook in hooks:
        hook.remove()
    return {"stream": torch.stack(stream), "output": output}


def dit_vsa() -> dict:
    """The transformer with video sparse attention: 5 x 6 x 10 tokens in 2 x 2 x 3 tiles, most of them partial."""
    model = build("dit-vsa")
    out = {
        "latent": given("dit-vsa.latent.2", 1, 4, 5, 12, 20),  # of several tried, the one without near ties
        "text": text_rows("dit-vsa.text", PROMPT_TOKENS),
        "timestep": torch.tensor([757]),
    }
    out |= residual_stream(
        model, hidden_states=out["latent"], encoder_hidden_states=out["text"], timestep=out["timestep"]
    )
    traces = [block.attn1.processor.trace for block in model.blocks]
    assert min(trace["margin"] for trace in traces) > 1e-4, "a chosen tile hangs on rounding"
    out |= {"scores": torch.stack([t["scores"] for t in traces]), "chosen": torch.stack([t["chosen"] for t in traces])}
    # With every tile chosen and the gate shut, this is ordinary attention.
    q, k, v = (given(f"dit-vsa.{name}", 300, 4, 12) for name in "qkv")
    all_tiles, _ = vsa.attention(q, k, v, torch.zeros_like(q), (5, 6, 10), (4, 4, 4), 0.0)
    heads_first = [x.transpose(0, 1) for x in (q, k, v)]
    ordinary = torch.nn.functional.scaled_dot_product_attention(*heads_first).transpose(0, 1)
    assert (all_tiles - ordinary).abs().max() < 1e-12
    out |= {"block0.coarse": traces[0]["coarse"], "block0.fine": traces[0]["fine"]}
    return out


def vsa_json() -> list:
    """Key tiles per query tile. Not always ceil in exact arithmetic: see 0.7 of 10."""
    rows = [(s, n) for s in (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 1.0) for n in (1, 2, 5, 10, 12, 20, 100, 624, 1232)]
    return [{"sparsity": s, "tiles": n, "top_k": vsa.top_k(s, n)} for s, n in rows]


def dit() -> dict:
    """The dense transformer: one timestep, and a timestep per token."""
    model = build("dit")
    out = {
        "latent": given("dit.latent", 1, 4, 3, 6, 8),
        "text": text_rows("dit.text", PROMPT_TOKENS),
        "timestep": torch.tensor([713]),
    }
    inputs = {"hidden_states": out["latent"], "encoder_hidden_states": out["text"]}
    run = residual_stream(model, timestep=out["timestep"], **inputs)
    out |= run
    freqs_cos, freqs_sin = model.rope(out["latent"])
    out |= {"rope.cos": freqs_cos[0, :, 0, 0::2], "rope.sin": freqs_sin[0, :, 0, 1::2]}
    temb, modulation, text, _ = model.condition_embedder(out["timestep"], out["text"])
    out |= {"temb": temb[0], "modulation": modulation[0].unflatten(0, (6, -1)), "text_embedded": text[0]}

    tokens = run["stream"].shape[1]
    per_frame = tokens // out["latent"].shape[2]
    equal = torch.full((1, tokens), 713.0)
    first_zero = equal.clone()
    first_zero[:, :per_frame] = 0
    for name, timesteps in [("equal", equal), ("first_zero", first_zero)]:
        run = residual_stream(model, timestep=timesteps, **inputs)
        out |= {f"{name}.{key}": value for key, value in run.items()} | {f"{name}.timestep": timesteps}
    assert (out["equal.output"] - out["output"]).abs().max() < 1e-12
    del out["equal.stream"]
    return out


def denormalised(name: str, latents: torch.Tensor) -> torch.Tensor:
    """From the transformer's latents to the ones the decoder takes."""
    config = TINY[name]["config"]
    mean, std = (torch.tensor(config[key]).view(1, -1, 1, 1, 1) for key in ("latents_mean", "latents_std"))
    return latents * std + mean


def decode(model, z: torch.Tensor) -> torch.Tensor:
    """Frames [1, 3, frames, height, width] before diffusers clamps them to [-1, 1]."""
    with mock.patch("torch.clamp", lambda x, **_: x):
        frames = model.decode(z, return_dict=False)[0]
    assert torch.equal(frames.clamp(-1, 1), model.decode(z, return_dict=False)[0])
    return frames


def vae(name: str, frames: int, height: int, width: int) -> dict:
    """The cached decoder: one latent frame at a time."""
    channels = TINY[name]["config"]["z_dim"]
    latents = given(f"{name}.latents", 1, channels, frames, height, width)
    z = denormalised(name, latents)
    out = decode(build(name), z)
    assert (out.abs() > 1).any(), "the clamp would not be tested"
    return {"latents": latents, "z": z, "frames": out}


def vae21_tiled() -> dict:
    """The tiled decoder on the same latents: 2 x 2 tiles of at most 4 x 6, neighbours sharing one row or column."""
    model = build("vae21")
    model.enable_tiling(
        tile_sample_min_height=32,
        tile_sample_min_width=48,
        tile_sample_stride_height=24,
        tile_sample_stride_width=40,
    )
    latents = given("vae21.latents", 1, 4, 3, 6, 8)
    return {"frames": decode(model, denormalised("vae21", latents))}


def vae_layers(name: str, height: int, width: int) -> dict:
    """Inner feature maps of a two-frame decode, small enough to keep every layer."""
    model = build(name)
    channels = TINY[name]["config"]["z_dim"]
    latents = given(f"{name}-layers.latents", 1, channels, 2, height, width)
    z = denormalised(name, latents)
    out = {"latents": latents, "z": z, "post_quant_conv": model.post_quant_conv(z)}
    layers = {"conv_in": model.decoder.conv_in, "mid_block": model.decoder.mid_block}
    layers |= {f"up_blocks.{i}": block for i, block in enumerate(model.decoder.up_blocks)}
    layers |= {"conv_out": model.decoder.conv_out}

    def keep(key):
        def hook(_module, _args, value):
            chunk = sum(f"chunk{i}.{key}" in out for i in range(2))
            out[f"chunk{chunk}.{key}"] = value.clone()

        return hook

    hooks = [layer.register_forward_hook(keep(key)) for key, layer in layers.items()]
    with mock.patch("torch.clamp", lambda x, **_: x):
        out["frames"] = model.decode(z, return_dict=False)[0]
    for hook in hooks:
        hook.remove()
    return out


SAMPLE_SHAPE = (1, 4, 3, 6, 8)
DMD_TIMESTEPS = [1000, 757, 522]
DMD_SHIFT = 8.0


def unipc(shift: float, steps: int):
    """diffusers' UniPC for flow matching: its float32 sigmas, but float64 arithmetic on them."""
    from diffusers import UniPCMultistepScheduler

    class Widened(UniPCMultistepScheduler):
        def set_timesteps(self, *args, **kwargs):
            with torch._C.DisableTorchFunction():  # the tables as every user of the library gets them
                super().set_timesteps(*args, **kwargs)
            self.sigmas = self.sigmas.double()

    scheduler = Widened(
        prediction_type="flow_prediction",
        use_flow_sigmas=True,
        flow_shift=shift,
        num_train_timesteps=1000,
        solver_order=2,
        solver_type="bh2",
    )
    scheduler.set_timesteps(steps)
    return scheduler


def euler(shift: float, steps: int):
    from diffusers import FlowMatchEulerDiscreteScheduler

    with torch._C.DisableTorchFunction():  # as above
        scheduler = FlowMatchEulerDiscreteScheduler(shift=shift)
        scheduler.set_timesteps(steps)
    scheduler.sigmas, scheduler.timesteps = scheduler.sigmas.double(), scheduler.timesteps.double()
    return scheduler


def shifted(s: np.ndarray, shift: float) -> np.ndarray:
    return shift * s / (1 + (shift - 1) * s)


def dmd_sigmas() -> torch.Tensor:
    """FastVideo's: the entry of the 1000-entry shifted table whose timestep is nearest."""
    table = shifted(np.arange(1000, 0, -1, dtype=np.float32) / np.float32(1000), np.float32(DMD_SHIFT))
    assert table.dtype == np.float32
    nearest = [np.abs(table * np.float32(1000) - t).argmin() for t in DMD_TIMESTEPS]
    exact = shifted(np.array([1.0, 0.28, 0.12]), DMD_SHIFT)
    assert np.abs(table[nearest] - exact).max() < 1e-7
    return torch.from_numpy(table[nearest].astype(np.float64))


def dmd(model_output, latents: torch.Tensor, noises: torch.Tensor) -> torch.Tensor:
    """States after each step. `model_output(step, latents)` gives the velocity."""
    sigmas, states = dmd_sigmas(), []
    for step, sigma in enumerate(sigmas):
        latents = latents - sigma * model_output(step, latents)
        if step + 1 < len(sigmas):
            latents = (1 - sigmas[step + 1]) * latents + sigmas[step + 1] * noises[step]
        states.append(latents)
    return torch.stack(states)


def walk(scheduler, latents: torch.Tensor, outputs: torch.Tensor) -> torch.Tensor:
    """States after each step for a fixed sequence of model outputs."""
    states = []
    for output, t in zip(outputs, scheduler.timesteps):
        latents = scheduler.step(output, t, latents, return_dict=False)[0]
        states.append(latents)
    return torch.stack(states)


def samplers() -> dict:
    """Tables, and the states each sampler walks through for given model outputs."""
    latents = given("samplers.latents", *SAMPLE_SHAPE)
    outputs = given("samplers.outputs", 5, *SAMPLE_SHAPE)
    noises = given("samplers.noises", 2, *SAMPLE_SHAPE)
    out = {"latents": latents, "outputs": outputs, "noises": noises}
    for steps in (4, 5):
        for name, scheduler in [("unipc", unipc(3.0, steps)), ("euler", euler(3.0, steps))]:
            key = f"{name}{steps}"
            out |= {f"{key}.sigmas": scheduler.sigmas, f"{key}.timesteps": scheduler.timesteps}
            out[f"{key}.states"] = walk(scheduler, latents, outputs)
    out["dmd.sigmas"] = dmd_sigmas()
    out["dmd.timesteps"] = torch.tensor(DMD_TIMESTEPS)
    out["dmd.states"] = dmd(lambda step, _: outputs[step], latents, noises)
    for shift in (3, 5, 8):
        for name, scheduler in [("unipc", unipc(float(shift), 50)), ("euler", euler(float(shift), 50))]:
            key = f"{name}50-shift{shift}"
            out |= {f"{key}.sigmas": scheduler.sigmas, f"{key}.timesteps": scheduler.timesteps}
    return out


def prompt_embeddings() -> dict:
    """Both prompts from token ids to padded rows."""
    model = build("umt5")
    return {name: padded(model(input_ids=ids[None]).last_hidden_state) for name, ids in token_ids().items()}


def wan_pipeline(name: str, height: int, width: int, frames: int, decode_with: str | None, **components):
    """diffusers' own WanPipeline from token ids on, UniPC with 4 steps and shift 3, noise given."""
    from diffusers import WanPipeline

    guidance = components.pop("guidance")
    tiny = TINY[decode_with or "vae21"]["config"]
    scale = tiny.get("scale_factor_spatial", 8)
    pipeline = WanPipeline(
        tokenizer=None,
        text_encoder=None,
        vae=build(decode_with) if decode_with else None,
        scheduler=unipc(3.0, 4),
        **components,
    )
    pipeline.set_progress_bar_config(disable=True)
    noise = given(f"{name}.noise", 1, tiny["z_dim"], 1 + (frames - 1) // 4, height // scale, width // scale)
    embeddings = prompt_embeddings()
    steps, timesteps = [], []

    def note(_pipeline, _step, timestep, values):
        steps.append(values["latents"].clone())
        timesteps.append(timestep)
        return {}

    result = pipeline(
        prompt_embeds=embeddings["prompt"],
        negative_prompt_embeds=embeddings["negative"],
        latents=noise,
        height=height,
        width=width,
        num_frames=frames,
        num_inference_steps=4,
        callback_on_step_end=note,
        output_type="pt" if decode_with else "latent",
        **guidance,
    ).frames
    out = {f"{key}.ids": ids for key, ids in token_ids().items()}
    out |= {"noise": noise, "latents": torch.stack(steps), "timesteps": torch.stack(timesteps)}
    assert not decode_with or result.shape == (1, frames, 3, height, width)
    return out, result


def pixels(frames: torch.Tensor) -> torch.Tensor:
    """8-bit [frames, height, width, 3] from frames in [0, 1], rounded half to even as diffusers does."""
    return (frames[0].permute(0, 2, 3, 1) * 255).round().to(torch.uint8)


def pipeline_dense() -> dict:
    """One transformer, guidance 5, decoded to 9 frames of 48 x 64."""
    out, frames = wan_pipeline(
        "pipeline-dense", 48, 64, 9, "vae21", transformer=build("dit"), guidance={"guidance_scale": 5.0}
    )
    return out | {"frames": frames[0], "pixels": pixels(frames)}


def pipeline_experts() -> dict:
    """Two transformers, each with its own guidance, changing below timestep 800."""
    out, _ = wan_pipeline(
        "pipeline-experts",
        48,
        64,
        9,
        None,
        transformer=build("dit"),
        transformer_2=build("dit2"),
        boundary_ratio=0.8,
        guidance={"guidance_scale": 4.0, "guidance_scale_2": 3.0},
    )
    assert (out["timesteps"] >= 800).tolist() == [True, True, False, False]
    return out


def pipeline_fast() -> dict:
    """Video sparse attention and three DMD steps without guidance."""
    model, text = build("dit-vsa"), prompt_embeddings()["prompt"]
    noise = given("pipeline-fast.noise", 1, 4, 5, 12, 20)
    noises = given("pipeline-fast.noises", 2, 1, 4, 5, 12, 20)
    margins = []

    def velocity(step, latents):
        timestep = torch.tensor(DMD_TIMESTEPS[step : step + 1])
        out = model(hidden_states=latents, timestep=timestep, encoder_hidden_states=text, return_dict=False)[0]
        margins.extend(block.attn1.processor.trace["margin"] for block in model.blocks)
        return out

    latents = dmd(velocity, noise, noises)
    assert min(margins) > 1e-5, f"a chosen tile hangs on rounding: {min(margins)}"
    ids = token_ids()["prompt"]
    return {"prompt.ids": ids, "noise": noise, "noises": noises, "latents": latents, "sigmas": dmd_sigmas()}


def pipeline_ti2v() -> dict:
    """A timestep for each token, and the residual decoder: 5 frames of 64 x 96."""
    out, frames = wan_pipeline(
        "pipeline-ti2v",
        64,
        96,
        5,
        "vae22",
        transformer=build("dit-ti2v"),
        expand_timesteps=True,
        guidance={"guidance_scale": 5.0},
    )
    return out | {"frames": frames[0], "pixels": pixels(frames)}


FILES = {
    "weights.json": weights_json,
    "dit.safetensors": dit,
    "dit-vsa.safetensors": dit_vsa,
    "vsa-top-k.json": vsa_json,
    "umt5.safetensors": umt5,
    "samplers.safetensors": samplers,
    "vae21.safetensors": lambda: vae("vae21", 3, 6, 8),
    "vae21-tiled.safetensors": vae21_tiled,
    "vae21-layers.safetensors": lambda: vae_layers("vae21", 2, 3),
    "vae22.safetensors": lambda: vae("vae22", 2, 3, 4),
    "vae22-layers.safetensors": lambda: vae_layers("vae22", 2, 2),
    "pipeline-dense.safetensors": pipeline_dense,
    "pipeline-experts.safetensors": pipeline_experts,
    "pipeline-fast.safetensors": pipeline_fast,
    "pipeline-ti2v.safetensors": pipeline_ti2v,
}


def compute(name: str):
    with torch.no_grad(), Float64():
        return FILES[name]()


def to_arrays(tensors: dict) -> dict:
    arrays = {}
    for key, value in tensors.items():
        arrays[key] = np.ascontiguousarray(value.numpy())
        assert arrays[key].dtype in (np.float64, np.int64, np.uint8), f"{key}: {arrays[key].dtype}"
        assert np.isfinite(arrays[key]).all(), f"{key} holds a value that is not finite"
    return arrays


def write(name: str) -> None:
    path = HERE / name
    if name.endswith(".json"):
        rows = compute(name)
        path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    else:
        save_file(to_arrays(compute(name)), path)
    size = path.stat().st_size
    assert size < LIMIT_BYTES, f"{name} is {size} bytes, over {LIMIT_BYTES}"
    print(f"wrote {name}: {size} bytes")


def differences(name: str) -> list[str]:
    """What in the stored file differs from a fresh computation."""
    path = HERE / name
    if name.endswith(".json"):
        stored = json.loads(path.read_text())
        return [] if stored == json.loads(json.dumps(compute(name))) else [f"{name} differs"]
    stored, fresh = load_file(path), to_arrays(compute(name))
    found = [f"{name}: {key} is in one only" for key in stored.keys() ^ fresh.keys()]
    for key in sorted(stored.keys() & fresh.keys()):
        a, b = stored[key], fresh[key]
        if a.shape != b.shape or a.dtype != b.dtype:
            found.append(f"{name}: {key} is {a.dtype}{a.shape}, now {b.dtype}{b.shape}")
        elif a.dtype != np.float64:
            found += [f"{name}: {key} differs"] * (not np.array_equal(a, b))
        else:
            error = np.linalg.norm(a - b) / max(np.linalg.norm(b), np.finfo(np.float64).tiny)
            found += [f"{name}: {key} differs by {error:.3e}"] * (not error <= TOLERANCE)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("names", nargs="*", help="files to do (default: all)")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - FILES.keys()
    if unknown:
        parser.error(f"no such file: {', '.join(sorted(unknown))}; there are {', '.join(FILES)}")
    torch.set_default_dtype(torch.float64)
    found = []
    for name in arguments.names or FILES:
        if arguments.check:
            found += differences(name)
        else:
            write(name)
    for line in found:
        print(line)
    if arguments.check and not found:
        print("all golden files are as computed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
