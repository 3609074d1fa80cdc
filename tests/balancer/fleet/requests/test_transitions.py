"""How requests start, leave their agents and end."""

from arriero.balancer.fleet.caller import Caller
from arriero.balancer.fleet.change_log import ChangeLog
from arriero.balancer.fleet.decisions import Finish, LinkId, Moved, Refuse
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.registry import Registry
from arriero.balancer.fleet.requests.dispatch.needs import Needs
from arriero.balancer.fleet.requests.request_lifecycle import RequestLifecycle
from arriero.balancer.fleet.requests.requests import Requests
from arriero.balancer.fleet.requests.transitions import loss_of, offer_of, refuse
from arriero.shared.errors import QueueFull, RequestError, ShuttingDown
from arriero.shared.inference import RequestId
from arriero.shared.messages import Cancel, Start
from tests.balancer.fleet.builders import codes, hello, request, sent

LINK = LinkId(1)
ALICE, BOB = Caller(name="alice", owner="alice"), Caller(name="bob", owner="bob")


class Opened:
    """One agent of one slot, which `1` of Alice has; `2` of Bob and `3` of Alice wait."""

    def __init__(self) -> None:
        changes = ChangeLog()
        registry = Registry(Limits(), changes)
        self.requests = Requests(Limits(), registry, changes)
        self.agent = registry.joined(LINK, hello(slots=1, fingerprint="f"), 0.0)
        self.requests.agent_joined(self.agent, 0.0)
        for id, caller in (("1", ALICE), ("2", BOB), ("3", ALICE)):
            wanted = request(deadline_ms=5000, prompt_cache_key="batch 7")
            started = self.requests.admit(RequestId(id), wanted, caller, 0.0)
            assert sent(started) == ([] if id != "1" else [start("1")])

    def lifecycle(self, id: str) -> RequestLifecycle:
        found = self.requests.get(RequestId(id))
        assert found is not None
        return found


def start(id: str) -> Start:
    """Agents are not told of deadlines and cache keys that are for routing alone."""
    return Start(id=RequestId(id), request=request())


def test_the_next_starts_when_one_fails() -> None:
    opened = Opened()
    decisions = opened.requests.fail(opened.lifecycle("1"), RequestError("broken"), 1.0)
    assert sent(decisions) == [start("2")]
    opened.requests.check_integrity()


def test_ending_all_starts_nobody() -> None:
    opened = Opened()
    decisions = opened.requests.end_all(ShuttingDown("closing time"), 1.0)
    assert sent(decisions) == [Cancel(id=RequestId("1"))]
    assert codes(decisions) == dict.fromkeys(("1", "2", "3"), "shutting_down")
    assert len(opened.requests) == 0
    opened.requests.check_integrity()


def test_ending_a_callers_requests_leaves_the_others() -> None:
    opened = Opened()
    decisions = opened.requests.end_of("alice", ShuttingDown("no key"), 1.0)
    assert codes(decisions) == dict.fromkeys(("1", "3"), "shutting_down")
    assert sent(decisions) == [Cancel(id=RequestId("1")), start("2")]
    opened.requests.check_integrity()


def test_what_leaves_an_agent_moves_once_that_has_answered() -> None:
    opened = Opened()
    error = ShuttingDown("too late")
    opened.agent.is_cordoned = True
    assert opened.requests.agent_changed(opened.agent, 1.0) == []
    assert sent(opened.requests.move_from(LINK, error, 1.0)) == [Cancel(id=RequestId("1"))]
    assert opened.requests.move_from(LINK, error, 1.0) == [], "it is told once"
    left = opened.requests.let_go(opened.lifecycle("1"), 2.0)
    assert [each.reason for each in left if isinstance(each, Moved)] == ["drained"]
    assert opened.lifecycle("1").link is None
    opened.requests.check_integrity()


def test_a_lost_agents_request_ends_only_if_it_cannot_go_on() -> None:
    opened = Opened()
    lifecycle = opened.lifecycle("1")
    assert loss_of(lifecycle) is None
    opened.requests.cancel([lifecycle], 1.0)
    error = loss_of(lifecycle)
    assert error is not None
    assert error.code == "cancelled"


def test_a_refusal_is_told_and_recorded() -> None:
    opened = Opened()
    error = QueueFull("full")
    refused, finished = refuse(opened.lifecycle("2"), error, 1.0)
    assert refused == Refuse(RequestId("2"), error)
    assert isinstance(finished, Finish)


def test_an_offer_is_what_the_agent_says_of_itself() -> None:
    offer = offer_of(Opened().agent, Needs())
    assert (offer.model, offer.slots, offer.fingerprint) == ("llama", 1, "f")
    assert offer.cache_tokens == 2048
