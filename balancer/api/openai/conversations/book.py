"""Finds, changes and stores conversations; only the owner of a conversation finds it.

There is no `await` between reading the newest version and storing the next version, so that no
change of this balancer is lost. If balancers share a store, the last change of a conversation
wins: clients should send its turns one after the other.
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
        """Store a new conversation, and return its id.

        Raises `RequestTooLarge`, or `NotSupported`.
        """
        id = f"{PREFIX}{new_request_id()}"
        self._put(id, conversation, owner)
        await self._conversations.written(id)
        return id

    async def find(
        self, id: str, owner: str | None, *, field: str | None = None
    ) -> KeptConversation:
        """Return the newest version.

        Raises `NotFound`, with the name of the `field`, and `StoreUnavailable`.
        """
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
        """Change the newest version, store the result, and return it.

        Raises the errors of `find` and `changed`.
        """
        new = changed(await self.find(id, owner))
        self._put(id, new, owner)
        await self._conversations.written(id)
        return new

    def append(
        self, id: str, known: KeptConversation, items: tuple[Item, ...], *, owner: str | None
    ) -> None:
        """Add the items of a turn that began when `known` was the newest version."""
        newest = self._conversations.newest_here(id, known, owner=owner)
        try:
            self._put(id, newest.with_items(items), owner)
        except RequestError as error:
            error.forget_frames()
            logger.warning(
                "a turn could not be added to its conversation: %s", error, extra=context(id=id)
            )

    async def forget(self, id: str, owner: str | None) -> None:
        """Delete a conversation. Raises `NotFound` and `StoreUnavailable`."""
        if not await self._conversations.forget(id, KeptConversation, owner=owner):
            raise NotFound(f"there is no conversation with the id {id[:100]!r}")

    def _put(self, id: str, conversation: KeptConversation, owner: str | None) -> None:
        if self._conversations.put(id, conversation, time.monotonic(), owner=owner):
            return
        most = self._conversations.memory.max_bytes
        if not most:
            raise NotSupported("this balancer stores no conversations (--responses-limit 0)")
        raise RequestTooLarge(
            f"the conversation has {conversation.num_bytes} bytes, which is more than this "
            f"caller's fair share of {most} bytes for all callers (--responses-limit)"
        )
