"""Which request goes to which agent: one method for each event of requests and agents.

Requests wait for their model or for any; `fair_queue` says which is next. One that comes back from
an agent keeps its place, which is before whatever its caller sent since.

Invariants:
- No agent is given more than the slots it reported, nor more than it is allowed; after a cut,
  nothing until it is below again.
- Nobody waits while an agent that could serve them has a free slot, but for those that are held for
  one agent, which has computed much of their prompt; each is held once, and only for a while.
- Of one caller's requests of one class for the same model, nobody is assigned before one that
  arrived earlier. One of which a part was answered asks for the engine that answered it: the model
  and its fingerprint. One that is held may see later ones start elsewhere.
- No more newcomers wait than `max_buffered`; those that come back are never turned away.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from .....shared.errors import QueueFull
from .....shared.inference import PriorityClass, RequestId
from ...caller import Account, Flow
from ...decisions import LinkId, Refuse
from ...routing.rates import Measurement
from ..routing import Able, ByText, Engine, Offer, RoutingRequest, Wanted
from .assignments import Assign, Assignments, Entry

RETRY_AFTER = 1.0
"""Seconds after which a client that found the queue full may try again, if no more is known."""


class Dispatch(Assignments):
    """Every method returns the assignments that have become possible.

    `now` is the time of the event: say it first. Only the share of classes that starve needs it.
    """

    # ---- requests

    def enqueue(self, id: RequestId, routing: RoutingRequest) -> list[Assign] | Refuse:
        """A newcomer is assigned, waits (no decision), or is refused and forgotten."""
        self._arrives(id, routing)
        if not self.has_free_slot(routing.wanted) and self.num_waiting > self._max_buffered:
            error = self._queue_full(id)
            self.ended(id)
            return Refuse(id, error)
        self._crowding.waits(id, *_place_of(routing))
        return self._place([id])

    def resume(self, id: RequestId, routing: RoutingRequest) -> list[Assign]:
        """As `enqueue`, for one that was accepted before, so that no queue is full for it."""
        self._arrives(id, routing)
        return self._place([id])

    def _arrives(self, id: RequestId, routing: RoutingRequest) -> None:
        if id in self._requests:
            raise ValueError(f"request {id} is here already")
        self._num_arrived += 1
        self._requests[id] = Entry(routing, self._num_arrived)
        self._waiting.arrived(id, routing, self.now)

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

    def makes_room_for(self, routing: RoutingRequest) -> RequestId | None:
        """Of a full queue, the request that has to go for a newcomer: end it before `enqueue`."""
        is_full = 0 < self._max_buffered <= self.num_waiting
        if not is_full or self.has_free_slot(routing.wanted):
            return None
        return self._crowding.yields_to(*_place_of(routing))

    def ended(
        self, id: RequestId, end: Measurement | None = None, *, charge: int | None = None
    ) -> list[Assign]:
        """A request is over, wherever it was; its slot serves the next. `end`, if it ended well.

        `charge` is what it counts among its caller's, where that is known by now.
        """
        request = self._requests.pop(id)
        self._holds.forget(id)
        self._crowding.leaves(id)
        self._waiting.ended(id, request.routing.charge if charge is None else charge)
        if request.link is None:
            return []
        agent = self._slots[request.link]
        agent.running.remove(id)
        agent.is_full = False
        self._left_agent(id, end)
        return self._fill(agent)

    def prompt_read(self, id: RequestId, num_tokens: int, num_cached: int) -> None:
        """An agent has computed the prompt of a request that it runs."""
        self.router.prompt_read(id, num_tokens, num_cached)
        self._ranks.update(self._slots[self._running(id)])

    def release(self, id: RequestId) -> list[Assign]:
        """A request has waited for one agent long enough: it takes any now."""
        return self._place([id]) if self._release(id) else []

    def came_back(self, id: RequestId) -> list[Assign]:
        """The agent would not start it: it counts as full, until `agent_rested` or an end there."""
        agent = self._slots[self._running(id)]
        agent.running.remove(id)
        agent.is_full = True
        self._left_agent(id)
        self._ranks.update(agent)
        self._waits_again(id)
        return self._place([id])

    def gave_way(self, id: RequestId) -> list[Assign]:
        """Its agent has stopped it, and has a slot for whichever request is next; it waits."""
        agent = self._slots[self._running(id)]
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

    def goes_on_by_text(self, id: RequestId, by_text: ByText) -> None:
        """From now on only these may have the request; if it waits, then call `retry`."""
        request = self._requests[id]
        self._release(id)
        request.routing = replace(request.routing, engine=None, able=by_text)
        if request.link is None:
            self._waiting.changed(id, self.wanted_by(id), self.now)

    def serves(self, wanted: Wanted, *, besides: LinkId | None = None) -> bool:
        """Whether an agent takes those who want this, `besides` one that is about to leave."""
        num_slots = self._slots.num_for(wanted)
        if besides is not None and (agent := self._slots[besides]).serves(wanted):
            num_slots -= agent.offer.slots
        return num_slots > 0

    def renamed(self, names: Mapping[str, str]) -> tuple[list[RequestId], list[Assign]]:
        """Who waits for a model of `names` waits for what it is called there; who that is."""
        waiting = [id for name in names for id in self._waiting.of(name)]
        held = [id for agent in self._slots for id in self._holds.held_for(agent.link)]
        waiting += [id for id in held if self.wanted_by(id) in names]
        ids = self._in_order(waiting)
        for id in ids:
            self._release(id)
            request = self._requests[id]
            name = request.routing.model or ""
            request.routing = replace(request.routing, model=names.get(name, name))
            self._waiting.renamed(id, request.routing.wanted, self.now)
        return ids, self._place(ids)

    def narrow(self, id: RequestId, able: Able) -> None:
        """From now on only agents that can do this may have the request; then call `retry`."""
        request = self._requests[id]
        self._release(id)
        request.routing = replace(request.routing, able=able)
        if request.link is None:
            self._waiting.changed(id, self.wanted_by(id), self.now)

    def retry(self, ids: Iterable[RequestId]) -> list[Assign]:
        """Assign those of `ids` that wait and need not."""
        return self._retry(ids)

    def has_agent(self, link: LinkId) -> bool:
        """Whether an agent is here."""
        return link in self._slots

    def _running(self, id: RequestId) -> LinkId:
        link = self._requests[id].link
        if link is None:
            raise ValueError(f"request {id} is not running")
        return link

    # ---- agents

    def agent_joined(self, link: LinkId, offer: Offer) -> list[Assign]:
        """An agent is here."""
        self._slots.add(link)
        return self.agent_changed(link, offer)

    def agent_changed(self, link: LinkId, offer: Offer) -> list[Assign]:
        """What the agent says of itself has changed; what it runs, it goes on running."""
        agent = self._slots[link]
        is_same = offer.is_able and offer.keys == agent.keys
        self._slots.offers(agent, offer)
        agent.is_full = False
        self.router.agent_is(link, offer.model, offer.cache_tokens, offer.peer)
        released = [] if is_same else self._let_go(link)
        return [*self._fill(agent), *self._retry(released)]

    def agent_allowed(self, link: LinkId, num: int) -> list[Assign]:
        """An agent may have so many requests at once from now on."""
        agent = self._slots[link]
        agent.offer = replace(agent.offer, allowed=num)
        released = [] if num else self._let_go(link)
        return [*self._fill(agent), *self._retry(released)]

    def agent_suspended(self, link: LinkId, offer: Offer) -> None:
        """An agent takes no more work, and will leave at once: those held for it wait for that."""
        agent = self._slots[link]
        self._slots.offers(agent, offer)
        self._ranks.update(agent)

    def agent_offers(self, link: LinkId, offer: Offer) -> None:
        """An agent serves other needs than before, with which nobody waits."""
        self.agent_suspended(link, offer)

    def agent_rested(self, link: LinkId) -> list[Assign]:
        """An agent that was full may be tried again."""
        agent = self._slots[link]
        agent.is_full = False
        return self._fill(agent)

    def agent_left(self, link: LinkId, ended: Collection[RequestId]) -> list[Assign]:
        """An agent is gone: of its requests, `ended` are over and the rest come back."""
        back = [id for id in self.running_on(link) if id not in ended]
        for id in self._slots[link].running:
            self._left_agent(id)
        back = self._in_order([*back, *self._let_go(link)])
        self._slots.remove(link)
        self._ranks.remove(link)
        for id in ended:
            self._holds.forget(id)
            self._waiting.ended(id, self._requests.pop(id).routing.charge)
        for id in back:
            if self._requests[id].link is not None:
                self._waits_again(id)
        self.router.agent_left(link)
        return self._place(back)


def _place_of(routing: RoutingRequest) -> tuple[Account, Flow | None, PriorityClass]:
    caller = routing.caller
    return caller.account, caller.flow, routing.priority_class
