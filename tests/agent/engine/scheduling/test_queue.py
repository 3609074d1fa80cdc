"""Who waits and who runs."""

import pytest

from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.scheduling.state import SequenceQueue
from arriero.agent.engine.sequence import NewSequence, SequenceId


def make(number: int, priority: int = 0, adapter: str | None = None) -> Progress:
    sequence = NewSequence(
        id=SequenceId(number),
        prompt=Prompt((1, 2), adapter=adapter),
        max_tokens=None,
        sampling=Sampling(seed=0),
        priority=priority,
    )
    return Progress(sequence, arrival=number, ceiling=20)


def test_the_best_by_rank_are_candidates_for_the_free_slots() -> None:
    queue = SequenceQueue(2)
    first, second, urgent = make(1), make(2), make(3, priority=5)
    for one in (second, first, urgent):
        queue.wait(one)
    assert queue.candidates == [urgent, first]
    slot = queue.begin(urgent)
    assert queue.running == {slot: urgent}
    assert queue.candidates == [first]
    queue.check_integrity()


def test_the_last_by_rank() -> None:
    queue = SequenceQueue(3)
    for one in (make(1), make(2), make(3, priority=1)):
        queue.wait(one)
        queue.begin(one)
    assert queue.running[queue.last()].id == 2


def test_a_slot_is_free_again() -> None:
    queue = SequenceQueue(1)
    one = make(1)
    queue.wait(one)
    slot = queue.begin(one)
    assert queue.slot_of(SequenceId(1)) == slot
    assert queue.leave(slot) is one
    assert queue.slot_of(SequenceId(1)) is None
    queue.wait(one)
    assert queue.candidates == [one]
    queue.stop_waiting(SequenceId(1))
    assert queue.candidates == []


def test_a_sequence_is_in_one_place() -> None:
    queue = SequenceQueue(2)
    one = make(1)
    queue.wait(one)
    queue.begin(one)
    queue.wait(one)
    with pytest.raises(RuntimeError, match="out of order: sequences"):
        queue.check_integrity()


def test_adapters_are_counted_of_those_who_run() -> None:
    queue = SequenceQueue(3)
    plain, other, under = make(1), make(2), make(3, adapter="A")
    for one in (plain, other, under):
        queue.wait(one)
    assert not queue.adapters
    slots = [queue.begin(one) for one in (plain, other, under)]
    assert queue.adapters == {None: 2, "A": 1}
    queue.check_integrity()
    queue.leave(slots[2])
    queue.leave(slots[0])
    assert list(queue.adapters) == [None]
    queue.check_integrity()
