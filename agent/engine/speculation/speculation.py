"""Speculative decoding: drafts of what sequences say next, as many tokens as pay.

A draft is computed in the same batch as the token before it. As far as it is right, a step gives
several tokens; what is wrong was computed in vain, and is given up. The text is the same.

Drafting pays where it gains more tokens a second, of all sequences together. What a drafted token
gains is its chance to be right; what it costs is learnt from the steps that were run. Chances fall
along a draft, so that each is as long as pays at the moment, which can be not at all.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..cost.step_cost import StepCost
from .acceptance import Acceptance
from .prompt_lookup import PromptLookup

MARGIN = 1.1
"""So much more has a draft to gain than it costs: both are estimates, and whoever always takes what
looks best takes what was overestimated."""


class Drafted(Protocol):
    """A sequence that is being generated."""

    @property
    def history(self) -> Sequence[int]: ...

    @property
    def ceiling(self) -> int: ...

    @property
    def most_ahead(self) -> int:
        """How many tokens may be computed before they are known."""

    lookup: PromptLookup | None


class Speculation:
    """Drafts at most `most` tokens for a sequence and step; 0: never. Never an end token."""

    def __init__(self, *, most: int, cost: StepCost, end_tokens: frozenset[int]) -> None:
        self._most = most
        self._cost = cost
        self._end_tokens = end_tokens
        self._acceptance = Acceptance()

    def draft(
        self, generating: Mapping[int, Drafted], num_spare: int
    ) -> dict[int, tuple[int, ...]]:
        """What to compute in slots beside their last tokens: at most `num_spare` tokens in all."""
        if self._most == 0 or num_spare <= 0:
            return {}
        drafts: dict[int, tuple[int, ...]] = {}
        hopes: list[tuple[float, int]] = []
        for slot, one in generating.items():
            if one.lookup is not None and (match_length := one.lookup.match_length):
                drafts[slot] = draft = self._whole(one, one.lookup)
                chances = self._acceptance.chances(match_length, len(draft))
                hopes += [(chance, slot) for chance in chances]
        if not hopes:
            return {}
        hopes.sort(key=lambda hope: -hope[0])
        count = self._num_worth([chance for chance, _ in hopes[:num_spare]], len(generating))
        lengths = Counter(slot for _, slot in hopes[:count])
        return {slot: drafts[slot][:length] for slot, length in lengths.items()}

    def said(self, one: Drafted, token: int) -> None:
        """`one` goes on with `token`."""
        if self._most == 0:
            return
        if one.lookup is None:
            one.lookup = PromptLookup(one.history, one.ceiling)
        match_length = one.lookup.match_length
        is_right = one.lookup.push(token)
        if match_length:
            self._acceptance.observe(match_length, is_right=is_right)

    def _whole(self, one: Drafted, lookup: PromptLookup) -> tuple[int, ...]:
        """All that could be drafted for `one`."""
        count = max(0, min(self._most, one.most_ahead))
        draft = lookup.draft(count)
        ends = (index for index, token in enumerate(draft) if token in self._end_tokens)
        return draft[: next(ends, count)]

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
