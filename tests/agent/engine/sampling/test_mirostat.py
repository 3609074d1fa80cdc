"""How surprising the draws are; which they are is compared with llama.cpp's in `test_sampler`."""

import numpy as np
import pytest

from arriero.agent.engine.sampling.mirostat import Mirostat
from arriero.agent.engine.sampling.mt19937 import Mt19937
from arriero.agent.engine.sampling.sampling import Sampling

ROW = np.log(np.arange(1, 5001, dtype=np.float32)) * np.float32(-1.1)


def mirostat(version: int, tau: float = 5.0) -> Mirostat:
    return Mirostat(Sampling(seed=0, mirostat=version, mirostat_tau=tau), Mt19937(0))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("tau", [2.0, 4.0, 6.0])
def test_surprise_stays_where_it_is_set(version: int, tau: float) -> None:
    subject = mirostat(version, tau)
    weights = np.exp(ROW)
    surprises = -np.log2(weights / weights.sum())
    drawn = [float(surprises[subject.draw(ROW.copy())]) for _ in range(600)]
    # Surprise is measured against what was left, so by the whole row there is a little more.
    assert tau - 0.5 < sum(drawn[100:]) / 500 < tau + 2.5


@pytest.mark.parametrize("version", [1, 2])
def test_a_row_without_a_choice(version: int) -> None:
    subject = mirostat(version)
    with np.errstate(all="ignore"):
        assert subject.draw(np.array([4.0], np.float32)) == 0
        row = np.full(300, -np.inf, np.float32)
        row[7] = 1.0
        assert {subject.draw(row.copy()) for _ in range(5)} == {7}
        assert 0 <= subject.draw(np.zeros(300, np.float32)) < 300
