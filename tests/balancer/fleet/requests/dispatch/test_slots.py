"""Slots of agents, and their totals."""

from collections.abc import Iterator

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.requests.dispatch.dispatch import (
    MENDED_TOGETHER,
    AgentSlots,
    FleetSlots,
    Ranks,
)
from arriero.balancer.fleet.requests.eligibility import Engine, Offer
from arriero.balancer.fleet.routing.policies.cost import LeastCost
from arriero.balancer.fleet.routing.policy import Load
from tests.balancer.fleet.builders import asking

A, B = LinkId(1), LinkId(2)


def test_totals_count_the_slots_of_those_who_take_work() -> None:
    slots = FleetSlots()
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
    slots = FleetSlots()
    slots.add(A)
    agent = slots[A]
    assert not agent.has_free_slot
    slots.offers(agent, Offer(model="m", slots=1))
    assert agent.has_free_slot
    agent.is_full = True
    assert not agent.has_free_slot
    agent.is_full = False
    slots.take(agent, asking("1"))
    assert not agent.has_free_slot
    assert agent.serves("m")
    assert not agent.serves("n")


def test_turns_tell_who_got_a_request_last() -> None:
    slots = FleetSlots()
    for link in (A, B):
        slots.add(link)
    slots.take(slots[B], asking("1"))
    slots.take(slots[A], asking("2"))
    assert slots[A].turn > slots[B].turn


def test_an_agent_joins_once() -> None:
    slots = FleetSlots()
    slots.add(A)
    with pytest.raises(ValueError, match="joined already"):
        slots.add(A)


A, B = LinkId(1), LinkId(2)


class ByLink(LeastCost):
    """Ranks agents by a table."""

    def __init__(self, ranks: dict[LinkId, float]) -> None:
        super().__init__()
        self.ranks = ranks

    def rank(self, link: LinkId, load: Load) -> float:
        return self.ranks[link]


def scene(ranks: dict[LinkId, float], slots: int = 1) -> tuple[FleetSlots, Ranks, ByLink]:
    agents, router = FleetSlots(), ByLink(ranks)
    made = Ranks(router, agents)
    for link in ranks:
        agents.add(link)
        agents.offers(agents[link], Offer(model="m", slots=slots))
        made.update(agents[link])
    return agents, made, router


def test_the_cheapest_with_a_free_slot_is_first() -> None:
    agents, ranks, _ = scene({A: 2.0, B: 1.0})
    assert (ranks.first("m"), ranks.first(None), ranks.first("n")) == (B, B, None)
    agents.take(agents[B], asking("1"))
    ranks.update(agents[B])
    assert ranks.first("m") == A
    ranks.check_integrity()
    ranks.remove(A)
    assert ranks.first("m") is None


def test_of_equals_the_one_that_waited_longest_is_first() -> None:
    agents, ranks, _ = scene({A: 1.0, B: 1.0}, slots=2)
    agents.take(agents[A], asking("1"))
    ranks.update(agents[A])
    assert ranks.first("m") == B


def test_outdated_ranks_are_mended_some_at_a_time() -> None:
    links = [LinkId(number) for number in range(MENDED_TOGETHER + 2)]
    gone, last = links[0], links[-1]
    agents, ranks, router = scene({**dict.fromkeys(links, 1.0), last: 2.0})
    assert ranks.first("m") != last
    router.ranks[last] = 0.5
    ranks.outdate()
    agents.remove(gone)
    ranks.remove(gone)
    ranks.mend()
    assert ranks.first("m") != last
    ranks.mend()
    assert ranks.first("m") == last
    ranks.check_integrity()


def test_what_changed_since_is_not_mended() -> None:
    links = [LinkId(number) for number in range(MENDED_TOGETHER + 2)]
    last = links[-1]
    agents, ranks, router = scene({**dict.fromkeys(links, 1.0), last: 2.0})
    assert ranks.first("m") != last
    router.ranks[last] = 0.5
    ranks.outdate()
    for link in links[:2]:
        ranks.update(agents[link])
    ranks.mend()
    assert ranks.first("m") == last
    ranks.check_integrity()


class Counted(FleetSlots):
    """Counts how many agents are looked at."""

    num_looks = 0

    def __iter__(self) -> Iterator[AgentSlots]:
        for agent in super().__iter__():
            self.num_looks += 1
            yield agent

    def __getitem__(self, link: LinkId) -> AgentSlots:
        self.num_looks += 1
        return super().__getitem__(link)


def test_what_is_learnt_costs_no_look_at_every_agent() -> None:
    agents = Counted()
    ranks = Ranks(LeastCost(), agents)
    for link in map(LinkId, range(1000)):
        agents.add(link)
        agents.offers(agents[link], Offer(model="m", slots=1))
        ranks.update(agents[link])
    agents.num_looks = 0
    ranks.outdate()
    ranks.mend()
    assert agents.num_looks == MENDED_TOGETHER


def test_a_load_counts_those_who_run_and_those_who_are_held() -> None:
    agents, ranks, _ = scene({A: 1.0}, slots=3)
    agents.take(agents[A], asking("1"))
    agents[A].held.add(asking("2"))
    assert ranks.load(agents[A], "m") == Load(running=1, slots=3, has_free_slot=True, waiting=1)
    assert ranks.load(agents[A], "n") is None


def test_an_agent_is_ranked_for_what_it_serves_now() -> None:
    agents, ranks, _ = scene({A: 1.0, B: 2.0})
    engine = Engine("n", "f")
    assert (ranks.first("m"), ranks.first(engine)) == (A, None)
    agents.offers(agents[A], Offer(model="n", slots=1, fingerprint="f"))
    ranks.update(agents[A])
    assert (ranks.first("m"), ranks.first("n"), ranks.first(engine)) == (B, A, A)
    ranks.check_integrity()
    agents.offers(agents[A], Offer(model="n", slots=1))
    ranks.update(agents[A])
    assert (ranks.first("n"), ranks.first(engine), ranks.first(None)) == (A, None, A)
    ranks.check_integrity()
