"""Deletes bytes that nothing refers to any more.

They are left by uploads that were cut off, by files whose rows went when the process was killed,
and by balancers that wrote results of a batch which others had ended. What is younger than
`FORGOTTEN` is left alone: its row may be about to come. And where the store knows none of the files
that are here, they may be another store's: then nothing is touched.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence

from ..store.jobs import JobStore
from .blobs.port import Blobs
from .blobs.threads import on_thread

FORGOTTEN = 86_400.0
"""Seconds after which nobody writes at bytes any more that have no row."""

AT_ONCE = 200

logger = logging.getLogger(__name__)


async def sweep(store: JobStore, blobs: Blobs, now: float) -> int:
    """How many blobs went. Raises `StoreAway` and `BlobsAway`.

    Names are listed before the store is asked: what came in between is too young.
    """
    before = now - FORGOTTEN
    await on_thread(blobs.sweep, before)
    files = await on_thread(blobs.names, "files")
    results = await on_thread(blobs.names, "batches")
    orphans = await _files(store, files)
    if not store.is_lasting or len(orphans) == len(files) > 0:
        return 0
    orphans += await _results(store, results)
    num_deleted = await on_thread(_delete_old, blobs, orphans, before)
    if num_deleted:
        logger.info("%d blobs that nothing referred to are deleted", num_deleted)
    return num_deleted


async def _files(store: JobStore, names: Iterable[str]) -> list[str]:
    """Those of files without a row."""
    orphans: list[str] = []
    for part in _parts([name for name in names if _second(name).startswith("file-")]):
        known = await store.known_files([_second(name) for name in part])
        orphans += [name for name in part if _second(name) not in known]
    return orphans


async def _results(store: JobStore, names: Iterable[str]) -> list[str]:
    """Those of batches that are not open: only open ones refer to results of chunks."""
    found = [name for name in names if _second(name).startswith("batch_")]
    open_ids = {batch.id for batch in await store.open_batches()} if found else set()
    return [name for name in found if _second(name) not in open_ids]


def _delete_old(blobs: Blobs, names: Iterable[str], before: float) -> int:
    num_deleted = 0
    for name in names:
        at = blobs.modified_at(name)
        if at is not None and at < before:
            blobs.delete(name)
            num_deleted += 1
    return num_deleted


def _second(name: str) -> str:
    """The id in `files/ID` or `batches/ID/…`."""
    return name.split("/")[1]


def _parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    return (names[start : start + AT_ONCE] for start in range(0, len(names), AT_ONCE))
