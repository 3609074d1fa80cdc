"""The reads of this agent's log that wait until something is logged.

Invariant: at most `MAX_WAITS`.
"""

from ...shared.inference import RequestId
from .decisions import TellLog

MAX_WAITS = 64
"""Most that one balancer may have wait; those beyond are answered at once, with no lines."""


class LogWaits:
    """Of one balancer: by id, the number after which lines are wanted."""

    def __init__(self) -> None:
        self._after: dict[RequestId, int] = {}

    def __len__(self) -> int:
        return len(self._after)

    def __contains__(self, id: object) -> bool:
        return id in self._after

    def add(self, id: RequestId, after: int) -> None:
        """It waits, if there is room."""
        if len(self._after) < MAX_WAITS:
            self._after[id] = after

    def discard(self, id: RequestId) -> None:
        """It is answered, or nobody wants the answer."""
        self._after.pop(id, None)

    def clear(self) -> None:
        """The balancer is gone."""
        self._after.clear()

    def reads(self) -> list[TellLog]:
        """Something was logged: all of them may be answered now."""
        return [TellLog(id, after) for id, after in self._after.items()]
