"""Adds up the parts of all other balancers, and adds the sums to this balancer's part."""

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeVar

from ...shared.inference import AgentId
from ..fleet.view import FleetTotals
from ..management.answer_types import ListedRequest, Request, Snapshot
from ..management.throughput import Throughput
from .answers import SUMMED, FleetAnswer, RequestsAnswer

R = TypeVar("R", Request, ListedRequest)
N = TypeVar("N", int, float)
K = TypeVar("K", bound=str)
V = TypeVar("V", bound=FleetTotals)


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """All other balancers as one: their queue, their requests and the slots that they took.

    `here` is this balancer's name, if there are others. `sums` are the others' totals, by the
    names used between balancers. `busy` are the slots that others took, by agent; `rates` and
    `tokens_per_second` are the others' rates. `requests` are their oldest requests, oldest first,
    each with the name of its balancer; ages are as of `at`, in seconds since 1970. `missing` are
    the names of the balancers that did not answer.
    """

    here: str | None = None
    at: float = 0.0
    sums: Mapping[str, Any] = field(default_factory=dict)
    busy: Mapping[AgentId, int] = field(default_factory=dict)
    tokens_per_second: float = 0.0
    rates: Mapping[AgentId, float] = field(default_factory=dict)
    requests: tuple[Request, ...] = ()
    missing: tuple[str, ...] = ()

    def totals(self, own: V) -> V:
        """Return the fleet in a few numbers, or its whole view, with the totals over all
        balancers.
        """
        if not self.sums:
            return own
        totals = {
            found.path[0]: _sum([found.of(own), self.sums[found.figure.summed]]) for found in SUMMED
        }
        return replace(own, **totals)

    def throughput(self, own: Throughput) -> Throughput:
        """Return the throughput over all balancers."""
        return replace(
            own,
            total=own.total + self.tokens_per_second,
            agents=_added(own.agents, self.rates),
        )

    def with_others(self, own: Iterable[Request], at: float, limit: int) -> Iterator[Request]:
        """Yield the oldest requests of all balancers, with their ages as of `at`.

        `own` are this balancer's requests.
        """
        if not self.requests:
            return iter(own)
        others = (_aged(request, at - self.at) for request in self.requests)
        return islice(heapq.merge(own, others, key=_youth), limit)

    def snapshot(self, own: Snapshot, limit: int) -> Snapshot:
        """Return agents and requests over all balancers. `own` has the totals, and is changed."""
        for agent in own["agents"]:
            agent["slots"]["busy"] += self.busy.get(agent["id"], 0)
        for request in own["requests"]:
            request["balancer"] = self.here
        own["requests"] = list(self.with_others(own["requests"], own["at"], limit))
        return own

    def changed_since(self, before: "Others") -> list[AgentId]:
        """Return the agents whose slots taken by others differ from `before`."""
        agents = {**before.busy, **self.busy}
        return [id for id in agents if before.busy.get(id, 0) != self.busy.get(id, 0)]


NO_OTHERS = Others()
"""The value without other balancers."""


def added_up(
    answers: Sequence[tuple[str, FleetAnswer]],
    *,
    here: str,
    at: float,
    limit: int,
    missing: Sequence[str],
) -> Others:
    """Return the joined answers of all other balancers, each with its name.

    The result has at most `limit` requests.
    """
    requests = (_marked(fleet["requests"], name) for name, fleet in answers)
    names = [found.figure.summed for found in SUMMED]
    return Others(
        here=here,
        at=at,
        sums={name: _sum([fleet.get(name) for _, fleet in answers]) for name in names},
        busy=_added(*(fleet["busy"] for _, fleet in answers)),
        tokens_per_second=sum(fleet["tokens_per_second"] for _, fleet in answers),
        rates=_added(*(fleet["rates"] for _, fleet in answers)),
        requests=tuple(islice(heapq.merge(*requests, key=_youth), limit)),
        missing=tuple(missing),
    )


def oldest(
    own: Iterable[ListedRequest], answers: Iterable[tuple[str, RequestsAnswer]], limit: int
) -> list[ListedRequest]:
    """Yield the oldest requests of all balancers; the answers are sorted and have names."""
    others = (_marked(found["requests"], name) for name, found in answers)
    return list(islice(heapq.merge(own, *others, key=_youth), limit))


def _marked(requests: list[R], balancer: str) -> list[R]:
    """Return requests after writing the name of their balancer into them."""
    for request in requests:
        request["balancer"] = balancer
    return requests


def _aged(request: Request, seconds: float) -> Request:
    waited = request["waited_seconds"]
    if request["state"] == "queued":
        waited += seconds
    aged = request["age_seconds"] + seconds
    return {**request, "age_seconds": round(aged, 3), "waited_seconds": round(waited, 3)}


def _youth(request: Request) -> float:
    return -request["age_seconds"]


def _sum(parts: Iterable[Any]) -> Any:
    """Return the sum of numbers, or of mappings to numbers; a missing number counts as 0."""
    parts = [part for part in parts if part is not None]
    mappings = [part for part in parts if isinstance(part, Mapping)]
    return _added(*mappings) if mappings else sum(parts)


def _added(*parts: Mapping[K, N]) -> dict[K, N]:
    total: dict[K, N] = {}
    for part in parts:
        for agent, number in part.items():
            total[agent] = total[agent] + number if agent in total else number
    return total
