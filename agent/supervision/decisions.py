"""The assigner's decisions; the supervisor carries them out, in order."""

from dataclasses import dataclass
from typing import NewType

from ...shared.models.assignments import Assignment
from ..models.model_file import ModelFile

EngineId = NewType("EngineId", int)
"""One engine, over all restarts of its process."""

FetchId = NewType("FetchId", int)


@dataclass(frozen=True, slots=True)
class FetchModel:
    """Bring the assignment's file here and read its header; report `fetched` or `fetch_failed`.

    `beside` is loaded already: bring only the adapters that it does not have, and report it with
    them.
    """

    id: FetchId
    assignment: Assignment
    beside: ModelFile | None = None


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
    """The engine has loaded its model: it may connect.

    `takes_over`: from the process that is connected.
    """

    id: EngineId
    takes_over: bool


@dataclass(frozen=True, slots=True)
class ChangeEngine:
    """Serve this from now on, without a reload; the engine answers `changed`.

    `adapters` are the paths of its adapters, in its order.
    """

    id: EngineId
    assignment: Assignment
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetireEngine:
    """Take nothing new, finish what runs within `drain_timeout` seconds, then end.

    `None`: within the agent's own `--drain-timeout`.
    """

    id: EngineId
    drain_timeout: float | None


@dataclass(frozen=True, slots=True)
class RecallEngine:
    """It was retired: take new requests after all. It `ended` if it had finished before."""

    id: EngineId


@dataclass(frozen=True, slots=True)
class RestartEngine:
    """As `RetireEngine`, but then its next process starts. A pause after a crash is cut short."""

    id: EngineId
    drain_timeout: float


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
    FetchModel
    | CancelFetch
    | StartEngine
    | DialBalancers
    | ChangeEngine
    | RetireEngine
    | RecallEngine
    | RestartEngine
    | EndEngine
    | Exit
)
