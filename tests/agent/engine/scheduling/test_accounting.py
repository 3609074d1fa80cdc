"""Steps that worked. More of what follows from them is in the scheduler's tests."""

from dataclasses import replace

from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.sequence import SequenceId, SequenceOutput
from arriero.agent.engine.step import Clear, Decoded, Step
from arriero.shared.reports.statistics import Cells
from tests.agent.engine.fake_engine import END_TOKEN
from tests.agent.engine.setting import Setting


def account(setting: Setting, step: Step, *tokens: int) -> list[SequenceOutput]:
    last = setting.tally.now
    setting.tally.passed(0.1, len(setting.queue.running))
    outputs = setting.accounting.account(step, Decoded(tokens), 0.1, last)
    setting.memory.check_integrity()
    return outputs


def test_everybody_gets_the_token_of_its_run() -> None:
    setting = Setting()
    first, second = setting.add(1, 5, 6), setting.add(2, 7)
    step = setting.plan()
    assert account(setting, step, 8, 9) == [
        SequenceOutput(SequenceId(1), (8,)),
        SequenceOutput(SequenceId(2), (9,)),
    ]
    assert (first.history.keys, second.history.keys) == ([5, 6, 8], [7, 9])
    assert (first.num_computed, second.num_computed) == (2, 1)


def test_an_end_token_ends_without_being_given_out() -> None:
    setting = Setting()
    one = setting.add(1, 5, 6)
    (output,) = account(setting, setting.plan(), END_TOKEN)
    assert output == SequenceOutput(one.id, (), one.end("stop"))
    assert setting.queue.running == {}
    assert setting.memory.room.num_kept == 2


def test_the_last_token_comes_with_the_end() -> None:
    setting = Setting()
    one = setting.add(1, 5, 6, max_tokens=1)
    (output,) = account(setting, setting.plan(), 7)
    assert output == SequenceOutput(one.id, (7,), one.end("length"))


def test_waiting_for_others_prompts_is_a_stall() -> None:
    setting = Setting()
    setting.add(1, 5)
    account(setting, setting.plan(), 7)
    setting.add(2, *[6] * 20)
    account(setting, setting.plan(), 7, 8)
    summary = setting.tally.summary(num_running=2, num_waiting=0, cells=Cells())
    assert sum(summary.stalls.counts) == 1
    assert summary.stalls.seconds > 0


def drafting(setting: Setting, *draft: int) -> Step:
    """The next step, in which somebody has drafted a continuation."""
    step = setting.plan()
    run = step.runs[0]
    drafted = replace(run, tokens=(*run.tokens, *draft), num_drafted=len(draft))
    return replace(step, runs=(drafted, *step.runs[1:]), num_drafted=len(draft))


def generating(setting: Setting, *, max_tokens: int | None = None) -> Progress:
    one = setting.add(1, 5, 6, max_tokens=max_tokens)
    account(setting, setting.plan(), 7)
    return one


def test_a_draft_is_taken_as_far_as_it_is_right() -> None:
    setting = Setting()
    one = generating(setting)
    step = drafting(setting, 8, 9, 10)
    assert account(setting, step, 8, 11) == [SequenceOutput(one.id, (8, 11))]
    assert (one.history.keys, one.num_computed) == ([5, 6, 7, 8, 11], 4)
    assert setting.memory.room.length(step.runs[0].slot) == 4
    assert setting.plan().edits == (Clear(step.runs[0].slot, 4),)


def test_a_draft_that_is_right_gives_one_token_more() -> None:
    setting = Setting()
    one = generating(setting)
    step = drafting(setting, 8, 9)
    assert account(setting, step, 8, 9, 10) == [SequenceOutput(one.id, (8, 9, 10))]
    assert one.num_computed == 5
    assert setting.plan().edits == ()


def test_an_end_token_after_a_draft_comes_with_what_was_right() -> None:
    setting = Setting()
    one = generating(setting)
    (output,) = account(setting, drafting(setting, 8, 9), 8, END_TOKEN)
    assert output == SequenceOutput(one.id, (8,), one.end("stop"))
    assert setting.memory.room.num_kept == 4


def test_only_what_was_said_is_kept() -> None:
    setting = Setting()
    one = setting.add(1, 5, 6, max_tokens=3)
    account(setting, setting.plan(), 7)
    step = drafting(setting, 8, 9)
    (output,) = account(setting, step, 8, 11)
    assert output == SequenceOutput(one.id, (8, 11), one.end("length"))
    assert setting.memory.room.num_kept == 4


def test_every_run_takes_its_own_tokens() -> None:
    setting = Setting()
    generating(setting)
    setting.add(2, 20, 21)
    step = drafting(setting, 8, 9)
    first, second = account(setting, step, 8, 10, 22)
    assert (first.tokens, second.tokens) == ((8, 10), (22,))


def test_a_gain_says_what_was_counted_so_far_and_later_ones_what_changes() -> None:
    setting = Setting()
    setting.add(1, 5, 6)
    (first,) = account(setting, setting.plan(), 7)
    (second,) = account(setting, setting.plan(), 8)
    assert first.stats is not None
    assert (first.stats.completion_tokens, first.stats.decode_seconds) == (1, None)
    assert (second.stats, second.decode_seconds) == (None, 0.1)
