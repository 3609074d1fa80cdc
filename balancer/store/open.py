"""Opens the store that `--state` names.

What SQL stores need is imported for them only: it takes half a second and 30 MB.
"""

import asyncio
import errno
import os
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from .conversations.records import SavedConversations
from .kept.records import KeptStore
from .memory import MemoryStore
from .port import CordonStore, HistoryStore, KeyStore, Store, StoreAway, StoreRefused
from .url import StoreUrl

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from sqlalchemy.ext.asyncio import AsyncConnection

    Transaction = Callable[[], AbstractAsyncContextManager[AsyncConnection]]

CLOSE_TIMEOUT = 4.0
"""Seconds to wait for the thread of a connection that failed."""


@dataclass(frozen=True, slots=True)
class OpenedStore:
    """A store, the same as what keeps keys and cordons, and again if it keeps the history.

    `kept`: what keeps requests that outlive their balancer, if it does. `conversations`: what keeps
    those that several balancers may continue.
    """

    state: Store
    keys: KeyStore
    cordons: CordonStore
    history: HistoryStore | None = None
    transaction: "Transaction | None" = None
    """Opens a transaction of the database, for what keeps more in it."""
    kept: KeptStore | None = None
    conversations: SavedConversations | None = None


async def open_store(url: StoreUrl) -> OpenedStore:
    """Open it, and bring its tables to this version. Raises `StoreRefused` with one sentence."""
    if url.kind == "memory":
        memory = MemoryStore()
        return OpenedStore(memory, memory, memory)
    if url.kind == "sqlite":
        _require_file(Path(url.location))
    elif find_spec("asyncpg") is None:
        raise StoreRefused("PostgreSQL needs one more package: pip install 'arriero[postgresql]'")
    from .sql import SqlStore

    store = SqlStore(url)
    threads = set(threading.enumerate())
    try:
        await store.open()
    except (StoreAway, StoreRefused) as error:
        await store.close()
        await _ended(set(threading.enumerate()) - threads)
        raise StoreRefused(f"cannot use {url}: {error}") from error
    return OpenedStore(
        store, store, store, store, store.transaction, store.kept, store.conversations
    )


async def _ended(threads: set[threading.Thread]) -> None:
    """A connection that could not be opened has a thread, which still tells the loop that it ends.

    Without this a balancer that cannot start could end with that thread's traceback.
    """
    for thread in threads:
        if "_connection_worker" in thread.name:  # aiosqlite's
            await asyncio.to_thread(thread.join, CLOSE_TIMEOUT)


def _require_file(path: Path) -> None:
    """SQLite says of all of these that it is unable to open a file."""
    folder = path.absolute().parent
    if not folder.is_dir():
        raise StoreRefused(f"there is no folder {folder}; make it first")
    if path.is_dir():
        raise StoreRefused(f"{path} is a folder; name a file in it")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise StoreRefused(f"{path}: {os.strerror(errno.EACCES).lower()}; it must be writable")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise StoreRefused(f"{folder}: {os.strerror(errno.EACCES).lower()}; it must be writable")
