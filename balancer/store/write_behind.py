"""Writes to the store in the background, so that no caller waits for the store.

An item that cannot be written affects no other item: if a batch fails, its halves are written
separately, and so on, until the faulty item is alone and lost. While the store is away, all items
wait, and the writer retries. Invariant: at most one write is in progress.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Generic, Protocol, TypeVar

from ...shared.log import context
from .health import StoreHealth
from .port import StoreAway
from .records import StoreStatus

logger = logging.getLogger(__name__)

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 1.0
"""Maximum seconds between two tries while the store is away. The pause doubles."""

TRY_TIMEOUT = 5.0
"""Seconds after which a store without an answer counts as away."""

MAX_ERROR = 300
"""Maximum characters of a driver's message about an item, which may quote the item."""


@asynccontextmanager
async def in_time() -> AsyncIterator[None]:
    """Return a context that raises `StoreAway` if its block takes too long."""
    try:
        async with asyncio.timeout(TRY_TIMEOUT):
            yield
    except TimeoutError as error:
        raise StoreAway(f"no answer within {TRY_TIMEOUT:g} s") from error


Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Outcome_contra = TypeVar("Outcome_contra", contravariant=True)


class Backlog(Protocol[Item, Outcome_contra]):
    """A bounded queue of items to write.

    An item stays in the queue until it is written or lost.
    """

    def __len__(self) -> int:
        """Return the number of items that are not known to be in the store."""

    @property
    def has_any(self) -> bool:
        """Whether any items wait to be written."""

    def next_batch(self) -> Sequence[Item]:
        """Return the next items to write together, in order."""

    def written(self, items: Sequence[Item], outcome: Outcome_contra, /) -> None:
        """Remove items that were written."""

    def lost(self, item: Item) -> None:
        """Remove `item`, which can never be written."""


class WriteBehind(Generic[Item, Outcome]):
    """Writes the items of one backlog. `stir` never waits, and may be called before `run`."""

    def __init__(
        self,
        backlog: Backlog[Item, Outcome],
        write: Callable[[Sequence[Item]], Awaitable[Outcome]],
        *,
        health: StoreHealth,
        loss: str,
        name_of: Callable[[Item], Mapping[str, object]],
        gather: float = 0.0,
    ) -> None:
        """Make a writer. `write` writes items.

        `write` raises `StoreAway`, or another error for a faulty item. The log line of a lost item
        has `loss` and the item's name. Items that are not urgent are gathered for `gather` seconds
        before they are written.
        """
        self.health = health
        self._backlog = backlog
        self._write = write
        self._loss = loss
        self._name_of = name_of
        self._gather_for = gather
        self._num_flushes = 0
        self._most_at_once: int | None = None
        self._pause = FIRST_PAUSE
        self._notifications = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._end_of_write: asyncio.Future[Sequence[Item]] | None = None
        self.under_way: Sequence[Item] = ()
        """The items that are being written."""

    def status(self) -> StoreStatus:
        """Return the store's status after the last attempt."""
        return self.health.status(len(self._backlog))

    def stir(self, *, is_urgent: bool = True) -> None:
        """Wake the writer, because there are more items to write."""
        self._is_idle.clear()
        self._notifications.set()
        if is_urgent:
            self._is_urgent.set()

    async def written(self) -> Sequence[Item]:
        """Wait until a write has ended. Returns the lost items of the write."""
        if self._end_of_write is None:
            self._end_of_write = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._end_of_write)

    async def run(self) -> None:
        """Write waiting items, until cancelled."""
        while True:
            if not self._backlog.has_any:
                self._is_idle.set()
                await self._notifications.wait()
            await self._gather()
            self._notifications.clear()
            self._is_urgent.clear()
            waiting = self._backlog.next_batch()
            if waiting and not await self._is_tried(waiting):
                await asyncio.sleep(self._pause)
                self._pause = min(2 * self._pause, LONGEST_PAUSE)

    async def flush(self, within: float) -> bool:
        """Wait at most `within` seconds until all items are written. Returns whether they are.

        `run` must be running.
        """
        self._num_flushes += 1
        if not self._is_idle.is_set():
            self._is_urgent.set()
        try:
            async with asyncio.timeout(within):
                await self._is_idle.wait()
        except TimeoutError:
            num = len(self._backlog)
            logger.warning(
                "%d writes to %s did not finish in time and are lost", num, self.health.store
            )
            return False
        finally:
            self._num_flushes -= 1
        return True

    # ---- inside

    async def _gather(self) -> None:
        """Wait for more items, unless an urgent item waits."""
        if self._num_flushes or not self._gather_for:
            return
        try:
            async with asyncio.timeout(self._gather_for):
                await self._is_urgent.wait()
        except TimeoutError:
            return

    async def _is_tried(self, waiting: Sequence[Item]) -> bool:
        """Write waiting items as far as possible. Returns false if the store is away.

        If the store is away, half of the batch is tried next, because the batch may have been too
        large for the time limit.
        """
        batch = self.under_way = waiting[: self._most_at_once]
        is_all = len(batch) == len(waiting)
        try:
            lost = await self._lost_of(batch)
        except StoreAway as error:
            self.health.went_away(error)
            self._most_at_once = max(1, len(batch) // 2)
            self._is_urgent.set()
            return False
        finally:
            self.under_way = ()
        self._pause = FIRST_PAUSE
        self._most_at_once = None if is_all else 2 * len(batch)
        if not is_all:
            self._is_urgent.set()
        if not lost:
            self.health.wrote()
        self._has_ended(lost)
        return True

    async def _lost_of(self, batch: Sequence[Item]) -> list[Item]:
        """Write a batch, in halves after an error. Returns the lost items. Raises `StoreAway`."""
        try:
            async with in_time():
                outcome = await self._write(batch)
        except StoreAway:
            raise
        except Exception as error:  # the boundary of a write
            self.health.answered()
            if len(batch) == 1:
                self._lose(batch[0], error)
                return list(batch)
            middle = len(batch) // 2
            first = await self._lost_of(batch[:middle])
            return first + await self._lost_of(batch[middle:])
        self._backlog.written(batch, outcome)
        return []

    def _lose(self, item: Item, error: Exception) -> None:
        """Log a lost item. Only the first loss after a complete write has a traceback."""
        logger.error(
            "%s: %s: %s",
            self._loss,
            type(error).__name__,
            (str(error).splitlines() or [""])[0][:MAX_ERROR],  # not the statement, with its values
            exc_info=None if self.health.is_failing else error,
            extra=context(**self._name_of(item)),
        )
        self.health.failed(1)
        self._backlog.lost(item)

    def _has_ended(self, lost: Sequence[Item]) -> None:
        ended, self._end_of_write = self._end_of_write, None
        if ended is not None:
            ended.set_result(lost)
