"""What the worker needs of whatever computes its steps; llama.cpp's is `llama.engine`."""

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
    """Belongs to the thread that loaded it.

    The adapters' methods, `open` and `close` may be called on any thread.
    """

    @property
    def model(self) -> LoadedModel: ...

    @property
    def capacity(self) -> Capacity: ...

    @property
    def draft_model(self) -> DraftModel | None: ...

    def open(self, sequence: NewSequence) -> None:
        """Prepare to choose tokens for `sequence`, whenever its steps come.

        This may take a while: the whole prompt is read. Raises `RequestError` where its adapter is
        not there.
        """

    def failure(self, sequence_id: SequenceId) -> str | None:
        """Why an open sequence's tokens are no valid answer; `None` if they are."""

    def close(self, sequence_id: SequenceId) -> None:
        """Forget what `open` prepared, if anything."""

    def execute(self, step: Step) -> Outcome:
        """Edit the cells, decode, choose. The worker plans nothing else meanwhile.

        Where nothing can be chosen for a sequence, that is logged and the sequence is `broken`.
        """

    def stop(self, is_wanted: bool) -> None:
        """Have the step that runs end as `Aborted`, if it can, until this is called with `False`.

        From any thread.
        """

    def use_threads(self, threads: int, threads_batch: int) -> None:
        """Compute with so many threads from now on, those with more than one token with the latter.

        Where numbers may depend on that and must not, it keeps those that it has.
        """

    def load_adapter(self, digest: str, path: Path, turn: AbstractContextManager[object]) -> None:
        """Load the adapter at `path`; raises `ModelError`. Its file has this `digest`.

        Like `keep_adapters` it may be called on any thread, one at a time. It takes the `turn` that
        steps have, again and again, and never for long; reading is done without it.
        """

    def keep_adapters(self, digests: Collection[str], turn: AbstractContextManager[object]) -> None:
        """Unload all other adapters, as soon as no open sequence uses them."""

    def free(self) -> None:
        """Give everything back; nothing may be called afterwards."""


class LoadEngine(Protocol):
    """Loads the model file at `path` as `options` say. Raises `ModelError`.

    Where the model does not allow drafts, it is loaded without, and that is logged. `beside` are
    the bytes that other engines have, or may take yet, of each device and of the host, by name.
    """

    def __call__(
        self, path: Path, options: LoadOptions, beside: Mapping[str, int] = {}
    ) -> Engine: ...
