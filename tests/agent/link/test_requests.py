from dataclasses import replace

import pytest

from arriero.agent.link.decisions import (
    CancelGeneration,
    DiscardGeneration,
    FailGeneration,
    StartGeneration,
)
from arriero.agent.link.requests import Requests, Slots
from arriero.shared.continuation import Continuation
from arriero.shared.errors import EngineFailed
from arriero.shared.inference import RequestId
from arriero.shared.messages import Busy, Start
from tests.agent.link.sessions import ENDED, ONE, REQUEST, TWO, make_requests, piece, start

R, S = RequestId("r"), RequestId("s")


def running(slots: Slots | None = None) -> Requests:
    requests = make_requests(slots=slots)
    requests.accept(start("r"))
    return requests


class TestSlots:
    def test_as_many_are_taken_as_there_are(self) -> None:
        slots = Slots(2)
        assert [slots.take() for _ in range(3)] == [True, True, False]
        assert (slots.num_busy, slots.num_free) == (2, 0)

    def test_one_that_was_freed_serves_again(self) -> None:
        slots = Slots(1)
        slots.take()
        slots.free()
        assert slots.num_free == 1
        assert slots.take()

    def test_none_is_freed_that_was_not_taken(self) -> None:
        with pytest.raises(RuntimeError):
            Slots(1).free()

    def test_none_is_free_where_there_is_no_room_for_anything_new(self) -> None:
        room = [True]
        slots = Slots(2, lambda: room[0])
        assert slots.take()
        room[0] = False
        assert (slots.num_free, slots.take(), slots.num_busy) == (0, False, 1)
        room[0] = True
        assert slots.take()


class TestOneRequest:
    def test_is_started_and_answered(self) -> None:
        slots = Slots(2)
        requests = make_requests(slots=slots)
        assert requests.accept(start("r")) == StartGeneration(ONE, Start(id=R, request=REQUEST))
        assert slots.num_busy == 1
        requests.produced([piece("r", "a")], [])
        assert R in requests
        requests.produced([ENDED], [ONE])
        assert R not in requests
        assert slots.num_busy == 0

    def test_is_started_where_another_agent_stopped(self) -> None:
        continuation = Continuation.after((1, 2), num_characters=3)
        message = replace(start("r"), continuation=continuation)
        started = StartGeneration(ONE, Start(id=R, request=REQUEST, continuation=continuation))
        assert make_requests().accept(message) == started

    def test_whose_save_goes_on_keeps_its_slot(self) -> None:
        slots = Slots(2)
        requests = running(slots)
        requests.produced([ENDED], [])
        assert (R in requests, len(requests), slots.num_busy) == (False, 1, 1)
        requests.produced([], [ONE])
        assert (len(requests), slots.num_busy) == (0, 0)

    def test_a_sequence_is_released_once(self) -> None:
        requests = running()
        requests.produced([ENDED], [ONE])
        with pytest.raises(KeyError):
            requests.produced([], [ONE])


class TestManyRequests:
    def test_more_than_there_are_slots_are_turned_away(self) -> None:
        requests = running(Slots(1))
        assert requests.accept(start("s")) == Busy(id=S)
        assert S not in requests

    def test_who_was_turned_away_hears_of_room_once(self) -> None:
        requests = running(Slots(1))
        assert not requests.has_room_again()
        requests.accept(start("s"))
        assert not requests.has_room_again()
        requests.produced([ENDED], [ONE])
        assert requests.has_room_again()
        assert not requests.has_room_again()

    def test_a_balancer_that_was_turned_away_and_left_is_not_told_of_room(self) -> None:
        """Its next connection begins with `hello`, which says how many slots there are."""
        requests = running(Slots(1))
        requests.accept(start("s"))
        requests.discard_all()
        requests.produced([], [ONE])
        assert not requests.has_room_again()

    def test_an_id_may_come_again_after_its_end(self) -> None:
        requests = running()
        requests.produced([ENDED], [ONE])
        assert requests.accept(start("r")) == StartGeneration(TWO, Start(id=R, request=REQUEST))


class TestTheEnd:
    def test_is_asked_for_while_the_request_runs(self) -> None:
        requests = running()
        assert requests.cancel(R) == [CancelGeneration(ONE)]
        requests.produced([ENDED], [ONE])
        assert requests.cancel(R) == []
        assert requests.cancel(RequestId("never")) == []

    def test_of_all_when_the_balancer_is_gone(self) -> None:
        requests = running()
        requests.accept(start("s"))
        assert requests.discard_all() == [DiscardGeneration(ONE), DiscardGeneration(TWO)]
        assert not requests.is_awaited
        assert requests.discard_all() == []

    def test_of_all_when_nothing_can_go_on(self) -> None:
        requests = running()
        requests.accept(start("s"))
        error = EngineFailed("gone")
        assert requests.fail_all(error) == [FailGeneration(ONE, error), FailGeneration(TWO, error)]
        assert requests.is_awaited

    def test_of_what_could_not_be_sent(self) -> None:
        requests = running()
        assert requests.discard(R) == [DiscardGeneration(ONE)]
        assert requests.discard(R) == []
