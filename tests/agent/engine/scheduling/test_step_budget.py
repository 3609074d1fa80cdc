"""What steps may take, and what is copied before them."""

from arriero.agent.engine.scheduling.step_budget import MARGIN, PATIENCE
from tests.agent.engine.setting import Setting


def test_a_step_takes_as_long_as_streams_may_stall_or_as_commands_may_wait() -> None:
    budget = Setting().budget
    assert (budget.seconds(1), budget.seconds(0)) == (MARGIN * 0.5, MARGIN * PATIENCE)
    assert Setting(max_stall=9.0).budget.seconds(0) == MARGIN * 9.0


def test_streams_are_copied_whole_unless_somebody_would_stall() -> None:
    budget = Setting(cell_bytes=2**20).budget
    assert budget.most_whole(0) == float("inf")
    sure = budget.most_whole(1)
    assert 100 < sure < 1000
    assert Setting(cell_bytes=2**20, num_streams=2).budget.most_whole(1) > sure, "likely will do"
