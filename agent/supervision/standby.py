"""Stands in for an agent at its balancers while no engine process serves: no slots, but issues.

To balancers the stand-in is the same agent. It reports the progress of the assignment, and
forwards the balancers' orders. The engine process takes over its connections one by one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from typing import NoReturn

from ...shared.errors import RequestError, ShuttingDown, to_wire
from ...shared.inference import AgentId
from ...shared.messages import PROTOCOL_VERSION, FitRead, Hello, Issue, Start, Status
from ...shared.models.assignments import HostFacts, Work
from ...shared.queries import Declined, Query, Result
from ...shared.reports.model_info import ModelInfo
from ...shared.reports.statistics import DeviceMemory, Statistics
from ..discovery.links import Links, dialling
from ..generation.port import Listener, QueryId
from ..link.balancer_secrets import BalancerSecrets
from ..link.balancer_socket import BalancerSocket
from ..link.connection import Connection
from ..link.decisions import HostOrder
from ..link.dialling import AgentKey
from ..link.queries import OpenQueries
from ..link.requests import Requests, Slots
from ..link.session import Session
from ..sequence_id import SequenceId
from ..settings import AgentSettings


class Standby:
    """The connections of an agent without slots. They run as tasks of `group`."""

    def __init__(
        self,
        settings: AgentSettings,
        agent_id: AgentId,
        facts: HostFacts,
        group: asyncio.TaskGroup,
        *,
        host: AgentId | None = None,
        secrets: BalancerSecrets,
        on_connected: Callable[[], None],
        on_order: Callable[[HostOrder], None],
    ) -> None:
        """Prepare the connections. `on_connected`: a balancer accepted the agent.

        `on_order`: a balancer sent an order.
        """
        self._balancers = settings.balancer
        self._dial = dialling(tls=settings.tls, key=AgentKey(settings.key_file))
        self._hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=agent_id,
            host=host,
            name=settings.name,
            version=version("arriero"),
            slots=0,
            labels=settings.labels,
            facts=facts,
        )
        self._group = group
        self._secrets = secrets
        self._on_connected = on_connected
        self._on_order = on_order
        self._status = Status(slots=0, accepting=True)
        self._links: Links | None = None
        self._measured: Statistics | None = None

    def show(
        self,
        issues: tuple[Issue, ...],
        work: Work | None,
        loading: ModelInfo | None,
        *,
        is_making_way: bool = False,
    ) -> None:
        """Connect to every balancer, or send the current status over existing connections.

        `is_making_way`: an engine process is dialling, so keep live connections and dial no
        balancer.

        A new connection replaces the connection of an engine process. It announces that the model
        `loading` is being loaded, so that requests for the model wait.
        """
        self._status = Status(slots=0, accepting=True, issues=issues, work=work)
        self._hello = replace(self._hello, work=work, loading=loading, takes_over=True)
        for connection in self._links or ():
            connection.status_changed(self._status)
        if is_making_way:
            self._leave(only_dead=True)
        elif self._links is None:
            self._links = Links(self._balancers, self._make, self._dial, self._group)

    def host_changed(self, num_places: int) -> None:
        """Note the number of places of the host; the next connections announce it."""
        self._hello = replace(self._hello, num_places=num_places)
        for connection in self._links or ():
            connection.host_changed(num_places)

    def measured(self, devices: tuple[DeviceMemory, ...]) -> None:
        """Report the host's memory while no engine reports it; `devices` is empty once an engine
        does.
        """
        self._measured = Statistics(devices=devices)
        for connection in self._links or ():
            connection.report(self._measured)

    def fit_found(self, read: FitRead) -> None:
        """Send how the host would load a model that a balancer asked about."""
        for connection in self._links or ():
            connection.fit_found(read)

    def leave(self) -> None:
        """Disconnect from every balancer, without waiting."""
        self._leave()

    def _leave(self, *, only_dead: bool = False) -> None:
        if self._links is not None:
            self._links.leave(only_dead=only_dead)
            self._links = self._links or None

    def _make(
        self,
        url: str,
        dial: Callable[[str], Awaitable[BalancerSocket]],
        on_ended: Callable[[], None],
    ) -> Connection:
        numbers = count(1)
        requests = Requests(slots=Slots(0), numbers=numbers)
        session = Session(
            hello=self._hello, status=self._status, requests=requests, queries=OpenQueries(numbers)
        )
        connection = Connection(
            url,
            session,
            _NoGeneration(),
            _NoQueries(),
            secrets=self._secrets,
            on_connected=self._on_connected,
            on_change=_nothing,
            on_order=self._on_order,
            on_ended=on_ended,
            dial=dial,
        )
        if self._measured is not None:
            connection.report(self._measured)
        return connection


class _NoGeneration:
    """Generation of an agent without slots, whose sessions accept no request."""

    def start(self, id: SequenceId, start: Start, _: Listener) -> NoReturn:
        raise RuntimeError(f"request {start.id} came to an agent without slots")

    def cancel(self, id: SequenceId) -> None:
        """Do nothing: no request was started."""

    def fail(self, id: SequenceId, error: RequestError) -> None:
        """Do nothing: no request was started."""

    def discard(self, id: SequenceId) -> None:
        """Do nothing: no request was started."""


class _NoQueries:
    """Declines every query, because there is no model."""

    def answer(self, id: QueryId, query: Query, reply: Callable[[Result], None]) -> None:
        reply(Declined(error=to_wire(ShuttingDown("the agent has no engine now"))))

    def withdraw(self, id: QueryId) -> None:
        """Do nothing: queries are answered at once."""


def _nothing() -> None:
    """Do nothing: there is no other process to tell."""
