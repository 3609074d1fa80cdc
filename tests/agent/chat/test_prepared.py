from dataclasses import FrozenInstanceError

import pytest

from arriero.agent.chat.prepared import Prepared
from arriero.agent.engine.sampling import Sampling


def test_what_was_prepared_stands() -> None:
    prepared = Prepared(prompt=(1,), sampling=Sampling(seed=1), max_tokens=None, stop=())
    with pytest.raises(FrozenInstanceError):
        prepared.max_tokens = 3  # type: ignore[misc]
