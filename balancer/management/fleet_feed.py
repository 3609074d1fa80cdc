"""Deltas from changes of the fleet: what readers of events do not know yet.

Of requests, readers know the oldest `MAX_REQUESTS_SENT`. Counts of tokens alone are no change of
an agent: `throughput` tells of them each second, and the engine's statistics follow. Those of
requests are told once a second, and so are places: each request that leaves the queue changes those
of all behind it.
"""

from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import cast

from ...shared.inference import AgentId, RequestId
from ..fleet.view import AgentView, FleetDelta, FleetTotals, RequestView
from .answer_types import Agent, AgentChange, Delta, Request, RequestChange
from .serializers import PlaceOf, agent_json, fleet_json, request_json
from .throughput import Throughput

MAX_REQUESTS_SENT = 200
"""Most requests that readers of events know; REST has filters for the others."""

_REQUEST_CLOCKS = frozenset({"waited_seconds", "age_seconds"})
COUNTS_INTERVAL = 1.0
"""Seconds between two deltas that tell of requests whose tokens or places alone have changed."""

Entry = Mapping[str, object]


class _Fields:
    """The fields of an entry that are told, and the clocks that alone are no news."""

    def __init__(self, names: Iterable[str], clocks: frozenset[str]) -> None:
        self._clocks = clocks
        # One call for all fields: most entries are as they were.
        self._values = itemgetter(*sorted(set(names) - clocks))

    def different(self, entry: Entry, known: Entry | None) -> Entry:
        """The fields that are different, and the clocks with them; all where none are known."""
        if known is None:
            return entry
        if self._values(entry) == self._values(known):
            return {}
        return {
            name: value
            for name, value in entry.items()
            if name in self._clocks or value != known[name]
        }


_AGENT = _Fields(Agent.__annotations__, frozenset({"connected_seconds", "throughput"}))
_REQUEST = _Fields(Request.__annotations__, _REQUEST_CLOCKS | {"num_tokens"})
_COUNTED_REQUEST = _Fields(Request.__annotations__, _REQUEST_CLOCKS)


class FleetFeed:
    """What readers who have read everything know, but for counts: `owes_counts` of those."""

    def __init__(self) -> None:
        self.owes_counts = False
        self._agents: dict[AgentId, Agent] = {}
        self._requests: dict[RequestId, Request] = {}
        self._totals: FleetTotals | None = None
        self._counted_at = 0.0

    def restart(self, agents: Iterable[Agent], requests: Iterable[Request]) -> None:
        """Start again from this: readers get a snapshot of it."""
        self._agents = {agent["id"]: agent for agent in agents}
        self._requests = {request["id"]: request for request in requests}
        self._totals = None

    def advance(
        self,
        change: FleetDelta,
        oldest: Iterable[RequestView],
        throughput: Throughput,
        at: float,
        place_of: PlaceOf,
        *,
        counts: bool = False,
    ) -> Delta | None:
        """What they have to be told, if anything; they know it from then on.

        `oldest`: the oldest requests as they are now, no more than `MAX_REQUESTS_SENT`. With
        `counts` tokens and places are told, too, however short ago they were.
        """
        delta = cast(Delta, {**fleet_json(change.totals, at)})
        num_fields = len(delta)
        if agents := self._changed_agents(change.agents, throughput):
            delta["agents"] = agents
        if left := [id for id in change.agents_left if self._agents.pop(id, None) is not None]:
            delta["agents_left"] = left
        is_counted = counts or at - self._counted_at >= COUNTS_INTERVAL
        if is_counted:
            self._counted_at = at
        self.owes_counts = not is_counted
        requests, ended = self._follow(oldest, place_of, is_counted=is_counted)
        if requests:
            delta["requests"] = requests
        if ended:
            delta["requests_ended"] = ended
        is_news = len(delta) > num_fields or change.totals != self._totals
        self._totals = change.totals
        return delta if is_news else None

    def _changed_agents(
        self, views: Iterable[AgentView], throughput: Throughput
    ) -> list[AgentChange]:
        changes = []
        for view in views:
            agent = agent_json(view, throughput.rate_of(view.id))
            known = self._agents.get(view.id)
            if known is not None and known["connected_seconds"] > agent["connected_seconds"]:
                known = None  # it left and came back
            if fields := _AGENT.different(agent, known):
                changes.append(cast(AgentChange, {"id": view.id, **fields}))
                self._agents[view.id] = agent
        return changes

    def _follow(
        self, oldest: Iterable[RequestView], place_of: PlaceOf, *, is_counted: bool
    ) -> tuple[list[RequestChange], list[RequestId]]:
        """What is different of the oldest requests, and which are not among them any more."""
        told_fields = _COUNTED_REQUEST if is_counted else _REQUEST
        known, self._requests = self._requests, {}
        changes = []
        for view in oldest:
            before = known.get(view.id)
            told = None if before is None or is_counted else before["position"]
            request = request_json(view, _place(view, told, place_of))
            fields = told_fields.different(request, before)
            if fields:
                changes.append(cast(RequestChange, {"id": view.id, **fields}))
            # What was passed over is told later: so it has to be different from what is known.
            self._requests[view.id] = request if fields or before is None else before
        return changes, [id for id in known if id not in self._requests]


def _place(view: RequestView, told: int | None, place_of: PlaceOf) -> int | None:
    """The place that was `told`, as long as the request waits; else the one that it has."""
    if view.state != "queued":
        return None
    return place_of(view.id) if told is None else told
