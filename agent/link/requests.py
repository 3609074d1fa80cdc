"""The requests that one balancer gave this agent, and the agent's slots: each request takes one.

Invariants: a slot is taken only if fewer slots are busy than exist. Every accepted request is
answered exactly once, with `Ended` or `Refused`, and gets no item after that. Each request holds
its slot until its sequence is released. A request that holds a slot but is no longer awaited is
being saved.
"""

from collections.abc import Callable, Iterable, Iterator

from ...shared.errors import RequestError
from ...shared.inference import RequestId
from ...shared.messages import Busy, Ended, Item, Refused, Start
from ..sequence_id import SequenceId
from .decisions import CancelGeneration, DiscardGeneration, FailGeneration, StartGeneration


class Slots:
    """`total` slots, shared by the sessions of all the agent's balancers.

    The agent decides if a slot is free; balancers only reserve slots. No slot is free while the
    engine or the upstream server has no room (`has_room`).
    """

    def __init__(self, total: int, has_room: Callable[[], bool] = lambda: True) -> None:
        self.total = total
        self.num_busy = 0
        self._has_room = has_room

    @property
    def num_free(self) -> int:
        """The number of requests that may still be accepted."""
        return max(0, self.total - self.num_busy) if self._has_room() else 0

    def resize(self, total: int) -> None:
        """Set the number of slots to `total`; if more are busy, their requests continue."""
        self.total = total

    def take(self) -> bool:
        """Take a slot; return `False` if none is free."""
        if not self.num_free:
            return False
        self.num_busy += 1
        return True

    def free(self) -> None:
        """Give a slot back. Raises `RuntimeError` if none is taken."""
        if self.num_busy == 0:
            raise RuntimeError("a slot was freed twice")
        self.num_busy -= 1


class Requests:
    """The requests of one balancer.

    `slots` and `numbers` are shared with the agent's other sessions.
    """

    def __init__(self, *, slots: Slots, numbers: Iterator[int]) -> None:
        self._slots = slots
        self._numbers = numbers
        self._was_busy = False
        self._awaited: dict[RequestId, SequenceId] = {}
        self._holding: set[SequenceId] = set()

    def __len__(self) -> int:
        """Return the number of requests that hold a slot, including those being saved."""
        return len(self._holding)

    def __contains__(self, id: object) -> bool:
        return id in self._awaited

    @property
    def is_awaited(self) -> bool:
        """Return whether the balancer still waits for an answer."""
        return bool(self._awaited)

    # ---- messages of the balancer

    def accept(self, start: Start) -> StartGeneration | Busy:
        """Accept a new request if a slot is free; otherwise answer `Busy`."""
        if not self._slots.take():
            return self.turn_away(start.id)
        id = SequenceId(next(self._numbers))
        self._awaited[start.id] = id
        self._holding.add(id)
        return StartGeneration(id, start)

    def turn_away(self, id: RequestId) -> Busy:
        """Answer a request with `Busy`: no slot is free."""
        self._was_busy = True
        return Busy(id=id)

    def cancel(self, id: RequestId) -> list[CancelGeneration]:
        """Cancel a request; ignored if it has ended."""
        sequence = self._awaited.get(id)
        return [] if sequence is None else [CancelGeneration(sequence)]

    def has_room_again(self) -> bool:
        """Return whether a slot is free and the balancer was answered `Busy` before.

        After `True`, the result is `False` until the next `Busy`.
        """
        is_new = self._was_busy and self._slots.num_free > 0
        if is_new:
            self._was_busy = False
        return is_new

    def discard(self, id: RequestId) -> list[DiscardGeneration]:
        """End this request without an answer, because its output could not be sent."""
        sequence = self._awaited.pop(id, None)
        return [] if sequence is None else [DiscardGeneration(sequence)]

    def discard_all(self) -> list[DiscardGeneration]:
        """Discard all requests, because the connection is lost."""
        self._was_busy = False  # the next connection begins with how many slots there are
        return [each for id in list(self._awaited) for each in self.discard(id)]

    def fail_all(self, error: RequestError) -> list[FailGeneration]:
        """End every request with `error`."""
        return [FailGeneration(id, error) for id in self._awaited.values()]

    # ---- events of requests

    def produced(self, items: Iterable[Item], released: Iterable[SequenceId]) -> None:
        """Note the ends among `items`, and free the slots of `released` sequences."""
        for item in items:
            if isinstance(item, Ended | Refused):
                del self._awaited[item.id]
        for id in released:
            self._holding.remove(id)
            self._slots.free()

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if not self._holding.issuperset(self._awaited.values()):
            raise RuntimeError("a request is awaited and holds no slot")
        if len(self) > self._slots.num_busy:
            raise RuntimeError("more requests hold slots than slots are busy")
