"""Slots of agents, and their totals."""

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.requests.dispatch.slots import Slots
from arriero.balancer.fleet.requests.routing import Engine, Offer
from arriero.shared.inference import RequestId

A, B = LinkId(1), LinkId(2)


def test_totals_count_the_slots_of_those_who_take_work() -> None:
    slots = Slots()
    slots.add(A)
    slots.add(B)
    slots.offers(slots[A], Offer(model="m", slots=3, fingerprint="f"))
    slots.offers(slots[B], Offer(model="m", slots=2, is_accepting=False))
    assert slots.num_slots == 5
    assert [slots.num_for(key) for key in (None, "m", Engine("m", "f"), "n")] == [3, 3, 3, 0]
    slots.offers(slots[B], Offer(model="n", slots=2))
    assert set(slots.served) == {None, "m", "n", Engine("m", "f")}
    slots.check_integrity()
    slots.remove(A)
    assert (len(slots), slots.num_slots, slots.num_for("m"), slots.num_for(None)) == (1, 2, 0, 2)
    slots.check_integrity()


def test_a_slot_is_free_until_all_are_taken_or_the_agent_is_full() -> None:
    slots = Slots()
    slots.add(A)
    agent = slots[A]
    assert not agent.has_free_slot
    slots.offers(agent, Offer(model="m", slots=1))
    assert agent.has_free_slot
    agent.is_full = True
    assert not agent.has_free_slot
    agent.is_full = False
    slots.take(agent, RequestId("1"))
    assert not agent.has_free_slot
    assert agent.serves("m")
    assert not agent.serves("n")


def test_turns_tell_who_got_a_request_last() -> None:
    slots = Slots()
    for link in (A, B):
        slots.add(link)
    slots.take(slots[B], RequestId("1"))
    slots.take(slots[A], RequestId("2"))
    assert slots[A].turn > slots[B].turn


def test_an_agent_joins_once() -> None:
    slots = Slots()
    slots.add(A)
    with pytest.raises(ValueError, match="joined already"):
        slots.add(A)
