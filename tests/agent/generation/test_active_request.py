from dataclasses import replace

from arriero.agent.engine.sequence import SequenceEnd
from arriero.agent.generation.active_request import (
    Abandon,
    ActiveRequest,
    Change,
    Drop,
    Finish,
    LogFailure,
    Run,
    Save,
)
from arriero.shared.errors import EngineFailed, to_wire
from arriero.shared.inference import GenerateRequest, Notice, Rates, Usage
from arriero.shared.messages import Ended, Noticed, Piece, Refused
from tests.agent.generation.outputs import (
    ENDED,
    ONE,
    PREPARED,
    REQUEST,
    SAVED,
    SAVING,
    STATS,
    Heard,
    R,
    a_byte,
    gained,
    piece,
    prompt_read,
)
from tests.agent.stored import whole


def new(request: GenerateRequest = REQUEST) -> ActiveRequest:
    return ActiveRequest(ONE, R, request, Heard())


def running(request: GenerateRequest = REQUEST) -> ActiveRequest:
    active = new(request)
    active.prepared(PREPARED, a_byte)
    return active


def saving() -> ActiveRequest:
    active = running(SAVING)
    end = SequenceEnd("stop", STATS, SAVED)
    change = active.stepped(gained("a", end=end))
    assert change == Change((prompt_read("r"), piece("r", "a")), (Save(ONE, "k", SAVED),))
    assert active.is_saving and active.is_complete and not active.is_over
    return active


class TestAnswering:
    def test_a_stop_string_ends_it_and_drops_the_sequence(self) -> None:
        active = running()
        ended = Ended(
            id=R,
            finish_reason="stop",
            stop_string="!",
            usage=Usage(prompt_tokens=3, completion_tokens=2),
            rates=Rates(),
        )
        told = Piece(id=R, text="a", tokens=tuple(b"a!"))
        assert active.stepped(gained("a!b")) == Change((told, ended), (Drop(ONE),))
        assert active.is_over

    def test_a_sequence_that_ended_by_itself_is_not_dropped(self) -> None:
        active = running()
        change = active.stepped(gained("a!", end=SequenceEnd("length", STATS)))
        assert change.decisions == ()
        assert active.is_over

    def test_nothing_comes_of_a_step_before_it_runs(self) -> None:
        assert new().stepped(gained("a")) == Change()

    def test_what_preparation_found_goes_to_the_engine_and_what_it_noticed_to_the_client(
        self,
    ) -> None:
        stored = whole((1, 2), b"state")
        notice = Notice("prompt_cache", "torn")
        prepared = replace(PREPARED, stored=stored, notices=(notice,))
        change = new().prepared(prepared, a_byte)
        assert change.items == (Noticed(id=R, code="prompt_cache", message="torn"),)
        [run] = change.decisions
        assert isinstance(run, Run)
        assert (run.sequence.stored, run.sequence.save_as) == (stored, None)

    def test_discarded_it_leaves_preparation_or_the_engine(self) -> None:
        for active, decision in ((new(), Abandon(ONE)), (running(), Drop(ONE))):
            assert active.discard() == Change((), (decision,))
            assert active.is_over

    def test_cancelled_before_it_ran_it_ends_with_nothing(self) -> None:
        ended = Ended(id=R, finish_reason="cancelled", usage=Usage(), rates=Rates())
        assert new().cancel() == Change((ended,), (Abandon(ONE),))

    def test_a_mistake_of_ours_ends_it_with_an_error_that_tells_nothing(self) -> None:
        active, error = running(), IndexError("a secret")
        change = active.crashed(error, is_in_engine=True)
        [refused] = change.items
        assert isinstance(refused, Refused) and refused.error.code == "internal_error"
        assert "secret" not in refused.error.message
        assert change.decisions == (LogFailure(R, error), Drop(ONE))
        assert active.is_over


class TestSaving:
    def test_the_engine_hears_of_the_key(self) -> None:
        [run] = new(SAVING).prepared(PREPARED, a_byte).decisions
        assert isinstance(run, Run) and run.sequence.save_as == "k"

    def test_the_end_waits_for_the_save(self) -> None:
        active = saving()
        assert active.saved(None) == Change((ENDED,))
        assert active.is_over

    def test_a_save_that_failed_is_a_notice(self) -> None:
        notice = Noticed(id=R, code="prompt_cache", message="disk full")
        assert saving().saved(Notice("prompt_cache", "disk full")) == Change((notice, ENDED))

    def test_an_answer_that_a_stop_string_ends_is_finished_and_saved(self) -> None:
        active = running(SAVING)
        assert active.stepped(gained("a!")).decisions == (Finish(ONE),)
        assert active.stepped(gained("b")) == Change(), "nothing of what follows is told"
        end = SequenceEnd("stop", STATS, SAVED)
        assert active.stepped(gained("", end=end)) == Change((), (Save(ONE, "k", SAVED),))
        [ended] = active.saved(None).items
        assert isinstance(ended, Ended)
        assert (ended.finish_reason, ended.usage.completion_tokens) == ("stop", 2)

    def test_an_engine_that_fails_before_it_could_save_is_a_notice(self) -> None:
        active = running(SAVING)
        active.stepped(gained("a!"))
        change = active.stepped(gained("", end=SequenceEnd(EngineFailed("no"), STATS)))
        assert [item.type for item in change.items] == ["noticed", "ended"]
        assert active.is_over

    def test_an_answer_that_failed_is_not_saved(self) -> None:
        active = running(SAVING)
        change = active.stepped(gained("", end=SequenceEnd(EngineFailed("no"), STATS)))
        assert change == Change((Refused(id=R, error=to_wire(EngineFailed("no"))),))
        assert active.is_over

    def test_a_complete_answer_ends_well_even_when_nothing_can_go_on(self) -> None:
        active = saving()
        assert active.fail(EngineFailed("gone")) == Change((ENDED,))
        assert active.is_discarded and not active.is_over, "the save goes on"

    def test_a_mistake_after_the_answer_is_complete_does_not_take_it_back(self) -> None:
        assert saving().crashed(ValueError("x"), is_in_engine=False).items == (ENDED,)
