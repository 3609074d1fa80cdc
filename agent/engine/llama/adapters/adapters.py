"""The adapters loaded for a model, and the selection of adapters for the next batch.

llama.cpp selects adapters for a whole context. Changing the selection costs a little, since
llama.cpp plans its buffers again; keeping the selection costs nothing. An adapter that is no
longer available stays loaded while earlier sequences use it. After the last of these sequences
ended, the next steps free the adapter.

llama.cpp reads a model's list of adapters when a context is made and when a batch is decoded. So
`load` and `keep` take the steps' turn whenever they change the list. They do that for one part of
a file at a time (`parts`), so no step waits longer. Each part is an adapter to llama.cpp.
"""

import ctypes
import threading
from collections import Counter, deque
from collections.abc import Collection
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama_cpp

from .....shared.errors import ModelNotFound
from ...adapter import AdapterUse, adapter_uses
from ...model_error import ModelError
from ...sequence import SequenceId
from ..log import route_log
from .parts import PART_BYTES, parts_of

Turn = AbstractContextManager[object]
"""The turn of a thread that computes with the model: no step runs within it."""


class Adapters:
    """The adapters of a model, by digest.

    `model` is llama.cpp's handle. `guard` is held while the model's list of adapters changes, and
    while a context is made. A thread that needs both `guard` and a turn takes `guard` first.
    `open` and `close` may be called at any time.
    """

    def __init__(self, model: Any, guard: threading.Lock, part_bytes: int = PART_BYTES) -> None:
        self._model = model
        self._guard = guard
        self._part_bytes = part_bytes
        self._lock = threading.Lock()  # of what follows
        self._handles: dict[str, list[Any]] = {}  # of each adapter's parts
        self._available: set[str] = set()
        self._used: dict[SequenceId, tuple[AdapterUse, ...]] = {}
        self._users: Counter[str] = Counter()
        self._applied: str | None = None
        self._unneeded: deque[Any] = deque()  # handles of parts that are not needed any more

    @property
    def digests(self) -> frozenset[str]:
        """The digests of all loaded adapters."""
        return frozenset(self._handles)

    def load(self, digest: str, path: Path, turn: Turn) -> None:
        """Load the adapter at `path`, unless it is loaded. Raises `ModelError`."""
        with self._lock:
            if digest in self._handles:
                self._available.add(digest)
                return
        handles = self._read(path, turn)
        with self._lock:
            self._handles[digest] = handles
            self._available.add(digest)

    def keep(self, digests: Collection[str], turn: Turn) -> None:
        """Make only these adapters available; free the others once they are unused."""
        with self._lock:
            self._available.intersection_update(digests)
        self._retire()
        while self._unneeded:
            with self._guard, turn:
                self._free_one()

    def open(self, id: SequenceId, key: str | None) -> None:
        """Reserve the adapters of `key` for sequence `id`. Raises `ModelNotFound`."""
        if key is None:
            return
        uses = adapter_uses(key)
        with self._lock:
            if any(use.digest not in self._available for use in uses):
                raise ModelNotFound("the adapter of this request was just unloaded")
            self._used[id] = uses
            self._users.update(use.digest for use in uses)

    def close(self, id: SequenceId) -> None:
        """Release the adapters of sequence `id`, if it uses any."""
        with self._lock:
            for use in self._used.pop(id, ()):
                self._users[use.digest] -= 1

    def apply(self, context: Any, key: str | None) -> None:
        """Select the adapters of `key` for the next batches of `context`, always the same context.

        Before the selection, one part of the unused adapters is freed.
        """
        self._collect()
        if key == self._applied:
            return
        parts = [
            (handle, use.scale) for use in adapter_uses(key) for handle in self._handles[use.digest]
        ]
        handles = (llama_cpp.llama_adapter_lora_p_ctypes * len(parts))(*(one for one, _ in parts))
        scales = (ctypes.c_float * len(parts))(*(scale for _, scale in parts))
        if llama_cpp.llama_set_adapters_lora(context, handles, len(parts), scales) != 0:
            raise RuntimeError(f"llama.cpp refused the adapters {key}")
        self._applied = key

    def _collect(self) -> None:
        """Free one part. If a context is being made, do nothing: the next step frees the part."""
        if len(self._available) < len(self._handles):
            self._retire()
        if self._unneeded and self._guard.acquire(blocking=False):
            try:
                self._free_one()
            finally:
                self._guard.release()

    def _retire(self) -> None:
        """Queue adapters to be freed if they are neither available, nor used, nor selected."""
        applied = {use.digest for use in adapter_uses(self._applied)}
        with self._lock:
            idle = [
                digest
                for digest in self._handles
                if digest not in self._available
                and not self._users[digest]
                and digest not in applied
            ]
            for digest in idle:
                self._unneeded.extend(self._handles.pop(digest))
                del self._users[digest]

    def _free_one(self) -> None:
        if self._unneeded:
            llama_cpp.llama_adapter_lora_free(self._unneeded.popleft())

    def _read(self, path: Path, turn: Turn) -> list[Any]:
        """Load all parts of the file at `path`, or none. Raises `ModelError`."""
        handles: list[Any] = []
        try:
            with closing(parts_of(path, self._part_bytes)) as parts:
                for part in parts:
                    handles.append(self._load(part, path, turn))
        except (ModelError, OSError) as error:
            for handle in handles:
                with self._guard, turn:
                    llama_cpp.llama_adapter_lora_free(handle)
            if isinstance(error, OSError):
                reason = f"{error.filename or path} cannot be read: {error.strerror}"
                raise _unusable(path, reason) from error
            raise
        return handles

    def _load(self, part: Path, path: Path, turn: Turn) -> Any:
        with self._guard, turn, route_log().hold_errors() as errors:
            handle = llama_cpp.llama_adapter_lora_init(self._model, bytes(part))
        if not handle:
            reason = errors[0].split(": ", 1)[-1] if errors else "llama.cpp gave no reason"
            raise _unusable(path, reason)
        if llama_cpp.llama_adapter_get_alora_n_invocation_tokens(handle):
            with self._guard, turn:
                llama_cpp.llama_adapter_lora_free(handle)
            raise ModelError(
                f"adapter file {path} is an activated LoRA, which applies only after certain "
                "tokens: only plain LoRA adapters are supported"
            )
        return handle


def _unusable(path: Path, reason: str) -> ModelError:
    return ModelError(f"adapter file {path} cannot be used with this model: {reason}")
