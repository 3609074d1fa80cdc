"""Writes kept requests to the store, renews their leases, and takes up those that nobody runs.

Nobody waits for it but who asks for a request that is not known here. While the store is away,
requests go on, and what happened is written when it is back. A request that cannot be written costs
itself: it ends with this balancer.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Set
from dataclasses import replace
from typing import TypeVar

from ...shared.inference import RequestId
from ...shared.log import context
from ..fleet.caller import Caller
from ..fleet.kept_record import Asked
from ..fleet.requests.routing import Engine
from ..fleet.runtime.kept_request import KeptRequest
from ..fleet.runtime.kept_requests import KeptRequests
from ..store.health import WriteHealth
from ..store.kept.records import (
    FoundRequest,
    KeptBounds,
    KeptOutcome,
    KeptStore,
    KeptWrite,
    SavedEvents,
    SavedRequest,
)
from ..store.port import StoreAway
from ..store.records import StoreStatus
from .documents import restored, restored_events, saved, saved_events
from .journal import Begun, EngineOf, Growth, KeptJournal, Unwritten

logger = logging.getLogger(__name__)

LEASE = 6.0
"""Seconds for which a balancer that has gone keeps others from going on with its requests."""

RENEWAL = 2.0
"""Seconds between two renewals of leases; each also looks for requests that nobody runs."""

PAUSE = 1.0
"""Seconds for which tokens are gathered before they are written; also between two tries."""

TRIM_EVERY = 30
"""Renewals between two looks for requests that are beyond the bounds."""

MOST_CLAIMED = 1000
"""Requests that are taken up at once."""

MOST_UNREADABLE = 1000
"""Requests that this version cannot read and leaves to others; the oldest is looked at again."""

Item = TypeVar("Item", Begun, Growth)
Saved = TypeVar("Saved")

Admit = Callable[[Caller], Caller | None]
"""Who a request's caller is now; `None` if it may no longer be here."""


class KeptKeeper:
    """One for each balancer with a store that lasts. `kept` tells `journal` what happens."""

    def __init__(
        self, store: KeptStore, bounds: KeptBounds, admit: Admit, engine_of: EngineOf
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._admit = admit
        self._run = uuid.uuid4().hex
        self._news = asyncio.Event()
        self._is_urgent = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._health = WriteHealth()
        self._unreadable: dict[str, None] = {}
        self._kept: KeptRequests
        self.journal = KeptJournal(engine_of, self._stir)

    def serve(self, kept: KeptRequests) -> None:
        """Keep these, which tell `journal`."""
        self._kept = kept

    def status(self) -> StoreStatus:
        """How the store takes kept requests."""
        status = self._health.status(len(self.journal))
        return replace(status, num_dropped=status.num_dropped + self.journal.num_given_up)

    # ---- what callers ask for

    async def recall(self, caller: Caller, *, id: str = "", prefix: str = "") -> None:
        """Know the caller's request with this id, or those whose name begins so, if saved."""
        try:
            found = await self._store.find_kept(caller.owner or "", id=id, prefix=prefix)
        except StoreAway as error:
            self._went_away(error)
            return
        for each in found:
            self._adopt(each)
        if id and not found:
            self._gone(RequestId(id), caller)

    def _gone(self, id: RequestId, caller: Caller) -> None:
        kept = self._kept.find_by_id(id, caller=caller)
        if kept is not None and kept.is_elsewhere and kept.end is None:
            self._kept.deleted(kept)

    # ---- in the background

    async def run(self) -> None:
        """Write, renew and take up, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_all())
            tasks.create_task(self._renew_all())

    async def flush(self, within: float) -> None:
        """Wait until all is written, at most so many seconds; `run` has to run."""
        try:
            async with asyncio.timeout(within):
                await self._is_idle.wait()
        except TimeoutError:
            logger.warning("kept requests of which not all is written: %d", len(self.journal))

    def _stir(self) -> None:
        self._is_idle.clear()
        self._news.set()
        if self.journal.is_urgent:
            self._is_urgent.set()

    async def _write_all(self) -> None:
        while True:
            await self._news.wait()
            await self._gather()
            self._news.clear()
            self._is_urgent.clear()
            what = self.journal.unwritten()
            if not what:
                self._is_idle.set()
            elif not await self._is_written(what):
                self._stir()
                await asyncio.sleep(PAUSE)

    async def _gather(self) -> None:
        """Wait for more tokens, but not where something else waits to be written."""
        try:
            async with asyncio.timeout(PAUSE):
                await self._is_urgent.wait()
        except TimeoutError:
            return

    async def _is_written(self, what: Unwritten) -> bool:
        write, broken = await asyncio.to_thread(_write_of, what)
        try:
            outcome = await self._written(write, broken)
        except StoreAway as error:
            self._went_away(error)
            return False
        self._is_back(num_lost=len(broken))
        self.journal.written(what, outcome)
        self.journal.abandon(broken.difference(what.forgotten))  # these have been tried
        for id in outcome.lost:
            logger.warning("a request goes on at another balancer", extra=context(id=id))
            self._kept.lose(RequestId(id))
        self._stir()
        return True

    async def _written(self, write: KeptWrite, broken: set[str]) -> KeptOutcome:
        """Write it, in halves where something cannot be written: its id comes into `broken`.

        Raises `StoreAway`.
        """
        try:
            return await self._store.write_kept(self._run, write, LEASE)
        except StoreAway:
            raise
        except Exception:  # the boundary of a write: requests go on, and are kept here
            if len(ids := _ids_in(write)) <= 1:
                broken.update(ids)
                logger.exception(
                    "a kept request could not be written, and ends with this balancer",
                    extra=context(id=ids),
                )
                return KeptOutcome()
        middle = len(ids) // 2
        first = await self._written(_part_of(write, set(ids[:middle])), broken)
        second = await self._written(_part_of(write, set(ids[middle:])), broken)
        return KeptOutcome(unsaved=first.unsaved | second.unsaved, lost=first.lost | second.lost)

    async def _renew_all(self) -> None:
        num_renewals = 0
        while True:
            try:
                await self._renew()
                if num_renewals % TRIM_EVERY == 0:
                    await self._store.trim_kept(self._bounds)
                self._is_back()
            except StoreAway as error:
                self._went_away(error)
            except Exception:  # the boundary of a renewal: the next one tries again
                self._health.failed()
                logger.exception("the leases of kept requests could not be renewed")
            num_renewals += 1
            await asyncio.sleep(RENEWAL)

    async def _renew(self) -> None:
        most = 0 if self._kept.is_draining else MOST_CLAIMED
        for each in await self._store.claim_kept(self._run, LEASE, most, but=self._unreadable):
            self._try_to_take_up(each)
        for id in await self._store.cancelled_kept(self._run):
            self._kept.cancel_id(RequestId(id))
        for kept in self._kept.followed():
            await self._try_to_follow(kept)

    def _try_to_take_up(self, found: FoundRequest) -> None:
        try:
            self._take_up(found)
        except Exception:  # the boundary of one request: nobody else would ever get its lease
            id = found.request.id
            logger.exception("a kept request cannot go on, and is deleted", extra=context(id=id))
            self.journal.abandon([id])
            self._stir()

    async def _try_to_follow(self, kept: KeptRequest) -> None:
        try:
            await self._follow(kept)
        except StoreAway:
            raise
        except Exception:  # the boundary of one request: the next look tries again
            logger.exception("a kept request cannot be followed", extra=context(id=kept.id))

    async def _follow(self, kept: KeptRequest) -> None:
        """What came of it at the balancer that runs it."""
        found = await self._store.find_kept(kept.record.key.owner or "", id=kept.id)
        for each in found:
            self._adopt(each)
        if not found:
            self._kept.deleted(kept)

    # ---- inside

    def _adopt(self, found: FoundRequest) -> tuple[KeptRequest, Asked] | None:
        """Know it; `None` for one that this version cannot read."""
        try:
            record, asked = restored(found.request)
            events = [event for each in found.events for event in restored_events(each)]
        except ValueError:
            logger.exception("a kept request is not readable", extra=context(id=found.request.id))
            return None
        return self._kept.adopt(record, asked.note, events), asked

    def _take_up(self, found: FoundRequest) -> None:
        """Go on with it, if its caller still may."""
        adopted = self._adopt(found)
        if adopted is None:
            self._pass_on(RequestId(found.request.id))
            return
        kept, asked = adopted
        if not kept.is_elsewhere or kept.end is not None:
            return
        self.journal.resumed(kept)
        caller = self._admit(asked.caller)
        if caller is None:
            logger.info("a kept request is deleted: its caller's key is gone")
            self._kept.forget_id(kept.id, caller=asked.caller)
            return
        logger.info("a request goes on here", extra=context(id=kept.id, num=len(kept.events)))
        engine = None
        if found.model is not None and found.fingerprint is not None:
            engine = Engine(found.model, found.fingerprint)
        self._kept.take_up(kept, asked._replace(caller=caller), engine)
        if found.is_cancelled:
            self._kept.cancel(kept)

    def _pass_on(self, id: RequestId) -> None:
        """Leave it to a balancer of another version; without one it is deleted in time."""
        logger.warning("a kept request is given up here", extra=context(id=id))
        self._unreadable[id] = None
        if len(self._unreadable) > MOST_UNREADABLE:
            del self._unreadable[next(iter(self._unreadable))]
        self.journal.passed_on(id)

    def _went_away(self, error: StoreAway) -> None:
        if self._health.went_away(str(error), asyncio.get_running_loop().time()):
            logger.warning("the store of kept requests is away: %s", error)

    def _is_back(self, *, num_lost: int = 0) -> None:
        if self._health.answered():
            logger.info("the store of kept requests is back")
        if num_lost:
            self._health.failed(num_lost)
        else:
            self._health.wrote()


def _write_of(what: Unwritten) -> tuple[KeptWrite, set[str]]:
    """As the store takes it, and the ids of what cannot be written.

    On a thread of its own, since a second's tokens may be many.
    """
    broken: set[str] = set()
    begun = [_tried(_saved_request, each, broken) for each in what.begun]
    grown = [_tried(_saved_growth, each, broken) for each in what.grown]
    write = KeptWrite(
        begun=tuple(each for each in begun if each is not None),
        grown=tuple(each for each in grown if each is not None),
        released=what.released,
        forgotten=what.forgotten,
        cancelled=what.cancelled,
    )
    return write, broken


def _ids_in(write: KeptWrite) -> list[str]:
    """Of all requests in it, each once."""
    ids = [*(each.id for each in write.begun), *(each.id for each in write.grown)]
    return list(dict.fromkeys([*ids, *write.released, *write.forgotten, *write.cancelled]))


def _part_of(write: KeptWrite, ids: Set[str]) -> KeptWrite:
    """What it has of these requests."""
    return KeptWrite(
        begun=tuple(each for each in write.begun if each.id in ids),
        grown=tuple(each for each in write.grown if each.id in ids),
        released=tuple(id for id in write.released if id in ids),
        forgotten=tuple(id for id in write.forgotten if id in ids),
        cancelled=tuple(id for id in write.cancelled if id in ids),
    )


def _tried(save: Callable[[Item], Saved], item: Item, broken: set[str]) -> Saved | None:
    try:
        return save(item)
    except Exception:  # the boundary of one request
        logger.exception("a request cannot be saved, and ends with this balancer")
        broken.add(item.id)
        return None


def _saved_request(begun: Begun) -> SavedRequest:
    return saved(begun.record, begun.asked)


def _saved_growth(growth: Growth) -> SavedEvents:
    model, fingerprint = growth.engine or (None, None)
    return SavedEvents(
        id=growth.id,
        start=growth.start,
        document=saved_events(growth.events),
        model=model,
        fingerprint=fingerprint,
        has_ended=growth.has_ended,
    )
