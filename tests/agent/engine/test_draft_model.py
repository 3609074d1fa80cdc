"""What a draft model is asked and answers are values."""

from arriero.agent.engine.draft_model import DraftRun, Guess
from arriero.agent.engine.sequence import SequenceId


def test_a_run_wants_a_guess_unless_it_only_catches_up() -> None:
    assert DraftRun(SequenceId(1), 0, 3, (4,)) == DraftRun(SequenceId(1), 0, 3, (4,), guesses=True)
    assert DraftRun(SequenceId(1), 0, 3, (4,)) != DraftRun(SequenceId(1), 0, 3, (4,), guesses=False)
    assert Guess(5, 0.5) != Guess(5, 0.6)
