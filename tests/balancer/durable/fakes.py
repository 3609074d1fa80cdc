"""A store of conversations that can be away, can hold its writes, and can fail."""

import asyncio
from collections.abc import Collection

from arriero.balancer.store.conversations import (
    ConversationBounds,
    SavedConversation,
    SavedConversations,
)
from arriero.balancer.store.port import StoreAway
from tests.balancer.stores import MemoryStore


class FakeConversations(SavedConversations):
    """In memory. `problem` is raised by every call until it is `None`; writes wait for `may_write`.

    `saved` are those that were written and not forgotten.
    """

    def __init__(self) -> None:
        super().__init__(MemoryStore().database)
        self.saved: dict[str, SavedConversation] = {}
        self.used: list[str] = []
        self.has_trimmed = asyncio.Event()
        self.problem: Exception | None = None
        self.unwritable: set[str] = set()
        """Ids that no write may have."""
        self.may_write = asyncio.Event()
        self.may_write.set()
        self.is_writing = asyncio.Event()

    def goes_away(self) -> None:
        self.problem = StoreAway("connection refused")

    async def save_conversations(self, conversations: Collection[SavedConversation]) -> None:
        self.is_writing.set()
        await self.may_write.wait()
        self._check()
        if any(each.id in self.unwritable for each in conversations):
            raise OverflowError("too large")
        await super().save_conversations(conversations)
        self.saved |= {each.id: each for each in conversations}

    async def use_conversation(self, id: str, kind: str, owner: str) -> bool:
        self._check()
        self.used.append(id)
        return await super().use_conversation(id, kind, owner)

    async def find_conversation(self, id: str, kind: str, owner: str) -> bytes | None:
        self._check()
        return await super().find_conversation(id, kind, owner)

    async def forget_conversation(self, id: str, kind: str, owner: str) -> bool:
        self._check()
        was_there = await super().forget_conversation(id, kind, owner)
        if was_there:
            del self.saved[id]
        return was_there

    async def trim_conversations(self, bounds: ConversationBounds) -> int:
        self.has_trimmed.set()
        self._check()
        return await super().trim_conversations(bounds)

    def _check(self) -> None:
        if self.problem is not None:
            raise self.problem
