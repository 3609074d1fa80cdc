"""The cheapest free agent, unless waiting for a full one costs less."""

from dataclasses import replace

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.routing.policies.cost import LEAST_WAIT, Best, seconds, waiting_seconds
from arriero.balancer.fleet.routing.policy import Choice, Load
from arriero.balancer.fleet.routing.rates import Speed

A, B = LinkId(1), LinkId(2)
LONG = 30.0


def load(*, running: int = 0, slots: int = 4) -> Load:
    return Load(running=running, slots=slots, has_free_slot=running < slots)


def test_without_a_free_one_there_is_no_choice() -> None:
    best = Best()
    assert best.choice(LONG) is None
    best.consider(A, load(running=4), 1.0, 1.0, None)
    assert best.choice(LONG) is None


@pytest.mark.parametrize(("cost", "running", "link"), [(2.0, 3, A), (0.5, 3, B), (1.0, 0, B)])
def test_the_cheaper_and_of_like_ones_the_idler(cost: float, running: int, link: LinkId) -> None:
    best = Best()
    best.consider(A, load(running=1), 1.0, 0.0, None)
    best.consider(B, load(running=running), cost, 0.0, None)
    assert best.choice(LONG) == Choice(link)


@pytest.mark.parametrize(
    ("wait", "longest", "expected"),
    [
        (2.0, LONG, Choice(B, 3.0)),  # the request waits as long as that saves
        (2.0, 1.5, Choice(B, 1.5)),
        (2.0, 0.0, Choice(A)),
        (4.0, LONG, Choice(A)),
        (2.0, LEAST_WAIT / 2, Choice(A)),
    ],
)
def test_a_full_one_that_is_worth_waiting_for(
    wait: float, longest: float, expected: Choice
) -> None:
    best = Best()
    best.consider(A, load(), 4.0, 0.0, None)
    best.consider(B, load(running=4), 1.0, wait, None)
    assert best.choice(longest) == expected


SPEED = Speed(prefill=100.0, token_seconds=0.1, running=1.0, slot_seconds=8.0)
IDLE = Load(running=0, slots=4, has_free_slot=True)


def test_an_idle_agent_costs_prompt_and_answer() -> None:
    assert seconds(IDLE, SPEED, uncached=200, answer=10) == pytest.approx(2 + 1)
    assert seconds(IDLE, SPEED, uncached=200, answer=0) == pytest.approx(2)


def test_prompts_before_it_are_computed_first() -> None:
    busy = replace(IDLE, backlog=300.0)
    assert seconds(busy, SPEED, uncached=200, answer=0) == pytest.approx(5)


def test_those_who_run_besides_wait_for_the_prompt() -> None:
    busy = replace(IDLE, running=2)
    assert seconds(busy, SPEED, uncached=200, answer=0) == pytest.approx(2 + 2 * 2)


def test_each_more_makes_the_others_slower() -> None:
    costs = [seconds(replace(IDLE, running=n), SPEED, uncached=0, answer=10) for n in range(4)]
    own = [10 * SPEED.seconds_per_token(n + 1) for n in range(4)]
    assert costs == sorted(set(costs))
    assert costs[0] == pytest.approx(own[0])
    assert costs[3] > own[3]


def test_a_full_cache_loses_what_may_be_asked_for_again() -> None:
    full = replace(IDLE, is_cache_full=True)
    assert seconds(full, SPEED, uncached=200, answer=0) == pytest.approx(2)
    again = replace(SPEED, reuse=0.5)
    assert seconds(full, again, uncached=200, answer=0) == pytest.approx(2 + 1)


def test_a_slot_comes_sooner_where_there_are_many_and_few_wait() -> None:
    assert waiting_seconds(IDLE, SPEED) == 0
    full = Load(running=4, slots=4, has_free_slot=False)
    assert waiting_seconds(full, SPEED) == pytest.approx(2)
    assert waiting_seconds(replace(full, waiting=2), SPEED) == pytest.approx(6)
    cut = replace(full, slots=0)
    assert waiting_seconds(cut, SPEED) == pytest.approx(8)


def test_who_waits_runs_beside_all_but_one_and_behind_no_prompt() -> None:
    full = Load(running=4, slots=4, has_free_slot=False, backlog=1000.0)
    assert seconds(full, SPEED, uncached=100, answer=0) == pytest.approx(1 + 3 * 1)
