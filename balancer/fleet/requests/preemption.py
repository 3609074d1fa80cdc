"""Preemption: chooses the `batch` requests that give up their slots for waiting requests.

A batch request runs for at least `FIRST_RUN` seconds before its first preemption, and twice as
long after each preemption. So it is preempted only a few times and comes to its end. Among the
requests that may be preempted, the request that could be preempted earliest is chosen. Its agent
must stop it, and the request then waits to start again.

Invariants: a request is asked to stop at most once in a run; for each model, at most as many
requests are asked as requests wait.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator

from ..priority_queue import Groups
from ..tally import Tally
from ..view import ForegroundView
from .eligibility import QueueKey
from .request import Request

FIRST_RUN = 1.0
"""The minimum seconds that a batch request runs before its first preemption."""

LONGEST_RUN = 60.0
"""The maximum of this time after several preemptions."""


def least_run(num_preempted: int) -> float:
    """Return the seconds that a request must run, after `num_preempted` earlier preemptions."""
    return float(min(FIRST_RUN * 2 ** min(num_preempted, 16), LONGEST_RUN))


class Preemption:
    """Chooses the requests to preempt. The caller reports requests to `waits`, `runs` and `stops`.

    Call `due` at `next_deadline` to get the requests to preempt.

    `Request.contest` is the role of a request here, and `Request.contested` are its queues. A
    request of a higher class `waits` in a queue. A batch request `runs` on an agent that takes
    requests of its queues, or was `asked` to stop.
    """

    __slots__ = ("_num_asked", "_num_waiting", "_times")

    def __init__(self) -> None:
        self._num_waiting: Tally[QueueKey] = Tally()
        self._times: Groups[QueueKey, Request, float] = Groups()
        """The times from which running requests may be preempted, by their agents' queues."""
        self._num_asked: Tally[QueueKey] = Tally()

    def may_help(self, key: QueueKey) -> bool:
        """Return whether a batch request may be preempted for a request in the queue `key`."""
        return self._times.size(key) > 0

    def waits(self, request: Request, key: QueueKey) -> None:
        """Record that a request of a higher class waits in the queue `key`."""
        self.stops(request)
        request.contest, request.contested = "waits", (key,)
        self._num_waiting.add(key, 1)

    def runs(self, request: Request, keys: tuple[QueueKey, ...], may_be_asked_at: float) -> None:
        """Record that a batch request runs on an agent that serves the queues `keys`."""
        if request.contest == "asked":
            return
        self.stops(request)
        request.contest, request.contested = "runs", keys
        for key in keys:
            self._times.set(key, request, may_be_asked_at)

    def stops(self, request: Request) -> None:
        """Record that a request no longer waits or runs."""
        contest, request.contest = request.contest, None
        for key in request.contested if contest is not None else ():
            if contest == "runs":
                self._times.remove(key, request)
            else:
                (self._num_waiting if contest == "waits" else self._num_asked).add(key, -1)

    def next_deadline(self, is_free: Callable[[QueueKey], bool]) -> float | None:
        """Return the time to call `due`, or `None` if no request may be preempted."""
        if not self._times:
            return None
        firsts = (self._times.first(key) for key in self._unmet(is_free))
        return min((first[0] for first in firsts if first is not None), default=None)

    def due(
        self,
        now: float,
        is_free: Callable[[QueueKey], bool],
        can_leave: Callable[[Request], bool],
    ) -> list[Request]:
        """Return the requests to preempt now.

        `is_free` returns whether a slot is free for requests of a queue. `can_leave` returns
        whether a request can move.
        """
        asked: list[Request] = []
        for key in list(self._unmet(is_free)) if self._times else ():
            while self._num_waiting[key] > self._num_asked[key]:
                first = self._times.first(key)
                if first is None or first[0] > now:
                    break
                request = first[1]
                self.stops(request)
                if can_leave(request):
                    request.contest, request.contested = "asked", (key,)
                    self._num_asked.add(key, 1)
                    asked.append(request)
        return asked

    def _unmet(self, is_free: Callable[[QueueKey], bool]) -> Iterator[QueueKey]:
        for key in self._num_waiting:
            if self._num_waiting[key] > self._num_asked[key] and not is_free(key):
                yield key

    def check_integrity(self, requests: Iterable[Request]) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method.

        `requests` are all requests.
        """
        self._times.check_integrity()
        found = Counter((each.contest, key) for each in requests for key in each.contested)
        waiting = {("waits", key): self._num_waiting[key] for key in self._num_waiting}
        asked = {("asked", key): self._num_asked[key] for key in self._num_asked}
        running = {("runs", key): self._times.size(key) for key in self._times}
        if {key: num for key, num in found.items() if key[0]} != waiting | asked | running:
            raise RuntimeError("requests that wait, run or were asked to stop are miscounted")


MAX_MODELS = 1024
"""The maximum number of remembered models, because clients choose the names."""


class Foreground:
    """The requests of classes above `batch`: their number and last arrival, for each model.

    The caller reports each request to `came` and `left`. The model `None` stands for requests
    without a model name, which any agent may take.
    """

    __slots__ = ("_last", "_num", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._num: Tally[str | None] = Tally()
        self._last: OrderedDict[str | None, float] = OrderedDict()

    def __len__(self) -> int:
        return self._total

    def came(self, model: str | None, now: float) -> None:
        """Count a new request."""
        self._count(model, 1)
        self._last[model] = now
        self._last.move_to_end(model)
        if len(self._last) > MAX_MODELS:
            self._last.popitem(last=False)

    def left(self, model: str | None) -> None:
        """Uncount a request that has ended."""
        self._count(model, -1)

    def renamed(self, model: str | None, name: str | None) -> None:
        """Count a request of `model` under the name `name` from now on."""
        self._count(model, -1)
        self._count(name, 1)

    def _count(self, model: str | None, sign: int) -> None:
        self._total += sign
        self._num.add(model, sign)

    def view(self, model: str | None, now: float) -> ForegroundView:
        """Return the requests that an agent of `model` could take; `None` means all requests."""
        if model is None:
            last = max(self._last.values(), default=None)
            return ForegroundView(self._total, _since(last, now))
        times = [self._last[key] for key in (model, None) if key in self._last]
        num_here = self._num[model] + self._num[None]
        return ForegroundView(num_here, _since(max(times, default=None), now))


def _since(last: float | None, now: float) -> float | None:
    return None if last is None else now - last
