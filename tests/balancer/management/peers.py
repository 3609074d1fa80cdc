"""Agents as the fleet runtime knows them, without a socket."""

import asyncio

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.runtime.outbox import AgentBacklog
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import PROTOCOL_VERSION, FromBalancer, Hello, Output, Piece, Start
from arriero.shared.models.assignments import HostFacts
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Statistics
from tests.balancer.management.views import MODEL


class Peer:
    """An agent that remembers what it was told and answers when the test says so."""

    def __init__(
        self,
        runtime: FleetRuntime,
        name: str,
        *,
        slots: int = 2,
        model: ModelInfo | None = MODEL,
        facts: HostFacts | None = None,
        host: str | None = None,
    ) -> None:
        self.messages: list[FromBalancer] = []
        self._runtime = runtime
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=AgentId(f"id-{name}"),
            name=name,
            version="0.1.0",
            slots=slots,
            model=model,
            facts=facts or HostFacts(),
            host=None if host is None else AgentId(host),
        )
        self._link: LinkId = runtime.agent_joined(self, hello)

    def send(self, message: FromBalancer) -> None:
        self.messages.append(message)

    def backlog(self) -> AgentBacklog:
        return AgentBacklog()

    def disconnect(self, reason: str) -> None:
        pass

    @property
    def started(self) -> list[RequestId]:
        return [message.id for message in self.messages if isinstance(message, Start)]

    def generate(self, request: RequestId, num_tokens: int) -> None:
        """Give `request` a piece of text of so many tokens."""
        piece = Piece(id=request, text="word", tokens=tuple(range(num_tokens)))
        self._runtime.agent_said(self._link, Output(items=(piece,)))

    def says(self, statistics: Statistics) -> None:
        """What its engine did, and its devices."""
        self._runtime.agent_said(self._link, statistics)

    def leave(self, *, hung_up: bool = False) -> None:
        self._runtime.agent_left(self._link, hung_up=hung_up)


class EagerPeer(Peer):
    """An agent that gives each request a first word at once."""

    def send(self, message: FromBalancer) -> None:
        super().send(message)
        if isinstance(message, Start):
            asyncio.get_running_loop().call_soon(self.generate, message.id, 1)
