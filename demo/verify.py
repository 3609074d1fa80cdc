"""Checks that llama.cpp reproduces every corpus answer: `python -m demo.verify`.

The check needs llama-cpp-python. Each conversation is decoded greedily, once without a system
message and once with the first system message. `report.json` lists the ids of conversations whose
answers differ. If the `tokenizers` package is installed, its token ids are compared with
llama.cpp's, too.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from jinja2 import Template

from demo.conversations import (
    MODEL,
    REPORT,
    SYSTEM_MESSAGES,
    TOKENIZER,
    Conversation,
    load_conversations,
)
from demo.prompts import compile_template, render_conversation

SPARE_TOKENS = 8
"""Number of tokens that a wrong answer may be longer than the right answer."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A greedy answer.

    `margin` is the smallest lead of one of its tokens over the next best token.
    """

    tokens: list[int]
    margin: float


class Engine:
    """One llama.cpp context that decodes one sequence at a time."""

    def __init__(self, path: Path, threads: int) -> None:
        llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
        self.model = llama_cpp.llama_model_load_from_file(
            str(path).encode(), llama_cpp.llama_model_default_params()
        )
        self.vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(self.vocab)
        parameters = llama_cpp.llama_context_default_params()
        parameters.n_ctx = parameters.n_batch = llama_cpp.llama_model_n_ctx_train(self.model)
        parameters.n_threads = parameters.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(self.model, parameters)

    def template(self) -> Template:
        """Return the chat template in the model's file."""
        return compile_template(llama_cpp.llama_model_chat_template(self.model, None).decode())

    def parameters(self) -> int:
        return int(llama_cpp.llama_model_n_params(self.model))

    def tokenize(self, text: str) -> list[int]:
        raw = text.encode()
        room = (llama_cpp.llama_token * (len(raw) + 8))()
        count = llama_cpp.llama_tokenize(self.vocab, raw, len(raw), room, len(room), True, True)
        return list(room[:count])

    def text(self, tokens: Sequence[int]) -> str:
        return b"".join(self.piece(token) for token in tokens).decode(errors="replace")

    def piece(self, token: int) -> bytes:
        """Return a token's bytes. Control tokens have none."""
        room = ctypes.create_string_buffer(128)
        length = llama_cpp.llama_token_to_piece(self.vocab, token, room, len(room), 0, False)
        return room.raw[:length]

    def answer(self, prompt: str, limit: int) -> Decoded:
        """Return the greedy tokens after `prompt`, until the turn ends or `limit` is reached."""
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)
        self.decode(self.tokenize(prompt))
        tokens: list[int] = []
        margin = float("inf")
        while len(tokens) < limit:
            token, lead = self.best()
            margin = min(margin, lead)
            if llama_cpp.llama_vocab_is_eog(self.vocab, token):
                break
            tokens.append(token)
            self.decode([token])
        return Decoded(tokens, margin)

    def decode(self, tokens: Sequence[int]) -> None:
        array = (llama_cpp.llama_token * len(tokens))(*tokens)
        answer = llama_cpp.llama_decode(
            self.context, llama_cpp.llama_batch_get_one(array, len(tokens))
        )
        if answer != 0:
            raise RuntimeError(f"llama_decode answered {answer}")

    def best(self) -> tuple[int, float]:
        """Return the most likely next token and its lead over the second."""
        pointer = llama_cpp.llama_get_logits_ith(self.context, -1)
        logits = np.ctypeslib.as_array(pointer, shape=(self.vocab_size,))
        second, first = np.argpartition(logits, -2)[-2:]
        if logits[second] > logits[first]:
            first, second = second, first
        return int(first), float(logits[first] - logits[second])


@llama_cpp.llama_log_callback  # type: ignore[untyped-decorator, unused-ignore]
def quiet(_level: int, _text: bytes, _data: object) -> None:
    """Ignore llama.cpp's log lines."""


def main() -> None:
    arguments = read_arguments()
    engine = Engine(MODEL, arguments.threads)
    conversations = load_conversations()
    began = time.monotonic()
    report = {
        "parameters": engine.parameters(),
        "bytes": MODEL.stat().st_size,
        "conversations": len(conversations),
        "without_system": check(engine, conversations, None),
        "with_system": check(engine, conversations, SYSTEM_MESSAGES[0]),
        "different_token_ids": compare_tokenizers(engine, conversations),
        "seconds": round(time.monotonic() - began),
    }
    REPORT.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


def check(
    engine: Engine, conversations: Sequence[Conversation], system: str | None
) -> dict[str, Any]:
    """Decode every answer. Returns the number of exact answers, and the others by id."""
    template = engine.template()
    wrong: list[str] = []
    margins: list[float] = []
    for conversation in conversations:
        prompt = render_conversation(template, conversation, system)
        limit = len(engine.tokenize(conversation.answer)) + SPARE_TOKENS
        decoded = engine.answer(prompt, limit)
        if engine.text(decoded.tokens) == conversation.answer:
            margins.append(decoded.margin)
        else:
            wrong.append(conversation.id)
    return {
        "exact": len(conversations) - len(wrong),
        "smallest_margin": round(min(margins, default=0.0), 2),
        "margins_below_one": sum(margin < 1 for margin in margins),
        "not_exact": wrong,
    }


def compare_tokenizers(engine: Engine, conversations: Sequence[Conversation]) -> list[str] | None:
    """Return the ids of conversations that llama.cpp tokenizes differently.

    Returns `None` if the `tokenizers` package is not installed.
    """
    if importlib.util.find_spec("tokenizers") is None:
        return None
    tokenizer = importlib.import_module("tokenizers").Tokenizer.from_file(str(TOKENIZER))
    template = engine.template()
    different: list[str] = []
    for conversation in conversations:
        texts = [render_conversation(template, conversation, s) for s in (None, *SYSTEM_MESSAGES)]
        texts.append(conversation.answer)
        if any(engine.tokenize(text) != tokenizer.encode(text).ids for text in texts):
            different.append(conversation.id)
    return different


if __name__ == "__main__":
    main()
