"""Who waits for the lines of an agent's log.

Invariant: at most `MAX_READS`, each until its lines came or its reader has gone.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ....shared.errors import AgentLost, RateLimited
from ....shared.inference import RequestId
from ....shared.messages import LogRead
from ....shared.reports.log_lines import LogLine

MAX_READS = 64
"""Operators who may wait at once."""

PATIENCE = 5.0
"""Seconds that an agent has for its answer."""

Lines = tuple[LogLine, ...]


class LogReads:
    """The readers that wait, by the id of what they asked for."""

    def __init__(self) -> None:
        self._waiting: dict[RequestId, asyncio.Future[Lines]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @contextmanager
    def expect(self, id: RequestId) -> Iterator[asyncio.Future[Lines]]:
        """The lines that will come for `id`, while inside. Raises `RateLimited`."""
        if len(self._waiting) >= MAX_READS:
            raise RateLimited(f"{MAX_READS} readers wait for agents' logs already")
        future = self._waiting[id] = asyncio.get_running_loop().create_future()
        try:
            yield future
        finally:
            del self._waiting[id]

    def lost(self, ids: Iterable[RequestId]) -> None:
        """The agent of these has gone."""
        for id in ids:
            if (future := self._waiting.get(id)) is not None and not future.done():
                future.set_exception(AgentLost("the agent has gone"))

    def read(self, message: LogRead) -> None:
        """An agent sent lines; ignored if nobody waits for them any more."""
        future = self._waiting.get(message.id)
        if future is not None and not future.done():
            future.set_result(tuple(message.lines))
