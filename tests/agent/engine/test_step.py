"""What a step says of itself."""

from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Clear, Copy, Offload, Restore, RestoreState, Run, Step


def test_the_size_of_a_step_is_that_of_its_batch() -> None:
    runs = (Run(SequenceId(1), 0, 4, (7,), True), Run(SequenceId(2), 1, 0, (8, 9), True))
    assert Step((), runs, 1, 2).size == 3


def test_what_a_step_copies_is_counted() -> None:
    moved = (Offload(3, 5, 7, 0), Restore(4, 0, 2, 0), RestoreState(4, 2, 1, 9))
    edits = (Clear(2), *moved, Copy(4, 1, 2))
    assert Step(edits, (), 0, 0).num_moved == 7 + 2 + 9


def test_a_step_is_as_deep_as_its_longest_part_of_a_prompt() -> None:
    runs = (
        Run(SequenceId(1), 0, 900, (7,), True),
        Run(SequenceId(2), 1, 20, (8,), False),
        Run(SequenceId(3), 2, 40, (8, 9), True),
    )
    assert Step((), runs, 1, 3).depth == 40
    assert Step((), runs[:1], 1, 0).depth == 0
