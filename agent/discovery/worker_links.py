"""How many connections one address needs: one for each worker behind its port.

A dial reaches any of the workers that listen there. Its answer says how many there are to be, and
names those that serve now; an older balancer, or one of a single process, says nothing. So a
connection dials again until it has met a worker that no other one has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

MOST_WORKERS = 64
"""Of one address; more are left out."""

DIALS_PER_WORKER = 4
"""Dials at once before the next pause, while there is a worker still to be met."""


@dataclass(frozen=True, slots=True)
class Workers:
    """`num` are to be, of which those of these names serve now."""

    num: int = 1
    living: frozenset[str] = frozenset()

    @classmethod
    def told(cls, header: str | None) -> Self:
        """From an answer's header: the number, a semicolon, names with commas between."""
        number, _, names = (header or "").partition(";")
        if not (number.isascii() and number.isdigit() and len(number) < 4):
            return cls()
        living = [name for name in names.split(",") if name][:MOST_WORKERS]
        return cls(min(max(1, int(number)), MOST_WORKERS), frozenset(living))


@dataclass(frozen=True, slots=True)
class Wanted:
    """Numbers of connections to open, and to leave; `num_dials` are worth a try at once."""

    opened: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    num_dials: int = 1


def wanted(workers: Workers, met: Mapping[int, str | None]) -> Wanted:
    """What to do for these; `met` is which worker each connection has now, if any, by number.

    A connection beyond the number is left once it has nobody: its worker is gone for good.
    """
    opened = tuple(number for number in range(workers.num) if number not in met)
    left = tuple(n for n, worker in met.items() if n >= workers.num and worker is None)
    is_to_meet = bool(workers.living - set(met.values()))
    return Wanted(opened, left, DIALS_PER_WORKER * workers.num if is_to_meet else 1)
