"""Log-probabilities, against a log-softmax in double precision."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.sampling.log_probs import LEAST, LogProbs, RawRow
from arriero.agent.engine.sampling.selection import Row
from arriero.agent.engine.sampling.weights import Scratch


def raw_row(row: Row, num_top: int, *, will_change: bool = False) -> RawRow:
    return RawRow(row, num_top, Scratch(), will_change=will_change)


@given(
    size=st.integers(1, 3000),
    seed=st.integers(0, 99),
    scale=st.floats(0, 50),
    num_top=st.integers(0, 20),
    num_ruled_out=st.integers(0, 10),
)
def test_they_are_those_of_the_softmax(
    size: int, seed: int, scale: float, num_top: int, num_ruled_out: int
) -> None:
    rng = np.random.default_rng(seed)
    row = (scale * rng.standard_normal(size)).astype(np.float32)
    row[1:][: min(num_ruled_out, size - 1)] = -np.inf
    wide = row.astype(np.float64)
    wanted = wide - (wide.max() + math.log(np.exp(wide - wide.max()).sum()))
    token = int(rng.integers(size))
    found = raw_row(row, num_top).of(token)

    assert found.token == token
    assert found.log_prob == pytest.approx(max(float(wanted[token]), LEAST), abs=1e-5)
    assert len(found.top) == min(num_top, size)
    values = [log_prob for _, log_prob in found.top]
    assert values == sorted(values, reverse=True)
    assert sum(map(math.exp, values)) <= 1 + 1e-6
    assert len({id for id, _ in found.top}) == len(found.top)
    for id, log_prob in found.top:
        assert log_prob == pytest.approx(max(float(wanted[id]), LEAST), abs=1e-5)
    for place, value in enumerate(sorted(wanted, reverse=True)[: len(found.top)]):
        assert values[place] == pytest.approx(max(float(value), LEAST), abs=1e-5)


def test_what_is_done_to_the_row_afterwards_changes_nothing() -> None:
    row = np.zeros(4, np.float32)
    raw = raw_row(row, 0, will_change=True)
    row[1] = 100
    assert raw.of(1) == LogProbs(1, pytest.approx(math.log(1 / 4)))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_broken_row_has_none_that_json_cannot_say(value: float) -> None:
    row = np.zeros(100, np.float32)
    for broken in (slice(3, 4), slice(None)):
        row[broken] = value
        found = raw_row(row, 5).of(3)
        assert all(LEAST <= each <= 0 for each in (found.log_prob, *(v for _, v in found.top)))
