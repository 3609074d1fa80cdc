"""The journal of retained requests: events that are not in the store yet, and the next write.

Tokens are only counted here: a write takes the events after the written ones. Events of a failed
write are a part of the next write.

New requests that wait to be written are held whole, so callers share the room for them fairly.

Invariants: of a forgotten request only its deletion is written; a request that another balancer
has is not written at all.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from ...shared.inference import Done, Event, Failed, RequestId
from ..fleet.caller import Account
from ..fleet.footprint import footprint
from ..fleet.requests.eligibility import Engine
from ..fleet.retained_record import AskedRequest, Retained, RetainedRecord
from ..fleet.shares import Shares
from ..store.retained_records import RetainedOutcome

MAX_FORGOTTEN = 20_000
"""Maximum requests that wait to be deleted while the store is away.

The bounds of the store delete the other requests.
"""

MAX_BEGUN = 1000
"""Maximum new requests that wait to be written while the store is away.

`on_change` is called when there is more to write. Its argument says whether there is more than
tokens.
"""

EngineOf = Callable[[RequestId], Engine | None]


@dataclass(frozen=True, slots=True)
class Begun:
    """A new request."""

    record: RetainedRecord
    asked: AskedRequest
    num_bytes: int = 0

    @property
    def id(self) -> RequestId:
        """The id of the request."""
        return self.record.id


@dataclass(frozen=True, slots=True)
class Growth:
    """Events of a request from number `start` on; `engine` gave the answer."""

    id: RequestId
    start: int
    events: tuple[Event, ...]
    engine: Engine | None
    has_ended: bool


@dataclass(frozen=True, slots=True)
class JournalWrites:
    """Changes that are written together."""

    begun: tuple[Begun, ...] = ()
    grown: tuple[Growth, ...] = ()
    released: tuple[RequestId, ...] = ()
    forgotten: tuple[RequestId, ...] = ()
    cancelled: tuple[RequestId, ...] = ()


Written = tuple[JournalWrites, RetainedOutcome]
"""A write, and its outcome."""


class RequestJournal:
    """The `Journal` of `RetainedRequests`, and the `Backlog` of their ids.

    `on_change` is called when there is more to write, with whether it is more than tokens.
    """

    def __init__(
        self, engine_of: EngineOf, on_change: Callable[[bool], None], most_bytes: int = 2**62
    ) -> None:
        """Make an empty journal. Waiting new requests have at most `most_bytes` together."""
        self.begun_bytes: Shares[Account] = Shares(most_bytes)
        self.begun_counts: Shares[Account] = Shares(MAX_BEGUN)
        self._engine_of = engine_of
        self._on_change = on_change
        self._begun: dict[RequestId, Begun] = {}
        self._grown: dict[RequestId, Retained] = {}
        self._num_written: dict[RequestId, int] = {}
        self._released: dict[RequestId, None] = {}
        self._forgotten: dict[RequestId, None] = {}
        self._cancelled: dict[RequestId, None] = {}
        self.num_given_up = 0
        """New requests that are never written, since too many waited."""

    def __len__(self) -> int:
        """Return the number of requests that are not fully written."""
        return len(self.next_batch())

    @property
    def has_any(self) -> bool:
        """Whether any request waits to be written."""
        urgent = (self._begun, self._released, self._forgotten, self._cancelled)
        return bool(self._grown) or any(urgent)

    # ---- what happens to requests

    def begun(self, retained: Retained, asked: AskedRequest) -> None:
        """Add a new request.

        It is never written if too many of its caller's requests wait to be written.
        """
        num_bytes = len(asked.note) + footprint(asked.request)
        holder = asked.caller.account
        is_well = self.begun_counts.may_take(holder, 1)
        if not is_well or not self.begun_bytes.claim(holder, num_bytes):
            self.num_given_up += 1
            return
        self.begun_counts.take(holder, 1)
        self._begun[retained.id] = Begun(retained.record, asked, num_bytes)
        self._num_written[retained.id] = 0
        self._on_change(True)

    def resumed(self, retained: Retained) -> None:
        """Take over a request whose events so far are in the store."""
        self._num_written[retained.id] = len(retained.events)

    def grew(self, retained: Retained) -> None:
        """Note that a request has more events, and perhaps its end."""
        if retained.id in self._num_written:
            self._grown[retained.id] = retained
            self._on_change(retained.end is not None)

    def gave_up(self, retained: Retained) -> None:
        """Note that another balancer may continue the request: this balancer shuts down."""
        if retained.id in self._num_written:
            self._grown[retained.id] = retained
            self._released[retained.id] = None
            self._on_change(True)

    def passed_on(self, id: RequestId) -> None:
        """Note that another balancer may continue the request, because this balancer cannot read
        it.
        """
        self._num_written[id] = 0
        self._released[id] = None
        self._on_change(True)

    def cancelled(self, retained: Retained) -> None:
        """Ask the balancer that runs the request to end it."""
        self._cancelled[retained.id] = None
        if len(self._cancelled) > MAX_FORGOTTEN:
            del self._cancelled[next(iter(self._cancelled))]
        self._on_change(True)

    def forgot(self, retained: Retained) -> None:
        """Delete a request."""
        self._drop(retained.id)
        self._forgotten[retained.id] = None
        if len(self._forgotten) > MAX_FORGOTTEN:
            del self._forgotten[next(iter(self._forgotten))]
        self._on_change(True)

    # ---- writing

    def next_batch(self) -> Sequence[RequestId]:
        """Return all requests that are not fully written."""
        ids = (*self._begun, *self._grown, *self._released, *self._forgotten, *self._cancelled)
        return tuple(dict.fromkeys(ids))

    def unwritten(self, ids: Collection[RequestId]) -> JournalWrites:
        """Return the events of these requests that still have to be written."""
        chosen = set(ids)
        return JournalWrites(
            begun=tuple(new for id, new in self._begun.items() if id in chosen),
            grown=tuple(
                self._growth(retained) for id, retained in self._grown.items() if id in chosen
            ),
            released=tuple(id for id in self._released if id in chosen),
            forgotten=tuple(id for id in self._forgotten if id in chosen),
            cancelled=tuple(id for id in self._cancelled if id in chosen),
        )

    def written(self, _ids: Sequence[RequestId], outcome: Written) -> None:
        """Take the outcome of a write: everything is in the store, except requests named in
        `outcome`.
        """
        what, came = outcome
        for new in what.begun:
            self._drop_begun(new.id)
        for growth in what.grown:
            self._wrote(growth)
        for id in what.released:
            self._drop(id)
        for id in what.forgotten:
            self._forgotten.pop(id, None)
        for id in what.cancelled:
            self._cancelled.pop(id, None)
        for name in came.unsaved | came.lost:
            self._drop(RequestId(name))

    def lost(self, item: RequestId) -> None:
        """Give up a request that cannot be written; delete its stored events, once."""
        self._drop(item)
        self._cancelled.pop(item, None)
        if self._forgotten.pop(item, self) is self:
            self._forgotten[item] = None

    def _growth(self, retained: Retained) -> Growth:
        start = self._num_written[retained.id]
        events = retained.events[start:]
        if retained.id in self._released:
            events = [event for event in events if not isinstance(event, Done | Failed)]
        has_ended = bool(events) and isinstance(events[-1], Done | Failed)
        return Growth(retained.id, start, tuple(events), self._engine_of(retained.id), has_ended)

    def _wrote(self, growth: Growth) -> None:
        retained = self._grown.get(growth.id)
        if retained is None:
            return  # it was forgotten meanwhile
        self._num_written[growth.id] = growth.start + len(growth.events)
        if growth.has_ended:
            self._drop(growth.id)
        elif len(retained.events) == self._num_written[growth.id]:
            del self._grown[growth.id]

    def _drop_begun(self, id: RequestId) -> None:
        if (new := self._begun.pop(id, None)) is not None:
            self.begun_bytes.give_back(new.asked.caller.account, new.num_bytes)
            self.begun_counts.give_back(new.asked.caller.account, 1)

    def _drop(self, id: RequestId) -> None:
        self._drop_begun(id)
        self._grown.pop(id, None)
        self._num_written.pop(id, None)
        self._released.pop(id, None)

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        self.begun_bytes.check_integrity()
        held = (sum(each.num_bytes for each in self._begun.values()), len(self._begun))
        if held != (self.begun_bytes.total, self.begun_counts.total):
            raise RuntimeError("what waits to be written is miscounted")
        known = self._num_written.keys()
        if not known >= (self._begun.keys() | self._grown.keys() | self._released.keys()):
            raise RuntimeError("something is to be written of a request that is not known")
        if known & self._forgotten.keys():
            raise RuntimeError("a forgotten request is written")
