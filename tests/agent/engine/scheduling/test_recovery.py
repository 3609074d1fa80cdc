"""Steps that did not work. How sequences live through them is in the scheduler's tests."""

from dataclasses import replace

from arriero.agent.engine.step import Clear, Put, Restore
from arriero.shared.errors import EngineFailed
from tests.agent.engine.setting import Setting
from tests.agent.stored import whole


def test_a_step_that_did_not_fit_is_followed_by_a_smaller_one() -> None:
    setting = Setting()
    setting.add(1, *[5] * 20)
    assert setting.recovery.make_room(setting.plan()) == []
    assert setting.memory.room.num_available == 10
    assert setting.plan().num_prompt_tokens == 10


def test_one_cell_is_believed_in_as_long_as_there_are_several() -> None:
    setting = Setting()
    setting.add(1, 5)
    setting.add(2, 6)
    step = setting.plan()
    alone = replace(step, runs=step.runs[:1], num_prompt_tokens=1)
    assert setting.recovery.make_room(alone) == []
    assert setting.memory.room.num_available == 1
    assert len(setting.plan().runs) == 1


def test_who_has_no_room_alone_has_failed() -> None:
    setting = Setting()
    setting.add(1, 5)
    step = setting.plan()
    (output,) = setting.recovery.make_room(step)
    assert output.end is not None
    assert isinstance(output.end.reason, EngineFailed)
    assert "even alone" in str(output.end.reason)
    assert setting.queue.running == {}


def test_what_an_interrupted_step_wrote_is_cleared() -> None:
    setting = Setting()
    setting.add(1, 5, 6)
    step = setting.plan()
    setting.recovery.take_back(step)
    again = setting.plan()
    assert again.runs == step.runs
    assert again.edits == (Clear(step.runs[0].slot, 0),)


def test_where_no_suffix_can_be_cleared_everything_is_computed_again() -> None:
    setting = Setting(can_share=False)
    one = setting.add(1, 5, 6)
    step = setting.plan()
    setting.recovery.take_back(step)
    assert setting.queue.waiting == [one]
    assert setting.plan().edits == (Clear(step.runs[0].slot),)


def test_what_could_not_be_loaded_is_read_and_its_client_told() -> None:
    setting = Setting()
    stored = whole((5, 6, 7), b"torn")
    one = setting.add(1, 5, 6, 7, 8, stored=stored)
    step = setting.plan()
    put, restored, *_ = step.edits
    assert isinstance(put, Put) and isinstance(restored, Restore)
    assert one.num_cached == 3
    (output,) = setting.recovery.read_instead(step, (restored.holder,))
    assert [notice.code for notice in output.notices] == ["stored_prompt_unusable"]
    assert one.num_cached == 0
    assert setting.plan().num_prompt_tokens == 4


def test_a_failed_step_ends_those_in_it() -> None:
    setting = Setting()
    setting.add(1, 5)
    setting.add(2, 6)
    outputs = setting.recovery.fail(setting.plan(), "no")
    assert [output.id for output in outputs] == [1, 2]
    assert [str(output.end.reason) for output in outputs if output.end] == ["no", "no"]
    assert setting.queue.running == {}
    setting.queue.check_integrity()
