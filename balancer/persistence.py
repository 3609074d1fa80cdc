"""What survives a restart, wired up: the store of `--state`, the task that writes, the history."""

import asyncio
from collections.abc import Callable
from typing import Self

from ..shared.lifecycle import StartupError
from .fleet.view import FleetTotals
from .history.history_task import History
from .store.jobs.open import job_store_of
from .store.open import OpenedStore, open_store
from .store.peers.open import peer_store_of
from .store.peers.port import NewsHub, PeerStore
from .store.port import StoreRefused
from .store.records import PersistOutcome
from .store.url import StoreUrl
from .store.writer import StoreWriter

LAST_WRITES = 3.0
"""Seconds that the store has, at the end, for what was not written yet."""


class Persistence:
    """`store` is for reading at the start; `writer` saves, and `history` is kept by it.

    `keys`, `cordons` and `jobs` are read and written at once, since whoever changes one waits.
    `kept` is of requests that outlive the balancer, in a store that lasts. `peers` is of other
    balancers, and `conversations` of what any of them may continue, in a store that several may
    share.
    """

    def __init__(self, opened: OpenedStore, peers: PeerStore | None = None) -> None:
        self.store = opened.state
        self.keys = opened.keys
        self.cordons = opened.cordons
        self.jobs = job_store_of(opened)
        self.kept = opened.kept
        self.peers = peers
        self.conversations = None if peers is None else opened.conversations
        self.writer = StoreWriter(opened.state, history=opened.history)
        self.history = History(handed_over=self.writer.unwritten)

    @classmethod
    async def open(cls, url: StoreUrl, hub: NewsHub | None = None) -> Self:
        """Open the store and read the history back. Raises `StartupError`, one sentence.

        `hub` tells other workers the news that the store does not tell by itself.
        """
        try:
            opened = await open_store(url)
        except StoreRefused as error:
            raise StartupError(f"--state: {error}") from error
        persistence = cls(opened, peer_store_of(url, opened, hub))
        if opened.history is not None and persistence.peers is not None:
            persistence.history.share(opened.history)
        elif opened.history is not None:
            await persistence.history.restore(opened.history)
        return persistence

    async def run(
        self, totals: Callable[[], FleetTotals], told: Callable[[PersistOutcome], None]
    ) -> None:
        """Keep the history and write, until cancelled. `told` gets one outcome for each save."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.writer.run(told))
            tasks.create_task(self.history.run(totals, self.writer))

    async def flush(self, totals: FleetTotals) -> None:
        """Write what there is, as far as the store takes it in time; `run` still has to run."""
        self.history.end(totals, self.writer)
        await self.writer.flush(LAST_WRITES)

    async def close(self) -> None:
        """Let go of the store."""
        await self.store.close()
