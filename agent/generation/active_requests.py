"""The requests in local generation: events in, decisions out.

`ActiveRequests` holds all requests. An `ActiveRequest` is one request, from its preparation to its
end, or to the end of its save if it asked for a save. The shell, `local_generation`, carries
decisions out in order.

Invariants: every request that was started ends exactly once, with `Ended` or `Refused` as its last
item, unless it was discarded. Each request is released exactly once. A request's sequence is in
preparation or in the engine exactly as long as its answer has not ended. A request with
`save_cache` ends when its save is written, so that the next request finds the saved prompt. The
save is read from the engine's cache. Only one request at a time saves under a key.

This is the failure boundary of a request on the event loop. An exception in its answer, its
detokeniser, its parser or its schema check ends that request alone, with `internal_error`. The log
has the traceback.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby

from ...shared.errors import InternalError, InvalidRequest, RequestError, to_wire
from ...shared.inference import GenerateRequest, Notice, Rates, RequestId, Usage
from ...shared.inference.prefix_peers import PrefixSource
from ...shared.messages import Ended, Item, Piece, Refused, Start
from ..engine.prompt import History, Prompt
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.sequence import NewSequence, SequenceOutput
from ..sequence_id import SequenceId
from .answers.answer import Answer, noticed
from .answers.prepared import Prepared
from .answers.resumption import Outcome, Resume, Resumed
from .port import Listener

HELD = 0.1
"""Seconds between two messages with tokens of an answer that is not streamed to a client."""

_NOT_SAVED = Notice(
    "prompt_cache",
    "the prompt could not be saved: the engine has no more of it in its cache, or copying this "
    "model's state would have stalled other requests longer than --max-stall",
)


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare this request, then report `prepared` under the same id."""

    id: SequenceId
    request: GenerateRequest
    resume: Resume | None = None
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Abandon:
    """Cancel this preparation and the fetch after it. Their results will be ignored."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class FetchPrefix:
    """Fetch a prefix of `prompt` from another agent, then report `fetched` under the same id."""

    id: SequenceId
    source: PrefixSource
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Run:
    """Submit this sequence to the engine."""

    sequence: NewSequence

    @property
    def id(self) -> SequenceId:
        """The id of the sequence to run."""
        return self.sequence.id


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove this sequence from the engine; its further outputs will be ignored."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class ReadPrefix:
    """Read the cached prefix of `prompt` from the engine, then report `read` under the same id."""

    id: SequenceId
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Save:
    """Store `prompt` under `key`, then report `saved` under the same id, even if it failed."""

    id: SequenceId
    key: str
    prompt: StoredPrompt


@dataclass(frozen=True, slots=True)
class SendItems:
    """Pass these items and released sequences on to `listener`."""

    listener: Listener
    items: tuple[Item, ...]
    released: tuple[SequenceId, ...] = ()


@dataclass(frozen=True, slots=True)
class LogFailure:
    """Log that a bug ended the request `id`, with the traceback of `error`."""

    id: RequestId
    error: Exception


Act = Prepare | Abandon | FetchPrefix | Run | Drop | ReadPrefix | Save
"""Decisions about one sequence."""

Decision = Act | SendItems | LogFailure


@dataclass(frozen=True, slots=True)
class Reaction:
    """Items to send to the listener, and decisions to carry out afterwards."""

    items: tuple[Item, ...] = ()
    decisions: tuple[Decision, ...] = ()


class ActiveRequest:
    """The request of `start`, running as the sequence `id`. `piece` returns a token's bytes.

    Call no further method once `is_over` is true.
    """

    def __init__(
        self, id: SequenceId, start: Start, listener: Listener, piece: Callable[[int], bytes]
    ) -> None:
        self.is_over = False
        self.is_saving = False
        self.is_discarded = False
        """True if the listener gets no more items."""
        self.id = id
        self.name = start.id
        self.request = start.request
        self.scope = start.scope
        self.resume = Resume(start.id, start.continuation) if start.continuation else None
        self.listener = listener
        self._source = start.fetch
        self._fetching: Prepared | None = None
        """The preparation that continues after the fetch."""
        self._answer: Answer | None = None
        self._ended: Ended | None = None
        """The answer's end, until the save is written."""
        self._history: History | None = None
        """The prompt and the answer, if they are saved."""
        self.held = HeldPieces(0.0 if start.request.stream else HELD)
        self._piece = piece

    @property
    def is_being_prepared(self) -> bool:
        """Return whether the sequence is not in the engine yet."""
        return self._answer is None

    @property
    def is_complete(self) -> bool:
        """Return whether the answer has ended and the request only waits for its save."""
        return self._ended is not None

    @property
    def key(self) -> str | None:
        """The key under which the request saves; `None` if it does not save."""
        return saves_as(self.request)

    def prepared(self, prepared: Prepared | Resumed) -> Reaction:
        """Handle the end of the preparation: run the sequence, or fetch a prefix first."""
        if isinstance(prepared, Resumed):
            return self._resumed(prepared)
        source, self._source = self._source, None
        if source is not None and _may_fetch(prepared):
            self._fetching = prepared
            return Reaction((), (FetchPrefix(self.id, source, prepared.sequence.prompt),))
        self._answer = Answer(self.name, prepared, self._piece)
        return Reaction(self._notices(prepared), (self._run(prepared.sequence),))

    def fetched(self, prefix: StoredPrompt | None) -> Reaction:
        """Handle the end of the fetch. Without a `prefix` the whole prompt is computed.

        Returns decisions, as `prepared` does.
        """
        prepared, self._fetching = self._fetching, None
        if prepared is None:
            return Reaction()
        sequence = replace(prepared.sequence, stored=prefix)
        return self.prepared(replace(prepared, sequence=sequence))

    def _resumed(self, resumed: Resumed) -> Reaction:
        """Continue an answer that another agent began."""
        self._answer = resumed.answer
        notices = self._notices(resumed.prepared)
        if resumed.answer.is_over:
            return self._over_already(notices, resumed.items)
        return Reaction((*notices, *resumed.items), (self._run(resumed.prepared.sequence),))

    def _run(self, sequence: NewSequence) -> Run:
        if self.key is not None:
            self._history = History(sequence.prompt)
            self._history.extend(sequence.said)
        return Run(sequence)

    def _over_already(self, notices: tuple[Item, ...], items: tuple[Item, ...]) -> Reaction:
        self.is_over = True
        not_saved = () if self.key is None else (noticed(self.name, _NOT_SAVED),)
        return Reaction((*notices, *items[:-1], *not_saved, items[-1]))

    def _notices(self, prepared: Prepared) -> tuple[Item, ...]:
        return tuple(noticed(self.name, each) for each in prepared.notices)

    def stepped(self, output: SequenceOutput) -> Reaction:
        """Handle one engine step. Steps before the sequence runs and after its answer are
        ignored.
        """
        if self._answer is None or self.is_complete:
            return Reaction()
        if self._history is not None:
            self._history.extend(output.tokens)
        items = self._answer.take(output)
        return self._answered(items, output) if self._answer.is_over else Reaction(tuple(items))

    def read(self, prefix: StoredPrompt | None) -> Reaction:
        """Save the prefix of prompt and answer that was read from the engine's cache."""
        if prefix is None or self.key is None:
            return self.saved(_NOT_SAVED)
        self.is_saving = True
        return Reaction((), (Save(self.id, self.key, prefix),))

    def saved(self, failure: Notice | None) -> Reaction:
        """Handle the end of the save, which succeeded if `failure` is `None`."""
        self.is_over = True
        if self._ended is None:
            return Reaction()
        notices = [] if failure is None else [noticed(self.name, failure)]
        return Reaction((*notices, self._ended))

    def cancel(self) -> Reaction:
        """End the request early with the tokens generated so far."""
        ended = self._never_ran() if self._answer is None else self._answer.cancel()
        self.is_over = True
        return Reaction((ended,), (self._release(),))

    def fail(self, error: RequestError) -> Reaction:
        """End the request with `error`, or normally if its answer is complete. A save
        continues.
        """
        end = self._ended or Refused(id=self.name, error=to_wire(error))
        return Reaction((end,), self.discard().decisions)

    def discard(self) -> Reaction:
        """End the request without any further item. A save continues."""
        self.is_discarded = True
        self.is_over = not self.is_saving
        return Reaction((), () if self.is_complete else (self._release(),))

    def crashed(self, error: Exception, *, is_in_engine: bool) -> Reaction:
        """End this request alone with `internal_error`, after the bug `error`."""
        self.is_over = True
        internal = InternalError("the agent failed to answer the request; its log has the details")
        end = self._ended or Refused(id=self.name, error=to_wire(internal))
        release = (Drop(self.id),) if is_in_engine else ()
        return Reaction((end,), (LogFailure(self.name, error), *release))

    def _never_ran(self) -> Ended:
        usage = Usage(completion_tokens=self.resume.num_tokens if self.resume else 0)
        return Ended(id=self.name, finish_reason="cancelled", usage=usage, rates=Rates())

    def _release(self) -> Abandon | Drop:
        return Abandon(self.id) if self._answer is None else Drop(self.id)

    def _answered(self, items: list[Item], output: SequenceOutput) -> Reaction:
        """Handle the end of the answer. If the end waits for a save, remove it from `items`."""
        leave = () if output.end else (Drop(self.id),)
        if self._history is None or not isinstance(end := items[-1], Ended):
            self.is_over = True
            return Reaction(tuple(items), leave)
        self._ended = end
        prompt = self._history.part(0, len(self._history))
        return Reaction(tuple(items[:-1]), (*leave, ReadPrefix(self.id, prompt)))


def saves_as(request: GenerateRequest) -> str | None:
    """Return the key under which `request` saves; `None` if it does not save."""
    return request.cache_key if request.save_cache else None


def _may_fetch(prepared: Prepared) -> bool:
    """Return whether a prefix may be fetched: the prompt is plain tokens and not stored here."""
    sequence = prepared.sequence
    is_plain = sequence.shift is None and prepared.echo is None and not sequence.prompt.has_media
    return is_plain and sequence.stored is None


class HeldPieces:
    """Pieces of one request that are not sent yet, for up to `seconds`.

    No client reads an answer that is not streamed while it runs. For a small model, each message
    costs the agent and the balancer more than a token costs the engine. If the agent is lost, its
    held pieces are lost too and must be computed again.
    """

    def __init__(self, seconds: float = HELD) -> None:
        self._seconds = seconds
        self._pieces: list[Item] = []
        self._due = float("-inf")

    def to_send(self, items: tuple[Item, ...], now: float) -> tuple[Item, ...]:
        """Return the items to send at `now`; none if `items` are tokens and some were just sent."""
        if now < self._due and all(isinstance(item, Piece) for item in items):
            self._pieces += items
            return ()
        self._due = now + self._seconds
        return self.with_rest(items)

    def with_rest(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """Return all held pieces, followed by `items`."""
        held, self._pieces = self._pieces, []
        return tuple(_joined((*held, *items))) if held else items


def _joined(items: Iterable[Item]) -> Iterable[Item]:
    """Join consecutive pieces of one kind."""
    for kind, group in groupby(items, key=_kind):
        if kind is None:
            yield from group
            continue
        pieces = [item for item in group if isinstance(item, Piece)]
        yield Piece(
            id=pieces[0].id,
            text="".join(piece.text for piece in pieces),
            kind=pieces[0].kind,
            tokens=tuple(token for piece in pieces for token in piece.tokens),
        )


def _kind(item: Item) -> str | None:
    """Return the kind of a piece that can be joined with others; `None` for any other item."""
    return item.kind if isinstance(item, Piece) and item.log_probs is None else None


class ActiveRequests:
    """All requests in local generation. `piece` returns a token's bytes."""

    def __init__(self, piece: Callable[[int], bytes]) -> None:
        self._piece = piece
        self._saving: set[tuple[str | None, str]] = set()
        """The scopes and keys under which active requests save."""
        self._active: dict[SequenceId, ActiveRequest] = {}

    def __len__(self) -> int:
        """Return the number of requests not yet released, including requests that only wait for a
        save.
        """
        return len(self._active)

    # ---- calls of listeners

    def start(self, id: SequenceId, start: Start, listener: Listener) -> list[Decision]:
        """Begin a new request; see `port.Generation`."""
        active = ActiveRequest(id, start, listener, self._piece)
        if (key := active.key) is not None:
            if (start.scope, key) in self._saving:
                return [SendItems(listener, (_key_is_taken(start.id, key),), (id,))]
            self._saving.add((start.scope, key))
        self._active[id] = active
        return [Prepare(id, start.request, active.resume, start.scope)]

    def cancel(self, id: SequenceId) -> list[Decision]:
        """End a request early. A complete request instead ends when it is saved."""
        active = self._awaited(id)
        if active is None or active.is_complete:
            return []
        return self._settled(active, self._guarded(active, active.cancel, is_in_engine=True))

    def fail(self, id: SequenceId, error: RequestError) -> list[Decision]:
        """End a request with `error`, or normally if it is complete. A save continues."""
        active = self._awaited(id)
        return [] if active is None else self._settled(active, active.fail(error))

    def discard(self, id: SequenceId) -> list[Decision]:
        """End a request without any further item. A save continues."""
        active = self._awaited(id)
        return [] if active is None else self._settled(active, active.discard())

    # ---- events of requests

    def prepared(self, id: SequenceId, outcome: Outcome) -> list[Decision]:
        """Handle the end of a preparation; ignored if the request has ended."""
        active = self._active.get(id)
        if active is None or not active.is_being_prepared:
            return []
        if isinstance(outcome, RequestError):
            active.is_over = True
            refused = Refused(id=active.name, error=to_wire(outcome))
            return self._settled(active, Reaction((refused,)))
        prepared = partial(active.prepared, outcome)
        return self._settled(active, self._guarded(active, prepared, is_in_engine=False))

    def fetched(self, id: SequenceId, prefix: StoredPrompt | None) -> list[Decision]:
        """Handle the end of a fetch, with or without a prefix; ignored if the request has ended."""
        active = self._active.get(id)
        if active is None or not active.is_being_prepared:
            return []
        fetched = partial(active.fetched, prefix)
        return self._settled(active, self._guarded(active, fetched, is_in_engine=False))

    def stepped(self, outputs: Sequence[SequenceOutput], now: float) -> list[Decision]:
        """Handle one engine step at `now` (seconds); returns one `SendItems` per listener."""
        outgoing: dict[Listener, tuple[list[Item], list[SequenceId]]] = {}
        decisions: list[Decision] = []
        for output in outputs:
            if (active := self._active.get(output.id)) is None:
                continue
            stepped, is_in_engine = partial(active.stepped, output), output.end is None
            reaction = self._guarded(active, stepped, is_in_engine=is_in_engine)
            items, released = outgoing.setdefault(active.listener, ([], []))
            items += active.held.to_send(reaction.items, now)
            released += self._released(active)
            decisions += reaction.decisions
        sends = [
            SendItems(listener, tuple(items), tuple(released))
            for listener, (items, released) in outgoing.items()
            if items or released
        ]
        return [*sends, *decisions]

    def read(self, id: SequenceId, prefix: StoredPrompt | None) -> list[Decision]:
        """Handle the prefix that was read for a save; ignored if the request has ended."""
        active = self._active.get(id)
        if active is None or not active.is_complete or active.is_saving:
            return []
        return self._settled(active, active.read(prefix))

    def saved(self, id: SequenceId, failure: Notice | None) -> list[Decision]:
        """Handle the end of a save, written or failed. A listener that still waits gets the
        end.
        """
        if (active := self._active.get(id)) is None:
            return []
        reaction = active.saved(failure)
        return self._settled(active, Reaction() if active.is_discarded else reaction)

    def crashed(self, id: SequenceId, error: Exception, *, is_in_engine: bool) -> list[Decision]:
        """End one request because the shell failed to carry out a decision about its sequence."""
        if (active := self._active.get(id)) is None:
            return []
        reaction = active.crashed(error, is_in_engine=is_in_engine)
        items = () if active.is_discarded else reaction.items
        return self._settled(active, Reaction(items, reaction.decisions))

    def check_integrity(self) -> None:
        """Raise `RuntimeError` if an invariant is broken; for tests."""
        if any(id != active.id for id, active in self._active.items()):
            raise RuntimeError("a request is stored under the id of another request")
        if any(active.is_over for active in self._active.values()):
            raise RuntimeError("a request that is over is still here")
        if any(each.is_discarded and not each.is_saving for each in self._active.values()):
            raise RuntimeError("a discarded request still runs")

    def _awaited(self, id: SequenceId) -> ActiveRequest | None:
        active = self._active.get(id)
        return None if active is None or active.is_discarded else active

    @staticmethod
    def _guarded(
        active: ActiveRequest, event: Callable[[], Reaction], *, is_in_engine: bool
    ) -> Reaction:
        try:
            return event()
        except Exception as error:  # the boundary of a request: it is logged and answered
            return active.crashed(error, is_in_engine=is_in_engine)

    def _settled(self, active: ActiveRequest, reaction: Reaction) -> list[Decision]:
        released = tuple(self._released(active))
        if not reaction.items and not released:
            return [*reaction.decisions]
        items = active.held.with_rest(reaction.items) if reaction.items else ()
        return [SendItems(active.listener, items, released), *reaction.decisions]

    def _released(self, active: ActiveRequest) -> list[SequenceId]:
        """Remove the request if it is over. Returns its id in that case."""
        if not active.is_over:
            return []
        del self._active[active.id]
        if active.key is not None:
            self._saving.remove((active.scope, active.key))
        return [active.id]


def _key_is_taken(name: RequestId, key: str) -> Refused:
    message = f"`save_cache`: a running request saves under the key {key!r}; wait for its end"
    return Refused(id=name, error=to_wire(InvalidRequest(message, field="save_cache")))
