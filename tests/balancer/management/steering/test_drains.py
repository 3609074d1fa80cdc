import asyncio

import pytest

from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.fleet.view import Cordon, SharedCordon
from arriero.balancer.management.steering.drains import DrainService
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import SavedCordon
from arriero.shared.errors import NotFound, StoreUnavailable
from arriero.shared.inference import AgentId
from tests.balancer.management.peers import Peer
from tests.balancer.stores import MemoryStore

pytestmark = pytest.mark.usefixtures("closes_stores")

A = AgentId("id-a")


class Store(MemoryStore):
    """May be away, or slow until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.is_away = False
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def save_cordon(self, cordon: SavedCordon) -> None:
        await self.goes_on.wait()
        if self.is_away:
            raise StoreAway("no route to it")
        await super().save_cordon(cordon)


@pytest.fixture
async def store() -> Store:
    return Store()


@pytest.fixture
def drains(runtime: FleetRuntime, store: Store) -> DrainService:
    return DrainService(runtime, store, clock=lambda: 7.0)


def state_of_a(runtime: FleetRuntime) -> str:
    view = runtime.views.agent(A)
    assert view is not None
    return view.state


async def test_a_drain_is_done_and_saved(
    runtime: FleetRuntime, store: Store, drains: DrainService
) -> None:
    Peer(runtime, "a")
    await drains.drain(A, None)
    assert state_of_a(runtime) == "drained"
    assert await store.load_cordons() == [SavedCordon(A, "a", 7.0)]
    await drains.resume(A)
    assert state_of_a(runtime) == "ready"
    assert await store.load_cordons() == []


async def test_a_host_that_was_drained_before_the_balancer_started(
    runtime: FleetRuntime, store: Store, drains: DrainService
) -> None:
    await store.save_cordon(SavedCordon("old-id", "a", 1.0))
    await drains.restore()
    Peer(runtime, "a")
    assert state_of_a(runtime) == "drained"
    assert runtime.views.cordon_of(A) == Cordon(AgentId("old-id"), "a")
    await drains.drain(A, None)
    assert await store.load_cordons() == [SavedCordon("old-id", "a", 7.0)]
    await drains.resume(A)
    assert await store.load_cordons() == []


async def test_a_store_that_is_away_is_told_and_the_drain_is_done(
    runtime: FleetRuntime, store: Store, drains: DrainService
) -> None:
    Peer(runtime, "a")
    store.is_away = True
    with pytest.raises(StoreUnavailable, match=r"done, but not saved.*no route"):
        await drains.drain(A, None)
    assert state_of_a(runtime) == "drained"
    store.is_away = False
    await drains.drain(A, None)
    assert len(await store.load_cordons()) == 1


async def test_saves_keep_the_order_of_what_was_done_whoever_goes(
    runtime: FleetRuntime, store: Store, drains: DrainService
) -> None:
    Peer(runtime, "a")
    store.goes_on.clear()
    gone = asyncio.create_task(drains.drain(A, None))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gone.cancel()
    resumed = asyncio.create_task(drains.resume(A))
    store.goes_on.set()
    await resumed
    assert await store.load_cordons() == []


async def test_an_agent_that_is_not_here(store: Store, drains: DrainService) -> None:
    for act in (drains.drain(A, None), drains.resume(A)):
        with pytest.raises(NotFound):
            await act
    assert await store.load_cordons() == []


async def test_what_operators_of_other_balancers_did_is_done_here(
    runtime: FleetRuntime, store: Store, drains: DrainService
) -> None:
    Peer(runtime, "a")
    await store.save_cordon(SavedCordon(A, "a", 1.0))
    assert await drains.reconcile()
    assert state_of_a(runtime) == "drained"
    await store.forget_cordon(A)
    assert await drains.reconcile()
    assert state_of_a(runtime) == "ready"


async def test_the_deadline_of_a_drain_is_told_to_other_balancers(
    runtime: FleetRuntime, store: Store, drains: DrainService, monkeypatch: pytest.MonkeyPatch
) -> None:
    Peer(runtime, "a")
    await drains.drain(A, 30.0)
    assert await store.load_cordons() == [SavedCordon(A, "a", 7.0, 37.0)]
    told: list[SharedCordon] = []
    monkeypatch.setattr(runtime, "apply_cordons", told.extend)
    for now in (17.0, 40.0):
        assert await DrainService(runtime, store, clock=lambda now=now: now).reconcile()  # type: ignore[misc]
    assert told == [SharedCordon(Cordon(A, "a"), within) for within in (20.0, 0.0)]


async def test_a_look_waits_for_what_is_being_saved(
    runtime: FleetRuntime, store: Store, drains: DrainService
) -> None:
    Peer(runtime, "a")
    store.goes_on.clear()
    draining = asyncio.create_task(drains.drain(A, None))
    await asyncio.sleep(0)
    looking = asyncio.create_task(drains.reconcile())
    await asyncio.sleep(0)
    store.goes_on.set()
    await draining
    assert await looking
    assert state_of_a(runtime) == "drained"


async def test_a_look_reads_again_where_something_was_saved_meanwhile(
    runtime: FleetRuntime, store: Store, drains: DrainService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it read is older than the resume, which it would undo."""
    Peer(runtime, "a")
    await drains.drain(A, None)
    load, is_resumed = store.load_cordons, False

    async def load_slowly() -> list[SavedCordon]:
        nonlocal is_resumed
        saved = await load()
        if not is_resumed:
            is_resumed = True
            await drains.resume(A)
        return saved

    monkeypatch.setattr(store, "load_cordons", load_slowly)
    assert await drains.reconcile()
    assert state_of_a(runtime) == "ready"
