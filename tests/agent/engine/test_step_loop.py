"""The loop without its thread: what is in the queue beforehand, and what comes while it runs."""

from collections.abc import Callable
from itertools import count
from queue import Empty

import pytest

from arriero.agent.engine.fair_lock import FairLock
from arriero.agent.engine.kv_cache.handed import HandOut
from arriero.agent.engine.pace import Allow, Pace
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.prompt_store.stored_prompt import StoredPrompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.exports import ExportId
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId, SequenceOutput
from arriero.agent.engine.speculation.drafting import Drafting
from arriero.agent.engine.step import NoRoom, ReadOut
from arriero.agent.engine.step_loop import (
    Command,
    Drop,
    Export,
    Forget,
    Inbox,
    Interruption,
    Opened,
    StepLoop,
    Stop,
    TakeBack,
    UseThreads,
)
from arriero.shared.errors import EngineFailed
from arriero.shared.reports.statistics import Statistics
from tests.agent.engine.fake_engine import FakeEngine, run_alone
from tests.waiting import ticking

ONE, TWO = SequenceId(1), SequenceId(2)


def new(id: SequenceId, max_tokens: int = 10) -> NewSequence:
    sampling = Sampling(seed=0, temperature=0)
    return NewSequence(id=id, prompt=Prompt((5, id)), max_tokens=max_tokens, sampling=sampling)


class Scene:
    """A loop that stops when `is_over` says so, at the latest when `num` sequences have ended."""

    def __init__(self, engine: FakeEngine, num: int = 1) -> None:
        self.engine = engine
        self.inbox = Inbox(100)
        self.expected: dict[SequenceId, bool] = {}
        self.calls: list[tuple[SequenceOutput, ...]] = []
        self.statistics: list[Statistics] = []
        self.after_a_step: Callable[[], None] = lambda: None
        self._num_left = num
        self._loop = StepLoop(
            engine,
            Scheduler(
                slots=engine.num_slots,
                context_size=engine.context_size,
                max_stall=0.5,
                capacity=engine.capacity,
                end_tokens=engine.model.vocab.end_tokens,
            ),
            Drafting(None),
            lock=FairLock(),
            inbox=self.inbox,
            interruption=Interruption(engine.stop),
            expected=self.expected,
            gathering=0.0,
            pace=Pace({}, self.inbox.put),
            on_step=self._stepped,
            publish=self.statistics.append,
            clock=ticking(),
        )

    def run(self, *commands: Command) -> None:
        for each in commands:
            self.inbox.put(each)
        self._loop.run()

    @property
    def step(self) -> int | None:
        return self._loop.step

    def opened(self, sequence: NewSequence) -> Opened:
        self.engine.open(sequence)
        return Opened(sequence, None)

    def _stepped(self, outputs: tuple[SequenceOutput, ...]) -> None:
        self.calls.append(outputs)
        self.after_a_step()
        self._num_left -= sum(each.end is not None for each in outputs)
        if self._num_left <= 0:
            self.inbox.put(Stop())

    def tokens(self, id: SequenceId) -> tuple[int, ...]:
        return tuple(
            token for call in self.calls for each in call if each.id == id for token in each.tokens
        )

    def reason(self, id: SequenceId) -> object:
        [end] = [each.end for call in self.calls for each in call if each.id == id and each.end]
        return end.reason


def test_what_is_there_at_once_shares_every_step() -> None:
    scene = Scene(FakeEngine(), num=2)
    sequences = [new(ONE), new(TWO)]
    scene.run(*map(scene.opened, sequences))
    assert [{each.id for each in call} for call in scene.calls] == [{ONE, TWO}] * 10
    for each in sequences:
        assert (scene.tokens(each.id), scene.reason(each.id)) == run_alone(each, 64)
    assert not scene.engine.open_sequences


def test_commands_are_obeyed_between_steps() -> None:
    scene = Scene(FakeEngine())
    scene.after_a_step = lambda: scene.inbox.put(
        Drop(ONE) if len(scene.calls) == 3 else Forget(ONE)
    )
    scene.run(scene.opened(new(ONE)), scene.opened(new(TWO)))
    assert len(scene.tokens(ONE)) == 3
    assert len(scene.tokens(TWO)) == 10
    assert not scene.engine.open_sequences


def test_threads_change_between_steps_and_in_an_idle_engine() -> None:
    scene = Scene(FakeEngine())
    seen: list[int] = []

    def after_a_step() -> None:
        seen.append(len(scene.engine.threads))
        if len(scene.calls) == 3:
            scene.inbox.put(UseThreads(1, 2))

    scene.after_a_step = after_a_step
    scene.run(UseThreads(4, 4), scene.opened(new(ONE)))
    assert scene.engine.threads == [(4, 4), (1, 2)]
    assert seen[:5] == [1, 1, 1, 2, 2]
    assert scene.tokens(ONE) == run_alone(new(ONE), 64)[0]


def test_what_could_not_be_opened_ends_with_its_error() -> None:
    scene = Scene(FakeEngine())
    error = EngineFailed("no room")
    scene.run(Opened(new(ONE), error))
    assert scene.reason(ONE) == error


def test_a_step_that_did_not_fit_is_computed_again(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(FakeEngine())
    scene.engine.fail_next(NoRoom())
    scene.run(scene.opened(new(ONE)))
    assert scene.tokens(ONE) == run_alone(new(ONE), 64)[0]
    assert "a smaller step follows" in caplog.text


def test_a_sequence_that_was_expected_and_will_not_come_is_not_waited_for() -> None:
    scene = Scene(FakeEngine())
    scene.expected.update({ONE: False, TWO: True})
    scene.run(scene.opened(new(ONE)), Forget(TWO))
    assert not scene.expected
    assert scene.statistics[-1].num_running == 0


def test_prefixes_are_handed_out_beside_steps_and_by_an_idle_engine() -> None:
    scene = Scene(FakeEngine(), num=2)  # the last answer stops it
    answers: list[StoredPrompt | None] = []
    ids = count()

    def asked(*tokens: int) -> Export:
        def reply(prefix: StoredPrompt | None) -> None:
            answers.append(prefix)
            if len(answers) == 3:
                scene.inbox.put(Stop())

        return Export(ExportId(next(ids)), Prompt(tokens), reply, HandOut())

    def ask() -> None:
        if len(scene.calls) == 2:
            scene.inbox.put(asked(5, ONE, *scene.tokens(ONE)[:1], 49))

    scene.after_a_step = ask
    scene.run(asked(7), scene.opened(new(ONE, max_tokens=4)), asked(5, ONE))
    nothing, *found = answers
    assert nothing is None
    assert [each and each.prompt for each in found] == [
        Prompt((5, ONE)),
        Prompt((5, ONE, *scene.tokens(ONE)[:1])),
    ]
    assert scene.tokens(ONE) == run_alone(new(ONE, max_tokens=4), 64)[0]


def test_what_is_taken_back_before_it_is_read_is_never_read() -> None:
    scene = Scene(FakeEngine())
    answers: list[StoredPrompt | None] = []
    asked = ExportId(0)

    def ask() -> None:
        if len(scene.calls) == 2:
            scene.inbox.put(Export(asked, Prompt((5, ONE)), answers.append, HandOut()))
            scene.inbox.put(TakeBack(asked))

    scene.after_a_step = ask
    scene.run(TakeBack(asked), scene.opened(new(ONE, max_tokens=4)))
    assert answers == []
    assert not any(isinstance(edit, ReadOut) for step in scene.engine.steps for edit in step.edits)
    assert scene.tokens(ONE) == run_alone(new(ONE, max_tokens=4), 64)[0]


def test_a_held_engine_obeys_and_computes_only_what_is_handed_out() -> None:
    scene = Scene(FakeEngine())
    seen: list[int] = []

    def allow(num_steps: int | None) -> Allow:
        return Allow(num_steps, lambda: seen.append(len(scene.calls)))

    def after_a_step() -> None:
        if len(scene.calls) == 2:  # no more were handed out
            scene.inbox.put(Drop(TWO))
            scene.inbox.put(allow(None))

    scene.after_a_step = after_a_step
    scene.run(allow(0), scene.opened(new(ONE)), scene.opened(new(TWO)), allow(2))
    assert seen == [0, 0, 2]
    assert len(scene.tokens(TWO)) == 2
    assert scene.tokens(ONE) == run_alone(new(ONE), 64)[0]


def test_a_held_engine_stops() -> None:
    scene = Scene(FakeEngine())
    scene.run(Allow(0, lambda: None), scene.opened(new(ONE)), Stop())
    assert not scene.calls


def test_a_step_has_a_number_while_it_is_computed() -> None:
    scene = Scene(FakeEngine())
    seen: list[int | None] = []
    scene.after_a_step = lambda: seen.append(scene.step)
    assert scene.step is None
    scene.run(scene.opened(new(ONE, max_tokens=3)))
    assert seen == [1, 2, 3]
    assert scene.step is None


# ---- who stops a step, and when


def test_a_step_is_stopped_only_while_it_may_be() -> None:
    told: list[bool] = []
    interruption = Interruption(told.append)
    interruption.request()
    interruption.seen()
    with interruption.allowed():
        assert told == []
        interruption.request()
        assert told == [True]
    assert told == [True, False]


def test_what_came_before_the_step_and_was_not_seen_stops_it_at_once() -> None:
    told: list[bool] = []
    interruption = Interruption(told.append)
    interruption.request()
    with interruption.allowed():
        assert told == [True]
    interruption.seen()
    with interruption.allowed():
        pass
    assert told == [True, False, False]


# ---- the inbox


FIRST, SECOND, THIRD = (Drop(SequenceId(number)) for number in (1, 2, 3))


def test_commands_come_out_in_the_order_in_which_they_went_in() -> None:
    inbox = Inbox(2)
    for command in (FIRST, SECOND, THIRD):
        inbox.put(command)
    assert len(inbox) == 3
    assert [inbox.get() for _ in range(3)] == [FIRST, SECOND, THIRD]
    with pytest.raises(Empty):
        inbox.get(timeout=0.001)


def test_room_is_reported_once_after_it_was_refused_and_when_the_inbox_is_empty() -> None:
    reported: list[int] = []
    inbox = Inbox(2, lambda: reported.append(len(inbox)))
    inbox.put(FIRST)
    assert inbox.has_room()
    inbox.put(SECOND)
    assert not inbox.has_room()
    inbox.get()
    assert reported == []
    inbox.get()
    assert reported == [0]
    inbox.put(THIRD)
    inbox.get()
    assert reported == [0]


def test_room_is_not_reported_where_it_was_not_asked_for() -> None:
    inbox = Inbox(1, lambda: pytest.fail("it was not refused"))
    inbox.put(FIRST)
    inbox.get()
