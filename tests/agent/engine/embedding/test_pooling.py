import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.embedding.pooling import Pool, normalized
from arriero.shared.queries import Pooling

ROWS = np.array([[1, 0], [2, 4], [6, 2]], np.float32)


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [("mean", [3, 2]), ("cls", [1, 0]), ("last", [6, 2]), ("rank", [6, 2])],
)
@pytest.mark.parametrize("cuts", [[], [1], [2], [1, 2]])
def test_the_parts_come_to_the_whole(
    pooling: Pooling, expected: list[float], cuts: list[int]
) -> None:
    pool = Pool(pooling)
    for part in np.split(ROWS, cuts):
        pool.add(part)
    assert pool.vector().tolist() == expected
    assert pool.vector().dtype == np.float32


def test_rows_may_be_overwritten_after_they_were_added() -> None:
    pool = Pool("last")
    rows = ROWS.copy()
    pool.add(rows)
    rows[:] = 0
    assert pool.vector().tolist() == [6, 2]


def test_nothing_has_no_vector() -> None:
    with pytest.raises(ValueError, match="nothing to pool"):
        Pool("mean").vector()


def test_norms() -> None:
    vector = np.array([3, 4], np.float32)
    assert normalized(vector, "none").tolist() == [3, 4]
    assert normalized(vector, "l2").tolist() == pytest.approx([0.6, 0.8])
    assert np.mean(normalized(vector, "rms") ** 2) == pytest.approx(1)


@pytest.mark.parametrize("norm", ["none", "l2", "rms"])
def test_a_vector_without_a_length_stays(norm: str) -> None:
    assert normalized(np.zeros(3, np.float32), norm).tolist() == [0, 0, 0]  # type: ignore[arg-type]


@given(st.lists(st.floats(-(2.0**60), 2.0**60, width=32), min_size=1, max_size=8))
def test_no_size_is_too_large_or_too_small(values: list[float]) -> None:
    vector = np.array(values, np.float32)
    length = np.linalg.norm(normalized(vector, "l2").astype(np.float64))
    assert length == pytest.approx(1, abs=1e-3) or not vector.any()
