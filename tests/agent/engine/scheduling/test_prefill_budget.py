"""Steps that end in time."""

from collections.abc import Callable
from itertools import count
from random import Random

import pytest

from arriero.agent.engine.cost.prefill_cost import OVERDRAFT
from arriero.agent.engine.scheduling.prefill_budget import (
    FIRST_CHUNK,
    MARGIN,
    MIN_CHUNK,
    PATIENCE,
    PrefillBudget,
)
from arriero.agent.engine.step import Step
from tests.agent.engine.scheduling.simulated_machine import AMX, PLAIN, Costs
from tests.agent.engine.scheduling.simulated_machine import run as simulate

MAX_STALL = 0.5


def q06(num_generating: int, num_prompt_tokens: int) -> float:
    """What a step of a model of 0.6 billion weights was measured to take on two cores."""
    if not num_prompt_tokens:
        return 0.024 + 0.0095 * num_generating
    if not num_generating:
        return 0.04 + 0.0052 * num_prompt_tokens
    return q06(num_generating, 0) + 0.0056 * num_prompt_tokens


def run(
    budget: PrefillBudget, num_generating: int, num_pending: int, noise: float = 1.0
) -> tuple[int, float]:
    count = (
        min(num_pending, budget.prompt_tokens(num_generating, num_pending)) if num_pending else 0
    )
    seconds = q06(num_generating, count) * noise
    budget.cost.observe(num_generating=num_generating, num_prompt_tokens=count, seconds=seconds)
    return count, seconds


def test_the_first_prompt_gets_little_and_then_what_patience_allows() -> None:
    budget = PrefillBudget(batch_size=2048, max_stall=MAX_STALL)
    assert run(budget, 0, 5000)[0] == FIRST_CHUNK
    steps = [run(budget, 0, 5000) for _ in range(5)]
    assert all(0.8 * PATIENCE < seconds < PATIENCE for _, seconds in steps)


def test_no_stream_waits_longer_than_promised() -> None:
    random = Random(3)
    budget = PrefillBudget(batch_size=2048, max_stall=MAX_STALL)
    run(budget, 0, 500)
    longest = 0.0
    for step in range(400):
        num_generating = random.randint(1, 8)
        noise = random.uniform(0.95, 1.05)
        if step % 7:
            count = budget.prompt_tokens(num_generating, 3000)
            seconds = q06(0, count) * noise
            budget.cost.observe(num_generating=0, num_prompt_tokens=count, seconds=seconds)
            longest = max(longest, seconds)
        else:
            run(budget, num_generating, 0, noise)
    assert 0.8 * MAX_STALL < longest < MAX_STALL


def test_a_busy_machine_for_a_moment_does_not_shrink_what_is_read_for_long() -> None:
    budget = PrefillBudget(batch_size=2048, max_stall=MAX_STALL)
    for _ in range(20):
        run(budget, 0, 5000)
        run(budget, 7, 0)
    usual = budget.prompt_tokens(7, 5000)
    for _ in range(2):
        run(budget, 7, 0, 5)
        run(budget, 0, 5000, 5)
    assert budget.prompt_tokens(7, 5000) > usual / 2


def test_prompts_advance_however_slow_the_steps_are() -> None:
    budget = PrefillBudget(batch_size=2048, max_stall=0.01)
    run(budget, 0, 500)
    run(budget, 4, 0)
    assert budget.prompt_tokens(4, 602) == MIN_CHUNK
    assert budget.prompt_tokens(4, 2) == 2


@pytest.mark.parametrize("num_generating", [0, 4])
def test_never_more_than_the_batch_holds(num_generating: int) -> None:
    budget = PrefillBudget(batch_size=20, max_stall=1e9)
    for _ in range(20):
        run(budget, num_generating, 500)
    assert budget.prompt_tokens(num_generating, 500) <= 20 - num_generating


def test_drafts_get_the_rest_of_the_batch_or_a_part_of_the_prompts_room() -> None:
    budget = PrefillBudget(batch_size=100, max_stall=MAX_STALL)
    assert budget.drafted_tokens(4, 0, 0) == 96
    assert budget.drafted_tokens(4, 300, 40) == 10
    assert budget.drafted_tokens(4, 300, MIN_CHUNK + 1) == 1
    assert budget.drafted_tokens(4, 300, MIN_CHUNK) == 0


# ---- the newcomer: a long prompt beside short streams, on an agent that was just started


def slow_at_first(costs: Costs, num_steps: int, factor: float) -> Callable[[Step], float]:
    numbers = count()
    return lambda step: costs(step) * (factor if next(numbers) < num_steps else 1)


@pytest.mark.parametrize("costs", [PLAIN, AMX], ids=["plain", "fast kernels"])
@pytest.mark.parametrize(
    ("num_slow", "factor"), [(0, 1), (1, 8), (3, 3)], ids=["even", "a slow start", "slow steps"]
)
def test_a_newcomer_waits_little_longer_than_alone_and_streams_no_longer_than_promised(
    costs: Costs, num_slow: int, factor: float
) -> None:
    seen = simulate(slow_at_first(costs, num_slow, factor))
    own_step = costs.fixed + 7 * costs.per_stream
    assert seen.longest_gap < MAX_STALL * MARGIN * OVERDRAFT + own_step + 0.001
    assert seen.waited < 1.5 * costs.reading_alone(1200)


def test_a_newcomer_on_a_machine_that_just_became_faster_stalls_nobody() -> None:
    """What generating is thought to take is out of date then."""
    seen = simulate(slow_at_first(PLAIN, 12, 2.4))
    own_step = PLAIN.fixed + 7 * PLAIN.per_stream
    assert seen.longest_gap < 1.3 * (MAX_STALL + own_step)
    assert seen.waited < 1.7 * PLAIN.reading_alone(1200)


def test_on_a_machine_that_is_slower_the_promise_to_streams_comes_first() -> None:
    slow = Costs(
        fixed=0.08, per_stream=0.009, per_token=0.0057, per_pair=4e-6, per_untiled_pair=1e-5
    )
    seen = simulate(slow)
    assert seen.longest_gap < MAX_STALL * MARGIN * OVERDRAFT + slow.fixed + 7 * slow.per_stream
    assert seen.waited < 2 * slow.reading_alone(1200)


def test_streams_are_copied_whole_unless_somebody_would_stall() -> None:
    budget = PrefillBudget(batch_size=64, max_stall=MAX_STALL, cell_bytes=2**20)
    assert budget.most_whole(0) == float("inf")
    assert 100 < budget.most_whole(1) < 1000


@pytest.mark.parametrize(("seconds", "steps"), [(0.0001, [16]), (0.005, [4, 5]), (0.2, [1])])
def test_where_a_round_of_adapters_is_short_a_turn_has_several_steps(
    seconds: float, steps: list[int]
) -> None:
    budget = PrefillBudget(batch_size=64, max_stall=0.5)
    assert budget.steps_of_a_turn([1, 1, 1, 1]) == 1, "what a step takes is not known"
    for _ in range(20):
        budget.cost.observe(num_generating=1, num_prompt_tokens=0, seconds=seconds)
    assert budget.steps_of_a_turn([1, 1, 1, 1]) in steps


def test_turns_are_longer_where_a_change_of_the_adapter_is_dear() -> None:
    budget = PrefillBudget(batch_size=64, max_stall=0.5)

    def observe(seconds: float, *, changes_adapter: bool) -> None:
        budget.cost.observe(
            num_generating=1,
            num_prompt_tokens=0,
            seconds=seconds,
            changes_adapter=changes_adapter,
        )

    observe(0.010, changes_adapter=True)
    assert budget.steps_of_a_turn([1] * 8) == 2, "then it is seen what a step takes without"
    for _ in range(20):
        observe(0.002, changes_adapter=False)
        observe(0.010, changes_adapter=True)
    assert budget.steps_of_a_turn([1] * 8) == 2, "8 changes take 64 of 100 ms"
    assert budget.steps_of_a_turn([1] * 4) in (8, 9)
    assert budget.steps_of_a_turn([1] * 30) == 1
