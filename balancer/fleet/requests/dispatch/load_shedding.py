"""Load shedding: which request a full queue drops for a newcomer.

When the queue is full, the caller with most
waiting loses the newest of them, if it has more than the newcomer's caller would have then. Among
the connections of one caller the same holds. So no caller fills the queue for others, and none that
asks for little is refused because others ask for much. What a caller sent with lower priority goes
before what the same caller sends with higher.
"""

from collections.abc import Iterable

from .....shared.inference import PRIORITY_CLASSES, PriorityClass
from ...caller import Account, Flow
from ...shares import Amounts
from ..request import Request


class _Caller:
    """What waits of one caller, by connection and class, oldest first."""

    __slots__ = ("sizes", "waiting")

    def __init__(self) -> None:
        self.sizes: Amounts[Flow | None] = Amounts()
        self.waiting: dict[tuple[Flow | None, PriorityClass], dict[Request, None]] = {}

    def newest(
        self, connection: Flow | None, kinds: tuple[PriorityClass, ...] = PRIORITY_CLASSES
    ) -> Request | None:
        """The newest of the lowest of these classes."""
        for kind in kinds:
            if waiting := self.waiting.get((connection, kind)):
                return next(reversed(waiting))
        return None


class LoadShedding:
    """Which request is dropped for a newcomer: of the caller that has most in the queue.

    Only requests that never had an agent are: what comes back from one is never turned away.
    """

    __slots__ = ("_callers", "_sizes")

    def __init__(self) -> None:
        self._sizes: Amounts[Account] = Amounts()
        self._callers: dict[Account, _Caller] = {}

    @property
    def num_callers(self) -> int:
        """Callers of which requests wait."""
        return len(self._callers)

    def waits(self, request: Request) -> None:
        """A newcomer waits."""
        account, connection = request.account, request.caller.flow
        caller = self._callers.get(account)
        if caller is None:
            caller = self._callers[account] = _Caller()
        caller.waiting.setdefault((connection, request.kind), {})[request] = None
        caller.sizes.add(connection, 1)
        self._sizes.add(account, 1)
        request.may_be_dropped = True

    def leaves(self, request: Request) -> None:
        """It waits no more, if it did."""
        if not request.may_be_dropped:
            return
        request.may_be_dropped = False
        account, connection = request.account, request.caller.flow
        caller, key = self._callers[account], (connection, request.kind)
        del caller.waiting[key][request]
        if not caller.waiting[key]:
            del caller.waiting[key]
        caller.sizes.add(connection, -1)
        self._sizes.add(account, -1)
        if not caller.waiting:
            del self._callers[account]

    def yields_to(self, newcomer: Request) -> Request | None:
        """The request that has to go for such a newcomer; `None`: the newcomer has to."""
        account, connection, kind = newcomer.account, newcomer.caller.flow, newcomer.kind
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

    def check_integrity(self, waiting: Iterable[Request]) -> None:
        """For tests: raise if an invariant does not hold; `waiting` are all that wait."""
        self._sizes.check_integrity()
        lists = [each for caller in self._callers.values() for each in caller.waiting.values()]
        known = {request for each in lists for request in each}
        if known != {request for request in waiting if request.may_be_dropped}:
            raise RuntimeError("a request may be dropped that does not wait, or is not known")
        if len(known) != self._sizes.total or not all(lists):
            raise RuntimeError("requests that may be dropped are miscounted")
