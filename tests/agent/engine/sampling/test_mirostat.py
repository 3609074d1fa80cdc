"""How surprising the draws are; which they are is compared with llama.cpp's in `test_sampler`."""

import numpy as np
import pytest

from arriero.agent.engine.sampling.mirostat import Mirostat
from arriero.agent.engine.sampling.mt19937 import Mt19937
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sampling.selection import Row, tops_of
from arriero.agent.engine.sampling.weights import ONE, Scratch

ROW = np.log(np.arange(1, 5001, dtype=np.float32)) * np.float32(-1.1)


def draw(subject: Mirostat, row: Row) -> int:
    return subject.draw(row, tops_of(row), ONE, Scratch())


def mirostat(version: int, tau: float = 5.0) -> Mirostat:
    return Mirostat(Sampling(seed=0, mirostat=version, mirostat_tau=tau), Mt19937(0))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0, 6.0])
def test_surprise_stays_where_it_is_set(version: int, tau: float) -> None:
    subject = mirostat(version, tau)
    values = np.exp(ROW)
    surprises = -np.log2(values / values.sum())
    drawn = [float(surprises[draw(subject, ROW)]) for _ in range(600)]
    # Surprise is measured against what was left, so by the whole row there is a little more.
    assert tau - 0.5 < sum(drawn[100:]) / 500 < tau + 2.5


@pytest.mark.parametrize("version", [1, 2])
def test_a_row_without_a_choice(version: int) -> None:
    subject = mirostat(version)
    with np.errstate(all="ignore"):
        assert draw(subject, np.array([4.0], np.float32)) == 0
        row = np.full(300, -np.inf, np.float32)
        row[7] = 1.0
        assert {draw(subject, row) for _ in range(5)} == {7}
        assert 0 <= draw(subject, np.zeros(300, np.float32)) < 300


@pytest.mark.parametrize("version", [1, 2])
def test_many_are_drawn_from_without_an_order(version: int) -> None:
    """With a surprise that nothing exceeds, each token comes as often as it is likely."""
    row = np.random.default_rng(0).standard_normal(9000).astype(np.float32)
    subject = Mirostat(
        Sampling(seed=0, mirostat=version, mirostat_tau=12.0, mirostat_eta=0.0), Mt19937(0)
    )
    drawn = np.array([draw(subject, row) for _ in range(2000)])
    values = np.exp(row) / np.exp(row).sum()
    for group in np.array_split(np.argsort(-row), 8):
        share = float(values[group].sum())
        assert np.isin(drawn, group).mean() == pytest.approx(share, abs=0.05)
