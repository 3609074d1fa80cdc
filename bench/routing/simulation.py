"""The balancer's core with simulated agents and clients, in virtual time."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.core.fleet_views import FleetViews
from arriero.balancer.fleet.decisions import Decision, Deliver, Finish, LinkId, Send
from arriero.balancer.fleet.limits import Limits
from arriero.shared.inference import AgentId, ChatMessage, Done, GenerateRequest, RequestId
from arriero.shared.messages import PROTOCOL_VERSION, Cancel, Hello, Output, PromptRead, Start
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Cells, Statistics
from bench.routing.host import Cache, Host, Speeds
from bench.routing.workloads import Conversation

NO_END = 1e9
LIMITS = Limits(
    max_buffered_requests=100_000,
    buffered_request_timeout=NO_END,
    first_token_timeout=NO_END,
    token_timeout=NO_END,
    request_timeout=NO_END,
    heartbeat_interval=NO_END / 2,
    heartbeat_timeout=NO_END,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKind:
    """`slots` at once, and a cache of so many tokens."""

    slots: int = 4
    cache: int = 16_384
    speeds: Speeds = field(default_factory=Speeds)


@dataclass(slots=True)
class Outcome:
    """Seconds to the first tokens; tokens of prompts; where requests ran."""

    first_tokens: list[float] = field(default_factory=list)
    num_prompt: int = 0
    num_cached: int = 0
    seconds: float = 0.0
    by_agent: dict[str, int] = field(default_factory=dict)
    idle_beside_waiting: float = 0.0
    """Longest time that an agent had nothing to do while a request waited."""

    @property
    def throughput(self) -> float:
        """Requests a second."""
        return len(self.first_tokens) / self.seconds

    @property
    def mean_first_token(self) -> float:
        return sum(self.first_tokens) / len(self.first_tokens)

    @property
    def cached_share(self) -> float:
        return self.num_cached / self.num_prompt


class Simulation:
    """Until every conversation has ended."""

    def __init__(
        self, hosts: list[HostKind], conversations: list[Conversation], routing: str
    ) -> None:
        self.fleet = Fleet(replace(LIMITS, routing=routing))
        self._views = FleetViews(self.fleet, lambda: self._now)
        self.outcome = Outcome()
        self._now = 0.0
        self._order = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._hosts: dict[LinkId, Host] = {}
        self._stepping: set[LinkId] = set()
        self._talks: dict[RequestId, tuple[Conversation, int, float]] = {}
        self._idle_since: float | None = None
        for number, kind in enumerate(hosts, 1):
            self._join(LinkId(number), kind)
        for each in conversations:
            self._at(each.begins_at, lambda each=each: self._ask(each, 0))  # type: ignore[misc]

    def run(self) -> Outcome:
        while self._events:
            due = self.fleet.next_deadline()
            if self._talks and due is not None and due < self._events[0][0]:
                self._now = max(self._now, due)
                self._follow(self.fleet.tick(self._now))
            else:
                self._now, _, act = heapq.heappop(self._events)
                act()
            self._watch()
        self.outcome.seconds = self._now
        return self.outcome

    # ---- inside

    def _at(self, time: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), act))

    def _watch(self) -> None:
        """How long an agent idles while a request waits."""
        idle = any(not host.running for host in self._hosts.values())
        if idle and self._views.totals().queue_depth:
            self._idle_since = self._now if self._idle_since is None else self._idle_since
            seconds = self._now - self._idle_since
            self.outcome.idle_beside_waiting = max(self.outcome.idle_beside_waiting, seconds)
        else:
            self._idle_since = None

    def _join(self, link: LinkId, kind: HostKind) -> None:
        self._hosts[link] = Host(kind.speeds, Cache(kind.cache))
        model = ModelInfo(
            name="m",
            architecture="none",
            parameters=0,
            size_bytes=0,
            context_size=max(kind.cache // kind.slots, 1),
        )
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=AgentId(f"{link}"),
            name=f"host-{link}",
            version="",
            slots=kind.slots,
            model=model,
        )
        self._follow(self.fleet.agent_joined(link, hello, self._now))
        cells = Cells(total=kind.cache)
        self._follow(self.fleet.agent_said(link, Statistics(cells=cells), self._now))

    def _ask(self, conversation: Conversation, number: int) -> None:
        turn = conversation.turns[number]
        conversation.messages += turn.added
        request = GenerateRequest(
            messages=tuple(conversation.messages), model="m", max_tokens=turn.num_tokens
        )
        id = RequestId(str(next(self._order)))
        self._talks[id] = (conversation, number, self._now)
        self._follow(self.fleet.request_arrived(id, request, self._now))

    def _follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Send(link, Start() as start):
                    self._hosts[link].start(start)
                    self._stir(link)
                case Send(_, Cancel()):
                    raise RuntimeError("nothing is cancelled here")
                case Deliver(id, Done() as done):
                    self._answered(id, done)
                case Finish(ending) if ending.error is not None:
                    raise ending.error
                case _:
                    pass

    def _stir(self, link: LinkId) -> None:
        if link not in self._stepping:
            self._stepping.add(link)
            self._at(self._now, lambda: self._step(link))

    def _step(self, link: LinkId) -> None:
        seconds, items = self._hosts[link].step()
        self._at(self._now + seconds, lambda: self._stepped(link, items))

    def _stepped(self, link: LinkId, items: list) -> None:  # type: ignore[type-arg]
        self._stepping.remove(link)
        if items:
            for item in items:
                if isinstance(item, PromptRead):
                    self._read(item)
            self._follow(self.fleet.agent_said(link, Output(items=tuple(items)), self._now))
        if self._hosts[link].running:
            self._stir(link)

    def _read(self, item: PromptRead) -> None:
        self.outcome.first_tokens.append(self._now - self._talks[item.id][2])
        self.outcome.num_prompt += item.prompt_tokens
        self.outcome.num_cached += item.cached_tokens

    def _answered(self, id: RequestId, done: Done) -> None:
        conversation, number, _ = self._talks.pop(id)
        self.outcome.by_agent[done.agent] = self.outcome.by_agent.get(done.agent, 0) + 1
        answer = " ".join(["word!"] * done.usage.completion_tokens)
        conversation.messages.append(ChatMessage(role="assistant", content=answer))
        if number + 1 < len(conversation.turns):
            pause = conversation.turns[number + 1].pause
            self._at(self._now + pause, lambda: self._ask(conversation, number + 1))


def simulate(
    hosts: list[HostKind], conversations: list[Conversation], routing: str = "cost"
) -> Outcome:
    """All conversations, from the first question to the last answer."""
    return Simulation(hosts, conversations, routing).run()
