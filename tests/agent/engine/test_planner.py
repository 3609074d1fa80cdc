"""What the next step computes. More of it is in the scheduler's tests."""

from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Clear, Run, Step
from tests.agent.engine.setting import Setting


def step_of(setting: Setting) -> Step:
    """The next step, which works; everybody's next token is 7."""
    step = setting.planner.plan()
    tokens = tuple(7 for run in step.runs if run.samples)
    setting.accounting.account(step, tokens, 0.1, 0.0)
    return step


def test_generating_sequences_come_first() -> None:
    setting = Setting()
    setting.add(1, 5)
    step_of(setting)
    setting.add(2, 6, 6)
    step = step_of(setting)
    assert step.runs == (
        Run(SequenceId(1), 1, 1, (7,), True),
        Run(SequenceId(2), 0, 0, (6, 6), True),
    )
    assert (step.num_generating, step.num_prompt_tokens) == (1, 2)


def test_who_is_last_by_rank_makes_room() -> None:
    setting = Setting(num_cells=30)
    first, second = setting.add(1, *[5] * 10, priority=1), setting.add(2, *[6] * 4)
    first_slot = 1
    for one in (first, second):  # as if there had been room for both
        slot = setting.roster.begin(one)
        setting.memory.enter(slot, one.history, setting.memory.find(one.history, 1))
    step_of(setting)
    setting.memory.lower_limit(0)
    step = step_of(setting)
    assert [run.slot for run in step.runs] == [first_slot]
    assert Clear(0) in step.edits
    assert setting.roster.waiting == [second]
    assert second.num_computed == 0
