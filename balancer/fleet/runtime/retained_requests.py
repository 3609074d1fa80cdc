"""Requests that outlive their connection: their events are retained, for any number of readers.

With a `Journal` they outlive the balancer, too: another run of it, or another balancer, restores
them and goes on. What it restores may still run elsewhere; then its events come from the journal.

A request is retained under a key of its caller's. It runs to its end whether it is read or not,
and its events stay for a while after that. One that ended with an error has no use for later
readers: it is forgotten, so that asking again runs it again.

Bounded in number, bytes and age; what was used least recently is forgotten first. Forgetting one
that runs cancels it only where no reader is left.
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
from ..requests.eligibility import Engine
from ..retained_record import Asked, RetainedKey, RetainedRecord
from .fleet_runtime import FleetRuntime, new_request_id
from .stream import Stream

EVENT_BYTES = 256
"""What an event counts for besides its text, and each token's log-probabilities too."""


class RetainedRequest:
    """One request that outlives its connection: what was asked, its events, and who reads them."""

    def __init__(
        self,
        record: RetainedRecord,
        on_change: Callable[["RetainedRequest", int], None],
        *,
        note: bytes = b"",
    ) -> None:
        """`on_change` gets the number of bytes by which the events grew.

        `note` is that of one which was asked for at another run of the balancer.
        """
        self.record = record
        self.id = record.id
        self.note = note
        self.end: Done | Failed | None = None
        self.num_bytes = len(note)
        self.used_at = 0.0
        self.events: list[Event] = []
        """The events so far, without those that say that it waits."""
        self.is_remote = False
        """Whether another balancer runs it."""
        self._is_retained = True
        self._on_change = on_change
        self._readers: dict[Stream, None] = {}

    @property
    def is_read(self) -> bool:
        """Whether it has a reader."""
        return bool(self._readers)

    def put(self, event: Event) -> None:
        """Another event: keep it, and pass it on."""
        if isinstance(event, Done | Failed):
            self.end = event
        for reader in list(self._readers):
            reader.put(event)
        if self.end is not None:
            self._readers.clear()
        if self._is_retained and not isinstance(event, Waiting):
            size = _size(event)
            self.events.append(event)
            self.num_bytes += size
            self._on_change(self, size)

    def forget(self) -> None:
        """Keep no further events; present readers still get theirs."""
        self._is_retained = False
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


MAX_RETAINED = 10_000
"""Most requests that are retained, however small they are."""

DEFAULT_BYTES = 64 * 2**20
DEFAULT_AGE = 3600.0


class Journal(Protocol):
    """Gets what has to outlive the balancer: `balancer.durable.request_journal`.

    Never waits or raises.
    """

    def begun(self, retained: RetainedRequest, asked: Asked, /) -> None:
        """It is new."""

    def grew(self, retained: RetainedRequest, /) -> None:
        """There are more events, and perhaps its end."""

    def gave_up(self, retained: RetainedRequest, /) -> None:
        """This balancer shuts down: another may go on with it."""

    def cancelled(self, retained: RetainedRequest, /) -> None:
        """Another balancer runs it, and is to end it."""

    def forgot(self, retained: RetainedRequest, /) -> None:
        """No one may read it any more."""


class NoJournal:
    """The journal of a balancer whose requests end with it."""

    def begun(self, _retained: RetainedRequest, _asked: Asked) -> None:
        pass

    def grew(self, _retained: RetainedRequest) -> None:
        pass

    def gave_up(self, _retained: RetainedRequest) -> None:
        pass

    def cancelled(self, _retained: RetainedRequest) -> None:
        pass

    def forgot(self, _retained: RetainedRequest) -> None:
        pass


class RetainedRequests:
    """One for each balancer. `clock` gives seconds, `wall_clock` seconds since 1970."""

    def __init__(
        self,
        runtime: FleetRuntime,
        *,
        max_bytes: int = DEFAULT_BYTES,
        max_age: float = DEFAULT_AGE,
        max_retained: int = MAX_RETAINED,
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
        self._max_kept = max_retained
        self._clock = clock
        self._retained: OrderedDict[RetainedKey, RetainedRequest] = OrderedDict()
        self._keys: dict[RequestId, RetainedKey] = {}
        self.num_bytes = 0
        """About how many bytes all events take."""

    def __len__(self) -> int:
        return len(self._retained)

    @property
    def keeps_any(self) -> bool:
        """Whether anything can be retained."""
        return self._max_bytes > 0

    @property
    def is_draining(self) -> bool:
        """Whether the balancer shuts down."""
        return self._runtime.views.totals().is_draining

    def knows(self, caller: Caller, name: str) -> bool:
        """Whether the caller has a request of that name here."""
        return RetainedKey(caller.owner, name) in self._retained

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
    ) -> RetainedRequest:
        """What is retained under this name, or a new request, with this `id` if one is given.

        Raises `Conflict` if something else was asked for under it, and as `FleetRuntime.open`.
        """
        key = RetainedKey(caller.owner, name)
        if (retained := self._find(key)) is not None:
            if retained.record.digest != digest:
                raise Conflict("this idempotency key was used for another request")
            return retained
        record = RetainedRecord(
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
        self, record: RetainedRecord, asked: Asked, *, tell_waiting: float | None, together: int
    ) -> RetainedRequest:
        retained = self._add(record)
        try:
            self._runtime.open_into(
                retained,
                asked.request,
                caller=asked.caller,
                tell_waiting=tell_waiting,
                together=together,
            )
        except BaseException:
            self._remove(record.key)
            raise
        if record.key in self._retained:
            self._journal.begun(retained, asked)
        self._make_room()
        return retained

    def _add(self, record: RetainedRecord, note: bytes = b"") -> RetainedRequest:
        retained = RetainedRequest(record, self._changed, note=note)
        self._retained[record.key], self._keys[record.id] = retained, record.key
        self.num_bytes += retained.num_bytes
        retained.used_at = self._clock()
        return retained

    # ---- what another run of the balancer accepted

    def restore(
        self, record: RetainedRecord, note: bytes, events: Sequence[Event]
    ) -> RetainedRequest:
        """Know a request from the journal, with all of its events; it has ended or runs elsewhere.

        One that is known already gets those that are new, unless it runs here.
        """
        retained = self._find(record.key)
        if retained is None:
            retained = self._add(record, note)
            retained.is_remote = True
        if retained.is_remote:
            for event in events[len(retained.events) :]:
                retained.put(event)
        return retained

    def resume_request(
        self, retained: RetainedRequest, asked: Asked, engine: Engine | None
    ) -> None:
        """Go on with one that was restored and runs nowhere now. `engine` began its answer."""
        retained.is_remote = False
        self._runtime.resume_request(
            retained,
            asked.request,
            caller=asked.caller,
            delivered=tuple(retained.events),
            engine=engine,
            age=max(0.0, self._wall_clock() - retained.record.created_at),
        )

    def drop(self, id: RequestId) -> None:
        """Another balancer runs it now, or it was deleted: it must not go on here."""
        key = self._keys.get(id)
        if key is None:
            self._runtime.cancel([id])
            return
        retained = self._retained[key]
        retained.is_remote = True
        self._remove(key)
        self._runtime.cancel([id])

    def deleted(self, retained: RetainedRequest) -> None:
        """It ran elsewhere and was deleted: its readers here get an error."""
        retained.put(Failed(NotFound("the request was deleted")))
        if retained.record.key in self._retained:
            self._remove(retained.record.key)

    def followed(self) -> list[RetainedRequest]:
        """Those that run elsewhere and are read here."""
        return [each for each in self._retained.values() if each.is_remote and each.is_read]

    def find_by_id(self, id: RequestId, *, caller: Caller) -> RetainedRequest | None:
        """The caller's request with this id, if it is retained."""
        key = self._keys.get(id)
        return None if key is None or key.owner != caller.owner else self._find(key)

    def forget_id(self, id: RequestId, *, caller: Caller) -> None:
        """Keep it no longer; it is cancelled if it runs and has no reader."""
        key = self._keys.get(id)
        if key is not None and key.owner == caller.owner:
            self._journal.forgot(self._retained[key])
            self._remove(key)

    def cancel(self, retained: RetainedRequest) -> None:
        """End it early, if it runs, here or elsewhere; it stays retained. Its events say when."""
        if retained.is_remote and retained.end is None:
            self._journal.cancelled(retained)
        self._runtime.cancel([retained.id])

    def cancel_id(self, id: RequestId) -> None:
        """End one that runs here early, if it still does; another balancer was asked to."""
        self._runtime.cancel([id])

    def _find(self, key: RetainedKey) -> RetainedRequest | None:
        self._make_room()
        retained = self._retained.get(key)
        if retained is not None:
            self._use(key, retained)
        return retained

    def _use(self, key: RetainedKey, retained: RetainedRequest) -> None:
        retained.used_at = self._clock()
        self._retained.move_to_end(key)

    def _changed(self, retained: RetainedRequest, num_bytes: int) -> None:
        key = self._keys[retained.id]
        self.num_bytes += num_bytes
        self._use(key, retained)
        if not retained.is_remote:
            self._tell(retained)
        if isinstance(retained.end, Failed) and not retained.record.keeps_failure:
            self._remove(key)
        self._make_room()

    def _tell(self, retained: RetainedRequest) -> None:
        """What it must know of one that runs here and has changed."""
        if not isinstance(retained.end, Failed):
            self._journal.grew(retained)
        elif self._is_going(retained.end):
            self._journal.gave_up(retained)
        elif retained.record.keeps_failure:
            self._journal.grew(retained)
        else:
            self._journal.forgot(retained)

    def _is_going(self, end: Failed) -> bool:
        """Whether a request ended because the balancer shuts down."""
        return isinstance(end.error, ShuttingDown) and self.is_draining

    def _make_room(self) -> None:
        while self._retained:
            key, eldest = next(iter(self._retained.items()))
            if self._fits and self._clock() - eldest.used_at <= self._max_age:
                return
            self._remove(key)

    @property
    def _fits(self) -> bool:
        return (
            self.keeps_any
            and self.num_bytes <= self._max_bytes
            and len(self._retained) <= self._max_kept
        )

    def _remove(self, key: RetainedKey) -> None:
        retained = self._retained.pop(key)
        del self._keys[retained.id]
        self.num_bytes -= retained.num_bytes
        retained.forget()
        if retained.end is None and not retained.is_remote:
            self._journal.forgot(retained)
        if retained.end is None and not retained.is_remote and not retained.is_read:
            # Not at once: the runtime may be in the middle of delivering, and a reader may come.
            asyncio.get_running_loop().call_soon(self._cancel_unread, retained)

    def _cancel_unread(self, retained: RetainedRequest) -> None:
        if not retained.is_read:
            self._runtime.cancel([retained.id])

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if self.num_bytes != sum(each.num_bytes for each in self._retained.values()):
            raise RuntimeError("the bytes do not add up")
        if self.num_bytes > self._max_bytes or len(self._retained) > self._max_kept:
            raise RuntimeError("more is retained than may be")
        if {each.id: key for key, each in self._retained.items()} != self._keys:
            raise RuntimeError("the ids are not those of what is retained")
