"""Writes the trained network and its tokenizer to one GGUF file, and reads the weights back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer

from demo.training.network import Llama, Shape
from demo.training.tokenizer import CONTROL_TOKENS, END_OF_TEXT, END_OF_TURN, VISIBLE_TOKENS

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]

NAMES = {
    "attention_norm": "attn_norm",
    "attention.q": "attn_q",
    "attention.k": "attn_k",
    "attention.v": "attn_v",
    "attention.out": "attn_output",
    "feed_forward_norm": "ffn_norm",
    "feed_forward.gate": "ffn_gate",
    "feed_forward.up": "ffn_up",
    "feed_forward.down": "ffn_down",
}
"""The names of a layer's weights here, with their names in llama.cpp."""

_USUAL = gguf.LlamaFileType.MOSTLY_F16
_SMALL = gguf.GGMLQuantizationType.Q8_0


def write_gguf(
    path: Path, model: Llama, tokenizer: Tokenizer, template: str, *, is_small: bool = False
) -> None:
    """Write the GGUF file.

    Matrices are 16-bit floats. With `is_small`, they are blocks of 8-bit integers.
    """
    writer = gguf.GGUFWriter(path, "llama")
    add_description(writer, gguf.LlamaFileType.MOSTLY_Q8_0 if is_small else _USUAL)
    add_shape(writer, model.shape)
    add_tokenizer(writer, tokenizer)
    writer.add_chat_template(template)
    for name, array in named_tensors(model):
        if array.ndim > 1 and is_small:
            writer.add_tensor(name, gguf.quantize(array, _SMALL), raw_dtype=_SMALL)
        else:
            writer.add_tensor(name, array if array.ndim == 1 else array.astype(np.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def add_description(writer: gguf.GGUFWriter, kind: gguf.LlamaFileType) -> None:
    writer.add_name("Arriero demo")
    writer.add_description(
        "A tiny model trained from scratch on the project's own conversations about itself; "
        "it repeats them, and knows nothing else."
    )
    writer.add_languages(["en"])
    writer.add_file_type(kind)


def add_shape(writer: gguf.GGUFWriter, shape: Shape) -> None:
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_width)
    writer.add_value_length(shape.head_width)
    writer.add_rope_dimension_count(shape.head_width)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_layer_norm_rms_eps(shape.epsilon)


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    model = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([token_type(token) for token in tokens])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(model["vocab"][END_OF_TEXT])
    writer.add_eos_token_id(model["vocab"][END_OF_TURN])
    writer.add_pad_token_id(model["vocab"][END_OF_TEXT])
    writer.add_add_bos_token(False)


def token_type(token: str) -> gguf.TokenType:
    """Return the type of a token. Marks of reasoning and tool calls are visible in the text."""
    if token in CONTROL_TOKENS:
        return gguf.TokenType.CONTROL
    return gguf.TokenType.USER_DEFINED if token in VISIBLE_TOKENS else gguf.TokenType.NORMAL


def read_weights(path: Path, model: Llama) -> None:
    """Set the network's weights to the weights in a file of `write_gguf`."""
    tensors = gguf.GGUFReader(path).tensors
    stored = {each.name: gguf.dequantize(each.data, each.tensor_type) for each in tensors}
    with torch.no_grad():
        for name, weight in named_weights(model):
            weight.copy_(torch.from_numpy(stored[name].astype(np.float32)))


def named_tensors(model: Llama) -> Iterator[tuple[str, Array]]:
    for name, weight in named_weights(model):
        yield name, weight.detach().float().numpy()


def named_weights(model: Llama) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """Yield every weight with its llama.cpp name.

    Without `output`, llama.cpp reuses the embedding.
    """
    weights = dict(model.named_parameters())
    yield "token_embd.weight", weights["embedding.weight"]
    for layer in range(model.shape.layers):
        for ours, theirs in NAMES.items():
            yield f"blk.{layer}.{theirs}.weight", weights[f"layers.{layer}.{ours}.weight"]
    yield "output_norm.weight", weights["norm.weight"]
