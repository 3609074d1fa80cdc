from dataclasses import replace

from arriero.agent.engine.prompt_store.writers import Writers
from arriero.agent.engine.sequence import NewSequence, SequenceEnd, SequenceId
from arriero.agent.link.active_request import Change
from arriero.agent.link.decisions import Abandon, Drop, Prepare, Run
from arriero.agent.link.requests import Requests
from arriero.agent.link.slots import Slots
from arriero.shared.errors import EngineFailed, InvalidRequest, to_wire
from arriero.shared.inference import Rates, RequestId, Usage
from arriero.shared.messages import Busy, Ended, Refused
from tests.agent.link.sessions import (
    ENDED,
    ONE,
    PREPARED,
    REQUEST,
    SAVING,
    STATS,
    TWO,
    USAGE,
    gained,
    make_requests,
    numbers,
    piece,
    prompt_read,
    start,
)

R, S = RequestId("r"), RequestId("s")


def running(slots: Slots | None = None, writers: Writers | None = None) -> Requests:
    requests = make_requests(slots=slots, writers=writers)
    requests.start(start("r"))
    requests.prepared(ONE, PREPARED)
    return requests


class TestOneRequest:
    def test_is_prepared_run_and_answered(self) -> None:
        slots = Slots(2)
        requests = make_requests(slots=slots)
        assert requests.start(start("r")) == Change((), (Prepare(ONE, REQUEST),))
        assert slots.num_busy == 1
        sequence = NewSequence(
            id=ONE,
            prompt=(1, 2, 3),
            max_tokens=9,
            sampling=PREPARED.sampling,
            priority=3,
            shift=PREPARED.shift,
            prefill_only=True,
        )
        assert requests.prepared(ONE, PREPARED) == Change((), (Run(sequence),))
        assert requests.stepped([gained("a")]) == Change((piece("r", "a"),))
        end = SequenceEnd("length", STATS)
        assert requests.stepped([gained("", end=end)]) == Change(
            (prompt_read("r"), replace(ENDED, finish_reason="length"))
        )
        assert slots.num_busy == 0

    def test_one_that_cannot_be_prepared_is_refused(self) -> None:
        requests = make_requests()
        requests.start(start("r"))
        error = InvalidRequest("no", field="prompt")
        refused = Refused(id=R, error=to_wire(error))
        assert requests.preparation_failed(ONE, error) == Change((refused,))
        assert len(requests) == 0

    def test_after_a_stop_string_nothing_comes(self) -> None:
        requests = running()
        assert requests.stepped([gained("a!b")]).decisions == (Drop(ONE),)
        assert requests.stepped([gained("more")]) == Change()


class TestManyRequests:
    def test_a_step_is_one_frame_whatever_is_in_it(self) -> None:
        requests = running()
        requests.start(start("s"))
        requests.prepared(TWO, PREPARED)
        error = EngineFailed("lost")
        failed = gained("", TWO, end=SequenceEnd(error, STATS))
        assert requests.stepped([gained("a"), failed]) == Change(
            (piece("r", "a"), Refused(id=S, error=to_wire(error)))
        )

    def test_more_than_there_are_slots_are_turned_away(self) -> None:
        requests = running(Slots(1))
        assert requests.start(start("s")) == Change((Busy(id=S),))
        assert S not in requests

    def test_who_was_turned_away_hears_of_room_once(self) -> None:
        requests = running(Slots(1))
        assert not requests.has_room_again()
        requests.start(start("s"))
        assert not requests.has_room_again()
        requests.cancel(R)
        assert requests.has_room_again()
        assert not requests.has_room_again()

    def test_an_id_may_come_again_after_its_end(self) -> None:
        requests = running()
        requests.cancel(R)
        assert requests.start(start("r")).decisions == (Prepare(TWO, REQUEST),)
        assert requests.stepped([gained("late")]) == Change()

    def test_steps_of_others_are_nothing_to_it(self) -> None:
        assert running().stepped([gained("a", SequenceId(77))]) == Change()


class TestCancel:
    def test_while_running(self) -> None:
        requests = running()
        requests.stepped([gained("a")])
        ended = Ended(id=R, finish_reason="cancelled", usage=USAGE, rates=Rates())
        assert requests.cancel(R) == Change((ended,), (Drop(ONE),))
        assert len(requests) == 0

    def test_while_being_prepared(self) -> None:
        requests = make_requests()
        requests.start(start("r"))
        ended = Ended(id=R, finish_reason="cancelled", usage=Usage(), rates=Rates())
        assert requests.cancel(R) == Change((ended,), (Abandon(ONE),))
        assert requests.prepared(ONE, PREPARED) == Change()
        assert requests.preparation_failed(ONE, InvalidRequest("no")) == Change()

    def test_of_nothing_is_nothing(self) -> None:
        requests = running()
        assert requests.cancel(RequestId("never")) == Change()
        requests.cancel(R)
        assert requests.cancel(R) == Change()


class TestTheEndOfAll:
    def test_everything_is_dropped_and_the_slots_are_free(self) -> None:
        slots = Slots(2)
        requests = running(slots)
        requests.start(start("s"))
        assert requests.forget_all() == [Drop(ONE), Abandon(TWO)]
        assert (slots.num_busy, requests.is_awaited) == (0, False)
        assert requests.forget_all() == []

    def test_failing_answers_everyone(self) -> None:
        requests = running()
        requests.start(start("s"))
        error = EngineFailed("gone")
        assert requests.fail_all(error) == (
            Refused(id=R, error=to_wire(error)),
            Refused(id=S, error=to_wire(error)),
        )


class TestKeys:
    def test_have_one_writer_at_a_time_whatever_the_balancer(self) -> None:
        slots, writers, ids = Slots(2), Writers(), numbers()
        one = make_requests(slots=slots, writers=writers, sequence_ids=ids)
        other = make_requests(slots=slots, writers=writers, sequence_ids=ids)
        one.start(start("r", SAVING))
        [refused] = other.start(start("s", SAVING)).items
        assert isinstance(refused, Refused)
        assert (refused.error.code, refused.error.field) == ("invalid_request", "save_cache")
        assert slots.num_free == 1
        one.cancel(R)
        assert other.start(start("s", SAVING)).decisions == (Prepare(TWO, SAVING),)

    def test_may_have_several_readers(self) -> None:
        requests = make_requests()
        requests.start(start("r", SAVING))
        reading = replace(SAVING, save_cache=False)
        assert requests.start(start("s", reading)).decisions == (Prepare(TWO, reading),)

    def test_are_held_until_they_are_written(self) -> None:
        writers = Writers()
        requests = make_requests(writers=writers)
        requests.start(start("r", SAVING))
        assert not writers.claim("k")
        requests.preparation_failed(ONE, InvalidRequest("no"))
        assert writers.claim("k")
