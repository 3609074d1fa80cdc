"""What is written of requests: each event once, in order, and nothing of what was forgotten."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.durable import request_journal as journals
from arriero.balancer.durable.request_journal import Growth, JournalWrites, RequestJournal
from arriero.balancer.fleet.caller import ANONYMOUS, Caller
from arriero.balancer.fleet.requests.eligibility import Engine
from arriero.balancer.fleet.retained_record import AskedRequest, RetainedKey, RetainedRecord
from arriero.balancer.store.retained_records import RetainedOutcome
from arriero.shared.errors import ShuttingDown
from arriero.shared.inference import Done, Event, Failed, GenerateRequest, RequestId, Token
from tests.balancer.api.fake_runtime import done

ENGINE = Engine("m", "f")
ASKED = AskedRequest(GenerateRequest(prompt="x"), ANONYMOUS)
WELL = RetainedOutcome()
A, B = Token("a"), Token("b")


@dataclass
class Request:
    id: RequestId = field(default=RequestId("r"))
    events: list[Event] = field(default_factory=list)
    end: Done | Failed | None = None

    @property
    def record(self) -> RetainedRecord:
        return RetainedRecord(RetainedKey(None, self.id), self.id, b"", 1.0)

    def says(self, *events: Event) -> "Request":
        self.events += events
        if isinstance(events[-1], Done | Failed):
            self.end = events[-1]
        return self


class Journal(RequestJournal):
    """Knows whether it was told of anything urgent since the last write."""

    def __init__(self) -> None:
        super().__init__(lambda _: ENGINE, self._hear)
        self.is_urgent = False

    def _hear(self, is_urgent: bool) -> None:
        self.is_urgent = self.is_urgent or is_urgent

    def all_unwritten(self) -> JournalWrites:
        self.is_urgent = False
        assert bool(self.next_batch()) == self.has_any
        return self.unwritten(self.next_batch())

    def wrote(self, what: JournalWrites, outcome: RetainedOutcome = WELL) -> None:
        self.written((), (what, outcome))


def make_journal() -> Journal:
    return Journal()


def begun(request: Request) -> Journal:
    journal = make_journal()
    journal.begun(request, ASKED)
    journal.wrote(journal.all_unwritten())
    return journal


def grown(journal: Journal) -> list[Growth]:
    journal.check_integrity()
    return list(journal.all_unwritten().grown)


def test_what_is_cancelled_elsewhere_is_written_once() -> None:
    journal, request = make_journal(), Request()
    journal.cancelled(request)
    journal.cancelled(request)
    assert journal.is_urgent and len(journal) == 1
    what = journal.all_unwritten()
    assert what.cancelled == ("r",)
    journal.wrote(what)
    assert not journal.has_any and not journal.is_urgent


def test_who_waits_to_be_cancelled_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MAX_FORGOTTEN", 2)
    journal = make_journal()
    for id in "abc":
        journal.cancelled(Request(RequestId(id)))
    assert journal.all_unwritten().cancelled == ("b", "c")


def test_what_is_passed_on_is_released_once() -> None:
    journal = make_journal()
    journal.passed_on(RequestId("r"))
    journal.check_integrity()
    what = journal.all_unwritten()
    assert (what.released, what.forgotten) == (("r",), ())
    journal.wrote(what)
    assert not journal.has_any
    journal.check_integrity()


def test_a_new_request_is_urgent_and_tokens_are_not() -> None:
    journal, request = make_journal(), Request()
    journal.begun(request, ASKED)
    assert journal.is_urgent and journal.all_unwritten().begun[0].record == request.record
    journal.wrote(journal.all_unwritten())
    journal.grew(request.says(A))
    assert not journal.is_urgent and len(journal) == 1
    journal.grew(request.says(done()))
    assert journal.is_urgent


def test_events_that_come_during_a_write_are_in_the_next() -> None:
    request = Request()
    journal = begun(request)
    journal.grew(request.says(A))
    first = journal.all_unwritten()
    journal.grew(request.says(B))
    journal.wrote(first)
    assert grown(journal) == [Growth(request.id, 1, (B,), ENGINE, has_ended=False)]


def test_what_was_tried_in_vain_is_a_part_of_the_next_write() -> None:
    request = Request()
    journal = begun(request)
    journal.grew(request.says(A))
    journal.all_unwritten()
    journal.grew(request.says(done()))
    assert grown(journal) == [Growth(request.id, 0, (A, done()), ENGINE, has_ended=True)]
    journal.wrote(journal.all_unwritten())
    assert not journal.has_any and len(journal) == 0


def test_what_was_resumed_goes_on_behind_its_events() -> None:
    request, journal = Request().says(A), make_journal()
    journal.resumed(request)
    journal.grew(request.says(B))
    assert grown(journal) == [Growth(request.id, 1, (B,), ENGINE, has_ended=False)]


def test_what_was_given_up_has_no_end() -> None:
    request = Request()
    journal = begun(request)
    journal.gave_up(request.says(A, Failed(ShuttingDown("bye"))))
    assert grown(journal) == [Growth(request.id, 0, (A,), ENGINE, has_ended=False)]
    assert journal.all_unwritten().released == (request.id,)
    journal.wrote(journal.all_unwritten())
    assert not journal.has_any


@pytest.mark.parametrize("is_written", [True, False])
def test_of_what_was_forgotten_only_that_is_written(is_written: bool) -> None:
    request = Request()
    journal = begun(request) if is_written else make_journal()
    if not is_written:
        journal.begun(request, ASKED)
    journal.grew(request.says(A))
    during = journal.all_unwritten()
    journal.forgot(request)
    journal.grew(request.says(B))
    journal.wrote(during)
    assert journal.all_unwritten() == JournalWrites(forgotten=(request.id,))
    journal.check_integrity()


@pytest.mark.parametrize("outcome", ["unsaved", "lost"])
def test_what_is_anothers_is_written_no_more(outcome: str) -> None:
    request, journal = Request(), make_journal()
    journal.begun(request, ASKED)
    journal.wrote(journal.all_unwritten(), RetainedOutcome(**{outcome: frozenset({request.id})}))
    journal.grew(request.says(A, done()))
    assert not journal.has_any


def test_what_cannot_be_written_is_deleted_and_that_is_tried_once() -> None:
    request = Request()
    journal = begun(request)
    journal.lost(request.id)
    journal.grew(request.says(A))
    assert journal.all_unwritten() == JournalWrites(forgotten=(request.id,))
    journal.lost(request.id)
    assert not journal.has_any


def test_of_some_requests_only_theirs_is_written() -> None:
    journal = make_journal()
    for id in "ab":
        journal.begun(Request(RequestId(id)), ASKED)
    journal.passed_on(RequestId("b"))
    assert journal.next_batch() == ("a", "b")
    what = journal.unwritten([RequestId("b")])
    assert ([each.id for each in what.begun], what.released) == (["b"], ("b",))


def test_what_waits_while_the_store_is_away_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MAX_BEGUN", 4)
    monkeypatch.setattr(journals, "MAX_FORGOTTEN", 1)
    journal = make_journal()
    requests = [Request(RequestId(str(number))) for number in range(3)]
    for request in requests:
        journal.begun(request, ASKED)
        journal.grew(request.says(A))
    assert [each.id for each in journal.all_unwritten().begun] == ["0", "1"]
    assert journal.num_given_up == 1
    assert [each.id for each in grown(journal)] == ["0", "1"]
    for request in requests:
        journal.forgot(request)
    assert journal.all_unwritten() == JournalWrites(forgotten=(RequestId("2"),))
    assert journal.begun_bytes.total == journal.begun_counts.total == 0


def test_whoever_fills_the_room_while_the_store_is_away_leaves_others_theirs() -> None:
    journal = RequestJournal(lambda _: ENGINE, lambda _: None, most_bytes=10 * 2**20)
    for number in range(10):
        large = ASKED._replace(note=b"x" * 2**20, caller=Caller("ana"))
        journal.begun(Request(RequestId(f"ana-{number}")), large)
    journal.begun(Request(RequestId("ben")), ASKED._replace(caller=Caller("ben")))
    written = [each.id for each in journal.unwritten(journal.next_batch()).begun]
    assert written == [*(f"ana-{number}" for number in range(4)), "ben"]
    assert journal.begun_bytes.total < 10 * 2**20
    journal.check_integrity()


@given(st.lists(st.sampled_from(["say", "end", "write", "fail", "begin"]), max_size=30))
def test_each_event_is_written_once_and_in_order(steps: list[str]) -> None:
    request, journal = Request(), make_journal()
    journal.begun(request, ASKED)
    written: list[Event] = []
    trying: JournalWrites | None = None
    for number, step in enumerate([*steps, "begin", "write", "begin", "write"]):
        if step == "say" and request.end is None:
            journal.grew(request.says(Token(str(number))))
        elif step == "end" and request.end is None:
            journal.grew(request.says(done()))
        elif step == "begin" and trying is None:
            trying = journal.all_unwritten()
        elif step == "fail":
            trying = None
        elif step == "write" and trying is not None:
            for growth in trying.grown:
                assert growth.start == len(written)
                written += growth.events
            journal.wrote(trying)
            trying = None
        journal.check_integrity()
    assert written == request.events
