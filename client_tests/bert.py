"""BERT as its authors' files have it: read, converted to GGUF, and computed with numpy alone.

The computing is the reference for what the engine computes: no code of llama.cpp is in it. Shapes
are (tokens, width) unless told.
"""

import json
import math
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.float32]

LONGEST_WORD = 100
"""Characters; a longer word is unknown."""

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")

OUTER = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
}
INNER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
"""Names in the files, and in GGUF: those of a layer, and the others."""

_erf = np.vectorize(math.erf, otypes=[np.float32])


@dataclass(frozen=True)
class Bert:
    """A model that embeds by the mean of its last layer's rows."""

    config: dict[str, Any]
    words: tuple[str, ...]
    tensors: dict[str, Rows]

    @classmethod
    def read(cls, folder: Path) -> "Bert":
        config = json.loads((folder / "config.json").read_text())
        words = tuple((folder / "vocab.txt").read_text("utf-8").splitlines())
        return cls(config, words, read_tensors(folder / "model.safetensors"))

    # ---- words

    @cached_property
    def ids(self) -> dict[str, int]:
        return {word: id for id, word in enumerate(self.words)}

    def tokens(self, text: str) -> list[int]:
        """WordPiece, with `[CLS]` and `[SEP]` around it."""
        pieces = (piece for word in split(text) for piece in self._pieces(word))
        return [self.ids["[CLS]"], *(self.ids[piece] for piece in pieces), self.ids["[SEP]"]]

    def _pieces(self, word: str) -> list[str]:
        """The longest known piece first, then the longest that follows."""
        pieces: list[str] = []
        start = 0
        while start < len(word) <= LONGEST_WORD:
            before = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if before + word[start:end] in self.ids), None)
            if end is None:
                return ["[UNK]"]
            pieces.append(before + word[start:end])
            start = end
        return pieces or ["[UNK]"]

    # ---- numbers

    def vector(self, text: str) -> Rows:
        """The text's vector, of length 1; shape (width,)."""
        ids = self.tokens(text)
        rows = self.tensors["embeddings.word_embeddings.weight"][ids]
        rows = rows + self.tensors["embeddings.position_embeddings.weight"][: len(ids)]
        rows = rows + self.tensors["embeddings.token_type_embeddings.weight"][0]
        rows = self._norm("embeddings.LayerNorm", rows)
        for layer in range(self.config["num_hidden_layers"]):
            rows = self._layer(f"encoder.layer.{layer}", rows)
        mean: Rows = rows.mean(axis=0)
        return mean / np.linalg.norm(mean)

    def _layer(self, at: str, rows: Rows) -> Rows:
        attended = self._linear(f"{at}.attention.output.dense", self._attention(at, rows))
        rows = self._norm(f"{at}.attention.output.LayerNorm", rows + attended)
        wide = self._linear(f"{at}.intermediate.dense", rows)
        gelu = wide * (1 + _erf(wide / math.sqrt(2))) / 2
        return self._norm(f"{at}.output.LayerNorm", rows + self._linear(f"{at}.output.dense", gelu))

    def _attention(self, at: str, rows: Rows) -> Rows:
        heads = self.config["num_attention_heads"]
        queries, keys, values = (
            self._linear(f"{at}.attention.self.{name}", rows)
            .reshape(len(rows), heads, -1)
            .swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        scores = queries @ keys.swapaxes(1, 2) / math.sqrt(queries.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        attended = weights / weights.sum(axis=-1, keepdims=True) @ values
        return attended.swapaxes(0, 1).reshape(len(rows), -1)

    def _linear(self, name: str, rows: Rows) -> Rows:
        return rows @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def _norm(self, name: str, rows: Rows) -> Rows:
        centred = rows - rows.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(
            (centred**2).mean(axis=-1, keepdims=True) + self.config["layer_norm_eps"]
        )
        return centred / deviation * self.tensors[f"{name}.weight"] + self.tensors[f"{name}.bias"]

    # ---- GGUF

    def write_gguf(self, path: Path) -> Path:
        """As 32-bit floats. The pooler, which means do not use, is left out."""
        writer = gguf.GGUFWriter(path, "bert")
        writer.add_context_length(self.config["max_position_embeddings"])
        writer.add_embedding_length(self.config["hidden_size"])
        writer.add_feed_forward_length(self.config["intermediate_size"])
        writer.add_block_count(self.config["num_hidden_layers"])
        writer.add_head_count(self.config["num_attention_heads"])
        writer.add_layer_norm_eps(self.config["layer_norm_eps"])
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        self._add_vocabulary(writer)
        for name, values in self.tensors.items():
            if (own := gguf_name(name)) is not None:
                writer.add_tensor(own, values)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _add_vocabulary(self, writer: gguf.GGUFWriter) -> None:
        control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
        writer.add_tokenizer_model("bert")
        writer.add_tokenizer_pre("default")
        writer.add_token_list([phantom(word) for word in self.words])
        writer.add_token_types([control if word in SPECIAL else normal for word in self.words])
        writer.add_token_type_count(self.config["type_vocab_size"])
        writer.add_pad_token_id(self.ids["[PAD]"])
        writer.add_unk_token_id(self.ids["[UNK]"])
        writer.add_bos_token_id(self.ids["[CLS]"])
        writer.add_eos_token_id(self.ids["[SEP]"])
        writer.add_sep_token_id(self.ids["[SEP]"])
        writer.add_mask_token_id(self.ids["[MASK]"])
        writer.add_add_bos_token(True)


def phantom(word: str) -> str:
    """A word of the vocabulary as GGUF has it: marked where a word begins, not where it goes on."""
    if word.startswith("[") and word.endswith("]"):
        return word
    return word.removeprefix("##") if word.startswith("##") else f"\N{LOWER ONE EIGHTH BLOCK}{word}"


def gguf_name(name: str) -> str | None:
    """What a tensor is called in GGUF; `None` for those that are left out."""
    for own, theirs in OUTER.items():
        if name.startswith(own):
            return theirs + name.removeprefix(own)
    layer, _, inner = name.removeprefix("encoder.layer.").partition(".")
    if not layer.isdecimal():
        return None
    part, _, end = inner.rpartition(".")
    return f"blk.{layer}.{INNER[part]}.{end}"


def read_tensors(path: Path) -> dict[str, Rows]:
    """The 32-bit floats of a safetensors file: a header's length, the header as JSON, the data."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    header: dict[str, Any] = json.loads(data[8:start])
    found = {}
    for name, about in header.items():
        if about.get("dtype") == "F32":
            first, last = about["data_offsets"]
            values = np.frombuffer(data[start + first : start + last], np.float32)
            found[name] = values.reshape(about["shape"])
    return found


def split(text: str) -> Iterator[str]:
    """Words in lower case without accents; each mark and each Chinese character is a word."""
    plain = unicodedata.normalize("NFD", text.lower())
    plain = "".join(each for each in plain if unicodedata.category(each) != "Mn")
    return iter("".join(f" {each} " if _stands_alone(each) else each for each in plain).split())


def _stands_alone(character: str) -> bool:
    is_ascii_mark = character.isascii() and character.isprintable() and not character.isalnum()
    is_mark = unicodedata.category(character).startswith("P") or is_ascii_mark
    return (is_mark and character != " ") or "\u4e00" <= character <= "\u9fff"
