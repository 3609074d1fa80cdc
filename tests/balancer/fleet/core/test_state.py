"""What the parts of the core share."""

import pytest

from arriero.balancer.fleet.core.membership import Membership
from arriero.balancer.fleet.core.state import empty_state
from arriero.balancer.fleet.core.steering import Steering
from arriero.balancer.fleet.limits import Limits
from tests.balancer.fleet.builders import hello
from tests.balancer.fleet.core.scene import A


def test_draining_has_a_deadline_only_while_something_runs() -> None:
    state = empty_state(Limits(), "9.9")
    assert state.next_deadline() is None
    state.drained_at = 7.0
    assert (state.is_draining, state.is_idle, state.next_deadline()) == (True, True, None)


def test_a_closed_fleet_waits_for_nothing() -> None:
    state = empty_state(Limits(), "9.9")
    Membership(state, Steering(state)).joined(A, hello("a"), 0.0, None)
    assert state.next_deadline() is not None, "its agent may fall silent"
    state.is_closed = True
    assert state.next_deadline() is None


def test_an_agent_that_only_the_registry_knows_is_found() -> None:
    state = empty_state(Limits(), "9.9")
    state.registry.joined(A, hello("a"), 0.0)
    with pytest.raises(RuntimeError, match="different agents"):
        state.check_integrity()
