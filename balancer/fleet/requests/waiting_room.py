"""What each waiting request can expect, and to which clients that is sent.

A request waits for an agent, and then for its first token while the agent reads its prompt. Both
are told in the same way: so no proxy takes a stream for dead that is alive.

The estimate for a slot: the agents of a model end `slots / slot time` requests a second, and each
end starts one that waits. The estimate for a model that no agent serves: the time until it is
loaded, where that is known.

Every request in the queue moves when one leaves it. So nothing is sent at the change: each one
that listens is checked once a second, and a pass checks `MAX_PER_PASS` of them at most. With so
many waiting that a second does not suffice, each hears less often. While no client listens there is
nothing to do.

Invariants: a request that is due waits and listens; the same is sent to a client again only after
`REPEAT_AFTER`.
"""

from collections import OrderedDict
from dataclasses import dataclass
from math import ceil, inf

from ....shared.inference import Reading, RequestId, Waiting
from ..decisions import Deliver
from ..lifecycle import WhyNotServed
from ..load_shedding import RETRY_AFTER
from ..priority_queue import PriorityQueue
from .dispatch.dispatch import Dispatch
from .eligibility import QueueKey, model_of

MAX_MODELS = 1024
"""Models that are remembered at most: agents choose the names."""

WEIGHT = 0.1
"""Share of the latest request in the average, once there were enough."""


class SlotTimes:
    """How long requests of each model keep their slots: a moving average.

    So the time until a full model's next slot is free is known, however few requests come. The key
    `None` stands for all models together.
    """

    __slots__ = ("_means",)

    def __init__(self) -> None:
        self._means: OrderedDict[str | None, tuple[float, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._means)

    def ended(self, model: str | None, seconds: float) -> None:
        """A request of `model` had its slot for so long."""
        for key in {None, model}:
            self._learn(key, seconds)
        while len(self._means) > MAX_MODELS:
            self._means.popitem(last=False)

    def mean(self, model: str | None) -> float | None:
        """Seconds that a request of `model` has its slot; `None` before one has ended."""
        known = self._means.get(model)
        return None if known is None else known[0]

    def num_ended(self, model: str | None) -> int:
        """How many requests of `model` the average is made of."""
        return self._means.get(model, (0.0, 0))[1]

    def _learn(self, key: str | None, seconds: float) -> None:
        mean, num = self._means.get(key, (0.0, 0))
        weight = max(WEIGHT, 1 / (num + 1))
        self._means[key] = (mean + (seconds - mean) * weight, num + 1)
        self._means.move_to_end(key)


CHECK_PAUSE = 1.0
"""Seconds between two checks of one request."""

REPEAT_AFTER = 15.0
"""Seconds after which the same is sent to a client again, so that proxies see the stream alive."""

PASS_PAUSE = 0.1
MAX_PER_PASS = 100
"""A pass takes about a millisecond, so sending to all costs one part in a hundred of the loop."""


READING_AFTER = 5.0
"""Seconds after which a client hears that its prompt is read, unless it asked to hear at once."""


@dataclass(slots=True)
class _Listener:
    """`reading` is how much of its prompt the agent has read; `None` while it has no agent."""

    after: float
    reading: Reading | None = None
    sent: Waiting | Reading | None = None
    sent_at: float = -inf


class WaitingUpdates:
    """When clients that wait hear of it: at most once a second each, and only of what changed.

    A request listens from `listens` to `forget`. In between it waits for an agent and then for its
    first token, once or several times.
    """

    __slots__ = ("_due", "_listeners", "_rests_until")

    def __init__(self) -> None:
        self._listeners: dict[RequestId, _Listener] = {}
        self._due: PriorityQueue[RequestId, float] = PriorityQueue()
        self._rests_until = -inf

    def listens(self, id: RequestId, after: float) -> None:
        """The client of `id` hears of waits that take longer than `after` seconds."""
        self._listeners[id] = _Listener(after)

    def forget(self, id: RequestId) -> None:
        """It has ended."""
        self.began(id)
        self._listeners.pop(id, None)

    def waits(self, id: RequestId, now: float) -> None:
        """It waits, if it listens, for the first time or again."""
        if (listener := self._listeners.get(id)) is not None:
            listener.sent = listener.reading = None
            self._due.set(id, max(now + listener.after, listener.sent_at + CHECK_PAUSE))

    def starts(self, id: RequestId, now: float) -> None:
        """An agent has the request, and is to read its prompt."""
        if (listener := self._listeners.get(id)) is not None:
            listener.reading = Reading()
            due = self._due.get(id)
            least = READING_AFTER if listener.after else 0.0
            self._due.set(id, max(now + least, now if due is None else due))

    def reads(self, id: RequestId, reading: Reading) -> None:
        """Its agent reads the prompt."""
        if (listener := self._listeners.get(id)) is not None and listener.reading is not None:
            listener.reading = reading

    def reading(self, id: RequestId) -> Reading | None:
        """How much of its prompt is read; `None` while it has no agent."""
        return self._listeners[id].reading

    def began(self, id: RequestId) -> None:
        """Its answer has begun: there is nothing to wait for."""
        if id in self._due:
            self._due.remove(id)

    def next_deadline(self) -> float | None:
        """When to call `due`."""
        first = self._due.first()
        return None if first is None else max(first[0], self._rests_until)

    def due(self, now: float) -> list[RequestId]:
        """Requests to check: call `must_send` for each of them."""
        if now < self._rests_until:
            return []
        ids: list[RequestId] = []
        while len(ids) < MAX_PER_PASS and (first := self._due.first()) and first[0] <= now:
            ids.append(first[1])
            self._due.remove(first[1])
        if ids:
            self._rests_until = now + PASS_PAUSE
        return ids

    def must_send(self, id: RequestId, waiting: Waiting | Reading, now: float) -> bool:
        """Whether to send this to the client; the next check comes in a second."""
        listener = self._listeners[id]
        self._due.set(id, now + CHECK_PAUSE)
        if waiting == listener.sent and now < listener.sent_at + REPEAT_AFTER:
            return False
        listener.sent, listener.sent_at = waiting, now
        return True

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._due.check_integrity()
        if any(id not in self._listeners for id in self._due):
            raise RuntimeError("a request is due that does not listen")


MAX_RETRY_AFTER = 60.0
"""Most seconds after which a client that found the queue full is asked to try again."""


class WaitingRoom:
    """Reads places from `dispatch`, which decides who starts."""

    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch
        self._slot_times = SlotTimes()
        self._updates = WaitingUpdates()

    # ---- what happens to requests

    def admitted(self, id: RequestId, tell_after: float | None, now: float) -> None:
        """It is new; its client hears of waits longer than `tell_after` seconds."""
        if tell_after is not None:
            self._updates.listens(id, tell_after)
            self._updates.waits(id, now)

    def started(self, id: RequestId, now: float) -> None:
        """It has an agent."""
        self._updates.starts(id, now)

    def reads(self, id: RequestId, reading: Reading) -> None:
        """Its agent has read so much of the prompt."""
        self._updates.reads(id, reading)

    def began(self, id: RequestId) -> None:
        """Its answer has begun."""
        self._updates.began(id)

    def came_back(self, id: RequestId, now: float) -> None:
        """It has no agent any more."""
        self._updates.waits(id, now)

    def freed_slot(self, model: str | None, seconds: float) -> None:
        """A request that an agent had for so long has ended there."""
        self._slot_times.ended(model, seconds)

    def forget(self, id: RequestId) -> None:
        """It has ended."""
        self._updates.forget(id)

    # ---- what clients hear

    def next_deadline(self) -> float | None:
        """When to call `due`."""
        return self._updates.next_deadline()

    def due(self, now: float, why_not_served: WhyNotServed) -> list[Deliver]:
        """What to send to the clients that are due, at a cost of `MAX_PER_PASS` at most."""
        found: list[Deliver] = []
        for id in self._updates.due(now):
            waiting = self._updates.reading(id) or self.of(id, why_not_served)
            if self._updates.must_send(id, waiting, now):
                found.append(Deliver(id, waiting))
        return found

    def of(self, id: RequestId, why_not_served: WhyNotServed) -> Waiting:
        """What a waiting request can expect."""
        key = self._dispatch.queue_key_of(id)
        place = self._dispatch.place_of(id)
        if not self._dispatch.num_slots_for(key):
            lack = why_not_served(model_of(key))
            return Waiting(place, "model", _whole(lack.seconds_left), lack.reason)
        pause = self._pause(key)
        return Waiting(place, "slot", _whole(None if pause is None else place * pause))

    def sure_wait(self, id: RequestId, num_ended: int) -> float | None:
        """Seconds until a waiting request gets a slot, once so many have ended to tell by."""
        key = self._dispatch.queue_key_of(id)
        pause = self._pause(key)
        if pause is None or self._slot_times.num_ended(model_of(key)) < num_ended:
            return None
        return self._dispatch.place_of(id) * pause

    def retry_after(self, model: str | None) -> float:
        """Seconds after which the queue has probably moved on."""
        return min(max(self._pause(model) or RETRY_AFTER, RETRY_AFTER), MAX_RETRY_AFTER)

    def _pause(self, key: QueueKey) -> float | None:
        """Seconds between two ends of requests, while all slots for this queue are taken."""
        slots = self._dispatch.num_slots_for(key)
        mean = self._slot_times.mean(model_of(key))
        return mean / slots if slots and mean is not None else None

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._updates.check_integrity()


def _whole(seconds: float | None) -> float | None:
    return None if seconds is None else float(ceil(seconds))
