"""Who has to go when the queue is full and somebody else wants in.

The caller with most waiting loses the newest of them, if it has more than the newcomer's caller
would have then. Among the connections of one caller the same holds. So nobody fills the queue for
others, and nobody who asks for little is refused because others ask for much. What a caller sent
with lower priority goes before what the same caller sends with higher.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

from .....shared.inference import PRIORITY_CLASSES, PriorityClass, RequestId
from ...caller import Account, Flow
from ...priority_queue import PriorityQueue

K = TypeVar("K", bound=Hashable)


class _Sizes(Generic[K]):
    """How many each group has, and the largest of them."""

    __slots__ = ("_by_size", "_groups", "_num_groups", "_numbers")

    def __init__(self) -> None:
        self._numbers: dict[K, int] = {}
        self._groups: dict[int, K] = {}
        self._by_size: PriorityQueue[int, float] = PriorityQueue()
        self._num_groups = 0

    def __getitem__(self, group: K) -> int:
        number = self._numbers.get(group)
        return 0 if number is None else -int(self._by_size.get(number) or 0)

    def __len__(self) -> int:
        return len(self._numbers)

    def add(self, group: K, amount: int) -> None:
        """Count one more, or one less."""
        size = self[group] + amount
        number = self._numbers.get(group)
        if number is None:
            self._num_groups += 1
            number = self._numbers[group] = self._num_groups
            self._groups[number] = group
        if size:
            self._by_size.set(number, -float(size))
        else:
            self._by_size.remove(number)
            del self._numbers[group], self._groups[number]

    def largest(self) -> K | None:
        """The group that has most; of several the one that was here first."""
        first = self._by_size.first()
        return None if first is None else self._groups[first[1]]


class _Caller:
    """What waits of one caller, by connection and class, oldest first."""

    __slots__ = ("ids", "sizes")

    def __init__(self) -> None:
        self.sizes: _Sizes[Flow | None] = _Sizes()
        self.ids: dict[tuple[Flow | None, PriorityClass], dict[RequestId, None]] = {}

    def newest(
        self, connection: Flow | None, kinds: tuple[PriorityClass, ...] = PRIORITY_CLASSES
    ) -> RequestId | None:
        """The newest of the lowest of these classes."""
        for kind in kinds:
            if ids := self.ids.get((connection, kind)):
                return next(reversed(ids))
        return None


class Crowding:
    """Those that wait and never had an agent: what comes back is never turned away."""

    __slots__ = ("_callers", "_places", "_sizes")

    def __init__(self) -> None:
        self._sizes: _Sizes[Account] = _Sizes()
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
        crowd = self._callers[largest]
        busiest = crowd.sizes.largest()
        if largest != account:
            has_more = self._sizes[largest] > self._sizes[account] + 1
        else:
            has_more = crowd.sizes[busiest] > crowd.sizes[connection] + 1
        return crowd.newest(busiest) if has_more else None

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
        if len(self._places) != sum(self._sizes[account] for account in self._callers):
            raise RuntimeError("somebody is counted who does not wait")
