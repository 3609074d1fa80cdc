"""The composed core against any history: requests and queries; agents that answer, refuse, stall,
die, freeze, are drained, come back or talk junk; answers that move; clients that leave or cancel;
deadlines that fall together; the end of it all.
Watched only through its decisions and views.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.errors import EngineFailed, QueueFull, ShuttingDown, to_wire
from arriero.shared.inference import (
    AgentId,
    RequestId,
)
from arriero.shared.messages import (
    CallStarted,
    Item,
    Noticed,
    PromptRead,
    Reply,
)
from arriero.shared.queries import Declined, Embed, Embedded, Result, Vector
from arriero.shared.reports.statistics import Statistics
from tests.balancer.fleet.builders import (
    busy,
    ended,
    hello,
    output,
    piece,
    request,
    seen,
    status,
)
from tests.balancer.fleet.core.watched_fleet import Agent, Client, WatchedFleet, model_of

MODELS = st.sampled_from([None, "m", "m", "n"])
WANTED = st.sampled_from([None, "m", "m", "n", "x"])
FINGERPRINTS = st.sampled_from([None, "f", "f", "f", "g"])
SLOTS = st.integers(0, 3)
NUM_PARTS = st.integers(1, 5)
SECONDS = st.sampled_from([0.0, 0.5, 1.0, 3.0, 7.0])
PROMPTS = ("Once", "A conversation that is long. " * 250, "Another one, as long. " * 300)
"""Who asks what was asked before may wait for the agent that has it."""
AGENT_IDS = st.sampled_from(["a", "b", "c"])
RESULTS: dict[str, Result] = {
    "answered": Embedded(vectors=(Vector(vector="AAAA", num_tokens=1),)),
    "failed": Declined(error=to_wire(EngineFailed("broken"))),
    "closing": Declined(error=to_wire(ShuttingDown("going"))),
    "full": Declined(error=to_wire(QueueFull("too much"))),
}
ITEMS = (
    *("piece", "piece", "piece", "silent", "noticed", "noticed", "prompt_read"),
    *("call_started", "called"),
    *("ended", "refused", "busy", "closing"),
)


class FleetMachine(WatchedFleet):
    """Any agents, clients and queries."""

    @initialize(max_buffered=st.integers(0, 4))
    def start(self, max_buffered: int) -> None:
        self.begin(max_buffered)
        self.agent_joins(id="a", slots=2, model="m", loading=None, fingerprint="f")

    # ---- clients

    @rule(
        model=WANTED,
        tell_waiting=st.sampled_from([None, 0.0, 0.5, 2.0]),
        prompt=st.sampled_from(PROMPTS),
        priority=st.sampled_from([0, 0, -1, 1]),
        caller=st.sampled_from([ANONYMOUS, Caller("key"), Caller(connection=1)]),
        deadline_ms=st.sampled_from([None, None, None, 1500]),
    )
    def client_opens(
        self,
        model: str | None,
        tell_waiting: float | None = None,
        prompt: str = PROMPTS[0],
        priority: int = 0,
        caller: Caller = ANONYMOUS,
        deadline_ms: int | None = None,
    ) -> None:
        id = RequestId(f"r{len(self.clients)}")
        self.clients[id] = Client(model, self.now, tell_waiting=tell_waiting)
        depth = seen(self.fleet).totals().queue_depth
        arrived = self.fleet.request_arrived(
            id,
            replace(request(model, priority=priority, deadline_ms=deadline_ms), prompt=prompt),
            self.now,
            tell_waiting=tell_waiting,
            caller=caller,
        )
        self.follow(arrived)
        self.judge_refusal(id)
        now_depth = seen(self.fleet).totals().queue_depth
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
        views = {each.id: each for each in seen(self.fleet, self.now).view().requests}
        waiting = {id for id in ids if self.clients[id].todo or views[id].agent is None}
        for id in ids:
            self.clients[id].is_cancelled = True
        self.follow(self.fleet.cancel(ids, self.now))
        for id in waiting.intersection(ids):
            assert self.codes[id] == "cancelled"

    # ---- agents

    @rule(
        id=AGENT_IDS,
        slots=SLOTS,
        model=MODELS,
        loading=MODELS,
        fingerprint=FINGERPRINTS,
        takes_over=st.booleans(),
    )
    def agent_joins(
        self,
        id: str,
        slots: int,
        model: str | None,
        loading: str | None,
        fingerprint: str | None,
        takes_over: bool = False,
    ) -> None:
        """With `takes_over` it is a new process of one that is here, which finishes what it has."""
        agent = Agent(id, slots, model, loading, fingerprint=fingerprint)
        self.join(agent, takes_over=takes_over)

    @precondition(lambda self: self.agents)
    @rule(
        data=st.data(),
        slots=SLOTS,
        model=MODELS,
        is_accepting=st.booleans(),
        fingerprint=FINGERPRINTS,
    )
    def agent_changes(
        self,
        data: st.DataObject,
        slots: int,
        model: str | None,
        is_accepting: bool,
        fingerprint: str | None,
    ) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        if link in self.agents and self.may_change(link):
            agent = self.agents[link]
            self.gone_at[agent.known] = self.now
            agent.is_accepting = is_accepting
            if not agent.is_retired:
                agent.slots, agent.model, agent.fingerprint = slots, model, fingerprint
                for client in (self.clients[id] for id in agent.running):
                    if client.engine == (model, None):
                        client.engine = (model, fingerprint)
            info = model_of(model, fingerprint)
            self.say(link, replace(status(slots, accepting=is_accepting), model=info))

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), num_running=st.integers(0, 9))
    def agent_tells_of_its_engine(self, data: st.DataObject, num_running: int) -> None:
        link = data.draw(st.sampled_from(sorted(self.agents)))
        self.follow(self.fleet.tick(self.now))
        if link in self.agents:
            said = Statistics(num_running=num_running)
            assert self.fleet.agent_said(link, said, self.now) == []
            views = {each.id: each for each in seen(self.fleet, self.now).view().agents}
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
        self.answer(link, id, answer, data.draw(st.sampled_from("ab")))

    @precondition(lambda self: any(agent.stopping for agent in self.agents.values()))
    @rule()
    def agents_have_stopped(self) -> None:
        self.stop_what_was_told()

    @precondition(lambda self: any(agent.running for agent in self.agents.values()))
    @rule(num_tokens=st.integers(1, 3))
    def agents_answer_all(self, num_tokens: int) -> None:
        self.answer_all(num_tokens)

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
                if kind == "call_started":
                    self.begins(self.agents[link], id)
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
            before = seen(self.fleet).totals().items_ignored
            assert callable(answer)
            decisions = self.fleet.agent_said(link, output(answer(id)), self.now)
            if answer is not piece:
                self.agents[link].deserted.discard(RequestId(id))
            assert decisions == []
            assert seen(self.fleet).totals().items_ignored == before + 1

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
                self.goes(link)

    @rule(id=AGENT_IDS, takes_over=st.booleans())
    def another_says_its_id(self, id: str, takes_over: bool) -> None:
        self.steal(id, takes_over=takes_over)

    @precondition(lambda self: self.agents)
    @rule(data=st.data(), within=st.none() | SECONDS)
    def operator_drains_an_agent(self, data: st.DataObject, within: float | None) -> None:
        id = data.draw(st.sampled_from(sorted(agent.id for agent in self.agents.values())))
        self.drain(id, within)

    @precondition(lambda self: self.cordoned)
    @rule(data=st.data())
    def operator_resumes_an_agent(self, data: st.DataObject) -> None:
        self.resume(data.draw(st.sampled_from(sorted(self.cordoned))))

    # ---- time

    @rule(seconds=SECONDS)
    def time_goes_by(self, seconds: float) -> None:
        self.now += seconds
        self.follow(self.fleet.tick(self.now))

    @rule(seconds=st.sampled_from([1, 2, 6]))
    def time_goes_by_while_agents_speak(self, seconds: int) -> None:
        self.time_goes_by_for(seconds)

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


TestFleetMachine = FleetMachine.TestCase
TestFleetMachine.settings = settings(stateful_step_count=50)
