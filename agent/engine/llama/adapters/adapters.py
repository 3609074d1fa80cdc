"""The adapters that are loaded beside a model, and which of them the next batch is computed with.

llama.cpp has them for a whole context: setting others costs a little (it plans its buffers anew),
setting the same ones nothing. An adapter stays as long as sequences use it that were opened while
it was there; it is freed before the steps that follow the last of them.

A model's list of adapters is read where a context is made and where a batch is decoded. So `load`
and `keep` take the turn that steps have wherever they change it, for a part of a file at a time
(`parts`): no step waits for more than that. A part is an adapter of llama.cpp's.
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
    """By digest. `model` is llama.cpp's; `guard` is held while its list of adapters changes.

    A thread that takes `guard` and a turn takes `guard` first, since it is also held while a
    context is made. `open` and `close` may be called any time.
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
        """The digests of the adapters that can be used."""
        return frozenset(self._handles)

    def load(self, digest: str, path: Path, turn: Turn) -> None:
        """Make the adapter at `path` available, unless it is. Raises `ModelError`."""
        with self._lock:
            if digest in self._handles:
                self._available.add(digest)
                return
        handles = self._read(path, turn)
        with self._lock:
            self._handles[digest] = handles
            self._available.add(digest)

    def keep(self, digests: Collection[str], turn: Turn) -> None:
        """Only these are available from now on."""
        with self._lock:
            self._available.intersection_update(digests)
        self._retire()
        while self._unneeded:
            with self._guard, turn:
                self._free_one()

    def open(self, id: SequenceId, key: str | None) -> None:
        """Sequence `id` is going to use the adapters of `key`. Raises `ModelNotFound`."""
        if key is None:
            return
        uses = adapter_uses(key)
        with self._lock:
            if any(use.digest not in self._available for use in uses):
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

        Before, one part is freed of the adapters that are not used any more.
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
            raise RuntimeError(f"llama.cpp did not take the adapters {key}")
        self._applied = key

    def _collect(self) -> None:
        """Free a part, unless a context is being made: then it is left for the next step."""
        if len(self._available) < len(self._handles):
            self._retire()
        if self._unneeded and self._guard.acquire(blocking=False):
            try:
                self._free_one()
            finally:
                self._guard.release()

    def _retire(self) -> None:
        """Let those go that are neither available nor used, nor set for the context."""
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
        """Load all parts of the file at `path`, or none."""
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
