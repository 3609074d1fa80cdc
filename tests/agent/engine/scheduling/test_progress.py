"""One sequence's way through the engine."""

import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.context_shift import Window
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.sequence import ContextShift, NewSequence, SequenceId


def make(
    *,
    length: int = 5,
    max_tokens: int | None = None,
    priority: int = 0,
    scores_prompt: bool = False,
    said: tuple[int, ...] = (),
) -> Progress:
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=Prompt(tuple(range(10, 10 + length))),
        max_tokens=max_tokens,
        sampling=Sampling(seed=0),
        priority=priority,
        scores_prompt=scores_prompt,
        said=said,
    )
    return Progress(sequence, arrival=7, ceiling=20)


def test_a_prompt_is_read_in_chunks_and_then_generates() -> None:
    one = make()
    assert one.next_tokens(3) == (10, 11, 12)
    one.read(3, 0.5)
    assert one.next_tokens(9) == (13, 14)
    assert not one.is_generating
    one.read(2, 0.25)
    one.extend(99, 1.0)
    assert one.is_generating
    assert one.next_tokens(1) == (99,)
    one.decode(0.125)
    stats = one.end("stop").stats
    assert (stats.prefill_seconds, stats.decode_seconds) == (0.75, 0.125)
    assert stats.prefill_tokens == 5


def test_reading_beside_others_tells_no_speed() -> None:
    one = make()
    one.read(3, 0.5)
    one.read(2, None)
    stats = one.end("stop").stats
    assert (stats.prefill_tokens, stats.prefill_seconds) == (3, 0.5)


def test_what_it_shared_when_it_came_is_cached_and_not_what_it_shared_later() -> None:
    one = make()
    assert one.start(3) == 3
    assert one.num_pending == 2
    one.rewind()
    assert one.start(4) == 0
    assert one.end("stop").stats.cached_tokens == 3


def test_the_last_token_of_a_prompt_is_still_reading() -> None:
    one = make()
    one.read(4, 0.5)
    assert one.num_pending == 1
    assert not one.is_generating


def test_after_a_rewind_its_own_tokens_are_read_like_a_prompt() -> None:
    one = make(length=1)
    one.read(1, 0.5)
    one.extend(98, 1.0)
    one.decode(0.25)
    one.extend(99, 1.0)
    one.rewind()
    assert not one.is_generating
    assert one.next_tokens(3) == (10, 98, 99)
    one.read(1, 0.5)
    assert not one.is_generating
    one.read(1, 0.5)
    assert one.is_generating
    stats = one.end("stop").stats
    assert stats.completion_tokens == 2
    assert (stats.prefill_tokens, stats.prefill_seconds) == (1, 0.5), "only the first time"


def test_full_at_its_own_limit() -> None:
    one = make(max_tokens=2)
    one.extend(1, 0.0)
    assert not one.is_full
    assert one.num_left == 1
    one.extend(2, 0.0)
    assert one.is_full


def test_full_at_the_ceiling() -> None:
    one = make(max_tokens=1000)
    for _ in range(14):
        one.extend(1, 0.0)
    assert not one.is_full
    one.extend(1, 0.0)
    assert one.is_full


def test_more_than_pending_cannot_be_computed() -> None:
    with pytest.raises(ValueError, match="6 tokens computed of 5"):
        make().read(6, 0.1)


def test_rank_is_priority_then_arrival() -> None:
    assert make(priority=1).rank < make(priority=0).rank
    assert make().rank == (0, 7)


def test_with_a_window_the_ceiling_ends_nothing() -> None:
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=Prompt(tuple(range(10, 28))),
        max_tokens=None,
        sampling=Sampling(seed=0),
        shift=ContextShift(2, 5),
    )
    one = Progress(sequence, arrival=1, ceiling=20, window=Window(20, 2, 5))
    one.read(18, None)
    one.extend(98, 0.0)
    one.decode(0.1)
    assert not one.must_shift
    one.extend(99, 0.0)
    assert one.must_shift
    assert not one.is_full
    one.shift(Window(20, 2, 5), is_moved=True)
    assert one.history.keys == [10, 11, *range(17, 28), 98, 99]
    assert one.is_generating
    one.shift(Window(20, 2, 5), is_moved=False)
    assert one.history.keys == [10, 11, *range(22, 28), 98, 99]
    assert one.num_computed == 2
    assert one.end("stop").stats.completion_tokens == 2


def test_what_was_not_there_after_all_was_never_begun() -> None:
    one = make()
    one.start(3)
    assert one.begin_anew() == 3
    one.rewind()
    assert one.start(2) == 2
    assert one.num_cached == 2


def test_no_more_is_drafted_than_can_be_gained() -> None:
    one = make(max_tokens=4)
    one.read(5, None)
    one.extend(99, 0.0)
    assert one.most_ahead == 2, "of three that are left the last is gained without a draft"
    endless = make(length=17)
    endless.read(17, None)
    endless.extend(99, 0.0)
    assert endless.most_ahead == 1


def test_nothing_is_drafted_across_a_shift() -> None:
    sequence = NewSequence(
        id=SequenceId(1),
        prompt=Prompt(tuple(range(15))),
        max_tokens=None,
        sampling=Sampling(seed=0),
        shift=ContextShift(4, 8),
    )
    one = Progress(sequence, arrival=0, ceiling=20, window=Window(20, 4, 8))
    one.read(15, None)
    one.extend(99, 0.0)
    assert one.most_ahead == 3, "which with one more fills the window"


def test_a_drafted_token_that_is_right_is_computed_already() -> None:
    one = make()
    one.read(5, None)
    one.extend(99, 0.0)
    one.decode(0.1)
    one.extend(98, 0.2)
    one.confirm()
    one.extend(97, 0.2)
    assert (one.num_computed, one.num_pending) == (7, 1)


def test_what_is_explained_is_computed_and_what_was_explained_is_not_again() -> None:
    one = make(scores_prompt=True)
    assert (make().most_reused, one.most_reused) == (4, 0)
    assert one.to_score(3) == range(1, 4)
    one.read(3, 0.5)
    one.scored(3)
    one.rewind()
    assert (one.is_scoring, one.most_reused) == (True, 3)
    assert not one.to_score(3)
    assert one.to_score(4) == one.to_score(5) == range(4, 5)
    one.scored(1)
    assert (one.is_scoring, one.most_reused) == (False, 4)


def test_a_prompt_of_one_token_needs_no_explaining() -> None:
    assert not make(length=1, scores_prompt=True).is_scoring


def test_what_was_said_elsewhere_is_read_like_a_prompt() -> None:
    one = make(length=3, max_tokens=4, said=(70, 71))
    assert one.start(4) == 3, "no more of the prompt is cached than it has"
    assert not one.is_generating, "its first token comes from reading"
    assert one.next_tokens(9) == (71,)
    one.read(1, 0.5)
    one.extend(72, 1.0)
    assert one.is_generating
    assert one.num_left == 1
    stats = one.stats()
    assert (stats.cached_tokens, stats.completion_tokens, stats.prefill_tokens) == (3, 1, 1)


def test_an_answer_may_have_all_its_tokens_already() -> None:
    assert make(max_tokens=2, said=(70, 71)).is_full
