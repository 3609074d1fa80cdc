"""A queue that keeps what it exports."""

from collections.abc import Sequence

from arriero.shared.tracing.span import Span
from arriero.shared.tracing.span_queue import SpanQueue


class Kept:
    """`queue` exports to here; `take` closes it first."""

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self.queue = SpanQueue(self._export, gathering=0.0)

    def _export(self, spans: Sequence[Span]) -> bool:
        self._spans += spans
        return True

    def take(self) -> list[Span]:
        """All spans that were put so far."""
        self.queue.close()
        return self._spans
