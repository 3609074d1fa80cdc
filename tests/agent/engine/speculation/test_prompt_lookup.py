"""What followed before: found by the last tokens, at a constant cost, within bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.prompt import History, Prompt
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.speculation.draft_worth import EARNED, FIRST_LOSS
from arriero.agent.engine.speculation.drafter import UNKNOWN_PRICES, DraftRequest, StepPrices
from arriero.agent.engine.speculation.prompt_lookup import (
    LENGTHS,
    LONGEST,
    PIECE,
    Acceptance,
    LookupDrafter,
    PromptLookup,
)

SHORTEST = min(LENGTHS)


def following(text: list[int], most: int = 1000) -> PromptLookup:
    return PromptLookup(text, most)


def test_nothing_follows_what_was_never_said() -> None:
    lookup = following([1, 2, 3, 4])
    assert lookup.match_length == 0
    assert lookup.draft(4) == ()


def test_the_last_tokens_are_looked_up_and_the_match_measured() -> None:
    lookup = following([1, 2, 3, 4, 5, 6, 9, 2, 3, 4])
    assert lookup.match_length == 3
    assert lookup.draft(3) == (5, 6, 9)


def test_the_latest_place_counts() -> None:
    assert following([1, 2, 3, 1, 2, 4, 1, 2]).draft(2) == (4, 1)


def test_more_tokens_that_match_count_more_than_a_later_place() -> None:
    assert following([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2]).draft(1) == (3,)


def test_a_place_is_followed_while_it_is_right() -> None:
    lookup = following([1, 2, 3, 4, 5, 8, 1, 2])
    assert lookup.push(3)
    assert lookup.push(4)
    assert (lookup.match_length, lookup.draft(2)) == (4, (5, 8))
    assert not lookup.push(6)
    assert lookup.match_length == 0


def test_a_repetition_goes_on_beyond_the_end() -> None:
    assert following([1, 2, 3, 1, 2, 3, 1, 2, 3]).draft(7) == (1, 2, 3, 1, 2, 3, 1)


def test_matches_are_measured_up_to_a_bound() -> None:
    text = list(range(100))
    assert following([*text, *text[:90]]).match_length == LONGEST


def test_a_long_prompt_is_entered_piece_by_piece() -> None:
    text = list(range(3 * PIECE))
    lookup = following([*text, *text[:3]], most=10_000)
    assert lookup.draft(1) == (3,), "the first piece is known"
    lookup = following([*text, *text[2 * PIECE : 2 * PIECE + 3]], most=10_000)
    assert lookup.draft(1) == ()
    for token in text[2 * PIECE + 3 :][:5]:
        lookup.push(token)
    assert lookup.draft(1) == (2 * PIECE + 8,)


def test_the_oldest_of_an_endless_text_is_forgotten() -> None:
    lookup = following([1, 2, 3], most=20)
    for token in range(100, 200):
        lookup.push(token)
        assert lookup.match_length == 0
    assert not lookup.push(1)
    assert not lookup.push(2)
    assert lookup.draft(1) == ()


@given(
    prompt=st.lists(st.integers(0, 3), max_size=30),
    answer=st.lists(st.integers(0, 3), max_size=60),
    most=st.integers(4, 40),
)
def test_what_is_drafted_followed_the_same_tokens_before(
    prompt: list[int], answer: list[int], most: int
) -> None:
    lookup = following(prompt, most)
    text = list(prompt)
    for token in answer:
        draft = lookup.draft(3)
        assert lookup.push(token) == (draft[:1] == (token,))
        text.append(token)
        length = lookup.match_length
        assert bool(lookup.draft(1)) == (length > 0)
        if length:
            whole = [*text[-length:], *lookup.draft(3)]
            assert length >= SHORTEST
            assert any(
                (text[:end] + list(lookup.draft(3)))[end - length : end + 3] == whole
                for end in range(len(text))
            ) or _is_found(text, whole)


def _is_found(text: list[int], whole: list[int]) -> bool:
    """Whether `whole` stands in `text`, going on with itself where the text ends."""
    longer = [*text, *whole[-3:]]
    return any(longer[at : at + len(whole)] == whole for at in range(len(text) - len(whole) + 3))


# ---- how far a draft can be trusted


def test_at_first_a_longer_match_counts_more_and_each_further_token_less() -> None:
    assert Acceptance().chances(2, 3) == pytest.approx([1 / 2, 1 / 2 * 2 / 3, 1 / 3 * 3 / 4])
    assert Acceptance().chances(4, 1) == [0.75]


def test_each_length_of_a_match_has_its_own_chance() -> None:
    acceptance = Acceptance()
    for step in range(300):
        acceptance.observe(2, is_right=step % 4 == 0)
        acceptance.observe(3, is_right=True)
    first, second = acceptance.chances(2, 2)
    assert first == pytest.approx(0.25, abs=0.05)
    assert second == pytest.approx(first, abs=0.01)


def test_the_longest_stand_for_all_beyond() -> None:
    acceptance = Acceptance()
    for _ in range(300):
        acceptance.observe(LONGEST, is_right=True)
    assert acceptance.chances(LONGEST, 8)[-1] > 0.95


def test_what_held_long_ago_is_forgotten() -> None:
    acceptance = Acceptance()
    for is_right in (True, False):
        for _ in range(300):
            acceptance.observe(5, is_right=is_right)
    assert acceptance.chances(5, 1)[0] < 0.01


# ---- proposals from each sequence's own text, and what is learnt of them


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
    drafter.checked(SequenceId(1), FIRST_LOSS + 1, 0.0)
    num_waited = 0
    while not drafter.propose([asked], prices):
        num_waited += 1
    assert num_waited == pytest.approx(1 / EARNED, abs=2)


def test_meanwhile_it_follows_and_what_was_right_counts() -> None:
    drafter = LookupDrafter(100)
    prices = StepPrices(step=1.0, token=0.1, num_generating=1)
    history = [*PHRASE, 1, 2]
    drafter.propose([request(1, *history)], prices)
    drafter.checked(SequenceId(1), FIRST_LOSS + 2, 0.0)
    drafter.observe(SequenceId(1), (3, 4))
    assert drafter.propose([request(1, *history, 3, 4)], prices) == {}
    drafter.checked(SequenceId(1), 0.5, 3.0)
    (proposal,) = drafter.propose([request(1, *history, 3, 4, most=2)], prices).values()
    assert proposal.tokens == (5, 6)
