"""Steps that worked. More of what follows from them is in the scheduler's tests."""

from arriero.agent.engine.sequence import SequenceId, SequenceOutput
from arriero.agent.engine.step import Save, Step
from tests.agent.engine.fake_engine import END_TOKEN
from tests.agent.engine.setting import Setting


def account(setting: Setting, step: Step, *tokens: int) -> list[SequenceOutput]:
    last = setting.tally.now
    setting.tally.passed(0.1, len(setting.roster.running))
    outputs = setting.accounting.account(step, tokens, 0.1, last)
    setting.memory.check_integrity()
    return outputs


def test_everybody_gets_the_token_of_its_run() -> None:
    setting = Setting()
    first, second = setting.add(1, 5, 6), setting.add(2, 7)
    step = setting.planner.plan()
    assert account(setting, step, 8, 9) == [
        SequenceOutput(SequenceId(1), (8,)),
        SequenceOutput(SequenceId(2), (9,)),
    ]
    assert (first.history, second.history) == ([5, 6, 8], [7, 9])
    assert (first.num_computed, second.num_computed) == (2, 1)


def test_an_end_token_ends_without_being_given_out() -> None:
    setting = Setting()
    one = setting.add(1, 5, 6)
    (output,) = account(setting, setting.planner.plan(), END_TOKEN)
    assert output == SequenceOutput(one.id, (), one.end("stop"))
    assert setting.roster.running == {}
    assert setting.memory.num_kept == 2


def test_the_last_token_comes_with_the_end() -> None:
    setting = Setting()
    one = setting.add(1, 5, 6, max_tokens=1)
    (output,) = account(setting, setting.planner.plan(), 7)
    assert output == SequenceOutput(one.id, (7,), one.end("length"))


def test_who_is_finishing_takes_its_next_token_for_the_end() -> None:
    setting = Setting()
    one = setting.add(1, 5)
    step = setting.planner.plan()
    one.is_finishing = True
    (output,) = account(setting, step, 7)
    assert output == SequenceOutput(one.id, (), one.end("stop"))


def test_an_end_says_what_there_is_to_save() -> None:
    setting = Setting()
    one = setting.add(1, 5, 6, max_tokens=1, save_as="key")
    step = setting.planner.plan()
    account(setting, step, 7)
    assert setting.accounting.saves == [Save(one.id, step.runs[0].slot, (5, 6))]


def test_who_was_dropped_gains_nothing() -> None:
    setting = Setting()
    setting.add(1, 5)
    step = setting.planner.plan()
    setting.roster.dropped.add(step.runs[0].slot)
    assert account(setting, step, 7) == []


def test_waiting_for_others_prompts_is_a_stall() -> None:
    setting = Setting()
    setting.add(1, 5)
    account(setting, setting.planner.plan(), 7)
    setting.add(2, *[6] * 20)
    account(setting, setting.planner.plan(), 7, 8)
    summary = setting.tally.summary(num_running=2, num_waiting=0, num_cells=100, used=0, kept=0)
    assert sum(summary.stalls) == 1
    assert summary.stall_seconds > 0
