"""The composed core against any history: requests and queries; agents that answer, refuse, stall,
die, come back or talk junk; clients that leave or cancel; deadlines that fall together; a drain.
Watched only through its decisions and views.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.access.limits.account import Level
from arriero.balancer.access.limits.sliding_window import SPAN
from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Disconnect,
    Finish,
    FirstToken,
    LinkId,
    Refuse,
    Send,
    Settle,
)
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.balancer.fleet.queries.query_dispatcher import PARTS_PER_AGENT
from arriero.shared.errors import EngineFailed, QueueFull, RequestError, ShuttingDown, to_wire
from arriero.shared.inference import (
    AgentId,
    Begun,
    Done,
    Event,
    Failed,
    Notice,
    RequestId,
    Token,
    ToolCall,
    ToolCallStarted,
    Waiting,
)
from arriero.shared.messages import (
    Ask,
    Called,
    CallStarted,
    Cancel,
    FromAgent,
    FromBalancer,
    Heartbeat,
    Item,
    Noticed,
    PromptRead,
    Reply,
    Start,
    Withdraw,
)
from arriero.shared.queries import Declined, Embed, Embedded, Result, Vector
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Statistics
from tests.balancer.fleet.builders import (
    busy,
    ended,
    hello,
    model_info,
    output,
    piece,
    refused,
    request,
    status,
)
from tests.balancer.fleet.mirror import Mirror

MODELS = st.sampled_from([None, "m", "m", "n"])
WANTED = st.sampled_from([None, "m", "m", "n", "x"])
SLOTS = st.integers(0, 3)
NUM_PARTS = st.integers(1, 5)
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.0])
AGENT_IDS = st.sampled_from(["a", "b", "c"])
LIMITS = {
    "buffered_request_timeout": 6.0,
    "first_token_timeout": 5.0,
    "token_timeout": 3.0,
    "request_timeout": 20.0,
    "heartbeat_interval": 1.0,
    "heartbeat_timeout": 4.0,
    "model_memory": 9.0,
}
COUNTED = CallerLimits(tokens_per_minute=10**9, max_concurrent=10**6)
"""Limits that nobody reaches, so that all is counted and nothing is refused."""

RESULTS: dict[str, Result] = {
    "answered": Embedded(vectors=(Vector(vector="AAAA", num_tokens=1),)),
    "failed": Declined(error=to_wire(EngineFailed("broken"))),
    "closing": Declined(error=to_wire(ShuttingDown("going"))),
    "full": Declined(error=to_wire(QueueFull("too much"))),
}
ITEMS = (
    *("piece", "piece", "noticed", "noticed", "prompt_read", "call_started", "called"),
    *("ended", "refused", "busy", "closing"),
)


def model_of(name: str | None) -> ModelInfo | None:
    """A model that can be asked for text and for vectors."""
    return None if name is None else replace(model_info(name), tasks=("generate", "embed"))


@dataclass
class Client:
    """One request as its client sees it, or one query: `todo` are its parts without a result."""

    model: str | None
    opened_at: float
    todo: set[str] | None = None
    tell_waiting: float | None = None
    told_at: list[float] = field(default_factory=list)
    answer: list[Event] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    num_begun: int = 0
    num_starts: int = 0
    is_cancelled: bool = False
    is_closed: bool = False
    end: Done | Failed | tuple[Result, ...] | RequestError | None = None


@dataclass
class Agent:
    """One link as the agent sees it: what it reported, what it was told to run."""

    id: str
    slots: int
    model: str | None
    loading: str | None = None
    is_accepting: bool = True
    is_retired: bool = False
    running: list[RequestId] = field(default_factory=list)
    parts: set[str] = field(default_factory=set)

    @property
    def known(self) -> str | None:
        """The model that it serves or is about to serve."""
        return None if self.is_retired else self.model or self.loading

    @property
    def takes_requests(self) -> bool:
        """Whether it has slots for new ones, free or not."""
        return self.is_accepting and not self.is_retired and bool(self.model and self.slots)


class FleetMachine(RuleBasedStateMachine):
    """Every decision is followed as the shell would, and judged."""

    @initialize(max_buffered=st.integers(0, 4))
    def start(self, max_buffered: int) -> None:
        self.limits = Limits(max_buffered_requests=max_buffered, anonymous=COUNTED, **LIMITS)
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
        self.gone_at: dict[str | None, float] = {}
        self.agent_joins(id="a", slots=2, model="m", loading=None)

    # ---- carrying decisions out

    def follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Send(link=link, message=message):
                    self.hear(link, message)
                case Disconnect(link=link):
                    self.lose(link)
                case Deliver(request=id, event=event):
                    self.receive(id, event)
                case Settle(query=id, outcome=outcome):
                    self.settle(id, outcome)
                case Refuse(request=id):
                    self.refused.add(id)
                case Finish(ending=ending):
                    assert ending.request_id not in self.codes, "ended twice"
                    self.codes[ending.request_id] = ending.code
                    self.fleet.settle(ending, self.now)
                    self.stop_cancelled(ending.request_id)
                case DeliverTokens(tokens=tokens, num_tokens=num_tokens, gaps=gaps):
                    for id, token in tokens:
                        self.receive(id, token)
                    assert num_tokens == sum(len(token.tokens) for _, token in tokens)
                    assert all(gap >= 0 for gap in gaps)
                case FirstToken(seconds=seconds):
                    assert seconds >= 0

    def lose(self, link: LinkId) -> None:
        """The link is gone, and with it what the agent had."""
        agent = self.agents.pop(link)
        self.gone_at[agent.known] = self.now
        self.old_links.append(link)

    def hear(self, link: LinkId, message: FromBalancer) -> None:
        agent = self.agents[link]
        match message:
            case Start(id=id):
                self.run(agent, id)
            case Cancel(id=id):
                assert id in agent.running
                if not self.clients[id].is_cancelled:
                    agent.running.remove(id)
            case Ask(id=id):
                self.ask(agent, id)
            case Withdraw(id=id):
                agent.parts.remove(id)

    def take_on(self, agent: Agent, client: Client) -> None:
        assert agent.is_accepting, "work for one that takes none"
        assert not agent.is_retired, "work for one that was taken over"
        assert agent.model is not None
        assert client.model in (None, agent.model)
        assert not (client.is_cancelled or client.is_closed or client.end)

    def run(self, agent: Agent, id: RequestId) -> None:
        client = self.clients[id]
        self.take_on(agent, client)
        assert len(agent.running) < agent.slots, "more than the slots"
        assert not any(id in other.running for other in self.agents.values())
        assert not client.answer, "started again after something was delivered"
        client.num_starts += 1
        agent.running.append(id)

    def ask(self, agent: Agent, name: str) -> None:
        client = self.clients[RequestId(name.partition(".")[0])]
        self.take_on(agent, client)
        assert client.todo is not None
        assert name in client.todo, "asked for what was answered"
        assert len(agent.parts) < PARTS_PER_AGENT["embed"]
        assert not any(name in other.parts for other in self.agents.values())
        agent.parts.add(name)

    def settle(self, id: RequestId, outcome: tuple[Result, ...] | RequestError) -> None:
        client = self.clients[id]
        assert not client.is_closed, "settled for one that is gone"
        assert client.end is None, "settled twice"
        assert isinstance(outcome, tuple) == (not client.todo)
        client.end = outcome

    def stop_cancelled(self, id: RequestId) -> None:
        """An agent that was told frees the slot before anything that is sent from now on."""
        if id in self.clients and self.clients[id].is_cancelled:
            for agent in self.agents.values():
                if id in agent.running:
                    agent.running.remove(id)

    def receive(self, id: RequestId, event: Event) -> None:
        client = self.clients[id]
        assert not client.is_closed, "delivered to one that is gone"
        assert client.end is None, "delivered after the end"
        match event:
            case Done() | Failed():
                client.end = event
            case Waiting(position=position):
                assert position >= 1
                self.told_about_waiting(id, client)
            case Token() | ToolCallStarted() | ToolCall():
                client.answer.append(event)
            case Notice():
                assert client.answer or event not in client.notices, "told again"
                client.notices.append(event)
            case Begun():
                client.num_begun += 1
                assert client.num_begun == 1, "told again"

    def told_about_waiting(self, id: RequestId, client: Client) -> None:
        """Only those who asked, who wait, and not too soon."""
        assert client.tell_waiting is not None
        assert not any(id in agent.running for agent in self.agents.values())
        assert self.now >= client.opened_at + client.tell_waiting
        assert all(self.now >= at + 1 for at in client.told_at)
        client.told_at.append(self.now)

    def place(self, id: RequestId) -> int:
        """By counting: those who came earlier and whom the same agents could start."""
        served = {agent.model for agent in self.agents.values() if agent.takes_requests}
        model = self.clients[id].model
        rivals = {None, model} if model is not None else {None, *served}
        waiting = [
            each.id
            for each in self.fleet.view(self.now).requests
            if each.state == "queued" and self.clients[each.id].todo is None
        ]
        ahead = [each for each in waiting if int(each[1:]) < int(id[1:])]
        return 1 + sum(self.clients[each].model in rivals for each in ahead)

    def say(self, link: LinkId, message: FromAgent) -> None:
        self.follow(self.fleet.agent_said(link, message, self.now))

    def is_known(self, model: str | None) -> bool:
        has_it = any(agent.known == model for agent in self.agents.values())
        memory = self.limits.model_memory
        return has_it or (model in self.gone_at and self.now - self.gone_at[model] < memory)

    def judge_refusal(self, id: RequestId) -> None:
        """Where it was refused, for a reason; and only a model that nobody knows is not found."""
        code = self.codes.get(id) if id in self.refused else None
        if self.drain_deadline is not None:
            assert code == "shutting_down"
        elif code == "model_not_found":
            assert not self.is_known(self.clients[id].model)
            assert any(agent.known for agent in self.agents.values())
        else:
            assert code in (None, "queue_full")
        if self.clients[id].model == "x" and any(agent.known for agent in self.agents.values()):
            assert code in ("model_not_found", "shutting_down")

    def live(self) -> list[RequestId]:
        return [
            id
            for id, client in self.clients.items()
            if not (client.end or client.is_closed or id in self.refused)
        ]

    # ---- clients

    @rule(model=WANTED, tell_waiting=st.sampled_from([None, 0.0, 0.5, 2.0]))
    def client_opens(self, model: str | None, tell_waiting: float | None = None) -> None:
        id = RequestId(f"r{len(self.clients)}")
        self.clients[id] = Client(model, self.now, tell_waiting=tell_waiting)
        depth = self.fleet.totals().queue_depth
        arrived = self.fleet.request_arrived(
            id, request(model), self.now, tell_waiting=tell_waiting
        )
        self.follow(arrived)
        self.judge_refusal(id)
        now_depth = self.fleet.totals().queue_depth
        assert now_depth <= max(depth, self.limits.max_buffered_requests)

    @rule(model=WANTED, num_parts=NUM_PARTS)
    def client_asks(self, model: str | None, num_parts: int) -> None:
        id = RequestId(f"q{len(self.clients)}")
        todo = {f"{id}.{number}" for number in range(num_parts)}
        self.clients[id] = Client(model, self.now, todo)
        parts = tuple(Embed(inputs=("x",)) for _ in range(num_parts))
        query = QueryRequest(kind="embed", parts=parts, model=model)
        self.follow(self.fleet.query_arrived(id, query, self.now))
        self.judge_refusal(id)

    @precondition(lambda self: self.live())
    @rule(data=st.data(), model=MODELS, num_parts=st.none() | NUM_PARTS)
    def client_comes_when_deadlines_fall_together(
        self, data: st.DataObject, model: str | None, num_parts: int | None
    ) -> None:
        """Its longest wait ends at the moment at which the time of another is over, which comes."""
        other = self.clients[data.draw(st.sampled_from(self.live()))]
        ahead = self.limits.request_timeout - self.limits.buffered_request_timeout
        while self.now < other.opened_at + ahead:
            self.time_goes_by_while_agents_speak(1)
        if num_parts is None:
            self.client_opens(model)
        else:
            self.client_asks(model, num_parts)
        self.time_goes_by_while_agents_speak(int(self.limits.buffered_request_timeout))

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
        ids = [id for id in ids if id in self.live()]
        views = {each.id: each for each in self.fleet.view(self.now).requests}
        waiting = {id for id in ids if self.clients[id].todo or views[id].agent is None}
        for id in ids:
            self.clients[id].is_cancelled = True
        self.follow(self.fleet.cancel(ids, self.now))
        for id in waiting.intersection(ids):
            assert self.codes[id] == "cancelled"

    # ---- agents

    @rule(id=AGENT_IDS, slots=SLOTS, model=MODELS, loading=MODELS, takes_over=st.booleans())
    def agent_joins(
        self,
        id: str,
        slots: int,
        model: str | None,
        loading: str | None,
        takes_over: bool = False,
    ) -> None:
        """With `takes_over` it is a new process of one that is here, which finishes what it has."""
        self.follow(self.fleet.tick(self.now))
        if takes_over:
            self.retire(id)
        self.num_links += 1
        link = LinkId(self.num_links)
        self.agents[link] = Agent(id, slots, model, loading)
        greeting = replace(
            hello(id, slots=slots, takes_over=takes_over),
            model=model_of(model),
            loading=model_of(loading),
        )
        self.follow(self.fleet.agent_joined(link, greeting, self.now))
        assert [agent.id for agent in self.current()].count(id) == 1

    def retire(self, id: str) -> None:
        for agent in self.current():
            if agent.id == id:
                self.gone_at[agent.known] = self.now
                agent.is_retired = True

    def current(self) -> list[Agent]:
        return [agent for agent in self.agents.values() if not agent.is_retired]

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), slots=SLOTS, model=MODELS, is_accepting=st.booleans())
    def agent_changes(
        self, data: st.DataObject, slots: int, model: str | None, is_accepting: bool
    ) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        if link in self.agents:
            agent = self.agents[link]
            self.gone_at[agent.known] = self.now
            agent.is_accepting = is_accepting
            if not agent.is_retired:
                agent.slots, agent.model = slots, model
            said = replace(status(slots, accepting=is_accepting), model=model_of(model))
            self.say(link, said)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), num_running=st.integers(0, 9))
    def agent_tells_of_its_engine(self, data: st.DataObject, num_running: int) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        if link in self.agents:
            said = Statistics(num_running=num_running)
            assert self.fleet.agent_said(link, said, self.now) == []
            views = {each.id: each for each in self.fleet.view(self.now).agents}
            if not self.agents[link].is_retired:
                assert views[AgentId(self.agents[link].id)].statistics == said

    @precondition(lambda self: any(agent.running for agent in self.agents.values()))
    @rule(data=st.data(), answer=st.sampled_from(ITEMS))
    def agent_answers(self, data: st.DataObject, answer: str) -> None:
        links = sorted(link for link, agent in self.agents.items() if agent.running)
        link = data.draw(st.sampled_from(links))
        self.follow(self.fleet.tick(self.now))
        if link not in self.agents or not self.agents[link].running:
            return
        id = data.draw(st.sampled_from(self.agents[link].running))
        items: dict[str, Item] = {
            "piece": piece(id),
            "noticed": Noticed(id=id, code=data.draw(st.sampled_from("ab")), message="so"),
            "prompt_read": PromptRead(id=id, prompt_tokens=3, cached_tokens=0),
            "call_started": CallStarted(id=id, call_id="c", name="f"),
            "called": Called(id=id, call_id="c", name="f", arguments="{}"),
            "ended": ended(id),
            "refused": refused(id, EngineFailed("broken")),
            "busy": busy(id),
            "closing": refused(id, ShuttingDown("going")),
        }
        if answer in ("ended", "refused", "busy", "closing"):
            self.agents[link].running.remove(id)
        self.say(link, output(items[answer]))

    @precondition(lambda self: any(agent.running for agent in self.agents.values()))
    @rule(kind=st.sampled_from(["noticed", "prompt_read", "call_started"]))
    def agents_begin_all_answers(self, kind: str) -> None:
        self.follow(self.fleet.tick(self.now))
        for link in sorted(self.agents):
            for id in self.running_on(link):
                items: dict[str, Item] = {
                    "noticed": Noticed(id=id, code="a", message="so"),
                    "prompt_read": PromptRead(id=id, prompt_tokens=3, cached_tokens=0),
                    "call_started": CallStarted(id=id, call_id="c", name="f"),
                }
                self.say(link, output(items[kind]))

    @precondition(lambda self: any(agent.parts for agent in self.agents.values()))
    @rule(data=st.data(), kind=st.sampled_from(sorted(RESULTS)))
    def agent_replies(self, data: st.DataObject, kind: str) -> None:
        links = sorted(link for link, agent in self.agents.items() if agent.parts)
        link = data.draw(st.sampled_from(links))
        self.follow(self.fleet.tick(self.now))
        if link not in self.agents or not self.agents[link].parts:
            return
        name = data.draw(st.sampled_from(sorted(self.agents[link].parts)))
        self.agents[link].parts.remove(name)
        client = self.clients[RequestId(name.partition(".")[0])]
        if kind == "answered" and client.todo is not None:
            client.todo.remove(name)
        self.say(link, Reply(id=RequestId(name), result=RESULTS[kind]))

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
                self.lose(link)
                self.follow(self.fleet.agent_left(link, self.now))

    def running_on(self, link: LinkId) -> list[RequestId]:
        return self.agents[link].running if link in self.agents else []

    # ---- time

    @rule(seconds=SECONDS)
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.fleet.tick(self.now))

    @rule(seconds=st.sampled_from([1, 2, 6]))
    def time_goes_by_while_agents_speak(self, seconds: int) -> None:
        for _ in range(seconds):
            for link in sorted(self.agents):
                if link in self.agents:
                    self.say(link, Heartbeat())
            self.now += 1.0
            self.follow(self.fleet.tick(self.now))

    @rule(speaking=st.sets(st.integers(0, 20)))
    def the_next_deadline_comes(self, speaking: set[int]) -> None:
        for link in sorted(self.agents):
            if link in speaking and link in self.agents:
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
        assert sorted(each.id for each in view.agents) == sorted(each.id for each in self.current())
        requests = [each for each in view.requests if self.clients[each.id].todo is None]
        on_agents = Counter(each.agent for each in view.requests if each.agent is not None)
        for agent in view.agents:
            assert agent.slots.busy == on_agents[agent.id]
        assert view.slots_busy == sum(on_agents.values())
        assert view.queue_depth == len(requests) - view.slots_busy
        asked = sum(len(agent.parts) for agent in self.agents.values())
        todo = sum(len(self.clients[id].todo or ()) for id in self.live())
        assert (view.parts_asked, view.parts_waiting) == (asked, todo - asked)

    @invariant()
    def the_deltas_add_up_to_the_view(self) -> None:
        self.mirror.follow(self.fleet, self.now)

    @invariant()
    def agents_run_what_the_balancer_thinks(self) -> None:
        running = {(a.id, id) for a in self.agents.values() for id in a.running}
        for each in self.fleet.view(self.now).requests:
            assert each.agent is None or (each.agent, each.id) in running
        assert len(running) == self.fleet.totals().slots_busy

    @invariant()
    def places_are_what_counting_says(self) -> None:
        served = {agent.model for agent in self.agents.values() if agent.takes_requests}
        for each in self.fleet.view(self.now).requests:
            waiting = self.fleet.waiting(each.id, self.now)
            if each.state == "queued" and self.clients[each.id].todo is None:
                assert waiting is not None
                assert waiting.position == self.place(each.id)
                is_served = bool(served) if each.model is None else each.model in served
                assert waiting.what == ("slot" if is_served else "model")
            else:
                assert waiting is None

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
        tokens = self.fleet.standing(ANONYMOUS, self.now + SPAN).tokens
        assert tokens == Level(10**9, 10**9, 0.0), "all that was held is given back"


TestFleetMachine = FleetMachine.TestCase
TestFleetMachine.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
