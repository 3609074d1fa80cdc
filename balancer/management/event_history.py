"""The events of `/api/v1/events` that readers may still need: a snapshot, and deltas in order.

A reader that is a little behind, or reconnects with the id of its last event, continues from there.
A reader that is too far behind begins again with a snapshot. Each event is encoded once, and shared
by all readers. A new reader's snapshot is as of now, because many read nothing else.

Invariants: deltas have consecutive positions, the last one is `position`; there are at most
`max_deltas` of them, of `max_bytes` together (one at least).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

MAX_DELTAS = 512
MAX_BYTES = 1024 * 1024
SHARED_SECONDS = 1.0
"""Seconds for which newcomers share a snapshot if nothing has changed; its times go on."""


@dataclass(frozen=True, slots=True)
class _Snapshot:
    position: int
    frame: bytes
    made_at: float


class EventHistory:
    """The history of one run. `name` is unique; event ids of other histories are not valid here."""

    def __init__(
        self, name: str, *, max_deltas: int = MAX_DELTAS, max_bytes: int = MAX_BYTES
    ) -> None:
        self.position = 0
        self.num_bytes_ever = 0
        """Bytes of all deltas there ever were."""
        self._name = name
        self._max_deltas = max_deltas
        self._max_bytes = max_bytes
        self._deltas: deque[bytes] = deque()
        self._num_bytes = 0
        self._snapshot: _Snapshot | None = None

    @property
    def num_bytes(self) -> int:
        """The bytes of the deltas and the snapshot that are kept for readers."""
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
        """Begin again after missed changes: all readers need a new snapshot."""
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
        """Return what brings a reader at `position` (`None`: a newcomer) up to date.

        `snapshot` makes a snapshot's body as of `now`. It is called only if there is no snapshot to
        go on from. A reader that is too far behind goes on from an old snapshot, unless the deltas
        since then are half as long as the snapshot.
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
