"""What balancers are told of the engine's work, and when: on change, while there is any.

Invariant: a timer runs only while the engine works, and until a look at it has found nothing new.
"""

from collections.abc import Callable
from typing import Protocol

from ...shared.messages import Cells, Histogram, Statistics
from ..engine.statistics import STALL_BOUNDS, EngineStatistics

INTERVAL = 1.0
"""Shortest time between two reports, in seconds."""


class Timer(Protocol):
    """A call that is still to come."""

    def cancel(self) -> None: ...


class Reporter:
    """`read` asks the engine, `tell` passes it on; `call_later` is an event loop's."""

    def __init__(
        self,
        *,
        read: Callable[[], EngineStatistics],
        tell: Callable[[Statistics], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._read = read
        self._tell = tell
        self._call_later = call_later
        self._told: EngineStatistics | None = None
        self._timer: Timer | None = None

    def look(self) -> None:
        """Tell how things stand if that is news."""
        present = self._read()
        is_news = present != self._told
        if is_news:
            self._told = present
            self._tell(message(present))
        if is_news or present.num_running or present.num_waiting:
            self.stir()

    def stir(self) -> None:
        """The engine has something to do, or did something: look soon."""
        if self._timer is None:
            self._timer = self._call_later(INTERVAL, self._on_timer)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.look()


def message(done: EngineStatistics) -> Statistics:
    """`done` as balancers are told it."""
    return Statistics(
        num_running=done.num_running,
        num_waiting=done.num_waiting,
        cells=Cells(
            total=done.num_cells,
            used=done.num_cells_used - done.num_cells_kept,
            kept=done.num_cells_kept,
            parked=done.num_cells_parked,
        ),
        num_preemptions=done.num_preemptions,
        num_grammars=done.num_grammars,
        num_embedding_cells=done.num_embedding_cells,
        cached_tokens=done.prompt_tokens_cached,
        computed_tokens=done.prompt_tokens_computed,
        completion_tokens=done.completion_tokens,
        drafted_tokens=done.num_drafted,
        accepted_tokens=done.num_accepted,
        decode_tokens=done.decode_tokens,
        decode_seconds=done.decode_seconds,
        prefill_tokens=done.prefill_tokens,
        prefill_seconds=done.prefill_seconds,
        busy_seconds=done.busy_seconds,
        decode_tokens_per_second=done.decode_tokens_per_second,
        prefill_tokens_per_second=done.prefill_tokens_per_second,
        tokens_per_second=done.tokens_per_second,
        average_running=done.average_running,
        stalls=Histogram(bounds=STALL_BOUNDS, counts=done.stalls, seconds=done.stall_seconds),
    )
