"""How much memory a model takes when it is loaded, from its file's header.

After llama.cpp: the KV cache is `llama_kv_cache` (cells times the width of keys and values of each
layer, in f16) and rows of recurrent state for the slots, the spare one and as many checkpoints
(further ones count with the host cache), each with a further state for every token that may be
drafted, the output buffer `llama_context::output_reserve`, and the compute buffer what
`graph_reserve` needs for a full micro-batch: the inputs, and the larger of a layer (rows of the
feed-forward, a mask of attention) and the logits. Weights are the tensors as they lie in the file.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from ...shared.models.engine_options import NO_DEVICE, cache_bytes
from ..engine.llama.cells.layout import choose_layout
from ..engine.llama.cells.recurrent_rows import row_bytes
from ..engine.load_options import LoadOptions
from .header import GgufHeader, read_header

SCORED_ROWS = 64
"""Rows of logits for prompt tokens, as the engine asks for."""

CELL_BLOCK = 256
"""llama.cpp rounds the number of cells up to whole blocks of this."""

PROCESS = 160 * 2**20
"""Bytes of an engine process without a model: Python, its libraries, the grammars' tokenizer."""

EMBEDDING_SEQUENCES = 16
"""The sequences that the context that embeds has room for; a step of it has no fewer tokens."""
EMBEDDING_LOGITS = 64 * 2**20
"""Bytes of logits that such a step may have."""

_F16, _F32 = 2, 4
_EMBEDDING_ROWS = 6
"""Rows of the model's width that a layer holds at once, besides those of the feed-forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """All in bytes. `embeddings` is the second context, which vectors come from.

    `host_cache` is what prefixes may take that have left the cache. The experts of a layer have
    `layer_experts` of the weights, but for those of the first `num_dense` layers, which have none.
    """

    weights: int
    cache: int
    compute: int
    embeddings: int = 0
    host_cache: int = 0
    process: int = PROCESS
    num_layers: int = 0
    layer_experts: int = 0
    num_dense: int = 0

    @property
    def total(self) -> int:
        """The bytes of all memories together."""
        return self._near_weights + self.host_cache + self.process

    def on_gpus(self, options: LoadOptions) -> int | None:
        """The bytes that GPUs hold; `None` where patterns decide, or what fits."""
        gpu_layers = options.gpu_layers
        if gpu_layers == "auto" or options.override_tensor is not None:
            return None
        num_parts = self.num_layers + 1  # the output is one, too
        share = num_parts if gpu_layers < 0 else min(gpu_layers, num_parts)
        if options.device == NO_DEVICE:
            share = 0
        num_bytes = self._near_weights - (0 if options.kv_offload else self.cache)
        return num_bytes * share // num_parts - self._experts_on_host(options, num_parts - share)

    def _experts_on_host(self, options: LoadOptions, first: int) -> int:
        """Bytes of experts that stay, of layers from `first` on, which are the offloaded ones."""
        last = min(options.n_cpu_moe, self.num_layers)
        return self.layer_experts * max(0, last - max(first, self.num_dense))

    @property
    def _near_weights(self) -> int:
        return self.weights + self.cache + self.compute + self.embeddings


@dataclass(frozen=True, slots=True)
class DraftFile:
    """The file of a draft model: its header, and how many bytes it has."""

    header: GgufHeader
    num_bytes: int


def estimate(
    header: GgufHeader, options: LoadOptions, *, file_bytes: int, draft: DraftFile | None = None
) -> MemoryEstimate | None:
    """What a model takes whose files have `file_bytes`, loaded with `options`.

    `draft` is the file of their draft model. `None` where a header leaves too much open. Raises
    `ModelError` where `options` cannot be had.
    """
    layout = choose_layout(options, can_share=True, is_offloaded=False)
    found = _alone(header, options, file_bytes=file_bytes, num_cells=layout.num_cells)
    if found is None or draft is None:
        return found
    beside = estimate_draft(draft, options)
    if beside is None:
        return None
    return replace(
        found,
        weights=found.weights + beside.weights,
        cache=found.cache + beside.cache,
        compute=found.compute + beside.compute,
    )


def draft_file(path: Path) -> DraftFile:
    """The draft model at `path`. Raises `HeaderError` and `OSError`."""
    with path.open("rb") as file:
        return DraftFile(read_header(file), path.stat().st_size)


def estimate_draft(draft: DraftFile, options: LoadOptions) -> MemoryEstimate | None:
    """What a draft model takes beside a model with `options`; `None` as above."""
    num_cells = min(options.num_cells, options.slots * options.slot_tokens)
    return _alone(draft.header, options.for_draft, file_bytes=draft.num_bytes, num_cells=num_cells)


def _alone(
    header: GgufHeader, options: LoadOptions, *, file_bytes: int, num_cells: int
) -> MemoryEstimate | None:
    num_layers = header.number("block_count")
    width = header.number("embedding_length")
    heads = header.number("attention.head_count") or 1
    if num_layers is None or width is None or not 0 < num_layers <= 4096 or width <= 0:
        return None
    kv_heads = header.numbers("attention.head_count_kv", num_layers) or [heads] * num_layers
    keys = header.number("attention.key_length") or width // heads
    values = header.number("attention.value_length") or width // heads
    cells = _whole_blocks(num_cells)
    cell = sum(
        cache_bytes(each * keys, options.cache_type_k)
        + cache_bytes(each * values, options.cache_type_v)
        for each in kv_heads
    )
    num_states = (2 * options.slots + 1) * (1 + options.max_draft)
    rows = options.slots * (1 + options.max_draft) + max(SCORED_ROWS, options.slots)
    feed_forward = max(header.numbers("feed_forward_length", num_layers) or [4 * width])
    vocab = header.lengths.get("tokenizer.ggml.tokens") or header.number("vocab_size") or 0
    tokens = options.ubatch_size
    layer = tokens * ((2 * feed_forward + _EMBEDDING_ROWS * width) * _F32 + cells * _F16)
    # A mask of the windows beside that of all cells, and what goes into recurrent states.
    layer += tokens * cells * _F16 * bool(header.number("attention.sliding_window"))
    layer += tokens * 2 * (header.number("ssm.inner_size") or 0) * _F32
    if options.flash_attn == "off":
        # Of each token to each cell a number for each head, and a mask of full precision.
        layer += tokens * cells * (heads * _F32 + _F32 - _F16)
    inputs = tokens * width * _F32
    outputs = (options.slots + 1) * vocab * _F32
    chunk = _chunk(vocab, options)
    rows_of_chunk = chunk * (vocab + width + 2 * feed_forward) * _F32
    weights = max(0, file_bytes - header.data_offset)
    return MemoryEstimate(
        weights=weights,
        cache=cell * cells + row_bytes(header.number) * num_states,
        compute=max(layer, rows * vocab * _F32) + inputs + outputs,
        embeddings=cell * _whole_blocks(options.slot_tokens + chunk) + rows_of_chunk,
        host_cache=options.host_cache,
        num_layers=num_layers,
        layer_experts=int(weights * _share_of_experts(header, vocab)),
        num_dense=header.number("leading_dense_block_count") or 0,
    )


def _share_of_experts(header: GgufHeader, vocab: int) -> float:
    """The share of a layer's experts in all weights, as the shapes of the usual matrices say."""
    number = header.number
    count = number("expert_count") or 0
    width = number("embedding_length") or 0
    hidden = number("expert_feed_forward_length") or number("feed_forward_length") or 0
    if not count or not hidden:
        return 0.0
    heads = number("attention.head_count") or 1
    kv_heads = number("attention.head_count_kv") or heads
    keys = number("attention.key_length") or width // heads
    values = number("attention.value_length") or width // heads
    num_layers, num_dense = number("block_count") or 1, number("leading_dense_block_count") or 0
    experts = 3 * count * hidden * width
    shared = 3 * (number("expert_shared_count") or 0) * hidden * width
    attention = width * (heads + kv_heads) * (keys + values)
    dense = 3 * (number("feed_forward_length") or 0) * width
    num_all = 2 * vocab * width + num_layers * attention + num_dense * dense
    return experts / (num_all + (num_layers - num_dense) * (experts + shared))


def _whole_blocks(num_cells: int) -> int:
    return -(-num_cells // CELL_BLOCK) * CELL_BLOCK


def _chunk(vocab: int, options: LoadOptions) -> int:
    """Tokens of a step that embeds, as the engine chooses it."""
    fitting = EMBEDDING_LOGITS // (_F32 * max(vocab, 1))
    return max(EMBEDDING_SEQUENCES, min(options.ubatch_size, fitting))
