"""The port to what computes the worker's steps; llama.cpp's is `llama.engine`."""

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from .capacity import Capacity
from .draft_model import DraftModel
from .load_options import LoadOptions
from .loaded_model import LoadedModel
from .sequence import NewSequence, SequenceId
from .step import Outcome, Step


class Engine(Protocol):
    """An engine, which belongs to the thread that loaded it.

    The adapters' methods, `open` and `close` may be called on any thread.
    """

    @property
    def model(self) -> LoadedModel: ...

    @property
    def capacity(self) -> Capacity: ...

    @property
    def draft_model(self) -> DraftModel | None: ...

    def open(self, sequence: NewSequence) -> None:
        """Prepare to choose tokens for `sequence`.

        This may take a while, since the whole prompt is read. Raises `RequestError` if the
        sequence's adapter is missing.
        """

    def failure(self, sequence_id: SequenceId) -> str | None:
        """Return why an open sequence's tokens are no valid answer; `None` if they are valid."""

    def close(self, sequence_id: SequenceId) -> None:
        """Forget what `open` prepared, if anything."""

    def execute(self, step: Step) -> Outcome:
        """Edit the cells, decode, and choose tokens. The worker plans nothing during the call.

        If no token can be chosen for a sequence, the error is logged and the sequence is `broken`.
        """

    def stop(self, is_wanted: bool) -> None:
        """Abort the running step if possible (`Aborted`), until this is called with `False`.

        Thread-safe.
        """

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Set the threads for steps of one token, and for larger steps, from now on.

        If results depend on the number of threads and must be deterministic, the engine keeps its
        threads.
        """

    def load_adapter(self, digest: str, path: Path, turn: AbstractContextManager[object]) -> None:
        """Load the adapter at `path`, whose file has this `digest`; raises `ModelError`.

        Like `keep_adapters`, this may be called on any thread, but only on one at a time. The call
        takes the steps' `turn` repeatedly, each time briefly. The file is read without the turn.
        """

    def keep_adapters(self, digests: Collection[str], turn: AbstractContextManager[object]) -> None:
        """Unload all other adapters, as soon as no open sequence uses them."""

    def free(self) -> None:
        """Free everything; nothing may be called afterwards."""


class LoadEngine(Protocol):
    """Loads the model file at `path` with `options`. Raises `ModelError`.

    If the model does not allow drafts, it is loaded without drafts, and a warning is logged.
    `beside` maps each device and the host to the bytes that other engines use there or may still
    take.
    """

    def __call__(
        self, path: Path, options: LoadOptions, beside: Mapping[str, int] = {}
    ) -> Engine: ...
