"""Tools that all batches of a runner share."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from ..fleet.caller import Caller
from ..store.jobs import JobStore
from .batch import BatchCaller
from .batches import Batches
from .blobs import Blobs
from .files import Files
from .lines import Answered, Line
from .results import Spool
from .schedule import Schedule

LEASE = 15.0
"""Seconds after which a lease on a batch ends, unless the runner renews the lease."""

RECHECK = LEASE / 3
"""Seconds between two looks for changes by other balancers."""

HandleLine = Callable[[Line, Caller], Awaitable[Answered]]
"""Answers a line as the line's path would. An error is an answer, too. See `LineHandlers`."""


@dataclass(slots=True)
class Ended:
    """The number of lines that have got a result since the start."""

    num_completed: int = 0
    num_failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The tools of a runner.

    `runner` is the name of this balancer in leases. `scratch` is the folder of this balancer.
    """

    runner: str
    store: JobStore
    blobs: Blobs
    files: Files
    batches: Batches
    spool: Spool
    scratch: Path
    schedule: Schedule
    ended: Ended
    checking: asyncio.Semaphore
    """Limits how many inputs are checked at once."""
    handle_line: HandleLine
    caller_of: Callable[[BatchCaller], Caller | None]
    """Returns the caller that made a batch; `None` if the key of the caller is no longer valid."""
    has_room: Callable[[str], bool]
    """Returns whether a batch may load more lines."""
    model_may_come: Callable[[str | None], bool]
    """Returns whether an unknown model may become known."""
    pump: Callable[[], None]
    """Starts the lines that may run now."""
    clock: Callable[[], float]
