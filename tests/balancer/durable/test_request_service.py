"""Two runs of a balancer over one store: what one accepted, the other goes on with."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from arriero.balancer.access.access import Access
from arriero.balancer.durable import request_service as keepers
from arriero.balancer.durable.request_documents import restored
from arriero.balancer.durable.request_service import RequestService, caller_now
from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.requests.eligibility import Engine
from arriero.balancer.fleet.retained_record import AskedRequest, RetainedRecord
from arriero.balancer.fleet.runtime.retained_requests import RetainedRequest, RetainedRequests
from arriero.balancer.store import write_behind
from arriero.balancer.store.health import LOST
from arriero.balancer.store.port import StoreAway
from arriero.balancer.store.records import StoreStatus
from arriero.balancer.store.retained import RetainedStore
from arriero.balancer.store.retained_records import (
    FoundRequest,
    RetainedBounds,
    RetainedOutcome,
    RetainedWrite,
)
from arriero.balancer.store.store import Store
from arriero.balancer.store.url import parse_store_url
from arriero.shared.errors import NotFound, ShuttingDown
from arriero.shared.inference import Done, Event, Failed, GenerateRequest, Token
from tests.balancer.access.builders import record
from tests.balancer.api.fake_runtime import FakeFleetRuntime, done
from tests.waiting import HANGS

REQUEST = GenerateRequest(prompt="x", seed=7)
ANA = Caller("ana", owner="ana@1")
ENGINE = Engine("m", "f")
BOUNDS = RetainedBounds(num=100, num_bytes=10**6, age=100.0)
A, B = Token("a", tokens=(1,)), Token("b", tokens=(2,))


class Run:
    """One run of a balancer."""

    def __init__(
        self, store: RetainedStore, admit: Callable[[Caller], Caller | None] | None = None
    ) -> None:
        self.runtime = FakeFleetRuntime()
        self.admits = True
        self.keeper = RequestService(store, BOUNDS, admit or self._admit, lambda _: ENGINE)
        self.retained = RetainedRequests(self.runtime, journal=self.keeper.journal, max_retained=50)
        self.keeper.serve(self.retained)

    def _admit(self, caller: Caller) -> Caller | None:
        return caller if self.admits else None

    def open(self, name: str = "k#0", *, keeps_failure: bool = False) -> RetainedRequest:
        return self.retained.open(
            name, b"d", REQUEST, caller=ANA, keeps_failure=keeps_failure, note=b"{}"
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Run"]:
        task = asyncio.create_task(self.keeper.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def written(self) -> None:
        """Until nothing waits to be written."""
        async with asyncio.timeout(HANGS):
            await self.keeper.flush(HANGS)
        assert len(self.keeper.journal) == 0

    async def restored(self) -> RetainedRequest:
        await self.keeper.restore(ANA, prefix="k#")
        return self.open()

    async def resumed(self) -> RetainedRequest:
        async with asyncio.timeout(HANGS):
            await self.runtime.opened()
        return self.open()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keepers, "GATHER", 0.01)
    monkeypatch.setattr(write_behind, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(keepers, "RENEWAL", 0.02)
    monkeypatch.setattr(keepers, "LEASE", HANGS)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RetainedStore]:
    store = Store(parse_store_url(f"sqlite:///{tmp_path}/state.db"))
    await store.open()
    yield store.retained
    await store.close()


@asynccontextmanager
async def over_at_once() -> AsyncIterator[None]:
    """Leases of what runs inside are."""
    with pytest.MonkeyPatch.context() as short:
        short.setattr(keepers, "LEASE", -1.0)
        yield


async def killed(store: RetainedStore, *events: Event) -> None:
    """A run that is killed when these were delivered and written, and its lease is over."""
    async with over_at_once(), Run(store).running() as run:
        run.open(keeps_failure=True)
        run.runtime.streams[0].say(*events)
        await run.written()


async def read(retained: RetainedRequest) -> list[Event]:
    async with asyncio.timeout(HANGS):
        return [event async for event in retained.attach()]


async def test_what_has_ended_is_there_for_the_next(store: RetainedStore) -> None:
    await killed(store, A, B, done())
    run = Run(store)
    assert await read(await run.restored()) == [A, B, done()]
    assert run.runtime.streams == []


async def test_the_next_goes_on_behind_what_was_delivered(store: RetainedStore) -> None:
    await killed(store, A)
    async with Run(store).running() as run:
        retained = await run.resumed()
        [(told, engine, age)] = run.runtime.resumed
        assert (told, engine) == ((A,), ENGINE) and age >= 0
        assert run.runtime.streams[0].request == REQUEST
        run.runtime.streams[0].say(B, done())
        assert await read(retained) == [A, B, done()]
        await run.written()
    assert await read(await Run(store).restored()) == [A, B, done()]


async def test_what_runs_elsewhere_is_followed_and_not_run(store: RetainedStore) -> None:
    async with Run(store).running() as first, Run(store).running() as second:
        first.open()
        first.runtime.streams[0].say(A)
        await first.written()
        retained = await second.restored()
        assert retained.is_remote and retained.events == [A]
        reading = asyncio.create_task(read(retained))
        await asyncio.sleep(0)
        first.runtime.streams[0].say(B, done())
        assert await reading == [A, B, done()]
        assert second.runtime.streams == []


async def test_what_runs_elsewhere_is_read_anew_and_cancelled_there(store: RetainedStore) -> None:
    async with Run(store).running() as first, Run(store).running() as second:
        opened = first.open()
        await first.written()
        retained = await second.restored()
        first.runtime.streams[0].say(A)
        await first.written()
        await second.keeper.restore(ANA, id=opened.id)
        assert retained.events == [A], "nobody reads it, and it is asked for"
        reading = asyncio.create_task(read(retained))
        second.retained.cancel(retained)
        *events, end = await reading
        assert events == [A] and isinstance(end, Done) and end.finish_reason == "cancelled"
        assert second.runtime.streams == []


async def test_who_takes_it_up_ends_what_was_cancelled_at_its_balancers_end(
    store: RetainedStore,
) -> None:
    await killed(store, A)
    asking = Run(store)
    retained = await asking.restored()
    asking.retained.cancel(retained)
    journal = asking.keeper.journal
    write = keepers._write_of(journal.unwritten(journal.next_batch()))
    await store.write_retained("asking", write, 60.0)
    async with Run(store).running() as run:
        await run.resumed()
        assert run.runtime.streams[0].has_ended


async def test_what_was_deleted_elsewhere_is_gone_when_it_is_asked_for(
    store: RetainedStore,
) -> None:
    async with Run(store).running() as first:
        opened = first.open()
        await first.written()
        second = Run(store)
        await second.restored()
        first.retained.forget_id(opened.id, caller=ANA)
        await first.written()
        await second.keeper.restore(ANA, id=opened.id)
        assert second.retained.find_by_id(opened.id, caller=ANA) is None


async def test_what_this_version_cannot_read_is_given_up_and_left_to_others(
    store: RetainedStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await killed(store, A)

    def unreadable(_saved: object) -> object:
        raise ValueError("another version's")

    run = Run(store)
    with monkeypatch.context() as older:
        older.setattr(keepers, "restored", unreadable)
        await run.keeper._renew()
        async with run.running():
            await run.written()
            await run.keeper._renew()
    assert caplog.text.count("is left to a balancer of another version") == 1
    assert "cannot read a request from the store" in caplog.text and len(run.retained) == 0
    assert len(await store.claim_retained("newer", 60.0, 10)) == 1, "its lease is over at once"


async def test_what_was_deleted_elsewhere_ends_its_readers_here(store: RetainedStore) -> None:
    async with Run(store).running() as first, Run(store).running() as second:
        opened = first.open()
        await first.written()
        reading = asyncio.create_task(read(await second.restored()))
        first.retained.forget_id(opened.id, caller=ANA)
        assert await reading == [Failed(NotFound("the request was deleted"))]
        assert len(second.retained) == 0


async def test_a_run_that_lost_its_lease_stops(
    store: RetainedStore, caplog: pytest.LogCaptureFixture
) -> None:
    first = Run(store)
    opened = first.open()
    journal = first.keeper.journal
    write = keepers._write_of(journal.unwritten(journal.next_batch()))
    await store.write_retained("another run", write, 60.0)
    async with first.running():
        first.runtime.streams[0].say(A)
        await first.written()
    assert first.runtime.streams[0].has_ended
    assert first.retained.find_by_id(opened.id, caller=ANA) is None
    assert "continues at another balancer" in caplog.text


async def test_a_drain_gives_requests_up_without_their_end(store: RetainedStore) -> None:
    async with Run(store).running() as first:
        first.open(keeps_failure=True)
        first.runtime.is_draining = True
        first.runtime.streams[0].say(A, Failed(ShuttingDown("bye")))
        await first.written()
        async with Run(store).running() as second:
            retained = await second.resumed()
            assert retained.events == [A]
        assert first.runtime.resumed == []


async def test_without_its_callers_key_it_is_deleted(
    store: RetainedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await killed(store, A)
    run = Run(store)
    run.admits = False
    await run.keeper._renew()
    journal = run.keeper.journal
    assert len(journal.unwritten(journal.next_batch()).forgotten) == 1
    assert run.runtime.streams == [] and len(run.retained) == 0


async def test_others_find_nothing(store: RetainedStore) -> None:
    await killed(store, A, done())
    run = Run(store)
    await run.keeper.restore(ANONYMOUS, prefix="k#")
    assert len(run.retained) == 0


class Away:
    """A store that is away at first."""

    def __init__(self, store: RetainedStore) -> None:
        self._store = store
        self.is_away = True

    async def write_retained(self, run: str, write: RetainedWrite, lease: float) -> RetainedOutcome:
        if self.is_away:
            self.is_away = False
            raise StoreAway("no route")
        return await self._store.write_retained(run, write, lease)

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_while_the_store_is_away_requests_go_on(
    store: RetainedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    away = Run(Away(store))  # type: ignore[arg-type]
    async with away.running():
        retained = away.open()
        away.runtime.streams[0].say(A, done())
        assert await read(retained) == [A, done()]
        await away.written()
    assert "is away: no route" in caplog.text and "is back" in caplog.text
    assert await read(await Run(store).restored()) == [A, done()]


async def test_what_cannot_be_written_goes_on_and_is_not_kept(store: RetainedStore) -> None:
    async with Run(store).running() as run:
        retained, other = run.open(), run.open("k#1")
        run.runtime.streams[0].say(Token("\ud800"), done())
        run.runtime.streams[1].say(A, done())
        assert len(await read(retained)) == 2
        await read(other)
        await run.written()
    found = await store.find_retained(ANA.owner or "")
    assert [each.request.id for each in found] == [other.id]


class Broken:
    """A store of which one method fails at first."""

    def __init__(self, store: RetainedStore, name: str) -> None:
        self._store = store
        self._broken: str | None = name

    def __getattr__(self, name: str) -> object:
        if name != self._broken:
            return getattr(self._store, name)
        self._broken = None
        return self._fail

    async def _fail(self, *_given: object, **_more: object) -> None:
        raise ZeroDivisionError("broken")


async def test_a_renewal_that_fails_is_tried_again(
    store: RetainedStore, caplog: pytest.LogCaptureFixture
) -> None:
    await killed(store, A)
    async with Run(Broken(store, "claim_retained")).running() as run:  # type: ignore[arg-type]
        await run.resumed()
    assert (
        "could not renew its leases" in caplog.text and "ZeroDivisionError: broken" in caplog.text
    )


async def test_one_that_cannot_go_on_is_deleted_and_costs_no_other_its_lease(
    store: RetainedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with over_at_once(), Run(store).running() as first:
        for name in ("k#0", "k#1"):
            first.open(name)
        await first.written()
    callers: list[Caller] = []

    def admit(caller: Caller) -> Caller:
        callers.append(caller)
        if len(callers) == 1:
            raise ZeroDivisionError("broken")
        return caller

    async with Run(store, admit).running() as run, asyncio.timeout(HANGS):
        await run.runtime.opened()
        await run.written()
    assert len(callers) == 2
    assert "is deleted" in caplog.text and "ZeroDivisionError: broken" in caplog.text
    assert len(await store.find_retained("ana@1", prefix="k#")) == 1


async def test_one_that_cannot_be_followed_is_tried_again(
    store: RetainedStore, caplog: pytest.LogCaptureFixture
) -> None:
    async with Run(store).running() as first:
        first.open()
        await first.written()
        second = Run(Broken(store, "find_retained"))  # type: ignore[arg-type]
        retained = second.retained.restore(
            *_adopted(await store.find_retained("ana@1", prefix="k#"))
        )
        await second.keeper._try_to_follow(retained)
        assert "that another balancer runs could not be read" in caplog.text
        first.runtime.streams[0].say(A, done())
        await first.written()
        await second.keeper._try_to_follow(retained)
        assert retained.events == [A, done()]


def _adopted(found: list[FoundRequest]) -> tuple[RetainedRecord, AskedRequest, list[Event]]:
    return *restored(found[0].request), []


class Picky(Away):
    """A store that takes nothing of one request, not even its end."""

    def __init__(self, store: RetainedStore) -> None:
        super().__init__(store)
        self.unwritable = ""
        self.num_writes = 0

    async def write_retained(self, run: str, write: RetainedWrite, lease: float) -> RetainedOutcome:
        self.num_writes += 1
        begun = {each.id for each in (*write.begun, *write.grown)}
        if self.unwritable in {*begun, *write.forgotten}:
            raise OverflowError("too large")
        return await self._store.write_retained(run, write, lease)


async def test_a_request_that_cannot_be_written_costs_itself(
    store: RetainedStore, caplog: pytest.LogCaptureFixture
) -> None:
    picky = Picky(store)
    run = Run(picky)  # type: ignore[arg-type]
    opened = [run.open(f"k#{number}", keeps_failure=True) for number in range(8)]
    picky.unwritable = opened[3].id
    async with run.running():
        for stream in run.runtime.streams:
            stream.say(A, done())
        await run.written()
        assert picky.num_writes < 20, "nothing is tried for ever"
        assert await read(opened[3]) == [A, done()], "it goes on here"
    assert run.keeper.status().num_dropped >= 1
    [line] = {each.getMessage() for each in caplog.records}
    assert line.startswith(
        "a request could not be written to the store, and will be lost if this balancer ends: "
    )
    found = await store.find_retained("ana@1", prefix="k#")
    assert {each.request.name for each in found} == {f"k#{n}" for n in range(8)} - {"k#3"}
    assert all(each.has_ended for each in found)


class Stumbling(Away):
    """A store whose first renewal fails. `calls` has a future for each later one's answer."""

    def __init__(self, store: RetainedStore) -> None:
        super().__init__(store)
        self.has_failed = False
        self.calls: asyncio.Queue[asyncio.Future[list[FoundRequest]]] = asyncio.Queue()

    async def claim_retained(self, *_: object, **__: object) -> list[FoundRequest]:
        if not self.has_failed:
            self.has_failed = True
            raise OverflowError("too large")
        answer = asyncio.get_running_loop().create_future()
        self.calls.put_nowait(answer)
        return await answer


async def test_a_failed_renewal_is_seen_until_one_succeeds(
    store: RetainedStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    stumbling = Stumbling(store)
    run = Run(stumbling)  # type: ignore[arg-type]
    async with run.running(), asyncio.timeout(5):
        second = await stumbling.calls.get()
        assert run.keeper.status() == StoreStatus(fault=LOST)
        second.set_result([])
        await stumbling.calls.get()
        assert run.keeper.status() == StoreStatus()


def test_the_caller_of_a_request_that_was_accepted_before() -> None:
    anonymous, key = Caller(address="::1"), record("ana", 1)
    owner = key.identity.owner
    assert caller_now(Access(), anonymous) == anonymous
    access = Access([key])
    assert caller_now(access, anonymous) is None, "nobody could ask for its answer any more"
    assert caller_now(access, Caller("was", owner=owner)) == Caller("ana", owner=owner)
    assert caller_now(access, Caller("ana", owner="ana@0")) is None
