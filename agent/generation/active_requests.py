"""The requests in local generation: events in, decisions out.

Invariants: every request that was started ends exactly once, with `Ended` or `Refused` as its last
item, unless it was discarded; each is released exactly once. A request's sequence is being prepared
or in the engine exactly as long as the request neither ended nor is being saved.

This is the failure boundary of a request on the event loop: an exception in its answer, its
detokeniser, its parser or its schema check ends that request alone, with `internal_error`, and is
logged with its traceback.
"""

from collections.abc import Callable, Sequence
from functools import partial

from ...shared.errors import InvalidRequest, RequestError, to_wire
from ...shared.inference import Notice, RequestId
from ...shared.messages import Item, Refused
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.prompt_store.writers import Writers
from ..engine.sequence import SequenceId, SequenceOutput
from .active_request import ActiveRequest, Change, Decision, Prepare, Tell, saves_as
from .answers.prepared import Prepared
from .answers.resumption import Outcome, Resume, Resumed
from .port import Listener, NewRequest, Ticket


class ActiveRequests:
    """`piece` gives a token's bytes. A ticket's number is also that of its sequence."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._writers = Writers()
        self._active: dict[SequenceId, ActiveRequest] = {}

    def __len__(self) -> int:
        """Those that were not released, also those that are only being saved."""
        return len(self._active)

    # ---- what the listeners want

    def start(self, new: NewRequest, listener: Listener) -> list[Decision]:
        """A new request; see `port.Generation`."""
        key = saves_as(new.request)
        if key is not None and not self._writers.claim(key):
            return [Tell(listener, (_key_is_taken(new.id, key),), (new.ticket,))]
        id = SequenceId(new.ticket)
        resume = Resume(new.id, new.continuation) if new.continuation else None
        self._active[id] = ActiveRequest(id, new.id, new.request, listener, resume, new.fetch)
        return [Prepare(id, new.request, resume)]

    def cancel(self, ticket: Ticket) -> list[Decision]:
        """End a request with what it has; one that is complete ends when it is saved."""
        active = self._awaited(ticket)
        if active is None or active.is_complete:
            return []
        return self._settled(active, self._guarded(active, active.cancel, is_in_engine=True))

    def fail(self, ticket: Ticket, error: RequestError) -> list[Decision]:
        """End a request with `error`; a complete one ends well. A save goes on."""
        active = self._awaited(ticket)
        return [] if active is None else self._settled(active, active.fail(error))

    def discard(self, ticket: Ticket) -> list[Decision]:
        """End a request without any further item. A save goes on."""
        active = self._awaited(ticket)
        return [] if active is None else self._settled(active, active.discard())

    # ---- what becomes of them

    def prepared(self, id: SequenceId, outcome: Outcome) -> list[Decision]:
        """A preparation ended; ignored if its request has ended."""
        active = self._active.get(id)
        if active is None or not active.is_being_prepared:
            return []
        if isinstance(outcome, RequestError):
            active.is_over = True
            refused = Refused(id=active.name, error=to_wire(outcome))
            return self._settled(active, Change((refused,)))
        change = self._guarded(active, lambda: self._ready(active, outcome), is_in_engine=False)
        return self._settled(active, change)

    def fetched(self, id: SequenceId, prefix: StoredPrompt | None) -> list[Decision]:
        """A fetch ended, with a prefix or without; ignored if its request has ended."""
        active = self._active.get(id)
        if active is None or not active.is_being_prepared:
            return []
        change = self._guarded(
            active, lambda: active.fetched(prefix, self._piece), is_in_engine=False
        )
        return self._settled(active, change)

    def _ready(self, active: ActiveRequest, outcome: Prepared | Resumed) -> Change:
        if isinstance(outcome, Resumed):
            return active.resumed(outcome)
        return active.prepared(outcome, self._piece)

    def stepped(self, outputs: Sequence[SequenceOutput], now: float) -> list[Decision]:
        """The engine made a step; one `Tell` a listener, whatever is in it. `now` in seconds."""
        told: dict[Listener, tuple[list[Item], list[Ticket]]] = {}
        decisions: list[Decision] = []
        for output in outputs:
            if (active := self._active.get(output.id)) is None:
                continue
            change = self._stepped(active, output)
            items, released = told.setdefault(active.listener, ([], []))
            items += active.told(change.items, now)
            released += self._released(active)
            decisions += change.decisions
        tells = [
            Tell(listener, tuple(items), tuple(released))
            for listener, (items, released) in told.items()
            if items or released
        ]
        return [*tells, *decisions]

    def saved(self, id: SequenceId, failure: Notice | None) -> list[Decision]:
        """A save was written, or failed; a listener that still waits gets the end."""
        if (active := self._active.get(id)) is None:
            return []
        change = active.saved(failure)
        return self._settled(active, Change() if active.is_discarded else change)

    def crashed(self, id: SequenceId, error: Exception, *, is_in_engine: bool) -> list[Decision]:
        """The shell failed to carry out a decision about this sequence."""
        if (active := self._active.get(id)) is None:
            return []
        change = active.crashed(error, is_in_engine=is_in_engine)
        items = () if active.is_discarded else change.items
        return self._settled(active, Change(items, change.decisions))

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        if any(id != active.id for id, active in self._active.items()):
            raise RuntimeError("a request is kept under another's id")
        if any(active.is_over for active in self._active.values()):
            raise RuntimeError("a request that is over is still here")
        if any(each.is_discarded and not each.is_saving for each in self._active.values()):
            raise RuntimeError("a request that nobody waits for goes on")

    def _awaited(self, ticket: Ticket) -> ActiveRequest | None:
        active = self._active.get(SequenceId(ticket))
        return None if active is None or active.is_discarded else active

    def _stepped(self, active: ActiveRequest, output: SequenceOutput) -> Change:
        is_in_engine = output.end is None
        return self._guarded(active, partial(active.stepped, output), is_in_engine=is_in_engine)

    @staticmethod
    def _guarded(
        active: ActiveRequest, event: Callable[[], Change], *, is_in_engine: bool
    ) -> Change:
        try:
            return event()
        except Exception as error:  # the boundary of a request: it is logged and answered
            return active.crashed(error, is_in_engine=is_in_engine)

    def _settled(self, active: ActiveRequest, change: Change) -> list[Decision]:
        released = tuple(self._released(active))
        if not change.items and not released:
            return [*change.decisions]
        items = active.with_rest(change.items) if change.items else ()
        return [Tell(active.listener, items, released), *change.decisions]

    def _released(self, active: ActiveRequest) -> list[Ticket]:
        """Forget it if it is over; its ticket, then."""
        if not active.is_over:
            return []
        del self._active[active.id]
        if active.key is not None:
            self._writers.release(active.key)
        return [Ticket(active.id)]


def _key_is_taken(name: RequestId, key: str) -> Refused:
    message = f"`save_cache`: a running request saves under the key {key!r}; wait for its end"
    return Refused(id=name, error=to_wire(InvalidRequest(message, field="save_cache")))
