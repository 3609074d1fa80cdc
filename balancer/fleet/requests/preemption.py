"""Preemption: which `batch` requests give up their slots when others wait, and for which models.

A batch request runs for a while before it may be preempted: `FIRST_RUN` seconds, and twice as long
each time it has been. So it moves a few times at most, and comes to its end. Of those that may be
preempted, the one that might have been for longest is. It is asked to stop, and then starts again.

Invariants: no request is asked twice in one run; no more are asked for a model than wait for it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from ....shared.inference import RequestId
from ..priority_queue import Groups
from ..tally import Tally
from ..view import ForegroundView
from .eligibility import QueueKey

FIRST_RUN = 1.0
"""Seconds that a batch request runs at least before it is preempted for the first time."""

LONGEST_RUN = 60.0
"""Seconds that it runs at least, however often it has been preempted."""


def least_run(num_preempted: int) -> float:
    """Seconds that a request runs at least that has been preempted so often."""
    return float(min(FIRST_RUN * 2 ** min(num_preempted, 16), LONGEST_RUN))


class Preemption:
    """Say what `waits`, what `runs` and when either `stops`; then `due` says what is preempted."""

    __slots__ = ("_asked", "_num_asked", "_num_waiting", "_running", "_times", "_waiting")

    def __init__(self) -> None:
        self._waiting: dict[RequestId, QueueKey] = {}
        self._num_waiting: Tally[QueueKey] = Tally()
        self._running: dict[RequestId, tuple[QueueKey, ...]] = {}
        self._times: Groups[QueueKey, RequestId, float] = Groups()
        """When each that runs may be asked, by what its agent serves."""
        self._asked: dict[RequestId, QueueKey] = {}
        """The queue for whose requests each was asked."""
        self._num_asked: Tally[QueueKey] = Tally()

    @property
    def num_asked(self) -> int:
        """Batch requests that have been asked and still run."""
        return len(self._asked)

    def may_help(self, key: QueueKey) -> bool:
        """Whether a batch request runs that may be preempted for one of this queue."""
        return self._times.size(key) > 0

    def waits(self, id: RequestId, key: QueueKey) -> None:
        """A request of a higher class waits, or waits for something else now."""
        self._waits_no_more(id)
        self._waiting[id] = key
        self._num_waiting.add(key, 1)

    def runs(self, id: RequestId, keys: tuple[QueueKey, ...], may_be_asked_at: float) -> None:
        """A batch request runs on an agent that starts requests of the queues `keys`."""
        if id in self._asked:
            return
        self._runs_no_more(id)
        self._running[id] = keys
        for key in keys:
            self._times.set(key, id, may_be_asked_at)

    def stops(self, id: RequestId) -> None:
        """A request has ended, or does no longer wait or run, if it did."""
        self._waits_no_more(id)
        self._runs_no_more(id)
        if id in self._asked:
            self._num_asked.add(self._asked.pop(id), -1)

    def next_deadline(self, is_free: Callable[[QueueKey], bool]) -> float | None:
        """When to call `due`."""
        if not self._running:
            return None
        firsts = (self._times.first(key) for key in self._unmet(is_free))
        return min((first[0] for first in firsts if first is not None), default=None)

    def due(
        self,
        now: float,
        is_free: Callable[[QueueKey], bool],
        can_leave: Callable[[RequestId], bool],
    ) -> list[RequestId]:
        """The requests to ask now. `is_free`: whether a slot is free for requests of a queue."""
        asked: list[RequestId] = []
        for key in list(self._unmet(is_free)):
            while self._num_waiting[key] > self._num_asked[key]:
                first = self._times.first(key)
                if first is None or first[0] > now:
                    break
                self._runs_no_more(first[1])
                if can_leave(first[1]):
                    self._asked[first[1]] = key
                    self._num_asked.add(key, 1)
                    asked.append(first[1])
        return asked

    def _unmet(self, is_free: Callable[[QueueKey], bool]) -> Iterator[QueueKey]:
        if not self._running:
            return
        for key in self._num_waiting:
            if self._num_waiting[key] > self._num_asked[key] and not is_free(key):
                yield key

    def _waits_no_more(self, id: RequestId) -> None:
        if id in self._waiting:
            self._num_waiting.add(self._waiting.pop(id), -1)

    def _runs_no_more(self, id: RequestId) -> None:
        for key in self._running.pop(id, ()):
            self._times.remove(key, id)

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self._times.check_integrity()
        if self._asked.keys() & self._running.keys():
            raise RuntimeError("a request was asked to stop, and may be again")
        for counted, of in ((self._num_waiting, self._waiting), (self._num_asked, self._asked)):
            if any(counted[key] != list(of.values()).count(key) for key in counted):
                raise RuntimeError("requests that wait or were asked to stop are miscounted")


MAX_MODELS = 1024
"""Models that are remembered at most: clients choose the names."""


class Foreground:
    """Requests above the class `batch`: how many are here, and when the last of each model came.

    Say who `came` and who `left`. `None` stands for those that name no model: any agent takes them.
    """

    __slots__ = ("_last", "_models", "_num")

    def __init__(self) -> None:
        self._models: dict[RequestId, str | None] = {}
        self._num: Tally[str | None] = Tally()
        self._last: OrderedDict[str | None, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def came(self, id: RequestId, model: str | None, now: float) -> None:
        """A request is here."""
        self._models[id] = model
        self._num.add(model, 1)
        self._last[model] = now
        self._last.move_to_end(model)
        if len(self._last) > MAX_MODELS:
            self._last.popitem(last=False)

    def left(self, id: RequestId) -> None:
        """A request has ended, if it was one of these."""
        if id in self._models:
            self._num.add(self._models.pop(id), -1)

    def view(self, model: str | None, now: float) -> ForegroundView:
        """The requests that may go where one of `model` goes; all of them for `None`."""
        if model is None:
            last = max(self._last.values(), default=None)
            return ForegroundView(len(self._models), _since(last, now))
        times = [self._last[key] for key in (model, None) if key in self._last]
        num_here = self._num[model] + self._num[None]
        return ForegroundView(num_here, _since(max(times, default=None), now))


def _since(last: float | None, now: float) -> float | None:
    return None if last is None else now - last
