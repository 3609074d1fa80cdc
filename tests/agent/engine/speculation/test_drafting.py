"""A drafter gets all it needs, and its failure ends no sequence."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pytest

from arriero.agent.engine.prompt import History, Prompt
from arriero.agent.engine.sequence import (
    SequenceEnd,
    SequenceId,
    SequenceOutput,
    SequenceStats,
)
from arriero.agent.engine.speculation.drafter import (
    UNKNOWN_PRICES,
    DraftRequest,
    Proposal,
    StepPrices,
)
from arriero.agent.engine.speculation.drafting import (
    LEAST_SURPRISE,
    MOST_SURPRISE,
    Drafting,
    checking_cost,
)
from arriero.agent.engine.step import Decoded, Failed, Run, Step

ONE, TWO = SequenceId(1), SequenceId(2)
REQUEST = DraftRequest(ONE, History(Prompt((5, 6))), 3)
END = SequenceEnd(
    "stop",
    SequenceStats(
        prompt_tokens=1,
        cached_tokens=0,
        completion_tokens=1,
        prefill_tokens=1,
        prefill_seconds=None,
        decode_seconds=None,
    ),
)


class RecordingDrafter:
    """Writes down what is reported to it, and fails at `fails_at`."""

    def __init__(self, fails_at: str = "") -> None:
        self.calls: list[tuple[object, ...]] = []
        self._fails_at = fails_at

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        self._note("propose", *requests)
        return {request.id: Proposal((7,), (0.5,)) for request in requests}

    def checked(self, id: SequenceId, cost: float, saved: float) -> None:
        self._note("checked", id, cost, saved)

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        self._note("observe", id, tokens)

    def forget(self, id: SequenceId) -> None:
        self._note("forget", id)

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if call[0] == self._fails_at:
            raise ZeroDivisionError("no guess")


def step_of(num_drafted: int) -> Step:
    run = Run(ONE, 0, 5, (1,) * (1 + num_drafted), True, num_drafted)
    return Step((), (run,), num_generating=1, num_prompt_tokens=0, num_drafted=num_drafted)


def told(drafting: Drafting, *outputs: SequenceOutput, num_drafted: int = 0) -> None:
    drafting.observe(step_of(num_drafted), Decoded((7,)), 0.01, outputs)


def test_it_asks_and_reports_what_each_gained_and_which_are_over() -> None:
    drafter = RecordingDrafter()
    drafting = Drafting(drafter)
    assert drafting.propose([REQUEST]) == {ONE: Proposal((7,), (0.5,))}
    told(drafting, SequenceOutput(ONE, (7, 8)), SequenceOutput(TWO, (9,), END))
    drafting.forget(ONE)
    assert drafter.calls == [
        ("propose", REQUEST),
        ("observe", ONE, (7, 8)),
        ("observe", TWO, (9,)),
        ("forget", TWO),
        ("forget", ONE),
    ]


def test_no_drafter_is_asked_for_nothing() -> None:
    drafter = RecordingDrafter()
    assert Drafting(drafter).propose([]) == {}
    assert drafter.calls == []


def test_without_a_drafter_there_are_no_proposals() -> None:
    drafting = Drafting(None)
    assert drafting.propose([REQUEST]) == {}
    told(drafting, SequenceOutput(ONE, (7,), END), num_drafted=1)


def test_it_tells_what_the_drafts_of_each_cost_and_brought() -> None:
    """Two sequences take 1.0 seconds; with three drafted tokens it were 1.3."""
    drafter = RecordingDrafter()
    drafting = Drafting(drafter)
    drafting.propose([REQUEST], StepPrices(step=1.0, token=0.2, num_generating=2, most=1.0))
    runs = tuple(
        Run(id, number, 5, tuple(range(num_drafted + 1)), True, num_drafted)
        for number, (id, num_drafted) in enumerate([(ONE, 2), (TWO, 1)])
    )
    step = Step((), runs, num_generating=2, num_prompt_tokens=0, num_drafted=3)
    outputs = [SequenceOutput(ONE, (7, 8, 9)), SequenceOutput(TWO, (5,))]
    drafting.observe(step, Decoded((7, 8, 9, 5), move_seconds=0.5), 1.8, outputs)
    assert drafter.calls[1:] == [
        ("checked", ONE, pytest.approx(0.2), 1.0),
        ("checked", TWO, pytest.approx(0.1), 0.0),
        ("observe", ONE, (7, 8, 9)),
        ("observe", TWO, (5,)),
    ]


def test_a_step_that_was_not_computed_costs_no_drafter_anything() -> None:
    drafter = RecordingDrafter()
    drafting = Drafting(drafter)
    drafting.propose([REQUEST])
    drafting.observe(step_of(1), Failed("no memory"), 1.8, [])
    assert [call[0] for call in drafter.calls] == ["propose"]


@pytest.mark.parametrize("call", ["propose", "checked", "observe", "forget"])
def test_a_drafter_that_fails_is_logged_and_not_asked_again(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    drafter = RecordingDrafter(fails_at=call)
    reasons: list[str] = []
    drafting = Drafting(drafter, reasons.append)
    drafting.propose([REQUEST])
    told(drafting, SequenceOutput(ONE, (7,), END), num_drafted=1)
    assert drafting.propose([REQUEST]) == {}
    assert drafter.calls[-1][0] == call
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert "without drafts" in record.message
    assert reasons == ["ZeroDivisionError: no guess"]


# ---- what drafts added to a step is measured, not thought


PRICES = StepPrices(step=1.0, token=0.1, num_generating=1, most=1.0)
RUN = Run(SequenceId(0), 0, 5, (1, 2, 3), True, num_drafted=2)
STEP = Step((), (RUN,), num_generating=1, num_prompt_tokens=0, num_drafted=2)


def test_it_is_what_the_step_took_longer() -> None:
    assert checking_cost(PRICES, STEP, 1.5) == pytest.approx(0.5)


def test_a_step_that_was_a_bit_quicker_than_thought_counts_too_so_that_noise_cancels_out() -> None:
    assert checking_cost(PRICES, STEP, 0.9) == pytest.approx(-0.1)
    assert checking_cost(PRICES, STEP, 0.1) == pytest.approx(LEAST_SURPRISE - 1)


def test_of_a_step_while_the_machine_was_busy_not_all_counts() -> None:
    assert checking_cost(PRICES, STEP, 50.0) == pytest.approx(MOST_SURPRISE * 1.2 - 1)


def test_beside_prompts_and_with_others_it_is_what_was_thought() -> None:
    assert checking_cost(PRICES, replace(STEP, num_prompt_tokens=3), 9.0) == pytest.approx(0.2)
    assert checking_cost(PRICES, replace(STEP, num_generating=2), 9.0) == pytest.approx(0.2)


def test_without_drafts_or_prices_it_is_nothing() -> None:
    assert checking_cost(PRICES, replace(STEP, num_drafted=0), 9.0) == 0
    assert checking_cost(UNKNOWN_PRICES, STEP, 9.0) == 0
