"""The events of `/api/v1/events` that readers may still need: a snapshot, and deltas in order.

A reader that is slightly behind continues with the next delta. So does a reader that reconnects
with the id of its last event. A reader that is too far behind begins again with a snapshot. Each
event is encoded once for all readers. The snapshot of a new reader is up to date, because many
readers need nothing else.

Invariants: deltas have consecutive positions up to `position`; there are at most `max_deltas`
deltas, with at most `max_bytes` together, but always at least one.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

MAX_DELTAS = 512
MAX_BYTES = 1024 * 1024
SHARED_SECONDS = 1.0
"""Seconds for which new readers share a snapshot if only times have changed."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    position: int
    frame: bytes
    made_at: float


class EventHistory:
    """The history of one run. `name` is unique, so event ids of other histories are not valid."""

    def __init__(
        self, name: str, *, max_deltas: int = MAX_DELTAS, max_bytes: int = MAX_BYTES
    ) -> None:
        self.position = 0
        self.num_bytes_ever = 0
        """The bytes of all deltas since the start."""
        self._name = name
        self._max_deltas = max_deltas
        self._max_bytes = max_bytes
        self._deltas: deque[bytes] = deque()
        self._num_bytes = 0
        self._snapshot: _Snapshot | None = None

    @property
    def num_bytes(self) -> int:
        """The bytes of the deltas and the snapshot that are held for readers."""
        return self._num_bytes + (len(self._snapshot.frame) if self._snapshot else 0)

    def append(self, body: bytes) -> None:
        """Add the next delta."""
        self.position += 1
        frame = self._frame("delta", self.position, body)
        self._deltas.append(frame)
        self._num_bytes += len(frame)
        self.num_bytes_ever += len(frame)
        while len(self._deltas) > self._max_deltas or (
            self._num_bytes > self._max_bytes and len(self._deltas) > 1
        ):
            self._num_bytes -= len(self._deltas.popleft())

    def restart(self) -> None:
        """Begin again after missed changes. All readers then need a new snapshot."""
        self.position += 1
        self._deltas.clear()
        self._num_bytes = 0
        self._snapshot = None

    def position_of(self, event_id: str) -> int | None:
        """Return the position of an event; `None` if its id does not belong to this history."""
        name, _, number = event_id.rpartition("-")
        is_number = number.isascii() and number.isdigit() and len(number) < 16
        return int(number) if name == self._name and is_number else None

    def after(self, position: int | None, snapshot: Callable[[], bytes], now: float) -> list[bytes]:
        """Return the frames that bring a reader at `position` up to date.

        A new reader has the position `None`. `snapshot` makes a snapshot's body as of `now`, and
        is called only if no usable snapshot exists. A reader that is too far behind gets the old
        snapshot, unless the deltas since then are more than half as long as the snapshot.
        """
        if position is not None and self._reaches(position):
            return self._since(position)
        known = self._snapshot
        is_newcomer = position is None
        if known is None or not (
            self._is_current(known, now) if is_newcomer else self._is_worth_keeping(known)
        ):
            body = snapshot()  # may append what it is ahead of
            frame = self._frame("snapshot", self.position, body)
            self._snapshot = known = _Snapshot(self.position, frame, now)
        return [known.frame, *self._since(known.position)]

    def _is_current(self, snapshot: _Snapshot, now: float) -> bool:
        return snapshot.position == self.position and now - snapshot.made_at < SHARED_SECONDS

    def _reaches(self, position: int) -> bool:
        return self.position - len(self._deltas) <= position <= self.position

    def _is_worth_keeping(self, snapshot: _Snapshot) -> bool:
        if not self._reaches(snapshot.position):
            return False
        num_bytes = sum(map(len, self._since(snapshot.position)))
        return num_bytes <= len(snapshot.frame) // 2

    def _since(self, position: int) -> list[bytes]:
        num_known = len(self._deltas) - (self.position - position)
        return list(islice(self._deltas, num_known, None))

    def _frame(self, event: str, position: int, body: bytes) -> bytes:
        return b"event: %s\nid: %s-%d\ndata: %s\n\n" % (
            event.encode(),
            self._name.encode(),
            position,
            body,
        )
