"""The worth of drafts: which drafts pay, and how much time a drafter may lose.

A draft is computed in the same batch as the token before it. As far as the draft is right, a step
gives several tokens; wrong tokens were computed in vain, and are dropped. The text is the same.

Drafting pays if all sequences together gain more tokens per second. A drafted token gains its
chance to be right. Its cost is learnt from the steps that were run, and from the batches of a
draft model. Chances fall along a draft, so each draft has the length that pays at the moment,
which may be 0 tokens.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence

from ..cost.linear_cost import LinearCost
from ..cost.price import Price
from ..cost.step_cost import StepCost
from .drafter import Proposal, StepPrices

MARGIN = 1.1
"""A draft must gain this many times its cost.

Both are estimates, and the best-looking drafts are often overestimated.
"""


class Round:
    """The tokens and seconds of a step with drafts, including the time to make the drafts."""

    def __init__(self, prices: StepPrices) -> None:
        self._price = prices.token
        self.seconds = prices.step
        self.tokens = float(prices.num_generating)

    def pays(self, gain: float, num_checked: int, drafting: float) -> bool:
        """Return whether `gain` more tokens are worth the cost.

        The cost is `drafting` seconds to make the draft, and the seconds to check `num_checked`
        tokens.
        """
        cost = drafting + num_checked * self._price
        return gain * self.seconds > MARGIN * self.tokens * cost

    def add(self, gain: float, num_checked: int, drafting: float) -> None:
        """Add tokens that were drafted, or will be."""
        self.tokens += gain
        self.seconds += drafting + num_checked * self._price


# ---- which proposals are computed


class Speculation:
    """Chooses drafts of at most `most` tokens per sequence and step; 0 means never.

    Drafts contain no end token.
    """

    def __init__(self, *, most: int, cost: StepCost, end_tokens: frozenset[int]) -> None:
        self.most = most
        self._cost = cost
        self._end_tokens = end_tokens

    def may_pay(self, num_generating: int) -> bool:
        """Return whether a certainly right draft would pay; if not, no drafter is asked."""
        return self.most > 0 and self._num_worth((1.0,), num_generating) > 0

    def choose(
        self, proposals: Mapping[int, Proposal], num_generating: int, num_spare: int
    ) -> dict[int, tuple[int, ...]]:
        """Return the drafts to compute, by slot, with at most `num_spare` tokens in total.

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
        """Return how many of the descending `chances` pay. A step without drafts takes 1 unit."""
        price = self._cost.draft_price(num_generating)
        round = Round(StepPrices(step=1.0, token=price, num_generating=num_generating))
        for index, chance in enumerate(chances):
            if not round.pays(chance, 1, 0.0):
                return index
            round.add(chance, 1, 0.0)
        return len(chances)


# ---- how often drafts are right

FORGETTING = 0.98
"""The weight of an observation after the next one of its kind."""


def learnt_rate(assumed: float, *, weight: float) -> Price:
    """Return a learnt rate from 0 to 1. Observe 1 for a success, and 0 for a failure."""
    return Price(forgetting=FORGETTING, assumed=assumed, weight=weight)


EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Bounds of the model's probability that divide guesses into kinds."""

PRIOR = 0.7
"""The share of guesses assumed right before any observation."""

PROVEN = 16
"""Observations after which the quality of a draft model counts as known."""

_WEIGHT = 2.0


class Confidence:
    """Learns how often a draft model's guesses are right, by the model's probability.

    The model's probability alone says little. It may be overconfident, the sequence may be drawn
    at a high temperature, or the model may not know the text. A guess can be compared with the
    sequence's next token even if no step computed the guess. Before any observation, the model's
    own probability is assumed.
    """

    def __init__(self) -> None:
        middles = [(low + high) / 2 for low, high in zip((0, *EDGES), (*EDGES, 1), strict=True)]
        self._kinds = [learnt_rate(middle, weight=_WEIGHT) for middle in middles]
        self._first, self._later = (learnt_rate(PRIOR, weight=_WEIGHT) for _ in range(2))
        self._num_seen = 0

    @property
    def is_proven(self) -> bool:
        """Return whether enough guesses were observed to rely on these rates."""
        return self._num_seen >= PROVEN

    def observe(self, place: int, believed: float, *, is_right: bool) -> None:
        """Learn if the guess at `place`, from 0, was right after right guesses."""
        self._num_seen += 1
        self._kinds[_kind(believed)].observe(is_right)
        (self._later if place else self._first).observe(is_right)

    def chance(self, believed: float) -> float:
        """Return the chance that a guess with the model's probability `believed` is right."""
        return self._kinds[_kind(believed)].value

    def expected(self, place: int) -> float:
        """Return the chance that the guess at `place` is right if all earlier guesses are."""
        return (self._later if place else self._first).value

    def expected_gain(self, most: int) -> float:
        """Return the expected number of right guesses in a draft of `most` tokens."""
        chance, total = self.expected(0), 0.0
        for _ in range(most):
            total += chance
            chance *= self.expected(1)
        return total


def _kind(believed: float) -> int:
    return bisect_right(EDGES, believed)


# ---- what a draft model's drafts are worth

FIRST_CHUNK = 64
"""Tokens to catch up with at once while their cost is unknown."""

LEAST_AHEAD = 32
"""A sequence is expected to gain as many tokens as so far, but at least this many."""


class DraftWorth:
    """Decides if a draft model is worth its time, to draft another token or to catch up.

    Another token of each draft costs the draft model's computation and the check in the step, and
    gains the chance that the token is right. The token is worth its cost if there are more tokens
    per second with it than without it. The first token that is not worth its cost ends the draft.
    The cost of the draft model's batches is learnt; unknown costs are 0.
    """

    def __init__(self, confidence: Confidence) -> None:
        self._confidence = confidence
        self._steps = LinearCost(lean=0.5)
        self._chunks = LinearCost()

    def computed(self, num_tokens: int, seconds: float, *, is_chunk: bool) -> None:
        """Learn from a batch that took `seconds`: tokens of drafts, or a chunk to catch up
        with.
        """
        (self._chunks if is_chunk else self._steps).observe(num_tokens, seconds)

    def step(self, num_tokens: int) -> float:
        """Return the seconds to draft the next token of each draft."""
        return self._steps.predict(num_tokens) if num_tokens else 0.0

    def chunk(self, num_tokens: int) -> float:
        """Return the seconds to catch up with `num_tokens`."""
        return self._chunks.predict(num_tokens)

    def chunk_within(self, seconds: float, most: int) -> int:
        """Return how many of `most` tokens to catch up with in `seconds`; at least one."""
        if not self._chunks.is_known:
            return min(most, FIRST_CHUNK)
        return max(1, int(min(most, self._chunks.most_within(seconds))))

    def saving(self, num_drafted: int, most: int, prices: StepPrices) -> float:
        """Expected seconds saved per token when `num_drafted` sequences draft up to `most` tokens.

        Each draft has the length that pays. The result is 0 if drafting does not pay.
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
        """Return whether catching up with `num_late` tokens pays.

        The sequence gained `num_gained` tokens so far.
        """
        return self.chunk(num_late) <= saving * max(LEAST_AHEAD, num_gained)


# ---- what a drafter may lose

EARNED = 0.005
"""The share of the steps' time that a drafter may lose."""

FIRST_LOSS = 2.0
"""Steps that may be lost before any time was earned."""

MOST_LOSS = 10.0
"""Maximum allowance in steps; further time is not added."""


class DraftAllowance:
    """The time that a drafter may lose, in seconds, whatever was predicted.

    The drafter pays for making proposals, and for computing them with steps. Right tokens earn
    time, and a small share of the steps' time is added. So a useless drafter loses `FIRST_LOSS`
    steps at the beginning, and then only its share of the time. That share is spent on finding out
    if the drafter has become useful. Steps of unknown length add and cost nothing.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._most = 0.0
        self._goal = 0.0

    @property
    def is_spent(self) -> bool:
        """Return whether more was lost than allowed."""
        return self.seconds < 0

    @property
    def may_try(self) -> bool:
        """Return whether as much time is available as `save_for` asked for."""
        return self.seconds >= min(self._goal, self._most)

    def save_for(self, seconds: float) -> None:
        """Let the next try wait until `seconds` are available, at most the maximum allowance."""
        self._goal = seconds

    def renew(self, step: float) -> None:
        """Earn a share of the next step, of `step` seconds without drafts; 0 means unknown."""
        if not step:
            return
        if not self._most:
            self.seconds += FIRST_LOSS * step
        self._most = MOST_LOSS * step
        self.add(EARNED * step)

    def add(self, seconds: float) -> None:
        """Add saved seconds, up to the maximum; negative seconds were lost."""
        self.seconds = min(self.seconds + seconds, self._most)
