"""Prompt lookup and a draft model together: for each sequence the better proposal.

Lookup costs nothing, so it is asked first. The model is asked only for sequences of which it hopes
to guess more tokens than were found.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from ..sequence import SequenceId
from .drafter import Drafter, DraftRequest, Proposal, StepPrices


class HopefulDrafter(Drafter, Protocol):
    """A drafter whose proposals cost time."""

    def hope(self, most: int) -> float:
        """How many tokens of a draft of at most `most` will be right."""


class JointDrafter:
    """Both are told of all that sequences gain."""

    def __init__(self, lookup: Drafter, model: HopefulDrafter) -> None:
        self._lookup = lookup
        self._model = model
        self._by_model: Collection[SequenceId] = ()

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """For each sequence the proposal of which more tokens will be right."""
        found = self._lookup.propose(requests, prices)
        hopes = {most: self._model.hope(most) for most in {each.most for each in requests}}
        open = [each for each in requests if _hope(found, each.id) < hopes[each.most]]
        guessed = self._model.propose(open, prices)
        better = {id: one for id, one in guessed.items() if _hope(guessed, id) > _hope(found, id)}
        self._by_model = better.keys()
        return {**found, **better}

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        """Whoever proposed it answers for it."""
        drafter = self._model if id in self._by_model else self._lookup
        drafter.checked(id, cost, saved)

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """A sequence gained `tokens`, drafted or not."""
        gained = tuple(tokens)
        self._lookup.observe(id, gained)
        self._model.observe(id, gained)

    def forget(self, id: SequenceId) -> None:
        """A sequence is over."""
        self._lookup.forget(id)
        self._model.forget(id)


def _hope(proposals: Mapping[SequenceId, Proposal], id: SequenceId) -> float:
    return sum(proposals[id].chances) if id in proposals else 0.0
