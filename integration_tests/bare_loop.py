"""Greedy text by llama.cpp alone: one sequence, token by token, through its low-level interface.

Nothing of the agent is used, so its answers can be compared with these.
"""

import ctypes
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

CHUNK = 512
"""Tokens of a prompt that are computed at once."""

CELL_TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0}

NUM_RANKED = 6

END = b""
"""Stands for an end-of-generation token."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The likeliest token as bytes, and `gaps`: how far the next ones are behind it.

    In natural logarithms, as `log_prob` is.
    """

    best: bytes
    log_prob: float
    gaps: dict[bytes, float]


@llama_cpp.llama_log_callback
def _say_nothing(*_: object) -> None:
    """llama.cpp's log."""


class BareLoop:
    """One model. Its contexts have `context_size` cells each."""

    def __init__(self, path: Path, context_size: int, *, repacks: bool) -> None:
        """`repacks`: use the kernels that repack weights, as an agent does with all kernels."""
        llama_cpp.llama_log_set(_say_nothing, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = repacks
        self._context_size = context_size
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        assert self._model is not None
        self._vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.vocabulary = llama_cpp.llama_vocab_n_tokens(self._vocab)

    def answer(self, prompt: str, most: int, *, cells: str = "f16") -> list[Choice]:
        """Up to `most` tokens; the last one is `END` if the model ended its answer."""
        context = self._open(cells)
        try:
            choices = []
            row = self._compute(context, self.tokens(prompt))
            while len(choices) < most:
                token, choice = self._best(row)
                choices.append(choice)
                if choice.best == END:
                    break
                row = self._compute(context, [token])
            return choices
        finally:
            llama_cpp.llama_free(context)

    def row(self, prompt: str) -> NDArray[np.float32]:
        """The logits of the token after `prompt`."""
        context = self._open("f16")
        try:
            return self._compute(context, self.tokens(prompt)).copy()
        finally:
            llama_cpp.llama_free(context)

    def tokens(self, text: str) -> list[int]:
        """The text's tokens, its markers read as such."""
        data = text.encode()
        room = (llama_cpp.llama_token * (len(data) + 8))()
        num = llama_cpp.llama_tokenize(self._vocab, data, len(data), room, len(room), True, True)
        assert num > 0
        return list(room[:num])

    def _open(self, cells: str) -> llama_cpp.llama_context_p:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = self._context_size, CHUNK, 1
        params.n_threads = params.n_threads_batch = 1
        params.type_k = params.type_v = CELL_TYPES[cells]
        context = llama_cpp.llama_init_from_model(self._model, params)
        assert context is not None
        return context

    def _compute(
        self, context: llama_cpp.llama_context_p, tokens: list[int]
    ) -> NDArray[np.float32]:
        for start in range(0, len(tokens), CHUNK):
            part = tokens[start : start + CHUNK]
            kept = (llama_cpp.llama_token * len(part))(*part)  # the batch points into it
            batch = llama_cpp.llama_batch_get_one(kept, len(part))
            assert llama_cpp.llama_decode(context, batch) == 0
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        return np.ctypeslib.as_array(logits, (self.vocabulary,))

    def _best(self, row: NDArray[np.float32]) -> tuple[int, Choice]:
        first, *others = np.argsort(-row)[:NUM_RANKED].tolist()
        exact = row.astype(np.float64)
        total = exact[first] + np.log(np.exp(exact - exact[first]).sum())
        gaps = {self._bytes(each): float(exact[first] - exact[each]) for each in reversed(others)}
        return first, Choice(self._bytes(first), float(exact[first] - total), gaps)

    def _bytes(self, token: int) -> bytes:
        if llama_cpp.llama_vocab_is_eog(self._vocab, token):
            return END
        room = ctypes.create_string_buffer(256)
        num = llama_cpp.llama_token_to_piece(self._vocab, token, room, 256, 0, True)
        assert num >= 0
        return room.raw[:num]
