"""The assigner's decisions; the supervisor carries them out, in order."""

from dataclasses import dataclass
from typing import NewType

from ...shared.models.assignments import Assignment
from ..models.model_file import ModelFile

EngineId = NewType("EngineId", int)
"""One engine, across all restarts of its process."""

FetchId = NewType("FetchId", int)


@dataclass(frozen=True, slots=True)
class FetchModel:
    """Fetch the assignment's file and read its header; report `fetched` or `fetch_failed`.

    If `beside` is given, that file is loaded already: fetch only the adapters that it lacks, and
    report it with them.
    """

    id: FetchId
    assignment: Assignment
    beside: ModelFile | None = None


@dataclass(frozen=True, slots=True)
class CancelFetch:
    """Stop this fetch; it reports nothing more."""

    id: FetchId


@dataclass(frozen=True, slots=True)
class StartEngine:
    """Load the file in a new engine process.

    `assignment` and `file` are `None` for the model to which the agent is pinned. The process is
    restarted after a crash, until `EndEngine` or `RetireEngine`.
    """

    id: EngineId
    assignment: Assignment | None
    file: ModelFile | None


@dataclass(frozen=True, slots=True)
class DialBalancers:
    """Let the engine connect: it has loaded its model.

    `takes_over`: its connections replace those of the connected process.
    """

    id: EngineId
    takes_over: bool


@dataclass(frozen=True, slots=True)
class ChangeEngine:
    """Let the engine serve this assignment without a reload; the engine answers `changed`.

    `adapters` are the paths of the assignment's adapters, in its order.
    """

    id: EngineId
    assignment: Assignment
    adapters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RetireEngine:
    """Let the engine accept no new requests, finish within `drain_timeout` seconds, then end.

    A `drain_timeout` of `None` means the agent's own `--drain-timeout`.
    """

    id: EngineId
    drain_timeout: float | None


@dataclass(frozen=True, slots=True)
class RecallEngine:
    """Let a retired engine accept requests again. If the engine has ended already, `ended`
    follows.
    """

    id: EngineId


@dataclass(frozen=True, slots=True)
class RestartEngine:
    """Retire the engine's process, then start its next one. A pause after a crash is cut short."""

    id: EngineId
    drain_timeout: float


@dataclass(frozen=True, slots=True)
class EndEngine:
    """End the process at once, because the engine serves nothing."""

    id: EngineId


@dataclass(frozen=True, slots=True)
class Exit:
    """End the agent with this exit code. `complaint` is an error that was not logged yet."""

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
