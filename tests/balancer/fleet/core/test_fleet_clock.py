"""Deadlines, and the end of everything: an example for each race and rule."""

from collections.abc import Callable

import pytest

from arriero.balancer.fleet.decisions import (
    Decision,
    Disconnect,
    Refuse,
    Send,
)
from arriero.balancer.fleet.requests.live_requests import LEAST_PATIENCE
from arriero.shared.errors import Cancelled
from arriero.shared.messages import Goodbye, Reject
from tests.balancer.fleet.builders import (
    codes,
    ended,
    hello,
    piece,
    refused,
    sent,
    status,
)
from tests.balancer.fleet.core.scene import (
    A,
    B,
    Scene,
    cancel,
    failure,
    start,
    with_agent,
)

# ---- deadlines


def test_waiting_ends_at_the_deadline() -> None:
    scene = Scene()
    scene.open("r")
    assert scene.fleet.next_deadline() == scene.now + 30.0
    assert scene.after(29.9) == []
    assert failure(scene.after(0.1), "r").code == "queue_timeout"
    assert scene.fleet.next_deadline() is None


@pytest.mark.parametrize(
    "frees",
    [
        lambda scene: scene.say(A, ended("1")),
        lambda scene: scene.close("1"),
        lambda scene: scene.join(B, hello("b")),
        lambda scene: scene.fleet.agent_said(A, status(slots=2), scene.now),
    ],
)
def test_a_slot_that_frees_at_the_deadline_comes_too_late(
    frees: Callable[[Scene], list[Decision]],
) -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.say(A, piece("1"))
    for _ in range(6):
        scene.now += 5.0
        decisions = frees(scene) if scene.now == 130.0 else scene.say(A, piece("1"))
    assert failure(decisions, "2").code == "queue_timeout"
    assert start("2") not in sent(decisions)


def test_time_on_a_lost_agent_does_not_count_as_waiting() -> None:
    scene = Scene()
    scene.open("r")
    scene.after(25.0)
    scene.join(A, hello())
    scene.after(19.0)
    scene.leave(A)
    assert scene.after(4.9) == []
    assert failure(scene.after(0.1), "r").code == "queue_timeout"


def test_no_first_token() -> None:
    scene = with_agent()
    scene.open("1", "2")
    decisions = scene.after(20.0)
    assert failure(decisions, "1").code == "first_token_timeout"
    assert sent(decisions) == [cancel("1"), start("2")]


def test_silence_between_tokens_is_measured_from_the_last() -> None:
    scene = with_agent()
    scene.open("r")
    for _ in range(5):
        assert scene.after(9.0) == []
        scene.say(A, piece("r"))
    decisions = scene.after(10.0)
    assert failure(decisions, "r").code == "token_timeout"
    assert sent(decisions) == [cancel("r")]


def test_the_whole_request_has_its_time() -> None:
    scene = with_agent()
    scene.open("r")
    for _ in range(33):
        scene.after(9.0)
        scene.say(A, piece("r"))
    assert scene.after(2.9) == []
    assert failure(scene.after(0.1), "r").code == "request_timeout"


def test_next_deadline_is_never_late() -> None:
    scene = with_agent()
    scene.open("r")
    assert scene.fleet.next_deadline() == scene.now + LEAST_PATIENCE, "does the agent do anything?"
    assert scene.after(LEAST_PATIENCE) == [], "nobody else is there"
    scene.say(A, piece("r"))
    assert scene.fleet.next_deadline() == scene.now + LEAST_PATIENCE
    assert scene.after(LEAST_PATIENCE) == [], "its answer has begun"
    assert scene.fleet.next_deadline() == scene.now + 5.0, "ten seconds after the token"


# ---- heartbeats


def test_a_request_that_was_cancelled_before_all_of_it_was_sent_ends_as_cancelled() -> None:
    scene = with_agent()
    scene.open("r")
    assert scene.cancel("r") == [Send(A, cancel("r"))]
    decisions = scene.say(A, refused("r", Cancelled("cancelled before it started")))
    assert failure(decisions, "r") == Cancelled("cancelled before it started")
    assert scene.fleet.is_idle


# ---- the end


def test_draining_refuses_the_new_and_finishes_the_old() -> None:
    scene = with_agent()
    scene.open("1", "2")
    assert scene.drain(60.0) == []
    decisions = scene.open("3")
    assert isinstance(decisions[0], Refuse)
    assert decisions[0].error.code == "shutting_down"
    assert sent(scene.say(A, ended("1"))) == [start("2")]
    scene.say(A, ended("2"))
    assert scene.fleet.is_idle
    assert scene.fleet.next_deadline() == 100.0 + 1e6, "only the heartbeat is left"


def test_draining_does_not_wait_for_agents_that_may_never_come() -> None:
    scene = Scene()
    scene.open("r")
    assert failure(scene.drain(60.0), "r").code == "shutting_down"


def test_draining_ends_who_waits_when_the_last_agent_for_them_goes() -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.drain(60.0)
    decisions = scene.leave(A)
    assert codes(decisions) == {"1": "shutting_down", "2": "shutting_down"}


def test_the_drain_deadline_ends_the_rest() -> None:
    scene = with_agent()
    scene.open("1", "2")
    scene.drain(4.0)
    assert scene.fleet.next_deadline() == scene.now + 4.0
    decisions = scene.after(4.0)
    assert codes(decisions) == {"1": "shutting_down", "2": "shutting_down"}
    assert sent(decisions) == [cancel("1")]
    assert scene.fleet.is_idle


def test_goodbye_ends_everything_and_lets_nobody_in() -> None:
    scene = with_agent()
    scene.open("1", "2")
    decisions = scene.fleet.goodbye(scene.now)
    assert codes(decisions) == {"1": "shutting_down", "2": "shutting_down"}
    assert decisions[-2:] == [
        Send(A, Goodbye()),
        Disconnect(A, "the balancer is going down"),
    ]
    rejection = sent(scene.join(B, hello("b")))
    assert rejection == [Reject(reason="the balancer is going down", retry=True)]
    assert scene.fleet.next_deadline() is None
