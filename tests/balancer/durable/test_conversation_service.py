"""Conversations of several balancers over one store."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from pydantic import TypeAdapter

from arriero.balancer.durable import conversation_service as conversation_service
from arriero.balancer.durable.conversation_service import MAX_ID, ConversationService
from arriero.balancer.store import write_behind
from arriero.balancer.store.conversations import ConversationBounds
from arriero.balancer.store.health import LOST
from arriero.balancer.store.records import StoreStatus
from arriero.shared.errors import StoreUnavailable
from tests.waiting import HANGS

from .fakes import FakeConversations

pytestmark = pytest.mark.usefixtures("closes_stores")

BOUNDS = ConversationBounds(num=100, num_bytes=10_000, age=60.0)


@dataclass(frozen=True)
class Talk:
    text: str


@dataclass(frozen=True)
class Other:
    number: int


KINDS = {Talk: ("talk", TypeAdapter(Talk)), Other: ("other", TypeAdapter(Other))}


class Balancer:
    """The service of one balancer."""

    def __init__(self, store: FakeConversations) -> None:
        self.keeper = ConversationService(store, BOUNDS, KINDS)

    def put(self, id: str, text: str = "hi", owner: str | None = "ana@1") -> None:
        self.keeper.put(id, Talk(text), len(text), owner)

    async def has(self, id: str, owner: str | None = "ana@1") -> bool:
        return await self.keeper.has(id, Talk, owner)

    async def find(self, id: str, owner: str | None = "ana@1") -> Talk | None:
        return await self.keeper.find(id, Talk, owner)

    async def forget(self, id: str, owner: str | None = "ana@1") -> bool:
        return await self.keeper.forget(id, Talk, owner)


@asynccontextmanager
async def running(store: FakeConversations, num: int = 2) -> AsyncIterator[list[Balancer]]:
    """So many balancers over the store."""
    balancers = [Balancer(store) for _ in range(num)]
    async with AsyncExitStack() as stack:
        for each in balancers:
            task = asyncio.create_task(each.keeper.run())
            stack.push_async_callback(cancelled, task)
        yield balancers


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_what_one_keeps_another_finds() -> None:
    async with running(FakeConversations()) as (one, two):
        one.put("a", "hello")
        await one.keeper.written("a")
        assert await two.find("a") == Talk("hello")
        assert await two.has("a") and not await two.has("b")
        assert one.keeper.num_waiting == 0
        assert await two.find("b") is None


async def test_an_owner_is_told_of_his_own_alone() -> None:
    async with running(FakeConversations()) as (one, two):
        one.put("a")
        one.put("b", owner=None)
        await one.keeper.flush(5)
        for owner in ("ben@1", None):
            assert await two.find("a", owner) is None
            assert not await two.forget("a", owner)
        assert await two.find("b") is None
        assert await two.find("b", None) == Talk("hi")
        assert await two.keeper.find("a", Other, "ana@1") is None, "another kind"
        assert await one.find("a") == Talk("hi")


async def test_ids_and_owners_may_have_any_letters() -> None:
    async with running(FakeConversations()) as (one, two):
        one.put("ä", owner="josé@1")
        await one.keeper.written("ä")
        assert await two.find("ä", "josé@1") == Talk("hi")


async def test_the_end_of_an_answer_waits_until_it_is_written() -> None:
    store = FakeConversations()
    store.may_write.clear()
    async with running(store) as (one, two):
        one.put("a")
        assert await one.has("a"), "it is to be written"
        ending = asyncio.create_task(one.keeper.written("a"))
        await store.is_writing.wait()
        assert not ending.done()
        store.may_write.set()
        await ending
        assert await two.find("a") == Talk("hi")


async def test_it_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_service, "PATIENCE", 0.01)
    store = FakeConversations()
    store.may_write.clear()
    async with running(store) as (one, two):
        one.put("a")
        await one.keeper.written("a")
        assert await two.find("a") is None


@pytest.mark.parametrize("is_written", [False, True])
async def test_what_is_forgotten_is_forgotten_everywhere(is_written: bool) -> None:
    store = FakeConversations()
    store.may_write.clear()
    async with running(store) as (one, two):
        one.put("a")
        await store.is_writing.wait()
        one.put("b")
        if is_written:
            store.may_write.set()
            await one.keeper.flush(5)
        forgotten = asyncio.create_task(one.forget("b"))
        await asyncio.sleep(0)
        also = asyncio.create_task(one.forget("a"))  # its write has begun
        await asyncio.sleep(0)
        store.may_write.set()
        assert await forgotten and await also
        await one.keeper.flush(5)
        assert store.saved == {}
        assert not await one.has("a") and not await two.forget("a")


async def test_while_the_store_is_away_conversations_wait(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(write_behind, "FIRST_PAUSE", 0.001)
    store = FakeConversations()
    store.goes_away()
    async with running(store, 1) as (one,):
        one.put("a")
        await store.is_writing.wait()
        with pytest.raises(StoreUnavailable, match="connection refused"):
            await one.find("b")
        with pytest.raises(StoreUnavailable):
            await one.forget("b")
        assert one.keeper.num_waiting == 1
        assert await one.has("a")
        await one.keeper.written("a")  # at once: the end of an answer does not wait for it
        store.problem = None
        await one.keeper.flush(5)
    assert store.saved.keys() == {"a"}
    assert caplog.text.count("the store for conversations is away") == 1


async def test_of_too_much_some_go_on_where_they_began(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeConversations()
    store.may_write.clear()
    async with running(store, 1) as (one,):
        one.put("a", "x" * 9_000)
        one.put("b", "x" * 9_000)
        assert await one.has("a"), "here"
    assert "1 conversations wait to be written, which is too many" in caplog.text


async def test_one_that_cannot_be_written_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    store = FakeConversations()
    async with running(store, 1) as (one,):
        one.put("bad", "\ud800")
        one.put("good")
        await one.keeper.flush(5)
        assert store.saved.keys() == {"good"}
        store.problem = ValueError("a mistake")
        one.put("lost")
        await one.keeper.flush(5)
        store.problem = None
        assert await one.has("bad") and await one.has("lost"), "here"
        one.put("next")
        await one.keeper.flush(5)
    assert store.saved.keys() == {"good", "next"}


async def test_what_another_version_wrote_is_not_found(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    store = FakeConversations()
    async with running(store, 1) as (one,):
        one.keeper.put("a", Other(1), 1, "ana@1")
        await one.keeper.flush(5)
        await store.save_conversations([replace(store.saved["a"], id="b", kind="talk")])
        assert await one.find("b") is None


async def test_an_id_that_is_none_of_ours_is_not_looked_for() -> None:
    store = FakeConversations()
    store.goes_away()
    lone = Balancer(store)
    assert await lone.find("x" * (MAX_ID + 1)) is None
    assert not await lone.forget("x" * (MAX_ID + 1))


async def test_old_ones_are_deleted() -> None:
    store = FakeConversations()
    async with running(store, 1):
        async with asyncio.timeout(HANGS):
            await store.has_trimmed.wait()


async def test_one_that_the_store_does_not_take_costs_itself_and_is_not_said_to_be_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.CRITICAL)
    store = FakeConversations()
    store.unwritable = {"bad"}
    store.may_write.clear()
    async with running(store) as (one, two):
        one.put("first")
        await store.is_writing.wait()
        for id in ("good", "bad", "better"):  # one batch
            one.put(id)
        store.may_write.set()
        await one.keeper.flush(5)
        assert store.saved.keys() == {"first", "good", "better"}
        assert await two.find("bad") is None
        assert one.keeper.status() == StoreStatus(num_dropped=1, fault=LOST)
        one.put("next")
        await one.keeper.flush(5)
        assert one.keeper.status() == StoreStatus(num_dropped=1)
