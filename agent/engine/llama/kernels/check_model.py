"""A small quantised model with random weights, for checking kernels: a GGUF file as bytes.

The file format is GGUF 3 (ggml/docs/gguf.md in llama.cpp's sources); the blocks are those of
ggml-common.h. Random bytes are valid blocks as long as their scales are sane, so nothing has to be
quantised.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

VOCAB_SIZE = 512

_WIDTH = 256
"""A row of a K-quantised matrix has whole blocks of 256 weights."""

_FEED_FORWARD = 512
_HEADS = 4
_KV_HEADS = 2
_HEAD_SIZE = _WIDTH // _HEADS
_CONTEXT = 256
_ALIGNMENT = 32
_SEED = 1

_UINT32, _FLOAT32, _STRING = 4, 6, 8
"""GGUF's numbers for the types of values."""


@dataclass(frozen=True, slots=True)
class _Format:
    """A type of weights: ggml's number, weights a block, bytes a block, where its scales stand.

    `scales` are offsets of 16-bit floats. `spread` is about how large a weight is, in scales.
    """

    number: int
    weights: int
    bytes: int
    scales: tuple[int, ...]
    spread: float


_F32 = _Format(0, 1, 4, (), 1.0)
_Q4_0 = _Format(2, 32, 18, (0,), 4.6)
_Q8_0 = _Format(8, 32, 34, (0,), 74.0)
_Q4_K = _Format(12, 256, 144, (0,), 290.0)
_Q6_K = _Format(14, 256, 210, (208,), 1360.0)

_MIXES = ((_Q8_0, _Q4_K), (_Q4_0, _Q6_K))
"""The types that the matrices of a layer have in turn."""


def check_model() -> bytes:
    """The file. Its matrices are Q8_0, Q4_K, Q4_0 and Q6_K, and it has no tokenizer."""
    draw = np.random.default_rng(_SEED)
    infos, data = [], bytearray()
    for name, shape, kind in _tensors():
        infos.append(_tensor_info(name, shape, kind, len(data)))
        data += _weights(draw, shape, kind)
        data += bytes(-len(data) % _ALIGNMENT)
    values = [*_values()]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(values))
    head += b"".join(values) + b"".join(infos)
    return head + bytes(-len(head) % _ALIGNMENT) + bytes(data)


def _values() -> Iterator[bytes]:
    def number(key: str, value: int) -> bytes:
        return _string(f"llama.{key}") + struct.pack("<II", _UINT32, value)

    yield _text("general.architecture", "llama")
    yield _text("general.name", "kernel check")
    yield _text("tokenizer.ggml.model", "no_vocab")
    yield number("vocab_size", VOCAB_SIZE)
    yield number("context_length", _CONTEXT)
    yield number("embedding_length", _WIDTH)
    yield number("block_count", len(_MIXES))
    yield number("feed_forward_length", _FEED_FORWARD)
    yield number("attention.head_count", _HEADS)
    yield number("attention.head_count_kv", _KV_HEADS)
    yield number("rope.dimension_count", _HEAD_SIZE)
    epsilon = _string("llama.attention.layer_norm_rms_epsilon")
    yield epsilon + struct.pack("<If", _FLOAT32, 1e-5)


def _tensors() -> Iterator[tuple[str, tuple[int, ...], _Format]]:
    """Names, shapes with the length of a row first, and types."""
    yield "token_embd.weight", (_WIDTH, VOCAB_SIZE), _Q8_0
    yield "output_norm.weight", (_WIDTH,), _F32
    yield "output.weight", (_WIDTH, VOCAB_SIZE), _Q6_K
    keys = _KV_HEADS * _HEAD_SIZE
    for layer, (one, other) in enumerate(_MIXES):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (_WIDTH,), _F32
        yield f"{block}.ffn_norm.weight", (_WIDTH,), _F32
        yield f"{block}.attn_q.weight", (_WIDTH, _WIDTH), one
        yield f"{block}.attn_k.weight", (_WIDTH, keys), other
        yield f"{block}.attn_v.weight", (_WIDTH, keys), one
        yield f"{block}.attn_output.weight", (_WIDTH, _WIDTH), other
        yield f"{block}.ffn_gate.weight", (_WIDTH, _FEED_FORWARD), one
        yield f"{block}.ffn_up.weight", (_WIDTH, _FEED_FORWARD), other
        yield f"{block}.ffn_down.weight", (_FEED_FORWARD, _WIDTH), one


def _weights(draw: np.random.Generator, shape: tuple[int, ...], kind: _Format) -> bytes:
    """Norms are ones. A matrix is random blocks, scaled so that its rows have length one or so."""
    size = int(np.prod(shape))
    if kind is _F32:
        return np.ones(size, np.float32).tobytes()
    blocks: NDArray[np.uint8] = draw.integers(
        0, 256, (size // kind.weights, kind.bytes), dtype=np.uint8
    )
    scale = np.array([1 / (kind.spread * shape[0] ** 0.5)], np.float16).view(np.uint8)
    for offset in kind.scales:
        blocks[:, offset : offset + 2] = scale
    if kind is _Q4_K:
        # The second scale is that of the minimum, which takes the weights back to around zero.
        minimum = np.array([7.5 / (kind.spread * shape[0] ** 0.5)], np.float16).view(np.uint8)
        blocks[:, 2:4] = minimum
    return blocks.tobytes()


def _tensor_info(name: str, shape: tuple[int, ...], kind: _Format, offset: int) -> bytes:
    dimensions = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return _string(name) + dimensions + struct.pack("<IQ", kind.number, offset)


def _text(key: str, value: str) -> bytes:
    return _string(key) + struct.pack("<I", _STRING) + _string(value)


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
