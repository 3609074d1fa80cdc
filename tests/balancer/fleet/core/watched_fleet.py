"""The composed core as clients and agents see it: every decision is carried out as the shell would,
and judged. Machines draw what happens.
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant

from arriero.balancer.access.identity import CallerLimits
from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.circuit_breaker import UNRESPONSIVE
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.core.limiter import SPAN
from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    DeliverTokens,
    Disconnect,
    Finish,
    FirstToken,
    LinkId,
    Moved,
    Refuse,
    Send,
    Settle,
)
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.queries.query_dispatcher import PARTS_PER_AGENT
from arriero.balancer.fleet.registry import STATUSES_AT_ONCE
from arriero.balancer.fleet.requests.request import MAX_AGENTS_LOST, MAX_LOST_ALONE
from arriero.balancer.fleet.view import FleetView, Level
from arriero.shared.continuation import BY_TEXT, Continuation
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
from arriero.shared.inference.abilities import ABILITIES
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
    Reject,
    Start,
    Welcome,
    Withdraw,
)
from arriero.shared.queries import Declined, Embedded, Result, Vector
from arriero.shared.reports.model_info import ModelInfo, Upstream
from tests.balancer.fleet.builders import (
    busy,
    ended,
    hello,
    model_info,
    output,
    piece,
    refused,
    seen,
)
from tests.balancer.fleet.mirror import Mirror

MODELS = st.sampled_from([None, "m", "m", "n"])
WANTED = st.sampled_from([None, "m", "m", "n", "x"])
FINGERPRINTS = st.sampled_from([None, "f", "f", "f", "g"])
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
    *("piece", "piece", "piece", "silent", "noticed", "noticed", "prompt_read"),
    *("call_started", "called"),
    *("ended", "refused", "busy", "closing"),
)


SERVER = Upstream(kind="vllm", address="h:1", abilities=tuple(sorted(ABILITIES)))


def model_of(name: str | None, fingerprint: str | None = None) -> ModelInfo | None:
    """A model that can be asked for text and for vectors; of a server by its fingerprint."""
    if name is None:
        return None
    upstream = SERVER if is_servers(fingerprint) else None
    return replace(model_info(name, fingerprint), tasks=("generate", "embed"), upstream=upstream)


def is_servers(fingerprint: str | None) -> bool:
    return fingerprint is not None and fingerprint.startswith(BY_TEXT)


@dataclass
class Client:
    """One request as its client sees it, or one query: `todo` are its parts without a result.

    Its answer's tokens are 0, 1, 2 and so on. `engine` is the model and the fingerprint of the
    agent that had it last; with `is_mixed` its answer came from agents with several.
    """

    model: str | None
    opened_at: float
    todo: set[str] | None = None
    tell_waiting: float | None = None
    told_at: list[float] = field(default_factory=list)
    answer: list[Event] = field(default_factory=list)
    notices: list[Notice] = field(default_factory=list)
    num_begun: int = 0
    num_starts: int = 0
    num_moves: int = 0
    num_preempted: int = 0
    num_deserted: int = 0
    num_lost: int = 0
    num_lost_alone: int = 0
    engine: tuple[str | None, str | None] = (None, None)
    is_mixed: bool = False
    is_cancelled: bool = False
    is_closed: bool = False
    end: Done | Failed | tuple[Result, ...] | RequestError | None = None

    @property
    def tokens(self) -> list[int]:
        """The ids that were delivered."""
        return [id for event in self.answer if isinstance(event, Token) for id in event.tokens]

    @property
    def has_servers(self) -> bool:
        """Whether a part of its answer came from a server."""
        return self.is_mixed or is_servers(self.engine[1])

    @property
    def is_text(self) -> bool:
        """Whether its answer so far is text alone."""
        return all(isinstance(event, Token) for event in self.answer)

    def goes_on_at(self, fingerprint: str | None) -> bool:
        """Whether an agent of the same model with this fingerprint may go on."""
        if fingerprint is not None and fingerprint == self.engine[1] and not self.has_servers:
            return True
        return self.is_text and (self.has_servers or is_servers(fingerprint))

    def continuation_at(self, fingerprint: str | None) -> Continuation | None:
        """What such an agent has to be told."""
        if not self.answer:
            return None
        texts = [event.text for event in self.answer if isinstance(event, Token)]
        if self.has_servers or is_servers(fingerprint):
            text = "".join(texts)
            return Continuation(text=text, num_tokens=len(self.tokens), num_characters=len(text))
        return Continuation.after(
            self.tokens,
            num_characters=sum(map(len, texts)),
            num_calls_started=sum(isinstance(e, ToolCallStarted) for e in self.answer),
            num_calls=sum(isinstance(e, ToolCall) for e in self.answer),
        )


@dataclass
class Agent:
    """One link as the agent sees it: what it reported, what it was told to run.

    `next_tokens` are those that its requests get next. Those of `stopping` were told to stop; and
    so were the `deserted` ones, which others have now. The answers of `begun` ones have begun.
    """

    id: str
    slots: int
    model: str | None
    loading: str | None = None
    is_accepting: bool = True
    is_retired: bool = False
    fingerprint: str | None = None
    running: list[RequestId] = field(default_factory=list)
    next_tokens: dict[RequestId, int] = field(default_factory=dict)
    deserted: set[RequestId] = field(default_factory=set)
    begun: set[RequestId] = field(default_factory=set)
    stopping: set[RequestId] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)
    changed_at: list[float] = field(default_factory=list)

    @property
    def known(self) -> str | None:
        """The model that it serves or is about to serve."""
        return None if self.is_retired else self.model or self.loading

    @property
    def takes_work(self) -> bool:
        """Whether it could start somebody, free or not."""
        return bool(self.is_accepting and not self.is_retired and self.model and self.slots)

    def ends(self, id: RequestId) -> None:
        """It has the request no more."""
        self.running.remove(id)
        self.stopping.discard(id)
        self.begun.discard(id)


class WatchedFleet(RuleBasedStateMachine):
    """Every decision is followed as the shell would, and judged."""

    def begin(self, max_buffered: int) -> None:
        """An empty fleet."""
        self.limits = Limits(
            max_buffered_requests=max_buffered, anonymous=COUNTED, first_slots=1, **LIMITS
        )
        self.secrets: dict[str, str] = {}
        self.earned: dict[str, int] = {}
        self.proven: set[str] = set()
        self.joining = ""
        """The agent that joins: until it is here, the others may have to do without it."""
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
        self.cordoned: set[str] = set()

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
                    if ending.code in ("first_token_timeout", "token_timeout"):
                        self.disappoint(*self.agents_with(ending.request_id))
                    assert ending.request_id not in self.codes, "ended twice"
                    self.codes[ending.request_id] = ending.code
                    self.fleet.settle(ending, self.now)
                    self.stop(ending.request_id)
                case Moved(request=id, reason=reason):
                    self.clients[id].num_moves += 1
                    self.clients[id].num_preempted += reason == "gave_way"
                    if reason == "unanswered":
                        self.desert(id)
                case DeliverTokens(tokens=tokens, num_tokens=num_tokens, gaps=gaps):
                    for id, token in tokens:
                        self.receive(id, token)
                    assert num_tokens == sum(len(token.tokens) for _, token in tokens)
                    assert all(gap >= 0 for gap in gaps)
                case FirstToken(seconds=seconds):
                    assert seconds >= 0

    def desert(self, id: RequestId) -> None:
        """Its agent never answered, and was told to stop."""
        client = self.clients[id]
        [agent] = self.agents_with(id)
        client.num_deserted += agent.id in self.proven
        assert client.num_deserted <= 1, "once only, of those that had answered"
        assert not client.answer, "something was delivered"
        assert id in agent.stopping
        assert id not in agent.begun
        agent.ends(id)
        agent.deserted.add(id)
        self.disappoint(agent)

    def agents_with(self, id: RequestId) -> list[Agent]:
        return [each for each in self.agents.values() if id in each.running]

    def disappoint(self, agent: Agent) -> None:
        """It left a request unanswered, or broke it: it may have half as many."""
        self.earned[agent.id] //= 2

    def begins(self, agent: Agent, id: RequestId) -> None:
        """An answer of the agent begins: it may have twice as many."""
        if id not in agent.begun and not agent.is_retired:
            agent.begun.add(id)
            self.proven.add(agent.id)
            if self.earned[agent.id] < agent.slots or not self.earned[agent.id]:
                self.earned[agent.id] = 2 * max(self.earned[agent.id], 1)

    def lose(self, link: LinkId) -> None:
        """The link is gone, and with it what the agent had."""
        agent = self.agents.pop(link)
        for id in agent.running:
            client = self.clients[id]
            client.num_lost += 1
            client.num_lost_alone = client.num_lost_alone + 1 if len(agent.running) == 1 else 0
        self.gone_at[agent.known] = self.now
        self.old_links.append(link)

    def hear(self, link: LinkId, message: FromBalancer) -> None:
        agent = self.agents[link]
        match message:
            case Welcome(secret=secret):
                if secret != self.secrets.get(agent.id):
                    self.earned[agent.id] = self.limits.first_slots
                    self.proven.discard(agent.id)
                self.secrets[agent.id] = secret or ""
            case Start(id=id, continuation=continuation):
                self.run(agent, id, continuation)
            case Cancel(id=id):
                assert id in agent.running
                assert id not in agent.stopping, "told twice"
                agent.stopping.add(id)
            case Ask(id=id):
                self.ask(agent, id)
            case Withdraw(id=id):
                agent.parts.remove(id)

    def take_on(self, agent: Agent, client: Client) -> None:
        assert agent.is_accepting, "work for one that takes none"
        assert not agent.is_retired, "work for one that was taken over"
        assert agent.id not in self.cordoned, "work for one that is drained"
        assert agent.model is not None
        assert client.model in (None, agent.model)
        assert not (client.is_cancelled or client.is_closed or client.end)

    def run(self, agent: Agent, id: RequestId, continuation: Continuation | None) -> None:
        client = self.clients[id]
        self.take_on(agent, client)
        assert len(agent.running) < agent.slots, "more than the slots"
        if any(self.replaces(other, agent) for other in self.agents.values()):
            assert len(agent.running) < max(self.earned[agent.id], 1), "more than it has earned"
        assert id not in agent.deserted, "it has not stopped yet"
        assert not any(id in other.running for other in self.agents.values())
        assert continuation == client.continuation_at(agent.fingerprint)
        if client.answer:
            assert client.engine[0] == agent.model
            assert client.goes_on_at(agent.fingerprint), "another would answer"
            client.is_mixed |= client.engine[1] != agent.fingerprint
        client.engine = (agent.model, agent.fingerprint)
        client.num_starts += 1
        agent.running.append(id)
        agent.next_tokens[id] = len(client.tokens)

    def replaces(self, other: Agent, agent: Agent) -> bool:
        """Whether another agent that answers takes what this one takes."""
        if other.id in (agent.id, self.joining) or other.model != agent.model:
            return False
        if not other.takes_work:
            return False
        view = seen(self.fleet, self.now).agent(AgentId(other.id))
        is_open = view is not None and any(each.code == UNRESPONSIVE for each in view.issues)
        return other.id not in self.cordoned and view is not None and not is_open

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

    def stop(self, id: RequestId) -> None:
        """An agent that was told frees the slot before anything that is sent from now on."""
        for agent in self.agents.values():
            if id in agent.running:
                agent.ends(id)

    def receive(self, id: RequestId, event: Event) -> None:
        client = self.clients[id]
        assert not client.is_closed, "delivered to one that is gone"
        assert client.end is None, "delivered after the end"
        match event:
            case Done() | Failed():
                client.end = event
                if isinstance(event, Done):
                    assert event.timings.moves == client.num_moves
            case Waiting(position=position):
                assert position >= 1
                self.told_about_waiting(id, client)
            case Token() | ToolCallStarted() | ToolCall():
                client.answer.append(event)
                assert client.tokens == list(range(len(client.tokens))), "twice, or missing"
            case Notice():
                assert event not in client.notices, "told again"
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

    def is_served(self, id: RequestId) -> bool:
        """Whether an agent could start a request, had it a free slot, or go on with its answer."""
        client = self.clients[id]
        able = [a for a in self.agents.values() if a.id not in self.cordoned and a.takes_work]
        if client.answer:
            able = [a for a in able if client.goes_on_at(a.fingerprint)]
            return client.engine[0] in {agent.model for agent in able}
        return any(client.model in (None, agent.model) for agent in able)

    def say(self, link: LinkId, message: FromAgent) -> None:
        self.follow(self.fleet.agent_said(link, message, self.now))

    def may_change(self, link: LinkId) -> bool:
        """Whether what it says of itself counts at once: it has not said too much lately."""
        agent = self.agents[link]
        agent.changed_at = [at for at in agent.changed_at if self.now < at + 1] + [self.now]
        return len(agent.changed_at) <= STATUSES_AT_ONCE

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

    def join(self, agent: Agent, *, takes_over: bool = False) -> None:
        """An agent dials in; `takes_over`: a new process of one that is here."""
        self.follow(self.fleet.tick(self.now))
        for old in self.current():
            if takes_over and old.id == agent.id:
                self.gone_at[old.known] = self.now
                old.is_retired = True
        self.num_links += 1
        link = LinkId(self.num_links)
        self.agents[link] = agent
        greeting = replace(
            hello(agent.id, slots=agent.slots, takes_over=takes_over),
            model=model_of(agent.model, agent.fingerprint),
            loading=model_of(agent.loading),
            secret=self.secrets.get(agent.id),
        )
        self.joining = agent.id
        self.follow(self.fleet.agent_joined(link, greeting, self.now))
        self.joining = ""
        assert [each.id for each in self.current()].count(agent.id) == 1

    def steal(self, id: str, *, takes_over: bool) -> None:
        """Another process says the id of an agent that is here: nothing changes for anybody."""
        self.follow(self.fleet.tick(self.now))
        if not any(agent.id == id for agent in self.current()):
            return
        self.num_links += 1
        link = LinkId(self.num_links)
        theft = hello(id, slots=4096, takes_over=takes_over)
        decisions = self.fleet.agent_joined(link, theft, self.now)
        rejection, closing = decisions
        assert isinstance(rejection, Send)
        assert isinstance(rejection.message, Reject)
        assert rejection.message.code == "identity_taken"
        assert isinstance(closing, Disconnect)
        assert (rejection.link, closing.link) == (link, link)
        self.old_links.append(link)

    def current(self) -> list[Agent]:
        """All but those that were taken over."""
        return [agent for agent in self.agents.values() if not agent.is_retired]

    def answer(self, link: LinkId, id: RequestId, what: str, code: str = "a") -> None:
        """An agent says one thing of a request that it has."""
        agent = self.agents[link]
        items: dict[str, Item] = {
            "piece": replace(piece(id), tokens=(agent.next_tokens[id],)),
            "silent": replace(piece(id, ""), tokens=(agent.next_tokens[id],)),
            "noticed": Noticed(id=id, code=code, message="so"),
            "prompt_read": PromptRead(id=id, prompt_tokens=3, cached_tokens=0),
            "call_started": CallStarted(id=id, call_id="c", name="f"),
            "called": Called(id=id, call_id="c", name="f", arguments="{}"),
            "ended": ended(id, "cancelled" if id in agent.stopping else "stop"),
            "refused": refused(id, EngineFailed("broken")),
            "busy": busy(id),
            "closing": refused(id, ShuttingDown("going")),
        }
        if what in ("piece", "silent", "call_started", "called", "ended"):
            self.begins(agent, id)
        if what in ("ended", "refused", "busy", "closing"):
            agent.ends(id)
        if what in ("piece", "silent"):
            agent.next_tokens[id] += 1
        self.say(link, output(items[what]))

    def answer_all(self, num_tokens: int) -> None:
        """Every request gains so many tokens."""
        self.follow(self.fleet.tick(self.now))
        for link in sorted(self.agents):
            for id in self.running_on(link):
                first = self.agents[link].next_tokens[id]
                self.agents[link].next_tokens[id] += num_tokens
                self.begins(self.agents[link], id)
                ids = tuple(range(first, first + num_tokens))
                self.say(link, output(replace(piece(id), tokens=ids)))

    def stop_what_was_told(self) -> None:
        """Agents answer each `Cancel`."""
        self.follow(self.fleet.tick(self.now))
        for link in sorted(self.agents):
            for id in sorted(self.agents[link].stopping if link in self.agents else ()):
                self.agents[link].ends(id)
                self.say(link, output(ended(id, "cancelled")))
            for id in sorted(self.agents[link].deserted if link in self.agents else ()):
                self.agents[link].deserted.remove(id)
                said = self.fleet.agent_said(link, output(ended(id, "cancelled")), self.now)
                assert said == [], "another has it, or its end was said"

    def goes(self, link: LinkId) -> None:
        """An agent's socket closes."""
        self.lose(link)
        self.follow(self.fleet.agent_left(link, self.now))

    def drain(self, id: str, within: float | None) -> None:
        """An operator drains an agent, if it is still connected."""
        self.follow(self.fleet.tick(self.now))
        if any(agent.id == id for agent in self.current()):
            self.cordoned.add(id)
            self.follow(self.fleet.cordon(AgentId(id), within, self.now))

    def resume(self, id: str) -> None:
        """An operator gives it work again, if it is still connected."""
        self.follow(self.fleet.tick(self.now))
        if any(agent.id == id for agent in self.current()):
            self.cordoned.remove(id)
            self.follow(self.fleet.resume(AgentId(id), self.now))

    def time_goes_by_for(self, seconds: int, silent: Collection[str] = ()) -> None:
        """All agents but those of `silent` give signs of life."""
        for _ in range(seconds):
            for link in sorted(self.agents):
                if link in self.agents and self.agents[link].id not in silent:
                    self.say(link, Heartbeat())
            self.now += 1.0
            self.follow(self.fleet.tick(self.now))

    def running_on(self, link: LinkId) -> list[RequestId]:
        return list(self.agents[link].running) if link in self.agents else []

    # ---- what always holds

    @invariant()
    def the_core_holds_together(self) -> None:
        self.fleet.check_integrity()
        assert self.fleet.is_idle == (not self.live())

    @invariant()
    def the_views_tell_the_truth(self) -> None:
        view = seen(self.fleet, self.now).view()
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
        self._agents_run_what_the_balancer_thinks(view)
        self._places_are_those_of_rivals(view)
        self._moves_are_counted(view)

    @invariant()
    def the_deltas_add_up_to_the_view(self) -> None:
        self.mirror.follow(self.fleet, self.now)

    def _agents_run_what_the_balancer_thinks(self, view: FleetView) -> None:
        running = {(a.id, id) for a in self.agents.values() for id in a.running}
        for each in view.requests:
            assert each.agent is None or (each.agent, each.id) in running
        assert len(running) == view.slots_busy

    def _places_are_those_of_rivals(self, view: FleetView) -> None:
        for each in view.requests:
            waiting = seen(self.fleet, self.now).waiting(each.id)
            assert seen(self.fleet).position(each.id) == (waiting and waiting.position)
            if each.state == "queued" and self.clients[each.id].todo is None:
                assert waiting is not None
                assert 1 <= waiting.position <= view.queue_depth
                assert waiting.what == ("slot" if self.is_served(each.id) else "model")
            else:
                assert waiting is None

    def _moves_are_counted(self, view: FleetView) -> None:
        for each in view.requests:
            assert each.moves == self.clients[each.id].num_moves
        assert view.moves_total == sum(client.num_moves for client in self.clients.values())

    @invariant()
    def no_request_takes_all_agents_down(self) -> None:
        for client in (self.clients[id] for id in self.live()):
            assert client.todo is not None or client.num_lost < MAX_AGENTS_LOST
            assert client.todo is not None or client.num_lost_alone < MAX_LOST_ALONE

    @invariant()
    def deadlines_are_kept(self) -> None:
        self.follow(self.fleet.tick(self.now))
        for each in seen(self.fleet, self.now).view().requests:
            assert each.age_seconds < self.limits.request_timeout
            if each.state == "queued":
                is_late = each.waited_seconds >= self.limits.buffered_request_timeout
                assert not is_late or self.clients[each.id].num_preempted
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
        totals = seen(self.fleet).totals()
        assert (totals.slots_busy, totals.slots_total, totals.queue_depth) == (0, 0, 0)
        assert not totals.is_ready
        assert self.fleet.next_deadline() is None
        self.fleet.check_integrity()
        tokens = seen(self.fleet, self.now + SPAN).standing(ANONYMOUS).tokens
        assert tokens == Level(10**9, 10**9, 0.0), "all that was held is given back"
