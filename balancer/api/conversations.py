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

    Coroutines raise `StoreUnavailable`.
    """

    def put(self, id: str, entry: Any, num_bytes: int, owner: str | None) -> None: ...

    def use(self, id: str) -> None: ...

    async def find(self, id: str, kind: type[E], owner: str | None) -> E | None: ...

    async def forget(self, id: str, kind: type, owner: str | None) -> bool: ...


class Conversations:
    """`memory` has those of this balancer; `shared` all, if there may be others."""

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
        """Store it, and say whether it is stored. Others may continue it shortly after."""
        is_stored = self.memory.put(id, entry, now, owner=owner)
        if is_stored and self._shared is not None:
            self._shared.put(id, entry, entry.num_bytes, owner)
        return is_stored

    async def find(self, id: str, kind: type[E], *, owner: str | None = None) -> E | None:
        """The owner's conversation of this kind, whichever balancer stored it."""
        found = self.memory.find(id, kind, self._clock(), owner=owner)
        if self._shared is None:
            return found
        if found is None:
            return await self._shared.find(id, kind, owner)
        self._shared.use(id)
        return found

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
            return self.memory.find(id, kind, self._clock(), owner=owner)
        return self.newest_here(id, found, owner=owner)

    def newest_here(self, id: str, known: V, *, owner: str | None = None) -> V:
        """What is here under this id, if it is newer than `known`."""
        here = self.memory.find(id, type(known), self._clock(), owner=owner)
        return known if here is None or here.version <= known.version else here

    async def forget(self, id: str, kind: type[Entry], *, owner: str | None = None) -> bool:
        """Deletes it wherever it is; returns whether there was one."""
        was_here = self.memory.forget(id, kind, self._clock(), owner=owner)
        if self._shared is None:
            return was_here
        return await self._shared.forget(id, kind, owner) or was_here
