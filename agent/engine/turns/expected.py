"""The sequences that are being prepared, for which an idle engine waits a little.

Filled and emptied on different threads; each of its steps is one operation of a set.
"""

from ..sequence import SequenceId


class Expected:
    """Those of the class `batch` are kept apart: nobody else waits for them."""

    def __init__(self) -> None:
        self._urgent: set[SequenceId] = set()
        self._background: set[SequenceId] = set()

    def add(self, id: SequenceId, *, is_background: bool) -> None:
        """It is being prepared."""
        (self._background if is_background else self._urgent).add(id)

    def discard(self, id: SequenceId) -> None:
        """It came, or never will."""
        self._urgent.discard(id)
        self._background.discard(id)

    def are_awaited(self, *, by_urgent: bool) -> bool:
        """Whether there is anybody for whom a first step waits, `by_urgent` sequences or not."""
        return bool(self._urgent) or (not by_urgent and bool(self._background))
