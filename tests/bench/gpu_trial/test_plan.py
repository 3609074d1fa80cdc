"""Which step of a trial is next, whatever calls ended in."""

import pytest

from bench.gpu_trial.plan import (
    ARCHITECTURES,
    MODELS,
    MOST_TRIES,
    State,
    Step,
    next_step,
    skipped,
    steps,
)
from bench.models import LARGE, Q06
from bench.small_models import ARCHITECTURES as SMALL_MODELS

CALL = 570.0
DONE, FAILED, INTERRUPTED = State("done"), State("failed", "exit code 1"), State("interrupted")
MAKE, USE, OTHER = Step("make", (), 60), Step("use", (), 100, ("make",)), Step("other", (), 10)
PLAN = (MAKE, USE, OTHER)


@pytest.mark.parametrize(
    ("states", "left", "expected"),
    [
        ({}, CALL, MAKE),
        ({}, 50, OTHER),
        ({}, 5, None),
        ({"make": DONE}, CALL, USE),
        ({"make": DONE}, 50, OTHER),
        ({"make": INTERRUPTED}, CALL, MAKE),
        ({"make": State("interrupted", tries=MOST_TRIES)}, CALL, OTHER),
        ({"make": FAILED}, CALL, OTHER),
        ({"make": FAILED, "other": DONE}, CALL, None),
        ({"make": DONE, "use": DONE, "other": DONE}, CALL, None),
    ],
)
def test_the_next_step(states: dict[str, State], left: float, expected: Step | None) -> None:
    assert next_step(PLAN, states, left) == expected


def test_why_a_step_is_skipped() -> None:
    assert skipped(USE, {}) == skipped(USE, {"make": INTERRUPTED}) == ""
    assert skipped(USE, {"make": FAILED}) == "it needs make, which is not done"
    assert skipped(Step("on a device", (), 1, obstacle="no GPU"), {}) == "no GPU"


@pytest.mark.parametrize("has_gpu", [True, False])
@pytest.mark.parametrize("shrink", [1, 16])
def test_every_step_is_reached_and_fits_into_a_call(has_gpu: bool, shrink: int) -> None:
    plan = steps(has_gpu=has_gpu, cores=16, shrink=shrink)
    names = [step.name for step in plan]
    assert len(set(names)) == len(names)
    states: dict[str, State] = {}
    while step := next_step(plan, states, CALL):
        assert all(states[each] == DONE for each in step.needs)
        states[step.name] = DONE
    missing = [step for step in plan if step.name not in states]
    assert all(skipped(step, states) for step in missing)
    assert [step.name for step in missing] == ([] if has_gpu else ["device", "tests on the device"])


def test_all_models_are_made_and_all_architectures_measured() -> None:
    assert set(MODELS) == {Q06.name, *LARGE}
    assert sorted(name for some in ARCHITECTURES for name in some) == sorted(SMALL_MODELS)
