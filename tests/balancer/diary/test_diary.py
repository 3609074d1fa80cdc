"""The diary over a fleet's runtime and a store in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from arriero.balancer.diary.diary import Diary, DiaryBacklog
from arriero.balancer.diary.watcher import Observed
from arriero.balancer.fleet.core.fleet import Fleet
from arriero.balancer.fleet.limits import Limits
from arriero.balancer.fleet.runtime.fleet_runtime import FleetRuntime
from arriero.balancer.management.metrics.metrics import Metrics
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import MAX_DIARY, DiaryEntry, SavedHost
from arriero.shared.errors import Conflict, NotFound, StoreUnavailable
from arriero.shared.messages import Issue
from tests.balancer.management.peers import Peer
from tests.balancer.stores import MemoryStore
from tests.waiting import HANGS

pytestmark = pytest.mark.usefixtures("closes_stores")


class Scene:
    def __init__(self) -> None:
        self.now = 1000.0
        self.runtime = FleetRuntime(
            Fleet(Limits()), recorder=Metrics(), clock=lambda: 0.0, watch_interval=0.0
        )
        self.store = MemoryStore()
        self.diary = self.another()

    def another(self) -> Diary:
        return Diary(self.runtime, self.store, clock=lambda: self.now, look_interval=0.0)

    async def until(self, is_so: Callable[[list[str]], bool]) -> list[str]:
        """What was told, oldest first, once it is so."""
        async with asyncio.timeout(HANGS):
            while True:
                bell = self.diary.bell()
                entries = await self.diary.entries(limit=100)
                told = [f"{each.kind} {each.subject}" for each in reversed(entries)]
                if is_so(told):
                    return told
                await bell.wait()


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    scene = Scene()
    running = asyncio.create_task(scene.diary.run())
    yield scene
    running.cancel()


async def test_what_it_sees_and_what_it_is_told(scene: Scene) -> None:
    peer = Peer(scene.runtime, "box")
    scene.diary.note("key_made", "app", "of the role inference", by="ana")
    told = await scene.until(lambda told: len(told) == 3)
    assert sorted(told) == ["host_came box", "key_made app", "model_loaded demo"]
    assert scene.diary.num_hosts["here"] == 1
    with pytest.raises(Conflict, match="box is connected"):
        await scene.diary.forget("box")
    peer.leave(hung_up=True)
    assert (await scene.until(lambda told: len(told) == 4))[-1] == "host_went box"
    [host] = scene.diary.hosts()
    assert (host.name, host.state) == ("box", "stopped")
    await scene.diary.forget("box", by="ana")
    assert (await scene.until(lambda told: len(told) == 5))[-1] == "host_forgotten box"
    assert await scene.store.diary.load_hosts() == []
    with pytest.raises(NotFound):
        await scene.diary.forget("box")


async def test_the_balancers_own_issues(scene: Scene) -> None:
    scene.diary.issues = lambda: (Issue(code="store_away", message="away"),)
    Peer(scene.runtime, "box")
    await scene.until(lambda told: "issue_began the balancer" in told)


async def test_one_that_does_not_lead_writes_only_what_was_done_here(scene: Scene) -> None:
    scene.diary.leads = lambda: False
    Peer(scene.runtime, "box")
    scene.diary.note("key_made", "app", "")
    assert await scene.until(lambda told: bool(told)) == ["key_made app"]
    assert await scene.store.diary.load_hosts() == []


async def test_another_run_knows_the_hosts(scene: Scene) -> None:
    Peer(scene.runtime, "box")
    await scene.until(lambda told: "host_came box" in told)
    scene.now += 5
    await scene.diary.flush(HANGS)
    after = scene.another()
    await after.restore()
    [host] = after.hosts()
    assert (host.name, host.state, host.last_seen) == ("box", "here", 1005.0)


async def test_another_balancers_entries_wake_readers(scene: Scene) -> None:
    bell = scene.diary.bell()
    assert await scene.diary.reconcile()
    assert bell.is_set()


class Away(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.diary.find = self.diary.load_hosts = self.diary.forget_host = self._away  # type: ignore[assignment, method-assign]

    async def _away(self, *_: object, **__: object) -> None:
        raise StoreAway("no answer")


async def test_a_store_that_is_away(scene: Scene) -> None:
    diary = Diary(scene.runtime, Away())
    with pytest.raises(StoreUnavailable, match="cannot be read: no answer"):
        await diary.entries(limit=1)
    with pytest.raises(StoreUnavailable, match="cannot be removed"):
        await diary.forget("x")
    assert not await diary.reconcile()


def test_what_waits_is_bounded_and_written_once() -> None:
    backlog = DiaryBacklog()
    entries = [DiaryEntry(at=float(n), kind="key_made", subject="k", message="") for n in range(3)]
    old, new = (
        SavedHost(name="h", state="here", since=0, first_seen=0, last_seen=at, document="{}")
        for at in (1.0, 2.0)
    )
    assert backlog.add(Observed(tuple(entries), (old,))) == 0
    batch = backlog.next_batch()
    assert batch == [*entries, old]
    backlog.add(Observed((), (new,)))
    backlog.written(batch, None)
    assert backlog.next_batch() == [new], "it is newer than what was written"
    backlog.lost(new)
    assert not backlog.has_any
    many = tuple(entries[0] for _ in range(MAX_DIARY + 7))
    assert backlog.add(Observed(many)) == 7
    assert len(backlog) == MAX_DIARY
