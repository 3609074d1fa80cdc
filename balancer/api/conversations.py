"""Conversations that later requests continue or read: here, and where balancers share a store."""

import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from ...shared.errors import StoreUnavailable
from .conversation_store import ConversationStore, E, Entry


class Versioned(Entry, Protocol):
    """A conversation that changes: each change has the next version."""

    @property
    def version(self) -> int: ...


V = TypeVar("V", bound=Versioned)


class SharedConversations(Protocol):
    """Conversations of several balancers: `balancer.durable.conversation_service`.

    `has`, `find` and `forget` raise `StoreUnavailable`.
    """

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None: ...

    async def written(self, id: str) -> None: ...

    async def has(self, id: str, kind: type[Entry], owner: str | None) -> bool: ...

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None: ...

    async def forget(self, id: str, kind: type, owner: str | None) -> bool: ...


class Conversations:
    """`memory` has those of this balancer; `shared` all, if there may be others.

    Then what is in memory and no longer in `shared` was removed at another balancer, or is too old.
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
        """Store it, and say whether it is stored. Any balancer may continue it once `written`."""
        is_stored = self.memory.put(id, entry, now, owner=owner, is_shared=self._shared is not None)
        if is_stored and self._shared is not None:
            self._shared.put(id, entry, entry.num_bytes, owner)
        return is_stored

    async def written(self, *ids: str) -> None:
        """Wait until any balancer can continue these; not for long, nor while the store is away."""
        if self._shared is not None:
            for id in ids:
                await self._shared.written(id)

    async def find(self, id: str, kind: type[E], *, owner: str | None = None) -> E | None:
        """The owner's conversation of this kind, whichever balancer stored it.

        While the store is away, what is here goes on here.
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
        """The owner's conversation of a kind that changes, as it is by now.

        Another balancer may have a newer one than this has. While the store is away, what is here
        is the newest.
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
        """The entry of this id in this balancer, if it is newer than `known`."""
        here = self.memory.find(id, type(known), self._clock(), owner=owner)
        return known if here is None or here.version <= known.version else here

    async def forget(self, id: str, kind: type[Entry], *, owner: str | None = None) -> bool:
        """Deletes it wherever it is; returns whether there was one."""
        was_here = self.memory.forget(id, kind, self._clock(), owner=owner)
        if self._shared is None:
            return was_here
        return await self._shared.forget(id, kind, owner) or was_here
