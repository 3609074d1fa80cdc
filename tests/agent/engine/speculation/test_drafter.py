"""What a drafter proposes, cut to what may be used."""

import pytest

from arriero.agent.engine.speculation.drafter import Proposal

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
