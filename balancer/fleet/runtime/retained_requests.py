"""Retained requests: requests that outlive their connection and may have any number of readers.

With a `Journal`, requests also outlive the balancer: another run or another balancer restores and
resumes them. If a restored request still runs in another balancer, its events come from the
journal.

A caller chooses the key of a request. The request runs to its end even without a reader, and its
events are kept for a while after its end. A request that ended with an error is forgotten, so that
the caller can send the request again.

The number, bytes and age of retained requests are limited, with fair shares (`fleet/shares.py`). A
running request counts in its holder's share until it ends, and is never forgotten or cancelled for
a new request of another caller. If a new request has no room, it is not retained, or refused if it
must be retained. Among ended requests, the holder with most loses its least recently used request.
If a running request is forgotten because of its age or by its caller, it is cancelled only if it
has no reader.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from ....shared.errors import Conflict, NotFound, Overloaded, RequestTooLarge, ShuttingDown
from ....shared.inference import (
    Done,
    Event,
    Failed,
    GenerateRequest,
    Reading,
    RequestId,
    Token,
    ToolCall,
    Waiting,
)
from ..caller import ANONYMOUS, Account, Caller
from ..footprint import footprints
from ..requests.eligibility import Engine
from ..retained_record import AskedRequest, RetainedKey, RetainedRecord
from ..shares import FairEviction, Refusal
from .fleet_runtime import FleetRuntime, new_request_id
from .stream import Stream

EVENT_BYTES = 256
"""The estimated bytes of an event without its text, and of the log-probabilities of one token."""


class RetainedRequest:
    """A request that outlives its connection, with its events and readers."""

    def __init__(
        self,
        record: RetainedRecord,
        on_change: Callable[["RetainedRequest", int], None],
        on_unread: Callable[["RetainedRequest"], None] = lambda _: None,
        *,
        holder: Account = ANONYMOUS.account,
        note: bytes = b"",
        num_asked: int = 0,
    ) -> None:
        """Make a retained request without events.

        `on_change` is called with the number of bytes by which the request grew. `on_unread` is
        called when the last reader leaves a request that is not retained. The request counts in
        the share of `holder`.

        A request of an earlier run has a `note`. The original request takes `num_asked` bytes
        until the request has ended.
        """
        self.record = record
        self.id = record.id
        self.holder = holder
        self.note = note
        self.end: Done | Failed | None = None
        self.num_bytes = self._num_asked = max(len(note), num_asked)
        self.used_at = 0.0
        self.events: list[Event] = []
        """The events so far, without events about waiting."""
        self.is_remote = False
        """Whether another balancer runs it."""
        self.answer: Any = None
        """The request's answer in the form that its API keeps and shows."""
        self.on_end: Callable[[], None] | None = None
        """A function to call after the request has ended."""
        self._is_retained = True
        self._on_change = on_change
        self._on_unread = on_unread
        self._readers: dict[Stream, None] = {}

    @property
    def is_read(self) -> bool:
        """Whether the request has a reader."""
        return bool(self._readers)

    def put(self, event: Event) -> None:
        """Keep `event` and pass it to the readers. Ignores events after the end."""
        if self.end is not None:
            return
        if isinstance(event, Done | Failed):
            self.end = event
        for reader in list(self._readers):
            reader.put(event)
        if self.end is not None:
            self._readers.clear()
        if self._is_retained and not isinstance(event, Waiting | Reading):
            size = _size(event)
            self.events.append(event)
            self.num_bytes += size
            self._on_change(self, size)
        if self.end is not None and self.on_end is not None:
            self.on_end()

    def shrink(self, num_asked: int) -> None:
        """Count `num_asked` bytes for the original request, because the request has ended."""
        self.note = b""
        change, self._num_asked = num_asked - self._num_asked, num_asked
        if self._is_retained:
            self.num_bytes += change
            self._on_change(self, change)

    def forget(self) -> None:
        """Stop keeping events. Present readers still get further events."""
        self._is_retained = False
        self.answer = self.on_end = None
        if self.end is None:
            self.events = []

    def attach(self) -> Stream:
        """Return a stream of all events, unmerged. Closing the stream cancels nothing."""
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
        if not self._is_retained and not self._readers:
            self._on_unread(self)


def _size(event: Event) -> int:
    if isinstance(event, ToolCall):
        return EVENT_BYTES + 2 * len(event.arguments)
    if not isinstance(event, Token):
        return EVENT_BYTES
    num_explained = sum(1 + len(each.top) for each in event.log_probs)
    return EVENT_BYTES * (1 + num_explained) + 2 * len(event.text)


MAX_RETAINED = 10_000
"""The maximum number of retained requests."""

RETRY_AFTER = 1.0
"""The seconds after which a caller may try again if its request found no room."""

DEFAULT_BYTES = 64 * 2**20
DEFAULT_AGE = 3600.0


class Journal(Protocol):
    """Saves requests so that they outlive the balancer; implemented by `balancer.durable`.

    No method waits or raises.
    """

    def begun(self, retained: RetainedRequest, asked: AskedRequest, /) -> None:
        """Record a new request."""

    def grew(self, retained: RetainedRequest, /) -> None:
        """Note that a request has new events or has ended."""

    def gave_up(self, retained: RetainedRequest, /) -> None:
        """Note that another balancer may continue the request; this balancer shuts down."""

    def cancelled(self, retained: RetainedRequest, /) -> None:
        """Ask the balancer that runs the request to cancel it."""

    def forgot(self, retained: RetainedRequest, /) -> None:
        """Delete a request."""


class NoJournal:
    """The journal of a balancer whose requests are lost when the balancer ends."""

    def begun(self, _retained: RetainedRequest, _asked: AskedRequest) -> None:
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
    """All retained requests of a balancer.

    `clock` returns seconds, and `wall_clock` returns seconds since 1970.
    """

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
        """Make an empty collection. A request is forgotten if unused for `max_age` seconds."""
        self._journal: Journal = NoJournal() if journal is None else journal
        self._wall_clock = wall_clock
        self._runtime = runtime
        self._max_bytes = max_bytes
        self._max_age = max_age
        self._max_retained = max_retained
        self._clock = clock
        self._retained: OrderedDict[RetainedKey, RetainedRequest] = OrderedDict()
        self._keys: dict[RequestId, RetainedKey] = {}
        self.running: FairEviction[Account, RetainedKey] = FairEviction(max_bytes, max_retained)
        """Requests that run here, and restored requests that waited for their resumption here."""
        self.idle: FairEviction[Account, RetainedKey] = FairEviction(max_bytes, max_retained)
        """Requests that have ended or run elsewhere. They use the room that `running` leaves."""

    def __len__(self) -> int:
        return len(self._retained)

    @property
    def num_bytes(self) -> int:
        """The estimated memory of all requests, in bytes."""
        return self.running.sizes.total + self.idle.sizes.total

    @property
    def keeps_any(self) -> bool:
        """Whether requests can be retained."""
        return self._max_bytes > 0

    @property
    def is_draining(self) -> bool:
        """Whether the balancer is shutting down."""
        return self._runtime.views.totals().is_draining

    def knows(self, caller: Caller, name: str) -> bool:
        """Return whether the caller has a retained request called `name` in this balancer."""
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
        """Return the retained request called `name`, or a new one with `id`, if given.

        A new request without room is not retained and ends when its last reader leaves; with
        `keeps_failure` such a request is refused. Raises `Conflict` if `name` belongs to another
        request, `Overloaded`, `RequestTooLarge`, and the errors of `FleetRuntime.open`.
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
        asked = AskedRequest(self._runtime.seeded(request), caller, note)
        return self._open(record, asked, tell_waiting=tell_waiting, together=together)

    def _open(
        self,
        record: RetainedRecord,
        asked: AskedRequest,
        *,
        tell_waiting: float | None,
        together: int,
    ) -> RetainedRequest:
        # What an API without a note holds of it is counted with the requests that run.
        num_asked = max(len(asked.note), footprints([asked.request])) if asked.note else 0
        retained = self._new(record, asked.caller, num_asked=num_asked)
        refusal = self._refusal(retained.holder, num_asked)
        if refusal is None:
            self._add(retained, self.running)
        elif record.keeps_failure and 2 * num_asked > self._max_bytes:
            raise RequestTooLarge(
                f"the request has {num_asked} bytes; stored answers may have "
                f"{self._max_bytes} bytes (--responses-limit), and one caller half of that"
            )
        elif record.keeps_failure:
            raise _no_room(refusal, self._max_bytes)
        else:
            retained.forget()
            asyncio.get_running_loop().call_soon(self._cancel_unread, retained)
        try:
            self._runtime.open_into(
                retained,
                asked.request,
                caller=asked.caller,
                tell_waiting=tell_waiting,
                together=together,
            )
        except BaseException:
            if record.key in self._retained:
                self._remove(record.key)
            raise
        if record.key in self._retained:
            self._journal.begun(retained, asked)
        self._make_room()
        return retained

    def _refusal(self, holder: Account, num_bytes: int) -> Refusal | None:
        """Return why a new request cannot be retained, and count the refusal."""
        if not self.keeps_any:
            return "full"
        for shares, amount in ((self.running.sizes, num_bytes), (self.running.counts, 1)):
            if (why := shares.refusal(holder, amount)) is not None:
                shares.num_refused[why] += 1
                return why
        return None

    def _new(
        self, record: RetainedRecord, caller: Caller, *, note: bytes = b"", num_asked: int = 0
    ) -> RetainedRequest:
        return RetainedRequest(
            record,
            self._changed,
            self._cancel_unread,
            holder=caller.account,
            note=note,
            num_asked=num_asked,
        )

    def _add(self, retained: RetainedRequest, pool: FairEviction[Account, RetainedKey]) -> None:
        key = retained.record.key
        self._retained[key], self._keys[retained.id] = retained, key
        pool.add(key, retained.holder, retained.num_bytes)
        retained.used_at = self._clock()

    # ---- what another run of the balancer accepted

    def restore(
        self,
        record: RetainedRecord,
        asked: AskedRequest,
        events: Sequence[Event],
        *,
        runs_here: bool = False,
    ) -> RetainedRequest:
        """Add a request with its events from the journal. The request has ended or runs elsewhere.

        If the request is known and does not run here, add its new events. `runs_here` means that
        the request is about to be resumed here.
        """
        retained = self._find(record.key)
        if retained is None:
            retained = self._new(record, asked.caller, note=asked.note)
            retained.is_remote = True
            self._add(retained, self.running if runs_here else self.idle)
        elif runs_here and retained.end is None and record.key in self.idle:
            self._move(retained, self.idle, self.running)
        if retained.is_remote:
            for event in events[len(retained.events) :]:
                retained.put(event)
        return retained

    def resume_request(
        self, retained: RetainedRequest, asked: AskedRequest, engine: Engine | None
    ) -> None:
        """Resume a restored request that runs in no balancer. `engine` began its answer."""
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
        """Stop a request here, because another balancer runs it or because it was deleted."""
        key = self._keys.get(id)
        if key is None:
            self._runtime.cancel([id])
            return
        retained = self._retained[key]
        retained.is_remote = True
        self._remove(key)
        self._runtime.cancel([id])

    def deleted(self, retained: RetainedRequest) -> None:
        """Remove a deleted request that ran in another balancer. Its readers get an error."""
        retained.put(Failed(NotFound("the request was deleted")))
        if retained.record.key in self._retained:
            self._remove(retained.record.key)

    def followed(self) -> list[RetainedRequest]:
        """Return the requests that run in other balancers and have readers here."""
        return [each for each in self._retained.values() if each.is_remote and each.is_read]

    def find_by_id(self, id: RequestId, *, caller: Caller) -> RetainedRequest | None:
        """Return the caller's retained request with this id, or `None`."""
        key = self._keys.get(id)
        return None if key is None or key.owner != caller.owner else self._find(key)

    def forget_id(self, id: RequestId, *, caller: Caller) -> None:
        """Forget the caller's request with this id. If it runs and has no reader, cancel it."""
        key = self._keys.get(id)
        if key is not None and key.owner == caller.owner:
            self._journal.forgot(self._retained[key])
            self._remove(key)

    def cancel(self, retained: RetainedRequest) -> None:
        """Cancel a request, in whichever balancer it runs.

        The request stays retained, and its last event reports the end.
        """
        if retained.is_remote and retained.end is None:
            self._journal.cancelled(retained)
        self._runtime.cancel([retained.id])

    def cancel_id(self, id: RequestId) -> None:
        """Cancel a request that runs here, because another balancer asked for the cancellation."""
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
        self._pool(key).use(key)

    def _pool(self, key: RetainedKey) -> FairEviction[Account, RetainedKey]:
        return self.running if key in self.running else self.idle

    def _changed(self, retained: RetainedRequest, num_bytes: int) -> None:
        key = self._keys[retained.id]
        self._pool(key).grow(key, num_bytes)
        self._use(key, retained)
        if retained.end is not None and key in self.running:
            self._move(retained, self.running, self.idle)
        if not retained.is_remote:
            self._tell(retained)
        if isinstance(retained.end, Failed) and not retained.record.keeps_failure:
            self._remove(key)
        self._make_room()

    def _move(
        self,
        retained: RetainedRequest,
        source: FairEviction[Account, RetainedKey],
        target: FairEviction[Account, RetainedKey],
    ) -> None:
        source.remove(retained.record.key)
        target.add(retained.record.key, retained.holder, retained.num_bytes)

    def _tell(self, retained: RetainedRequest) -> None:
        """Tell the journal about a change of a request that runs here."""
        if not isinstance(retained.end, Failed):
            self._journal.grew(retained)
        elif self._is_going(retained.end):
            self._journal.gave_up(retained)
        elif retained.record.keeps_failure:
            self._journal.grew(retained)
        else:
            self._journal.forgot(retained)

    def _is_going(self, end: Failed) -> bool:
        """Return whether the request ended because the balancer shuts down."""
        return isinstance(end.error, ShuttingDown) and self.is_draining

    def _make_room(self) -> None:
        while self._retained:
            key, eldest = next(iter(self._retained.items()))
            if self._clock() - eldest.used_at <= self._max_age:
                break
            self._remove(key)
        while (grown := self.running.evict()) is not None:
            self._give_up(self._retained[grown])
        self.idle.sizes.bound = self._max_bytes - self.running.sizes.total
        self.idle.counts.bound = self._max_retained - self.running.counts.total
        while (gone := self.idle.evict()) is not None:
            self._gone(gone)

    def _give_up(self, retained: RetainedRequest) -> None:
        """Stop retaining a running request, because the running requests exceed the limits."""
        key = retained.record.key
        self.idle.add(key, retained.holder, retained.num_bytes)
        if not retained.record.keeps_failure:
            self._remove(key)
            return
        retained.put(Failed(_no_room("full", self._max_bytes)))
        # Not at once: the runtime may be in the middle of delivering.
        asyncio.get_running_loop().call_soon(self._runtime.cancel, [retained.id])

    def _remove(self, key: RetainedKey) -> None:
        self._pool(key).remove(key)
        self._gone(key)

    def _gone(self, key: RetainedKey) -> None:
        """Forget a request that was removed from both pools."""
        retained = self._retained.pop(key)
        del self._keys[retained.id]
        retained.forget()
        if retained.end is not None:
            return
        if retained.is_remote:
            # Nobody follows it any more, so its readers would wait for ever.
            retained.put(Failed(_no_room("full", self._max_bytes)))
            return
        self._journal.forgot(retained)
        # Not at once: the runtime may be in the middle of delivering, and a reader may come.
        asyncio.get_running_loop().call_soon(self._cancel_unread, retained)

    def _cancel_unread(self, retained: RetainedRequest) -> None:
        if not retained.is_read and retained.end is None:
            self._runtime.cancel([retained.id])

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; tests call this method."""
        self.running.check_integrity()
        self.idle.check_integrity()
        if self.num_bytes != sum(each.num_bytes for each in self._retained.values()):
            raise RuntimeError("the bytes do not add up")
        if self.num_bytes > self._max_bytes or len(self._retained) > self._max_retained:
            raise RuntimeError("more is retained than may be")
        if {each.id: key for key, each in self._retained.items()} != self._keys:
            raise RuntimeError("the ids are not those of what is retained")
        if len(self.running) + len(self.idle) != len(self._retained):
            raise RuntimeError("a retained request is in both pools, or in none")
        if any((each.end is None) < (key in self.running) for key, each in self._retained.items()):
            raise RuntimeError("a request that has ended counts as one that runs")


def _no_room(why: Refusal, max_bytes: int) -> Overloaded:
    whose = "of this caller" if why == "share" else "of all callers"
    return Overloaded(
        f"there is no memory for another stored answer: the running requests {whose} use "
        f"their share of {max_bytes} bytes (--responses-limit). Wait until some have ended",
        retry_after=RETRY_AFTER,
    )
