"""Steps and outcomes are values."""

from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Aborted, Clear, Decoded, Failed, NoRoom, Outcome, Run, Step


def test_steps_are_compared_by_what_they_compute() -> None:
    run = Run(SequenceId(1), 0, 4, (7,), True)
    assert Step((Clear(2),), (run,), 1, 0) == Step(
        (Clear(2),), (Run(SequenceId(1), 0, 4, (7,), True),), 1, 0
    )
    assert Step((Clear(2),), (run,), 1, 0) != Step((), (run,), 1, 0)


def test_the_size_of_a_step_is_that_of_its_batch() -> None:
    runs = (Run(SequenceId(1), 0, 4, (7,), True), Run(SequenceId(2), 1, 0, (8, 9), True))
    assert Step((), runs, 1, 2).size == 3


def test_outcomes_are_told_apart() -> None:
    outcomes: set[Outcome] = {Decoded((1,)), Decoded((2,)), NoRoom(), Aborted(), Failed("why")}
    assert len(outcomes) == 5
