from dataclasses import FrozenInstanceError

import pytest

from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.generation.prepared import Prepared


def test_what_was_prepared_stands() -> None:
    prepared = Prepared(prompt=(1,), sampling=Sampling(seed=1), max_tokens=None, stop=())
    with pytest.raises(FrozenInstanceError):
        prepared.max_tokens = 3  # type: ignore[misc]
