"""Preemption: which `batch` requests give up their slots when others wait, and for which models.

A batch request runs for a while before it may be preempted: `FIRST_RUN` seconds, and twice as long
each time it has been. So it moves a few times at most, and comes to its end. Of those that may be
preempted, the one that might have been for longest is. It is asked to stop, and then starts again.

Invariants: no request is asked twice in one run; no more are asked for a model than wait for it.
"""

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator

from ..priority_queue import Groups
from ..tally import Tally
from ..view import ForegroundView
from .eligibility import QueueKey
from .request import Request

FIRST_RUN = 1.0
"""Seconds that a batch request runs at least before it is preempted for the first time."""

LONGEST_RUN = 60.0
"""Seconds that it runs at least, however often it has been preempted."""


def least_run(num_preempted: int) -> float:
    """Seconds that a request runs at least that has been preempted so often."""
    return float(min(FIRST_RUN * 2 ** min(num_preempted, 16), LONGEST_RUN))


class Preemption:
    """Say what `waits`, what `runs` and when either `stops`; then `due` says what is preempted.

    A request's `contest` says how it takes part, and its `contested` for which queues: of a higher
    class, it `waits` in one; of the class `batch`, it `runs` on an agent that starts requests of
    these, or was `asked` to stop for one of this.
    """

    __slots__ = ("_num_asked", "_num_waiting", "_times")

    def __init__(self) -> None:
        self._num_waiting: Tally[QueueKey] = Tally()
        self._times: Groups[QueueKey, Request, float] = Groups()
        """When each that runs may be asked, by what its agent serves."""
        self._num_asked: Tally[QueueKey] = Tally()

    def may_help(self, key: QueueKey) -> bool:
        """Whether a running batch request may be preempted for a request of this queue."""
        return self._times.size(key) > 0

    def waits(self, request: Request, key: QueueKey) -> None:
        """A request of a higher class waits, or waits for something else now."""
        self.stops(request)
        request.contest, request.contested = "waits", (key,)
        self._num_waiting.add(key, 1)

    def runs(self, request: Request, keys: tuple[QueueKey, ...], may_be_asked_at: float) -> None:
        """A batch request runs on an agent that starts requests of the queues `keys`."""
        if request.contest == "asked":
            return
        self.stops(request)
        request.contest, request.contested = "runs", keys
        for key in keys:
            self._times.set(key, request, may_be_asked_at)

    def stops(self, request: Request) -> None:
        """A request has ended, or does no longer wait or run, if it did."""
        contest, request.contest = request.contest, None
        for key in request.contested if contest is not None else ():
            if contest == "runs":
                self._times.remove(key, request)
            else:
                (self._num_waiting if contest == "waits" else self._num_asked).add(key, -1)

    def next_deadline(self, is_free: Callable[[QueueKey], bool]) -> float | None:
        """When to call `due`."""
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
        """The requests to ask now. `is_free`: whether a slot is free for requests of a queue."""
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
        """For tests: raise if an invariant does not hold; `requests` are all that there are."""
        self._times.check_integrity()
        found = Counter((each.contest, key) for each in requests for key in each.contested)
        waiting = {("waits", key): self._num_waiting[key] for key in self._num_waiting}
        asked = {("asked", key): self._num_asked[key] for key in self._num_asked}
        running = {("runs", key): self._times.size(key) for key in self._times}
        if {key: num for key, num in found.items() if key[0]} != waiting | asked | running:
            raise RuntimeError("requests that wait, run or were asked to stop are miscounted")


MAX_MODELS = 1024
"""Models that are remembered at most: clients choose the names."""


class Foreground:
    """Requests above the class `batch`: how many are here, and when the last of each model came.

    Say who `came` and who `left`. `None` stands for those that name no model: any agent takes them.
    """

    __slots__ = ("_last", "_num", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._num: Tally[str | None] = Tally()
        self._last: OrderedDict[str | None, float] = OrderedDict()

    def __len__(self) -> int:
        return self._total

    def came(self, model: str | None, now: float) -> None:
        """A request is here."""
        self._count(model, 1)
        self._last[model] = now
        self._last.move_to_end(model)
        if len(self._last) > MAX_MODELS:
            self._last.popitem(last=False)

    def left(self, model: str | None) -> None:
        """A request has ended."""
        self._count(model, -1)

    def renamed(self, model: str | None, name: str | None) -> None:
        """A request that is here is for `name` from now on."""
        self._count(model, -1)
        self._count(name, 1)

    def _count(self, model: str | None, sign: int) -> None:
        self._total += sign
        self._num.add(model, sign)

    def view(self, model: str | None, now: float) -> ForegroundView:
        """The requests that may go where one of `model` goes; all of them for `None`."""
        if model is None:
            last = max(self._last.values(), default=None)
            return ForegroundView(self._total, _since(last, now))
        times = [self._last[key] for key in (model, None) if key in self._last]
        num_here = self._num[model] + self._num[None]
        return ForegroundView(num_here, _since(max(times, default=None), now))


def _since(last: float | None, now: float) -> float | None:
    return None if last is None else now - last
