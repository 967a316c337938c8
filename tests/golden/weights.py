"""Deterministic weights, so that no weight file is ever stored.

The Rust runner holds the same generator; `weights.json` lets both sides be
checked alone. All integer arithmetic is modulo 2**64 (numpy uint64 wraps).
"""

import numpy as np

GAMMA = np.uint64(0x9E3779B97F4A7C15)
MUL_1 = np.uint64(0xBF58476D1CE4E5B9)
MUL_2 = np.uint64(0x94D049BB133111EB)


def fnv1a64(text: str) -> int:
    h = 0xCBF29CE484222325
    for byte in text.encode("utf-8"):
        h = ((h ^ byte) * 0x100000001B3) % 2**64
    return h


def splitmix64(z: np.ndarray) -> np.ndarray:
    z = z + GAMMA
    z = (z ^ (z >> np.uint64(30))) * MUL_1
    z = (z ^ (z >> np.uint64(27))) * MUL_2
    return z ^ (z >> np.uint64(31))


def uniform(name: str, seed: int, count: int) -> np.ndarray:
    """`count` float64 values in [-1, 1), each a multiple of 2**-23."""
    h = splitmix64(np.array([fnv1a64(name) ^ seed], dtype=np.uint64))
    x = splitmix64(h + np.arange(count, dtype=np.uint64) * GAMMA)
    return (x >> np.uint64(40)).astype(np.float64) / 2**24 * 2 - 1


def rule(name: str) -> str:
    """Which scaling a tensor gets. The first line that fits decides."""
    parts = name.split(".")
    owner = parts[-2] if len(parts) > 1 else ""
    if name.endswith(".bias"):
        return "bias"
    if name.endswith("gamma") or (parts[-1] == "weight" and "norm" in owner):
        return "norm"
    if "scale_shift_table" in name:
        return "table"
    if "relative_attention_bias" in name or "embed_tokens" in name or name == "shared.weight":
        return "embedding"
    return "matrix"


def to_bf16(x: np.ndarray) -> np.ndarray:
    """float64 -> float32 -> bfloat16 (both nearest even) -> float64."""
    bits = x.astype(np.float32).view(np.uint32)
    bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def tensor(name: str, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """The values of one weight, exactly representable in bfloat16."""
    u = uniform(name, seed, int(np.prod(shape)))
    match rule(name):
        case "bias":
            u = 0.1 * u
        case "norm":
            u = 1 + 0.1 * u
        case "table":
            u = 0.5 * u
        case "matrix":
            u = u * np.sqrt(3 / np.prod(shape[1:]))
    return to_bf16(u).reshape(shape)


def noise(name: str, seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """An activation-like input of unit variance (uniform in [-sqrt 3, sqrt 3)), float64."""
    return (uniform(name, seed, int(np.prod(shape))) * np.sqrt(3)).reshape(shape)
