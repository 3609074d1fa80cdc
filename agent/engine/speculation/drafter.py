"""The drafter port: proposes tokens with which sequences may continue.

A drafter is asked before a step is planned, for all generating sequences in one call, so that a
draft model can compute them as one batch. The planner takes the proposals that fit and pay. An
unused proposal is requested again with the next step. Drafts come from prompt lookup
(`prompt_lookup`), a draft model (`model_drafter`), or both (`JointDrafter`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..prompt import History
from ..sequence import SequenceId


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """A request for at most `most` tokens after `history`.

    `history` grows with the sequence: a drafter that needs it later must copy it.
    """

    id: SequenceId
    history: History
    most: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """Proposed `tokens`; each has the chance, from 0 to 1, that it and all earlier ones are right.

    Raises `ValueError` if the numbers of tokens and chances differ.
    """

    tokens: tuple[int, ...]
    chances: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.chances):
            raise ValueError(f"{len(self.tokens)} tokens with {len(self.chances)} chances")

    def first(self, count: int) -> "Proposal":
        """Return the first `count` tokens; none if `count` is negative."""
        if count >= len(self.tokens):
            return self
        end = max(0, count)
        return Proposal(self.tokens[:end], self.chances[:end])

    def before(self, end_tokens: frozenset[int]) -> "Proposal":
        """Return the tokens before the first of `end_tokens`."""
        places = (place for place, token in enumerate(self.tokens) if token in end_tokens)
        return self.first(next(places, len(self.tokens)))


@dataclass(frozen=True, slots=True)
class StepPrices:
    """The expected cost of the next step, so that drafters can judge their proposals.

    `step` is its seconds without drafts, for `num_generating` sequences; 0 means unknown. Each
    drafted token adds `token` seconds. Making proposals may take `most` seconds, because streams
    wait for the proposals.
    """

    step: float = 0.0
    token: float = 0.0
    num_generating: int = 0
    most: float = 0.0


UNKNOWN_PRICES = StepPrices()


class Drafter(Protocol):
    """A drafter, called on the engine's thread between steps, which wait for it.

    `observe` reports in order the tokens that a sequence gains. Once requested, a sequence is
    reported until `forget`, even if it was preempted in between.
    """

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """Return proposals. Sequences without a good guess are omitted."""

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        """Note that tokens of the last proposal for `id` were computed; called before `observe`.

        The tokens added `cost` seconds to the step; the right tokens are worth `saved` seconds.
        """

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """Note that a sequence gained `tokens`, drafted or not. Unknown ids are ignored."""

    def forget(self, id: SequenceId) -> None:
        """Forget a sequence. Unknown ids are ignored."""


# ---- two drafters


class ForecastingDrafter(Drafter, Protocol):
    """A drafter whose proposals cost time; it predicts their gain."""

    def expected_gain(self, most: int) -> float:
        """Return the expected number of right tokens in a draft of at most `most`."""


class JointDrafter:
    """Proposes, per sequence, the better proposal of prompt lookup and of a draft model.

    Lookup costs nothing, so it is asked first. The model is asked only for sequences for which its
    expected gain is larger. Both drafters observe all tokens that sequences gain.
    """

    def __init__(self, lookup: Drafter, model: ForecastingDrafter) -> None:
        self._lookup = lookup
        self._model = model
        self._by_model: Collection[SequenceId] = ()

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """Return, for each sequence, the proposal with the larger expected gain."""
        found = self._lookup.propose(requests, prices)
        gains = {most: self._model.expected_gain(most) for most in {each.most for each in requests}}
        open = [each for each in requests if _gain_of(found, each.id) < gains[each.most]]
        guessed = self._model.propose(open, prices)
        better = {
            id: one for id, one in guessed.items() if _gain_of(guessed, id) > _gain_of(found, id)
        }
        self._by_model = better.keys()
        return {**found, **better}

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        """Report the cost and the saving to the drafter that made the proposal."""
        drafter = self._model if id in self._by_model else self._lookup
        drafter.checked(id, cost, saved)

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """Note that a sequence gained `tokens`, drafted or not."""
        gained = tuple(tokens)
        self._lookup.observe(id, gained)
        self._model.observe(id, gained)

    def forget(self, id: SequenceId) -> None:
        """Forget a sequence."""
        self._lookup.forget(id)
        self._model.forget(id)


def _gain_of(proposals: Mapping[SequenceId, Proposal], id: SequenceId) -> float:
    return sum(proposals[id].chances) if id in proposals else 0.0
