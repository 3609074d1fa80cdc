"""Which class has the next turn: the highest that waits, but for a share of those that starve.

A class that has waited for `STARVED_AFTER` seconds behind higher ones, for one model, gets every
`EVERY`th start of that model from then on, until nothing higher waits.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .....shared.inference import PRIORITY_CLASSES, PriorityClass

STARVED_AFTER = 10.0
"""Seconds that a class waits behind higher ones until it has a share."""

EVERY = 4
"""One of so many starts is that share."""

FALLING: tuple[PriorityClass, ...] = tuple(reversed(PRIORITY_CLASSES))


@dataclass(slots=True)
class _Hunger:
    """`num_passed`: starts of higher classes since the last of this one."""

    since: float
    num_passed: int = 0


class Turns:
    """A pool is what a request waits for: a model by name, or `None` for any."""

    __slots__ = ("_hungers",)

    def __init__(self) -> None:
        self._hungers: dict[tuple[PriorityClass, str | None], _Hunger] = {}

    def waits(self, kind: PriorityClass, pool: str | None, now: float) -> None:
        """Somebody of this class waits, where nobody did."""
        self._hungers[kind, pool] = _Hunger(now)

    def empty(self, kind: PriorityClass, pool: str | None) -> None:
        """Nobody of this class waits there any more."""
        del self._hungers[kind, pool]

    def next(
        self, kinds: Sequence[PriorityClass], pools: Collection[str | None], now: float
    ) -> PriorityClass:
        """Of classes that wait, highest first, the one whose turn it is. `kinds` is not empty."""
        for kind in reversed(kinds[1:]):
            hungers = self._of(kind, pools)
            if any(_is_due(hunger, now) for hunger in hungers):
                return kind
        return kinds[0]

    def started(
        self,
        kind: PriorityClass,
        others: Iterable[PriorityClass],
        pools: Collection[str | None],
        now: float,
    ) -> None:
        """A request of `kind` starts while those of `others` wait for the same agents."""
        others = list(others)
        is_first = all(
            PRIORITY_CLASSES.index(other) < PRIORITY_CLASSES.index(kind) for other in others
        )
        for hunger in self._of(kind, pools):
            hunger.num_passed = 0
            hunger.since = now if is_first else hunger.since
        for other in others:
            for hunger in self._of(other, pools):
                hunger.num_passed += _is_starved(hunger, now)

    def _of(self, kind: PriorityClass, pools: Collection[str | None]) -> list[_Hunger]:
        found = (self._hungers.get((kind, pool)) for pool in pools)
        return [hunger for hunger in found if hunger is not None]

    def check_integrity(self, waiting: Collection[tuple[PriorityClass, str | None]]) -> None:
        """For tests: raise if other classes wait than these."""
        if self._hungers.keys() != set(waiting):
            raise RuntimeError(f"{self._hungers.keys()} are said to wait, and {waiting} do")


def _is_starved(hunger: _Hunger, now: float) -> bool:
    return now - hunger.since >= STARVED_AFTER


def _is_due(hunger: _Hunger, now: float) -> bool:
    return _is_starved(hunger, now) and hunger.num_passed >= EVERY - 1
