"""Small models of several architectures, with random weights: the kinds of memory that exist.

Each has a few megabytes and is written in about a second, always the same from the same seed. The
vocabulary and the chat template are the demo model's. Only tokens of a space and a word are ever
chosen, so an answer that is sent back becomes the tokens that it was.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

_DEMO = Path(__file__).parents[1] / "demo" / "arriero-demo.gguf"

WINDOW = 64
"""Positions that layers with a sliding window look back."""

_SEED = 5
_CONTEXT = 32768
_WIDTH, _LAYERS, _FEED_FORWARD = 128, 4, 256
_HEADS, _KV_HEADS, _HEAD = 2, 1, 64
_EXPERTS, _EXPERTS_USED, _EXPERT = 4, 2, 64
_INNER, _STATE, _KERNEL, _GROUPS, _SSM_HEADS = 256, 16, 4, 1, 4
_Q_RANK, _KV_RANK, _ROPE, _NOPE = 64, 64, 32, 32

Shapes = Iterator[tuple[str, tuple[int, ...]]]
"""Names of tensors, and their dimensions as NumPy has them."""

Field = tuple[str, Any, gguf.GGUFValueType, gguf.GGUFValueType | None]
"""A field's name, its contents, its type, and that of its items."""

_TOKENS = "tokenizer.ggml.tokens"


@dataclass(frozen=True, slots=True)
class Architecture:
    """`tensors` are those of a layer, by its number; `fields` describe the whole.

    In what `is_faint` a layer adds little to what comes in, so that the last token decides: all
    such models say much the same.
    """

    name: str
    fields: Mapping[str, Any]
    tensors: Callable[[int], Shapes]
    output_norm: str = "output_norm.weight"
    num_layers: int = _LAYERS
    is_faint: bool = False


def write(name: str, path: Path, *, has_mtp: bool = False, is_faint: bool = False) -> Path:
    """Writes the model of that architecture, one of `ARCHITECTURES`, or of `MTP`."""
    architecture = (MTP if has_mtp else ARCHITECTURES)[name]
    is_faint = is_faint or architecture.is_faint
    writer = gguf.GGUFWriter(path, architecture.name)
    vocabulary = _add_vocabulary(writer)
    for key, value in (_COMMON | architecture.fields).items():
        _add(writer, f"{architecture.name}.{key}", value)
    _add_tensors(writer, architecture, vocabulary, is_faint=is_faint)
    finish(writer)
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    match value:
        case bool():
            writer.add_bool(key, value)
        case int():
            writer.add_uint32(key, value)
        case float():
            writer.add_float32(key, value)
        case _:
            writer.add_array(key, value)


def _add_vocabulary(writer: gguf.GGUFWriter) -> list[str]:
    """The demo model's, with its template; the answer is its tokens."""
    for each in _vocabulary():
        writer.add_key_value(*each)
    tokens: list[str] = next(each[1] for each in _vocabulary() if each[0] == _TOKENS)
    return tokens


@cache
def _vocabulary() -> tuple[Field, ...]:
    """The demo model's. Reading it takes longer than writing a model."""
    return tuple(_fields(gguf.GGUFReader(_DEMO), lambda name: name.startswith("tokenizer.")))


def copy_fields(
    writer: gguf.GGUFWriter, reader: gguf.GGUFReader, is_wanted: Callable[[str], bool]
) -> None:
    """Writes the fields of another file whose names are wanted."""
    for each in _fields(reader, is_wanted):
        writer.add_key_value(*each)


def _fields(reader: gguf.GGUFReader, is_wanted: Callable[[str], bool]) -> Iterator[Field]:
    for name, field in reader.fields.items():
        if is_wanted(name):
            kind, *inner = field.types
            yield name, field.contents(), kind, inner[-1] if inner else None


def finish(writer: gguf.GGUFWriter) -> None:
    """Writes all that was added, and closes the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensors(
    writer: gguf.GGUFWriter, architecture: Architecture, vocabulary: list[str], *, is_faint: bool
) -> None:
    draw = np.random.default_rng(_SEED)
    for name, shape in _all_tensors(architecture, len(vocabulary)):
        weights = _weights(name, shape, draw)
        if is_faint and name.endswith(_LAST_OF_A_LAYER):
            weights *= np.float32(_FAINT)
        if name.endswith("nextn.enorm.weight"):
            weights[:] = 1
        if name.endswith("nextn.eh_proj.weight"):  # the token, and a little of the hidden state
            weights[:] = np.eye(*shape) + _FAINT * np.eye(*shape, k=_WIDTH)
        if name == "output.weight":
            weights[[not _is_word(token) for token in vocabulary]] = 0
        writer.add_tensor(name, weights)


def _all_tensors(architecture: Architecture, num_tokens: int) -> Shapes:
    yield "token_embd.weight", (num_tokens, _WIDTH)
    yield "output.weight", (num_tokens, _WIDTH)
    yield architecture.output_norm, (_WIDTH,)
    for layer in range(architecture.num_layers):
        for name, shape in architecture.tensors(layer):
            yield f"blk.{layer}.{name}", shape


def _weights(name: str, shape: tuple[int, ...], draw: np.random.Generator) -> NDArray[np.float32]:
    """Norms are about 1, decays slow; what else there is keeps the size of its inputs."""
    if name.endswith("norm.weight"):
        return 1 + 0.1 * draw.standard_normal(shape, np.float32)
    if name.endswith("ssm_a"):
        return -draw.uniform(0.001, 0.02, shape).astype(np.float32)
    if name.endswith((".bias", "ssm_d")):
        return 0.1 * draw.standard_normal(shape, np.float32)
    size = 1.0 if name == "token_embd.weight" else shape[-1] ** -0.5
    return np.float32(size) * draw.standard_normal(shape, np.float32)


def _is_word(token: str) -> bool:
    return token.startswith("\u0120") and token[1:].isascii() and token[1:].isalpha()


# ---- layers


def _attention(*, norms: bool = False, queries: int = _HEADS * _HEAD) -> Shapes:
    yield "attn_q.weight", (queries, _WIDTH)
    yield "attn_k.weight", (_KV_HEADS * _HEAD, _WIDTH)
    yield "attn_v.weight", (_KV_HEADS * _HEAD, _WIDTH)
    yield "attn_output.weight", (_WIDTH, _HEADS * _HEAD)
    if norms:
        yield "attn_q_norm.weight", (_HEAD,)
        yield "attn_k_norm.weight", (_HEAD,)


def _feed_forward() -> Shapes:
    yield "ffn_gate.weight", (_FEED_FORWARD, _WIDTH)
    yield "ffn_up.weight", (_FEED_FORWARD, _WIDTH)
    yield "ffn_down.weight", (_WIDTH, _FEED_FORWARD)


def _experts(size: int = _EXPERT) -> Shapes:
    yield "ffn_gate_inp.weight", (_EXPERTS, _WIDTH)
    yield "ffn_gate_exps.weight", (_EXPERTS, size, _WIDTH)
    yield "ffn_up_exps.weight", (_EXPERTS, size, _WIDTH)
    yield "ffn_down_exps.weight", (_EXPERTS, _WIDTH, size)


def _shared_expert() -> Shapes:
    yield "ffn_gate_shexp.weight", (_EXPERT, _WIDTH)
    yield "ffn_up_shexp.weight", (_EXPERT, _WIDTH)
    yield "ffn_down_shexp.weight", (_WIDTH, _EXPERT)


def _mamba2() -> Shapes:
    conv = _INNER + 2 * _GROUPS * _STATE
    yield "ssm_in.weight", (_INNER + conv + _SSM_HEADS, _WIDTH)
    yield "ssm_conv1d.weight", (conv, _KERNEL)
    yield "ssm_conv1d.bias", (conv,)
    yield "ssm_dt.bias", (_SSM_HEADS,)
    yield "ssm_a", (_SSM_HEADS, 1)
    yield "ssm_d", (_SSM_HEADS, 1)
    yield "ssm_norm.weight", (_GROUPS, _INNER // _GROUPS)
    yield "ssm_out.weight", (_WIDTH, _INNER)


def _delta_net() -> Shapes:
    value = _SSM_HEADS * _STATE
    conv = 2 * _DELTA_GROUPS * _STATE + value
    yield "attn_qkv.weight", (conv, _WIDTH)
    yield "attn_gate.weight", (value, _WIDTH)
    yield "ssm_conv1d.weight", (conv, _KERNEL)
    yield "ssm_dt.bias", (_SSM_HEADS,)
    yield "ssm_a", (_SSM_HEADS,)
    yield "ssm_beta.weight", (_SSM_HEADS, _WIDTH)
    yield "ssm_alpha.weight", (_SSM_HEADS, _WIDTH)
    yield "ssm_norm.weight", (_STATE,)
    yield "ssm_out.weight", (_WIDTH, value)


_DELTA_GROUPS = 2

_LAST_OF_A_LAYER = (
    *("attn_output.weight", "ssm_out.weight"),
    *("ffn_down.weight", "ffn_down_exps.weight", "ffn_down_shexp.weight"),
)
_FAINT = 0.05

# ---- architectures


def _qwen3(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield from _attention(norms=True)
    yield "ffn_norm.weight", (_WIDTH,)
    yield from _feed_forward()


def _qwen3moe(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield from _attention(norms=True)
    yield "ffn_norm.weight", (_WIDTH,)
    yield from _experts()


def _deepseek2(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield "attn_q_a.weight", (_Q_RANK, _WIDTH)
    yield "attn_q_a_norm.weight", (_Q_RANK,)
    yield "attn_q_b.weight", (_HEADS * (_NOPE + _ROPE), _Q_RANK)
    yield "attn_kv_a_mqa.weight", (_KV_RANK + _ROPE, _WIDTH)
    yield "attn_kv_a_norm.weight", (_KV_RANK,)
    yield "attn_k_b.weight", (_HEADS, _KV_RANK, _NOPE)
    yield "attn_v_b.weight", (_HEADS, _NOPE + _ROPE, _KV_RANK)
    yield "attn_output.weight", (_WIDTH, _HEADS * (_NOPE + _ROPE))
    yield "ffn_norm.weight", (_WIDTH,)
    if not layer:
        yield from _feed_forward()
        return
    yield from _experts()
    yield from _shared_expert()


def _gemma3(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield from _attention(norms=True)
    yield "post_attention_norm.weight", (_WIDTH,)
    yield "ffn_norm.weight", (_WIDTH,)
    yield from _feed_forward()
    yield "post_ffw_norm.weight", (_WIDTH,)


def _gpt_oss(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield "post_attention_norm.weight", (_WIDTH,)
    yield from _attention()
    yield "attn_q.bias", (_HEADS * _HEAD,)
    yield "attn_k.bias", (_KV_HEADS * _HEAD,)
    yield "attn_v.bias", (_KV_HEADS * _HEAD,)
    yield "attn_output.bias", (_WIDTH,)
    yield "attn_sinks.weight", (_HEADS,)
    yield from _experts()
    yield "ffn_gate_inp.bias", (_EXPERTS,)
    yield "ffn_gate_exps.bias", (_EXPERTS, _EXPERT)
    yield "ffn_up_exps.bias", (_EXPERTS, _EXPERT)
    yield "ffn_down_exps.bias", (_EXPERTS, _WIDTH)


def _qwen35(layer: int) -> Shapes:
    """The layer after the others is one for MTP."""
    yield "attn_norm.weight", (_WIDTH,)
    yield "post_attention_norm.weight", (_WIDTH,)
    is_recurrent = layer < _LAYERS and layer % 2 == 0
    yield from (
        _delta_net() if is_recurrent else _attention(norms=True, queries=2 * _HEADS * _HEAD)
    )
    yield from _feed_forward()
    if layer == _LAYERS:
        yield "nextn.eh_proj.weight", (_WIDTH, 2 * _WIDTH)
        yield "nextn.enorm.weight", (_WIDTH,)
        yield "nextn.hnorm.weight", (_WIDTH,)


def _qwen35moe(layer: int) -> Shapes:
    for name, shape in _qwen35(layer):
        if not name.startswith("ffn_"):
            yield name, shape
    yield from _experts()
    yield from _shared_expert()
    yield "ffn_gate_inp_shexp.weight", (_WIDTH,)


def _granite_hybrid(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield from _mamba2() if layer % 2 == 0 else _attention()
    yield "ffn_norm.weight", (_WIDTH,)
    yield from _feed_forward()


def _lfm2(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    if layer % 2 == 0:
        yield "shortconv.conv.weight", (_WIDTH, 3)
        yield "shortconv.in_proj.weight", (3 * _WIDTH, _WIDTH)
        yield "shortconv.out_proj.weight", (_WIDTH, _WIDTH)
    else:
        yield from _attention(norms=True)
    yield "ffn_norm.weight", (_WIDTH,)
    yield from _feed_forward()


def _pure_mamba2(layer: int) -> Shapes:
    yield "attn_norm.weight", (_WIDTH,)
    yield from _mamba2()


_COMMON: Mapping[str, Any] = {
    "context_length": _CONTEXT,
    "embedding_length": _WIDTH,
    "block_count": _LAYERS,
    "feed_forward_length": _FEED_FORWARD,
    "attention.head_count": _HEADS,
    "attention.head_count_kv": _KV_HEADS,
    "attention.key_length": _HEAD,
    "attention.value_length": _HEAD,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "rope.dimension_count": _HEAD,
    "rope.freq_base": 1e5,
}
_WINDOWS = {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": 2}
_SSM = {
    "ssm.conv_kernel": _KERNEL,
    "ssm.inner_size": _INNER,
    "ssm.state_size": _STATE,
    "ssm.time_step_rank": _SSM_HEADS,
    "ssm.group_count": _GROUPS,
}
_EXPERT_COUNTS = {
    "expert_count": _EXPERTS,
    "expert_used_count": _EXPERTS_USED,
    "expert_feed_forward_length": _EXPERT,
}
_SHARED_EXPERT = {"expert_shared_feed_forward_length": _EXPERT}
_ALL_EXPERTS = {"expert_used_count": _EXPERTS}
"""So that rounding cannot choose others."""
_EVERY_SECOND = {"attention.head_count_kv": [0, _KV_HEADS] * (_LAYERS // 2)}
_DELTA = {
    "ssm.inner_size": _SSM_HEADS * _STATE,
    "ssm.group_count": _DELTA_GROUPS,
    "full_attention_interval": 2,
    "rope.dimension_sections": [11, 11, 10, 0],
}
_MLA = {
    "attention.head_count_kv": 1,
    "attention.key_length": _KV_RANK + _ROPE,
    "attention.value_length": _KV_RANK,
    "attention.key_length_mla": _NOPE + _ROPE,
    "attention.value_length_mla": _NOPE + _ROPE,
    "attention.q_lora_rank": _Q_RANK,
    "attention.kv_lora_rank": _KV_RANK,
    "rope.dimension_count": _ROPE,
    "leading_dense_block_count": 1,
    "expert_shared_count": 1,
}
_NO_HEADS = {"attention.head_count": 0, "attention.head_count_kv": 0, "feed_forward_length": 0}

_ONE_FOR_MTP = {"block_count": _LAYERS + 1, "nextn_predict_layers": 1}

PLAIN = ("qwen3", "qwen3moe", "deepseek2")
"""Memories that can be cut anywhere."""

WINDOWED = ("gemma3", "gpt-oss")
"""Some layers look back a window only."""

RECURRENT = ("qwen35", "granitehybrid", "lfm2", "mamba2")
"""Some layers, or all, keep a state that goes on and cannot go back."""

MTP = {
    each.name: each
    for each in (
        Architecture(
            "qwen35", _SSM | _DELTA | _ONE_FOR_MTP, _qwen35, num_layers=_LAYERS + 1, is_faint=True
        ),
        Architecture(
            "qwen35moe",
            _SSM | _DELTA | _EXPERT_COUNTS | _ALL_EXPERTS | _SHARED_EXPERT | _ONE_FOR_MTP,
            _qwen35moe,
            num_layers=_LAYERS + 1,
            is_faint=True,
        ),
    )
}
"""With a layer that guesses the token after the next one, and is often right."""

ARCHITECTURES = {
    each.name: each
    for each in (
        Architecture("qwen3", {}, _qwen3),
        Architecture("qwen3moe", _EXPERT_COUNTS, _qwen3moe),
        Architecture("deepseek2", _EXPERT_COUNTS | _MLA, _deepseek2),
        Architecture("gemma3", _WINDOWS, _gemma3),
        Architecture("gpt-oss", _WINDOWS | _EXPERT_COUNTS | _ALL_EXPERTS, _gpt_oss),
        Architecture("qwen35", _SSM | _DELTA, _qwen35),
        Architecture("granitehybrid", _SSM | _EVERY_SECOND, _granite_hybrid),
        Architecture(
            "lfm2",
            _EVERY_SECOND | {"shortconv.l_cache": 3},
            _lfm2,
            output_norm="token_embd_norm.weight",
        ),
        Architecture("mamba2", _SSM | _NO_HEADS, _pure_mamba2),
    )
}
"""By name, all of them."""
