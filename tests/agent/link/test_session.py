import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from itertools import count
from typing import Annotated

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.agent.generation.port import QueryId
from arriero.agent.link.decisions import (
    Allow,
    AnswerQuery,
    CancelGeneration,
    Close,
    Decision,
    DiscardGeneration,
    FailGeneration,
    GiveUp,
    KeepSecret,
    MarkConnected,
    Obey,
    Send,
    SendLog,
    StartGeneration,
    WithdrawQuery,
)
from arriero.agent.link.requests import Slots
from arriero.agent.link.session import (
    HANDSHAKE_TIMEOUT,
    LAST_WORDS,
    MAX_LOG_WAITS,
    MAX_OPEN_FITS,
    Session,
    bounded_hello,
    bounded_status,
)
from arriero.shared.errors import ShuttingDown
from arriero.shared.framing.heartbeat import SECOND_LOOK
from arriero.shared.inference import GenerateRequest, RequestId
from arriero.shared.inference.prefix_peers import Peer, PrefixSource
from arriero.shared.messages import (
    MAX_ISSUES,
    PROTOCOL_VERSION,
    Ask,
    Busy,
    Cancel,
    Evicted,
    FitRead,
    FromBalancer,
    Goodbye,
    Heartbeat,
    Hello,
    Issue,
    Item,
    Lend,
    LogRead,
    Output,
    ReadFit,
    ReadLog,
    Refused,
    Reject,
    Reply,
    Start,
    Status,
    Withdraw,
    decode_from_agent,
    encode_from_agent,
    encode_from_balancer,
)
from arriero.shared.models.assignments import Assign, Reload, Work
from arriero.shared.queries import Declined, Tokenize, Tokenized
from arriero.shared.reports.log_lines import LogLine
from arriero.shared.reports.model_info import ModelInfo
from arriero.shared.reports.statistics import Statistics
from arriero.shared.since import Since
from tests.agent.link.sessions import (
    ENDED,
    HELLO,
    ONE,
    REQUEST,
    STATUS,
    TWO,
    cancel,
    make_requests,
    make_session,
    piece,
    start,
    welcome,
)

WELCOME = welcome()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterHello(Hello):
    mood: Annotated[str | None, Since(4)] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaterStatus(Status):
    mood: Annotated[str | None, Since(PROTOCOL_VERSION)] = None


MODEL = ModelInfo(name="m", architecture="a", parameters=1, size_bytes=1, context_size=1)


def live(slots: Slots | None = None, numbers: Iterator[int] | None = None) -> Session:
    session = make_session(make_requests(slots=slots, numbers=numbers))
    session.connected(0.0)
    session.received(WELCOME, 0.0)
    return session


def running(*, slots: Slots | None = None) -> Session:
    session = live(slots)
    session.received(start("r"), 0.0)
    return session


def ended(name: str) -> Item:
    return replace(ENDED, id=RequestId(name))


STARTED = StartGeneration(ONE, Start(id=RequestId("r"), request=REQUEST))


def output(*items: Item) -> Send:
    return Send(Output(items=items))


class TestGreeting:
    def test_hello_comes_first(self) -> None:
        assert make_session().connected(0.0) == [Send(HELLO)]

    def test_welcome_lets_it_in(self) -> None:
        session = make_session()
        session.connected(0.0)
        assert session.received(WELCOME, 0.1) == [MarkConnected()]
        assert session.is_live

    def test_issues_that_change_are_told_at_once(self) -> None:
        session = live()
        status = replace(STATUS, issues=(Issue(code="engine_crashed", message="SIGABRT"),))
        assert session.status_changed(status, 0.2) == [Send(status)]
        assert session.status_changed(status, 0.2) == [], "that is known"
        assert session.status_changed(STATUS, 0.3) == [Send(STATUS)]

    def test_issues_that_changed_offline_are_told_after_the_welcome(self) -> None:
        session = make_session()
        status = replace(STATUS, issues=(Issue(code="engine_crashed", message="SIGABRT"),))
        session.connected(0.1)
        assert session.status_changed(status, 0.2) == []
        assert session.received(WELCOME, 0.3) == [MarkConnected(), Send(status)]

    def test_what_changed_offline_is_in_the_hello(self) -> None:
        session = make_session()
        status = replace(STATUS, slots=1, work=Work(revision=3))
        assert session.status_changed(status, 0.0) == []
        hello = replace(HELLO, slots=1, model=STATUS.model, work=Work(revision=3))
        assert session.connected(0.1) == [Send(hello)]

    def test_what_changed_since_the_hello_is_told_after_the_welcome(self) -> None:
        session = make_session()
        session.connected(0.0)
        status = replace(STATUS, work=Work(revision=3))
        assert session.status_changed(status, 0.1) == []
        assert session.received(WELCOME, 0.2) == [MarkConnected(), Send(status)]

    def test_takes_over_at_its_first_connection_only(self) -> None:
        session = make_session(hello=replace(HELLO, takes_over=True))
        assert session.connected(0.0) == [Send(replace(HELLO, takes_over=True))]
        session.disconnected()  # it was not let in
        assert session.connected(1.0) == [Send(replace(HELLO, takes_over=True))]
        session.received(WELCOME, 1.1)
        session.disconnected()
        assert session.connected(2.0) == [Send(HELLO)]

    def test_a_secret_is_kept_and_shown_where_it_was_given(self) -> None:
        session = make_session()
        session.connected(0.0)
        given = replace(WELCOME, secret="abc")
        assert session.received(given, 0.1) == [KeepSecret("abc"), MarkConnected()]
        session.disconnected()
        assert session.connected(1.0, "abc") == [Send(replace(HELLO, secret="abc"))]
        assert "abc" not in repr(replace(HELLO, secret="abc"))
        assert "abc" not in repr([given, KeepSecret("abc")])
        session.disconnected()
        assert session.connected(2.0) == [Send(HELLO)], "another balancer is not shown it"

    def test_issues_are_told_after_the_welcome(self) -> None:
        status = replace(STATUS, issues=(Issue(code="chat_template", message="line 1"),))
        session = make_session(status=status)
        session.connected(0.0)
        assert session.received(WELCOME, 0.1) == [MarkConnected(), Send(status)]

    def test_what_the_engine_did_is_told_after_the_welcome(self) -> None:
        session = make_session(status=replace(STATUS, issues=(Issue(code="c", message="m"),)))
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

    def test_what_left_the_cache_is_told_to_who_is_here(self) -> None:
        gone = Evicted(keys=(1, 2))
        assert live().evicted(gone, 0.5) == [Send(gone)]
        assert make_session().evicted(gone, 0.0) == []

    def test_another_version_ends_it_for_good(self) -> None:
        session = make_session()
        session.connected(0.0)
        [decision] = session.received(replace(WELCOME, protocol=PROTOCOL_VERSION + 1), 0.1)
        assert isinstance(decision, GiveUp)
        assert "install the same release on both" in decision.reason
        assert session.is_offline

    def test_a_rejection_for_good_once_the_oldest_version_was_offered(self) -> None:
        session = make_session(protocols=range(3, 6))
        for version in (5, 4):
            assert session.connected(0.0) == [Send(replace(HELLO, protocol=version))]
            assert session.received(Reject(reason="old", retry=False), 0.1) == [Close("old")]
        assert session.connected(0.0) == [Send(replace(HELLO, protocol=3))]
        assert session.received(Reject(reason="old", retry=False), 0.1) == [GiveUp("old")]

    def test_the_version_that_was_taken_is_spoken_until_the_link_ends(self) -> None:
        session = make_session(protocols=range(3, 6))
        session.connected(0.0)
        session.received(Reject(reason="old", retry=False), 0.1)
        session.connected(1.0)
        assert session.received(replace(WELCOME, protocol=4), 1.1) == [MarkConnected()]
        session.disconnected()
        assert session.connected(2.0) == [Send(replace(HELLO, protocol=5))], "it may be newer now"

    def test_the_hello_has_only_what_the_oldest_version_knows(self) -> None:
        """So that a balancer which speaks no other can read it, and says so."""
        hello = LaterHello(**{each.name: getattr(HELLO, each.name) for each in fields(HELLO)})
        session = make_session(hello=replace(hello, mood="good"), protocols=range(3, 6))
        assert session.connected(0.0) == [Send(replace(hello, protocol=5))]

    def test_an_older_balancer_is_sent_what_its_version_knows(self) -> None:
        moody = LaterStatus(slots=2, accepting=True, mood="good")
        for version, mood in ((PROTOCOL_VERSION - 1, None), (PROTOCOL_VERSION, "good")):
            session = make_session(protocols=range(version, version + 1))
            session.connected(0.0)
            session.received(replace(WELCOME, protocol=version), 0.1)
            assert session.status_changed(moody, 0.2) == [Send(replace(moody, mood=mood))]

    def test_the_hello_says_all_of_the_model(self) -> None:
        model = replace(MODEL, fingerprint="f")
        session = make_session(model=model)
        assert session.connected(0.0) == [Send(replace(HELLO, model=model))]
        assert session.received(WELCOME, 0.1) == [MarkConnected()]

    def test_a_rejection_for_now(self) -> None:
        session = make_session()
        session.connected(0.0)
        assert session.received(Reject(reason="full", retry=True), 0.1) == [Close("full")]

    @pytest.mark.parametrize("message", [start("r"), cancel("r")])
    def test_nothing_is_taken_before_the_welcome(self, message: FromBalancer) -> None:
        session = make_session()
        session.connected(0.0)
        [decision] = session.received(message, 0.1)
        assert isinstance(decision, Close)
        assert "before `welcome`" in decision.reason

    def test_a_second_welcome_is_an_error(self) -> None:
        session = running()
        assert session.received(WELCOME, 1.0) == [
            DiscardGeneration(ONE),
            Close("the balancer sent `welcome` twice"),
        ]

    def test_no_answer_to_hello_in_time(self) -> None:
        session = make_session()
        session.connected(3.0)
        assert session.next_deadline() == 3.0 + HANDSHAKE_TIMEOUT
        assert session.tick(3.0 + HANDSHAKE_TIMEOUT - 0.1) == []
        assert session.tick(3.0 + HANDSHAKE_TIMEOUT) == []
        [decision] = session.tick(3.0 + HANDSHAKE_TIMEOUT + SECOND_LOOK)
        assert isinstance(decision, Close)


class TestRequests:
    def test_go_from_start_to_end_in_frames(self) -> None:
        session = live()
        assert session.received(start("r"), 0.0) == [STARTED]
        assert session.produced((piece("r", "a"),), (), 0.1) == [output(piece("r", "a"))]
        assert session.produced((ENDED,), (ONE,), 0.2) == [output(ENDED)]
        assert session.num_active == 0

    def test_a_cancelled_one_ends_when_its_end_comes(self) -> None:
        session = running()
        assert session.received(cancel("r"), 0.2) == [CancelGeneration(ONE)]
        assert session.num_active == 1
        assert session.produced((ENDED,), (ONE,), 0.2) == [output(ENDED)]
        assert session.num_active == 0

    def test_a_live_id_that_is_started_again_ends_the_connection(self) -> None:
        session = running()
        assert session.received(start("r"), 0.1) == [
            DiscardGeneration(ONE),
            Close("the balancer started request r twice"),
        ]

    def test_one_whose_items_cannot_be_sent_is_discarded(self) -> None:
        session = running()
        assert session.unsendable(RequestId("r")) == [DiscardGeneration(ONE)]
        assert session.produced((), (ONE,), 0.1) == []
        assert session.num_active == 0


class TestLog:
    def test_is_told_when_asked_for(self) -> None:
        session = live()
        asked = ReadLog(id=RequestId("l"), after=5)
        assert session.received(asked, 0.0) == [SendLog(RequestId("l"), 5)]
        line = LogLine(number=6, at=1.0, level="info", text="x")
        told = Send(LogRead(id=RequestId("l"), lines=(line,)))
        assert session.read_own_log(RequestId("l"), (line,), 0.1) == [told]

    def test_a_read_that_waits_is_answered_by_the_first_lines(self) -> None:
        session = live()
        id = RequestId("l")
        assert session.received(ReadLog(id=id, after=5, wait=True), 0.0) == [SendLog(id, 5)]
        assert session.read_own_log(id, (), 0.1) == []
        assert session.awaits_log
        assert session.log_grew() == [SendLog(id, 5)]
        line = LogLine(number=6, at=1.0, level="info", text="x")
        assert session.read_own_log(id, (line,), 0.2) == [Send(LogRead(id=id, lines=(line,)))]
        assert not session.awaits_log
        assert session.log_grew() == []

    def test_reads_that_wait_are_bounded(self) -> None:
        session = live()
        for number in range(MAX_LOG_WAITS + 3):
            session.received(ReadLog(id=RequestId(str(number)), wait=True), 0.0)
        assert len(session.log_grew()) == MAX_LOG_WAITS
        last = RequestId(str(MAX_LOG_WAITS))
        assert session.read_own_log(last, (), 0.0), "answered at once, with no lines"

    def test_a_read_that_is_withdrawn_or_whose_balancer_is_gone_waits_no_more(self) -> None:
        session = live()
        asked = ReadLog(id=RequestId("l"), wait=True)
        session.received(asked, 0.0)
        session.received(Withdraw(id=RequestId("l")), 0.1)
        assert not session.awaits_log
        session.received(asked, 0.2)
        session.disconnected()
        assert not session.awaits_log

    def test_is_told_to_nobody_else(self) -> None:
        session = make_session()
        session.connected(0.0)
        assert session.read_own_log(RequestId("l"), (), 0.1) == []
        reason = "the balancer sent `read_log` before `welcome`"
        assert session.received(ReadLog(id=RequestId("l")), 0.0) == [Close(reason)]


class TestOrders:
    @pytest.mark.parametrize("order", [Assign(revision=1), Reload()])
    def test_are_obeyed(self, order: Assign | Reload) -> None:
        assert live().received(order, 0.0) == [Obey(order)]

    @pytest.mark.parametrize("order", [Assign(revision=1), Reload()])
    def test_before_the_welcome_end_the_connection(self, order: Assign | Reload) -> None:
        session = make_session()
        session.connected(0.0)
        reason = f"the balancer sent `{order.type}` before `welcome`"
        assert session.received(order, 0.0) == [Close(reason)]


class TestHost:
    def test_later_connections_say_how_many_agents_it_is(self) -> None:
        session = make_session()
        session.host_changed(3)
        [hello] = session.connected(0.0)
        assert isinstance(hello, Send)
        assert hello.message == replace(HELLO, num_places=3)


class TestFits:
    QUESTION = ReadFit(id=RequestId("f"), source="file:///m.gguf")

    def test_a_question_is_passed_on_and_its_answer_sent_once(self) -> None:
        session = live()
        assert session.received(self.QUESTION, 0.0) == [Obey(self.QUESTION)]
        read = FitRead(id=RequestId("f"), issue=Issue(code="gated", message="no"))
        assert session.fit_found(read, 0.1) == [Send(read)]
        assert session.fit_found(read, 0.2) == []

    def test_what_nobody_waits_for_is_not_sent(self) -> None:
        session, read = live(), FitRead(id=RequestId("f"))
        assert session.fit_found(read, 0.0) == []
        session.received(self.QUESTION, 0.0)
        session.received(Withdraw(id=RequestId("f")), 0.1)
        assert session.fit_found(read, 0.2) == []
        session.received(self.QUESTION, 0.3)
        session.disconnected()
        assert session.fit_found(read, 0.4) == []

    def test_open_ones_are_bounded(self) -> None:
        session = live()
        for number in range(MAX_OPEN_FITS):
            question = replace(self.QUESTION, id=RequestId(str(number)))
            assert session.received(question, 0.0) == [Obey(question)]
        [refused] = session.received(self.QUESTION, 0.0)
        assert isinstance(refused, Send)
        assert isinstance(refused.message, FitRead)
        assert refused.message.issue is not None
        assert (refused.message.id, refused.message.issue.code) == ("f", "busy")


class TestPeers:
    def test_a_ticket_is_passed_on(self) -> None:
        lend = Lend(ticket="t", seconds=5.0)
        assert live().received(lend, 0.0) == [Allow("t", 5.0)]

    def test_where_a_prefix_is_to_be_fetched_is_part_of_the_request(self) -> None:
        source = PrefixSource(address="h:1", ticket="t", seconds=5.0)
        start = Start(id=RequestId("r"), request=GenerateRequest(prompt="x"), fetch=source)
        [started] = live().received(start, 0.0)
        assert isinstance(started, StartGeneration) and started.start.fetch == source

    def test_a_peer_with_a_disk_is_told_with_the_hello(self) -> None:
        session = make_session()
        peer = Peer(address="h:1", tls=False, cells="c", cell_bytes=1)
        status = replace(STATUS, peer=peer, disk="d")
        assert session.status_changed(status, 0.1) == []
        hello = replace(HELLO, model=STATUS.model, peer=peer, disk="d")
        assert session.connected(0.2) == [Send(hello)]
        assert session.received(WELCOME, 0.3) == [MarkConnected()], "all is told"

    def test_a_peer_since_the_hello_is_told_after_the_welcome(self) -> None:
        session = make_session()
        session.connected(0.0)
        peer = Peer(address="h:1", tls=False, cells="c", cell_bytes=1)
        status = replace(STATUS, peer=peer)
        assert session.status_changed(status, 0.1) == []
        assert Send(status) in session.received(WELCOME, 0.2)


class TestPulse:
    def test_speaks_when_there_was_nothing_to_say(self) -> None:
        session = live()
        assert session.next_deadline() == 1.0
        assert session.tick(0.5) == []
        assert session.tick(1.0) == [Send(Heartbeat())]
        assert session.next_deadline() == 2.0

    def test_whatever_is_sent_counts(self) -> None:
        session = running()
        session.produced((piece("r", "a"),), (), 0.9)
        assert session.tick(1.5) == []

    @pytest.mark.parametrize("message", [Heartbeat(), Goodbye(), cancel("x"), start("s")])
    def test_whatever_is_heard_counts(self, message: FromBalancer) -> None:
        session = live()
        session.received(message, 4.0)
        assert not any(isinstance(each, Close) for each in session.tick(5.0))

    def test_a_piece_of_a_long_message_counts(self) -> None:
        session = live()
        session.heard(4.0)
        late = [*session.tick(5.0), *session.tick(5.0 + SECOND_LOOK)]
        assert not any(isinstance(each, Close) for each in late)

    def test_a_silent_balancer_is_left(self) -> None:
        session = running()
        assert session.tick(5.0) == [Send(Heartbeat())]
        late = 5.0 + SECOND_LOOK
        assert session.tick(late) == [
            DiscardGeneration(ONE),
            Close("the balancer was silent for 5 s"),
        ]
        assert session.next_deadline() is None


class TestConnectionLost:
    def test_everything_is_dropped_and_the_slots_are_free(self) -> None:
        slots = Slots(2)
        session = running(slots=slots)
        session.received(start("s"), 0.0)
        assert session.disconnected() == [DiscardGeneration(ONE), DiscardGeneration(TWO)]
        assert session.produced((), (ONE, TWO), 0.1) == []
        assert slots.num_busy == 0
        assert session.disconnected() == []

    def test_the_dead_stay_silent(self) -> None:
        session = running()
        session.disconnected()
        assert session.received(start("s"), 0.1) == []
        assert session.read(b"junk", 0.1) == []
        assert session.tick(99.0) == []
        assert session.engine_stopped("x") == []

    def test_the_next_connection_starts_afresh(self) -> None:
        session = running()
        session.disconnected()
        assert session.connected(7.0) == [Send(HELLO)]
        assert session.received(WELCOME, 7.0) == [MarkConnected()]
        assert session.received(start("r"), 7.0) == [StartGeneration(TWO, STARTED.start)]


class TestSharedSlots:
    def test_one_balancers_requests_fill_the_others_slots(self) -> None:
        slots, ids = Slots(1), count(1)
        first, second = live(slots, ids), live(slots, ids)
        first.received(start("r"), 0.0)
        assert second.received(start("r"), 0.0) == [output(Busy(id=RequestId("r")))]

    def test_who_was_sent_away_hears_of_a_free_slot_once(self) -> None:
        slots, ids = Slots(1), count(1)
        first, second = live(slots, ids), live(slots, ids)
        first.received(start("r"), 0.0)
        second.received(start("s"), 0.0)
        assert second.slots_changed(0.1) == []
        first.produced((ENDED,), (ONE,), 0.2)
        assert second.slots_changed(0.2) == [Send(STATUS)]
        assert second.slots_changed(0.3) == []
        assert first.slots_changed(0.3) == []

    def test_ids_are_different(self) -> None:
        slots, ids = Slots(2), count(1)
        first, second = live(slots, ids), live(slots, ids)
        assert first.received(start("r"), 0.0) == [STARTED]
        assert second.received(start("r"), 0.0) == [StartGeneration(TWO, STARTED.start)]


class TestSaving:
    """A request's end may come before its sequence is released."""

    def test_cancelling_what_was_never_sent_whole_is_answered(self) -> None:
        session = live()
        unsent = Cancel(id=RequestId("r"), is_unsent=True)
        [send] = session.received(unsent, 0.1)
        assert isinstance(send, Send) and isinstance(send.message, Output)
        [refused] = send.message.items
        assert isinstance(refused, Refused)
        assert refused.error.code == "cancelled"
        session.received(start("r"), 0.2)
        assert session.received(unsent, 0.3) == [CancelGeneration(ONE)]

    def test_goes_on_without_its_connection_and_holds_its_slot(self) -> None:
        slots = Slots(2)
        session = running(slots=slots)
        assert session.disconnected() == [DiscardGeneration(ONE)]
        session.connected(2.0)
        session.received(WELCOME, 2.0)
        session.received(start("r"), 2.0)
        assert slots.num_free == 0
        assert session.produced((), (ONE,), 3.0) == [], "another request goes by that name now"
        assert (slots.num_free, session.num_active) == (1, 1)


class TestDrain:
    NOT_ACCEPTING = Send(replace(STATUS, accepting=False))
    LEAVE = Close("the agent is shutting down")

    def test_with_nothing_to_do_leaves_at_once(self) -> None:
        assert live().drain(1.0, 31.0) == [self.NOT_ACCEPTING, self.LEAVE]

    def test_what_runs_goes_on_and_newcomers_go_elsewhere(self) -> None:
        session = running()
        assert session.drain(1.0, 31.0) == [self.NOT_ACCEPTING]
        assert session.received(start("s"), 1.1) == [output(Busy(id=RequestId("s")))]
        assert session.produced((piece("r", "a"),), (), 1.2) == [output(piece("r", "a"))]
        assert session.produced((ENDED,), (ONE,), 1.3) == [output(ENDED), self.LEAVE]
        assert session.is_offline

    def test_the_last_one_discarded_lets_it_leave(self) -> None:
        session = running()
        session.drain(1.0, 31.0)
        assert session.unsendable(RequestId("r")) == [DiscardGeneration(ONE), self.LEAVE]

    def test_the_rest_ends_at_the_deadline(self) -> None:
        session = running()
        session.received(start("s"), 0.0)
        session.drain(1.0, 1.5)
        assert session.next_deadline() == 1.5
        error = ShuttingDown("the agent stopped before the answer was complete")
        assert session.tick(1.5) == [FailGeneration(ONE, error), FailGeneration(TWO, error)]
        assert session.produced((ENDED,), (ONE,), 1.5) == [output(ENDED)]
        assert session.produced((ended("s"),), (TWO,), 1.5) == [
            output(ended("s")),
            Close("the agent stopped before the answer was complete"),
        ]

    def test_ends_that_do_not_come_are_not_waited_for(self) -> None:
        session = running()
        session.drain(1.0, 1.5)
        session.tick(1.5)
        session.tick(2.0)
        assert session.next_deadline() == 1.5 + LAST_WORDS
        assert session.tick(1.5 + LAST_WORDS) == [
            DiscardGeneration(ONE),
            Close("the agent stopped before the answer was complete"),
        ]

    def test_without_a_connection_there_is_nothing_to_say(self) -> None:
        session = make_session()
        assert session.drain(1.0, 31.0) == []

    def test_before_the_welcome_it_leaves(self) -> None:
        session = make_session()
        session.connected(0.0)
        assert session.drain(1.0, 31.0) == [self.LEAVE]


def test_with_a_stopped_engine_it_leaves_at_once_so_that_requests_move() -> None:
    session = running()
    assert session.engine_stopped("gone") == [
        DiscardGeneration(ONE),
        Close("gone", is_failure=True),
    ]
    assert session.produced((), (ONE,), 0.1) == []
    assert session.is_offline


class TestQueries:
    ASK = Ask(id=RequestId("q"), query=Tokenize(text="x"))
    ID = QueryId(101)
    REPLY = Reply(id=RequestId("q"), result=Tokenized(tokens=(1,)))

    def asked(self) -> Session:
        session = live(Slots(1))
        assert session.received(self.ASK, 0.0) == [AnswerQuery(self.ID, self.ASK.query)]
        return session

    def test_are_answered_without_a_slot(self) -> None:
        session = self.asked()
        assert session.received(start("r"), 0.1) == [STARTED]
        assert session.answered(self.ID, self.REPLY.result, 0.2) == [Send(self.REPLY)]
        assert session.next_deadline() == 1.2, "it spares a heartbeat"

    def test_may_be_withdrawn(self) -> None:
        session = self.asked()
        assert session.received(Withdraw(id=self.ASK.id), 0.1) == [WithdrawQuery(self.ID)]
        assert session.received(Withdraw(id=self.ASK.id), 0.1) == []
        assert session.answered(self.ID, self.REPLY.result, 0.2) == []

    def test_go_with_their_connection(self) -> None:
        session = self.asked()
        assert session.disconnected() == [WithdrawQuery(self.ID)]
        assert session.answered(self.ID, self.REPLY.result, 0.2) == []

    def test_one_that_is_asked_again_ends_the_connection(self) -> None:
        withdraw, close = self.asked().received(self.ASK, 0.1)
        assert withdraw == WithdrawQuery(self.ID)
        assert close == Close("the balancer asked query q twice")

    def test_an_agent_that_drains_answers_what_it_has_and_takes_no_more(self) -> None:
        session = self.asked()
        assert session.drain(1.0, 31.0) == [TestDrain.NOT_ACCEPTING]
        [send] = session.received(Ask(id=RequestId("late"), query=self.ASK.query), 1.1)
        assert isinstance(send, Send) and isinstance(send.message, Reply)
        assert isinstance(send.message.result, Declined)
        assert send.message.result.error.code == "shutting_down"
        assert session.answered(self.ID, self.REPLY.result, 1.2) == [
            Send(self.REPLY),
            TestDrain.LEAVE,
        ]

    def test_the_last_one_withdrawn_lets_it_leave(self) -> None:
        session = self.asked()
        session.drain(1.0, 31.0)
        assert session.received(Withdraw(id=self.ASK.id), 1.1)[-1] == TestDrain.LEAVE

    def test_a_stopped_engine_answers_none(self) -> None:
        left = self.asked().engine_stopped("gone")
        assert left == [WithdrawQuery(self.ID), Close("gone", is_failure=True)]


class TestFrames:
    def test_are_messages(self) -> None:
        assert live().read(encode_from_balancer(start("r")), 0.0) == [STARTED]

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
        discard, close = session.read(frame, 0.1)
        assert discard == DiscardGeneration(ONE)
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


LOADED = Status(slots=1, accepting=True, model=MODEL)


def test_what_files_and_servers_say_is_short_enough_to_be_sent() -> None:
    whole = replace(MODEL, architecture="a" * 999, parameters=2**60, context_size=2**40)
    issue = Issue(code="c", message="m" * 10**5, hint="h" * 10**5)
    told = bounded_status(replace(LOADED, model=whole, issues=(issue,) * 99))
    assert decode_from_agent(encode_from_agent(told)) == told
    assert len(told.issues) == MAX_ISSUES
    hello = bounded_hello(replace(HELLO, model=whole, loading=whole))
    assert decode_from_agent(encode_from_agent(hello)) == hello


def test_what_is_within_bounds_is_sent_as_it_is() -> None:
    status = replace(LOADED, issues=(Issue(code="c", message="m", hint="h", adapter="a"),))
    assert bounded_status(status) == status
    assert bounded_hello(replace(HELLO, model=MODEL)) == replace(HELLO, model=MODEL)
