"""A machine that several hosts share: where more of them compute, each takes longer.

Work is counted in the seconds that it takes while no other host computes. It is of a kind: prefill,
or generating with so many sequences, since short steps wait longer for others, for what they are. A
machine has a clock for each kind, which shows how much of it a host would have done that began with
the machine. Work ends when its clock shows as much more as there was of it. So nothing has to be
changed where another host begins or ends in the middle of it (processor sharing, by virtual time).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

ALONE = (1.0,)
READING = 0
"""The kind of prefill steps; others' kind is the number of sequences that generate."""

_EPSILON = 1e-9
"""Seconds of work that are none: what is left of sums."""


@dataclass(slots=True)
class Machine:
    """`slowdowns` say, for each kind, how many times as long work takes where one host computes,
    two, and so on.

    More hosts than were measured count as the last; so do further kinds.
    """

    slowdowns: Sequence[Sequence[float]] = (ALONE,)
    num_busy: int = 0
    _now: float = 0.0
    _clocks: list[float] = field(init=False)

    def __post_init__(self) -> None:
        self._clocks = [0.0] * len(self.slowdowns)

    def begin(self, kind: int, seconds: float, now: float) -> float:
        """A host computes; what its clock shows when it will have ended."""
        self._advance(now)
        self.num_busy += 1
        return self._clocks[self._known(kind)] + seconds

    def end(self, now: float) -> None:
        """A host computes no longer."""
        self._advance(now)
        self.num_busy -= 1

    def has_come(self, kind: int, until: float, now: float) -> bool:
        """Whether the clock shows this much."""
        self._advance(now)
        return self._clocks[self._known(kind)] >= until - _EPSILON

    def due(self, kind: int, until: float) -> float:
        """When the clock will show this much, if no other host begins or ends before."""
        kind = self._known(kind)
        left = max(0.0, until - self._clocks[kind])
        return self._now + left * self._slowdown(self.slowdowns[kind])

    def _known(self, kind: int) -> int:
        return min(kind, len(self.slowdowns) - 1)

    def _advance(self, now: float) -> None:
        for kind, slowdown in enumerate(self.slowdowns):
            self._clocks[kind] += (now - self._now) / self._slowdown(slowdown)
        self._now = now

    def _slowdown(self, by_busy: Sequence[float]) -> float:
        return by_busy[min(max(self.num_busy, 1), len(by_busy)) - 1]
