"""Finds, changes and keeps conversations, each of which its owner alone finds.

Between the moment that the newest version is known and the one that the next is put nothing is
awaited, so that no change of this balancer is lost. Where balancers share a store the last change
of a conversation counts: its turns are to come one after the other.
"""

import logging
import time
from collections.abc import Callable

from .....shared.errors import NotFound, NotSupported, RequestError, RequestTooLarge
from .....shared.log import context
from ....fleet.runtime.fleet_runtime import new_request_id
from ...conversations import Conversations
from ..responses.items import Item
from .kept import PREFIX, KeptConversation

logger = logging.getLogger(__name__)


class ConversationBook:
    """The conversations of all callers, in `conversations`."""

    def __init__(self, conversations: Conversations) -> None:
        self._conversations = conversations

    async def add(self, conversation: KeptConversation, owner: str | None) -> str:
        """Keep a new one; its id. Raises `RequestTooLarge`, or `NotSupported`."""
        id = f"{PREFIX}{new_request_id()}"
        self._put(id, conversation, owner)
        await self._conversations.written(id)
        return id

    async def find(
        self, id: str, owner: str | None, *, field: str | None = None
    ) -> KeptConversation:
        """The newest version. Raises `NotFound`, of that field, and `StoreUnavailable`."""
        found = await self._conversations.find_newest(id, KeptConversation, owner=owner)
        if found is None:
            raise NotFound(f"there is no conversation with the id {id[:100]!r}", field=field)
        return found

    async def change(
        self,
        id: str,
        owner: str | None,
        changed: Callable[[KeptConversation], KeptConversation],
    ) -> KeptConversation:
        """The newest version, changed and kept. Raises as `find` and `changed` do."""
        new = changed(await self.find(id, owner))
        self._put(id, new, owner)
        await self._conversations.written(id)
        return new

    def append(
        self, id: str, known: KeptConversation, items: tuple[Item, ...], *, owner: str | None
    ) -> None:
        """The items of a turn that began when `known` was its newest version."""
        newest = self._conversations.newest_here(id, known, owner=owner)
        try:
            self._put(id, newest.with_items(items), owner)
        except RequestError as error:
            logger.warning("a turn is not in its conversation: %s", error, extra=context(id=id))

    async def forget(self, id: str, owner: str | None) -> None:
        """Raises `NotFound` and `StoreUnavailable`."""
        if not await self._conversations.forget(id, KeptConversation, owner=owner):
            raise NotFound(f"there is no conversation with the id {id[:100]!r}")

    def _put(self, id: str, conversation: KeptConversation, owner: str | None) -> None:
        if self._conversations.put(id, conversation, time.monotonic(), owner=owner):
            return
        most = self._conversations.memory.max_bytes
        if not most:
            raise NotSupported("no conversations are kept here (--responses-limit 0)")
        raise RequestTooLarge(
            f"the conversation takes {conversation.num_bytes} bytes, more than this caller's fair "
            f"share of the {most} that all callers have together (--responses-limit)"
        )
