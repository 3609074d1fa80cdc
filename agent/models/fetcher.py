"""Fetches model files in a separate process per fetch, which can be killed at any moment."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from ...shared.inference.values import MOST_SECONDS
from ...shared.log import context
from ...shared.models.assignments import MAX_SPEED, Download
from ..child import Child, program
from .fetch_protocol import (
    FETCH_ORDERS,
    FETCH_REPORTS,
    GO_ON,
    Arriving,
    Fetched,
    FetchOrder,
    Headed,
    Refused,
)
from .file_lock import FileLock
from .models_folder import ModelsFolder
from .port import FetchedModel, FetchError, OnHeader, OnProgress

logger = logging.getLogger(__name__)

COMMAND = program("arriero.agent.models.fetch_process")

MAX_LINE = 2**22
"""Maximum length of a report in bytes; the longest has the paths of a split model's files."""

MAX_FILE_NAME = 1024
"""Maximum characters of a file's name in `Download`."""


class Leases:
    """The leases of one model's files."""

    def __init__(self, locks: Sequence[FileLock]) -> None:
        self._locks = locks

    def release(self) -> None:
        for lock in self._locks:
            lock.touch()
            lock.release()


class Fetcher:
    """`ModelFiles` over the folder `root`, whose files may take `limit` bytes together."""

    def __init__(
        self, root: Path, limit: int | None = None, command: Sequence[str] = COMMAND
    ) -> None:
        self._folder = ModelsFolder(root, limit)
        self._command = command

    async def fetch(
        self,
        source: str,
        *,
        sha256: str | None = None,
        http_hosts: Sequence[str] = (),
        on_progress: OnProgress,
        on_header: OnHeader | None = None,
    ) -> FetchedModel:
        """Fetch a file. A cancelled fetch returns once its process has ended."""
        order = FetchOrder(
            source=source,
            sha256=sha256,
            root=self._folder.root,
            limit=self._folder.limit,
            http_hosts=tuple(http_hosts),
            shows_header=on_header is not None,
        )
        async with await self._start() as child:
            return await self._follow(child, order, on_progress, on_header)

    async def room(self) -> int | None:
        """Return the bytes that more model files may take; `None` if unknown."""
        try:
            return await asyncio.to_thread(self._folder.room)
        except OSError as error:
            logger.warning(
                "the models folder cannot be measured",
                extra=context(folder=str(self._folder.root), reason=str(error)),
            )
            return None

    async def _start(self) -> Child:
        try:
            return await Child.start(self._command, longest_line=MAX_LINE)
        except OSError as error:
            raise FetchError(
                "fetch_failed", f"the process that fetches files cannot be started: {error}"
            ) from error

    async def _follow(
        self,
        child: Child,
        order: FetchOrder,
        on_progress: OnProgress,
        on_header: OnHeader | None,
    ) -> FetchedModel:
        child.write(FETCH_ORDERS.encode(order))
        meter, clock = RateMeter(), asyncio.get_running_loop().time
        async for line in child.lines():
            match FETCH_REPORTS.decode(line):
                case Headed(remote=remote):
                    if on_header is not None:
                        await on_header(remote)
                    child.write(GO_ON)
                case Arriving(file=file, bytes=size, total=total):
                    on_progress(meter.measure(clock(), file[:MAX_FILE_NAME], size, total))
                case Fetched() as fetched:
                    return self._leased(fetched)
                case Refused() as refused:
                    raise _error(refused)
                case never:
                    assert_never(never)
        code = await child.end()
        raise FetchError("fetch_failed", f"the process that fetches files ended with code {code}")

    def _leased(self, fetched: Fetched) -> FetchedModel:
        """Return the model with leases. The process still holds its own, so taking leases never
        waits.
        """
        return FetchedModel(
            path=fetched.paths[0],
            bytes=fetched.bytes,
            others=fetched.others,
            lease=Leases([self._folder.use(file) for file in fetched.kept]),
        )


def _error(refused: Refused) -> FetchError:
    if refused.traceback:
        logger.error("a fetch failed", extra=context(traceback=refused.traceback))
    return FetchError(refused.code, refused.message, refused.hint)


WINDOW = 10.0
"""Seconds over which the rate is measured."""


class RateMeter:
    """Converts byte counts to `Download`s, with a rate from the second count on."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int]] = deque()

    def measure(self, now: float, file: str, size: int, total: int | None) -> Download:
        """Return the progress at `now`: `size` of `total` bytes have arrived."""
        if self._counts and size < self._counts[-1][1]:
            self._counts.clear()
        self._counts.append((now, size))
        while now - self._counts[0][0] > WINDOW and len(self._counts) > 2:
            self._counts.popleft()
        rate = self._rate()
        left = None if total is None or not rate else max(total - size, 0) / rate
        left = None if left is None else min(left, MOST_SECONDS)
        return Download(
            file=file, bytes=size, total=total, bytes_per_second=rate, seconds_left=left
        )

    def _rate(self) -> float | None:
        (first, before), (last, after) = self._counts[0], self._counts[-1]
        return min((after - before) / (last - first), MAX_SPEED) if last > first else None
