from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.output.reasoning_count import ReasoningCount


def test_a_token_counts_where_its_first_character_does() -> None:
    count = ReasoningCount()
    count.push([3, 6, 9])
    count.leave(4, is_reasoning=True)
    assert count.total(is_reasoning=False) == 2
    count.leave(5, is_reasoning=False)
    assert count.total(is_reasoning=False) == 2


def test_a_token_without_a_character_goes_with_what_follows() -> None:
    count = ReasoningCount()
    count.push([2, 2, 2, 4])
    count.leave(2, is_reasoning=False)
    assert count.total(is_reasoning=False) == 0
    count.leave(1, is_reasoning=True)
    assert count.total(is_reasoning=False) == 3


def test_what_is_held_back_is_what_it_will_be_taken_for() -> None:
    count = ReasoningCount()
    count.push([1, 2])
    assert (count.total(is_reasoning=True), count.total(is_reasoning=False)) == (2, 0)


@given(
    st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30),
    st.lists(st.integers(0, 3), max_size=60),
)
def test_each_token_counts_by_its_first_character(
    regions: list[tuple[int, bool]], lengths: list[int]
) -> None:
    kinds = [is_reasoning for length, is_reasoning in regions for _ in range(length)]
    count = ReasoningCount()
    expected = position = 0
    ends = []
    for length in lengths:
        expected += kinds[position] if position < len(kinds) else 0
        position = min(position + length, len(kinds))
        ends.append(position)
    count.push(ends)
    for length, is_reasoning in regions:
        count.leave(length, is_reasoning=is_reasoning)
    assert count.total(is_reasoning=False) == expected
