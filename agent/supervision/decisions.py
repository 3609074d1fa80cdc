"""The assigner's decisions; the supervisor carries them out, in order."""

from dataclasses import dataclass
from typing import NewType

from ...shared.models.assignments import Assignment
from ...shared.reports.model_info import ModelInfo

EngineId = NewType("EngineId", int)
"""One engine, over all restarts of its process."""

FetchId = NewType("FetchId", int)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model's file on this host. `needed` is the memory in bytes that it takes when loaded.

    `info` is what its header says, for balancers, while it is being loaded. `projector` and
    `adapters` are the files of what is wished for beside it, the latter in the wish's order.
    """

    path: str
    needed: int | None = None
    info: ModelInfo | None = None
    projector: str | None = None
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fetch:
    """Bring the assignment's file here and read its header; report `fetched` or `fetch_failed`."""

    id: FetchId
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class CancelFetch:
    """Stop this fetch; nothing is reported of it any more."""

    id: FetchId


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Load the file in an engine process of its own. `None`: the model that the agent is pinned to.

    The process is started again when it crashes, until `EndEngine` or `RetireEngine`.
    """

    id: EngineId
    assignment: Assignment | None
    file: ModelFile | None


@dataclass(frozen=True, slots=True)
class DialBalancers:
    """The engine has loaded its model: it may connect. `takes_over`: from whoever is connected."""

    id: EngineId
    takes_over: bool


@dataclass(frozen=True, slots=True)
class ChangeEngine:
    """Serve this from now on, without a reload; the engine answers `changed`."""

    id: EngineId
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class RetireEngine:
    """Take nothing new, finish what runs within `drain_timeout` seconds, then end.

    `None`: within the agent's own `--drain-timeout`.
    """

    id: EngineId
    drain_timeout: float | None


@dataclass(frozen=True, slots=True)
class EndEngine:
    """End the process at once: it serves nothing."""

    id: EngineId


@dataclass(frozen=True, slots=True)
class Exit:
    """End the agent with this exit code. `complaint` was not logged yet."""

    code: int
    complaint: str | None = None


Decision = (
    Fetch
    | CancelFetch
    | StartEngine
    | DialBalancers
    | ChangeEngine
    | RetireEngine
    | EndEngine
    | Exit
)
