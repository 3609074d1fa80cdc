"""Vocabularies without weights: every byte, a few longer tokens, and a splitter of any name."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import llama_cpp.llama_cpp as llama_cpp
from gguf import GGUFWriter, TokenType

from arriero.agent.engine.llama.log import route_log
from arriero.agent.engine.llama.vocab import LlamaVocab

CONTROLS = ("<|im_start|>", "<|im_end|>", "<|im", "<s>")
LONGER = (("a", "a"), ("aa", "aa"), ("h", "e"), ("he", "l"), ("1", "2"), ("\u0120", "a"))


def _letters() -> list[str]:
    """The character that stands for each byte in a vocabulary of bytes."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letters = dict(zip(hidden, map(chr, range(256, 256 + len(hidden))), strict=True))
    return [letters.get(byte, chr(byte)) for byte in range(256)]


@cache
def vocabulary(splitter: str, user_defined: Iterable[str] = ("\n\n", "<think>")) -> LlamaVocab:
    """Loaded once, and as long as the tests run."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "vocabulary.gguf"
        _write(path, splitter, user_defined)
        return _loaded(path, splitter)


def without_bytes(folder: Path) -> LlamaVocab:
    """SentencePiece's vocabulary of the letters from `a` to `e`, which lacks tokens of bytes."""
    path = folder / "letters.gguf"
    writer = _writer(path)
    writer.add_tokenizer_model("llama")
    tokens = ["<unk>", "<s>", "</s>", *"abcde", "\u2581"]
    writer.add_token_list(tokens)
    writer.add_token_scores([0.0] * len(tokens))
    writer.add_token_types([TokenType.UNKNOWN, *[TokenType.CONTROL] * 2, *[TokenType.NORMAL] * 6])
    _finish(writer)
    return _loaded(path, "")


def _loaded(path: Path, splitter: str) -> LlamaVocab:
    route_log()
    llama_cpp.llama_backend_init()
    params = llama_cpp.llama_model_default_params()
    params.vocab_only = True
    model = llama_cpp.llama_model_load_from_file(bytes(path), params)
    assert model, splitter
    return LlamaVocab(llama_cpp.llama_model_get_vocab(model), splitter)


def _writer(path: Path) -> GGUFWriter:
    writer = GGUFWriter(path, "llama")
    for add in (writer.add_context_length, writer.add_embedding_length, writer.add_block_count):
        add(8)
    writer.add_feed_forward_length(8)
    writer.add_head_count(1)
    return writer


def _finish(writer: GGUFWriter) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def _write(path: Path, splitter: str, user_defined: Iterable[str]) -> None:
    kind = splitter if splitter in ("gemma4", "whitespace") else "gpt2"
    letters = [f"<0x{byte:02X}>" for byte in range(256)] if kind == "gemma4" else _letters()
    tokens = {
        **dict.fromkeys(letters, TokenType.NORMAL),
        **{left + right: TokenType.NORMAL for left, right in LONGER},
        **dict.fromkeys(CONTROLS, TokenType.CONTROL),
        **dict.fromkeys(user_defined, TokenType.USER_DEFINED),
    }
    writer = _writer(path)
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(splitter)
    writer.add_token_list([*tokens])
    writer.add_token_types([*tokens.values()])
    writer.add_token_merges([f"{left} {right}" for left, right in LONGER])
    writer.add_bos_token_id([*tokens].index("<s>"))
    writer.add_eos_token_id([*tokens].index("<|im_end|>"))
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)
    _finish(writer)
