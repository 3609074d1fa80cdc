"""One request from its preparation to its end and, where it asked for that, its save.

Its methods return decisions for the shell, `local_generation`, to carry out in order.

Invariant: it ends once. A request with `save_cache` ends when its save is written, so that a
request after it finds what was saved.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...shared.errors import InternalError, RequestError, to_wire
from ...shared.inference import GenerateRequest, Notice, Rates, RequestId, Usage
from ...shared.inference.prefix_peers import PrefixSource
from ...shared.messages import Ended, Item, Refused
from ..engine.prompt import Prompt
from ..engine.prompt_store.stored_prompt import StoredPrompt
from ..engine.sequence import NewSequence, SequenceId, SequenceOutput
from .answers.answer import Answer, noticed
from .answers.held_pieces import HeldPieces
from .answers.prepared import Prepared
from .answers.resumption import Resume, Resumed
from .port import Listener, Ticket

_NOT_SAVED = Notice(
    "prompt_cache",
    "the prompt could not be saved: the engine failed, or copying this model's state would have "
    "stalled other requests longer than --max-stall",
)


@dataclass(frozen=True, slots=True)
class Prepare:
    """Prepare this request, then report `prepared` under the same id."""

    id: SequenceId
    request: GenerateRequest
    resume: Resume | None = None


@dataclass(frozen=True, slots=True)
class Abandon:
    """Cancel this preparation, and the fetch after it; what they report will be ignored."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Fetch:
    """Fetch a beginning of `prompt` from another agent, then report `fetched` under the same id."""

    id: SequenceId
    source: PrefixSource
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Run:
    """Submit this sequence to the engine."""

    sequence: NewSequence

    @property
    def id(self) -> SequenceId:
        """The sequence's."""
        return self.sequence.id


@dataclass(frozen=True, slots=True)
class Finish:
    """Let the engine end this sequence well: the answer is complete, the state is to be saved."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Drop:
    """Take this sequence out of the engine; what it still yields will be ignored."""

    id: SequenceId


@dataclass(frozen=True, slots=True)
class Save:
    """Store `prompt` under `key`, then report `saved` under the same id, failed or not."""

    id: SequenceId
    key: str
    prompt: StoredPrompt


@dataclass(frozen=True, slots=True)
class Tell:
    """Pass these items and released tickets on to `listener`."""

    listener: Listener
    items: tuple[Item, ...]
    released: tuple[Ticket, ...] = ()


@dataclass(frozen=True, slots=True)
class LogFailure:
    """Log that a bug of ours ended the request `id`, with the traceback of `error`."""

    id: RequestId
    error: Exception


Decision = Prepare | Abandon | Fetch | Run | Finish | Drop | Save | Tell | LogFailure


@dataclass(frozen=True, slots=True)
class Change:
    """What to tell the listener, and what to do after that."""

    items: tuple[Item, ...] = ()
    decisions: tuple[Decision, ...] = ()


class ActiveRequest:
    """`request`, which its balancer calls `name`, as the sequence `id`.

    Once `is_over`, no further method may be called.
    """

    def __init__(
        self,
        id: SequenceId,
        name: RequestId,
        request: GenerateRequest,
        listener: Listener,
        resume: Resume | None = None,
        source: PrefixSource | None = None,
    ) -> None:
        self.is_over = False
        self.is_saving = False
        self.is_discarded = False
        """Whether its listener gets no further items."""
        self.id = id
        self.name = name
        self._resume = resume
        self.request = request
        self.listener = listener
        self._source = source
        self._fetching: Prepared | None = None
        """What goes on when the fetch is over."""
        self._answer: Answer | None = None
        self._ended: Ended | None = None
        """The answer's end, while it waits for the save."""
        self._held = None if request.stream else HeldPieces()

    @property
    def is_being_prepared(self) -> bool:
        """Whether nothing of it is in the engine yet."""
        return self._answer is None

    @property
    def is_complete(self) -> bool:
        """Whether its answer has ended, and only waits for the save."""
        return self._ended is not None

    @property
    def key(self) -> str | None:
        """Under which key it saves."""
        return saves_as(self.request)

    def prepared(self, prepared: Prepared, piece: Callable[[int], bytes]) -> Change:
        """It can run, or wants a prefix first. `piece`: a token's bytes."""
        source, self._source = self._source, None
        if source is not None and _may_fetch(prepared):
            self._fetching = prepared
            return Change((), (Fetch(self.id, source, prepared.prompt),))
        self._answer = Answer(self.name, prepared, piece)
        return Change(self._notices(prepared), (Run(self._sequence(prepared)),))

    def fetched(self, prefix: StoredPrompt | None, piece: Callable[[int], bytes]) -> Change:
        """The fetch is over; without a `prefix` all is computed. See `prepared`."""
        prepared, self._fetching = self._fetching, None
        if prepared is None:
            return Change()
        return self.prepared(replace(prepared, stored=prefix), piece)

    def resumed(self, resumed: Resumed) -> Change:
        """It can go on where another agent stopped."""
        self._answer = resumed.answer
        notices = self._notices(resumed.prepared)
        if resumed.answer.is_over:
            return self._over_already(notices, resumed.items)
        sequence = self._sequence(resumed.prepared)
        if resumed.said or resumed.forced:  # all of an echoed prompt came before
            sequence = replace(
                sequence, said=resumed.said, forced=resumed.forced, scores_prompt=False
            )
        return Change((*notices, *resumed.items), (Run(sequence),))

    def _over_already(self, notices: tuple[Item, ...], items: tuple[Item, ...]) -> Change:
        self.is_over = True
        not_saved = () if self.key is None else (noticed(self.name, _NOT_SAVED),)
        return Change((*notices, *items[:-1], *not_saved, items[-1]))

    def _notices(self, prepared: Prepared) -> tuple[Item, ...]:
        return tuple(noticed(self.name, each) for each in prepared.notices)

    def _sequence(self, prepared: Prepared) -> NewSequence:
        request = self.request
        return NewSequence(
            id=self.id,
            prompt=prepared.prompt,
            max_tokens=prepared.max_tokens,
            sampling=prepared.sampling,
            priority=request.priority or 0,
            shift=prepared.shift,
            prefill_only=request.prefill_only,
            stored=prepared.stored,
            save_as=self.key,
            constraint=prepared.constraint,
            scores_prompt=prepared.echo is not None,
            marks=prepared.marks,
        )

    def stepped(self, output: SequenceOutput) -> Change:
        """The engine made a step with it; ignored before it runs and while it saves."""
        if self._answer is None or self.is_saving:
            return Change()
        items = self._answer.take(output) if self._ended is None else []
        return self._answered(items, output) if self._answer.is_over else Change(tuple(items))

    def told(self, items: tuple[Item, ...], now: float) -> tuple[Item, ...]:
        """What to tell at `now`, in seconds, of `items`, which a step gave."""
        return items if self._held is None else self._held.told(items, now)

    def with_rest(self, items: tuple[Item, ...]) -> tuple[Item, ...]:
        """`items`, and before them what was not told yet."""
        return items if self._held is None else self._held.with_rest(items)

    def saved(self, failure: Notice | None) -> Change:
        """Its save is written, or failed."""
        self.is_over = True
        if self._ended is None:
            return Change()
        notices = [] if failure is None else [noticed(self.name, failure)]
        return Change((*notices, self._ended))

    def cancel(self) -> Change:
        """End it early with what was generated."""
        ended = self._never_ran() if self._answer is None else self._answer.cancel()
        self.is_over = True
        return Change((ended,), (self._release(),))

    def fail(self, error: RequestError) -> Change:
        """End it with `error`, or as complete as it is; a save goes on."""
        end = self._ended or Refused(id=self.name, error=to_wire(error))
        return Change((end,), self.discard().decisions)

    def discard(self) -> Change:
        """End it without any further item; a save goes on."""
        self.is_discarded = True
        self.is_over = not self.is_saving
        return Change((), () if self.is_saving else (self._release(),))

    def crashed(self, error: Exception, *, is_in_engine: bool) -> Change:
        """`error` is a bug of ours, raised for this request; it ends this request alone."""
        self.is_over = True
        internal = InternalError("the agent failed to answer the request; its log has the details")
        end = self._ended or Refused(id=self.name, error=to_wire(internal))
        release = (Drop(self.id),) if is_in_engine else ()
        return Change((end,), (LogFailure(self.name, error), *release))

    def _never_ran(self) -> Ended:
        usage = Usage(completion_tokens=self._resume.num_tokens if self._resume else 0)
        return Ended(id=self.name, finish_reason="cancelled", usage=usage, rates=Rates())

    def _release(self) -> Abandon | Drop:
        return Abandon(self.id) if self._answer is None else Drop(self.id)

    def _answered(self, items: list[Item], output: SequenceOutput) -> Change:
        """The answer is complete. An end that has to wait for a save is removed from `items`."""
        if self._ended is None and self.key is not None and isinstance(end := items[-1], Ended):
            self._ended = end
            items.pop()
            if output.end is None:
                return Change(tuple(items), (Finish(self.id),))
        if self.key is None or self._ended is None:
            self.is_over = True
            return Change(tuple(items), () if output.end else (Drop(self.id),))
        if output.end is None:
            return Change()  # of what follows a stop string
        if output.end.saved is not None:
            self.is_saving = True
            return Change(tuple(items), (Save(self.id, self.key, output.end.saved),))
        self.is_over = True
        return Change((*items, noticed(self.name, _NOT_SAVED), self._ended))


def saves_as(request: GenerateRequest) -> str | None:
    """Under which key `request` saves."""
    return request.cache_key if request.save_cache else None


def _may_fetch(prepared: Prepared) -> bool:
    """Whether it could begin with a fetched prefix, of tokens, that nobody has stored here."""
    is_plain = prepared.shift is None and prepared.echo is None and not prepared.prompt.has_media
    return is_plain and prepared.stored is None
