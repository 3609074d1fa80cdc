"""Steps come back from their documents as they were."""

from arriero.balancer.history.documents import from_saved, to_saved
from arriero.balancer.store.records import SavedStep
from tests.balancer.history.builders import step, sums


def test_a_step_comes_back() -> None:
    there = step(120, 7, queue=3, ana=1)
    there.models["tiny"] = sums(3, 0.01, 0.5, stop=2)
    saved = to_saved(there, 1)
    assert (saved.width, saved.at) == (1, 120)
    assert from_saved(saved) == there


def test_what_cannot_be_read_is_left_out() -> None:
    assert from_saved(SavedStep(1, 1, "{}")) is None
    assert from_saved(SavedStep(1, 1, "not JSON")) is None
    assert from_saved(SavedStep(1, 99, to_saved(step(1), 1).document)) is None
