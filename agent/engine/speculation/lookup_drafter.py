"""The drafter that needs no model: prompt lookup in each sequence's own text.

It begins to follow a sequence when it is first asked for one, and learns from every token of those
it follows how often a match of a given length is right. What its proposals may lose is bounded
(`draft_allowance`): until that is earned again it follows, and proposes nothing.
"""

from collections.abc import Iterable, Mapping, Sequence

from ..sequence import SequenceId
from .acceptance import Acceptance
from .draft_allowance import DraftAllowance
from .drafter import DraftRequest, Proposal, StepPrices
from .prompt_lookup import PromptLookup


class LookupDrafter:
    """For sequences of at most about `longest` tokens; of longer ones it forgets the oldest."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._lookups: dict[SequenceId, PromptLookup] = {}
        self._acceptance = Acceptance()
        self._allowance = DraftAllowance()

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """What followed when the last tokens occurred before, where they did."""
        self._allowance.renew(prices.step)
        found = [(request, self._lookup(request)) for request in requests]
        if self._allowance.is_spent:
            return {}
        return {
            request.id: self._proposal(lookup, request.most)
            for request, lookup in found
            if lookup.match_length
        }

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        """See `Drafter`."""
        self._allowance.add(saved - cost)

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """A sequence gained `tokens`, drafted or not. Unknown ids are ignored."""
        lookup = self._lookups.get(id)
        if lookup is None:
            return
        for token in tokens:
            match_length = lookup.match_length
            is_right = lookup.push(token)
            if match_length:
                self._acceptance.observe(match_length, is_right=is_right)

    def forget(self, id: SequenceId) -> None:
        """A sequence is over. Unknown ids are ignored."""
        self._lookups.pop(id, None)

    def _lookup(self, request: DraftRequest) -> PromptLookup:
        lookup = self._lookups.get(request.id)
        if lookup is None:
            lookup = self._lookups[request.id] = PromptLookup(request.history.tokens, self._longest)
        return lookup

    def _proposal(self, lookup: PromptLookup, most: int) -> Proposal:
        tokens = lookup.draft(most)
        return Proposal(tokens, tuple(self._acceptance.chances(lookup.match_length, len(tokens))))
