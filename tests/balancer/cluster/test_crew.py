"""Workers start, are started again after pauses, and end together."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from arriero.balancer.cluster.crew import (
    FIRST_PAUSE,
    LAST_PAUSE,
    STEADY_PAUSES,
    Announce,
    Crew,
    Decision,
    Halt,
    Quit,
    Start,
)


def serving(num: int = 2, now: float = 0.0) -> Crew:
    crew = Crew(num)
    crew.begin()
    for worker in range(num):
        crew.ready(worker, now)
    return crew


def test_the_others_follow_the_first_and_all_are_announced_once() -> None:
    crew = Crew(3)
    assert crew.begin() == [Start(0)]
    assert crew.ready(0, 0.0) == [Start(1), Start(2)]
    assert crew.ready(2, 0.0) == []
    assert crew.ready(1, 0.0) == [Announce()]
    crew.ended(1, -9, 1.0)
    crew.tick(9.0)
    assert crew.ready(1, 9.0) == []


@pytest.mark.parametrize(("code", "told"), [(1, 1), (0, 1), (-9, 1), (70, 70)])
def test_one_that_cannot_start_ends_all(code: int, told: int) -> None:
    crew = Crew(2)
    crew.begin()
    assert crew.ended(0, code, 0.0) == [Quit(told)]
    crew = Crew(2)
    crew.begin()
    crew.ready(0, 0.0)
    assert crew.ended(1, code, 0.0) == [Halt(0)]
    assert crew.ended(0, 0, 0.0) == [Quit(told)]


def test_pauses_double_and_are_forgotten_after_a_while() -> None:
    crew, now, pauses = serving(), 0.0, []
    for _ in range(9):
        assert crew.ended(1, -9, now) == []
        pauses.append(crew.pause_of(1))
        now += pauses[-1]
        assert crew.next_deadline() == now
        assert crew.tick(now) == [Start(1)]
        crew.ready(1, now)
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE]
    assert pauses[-1] == LAST_PAUSE
    crew.ended(1, -9, now + STEADY_PAUSES * LAST_PAUSE)
    assert crew.pause_of(1) == FIRST_PAUSE


def test_nothing_starts_before_its_pause_is_over() -> None:
    crew = serving()
    crew.ended(0, 1, 5.0)
    assert crew.serving == [1]
    assert crew.tick(5.0 + FIRST_PAUSE / 2) == []
    assert crew.tick(5.0 + FIRST_PAUSE) == [Start(0)]


def test_all_finish_and_the_worst_code_is_told() -> None:
    crew = serving(3)
    crew.ended(2, -9, 1.0)
    assert crew.stop() == [Halt(0), Halt(1)]
    assert crew.stop() == [] and crew.next_deadline() is None
    assert crew.ended(0, -15, 2.0) == [], "a signal to the whole service"
    assert crew.ended(1, -9, 2.0) == [Quit(137)]


class Crews(RuleBasedStateMachine):
    """Any history: a worker has one process at most, and the end comes once."""

    def __init__(self) -> None:
        super().__init__()
        self.crew, self.now = Crew(3), 0.0
        self.running: set[int] = set()
        self.is_stopped = False
        self.told: list[Decision] = []
        self.do(self.crew.begin())

    def do(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            self.told.append(decision)
            if isinstance(decision, Start):
                assert not self.is_stopped and decision.worker not in self.running
                self.running.add(decision.worker)
            if isinstance(decision, Halt):
                self.is_stopped = True
            if isinstance(decision, Quit):
                self.is_stopped = True
                assert not self.running

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def becomes_ready(self, data: st.DataObject) -> None:
        idle = sorted(self.running - set(self.crew.serving))
        if idle:
            self.do(self.crew.ready(data.draw(st.sampled_from(idle)), self.now))

    @precondition(lambda self: self.running)
    @rule(data=st.data(), code=st.sampled_from([0, 1, -9, -15]))
    def ends(self, data: st.DataObject, code: int) -> None:
        worker = data.draw(st.sampled_from(sorted(self.running)))
        self.running.discard(worker)
        self.do(self.crew.ended(worker, code, self.now))

    @rule(seconds=st.floats(0, 40))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.do(self.crew.tick(self.now))

    @rule()
    def stops(self) -> None:
        self.is_stopped = True
        self.do(self.crew.stop())

    @invariant()
    def ends_and_is_announced_once(self) -> None:
        quits = [each for each in self.told if isinstance(each, Quit)]
        assert len(quits) <= 1 and self.told.count(Announce()) <= 1
        assert bool(quits) == (self.is_stopped and not self.running)


TestCrews = Crews.TestCase
