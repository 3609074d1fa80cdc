"""`/v1/conversations` over HTTP."""

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Literal

from aiohttp import web
from typing_extensions import TypedDict

from .....shared.errors import NotFound
from ....fleet.runtime.fleet_runtime import new_request_id
from ...common.answering import json_response
from ...endpoint import obeyed
from ...guard import Needs
from ...route import OPENAI, Route
from ...transport.callers import caller_of
from ...transport.fault_reports import RefusalReport
from ...transport.http import Handler
from ..responses.items import Item, with_ids
from ..responses.listing import Page, input_list, listed, parse_page
from .book import ConversationBook
from .kept import KeptConversation
from .requests import parse_items, parse_labels, parse_new


class Conversation(TypedDict):
    """A conversation without its items; `created_at` is in seconds since 1970."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: Mapping[str, str]


class DeletedConversation(TypedDict):
    """The answer to the deletion of a conversation."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


def routes(book: ConversationBook) -> list[Route]:
    """Return the routes under `/v1/conversations`."""
    handlers = _ConversationHandlers(book)
    all_of_them, one = "/v1/conversations", "/v1/conversations/{id}"
    declared: list[tuple[str, str, Callable[[web.Request], Awaitable[object]]]] = [
        ("POST", all_of_them, handlers.create),
        ("GET", one, handlers.retrieve),
        ("POST", one, handlers.update),
        ("DELETE", one, handlers.delete),
        ("POST", f"{one}/items", handlers.add),
        ("GET", f"{one}/items", handlers.list),
        ("GET", f"{one}/items/{{item}}", handlers.item),
        ("DELETE", f"{one}/items/{{item}}", handlers.remove),
    ]
    return [
        Route(method, path, Needs.CALL, _answering(answer), OPENAI)
        for method, path, answer in declared
    ]


def _answering(answer: Callable[[web.Request], Awaitable[object]]) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        with RefusalReport(request):
            return json_response(await answer(request))

    return handle


class _ConversationHandlers:
    """Handlers of the routes."""

    def __init__(self, book: ConversationBook) -> None:
        self._book = book

    async def create(self, request: web.Request) -> Conversation:
        asked = await obeyed(request, parse_new)
        items = _identified(asked.items)
        empty = KeptConversation(created_at=int(time.time()), metadata=asked.metadata)
        conversation = replace(empty.with_items(items), version=empty.version)
        id = await self._book.add(conversation, caller_of(request).owner)
        return _shown(id, conversation)

    async def retrieve(self, request: web.Request) -> Conversation:
        return _shown(request.match_info["id"], await self._found(request))

    async def update(self, request: web.Request) -> Conversation:
        asked = await obeyed(request, parse_labels)
        return await self._changed(request, lambda found: found.labelled(asked.metadata))

    async def delete(self, request: web.Request) -> DeletedConversation:
        id = request.match_info["id"]
        await self._book.forget(id, caller_of(request).owner)
        return {"id": id, "object": "conversation.deleted", "deleted": True}

    async def add(self, request: web.Request) -> object:
        asked = await obeyed(request, parse_items)
        items = _identified(asked.items)
        await self._changed(request, lambda found: found.with_items(items))
        return input_list(items, Page(limit=100, order="asc"))

    async def list(self, request: web.Request) -> object:
        page = parse_page(request.query)
        return input_list((await self._found(request)).items, page)

    async def item(self, request: web.Request) -> object:
        id = request.match_info["item"]
        found = (item for item in (await self._found(request)).items if item.id == id)
        if (item := next(found, None)) is None:
            raise _no_item(id)
        return listed(item)

    async def remove(self, request: web.Request) -> Conversation:
        return await self._changed(request, partial(_without, request.match_info["item"]))

    async def _found(self, request: web.Request) -> KeptConversation:
        return await self._book.find(request.match_info["id"], caller_of(request).owner)

    async def _changed(
        self, request: web.Request, changed: Callable[[KeptConversation], KeptConversation]
    ) -> Conversation:
        id = request.match_info["id"]
        return _shown(id, await self._book.change(id, caller_of(request).owner, changed))


def _identified(items: tuple[Item, ...]) -> tuple[Item, ...]:
    """Return the items with ids that no other items have."""
    return with_ids((replace(item, id=None) for item in items), new_request_id())


def _without(id: str, found: KeptConversation) -> KeptConversation:
    if (changed := found.without_item(id)) is None:
        raise _no_item(id)
    return changed


def _no_item(id: str) -> NotFound:
    return NotFound(f"there is no item with the id {id[:100]!r} in this conversation")


def _shown(id: str, conversation: KeptConversation) -> Conversation:
    return {
        "id": id,
        "object": "conversation",
        "created_at": conversation.created_at,
        "metadata": conversation.metadata,
    }
