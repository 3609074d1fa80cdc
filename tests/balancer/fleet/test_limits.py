"""The limits' defaults, which the daemon's flags take over."""

from arriero.balancer.fleet.limits import Limits


def test_a_silent_peer_has_missed_several_heartbeats() -> None:
    limits = Limits()
    assert limits.heartbeat_timeout >= 3 * limits.heartbeat_interval


def test_a_stage_is_shorter_than_the_whole() -> None:
    limits = Limits()
    stages = (limits.buffered_request_timeout, limits.first_token_timeout, limits.token_timeout)
    assert max(stages) < limits.request_timeout
