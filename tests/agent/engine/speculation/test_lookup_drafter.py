"""Proposals from each sequence's own text, and what is learnt of them."""

import pytest

from arriero.agent.engine.prompt import History, Prompt
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.speculation.draft_allowance import EARNED, FIRST
from arriero.agent.engine.speculation.drafter import UNKNOWN_PRICES, DraftRequest, StepPrices
from arriero.agent.engine.speculation.lookup_drafter import LookupDrafter

PHRASE = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def request(number: int, *tokens: int, most: int = 4) -> DraftRequest:
    return DraftRequest(SequenceId(number), History(Prompt(tokens)), most)


def chance_of(drafter: LookupDrafter, number: int, *tokens: int) -> float:
    """What it thinks of its next token."""
    asked = request(number, *PHRASE, *tokens, most=1)
    return drafter.propose([asked], UNKNOWN_PRICES)[asked.id].chances[0]


def test_what_followed_before_is_proposed_to_each_in_one_call() -> None:
    proposals = LookupDrafter(100).propose(
        [request(1, *PHRASE, 1, 2, 3), request(2, 5, 6), request(3, *PHRASE, 6, 7, most=1)],
        UNKNOWN_PRICES,
    )
    assert {id: one.tokens for id, one in proposals.items()} == {1: (4, 5, 6, 7), 3: (8,)}


def test_a_longer_match_is_trusted_more_and_each_further_token_less() -> None:
    asked = [request(1, *PHRASE, 2, 3, most=3), request(2, *PHRASE, 1, 2, 3, 4, most=3)]
    two, four = LookupDrafter(100).propose(asked, UNKNOWN_PRICES).values()
    assert two.chances == pytest.approx((1 / 2, 1 / 2 * 2 / 3, 1 / 3 * 3 / 4))
    assert four.chances[0] == pytest.approx(3 / 4)


def test_a_sequence_is_followed_as_it_grows() -> None:
    drafter = LookupDrafter(100)
    history = [*PHRASE, 1, 2]
    drafter.propose([request(1, *history)], UNKNOWN_PRICES)
    drafter.observe(SequenceId(1), (3, 4))
    (proposal,) = drafter.propose([request(1, *history, 3, 4, most=2)], UNKNOWN_PRICES).values()
    assert proposal.tokens == (5, 6)
    drafter.observe(SequenceId(1), (9,))
    assert drafter.propose([request(1, *history, 3, 4, 9)], UNKNOWN_PRICES) == {}


def test_wrong_guesses_are_remembered_across_sequences_and_right_ones_too() -> None:
    drafter = LookupDrafter(100)
    first = chance_of(drafter, 1, 1, 2, 3)
    for number in range(2, 60):
        chance_of(drafter, number, 1, 2, 3)
        drafter.observe(SequenceId(number), (9,))
    assert chance_of(drafter, 100, 1, 2, 3) < first / 3
    for number in range(200, 300):
        chance_of(drafter, number, 1, 2, 3)
        drafter.observe(SequenceId(number), (4,))
    assert chance_of(drafter, 1000, 1, 2, 3) > first


def test_a_sequence_that_is_over_is_forgotten_and_strangers_are_ignored() -> None:
    drafter = LookupDrafter(100)
    drafter.propose([request(1, *PHRASE, 1, 2)], UNKNOWN_PRICES)
    drafter.forget(SequenceId(1))
    drafter.forget(SequenceId(2))
    drafter.observe(SequenceId(1), (3,))
    assert drafter.propose([request(1, 5, 6)], UNKNOWN_PRICES) == {}


def test_one_that_loses_proposes_nothing_until_that_is_earned_again() -> None:
    drafter = LookupDrafter(100)
    asked = request(1, *PHRASE, 1, 2, 3)
    prices = StepPrices(step=1.0, token=0.1, num_generating=1)
    assert drafter.propose([asked], prices)
    drafter.checked(SequenceId(1), FIRST + 1, 0.0)
    num_waited = 0
    while not drafter.propose([asked], prices):
        num_waited += 1
    assert num_waited == pytest.approx(1 / EARNED, abs=2)


def test_meanwhile_it_follows_and_what_was_right_counts() -> None:
    drafter = LookupDrafter(100)
    prices = StepPrices(step=1.0, token=0.1, num_generating=1)
    history = [*PHRASE, 1, 2]
    drafter.propose([request(1, *history)], prices)
    drafter.checked(SequenceId(1), FIRST + 2, 0.0)
    drafter.observe(SequenceId(1), (3, 4))
    assert drafter.propose([request(1, *history, 3, 4)], prices) == {}
    drafter.checked(SequenceId(1), 0.5, 3.0)
    (proposal,) = drafter.propose([request(1, *history, 3, 4, most=2)], prices).values()
    assert proposal.tokens == (5, 6)
