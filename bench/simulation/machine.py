"""A machine that several hosts share: where more of them compute, each takes longer.

Work is told in the seconds that it takes while nobody else computes. A machine has a clock for each
kind of work, which shows how much of it somebody would have done who began with the machine. Work
ends when its clock shows as much more as there was of it. So nothing has to be changed where
somebody else begins or ends in the middle of it (processor sharing, by virtual time).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

ALONE = (1.0,)
_EPSILON = 1e-9
"""Seconds of work that are none: what is left of sums."""


class Kind(Enum):
    """What a step mostly does: prompts need more of the cores' arithmetic, answers of memory."""

    READING = 0
    GENERATING = 1


@dataclass(slots=True)
class Machine:
    """Where so many hosts compute, work takes so many times as long: from one host on.

    More hosts than are told of count as the last.
    """

    reading: Sequence[float] = ALONE
    generating: Sequence[float] = ALONE
    num_busy: int = 0
    _now: float = 0.0
    _clocks: list[float] = field(default_factory=lambda: [0.0] * len(Kind))

    def begin(self, kind: Kind, seconds: float, now: float) -> float:
        """A host computes; what its clock shows when it will have ended."""
        self._advance(now)
        self.num_busy += 1
        return self._clocks[kind.value] + seconds

    def end(self, now: float) -> None:
        """A host computes no longer."""
        self._advance(now)
        self.num_busy -= 1

    def has_come(self, kind: Kind, until: float, now: float) -> bool:
        """Whether the clock shows this much."""
        self._advance(now)
        return self._clocks[kind.value] >= until - _EPSILON

    def due(self, kind: Kind, until: float) -> float:
        """When the clock will show this much, if nobody else begins or ends before."""
        left = max(0.0, until - self._clocks[kind.value])
        return self._now + left * self._slowdown(kind)

    def _advance(self, now: float) -> None:
        for kind in Kind:
            self._clocks[kind.value] += (now - self._now) / self._slowdown(kind)
        self._now = now

    def _slowdown(self, kind: Kind) -> float:
        all = self.reading if kind is Kind.READING else self.generating
        return all[min(max(self.num_busy, 1), len(all)) - 1]
