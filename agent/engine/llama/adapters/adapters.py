"""The adapters that are loaded beside a model, and which of them the next batch is computed with.

llama.cpp has them for a whole context: setting others costs a little (it plans its buffers anew),
setting the same ones nothing. An adapter stays as long as sequences use it that were opened while
it was there; it is freed before the first step after the last of them.

A model's list of adapters is read where a context is made and where a batch is decoded. So whoever
calls `load` and `keep` holds the turn that steps have; `open` and `close` may be called any time.
"""

import ctypes
import threading
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from .....shared.errors import ModelNotFound
from ...adapter import AdapterUse, adapter_uses
from ...model_error import ModelError
from ...sequence import SequenceId
from ..log import route_log


class Adapters:
    """By digest. `model` is llama.cpp's, `guard` is held while its list of adapters changes."""

    def __init__(self, model: Any, guard: threading.Lock) -> None:
        self._model = model
        self._guard = guard
        self._lock = threading.Lock()  # of what follows
        self._handles: dict[str, Any] = {}
        self._kept: set[str] = set()
        self._used: dict[SequenceId, tuple[AdapterUse, ...]] = {}
        self._users: Counter[str] = Counter()
        self._applied: str | None = None

    @property
    def digests(self) -> frozenset[str]:
        """Of all that take memory."""
        return frozenset(self._handles)

    def load(self, digest: str, path: Path) -> None:
        """Make the adapter at `path` available, unless it is. Raises `ModelError`."""
        if digest not in self._handles:
            handle = self._read(path)
            with self._lock:
                self._handles[digest] = handle
        with self._lock:
            self._kept.add(digest)

    def keep(self, digests: Collection[str]) -> None:
        """Only these are available from now on."""
        with self._lock:
            self._kept.intersection_update(digests)
        self.sweep()

    def open(self, id: SequenceId, key: str | None) -> None:
        """Sequence `id` is going to use the adapters of `key`. Raises `ModelNotFound`."""
        if key is None:
            return
        uses = adapter_uses(key)
        with self._lock:
            if any(use.digest not in self._kept for use in uses):
                raise ModelNotFound("the adapter that this request asks for was just unloaded")
            self._used[id] = uses
            self._users.update(use.digest for use in uses)

    def close(self, id: SequenceId) -> None:
        """Sequence `id` uses none any more, if it did."""
        with self._lock:
            for use in self._used.pop(id, ()):
                self._users[use.digest] -= 1

    def apply(self, context: Any, key: str | None) -> None:
        """The next batches of `context`, always the same one, are computed under `key`.

        Before, those are freed that nobody uses any more.
        """
        if len(self._kept) < len(self._handles):
            self.sweep()
        if key == self._applied:
            return
        uses = adapter_uses(key)
        handles = (llama_cpp.llama_adapter_lora_p_ctypes * len(uses))(
            *(self._handles[use.digest] for use in uses)
        )
        scales = (ctypes.c_float * len(uses))(*(use.scale for use in uses))
        if llama_cpp.llama_set_adapters_lora(context, handles, len(uses), scales) != 0:
            raise RuntimeError(f"llama.cpp did not take the adapters {key}")
        self._applied = key

    def sweep(self) -> None:
        """Free those that are neither kept nor used, nor set for the context."""
        applied = {use.digest for use in adapter_uses(self._applied)}
        with self._lock:
            idle = [
                digest
                for digest in self._handles
                if digest not in self._kept and not self._users[digest] and digest not in applied
            ]
            freed = [self._handles.pop(digest) for digest in idle]
            for digest in idle:
                del self._users[digest]
        with self._guard:
            for handle in freed:
                llama_cpp.llama_adapter_lora_free(handle)

    def _read(self, path: Path) -> Any:
        with self._guard, route_log().hold_errors() as errors:
            handle = llama_cpp.llama_adapter_lora_init(self._model, bytes(path))
        if not handle:
            reason = errors[0].split(": ", 1)[-1] if errors else "llama.cpp gave no reason"
            raise ModelError(f"adapter file {path} cannot be used with this model: {reason}")
        if llama_cpp.llama_adapter_get_alora_n_invocation_tokens(handle):
            with self._guard:
                llama_cpp.llama_adapter_lora_free(handle)
            raise ModelError(
                f"adapter file {path} is an activated LoRA, which applies only after certain "
                "tokens: only plain LoRA adapters are supported"
            )
        return handle
