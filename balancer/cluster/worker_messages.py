"""Messages between a parent and its workers: lines of JSON, over two pipes."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from ...shared.strict import LAZY
from .peer_store import Beat, Peer

MOST_BYTES = 1024 * 1024
"""Maximum bytes of one line."""


@dataclass(frozen=True, slots=True)
class Living:
    """To a worker: the runs of all workers that serve now, including its own."""

    runs: tuple[str, ...]
    type: Literal["living"] = "living"


@dataclass(frozen=True, slots=True)
class Stop:
    """To a worker: finish the running work, and end."""

    type: Literal["stop"] = "stop"


@dataclass(frozen=True, slots=True)
class Peers:
    """To a worker, in answer to its beat: the workers that have reported themselves."""

    id: int
    peers: tuple[Peer, ...]
    type: Literal["peers"] = "peers"


@dataclass(frozen=True, slots=True)
class Granted:
    """The answer to a worker that asked to lead: its epoch, or `None` if another worker leads."""

    id: int
    epoch: int | None
    type: Literal["granted"] = "granted"


@dataclass(frozen=True, slots=True)
class Ready:
    """To the parent: this worker serves at these addresses."""

    facts: dict[str, str]
    type: Literal["ready"] = "ready"


@dataclass(frozen=True, slots=True)
class Beating:
    """To the parent: the worker's report about itself."""

    id: int
    beat: Beat
    type: Literal["beating"] = "beating"


@dataclass(frozen=True, slots=True)
class Lead:
    """To the parent: let this worker lead, in an epoch above this one."""

    id: int
    above: int
    type: Literal["lead"] = "lead"


@dataclass(frozen=True, slots=True)
class Leave:
    """To the parent: this worker no longer leads, and reports nothing more about itself."""

    type: Literal["leave"] = "leave"


@dataclass(frozen=True, slots=True)
class Spread:
    """To the parent, and from it to all workers: notifications, encoded."""

    news: tuple[str, ...]
    type: Literal["spread"] = "spread"


@dataclass(frozen=True, slots=True)
class Refresh:
    """To a worker: read certificates and key files again, and open the log again."""

    type: Literal["refresh"] = "refresh"


ToWorker = Living | Stop | Refresh | Peers | Granted | Spread
ToParent = Ready | Beating | Lead | Leave | Spread

_TO_WORKER: TypeAdapter[ToWorker] = TypeAdapter(
    Annotated[ToWorker, Field(discriminator="type")], config=LAZY
)
_TO_PARENT: TypeAdapter[ToParent] = TypeAdapter(
    Annotated[ToParent, Field(discriminator="type")], config=LAZY
)


def encode(message: ToWorker | ToParent) -> bytes:
    """Return a message as one line."""
    adapter: TypeAdapter[ToWorker] | TypeAdapter[ToParent] = (
        _TO_WORKER if isinstance(message, ToWorker) else _TO_PARENT
    )
    return adapter.dump_json(message) + b"\n"  # type: ignore[arg-type]


def decode_to_worker(line: bytes) -> ToWorker:
    """Return the message in a line. Raises `ValueError`."""
    return _TO_WORKER.validate_json(line)


def decode_to_parent(line: bytes) -> ToParent:
    """Return the message in a line. Raises `ValueError`."""
    return _TO_PARENT.validate_json(line)
