"""Which request goes to which agent: the queue and the slots; `routing` says which agent is best.

A slot here is a reservation: the agent has the last word and may still answer that it is full.
Requests wait for their model or for any; `fair_queue` says which is next. One that comes back from
an agent keeps its place, which is before whatever its caller sent since.

Invariants:
- No agent is given more than the slots it reported; after a cut, nothing until it is below again.
- Nobody waits while an agent that could serve them has a free slot, but for those that are held for
  one agent, which has computed much of their prompt; each is held once, and only for a while.
- Of one caller's requests of one class for the same model, nobody is assigned before one that
  arrived earlier. One of which a part was answered asks for the engine that answered it: the model
  and its fingerprint. One that is held may see later ones start elsewhere.
- No more newcomers wait than `max_buffered`; those that come back are never turned away.

A decision costs O(log agents + log waiting): free agents are ranked, per model and all together,
so no agent is looked at that is not chosen, but for a few that hold a request's prefix.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ....shared.errors import QueueFull
from ....shared.inference import PriorityClass, RequestId
from ..caller import Account
from ..decisions import LinkId, Refuse
from ..routing.cost import Load
from ..routing.rates import Measurement
from ..routing.router import Choice, Router
from ..tally import Tally
from .fair_queue.crowding import Crowding
from .fair_queue.fair_queue import FairQueue
from .matching import Free
from .routing import NOTHING, Engine, Offer, RoutingRequest, Wanted, Warm, model_of

RETRY_AFTER = 1.0
"""Seconds after which a client that found the queue full may try again, if no more is known."""

MOST_PASSED = 16
"""Requests that a free slot may pass over, one after the other, for which other agents are best."""


RANKED_TOGETHER = 64
"""Outdated ranks that are mended at once, so that no request pays for thousands of agents."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Start the request on the agent; its slot is taken."""

    request: RequestId
    link: LinkId


@dataclass(frozen=True, slots=True)
class Hold:
    """The request waits for one agent: call `release` after so many seconds, unless it started."""

    request: RequestId
    seconds: float


@dataclass(slots=True)
class _Agent:
    """`keys` are those of its offer. Who is `held` waits for it alone."""

    link: LinkId
    offer: Offer = NOTHING
    keys: tuple[Wanted, ...] = ()
    is_full: bool = False
    turn: int = 0
    running: set[RequestId] = field(default_factory=set)
    held: set[RequestId] = field(default_factory=set)

    @property
    def has_free_slot(self) -> bool:
        return self.offer.is_able and not self.is_full and len(self.running) < self.offer.slots


@dataclass(slots=True)
class _Request:
    routing: RoutingRequest
    arrival: int
    link: LinkId | None = None
    held_for: LinkId | None = None
    waited_for: LinkId | None = None
    was_held: bool = False

    @property
    def wanted(self) -> Wanted:
        """The queue it waits in."""
        if self.held_for is not None:
            return Warm(model_of(self.routing.wanted), self.held_for)
        return self.routing.wanted


class Dispatch:
    """Every method returns the assignments that have become possible.

    `now` is the time of the event: say it first. Only the share of classes that starve needs it.
    """

    def __init__(self, max_buffered: int, router: Router | None = None) -> None:
        self._max_buffered = max_buffered
        self.router = Router() if router is None else router
        self._holds: list[Hold] = []
        self._to_rank: list[LinkId] = []
        """Agents whose rank is outdated; the others' ranks are kept up at each change of theirs."""
        self._agents: dict[LinkId, _Agent] = {}
        self._requests: dict[RequestId, _Request] = {}
        self._waiting = FairQueue()
        self._crowding = Crowding()
        self._free = Free()
        self._able: Tally[Wanted] = Tally()
        """Slots of agents that take work, taken or not, by the model that these serve."""
        self._num_arrived = 0
        self._num_assigned = 0
        self.num_slots = 0
        self.now = 0.0

    @property
    def num_agents(self) -> int:
        """How many agents are here, whether they take work or not."""
        return len(self._agents)

    @property
    def num_waiting(self) -> int:
        """How many requests have no slot."""
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """How many slots are taken."""
        return len(self._requests) - self.num_waiting

    @property
    def is_ready(self) -> bool:
        """Whether an agent that takes work has a slot, free or not."""
        return None in self._able

    def running_on(self, link: LinkId) -> list[RequestId]:
        """The requests of an agent, first arrived first."""
        return self._in_order(self._agents[link].running)

    def _in_order(self, ids: Iterable[RequestId]) -> list[RequestId]:
        return sorted(ids, key=lambda id: self._requests[id].arrival)

    def num_running_on(self, link: LinkId) -> int:
        """How many of an agent's slots are taken."""
        return len(self._agents[link].running)

    def link_of(self, id: RequestId) -> LinkId | None:
        """The agent a request runs on, `None` while it waits."""
        return self._requests[id].link

    def stranded(self) -> list[RequestId]:
        """The waiting requests that no connected agent will ever take, as things are."""
        return self._waiting.stranded(self._able)

    def waiting(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that requests wait for: how many wait, and the first of them.

        A model may come again, for requests that wait for one of its engines.
        """
        return self._waiting.models()

    def has_free_slot(self, wanted: Wanted) -> bool:
        """Whether a newcomer that wants this would start at once."""
        return self._free.first(wanted) is not None

    def num_slots_for(self, wanted: Wanted) -> int:
        """The slots of agents that take requests which want this; 0 if none does."""
        return self._able[wanted]

    def is_held(self, id: RequestId) -> bool:
        """Whether a request waits for one agent alone."""
        return self._requests[id].held_for is not None

    def wanted_by(self, id: RequestId) -> Wanted:
        """What a request waits for, or would."""
        return self._requests[id].routing.wanted

    def place_of(self, id: RequestId) -> int:
        """The place of a waiting request, from 1: it is started after so many less one."""
        return self._waiting.place(id, self._able)

    def num_waiting_of(self, kind: PriorityClass) -> int:
        """How many requests of a class have no slot."""
        return self._waiting.num_of(kind)

    @property
    def num_callers(self) -> int:
        """How many callers wait that never had an agent."""
        return self._crowding.num_callers

    # ---- requests

    def enqueue(self, id: RequestId, routing: RoutingRequest) -> list[Assign] | Refuse:
        """A newcomer is assigned, waits (no decision), or is refused and forgotten."""
        if id in self._requests:
            raise ValueError(f"request {id} is here already")
        self._num_arrived += 1
        self._requests[id] = _Request(routing, self._num_arrived)
        self._waiting.arrived(id, routing, self.now)
        if not self.has_free_slot(routing.model) and len(self._waiting) > self._max_buffered:
            error = self._queue_full(id)
            self.ended(id)
            return Refuse(id, error)
        self._crowding.waits(id, *_place_of(routing))
        return self._place([id])

    def resume(self, id: RequestId, routing: RoutingRequest) -> list[Assign]:
        """As `enqueue`, for one that was accepted before, so that no queue is full for it."""
        if id in self._requests:
            raise ValueError(f"request {id} is here already")
        self._num_arrived += 1
        self._requests[id] = _Request(routing, self._num_arrived)
        self._waiting.arrived(id, routing, self.now)
        return self._place([id])

    def makes_room_for(self, routing: RoutingRequest) -> RequestId | None:
        """Of a full queue, the request that has to go for a newcomer: end it before `enqueue`."""
        is_full = 0 < self._max_buffered <= self.num_waiting
        if not is_full or self.has_free_slot(routing.model):
            return None
        return self._crowding.yields_to(*_place_of(routing))

    def ended(
        self, id: RequestId, end: Measurement | None = None, *, charge: int | None = None
    ) -> list[Assign]:
        """A request is over, wherever it was; its slot serves the next. `end`, if it ended well.

        `charge` is what it counts among its caller's, where that is known by now.
        """
        request = self._requests[id]
        self._stop_holding(id)
        self._crowding.leaves(id)
        self._waiting.ended(id, request.routing.charge if charge is None else charge)
        if request.link is None:
            del self._requests[id]
            return []
        del self._requests[id]
        agent = self._agents[request.link]
        agent.running.remove(id)
        agent.is_full = False
        self._left_agent(id, end)
        return self._fill(agent)

    def prompt_read(self, id: RequestId, num_tokens: int, num_cached: int) -> None:
        """An agent has computed the prompt of a request that it runs."""
        self.router.prompt_read(id, num_tokens, num_cached)
        self._rank(self._agents[self._running(id)])

    def release(self, id: RequestId) -> list[Assign]:
        """A request has waited for one agent long enough: it takes any now."""
        if self._requests[id].held_for is None:
            return []
        self._release(id)
        return self._place([id])

    def take_holds(self) -> list[Hold]:
        """The requests that wait for one agent since the last call; they may have ended."""
        holds, self._holds = self._holds, []
        return holds

    def came_back(self, id: RequestId) -> list[Assign]:
        """The agent would not start it: it counts as full, until `agent_rested` or an end there."""
        agent = self._agents[self._running(id)]
        agent.running.remove(id)
        agent.is_full = True
        self._left_agent(id)
        self._rank(agent)
        self._waits_again(id)
        return self._place([id])

    def gave_way(self, id: RequestId) -> list[Assign]:
        """It left its slot to whoever is next, and waits."""
        agent = self._agents[self._running(id)]
        agent.running.remove(id)
        self._left_agent(id)
        self._waits_again(id)
        assigned = self._fill(agent)
        return assigned if self._requests[id].link else [*assigned, *self._place([id])]

    def bind(self, id: RequestId, engine: Engine) -> None:
        """From now on only agents like this one may have the request, which runs on one."""
        self._running(id)
        request = self._requests[id]
        request.routing = replace(request.routing, engine=engine)

    def renamed(self, names: Mapping[str, str]) -> tuple[list[RequestId], list[Assign]]:
        """Who waits for a model of `names` waits for what it is called there; who that is."""
        waiting = [id for name in names for id in self._waiting.of(name)]
        held = [id for agent in self._agents.values() for id in agent.held]
        waiting += [id for id in held if self._requests[id].routing.wanted in names]
        ids = self._in_order(waiting)
        for id in ids:
            self._release(id)
            request = self._requests[id]
            name = request.routing.model or ""
            request.routing = replace(request.routing, model=names.get(name, name))
            self._waiting.renamed(id, request.routing.wanted, self.now)
        return ids, self._place(ids)

    # ---- agents

    def agent_joined(self, link: LinkId, offer: Offer) -> list[Assign]:
        """An agent is here."""
        if link in self._agents:
            raise ValueError(f"link {link} has joined already")
        self._agents[link] = _Agent(link)
        return self.agent_changed(link, offer)

    def agent_changed(self, link: LinkId, offer: Offer) -> list[Assign]:
        """What the agent says of itself has changed; what it runs, it goes on running."""
        agent = self._agents[link]
        self._count(agent, -1)
        is_same = offer.is_able and offer.keys == agent.keys
        agent.offer, agent.keys = offer, offer.keys
        agent.is_full = False
        self._count(agent, 1)
        self.router.agent_is(link, offer.model, offer.cache_tokens)
        released = [] if is_same else self._let_go(agent)
        return [*self._fill(agent), *self._retry(released)]

    def agent_suspended(self, link: LinkId, offer: Offer) -> None:
        """An agent takes no more work, and will leave at once: those held for it wait for that."""
        agent = self._agents[link]
        self._count(agent, -1)
        agent.offer = offer
        self._count(agent, 1)
        self._rank(agent)

    def agent_rested(self, link: LinkId) -> list[Assign]:
        """An agent that was full may be tried again."""
        agent = self._agents[link]
        agent.is_full = False
        return self._fill(agent)

    def agent_left(self, link: LinkId, ended: Collection[RequestId]) -> list[Assign]:
        """An agent is gone: of its requests, `ended` are over and the rest come back."""
        back = [id for id in self.running_on(link) if id not in ended]
        agent = self._agents[link]
        for id in agent.running:
            self._left_agent(id)
        back = self._in_order([*back, *self._let_go(agent)])
        del self._agents[link]
        self._free.discard(link)
        self._count(agent, -1)
        for id in ended:
            agent.running.remove(id)
            self._waiting.ended(id, self._requests.pop(id).routing.charge)
        for id in back:
            if self._requests[id].link is not None:
                self._waits_again(id)
        self.router.agent_left(link)
        return self._place(back)

    # ---- inside

    def _place(self, ids: Iterable[RequestId]) -> list[Assign]:
        """Assign those of `ids` for which an agent is free, in this order; they wait already.

        Whoever else waits has no free agent (the second invariant), so none is overtaken.
        """
        assigned = []
        for id in ids:
            choice = self._choose(self._requests[id])
            if choice is not None and choice.patience:
                self._hold(id, choice)
            elif choice is not None:
                assigned.append(self._assign(id, self._agents[choice.link]))
        return assigned

    def _choose(self, request: _Request) -> Choice | None:
        routing = request.routing
        may_wait = not request.was_held and self.num_waiting <= self._max_buffered
        return self.router.choose(
            routing.chain,
            load_of=lambda link: self._load(self._agents[link], routing.wanted),
            free=self._free.first(routing.wanted),
            most_answer=routing.most_answer,
            may_wait=may_wait,
        )

    def _load(self, agent: _Agent, wanted: Wanted) -> Load | None:
        """How an agent is, if it takes those who want this."""
        if not agent.offer.is_able or wanted not in agent.keys:
            return None
        return Load(
            running=len(agent.running),
            slots=agent.offer.slots,
            has_free_slot=agent.has_free_slot,
            waiting=len(agent.held),
        )

    def _hold(self, id: RequestId, choice: Choice) -> None:
        request = self._requests[id]
        request.held_for = request.waited_for = choice.link
        request.was_held = True
        self._agents[choice.link].held.add(id)
        self._holds.append(Hold(id, choice.patience))
        self._waiting.changed(id, request.wanted, self.now)

    def _release(self, id: RequestId) -> None:
        """A request that waits takes any agent again."""
        if self._requests[id].held_for is not None:
            self._stop_holding(id)
            self._waiting.changed(id, self._requests[id].wanted, self.now)

    def _stop_holding(self, id: RequestId) -> None:
        request = self._requests[id]
        if request.held_for is not None:
            self._agents[request.held_for].held.remove(id)
            request.held_for = None

    def _let_go(self, agent: _Agent) -> list[RequestId]:
        """Those that are held for an agent may take any other; first arrived first."""
        ids = self._in_order(agent.held)
        for id in ids:
            self._release(id)
        return ids

    def _retry(self, ids: Iterable[RequestId]) -> list[Assign]:
        """Assign those of the waiting ones that need not wait."""
        assigned = []
        for id in ids:
            if self._requests[id].link is None:
                assigned += self._place([id])
        return assigned

    def _left_agent(self, id: RequestId, end: Measurement | None = None) -> None:
        """A request does not run any more; what is learnt may change how agents rank."""
        if self.router.ended(id, end):
            self._to_rank = list(self._agents)
        for _ in range(min(len(self._to_rank), RANKED_TOGETHER)):
            agent = self._agents.get(self._to_rank.pop())
            if agent is not None:
                self._rank(agent)

    def _fill(self, agent: _Agent) -> list[Assign]:
        """Give the agent's free slots to those who wait, in their order."""
        assigned = []
        num_passed = 0
        self._rank(agent)
        while agent.has_free_slot and (id := self._next_for(agent)) is not None:
            choice = self._choose(self._requests[id]) if num_passed < MOST_PASSED else None
            if choice is not None and choice.patience:
                num_passed += 1
                self._hold(id, choice)
            else:
                best = agent if choice is None else self._agents[choice.link]
                assigned.append(self._assign(id, best))
        return assigned

    def _assign(self, id: RequestId, agent: _Agent) -> Assign:
        self._num_assigned += 1
        request = self._requests[id]
        self._crowding.leaves(id)
        self._waiting.started(id, self._keys_of(agent), self.now)
        self._stop_holding(id)
        request.link = agent.link
        self.router.started(id, agent.link, request.routing.chain, waited_for=request.waited_for)
        request.waited_for = None
        agent.running.add(id)
        agent.turn = self._num_assigned
        self._rank(agent)
        return Assign(id, agent.link)

    def _waits_again(self, id: RequestId) -> None:
        request = self._requests[id]
        request.link = None
        self._waiting.came_back(id, request.routing.wanted, self.now)

    def _next_for(self, agent: _Agent) -> RequestId | None:
        return self._waiting.first(self._keys_of(agent), self.now)

    def _keys_of(self, agent: _Agent) -> tuple[Wanted, ...]:
        """What those want whom it could start."""
        if not agent.held:
            return agent.keys
        return (*agent.keys, Warm(None, agent.link), Warm(agent.offer.model, agent.link))

    def _running(self, id: RequestId) -> LinkId:
        link = self._requests[id].link
        if link is None:
            raise ValueError(f"request {id} is not running")
        return link

    def _rank(self, agent: _Agent) -> None:
        """Update the agent's place among the free agents."""
        if agent.has_free_slot:
            load = self._load(agent, agent.keys[0])
            rank = 0.0 if load is None else self.router.rank(agent.link, load)
            self._free.put(agent.link, agent.keys, rank, agent.turn)
        else:
            self._free.discard(agent.link)

    def _count(self, agent: _Agent, sign: int) -> None:
        """Put the agent into the totals, or take it out."""
        self.num_slots += sign * agent.offer.slots
        if agent.offer.is_able:
            for key in agent.keys:
                self._able.add(key, sign * agent.offer.slots)

    def _queue_full(self, id: RequestId) -> QueueFull:
        """The error for a newcomer that waits as one too many."""
        if self._max_buffered == 0:
            return QueueFull("no slot is free and queueing is off", retry_after=RETRY_AFTER)
        return QueueFull.of(
            self.num_waiting - 1,
            "request",
            "requests",
            retry_after=RETRY_AFTER,
            position=self.place_of(id),
        )

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        waiting = [id for id, request in self._requests.items() if request.link is None]
        running = {id: agent.link for agent in self._agents.values() for id in agent.running}
        _require(all(id in self._waiting for id in waiting), "queues and requests disagree")
        _require(len(waiting) == self.num_waiting, "waiting requests are miscounted")
        _require(len(running) == self.num_running, "running requests are miscounted")
        for id, link in running.items():
            _require(self._requests[id].link == link, f"{id} does not run on {link}")
        _require(self.num_slots == sum(a.offer.slots for a in self._agents.values()), "slots")
        for agent in self._agents.values():
            self._check_agent(agent)
        self.router.check_integrity()
        self._check_held()
        self._waiting.check_integrity()
        self._crowding.check_integrity()
        self._free.check_integrity()

    def _check_held(self) -> None:
        held = {id: agent.link for agent in self._agents.values() for id in agent.held}
        expected = {id: each.held_for for id, each in self._requests.items() if each.held_for}
        _require(held == expected, "somebody is held for nobody")
        _require(all(id in self._waiting for id in held), "somebody is held and does not wait")

    def _check_agent(self, agent: _Agent) -> None:
        is_free = agent.link in self._free
        _require(is_free == agent.has_free_slot, f"{agent.link} is misplaced")
        if agent.has_free_slot:
            _require(self._next_for(agent) is None, f"a request waits for {agent.link} in vain")


def _place_of(routing: RoutingRequest) -> tuple[Account, int | None, PriorityClass]:
    caller = routing.caller
    return caller.account, caller.flow, routing.priority_class


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)
