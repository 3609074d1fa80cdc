"""What followed before: found by the last tokens, at a constant cost, within bounds."""

from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.speculation.prompt_lookup import LENGTHS, LONGEST, PIECE, PromptLookup

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
