"""What the daemon needs of an engine; `engine.worker.Worker` is one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, Protocol

from ..shared.reports.model_info import Kernels, KvLayout
from .engine.fair_lock import FairLock
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
    def take_evicted(self, most: int) -> Gone: ...


class MakeWorker(Protocol):
    """Makes a worker without starting it; see `engine.worker.Worker`."""

    def __call__(
        self,
        model_path: Path,
        *,
        slots: int,
        context_size: int,
        kv_cells: int | None,
        kv_layout: Literal["auto"] | KvLayout,
        host_cache: int,
        threads: int,
        max_stall: float,
        gpu_layers: int,
        kernels: Literal["auto"] | Kernels,
        speculate: int,
        projector: Path | None,
        draft_model: Path | None,
        deterministic: bool,
        on_step: Callable[[tuple[SequenceOutput, ...]], None],
        on_crash: Callable[[BaseException], None],
    ) -> EngineWorker: ...
