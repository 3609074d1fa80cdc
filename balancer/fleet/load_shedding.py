"""Load shedding: requests are refused, or dropped, when the queue is full or would be too slow.

This is the only place of the balancer that says `queue_full`: `refusal_of`. Requests and queries
ask it with what they know of a wait.

A newcomer is refused when as many wait as may. But when the queue is full, the caller with most
waiting loses the newest of them, if it has more than the newcomer's caller would have then. Among
the connections of one caller the same holds. So no caller fills the queue for others, and none that
asks for little is refused because others ask for much. What a caller sent with lower priority goes
before what the same caller sends with higher.

Deadline admission: a newcomer is also refused when, for all that is known, it would wait too long.
"""

from dataclasses import dataclass
from math import inf
from typing import Literal

from ...shared.errors import QueueFull
from ...shared.inference import PRIORITY_CLASSES, PriorityClass, RequestId
from .caller import Account, Flow
from .shares import Amounts

RETRY_AFTER = 1.0
"""Seconds after which a client that found the queue full may try again, if no more is known."""

LONGEST_ADMITTED = 3.0
"""A newcomer is refused when it would wait longer than so many times what it may wait."""

ENOUGH = 10
"""Requests of a model that have ended before newcomers are refused because of how long it took."""

ENOUGH_FOR_DEADLINE = 3
"""Requests that have ended before newcomers with a deadline of their own are refused."""

PLURALS = {"request": "requests", "query": "queries"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """What is known of the wait of a newcomer that no agent starts at once.

    `num_before` wait already, of `most` that may; it has this `position` among them. It gets a slot
    in about `seconds`, 0 where that is not known, and may wait `longest` seconds; after
    `deadline_ms` its answer is of no use. One that `has_to_go` waited, and others with less in the
    queue did not find room.
    """

    num_before: int = 0
    most: float = inf
    one: Literal["request", "query"] = "request"
    position: int | None = None
    seconds: float = 0.0
    longest: float = inf
    deadline_ms: int | None = None
    has_to_go: bool = False
    retry_after: float = RETRY_AFTER

    @property
    def is_full(self) -> bool:
        """Whether as many wait as may."""
        return self.num_before >= self.most

    @property
    def is_after_deadline(self) -> bool:
        """Whether its answer would be of no use any more."""
        return self.deadline_ms is not None and self.seconds * 1000 > self.deadline_ms

    @property
    def is_too_long(self) -> bool:
        """Whether it would wait far longer than it may."""
        return self.seconds > LONGEST_ADMITTED * self.longest


def refusal_of(wait: Wait) -> QueueFull | None:
    """Why it may not wait, or not any longer; `None` if it may."""
    field, retry_after, position = None, wait.retry_after, wait.position
    if wait.has_to_go:
        why = "the queue is full, and its caller has most in it: others were let in"
    elif wait.is_full and not wait.most and wait.one == "request":
        why = "no slot is free and queueing is off"
    elif wait.is_full:
        num, many = wait.num_before, PLURALS[wait.one]
        waiting = f"{num} {many} are" if num != 1 else f"1 {wait.one} is"
        why = f"{waiting} waiting, which is the limit"
    elif wait.is_after_deadline:
        field, retry_after = "deadline_ms", wait.seconds
        why = (
            f"`deadline_ms`: a slot is free in about {wait.seconds:.1f} s, at place {position}; "
            f"{wait.deadline_ms} ms are too few"
        )
    elif wait.is_too_long:
        why = (
            f"a slot would be free in about {wait.seconds:.0f} s, at place {position}; "
            f"requests wait {wait.longest:g} s at most"
        )
    else:
        return None
    return QueueFull(why, field=field, retry_after=retry_after, position=position)


def least_ended(deadline_ms: int | None) -> int:
    """Requests of a newcomer's model that must have ended before it may be refused."""
    return ENOUGH if deadline_ms is None else ENOUGH_FOR_DEADLINE


class _Caller:
    """What waits of one caller, by connection and class, oldest first."""

    __slots__ = ("ids", "sizes")

    def __init__(self) -> None:
        self.sizes: Amounts[Flow | None] = Amounts()
        self.ids: dict[tuple[Flow | None, PriorityClass], dict[RequestId, None]] = {}

    def newest(
        self, connection: Flow | None, kinds: tuple[PriorityClass, ...] = PRIORITY_CLASSES
    ) -> RequestId | None:
        """The newest of the lowest of these classes."""
        for kind in kinds:
            if ids := self.ids.get((connection, kind)):
                return next(reversed(ids))
        return None


class LoadShedding:
    """Which request is dropped for a newcomer: of the caller that has most in the queue.

    Only requests that never had an agent are: what comes back from one is never turned away.
    """

    __slots__ = ("_callers", "_places", "_sizes")

    def __init__(self) -> None:
        self._sizes: Amounts[Account] = Amounts()
        self._callers: dict[Account, _Caller] = {}
        self._places: dict[RequestId, tuple[Account, Flow | None, PriorityClass]] = {}

    @property
    def num_callers(self) -> int:
        """Callers of which requests wait."""
        return len(self._callers)

    def waits(
        self, id: RequestId, account: Account, connection: Flow | None, kind: PriorityClass
    ) -> None:
        """A newcomer waits."""
        caller = self._callers.setdefault(account, _Caller())
        caller.ids.setdefault((connection, kind), {})[id] = None
        caller.sizes.add(connection, 1)
        self._sizes.add(account, 1)
        self._places[id] = (account, connection, kind)

    def leaves(self, id: RequestId) -> None:
        """It waits no more, if it did."""
        if (place := self._places.pop(id, None)) is None:
            return
        account, connection, kind = place
        caller = self._callers[account]
        ids = caller.ids[connection, kind]
        del ids[id]
        if not ids:
            del caller.ids[connection, kind]
        caller.sizes.add(connection, -1)
        self._sizes.add(account, -1)
        if not caller.ids:
            del self._callers[account]

    def yields_to(
        self, account: Account, connection: Flow | None, kind: PriorityClass
    ) -> RequestId | None:
        """The request that has to go for such a newcomer; `None`: the newcomer has to."""
        own = self._callers.get(account)
        if own is not None:
            lower = own.newest(connection, PRIORITY_CLASSES[: PRIORITY_CLASSES.index(kind)])
            if lower is not None:
                return lower
        largest = self._sizes.largest()
        if largest is None:
            return None
        fullest = self._callers[largest]
        busiest = fullest.sizes.largest()
        if largest != account:
            has_more = self._sizes[largest] > self._sizes[account] + 1
        else:
            has_more = fullest.sizes[busiest] > fullest.sizes[connection] + 1
        return fullest.newest(busiest) if has_more else None

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        for account, caller in self._callers.items():
            num = sum(map(len, caller.ids.values()))
            if num != self._sizes[account] or not num:
                raise RuntimeError(f"{account} is miscounted")
            for connection in {connection for connection, _ in caller.ids}:
                of_it = sum(len(ids) for key, ids in caller.ids.items() if key[0] == connection)
                if of_it != caller.sizes[connection]:
                    raise RuntimeError(f"the connection {connection} is miscounted")
        self._sizes.check_integrity()
        if len(self._places) != self._sizes.total:
            raise RuntimeError("a request is counted that does not wait")
