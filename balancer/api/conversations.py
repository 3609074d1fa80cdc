"""Conversations that later requests continue or read, of this balancer and of a shared store."""

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ...shared.errors import StoreUnavailable
from .conversation_store import ConversationStore, E, Entry


class Versioned(Entry, Protocol):
    """A conversation that can change; each change has the next version."""

    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=Versioned)


class SharedConversations(Protocol):
    """The conversations of several balancers: `balancer.durable.conversation_service`.

    `has`, `find` and `forget` raise `StoreUnavailable`.
    """

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None: ...

    async def written(self, id: str) -> None: ...

    async def has(self, id: str, kind: type[Entry], owner: str | None) -> bool: ...

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None: ...

    async def forget(self, id: str, kind: type, owner: str | None) -> bool: ...


class Conversations:
    """All conversations.

    `memory` has the conversations of this balancer, and `shared` the shared store, if there is one.

    A conversation in memory that is missing in `shared` was deleted by another balancer, or is too
    old.
    """

    def __init__(
        self,
        memory: ConversationStore | None = None,
        shared: SharedConversations | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory = ConversationStore() if memory is None else memory
        self._shared = shared
        self._clock = clock

    def put(self, id: str, entry: Entry, now: float, *, owner: str | None = None) -> bool:
        """Store the conversation. Returns whether it is stored.

        After `written`, any balancer may continue it.
        """
        is_stored = self.memory.put(id, entry, now, owner=owner, is_shared=self._shared is not None)
        if is_stored and self._shared is not None:
            self._shared.put(id, entry, entry.num_bytes, owner)
        return is_stored

    async def written(self, *ids: str) -> None:
        """Wait until any balancer can continue these conversations.

        Waits only for a short time, and not while the store is away.
        """
        if self._shared is not None:
            for id in ids:
                await self._shared.written(id)

    async def find(self, id: str, kind: type[E], *, owner: str | None = None) -> E | None:
        """Return the owner's conversation of this kind, whichever balancer stored it.

        While the store is away, returns the conversation in memory.
        """
        here = self.memory.find(id, kind, self._clock(), owner=owner)
        if self._shared is None or (here is not None and not self.memory.is_shared(id)):
            return here
        if here is None:
            return await self._shared.find(id, kind, owner)
        try:
            is_there = await self._shared.has(id, kind, owner)
        except StoreUnavailable:
            return here
        newest = self.memory.find(id, kind, self._clock(), owner=owner)
        if not is_there and newest is here:
            self.memory.drop(id)
            return None
        return newest

    async def find_newest(self, id: str, kind: type[V], *, owner: str | None = None) -> V | None:
        """Return the newest version of the owner's conversation of a kind that changes.

        Another balancer may have a newer version than this one. While the store is away, the
        version in memory counts as the newest.
        """
        here = self.memory.find(id, kind, self._clock(), owner=owner)
        if self._shared is None:
            return here
        try:
            found = await self._shared.find(id, kind, owner)
        except StoreUnavailable:
            if here is None:
                raise
            found = None
        if found is None:
            return await self.find(id, kind, owner=owner)
        return self.newest_here(id, found, owner=owner)

    def newest_here(self, id: str, known: V, *, owner: str | None = None) -> V:
        """Return the version in this balancer's memory, or `known` if `known` is newer."""
        here = self.memory.find(id, type(known), self._clock(), owner=owner)
        return known if here is None or here.version <= known.version else here

    async def forget(self, id: str, kind: type[Entry], *, owner: str | None = None) -> bool:
        """Delete the owner's conversation everywhere. Returns whether it existed."""
        was_here = self.memory.forget(id, kind, self._clock(), owner=owner)
        if self._shared is None:
            return was_here
        return await self._shared.forget(id, kind, owner) or was_here
