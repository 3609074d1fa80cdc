"""The contract of what keeps conversations, in both databases."""

import asyncio
from dataclasses import replace

import pytest

from arriero.balancer.store.conversations import (
    ConversationBounds,
    SavedConversation,
    SavedConversations,
)
from tests.balancer.store.conftest import OpenStore

FIRST = SavedConversation(id="a", owner="ana@1", kind="talk", document=b"\0\xff1", num_bytes=3)
WIDE = ConversationBounds(num=100, num_bytes=1000, age=1000.0)


@pytest.fixture
async def store(opened_sql: OpenStore) -> SavedConversations:
    return (await opened_sql()).conversations


async def found(store: SavedConversations, *ids: str) -> list[str]:
    return [id for id in ids if await store.find_conversation(id, "talk", "ana@1")]


async def test_another_balancer_finds_it(opened_sql: OpenStore) -> None:
    await (await opened_sql()).conversations.save_conversations([FIRST])
    other = (await opened_sql()).conversations
    assert await other.find_conversation("a", "talk", "ana@1") == b"\0\xff1"
    assert await other.find_conversation("b", "talk", "ana@1") is None


async def test_whoever_has_another_owner_or_kind_finds_nothing(store: SavedConversations) -> None:
    await store.save_conversations([FIRST])
    for kind, owner in (("talk", "ben@1"), ("talk", ""), ("other", "ana@1")):
        assert await store.find_conversation("a", kind, owner) is None
        assert not await store.use_conversation("a", kind, owner)
        assert not await store.forget_conversation("a", kind, owner)
    assert await store.forget_conversation("a", "talk", "ana@1")
    assert not await store.forget_conversation("a", "talk", "ana@1")


async def test_the_same_again_changes_nothing(store: SavedConversations) -> None:
    await store.save_conversations([FIRST])
    await store.save_conversations([FIRST, replace(FIRST, id="b")])
    assert await found(store, "a", "b") == ["a", "b"]


async def test_what_is_saved_again_takes_its_place_if_it_is_the_owners(
    store: SavedConversations,
) -> None:
    await store.save_conversations([FIRST])
    await store.save_conversations([replace(FIRST, document=b"2", num_bytes=1)])
    assert await store.find_conversation("a", "talk", "ana@1") == b"2"
    others = [replace(FIRST, owner="ben@1"), replace(FIRST, kind="other")]
    for other in others:
        await store.save_conversations([replace(other, document=b"3")])
    assert await store.find_conversation("a", "talk", "ana@1") == b"2"


@pytest.mark.parametrize(
    ("bounds", "kept"),
    [
        (WIDE, ["a", "b", "c"]),
        (replace(WIDE, num=2), ["a", "c"]),
        (replace(WIDE, num_bytes=6), ["a", "c"]),
        (replace(WIDE, age=-1.0), []),
    ],
)
async def test_the_least_recently_used_go_first(
    store: SavedConversations, bounds: ConversationBounds, kept: list[str]
) -> None:
    for id in "abc":
        await store.save_conversations([replace(FIRST, id=id)])
        await asyncio.sleep(0.003)  # the database's clock goes on
    assert await store.use_conversation("a", "talk", "ana@1")
    assert await store.trim_conversations(bounds) == 3 - len(kept)
    assert await found(store, "a", "b", "c") == kept


@pytest.mark.parametrize("bounds", [replace(WIDE, num=3), replace(WIDE, num_bytes=30)])
async def test_whoever_stores_most_loses_the_oldest(
    store: SavedConversations, bounds: ConversationBounds
) -> None:
    """One owner's many, all newer, cost another owner nothing."""
    await store.save_conversations([replace(FIRST, id="bens", owner="ben@1", num_bytes=10)])
    for id in "abcd":
        await asyncio.sleep(0.003)  # the database's clock goes on
        await store.save_conversations([replace(FIRST, id=id, num_bytes=10)])
    assert await store.trim_conversations(bounds) == 2
    assert await store.find_conversation("bens", "talk", "ben@1") is not None
    assert await found(store, "a", "b", "c", "d") == ["c", "d"]


async def test_what_is_found_is_used(store: SavedConversations) -> None:
    for id in "ab":
        await store.save_conversations([replace(FIRST, id=id)])
        await asyncio.sleep(0.003)
    await store.find_conversation("a", "talk", "ana@1")
    assert await store.trim_conversations(replace(WIDE, num=1)) == 1
    assert await found(store, "a", "b") == ["a"]


async def test_text_that_a_database_cannot_hold_is_found_by_itself(
    store: SavedConversations,
) -> None:
    await store.save_conversations([replace(FIRST, id="a\0", owner="o\0")])
    assert await store.find_conversation("a\0", "talk", "o\0") is not None
