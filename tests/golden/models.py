"""The tiny models of `tiny.json`, built from diffusers / transformers classes in float64."""

import json
from pathlib import Path

import torch
from torch.overrides import TorchFunctionMode

import weights

HERE = Path(__file__).parent
TINY = json.loads((HERE / "tiny.json").read_text())


class Float64(TorchFunctionMode):
    """Turns every request for float32 into one for float64.

    The libraries ask for float32 in many places by name (`.float()`,
    `.to(torch.float32)`, `dtype=torch.float32`). Inside this mode those calls
    give float64, and a result that is float32 all the same is an error, so
    that what is stored is float64 from input to output.
    """

    def __torch_function__(self, func, types, args=(), kwargs=None):
        def swap(value):
            return torch.float64 if value is torch.float32 else value

        if func is torch.Tensor.float:
            func = torch.Tensor.double
        args = tuple(swap(a) for a in args)
        kwargs = {k: swap(v) for k, v in (kwargs or {}).items()}
        out = func(*args, **kwargs)
        if isinstance(out, torch.Tensor) and func is not torch.from_numpy:
            assert out.dtype not in (torch.float32, torch.bfloat16), f"{func} gave {out.dtype}"
        return out


def build(name: str) -> torch.nn.Module:
    """One component with its generated weights. Call inside `Float64`."""
    import diffusers
    import transformers

    entry = TINY[name]
    library, cls = entry["class"].split(".")
    if library == "transformers":
        model = transformers.UMT5EncoderModel(transformers.UMT5Config(**entry["config"]))
    else:
        model = getattr(diffusers, cls)(**entry["config"])
    if "video_sparse_attention" in entry:
        import vsa

        vsa.install(model, **entry["video_sparse_attention"])
    load(model, entry["seed"])
    return model.eval()


def load(model: torch.nn.Module, seed: int) -> None:
    """Fills every parameter by name. A tied parameter keeps its first name."""
    for name, parameter in model.named_parameters():
        values = weights.tensor(name, seed, tuple(parameter.shape))
        parameter.data = torch.from_numpy(values)
    if hasattr(model, "encoder") and hasattr(model.encoder, "embed_tokens"):
        assert model.encoder.embed_tokens.weight is model.shared.weight
