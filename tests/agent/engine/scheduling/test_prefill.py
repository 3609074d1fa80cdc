"""Which prompts are read, and how much of them. More of it is in the planner's tests."""

from collections.abc import Callable
from itertools import count
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.cost.step_cost import OVERDRAFT
from arriero.agent.engine.kv_cache.prefix_tree import Found
from arriero.agent.engine.prompt import Media
from arriero.agent.engine.scheduling.prefill import (
    FIRST_CHUNK,
    MIN_CHUNK,
    TILE,
    FairOrder,
    Prefill,
    Prompts,
    batch_share,
    split_fairly,
    tokens_in_time,
    urgent_first,
    whole_tiles,
)
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.scheduling.step_budget import MARGIN, PATIENCE
from arriero.agent.engine.sequence import SequenceId
from arriero.agent.engine.step import Step
from tests.agent.engine.scheduling.simulated_machine import AMX, PLAIN, Costs
from tests.agent.engine.scheduling.simulated_machine import run as simulate
from tests.agent.engine.scheduling.test_planner import begin_media
from tests.agent.engine.setting import Setting

MAX_STALL = 0.5


def begun(setting: Setting) -> dict[int, Progress]:
    """All who wait begin, with nothing computed; by slot."""
    for one in list(setting.queue.waiting):
        slot = setting.queue.begin(one)
        setting.memory.enter(slot, one.history.keys, setting.memory.find(one.history.keys, 0))
    return setting.queue.running


def chosen(setting: Setting) -> Prompts:
    """Of all who wait, where nobody generates."""
    return setting.prefill.choose(begun(setting), 0)


def ids(prompts: Prompts) -> list[int]:
    return [int(one.id) for one in prompts.readers]


def test_nobody_reads() -> None:
    setting = Setting()
    prompts = chosen(setting)
    assert (prompts.readers, prompts.num_wanted, setting.prefill.most(prompts)) == ((), 0, 0)
    assert not (prompts.has_media or prompts.is_whole)
    assert setting.prefill.share(prompts, 5, num_others=0) == {}


def test_prompts_of_one_adapter_are_read_together() -> None:
    setting = Setting(slots=3)
    setting.add(1, *range(9), adapter="a")
    setting.add(2, *range(20, 24))
    setting.add(3, *range(30, 36))
    prompts = chosen(setting)
    assert ids(prompts) == [2, 3], "of the shortest prompt's adapter"
    assert (prompts.num_wanted, sum(prompts.all_wanted.values())) == (10, 19)


def test_others_come_before_batch_requests() -> None:
    setting = Setting(slots=2)
    setting.add(1, 5, priority=-1)
    setting.add(2, *range(9))
    assert ids(chosen(setting)) == [2]


def test_a_chunk_ends_where_others_wait_for_it() -> None:
    setting = Setting()
    one = setting.add(1, *range(9))
    (slot,) = begun(setting)
    setting.memory.fetch(Found(4, slot))
    prompts = setting.prefill.choose(setting.queue.running, 0)
    assert prompts.wanted == {one.id: 4}


def test_tokens_and_media_are_read_apart() -> None:
    setting = Setting(slots=3, num_cells=30)
    begin_media(setting, 1, Media(b"picture", 5), (3,))
    begin_media(setting, 2, Media(b"whole", 12, is_whole=True), (3,))
    setting.add(3, 5, 6)
    prompts = chosen(setting)
    assert (ids(prompts), prompts.has_media, prompts.is_whole) == ([3], False, False)
    setting.queue.leave(setting.queue.slot_of(prompts.readers[0].id) or 0)
    prompts = chosen(setting)
    assert (ids(prompts), prompts.has_media, prompts.is_whole) == ([1], True, False)


def test_a_picture_as_a_whole_is_read_at_once_or_not_at_all() -> None:
    setting = Setting(num_cells=30)
    begin_media(setting, 1, Media(b"whole", 12, is_whole=True), (3,))
    prompts = chosen(setting)
    assert prompts.is_whole
    assert setting.prefill.most(prompts) == 12
    assert setting.prefill.share(prompts, 11, num_others=0) == {}
    assert setting.prefill.share(prompts, 12, num_others=0) == prompts.wanted


def test_there_is_room_for_others_first() -> None:
    setting = Setting(num_cells=30)
    one = setting.add(1, *range(40, 70))
    prompts = setting.prefill.choose(begun(setting), 4)
    assert setting.prefill.most(prompts) == 26
    assert setting.prefill.share(prompts, 26 - 2, num_others=4 + 2) == {one.id: 24}
    assert setting.prefill.share(prompts, 0 - 2, num_others=4 + 2) == {}


# ---- batch requests


def test_others_prompts_are_read_first() -> None:
    batch, other = Setting().add(1, 5, priority=-1), Setting().add(2, 5)
    wants = {batch.id: 3, other.id: 4}
    assert urgent_first([batch, other], wants) == {other.id: 4}
    assert urgent_first([batch, other], {batch.id: 3, other.id: 0})[batch.id] == 3
    assert urgent_first([batch], {batch.id: 3}) == {batch.id: 3}


def test_less_is_read_of_batch_prompts_while_others_are_here() -> None:
    setting = Setting(batch_size=512, num_cells=1000)
    setting.add(1, *[5] * 60, priority=-1)
    prompts = chosen(setting)
    alone = setting.prefill.most(prompts)
    setting.state.background.look([setting.add(2, 6)], 0.0)
    assert setting.prefill.most(prompts) == batch_share(alone) < alone


def test_of_batch_prompts_whole_tiles_are_read() -> None:
    assert [batch_share(most) for most in (512, 100, 9)] == [128, TILE, 9]


# ---- how many tokens fit the time


def in_time(setting: Setting, num_generating: int, num_pending: int) -> int:
    batch_size = setting.state.capacity.batch_size
    return tokens_in_time(setting.budget, batch_size, num_generating, num_pending)


def q06(num_generating: int, num_prompt_tokens: int) -> float:
    """What a step of a model of 0.6 billion weights was measured to take on two cores."""
    if not num_prompt_tokens:
        return 0.024 + 0.0095 * num_generating
    if not num_generating:
        return 0.04 + 0.0052 * num_prompt_tokens
    return q06(num_generating, 0) + 0.0056 * num_prompt_tokens


def run(
    setting: Setting, num_generating: int, num_pending: int, noise: float = 1.0
) -> tuple[int, float]:
    count = min(num_pending, in_time(setting, num_generating, num_pending)) if num_pending else 0
    seconds = q06(num_generating, count) * noise
    setting.budget.cost.observe(
        num_generating=num_generating, num_prompt_tokens=count, seconds=seconds
    )
    return count, seconds


def test_the_first_prompt_gets_little_and_then_what_patience_allows() -> None:
    setting = Setting(most_mixed=0, batch_size=2048)
    assert run(setting, 0, 5000)[0] == FIRST_CHUNK
    steps = [run(setting, 0, 5000) for _ in range(5)]
    assert all(0.8 * PATIENCE < seconds < PATIENCE for _, seconds in steps)


def test_no_stream_waits_longer_than_promised() -> None:
    random = Random(3)
    setting = Setting(most_mixed=0, batch_size=2048)
    run(setting, 0, 500)
    longest = 0.0
    for step in range(400):
        num_generating = random.randint(1, 8)
        noise = random.uniform(0.95, 1.05)
        if step % 7:
            count = in_time(setting, num_generating, 3000)
            seconds = q06(0, count) * noise
            setting.budget.cost.observe(num_generating=0, num_prompt_tokens=count, seconds=seconds)
            longest = max(longest, seconds)
        else:
            run(setting, num_generating, 0, noise)
    assert 0.8 * MAX_STALL < longest < MAX_STALL


def test_a_busy_machine_for_a_moment_does_not_shrink_what_is_read_for_long() -> None:
    setting = Setting(most_mixed=0, batch_size=2048)
    for _ in range(20):
        run(setting, 0, 5000)
        run(setting, 7, 0)
    usual = in_time(setting, 7, 5000)
    for _ in range(2):
        run(setting, 7, 0, 5)
        run(setting, 0, 5000, 5)
    assert in_time(setting, 7, 5000) > usual / 2


def test_prompts_advance_however_slow_the_steps_are() -> None:
    setting = Setting(most_mixed=0, batch_size=2048, max_stall=0.01)
    run(setting, 0, 500)
    run(setting, 4, 0)
    assert in_time(setting, 4, 602) == MIN_CHUNK
    assert in_time(setting, 4, 2) == 2


@pytest.mark.parametrize("num_generating", [0, 4])
def test_never_more_than_the_batch_holds(num_generating: int) -> None:
    setting = Setting(most_mixed=0, batch_size=20, max_stall=1e9)
    for _ in range(20):
        run(setting, num_generating, 500)
    assert in_time(setting, num_generating, 500) <= 20 - num_generating


def test_drafts_get_the_rest_of_the_batch_or_a_part_of_the_prompts_room() -> None:
    setting = Setting(most_mixed=0, batch_size=100)
    assert setting.prefill.most_drafted(4, 0, 0) == 96
    assert setting.prefill.most_drafted(4, 300, 40) == 10
    assert setting.prefill.most_drafted(4, 300, MIN_CHUNK + 1) == 1
    assert setting.prefill.most_drafted(4, 300, MIN_CHUNK) == 0


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


# ---- beside streams, or alone


def mixing(most_mixed: int) -> Prefill:
    return Setting(most_mixed=most_mixed).prefill


@pytest.mark.parametrize(
    ("num_generating", "num_prompt_tokens", "is_alone"),
    [
        (3, 7, False),
        (0, 50, False),
        (50, 0, False),
        (3, 8, True),
        (1, 20, True),
    ],
)
def test_little_is_read_beside_and_much_alone(
    num_generating: int, num_prompt_tokens: int, is_alone: bool
) -> None:
    assert mixing(10).is_alone(num_generating, num_prompt_tokens) == is_alone


@pytest.mark.parametrize(
    ("most", "num_wanted", "count"),
    [(72, 1210, 58), (72, 1152, 64), (72, 66, 72), (150, 1152, 128), (63, 500, 63), (64, 65, 1)],
)
def test_what_fills_no_tile_is_read_first(most: int, num_wanted: int, count: int) -> None:
    assert whole_tiles(most, num_wanted, tile=64) == count


@given(most=st.integers(1, 600), num_wanted=st.integers(1, 5000))
def test_every_chunk_is_some_of_the_prompt_and_the_last_ones_fill_tiles(
    most: int, num_wanted: int
) -> None:
    chunks = list[int]()
    while num_wanted:
        chunks.append(min(num_wanted, whole_tiles(most, num_wanted, tile=64)))
        assert 0 < chunks[-1] <= most
        num_wanted -= chunks[-1]
    assert most < 64 or all(chunk % 64 == 0 for chunk in chunks[1:])


def test_where_mixing_gains_nothing_prompts_are_read_alone() -> None:
    prefill = Setting(most_mixed=10, num_streams=3).prefill
    alone = [prefill.is_alone(*each) for each in ((1, 1), (0, 5), (3, 0))]
    assert alone == [True, False, False]


def test_media_are_read_alone() -> None:
    assert mixing(10).is_alone(1, 1, is_media=True)
    assert not mixing(10).is_alone(0, 1, is_media=True), "nobody is there beside"


# ---- the order of prompts


@pytest.mark.parametrize(
    ("wants", "budget", "shares"),
    [
        ([], 10, []),
        ([5], 10, [5]),
        ([50, 50], 10, [5, 5]),
        ([50, 2, 50], 12, [5, 2, 5]),
        ([3, 50], 10, [3, 7]),
        ([1, 1, 1, 1], 2, [0.5, 0.5, 0.5, 0.5]),
    ],
)
def test_examples(wants: list[float], budget: float, shares: list[float]) -> None:
    assert split_fairly(wants, budget) == shares


@given(
    wants=st.lists(st.floats(0, 100), max_size=20),
    budget=st.floats(0, 500),
)
def test_fair(wants: list[float], budget: float) -> None:
    shares = split_fairly(wants, budget)
    assert sum(shares) == pytest.approx(min(budget, sum(wants)), abs=1e-9)
    assert all(0 <= share <= want for share, want in zip(shares, wants, strict=True))
    # Who got less than wanted is behind nobody else.
    behind = [s for s, want in zip(shares, wants, strict=True) if s < want]
    assert not behind or min(behind) >= max(shares) - 1e-9


Arrivals = list[list[int]]
"""Lengths of the prompts that arrive before each step."""

ARRIVALS = st.lists(st.lists(st.integers(1, 60), max_size=4), min_size=1, max_size=12)
BUDGETS = st.lists(st.integers(0, 80), min_size=1, max_size=12)


def share(order: FairOrder, wants: dict[int, int], budget: int) -> dict[int, int]:
    return dict(order.share({SequenceId(id): want for id, want in wants.items()}, budget))


def at_one_pace(wants: dict[int, float], budget: int) -> dict[int, float]:
    return dict(zip(wants, split_fairly(list(wants.values()), budget), strict=True))


def steps_until_through(
    arrivals: Arrivals,
    budgets: list[int],
    read: Callable[[dict[int, float], int], dict[int, float]],
) -> dict[int, int]:
    """By prompt; budgets repeat, the last one generously."""
    left: dict[int, float] = {}
    through: dict[int, int] = {}
    num_arrived = step = 0
    while step < len(arrivals) or left:
        for length in arrivals[step] if step < len(arrivals) else ():
            left[num_arrived] = length
            num_arrived += 1
        budget = budgets[step % len(budgets)] if step < 100 else 1000
        for id, part in read(left, budget).items():
            left[id] -= part
        for id in [id for id, rest in left.items() if rest < 1e-4]:
            del left[id]
            through[id] = step
        step += 1
    return through


def test_equal_prompts_come_one_after_the_other() -> None:
    order = FairOrder()
    assert share(order, {1: 66, 2: 66, 3: 66}, 70) == {1: 66, 2: 4}
    assert share(order, {2: 62, 3: 66}, 70) == {2: 62, 3: 8}
    assert share(order, {3: 58}, 70) == {3: 58}


def test_a_short_prompt_overtakes_a_long_one() -> None:
    order = FairOrder()
    assert share(order, {1: 500}, 70) == {1: 70}
    assert share(order, {1: 430, 2: 20}, 70) == {2: 20, 1: 50}


def test_a_long_prompt_does_not_wait_for_ever_behind_short_ones() -> None:
    order = FairOrder()
    left, step = 500, 0
    while left and step < 100:
        step += 1
        shares = share(order, {0: left, step: 20}, 40)
        left -= shares.get(0, 0)
        assert shares.get(step) == 20 or not left
    assert step == 25


def test_nothing_is_shared_out_where_there_is_no_budget_and_the_order_stays() -> None:
    order = FairOrder()
    assert share(order, {1: 50, 2: 50}, 60) == {1: 50, 2: 10}
    assert share(order, {2: 40, 3: 39}, 0) == {}
    assert share(order, {2: 40, 3: 39}, 50) == {2: 40, 3: 10}


@given(arrivals=ARRIVALS, budgets=BUDGETS)
def test_nobody_is_through_later_than_at_one_pace(arrivals: Arrivals, budgets: list[int]) -> None:
    order = FairOrder()

    def in_order(left: dict[int, float], budget: int) -> dict[int, float]:
        wants = {id: int(rest) for id, rest in left.items()}
        shares = share(order, wants, budget)
        order.check_integrity()
        assert sum(shares.values()) == min(budget, sum(wants.values()))
        assert all(0 < part <= wants[id] for id, part in shares.items())
        return {id: float(part) for id, part in shares.items()}

    fair = steps_until_through(arrivals, budgets, at_one_pace)
    ours = steps_until_through(arrivals, budgets, in_order)
    assert ours.keys() == fair.keys()
    assert all(ours[id] <= fair[id] for id in fair)
    share(order, {}, 100)
    assert len(order) == 0


@given(data=st.data())
def test_what_is_remembered_ends_with_the_reading(data: st.DataObject) -> None:
    """Also where prompts are cancelled, and where steps were not computed."""
    order = FairOrder()
    left: dict[int, int] = {}
    for arrival in range(data.draw(st.integers(1, 30))):
        left[arrival] = data.draw(st.integers(1, 60))
        shares = share(order, left, data.draw(st.integers(0, 60)))
        if data.draw(st.booleans()):
            left = {id: rest - shares.get(id, 0) for id, rest in left.items()}
            left = {id: rest for id, rest in left.items() if rest}
        for id in data.draw(st.sets(st.sampled_from(sorted(left)))) if left else ():
            del left[id]
        order.check_integrity()
    share(order, {}, 0)
    assert len(order) == 0


@pytest.mark.parametrize("budget", [0, 10])
def test_without_prompts(budget: int) -> None:
    assert share(FairOrder(), {}, budget) == {}
