"""How much memory a model takes when it is loaded, from its file's header.

After llama.cpp: the KV cache is `llama_kv_cache` (cells times the width of keys and values of each
layer, in f16), the output buffer `llama_context::output_reserve`, and the compute buffer what
`graph_reserve` needs for a full micro-batch: the inputs, and the larger of a layer (rows of the
feed-forward, a mask of attention) and the logits. Weights are the tensors as they lie in the file.
"""

from dataclasses import dataclass, replace

from .gguf_header import GgufHeader

MICRO_BATCH = 512
"""Tokens of a step; as the engine opens its context."""

SCORED_ROWS = 64
"""Rows of logits for prompt tokens, as the engine asks for."""

CELL_BLOCK = 256
"""llama.cpp rounds the number of cells up to whole blocks of this."""

PROCESS = 160 * 2**20
"""Bytes of an engine process without a model: Python, its libraries, the grammars' tokenizer."""

EMBEDDING_CHUNK = 512
"""Most tokens of a step of the context that embeds, and the sequences it has room for at least."""
EMBEDDING_SEQUENCES = 16
EMBEDDING_LOGITS = 64 * 2**20
"""Bytes of logits that such a step may have."""

_F16, _F32 = 2, 4
_EMBEDDING_ROWS = 6
"""Rows of the model's width that a layer holds at once, besides those of the feed-forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """All in bytes. `embeddings` is the second context, which vectors come from.

    `host_cache` is what prefixes may take that have left the cache.
    """

    weights: int
    cache: int
    compute: int
    embeddings: int = 0
    host_cache: int = 0
    process: int = PROCESS
    num_layers: int = 0

    @property
    def total(self) -> int:
        """Of all memories together."""
        return self._near_weights + self.host_cache + self.process

    def on_gpus(self, gpu_layers: int) -> int:
        """What of it GPUs hold with so many layers on them; below 0: all, and the output."""
        num_parts = self.num_layers + 1
        share = num_parts if gpu_layers < 0 else min(gpu_layers, num_parts)
        return self._near_weights * share // num_parts

    @property
    def _near_weights(self) -> int:
        return self.weights + self.cache + self.compute + self.embeddings


def estimate(
    header: GgufHeader,
    *,
    file_bytes: int,
    slots: int,
    num_cells: int,
    max_draft: int = 0,
    longest_input: int = 0,
    host_cache: int = 0,
) -> MemoryEstimate | None:
    """Of a model whose files have `file_bytes`; `None` where the header leaves too much open.

    `num_cells` of the KV cache are shared by `slots`; each slot drafts `max_draft` tokens. Inputs
    of up to `longest_input` tokens are embedded; 0: none are.
    """
    num_layers = header.number("block_count")
    width = header.number("embedding_length")
    heads = header.number("attention.head_count") or 1
    if num_layers is None or width is None or not 0 < num_layers <= 4096 or width <= 0:
        return None
    kv_heads = header.numbers("attention.head_count_kv", num_layers) or [heads] * num_layers
    keys = header.number("attention.key_length") or width // heads
    values = header.number("attention.value_length") or width // heads
    cells = _whole_blocks(num_cells)
    cell = sum(kv_heads) * (keys + values) * _F16
    rows = slots * (1 + max_draft) + max(SCORED_ROWS, slots)
    feed_forward = max(header.numbers("feed_forward_length", num_layers) or [4 * width])
    vocab = header.lengths.get("tokenizer.ggml.tokens") or header.number("vocab_size") or 0
    layer = MICRO_BATCH * ((2 * feed_forward + _EMBEDDING_ROWS * width) * _F32 + cells * _F16)
    inputs = MICRO_BATCH * width * _F32
    outputs = (slots + 1) * vocab * _F32
    embeddings = 0
    if longest_input:
        chunk = _chunk(vocab)
        rows_of_chunk = chunk * (vocab + width + 2 * feed_forward) * _F32
        embeddings = cell * _whole_blocks(longest_input + chunk) + rows_of_chunk
    return MemoryEstimate(
        weights=max(0, file_bytes - header.data_offset),
        cache=cell * cells,
        compute=max(layer, rows * vocab * _F32) + inputs + outputs,
        embeddings=embeddings,
        host_cache=host_cache,
        num_layers=num_layers,
    )


def with_draft(
    found: MemoryEstimate, header: GgufHeader, *, file_bytes: int, slots: int, num_cells: int
) -> MemoryEstimate | None:
    """`found` and a draft model beside it, whose cache has `num_cells`; `None` as `estimate`."""
    draft = estimate(header, file_bytes=file_bytes, slots=slots, num_cells=num_cells)
    if draft is None:
        return None
    return replace(
        found,
        weights=found.weights + draft.weights,
        cache=found.cache + draft.cache,
        compute=found.compute + draft.compute,
    )


def _whole_blocks(num_cells: int) -> int:
    return -(-num_cells // CELL_BLOCK) * CELL_BLOCK


def _chunk(vocab: int) -> int:
    """Tokens of a step that embeds, as the engine chooses it."""
    fitting = EMBEDDING_LOGITS // (_F32 * max(vocab, 1))
    return max(EMBEDDING_SEQUENCES, min(EMBEDDING_CHUNK, fitting))
