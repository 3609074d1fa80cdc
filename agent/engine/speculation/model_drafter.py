"""The drafter with a model: guesses for all sequences in one batch, one token after the other.

Each sequence has a text in the draft model's cache (`draft_cache`). A round catches up with a
sequence that is far behind, by at most a chunk. It drafts for the other sequences as long as
another token is worth its cost (`draft_worth`).

A model whose quality is unknown, or that does not pay, is only tried. It guesses how a sequence
continues, and the next steps show if the guesses were right; no step computes the guesses. The
losses of tries and drafts are bounded, whatever was predicted (`DraftAllowance`).
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..draft_model import DraftModel, DraftRun, Guess
from ..sequence import SequenceId
from .draft_cache import DraftCache, DraftText
from .draft_worth import PROVEN, Confidence, DraftAllowance, DraftWorth, Round
from .drafter import DraftRequest, Proposal, StepPrices

LEVEL = 8
"""Maximum tokens by which a sequence may be ahead of its text without catching up first."""

NUM_TRIED = 2
"""Tokens that are guessed in a try."""

RESERVE = 0.25
"""Steps to save up before a try of a model that does not pay, or before a check of catching up."""


@dataclass(slots=True, eq=False)
class _Draft:
    """The draft of a sequence: `next` is the token to compute, after which a token is guessed."""

    id: SequenceId
    text: DraftText
    most: int
    next: tuple[int, ...]
    tokens: list[int] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    chance: float = 1.0


class ModelDrafter:
    """Drafts with `model`; `clock` measures the model's time, in seconds."""

    def __init__(
        self, model: DraftModel, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._model = model
        self._clock = clock
        self._cache = DraftCache(model.num_slots, model.num_cells)
        self._confidence = Confidence()
        self._worth = DraftWorth(self._confidence)
        self._allowance = DraftAllowance()
        self._tries = DraftAllowance()
        """The allowance for tries; savings of good drafts are not added to it."""
        self._owed = 0.0
        """Seconds of this round that are counted as debts of sequences instead."""

    def expected_gain(self, most: int) -> float:
        """Return the expected number of right tokens in a draft of at most `most`."""
        return self._confidence.expected_gain(most)

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """Return the model's guesses, if they are worth its time."""
        self._allowance.renew(prices.step)
        self._tries.renew(prices.step)
        if self._allowance.is_spent or not prices.step or not prices.most:
            return {}
        began = self._clock()
        self._owed = 0.0
        drafts = self._round([one for one in requests if self._can_draft(one)], prices, began)
        self._allowance.add(self._owed - (self._clock() - began))
        return {
            each.id: Proposal(tuple(each.tokens), tuple(each.chances))
            for each in drafts
            if each.tokens
        }

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        """Note that tokens of the last proposal for `id` were computed; called before `observe`.

        Saved seconds first repay the cost of the sequence's catching up.
        """
        text = self._cache.find(id)
        repaid = min(saved, text.debt) if text is not None else 0.0
        if text is not None:
            text.debt -= repaid
        self._allowance.add(saved - repaid - cost)

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """Note that a sequence gained `tokens`, drafted or not. Unknown ids are ignored."""
        text = self._cache.find(id)
        if text is None:
            return
        num_gained = 0
        for token in tokens:
            num_gained += 1
            if text.draft:
                self._learn(text, token)
        text.gain(num_gained)

    def forget(self, id: SequenceId) -> None:
        """Forget a sequence. Unknown ids are ignored."""
        text = self._cache.detach(id)
        if text is not None:
            self._allowance.add(-text.debt)
            text.debt = 0.0

    def _can_draft(self, request: DraftRequest) -> bool:
        history = request.history
        return not history.has_media and len(history) + request.most <= self._model.longest

    def _round(
        self, requests: Sequence[DraftRequest], prices: StepPrices, began: float
    ) -> list[_Draft]:
        """Return drafts, or make a try, whose guesses only teach the drafter."""
        if not requests:
            return []
        until = began + prices.most
        if self._confidence.is_proven:
            most = max(each.most for each in requests)
            if saving := self._worth.saving(len(requests), most, prices):
                level = self._follow(requests, saving, prices.most)
                self._draft(level, Round(prices), until)
                if any(one.tokens for one in level):
                    return level
        if self._tries.may_try:
            began = self._clock()
            self._try(requests, prices, until)
            self._tries.add(began - self._clock())
        return []

    # ---- trying

    def _try(self, requests: Sequence[DraftRequest], prices: StepPrices, until: float) -> None:
        """Guess how up-to-date sequences continue, or catch up with the least late sequence.

        Catching up waits until there is as much time as it is expected to take. While the model is
        unproven, further sequences catch up too if enough time remains to prove the model.
        """
        level, late = self._found(requests)
        reserve, left = RESERVE * prices.step, self._tries.seconds
        if late and not (level and self._confidence.is_proven):
            one, num_wanted = late[0], PROVEN if level else NUM_TRIED
            if left < self._worth.chunk(len(one.next)) + num_wanted * self._worth.step(1):
                self._tries.save_for(left + reserve)
            else:
                self._catch_up(one, min(prices.most, left), requests)
                self._tries.save_for(0.0)
                level += [one] if len(one.next) <= LEVEL else []
        if level:
            self._guess([one for one in level if not one.text.draft], until)
            self._tries.save_for(reserve if self._confidence.is_proven else 0.0)

    def _guess(self, growing: Sequence[_Draft], until: float) -> None:
        present = {one.id for one in growing}
        for _ in range(NUM_TRIED):
            growing = [one for one in growing if len(one.tokens) < one.most]
            num_tokens = sum(len(one.next) for one in growing)
            if not growing or self._clock() > until or not self._make_room(num_tokens, present):
                return
            growing = self._extend(growing, self._compute(growing)[1])

    # ---- following sequences

    def _follow(
        self, requests: Sequence[DraftRequest], saving: float, seconds: float
    ) -> list[_Draft]:
        """Return empty drafts for up-to-date sequences, after catching up if that pays.

        Catching up takes at most a chunk of `seconds` for one late sequence. Its drafts must save
        that time again.
        """
        level, late = self._found(requests)
        if late:
            one = late[0]
            num_late, num_gained = len(one.next), one.text.num_gained
            if self._worth.is_worth_catching_up(num_late, num_gained, saving):
                took = self._catch_up(one, seconds, requests)
                one.text.debt += took
                self._owed += took
        return level

    def _found(self, requests: Sequence[DraftRequest]) -> tuple[list[_Draft], list[_Draft]]:
        """Return the up-to-date sequences and the late sequences, the least late first."""
        present = {each.id for each in requests}
        found = [one for each in requests if (one := self._begin(each, present)) is not None]
        found.sort(key=lambda one: len(one.next))
        num_level = sum(len(one.next) <= LEVEL for one in found)
        return found[:num_level], found[num_level:]

    def _begin(self, request: DraftRequest, present: set[SequenceId]) -> _Draft | None:
        text = self._cache.follow(request.id, request.history, present)
        if text is None:
            return None
        num_alike = text.reconcile(request.history)
        if num_alike < len(text.tokens):
            self._cut(text, num_alike)
        missing = request.history.token_ids(num_alike, len(request.history))
        return _Draft(request.id, text, request.most, missing)

    def _catch_up(self, one: _Draft, seconds: float, requests: Sequence[DraftRequest]) -> float:
        """Compute a chunk of the missing tokens within `seconds`; return the seconds it took."""
        most = min(len(one.next) - 1, self._model.batch_size)
        count = self._worth.chunk_within(seconds, most)
        if not self._make_room(count, {each.id for each in requests}):
            return 0.0
        start = len(one.text.tokens)
        chunk, one.next = one.next[:count], one.next[count:]
        started = self._clock()
        self._model.compute((DraftRun(one.id, one.text.slot, start, chunk, guesses=False),))
        took = self._clock() - started
        one.text.compute(start, chunk)
        self._worth.computed(count, took, is_chunk=True)
        return took

    def _make_room(self, count: int, present: set[SequenceId]) -> bool:
        evicted = self._cache.evict(count, present)
        for text in evicted or ():
            self._cut(text, 0)
        return evicted is not None

    def _cut(self, text: DraftText, length: int) -> None:
        self._model.cut(text.slot, length)
        del text.tokens[length:]

    # ---- drafting

    def _draft(self, drafts: Sequence[_Draft], round: Round, until: float) -> None:
        """Guess token after token as long as another token is worth its cost."""
        present = {one.id for one in drafts}
        growing, place = list(drafts), 0
        while growing := [one for one in growing if self._may_grow(one, round)]:
            num_tokens = sum(len(one.next) for one in growing)
            gain = self._confidence.expected(place) * sum(one.chance for one in growing)
            if not round.pays(gain, len(growing), self._worth.step(num_tokens)):
                return
            if self._clock() > until or not self._make_room(num_tokens, present):
                return
            took, guesses = self._compute(growing)
            round.add(gain, len(growing), took)
            growing = self._extend(growing, guesses)
            place += 1

    def _may_grow(self, one: _Draft, round: Round) -> bool:
        """Return whether another token is allowed and, if it is right, worth checking."""
        place = len(one.tokens)
        gain = one.chance * self._confidence.expected(place)
        return place < one.most and (not place or round.pays(gain, 1, 0.0))

    def _compute(self, growing: Sequence[_Draft]) -> tuple[float, list[Guess]]:
        runs = [DraftRun(one.id, one.text.slot, len(one.text.tokens), one.next) for one in growing]
        started = self._clock()
        guesses = self._model.compute(runs)
        took = self._clock() - started
        num_tokens = 0
        for one in growing:
            one.text.compute(len(one.text.tokens), one.next)
            num_tokens += len(one.next)
        self._worth.computed(num_tokens, took, is_chunk=False)
        return took, guesses

    def _extend(self, growing: Sequence[_Draft], guesses: Sequence[Guess]) -> list[_Draft]:
        """Add the guesses; return the drafts that may continue. A draft ends with an end token."""
        going_on = []
        for one, guess in zip(growing, guesses, strict=True):
            if not one.tokens:
                one.text.draft = []
            one.text.draft.append((len(one.tokens), guess.token, guess.chance))
            if guess.token in self._model.end_tokens:
                continue
            one.chance *= self._confidence.chance(guess.chance)
            one.tokens.append(guess.token)
            one.chances.append(one.chance)
            one.next = (guess.token,)
            going_on.append(one)
        return going_on

    # ---- learning

    def _learn(self, text: DraftText, token: int) -> None:
        """Learn from `token`, with which the sequence continued.

        Guesses after a wrong guess cannot be verified.
        """
        place, guess, chance = text.draft[0]
        is_right = token == guess
        self._confidence.observe(place, chance, is_right=is_right)
        text.draft = text.draft[1:] if is_right else []
