"""What balancers are told of the engine, and that nothing is told of one that rests."""

from collections.abc import Callable
from dataclasses import replace

from arriero.agent.link.reporter import INTERVAL, Reporter
from arriero.shared.reports.statistics import Cells, Statistics


class Clock:
    """An event loop's timers; the test lets time pass."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: dict[float, Callable[[], None]] = {}

    def call_later(self, seconds: float, call: Callable[[], None]) -> "Entry":
        self.calls[self.now + seconds] = call
        return Entry(self, self.now + seconds)

    def pass_to(self, now: float) -> None:
        while self.calls and min(self.calls) <= now:
            self.now = min(self.calls)
            self.calls.pop(self.now)()
        self.now = now


class Entry:
    def __init__(self, clock: Clock, at: float) -> None:
        self._clock = clock
        self._at = at

    def cancel(self) -> None:
        del self._clock.calls[self._at]


class House:
    """An engine that the test lets do things, and what was told of it, by time."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.done = Statistics(cells=Cells(total=10))
        self.num_checks = 0
        self.reports: list[tuple[float, Statistics]] = []
        self.reporter = Reporter(read=self.read, send=self.sent, call_later=self.clock.call_later)

    def read(self) -> Statistics:
        self.num_checks += 1
        return self.done

    def sent(self, statistics: Statistics) -> None:
        self.reports.append((self.clock.now, statistics))

    def step(self, num_steps: int, *, num_running: int = 1) -> None:
        self.done = replace(self.done, completion_tokens=num_steps, num_running=num_running)
        self.reporter.stir()

    @property
    def tokens(self) -> list[tuple[float, int]]:
        return [(at, each.completion_tokens) for at, each in self.reports]


def resting() -> House:
    """Its first report is out, and nothing has happened since."""
    house = House()
    house.reporter.check()
    house.clock.pass_to(5.0)
    house.reports.clear()
    house.num_checks = 0
    return house


def test_how_things_stand_is_told_at_once() -> None:
    house = House()
    house.reporter.check()
    assert house.reports == [(0.0, house.done)]


def test_of_an_engine_that_rests_nothing_is_told_or_asked() -> None:
    house = resting()
    assert house.clock.calls == {}
    house.clock.pass_to(1000.0)
    assert house.reports == []
    assert house.num_checks == 0


def test_many_steps_are_one_report_a_second() -> None:
    house = resting()
    for step in range(40):
        house.clock.pass_to(5.0 + step * 0.05)
        house.step(step)
    house.clock.pass_to(5.0 + 2 * INTERVAL)
    assert house.tokens == [(6.0, 19), (7.0, 39)]


def test_the_last_report_is_of_an_idle_engine() -> None:
    house = resting()
    house.step(1)
    house.clock.pass_to(6.5)
    house.step(2, num_running=0)
    house.clock.pass_to(100.0)
    assert house.tokens == [(6.0, 1), (7.0, 2)]
    assert house.reports[-1][1].num_running == 0
    assert house.clock.calls == {}


def test_a_long_step_is_waited_for_though_nobody_stirs() -> None:
    house = resting()
    house.step(1)
    house.clock.pass_to(60.0)
    assert house.tokens == [(6.0, 1)], "no news"
    house.done = replace(house.done, num_running=0)
    house.clock.pass_to(100.0)
    assert [at for at, _ in house.reports] == [6.0, 61.0]
    assert house.clock.calls == {}


def test_stopped_it_looks_no_more() -> None:
    house = resting()
    house.step(1)
    house.reporter.stop()
    house.reporter.stop()
    house.clock.pass_to(100.0)
    assert house.reports == []
