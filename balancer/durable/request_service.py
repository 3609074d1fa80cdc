"""Writes retained requests to the store, renews their leases, and resumes those of lost balancers.

Only calls about requests unknown to this balancer wait for the store. While the store is away,
requests continue, and events are written when it is back. A request that cannot be written ends
with this balancer; other requests are not affected.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...shared.inference import RequestId
from ...shared.log import context
from ..access.access import Access
from ..fleet.caller import Caller
from ..fleet.requests.eligibility import Engine
from ..fleet.retained_record import AskedRequest
from ..fleet.runtime.retained_requests import RetainedRequest, RetainedRequests
from ..store.health import StoreHealth
from ..store.port import StoreAway
from ..store.records import StoreStatus
from ..store.retained import RetainedStore
from ..store.retained_records import FoundRequest, RetainedBounds, RetainedWrite, SavedEvents
from ..store.write_behind import WriteBehind
from .request_documents import restored, restored_events, saved, saved_events
from .request_journal import EngineOf, Growth, JournalWrites, RequestJournal, Written

logger = logging.getLogger(__name__)

LEASE = 6.0
"""Seconds for which a lost balancer's lease keeps other balancers from continuing its requests."""

RENEWAL = 2.0
"""Seconds between two renewals of leases; each also looks for requests without a balancer."""

GATHER = 1.0
"""Seconds for which tokens are gathered before they are written."""

TRIM_EVERY = 30
"""Renewals between two checks for requests that exceed the bounds."""

MOST_CLAIMED = 1000
"""Maximum requests that are resumed at once."""

MOST_UNREADABLE = 1000
"""Maximum unreadable requests that are left to others; beyond that the oldest is read again."""

Admit = Callable[[Caller], Caller | None]
"""Returns the present caller of a request; `None` if the caller's key is gone."""


class RequestService:
    """The service of a balancer with a store on disk.

    `retained` reports its events to `journal`.
    """

    def __init__(
        self, store: RetainedStore, bounds: RetainedBounds, admit: Admit, engine_of: EngineOf
    ) -> None:
        self._store = store
        self._bounds = bounds
        self._admit = admit
        self._run = uuid.uuid4().hex
        self._health = StoreHealth("the store for requests")
        self._unreadable: dict[str, None] = {}
        self._retained: RetainedRequests
        self.journal = RequestJournal(
            engine_of, lambda urgent: self._writer.stir(is_urgent=urgent), bounds.num_bytes
        )
        self._writer: WriteBehind[RequestId, Written] = WriteBehind(
            self.journal,
            self._write,
            health=self._health,
            loss=(
                "a request could not be written to the store, and will be lost if this "
                "balancer ends"
            ),
            name_of=lambda id: {"id": id},
            gather=GATHER,
        )

    def serve(self, retained: RetainedRequests) -> None:
        """Serve these requests, which report to `journal`."""
        self._retained = retained

    def status(self) -> StoreStatus:
        """The store's status for retained requests."""
        status = self._writer.status()
        return replace(status, num_dropped=status.num_dropped + self.journal.num_given_up)

    # ---- what callers ask for

    async def restore(self, caller: Caller, *, id: str = "", prefix: str = "") -> None:
        """Restore the caller's request with this id, or all whose names begin with `prefix`."""
        try:
            found = await self._store.find_retained(caller.owner or "", id=id, prefix=prefix)
        except StoreAway as error:
            self._health.went_away(error)
            return
        for each in found:
            self._restored(each)
        if id and not found:
            self._gone(RequestId(id), caller)

    def _gone(self, id: RequestId, caller: Caller) -> None:
        retained = self._retained.find_by_id(id, caller=caller)
        if retained is not None and retained.is_remote and retained.end is None:
            self._retained.deleted(retained)

    # ---- in the background

    async def run(self) -> None:
        """Write, renew and resume, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._writer.run())
            tasks.create_task(self._renew_all())

    async def flush(self, within: float) -> None:
        """Wait at most `within` seconds until everything is written; `run` must be running."""
        await self._writer.flush(within)

    async def _write(self, ids: Sequence[RequestId]) -> Written:
        what = self.journal.unwritten(ids)
        write = await asyncio.to_thread(_write_of, what)
        outcome = await self._store.write_retained(self._run, write, LEASE)
        for id in outcome.lost:
            logger.warning(
                "a request continues at another balancer: this balancer lost its lease",
                extra=context(id=id),
            )
            self._retained.drop(RequestId(id))
        return what, outcome

    async def _renew_all(self) -> None:
        num_renewals = 0
        while True:
            try:
                await self._renew()
                if num_renewals % TRIM_EVERY == 0:
                    await self._store.trim_retained(self._bounds)
                self._health.wrote()
            except StoreAway as error:
                self._health.went_away(error)
            except Exception:  # the boundary of a renewal: the next one tries again
                self._health.failed()
                logger.exception(
                    "the balancer could not renew its leases on requests and tries again"
                )
            num_renewals += 1
            await asyncio.sleep(RENEWAL)

    async def _renew(self) -> None:
        most = 0 if self._retained.is_draining else MOST_CLAIMED
        for each in await self._store.claim_retained(self._run, LEASE, most, but=self._unreadable):
            self._try_to_resume(each)
        await self._cancel()
        for retained in self._retained.followed():
            await self._try_to_follow(retained)

    async def reconcile(self) -> bool:
        """Cancel requests that were cancelled at other balancers.

        Returns whether the store could be read.
        """
        try:
            await self._cancel()
        except StoreAway as error:
            self._health.went_away(error)
            return False
        return True

    async def _cancel(self) -> None:
        for id in await self._store.cancelled_retained(self._run):
            self._retained.cancel_id(RequestId(id))

    def _try_to_resume(self, found: FoundRequest) -> None:
        try:
            self._resume(found)
        except Exception:  # the boundary of one request: no other balancer would ever get its lease
            id = found.request.id
            logger.exception(
                "a request could not be continued, and is deleted", extra=context(id=id)
            )
            self.journal.lost(RequestId(id))
            self._writer.stir()

    async def _try_to_follow(self, retained: RetainedRequest) -> None:
        try:
            await self._follow(retained)
        except StoreAway:
            raise
        except Exception:  # the boundary of one request: the next look tries again
            logger.exception(
                "the events of a request that another balancer runs could not be read",
                extra=context(id=retained.id),
            )

    async def _follow(self, retained: RetainedRequest) -> None:
        """Read the new events of a request that another balancer runs."""
        found = await self._store.find_retained(retained.record.key.owner or "", id=retained.id)
        for each in found:
            self._restored(each)
        if not found:
            self._retained.deleted(retained)

    # ---- inside

    def _restored(
        self, found: FoundRequest, *, runs_here: bool = False
    ) -> tuple[RetainedRequest, AskedRequest] | None:
        """Restore a request; `None` if this version cannot read it."""
        try:
            record, asked = restored(found.request)
            events = [event for each in found.events for event in restored_events(each)]
        except ValueError:
            logger.exception(
                "this version cannot read a request from the store",
                extra=context(id=found.request.id),
            )
            return None
        return self._retained.restore(record, asked, events, runs_here=runs_here), asked

    def _resume(self, found: FoundRequest) -> None:
        """Resume a request, if its caller's key is still valid."""
        restored = self._restored(found, runs_here=True)
        if restored is None:
            self._pass_on(RequestId(found.request.id))
            return
        retained, asked = restored
        if not retained.is_remote or retained.end is not None:
            return
        self.journal.resumed(retained)
        caller = self._admit(asked.caller)
        if caller is None:
            logger.info("a request is deleted: the access key that sent it is no longer valid")
            self._retained.forget_id(retained.id, caller=asked.caller)
            return
        logger.info(
            "a request that another balancer had begun continues here",
            extra=context(id=retained.id, num=len(retained.events)),
        )
        engine = None
        if found.model is not None and found.fingerprint is not None:
            engine = Engine(found.model, found.fingerprint)
        self._retained.resume_request(retained, asked._replace(caller=caller), engine)
        if found.is_cancelled:
            self._retained.cancel(retained)

    def _pass_on(self, id: RequestId) -> None:
        """Leave a request to a balancer of another version.

        If there is no such balancer, the request is deleted after some time.
        """
        logger.warning(
            "a request is left to a balancer of another version: this version cannot read it",
            extra=context(id=id),
        )
        self._unreadable[id] = None
        if len(self._unreadable) > MOST_UNREADABLE:
            del self._unreadable[next(iter(self._unreadable))]
        self.journal.passed_on(id)


def _write_of(what: JournalWrites) -> RetainedWrite:
    """Return the write for the store.

    Runs on another thread, because the tokens of a second may be many.
    """
    return RetainedWrite(
        begun=tuple(saved(new.record, new.asked) for new in what.begun),
        grown=tuple(map(_saved_growth, what.grown)),
        released=what.released,
        forgotten=what.forgotten,
        cancelled=what.cancelled,
    )


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


def caller_now(access: Access, caller: Caller) -> Caller | None:
    """Return the caller of an earlier request; `None` if the caller has lost access."""
    if caller.owner is None:
        return caller if access.is_open else None
    holder = access.holder_of(caller.owner)
    return None if holder is None else replace(caller, name=holder.name, limits=holder.limits)
