"""Makes the models of `bench.models` where they are missing: `python -m bench.make_model [NAME …]`.

The weights are random, from a fixed seed, so a model says nothing sensible, but costs what a real
one of its shape costs. It may choose an end-of-generation token by chance: benchmarks ask
with `ignore_eos`.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from gguf.quants import quantize
from numpy.typing import NDArray

from bench.harness import Flags
from bench.models import LARGE, SHAPES, Shape, shape_named
from bench.small_models import copy_fields, finish
from bench.source import llama_cpp_source

_SEED = 1
_QUANTS = gguf.GGMLQuantizationType.Q8_0
_NORM_EPSILON = 1e-6
_ROPE_BASE = 1e6
_EMBEDDINGS = "token_embd"


def make(shape: Shape) -> None:
    """Writes the model, whole or not at all."""
    shape.path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = shape.path.with_suffix(".part")
    writer = gguf.GGUFWriter(unfinished, shape.architecture)
    _describe(writer, shape)
    tokenizer = llama_cpp_source() / "models" / f"ggml-vocab-{shape.tokenizer}.gguf"
    copy_fields(writer, gguf.GGUFReader(tokenizer), lambda name: name.startswith("tokenizer."))
    _add_tensors(writer, shape, silent=~_are_whole(tokenizer, shape.vocabulary))
    finish(writer)
    unfinished.rename(shape.path)


def _describe(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_name(f"{shape.name}, random weights")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context)
    writer.add_block_count(shape.layers)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_size)
    writer.add_value_length(shape.head_size)
    writer.add_rope_dimension_count(shape.head_size)
    writer.add_rope_freq_base(_ROPE_BASE)
    writer.add_layer_norm_rms_eps(_NORM_EPSILON)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.experts:
        writer.add_expert_count(shape.experts)
        writer.add_expert_used_count(shape.experts_used)
        writer.add_expert_feed_forward_length(shape.feed_forward)


def _are_whole(tokenizer: Path, num_tokens: int) -> NDArray[np.bool_]:
    """Which tokens stand for whole characters."""
    vocabulary = llama_cpp.Llama(str(tokenizer), vocab_only=True, verbose=False)
    texts = (vocabulary.detokenize([token]) for token in range(vocabulary.n_vocab()))
    whole = np.fromiter(map(_is_whole, texts), bool)
    return np.pad(whole, (0, num_tokens - whole.size))


def _is_whole(text: bytes) -> bool:
    try:
        return bool(text.decode())
    except UnicodeDecodeError:
        return False


def _add_tensors(writer: gguf.GGUFWriter, shape: Shape, *, silent: NDArray[np.bool_]) -> None:
    """The logits of tokens that are `silent` are 0, which is never the highest."""
    draw = np.random.default_rng(_SEED)
    drawn: dict[str, NDArray[np.uint8]] = {}
    for name, *size in _matrices(shape):
        kind = name.rpartition(".")[2] if shape.layers_alike else name
        if (quants := drawn.get(kind)) is None:
            weights = draw.standard_normal(size, np.float32) / np.float32(size[-1] ** 0.5)
            if name == _EMBEDDINGS:
                weights[silent] = 0
            quants = quantize(weights, _QUANTS)
            if shape.layers_alike:
                drawn[kind] = quants
        writer.add_tensor(f"{name}.weight", quants, raw_dtype=_QUANTS)
    for name, size in _norms(shape):
        writer.add_tensor(f"{name}.weight", np.ones(size, np.float32))


def _matrices(shape: Shape) -> Iterator[tuple[str, *tuple[int, ...]]]:
    """Name, outputs and inputs of every matrix; the embeddings serve as output matrix too.

    Matrices of experts have the number of experts first.
    """
    queries, keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    yield _EMBEDDINGS, shape.vocabulary, shape.width
    for block in (f"blk.{layer}" for layer in range(shape.layers)):
        yield f"{block}.attn_q", queries, shape.width
        yield f"{block}.attn_k", keys, shape.width
        yield f"{block}.attn_v", keys, shape.width
        yield f"{block}.attn_output", shape.width, queries
        each, experts = ("_exps", (shape.experts,)) if shape.experts else ("", ())
        if experts:
            yield f"{block}.ffn_gate_inp", shape.experts, shape.width
        yield f"{block}.ffn_gate{each}", *experts, shape.feed_forward, shape.width
        yield f"{block}.ffn_up{each}", *experts, shape.feed_forward, shape.width
        yield f"{block}.ffn_down{each}", *experts, shape.width, shape.feed_forward


def _norms(shape: Shape) -> Iterator[tuple[str, int]]:
    yield "output_norm", shape.width
    for block in (f"blk.{layer}" for layer in range(shape.layers)):
        yield f"{block}.attn_norm", shape.width
        yield f"{block}.ffn_norm", shape.width
        if shape.architecture != "llama":
            yield f"{block}.attn_q_norm", shape.head_size
            yield f"{block}.attn_k_norm", shape.head_size
        if shape.architecture == "gemma3":
            yield f"{block}.post_attention_norm", shape.width
            yield f"{block}.post_ffw_norm", shape.width


def main() -> None:
    flags = Flags("make_model", __doc__)
    known = ", ".join(SHAPES | LARGE)
    flags.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {known}, or q8b/16: a small one"
    )
    names = flags.parse_args().names or list(SHAPES)
    try:
        shapes = [shape_named(name) for name in names]
    except KeyError as error:
        flags.error(f"there is no model {error.args[0]}; choose from {known}")
    for shape in shapes:
        if not shape.path.is_file():
            started = time.perf_counter()
            make(shape)
            print(f"made {shape.name} in {time.perf_counter() - started:.0f} s", flush=True)
        print(f"{shape.path}: {shape.path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
