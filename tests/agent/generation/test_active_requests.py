from dataclasses import replace

import pytest

from arriero.agent.chat.output.transcript import Stops
from arriero.agent.engine.prompt import Media, Prompt
from arriero.agent.engine.sampling.sampling import Sampling
from arriero.agent.engine.sequence import SequenceEnd
from arriero.agent.generation.active_requests import (
    HELD,
    Abandon,
    ActiveRequest,
    ActiveRequests,
    Drop,
    FetchPrefix,
    HeldPieces,
    LogFailure,
    Prepare,
    Reaction,
    ReadPrefix,
    Run,
    Save,
    SendItems,
)
from arriero.agent.generation.answers.prepared import Echo, Prepared
from arriero.agent.generation.answers.resumption import Resume, resumed
from arriero.agent.sequence_id import SequenceId
from arriero.shared.continuation import Continuation
from arriero.shared.errors import EngineFailed, InvalidRequest, to_wire
from arriero.shared.inference import GenerateRequest, LogProb, Notice, Rates, TokenLogProbs, Usage
from arriero.shared.inference.prefix_peers import PrefixSource
from arriero.shared.messages import Ended, Item, Noticed, Piece, Refused, Start
from tests.agent.fakes import ByteVocab
from tests.agent.generation.outputs import (
    ENDED,
    ONE,
    PREPARED,
    REQUEST,
    SAVED,
    SAVING,
    STATS,
    TWO,
    USAGE,
    Heard,
    R,
    S,
    a_byte,
    gained,
    make_prepared,
    other,
    piece,
    prompt_read,
)
from tests.agent.stored import whole

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
        requests.start(SequenceId(number), Start(id=piece(name, "").id, request=REQUEST), US)
        requests.prepared(SequenceId(number), other(PREPARED, id=SequenceId(number)))
    return requests


class TestOneRequest:
    def test_is_prepared_run_and_answered(self) -> None:
        requests = ActiveRequests(a_byte)
        assert requests.start(ONE, Start(id=R, request=REQUEST), US) == [Prepare(ONE, REQUEST)]
        assert requests.prepared(ONE, PREPARED) == [Run(PREPARED.sequence)]
        assert requests.stepped([gained("a")], NOW) == [SendItems(US, (piece("r", "a"),))]
        end = SequenceEnd("stop", STATS)
        assert requests.stepped([gained("", end=end)], NOW) == [
            SendItems(US, (prompt_read("r"), ENDED), (ONE,))
        ]
        assert len(requests) == 0

    def test_that_cannot_be_prepared_is_refused(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=REQUEST), US)
        error = InvalidRequest("no")
        refused = Refused(id=R, error=to_wire(error))
        assert requests.prepared(ONE, error) == [SendItems(US, (refused,), (ONE,))]
        assert requests.prepared(ONE, error) == []

    def test_after_a_stop_string_nothing_comes(self) -> None:
        requests = running()
        [sent, drop] = requests.stepped([gained("a!b")], NOW)
        assert isinstance(sent, SendItems) and sent.released == (ONE,)
        assert drop == Drop(ONE)
        assert requests.stepped([gained("more")], NOW) == []


class TestManyRequests:
    def test_a_step_is_told_at_once_whatever_is_in_it(self) -> None:
        requests = running("r", "s")
        error = EngineFailed("lost")
        failed = gained("", TWO, end=SequenceEnd(error, STATS))
        assert requests.stepped([gained("a"), failed], NOW) == [
            SendItems(US, (piece("r", "a"), Refused(id=S, error=to_wire(error))), (TWO,))
        ]

    def test_each_listener_hears_of_its_own(self) -> None:
        requests, them = running(), Heard()
        requests.start(TWO, Start(id=R, request=REQUEST), them)
        requests.prepared(TWO, other(PREPARED, id=TWO))
        assert requests.stepped([gained("a"), gained("b", TWO)], NOW) == [
            SendItems(US, (piece("r", "a"),)),
            SendItems(them, (piece("r", "b"),)),
        ]

    def test_steps_of_others_are_ignored(self) -> None:
        assert running().stepped([gained("a", SequenceId(77))], NOW) == []


class TestEndedFromOutside:
    def test_cancelled_while_running(self) -> None:
        requests = running()
        requests.stepped([gained("a")], NOW)
        ended = Ended(id=R, finish_reason="cancelled", usage=USAGE, rates=Rates())
        assert requests.cancel(ONE) == [SendItems(US, (ended,), (ONE,)), Drop(ONE)]
        assert requests.cancel(ONE) == []

    def test_cancelled_while_being_prepared(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=REQUEST), US)
        assert requests.cancel(ONE)[1:] == [Abandon(ONE)]
        assert requests.prepared(ONE, PREPARED) == []
        assert requests.prepared(ONE, InvalidRequest("no")) == []

    def test_failed(self) -> None:
        error = EngineFailed("gone")
        refused = Refused(id=R, error=to_wire(error))
        assert running().fail(ONE, error) == [SendItems(US, (refused,), (ONE,)), Drop(ONE)]

    def test_discarded_it_is_only_released(self) -> None:
        assert running().discard(ONE) == [SendItems(US, (), (ONE,)), Drop(ONE)]

    def test_unknown_sequences_are_ignored(self) -> None:
        requests = running()
        assert requests.cancel(TWO) == requests.discard(TWO) == []
        assert requests.fail(TWO, EngineFailed("x")) == []


class TestFailureBoundary:
    def test_an_answer_that_breaks_ends_alone(self) -> None:
        requests = running("r", "s")
        [sent, log, drop] = requests.stepped([gained("a?"), gained("b", TWO)], NOW)
        assert isinstance(sent, SendItems) and sent.released == (ONE,)
        refused, other = sent.items
        assert isinstance(refused, Refused) and refused.error.code == "internal_error"
        assert other == piece("s", "b")
        assert isinstance(log, LogFailure) and log.id == R
        assert isinstance(log.error, IndexError) and log.error.__traceback__ is not None
        assert drop == Drop(ONE)
        assert requests.stepped([gained("more")], NOW) == []

    def test_of_a_sequence_that_has_ended_nothing_is_dropped(self) -> None:
        decisions = running().stepped([gained("?", end=SequenceEnd("stop", STATS))], NOW)
        assert [type(each) for each in decisions] == [SendItems, LogFailure]

    def test_a_preparation_that_nothing_can_be_made_of(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=REQUEST), US)
        broken = replace(PREPARED, stop=None)  # type: ignore[arg-type]
        [sent, log] = requests.prepared(ONE, broken)
        assert isinstance(sent, SendItems) and isinstance(sent.items[0], Refused)
        assert sent.released == (ONE,)
        assert isinstance(log, LogFailure)

    def test_a_decision_that_cannot_be_carried_out(self) -> None:
        requests = running()
        [sent, log] = requests.crashed(ONE, RuntimeError("no threads"), is_in_engine=False)
        assert isinstance(sent, SendItems) and sent.released == (ONE,)
        assert isinstance(log, LogFailure)
        assert requests.crashed(ONE, RuntimeError("again"), is_in_engine=False) == []


class TestSaving:
    def saving(self) -> ActiveRequests:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=SAVING), US)
        requests.prepared(ONE, PREPARED)
        requests.stepped([gained("a", end=SequenceEnd("stop", STATS))], NOW)
        assert requests.read(ONE, SAVED) == [Save(ONE, "k", SAVED)]
        return requests

    def test_the_end_waits_for_it(self) -> None:
        assert self.saving().saved(ONE, None) == [SendItems(US, (ENDED,), (ONE,))]

    def test_cancelling_what_is_complete_changes_nothing(self) -> None:
        requests = self.saving()
        assert requests.cancel(ONE) == []
        assert requests.saved(ONE, None) == [SendItems(US, (ENDED,), (ONE,))]

    @pytest.mark.parametrize("discards", [True, False])
    def test_goes_on_when_nobody_waits_and_is_released_at_its_end(self, discards: bool) -> None:
        requests = self.saving()
        if discards:
            assert requests.discard(ONE) == []
        else:
            assert requests.fail(ONE, EngineFailed("gone")) == [SendItems(US, (ENDED,))]
        assert len(requests) == 1
        assert requests.discard(ONE) == []
        assert requests.saved(ONE, None) == [SendItems(US, (), (ONE,))]


class TestReading:
    def reading(self) -> ActiveRequests:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=SAVING), US)
        requests.prepared(ONE, PREPARED)
        requests.stepped([gained("a", end=SequenceEnd("stop", STATS))], NOW)
        return requests

    def test_ends_with_the_engine(self) -> None:
        requests = self.reading()
        assert requests.fail(ONE, EngineFailed("gone")) == [SendItems(US, (ENDED,), (ONE,))]
        assert len(requests) == 0
        assert requests.read(ONE, SAVED) == []

    def test_is_given_up_when_nobody_waits(self) -> None:
        requests = self.reading()
        assert requests.discard(ONE) == [SendItems(US, (), (ONE,))]
        assert requests.read(ONE, SAVED) == []


class TestKeys:
    def test_have_one_writer_at_a_time_whoever_listens(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=SAVING), US)
        [sent] = requests.start(TWO, Start(id=S, request=SAVING), Heard())
        assert isinstance(sent, SendItems) and sent.released == (TWO,)
        [refused] = sent.items
        assert isinstance(refused, Refused)
        assert (refused.error.code, refused.error.field) == ("invalid_request", "save_cache")
        requests.cancel(ONE)
        assert requests.start(TWO, Start(id=S, request=SAVING), US) == [Prepare(TWO, SAVING)]

    def test_are_others_in_another_scope(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=SAVING, scope="a"), US)
        [prepare] = requests.start(TWO, Start(id=S, request=SAVING, scope="b"), US)
        assert prepare == Prepare(TWO, SAVING, scope="b")
        requests.cancel(ONE)
        third = SequenceId(3)
        [refused] = requests.start(third, Start(id=S, request=SAVING, scope="b"), US)
        assert isinstance(refused, SendItems)
        [prepare] = requests.start(ONE, Start(id=R, request=SAVING, scope="a"), US)
        assert prepare == Prepare(ONE, SAVING, scope="a")

    def test_may_have_several_readers(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=SAVING), US)
        reading = replace(SAVING, save_cache=False)
        assert requests.start(TWO, Start(id=S, request=reading), US) == [Prepare(TWO, reading)]

    def test_are_free_after_a_preparation_that_failed(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, Start(id=R, request=SAVING), US)
        requests.prepared(ONE, InvalidRequest("no"))
        assert requests.start(TWO, Start(id=S, request=SAVING), US) == [Prepare(TWO, SAVING)]


class TestOneThatGoesOn:
    """Another agent began its answer."""

    def test_runs_after_what_was_said(self) -> None:
        requests = ActiveRequests(a_byte)
        continuation = Continuation.after([*b"ab"], num_characters=1)
        resume = Resume(R, continuation)
        decisions = requests.start(ONE, Start(id=R, request=REQUEST, continuation=continuation), US)
        assert decisions == [Prepare(ONE, REQUEST, resume)]
        outcome = resumed(PREPARED, resume, ByteVocab(), 16)
        [sent, run] = requests.prepared(ONE, outcome)
        assert sent == SendItems(US, (Piece(id=R, text="b"),))
        assert isinstance(run, Run)
        assert (run.sequence.said, run.sequence.forced) == (tuple(b"ab"), ())
        [sent] = requests.stepped([gained("c")], NOW)
        assert sent == SendItems(US, (piece("r", "c"),))

    def test_explains_an_echoed_prompt_only_before_its_first_token(self) -> None:
        scored = make_prepared(
            stop=Stops(("!",)), echo=Echo(None), sampling=Sampling(seed=1, top_log_probs=1)
        )
        for tokens in (b"", b"a"):
            requests = ActiveRequests(a_byte)
            continuation = Continuation.after([*tokens])
            requests.start(ONE, Start(id=R, request=REQUEST, continuation=continuation), US)
            outcome = resumed(scored, Resume(R, continuation), ByteVocab(), 16)
            [run] = requests.prepared(ONE, outcome)
            assert isinstance(run, Run)
            assert run.sequence.scores_prompt == (not tokens)
            assert run.sequence.forced == tuple(tokens)

    @pytest.mark.parametrize("request_", [REQUEST, SAVING])
    def test_may_be_complete(self, request_: GenerateRequest) -> None:
        requests = ActiveRequests(a_byte)
        continuation = Continuation.after([*b"a!"])
        requests.start(ONE, Start(id=R, request=request_, continuation=continuation), US)
        outcome = resumed(PREPARED, Resume(R, continuation), ByteVocab(), 16)
        [sent] = requests.prepared(ONE, outcome)
        assert isinstance(sent, SendItems)
        assert sent.released == (ONE,)
        said, *notices, end = sent.items
        assert said == Piece(id=R, text="a")
        assert len(notices) == (request_ is SAVING), "it is told that nothing was saved"
        assert isinstance(end, Ended) and end.stop_string == "!"
        assert len(requests) == 0

    def test_cancelled_while_being_prepared_it_has_what_was_said(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(
            ONE, Start(id=R, request=REQUEST, continuation=Continuation.after((1, 2))), US
        )
        [sent, _] = requests.cancel(ONE)
        assert isinstance(sent, SendItems)
        [ended] = sent.items
        assert isinstance(ended, Ended) and ended.usage.completion_tokens == 2


SOURCE = PrefixSource(address="h:1", ticket="t", seconds=5.0)
PLAIN = other(PREPARED, shift=None)
FETCHING = Start(id=R, request=REQUEST, fetch=SOURCE)


class TestFetching:
    def test_a_prefix_comes_before_the_engine(self) -> None:
        requests = ActiveRequests(a_byte)
        assert requests.start(ONE, FETCHING, US) == [Prepare(ONE, REQUEST)]
        assert requests.prepared(ONE, PLAIN) == [FetchPrefix(ONE, SOURCE, PLAIN.sequence.prompt)]
        requests.check_integrity()
        [run] = requests.fetched(ONE, SAVED)
        assert isinstance(run, Run) and run.sequence.stored == SAVED
        assert requests.fetched(ONE, SAVED) == []
        assert requests.stepped([gained("a")], NOW) == [SendItems(US, (piece("r", "a"),))]

    def test_without_one_all_is_computed(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, FETCHING, US)
        requests.prepared(ONE, PLAIN)
        [run] = requests.fetched(ONE, None)
        assert isinstance(run, Run) and run.sequence.stored is None

    @pytest.mark.parametrize(
        "prepared",
        [
            PREPARED,
            other(PLAIN, stored=SAVED),
            replace(PLAIN, echo=Echo(None)),
            other(PLAIN, prompt=Prompt((1,), Media(b"d", 2), (3,))),
        ],
    )
    def test_what_could_not_begin_with_it_does_not_fetch(self, prepared: Prepared) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, FETCHING, US)
        [run] = requests.prepared(ONE, prepared)
        assert isinstance(run, Run) and run.sequence.stored == prepared.sequence.stored

    def test_who_is_cancelled_meanwhile_is_over(self) -> None:
        requests = ActiveRequests(a_byte)
        requests.start(ONE, FETCHING, US)
        requests.prepared(ONE, PLAIN)
        assert requests.cancel(ONE)[1:] == [Abandon(ONE)]
        assert requests.fetched(ONE, SAVED) == []
        assert len(requests) == 0


# ---- one request


def new(request: GenerateRequest = REQUEST) -> ActiveRequest:
    return ActiveRequest(ONE, Start(id=R, request=request), Heard(), a_byte)


def begun(request: GenerateRequest = REQUEST) -> ActiveRequest:
    active = new(request)
    active.prepared(PREPARED)
    return active


def saving() -> ActiveRequest:
    active = begun(SAVING)
    change = active.stepped(gained("a", end=SequenceEnd("stop", STATS)))
    read = ReadPrefix(ONE, Prompt((1, 2, 3, ord("a"))))
    assert change == Reaction((prompt_read("r"), piece("r", "a")), (read,))
    assert active.read(SAVED) == Reaction((), (Save(ONE, "k", SAVED),))
    assert active.is_saving and active.is_complete and not active.is_over
    return active


class TestOneAnswer:
    def test_a_stop_string_ends_it_and_drops_the_sequence(self) -> None:
        active = begun()
        ended = Ended(
            id=R,
            finish_reason="stop",
            stop_string="!",
            usage=Usage(prompt_tokens=3, completion_tokens=2),
            rates=Rates(),
        )
        told = Piece(id=R, text="a", tokens=tuple(b"a!"))
        assert active.stepped(gained("a!b")) == Reaction((told, ended), (Drop(ONE),))
        assert active.is_over

    def test_a_sequence_that_ended_by_itself_is_not_dropped(self) -> None:
        active = begun()
        change = active.stepped(gained("a!", end=SequenceEnd("length", STATS)))
        assert change.decisions == ()
        assert active.is_over

    def test_nothing_comes_of_a_step_before_it_runs(self) -> None:
        assert new().stepped(gained("a")) == Reaction()

    def test_what_preparation_found_goes_to_the_engine_and_what_it_noticed_to_the_client(
        self,
    ) -> None:
        stored = whole((1, 2), b"state")
        notice = Notice("prompt_cache", "torn")
        prepared = replace(other(PREPARED, stored=stored), notices=(notice,))
        change = new().prepared(prepared)
        assert change.items == (Noticed(id=R, code="prompt_cache", message="torn"),)
        [run] = change.decisions
        assert isinstance(run, Run)
        assert run.sequence.stored == stored

    def test_discarded_it_leaves_preparation_or_the_engine(self) -> None:
        for active, decision in ((new(), Abandon(ONE)), (begun(), Drop(ONE))):
            assert active.discard() == Reaction((), (decision,))
            assert active.is_over

    def test_cancelled_before_it_ran_it_ends_with_nothing(self) -> None:
        ended = Ended(id=R, finish_reason="cancelled", usage=Usage(), rates=Rates())
        assert new().cancel() == Reaction((ended,), (Abandon(ONE),))

    def test_a_mistake_of_ours_ends_it_with_an_error_that_tells_nothing(self) -> None:
        active, error = begun(), IndexError("a secret")
        change = active.crashed(error, is_in_engine=True)
        [refused] = change.items
        assert isinstance(refused, Refused) and refused.error.code == "internal_error"
        assert "secret" not in refused.error.message
        assert change.decisions == (LogFailure(R, error), Drop(ONE))
        assert active.is_over


class TestOneThatSaves:
    def test_the_end_waits_for_the_save(self) -> None:
        active = saving()
        assert active.saved(None) == Reaction((ENDED,))
        assert active.is_over

    def test_a_save_that_failed_is_a_notice(self) -> None:
        notice = Noticed(id=R, code="prompt_cache", message="disk full")
        assert saving().saved(Notice("prompt_cache", "disk full")) == Reaction((notice, ENDED))

    def test_an_answer_that_a_stop_string_ends_is_dropped_and_saved(self) -> None:
        active = begun(SAVING)
        drop, read = active.stepped(gained("a!")).decisions
        assert (drop, read) == (Drop(ONE), ReadPrefix(ONE, Prompt((1, 2, 3, *b"a!"))))
        assert active.stepped(gained("b")) == Reaction(), "nothing of what follows is told"
        assert active.read(SAVED) == Reaction((), (Save(ONE, "k", SAVED),))
        [ended] = active.saved(None).items
        assert isinstance(ended, Ended)
        assert (ended.finish_reason, ended.usage.completion_tokens) == ("stop", 2)

    def test_what_another_engine_generated_is_saved_as_well(self) -> None:
        active = new(SAVING)
        active.prepared(other(PREPARED, said=tuple(b"xy")))
        _, read = active.stepped(gained("!")).decisions
        assert read == ReadPrefix(ONE, Prompt((1, 2, 3, *b"xy!")))

    def test_an_engine_that_has_nothing_to_save_is_a_notice(self) -> None:
        active = begun(SAVING)
        active.stepped(gained("a!"))
        change = active.read(None)
        assert [item.type for item in change.items] == ["noticed", "ended"]
        assert active.is_over

    def test_an_answer_that_failed_is_not_saved(self) -> None:
        active = begun(SAVING)
        change = active.stepped(gained("", end=SequenceEnd(EngineFailed("no"), STATS)))
        assert change == Reaction((Refused(id=R, error=to_wire(EngineFailed("no"))),))
        assert active.is_over

    def test_a_complete_answer_ends_well_even_when_nothing_can_go_on(self) -> None:
        active = saving()
        assert active.fail(EngineFailed("gone")) == Reaction((ENDED,))
        assert active.is_discarded and not active.is_over, "the save goes on"

    def test_a_mistake_after_the_answer_is_complete_does_not_take_it_back(self) -> None:
        assert saving().crashed(ValueError("x"), is_in_engine=False).items == (ENDED,)


# ---- pieces that are held

A, B, C, D, E = (piece("r", text) for text in "abcde")


def holding(*items: Item) -> HeldPieces:
    held = HeldPieces()
    held.to_send((prompt_read("r"), A), 5.0)
    for item in items:
        assert held.to_send((item,), 5.05) == ()
    return held


def test_the_first_token_is_told_at_once() -> None:
    assert HeldPieces().to_send((prompt_read("r"), A), 5.0) == (prompt_read("r"), A)


def test_what_comes_meanwhile_is_told_as_one_piece() -> None:
    held = holding(B, C)
    assert held.to_send((D,), 5.0 + HELD) == (piece("r", "bcd"),)
    assert held.to_send((E,), 5.05 + HELD) == ()


def test_an_end_waits_for_nothing() -> None:
    held = holding(B)
    assert held.to_send((C, ENDED), 5.05) == (piece("r", "bc"), ENDED)
    assert held.with_rest((ENDED,)) == (ENDED,)


def test_what_was_held_comes_before_an_end_that_no_step_gave() -> None:
    assert holding(B).with_rest((ENDED,)) == (B, ENDED)


def test_thoughts_and_pieces_with_log_probabilities_stay_what_they_are() -> None:
    thought = replace(C, kind="reasoning")
    chosen = LogProb(token=100, piece=b"d", log_prob=-0.5)
    explained = replace(D, log_probs=(TokenLogProbs(chosen=chosen),))
    told = holding(B, thought, explained, E).with_rest(())
    assert told == (B, thought, explained, E)
