"""What a drafter proposes, cut to what may be used."""

from collections.abc import Iterable, Mapping, Sequence

import pytest

from arriero.agent.engine.prompt import History, Prompt
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.speculation.drafter import (
    UNKNOWN_PRICES,
    DraftRequest,
    JointDrafter,
    Proposal,
    StepPrices,
)

PROPOSAL = Proposal((5, 6, 0, 7), (0.9, 0.8, 0.7, 0.6))


def test_each_token_has_its_chance() -> None:
    with pytest.raises(ValueError, match="2 tokens with 1 chances"):
        Proposal((5, 6), (0.5,))


@pytest.mark.parametrize(("count", "length"), [(-3, 0), (0, 0), (2, 2), (4, 4), (9, 4)])
def test_the_first_tokens_keep_their_chances(count: int, length: int) -> None:
    first = PROPOSAL.first(count)
    assert (first.tokens, first.chances) == (PROPOSAL.tokens[:length], PROPOSAL.chances[:length])


def test_it_ends_before_an_end_token() -> None:
    assert PROPOSAL.before(frozenset({0, 7})) == Proposal((5, 6), (0.9, 0.8))
    assert PROPOSAL.before(frozenset({5})) == Proposal((), ())
    assert PROPOSAL.before(frozenset({1})) == PROPOSAL


# ---- for each sequence the better proposal, and the model is asked only where it may have that


ONE, TWO, THREE = SequenceId(1), SequenceId(2), SequenceId(3)


class Recorder:
    """Proposes what it is given, and notes what it hears."""

    def __init__(self, proposals: dict[SequenceId, Proposal], gains: float = 0.0) -> None:
        self.proposals = proposals
        self.gains = gains
        self.asked: list[SequenceId] = []
        self.heard: list[object] = []

    def expected_gain(self, most: int) -> float:
        return min(self.gains, most)

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        self.asked = [request.id for request in requests]
        return {id: one for id, one in self.proposals.items() if id in self.asked}

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        self.heard.append((id, tuple(tokens)))

    def forget(self, id: SequenceId) -> None:
        self.heard.append(id)

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        self.heard.append((id, cost, saved))


def request(id: SequenceId) -> DraftRequest:
    return DraftRequest(id, History(Prompt((1, 2))), 4)


def test_the_model_is_asked_where_its_expected_gain_is_larger_and_the_better_one_counts() -> None:
    likely, unlikely = Proposal((7, 8), (0.9, 0.8)), Proposal((7,), (0.4,))
    better, worse = Proposal((5, 6), (0.8, 0.6)), Proposal((5,), (0.3,))
    lookup = Recorder({ONE: likely, TWO: unlikely, THREE: unlikely})
    model = Recorder({ONE: better, TWO: better, THREE: worse}, gains=1.5)
    found = JointDrafter(lookup, model).propose([request(ONE), request(TWO), request(THREE)], P)
    assert found == {ONE: likely, TWO: better, THREE: unlikely}
    assert model.asked == [TWO, THREE]


def test_what_only_one_of_them_proposes_counts() -> None:
    one = Proposal((5,), (0.5,))
    joint = JointDrafter(Recorder({ONE: one}), Recorder({TWO: one}, gains=4.0))
    assert joint.propose([request(ONE), request(TWO), request(THREE)], P) == {ONE: one, TWO: one}


def test_the_drafter_that_proposed_what_was_computed_answers_for_it() -> None:
    worse, better = Proposal((5,), (0.3,)), Proposal((5,), (0.5,))
    lookup, model = Recorder({ONE: worse, TWO: better}), Recorder({ONE: better}, gains=1.0)
    joint = JointDrafter(lookup, model)
    joint.propose([request(ONE), request(TWO)], P)
    joint.checked(ONE, 1.0, 2.0)
    joint.checked(TWO, 3.0, 4.0)
    assert (model.heard, lookup.heard) == ([(ONE, 1.0, 2.0)], [(TWO, 3.0, 4.0)])


def test_both_observe_everything() -> None:
    lookup, model = Recorder({}), Recorder({})
    joint = JointDrafter(lookup, model)
    joint.observe(ONE, iter((1, 2)))
    joint.forget(ONE)
    assert lookup.heard == model.heard == [(ONE, (1, 2)), ONE]


P = UNKNOWN_PRICES
