from arriero.balancer.fleet.decisions import Deliver, LinkId
from arriero.balancer.fleet.requests.dispatch.dispatch import RETRY_AFTER, Dispatch
from arriero.balancer.fleet.requests.routing import Engine, Offer, RoutingRequest
from arriero.balancer.fleet.requests.waiting_room import MAX_RETRY_AFTER, WaitingRoom
from arriero.shared.inference import RequestId, Waiting

P, Q, R = RequestId("p"), RequestId("q"), RequestId("r")


def unknown(_model: str | None) -> None:
    return None


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
    assert waiting.of(Q, unknown) == Waiting(2, "model")
    assert waiting.of(Q, {"m": 12.2}.get) == Waiting(2, "model", 13.0)


def test_an_answer_that_goes_on_waits_for_its_engine() -> None:
    dispatch, waiting = room()
    waiting.freed_slot("m", 3.0)
    dispatch.bind(RequestId("0"), Engine("m", "f"))
    dispatch.came_back(RequestId("0"))
    assert waiting.of(RequestId("0"), unknown) == Waiting(1, "model")
    dispatch.agent_changed(LinkId(1), Offer(model="m", slots=1, fingerprint="f"))
    assert waiting.of(RequestId("0"), unknown) == Waiting(1, "slot", 3.0)
    assert waiting.of(P, unknown).position == 2


def test_who_listens_is_told_and_who_does_not_is_not() -> None:
    dispatch, waiting = room()
    waiting.admitted(P, None, 10.0)
    assert waiting.next_deadline() is None
    waiting.admitted(Q, 1.0, 10.0)
    assert waiting.next_deadline() == 11.0
    assert waiting.tell(11.0, unknown) == [Deliver(Q, Waiting(2, "slot"))]
    assert waiting.tell(12.0, unknown) == []
    dispatch.ended(P)
    assert waiting.tell(13.0, unknown) == [Deliver(Q, Waiting(1, "slot"))]
    waiting.started(Q)
    assert waiting.next_deadline() is None
    waiting.came_back(Q, 20.0)
    assert waiting.tell(21.0, unknown) == [Deliver(Q, Waiting(1, "slot"))]
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
