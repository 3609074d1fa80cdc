"""Whether a draft model is worth its time: for another token of each draft, and for catching up.

A round of drafts and the step after it give so many tokens in so many seconds. Another token of
each draft adds what the draft model takes to compute it and what the step takes to check it, and to
the tokens the chance that it is right. It is worth that as long as there are more tokens a second
with it than without. Chances fall along a draft, so the first one that is not worth it ends it.
"""

from ..cost.linear_cost import LinearCost
from .confidence import Confidence
from .drafter import StepPrices

MARGIN = 1.1
"""A token must gain this many times what it costs: both are estimates."""

FIRST_CHUNK = 64
"""Tokens to catch up with at once before it is known what they cost."""

LEAST_AHEAD = 32
"""As many tokens a sequence is thought to go on for, at least; then as many as it has."""


class Round:
    """What one round of drafts brings, and takes, together with the step that checks them."""

    def __init__(self, prices: StepPrices) -> None:
        self._price = prices.token
        self.seconds = prices.step
        self.tokens = float(prices.num_generating)

    def pays(self, gain: float, num_checked: int, drafting: float) -> bool:
        """Whether `gain` more tokens are worth `drafting` seconds and checking `num_checked`."""
        cost = drafting + num_checked * self._price
        return gain * self.seconds > MARGIN * self.tokens * cost

    def add(self, gain: float, num_checked: int, drafting: float) -> None:
        """So it is done."""
        self.tokens += gain
        self.seconds += drafting + num_checked * self._price


class DraftWorth:
    """Learns what the draft model's batches cost. Unknown costs are 0."""

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
