"""Conversations of several balancers over one store."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from pydantic import TypeAdapter

from arriero.balancer.cluster.questions import Replies, Reply
from arriero.balancer.durable import conversation_service as conversation_service
from arriero.balancer.durable.conversation_service import (
    MAX_ID,
    PRESENCE,
    QUESTION,
    About,
    ConversationService,
    Presence,
)
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
    """A keeper, and what is in its balancer's memory."""

    def __init__(self, store: FakeConversations) -> None:
        self.memory: set[tuple[str, type, str | None]] = set()
        self.keeper = ConversationService(store, BOUNDS, KINDS, self._forget)

    def _forget(self, id: str, kind: type, owner: str | None) -> bool:
        was_here = (id, kind, owner) in self.memory
        self.memory.discard((id, kind, owner))
        return was_here

    def put(self, id: str, text: str = "hi", owner: str | None = "ana@1") -> None:
        self.memory.add((id, Talk, owner))
        self.keeper.put(id, Talk(text), len(text), owner)

    async def find(self, id: str, owner: str | None = "ana@1") -> Talk | None:
        return await self.keeper.find(id, Talk, owner)

    async def forget(self, id: str, owner: str | None = "ana@1") -> bool:
        return await self.keeper.forget(id, Talk, owner)


def asking(*others: Balancer) -> Callable[[str, str], Awaitable[Replies]]:
    async def ask(what: str, about: str) -> Replies:
        assert what == QUESTION and about.isascii(), "as news have to be"
        bodies = [await each.keeper.respond(about) for each in others]
        return Replies(tuple(Reply("other", body) for body in bodies if body is not None))

    return ask


@asynccontextmanager
async def running(store: FakeConversations, num: int = 2) -> AsyncIterator[list[Balancer]]:
    """So many balancers over the store, each of which asks the others."""
    balancers = [Balancer(store) for _ in range(num)]
    async with AsyncExitStack() as stack:
        for each in balancers:
            each.keeper.serve(asking(*(other for other in balancers if other is not each)))
            task = asyncio.create_task(each.keeper.run())
            stack.push_async_callback(cancelled, task)
        yield balancers


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def test_what_one_keeps_another_finds() -> None:
    async with running(FakeConversations()) as (one, two):
        one.put("a", "hello")
        assert await two.find("a") == Talk("hello")
        assert one.keeper.num_waiting == 0
        assert await two.find("b") is None


async def test_an_owner_is_told_of_his_own_alone() -> None:
    async with running(FakeConversations()) as (one, two):
        one.put("a")
        one.put("b", owner=None)
        for owner in ("ben@1", None):
            assert await two.find("a", owner) is None
            assert not await two.forget("a", owner)
        assert await two.find("b") is None
        assert await two.find("b", None) == Talk("hi")
        assert await two.keeper.find("a", Other, "ana@1") is None, "another kind"
        assert await one.find("a") == Talk("hi")


async def test_ids_and_owners_may_have_any_letters() -> None:
    store = FakeConversations()
    store.may_write.clear()
    async with running(store) as (one, two):
        one.put("ä", owner="josé@1")
        found = asyncio.create_task(two.find("ä", "josé@1"))
        await store.is_writing.wait()
        store.may_write.set()
        assert await found == Talk("hi")


async def test_what_is_not_written_yet_is_waited_for() -> None:
    store = FakeConversations()
    store.may_write.clear()
    async with running(store) as (one, two):
        one.put("a")
        found = asyncio.create_task(two.find("a"))
        await store.is_writing.wait()
        assert not found.done()
        store.may_write.set()
        assert await found == Talk("hi")


async def test_one_that_is_written_before_its_balancer_is_asked_is_found() -> None:
    store = FakeConversations()
    async with running(store, num=1) as (one,):
        lone = Balancer(store)
        ask_one = asking(one)

        async def ask(what: str, about: str) -> Replies:
            one.put("a")
            await one.keeper.flush(5.0)
            return await ask_one(what, about)

        lone.keeper.serve(ask)
        assert await lone.find("a") == Talk("hi")


async def test_who_waits_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversation_service, "PATIENCE", 0.01)
    store = FakeConversations()
    store.may_write.clear()
    async with running(store) as (one, two):
        one.put("a")
        assert await two.find("a") is None


@pytest.mark.parametrize("is_written", [False, True])
async def test_what_is_forgotten_is_forgotten_everywhere(is_written: bool) -> None:
    store = FakeConversations()
    store.may_write.clear()
    async with running(store, 3) as (one, two, three):
        one.put("a")
        await store.is_writing.wait()
        one.put("b")
        if is_written:
            store.may_write.set()
            await one.keeper.flush(5)
        forgotten = asyncio.create_task(two.forget("b"))
        await asyncio.sleep(0)
        also = asyncio.create_task(two.forget("a"))  # its write has begun
        await asyncio.sleep(0)
        store.may_write.set()
        assert await forgotten and await also
        await one.keeper.flush(5)
        assert (store.saved, one.memory) == ({}, set())
        assert not await three.forget("a")


async def test_what_was_used_is_noted() -> None:
    store = FakeConversations()
    async with running(store) as (one, _):
        one.put("a")
        await one.keeper.flush(5)
        one.keeper.use("a")
        await one.keeper.flush(5)
    assert store.used == ["a"]


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
        store.problem = None
        await one.keeper.flush(5)
    assert store.saved.keys() == {"a"}
    assert caplog.text.count("the store of conversations is away") == 1


async def test_of_too_much_some_go_on_where_they_began(caplog: pytest.LogCaptureFixture) -> None:
    store = FakeConversations()
    store.may_write.clear()
    async with running(store, 1) as (one,):
        one.put("a", "x" * 9_000)
        one.put("b", "x" * 9_000)
    assert "conversations that are not written, and go on here alone: 1" in caplog.text


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


@pytest.mark.parametrize(
    "text", ["{}", "no", '{"id":"a","kind":"x","owner":"","is_unwanted":true}']
)
async def test_a_question_of_another_version_has_no_answer(text: str) -> None:
    assert await Balancer(FakeConversations()).keeper.respond(text) is None


async def test_an_answer_of_another_version_is_none() -> None:
    lone = Balancer(FakeConversations())

    async def ask(_what: str, _about: str) -> Replies:
        return Replies(
            (Reply("new", b"[]"), Reply("well", PRESENCE.dump_json(Presence(was_here=False))))
        )

    lone.keeper.serve(ask)
    assert await lone.find("a") is None


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
        one.keeper.use("first")
        told = [
            asyncio.create_task(one.keeper.respond(json.dumps(about(id)))) for id in ("bad", "good")
        ]
        await asyncio.sleep(0)
        store.may_write.set()
        assert [PRESENCE.validate_json(await each or b"") for each in told] == [
            Presence(was_here=False),
            Presence(was_here=True),
        ]
        await one.keeper.flush(5)
        assert store.saved.keys() == {"first", "good", "better"}
        assert await two.find("bad") is None
        assert one.keeper.status() == StoreStatus(num_dropped=1, fault=LOST)
        one.put("next")
        await one.keeper.flush(5)
        assert one.keeper.status() == StoreStatus(num_dropped=1)


def about(id: str) -> About:
    return About(id=id, kind="talk", owner="ana@1", is_unwanted=False)
