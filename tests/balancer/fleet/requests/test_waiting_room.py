import pytest

from arriero.balancer.fleet.decisions import Deliver, LinkId
from arriero.balancer.fleet.lifecycle import NotServed
from arriero.balancer.fleet.queue_full import RETRY_AFTER
from arriero.balancer.fleet.requests.dispatch.dispatch import Dispatch
from arriero.balancer.fleet.requests.eligibility import Engine, Offer
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.requests.waiting_room import (
    CHECK_PAUSE,
    MAX_MODELS,
    MAX_PER_PASS,
    MAX_RETRY_AFTER,
    PASS_PAUSE,
    READING_AFTER,
    REPEAT_AFTER,
    SlotTimes,
    WaitingRoom,
)
from arriero.shared.inference import Reading, RequestId, Waiting
from tests.balancer.fleet.builders import asking

P, Q, R = RequestId("p"), RequestId("q"), RequestId("r")
HERE: dict[str | int, Request] = {}


def unknown(_model: str | None) -> NotServed:
    return NotServed("no agent is connected")


def room(slots: int = 2) -> tuple[Dispatch, WaitingRoom]:
    """One agent whose slots are taken, and three requests that wait."""
    dispatch = Dispatch(max_buffered=3)
    dispatch.agent_joined(LinkId(1), Offer(model="m", slots=slots, is_accepting=True))
    for number in range(slots):
        HERE[number] = asking(str(number), "m")
        dispatch.enqueue(HERE[number])
    for each in (P, Q, R):
        HERE[each] = asking(each, "m")
        dispatch.enqueue(HERE[each])
    return dispatch, WaitingRoom(dispatch)


def test_places_without_an_estimate() -> None:
    _, waiting = room()
    assert [waiting.of(HERE[id], unknown) for id in (P, Q)] == [
        Waiting(1, "slot"),
        Waiting(2, "slot"),
    ]


def test_the_estimate_comes_from_how_long_requests_keep_their_slots() -> None:
    _, waiting = room(slots=2)
    waiting.freed_slot("m", 3.0)
    assert [waiting.of(HERE[id], unknown).seconds_left for id in (P, Q, R)] == [2.0, 3.0, 5.0]


def test_other_models_say_nothing_about_it() -> None:
    _, waiting = room()
    waiting.freed_slot("n", 3.0)
    assert waiting.of(HERE[P], unknown).seconds_left is None


def test_without_an_agent_the_wait_is_for_the_model() -> None:
    dispatch, waiting = room()
    waiting.freed_slot("m", 3.0)
    dispatch.agent_changed(LinkId(1), Offer(model=None, slots=0, is_accepting=True))
    assert waiting.of(HERE[Q], unknown) == Waiting(2, "model", None, "no agent is connected")
    loading = {"m": NotServed("agent a is still loading the model", 12.2)}
    assert waiting.of(HERE[Q], lambda model: loading[model or ""]) == Waiting(
        2, "model", 13.0, "agent a is still loading the model"
    )


def test_an_answer_that_goes_on_waits_for_its_engine() -> None:
    dispatch, waiting = room()
    waiting.freed_slot("m", 3.0)
    dispatch.bind(HERE[0], Engine("m", "f"))
    dispatch.came_back(HERE[0])
    assert waiting.of(HERE[0], unknown).what == "model"
    dispatch.agent_changed(LinkId(1), Offer(model="m", slots=1, fingerprint="f"))
    assert waiting.of(HERE[0], unknown) == Waiting(1, "slot", 3.0)
    assert waiting.of(HERE[P], unknown).position == 2


def test_who_listens_is_told_and_who_does_not_is_not() -> None:
    dispatch, waiting = room()
    waiting.admitted(HERE[P], None, 10.0)
    assert waiting.next_deadline() is None
    waiting.admitted(HERE[Q], 1.0, 10.0)
    assert waiting.next_deadline() == 11.0
    assert waiting.due(11.0, unknown) == [Deliver(Q, Waiting(2, "slot"))]
    assert waiting.due(12.0, unknown) == []
    dispatch.ended(HERE[P])
    assert waiting.due(13.0, unknown) == [Deliver(Q, Waiting(1, "slot"))]
    waiting.started(HERE[Q], 13.0)
    waiting.stops(HERE[Q])
    assert waiting.next_deadline() is None
    waiting.waits(HERE[Q], 20.0)
    assert waiting.due(21.0, unknown) == [Deliver(Q, Waiting(1, "slot"))]
    waiting.stops(HERE[Q])
    assert waiting.next_deadline() is None
    waiting.check_integrity()


def test_when_to_try_again() -> None:
    _, waiting = room(slots=2)
    assert waiting.retry_after("m") == RETRY_AFTER
    waiting.freed_slot("m", 16.0)
    assert waiting.retry_after("m") == 8.0
    for _ in range(100):
        waiting.freed_slot("m", 1e6)
    assert waiting.retry_after("m") == MAX_RETRY_AFTER


def test_nothing_is_known_before_a_request_has_ended() -> None:
    times = SlotTimes()
    assert times.mean("m") is None
    assert times.mean(None) is None


def test_the_mean_of_each_model_and_of_all() -> None:
    times = SlotTimes()
    for seconds in (2.0, 4.0):
        times.ended("m", seconds)
    times.ended("n", 9.0)
    assert times.mean("m") == pytest.approx(3.0)
    assert times.mean("n") == pytest.approx(9.0)
    assert times.mean(None) == pytest.approx(5.0)


def test_what_is_long_ago_counts_less() -> None:
    times = SlotTimes()
    for _ in range(100):
        times.ended("m", 1.0)
    for _ in range(50):
        times.ended("m", 10.0)
    mean = times.mean("m")
    assert mean is not None
    assert mean > 9


def test_the_models_are_bounded_and_those_in_use_stay() -> None:
    times = SlotTimes()
    for number in range(2 * MAX_MODELS):
        times.ended(f"m{number}", 1.0)
        times.ended("used", 2.0)
    assert len(times) == MAX_MODELS
    assert times.mean("used") == 2.0
    assert times.mean("m0") is None


def test_one_whose_prompt_is_read_for_long_hears_how_much_of_it_is_read() -> None:
    dispatch, waiting = room()
    waiting.admitted(HERE[P], 0.5, 10.0)
    dispatch.ended(HERE[0])
    waiting.started(HERE[P], 10.1)
    assert waiting.due(10.05 + READING_AFTER, unknown) == []
    assert waiting.due(15.2, unknown) == [Deliver(P, Reading())]
    waiting.reads(HERE[P], read := Reading(512, 7000, 12, 5.5))
    assert waiting.due(16.2, unknown) == [Deliver(P, read)]
    assert waiting.due(17.2, unknown) == []
    assert waiting.due(16.2 + REPEAT_AFTER, unknown) == [Deliver(P, read)]
    waiting.waits(HERE[P], 40.0)
    [deliver] = waiting.due(40.5, unknown)
    assert isinstance(deliver.event, Waiting)


def test_who_asks_for_it_hears_at_once_how_the_prompt_is_read() -> None:
    _, waiting = room()
    waiting.admitted(HERE[P], 0.0, 10.0)
    waiting.started(HERE[P], 10.1)
    assert waiting.due(10.1, unknown) == [Deliver(P, Reading())]


def test_a_client_hears_after_the_time_that_it_asked_for_and_then_of_changes() -> None:
    dispatch, waiting = room()
    assert waiting.next_deadline() is None
    waiting.admitted(HERE[Q], 5.0, 10.0)
    assert waiting.next_deadline() == 15.0
    assert waiting.due(14.9, unknown) == []
    assert waiting.due(15.0, unknown) == [Deliver(Q, Waiting(2, "slot"))]
    dispatch.ended(HERE[P])
    assert waiting.due(15.0 + CHECK_PAUSE - 0.1, unknown) == []
    told = [(now, each) for now in range(16, 47) for each in waiting.due(float(now), unknown)]
    second = Deliver(Q, Waiting(1, "slot"))
    assert told == [(16, second), (16 + REPEAT_AFTER, second), (16 + 2 * REPEAT_AFTER, second)]


def test_one_that_starts_in_time_hears_nothing() -> None:
    _, waiting = room()
    waiting.admitted(HERE[P], 0.5, 10.0)
    waiting.started(HERE[P], 10.2)
    waiting.stops(HERE[P])
    assert waiting.next_deadline() is None


def test_one_that_comes_back_hears_anew() -> None:
    _, waiting = room()
    waiting.admitted(HERE[P], 0.5, 10.0)
    first = Deliver(P, Waiting(1, "slot"))
    assert waiting.due(10.5, unknown) == [first]
    waiting.started(HERE[P], 10.55)
    waiting.waits(HERE[P], 10.6)
    assert waiting.due(11.4, unknown) == []
    assert waiting.due(10.5 + CHECK_PAUSE, unknown) == [first]


def test_a_pass_is_bounded_and_the_rest_has_its_turn_soon() -> None:
    num = 2 * MAX_PER_PASS + 1
    dispatch = Dispatch(max_buffered=num)
    waiting = WaitingRoom(dispatch)
    for number in range(num):
        request = asking(f"{number:04}")
        dispatch.enqueue(request)
        waiting.admitted(request, 0.0, 10.0)
    seen, now = [], 10.0
    while len(seen) < num:
        due = waiting.due(now, unknown)
        assert 0 < len(due) <= MAX_PER_PASS
        assert waiting.due(now, unknown) == []
        seen += [int(each.request) for each in due]
        deadline = waiting.next_deadline()
        assert deadline is not None
        assert deadline >= now + PASS_PAUSE
        now += PASS_PAUSE
        waiting.check_integrity()
    assert seen == list(range(num))
