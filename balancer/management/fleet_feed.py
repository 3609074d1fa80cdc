"""Makes deltas from changes of the fleet: everything that readers of events do not know yet.

Readers know the oldest `MAX_REQUESTS_SENT` requests. An agent does not count as changed if only
its token counts changed: the event `throughput` has the counts each second, and the engine's
statistics follow. Token counts of requests are sent once a second. So are places in the queue,
because each request that leaves the queue changes all places behind it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import cast

from ...shared.inference import AgentId, RequestId
from ...shared.reports.figures import Clock
from ..cluster.others import NO_OTHERS, Others
from ..fleet.view import AgentView, FleetDelta, FleetTotals, RequestView
from .answer_types import Agent, Aside, Changes, Delta, Request, Trouble, fields_of, marked
from .serializers import PlaceOf, agent_json, fleet_json, request_json
from .throughput import Throughput

MAX_REQUESTS_SENT = 200
"""Maximum requests that readers of events know. REST has filters for all requests."""

COUNTS_INTERVAL = 1.0
"""Seconds between two deltas for requests that changed only in tokens or places."""

Entry = Mapping[str, object]


class _Fields:
    """The fields of an entry that are sent. Changes only in fields of `also` are not sent."""

    def __init__(self, entry: type, *also: str) -> None:
        self._no_news = marked(entry, Clock, Aside).union(also)
        # One call for all fields: most entries are as they were.
        self._values = itemgetter(*sorted(fields_of(entry).keys() - self._no_news))

    def different(self, entry: Entry, known: Entry | None) -> Entry:
        """Return the changed fields and all silent fields; all fields if `known` is `None`.

        Changes only in silent fields are no news, so the result is then empty.
        """
        if known is None:
            return entry
        if self._values(entry) == self._values(known):
            return {}
        return {
            name: value
            for name, value in entry.items()
            if name in self._no_news or value != known[name]
        }


_AGENT = _Fields(Agent)
_REQUEST = _Fields(Request, "num_tokens")
_COUNTED_REQUEST = _Fields(Request)


class FleetFeed:
    """The state that up-to-date readers know.

    `owes_counts`: counts may have changed since they were last sent.
    """

    def __init__(self) -> None:
        self.owes_counts = False
        self._agents: dict[AgentId, Agent] = {}
        self._requests: dict[RequestId, Request] = {}
        self._totals: FleetTotals | None = None
        self._troubles: Sequence[Trouble] = ()
        self._counted_at = 0.0

    def restart(
        self,
        agents: Iterable[Agent],
        requests: Iterable[Request],
        troubles: Sequence[Trouble] = (),
    ) -> None:
        """Begin again with the given state, which readers get as a snapshot."""
        self._troubles = troubles
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
        others: Others = NO_OTHERS,
        *,
        troubles: Sequence[Trouble] = (),
        counts: bool = False,
    ) -> Delta | None:
        """Return the delta for readers, if any.

        Readers are expected to know the delta from now on.

        `oldest` are the present oldest requests, at most `MAX_REQUESTS_SENT`. If `counts`, tokens
        and places are sent even if the last ones are recent. `others` is the part of the other
        balancers. If they took more or fewer slots of an agent, `change` must contain the agent.
        """
        totals = others.totals(change.totals)
        delta = cast(Delta, {**fleet_json(totals, at)})
        num_fields = len(delta)
        if troubles != self._troubles:
            self._troubles = troubles
            delta["troubles"] = list(troubles)
        if agents := self._changed_agents(change.agents, throughput, others):
            delta["agents"] = agents
        if left := [id for id in change.agents_left if self._agents.pop(id, None) is not None]:
            delta["agents_left"] = left
        is_counted = counts or at - self._counted_at >= COUNTS_INTERVAL
        if is_counted:
            self._counted_at = at
        self.owes_counts = not is_counted
        own = self._own(oldest, place_of, others.here, is_counted=is_counted)
        all_requests = others.with_others(own, at, MAX_REQUESTS_SENT)
        requests, ended = self._follow(all_requests, is_counted=is_counted)
        if requests:
            delta["requests"] = requests
        if ended:
            delta["requests_ended"] = ended
        is_news = len(delta) > num_fields or totals != self._totals
        self._totals = totals
        return delta if is_news else None

    def _changed_agents(
        self, views: Iterable[AgentView], throughput: Throughput, others: Others
    ) -> list[Changes[Agent]]:
        changes: list[Changes[Agent]] = []
        for view in views:
            busy = others.busy.get(view.id, 0)
            agent = agent_json(view, throughput.rate_of(view.id), busy)
            known = self._agents.get(view.id)
            if known is not None and known["connected_seconds"] > agent["connected_seconds"]:
                known = None  # it left and came back
            if fields := _AGENT.different(agent, known):
                changes.append(Changes({"id": view.id, **fields}))
                self._agents[view.id] = agent
        return changes

    def _own(
        self,
        oldest: Iterable[RequestView],
        place_of: PlaceOf,
        here: str | None,
        *,
        is_counted: bool,
    ) -> Iterator[Request]:
        known = self._requests
        for view in oldest:
            before = known.get(view.id)
            sent = None if before is None or is_counted else before["position"]
            yield request_json(view, _place(view, sent, place_of), here)

    def _follow(
        self, oldest: Iterable[Request], *, is_counted: bool
    ) -> tuple[list[Changes[Request]], list[RequestId]]:
        """Return the changes of the oldest requests, and the ids that left this list."""
        fields_sent = _COUNTED_REQUEST if is_counted else _REQUEST
        known, now = self._requests, {}
        changes: list[Changes[Request]] = []
        for request in oldest:
            id = request["id"]
            before = known.get(id)
            if fields := fields_sent.different(request, before):
                changes.append(Changes({"id": id, **fields}))
            # What was passed over is sent later: so it has to be different from what is known.
            now[id] = request if fields or before is None else before
        self._requests = now
        return changes, [id for id in known if id not in now]


def _place(view: RequestView, sent: int | None, place_of: PlaceOf) -> int | None:
    """Return a waiting request's place: `sent`, or the present place if `sent` is `None`."""
    if view.state != "queued":
        return None
    return place_of(view.id) if sent is None else sent
