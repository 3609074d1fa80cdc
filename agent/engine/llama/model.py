"""A loaded model file: its weights, vocabulary, template and properties."""

import ctypes
import logging
import re
import threading
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from ....shared.models.engine_options import cache_bytes, metadata_of, placements_of
from ....shared.queries import Pooling
from ....shared.reports.model_info import Kernels, Task
from ...gguf.header import HeaderError, read_header
from ...gguf.split_files import files_of
from ..load_options import LoadOptions
from ..model_error import ModelError, NoMemoryError
from .backends import library
from .cells.recurrent_rows import row_bytes
from .log import route_log
from .model_params import model_params
from .vocab import LlamaVocab

logger = logging.getLogger(__name__)

_BAD_OVERRIDE = re.compile(
    r"Bad metadata override type for key '(.*)', expected (\w+) but got (\w+)"
)
"""Matches llama.cpp's warning that it uses the file's own value."""

_TEXT_BYTES = 256
_RANK_TEMPLATE = b"rerank"

_OTHER_MEMORIES = frozenset(
    {
        *("deepseek32", "deepseek4", "dots3note", "glm-dsa"),
        *("glm5-next", "hy_v4", "minimax-m3", "qwen4exp"),
    }
)
"""Architectures whose caches contain more than cells and rows. They were not tried with
checkpoints.
"""

_POOLINGS: dict[str, Pooling] = {"1": "mean", "2": "cls", "3": "last", "4": "rank"}
"""Poolings by their numbers in model files; 0 means none."""


_PART = re.compile(r"-\d{5}-of-\d{5}$")

_FILE_TYPES = {
    str(getattr(llama_cpp, name)): re.sub("^LLAMA_FTYPE_(ALL|MOSTLY)_", "", name)
    for name in dir(llama_cpp)
    if name.startswith(("LLAMA_FTYPE_ALL_", "LLAMA_FTYPE_MOSTLY_"))
}
"""Names of quantizations by their numbers in model files."""


class Model:
    """A loaded model. `handle` is llama.cpp's. Read-only, so contexts and threads may share it."""

    def __init__(
        self,
        path: Path,
        options: LoadOptions,
        *,
        kernels: Kernels = "plain",
        loads_mtp: bool = False,
    ) -> None:
        """Load `path` with `options`. Raises `ModelError`.

        `loads_mtp`: also load the layers for MTP, if there are any (`mtp`).
        """
        check_model_file(path)
        log = route_log()
        library()
        llama_cpp.llama_backend_init()
        self._params = model_params(options, kernels)
        self._params.raw.load_mtp = loads_mtp
        self.kernels = kernels
        self.loads_mtp = loads_mtp
        warnings: list[str] = []
        with log.hold_errors(warnings) as errors:
            self.handle = llama_cpp.llama_model_load_from_file(bytes(path), self._params.raw)
        if not self.handle:
            raise load_error(f"model file {path} cannot be loaded: {_reason(errors)}", errors)
        vocab = llama_cpp.llama_model_get_vocab(self.handle)
        self.path = path
        try:
            self._check_kind(path, vocab)
            self._check_overrides(options, warnings)
        except ModelError:
            self.free()
            raise
        self.vocab = LlamaVocab(vocab, self._pre_tokenizer(options))
        self.adapters_guard = threading.Lock()
        """Held while adapters are loaded or freed, and while a context is made."""

    @property
    def architecture(self) -> str:
        """The architecture's name in the file: `llama`, `qwen3`, …"""
        return self._meta("general.architecture")

    @property
    def name(self) -> str:
        """The file's name without its suffix; for a split file also without the part's number."""
        return _PART.sub("", self.path.stem)

    @property
    def quantization(self) -> str:
        """The type of most weights, such as `Q4_K_M`; empty if the file does not say."""
        return _FILE_TYPES.get(self._meta("general.file_type"), "")

    @property
    def parameters(self) -> int:
        """The number of weights."""
        return int(llama_cpp.llama_model_n_params(self.handle))

    @property
    def size_bytes(self) -> int:
        """The size of the weights."""
        return int(llama_cpp.llama_model_size(self.handle))

    @property
    def trained_context(self) -> int:
        """The longest context in tokens that the model was trained for."""
        return int(llama_cpp.llama_model_n_ctx_train(self.handle))

    def longest_context(self, options: LoadOptions) -> int:
        """Return the longest context if positions are scaled as `options` say.

        With YaRN llama.cpp changes `trained_context` itself when a context is made.
        """
        scaling = options.rope_scaling or self._meta(f"{self.architecture}.rope.scaling.type")
        if options.rope_scale is None or scaling in ("none", "yarn"):
            return self.trained_context
        own = float(llama_cpp.llama_model_rope_freq_scale_train(self.handle))
        return int(self.trained_context * max(1.0, options.rope_scale * own))

    @property
    def is_offloaded(self) -> bool:
        """Return whether a device other than the CPU computes a part of the model."""
        return self._params.raw.n_gpu_layers != 0 and bool(self._params.devices)

    @property
    def can_share(self) -> bool:
        """Return whether sequences can share any of their cells, and drop their last cells."""
        return not self.is_recurrent and not self.window

    @property
    def is_recurrent(self) -> bool:
        """Return whether some layers have a state that can only advance, token by token."""
        return bool(
            llama_cpp.llama_model_is_recurrent(self.handle)
            or llama_cpp.llama_model_is_hybrid(self.handle)
        )

    @property
    def window(self) -> int:
        """The number of positions that some layers look back; 0 if all attend to the start."""
        return int(llama_cpp.llama_model_n_swa(self.handle))

    @property
    def num_layers(self) -> int:
        """The number of layers without the output."""
        return int(llama_cpp.llama_model_n_layer(self.handle))

    def window_bytes(self, options: LoadOptions) -> int:
        """Return the maximum bytes of a window, as if all layers had a window."""
        return self.window * self.cell_bytes(options)

    def cell_bytes(self, options: LoadOptions) -> int:
        """Return the maximum bytes of a cell's keys and values, as if all layers were equal."""
        heads = int(llama_cpp.llama_model_n_head_kv(self.handle))
        width = int(llama_cpp.llama_model_n_embd(self.handle))
        usual = width // max(1, int(llama_cpp.llama_model_n_head(self.handle)))
        keys = self._number("attention.key_length") or usual
        values = self._number("attention.value_length") or usual
        layer = cache_bytes(heads * keys, options.cache_type_k)
        layer += cache_bytes(heads * values, options.cache_type_v)
        return layer * self.num_layers

    @property
    def has_checkpoints(self) -> bool:
        """Return whether an uncuttable state can be copied as a whole."""
        return not self.can_share and self.architecture not in _OTHER_MEMORIES

    @property
    def row_bytes(self) -> int:
        """An upper estimate of the bytes of a sequence's recurrent state; 0 without recurrent
        layers.
        """
        return row_bytes(self._number) if self.is_recurrent else 0

    @property
    def is_causal(self) -> bool:
        """Return whether tokens attend only backwards, so that an input can be read in pieces."""
        return self._meta(f"{self.architecture}.attention.causal") != "false"

    @property
    def pooling(self) -> Pooling | None:
        """The pooling with which the model was trained to embed texts; `None` if the file does not
        say.
        """
        return _POOLINGS.get(self._meta(f"{self.architecture}.pooling_type"))

    @property
    def num_scores(self) -> int:
        """The number of outputs of the ranking head; the first is the score."""
        return int(llama_cpp.llama_model_n_cls_out(self.handle))

    def tasks(self, *, generates: bool, senses: Collection[Task] = ()) -> tuple[Task, ...]:
        """Return the tasks of the model; `senses` come from its projector."""
        able: dict[Task, bool] = {
            "generate": generates,
            "embed": True,
            "rank": self.pooling == "rank",
            "vision": "vision" in senses,
            "audio": "audio" in senses,
        }
        return tuple(task for task, is_able in able.items() if is_able)

    def pair(self, query: str, document: str) -> tuple[int, ...]:
        """Return a query and a document as one text, in the form of the model's template or of
        BERT.
        """
        source = llama_cpp.llama_model_chat_template(self.handle, _RANK_TEMPLATE)
        if source is not None:
            text = str(source, "utf-8", "replace")
            parts = _filled(text, {"{query}": query, "{document}": document})
            return self.vocab.tokenize(parts, add_special=False, parse_special=True)
        first = self.vocab.tokenize(query, add_special=False, parse_special=False)
        second = self.vocab.tokenize(document, add_special=False, parse_special=False)
        begin, between, end = self.vocab.pair_marks
        return (*begin, *first, *between, *second, *end)

    @property
    def chat_template(self) -> str | None:
        """The Jinja source in the file, if there is one."""
        return self._template(None)

    @property
    def tool_template(self) -> str | None:
        """The source stored under the name `tool_use`, as Hugging Face's tools do."""
        return self._template(b"tool_use")

    def free(self) -> None:
        """Free the memory; the vocabulary must not be used afterwards."""
        llama_cpp.llama_model_free(self.handle)

    def _check_kind(self, path: Path, vocab: Any) -> None:
        if llama_cpp.llama_vocab_type(vocab) == llama_cpp.LLAMA_VOCAB_TYPE_NONE:
            raise ModelError(f"model file {path} has no vocabulary: it cannot read or write text")
        if llama_cpp.llama_model_has_encoder(self.handle):
            raise ModelError(
                f"model file {path} is an encoder-decoder model ({self.architecture}): only models "
                "that generate from the prompt alone can be served"
            )

    def _check_overrides(self, options: LoadOptions, warnings: Iterable[str]) -> None:
        """Check that `--override-kv` had its effect, and warn about anything unexpected.

        Raises `ModelError` for a value of the wrong type.
        """
        for line in warnings:
            if found := _BAD_OVERRIDE.search(line):
                raise ModelError(
                    f"--override-kv: {found[1]} must be of the type {found[2]}, not {found[3]}"
                )
            if "mlock" in line:
                logger.warning("--mlock: %s", line.removeprefix("warning: "))
        for key in () if options.override_kv is None else metadata_of(options.override_kv):
            if not self._has_meta(key):
                logger.warning("--override-kv: %s is not in %s, so it is added", key, self.path)
        for pattern in self._idle_placements(options):
            logger.warning("--override-tensor: no tensor of %s matches %s", self.path, pattern)

    def _idle_placements(self, options: LoadOptions) -> list[str]:
        """Return the patterns of `--override-tensor` that match no tensor of the file."""
        if options.override_tensor is None:
            return []
        names: list[str] = []
        try:
            for part in files_of(str(self.path)):
                with Path(part).open("rb") as file:
                    names += [each.name for each in read_header(file).tensors]
        except (HeaderError, OSError, ValueError) as error:
            logger.warning(
                "--override-tensor: the names in %s cannot be read: %s", self.path, error
            )
            return []
        patterns = (pattern for pattern, _ in placements_of(options.override_tensor))
        return [each for each in patterns if not any(re.search(each, name) for name in names)]

    def _pre_tokenizer(self, options: LoadOptions) -> str:
        """Return how texts are split before tokenisation, according to the file or
        `--override-kv`.
        """
        kind = self._meta("tokenizer.ggml.model")
        if kind in ("gemma4", "hybriddna"):
            return kind
        key = "tokenizer.ggml.pre"
        given = {} if options.override_kv is None else metadata_of(options.override_kv)
        return str(given.get(key, self._meta(key)))

    def _has_meta(self, key: str) -> bool:
        return bool(llama_cpp.llama_model_meta_val_str(self.handle, key.encode(), None, 0) >= 0)

    def _template(self, name: bytes | None) -> str | None:
        found = llama_cpp.llama_model_chat_template(self.handle, name)
        source = "" if found is None else str(found, "utf-8", "replace")
        # For some models without a template llama.cpp answers with the name of a format of its own.
        return source if "{" in source else None

    def _number(self, key: str) -> int:
        """Return a hyperparameter; 0 if it is missing, or has one value per layer."""
        value = self._meta(f"{self.architecture}.{key}")
        return int(value) if value.isdigit() else 0

    def _meta(self, key: str) -> str:
        return meta(self.handle, key)


def meta(handle: Any, key: str) -> str:
    """Return the metadata of llama.cpp's model under `key` as text; empty if there is none."""
    buffer = ctypes.create_string_buffer(_TEXT_BYTES)
    llama_cpp.llama_model_meta_val_str(handle, key.encode(), buffer, _TEXT_BYTES)
    return buffer.value.decode("utf-8", "replace")


def _filled(template: str, values: dict[str, str]) -> str:
    """Replace every mark in one pass, so that a value that looks like a mark is not replaced."""
    marks = re.compile("|".join(map(re.escape, values)))
    return marks.sub(lambda match: values[match[0]], template)


_NO_MEMORY = re.compile(r"alloc|out of (\w+ )?memory|OutOf\w*Memory", re.IGNORECASE)


def load_error(message: str, errors: Iterable[str]) -> ModelError:
    """Return the error with `message`: `NoMemoryError` if llama.cpp's `errors` are about memory."""
    has_no_memory = any(map(_NO_MEMORY.search, errors))
    return NoMemoryError(message) if has_no_memory else ModelError(message)


def _reason(errors: Iterable[str]) -> str:
    """Return the first error: llama.cpp reports the cause first, then each caller's failure."""
    causes = [line.split(": ", 1)[-1] for line in errors]
    return causes[0] if causes else "llama.cpp gave no reason"


MAGIC = b"GGUF"


def check_model_file(path: Path, setting: str = "--model") -> None:
    """Raise `ModelError` unless `path` is a readable file that starts like a GGUF.

    The error names the `setting` to check.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(len(MAGIC))
    except FileNotFoundError:
        raise ModelError(f"model file {path} does not exist: check {setting}") from None
    except IsADirectoryError:
        raise ModelError(
            f"model {path} is a directory: {setting} wants the .gguf file in it"
        ) from None
    except OSError as error:
        raise ModelError(f"model file {path} cannot be read: {error.strerror}") from error
    if magic != MAGIC:
        raise ModelError(
            f"model file {path} is not in GGUF format: {setting} wants a .gguf file, which "
            "llama.cpp's convert_hf_to_gguf.py makes from other formats"
        )
