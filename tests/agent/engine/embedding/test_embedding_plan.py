import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.embedding.embedding_plan import EmbeddingPlan, Slice

INPUTS = st.lists(st.integers(1, 40).map(lambda size: tuple(range(size))), max_size=12)


def chunks(plan: EmbeddingPlan, num_tokens: int) -> list[tuple[Slice, ...]]:
    found = []
    while not plan.is_done:
        found.append(plan.next(num_tokens))
    return found


def test_short_inputs_share_a_chunk_and_long_ones_are_cut() -> None:
    plan = EmbeddingPlan([(1, 2), (3, 4, 5), (6,)], max_sequences=8, splits=True)
    assert plan.next(4) == (
        Slice(0, 0, (1, 2), True),
        Slice(1, 0, (3, 4), False),
    )
    assert plan.next(4) == (Slice(1, 2, (5,), True), Slice(2, 0, (6,), True))
    assert plan.is_done
    assert plan.next(4) == ()


def test_what_stays_whole_may_be_longer_than_a_chunk() -> None:
    plan = EmbeddingPlan([(1,), (2, 3, 4), (5,)], max_sequences=8, splits=False)
    assert chunks(plan, 2) == [
        (Slice(0, 0, (1,), True),),
        (Slice(1, 0, (2, 3, 4), True),),
        (Slice(2, 0, (5,), True),),
    ]


def test_an_input_without_tokens_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="without tokens"):
        EmbeddingPlan([(1,), ()], max_sequences=1, splits=True)


@given(INPUTS, st.integers(1, 50), st.integers(1, 5), st.booleans())
def test_every_token_is_in_one_slice(
    inputs: list[tuple[int, ...]], num_tokens: int, max_sequences: int, splits: bool
) -> None:
    plan = EmbeddingPlan(inputs, max_sequences=max_sequences, splits=splits)
    given_back: dict[int, tuple[int, ...]] = {}
    for chunk in chunks(plan, num_tokens):
        assert 1 <= len(chunk) <= max_sequences
        assert len({part.number for part in chunk}) == len(chunk)
        size = sum(len(part.tokens) for part in chunk)
        assert size <= num_tokens or (not splits and len(chunk) == 1)
        for part in chunk:
            before = given_back.get(part.number, ())
            assert part.tokens and part.start == len(before)
            given_back[part.number] = before + part.tokens
            assert part.is_last == (given_back[part.number] == inputs[part.number])
            assert splits or part.is_last
    assert list(given_back.values()) == inputs
