"""The real store in memory, as tests need it; the fixture `closes_stores` closes what they made."""

import asyncio
import threading

from arriero.balancer.store.store import Store
from arriero.balancer.store.url import StoreUrl

_MADE: list["MemoryStore"] = []


class MemoryStore(Store):
    """`memory://`. Tests that need a store that fails or waits inherit from it."""

    def __init__(self) -> None:
        super().__init__(StoreUrl("memory"))
        _MADE.append(self)


async def close_all() -> None:
    """Close what was made since the last call."""
    while _MADE:
        await _MADE.pop().close()
    for thread in threading.enumerate():
        if "_connection_worker" in thread.name:  # it has to end before the loop does
            await asyncio.to_thread(thread.join, 5)
