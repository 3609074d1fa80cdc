"""Requests that outlive their connection: their events are kept, for any number of readers.

With a `Journal` they outlive the balancer, too: another run of it, or another balancer, adopts them
and goes on. What it adopts may still run elsewhere; then its events come from the journal.

A request is kept under a key of its caller's. It runs to its end whether anybody reads or not, and
its events stay for a while after that. One that ended with an error has no use for later readers:
it is forgotten, so that asking again runs it again.

Bounded in number, bytes and age; what was used least recently is forgotten first. Forgetting one
that runs cancels it only where nobody reads it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ....shared.errors import Conflict, NotFound, ShuttingDown
from ....shared.inference import Done, Event, Failed, GenerateRequest, RequestId, Token, Waiting
from ..caller import Caller
from ..kept_record import Asked, KeptKey, KeptRecord
from ..requests.routing import Engine
from .fleet_runtime import FleetRuntime, new_request_id
from .stream import Stream

EVENT_BYTES = 256
"""What an event counts for besides its text, and each token's log-probabilities too."""


class KeptRequest:
    """One request that outlives its connection: what was asked, its events, and who reads them."""

    def __init__(
        self,
        record: KeptRecord,
        on_change: Callable[["KeptRequest", int], None],
        *,
        note: bytes = b"",
    ) -> None:
        """`on_change` is told by how many bytes the events grew.

        `note` is that of one which was asked for at another run of the balancer.
        """
        self.record = record
        self.id = record.id
        self.note = note
        self.end: Done | Failed | None = None
        self.num_bytes = len(note)
        self.used_at = 0.0
        self.events: list[Event] = []
        """So far, without those that say that it waits."""
        self.is_elsewhere = False
        """Whether another balancer runs it."""
        self._is_kept = True
        self._on_change = on_change
        self._readers: dict[Stream, None] = {}

    @property
    def is_read(self) -> bool:
        """Whether anybody reads it."""
        return bool(self._readers)

    def put(self, event: Event) -> None:
        """Another event: keep it, and pass it on."""
        if isinstance(event, Done | Failed):
            self.end = event
        for reader in list(self._readers):
            reader.put(event)
        if self.end is not None:
            self._readers.clear()
        if self._is_kept and not isinstance(event, Waiting):
            size = _size(event)
            self.events.append(event)
            self.num_bytes += size
            self._on_change(self, size)

    def forget(self) -> None:
        """Keep no further events; present readers still get theirs."""
        self._is_kept = False
        if self.end is None:
            self.events = []

    def attach(self) -> Stream:
        """Its events from the first one on, none merged. Closing the stream cancels nothing."""
        stream = Stream(
            self.id,
            lambda _: self._detach(stream),
            merges=False,
            created_at=self.record.created_at,
            model=self.record.model,
        )
        for event in self.events:
            stream.put(event)
        if self.end is None:
            self._readers[stream] = None
        return stream

    def _detach(self, stream: Stream) -> None:
        self._readers.pop(stream, None)


def _size(event: Event) -> int:
    if not isinstance(event, Token):
        return EVENT_BYTES
    num_explained = sum(1 + len(each.top) for each in event.log_probs)
    return EVENT_BYTES * (1 + num_explained) + 2 * len(event.text)


MAX_KEPT = 10_000
"""Most requests that are kept, however small they are."""

DEFAULT_BYTES = 64 * 2**20
DEFAULT_AGE = 3600.0


class Journal(Protocol):
    """Is told what has to outlive the balancer: `balancer.durable.request_journal`.

    Never waits or raises.
    """

    def begun(self, kept: KeptRequest, asked: Asked, /) -> None:
        """It is new."""

    def grew(self, kept: KeptRequest, /) -> None:
        """There are more events, and perhaps its end."""

    def gave_up(self, kept: KeptRequest, /) -> None:
        """This balancer shuts down: another may go on with it."""

    def cancelled(self, kept: KeptRequest, /) -> None:
        """Another balancer runs it, and is to end it."""

    def forgot(self, kept: KeptRequest, /) -> None:
        """Nobody may read it any more."""


class NoJournal:
    """Of a balancer whose requests end with it."""

    def begun(self, _kept: KeptRequest, _asked: Asked) -> None:
        pass

    def grew(self, _kept: KeptRequest) -> None:
        pass

    def gave_up(self, _kept: KeptRequest) -> None:
        pass

    def cancelled(self, _kept: KeptRequest) -> None:
        pass

    def forgot(self, _kept: KeptRequest) -> None:
        pass


class KeptRequests:
    """One for each balancer. `clock` gives seconds, `wall_clock` seconds since 1970."""

    def __init__(
        self,
        runtime: FleetRuntime,
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_age: float = DEFAULT_AGE,
        max_kept: int = MAX_KEPT,
        journal: Journal | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`max_age` counts from a request's last use, in seconds."""
        self._journal: Journal = NoJournal() if journal is None else journal
        self._wall_clock = wall_clock
        self._runtime = runtime
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._max_kept = max_kept
        self._clock = clock
        self._kept: OrderedDict[KeptKey, KeptRequest] = OrderedDict()
        self._keys: dict[RequestId, KeptKey] = {}
        self.num_bytes = 0
        """About how many bytes all events take."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def keeps_any(self) -> bool:
        """Whether anything can be kept."""
        return self._max_bytes > 0

    @property
    def is_draining(self) -> bool:
        """Whether the balancer shuts down."""
        return self._runtime.views.totals().is_draining

    def knows(self, caller: Caller, name: str) -> bool:
        """Whether the caller has a request of that name here."""
        return KeptKey(caller.owner, name) in self._kept

    def open(
        self,
        name: str,
        digest: bytes,
        request: GenerateRequest,
        *,
        caller: Caller,
        id: RequestId | None = None,
        tell_waiting: float | None = None,
        together: int = 1,
        keeps_failure: bool = False,
        note: bytes = b"",
    ) -> KeptRequest:
        """What is kept under this name, or a new request, with this `id` if one is given.

        Raises `Conflict` if something else was asked for under it, and as `FleetRuntime.open`.
        """
        key = KeptKey(caller.owner, name)
        if (kept := self._find(key)) is not None:
            if kept.record.digest != digest:
                raise Conflict("this idempotency key was used for another request")
            return kept
        record = KeptRecord(
            key=key,
            id=id or new_request_id(),
            digest=digest,
            created_at=self._wall_clock(),
            keeps_failure=keeps_failure,
            model="" if request.model else self._runtime.views.model_name_for("generate", caller),
        )
        # Another run of the balancer does not know the limits of the caller's key.
        request = replace(request, priority=self._runtime.views.priority(request, caller))
        asked = Asked(self._runtime.seeded(request), caller, note)
        return self._open(record, asked, tell_waiting=tell_waiting, together=together)

    def _open(
        self, record: KeptRecord, asked: Asked, *, tell_waiting: float | None, together: int
    ) -> KeptRequest:
        kept = self._add(record)
        try:
            self._runtime.open_into(
                kept,
                asked.request,
                caller=asked.caller,
                tell_waiting=tell_waiting,
                together=together,
            )
        except BaseException:
            self._remove(record.key)
            raise
        if record.key in self._kept:
            self._journal.begun(kept, asked)
        self._make_room()
        return kept

    def _add(self, record: KeptRecord, note: bytes = b"") -> KeptRequest:
        kept = KeptRequest(record, self._changed, note=note)
        self._kept[record.key], self._keys[record.id] = kept, record.key
        self.num_bytes += kept.num_bytes
        kept.used_at = self._clock()
        return kept

    # ---- what another run of the balancer accepted

    def adopt(self, record: KeptRecord, note: bytes, events: Sequence[Event]) -> KeptRequest:
        """Know a request from the journal, with all of its events; it has ended or runs elsewhere.

        One that is known already gets those that are new, unless it runs here.
        """
        kept = self._find(record.key)
        if kept is None:
            kept = self._add(record, note)
            kept.is_elsewhere = True
        if kept.is_elsewhere:
            for event in events[len(kept.events) :]:
                kept.put(event)
        return kept

    def take_up(self, kept: KeptRequest, asked: Asked, engine: Engine | None) -> None:
        """Go on with one that was adopted, which nobody runs now. `engine` began its answer."""
        kept.is_elsewhere = False
        self._runtime.take_up(
            kept,
            asked.request,
            caller=asked.caller,
            told=tuple(kept.events),
            engine=engine,
            age=max(0.0, self._wall_clock() - kept.record.created_at),
        )

    def lose(self, id: RequestId) -> None:
        """Another balancer runs it now, or it was deleted: it must not go on here."""
        key = self._keys.get(id)
        if key is None:
            self._runtime.cancel([id])
            return
        kept = self._kept[key]
        kept.is_elsewhere = True
        self._remove(key)
        self._runtime.cancel([id])

    def deleted(self, kept: KeptRequest) -> None:
        """It ran elsewhere and was deleted: whoever reads it here is told."""
        kept.put(Failed(NotFound("the request was deleted")))
        if kept.record.key in self._kept:
            self._remove(kept.record.key)

    def followed(self) -> list[KeptRequest]:
        """Those that run elsewhere and are read here."""
        return [each for each in self._kept.values() if each.is_elsewhere and each.is_read]

    def find_by_id(self, id: RequestId, *, caller: Caller) -> KeptRequest | None:
        """The caller's request with this id, if it is kept."""
        key = self._keys.get(id)
        return None if key is None or key.owner != caller.owner else self._find(key)

    def forget_id(self, id: RequestId, *, caller: Caller) -> None:
        """Keep it no longer; it is cancelled if it runs and nobody reads it."""
        key = self._keys.get(id)
        if key is not None and key.owner == caller.owner:
            self._journal.forgot(self._kept[key])
            self._remove(key)

    def cancel(self, kept: KeptRequest) -> None:
        """End it early, if it runs, here or elsewhere; it stays kept. Its events say when."""
        if kept.is_elsewhere and kept.end is None:
            self._journal.cancelled(kept)
        self._runtime.cancel([kept.id])

    def cancel_id(self, id: RequestId) -> None:
        """End one that runs here early, if it still does; another balancer was asked to."""
        self._runtime.cancel([id])

    def _find(self, key: KeptKey) -> KeptRequest | None:
        self._make_room()
        kept = self._kept.get(key)
        if kept is not None:
            self._use(key, kept)
        return kept

    def _use(self, key: KeptKey, kept: KeptRequest) -> None:
        kept.used_at = self._clock()
        self._kept.move_to_end(key)

    def _changed(self, kept: KeptRequest, num_bytes: int) -> None:
        key = self._keys[kept.id]
        self.num_bytes += num_bytes
        self._use(key, kept)
        if not kept.is_elsewhere:
            self._tell(kept)
        if isinstance(kept.end, Failed) and not kept.record.keeps_failure:
            self._remove(key)
        self._make_room()

    def _tell(self, kept: KeptRequest) -> None:
        """What it must know of one that runs here and has changed."""
        if not isinstance(kept.end, Failed):
            self._journal.grew(kept)
        elif self._is_going(kept.end):
            self._journal.gave_up(kept)
        elif kept.record.keeps_failure:
            self._journal.grew(kept)
        else:
            self._journal.forgot(kept)

    def _is_going(self, end: Failed) -> bool:
        """Whether a request ended because the balancer shuts down."""
        return isinstance(end.error, ShuttingDown) and self.is_draining

    def _make_room(self) -> None:
        while self._kept:
            key, eldest = next(iter(self._kept.items()))
            if self._fits and self._clock() - eldest.used_at <= self._max_age:
                return
            self._remove(key)

    @property
    def _fits(self) -> bool:
        return (
            self.keeps_any
            and self.num_bytes <= self._max_bytes
            and len(self._kept) <= self._max_kept
        )

    def _remove(self, key: KeptKey) -> None:
        kept = self._kept.pop(key)
        del self._keys[kept.id]
        self.num_bytes -= kept.num_bytes
        kept.forget()
        if kept.end is None and not kept.is_elsewhere:
            self._journal.forgot(kept)
        if kept.end is None and not kept.is_elsewhere and not kept.is_read:
            # Not at once: the runtime may be in the middle of delivering, and a reader may come.
            asyncio.get_running_loop().call_soon(self._cancel_unread, kept)

    def _cancel_unread(self, kept: KeptRequest) -> None:
        if not kept.is_read:
            self._runtime.cancel([kept.id])

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if self.num_bytes != sum(each.num_bytes for each in self._kept.values()):
            raise RuntimeError("the bytes do not add up")
        if self.num_bytes > self._max_bytes or len(self._kept) > self._max_kept:
            raise RuntimeError("more is kept than may be")
        if {each.id: key for key, each in self._kept.items()} != self._keys:
            raise RuntimeError("the ids are not those of what is kept")
