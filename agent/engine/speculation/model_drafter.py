"""The drafter with a model: guesses for all sequences in one batch, one token after the other.

Each sequence has a text in the draft model's cache (`draft_cache`). A round catches up with the
sequences that are far behind, a chunk at most, and drafts for the others, for as long as another
token is worth it (`draft_worth`). What that loses is bounded, whatever was predicted
(`draft_allowance`): where drafts do not pay, a short one is tried now and then.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..draft_model import DraftModel, DraftRun, Guess
from ..sequence import SequenceId
from .confidence import Confidence
from .draft_allowance import DraftAllowance
from .draft_cache import DraftCache, DraftText
from .draft_worth import DraftWorth, Round
from .drafter import DraftRequest, Proposal, StepPrices

LEVEL = 8
"""A sequence that is so many tokens ahead of its text, or fewer, needs no catching up first."""

NUM_PROBED = 2
"""Tokens of a draft that is only tried, as are the first ones."""


@dataclass(slots=True, eq=False)
class _Draft:
    """What is drafted for a sequence: `next` is to be computed, then the next token is guessed."""

    text: DraftText
    most: int
    next: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    chance: float = 1.0


class ModelDrafter:
    """Drafts with `model`; `clock` measures what that takes, in seconds."""

    def __init__(
        self, model: DraftModel, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._model = model
        self._clock = clock
        self._cache = DraftCache(model.num_slots, model.num_cells)
        self._confidence = Confidence()
        self._worth = DraftWorth(self._confidence)
        self._allowance = DraftAllowance()

    def hope(self, most: int) -> float:
        """How many tokens of a draft of at most `most` will be right."""
        return self._confidence.hope(most)

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """What the model thinks will follow, where that is worth its time."""
        self._allowance.renew(prices.step)
        requests = [each for each in requests if self._can_draft(each)]
        if not requests or not prices.step or not prices.most or self._allowance.is_spent:
            return {}
        most = max(each.most for each in requests)
        saving = self._worth.saving(len(requests), most, prices)
        if not saving and not self._allowance.may_probe:
            return {}
        until = self._clock() + prices.most
        level = self._follow(requests, saving, prices)
        drafts = self._draft(level, Round(prices), until, is_probe=not saving)
        self._allowance.add(-prices.token * sum(len(each.tokens) for each in drafts))
        return {
            each.text.id: Proposal(tuple(each.tokens), tuple(each.chances))
            for each in drafts
            if each.text.id is not None and each.tokens
        }

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """A sequence gained `tokens`, drafted or not. Unknown ids are ignored."""
        text = self._cache.find(id)
        if text is None:
            return
        gained = tuple(tokens)
        text.gain(len(gained))
        num_right = self._learn(text, gained)
        self._repay(text, text.token_seconds * min(num_right, len(gained) - 1))
        text.draft = []

    def forget(self, id: SequenceId) -> None:
        """A sequence is over. Unknown ids are ignored."""
        text = self._cache.leave(id)
        if text is not None:
            self._allowance.add(-text.debt)
            text.debt = 0.0

    def _can_draft(self, request: DraftRequest) -> bool:
        history = request.history
        return not history.has_media and len(history) + request.most <= self._model.longest

    # ---- following sequences

    def _follow(
        self, requests: Sequence[DraftRequest], saving: float, prices: StepPrices
    ) -> list[_Draft]:
        """The beginnings of drafts for those that are level, after a chunk for those that are not.

        With no `saving` only the one that is least behind is tried.
        """
        present = {each.id for each in requests}
        found = [one for each in requests if (one := self._begin(each, present)) is not None]
        found.sort(key=lambda one: len(one.next))
        late = [one for one in found if len(one.next) > LEVEL]
        level = found[: len(found) - len(late)]
        if late and (saving or not level):
            self._catch_up(late, saving, prices.most, present)
        for one in level:
            one.text.token_seconds = prices.step / prices.num_generating
        return level if saving else level[:1]

    def _begin(self, request: DraftRequest, present: set[SequenceId]) -> _Draft | None:
        text = self._cache.follow(request.id, request.history, present)
        if text is None:
            return None
        num_alike = text.look_at(request.history)
        if num_alike < len(text.tokens):
            self._cut(text, num_alike)
        missing = request.history.token_ids(num_alike, len(request.history))
        return _Draft(text, request.most, missing)

    def _catch_up(
        self, late: Sequence[_Draft], saving: float, seconds: float, present: set[SequenceId]
    ) -> None:
        """Compute a chunk of what the first of `late` is behind, if that is worth it.

        What it takes is to be brought back by drafts that are known to be good; with others it
        counts as lost.
        """
        one = late[0]
        is_trusted = saving > 0 and self._confidence.is_proven
        if is_trusted and not self._worth.is_worth_catching_up(
            len(one.next), one.text.num_gained, saving
        ):
            return
        if not is_trusted:
            seconds = min(seconds, self._allowance.seconds)
        most = min(len(one.next) - 1, self._model.batch_size)
        count = self._worth.chunk_within(seconds, most)
        if not self._make_room(count, present):
            return
        start = len(one.text.tokens)
        chunk = one.next[:count]
        started = self._clock()
        self._model.compute((DraftRun(one.text.slot, start, chunk, guesses=False),))
        took = self._clock() - started
        one.text.compute(start, chunk)
        self._worth.computed(count, took, is_chunk=True)
        if is_trusted:
            one.text.debt += took
        else:
            self._allowance.add(-took)

    def _make_room(self, count: int, present: set[SequenceId]) -> bool:
        evicted = self._cache.evict(count, present)
        for text in evicted or ():
            self._cut(text, 0)
        return evicted is not None

    def _cut(self, text: DraftText, length: int) -> None:
        self._model.cut(text.slot, length)
        del text.tokens[length:]

    # ---- drafting

    def _draft(
        self, drafts: list[_Draft], round: Round, until: float, *, is_probe: bool
    ) -> list[_Draft]:
        """Guess token after token, for as long as that is worth it."""
        present = {one.text.id for one in drafts if one.text.id is not None}
        growing, place = drafts, 0
        while growing := [one for one in growing if self._may_grow(one, round)]:
            is_tried = is_probe and place < NUM_PROBED
            num_tokens = sum(len(one.next) for one in growing)
            gain = self._confidence.expected(place) * sum(one.chance for one in growing)
            seconds = self._worth.step(num_tokens)
            if not (is_tried or round.pays(gain, len(growing), seconds)):
                break
            if self._clock() > until or not self._make_room(num_tokens, present):
                break
            took, guesses = self._compute(growing)
            round.add(gain, len(growing), took)
            growing = self._extend(growing, guesses)
            place += 1
        return drafts

    def _may_grow(self, one: _Draft, round: Round) -> bool:
        """Whether it may have another token, and if it is right, checking it would pay."""
        place = len(one.tokens)
        most = one.most if self._confidence.is_proven else min(one.most, NUM_PROBED)
        gain = one.chance * self._confidence.expected(place)
        return place < most and (not place or round.pays(gain, 1, 0.0))

    def _compute(self, growing: Sequence[_Draft]) -> tuple[float, list[Guess]]:
        runs = [DraftRun(one.text.slot, len(one.text.tokens), one.next) for one in growing]
        started = self._clock()
        guesses = self._model.compute(runs)
        took = self._clock() - started
        num_tokens = 0
        for one in growing:
            one.text.compute(len(one.text.tokens), one.next)
            num_tokens += len(one.next)
        self._worth.computed(num_tokens, took, is_chunk=False)
        self._allowance.add(-took)
        return took, guesses

    def _extend(self, growing: Sequence[_Draft], guesses: Sequence[Guess]) -> list[_Draft]:
        """Take the guesses; who may go on. Nothing follows an end token."""
        going_on = []
        for one, guess in zip(growing, guesses, strict=True):
            one.text.draft.append((guess.token, guess.chance))
            if guess.token in self._model.end_tokens:
                continue
            one.chance *= self._confidence.chance(guess.chance)
            one.tokens.append(guess.token)
            one.chances.append(one.chance)
            one.next = (guess.token,)
            going_on.append(one)
        return going_on

    # ---- learning

    def _learn(self, text: DraftText, gained: Sequence[int]) -> int:
        """How many of the last draft's tokens were right, of those that can be told."""
        for place, (token, (guess, chance)) in enumerate(zip(gained, text.draft, strict=False)):
            is_right = token == guess
            self._confidence.observe(place, chance, is_right=is_right)
            if not is_right:
                return place
        return min(len(gained), len(text.draft))

    def _repay(self, text: DraftText, saved: float) -> None:
        """First what catching up took, then what counts for all."""
        repaid = min(saved, text.debt)
        text.debt -= repaid
        self._allowance.add(saved - repaid)
