"""Decides which workers run, when a lost worker starts again, and when all have ended.

Every method takes an event and returns decisions, in order. Pauses before a worker starts again
double with each loss, and are forgotten once it has served for `STEADY_PAUSES` times the last
pause.

Invariants: a worker has one process at most; no worker starts after `stop`; `Announce` comes once.
"""

from collections.abc import Iterable
from dataclasses import dataclass

FIRST_PAUSE = 0.5
LAST_PAUSE = 30.0
STEADY_PAUSES = 20


@dataclass(frozen=True, slots=True)
class Start:
    """Start this worker's process."""

    worker: int


@dataclass(frozen=True, slots=True)
class Halt:
    """Let this worker finish its work and end."""

    worker: int


@dataclass(frozen=True, slots=True)
class Announce:
    """All workers serve, for the first time."""


@dataclass(frozen=True, slots=True)
class Quit:
    """No process is left: end with this exit code."""

    code: int


Decision = Start | Halt | Announce | Quit


@dataclass(slots=True)
class _Worker:
    is_running: bool = False
    serves_since: float | None = None
    pause: float = 0.0
    start_at: float | None = None


class Crew:
    """The workers, numbered from 0. Times are in seconds."""

    def __init__(
        self, num: int, *, first_pause: float = FIRST_PAUSE, last_pause: float = LAST_PAUSE
    ) -> None:
        self._workers = [_Worker() for _ in range(num)]
        self._first_pause = first_pause
        self._last_pause = last_pause
        self._is_announced = self._is_stopping = False
        self._code = 0

    @property
    def serving(self) -> list[int]:
        """The workers that serve now."""
        return [n for n, each in enumerate(self._workers) if each.serves_since is not None]

    @property
    def is_stopping(self) -> bool:
        """Whether all workers are to end."""
        return self._is_stopping

    def begin(self) -> list[Decision]:
        """Start the first worker.

        The other workers follow later, so that an error at the start is shown once.
        """
        return self._start([0])

    def ready(self, worker: int, now: float) -> list[Decision]:
        """Record that a worker serves."""
        self._workers[worker].serves_since = now
        if self._is_announced or self._is_stopping:
            return []
        if len(self.serving) == len(self._workers):
            self._is_announced = True
            return [Announce()]
        return self._start(n for n, each in enumerate(self._workers) if not each.is_running)

    def ended(self, worker: int, code: int, now: float) -> list[Decision]:
        """Record that a worker's process has ended, with this exit code, or by the signal `-code`.

        If a worker cannot start at first, all workers end: the worker has shown the error.
        """
        lost = self._workers[worker]
        served, lost.serves_since, lost.is_running = lost.serves_since, None, False
        if not self._is_announced and not self._is_stopping:
            self._code = code if code > 0 else 1
            return self.stop()
        if self._is_stopping:
            if code not in (0, -15, -2):  # a signal to the whole service may come first
                self._code = self._code or (code if code > 0 else 128 - code)
            return self._quit_when_all_ended()
        if served is not None and now - served >= STEADY_PAUSES * lost.pause:
            lost.pause = 0.0
        lost.pause = min(2 * lost.pause or self._first_pause, self._last_pause)
        lost.start_at = now + lost.pause
        return []

    def pause_of(self, worker: int) -> float:
        """Return the seconds before a worker that ended starts again."""
        return self._workers[worker].pause

    def next_deadline(self) -> float | None:
        """Return the time at which to call `tick`; `None` if there is none."""
        due = [each.start_at for each in self._workers if each.start_at is not None]
        return min(due, default=None)

    def tick(self, now: float) -> list[Decision]:
        """Start workers whose pause has ended."""
        return self._start(
            number
            for number, each in enumerate(self._workers)
            if each.start_at is not None and each.start_at <= now
        )

    def stop(self) -> list[Decision]:
        """Let all workers finish. A second call has no effect."""
        if self._is_stopping:
            return []
        self._is_stopping = True
        for each in self._workers:
            each.start_at = None
        running = [n for n, each in enumerate(self._workers) if each.is_running]
        return [*map(Halt, running), *self._quit_when_all_ended()]

    def _start(self, workers: Iterable[int]) -> list[Decision]:
        started = list(workers)
        for number in started:
            self._workers[number].is_running = True
            self._workers[number].start_at = None
        return [*map(Start, started)]

    def _quit_when_all_ended(self) -> list[Decision]:
        return [] if any(each.is_running for each in self._workers) else [Quit(self._code)]
