import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from arriero.agent.balancer_links import BalancerLinks
from arriero.agent.generation.port import Listener, QueryId
from arriero.agent.sequence_id import SequenceId
from arriero.agent.settings import AgentSettings
from arriero.agent.supervision.supervisor_protocol import (
    Begin,
    Dial,
    Ordered,
    Ready,
    Report,
    SupervisorChannel,
)
from arriero.shared.errors import RequestError, ShuttingDown, to_wire
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import Busy, FitRead, Hello, Issue, ReadFit, Refused, Start, Status
from arriero.shared.models.assignments import Assign, HostFacts, Work
from arriero.shared.queries import Query, Result
from tests.agent.fakes import BYTES_INFO, WELCOME, FakeBalancer, Peer, soon

ISSUE = Issue(code="engine_crashed", message="it was started again")


class Side:
    """What answers: nothing ends before it is told to."""

    def __init__(self) -> None:
        self.running: dict[SequenceId, tuple[RequestId, Listener]] = {}
        self.has_begun = asyncio.Event()

    def start(self, id: SequenceId, start: Start, listener: Listener) -> None:
        self.running[id] = (start.id, listener)
        self.has_begun.set()

    def cancel(self, id: SequenceId) -> None:
        self.fail(id, ShuttingDown("cancelled"))

    def fail(self, id: SequenceId, error: RequestError) -> None:
        name, listener = self.running.pop(id)
        listener.produced((Refused(id=name, error=to_wire(error)),), (id,))

    def discard(self, id: SequenceId) -> None:
        _, listener = self.running.pop(id)
        listener.produced((), (id,))

    def answer(self, id: QueryId, query: Query, reply: Callable[[Result], None]) -> None:
        raise AssertionError("nobody asks")

    def withdraw(self, id: QueryId) -> None:
        raise AssertionError("nobody asks")


class Agent:
    def __init__(self, *balancers: FakeBalancer, **settings: Any) -> None:
        urls = {"balancer": tuple(each.url for each in balancers)} if balancers else {}
        self.settings = AgentSettings(**{"name": "box", "slots": 1, **urls, **settings})
        self.reports: list[Report] = []
        begin = Begin(agent_id=AgentId("a1"), settings=self.settings, facts=HostFacts(cores=2))
        self.channel = SupervisorChannel(begin, self.reports.append)
        self.side = Side()
        self.num_changes = 0
        self.slots = 1
        self.links = BalancerLinks(self.settings, self.channel, self.status, self.changed)

    def status(self) -> Status:
        self.links.slots.resize(self.slots)
        order = self.links.supervisor_status
        return Status(
            slots=self.slots,
            accepting=True,
            model=BYTES_INFO,
            issues=order.issues,
            work=order.work,
        )

    def changed(self) -> None:
        self.num_changes += 1

    @asynccontextmanager
    async def dialling(self, order: Dial) -> AsyncIterator[None]:
        """It has left all balancers at the end."""
        async with asyncio.TaskGroup() as group:
            self.links.dial(group, order, self.side, self.side)
            yield
            self.links.drain()
            await soon(self.links.ended())


async def let_in(balancer: FakeBalancer) -> tuple[Peer, Hello]:
    peer = await balancer.peers.get()
    hello = await peer.next()
    assert isinstance(hello, Hello)
    await peer.say(WELCOME)
    return peer, hello


async def test_a_hello_says_who_it_is_and_what_the_supervisor_ordered() -> None:
    work = Work(revision=3, phase="serving")
    async with FakeBalancer.open() as balancer:
        agent = Agent(balancer, label=("gpu=yes",), drain_timeout=0.0)
        async with agent.dialling(Dial(issues=(ISSUE,), work=work, takes_over=True)):
            peer, hello = await let_in(balancer)
            assert (hello.agent_id, hello.name, hello.slots) == ("a1", "box", 1)
            assert (hello.labels, hello.facts.cores) == ({"gpu": "yes"}, 2)
            assert (hello.work, hello.takes_over) == (work, True)
            status = await peer.next()
            assert isinstance(status, Status)
            assert status.issues == (ISSUE,)


async def test_all_balancers_hear_what_changes_and_share_the_slots() -> None:
    async with FakeBalancer.open() as one, FakeBalancer.open() as two:
        agent = Agent(one, two, drain_timeout=0.0)
        async with agent.dialling(Dial()):
            first, _ = await let_in(one)
            second, _ = await let_in(two)
            await first.start("r")
            await soon(agent.side.has_begun.wait())
            assert (agent.links.slots.num_busy, agent.num_changes > 0) == (1, True)
            await second.start("s")
            assert (await second.output()).items == (Busy(id=RequestId("s")),)
            agent.slots = 2
            agent.links.status_changed()
            assert [(await heard(peer)).slots for peer in (first, second)] == [2, 2]
        assert agent.reports.count(Ready()) == 1, "it is ready with the first balancer"


async def test_what_balancers_wish_goes_to_the_supervisor() -> None:
    order = Assign(revision=1, assignment=None)
    async with FakeBalancer.open() as balancer:
        agent = Agent(balancer, drain_timeout=0.0)
        async with agent.dialling(Dial()):
            peer, _ = await let_in(balancer)
            await peer.say(order)
            await peer.start("r")
            await peer.cancel("r")
            await peer.output()  # so the order before was read, too
        assert Ordered(order=order) in agent.reports


async def test_what_the_host_would_choose_goes_to_who_asked() -> None:
    question = ReadFit(id=RequestId("f"), source="file:///m.gguf")
    read = FitRead(id=question.id, issue=Issue(code="gated", message="no"))
    async with FakeBalancer.open() as balancer:
        agent = Agent(balancer, drain_timeout=0.0)
        async with agent.dialling(Dial()):
            peer, _ = await let_in(balancer)
            await peer.say(question)
            await peer.start("r")
            await peer.cancel("r")
            await peer.output()  # so the question before was read, too
            assert Ordered(order=question) in agent.reports
            agent.channel.on_fit_found(read)
            while (message := await peer.next()) != read:
                assert not isinstance(message, FitRead)


async def test_before_it_has_dialled_there_is_nothing_to_leave() -> None:
    agent = Agent()
    agent.links.drain()
    agent.links.engine_stopped("a step failed")
    await soon(agent.links.ended())


async def heard(peer: Peer) -> Status:
    """The last status that the peer hears of those with two slots."""
    while not (isinstance(message := await peer.next(), Status) and message.slots == 2):
        pass
    return message
