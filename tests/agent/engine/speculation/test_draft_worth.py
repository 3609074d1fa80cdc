"""Drafts are as long as brings the most tokens a second, and there are none where none pay."""

from collections.abc import Sequence
from functools import cache
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.engine.cost.step_cost import StepCost
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.draft_worth import (
    EARNED,
    FIRST_CHUNK,
    FIRST_LOSS,
    MARGIN,
    MOST_LOSS,
    PRIOR,
    PROVEN,
    Confidence,
    DraftAllowance,
    DraftWorth,
    Round,
    Speculation,
)
from arriero.agent.engine.speculation.drafter import Drafter, JointDrafter, Proposal, StepPrices
from arriero.agent.engine.speculation.drafting import Drafting
from arriero.agent.engine.speculation.model_drafter import ModelDrafter
from arriero.agent.engine.speculation.prompt_lookup import LookupDrafter
from tests.agent.engine.fake_engine import FakeEngine, Following, echoing, next_token
from tests.agent.engine.speculation.fake_draft_model import FakeDraftModel

FREE = StepPrices(step=1.0, token=0.0, num_generating=1, most=1.0)


def confident(chance: float) -> Confidence:
    """So often the tokens of drafts were right."""
    confidence = Confidence()
    for number in range(400):
        is_right = int((number + 1) * chance) > int(number * chance)
        confidence.observe(0, 0.5, is_right=is_right)
        confidence.observe(1, 0.5, is_right=is_right)
    return confidence


def worth(chance: float, *, drafting: float, each: float = 0.0) -> DraftWorth:
    """Guesses for n sequences take `drafting + each * n` seconds."""
    made = DraftWorth(confident(chance))
    for count in (1, 2, 4, 8) * 50:
        made.computed(count, drafting + each * count, is_chunk=False)
    return made


def speed(gains: list[float], num_checked: int, prices: StepPrices, drafting: float) -> float:
    """Tokens a second of a round of drafts, and the step."""
    cost = len(gains) * (drafting + num_checked * prices.token)
    return (prices.num_generating + sum(gains)) / (prices.step + cost)


PRICES = st.builds(
    StepPrices,
    step=st.floats(0.01, 1),
    token=st.floats(0, 0.5),
    num_generating=st.integers(1, 8),
    most=st.just(1.0),
)


@given(PRICES, st.floats(0, 1), st.floats(0, 0.5), st.integers(1, 8))
def test_no_other_length_would_be_much_faster(
    prices: StepPrices, chance: float, drafting: float, num_drafted: int
) -> None:
    num_drafted = min(num_drafted, prices.num_generating)
    gains = [num_drafted * chance**place for place in range(1, 9)]
    round, length = Round(prices), 0
    while length < len(gains) and round.pays(gains[length], num_drafted, drafting):
        round.add(gains[length], num_drafted, drafting)
        length += 1
    speeds = [speed(gains[:end], num_drafted, prices, drafting) for end in range(len(gains) + 1)]
    assert speeds[length] >= speeds[0] * (1 - 1e-9)
    assert speeds[length] * MARGIN >= max(speeds) * (1 - 1e-9)
    assert round.tokens / round.seconds == pytest.approx(speeds[length])


def test_a_draft_model_as_dear_as_the_model_saves_nothing() -> None:
    assert worth(0.9, drafting=1.0).saving(1, 8, FREE) == 0
    assert worth(0.9, drafting=0.1).saving(1, 8, FREE) > 0.5


def test_what_is_hardly_ever_right_saves_nothing_however_cheap() -> None:
    checked = StepPrices(step=1.0, token=0.1, num_generating=1, most=1.0)
    assert worth(0.05, drafting=0.001).saving(1, 8, checked) == 0


def test_what_is_always_right_and_free_saves_all_but_one_step_of_nine() -> None:
    assert DraftWorth(confident(1.0)).saving(1, 8, FREE) == pytest.approx(8 / 9, abs=0.02)


def test_it_learns_what_guesses_cost() -> None:
    assert DraftWorth(Confidence()).step(3) == 0
    made = worth(0.5, drafting=0.1, each=0.01)
    assert made.step(8) == pytest.approx(0.18, rel=0.1)
    assert made.step(0) == 0


def test_chunks_are_as_long_as_time_allows() -> None:
    made = DraftWorth(Confidence())
    assert made.chunk_within(0.001, 500) == FIRST_CHUNK
    assert made.chunk_within(0.001, 5) == 5
    for _ in range(50):
        made.computed(64, 0.64, is_chunk=True)
    assert made.chunk_within(0.5, 500) == pytest.approx(50, abs=2)
    assert made.chunk_within(100.0, 500) == 500
    assert made.chunk_within(1e-9, 500) == 1


def test_catching_up_is_worth_what_the_sequence_is_thought_to_go_on_for() -> None:
    made = DraftWorth(Confidence())
    for _ in range(50):
        made.computed(100, 1.0, is_chunk=True)
    assert made.is_worth_catching_up(300, 0, saving=0.1)
    assert not made.is_worth_catching_up(400, 0, saving=0.1)
    assert made.is_worth_catching_up(400, 50, saving=0.1)
    assert not made.is_worth_catching_up(1, 1000, saving=0.0)


# ---- how often a draft model is right is learnt, whatever it believes of itself


SHARES = st.floats(0, 1)


def after(count: int, *, believed: float, is_right: bool, place: int = 0) -> Confidence:
    confidence = Confidence()
    for _ in range(count):
        confidence.observe(place, believed, is_right=is_right)
    return confidence


def test_before_anything_is_known_the_model_is_believed() -> None:
    confidence = Confidence()
    assert confidence.chance(0.96) > confidence.chance(0.55) > confidence.chance(0.05)
    assert confidence.expected(0) == confidence.expected(3) == pytest.approx(PRIOR)


def test_one_that_is_sure_and_wrong_is_not_believed_for_long() -> None:
    confidence = after(40, believed=0.97, is_right=False)
    assert confidence.chance(0.97) < 0.1
    assert confidence.expected(0) < 0.1
    assert confidence.chance(0.55) == Confidence().chance(0.55), "of that kind nothing was seen"


def test_it_changes_its_mind() -> None:
    confidence = after(200, believed=0.5, is_right=False)
    for _ in range(200):
        confidence.observe(0, 0.5, is_right=True)
    assert confidence.chance(0.5) > 0.9


def test_the_first_token_and_those_after_it_are_told_apart() -> None:
    confidence = after(40, believed=0.9, is_right=False)
    for _ in range(40):
        confidence.observe(1, 0.9, is_right=True)
    assert confidence.expected(0) < 0.1 < 0.9 < confidence.expected(1) == confidence.expected(7)


def test_as_much_gain_is_expected_as_came_before() -> None:
    assert Confidence().expected_gain(0) == 0
    assert Confidence().expected_gain(2) == pytest.approx(PRIOR + PRIOR**2)
    assert after(40, believed=0.9, is_right=False).expected_gain(8) < 0.5


def test_it_is_proven_after_enough_was_seen() -> None:
    assert not after(PROVEN - 1, believed=0.5, is_right=True).is_proven
    assert after(PROVEN, believed=0.5, is_right=False).is_proven


@given(st.lists(st.tuples(st.integers(0, 9), SHARES, st.booleans()), max_size=60), SHARES)
def test_chances_are_chances(seen: list[tuple[int, float, bool]], believed: float) -> None:
    confidence = Confidence()
    for place, chance, is_right in seen:
        confidence.observe(place, chance, is_right=is_right)
    assert 0 <= confidence.chance(believed) <= 1
    assert 0 <= confidence.expected(0) <= 1
    assert 0 <= confidence.expected_gain(8) <= 8


# ---- what a drafter loses is bounded, whatever was predicted


SECONDS = st.floats(0.001, 10)


def test_of_steps_of_unknown_length_nothing_is_earned() -> None:
    allowance = DraftAllowance()
    allowance.renew(0.0)
    assert allowance.seconds == 0
    allowance.renew(0.1)
    assert allowance.seconds == pytest.approx((FIRST_LOSS + EARNED) * 0.1)


def test_a_few_steps_may_be_lost_at_first() -> None:
    allowance = DraftAllowance()
    allowance.renew(0.1)
    assert not allowance.is_spent
    allowance.add(-0.1 * (FIRST_LOSS + 2 * EARNED))
    assert allowance.is_spent


def test_afterwards_a_small_part_of_the_time_is_earned() -> None:
    allowance = DraftAllowance()
    for _ in range(100):
        allowance.renew(1.0)
    assert allowance.seconds == pytest.approx(FIRST_LOSS + 100 * EARNED)


def test_a_try_waits_for_what_it_was_to_save_for_but_for_no_more_than_can_be_saved() -> None:
    allowance = DraftAllowance()
    allowance.renew(1.0)
    assert allowance.may_try
    allowance.save_for(FIRST_LOSS + 1)
    assert not allowance.may_try
    allowance.add(1)
    assert allowance.may_try
    allowance.save_for(2 * MOST_LOSS)
    allowance.add(MOST_LOSS)
    assert allowance.may_try
    allowance.add(-1)
    assert not allowance.may_try


@given(SECONDS, st.lists(st.floats(0, 100), max_size=200))
def test_a_drafter_that_only_loses_loses_no_more_than_is_allowed(
    step: float, losses: list[float]
) -> None:
    """A round may cost more than is left, but then none follows before it was earned."""
    allowance = DraftAllowance()
    lost = worst = 0.0
    for loss in losses:
        allowance.renew(step)
        if not allowance.is_spent:
            allowance.add(-loss)
            lost, worst = lost + loss, max(worst, loss)
    assert lost <= (FIRST_LOSS + len(losses) * EARNED) * step + worst + 1e-6


@given(SECONDS, st.lists(st.floats(-10, 10), max_size=50))
def test_what_was_saved_long_ago_does_not_count(step: float, changes: list[float]) -> None:
    allowance = DraftAllowance()
    allowance.renew(step)
    for seconds in changes:
        allowance.add(seconds)
        assert allowance.seconds <= MOST_LOSS * step


# ---- how far ahead it pays to guess


END = 0


def costing(base: float, each: float) -> StepCost:
    """Steps that were seen in all sizes."""
    cost = StepCost()
    for count in [*range(1, 20)] * 20:
        cost.observe(num_generating=count, num_prompt_tokens=0, seconds=base + each * count)
    return cost


def speculating(cost: StepCost, most: int = 4) -> Speculation:
    return Speculation(most=most, cost=cost, end_tokens=frozenset({END}))


def proposal(*chances: float) -> Proposal:
    return Proposal(tuple(range(5, 5 + len(chances))), chances)


LIKELY = proposal(0.75, 0.6, 0.5, 0.42, 0.36)


def lengths(
    speculation: Speculation, *proposals: Proposal, beside: int = 0, num_spare: int = 100
) -> list[int]:
    """Of each proposal, how many tokens are computed, `beside` sequences that have none."""
    drafts = speculation.choose(dict(enumerate(proposals)), len(proposals) + beside, num_spare)
    return [len(drafts.get(slot, ())) for slot in range(len(proposals))]


def test_what_is_proposed_is_drafted_as_far_as_drafts_may_go() -> None:
    speculation = speculating(costing(1.0, 0.0))
    assert speculation.choose({7: LIKELY}, 1, 100) == {7: (5, 6, 7, 8)}


def test_nothing_is_drafted_when_it_is_turned_off() -> None:
    speculation = speculating(costing(1.0, 0.0), most=0)
    assert not speculation.may_pay(1)
    assert lengths(speculation, LIKELY) == [0]


def test_nothing_is_drafted_before_it_is_known_what_a_step_costs() -> None:
    speculation = speculating(StepCost())
    assert not speculation.may_pay(1)
    assert lengths(speculation, LIKELY) == [0]


def test_the_dearer_a_token_the_shorter_the_draft() -> None:
    found = [
        lengths(speculating(costing(1.0 - price, price)), LIKELY)[0]
        for price in (0.0, 0.25, 0.5, 1.0)
    ]
    assert found[0] == 4
    assert found == sorted(found, reverse=True)
    assert 0 < found[2] < found[1] < 4
    assert found[3] == 0


def test_the_less_likely_the_shorter_the_draft() -> None:
    speculation = speculating(costing(0.7, 0.3))
    sure, unsure, unlikely = (
        proposal(*[chance**n for n in range(1, 5)]) for chance in (1, 0.6, 0.2)
    )
    assert lengths(speculation, sure) == [4]
    assert 0 < lengths(speculation, unsure)[0] < 4
    assert lengths(speculation, unlikely) == [0]


def test_no_drafter_needs_to_be_asked_where_not_even_sure_tokens_pay() -> None:
    dear, cheap = speculating(costing(0.0, 1.0)), speculating(costing(0.7, 0.3))
    assert not dear.may_pay(1)
    assert lengths(dear, proposal(1.0)) == [0]
    assert cheap.may_pay(1)
    assert lengths(cheap, proposal(1.0)) == [1]


def test_an_end_token_is_never_drafted() -> None:
    speculation = speculating(costing(1.0, 0.0))
    one = Proposal((3, END, 4), (1.0, 1.0, 1.0))
    assert speculation.choose({0: one}, 1, 100) == {0: (3,)}


def test_what_can_be_spared_goes_to_the_likeliest() -> None:
    speculation = speculating(costing(1.0, 0.0))
    unsure, sure = proposal(0.5, 0.3), proposal(0.9, 0.8, 0.7)
    assert lengths(speculation, unsure, sure, num_spare=3) == [0, 3]
    assert lengths(speculation, unsure, sure, num_spare=4) == [1, 3]
    assert lengths(speculation, unsure, sure, num_spare=0) == [0, 0]
    assert lengths(speculation, unsure, sure, num_spare=-2) == [0, 0]


def test_among_many_a_draft_has_to_gain_more() -> None:
    speculation = speculating(costing(0.8, 0.2))
    assert lengths(speculation, LIKELY) == [4]
    assert lengths(speculation, LIKELY, beside=4) == [1]


# ---- what comes of it, over a whole run


def run(
    following: Following,
    max_draft: int,
    *,
    slots: int,
    base: float,
    each: float,
    unforeseen: float = 0.0,
    draft_model: FakeDraftModel | None = None,
) -> tuple[float, int]:
    """The seconds that some sequences take, by noisy prices, and how many tokens were drafted.

    A step with drafts takes `unforeseen` seconds more than its size says.
    """
    draw, noise = Random(2), Random(1)
    engine = FakeEngine(
        slots=slots,
        context_size=200,
        batch_size=64,
        max_draft=max_draft,
        following=following,
        block=64,
    )
    scheduler = Scheduler(
        slots=slots,
        context_size=200,
        max_stall=100.0,
        end_tokens=frozenset(),
        capacity=engine.capacity,
    )
    for number in range(2 * slots):
        new = NewSequence(
            id=SequenceId(number),
            prompt=Prompt(tuple(draw.randint(1, 9) for _ in range(20))),
            max_tokens=150,
            sampling=Sampling(seed=0),
        )
        scheduler.add(new)
    total = 0.0
    drafter: Drafter = LookupDrafter(scheduler.longest)
    if draft_model is not None:
        drafter = JointDrafter(drafter, ModelDrafter(draft_model, clock=draft_model.clock))
    drafting = Drafting(drafter)
    while True:
        proposals = drafting.propose(scheduler.draft_requests(), scheduler.draft_prices())
        step = scheduler.plan(proposals)
        if step is None:
            break
        outcome = engine.execute(step)
        seconds = base + each * step.size + unforeseen * bool(step.num_drafted)
        seconds *= noise.uniform(0.95, 1.05)
        total += seconds
        drafting.observe(step, outcome, seconds, scheduler.commit(step, outcome, seconds))
    total += draft_model.now if draft_model is not None else 0.0
    return total, scheduler.statistics().drafted_tokens


@pytest.mark.parametrize(
    ("slots", "base", "each", "least"),
    [
        (1, 1.0, 0.0, 1.8),
        (1, 0.8, 0.2, 1.3),
        (4, 0.8, 0.2, 1.05),
        (1, 0.2, 0.8, 0.98),
        (1, 0.0, 1.0, 0.98),
        (4, 0.0, 1.0, 0.98),
    ],
)
def test_it_gains_what_there_is_to_gain_and_costs_next_to_nothing(
    slots: int, base: float, each: float, least: float
) -> None:
    plain, _ = run(echoing, 0, slots=slots, base=base, each=each)
    drafted, _ = run(echoing, 8, slots=slots, base=base, each=each)
    assert plain / drafted > least


def test_where_nothing_repeats_next_to_nothing_is_drafted() -> None:
    assert run(next_token, 8, slots=2, base=1.0, each=0.1)[1] <= 3, "of 600 tokens"


def seldom_echoing(history: Sequence[int]) -> int:
    """One token in three is what followed when the last two were said before."""
    surprise = next_token(history)
    return echoing(history) if surprise % 3 == 0 else 1 + surprise % 7


@cache
def seconds_without_drafts(slots: int) -> float:
    return run(seldom_echoing, 0, slots=slots, base=0.9, each=0.1)[0]


@pytest.mark.parametrize(
    ("slots", "guessing", "unforeseen"),
    [
        (1, 0.001, 0.0),
        (1, 0.001, 1.0),
        (1, 0.5, 0.0),
        (1, 0.5, 1.0),
        (8, 0.001, 1.0),
        (8, 0.5, 0.0),
    ],
)
def test_drafts_cost_less_than_three_percent_whatever_they_were_thought_to_cost(
    slots: int, guessing: float, unforeseen: float
) -> None:
    """With finding that out, by lookup that is seldom right and a model that never is."""
    plain = seconds_without_drafts(slots)
    model = FakeDraftModel(num_slots=slots, guess=lambda tokens: 40, seconds=guessing)
    drafted, num_drafted = run(
        seldom_echoing,
        8,
        slots=slots,
        base=0.9,
        each=0.1,
        unforeseen=unforeseen,
        draft_model=model,
    )
    assert num_drafted > 0
    assert model.calls
    assert plain / drafted > 0.97
