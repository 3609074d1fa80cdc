"""Which addresses of a balancer's name are dialled, and how many connections each address needs.

A name with one address is dialled as it is. One with several, such as that of a headless service,
stands for so many balancers. An address that the name has no longer is dialled until its connection
is lost, since a balancer that is about to end may still have requests.

A dial reaches any of the workers that listen at an address. Its answer says how many there are to
be, and names those that serve now; an older balancer, or one of a single process, says nothing. So
a connection dials again until it has met a worker that no other one has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

MOST_ADDRESSES = 64
"""Most addresses of one name; more are left out."""

HostAddress = str | None
"""`None`: the name itself, whatever it stands for."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Keep a connection to this address."""

    address: HostAddress


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Keep no connection to this address."""

    address: HostAddress


Decision = Connect | Disconnect


class Addresses:
    """The addresses of one name.

    Invariant: something is dialled always, once the name was looked up.
    """

    def __init__(self) -> None:
        self.dialled: set[HostAddress] = set()
        self._live: set[HostAddress] = set()
        self._current: frozenset[HostAddress] = frozenset()

    def resolved(self, found: Sequence[str]) -> list[Decision]:
        """The name has these addresses; none if it could not be looked up."""
        several = frozenset(list(dict.fromkeys(found))[:MOST_ADDRESSES])
        if not found and self._current:
            return []  # those known before are as good as any
        self._current = several if len(several) > 1 else frozenset({None})
        gone = self.dialled - self._current - self._live
        new = self._current - self.dialled
        self.dialled = (self.dialled | new) - gone
        return [*map(Connect, _sorted(new)), *map(Disconnect, _sorted(gone))]

    def joined(self, address: HostAddress) -> None:
        """A balancer answered there."""
        if address in self.dialled:
            self._live.add(address)

    def lost(self, address: HostAddress) -> list[Decision]:
        """A connection ended there, or could not be made."""
        self._live.discard(address)
        if address in self._current or address not in self.dialled:
            return []
        self.dialled.discard(address)
        return [Disconnect(address)]

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if not self._live <= self.dialled or not self._current <= self.dialled:
            raise RuntimeError("an address is live or current, and not dialled")


def of_one_kind(found: Iterable[tuple[bool, str]]) -> list[str]:
    """The IPv4 addresses, or the others where there are none: a host may have one of each.

    `found`: whether an address is IPv4, and the address.
    """
    found = list(found)
    has_ipv4 = any(is_ipv4 for is_ipv4, _ in found)
    return [address for is_ipv4, address in found if is_ipv4 == has_ipv4]


def _sorted(addresses: Iterable[HostAddress]) -> list[HostAddress]:
    return sorted(addresses, key=lambda each: each or "")


MOST_WORKERS = 64
"""Most workers of one address; more are left out."""

DIALS_PER_WORKER = 4
"""Dials at once before the next pause, while there is a worker still to be met."""


@dataclass(frozen=True, slots=True)
class Workers:
    """`num` are to be, of which those of these names serve now."""

    num: int = 1
    living: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, header: str | None) -> Self:
        """From an answer's header: the number, a semicolon, names with commas between."""
        number, _, names = (header or "").partition(";")
        if not (number.isascii() and number.isdigit() and len(number) < 4):
            return cls()
        living = [name for name in names.split(",") if name][:MOST_WORKERS]
        return cls(min(max(1, int(number)), MOST_WORKERS), frozenset(living))


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """Numbers of connections to open, and to leave; `num_dials` are worth a try at once."""

    opened: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    num_dials: int = 1


def plan_connections(workers: Workers, met: Mapping[int, str | None]) -> ConnectionPlan:
    """What to do for these; `met` is which worker each connection has now, if any, by number.

    A connection beyond the number is left once it has no worker: that is gone for good.
    """
    opened = tuple(number for number in range(workers.num) if number not in met)
    left = tuple(n for n, worker in met.items() if n >= workers.num and worker is None)
    is_to_meet = bool(workers.living - set(met.values()))
    return ConnectionPlan(opened, left, DIALS_PER_WORKER * workers.num if is_to_meet else 1)
