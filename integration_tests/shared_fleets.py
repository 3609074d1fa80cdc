"""Fleets that the tests of a process share: of each kind one, started when it is first wanted."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from integration_tests.daemons import Fleet, until

Kind = tuple[str, tuple[tuple[str, object], ...]]
"""Which daemon has settings, and these."""


class SharedFleets:
    """All methods belong to the session's event loop. `stack` ends what they start."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._fleets: dict[Kind, Fleet] = {}

    async def with_agent(self, **settings: object) -> Fleet:
        """A fleet with one agent that has these settings. Tests leave it as it is."""
        kind = ("agent", tuple(sorted(settings.items())))
        fleet = self._whole(kind)
        if fleet is None:
            fleet = await self._start(kind)
            await fleet.start_agent(**settings)
        return fleet

    @asynccontextmanager
    async def without_agents(self, **settings: object) -> AsyncIterator[Fleet]:
        """A fleet whose agents are those that are started inside; they are ended by leaving.

        `settings` are the balancer's.
        """
        kind = ("balancer", tuple(sorted(settings.items())))
        fleet = self._whole(kind) or await self._start(kind, **settings)
        try:
            async with AsyncExitStack() as agents:
                yield fleet.guest(agents)
        finally:
            await until_empty(fleet)

    def _whole(self, kind: Kind) -> Fleet | None:
        """The fleet of this kind, unless a test has ended a daemon of it."""
        fleet = self._fleets.get(kind)
        if fleet is None:
            return None
        daemons = (fleet.balancer, *fleet.agents[:1])  # tests may bring more for a while
        return fleet if all(each.process.returncode is None for each in daemons) else None

    async def _start(self, kind: Kind, **settings: object) -> Fleet:
        fleet = self._fleets[kind] = Fleet(self._stack)
        await fleet.open_client()
        await fleet.start_balancer(**settings)  # type: ignore[arg-type]
        return fleet


async def until_empty(fleet: Fleet) -> None:
    """Waits until no agent and no request is there."""

    async def is_empty() -> bool:
        return not await fleet.view("agents") and not await fleet.view("requests")

    await until(is_empty)
