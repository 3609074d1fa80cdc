"""Who waits and who runs where, and how a free slot and a waiting request find each other.

`fair_queue` says which request is next, `routing` which agent is best for it. A request that could
start at once may be held instead, for an agent that has computed much of its prompt.

A decision costs O(log agents + log waiting): free agents are ranked, per model and all together,
so no agent is looked at that is not chosen, but for a few that hold a request's prefix.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .....shared.inference import PriorityClass, RequestId
from ...decisions import LinkId
from ...routing.choice import Choice
from ...routing.fetches import Fetching
from ...routing.rates import Measurement
from ...routing.router import Router
from ..fair_queue.crowding import Crowding
from ..fair_queue.fair_queue import FairQueue
from ..routing import RoutingRequest, Wanted, Warm, model_of
from .holds import Hold, Holds
from .ranks import Ranks
from .slots import AgentSlots, Slots

MOST_PASSED = 16
"""Requests that a free slot may pass over, one after the other, for which other agents are best."""


@dataclass(frozen=True, slots=True)
class Assign:
    """Start the request on the agent; its slot is taken. It may be `fetching` a prefix first."""

    request: RequestId
    link: LinkId
    fetching: Fetching | None = None


@dataclass(slots=True)
class Entry:
    """A request, and the agent that it runs on."""

    routing: RoutingRequest
    arrival: int
    link: LinkId | None = None


class Assignments:
    """What `dispatch` knows of requests and agents, and the steps of which its events consist."""

    def __init__(self, max_buffered: int, router: Router | None = None) -> None:
        self._max_buffered = max_buffered
        self.router = Router() if router is None else router
        self._requests: dict[RequestId, Entry] = {}
        self._waiting = FairQueue()
        self._crowding = Crowding()
        self._slots = Slots()
        self._holds = Holds()
        self._ranks = Ranks(self.router, self._slots, self._holds)
        self._num_arrived = 0
        self.now = 0.0

    # ---- what is seen

    @property
    def num_agents(self) -> int:
        """How many agents are here, whether they take work or not."""
        return len(self._slots)

    @property
    def num_slots(self) -> int:
        """The slots of all agents, taken or not."""
        return self._slots.num_slots

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
        return None in self._slots.served

    def running_on(self, link: LinkId) -> list[RequestId]:
        """The requests of an agent, first arrived first."""
        return self._in_order(self._slots[link].running)

    def num_running_on(self, link: LinkId) -> int:
        """How many of an agent's slots are taken."""
        return len(self._slots[link].running)

    def link_of(self, id: RequestId) -> LinkId | None:
        """The agent a request runs on, `None` while it waits."""
        return self._requests[id].link

    def stranded(self) -> list[RequestId]:
        """The waiting requests that no connected agent will ever take, as things are."""
        return self._waiting.stranded(self._slots.served)

    def waiting(self) -> Iterator[tuple[str | None, int, RequestId]]:
        """Models that requests wait for: how many wait, and the first of them.

        A model may come again, for requests that wait for one of its engines.
        """
        return self._waiting.models()

    def has_free_slot(self, wanted: Wanted) -> bool:
        """Whether a newcomer that wants this would start at once."""
        return self._ranks.first(wanted) is not None

    def has_free_slot_besides(self, link: LinkId, wanted: Wanted) -> bool:
        """Whether another agent than this one would start a newcomer that wants this at once."""
        if self._ranks.first(wanted) != link:
            return self.has_free_slot(wanted)
        agent = self._slots[link]
        agent.is_full = True
        self._ranks.update(agent)
        is_there = self.has_free_slot(wanted)
        agent.is_full = False
        self._ranks.update(agent)
        return is_there

    def num_slots_for(self, wanted: Wanted) -> int:
        """The slots of agents that take requests which want this; 0 if none does."""
        return self._slots.num_for(wanted)

    def is_held(self, id: RequestId) -> bool:
        """Whether a request waits for one agent alone."""
        return self._holds.link_for(id) is not None

    def wanted_by(self, id: RequestId) -> Wanted:
        """What a request waits for, or would."""
        return self._requests[id].routing.wanted

    def place_of(self, id: RequestId) -> int:
        """The place of a waiting request, from 1: it is started after so many less one."""
        return self._waiting.place(id, self._slots.served)

    def num_waiting_of(self, kind: PriorityClass) -> int:
        """How many requests of a class have no slot."""
        return self._waiting.num_of(kind)

    @property
    def num_callers(self) -> int:
        """How many callers wait that never had an agent."""
        return self._crowding.num_callers

    # ---- a slot for a request

    def _place(self, ids: Iterable[RequestId]) -> list[Assign]:
        """Assign those of `ids` for which an agent is free, in this order; they wait already.

        Whoever else waits has no free agent (an invariant of `dispatch`), so none is overtaken.
        """
        assigned = []
        for id in ids:
            choice = self._choose(self._requests[id].routing, id)
            if choice is not None and choice.patience:
                self._hold(id, choice)
            elif choice is not None:
                assigned.append(self._assign(id, self._slots[choice.link], choice.fetching))
        return assigned

    def _retry(self, ids: Iterable[RequestId]) -> list[Assign]:
        """Assign those of the waiting ones that need not wait."""
        assigned = []
        for id in ids:
            if self._requests[id].link is None:
                assigned += self._place([id])
        return assigned

    def _choose(self, routing: RoutingRequest, id: RequestId) -> Choice | None:
        may_wait = not self._holds.was_held(id) and self.num_waiting <= self._max_buffered
        return self.router.choose(
            routing.chain,
            load_of=lambda link: self._ranks.load(self._slots[link], routing.wanted),
            free=self._ranks.first(routing.wanted),
            cache_key=routing.cache_key,
            most_answer=routing.most_answer,
            may_wait=may_wait,
        )

    def _assign(self, id: RequestId, agent: AgentSlots, fetching: Fetching | None = None) -> Assign:
        request = self._requests[id]
        self._crowding.leaves(id)
        self._waiting.started(id, self._keys_of(agent), self.now)
        request.link = agent.link
        waited_for = self._holds.started(id)
        self.router.started(
            id,
            agent.link,
            request.routing.chain,
            cache_key=request.routing.cache_key,
            waited_for=waited_for,
            fetching=fetching,
        )
        self._slots.take(agent, id)
        self._ranks.update(agent)
        return Assign(id, agent.link, fetching)

    # ---- a request for a slot

    def _fill(self, agent: AgentSlots) -> list[Assign]:
        """Give the agent's free slots to those who wait, in their order."""
        assigned = []
        num_passed = 0
        self._ranks.update(agent)
        while agent.has_free_slot and (id := self._next_for(agent)) is not None:
            routing = self._requests[id].routing
            choice = self._choose(routing, id) if num_passed < MOST_PASSED else None
            if choice is not None and choice.patience:
                num_passed += 1
                self._hold(id, choice)
            else:
                best = agent if choice is None else self._slots[choice.link]
                fetching = None if choice is None else choice.fetching
                assigned.append(self._assign(id, best, fetching))
        return assigned

    def _next_for(self, agent: AgentSlots) -> RequestId | None:
        return self._waiting.first(self._keys_of(agent), self.now)

    def _keys_of(self, agent: AgentSlots) -> tuple[Wanted, ...]:
        """What those want whom it could start."""
        if not self._holds.held_for(agent.link):
            return agent.keys
        return (*agent.keys, *(Warm(name, agent.link) for name in agent.offer.names))

    # ---- requests that are held, or have to wait again

    def take_holds(self) -> list[Hold]:
        """The requests that wait for one agent since the last call; they may have ended."""
        return self._holds.take_new()

    def _hold(self, id: RequestId, choice: Choice) -> None:
        self._holds.hold(id, choice.link, choice.patience)
        wanted = Warm(model_of(self.wanted_by(id)), choice.link)
        self._waiting.changed(id, wanted, self.now)

    def _release(self, id: RequestId) -> bool:
        """A request takes any agent again, if it was held; whether it was."""
        if not self._holds.release(id):
            return False
        self._waiting.changed(id, self.wanted_by(id), self.now)
        return True

    def _let_go(self, link: LinkId) -> list[RequestId]:
        """Those that are held for an agent may take any other; first arrived first."""
        ids = self._in_order(self._holds.held_for(link))
        for id in ids:
            self._release(id)
        return ids

    def _left_agent(self, id: RequestId, end: Measurement | None = None) -> None:
        """A request does not run any more; what is learnt may change how agents rank."""
        if self.router.ended(id, end):
            self._ranks.outdate()
        self._ranks.mend()

    def _waits_again(self, id: RequestId) -> None:
        request = self._requests[id]
        request.link = None
        self._waiting.came_back(id, request.routing.wanted, self.now)

    def _in_order(self, ids: Iterable[RequestId]) -> list[RequestId]:
        return sorted(ids, key=lambda id: self._requests[id].arrival)

    def check_integrity(self) -> None:
        """For tests: raise if an invariant does not hold."""
        self.router.check_integrity()
        self._waiting.check_integrity()
        self._crowding.check_integrity()
        self._slots.check_integrity()
        self._holds.check_integrity()
        self._ranks.check_integrity()
        running = {id: agent.link for agent in self._slots for id in agent.running}
        links = {id: request.link for id, request in self._requests.items()}
        _require(
            running == {id: link for id, link in links.items() if link is not None},
            "slots disagree",
        )
        _require(len(running) == self.num_running, "running requests are miscounted")
        _require(
            all(id in self._waiting for id, link in links.items() if link is None),
            "queues and requests disagree",
        )
        for agent in self._slots:
            is_idle = not agent.has_free_slot or self._next_for(agent) is None
            _require(is_idle, f"a request waits for {agent.link} in vain")
            held = self._holds.held_for(agent.link)
            _require(all(id in self._waiting for id in held), "a held request does not wait")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(what)
