"""The requests that one balancer has given this agent, and the agent's slots: each takes one.

Invariants: no slot is taken while as many are busy as there are. Every request that was accepted is
answered exactly once, with `Ended` or `Refused`, and nothing comes after; each holds its slot until
its sequence is released. Only a request that is being saved may hold a slot without being awaited.
"""

from collections.abc import Callable, Iterable, Iterator

from ...shared.errors import RequestError
from ...shared.inference import RequestId
from ...shared.messages import Busy, Ended, Item, Refused, Start
from ..sequence_id import SequenceId
from .decisions import CancelGeneration, DiscardGeneration, FailGeneration, StartGeneration


class Slots:
    """`total` slots, shared by the sessions of all the agent's balancers.

    The agent decides whether one is free; balancers only reserve. None is free while what
    computes does not have room for anything new.
    """

    def __init__(self, total: int, has_room: Callable[[], bool] = lambda: True) -> None:
        self.total = total
        self.num_busy = 0
        self._has_room = has_room

    @property
    def num_free(self) -> int:
        """How many more requests may be accepted."""
        return max(0, self.total - self.num_busy) if self._has_room() else 0

    def resize(self, total: int) -> None:
        """From now on there are `total`; if more are busy, those go on."""
        self.total = total

    def take(self) -> bool:
        """Take a slot. False: none is free."""
        if not self.num_free:
            return False
        self.num_busy += 1
        return True

    def free(self) -> None:
        """Give a slot back."""
        if self.num_busy == 0:
            raise RuntimeError("a slot was freed that was not taken")
        self.num_busy -= 1


class Requests:
    """`slots` and `numbers` are shared with the agent's other sessions."""

    def __init__(self, *, slots: Slots, numbers: Iterator[int]) -> None:
        self._slots = slots
        self._numbers = numbers
        self._was_busy = False
        self._awaited: dict[RequestId, SequenceId] = {}
        self._holding: set[SequenceId] = set()

    def __len__(self) -> int:
        """Those that hold a slot, also those that are only being saved."""
        return len(self._holding)

    def __contains__(self, id: object) -> bool:
        return id in self._awaited

    @property
    def is_awaited(self) -> bool:
        """Whether the balancer still waits for an answer."""
        return bool(self._awaited)

    # ---- what the balancer says

    def accept(self, start: Start) -> StartGeneration | Busy:
        """A request that is not here yet: take a slot for it, if one is free."""
        if not self._slots.take():
            return self.turn_away(start.id)
        id = SequenceId(next(self._numbers))
        self._awaited[start.id] = id
        self._holding.add(id)
        return StartGeneration(id, start)

    def turn_away(self, id: RequestId) -> Busy:
        """Answer a request for which no slot is free with `Busy`."""
        self._was_busy = True
        return Busy(id=id)

    def cancel(self, id: RequestId) -> list[CancelGeneration]:
        """The balancer cancels a request; ignored when it has ended."""
        sequence = self._awaited.get(id)
        return [] if sequence is None else [CancelGeneration(sequence)]

    def has_room_again(self) -> bool:
        """Whether a slot is free and the balancer was turned away, which counts once."""
        is_new = self._was_busy and self._slots.num_free > 0
        if is_new:
            self._was_busy = False
        return is_new

    def discard(self, id: RequestId) -> list[DiscardGeneration]:
        """What this request produced could not be sent, so it is over."""
        sequence = self._awaited.pop(id, None)
        return [] if sequence is None else [DiscardGeneration(sequence)]

    def discard_all(self) -> list[DiscardGeneration]:
        """The balancer is gone."""
        self._was_busy = False  # the next connection begins with how many slots there are
        return [each for id in list(self._awaited) for each in self.discard(id)]

    def fail_all(self, error: RequestError) -> list[FailGeneration]:
        """Nothing can go on: end every request with `error`."""
        return [FailGeneration(id, error) for id in self._awaited.values()]

    # ---- what becomes of them

    def produced(self, items: Iterable[Item], released: Iterable[SequenceId]) -> None:
        """Items go to the balancer; the slots of `released` sequences are free."""
        for item in items:
            if isinstance(item, Ended | Refused):
                del self._awaited[item.id]
        for id in released:
            self._holding.remove(id)
            self._slots.free()

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if not self._holding.issuperset(self._awaited.values()):
            raise RuntimeError("a request is awaited and holds no slot")
        if len(self) > self._slots.num_busy:
            raise RuntimeError("more requests hold slots than slots are busy")
