"""What each waiting request can expect, and who is told about it.

The estimate for a slot: the agents of a model end `slots / slot time` requests a second, and each
end starts one that waits. The estimate for a model that no agent serves: the time until it is
loaded, where that is known.
"""

from collections.abc import Callable
from math import ceil

from ....shared.inference import RequestId, Waiting, WaitsFor
from ..decisions import Deliver
from .dispatch.dispatch import RETRY_AFTER, Dispatch
from .routing import Wanted, model_of
from .slot_times import SlotTimes
from .waiting_news import WaitingNews

SecondsToLoad = Callable[[str | None], float | None]
"""Seconds until an agent serves a model, where that is known; `None` is any model."""

MAX_RETRY_AFTER = 60.0
"""Most seconds after which a client that found the queue full is asked to try again."""


class WaitingRoom:
    """Reads places from `dispatch`, which decides who starts."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._slot_times = SlotTimes()
        self._news = WaitingNews()

    # ---- what happens to requests

    def admitted(self, id: RequestId, tell_after: float | None, now: float) -> None:
        """It is new; its client is told about waits longer than `tell_after` seconds."""
        if tell_after is not None:
            self._news.listens(id, tell_after)
            self._news.waits(id, now)

    def started(self, id: RequestId) -> None:
        """It has an agent."""
        self._news.starts(id)

    def came_back(self, id: RequestId, now: float) -> None:
        """It has no agent any more."""
        self._news.waits(id, now)

    def freed_slot(self, model: str | None, seconds: float) -> None:
        """A request that an agent had for so long has ended there."""
        self._slot_times.ended(model, seconds)

    def forget(self, id: RequestId) -> None:
        """It has ended."""
        self._news.forget(id)

    # ---- what clients are told

    def next_deadline(self) -> float | None:
        """When to call `tell`."""
        return self._news.next_deadline()

    def tell(self, now: float, seconds_to_load: SecondsToLoad) -> list[Deliver]:
        """Tell those who are due, at a cost of `MAX_PER_PASS` at most."""
        told: list[Deliver] = []
        for id in self._news.due(now):
            waiting = self.of(id, seconds_to_load)
            if self._news.is_news(id, waiting, now):
                told.append(Deliver(id, waiting))
        return told

    def of(self, id: RequestId, seconds_to_load: SecondsToLoad) -> Waiting:
        """What a waiting request can expect."""
        wanted = self._dispatch.wanted_by(id)
        place = self._dispatch.place_of(id)
        what: WaitsFor = "slot" if self._dispatch.num_slots_for(wanted) else "model"
        pause = self._pause(wanted)
        if what == "model":
            seconds = seconds_to_load(model_of(wanted))
        else:
            seconds = None if pause is None else place * pause
        return Waiting(place, what, None if seconds is None else float(ceil(seconds)))

    def sure_wait(self, id: RequestId, num_ended: int) -> float | None:
        """Seconds until a waiting request gets a slot, once so many have ended to tell by."""
        wanted = self._dispatch.wanted_by(id)
        pause = self._pause(wanted)
        if pause is None or self._slot_times.num_ended(model_of(wanted)) < num_ended:
            return None
        return self._dispatch.place_of(id) * pause

    def retry_after(self, model: str | None) -> float:
        """Seconds after which the queue has probably moved on."""
        return min(max(self._pause(model) or RETRY_AFTER, RETRY_AFTER), MAX_RETRY_AFTER)

    def _pause(self, wanted: Wanted) -> float | None:
        """Seconds between two ends of requests, while all slots for what is wanted are taken."""
        slots = self._dispatch.num_slots_for(wanted)
        mean = self._slot_times.mean(model_of(wanted))
        return mean / slots if slots and mean is not None else None

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._news.check_integrity()
