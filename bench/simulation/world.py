"""The balancer's core among simulated agents, in virtual time: arrivals, answers, losses.

Agents have their own sessions. With a desired state, they have no models of their own: the
balancer's controller says what each loads, also after losses.
"""

import heapq
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from math import inf
from random import Random
from typing import ParamSpec, TypeVar

from arriero.balancer.control.desired_state import DesiredState
from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.decisions import (
    Decision,
    Deliver,
    Disconnect,
    Finish,
    LinkId,
    Moved,
    Refuse,
    Send,
)
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.recorder import Ending
from arriero.shared.inference import AgentId, Done, RequestId
from arriero.shared.messages import FromAgent, FromBalancer, Output, PromptRead, Start
from arriero.shared.models.assignments import Assign
from bench.simulation.arrivals import Arrival
from bench.simulation.fluid_host import HostKind
from bench.simulation.outcome import Outcome
from bench.simulation.prompts import PART, chat_of
from bench.simulation.simulated_agent import MODEL, SimulatedAgent

P = ParamSpec("P")
R = TypeVar("R")

NO_END = 1e9
LIMITS = Limits(
    max_buffered_requests=2_000_000,
    buffered_request_timeout=NO_END,
    first_token_timeout=NO_END,
    token_timeout=NO_END,
    request_timeout=NO_END,
    heartbeat_interval=NO_END / 2,
    heartbeat_timeout=NO_END,
)

FollowUp = Callable[[Arrival, float], Arrival | None]
"""The request that comes after this one, which has ended now; `None` if none does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`callers_apart`: each caller has its own place in the queue; else all wait in one line."""

    routing: str = "cost"
    callers_apart: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """Agents are lost `every` so many seconds on average, and come back after `away`, cold."""

    every: float
    away: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Desired:
    """Agents have no models of their own: the desired state has these, and loading takes a
    while."""

    state: DesiredState
    load_seconds: float = 20.0


@dataclass(slots=True)
class _Asked:
    arrival: Arrival
    started: bool = False
    was_read: bool = False
    is_running: bool = False


@dataclass(slots=True)
class _Place:
    """An agent while it is here."""

    number: int
    kind: HostKind
    agent: SimulatedAgent
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
        desired: Desired | None = None,
        seed: int = 1,
        follow_up: FollowUp = lambda _arrival, _now: None,
        part: int = PART,
    ) -> None:
        """`num_requests` includes those that follow up. `part`: tokens of a message."""
        self.fleet = Fleet(replace(LIMITS, routing=policy.routing))
        self._follow_up = follow_up
        self._part = part
        self.outcome = Outcome()
        self._policy = policy
        self._losses = losses
        self._desired = desired
        self._models = [each.name for each in desired.state.models] if desired else [MODEL]
        self._random = Random(seed)
        self._arrivals = arrivals
        self._left = num_requests
        self._now = 0.0
        self._order = count(1)
        self._links = count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._places: dict[LinkId, _Place] = {}
        self._asked: dict[RequestId, _Asked] = {}
        self._num_waiting = 0
        self._last_arrival = 0.0
        self._unserved: dict[str, deque[float]] = {name: deque() for name in self._models}
        """For each model, when agents were lost that served it and have no successor yet."""
        if desired is not None:
            self._follow(self.fleet.desire(desired.state, self._now))
        for number, kind in enumerate(kinds, 1):
            self._join(number, kind)
        self._expect_arrival()
        if losses is not None:
            self._expect_loss(losses)

    def run(self) -> Outcome:
        """Raises `RuntimeError` where a request did not end exactly once."""
        while self._left or self._asked:
            due = self.fleet.next_deadline()
            first = self._events[0][0] if self._events else inf
            if due is not None and due < first:
                if due > NO_END / 4:
                    raise RuntimeError(f"{len(self._asked)} requests wait, and nothing happens")
                self._now = max(self._now, due)
                self._follow(self._timed(self.fleet.tick, self._now))
            else:
                self._now, _, act = heapq.heappop(self._events)
                act()
        self.outcome.seconds = self._now
        hosts = (place.agent for place in self._places.values())
        self.outcome.num_computed += sum(each.num_computed for each in hosts)
        return self.outcome

    # ---- events

    def _at(self, moment: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._order), act))

    def _expect_arrival(self) -> None:
        if self._left and (arrival := next(self._arrivals, None)) is not None:
            self._last_arrival = arrival.at
            self._at(arrival.at, partial(self._come, arrival))

    def _come(self, arrival: Arrival) -> None:
        self._arrive(arrival)
        self._expect_arrival()

    def _arrive(self, arrival: Arrival) -> None:
        self._left -= 1
        id = RequestId(str(next(self._order)))
        model = self._models[arrival.session % len(self._models)]
        request = replace(chat_of(arrival, self._part), model=model)
        self._asked[id] = _Asked(arrival)
        self.outcome.num_requests += 1
        tokens = arrival.num_prompt + arrival.num_answer
        asked = self.outcome.asked
        asked[arrival.caller] = asked.get(arrival.caller, 0) + tokens
        self._waits(1)
        caller = self._caller(arrival)
        self._follow(self._timed(self.fleet.request_arrived, id, request, self._now, caller=caller))

    def _waits(self, change: int) -> None:
        self._num_waiting += change
        self.outcome.most_waiting = max(self.outcome.most_waiting, self._num_waiting)

    def _caller(self, arrival: Arrival) -> Caller:
        return Caller(name=f"caller-{arrival.caller}" if self._policy.callers_apart else "all")

    # ---- agents come and go

    def _join(self, number: int, kind: HostKind) -> None:
        link = LinkId(next(self._links))
        agent = SimulatedAgent(
            AgentId(f"{number}-{link}"),
            f"host-{number}",
            kind,
            self._now,
            load_seconds=self._desired.load_seconds if self._desired else None,
        )
        self._places[link] = _Place(number, kind, agent, link, since=self._now)
        hello = agent.dial(self._now)
        self._follow(self._timed(self.fleet.agent_joined, link, hello, self._now))

    def _expect_loss(self, losses: Losses) -> None:
        moment = self._now + self._random.expovariate(1 / losses.every)
        self._at(moment, lambda: self._lose(losses))

    def _lose(self, losses: Losses) -> None:
        """An agent goes in the middle of what it does; what it had sent stays sent."""
        if self._places:
            link = self._random.choice(list(self._places))
            place = self._places[link]
            self._catch_up(place)
            for message in place.agent.unsent():
                self._say(link, message)
            del self._places[link]
            self.outcome.num_computed += place.agent.num_computed
            self.outcome.num_losses += 1
            if self._desired is not None and place.agent.is_ready:
                self._unserved[place.agent.serves or ""].append(self._now)
            self._follow(self._timed(self.fleet.agent_left, link, self._now))
            self._at(self._now + losses.away, lambda: self._join(place.number, place.kind))
        self._expect_loss(losses)

    def _serves(self, model: str) -> None:
        """An agent has loaded a model: if others are missed, in place of the first of them."""
        if self._unserved[model]:
            self.outcome.repairs.append(self._now - self._unserved[model].popleft())

    # ---- what agents do

    def _catch_up(self, place: _Place) -> None:
        """Let it come to the present; what it sends is delivered."""
        agent = place.agent
        self.outcome.busy_seconds += len(agent.host.running) * (self._now - place.since)
        place.since = self._now
        was_ready = agent.is_ready
        messages = agent.advance(self._now)
        if agent.is_ready and not was_ready:
            self._serves(agent.serves or "")
        for message in messages:
            self._say(place.link, message)

    def _say(self, link: LinkId, message: FromAgent) -> None:
        if link not in self._places:
            return  # it was lost at the same moment
        if isinstance(message, Output):
            for item in message.items:
                if isinstance(item, PromptRead):
                    self._was_read(item)
        self._follow(self._timed(self.fleet.agent_said, link, message, self._now))

    def _expect_change(self, place: _Place) -> None:
        """After something changed there."""
        place.plan += 1
        due = place.agent.next_change()
        if due is not None:
            self._at(due, partial(self._change, place, place.plan))

    def _change(self, place: _Place, plan: int) -> None:
        if place.plan == plan and place.link in self._places:
            self._catch_up(place)
            self._expect_change(place)

    def _obey(self, link: LinkId, message: FromBalancer) -> None:
        """An agent got this; what it answers at once comes next."""
        if link not in self._places:
            return  # it was lost meanwhile
        place = self._places[link]
        self._catch_up(place)
        for answer in place.agent.received(message, self._now):
            self._at(self._now, partial(self._say, link, answer))
        self._expect_change(place)

    def _starts(self, start: Start) -> None:
        asked = self._asked[start.id]
        if not asked.is_running:
            asked.is_running = True
            self._waits(-1)
        if not asked.started:
            asked.started = True
            self.outcome.waits.append(self._now - asked.arrival.at)

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

    def _timed(self, call: Callable[P, R], *args: P.args, **named: P.kwargs) -> R:
        begun = time.thread_time()
        result = call(*args, **named)
        self.outcome.core_seconds += time.thread_time() - begun
        self.outcome.num_core_calls += 1
        return result

    def _follow(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            match decision:
                case Send(link, message):
                    self._count(message)
                    self._obey(link, message)
                case Deliver(id, Done()):
                    self._done(id)
                case Moved(id):
                    self.outcome.num_moved += 1
                    self._stops(id)
                case Finish(ending):
                    self._finish(ending)
                case Refuse(_, error):
                    raise error
                case Disconnect(_, reason):
                    raise RuntimeError(f"an agent is let go: {reason}")
                case _:
                    pass

    def _count(self, message: FromBalancer) -> None:
        if isinstance(message, Start):
            self._starts(message)
        elif isinstance(message, Assign):
            self.outcome.num_orders += 1

    def _stops(self, id: RequestId) -> None:
        """It has no agent any more."""
        if self._asked[id].is_running:
            self._asked[id].is_running = False
            self._waits(1)

    def _finish(self, ending: Ending) -> None:
        self._timed(self.fleet.settle, ending, self._now)
        if ending.error is not None:
            self.outcome.num_failed += 1
            self._stops(ending.request_id)
            self._waits(-1)
            del self._asked[ending.request_id]

    def _done(self, id: RequestId) -> None:
        arrival = self._asked.pop(id).arrival
        self.outcome.num_ended += 1
        self.outcome.totals.append(self._now - arrival.at)
        self.outcome.num_answer += arrival.num_answer
        if self._now <= self._last_arrival:
            tokens = arrival.num_prompt + arrival.num_answer
            served = self.outcome.served
            served[arrival.caller] = served.get(arrival.caller, 0) + tokens
        if (later := self._follow_up(arrival, self._now)) is not None:
            self._at(later.at, partial(self._arrive, later))
