"""Every answer that the fleet can give is one of the declared types."""

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args, get_type_hints

from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from arriero.balancer.fleet.runtime.outbox import AgentBacklog
from arriero.balancer.fleet.view import AgentView, SlotsView
from arriero.balancer.management import answer_types
from arriero.balancer.management.answer_types import Aside, fields_of, marked
from arriero.balancer.management.fleet_feed import FleetFeed
from arriero.balancer.management.metrics.fleet_collector import EventNumbers, FleetCollector
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
from arriero.shared.reports.figures import Clock, figures_of
from arriero.shared.reports.statistics import Statistics
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
    view = replace(BUSY, slots=SlotsView(total=4, busy=1), statistics=Statistics())
    return replace(view, **changed)


def changed_figures() -> Iterator[tuple[str, AgentView]]:
    """Each figure of an agent by name, and an agent where it is another."""
    plain = agent()
    for each in fields(plain):
        value = getattr(plain, each.name)
        if isinstance(value, SlotsView):
            for part in fields(value):
                other = replace(value, **{part.name: getattr(value, part.name) + 1})
                yield f"{each.name}.{part.name}", agent(**{each.name: other})
        elif isinstance(value, int | float):
            yield each.name, agent(**{each.name: value + 1})


def scraped(view: AgentView) -> bytes:
    metrics = Metrics()
    collector = FleetCollector(lambda: fleet_view(view), backlog=AgentBacklog, events=EventNumbers)
    metrics.registry.register(collector)
    own = (b"arriero_agent", b"arriero_slots")
    return b"\n".join(line for line in metrics.render("")[0].splitlines() if line.startswith(own))


IN_NO_METRIC = {
    "num_tokens": "arriero_tokens counts them, and arriero_agent_completion_tokens the engine's",
    "connected_seconds": "the series of an agent begin when it connects",
}
ON_NO_PAGE = {
    "throughput_tokens_per_second": "the plots show it as it is now",
}


class TestNoFigureIsForgotten:
    """Each test names the figures of an agent that are forgotten in its place."""

    def test_over_rest(self) -> None:
        plain = agent_json(agent(), None)
        hidden = {name for name, other in changed_figures() if agent_json(other, None) == plain}
        assert hidden == set()

    def test_in_the_metrics(self) -> None:
        plain = scraped(agent())
        hidden = {name for name, other in changed_figures() if scraped(other) == plain}
        assert hidden == IN_NO_METRIC.keys()

    def test_in_the_docs(self) -> None:
        docs = (ROOT / "docs" / "api" / "management.md").read_text()
        assert [
            name
            for name in _numbers(answer_types.Agent)
            if not re.search(rf"`(\w+\.)*{name}`", docs)
        ] == []

    def test_on_the_page(self) -> None:
        pages = "".join(file.read_text() for file in (ROOT / "dashboard").rglob("*.js"))
        shown = set(re.findall(r"\w+", pages))
        answered = {found.figure.name for found in figures_of(Statistics)} - {""}
        names = {part for name in answered for part in name.split(".")}
        names |= _numbers(answer_types.Agent)
        hidden = {name for name in names if name not in shown}
        assert hidden == ON_NO_PAGE.keys()

    def test_of_seconds_it_is_said_whether_they_go_on_by_themselves(self) -> None:
        for entry in (answer_types.Agent, answer_types.Request):
            marks = marked(entry, Clock, Aside)
            seconds = (name for name in fields_of(entry) if name.endswith("_seconds"))
            assert [name for name in seconds if name not in marks] == []


def _numbers(kind: object) -> set[str]:
    """The names of the numbers in a `TypedDict`, at any depth."""
    found: set[str] = set()
    hints = fields_of(kind) if isinstance(kind, type) else get_type_hints(kind)
    for name, field in hints.items():
        kinds = get_args(field) or (field,)
        if any(each in (int, float) for each in kinds):
            found.add(name)
        for each in kinds:
            if is_typeddict(each):
                found |= _numbers(each)
    return found
