"""Decides which addresses of a balancer's name are dialled, and with how many connections.

If a name has one address, the name itself is dialled. A name with several addresses, such as the
name of a headless service, stands for several balancers. An address that disappears from the name
is dialled until its connection is lost, since a stopping balancer may still have requests.

A dial reaches any of the workers that listen at an address. The answer has the configured number
of workers and the names of the workers that serve now. Older and single-process balancers send
neither. So a connection dials again until it reaches a worker without another connection.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

MOST_ADDRESSES = 64
"""Maximum addresses of one name; further ones are ignored."""

HostAddress = str | None
"""An address of a name; `None` is the name itself, however it resolves."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Keep a connection to this address."""

    address: HostAddress


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection to this address."""

    address: HostAddress


Decision = Connect | Disconnect


class Addresses:
    """The addresses of one name.

    Invariant: once the name was looked up, at least one address is dialled.
    """

    def __init__(self) -> None:
        self.dialled: set[HostAddress] = set()
        self._live: set[HostAddress] = set()
        self._current: frozenset[HostAddress] = frozenset()

    def resolved(self, found: Sequence[str]) -> list[Decision]:
        """Update the name's addresses; `found` is empty if it could not be resolved."""
        several = frozenset(list(dict.fromkeys(found))[:MOST_ADDRESSES])
        if not found and self._current:
            return []  # those known before are as good as any
        self._current = several if len(several) > 1 else frozenset({None})
        gone = self.dialled - self._current - self._live
        new = self._current - self.dialled
        self.dialled = (self.dialled | new) - gone
        return [*map(Connect, _sorted(new)), *map(Disconnect, _sorted(gone))]

    def joined(self, address: HostAddress) -> None:
        """Note that a balancer answered at `address`."""
        if address in self.dialled:
            self._live.add(address)

    def lost(self, address: HostAddress) -> list[Decision]:
        """Note that a connection to `address` ended or failed."""
        self._live.discard(address)
        if address in self._current or address not in self.dialled:
            return []
        self.dialled.discard(address)
        return [Disconnect(address)]

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if not self._live <= self.dialled or not self._current <= self.dialled:
            raise RuntimeError("an address is live or current, and not dialled")


def of_one_kind(found: Iterable[tuple[bool, str]]) -> list[str]:
    """Return the IPv4 addresses; if there are none, the IPv6 addresses.

    A host may have an address of each kind. Each entry of `found` says whether the address is
    IPv4, and has the address.
    """
    found = list(found)
    has_ipv4 = any(is_ipv4 for is_ipv4, _ in found)
    return [address for is_ipv4, address in found if is_ipv4 == has_ipv4]


def _sorted(addresses: Iterable[HostAddress]) -> list[HostAddress]:
    return sorted(addresses, key=lambda each: each or "")


MOST_WORKERS = 64
"""Maximum workers of one address; further ones are ignored."""

DIALS_PER_WORKER = 4
"""Dials in quick succession before the next pause, while a worker has no connection yet."""


@dataclass(frozen=True, slots=True)
class Workers:
    """The workers behind an address: `num` are configured; those in `living` serve now."""

    num: int = 1
    living: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, header: str | None) -> Self:
        """Parse an answer's header: the number, a semicolon, names separated by commas."""
        number, _, names = (header or "").partition(";")
        if not (number.isascii() and number.isdigit() and len(number) < 4):
            return cls()
        living = [name for name in names.split(",") if name][:MOST_WORKERS]
        return cls(min(max(1, int(number)), MOST_WORKERS), frozenset(living))


@dataclass(frozen=True, slots=True)
class ConnectionPlan:
    """The connections to open and to close, by number; `num_dials` more attempts are useful now."""

    opened: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    num_dials: int = 1


def plan_connections(workers: Workers, met: Mapping[int, str | None]) -> ConnectionPlan:
    """Return the plan for `workers`; `met` maps each connection's number to its worker, if any.

    A connection beyond the number of workers is closed once it has no worker.
    """
    opened = tuple(number for number in range(workers.num) if number not in met)
    left = tuple(n for n, worker in met.items() if n >= workers.num and worker is None)
    is_to_meet = bool(workers.living - set(met.values()))
    return ConnectionPlan(opened, left, DIALS_PER_WORKER * workers.num if is_to_meet else 1)
