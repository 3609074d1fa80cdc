"""Who is held for which agent, and was."""

import pytest

from arriero.balancer.fleet.decisions import LinkId
from arriero.balancer.fleet.requests.dispatch.holds import Hold, Holds
from arriero.shared.inference import RequestId

A, B = LinkId(1), LinkId(2)
ONE, TWO = RequestId("1"), RequestId("2")


def test_a_request_is_held_until_it_is_released() -> None:
    holds = Holds()
    holds.hold(ONE, A, 2.0)
    holds.hold(TWO, A, 3.0)
    assert holds.take_new() == [Hold(ONE, 2.0), Hold(TWO, 3.0)]
    assert holds.take_new() == []
    assert set(holds.held_for(A)) == {ONE, TWO}
    assert holds.release(ONE)
    assert not holds.release(ONE)
    assert (holds.link_for(ONE), holds.link_for(TWO)) == (None, A)
    assert set(holds.held_for(A)) == {TWO}
    holds.check_integrity()


def test_each_is_held_once() -> None:
    holds = Holds()
    holds.hold(ONE, A, 1.0)
    holds.release(ONE)
    assert holds.was_held(ONE)
    with pytest.raises(ValueError, match="held before"):
        holds.hold(ONE, B, 1.0)


def test_a_start_tells_once_for_whom_the_request_has_waited() -> None:
    holds = Holds()
    assert holds.started(ONE) is None
    holds.hold(ONE, A, 1.0)
    assert holds.started(ONE) == A
    assert holds.link_for(ONE) is None
    assert not holds.held_for(A)
    assert holds.started(ONE) is None
    holds.hold(TWO, A, 1.0)
    holds.release(TWO)
    assert holds.started(TWO) == A
    holds.check_integrity()


def test_what_is_over_is_forgotten() -> None:
    holds = Holds()
    holds.hold(ONE, A, 1.0)
    holds.forget(ONE)
    holds.forget(TWO)
    assert not holds.was_held(ONE)
    assert not holds.held_for(A)
    holds.check_integrity()
