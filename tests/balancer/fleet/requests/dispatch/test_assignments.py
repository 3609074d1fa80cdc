"""How slots and requests find each other: who is held, who is passed over, which agent is best."""

from arriero.balancer.fleet.decisions import LinkId, Refuse
from arriero.balancer.fleet.requests.dispatch.assignments import MOST_PASSED, Assign
from arriero.balancer.fleet.requests.dispatch.dispatch import Dispatch
from arriero.balancer.fleet.requests.routing import Offer, RoutingRequest
from arriero.balancer.fleet.routing.choice import Choice
from arriero.balancer.fleet.routing.rates import Measurement
from arriero.balancer.fleet.routing.router import LoadOf, Router
from arriero.shared.inference import GenerateRequest, Rates, RequestId, Usage
from arriero.shared.inference.prefix_chain import PrefixChain, chain_of

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


LONG = chain_of(GenerateRequest(prompt="A conversation that was long. " * 400))


def arrive_with_prefix(dispatch: Dispatch, id: str) -> list[Assign] | Refuse:
    return dispatch.enqueue(RequestId(id), RoutingRequest(model="m", chain=LONG))


def with_warm_and_cold(max_buffered: int = 10) -> Dispatch:
    """`A` has the prefix and one slot, which is taken; `B` is idle."""
    dispatch = Dispatch(max_buffered)
    join(dispatch, A)
    assert arrive_with_prefix(dispatch, "1") == [assign("1", A)]
    dispatch.prompt_read(RequestId("1"), 3000, 0)
    join(dispatch, B)
    return dispatch


def test_a_request_waits_for_the_agent_that_has_its_prefix_and_gets_its_slot() -> None:
    dispatch = with_warm_and_cold()
    assert arrive_with_prefix(dispatch, "2") == []
    [hold] = dispatch.take_holds()
    assert hold.request == "2"
    assert hold.seconds > 0
    assert dispatch.take_holds() == []
    assert dispatch.is_held(RequestId("2"))
    dispatch.check_integrity()
    assert dispatch.ended(RequestId("1")) == [assign("2", A)]
    assert not dispatch.is_held(RequestId("2"))
    assert dispatch.release(RequestId("2")) == []


def test_a_request_that_waited_long_enough_takes_another_agent() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    assert dispatch.release(RequestId("2")) == [assign("2", B)]
    assert dispatch.router.counts.gave_up == 1
    dispatch.check_integrity()


def test_a_request_is_held_once() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    arrive(dispatch, "3")
    assert dispatch.release(RequestId("2")) == []
    assert arrive(dispatch, "4") == []
    assert dispatch.ended(RequestId("3")) == [assign("2", B)]


def test_without_queueing_nobody_is_held() -> None:
    dispatch = with_warm_and_cold(max_buffered=0)
    assert arrive_with_prefix(dispatch, "2") == [assign("2", B)]


def test_when_the_agent_that_is_waited_for_goes_others_take_its_requests() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    assert dispatch.agent_left(A, [RequestId("1")]) == [assign("2", B)]
    dispatch.check_integrity()
    again = with_warm_and_cold()
    arrive_with_prefix(again, "2")
    draining = Offer(model="m", slots=1, is_accepting=False)
    assert again.agent_changed(A, draining) == [assign("2", B)]
    again.check_integrity()


def test_an_agent_about_to_leave_gets_nothing_and_lets_go_of_nobody_before_it_left() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    dispatch.agent_suspended(A, Offer(model="m", slots=1, is_accepting=False))
    assert dispatch.ended(RequestId("1")) == []
    assert dispatch.is_held(RequestId("2"))
    assert dispatch.agent_left(A, []) == [assign("2", B)]
    dispatch.check_integrity()


def test_a_slot_passes_over_those_for_whom_another_agent_is_better() -> None:
    dispatch = with_warm_and_cold()
    assert arrive(dispatch, "2", "m") == [assign("2", B)]
    assert arrive_with_prefix(dispatch, "3") == []
    assert arrive(dispatch, "4", "m") == []
    assert dispatch.take_holds() == []
    assert dispatch.ended(RequestId("2")) == [assign("4", B)]
    assert dispatch.is_held(RequestId("3"))
    assert dispatch.ended(RequestId("1")) == [assign("3", A)]
    dispatch.check_integrity()


def test_a_held_request_can_be_withdrawn() -> None:
    dispatch = with_warm_and_cold()
    arrive_with_prefix(dispatch, "2")
    assert dispatch.ended(RequestId("2")) == []
    dispatch.check_integrity()
    assert dispatch.num_waiting == 0


def test_a_fast_agent_gets_more_than_slow_ones() -> None:
    dispatch = Dispatch(10)
    for link, speed in ((A, 5000.0), (B, 100.0)):
        join(dispatch, link, slots=8)
        dispatch.enqueue(RequestId(str(link)), RoutingRequest(model="m"))
        usage = Usage(prompt_tokens=900, completion_tokens=30)
        rates = Rates(prefill_tokens_per_second=speed, decode_tokens_per_second=speed / 20)
        dispatch.ended(RequestId(str(link)), Measurement(usage, rates, running=1, seconds=1.0))
    links = [arrive(dispatch, f"more {i}", "m") for i in range(8)]
    taken = [each[0].link for each in links if isinstance(each, list)]
    assert taken.count(A) >= 6


class WaitsForA(Router):
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
