"""Batch requests give way to others, in an engine."""

from arriero.agent.engine.prompt import Media, MediaPart
from arriero.agent.engine.scheduling.background import MOST_LOST, RECENT, Background
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.step import Run, Step
from tests.agent.engine.scheduling.test_planner import step_of
from tests.agent.engine.setting import Setting

PICTURE = MediaPart(Media(bytes(16), 4), 0, 4)


def progress(number: int, priority: int) -> Progress:
    return Setting().add(number, 5, 5, priority=priority)


BATCH, OTHER = progress(1, -1), progress(2, 0)


def background(*, may_pause: bool = True, may_stop: bool = True) -> Background:
    return Background(0.5, may_pause=may_pause, may_stop=may_stop)


def step(*runs: Run) -> Step:
    return Step((), runs, len(runs), 0)


def run(one: Progress, media: MediaPart | None = None) -> Run:
    return Run(one.id, one.id, 0, (5,), True, media=media)


def test_others_are_here_for_a_while_after_they_went() -> None:
    ours = background()
    ours.look([BATCH], 0.0)
    assert not ours.are_others_here(0.0)
    ours.look([BATCH, OTHER], 1.0)
    assert ours.are_others_here(1.0) and ours.are_others_here(RECENT)
    assert not ours.are_others_here(RECENT + 1.0)


def test_who_generates_for_a_batch_pauses_while_others_prompts_are_read() -> None:
    ours, both = background(), {0: BATCH, 1: OTHER}
    assert ours.staying(both, [OTHER], 0.4) == {1: OTHER}
    assert ours.staying(both, [], 0.4) == both
    assert ours.staying(both, [BATCH], 0.4) == both
    assert ours.staying(both, [OTHER], 0.5) == both, "no longer than others' prompts stall it"
    assert background(may_pause=False).staying(both, [OTHER], 0.4) == both


def test_only_a_step_of_batch_requests_may_be_stopped() -> None:
    ours, running = background(), {BATCH.id: BATCH, OTHER.id: OTHER}
    by_slot = {int(id): one for id, one in running.items()}
    assert ours.may_be_stopped(step(run(BATCH)), by_slot)
    assert not ours.may_be_stopped(step(run(BATCH), run(OTHER)), by_slot)
    assert not ours.may_be_stopped(step(), by_slot)
    assert not ours.may_be_stopped(step(run(BATCH, PICTURE)), by_slot)
    assert not background(may_stop=False).may_be_stopped(step(run(BATCH)), by_slot)


def test_no_more_time_is_lost_than_there_was() -> None:
    ours, running = background(), {int(one.id): one for one in (BATCH, OTHER)}
    theirs, others = step(run(BATCH)), step(run(OTHER))
    ours.ended(theirs, running, MOST_LOST, was_stopped=True)
    assert not ours.may_be_stopped(theirs, running)
    ours.ended(others, running, 1.0, was_stopped=False)
    assert not ours.may_be_stopped(theirs, running), "that was not theirs"
    ours.ended(theirs, running, 0.1, was_stopped=False)
    assert ours.may_be_stopped(theirs, running)
    ours.ended(theirs, running, 0.2, was_stopped=True)
    ours.ended(theirs, running, 0.1, was_stopped=False)
    assert not ours.may_be_stopped(theirs, running)


def test_a_newcomer_is_read_in_a_step_of_its_own() -> None:
    setting = Setting(slots=3)
    setting.add(1, 5, priority=-1)
    step_of(setting)
    setting.add(2, 6, 6, priority=1)
    alone = step_of(setting)
    assert [each.id for each in alone.runs] == [2]
    both = step_of(setting)
    assert [each.id for each in both.runs] == [1, 2]
    setting.add(3, 8, 8, 8, priority=-1)
    assert [each.id for each in step_of(setting).runs] == [1, 2, 3]
