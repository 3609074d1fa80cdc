"""The store of several balancers, as one of them reads it; `test_history_task` has the rest."""

import pytest

from arriero.balancer.history.series import to_saved
from arriero.balancer.history.shared_past import SharedPast
from arriero.balancer.store.records import EndingFilter, SavedStep
from tests.balancer.history.builders import step
from tests.balancer.store.fakes import FakeStore

pytestmark = pytest.mark.usefixtures("closes_stores")


async def test_its_own_steps_are_not_read() -> None:
    store = FakeStore()
    await store.history.append_history(
        [to_saved(step(100, 1), 1, "here"), to_saved(step(100, 2), 1, "there")], []
    )
    past = SharedPast(store.history, "here")
    [read] = (await past.steps_since(50, 101, {})).steps
    assert read.fleet.completion_tokens == 2


async def test_what_another_version_wrote_is_left_out() -> None:
    store = FakeStore()
    await store.history.append_history(
        [SavedStep(1, 99, "{}", "old"), to_saved(step(100), 1, "new")], []
    )
    past = SharedPast(store.history, "here")
    assert [each.at for each in (await past.steps_since(50, 101, {})).steps] == [100]


async def test_what_was_read_before_stays_while_the_store_is_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FakeStore()
    await store.history.append_history([to_saved(step(100, 1), 1, "there")], [])
    past = SharedPast(store.history, "here")
    await past.steps_since(50, 101, {})
    store.goes_away()
    found = await past.steps_since(50, 102, {"there": [step(100, 1), step(101, 3)]})
    assert [each.fleet.completion_tokens for each in found.steps] == [1, 3]
    assert await past.ended(EndingFilter(), []) is None
    assert caplog.text.count("the store for the history of other balancers is away") == 1
    store.problem = None
    assert await past.ended(EndingFilter(), []) == ([], 0)
