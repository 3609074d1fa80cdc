"""The connections of an engine process or forwarder to its balancers.

All connections share the agent's slots. The status for balancers comes from the function `status`
of the daemon, which runs an engine or forwards to another server.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from importlib.metadata import version
from itertools import count

from ..shared.messages import PROTOCOL_VERSION, Evicted, FitRead, Hello, Status
from ..shared.reports.statistics import Statistics
from .discovery.links import Links, dialling
from .generation import port
from .link.balancer_socket import BalancerSocket
from .link.connection import Connection
from .link.decisions import HostOrder
from .link.dialling import AgentKey
from .link.queries import OpenQueries
from .link.requests import Requests, Slots
from .link.session import Session
from .settings import AgentSettings
from .supervision.supervisor_protocol import Dial, Ordered, Ready, ReportStatus, SupervisorChannel


class BalancerLinks:
    """The connections to all balancers. Calling `status` also updates the number of `slots`.

    `on_change` is called when a slot was taken or freed. `on_ticket` is called when a balancer
    gave another agent a ticket for a prefix of this agent. Requests are accepted only while
    `has_room()` is true. Call `slots_changed` when `has_room()` may have become true again.
    """

    def __init__(
        self,
        settings: AgentSettings,
        channel: SupervisorChannel,
        status: Callable[[], Status],
        on_change: Callable[[], None] = lambda: None,
        on_ticket: Callable[[str, float], None] = lambda ticket, seconds: None,
        has_room: Callable[[], bool] = lambda: True,
    ) -> None:
        self._settings = settings
        self._channel = channel
        self._status = status
        self._on_change = on_change
        self._on_ticket = on_ticket
        self._links: Links | None = None
        self._all: list[Links] = []
        """All connections, including connections that have left and still finish their requests.
        """
        self._numbers = count(1)
        self._is_ready = False
        channel.on_fit_found = self._fit_found
        self.slots = Slots(settings.slots, has_room)
        self.supervisor_status = ReportStatus()
        """The last status from the supervisor."""

    def dial(
        self,
        group: asyncio.TaskGroup,
        order: Dial,
        generation: port.Generation,
        queries: port.Queries,
    ) -> None:
        """Connect to all balancers, in tasks of `group`; after `drain`, connect again."""
        self.supervisor_status = ReportStatus(issues=order.issues, work=order.work)
        self._is_ready = False
        numbers = self._numbers

        def make(
            url: str, dial: Callable[[str], Awaitable[BalancerSocket]], on_ended: Callable[[], None]
        ) -> Connection:
            status = self._status()
            session = Session(
                hello=self._hello(order, status),
                status=status,
                requests=Requests(slots=self.slots, numbers=numbers),
                queries=OpenQueries(numbers),
            )
            return Connection(
                url,
                session,
                generation,
                queries,
                secrets=self._channel.secrets,
                on_connected=self._connected,
                on_change=self.slots_changed,
                on_order=self._pass_on,
                on_ended=on_ended,
                on_ticket=self._on_ticket,
                dial=dial,
            )

        settings = self._settings
        dial_address = dialling(tls=settings.tls, key=AgentKey(settings.key_file))
        self._links = Links(settings.balancer, make, dial_address, group)
        self._all.append(self._links)

    def _hello(self, order: Dial, status: Status) -> Hello:
        settings, begin = self._settings, self._channel.begin
        return Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=begin.agent_id,
            host=begin.host,
            name=settings.name,
            version=version("arriero"),
            slots=status.slots,
            model=status.model,
            labels=settings.labels,
            facts=begin.facts,
            work=status.work,
            takes_over=order.takes_over,
            peer=status.peer,
            disk=status.disk,
        )

    # ---- reports to balancers

    def status_changed(self) -> None:
        """Send the current status."""
        status = self._status()
        for connection in self._links or ():
            connection.status_changed(status)

    def report(self, statistics: Statistics) -> None:
        """Send statistics to all balancers."""
        for connection in self._links or ():
            connection.report(statistics)

    def evicted(self, evicted: Evicted) -> None:
        """Tell all balancers which prefixes left the engine's cache."""
        for connection in self._links or ():
            connection.evicted(evicted)

    # ---- the end

    async def ended(self) -> None:
        """Wait until all connections have ended; call this after `dial`."""
        for links in self._all:  # more may come meanwhile
            await links.ended()

    def drain(self) -> None:
        """Accept no new requests, finish running requests within the drain timeout, and leave."""
        ordered = self._channel.drain_timeout
        timeout = self._settings.drain_timeout if ordered is None else ordered
        for connection in self._stopped():
            connection.drain(timeout)

    def engine_stopped(self, reason: str) -> None:
        """Leave all balancers at once, because the engine stopped and no request can finish."""
        for connection in self._stopped():
            connection.engine_stopped(reason)

    def _stopped(self) -> Iterable[Connection]:
        """Dial no further balancers, and return the current connections."""
        if self._links is None:
            return ()
        self._links.stop()
        return self._links

    # ---- events of connections

    def slots_changed(self) -> None:
        """Tell the balancers that got the answer `Busy` that a slot may be free."""
        for connection in self._links or ():
            connection.slots_changed()
        self._on_change()

    def _connected(self) -> None:
        if not self._is_ready:
            self._is_ready = True
            self._channel.report(Ready())

    def _fit_found(self, read: FitRead) -> None:
        for connection in self._links or ():
            connection.fit_found(read)

    def _pass_on(self, order: HostOrder) -> None:
        self._channel.report(Ordered(order=order))
