"""Peers that failed are left alone, longer each time."""

from arriero.agent.peers.resting import FIRST_REST, LONGEST_REST, MAX_PEERS, Resting

A = "127.0.0.1:1"


def test_a_peer_that_fails_rests_longer_each_time_until_it_works() -> None:
    resting = Resting()
    assert resting.may_ask(A, 0.0)
    resting.failed(A, 0.0)
    assert not resting.may_ask(A, FIRST_REST - 0.1)
    assert resting.may_ask("another", 0.0)
    assert resting.may_ask(A, FIRST_REST)
    resting.failed(A, 10.0)
    assert not resting.may_ask(A, 10.0 + FIRST_REST)
    assert resting.may_ask(A, 10.0 + 2 * FIRST_REST)
    resting.worked(A)
    resting.failed(A, 100.0)
    assert resting.may_ask(A, 100.0 + FIRST_REST)


def test_rests_are_bounded_and_so_are_the_peers() -> None:
    resting = Resting()
    for _ in range(20):
        resting.failed(A, 0.0)
    assert resting.may_ask(A, LONGEST_REST)
    for number in range(MAX_PEERS + 5):
        resting.failed(str(number), 0.0)
    assert len(resting) == MAX_PEERS
