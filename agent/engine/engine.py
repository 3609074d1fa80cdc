"""What the worker needs of whatever computes its steps; llama.cpp's is `llama.engine`."""

from pathlib import Path
from typing import Protocol

from .loaded_model import LoadedModel
from .sequence import NewSequence, SequenceId
from .step import Outcome, Step


class Engine(Protocol):
    """Belongs to the thread that loaded it."""

    @property
    def model(self) -> LoadedModel: ...

    @property
    def batch_size(self) -> int:
        """Most tokens of one step."""

    def open(self, sequence: NewSequence) -> None:
        """Prepare to choose tokens for `sequence`, whenever its steps come."""

    def close(self, sequence_id: SequenceId) -> None:
        """Forget what `open` prepared."""

    def execute(self, step: Step) -> Outcome:
        """Clear, decode, choose. The worker plans nothing else meanwhile."""

    def free(self) -> None:
        """Give everything back; nothing may be called afterwards."""


class LoadEngine(Protocol):
    """Loads a model file for `slots` sequences of `context_size` tokens. Raises `ModelError`."""

    def __call__(
        self, path: Path, *, slots: int, context_size: int, threads: int, gpu_layers: int
    ) -> Engine: ...
