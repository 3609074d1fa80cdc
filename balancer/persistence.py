"""What survives a restart, wired up: the store of `--state`, the task that writes, the history."""

import asyncio
from collections.abc import Callable
from typing import Self

from ..shared.lifecycle import StartupError
from .cluster.peer_store import NotificationHub, PeerStore
from .fleet.view import FleetTotals
from .history.history_task import HistoryTask
from .store.port import StoreRefused
from .store.store import Store, open_store
from .store.url import StoreUrl
from .store.writer import StoreWriter

LAST_WRITES = 3.0
"""Seconds that the store has, at the end, for what was not written yet."""


class Persistence:
    """`writer` saves the desired state in `store`, and `history` is kept there by it.

    Everything else is read and written at once, since what changes it waits. `peers` finds other
    balancers, in a store that several may share.
    """

    def __init__(self, store: Store, peers: PeerStore | None = None) -> None:
        self.store = store
        self.peers = peers
        self.writer = StoreWriter(store)
        self.history = HistoryTask(handed_over=self.writer.unwritten)

    @classmethod
    async def open(cls, url: StoreUrl, hub: NotificationHub | None = None) -> Self:
        """Open the store and read the history back. Raises `StartupError`, one sentence.

        `hub` carries notifications to other workers where the store does not.
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
        """Keep the history and write, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run())
            tasks.create_task(self.history.run(totals, self.writer))

    async def flush(self, totals: FleetTotals) -> None:
        """Write what there is, as far as the store takes it in time; `run` still has to run."""
        self.history.end(totals, self.writer)
        await self.writer.flush(LAST_WRITES)

    async def close(self) -> None:
        """Let go of the store."""
        await self.store.close()


def peer_store_of(
    url: StoreUrl, store: Store, hub: NotificationHub | None = None
) -> PeerStore | None:
    """What lets balancers over `store` find one another; `None` where there is one only.

    `hub` does so for workers over one SQLite file.
    """
    if url.kind == "postgresql":
        from .cluster.postgres_peers import PostgresPeerStore  # it needs asyncpg

        return PostgresPeerStore(url, store.database)
    if hub is not None:
        store.database.on_notifications = hub.spread
    return hub
