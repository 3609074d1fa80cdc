"""The models that are measured: real shapes and tokenizers, random weights.

`tiny` needs almost no compute, so that the overhead per token shows; `q06` has the shape of
Qwen3-0.6B, so that compute dominates. Their weights are Q8_0.

Each of their tokens is whole characters: a token of random weights is else often a part of one,
which are not shown before the rest has come, and gaps between texts are not gaps between tokens.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.store import cache_folder

_VERSION = 2
"""The version of what `bench.make_model` makes: files of another one are not used any more."""

_BYTES_PER_CELL = 2
"""llama.cpp keeps keys and values as 16-bit floats by default."""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content"
    " + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)
"""A template for these models, which have none."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer with tied embeddings. Sizes in elements."""

    name: str
    architecture: str
    tokenizer: str
    vocabulary: int
    layers: int
    width: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_size: int
    context: int

    @property
    def path(self) -> Path:
        """Where `bench.make_model` puts it."""
        return cache_folder() / f"{self.name}-{_VERSION}.gguf"

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * _BYTES_PER_CELL


TINY = Shape(
    name="tiny",
    architecture="llama",
    tokenizer="llama-spm",
    vocabulary=32_000,
    layers=6,
    width=256,
    feed_forward=1024,
    heads=4,
    kv_heads=4,
    head_size=64,
    context=4096,
)
Q06 = Shape(
    name="q06",
    architecture="qwen3",
    tokenizer="qwen2",
    vocabulary=151_936,
    layers=28,
    width=1024,
    feed_forward=3072,
    heads=16,
    kv_heads=8,
    head_size=128,
    context=40_960,
)
SHAPES = {shape.name: shape for shape in (TINY, Q06)}


def made(shape: Shape) -> Path:
    """The model's file. Raises `SystemExit` when it was not made yet."""
    if not shape.path.is_file():
        raise SystemExit(f"bench: there is no model {shape.path}: run `make bench-setup` first")
    return shape.path
