"""Dispatch: an example for each rule."""

import pytest

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.requests.dispatch.assignments import Assign
from arriero.balancer.fleet.requests.dispatch.dispatch import RETRY_AFTER, Dispatch
from arriero.balancer.fleet.requests.routing import ByText, Engine, Offer, RoutingRequest
from arriero.shared.errors import QueueFull
from arriero.shared.inference import RequestId

A, B, C = LinkId(1), LinkId(2), LinkId(3)


def arrive(dispatch: Dispatch, id: str, model: str | None = None) -> list[Assign] | Refuse:
    return dispatch.enqueue(RequestId(id), RoutingRequest(model=model))


def join(
    dispatch: Dispatch,
    link: LinkId,
    *,
    slots: int = 1,
    model: str | None = "m",
    is_accepting: bool = True,
) -> list[Assign]:
    return dispatch.agent_joined(link, Offer(model=model, slots=slots, is_accepting=is_accepting))


def assign(id: str, link: LinkId) -> Assign:
    return Assign(RequestId(id), link)


def test_without_agents_requests_wait_and_start_in_their_order() -> None:
    dispatch = Dispatch(10)
    for id in ("1", "2", "3"):
        assert arrive(dispatch, id) == []
    assert join(dispatch, A, slots=2) == [assign("1", A), assign("2", A)]
    assert dispatch.ended(RequestId("1")) == [assign("3", A)]
    dispatch.check_integrity()


def test_load_is_spread_by_the_share_of_slots_that_are_taken() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=4)
    join(dispatch, B, slots=2)
    links = [arrive(dispatch, str(i)) for i in range(6)]
    assert [each[0].link for each in links if isinstance(each, list)] == [A, B, A, B, A, A]


def test_of_equally_loaded_agents_the_one_that_waited_longest_gets_work() -> None:
    dispatch = Dispatch(10)
    for link in (A, B, C):
        join(dispatch, link)
    for i, link in enumerate((A, B, C, A)):
        assert arrive(dispatch, str(i)) == [assign(str(i), link)]
        dispatch.ended(RequestId(str(i)))


def test_the_queue_has_a_limit_for_newcomers() -> None:
    dispatch = Dispatch(1)
    assert arrive(dispatch, "1") == []
    refusal = arrive(dispatch, "2")
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "queue_full"
    assert refusal.error.retry_after == RETRY_AFTER
    dispatch.ended(RequestId("1"))
    assert arrive(dispatch, "3") == []
    dispatch.check_integrity()


def test_without_queueing_a_request_is_assigned_or_refused() -> None:
    dispatch = Dispatch(0)
    assert isinstance(arrive(dispatch, "1"), Refuse)
    join(dispatch, A)
    assert arrive(dispatch, "2") == [assign("2", A)]
    assert arrive(dispatch, "3") == Refuse(
        RequestId("3"), QueueFull("no slot is free and queueing is off", retry_after=RETRY_AFTER)
    )


def test_what_comes_back_waits_even_where_newcomers_may_not() -> None:
    dispatch = Dispatch(0)
    join(dispatch, A)
    arrive(dispatch, "1")
    assert dispatch.came_back(RequestId("1")) == []
    assert dispatch.num_waiting == 1
    assert dispatch.agent_rested(A) == [assign("1", A)]


def test_of_what_a_lost_agent_ran_the_oldest_goes_to_the_slot_that_is_left() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2", "3"):
        arrive(dispatch, id)
    join(dispatch, B, slots=1)
    assert dispatch.agent_left(A, ended=[]) == [assign("1", B)]


def test_what_comes_back_goes_before_all_others_in_its_old_order() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2", "3", "4"):
        arrive(dispatch, id)
    assert dispatch.agent_left(A, ended=[RequestId("2")]) == []
    assert join(dispatch, B, slots=3) == [assign("1", B), assign("3", B), assign("4", B)]


def test_what_comes_back_one_by_one_in_any_order_is_in_the_old_order() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=2)
    for id in ("1", "2", "3"):
        arrive(dispatch, id)
    dispatch.came_back(RequestId("2"))
    dispatch.came_back(RequestId("1"))
    assert dispatch.agent_rested(A) == [assign("1", A), assign("2", A)]


def test_an_agent_that_was_full_gets_nothing_until_something_of_it_ends() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2"):
        arrive(dispatch, id)
    assert dispatch.came_back(RequestId("2")) == []
    assert arrive(dispatch, "3") == []
    assert dispatch.ended(RequestId("1")) == [assign("2", A), assign("3", A)]


def test_what_a_full_agent_gave_back_goes_to_another_at_once() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A)
    join(dispatch, B)
    arrive(dispatch, "1")
    assert dispatch.came_back(RequestId("1")) == [assign("1", B)]


def test_a_model_is_served_by_those_who_have_it() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, model="m")
    join(dispatch, B, model="n")
    assert arrive(dispatch, "1", "n") == [assign("1", B)]
    assert arrive(dispatch, "2", "n") == []
    assert arrive(dispatch, "3", None) == [assign("3", A)]
    assert arrive(dispatch, "4", None) == []
    assert dispatch.ended(RequestId("1")) == [assign("2", B)]
    assert dispatch.ended(RequestId("2")) == [assign("4", B)]


def test_where_no_agent_has_a_model_yet_requests_wait_for_one() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, model=None)
    assert arrive(dispatch, "1", "m") == []
    assert arrive(dispatch, "2", None) == []
    assert dispatch.agent_changed(A, Offer(model="m", slots=1, is_accepting=True)) == [
        assign("1", A)
    ]


def test_slots_cut_below_what_runs_give_nothing_until_enough_has_ended() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2", "3", "4"):
        arrive(dispatch, id)
    assert dispatch.agent_changed(A, Offer(model="m", slots=1, is_accepting=True)) == []
    assert dispatch.ended(RequestId("1")) == []
    assert dispatch.ended(RequestId("2")) == []
    assert dispatch.ended(RequestId("3")) == [assign("4", A)]
    dispatch.check_integrity()


def test_a_draining_agent_finishes_and_takes_nothing() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=2)
    arrive(dispatch, "1")
    dispatch.agent_changed(A, Offer(model="m", slots=2, is_accepting=False))
    assert arrive(dispatch, "2") == []
    assert not dispatch.is_ready
    assert dispatch.ended(RequestId("1")) == []
    assert dispatch.agent_changed(A, Offer(model="m", slots=2, is_accepting=True)) == [
        assign("2", A)
    ]


def test_stranded_are_those_no_agent_will_take() -> None:
    dispatch = Dispatch(10)
    arrive(dispatch, "1", "m")
    arrive(dispatch, "2", "n")
    join(dispatch, A, model="m", slots=0)
    assert sorted(dispatch.stranded()) == ["1", "2"]
    dispatch.agent_changed(A, Offer(model="m", slots=1, is_accepting=True))
    assert dispatch.stranded() == ["2"]


def test_mistakes_of_the_caller_raise() -> None:
    dispatch = Dispatch(10)
    arrive(dispatch, "1")
    with pytest.raises(ValueError, match="already"):
        arrive(dispatch, "1")
    with pytest.raises(ValueError, match="not running"):
        dispatch.came_back(RequestId("1"))
    dispatch.ended(RequestId("1"))
    with pytest.raises(KeyError):
        dispatch.ended(RequestId("1"))
    join(dispatch, A)
    with pytest.raises(ValueError, match="already"):
        join(dispatch, A)


def test_whether_others_serve_besides_one_that_leaves() -> None:
    dispatch, engine = Dispatch(10), Engine("m", "f")
    offer = Offer(model="m", slots=2, fingerprint="f")
    assert not dispatch.serves(engine)
    dispatch.agent_joined(A, offer)
    assert dispatch.serves(engine)
    assert not dispatch.serves(engine, besides=A)
    dispatch.agent_joined(B, offer)
    assert dispatch.serves(engine, besides=A)
    dispatch.agent_changed(B, Offer(model="m", slots=2, fingerprint="f", is_accepting=False))
    assert not dispatch.serves(engine, besides=A)


def test_what_goes_on_by_text_waits_for_no_engine_any_more() -> None:
    dispatch, by_text = Dispatch(10), ByText("m", ("prompt",), "f")
    id = RequestId("1")
    dispatch.enqueue(id, RoutingRequest(model="m", engine=Engine("m", "f")))
    dispatch.goes_on_by_text(id, by_text)
    assert dispatch.wanted_by(id) == by_text
    join(dispatch, A)
    assert dispatch.link_of(id) is None
    able = Offer(model="m", slots=1, able=(by_text,))
    assert dispatch.agent_joined(B, able) == [assign("1", B)]
    dispatch.check_integrity()
