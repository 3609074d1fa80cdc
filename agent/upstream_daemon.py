"""The wiring of an agent that forwards to another server instead of running an engine.

The supervisor starts and restarts this process like an engine process. Nothing of llama.cpp is
imported.
"""

import asyncio
import time
from typing import assert_never

from ..shared.lifecycle import Shutdown
from ..shared.messages import Status
from .balancer_links import BalancerLinks
from .change_refusals import forwarder_refused
from .link.reporter import Reporter
from .settings import AgentSettings
from .supervision.supervisor_protocol import (
    Change,
    Changed,
    Dial,
    Loaded,
    ReportStatus,
    ShareThreads,
    SupervisorChannel,
)
from .upstream.client import Client
from .upstream.generation import UpstreamGeneration
from .upstream.protocol.address import ApiAddress
from .upstream.queries import UpstreamQueries
from .upstream.watch import Watch


async def main(settings: AgentSettings, shutdown: Shutdown, channel: SupervisorChannel) -> None:
    """Forward until `shutdown` is requested. Raises `StartupError` if it cannot continue."""
    if settings.upstream is None:
        raise ValueError("there is nothing to forward to")
    address = ApiAddress.of(settings.upstream)
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
    """Forwards to one server. Requests and queries run as tasks of `group`."""

    def __init__(
        self,
        settings: AgentSettings,
        channel: SupervisorChannel,
        client: Client,
        group: asyncio.TaskGroup,
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._links = BalancerLinks(settings, channel, self._status)
        self._is_stopping = asyncio.Event()
        self._watch = Watch(
            client,
            settings.upstream_model,
            self._links.status_changed,
            shown_as=settings.upstream_name,
        )
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
            send=self._links.report,
            call_later=asyncio.get_running_loop().call_later,
        )

    async def run(self) -> None:
        """Run until the agent has left every balancer."""
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
        """Check the server, report its model, and wait for the order to dial."""
        await self._watch.check()
        known = self._watch.known
        self._channel.report(Loaded(model=None if known is None else known.info))
        return await self._channel.dials.get()

    def drain(self) -> None:
        """Accept no new requests, finish running ones, and let `run` return."""
        self._is_stopping.set()
        self._links.drain()

    async def _serve(self, dial: Dial) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._links.dial(group, dial, self._generation, self._queries)
                self._reporter.check()
        finally:
            self._reporter.stop()

    async def _obey(self) -> None:
        while True:
            order = await self._channel.orders.get()
            match order:
                case ReportStatus():
                    self._links.supervisor_status = order
                    self._links.status_changed()
                case Change(assignment=assignment):
                    refusal = Changed(assignment=assignment, issue=forwarder_refused())
                    self._channel.report(refusal)
                case ShareThreads():
                    pass  # the server that it forwards to has its own
                case _:
                    assert_never(order)

    def _status(self) -> Status:
        """Return the status for balancers. Also sets the slots to 0 while the server is down."""
        known, links = self._watch.known, self._links
        can_generate = known is not None and "generate" in known.info.tasks
        is_there = self._watch.server is not None
        links.slots.resize(self._settings.slots if is_there and can_generate else 0)
        return Status(
            slots=links.slots.total,
            accepting=True,
            model=None if known is None else known.info,
            issues=(*self._watch.issues, *links.supervisor_status.issues),
            work=links.supervisor_status.work,
        )
