"""Writes the desired state and the history to the store, so that nothing else waits for it."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import assert_never

from . import write_behind
from .health import StoreHealth
from .history_backlog import HistoryBacklog, HistoryBatch, Record, batch_of
from .port import RevisionConflict, StoreAway
from .records import (
    Conflicted,
    EndedRequest,
    NotPersisted,
    Persist,
    Persisted,
    PersistOutcome,
    SavedStep,
    StoreStatus,
    UsageRow,
)
from .store import Store
from .write_behind import WriteBehind

logger = logging.getLogger(__name__)

SAVE_TIMEOUT = 10.0
"""Seconds for which a save is tried."""


class StoreWriter:
    """Writes for a balancer. `persist` and `append` never wait, and may be called before `run`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._backlog = HistoryBacklog()
        self._health = StoreHealth("the store")
        self._history: WriteBehind[Record, None] = WriteBehind(
            self._backlog,
            self._append,
            health=self._health,
            loss="a record of the history could not be written, and is lost",
            name_of=_name_of,
        )
        self._saves: asyncio.Queue[tuple[Persist, float, asyncio.Future[PersistOutcome]]]
        self._saves = asyncio.Queue()
        self._num_saves = 0

    @property
    def keeps_history(self) -> bool:
        """Whether the store is on disk, and so keeps the history beyond the balancer's end."""
        return self._store.is_lasting

    def status(self) -> StoreStatus:
        """The store's status after the last attempt."""
        status = self._history.status()
        return replace(status, num_pending=status.num_pending + self._num_saves)

    def unwritten(self) -> HistoryBatch:
        """Return the appended history that is not known to be in the store, without usage."""
        return self._backlog.unwritten

    def persist(self, persist: Persist) -> asyncio.Future[PersistOutcome]:
        """Save a desired state.

        Returns a future of the outcome, which the task of `run` sets later.
        """
        self._num_saves += 1
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[PersistOutcome] = loop.create_future()
        self._saves.put_nowait((persist, loop.time() + SAVE_TIMEOUT, ended))
        return ended

    def append(
        self,
        steps: Sequence[SavedStep],
        endings: Sequence[EndedRequest],
        usage: Sequence[UsageRow] = (),
    ) -> None:
        """Add to the history, if the store is on disk."""
        if self.keeps_history and (steps or endings or usage):
            self._health.num_lost += self._backlog.append(steps, endings, usage)
            self._history.stir()

    async def run(self) -> None:
        """Write waiting items, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._history.run())
            tasks.create_task(self._save_all())

    async def flush(self, within: float) -> bool:
        """Wait until everything is written, at most `within` seconds. Returns whether it is.

        `run` must be running.
        """
        until = asyncio.get_running_loop().time() + within
        is_written = await self._history.flush(within)
        try:
            async with asyncio.timeout_at(until):
                await self._saves.join()
        except TimeoutError:
            logger.warning(
                "%d saves of the desired state did not finish in time and are lost", self._num_saves
            )
            return False
        return is_written

    # ---- the history

    async def _append(self, records: Sequence[Record]) -> None:
        batch = batch_of(records)
        await self._store.history.append_history(batch.steps, batch.endings, batch.usage)

    # ---- the desired state

    async def _save_all(self) -> None:
        while True:
            persist, until, ended = await self._saves.get()
            outcome = await self._saved(persist, until)
            self._num_saves -= 1
            if not ended.cancelled():
                ended.set_result(outcome)
            self._saves.task_done()

    async def _saved(self, persist: Persist, until: float) -> PersistOutcome:
        """Save, with retries while the store is away, the last one at the deadline."""
        pause = write_behind.FIRST_PAUSE
        while True:
            try:
                return await self._tried(persist)
            except StoreAway as error:
                self._health.went_away(error)
                left = until - asyncio.get_running_loop().time()
                if left <= 0:
                    return NotPersisted(f"the store is away: {error}")
            await asyncio.sleep(min(pause, left))
            pause = min(2 * pause, write_behind.LONGEST_PAUSE)

    async def _tried(self, persist: Persist) -> PersistOutcome:
        try:
            async with write_behind.in_time():
                await self._store.save_desired_state(persist)
        except RevisionConflict as conflict:
            self._health.answered()
            return Conflicted(conflict.current)
        except StoreAway:
            raise
        except Exception:  # the boundary of a save
            logger.exception("unexpected error while saving the desired state")
            self._health.answered()
            self._health.failed()
            return NotPersisted("internal error; the balancer's log has the details")
        self._health.wrote()
        return Persisted()


def _name_of(record: Record) -> Mapping[str, object]:
    match record:
        case SavedStep():
            return {"record": "step", "at": record.at, "width": record.width}
        case EndedRequest():
            return {"record": "ended request", "id": record.id, "caller": record.caller}
        case UsageRow():
            return {
                "record": "usage",
                "day": record.day,
                "caller": record.caller,
                "of": record.model,
            }
        case _:
            assert_never(record)
