"""A store of conversations that can be away, can hold its writes, and can fail."""

import asyncio
from collections.abc import Collection

from arriero.balancer.store.conversations.records import ConversationBounds, SavedConversation
from arriero.balancer.store.port import StoreAway


class FakeConversations:
    """`problem` is raised by every call until it is `None`; writes wait for `may_write`."""

    def __init__(self) -> None:
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

    async def save_conversations(
        self, conversations: Collection[SavedConversation], used: Collection[str] = ()
    ) -> None:
        self.is_writing.set()
        await self.may_write.wait()
        self._check()
        if any(each.id in self.unwritable for each in conversations):
            raise OverflowError("too large")
        self.saved |= {each.id: each for each in conversations}
        self.used += used

    async def find_conversation(self, id: str, kind: str, owner: str) -> bytes | None:
        self._check()
        found = self.saved.get(id)
        is_it = found is not None and (found.kind, found.owner) == (kind, owner)
        return found.document if found is not None and is_it else None

    async def forget_conversation(self, id: str, kind: str, owner: str) -> bool:
        if await self.find_conversation(id, kind, owner) is None:
            return False
        del self.saved[id]
        return True

    async def trim_conversations(self, bounds: ConversationBounds) -> int:
        self.has_trimmed.set()
        self._check()
        return 0

    def _check(self) -> None:
        if self.problem is not None:
            raise self.problem
