"""Conversations are found, changed and kept."""

import logging

import pytest

from arriero.balancer.api.conversation_store import ConversationStore
from arriero.balancer.api.conversations import Conversations
from arriero.balancer.api.openai.conversations.book import ConversationBook
from arriero.balancer.api.openai.conversations.kept import KeptConversation
from arriero.balancer.api.openai.responses.items import InputMessage
from arriero.shared.errors import NotFound, NotSupported, RequestTooLarge

EMPTY = KeptConversation(created_at=5)


def said(id: str, text: str = "Hi") -> InputMessage:
    return InputMessage(id=id, role="user", content=text)


async def test_its_owner_alone_finds_it() -> None:
    book = ConversationBook(Conversations())
    id = await book.add(EMPTY, "ana")
    assert await book.find(id, "ana") == EMPTY
    with pytest.raises(NotFound) as caught:
        await book.find(id, "ben", field="conversation")
    assert caught.value.field == "conversation"
    await book.forget(id, "ana")
    with pytest.raises(NotFound):
        await book.forget(id, "ana")


async def test_turns_that_overlap_are_all_kept() -> None:
    book = ConversationBook(Conversations())
    id = await book.add(EMPTY, None)
    book.append(id, EMPTY, (said("a"),), owner=None)
    book.append(id, EMPTY, (said("b"),), owner=None)
    await book.change(id, None, lambda found: found.with_items((said("c"),)))
    assert [item.id for item in (await book.find(id, None)).items] == ["a", "b", "c"]


async def test_a_turn_for_which_there_is_no_room_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    book = ConversationBook(Conversations(ConversationStore(max_bytes=200)))
    id = await book.add(EMPTY, None)
    with caplog.at_level(logging.WARNING):
        book.append(id, EMPTY, (said("a", "x" * 300),), owner=None)
    assert "a turn could not be added to its conversation" in caplog.text
    assert (await book.find(id, None)).items == ()
    with pytest.raises(RequestTooLarge):
        await book.change(id, None, lambda found: found.with_items((said("a", "x" * 300),)))


async def test_where_nothing_is_kept() -> None:
    with pytest.raises(NotSupported, match="--responses-limit 0"):
        await ConversationBook(Conversations(ConversationStore(max_bytes=0))).add(EMPTY, None)
