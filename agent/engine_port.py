"""What the daemon needs of an engine; `engine.worker.Worker` is one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from .engine.fair_lock import FairLock
from .engine.load_options import LoadOptions
from .engine.loaded_model import LoadedModel
from .engine.prompt import Prompt
from .engine.prompt_store.stored_prompt import StoredPrompt
from .engine.sequence import NewSequence, SequenceId, SequenceOutput
from .engine.statistics import EngineStatistics, Gone


class EngineWorker(Protocol):
    """What the daemon needs of the engine; see `engine.worker.Worker`."""

    lock: FairLock

    def start(self) -> LoadedModel: ...
    def stop(self) -> None: ...
    def expect(self, sequence_id: SequenceId, *, is_background: bool) -> None: ...
    def forget(self, sequence_id: SequenceId) -> None: ...
    def submit(self, sequence: NewSequence) -> None: ...
    def finish(self, sequence_id: SequenceId) -> None: ...
    def drop(self, sequence_id: SequenceId) -> None: ...
    def hand_out(
        self, prompt: Prompt, reply: Callable[[StoredPrompt | None], None]
    ) -> Callable[[], None]: ...
    def use_adapters(self, files: Mapping[str, Path]) -> None: ...
    def statistics(self) -> EngineStatistics: ...
    def current_step(self) -> int | None: ...
    def has_room(self) -> bool: ...
    def draft_failure(self) -> str | None: ...
    def take_evicted(self, most: int) -> Gone: ...


class MakeWorker(Protocol):
    """Makes a worker without starting it; see `engine.worker.Worker`."""

    def __call__(
        self,
        model_path: Path,
        options: LoadOptions,
        *,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
        on_change: Callable[[], None],
    ) -> EngineWorker: ...
