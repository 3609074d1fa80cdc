"""Each ticket is good once, and for a while."""

from arriero.agent.peers.tickets import MAX_TICKETS, Tickets


def test_a_ticket_is_good_once_until_its_time() -> None:
    tickets = Tickets()
    tickets.add("a", 5.0)
    tickets.add("b", 5.0)
    assert tickets.take("a", 4.9)
    assert not tickets.take("a", 4.9)
    assert not tickets.take("b", 5.0)
    assert not tickets.take("never given", 0.0)
    assert len(tickets) == 0


def test_the_latest_are_remembered() -> None:
    tickets = Tickets()
    for number in range(MAX_TICKETS + 1):
        tickets.add(str(number), 5.0)
    assert len(tickets) == MAX_TICKETS
    assert not tickets.take("0", 0.0)
    assert tickets.take(str(MAX_TICKETS), 0.0)
