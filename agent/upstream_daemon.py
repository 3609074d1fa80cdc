"""The wiring of an agent that forwards to another server, in place of an engine process's.

The supervisor keeps it running as it keeps an engine. It imports nothing of llama.cpp.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from itertools import count
from typing import assert_never

from ..shared.lifecycle import Shutdown
from ..shared.messages import PROTOCOL_VERSION, Hello, Status
from ..shared.models.assignments import Assign, Reload
from ..shared.reports.statistics import Statistics
from .discovery.links import Links, dialling
from .generation.port import Ticket
from .link.agent_key import AgentKey
from .link.connection import Connection
from .link.outbound import Outbound
from .link.queries import Queries
from .link.reporter import Reporter
from .link.requests import Requests
from .link.session import Session
from .link.slots import Slots
from .settings import AgentSettings
from .supervision.supervisor_protocol import (
    Change,
    Changed,
    Dial,
    Loaded,
    Ordered,
    Ready,
    SupervisorChannel,
    Tell,
)
from .upstream.client import Client
from .upstream.generation import UpstreamGeneration
from .upstream.protocol.address import Address
from .upstream.queries import UpstreamQueries
from .upstream.watch import Watch


async def main(settings: AgentSettings, shutdown: Shutdown, channel: SupervisorChannel) -> None:
    """Forward until `shutdown` is requested. Raises `StartupError` where it cannot go on."""
    if settings.upstream is None:
        raise ValueError("there is nothing to forward to")
    address = Address.of(settings.upstream)
    async with (
        Client(address, settings.upstream_key_file) as client,
        asyncio.TaskGroup() as group,
    ):
        forwarder = _Forwarder(settings, channel, client, group)
        draining = group.create_task(_drain(forwarder, shutdown))
        await forwarder.run()
        draining.cancel()


async def _drain(forwarder: "_Forwarder", shutdown: Shutdown) -> None:
    await shutdown.requested.wait()
    forwarder.drain()


class _Forwarder:
    """`group` has the tasks of requests and queries."""

    def __init__(
        self,
        settings: AgentSettings,
        channel: SupervisorChannel,
        client: Client,
        group: asyncio.TaskGroup,
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._loop = asyncio.get_running_loop()
        self._slots = Slots(settings.slots)
        self._links: Links | None = None
        self._told = Tell()
        self._is_stopping = asyncio.Event()
        self._is_ready = False
        self._watch = Watch(client, settings.upstream_model, self._changed)
        self._generation = UpstreamGeneration(
            client,
            group,
            lambda: self._watch.server,
            on_suspicion=self._watch.suspect,
            on_refusal=self._watch.refused,
            on_served=self._watch.served,
            on_work=lambda: self._reporter.stir(),
        )
        self._queries = UpstreamQueries(client, group, lambda: self._watch.server)
        self._reporter = Reporter(
            read=lambda: self._generation.meter.statistics(time.monotonic()),
            tell=self._report,
            call_later=self._loop.call_later,
        )

    async def run(self) -> None:
        """Until every balancer was left."""
        async with asyncio.TaskGroup() as group:
            stopping = group.create_task(self._is_stopping.wait())
            beginning = group.create_task(self._begin())
            await asyncio.wait({beginning, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if beginning.done():
                helpers = [group.create_task(each) for each in (self._watch.run(), self._obey())]
                await self._serve(beginning.result())
                for helper in helpers:
                    helper.cancel()
            beginning.cancel()
            stopping.cancel()

    async def _begin(self) -> Dial:
        """Look at the server, say what it has, and wait for the order to dial."""
        await self._watch.look()
        known = self._watch.known
        self._channel.report(Loaded(model=None if known is None else known.info))
        return await self._channel.dials.get()

    def drain(self) -> None:
        """Take nothing new, finish what runs, and let `run` return."""
        self._is_stopping.set()
        ordered = self._channel.drain_timeout
        timeout = self._settings.drain_timeout if ordered is None else ordered
        if self._links is not None:
            self._links.stop()
        for connection in self._links or ():
            connection.drain(timeout)

    async def _serve(self, dial: Dial) -> None:
        self._told = Tell(issues=dial.issues, work=dial.work)
        try:
            async with asyncio.TaskGroup() as group:
                self._links = self._connect(group, dial)
                self._reporter.look()
        finally:
            self._reporter.stop()

    def _connect(self, group: asyncio.TaskGroup, order: Dial) -> Links:
        settings = self._settings
        tickets = map(Ticket, count(1))

        def make(
            url: str, dial: Callable[[str], Awaitable[Outbound]], on_ended: Callable[[], None]
        ) -> Connection:
            status = self._status()
            session = Session(
                hello=self._hello(order, status),
                status=status,
                requests=Requests(slots=self._slots, tickets=tickets),
                queries=Queries(tickets),
            )
            return Connection(
                url,
                session,
                self._generation,
                self._queries,
                on_connected=self._ready,
                on_change=self._slots_changed,
                on_order=self._pass_on,
                on_ended=on_ended,
                dial=dial,
            )

        dial_address = dialling(tls=settings.tls, key=AgentKey(settings.key_file))
        return Links(settings.balancer, make, dial_address, group)

    def _hello(self, order: Dial, status: Status) -> Hello:
        settings, begin = self._settings, self._channel.begin
        return Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=begin.agent_id,
            name=settings.name,
            version=version("arriero"),
            slots=status.slots,
            model=status.model,
            labels=settings.labels,
            facts=begin.facts,
            work=status.work,
            takes_over=order.takes_over,
        )

    async def _obey(self) -> None:
        while True:
            order = await self._channel.orders.get()
            match order:
                case Tell():
                    self._told = order
                    self._changed()
                case Change(assignment=assignment):
                    reason = "this agent serves what its upstream server has"
                    self._channel.report(Changed(assignment=assignment, reason=reason))
                case _:
                    assert_never(order)

    # ---- what balancers hear

    def _status(self) -> Status:
        """Makes as many slots as balancers hear of: none while the server is not there."""
        known = self._watch.known
        can_generate = known is not None and "generate" in known.info.tasks
        is_there = self._watch.server is not None
        self._slots.resize(self._settings.slots if is_there and can_generate else 0)
        return Status(
            slots=self._slots.total,
            accepting=True,
            model=None if known is None else known.info,
            issues=(*self._watch.issues, *self._told.issues),
            work=self._told.work,
        )

    def _changed(self) -> None:
        status = self._status()
        for connection in self._links or ():
            connection.tell(status)

    def _slots_changed(self) -> None:
        for connection in self._links or ():
            connection.slots_changed()

    def _report(self, statistics: Statistics) -> None:
        for connection in self._links or ():
            connection.report(statistics)

    def _ready(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self._channel.report(Ready())

    def _pass_on(self, order: Assign | Reload) -> None:
        self._channel.report(Ordered(order=order))
