import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.chat.prepared import Prepared
from arriero.agent.engine.sampling import Sampling
from arriero.agent.engine.sequence import (
    ContextShift,
    NewSequence,
    SequenceEnd,
    SequenceId,
    SequenceOutput,
    SequenceStats,
)
from arriero.agent.engine.stored_prompt import StoredPrompt
from arriero.agent.engine.writers import Writers
from arriero.agent.link.decisions import (
    Abandon,
    Close,
    Decision,
    Drop,
    Finish,
    GiveUp,
    MarkConnected,
    Prepare,
    Run,
    Save,
    Send,
)
from arriero.agent.link.session import HANDSHAKE_TIMEOUT, Session
from arriero.agent.link.slots import Slots
from arriero.shared.errors import EngineFailed, InvalidRequest, ShuttingDown, to_wire
from arriero.shared.inference import AgentId, GenerateRequest, Notice, Rates, RequestId, Usage
from arriero.shared.messages import (
    PROTOCOL_VERSION,
    Busy,
    Cancel,
    Ended,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Hello,
    Issue,
    Noticed,
    Output,
    Piece,
    Refused,
    Reject,
    Start,
    Statistics,
    Status,
    Welcome,
    encode_from_balancer,
)

HELLO = Hello(protocol=PROTOCOL_VERSION, agent_id=AgentId("a"), name="box", version="1", slots=2)
STATUS = Status(slots=2, accepting=True)
WELCOME = Welcome(
    protocol=PROTOCOL_VERSION, version="1", heartbeat_interval=1.0, heartbeat_timeout=5.0
)
REQUEST = GenerateRequest(prompt="x", priority=3, prefill_only=True)
PREPARED = Prepared(
    prompt=(1, 2, 3),
    sampling=Sampling(seed=1),
    max_tokens=9,
    stop=("!",),
    shift=ContextShift(4, 5),
)
STATS = SequenceStats(
    prompt_tokens=3,
    cached_tokens=0,
    completion_tokens=1,
    prefill_tokens=3,
    prefill_seconds=1.0,
    decode_seconds=None,
)
ENDED_RATES = Rates(prefill_tokens_per_second=3.0)
USAGE = Usage(prompt_tokens=3, completion_tokens=1)
ONE, TWO = SequenceId(1), SequenceId(2)


def ids() -> Iterator[SequenceId]:
    return map(SequenceId, count(1))


def make(
    *,
    slots: Slots | None = None,
    writers: Writers | None = None,
    numbers: Iterator[SequenceId] | None = None,
    status: Status = STATUS,
) -> Session:
    return Session(
        hello=HELLO,
        status=status,
        slots=slots or Slots(2),
        writers=writers or Writers(),
        sequence_ids=numbers or ids(),
        piece=lambda token: bytes([token]),
    )


def live(
    slots: Slots | None = None,
    numbers: Iterator[SequenceId] | None = None,
    writers: Writers | None = None,
) -> Session:
    session = make(slots=slots, numbers=numbers, writers=writers)
    session.connected(0.0)
    session.received(WELCOME, 0.0)
    return session


def start(name: str) -> Start:
    return Start(id=RequestId(name), request=REQUEST)


def cancel(name: str) -> Cancel:
    return Cancel(id=RequestId(name))


def running(name: str = "r", *, slots: Slots | None = None) -> Session:
    session = live(slots)
    session.received(start(name), 0.0)
    session.prepared(ONE, PREPARED, 0.0)
    return session


def gained(text: str, id: SequenceId = ONE, *, end: SequenceEnd | None = None) -> SequenceOutput:
    return SequenceOutput(id, tuple(text.encode()), end)


def output(*items: Piece | Ended | Noticed | Refused | Busy) -> Send:
    return Send(Output(items=items))


def piece(name: str, text: str) -> Piece:
    return Piece(id=RequestId(name), text=text, tokens=tuple(text.encode()))


class TestGreeting:
    def test_hello_comes_first(self) -> None:
        assert make().connected(0.0) == [Send(HELLO)]

    def test_welcome_lets_it_in(self) -> None:
        session = make()
        session.connected(0.0)
        assert session.received(WELCOME, 0.1) == [MarkConnected()]
        assert session.is_live

    def test_issues_that_change_are_told_at_once(self) -> None:
        session = live()
        status = replace(STATUS, issues=(Issue(code="engine_crashed", message="SIGABRT"),))
        assert session.tell(status.issues, 0.2) == [Send(status)]
        assert session.tell((), 0.3) == [Send(STATUS)]

    def test_issues_that_changed_offline_are_told_after_the_welcome(self) -> None:
        session = make()
        status = replace(STATUS, issues=(Issue(code="engine_crashed", message="SIGABRT"),))
        assert session.tell(status.issues, 0.0) == []
        session.connected(0.1)
        assert session.tell(status.issues, 0.2) == []
        assert session.received(WELCOME, 0.3) == [MarkConnected(), Send(status)]

    def test_issues_are_told_after_the_welcome(self) -> None:
        status = replace(STATUS, issues=(Issue(code="chat_template", message="line 1"),))
        session = make(status=status)
        session.connected(0.0)
        assert session.received(WELCOME, 0.1) == [MarkConnected(), Send(status)]

    def test_what_the_engine_did_is_told_after_the_welcome(self) -> None:
        session = make(status=replace(STATUS, issues=(Issue(code="c", message="m"),)))
        assert session.report(Statistics(num_running=1), 0.0) == []
        session.connected(0.0)
        assert session.report(Statistics(num_running=2), 0.0) == []
        _, status, statistics = session.received(WELCOME, 0.1)
        assert status == Send(replace(STATUS, issues=(Issue(code="c", message="m"),)))
        assert statistics == Send(Statistics(num_running=2))

    def test_what_the_engine_does_is_told_at_once(self) -> None:
        session = live()
        assert session.report(Statistics(num_running=1), 0.5) == [Send(Statistics(num_running=1))]
        assert session.next_deadline() == 1.5, "it spares a heartbeat"

    def test_another_version_ends_it_for_good(self) -> None:
        session = make()
        session.connected(0.0)
        [decision] = session.received(replace(WELCOME, protocol=PROTOCOL_VERSION + 1), 0.1)
        assert isinstance(decision, GiveUp)
        assert "install the same release on both" in decision.reason
        assert session.is_offline

    def test_a_rejection_for_good(self) -> None:
        session = make()
        session.connected(0.0)
        assert session.received(Reject(reason="old", retry=False), 0.1) == [GiveUp("old")]

    def test_a_rejection_for_now(self) -> None:
        session = make()
        session.connected(0.0)
        assert session.received(Reject(reason="full", retry=True), 0.1) == [Close("full")]

    @pytest.mark.parametrize("message", [start("r"), cancel("r")])
    def test_nothing_is_taken_before_the_welcome(self, message: FromBalancer) -> None:
        session = make()
        session.connected(0.0)
        [decision] = session.received(message, 0.1)
        assert isinstance(decision, Close)
        assert "before `welcome`" in decision.reason

    def test_a_second_welcome_is_an_error(self) -> None:
        session = running()
        assert session.received(WELCOME, 1.0) == [
            Drop(ONE),
            Close("the balancer sent `welcome` twice"),
        ]

    def test_no_answer_to_hello_in_time(self) -> None:
        session = make()
        session.connected(3.0)
        assert session.next_deadline() == 3.0 + HANDSHAKE_TIMEOUT
        assert session.tick(3.0 + HANDSHAKE_TIMEOUT - 0.1) == []
        [decision] = session.tick(3.0 + HANDSHAKE_TIMEOUT)
        assert isinstance(decision, Close)


class TestOneRequest:
    def test_is_prepared_run_and_answered(self) -> None:
        slots = Slots(2)
        session = live(slots)
        assert session.received(start("r"), 0.0) == [Prepare(ONE, REQUEST)]
        assert slots.num_busy == 1
        assert session.prepared(ONE, PREPARED, 0.0) == [
            Run(
                NewSequence(
                    id=ONE,
                    prompt=(1, 2, 3),
                    max_tokens=9,
                    sampling=PREPARED.sampling,
                    priority=3,
                    shift=PREPARED.shift,
                    prefill_only=True,
                )
            )
        ]
        assert session.stepped([gained("a")], 0.1) == [output(piece("r", "a"))]
        ended = Ended(id=RequestId("r"), finish_reason="length", usage=USAGE, rates=ENDED_RATES)
        assert session.stepped([gained("", end=SequenceEnd("length", STATS))], 0.2) == [
            output(ended)
        ]
        assert slots.num_busy == 0

    def test_one_that_cannot_be_prepared_is_refused(self) -> None:
        session = live()
        session.received(start("r"), 0.0)
        error = InvalidRequest("no", field="prompt")
        assert session.preparation_failed(ONE, error, 0.1) == [
            output(Refused(id=RequestId("r"), error=to_wire(error)))
        ]
        assert session.num_active == 0

    def test_a_stop_string_ends_it_and_drops_the_sequence(self) -> None:
        session = running()
        send, drop = session.stepped([gained("a!b")], 0.1)
        assert drop == Drop(ONE)
        assert send == output(
            Piece(id=RequestId("r"), text="a", tokens=tuple(b"a!")),
            Ended(
                id=RequestId("r"),
                finish_reason="stop",
                usage=Usage(prompt_tokens=3, completion_tokens=2),
                rates=Rates(),
            ),
        )
        assert session.stepped([gained("more")], 0.2) == []

    def test_a_sequence_that_ended_by_itself_is_not_dropped(self) -> None:
        session = running()
        [send] = session.stepped([gained("a!", end=SequenceEnd("length", STATS))], 0.1)
        assert isinstance(send, Send)


class TestManyRequests:
    def test_a_step_is_one_frame_whatever_is_in_it(self) -> None:
        session = live()
        for name, id in (("r", ONE), ("s", TWO)):
            session.received(start(name), 0.0)
            session.prepared(id, PREPARED, 0.0)
        error = EngineFailed("lost")
        failed = gained("", TWO, end=SequenceEnd(error, STATS))
        assert session.stepped([gained("a"), failed], 0.1) == [
            output(piece("r", "a"), Refused(id=RequestId("s"), error=to_wire(error)))
        ]

    def test_more_than_there_are_slots_are_sent_back(self) -> None:
        session = live(Slots(1))
        session.received(start("r"), 0.0)
        assert session.received(start("s"), 0.0) == [output(Busy(id=RequestId("s")))]

    def test_a_live_id_that_is_started_again_ends_the_connection(self) -> None:
        session = running()
        assert session.received(start("r"), 0.1) == [
            Drop(ONE),
            Close("the balancer started request r twice"),
        ]

    def test_an_id_may_come_again_after_its_end(self) -> None:
        session = running()
        session.received(cancel("r"), 0.1)
        assert session.received(start("r"), 0.2) == [Prepare(TWO, REQUEST)]
        assert session.stepped([gained("late")], 0.3) == []

    def test_steps_of_others_are_nothing_to_it(self) -> None:
        assert running().stepped([gained("a", SequenceId(77))], 0.1) == []


class TestCancel:
    def test_while_running(self) -> None:
        session = running()
        session.stepped([gained("a")], 0.1)
        ended = Ended(id=RequestId("r"), finish_reason="cancelled", usage=USAGE, rates=Rates())
        assert session.received(cancel("r"), 0.2) == [output(ended), Drop(ONE)]
        assert session.num_active == 0

    def test_while_being_prepared(self) -> None:
        session = live()
        session.received(start("r"), 0.0)
        ended = Ended(id=RequestId("r"), finish_reason="cancelled", usage=Usage(), rates=Rates())
        assert session.received(cancel("r"), 0.1) == [output(ended), Abandon(ONE)]
        assert session.prepared(ONE, PREPARED, 0.0) == []
        assert session.preparation_failed(ONE, InvalidRequest("no"), 0.2) == []

    def test_of_nothing_is_nothing(self) -> None:
        session = running()
        assert session.received(cancel("never"), 0.1) == []
        session.received(cancel("r"), 0.1)
        assert session.received(cancel("r"), 0.1) == []


class TestPulse:
    def test_speaks_when_there_was_nothing_to_say(self) -> None:
        session = live()
        assert session.next_deadline() == 1.0
        assert session.tick(0.5) == []
        assert session.tick(1.0) == [Send(Heartbeat())]
        assert session.next_deadline() == 2.0

    def test_whatever_is_sent_counts(self) -> None:
        session = running()
        session.stepped([gained("a")], 0.9)
        assert session.tick(1.5) == []

    @pytest.mark.parametrize("message", [Heartbeat(), Goodbye(), cancel("x"), start("s")])
    def test_whatever_is_heard_counts(self, message: FromBalancer) -> None:
        session = live()
        session.received(message, 4.0)
        assert not any(isinstance(each, Close) for each in session.tick(5.0))

    def test_a_silent_balancer_is_left(self) -> None:
        session = running()
        assert session.tick(5.0) == [Drop(ONE), Close("the balancer was silent for 5 s")]
        assert session.next_deadline() is None


class TestConnectionLost:
    def test_everything_is_dropped_and_the_slots_are_free(self) -> None:
        slots = Slots(2)
        session = running(slots=slots)
        session.received(start("s"), 0.0)
        assert session.disconnected() == [Drop(ONE), Abandon(TWO)]
        assert slots.num_busy == 0
        assert session.disconnected() == []

    def test_the_dead_stay_silent(self) -> None:
        session = running()
        session.disconnected()
        assert session.stepped([gained("a")], 0.1) == []
        assert session.received(start("s"), 0.1) == []
        assert session.read(b"junk", 0.1) == []
        assert session.tick(99.0) == []
        assert session.fail(EngineFailed("x"), 0.1) == []

    def test_the_next_connection_starts_afresh(self) -> None:
        session = running()
        session.disconnected()
        assert session.connected(7.0) == [Send(HELLO)]
        assert session.received(WELCOME, 7.0) == [MarkConnected()]
        assert session.received(start("r"), 7.0) == [Prepare(TWO, REQUEST)]


class TestSharedSlots:
    def test_one_balancers_requests_fill_the_others_slots(self) -> None:
        slots, numbers = Slots(1), ids()
        first, second = live(slots, numbers), live(slots, numbers)
        first.received(start("r"), 0.0)
        assert second.received(start("r"), 0.0) == [output(Busy(id=RequestId("r")))]

    def test_who_was_sent_away_hears_of_a_free_slot_once(self) -> None:
        slots, numbers = Slots(1), ids()
        first, second = live(slots, numbers), live(slots, numbers)
        first.received(start("r"), 0.0)
        second.received(start("s"), 0.0)
        assert second.slots_changed(0.1) == []
        first.received(cancel("r"), 0.2)
        assert second.slots_changed(0.2) == [Send(STATUS)]
        assert second.slots_changed(0.3) == []
        assert first.slots_changed(0.3) == []

    def test_sequences_have_different_ids(self) -> None:
        slots, numbers = Slots(2), ids()
        first, second = live(slots, numbers), live(slots, numbers)
        assert first.received(start("r"), 0.0) == [Prepare(ONE, REQUEST)]
        assert second.received(start("r"), 0.0) == [Prepare(TWO, REQUEST)]


class TestStored:
    def test_what_preparation_found_goes_to_the_engine_and_what_it_noticed_to_the_client(
        self,
    ) -> None:
        session = live()
        session.received(start("r"), 0.0)
        stored = StoredPrompt((1, 2), b"state")
        notice = Notice("prompt_cache", "torn")
        prepared = replace(PREPARED, stored=stored, notices=(notice,))
        told, run = session.prepared(ONE, prepared, 0.5)
        assert told == output(Noticed(id=RequestId("r"), code="prompt_cache", message="torn"))
        assert isinstance(run, Run)
        assert (run.sequence.stored, run.sequence.save_as) == (stored, None)


class TestSaving:
    REQUEST = replace(REQUEST, cache_key="k", save_cache=True)
    SAVED = StoredPrompt((1, 2, 3), b"state")
    ENDED = Ended(id=RequestId("r"), finish_reason="stop", usage=USAGE, rates=ENDED_RATES)

    def start(self, name: str) -> Start:
        return Start(id=RequestId(name), request=self.REQUEST)

    def running(self, slots: Slots | None = None, writers: Writers | None = None) -> Session:
        session = live(slots, writers=writers)
        session.received(self.start("r"), 0.0)
        [run] = session.prepared(ONE, PREPARED, 0.0)
        assert isinstance(run, Run) and run.sequence.save_as == "k"
        return session

    def saving(self, slots: Slots | None = None, writers: Writers | None = None) -> Session:
        session = self.running(slots, writers)
        end = SequenceEnd("stop", STATS, self.SAVED)
        assert session.stepped([gained("a", end=end)], 1.0) == [
            output(piece("r", "a")),
            Save(ONE, "k", self.SAVED),
        ]
        return session

    def test_the_end_waits_for_the_save(self) -> None:
        session = self.saving()
        assert session.num_active == 1
        assert session.saved(ONE, None, 2.0) == [output(self.ENDED)]
        assert session.num_active == 0

    def test_a_save_that_failed_is_a_notice(self) -> None:
        notice = Noticed(id=RequestId("r"), code="prompt_cache", message="disk full")
        session = self.saving()
        assert session.saved(ONE, Notice("prompt_cache", "disk full"), 2.0) == [
            output(notice, self.ENDED)
        ]

    def test_an_answer_that_a_stop_string_ends_is_finished_and_saved(self) -> None:
        session = self.running()
        told, finish = session.stepped([gained("a!")], 1.0)
        assert isinstance(told, Send) and finish == Finish(ONE)
        assert session.stepped([gained("b")], 1.1) == [], "nothing of what follows is told"
        end = SequenceEnd("stop", STATS, self.SAVED)
        assert session.stepped([gained("", end=end)], 1.2) == [Save(ONE, "k", self.SAVED)]
        [send] = session.saved(ONE, None, 2.0)
        assert isinstance(send, Send) and isinstance(send.message, Output)
        [ended] = send.message.items
        assert isinstance(ended, Ended)
        assert (ended.finish_reason, ended.usage.completion_tokens) == ("stop", 2)

    def test_an_engine_that_fails_before_it_could_save_is_a_notice(self) -> None:
        session = self.running()
        session.stepped([gained("a!")], 1.0)
        failed = SequenceEnd(EngineFailed("no"), STATS)
        [send] = session.stepped([gained("", end=failed)], 1.1)
        assert isinstance(send, Send) and isinstance(send.message, Output)
        assert [item.type for item in send.message.items] == ["noticed", "ended"]
        assert session.num_active == 0

    def test_an_answer_that_failed_is_not_saved(self) -> None:
        session = self.running()
        [send] = session.stepped([gained("", end=SequenceEnd(EngineFailed("no"), STATS))], 1.1)
        assert send == output(Refused(id=RequestId("r"), error=to_wire(EngineFailed("no"))))
        assert session.num_active == 0

    def test_a_key_has_one_writer_at_a_time_whatever_the_balancer(self) -> None:
        slots, writers = Slots(2), Writers()
        session, other = self.running(slots, writers), live(slots, writers=writers)
        [send] = other.received(self.start("s"), 0.0)
        assert isinstance(send, Send) and isinstance(send.message, Output)
        [refused] = send.message.items
        assert isinstance(refused, Refused)
        assert (refused.error.code, refused.error.field) == ("invalid_request", "save_cache")
        assert slots.num_free == 1
        session.received(cancel("r"), 0.0)
        assert isinstance(other.received(self.start("s"), 0.0)[0], Prepare)

    def test_the_key_is_held_until_it_is_written(self) -> None:
        writers = Writers()
        session = self.saving(writers=writers)
        assert not writers.claim("k")
        session.saved(ONE, None, 2.0)
        assert writers.claim("k")

    def test_those_that_only_load_may_be_several(self) -> None:
        session = self.running()
        request = replace(self.REQUEST, save_cache=False)
        [decision] = session.received(Start(id=RequestId("s"), request=request), 0.0)
        assert decision == Prepare(TWO, request)

    def test_cancelling_what_is_complete_changes_nothing(self) -> None:
        session = self.saving()
        assert session.received(cancel("r"), 1.5) == []
        assert session.saved(ONE, None, 2.0) == [output(self.ENDED)]

    def test_a_save_goes_on_without_its_connection_and_holds_slot_and_key(self) -> None:
        slots, writers = Slots(2), Writers()
        session = self.saving(slots, writers)
        assert session.disconnected() == []
        session.connected(2.0)
        session.received(WELCOME, 2.0)
        session.received(start("r"), 2.0)
        assert slots.num_free == 0
        assert session.saved(ONE, None, 3.0) == [], "another request goes by that name now"
        assert (slots.num_free, session.num_active) == (1, 1)
        assert writers.claim("k")

    def test_at_the_deadline_a_complete_answer_ends_well(self) -> None:
        session = self.saving()
        session.drain(1.0, 1.5)
        send, *rest = session.tick(1.5)
        assert send == output(self.ENDED)
        assert isinstance(rest[0], Close)
        assert session.saved(ONE, None, 2.0) == []

    def test_the_drain_waits_for_it(self) -> None:
        session = self.saving()
        session.drain(1.0, 31.0)
        assert isinstance(session.saved(ONE, None, 2.0)[-1], Close)


class TestDrain:
    NOT_ACCEPTING = Send(replace(STATUS, accepting=False))
    LEAVE = Close("the agent is shutting down")

    def test_with_nothing_to_do_leaves_at_once(self) -> None:
        assert live().drain(1.0, 31.0) == [self.NOT_ACCEPTING, self.LEAVE]

    def test_what_runs_goes_on_and_newcomers_go_elsewhere(self) -> None:
        session = running()
        assert session.drain(1.0, 31.0) == [self.NOT_ACCEPTING]
        assert session.received(start("s"), 1.1) == [output(Busy(id=RequestId("s")))]
        assert session.stepped([gained("a")], 1.2) == [output(piece("r", "a"))]
        _, leave = session.stepped([gained("", end=SequenceEnd("stop", STATS))], 1.3)
        assert leave == self.LEAVE
        assert session.is_offline

    def test_whatever_ends_the_last_request_lets_it_leave(self) -> None:
        cancelled = running()
        cancelled.drain(1.0, 31.0)
        assert cancelled.received(cancel("r"), 1.1)[-1] == self.LEAVE
        refused = live()
        refused.received(start("r"), 0.0)
        refused.drain(1.0, 31.0)
        assert refused.preparation_failed(ONE, InvalidRequest("no"), 1.1)[-1] == self.LEAVE

    def test_what_is_being_prepared_still_runs(self) -> None:
        session = live()
        session.received(start("r"), 0.0)
        session.drain(1.0, 31.0)
        assert isinstance(session.prepared(ONE, PREPARED, 0.0)[0], Run)

    def test_the_rest_ends_at_the_deadline(self) -> None:
        session = running()
        session.received(start("s"), 0.0)
        session.drain(1.0, 1.5)
        assert session.next_deadline() == 1.5
        send, *rest = session.tick(1.5)
        error = to_wire(ShuttingDown("the agent stopped before the answer was complete"))
        assert send == output(
            Refused(id=RequestId("r"), error=error), Refused(id=RequestId("s"), error=error)
        )
        assert rest[:2] == [Drop(ONE), Abandon(TWO)]
        assert isinstance(rest[2], Close)

    def test_without_a_connection_there_is_nothing_to_say(self) -> None:
        session = make()
        assert session.drain(1.0, 31.0) == []

    def test_before_the_welcome_it_leaves(self) -> None:
        session = make()
        session.connected(0.0)
        assert session.drain(1.0, 31.0) == [self.LEAVE]


def test_a_failed_engine_ends_everything() -> None:
    session = running()
    error = EngineFailed("the engine stopped")
    assert session.fail(error, 0.1) == [
        output(Refused(id=RequestId("r"), error=to_wire(error))),
        Drop(ONE),
        Close("the engine stopped"),
    ]


class TestFrames:
    def test_are_messages(self) -> None:
        assert live().read(encode_from_balancer(start("r")), 0.0) == [Prepare(ONE, REQUEST)]

    @pytest.mark.parametrize(
        ("frame", "finding"),
        [
            (b"{", "not valid JSON"),
            (b'{"type": "shrug"}', "type"),
            (b'{"type": "cancel"}', "`id` is missing"),
            (b'{"type": "cancel", "id": 7}', "`id`"),
            (b'{"type": "heartbeat", "mood": "good"}', "unknown field `mood`"),
            ("[]", ""),
        ],
    )
    def test_that_are_none_end_the_connection(self, frame: bytes | str, finding: str) -> None:
        session = running()
        drop, close = session.read(frame, 0.1)
        assert drop == Drop(ONE)
        assert isinstance(close, Close)
        assert close.reason.startswith("the balancer's frame: ")
        assert finding in close.reason

    @given(st.one_of(st.binary(), st.text()))
    def test_of_random_bytes_or_text_end_the_connection(self, frame: bytes | str) -> None:
        [close] = live().read(frame, 0.1)
        assert isinstance(close, Close)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["type", "id", "request", "prompt", "protocol", "retry"])
                    | st.text(max_size=5),
                    inner | st.sampled_from(["start", "cancel", "welcome", "reject", "heartbeat"]),
                    max_size=4,
                )
            ),
            max_leaves=8,
        )
    )
    def test_of_random_json_never_break_it(self, document: object) -> None:
        session = live()
        decisions: list[Decision] = session.read(json.dumps(document), 0.1)
        session.check_integrity()
        assert isinstance(decisions, list)
