"""Connections to all balancers of an agent: one per address of each name in `--balancer`.

Names are looked up again at intervals, and when a connection is lost. If two addresses belong to
one balancer, the second connection is closed and tried again later. If several workers listen at
one address, each worker gets a connection. A name behind a proxy has one connection, since the
proxy resolves the name.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from ipaddress import ip_address
from typing import assert_never
from urllib.parse import urlsplit

from ...shared.log import context
from ...shared.tls.contexts import ClientFiles
from ..link.balancer_socket import BalancerSocket
from ..link.connection import Connection
from ..link.dialling import AgentKey, DialFailed, dial
from ..outgoing_proxy import proxy_for
from .addresses import (
    Addresses,
    Connect,
    Decision,
    Disconnect,
    HostAddress,
    Workers,
    of_one_kind,
    plan_connections,
)

logger = logging.getLogger(__name__)

LOOKUP_INTERVAL = 30.0
"""Seconds between two look-ups of a name, less a random part of up to half."""

LOOKUP_AFTER_LOSS = 1.0
"""Seconds from a lost connection to the next look-up, less a random part of up to half."""

DialAddress = Callable[[str, HostAddress], Awaitable[BalancerSocket]]
"""Dials a URL at the given address of its name."""

Make = Callable[[str, Callable[[str], Awaitable[BalancerSocket]], Callable[[], None]], Connection]
"""Makes a connection to a URL, with a function to dial and one to call when it ended or failed."""

Key = tuple[str, HostAddress, int]
"""A connection's URL, the address of its name, and its number among the connections to it."""

Resolve = Callable[[str], Awaitable[Sequence[str]]]


async def resolve(host: str) -> list[str]:
    """Return the addresses of a name, all of one kind (IPv4 or IPv6); none if the name has none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    kinds = ((family == socket.AF_INET, str(at[0])) for family, _, _, _, at in found)
    return of_one_kind(kinds)


def dialling(*, tls: ClientFiles, key: AgentKey) -> DialAddress:
    """Return a function that dials with these files and this key."""

    async def dial_at(url: str, address: HostAddress) -> BalancerSocket:
        return await dial(url, tls=tls, key=key, address=address)

    return dial_at


class AlreadyConnected(DialFailed):
    """Another connection already leads to the balancer that answered."""


class Links:
    """The connections of an agent. `make` makes them; they run as tasks of `group`."""

    def __init__(
        self,
        urls: Sequence[str],
        make: Make,
        dial: DialAddress,
        group: asyncio.TaskGroup,
        *,
        resolve: Resolve = resolve,
        lookup_interval: float = LOOKUP_INTERVAL,
        lookup_after_loss: float = LOOKUP_AFTER_LOSS,
    ) -> None:
        self._make = make
        self._dial = dial
        self._group = group
        self._resolve = resolve
        self._lookup_interval = lookup_interval
        self._lookup_after_loss = lookup_after_loss
        self._connections: dict[Key, Connection] = {}
        self._balancers: dict[Key, str] = {}
        self._lookups: list[asyncio.Task[None]] = []
        self._num_running = 0
        self._ended = asyncio.Event()
        for url in urls:
            host = urlsplit(url).hostname or ""
            if _is_address(host) or proxy_for(url) is not None:
                self._open(url, None, None)
            else:
                self._lookups.append(group.create_task(self._look_up(url, host)))

    def __iter__(self) -> Iterator[Connection]:
        """Yield the current connections."""
        return iter(list(self._connections.values()))

    def __len__(self) -> int:
        return len(self._connections)

    async def ended(self) -> None:
        """Wait until all connections have ended, after `stop`."""
        await self._ended.wait()

    def stop(self) -> None:
        """Dial no further addresses; each connection ends when it is drained or stopped."""
        for lookup in self._lookups:
            lookup.cancel()
        self._lookups = []
        if not self._num_running:
            self._ended.set()

    def leave(self, *, only_dead: bool = False) -> None:
        """Stop, and close all connections, or with `only_dead` those without a balancer."""
        self.stop()
        for key, connection in list(self._connections.items()):
            if not (only_dead and connection.is_live):
                self._leave(key)

    # ---- one name

    async def _look_up(self, url: str, host: str) -> None:
        addresses, lost = Addresses(), asyncio.Event()
        while True:
            for decision in addresses.resolved(await self._resolve(host)):
                self._carry_out(decision, url, addresses, lost)
            lost.clear()
            await _rings(lost, self._lookup_interval * _part())
            if lost.is_set():
                await asyncio.sleep(self._lookup_after_loss * _part())

    def _carry_out(
        self, decision: Decision, url: str, addresses: Addresses, lost: asyncio.Event
    ) -> None:
        match decision:
            case Connect(address):
                if address is not None:
                    logger.info("dialling a balancer", extra=context(url=url, address=address))

                def ended() -> None:
                    lost.set()
                    for following in addresses.lost(address):
                        self._carry_out(following, url, addresses, lost)

                self._open(url, address, addresses, ended)
            case Disconnect(address):
                if address is not None:
                    logger.info("leaving a balancer", extra=context(url=url, address=address))
                for number in self._met(url, address):
                    self._leave((url, address, number))
            case _:
                assert_never(decision)

    # ---- one connection

    def _open(
        self,
        url: str,
        address: HostAddress,
        addresses: Addresses | None,
        on_ended: Callable[[], None] = lambda: None,
        number: int = 0,
    ) -> None:
        key = (url, address, number)

        async def dial_it(at: str) -> BalancerSocket:
            dialled = await self._meet(key, at, open_another)
            if addresses is not None:
                addresses.joined(address)
            return dialled

        def open_another(number: int) -> None:
            self._open(url, address, addresses, on_ended, number)

        def ended() -> None:
            self._balancers.pop(key, None)
            on_ended()

        self._connections[key] = self._make(url, dial_it, ended)
        self._num_running += 1
        self._group.create_task(self._run(self._connections[key]))

    async def _meet(self, key: Key, at: str, open_another: Callable[[int], None]) -> BalancerSocket:
        """Dial a few times, until the dial reaches a balancer without another connection.

        Raises `AlreadyConnected`.
        """
        num_dials = 0
        while True:
            dialled = await self._dial(at, key[1])
            num_dials += 1
            is_new = self._claim(key, dialled)
            plan = plan_connections(Workers.parse(dialled.workers), self._met(*key[:2]))
            for number in plan.opened if key in self._connections else ():
                open_another(number)
            for number in plan.left:
                self._leave((*key[:2], number))
            if is_new:
                return dialled
            if num_dials >= plan.num_dials or key not in self._connections:
                raise AlreadyConnected("another connection already leads to this balancer")

    def _met(self, url: str, address: HostAddress) -> dict[int, str | None]:
        """Return the balancer of each connection to an address, by number."""
        keys = [key for key in self._connections if key[:2] == (url, address)]
        return {key[2]: self._balancers.get(key) for key in keys}

    def _leave(self, key: Key) -> None:
        if (connection := self._connections.pop(key, None)) is not None:
            connection.drain(0.0)

    async def _run(self, connection: Connection) -> None:
        try:
            await connection.run()
        finally:
            self._num_running -= 1
            if not self._num_running and not self._lookups:
                self._ended.set()

    def _claim(self, key: Key, dialled: BalancerSocket) -> bool:
        """Return whether no other connection has this balancer; otherwise abort the socket."""
        balancer = dialled.balancer
        if balancer is None:
            return True
        if balancer in self._balancers.values():
            dialled.abort()
            return False
        self._balancers[key] = balancer
        return True


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _part() -> float:
    return 1 - random.random() / 2


async def _rings(event: asyncio.Event, within: float) -> None:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return
