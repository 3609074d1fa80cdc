"""Whoever was made leader last is obeyed, whatever earlier leaders still send."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arriero.balancer.control.order_numbers import MOST_BELIEVED, VERSIONS, OrderNumbers, epoch_of

BALANCERS = 3
EVENTS = st.tuples(
    st.sampled_from(["lead", "follow", "tell", "deliver", "report"]),
    st.integers(0, BALANCERS - 1),
)


class History:
    """Balancers, one agent, and orders on their way. A balancer may not know that it leads no more.

    `epoch` is the store's.
    """

    def __init__(self) -> None:
        self.balancers = [OrderNumbers() for _ in range(BALANCERS)]
        for each in self.balancers:
            each.follow()
        self.ways: list[deque[int]] = [deque() for _ in range(BALANCERS)]
        self.epoch = 0
        self.obeyed = 0
        self.given: set[int] = set()

    def do(self, event: str, which: int) -> None:
        balancer, way = self.balancers[which], self.ways[which]
        match event:
            case "lead":
                self.epoch = max(self.epoch, balancer.outbid or 0) + 1
                balancer.lead(self.epoch)
            case "follow":
                balancer.follow()
            case "tell" if balancer.may_tell:
                number = balancer.next()
                assert number not in self.given, "two orders have one number"
                self.given.add(number)
                way.append(number)
            case "deliver" if way:
                self.obeyed = max(self.obeyed, way.popleft())  # as `Assigner` does
            case "report":
                balancer.seen(self.obeyed)


@given(st.lists(EVENTS, max_size=60))
def test_an_old_leader_never_displaces_a_later_one(events: list[tuple[str, int]]) -> None:
    history = History()
    for event, which in events:
        history.do(event, which)
    # Whoever leads now tells one more order; then everything that is on its way arrives.
    history.do("lead", 0)
    last = history.balancers[0].next()
    for way in [deque([last]), *history.ways]:
        history.obeyed = max([history.obeyed, *way])
    assert history.obeyed == last
    for balancer in history.balancers[1:]:
        balancer.seen(history.obeyed)
        assert not balancer.may_tell or epoch_of(balancer.next()) == 0


def test_a_balancer_that_is_alone_goes_on_after_what_agents_know() -> None:
    numbers = OrderNumbers()
    numbers.seen(5 * VERSIONS + 7)
    assert numbers.may_tell and numbers.outbid is None
    assert numbers.next() == 5 * VERSIONS + 8


def test_a_new_store_has_to_go_beyond_what_agents_know() -> None:
    numbers = OrderNumbers()
    numbers.lead(1)
    numbers.seen(5 * VERSIONS + 7)
    assert (numbers.may_tell, numbers.outbid) == (False, 5)
    with pytest.raises(RuntimeError, match="another balancer leads"):
        numbers.next()
    numbers.lead(6)
    assert numbers.next() == 6 * VERSIONS + 1


def test_a_number_that_cannot_have_been_given_is_not_believed() -> None:
    """Orders beyond the largest number could not be sent to anybody."""
    numbers = OrderNumbers()
    numbers.seen(2**53)
    assert numbers.next() == 1
    numbers.seen(MOST_BELIEVED - 1)
    assert numbers.next() == MOST_BELIEVED
    numbers.seen(MOST_BELIEVED)
    assert numbers.next() == MOST_BELIEVED + 1
