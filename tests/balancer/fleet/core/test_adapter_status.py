"""How a desired adapter is, by what the agents of its model say."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from arriero.balancer.control.desired_state import DesiredModel
from arriero.balancer.control.model_status import ModelStatus, Status
from arriero.balancer.fleet.core.adapter_status import AdapterStatus, status_of_adapter
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.registry import Agent
from arriero.shared.framing.heartbeat import HeartbeatMonitor
from arriero.shared.inference import AgentId
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assignment, DesiredAdapter, Phase
from tests.balancer.fleet.builders import hello, status, work

BAD, GOOD = (DesiredAdapter(name=one, source=f"file:///{one}.gguf") for one in ("bad", "good"))
MODEL = DesiredModel(name="llama", source="file:///llama.gguf", adapters=(BAD, GOOD))
OTHER = Issue(code="adapter", message="it is gone", adapter="good")
UNREADABLE = Issue(code="adapter", message="it is broken", adapter="bad")
BASE = ModelStatus(model=MODEL, status="loaded", issues=(UNREADABLE,))
HAPPY = replace(BASE, issues=())


def agent(
    *adapters: str,
    id: str = "a",
    phase: Phase | None = "failed",
    told: Assignment = MODEL.assignment,
    issues: Sequence[Issue] = (OTHER, UNREADABLE),
) -> Agent:
    """Has the model with these adapters; without a `phase` it is a model of its own."""
    one = Agent(
        LinkId(1), hello(id), 1, None, 0.0, HeartbeatMonitor(0.0, interval=1.0, timeout=5.0)
    )
    said = status(
        model="llama",
        work=None if phase is None else work(phase, told, revision=1),
        issues=tuple(issues),
    )
    assert said.model is not None
    one.changed(replace(said, model=replace(said.model, adapters=adapters)))
    return one


def left_out(*agents: Agent, base: ModelStatus = BASE) -> dict[str, Issue]:
    """Those that cannot be had, which is what fails."""
    found = {each.name: status_of_adapter(each, base, agents) for each in MODEL.adapters}
    reasons = {name: each.left_out for name, each in found.items() if each.left_out is not None}
    failed = {name for name, each in found.items() if each.status.status == "failed"}
    assert reasons.keys() == failed
    return reasons


def bad(*agents: Agent, base: ModelStatus = HAPPY) -> tuple[Status, list[str]]:
    found = status_of_adapter(BAD, base, agents).status
    return found.status, list(found.agents)


def test_one_that_all_agents_failed_to_get_is_left_out_with_its_reason() -> None:
    assert left_out(agent("good"), agent("good")) == {"bad": UNREADABLE}
    assert left_out(agent("good", issues=(OTHER,))) == {"bad": OTHER}, "the best there is"
    assert left_out(agent()) == {"bad": UNREADABLE, "good": OTHER}


def test_what_cannot_be_had_has_an_issue_even_if_that_is_of_another_adapter() -> None:
    found = status_of_adapter(GOOD, BASE, [agent(issues=(UNREADABLE,))])
    assert found.status.issues == (found.left_out,) == (UNREADABLE,)


def test_one_that_an_agent_has_is_loaded() -> None:
    assert left_out(agent("good"), agent("bad", "good")) == {}
    several = agent("good", id="a"), agent("bad", id="b"), agent(id="c", phase="fetching")
    assert bad(*several) == ("loaded", ["b", "c"])


@pytest.mark.parametrize("phase", ["fetching", "loading", "draining", "serving"])
def test_one_that_an_agent_is_told_and_does_not_have_is_loading(phase: Phase) -> None:
    here = agent("good", id="a"), agent("good", id="b", phase=phase)
    assert left_out(*here) == {}
    assert bad(*here) == ("loading", ["b"])
    found = status_of_adapter(BAD, BASE, here).status
    assert (found.hosts, found.issues) == ((AgentId("b"),), (UNREADABLE,))


def test_one_of_which_no_agent_was_told_yet_waits() -> None:
    before = replace(MODEL.assignment, adapters=(GOOD, replace(BAD, scale=0.5)))
    here = agent("good", told=before)
    assert left_out(here) == {}
    assert bad(here) == bad(agent("good", told=before, phase="serving")) == ("waiting", [])
    assert bad(here, agent()) == ("waiting", []), "one has yet to try"


def test_an_agent_with_a_model_of_its_own_brings_nothing() -> None:
    assert left_out(agent("good"), agent(phase=None)) == {"bad": UNREADABLE}
    assert bad(agent(phase=None), base=BASE) == ("waiting", []), "nobody failed"
    assert bad(agent("bad", phase=None)) == ("loaded", ["a"])


@pytest.mark.parametrize("status", ["loading", "waiting", "failed", "unloaded"])
def test_while_the_model_is_not_loaded_its_adapters_are_as_it_is(status: Status) -> None:
    base = replace(BASE, status=status, agents=(AgentId("z"),), progress=0.5)
    assert status_of_adapter(BAD, base, [agent("good")]) == AdapterStatus(base)
    assert status_of_adapter(GOOD, base, []) == AdapterStatus(replace(base, issues=()))


def test_what_failed_under_an_older_order_is_tried_again() -> None:
    assert left_out(agent("good"), base=HAPPY) == {}
    assert bad(agent("good")) == ("waiting", [])
