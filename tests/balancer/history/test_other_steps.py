"""Steps of others count once each, whenever they are written, told and looked at."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.history.series import Series, Step
from arriero.balancer.history.shared_past import FORGOTTEN, HOUR, LATE, FromSource, OtherSteps
from arriero.balancer.store.records import StepRange, StepWidth
from tests.balancer.history.builders import step

NOW = 1_000_000


class Written:
    """A store: the steps of each source, as they were written."""

    def __init__(self) -> None:
        self.steps: dict[StepWidth, list[FromSource]] = {1: [], 60: []}
        self.num_read = 0

    def add(self, source: str, *steps: Step, width: StepWidth = 1) -> None:
        self.steps[width] += ((source, each) for each in steps)

    def read(self, wanted: StepRange) -> Sequence[FromSource]:
        found = [
            (source, each)
            for source, each in self.steps[wanted.width]
            if wanted.since <= each.at and (wanted.until is None or each.at < wanted.until)
        ]
        self.num_read += len(found)
        return sorted(found, key=lambda each: each[1].at)


def look(
    others: OtherSteps,
    store: Written,
    since: int,
    now: int,
    reported: Mapping[str, Sequence[Step]] | None = None,
) -> dict[int, int]:
    """Tokens by time."""
    others.take([(each, store.read(each)) for each in others.unread(since, now)], now)
    others.hear(reported or {})
    selection = others.since(since, now)
    times = [each.at for each in selection.steps]
    assert times == sorted(set(times))
    return {each.at: each.fleet.completion_tokens for each in selection.steps}


def test_those_of_several_are_added_up() -> None:
    store = Written()
    store.add("a", step(NOW - 2, 1), step(NOW - 1, 2))
    store.add("b", step(NOW - 1, 10))
    assert look(OtherSteps(), store, NOW - 100, NOW) == {NOW - 2: 1, NOW - 1: 12}


def test_what_is_told_counts_until_it_is_written() -> None:
    store, others = Written(), OtherSteps()
    reported = {"a": [step(NOW - 2, 4), step(NOW - 1, 5)]}
    assert look(others, store, NOW - 9, NOW, reported) == {NOW - 2: 4, NOW - 1: 5}
    store.add("a", step(NOW - 2, 4))
    assert look(others, store, NOW - 9, NOW, reported) == {NOW - 2: 4, NOW - 1: 5}
    store.add("a", step(NOW - 1, 5))
    assert look(others, store, NOW - 9, NOW, reported) == {NOW - 2: 4, NOW - 1: 5}


def test_what_was_read_is_not_read_again() -> None:
    store, others = Written(), OtherSteps()
    store.add("a", *(step(NOW - at) for at in range(1000, 0, -1)))
    assert len(look(others, store, NOW - 1000, NOW)) == 1000
    store.num_read = 0
    assert len(look(others, store, NOW - 1000, NOW)) == 1000
    assert store.num_read <= LATE + 1


def test_a_look_further_back_reads_what_is_missing() -> None:
    store, others = Written(), OtherSteps()
    store.add("a", *(step(NOW - at) for at in range(1000, 0, -1)))
    assert len(look(others, store, NOW - 10, NOW)) == 10
    assert len(look(others, store, NOW - 900, NOW)) == 900
    assert len(look(others, store, NOW - 10, NOW)) == 10


def test_a_source_that_ended_before_the_first_look_counts_once() -> None:
    store, others = Written(), OtherSteps()
    store.add("gone", step(NOW - 30, 5))
    assert look(others, store, NOW - 10, NOW) == {}
    for _ in range(3):
        assert look(others, store, NOW - 100, NOW) == {NOW - 30: 5}


def test_before_the_last_hour_there_are_minutes() -> None:
    now = NOW - NOW % 60 + 30
    series, store = Series(), Written()
    for at in range(now - 2 * HOUR, now):
        store.add("a", *series.add(step(at)), width=60)
        store.add("a", step(at))
    others = OtherSteps()
    found = look(others, store, now - 2 * HOUR, now)
    assert sum(found.values()) >= 2 * HOUR - 60
    assert set(found.values()) == {60, 1}, "minutes, and the last seconds"
    assert others.since(now - 2 * HOUR, now).width == 60
    assert look(others, store, now - 2 * HOUR, now) == found
    recent = look(others, store, now - HOUR, now)
    assert set(recent.values()) == {1} and len(recent) == HOUR


def test_minutes_that_were_written_while_seconds_alone_were_read() -> None:
    now = NOW - NOW % 60 + 30
    series, store, others = Series(), Written(), OtherSteps()

    def count(since: int, until: int) -> None:
        for at in range(since, until):
            store.add("a", *series.add(step(at)), width=60)
            store.add("a", step(at))

    count(now - 2 * HOUR, now)
    before = look(others, store, now - HOUR - 900, now)
    count(now, now + 500)
    assert len(look(others, store, now + 400, now + 500)) == 100
    after = look(others, store, now - HOUR - 900 + 500, now + 500)
    assert sum(after.values()) >= sum(before.values()) - 60


def test_what_was_written_very_late_is_seen_in_the_end() -> None:
    store, others = Written(), OtherSteps()
    assert look(others, store, NOW - 900, NOW) == {}
    store.add("a", step(NOW - LATE - 100, 3))
    later = NOW + FORGOTTEN + 1
    assert look(others, store, later - 900, later) == {NOW - LATE - 100: 3}


def test_what_a_fast_clock_counted_is_not_shown_yet() -> None:
    store, others = Written(), OtherSteps()
    store.add("a", step(NOW + 5, 3))
    assert look(others, store, NOW - 9, NOW, {"b": [step(NOW + 6)]}) == {}
    assert look(others, store, NOW - 9, NOW + 5) == {NOW + 5: 3}


def test_no_more_is_kept_than_of_one_balancer() -> None:
    store, others = Written(), OtherSteps()
    for now in range(NOW, NOW + 3 * HOUR, 200):
        store.add("a", *(step(at) for at in range(now - 200, now)))
        found = look(others, store, now - HOUR, now)
        assert len(found) <= HOUR
    assert others.num_kept <= HOUR + 60


@given(st.data())
def test_each_step_counts_once_in_any_history(data: st.DataObject) -> None:
    """Two sources write what they counted after some seconds, and tell the rest until then."""
    store, others = Written(), OtherSteps()
    counted: dict[str, list[Step]] = {"a": [], "b": []}
    num_written = {"a": 0, "b": 0}
    now = NOW
    for _ in range(data.draw(st.integers(1, 12))):
        for at in range(now, now + data.draw(st.integers(1, 30))):
            for source in counted:
                if data.draw(st.booleans()):
                    counted[source].append(step(at, data.draw(st.integers(0, 9))))
            now = at + 1
        for source in data.draw(st.sampled_from([("a",), ("b",), ("a", "b"), ()])):
            store.add(source, *counted[source][num_written[source] :])
            num_written[source] = len(counted[source])
        if data.draw(st.booleans()):
            reported = {source: counted[source][-MOST_REPORTED:] for source in counted}
            since = now - data.draw(st.integers(1, 400))
            assert look(others, store, since, now, reported) == truth(counted, since)


MOST_REPORTED = 400
"""All that may be unwritten here."""


def truth(counted: Mapping[str, Sequence[Step]], since: int) -> dict[int, int]:
    tokens: dict[int, int] = {}
    for steps in counted.values():
        for each in steps:
            if each.at >= since:
                tokens[each.at] = tokens.get(each.at, 0) + each.fleet.completion_tokens
    return tokens
