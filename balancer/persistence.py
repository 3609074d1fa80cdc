"""Everything that survives a restart: the store of `--state`, and the history in this store."""

import asyncio
from collections.abc import Callable
from typing import Self

from ..shared.lifecycle import StartupError
from .cluster.peer_store import NotificationHub, PeerStore
from .fleet.view import FleetTotals
from .history.history_task import HistoryTask
from .store.history_writer import HistoryWriter
from .store.port import StoreRefused
from .store.store import Store, open_store
from .store.url import StoreUrl

LAST_WRITES = 3.0
"""Seconds at the end for writes that still wait."""


class Persistence:
    """The store and its users. `writer` writes the history to `store` in the background.

    All other reads and writes happen at once, because callers wait for them. `peers` finds other
    balancers with the same store, if several balancers can share the store.
    """

    def __init__(self, store: Store, peers: PeerStore | None = None) -> None:
        self.store = store
        self.peers = peers
        self.writer = HistoryWriter(store)
        self.history = HistoryTask(handed_over=self.writer.unwritten)

    @classmethod
    async def open(cls, url: StoreUrl, hub: NotificationHub | None = None) -> Self:
        """Open the store and read the history. Raises `StartupError` with one sentence.

        If the store does not notify other workers, `hub` does.
        """
        try:
            store = await open_store(url)
        except StoreRefused as error:
            raise StartupError(f"--state: {error}") from error
        persistence = cls(store, peer_store_of(url, store, hub))
        if persistence.peers is not None:
            persistence.history.share(store.history)
        elif store.is_lasting:
            await persistence.history.restore(store.history)
        return persistence

    async def run(self, totals: Callable[[], FleetTotals]) -> None:
        """Record the history and write to the store, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run())
            tasks.create_task(self.history.run(totals, self.writer))

    async def flush(self, totals: FleetTotals) -> None:
        """Write everything that waits, within `LAST_WRITES` seconds. `run` must be running."""
        self.history.end(totals, self.writer)
        await self.writer.flush(LAST_WRITES)

    async def close(self) -> None:
        """Close the store."""
        await self.store.close()


def peer_store_of(
    url: StoreUrl, store: Store, hub: NotificationHub | None = None
) -> PeerStore | None:
    """Return the object with which balancers over `store` find each other.

    Returns `None` if only one balancer can use the store. Workers over one SQLite file use `hub`.
    """
    if url.kind == "postgresql":
        from .cluster.postgres_peers import PostgresPeerStore  # it needs asyncpg

        return PostgresPeerStore(url, store.database)
    if hub is not None:
        store.database.on_notifications = hub.spread
    return hub
