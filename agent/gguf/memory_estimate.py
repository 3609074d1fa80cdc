"""Estimates the memory of a loaded model from its file's header.

The formulas follow llama.cpp. The KV cache is `llama_kv_cache`: per layer, cells times the width
of keys and values. Recurrent layers have rows of state for the slots, for the spare sequence, and
for one checkpoint per slot. Further checkpoints are counted in the host cache. Each state has one
more row per token that may be drafted. The output buffer is `llama_context::output_reserve`. The
compute buffer follows `graph_reserve` for a full micro-batch: the inputs, and the larger of the
logits and a layer (rows of the feed-forward, a mask of attention). Weights take their size in the
file.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from ...shared.models.engine_options import NO_DEVICE, cache_bytes
from ..engine.llama.cells.layout import choose_layout
from ..engine.load_options import LoadOptions
from .fit import CELL_BLOCK, LayerBytes, Sizes, bytes_on_gpus
from .header import GgufHeader, read_header
from .model_shape import LayerShape, ModelShape, shape_of
from .split_files import files_of

SCORED_ROWS = 64
"""Rows of logits for prompt tokens that the engine requests at once."""

PROCESS = 160 * 2**20
"""Bytes of an engine process without a model: Python, its libraries, the grammars' tokenizer."""

EMBEDDING_SEQUENCES = 16
"""Maximum sequences of the embedding context; also the minimum tokens of its steps."""
EMBEDDING_LOGITS = 64 * 2**20
"""Maximum bytes of logits in a step of the embedding context."""

_F16, _F32 = 2, 4
_EMBEDDING_ROWS = 6
"""Rows of the model's width that a layer needs at once, in addition to the feed-forward's rows."""


@dataclass(frozen=True, slots=True)
class ModelFileSizes:
    """The header of a model's first file, the bytes of its tensors, and the bytes of all files.

    `tensors` is empty if not all headers are known.
    """

    header: GgufHeader
    tensors: dict[str, int]
    num_bytes: int


def read_sizes(path: Path) -> ModelFileSizes:
    """Read the sizes of the model whose first file is `path`.

    Raises `HeaderError`, `OSError`, and `ValueError` for the name of an impossible split.
    """
    parts = []
    for part in map(Path, files_of(str(path))):
        with part.open("rb") as file:
            parts.append((read_header(file), part.stat().st_size))
    return sizes_of(parts)


def sizes_of(parts: Iterable[tuple[GgufHeader, int]]) -> ModelFileSizes:
    """Return the sizes of a model from each file's header and bytes, the first file first.

    The first header alone, with the bytes of all files, may represent all files.
    """
    files = list(parts)
    tensors: dict[str, int] = {}
    if len(files) >= files[0][0].num_files:
        for header, num_bytes in files:
            tensors |= header.tensor_bytes(num_bytes)
    return ModelFileSizes(files[0][0], tensors, sum(num_bytes for _, num_bytes in files))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemory:
    """The bytes of a layer; `experts` are the weights of a mixture's experts."""

    dense: int
    experts: int = 0
    cache: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """The memory of a model by purpose, in bytes. `embeddings` is the context for embeddings.

    `output` is the weights after the layers; `elsewhere` is the weights that stay in host memory.
    `beside` is loaded with the model: a projector, and a draft model with its cache. `host_cache`
    is the limit for prefixes that have left the KV cache.
    """

    layers: tuple[LayerMemory, ...]
    output: int = 0
    elsewhere: int = 0
    compute: int = 0
    embeddings: int = 0
    beside: int = 0
    host_cache: int = 0
    process: int = PROCESS

    @property
    def weights(self) -> int:
        """All weights of the model itself."""
        layers = sum(each.dense + each.experts for each in self.layers)
        return layers + self.output + self.elsewhere

    @property
    def cache(self) -> int:
        """The cells and states of all layers."""
        return sum(each.cache for each in self.layers)

    @property
    def total(self) -> int:
        """The total over all memories."""
        computing = self.compute + self.embeddings + self.beside
        return self.weights + self.cache + computing + self.host_cache + self.process

    def sizes(self, options: LoadOptions) -> Sizes:
        """Return the sizes in the form that the choice of a placement needs."""
        is_near = options.kv_offload
        return Sizes(
            layers=tuple(
                LayerBytes(each.dense + each.cache * is_near, each.experts) for each in self.layers
            ),
            output=self.output,
            compute=self.compute + self.embeddings + self.beside,
            host=self.host_cache + self.process + self.elsewhere + self.cache * (not is_near),
        )

    def on_gpus(self, options: LoadOptions) -> int | None:
        """Return the bytes on GPUs; `None` if the placement depends on patterns or on what fits."""
        gpu_layers = options.gpu_layers
        if gpu_layers == "auto" or options.override_tensor is not None:
            return None
        if options.device == NO_DEVICE:
            gpu_layers = 0
        every = len(self.layers) + 1  # the output is one, too
        share = every if gpu_layers < 0 else min(gpu_layers, every)
        return bytes_on_gpus(self.sizes(options), share, options.n_cpu_moe)


def estimate(
    file: ModelFileSizes, options: LoadOptions, *, beside: int = 0
) -> MemoryEstimate | None:
    """Return the memory of a model loaded with `options`.

    `beside` is the number of bytes that are loaded with the model. Returns `None` if a header
    lacks information. Raises `ModelError` if `options` conflict.
    """
    layout = choose_layout(options, can_share=True, is_offloaded=False)
    return _alone(file, options, layout.num_cells, beside)


def bytes_beside(options: LoadOptions) -> int | None:
    """Return the bytes of the projector and of the draft model with its cache.

    Returns `None` if a header lacks information. Raises `HeaderError`, `OSError`, and the
    `ValueError` of `read_sizes`.
    """
    num_bytes = options.projector.stat().st_size if options.projector is not None else 0
    if options.draft_model is None:
        return num_bytes
    num_cells = min(options.num_cells, options.slots * options.slot_tokens)
    found = _alone(read_sizes(options.draft_model), options.for_draft, num_cells, 0)
    if found is None:
        return None
    return num_bytes + found.weights + found.cache + found.compute


def _alone(
    file: ModelFileSizes, options: LoadOptions, num_cells: int, beside: int
) -> MemoryEstimate | None:
    header = file.header
    shape = shape_of(header, file.tensors)
    if shape is None:
        return None
    weights = max(0, file.num_bytes - header.data_offset)
    if not file.tensors:
        shape = _with_even_weights(shape, weights, has_experts=bool(header.number("expert_count")))
    of_layers = sum(each.dense + each.experts for each in shape.layers)
    cell = sum(_cell(each, options) for each in shape.layers)
    chunk = _chunk(shape.vocab, options)
    rows_of_chunk = chunk * (shape.vocab + shape.width + 2 * shape.feed_forward) * _F32
    return MemoryEstimate(
        layers=tuple(
            LayerMemory(
                dense=each.dense,
                experts=each.experts,
                cache=_cache(each, shape, options, num_cells),
            )
            for each in shape.layers
        ),
        output=shape.output,
        elsewhere=max(0, weights - of_layers - shape.output),
        compute=_compute(shape, options, _whole_blocks(num_cells)),
        embeddings=cell * _whole_blocks(options.slot_tokens + chunk) + rows_of_chunk,
        beside=beside,
        host_cache=options.host_cache,
    )


def _with_even_weights(shape: ModelShape, weights: int, *, has_experts: bool) -> ModelShape:
    """Divide `weights` evenly among the layers; in a mixture nearly all weights are experts."""
    part = weights // (len(shape.layers) + 1)
    dense, experts = (0, part) if has_experts else (part, 0)
    layers = tuple(replace(each, dense=dense, experts=experts) for each in shape.layers)
    return replace(shape, layers=layers, output=part)


def _cell(layer: LayerShape, options: LoadOptions) -> int:
    keys, values = options.cache_type_k, options.cache_type_v
    return cache_bytes(layer.keys, keys) + cache_bytes(layer.values, values)


def _cache(layer: LayerShape, shape: ModelShape, options: LoadOptions, num_cells: int) -> int:
    """Return the bytes of a layer's cells and states."""
    if layer.has_window and options.swa_full == "off":
        num_cells = min(num_cells, options.slots * shape.window + options.ubatch_size)
    num_states = (2 * options.slots + 1) * (1 + options.max_draft)
    return _whole_blocks(num_cells) * _cell(layer, options) + num_states * layer.state


def _compute(shape: ModelShape, options: LoadOptions, cells: int) -> int:
    tokens, width, vocab = options.ubatch_size, shape.width, shape.vocab
    rows = options.slots * (1 + options.max_draft) + max(SCORED_ROWS, options.slots)
    layer = tokens * ((2 * shape.feed_forward + _EMBEDDING_ROWS * width) * _F32 + cells * _F16)
    # A mask of the windows beside that of all cells, and what goes into recurrent states.
    layer += tokens * cells * _F16 * bool(shape.window)
    layer += tokens * 2 * shape.inner * _F32
    if options.flash_attn == "off":
        # Of each token to each cell a number for each head, and a mask of full precision.
        layer += tokens * cells * (shape.heads * _F32 + _F32 - _F16)
    inputs = tokens * width * _F32
    outputs = (options.slots + 1) * vocab * _F32
    return max(layer, rows * vocab * _F32) + inputs + outputs


def _whole_blocks(num_cells: int) -> int:
    return -(-num_cells // CELL_BLOCK) * CELL_BLOCK


def _chunk(vocab: int, options: LoadOptions) -> int:
    """Return the tokens in a step of the embedding context, as the engine chooses them."""
    fitting = EMBEDDING_LOGITS // (_F32 * max(vocab, 1))
    return max(EMBEDDING_SEQUENCES, min(options.ubatch_size, fitting))
