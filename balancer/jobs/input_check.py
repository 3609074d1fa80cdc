"""Checks the input of a batch, off the event loop, and stores its chunks."""

import asyncio
from collections.abc import Callable

from ...shared.errors import NotFound
from ..store.job_records import Chunk
from .blobs.threads import on_thread
from .core.batch import Batch, Fault
from .files import blob_of
from .inputs.indexing import Index, index
from .tools import Tools


class NotWanted(Exception):
    """Nobody waits for the check any more."""


async def check_input(batch: Batch, tools: Tools, is_wanted: Callable[[], bool]) -> Index:
    """What was found; what an earlier check left behind is forgotten.

    Raises `NotWanted` some time after `is_wanted` says no, and `StoreAway` and `BlobsAway`.
    """
    loop = asyncio.get_running_loop()

    def found(chunks: list[Chunk]) -> None:
        if not is_wanted():
            raise NotWanted
        adding = tools.store.add_chunks(batch.id, chunks)
        asyncio.run_coroutine_threadsafe(adding, loop).result()

    def read() -> Index:
        with tools.blobs.open(blob_of(batch.input_file)) as file:
            return index(file, batch.endpoint, tools.scratch / f"{batch.id}.ids", found)

    async with tools.checking:
        await tools.store.forget_chunks(batch.id)
        try:
            await tools.files.find(batch.input_file, batch.caller.owner)
        except NotFound:
            return Index(faults=[Fault(code="file_not_found", message="the input file is gone")])
        return await on_thread(read)
