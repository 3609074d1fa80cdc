"""Dispatch: an example for each rule."""

import pytest

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.queue_full import RETRY_AFTER
from arriero.balancer.fleet.requests.dispatch.dispatch import (
    MOST_PASSED,
    AssignSlot,
    Dispatch,
)
from arriero.balancer.fleet.requests.eligibility import ByText, Engine, Offer
from arriero.balancer.fleet.requests.request import Request
from arriero.balancer.fleet.routing.policies.cost import LeastCost
from arriero.balancer.fleet.routing.policy import Choice, LoadOf
from arriero.balancer.fleet.routing.rates import Measurement
from arriero.shared.errors import QueueFull
from arriero.shared.inference import Rates, RequestId, Usage
from arriero.shared.inference.prefix_chain import PrefixChain
from tests.balancer.fleet.builders import asking, renamed

HERE: dict[str, Request] = {}
A, B, C = LinkId(1), LinkId(2), LinkId(3)


def arrive(dispatch: Dispatch, id: str, model: str | None = None) -> list[AssignSlot] | Refuse:
    HERE[id] = asking(id, model)
    return dispatch.enqueue(HERE[id])


def the(id: str) -> Request:
    """The request that arrived last with this id."""
    return HERE[id]


def join(
    dispatch: Dispatch,
    link: LinkId,
    *,
    slots: int = 1,
    model: str | None = "m",
    is_accepting: bool = True,
) -> list[AssignSlot]:
    return dispatch.agent_joined(link, Offer(model=model, slots=slots, is_accepting=is_accepting))


def assign(id: str, link: LinkId) -> AssignSlot:
    return AssignSlot(the(id), link)


def test_without_agents_requests_wait_and_start_in_their_order() -> None:
    dispatch = Dispatch(10)
    for id in ("1", "2", "3"):
        assert arrive(dispatch, id) == []
    assert join(dispatch, A, slots=2) == [assign("1", A), assign("2", A)]
    assert dispatch.ended(the("1")) == [assign("3", A)]
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
        dispatch.ended(the(str(i)))


def test_the_queue_has_a_limit_for_newcomers() -> None:
    dispatch = Dispatch(1)
    assert arrive(dispatch, "1") == []
    refusal = arrive(dispatch, "2")
    assert isinstance(refusal, Refuse)
    assert refusal.error.code == "queue_full"
    assert refusal.error.retry_after == RETRY_AFTER
    dispatch.ended(the("1"))
    assert arrive(dispatch, "3") == []
    dispatch.check_integrity()


def test_without_queueing_a_request_is_assigned_or_refused() -> None:
    dispatch = Dispatch(0)
    assert isinstance(arrive(dispatch, "1"), Refuse)
    join(dispatch, A)
    assert arrive(dispatch, "2") == [assign("2", A)]
    assert arrive(dispatch, "3") == Refuse(
        RequestId("3"), QueueFull("no slot is free, and queueing is off", retry_after=RETRY_AFTER)
    )


def test_what_comes_back_waits_even_where_newcomers_may_not() -> None:
    dispatch = Dispatch(0)
    join(dispatch, A)
    arrive(dispatch, "1")
    assert dispatch.came_back(the("1")) == []
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
    assert dispatch.agent_left(A, ended=[the("2")]) == []
    assert join(dispatch, B, slots=3) == [assign("1", B), assign("3", B), assign("4", B)]


def test_what_comes_back_one_by_one_in_any_order_is_in_the_old_order() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=2)
    for id in ("1", "2", "3"):
        arrive(dispatch, id)
    dispatch.came_back(the("2"))
    dispatch.came_back(the("1"))
    assert dispatch.agent_rested(A) == [assign("1", A), assign("2", A)]


def test_an_agent_that_was_full_gets_nothing_until_something_of_it_ends() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=3)
    for id in ("1", "2"):
        arrive(dispatch, id)
    assert dispatch.came_back(the("2")) == []
    assert arrive(dispatch, "3") == []
    assert dispatch.ended(the("1")) == [assign("2", A), assign("3", A)]


def test_what_a_full_agent_gave_back_goes_to_another_at_once() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A)
    join(dispatch, B)
    arrive(dispatch, "1")
    assert dispatch.came_back(the("1")) == [assign("1", B)]


def test_a_model_is_served_by_those_who_have_it() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, model="m")
    join(dispatch, B, model="n")
    assert arrive(dispatch, "1", "n") == [assign("1", B)]
    assert arrive(dispatch, "2", "n") == []
    assert arrive(dispatch, "3", None) == [assign("3", A)]
    assert arrive(dispatch, "4", None) == []
    assert dispatch.ended(the("1")) == [assign("2", B)]
    assert dispatch.ended(the("2")) == [assign("4", B)]


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
    assert dispatch.ended(the("1")) == []
    assert dispatch.ended(the("2")) == []
    assert dispatch.ended(the("3")) == [assign("4", A)]
    dispatch.check_integrity()


def test_a_draining_agent_finishes_and_takes_nothing() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, slots=2)
    arrive(dispatch, "1")
    dispatch.agent_changed(A, Offer(model="m", slots=2, is_accepting=False))
    assert arrive(dispatch, "2") == []
    assert not dispatch.is_ready
    assert dispatch.ended(the("1")) == []
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
        dispatch.enqueue(the("1"))
    with pytest.raises(ValueError, match="not running"):
        dispatch.came_back(the("1"))
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
    request = HERE["1"] = asking("1", "m")
    request.bound_to = Engine("m", "f")
    dispatch.enqueue(request)
    dispatch.goes_on_by_text(request, by_text)
    assert request.queue_key == by_text
    join(dispatch, A)
    assert request.slot is None
    able = Offer(model="m", slots=1, able=(by_text,))
    assert dispatch.agent_joined(B, able) == [assign("1", B)]
    dispatch.check_integrity()


LONG = "A conversation that was long. " * 400


def isolated(*, slots: int = 2) -> Dispatch:
    """A request that may have ended its agent, while another runs on the one that is left."""
    dispatch = Dispatch(10)
    join(dispatch, A, slots=slots)
    arrive(dispatch, "suspect")
    dispatch.isolate(the("suspect"))
    join(dispatch, B, slots=slots)
    assert arrive(dispatch, "other") == [assign("other", B)]
    assert dispatch.agent_left(A, []) == []
    return dispatch


def test_what_is_isolated_waits_for_an_agent_without_requests() -> None:
    dispatch = isolated()
    assert dispatch.stranded() == []
    assert dispatch.num_slots_for(the("suspect").queue_key) == 2
    assert arrive(dispatch, "later") == [assign("later", B)]
    assert dispatch.ended(the("later")) == []
    assert dispatch.ended(the("other")) == [assign("suspect", B)]
    dispatch.check_integrity()


def test_beside_what_is_isolated_nothing_starts_before_its_answer_has_begun() -> None:
    dispatch = isolated()
    assert join(dispatch, C, slots=2) == [assign("suspect", C)]
    assert arrive(dispatch, "1") == [assign("1", B)]
    assert arrive(dispatch, "2") == []
    assert dispatch.began(B) == []
    assert dispatch.began(C) == [assign("2", C)]
    assert dispatch.began(C) == []
    dispatch.check_integrity()


def test_when_what_is_isolated_ends_its_agent_is_as_before() -> None:
    dispatch = isolated(slots=1)
    arrive(dispatch, "1")
    assert join(dispatch, C, slots=1) == [assign("suspect", C)]
    assert dispatch.ended(the("suspect")) == [assign("1", C)]
    assert dispatch.ended(the("1")) == []
    assert arrive(dispatch, "2") == [assign("2", C)]
    dispatch.check_integrity()


def test_an_agent_that_is_emptied_gets_nothing_else() -> None:
    dispatch = isolated()
    assert dispatch.empty_for(the("suspect")) == []
    assert arrive(dispatch, "later") == [], "it has a free slot"
    assert dispatch.ended(the("other")) == [assign("suspect", B)]
    assert dispatch.began(B) == [assign("later", B)]
    dispatch.check_integrity()


def test_another_agent_is_emptied_if_that_one_serves_another_model() -> None:
    dispatch = Dispatch(10)
    for link in (A, B, C):
        join(dispatch, link, model="m", slots=2)
    for id, link in (("suspect", A), ("1", B), ("2", C)):
        assert arrive(dispatch, id, "m") == [assign(id, link)]
    dispatch.isolate(the("suspect"))
    assert dispatch.agent_left(A, []) == []
    assert dispatch.empty_for(the("suspect")) == []
    emptied = the("suspect").emptied
    assert emptied is not None
    dispatch.agent_changed(emptied, Offer(model="n", slots=2, is_accepting=True))
    assert arrive(dispatch, "n1", "n") == [], "it is emptied still"
    assert dispatch.empty_for(the("suspect")) == [assign("n1", emptied)]
    assert {emptied, the("suspect").emptied} == {B, C}
    dispatch.check_integrity()


def test_what_is_isolated_follows_a_model_to_its_new_name() -> None:
    dispatch = Dispatch(10)
    join(dispatch, A, model="m")
    arrive(dispatch, "suspect", "m")
    dispatch.isolate(the("suspect"))
    dispatch.agent_left(A, [])
    assert dispatch.following({"m": "n"}) == [the("suspect")]
    assert renamed(dispatch, {"m": "n"}) == []
    assert join(dispatch, B, model="n") == [assign("suspect", B)]
    dispatch.check_integrity()


def arrive_with_prefix(dispatch: Dispatch, id: str) -> list[AssignSlot] | Refuse:
    HERE[id] = asking(id, "m", prompt=LONG)
    return dispatch.enqueue(HERE[id])


def with_warm_and_cold(max_buffered: int = 10) -> Dispatch:
    """`A` has the prefix and one slot, which is taken; `B` is idle."""
    dispatch = Dispatch(max_buffered)
    join(dispatch, A)
    assert arrive_with_prefix(dispatch, "1") == [assign("1", A)]
    dispatch.prompt_read(the("1"), 3000, 0)
    join(dispatch, B)
    return dispatch


def test_a_request_waits_for_the_agent_that_has_its_prefix_and_gets_its_slot() -> None:
    dispatch = with_warm_and_cold()
    assert arrive_with_prefix(dispatch, "2") == []
    [hold] = dispatch.take_holds()
    assert hold.request == "2"
    assert hold.seconds > 0
    assert dispatch.take_holds() == []
    assert the("2").held_for == A
    dispatch.check_integrity()
    assert dispatch.ended(the("1")) == [assign("2", A)]
    assert the("2").held_for is None
    assert dispatch.release(the("2")) == []


def test_a_request_that_waited_long_enough_takes_another_agent() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    assert dispatch.release(the("2")) == [assign("2", B)]
    assert dispatch.router.counts.gave_up == 1
    dispatch.check_integrity()


def test_a_request_is_held_once() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    arrive(dispatch, "3")
    assert dispatch.release(the("2")) == []
    assert arrive(dispatch, "4") == []
    assert dispatch.ended(the("3")) == [assign("2", B)]


def test_without_queueing_nobody_is_held() -> None:
    dispatch = with_warm_and_cold(max_buffered=0)
    assert arrive_with_prefix(dispatch, "2") == [assign("2", B)]


def test_when_the_agent_that_is_waited_for_goes_others_take_its_requests() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    assert dispatch.agent_left(A, [the("1")]) == [assign("2", B)]
    dispatch.check_integrity()
    again = with_warm_and_cold()
    arrive_with_prefix(again, "2")
    draining = Offer(model="m", slots=1, is_accepting=False)
    assert again.agent_changed(A, draining) == [assign("2", B)]
    again.check_integrity()


def test_an_agent_about_to_leave_gets_nothing_and_lets_go_of_nobody_before_it_left() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    dispatch.agent_offers(A, Offer(model="m", slots=1, is_accepting=False))
    assert dispatch.ended(the("1")) == []
    assert the("2").held_for == A
    assert dispatch.agent_left(A, []) == [assign("2", B)]
    dispatch.check_integrity()


def test_a_slot_passes_over_those_for_whom_another_agent_is_better() -> None:
    dispatch = with_warm_and_cold()
    assert arrive(dispatch, "2", "m") == [assign("2", B)]
    assert arrive_with_prefix(dispatch, "3") == []
    assert arrive(dispatch, "4", "m") == []
    assert dispatch.take_holds() == []
    assert dispatch.ended(the("2")) == [assign("4", B)]
    assert the("3").held_for == A
    assert dispatch.ended(the("1")) == [assign("3", A)]
    dispatch.check_integrity()


def test_a_held_request_can_be_withdrawn() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    assert dispatch.ended(the("2")) == []
    dispatch.check_integrity()
    assert dispatch.num_waiting == 0


def test_a_fast_agent_gets_more_than_slow_ones() -> None:
    dispatch = Dispatch(10)
    for link, speed in ((A, 5000.0), (B, 100.0)):
        join(dispatch, link, slots=8)
        arrive(dispatch, str(link), "m")
        usage = Usage(prompt_tokens=900, completion_tokens=30)
        rates = Rates(prefill_tokens_per_second=speed, decode_tokens_per_second=speed / 20)
        dispatch.ended(the(str(link)), Measurement(usage, rates, running=1, seconds=1.0))
    links = [arrive(dispatch, f"more {i}", "m") for i in range(8)]
    taken = [each[0].link for each in links if isinstance(each, list)]
    assert taken.count(A) >= 6


class WaitsForA(LeastCost):
    """Whoever could start at `B` rather waits for `A`, if it may."""

    def choose(
        self,
        chain: PrefixChain,
        *,
        load_of: LoadOf,
        free: LinkId | None,
        cache_key: int | None = None,
        most_answer: int | None = None,
        may_wait: bool = True,
    ) -> Choice | None:
        if free != B or not may_wait:
            return None if free is None else Choice(free)
        return Choice(A, patience=1.0)


def test_a_slot_passes_over_a_few_at_most() -> None:
    dispatch = Dispatch(100, WaitsForA())
    join(dispatch, A)
    assert arrive(dispatch, "first") == [assign("first", A)]
    for number in range(MOST_PASSED + 2):
        assert arrive(dispatch, str(number)) == []
    assert join(dispatch, B) == [assign(str(MOST_PASSED), B)]
    assert [hold.request for hold in dispatch.take_holds()] == [*map(str, range(MOST_PASSED))]
    dispatch.check_integrity()
