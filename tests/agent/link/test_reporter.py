"""What balancers are told of the engine, and that nothing is told of one that rests."""

from collections.abc import Callable
from dataclasses import replace

from arriero.agent.engine.statistics import STALL_BOUNDS, EngineStatistics
from arriero.agent.link.reporter import INTERVAL, Reporter, message
from arriero.shared.reports.statistics import Cells, Histogram, Statistics

STALLS = (1, 2, 3, 0, 0, 0, 0, 0, 4)


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
        self.done = EngineStatistics(num_cells=10)
        self.num_checks = 0
        self.reports: list[tuple[float, Statistics]] = []
        self.reporter = Reporter(read=self.read, send=self.sent, call_later=self.clock.call_later)

    def read(self) -> EngineStatistics:
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
    assert house.reports == [(0.0, message(house.done))]


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


def test_what_is_told() -> None:
    done = EngineStatistics(
        num_running=2,
        num_waiting=1,
        num_commands=7,
        num_cells=100,
        num_cells_used=60,
        num_cells_kept=20,
        num_preemptions=3,
        num_grammars=2,
        num_embedding_cells=640,
        num_draft_cells=256,
        num_media_bytes=4096,
        prompt_tokens_cached=40,
        prompt_tokens_computed=50,
        completion_tokens=12,
        num_drafted=5,
        num_accepted=4,
        decode_tokens=10,
        decode_seconds=2.0,
        prefill_tokens=30,
        prefill_seconds=0.5,
        busy_seconds=4.0,
        sequence_seconds=6.0,
        stalls=STALLS,
        stall_seconds=9.0,
    )
    assert message(done) == Statistics(
        num_running=2,
        num_waiting=1,
        num_commands=7,
        cells=Cells(total=100, used=40, kept=20),
        num_preemptions=3,
        num_grammars=2,
        num_embedding_cells=640,
        num_draft_cells=256,
        num_media_bytes=4096,
        cached_tokens=40,
        computed_tokens=50,
        completion_tokens=12,
        drafted_tokens=5,
        accepted_tokens=4,
        decode_tokens=10,
        decode_seconds=2.0,
        prefill_tokens=30,
        prefill_seconds=0.5,
        busy_seconds=4.0,
        decode_tokens_per_second=5.0,
        prefill_tokens_per_second=60.0,
        tokens_per_second=3.0,
        average_running=1.5,
        stalls=Histogram(bounds=STALL_BOUNDS, counts=STALLS, seconds=9.0),
    )


def test_an_engine_that_did_nothing_has_no_rates() -> None:
    told = message(EngineStatistics())
    assert told.decode_tokens_per_second is None
    assert told.prefill_tokens_per_second is None
    assert told.tokens_per_second is None
    assert told.average_running is None
