"""Logits by llama.cpp alone, through its low-level interface: nothing of the agent is used."""

import ctypes
from pathlib import Path

import llama_cpp.llama_cpp as llama_cpp
import numpy as np
from numpy.typing import NDArray

CHUNK = 512
"""Tokens of a prompt that are computed at once."""


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

    def row(self, prompt: str) -> NDArray[np.float32]:
        """The logits of the token after `prompt`."""
        context = self._open()
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

    def _open(self) -> llama_cpp.llama_context_p:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_seq_max = self._context_size, CHUNK, 1
        params.n_threads = params.n_threads_batch = 1
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
