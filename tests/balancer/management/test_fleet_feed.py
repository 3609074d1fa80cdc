"""Deltas say what is different, and nothing else."""

from collections.abc import Mapping
from dataclasses import replace

from arriero.balancer.fleet.view import AgentView, FleetView, RequestView, SlotsView
from arriero.balancer.management.answer_types import Delta
from arriero.balancer.management.fleet_feed import FleetFeed
from arriero.balancer.management.serializers import CLOCKS, agent_json, request_json
from arriero.balancer.management.throughput import Throughput
from arriero.shared.inference import AgentId, PriorityClass, RequestId
from tests.balancer.management.views import agent_view, delta_of, fleet_view, request_view

A = agent_view("a")
R = request_view("r")
NOWHERE: Mapping[RequestId, int] = {}
RATES = Throughput(seconds=1.0, agents={AgentId("id-a"): 3.0})


def feed_of(*agents: AgentView, requests: tuple[RequestView, ...] = ()) -> FleetFeed:
    feed = FleetFeed()
    feed.restart(
        [agent_json(agent, None) for agent in agents],
        [request_json(request, None) for request in requests],
    )
    advance(feed, fleet_view(*agents, requests=requests), changed=())
    return feed


def advance(
    feed: FleetFeed,
    view: FleetView,
    *,
    changed: tuple[AgentView, ...] | None = None,
    left: tuple[AgentId, ...] = (),
    at: float = 100.0,
    places: Mapping[RequestId, int] = NOWHERE,
    counts: bool = False,
) -> Delta | None:
    delta = delta_of(view, changed, left)
    return feed.advance(delta, view.requests, RATES, at, places.get, counts=counts)


def test_nothing_new_is_no_event() -> None:
    assert advance(feed_of(A), fleet_view(A)) is None


def test_totals_are_told_when_they_changed() -> None:
    waiting: dict[PriorityClass, int] = {"batch": 2, "default": 1, "interactive": 0}
    view = replace(fleet_view(A, queue_depth=3), waiting_by_class=waiting)
    delta = advance(feed_of(A), view)
    assert delta == {
        "at": 100.0,
        "is_draining": False,
        "queue": {"depth": 3, "limit": 256, "by_class": waiting},
        "slots": {"total": 4, "busy": 0},
        "tokens_total": 0,
        "moves_total": 0,
        "num_requests": 0,
    }


def test_a_new_agent_is_told_whole() -> None:
    delta = advance(feed_of(), fleet_view(A))
    assert delta is not None
    assert delta["agents"] == [agent_json(A, 3.0)]


def test_of_an_agent_that_changed_only_that_is_told_and_its_clocks() -> None:
    busy = replace(A, slots=SlotsView(total=4, busy=2), connected_seconds=20.0, num_tokens=7)
    delta = advance(feed_of(A), fleet_view(busy))
    assert delta is not None
    assert delta["agents"] == [
        {
            "id": "id-a",
            "slots": {"total": 4, "busy": 2},
            "throughput": {"tokens_total": 7, "tokens_per_second": 3.0},
            **{name: dict(agent_json(busy, None))[name] for name in CLOCKS["agents"]},
        }
    ]
    assert delta["agents"][0]["connected_seconds"] == 20.0
    assert advance(feed := feed_of(A), fleet_view(busy)) is not None
    assert advance(feed, fleet_view(busy)) is None


def test_tokens_alone_are_no_change_of_an_agent() -> None:
    delta = advance(feed_of(A), fleet_view(replace(A, num_tokens=7, connected_seconds=11.0)))
    assert delta is not None
    assert delta["tokens_total"] == 7
    assert "agents" not in delta


def test_an_agent_that_left_and_came_back_is_told_whole() -> None:
    again = replace(A, connected_seconds=0.5)
    delta = advance(feed_of(A), fleet_view(again))
    assert delta is not None
    assert delta["agents"] == [agent_json(again, 3.0)]


def test_only_agents_that_readers_know_are_told_to_have_left() -> None:
    left = (AgentId("id-a"), AgentId("id-b"))
    delta = advance(feed_of(A), fleet_view(), changed=(), left=left)
    assert delta is not None
    assert delta["agents_left"] == ["id-a"]


def test_requests_come_change_and_end() -> None:
    feed = feed_of(A)
    queued = replace(R, state="queued", agent=None, num_tokens=0)
    delta = advance(feed, fleet_view(A, requests=(queued,)))
    assert delta is not None and delta["requests"] == [request_json(queued, None)]
    delta = advance(feed, fleet_view(A, requests=(replace(R, age_seconds=9.0),)))
    assert delta is not None
    assert delta["requests"] == [
        {
            "id": "r",
            "state": "streaming",
            "agent": "id-a",
            "num_tokens": 7,
            "waited_seconds": 0.25,
            "age_seconds": 9.0,
        }
    ]
    delta = advance(feed, fleet_view(A))
    assert delta is not None and delta["requests_ended"] == ["r"]


def test_time_alone_is_no_change_of_a_request() -> None:
    feed = feed_of(A, requests=(R,))
    older = replace(R, waited_seconds=5.0, age_seconds=6.0)
    assert advance(feed, fleet_view(A, requests=(older,))) is None


def test_tokens_of_requests_are_told_once_a_second() -> None:
    feed = feed_of(requests=(R,))
    more = fleet_view(requests=(replace(R, num_tokens=8),))
    assert advance(feed, more, at=100.5) is None
    delta = advance(feed, more, at=101.0)
    assert delta is not None
    assert [each["num_tokens"] for each in delta["requests"]] == [8]
    assert advance(feed, more, at=102.0) is None
    # With whatever else is told of it, the tokens are, too.
    moved = fleet_view(requests=(replace(R, num_tokens=9, agent=AgentId("id-b")),))
    delta = advance(feed, moved, at=102.1)
    assert delta is not None
    assert [(each["agent"], each["num_tokens"]) for each in delta["requests"]] == [("id-b", 9)]


def test_one_that_moves_up_among_the_oldest_is_told_whole() -> None:
    first, second = request_view("1"), request_view("2")
    feed = feed_of(requests=(first,))
    delta = advance(feed, fleet_view(requests=(second,)))
    assert delta is not None
    assert delta["requests"] == [request_json(second, None)]
    assert delta["requests_ended"] == ["1"]


def queued(id: str) -> RequestView:
    return replace(request_view(id), state="queued", agent=None, num_tokens=0)


def told(delta: Delta | None) -> list[tuple[str, int | None]]:
    """The places that are told."""
    requests = [] if delta is None else delta.get("requests", [])
    return [(each["id"], each["position"]) for each in requests if "position" in each]


def test_a_place_is_told_with_the_request_and_then_once_a_second() -> None:
    feed, waiting = feed_of(), fleet_view(requests=(queued("1"), queued("2")))
    first = {RequestId("1"): 1, RequestId("2"): 2}
    later = {RequestId("1"): 2, RequestId("2"): 3}
    assert told(advance(feed, waiting, at=100.2, places=first)) == [("1", 1), ("2", 2)]
    assert advance(feed, waiting, at=100.9, places=later) is None
    assert feed.owes_counts
    assert told(advance(feed, waiting, at=101.0, places=later)) == [("1", 2), ("2", 3)]
    assert not feed.owes_counts


def test_places_are_asked_for_once_a_second() -> None:
    asked: list[str] = []

    def place_of(id: RequestId) -> int:
        asked.append(id)
        return 1

    feed, view = feed_of(), fleet_view(requests=(queued("1"), R))
    for tenth in range(21):
        feed.advance(delta_of(view), view.requests, RATES, 100.0 + tenth / 10, place_of)
    assert asked == ["1"] * 3


def test_who_starts_has_no_place_at_once_and_has_one_again_after_a_move() -> None:
    feed = feed_of()
    places = {RequestId("1"): 1}
    advance(feed, fleet_view(requests=(queued("1"),)), at=100.1, places=places)
    running = replace(queued("1"), state="assigned", agent=AgentId("id-a"))
    assert told(advance(feed, fleet_view(requests=(running,)), at=100.2)) == [("1", None)]
    again = fleet_view(requests=(replace(queued("1"), moves=1),))
    assert told(advance(feed, again, at=100.3, places=places)) == [("1", 1)]


def test_before_a_snapshot_all_is_told() -> None:
    feed = feed_of(requests=(R,))
    more = fleet_view(requests=(replace(R, num_tokens=8),))
    delta = advance(feed, more, at=100.1, counts=True)
    assert delta is not None and delta["requests"][0]["num_tokens"] == 8
    assert not feed.owes_counts


def test_whatever_changes_of_a_request_is_told() -> None:
    others: list[RequestView] = [
        replace(R, state="assigned"),
        replace(R, model="other"),
        replace(R, agent=AgentId("id-b")),
        replace(R, priority=7),
        replace(R, caller="other"),
        replace(R, moves=3),
    ]
    for other in others:
        delta = advance(feed_of(requests=(R,)), fleet_view(requests=(other,)), at=100.1)
        assert delta is not None and len(delta["requests"]) == 1, other
