"""What the end of one request means for the others."""

from arriero.balancer.fleet.caller import ANONYMOUS
from arriero.balancer.fleet.change_log import ChangeLog
from arriero.balancer.fleet.decisions import LinkId, Send
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.registry import Registry
from arriero.balancer.fleet.requests.requests import Requests
from arriero.shared.errors import EngineFailed, ShuttingDown
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.messages import Cancel, Start
from arriero.shared.reports.statistics import Cells, Statistics
from tests.balancer.fleet.builders import codes, ended, hello, request, sent

LINK = LinkId(1)


def requests_with_agent(slots: int = 1) -> tuple[Requests, Registry]:
    changes = ChangeLog()
    registry = Registry(Limits(), changes)
    requests = Requests(Limits(), registry, changes)
    requests.agent_joined(registry.joined(LINK, hello(slots=slots), 0.0), 0.0)
    return requests, registry


def start(id: str) -> Start:
    return Start(id=RequestId(id), request=request())


def test_the_next_starts_right_after_the_end_is_told() -> None:
    requests, _ = requests_with_agent()
    assert sent(requests.admit(RequestId("1"), request(), ANONYMOUS, 0.0)) == [start("1")]
    assert requests.admit(RequestId("2"), request(), ANONYMOUS, 0.0) == []
    first = requests.get(RequestId("1"))
    assert first is not None
    decisions = requests.fail(first, EngineFailed("broken"), 1.0)
    assert codes(decisions) == {"1": "engine_failed"}
    assert sent(decisions) == [start("2")]
    requests.check_integrity()


def test_ending_all_starts_nobody() -> None:
    requests, _ = requests_with_agent()
    for id in ("1", "2", "3"):
        requests.admit(RequestId(id), request(), ANONYMOUS, 0.0)
    decisions = requests.end_all(ShuttingDown("closing time"), 1.0)
    assert sent(decisions) == [Cancel(id=RequestId("1"))]
    assert codes(decisions) == dict.fromkeys(("1", "2", "3"), "shutting_down")
    assert len(requests) == 0
    requests.check_integrity()


def test_those_that_wait_time_out_before_a_slot_of_the_same_moment_is_theirs() -> None:
    limits = Limits(buffered_request_timeout=5.0, first_token_timeout=5.0)
    changes = ChangeLog()
    registry = Registry(limits, changes)
    requests = Requests(limits, registry, changes)
    requests.agent_joined(registry.joined(LINK, hello(slots=1), 0.0), 0.0)
    for id in ("1", "2"):
        requests.admit(RequestId(id), request(), ANONYMOUS, 0.0)
    decisions = requests.due(5.0)
    assert codes(decisions) == {"1": "first_token_timeout", "2": "queue_timeout"}
    assert sent(decisions) == [Cancel(id=RequestId("1"))]


def test_views_are_oldest_first_and_name_the_agent_by_id() -> None:
    requests, _ = requests_with_agent()
    for id in ("1", "2"):
        requests.admit(RequestId(id), request(), ANONYMOUS, 0.0)
    views = list(requests.views(1.0))
    assert [(view.id, view.state, view.agent) for view in views] == [
        ("1", "assigned", "a1"),
        ("2", "queued", None),
    ]


LONG = GenerateRequest(prompt="A conversation that was long. " * 400)
OTHER = LinkId(2)


def requests_with_one_warm() -> Requests:
    """The one slot of `LINK` is taken by a request with the prefix; `OTHER` is idle."""
    requests, registry = requests_with_agent()
    registry[LINK].statistics = Statistics(cells=Cells(total=100_000))
    requests.measured(registry[LINK])
    requests.admit(RequestId("1"), LONG, ANONYMOUS, 0.0)
    requests.agent_joined(registry.joined(OTHER, hello("a2", slots=1), 0.0), 0.0)
    return requests


def test_who_waits_for_one_agent_takes_another_when_that_has_cost_enough() -> None:
    requests = requests_with_one_warm()
    assert requests.admit(RequestId("2"), LONG, ANONYMOUS, 0.0) == []
    until = requests.next_deadline()
    assert until is not None
    assert 0 < until <= Limits().buffered_request_timeout / 2
    assert requests.due(until - 0.01) == []
    requests.check_integrity()
    assert requests.due(until) == [Send(OTHER, Start(id=RequestId("2"), request=LONG))]
    assert requests.next_deadline() != until
    requests.check_integrity()


def test_who_waited_for_one_agent_and_got_it_waits_no_more() -> None:
    requests = requests_with_one_warm()
    requests.admit(RequestId("2"), LONG, ANONYMOUS, 0.0)
    until = requests.next_deadline()
    first = requests.get(RequestId("1"))
    assert first is not None
    [start] = sent(requests.done(first, ended("1"), 0.5))
    assert start == Start(id=RequestId("2"), request=LONG)
    assert requests.next_deadline() != until
    requests.check_integrity()


def test_by_load_nobody_waits_for_one_agent() -> None:
    limits = Limits(routing="load")
    changes = ChangeLog()
    registry = Registry(limits, changes)
    requests = Requests(limits, registry, changes)
    for link in (LINK, OTHER):
        requests.agent_joined(registry.joined(link, hello(f"a{link}", slots=1), 0.0), 0.0)
    for id in ("1", "2"):
        assert sent(requests.admit(RequestId(id), LONG, ANONYMOUS, 0.0))
    assert requests.dispatch.running_on(OTHER) == ["2"]
