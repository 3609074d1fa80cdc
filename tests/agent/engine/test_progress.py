"""One sequence's way through the engine."""

import pytest

from arriero.agent.engine.progress import Progress
from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId


def make(*, length: int = 5, max_tokens: int | None = None, priority: int = 0) -> Progress:
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=tuple(range(10, 10 + length)),
        max_tokens=max_tokens,
        sampling=Sampling(seed=0),
        priority=priority,
    )
    return Progress(sequence, arrival=7, context_size=20)


def test_a_prompt_is_read_in_chunks_and_then_generates() -> None:
    one = make()
    assert one.next_tokens(3) == (10, 11, 12)
    one.advance(3, 0.5)
    assert one.next_tokens(9) == (13, 14)
    assert not one.is_generating
    one.advance(2, 0.25)
    one.history.append(99)
    assert one.is_generating
    assert one.next_tokens(1) == (99,)
    one.advance(1, 0.125)
    stats = one.end("stop").stats
    assert (stats.prefill_seconds, stats.decode_seconds) == (0.75, 0.125)


def test_the_last_token_of_a_prompt_is_still_reading() -> None:
    one = make()
    one.advance(4, 0.5)
    assert one.num_pending == 1
    assert not one.is_generating


def test_after_a_rewind_its_own_tokens_are_read_like_a_prompt() -> None:
    one = make(length=1)
    one.advance(1, 0.5)
    one.history += [98, 99]
    one.rewind()
    assert not one.is_generating
    assert one.next_tokens(3) == (10, 98, 99)
    one.advance(1, 0.5)
    assert not one.is_generating
    one.advance(1, 0.5)
    assert one.is_generating
    assert one.end("stop").stats.completion_tokens == 2


def test_full_at_its_own_limit() -> None:
    one = make(max_tokens=2)
    one.history += [1]
    assert not one.is_full
    one.history += [2]
    assert one.is_full


def test_full_at_the_ceiling() -> None:
    one = make(max_tokens=1000)
    one.history += [1] * 14
    assert not one.is_full
    one.history += [1]
    assert one.is_full


def test_more_than_pending_cannot_be_computed() -> None:
    with pytest.raises(ValueError, match="6 tokens computed of 5"):
        make().advance(6, 0.1)


def test_rank_is_priority_then_arrival() -> None:
    assert make(priority=1).rank < make(priority=0).rank
    assert make().rank == (0, 7)
