"""What goes into the engine and comes out of it can be compared and cannot be changed."""

from dataclasses import FrozenInstanceError

import pytest

from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import (
    NewSequence,
    SequenceEnd,
    SequenceId,
    SequenceOutput,
    SequenceStats,
)
from arriero.shared.errors import EngineFailed

STATS = SequenceStats(
    prompt_tokens=3,
    cached_tokens=0,
    completion_tokens=2,
    prefill_tokens=3,
    prefill_seconds=0.5,
    decode_seconds=None,
)


def test_outputs_are_compared_by_what_they_say() -> None:
    end = SequenceEnd(EngineFailed("gone"), STATS)
    assert SequenceOutput(SequenceId(1), (4,), end) == SequenceOutput(
        SequenceId(1), (4,), SequenceEnd(EngineFailed("gone"), STATS)
    )
    assert SequenceOutput(SequenceId(1), (4,)) != SequenceOutput(SequenceId(1), (4,), end)


def test_a_sequence_cannot_be_changed() -> None:
    sequence = NewSequence(
        id=SequenceId(1), prompt=(1,), max_tokens=None, sampling=Sampling(seed=0)
    )
    with pytest.raises(FrozenInstanceError):
        sequence.max_tokens = 5  # type: ignore[misc]
