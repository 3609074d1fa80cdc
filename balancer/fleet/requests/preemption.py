"""Preemption: which `batch` requests give up their slots for which waiting requests.

A batch request runs for at least `FIRST_RUN` seconds before it may be preempted, and twice as long
after each preemption. So it moves only a few times and comes to its end. Of the requests that may
be preempted, the one that may be preempted for longest is chosen. Its agent is asked to stop it,
and it then waits to start again.

Invariants: no request is asked twice in one run; for each model, at most as many are asked as
requests wait.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator

from ..priority_queue import Groups
from ..tally import Tally
from ..view import ForegroundView
from .eligibility import QueueKey
from .request import Request

FIRST_RUN = 1.0
"""Minimum seconds that a batch request runs before its first preemption."""

LONGEST_RUN = 60.0
"""Maximum of these seconds, however often a request has been preempted."""


def least_run(num_preempted: int) -> float:
    """Return the seconds that a request runs before its next preemption.

    It was preempted `num_preempted` times.
    """
    return float(min(FIRST_RUN * 2 ** min(num_preempted, 16), LONGEST_RUN))


class Preemption:
    """Chooses the requests to preempt. Report requests to `waits`, `runs` and `stops`.

    `due` then returns the requests to preempt.

    The `contest` of a request is its part in this, and `contested` are the queues. A request of a
    higher class `waits` in a queue. A request of the class `batch` `runs` on an agent that starts
    requests of these queues, or was `asked` to stop for one of them.
    """

    __slots__ = ("_num_asked", "_num_waiting", "_times")

    def __init__(self) -> None:
        self._num_waiting: Tally[QueueKey] = Tally()
        self._times: Groups[QueueKey, Request, float] = Groups()
        """The times at which running requests may be asked, by the queues of their agents."""
        self._num_asked: Tally[QueueKey] = Tally()

    def may_help(self, key: QueueKey) -> bool:
        """Return whether a running batch request may be preempted for a request of this queue."""
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
        """Return when to call `due`; `None` if there is nothing to wait for."""
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

        `is_free` says whether a slot is free for requests of a queue.
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
"""Maximum models that are remembered, since clients choose the names."""


class Foreground:
    """The requests above the class `batch`: their number, and the last arrival for each model.

    Report each request that `came` or `left`. The model `None` stands for requests without a model
    name, which any agent takes.
    """

    __slots__ = ("_last", "_num", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._num: Tally[str | None] = Tally()
        self._last: OrderedDict[str | None, float] = OrderedDict()

    def __len__(self) -> int:
        return self._total

    def came(self, model: str | None, now: float) -> None:
        """Add a request."""
        self._count(model, 1)
        self._last[model] = now
        self._last.move_to_end(model)
        if len(self._last) > MAX_MODELS:
            self._last.popitem(last=False)

    def left(self, model: str | None) -> None:
        """Remove a request that has ended."""
        self._count(model, -1)

    def renamed(self, model: str | None, name: str | None) -> None:
        """Count a present request under `name` from now on."""
        self._count(model, -1)
        self._count(name, 1)

    def _count(self, model: str | None, sign: int) -> None:
        self._total += sign
        self._num.add(model, sign)

    def view(self, model: str | None, now: float) -> ForegroundView:
        """Return the requests that could go to an agent of `model`; all requests for `None`."""
        if model is None:
            last = max(self._last.values(), default=None)
            return ForegroundView(self._total, _since(last, now))
        times = [self._last[key] for key in (model, None) if key in self._last]
        num_here = self._num[model] + self._num[None]
        return ForegroundView(num_here, _since(max(times, default=None), now))


def _since(last: float | None, now: float) -> float | None:
    return None if last is None else now - last
