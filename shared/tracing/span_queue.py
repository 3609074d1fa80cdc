"""A bounded queue of ended spans, and the thread that exports them.

If a collector is slow or unreachable, spans are dropped and counted, but a daemon never waits for
it.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

from ..reports.figures import Family, Figure
from .span import Span

logger = logging.getLogger(__name__)

MAX_WAITING = 4096
"""Maximum spans in the queue; further spans are dropped."""
MAX_BATCH = 512
"""Maximum spans of an export."""
GATHERING = 1.0
"""Seconds for which the first span of a batch waits for other spans."""
LAST_EXPORT = 3.0
"""Maximum seconds of the last export, at the end of the daemon."""

Export = Callable[[Sequence[Span]], bool]
"""Sends a batch and returns whether it arrived. Blocks; must not raise."""


SPANS = Family(
    "spans", "Spans of traces, by what became of them.", label="outcome", is_counter=True
)


@dataclass(frozen=True, slots=True)
class QueueNumbers:
    """The number of spans that wait, and of spans exported and dropped so far."""

    num_waiting: Annotated[
        int, Figure(metric=Family("spans_waiting", "Spans of traces that wait to be exported."))
    ] = 0
    num_exported: Annotated[int, Figure(metric=SPANS, label="exported")] = 0
    num_dropped: Annotated[int, Figure(metric=SPANS, label="dropped")] = 0


class SpanQueue:
    """Queues spans for export. Any thread may call `put`, which never waits."""

    def __init__(self, export: Export, *, gathering: float = GATHERING) -> None:
        self._export = export
        self._gathering = gathering
        self._waiting: deque[Span] = deque()
        self._lock = threading.Lock()
        self._has_news = threading.Event()
        self._is_closing = threading.Event()
        self._num_exported = 0
        self._num_dropped = 0
        self._thread = threading.Thread(target=self._run, name="span-export", daemon=True)
        self._thread.start()

    def put(self, span: Span) -> None:
        """Queue `span` for export, or drop it if too many wait."""
        with self._lock:
            if len(self._waiting) < MAX_WAITING:
                self._waiting.append(span)
            else:
                self._num_dropped += 1
        self._has_news.set()

    def numbers(self) -> QueueNumbers:
        """Return the current numbers."""
        with self._lock:
            return QueueNumbers(len(self._waiting), self._num_exported, self._num_dropped)

    def close(self, within: float = LAST_EXPORT) -> None:
        """Export the waiting spans; give up after `within` seconds. Blocks."""
        self._is_closing.set()
        self._has_news.set()
        self._thread.join(within)

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self._has_news.wait()
            self._is_closing.wait(self._gathering)
            self._has_news.clear()
            while batch := self._next_batch():
                self._send(batch)

    def _next_batch(self) -> list[Span]:
        with self._lock:
            return [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]

    def _send(self, batch: list[Span]) -> None:
        has_arrived = self._export(batch)
        with self._lock:
            if has_arrived:
                self._num_exported += len(batch)
            else:
                self._num_dropped += len(batch)
        if not has_arrived:
            logger.warning("%d spans of traces could not be exported and are lost", len(batch))
