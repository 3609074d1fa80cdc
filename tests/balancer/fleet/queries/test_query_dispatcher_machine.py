"""Queries through the whole core against any history: agents that answer, decline, stall or die;
clients that leave or cancel; time passing; a drain. Watched only through decisions and views.
"""

from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import (
    Decision,
    Disconnect,
    Finish,
    LinkId,
    Refuse,
    Send,
    Settle,
)
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.queries.query_dispatcher import PARTS_PER_AGENT
from arriero.shared.errors import EngineFailed, QueueFull, ShuttingDown, to_wire
from arriero.shared.inference import RequestId
from arriero.shared.messages import Ask, FromBalancer, Reply, Status, Withdraw
from arriero.shared.queries import Declined, Embed, Embedded, Result, Vector
from tests.balancer.fleet.builders import hello, model_info, seen
from tests.balancer.fleet.mirror import Mirror

LIMITS = Limits(
    max_buffered_requests=3,
    buffered_request_timeout=6.0,
    request_timeout=20.0,
    heartbeat_interval=1.0,
    heartbeat_timeout=8.0,
)
MODELS = st.sampled_from(["m", "n"])
RESULTS: dict[str, Result] = {
    "answered": Embedded(vectors=(Vector(vector="AAAA", num_tokens=1),)),
    "failed": Declined(error=to_wire(EngineFailed("broken"))),
    "closing": Declined(error=to_wire(ShuttingDown("going"))),
    "full": Declined(error=to_wire(QueueFull("too much"))),
}


@dataclass
class Client:
    """One query as its client sees it; `todo` are its parts without a result."""

    model: str | None
    todo: set[str]
    num_settled: int = 0
    codes: list[str] = field(default_factory=list)

    @property
    def is_live(self) -> bool:
        return not self.codes


@dataclass
class Agent:
    """One link as the agent sees it."""

    model: str
    is_accepting: bool = True
    parts: set[str] = field(default_factory=set)


class QueryDispatcherMachine(RuleBasedStateMachine):
    """Every decision is followed as the shell would, and judged."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(LIMITS)
        self.now = 10.0
        self.clients: dict[RequestId, Client] = {}
        self.agents: dict[LinkId, Agent] = {}
        self.num_links = 0
        self.drain_deadline: float | None = None
        self.mirror = Mirror()

    def follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Send(link=link, message=message):
                    self.hear(self.agents[link], message)
                case Disconnect(link=link):
                    del self.agents[link]
                case Settle(query=id, outcome=outcome):
                    self.clients[id].num_settled += 1
                    assert isinstance(outcome, tuple) == (not self.clients[id].todo)
                case Finish(ending=ending):
                    self.clients[ending.request_id].codes.append(ending.code)
                case Refuse():
                    pass

    def hear(self, agent: Agent, message: FromBalancer) -> None:
        if isinstance(message, Ask):
            client = self.clients[RequestId(message.id.partition(".")[0])]
            assert client.is_live, "asked in vain"
            assert agent.is_accepting
            assert client.model in (None, agent.model)
            assert message.id in client.todo
            assert not any(message.id in other.parts for other in self.agents.values())
            agent.parts.add(message.id)
        elif isinstance(message, Withdraw):
            agent.parts.remove(message.id)

    def live(self) -> list[RequestId]:
        return [id for id, client in self.clients.items() if client.is_live]

    @rule(model=st.none() | MODELS, num_parts=st.integers(1, 5))
    def asks(self, model: str | None, num_parts: int) -> None:
        id = RequestId(f"q{len(self.clients)}")
        self.clients[id] = Client(model, {f"{id}.{n}" for n in range(num_parts)})
        parts = tuple(Embed(inputs=("x",)) for _ in range(num_parts))
        query_request = QueryRequest(kind="embed", parts=parts, model=model)
        self.follow(self.fleet.query_arrived(id, query_request, self.now))
        assert self.drain_deadline is None or not self.clients[id].is_live

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def leaves(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(self.live()))
        self.follow(self.fleet.close(id, self.now))
        assert not self.clients[id].is_live

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def cancels(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.live()), min_size=1))
        self.follow(self.fleet.cancel(ids, self.now))
        assert not any(self.clients[id].is_live for id in ids)

    @rule(model=MODELS)
    def agent_joins(self, model: str) -> None:
        self.num_links += 1
        link = LinkId(self.num_links)
        self.agents[link] = Agent(model)
        info = replace(model_info(model), tasks=("embed",))
        greeting = replace(hello(f"a{link}"), model=info)
        self.follow(self.fleet.agent_joined(link, greeting, self.now))

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), is_accepting=st.booleans())
    def agent_changes(self, data: st.DataObject, is_accepting: bool) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.agents[link].is_accepting = is_accepting
        info = replace(model_info(self.agents[link].model), tasks=("embed",))
        said = Status(slots=0, accepting=is_accepting, model=info)
        self.follow(self.fleet.agent_said(link, said, self.now))

    @precondition(lambda self: any(agent.parts for agent in self.agents.values()))
    @rule(data=st.data(), kind=st.sampled_from(sorted(RESULTS)))
    def agent_replies(self, data: st.DataObject, kind: str) -> None:
        links = sorted(link for link, agent in self.agents.items() if agent.parts)
        link = data.draw(st.sampled_from(links))
        name = data.draw(st.sampled_from(sorted(self.agents[link].parts)))
        self.agents[link].parts.remove(name)
        if kind == "answered":
            self.clients[RequestId(name.partition(".")[0])].todo.remove(name)
        reply = Reply(id=RequestId(name), result=RESULTS[kind])
        self.follow(self.fleet.agent_said(link, reply, self.now))

    @precondition(lambda self: self.agents)
    @rule(data=st.data())
    def agent_goes(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        del self.agents[link]
        self.follow(self.fleet.agent_left(link, self.now))

    @rule(seconds=st.sampled_from([0.1, 0.5, 3.0, 7.0]))
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.fleet.tick(self.now))

    @precondition(lambda self: self.drain_deadline is None and self.live())
    @rule(seconds=st.sampled_from([0.5, 30.0]))
    def drains(self, seconds: float) -> None:
        self.drain_deadline = self.now + seconds
        self.follow(self.fleet.drain(self.now, self.drain_deadline))

    @invariant()
    def the_core_holds_together(self) -> None:
        self.fleet.check_integrity()
        assert {each.id for each in seen(self.fleet, self.now).view().requests} == set(self.live())
        parts = [name for agent in self.agents.values() for name in agent.parts]
        assert seen(self.fleet).totals().parts_asked == len(parts)
        todo = sum(len(self.clients[id].todo) for id in self.live())
        assert seen(self.fleet).totals().parts_waiting == todo - len(parts)
        for agent in self.agents.values():
            assert len(agent.parts) <= PARTS_PER_AGENT["embed"]

    @invariant()
    def the_deltas_add_up_to_the_view(self) -> None:
        self.mirror.follow(self.fleet, self.now)

    @invariant()
    def every_end_was_told_once(self) -> None:
        for client in self.clients.values():
            assert len(client.codes) <= 1
            assert client.num_settled <= len(client.codes)

    @invariant()
    def with_draining_nobody_waits_in_vain(self) -> None:
        if self.drain_deadline is None:
            return
        parts = {name for agent in self.agents.values() for name in agent.parts}
        served = {agent.model for agent in self.agents.values() if agent.is_accepting}
        for id in self.live():
            client = self.clients[id]
            is_served = bool(served) if client.model is None else client.model in served
            assert is_served or client.todo <= parts
        assert self.now < self.drain_deadline or not self.live()

    def teardown(self) -> None:
        self.follow(self.fleet.goodbye(self.now))
        assert not self.live()
        assert not self.agents
        totals = seen(self.fleet).totals()
        assert (totals.parts_asked, totals.parts_waiting) == (0, 0)
        assert self.fleet.next_deadline() is None


TestQueryDispatcherMachine = QueryDispatcherMachine.TestCase
TestQueryDispatcherMachine.settings = settings(stateful_step_count=40, deadline=None)
