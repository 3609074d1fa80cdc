"""Speculative decoding: how many of the proposed tokens pay, and so are computed with the step.

A draft is computed in the same batch as the token before it. As far as it is right, a step gives
several tokens; what is wrong was computed in vain, and is given up. The text is the same.

Drafting pays where it gains more tokens a second, of all sequences together. What a drafted token
gains is its chance to be right; what it costs is learnt from the steps that were run. Chances fall
along a draft, so that each is as long as pays at the moment, which can be not at all.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..cost.step_cost import StepCost
from .drafter import Proposal

MARGIN = 1.1
"""A draft must gain this many times what it costs. Both are estimates, and the best-looking
ones are often overestimated."""


class Speculation:
    """Drafts at most `most` tokens for a sequence and step; 0: never. Never an end token."""

    def __init__(self, *, most: int, cost: StepCost, end_tokens: frozenset[int]) -> None:
        self.most = most
        self._cost = cost
        self._end_tokens = end_tokens

    def may_pay(self, num_generating: int) -> bool:
        """Whether a draft that is surely right would pay; if not, nobody needs to be asked."""
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
        hopes = [(chance, slot) for slot, one in allowed.items() for chance in one.chances]
        hopes.sort(key=lambda hope: -hope[0])
        count = self._num_worth([chance for chance, _ in hopes[:num_spare]], num_generating)
        lengths = Counter(slot for _, slot in hopes[:count])
        return {slot: allowed[slot].tokens[:length] for slot, length in lengths.items()}

    def _num_worth(self, chances: Sequence[float], num_generating: int) -> int:
        """How many of `chances`, which descend, bring more tokens for the time than the step does.

        Each adds a token's price to the step, and its chance to what the step gives.
        """
        price = self._cost.draft_price(num_generating)
        gain, seconds = float(num_generating), 1.0
        for index, chance in enumerate(chances):
            if chance * seconds <= MARGIN * gain * price:
                return index
            gain += chance
            seconds += price
        return len(chances)
