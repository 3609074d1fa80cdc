"""How far ahead it pays to guess."""

from random import Random

import pytest

from arriero.agent.engine.cost.step_cost import StepCost
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.progress import Progress
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.speculation import Speculation
from tests.agent.engine.fake_engine import FakeEngine, Following, echoing, next_token

END = 0
PHRASE = (1, 2, 3, 4, 5, 6, 7, 8, 9)


def sequence(number: int = 1, *, max_tokens: int | None = None) -> Progress:
    """A prompt of a phrase said twice, the second time up to the third word."""
    prompt = (*PHRASE, 1, 2, 3)
    new = NewSequence(
        id=SequenceId(number),
        prompt=prompt,
        max_tokens=max_tokens,
        sampling=Sampling(seed=0),
    )
    return Progress(new, arrival=number, ceiling=200)


def say(speculation: Speculation, one: Progress, *tokens: int) -> None:
    for token in tokens:
        speculation.said(one, token)
        one.extend(token, 0.0)


def costing(base: float, each: float) -> StepCost:
    """Steps that were seen in all sizes."""
    cost = StepCost()
    for count in [*range(1, 20)] * 20:
        cost.observe(num_generating=count, num_prompt_tokens=0, seconds=base + each * count)
    return cost


def speculating(cost: StepCost, most: int = 4) -> Speculation:
    return Speculation(most=most, cost=cost, end_tokens=frozenset({END}))


def draft(speculation: Speculation, *sequences: Progress, num_spare: int = 100) -> list[int]:
    """By sequence, how many tokens are drafted."""
    drafts = speculation.draft(dict(enumerate(sequences)), num_spare)
    return [len(drafts.get(slot, ())) for slot in range(len(sequences))]


def test_what_followed_before_is_drafted() -> None:
    speculation = speculating(costing(1.0, 0.0))
    one = sequence()
    say(speculation, one, 4)
    assert speculation.draft({7: one}, 100) == {7: (5, 6, 7, 8)}


def test_nothing_is_drafted_when_it_is_turned_off() -> None:
    speculation = speculating(costing(1.0, 0.0), most=0)
    one = sequence()
    say(speculation, one, 4)
    assert draft(speculation, one) == [0]
    assert one.lookup is None


def test_nothing_is_drafted_before_it_is_known_what_a_step_costs() -> None:
    speculation = speculating(StepCost())
    one = sequence()
    say(speculation, one, 4)
    assert draft(speculation, one) == [0]


def test_the_dearer_a_token_the_shorter_the_draft() -> None:
    lengths = []
    for price in (0.0, 0.25, 0.5, 1.0):
        speculation = speculating(costing(1.0 - price, price))
        one = sequence()
        say(speculation, one, 4)
        lengths += draft(speculation, one)
    assert lengths == [4, 3, 1, 0]


def test_guesses_that_are_wrong_turn_it_down_and_right_ones_up_again() -> None:
    speculation = speculating(costing(0.7, 0.3))
    one = sequence()
    say(speculation, one, 4)
    assert draft(speculation, one) == [3]
    for number in range(2, 40):
        say(speculation, sequence(number), 4, 9)
    assert draft(speculation, one) == [0]
    for number in range(100, 300):
        say(speculation, sequence(number), 4, 5)
    assert draft(speculation, one) == [3]


def test_an_end_token_is_never_drafted() -> None:
    speculation = speculating(costing(1.0, 0.0))
    new = NewSequence(
        id=SequenceId(1),
        prompt=(1, 2, 3, END, 7),
        max_tokens=None,
        sampling=Sampling(seed=0),
    )
    one = Progress(new, arrival=1, ceiling=100)
    say(speculation, one, 5, 1, 2)
    assert speculation.draft({0: one}, 100) == {0: (3,)}


def test_no_further_than_a_sequence_may_go() -> None:
    speculation = speculating(costing(1.0, 0.0))
    one = sequence(max_tokens=4)
    say(speculation, one, 4)
    assert draft(speculation, one) == [2], "and one more is gained"
    one.is_finishing = True
    assert draft(speculation, one) == [0]


def test_what_can_be_spared_goes_to_the_likeliest() -> None:
    speculation = speculating(costing(1.0, 0.0))
    sure, unsure = sequence(1), sequence(2)
    for number in range(10, 40):
        say(speculation, sequence(number), 4, 5, 6, 7)
        say(speculation, sequence(number), 9, 1, 2, 9)
    say(speculation, unsure, 9, 1, 2)
    say(speculation, sure, 4)
    assert draft(speculation, unsure, sure, num_spare=3) == [0, 3]
    assert draft(speculation, unsure, sure, num_spare=0) == [0, 0]


def test_among_many_a_draft_has_to_gain_more() -> None:
    speculation = speculating(costing(0.8, 0.2))
    alone = sequence(1)
    say(speculation, alone, 4)
    others = [sequence(number) for number in range(2, 6)]
    assert draft(speculation, alone) == [4]
    assert draft(speculation, alone, *others) == [1, *[0] * 4]


# ---- what comes of it, over a whole run


def run(
    following: Following, max_draft: int, *, slots: int, base: float, each: float
) -> tuple[float, int]:
    """The seconds that some sequences take, by noisy prices, and how many tokens were drafted."""
    draw, noise = Random(2), Random(1)
    engine = FakeEngine(
        slots=slots,
        context_size=200,
        batch_size=64,
        max_draft=max_draft,
        following=following,
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
            prompt=tuple(draw.randint(1, 9) for _ in range(20)),
            max_tokens=150,
            sampling=Sampling(seed=0),
        )
        scheduler.add(new)
    total = 0.0
    while (step := scheduler.plan()) is not None:
        outcome = engine.execute(step)
        seconds = (base + each * step.size) * noise.uniform(0.95, 1.05)
        total += seconds
        scheduler.commit(step, outcome, seconds)
    return total, scheduler.statistics().num_drafted


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
