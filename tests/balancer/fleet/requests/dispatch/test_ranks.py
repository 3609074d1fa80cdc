"""Which agent with a free slot comes first."""

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.requests.dispatch.holds import Holds
from arriero.balancer.fleet.requests.dispatch.ranks import MENDED_TOGETHER, Ranks
from arriero.balancer.fleet.requests.dispatch.slots import Slots
from arriero.balancer.fleet.requests.routing import Offer
from arriero.balancer.fleet.routing.cost import Load
from arriero.balancer.fleet.routing.router import Router
from arriero.shared.inference import RequestId

A, B = LinkId(1), LinkId(2)


class ByLink(Router):
    """Ranks agents by a table."""

    def __init__(self, ranks: dict[LinkId, float]) -> None:
        super().__init__()
        self.ranks = ranks

    def rank(self, link: LinkId, load: Load) -> float:
        return self.ranks[link]


def scene(ranks: dict[LinkId, float], slots: int = 1) -> tuple[Slots, Holds, Ranks, ByLink]:
    agents, holds, router = Slots(), Holds(), ByLink(ranks)
    made = Ranks(router, agents, holds)
    for link in ranks:
        agents.add(link)
        agents.offers(agents[link], Offer(model="m", slots=slots))
        made.update(agents[link])
    return agents, holds, made, router


def test_the_cheapest_with_a_free_slot_is_first() -> None:
    agents, _, ranks, _ = scene({A: 2.0, B: 1.0})
    assert (ranks.first("m"), ranks.first(None), ranks.first("n")) == (B, B, None)
    agents.take(agents[B], RequestId("1"))
    ranks.update(agents[B])
    assert ranks.first("m") == A
    ranks.check_integrity()
    ranks.remove(A)
    assert ranks.first("m") is None


def test_of_equals_the_one_that_waited_longest_is_first() -> None:
    agents, _, ranks, _ = scene({A: 1.0, B: 1.0}, slots=2)
    agents.take(agents[A], RequestId("1"))
    ranks.update(agents[A])
    assert ranks.first("m") == B


def test_outdated_ranks_are_mended_some_at_a_time() -> None:
    links = [LinkId(number) for number in range(MENDED_TOGETHER + 1)]
    first = links[0]
    agents, _, ranks, router = scene({**dict.fromkeys(links, 1.0), first: 2.0})
    router.ranks[first] = 0.5
    ranks.outdate()
    agents.remove(links[-1])
    ranks.remove(links[-1])
    ranks.mend()
    assert ranks.first("m") != first
    ranks.mend()
    assert ranks.first("m") == first
    ranks.check_integrity()


def test_a_load_counts_those_who_run_and_those_who_are_held() -> None:
    agents, holds, ranks, _ = scene({A: 1.0}, slots=3)
    agents.take(agents[A], RequestId("1"))
    holds.hold(RequestId("2"), A, 1.0)
    assert ranks.load(agents[A], "m") == Load(running=1, slots=3, has_free_slot=True, waiting=1)
    assert ranks.load(agents[A], "n") is None
