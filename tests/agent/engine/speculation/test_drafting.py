"""A drafter is told all it needs, and its failure is nobody else's."""

from collections.abc import Iterable, Mapping, Sequence

import pytest

from arriero.agent.engine.prompt import History, Prompt
from arriero.agent.engine.sequence import (
    SequenceEnd,
    SequenceId,
    SequenceOutput,
    SequenceStats,
)
from arriero.agent.engine.speculation.drafter import DraftRequest, Proposal, StepPrices
from arriero.agent.engine.speculation.drafting import Drafting

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
    """Writes down what it is told, and fails at `fails_at`."""

    def __init__(self, fails_at: str = "") -> None:
        self.calls: list[tuple[object, ...]] = []
        self._fails_at = fails_at

    def propose(
        self, requests: Sequence[DraftRequest], prices: StepPrices
    ) -> Mapping[SequenceId, Proposal]:
        self._note("propose", *requests)
        return {request.id: Proposal((7,), (0.5,)) for request in requests}

    def observe(self, id: SequenceId, tokens: Iterable[int]) -> None:
        self._note("observe", id, tokens)

    def forget(self, id: SequenceId) -> None:
        self._note("forget", id)

    def _note(self, *call: object) -> None:
        self.calls.append(call)
        if call[0] == self._fails_at:
            raise ZeroDivisionError("no guess")


def test_it_asks_and_tells_what_each_gained_and_who_is_over() -> None:
    drafter = RecordingDrafter()
    drafting = Drafting(drafter)
    assert drafting.propose([REQUEST]) == {ONE: Proposal((7,), (0.5,))}
    drafting.observe([SequenceOutput(ONE, (7, 8)), SequenceOutput(TWO, (9,), END)])
    drafting.forget(ONE)
    assert drafter.calls == [
        ("propose", REQUEST),
        ("observe", ONE, (7, 8)),
        ("observe", TWO, (9,)),
        ("forget", TWO),
        ("forget", ONE),
    ]


def test_nobody_is_asked_for_nothing() -> None:
    drafter = RecordingDrafter()
    assert Drafting(drafter).propose([]) == {}
    assert drafter.calls == []


def test_without_a_drafter_there_are_no_proposals() -> None:
    drafting = Drafting(None)
    assert drafting.propose([REQUEST]) == {}
    drafting.observe([SequenceOutput(ONE, (7,), END)])


@pytest.mark.parametrize("call", ["propose", "observe", "forget"])
def test_a_drafter_that_fails_is_logged_and_not_asked_again(
    call: str, caplog: pytest.LogCaptureFixture
) -> None:
    drafter = RecordingDrafter(fails_at=call)
    drafting = Drafting(drafter)
    drafting.propose([REQUEST])
    drafting.observe([SequenceOutput(ONE, (7,), END)])
    assert drafting.propose([REQUEST]) == {}
    assert drafter.calls[-1][0] == call
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert record.exc_info is not None
    assert "without drafts" in record.message
