"""Every answer that the fleet can give is one of the declared types."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from arriero.balancer.fleet.runtime.outbox import Backlog
from arriero.balancer.fleet.view import AgentView, SlotsView
from arriero.balancer.management import answer_types
from arriero.balancer.management.answer_types import Aside, Clock, marked
from arriero.balancer.management.fleet_feed import FleetFeed
from arriero.balancer.management.metrics.fleet_collector import EventNumbers
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.management.serializers import (
    agent_json,
    dumps,
    snapshot_json,
    throughput_json,
)
from arriero.balancer.management.throughput import Throughput
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.messages import Issue
from arriero.shared.reports.statistics import Cells, DiskUse, Fetches, Histogram, Statistics
from tests.balancer.management.views import agent_view, delta_of, fleet_view, request_view

ROOT = Path(__file__).parents[3]
BUSY = agent_view("a", issues=(Issue(code="x", message="y"),), statistics=Statistics())
VIEW = fleet_view(BUSY, agent_view("b", model=None), requests=(request_view("r"),))
PLACES = {RequestId("r"): 1}
RATES = Throughput(seconds=1.0, total=2.0, agents={AgentId("id-a"): 2.0})


def test_a_snapshot() -> None:
    body = dumps(snapshot_json(VIEW, RATES, 0.0, PLACES.get))
    TypeAdapter(answer_types.Snapshot).validate_json(body, extra="forbid")


def test_a_delta() -> None:
    delta = FleetFeed().advance(delta_of(VIEW), VIEW.requests, RATES, 0.0, PLACES.get)
    TypeAdapter(answer_types.Delta).validate_json(dumps(delta), extra="forbid")


def test_a_point() -> None:
    body = dumps(throughput_json(VIEW, RATES))
    TypeAdapter(answer_types.ThroughputPoint).validate_json(body, extra="forbid")


def agent(**changed: Any) -> AgentView:
    """An agent with statistics of all kinds; `changed` are fields of it or of those."""
    said = Statistics(
        fetches=Fetches(),
        disk=DiskUse(),
        stalls=Histogram(bounds=(1.0,), counts=(1, 1), seconds=1.0),
    )
    unset = {each.name: 1 for each in fields(said) if getattr(said, each.name) is None}
    said = replace(said, **unset)  # type: ignore[arg-type]
    own = {each.name for each in fields(AgentView)}
    statistics = replace(said, **{name: one for name, one in changed.items() if name not in own})
    view = replace(BUSY, slots=SlotsView(total=4, busy=1), statistics=statistics)
    return replace(view, **{name: one for name, one in changed.items() if name in own})


def changed_figures() -> Iterator[tuple[str, AgentView]]:
    """Each figure of an agent and of its engine by name, and an agent where it is another."""
    plain = agent()
    for owner in (plain, plain.statistics):
        for each in fields(owner):  # type: ignore[arg-type]
            value = getattr(owner, each.name)
            if isinstance(value, SlotsView | Cells | DiskUse | Fetches | Histogram):
                for part in fields(value):
                    if (other := _other(getattr(value, part.name))) is not None:
                        name = f"{each.name}.{part.name}"
                        yield name, agent(**{each.name: replace(value, **{part.name: other})})
            elif (other := _other(value)) is not None:
                yield each.name, agent(**{each.name: other})


def _other(value: object) -> object:
    if isinstance(value, tuple) and all(isinstance(each, int | float) for each in value):
        return tuple(each + 1 for each in value) or None
    return value + 1 if isinstance(value, int | float) else None


def scraped(view: AgentView) -> bytes:
    metrics = Metrics()
    metrics.collect_fleet(lambda: fleet_view(view), backlog=Backlog, events=EventNumbers)
    own = (b"arriero_agent", b"arriero_slots")
    return b"\n".join(line for line in metrics.render("")[0].splitlines() if line.startswith(own))


FOR_METRICS_ALONE = {
    *("num_grammars", "num_embedding_cells", "num_draft_cells", "num_media_bytes", "num_commands"),
    *("decode_tokens", "decode_seconds", "prefill_tokens", "prefill_seconds"),
    *(f"fetches.{each}" for each in ("num", "failed", "tokens", "bytes", "seconds", "lent")),
    *(f"disk.{each}" for each in ("blocks", "cells", "keys", "read", "written")),
    *("disk.failed_reads", "disk.failed_writes"),
    "stalls.bounds",
}
"""Figures that only a series over time makes something of."""

IN_NO_METRIC = {
    "num_tokens": "arriero_tokens counts them, and arriero_agent_completion_tokens the engine's",
    "connected_seconds": "the series of an agent begin when it connects",
    "tokens_per_second": "arriero_agent_completion_tokens has it as its rate",
    "fetches.bytes": "arriero_agent_prefix_fetched_tokens tells how much came",
    "fetches.seconds": "the agents' logs tell how long one took",
}
ON_NO_PAGE = {
    "throughput_tokens_per_second": "the plots show it as it is now",
}


class TestNoFigureIsForgotten:
    """Each test names the figures of an agent that are forgotten in its place."""

    def test_over_rest(self) -> None:
        plain = agent_json(agent(), None)
        hidden = {name for name, other in changed_figures() if agent_json(other, None) == plain}
        assert hidden == FOR_METRICS_ALONE

    def test_in_the_metrics(self) -> None:
        plain = scraped(agent())
        hidden = {name for name, other in changed_figures() if scraped(other) == plain}
        assert hidden == IN_NO_METRIC.keys()

    def test_in_the_docs(self) -> None:
        docs = (ROOT / "docs" / "api.md").read_text()
        assert [name for name in _numbers(answer_types.Agent) if f"`{name}`" not in docs] == []

    def test_on_the_page(self) -> None:
        pages = "".join(file.read_text() for file in (ROOT / "dashboard").rglob("*.js"))
        shown = set(re.findall(r"\w+", pages))
        hidden = {name for name in _numbers(answer_types.Agent) if name not in shown}
        assert hidden == ON_NO_PAGE.keys()

    def test_of_seconds_it_is_said_whether_they_go_on_by_themselves(self) -> None:
        for entry in (answer_types.Agent, answer_types.Request):
            marks = marked(entry, Clock, Aside)
            seconds = (name for name in entry.__annotations__ if name.endswith("_seconds"))
            assert [name for name in seconds if name not in marks] == []


def _numbers(kind: object) -> set[str]:
    """The names of the numbers in a `TypedDict`, at any depth."""
    found: set[str] = set()
    for name, field in get_type_hints(kind).items():
        kinds = get_args(field) or (field,)
        if any(each in (int, float) for each in kinds):
            found.add(name)
        for each in kinds:
            if is_typeddict(each):
                found |= _numbers(each)
    return found
