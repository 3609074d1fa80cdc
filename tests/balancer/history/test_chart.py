"""Columns over times."""

from dataclasses import replace

import pytest

from arriero.balancer.history.chart import chart, step_for
from arriero.balancer.history.series import Levels, Selection, Step
from arriero.balancer.history.sums import Sums, histogram
from tests.balancer.history.builders import step


def of(*steps: Step, width: int = 1) -> list[Selection]:
    return [Selection(steps, width)]


def test_the_fleet() -> None:
    busy = Sums(
        completion_tokens=30,
        prompt_tokens=20,
        cached_tokens=10,
        ended={"stop": 2, "engine_failed": 1},
        first_token=histogram([0.5] * 10),
        between_tokens=histogram([0.01] * 99 + [1.0]),
    )
    found = chart(of(replace(step(100, queue=4), fleet=busy), step(101, tokens=0)), 1, None)
    assert (found.step, found.times) == (1, [100, 101])
    assert found.levels == [Levels(queue_depth=4, queue_peak=4), Levels()]
    [line] = found.lines
    assert line.name is None
    assert line.tokens_per_second == [30, 0]
    assert line.prompt_tokens_per_second == [20, 0]
    assert line.cached_tokens_per_second == [10, 0]
    assert line.ended == {"stop": [2, 0], "engine_failed": [1, 0]}
    assert line.first_token_ms["p50"] == [pytest.approx(500, rel=0.25), None]
    assert line.between_tokens_ms["p50"] == [pytest.approx(10, rel=0.25), None]
    assert line.between_tokens_ms["p99"] == [pytest.approx(10, rel=0.25), None]


def test_rates_are_over_the_time_that_was_seen() -> None:
    found = chart(of(step(100, 10), step(105, 20), step(119, 6, seconds=3)), 10, None)
    assert found.times == [100, 110]
    assert found.lines[0].tokens_per_second == [15, 2]


def test_lines_by_agent_have_a_value_for_each_time() -> None:
    found = chart(of(step(0, ana=1), step(1, luz=2), step(2)), 1, "agent")
    assert {line.name: line.tokens_per_second for line in found.lines} == {
        "ana": [1, 0, 0],
        "luz": [0, 2, 0],
    }
    assert chart(of(step(0, ana=1)), 1, "model").lines == []


def test_one_agent_alone() -> None:
    steps = of(step(0, ana=1), step(1, luz=2))
    [line] = chart(steps, 1, "agent", "luz").lines
    assert (line.name, line.tokens_per_second) == ("luz", [0, 2])
    unknown = chart(steps, 1, "agent", "eva")
    assert (unknown.times, unknown.lines) == ([0, 1], [])


def test_minutes_are_not_cut() -> None:
    minutes = of(step(0, 60, seconds=60), step(60, 120, seconds=60), step(120, 5), width=60)
    found = chart(minutes, 1, None)
    assert (found.step, found.times) == (60, [0, 60, 120])
    assert found.lines[0].tokens_per_second == [1, 2, 5]
    assert chart(minutes, 90, None).step == 120


def test_what_several_balancers_counted_is_one_line() -> None:
    here = of(step(100, 10, queue=2, ana=10), step(101, 20))
    there = of(step(101, 5, queue=3, ana=5), step(102, 7))
    found = chart([*here, *there], 1, "agent")
    assert found.times == [100, 101, 102]
    assert [each.queue_depth for each in found.levels] == [2, 3, 0]
    assert [line.tokens_per_second for line in found.lines] == [[10, 5, 0]]
    fleet = chart([*there, *here], 1, None).lines[0]
    assert fleet.tokens_per_second == [10, 25, 7], "in the order of times, whoever has the first"


def test_what_is_wider_at_one_of_them_is_for_all() -> None:
    minutes = of(step(0, 60, seconds=60), width=60)
    seconds = of(step(30, 120), step(31, 120))
    found = chart([*minutes, *seconds], 1, None)
    assert (found.step, found.times) == (60, [0])
    assert found.lines[0].tokens_per_second == [5], "over the whole minute"


def test_nothing_is_an_empty_chart() -> None:
    for selections in (of(), []):
        found = chart(selections, 5, None)
        assert (found.times, found.lines[0].tokens_per_second) == ([], [])


@pytest.mark.parametrize(
    ("seconds", "step"), [(1, 1), (360, 1), (361, 2), (3600, 10), (86400, 300), (10**9, 3600)]
)
def test_a_step_for_a_time(seconds: int, step: int) -> None:
    assert step_for(seconds, 360) == step
