"""When clients that wait are told about it: at most once a second each, when something changed.

Every request in the queue moves when one leaves it. So nobody is told at the change: each one that
listens is looked at once a second, and a pass looks at `MAX_PER_PASS` of them at most. With so many
waiting that a second does not suffice, each is told less often. While nobody listens there is
nothing to do.

Invariants: whoever is due waits and listens; a client is told the same again only after
`REPEAT_AFTER`.
"""

from dataclasses import dataclass
from math import inf

from ....shared.inference import RequestId, Waiting
from ..priority_queue import PriorityQueue

LOOK_PAUSE = 1.0
"""Seconds between two looks at one request."""

REPEAT_AFTER = 15.0
"""Seconds after which a client is told the same again, so that proxies see the stream alive."""

PASS_PAUSE = 0.1
MAX_PER_PASS = 100
"""A pass takes about a millisecond, so telling all costs one part in a hundred of the loop."""


@dataclass(slots=True)
class _Listener:
    after: float
    told: Waiting | None = None
    told_at: float = -inf


class WaitingNews:
    """A request listens from `listens` to `forget`, and waits in between once or several times."""

    __slots__ = ("_due", "_listeners", "_rests_until")

    def __init__(self) -> None:
        self._listeners: dict[RequestId, _Listener] = {}
        self._due: PriorityQueue[RequestId, float] = PriorityQueue()
        self._rests_until = -inf

    def listens(self, id: RequestId, after: float) -> None:
        """The client of `id` is told about waits that take longer than `after` seconds."""
        self._listeners[id] = _Listener(after)

    def forget(self, id: RequestId) -> None:
        """It has ended."""
        self.starts(id)
        self._listeners.pop(id, None)

    def waits(self, id: RequestId, now: float) -> None:
        """It waits, if it listens, for the first time or again."""
        if (listener := self._listeners.get(id)) is not None:
            listener.told = None
            self._due.set(id, max(now + listener.after, listener.told_at + LOOK_PAUSE))

    def starts(self, id: RequestId) -> None:
        """It waits no more, if it did."""
        if id in self._due:
            self._due.remove(id)

    def next_deadline(self) -> float | None:
        """When to call `due`."""
        first = self._due.first()
        return None if first is None else max(first[0], self._rests_until)

    def due(self, now: float) -> list[RequestId]:
        """Requests to look at: call `is_news` for each of them."""
        if now < self._rests_until:
            return []
        ids: list[RequestId] = []
        while len(ids) < MAX_PER_PASS and (first := self._due.first()) and first[0] <= now:
            ids.append(first[1])
            self._due.remove(first[1])
        if ids:
            self._rests_until = now + PASS_PAUSE
        return ids

    def is_news(self, id: RequestId, waiting: Waiting, now: float) -> bool:
        """Whether to tell the client this; the next look comes in a second."""
        listener = self._listeners[id]
        self._due.set(id, now + LOOK_PAUSE)
        if waiting == listener.told and now < listener.told_at + REPEAT_AFTER:
            return False
        listener.told, listener.told_at = waiting, now
        return True

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._due.check_integrity()
        if any(id not in self._listeners for id in self._due):
            raise RuntimeError("somebody is due who does not listen")
