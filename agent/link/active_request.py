"""One request that holds a slot: prepared, run, answered and, where it asked for that, saved.

Invariant: it is answered once. A request with `save_cache` is answered when its save is written, so
that whoever asks next finds it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ...shared.errors import RequestError, to_wire
from ...shared.inference import GenerateRequest, Notice, Rates, Usage
from ...shared.messages import Ended, Item, Refused, Start
from ..engine.sequence import NewSequence, SequenceId, SequenceOutput
from ..generation.answer import Answer, noticed
from ..generation.prepared import Prepared
from .decisions import Abandon, Decision, Drop, Finish, Run, Save

_NOT_SAVED = Notice("prompt_cache", "the engine failed before the prompt could be saved")


@dataclass(frozen=True, slots=True)
class Change:
    """What to tell the balancer, in one frame, and what to do after that."""

    items: tuple[Item, ...] = ()
    decisions: tuple[Decision, ...] = ()


class ActiveRequest:
    """The request of `start`, as the sequence `id`; after `is_over` nothing is asked of it."""

    def __init__(self, id: SequenceId, start: Start) -> None:
        self.is_over = False
        self.is_saving = False
        self._id = id
        self.start = start
        self._answer: Answer | None = None
        self._ended: Ended | None = None
        """The answer's end, while it waits for the save."""

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
        return saves_as(self.start.request)

    def prepared(self, prepared: Prepared, piece: Callable[[int], bytes]) -> Change:
        """It can run. `piece`: a token's bytes."""
        request = self.start.request
        self._answer = Answer(self.start.id, prepared, piece)
        sequence = NewSequence(
            id=self._id,
            prompt=prepared.prompt,
            max_tokens=prepared.max_tokens,
            sampling=prepared.sampling,
            priority=request.priority,
            shift=prepared.shift,
            prefill_only=request.prefill_only,
            stored=prepared.stored,
            save_as=self.key,
            constraint=prepared.constraint,
            scores_prompt=prepared.echo is not None,
        )
        notices = tuple(noticed(self.start.id, each) for each in prepared.notices)
        return Change(notices, (Run(sequence),))

    def stepped(self, output: SequenceOutput) -> Change:
        """The engine made a step with it; nothing comes of that before it runs."""
        if self._answer is None or self.is_saving:
            return Change()
        items = self._answer.take(output) if self._ended is None else []
        return self._answered(items, output) if self._answer.is_over else Change(tuple(items))

    def saved(self, failure: Notice | None) -> Change:
        """Its save is written, or is not."""
        self.is_over = True
        if self._ended is None:
            return Change()
        notices = [] if failure is None else [noticed(self.start.id, failure)]
        return Change((*notices, self._ended))

    def cancel(self) -> Ended:
        """The end of an answer that nobody wants any more; it is to be released."""
        return _never_ran(self.start) if self._answer is None else self._answer.cancel()

    def fail(self, error: RequestError) -> Item:
        """Its end when nothing can go on; it is to be released."""
        return self._ended or Refused(id=self.start.id, error=to_wire(error))

    def release(self) -> Abandon | Drop:
        """Nobody waits for it any more."""
        return Abandon(self._id) if self._answer is None else Drop(self._id)

    def _answered(self, items: list[Item], output: SequenceOutput) -> Change:
        """The answer is complete. From `items` an end is taken that has to wait for a save."""
        if self._ended is None and self.key is not None and isinstance(end := items[-1], Ended):
            self._ended = end
            items.pop()
            if output.end is None:
                return Change(tuple(items), (Finish(self._id),))
        if self.key is None or self._ended is None:
            self.is_over = True
            return Change(tuple(items), () if output.end else (Drop(self._id),))
        if output.end is None:
            return Change()  # of what follows a stop string
        if output.end.saved is not None:
            self.is_saving = True
            return Change(tuple(items), (Save(self._id, self.key, output.end.saved),))
        self.is_over = True
        return Change((*items, noticed(self.start.id, _NOT_SAVED), self._ended))


def saves_as(request: GenerateRequest) -> str | None:
    """Under which key `request` saves."""
    return request.cache_key if request.save_cache else None


def _never_ran(start: Start) -> Ended:
    return Ended(id=start.id, finish_reason="cancelled", usage=Usage(), rates=Rates())
