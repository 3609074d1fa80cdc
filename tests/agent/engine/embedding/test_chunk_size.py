from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.embedding.chunk_size import LEAST, ChunkSize


def test_the_first_chunk_is_small() -> None:
    assert ChunkSize(0.25, 512).num_tokens == LEAST
    assert ChunkSize(0.25, 4).num_tokens == 4


def test_chunks_become_as_large_as_the_time_allows() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 0.016)  # 1 ms a token
    assert size.num_tokens == 250


def test_a_slow_machine_gets_the_least() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 16.0)
    assert size.num_tokens == LEAST


def test_a_fast_one_gets_the_most() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 0.0)
    assert size.num_tokens == 512


def test_what_has_changed_is_followed() -> None:
    size = ChunkSize(0.25, 512)
    size.observe(16, 0.016)
    for _ in range(30):
        size.observe(100, 1.0)  # 10 ms a token now
    assert 25 <= size.num_tokens <= 26


@given(
    st.integers(1, 2048),
    st.lists(st.tuples(st.integers(1, 512), st.floats(0, 100)), max_size=20),
)
def test_it_is_always_possible(most: int, seen: list[tuple[int, float]]) -> None:
    size = ChunkSize(0.25, most)
    for num_tokens, seconds in seen:
        size.observe(num_tokens, seconds)
        assert 1 <= size.num_tokens <= most
