"""What drafts are worth: which of them pay, and how much a drafter may lose.

A draft is computed in the same batch as the token before it. As far as it is right, a step gives
several tokens; what is wrong was computed in vain, and is given up. The text is the same.

Drafting pays where it gains more tokens a second, of all sequences together. What a drafted token
gains is its chance to be right; what it costs is learnt from the steps that were run, and from the
batches of a draft model. Chances fall along a draft, so each draft is as long as pays at the
moment, which can be not at all.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

from ..cost.linear_cost import LinearCost
from ..cost.price import Price
from ..cost.step_cost import StepCost
from .drafter import Proposal, StepPrices

MARGIN = 1.1
"""A draft must gain this many times what it costs. Both are estimates, and the best-looking
ones are often overestimated."""


class Round:
    """What a step with drafts brings, and takes, with what it took to make the drafts."""

    def __init__(self, prices: StepPrices) -> None:
        self._price = prices.token
        self.seconds = prices.step
        self.tokens = float(prices.num_generating)

    def pays(self, gain: float, num_checked: int, drafting: float) -> bool:
        """Whether `gain` more tokens are worth `drafting` seconds and checking `num_checked`."""
        cost = drafting + num_checked * self._price
        return gain * self.seconds > MARGIN * self.tokens * cost

    def add(self, gain: float, num_checked: int, drafting: float) -> None:
        """Count these in: they were drafted, or will be."""
        self.tokens += gain
        self.seconds += drafting + num_checked * self._price


# ---- which proposals are computed


class Speculation:
    """Drafts at most `most` tokens for a sequence and step; 0: never. Never an end token."""

    def __init__(self, *, most: int, cost: StepCost, end_tokens: frozenset[int]) -> None:
        self.most = most
        self._cost = cost
        self._end_tokens = end_tokens

    def may_pay(self, num_generating: int) -> bool:
        """Whether a draft that is surely right would pay; if not, no drafter needs to be asked."""
        return self.most > 0 and self._num_worth((1.0,), num_generating) > 0

    def choose(
        self, proposals: Mapping[int, Proposal], num_generating: int, num_spare: int
    ) -> dict[int, tuple[int, ...]]:
        """What to compute in slots beside their last tokens: at most `num_spare` tokens in all.

        `proposals` are by slot, for some of `num_generating` sequences.
        """
        if num_spare <= 0:
            return {}
        allowed = {
            slot: proposal.first(self.most).before(self._end_tokens)
            for slot, proposal in proposals.items()
        }
        candidates = [(chance, slot) for slot, one in allowed.items() for chance in one.chances]
        candidates.sort(key=lambda candidate: -candidate[0])
        chances = [chance for chance, _ in candidates[:num_spare]]
        count = self._num_worth(chances, num_generating)
        lengths = Counter(slot for _, slot in candidates[:count])
        return {slot: allowed[slot].tokens[:length] for slot, length in lengths.items()}

    def _num_worth(self, chances: Sequence[float], num_generating: int) -> int:
        """How many of `chances`, which descend, pay. The step without drafts takes 1."""
        price = self._cost.draft_price(num_generating)
        round = Round(StepPrices(step=1.0, token=price, num_generating=num_generating))
        for index, chance in enumerate(chances):
            if not round.pays(chance, 1, 0.0):
                return index
            round.add(chance, 1, 0.0)
        return len(chances)


# ---- how often drafts are right

FORGETTING = 0.98
"""What an observation still counts when the next one of its kind comes."""


def learnt_rate(assumed: float, *, weight: float) -> Price:
    """How often something is so, from 0 to 1: observe 1 if it was, and 0 if not."""
    return Price(forgetting=FORGETTING, assumed=assumed, weight=weight)


EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Guesses between two of these probabilities are of one kind."""

PRIOR = 0.7
"""The part of guesses that is taken to be right before anything is known."""

PROVEN = 16
"""After so many observations it is known whether a draft model is good for anything."""

_WEIGHT = 2.0


class Confidence:
    """How often a draft model is right, by how likely it finds its guess; learnt from every draft.

    What a model takes for likely says little by itself: it may be overconfident, the sequence may
    be drawn at a high temperature, or the model may know nothing of the text. How often guesses of
    that kind were what the sequence went on with is seen whether they were computed as drafts or
    not. Until something was observed, guesses are right as often as the model believes.
    """

    def __init__(self) -> None:
        middles = [(low + high) / 2 for low, high in zip((0, *EDGES), (*EDGES, 1), strict=True)]
        self._kinds = [learnt_rate(middle, weight=_WEIGHT) for middle in middles]
        self._first, self._later = (learnt_rate(PRIOR, weight=_WEIGHT) for _ in range(2))
        self._num_seen = 0

    @property
    def is_proven(self) -> bool:
        """Whether enough was seen to rely on it."""
        return self._num_seen >= PROVEN

    def observe(self, place: int, believed: float, *, is_right: bool) -> None:
        """The guess in this `place` of a draft, from 0, was right or not; all before it were."""
        self._num_seen += 1
        self._kinds[_kind(believed)].observe(is_right)
        (self._later if place else self._first).observe(is_right)

    def chance(self, believed: float) -> float:
        """That a guess is right which the model finds so likely, from 0 to 1."""
        return self._kinds[_kind(believed)].value

    def expected(self, place: int) -> float:
        """That the guess in this `place` of a draft will be right if all before it are."""
        return (self._later if place else self._first).value

    def expected_gain(self, most: int) -> float:
        """How many guesses of a draft of `most` tokens are likely to be right."""
        chance, total = self.expected(0), 0.0
        for _ in range(most):
            total += chance
            chance *= self.expected(1)
        return total


def _kind(believed: float) -> int:
    return bisect_right(EDGES, believed)


# ---- what a draft model's drafts are worth

FIRST_CHUNK = 64
"""Tokens to catch up with at once before it is known what they cost."""

LEAST_AHEAD = 32
"""A sequence is thought to go on for as many tokens as it has, and for so many at least."""


class DraftWorth:
    """Whether a draft model is worth its time: for another token of each draft, and catching up.

    Another token of each draft adds what the draft model takes to compute it and what the step
    takes to check it, and to the tokens the chance that it is right. It is worth that as long as
    there are more tokens a second with it than without. The first token that is not worth it ends
    the draft. What the draft model's batches cost is learnt; unknown costs are 0.
    """

    def __init__(self, confidence: Confidence) -> None:
        self._confidence = confidence
        self._steps = LinearCost(lean=0.5)
        self._chunks = LinearCost()

    def computed(self, num_tokens: int, seconds: float, *, is_chunk: bool) -> None:
        """A batch took `seconds`: a token or two of each draft, or a chunk to catch up with."""
        (self._chunks if is_chunk else self._steps).observe(num_tokens, seconds)

    def step(self, num_tokens: int) -> float:
        """What the next token of drafts takes, in seconds."""
        return self._steps.predict(num_tokens) if num_tokens else 0.0

    def chunk(self, num_tokens: int) -> float:
        """What catching up with so many tokens takes, in seconds."""
        return self._chunks.predict(num_tokens)

    def chunk_within(self, seconds: float, most: int) -> int:
        """How many tokens, of at most `most`, to catch up with in `seconds`; at least one."""
        if not self._chunks.is_known:
            return min(most, FIRST_CHUNK)
        return max(1, int(min(most, self._chunks.most_within(seconds))))

    def saving(self, num_drafted: int, most: int, prices: StepPrices) -> float:
        """The seconds that drafts for so many sequences are thought to save on each of their
        tokens, if they are as long as pays, and `most` at the most; 0 where none pay.
        """
        round = Round(prices)
        chance = 1.0
        for place in range(most):
            chance *= self._confidence.expected(place)
            gain, drafting = num_drafted * chance, self.step(num_drafted)
            if not round.pays(gain, num_drafted, drafting):
                break
            round.add(gain, num_drafted, drafting)
        before = prices.step / prices.num_generating
        return max(0.0, before - round.seconds / round.tokens)

    def is_worth_catching_up(self, num_late: int, num_gained: int, saving: float) -> bool:
        """Whether a sequence that gained `num_gained` tokens so far is worth `num_late` tokens."""
        return self.chunk(num_late) <= saving * max(LEAST_AHEAD, num_gained)


# ---- what a drafter may lose

EARNED = 0.005
"""The part of the time of steps that a drafter may lose."""

FIRST_LOSS = 2.0
"""Steps that may be lost before any was earned."""

MOST_LOSS = 10.0
"""Most that may be lost at once, in steps: so much can be saved up."""


class DraftAllowance:
    """The time that a drafter may lose, in seconds, whatever was predicted.

    What a drafter takes is paid from it: making proposals, and computing them with steps. Tokens
    that were right bring time back, and a small part of the time that steps take is added. So a
    drafter that is no good loses `FIRST_LOSS` steps at the beginning, and its part of the time
    afterwards, which is spent on finding out whether it is good now. Nothing is earned from steps
    of unknown length, and nothing is spent on them.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._most = 0.0
        self._goal = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether more was lost than there was."""
        return self.seconds < 0

    @property
    def may_try(self) -> bool:
        """Whether there is enough for what it was to `save_for`."""
        return self.seconds >= min(self._goal, self._most)

    def save_for(self, seconds: float) -> None:
        """The next try is to wait until there are so many, or as many as can be saved up."""
        self._goal = seconds

    def renew(self, step: float) -> None:
        """A step of `step` seconds, without drafts, comes next; 0: that is unknown."""
        if not step:
            return
        if not self._most:
            self.seconds += FIRST_LOSS * step
        self._most = MOST_LOSS * step
        self.add(EARNED * step)

    def add(self, seconds: float) -> None:
        """Add what was saved, or lost if negative; no more is saved up than may be lost at once."""
        self.seconds = min(self.seconds + seconds, self._most)
