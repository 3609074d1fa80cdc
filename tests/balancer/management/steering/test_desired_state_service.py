import asyncio
import logging

import pytest

from arriero.balancer.control.controller import SETTLE
from arriero.balancer.control.desired_state import DesiredModel, DesiredState, desired_state_json
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.steering import desired_state_service
from arriero.balancer.management.steering.desired_state_service import DesiredStateService
from arriero.balancer.store import health, write_behind
from arriero.balancer.store.health import StoreHealth
from arriero.balancer.store.port import RevisionConflict, StoreAway
from arriero.balancer.store.records import Persist, SavedState
from arriero.shared.errors import Conflict, InvalidRequest, StoreUnavailable
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

pytestmark = pytest.mark.usefixtures("closes_stores")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_behind, "FIRST_PAUSE", 0.0)


def state(name: str) -> DesiredState:
    return DesiredState(models=(DesiredModel(name=name, source="file:///m.gguf"),))


class HeldStore(MemoryStore):
    """A store whose saves end as the test says."""

    def __init__(self, *, is_lasting: bool = True) -> None:
        super().__init__()
        self._is_lasting = is_lasting
        self.saves: list[Persist] = []
        self.ends: asyncio.Queue[Exception | None] = asyncio.Queue()

    @property
    def is_lasting(self) -> bool:
        return self._is_lasting

    async def save_desired_state(self, persist: Persist) -> None:
        self.saves.append(persist)
        if (error := await self.ends.get()) is not None:
            raise error


class Desk:
    """A service whose saves are told by the test."""

    def __init__(self, runtime: FleetRuntime, *, is_lasting: bool = True) -> None:
        self.runtime = runtime
        self.store = HeldStore(is_lasting=is_lasting)
        self.health = StoreHealth("the store")
        self.service = DesiredStateService(runtime, self.store, self.health)

    @property
    def saves(self) -> list[Persist]:
        return self.store.saves

    async def end(self, error: Exception | None = None) -> None:
        """End the newest save."""
        self.store.ends.put_nowait(error)
        await self.service.flush(HANGS)

    async def put(self, name: str, expected: int | None = None) -> asyncio.Task[None]:
        task = asyncio.create_task(self.service.put(state(name), expected=expected))
        await asyncio.sleep(0)
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
    await desk.end()
    await task
    assert (desk.service.revision, desk.wished) == (1, {"m"})


async def test_where_nothing_is_kept_the_first_wish_warns(
    runtime: FleetRuntime, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(runtime, is_lasting=False)
    for name in ("m", "n"):
        task = await desk.put(name)
        await desk.end()
        await task
    warnings = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert [each[:15] for each in warnings] == ["nothing is stor"]


async def test_the_same_again_is_not_saved(desk: Desk) -> None:
    task = await desk.put("m")
    await desk.end()
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
    await desk.end()
    await task


async def test_a_change_is_made_though_its_client_has_gone(desk: Desk) -> None:
    task = await desk.put("m")
    task.cancel()
    await asyncio.wait([task])
    await desk.end()
    assert desk.wished == {"m"}


async def test_what_another_balancer_saved_is_taken_up(desk: Desk) -> None:
    task = await desk.put("m")
    document = '{"models": [{"name": "n", "source": "file:///n.gguf"}]}'
    await desk.end(RevisionConflict(SavedState(7, document)))
    with pytest.raises(Conflict, match="revision 7 by now"):
        await task
    assert (desk.service.revision, desk.wished) == (7, {"n"})


async def test_a_save_is_tried_until_the_store_is_back(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, health.__name__)
    for _ in range(2):
        desk.store.ends.put_nowait(StoreAway("connection refused"))
    task = await desk.put("m")
    await desk.end()
    await task
    assert (len(desk.saves), desk.service.revision, desk.wished) == (3, 1, {"m"})
    told = [each.getMessage() for each in caplog.records if each.name == health.__name__]
    assert told == ["the store is away: connection refused", "the store is back"]


async def test_without_the_store_nothing_changes_and_it_is_said(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desired_state_service, "SAVE_TIMEOUT", 0.0)
    task = await desk.put("m")
    await desk.end(StoreAway("connection refused"))
    reason = "the desired state is not saved: the store is away: connection refused"
    with pytest.raises(StoreUnavailable, match=reason):
        await task
    assert (desk.service.revision, desk.wished) == (0, set())
    assert desk.health.status().problem == "connection refused"
    await desk.put("m")
    assert len(desk.saves) == 2


async def test_a_store_that_hangs_counts_as_away(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_behind, "TRY_TIMEOUT", 0.01)
    monkeypatch.setattr(desired_state_service, "SAVE_TIMEOUT", 0.0)
    with pytest.raises(StoreUnavailable, match=r"the store is away: no answer within 0\.01 s"):
        await desk.service.put(state("m"), expected=None)


async def test_a_fault_of_ours_ends_the_save(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    task = await desk.put("m")
    await desk.end(ZeroDivisionError("a fault"))
    with pytest.raises(StoreUnavailable, match="internal error; the balancer's log has the"):
        await task
    assert "ZeroDivisionError: a fault" in caplog.text
    assert desk.health.is_failing
    task = await desk.put("m")
    await desk.end()
    await task
    assert not desk.health.is_failing


async def test_a_flush_waits_for_a_save_but_not_for_ever(desk: Desk) -> None:
    await desk.service.flush(0.0)
    await desk.put("m")
    flushing = asyncio.create_task(desk.service.flush(HANGS))
    await desk.end()
    await flushing
    assert desk.wished == {"m"}
    task = await desk.put("n")
    await desk.service.flush(0.0)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not desk.service.is_saving


async def test_what_was_saved_is_taken_up_at_the_start(desk: Desk) -> None:
    desk.service.restore(None)
    assert desk.service.revision == 0
    desk.service.restore(SavedState(4, '{"models": [{"name": "m", "source": "file:///m.gguf"}]}'))
    assert (desk.service.revision, desk.wished) == (4, {"m"})
    assert SETTLE > 0
    with pytest.raises(InvalidRequest):
        desk.service.restore(SavedState(5, '{"model": 1}'))


async def test_what_another_balancer_saved_is_taken_up_once(desk: Desk) -> None:
    await MemoryStore.save_desired_state(
        desk.store, Persist(0, desired_state_json(state("m")).decode())
    )
    for _ in range(2):
        assert await desk.service.reconcile()
        assert (desk.service.revision, desk.wished) == (1, {"m"})


async def test_a_look_waits_for_the_save_that_is_under_way(desk: Desk) -> None:
    task = await desk.put("m")
    [save] = desk.saves
    await MemoryStore.save_desired_state(desk.store, save)
    await MemoryStore.save_desired_state(
        desk.store, Persist(1, desired_state_json(state("n")).decode())
    )
    looking = asyncio.create_task(desk.service.reconcile())
    await asyncio.sleep(0)
    assert not looking.done()
    await desk.end()
    await task
    assert await looking
    assert (desk.service.revision, desk.wished) == (2, {"n"})


async def test_a_look_in_vain_changes_nothing(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    async def away() -> None:
        raise StoreAway("no route")

    desk.store.load_desired_state = away  # type: ignore[method-assign]
    assert not await desk.service.reconcile()
    assert "no route" in caplog.text
