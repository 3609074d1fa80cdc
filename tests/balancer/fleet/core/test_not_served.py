"""Requests that no agent serves hear why: while they wait, and when the time to wait is over."""

from dataclasses import replace

import pytest

from arriero.balancer.control.demand import MIN_TURN
from arriero.balancer.fleet.decisions import Decision, Deliver, Send, Settle
from arriero.balancer.fleet.queries.query import QueryRequest
from arriero.shared.inference import AgentId, Done, RequestId, Waiting
from arriero.shared.messages import Cancel, Hello, Issue
from arriero.shared.models.assignments import Assign, HostFacts, Phase
from arriero.shared.queries import Tokenize
from tests.balancer.fleet.builders import ended, hello, model_info, piece, status, work
from tests.balancer.fleet.core.scene import A, B, failure
from tests.balancer.fleet.core.test_steering import Steered, started, wished

PINNED = HostFacts(is_pinned=True)


def pinned(id: str = "a", *, model: str = "first", slots: int = 1) -> Hello:
    return hello(id, model=model, slots=slots, facts=PINNED)


def reason(scene: Steered, model: str | None) -> str:
    """Why a request for it ends when the time to wait is over; and what it hears meanwhile."""
    scene.open("r", model=model, tell_waiting=1.0)
    [told] = [each for each in scene.after(1.0) if isinstance(each, Deliver)]
    assert isinstance(told.event, Waiting)
    error = failure(scene.after(29.0), "r")
    assert (error.code, error.status) == ("queue_timeout", 504)
    words, _, last = error.message.partition(": ")
    assert words.endswith(" for 30 s")
    assert (told.event.what, told.event.reason) == ("model", last)
    return last


def test_without_an_agent() -> None:
    assert reason(Steered(), None) == "no agent is connected"
    scene = Steered()
    scene.wish(wished("second"))
    assert reason(scene, "second") == "no agent is connected"


def test_a_desired_model_that_no_agent_may_load() -> None:
    scene = Steered()
    scene.join(A, pinned())
    scene.wish(wished("second"))
    scene.look()
    said = "no agent that takes models is connected yet; start an agent without --model"
    assert reason(scene, "second") == said


def test_the_message_names_the_model() -> None:
    scene = Steered()
    scene.wish(wished("second"))
    scene.open("r", model="second")
    assert failure(scene.after(30.0), "r").message == (
        "no agent served the model `second` for 30 s: no agent is connected"
    )


def test_a_desired_model_without_replicas() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished("second", replicas=0))
    scene.look()
    assert reason(scene, "second") == "the desired state says 0 replicas of `second`"


def test_a_model_that_is_being_loaded() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    model = wished("second")
    scene.wish(model)
    scene.look()
    fetching = work("fetching", model.assignment, revision=1)
    scene.tell(A, status(model=None, slots=0, work=fetching))
    assert reason(scene, "second") == "agent host-a is still loading the model"


def test_the_error_says_how_far_the_loading_is() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    model = wished("second")
    scene.wish(model)
    scene.look()
    scene.open("r", model="second")
    fetching = work("fetching", model.assignment, revision=1)
    for share in (0.1, 0.2, 0.3):
        told = replace(fetching, progress=share)
        scene.tell(A, status(model=None, slots=0, work=told))
        scene.after(9.5)
    assert failure(scene.after(1.5), "r").message == (
        "no agent served the model `second` for 30 s: agent host-a is still loading the model: "
        "30% of the download is done, about 106 s are left"
    )
    scene.open("r", model="second")
    loading = work("loading", model.assignment, revision=1)
    scene.tell(A, status(model=None, slots=0, work=replace(loading, progress=0.5)))
    message = failure(scene.after(30.0), "r").message
    assert ": agent host-a is still loading the model: 50% of the loading is done" in message


def test_an_engine_that_crashes_again_and_again() -> None:
    scene = Steered()
    crash = Issue(code="engine_crashed", message="the engine process ended with exit code 1")
    standby = hello("a", model=None, slots=0, facts=PINNED)
    scene.join(A, replace(standby, loading=model_info("first")))
    scene.tell(A, status(model=None, slots=0, issues=(crash,)))
    assert reason(scene, "first") == f"agent host-a is still loading the model ({crash.message})"


def test_a_model_whose_agents_are_drained() -> None:
    scene = Steered()
    scene.join(A, pinned())
    scene.fleet.cordon(AgentId("a"), None, scene.now)
    assert reason(scene, "first") == "agent host-a is drained (`arriero agents resume NAME`)"
    assert reason(scene, None) == "agent host-a is drained (`arriero agents resume NAME`)"


def test_a_model_whose_agents_are_going_down() -> None:
    scene = Steered()
    for link, id in ((A, "a"), (B, "b")):
        scene.join(link, pinned(id))
        scene.tell(link, status(model="first", accepting=False))
    assert reason(scene, "first") == "agents host-a, host-b are shutting down"


def test_a_model_whose_agents_have_gone() -> None:
    scene = Steered()
    scene.join(A, pinned())
    scene.join(B, pinned("b", model="other"))
    scene.leave(A)
    assert reason(scene, "first") == "no connected agent serves the model"


def test_agents_without_a_model() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    assert reason(scene, None) == "agent host-a is without a model"
    scene.tell(A, status(model=None, slots=0, issues=(Issue(code="x", message="no disk"),)))
    assert reason(scene, None) == "no disk"


def test_with_an_agent_the_wait_is_for_a_slot() -> None:
    scene = Steered()
    scene.join(A, pinned())
    scene.open("runs", model="first")
    scene.say(A, piece("runs"))
    scene.open("waits", model="first")
    for _ in range(3):
        scene.after(9.0)
        scene.say(A, piece("runs"))
    assert failure(scene.after(3.0), "waits").message == "no slot was free for 30 s"


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (None, "no agent served a model for 30 s: no agent is connected"),
        ("second", "no agent served the model `second` for 30 s: no agent is connected"),
    ],
)
def test_a_query(model: str | None, message: str) -> None:
    scene = Steered()
    scene.wish(wished("second"))
    query = QueryRequest(kind="text", parts=(Tokenize(text="x"),), model=model)
    scene.fleet.query_arrived(RequestId("q"), query, scene.now)
    [settled] = [each for each in scene.after(30.0) if isinstance(each, Settle)]
    assert str(settled.outcome) == message


def test_a_model_that_waits_for_memory_and_one_that_is_busy() -> None:
    """The busy one has its turn, then takes nothing new, and what it runs is finished first."""
    scene = Steered()
    busy = wished("busy", preload=False)
    second = wished("second", "file:///2", preload=False)
    facts = HostFacts(memory=100)
    for link, id in ((A, "a"), (B, "b")):
        scene.join(link, replace(hello(id, model=None, slots=0, facts=facts), host=AgentId("h")))
    scene.wish(busy, second)
    scene.open("long", model="busy")
    assert scene.look() == {A: busy.source}
    serving = replace(work("serving", busy.assignment, revision=1), needed=90)
    scene.tell(A, status(model="busy", slots=3, work=serving))
    scene.open("waits", model="second")
    turn_over = False

    def goes_on(seconds: int) -> list[Decision]:
        """Meanwhile `long` runs, and the agents do what they can."""
        nonlocal turn_over
        decisions: list[Decision] = []
        for _ in range(seconds):
            scene.say(A, piece("long"))
            for each in scene.after(1.0):
                decisions.append(each)
                if not (isinstance(each, Send) and isinstance(each.message, Assign)):
                    continue
                order = each.message
                phase: Phase = "waiting" if order.assignment is None else "draining"
                told = replace(work(phase, order.assignment, revision=order.revision), needed=50)
                if each.link == A:
                    turn_over = True
                    scene.tell(A, status(model="busy", slots=3, accepting=False, work=told))
                else:
                    scene.tell(B, status(model=None, slots=0, work=told))
        return decisions

    during = goes_on(int(MIN_TURN) - 1)
    assert not turn_over and cancels(during) == []
    assert started(scene.open("inside", model="busy")) == [(A, "inside")]
    after = goes_on(3)
    assert turn_over and cancels(after) == []
    assert started(scene.open("late", model="busy")) == []
    last = goes_on(10)
    assert failure(last, "waits").message == (
        "no agent served the model `second` for 30 s: agent host-a has no memory for the model "
        "while it serves `busy`"
    )
    assert cancels(last) == [], "what runs is finished, however long others wait"
    scene.say(A, ended("inside"))
    [done] = [
        each
        for each in scene.say(A, ended("long"))
        if isinstance(each, Deliver) and isinstance(each.event, Done)
    ]
    assert done.request == "long"


def cancels(decisions: list[Decision]) -> list[Send]:
    sends = [each for each in decisions if isinstance(each, Send)]
    return [each for each in sends if isinstance(each.message, Cancel)]
