"""Load shedding: chooses the request that a full queue drops for a new request.

A full queue drops the newest request of the caller with most waiting requests, if this caller then
still has more than the new request's caller. The same rule applies to the connections of a caller
without a key. So a caller with few requests is not refused because other callers send many.

Among the requests of one caller, those of a lower priority class are dropped first.
"""

from collections.abc import Hashable, Iterable
from typing import Generic

from .....shared.inference import PRIORITY_CLASSES, PriorityClass
from ...caller import Account
from ...shares import Amounts
from ..request import D


class _Caller(Generic[D]):
    """The waiting requests of one caller by connection and class, oldest first."""

    __slots__ = ("sizes", "waiting")

    def __init__(self) -> None:
        self.sizes: Amounts[Hashable] = Amounts()
        self.waiting: dict[tuple[Hashable, PriorityClass], dict[D, None]] = {}

    def newest(
        self, connection: Hashable, kinds: tuple[PriorityClass, ...] = PRIORITY_CLASSES
    ) -> D | None:
        """Return a connection's newest request in its lowest class among `kinds`, or `None`."""
        for kind in kinds:
            if waiting := self.waiting.get((connection, kind)):
                return next(reversed(waiting))
        return None


class LoadShedding(Generic[D]):
    """Chooses the request to drop for a new request, from the caller with most waiting requests.

    Only requests that have never had an agent are dropped.
    """

    __slots__ = ("_callers", "_sizes")

    def __init__(self) -> None:
        self._sizes: Amounts[Account] = Amounts()
        self._callers: dict[Account, _Caller[D]] = {}

    @property
    def num_callers(self) -> int:
        """The number of callers with waiting requests."""
        return len(self._callers)

    def waits(self, request: D) -> None:
        """Add a new waiting request."""
        account, connection = request.account, request.flow
        caller = self._callers.get(account)
        if caller is None:
            caller = self._callers[account] = _Caller()
        caller.waiting.setdefault((connection, request.kind), {})[request] = None
        caller.sizes.add(connection, 1)
        self._sizes.add(account, 1)
        request.may_be_dropped = True

    def leaves(self, request: D) -> None:
        """Remove a request if it is in this collection."""
        if not request.may_be_dropped:
            return
        request.may_be_dropped = False
        account, connection = request.account, request.flow
        caller, key = self._callers[account], (connection, request.kind)
        del caller.waiting[key][request]
        if not caller.waiting[key]:
            del caller.waiting[key]
        caller.sizes.add(connection, -1)
        self._sizes.add(account, -1)
        if not caller.waiting:
            del self._callers[account]

    def yields_to(self, newcomer: D) -> D | None:
        """Return the request to drop for `newcomer`, or `None` if `newcomer` must be refused."""
        account, connection, kind = newcomer.account, newcomer.flow, newcomer.kind
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

    def check_integrity(self, waiting: Iterable[D]) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method.

        `waiting` are all waiting requests.
        """
        self._sizes.check_integrity()
        lists = [each for caller in self._callers.values() for each in caller.waiting.values()]
        known = {request for each in lists for request in each}
        if known != {request for request in waiting if request.may_be_dropped}:
            raise RuntimeError("a request may be dropped that does not wait, or is not known")
        if len(known) != self._sizes.total or not all(lists):
            raise RuntimeError("requests that may be dropped are miscounted")
