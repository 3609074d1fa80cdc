"""A model file in memory: its weights, vocabulary, template and facts."""

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from ..loaded_model import ModelError
from .log import route_log
from .model_file import check_model_file
from .vocab import LlamaVocab

_TEXT_BYTES = 256


class Model:
    """`handle` is llama.cpp's. Read-only, so contexts and threads may share it."""

    def __init__(self, path: Path, *, gpu_layers: int) -> None:
        """Load `path`. Raises `ModelError`. Negative `gpu_layers` mean all layers."""
        check_model_file(path)
        log = route_log()
        llama_cpp.llama_backend_init()
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.use_extra_bufts = not _has_amx()
        with log.hold_errors() as errors:
            self.handle = llama_cpp.llama_model_load_from_file(bytes(path), params)
        if not self.handle:
            raise ModelError(f"model file {path} cannot be loaded: {_reason(errors)}")
        vocab = llama_cpp.llama_model_get_vocab(self.handle)
        try:
            self._check_kind(path, vocab)
        except ModelError:
            self.free()
            raise
        self.path = path
        self.vocab = LlamaVocab(vocab)

    @property
    def architecture(self) -> str:
        """As the file names it: `llama`, `qwen3`, …"""
        return self._meta("general.architecture")

    @property
    def parameters(self) -> int:
        """Number of weights."""
        return int(llama_cpp.llama_model_n_params(self.handle))

    @property
    def size_bytes(self) -> int:
        """Size of the weights."""
        return int(llama_cpp.llama_model_size(self.handle))

    @property
    def trained_context(self) -> int:
        """Longest context in tokens that the model was trained for."""
        return int(llama_cpp.llama_model_n_ctx_train(self.handle))

    @property
    def can_share(self) -> bool:
        """Whether a sequence can share its cells, and give up its last ones."""
        return not (
            llama_cpp.llama_model_is_recurrent(self.handle)
            or llama_cpp.llama_model_is_hybrid(self.handle)
            or llama_cpp.llama_model_n_swa(self.handle) > 0
        )

    @property
    def keep_for(self) -> int:
        """See `Capacity`: the work of a token in a layer, over that of attending to one cell.

        For a layer of width d that is 2 operations for each of about 12 d^2 weights, over 2 d each
        for a key and a value: 6 d. llama.cpp's CPU kernels pay for cells of others nearly in full.
        """
        return 6 * int(llama_cpp.llama_model_n_embd(self.handle))

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the file, if there is one."""
        source = llama_cpp.llama_model_chat_template(self.handle, None)
        return None if source is None else str(source, "utf-8", "replace")

    def free(self) -> None:
        """Give the memory back; the vocabulary must not be used afterwards."""
        llama_cpp.llama_model_free(self.handle)

    def _check_kind(self, path: Path, vocab: Any) -> None:
        if llama_cpp.llama_vocab_type(vocab) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
            raise ModelError(f"model file {path} has no vocabulary: it cannot read or write text")
        if llama_cpp.llama_model_has_encoder(self.handle):
            raise ModelError(
                f"model file {path} is an encoder-decoder model ({self.architecture}): only models "
                "that generate from the prompt alone can be served"
            )

    def _meta(self, key: str) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        llama_cpp.llama_model_meta_val_str(self.handle, key.encode(), buffer, _TEXT_BYTES)
        return buffer.value.decode("utf-8", "replace")


def _has_amx() -> bool:
    """Whether llama.cpp was built for AMX, whose kernels end the process with a segmentation fault.

    The compiler drops the tile configuration as unused (ggml-org/llama.cpp#20824), so quantised
    weights must stay out of the AMX buffer, which is only to be had by doing without all of the
    CPU's extra buffers. A build with `-mno-amx-tile` has them back.
    """
    return b"AMX_INT8 = 1" in llama_cpp.llama_print_system_info()


def _reason(errors: Iterable[str]) -> str:
    """The error that says most: llama.cpp reports the cause first, then each caller's failure."""
    causes = [line.split(": ", 1)[-1] for line in errors]
    return causes[0] if causes else "llama.cpp gave no reason"
