from dataclasses import replace

import pytest

from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.sequence import NewSequence, SequenceEnd, SequenceId
from arriero.agent.generation.active_request import (
    Abandon,
    Drop,
    Fetch,
    LogFailure,
    Prepare,
    Run,
    Tell,
)
from arriero.agent.generation.active_requests import ActiveRequests
from arriero.agent.generation.answers.prepared import Echo, Prepared
from arriero.agent.generation.answers.resumption import Resume, resumed
from arriero.agent.generation.port import NewRequest, Ticket
from arriero.shared.continuation import Continuation
from arriero.shared.errors import EngineFailed, InvalidRequest, to_wire
from arriero.shared.inference import GenerateRequest, Rates
from arriero.shared.inference.prefix_peers import PrefixSource
from arriero.shared.messages import Ended, Piece, Refused
from tests.agent.fakes import ByteVocab
from tests.agent.generation.outputs import (
    ENDED,
    FIRST,
    ONE,
    PREPARED,
    REQUEST,
    SAVED,
    SAVING,
    SECOND,
    STATS,
    TWO,
    USAGE,
    Heard,
    R,
    S,
    a_byte,
    gained,
    piece,
    prompt_read,
)

US = Heard()
NOW = 7.0
BROKEN = ord("?")


def broken_at_a_question_mark(token: int) -> bytes:
    if token == BROKEN:
        raise IndexError("a mistake of ours")
    return a_byte(token)


def running(*names: str) -> ActiveRequests:
    requests = ActiveRequests(broken_at_a_question_mark)
    for number, name in enumerate(names or ("r",), 1):
        requests.start(NewRequest(Ticket(number), piece(name, "").id, REQUEST), US)
        requests.prepared(SequenceId(number), PREPARED)
    return requests


class TestOneRequest:
    def test_is_prepared_run_and_answered(self) -> None:
        requests = ActiveRequests(a_byte)
        assert requests.start(NewRequest(FIRST, R, REQUEST), US) == [Prepare(ONE, REQUEST)]
        sequence = NewSequence(
            id=ONE,
            prompt=Prompt((1, 2, 3)),
            max_tokens=9,
            sampling=PREPARED.sampling,
            priority=3,
            shift=PREPARED.shift,
            prefill_only=True,
        )
        assert requests.prepared(ONE, PREPARED) == [Run(sequence)]
        assert requests.stepped([gained("a")], NOW) == [Tell(US, (piece("r", "a"),))]
        end = SequenceEnd("stop", STATS)
        assert requests.stepped([gained("", end=end)], NOW) == [
            Tell(US, (prompt_read("r"), ENDED), (FIRST,))
        ]
        assert len(requests) == 0

    def test_that_cannot_be_prepared_is_refused(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, REQUEST), US)
        error = InvalidRequest("no")
        refused = Refused(id=R, error=to_wire(error))
        assert requests.prepared(ONE, error) == [Tell(US, (refused,), (FIRST,))]
        assert requests.prepared(ONE, error) == []

    def test_after_a_stop_string_nothing_comes(self) -> None:
        requests = running()
        [tell, drop] = requests.stepped([gained("a!b")], NOW)
        assert isinstance(tell, Tell) and tell.released == (FIRST,)
        assert drop == Drop(ONE)
        assert requests.stepped([gained("more")], NOW) == []


class TestManyRequests:
    def test_a_step_is_told_at_once_whatever_is_in_it(self) -> None:
        requests = running("r", "s")
        error = EngineFailed("lost")
        failed = gained("", TWO, end=SequenceEnd(error, STATS))
        assert requests.stepped([gained("a"), failed], NOW) == [
            Tell(US, (piece("r", "a"), Refused(id=S, error=to_wire(error))), (SECOND,))
        ]

    def test_each_listener_hears_of_its_own(self) -> None:
        requests, other = running(), Heard()
        requests.start(NewRequest(SECOND, R, REQUEST), other)
        requests.prepared(TWO, PREPARED)
        assert requests.stepped([gained("a"), gained("b", TWO)], NOW) == [
            Tell(US, (piece("r", "a"),)),
            Tell(other, (piece("r", "b"),)),
        ]

    def test_steps_of_others_are_ignored(self) -> None:
        assert running().stepped([gained("a", SequenceId(77))], NOW) == []


class TestEndedFromOutside:
    def test_cancelled_while_running(self) -> None:
        requests = running()
        requests.stepped([gained("a")], NOW)
        ended = Ended(id=R, finish_reason="cancelled", usage=USAGE, rates=Rates())
        assert requests.cancel(FIRST) == [Tell(US, (ended,), (FIRST,)), Drop(ONE)]
        assert requests.cancel(FIRST) == []

    def test_cancelled_while_being_prepared(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, REQUEST), US)
        assert requests.cancel(FIRST)[1:] == [Abandon(ONE)]
        assert requests.prepared(ONE, PREPARED) == []
        assert requests.prepared(ONE, InvalidRequest("no")) == []

    def test_failed(self) -> None:
        error = EngineFailed("gone")
        refused = Refused(id=R, error=to_wire(error))
        assert running().fail(FIRST, error) == [Tell(US, (refused,), (FIRST,)), Drop(ONE)]

    def test_discarded_it_only_releases_its_ticket(self) -> None:
        assert running().discard(FIRST) == [Tell(US, (), (FIRST,)), Drop(ONE)]

    def test_unknown_tickets_are_ignored(self) -> None:
        requests = running()
        assert requests.cancel(SECOND) == requests.discard(SECOND) == []
        assert requests.fail(SECOND, EngineFailed("x")) == []


class TestFailureBoundary:
    def test_an_answer_that_breaks_ends_alone(self) -> None:
        requests = running("r", "s")
        [tell, log, drop] = requests.stepped([gained("a?"), gained("b", TWO)], NOW)
        assert isinstance(tell, Tell) and tell.released == (FIRST,)
        refused, other = tell.items
        assert isinstance(refused, Refused) and refused.error.code == "internal_error"
        assert other == piece("s", "b")
        assert isinstance(log, LogFailure) and log.id == R
        assert isinstance(log.error, IndexError) and log.error.__traceback__ is not None
        assert drop == Drop(ONE)
        assert requests.stepped([gained("more")], NOW) == []

    def test_of_a_sequence_that_has_ended_nothing_is_dropped(self) -> None:
        decisions = running().stepped([gained("?", end=SequenceEnd("stop", STATS))], NOW)
        assert [type(each) for each in decisions] == [Tell, LogFailure]

    def test_a_preparation_that_nothing_can_be_made_of(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, REQUEST), US)
        broken = replace(PREPARED, stop=None)  # type: ignore[arg-type]
        [tell, log] = requests.prepared(ONE, broken)
        assert isinstance(tell, Tell) and isinstance(tell.items[0], Refused)
        assert tell.released == (FIRST,)
        assert isinstance(log, LogFailure)

    def test_a_decision_that_cannot_be_carried_out(self) -> None:
        requests = running()
        [tell, log] = requests.crashed(ONE, RuntimeError("no threads"), is_in_engine=False)
        assert isinstance(tell, Tell) and tell.released == (FIRST,)
        assert isinstance(log, LogFailure)
        assert requests.crashed(ONE, RuntimeError("again"), is_in_engine=False) == []


class TestSaving:
    def saving(self) -> ActiveRequests:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, SAVING), US)
        requests.prepared(ONE, PREPARED)
        requests.stepped([gained("a", end=SequenceEnd("stop", STATS, SAVED))], NOW)
        return requests

    def test_the_end_waits_for_it(self) -> None:
        assert self.saving().saved(ONE, None) == [Tell(US, (ENDED,), (FIRST,))]

    def test_cancelling_what_is_complete_changes_nothing(self) -> None:
        requests = self.saving()
        assert requests.cancel(FIRST) == []
        assert requests.saved(ONE, None) == [Tell(US, (ENDED,), (FIRST,))]

    @pytest.mark.parametrize("discards", [True, False])
    def test_goes_on_when_nobody_waits_and_is_released_at_its_end(self, discards: bool) -> None:
        requests = self.saving()
        if discards:
            assert requests.discard(FIRST) == []
        else:
            assert requests.fail(FIRST, EngineFailed("gone")) == [Tell(US, (ENDED,))]
        assert len(requests) == 1
        assert requests.discard(FIRST) == []
        assert requests.saved(ONE, None) == [Tell(US, (), (FIRST,))]


class TestKeys:
    def test_have_one_writer_at_a_time_whoever_listens(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, SAVING), US)
        [tell] = requests.start(NewRequest(SECOND, S, SAVING), Heard())
        assert isinstance(tell, Tell) and tell.released == (SECOND,)
        [refused] = tell.items
        assert isinstance(refused, Refused)
        assert (refused.error.code, refused.error.field) == ("invalid_request", "save_cache")
        requests.cancel(FIRST)
        assert requests.start(NewRequest(SECOND, S, SAVING), US) == [Prepare(TWO, SAVING)]

    def test_may_have_several_readers(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, SAVING), US)
        reading = replace(SAVING, save_cache=False)
        assert requests.start(NewRequest(SECOND, S, reading), US) == [Prepare(TWO, reading)]

    def test_are_free_after_a_preparation_that_failed(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, SAVING), US)
        requests.prepared(ONE, InvalidRequest("no"))
        assert requests.start(NewRequest(SECOND, S, SAVING), US) == [Prepare(TWO, SAVING)]


class TestOneThatGoesOn:
    """Another agent began its answer."""

    def test_runs_after_what_was_said(self) -> None:
        requests = ActiveRequests(a_byte)
        continuation = Continuation.after([*b"ab"], num_characters=1)
        resume = Resume(R, continuation)
        decisions = requests.start(NewRequest(FIRST, R, REQUEST, continuation), US)
        assert decisions == [Prepare(ONE, REQUEST, resume)]
        outcome = resumed(PREPARED, resume, ByteVocab(), 16)
        [tell, run] = requests.prepared(ONE, outcome)
        assert tell == Tell(US, (Piece(id=R, text="b"),))
        assert isinstance(run, Run)
        assert (run.sequence.said, run.sequence.forced) == (tuple(b"ab"), ())
        [tell] = requests.stepped([gained("c")], NOW)
        assert tell == Tell(US, (piece("r", "c"),))

    def test_explains_an_echoed_prompt_only_before_its_first_token(self) -> None:
        scored = replace(
            PREPARED,
            shift=None,
            echo=Echo(None),
            sampling=replace(PREPARED.sampling, top_log_probs=1),
        )
        for tokens in (b"", b"a"):
            requests = ActiveRequests(a_byte)
            continuation = Continuation.after([*tokens])
            requests.start(NewRequest(FIRST, R, REQUEST, continuation), US)
            outcome = resumed(scored, Resume(R, continuation), ByteVocab(), 16)
            [run] = requests.prepared(ONE, outcome)
            assert isinstance(run, Run)
            assert run.sequence.scores_prompt == (not tokens)
            assert run.sequence.forced == tuple(tokens)

    @pytest.mark.parametrize("request_", [REQUEST, SAVING])
    def test_may_be_complete(self, request_: GenerateRequest) -> None:
        requests = ActiveRequests(a_byte)
        continuation = Continuation.after([*b"a!"])
        requests.start(NewRequest(FIRST, R, request_, continuation), US)
        outcome = resumed(PREPARED, Resume(R, continuation), ByteVocab(), 16)
        [tell] = requests.prepared(ONE, outcome)
        assert isinstance(tell, Tell)
        assert tell.released == (FIRST,)
        said, *notices, end = tell.items
        assert said == Piece(id=R, text="a")
        assert len(notices) == (request_ is SAVING), "it is told that nothing was saved"
        assert isinstance(end, Ended) and end.stop_string == "!"
        assert len(requests) == 0

    def test_cancelled_while_being_prepared_it_has_what_was_said(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(NewRequest(FIRST, R, REQUEST, Continuation.after((1, 2))), US)
        [tell, _] = requests.cancel(FIRST)
        assert isinstance(tell, Tell)
        [ended] = tell.items
        assert isinstance(ended, Ended) and ended.usage.completion_tokens == 2


SOURCE = PrefixSource(address="h:1", ticket="t", seconds=5.0)
PLAIN = replace(PREPARED, shift=None)
FETCHING = NewRequest(FIRST, R, REQUEST, fetch=SOURCE)


class TestFetching:
    def test_a_prefix_comes_before_the_engine(self) -> None:
        requests = ActiveRequests(a_byte)
        assert requests.start(FETCHING, US) == [Prepare(ONE, REQUEST)]
        assert requests.prepared(ONE, PLAIN) == [Fetch(ONE, SOURCE, PLAIN.prompt)]
        requests.check_integrity()
        [run] = requests.fetched(ONE, SAVED)
        assert isinstance(run, Run) and run.sequence.stored == SAVED
        assert requests.fetched(ONE, SAVED) == []
        assert requests.stepped([gained("a")], NOW) == [Tell(US, (piece("r", "a"),))]

    def test_without_one_all_is_computed(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(FETCHING, US)
        requests.prepared(ONE, PLAIN)
        [run] = requests.fetched(ONE, None)
        assert isinstance(run, Run) and run.sequence.stored is None

    @pytest.mark.parametrize(
        "prepared",
        [
            PREPARED,
            replace(PLAIN, stored=SAVED),
            replace(PLAIN, echo=Echo(None)),
            replace(PLAIN, prompt=Prompt((1,), Media(b"d", 2), (3,))),
        ],
    )
    def test_what_could_not_begin_with_it_does_not_fetch(self, prepared: Prepared) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(FETCHING, US)
        [run] = requests.prepared(ONE, prepared)
        assert isinstance(run, Run) and run.sequence.stored == prepared.stored

    def test_who_is_cancelled_meanwhile_is_over(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(FETCHING, US)
        requests.prepared(ONE, PLAIN)
        assert requests.cancel(FIRST)[1:] == [Abandon(ONE)]
        assert requests.fetched(ONE, SAVED) == []
        assert len(requests) == 0
