import pytest

from arriero.balancer.fleet.decisions import Deliver, LinkId
from arriero.balancer.fleet.lifecycle import NotServed
from arriero.balancer.fleet.load_shedding import RETRY_AFTER
from arriero.balancer.fleet.requests.dispatch.dispatch import Dispatch
from arriero.balancer.fleet.requests.eligibility import Engine, Offer, RoutingRequest
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
    WaitingUpdates,
)
from arriero.shared.inference import Reading, RequestId, Waiting

P, Q, R = RequestId("p"), RequestId("q"), RequestId("r")


def unknown(_model: str | None) -> NotServed:
    return NotServed("no agent is connected")


def room(slots: int = 2) -> tuple[Dispatch, WaitingRoom]:
    """One agent whose slots are taken, and three requests that wait."""
    dispatch = Dispatch(max_buffered=3)
    dispatch.agent_joined(LinkId(1), Offer(model="m", slots=slots, is_accepting=True))
    for number in range(slots):
        dispatch.enqueue(RequestId(str(number)), RoutingRequest(model="m"))
    for id in (P, Q, R):
        dispatch.enqueue(id, RoutingRequest(model="m"))
    return dispatch, WaitingRoom(dispatch)


def test_places_without_an_estimate() -> None:
    _, waiting = room()
    assert [waiting.of(id, unknown) for id in (P, Q)] == [Waiting(1, "slot"), Waiting(2, "slot")]


def test_the_estimate_comes_from_how_long_requests_keep_their_slots() -> None:
    _, waiting = room(slots=2)
    waiting.freed_slot("m", 3.0)
    assert [waiting.of(id, unknown).seconds_left for id in (P, Q, R)] == [2.0, 3.0, 5.0]


def test_other_models_say_nothing_about_it() -> None:
    _, waiting = room()
    waiting.freed_slot("n", 3.0)
    assert waiting.of(P, unknown).seconds_left is None


def test_without_an_agent_the_wait_is_for_the_model() -> None:
    dispatch, waiting = room()
    waiting.freed_slot("m", 3.0)
    dispatch.agent_changed(LinkId(1), Offer(model=None, slots=0, is_accepting=True))
    assert waiting.of(Q, unknown) == Waiting(2, "model", None, "no agent is connected")
    loading = {"m": NotServed("agent a is still loading it", 12.2)}
    assert waiting.of(Q, lambda model: loading[model or ""]) == Waiting(
        2, "model", 13.0, "agent a is still loading it"
    )


def test_an_answer_that_goes_on_waits_for_its_engine() -> None:
    dispatch, waiting = room()
    waiting.freed_slot("m", 3.0)
    dispatch.bind(RequestId("0"), Engine("m", "f"))
    dispatch.came_back(RequestId("0"))
    assert waiting.of(RequestId("0"), unknown).what == "model"
    dispatch.agent_changed(LinkId(1), Offer(model="m", slots=1, fingerprint="f"))
    assert waiting.of(RequestId("0"), unknown) == Waiting(1, "slot", 3.0)
    assert waiting.of(P, unknown).position == 2


def test_who_listens_is_told_and_who_does_not_is_not() -> None:
    dispatch, waiting = room()
    waiting.admitted(P, None, 10.0)
    assert waiting.next_deadline() is None
    waiting.admitted(Q, 1.0, 10.0)
    assert waiting.next_deadline() == 11.0
    assert waiting.due(11.0, unknown) == [Deliver(Q, Waiting(2, "slot"))]
    assert waiting.due(12.0, unknown) == []
    dispatch.ended(P)
    assert waiting.due(13.0, unknown) == [Deliver(Q, Waiting(1, "slot"))]
    waiting.started(Q, 13.0)
    waiting.began(Q)
    assert waiting.next_deadline() is None
    waiting.came_back(Q, 20.0)
    assert waiting.due(21.0, unknown) == [Deliver(Q, Waiting(1, "slot"))]
    waiting.forget(Q)
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


R = RequestId("r")
FIRST, SECOND = Waiting(2, "slot"), Waiting(1, "slot")


def listening(after: float = 0.5) -> WaitingUpdates:
    updates = WaitingUpdates()
    updates.listens(R, after)
    updates.waits(R, 10.0)
    return updates


def test_there_is_nothing_to_do_while_nobody_listens() -> None:
    updates = WaitingUpdates()
    updates.waits(R, 10.0)
    assert updates.next_deadline() is None
    assert updates.due(99.0) == []


def test_the_first_word_comes_after_the_time_that_was_asked_for() -> None:
    updates = listening(after=5.0)
    assert updates.next_deadline() == 15.0
    assert updates.due(14.9) == []
    assert updates.due(15.0) == [R]


def test_one_that_starts_in_time_hears_nothing() -> None:
    updates = listening()
    updates.starts(R, 10.2)
    updates.began(R)
    assert updates.next_deadline() is None


def test_one_whose_prompt_is_read_for_long_hears_how_much_of_it_is_read() -> None:
    dispatch, waiting = room()
    waiting.admitted(P, 0.5, 10.0)
    dispatch.ended(RequestId("0"))
    waiting.started(P, 10.1)
    assert waiting.next_deadline() == 10.1 + READING_AFTER
    assert waiting.due(15.2, unknown) == [Deliver(P, Reading())]
    waiting.reads(P, read := Reading(512, 7000, 12, 5.5))
    assert waiting.due(16.2, unknown) == [Deliver(P, read)]
    assert waiting.due(17.2, unknown) == []
    assert waiting.due(16.2 + REPEAT_AFTER, unknown) == [Deliver(P, read)]
    waiting.came_back(P, 40.0)
    [deliver] = waiting.due(40.5, unknown)
    assert isinstance(deliver.event, Waiting)


def test_who_asks_for_it_hears_at_once_how_the_prompt_is_read() -> None:
    _, waiting = room()
    waiting.admitted(P, 0.0, 10.0)
    waiting.started(P, 10.1)
    assert waiting.next_deadline() == 10.1


def test_a_change_is_told_once_a_second_at_most() -> None:
    updates = listening()
    assert updates.due(10.5) == [R]
    assert updates.must_send(R, FIRST, 10.5)
    assert updates.due(10.5 + CHECK_PAUSE - 0.1) == []
    assert updates.due(10.5 + CHECK_PAUSE) == [R]
    assert updates.must_send(R, SECOND, 10.5 + CHECK_PAUSE)


def test_the_same_is_told_again_after_a_while() -> None:
    updates = listening()
    now = 10.5
    told = []
    while now < 10.5 + 2 * REPEAT_AFTER:
        for id in updates.due(now):
            if updates.must_send(id, FIRST, now):
                told.append(now)
        now += CHECK_PAUSE
    assert told == [10.5, 10.5 + REPEAT_AFTER]


def test_one_that_comes_back_hears_anew() -> None:
    updates = listening()
    updates.due(10.5)
    updates.must_send(R, FIRST, 10.5)
    updates.starts(R, 10.55)
    updates.waits(R, 10.6)
    assert updates.next_deadline() == 10.5 + CHECK_PAUSE
    assert updates.due(11.5) == [R]
    assert updates.must_send(R, FIRST, 11.5)


def test_a_pass_is_bounded_and_the_rest_has_its_turn_soon() -> None:
    updates = WaitingUpdates()
    ids = [RequestId(f"{number:04}") for number in range(2 * MAX_PER_PASS + 1)]
    for id in ids:
        updates.listens(id, 0.0)
        updates.waits(id, 10.0)
    seen, now = [], 10.0
    while len(seen) < len(ids):
        due = updates.due(now)
        assert 0 < len(due) <= MAX_PER_PASS
        for id in due:
            updates.must_send(id, FIRST, now)
        assert updates.due(now) == []
        seen += due
        deadline = updates.next_deadline()
        assert deadline is not None
        assert deadline >= now + PASS_PAUSE
        now += PASS_PAUSE
        updates.check_integrity()
    assert seen == ids


def test_one_that_has_ended_is_forgotten() -> None:
    updates = listening()
    updates.forget(R)
    updates.waits(R, 11.0)
    assert updates.next_deadline() is None
    updates.forget(R)
    updates.check_integrity()
