"""Which addresses of a balancer's name are dialled: all, where there are several of one kind.

A name with one address is dialled as it is. One with several, such as that of a headless service,
stands for so many balancers. An address that the name has no longer is dialled until its connection
is lost, since who is about to go may still have requests.

Invariant: something is dialled always, once the name was looked up.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MOST_ADDRESSES = 64
"""Of one name; more are left out."""

Address = str | None
"""`None`: the name itself, whatever it stands for."""


@dataclass(frozen=True, slots=True)
class Dial:
    """Keep a connection to this address."""

    address: Address


@dataclass(frozen=True, slots=True)
class Leave:
    """Keep none to it."""

    address: Address


Decision = Dial | Leave


class Addresses:
    """Of one name."""

    def __init__(self) -> None:
        self.dialled: set[Address] = set()
        self._live: set[Address] = set()
        self._wanted: frozenset[Address] = frozenset()

    def resolved(self, found: Sequence[str]) -> list[Decision]:
        """The name has these addresses; none if it could not be looked up."""
        several = frozenset(list(dict.fromkeys(found))[:MOST_ADDRESSES])
        if not found and self._wanted:
            return []  # those known before are as good as any
        self._wanted = several if len(several) > 1 else frozenset({None})
        gone = self.dialled - self._wanted - self._live
        new = self._wanted - self.dialled
        self.dialled = (self.dialled | new) - gone
        return [*map(Dial, _sorted(new)), *map(Leave, _sorted(gone))]

    def joined(self, address: Address) -> None:
        """A balancer answered there."""
        if address in self.dialled:
            self._live.add(address)

    def lost(self, address: Address) -> list[Decision]:
        """A connection ended there, or could not be made."""
        self._live.discard(address)
        if address in self._wanted or address not in self.dialled:
            return []
        self.dialled.discard(address)
        return [Leave(address)]

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        if not self._live <= self.dialled or not self._wanted <= self.dialled:
            raise RuntimeError("an address is live or wanted, and not dialled")


def of_one_kind(found: Iterable[tuple[bool, str]]) -> list[str]:
    """The IPv4 addresses, or the others where there are none: a host may have one of each.

    `found`: whether an address is IPv4, and the address.
    """
    found = list(found)
    has_ipv4 = any(is_ipv4 for is_ipv4, _ in found)
    return [address for is_ipv4, address in found if is_ipv4 == has_ipv4]


def _sorted(addresses: Iterable[Address]) -> list[Address]:
    return sorted(addresses, key=lambda each: each or "")
