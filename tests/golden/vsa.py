"""Video sparse attention of FastWan, in float64, for a diffusers Wan transformer.

Follows `VideoSparseAttentionImpl` and `video_sparse_attn` of FastVideo (see
README.md), without their bfloat16 roundings and without padded rows: a tile
holds its valid tokens only, which is the same in exact arithmetic.
"""

import math

import torch


def tiles_of(grid: tuple[int, int, int], tile: tuple[int, int, int]) -> list[torch.Tensor]:
    """Token indices of each tile; tiles and tokens in (frame, row, column) order."""
    index = torch.arange(math.prod(grid)).reshape(grid)
    return [
        part.flatten()
        for frames in index.split(tile[0], 0)
        for rows in frames.split(tile[1], 1)
        for part in rows.split(tile[2], 2)
    ]


def top_k(sparsity: float, tiles: int) -> int:
    """Key tiles per query tile, in Python's float arithmetic as FastVideo does it."""
    return max(1, min(math.ceil((1 - sparsity) * tiles), tiles))


def attention(q, k, v, gate, grid, tile, sparsity):
    """`q`, `k`, `v`, `gate`: [tokens, heads, head_dim]. Returns the output and what led to it."""
    tiles = tiles_of(grid, tile)

    def mean(x):  # [heads, tiles, head_dim]
        return torch.stack([x[rows].mean(0) for rows in tiles], dim=1)

    scores = mean(q) @ mean(k).transpose(1, 2) / math.sqrt(q.shape[-1])
    coarse_tiles = scores.softmax(-1) @ mean(v)
    count = top_k(sparsity, len(tiles))
    ranked = scores.sort(-1, descending=True)
    chosen = ranked.indices[..., :count].sort(-1).values  # [heads, tiles, count]
    margin = (ranked.values[..., count - 1] - ranked.values[..., count]).min() if count < len(tiles) else None

    coarse, fine = torch.empty_like(q), torch.empty_like(q)
    for number, rows in enumerate(tiles):
        coarse[rows] = coarse_tiles[:, number]
        for head in range(q.shape[1]):
            keys = torch.cat([tiles[i] for i in chosen[head, number].tolist()])
            weight = (q[rows, head] @ k[keys, head].T / math.sqrt(q.shape[-1])).softmax(-1)
            fine[rows, head] = weight @ v[keys, head]
    trace = {"scores": scores, "chosen": chosen, "margin": margin, "coarse": coarse, "fine": fine}
    return coarse * gate + fine, trace


class Processor:
    """Self-attention of one block; `trace` keeps the last call's inner values."""

    def __init__(self, model, block, tile, sparsity):
        self.model, self.block, self.tile, self.sparsity = model, block, tile, sparsity

    def __call__(self, attn, hidden_states, encoder_hidden_states=None, attention_mask=None, rotary_emb=None):
        def rotate(x):
            cos, sin = rotary_emb[0][0, :, :, 0::2], rotary_emb[1][0, :, :, 1::2]
            even, odd = x[..., 0::2], x[..., 1::2]
            return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)

        def heads(x):
            return x[0].unflatten(-1, (attn.heads, -1))

        q = rotate(heads(attn.norm_q(attn.to_q(hidden_states))))
        k = rotate(heads(attn.norm_k(attn.to_k(hidden_states))))
        v = heads(attn.to_v(hidden_states))
        gate = heads(self.block.to_gate_compress(hidden_states))
        out, self.trace = attention(q, k, v, gate, self.model.token_grid, self.tile, self.sparsity)
        return attn.to_out[0](out.flatten(1)[None])


def install(model, tile, sparsity):
    """Adds `blocks.N.to_gate_compress` and the sparse self-attention to a Wan transformer."""
    width = model.config.num_attention_heads * model.config.attention_head_dim
    for block in model.blocks:
        block.to_gate_compress = torch.nn.Linear(width, width)
        block.attn1.processor = Processor(model, block, tuple(tile), sparsity)

    def note_grid(_, args, kwargs):
        x = kwargs["hidden_states"] if "hidden_states" in kwargs else args[0]
        assert x.shape[0] == 1
        model.token_grid = tuple(n // p for n, p in zip(x.shape[2:], model.config.patch_size))

    model.register_forward_pre_hook(note_grid, with_kwargs=True)
