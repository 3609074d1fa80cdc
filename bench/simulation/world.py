"""The balancer's core among simulated agents, in virtual time: arrivals, answers, losses."""

import heapq
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import Decision, Deliver, Finish, LinkId, Moved, Refuse, Send
from arriero.balancer.fleet.limits import Limits, Routing
from arriero.shared.inference import AgentId, ChatMessage, Done, GenerateRequest, RequestId
from arriero.shared.messages import PROTOCOL_VERSION, Cancel, Hello, Item, Output, PromptRead, Start
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Cells, Statistics
from bench.routing.host import TOKEN_BYTES, Cache
from bench.routing.simulation import LIMITS, HostKind
from bench.simulation.arrivals import Arrival
from bench.simulation.fluid_host import FluidHost
from bench.simulation.outcome import Outcome
from bench.simulation.scheduled_host import ScheduledHost

MAX_WAITING = 2_000_000
_FILLER = "the llama goes on over the pass with salt and wool " * 4000
_FINGERPRINT = "simulated"


Host = FluidHost | ScheduledHost
MakeHost = Callable[[HostKind, float], Host]
"""Of this kind, from this moment on."""


def fluid(kind: HostKind, now: float) -> Host:
    """Quick: only changes are events."""
    return FluidHost(kind.speeds, Cache(kind.cache), _now=now)


def scheduled(kind: HostKind, now: float) -> Host:
    """Each step is an event, which the engine's own scheduler plans."""
    return ScheduledHost(kind.speeds, kind.slots, kind.cache)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`callers_apart`: each caller has its own place in the queue; else all wait in one line."""

    routing: Routing = "cost"
    callers_apart: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Agents are lost `every` so many seconds on average, and come back after `away`, cold."""

    every: float
    away: float = 30.0


@dataclass(slots=True)
class _Asked:
    arrival: Arrival
    started: bool = False
    was_read: bool = False


@dataclass(slots=True)
class _Place:
    """An agent's host while it is here."""

    number: int
    kind: HostKind
    host: Host
    link: LinkId
    plan: int = 0
    """Only the change that was expected last counts."""
    since: float = field(default=0.0)
    """From when on its busy slots are not counted yet."""


class World:
    """`run` until every request of `arrivals` has ended."""

    def __init__(
        self,
        kinds: list[HostKind],
        arrivals: Iterator[Arrival],
        *,
        num_requests: int,
        policy: Policy,
        losses: Losses | None = None,
        seed: int = 1,
        limits: Limits = LIMITS,
        make_host: MakeHost = fluid,
    ) -> None:
        limits = replace(limits, routing=policy.routing, max_buffered_requests=MAX_WAITING)
        self.fleet = Fleet(limits)
        self.outcome = Outcome()
        self._policy = policy
        self._make_host = make_host
        self._losses = losses
        self._random = Random(seed)
        self._arrivals = arrivals
        self._left = num_requests
        self._now = 0.0
        self._order = count(1)
        self._links = count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._places: dict[LinkId, _Place] = {}
        self._asked: dict[RequestId, _Asked] = {}
        self._last_arrival = 0.0
        for number, kind in enumerate(kinds, 1):
            self._join(number, kind)
        self._expect_arrival()
        if losses is not None:
            self._expect_loss(losses)

    def run(self) -> Outcome:
        """Raises `RuntimeError` where a request did not end exactly once."""
        while self._events and (self._left or self._asked):
            due = self.fleet.next_deadline()
            if due is not None and due < self._events[0][0]:
                self._now = max(self._now, due)
                self._follow(self._timed(self.fleet.tick, self._now))
            else:
                self._now, _, act = heapq.heappop(self._events)
                act()
        if self._asked:
            raise RuntimeError(f"{len(self._asked)} requests did not end")
        self.outcome.seconds = self._now
        self.outcome.num_computed += sum(each.host.num_computed for each in self._places.values())
        return self.outcome

    # ---- events

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), act))

    def _expect_arrival(self) -> None:
        if self._left:
            self._left -= 1
            arrival = next(self._arrivals)
            self._last_arrival = arrival.at
            self._at(arrival.at, lambda: self._arrive(arrival))

    def _arrive(self, arrival: Arrival) -> None:
        id = RequestId(str(next(self._order)))
        request = GenerateRequest(
            messages=messages_of(arrival), model="m", max_tokens=arrival.num_answer
        )
        self._asked[id] = _Asked(arrival)
        self.outcome.num_requests += 1
        tokens = arrival.num_prompt + arrival.num_answer
        asked = self.outcome.asked
        asked[arrival.caller] = asked.get(arrival.caller, 0) + tokens
        self._follow(
            self._timed(
                self.fleet.request_arrived, id, request, self._now, caller=self._caller(arrival)
            )
        )
        if self.fleet_depth > self.outcome.most_waiting:
            self.outcome.most_waiting = self.fleet_depth
        self._expect_arrival()

    @property
    def fleet_depth(self) -> int:
        """How many wait."""
        return self.fleet.totals().queue_depth

    def _caller(self, arrival: Arrival) -> Caller:
        return Caller(name=f"caller-{arrival.caller}" if self._policy.callers_apart else "all")

    def _expect_loss(self, losses: Losses) -> None:
        moment = self._now + self._random.expovariate(1 / losses.every)
        self._at(moment, lambda: self._lose(losses))

    def _lose(self, losses: Losses) -> None:
        """An agent goes in the middle of what it does; what it had told is told."""
        if self._places:
            link = self._random.choice(list(self._places))
            place = self._places[link]
            self._catch_up(place)
            if items := place.host.told():
                self._tell(link, items)
            del self._places[link]
            self.outcome.num_computed += place.host.num_computed
            self._follow(self._timed(self.fleet.agent_left, link, self._now))
            self._at(self._now + losses.away, lambda: self._join(place.number, place.kind))
        self._expect_loss(losses)

    def _join(self, number: int, kind: HostKind) -> None:
        link = LinkId(next(self._links))
        host = self._make_host(kind, self._now)
        self._places[link] = _Place(number, kind, host, link, since=self._now)
        hello = Hello(
            protocol=PROTOCOL_VERSION,
            agent_id=AgentId(str(number)),
            name=f"host-{number}",
            version="",
            slots=kind.slots,
            model=_model(kind),
        )
        self._follow(self._timed(self.fleet.agent_joined, link, hello, self._now))
        cells = Statistics(cells=Cells(total=kind.cache))
        self._follow(self._timed(self.fleet.agent_said, link, cells, self._now))

    # ---- agents

    def _catch_up(self, place: _Place) -> None:
        """Let its host come to the present; what it gives is told."""
        self.outcome.busy_seconds += len(place.host.running) * (self._now - place.since)
        place.since = self._now
        if items := place.host.advance(self._now):
            self._tell(place.link, items)

    def _tell(self, link: LinkId, items: list[Item]) -> None:
        for item in items:
            if isinstance(item, PromptRead):
                self._was_read(item)
        self._follow(
            self._timed(self.fleet.agent_said, link, Output(items=tuple(items)), self._now)
        )

    def _expect_change(self, place: _Place) -> None:
        place.plan += 1
        plan, due = place.plan, place.host.next_change()
        if due is not None:
            self._at(due, lambda: self._change(place, plan))

    def _change(self, place: _Place, plan: int) -> None:
        if place.plan == plan and place.link in self._places:
            self._catch_up(place)
            self._expect_change(place)

    def _start(self, link: LinkId, start: Start) -> None:
        place = self._places[link]
        self._catch_up(place)
        asked = self._asked[start.id]
        if not asked.started:
            asked.started = True
            self.outcome.waits.append(self._now - asked.arrival.at)
        place.host.start(start, self._now)
        self._expect_change(place)

    def _was_read(self, item: PromptRead) -> None:
        asked = self._asked[item.id]
        if not asked.was_read:
            asked.was_read = True
            self.outcome.first_tokens.append(self._now - asked.arrival.at)
            self.outcome.num_prompt += item.prompt_tokens
            self.outcome.num_cached += item.cached_tokens
        else:
            self.outcome.num_lost += item.prompt_tokens - item.cached_tokens

    # ---- the core

    def _timed(self, call, *args, **named) -> list[Decision]:  # type: ignore[no-untyped-def]
        begun = time.thread_time()
        decisions: list[Decision] = call(*args, **named)
        self.outcome.core_seconds += time.thread_time() - begun
        self.outcome.num_core_calls += 1
        return decisions

    def _follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Send(link, Start() as start):
                    self._start(link, start)
                case Send(link, Cancel(id)):
                    self._places[link].host.drop(id)
                case Deliver(id, Done()):
                    self._done(id)
                case Moved():
                    self.outcome.num_moved += 1
                case Finish(ending) if ending.error is not None:
                    self.outcome.num_failed += 1
                    self._asked.pop(ending.id, None)
                case Refuse(_, error):
                    raise error
                case _:
                    pass

    def _done(self, id: RequestId) -> None:
        arrival = self._asked.pop(id).arrival
        self.outcome.num_ended += 1
        self.outcome.totals.append(self._now - arrival.at)
        self.outcome.num_answer += arrival.num_answer
        if self._now <= self._last_arrival:
            tokens = arrival.num_prompt + arrival.num_answer
            served = self.outcome.served
            served[arrival.caller] = served.get(arrival.caller, 0) + tokens


def messages_of(arrival: Arrival) -> tuple[ChatMessage, ...]:
    """A document, then the session's text: a longer prompt of a session begins as a shorter one."""
    messages = []
    if arrival.num_shared:
        messages.append(_message("system", f"document {arrival.document}", arrival.num_shared))
    left = arrival.num_prompt - arrival.num_shared
    # One message for each doubling, so that what a session had before is a chain of whole ones.
    length = 512
    while left > 0:
        part = min(left, length)
        messages.append(_message("user", f"{arrival.session} {len(messages)}", part))
        left -= part
    return tuple(messages)


def _message(role: str, name: str, num_tokens: int) -> ChatMessage:
    text = f"{name} " + _FILLER[: max(0, num_tokens * TOKEN_BYTES - len(name) - 1)]
    return ChatMessage(role=role, content=text)  # type: ignore[arg-type]


def _model(kind: HostKind) -> ModelInfo:
    return ModelInfo(
        name="m",
        architecture="none",
        parameters=0,
        size_bytes=0,
        context_size=max(kind.cache // kind.slots, 1),
        fingerprint=_FINGERPRINT,
    )
