"""Decisions are values."""

from arriero.balancer.fleet.decisions import BetweenTokens, FirstToken, LinkId, Send
from arriero.shared.messages import Heartbeat


def test_decisions_compare_by_what_they_say() -> None:
    assert Send(LinkId(1), Heartbeat()) == Send(LinkId(1), Heartbeat())
    assert Send(LinkId(1), Heartbeat()) != Send(LinkId(2), Heartbeat())


def test_measurements_of_different_things_differ() -> None:
    assert FirstToken(1.0) != BetweenTokens(1.0)
