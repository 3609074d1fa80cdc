"""Adds LoRA matrices to a frozen network, and writes them as a GGUF file for llama.cpp.

Each linear map W gets A (rank, inputs) and B (outputs, rank), and computes W x + B A x. If `alpha`
equals the rank, llama.cpp adds exactly B A x at scale 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.training.export import NAMES
from demo.training.network import Llama


class LowRank(nn.Module):
    """A frozen `base` plus a trainable difference, which is zero at first."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, base.in_features) / base.in_features**0.5)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        added: Tensor = functional.linear(functional.linear(x, self.a), self.b)
        result: Tensor = self.base(x) + added
        return result


def adapt(model: Llama, rank: int) -> list[nn.Parameter]:
    """Freeze `model`, and replace each linear map by a `LowRank`.

    Returns the trainable weights.
    """
    model.requires_grad_(False)
    for layer in model.layers:
        for parent in (layer.attention, layer.feed_forward):
            for name, linear in list(parent.named_children()):
                setattr(parent, name, LowRank(linear, rank))
    return [weight for weight in model.parameters() if weight.requires_grad]


def write_adapter(path: Path, model: Llama, *, name: str, description: str) -> None:
    """Write the differences of an adapted `model` as 16-bit numbers."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_name(name)
    writer.add_description(description)
    writer.add_string("adapter.type", "lora")
    pairs = dict(low_ranks(model))
    writer.add_float32("adapter.lora.alpha", float(next(iter(pairs.values())).a.shape[0]))
    for tensor, pair in pairs.items():
        for end, weight in (("lora_a", pair.a), ("lora_b", pair.b)):
            array = weight.detach().float().numpy().astype(np.float16)
            writer.add_tensor(f"{tensor}.{end}", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def low_ranks(model: Llama) -> Iterator[tuple[str, LowRank]]:
    """Yield every adapted map with the llama.cpp name of its weight."""
    modules = dict(model.named_modules())
    for layer in range(model.shape.layers):
        for ours, theirs in NAMES.items():
            module = modules[f"layers.{layer}.{ours}"]
            if isinstance(module, LowRank):
                yield f"blk.{layer}.{theirs}.weight", module
