"""Who of the workers of one parent lives and leads, where their store does not say so.

Invariants: who leads runs; epochs grow.
"""

from ..store.peers.port import Beat, Peer


class Hub:
    """Workers by number. Times in seconds."""

    def __init__(self) -> None:
        self._beats: dict[int, tuple[Beat, float, float]] = {}
        self._leader: int | None = None
        self._epoch = 0

    def beat(self, worker: int, beat: Beat, now: float, wall: float) -> tuple[Peer, ...]:
        """A worker tells of itself; `wall` is now, in seconds since 1970. All that have."""
        _, _, since = self._beats.get(worker, (beat, now, wall))
        self._beats[worker] = (beat, now, since)
        return tuple(
            Peer(beat, max(0.0, now - at), since)
            for _, (beat, at, since) in sorted(self._beats.items())
        )

    def lead(self, worker: int, above: int) -> int | None:
        """A worker asks to lead: its epoch, unless another one leads."""
        if self._leader not in (None, worker):
            return None
        self._leader = worker
        self._epoch = max(self._epoch, above) + 1
        return self._epoch

    def left(self, worker: int) -> None:
        """A worker has ended, or is about to."""
        self._beats.pop(worker, None)
        if self._leader == worker:
            self._leader = None
