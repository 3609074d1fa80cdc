"""Estimates the wait of each request, and chooses the clients that receive events about waits.

A request waits for an agent, and then for its first token while the agent computes the prompt.
Clients receive events about both waits, so that proxies keep the connection open.

The expected wait for a slot follows from the rate at which the agents of a model end requests:
`slots / slot time` a second. If no agent serves the model yet, the expected wait is the time until
the model is loaded, if known.

Every request in the queue moves when one leaves, so an event for each change would be too many.
Each listening client is checked once a second, and one pass checks at most `MAX_PER_PASS` clients.
If more clients wait, each gets events less often.

Invariant: a client gets the same event again only after `REPEAT_AFTER` seconds.
"""

from collections import OrderedDict
from math import ceil, inf

from ....shared.inference import Reading, Waiting
from ..deadlines import Deadlines
from ..decisions import Deliver
from ..lifecycle import WhyNotServed
from ..queue_full import RETRY_AFTER
from .dispatch.dispatch import Dispatch
from .eligibility import QueueKey, model_of
from .request import Listener, Request

MAX_MODELS = 1024
"""The maximum number of remembered models, because agents choose the names."""

WEIGHT = 0.1
"""The minimum weight of a new request in the average."""


class SlotTimes:
    """The average time for which requests of each model keep their slots.

    The average predicts when the next slot of a full model becomes free. `None` stands for all
    models together.
    """

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: OrderedDict[str | None, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._means)

    def ended(self, model: str | None, seconds: float) -> None:
        """Add a request of `model` that kept its slot for `seconds`."""
        for key in {None, model}:
            self._learn(key, seconds)
        while len(self._means) > MAX_MODELS:
            self._means.popitem(last=False)

    def mean(self, model: str | None) -> float | None:
        """Return the mean seconds for which requests of `model` keep their slots.

        Returns `None` if no such request has ended.
        """
        known = self._means.get(model)
        return None if known is None else known[0]

    def num_ended(self, model: str | None) -> int:
        """Return the number of requests of `model` in the average."""
        return self._means.get(model, (0.0, 0))[1]

    def _learn(self, key: str | None, seconds: float) -> None:
        mean, num = self._means.get(key, (0.0, 0))
        weight = max(WEIGHT, 1 / (num + 1))
        self._means[key] = (mean + (seconds - mean) * weight, num + 1)
        self._means.move_to_end(key)


CHECK_PAUSE = 1.0
"""The seconds between two checks of one request."""

REPEAT_AFTER = 15.0
"""The seconds after which a client gets the same event again, so that proxies stay connected."""

PASS_PAUSE = 0.1
MAX_PER_PASS = 100
"""The maximum number of clients in one pass, which takes about a millisecond."""


READING_AFTER = 5.0
"""The default seconds after which a client gets events about the progress of its prompt."""


MAX_RETRY_AFTER = 60.0
"""The maximum seconds after which a client may try again after `queue_full`."""


class WaitingRoom:
    """The clients that receive events about waits.

    `dispatch` decides which request starts, and provides the places in the queue. A request with a
    `listener` waits for an agent and then for its first token, perhaps several times. Its client
    gets an event at most once a second, and only if the wait has changed.
    """

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._slot_times = SlotTimes()
        self._due: Deadlines[Listener] = Deadlines()
        self._rests_until = -inf

    # ---- what happens to requests

    def admitted(self, request: Request, tell_after: float | None, now: float) -> None:
        """Add a request. Its client gets events about waits of more than `tell_after` seconds."""
        if tell_after is not None:
            request.listener = Listener(request, tell_after, deadline=now + tell_after)
            if request.slot is None:
                self.waits(request, now)

    def waits(self, request: Request, now: float) -> None:
        """Record that a request waits for an agent, even if it had an agent before."""
        if (listener := request.listener) is not None:
            listener.sent = listener.reading = None
            self._look_at(listener, max(now + listener.after, listener.sent_at + CHECK_PAUSE))

    def started(self, request: Request, now: float) -> None:
        """Record that a request has an agent, which computes its prompt."""
        if (listener := request.listener) is not None:
            listener.reading = Reading()
            least = READING_AFTER if listener.after else 0.0
            due = now if listener.deadline == inf else listener.deadline
            self._look_at(listener, max(now + least, due))

    def reads(self, request: Request, reading: Reading) -> None:
        """Record the progress of a prompt."""
        if request.listener is not None and request.listener.reading is not None:
            request.listener.reading = reading

    def stops(self, request: Request) -> None:
        """Remove a request whose answer has begun or that has ended."""
        if request.listener is not None:
            request.listener.deadline = inf
            self._due.disarm(request.listener)

    def freed_slot(self, model: str | None, seconds: float) -> None:
        """Record that a request of `model` has ended and kept its slot for `seconds`."""
        self._slot_times.ended(model, seconds)

    # ---- what clients hear

    def next_deadline(self) -> float | None:
        """Return the time to call `due`, or `None` if no client waits."""
        first = self._due.next()
        return None if first is None else max(first, self._rests_until)

    def due(self, now: float, why_not_served: WhyNotServed) -> list[Deliver]:
        """Return the events for at most `MAX_PER_PASS` clients whose time has come."""
        if now < self._rests_until:
            return []
        found: list[Deliver] = []
        for listener in self._due.due(now, MAX_PER_PASS):
            self._rests_until = now + PASS_PAUSE
            self._look_at(listener, now + CHECK_PAUSE)
            waiting = listener.reading or self.of(listener.request, why_not_served)
            if waiting != listener.sent or now >= listener.sent_at + REPEAT_AFTER:
                listener.sent, listener.sent_at = waiting, now
                found.append(Deliver(listener.request.id, waiting))
        return found

    def _look_at(self, listener: Listener, at: float) -> None:
        listener.deadline = at
        self._due.arm(listener)

    def of(self, request: Request, why_not_served: WhyNotServed) -> Waiting:
        """Return the expected wait of a request, as an event."""
        key = request.queue_key
        place = self._dispatch.place_of(request)
        if not self._dispatch.num_slots_for(key):
            lack = why_not_served(model_of(key))
            return Waiting(place, "model", _whole(lack.seconds_left), lack.reason)
        pause = self._pause(key)
        return Waiting(place, "slot", _whole(None if pause is None else place * pause))

    def sure_wait(self, request: Request, num_ended: int) -> float | None:
        """Return the expected seconds until a waiting request gets a slot.

        Returns `None` if fewer than `num_ended` requests have ended.
        """
        key = request.queue_key
        pause = self._pause(key)
        if pause is None or self._slot_times.num_ended(model_of(key)) < num_ended:
            return None
        return self._dispatch.place_of(request) * pause

    def retry_after(self, model: str | None) -> float:
        """Return the seconds after which a refused client should try again."""
        return min(max(self._pause(model) or RETRY_AFTER, RETRY_AFTER), MAX_RETRY_AFTER)

    def _pause(self, key: QueueKey) -> float | None:
        """Return the mean seconds between two ends of requests while all slots are taken."""
        slots = self._dispatch.num_slots_for(key)
        mean = self._slot_times.mean(model_of(key))
        return mean / slots if slots and mean is not None else None

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self._due.check_integrity()


def _whole(seconds: float | None) -> float | None:
    return None if seconds is None else float(ceil(seconds))
