"""Sends the engine's statistics to balancers: at most once a second, and only when they changed.

Invariant: the timer runs only while the engine works, and until one check found nothing new.
"""

from collections.abc import Callable
from typing import Protocol

from ...shared.reports.statistics import Cells, Histogram, Statistics
from ..engine.statistics import STALL_BOUNDS, EngineStatistics

INTERVAL = 1.0
"""Seconds between two reports, at least."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None: ...


class Reporter:
    """`read` gets the statistics, `send` sends them; `call_later` is the event loop's."""

    def __init__(
        self,
        *,
        read: Callable[[], EngineStatistics],
        send: Callable[[Statistics], None],
        call_later: Callable[[float, Callable[[], None]], Timer],
    ) -> None:
        self._read = read
        self._send = send
        self._call_later = call_later
        self._sent: EngineStatistics | None = None
        self._timer: Timer | None = None

    def check(self) -> None:
        """Send the statistics if they changed."""
        present = self._read()
        is_new = present != self._sent
        if is_new:
            self._sent = present
            self._send(message(present))
        if is_new or present.num_running or present.num_waiting:
            self.stir()

    def stir(self) -> None:
        """The engine has work, or did some: check within `INTERVAL`."""
        if self._timer is None:
            self._timer = self._call_later(INTERVAL, self._on_timer)

    def stop(self) -> None:
        """Check no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        self.check()


def message(done: EngineStatistics) -> Statistics:
    """`done` as a message."""
    return Statistics(
        num_running=done.num_running,
        num_waiting=done.num_waiting,
        num_commands=done.num_commands,
        cells=Cells(
            total=done.num_cells,
            used=done.num_cells_used - done.num_cells_kept,
            kept=done.num_cells_kept,
            parked=done.num_cells_parked,
        ),
        num_preemptions=done.num_preemptions,
        num_grammars=done.num_grammars,
        num_embedding_cells=done.num_embedding_cells,
        num_draft_cells=done.num_draft_cells,
        num_media_bytes=done.num_media_bytes,
        fetches=done.fetches,
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
