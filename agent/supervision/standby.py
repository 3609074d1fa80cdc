"""Stands in for an agent at its balancers while it has no engine process: no slots, an issue.

To balancers it is the same agent. It tells them which model the next engine process will load, so
that requests for that model wait. It must have left before the next engine process dials.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from itertools import count
from typing import NoReturn

from ...shared.errors import RequestError, ShuttingDown, to_wire
from ...shared.inference import AgentId, GenerateRequest, RequestId
from ...shared.messages import PROTOCOL_VERSION, Hello, Issue, Status
from ...shared.models.assignments import Assign, Reload
from ...shared.queries import Declined, Query, Result
from ...shared.reports.model_info import ModelInfo
from ..generation.port import Listener, Ticket
from ..link.connection import Connection
from ..link.queries import Queries
from ..link.requests import Requests
from ..link.session import Session
from ..link.slots import Slots
from ..settings import AgentSettings


class Standby:
    """The connections of an agent without slots. They run as tasks of `group`."""

    def __init__(
        self, settings: AgentSettings, agent_id: AgentId, group: asyncio.TaskGroup
    ) -> None:
        self._balancers = settings.balancer
        self._hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=agent_id,
            name=settings.name,
            version=version("arriero"),
            slots=0,
        )
        self._group = group
        self._connections: list[Connection] = []
        self._tasks: list[asyncio.Task[None]] = []

    def stand_in_for(self, model: ModelInfo) -> None:
        """From the next connection on, say that this model is being loaded."""
        self._hello = replace(self._hello, loading=model)

    def show(self, issues: tuple[Issue, ...]) -> None:
        """Connect to every balancer, or tell those connected that these are the issues now."""
        if self._connections:
            for connection in self._connections:
                connection.tell(issues)
            return
        self._connections = [self._connection(url, issues) for url in self._balancers]
        self._tasks = [self._group.create_task(each.run()) for each in self._connections]

    async def leave(self) -> None:
        """Disconnect from every balancer, and return when that is done."""
        for connection in self._connections:
            connection.drain(0.0)
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._connections, self._tasks = [], []

    def _connection(self, url: str, issues: tuple[Issue, ...]) -> Connection:
        tickets = map(Ticket, count(1))
        requests = Requests(slots=Slots(0), tickets=tickets)
        status = Status(slots=0, accepting=True, issues=issues)
        session = Session(
            hello=self._hello, status=status, requests=requests, queries=Queries(tickets)
        )
        return Connection(
            url,
            session,
            _NoGeneration(),
            _NoQueries(),
            on_connected=_nothing,
            on_change=_nothing,
            on_order=_ignored,
        )


class _NoGeneration:
    """Without slots a session accepts no request, so nothing is ever started."""

    def start(
        self, ticket: Ticket, id: RequestId, request: GenerateRequest, listener: Listener
    ) -> NoReturn:
        raise RuntimeError(f"request {id} came to an agent without slots")

    def cancel(self, ticket: Ticket) -> None:
        """Nothing was started."""

    def fail(self, ticket: Ticket, error: RequestError) -> None:
        """Nothing was started."""

    def discard(self, ticket: Ticket) -> None:
        """Nothing was started."""


class _NoQueries:
    """Without a model there is nothing to answer from; a balancer that asks is declined."""

    def answer(self, ticket: Ticket, query: Query, reply: Callable[[Result], None]) -> None:
        reply(Declined(error=to_wire(ShuttingDown("the agent has no engine now"))))

    def withdraw(self, ticket: Ticket) -> None:
        """It was answered when it was asked."""


def _ignored(order: Assign | Reload) -> None:
    """The agent serves the model it was started with."""


def _nothing() -> None:
    """Nobody else needs to know."""
