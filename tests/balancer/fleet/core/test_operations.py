"""What operators do, and what other balancers tell: an example for each."""

import pytest

from arriero.balancer.control.demand import Demand
from arriero.balancer.control.order_numbers import VERSIONS
from arriero.balancer.fleet.decisions import Send
from arriero.balancer.fleet.view import Cordon, ToldCordon
from arriero.shared.errors import NotFound
from arriero.shared.inference import AgentId, RequestId
from arriero.shared.models.assignments import Assign
from arriero.shared.reports.statistics import Statistics
from tests.balancer.fleet.builders import hello, sent, status, work
from tests.balancer.fleet.core.scene import A, B, Scene, start, with_agent
from tests.balancer.fleet.core.test_steering import FILE, LOOK_PAUSE, Steered, wished

NOBODY = AgentId("nobody")
READ = RequestId("read")


def test_an_agent_that_is_not_here_is_named() -> None:
    fleet = Scene().fleet
    for ask in (
        lambda: fleet.cordon(NOBODY, None, 0.0),
        lambda: fleet.resume(NOBODY, 0.0),
        lambda: fleet.reload(NOBODY, 1.0, 0.0),
        lambda: fleet.read_log(READ, NOBODY, 0, 0.0),
    ):
        with pytest.raises(NotFound, match="`nobody`"):
            ask()


def test_a_cordoned_agent_gets_nothing_until_it_is_resumed() -> None:
    scene = with_agent()
    scene.fleet.cordon(AgentId("a1"), None, scene.now)
    assert sent(scene.open("r")) == []
    assert sent(scene.fleet.resume(AgentId("a1"), scene.now)) == [start("r")]


# ---- several balancers: who leads tells agents what to serve, the others look on


def following() -> Steered:
    scene = Steered()
    scene.fleet.follow()
    scene.join_idle(A, "a")
    scene.wish(wished())
    return scene


def test_who_follows_tells_nothing_and_shows_the_same() -> None:
    scene = following()
    assert scene.look() == {}
    assert scene.fleet.statuses()["llama"].status == "waiting"
    scene.serve(A, wished().assignment, VERSIONS + 1)
    assert scene.look() == {}
    assert scene.fleet.statuses()["llama"].status == "loaded"


def test_who_leads_numbers_orders_by_its_epoch() -> None:
    scene = following()
    scene.fleet.lead(3, scene.now)
    scene.now += LOOK_PAUSE
    [told] = [
        each.message
        for each in scene.fleet.tick(scene.now)
        if isinstance(each, Send) and isinstance(each.message, Assign)
    ]
    assert told.revision == 3 * VERSIONS + 1


def test_who_is_made_leader_repeats_nothing() -> None:
    scene = following()
    scene.serve(A, wished().assignment, VERSIONS + 1)
    scene.fleet.lead(2, scene.now)
    assert scene.look() == {}


def test_who_was_leader_is_silent_once_an_agent_knows_a_later_one() -> None:
    scene = following()
    scene.fleet.lead(2, scene.now)
    scene.serve(A, wished().assignment, 3 * VERSIONS + 1)
    scene.look()
    assert scene.fleet.outbid == 3
    scene.join_idle(B, "b")
    assert scene.look() == {}
    scene.fleet.lead(4, scene.now)
    assert scene.look() == {B: FILE}


def test_requests_at_other_balancers_have_a_model_loaded() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished(preload=False))
    assert scene.look() == {}
    scene.fleet.others(2, {"llama": Demand(1, scene.now)}, scene.now)
    assert scene.look() == {A: FILE}


def test_what_waits_here_is_told_without_what_others_told() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished(preload=False))
    scene.fleet.others(2, {"llama": Demand(5, scene.now)}, scene.now)
    scene.open("r")
    assert scene.fleet.waiting_by_model() == {"llama": Demand(1, scene.now)}


def test_a_model_that_works_for_other_balancers_is_not_unloaded() -> None:
    scene = Steered()
    scene.join(A, hello("a", model=None, slots=0))
    model = wished(preload=False, idle_timeout=10.0)
    scene.wish(model)
    scene.open("r")
    assert scene.look() == {A: FILE}
    scene.serve(A, model.assignment, 1)
    scene.fleet.close("r", scene.now)  # type: ignore[arg-type]
    for running in (1, 0):
        scene.now += 9.0
        scene.fleet.agent_said(A, Statistics(num_running=running), scene.now)
        assert scene.look() == {}
    scene.now += 1.0
    assert scene.look() == {}, "the last look at work was a moment ago"
    scene.now += 10.0
    assert scene.look() == {A: None}


def test_an_operator_at_another_balancer_may_have_it_tried_again() -> None:
    scene = Steered()
    scene.join_idle(A, "a")
    scene.wish(wished())
    assert scene.look() == {A: FILE}
    failed = work("failed", wished().assignment, revision=1)
    scene.tell(A, status(model=None, slots=0, work=failed))
    assert scene.look() == {}
    scene.fleet.retry_agent(AgentId("nobody"), scene.now)
    assert scene.look() == {}
    scene.fleet.retry_agent(AgentId("a"), scene.now)
    assert scene.look() == {A: FILE}


def test_cordons_are_as_other_balancers_want_them() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    scene.fleet.take_up_cordons([ToldCordon(Cordon(AgentId("a"), "a"))], scene.now)
    assert scene.state_of("a") == "drained"
    scene.fleet.take_up_cordons([ToldCordon(Cordon(AgentId("a"), "a"))], scene.now)
    assert scene.state_of("a") == "drained"
    scene.fleet.take_up_cordons([], scene.now)
    assert scene.state_of("a") == "ready"


def test_a_deadline_of_another_balancers_drain_is_met_here_until_it_is_taken_back() -> None:
    scene = Steered()
    scene.join(A, hello("a"))
    cordon = Cordon(AgentId("a"), "a")
    for within, deadline in ((5.0, scene.now + 5.0), (9.0, scene.now + 9.0), (None, None)):
        scene.fleet.take_up_cordons([ToldCordon(cordon, within)], scene.now)
        assert scene.fleet._steering.cordons.next_deadline() == deadline


def test_a_cordon_of_an_agent_that_has_started_again_since() -> None:
    scene = Steered()
    scene.join(A, hello("new"))
    name = scene.fleet.agent(AgentId("new"), scene.now).name  # type: ignore[union-attr]
    scene.fleet.take_up_cordons([ToldCordon(Cordon(AgentId("old"), name))], scene.now)
    assert scene.state_of("new") == "drained"
    scene.fleet.take_up_cordons([ToldCordon(Cordon(AgentId("old"), name))], scene.now)
    assert scene.state_of("new") == "drained"


def test_a_cordon_of_an_agent_that_is_not_here_waits_for_it() -> None:
    scene = Steered()
    scene.fleet.take_up_cordons([ToldCordon(Cordon(AgentId("a"), "x"))], scene.now)
    scene.join(A, hello("a"))
    assert scene.state_of("a") == "drained"
