"""The task that writes to the store, so that nobody else waits for it.

What goes wrong with one write ends that write with one outcome and a line in the log; of a batch of
the history only the records that cannot be written are lost. While the store is away writes are
tried again, and the fleet goes on serving.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ...shared.log import context
from .pending import HistoryBatch, PendingWrites, Write
from .port import HistoryStore, RevisionConflict, Store, StoreAway
from .records import EndedRequest, Persist, PersistOutcome, SavedStep, StoreStatus, UsageRow

logger = logging.getLogger(__name__)

TRY_TIMEOUT = 5.0
"""Seconds after which a store that does not answer counts as away."""

MAX_ERROR = 300
"""Characters of what a driver says of a record, which may quote it."""


class StoreWriter:
    """One for each balancer. `persist` and `append` never wait, and can be called before `run`."""

    def __init__(
        self,
        store: Store,
        *,
        history: HistoryStore | None = None,
    ) -> None:
        self._store = store
        self._history = history
        self._pending = PendingWrites()
        self._untold: list[PersistOutcome] = []
        self._has_news = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @property
    def keeps_history(self) -> bool:
        """Whether there is any use in `append`."""
        return self._history is not None

    def status(self) -> StoreStatus:
        """How the store is, as of the last try."""
        return self._pending.status()

    def unwritten(self) -> HistoryBatch:
        """What was appended and is not in the store, as far as is known; no usage."""
        return self._pending.unwritten

    def persist(self, persist: Persist) -> None:
        """Save a desired state. The task of `run` tells its outcome, later."""
        outcome = self._pending.save(persist, asyncio.get_running_loop().time())
        if outcome is not None:
            self._untold.append(outcome)
        self._wake()

    def append(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        """Add to the history, where the store keeps one."""
        if self._history is not None and (steps or endings or usage):
            self._pending.append(steps, endings, usage)
            self._wake()

    async def run(self, told: Callable[[PersistOutcome], None]) -> None:
        """Write what comes, until cancelled. `told` gets one outcome for each save."""
        while True:
            self._has_news.clear()
            while self._untold:
                told(self._untold.pop(0))
            write = self._pending.next_write()
            if write is None:
                self._is_idle.set()
                await self._has_news.wait()
            elif not await self._must_wait():
                self._untold += await self._try(write)

    async def flush(self, within: float) -> bool:
        """Wait until all is written, at most `within` seconds; whether it is. `run` has to run."""
        try:
            async with asyncio.timeout(within):
                await self._is_idle.wait()
        except TimeoutError:
            logger.warning("%d writes to the store were given up", len(self._pending))
            return False
        return True

    def _wake(self) -> None:
        self._is_idle.clear()
        self._has_news.set()

    async def _must_wait(self) -> bool:
        """Wait for the next try or for news, if the last try was in vain; whether it did."""
        retry_at = self._pending.retry_at()
        if retry_at is None or retry_at <= (now := asyncio.get_running_loop().time()):
            return False
        try:
            async with asyncio.timeout(retry_at - now):
                await self._has_news.wait()
        except TimeoutError:
            pass
        return True

    async def _try(self, write: Write) -> Sequence[PersistOutcome]:
        was_away = self.status().is_away
        try:
            async with asyncio.timeout(TRY_TIMEOUT):
                outcomes = await self._write(write)
        except StoreAway as error:
            return self._went_away(str(error), was_away=was_away)
        except TimeoutError:
            return self._went_away(f"no answer within {TRY_TIMEOUT:g} s", was_away=was_away)
        except Exception as error:  # the boundary of a write
            self._report(write, error)
            outcomes = self._pending.broke(write, "internal error; the balancer's log has it")
        if was_away:
            logger.info("the store is back")
        return outcomes

    async def _write(self, write: Write) -> Sequence[PersistOutcome]:
        if isinstance(write, Persist):
            return [await self._save(write)]
        if self._history is not None:
            await self._history.append_history(write.steps, write.endings, write.usage)
        self._pending.appended()
        return []

    async def _save(self, persist: Persist) -> PersistOutcome:
        try:
            await self._store.save_desired_state(persist)
        except RevisionConflict as conflict:
            return self._pending.conflicted(conflict.current)
        return self._pending.saved()

    def _report(self, write: Write, error: Exception) -> None:
        """A line for each thing that is lost, and one traceback until all is written again."""
        traceback = None if self.status().fault else error
        if isinstance(write, Persist):
            logger.error("a desired state cannot be saved", exc_info=error)
        elif len(write) == 1:
            logger.error(
                "a record of the history cannot be written, and is lost: %s: %s",
                type(error).__name__,
                _in_short(error),
                exc_info=traceback,
                extra=context(**_name_of(write)),
            )

    def _went_away(self, problem: str, *, was_away: bool) -> Sequence[PersistOutcome]:
        if not was_away:
            logger.warning("the store is away: %s", problem)
        return self._pending.is_away(problem, asyncio.get_running_loop().time())


def _in_short(error: Exception) -> str:
    """Its first line, which has no values of other records: the statement comes after it."""
    return (str(error).splitlines() or [""])[0][:MAX_ERROR]


def _name_of(alone: HistoryBatch) -> dict[str, object]:
    """What the only record of a batch is."""
    for step in alone.steps:
        return {"record": "step", "at": step.at, "width": step.width}
    for ending in alone.endings:
        return {"record": "ended request", "id": ending.id, "caller": ending.caller}
    [row] = alone.usage
    return {"record": "usage", "day": row.day, "caller": row.caller, "of": row.model}
