"""Which adapters nobody is going to have, and which may still come."""

from collections.abc import Sequence
from dataclasses import replace

from arriero.balancer.control.desired_state import WishedModel
from arriero.balancer.control.model_status import ModelStatus
from arriero.balancer.fleet.core.left_out import left_out
from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.registry import Agent
from arriero.shared.framing.heartbeat import HeartbeatMonitor
from arriero.shared.messages import Issue
from arriero.shared.models.assignments import Assignment, Phase, WishedAdapter
from tests.balancer.fleet.builders import hello, status, work

BAD, GOOD = (WishedAdapter(name=one, source=f"file:///{one}.gguf") for one in ("bad", "good"))
MODEL = WishedModel(name="llama", source="file:///llama.gguf", adapters=(BAD, GOOD))
OTHER = Issue(code="adapter", message="it is gone", adapter="good")
BROKEN = Issue(code="adapter", message="it is broken", adapter="bad")
STATUS = ModelStatus(model=MODEL, status="loaded", issues=(BROKEN,))


def agent(
    *adapters: str,
    phase: Phase | None = "failed",
    told: Assignment = MODEL.assignment,
    issues: Sequence[Issue] = (OTHER, BROKEN),
) -> Agent:
    """Has the model with these adapters; without a `phase` it is a model of its own."""
    one = Agent(
        LinkId(1), hello("a"), 1, None, 0.0, HeartbeatMonitor(0.0, interval=1.0, timeout=5.0)
    )
    said = status(
        model="llama",
        work=None if phase is None else work(phase, told, revision=1),
        issues=tuple(issues),
    )
    assert said.model is not None
    one.changed(replace(said, model=replace(said.model, adapters=adapters)))
    return one


def test_one_that_all_agents_failed_to_get_is_left_out_with_its_reason() -> None:
    assert left_out(STATUS, [agent("good"), agent("good")]) == {"bad": BROKEN}
    assert left_out(STATUS, [agent("good", issues=(OTHER,))]) == {"bad": OTHER}, "the best there is"
    assert left_out(STATUS, [agent()]) == {"bad": BROKEN, "good": OTHER}


def test_one_that_an_agent_has_is_not() -> None:
    assert left_out(STATUS, [agent("good"), agent("bad", "good")]) == {}


def test_one_that_an_agent_may_still_bring_is_not() -> None:
    for phase in ("fetching", "loading", "serving"):
        assert left_out(STATUS, [agent("good"), agent("good", phase=phase)]) == {}


def test_one_of_which_an_agent_was_not_told_yet_is_not() -> None:
    before = replace(MODEL.assignment, adapters=(GOOD, replace(BAD, scale=0.5)))
    assert left_out(STATUS, [agent("good", told=before)]) == {}


def test_an_agent_with_a_model_of_its_own_brings_nothing() -> None:
    assert left_out(STATUS, [agent("good"), agent(phase=None)]) == {"bad": BROKEN}
    assert left_out(STATUS, [agent(phase=None)]) == {}, "nobody failed"


def test_while_the_model_is_not_loaded_its_adapters_wait_with_it() -> None:
    assert left_out(replace(STATUS, status="failed"), [agent("good")]) == {}
    assert left_out(replace(STATUS, issues=()), [agent("good")]) == {}
