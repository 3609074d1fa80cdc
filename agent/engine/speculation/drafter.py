"""The drafter port: what proposes tokens that sequences may go on with.

A drafter is asked before a step is planned, for all generating sequences in one call, so that a
draft model can compute them as one batch. The planner takes of its proposals what fits and pays.
A proposal may go unused; the next step's requests then ask for it again. Prompt lookup
(`prompt_lookup`) and a draft model (`model_drafter`) draft, or both (`JointDrafter`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ..prompt import History
from ..sequence import SequenceId


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """At most `most` tokens can follow `history`.

    `history` grows with the sequence: a drafter that needs it after its answer copies it.
    """

    id: SequenceId
    history: History
    most: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """`tokens` that may follow; for each the chance, from 0 to 1, that it and all before are right.

    Raises `ValueError` where these are not equally many.
    """

    tokens: tuple[int, ...]
    chances: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.chances):
            raise ValueError(f"{len(self.tokens)} tokens with {len(self.chances)} chances")

    def first(self, count: int) -> "Proposal":
        """The first `count` tokens; none where that is negative."""
        if count >= len(self.tokens):
            return self
        end = max(0, count)
        return Proposal(self.tokens[:end], self.chances[:end])

    def before(self, end_tokens: frozenset[int]) -> "Proposal":
        """The tokens before the first of `end_tokens`."""
        places = (place for place, token in enumerate(self.tokens) if token in end_tokens)
        return self.first(next(places, len(self.tokens)))


@dataclass(frozen=True, slots=True)
class StepPrices:
    """What the next step is thought to take, so that drafters know what their proposals gain.

    `step` is the seconds without drafts, of `num_generating` sequences; 0: nothing is known.
    Each drafted token adds `token` seconds to it. Making proposals may take `most` seconds: streams
    wait for them, too.
    """

    step: float = 0.0
    token: float = 0.0
    num_generating: int = 0
    most: float = 0.0


UNKNOWN_PRICES = StepPrices()


class Drafter(Protocol):
    """Called on the engine's thread between steps, which wait for it.

    What a sequence gains comes with `observe`, in order. A sequence that was asked for is reported
    until `forget`, whether it was preempted meanwhile or not.
    """

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """What may follow. Sequences without a good guess are left out."""

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        """Tokens of the last proposal for `id` were computed with the step, before `observe`.

        They added `cost` seconds to it; those that were right are worth `saved` seconds.
        """

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        """A sequence gained `tokens`, drafted or not. Unknown ids are ignored."""

    def forget(self, id: SequenceId) -> None:
        """A sequence is over. Unknown ids are ignored."""


# ---- two drafters


class ForecastingDrafter(Drafter, Protocol):
    """A drafter whose proposals cost time: it says beforehand what they are likely to gain."""

    def expected_gain(self, most: int) -> float:
        """How many tokens of a draft of at most `most` are likely to be right."""


class JointDrafter:
    """For each sequence the better proposal of prompt lookup and of a draft model.

    Lookup costs nothing, so it is asked first. The model is asked only for sequences where its
    expected gain is larger than what was found. Both observe all that sequences gain.
    """

    def __init__(self, lookup: Drafter, model: ForecastingDrafter) -> None:
        self._lookup = lookup
        self._model = model
        self._by_model: Collection[SequenceId] = ()

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        """For each sequence the proposal with the larger expected gain."""
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
        """The drafter that made the proposal pays and earns for it."""
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


def _gain_of(proposals: Mapping[SequenceId, Proposal], id: SequenceId) -> float:
    return sum(proposals[id].chances) if id in proposals else 0.0
