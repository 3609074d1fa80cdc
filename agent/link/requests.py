"""The requests that one balancer has given this agent, each with a slot and, if it saves, a key.

Invariants: every request that was started is answered exactly once, with `Ended`, `Refused` or
`Busy`, and nothing comes after; each that was not answered yet holds one slot, and besides only a
save does that goes on without its connection; a sequence is being prepared or in the engine exactly
as long as its request is neither answered nor being saved.
"""

from collections.abc import Callable, Iterator, Sequence

from ...shared.errors import InvalidRequest, RequestError, to_wire
from ...shared.inference import Notice, RequestId
from ...shared.messages import Busy, Item, Refused, Start
from ..engine.prompt_store.writers import Writers
from ..engine.sequence import SequenceId, SequenceOutput
from ..generation.prepared import Prepared
from .active_request import ActiveRequest, Change, saves_as
from .decisions import Decision, Prepare
from .slots import Slots


class Requests:
    """`sequence_ids`, `slots` and `writers` are shared with the agent's other sessions."""

    def __init__(
        self,
        *,
        slots: Slots,
        writers: Writers,
        sequence_ids: Iterator[SequenceId],
        piece: Callable[[int], bytes],
    ) -> None:
        self._slots = slots
        self._writers = writers
        self._sequence_ids = sequence_ids
        self._piece = piece
        self._was_busy = False
        self._active: dict[SequenceId, ActiveRequest] = {}
        self._sequences: dict[RequestId, SequenceId] = {}

    def __len__(self) -> int:
        """Those that hold a slot, also those that are only being saved."""
        return len(self._active)

    def __contains__(self, id: object) -> bool:
        return id in self._sequences

    @property
    def is_awaited(self) -> bool:
        """Whether the balancer still waits for an answer."""
        return bool(self._sequences)

    # ---- what the balancer says

    def start(self, start: Start) -> Change:
        """A request that is not here yet."""
        if not self._slots.take():
            return self.turn_away(start.id)
        key = saves_as(start.request)
        if key is not None and not self._writers.claim(key):
            self._slots.free()
            return Change((_key_is_taken(start.id, key),))
        id = next(self._sequence_ids)
        self._active[id] = ActiveRequest(id, start)
        self._sequences[start.id] = id
        return Change((), (Prepare(id, start.request),))

    def turn_away(self, id: RequestId) -> Change:
        """A request for which there is no room."""
        self._was_busy = True
        return Change((Busy(id=id),))

    def cancel(self, request_id: RequestId) -> Change:
        """Stop a request; one that is complete says so itself when it is saved."""
        id = self._sequences.get(request_id)
        if id is None or self._active[id].is_complete:
            return Change()
        ended = self._active[id].cancel()
        return Change((ended,), (self._release(id),))

    def has_room_again(self) -> bool:
        """Whether a slot is free and the balancer was turned away, which counts once."""
        is_news = self._was_busy and self._slots.num_free > 0
        if is_news:
            self._was_busy = False
        return is_news

    def forget_all(self) -> list[Decision]:
        """The balancer is gone; saves go on."""
        decisions: list[Decision] = [
            self._release(id) for id, each in list(self._active.items()) if not each.is_saving
        ]
        self._sequences.clear()
        self._was_busy = False
        return decisions

    def fail_all(self, error: RequestError) -> tuple[Item, ...]:
        """The ends of all that were not answered yet; to be followed by `forget_all`."""
        return tuple(self._active[id].fail(error) for id in self._sequences.values())

    # ---- what becomes of them

    def prepared(self, id: SequenceId, prepared: Prepared) -> Change:
        """A preparation succeeded; ignored when nobody waits for it."""
        active = self._active.get(id)
        if active is None or not active.is_being_prepared:
            return Change()
        return active.prepared(prepared, self._piece)

    def preparation_failed(self, id: SequenceId, error: RequestError) -> Change:
        """A preparation failed; ignored when nobody waits for it."""
        active = self._active.get(id)
        if active is None or not active.is_being_prepared:
            return Change()
        self._forget(id)
        return Change((active.fail(error),))

    def stepped(self, outputs: Sequence[SequenceOutput]) -> Change:
        """The engine made a step; outputs of sequences that are not here are ignored."""
        items: list[Item] = []
        decisions: list[Decision] = []
        for output in outputs:
            if (active := self._active.get(output.id)) is not None:
                change = active.stepped(output)
                items += change.items
                decisions += change.decisions
                if active.is_over:
                    self._forget(output.id)
        return Change(tuple(items), tuple(decisions))

    def saved(self, id: SequenceId, failure: Notice | None) -> Change:
        """A save was written, or was not; whoever still waits for its end is told."""
        active = self._active[id]
        is_awaited = self._sequences.get(active.start.id) == id
        self._forget(id)
        change = active.saved(failure)
        return change if is_awaited else Change()

    def check_integrity(self) -> None:
        """Raises `RuntimeError` when an invariant is broken; for tests."""
        awaited = set(self._sequences.values())
        if any(self._active[id].start.id != name for name, id in self._sequences.items()):
            raise RuntimeError("requests and sequences do not match")
        if any(id not in awaited and not each.is_saving for id, each in self._active.items()):
            raise RuntimeError("a request that nobody waits for goes on")
        if any(each.is_over for each in self._active.values()):
            raise RuntimeError("a request that is over is still here")
        if len(self) > self._slots.num_busy:
            raise RuntimeError("more requests are active than slots are busy")

    def _release(self, id: SequenceId) -> Decision:
        active = self._active[id]
        self._forget(id)
        return active.release()

    def _forget(self, id: SequenceId) -> None:
        active = self._active.pop(id)
        if self._sequences.get(active.start.id) == id:
            del self._sequences[active.start.id]
        self._slots.free()
        if active.key is not None:
            self._writers.release(active.key)


def _key_is_taken(id: RequestId, key: str) -> Refused:
    message = f"`save_cache`: a request that runs will save under the key {key!r}; wait for its end"
    return Refused(id=id, error=to_wire(InvalidRequest(message, field="save_cache")))
