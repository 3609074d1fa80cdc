import asyncio

import pytest

from arriero.balancer.control.controller import SETTLE
from arriero.balancer.control.desired_state import DesiredModel, DesiredState
from arriero.balancer.control.state_document import desired_state_json
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import (
    Conflicted,
    NotPersisted,
    Persist,
    Persisted,
    PersistOutcome,
    SavedState,
)
from arriero.shared.errors import Conflict, InvalidRequest, StoreUnavailable
from tests.balancer.stores import MemoryStore

pytestmark = pytest.mark.usefixtures("closes_stores")


def state(name: str) -> DesiredState:
    return DesiredState(models=(DesiredModel(name=name, source="file:///m.gguf"),))


class Desk:
    """A service whose saves are told by the test."""

    def __init__(self, runtime: FleetRuntime, *, is_lasting: bool = True) -> None:
        self.runtime = runtime
        self.saves: list[Persist] = []
        self.service = DesiredStateService(runtime, self._persist, is_lasting=is_lasting)

    def _persist(self, persist: Persist) -> asyncio.Future[PersistOutcome]:
        self.saves.append(persist)
        self._outcome: asyncio.Future[PersistOutcome] = asyncio.Future()
        return self._outcome

    async def end(self, outcome: PersistOutcome) -> None:
        """This came of the newest save."""
        self._outcome.set_result(outcome)
        await asyncio.sleep(0)

    async def put(self, name: str, expected: int | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(self.service.put(state(name), expected=expected))
        await asyncio.sleep(0)
        return task

    @property
    def wished(self) -> set[str]:
        return set(self.runtime.views.statuses())


@pytest.fixture
def desk(runtime: FleetRuntime) -> Desk:
    return Desk(runtime)


async def test_a_change_counts_when_it_is_saved(desk: Desk) -> None:
    task = await desk.put("m")
    [save] = desk.saves
    assert save.expected == 0
    assert not task.done()
    assert desk.wished == set()
    await desk.end(Persisted())
    await task
    assert (desk.service.revision, desk.wished) == (1, {"m"})


async def test_where_nothing_is_kept_the_first_wish_warns(
    runtime: FleetRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(runtime, is_lasting=False)
    for name in ("m", "n"):
        task = await desk.put(name)
        await desk.end(Persisted())
        await task
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert [each[:15] for each in warnings] == ["nothing is stor"]


async def test_the_same_again_is_not_saved(desk: Desk) -> None:
    task = await desk.put("m")
    await desk.end(Persisted())
    await task
    await (await desk.put("m", expected=1))
    assert len(desk.saves) == 1


async def test_a_stale_change_is_refused(desk: Desk) -> None:
    with pytest.raises(Conflict, match="revision 0 by now"):
        await (await desk.put("m", expected=3))
    assert desk.saves == []


async def test_one_change_is_saved_at_a_time(desk: Desk) -> None:
    task = await desk.put("m")
    with pytest.raises(Conflict, match="another change is being saved"):
        await (await desk.put("n"))
    await desk.end(Persisted())
    await task


async def test_a_change_is_made_though_its_client_has_gone(desk: Desk) -> None:
    task = await desk.put("m")
    task.cancel()
    await asyncio.wait([task])
    await desk.end(Persisted())
    assert desk.wished == {"m"}


async def test_what_another_balancer_saved_is_taken_up(desk: Desk) -> None:
    task = await desk.put("m")
    document = '{"models": [{"name": "n", "source": "file:///n.gguf"}]}'
    await desk.end(Conflicted(SavedState(7, document)))
    with pytest.raises(Conflict, match="revision 7 by now"):
        await task
    assert (desk.service.revision, desk.wished) == (7, {"n"})


async def test_without_the_store_nothing_changes_and_it_is_said(desk: Desk) -> None:
    task = await desk.put("m")
    await desk.end(NotPersisted("the disk is full"))
    with pytest.raises(StoreUnavailable, match="not saved: the disk is full"):
        await task
    assert (desk.service.revision, desk.wished) == (0, set())
    await desk.put("m")
    assert len(desk.saves) == 2


async def test_what_was_saved_is_taken_up_at_the_start(desk: Desk) -> None:
    desk.service.restore(None)
    assert desk.service.revision == 0
    desk.service.restore(SavedState(4, '{"models": [{"name": "m", "source": "file:///m.gguf"}]}'))
    assert (desk.service.revision, desk.wished) == (4, {"m"})
    assert SETTLE > 0
    with pytest.raises(InvalidRequest):
        desk.service.restore(SavedState(5, '{"model": 1}'))


async def test_what_another_balancer_saved_is_taken_up_once(desk: Desk) -> None:
    store = MemoryStore()
    await store.save_desired_state(Persist(0, desired_state_json(state("m")).decode()))
    for _ in range(2):
        assert await desk.service.reconcile(store)
        assert (desk.service.revision, desk.wished) == (1, {"m"})


async def test_a_look_waits_for_the_save_that_is_under_way(desk: Desk) -> None:
    store = MemoryStore()
    task = await desk.put("m")
    [save] = desk.saves
    await store.save_desired_state(save)
    await store.save_desired_state(Persist(1, desired_state_json(state("n")).decode()))
    looking = asyncio.create_task(desk.service.reconcile(store))
    await asyncio.sleep(0)
    assert not looking.done()
    await desk.end(Persisted())
    await task
    assert await looking
    assert (desk.service.revision, desk.wished) == (2, {"n"})


async def test_a_look_in_vain_changes_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    store = MemoryStore()

    async def away() -> None:
        raise StoreAway("no route")

    store.load_desired_state = away  # type: ignore[method-assign]
    assert not await desk.service.reconcile(store)
    assert "no route" in caplog.text
