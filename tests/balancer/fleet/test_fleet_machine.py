"""The composed core against any history: agents that answer, refuse, stall, die or talk junk;
clients that leave or cancel; time passing; a drain. Watched only through its decisions and views.
"""

from collections import Counter
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.fleet.decisions import (
    BetweenTokens,
    Decision,
    Deliver,
    Disconnect,
    Finish,
    FirstToken,
    LinkId,
    Refuse,
    Send,
)
from arriero.balancer.fleet.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.shared.errors import EngineFailed, ShuttingDown
from arriero.shared.inference import AgentId, Done, Failed, RequestId, Token
from arriero.shared.messages import Cancel, FromAgent, FromBalancer, Item, Start, Statistics
from tests.balancer.fleet.builders import (
    busy,
    ended,
    hello,
    output,
    piece,
    refused,
    request,
    status,
)
from tests.balancer.fleet.mirror import Mirror

MODELS = st.sampled_from([None, "m", "n"])
SLOTS = st.integers(0, 3)
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.0])
AGENT_IDS = st.sampled_from(["a", "b", "c"])
LIMITS = {
    "buffered_request_timeout": 6.0,
    "first_token_timeout": 5.0,
    "token_timeout": 3.0,
    "request_timeout": 20.0,
    "heartbeat_interval": 1.0,
    "heartbeat_timeout": 4.0,
}


@dataclass
class Client:
    """One request as its client sees it."""

    model: str | None
    opened_at: float
    texts: list[str] = field(default_factory=list)
    num_starts: int = 0
    is_cancelled: bool = False
    is_closed: bool = False
    end: Done | Failed | None = None


@dataclass
class Agent:
    """One link as the agent sees it: what it reported, what it was told to run."""

    id: str
    slots: int
    model: str | None
    is_accepting: bool = True
    running: list[RequestId] = field(default_factory=list)


class FleetMachine(RuleBasedStateMachine):
    """Every decision is followed as the shell would, and judged."""

    @initialize(max_buffered=st.integers(0, 4))
    def start(self, max_buffered: int) -> None:
        self.limits = Limits(max_buffered_requests=max_buffered, **LIMITS)
        self.fleet = Fleet(self.limits)
        self.now = 10.0
        self.clients: dict[RequestId, Client] = {}
        self.refused: set[RequestId] = set()
        self.codes: dict[RequestId, str] = {}
        self.agents: dict[LinkId, Agent] = {}
        self.old_links: list[LinkId] = [LinkId(0)]
        self.num_links = 0
        self.drain_deadline: float | None = None
        self.mirror = Mirror()

    # ---- carrying decisions out

    def follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Send(link=link, message=message):
                    self.hear(link, message)
                case Disconnect(link=link):
                    del self.agents[link]
                    self.old_links.append(link)
                case Deliver(request=id, event=event):
                    self.receive(id, event)
                case Refuse(request=id):
                    self.refused.add(id)
                case Finish(ending=ending):
                    assert ending.request_id not in self.codes, "ended twice"
                    self.codes[ending.request_id] = ending.code
                    self.stop_cancelled(ending.request_id)
                case FirstToken(seconds=seconds) | BetweenTokens(seconds=seconds):
                    assert seconds >= 0

    def hear(self, link: LinkId, message: FromBalancer) -> None:
        agent = self.agents[link]
        if isinstance(message, Start):
            client = self.clients[message.id]
            assert agent.is_accepting, "work for one that takes none"
            assert agent.model is not None
            assert client.model in (None, agent.model)
            assert len(agent.running) < agent.slots, "more than the slots"
            assert not (client.is_cancelled or client.is_closed or client.end)
            assert not any(message.id in other.running for other in self.agents.values())
            assert not client.texts, "started again after something was delivered"
            client.num_starts += 1
            agent.running.append(message.id)
        elif isinstance(message, Cancel):
            assert message.id in agent.running
            if not self.clients[message.id].is_cancelled:
                agent.running.remove(message.id)

    def stop_cancelled(self, id: RequestId) -> None:
        """An agent that was told frees the slot before anything that is sent from now on."""
        if self.clients[id].is_cancelled:
            for agent in self.agents.values():
                if id in agent.running:
                    agent.running.remove(id)

    def receive(self, id: RequestId, event: object) -> None:
        client = self.clients[id]
        assert not client.is_closed, "delivered to one that is gone"
        assert client.end is None, "delivered after the end"
        if isinstance(event, Done | Failed):
            client.end = event
        else:
            assert isinstance(event, Token)
            client.texts.append(event.text)

    def say(self, link: LinkId, message: FromAgent) -> None:
        self.follow(self.fleet.agent_said(link, message, self.now))

    def live(self) -> list[RequestId]:
        return [
            id
            for id, client in self.clients.items()
            if not (client.end or client.is_closed or id in self.refused)
        ]

    # ---- clients

    @rule(model=MODELS)
    def client_opens(self, model: str | None) -> None:
        id = RequestId(f"r{len(self.clients)}")
        self.clients[id] = Client(model, self.now)
        depth = self.fleet.totals().queue_depth
        self.follow(self.fleet.open(id, request(model), self.now))
        if self.drain_deadline is not None:
            assert self.codes[id] == "shutting_down"
        now_depth = self.fleet.totals().queue_depth
        assert now_depth <= max(depth, self.limits.max_buffered_requests)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def client_leaves(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.clients)))
        self.clients[id].is_closed = True
        self.follow(self.fleet.close(id, self.now))

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def client_cancels(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from(self.live()), min_size=1))
        self.follow(self.fleet.tick(self.now))
        waiting = {each.id for each in self.fleet.view(self.now).requests if each.agent is None}
        for id in ids:
            self.clients[id].is_cancelled = True
        self.follow(self.fleet.cancel(ids, self.now))
        for id in waiting.intersection(ids):
            assert self.codes[id] == "cancelled"

    # ---- agents

    @rule(id=AGENT_IDS, slots=SLOTS, model=MODELS)
    def agent_joins(self, id: str, slots: int, model: str | None) -> None:
        self.num_links += 1
        link = LinkId(self.num_links)
        self.agents[link] = Agent(id, slots, model)
        self.follow(self.fleet.agent_joined(link, hello(id, slots=slots, model=model), self.now))
        assert [agent.id for agent in self.agents.values()].count(id) == 1

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), slots=SLOTS, model=MODELS, is_accepting=st.booleans())
    def agent_changes(
        self, data: st.DataObject, slots: int, model: str | None, is_accepting: bool
    ) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        if link in self.agents:
            agent = self.agents[link]
            agent.slots, agent.model, agent.is_accepting = slots, model, is_accepting
            self.say(link, status(slots, accepting=is_accepting, model=model))

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), num_running=st.integers(0, 9))
    def agent_tells_of_its_engine(self, data: st.DataObject, num_running: int) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        if link in self.agents:
            said = Statistics(num_running=num_running)
            assert self.fleet.agent_said(link, said, self.now) == []
            views = {each.id: each for each in self.fleet.view(self.now).agents}
            assert views[AgentId(self.agents[link].id)].statistics == said

    @precondition(lambda self: any(agent.running for agent in self.agents.values()))
    @rule(data=st.data(), answer=st.sampled_from(["piece", "ended", "refused", "busy", "closing"]))
    def agent_answers(self, data: st.DataObject, answer: str) -> None:
        links = sorted(link for link, agent in self.agents.items() if agent.running)
        link = data.draw(st.sampled_from(links))
        self.follow(self.fleet.tick(self.now))
        if link not in self.agents or not self.agents[link].running:
            return
        id = data.draw(st.sampled_from(self.agents[link].running))
        items: dict[str, Item] = {
            "piece": piece(id),
            "ended": ended(id),
            "refused": refused(id, EngineFailed("broken")),
            "busy": busy(id),
            "closing": refused(id, ShuttingDown("going")),
        }
        if answer != "piece":
            self.agents[link].running.remove(id)
        self.say(link, output(items[answer]))

    @precondition(lambda self: self.agents and self.clients)
    @rule(data=st.data(), answer=st.sampled_from([piece, ended, busy]))
    def agent_meddles(self, data: st.DataObject, answer: object) -> None:
        """Late words, and words about what was never its own."""
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        strangers = sorted(set(self.clients) - set(self.running_on(link)))
        if link in self.agents and strangers:
            id = data.draw(st.sampled_from([*strangers, "unknown"]))
            before = self.fleet.totals().items_ignored
            assert callable(answer)
            decisions = self.fleet.agent_said(link, output(answer(id)), self.now)
            assert decisions == []
            assert self.fleet.totals().items_ignored == before + 1

    @rule(data=st.data())
    def old_link_speaks(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(self.old_links))
        self.follow(self.fleet.tick(self.now))
        assert self.fleet.agent_said(link, output(ended("r0")), self.now) == []
        assert self.fleet.agent_left(link, self.now) == []

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), says_hello=st.booleans())
    def agent_goes(self, data: st.DataObject, says_hello: bool) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        if link in self.agents:
            if says_hello:
                self.say(link, hello("a"))
                assert link not in self.agents
            else:
                del self.agents[link]
                self.old_links.append(link)
                self.follow(self.fleet.agent_left(link, self.now))

    def running_on(self, link: LinkId) -> list[RequestId]:
        return self.agents[link].running if link in self.agents else []

    # ---- time

    @rule(seconds=SECONDS)
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.fleet.tick(self.now))

    @rule(speaking=st.sets(st.integers(0, 20)))
    def the_next_deadline_comes(self, speaking: set[int]) -> None:
        for link in sorted(self.agents):
            if link in speaking:
                self.say(link, output())
        deadline = self.fleet.next_deadline()
        if deadline is not None:
            self.now = max(self.now, deadline)
            self.follow(self.fleet.tick(self.now))
            assert (self.fleet.next_deadline() or self.now + 1) > self.now

    @precondition(lambda self: self.drain_deadline is None and self.num_links > 3)
    @rule(seconds=SECONDS)
    def drains(self, seconds: float) -> None:
        self.drain_deadline = self.now + seconds
        self.follow(self.fleet.drain(self.now, self.drain_deadline))

    # ---- what always holds

    @invariant()
    def the_core_holds_together(self) -> None:
        self.fleet.check_integrity()
        assert self.fleet.is_idle == (not self.live())

    @invariant()
    def the_views_tell_the_truth(self) -> None:
        view = self.fleet.view(self.now)
        assert {each.id for each in view.requests} == set(self.live())
        assert {each.id for each in view.agents} == {each.id for each in self.agents.values()}
        on_agents = Counter(each.agent for each in view.requests if each.agent is not None)
        for agent in view.agents:
            assert agent.slots.busy == on_agents[agent.id]
        assert view.slots_busy == sum(on_agents.values())
        assert view.queue_depth == len(view.requests) - view.slots_busy

    @invariant()
    def the_deltas_add_up_to_the_view(self) -> None:
        self.mirror.follow(self.fleet, self.now)

    @invariant()
    def agents_run_what_the_balancer_thinks(self) -> None:
        by_id = {agent.id: agent for agent in self.agents.values()}
        for each in self.fleet.view(self.now).requests:
            assert each.agent is None or each.id in by_id[each.agent].running
        assert sum(len(a.running) for a in by_id.values()) == self.fleet.totals().slots_busy

    @invariant()
    def deadlines_are_kept(self) -> None:
        self.follow(self.fleet.tick(self.now))
        for each in self.fleet.view(self.now).requests:
            assert each.age_seconds < self.limits.request_timeout
            if each.state == "queued":
                assert each.waited_seconds < self.limits.buffered_request_timeout
        if self.drain_deadline is not None and self.now >= self.drain_deadline:
            assert self.fleet.is_idle

    @invariant()
    def every_end_was_told_once(self) -> None:
        for id, client in self.clients.items():
            assert (id in self.codes) == (id not in self.live())
            if id in self.refused:
                assert client.num_starts == 0
                assert client.end is None
            elif id in self.codes:
                assert (client.end is None) == (self.codes[id] == "client_gone")

    def teardown(self) -> None:
        if not hasattr(self, "fleet"):
            return
        self.follow(self.fleet.goodbye(self.now))
        assert set(self.codes) == set(self.clients)
        assert not self.agents
        totals = self.fleet.totals()
        assert (totals.slots_busy, totals.slots_total, totals.queue_depth) == (0, 0, 0)
        assert not totals.is_ready
        assert self.fleet.next_deadline() is None
        self.fleet.check_integrity()


TestFleetMachine = FleetMachine.TestCase
TestFleetMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)
