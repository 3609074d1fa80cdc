"""Who waits and who runs."""

import pytest

from arriero.agent.engine.progress import Progress
from arriero.agent.engine.roster import Roster
from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.sequence import NewSequence, SequenceId


def make(number: int, priority: int = 0) -> Progress:
    sequence = NewSequence(
        id=SequenceId(number),
        prompt=(1, 2),
        max_tokens=None,
        sampling=Sampling(seed=0),
        priority=priority,
    )
    return Progress(sequence, arrival=number, ceiling=20)


def test_the_best_by_rank_are_candidates_for_the_free_slots() -> None:
    roster = Roster(2)
    first, second, urgent = make(1), make(2), make(3, priority=5)
    for one in (second, first, urgent):
        roster.wait(one)
    assert roster.candidates == [urgent, first]
    slot = roster.begin(urgent)
    assert roster.running == {slot: urgent}
    assert roster.candidates == [first]
    roster.check_integrity()


def test_the_last_by_rank() -> None:
    roster = Roster(3)
    for one in (make(1), make(2), make(3, priority=1)):
        roster.wait(one)
        roster.begin(one)
    assert roster.running[roster.last()].id == 2


def test_a_slot_is_free_again() -> None:
    roster = Roster(1)
    one = make(1)
    roster.wait(one)
    slot = roster.begin(one)
    assert roster.slot_of(SequenceId(1)) == slot
    assert roster.leave(slot) is one
    assert roster.slot_of(SequenceId(1)) is None
    roster.wait(one)
    assert roster.candidates == [one]
    roster.stop_waiting(SequenceId(1))
    assert roster.candidates == []


def test_a_sequence_is_in_one_place() -> None:
    roster = Roster(2)
    one = make(1)
    roster.wait(one)
    roster.begin(one)
    roster.wait(one)
    with pytest.raises(RuntimeError, match="roster out of order"):
        roster.check_integrity()


def test_who_was_dropped_is_so_until_it_leaves() -> None:
    roster = Roster(1)
    one = make(1)
    roster.wait(one)
    slot = roster.begin(one)
    roster.dropped.add(slot)
    roster.check_integrity()
    roster.leave(slot)
    assert roster.dropped == set()
