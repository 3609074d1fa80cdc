"""The shape of each layer of a model: bytes of weights, of experts, and of its cache.

The shape is computed from GGUF headers alone, as in llama.cpp. A layer's cells have the keys and
values of its heads (grouped heads, one number per layer). With multi-head latent attention they
have only the compressed keys. A layer with a sliding window needs cells only for windows. A
recurrent layer has rows of state and no cells.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..engine.llama.cells.recurrent_rows import row_bytes
from .header import GgufHeader

_LAYER = re.compile(r"blk\.(\d{1,6})\.(.+)", re.ASCII)
_EXPERTS = re.compile(r"ffn_(up|down|gate|gate_up)_exps\b", re.ASCII)

_WINDOW_PERIODS = {
    "cohere2": 4,
    "exaone4": 4,
    "gemma2": 2,
    "gemma3": 6,
    "gpt-oss": 2,
    "llama4": 4,
    "olmo2": 4,
}
"""For files without a pattern: each n-th layer attends to everything, other layers to a window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerShape:
    """One layer. `dense` and `experts` are bytes of weights; `experts` belong to a mixture.

    A cell has `keys` and `values` elements. `state` is the size of one recurrent state in bytes.
    """

    dense: int
    experts: int = 0
    keys: int = 0
    values: int = 0
    state: int = 0
    has_window: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of a model. `output` is the size of the weights after the layers, in bytes.

    `window` is 0 without a sliding window. `inner` is the width of the input of recurrent states.
    `vocab` is the number of tokens, 0 if unknown.
    """

    layers: tuple[LayerShape, ...]
    output: int
    width: int
    heads: int
    feed_forward: int
    vocab: int
    inner: int = 0
    window: int = 0


def shape_of(header: GgufHeader, sizes: Mapping[str, int]) -> ModelShape | None:
    """Return the shape of a model whose tensors have `sizes`; `None` without enough information.

    `header` is the header of the first file.
    """
    num_layers = header.number("block_count")
    width = header.number("embedding_length")
    if num_layers is None or width is None or not 0 < num_layers <= 4096 or width <= 0:
        return None
    dense, experts = [0] * num_layers, [0] * num_layers
    embedding = output = 0
    for name, size in sizes.items():
        match = _LAYER.fullmatch(name)
        if match and int(match[1]) < num_layers:
            of_kind = experts if _EXPERTS.match(match[2]) else dense
            of_kind[int(match[1])] += size
        elif name.startswith("token_embd"):
            embedding += size
        else:
            output += size
    if "output.weight" not in sizes:  # the output takes the embeddings, a copy of them on a GPU
        output += embedding
    cells = _cells(header, num_layers, width)
    windows = _windows(header, num_layers)
    has_cells, has_state = _kinds(header, cells)
    state = row_bytes(header.number) // num_layers
    layers = []
    for layer, (keys, values) in enumerate(cells):
        layers.append(
            LayerShape(
                dense=dense[layer],
                experts=experts[layer],
                keys=keys if has_cells[layer] else 0,
                values=values if has_cells[layer] else 0,
                state=state if has_state[layer] else 0,
                has_window=windows[layer],
            )
        )
    window = max(0, header.number("attention.sliding_window") or 0)
    return ModelShape(
        layers=tuple(layers),
        output=output,
        width=width,
        heads=header.number("attention.head_count") or 1,
        feed_forward=max(header.numbers("feed_forward_length", num_layers) or [4 * width]),
        vocab=header.lengths.get("tokenizer.ggml.tokens") or header.number("vocab_size") or 0,
        inner=header.number("ssm.inner_size") or 0,
        window=window,
    )


def _cells(header: GgufHeader, num_layers: int, width: int) -> list[tuple[int, int]]:
    """Return the elements of keys and of values in a cell of each layer."""
    heads = header.numbers("attention.head_count", num_layers) or [1] * num_layers
    kv_heads = header.numbers("attention.head_count_kv", num_layers) or heads
    most = max(*heads, 1)
    keys = header.number("attention.key_length") or width // most
    values = header.number("attention.value_length") or width // most
    if header.number("attention.key_length_mla") is not None:
        return [(keys, 0)] * num_layers
    return [(max(0, count) * keys, max(0, count) * values) for count in kv_heads]


def _windows(header: GgufHeader, num_layers: int) -> list[bool]:
    """Return, per layer, whether it has a sliding window."""
    if not header.number("attention.sliding_window"):
        return [False] * num_layers
    pattern = header.metadata.get(f"{header.architecture}.attention.sliding_window_pattern")
    if isinstance(pattern, tuple) and len(pattern) >= num_layers:
        return [bool(each) for each in pattern[:num_layers]]
    period = pattern if isinstance(pattern, int) else _WINDOW_PERIODS.get(header.architecture)
    if not period or isinstance(pattern, bool):
        return [False] * num_layers  # or it is not known which: then it takes more
    return [layer % period < period - 1 for layer in range(num_layers)]


def _kinds(header: GgufHeader, cells: list[tuple[int, int]]) -> tuple[list[bool], list[bool]]:
    """Return, per layer, whether it has cells, and whether it has a recurrent state."""
    every, none = [True] * len(cells), [False] * len(cells)
    if not row_bytes(header.number):
        return every, none
    period = header.number("full_attention_interval")
    if period is not None and period > 0:
        attends = [(layer + 1) % period == 0 for layer in range(len(cells))]
    elif f"{header.architecture}.attention.head_count_kv" not in header.metadata:
        attends = none
    elif (0, 0) in cells:
        attends = [cell != (0, 0) for cell in cells]
    else:  # both side by side
        return every, every
    return attends, [not each for each in attends]
