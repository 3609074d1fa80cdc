"""How far ahead it pays to guess."""

from collections.abc import Sequence
from random import Random

import pytest

from arriero.agent.engine.cost.step_cost import StepCost
from arriero.agent.engine.prompt import Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.scheduling.scheduler import Scheduler
from arriero.agent.engine.sequence import NewSequence, SequenceId
from arriero.agent.engine.speculation.drafter import Drafter, Proposal
from arriero.agent.engine.speculation.drafting import Drafting
from arriero.agent.engine.speculation.joint_drafter import JointDrafter
from arriero.agent.engine.speculation.lookup_drafter import LookupDrafter
from arriero.agent.engine.speculation.model_drafter import ModelDrafter
from arriero.agent.engine.speculation.speculation import Speculation
from tests.agent.engine.fake_engine import FakeEngine, Following, echoing, next_token
from tests.agent.engine.speculation.fake_draft_model import FakeDraftModel

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


def test_nobody_needs_to_be_asked_where_not_even_sure_tokens_pay() -> None:
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


def seldom_echoing(history: Sequence[int]) -> int:
    """One token in three is what followed when the last two were said before."""
    surprise = next_token(history)
    return echoing(history) if surprise % 3 == 0 else 1 + surprise % 7


@pytest.mark.parametrize("unforeseen", [0.0, 1.0])
@pytest.mark.parametrize("guessing", [0.001, 0.5])
@pytest.mark.parametrize("slots", [1, 8])
def test_drafts_cost_less_than_three_percent_whatever_they_were_thought_to_cost(
    slots: int, guessing: float, unforeseen: float
) -> None:
    """With finding that out, by lookup that is seldom right and a model that never is."""
    plain, _ = run(seldom_echoing, 0, slots=slots, base=0.9, each=0.1)
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
